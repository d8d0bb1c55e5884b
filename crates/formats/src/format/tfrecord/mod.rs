//! TFRecord: each record is a `tf.train.Example`, framed with its length and two checksums.
//!
//! ```text
//! record   u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data
//! shard    record*                                                all integers little-endian
//! ```
//!
//! The format has neither header nor trailer, so only a record count distinguishes a complete shard from one that was
//! cut between two records.

mod columns;
mod decode;
mod double;
mod example;
mod ids;
mod read;
mod sum;

use std::io::Read;

use self::example::{RowEncoder, SampleEncoder};
pub use self::{
    ids::{IdFeatures, Ids, feature_names},
    read::{TfRecordReader, sniff},
    sum::{RecordSum, check_record},
};
use crate::{
    codec::{
        checksum::{MaskedCrc32c, masked_crc32c},
        metered::Metered,
    },
    error::{Error, Result},
    format::{Extent, Framed, Framing, Keyed, Scanned},
    record::Payload,
};

/// Bytes of the length and its checksum.
pub const HEAD: usize = 12;
/// Bytes of the checksum of the data.
const FOOT: usize = 4;
/// Largest record, in bytes: protobuf readers refuse messages of 2 GiB.
const MAX_DATA: u64 = i32::MAX as u64;

/// Frames records as TFRecord. Rows have a feature per column; samples have one per part, named by its extension, and
/// `__key__`. Keys of rows are not written.
#[derive(Debug, Clone, Copy, Default)]
pub struct TfRecordFraming;

impl Framing for TfRecordFraming {
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for records of 2 GiB or more and for features with the same name.
    fn frame(&self, records: Keyed<'_>, out: &mut Framed) -> Result<()> {
        let Framed { bytes: out, lengths, .. } = out;
        match records.payload {
            Payload::Rows(batch) => {
                let mut rows = RowEncoder::new(batch)?;
                for row in 0..batch.num_rows() {
                    let length = rows.measure_row(row);
                    lengths.push(frame_one(length, out, |out| rows.write(out))?);
                }
            }
            Payload::Samples(samples) => {
                if records.keys.len() != samples.len() {
                    let (keys, samples) = (records.keys.len(), samples.len());
                    return Err(Error::internal(format!("expected a key for each of {samples} records, found {keys}")));
                }
                let mut encoder = SampleEncoder::default();
                for (sample, key) in samples.iter().zip(records.keys) {
                    let length = encoder.measure_sample(sample, key)?;
                    lengths.push(frame_one(length, out, |out| encoder.write(sample, key, out))?);
                }
            }
        }
        Ok(())
    }

    fn has_keys(&self) -> bool {
        false
    }

    /// Length, two checksums, and the tags of a feature.
    fn member_bytes(&self) -> u64 {
        32
    }

    fn trailer(&self) -> &'static [u8] {
        &[]
    }

    fn scan_foreign(
        &self,
        input: &mut dyn Read,
        visit: &mut dyn FnMut(Scanned, Option<&str>) -> Result<()>,
    ) -> Result<Extent> {
        scan_with(input, 0, |_| (), |found, _| visit(found, None))
    }

    fn scan(&self, input: &mut dyn Read, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<()> {
        scan_with(input, 0, |_| (), |found, _| visit(found)).map(|_| ())
    }
}

