//! The directory at the end of an archive: where it is, and its entries, read in pieces.

use super::{
    Ranges, ZipMember,
    content::{Content, Method},
    fields::{extra_fields, uint_at},
    names::{decode_name, unsafe_name, without_dot},
};
use crate::error::{Error, Result};

const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;
const CENTRAL: &[u8] = b"PK\x01\x02";
const CENTRAL_BYTES: usize = 46;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_BYTES: u64 = 20;
const WIDE_END: &[u8] = b"PK\x06\x06";
const WIDE_END_BYTES: u64 = 56;
/// Maximum distance of the end record from the end of the file: it may have a comment of 65,535 bytes.
const TAIL: u64 = 65_535 + END_BYTES as u64;
/// Bytes of the directory per read; an entry has less than a fifth of that.
const PIECE: u64 = 1 << 20;

/// What to do about an archive that has no end.
const TRUNCATED: &str = "the file may have been cut short: download or copy it again";

/// Where the directory of an archive is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Directory {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Number of entries.
    entries: u64,
    /// Whether the number was stated in 64 bits: one of 16 bits may have overflowed.
    wide: bool,
}

impl Directory {
    /// Finds the directory by the records at the end.
    pub(super) fn find(archive: &dyn Ranges) -> Result<Self> {
        let total = archive.byte_count();
        let tail_at = total.saturating_sub(TAIL);
        let tail = archive.read(tail_at, total - tail_at)?;
        let end = find_end(&tail).ok_or_else(|| {
            Error::input("expected the directory of a zip archive at the end of the file, found none: it is truncated")
                .at_byte(total)
                .with_hint(TRUNCATED)
        })?;
        let (record, end_at) = (&tail[end..], tail_at + end as u64);
        let mut disks = [uint_at(record, 4, 2), uint_at(record, 6, 2)];
        let mut found = Self {
            start: uint_at(record, 16, 4),
            bytes: uint_at(record, 12, 4),
            entries: uint_at(record, 10, 2),
            wide: false,
        };
        let mut limit = end_at;
        let is_wide =
            found.entries == 0xffff || found.bytes == 0xffff_ffff || found.start == 0xffff_ffff || disks[0] == 0xffff;
        if let Some((at, wide)) = if is_wide { wide_end(archive, end_at)? } else { None } {
            disks = [uint_at(&wide, 16, 4), uint_at(&wide, 20, 4)];
            let value = |at| uint_at(&wide, at, 8);
            found = Self { start: value(48), bytes: value(40), entries: value(32), wide: true };
            limit = at;
        }
        if disks != [0, 0] {
            let disk = disks[0].max(disks[1]) + 1;
            return Err(Error::input(format!("expected a zip archive in one file, found part {disk} of several"))
                .at_byte(end_at)
                .with_hint("join its parts first: zip -s 0 PARTS.zip --out WHOLE.zip"));
        }
        match found.start.checked_add(found.bytes) {
            Some(end) if end <= limit => Ok(found),
            _ => Err(Error::input(format!(
                "expected the directory of a zip archive before byte {limit}, found it stated as {} bytes at {}",
                found.bytes, found.start
            ))
            .at_byte(end_at)
            .with_hint(TRUNCATED)),
        }
    }

    /// Calls `visit` with every member, in the order of the directory.
    pub(super) fn each_member(
        self,
        archive: &dyn Ranges,
        visit: &mut dyn FnMut(ZipMember) -> Result<()>,
    ) -> Result<()> {
        let (mut next, end) = (self.start, self.start + self.bytes);
        let (mut piece, mut used, mut found) = (Vec::new(), 0, 0);
        loop {
            let at = next - (piece.len() - used) as u64;
            match parse_entry(&piece[used..]) {
                Entry::Whole(member, length) => {
                    visit(*member).map_err(|e| if e.place().byte.is_none() { e.at_byte(at) } else { e })?;
                    (used, found) = (used + length, found + 1);
                }
                Entry::Cut if next < end => {
                    piece.drain(..used);
                    used = 0;
                    let more = archive.read(next, PIECE.min(end - next))?;
                    next += more.len() as u64;
                    piece.extend_from_slice(&more);
                }
                // Some archives have a signature behind the entries.
                _ if piece.len() == used || piece[used..].starts_with(b"PK\x05\x05") => break,
                _ => {
                    let message = "expected an entry of the directory of a zip archive, found something else";
                    return Err(Error::input(message).at_byte(at).with_hint("the archive is damaged: copy it again"));
                }
            }
        }
        let stated = if self.wide { found } else { found & 0xffff };
        if stated == self.entries {
            return Ok(());
        }
        Err(Error::input(format!("expected a zip archive of {} members, found {found}", self.entries))
            .at_byte(self.start)
            .with_hint("the archive is damaged: copy it again"))
    }
}

