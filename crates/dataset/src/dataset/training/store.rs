//! Where the events of training runs lie, and how they are read and added.

use std::collections::BTreeMap;

use super::event::{EpochTurn, RunCheckpoint, RunEnd, RunEvent, RunProgress, RunResume, RunStart, TrainingEvent};
use crate::{
    dataset::{
        log::snapshot::{Dataset, Snapshot},
        table::{
            closed::{decode_json, encode_json},
            paths::system_path,
        },
    },
    error::{Error, Result},
    storage::{PutOutcome, RESTORE_HINT, SMALL, for_each_waiting},
};

/// What precedes the name of a run in the tag of its version.
pub const RUN_TAG: &str = "run/";

/// What an event is called in errors.
const EVENT: &str = "an event of a training run";

/// Maximum length of a name.
const MAX_NAME: usize = 100;

/// A training run, as its events tell it.
#[derive(Debug, Clone)]
pub struct TrainingRun {
    /// How it began.
    pub start: RunStart,
    /// Records of a step of its newest attempt, over all ranks.
    pub batch: u64,
    /// All events in order; the first one is the start.
    pub events: Vec<TrainingEvent>,
}

/// Checks that a text can name a run: it is the name of a folder, and a part of a tag.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) that says what a name looks like.
pub fn check_run_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    let good = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(allowed);
    if good && name.len() <= MAX_NAME {
        return Ok(());
    }
    Err(Error::usage(format!("expected the name of a training run, found `{name}`")).with_hint(format!(
        "names begin with a letter or digit and consist of letters, digits and . _ - +, up to {MAX_NAME} of them"
    )))
}

/// Returns the names of all runs of a dataset, in order.
///
/// # Errors
/// When the store fails.
pub fn run_names(dataset: &Dataset) -> Result<Vec<String>> {
    Ok(events_by_run(dataset)?.into_keys().collect())
}

/// Reads all runs of a dataset, in the order of their names.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) naming an event that is damaged or missing.
pub fn runs_of(dataset: &Dataset) -> Result<Vec<TrainingRun>> {
    events_by_run(dataset)?.into_iter().map(|(name, count)| TrainingRun::read(dataset, &name, count)).collect()
}

/// Returns the number of events of each run. Objects with other names are no events.
fn events_by_run(dataset: &Dataset) -> Result<BTreeMap<String, u64>> {
    let folder = system_path("training");
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for object in dataset.store().list_folder(&folder)? {
        let rest = object.path.strip_prefix(&folder).and_then(|rest| rest.strip_prefix('/'));
        let Some((name, number)) = rest.and_then(|rest| rest.split_once('/')) else { continue };
        let number = number.strip_suffix(".json").filter(|number| number.len() == 8);
        let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) else { continue };
        if check_run_name(name).is_ok() {
            let count = found.entry(name.to_owned()).or_default();
            *count = (*count).max(number + 1);
        }
    }
    Ok(found)
}

fn event_path(name: &str, number: u64) -> String {
    system_path(&format!("training/{name}/{number:08}.json"))
}

