//! Operations: one file per command. Each scans, plans, executes, commits, and returns a report; none prints.

pub mod adopt;
pub mod bench;
pub mod block;
pub mod check;
mod columns;
pub mod compact;
pub mod convert;
pub mod describe;
pub mod diff;
pub mod drift;
pub mod erase;
pub mod export;
pub mod head;
pub mod indexes;
pub mod inputs;
pub mod inspect;
pub mod lineage;
pub mod live;
pub mod manifest;
pub mod names;
pub mod parent;
pub mod planned;
mod problems;
pub mod prove;
pub mod pull;
pub mod report;
pub mod reshard;
mod revision;
mod rewrite;
pub mod run_events;
mod segments;
mod sizes;
mod sort;
mod stacked;
pub mod tag;
pub mod tasks;
pub mod training;
pub mod undo;
pub mod vacuum;
pub mod verify;

use std::{borrow::Cow, io::Read, path::PathBuf, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use crate::{
    dataset::{Attempts, Dataset, IdKey, Settings, Snapshot},
    error::{Effect, Error, Kind, Result},
    events::{Cancel, Event, Observer},
    plan::memory::MemoryPlan,
    storage::{self, Location, StoreSettings},
    units::Size,
};

/// Context that every operation receives.
pub struct Context<'a> {
    /// Folder that relative paths are resolved against.
    pub folder: PathBuf,
    /// How stores are opened.
    pub settings: StoreSettings,
    /// Opens standard input.
    pub stdin: fn() -> Box<dyn Read + Send>,
    /// Number of worker threads.
    pub jobs: usize,
    /// Memory limit.
    pub memory: Size,
    /// The key of private ids, if one is given.
    pub id_key: Option<Arc<IdKey>>,
    /// Receives progress events.
    pub observer: &'a dyn Observer,
    /// Cancellation token.
    pub cancel: Cancel,
}

impl Context<'_> {
    /// Returns the sizes that keep a run on a dataset within the memory limit.
    fn memory_plan(&self, settings: &Settings) -> MemoryPlan {
        MemoryPlan::for_settings(self.memory, self.jobs, settings)
    }

    /// Returns the dataset at a location.
    ///
    /// # Errors
    /// When its store cannot be opened.
    pub fn open_dataset(&self, location: &Location) -> Result<Dataset> {
        Ok(Dataset::new(storage::open_store(location, &self.settings)?).with_key(self.id_key.clone()))
    }

    /// Parses a path or URL.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse_location(&self, text: &str) -> Result<Location> {
        Location::parse(text, &self.folder)
    }
}

/// Maximum number of restarts of a command because objects it was reading were vacuumed.
const RESTARTS: usize = 3;

/// Maximum number of times a change is planned anew, each time after as many attempts to commit it as there may be.
const REPLANS: usize = 20;

/// Runs an operation on the newest version, and restarts it if another run deleted objects that it was reading.
///
/// # Errors
/// Those of `run`; [`Kind::Conflict`] if objects were deleted in every attempt.
fn of_newest<T>(dataset: &Dataset, run: &mut dyn FnMut(&Snapshot) -> Result<T>) -> Result<T> {
    for _ in 0..RESTARTS {
        let snapshot = dataset.open_newest()?;
        match run(&snapshot) {
            Err(error) if is_overtaken(dataset, Some(&snapshot), &error) => {}
            result => return result,
        }
    }
    Err(overtaken_error(dataset))
}

/// Changes the newest version; again, as long as other runs change it in between.
///
/// # Errors
/// Those of `change`; [`Kind::Conflict`] if other runs are faster each time.
fn until_changed<T>(
    context: &Context<'_>,
    dataset: &Dataset,
    change: &mut dyn FnMut(&Snapshot) -> Result<T>,
) -> Result<T> {
    let mut changed = Err(Error::internal("a change was never attempted"));
    for _ in Attempts::at_most(REPLANS) {
        context.cancel.check()?;
        changed = of_newest(dataset, change);
        if !changed.as_ref().is_err_and(|error| error.kind() == Kind::Conflict) {
            break;
        }
    }
    changed
}

