//! Divides the memory limit among the stages of a run.
//!
//! The output must not depend on the number of threads, so the sizes of ranges and units follow from `--memory`, the
//! target and the row group alone; the number of threads decides only how many of them are in flight.
//!
//! ```text
//! reading    [range] x parse_window   raw bytes, and the columns they become (about three times a range in all)
//! gathering  [row group]              rows waiting to be encoded
//! encoding   [row group] x encode_window, each with its encoded form
//! writing    [framed unit] x write_window, and one that is written
//! ```

use crate::{dataset::Settings, format::OutputFormat, units::Size};

/// Default memory limit. It is a constant, because a default derived from the machine would make shards depend on the
/// machine.
pub const DEFAULT_MEMORY: Size = Size::from_mib(1024);

/// Maximum bytes of a range. It is small, because a range expands to megabytes of columns, and memory that was never
/// used before is slow.
const MAX_RANGE: u64 = 2 << 20;
const MAX_STREAM_UNIT: u64 = 4 << 20;
const MIN_UNIT: u64 = 64 << 10;

/// Bytes that each column of Parquet shards takes whatever it holds, measured: encoders, footers, and page indexes.
const COLUMN_BYTES: u64 = 6 << 10;

/// Most bytes that everything else takes beside many columns, measured.
const BASE_BYTES: u64 = 256 << 20;

/// Maximum number of framed units that wait to be written: enough for a disk that hesitates.
const MAX_WAITING: usize = 3;

/// Number of tar and TFRecord shards that are copied at a time: copies need little memory but keep files open.
const CONCURRENT_COPIES: usize = 4;

/// Sizes that keep a run within its memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The memory limit.
    pub bytes: u64,
    /// Bytes of a range.
    pub range_bytes: u64,
    /// Maximum bytes of a record.
    pub max_record_bytes: u64,
    /// Uncompressed bytes of a unit: a row group, or a sequence of framed records.
    pub unit_bytes: u64,
    /// Maximum number of ranges in flight.
    pub parse_window: usize,
    /// Maximum number of units in flight.
    pub encode_window: usize,
    /// Maximum number of framed units that wait to be written; 0 also means that a shard ends before the next begins.
    pub write_window: usize,
}

impl MemoryPlan {
    /// Divides `memory` among the stages of a run that writes shards of a dataset.
    pub fn for_settings(memory: Size, jobs: usize, settings: &Settings) -> Self {
        Self::new(memory, jobs, settings.shard_format, settings.target_shard, settings.row_group)
    }

    /// Divides `memory` among the stages.
    pub fn new(memory: Size, jobs: usize, format: OutputFormat, target: Size, row_group: Size) -> Self {
        // The rest is for the id index, sidecars, and free buffers that the allocator keeps.
        let bytes = memory.0;
        let memory = Size(memory.0 / 8 * 5);
        let share = |part: u64| (memory.0 / part).max(MIN_UNIT);
        let range_bytes = MAX_RANGE.min(share(64));
        let unit_bytes = if format.is_columnar() {
            row_group.0.clamp(MIN_UNIT, share(8))
        } else {
            // Shards of compressed units end between units, so a unit must be small compared to the target.
            (target.0 / 32).clamp(MIN_UNIT, MAX_STREAM_UNIT.min(share(64)))
        };
        let parse_window =
            usize::try_from(memory.0 / 4 / (3 * range_bytes)).unwrap_or(usize::MAX).clamp(2, 2 * jobs + 2);
        let encode_window = usize::try_from(memory.0 / 4 / (2 * unit_bytes)).unwrap_or(usize::MAX).clamp(2, jobs + 2);
        let max_record_bytes = share(5);
        let write_window = if format.is_columnar() {
            0
        } else {
            usize::try_from(bytes / 128 / unit_bytes).unwrap_or(usize::MAX).min(MAX_WAITING)
        };
        Self { bytes, range_bytes, max_record_bytes, unit_bytes, parse_window, encode_window, write_window }
    }

