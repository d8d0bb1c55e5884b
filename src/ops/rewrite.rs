//! Rewriting shards without some of their records: the work that `erase`, `remove`, `revert` and `convert --on-changed replace`
//! share. Which records go is up to the caller; the records that stay keep their numbers, ids and order.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::Context;
use crate::{
    dataset::{
        ContentHashes, Dataset, NewShard, PlaceRef, Publication, RunTable, Settings, ShardMeta, Snapshot,
        check_folders, folder_of, note_beside, numbered,
    },
    error::Result,
    events::Event,
    exec::{
        constants,
        erase::{Eraser, Made, Spared, Victim},
        index::wids_list,
        ordered::ordered,
        rewrite::Rewriter,
        shard::ShardNaming,
        types,
    },
    id::TransactionId,
    plan::memory::MemoryPlan,
    storage::{Staged, Store},
};

/// Names the new shards of `victims`, whose naming has only the partition so far: one folder of the run for each old folder.
/// `folders` counts the folders that the run has named.
pub(super) fn name(victims: &mut [Victim], id: &TransactionId, folders: &mut usize) {
    let mut by_folder: BTreeMap<String, Vec<&mut Victim>> = BTreeMap::new();
    for victim in victims {
        by_folder.entry(folder_of(&victim.shard.path).to_owned()).or_default().push(victim);
    }
    for victims in by_folder.into_values() {
        let tag = id.tag_of(*folders);
        *folders += 1;
        for (number, victim) in victims.into_iter().enumerate() {
            victim.naming.tag = format!("{tag}/{}", victim.naming.tag).trim_end_matches('/').to_owned();
            victim.number = number;
        }
    }
}

/// Writes the shards without their records. Nothing has its name yet.
///
/// # Errors
/// When a shard is damaged, the store fails, or the run is cancelled.
pub(super) fn write(
    context: &Context<'_>,
    (dataset, settings): (&Dataset, &Settings),
    eraser: &Eraser<'_>,
    victims: &[Victim],
) -> Result<Vec<Spared>> {
    check_folders(dataset.store().as_ref(), victims.iter().map(|victim| &victim.shard))?;
    let at_once = memory(context, settings).rewrites_at_once(settings.shard_format, context.jobs);
    std::thread::scope(|scope| {
        let input = victims.iter().map(Ok);
        ordered(scope, input, at_once, at_once, &context.cancel, move |victim| eraser.erase(victim)).collect()
    })
}

/// Returns the memory plan of a rewrite.
pub(super) fn memory(context: &Context<'_>, settings: &Settings) -> MemoryPlan {
    MemoryPlan::new(context.memory, context.jobs, settings.shard_format, settings.target_shard, settings.row_group)
}

/// Returns how shards of a snapshot are rewritten.
pub(super) fn rewriter<'a>(context: &'a Context<'_>, snapshot: &'a Snapshot) -> Rewriter<'a> {
    let row_group = memory(context, &snapshot.entry().settings).unit_bytes;
    Rewriter { dataset: snapshot.dataset(), row_group, observer: context.observer, cancel: &context.cancel }
}

/// Stages what describes the folders of new shards: the list of wids, the types of rows and constants. Returns it by folder.
///
/// # Errors
/// When the old folders cannot be read or the store fails.
pub(super) fn describe<'v>(
    store: &dyn Store,
    victims: &'v [Victim],
    spared: &[Spared],
) -> Result<BTreeMap<&'v str, Vec<Staged>>> {
    let mut folders: BTreeMap<&str, (&str, Vec<usize>)> = BTreeMap::new();
    for (i, victim) in victims.iter().enumerate().filter(|(i, _)| spared[*i].finished.is_some()) {
        folders.entry(&victim.naming.tag).or_insert((folder_of(&victim.shard.path), Vec::new())).1.push(i);
    }
    let mut out = BTreeMap::new();
    for (folder, (was, members)) in folders {
        let mut own: Vec<Staged> = Vec::new();
        own.extend(wids_list(store, members.iter().filter_map(|i| spared[*i].finished.as_ref()))?);
        own.extend(types::copy(store, was, folder)?);
        own.extend(constants::copy(store, was, folder)?);
        out.insert(folder, own);
    }
    Ok(out)
}

