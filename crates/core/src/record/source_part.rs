//! Parts of a source that are read on their own, by different tasks or machines.
//!
//! ```text
//! source    header | record record record | record record | record record record
//! parts     0 ---------------------------- 1 ------------- 2 -------------------
//! first_row 0                              3               5
//! ```
//!
//! A part holds whole records and knows how many records and lines of the source precede it, so that its records,
//! rejects and messages have the same numbers as if the source were read as a whole. Parts are consecutive and together
//! they are the source. What precedes the first record, such as a header, belongs to the first part.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A contiguous part of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePart {
    /// Number of records of the source before it, rejected ones included.
    pub first_row: u64,
    /// Number of lines of the source before it, the header included; 0 if the format has no lines.
    pub first_line: u64,
    /// Whether the source ends with it.
    pub is_last: bool,
    /// Its share of the stored bytes of the source. The shares of all parts add up to the size of the source.
    pub bytes: u64,
    /// What it consists of.
    pub extent: PartExtent,
}

/// What a part of a source consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartExtent {
    /// Bytes of a source that is read as a stream: text, tar, TFRecord. The first part begins at byte 0.
    Bytes {
        /// Offset of its first byte.
        start: u64,
        /// Offset after its last byte.
        end: u64,
    },
    /// Row groups of Parquet or record batches of Arrow.
    Units {
        /// Number of its first unit.
        first: u64,
        /// Number of its units.
        count: u64,
        /// Number of its rows.
        rows: u64,
    },
    /// Rows of arrays, from `first_row` on.
    Rows {
        /// Number of its rows.
        rows: u64,
    },
}

impl SourcePart {
    /// Whether the source begins with it.
    pub fn is_first(&self) -> bool {
        match self.extent {
            PartExtent::Bytes { start, .. } => start == 0,
            PartExtent::Units { first, .. } => first == 0,
            PartExtent::Rows { .. } => self.first_row == 0,
        }
    }

    /// Returns the offset of its first byte if it is a part of a stream, else 0.
    pub fn start_byte(&self) -> u64 {
        self.byte_range().map_or(0, |bytes| bytes.start)
    }

    /// Returns its bytes if it is a part of a stream.
    pub fn byte_range(&self) -> Option<Range<u64>> {
        match self.extent {
            PartExtent::Bytes { start, end } => Some(start..end),
            PartExtent::Units { .. } | PartExtent::Rows { .. } => None,
        }
    }
}

/// Sizes by which a source is cut into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSizes {
    /// Stored bytes of the source.
    pub source_bytes: u64,
    /// Stored bytes that a part should have.
    pub part_bytes: u64,
    /// Bytes of a range, as the run uses them. Parts of streams end between ranges, so that their ranges are those of
    /// the whole source.
    pub range_bytes: usize,
    /// Maximum bytes of a record, as the run uses them.
    pub max_record_bytes: usize,
}

impl PartSizes {
    /// Returns the number of parts of equal size that come closest to the wanted size; at least 1.
    pub fn part_count(&self) -> u64 {
        let part = self.part_bytes.max(1);
        (self.source_bytes / part + u64::from(self.source_bytes % part >= part.div_ceil(2))).max(1)
    }
}

/// Decides where parts end as the pieces of a source go by. A part ends with the first piece that reaches its share of
/// the source.
#[derive(Debug)]
pub struct PartCuts {
    source_bytes: u64,
    count: u64,
    /// Share of the source, in units of `1 / count`, at which the current part ends.
    next: u64,
    /// Positions where parts begin; the first is that of the source.
    starts: Vec<Position>,
    at: Position,
}

/// A position between two pieces of a source.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    byte: u64,
    row: u64,
    line: u64,
    unit: u64,
}

impl PartCuts {
    /// Starts before the first piece of a source, which follows `lines` lines.
    pub fn new(sizes: &PartSizes, lines: u64) -> Self {
        let at = Position { line: lines, ..Position::default() };
        let starts = vec![Position::default()];
        Self { source_bytes: sizes.source_bytes, count: sizes.part_count(), next: 1, starts, at }
    }

