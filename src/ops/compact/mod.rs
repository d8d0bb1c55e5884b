//! `compact`: merges small shards into shards of the target size and divides large ones, or reports what it would do.

mod commit;
mod files;
mod merge;
mod options;
mod planned;
pub(super) mod report;
mod table;

use std::time::Instant;

use self::{
    commit::{CompactCommit, Replacement},
    merge::{MergeGroup, Merging},
    report::{all_gone, folder_suffix},
};
pub use self::{
    files::DEFAULT_TABLE_TARGET,
    options::{DEFAULT_MIN_INPUTS, Options, ProofLevel},
    planned::{CompactWork, plan_compaction as store_plan},
    report::{CompactReport, FileChoice, ShardChoice, TableReport},
    table::{compact_table, plan_table, table_at},
};
use super::{Context, segments, sort::Sorting};
use crate::{
    codec::Codec,
    dataset::{Dataset, Operation, Publication, Settings, ShardMeta, Snapshot, check_folders},
    error::{Error, Result},
    events::Event,
    exec::{constants::ConstantSets, shard::ShardNaming, types::TypeKinds},
    id::TransactionId,
    indexes::version::{PreparedIndexes, refresh_indexes},
    plan::compact::{self as plan, Choice, CompactCandidate, CompactOptions, CompactPlan},
    storage::Location,
    units::Size,
};