    /// Returns the plan of records that are divided among so many splits, each of which gathers a unit of its own.
    #[must_use]
    pub fn for_splits(self, splits: usize) -> Self {
        let others = splits.saturating_sub(1) as u64;
        let most = (self.bytes / 64 * 5).checked_div(others).unwrap_or(u64::MAX);
        Self { unit_bytes: self.unit_bytes.min(most).max(MIN_UNIT.min(self.unit_bytes)), ..self }
    }

    /// Returns the plan of records that are shuffled, whose sidecar rows are in memory with them, and runs that are
    /// merged meanwhile.
    #[must_use]
    pub fn for_shuffle(self) -> Self {
        Self { unit_bytes: self.unit_bytes.min(self.bytes / 16).max(MIN_UNIT.min(self.unit_bytes)), ..self }
    }

    /// Returns the memory limit with which Parquet shards can have so many columns; `None` if they can with this one.
    pub fn larger_for_columns(&self, columns: u64) -> Option<Size> {
        let held = columns.saturating_mul(COLUMN_BYTES);
        let fits = held <= self.bytes.saturating_sub(BASE_BYTES.min(self.bytes / 2));
        (!fits).then(|| Size(held.saturating_add(BASE_BYTES).next_multiple_of(1 << 20)))
    }

    /// Returns the bytes of a range of a table with so many columns. Each column of a range costs some hundred bytes
    /// whatever it holds, so it should hold some rows; such a range is parsed alone.
    pub fn range_bytes_of_wide(&self, columns: u64) -> u64 {
        const COLUMN_BYTES: u64 = 512;
        (columns.saturating_mul(COLUMN_BYTES)).min(self.bytes / 32).max(self.range_bytes)
    }

    /// Returns how many shards are rewritten at a time, from 1 to `max`. Rewriting Parquet holds a row group and its
    /// encoded form.
    pub fn concurrent_rewrites(&self, format: OutputFormat, max: usize) -> usize {
        let fit = if format.is_columnar() {
            usize::try_from(self.bytes / (4 * self.unit_bytes)).unwrap_or(1)
        } else {
            CONCURRENT_COPIES
        };
        fit.clamp(1, max.max(1))
    }

    /// Estimates the peak memory of the pipeline, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let ranges = 3 * self.range_bytes * self.parse_window as u64;
        ranges + self.unit_bytes * (1 + 2 * self.encode_window as u64 + self.write_window as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_do_not_depend_on_jobs() {
        let plan = |jobs| {
            MemoryPlan::new(DEFAULT_MEMORY, jobs, OutputFormat::Parquet, Size::from_mib(128), Size::from_mib(64))
        };
        let (one, many) = (plan(1), plan(64));
        assert_eq!((one.range_bytes, one.unit_bytes), (many.range_bytes, many.unit_bytes));
        assert!(one.parse_window <= many.parse_window);
    }

    #[test]
    fn units_wait_only_where_there_is_memory_for_them() {
        let window = |mib, format| {
            MemoryPlan::new(Size::from_mib(mib), 8, format, Size::from_mib(128), Size::from_mib(64)).write_window
        };
        assert_eq!([128, 512, 1024, 4096].map(|mib| window(mib, OutputFormat::Tar)), [0, 1, 2, 3]);
        assert_eq!(window(4096, OutputFormat::Parquet), 0);
    }

    #[test]
    fn many_columns_need_memory() {
        let larger = |mib, columns| {
            let memory = Size::from_mib(mib);
            let plan = MemoryPlan::new(memory, 8, OutputFormat::Parquet, Size::from_mib(128), Size::from_mib(64));
            plan.larger_for_columns(columns)
        };
        assert_eq!((larger(512, 40_000), larger(1024, 100_000), larger(64, 5_000)), (None, None, None));
        assert_eq!(larger(512, 50_000), Some(Size::from_mib(549)));
        assert_eq!(larger(549, 50_000), None);
        assert!(larger(1024, 1 << 40).is_some());
    }

    #[test]
    fn little_memory_makes_everything_smaller() {
        for mib in [64, 256, 512, 1024, 4096] {
            let memory = Size::from_mib(mib);
            let plan = MemoryPlan::new(memory, 8, OutputFormat::Parquet, Size::from_mib(128), Size::from_mib(64));
            assert!(plan.peak_memory() <= memory.0, "{mib}: {plan:?}");
        }
    }
}
