//! Changes of training runs: events that a trainer has written are added, and a run gives up its version.
//!
//! ```text
//! start       basis and records as in the version? --> tag run/NAME --> event 0, created only if absent
//! others      may it follow the newest event?      --> the next number, created only if absent
//! ```

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{
    Context,
    erase::finish_cut_short,
    training::{TrainingRunReport, check_start, describe},
};
use crate::{
    dataset::{self, Dataset, RunEvent, TrainingEvent, TrainingRun, append_event, run_names},
    error::{Error, Result},
    storage::Location,
};

/// Result of adding events.
#[derive(Debug, Clone, Serialize)]
pub struct AddedEvents {
    /// The dataset.
    pub dataset: String,
    /// Events that were added.
    pub added: u64,
    /// Events that the dataset had.
    pub known: u64,
    /// The runs that they are of.
    pub runs: Vec<String>,
}

/// Adds events to runs, given one JSON object on each line. A start tags its version; an event that a run has is not
/// added again, so a file can be added twice.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) naming the line that is no event, or that does not suit the dataset or
/// the run; [`Kind::Conflict`](crate::error::Kind::Conflict) if another attempt of the run has begun.
pub fn add_events(context: &Context<'_>, location: &Location, lines: &[u8]) -> Result<AddedEvents> {
    let dataset = context.open_dataset(location)?;
    dataset.test_store()?;
    let (mut added, mut known, mut runs) = (0, 0, BTreeSet::new());
    let lines = (1..).zip(lines.split(|byte| *byte == b'\n'));
    for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        let (name, event) = parse_event(line).map_err(|e| e.at_line(number))?;
        let is_added = add_event(context, &dataset, &name, &event).map_err(|e| e.at_line(number))?;
        (added, known) = (added + u64::from(is_added), known + u64::from(!is_added));
        runs.insert(name);
    }
    Ok(AddedEvents { dataset: location.to_string(), added, known, runs: runs.into_iter().collect() })
}

fn parse_event(line: &[u8]) -> Result<(String, TrainingEvent)> {
    let wrong = |why: String| Error::usage(format!("expected an event of a training run, found {why}"));
    let mut value: Value = serde_json::from_slice(line).map_err(|e| wrong("other text".to_owned()).with_cause(e))?;
    let run = value.as_object_mut().and_then(|object| object.remove("run"));
    let Some(Value::String(name)) = run else { return Err(wrong("no name of the run under `run`".to_owned())) };
    let event = serde_json::from_value(value).map_err(|e| wrong("other fields".to_owned()).with_cause(e))?;
    Ok((name, event))
}

fn add_event(context: &Context<'_>, dataset: &Dataset, name: &str, event: &TrainingEvent) -> Result<bool> {
    let RunEvent::Start(start) = &event.event else { return append_event(dataset, name, event) };
    if start.name != name {
        return Err(Error::usage(format!("expected the start of `{name}`, found that of `{}`", start.name)));
    }
    dataset::check_run_name(name)?;
    event.check()?;
    let newest = dataset.open_newest()?;
    finish_cut_short(context, Some(&newest))?;
    let tag = format!("{}{name}", dataset::RUN_TAG);
    if !run_names(dataset)?.iter().any(|known| known == name) {
        let snapshot = dataset.open_version(start.version)?;
        check_start(&snapshot, start)?;
        dataset::add_tag(dataset, &tag, start.version)?;
    }
    append_event(dataset, name, event)
}

/// Gives up the version of a run, which a vacuum may then delete. Returns the newest version.
///
/// # Errors
/// If there is no such run, or it was released before.
pub fn release_run(context: &Context<'_>, location: &Location, name: &str) -> Result<TrainingRunReport> {
    let dataset = context.open_dataset(location)?;
    let run = TrainingRun::open(&dataset, name)?;
    finish_cut_short(context, dataset.newest_snapshot()?.as_ref())?;
    let (newest, _) = dataset::remove_tag(&dataset, &run.tag())
        .map_err(|e| e.with_hint(format!("the training run `{name}` may have been released before")))?;
    describe(&newest, &run)
}
