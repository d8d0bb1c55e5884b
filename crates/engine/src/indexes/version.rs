//! Files that describe all live shards of a dataset, such as `shardindex.json` of wids or the Delta log.
//!
//! They are the only objects of a dataset that are ever replaced (of the Delta log, `_last_checkpoint`), so they are
//! written after the commit, from the committed snapshot. Each is replaced atomically, and the one that states their
//! version is written last. If a run is interrupted in between, old indexes remain, which name shards that still exist;
//! the next `convert` or `compact` rewrites them, and `verify` reports that they are outdated. They are built only from
//! the shards' footers and the files beside each shard.

use arrow::datatypes::Fields;

use super::kind::{Difference, OfVersion};
use crate::{
    dataset::{Dataset, NewShard, ShardMeta, Snapshot, put_signs},
    error::{Effect, Result},
    events::{Event, Observer},
    format::index::IndexKind,
};

/// Maximum attempts to rewrite the indexes when other runs commit in the meantime.
const ATTEMPTS: usize = 10;

fn version_files(kinds: &[IndexKind]) -> impl Iterator<Item = (IndexKind, Box<dyn OfVersion>)> {
    kinds.iter().filter_map(|kind| Some((*kind, super::index_for(*kind).of_version()?)))
}

/// Checks that a dataset can have these indexes, before any work is done.
///
/// # Errors
/// As [`OfVersion::check_dataset`].
pub fn check_indexes(dataset: &Dataset, snapshot: Option<&Snapshot>, kinds: &[IndexKind]) -> Result<()> {
    version_files(kinds).try_for_each(|(_, files)| files.check_dataset(dataset, snapshot))
}

/// Returns the columns of a run as all its indexes can have them.
///
/// # Errors
/// As [`OfVersion::fit_fields`].
pub fn fit_fields(
    dataset: &Dataset,
    snapshot: Option<&Snapshot>,
    kinds: &[IndexKind],
    fields: Fields,
    is_given: &dyn Fn(&str) -> bool,
) -> Result<Fields> {
    version_files(kinds).try_fold(fields, |fields, (_, files)| files.fit_fields(dataset, snapshot, fields, is_given))
}

/// What is prepared before the commit, so that what an index cannot hold is detected in time.
#[derive(Default)]
pub struct PreparedIndexes(Vec<(IndexKind, Box<dyn OfVersion>)>);

impl PreparedIndexes {
    /// Prepares the indexes of a snapshot and additional shards, which are published already.
    ///
    /// # Errors
    /// As [`OfVersion::prepare_commit`].
    pub fn new(dataset: &Dataset, snapshot: Option<&Snapshot>, adds: &[NewShard], kinds: &[IndexKind]) -> Result<Self> {
        let live = snapshot.map(Snapshot::live_shards).transpose()?.unwrap_or_default();
        let shards: Vec<&ShardMeta> = live.iter().chain(adds.iter().map(|shard| &shard.meta)).collect();
        let mut all: Vec<_> = version_files(kinds).collect();
        all.iter_mut().try_for_each(|(_, files)| files.prepare_commit(dataset, snapshot, adds, &shards))?;
        Ok(Self(all))
    }
}

/// Updates the indexes of all live shards to the newest version, unless they are up to date, and puts signs beside
/// shards that the version replaced.
///
/// # Errors
/// As [`OfVersion::write`]. The commit remains valid.
pub fn refresh_indexes(snapshot: &Snapshot, prepared: PreparedIndexes, observer: &dyn Observer) -> Result<()> {
    put_signs(snapshot).map_err(|e| e.with_effect(Effect::Certain))?;
    let kinds = &snapshot.entry().settings.indexes;
    if kinds.is_empty() {
        return Ok(());
    }
    let PreparedIndexes(mut all) = prepared;
    all.extend(
        version_files(kinds).filter(|(kind, _)| !all.iter().any(|(prepared, _)| prepared == kind)).collect::<Vec<_>>(),
    );
    let mut newer: Option<Snapshot> = None;
    for _ in 0..ATTEMPTS {
        let current = newer.as_ref().unwrap_or(snapshot);
        let written: Result<Vec<Option<String>>> = all.iter_mut().map(|(_, files)| files.write(current)).collect();
        let latest = current.dataset().open_newest()?;
        if latest.version() == current.version() {
            let notes = written.map_err(|e| e.with_effect(Effect::Certain))?;
            notes.into_iter().flatten().for_each(|note| observer.event(Event::Note(note)));
            return Ok(());
        }
        // Objects of an older version may be vacuumed by now, so the newer version decides.
        newer = Some(latest);
    }
    Ok(())
}

/// Returns the indexes of all live shards that differ from the snapshot.
///
/// # Errors
/// Fails if the store fails.
pub fn stale_indexes(snapshot: &Snapshot) -> Result<Vec<Difference>> {
    let mut out = Vec::new();
    for (_, files) in version_files(&snapshot.entry().settings.indexes) {
        out.extend(files.find_differences(snapshot)?);
    }
    Ok(out)
}
