//! Rewrites shards without some of their records: the work that `erase`, `remove`, `revert` and `convert --on-changed
//! replace` share. The caller decides which records are dropped; the records that stay keep their numbers, ids and
//! order.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::Context;
use crate::{
    dataset::{
        ContentHashes, Dataset, NewShard, PlaceRef, Publication, RunTable, Settings, ShardMeta, Snapshot,
        check_folders, folder_of, numbered_rows,
    },
    error::Result,
    events::Event,
    exec::{
        constants,
        erase::{AffectedShard, Eraser, ExpectedShard, RewrittenShard},
        ordered::run_ordered,
        rewrite::Rewriter,
        shard::ShardNaming,
        types,
    },
    id::TransactionId,
    indexes,
    storage::{Staged, Store},
};

/// Names the new shards of `affected_shards`, whose naming contains only the partition so far: each old folder becomes
/// one folder of the run. `folders` counts the folders that the run has named.
pub(super) fn name_shards(affected_shards: &mut [AffectedShard], id: &TransactionId, folders: &mut usize) {
    let mut by_folder: BTreeMap<String, Vec<&mut AffectedShard>> = BTreeMap::new();
    for affected in affected_shards {
        by_folder.entry(folder_of(&affected.shard.path).to_owned()).or_default().push(affected);
    }
    for affected_shards in by_folder.into_values() {
        let tag = id.tag_of(*folders);
        *folders += 1;
        for (number, affected) in affected_shards.into_iter().enumerate() {
            affected.naming.tag = format!("{tag}/{}", affected.naming.tag).trim_end_matches('/').to_owned();
            affected.number = number;
        }
    }
}

/// Writes the shards without the dropped records. Nothing is published yet.
///
/// # Errors
/// When a shard is damaged, the store fails, or the run is cancelled.
pub(super) fn write(
    context: &Context<'_>,
    dataset: &Dataset,
    settings: &Settings,
    eraser: &Eraser<'_>,
    affected_shards: &[AffectedShard],
) -> Result<Vec<RewrittenShard>> {
    check_folders(dataset.store().as_ref(), affected_shards.iter().map(|affected| &affected.shard))?;
    let concurrent = context.memory_plan(settings).concurrent_rewrites(settings.shard_format, context.jobs);
    std::thread::scope(|scope| {
        let input = affected_shards.iter().map(Ok);
        run_ordered(scope, input, concurrent, concurrent, &context.cancel, move |affected| {
            eraser.rewrite_shard(affected)
        })
        .collect()
    })
}

/// Returns how shards of a snapshot are rewritten.
pub(super) fn new_rewriter<'a>(context: &'a Context<'_>, snapshot: &'a Snapshot) -> Rewriter<'a> {
    let row_group = context.memory_plan(&snapshot.entry().settings).unit_bytes;
    Rewriter { dataset: snapshot.dataset(), row_group, observer: context.observer, cancel: &context.cancel }
}

/// Stages the descriptions of the new shards' folders: indexes, types of rows and constants. Returns them by folder.
///
/// # Errors
/// When the old folders cannot be read or the store fails.
pub(super) fn describe_folders<'v>(
    store: &dyn Store,
    affected_shards: &'v [AffectedShard],
    rewritten: &[RewrittenShard],
) -> Result<BTreeMap<&'v str, Vec<Staged>>> {
    let mut folders: BTreeMap<&str, (&str, Vec<usize>)> = BTreeMap::new();
    for (i, affected) in affected_shards.iter().enumerate().filter(|(i, _)| rewritten[*i].finished.is_some()) {
        folders.entry(&affected.naming.tag).or_insert((folder_of(&affected.shard.path), Vec::new())).1.push(i);
    }
    let mut out = BTreeMap::new();
    for (folder, (was, members)) in folders {
        let new = members.iter().filter_map(|i| rewritten[*i].finished.as_ref()).map(|one| (one.meta(), one.md5));
        let kinds = members.first().map_or(&[][..], |i| affected_shards[*i].naming.indexes.as_slice());
        let mut own = indexes::of_folders(store, kinds, new)?;
        own.extend(types::copy_types(store, was, folder)?);
        own.extend(constants::copy_constants(store, was, folder)?);
        out.insert(folder, own);
    }
    Ok(out)
}

/// Ascending, disjoint ranges of record numbers: first number, and the number after the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Sorts ranges and merges those that overlap or touch.
    pub(super) fn new(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(first, end)| first < end);
        ranges.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (first, end) in ranges {
            match out.last_mut() {
                Some(last) if first <= last.1 => last.1 = last.1.max(end),
                _ => out.push((first, end)),
            }
        }
        Self(out)
    }

    /// Returns whether a number is in one of the ranges.
    pub(super) fn contains_number(&self, number: u64) -> bool {
        let next = self.0.partition_point(|(first, _)| *first <= number);
        next.checked_sub(1).and_then(|last| self.0.get(last)).is_some_and(|(_, end)| number < *end)
    }

    /// Returns the parts of `first .. end` that are in the ranges.
    pub(super) fn parts_within(&self, first: u64, end: u64) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        let start = self.0.partition_point(|range| range.1 <= first);
        let here = self.0[start..].iter().take_while(move |range| range.0 < end);
        here.map(move |range| range.0.max(first)..range.1.min(end))
    }
}

