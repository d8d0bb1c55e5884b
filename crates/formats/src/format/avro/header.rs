//! The header of an Avro file, and the heads of its blocks.
//!
//! ```text
//! header   "Obj" 01   metadata: map of text to bytes   sync marker: 16 bytes
//! map      [ count  (key  value)* ]*  00               a count below 0 is followed by the bytes of its entries
//! block    count   bytes   data   sync marker          all numbers are zigzag varints
//! ```
//!
//! Every stated length is compared with the bytes that are there before anything is allocated.

use super::{schema::AvroSchema, unpack::Codec};
use crate::error::{Error, Result};

/// First bytes of a file.
pub(super) const MAGIC: &[u8] = b"Obj\x01";

/// Bytes of a sync marker.
pub(super) const SYNC: usize = 16;

/// Maximum bytes of a header.
const MAX_HEADER: usize = 16 << 20;

/// Maximum bytes of a number.
const MAX_VARINT: usize = 10;

/// Maximum bytes of the two numbers before the data of a block.
pub(super) const BLOCK_HEAD: usize = 2 * MAX_VARINT;

/// Maximum number of records without any bytes in a block.
const MAX_EMPTY: u64 = 1 << 16;

/// A sync marker.
pub(super) type Marker = [u8; SYNC];

/// What to do about a file that is not as it should be.
pub(super) const DAMAGED: &str = "the file is damaged or was cut short; get it again from its source";

/// What a file states before its blocks.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) schema: AvroSchema,
    pub(super) codec: Codec,
    pub(super) sync: Marker,
    /// Bytes of the header.
    pub(super) bytes: usize,
}

impl Header {
    /// Parses the header at the start of `bytes`; `None` if there is more of it.
    ///
    /// # Errors
    /// If it is damaged, too large, or states a codec that is not supported.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let Metadata { schema, codec, sync, bytes } = match Metadata::read(bytes) {
            Ok(found) => found,
            Err(Stop::More) if bytes.len() <= MAX_HEADER => return Ok(None),
            Err(Stop::More) => return Err(too_large()),
            Err(Stop::Faulty(error)) => return Err(error),
        };
        let schema = schema.ok_or_else(|| {
            Error::input("expected a schema in the header of an Avro file, found none").with_hint(DAMAGED)
        })?;
        let codec = Codec::named(codec.unwrap_or(b"null"))?;
        Ok(Some(Self { schema: AvroSchema::parse(schema)?, codec, sync, bytes }))
    }
}

fn too_large() -> Error {
    Error::input(format!("expected a header of at most {MAX_HEADER} bytes, found a larger one"))
        .at_byte(MAGIC.len() as u64)
        .with_hint(DAMAGED)
}

/// Why a header cannot be read.
enum Stop {
    /// It goes on behind these bytes.
    More,
    Faulty(Error),
}

/// A header whose parts are not parsed.
struct Metadata<'a> {
    schema: Option<&'a [u8]>,
    codec: Option<&'a [u8]>,
    sync: Marker,
    bytes: usize,
}

impl<'a> Metadata<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Stop> {
        let mut cursor = ByteCursor { bytes, at: MAGIC.len() };
        let (mut schema, mut codec) = (None, None);
        loop {
            let mut count = cursor.take_number()?;
            if count < 0 {
                cursor.take_number()?;
                count = count.checked_neg().ok_or_else(|| cursor.faulty("a number of entries"))?;
            }
            if count == 0 {
                break;
            }
            // Each entry takes bytes, so a false count ends with them.
            for _ in 0..count {
                match (cursor.take_bytes()?, cursor.take_bytes()?) {
                    (b"avro.schema", value) => schema = Some(value),
                    (b"avro.codec", value) => codec = Some(value),
                    _ => {}
                }
            }
        }
        let sync = bytes.get(cursor.at..).and_then(|rest| rest.first_chunk::<SYNC>()).ok_or(Stop::More)?;
        Ok(Self { schema, codec, sync: *sync, bytes: cursor.at + SYNC })
    }
}

