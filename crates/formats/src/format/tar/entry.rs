//! Headers of members written by other programs: v7, ustar, star, GNU and pax.
//!
//! ```text
//! member   [ x | g | L | K : header 512 | records or name | zeros to 512 ]*   values that do not fit the next header
//!          header 512   [ sparse map 512 ]*                                   the member itself
//!          content | zeros to 512
//! ```
//!
//! Two readers that disagree about where a member ends see different archives in the same bytes. Where known readers
//! disagree, this one follows POSIX (a pax size overrides the size in the header; folders, links and devices have no
//! content) or refuses (two sizes or two names for one member, a size or a name for all members). No size is trusted
//! before the input was found to have that many bytes.

use std::ops::Range;

use super::header::{
    BLOCK, CHECKSUM, LINK, MAGIC, NAME, PREFIX, SIZE, TYPE, header_checksum, padding_length, split_pax_record,
};
use crate::record::clutter::has_clutter;

/// Maximum bytes of headers before one member.
const MAX_HEADERS: usize = 1 << 20;
/// Offsets of the bytes of a GNU sparse header, and of its continuation blocks, that state whether another block
/// follows.
const SPARSE_MORE: [usize; 2] = [482, 504];
/// Range of the first part of the name in archives of `star`, which stores other fields after it.
const STAR_PREFIX: Range<usize> = 345..476;
/// Magic bytes at the end of a `star` header.
const STAR_MAGIC: &[u8] = b"tar\0";

/// Result of parsing the bytes at the start of a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderOutcome {
    /// This many bytes from the start are needed.
    Needs(usize),
    /// A block of zeros, the end of the archive, after this many bytes of headers for all members.
    End(usize),
    /// All headers of a member.
    Entry(TarEntry),
}

/// A member without its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TarEntry {
    /// Bytes of all its headers.
    pub(super) header_bytes: usize,
    /// Bytes of content that follow, without padding.
    pub(super) size: u64,
    pub(super) kind: EntryKind,
    /// The raw name.
    pub(super) name: Vec<u8>,
}

/// Treatment of a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A regular file.
    File,
    /// Another name of a file, whose content is that of its target.
    Link(Link),
    /// Folders, devices and others that hold no data.
    NoFile,
    /// A member that holds data, but is no part of a sample: a leftover of a system, or of an unknown type.
    Ignored,
    /// A file whose content is not stored normally; the reason.
    Unreadable(&'static str),
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    /// Whether it is a symbolic link, relative to its folder; otherwise the target is the name of a member.
    pub(super) symbolic: bool,
    /// The raw target.
    pub(super) target: Vec<u8>,
}

impl EntryKind {
    /// Whether the member is a part of a sample.
    pub(super) fn is_part(&self) -> bool {
        !matches!(self, Self::NoFile | Self::Ignored)
    }
}

impl TarEntry {
    /// Returns the bytes of the whole member, including padding.
    pub(super) fn total_length(&self) -> u64 {
        let size = self.size.checked_next_multiple_of(BLOCK as u64);
        size.and_then(|size| size.checked_add(self.header_bytes as u64)).unwrap_or(u64::MAX)
    }
}

/// Why the bytes are not a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeaderFault {
    /// Offset from the start of the window.
    pub(super) at: usize,
    /// What was expected and what was found.
    pub(super) problem: String,
}

