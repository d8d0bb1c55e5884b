//! `compact`: merges small shards into shards of the right size, or says what it would merge.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use rayon::prelude::*;
use serde::Serialize;

use super::{Context, sort::Sorting};
use crate::{
    codec::Codec,
    dataset::{Counts, NewShard, Numbers, Order, Settings, ShardMeta, Snapshot, Transaction, commit},
    error::{Error, Result},
    events::Event,
    exec::{
        compact::{Merge, Merged, Merger},
        index::wids_list,
        live::refresh,
        ordered::ordered,
        shard::{FinishedShard, ShardNaming},
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

/// What the user asks for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Size of a shard; the dataset's unless given.
    pub target_shard: Option<Size>,
    /// Smallest group worth rewriting.
    pub min_inputs: Option<usize>,
    /// Start of the window: a duration back from now, an instant or a version.
    pub since: Option<String>,
    /// End of the window.
    pub until: Option<String>,
    /// Compression of new shards, for Parquet.
    pub codec: Option<Codec>,
    /// What records are to be ordered by; in record order unless given.
    pub order: Option<Order>,
    /// Only plan.
    pub dry_run: bool,
}

/// Smallest group worth rewriting unless told otherwise.
pub const DEFAULT_MIN_INPUTS: usize = 5;

/// What happens to one shard.
#[derive(Debug, Clone, Serialize)]
pub struct ShardChoice {
    /// Its path.
    pub shard: String,
    /// Its size.
    pub bytes: u64,
    /// `merge`, `sort` or `keep`.
    pub choice: &'static str,
    /// Number of the group it is merged in.
    pub group: Option<usize>,
    /// Why.
    pub reason: &'static str,
}

/// What was done, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct CompactReport {
    /// The dataset.
    pub dataset: String,
    /// The version made; the current one when there was nothing to do.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// What records were ordered by; absent when they stay in record order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Folder of the new shards.
    pub folder: Option<String>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes of inputs copied as they were.
    pub bytes_copied: u64,
    /// Bytes of inputs spliced.
    pub bytes_spliced: u64,
    /// Bytes of inputs decoded and encoded.
    pub bytes_reencoded: u64,
    /// Live shards before.
    pub shards_before: u64,
    /// Live shards after.
    pub shards_after: u64,
    /// Time taken.
    pub seconds: f64,
    /// What happens to each shard, and why.
    #[serde(skip)]
    pub choices: Vec<ShardChoice>,
}

/// Compacts a dataset.
///
/// # Errors
/// When there is no dataset, an input is damaged, another run was faster, or the store fails; nothing is committed
/// then.
pub fn compact(context: &Context<'_>, location: &Location, options: &Options) -> Result<CompactReport> {
    let started = Instant::now();
    let dataset = context.dataset(location)?;
    let snapshot = dataset.open()?;
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
        since: super::manifest::parse_when(options.since.as_deref())?,
        until: super::manifest::parse_when(options.until.as_deref())?,
    };
    if let Some(order) = &options.order {
        let sorting = Sorting { context, snapshot: &snapshot, settings, order };
        let mut report = sorting.run(&compact_options, options.dry_run)?;
        report.seconds = started.elapsed().as_secs_f64();
        return Ok(report);
    }
    let shards = snapshot.shards()?;
    let plan = plan(&candidates(shards, &settings), &compact_options);
    let mut report = report(&snapshot, &plan, options.dry_run);
    if !options.dry_run && !plan.groups.is_empty() {
        Compaction { context, snapshot: &snapshot, settings, plan: &plan }.run(&mut report)?;
    } else if !options.dry_run {
        // A run that was killed after its commit may have left them behind.
        refresh(&snapshot, None)?;
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

fn candidates(shards: &[ShardMeta], settings: &Settings) -> Vec<Candidate> {
    let same = |a: &Codec, b: &Codec| std::mem::discriminant(a) == std::mem::discriminant(b);
    shards
        .iter()
        .map(|s| Candidate {
            path: s.path.clone(),
            bytes: s.bytes,
            records: s.records,
            version: s.version,
            committed_at: s.committed_at,
            sorted: s.order.is_some(),
            settled: s.compacted_for >= settings.target_shard.0,
            joins: settings.shard_format == OutputFormat::Parquet
                || (same(&s.codec, &settings.codec) && s.body_bytes > 0),
            partition: partition(&s.path),
        })
        .collect()
}

/// The folders `key=value/` of a path; readers take columns from them, so shards of different ones are never merged.
pub(super) fn partition(path: &str) -> String {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders).split('/');
    folders.filter(|folder| folder.contains('=')).map(|folder| format!("{folder}/")).collect()
}

