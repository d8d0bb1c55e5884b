//! Scan of a tar: whole shards with all checks, and the members of one record.

use std::io::Read;

use super::header::{BLOCK, Head, TRAILER, padding_length, parse_headers};
use crate::{
    codec::metered::Metered,
    error::{Error, Result},
    format::Scanned,
};

/// Checks a shard and reports its records; see [`Framing::scan`](crate::format::Framing::scan).
pub(super) fn scan_shard(input: &mut dyn Read, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<()> {
    let mut walk = ShardWalk { metered: Metered::new(input), key: Vec::new(), name: Vec::new(), record: None };
    while walk.skip_member(visit)? {}
    walk.check_trailer()
}

struct ShardWalk<'a> {
    metered: Metered<'a>,
    /// Key of the current record.
    key: Vec<u8>,
    name: Vec<u8>,
    /// Offset of the current record.
    record: Option<u64>,
}

impl ShardWalk<'_> {
    /// Skips one member; returns false at the end of the members.
    fn skip_member(&mut self, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<bool> {
        let offset = self.metered.offset();
        self.metered.mark_end();
        let Some(size) = self.skip_headers(offset)? else {
            self.close_record(offset, visit)?;
            return Ok(false);
        };
        let key = key_of(&self.name).ok_or_else(|| {
            let name = String::from_utf8_lossy(&self.name).into_owned();
            Error::integrity(format!("expected a member named `key.extension`, found `{name}`")).at_byte(offset)
        })?;
        if self.record.is_some() && key == self.key {
            self.metered.clear_mark();
        } else {
            let key = key.to_vec();
            self.close_record(offset, visit)?;
            self.key = key;
            self.record = Some(offset);
        }
        self.skip_content(size)?;
        Ok(true)
    }

    /// Ends the current record, if any, at the mark.
    fn close_record(&mut self, end: u64, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<()> {
        let hash = self.metered.end_record();
        match self.record.take() {
            None => Ok(()),
            Some(offset) => visit(Scanned { offset, length: end - offset, hash }),
        }
    }

    /// Skips the headers of a member and returns the size of its content; `None` at the trailer.
    fn skip_headers(&mut self, offset: u64) -> Result<Option<u64>> {
        let mut wanted = BLOCK;
        loop {
            let window = self.metered.peek(wanted)?;
            if window.len() < wanted {
                return Err(cut_short("a member or two blocks of zeros", offset + window.len() as u64));
            }
            if is_zero(&window[..BLOCK]) {
                return Ok(None);
            }
            match parse_headers(window, &mut self.name).map_err(|problem| damage_error(problem, offset))? {
                Head::Needs(count) => wanted = count,
                Head::Member { length, size } => {
                    self.metered.advance(length);
                    return Ok(Some(size));
                }
            }
        }
    }

    /// Skips the content of a member and checks the zeros after it.
    fn skip_content(&mut self, size: u64) -> Result<()> {
        let mut left = size;
        while left > 0 {
            let count = self.metered.available_bytes(left)?.len();
            if count == 0 {
                let name = String::from_utf8_lossy(&self.name);
                return Err(cut_short(&format!("{left} more bytes of `{name}`"), self.metered.offset()));
            }
            self.metered.advance(count);
            left -= count as u64;
        }
        let count = padding_after(size);
        let offset = self.metered.offset();
        let zeros = self.metered.peek(count)?;
        if zeros.len() < count {
            return Err(cut_short("zeros after a member", offset + zeros.len() as u64));
        }
        if let Some(at) = zeros.iter().position(|byte| *byte != 0) {
            return Err(damage_error(
                "expected zeros after a member, found other bytes".to_owned(),
                offset + at as u64,
            ));
        }
        self.metered.advance(count);
        Ok(())
    }

    /// Checks the end of the archive; more zeros than needed are common and harmless.
    fn check_trailer(&mut self) -> Result<()> {
        let start = self.metered.offset();
        loop {
            let offset = self.metered.offset();
            let bytes = self.metered.available_bytes(u64::MAX)?;
            if bytes.is_empty() {
                let found = offset - start;
                let complete = found >= TRAILER.len() as u64;
                return if complete { Ok(()) } else { Err(cut_short("two blocks of zeros", offset)) };
            }
            if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
                let problem = "expected nothing but zeros at the end of the shard, found other bytes".to_owned();
                return Err(damage_error(problem, offset + at as u64));
            }
            let count = bytes.len();
            self.metered.advance(count);
        }
    }
}

/// Like [`padding_length`], for content that may not fit into memory.
#[expect(clippy::cast_possible_truncation, reason = "less than a block")]
fn padding_after(size: u64) -> usize {
    padding_length((size % BLOCK as u64) as usize)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn cut_short(expected: &str, offset: u64) -> Error {
    Error::integrity(format!("expected {expected}, found the end of the shard"))
        .at_byte(offset)
        .with_hint("the shard was cut short; restore it from a copy, or rebuild it from its sources")
}

fn damage_error(problem: String, offset: u64) -> Error {
    Error::integrity(problem)
        .at_byte(offset)
        .with_hint("restore this shard from a copy, or rebuild it from its sources")
}

/// Returns the name up to the first dot of its last component, by which readers of WebDataset group; `None` for names
/// that they skip.
pub(super) fn key_of(name: &[u8]) -> Option<&[u8]> {
    let base = memchr::memrchr(b'/', name).map_or(0, |slash| slash + 1);
    let dot = memchr::memchr(b'.', &name[base..])?;
    (dot > 0).then(|| &name[..base + dot])
}

/// Content of one file within a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The full name, `key.extension`.
    pub name: String,
    /// Offset of the content from the start of the record.
    pub data_offset: u64,
    /// Length of the content in bytes.
    pub size: u64,
}

/// Iterates over the members of a record, given all its bytes.
pub fn record_members(record: &[u8]) -> Members<'_> {
    Members { record, position: 0 }
}

/// Iterator over the members of a record; ends after the first error.
#[derive(Debug)]
pub struct Members<'a> {
    record: &'a [u8],
    position: usize,
}

impl Members<'_> {
    fn read(&mut self) -> Result<Member> {
        let offset = self.position as u64;
        let window = &self.record[self.position..];
        let mut name = Vec::new();
        let (length, size) = match parse_headers(window, &mut name).map_err(|problem| damage_error(problem, offset))? {
            Head::Needs(_) => return Err(cut_short("a member", self.record.len() as u64)),
            Head::Member { length, size } => (length, size),
        };
        let end = usize::try_from(size)
            .ok()
            .and_then(|size| length.checked_add(size)?.checked_add(padding_length(size)))
            .filter(|end| *end <= window.len())
            .ok_or_else(|| cut_short(&format!("{size} bytes of content"), self.record.len() as u64))?;
        self.position += end;
        let name = String::from_utf8(name).map_err(|e| {
            damage_error("expected a member name in UTF-8, found other bytes".to_owned(), offset).with_cause(e)
        })?;
        Ok(Member { name, data_offset: offset + length as u64, size })
    }
}

impl Iterator for Members<'_> {
    type Item = Result<Member>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.record.len() {
            return None;
        }
        let member = self.read();
        if member.is_err() {
            self.position = self.record.len();
        }
        Some(member)
    }
}
