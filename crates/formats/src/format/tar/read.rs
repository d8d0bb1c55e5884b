//! Tar archives of any origin as samples.
//!
//! ```text
//! ranges   whole samples, in the order of the archive           one thread, header by header
//! parse    samples whose parts are slices of their range        any thread, without copying
//! ```
//!
//! Consecutive files with one key are a sample, as in WebDataset. Links are files with the content to which they lead
//! (`links`); one that leads to no file of the archive rejects its sample. Other members (folders, devices, leftovers
//! of systems) do not separate samples, and are counted; those that hold data are named. A name is data, never a path:
//! a sample with a name that could escape its folder is rejected.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use bytes::Bytes;

use super::{
    entry::{self, EntryKind, HeaderOutcome, TarEntry},
    header::BLOCK,
    links::ArchiveOpener,
    ranges::TarRanges,
};
use crate::{
    error::{Error, Result},
    format::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, cut_parts, facts},
    record::{
        Content, IGNORED_NAMES, Part, PartSizes, Payload, RecordBlock, Reject, Sample, SourcePart, SourceRange,
        key::{key_length, part_type, split_key},
    },
    schema,
};

/// Name of the column with the key of a sample.
const KEY: &str = "__key__";
/// Maximum bytes of a name shown in a message.
const SHOWN: usize = 200;

/// Reads archives of any origin.
#[derive(Debug, Clone, Default)]
pub struct TarReader {
    reopen: Option<ArchiveOpener>,
}

impl TarReader {
    /// Creates a reader of archives without links: a sample with one is rejected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a reader that opens the archive again if it has links.
    pub fn with_links(reopen: ArchiveOpener) -> Self {
        Self { reopen: Some(reopen) }
    }
}

/// Detects a tar archive by its head. An archive without members cannot be detected.
pub fn sniff(head: &[u8]) -> bool {
    head.first_chunk::<BLOCK>().is_some_and(entry::is_header)
}

impl RecordReader for TarReader {
    fn facts(&self) -> &ReaderFacts {
        &facts::SAMPLES
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        Box::new(TarRanges::new(input, range_bytes, max_record_bytes).with_links(self.reopen.as_ref()))
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        let ranges = TarRanges::new(input, sizes.range_bytes, sizes.max_record_bytes).with_links(self.reopen.as_ref());
        cut_parts(ranges, sizes, |range| (count_samples(range.content_bytes()), 0))
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let ranges = TarRanges::new(input, range_bytes, max_record_bytes).with_links(self.reopen.as_ref());
        Box::new(ranges.starting_at(part.start_byte()))
    }

    fn infer(&self, range: &SourceRange) -> Fields {
        let mut types: BTreeMap<String, Arc<Field>> = BTreeMap::new();
        let samples = RangeSamples::read_range_of_rows(range).map(|samples| samples.taken).unwrap_or_default();
        for part in samples.into_iter().flat_map(|sample| sample.parts) {
            let found = Field::new(&part.extension, part_type(&part.extension, &part.bytes), true);
            let field = types.entry(part.extension).or_insert_with(|| Arc::new(found.clone()));
            if field.data_type() != found.data_type() {
                *field = Arc::new(schema::unite_fields(field, &found));
            }
        }
        std::iter::once(Arc::new(Field::new(KEY, DataType::Utf8, true))).chain(types.into_values()).collect()
    }

    fn parse(&self, range: &SourceRange, _: &SchemaRef) -> Result<Parsed> {
        let RangeSamples { taken, rows, rejects, ignored, ignored_names } = RangeSamples::read_range_of_rows(range)?;
        Ok(Parsed::Block(RecordBlock {
            hashes: range.hashes_if_needed(taken.len(), || taken.iter().map(Sample::hash).collect()),
            payload: Payload::Samples(taken),
            rows,
            rejects,
            ignored,
            ignored_names,
            bytes_in: range.bytes_in(),
            ..RecordBlock::empty()
        }))
    }
}

