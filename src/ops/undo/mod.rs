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
    remove::{RemoveOptions, RemoveReport, remove},
    revert::{RevertReport, revert},
    selection::RemovedSource,
};
pub(super) use self::{replace::Replacing, selection::Selection};
use super::Context;
use crate::{
    dataset::{Publication, Snapshot, Transaction, commit},
    error::Result,
    indexes::version::{Prepared, refresh},
};

/// Sidecar rows read at a time.
const ROWS: usize = 1 << 16;

/// Commits what a command takes out of the newest version, and brings the dataset's indexes up to date.
fn finish(
    context: &Context<'_>,
    newest: &Snapshot,
    transaction: &Transaction<'_>,
    mut publication: Publication<'_>,
) -> Result<Snapshot> {
    context.cancel.check()?;
    let snapshot = publication.attempt(|| commit(newest.dataset(), transaction, newest.version()))?;
    refresh(&snapshot, Prepared::default(), context.observer)?;
    super::inputs::tell_left_out(context, &snapshot)?;
    Ok(snapshot)
}
