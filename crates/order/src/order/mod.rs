//! Order 1 of docs/FORMAT.md: from turns to positions and back, windows and what they read.

mod error;
mod permutation;
mod share;
mod steps;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
mod window;

use std::ops::Range;

use sha2::{Digest as _, Sha256};

pub use self::{
    error::OrderError,
    steps::{DataRank, LaneTurns, Remainder, StepLayout, StepSlot, WindowRead, WindowReads},
    window::{LaneWindow, OrderBlock},
};

use self::{permutation::Permutation, share::EqualShares, window::window_of};

/// What an order depends on, and nothing else: neither the batch nor the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderParameters {
    /// Number of records: positions and turns are the numbers below; from 1 to 2^48 - 1.
    pub records: u64,
    /// Records of a block, which are read together; from 1 to 2^48 - 1.
    pub block: u64,
    /// Number of lanes, which take turns; from 1 to 65,536, and at most one for each record.
    pub lanes: u64,
    /// Records of a window, which are shuffled together in a lane; from 1 to 2^40 - 1.
    pub window: u64,
    /// The seed: another one is another order.
    pub seed: u64,
    /// Number of the epoch: another one is another order.
    pub epoch: u64,
    /// Hash of the data.
    pub basis: [u8; 32],
}

impl OrderParameters {
    fn check_all(&self) -> Result<(), OrderError> {
        let limits = [
            ("records", self.records, (1 << 48) - 1),
            ("block", self.block, (1 << 48) - 1),
            ("lanes", self.lanes, 1 << 16),
            ("window", self.window, (1 << 40) - 1),
        ];
        for (name, value, most) in limits {
            check_limits(name, value, 1, most)?;
        }
        if self.lanes > self.records {
            return Err(OrderError::LanesExceedRecords { lanes: self.lanes, records: self.records });
        }
        Ok(())
    }

    /// Returns the text whose hash, with a purpose after it, is the key of that purpose.
    fn hashed_text(&self) -> String {
        let basis: String = self.basis.iter().map(|byte| format!("{byte:02x}")).collect();
        let Self { records, block, lanes, window, seed, epoch, .. } = self;
        format!(
            "shardify order 1\nbasis {basis}\nrecords {records}\nblock {block}\nlanes {lanes}\nwindow {window}\n\
             seed {seed}\nepoch {epoch}\n"
        )
    }
}

fn check_limits(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), OrderError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(OrderError::OutOfLimits { name, value, least, most }) }
}

/// The order of one epoch: a permutation of the positions of records, computed number by number in both directions.
#[derive(Clone, Debug)]
pub struct EpochOrder {
    parameters: OrderParameters,
    /// The hash of the parameters' text, before a purpose.
    keys: Sha256,
    lanes: EqualShares,
    blocks: Permutation,
    /// How many records the last block lacks.
    missing: u64,
    /// The place after the last block, wherever it is among the permuted blocks.
    after_short: u64,
}

impl EpochOrder {
    /// Makes the order of an epoch.
    ///
    /// # Errors
    /// Returns an error that names the parameter that is outside of its limits.
    pub fn new(parameters: OrderParameters) -> Result<Self, OrderError> {
        parameters.check_all()?;
        let OrderParameters { records, block, lanes, .. } = parameters;
        let keys = Sha256::new_with_prefix(parameters.hashed_text());
        let count = records.div_ceil(block);
        let blocks = Permutation::new(key_of(&keys, "blocks"), count);
        let missing = count * block - records;
        let after_short = (blocks.preimage_of(count - 1) + 1) * block - missing;
        Ok(Self { lanes: EqualShares::of_parts(records, lanes), parameters, keys, blocks, missing, after_short })
    }

    /// Returns the parameters.
    pub fn parameters(&self) -> &OrderParameters {
        &self.parameters
    }

    /// Returns the position of the record whose turn it is; `None` from the number of records on.
    pub fn position_at(&self, turn: u64) -> Option<u64> {
        if turn >= self.parameters.records {
            return None;
        }
        let window = self.window_with(turn % self.parameters.lanes, turn / self.parameters.lanes);
        let at = turn / self.parameters.lanes - window.turns.start;
        let (block, offset) = self.block_at(window.places.start + self.permutation_of(&window).image_of(at));
        Some(self.blocks.image_of(block) * self.parameters.block + offset)
    }

