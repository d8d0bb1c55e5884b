//! Which steps of a run had a record, and which record a step had.
//!
//! ```text
//! position -- order of epoch e --> turn -- batch --> step, slot      for each epoch that the run was in
//! attempts   |--- batch 256 ----|                                    a later attempt replaces what an earlier one
//!                         |-------- batch 512 --------|              did behind the point where it went on
//! ```

use std::{collections::BTreeSet, ops::Range};

use super::{
    event::{EpochTurn, RunEvent, RunStart},
    store::TrainingRun,
};
use crate::{
    error::{Error, Result},
    order::{EpochOrder, OrderError, StepLayout, StepSlot},
};

/// Turns that one attempt delivered, as far as is known.
#[derive(Debug, Clone)]
struct Span {
    layout: StepLayout,
    batch: u64,
    turns: Range<EpochTurn>,
}

/// A step that had a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sighting {
    /// Its epoch, from 0.
    pub epoch: u64,
    /// Number of the step, from 0, counted over epochs.
    pub step: u64,
    /// Number of the slot in the step, over all ranks.
    pub slot: u64,
    /// The first turn of the step in the epoch.
    pub first_turn: u64,
    /// Whether the run is known to have come so far; otherwise it may have, as it reports now and then.
    pub is_certain: bool,
}

/// What a run did with a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trained {
    /// The steps that had it, in order.
    pub sightings: Vec<Sighting>,
    /// Epochs in which it was dropped, as it was among those that fill no step.
    pub dropped: Vec<u64>,
}

/// The turns that a run has delivered.
#[derive(Debug)]
pub struct TrainedTurns<'a> {
    start: &'a RunStart,
    spans: Vec<Span>,
    /// Turns that the newest attempt may have delivered without saying so.
    unsure: Option<Span>,
    epochs: Vec<(u64, EpochOrder)>,
}

impl Span {
    /// Returns where a trainer is some steps behind its end.
    fn end_after(&self, steps: u64) -> EpochTurn {
        let (from, of_epoch) = (self.turns.end, self.layout.steps());
        if of_epoch == 0 {
            return from;
        }
        let steps = from.turn.div_ceil(self.batch).saturating_add(steps);
        let epoch = from.epoch.saturating_add(steps / of_epoch);
        EpochTurn { epoch, turn: steps % of_epoch * self.batch }
    }

    /// Returns where a turn of an epoch was delivered; `None` if it fills no step.
    fn sighting_of(&self, at: EpochTurn, is_certain: bool) -> Option<Sighting> {
        let StepSlot { step, slot } = self.layout.slot_of(at.turn)?;
        let step = at.epoch * self.layout.steps() + step;
        let first_turn = at.turn - at.turn % self.batch;
        Some(Sighting { epoch: at.epoch, step, slot, first_turn, is_certain })
    }
}

impl<'a> TrainedTurns<'a> {
    /// Works out what a run has delivered.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if its parameters make no order.
    pub fn of_run(run: &'a TrainingRun) -> Result<Self> {
        let mut spans: Vec<Span> = Vec::new();
        for event in &run.events {
            let reached = event.event.reached();
            let begun =
                |batch: u64| Ok::<_, Error>(Span { layout: run.start.layout(batch)?, batch, turns: reached..reached });
            match &event.event {
                RunEvent::Start(start) => spans.push(begun(start.global_batch_size)?),
                RunEvent::Resume(resume) => {
                    // The weights went back to this point.
                    spans.iter_mut().for_each(|span| span.turns.end = span.turns.end.min(reached));
                    spans.push(begun(resume.global_batch_size)?);
                }
                _ => spans.iter_mut().next_back().into_iter().for_each(|span| span.turns.end = reached),
            }
        }
        spans.retain(|span| span.turns.start <= span.turns.end);
        let mut found = Self { start: &run.start, spans, unsure: None, epochs: Vec::new() };
        if run.ended().is_none()
            && let Some(last) = found.spans.last()
        {
            let turns = last.turns.end..last.end_after(run.start.report_every);
            found.unsure = Some(Span { turns, ..last.clone() });
        }
        let all = || found.spans.iter().chain(&found.unsure).filter(|span| span.turns.start < span.turns.end);
        let first = all().map(|span| span.turns.start.epoch).min().unwrap_or(0);
        let last = all().map(|span| span.turns.end).max();
        // An end at turn 0 of an epoch has none of it.
        let end = last.map_or(first, |last| last.epoch + u64::from(last.turn > 0));
        found.epochs = (first..end).map(|epoch| Ok((epoch, run.start.epoch_order(epoch)?))).collect::<Result<_>>()?;
        Ok(found)
    }

