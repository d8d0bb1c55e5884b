//! Converts a sample of a source into memory, to measure what the whole will take. Everything is done as `convert` does it, up to the
//! commit; nothing is kept.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    inputs::Inputs,
    job::Job,
    listing::{Listing, Skipped},
    naming,
    options::ConvertOptions,
    plan::{Decision, decide},
    run,
};
use crate::{
    dataset::Dataset,
    error::{Error, Result},
    id::TransactionId,
    ops::Context,
    scan::{First, SourceFile},
    storage::RemoteStore,
};

/// Maximum bytes of files that are read whole: their shards are in memory.
const MAX_WHOLE: u64 = 256 << 20;

/// The start of a file.
#[derive(Debug, Clone)]
pub(in crate::ops) struct Start {
    /// The file.
    pub(in crate::ops) file: SourceFile,
    /// About how many of its stored bytes are converted, if it holds records; files that are parts of samples are read whole.
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

/// Converts a sample of a source that has `of` files.
///
/// # Errors
/// As `convert`; if the sample has no records, or is too large to be held in memory.
pub(in crate::ops) fn trial(
    context: &Context<'_>,
    (sample, of): (&[Start], usize),
    options: &ConvertOptions,
) -> Result<Trial> {
    let started = Instant::now();
    let dataset = Dataset::new(Arc::new(RemoteStore::memory()?));
    let (job, settings) = Job::new(context, (&dataset, None), options, None)?;
    let listing = Listing {
        fresh: sample.iter().map(|start| start.file.clone()).collect(),
        of,
        faults: Vec::new(),
        live: Vec::new(),
        replaced: std::collections::HashSet::new(),
        skipped: Skipped::default(),
        labels: None,
    };
    let Decision::Convert(mut plan) = decide(&job, settings, listing)? else {
        return Err(Error::input("expected files in the sample, found none"));
    };
    plan.bytes = limit(&mut plan.inputs, sample)?;
    context.cancel.check()?;
    let opening = started.elapsed();
    let started = Instant::now();
    let transaction = TransactionId::fresh();
    let naming = naming(&plan.settings, &transaction);
    let (plan, made) = run::carry_out(&job, *plan, &naming, &transaction.into())?;
    let converting = started.elapsed();
    let read = match &plan.inputs {
        Inputs::Samples { .. } => plan.bytes,
        Inputs::Records(sources) => {
            let read = |source: &crate::scan::RecordSource| match &source.first {
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
    let (target, memory) = (plan.settings.target_shard.0, plan.memory.estimate());
    Ok(Trial { opening, converting, read, written, target, memory })
}

/// Limits sources of records to their starts; returns the bytes to be read.
fn limit(inputs: &mut Inputs, sample: &[Start]) -> Result<u64> {
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
            Ok(sources.iter().map(crate::scan::RecordSource::bytes).sum())
        }
    }
}
