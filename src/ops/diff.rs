//! `manifest --diff`: what changed between two versions of a dataset.
//!
//! Records are compared by their numbers, which never change: a number that only one version has was added or removed;
//! one that both versions have in different places was moved by a compaction. Both run tables are walked once, side by
//! side. Ids are read only for records that one version alone has ([`records`]): an id on both sides was imported
//! again, with the same content or with other content. Where content hashes are not stored, the records with such ids
//! are read.

mod contents;
mod records;

use std::collections::HashSet;

pub use records::{RecordChange, RecordPlace};

use serde::Serialize;

use super::Context;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    dataset::{Beside, NumberSet, Run, ShardMeta, Snapshot, SourceRow, Totals, numbered_rows},
    error::{Error, Result},
    id::Version,
};

/// What happened to a shard, source or record between the first version and the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Only the second version has it.
    Added,
    /// Only the first version has it.
    Removed,
    /// Records only: both versions have the id, with different content.
    Changed,
    /// Records only: both versions have the id and the content, imported again.
    Rewritten,
}

/// A shard that only one of the versions has.
#[derive(Debug, Clone, Serialize)]
pub struct ShardChange {
    /// What happened to it.
    pub change: Change,
    /// Its path.
    pub shard: String,
    /// Records in it.
    pub records: u64,
    /// Its size.
    pub bytes: u64,
    /// Version that wrote it.
    pub version: Version,
}

/// A source that only one of the versions has.
#[derive(Debug, Clone, Serialize)]
pub struct SourceChange {
    /// What happened to it.
    pub change: Change,
    /// Its name in origins.
    pub source: String,
    /// Its URL or path.
    pub uri: String,
    /// Records read from it.
    pub records: u64,
    /// Its size.
    pub bytes: u64,
    /// Version that imported it.
    pub version: Version,
}

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingChange {
    /// Its name.
    pub setting: String,
    /// Its value in the first version.
    pub from: serde_json::Value,
    /// Its value in the second version.
    pub to: serde_json::Value,
}

/// Numbers of records by what happened to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RecordChanges {
    /// Records whose numbers and ids are only in the second version.
    pub records_added: u64,
    /// Records whose numbers and ids are only in the first version.
    pub records_removed: u64,
    /// Removed, and imported again with the same id and different content.
    pub records_changed: u64,
    /// Removed, and imported again with the same id and content.
    pub records_rewritten: u64,
    /// In both versions, in a different shard or row.
    pub records_moved: u64,
    /// In both versions, in the same place.
    pub records_unchanged: u64,
}

/// The difference between two versions.
#[derive(Debug, Clone, Serialize)]
pub struct DiffReport {
    /// The dataset.
    pub dataset: String,
    /// The first version.
    pub from: Version,
    /// The second version.
    pub to: Version,
    /// Shards that only the second has.
    pub shards_added: u64,
    /// Shards that only the first has.
    pub shards_removed: u64,
    /// Records.
    #[serde(flatten)]
    pub records: RecordChanges,
    /// Sources that only the second has.
    pub sources_added: u64,
    /// Sources that only the first has.
    pub sources_removed: u64,
    /// Bytes of shards that only the second has.
    pub bytes_added: u64,
    /// Bytes of shards that only the first has.
    pub bytes_removed: u64,
    /// Settings that differ.
    pub settings_changed: u64,
    /// Live totals of the first version.
    pub before: Totals,
    /// Live totals of the second version.
    pub after: Totals,
    /// The shards.
    #[serde(skip)]
    pub shards: Vec<ShardChange>,
    /// The sources.
    #[serde(skip)]
    pub sources: Vec<SourceChange>,
    /// The settings.
    #[serde(skip)]
    pub settings: Vec<SettingChange>,
}

/// Compares two versions of one dataset; the first need not be the older one. Every record that was added, removed or
/// changed is passed to `visit`, until that asks for the count alone.
///
/// # Errors
/// When lists or sidecars cannot be read, temporary files cannot be written, or `visit` fails.
pub fn diff_versions(
    context: &Context<'_>,
    first: &Snapshot,
    second: &Snapshot,
    visit: &mut dyn FnMut(RecordChange) -> Result<Wants>,
) -> Result<DiffReport> {
    super::or_overtaken([first, second], compare_versions(context, first, second, visit))
}

