//! Sizes and intervals of a shuffle: which ranks are put in order together, so that memory is bounded whatever the
//! input.
//!
//! ```text
//! split 0                              split 1
//! |cell|cell|cell|cell|cell| ... |    |cell|cell| ...      equal parts of all ranks, with their records
//! |interval      |interval  | ...     |interval | ...      as many cells as fit into memory together
//! ```

use std::ops::RangeInclusive;

use crate::units::Size;

/// Cells of all splits together. Of a terabyte, each has 16 MiB.
const CELLS: usize = 1 << 16;

/// Fewest cells of a split.
const MIN_CELLS: usize = 1 << 12;

/// Limits of the bytes of an interval.
const INTERVAL: (u64, u64) = (512 << 10, 32 << 20);

/// Limits of the bytes of a block of a run in a file.
const BLOCK: (u64, u64) = (16 << 10, 512 << 10);

/// Blocks of an interval, so that one of as many runs can be read.
const BLOCKS: u64 = 128;

/// Maximum bytes of records that are sorted at a time: texts of a column have offsets of 31 bits.
const MAX_RUN: u64 = 512 << 20;

/// Maximum number of files that are merged at a time.
const MAX_FILES: u64 = 1024;

/// Sizes that keep a shuffle within its memory limit.
///
/// ```text
/// spilling   [held], [run] being filled, [run] x 2 being sorted and written to disk
/// merging    [held], [interval] x (jobs + 1) with their blocks, row groups being collected and encoded
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShuffleMemory {
    /// Bytes of records that stay in memory.
    pub held_bytes: u64,
    /// Bytes of records that are sorted at a time.
    pub run_bytes: u64,
    /// Bytes of a block of a run in a file.
    pub block_bytes: u64,
    /// Bytes of records that are put in order at a time.
    pub interval_bytes: u64,
    /// Number of runs in files that are merged at a time.
    pub fan_in: usize,
}

impl ShuffleMemory {
    /// Divides `memory` among the stages on `jobs` threads.
    pub fn new(memory: Size, jobs: usize) -> Self {
        let run_bytes = (memory.0 / 16).clamp(1 << 20, MAX_RUN);
        let interval_bytes = (memory.0 / 32 / (jobs as u64 + 1)).clamp(INTERVAL.0, INTERVAL.1);
        let block_bytes = (interval_bytes / BLOCKS).clamp(BLOCK.0, BLOCK.1);
        let fan_in = (interval_bytes / block_bytes).clamp(4, MAX_FILES);
        let fan_in = usize::try_from(fan_in).unwrap_or(4);
        Self { held_bytes: memory.0 / 8, run_bytes, block_bytes, interval_bytes, fan_in }
    }
}

/// How many records there are in each cell of each split.
#[derive(Debug, Clone)]
pub struct Cells {
    counts: Vec<Vec<u64>>,
    /// Bits of a rank that follow those of its cell.
    shift: u32,
}

/// Ranks that are put in order together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// Split of the records.
    pub split: usize,
    /// The ranks.
    pub ranks: RangeInclusive<u128>,
    /// Number of records of the split before it.
    pub first: u64,
    /// Number of its records.
    pub records: u64,
}

impl Cells {
    /// Creates empty cells of `splits` splits.
    pub fn new(splits: usize) -> Self {
        let cells = (CELLS / splits.max(1).next_power_of_two()).max(MIN_CELLS);
        Self { counts: vec![vec![0; cells]; splits], shift: u128::BITS - cells.ilog2() }
    }

    /// Counts a record of a split.
    pub fn count_record(&mut self, split: usize, rank: u128) {
        let cell = usize::try_from(rank >> self.shift).unwrap_or(usize::MAX);
        if let Some(count) = self.counts.get_mut(split).and_then(|cells| cells.get_mut(cell)) {
            *count += 1;
        }
    }

    /// Returns intervals that have at most `limit` records each, if no cell has more; together they have all records,
    /// in order.
    pub fn to_intervals(&self, limit: u64) -> Vec<Interval> {
        let mut all = Vec::new();
        for (split, cells) in self.counts.iter().enumerate() {
            let mut open = Interval { split, ranks: 0..=0, first: 0, records: 0 };
            for (cell, count) in cells.iter().enumerate() {
                let begin = (cell as u128) << self.shift;
                if open.records > 0 && open.records + count > limit {
                    let first = open.first + open.records;
                    all.push(std::mem::replace(&mut open, Interval { split, ranks: begin..=begin, first, records: 0 }));
                }
                open.records += count;
                open.ranks = *open.ranks.start()..=begin | ((1 << self.shift) - 1);
            }
            all.extend(Some(open).filter(|open| open.records > 0));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn memory_is_divided(mib in 64..4_096_u64, jobs in 1..64_usize) {
            let memory = ShuffleMemory::new(Size::from_mib(mib), jobs);
            let all = mib << 20;
            prop_assert!(memory.held_bytes + 4 * memory.run_bytes <= all / 2);
            prop_assert!(2 * memory.interval_bytes * (jobs as u64 + 1) <= all / 2
                || memory.interval_bytes == INTERVAL.0);
            prop_assert!(memory.fan_in as u64 * memory.block_bytes <= memory.interval_bytes.max(4 * BLOCK.0));
        }

        /// Each record is in the interval of its split that has its rank, and behind as many records as it states.
        #[test]
        fn intervals_have_all_records(
            mut ranks in prop::collection::vec((0..3_usize, prop::num::u128::ANY), 0..400),
            limit in 0..100_u64,
        ) {
            ranks.extend([(0, u128::MAX), (2, 0), (2, 0)]);
            let mut cells = Cells::new(3);
            ranks.iter().for_each(|(split, rank)| cells.count_record(*split, *rank));
            ranks.sort_unstable();
            let (mut at, mut first, mut before) = (0, 0, None);
            for interval in cells.to_intervals(limit) {
                if before != Some(interval.split) {
                    first = 0;
                }
                before = Some(interval.split);
                prop_assert_eq!(interval.first, first);
                prop_assert!(interval.records > 0);
                let end = at + usize::try_from(interval.records).unwrap_or(usize::MAX);
                prop_assert!(ranks[at..end].iter().all(|(split, rank)| *split == interval.split
                    && interval.ranks.contains(rank)));
                (at, first) = (end, first + interval.records);
            }
            prop_assert_eq!(at, ranks.len());
        }
    }
}
