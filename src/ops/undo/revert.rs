//! `revert`: restores the content of an older version as a new version.
//!
//! A revert adds a version and keeps the history, so it can itself be reverted. Shards that the older version has and
//! the newest does not become live again unchanged; records that were erased since stay erased.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Instant,
};

use arrow::array::{Array, AsArray};
use serde::Serialize;

use super::{ROWS, commit_and_refresh};
use crate::{
    dataset::{
        Counts, Dataset, IdKind, Operation, Publication, Restored, Retraction, ShardMeta, Snapshot, SourceRow,
        SuppressList, Transaction, read_tombstones, sidecar_batches,
    },
    error::Result,
    exec::erase::AffectedShard,
    id::{TransactionId, Version},
    ops::{
        Context,
        diff::changes_of_records,
        manifest,
        rewrite::{self, Ranges},
    },
    storage::Location,
};

/// Report of a `revert` run.
#[derive(Debug, Clone, Serialize)]
pub struct RevertReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if its content was the same already.
    pub version: Version,
    /// The version whose content it has.
    pub to: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Live records before the run.
    pub records_before: u64,
    /// Live records after the run.
    pub records_after: u64,
    /// Records of the older version that are not restored because they were erased since.
    pub records_kept_out: u64,
    /// Time taken.
    pub seconds: f64,
}

/// Reverts to a version, a tag, an instant or a duration.
///
/// # Errors
/// When there is no such version or it is no longer readable, other runs keep committing, or the store fails; nothing
/// is committed then.
pub fn revert_dataset(context: &Context<'_>, location: &Location, to: &str, dry_run: bool) -> Result<RevertReport> {
    let started = Instant::now();
    let dataset = context.open_dataset(location)?;
    if !dry_run {
        crate::ops::erase::finish_cut_short(context, Some(&dataset.open_newest()?))?;
    }
    let then = manifest::open_snapshot(context, location, Some(to))?;
    let mut report = crate::ops::until_changed(context, &dataset, &mut |newest| {
        // An erasure from all versions may have changed the content of the older one.
        let then = dataset.open_version(then.version())?;
        Revert { context, dataset: &dataset, newest, then: &then }.run(dry_run)
    })?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// One attempt of a revert.
struct Revert<'a> {
    context: &'a Context<'a>,
    dataset: &'a Dataset,
    newest: &'a Snapshot,
    then: &'a Snapshot,
}

/// Shards to be restored: unchanged ones, and ones that lose some of their records.
#[derive(Default)]
struct ShardsToRestore<'a> {
    whole: HashSet<&'a str>,
    affected_shards: Vec<AffectedShard>,
    kept_out: u64,
}

impl<'a> Revert<'a> {
    fn run(&self, dry_run: bool) -> Result<RevertReport> {
        let live: HashSet<&str> = self.newest.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
        let wanted: HashSet<&str> = self.then.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
        let removes: Vec<&ShardMeta> =
            self.newest.live_shards()?.iter().filter(|shard| !wanted.contains(shard.path.as_str())).collect();
        let restored = self.shards_to_restore(&live)?;
        let then = self.sources_then()?;
        let removed_by = |row: &SourceRow, version| match (then.contains(&(row.uri.clone(), row.version)), row.removed)
        {
            (true, _) => None,
            (false, Some(known)) => Some(known),
            (false, None) => Some(version),
        };
        let mut report = self.build_report(dry_run, removes.len() as u64, restored.kept_out)?;
        let same_sources = self.same_sources(&removed_by)?;
        let same =
            removes.is_empty() && restored.whole.is_empty() && restored.affected_shards.is_empty() && same_sources;
        if dry_run || (same && self.newest.entry().settings == self.then.entry().settings) {
            return Ok(report);
        }
        self.dataset.test_store()?;
        let transaction = TransactionId::fresh();
        let mut publication = Publication::begin(self.dataset, &transaction, Operation::Revert, self.newest.version())?;
        let (whole, places) = Restored::from_snapshot(self.then, &restored.whole)?;
        // Their record numbers are those of the older version.
        let mut rewritten =
            rewrite::rewrite_and_publish(self.context, self.then, restored.affected_shards, &mut publication, &mut 0)?;
        let known: BTreeSet<&str> = self.newest.entry().places.iter().map(|place| place.path.as_str()).collect();
        rewritten.places.extend(places.into_iter().filter(|place| !known.contains(place.path.as_str())));
        report.counts.bytes_out = rewritten.bytes;
        report.counts.shards_added = (whole.len() + rewritten.shards.len()) as u64;
        let transaction = Transaction {
            arguments: BTreeMap::from([("to".to_owned(), self.then.version().to_string())]),
            counts: report.counts,
            removes: removes.iter().map(|shard| shard.path.clone()).collect(),
            places: rewritten.places,
            retraction: Retraction {
                rewritten: rewritten.shards,
                restored: whole,
                sources: Some(&removed_by),
                only_as_planned: true,
            },
            ..Transaction::new(transaction, Operation::Revert, self.then.entry().settings.clone())
        };
        let snapshot = commit_and_refresh(self.context, self.newest, &transaction, publication)?;
        report.version = snapshot.version();
        report.records_after = snapshot.entry().totals.records;
        Ok(report)
    }

