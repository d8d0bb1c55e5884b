//! Compactions in tasks: the groups of a plan are merged by any number of processes, and committed together.
//!
//! The plan has a row for each shard to be merged, in the order of the tasks; its `key` is the number of its group. The
//! shards of a task lie in folders of its attempt, so groups whose constants differ are never in one task. Records keep
//! their numbers, so the outcomes need no stacking; a group whose shards were replaced since the plan is omitted by
//! the commit, as by a compaction of one process.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    CompactReport, Options, ProofLevel, all_gone, choose_shards,
    commit::{CompactCommit, Replacement},
    merge::{LiveShards, MergeGroup, Merging, Product},
    tell_target,
};
use crate::{
    dataset::{
        Damage, Dataset, MADE_UP_HINT, NewShard, Operation, Outcome, OutcomeCounts, OutcomeShard, PlanRecord, PlanTask,
        PlannedSource, Publication, Settings, ShardMeta, Snapshot, delete_plan, is_of_plan,
    },
    error::{Effect, Error, Kind, Result},
    exec::{constants::ConstantSets, shard::ShardNaming},
    format::parquet::Tally,
    id::{TransactionId, Writer},
    indexes::version::{PreparedIndexes, refresh_indexes},
    ops::{
        Context,
        planned::{self, Planned, TaskRunner},
        rewrite::partition_folders,
        segments,
        tasks::{self, Committed, PlanReport, Tasks},
        verify::tasks::check_merge,
    },
    plan,
    storage::Location,
    units::Size,
};

/// What all tasks of a plan share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompactWork {
    /// Settings of the new shards.
    settings: Settings,
    /// Target size that the user asked for, which becomes the dataset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<Size>,
    /// The memory limit that the sizes of row groups follow from, whatever memory a task may use.
    memory: Size,
    no_check: bool,
    compare: bool,
}

impl CompactWork {
    fn proof_level(&self) -> ProofLevel {
        if self.compare { ProofLevel::Full } else { ProofLevel::Checksums }
    }
}

