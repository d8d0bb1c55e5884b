//! The content of a member: its local header, its decoder, and the comparison with the size and the checksum that the
//! directory states.

use std::{
    cell::RefCell,
    io::{self, BufReader, Cursor, Read},
};

use flate2::{Decompress, FlushDecompress, Status};

use super::fields::uint_at;
use crate::{
    codec::decompress::{self, Compression},
    error::{Error, Result},
};

/// First bytes of an archive with members.
pub const MAGIC: &[u8] = b"PK\x03\x04";

/// Bytes of a local header before the name.
const LOCAL_BYTES: u64 = 30;

/// Flag of an encrypted member.
const ENCRYPTED: u16 = 1;
/// Flag of a member whose sizes and checksum follow its bytes.
const DESCRIPTOR: u16 = 1 << 3;
/// Flag of an archive whose directory is encrypted.
const MASKED: u16 = 1 << 13;
/// Maximum bytes that are reserved for what a directory states, which may be wrong.
const RESERVED: u64 = 16 << 20;
/// Bytes of a member per read.
const BUFFER: u64 = 128 << 10;

/// The way in which a member is packed, by its number in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method(pub u16);

impl Method {
    /// Not packed.
    pub const STORED: Self = Self(0);
    /// Deflate.
    pub const DEFLATE: Self = Self(8);
    const BZIP2: Self = Self(12);
    const ZSTD: Self = Self(93);
    const XZ: Self = Self(95);

    /// Returns the name of the method, `None` if it is not in the specification.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "stored",
            1 => "shrink",
            2..=5 => "reduce",
            6 => "implode",
            8 => "deflate",
            9 => "deflate64",
            10 => "dcl",
            12 => "bzip2",
            14 => "lzma",
            16 | 19 => "compression of IBM",
            20 | 93 => "zstd",
            94 => "mp3",
            95 => "xz",
            96 => "jpeg",
            97 => "wavpack",
            98 => "ppmd",
            99 => "encryption of WinZip",
            _ => return None,
        })
    }

    /// Whether members of this method are read.
    pub(super) fn is_read(self) -> bool {
        [Self::STORED, Self::DEFLATE, Self::BZIP2, Self::ZSTD, Self::XZ].contains(&self)
    }
}

/// Where the content of a member is, and what it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// How it is packed.
    pub method: Method,
    pub(super) flags: u16,
    /// Bytes in the archive.
    pub packed: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// CRC-32 of the content.
    pub crc32: u32,
    /// Offset of the local header.
    pub local: u64,
    /// CRC-32 of the name, as it is stored.
    pub(super) name_hash: u32,
    /// Bytes of the name, as it is stored.
    pub(super) name_bytes: u16,
}

