//! Ends a run behind its first records, for a trial: `--limit`.
//!
//! It is the last gate, so what it counts are records that are written. Those of the last block that come behind are
//! filtered; later blocks are not read.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::BooleanArray;

use super::{BlockPlace, Gate, GatedBlock};
use crate::error::Result;

/// Lets the first records through.
#[derive(Debug)]
pub struct LimitGate {
    left: AtomicU64,
}

impl LimitGate {
    /// Creates a gate for so many records.
    pub fn new(records: u64) -> Self {
        Self { left: AtomicU64::new(records) }
    }
}

impl Gate for LimitGate {
    fn pass_in_order(&self, gated: &mut GatedBlock, _place: &BlockPlace<'_>) -> Result<()> {
        // Blocks come one after the other.
        let left = self.left.load(Ordering::Relaxed);
        let found: usize = gated.record_blocks().map(|block| block.payload.len()).sum();
        self.left.store(left.saturating_sub(found as u64), Ordering::Relaxed);
        if found as u64 <= left {
            return Ok(());
        }
        gated.blocks_mut().for_each(|block| block.expand_numbers());
        let mut rows: Vec<u32> = gated.record_blocks().flat_map(|block| block.rows.iter().copied()).collect();
        rows.sort_unstable();
        // The block may be divided among splits, which have its records in turn.
        let end = usize::try_from(left).ok().and_then(|left| rows.get(left)).copied();
        let mut removed = 0;
        for block in gated.blocks_mut() {
            let keep: BooleanArray = block.rows.iter().map(|row| Some(end.is_none_or(|end| *row < end))).collect();
            removed += block.retain(&keep)?;
        }
        gated.effects.filtered += removed;
        Ok(())
    }

    fn ends_run(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}
