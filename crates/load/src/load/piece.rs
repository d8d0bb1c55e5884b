//! Decoded records of a shard, of which batches take some.
//!
//! Framed records stay in the bytes that were read; cells are ranges of these, so a batch copies each value once.

use arrow::array::RecordBatch;
use bytes::Bytes;

use crate::{
    dataset::PositionedRows,
    error::{Error, Result},
};

/// Bytes of one value; absent if the record has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    start: u32,
    length: u32,
}

impl Cell {
    /// The cell of a record that lacks the value.
    pub(super) const ABSENT: Self = Self { start: u32::MAX, length: u32::MAX };

    /// Returns the cell of some bytes; `None` from 4 GiB on.
    pub(super) fn new(start: usize, length: usize) -> Option<Self> {
        let end = u32::try_from(start.checked_add(length)?).ok().filter(|end| *end < u32::MAX)?;
        let start = u32::try_from(start).ok()?;
        Some(Self { start, length: end - start })
    }

    pub(super) fn is_absent(self) -> bool {
        self == Self::ABSENT
    }

    /// Returns the number of its bytes.
    pub(super) fn len(self) -> usize {
        if self.is_absent() { 0 } else { self.length as usize }
    }

    /// Returns its bytes; none if it is absent.
    pub(super) fn bytes_of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len()).unwrap_or_default()
    }
}

/// Values of consecutive records.
#[derive(Debug)]
pub(super) enum PieceData {
    /// Values within bytes.
    Cells {
        /// What was read.
        bytes: Bytes,
        /// Keys, one after the other.
        keys: Vec<u8>,
        /// The cells of the first record, then those of the second, and so on.
        cells: Vec<Cell>,
    },
    /// Rows with the columns of batches.
    Rows(RecordBatch),
}

impl PieceData {
    /// Returns the values of no record.
    pub(super) fn nothing() -> Self {
        Self::Cells { bytes: Bytes::new(), keys: Vec::new(), cells: Vec::new() }
    }
}

/// Numbers of consecutive records.
#[derive(Debug)]
pub(super) enum PieceNumbers {
    /// They count from this one.
    From(u64),
    /// One for each record.
    Each(Vec<u64>),
}

impl PieceNumbers {
    /// Keeps numbers as small as they can be.
    pub(super) fn new(numbers: Vec<u64>) -> Self {
        match numbers.first() {
            Some(first) if numbers.iter().zip(*first..).all(|(number, expected)| *number == expected) => {
                Self::From(*first)
            }
            _ => Self::Each(numbers),
        }
    }
}

/// Consecutive records of a shard.
#[derive(Debug)]
pub(super) struct Piece {
    /// Position of the first record.
    pub(super) first: u64,
    /// Positions from there on.
    pub(super) positions: usize,
    /// Those of them that have no record, counted from the first, ascending.
    pub(super) holes: Vec<u32>,
    pub(super) numbers: PieceNumbers,
    pub(super) data: PieceData,
}

impl Piece {
    /// Makes the piece of some positions, whose holes have no values.
    pub(super) fn new(at: &PositionedRows, numbers: PieceNumbers, data: PieceData) -> Result<Self> {
        let first = at.positions.start;
        let count = |count: u64| u32::try_from(count).map_err(|_| Error::usage("expected a smaller block"));
        let holes = at.holes.iter().map(|hole| count(hole - first)).collect::<Result<_>>()?;
        Ok(Self { first, positions: count(at.positions.end - first)? as usize, holes, numbers, data })
    }

    /// Returns which of the records is at a position, counted from the first; `None` if it has none.
    pub(super) fn row_at(&self, position: usize) -> Option<usize> {
        if self.holes.is_empty() {
            return Some(position);
        }
        let before = self.holes.partition_point(|hole| (*hole as usize) < position);
        let is_hole = self.holes.get(before).is_some_and(|hole| *hole as usize == position);
        (!is_hole).then(|| position - before)
    }

    /// Returns the number of a record, given by its place in the piece.
    pub(super) fn number_of(&self, row: usize) -> u64 {
        match &self.numbers {
            PieceNumbers::From(first) => first + row as u64,
            PieceNumbers::Each(each) => each.get(row).copied().unwrap_or_default(),
        }
    }

    /// Returns the bytes that it holds.
    pub(super) fn memory_bytes(&self) -> u64 {
        let numbers = match &self.numbers {
            PieceNumbers::From(_) => 0,
            PieceNumbers::Each(each) => size_of_val(each.as_slice()),
        };
        let numbers = numbers + size_of_val(self.holes.as_slice());
        let data = match &self.data {
            PieceData::Cells { bytes, keys, cells } => bytes.len() + keys.len() + size_of_val(cells.as_slice()),
            PieceData::Rows(rows) => rows.get_array_memory_size(),
        };
        (numbers + data) as u64
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn cells_are_ranges_below_4_gib() {
        assert_eq!(Cell::new(1, 2).unwrap().bytes_of(b"abcd"), b"bc");
        assert!(Cell::ABSENT.is_absent() && Cell::ABSENT.bytes_of(b"abcd").is_empty());
        assert!(Cell::new(0, 0).is_some_and(|cell| !cell.is_absent()));
        let most = u32::MAX as usize;
        assert_eq!((Cell::new(most, 0), Cell::new(1, most), Cell::new(usize::MAX, 1)), (None, None, None));
        assert!(Cell::new(most - 1, 0).is_some());
    }

    #[test]
    fn positions_without_a_record_have_no_row() {
        let (numbers, data) = (PieceNumbers::From(1), PieceData::nothing());
        let piece = Piece { first: 7, positions: 6, holes: vec![0, 3, 4], numbers, data };
        let rows: Vec<_> = (0..6).map(|position| piece.row_at(position)).collect();
        assert_eq!(rows, [None, Some(0), Some(1), None, None, Some(2)]);
        assert_eq!(Piece { holes: Vec::new(), ..piece }.row_at(3), Some(3));
    }

    #[test]
    fn consecutive_numbers_need_no_memory() {
        assert!(matches!(PieceNumbers::new(vec![7, 8, 9]), PieceNumbers::From(7)));
        assert!(matches!(PieceNumbers::new(vec![7, 9, 8]), PieceNumbers::Each(_)));
        assert!(matches!(PieceNumbers::new(vec![]), PieceNumbers::Each(_)));
    }
}