/// Compacts a dataset.
///
/// # Errors
/// When there is no dataset, an input is damaged, another run committed first, or the store fails; nothing is committed
/// then.
pub fn compact_dataset(context: &Context<'_>, location: &Location, options: &Options) -> Result<CompactReport> {
    let started = Instant::now();
    let dataset = context.open_dataset(location)?;
    let mut report = super::of_newest(&dataset, &mut |snapshot| {
        let report = compact_version(context, &dataset, snapshot, options)?;
        if !options.dry_run {
            tell_target(context, snapshot, options.target_shard, report.counts.shards_added > 0);
        }
        Ok(report)
    })?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Tells what becomes of the dataset's target size if the user asked for another one. It changes with the first shards
/// that are made for it.
fn tell_target(context: &Context<'_>, snapshot: &Snapshot, asked: Option<Size>, has_committed: bool) {
    let old = snapshot.entry().settings.target_shard;
    let Some(new) = asked.filter(|new| *new != old) else { return };
    let note = match has_committed {
        true => {
            format!("the dataset's --target-shard changes from {old} to {new}, for new shards of this and later runs")
        }
        false => format!("the dataset's --target-shard stays {old}, not {new}: there is nothing to compact"),
    };
    context.observer.event(Event::Note(note));
}

/// Compacts one version, which must be the newest.
fn compact_version(
    context: &Context<'_>,
    dataset: &Dataset,
    snapshot: &Snapshot,
    options: &Options,
) -> Result<CompactReport> {
    if !options.dry_run {
        super::erase::finish_cut_short(context, Some(snapshot))?;
    }
    if let Some(order) = &options.order {
        let settings = choose_settings(snapshot, options)?;
        let compact_options = selection_options(snapshot, &settings, options)?;
        check_folders(dataset.store().as_ref(), snapshot.live_shards()?.iter())?;
        let all: Vec<&ShardMeta> = snapshot.live_shards()?.iter().collect();
        let types = TypeKinds::of_shards(snapshot, &all)?;
        let constants =
            ConstantSets::of_live(dataset.store().as_ref(), snapshot.live_shards()?.iter())?.with_types(types);
        let sorting = Sorting { context, snapshot, settings, order, constants };
        let mut report = sorting.run(&compact_options, options.dry_run)?;
        tidy_index(context, &dataset.open_newest()?, options.dry_run, &mut report)?;
        return Ok(report);
    }
    let (settings, plan, constants) = choose_shards(snapshot, options)?;
    let mut report = report_plan(snapshot, &plan, options.dry_run)?;
    if !options.dry_run && !plan.groups.is_empty() {
        Compaction { context, snapshot, settings, constants, options }.run(&plan, &mut report)?;
    } else {
        if !options.dry_run {
            // A run that was killed after its commit may have left outdated indexes.
            refresh_indexes(snapshot, PreparedIndexes::default(), context.observer)?;
        }
        tidy_index(context, snapshot, options.dry_run, &mut report)?;
    }
    Ok(report)
}

/// Returns the settings of new shards.
fn choose_settings(snapshot: &Snapshot, options: &Options) -> Result<Settings> {
    let mut settings = snapshot.entry().settings.clone();
    settings.target_shard = options.target_shard.unwrap_or(settings.target_shard);
    if settings.target_shard.0 == 0 {
        return Err(Error::usage("expected a --target-shard of at least one byte, found 0"));
    }
    if let Some(codec) = options.codec
        && codec != settings.codec
    {
        if !settings.shard_format.is_columnar() {
            return Err(Error::usage(format!(
                "{} shards are compacted by copying, so the codec cannot change",
                settings.shard_format.title()
            ))
            .with_hint("leave --codec out, or convert the sources into another dataset"));
        }
        settings.codec = codec;
    }
    Ok(settings)
}

/// Returns which shards may be merged.
fn selection_options(snapshot: &Snapshot, settings: &Settings, options: &Options) -> Result<CompactOptions> {
    Ok(CompactOptions {
        target: settings.target_shard,
        min_inputs: options.min_inputs.unwrap_or(DEFAULT_MIN_INPUTS),
        since: super::manifest::parse_tag_or_when(snapshot, options.since.as_deref())?,
        until: super::manifest::parse_tag_or_when(snapshot, options.until.as_deref())?,
        max_bytes: options.max_bytes,
    })
}

/// Returns the settings of new shards, the shards to be merged, and their constants.
fn choose_shards(snapshot: &Snapshot, options: &Options) -> Result<(Settings, CompactPlan, ConstantSets)> {
    let settings = choose_settings(snapshot, options)?;
    let compact_options = selection_options(snapshot, &settings, options)?;
    let (plan, constants) = plan_with_constants(snapshot, snapshot.live_shards()?, &settings, &compact_options)?;
    Ok((settings, plan, constants))
}

/// Merges segments of the id index if no shards are committed with them, or counts how many it would merge.
fn tidy_index(context: &Context<'_>, snapshot: &Snapshot, dry_run: bool, report: &mut CompactReport) -> Result<()> {
    if dry_run {
        report.segments_merged = segments::to_merge(snapshot);
        return Ok(());
    }
    segments::merge_alone(context, snapshot, report)
}

/// Returns the plan and the constants of shards. Constants are read only if there is something to merge.
fn plan_with_constants(
    snapshot: &Snapshot,
    shards: &[ShardMeta],
    settings: &Settings,
    options: &CompactOptions,
) -> Result<(CompactPlan, ConstantSets)> {
    let store = snapshot.dataset().store().as_ref();
    let all: Vec<&ShardMeta> = shards.iter().collect();
    let mut types = match &snapshot.entry().settings.types {
        Some(_) => TypeKinds::of_shards(snapshot, &all)?,
        None => TypeKinds::default(),
    };
    let of_types = ConstantSets::default().with_types(types.clone());
    let mut first = plan::plan_compaction(&merge_candidates(snapshot, shards, settings, &of_types), options);
    if snapshot.entry().settings.types.is_none() {
        // Adopted shards state their types themselves.
        let merged: Vec<&ShardMeta> =
            first.groups.iter().flat_map(|group| &group.inputs).map(|i| &shards[*i]).collect();
        if TypeKinds::of_shards(snapshot, &merged)?.are_several() {
            types = TypeKinds::of_shards(snapshot, &all)?;
            let of_types = ConstantSets::default().with_types(types.clone());
            first = plan::plan_compaction(&merge_candidates(snapshot, shards, settings, &of_types), options);
        }
    }
    let merged = || first.groups.iter().flat_map(|group| &group.inputs).map(|i| &shards[*i]);
    check_folders(store, merged())?;
    let constants = ConstantSets::of_live(store, merged())?;
    if !constants.has_constants() {
        return Ok((first, constants.with_types(types)));
    }
    let constants = ConstantSets::of_live(store, shards.iter())?.with_types(types);
    Ok((plan::plan_compaction(&merge_candidates(snapshot, shards, settings, &constants), options), constants))
}

fn merge_candidates(
    snapshot: &Snapshot,
    shards: &[ShardMeta],
    settings: &Settings,
    constants: &ConstantSets,
) -> Vec<CompactCandidate> {
    let same = |a: &Codec, b: &Codec| std::mem::discriminant(a) == std::mem::discriminant(b);
    shards
        .iter()
        .map(|s| CompactCandidate {
            path: s.path.clone(),
            bytes: s.bytes,
            records: s.records,
            version: s.version,
            committed_at: snapshot.committed_at(s.version, s.committed_at),
            sorted: s.order.is_some(),
            settled: s.compacted_for >= settings.target_shard.0,
            made_for_target: s.compacted_for == settings.target_shard.0,
            mergeable: settings.shard_format.is_columnar() || (same(&s.codec, &settings.codec) && s.body_bytes > 0),
            partition: folder_suffix(&s.path, constants),
            outdated: constants.is_outdated(&s.path),
        })
        .collect()
}

fn report_plan(snapshot: &Snapshot, plan: &CompactPlan, dry_run: bool) -> Result<CompactReport> {
    let shards = snapshot.live_shards()?;
    let choice = |(shard, choice): (&ShardMeta, &Choice)| ShardChoice {
        shard: shard.path.clone(),
        bytes: shard.bytes,
        choice: match choice {
            Choice::Merge(_) => "merge",
            Choice::Retype(_) => "retype",
            Choice::Divide(_) => "divide",
            _ => "keep",
        },
        group: if let Choice::Merge(group) | Choice::Divide(group) | Choice::Retype(group) = choice {
            Some(*group)
        } else {
            None
        },
        reason: choice.reason(),
    };
    let before = shards.len() as u64;
    Ok(CompactReport {
        shards_after: before + plan.groups.iter().map(|g| g.shards).sum::<u64>()
            - plan.groups.iter().map(|g| g.inputs.len() as u64).sum::<u64>(),
        choices: shards.iter().zip(&plan.choices).map(choice).collect(),
        ..CompactReport::before_run(snapshot, before, dry_run)
    })
}

/// A compaction in one process.
struct Compaction<'a> {
    context: &'a Context<'a>,
    snapshot: &'a Snapshot,
    settings: Settings,
    constants: ConstantSets,
    options: &'a Options,
}