impl TrainingRun {
    /// Reads a run.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if there is no such run, with the names of those that there are;
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) naming an event that is damaged or missing.
    pub fn open(dataset: &Dataset, name: &str) -> Result<Self> {
        let known = events_by_run(dataset)?;
        match known.get(name) {
            Some(count) => Self::read(dataset, name, *count),
            None => {
                let names: Vec<&str> = known.keys().map(String::as_str).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(Error::usage(format!("there is no training run `{name}`"))
                    .at_location(dataset.store().location().to_string())
                    .with_hint(format!("training runs: {names}")))
            }
        }
    }

    fn read(dataset: &Dataset, name: &str, count: u64) -> Result<Self> {
        let place = |number: u64| dataset.store().location().join(&event_path(name, number)).to_string();
        let wrong = |number: u64, why: &str| {
            Error::integrity(format!("the training run `{name}` is damaged: {why}"))
                .at_location(place(number))
                .with_hint(RESTORE_HINT)
        };
        let read_event = |number: &u64| {
            let path = event_path(name, *number);
            let Some(bytes) = dataset.store().get(&path)? else {
                return Err(wrong(*number, "expected an event, found none, though there are later ones"));
            };
            let event: TrainingEvent = decode_json(dataset.store().as_ref(), &path, &bytes, EVENT)?;
            event.check().map_err(|e| wrong(*number, &e.to_string()))?;
            Ok(event)
        };
        let numbers: Vec<u64> = (0..count).collect();
        let events = for_each_waiting(dataset.store().as_ref(), SMALL, &numbers, read_event)?;
        let start = match events.first().map(|first| &first.event) {
            Some(RunEvent::Start(start)) if start.name == name => RunStart::clone(start),
            _ => return Err(wrong(0, "expected its start")),
        };
        let mut run = Self { batch: start.global_batch_size, start, events: Vec::new() };
        for (number, event) in (0..).zip(events) {
            if number > 0 {
                run.check_next(&event).map_err(|e| wrong(number, &e.to_string()))?;
            }
            if let RunEvent::Resume(resume) = &event.event {
                run.batch = resume.global_batch_size;
            }
            run.events.push(event);
        }
        Ok(run)
    }

    /// Returns an error unless an event may follow those of the run.
    fn check_next(&self, next: &TrainingEvent) -> Result<()> {
        let wrong = |what: String| Err(Error::usage(what));
        let name = &self.start.name;
        let attempt = self.events.last().map_or("", |last| last.attempt.as_str());
        let batch = match &next.event {
            RunEvent::Start(_) => return wrong(format!("the training run `{name}` has begun before")),
            RunEvent::Resume(resume) => resume.global_batch_size,
            _ if next.attempt != attempt => {
                return Err(Error::conflict(format!("another attempt of the training run `{name}` has begun"))
                    .with_hint("this attempt is not recorded any more; end it, or resume it to go on"));
            }
            event if self.ended().is_some() => {
                return wrong(format!("the training run `{name}` has ended; `{}` cannot follow", event.kind()));
            }
            _ => self.batch,
        };
        let layout = self.start.layout(batch).map_err(|e| Error::usage(e.to_string()))?;
        let EpochTurn { epoch, turn } = next.event.reached();
        let most = layout.steps().saturating_mul(batch);
        if turn > most || (!turn.is_multiple_of(batch) && turn != self.start.records) {
            return wrong(format!(
                "expected a turn of epoch {epoch} after a step of {batch} records, up to {most}, found {turn}"
            ));
        }
        let before = self.events.last().map(|last| last.event.reached());
        if !matches!(next.event, RunEvent::Resume(_)) && before.is_some_and(|before| next.event.reached() < before) {
            return wrong(format!("expected an event after those before it, found turn {turn} of epoch {epoch}"));
        }
        Ok(())
    }

    /// Returns how it ended; `None` if it goes on.
    pub fn ended(&self) -> Option<&RunEnd> {
        match &self.events.last()?.event {
            RunEvent::End(end) => Some(end),
            _ => None,
        }
    }

    /// Returns its checkpoints, in the order in which they were written.
    pub fn checkpoints(&self) -> impl Iterator<Item = &RunCheckpoint> {
        self.events.iter().filter_map(|event| match &event.event {
            RunEvent::Checkpoint(checkpoint) => Some(checkpoint),
            _ => None,
        })
    }

    /// Returns the steps that were completed, by the newest event.
    pub fn steps(&self) -> u64 {
        match self.events.last().map(|last| &last.event) {
            Some(RunEvent::Resume(RunResume { step, .. }) | RunEvent::Checkpoint(RunCheckpoint { step, .. })) => *step,
            Some(RunEvent::Progress(RunProgress { step, .. }) | RunEvent::End(RunEnd { step, .. })) => *step,
            Some(RunEvent::Start(_)) | None => 0,
        }
    }

    /// Returns the tag of its version.
    pub fn tag(&self) -> String {
        format!("{RUN_TAG}{}", self.start.name)
    }
}

/// Adds an event to a run, or its start to the dataset. Returns whether it was added: an event that the run has is not
/// added again.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another attempt has gone on meanwhile;
/// [`Kind::Usage`](crate::error::Kind::Usage) if the event cannot follow.
pub fn append_event(dataset: &Dataset, name: &str, event: &TrainingEvent) -> Result<bool> {
    check_run_name(name)?;
    event.check()?;
    loop {
        let known = events_by_run(dataset)?.get(name).copied();
        let number = match (known, &event.event) {
            (None, RunEvent::Start(start)) if start.name == name => 0,
            (None, _) => return Err(TrainingRun::open(dataset, name).err().unwrap_or_else(|| not_begun(name))),
            (Some(count), _) => {
                let run = TrainingRun::read(dataset, name, count)?;
                if run.events.contains(event) {
                    return Ok(false);
                }
                run.check_next(event)?;
                count
            }
        };
        let bytes = encode_json(event, EVENT)?;
        if dataset.store().put_if_absent(&event_path(name, number), bytes.into())? == PutOutcome::Created {
            return Ok(true);
        }
    }
}

/// Whether some version has the tag of a run, so that there are events to look for.
pub fn has_runs(newest: &Snapshot) -> bool {
    newest.tags().keys().any(|tag| tag.starts_with(RUN_TAG))
}

/// Copies the events of runs to a copy of their dataset, as far as it lacks them: of those whose version has its tag
/// there, and whose split is one of `splits`; of all, if there are none.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) naming an event that is damaged, or that differs from that of the
/// copy.
pub fn copy_runs(from: &Dataset, copy: &Snapshot, splits: &[String]) -> Result<()> {
    if !has_runs(copy) {
        return Ok(());
    }
    let to = copy.dataset();
    for (name, count) in events_by_run(from)? {
        let run = TrainingRun::read(from, &name, count)?;
        let is_copied = splits.is_empty() || run.start.split.as_ref().is_some_and(|split| splits.contains(split));
        if !is_copied || !copy.tags().contains_key(&run.tag()) {
            continue;
        }
        for (number, event) in (0..).zip(&run.events) {
            let (path, bytes) = (event_path(&name, number), encode_json(event, EVENT)?);
            if to.store().put_if_absent(&path, bytes.clone().into())? == PutOutcome::Exists
                && to.store().get(&path)?.is_none_or(|found| *found != *bytes)
            {
                return Err(Error::integrity(format!("the training run `{name}` of the copy is another one"))
                    .at_location(to.store().location().join(&path).to_string()));
            }
        }
    }
    Ok(())
}

fn not_begun(name: &str) -> Error {
    Error::usage(format!("the training run `{name}` has not begun"))
}