/// Plans a compaction without running it.
///
/// # Errors
/// As [`compact_dataset`](super::compact_dataset), and if records are to be sorted.
pub fn plan_compaction(
    context: &Context<'_>,
    location: &Location,
    options: &Options,
    task_size: Option<Size>,
) -> Result<PlanReport> {
    let started = Instant::now();
    if options.order.is_some() {
        return Err(Error::usage("expected a compaction that keeps the order of records, found --sort-by or --zorder")
            .with_hint("sorting has to see all records: run `shardify compact` on one machine"));
    }
    let dataset = context.open_dataset(location)?;
    let mut report = crate::ops::of_newest(&dataset, &mut |snapshot| {
        crate::ops::erase::finish_cut_short(context, Some(snapshot))?;
        find_or_store(context, snapshot, options, task_size.unwrap_or(plan::tasks::DEFAULT_TASK_SIZE))
    })?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Stores the plan of a compaction of a snapshot, or finds an open one of the same groups and options.
fn find_or_store(context: &Context<'_>, snapshot: &Snapshot, options: &Options, task_size: Size) -> Result<PlanReport> {
    let dataset = snapshot.dataset();
    let (settings, choice, constants) = choose_shards(snapshot, options)?;
    let shards = snapshot.live_shards()?;
    let mut groups = choice.groups;
    // Groups with the same constants follow each other, because a task has one folder of each name.
    let kind =
        |group: &plan::compact::Group| group.inputs.first().map_or(0, |i| constants.content_number(&shards[*i].path));
    groups.sort_by_key(kind);
    let inputs: usize = groups.iter().map(|group| group.inputs.len()).sum();
    let mut report = PlanReport::without_tasks(dataset, Operation::Compact, (shards.len() - inputs) as u64);
    if groups.is_empty() {
        return Ok(report);
    }
    let mut planned: Vec<PlanTask> = Vec::new();
    for same in groups.chunk_by(|a, b| kind(a) == kind(b)) {
        let units: Vec<(u64, u64)> = same.iter().map(|group| (group.bytes, group.inputs.len() as u64)).collect();
        tasks::add_tasks(&mut planned, &units, task_size);
    }
    let work = CompactWork {
        settings,
        target: options.target_shard,
        memory: context.memory,
        no_check: options.no_check,
        compare: options.proof == ProofLevel::Full,
    };
    let rows = planned_rows(shards, &groups);
    let record = tasks::store_plan(dataset, Some(snapshot), Operation::Compact, work.to_value()?, planned, rows)?;
    report.set_plan(dataset, &record)?;
    report.sources = inputs as u64;
    report.bytes = groups.iter().map(|group| group.bytes).sum();
    report.shards = groups.iter().map(|group| group.shards).sum();
    report.records = groups.iter().map(|group| group.records).sum();
    Ok(report)
}

/// Returns a row for each shard to be merged.
fn planned_rows(shards: &[ShardMeta], groups: &[plan::compact::Group]) -> Vec<PlannedSource> {
    let row = |number: usize, shard: &ShardMeta| PlannedSource {
        path: shard.path.clone(),
        bytes: shard.bytes,
        key: number.to_string(),
        ..PlannedSource::default()
    };
    let of_group = |(number, group): (usize, &plan::compact::Group)| -> Vec<PlannedSource> {
        group.inputs.iter().map(|i| row(number, &shards[*i])).collect()
    };
    groups.iter().enumerate().flat_map(of_group).collect()
}

/// The groups of a task, each with its number in the plan.
fn groups_of(dataset: &Dataset, record: &PlanRecord, task: usize) -> Result<Vec<(u64, MergeGroup)>> {
    let mut groups: Vec<(u64, MergeGroup)> = Vec::new();
    for PlannedSource { path, bytes, key, .. } in record.sources_of(dataset.store(), task)? {
        let number: u64 =
            key.parse().map_err(|e| Error::integrity("expected the number of a group in the plan").with_cause(e))?;
        match groups.last_mut() {
            Some((last, group)) if *last == number => {
                group.bytes += bytes;
                group.inputs.push(path);
            }
            _ => {
                let partition = format!("/{}", partition_folders(&path));
                groups.push((number, MergeGroup { inputs: vec![path], bytes, partition }));
            }
        }
    }
    Ok(groups)
}

/// Runs the tasks of a plan.
struct CompactRunner<'a> {
    work: &'a CompactWork,
    tasks: Tasks<'a>,
}

impl TaskRunner for CompactRunner<'_> {
    fn prepare_write(&self, task: usize) -> Result<planned::TaskWrite<'_>> {
        let Tasks { dataset, record, .. } = self.tasks;
        let snapshot = at_base(dataset, record)?;
        let groups = groups_of(dataset, record, task)?;
        Ok(Box::new(move |writer: &Writer| self.write(task, &snapshot, groups, writer)))
    }
}

impl CompactRunner<'_> {
    fn write(
        &self,
        task: usize,
        snapshot: &Snapshot,
        groups: Vec<(u64, MergeGroup)>,
        writer: &Writer,
    ) -> Result<planned::Written> {
        let Self { work, tasks: Tasks { context, record, .. } } = *self;
        let (numbers, groups): (Vec<u64>, Vec<MergeGroup>) = groups.into_iter().unzip();
        let merging = Merging {
            context,
            snapshot,
            settings: &work.settings,
            memory: work.memory,
            no_check: work.no_check,
            proof: work.proof_level(),
        };
        let merges = merging.merge_all(&ShardNaming::for_dataset(&work.settings, writer.shard_folder()), &groups)?;
        let outcome = tasks::empty_outcome(record, task, writer);
        let mut written = planned::Written::without_objects(outcome);
        let damage = |error: &Error| Damage { place: error.place().to_string(), problem: error.message().to_owned() };
        written.outcome.damaged = merges.damaged.iter().map(damage).collect();
        let (mut tally, mut done) = (Tally::default(), HashSet::new());
        let counts = &mut written.outcome.counts;
        for (product, objects) in merges.products {
            tally += product.tally;
            if done.insert(product.group) {
                counts.shards_removed += groups[product.group].inputs.len() as u64;
                counts.bytes_in += groups[product.group].bytes;
            }
            counts.shards_added += 1;
            counts.bytes_out += product.shard.meta.bytes;
            counts.records_out += product.shard.meta.records;
            written.staged.extend(objects);
            written.groups.push((numbers[product.group], product.md5));
            written.adds.push(product.shard);
        }
        counts.records_in = counts.records_out;
        written.outcome.records = counts.records_out;
        written.outcome.others = OutcomeCounts {
            bytes_copied: tally.copied,
            bytes_spliced: tally.spliced,
            bytes_reencoded: tally.reencoded,
            ..OutcomeCounts::default()
        };
        Ok(written)
    }
}

