//! Scan of a whole tar of any origin: the extent and the key of each sample.
//!
//! ```text
//! archive  | folder | a.jpg | link | a.cls | folder | b.jpg | zeros ...
//!          '- gap  -'----- record a -------'- gap  -'- rec b-'
//! ```
//!
//! Samples are defined as in [`TarReader`](super::TarReader), and what that rejects is an error here, links included:
//! training loaders skip them. Other members that are not files belong to the sample around them, or to none, so that
//! the extents of the samples stay valid when archives are joined.

use std::io::Read;

use super::{
    entry::{self, EntryKind, HeaderOutcome, TarEntry},
    header::{BLOCK, padding_length},
    places::Place,
    read::{display_name, group_of, part_name},
    scan::key_of,
};
use crate::{
    codec::metered::Metered,
    error::{Error, Result},
    format::{Extent, Scanned},
    record::key::split_key,
};

/// Maximum bytes between two files while it is undecided whether they belong to one sample.
const MAX_GAP: u64 = 16 << 20;

/// Reports every sample and its key; returns the extent of the samples. `files` receives the place of each file before
/// its sample is reported.
///
/// # Errors
/// If the archive is damaged or, with `files`, a name is one that WebDataset's readers skip.
pub(super) fn scan_samples(
    input: &mut dyn Read,
    mut files: Option<&mut FileVisitor<'_>>,
    visit: &mut dyn FnMut(Scanned, Option<&str>) -> Result<()>,
) -> Result<Extent> {
    let mut walk = ArchiveWalk { metered: Metered::new(input), open: None, gap: None };
    while let Some(entry) = walk.peek_entry()? {
        let header = walk.metered.offset();
        let first = walk.visit_member(&entry, visit)?;
        if let (EntryKind::File, Some(files)) = (&entry.kind, files.as_deref_mut()) {
            files(place_of(&entry, header, first)?)?;
        }
        walk.metered.advance(entry.header_bytes);
        walk.skip_content(&entry)?;
    }
    let body = walk.metered.offset();
    walk.close_sample(body, visit)?;
    walk.check_trailer()?;
    Ok(Extent { body, raw: walk.metered.offset() })
}

/// Receives the place of a file.
pub(super) type FileVisitor<'a> = dyn FnMut(Place<'_>) -> Result<()> + 'a;

/// Returns the place of a file whose headers begin at `header`; `first` means that it begins a sample.
fn place_of(entry: &TarEntry, header: u64, first: bool) -> Result<Place<'_>> {
    let name = str::from_utf8(&entry.name).map_err(|e| {
        Error::input(format!("expected a name in UTF-8, found `{}`", display_name(&entry.name)))
            .at_byte(header)
            .with_cause(e)
    })?;
    let key = key_of(&entry.name).ok_or_else(|| {
        Error::input(format!("expected a member named `key.extension`, as the indexes need, found `{name}`"))
            .at_byte(header)
    })?;
    let content = header + entry.header_bytes as u64;
    Ok(Place { name, key: key.len(), first, header, content, size: entry.size })
}

struct ArchiveWalk<'a> {
    metered: Metered<'a>,
    /// The current sample.
    open: Option<OpenRecord>,
    /// Offset of the members that are not files after the last file of the current sample.
    gap: Option<u64>,
}

struct OpenRecord {
    offset: u64,
    /// Name of its first file.
    name: Vec<u8>,
    /// Extensions of its files.
    extensions: Vec<String>,
}

impl OpenRecord {
    /// Adds a file, whose name must be one that a sample may have.
    fn add_file(&mut self, entry: &TarEntry, offset: u64) -> Result<()> {
        let refused = |reason: String| Error::input(reason).at_byte(offset).with_hint(CONVERT);
        let (_, extension) = part_name(&entry.name).map_err(|(_, reason)| refused(reason))?;
        if self.extensions.contains(&extension) {
            let name = display_name(&entry.name);
            return Err(refused(format!(
                "expected one file with extension `{extension}` in a sample, found another, `{name}`"
            )));
        }
        self.extensions.push(extension);
        Ok(())
    }
}

/// What to do about an archive that cannot be adopted.
const CONVERT: &str =
    "convert it, which rejects such samples with --on-error skip and copies the content of links: shardify convert";

