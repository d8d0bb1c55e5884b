//! Scan of a tar: whole shards with all checks, and the members of one record.

use std::io::Read;

use super::header::{BLOCK, Head, TRAILER, padding, parse};
use crate::{
    codec::metered::Metered,
    error::{Error, Result},
    format::Scanned,
};

/// Checks a shard and reports its records; see [`Framing::scan`](crate::format::Framing::scan).
pub(super) fn scan(input: &mut dyn Read, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<()> {
    let mut walk = Walk { metered: Metered::new(input), key: Vec::new(), name: Vec::new(), record: None };
    while walk.member(visit)? {}
    walk.trailer()
}

struct Walk<'a> {
    metered: Metered<'a>,
    /// Key of the current record.
    key: Vec<u8>,
    name: Vec<u8>,
    /// Offset of the current record.
    record: Option<u64>,
}

impl Walk<'_> {
    /// Skips one member; returns false at the end of the members.
    fn member(&mut self, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<bool> {
        let offset = self.metered.offset();
        self.metered.mark();
        let Some(size) = self.head(offset)? else {
            self.close(offset, visit)?;
            return Ok(false);
        };
        let key = key_of(&self.name).ok_or_else(|| {
            let name = String::from_utf8_lossy(&self.name).into_owned();
            Error::integrity(format!("expected a member named `key.extension`, found `{name}`")).byte(offset)
        })?;
        if self.record.is_some() && key == self.key {
            self.metered.unmark();
        } else {
            let key = key.to_vec();
            self.close(offset, visit)?;
            self.key = key;
            self.record = Some(offset);
        }
        self.content(size)?;
        Ok(true)
    }

    /// Ends the current record, if any, at the mark.
    fn close(&mut self, end: u64, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<()> {
        let hash = self.metered.cut();
        match self.record.take() {
            None => Ok(()),
            Some(offset) => visit(Scanned { offset, length: end - offset, hash }),
        }
    }

    /// Skips the headers of a member and returns the size of its content; `None` at the trailer.
    fn head(&mut self, offset: u64) -> Result<Option<u64>> {
        let mut wanted = BLOCK;
        loop {
            let window = self.metered.peek(wanted)?;
            if window.len() < wanted {
                return Err(cut_short("a member or two blocks of zeros", offset + window.len() as u64));
            }
            if is_zero(&window[..BLOCK]) {
                return Ok(None);
            }
            match parse(window, &mut self.name).map_err(|problem| damaged(problem, offset))? {
                Head::Needs(count) => wanted = count,
                Head::Member { length, size } => {
                    self.metered.advance(length);
                    return Ok(Some(size));
                }
            }
        }
    }

    /// Skips the content of a member and checks the zeros after it.
    fn content(&mut self, size: u64) -> Result<()> {
        let mut left = size;
        while left > 0 {
            let count = self.metered.available(left)?.len();
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
            return Err(damaged("expected zeros after a member, found other bytes".to_owned(), offset + at as u64));
        }
        self.metered.advance(count);
        Ok(())
    }

    /// Checks the end of the archive; more zeros than needed are common and harmless.
    fn trailer(&mut self) -> Result<()> {
        let start = self.metered.offset();
        loop {
            let offset = self.metered.offset();
            let bytes = self.metered.available(u64::MAX)?;
            if bytes.is_empty() {
                let found = offset - start;
                let complete = found >= TRAILER.len() as u64;
                return if complete { Ok(()) } else { Err(cut_short("two blocks of zeros", offset)) };
            }
            if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
                let problem = "expected nothing but zeros at the end of the shard, found other bytes".to_owned();
                return Err(damaged(problem, offset + at as u64));
            }
            let count = bytes.len();
            self.metered.advance(count);
        }
    }
}

/// Like [`padding`], for content that may not fit into memory.
#[expect(clippy::cast_possible_truncation, reason = "less than a block")]
fn padding_after(size: u64) -> usize {
    padding((size % BLOCK as u64) as usize)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn cut_short(expected: &str, offset: u64) -> Error {
    Error::integrity(format!("expected {expected}, found the end of the shard"))
        .byte(offset)
        .hint("the shard was cut short; restore it from a copy, or rebuild it from its sources")
}

fn damaged(problem: String, offset: u64) -> Error {
    Error::integrity(problem).byte(offset).hint("restore this shard from a copy, or rebuild it from its sources")
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
pub fn members(record: &[u8]) -> Members<'_> {
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
        let (length, size) = match parse(window, &mut name).map_err(|problem| damaged(problem, offset))? {
            Head::Needs(_) => return Err(cut_short("a member", self.record.len() as u64)),
            Head::Member { length, size } => (length, size),
        };
        let end = usize::try_from(size)
            .ok()
            .and_then(|size| length.checked_add(size)?.checked_add(padding(size)))
            .filter(|end| *end <= window.len())
            .ok_or_else(|| cut_short(&format!("{size} bytes of content"), self.record.len() as u64))?;
        self.position += end;
        let name = String::from_utf8(name)
            .map_err(|e| damaged("expected a member name in UTF-8, found other bytes".to_owned(), offset).cause(e))?;
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