/// Returns the part of a name that groups the samples of an archive: the raw key.
pub(super) fn group_of(name: &[u8]) -> &[u8] {
    let name = without_dots(name);
    &name[..key_length(name)]
}

/// Returns a name for messages.
pub(super) fn display_name(name: &[u8]) -> String {
    let cut = &name[..name.len().min(SHOWN)];
    let more = if cut.len() < name.len() { "..." } else { "" };
    format!("{}{more}", String::from_utf8_lossy(cut).escape_debug())
}

/// Returns the name without the `./` that `tar` writes for members of the current folder.
fn without_dots(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    name
}

/// Counts the samples of a range, rejected ones included: consecutive files of one group are a sample.
fn count_samples(bytes: &[u8]) -> u64 {
    let (mut samples, mut at, mut open) = (0, 0, None);
    while let Some((entry, end)) = whole_entry(bytes, at).filter(|_| at < bytes.len()) {
        if entry.kind.is_part() && open.as_deref() != Some(group_of(&entry.name)) {
            samples += 1;
            open = Some(group_of(&entry.name).to_vec());
        }
        at = end;
    }
    samples
}

/// Samples collected from a range.
#[derive(Debug, Default)]
struct RangeSamples {
    taken: Vec<Sample>,
    rows: Vec<u32>,
    rejects: Vec<Reject>,
    ignored: u64,
    ignored_names: Vec<String>,
}

impl RangeSamples {
    fn read_range_of_rows(range: &SourceRange) -> Result<Self> {
        let Content::Bytes(bytes) = &range.content else {
            return Err(Error::internal("expected a range of bytes, found one of rows").at_byte(range.offset));
        };
        let mut samples = Self::default();
        let mut open: Option<OpenSample<'_>> = None;
        let mut linked = range.linked.iter();
        let mut at = 0;
        while at < bytes.len() {
            let (entry, end) = whole_entry(bytes, at).ok_or_else(|| {
                Error::internal("expected a range of whole members, found another one")
                    .at_byte(range.offset + at as u64)
            })?;
            if entry.kind.is_part() {
                if open.as_ref().is_some_and(|open| open.group != group_of(&entry.name)) {
                    samples.close_sample(open.take());
                }
                let content = if matches!(entry.kind, EntryKind::Link(_)) { linked.next() } else { None };
                open.get_or_insert_with(|| OpenSample::new(range.offset, bytes, at, &entry)).push_member(
                    &entry,
                    at..end,
                    content,
                );
            } else {
                samples.ignore_member(&entry);
            }
            at = end;
        }
        samples.close_sample(open);
        Ok(samples)
    }

    /// Counts a member that is no part of a sample, and names it if it holds data.
    fn ignore_member(&mut self, entry: &TarEntry) {
        self.ignored += 1;
        if entry.kind == EntryKind::Ignored && self.ignored_names.len() <= IGNORED_NAMES {
            self.ignored_names.push(String::from_utf8_lossy(without_dots(&entry.name)).into_owned());
        }
    }

    /// Accepts or rejects a sample whose parts are complete.
    fn close_sample(&mut self, open: Option<OpenSample<'_>>) {
        let Some(open) = open else { return };
        // A range has fewer members than bytes, and so fewer than 2^32.
        let row = u32::try_from(self.taken.len() + self.rejects.len()).unwrap_or(u32::MAX);
        match open.finish() {
            Ok(sample) => {
                self.taken.push(sample);
                self.rows.push(row);
            }
            Err(reject) => self.rejects.push(Reject { row, ..reject }),
        }
    }
}

/// Returns the member at an offset and its end; `None` if it is incomplete.
fn whole_entry(bytes: &[u8], at: usize) -> Option<(TarEntry, usize)> {
    let Ok(HeaderOutcome::Entry(entry)) = entry::read_entry(&bytes[at..]) else { return None };
    let end = usize::try_from(entry.total_length()).ok()?.checked_add(at)?;
    (end <= bytes.len()).then_some((entry, end))
}

