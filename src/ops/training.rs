//! Training runs of a dataset: what they read, which of their steps had a record, and where a replay without it begins.
//!
//! ```text
//! id --lookup in the version of the run--> row of a shard --> position --order--> turn of each epoch --> steps
//! ```
//!
//! The events of a run are added by [`run_events`](super::run_events); the version that it reads has the tag `run/NAME`
//! until the run is released.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Context;
use crate::{
    codec::hex::to_hex,
    dataset::{
        Dataset, EpochTurn, PlaceState, Positions, RunCheckpoint, RunOrder, RunStart, Sighting, Snapshot, TrainedTurns,
        TrainingEvent, TrainingRun, find_each, has_runs, places_of, records_at, runs_of,
    },
    error::{Error, Kind, Result},
    id::Version,
    storage::Location,
};

/// A training run in a report.
#[derive(Debug, Clone, Serialize)]
pub struct TrainingRunReport {
    /// Its name.
    pub run: String,
    /// The run, 32 hexadecimal digits.
    pub run_id: String,
    /// The version that it reads.
    pub version: Version,
    /// The split that it reads; absent if it reads all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Records of an epoch, those that it drops included.
    pub records: u64,
    /// Records of a step over all ranks.
    pub global_batch_size: u64,
    /// Steps that it has completed, by its newest event.
    pub steps: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// The order.
    pub order: RunOrder,
    /// Whether records that do not fill a step are left out.
    pub drop_last: bool,
    /// Epochs that it has begun.
    pub epochs: u64,
    /// Times that it was started.
    pub attempts: u64,
    /// Checkpoints, oldest first.
    pub checkpoints: Vec<RunCheckpoint>,
    /// `open`, `ended` or `released`: the version of a released run may be vacuumed.
    pub state: &'static str,
    /// `train` or `validate`.
    pub role: String,
    /// The run that it repeats without some records; absent if it repeats none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<String>,
    /// How many records it leaves out.
    pub without: u64,
    /// When it began.
    pub began: String,
    /// When its newest event was.
    pub newest: String,
}

/// What a run did with some records.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeenSummary {
    /// Name of the run.
    pub run: String,
    /// The version that it reads.
    pub version: Version,
    /// How many of the records the version has.
    pub records: u64,
    /// Those that the run saw, or may have seen.
    pub records_seen: u64,
    /// Epochs with a step that had one of them.
    pub epochs: u64,
    /// Steps that had one of them.
    pub steps: u64,
    /// The first and the last of these steps.
    pub first_step: Option<u64>,
    /// See `first_step`.
    pub last_step: Option<u64>,
    /// Whether the first of these steps is known to have been done; otherwise the newest event is from before it.
    pub is_certain: bool,
    /// The newest checkpoint that saw none of them; absent if there is none.
    pub clean_checkpoint: Option<RunCheckpoint>,
    /// Steps that the run has done since then, or since its beginning.
    pub steps_to_repeat: u64,
    /// `open`, `ended` or `released`.
    pub state: String,
}

/// What a run did with the records of some ids, step by step.
#[derive(Debug, Clone, Serialize)]
pub struct SeenReport {
    /// The sums.
    #[serde(flatten)]
    pub summary: SeenSummary,
    /// Numbers of the records, ascending.
    pub numbers: Vec<u64>,
    /// Every step that had one of them, each with its epoch and record number.
    pub seen: Vec<SeenStep>,
    /// Epochs in which a record was dropped, as it was among those that fill no step.
    pub dropped: Vec<DroppedRecord>,
}

/// A step that had a record.
#[derive(Debug, Clone, Serialize)]
pub struct SeenStep {
    /// Number of the step, from 0, counted over epochs.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// Slot of the record in the step, over all ranks.
    pub slot: u64,
    /// Record number.
    pub record: u64,
    /// Whether the step is known to have been done.
    pub is_certain: bool,
}

/// A record that an epoch left out.
#[derive(Debug, Clone, Serialize)]
pub struct DroppedRecord {
    /// Record number.
    pub record: u64,
    /// The epoch.
    pub epoch: u64,
}