/// Values from extended headers for the next member.
#[derive(Debug, Default)]
struct Extended {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

/// Parses all headers of the member at the start of `window`.
pub(super) fn read_entry(window: &[u8]) -> Result<HeaderOutcome, HeaderFault> {
    let mut extended = Extended::default();
    let (mut at, mut pending) = (0, false);
    loop {
        let fault = |problem: String| HeaderFault { at, problem };
        let Some(block) = window[at..].first_chunk::<BLOCK>() else { return Ok(HeaderOutcome::Needs(at + BLOCK)) };
        if block.iter().all(|byte| *byte == 0) {
            // Headers for the whole archive may come last.
            let problem = "expected a member after an extended header, found the end of the archive";
            return if pending { Err(fault(problem.to_owned())) } else { Ok(HeaderOutcome::End(at)) };
        }
        verify_checksum(block).map_err(fault)?;
        let size = parse_number(&block[SIZE]).map_err(|found| fault(format!("expected a size, found {found}")))?;
        if !matches!(block[TYPE], b'x' | b'X' | b'g' | b'L' | b'K') {
            return finish_entry(window, at, block, size, extended);
        }
        let end = usize::try_from(size).ok().and_then(|size| (at + BLOCK).checked_add(size));
        let end = end.filter(|end| *end <= MAX_HEADERS).ok_or_else(|| {
            fault(format!("expected at most {MAX_HEADERS} bytes of headers for a member, found a header of {size}"))
        })?;
        let next = end + padding_length(end);
        let Some(content) = window.get(at + BLOCK..next) else { return Ok(HeaderOutcome::Needs(next + BLOCK)) };
        extended.apply_content(block[TYPE], &content[..end - at - BLOCK]).map_err(fault)?;
        pending |= block[TYPE] != b'g';
        at = next;
    }
}

/// Whether a block is a header, judged by its checksum.
pub(super) fn is_header(block: &[u8; BLOCK]) -> bool {
    verify_checksum(block).is_ok()
}

fn finish_entry(
    window: &[u8],
    at: usize,
    block: &[u8; BLOCK],
    size: u64,
    extended: Extended,
) -> Result<HeaderOutcome, HeaderFault> {
    let name = extended.name.unwrap_or_else(|| name_of(block));
    let folder = name.ends_with(b"/");
    let (kind, has_content) = match block[TYPE] {
        // Before types existed, a trailing slash marked a folder.
        0 if folder => (EntryKind::NoFile, false),
        b'0' | b'7' if folder && size == 0 => (EntryKind::NoFile, false),
        b'1' | b'2' => {
            let target = extended.target.unwrap_or_else(|| until_nul(&block[LINK]).to_vec());
            (EntryKind::Link(Link { symbolic: block[TYPE] == b'2', target }), false)
        }
        b'3'..=b'6' => (EntryKind::NoFile, false),
        b'S' => (EntryKind::Unreadable("a sparse file"), true),
        b'M' => (EntryKind::Unreadable("the rest of a file from another volume"), true),
        0 | b'0' | b'7' if extended.sparse => (EntryKind::Unreadable("a sparse file"), true),
        0 | b'0' | b'7' => (EntryKind::File, true),
        _ => (EntryKind::Ignored, true),
    };
    let kind = if kind != EntryKind::NoFile && has_clutter(&name) { EntryKind::Ignored } else { kind };
    let mut header_bytes = at + BLOCK;
    if block[TYPE] == b'S' {
        let mut more = block[SPARSE_MORE[0]];
        while more != 0 {
            if header_bytes > MAX_HEADERS {
                let problem = format!("expected at most {MAX_HEADERS} bytes of headers for a member, found more");
                return Err(HeaderFault { at, problem });
            }
            let Some(map) = window[header_bytes..].first_chunk::<BLOCK>() else {
                return Ok(HeaderOutcome::Needs(header_bytes + BLOCK));
            };
            more = map[SPARSE_MORE[1]];
            header_bytes += BLOCK;
        }
    }
    let size = if has_content { extended.size.unwrap_or(size) } else { 0 };
    Ok(HeaderOutcome::Entry(TarEntry { header_bytes, size, kind, name }))
}

impl Extended {
    /// Applies the content of an extended header.
    fn apply_content(&mut self, kind: u8, content: &[u8]) -> Result<(), String> {
        match kind {
            b'L' => set_once(&mut self.name, until_nul(content))?,
            b'K' => set_once(&mut self.target, until_nul(content))?,
            kind => {
                let mut records = trim_zeros(content);
                while !records.is_empty() {
                    let (key, value, rest) = split_pax_record(records)
                        .ok_or("expected pax records `LENGTH key=value`, found other bytes")?;
                    self.apply_pax(key, value, kind == b'g')?;
                    records = rest;
                }
            }
        }
        Ok(())
    }

