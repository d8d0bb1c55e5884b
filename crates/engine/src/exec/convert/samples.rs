//! Reads samples made of files: several ranges at a time, and more of them than there are processors, because most of
//! the time is spent waiting for the disk or the store.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
    thread::Scope,
};

use arrow::datatypes::Fields;
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::{Outcomes, Pipeline, can_skip};
use crate::{
    error::Result,
    exec::{
        budget::{Limits, ordered_within},
        gates::subjects::SubjectResolver,
        gather::{Misfit, OnError, ReadOutcome},
    },
    format::files::{SampleFiles, Samples, plan_ranges, read_block},
    plan::memory::MemoryPlan,
    record::{Part, Payload, RecordBlock, Reject, buffer_pool::BufferPool},
    scan::SourceFile,
    storage::{REMOTE_REQUESTS, is_missing},
};

/// Maximum files of a range if opening a file is cheap.
const LOCAL_FILES: usize = 256;

/// Maximum bytes of such a range: small, so that many are read at a time.
const LOCAL_BYTES: u64 = 1 << 20;

/// Minimum number of local files read at a time: more than processors, so that others proceed while one waits for the
/// disk.
const LOCAL_REQUESTS: usize = 32;

/// Minimum number of files read at a time if they are in memory: threads that wait for nothing only get in each other's
/// way.
const CACHED_REQUESTS: usize = 4;

/// Number of files by which it is decided whether all are in memory.
const CACHE_PROBES: usize = 16;

/// Maximum files of a range if each file is a request to a remote store, so that no range waits long for its last file.
const REMOTE_FILES: usize = 8;

/// Plan for reading the files of samples.
#[derive(Debug)]
pub struct ReadPlan {
    /// Ranges of samples that are read together.
    ranges: Vec<Range<usize>>,
    /// Number of ranges read at a time.
    requests: usize,
    /// Number of ranges that are read or queued.
    window: usize,
    /// Byte budget for ranges in flight.
    budget: u64,
}

impl ReadPlan {
    /// Plans to read the files within `memory`. The output does not depend on the plan.
    pub fn new(files: &[SourceFile], samples: &Samples, memory: MemoryPlan, jobs: usize) -> Self {
        let budget = 4 * memory.range_bytes * memory.parse_window as u64;
        if files.iter().any(SourceFile::is_remote) {
            let range_bytes = memory.range_bytes / 8;
            Self {
                ranges: plan_ranges(samples, files, range_bytes, REMOTE_FILES),
                requests: REMOTE_REQUESTS,
                window: REMOTE_REQUESTS * 4,
                budget,
            }
        } else {
            let least = if are_cached(files) { CACHED_REQUESTS } else { LOCAL_REQUESTS };
            let requests = least.max(jobs * 2);
            Self {
                ranges: plan_ranges(samples, files, memory.range_bytes.min(LOCAL_BYTES), LOCAL_FILES),
                requests,
                window: requests * 2,
                budget,
            }
        }
    }
}

/// Whether files at equal distances in the list are all in memory.
fn are_cached(files: &[SourceFile]) -> bool {
    files.iter().step_by(files.len().div_ceil(CACHE_PROBES).max(1)).all(SourceFile::is_cached)
}

/// Reads the files of samples.
#[derive(Clone, Copy)]
pub(super) struct SampleReader<'a> {
    pub(super) pipeline: &'a Pipeline<'a>,
    pub(super) files: &'a [SourceFile],
    pub(super) samples: &'a Samples,
    pub(super) rejected: &'a BTreeMap<usize, String>,
    pub(super) hashes: &'a [AtomicU64],
    pub(super) subjects: Option<&'a SubjectResolver>,
}

impl SampleReader<'_> {
    fn bytes_of(&self, range: &Range<usize>) -> u64 {
        self.samples.iter_range(range.clone(), self.files).map(SampleFiles::total_bytes).sum()
    }

    fn read(&self, range: &Range<usize>, pool: &BufferPool) -> Result<ReadOutcome> {
        let rejects = rejects_of(self.rejected, range);
        let wanted: Vec<usize> = range.clone().filter(|i| !self.rejected.contains_key(i)).collect();
        let sample = |i: usize| self.samples.get(i, self.files);
        // Stream formats hash the framed records instead.
        let hashed = self.pipeline.framing().is_none();
        let mut block = read_range(wanted.iter().map(|i| sample(*i)), self.pipeline.on_error, hashed, pool)?;
        annotate_samples(&mut block, self.subjects, self.hashes, |row| sample(wanted[row as usize]));
        renumber_rows(&mut block, &wanted, range.start);
        Ok(match self.pipeline.gated(0, 0, block)? {
            Ok(mut outcome) => {
                if let ReadOutcome::Parsed { gated, .. } = &mut outcome {
                    gated.effects.rejected.extend(rejects);
                }
                outcome
            }
            Err(mismatch) => ReadOutcome::Mismatch(Misfit { source: 0, mismatch, near: Fields::empty() }),
        })
    }
}

