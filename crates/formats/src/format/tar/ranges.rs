//! Cuts an archive into ranges of whole samples.
//!
//! Members are read header by header, and a range ends at the first sample that does not fit:
//!
//! ```text
//! archive  | a.jpg | a.cls | folder | b.jpg | b.cls | c.jpg ...  | zeros 1024 |
//! range    |<------------------------------------->|
//! ```
//!
//! The size of every read depends on the bytes before it, never on a size in a header, and the cut depends on the bytes
//! alone. Bytes after the final zeros are read to the end, so that a decoder verifies its checksums, and are ignored
//! unless they are another archive, whose records must not be lost.
//!
//! The content of a link counts as its own, wherever it is in the archive, and travels beside the bytes of the range.

use std::io::Read;

use bytes::Bytes;

use super::{
    entry::{self, EntryKind, HeaderFault, HeaderOutcome, TarEntry},
    header::BLOCK,
    links::{ArchiveOpener, Links},
    read::{display_name, group_of},
};
use crate::{
    error::{Error, Result},
    format::ahead::{self, READ},
    record::SourceRange,
};

/// Iterator over the ranges of an archive.
pub(super) struct TarRanges<'a> {
    input: Box<dyn Read + Send + 'a>,
    /// Bytes read but not returned yet; starts with a member.
    buffer: Vec<u8>,
    /// Offset of the buffer in the archive.
    offset: u64,
    range_bytes: usize,
    max_record_bytes: usize,
    done: bool,
    /// Opens the archive again if it has links.
    reopen: Option<&'a ArchiveOpener>,
    links: Option<Links>,
}

impl<'a> TarRanges<'a> {
    pub(super) fn new(input: Box<dyn Read + Send + 'a>, range_bytes: usize, max_record_bytes: usize) -> Self {
        let (buffer, range_bytes) = (Vec::new(), range_bytes.max(1));
        Self { input, buffer, offset: 0, range_bytes, max_record_bytes, done: false, reopen: None, links: None }
    }

    /// Says how the archive is opened again for the content of links.
    pub(super) fn with_links(self, reopen: Option<&'a ArchiveOpener>) -> Self {
        Self { reopen, ..self }
    }

    /// Says that the input begins at this place of the archive, where a sample starts.
    pub(super) fn starting_at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    fn next_range(&mut self) -> Result<Option<SourceRange>> {
        self.buffer.reserve_exact(self.range_bytes.saturating_add(READ).saturating_sub(self.buffer.len()));
        let mut open = Vec::new();
        let (mut at, mut sample) = (0, 0);
        // Bytes of links: of all, and of those before the current sample.
        let (mut linked, mut linked_before, mut contents) = (0, 0, Vec::new());
        while let Some(entry) = self.read_entry(at)? {
            let end = self.end_of(&entry, at);
            let target = self.target_of(&entry, at)?;
            let size = target.as_ref().and_then(|target| target.as_ref().ok()).map_or(0, |(_, size)| *size);
            if entry.kind.is_part() && group_of(&entry.name) != open {
                if at > 0 && end.saturating_add(linked).saturating_add(size) > self.range_bytes as u64 {
                    break;
                }
                open = group_of(&entry.name).to_vec();
                (sample, linked_before) = (at, linked);
            }
            linked = linked.saturating_add(size);
            if (end - sample as u64).saturating_add(linked - linked_before) > self.max_record_bytes as u64 {
                return Err(self.too_long(sample, &entry));
            }
            if let Some(target) = target {
                contents.push(self.read_link(target)?);
            }
            // Fits, because it does not exceed the record limit.
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            if !self.fill_buffer(end)? {
                let expected = format!("expected {} bytes of `{}`", entry.size, display_name(&entry.name));
                return Err(self.cut_short(&expected));
            }
            at = end;
        }
        Ok(ahead::take_range(&mut self.buffer, &mut self.offset, at)
            .map(|range| SourceRange { linked: contents, ..range }))
    }