/// Scans an uncompressed shard as [`Framing::scan`] does, and passes the data of each record to `read` after its
/// checksum was verified, or `None` if it has more than `max_bytes` bytes. `visit` receives the result. Holds one
/// record of at most `max_bytes`.
/// record of at most `max_bytes`.
///
/// # Errors
/// Those of [`Framing::scan`] and of `visit`.
pub fn scan_with<T>(
    input: &mut dyn Read,
    max_bytes: u64,
    mut read: impl FnMut(Option<&[u8]>) -> T,
    mut visit: impl FnMut(Scanned, T) -> Result<()>,
) -> Result<Extent> {
    let mut metered = Metered::new(input);
    loop {
        let offset = metered.offset();
        let Some(length) = scan_head(&mut metered, offset)? else {
            return Ok(Extent { body: offset, raw: offset });
        };
        let answer = match usize::try_from(length) {
            Ok(whole) if length <= max_bytes => {
                let record = metered.peek(whole + FOOT)?;
                let (data, foot) = record.split_at(whole.min(record.len()));
                check_foot(masked_crc32c(data), foot, offset, length.min(record.len() as u64))?;
                let answer = read(Some(data));
                metered.advance(whole);
                answer
            }
            _ => {
                let expected = scan_data(&mut metered, length)?;
                check_foot(expected, metered.peek(FOOT)?, offset, length)?;
                read(None)
            }
        };
        metered.advance(FOOT);
        let hash = metered.end_record();
        visit(Scanned { offset, length: metered.offset() - offset, hash }, answer)?;
    }
}

/// Compares the checksum of `length` bytes of data with the stored one.
fn check_foot(expected: u32, foot: &[u8], offset: u64, length: u64) -> Result<()> {
    let Some(found) = foot.first_chunk::<FOOT>() else {
        return Err(cut_short("the checksum of a record", offset + HEAD as u64 + length + foot.len() as u64));
    };
    let found = u32::from_le_bytes(*found);
    if found == expected {
        return Ok(());
    }
    Err(damage_error(format!("expected data with checksum {found:08x}, found {expected:08x}"), offset))
}

/// Appends one record with `length` bytes of data; returns its length with framing.
fn frame_one(length: usize, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<u64> {
    if length as u64 > MAX_DATA {
        return Err(Error::input(format!("expected a record of at most {MAX_DATA} bytes, found {length}"))
            .with_hint("TFRecord readers cannot read it; write tar or Parquet instead, or split the record"));
    }
    out.reserve(HEAD + length + FOOT);
    let head = (length as u64).to_le_bytes();
    out.extend_from_slice(&head);
    out.extend_from_slice(&masked_crc32c(&head).to_le_bytes());
    let start = out.len();
    write(out);
    let found = out.len() - start;
    if found != length {
        return Err(Error::internal(format!("expected an encoded record of {length} bytes, found {found}")));
    }
    let crc = masked_crc32c(&out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    Ok((HEAD + length + FOOT) as u64)
}

/// Reads the head of a record and returns the length of its data; `None` at the end of the shard.
fn scan_head(metered: &mut Metered<'_>, offset: u64) -> Result<Option<u64>> {
    let head = metered.peek(HEAD)?;
    if head.is_empty() {
        return Ok(None);
    }
    let (Some(length), Some(found)) = (head.first_chunk::<8>(), head[head.len().min(8)..].first_chunk::<4>()) else {
        return Err(cut_short("the length of a record and its checksum", offset + head.len() as u64));
    };
    let (expected, found) = (masked_crc32c(length), u32::from_le_bytes(*found));
    if found != expected {
        return Err(damage_error(format!("expected a length with checksum {found:08x}, found {expected:08x}"), offset));
    }
    let length = u64::from_le_bytes(*length);
    if length > MAX_DATA {
        return Err(damage_error(format!("expected a record of at most {MAX_DATA} bytes, found {length}"), offset));
    }
    metered.advance(HEAD);
    Ok(Some(length))
}

/// Reads the data of a record and returns its checksum.
fn scan_data(metered: &mut Metered<'_>, length: u64) -> Result<u32> {
    let first = metered.available_bytes(length)?;
    let mut taken = first.len();
    if taken as u64 == length {
        let crc = masked_crc32c(first);
        metered.advance(taken);
        return Ok(crc);
    }
    let mut crc = MaskedCrc32c::new();
    crc.update(first);
    let mut left = length;
    loop {
        metered.advance(taken);
        left -= taken as u64;
        if left == 0 {
            return Ok(crc.finish());
        }
        let offset = metered.offset();
        let piece = metered.available_bytes(left)?;
        if piece.is_empty() {
            return Err(cut_short(&format!("{left} more bytes of a record"), offset));
        }
        crc.update(piece);
        taken = piece.len();
    }
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod read_tests;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
