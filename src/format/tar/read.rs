//! Tar archives of any origin as samples.
//!
//! ```text
//! splits   whole samples, as they stand in the archive          one thread, header by header
//! parse    samples whose parts are slices of their split        any thread, nothing is copied
//! ```
//!
//! Consecutive files with one key are a sample, as in WebDataset; what is no file (folders, links, devices) lies between
//! without parting them, is never followed, and is counted. A name is data here, never a path: a sample with a name
//! that could lead somewhere is rejected.

use std::{collections::BTreeMap, io::Read, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use bytes::Bytes;

use super::{
    BLOCK,
    entry::{self, Entry, Found, Kind},
    splits::Splits,
};
use crate::{
    error::{Error, Result},
    format::{Parsed, RecordReader},
    record::{
        Content, Part, Payload, RecordBlock, Reject, Sample, Split,
        key::{key_length, part_type, split_key},
    },
    schema,
};

/// Column that holds the key of a sample.
const KEY: &str = "__key__";
/// Most bytes of a name that a message shows.
const SHOWN: usize = 200;

/// Reads archives of any origin.
#[derive(Debug, Clone, Copy, Default)]
pub struct TarReader;

impl TarReader {
    /// A reader; there is nothing to choose.
    pub fn new() -> Self {
        Self
    }
}

/// Whether a source that begins like this is a tar archive. An archive without members cannot be told.
pub fn sniff(head: &[u8]) -> bool {
    head.first_chunk::<BLOCK>().is_some_and(entry::is_header)
}

impl RecordReader for TarReader {
    fn splits<'a>(
        &'a self,
        input: Box<dyn Read + Send + 'a>,
        split_bytes: usize,
        max_record_bytes: usize,
    ) -> Box<dyn Iterator<Item = Result<Split>> + Send + 'a> {
        Box::new(Splits::new(input, split_bytes, max_record_bytes))
    }

    fn infer(&self, split: &Split) -> Fields {
        let mut types: BTreeMap<String, Arc<Field>> = BTreeMap::new();
        let samples = Samples::read(split).map(|samples| samples.taken).unwrap_or_default();
        for part in samples.into_iter().flat_map(|sample| sample.parts) {
            let found = Field::new(&part.extension, part_type(&part.extension, &part.bytes), true);
            let field = types.entry(part.extension).or_insert_with(|| Arc::new(found.clone()));
            if field.data_type() != found.data_type() {
                *field = Arc::new(schema::unite_fields(field, &found));
            }
        }
        std::iter::once(Arc::new(Field::new(KEY, DataType::Utf8, true))).chain(types.into_values()).collect()
    }

    fn parse(&self, split: &Split, _: &SchemaRef) -> Result<Parsed> {
        let Samples { taken, rows, rejects, passed_over } = Samples::read(split)?;
        Ok(Parsed::Block(RecordBlock {
            hashes: taken.iter().map(Sample::hash).collect(),
            payload: Payload::Samples(taken),
            rows,
            rejects,
            lines: 0,
            blank_lines: 0,
            padded: 0,
            passed_over,
            bytes_in: split.bytes_in(),
        }))
    }
}

/// What tells the samples of an archive apart: the key as it stands there.
pub(super) fn group_of(name: &[u8]) -> &[u8] {
    let name = without_dots(name);
    &name[..key_length(name)]
}

/// A name as messages show it.
pub(super) fn shown(name: &[u8]) -> String {
    let cut = &name[..name.len().min(SHOWN)];
    let more = if cut.len() < name.len() { "..." } else { "" };
    format!("{}{more}", String::from_utf8_lossy(cut).escape_debug())
}

/// The name without the `./` that `tar` puts in front of everything in the folder where it runs.
fn without_dots(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    name
}

/// The samples of a split.
#[derive(Debug, Default)]
struct Samples {
    taken: Vec<Sample>,
    rows: Vec<u32>,
    rejects: Vec<Reject>,
    passed_over: u64,
}