impl Content {
    /// Whether the content, or the directory that describes it, is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.flags & (ENCRYPTED | MASKED) != 0 || self.method == Method(99)
    }

    /// Returns the bytes of the local header without its extra fields: fewest bytes before the content.
    pub fn header_bytes(&self) -> u64 {
        LOCAL_BYTES + u64::from(self.name_bytes)
    }

    /// Returns the offset of the content in the archive, given at least [`header_bytes`](Self::header_bytes) bytes of
    /// the local header.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if the header contradicts the directory.
    pub fn data_start(&self, header: &[u8]) -> Result<u64> {
        let error = |expected: &str, found: &str| {
            Error::input(format!("expected {expected} at byte {} of the archive, found {found}", self.local))
                .with_hint("the archive is damaged, or was made by a program that does so: pack it again")
        };
        let name_end = usize::try_from(self.header_bytes()).unwrap_or(usize::MAX);
        let name = header.get(usize::try_from(LOCAL_BYTES).unwrap_or_default()..name_end);
        let (true, Some(name)) = (header.starts_with(MAGIC), name) else {
            return Err(error("the header of the member", "something else"));
        };
        let name_bytes = uint_at(header, 26, 2);
        if name_bytes != u64::from(self.name_bytes) || crc32fast::hash(name) != self.name_hash {
            return Err(error("a header with the name in the directory", "another name"));
        }
        let (flags, method) = (uint_at(header, 6, 2), uint_at(header, 8, 2));
        if method != u64::from(self.method.0) || (flags ^ u64::from(self.flags)) & u64::from(ENCRYPTED) != 0 {
            return Err(error("a header that agrees with the directory", &format!("method {method}, flags {flags}")));
        }
        let stated = [(14, u64::from(self.crc32)), (18, self.packed), (22, self.bytes)];
        let differs = |(at, value): &(usize, u64)| ![*value, 0xffff_ffff].contains(&uint_at(header, *at, 4));
        if flags & u64::from(DESCRIPTOR) == 0
            && let Some((at, value)) = stated.iter().find(|stated| differs(stated))
        {
            let what = if *at == 14 { "a header with the checksum" } else { "a header with the size" };
            let found = uint_at(header, *at, 4);
            return Err(error(&format!("{what} {value}, as in the directory"), &found.to_string()));
        }
        Ok(self.local.saturating_add(LOCAL_BYTES + name_bytes + uint_at(header, 28, 2)))
    }

    /// Returns a reader of the content, given one of its bytes in the archive. Its last read fails if the content has
    /// another size or checksum than the directory states.
    ///
    /// # Errors
    /// When the decoder cannot be set up.
    pub fn open(&self, packed: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
        let inner: Box<dyn Read + Send> = match self.method {
            Method::STORED => packed,
            Method::BZIP2 => decompress::open_decoder(Compression::Bzip2, packed)?,
            Method::ZSTD => decompress::open_decoder(Compression::Zstd, packed)?,
            Method::XZ => decompress::open_decoder(Compression::Xz, packed)?,
            _ => {
                let buffer = usize::try_from(self.packed.clamp(1, BUFFER)).unwrap_or_default();
                Box::new(flate2::bufread::DeflateDecoder::new(BufReader::with_capacity(buffer, packed)))
            }
        };
        Ok(Box::new(Checked::new(inner, self)))
    }

    /// Appends the content to `into`, given all its bytes in the archive. If it fails, `into` may contain a part of it.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is damaged, or differs from what the directory states.
    pub fn unpack(&self, packed: &[u8], into: &mut Vec<u8>) -> Result<()> {
        let start = into.len();
        match self.method {
            Method::STORED => into.extend_from_slice(packed),
            Method::DEFLATE => INFLATER.with_borrow_mut(|inflater| self.inflate(inflater, packed, into))?,
            _ => {
                self.open(Box::new(Cursor::new(packed.to_vec())))?.read_to_end(into)?;
                return Ok(());
            }
        }
        let content = &into[start..];
        self.compare_size(content.len() as u64)?;
        self.compare_checksum(crc32fast::hash(content))
    }

    /// Appends deflated content, at most one byte more than the directory states.
    fn inflate(&self, inflater: &mut Decompress, packed: &[u8], into: &mut Vec<u8>) -> Result<()> {
        let (start, mut used) = (into.len(), 0);
        inflater.reset(false);
        loop {
            let found = into.len() - start;
            // A byte more than expected tells that there is more.
            let wanted = self.bytes.saturating_add(1).saturating_sub(found as u64).min(RESERVED);
            if wanted == 0 {
                return self.compare_size(found as u64);
            }
            let (rest, end) = (packed.get(used..).unwrap_or_default(), into.len());
            into.resize(end + usize::try_from(wanted).unwrap_or_default(), 0);
            let status = inflater.decompress(rest, &mut into[end..], FlushDecompress::Finish);
            into.truncate(start + usize::try_from(inflater.total_out()).unwrap_or_default());
            let before = std::mem::replace(&mut used, usize::try_from(inflater.total_in()).unwrap_or(usize::MAX));
            match status {
                Ok(Status::StreamEnd) => return Ok(()),
                Ok(_) if used > before || into.len() - start > found => {}
                Ok(_) => return Err(damaged(into.len() - start)),
                Err(e) => return Err(damaged(into.len() - start).with_cause(e)),
            }
        }
    }

    fn compare_size(&self, found: u64) -> Result<()> {
        if found == self.bytes {
            return Ok(());
        }
        let found = if found > self.bytes { "more".to_owned() } else { found.to_string() };
        let message = format!("expected {} bytes, as the directory of the archive states, found {found}", self.bytes);
        Err(Error::input(message).with_hint(DAMAGED))
    }

    fn compare_checksum(&self, found: u32) -> Result<()> {
        if found == self.crc32 {
            return Ok(());
        }
        let message = format!("expected the checksum {:08x} of the archive, found {found:08x}", self.crc32);
        Err(Error::input(message).with_hint(DAMAGED))
    }
}

thread_local! {
    /// The state of a decoder, which is large beside most members.
    static INFLATER: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// What to do about a damaged member.
const DAMAGED: &str = "the archive is damaged: copy or download it again, or skip the member with --exclude";

fn damaged(found: impl std::fmt::Display) -> Error {
    Error::input(format!("expected deflated data, found damage or an early end after {found} bytes of content"))
        .with_hint(DAMAGED)
}

/// Compares what is read with the size and the checksum that the directory states.
pub(super) struct Checked<R> {
    inner: R,
    content: Content,
    found: u64,
    sum: crc32fast::Hasher,
}

impl<R> Checked<R> {
    pub(super) fn new(inner: R, content: &Content) -> Self {
        Self { inner, content: *content, found: 0, sum: crc32fast::Hasher::new() }
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.inner.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                if !error.get_ref().is_some_and(|inner| inner.is::<Error>()) =>
            {
                damaged(self.found).with_cause(error).into()
            }
            _ => error,
        })?;
        self.found += read as u64;
        if read == 0 || self.found > self.content.bytes {
            self.content.compare_size(self.found)?;
            self.content.compare_checksum(self.sum.clone().finalize())?;
        }
        self.sum.update(&buffer[..read]);
        Ok(read)
    }
}