/// A sample whose parts are being collected.
struct OpenSample<'a> {
    /// Offset of the range in the archive.
    offset: u64,
    /// The range.
    bytes: &'a Bytes,
    /// The raw common beginning of all names.
    group: Vec<u8>,
    key: String,
    start: usize,
    end: usize,
    parts: Vec<Part>,
    /// The first error: offset, part, and reason.
    fault: Option<(usize, Option<String>, String)>,
}

impl<'a> OpenSample<'a> {
    fn new(offset: u64, bytes: &'a Bytes, start: usize, first: &TarEntry) -> Self {
        let group = group_of(&first.name).to_vec();
        Self { offset, bytes, group, key: String::new(), start, end: start, parts: Vec::new(), fault: None }
    }

    fn push_member(&mut self, entry: &TarEntry, at: Range<usize>, linked: Option<&Result<Bytes, String>>) {
        self.end = at.end;
        if let Err((column, reason)) = self.add_part(entry, at.start, linked) {
            self.fault.get_or_insert((at.start, column, reason));
        }
    }

    /// Adds a part, whose content is `linked` if it is a link, or returns what is wrong with it.
    fn add_part(
        &mut self,
        entry: &TarEntry,
        at: usize,
        linked: Option<&Result<Bytes, String>>,
    ) -> Result<(), (Option<String>, String)> {
        let (key, extension) = part_name(&entry.name)?;
        let linked = linked.map(|content| content.clone().map_err(|reason| (None, reason))).transpose()?;
        if let EntryKind::Unreadable(found) = entry.kind {
            return Err((None, format!("expected `{}` to be a plain file, found {found}", display_name(&entry.name))));
        }
        if self.parts.iter().any(|part| part.extension == extension) {
            let name = display_name(without_dots(&entry.name));
            let reason =
                format!("expected one file with extension `{extension}` for key `{key}`, found another, `{name}`");
            return Err((Some(extension), reason));
        }
        key.clone_into(&mut self.key);
        let content = at + entry.header_bytes;
        // The content is within the range, so its size fits memory.
        let size = usize::try_from(entry.size).unwrap_or(0);
        let bytes = linked.unwrap_or_else(|| self.bytes.slice(content..content + size));
        self.parts.push(Part { extension, bytes });
        Ok(())
    }

    /// Returns the sample, or the reject. A reject copies its bytes, so that it does not keep the whole range in
    /// memory.
    fn finish(mut self) -> Result<Sample, Reject> {
        if let Some((at, column, reason)) = self.fault {
            let raw = Bytes::copy_from_slice(&self.bytes[self.start..self.end]);
            return Err(Reject { row: 0, line: 0, byte: self.offset + at as u64, column, reason, raw });
        }
        self.parts.sort_by(|a, b| a.extension.cmp(&b.extension));
        Ok(Sample { key: self.key, origin: String::new(), subject: None, parts: self.parts })
    }
}

/// Returns the key and the extension that a name states, or which column is at fault and why.
pub(super) fn part_name(name: &[u8]) -> Result<(&str, String), (Option<String>, String)> {
    let (key, extension) = split_key(safe_name(name).map_err(|reason| (None, reason))?);
    if extension == KEY {
        let reason = format!("expected the extension of a part, found `{KEY}`, which names the key");
        return Err((Some(extension), reason));
    }
    Ok((key, extension))
}

