//! The order of one epoch as windows and steps: shuffled, or that of the dataset.
//!
//! Without shuffling a turn is a position, there is one lane, and a window is a block.

use std::{collections::HashMap, iter::StepBy, ops::Range};

use super::{
    memory::LaneLoad,
    settings::{Geometry, LoaderSettings},
};
use crate::{
    error::{Error, Result},
    order::{DataRank, EpochOrder, LaneTurns, LaneWindow, OrderError, OrderParameters, Remainder, StepLayout},
};

/// One epoch of a rank.
#[derive(Debug, Clone)]
pub(super) struct EpochPlan {
    order: EpochOrder,
    layout: StepLayout,
    rank: DataRank,
    shuffle: bool,
    /// Turns of a lane in a step.
    lane_step: u64,
}

/// Returns the error of a caller who asked for parameters that make no order.
fn usage_error(error: OrderError) -> Error {
    Error::usage(error.to_string())
}

impl EpochPlan {
    pub(super) fn new(
        settings: &LoaderSettings,
        geometry: Geometry,
        records: u64,
        basis: [u8; 32],
        epoch: u64,
    ) -> Result<Self> {
        let Geometry { block, lanes, window } = geometry;
        let parameters = OrderParameters { records, block, lanes, window, seed: settings.seed, epoch, basis };
        let order = EpochOrder::new(parameters).map_err(usage_error)?;
        let remainder = if settings.drop_last { Remainder::Dropped } else { Remainder::Delivered };
        let layout = StepLayout::new(&order, settings.global_batch_size, remainder).map_err(usage_error)?;
        let rank = layout.rank(settings.rank, settings.world_size).map_err(usage_error)?;
        let lane_step = (settings.global_batch_size / lanes).max(1);
        Ok(Self { order, layout, rank, shuffle: settings.shuffle, lane_step })
    }

    /// Returns the steps of the epoch.
    pub(super) fn layout(&self) -> &StepLayout {
        &self.layout
    }

    /// Returns what the rank takes of each lane in a step, in the order of its slots.
    pub(super) fn lanes_of(&self, step: u64) -> Result<impl Iterator<Item = LaneTurns> + use<>> {
        self.layout.lanes_of(step, self.rank).map_err(|e| Error::internal(e.to_string()))
    }

    /// Returns the number of slots of the rank in a step.
    pub(super) fn slots_of(&self, step: u64) -> Result<u64> {
        let slots = self.layout.slots_of(step, self.rank).map_err(|e| Error::internal(e.to_string()))?;
        Ok(slots.end - slots.start)
    }

    /// Returns what the rank reads of the lanes in a step; `record_bytes` are those of a record.
    pub(super) fn lane_load(&self, record_bytes: u64) -> Result<LaneLoad> {
        let OrderParameters { records, block, lanes, window, .. } = *self.order.parameters();
        let of_rank = if self.layout.steps() == 0 { 0 } else { self.lanes_of(0)?.count() as u64 };
        let step_turns = self.layout.records_of(0).div_ceil(lanes);
        let lane_turns = records.div_ceil(lanes);
        Ok(LaneLoad { lanes: of_rank, lane_turns, step_turns, window, block, record_bytes })
    }

    fn window_at(&self, lane: u64, turn: u64) -> Option<LaneWindow> {
        if self.shuffle {
            return self.order.window_at(lane, turn);
        }
        let (block, records) = (self.order.parameters().block, self.order.parameters().records);
        let number = turn / block;
        let turns = number * block..(number + 1).saturating_mul(block).min(records);
        (turn < records).then(|| LaneWindow { lane, number, places: turns.clone(), turns })
    }

    /// Returns the windows that the rank reads in some steps, each once, in the order of the steps that need them.
    pub(super) fn windows(&self, steps: StepBy<Range<u64>>) -> PlannedWindows<'_> {
        PlannedWindows { plan: self, steps, lanes: Vec::new(), read: HashMap::new() }
    }

    /// Returns the positions that a window reads, block by block, in the order of its places.
    pub(super) fn blocks_of(&self, window: &LaneWindow) -> Vec<Range<u64>> {
        if self.shuffle {
            return self.order.window_blocks(window).map(|block| block.positions).collect();
        }
        vec![window.places.clone()]
    }

    /// Returns for each record of a window, in the order of its blocks, whether it belongs to one of the steps that are
    /// a multiple of `stride` away from `first`; `None` if all do.
    pub(super) fn needed_of(&self, window: &LaneWindow, first: u64, stride: u64) -> Option<Vec<bool>> {
        if stride == 1 {
            return None;
        }
        let is_needed = |turn: u64| (turn / self.lane_step).abs_diff(first).is_multiple_of(stride);
        let mut needed = vec![false; usize::try_from(window.records()).ok()?];
        let mut note = |(turn, at): (u64, u64)| {
            if let Some(needed) = usize::try_from(at).ok().and_then(|at| needed.get_mut(at)) {
                *needed = is_needed(turn);
            }
        };
        match self.permutation_of(window) {
            Some(permutation) => window.turns.clone().zip(permutation).for_each(&mut note),
            None => window.turns.clone().zip(0..).for_each(&mut note),
        }
        Some(needed)
    }

    /// Returns for each turn of a window which of its records it takes, in the order of its blocks; `None` if these are
    /// the turns.
    pub(super) fn permutation_of(&self, window: &LaneWindow) -> Option<impl ExactSizeIterator<Item = u64> + use<>> {
        self.shuffle.then(|| self.order.window_permutation(window))
    }
}

/// The windows of some steps; made by [`EpochPlan::windows`].
pub(super) struct PlannedWindows<'a> {
    plan: &'a EpochPlan,
    steps: StepBy<Range<u64>>,
    /// Turns of the step that was taken last, the next lane last.
    lanes: Vec<LaneTurns>,
    /// For each lane, the end of the windows that were returned, in turns of the lane.
    read: HashMap<u64, u64>,
}

impl Iterator for PlannedWindows<'_> {
    type Item = LaneWindow;

    fn next(&mut self) -> Option<LaneWindow> {
        loop {
            let Some(LaneTurns { lane, turns }) = self.lanes.last() else {
                let step = self.steps.next()?;
                self.lanes = self.plan.lanes_of(step).ok()?.collect();
                self.lanes.reverse();
                continue;
            };
            let read = self.read.entry(*lane).or_insert(0);
            let from = turns.start.max(*read);
            match self.plan.window_at(*lane, from).filter(|_| from < turns.end) {
                Some(window) => {
                    *read = window.turns.end;
                    return Some(window);
                }
                None => drop(self.lanes.pop()),
            }
        }
    }
}
