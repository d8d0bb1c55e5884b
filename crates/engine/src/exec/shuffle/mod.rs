//! Shuffles gathered records, in bounded memory: they are prepared, sorted by rank into runs, and merged an interval of
//! ranks at a time.
//!
//! ```text
//! Gather --(prepare: workers)--> number, index ids, count ranks --(sort: workers)--> runs
//! intervals of ranks --(merge: workers)--> records by split and rank --> batches --> Cut
//! ```
//!
//! Ranks are uniform, so the intervals have about the same size, and any number of threads can merge them.
//!
//! Record numbers, and with them the id index and the list of sources, are those of the order of the input.

mod indexed;
mod runs;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
};

use arrow::{array::RecordBatch, compute::concat_batches};

pub use indexed::ShuffledIds;

use super::{
    encode::Layout,
    gather::Gathered,
    ordered::{Ordered, run_ordered},
    spill,
};
use crate::{
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    format::parquet::logical_bytes,
    plan::{
        memory::MemoryPlan,
        roll::InputSize,
        shuffle::{Cells, Interval, ShuffleMemory},
    },
    record::split::Split,
    storage::{Store, sys::release_freed_memory},
    units::Size,
};

use runs::{Key, KeyColumns, ShuffleRun, ShuffleRunWriter, sort_records};

/// Stored bytes of input that a batch of shuffled records stands for, and the most records of one. Both are fixed,
/// because where units end follows from the batches.
const BATCH_BYTES: u64 = 128 << 10;
const MAX_BATCH: u64 = 4096;

/// Maximum number of files that are read at a time when places are put in order.
const MAX_PLACE_FILES: usize = 128;

/// Batches after which freed memory is released: each thread frees what another has allocated.
const RELEASED_BATCHES: usize = 32;

/// What a shuffle needs besides its records.
#[derive(Clone, Copy)]
pub struct ShuffleSetup<'a> {
    /// Store of the dataset.
    pub store: &'a Arc<dyn Store>,
    /// Number of splits.
    pub splits: Split,
    /// Memory limits.
    pub memory: MemoryPlan,
    /// Number of threads.
    pub jobs: usize,
    /// Receives progress events.
    pub observer: &'a dyn Observer,
    /// Cancellation token.
    pub cancel: &'a Cancel,
}

/// Puts records in the order of their ranks.
pub struct Shuffler<'a> {
    setup: ShuffleSetup<'a>,
    layout: Layout,
    memory: ShuffleMemory,
}

/// Records in sorted runs.
pub struct Spilled {
    runs: Vec<ShuffleRun>,
    totals: Totals,
}

impl Spilled {
    /// Returns the number of records of each split.
    pub fn split_records(&self) -> &[u64] {
        &self.totals.records
    }
}

/// What is known of all records.
struct Totals {
    /// Number of the records of each split.
    records: Vec<u64>,
    cells: Cells,
    /// Bytes of the prepared records.
    bytes: u64,
}

impl Totals {
    /// Returns how many records have so many bytes.
    fn records_of(&self, bytes: u64) -> u64 {
        records_of(bytes, self.records.iter().sum(), self.bytes)
    }
}

impl<'a> Shuffler<'a> {
    /// Prepares to shuffle records with these columns.
    pub fn new(setup: ShuffleSetup<'a>, layout: Layout) -> Self {
        let memory = ShuffleMemory::new(Size(setup.memory.bytes), setup.jobs);
        Self { setup, layout, memory }
    }

    /// Returns the columns of the records.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns how many files are read at a time.
    pub fn fan_in(&self) -> usize {
        self.memory.fan_in.min(MAX_PLACE_FILES)
    }