/// Returns the name as text, if it names a file within the folder where an archive is unpacked.
fn safe_name(name: &[u8]) -> Result<&str, String> {
    let found = || display_name(name);
    let text = str::from_utf8(without_dots(name)).map_err(|e| {
        format!("expected a name in UTF-8, found `{}`, which is not at byte {}", found(), e.valid_up_to())
    })?;
    if text.is_empty() {
        return Err(format!("expected the name of a file, found `{}`", found()));
    }
    if text.starts_with('/') {
        return Err(format!("expected a relative name, found `{}`", found()));
    }
    if text.ends_with('/') {
        return Err(format!("expected the name of a file, found that of a folder, `{}`", found()));
    }
    if text.split('/').any(|component| component == "..") {
        return Err(format!("expected a name without `..`, found `{}`", found()));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("expected a name without control characters, found `{}`", found()));
    }
    Ok(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::datatypes::Schema;

    use super::*;
    use crate::{error::Kind as ErrorKind, format::ranged::RangedInput, schema::unite_lists};

    const LARGE: usize = 1 << 20;

    /// Returns a member with a ustar header, which `edit` may change before its checksum is set.
    fn member_with(name: &[u8], content: &[u8], edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..name.len()].copy_from_slice(name);
        block[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        block[156] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        edit(&mut block);
        seal(&mut block);
        block.extend_from_slice(content);
        block.resize(block.len().next_multiple_of(BLOCK), 0);
        block
    }

    fn seal(block: &mut [u8]) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    fn member(name: &str, content: &[u8]) -> Vec<u8> {
        member_with(name.as_bytes(), content, |_| {})
    }

    fn of_type(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
        member_with(name.as_bytes(), content, |block| block[156] = kind)
    }

    fn pax(kind: u8, key: &str, value: &str) -> Vec<u8> {
        let length = key.len() + value.len() + 5;
        let record = format!("{length:02} {key}={value}\n");
        assert_eq!(record.len(), length);
        of_type(kind, "pax", record.as_bytes())
    }

    fn archive(members: &[Vec<u8>]) -> Vec<u8> {
        [&members.concat()[..], &[0; 1024]].concat()
    }

    fn ranges(archive: &[u8], range_bytes: usize) -> Result<Vec<SourceRange>> {
        TarReader::new().ranges(Box::new(archive), range_bytes, LARGE).collect()
    }

    fn parse(range: &SourceRange) -> RecordBlock {
        match TarReader::new().parse(range, &Arc::new(Schema::empty())).unwrap() {
            Parsed::Block(block) => block,
            Parsed::Mismatch(mismatch) => panic!("{mismatch:?}"),
        }
    }

    fn block(archive: &[u8]) -> RecordBlock {
        let ranges = ranges(archive, LARGE).unwrap();
        assert_eq!(ranges.len(), 1);
        parse(&ranges[0])
    }

    /// Returns samples as `key: extension=content ...`.
    fn plain(block: &RecordBlock) -> Vec<String> {
        let Payload::Samples(samples) = &block.payload else { panic!("rows") };
        let part = |part: &Part| format!(" {}={}", part.extension, String::from_utf8_lossy(&part.bytes));
        samples.iter().map(|s| format!("{}:{}", s.key, s.parts.iter().map(part).collect::<String>())).collect()
    }

    fn read(members: &[Vec<u8>]) -> Vec<String> {
        let block = block(&archive(members));
        assert_eq!(block.rejects, []);
        plain(&block)
    }

    fn error(archive: &[u8]) -> Error {
        let error = ranges(archive, LARGE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.place().byte.is_some() && !error.hints().is_empty(), "{error}");
        error
    }

    #[test]
    fn consecutive_files_with_one_key_are_a_sample() {
        let members = [
            of_type(b'5', "d/", b""),
            member("./d/a.txt", b"1"),
            of_type(b'6', "d/b.txt", b""),
            member("./d/a.JPG", b"2"),
            member("README", b"3"),
            member("d/a.txt", b"4"),
        ];
        assert_eq!(read(&members), ["d/a: jpg=2 txt=1", "README: bin=3", "d/a: txt=4"]);
        let whole = block(&archive(&members));
        assert_eq!((whole.ignored, &whole.rows[..], whole.hashes.len()), (2, &[0, 1, 2][..], 3));
        for range_bytes in [1, 2000, 4000, 5000] {
            let ranges = ranges(&archive(&members), range_bytes).unwrap();
            let mut end = 0;
            for range in &ranges {
                assert_eq!(range.offset, end);
                end += range.bytes_in();
            }
            assert_eq!(end, members.concat().len() as u64);
            let found: Vec<_> = ranges.iter().flat_map(|range| plain(&parse(range))).collect();
            assert_eq!(found, plain(&whole), "{range_bytes}");
        }
    }

    #[test]
    fn columns_are_text_where_all_their_values_are() {
        let infer = |members: &[Vec<u8>]| TarReader::new().infer(&ranges(&archive(members), LARGE).unwrap()[0]);
        let types = |fields: &Fields| -> Vec<_> {
            fields.iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
        };
        let text = infer(&[member("a.txt", b"t"), member("a.jpg", b"t"), member("b.txt", b"")]);
        let expected = [("__key__", DataType::Utf8), ("jpg", DataType::Binary), ("txt", DataType::Utf8)];
        assert_eq!(types(&text), expected.clone().map(|(name, data_type)| (name.to_owned(), data_type)));
        let bytes = infer(&[member("a.txt", b"\xff"), member("b.txt", b"t")]);
        assert_eq!(bytes[1].data_type(), &DataType::Binary);
        assert_eq!(unite_lists(&text, &bytes)[2].data_type(), &DataType::Binary);
    }

    #[test]
    fn names_with_path_traversal_and_doubtful_parts_reject_their_sample() {
        let names: [&[u8]; 8] =
            [b"/etc/a.txt", b"../a.txt", b"a/../b.txt", b"a\n.txt", b"\xff.txt", b"./", b"a\x1b.txt", b"a/.."];
        for name in names {
            let members = [member("k.cls", b"1"), member_with(name, b"2", |_| {}), member("l.cls", b"3")];
            let block = block(&archive(&members));
            assert_eq!(
                (plain(&block), &block.rows[..]),
                (vec!["k: cls=1".to_owned(), "l: cls=3".to_owned()], &[0, 2][..])
            );
            assert_eq!((block.rejects[0].row, block.rejects[0].byte), (1, 1024), "{:?}", block.rejects);
            assert_eq!(block.rejects[0].raw, members[1]);
            assert!(!block.rejects[0].reason.chars().any(char::is_control));
        }
        let reject = |members: &[Vec<u8>]| {
            let block = block(&archive(members));
            assert_eq!((block.payload.len(), block.records_in()), (0, 1));
            block.rejects[0].clone()
        };
        let twice = reject(&[member("a.txt", b"1"), member("a.TXT", b"2")]);
        assert_eq!((twice.byte, twice.column.as_deref()), (1024, Some("txt")));
        assert!(reject(&[of_type(b'S', "a.txt", b"")]).reason.contains("sparse"));
        assert!(reject(&[pax(b'x', "GNU.sparse.major", "1"), member("a.txt", b"")]).reason.contains("sparse"));
        assert!(reject(&[pax(b'x', "path", "a\0b.txt"), member("a.txt", b"")]).reason.contains("control"));
        assert!(reject(&[member("a.__key__", b"")]).reason.contains("__key__"));
    }

    /// Returns a link of a type to a target.
    fn link(kind: u8, name: &str, target: &str) -> Vec<u8> {
        member_with(name.as_bytes(), b"", |block| {
            block[156] = kind;
            block[157..157 + target.len()].copy_from_slice(target.as_bytes());
        })
    }

    /// Reads an archive with its links, in ranges of this size: samples, and reasons of rejects.
    fn linked(members: &[Vec<u8>], range_bytes: usize) -> (Vec<String>, Vec<String>) {
        let bytes = Bytes::from(archive(members));
        let input = RangedInput::Bytes(bytes.clone());
        let reader = TarReader::with_links(ArchiveOpener::new(move || Ok(input.clone())));
        let ranges = reader.ranges(Box::new(&bytes[..]), range_bytes, LARGE);
        let (mut found, mut reasons, mut end) = (Vec::new(), Vec::new(), 0);
        for range in ranges {
            let range = range.unwrap();
            assert_eq!(range.offset, end);
            end += range.bytes_in();
            let Parsed::Block(block) = reader.parse(&range, &Arc::new(Schema::empty())).unwrap() else { panic!() };
            found.extend(plain(&block));
            reasons.extend(block.rejects.into_iter().map(|reject| reject.reason));
        }
        assert_eq!(end, members.concat().len() as u64);
        (found, reasons)
    }

    #[test]
    fn links_have_the_content_of_their_targets() {
        let (hard, symbolic) = (b'1', b'2');
        let members = [
            link(symbolic, "a/1.jpg", "../b/2.jpg"),
            member("a/1.txt", b"one"),
            link(hard, "./b/2.jpg", "./b/3.jpg"),
            member("b/3.jpg", b"first"),
            link(hard, "b/4.jpg", "b/3.jpg"),
            member("b/3.jpg", b"second"),
            link(hard, "b/5.jpg", "b/3.jpg"),
            link(symbolic, "b/6.jpg", "3.jpg"),
            of_type(b'K', "././@LongLink", b"b/./7/../3.jpg"),
            link(symbolic, "7.jpg", "cut"),
            pax(b'x', "linkpath", "b/6.jpg"),
            link(hard, "8.jpg", "cut"),
        ];
        let expected = [
            "a/1: jpg=first txt=one",
            "b/2: jpg=first",
            "b/3: jpg=first",
            "b/4: jpg=first",
            "b/3: jpg=second",
            "b/5: jpg=second",
            "b/6: jpg=second",
            "7: jpg=second",
            "8: jpg=second",
        ];
        for range_bytes in [1, 1500, LARGE] {
            let (found, reasons) = linked(&members, range_bytes);
            assert_eq!((&found[..], &reasons[..]), (&expected.map(str::to_owned)[..], &[][..]), "{range_bytes}");
        }
    }

    #[test]
    fn links_that_lead_to_no_file_of_the_archive_reject_their_sample_by_name() {
        let members = [
            member("d/1.txt", b"1"),
            link(b'2', "a.jpg", "/nonexistent/x.jpg"),
            member("a.txt", b"a"),
            link(b'2', "b.jpg", "c.jpg"),
            link(b'2', "c.jpg", "b.jpg"),
            link(b'2', "e", "d"),
            link(b'1', "f.jpg", "f.jpg"),
            link(b'2', "g.jpg", "../out.jpg"),
            member("h.txt", b"h"),
        ];
        let (found, reasons) = linked(&members, LARGE);
        assert_eq!(found, ["d/1: txt=1", "h: txt=h"]);
        let expected = [
            "expected the content of `a.jpg`, found a link to `/nonexistent/x.jpg`, which is not in the archive",
            "expected the content of `b.jpg`, found a link to `c.jpg`, which leads to itself",
            "expected the content of `c.jpg`, found a link to `b.jpg`, which leads to itself",
            "expected the content of `e`, found a link to `d`, which is a folder",
            "expected the content of `f.jpg`, found a link to `f.jpg`, which leads to itself",
            "expected the content of `g.jpg`, found a link to `../out.jpg`, which is not in the archive",
        ];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn links_count_towards_the_size_of_samples_and_ranges() {
        let large = vec![b'x'; LARGE / 2];
        let members = [member("a.bin", &large), link(b'1', "b.1", "a.bin"), link(b'1', "b.2", "a.bin")];
        let input = RangedInput::Bytes(archive(&members).into());
        let reader = TarReader::with_links(ArchiveOpener::new(move || Ok(input.clone())));
        let bytes = archive(&members);
        let last = reader.ranges(Box::new(&bytes[..]), LARGE, LARGE).last().unwrap();
        assert!(last.unwrap_err().message().contains("at most"), "two halves and their headers");
        let members: Vec<Vec<u8>> = std::iter::once(member("a.bin", &large))
            .chain((0..6).map(|i| link(b'1', &format!("{i}.bin"), "a.bin")))
            .collect();
        let input = RangedInput::Bytes(archive(&members).into());
        let reader = TarReader::with_links(ArchiveOpener::new(move || Ok(input.clone())));
        let bytes = archive(&members);
        let most =
            reader.ranges(Box::new(&bytes[..]), LARGE, 2 * LARGE).map(|range| range.unwrap().linked_bytes()).max();
        assert!(most.is_some_and(|most| most > 0 && most <= LARGE as u64), "{most:?}");
    }

    #[test]
    fn leftovers_of_systems_make_no_samples_and_are_named() {
        let members = [
            member("__MACOSX/._a.jpg", b"x"),
            member("a.jpg", b"1"),
            member("._a.jpg", b"x"),
            member("a.txt", b"2"),
            member("d/Icon\r", b""),
            member("d/Thumbs.db", b"x"),
            of_type(b'V', "label", b""),
        ];
        let block = block(&archive(&members));
        assert_eq!((plain(&block), block.rejects.len()), (vec!["a: jpg=1 txt=2".to_owned()], 0));
        assert_eq!(block.ignored, 5);
        assert_eq!(block.ignored_names, ["__MACOSX/._a.jpg", "._a.jpg", "d/Icon\r", "d/Thumbs.db", "label"]);
    }

    #[test]
    fn every_dialect_has_name_and_size() {
        let long = "d/".repeat(60) + "long.txt";
        let gnu = |block: &mut [u8]| {
            block[257..265].copy_from_slice(b"ustar  \0");
            block[345..356].copy_from_slice(b"14000000000");
        };
        let base256 = |block: &mut [u8]| block[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\0\x01");
        assert_eq!(read(&[of_type(b'L', "././@LongLink", long.as_bytes()), member("short", b"1")])[0], {
            let key = long.strip_suffix(".txt").unwrap();
            format!("{key}: txt=1")
        });
        assert_eq!(read(&[of_type(b'K', "link", b"../../etc"), member("a.txt", b"1")]), ["a: txt=1"]);
        assert_eq!(read(&[pax(b'x', "path", "b.txt"), member("a.txt", b"1")]), ["b: txt=1"]);
        assert_eq!(read(&[pax(b'g', "comment", "b"), member("a.txt", b"1")]), ["a: txt=1"]);
        assert_eq!(read(&[member_with(b"a.txt", b"1", gnu)]), ["a: txt=1"]);
        assert_eq!(read(&[member_with(b"a.txt", b"1", base256)]), ["a: txt=1"]);
        assert_eq!(read(&[member_with(b"a.txt", b"1", |b| b[345..348].copy_from_slice(b"d/e"))]), ["d/e/a: txt=1"]);
        let v7 = |block: &mut [u8]| {
            block[156..].fill(0);
            block[124..136].copy_from_slice(b"         1  ");
        };
        assert_eq!(read(&[member_with(b"a.txt", b"1", v7)]), ["a: txt=1"]);
        let mut signed = member("ä.txt", b"1");
        let sum = signed[..BLOCK].iter().map(|byte| i64::from(byte.cast_signed())).sum::<i64>();
        let own = signed[148..156].iter().map(|byte| i64::from(*byte)).sum::<i64>();
        signed[148..156].copy_from_slice(format!("{:06o}\0 ", sum - own + 256).as_bytes());
        assert_eq!(read(&[signed]), ["ä: txt=1"]);
    }

    #[test]
    fn the_pax_size_overrides_the_one_in_the_header() {
        // An archive within an archive, whose member some readers attribute to the outer one.
        let inner = archive(&[member("evil.txt", b"x")]);
        let size = inner.len().to_string();
        for claimed in ["00000000000\0", "00000001000\0"] {
            let outer = member_with(b"inner.tar", &inner, |block| block[124..136].copy_from_slice(claimed.as_bytes()));
            let block = block(&archive(&[pax(b'x', "size", &size), outer, member("a.txt", b"1")]));
            let Payload::Samples(samples) = &block.payload else { panic!("rows") };
            assert_eq!(samples.len(), 2);
            assert_eq!(samples[0].parts[0].bytes, inner);
        }
        let twice = [pax(b'x', "size", "10"), pax(b'x', "size", "11"), member("a.txt", b"1")];
        assert_eq!(error(&archive(&twice)).place().byte, Some(1024));
        assert_eq!(error(&archive(&[pax(b'g', "size", "10"), member("a.txt", b"1")])).place().byte, Some(0));
    }

    #[test]
    fn truncation_within_a_member_is_an_error_and_other_ends_are_not() {
        let members = [member("a.txt", b"1"), member("b.txt", b"2")];
        let body = members.concat();
        for tail in [&[][..], &[0; 512], &[0; 10_240], &[&[0; 1024][..], b"garbage"].concat(), &[0; 700]] {
            let found = block(&[&body, tail].concat());
            assert_eq!(plain(&found), ["a: txt=1", "b: txt=2"]);
        }
        for length in 1..body.len() {
            if length != 1024 {
                assert_eq!(error(&body[..length]).place().byte, Some(length as u64));
            }
        }
        assert_eq!(ranges(&[0; 10_240], LARGE).unwrap().len(), 0);
        assert_eq!(ranges(b"", LARGE).unwrap().len(), 0);
        let joined = [archive(&members), archive(&members)].concat();
        assert_eq!(error(&joined).place().byte, Some(body.len() as u64 + 1024));
        let mut damaged = archive(&members);
        damaged[1024] ^= 1;
        assert_eq!(error(&damaged).place().byte, Some(1024));
        let three = [archive(&members)[..2048].to_vec(), damaged[1024..].to_vec()].concat();
        let reader = TarReader::new();
        let mut cut = reader.ranges(Box::new(&three[..]), 1, LARGE);
        assert_eq!(plain(&parse(&cut.next().unwrap().unwrap())), ["a: txt=1"]);
        assert_eq!(cut.next().unwrap().unwrap_err().place().byte, Some(2048));
        assert!(cut.next().is_none());
        assert!(error(&archive(&[of_type(b'L', "", b"name")])).message().contains("extended header"));
    }

    #[test]
    fn sizes_beyond_the_limit_or_the_archive_are_errors() {
        for size in [&b"77777777777\0"[..], b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"] {
            let huge = member_with(b"a.txt", b"", |block| block[124..136].copy_from_slice(size));
            assert!(error(&huge).message().contains("at most"));
            let large = member_with(b"a.txt", b"", |block| {
                block[124..136].copy_from_slice(size);
                block[156] = b'x';
            });
            assert!(error(&large).message().contains("headers"));
        }
        // Within the limit, but more than the archive holds.
        let mut input = &member_with(b"a.txt", b"", |block| block[124..136].copy_from_slice(b"00777777777\0"))[..];
        let mut cut = TarRanges::new(Box::new(&mut input), 1, usize::MAX);
        assert!(cut.next().unwrap().unwrap_err().message().contains("end of the archive"));
        let negative = member_with(b"a.txt", b"", |block| block[124..136].fill(255));
        assert!(error(&negative).message().contains("expected a size"));
    }

    #[test]
    fn archives_are_detected_by_their_first_header() {
        let tar = archive(&[member("a.txt", b"1")]);
        assert!(sniff(&tar) && sniff(&tar[..BLOCK]));
        assert!(!sniff(&tar[..BLOCK - 1]) && !sniff(&[0; 1024]) && !sniff(&[b' '; 1024]) && !sniff(&tar[1..]));
    }
}