impl ArchiveWalk<'_> {
    /// Returns the headers of the next member without skipping them; `None` at the end of the archive.
    fn peek_entry(&mut self) -> Result<Option<TarEntry>> {
        let offset = self.metered.offset();
        let mut wanted = BLOCK;
        loop {
            let window = self.metered.peek(wanted)?;
            let cut_short = window.len() < wanted;
            if window.is_empty() {
                // Programs that append may omit the zeros.
                return Ok(None);
            }
            match entry::read_entry(window).map_err(|fault| {
                Error::input(fault.problem)
                    .at_byte(offset + fault.at as u64)
                    .with_hint("the archive is damaged or was cut short")
            })? {
                HeaderOutcome::Entry(entry) => return Ok(Some(entry)),
                HeaderOutcome::End(_) => return Ok(None),
                HeaderOutcome::Needs(_) if cut_short => {
                    return Err(Error::input("expected the header of a member, found the end of the archive")
                        .at_byte(offset + window.len() as u64)
                        .with_hint("the archive was cut short"));
                }
                HeaderOutcome::Needs(count) => wanted = count,
            }
        }
    }

    /// Opens and closes samples; returns whether one begins with this member, which is not skipped yet.
    fn visit_member(
        &mut self,
        entry: &TarEntry,
        visit: &mut dyn FnMut(Scanned, Option<&str>) -> Result<()>,
    ) -> Result<bool> {
        let offset = self.metered.offset();
        match entry.kind {
            EntryKind::NoFile | EntryKind::Ignored => {
                if self.open.is_some() && self.gap.is_none() {
                    self.metered.mark_end();
                    self.gap = Some(offset);
                }
                let gap = self.gap.map_or(0, |start| offset - start).saturating_add(entry.total_length());
                if self.gap.is_some() && gap > MAX_GAP {
                    return Err(Error::input(format!(
                        "expected at most {MAX_GAP} bytes between two files, found {gap}"
                    ))
                    .at_byte(offset));
                }
            }
            EntryKind::Unreadable(found) => {
                let name = display_name(&entry.name);
                return Err(
                    Error::input(format!("expected `{name}` to be a plain file, found {found}")).at_byte(offset)
                );
            }
            EntryKind::Link(ref link) => {
                let (name, target) = (display_name(&entry.name), display_name(&link.target));
                return Err(Error::input(format!("expected `{name}` to be a plain file, found a link to `{target}`"))
                    .at_byte(offset)
                    .with_hint(CONVERT));
            }
            EntryKind::File => {
                if let Some(open) = &mut self.open
                    && group_of(&open.name) == group_of(&entry.name)
                {
                    self.metered.clear_mark();
                    self.gap = None;
                    open.add_file(entry, offset)?;
                    return Ok(false);
                }
                self.close_sample(offset, visit)?;
                let mut open = OpenRecord { offset, name: entry.name.clone(), extensions: Vec::new() };
                open.add_file(entry, offset)?;
                self.open = Some(open);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the current sample at the end of its last file, and skips the members between it and `next`.
    fn close_sample(&mut self, next: u64, visit: &mut dyn FnMut(Scanned, Option<&str>) -> Result<()>) -> Result<()> {
        let end = self.gap.take().unwrap_or(next);
        let hash = self.metered.end_record();
        self.metered.end_record();
        let Some(open) = self.open.take() else { return Ok(()) };
        let name = str::from_utf8(&open.name).map_err(|e| {
            Error::input(format!("expected a name in UTF-8, found `{}`", display_name(&open.name)))
                .at_byte(open.offset)
                .with_cause(e)
        })?;
        let (key, _) = split_key(name.trim_start_matches("./"));
        visit(Scanned { offset: open.offset, length: end - open.offset, hash }, Some(key))
    }

    /// Skips the content of a member and its padding.
    fn skip_content(&mut self, entry: &TarEntry) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "less than a block")]
        let pad = padding_length((entry.size % BLOCK as u64) as usize) as u64;
        let mut left = entry.size.saturating_add(pad);
        while left > 0 {
            let count = self.metered.available_bytes(left)?.len();
            if count == 0 {
                let name = display_name(&entry.name);
                return Err(Error::input(format!(
                    "expected {left} more bytes of `{name}`, found the end of the archive"
                ))
                .at_byte(self.metered.offset())
                .with_hint("the archive was cut short"));
            }
            self.metered.advance(count);
            left -= count as u64;
        }
        Ok(())
    }

    /// Reads on to the end, where only zeros may follow; headers for all members may precede them.
    fn check_trailer(&mut self) -> Result<()> {
        let mut zeros = false;
        loop {
            let offset = self.metered.offset();
            let bytes = self.metered.available_bytes(u64::MAX)?;
            if bytes.is_empty() {
                return Ok(());
            }
            if !zeros && let Ok(HeaderOutcome::End(headers)) = entry::read_entry(bytes) {
                zeros = true;
                self.metered.advance(headers);
                continue;
            }
            if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
                return Err(Error::input("expected nothing but zeros at the end of the archive, found other bytes")
                    .at_byte(offset + at as u64)
                    .with_hint("readers stop at the zeros: bytes after them would be lost"));
            }
            let count = bytes.len();
            self.metered.advance(count);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn archive(members: &[(&str, usize)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, size) in members {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_entry_type(tar::EntryType::Regular);
            if name.ends_with('/') {
                header.set_entry_type(tar::EntryType::Directory);
            }
            header.set_size(*size as u64);
            builder.append_data(&mut header, name, vec![b'x'; *size].as_slice()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn found(bytes: &[u8]) -> (Vec<(String, u64, u64)>, Extent) {
        let mut out = Vec::new();
        let extent = scan_samples(&mut &bytes[..], None, &mut |found, key| {
            let end = usize::try_from(found.offset + found.length).unwrap();
            let start = usize::try_from(found.offset).unwrap();
            assert_eq!(found.hash, crate::codec::checksum::xxh3_64(&bytes[start..end]));
            out.push((key.unwrap().to_owned(), found.offset, found.length));
            Ok(())
        });
        (out, extent.unwrap())
    }

    #[test]
    fn samples_end_with_their_last_file_and_folders_belong_to_none() {
        let bytes = archive(&[("d/", 0), ("d/a.jpg", 700), ("e/", 0), ("d/a.cls", 1), ("f/", 0), ("d/b.jpg", 5)]);
        let (records, extent) = found(&bytes);
        assert_eq!(records, [("d/a".to_owned(), 512, 512 + 1024 + 512 + 1024), ("d/b".to_owned(), 4096, 1024)]);
        assert_eq!((extent.body, extent.raw), (5120, bytes.len() as u64));
        // Joined by copying, the extents are the same, shifted.
        let body = usize::try_from(extent.body).unwrap();
        let joined = [&bytes[..body], &bytes[..]].concat();
        let twice = found(&joined).0;
        assert_eq!(twice[2], ("d/a".to_owned(), 512 + extent.body, records[0].2));
    }

    #[test]
    fn what_training_loaders_skip_or_refuse_is_an_error() {
        let refused = |edit: &dyn Fn(&mut tar::Builder<Vec<u8>>)| {
            let mut builder = tar::Builder::new(archive(&[("a.jpg", 5)])[..1024].to_vec());
            edit(&mut builder);
            let bytes = builder.into_inner().unwrap();
            scan_samples(&mut &bytes[..], None, &mut |_, _| Ok(())).unwrap_err().message().to_owned()
        };
        let add = |builder: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            if kind.is_file() {
                builder.append_data(&mut header, name, &b""[..]).unwrap();
            } else {
                builder.append_link(&mut header, name, "a.jpg").unwrap();
            }
        };
        let link = refused(&|builder| add(builder, "b.jpg", tar::EntryType::Link));
        assert_eq!(link, "expected `b.jpg` to be a plain file, found a link to `a.jpg`");
        assert!(refused(&|builder| add(builder, "b.jpg", tar::EntryType::Symlink)).contains("link to `a.jpg`"));
        let twice = refused(&|builder| add(builder, "a.JPG", tar::EntryType::Regular));
        assert_eq!(twice, "expected one file with extension `jpg` in a sample, found another, `a.JPG`");
        assert!(refused(&|builder| add(builder, "a.__key__", tar::EntryType::Regular)).contains("__key__"));
    }

    #[test]
    fn names_that_need_headers_of_their_own_are_part_of_the_sample() {
        let long = format!("{}/a.jpg", "long/".repeat(60));
        let (records, _) = found(&archive(&[(&long, 3), ("./b.txt", 0)]));
        assert_eq!((records[0].1, records[1].0.as_str()), (0, "b"));
    }

    #[test]
    fn cut_short_archives_are_bad_input_and_missing_zeros_are_not() {
        let bytes = archive(&[("a.jpg", 700), ("b.jpg", 700)]);
        assert_eq!(found(&bytes[..3072]).0.len(), 2);
        for length in [1, 511, 513, 1000, 3071] {
            assert!(scan_samples(&mut &bytes[..length], None, &mut |_, _| Ok(())).is_err(), "{length}");
        }
        let after = [&bytes[..], b"more"].concat();
        assert!(scan_samples(&mut &after[..], None, &mut |_, _| Ok(())).is_err());
    }
}
