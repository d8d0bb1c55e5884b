//! `compact`: merges small shards into shards of the target size, or reports what it would merge.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Instant,
};

use serde::Serialize;

use super::{Context, rewrite::partition, segments, sort::Sorting};
use crate::{
    codec::Codec,
    dataset::{
        ContentHashes, Counts, Dataset, NewShard, Order, Publication, SegmentMerge, Settings, ShardMeta, Snapshot,
        Transaction, check_folders, commit, record_beside,
    },
    error::{Error, Kind, Result},
    events::Event,
    exec::{
        budget::Budget,
        compact::{Merge, Merged, Merger},
        constants::ConstantSets,
        index::wids_list,
        live::refresh,
        ordered::ordered,
        rewrite::Rewriter,
        shard::ShardNaming,
        types,
    },
    format::OutputFormat,
    id::{TransactionId, Version},
    plan::{
        compact::{Candidate, Choice, CompactOptions, CompactPlan, plan},
        memory::MemoryPlan,
    },
    storage::{Location, Staged},
    units::Size,
};

/// Options of `compact`.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Target size of a shard; `None` uses the dataset's setting.
    pub target_shard: Option<Size>,
    /// Minimum number of shards in a group worth rewriting.
    pub min_inputs: Option<usize>,
    /// Start of the window: a duration back from now, an instant or a version.
    pub since: Option<String>,
    /// End of the window.
    pub until: Option<String>,
    /// Compression of new shards, for Parquet.
    pub codec: Option<Codec>,
    /// Order of the records; `None` keeps the order of record numbers.
    pub order: Option<Order>,
    /// Maximum number of bytes to rewrite in this run.
    pub max_bytes: Option<Size>,
    /// Do not verify the checksums inside TFRecord shards; records are still compared with their sidecars.
    pub no_check: bool,
    /// How new shards are verified before they are committed.
    pub proof: Proof,
    /// Plan without changing anything.
    pub dry_run: bool,
}

/// How a merge is verified to be lossless.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Proof {
    /// By checksums: copied bytes equal their source, and written bytes equal what was encoded.
    #[default]
    Checksums,
    /// In addition, decodes both sides and compares all values of all columns, or all bytes of all records.
    Full,
}

/// Default minimum number of shards in a group.
pub const DEFAULT_MIN_INPUTS: usize = 5;

/// Maximum number of merges that write the end of their shard and read it back, while other merges use the processor.
const ENDING_AT_ONCE: usize = 2;

/// Decision about one shard.
#[derive(Debug, Clone, Serialize)]
pub struct ShardChoice {
    /// Its path.
    pub shard: String,
    /// Its size.
    pub bytes: u64,
    /// `merge`, `sort` or `keep`.
    pub choice: &'static str,
    /// Number of the group in which it is merged.
    pub group: Option<usize>,
    /// Reason for the choice.
    pub reason: &'static str,
}

/// Report of a `compact` run.
#[derive(Debug, Clone, Serialize)]
pub struct CompactReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if there was nothing to do.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Order of the records; absent if they stay in the order of record numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Folder of the new shards.
    pub folder: Option<String>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Input bytes copied unchanged.
    pub bytes_copied: u64,
    /// Input bytes spliced.
    pub bytes_spliced: u64,
    /// Input bytes decoded and encoded again.
    pub bytes_reencoded: u64,
    /// Merges that were dropped because another run had replaced their shards.
    pub groups_dropped: u64,
    /// Segments of the id index that were merged, or would be.
    pub segments_merged: u64,
    /// Segments of the id index after the run.
    pub segments_after: u64,
    /// Live shards before the run.
    pub shards_before: u64,
    /// Live shards after the run.
    pub shards_after: u64,
    /// Time taken.
    pub seconds: f64,
    /// Decision about each shard, with its reason.
    #[serde(skip)]
    pub choices: Vec<ShardChoice>,
}

impl CompactReport {
    /// Returns the report of a run that has not started, for a snapshot of `shards` shards.
    pub(super) fn unstarted(snapshot: &Snapshot, shards: u64, dry_run: bool) -> Self {
        Self {
            dataset: snapshot.dataset().store().location().to_string(),
            version: snapshot.version(),
            dry_run,
            order: None,
            folder: None,
            counts: Counts::default(),
            bytes_copied: 0,
            bytes_spliced: 0,
            bytes_reencoded: 0,
            groups_dropped: 0,
            segments_merged: 0,
            segments_after: snapshot.entry().segments.len() as u64,
            shards_before: shards,
            shards_after: shards,
            seconds: 0.0,
            choices: Vec::new(),
        }
    }
}