/// Opens the version that a plan was made on.
fn at_base(dataset: &Dataset, record: &PlanRecord) -> Result<Snapshot> {
    dataset.open_version(record.base).map_err(|error| match error.kind() {
        Kind::Usage => Error::conflict(format!("{}, on which this plan was made, was vacuumed", record.base))
            .at_location(dataset.store().location().to_string())
            .with_hint("plan again, and let `vacuum` retain versions for longer than the tasks take"),
        _ => error,
    })
}

impl Planned for CompactWork {
    const OPERATION: Operation = Operation::Compact;
    type Report = CompactReport;

    fn task_runner<'a>(&'a self, tasks: Tasks<'a>) -> Result<Box<dyn TaskRunner + 'a>> {
        Ok(Box::new(CompactRunner { work: self, tasks }))
    }

    /// If shards are damaged, the other merges are committed first.
    fn commit_outcomes(&self, tasks: Tasks<'_>, outcomes: Vec<Outcome>) -> Result<Committed<CompactReport>> {
        commit_outcomes(self, tasks, &outcomes)
    }
}

/// Commits the outcomes of all tasks: merges whose shards were replaced meanwhile are omitted.
fn commit_outcomes(
    work: &CompactWork,
    Tasks { context, dataset, record }: Tasks<'_>,
    outcomes: &[Outcome],
) -> Result<Committed<CompactReport>> {
    let started = Instant::now();
    tasks::check_present(dataset, record, outcomes)?;
    let parent = dataset.open_newest()?;
    let before = parent.live_shards()?.len() as u64;
    let mut report = CompactReport::before_run(&parent, before, false);
    report.folder = Some(record.id.short_tag().to_owned());
    // Groups are numbered in the order of the tasks.
    let mut groups: Vec<MergeGroup> = Vec::new();
    for task in 0..record.tasks.len() {
        groups.extend(groups_of(dataset, record, task)?.into_iter().map(|(_, group)| group));
    }
    let mut all = Vec::new();
    for (shard, number, md5) in outcomes.iter().flat_map(|outcome| &outcome.shards).map(OutcomeShard::with_group) {
        let group = number.and_then(|number| usize::try_from(number).ok()).filter(|group| *group < groups.len());
        let group = group.ok_or_else(|| Error::integrity("expected a shard of a group of the plan, found another"))?;
        let objects = shard.meta.all_beside().into_iter().map(|object| object.path);
        let paths = objects.chain(std::iter::once(shard.meta.path.clone())).collect();
        all.push(Replacement { product: Product { group, shard, md5, tally: Tally::default() }, paths });
    }
    let written: Vec<(String, Vec<String>)> =
        all.iter().map(|one| (one.product.shard.meta.path.clone(), one.paths.clone())).collect();
    let live = LiveShards::read_newest(dataset, record.base)?;
    all.retain(|one| live.has_group(&groups[one.product.group]));
    check_records(&parent, &groups, &all, &work.settings)?;
    let damaged = outcomes.iter().flat_map(|outcome| &outcome.damaged).next();
    let damaged = damaged.map(|Damage { place, problem }| Error::integrity(problem.clone()).at_location(place.clone()));
    if all.is_empty() {
        let Some(damaged) = damaged else {
            delete_plan(dataset, &record.id, true)?;
            return Err(all_gone().with_hint("the plan is deleted: plan again"));
        };
        return Err(damaged);
    }
    let inputs = all.iter().filter_map(|one| groups[one.product.group].inputs.first());
    let constants = ConstantSets::of_shards(dataset.store().as_ref(), inputs.map(String::as_str))?;
    let replacing = CompactCommit {
        parent: &parent,
        base: record.base,
        groups: &groups,
        settings: &work.settings,
        target: work.target,
        constants: &constants,
        calls: tasks::fresh_calls(),
    };
    let mut publication = Publication::begin(dataset, &record.id, Operation::Compact, record.base)?;
    let (segments::Merged { merges, staged }, failed) = segments::merge_if_whole(context, &parent)?;
    context.cancel.check()?;
    let snapshot = replacing.commit(all, (merges, staged), &mut publication, &mut report)?;
    tell_target(context, &parent, work.target, true);
    let others = || outcomes.iter().map(|outcome| outcome.others);
    report.bytes_copied = others().map(|others| others.bytes_copied).sum();
    report.bytes_spliced = others().map(|others| others.bytes_spliced).sum();
    report.bytes_reencoded = others().map(|others| others.bytes_reencoded).sum();
    refresh_indexes(&snapshot, PreparedIndexes::default(), context.observer)?;
    // What no version refers to is deleted by `vacuum` if this fails.
    let _ = delete_uncommitted(&snapshot, &record.id, &written).and_then(|()| delete_plan(dataset, &record.id, false));
    report.seconds = started.elapsed().as_secs_f64();
    match damaged.or(failed) {
        None => Ok(Committed::Version(Box::new(report))),
        Some(error) => Err(error
            .with_effect(Effect::Certain)
            .with_hint(format!("shards of other merges are committed as {}", report.version))),
    }
}

