//! How the memory of a loader is divided between windows and batches, and how much it needs at least.
//!
//! A lane has one window at a time, and two while a step takes the last turns of one and the first of the next. Ends of
//! windows are spread, so in a step that is so in few lanes. All numbers are averages: sizes of records differ.

use super::settings::LoaderSettings;
use crate::error::{Error, Result};

/// Ready batches for each thread.
const AHEAD: u64 = 2;
/// Share of the memory, and most bytes, that places of records have beside windows and batches.
const PLACES_SHARE: u64 = 32;
const MOST_PLACE_BYTES: u64 = 64 << 20;

/// What a rank reads of the lanes in a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneLoad {
    /// Lanes that the rank reads.
    pub(super) lanes: u64,
    /// Turns of a lane in the epoch.
    pub(super) lane_turns: u64,
    /// Turns of a lane in a step.
    pub(super) step_turns: u64,
    /// Records of a window, and of a block.
    pub(super) window: u64,
    pub(super) block: u64,
    /// Estimated bytes of a record.
    pub(super) record_bytes: u64,
}

impl LaneLoad {
    /// Returns the records in memory at a time if windows have so many.
    fn records_with(&self, window: u64) -> u64 {
        let all = self.lanes.saturating_mul(self.lane_turns);
        if self.lane_turns <= window {
            return all;
        }
        let ending = (self.lanes.saturating_mul(self.step_turns) / window.max(1) + 1).min(self.lanes);
        // The first and the last window of a lane may have half as much again.
        let both = window.saturating_add(window / 2).saturating_add(self.step_turns);
        self.lanes.saturating_mul(window).saturating_add(ending.saturating_mul(both)).min(all)
    }

    /// Returns the largest window whose records fit, if that of one record does.
    fn window_within(&self, records: u64) -> Option<u64> {
        let (mut fits, mut exceeds) = (0, self.window.max(1));
        while fits + 1 < exceeds {
            let middle = fits + (exceeds - fits) / 2;
            if self.records_with(middle) <= records { fits = middle } else { exceeds = middle }
        }
        (fits > 0).then_some(fits)
    }
}

/// How the memory is divided, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryShares {
    pub(super) record_bytes: u64,
    /// Windows that are in memory or being read, and how many they may be if records are larger than the average.
    pub(super) window_bytes: u64,
    pub(super) most_window_bytes: u64,
    /// A batch of a rank.
    pub(super) batch_bytes: u64,
    /// Places of records.
    pub(super) place_bytes: u64,
    /// Number of batches that are ready or being gathered.
    pub(super) ahead: u64,
}

impl MemoryShares {
    /// Divides the memory.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if it does not suffice, with the memory that does and the window that
    /// fits.
    pub(super) fn new(settings: &LoaderSettings, load: &LaneLoad, readers: usize) -> Result<Self> {
        let record_bytes = load.record_bytes;
        let windows = load.records_with(load.window).saturating_mul(record_bytes);
        let slots = settings.global_batch_size.div_ceil(settings.world_size);
        let batch = slots.saturating_mul(record_bytes).max(1);
        // One batch is delivered while the next one is gathered.
        let batches = batch.saturating_mul(2);
        let needed = windows.saturating_add(batches);
        if needed > settings.memory {
            return Err(too_little_memory(settings, load, needed, batches));
        }
        // Half of what is left is for reading ahead.
        let left = settings.memory - needed;
        let threads = settings.threads.max(1) as u64;
        let ahead = (1 + left / 2 / batch).min(AHEAD.saturating_mul(threads));
        let for_windows = settings.memory - batch.saturating_mul(ahead + 1);
        // Memory that is used again is faster than more of it.
        let window = load.window.min(load.lane_turns);
        let blocks = load.block.min(window).saturating_mul(2 * readers as u64);
        let read_ahead = blocks.max(window.saturating_mul(2)).saturating_mul(record_bytes);
        let window_bytes = for_windows.min(windows.saturating_add(read_ahead.max(windows / 4)));
        // Windows may be larger than the average: then at most as much again as they should have.
        let most_window_bytes = for_windows.saturating_add(windows.max(for_windows / 2));
        let place_bytes = (settings.memory / PLACES_SHARE).min(MOST_PLACE_BYTES);
        Ok(Self { record_bytes, window_bytes, most_window_bytes, batch_bytes: batch, place_bytes, ahead })
    }
}

fn too_little_memory(settings: &LoaderSettings, load: &LaneLoad, needed: u64, batches: u64) -> Error {
    let memory = settings.memory;
    let message = format!("expected at least {needed} bytes of memory for windows and batches, found {memory}");
    let error = Error::usage(message);
    match load.window_within(memory.saturating_sub(batches) / load.record_bytes.max(1)) {
        None => error.with_hint("choose a smaller batch, or more ranks"),
        Some(fits) if settings.shuffle => {
            error.with_hint(format!("a window of {fits} records fits, but has another order"))
        }
        Some(fits) => error.with_hint(format!("a block of {fits} records fits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: LaneLoad =
        LaneLoad { lanes: 64, lane_turns: 100_000, step_turns: 4, window: 500, block: 100, record_bytes: 1000 };

    #[test]
    fn lanes_have_a_window_each_and_few_have_two() {
        assert_eq!(LOAD.records_with(500), 64 * 500 + 754);
        assert_eq!(LOAD.records_with(100_000), 64 * 100_000);
        assert_eq!(LOAD.records_with(2), 64 * (2 + 3 + 4));
        let one = LaneLoad { lanes: 1, ..LOAD };
        assert_eq!(one.records_with(500), 500 + 754);
        assert_eq!((LOAD.window_within(20_000), LOAD.window_within(1)), (Some(305), None));
        assert!(LOAD.records_with(305) <= 20_000 && LOAD.records_with(306) > 20_000);
    }
}