/// Compacts a dataset.
///
/// # Errors
/// When there is no dataset, an input is damaged, another run committed first, or the store fails; nothing is committed
/// then.
pub fn compact(context: &Context<'_>, location: &Location, options: &Options) -> Result<CompactReport> {
    let started = Instant::now();
    let dataset = context.dataset(location)?;
    let mut report = super::of_newest(&dataset, &mut |snapshot| compact_version(context, &dataset, snapshot, options))?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
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
    let mut settings = snapshot.entry().settings.clone();
    settings.target_shard = options.target_shard.unwrap_or(settings.target_shard);
    if settings.target_shard.0 == 0 {
        return Err(Error::usage("expected a --target-shard of at least one byte, found 0"));
    }
    if let Some(codec) = options.codec
        && codec != settings.codec
    {
        if settings.shard_format != OutputFormat::Parquet {
            return Err(Error::usage(format!("shards of {} are compacted by copying", settings.shard_format))
                .hint("leave --codec out, or convert the sources into another dataset"));
        }
        settings.codec = codec;
    }
    let compact_options = CompactOptions {
        target: settings.target_shard,
        min_inputs: options.min_inputs.unwrap_or(DEFAULT_MIN_INPUTS),
        since: super::manifest::when(snapshot, options.since.as_deref())?,
        until: super::manifest::when(snapshot, options.until.as_deref())?,
        max_bytes: options.max_bytes,
    };
    if let Some(order) = &options.order {
        let shards = snapshot.shards()?.iter().map(|shard| shard.path.as_str());
        check_folders(dataset.store().as_ref(), snapshot.shards()?.iter())?;
        let constants = ConstantSets::of_shards(dataset.store().as_ref(), shards)?;
        let sorting = Sorting { context, snapshot, settings, order, constants };
        let mut report = sorting.run(&compact_options, options.dry_run)?;
        tidy_index(context, &dataset.open()?, options.dry_run, &mut report)?;
        return Ok(report);
    }
    let shards = snapshot.shards()?;
    let (plan, constants) = planned(snapshot, shards, &settings, &compact_options)?;
    let mut report = report(snapshot, &plan, options.dry_run)?;
    if !options.dry_run && !plan.groups.is_empty() {
        Compaction { context, snapshot, settings, plan: &plan, constants, options }.run(&mut report)?;
    } else {
        if !options.dry_run {
            // A run that was killed after its commit may have left outdated indexes.
            refresh(snapshot, None)?;
        }
        tidy_index(context, snapshot, options.dry_run, &mut report)?;
    }
    Ok(report)
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
fn planned(
    snapshot: &Snapshot,
    shards: &[ShardMeta],
    settings: &Settings,
    options: &CompactOptions,
) -> Result<(CompactPlan, ConstantSets)> {
    let store = snapshot.dataset().store().as_ref();
    let first = plan(&candidates(snapshot, shards, settings, &ConstantSets::default()), options);
    let merged = || first.groups.iter().flat_map(|group| &group.inputs).map(|i| &shards[*i]);
    check_folders(store, merged())?;
    let constants = ConstantSets::of_shards(store, merged().map(|shard| shard.path.as_str()))?;
    if !constants.any() {
        return Ok((first, constants));
    }
    let constants = ConstantSets::of_shards(store, shards.iter().map(|shard| shard.path.as_str()))?;
    Ok((plan(&candidates(snapshot, shards, settings, &constants), options), constants))
}

fn candidates(
    snapshot: &Snapshot,
    shards: &[ShardMeta],
    settings: &Settings,
    constants: &ConstantSets,
) -> Vec<Candidate> {
    let same = |a: &Codec, b: &Codec| std::mem::discriminant(a) == std::mem::discriminant(b);
    shards
        .iter()
        .map(|s| Candidate {
            path: s.path.clone(),
            bytes: s.bytes,
            records: s.records,
            version: s.version,
            committed_at: snapshot.committed_at(s.version, s.committed_at),
            sorted: s.order.is_some(),
            settled: s.compacted_for >= settings.target_shard.0,
            mergeable: settings.shard_format == OutputFormat::Parquet
                || (same(&s.codec, &settings.codec) && s.body_bytes > 0),
            partition: place(&s.path, constants),
        })
        .collect()
}

/// Returns the part of a shard's folder that follows the name of a compaction: only shards that may share a folder are
/// merged.
pub(super) fn place(path: &str, constants: &ConstantSets) -> String {
    let serial = match constants.of(path) {
        0 => String::new(),
        kind => format!("-{}", kind + 1),
    };
    format!("{serial}/{}", partition(path))
}

fn report(snapshot: &Snapshot, plan: &CompactPlan, dry_run: bool) -> Result<CompactReport> {
    let shards = snapshot.shards()?;
    let choice = |(shard, choice): (&ShardMeta, &Choice)| ShardChoice {
        shard: shard.path.clone(),
        bytes: shard.bytes,
        choice: if matches!(choice, Choice::Merge(_)) { "merge" } else { "keep" },
        group: if let Choice::Merge(group) = choice { Some(*group) } else { None },
        reason: choice.reason(),
    };
    let before = shards.len() as u64;
    Ok(CompactReport {
        shards_after: before - plan.groups.iter().map(|g| g.inputs.len() as u64 - 1).sum::<u64>(),
        choices: shards.iter().zip(&plan.choices).map(choice).collect(),
        ..CompactReport::unstarted(snapshot, before, dry_run)
    })
}

struct Compaction<'a> {
    context: &'a Context<'a>,
    snapshot: &'a Snapshot,
    settings: Settings,
    plan: &'a CompactPlan,
    constants: ConstantSets,
    options: &'a Options,
}

