//! What a loader is asked for, and the geometry of its order where it is not stated.
//!
//! Defaults follow from the version and the batch alone, in whole numbers: never from the machine, the ranks or the
//! memory, for then another machine would have another order.

use std::{collections::BTreeSet, thread};

use crate::{
    dataset::Positions,
    error::{Error, Result},
    format::OutputFormat,
};

/// Raw bytes of a block of framed records, and of one of Parquet.
const BLOCK_BYTES: u128 = 4 << 20;
const PARQUET_BLOCK_BYTES: u128 = 16 << 20;
/// Maximum rows of a block of Parquet.
const PARQUET_BLOCK_ROWS: u64 = 80_000;
/// Maximum number of lanes that are chosen.
const MAX_LANES: u64 = 64;
/// Blocks in the windows of all lanes and in one and a half more, which a lane may have where a window ends. That is
/// 1 GiB: what is read ahead and the batches fit into as much again.
const WINDOW_BLOCKS: u64 = 256;
const PARQUET_WINDOW_BLOCKS: u64 = 64;

/// What to load, in which order, and with which means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoaderSettings {
    /// Split to load; `None` for the whole version.
    pub split: Option<String>,
    /// Columns to load, in this order; `None` for all.
    pub columns: Option<Vec<String>>,
    /// Records of a step over all ranks.
    pub global_batch_size: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Number of this rank among those of data parallelism, from 0.
    pub rank: u64,
    /// Number of ranks, which divides the batch.
    pub world_size: u64,
    /// Records that are read together; `None` for about 4 MiB of them, or 16 MiB of Parquet.
    pub block: Option<u64>,
    /// Number of lanes, which divides the batch; `None` for the largest power of two up to 64 that does.
    pub lanes: Option<u64>,
    /// Records of a lane that are shuffled together; `None` for windows of 1 GiB over all lanes.
    pub window: Option<u64>,
    /// Memory of windows and batches in bytes.
    pub memory: u64,
    /// Threads that read and decode; as many more gather batches.
    pub threads: usize,
    /// Whether the records that do not fill a step are left out; otherwise they are one more, shorter step.
    pub drop_last: bool,
    /// Whether records are shuffled; otherwise they have the order of the dataset.
    pub shuffle: bool,
    /// Number of datasets that are loaded together, each by a loader of its own: lanes and windows that are not stated
    /// are so much smaller.
    pub sources: u64,
    /// Records that are not delivered: their slots stay empty, and no other record moves.
    pub without: Omitted,
}

/// Records that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Omitted {
    /// By record number.
    pub numbers: BTreeSet<u64>,
    /// By position in the version, or in the split.
    pub positions: BTreeSet<u64>,
}

impl Omitted {
    /// Whether a record is left out.
    pub(super) fn has(&self, number: u64, position: u64) -> bool {
        self.numbers.contains(&number) || self.positions.contains(&position)
    }
}

impl Default for LoaderSettings {
    /// Rank 0 of 1 with batches of 256, 2 GiB of memory and all cores, shuffled, without a shorter last step.
    fn default() -> Self {
        Self {
            split: None,
            columns: None,
            global_batch_size: 256,
            seed: 0,
            rank: 0,
            world_size: 1,
            block: None,
            lanes: None,
            window: None,
            memory: 2 << 30,
            threads: thread::available_parallelism().map_or(1, usize::from),
            drop_last: true,
            shuffle: true,
            sources: 1,
            without: Omitted::default(),
        }
    }
}

/// How positions become blocks, lanes and windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) block: u64,
    pub(super) lanes: u64,
    pub(super) window: u64,
}

impl Geometry {
    /// Completes what the settings state.
    pub(super) fn new(settings: &LoaderSettings, positions: &Positions, format: OutputFormat) -> Result<Self> {
        let batch = settings.global_batch_size;
        if batch == 0 {
            return Err(Error::usage("expected a global batch of 1 record or more, found 0"));
        }
        let is_columnar = format.is_columnar();
        let usual = default_block(positions, is_columnar);
        let block = settings.block.unwrap_or(usual);
        if !settings.shuffle {
            return Ok(Self { block, lanes: 1, window: block });
        }
        let sources = settings.sources.max(1);
        let most = (MAX_LANES / sources).max(1);
        let lanes = settings.lanes.unwrap_or_else(|| default_lanes(batch, positions.records(), most));
        let blocks = if is_columnar { PARQUET_WINDOW_BLOCKS } else { WINDOW_BLOCKS };
        let blocks = default_window_blocks(blocks / sources, lanes);
        let window = settings.window.unwrap_or_else(|| blocks.saturating_mul(block.min(usual)).max(block));
        Ok(Self { block, lanes, window: window.min((1 << 40) - 1) })
    }
}

fn default_block(positions: &Positions, is_columnar: bool) -> u64 {
    let records = positions.records().max(1);
    let raw_bytes: u128 = positions.shards().iter().map(|shard| u128::from(shard.committed().raw_bytes)).sum();
    let bytes = if is_columnar { PARQUET_BLOCK_BYTES } else { BLOCK_BYTES };
    let block = bytes * u128::from(records) / raw_bytes.max(1);
    let most = if is_columnar { records.min(PARQUET_BLOCK_ROWS) } else { records };
    u64::try_from(block).unwrap_or(u64::MAX).clamp(1, most)
}

/// Returns the blocks of a window, if those of all lanes and one and a half more have so many; rounded to the nearest.
fn default_window_blocks(blocks: u64, lanes: u64) -> u64 {
    let halves = lanes.saturating_mul(2).saturating_add(3);
    ((2 * blocks + halves / 2) / halves).max(1)
}

fn default_lanes(batch: u64, records: u64, most: u64) -> u64 {
    let divides = |lanes: &u64| batch.is_multiple_of(*lanes) && *lanes <= records.max(1);
    [64, 32, 16, 8, 4, 2].into_iter().filter(|lanes| *lanes <= most).find(divides).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_any_number_of_lanes_have_a_gibibyte() {
        let blocks = [1, 2, 4, 8, 16, 32, 64, 4096].map(|lanes| default_window_blocks(WINDOW_BLOCKS, lanes));
        assert_eq!(blocks, [102, 73, 47, 27, 15, 8, 4, 1]);
        assert_eq!(default_window_blocks(PARQUET_WINDOW_BLOCKS, 64), 1);
    }

    #[test]
    fn lanes_divide_the_batch_and_do_not_exceed_the_records() {
        let found = [(1, 9), (7, 100), (12, 100), (256, 1000), (256, 5), (96, 1000), (64, 0)];
        let lanes = found.map(|(batch, records)| default_lanes(batch, records, MAX_LANES));
        assert_eq!(lanes, [1, 1, 4, 64, 4, 32, 1]);
        assert_eq!([21, 1].map(|most| default_lanes(256, 1000, most)), [16, 1]);
    }
}