fn report(snapshot: &Snapshot, plan: &CompactPlan, dry_run: bool) -> CompactReport {
    let shards = snapshot.shards().unwrap_or_default();
    let choice = |(shard, choice): (&ShardMeta, &Choice)| ShardChoice {
        shard: shard.path.clone(),
        bytes: shard.bytes,
        choice: if matches!(choice, Choice::Merge(_)) { "merge" } else { "keep" },
        group: if let Choice::Merge(group) = choice { Some(*group) } else { None },
        reason: choice.reason(),
    };
    CompactReport {
        dataset: snapshot.dataset().store().location().to_string(),
        version: snapshot.version(),
        dry_run,
        order: None,
        folder: None,
        counts: Counts::default(),
        bytes_copied: 0,
        bytes_spliced: 0,
        bytes_reencoded: 0,
        shards_before: shards.len() as u64,
        shards_after: shards.len() as u64 - plan.groups.iter().map(|g| g.inputs.len() as u64 - 1).sum::<u64>(),
        seconds: 0.0,
        choices: shards.iter().zip(&plan.choices).map(choice).collect(),
    }
}

struct Compaction<'a> {
    context: &'a Context<'a>,
    snapshot: &'a Snapshot,
    settings: Settings,
    plan: &'a CompactPlan,
}