/// A group and its result.
struct Done {
    /// Index of the group in the plan.
    group: usize,
    merged: Merged,
}

impl Compaction<'_> {
    fn run(&self, report: &mut CompactReport) -> Result<()> {
        let transaction = TransactionId::fresh();
        let naming = ShardNaming {
            tag: transaction.tag().to_owned(),
            format: self.settings.shard_format,
            codec: self.settings.codec,
            indexes: self.settings.indexes.clone(),
        };
        let dataset = self.snapshot.dataset();
        dataset.test_store()?;
        let publication = Publication::begin(dataset, &transaction, "compact", self.snapshot.version())?;
        let (done, failed) = self.merge_all(&naming)?;
        if done.is_empty() {
            return Err(failed.unwrap_or_else(all_gone));
        }
        report.folder = Some(naming.tag);
        // A damaged index is no reason to discard merged shards.
        let (merged, failed) = match segments::merge_segments(self.context, self.snapshot) {
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            Err(error) => (segments::Merged::default(), failed.or(Some(error))),
            Ok(merged) => (merged, failed),
        };
        self.commit(done, merged, publication, report)?;
        let Some(error) = failed else { return Ok(()) };
        // The other merges are committed without waiting for a repair of the damage.
        Err(error.hint(format!("shards of other merges are committed as {}", report.version)))
    }

    /// Merges every group. A group whose inputs another run has replaced is skipped; a group with a damaged input is
    /// skipped and causes an error. Whatever was written for skipped groups is deleted.
    fn merge_all(&self, naming: &ShardNaming) -> Result<(Vec<Done>, Option<Error>)> {
        let context = self.context;
        let total = self.plan.groups.iter().map(|g| g.bytes).sum();
        context.observer.event(Event::Phase { name: "compacting", bytes: Some(total) });
        let memory = MemoryPlan::new(
            context.memory,
            context.jobs,
            naming.format,
            self.settings.target_shard,
            self.settings.row_group,
        );
        // While one merge of Parquet waits for its input, another one uses the processor.
        let max = context.jobs + usize::from(naming.format == OutputFormat::Parquet);
        let concurrent = memory.concurrent_rewrites(naming.format, max);
        let merges = self.merges()?;
        let merger = Merger {
            rewriter: Rewriter {
                dataset: self.snapshot.dataset(),
                row_group: memory.unit_bytes,
                observer: context.observer,
                cancel: &context.cancel,
            },
            naming,
            concurrent_merges: Budget::new(concurrent as u64),
            check_crc: !self.options.no_check,
            hashes: ContentHashes::of(self.snapshot),
            compare: self.options.proof == Proof::Full,
        };
        let merger = &merger;
        std::thread::scope(|scope| {
            let input = merges.into_iter().map(Ok);
            let window = concurrent + ENDING_AT_ONCE;
            let results = ordered(scope, input, window, window, &context.cancel, move |merge| merger.merge(&merge));
            let (mut done, mut failed) = (Vec::new(), None);
            for (group, result) in results.enumerate() {
                match result {
                    Ok(merged) => done.push(Done { group, merged }),
                    Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                    Err(_) if self.gone(&[group])?.contains(&group) => {}
                    Err(error) if matches!(error.kind(), Kind::Integrity | Kind::Input) => {
                        failed = failed.or(Some(error))
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok((done, failed))
        })
    }

    /// Returns the groups that have an input that is no longer live.
    fn gone(&self, groups: &[usize]) -> Result<BTreeSet<usize>> {
        let replaced = replaced(self.snapshot)?;
        let is_gone = |group: &usize| self.plan.groups[*group].inputs.iter().any(|i| replaced.contains(i));
        Ok(groups.iter().copied().filter(is_gone).collect())
    }

    fn merges(&self) -> Result<Vec<Merge>> {
        let shards = self.snapshot.shards()?;
        let version = self.snapshot.version();
        let runs = self.snapshot.runs()?.by_shard(version);
        let input = |i: &usize| {
            let shard = shards[*i].clone();
            let runs = runs.get(shard.path.as_str()).into_iter().flatten().map(|run| (*run).clone()).collect();
            (shard, runs)
        };
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let merge = |group: &crate::plan::compact::Group| {
            let partition = group.inputs.first().map_or_else(String::new, |i| place(&shards[*i].path, &self.constants));
            let number = numbers.entry(partition.clone()).or_default();
            *number += 1;
            let inputs = group.inputs.iter().map(input).collect();
            Merge { inputs, partition, number: *number - 1 }
        };
        Ok(self.plan.groups.iter().map(merge).collect())
    }

    /// Stages the `schema.json` of the new shards' folders, if those of the old folders agree.
    fn types(&self, groups: &[Published], removes: &[String]) -> Result<Vec<Staged>> {
        if self.settings.shard_format == OutputFormat::Parquet {
            return Ok(Vec::new());
        }
        let store = self.snapshot.dataset().store().as_ref();
        let Some(fields) = types::of_shards(store, removes.iter().map(String::as_str))? else { return Ok(Vec::new()) };
        let folder = |g: &Published| Some(g.merged.finished.meta().path.rsplit_once('/')?.0.to_owned());
        let folders: BTreeSet<String> = groups.iter().filter_map(folder).collect();
        folders.iter().map(|folder| types::stage(store, folder, &fields)).collect()
    }

    /// Commits the merges; groups whose inputs another run has replaced are skipped.
    fn commit(
        &self,
        mut done: Vec<Done>,
        index: segments::Merged,
        mut publication: Publication<'_>,
        report: &mut CompactReport,
    ) -> Result<()> {
        self.context.cancel.check()?;
        let numbers: Vec<usize> = done.iter().map(|d| d.group).collect();
        let gone = self.gone(&numbers)?;
        // Dropping an unpublished shard deletes it.
        done.retain(|d| !gone.contains(&d.group));
        let segments::Merged { merges, mut staged } = index;
        let mut groups: Vec<Published> = Vec::with_capacity(done.len());
        for Done { group, mut merged } in done {
            let finished = &mut merged.finished;
            finished.shard.meta.compacted_for = self.settings.target_shard.0;
            let of_shard = std::mem::take(&mut finished.staged);
            let paths = of_shard.iter().map(|s| s.path.clone()).collect();
            staged.extend(of_shard);
            groups.push(Published { group, merged, paths });
        }
        refresh(&self.commit_groups(groups, (merges, staged), &mut publication, report)?, None)
    }

    /// Commits the groups together, and repeats without those whose inputs are gone, until all inputs are live.
    fn commit_groups(
        &self,
        mut groups: Vec<Published>,
        (merges, mut staged): (Vec<SegmentMerge>, Vec<Staged>),
        publication: &mut Publication<'_>,
        report: &mut CompactReport,
    ) -> Result<Snapshot> {
        for calls in 0.. {
            if groups.is_empty() {
                return Err(all_gone());
            }
            let mut publishing = self.descriptions(&groups)?;
            let described: Vec<String> = publishing.iter().map(|staged| staged.path.clone()).collect();
            publishing.append(&mut staged);
            record_beside(groups.iter_mut().map(|group| &mut group.merged.finished.shard), &publishing);
            publication.publish(publishing)?;
            let transaction = Transaction {
                id: publication.id().clone(),
                merges: merges.clone(),
                calls,
                ..self.transaction(&groups, report)?
            };
            let dataset = self.snapshot.dataset();
            match publication.attempt(|| commit(dataset, &transaction, self.snapshot.version())) {
                Ok(snapshot) => {
                    report.version = snapshot.version();
                    report.shards_after = snapshot.entry().totals.shards;
                    report.segments_merged = merges.iter().map(|merge| merge.replaces.len() as u64).sum();
                    report.segments_after = snapshot.entry().segments.len() as u64;
                    report.groups_dropped = (self.plan.groups.len() - groups.len()) as u64;
                    return Ok(snapshot);
                }
                Err(error) if error.kind() == Kind::Conflict => {
                    let numbers: Vec<usize> = groups.iter().map(|g| g.group).collect();
                    let gone = self.gone(&numbers)?;
                    if gone.is_empty() {
                        return Err(error);
                    }
                    let (lost, left): (Vec<_>, Vec<_>) = groups.into_iter().partition(|g| gone.contains(&g.group));
                    groups = left;
                    // The descriptions of the folders are made again for the remaining groups.
                    let lost = lost.into_iter().flat_map(|published| published.paths).chain(described);
                    publication.withdraw(&lost.collect::<Vec<_>>())?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(all_gone())
    }

    /// Stages the descriptions of the new shards' folders: wids lists, types of rows, and constants.
    fn descriptions(&self, groups: &[Published]) -> Result<Vec<Staged>> {
        let store = self.snapshot.dataset().store().as_ref();
        let mut staged: Vec<Staged> =
            wids_list(store, groups.iter().map(|g| &g.merged.finished))?.into_iter().collect();
        let removes = self.removes(groups)?;
        staged.extend(self.types(groups, &removes)?);
        let shards = self.snapshot.shards()?;
        let mut folders = BTreeSet::new();
        for published in groups {
            let folder = published.merged.finished.folder();
            let Some(input) = self.plan.groups[published.group].inputs.first() else { continue };
            if folders.insert(folder) {
                staged.extend(self.constants.stage(store, &shards[*input].path, folder)?);
            }
        }
        Ok(staged)
    }

    fn removes(&self, groups: &[Published]) -> Result<Vec<String>> {
        let shards = self.snapshot.shards()?;
        let inputs = groups.iter().flat_map(|g| &self.plan.groups[g.group].inputs);
        Ok(inputs.map(|i| shards[*i].path.clone()).collect())
    }

    fn transaction(&self, groups: &[Published], report: &mut CompactReport) -> Result<Transaction<'static>> {
        let removes = self.removes(groups)?;
        let adds: Vec<NewShard> = groups.iter().map(|g| g.merged.finished.shard.clone()).collect();
        let planned = || groups.iter().map(|g| &self.plan.groups[g.group]);
        report.bytes_copied = groups.iter().map(|g| g.merged.bytes_copied).sum();
        report.bytes_spliced = groups.iter().map(|g| g.merged.bytes_spliced).sum();
        report.bytes_reencoded = groups.iter().map(|g| g.merged.bytes_reencoded).sum();
        let planned = (planned().map(|g| g.records).sum(), planned().map(|g| g.bytes).sum());
        report.counts = counts(planned, &adds, &removes)?;
        let mut arguments = BTreeMap::new();
        arguments.insert("target-shard".to_owned(), self.settings.target_shard.0.to_string());
        Ok(Transaction::compaction(self.snapshot, arguments, report.counts, adds, removes))
    }
}

/// Returns the indexes of a snapshot's shards that are no longer live because another run has replaced them.
pub(super) fn replaced(snapshot: &Snapshot) -> Result<BTreeSet<usize>> {
    let latest = snapshot.dataset().open()?;
    if latest.version() == snapshot.version() {
        return Ok(BTreeSet::new());
    }
    let live: HashSet<&str> = latest.shards()?.iter().map(|s| s.path.as_str()).collect();
    let shards = snapshot.shards()?.iter().enumerate();
    Ok(shards.filter(|(_, shard)| !live.contains(shard.path.as_str())).map(|(number, _)| number).collect())
}

/// Returns the counts of a run that replaces shards with `records` records and `bytes` bytes.
pub(super) fn counts((records, bytes): (u64, u64), adds: &[NewShard], removes: &[String]) -> Result<Counts> {
    let counts = Counts {
        records_in: records,
        records_out: adds.iter().map(|s| s.meta.records).sum(),
        records_rejected: 0,
        records_erased: 0,
        bytes_in: bytes,
        bytes_out: adds.iter().map(|s| s.meta.bytes).sum(),
        shards_added: adds.len() as u64,
        shards_removed: removes.len() as u64,
        ..Counts::default()
    };
    counts.reconcile()?;
    Ok(counts)
}

/// A merge whose outputs are published.
struct Published {
    group: usize,
    merged: Merged,
    /// Paths of its shard, sidecar and indexes.
    paths: Vec<String>,
}

pub(super) fn all_gone() -> Error {
    Error::conflict("another run replaced the same shards meanwhile")
        .hint("nothing was committed; run the command again")
}