/// Reads samples of files, several ranges at a time.
pub(super) fn read_samples<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    reader: SampleReader<'a>,
    plan: &'a ReadPlan,
) -> Outcomes<'scope> {
    let ranges = plan.ranges.iter().cloned().map(Ok);
    let pool = BufferPool::default();
    let read = move |range: Range<usize>| reader.read(&range, &pool);
    let limits = Limits { bytes: plan.budget, jobs: plan.requests.min(plan.ranges.len()), window: plan.window };
    let bytes_of = move |range: &Range<usize>| reader.bytes_of(range);
    Box::new(ordered_within(scope, ranges, bytes_of, limits, reader.pipeline.cancel, read))
}

/// Row of a sample within its range.
fn row_in(range_start: usize, sample: usize) -> u32 {
    u32::try_from(sample - range_start).unwrap_or(u32::MAX)
}

/// Assigns subject ids to samples by their files and stores the hash of each file, both only if requested.
fn annotate_samples<'a>(
    block: &mut RecordBlock,
    resolver: Option<&SubjectResolver>,
    hashes: &[AtomicU64],
    files_of: impl Fn(u32) -> SampleFiles<'a, SourceFile>,
) {
    let Payload::Samples(samples) = &mut block.payload else { return };
    if resolver.is_none() && hashes.is_empty() {
        return;
    }
    for (sample, row) in samples.iter_mut().zip(&block.rows) {
        let files = files_of(*row);
        sample.subject = resolver.and_then(|resolver| resolver.of_sample(files));
        let given = |part: &&Part| files.given_contents().any(|(extension, _)| extension == part.extension);
        for (number, part) in files.file_indexes().zip(sample.parts.iter().filter(|part| !given(part))) {
            if let Some(place) = hashes.get(number) {
                place.store(xxh3_64(&part.bytes), Ordering::Relaxed);
            }
        }
    }
}

/// Returns the rejects for samples of a range that are not read.
fn rejects_of(rejected: &BTreeMap<usize, String>, range: &Range<usize>) -> Vec<Reject> {
    let reject = |(sample, reason): (&usize, &String)| Reject {
        row: row_in(range.start, *sample),
        line: 0,
        byte: 0,
        column: None,
        reason: reason.clone(),
        raw: Bytes::new(),
    };
    rejected.range(range.clone()).map(reject).collect()
}

/// Maps rows of a block, read from some samples of a range, to rows of the range.
fn renumber_rows(block: &mut RecordBlock, wanted: &[usize], start: usize) {
    let in_range = |row: u32| wanted.get(row as usize).map_or(row, |sample| row_in(start, *sample));
    block.rows.iter_mut().for_each(|row| *row = in_range(*row));
    block.rejects.iter_mut().for_each(|reject| reject.row = in_range(reject.row));
}

fn read_range<'a>(
    samples: impl Iterator<Item = SampleFiles<'a, SourceFile>> + Clone,
    on_error: OnError,
    hashed: bool,
    pool: &BufferPool,
) -> Result<RecordBlock> {
    match read_block(samples.clone(), hashed, pool, &read_file) {
        Err(e) if !can_skip(&e, on_error) => Err(e),
        // One file cannot be read: read sample by sample to find it, and keep the others.
        Err(_) => read_one_by_one(samples, hashed, pool),
        read => read,
    }
}

fn read_file(file: &SourceFile, into: &mut Vec<u8>) -> Result<()> {
    let gone = "it was deleted after it was listed, or is a broken link; skip it with --exclude";
    let read = file.read_whole(into);
    read.map_err(|e| if is_missing(&e) { e.with_hint(gone) } else { e })
}

/// Reads samples one by one; unreadable samples become rejects.
fn read_one_by_one<'a>(
    samples: impl Iterator<Item = SampleFiles<'a, SourceFile>>,
    hashed: bool,
    pool: &BufferPool,
) -> Result<RecordBlock> {
    let mut all = RecordBlock::empty();
    let mut accepted = Vec::new();
    for (sample, row) in samples.zip(0..) {
        match read_block(std::iter::once(sample), hashed, pool, &read_file) {
            Ok(block) => {
                if let Payload::Samples(samples) = block.payload {
                    all.rows.extend(samples.iter().map(|_| row));
                    accepted.extend(samples);
                }
                all.hashes.extend(block.hashes);
                all.rejects.extend(block.rejects.into_iter().map(|reject| Reject { row, ..reject }));
                all.bytes_in += block.bytes_in;
            }
            Err(e) if !can_skip(&e, OnError::Skip) => return Err(e),
            Err(e) => all.rejects.push(Reject {
                row,
                line: 0,
                byte: 0,
                column: None,
                reason: format!("{}: {e}", sample.key()),
                raw: Bytes::new(),
            }),
        }
    }
    all.payload = Payload::Samples(accepted);
    Ok(all)
}
