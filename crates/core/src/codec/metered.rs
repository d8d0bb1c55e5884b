//! Reads a stream of records in bounded memory, counts bytes and hashes each record.
//!
//! A format that scans its shards examines bytes, advances past them, and reports where a record ends. Where that is
//! known only after examining the next record, it marks the position first and cuts there later:
//!
//! ```text
//! buffer  [ hashed already ... | record .......... | maybe next record ... | not examined ]
//!                              ^ start             ^ mark                  ^ position      ^ end
//! ```
//!
//! Bytes from the mark on stay in the buffer, so a mark must be cut or dropped within a bounded number of bytes. A
//! record that is completely in the buffer is hashed in one call.

use std::io::Read;

use xxhash_rust::xxh3::Xxh3;

use crate::{
    codec::checksum::xxh3_64,
    error::{Error, Kind, Result},
};

/// Bytes per read; a multiple of the block sizes of all formats, and small enough for a core's cache.
const BUFFER: usize = 256 << 10;

/// A reader that counts and hashes.
pub struct Metered<'a> {
    input: &'a mut dyn Read,
    buffer: Vec<u8>,
    /// Stream offset of the first byte in the buffer.
    base: u64,
    start: usize,
    mark: Option<usize>,
    position: usize,
    end: usize,
    ended: bool,
    /// Hash of the part of the record that has left the buffer; `None` while the whole record is in it.
    hasher: Option<Box<Xxh3>>,
}

impl<'a> Metered<'a> {
    /// Creates a reader at the first byte of a stream.
    pub fn new(input: &'a mut dyn Read) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER],
            base: 0,
            start: 0,
            mark: None,
            position: 0,
            end: 0,
            ended: false,
            hasher: None,
        }
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Returns the next `count` bytes without consuming them, or fewer at the end of the stream. `count` determines the
    /// memory used, so it must never come from the stream unchecked.
    pub fn peek(&mut self, count: usize) -> Result<&[u8]> {
        if self.end - self.position < count {
            self.fill_buffer(count)?;
        }
        let end = self.end.min(self.position + count);
        Ok(&self.buffer[self.position..end])
    }

    /// Returns the buffered bytes, at least one unless the stream has ended, and at most `limit`.
    pub fn available_bytes(&mut self, limit: u64) -> Result<&[u8]> {
        if self.position == self.end && limit > 0 {
            self.fill_buffer(1)?;
        }
        let count = usize::try_from(limit).unwrap_or(usize::MAX).min(self.end - self.position);
        Ok(&self.buffer[self.position..self.position + count])
    }

    /// Consumes bytes that were examined.
    pub fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.position, "only bytes that were examined");
        self.position += count;
    }

    /// Marks this position as a possible end of the record.
    pub fn mark_end(&mut self) {
        self.mark = Some(self.position);
    }

    /// Drops the mark: the bytes since belong to the same record.
    pub fn clear_mark(&mut self) {
        self.mark = None;
    }

    /// Ends the record at the mark, or at the current position without a mark; the next record begins there. Returns
    /// the XXH3-64 of the record.
    pub fn end_record(&mut self) -> u64 {
        let end = self.mark.take().unwrap_or(self.position);
        let rest = &self.buffer[self.start..end];
        self.start = end;
        match self.hasher.take() {
            None => xxh3_64(rest),
            Some(mut hasher) => {
                hasher.update(rest);
                hasher.digest()
            }
        }
    }

    /// Makes room and reads until `count` bytes are buffered or the stream ends.
    fn fill_buffer(&mut self, count: usize) -> Result<()> {
        self.make_room(count);
        while !self.ended && self.end - self.position < count {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(read_failed(error, self.base + self.end as u64)),
            }
        }
        Ok(())
    }

    /// Hashes the bytes that certainly belong to the record and moves the rest to the front of the buffer.
    fn make_room(&mut self, count: usize) {
        let kept = self.mark.unwrap_or(self.position);
        if kept > self.start {
            self.hasher.get_or_insert_with(|| Box::new(Xxh3::new())).update(&self.buffer[self.start..kept]);
        }
        self.buffer.copy_within(kept..self.end, 0);
        self.base += kept as u64;
        self.start = 0;
        self.mark = self.mark.map(|_| 0);
        self.position -= kept;
        self.end -= kept;
        if self.buffer.len() < self.position + count {
            self.buffer.resize(self.position + count, 0);
        }
    }
}

