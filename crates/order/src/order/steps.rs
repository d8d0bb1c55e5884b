//! Steps of an epoch: which turns they have, and which of them each rank takes.

use std::{collections::VecDeque, ops::Range};

use super::{EpochOrder, LaneWindow, OrderError, check_limits, share::EqualShares};

/// What happens to the last turns of an epoch, which do not fill a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// They are in no step.
    Dropped,
    /// They are one more step, which is shorter.
    Delivered,
}

/// A data-parallel rank of a number of ranks that divides the global batch; made by [`StepLayout::rank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRank {
    rank: u64,
    ranks: u64,
}

/// Consecutive turns of one lane in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneTurns {
    /// The lane, from 0.
    pub lane: u64,
    /// The turns, counted in the lane.
    pub turns: Range<u64>,
}

/// Where a turn is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSlot {
    /// Number of the step in its epoch, from 0.
    pub step: u64,
    /// Number of the slot in the step, over all ranks, from 0.
    pub slot: u64,
}

/// How the turns of an epoch are divided into steps, and each step among ranks.
///
/// Step `s` has the turns from `s * batch` on. Its slots are these turns lane by lane, and each rank takes consecutive
/// slots, so a rank reads few lanes.
#[derive(Clone, Debug)]
pub struct StepLayout {
    records: u64,
    lanes: u64,
    batch: u64,
    remainder: Remainder,
}

impl StepLayout {
    /// Divides the turns of an order into steps of `batch` records over all ranks.
    ///
    /// # Errors
    /// Returns an error if `batch` is 0, 2^31 or more, or no multiple of the lanes.
    pub fn new(order: &EpochOrder, batch: u64, remainder: Remainder) -> Result<Self, OrderError> {
        let (records, lanes) = (order.parameters().records, order.parameters().lanes);
        check_limits("global batch size", batch, 1, (1 << 31) - 1)?;
        if !batch.is_multiple_of(lanes) {
            return Err(OrderError::BatchNotOfLanes { batch, lanes });
        }
        Ok(Self { records, lanes, batch, remainder })
    }

    /// Returns one of `ranks` ranks.
    ///
    /// # Errors
    /// Returns an error if the ranks do not divide the batch, or if there is no such rank.
    pub fn rank(&self, rank: u64, ranks: u64) -> Result<DataRank, OrderError> {
        if ranks == 0 || !self.batch.is_multiple_of(ranks) {
            return Err(OrderError::BatchNotOfRanks { batch: self.batch, ranks });
        }
        check_limits("rank", rank, 0, ranks - 1)?;
        Ok(DataRank { rank, ranks })
    }

    /// Returns the number of steps of an epoch that have a whole batch.
    pub fn full_steps(&self) -> u64 {
        self.records / self.batch
    }

    /// Returns the number of steps of an epoch.
    pub fn steps(&self) -> u64 {
        let more = self.remainder == Remainder::Delivered && !self.records.is_multiple_of(self.batch);
        self.full_steps() + u64::from(more)
    }

    /// Returns the number of turns of an epoch that are in no step.
    pub fn dropped(&self) -> u64 {
        self.records - self.records.min(self.steps() * self.batch)
    }

    /// Returns the number of records of a step over all ranks; 0 if there is no such step.
    pub fn records_of(&self, step: u64) -> u64 {
        if step < self.steps() { self.batch.min(self.records - step * self.batch) } else { 0 }
    }

    /// Returns the slots of a step that a rank takes.
    ///
    /// # Errors
    /// Returns an error if the epoch has no such step.
    pub fn slots_of(&self, step: u64, rank: DataRank) -> Result<Range<u64>, OrderError> {
        if step >= self.steps() {
            return Err(OrderError::NoSuchStep { step, steps: self.steps() });
        }
        let shares = EqualShares::of_parts(self.records_of(step), rank.ranks);
        Ok(shares.start_of(rank.rank)..shares.start_of(rank.rank + 1))
    }