    /// Sorts records into runs.
    ///
    /// # Errors
    /// Those of the records; if the disk fails.
    pub fn spill_batches<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'scope,
    ) -> Result<Spilled> {
        let (setup, layout) = (&self.setup, &self.layout);
        let splits = usize::from(setup.splits);
        let totals = Arc::new(Mutex::new(Totals { records: vec![0; splits], cells: Cells::new(splits), bytes: 0 }));
        let (memory, limit) = (self.memory, setup.memory.bytes);
        let chunks = Chunks { batches, totals: Arc::clone(&totals), layout, memory, limit, held: 0, next: None };
        let sort = move |chunk: Chunk| self.sort_chunk(chunk);
        let runs = run_ordered(scope, chunks, setup.jobs.min(2), 2, setup.cancel, sort).collect::<Result<Vec<_>>>()?;
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        let none = Totals { records: Vec::new(), cells: Cells::new(0), bytes: 0 };
        Ok(Spilled { runs, totals: std::mem::replace(&mut totals, none) })
    }

    fn sort_chunk(&self, chunk: Chunk) -> Result<ShuffleRun> {
        let sorted = sort_records(&self.layout, &chunk.batches, 0)?;
        if chunk.is_held {
            return Ok(ShuffleRun::Held(sorted));
        }
        let block = records_of(self.memory.block_bytes, sorted.num_rows() as u64, chunk.bytes);
        let location = self.setup.store.location();
        ShuffleRun::write(location, &self.layout, &sorted, usize::try_from(block).unwrap_or(usize::MAX))
    }

    /// Returns the records in their order, side by side; `input` is the size of the input, of which each record
    /// accounts for an equal part.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn merge_runs<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        spilled: Spilled,
        input: InputSize,
    ) -> Result<Shuffled<'scope>> {
        let setup = &self.setup;
        setup.observer.event(Event::Phase { name: "shuffling", bytes: Some(input.bytes) });
        release_freed_memory(setup.memory.bytes / 2);
        let Spilled { runs, totals } = spilled;
        let runs = self.reduce_runs(scope, runs, &totals)?;
        let intervals = totals.cells.to_intervals(totals.records_of(self.memory.interval_bytes));
        let batch_rows = batch_rows(totals.records.iter().sum(), input.bytes);
        let dropped = self.layout.key_columns().len();
        let merged = self.merge_intervals(scope, runs, intervals, batch_rows as u64, dropped);
        let splits = totals.records.iter().map(|records| (*records, 0)).collect();
        let open = OpenBatch { batches: Vec::new(), rows: 0, limit: batch_rows };
        let (layout, observer, memory) = (&self.layout, setup.observer, setup.memory.bytes);
        let waiting = VecDeque::new();
        Ok(Shuffled {
            merged,
            layout,
            observer,
            memory,
            batches: 0,
            input: input.bytes,
            splits,
            waiting,
            open,
            failed: false,
        })
    }

    /// Merges runs in files until few remain.
    fn reduce_runs<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        runs: Vec<ShuffleRun>,
        totals: &Totals,
    ) -> Result<Vec<ShuffleRun>> {
        let (files, held): (Vec<ShuffleRun>, Vec<ShuffleRun>) =
            runs.into_iter().partition(|run| matches!(run, ShuffleRun::File(_)));
        let records: u64 = totals.records.iter().sum();
        let block = totals.records_of(self.memory.block_bytes);
        let mut files = spill::reduce_runs(files, self.memory.fan_in, |some| {
            let of_some: u64 = some.iter().map(ShuffleRun::record_count).sum();
            // These runs have only a part of the records of each cell.
            let limit = totals.records_of(self.memory.interval_bytes);
            let limit = u128::from(limit) * u128::from(records) / u128::from(of_some.max(1));
            let intervals = totals.cells.to_intervals(u64::try_from(limit).unwrap_or(u64::MAX));
            let mut writer = ShuffleRunWriter::create(self.setup.store.location(), self.layout.schema())?;
            for merged in self.merge_intervals(scope, some, intervals, block, 0) {
                merged?.batches.iter().try_for_each(|batch| writer.push_block(&self.layout, batch))?;
            }
            writer.finish()
        })?;
        files.extend(held);
        Ok(files)
    }

    /// Returns the records of runs in order, cut after each multiple of `batch_rows` records of a split and at the ends
    /// of intervals, without the first `dropped` columns.
    fn merge_intervals<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        runs: Vec<ShuffleRun>,
        intervals: Vec<Interval>,
        batch_rows: u64,
        dropped: usize,
    ) -> Ordered<MergedInterval> {
        let setup = &self.setup;
        let runs: Arc<[ShuffleRun]> = runs.into();
        let merge = move |interval: Interval| {
            let split = Split::try_from(interval.split).map_err(|_| Error::internal("a split has no number"))?;
            let [first, last] = [*interval.ranks.start(), *interval.ranks.end()].map(|rank| Key { split, rank });
            let mut pieces = Vec::new();
            runs.iter().try_for_each(|run| run.read(&self.layout, &(first..=last), &mut pieces))?;
            let batch = sort_records(&self.layout, &pieces, dropped)?;
            Ok(MergedInterval { split, batches: cut_batch(&batch, interval.first, batch_rows.max(1)) })
        };
        run_ordered(scope, intervals.into_iter().map(Ok), setup.jobs, setup.jobs + 1, setup.cancel, merge)
    }
}