/// Returns the error of a failed read of a shard. Compressed bytes that cannot be decompressed are an integrity failure
/// of the shard; the offset is the number of bytes decompressed until then.
fn read_failed(error: std::io::Error, offset: u64) -> Error {
    let error = Error::from(error);
    if error.kind() == Kind::Input {
        Error::integrity("expected more of the shard, found compressed bytes that are damaged or cut short")
            .at_byte(offset)
            .with_hint("restore this shard from a copy, or rebuild it from its sources")
            .with_cause(error)
    } else {
        error
    }
}

impl std::fmt::Debug for Metered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metered").field("offset", &self.offset()).field("mark", &self.mark).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns at most `step` bytes per call.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(out.len()).min(self.0.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn content(length: usize) -> Vec<u8> {
        (0..253_u8).map(|i| i.wrapping_mul(31)).cycle().take(length).collect()
    }

    #[test]
    fn peeking_past_the_end_gives_what_is_left() {
        let mut input: &[u8] = b"abc";
        let mut metered = Metered::new(&mut input);
        assert_eq!(metered.peek(2).unwrap(), b"ab");
        metered.advance(2);
        assert_eq!(metered.peek(2).unwrap(), b"c");
        metered.advance(1);
        assert_eq!(metered.peek(2).unwrap(), b"");
        assert_eq!(metered.available_bytes(9).unwrap(), b"");
        assert_eq!(metered.offset(), 3);
        assert_eq!(metered.end_record(), xxh3_64(b"abc"));
        assert_eq!(metered.end_record(), xxh3_64(b""));
    }

    #[test]
    fn damage_below_is_an_integrity_error_and_other_failures_keep_their_kind() {
        struct Broken(Kind);
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(Error::new(self.0, "broken").into())
            }
        }
        for (below, expected) in [(Kind::Input, Kind::Integrity), (Kind::Storage, Kind::Storage)] {
            assert_eq!(Metered::new(&mut Broken(below)).peek(1).unwrap_err().kind(), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn records_are_hashed_wherever_they_fall_in_the_buffer(
            lengths in prop::collection::vec(prop_oneof![0..600_usize, 0..700_000_usize], 1..6),
            ahead in 0..5000_usize,
            step in prop_oneof![Just(usize::MAX), 1000..100_000_usize],
        ) {
            let bytes = content(lengths.iter().sum::<usize>() + ahead);
            let mut input = Slow(&bytes, step);
            let mut metered = Metered::new(&mut input);
            let mut offset = 0;
            let mut looked = 0;
            for length in lengths {
                let mut left = (length as u64).saturating_sub(looked);
                while left > 0 {
                    let count = metered.available_bytes(left).unwrap().len();
                    metered.advance(count);
                    left -= count as u64;
                }
                // A lookahead that turns out to be in the same record, then one that is not.
                if looked <= length as u64 {
                    metered.mark_end();
                    metered.clear_mark();
                    metered.mark_end();
                    let seen = metered.peek(ahead).unwrap().to_vec();
                    prop_assert_eq!(&seen[..], &bytes[offset + length..offset + length + ahead]);
                    metered.advance(ahead);
                    prop_assert_eq!(metered.end_record(), xxh3_64(&bytes[offset..offset + length]));
                    offset += length;
                    looked = ahead as u64;
                } else {
                    break;
                }
            }
        }
    }
}