    /// Returns the number of epochs that it is known to have begun.
    pub fn certain_epochs(&self) -> u64 {
        let begun = |span: &Span| span.turns.start.epoch..span.turns.end.epoch + u64::from(span.turns.end.turn > 0);
        self.spans.iter().flat_map(begun).collect::<BTreeSet<u64>>().len() as u64
    }

    /// Returns the steps that had the record at a position.
    pub fn of_position(&self, position: u64) -> Trained {
        let mut trained = Trained::default();
        for (epoch, order) in &self.epochs {
            let turn = if self.start.order.shuffle { order.turn_of(position) } else { Some(position) };
            let Some(turn) = turn.filter(|turn| *turn < self.start.records) else { continue };
            let at = EpochTurn { epoch: *epoch, turn };
            let certain = self.spans.iter().rev().find(|span| span.turns.contains(&at));
            let unsure = self.unsure.as_ref().filter(|span| span.turns.contains(&at));
            let Some(span) = certain.or(unsure) else { continue };
            match span.sighting_of(at, certain.is_some()) {
                Some(sighting) => trained.sightings.push(sighting),
                None => trained.dropped.push(*epoch),
            }
        }
        trained
    }

    /// Returns the position of each slot of a step; `None` if the run is not known to have delivered it, nor may have.
    ///
    /// # Errors
    /// As [`of_run`](Self::of_run).
    pub fn positions_of_step(&self, step: u64) -> Result<Option<StepPositions>> {
        let certain = self.spans.iter().rev().map(|span| (span, true));
        for (span, is_certain) in certain.chain(self.unsure.iter().map(|span| (span, false))) {
            let steps = span.layout.steps();
            if steps == 0 {
                continue;
            }
            let (epoch, in_epoch) = (step / steps, step % steps);
            if span.turns.contains(&EpochTurn { epoch, turn: in_epoch * span.batch }) {
                let positions = self.of_step(&span.layout, epoch, in_epoch)?;
                return Ok(Some(StepPositions { epoch, step, positions, is_certain }));
            }
        }
        Ok(None)
    }

    fn of_step(&self, layout: &StepLayout, epoch: u64, step: u64) -> Result<Vec<u64>> {
        let order = self.start.epoch_order(epoch)?;
        let internal = |e: OrderError| Error::internal(e.to_string());
        let rank = layout.rank(0, 1).map_err(internal)?;
        let turns = layout.turns_of(step, rank).map_err(internal)?;
        let shuffle = self.start.order.shuffle;
        Ok(turns.filter_map(|turn| if shuffle { order.position_at(turn) } else { Some(turn) }).collect())
    }
}

