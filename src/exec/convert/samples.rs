//! Reads samples made of files: several splits at a time, and more of them than there are processors, since what takes time is
//! waiting for the disk or the store.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::Scope,
};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::{Outcomes, Pipeline, REMOTE_REQUESTS, fitting, survives};
use crate::{
    error::{Kind, Result},
    exec::{
        budget::{Budget, Released},
        gather::{OnError, ReadOutcome},
        ordered::ordered,
        subjects::SubjectResolver,
    },
    format::files::{SampleFiles, Samples, plan_splits, read_block},
    plan::memory::MemoryPlan,
    record::{Payload, RecordBlock, Reject, spare::Spare},
    scan::SourceFile,
};

/// Files of a split at most, where opening one costs little.
const LOCAL_FILES: usize = 256;

/// Bytes of such a split at most: small, so that many of them are read at a time.
const LOCAL_BYTES: u64 = 1 << 20;

/// Files read at a time from a local disk at least: more than processors, for while one waits for the disk others go on.
const LOCAL_REQUESTS: usize = 32;

/// Files of a split at most where each is a request to a remote store, which others should not have to wait for.
const REMOTE_FILES: usize = 8;

/// How files of samples are read.
#[derive(Debug)]
pub struct Reading {
    /// Ranges of samples to read together.
    splits: Vec<Range<usize>>,
    /// Splits that are read at a time.
    requests: usize,
    /// Splits that are read or wait for their turn.
    window: usize,
    /// Byte budget for splits in flight.
    budget: u64,
}

impl Reading {
    /// Plans to read the files within `memory`. What comes out does not depend on it.
    pub fn new(files: &[SourceFile], samples: &Samples, memory: MemoryPlan, jobs: usize) -> Self {
        let budget = 4 * memory.split_bytes * memory.parse_window as u64;
        if files.iter().any(SourceFile::is_remote) {
            let split_bytes = memory.split_bytes / 8;
            Self {
                splits: plan_splits(samples, files, split_bytes, REMOTE_FILES),
                requests: REMOTE_REQUESTS,
                window: REMOTE_REQUESTS * 4,
                budget,
            }
        } else {
            let requests = LOCAL_REQUESTS.max(jobs * 2);
            Self {
                splits: plan_splits(samples, files, memory.split_bytes.min(LOCAL_BYTES), LOCAL_FILES),
                requests,
                window: requests * 2,
                budget,
            }
        }
    }
}

/// Reads the files of samples.
#[derive(Clone, Copy)]
pub(super) struct SampleReader<'a> {
    pub(super) pipeline: &'a Pipeline<'a>,
    pub(super) files: &'a [SourceFile],
    pub(super) samples: &'a Samples,
    pub(super) left_out: &'a BTreeMap<usize, String>,
    pub(super) hashes: &'a [AtomicU64],
    /// Columns that samples must fit; `None` if the format has none.
    pub(super) columns: Option<&'a SchemaRef>,
}

impl SampleReader<'_> {
    fn bytes_of(&self, range: &Range<usize>) -> u64 {
        self.samples.range(range.clone(), self.files).map(SampleFiles::bytes).sum()
    }

    fn read(&self, range: &Range<usize>, spare: &Spare) -> Result<ReadOutcome> {
        let rejects = rejects_of(self.left_out, range);
        let wanted: Vec<usize> = range.clone().filter(|i| !self.left_out.contains_key(i)).collect();
        let sample = |i: usize| self.samples.get(i, self.files);
        // Streams hash what they frame.
        let hashed = self.columns.is_some();
        let mut block = read_range(wanted.iter().map(|i| sample(*i)), self.pipeline.on_error, hashed, spare)?;
        annotate_samples(&mut block, self.pipeline.subjects, self.hashes, |row| sample(wanted[row as usize]));
        renumber(&mut block, &wanted, range.start);
        Ok(ReadOutcome::Parsed {
            source: 0,
            offset: 0,
            parsed: fitting(block, self.columns),
            left_out: rejects,
            erased: 0,
        })
    }
}