impl Samples {
    fn read(split: &Split) -> Result<Self> {
        let Content::Bytes(bytes) = &split.content else {
            return Err(Error::internal("expected a split of bytes, found one of rows").byte(split.offset));
        };
        let mut samples = Self::default();
        let mut open: Option<Open<'_>> = None;
        let mut at = 0;
        while at < bytes.len() {
            let (entry, end) = whole_entry(bytes, at).ok_or_else(|| {
                Error::internal("expected a split of whole members, found another one").byte(split.offset + at as u64)
            })?;
            if entry.kind == Kind::NoFile {
                samples.passed_over += 1;
            } else {
                if open.as_ref().is_some_and(|open| open.group != group_of(&entry.name)) {
                    samples.close(open.take());
                }
                open.get_or_insert_with(|| Open::new(split.offset, bytes, at, &entry)).push(&entry, at, end);
            }
            at = end;
        }
        samples.close(open);
        Ok(samples)
    }

    /// Takes or rejects a sample that has all its parts.
    fn close(&mut self, open: Option<Open<'_>>) {
        let Some(open) = open else { return };
        // A split holds fewer members than bytes, and so fewer than 2^32.
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

/// The member that begins there, and where it ends; `None` when not all of it is there.
fn whole_entry(bytes: &[u8], at: usize) -> Option<(Entry, usize)> {
    let Ok(Found::Entry(entry)) = entry::read(&bytes[at..]) else { return None };
    let end = usize::try_from(entry.length()).ok()?.checked_add(at)?;
    (end <= bytes.len()).then_some((entry, end))
}

/// A sample while its parts are gathered.
struct Open<'a> {
    /// Offset of the split in the archive.
    offset: u64,
    /// The split.
    bytes: &'a Bytes,
    /// What all names begin with, as it stands there.
    group: Vec<u8>,
    key: String,
    start: usize,
    end: usize,
    parts: Vec<Part>,
    /// The first thing that is wrong: where, with which part, and what.
    fault: Option<(usize, Option<String>, String)>,
}

impl<'a> Open<'a> {
    fn new(offset: u64, bytes: &'a Bytes, start: usize, first: &Entry) -> Self {
        let group = group_of(&first.name).to_vec();
        Self { offset, bytes, group, key: String::new(), start, end: start, parts: Vec::new(), fault: None }
    }

    fn push(&mut self, entry: &Entry, at: usize, end: usize) {
        self.end = end;
        if let Err((column, reason)) = self.take(entry, at) {
            self.fault.get_or_insert((at, column, reason));
        }
    }

    /// Adds a part, or tells what is wrong with it.
    fn take(&mut self, entry: &Entry, at: usize) -> Result<(), (Option<String>, String)> {
        let name = safe_name(&entry.name).map_err(|reason| (None, reason))?;
        if let Kind::Unreadable(found) = entry.kind {
            return Err((None, format!("expected `{}` to be a plain file, found {found}", shown(name.as_bytes()))));
        }
        let (key, extension) = split_key(name);
        if extension == KEY {
            let reason = format!("expected the extension of a part, found `{KEY}`, which names the key");
            return Err((Some(extension), reason));
        }
        if self.parts.iter().any(|part| part.extension == extension) {
            let reason =
                format!("expected one file with extension `{extension}` for key `{key}`, found another, `{name}`");
            return Err((Some(extension), reason));
        }
        key.clone_into(&mut self.key);
        let content = at + entry.header_bytes;
        // The content lies within the split, so its size is one of memory.
        let size = usize::try_from(entry.size).unwrap_or(0);
        self.parts.push(Part { extension, bytes: self.bytes.slice(content..content + size) });
        Ok(())
    }

    /// The sample, or why it is none. A reject copies its bytes, so as not to keep the whole split.
    fn finish(mut self) -> Result<Sample, Reject> {
        if let Some((at, column, reason)) = self.fault {
            let raw = Bytes::copy_from_slice(&self.bytes[self.start..self.end]);
            return Err(Reject { row: 0, line: 0, byte: self.offset + at as u64, column, reason, raw });
        }
        self.parts.sort_by(|a, b| a.extension.cmp(&b.extension));
        Ok(Sample { key: self.key, origin: String::new(), parts: self.parts })
    }
}

/// The name as text, if it names a file within the folder where an archive is unpacked.
fn safe_name(name: &[u8]) -> Result<&str, String> {
    let found = || shown(name);
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
