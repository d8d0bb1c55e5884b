//! ZIP archives as used by NPZ: the central directory, and members that are stored or deflated.
//!
//! ```text
//! [local header, name, extra, bytes]*   [central entry, name, extra]*   [zip64 end] [zip64 locator]   end
//! ```
//!
//! The central directory is authoritative; only the lengths in a local header that lead to the bytes are read.
//! Encrypted members, multi-part archives and other methods are rejected with an error that names them.

use std::io::{BufReader, Read};

use crate::error::{Error, Result};

/// First bytes of an archive with members.
pub const MAGIC: &[u8] = b"PK\x03\x04";

const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;
const CENTRAL: &[u8] = b"PK\x01\x02";
const CENTRAL_BYTES: usize = 46;
const LOCAL_BYTES: u64 = 30;
const LOCATOR_BYTES: u64 = 20;
/// Maximum distance of the end record from the end of the file: it may have a comment of 65,535 bytes.
const TAIL: u64 = 65_535 + END_BYTES as u64;
/// Maximum size of a directory in bytes.
const MAX_DIRECTORY: u64 = 64 << 20;

/// A member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipMember {
    /// Name in the archive.
    pub name: String,
    /// Whether the content is deflated.
    pub deflated: bool,
    /// Bytes in the archive.
    pub packed: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// CRC-32 of the content.
    pub crc32: u32,
    /// Offset of the local header.
    local: u64,
}

/// Reads ranges of an archive.
pub trait Ranges {
    /// Returns the size of the archive in bytes.
    fn byte_count(&self) -> u64;

    /// Reads `bytes` bytes at an offset.
    ///
    /// # Errors
    /// When the range is beyond the end of the archive.
    fn read(&self, offset: u64, bytes: u64) -> Result<bytes::Bytes>;
}

fn uint_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes.get(at..at + width).unwrap_or_default().iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Reads the members of an archive, in the order of its directory.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is damaged or of an unsupported kind.
pub fn read_members(archive: &dyn Ranges) -> Result<Vec<ZipMember>> {
    let total = archive.byte_count();
    let tail_at = total.saturating_sub(TAIL);
    let tail = archive.read(tail_at, total - tail_at)?;
    let end = memchr::memmem::rfind(&tail, END).filter(|at| at + END_BYTES <= tail.len());
    let end = end.ok_or_else(|| {
        Error::input("expected the end of a ZIP archive, found none").with_hint("the file may have been cut short")
    })?;
    let record = &tail[end..];
    let (mut entries, mut size, mut start) = (uint_at(record, 10, 2), uint_at(record, 12, 4), uint_at(record, 16, 4));
    let end_at = tail_at + end as u64;
    if (entries == 0xffff || size == 0xffff_ffff || start == 0xffff_ffff) && end_at >= LOCATOR_BYTES {
        let locator = archive.read(end_at - LOCATOR_BYTES, LOCATOR_BYTES)?;
        if locator.starts_with(b"PK\x06\x07") {
            let wide = archive.read(uint_at(&locator, 8, 8), 56)?;
            if !wide.starts_with(b"PK\x06\x06") {
                return Err(Error::input("expected the end of a ZIP64 archive, found something else"));
            }
            (entries, size, start) = (uint_at(&wide, 32, 8), uint_at(&wide, 40, 8), uint_at(&wide, 48, 8));
        }
    }
    if size > MAX_DIRECTORY || start.checked_add(size).is_none_or(|end| end > total) {
        return Err(Error::input(format!("expected a ZIP directory within the file, found {size} bytes at {start}")));
    }
    let directory = archive.read(start, size)?;
    let mut rest = &directory[..];
    let mut members = Vec::new();
    for _ in 0..entries {
        let (member, length) = parse_member(rest).map_err(|e| e.at_byte(start + size - rest.len() as u64))?;
        rest = &rest[length..];
        members.push(member);
    }
    Ok(members)
}