/// Returns the rows of a shard whose records have numbers in `ranges`, ascending.
///
/// # Errors
/// When the record numbers of a sorted shard cannot be read.
pub(super) fn rows_in(
    store: &std::sync::Arc<dyn Store>,
    runs: &[&crate::dataset::Run],
    table: &RunTable,
    ranges: &Ranges,
) -> Result<Vec<u64>> {
    let mut rows: Vec<u64> = Vec::new();
    if runs.iter().all(|run| run.scattered.is_none()) {
        for run in runs {
            for part in ranges.parts_within(run.first, run.end_record()) {
                rows.extend(part.map(|number| run.ordinal + (number - run.first)));
            }
        }
        rows.sort_unstable();
        return Ok(rows);
    }
    if runs.iter().all(|run| ranges.parts_within(run.first, run.end_record()).next().is_none()) {
        return Ok(rows);
    }
    for (row, known) in (0..).zip(numbered_rows(store, runs, table)?) {
        if known?.is_some_and(|known| ranges.contains_number(known.record)) {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Returns the rewrite of a shard: the new shard has the same format, codec and partition.
pub(super) fn affected_shard(
    snapshot: &Snapshot,
    shard: &ShardMeta,
    runs: &[&crate::dataset::Run],
    rows: Vec<u64>,
) -> AffectedShard {
    let settings = &snapshot.entry().settings;
    // The leading folder is named when the shard is written.
    let naming =
        ShardNaming { codec: shard.codec, ..ShardNaming::for_dataset(settings, partition_folders(&shard.path)) };
    let runs = runs.iter().map(|run| (*run).clone()).collect();
    AffectedShard { shard: shard.clone(), runs, ordinals: rows, naming, number: 0 }
}

/// Rewritten shards that are published.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    /// Paths of the old shards.
    pub(super) removes: Vec<String>,
    /// The new shards.
    pub(super) shards: Vec<NewShard>,
    /// Position tables of new sorted shards.
    pub(super) places: Vec<PlaceRef>,
    /// Paths of all published objects.
    pub(super) paths: Vec<String>,
    /// Number of records that were dropped.
    pub(super) records: u64,
    /// Bytes of the new shards.
    pub(super) bytes: u64,
}

/// Rewrites the shards under names of the publication's run, publishes the new shards and reads them back.
///
/// # Errors
/// When a shard is damaged or the store fails.
pub(super) fn rewrite_and_publish(
    context: &Context<'_>,
    snapshot: &Snapshot,
    mut affected_shards: Vec<AffectedShard>,
    publication: &mut Publication<'_>,
    folders: &mut usize,
) -> Result<Rewritten> {
    let (dataset, settings) = (snapshot.dataset(), &snapshot.entry().settings);
    let store = dataset.store().as_ref();
    name_shards(&mut affected_shards, publication.run_id(), folders);
    let eraser = Eraser {
        rewriter: new_rewriter(context, snapshot),
        runs: snapshot.run_table()?,
        hashes: ContentHashes::from_snapshot(snapshot),
        erased_ids: &[],
    };
    let total = affected_shards.iter().map(|affected| affected.shard.bytes).sum();
    context.observer.event(Event::Phase { name: "rewriting", bytes: Some(total) });
    let rewritten = write(context, dataset, settings, &eraser, &affected_shards)?;
    let mut staged: Vec<Staged> =
        describe_folders(store, &affected_shards, &rewritten)?.into_values().flatten().collect();
    let mut out = Rewritten::default();
    let mut expected: Vec<ExpectedShard> = Vec::new();
    for (affected, mut one) in affected_shards.iter().zip(rewritten) {
        expected.extend(one.expected_shard());
        staged.append(&mut one.staged);
        out.places.append(&mut one.places);
        out.removes.push(affected.shard.path.clone());
        out.records += affected.ordinals.len() as u64;
        if let Some(mut finished) = one.finished {
            staged.append(&mut finished.staged);
            out.bytes += finished.shard.meta.bytes;
            out.shards.push(finished.shard);
        }
    }
    out.paths = staged.iter().map(|staged| staged.path.clone()).collect();
    publication.publish_shards(out.shards.iter_mut(), staged)?;
    expected.par_iter().try_for_each(|expected| eraser.verify_rewritten(expected))?;
    Ok(out)
}

/// Returns the `key=value/` folders of a path; readers derive columns from them, so shards of different partitions are
/// never merged.
pub(super) fn partition_folders(path: &str) -> String {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
    folders.filter(|folder| folder.contains('=')).map(|folder| format!("{folder}/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_united_and_searched() {
        let ranges = Ranges::new(vec![(10, 20), (30, 40), (20, 25), (5, 5), (33, 36)]);
        assert_eq!(ranges, Ranges(vec![(10, 25), (30, 40)]));
        let inside: Vec<u64> = (0..50).filter(|number| ranges.contains_number(*number)).collect();
        assert_eq!(inside, (10..25).chain(30..40).collect::<Vec<_>>());
        assert_eq!(ranges.parts_within(12, 31).collect::<Vec<_>>(), [12..25, 30..31]);
        assert_eq!(ranges.parts_within(25, 30).count(), 0);
        assert!(!Ranges::default().contains_number(0));
    }
}