/// Reads samples of files, several splits at a time.
pub(super) fn read_samples<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    reader: SampleReader<'a>,
    reading: &'a Reading,
) -> Outcomes<'scope> {
    let budget = Arc::new(Budget::new(reading.budget));
    let room = Arc::clone(&budget);
    let ranges = reading.splits.iter().cloned().map(move |range| (reader.bytes_of(&range), range));
    let ranges = ranges.take_while(move |(bytes, _)| room.acquire(*bytes)).map(Ok);
    let spare = Spare::default();
    let read = move |(bytes, range): (u64, Range<usize>)| Ok((bytes, reader.read(&range, &spare)?));
    let requests = reading.requests.min(reading.splits.len());
    let read = ordered(scope, ranges, requests, reading.window, reader.pipeline.cancel, read);
    Box::new(Released::new(read, budget))
}

/// Row of a sample within its range.
fn row_in(range_start: usize, sample: usize) -> u32 {
    u32::try_from(sample - range_start).unwrap_or(u32::MAX)
}

/// Assigns subject ids to samples by their files, and stores the hash of each file; each only if asked for.
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
        for (number, part) in files.numbers().zip(&sample.parts) {
            if let Some(place) = hashes.get(number) {
                place.store(xxh3_64(&part.bytes), Ordering::Relaxed);
            }
        }
    }
}

/// Samples of a range that are not to be read.
fn rejects_of(left_out: &BTreeMap<usize, String>, range: &Range<usize>) -> Vec<Reject> {
    let reject = |(sample, reason): (&usize, &String)| Reject {
        row: row_in(range.start, *sample),
        line: 0,
        byte: 0,
        column: None,
        reason: reason.clone(),
        raw: Bytes::new(),
    };
    left_out.range(range.clone()).map(reject).collect()
}

/// Rows of a block that was read of some samples of a range become rows of the range.
fn renumber(block: &mut RecordBlock, wanted: &[usize], start: usize) {
    let in_range = |row: u32| wanted.get(row as usize).map_or(row, |sample| row_in(start, *sample));
    block.rows.iter_mut().for_each(|row| *row = in_range(*row));
    block.rejects.iter_mut().for_each(|reject| reject.row = in_range(reject.row));
}

fn read_range<'a>(
    samples: impl Iterator<Item = SampleFiles<'a, SourceFile>> + Clone,
    on_error: OnError,
    hashed: bool,
    spare: &Spare,
) -> Result<RecordBlock> {
    match read_block(samples.clone(), hashed, spare, &read_file) {
        Err(e) if !survives(&e, on_error) => Err(e),
        // One file cannot be read: find out which sample it is of, and take the others.
        Err(_) => read_apart(samples, hashed, spare),
        read => read,
    }
}

fn read_file(file: &SourceFile, into: &mut Vec<u8>) -> Result<()> {
    let gone = "it vanished since it was listed, or is a link that leads nowhere; leave it out with --exclude";
    let read = file.read_whole(into);
    read.map_err(|e| if e.kind() == Kind::Storage { e.hint(gone) } else { e })
}

/// Reads samples one by one; those that cannot be read become rejects.
fn read_apart<'a>(
    samples: impl Iterator<Item = SampleFiles<'a, SourceFile>>,
    hashed: bool,
    spare: &Spare,
) -> Result<RecordBlock> {
    let mut all = RecordBlock::empty();
    let mut taken = Vec::new();
    for (sample, row) in samples.zip(0..) {
        match read_block(std::iter::once(sample), hashed, spare, &read_file) {
            Ok(block) => {
                if let Payload::Samples(samples) = block.payload {
                    all.rows.extend(samples.iter().map(|_| row));
                    taken.extend(samples);
                }
                all.hashes.extend(block.hashes);
                all.rejects.extend(block.rejects.into_iter().map(|reject| Reject { row, ..reject }));
                all.bytes_in += block.bytes_in;
            }
            Err(e) if !survives(&e, OnError::Skip) => return Err(e),
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
    all.payload = Payload::Samples(taken);
    Ok(all)
}
