//! Exit codes.

use std::process::ExitCode;

use crate::error::Kind;

/// Exit codes and what they mean, for the help.
pub(super) const CODES: [(u8, &str); 11] = [
    (0, "success"),
    (1, "the answer is no: an id was not found, a rule fails, damage or drift was found, or a proof does not hold"),
    (2, "usage error: wrong options or arguments"),
    (3, "success, but records or files were rejected"),
    (4, "conflict with another run; try again"),
    (5, "storage error or damaged dataset"),
    (6, "bad input"),
    (7, "a proof holds, but its root was not checked"),
    (8, "inputs or options differ from the dataset; an option must say what to do"),
    (70, "internal error (a bug)"),
    (130, "interrupted"),
];

/// How a command ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// All done.
    Done,
    /// The answer is no: nothing was found, or damage was.
    No,
    /// Done, but records or files were rejected.
    Rejects,
    /// A proof holds, but not all that it rests on was checked.
    Unchecked,
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        Self::from(match outcome {
            CommandOutcome::Done => 0,
            CommandOutcome::No => 1,
            CommandOutcome::Rejects => 3,
            CommandOutcome::Unchecked => 7,
        })
    }
}

/// Exit code of a failure.
pub(super) fn exit_code(kind: Kind) -> u8 {
    match kind {
        Kind::Usage => 2,
        Kind::Conflict => 4,
        Kind::Storage | Kind::Integrity => 5,
        Kind::Input => 6,
        Kind::Changed => 8,
        Kind::Interrupted => 130,
        // Kinds may be added.
        _ => 70,
    }
}
