//! `compact --sort-by` and `--zorder`: rewrites shards so that their records are in order, or reports what it would
//! rewrite.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Context,
    compact::report::{CompactReport, ShardChoice, all_gone, folder_suffix, replaced_shards, replacement_counts},
};
use crate::{
    dataset::{NewShard, Operation, Order, Publication, Settings, ShardMeta, Snapshot, Transaction},
    error::{Error, Kind, Result},
    events::Event,
    exec::{
        constants::ConstantSets,
        rewrite::Rewriter,
        shard::ShardNaming,
        sort::{Sort, SortInput, Sorted, Sorter, shard_ranges},
    },
    id::TransactionId,
    indexes::version::{PreparedIndexes, refresh_indexes},
    plan::{
        compact::{CompactOptions, in_window},
        sort::{SortCandidate, SortGroup, SortMemory, SortOptions, SortPlan, plan_sorts, undecided_shards},
    },
    storage::Staged,
};

/// Inputs and settings of a sort.
pub(super) struct Sorting<'a> {
    /// Context of the operation.
    pub(super) context: &'a Context<'a>,
    /// The version that is sorted.
    pub(super) snapshot: &'a Snapshot,
    /// Settings of the dataset, with the user's changes.
    pub(super) settings: Settings,
    /// The requested order.
    pub(super) order: &'a Order,
    /// Constants of the shards.
    pub(super) constants: ConstantSets,
}

/// A group and its result.
struct SortedGroup<'a> {
    group: &'a SortGroup,
    sorted: Sorted,
}

fn is_gone(group: &SortGroup, replaced: &BTreeSet<usize>) -> bool {
    group.all_inputs().any(|i| replaced.contains(&i))
}