/// A record of a step in a report.
#[derive(Debug, Clone, Serialize)]
pub struct StepRecord {
    /// Number of the step, from 0, counted over epochs.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// Slot in the step, over all ranks.
    pub slot: u64,
    /// Position in the version.
    pub position: u64,
    /// `seen`; `unsure` if the newest event of the run is from before it; `erased` if the record was erased; `omitted`
    /// if the run left it out.
    pub state: &'static str,
    /// Record number; absent if it was not seen.
    pub record: Option<u64>,
    /// Record id.
    pub record_id: Option<String>,
    /// Subject id.
    pub subject_id: Option<String>,
    /// Path of the shard.
    pub shard: Option<String>,
    /// Row in the shard, from 0.
    pub ordinal: Option<u64>,
    /// Name of its source.
    pub source: Option<String>,
    /// Row in its source, from 1.
    pub row: Option<u64>,
}

/// Returns the runs of a dataset in the order of their names.
///
/// # Errors
/// When an event is damaged or missing.
pub fn list_runs(context: &Context<'_>, location: &Location) -> Result<Vec<TrainingRunReport>> {
    let newest = context.open_dataset(location)?.open_newest()?;
    runs_of(newest.dataset())?.iter().map(|run| describe(&newest, run)).collect()
}

/// Returns one run.
///
/// # Errors
/// As [`list_runs`]; if there is no such run.
pub fn show_run(context: &Context<'_>, location: &Location, name: &str) -> Result<TrainingRunReport> {
    let newest = context.open_dataset(location)?.open_newest()?;
    describe(&newest, &TrainingRun::open(newest.dataset(), name)?)
}

pub(super) fn describe(newest: &Snapshot, run: &TrainingRun) -> Result<TrainingRunReport> {
    let start = &run.start;
    let turns = TrainedTurns::of_run(run)?;
    let at = |event: Option<&TrainingEvent>| event.map_or_else(String::new, |event| format!("{:.0}", event.at));
    let attempts: BTreeSet<&str> = run.events.iter().map(|event| event.attempt.as_str()).collect();
    Ok(TrainingRunReport {
        run: start.name.clone(),
        run_id: start.id.clone(),
        version: start.version,
        split: start.split.clone(),
        records: start.records,
        global_batch_size: run.batch,
        steps: run.steps(),
        steps_per_epoch: start.layout(run.batch)?.steps(),
        order: start.order,
        drop_last: start.drop_last,
        epochs: turns.certain_epochs(),
        attempts: attempts.len() as u64,
        checkpoints: run.checkpoints().cloned().collect(),
        state: state_of(newest, run),
        role: start.role.clone(),
        replay_of: start.replay_of.as_ref().map(|of| of.run.clone()),
        without: start.without.len() as u64,
        began: at(run.events.first()),
        newest: at(run.events.last()),
    })
}

fn state_of(newest: &Snapshot, run: &TrainingRun) -> &'static str {
    match (newest.tags().get(&run.tag()), run.ended()) {
        (None, _) => "released",
        (Some(_), Some(_)) => "ended",
        (Some(_), None) => "open",
    }
}

/// Returns an error unless a run reads this version, as it says.
pub(super) fn check_start(snapshot: &Snapshot, start: &RunStart) -> Result<Positions> {
    let other = |what: &str, expected: &str, found: &str| {
        Err(Error::usage(format!(
            "the training run `{}` reads other data: expected {what} {expected} of {}, found {found}",
            start.name, start.version
        ))
        .at_location(snapshot.dataset().store().location().to_string())
        .with_hint("a run belongs to the dataset that it reads, or a copy of it"))
    };
    let positions = Positions::of_snapshot(snapshot, start.split.as_deref())?;
    let basis = to_hex(&positions.basis());
    if basis != start.basis {
        return other("the basis", &basis, &start.basis);
    }
    if positions.records() != start.records {
        return other("the records", &positions.records().to_string(), &start.records.to_string());
    }
    Ok(positions)
}

/// Checks that the events of a run are whole, and that it reads what the dataset has, if its version was not released.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) naming what is damaged or does not agree.
pub fn check_run(dataset: &Dataset, name: &str) -> Result<()> {
    let run = TrainingRun::open(dataset, name)?;
    let newest = dataset.open_newest()?;
    if newest.tags().contains_key(&run.tag()) { OpenedRun::new(&newest, run).map(drop) } else { Ok(()) }
}