    fn build_report(&self, dry_run: bool, shards_removed: u64, kept_out: u64) -> Result<RevertReport> {
        let (changes, _) = changes_of_records(self.newest, self.then)?;
        let records_restored = changes.records_added.saturating_sub(kept_out);
        let records_before = self.newest.entry().totals.records;
        Ok(RevertReport {
            dataset: self.dataset.store().location().to_string(),
            version: self.newest.version(),
            to: self.then.version(),
            dry_run,
            counts: Counts {
                records_removed: changes.records_removed,
                records_restored,
                shards_removed,
                ..Counts::default()
            },
            records_before,
            records_after: records_before - changes.records_removed + records_restored,
            records_kept_out: kept_out,
            seconds: 0.0,
        })
    }

    /// Returns the shards of the older version that the newest lacks, without the records that were erased since.
    fn shards_to_restore(&self, live: &HashSet<&str>) -> Result<ShardsToRestore<'a>> {
        let erased = read_tombstones(self.dataset, self.newest.entry())?;
        let erased = Ranges::new(erased.iter().map(|stone| (stone.first, stone.first + stone.records)).collect());
        let suppress = SuppressList::without_key(self.newest)?;
        let store = self.dataset.store();
        let table = self.then.run_table()?;
        let by_shard = self.then.runs_by_shard()?;
        let mut out = ShardsToRestore::default();
        for shard in self.then.live_shards()?.iter().filter(|shard| !live.contains(shard.path.as_str())) {
            let runs = by_shard.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice);
            let mut rows = rewrite::rows_in(store, runs, table, &erased)?;
            if let Some(list) = &suppress {
                rows.extend(self.suppressed_rows(list, shard)?);
                rows.sort_unstable();
                rows.dedup();
            }
            out.kept_out += rows.len() as u64;
            match rows.len() as u64 {
                0 => {
                    out.whole.insert(shard.path.as_str());
                }
                all if all == shard.records => {}
                _ => out.affected_shards.push(rewrite::affected_shard(self.newest, shard, runs, rows)),
            }
        }
        Ok(out)
    }

    /// Returns the rows of a shard that have an erased id.
    fn suppressed_rows(&self, list: &SuppressList, shard: &ShardMeta) -> Result<Vec<u64>> {
        let mut rows = Vec::new();
        let mut first = 0;
        for batch in sidecar_batches(self.dataset.store(), &shard.sidecar(), ROWS)? {
            let batch = batch?;
            for (column, kind) in [(0, IdKind::Record), (1, IdKind::Subject)] {
                let ids = batch.column(column).as_string::<i32>();
                let is_erased = |row: &usize| ids.is_valid(*row) && list.has_stored(kind, ids.value(*row));
                rows.extend((0..ids.len()).filter(is_erased).map(|row| first + row as u64));
            }
            first += batch.num_rows() as u64;
        }
        Ok(rows)
    }

    /// Returns the sources whose records the older version contains.
    fn sources_then(&self) -> Result<HashSet<(String, Version)>> {
        let mut out = HashSet::new();
        self.then.each_source(&mut |row| {
            if row.removed.is_none() {
                out.insert((row.uri, row.version));
            }
            Ok(())
        })?;
        Ok(out)
    }

    fn same_sources(&self, removed_by: &dyn Fn(&SourceRow, Version) -> Option<Version>) -> Result<bool> {
        let mut same = true;
        self.newest.each_source(&mut |row| {
            same &= removed_by(&row, Version(u64::MAX)) == row.removed;
            Ok(())
        })?;
        Ok(same)
    }
}