/// Returns the result of a run that read some snapshots, or a conflict if it failed because another run deleted objects
/// that were readable when the snapshots were opened.
///
/// # Errors
/// Those of the run, or [`Kind::Conflict`].
fn or_overtaken<'a, T>(read: impl IntoIterator<Item = &'a Snapshot>, result: Result<T>) -> Result<T> {
    let Err(error) = &result else { return result };
    match read.into_iter().find(|snapshot| is_overtaken(snapshot.dataset(), Some(snapshot), error)) {
        Some(snapshot) => Err(overtaken_error(snapshot.dataset())),
        None => result,
    }
}

/// Like [`or_overtaken`], for a run that adds to a dataset which may have had no version when the run began.
fn or_overtaken_since<T>(dataset: &Dataset, seen: Option<&Snapshot>, result: Result<T>) -> Result<T> {
    match &result {
        Err(error) if is_overtaken(dataset, seen, error) => Err(overtaken_error(dataset)),
        _ => result,
    }
}

/// Returns the error of a run whose input was deleted while it read it.
fn overtaken_error(dataset: &Dataset) -> Error {
    Error::conflict("a vacuum or an erasure has deleted what this command was reading or writing")
        .at_location(dataset.store().location().to_string())
        .with_hint(
            "nothing was changed; run the command again, and let `vacuum` retain versions for longer than a run takes",
        )
}

/// Returns whether an error may result from reading objects that another run deleted.
fn is_overtaken(dataset: &Dataset, seen: Option<&Snapshot>, error: &Error) -> bool {
    // An error after this run's own commit is not caused by other runs.
    error.effect() == Effect::None
        && matches!(error.kind(), Kind::Storage | Kind::Integrity | Kind::Input)
        && dataset.has_lost_data(seen).is_ok_and(|overtaken| overtaken)
}

/// Maximum difference between clocks that is not reported.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// Warns if the clock of this machine, the clock of the store and the times of the log contradict each other.
fn warn_about_clocks(context: &Context<'_>, snapshot: &Snapshot, now: Timestamp) {
    warn_about_this_clock(context, now);
    let entry = snapshot.entry();
    let ahead = snapshot.committed_at(entry.version, entry.committed_at).duration_since(now);
    warn_about_version_ahead(context, &entry.version, ahead);
    for wrong in &entry.corrections {
        context.observer.event(Event::Note(format!(
            "versions {} to {} were committed by a clock that was ahead; they count as of {:.0}",
            wrong.first, wrong.last, wrong.at
        )));
    }
}

/// As [`warn_about_clocks`], for a Delta table with the time of its newest commit, and the number of files that are
/// removed in the future.
fn warn_about_table_clocks(
    context: &Context<'_>,
    newest: Option<(u64, Timestamp)>,
    removed_ahead: u64,
    now: Timestamp,
) {
    warn_about_this_clock(context, now);
    if let Some((version, time)) = newest {
        warn_about_version_ahead(context, &format_args!("v{version}"), time.duration_since(now));
    }
    if removed_ahead > 0 {
        context.observer.event(Event::Note(format!(
            "files removed at a time after the present: {removed_ahead}; they stay until then, because some clock was \
             wrong"
        )));
    }
}

fn warn_about_this_clock(context: &Context<'_>, now: Timestamp) {
    let here = Timestamp::now().duration_since(now);
    if here.abs() > CLOCK_TOLERANCE {
        let text = format!("the clock of this machine and that of the store differ by {here:#}; the store's is used");
        context.observer.event(Event::Note(text));
    }
}

fn warn_about_version_ahead(context: &Context<'_>, version: &dyn std::fmt::Display, ahead: SignedDuration) {
    if ahead > CLOCK_TOLERANCE {
        context.observer.event(Event::Note(format!(
            "version {version} is dated {ahead:#} after the present: the clock of the machine that committed it was \
             wrong, or this one is"
        )));
    }
}

/// Returns text as a shell takes it for one word.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}