/// Fails unless the shards that tasks made of a group have the records of its shards, each of them once, with their
/// ids.
fn check_records(parent: &Snapshot, groups: &[MergeGroup], made: &[Replacement], settings: &Settings) -> Result<()> {
    let live: HashMap<&str, &ShardMeta> =
        parent.live_shards()?.iter().map(|shard| (shard.path.as_str(), shard)).collect();
    let by_shard = parent.runs_by_shard()?;
    let mut found: BTreeMap<usize, Vec<&NewShard>> = BTreeMap::new();
    made.iter().for_each(|one| found.entry(one.product.group).or_default().push(&one.product.shard));
    for (group, new) in found {
        let inputs = || groups[group].inputs.iter().map(String::as_str);
        let old: Vec<&ShardMeta> = inputs().filter_map(|input| live.get(input).copied()).collect();
        let runs = inputs().filter_map(|input| by_shard.get(input)).flatten();
        let mut before: Vec<(u64, u64)> = runs.map(|run| (run.first, run.records)).collect();
        let runs = new.iter().flat_map(|shard| &shard.runs);
        let mut after: Vec<(u64, u64)> = runs.map(|(first, records, _)| (*first, *records)).collect();
        if join_runs(&mut before) != join_runs(&mut after) {
            let path = new.first().map_or("", |shard| &shard.meta.path);
            return Err(Error::integrity(
                "expected the records of the merged shards, found others in the outcome of a task",
            )
            .at_location(parent.dataset().store().location().join(path).to_string())
            .with_hint(MADE_UP_HINT));
        }
        check_merge(parent, &old, &new, settings)?;
    }
    Ok(())
}

/// Returns runs in ascending order, with those that follow each other as one.
fn join_runs(runs: &mut [(u64, u64)]) -> Vec<(u64, u64)> {
    runs.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (first, records) in runs.iter().copied() {
        match out.last_mut() {
            Some(last) if last.0.checked_add(last.1) == Some(first) => last.1 = last.1.saturating_add(records),
            _ => out.push((first, records)),
        }
    }
    out
}

/// Deletes the shards of merges that are not committed, because their old shards were replaced.
fn delete_uncommitted(snapshot: &Snapshot, plan: &TransactionId, written: &[(String, Vec<String>)]) -> Result<()> {
    let live: HashSet<&str> = snapshot.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
    let lost = written.iter().filter(|(shard, _)| !live.contains(shard.as_str()));
    let mut paths = lost.flat_map(|(_, paths)| paths).filter(|path| is_of_plan(path, plan));
    paths.try_for_each(|path| snapshot.dataset().store().delete(path))
}
