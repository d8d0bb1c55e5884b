//! Commits merges and divisions: new shards take the place of those that they hold the records of.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    merge::{LiveShards, MergeGroup, Product},
    report::{CompactReport, all_gone, replacement_counts},
};
use crate::{
    dataset::{
        Counts, Dataset, NewShard, Publication, SegmentMerge, Settings, Snapshot, Transaction, commit_transaction,
        folder_of,
    },
    error::{Kind, Result},
    exec::{constants::ConstantSets, types},
    id::Version,
    indexes,
    storage::Staged,
    units::Size,
};

/// A merge that is written.
pub(super) struct Replacement {
    /// The new shard, and its group.
    pub(super) product: Product,
    /// Paths of its objects.
    pub(super) paths: Vec<String>,
}

/// What the merges of a run have in common.
pub(super) struct CompactCommit<'a> {
    /// The newest version when the run began to commit.
    pub(super) parent: &'a Snapshot,
    /// The version that the groups were made on.
    pub(super) base: Version,
    /// All groups.
    pub(super) groups: &'a [MergeGroup],
    /// Settings of the new shards.
    pub(super) settings: &'a Settings,
    /// Target size that the user asked for, which becomes the dataset's.
    pub(super) target: Option<Size>,
    /// Constants of the old shards.
    pub(super) constants: &'a ConstantSets,
    /// How often the run tried to commit before.
    pub(super) calls: usize,
}

/// Segments of the id index that are merged in the same commit, and their objects.
pub(super) type Segments = (Vec<SegmentMerge>, Vec<Staged>);

impl CompactCommit<'_> {
    fn dataset(&self) -> &Dataset {
        self.parent.dataset()
    }

    /// Returns the shards that are live now.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(super) fn read_live(&self) -> Result<LiveShards> {
        LiveShards::read_newest(self.dataset(), self.base)
    }

    /// Commits the merges together, and repeats without those whose old shards are gone, until all of these are live.
    /// `staged` are objects of new shards that are not published yet.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if no old shards are live, or other runs are faster; when the store fails.
    pub(super) fn commit(
        &self,
        mut all: Vec<Replacement>,
        (merges, mut staged): Segments,
        publication: &mut Publication<'_>,
        report: &mut CompactReport,
    ) -> Result<Snapshot> {
        for call in 0.. {
            if all.is_empty() {
                return Err(all_gone());
            }
            let mut publishing = self.stage_descriptions(&all)?;
            let described: Vec<String> = publishing.iter().map(|staged| staged.path.clone()).collect();
            publishing.append(&mut staged);
            publication.publish_shards(all.iter_mut().map(|one| &mut one.product.shard), publishing)?;
            let transaction = Transaction {
                id: publication.run_id().clone(),
                merges: merges.clone(),
                calls: self.calls + call,
                ..self.build_transaction(&all, report)?
            };
            match publication.attempt_commit(|| commit_transaction(self.dataset(), &transaction, self.base)) {
                Ok(snapshot) => {
                    report.version = snapshot.version();
                    report.shards_after = snapshot.entry().totals.shards;
                    report.segments_merged = merges.iter().map(|merge| merge.replaces.len() as u64).sum();
                    report.segments_after = snapshot.entry().segments.len() as u64;
                    report.groups_dropped = (self.groups.len() - groups_of(&all).len()) as u64;
                    return Ok(snapshot);
                }
                Err(error) if error.kind() == Kind::Conflict => {
                    let live = self.read_live()?;
                    let (left, lost): (Vec<_>, Vec<_>) =
                        all.into_iter().partition(|one| live.has_group(&self.groups[one.product.group]));
                    if lost.is_empty() {
                        return Err(error);
                    }
                    all = left;
                    // The descriptions of the folders are made again for the remaining merges.
                    let lost = lost.into_iter().flat_map(|one| one.paths).chain(described);
                    publication.withdraw_objects(&lost.collect::<Vec<_>>())?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(all_gone())
    }

    /// Stages the descriptions of the new shards' folders: indexes, types of rows, and constants.
    fn stage_descriptions(&self, all: &[Replacement]) -> Result<Vec<Staged>> {
        let store = self.dataset().store().as_ref();
        let new = all.iter().map(|one| (&one.product.shard.meta, one.product.md5));
        let mut staged = indexes::of_folders(store, &self.settings.indexes, new)?;
        staged.extend(self.stage_types(all)?);
        let mut folders = BTreeSet::new();
        for one in all {
            let folder = folder_of(&one.product.shard.meta.path);
            let Some(input) = self.groups[one.product.group].inputs.first() else { continue };
            if folders.insert(folder) {
                staged.extend(self.constants.stage_for_folder(store, input, folder)?);
            }
        }
        Ok(staged)
    }

    /// Stages the `schema.json` of the new shards' folders, with the columns of the old ones.
    fn stage_types(&self, all: &[Replacement]) -> Result<Vec<Staged>> {
        if self.settings.shard_format.is_columnar() {
            return Ok(Vec::new());
        }
        let store = self.dataset().store().as_ref();
        let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for one in all {
            let inputs = self.groups[one.product.group].inputs.iter().map(String::as_str);
            folders.entry(folder_of(&one.product.shard.meta.path)).or_default().extend(inputs);
        }
        let types = self.parent.entry().settings.types.as_ref();
        let stage = |(folder, inputs): (&str, Vec<&str>)| {
            let fields = types::of_shards(store, inputs.into_iter(), types)?;
            fields.map(|fields| types::stage_types(store, folder, &fields)).transpose()
        };
        folders.into_iter().filter_map(|folder| stage(folder).transpose()).collect()
    }

    fn removed_shards(&self, all: &[Replacement]) -> Vec<String> {
        groups_of(all).into_iter().flat_map(|group| &self.groups[group].inputs).cloned().collect()
    }

    fn build_transaction(&self, all: &[Replacement], report: &mut CompactReport) -> Result<Transaction<'static>> {
        let removes = self.removed_shards(all);
        let adds: Vec<NewShard> = all.iter().map(|one| one.product.shard.clone()).collect();
        let tallies = || all.iter().map(|one| &one.product.tally);
        report.bytes_copied = tallies().map(|tally| tally.copied).sum();
        report.bytes_spliced = tallies().map(|tally| tally.spliced).sum();
        report.bytes_reencoded = tallies().map(|tally| tally.reencoded).sum();
        // A merge fails unless it has all records of its inputs.
        let records = adds.iter().map(|shard| shard.meta.records).sum();
        let bytes = groups_of(all).into_iter().map(|group| self.groups[group].bytes).sum();
        report.counts = replacement_counts(records, bytes, &adds, &removes)?;
        Ok(self.new_compaction(report.counts, adds, removes))
    }

    fn new_compaction(&self, counts: Counts, adds: Vec<NewShard>, removes: Vec<String>) -> Transaction<'static> {
        let mut arguments = BTreeMap::new();
        arguments.insert("target-shard".to_owned(), self.settings.target_shard.0.to_string());
        let compaction = Transaction::for_compaction(self.parent, arguments, counts, adds, removes);
        match self.target {
            Some(target) => compaction.with_target(target),
            None => compaction,
        }
    }
}

/// Returns the groups of new shards: several shards may have one.
fn groups_of(all: &[Replacement]) -> BTreeSet<usize> {
    all.iter().map(|one| one.product.group).collect()
}