    /// Returns the turn of the record at a position; `None` from the number of records on.
    pub fn turn_of(&self, position: u64) -> Option<u64> {
        let OrderParameters { records, block, lanes, .. } = self.parameters;
        if position >= records {
            return None;
        }
        let padded = self.blocks.preimage_of(position / block) * block + position % block;
        let place = if padded < self.after_short { padded } else { padded - self.missing };
        let lane = self.lanes.part_of(place);
        // A window reads the places that have the numbers of its turns.
        let window = self.window_with(lane, place - self.lanes.start_of(lane));
        let at = self.permutation_of(&window).preimage_of(place - window.places.start);
        Some((window.turns.start + at) * lanes + lane)
    }

    /// Returns the number of turns of a lane.
    pub fn lane_records(&self, lane: u64) -> u64 {
        if lane < self.parameters.lanes { self.lanes.len_of(lane) } else { 0 }
    }

    /// Returns the window of a lane that contains a turn, counted in the lane; `None` if the lane has no such turn.
    pub fn window_at(&self, lane: u64, lane_turn: u64) -> Option<LaneWindow> {
        (lane_turn < self.lane_records(lane)).then(|| self.window_with(lane, lane_turn))
    }

    /// Returns the windows of a lane that have some of its turns, in order.
    pub fn windows(&self, lane: u64, lane_turns: Range<u64>) -> impl Iterator<Item = LaneWindow> {
        let window_from = move |turn: u64| if turn < lane_turns.end { self.window_at(lane, turn) } else { None };
        std::iter::successors(window_from(lane_turns.start), move |window| window_from(window.turns.end))
    }

    /// Returns the blocks that a window reads, in the order of its places.
    pub fn window_blocks(&self, window: &LaneWindow) -> impl Iterator<Item = OrderBlock> {
        let end = window.places.end;
        let mut place = window.places.start;
        std::iter::from_fn(move || {
            if place >= end {
                return None;
            }
            let (at, offset) = self.block_at(place);
            let number = self.blocks.image_of(at);
            let first = number * self.parameters.block;
            let block_end = (first + self.parameters.block).min(self.parameters.records);
            let records = (block_end - first - offset).min(end - place);
            place += records;
            Some(OrderBlock { number, positions: first + offset..first + offset + records })
        })
    }

    /// Returns for each turn of a window which of its records it takes, among the positions of
    /// [`window_blocks`](Self::window_blocks) laid end to end.
    pub fn window_permutation(&self, window: &LaneWindow) -> impl ExactSizeIterator<Item = u64> + use<> {
        self.permutation_of(window).all_images()
    }

    /// Returns the positions of a window in the order of its turns.
    pub fn window_positions(&self, window: &LaneWindow) -> impl ExactSizeIterator<Item = u64> {
        let (first_block, _) = self.block_at(window.places.start);
        let starts: Vec<u64> = self.window_blocks(window).map(|found| found.number * self.parameters.block).collect();
        let first_place = window.places.start;
        self.window_permutation(window).map(move |at| {
            let (block, offset) = self.block_at(first_place + at);
            let start = usize::try_from(block - first_block).ok().and_then(|block| starts.get(block));
            start.copied().unwrap_or_default() + offset
        })
    }

    /// Returns the windows that a rank reads in some steps, each once, in the order of the steps that need them.
    pub fn window_reads<'a>(&'a self, layout: &'a StepLayout, steps: Range<u64>, rank: DataRank) -> WindowReads<'a> {
        WindowReads::new(self, layout, steps, rank)
    }

    fn window_with(&self, lane: u64, lane_turn: u64) -> LaneWindow {
        let (number, turns) = window_of(lane, self.lanes.len_of(lane), self.parameters.window, lane_turn);
        let start = self.lanes.start_of(lane);
        LaneWindow { lane, number, places: start + turns.start..start + turns.end, turns }
    }

    fn permutation_of(&self, window: &LaneWindow) -> Permutation {
        let purpose = format!("lane {} window {}", window.lane, window.number);
        Permutation::new(key_of(&self.keys, &purpose), window.records())
    }

    /// Returns which of the permuted blocks has a place, and where in the block.
    fn block_at(&self, place: u64) -> (u64, u64) {
        let padded = if place < self.after_short { place } else { place + self.missing };
        (padded / self.parameters.block, padded % self.parameters.block)
    }
}

fn key_of(keys: &Sha256, purpose: &str) -> [u8; 32] {
    keys.clone().chain_update(purpose).chain_update("\n").finalize().into()
}