impl Compaction<'_> {
    fn run(&self, report: &mut CompactReport) -> Result<()> {
        let shards = self.snapshot.shards()?;
        let naming = ShardNaming {
            tag: self.tag(shards),
            format: self.settings.shard_format,
            codec: self.settings.codec,
            indexes: self.settings.indexes.clone(),
        };
        self.snapshot.dataset().prove_store()?;
        let _lock = self.snapshot.dataset().store().lock(&naming.tag)?;
        let merged = self.merge_all(&naming)?;
        report.folder = Some(naming.tag);
        for m in &merged {
            report.bytes_copied += m.bytes_copied;
            report.bytes_reencoded += m.bytes_reencoded;
        }
        self.commit(merged, report)
    }

    fn merge_all(&self, naming: &ShardNaming) -> Result<Vec<Merged>> {
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
        // A merge of Parquet holds a row group and its encoded form; copies hold next to nothing.
        let at_once = match naming.format {
            OutputFormat::Parquet => {
                usize::try_from(context.memory.0 / (4 * memory.unit_bytes)).unwrap_or(1).clamp(1, context.jobs)
            }
            OutputFormat::Tar | OutputFormat::TfRecord => context.jobs,
        };
        let merges = self.merges()?;
        let merger = Merger {
            dataset: self.snapshot.dataset(),
            naming,
            row_group: memory.unit_bytes,
            observer: context.observer,
            cancel: &context.cancel,
        };
        let merger = &merger;
        std::thread::scope(|scope| {
            let input = merges.into_iter().map(Ok);
            ordered(scope, input, at_once, at_once, &context.cancel, move |merge| merger.merge(&merge)).collect()
        })
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
            let partition = group.inputs.first().map_or_else(String::new, |i| partition(&shards[*i].path));
            let number = numbers.entry(partition.clone()).or_default();
            *number += 1;
            let inputs = group.inputs.iter().map(input).collect();
            Merge { inputs, partition, number: *number - 1 }
        };
        Ok(self.plan.groups.iter().map(merge).collect())
    }

    fn tag(&self, shards: &[ShardMeta]) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"compact");
        hasher.update(&self.settings.target_shard.0.to_le_bytes());
        hasher.update(&self.settings.row_group.0.to_le_bytes());
        hasher.update(self.settings.codec.to_string().as_bytes());
        for group in &self.plan.groups {
            hasher.update(&(group.inputs.len() as u64).to_le_bytes());
            group.inputs.par_iter().map(|i| shards[*i].checksum).collect::<Vec<_>>().iter().for_each(|checksum| {
                hasher.update(checksum);
            });
            for i in &group.inputs {
                hasher.update(shards[*i].path.as_bytes());
            }
        }
        hasher.finalize().to_hex()[..12].to_owned()
    }

    /// What the folders of the new shards say about the types of rows, if those of the old ones agree on it.
    fn types(&self, finished: &[FinishedShard], removes: &[String]) -> Result<Vec<Staged>> {
        if self.settings.shard_format == OutputFormat::Parquet {
            return Ok(Vec::new());
        }
        let store = self.snapshot.dataset().store().as_ref();
        let Some(fields) = types::of_shards(store, removes.iter().map(String::as_str))? else { return Ok(Vec::new()) };
        let folder =
            |shard: &FinishedShard| shard.shard.meta.path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        let folders: BTreeSet<String> = finished.iter().filter_map(folder).collect();
        folders.iter().map(|folder| types::stage(store, folder, &fields)).collect()
    }

    fn commit(&self, merged: Vec<Merged>, report: &mut CompactReport) -> Result<()> {
        let shards = self.snapshot.shards()?;
        let removes: Vec<String> =
            self.plan.groups.iter().flat_map(|g| g.inputs.iter().map(|i| shards[*i].path.clone())).collect();
        let finished: Vec<FinishedShard> = merged.into_iter().map(|m| m.shard).collect();
        let mut staged: Vec<Staged> =
            wids_list(self.snapshot.dataset().store().as_ref(), &finished)?.into_iter().collect();
        staged.extend(self.types(&finished, &removes)?);
        let mut adds: Vec<NewShard> = Vec::new();
        for finished in finished {
            staged.extend(finished.staged);
            let mut shard = finished.shard;
            shard.meta.compacted_for = self.settings.target_shard.0;
            adds.push(shard);
        }
        report.counts = Counts {
            records_in: self.plan.groups.iter().map(|g| g.records).sum(),
            records_out: adds.iter().map(|s| s.meta.records).sum(),
            records_rejected: 0,
            records_deduplicated: 0,
            bytes_in: self.plan.groups.iter().map(|g| g.bytes).sum(),
            bytes_out: adds.iter().map(|s| s.meta.bytes).sum(),
            shards_added: adds.len() as u64,
            shards_removed: removes.len() as u64,
        };
        report.counts.reconcile()?;
        self.context.cancel.check()?;
        self.snapshot.dataset().store().publish(staged)?;
        let mut arguments = BTreeMap::new();
        arguments.insert("target-shard".to_owned(), self.settings.target_shard.0.to_string());
        let transaction = Transaction {
            id: TransactionId::fresh(),
            operation: "compact",
            arguments,
            counts: report.counts,
            // A target for one compaction is not the dataset's from then on.
            settings: self.snapshot.entry().settings.clone(),
            adds,
            removes,
            segments: Vec::new(),
            places: Vec::new(),
            sources: &(),
            numbers: Numbers::Kept,
        };
        let snapshot = commit(self.snapshot.dataset(), &transaction, self.snapshot.version())?;
        report.version = snapshot.version();
        report.shards_after = snapshot.entry().totals.shards;
        refresh(&snapshot, None)
    }
}
