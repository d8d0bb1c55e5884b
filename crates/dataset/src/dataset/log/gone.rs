//! Rows that erasures have removed from a shard, so that the others keep their positions.
//!
//! ```text
//! old row     0  1  2  3  4  5        gone 1, 4
//! new row     0  x  1  2  x  3
//! ```
//!
//! Stored as the first row and the distances between neighbours, each in LEB128: 1 to 3 bytes a row. They tell where in
//! a shard something was, and nothing of what it was.

use std::ops::Range;

use crate::{
    codec::leb128::{put_leb128, take_leb128},
    error::{Error, Result},
};

/// Rows of a shard that are in its replacement no more, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoneRows(Vec<u64>);

impl GoneRows {
    /// Makes them of rows in any order.
    pub fn new(mut rows: Vec<u64>) -> Self {
        rows.sort_unstable();
        rows.dedup();
        Self(rows)
    }

    /// Returns the rows.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// Returns how many of the rows are before one.
    pub(in crate::dataset) fn before(&self, row: u64) -> u64 {
        self.0.partition_point(|gone| *gone < row) as u64
    }

    /// Returns those of some rows that are gone.
    pub(in crate::dataset) fn within(&self, rows: &Range<u64>) -> &[u64] {
        let at = |row: u64| self.0.partition_point(|gone| *gone < row);
        self.0.get(at(rows.start)..at(rows.end)).unwrap_or_default()
    }

    /// Returns the old row of a new one.
    pub(in crate::dataset) fn old_row(&self, new: u64) -> u64 {
        // Before the old row lie as many gone rows as have at most `new` kept ones before them.
        let (mut low, mut high) = (0, self.0.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let kept_before = self.0.get(middle).map_or(0, |gone| gone - middle as u64);
            if kept_before <= new { low = middle + 1 } else { high = middle }
        }
        new + low as u64
    }

    /// Returns the rows that are gone after another erasure, which counts the rows that this one left.
    #[must_use]
    pub(in crate::dataset) fn followed_by(&self, later: &Self) -> Self {
        let rows = later.0.iter().map(|row| self.old_row(*row));
        Self::new(self.0.iter().copied().chain(rows).collect())
    }

    /// Encodes them for a list.
    pub(in crate::dataset) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() * 2);
        let mut last = 0;
        for row in &self.0 {
            put_leb128(&mut out, row - last);
            last = *row;
        }
        out
    }

    /// Decodes the output of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if rows do not ascend, or a number has no end.
    pub(in crate::dataset) fn decode(mut bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::integrity("expected ascending rows in LEB128, found other bytes");
        let mut out: Vec<u64> = Vec::new();
        while !bytes.is_empty() {
            let distance = take_leb128(&mut bytes).ok_or_else(damaged)?;
            let row = match out.last() {
                None => distance,
                Some(last) => last.checked_add(distance).filter(|row| row > last).ok_or_else(damaged)?,
            };
            out.push(row);
        }
        Ok(Self(out))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn rows_are_stored_as_distances() {
        let gone = GoneRows::new(vec![300, 0, 1, 172]);
        // The format states these bytes.
        assert_eq!(gone.encode(), [0, 1, 0xab, 1, 0x80, 1]);
        for rows in [vec![], vec![0], vec![127, 128, 16_511], vec![u64::MAX >> 2]] {
            let gone = GoneRows::new(rows);
            assert_eq!(GoneRows::decode(&gone.encode()).unwrap(), gone);
        }
        for damaged in [&[0x80][..], &[0, 0], &[5, 0], &[0xff; 10], &[1, 0x81]] {
            assert!(GoneRows::decode(damaged).is_err(), "{damaged:?}");
        }
    }

    /// A list of rows from which some are taken out is the model.
    #[test]
    fn erasures_compose() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let count = 1 + random(40);
            let (mut left, mut gone): (Vec<u64>, _) = ((0..count).collect(), GoneRows::default());
            for _ in 0..random(4) {
                let rows = (0..left.len() as u64).filter(|_| random(4) == 0).collect();
                let later = GoneRows::new(rows);
                left = left.iter().zip(0..).filter(|(_, at)| !later.0.contains(at)).map(|(row, _)| *row).collect();
                gone = gone.followed_by(&later);
            }
            for (new, old) in left.iter().enumerate() {
                assert_eq!((gone.old_row(new as u64), old - gone.before(*old)), (*old, new as u64));
            }
            let expected: Vec<u64> = (0..count).filter(|row| !left.contains(row)).collect();
            assert_eq!(gone.as_slice(), expected);
            let rows = random(count)..random(count) + 1;
            let within: Vec<u64> = expected.into_iter().filter(|row| rows.contains(row)).collect();
            assert!(rows.start > rows.end || gone.within(&rows) == within);
        }
    }
}