fn compare_versions(
    context: &Context<'_>,
    first: &Snapshot,
    second: &Snapshot,
    visit: &mut dyn FnMut(RecordChange) -> Result<Wants>,
) -> Result<DiffReport> {
    let shards = shard_changes(first.live_shards()?, second.live_shards()?);
    let sources = source_changes(first, second)?;
    let settings = setting_changes(first, second)?;
    let (mut records, only) = changes_of_records(first, second)?;
    records::find_changes(context, first, second, &only, &mut records, visit)?;
    let count = |change| shards.iter().filter(|s| s.change == change).count() as u64;
    let bytes = |change| shards.iter().filter(|s| s.change == change).map(|s| s.bytes).sum();
    let count_sources = |change| sources.iter().filter(|s| s.change == change).count() as u64;
    Ok(DiffReport {
        dataset: first.dataset().store().location().to_string(),
        from: first.version(),
        to: second.version(),
        shards_added: count(Change::Added),
        shards_removed: count(Change::Removed),
        records,
        sources_added: count_sources(Change::Added),
        sources_removed: count_sources(Change::Removed),
        bytes_added: bytes(Change::Added),
        bytes_removed: bytes(Change::Removed),
        settings_changed: settings.len() as u64,
        before: first.entry().totals,
        after: second.entry().totals,
        shards,
        sources,
        settings,
    })
}

fn shard_changes(first: &[ShardMeta], second: &[ShardMeta]) -> Vec<ShardChange> {
    let only = |these: &[ShardMeta], others: &[ShardMeta], change| {
        let others: HashSet<&str> = others.iter().map(|s| s.path.as_str()).collect();
        let change = |s: &ShardMeta| ShardChange {
            change,
            shard: s.path.clone(),
            records: s.records,
            bytes: s.bytes,
            version: s.version,
        };
        these.iter().filter(|s| !others.contains(s.path.as_str())).map(change).collect::<Vec<_>>()
    };
    let mut out = only(first, second, Change::Removed);
    out.extend(only(second, first, Change::Added));
    out
}

/// Returns the sources whose records only one of the versions has.
fn source_changes(first: &Snapshot, second: &Snapshot) -> Result<Vec<SourceChange>> {
    let known = |row: &SourceRow| (row.version, xxh3_64(row.uri.as_bytes()));
    let all = |snapshot: &Snapshot| {
        let mut all = HashSet::new();
        snapshot.each_source(&mut |row| {
            if row.removed.is_none() {
                all.insert(known(&row));
            }
            Ok(())
        })?;
        Ok::<_, Error>(all)
    };
    let mut out = Vec::new();
    for (change, with, without) in [(Change::Removed, first, second), (Change::Added, second, first)] {
        let others = all(without)?;
        with.each_source(&mut |row| {
            if row.removed.is_none() && !others.contains(&known(&row)) {
                let SourceRow { name: source, uri, records, bytes, version, .. } = row;
                out.push(SourceChange { change, source, uri, records, bytes, version });
            }
            Ok(())
        })?;
    }
    out.sort_by(|a, b| (a.version, &a.source, &a.uri).cmp(&(b.version, &b.source, &b.uri)));
    Ok(out)
}

fn setting_changes(first: &Snapshot, second: &Snapshot) -> Result<Vec<SettingChange>> {
    let values = |snapshot: &Snapshot| {
        serde_json::to_value(&snapshot.entry().settings)
            .map_err(|e| Error::internal("encoding the settings failed").with_cause(e))
    };
    let (before, after) = (values(first)?, values(second)?);
    let names = after.as_object().into_iter().flatten().map(|(name, _)| name);
    let change = |name: &String| SettingChange {
        setting: name.clone(),
        from: before.get(name).cloned().unwrap_or_default(),
        to: after.get(name).cloned().unwrap_or_default(),
    };
    Ok(names.map(change).filter(|c| c.from != c.to).collect())
}

/// What a visitor wants to receive next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// All remaining records.
    More,
    /// No further records, only their number.
    Count,
}

/// Ranges of record numbers that only one version has: first number and the number after the last, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Only {
    first: Vec<(u64, u64)>,
    second: Vec<(u64, u64)>,
}

/// Classifies records by their numbers.
pub(super) fn changes_of_records(first: &Snapshot, second: &Snapshot) -> Result<(RecordChanges, Only)> {
    let (mut one, mut other) = (live_runs(first)?, live_runs(second)?);
    // A sorted shard that is in both versions has not changed, so its numbers need not be read.
    let sorted = |runs: &[Run]| -> HashSet<String> {
        runs.iter().filter(|run| run.scattered.is_some()).map(|run| run.shard.clone()).collect()
    };
    let (in_one, in_other) = (sorted(&one), sorted(&other));
    let stays = |run: &Run| in_one.contains(&run.shard) && in_other.contains(&run.shard);
    let unchanged: u64 = one.iter().filter(|run| stays(run)).map(|run| run.records).sum();
    one.retain(|run| !stays(run));
    other.retain(|run| !stays(run));
    let (one, other) = (gather_runs(first, one)?, gather_runs(second, other)?);
    let (mut changes, only) = record_changes(&one.iter().collect::<Vec<_>>(), &other.iter().collect::<Vec<_>>())
        .ok_or_else(|| {
            Error::integrity("the log is damaged: expected each record in one shard, found runs that overlap")
                .at_location(first.dataset().store().location().to_string())
                .with_hint("`shardify verify` names what is damaged")
        })?;
    changes.records_unchanged += unchanged;
    Ok((changes, only))
}