    /// Returns what a rank takes of each lane in a step, in the order of its slots. Lanes without a turn are left out.
    ///
    /// # Errors
    /// Returns an error if the epoch has no such step.
    pub fn lanes_of(&self, step: u64, rank: DataRank) -> Result<impl Iterator<Item = LaneTurns> + use<>, OrderError> {
        let slots = self.slots_of(step, rank)?;
        let (shares, first) = (self.slots_by_lane(step), step * self.batch / self.lanes);
        let mut slot = slots.start;
        Ok(std::iter::from_fn(move || {
            if slot >= slots.end {
                return None;
            }
            let lane = shares.part_of(slot);
            let end = shares.start_of(lane + 1).min(slots.end);
            let turns = first + slot - shares.start_of(lane)..first + end - shares.start_of(lane);
            slot = end;
            Some(LaneTurns { lane, turns })
        }))
    }

    /// Returns the turns of a step that a rank takes, in the order of its slots.
    ///
    /// # Errors
    /// Returns an error if the epoch has no such step.
    pub fn turns_of(&self, step: u64, rank: DataRank) -> Result<impl Iterator<Item = u64> + use<>, OrderError> {
        let lanes = self.lanes;
        let of_lane = move |share: LaneTurns| share.turns.map(move |turn| turn * lanes + share.lane);
        Ok(self.lanes_of(step, rank)?.flat_map(of_lane))
    }

    /// Returns where a turn is delivered; `None` if it is dropped, or if there is no such turn.
    pub fn slot_of(&self, turn: u64) -> Option<StepSlot> {
        let (step, lane) = (turn / self.batch, turn % self.lanes);
        let in_lane = turn % self.batch / self.lanes;
        let exists = turn < self.records && step < self.steps();
        exists.then(|| StepSlot { step, slot: self.slots_by_lane(step).start_of(lane) + in_lane })
    }

    /// The slots of a step, cut into lanes: since steps begin with lane 0, the first lanes have the turns of a rest.
    fn slots_by_lane(&self, step: u64) -> EqualShares {
        EqualShares::of_parts(self.records_of(step), self.lanes)
    }
}

/// A window, and the first step that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRead {
    /// Number of the step in its epoch, from 0.
    pub step: u64,
    /// What to read.
    pub window: LaneWindow,
}

/// The windows that a rank reads in some steps; made by [`EpochOrder::window_reads`].
#[derive(Debug)]
pub struct WindowReads<'a> {
    order: &'a EpochOrder,
    layout: &'a StepLayout,
    steps: Range<u64>,
    rank: DataRank,
    /// For each lane of the order, the end of what was returned, in turns of the lane.
    read: Vec<u64>,
    ready: VecDeque<WindowRead>,
}

impl<'a> WindowReads<'a> {
    pub(super) fn new(order: &'a EpochOrder, layout: &'a StepLayout, steps: Range<u64>, rank: DataRank) -> Self {
        let read = (0..layout.lanes).map(|_| 0).collect();
        let steps = steps.start..steps.end.min(layout.steps());
        Self { order, layout, steps, rank, read, ready: VecDeque::new() }
    }

    /// Adds the windows that a step needs and no step before it needed.
    fn extend_by(&mut self, step: u64) {
        let Ok(lanes) = self.layout.lanes_of(step, self.rank) else { return };
        for LaneTurns { lane, turns } in lanes {
            let Some(read) = usize::try_from(lane).ok().and_then(|lane| self.read.get_mut(lane)) else { continue };
            for window in self.order.windows(lane, turns.start.max(*read)..turns.end) {
                *read = window.turns.end;
                self.ready.push_back(WindowRead { step, window });
            }
        }
    }
}

impl Iterator for WindowReads<'_> {
    type Item = WindowRead;

    fn next(&mut self) -> Option<WindowRead> {
        while self.ready.is_empty() {
            let step = self.steps.next()?;
            self.extend_by(step);
        }
        self.ready.pop_front()
    }
}