    /// Applies a pax record; one without a value has no effect.
    fn apply_pax(&mut self, key: &[u8], value: &[u8], for_all: bool) -> Result<(), String> {
        let sparse = key.starts_with(b"GNU.sparse.") || key == b"SUN.holesdata";
        if value.is_empty() || !sparse && !matches!(key, b"path" | b"linkpath" | b"size") {
            return Ok(());
        }
        if for_all {
            let key = String::from_utf8_lossy(key);
            return Err(format!("expected `{key}` in the pax header of a member, found it in one for all members"));
        }
        match key {
            b"path" => set_once(&mut self.name, value)?,
            b"linkpath" => set_once(&mut self.target, value)?,
            b"size" => {
                let digits = value.iter().all(u8::is_ascii_digit);
                let size = str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
                let size = size.ok_or("expected a number as pax size, found something else")?;
                if self.size.is_some_and(|other| other != size) {
                    return Err("expected one pax size for a member, found two".to_owned());
                }
                self.size = Some(size);
            }
            // The path in the header is a placeholder; the name of a sparse file is not needed.
            _ => self.sparse = true,
        }
        Ok(())
    }
}

/// Sets a name or a target that does not fit a header.
fn set_once(field: &mut Option<Vec<u8>>, name: &[u8]) -> Result<(), String> {
    match field {
        Some(other) if other != name => Err("expected one long name for a member, found two".to_owned()),
        _ => {
            *field = Some(name.to_vec());
            Ok(())
        }
    }
}

/// Verifies the checksum: the sum of the block's bytes, taken as unsigned as in POSIX or as signed as some old programs
/// did.
fn verify_checksum(block: &[u8; BLOCK]) -> Result<(), String> {
    let expected = header_checksum(block);
    // A byte of 128 or more counts 256 less if it is signed.
    let large = |bytes: &[u8]| bytes.iter().filter(|byte| **byte >= 128).count() as i64;
    let signed = i64::from(expected) - 256 * (large(block) - large(&block[CHECKSUM]));
    match parse_number(&block[CHECKSUM]) {
        Ok(found) if found == u64::from(expected) || i64::try_from(found) == Ok(signed) => Ok(()),
        Ok(found) => Err(format!("expected a tar header with checksum {expected:o}, found {found:o}")),
        Err(found) => Err(format!("expected a tar header with checksum {expected:o}, found {found}")),
    }
}

/// Parses a number in octal digits, or in GNU's base 256, marked by a first byte of 128; the error states what was
/// found.
fn parse_number(field: &[u8]) -> Result<u64, String> {
    let bad = || format!("\"{}\"", field.escape_ascii());
    if let Some((128, rest)) = field.split_first() {
        let add = |value: u64, byte: &u8| value.checked_mul(256)?.checked_add(u64::from(*byte));
        return rest.iter().try_fold(0, add).ok_or_else(bad);
    }
    let digits = until_nul(field).trim_ascii();
    let add = |value: u64, digit: &u8| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    };
    digits.iter().try_fold(0, add).ok_or_else(bad)
}

/// Returns the name in a header block; only ustar and star have a prefix, GNU has other fields in its place.
fn name_of(block: &[u8; BLOCK]) -> Vec<u8> {
    let prefix = match &block[MAGIC] {
        b"ustar\x0000" if block.ends_with(STAR_MAGIC) => until_nul(&block[STAR_PREFIX]),
        b"ustar\x0000" => until_nul(&block[PREFIX]),
        _ => &[],
    };
    let name = until_nul(&block[NAME]);
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}

fn until_nul(field: &[u8]) -> &[u8] {
    &field[..memchr::memchr(0, field).unwrap_or(field.len())]
}

fn trim_zeros(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}