fn parse_member(entry: &[u8]) -> Result<(ZipMember, usize)> {
    let cut = || Error::input("expected an entry of a ZIP directory, found something else");
    if !entry.starts_with(CENTRAL) || entry.len() < CENTRAL_BYTES {
        return Err(cut());
    }
    let lengths = [28, 30, 32].map(|at| usize::from(u16::try_from(uint_at(entry, at, 2)).unwrap_or(u16::MAX)));
    let name = entry.get(CENTRAL_BYTES..CENTRAL_BYTES + lengths[0]).ok_or_else(cut)?;
    let name = String::from_utf8_lossy(name).into_owned();
    let extra_at = CENTRAL_BYTES + lengths[0];
    let mut extra = entry.get(extra_at..extra_at + lengths[1]).ok_or_else(cut)?;
    let total = extra_at + lengths[1] + lengths[2];
    if entry.len() < total {
        return Err(cut());
    }
    let (mut packed, mut bytes, mut local) = (uint_at(entry, 20, 4), uint_at(entry, 24, 4), uint_at(entry, 42, 4));
    while extra.len() >= 4 {
        let (id, length) = (uint_at(extra, 0, 2), usize::try_from(uint_at(extra, 2, 2)).unwrap_or_default());
        let mut content = extra.get(4..4 + length).ok_or_else(cut)?;
        if id == 1 {
            for value in [&mut bytes, &mut packed, &mut local] {
                if *value == 0xffff_ffff && content.len() >= 8 {
                    *value = uint_at(content, 0, 8);
                    content = &content[8..];
                }
            }
        }
        extra = &extra[4 + length..];
    }
    let deflated = match (uint_at(entry, 10, 2), uint_at(entry, 8, 2) & 1) {
        (0, 0) if packed == bytes => false,
        (8, 0) => true,
        (0, 0) => return Err(Error::input(format!("expected `{name}` to be stored in {bytes} bytes, found {packed}"))),
        (_, 1) => return Err(Error::input(format!("expected members without a password, found `{name}` with one"))),
        (method, _) => {
            return Err(Error::input(format!(
                "expected stored or deflated members, found `{name}` of method {method}"
            )));
        }
    };
    let crc32 = u32::try_from(uint_at(entry, 16, 4)).unwrap_or_default();
    Ok((ZipMember { name, deflated, packed, bytes, crc32, local }, total))
}

impl ZipMember {
    /// Returns the offset of the member's bytes in the archive.
    ///
    /// # Errors
    /// When its header is damaged or it extends beyond the end.
    pub fn data_offset(&self, archive: &dyn Ranges) -> Result<u64> {
        let header = archive.read(self.local, LOCAL_BYTES)?;
        if !header.starts_with(MAGIC) {
            return Err(Error::input(format!("expected the header of `{}`, found something else", self.name))
                .at_byte(self.local));
        }
        let start = self.local + LOCAL_BYTES + uint_at(&header, 26, 2) + uint_at(&header, 28, 2);
        match start.checked_add(self.packed) {
            Some(end) if end <= archive.byte_count() => Ok(start),
            _ => {
                Err(Error::input(format!("expected all of `{}`, found the end of the file", self.name)).at_byte(start))
            }
        }
    }

    /// Passes the content of a deflated or stored member to `sink`, piece by piece.
    ///
    /// # Errors
    /// When it is damaged, or `sink` fails.
    pub fn inflate_to(&self, archive: &dyn Ranges, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let wrong = |what: &str| Error::input(format!("expected {what} in member `{}`", self.name)).at_byte(self.local);
        let start = self.data_offset(archive)?;
        let stored = BufReader::with_capacity(PIECE, Stored { archive, at: start, end: start + self.packed });
        let mut input: Box<dyn Read + '_> = match self.deflated {
            true => Box::new(flate2::bufread::DeflateDecoder::new(stored)),
            false => Box::new(stored),
        };
        let (mut piece, mut found, mut sum) = (vec![0; PIECE], 0, crc32fast::Hasher::new());
        loop {
            let read = input.read(&mut piece).map_err(|e| match e.kind() {
                // A failure of the storage.
                std::io::ErrorKind::Other => Error::from(e),
                _ => wrong("deflated bytes").with_cause(e),
            })?;
            if read == 0 {
                break;
            }
            found += read as u64;
            if found > self.bytes {
                break;
            }
            sum.update(&piece[..read]);
            sink(&piece[..read])?;
        }
        if found != self.bytes {
            return Err(wrong(&format!("{} bytes as in the directory", self.bytes)));
        }
        if sum.finalize() != self.crc32 {
            return Err(Error::input(format!(
                "expected member `{}` to match its checksum, found damaged bytes",
                self.name
            ))
            .at_byte(self.local));
        }
        Ok(())
    }
}

/// Bytes of a member per read.
const PIECE: usize = 1 << 20;

/// A range of an archive as a sequential reader.
struct Stored<'a> {
    archive: &'a dyn Ranges,
    at: u64,
    end: u64,
}

impl Read for Stored<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = (self.end - self.at).min(buffer.len() as u64);
        if bytes == 0 {
            return Ok(0);
        }
        let read = self.archive.read(self.at, bytes).map_err(std::io::Error::from)?;
        buffer[..read.len()].copy_from_slice(&read);
        self.at += read.len() as u64;
        Ok(read.len())
    }
}