impl Compaction<'_> {
    fn run(&self, plan: &CompactPlan, report: &mut CompactReport) -> Result<()> {
        let Self { context, snapshot, settings, constants, options } = self;
        let transaction = TransactionId::fresh();
        let naming = ShardNaming::for_dataset(settings, transaction.short_tag());
        let dataset = snapshot.dataset();
        dataset.test_store()?;
        let mut publication = Publication::begin(dataset, &transaction, Operation::Compact, snapshot.version())?;
        let shards = snapshot.live_shards()?;
        let group = |group: &plan::Group| MergeGroup {
            inputs: group.inputs.iter().map(|i| shards[*i].path.clone()).collect(),
            bytes: group.bytes,
            partition: group.inputs.first().map_or_else(String::new, |i| folder_suffix(&shards[*i].path, constants)),
        };
        let groups: Vec<MergeGroup> = plan.groups.iter().map(group).collect();
        let merges = Merging::new(context, snapshot, settings, options).merge_all(&naming, &groups)?;
        let damaged = merges.damaged.into_iter().next();
        if merges.products.is_empty() {
            return Err(damaged.unwrap_or_else(all_gone));
        }
        report.folder = Some(naming.tag);
        let (index, failed) = segments::merge_if_whole(context, snapshot)?;
        context.cancel.check()?;
        let (base, target) = (snapshot.version(), options.target_shard);
        let replacing =
            CompactCommit { parent: snapshot, base, groups: &groups, settings, target, constants, calls: 0 };
        // Dropping an unpublished shard deletes it.
        let live = replacing.read_live()?;
        let (mut all, mut staged) = (Vec::new(), index.staged);
        for (product, objects) in
            merges.products.into_iter().filter(|(product, _)| live.has_group(&groups[product.group]))
        {
            all.push(Replacement { product, paths: objects.iter().map(|staged| staged.path.clone()).collect() });
            staged.extend(objects);
        }
        let committed = replacing.commit(all, (index.merges, staged), &mut publication, report)?;
        refresh_indexes(&committed, PreparedIndexes::default(), context.observer)?;
        let Some(error) = damaged.or(failed) else { return Ok(()) };
        // The other merges are committed without waiting for a repair of the damage.
        Err(error.with_hint(format!("shards of other merges are committed as {}", report.version)))
    }
}