/// Records of an interval, cut into batches.
struct MergedInterval {
    split: Split,
    batches: Vec<RecordBatch>,
}

/// Cuts a batch, which begins with record `first`, after each multiple of `rows` records.
fn cut_batch(batch: &RecordBatch, first: u64, rows: u64) -> Vec<RecordBatch> {
    let (mut at, mut out) = (0, Vec::new());
    while at < batch.num_rows() {
        let left = rows - (first + at as u64) % rows;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(batch.num_rows() - at);
        out.push(batch.slice(at, length));
        at += length;
    }
    out
}

/// Returns how many records have so many bytes, given that `records` have `of_bytes`.
fn records_of(bytes: u64, records: u64, of_bytes: u64) -> u64 {
    let records = u128::from(bytes) * u128::from(records) / u128::from(of_bytes.max(1));
    u64::try_from(records).unwrap_or(u64::MAX).max(1)
}

/// Returns the number of records of a batch: a power of two, so that a slightly different size gives the same.
fn batch_rows(records: u64, bytes: u64) -> usize {
    let rows = u128::from(BATCH_BYTES) * u128::from(records) / u128::from(bytes.max(1));
    let rows = u64::try_from(rows).unwrap_or(MAX_BATCH).clamp(1, MAX_BATCH);
    1 << rows.ilog2()
}

/// Records that are sorted together.
struct Chunk {
    batches: Vec<RecordBatch>,
    bytes: u64,
    /// Whether they stay in memory.
    is_held: bool,
}

/// Counts records and collects as many as are sorted at a time.
struct Chunks<'a, I> {
    batches: I,
    totals: Arc<Mutex<Totals>>,
    layout: &'a Layout,
    memory: ShuffleMemory,
    /// The memory limit.
    limit: u64,
    /// Bytes of records that stay in memory.
    held: u64,
    /// Records that would make the chunk before them too large.
    next: Option<RecordBatch>,
}

impl<I: Iterator<Item = Result<RecordBatch>>> Chunks<'_, I> {
    fn count_batch(&self, batch: &RecordBatch) -> Result<()> {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = KeyColumns::from_batch(self.layout, batch);
        for row in 0..keys.len() {
            let Key { split, rank } = keys.key_at(row);
            let records = totals.records.get_mut(usize::from(split));
            *records.ok_or_else(|| Error::internal("a record has no split"))? += 1;
            totals.cells.count_record(split.into(), rank);
        }
        totals.bytes += logical_bytes(batch);
        Ok(())
    }

    fn next_chunk(&mut self) -> Result<Chunk> {
        release_freed_memory(self.limit / 8 * 7);
        let mut chunk = Chunk { batches: Vec::new(), bytes: 0, is_held: false };
        while chunk.bytes < self.memory.run_bytes {
            let batch = match self.next.take() {
                Some(batch) => batch,
                None => match self.batches.next().transpose()? {
                    Some(batch) => {
                        self.count_batch(&batch)?;
                        batch
                    }
                    None => break,
                },
            };
            let bytes = logical_bytes(&batch);
            if !chunk.batches.is_empty() && chunk.bytes + bytes > 2 * self.memory.run_bytes {
                self.next = Some(batch);
                break;
            }
            chunk.bytes += bytes;
            chunk.batches.push(batch);
        }
        chunk.is_held = self.held + chunk.bytes <= self.memory.held_bytes;
        if chunk.is_held {
            self.held += chunk.bytes;
        }
        Ok(chunk)
    }
}

impl<I: Iterator<Item = Result<RecordBatch>>> Iterator for Chunks<'_, I> {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_chunk()).filter(|chunk| !chunk.as_ref().is_ok_and(|chunk| chunk.batches.is_empty()))
    }
}