struct ByteCursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteCursor<'a> {
    fn take_number(&mut self) -> Result<i64, Stop> {
        match read_number(&self.bytes[self.at..]) {
            Number::Whole { value, bytes } => {
                self.at += bytes;
                Ok(value)
            }
            Number::Cut => Err(Stop::More),
            Number::Endless => Err(self.faulty("a number of at most 64 bits")),
        }
    }

    fn take_bytes(&mut self) -> Result<&'a [u8], Stop> {
        let length = usize::try_from(self.take_number()?).map_err(|_| self.faulty("a length"))?;
        if length > MAX_HEADER {
            return Err(Stop::Faulty(too_large()));
        }
        let found = self.bytes.get(self.at..self.at + length).ok_or(Stop::More)?;
        self.at += length;
        Ok(found)
    }

    fn faulty(&self, expected: &str) -> Stop {
        let message = format!("expected {expected} in the header of an Avro file, found something else");
        Stop::Faulty(Error::input(message).at_byte(self.at as u64).with_hint(DAMAGED))
    }
}

/// A number at the start of some bytes.
pub(super) enum Number {
    Whole {
        value: i64,
        /// Its bytes.
        bytes: usize,
    },
    /// The bytes end before it does.
    Cut,
    /// It has more than 64 bits.
    Endless,
}

/// Reads a zigzag varint.
pub(super) fn read_number(bytes: &[u8]) -> Number {
    let mut bits = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(MAX_VARINT) {
        // The tenth byte has one bit left.
        if at == MAX_VARINT - 1 && *byte > 1 {
            return Number::Endless;
        }
        bits |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Number::Whole { value: from_zigzag(bits), bytes: at + 1 };
        }
    }
    if bytes.len() < MAX_VARINT { Number::Cut } else { Number::Endless }
}

/// Returns the number that a varint of these bits means.
pub(super) fn from_zigzag(bits: u64) -> i64 {
    (bits >> 1).cast_signed() ^ -(bits & 1).cast_signed()
}

/// What a block may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockLimits {
    /// Maximum bytes of its data, as stored and unpacked.
    pub(super) bytes: u64,
    /// Fewest bytes of a record.
    pub(super) least: u64,
    /// Whether its data are stored as they are.
    pub(super) plain: bool,
}

/// The numbers before the data of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHead {
    /// Number of records.
    pub(super) records: u64,
    /// Offset of the data from the start of the block.
    pub(super) start: usize,
    /// Offset of the end of the data.
    pub(super) end: usize,
}

impl BlockHead {
    /// Reads the head at the start of `bytes`. The error says what is wrong with it.
    pub(super) fn read(bytes: &[u8], limits: BlockLimits) -> Result<Self, String> {
        let mut start = 0;
        let mut next = |what: &str| match read_number(&bytes[start..]) {
            Number::Whole { value, bytes } => {
                start += bytes;
                u64::try_from(value).map_err(|_| format!("expected {what}, found {value}"))
            }
            Number::Cut => Err(format!("expected {what}, found the end of the file")),
            Number::Endless => Err(format!("expected {what}, found one of more than 64 bits")),
        };
        let records = next("the number of records of a block")?;
        let size = next("the size of a block")?;
        if size > limits.bytes {
            let most = limits.bytes;
            return Err(format!("expected a block of at most {most} bytes, found one of {size}; raise --memory"));
        }
        let most = match limits.least {
            0 => MAX_EMPTY,
            least if limits.plain => size / least,
            least => limits.bytes / least,
        };
        if records > most {
            return Err(format!("expected at most {most} records in a block of {size} bytes, found {records}"));
        }
        let size = usize::try_from(size).map_err(|_| format!("expected the size of a block, found {size}"))?;
        Ok(Self { records, start, end: start + size })
    }

    /// Offset of the block after it.
    pub(super) fn next(&self) -> usize {
        self.end + SYNC
    }
}