/// The records of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPositions {
    /// Its epoch.
    pub epoch: u64,
    /// Its number, counted over epochs.
    pub step: u64,
    /// Position of the record of each slot.
    pub positions: Vec<u64>,
    /// Whether the run is known to have delivered it.
    pub is_certain: bool,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        dataset::training::event::{RunEnd, RunOrder, RunProgress, RunResume, TrainingEvent},
        id::Version,
    };

    fn start(records: u64, batch: u64, shuffle: bool, drop_last: bool) -> RunStart {
        let order = RunOrder { format: 1, seed: 7, shuffle, block: 5, lanes: if shuffle { 4 } else { 1 }, window: 9 };
        RunStart {
            name: "run".to_owned(),
            id: "0".repeat(32),
            version: Version(1),
            root: None,
            basis: "5a".repeat(32),
            split: None,
            records,
            order,
            global_batch_size: batch,
            drop_last,
            from: EpochTurn { epoch: 0, turn: 0 },
            report_every: 2,
            role: "train".to_owned(),
            replay_of: None,
            without: Vec::new(),
        }
    }

    fn run_of(start: RunStart, events: Vec<RunEvent>) -> TrainingRun {
        let event = |event| TrainingEvent {
            format: 1,
            attempt: "0".repeat(32),
            at: jiff::Timestamp::UNIX_EPOCH,
            tool: "test".to_owned(),
            event,
        };
        let first = event(RunEvent::Start(Box::new(start.clone())));
        TrainingRun {
            batch: start.global_batch_size,
            start,
            events: std::iter::once(first).chain(events.into_iter().map(event)).collect(),
        }
    }

    /// A trainer that writes down what it read: for each step, its epoch and positions. Each attempt is a batch and the
    /// number of steps that it does; later ones go on some steps before the end of the one before.
    fn trained(start: &RunStart, attempts: &[(u64, u64, u64)]) -> (TrainingRun, BTreeMap<EpochTurn, (u64, Vec<u64>)>) {
        let (mut seen, mut events) = (BTreeMap::<EpochTurn, (u64, Vec<u64>)>::new(), Vec::new());
        let mut at = start.from;
        for (number, (batch, steps, back)) in attempts.iter().enumerate() {
            let layout = start.layout(*batch).unwrap();
            if number > 0 {
                // The state after a step that was done, which ends one of this batch, too.
                let cuts = |done: &EpochTurn, read: &[u64], turn: u64| {
                    done.epoch == at.epoch && done.turn < turn && turn < done.turn + read.len() as u64
                };
                let is_end = |turn: u64| !seen.iter().any(|(done, (_, read))| cuts(done, read, turn));
                let ends = |turn: &u64| turn.is_multiple_of(*batch) && is_end(*turn);
                let turn = (0..=at.turn.saturating_sub(back * batch)).rev().find(ends).unwrap();
                // The rest of the epoch may fill no step of this batch.
                at = match turn / batch >= layout.steps() {
                    true => EpochTurn { epoch: at.epoch + 1, turn: 0 },
                    false => EpochTurn { turn, ..at },
                };
                seen.retain(|done, _| *done < at);
                let step = at.epoch * layout.steps() + at.turn / batch;
                events.push(RunEvent::Resume(RunResume { step, from: at, global_batch_size: *batch }));
            }
            for _ in 0..*steps {
                let order = start.epoch_order(at.epoch).unwrap();
                let step = at.turn / batch;
                let turns = layout.turns_of(step, layout.rank(0, 1).unwrap()).unwrap();
                let position = |turn| if start.order.shuffle { order.position_at(turn).unwrap() } else { turn };
                seen.insert(at, (at.epoch * layout.steps() + step, turns.map(position).collect()));
                at.turn += batch;
                if at.turn / batch >= layout.steps() {
                    at = EpochTurn { epoch: at.epoch + 1, turn: 0 };
                }
            }
            let step = at.epoch * layout.steps() + at.turn / batch;
            events.push(RunEvent::Progress(RunProgress { step, at }));
        }
        let step = 0;
        events.push(RunEvent::End(RunEnd { step, at, reason: None }));
        (run_of(start.clone(), events), seen)
    }

    proptest! {
        /// Both directions say what a trainer wrote down, wherever it was stopped and in whatever batches it went on.
        #[test]
        fn a_run_is_what_its_trainer_read(
            records in 24_u64..90,
            shuffle in any::<bool>(),
            drop_last in any::<bool>(),
            attempts in prop::collection::vec((prop::sample::select(vec![4_u64, 8, 12]), 0_u64..20, 0_u64..4), 1..4),
        ) {
            let start = start(records, attempts[0].0, shuffle, drop_last);
            let (run, seen) = trained(&start, &attempts);
            let turns = TrainedTurns::of_run(&run).unwrap();
            for position in 0..records {
                let had = seen.iter().filter(|(_, (_, read))| read.contains(&position));
                let expected: Vec<(u64, u64)> = had.map(|(at, (step, _))| (at.epoch, *step)).collect();
                let mut found = turns.of_position(position).sightings;
                prop_assert!(found.iter().all(|sighting| sighting.is_certain));
                found.sort_unstable();
                let found: Vec<(u64, u64)> = found.iter().map(|sighting| (sighting.epoch, sighting.step)).collect();
                let mut sorted = expected.clone();
                sorted.sort_unstable();
                prop_assert_eq!(found, sorted, "position {}", position);
            }
            if attempts.iter().all(|(batch, _, _)| *batch == attempts[0].0) {
                for (step, read) in seen.values() {
                    let found = turns.positions_of_step(*step).unwrap().unwrap();
                    prop_assert!(found.positions == *read && found.is_certain);
                }
            }
        }
    }

    #[test]
    fn an_open_run_may_have_come_further() {
        let run = run_of(start(40, 8, true, true), Vec::new());
        let turns = TrainedTurns::of_run(&run).unwrap();
        let sightings: Vec<Sighting> = (0..40).flat_map(|position| turns.of_position(position).sightings).collect();
        assert_eq!((sightings.len(), turns.certain_epochs()), (16, 0));
        assert!(sightings.iter().all(|sighting| !sighting.is_certain && sighting.step < 2));
        assert!(
            turns.positions_of_step(2).unwrap().is_none() && !turns.positions_of_step(1).unwrap().unwrap().is_certain
        );
    }
}