/// Batches that become one.
struct OpenBatch {
    batches: Vec<RecordBatch>,
    rows: usize,
    /// Number of records of a batch.
    limit: usize,
}

impl OpenBatch {
    fn take_batch(&mut self) -> Result<RecordBatch> {
        self.rows = 0;
        let batches = std::mem::take(&mut self.batches);
        match batches.as_slice() {
            [one] => Ok(one.clone()),
            [first, ..] => Ok(concat_batches(&first.schema(), &batches)?),
            [] => Err(Error::internal("a batch has no records")),
        }
    }
}

/// Shuffled records, those of each split after those of the splits before it.
pub struct Shuffled<'a> {
    merged: Ordered<MergedInterval>,
    layout: &'a Layout,
    observer: &'a dyn Observer,
    /// The memory limit, and batches since freed memory was released.
    memory: u64,
    batches: usize,
    /// Stored bytes of the input.
    input: u64,
    /// Records of each split, and how many of them were passed on.
    splits: Vec<(u64, u64)>,
    /// Pieces of batches, with their split.
    waiting: VecDeque<(Split, RecordBatch)>,
    open: OpenBatch,
    failed: bool,
}

impl Shuffled<'_> {
    /// Returns the next batch, which is the same wherever intervals end.
    fn next_batch(&mut self) -> Result<Option<(Split, RecordBatch)>> {
        loop {
            if let Some((split, piece)) = self.waiting.pop_front() {
                self.open.rows += piece.num_rows();
                self.open.batches.push(piece);
                let (all, passed) = self.splits.get(usize::from(split)).copied().unwrap_or_default();
                if self.open.rows >= self.open.limit || passed + self.open.rows as u64 == all {
                    return Ok(Some((split, self.open.take_batch()?)));
                }
                continue;
            }
            let Some(merged) = self.merged.next().transpose()? else { break };
            self.waiting.extend(merged.batches.into_iter().map(|batch| (merged.split, batch)));
        }
        if self.splits.iter().any(|(all, passed)| all != passed) {
            let (all, found) = self.splits.iter().fold((0, 0), |sums, split| (sums.0 + split.0, sums.1 + split.1));
            let message = format!("expected {all} records in temporary files, found {found}");
            return Err(Error::storage(message).with_hint("something changed them; run the command again"));
        }
        Ok(None)
    }

    fn gather_batch(&mut self, split: Split, batch: &RecordBatch) -> Result<Gathered> {
        self.batches = (self.batches + 1) % RELEASED_BATCHES;
        if self.batches == 0 {
            release_freed_memory(self.memory / 4 * 3);
        }
        let records_of_all = self.splits.iter().map(|(all, _)| *all).sum::<u64>().max(1);
        let (all, passed) =
            self.splits.get_mut(usize::from(split)).ok_or_else(|| Error::internal("a record has no split"))?;
        // The records of each split account for all of the input, however many they are.
        let share = |records: u64| u128::from(self.input) * u128::from(records) / u128::from((*all).max(1));
        let before = share(*passed);
        *passed += batch.num_rows() as u64;
        let bytes_in = u64::try_from(share(*passed) - before).unwrap_or_default();
        // Each split is told as its part of the input.
        let part = u128::from(bytes_in) * u128::from(*all) / u128::from(records_of_all);
        let (bytes, records) = (u64::try_from(part).unwrap_or_default(), batch.num_rows() as u64);
        self.observer.event(Event::Read { bytes, records });
        Ok(Gathered { records: self.layout.to_source_batch(batch)?, bytes_in, split })
    }
}

impl Iterator for Shuffled<'_> {
    type Item = Result<Gathered>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self
            .next_batch()
            .and_then(|batch| batch.map(|(split, batch)| self.gather_batch(split, &batch)).transpose());
        self.failed = next.is_err();
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_do_not_follow_small_differences() {
        assert_eq!(batch_rows(1_000_000, 100_000_000), batch_rows(1_000_000, 100_000_100));
        assert_eq!([batch_rows(0, 0), batch_rows(10, 1 << 40), batch_rows(1 << 40, 10)], [1, 1, 4096]);
        assert_eq!(batch_rows(1 << 20, 1 << 30), 128);
    }
}