impl Sorting<'_> {
    /// Plans the sort, and carries it out unless `dry_run` is set.
    pub(super) fn run(&self, options: &CompactOptions, dry_run: bool) -> Result<CompactReport> {
        if !self.settings.shard_format.is_columnar() {
            return Err(Error::usage(format!(
                "only a dataset with Parquet shards can be sorted; this one has {}",
                self.settings.shard_format.title()
            ))
            .at_location(self.snapshot.dataset().store().location().to_string())
            .with_hint("convert its sources into another dataset with --to parquet, then compact that one")
            .with_hint("without --sort-by and --zorder its shards are merged in record order"));
        }
        let (order, target, min_inputs) = (self.order.clone(), self.settings.target_shard, options.min_inputs);
        let plan = plan_sorts(&self.sort_candidates(options)?, &SortOptions { order, target, min_inputs });
        let mut report = self.build_report(&plan, dry_run)?;
        if dry_run {
            return Ok(report);
        }
        if plan.groups.is_empty() {
            // A run that was killed after its commit may have left outdated indexes.
            refresh_indexes(self.snapshot, PreparedIndexes::default(), self.context.observer)?;
            return Ok(report);
        }
        self.sort_groups(&plan, &mut report)?;
        Ok(report)
    }

    fn sort_candidates(&self, options: &CompactOptions) -> Result<Vec<SortCandidate>> {
        let shards = self.snapshot.live_shards()?;
        let mut candidates: Vec<SortCandidate> = shards
            .iter()
            .map(|shard| SortCandidate {
                bytes: shard.bytes,
                records: shard.records,
                in_window: in_window(
                    shard.version,
                    self.snapshot.committed_at(shard.version, shard.committed_at),
                    options,
                ),
                partition: folder_suffix(&shard.path, &self.constants),
                order: shard.order.clone(),
                range: None,
            })
            .collect();
        for inputs in undecided_shards(&candidates, self.order) {
            let of = |i: &usize| (&shards[*i], shards[*i].order.as_ref().is_some_and(|o| o.order == *self.order));
            let asked: Vec<(&ShardMeta, bool)> = inputs.iter().map(of).collect();
            let ranges = shard_ranges(self.snapshot.dataset(), &asked, self.order, &self.context.cancel)?;
            for (i, range) in inputs.into_iter().zip(ranges) {
                candidates[i].range = range;
            }
        }
        Ok(candidates)
    }

    fn build_report(&self, plan: &SortPlan, dry_run: bool) -> Result<CompactReport> {
        let shards = self.snapshot.live_shards()?;
        let target = self.settings.target_shard.0;
        let made: u64 = plan.groups.iter().map(|group| ((group.bytes + target / 2) / target).max(1)).sum();
        let replaced: usize = plan.groups.iter().map(|group| group.all_inputs().count()).sum();
        Ok(CompactReport {
            order: Some(self.order.to_string()),
            shards_after: (shards.len() - replaced) as u64 + made,
            choices: shards
                .iter()
                .zip(&plan.choices)
                .map(|(shard, choice)| ShardChoice {
                    shard: shard.path.clone(),
                    bytes: shard.bytes,
                    choice: if choice.group_number().is_some() { "sort" } else { "keep" },
                    group: choice.group_number(),
                    reason: choice.reason(),
                })
                .collect(),
            ..CompactReport::before_run(self.snapshot, shards.len() as u64, dry_run)
        })
    }

    fn sort_groups(&self, plan: &SortPlan, report: &mut CompactReport) -> Result<()> {
        let context = self.context;
        let transaction = TransactionId::fresh();
        let naming = ShardNaming::for_dataset(&self.settings, transaction.short_tag());
        let dataset = self.snapshot.dataset();
        dataset.test_store()?;
        let publication = Publication::begin(dataset, &transaction, Operation::Compact, self.snapshot.version())?;
        let total = plan.groups.iter().map(|g| g.bytes).sum();
        context.observer.event(Event::Phase { name: "sorting", bytes: Some(total) });
        let target = self.settings.target_shard;
        let memory = context.memory_plan(&self.settings);
        let sorter = Sorter {
            rewriter: Rewriter {
                dataset,
                row_group: memory.unit_bytes,
                observer: context.observer,
                cancel: &context.cancel,
            },
            runs: self.snapshot.run_table()?,
            order: self.order,
            naming: &naming,
            target: target.0,
            memory: SortMemory::new(context.memory),
            jobs: context.jobs,
        };
        let sorts = self.group_sorts(plan, &transaction)?;
        let mut done = Vec::with_capacity(sorts.len());
        for (group, sort) in plan.groups.iter().zip(&sorts) {
            match sorter.sort_shards(sort) {
                Ok(sorted) => done.push(SortedGroup { group, sorted }),
                Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                // Another run committed first, and the shards it replaced may have been vacuumed.
                Err(_) if is_gone(group, &replaced_shards(self.snapshot)?) => {}
                Err(error) => return Err(error),
            }
        }
        report.folder = Some(naming.tag.clone());
        self.commit_sorted(plan, done, publication, report)
    }

    fn group_sorts(&self, plan: &SortPlan, transaction: &TransactionId) -> Result<Vec<Sort>> {
        let shards = self.snapshot.live_shards()?;
        let runs = self.snapshot.runs_by_shard()?;
        let input = |i: &usize| -> SortInput {
            let shard = shards[*i].clone();
            let runs = runs.get(shard.path.as_str()).into_iter().flatten().map(|run| (*run).clone()).collect();
            (shard, runs)
        };
        let sort = |(number, group): (usize, &crate::plan::sort::SortGroup)| Sort {
            unsorted: group.unsorted.iter().map(input).collect(),
            sets: group.sets.iter().map(|set| set.iter().map(input).collect()).collect(),
            partition: group.partition.clone(),
            set: transaction.tag_of(number),
        };
        Ok(plan.groups.iter().enumerate().map(sort).collect())
    }

    /// Commits the sorted groups; groups whose inputs another run has replaced are skipped, and what was written for
    /// them is deleted.
    fn commit_sorted(
        &self,
        plan: &SortPlan,
        mut done: Vec<SortedGroup<'_>>,
        mut publication: Publication<'_>,
        report: &mut CompactReport,
    ) -> Result<()> {
        let replaced = replaced_shards(self.snapshot)?;
        done.retain(|done| !is_gone(done.group, &replaced));
        if done.is_empty() {
            return Err(all_gone());
        }
        report.groups_dropped = (plan.groups.len() - done.len()) as u64;
        let groups: Vec<&SortGroup> = done.iter().map(|done| done.group).collect();
        let shards = self.snapshot.live_shards()?;
        let removes: Vec<String> =
            groups.iter().flat_map(|group| group.all_inputs().map(|i| shards[i].path.clone())).collect();
        let (mut places, mut adds) = (Vec::new(), Vec::<NewShard>::new());
        let mut staged: Vec<Staged> = Vec::new();
        let mut folders = BTreeSet::new();
        for SortedGroup { group, sorted: one } in done {
            let store = self.snapshot.dataset().store().as_ref();
            let first = one.shards.first().and_then(|shard| shard.shard.meta.path.rsplit_once('/'));
            if let (Some((folder, _)), Some(input)) = (first, group.all_inputs().next())
                && folders.insert(folder.to_owned())
            {
                staged.extend(self.constants.stage_for_folder(store, &shards[input].path, folder)?);
            }
            places.extend(one.places);
            staged.extend(one.staged);
            for finished in one.shards {
                staged.extend(finished.staged);
                let mut shard = finished.shard;
                shard.meta.compacted_for = self.settings.target_shard.0;
                adds.push(shard);
            }
        }
        report.bytes_reencoded = groups.iter().map(|g| g.bytes).sum();
        let records = groups.iter().map(|g| g.records).sum();
        report.counts = replacement_counts(records, report.bytes_reencoded, &adds, &removes)?;
        self.context.cancel.check()?;
        publication.publish_shards(adds.iter_mut(), staged)?;
        let mut arguments = BTreeMap::new();
        arguments.insert("target-shard".to_owned(), self.settings.target_shard.0.to_string());
        let option = match self.order.by {
            crate::dataset::Arrangement::Sort => "sort-by",
            crate::dataset::Arrangement::ZOrder => "zorder",
            crate::dataset::Arrangement::Shuffle => "shuffle",
        };
        arguments.insert(option.to_owned(), self.order.columns.join(","));
        let transaction = Transaction {
            id: publication.run_id().clone(),
            places,
            ..Transaction::for_compaction(self.snapshot, arguments, report.counts, adds, removes)
                .with_target(self.settings.target_shard)
        };
        let snapshot = publication.commit(&transaction)?;
        report.version = snapshot.version();
        report.shards_after = snapshot.entry().totals.shards;
        refresh_indexes(&snapshot, PreparedIndexes::default(), self.context.observer)
    }
}
