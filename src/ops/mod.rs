//! Operations: one file per command. Each scans, plans, executes, commits, and returns a report; none prints.

pub mod adopt;
pub mod compact;
pub mod convert;
pub mod describe;
pub mod diff;
pub mod drift;
pub mod erase;
pub mod export;
pub mod indexes;
pub mod inputs;
pub mod inspect;
pub mod lineage;
pub mod manifest;
pub mod names;
pub mod prove;
mod revision;
mod segments;
mod sort;
pub mod tag;
pub mod vacuum;
pub mod verify;

use std::{io::Read, path::PathBuf, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use crate::{
    dataset::{Dataset, IdKey, Snapshot},
    error::{Effect, Error, Kind, Result},
    events::{Cancel, Event, Observer},
    storage::{self, Location, StoreSettings},
    units::Size,
};

/// What every operation is given.
pub struct Context<'a> {
    /// Folder that relative paths are taken from.
    pub folder: PathBuf,
    /// How stores are opened.
    pub settings: StoreSettings,
    /// Opens standard input.
    pub stdin: fn() -> Box<dyn Read + Send>,
    /// Threads to work with.
    pub jobs: usize,
    /// Memory to work in.
    pub memory: Size,
    /// The key of private ids, if one is given.
    pub id_key: Option<Arc<IdKey>>,
    /// Is told what happens.
    pub observer: &'a dyn Observer,
    /// Stops the run.
    pub cancel: Cancel,
}

impl Context<'_> {
    /// The dataset at a location.
    ///
    /// # Errors
    /// When its store cannot be opened.
    pub fn dataset(&self, location: &Location) -> Result<Dataset> {
        Ok(Dataset::new(storage::open(location, &self.settings)?).with_key(self.id_key.clone()))
    }

    /// Understands a path or URL.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn location(&self, text: &str) -> Result<Location> {
        Location::parse(text, &self.folder)
    }
}

/// Times that a command starts again because what it read was vacuumed.
const RESTARTS: usize = 3;

/// Runs something on the newest version, again if others have deleted what it read.
///
/// # Errors
/// Those of `run`; [`Kind::Conflict`] when it was overtaken each time.
fn of_newest<T>(dataset: &Dataset, run: &mut dyn FnMut(&Snapshot) -> Result<T>) -> Result<T> {
    for _ in 0..RESTARTS {
        let snapshot = dataset.open()?;
        match run(&snapshot) {
            Err(error) if is_overtaken(&snapshot, &error) => {}
            result => return result,
        }
    }
    Err(Error::conflict("other runs deleted what this command read, each time it started again")
        .at(dataset.store().location().to_string())
        .hint("nothing was changed; let `vacuum` retain versions for longer than a command takes"))
}

/// The result of a run that read some snapshots; a conflict in place of an error if others have deleted meanwhile what
/// could be read when they were opened.
///
/// # Errors
/// That of the run, or [`Kind::Conflict`].
pub fn or_overtaken<'a, T>(read: impl IntoIterator<Item = &'a Snapshot>, result: Result<T>) -> Result<T> {
    let Err(error) = &result else { return result };
    let Some(snapshot) = read.into_iter().find(|snapshot| is_overtaken(snapshot, error)) else { return result };
    Err(overtaken(snapshot))
}

/// What a run says that found gone what it was reading.
fn overtaken(snapshot: &Snapshot) -> Error {
    Error::conflict(format!(
        "a vacuum or an erasure took away what this command read of {} meanwhile",
        snapshot.version()
    ))
    .at(snapshot.dataset().store().location().to_string())
    .hint("nothing was changed; run the command again")
}

/// Whether an error may come from reading what others have deleted.
fn is_overtaken(snapshot: &Snapshot, error: &Error) -> bool {
    // What this run may have committed itself is not what others did.
    error.effect() == Effect::None
        && matches!(error.kind(), Kind::Storage | Kind::Integrity | Kind::Input)
        && snapshot.is_overtaken().is_ok_and(|overtaken| overtaken)
}

/// How far clocks may disagree without a word.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// Tells the user where the clock of this machine, that of the store and the times of the log contradict one another.
fn tell_of_clocks(context: &Context<'_>, snapshot: &Snapshot, now: Timestamp) {
    let tell = |text: String| context.observer.event(Event::Note(text));
    let here = Timestamp::now().duration_since(now);
    if here.abs() > CLOCK_TOLERANCE {
        tell(format!("the clock of this machine and that of the store differ by {here:#}; the store's is used"));
    }
    let entry = snapshot.entry();
    let ahead = snapshot.committed_at(entry.version, entry.committed_at).duration_since(now);
    if ahead > CLOCK_TOLERANCE {
        tell(format!(
            "version {} is dated {ahead:#} after the present: the clock of the machine that committed it was wrong, or \
             this one is",
            entry.version
        ));
    }
    for wrong in &entry.corrections {
        tell(format!(
            "versions {} to {} were committed by a clock that was ahead; they count as of {:.0}",
            wrong.first, wrong.last, wrong.at
        ));
    }
}