    /// Returns where the content of a link is, or why it has none; `None` for other members.
    fn target_of(&mut self, entry: &TarEntry, at: usize) -> Result<Option<Result<(u64, u64), String>>> {
        let EntryKind::Link(link) = &entry.kind else { return Ok(None) };
        if let (None, Some(reopen)) = (&self.links, self.reopen) {
            self.links = Some(Links::from_archive(reopen)?);
        }
        let unknown = || Err(format!("expected a file, found the link `{}` to another one", display_name(&entry.name)));
        let at = self.offset + at as u64;
        Ok(Some(self.links.as_ref().map_or_else(unknown, |links| links.resolve_link(at, &entry.name, link))))
    }

    /// Reads the content of a link.
    fn read_link(&self, target: Result<(u64, u64), String>) -> Result<Result<Bytes, String>> {
        match (target, &self.links) {
            (Ok((offset, size)), Some(links)) => links.read_content(offset, size).map(Ok),
            (Ok(_), None) => Err(Error::internal("expected the links of an archive, found none")),
            (Err(reason), _) => Ok(Err(reason)),
        }
    }

    /// Returns the member at an offset; `None` at the end of the archive.
    fn read_entry(&mut self, at: usize) -> Result<Option<TarEntry>> {
        let mut wanted = at + BLOCK;
        loop {
            if !self.fill_buffer(wanted)? {
                if self.buffer.len() > at {
                    return Err(self.cut_short("expected the header of a member"));
                }
                // Programs that append may omit the zeros.
                self.done = true;
                return Ok(None);
            }
            match entry::read_entry(&self.buffer[at..]) {
                Ok(HeaderOutcome::Needs(count)) => wanted = at + count,
                Ok(HeaderOutcome::Entry(entry)) => return Ok(Some(entry)),
                Ok(HeaderOutcome::End(headers)) => {
                    self.done = true;
                    self.read_trailer(at + headers)?;
                    return Ok(None);
                }
                Err(HeaderFault { at: within, problem }) => {
                    return Err(damage_error(&problem).at_byte(self.offset + (at + within) as u64));
                }
            }
        }
    }

    /// Returns the offset in the buffer of the end of a member.
    fn end_of(&self, entry: &TarEntry, at: usize) -> u64 {
        entry.total_length().saturating_add(at as u64)
    }

    /// Reads the rest of the input after the end of the archive, whose zeros begin at `at`.
    fn read_trailer(&mut self, at: usize) -> Result<()> {
        let mut offset = self.offset + at as u64;
        let mut rest = self.buffer.split_off(at);
        loop {
            for (i, block) in rest.as_chunks::<BLOCK>().0.iter().enumerate() {
                if entry::is_header(block) {
                    return Err(Error::input("expected the end of the archive after its zeros, found another archive")
                        .at_byte(offset + (i * BLOCK) as u64)
                        .with_hint(
                            "archives are joined by `tar --concatenate`, not by `cat`; give them as separate files",
                        ));
                }
            }
            let whole = rest.len() / BLOCK * BLOCK;
            offset += whole as u64;
            rest.drain(..whole);
            if self.input.as_mut().take(READ as u64).read_to_end(&mut rest)? == 0 {
                return Ok(());
            }
        }
    }

    fn fill_buffer(&mut self, target: usize) -> Result<bool> {
        ahead::fill_buffer(self.input.as_mut(), &mut self.buffer, target)
    }

    fn cut_short(&self, expected: &str) -> Error {
        Error::input(format!("{expected}, found the end of the archive"))
            .at_byte(self.offset + self.buffer.len() as u64)
            .with_hint("the archive was cut short; get it anew from where it came from")
    }

    fn too_long(&self, sample: usize, entry: &TarEntry) -> Error {
        let (limit, name) = (self.max_record_bytes, display_name(&entry.name));
        Error::input(format!("expected samples of at most {limit} bytes, found a longer one with `{name}`"))
            .at_byte(self.offset + sample as u64)
            .with_hint("if the input is as it should be, raise --memory")
    }
}

impl Iterator for TarRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_range();
        self.done |= next.is_err();
        next.transpose()
    }
}

fn damage_error(problem: &str) -> Error {
    Error::input(problem).with_hint("the archive is damaged; get it anew from where it came from")
}
