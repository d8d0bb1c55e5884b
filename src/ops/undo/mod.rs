//! What takes records out of the newest version without forgetting them: `remove`, `revert`, and a `convert` that
//! replaces the records of changed sources.
//!
//! ```text
//! remove   sources that are named -------+
//! replace  sources that have changed ----+--> Selection --> shards without their records --+--> one version
//! revert   shards of an older version, without records that were erased since -------------+
//! ```
//!
//! Older versions keep what is taken out until `vacuum` deletes them, and a revert brings it back. What must not come
//! back is a matter of `erase`.

mod remove;
mod replace;
mod revert;
mod selection;

pub use self::{
    remove::{RemoveOptions, RemoveReport, remove_sources},
    revert::{RevertReport, revert_dataset},
    selection::RemovedSource,
};
pub(super) use self::{replace::SourceReplacement, selection::SourceSelection};
use super::Context;
use crate::{
    dataset::{Publication, Snapshot, Transaction, commit_transaction},
    error::Result,
    indexes::version::{PreparedIndexes, refresh_indexes},
};

/// Sidecar rows read at a time.
const ROWS: usize = 1 << 16;

/// Commits what a command takes out of the newest version, and brings the dataset's indexes up to date.
fn commit_and_refresh(
    context: &Context<'_>,
    newest: &Snapshot,
    transaction: &Transaction<'_>,
    mut publication: Publication<'_>,
) -> Result<Snapshot> {
    context.cancel.check()?;
    let snapshot =
        publication.attempt_commit(|| commit_transaction(newest.dataset(), transaction, newest.version()))?;
    refresh_indexes(&snapshot, PreparedIndexes::default(), context.observer)?;
    super::inputs::tell_left_out(context, &snapshot)?;
    Ok(snapshot)
}