/// A run with the positions of its version.
struct OpenedRun {
    run: TrainingRun,
    snapshot: Snapshot,
    positions: Positions,
}

impl OpenedRun {
    fn new(newest: &Snapshot, run: TrainingRun) -> Result<Self> {
        // A copy has numbers of versions of its own; its tags are those of the dataset that it was pulled from.
        let version = newest.tags().get(&run.tag()).copied().unwrap_or(run.start.version);
        let snapshot = newest.dataset().open_version(version)?;
        let positions = check_start(&snapshot, &run.start).map_err(|e| match e.kind() {
            // A fault of the store says nothing about the run.
            Kind::Usage => {
                Error::integrity(format!("the training run `{}` does not belong to this dataset", run.start.name))
                    .with_cause(e)
            }
            _ => e,
        })?;
        Ok(Self { run, snapshot, positions })
    }

    /// Returns the positions of the records with some ids, each with its record number.
    fn positions_of_ids(&self, ids: &[String]) -> Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        find_each(&self.snapshot, ids, &mut |_, hit| {
            for place in hit.places.iter().filter(|place| place.state == PlaceState::Live) {
                if let Some(position) = self.positions.position_of(&place.shard, place.ordinal) {
                    found.insert(position, hit.record);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the positions of records, given their numbers in ascending order.
    fn positions_of_numbers(&self, records: &[u64]) -> Result<BTreeMap<u64, u64>> {
        let version = self.snapshot.version();
        let mut found = BTreeMap::new();
        for (record, places) in places_of(&self.snapshot, records)? {
            for (run, row) in places.into_iter().filter(|(run, _)| run.is_in_version(version)) {
                if let Some(position) = self.positions.position_of(&run.shard, row) {
                    found.insert(position, record);
                }
            }
        }
        Ok(found)
    }

    /// Says what the run did with the records at some positions, which are given with their record numbers.
    fn report_seen(&self, newest: &Snapshot, positions: &BTreeMap<u64, u64>) -> Result<SeenReport> {
        let turns = TrainedTurns::of_run(&self.run)?;
        let (mut seen, mut dropped, mut records_seen) = (Vec::new(), Vec::new(), 0);
        for (position, record) in positions.iter().filter(|(_, record)| !self.run.start.omits(**record)) {
            let trained = turns.of_position(*position);
            records_seen += u64::from(!trained.sightings.is_empty());
            dropped.extend(trained.dropped.into_iter().map(|epoch| DroppedRecord { record: *record, epoch }));
            seen.extend(trained.sightings.into_iter().map(|sighting| (sighting, *record)));
        }
        seen.sort_unstable();
        dropped.sort_unstable_by_key(|dropped| (dropped.epoch, dropped.record));
        let first = seen.first().map(|(first, _)| *first);
        let clean = first.and_then(|first| self.newest_checkpoint_before(&first));
        let repeated =
            first.map_or(0, |_| self.run.steps() - clean.map_or(0, |clean| clean.step.min(self.run.steps())));
        let of = |of: fn(&Sighting) -> u64| seen.iter().map(|(one, _)| of(one)).collect::<BTreeSet<u64>>();
        let steps = of(|one| one.step);
        let summary = SeenSummary {
            run: self.run.start.name.clone(),
            version: self.snapshot.version(),
            records: positions.len() as u64,
            records_seen,
            epochs: of(|one| one.epoch).len() as u64,
            steps: steps.len() as u64,
            first_step: first.map(|first| first.step),
            last_step: seen.last().map(|(last, _)| last.step),
            is_certain: first.is_some_and(|first| first.is_certain),
            clean_checkpoint: clean.cloned(),
            steps_to_repeat: repeated,
            state: state_of(newest, &self.run).to_owned(),
        };
        let mut numbers: Vec<u64> = positions.values().copied().collect();
        numbers.sort_unstable();
        Ok(SeenReport {
            summary,
            numbers,
            seen: seen.into_iter().map(|(sighting, record)| SeenStep::new(&sighting, record)).collect(),
            dropped,
        })
    }

    /// Returns the checkpoint with most completed steps that none of them had the record.
    fn newest_checkpoint_before(&self, first: &Sighting) -> Option<&RunCheckpoint> {
        let seen = EpochTurn { epoch: first.epoch, turn: first.first_turn };
        self.run.checkpoints().filter(|checkpoint| checkpoint.at <= seen).max_by_key(|checkpoint| checkpoint.at)
    }
}

impl SeenStep {
    fn new(sighting: &Sighting, record: u64) -> Self {
        let Sighting { step, epoch, slot, is_certain, .. } = *sighting;
        Self { step, epoch, slot, record, is_certain }
    }
}

/// Says for each run of a dataset, or for one, what it did with the records of some ids.
///
/// # Errors
/// When a run, or the version that it reads, cannot be read.
pub fn find_in_runs(
    context: &Context<'_>,
    location: &Location,
    name: Option<&str>,
    ids: &[String],
) -> Result<Vec<SeenReport>> {
    let newest = context.open_dataset(location)?.open_newest()?;
    let dataset = newest.dataset();
    let runs = match name {
        Some(name) => vec![TrainingRun::open(dataset, name)?],
        None => runs_of(dataset)?,
    };
    let report = |run: TrainingRun| {
        let opened = OpenedRun::new(&newest, run)?;
        opened.report_seen(&newest, &opened.positions_of_ids(ids)?)
    };
    runs.into_iter().map(report).collect()
}

/// Says for each run that is not released what it did with some records, given their numbers in ascending order.
///
/// # Errors
/// When a run, or the version that it reads, cannot be read.
pub(super) fn runs_that_saw(newest: &Snapshot, records: &[u64]) -> Result<Vec<SeenSummary>> {
    let mut found = Vec::new();
    if !has_runs(newest) {
        return Ok(found);
    }
    for run in runs_of(newest.dataset())?.into_iter().filter(|run| newest.tags().contains_key(&run.tag())) {
        let opened = OpenedRun::new(newest, run)?;
        let summary = opened.report_seen(newest, &opened.positions_of_numbers(records)?)?.summary;
        found.extend((summary.records > 0).then_some(summary));
    }
    Ok(found)
}

/// Passes the records of some steps of a run to `visit`, step by step, in the order of their slots. Returns the number
/// of steps.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the run has no such steps; when its version cannot be read.
pub fn each_step_record(
    context: &Context<'_>,
    location: &Location,
    name: &str,
    steps: std::ops::RangeInclusive<u64>,
    visit: &mut dyn FnMut(StepRecord) -> Result<()>,
) -> Result<u64> {
    let newest = context.open_dataset(location)?.open_newest()?;
    let opened = OpenedRun::new(&newest, TrainingRun::open(newest.dataset(), name)?)?;
    let turns = TrainedTurns::of_run(&opened.run)?;
    let mut count = 0;
    for step in steps {
        context.cancel.check()?;
        let Some(found) = turns.positions_of_step(step)? else {
            let done = opened.run.steps();
            return match count {
                0 => Err(Error::usage(format!("expected a step of the training run `{name}`, found {step}"))
                    .with_hint(format!("it has reported {done} steps, which are numbered from 0"))),
                count => Ok(count),
            };
        };
        count += 1;
        let records = records_at(&opened.snapshot, &opened.positions, &found.positions)?;
        let by_position: BTreeMap<u64, _> = records.into_iter().map(|record| (record.position, record)).collect();
        for (slot, position) in (0..).zip(&found.positions) {
            let record = by_position.get(position);
            let is_omitted = record.is_some_and(|record| opened.run.start.omits(record.number));
            let record = record.filter(|_| !is_omitted);
            let shown = |id: &String| opened.snapshot.shown_id(id.clone());
            visit(StepRecord {
                step,
                epoch: found.epoch,
                slot,
                position: *position,
                state: match record {
                    None if is_omitted => "omitted",
                    None => "erased",
                    Some(_) if found.is_certain => "seen",
                    Some(_) => "unsure",
                },
                record: record.map(|record| record.number),
                record_id: record.map(|record| shown(&record.record_id)).transpose()?,
                subject_id: record.and_then(|record| record.subject_id.as_ref()).map(shown).transpose()?,
                shard: record.map(|record| record.shard.clone()),
                ordinal: record.map(|record| record.row),
                source: record.map(|record| record.source.clone()),
                row: record.and_then(|record| record.source_row),
            })?;
        }
    }
    Ok(count)
}
