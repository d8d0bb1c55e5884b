//! Checksums of one record, verified as its bytes arrive in pieces of any size.
//!
//! ```text
//! u64 length | u32 checksum of it | data | u32 checksum of the data
//! ^--------- head: 12 bytes ----- ^-- summed on arrival ---- ^-- foot: 4 bytes
//! ```

use super::{FOOT, HEAD, MAX_DATA, damage_error};
use crate::{
    codec::checksum::{MaskedCrc32c, masked_crc32c},
    error::Result,
};

/// Checks a complete record and returns its data; `offset` is its position, for the error.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if a checksum or the length is wrong.
pub fn check_record(record: &[u8], offset: u64) -> Result<&[u8]> {
    let range =
        record.split_first_chunk::<HEAD>().and_then(|(head, rest)| Some((head, rest.split_last_chunk::<FOOT>()?)));
    let Some((head, (data, foot))) = range else { return Err(too_short(record.len() as u64, offset)) };
    check_head(head, data.len() as u64, offset)?;
    check_data(masked_crc32c(data), *foot, offset)?;
    Ok(data)
}

/// Checks a record whose bytes arrive in pieces.
#[derive(Debug)]
pub struct RecordSum {
    length: u64,
    offset: u64,
    at: u64,
    head: [u8; HEAD],
    foot: [u8; FOOT],
    data: MaskedCrc32c,
}

impl RecordSum {
    /// Starts a record of `length` bytes at `offset`, framing included.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if that is too short for a record.
    pub fn new(length: u64, offset: u64) -> Result<Self> {
        if length < (HEAD + FOOT) as u64 {
            return Err(too_short(length, offset));
        }
        Ok(Self { length, offset, at: 0, head: [0; HEAD], foot: [0; FOOT], data: MaskedCrc32c::new() })
    }

    /// Adds the next bytes; those beyond the end of the record are ignored.
    pub fn update(&mut self, piece: &[u8]) {
        let data = HEAD as u64..self.length - FOOT as u64;
        let start = self.at;
        self.at += piece.len() as u64;
        // Returns the part of the piece within a range of the record.
        let within = |from: u64, to: u64| {
            let at = |place: u64| usize::try_from(place.saturating_sub(start)).unwrap_or(usize::MAX).min(piece.len());
            &piece[at(from)..at(to)]
        };
        copy_at(&mut self.head, start, within(0, data.start));
        self.data.update(within(data.start, data.end));
        copy_at(&mut self.foot, start.saturating_sub(data.end), within(data.end, self.length));
    }

    /// Compares the checksums once all bytes were added.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) when one or the length is wrong.
    pub fn finish(self) -> Result<()> {
        check_head(&self.head, self.length - (HEAD + FOOT) as u64, self.offset)?;
        check_data(self.data.finish(), self.foot, self.offset)
    }
}

fn copy_at(to: &mut [u8], at: u64, from: &[u8]) {
    if let Some(to) = usize::try_from(at).ok().and_then(|at| to.get_mut(at..at + from.len())) {
        to.copy_from_slice(from);
    }
}

fn check_head(head: &[u8; HEAD], expected: u64, offset: u64) -> Result<()> {
    let (length, found) = head.split_at(8);
    let sum = masked_crc32c(length);
    if sum.to_le_bytes() != found {
        return Err(damage_error("expected a length that matches its checksum, found another one".to_owned(), offset));
    }
    let mut number = [0; 8];
    number.copy_from_slice(length);
    let found = u64::from_le_bytes(number);
    if found != expected || found > MAX_DATA {
        return Err(damage_error(format!("expected a record with {expected} bytes of data, found {found}"), offset));
    }
    Ok(())
}

fn check_data(sum: u32, foot: [u8; FOOT], offset: u64) -> Result<()> {
    let found = u32::from_le_bytes(foot);
    if found == sum {
        return Ok(());
    }
    Err(damage_error(format!("expected data with checksum {found:08x}, found {sum:08x}"), offset))
}

fn too_short(length: u64, offset: u64) -> crate::error::Error {
    damage_error(format!("expected a record of 16 bytes or more, found {length}"), offset)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn record(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let copy = |out: &mut Vec<u8>| out.extend_from_slice(data);
        super::super::frame_one(data.len(), &mut out, copy).unwrap();
        out
    }

    #[test]
    fn pieces_of_any_size_give_the_answer_of_the_whole() {
        for data in [&b""[..], b"x", b"some data that is a little longer"] {
            let sound = record(data);
            for flipped in 0..=sound.len() {
                let mut bytes = sound.clone();
                if let Some(byte) = bytes.get_mut(flipped) {
                    *byte ^= 4;
                }
                let whole = check_record(&bytes, 7);
                assert_eq!(whole.is_ok(), flipped == sound.len());
                for size in 1..=bytes.len() {
                    let mut sum = RecordSum::new(bytes.len() as u64, 7).unwrap();
                    bytes.chunks(size).for_each(|piece| sum.update(piece));
                    assert_eq!(sum.finish().is_ok(), whole.is_ok(), "{flipped} {size}");
                }
            }
        }
        assert!(check_record(&[0; 15], 0).is_err());
        assert!(RecordSum::new(15, 0).is_err());
    }
}
