//! The codecs of blocks. Each block is compressed by itself, and nothing is unpacked beyond a limit.
//!
//! ```text
//! deflate      raw deflate data             snappy   raw snappy data, CRC-32 of the content (big-endian)
//! zstandard, bzip2, xz                      streams as in files
//! ```

use std::{cell::RefCell, io::Read};

use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};

use crate::{
    codec::decompress::{Compression, open_decoder},
    error::{Error, Result},
    format::guard::catch_quietly,
};

/// Bytes that are reserved for unpacked data at a time, beyond a multiple of the packed ones.
const STEP: usize = 64 << 10;

/// Most bytes that a byte of snappy data can stand for: an element of 3 bytes copies up to 64.
const SNAPPY_RATIO: u64 = 32;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Null,
    Deflate,
    Snappy,
    Stream(Compression),
}

impl Codec {
    /// Returns the codec that a header names.
    ///
    /// # Errors
    /// If it is not supported.
    pub(super) fn named(name: &[u8]) -> Result<Self> {
        Ok(match name {
            b"null" | b"" => Self::Null,
            b"deflate" => Self::Deflate,
            b"snappy" => Self::Snappy,
            b"zstandard" => Self::Stream(Compression::Zstd),
            b"bzip2" => Self::Stream(Compression::Bzip2),
            b"xz" => Self::Stream(Compression::Xz),
            other => {
                let found: String = String::from_utf8_lossy(other).chars().take(60).collect();
                let message = "expected blocks compressed by deflate, snappy, zstandard, bzip2 or xz, found the codec";
                return Err(Error::input(format!("{message} `{found}`"))
                    .with_hint("write the file again with another codec, or leave it out with --exclude"));
            }
        })
    }

    /// Returns how many bytes data say that they unpack to; `None` if they do not say.
    pub(super) fn stated_bytes(self, packed: &[u8]) -> Option<u64> {
        match self {
            Self::Null => Some(packed.len() as u64),
            Self::Snappy => snap::raw::decompress_len(packed).ok().map(|bytes| bytes as u64),
            Self::Stream(Compression::Zstd) => zstd::zstd_safe::get_frame_content_size(packed).ok().flatten(),
            Self::Deflate | Self::Stream(_) => None,
        }
    }

    /// Unpacks data to the end of `into`, at most `limit` bytes. The error says what is wrong.
    pub(super) fn unpack_to(self, packed: &Bytes, limit: u64, into: &mut Vec<u8>) -> Result<(), String> {
        // Decoders of other crates may panic on damaged data.
        match catch_quietly(|| self.decode(packed, limit, into)) {
            Ok(result) => result,
            Err(_) => Err(self.damaged()),
        }
    }

    fn decode(self, packed: &Bytes, limit: u64, into: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Self::Null if packed.len() as u64 > limit => Err(too_large(limit)),
            Self::Null => {
                into.extend_from_slice(packed);
                Ok(())
            }
            Self::Deflate => INFLATER.with_borrow_mut(|inflater| inflate(inflater, packed, limit, into)),
            Self::Snappy => unpack_snappy(packed, limit, into),
            Self::Stream(compression) => {
                let start = into.len();
                let decoder = open_decoder(compression, Box::new(packed.clone().reader()));
                let decoder = decoder.map_err(|_| self.damaged())?;
                let read = decoder.take(limit.saturating_add(1)).read_to_end(into);
                match read {
                    Ok(_) if (into.len() - start) as u64 > limit => Err(too_large(limit)),
                    Ok(_) => Ok(()),
                    Err(error) => Err(match Error::from(error) {
                        error if error.message().is_empty() => self.damaged(),
                        error => error.message().to_owned(),
                    }),
                }
            }
        }
    }

    fn damaged(self) -> String {
        let name = match self {
            Self::Null => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
            Self::Stream(compression) => compression.name(),
        };
        format!("expected {name} data, found damaged ones")
    }
}

thread_local! {
    /// The state of a decoder, which is large beside most blocks.
    static INFLATER: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// Bytes behind the end of the data are allowed, because Avro's own package for Python used to leave some of a checksum
/// there.
fn inflate(inflater: &mut Decompress, packed: &[u8], limit: u64, into: &mut Vec<u8>) -> Result<(), String> {
    inflater.reset(false);
    let (start, mut used) = (into.len(), 0);
    loop {
        let found = into.len() - start;
        if found as u64 > limit {
            return Err(too_large(limit));
        }
        let step = STEP.max(4 * packed.len()).max(found);
        // A byte more than the limit tells that there is more.
        let step = u64::try_from(step).unwrap_or(u64::MAX).min(limit - found as u64 + 1);
        into.resize(start + found + usize::try_from(step).unwrap_or(STEP), 0);
        let status = inflater.decompress(&packed[used..], &mut into[start + found..], FlushDecompress::None);
        let total = usize::try_from(inflater.total_out()).unwrap_or(usize::MAX);
        into.truncate(start.saturating_add(total));
        let before = std::mem::replace(&mut used, usize::try_from(inflater.total_in()).unwrap_or(packed.len()));
        match status {
            Ok(Status::StreamEnd) if total as u64 <= limit => return Ok(()),
            Ok(Status::StreamEnd) => return Err(too_large(limit)),
            Ok(_) if used > before || total > found => {}
            _ => return Err(format!("expected deflate data, found damage or an early end after {total} bytes")),
        }
    }
}

fn unpack_snappy(packed: &[u8], limit: u64, into: &mut Vec<u8>) -> Result<(), String> {
    let damaged = || Codec::Snappy.damaged();
    let (data, sum) = packed.split_last_chunk::<4>().ok_or_else(damaged)?;
    let stated = snap::raw::decompress_len(data).map_err(|_| damaged())?;
    if stated as u64 > limit {
        return Err(too_large(limit));
    }
    if stated as u64 > (data.len() as u64).saturating_mul(SNAPPY_RATIO) {
        return Err(damaged());
    }
    let start = into.len();
    into.resize(start + stated, 0);
    let found = snap::raw::Decoder::new().decompress(data, &mut into[start..]).map_err(|_| damaged())?;
    into.truncate(start + found);
    let (expected, found) = (u32::from_be_bytes(*sum), crc32fast::hash(&into[start..]));
    match expected == found {
        true => Ok(()),
        false => Err(format!("expected snappy data with checksum {expected:08x}, found {found:08x}")),
    }
}

fn too_large(limit: u64) -> String {
    format!("expected blocks that unpack to at most {limit} bytes together, found more; raise --memory")
}