/// Returns the runs of a snapshot's version in the order of their records.
fn live_runs(snapshot: &Snapshot) -> Result<Vec<Run>> {
    Ok(snapshot.run_table()?.as_slice().iter().filter(|run| run.is_in_version(snapshot.version())).cloned().collect())
}

/// Returns the same runs, in order and without overlaps: the numbers of sorted shards are read and become ranges. Which
/// of the sorted shards holds a record does not matter here, because the other version has none of them.
fn gather_runs(snapshot: &Snapshot, runs: Vec<Run>) -> Result<Vec<Run>> {
    let (scattered, mut runs): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| run.scattered.is_some());
    let mut numbers = NumberSet::default();
    for run in &scattered {
        for known in numbered_rows(snapshot.dataset().store(), &[run], snapshot.run_table()?)? {
            numbers.insert(known?.map_or(run.first, |known| known.record));
        }
    }
    let shard = format!("sorted in {}", snapshot.version());
    let run = |(first, records)| Run {
        first,
        records,
        shard: shard.clone(),
        ordinal: 0,
        from: snapshot.version(),
        until: None,
        since: None,
        scattered: None,
        beside: Beside::placeholder(),
    };
    runs.extend(numbers.to_ranges().into_iter().map(run));
    runs.sort_by_key(|run| run.first);
    Ok(runs)
}

/// Walks two lists of runs, each ordered by record number; `None` if some of one list overlap.
fn record_changes(first: &[&Run], second: &[&Run]) -> Option<(RecordChanges, Only)> {
    let (mut out, mut only) = (RecordChanges::default(), Only::default());
    let (mut i, mut j, mut at) = (0, 0, 0_u64);
    while i < first.len() || j < second.len() {
        let a = first.get(i).map(|r| (r.first.max(at), r.first + r.records));
        let b = second.get(j).map(|r| (r.first.max(at), r.first + r.records));
        let start = a.map_or(u64::MAX, |a| a.0).min(b.map_or(u64::MAX, |b| b.0));
        let in_a = a.filter(|a| a.0 == start);
        let in_b = b.filter(|b| b.0 == start);
        // The next position at which something may change: the end of a run, or the start of a later one.
        let ahead = |span: Option<(u64, u64)>| span.map_or(u64::MAX, |s| if s.0 == start { s.1 } else { s.0 });
        let end = ahead(a).min(ahead(b));
        let records = end.checked_sub(start)?;
        match (in_a, in_b) {
            (Some(_), Some(_)) => {
                let (one, other) = (first[i], second[j]);
                let stays = one.shard == other.shard
                    && one.ordinal + (start - one.first) == other.ordinal + (start - other.first);
                *(if stays { &mut out.records_unchanged } else { &mut out.records_moved }) += records;
            }
            (Some(_), None) => {
                out.records_removed += records;
                only.first.push((start, end));
            }
            (None, _) => {
                out.records_added += records;
                only.second.push((start, end));
            }
        }
        at = end;
        i += usize::from(a.is_some_and(|a| a.1 <= at));
        j += usize::from(b.is_some_and(|b| b.1 <= at));
    }
    Some((out, only))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn run(first: u64, records: u64, shard: &str, ordinal: u64) -> Run {
        Run {
            first,
            records,
            shard: shard.into(),
            ordinal,
            from: Version(1),
            until: None,
            since: None,
            scattered: None,
            beside: crate::dataset::Beside::placeholder(),
        }
    }

    #[test]
    fn runs_that_overlap_are_told() {
        let (one, other) = ([run(0, 10, "a", 0), run(5, 3, "b", 0)], [run(0, 20, "c", 0)]);
        assert!(record_changes(&one.iter().collect::<Vec<_>>(), &other.iter().collect::<Vec<_>>()).is_none());
    }

    fn changes(first: &[Run], second: &[Run]) -> (u64, u64, u64, u64) {
        let (found, _) = record_changes(&first.iter().collect::<Vec<_>>(), &second.iter().collect::<Vec<_>>()).unwrap();
        (found.records_added, found.records_removed, found.records_moved, found.records_unchanged)
    }

    #[test]
    fn records_are_added_removed_moved_or_left_where_they_are() {
        let old = [run(0, 100, "a", 0), run(100, 50, "b", 0)];
        assert_eq!(changes(&old, &old), (0, 0, 0, 150));
        assert_eq!(changes(&[], &old), (150, 0, 0, 0));
        assert_eq!(changes(&old, &[]), (0, 150, 0, 0));
        let merged = [run(0, 100, "c", 0), run(100, 50, "c", 100), run(150, 7, "d", 0)];
        assert_eq!(changes(&old, &merged), (7, 0, 150, 0));
        // A gap in the middle of a shard that stays.
        let erased = [run(0, 40, "a", 0), run(60, 40, "a", 60), run(100, 50, "b", 0)];
        assert_eq!(changes(&old, &erased), (0, 20, 0, 130));
        assert_eq!(changes(&erased, &old), (20, 0, 0, 130));
    }
}
