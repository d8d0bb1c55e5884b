//! Whether the ids of what tasks wrote are those of their sidecars, before a commit takes it over: as `verify` would
//! find afterwards.
//!
//! A task of a conversion has segments of the id index beside its shards. A task of a compaction has none, because its
//! records keep their numbers: its shards have the ids of those that they replace.

use std::sync::Arc;

use super::ids::{ROWS, Sum, hashes_of};
use crate::{
    dataset::{IdKind, MADE_UP_HINT, NewShard, Outcome, Settings, ShardMeta, Snapshot, each_pair, sidecar_batches},
    error::{Error, Result},
    record::split::split_of_path,
    storage::Store,
};

/// Fails unless the segments of a task have the ids of the sidecars of its shards.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if they differ; when a sidecar or a segment is damaged or the
/// store fails.
pub(in crate::ops) fn check_index(store: &Arc<dyn Store>, settings: &Settings, outcome: &Outcome) -> Result<()> {
    let shards: Vec<NewShard> = outcome.shards.iter().map(|shard| shard.clone().into_new_shard(0)).collect();
    let has_splits = outcome.segments.iter().all(|segment| segment.split.is_some());
    let mut of_sidecars = Sum::default();
    for shard in &shards {
        let split = split_of_path(&shard.meta.path).filter(|_| has_splits).unwrap_or_default();
        let runs = shard.runs.iter().map(|(first, records, _)| (*first, *records));
        add_sidecar(store, settings, &shard.meta, runs, split, &mut of_sidecars)?;
    }
    let mut of_index = Sum::default();
    for segment in &outcome.segments {
        let split = segment.split.as_deref().filter(|_| has_splits).unwrap_or_default();
        each_pair(store, segment, &mut |hash, number| {
            of_index.add_pair((segment.kind, hash, number), split);
            Ok(())
        })?;
    }
    match of_sidecars == of_index {
        true => Ok(()),
        false => Err(Error::integrity(format!(
            "expected an index of the ids of task {}, found other ids: its outcome was damaged or made up",
            outcome.task
        ))
        .with_hint("delete the outcome, run the task again, and commit again")),
    }
}

/// Fails unless shards that tasks of a compaction made have the ids of those that they replace, which are shards of a
/// version.
///
/// # Errors
/// As [`check_index`].
pub(in crate::ops) fn check_merge(
    snapshot: &Snapshot,
    old: &[&ShardMeta],
    new: &[&NewShard],
    settings: &Settings,
) -> Result<()> {
    let store = snapshot.dataset().store();
    let (mut before, mut after) = (Sum::default(), Sum::default());
    for shard in old {
        let runs = snapshot.run_table()?.of_shard(&shard.path, snapshot.version());
        let runs = runs.iter().map(|run| (run.first, run.records));
        add_sidecar(store, settings, shard, runs, "", &mut before)?;
    }
    for shard in new {
        let runs = shard.runs.iter().map(|(first, records, _)| (*first, *records));
        add_sidecar(store, settings, &shard.meta, runs, "", &mut after)?;
    }
    match before == after {
        true => Ok(()),
        false => Err(Error::integrity("expected the ids of the merged shards, found others in the outcome of a task")
            .at_location(store.location().join(new.first().map_or("", |shard| &shard.meta.path)).to_string())
            .with_hint(MADE_UP_HINT)),
    }
}

/// Adds the ids of a sidecar, given the runs of the numbers of its rows.
fn add_sidecar(
    store: &Arc<dyn Store>,
    settings: &Settings,
    shard: &ShardMeta,
    runs: impl Iterator<Item = (u64, u64)>,
    split: &str,
    sum: &mut Sum,
) -> Result<()> {
    let mut numbers = runs.flat_map(|(first, records)| first..first.saturating_add(records));
    let mut rows = 0;
    for batch in sidecar_batches(store, &shard.sidecar(), ROWS)? {
        let batch = batch?;
        let kinds = [(0, IdKind::Record), (1, IdKind::Subject)];
        let columns = kinds.map(|(at, kind)| hashes_of(settings, &batch, at).map(|(_, hashes)| (kind, hashes)));
        let [records, subjects] = columns;
        let columns = [records?, subjects?];
        for row in 0..batch.num_rows() {
            let number = numbers.next();
            for (kind, hashes) in &columns {
                if let (Some(hash), Some(number)) = (hashes[row], number) {
                    sum.add_pair((*kind, hash, number), split);
                }
            }
        }
        rows += batch.num_rows() as u64;
    }
    if rows != shard.records {
        return Err(Error::integrity(format!("expected a sidecar of {} rows, found {rows}", shard.records))
            .at_location(store.location().join(&shard.path).to_string()));
    }
    Ok(())
}
