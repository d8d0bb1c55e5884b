//! Converts a sample of a source into memory, to measure what the whole will take, or a small source as a whole, for a
//! dry run that is right about everything. Everything is done as `convert` does it, up to the commit; nothing is kept.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    inputs::Inputs,
    job::ConvertJob,
    listing::{Listing, SkippedCounts},
    options::ConvertOptions,
    plan::{ConvertPlan, Decision, decide_plan},
    report::Estimate,
    run,
    stream::STDIN,
};
use crate::{
    dataset::Dataset,
    error::{Error, Result},
    exec::shard::ShardNaming,
    id::TransactionId,
    ops::Context,
    scan::{First, RecordSource, SourceFile},
    storage::RemoteStore,
};

/// Maximum bytes of files that are read whole: their shards are in memory.
const MAX_WHOLE: u64 = 256 << 20;

/// Maximum bytes of inputs that a dry run converts into memory.
pub(in crate::ops) const SMALL: u64 = 1 << 20;

/// The start of a file.
#[derive(Debug, Clone)]
pub(in crate::ops) struct FileStart {
    /// The file.
    pub(in crate::ops) file: SourceFile,
    /// About how many of its stored bytes are converted, if it holds records; files that are parts of samples are read
    /// whole.
    pub(in crate::ops) most: u64,
}

/// What the conversion of a sample took and gave.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops) struct Trial {
    /// Time to open the files, to detect their formats and to decide on types.
    pub(in crate::ops) opening: Duration,
    /// Time of the pipeline.
    pub(in crate::ops) converting: Duration,
    /// Stored bytes that were read.
    pub(in crate::ops) read: u64,
    /// Bytes of the shards.
    pub(in crate::ops) written: u64,
    /// Target size of a shard, in bytes.
    pub(in crate::ops) target: u64,
    /// Estimate of the memory needed, in bytes.
    pub(in crate::ops) memory: u64,
}

/// Converts a sample of a source that has `total` files.
///
/// # Errors
/// As `convert`; if the sample has no records, or is too large to be held in memory.
pub(in crate::ops) fn run_trial(
    context: &Context<'_>,
    sample: &[FileStart],
    total: usize,
    options: &ConvertOptions,
) -> Result<Trial> {
    let started = Instant::now();
    let dataset = Dataset::new(Arc::new(RemoteStore::in_memory()?));
    let (job, settings) = ConvertJob::new(context, &dataset, None, options, None)?;
    let files = sample.iter().map(|start| start.file.clone()).collect();
    let Decision::Convert(mut plan) = decide_plan(&job, settings, fresh_listing(files, total))? else {
        return Err(Error::input("expected files in the sample, found none"));
    };
    plan.bytes = limit_sources(&mut plan.inputs, sample)?;
    context.cancel.check()?;
    let opening = started.elapsed();
    let started = Instant::now();
    let transaction = TransactionId::fresh();
    let naming = ShardNaming::for_dataset(&plan.settings, transaction.short_tag());
    let (plan, made) = run::carry_out(&job, *plan, &naming, &transaction.into())?;
    let converting = started.elapsed();
    let read = match &plan.inputs {
        Inputs::Samples { .. } => plan.bytes,
        Inputs::Records(sources) => {
            let read = |source: &RecordSource| match &source.first {
                Some(first) => first.read().min(source.file.bytes()),
                None => source.file.bytes(),
            };
            sources.iter().map(read).sum()
        }
    };
    if made.converted.records == 0 {
        return Err(Error::input("expected records in the sample, found none"));
    }
    let written = made.converted.shards.iter().map(|finished| finished.shard.meta.bytes).sum();
    let (target, memory) = (plan.settings.target_shard.0, plan.memory.peak_memory());
    Ok(Trial { opening, converting, read, written, target, memory })
}

/// Returns why `convert` refuses small files, as [`is_small`] says; `None` if it does not, or if they are not small.
pub(in crate::ops) fn refusal_of_small(
    context: &Context<'_>,
    files: &[SourceFile],
    options: &ConvertOptions,
) -> Option<Error> {
    let attempt = || -> Result<()> {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory()?));
        let (job, settings) = ConvertJob::new(context, &dataset, None, options, None)?;
        match decide_plan(&job, settings, fresh_listing(files.to_vec(), files.len()))? {
            Decision::Convert(plan) if is_small(&job, &plan) => convert_in_memory(job, *plan).map(drop),
            _ => Ok(()),
        }
    };
    attempt().err()
}

/// Returns the listing of files that are all new.
fn fresh_listing(fresh: Vec<SourceFile>, of: usize) -> Listing {
    Listing {
        fresh,
        of,
        faults: Vec::new(),
        live: Vec::new(),
        replaced: std::collections::HashSet::new(),
        skipped: SkippedCounts::default(),
        labels: None,
    }
}

/// Inputs that a dry run converts into memory at most: each makes some bytes of shards, even if it is empty.
const FEW: usize = 16_384;

/// Whether a dry run converts all inputs into memory: they are local, few, of few bytes, and of formats whose records
/// are no larger than what is stored of them.
pub(super) fn is_small(job: &ConvertJob<'_>, plan: &ConvertPlan) -> bool {
    let is_plain = |source: &RecordSource| !source.packed && (source.format.is_text() || source.yields_samples());
    plan.bytes <= SMALL
        && plan.inputs.source_files().take(FEW + 1).count() <= FEW
        && !job.options.sources.iter().any(|source| source == STDIN)
        && plan.inputs.source_files().all(|file| !file.is_remote())
        && match &plan.inputs {
            Inputs::Records(sources) => sources.iter().all(is_plain),
            Inputs::Samples { .. } => true,
        }
}

/// Carries out a plan in memory; returns it with the types that hold all values, and what it gave.
///
/// # Errors
/// As `convert`.
pub(super) fn convert_in_memory(job: ConvertJob<'_>, plan: ConvertPlan) -> Result<(ConvertPlan, Estimate)> {
    let dataset = Dataset::new(Arc::new(RemoteStore::in_memory()?));
    let job = ConvertJob { dataset: &dataset, ..job };
    let transaction = TransactionId::fresh();
    let naming = ShardNaming::for_dataset(&plan.settings, transaction.short_tag());
    let (plan, made) = run::carry_out(&job, plan, &naming, &transaction.into())?;
    let estimate = Estimate {
        records: made.converted.records,
        bytes: made.converted.shards.iter().map(|finished| finished.shard.meta.bytes).sum(),
        shards: made.converted.shards.len() as u64,
        rejected: Some(made.tally.rejected),
        sampled: false,
        compressed: false,
    };
    Ok((plan, estimate))
}

/// Limits sources of records to their starts; returns the bytes to be read.
fn limit_sources(inputs: &mut Inputs, sample: &[FileStart]) -> Result<u64> {
    match inputs {
        Inputs::Samples { files, .. } => {
            let bytes = files.iter().map(SourceFile::bytes).sum();
            if bytes > MAX_WHOLE {
                return Err(Error::input("expected a sample that fits into memory, found a larger one"));
            }
            Ok(bytes)
        }
        Inputs::Records(sources) => {
            let most: HashMap<&str, u64> = sample.iter().map(|start| (start.file.name(), start.most)).collect();
            for source in sources.iter_mut() {
                let most = most.get(source.file.name()).copied().filter(|most| *most < source.file.bytes());
                source.first = most.map(|most| Arc::new(First::new(most)));
            }
            Ok(sources.iter().map(RecordSource::input_bytes).sum())
        }
    }
}