/// Ascending, disjoint ranges of record numbers: first number, and the number after the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Unites ranges.
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

    /// Whether a number is in one of them.
    pub(super) fn contain(&self, number: u64) -> bool {
        let next = self.0.partition_point(|(first, _)| *first <= number);
        next.checked_sub(1).and_then(|last| self.0.get(last)).is_some_and(|(_, end)| number < *end)
    }

    /// The parts of `first .. end` that are in them.
    pub(super) fn within(&self, first: u64, end: u64) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
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
            for part in ranges.within(run.first, run.end()) {
                rows.extend(part.map(|number| run.ordinal + (number - run.first)));
            }
        }
        rows.sort_unstable();
        return Ok(rows);
    }
    if runs.iter().all(|run| ranges.within(run.first, run.end()).next().is_none()) {
        return Ok(rows);
    }
    for (row, known) in (0..).zip(numbered(store, runs, table)?) {
        if known?.is_some_and(|known| ranges.contain(known.record)) {
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Makes a victim of a shard: its new shard is in the same format, codec and partition.
pub(super) fn victim(snapshot: &Snapshot, shard: &ShardMeta, runs: &[&crate::dataset::Run], rows: Vec<u64>) -> Victim {
    let settings = &snapshot.entry().settings;
    let naming = ShardNaming {
        // The folder before it is named when it is written.
        tag: partition(&shard.path).clone(),
        format: settings.shard_format,
        codec: shard.codec,
        indexes: settings.indexes.clone(),
    };
    let runs = runs.iter().map(|run| (*run).clone()).collect();
    Victim { shard: shard.clone(), runs, ordinals: rows, naming, number: 0 }
}

/// Shards that were written anew and have their names.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    /// Paths of the old shards.
    pub(super) removes: Vec<String>,
    /// The new shards.
    pub(super) shards: Vec<NewShard>,
    /// Position tables of sorted ones.
    pub(super) places: Vec<PlaceRef>,
    /// Everything that was published.
    pub(super) paths: Vec<String>,
    /// Records that are in none of the new shards.
    pub(super) records: u64,
    /// Bytes of the new shards.
    pub(super) bytes: u64,
}

/// Rewrites the victims under names of the publication's run, publishes the new shards and reads them back.
///
/// # Errors
/// When a shard is damaged or the store fails.
pub(super) fn publish(
    context: &Context<'_>,
    snapshot: &Snapshot,
    mut victims: Vec<Victim>,
    publication: &mut Publication<'_>,
    folders: &mut usize,
) -> Result<Rewritten> {
    let (dataset, settings) = (snapshot.dataset(), &snapshot.entry().settings);
    let store = dataset.store().as_ref();
    name(&mut victims, publication.id(), folders);
    let eraser = Eraser {
        rewriter: rewriter(context, snapshot),
        runs: snapshot.runs()?,
        hashes: ContentHashes::of(snapshot),
        needles: &[],
    };
    let total = victims.iter().map(|victim| victim.shard.bytes).sum();
    context.observer.event(Event::Phase { name: "rewriting", bytes: Some(total) });
    let spared = write(context, (dataset, settings), &eraser, &victims)?;
    let mut staged: Vec<Staged> = describe(store, &victims, &spared)?.into_values().flatten().collect();
    let mut out = Rewritten::default();
    let mut made: Vec<Made> = Vec::new();
    for (victim, mut one) in victims.iter().zip(spared) {
        made.extend(one.made());
        staged.append(&mut one.staged);
        out.places.append(&mut one.places);
        out.removes.push(victim.shard.path.clone());
        out.records += victim.ordinals.len() as u64;
        if let Some(mut finished) = one.finished {
            staged.append(&mut finished.staged);
            out.bytes += finished.shard.meta.bytes;
            out.shards.push(finished.shard);
        }
    }
    note_beside(out.shards.iter_mut(), &staged);
    out.paths = staged.iter().map(|staged| staged.path.clone()).collect();
    publication.publish(staged)?;
    made.par_iter().try_for_each(|made| eraser.prove(made))?;
    Ok(out)
}

/// The folders `key=value/` of a path; readers take columns from them, so shards of different ones are never merged.
pub(super) fn partition(path: &str) -> String {
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
        let inside: Vec<u64> = (0..50).filter(|number| ranges.contain(*number)).collect();
        assert_eq!(inside, (10..25).chain(30..40).collect::<Vec<_>>());
        assert_eq!(ranges.within(12, 31).collect::<Vec<_>>(), [12..25, 30..31]);
        assert_eq!(ranges.within(25, 30).count(), 0);
        assert!(!Ranges::default().contain(0));
    }
}