/// Returns the offset of the end record in the last bytes. A comment may contain the signature, so a record whose
/// comment ends where the file does is preferred.
fn find_end(tail: &[u8]) -> Option<usize> {
    let fits = |at: &usize| at + END_BYTES <= tail.len();
    let is_exact = |at: &usize| (at + END_BYTES) as u64 + uint_at(tail, at + 20, 2) == tail.len() as u64;
    let all = || memchr::memmem::rfind_iter(tail, END).filter(fits);
    all().find(is_exact).or_else(|| all().next())
}

/// Returns offset and content of the wide end record before an end record, if there is one.
fn wide_end(archive: &dyn Ranges, end_at: u64) -> Result<Option<(u64, bytes::Bytes)>> {
    let Some(locator_at) = end_at.checked_sub(LOCATOR_BYTES) else { return Ok(None) };
    let locator = archive.read(locator_at, LOCATOR_BYTES)?;
    if !locator.starts_with(LOCATOR) {
        return Ok(None);
    }
    let at = uint_at(&locator, 8, 8);
    let is_before = at.checked_add(WIDE_END_BYTES).is_some_and(|end| end <= locator_at);
    let wide = if is_before { archive.read(at, WIDE_END_BYTES)? } else { bytes::Bytes::new() };
    if wide.starts_with(WIDE_END) {
        return Ok(Some((at, wide)));
    }
    let message = format!("expected the end record of a large zip archive at byte {at}, found something else");
    Err(Error::input(message).at_byte(locator_at).with_hint(TRUNCATED))
}

/// What is at a place of the directory.
enum Entry {
    /// An entry, and its bytes.
    Whole(Box<ZipMember>, usize),
    /// The beginning of one, or nothing.
    Cut,
    /// Something else.
    Other,
}

fn parse_entry(entry: &[u8]) -> Entry {
    if !entry.starts_with(&CENTRAL[..entry.len().min(CENTRAL.len())]) {
        return Entry::Other;
    }
    let length = |at| usize::try_from(uint_at(entry, at, 2)).unwrap_or_default();
    let (name_end, extra_end) = (CENTRAL_BYTES + length(28), CENTRAL_BYTES + length(28) + length(30));
    let total = extra_end + length(32);
    if entry.len() < CENTRAL_BYTES.max(total) {
        return Entry::Cut;
    }
    let (raw, extra) = (&entry[CENTRAL_BYTES..name_end], &entry[name_end..extra_end]);
    let (mut packed, mut bytes) = (uint_at(entry, 20, 4), uint_at(entry, 24, 4));
    let (mut local, mut disk) = (uint_at(entry, 42, 4), uint_at(entry, 34, 2));
    for (_, mut content) in extra_fields(extra).filter(|(id, _)| *id == 1) {
        for value in [&mut bytes, &mut packed, &mut local].into_iter().filter(|value| **value == 0xffff_ffff) {
            if let Some((wide, rest)) = content.split_at_checked(8) {
                *value = uint_at(wide, 0, 8);
                content = rest;
            }
        }
        if disk == 0xffff && content.len() >= 4 {
            disk = uint_at(content, 0, 4);
        }
    }
    let small = |at| u16::try_from(uint_at(entry, at, 2)).unwrap_or_default();
    let (flags, method) = (small(8), small(10));
    let (name, unsafe_name) = match decode_name(raw, flags, extra).map(without_dot) {
        Some(name) => {
            let fault = unsafe_name(&name);
            (name, fault)
        }
        None => (String::from_utf8_lossy(raw).into_owned(), Some("bytes that are not UTF-8, as its flags say".into())),
    };
    let is_unix = matches!(entry[5], 3 | 19);
    let content = Content {
        method: Method(method),
        flags,
        packed,
        bytes,
        crc32: u32::try_from(uint_at(entry, 16, 4)).unwrap_or_default(),
        local,
        name_hash: crc32fast::hash(raw),
        name_bytes: u16::try_from(raw.len()).unwrap_or(u16::MAX),
    };
    let member = ZipMember {
        name,
        content,
        unsafe_name,
        is_link: is_unix && (uint_at(entry, 38, 4) >> 16) & 0o17_0000 == 0o12_0000,
        is_elsewhere: disk != 0,
    };
    Entry::Whole(Box::new(member), total)
}