    /// Adds a piece with these records and lines; `end` is the number of stored bytes up to its end.
    pub fn add_piece(&mut self, end: u64, rows: u64, lines: u64) {
        let Position { row, line, unit, .. } = self.at;
        self.at = Position { byte: end, row: row + rows, line: line + lines, unit: unit + 1 };
        if end >= self.source_bytes || !self.is_due(end) {
            return;
        }
        self.starts.push(self.at);
        // A long piece may reach the ends of several parts.
        while self.is_due(end) {
            self.next += 1;
        }
    }

    fn is_due(&self, end: u64) -> bool {
        u128::from(end) * u128::from(self.count) >= u128::from(self.source_bytes) * u128::from(self.next)
    }

    /// Returns the parts of a stream.
    pub fn of_bytes(self) -> Vec<SourcePart> {
        self.build_parts(|from, to| PartExtent::Bytes { start: from.byte, end: to.byte })
    }

    /// Returns the parts of a source whose pieces are row groups or record batches.
    pub fn of_units(self) -> Vec<SourcePart> {
        self.build_parts(|from, to| PartExtent::Units {
            first: from.unit,
            count: to.unit - from.unit,
            rows: to.row - from.row,
        })
    }

    /// Returns the parts of a source that is read by row.
    pub fn of_rows(self) -> Vec<SourcePart> {
        self.build_parts(|from, to| PartExtent::Rows { rows: to.row - from.row })
    }

    fn build_parts(self, extent: impl Fn(Position, Position) -> PartExtent) -> Vec<SourcePart> {
        // What follows the last piece, or could not be read, belongs to the last part.
        let end = Position { byte: self.source_bytes, ..self.at };
        let ends = self.starts[1..].iter().copied().chain([end]);
        let last = self.starts.len() - 1;
        let part = |(number, (from, to)): (usize, (&Position, Position))| SourcePart {
            first_row: from.row,
            first_line: from.line,
            is_last: number == last,
            bytes: to.byte - from.byte,
            extent: extent(*from, to),
        };
        self.starts.iter().zip(ends).enumerate().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(source_bytes: u64, part_bytes: u64) -> PartSizes {
        PartSizes { source_bytes, part_bytes, range_bytes: 1, max_record_bytes: 1 }
    }

    #[test]
    fn the_number_of_parts_is_the_nearest() {
        for (source, part, count) in [(0, 10, 1), (14, 10, 1), (15, 10, 2), (25, 10, 3), (100, 10, 10), (7, 0, 7)] {
            assert_eq!(sizes(source, part).part_count(), count, "{source} by {part}");
        }
        assert_eq!(sizes(u64::MAX, 1).part_count(), u64::MAX);
    }

    #[test]
    fn parts_end_where_their_share_is_reached_and_leave_nothing_out() {
        let mut cuts = PartCuts::new(&sizes(100, 25), 1);
        // The piece up to 80 reaches the ends of two parts.
        for (end, rows) in [(10, 1), (20, 2), (30, 3), (80, 4), (90, 0), (99, 5)] {
            cuts.add_piece(end, rows, 2 * rows);
        }
        let parts = cuts.of_bytes();
        let facts: Vec<_> = parts.iter().map(|part| (part.byte_range(), part.first_row, part.first_line)).collect();
        assert_eq!(facts, [(Some(0..30), 0, 0), (Some(30..80), 6, 13), (Some(80..100), 10, 21)]);
        assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), 100);
        let flags: Vec<_> = parts.iter().map(|part| (part.is_first(), part.is_last)).collect();
        assert_eq!(flags, [(true, false), (false, false), (false, true)]);
    }

    #[test]
    fn units_and_rows_are_counted() {
        let cuts = || {
            let mut cuts = PartCuts::new(&sizes(40, 20), 0);
            [(10, 5), (20, 0), (30, 7), (40, 1)].into_iter().for_each(|(end, rows)| cuts.add_piece(end, rows, 0));
            cuts
        };
        let extents = |parts: Vec<SourcePart>| parts.into_iter().map(|part| part.extent).collect::<Vec<_>>();
        assert_eq!(
            extents(cuts().of_units()),
            [PartExtent::Units { first: 0, count: 2, rows: 5 }, PartExtent::Units { first: 2, count: 2, rows: 8 }]
        );
        assert_eq!(extents(cuts().of_rows()), [PartExtent::Rows { rows: 5 }, PartExtent::Rows { rows: 8 }]);
    }
}
