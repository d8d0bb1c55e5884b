//! Training runs: which steps of which orders read a version, so that "which steps saw this record" is arithmetic.
//!
//! ```text
//! _shardify/training/<name>/00000000.json   start: version, basis, order, batch          each created only if absent,
//!                           00000001.json   progress: as far as the trainer has come     never changed, closed by a
//!                           00000002.json   checkpoint: its name, and where it is        checksum, as log entries are
//!                           00000003.json   resume: another attempt, from a state on
//!                           00000004.json   end
//! ```
//!
//! A run has no list of what it read, and no id: the order is a function of the basis, so a record leads to its turn in
//! each epoch ([`TrainedTurns`]). The tag `run/<name>` keeps the version. On disk the word is *training*, because a run
//! of the log is something else.

mod event;
mod records;
mod store;
mod turns;

pub use self::{
    event::{
        EpochTurn, RunCheckpoint, RunEnd, RunEvent, RunOrder, RunProgress, RunReplay, RunResume, RunStart,
        TrainingEvent,
    },
    records::{PositionedRecord, records_at},
    store::{RUN_TAG, TrainingRun, append_event, check_run_name, copy_runs, has_runs, run_names, runs_of},
    turns::{Sighting, StepPositions, Trained, TrainedTurns},
};
