//! Shuffles gathered records, in bounded memory: they are prepared, sorted by rank into runs on disk, and merged.
//!
//! ```text
//! Gather --(prepare: workers)--> number, index ids --(sort: workers)--> runs on disk --(merge)--> records by side and rank --> Cut
//! ```
//!
//! Record numbers, and with them the id index and the list of sources, are those of the order of the input.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
};

use arrow::array::RecordBatch;

use super::{
    cut::{Cut, Cutting, Feedback, Units},
    encode::{Encoder, Layout, Prepared},
    gather::Gathered,
    ordered::ordered,
    sort::{
        keys::Keys,
        runs::{Merged, Run, reduce},
    },
};
use crate::{
    dataset::{IdKind, SegmentWriter, Segments},
    error::{Error, Result},
    events::{Cancel, Event, Observer},
    format::parquet::logical_bytes,
    id::Writer,
    plan::{memory::MemoryPlan, roll::InputSize, sort::SortMemory},
    record::side::{Side, Sides},
    storage::{Store, sys::release_freed_memory},
    units::Size,
};

/// Bytes of records that are prepared together.
const PREPARED_BYTES: u64 = 1 << 20;

/// Stored bytes of input that a batch of shuffled records stands for, and the most records of one. Both are fixed, because where units
/// end follows from the batches.
const BATCH_BYTES: u64 = 128 << 10;
const MAX_BATCH: u64 = 4096;

/// Batches after which freed memory is released: each thread frees what another has allocated.
const RELEASED_BATCHES: usize = 32;

/// What a shuffle needs besides its records.
pub struct ShuffleSetup<'a> {
    /// Seed of the order.
    pub seed: u64,
    /// Encodes records.
    pub encoder: &'a Encoder,
    /// Store of the dataset.
    pub store: &'a Arc<dyn Store>,
    /// Names the objects of the run.
    pub writer: &'a Writer,
    /// Number of sides.
    pub sides: Side,
    /// The sides; `None` if the dataset is not divided.
    pub division: Option<&'a Sides>,
    /// Whether sidecars have fingerprints.
    pub fingerprints: bool,
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
    keys: Keys,
    memory: SortMemory,
}

/// What is known of the records of a side.
struct SideIndex {
    record_ids: SegmentWriter,
    subject_ids: SegmentWriter,
    records: u64,
}

/// Records on disk.
pub struct Spilled {
    runs: Vec<Run>,
    /// Number of the records of each side.
    records: Vec<u64>,
    /// Segments of the id index of each side.
    pub segments: Vec<Segments>,
}

impl<'a> Shuffler<'a> {
    /// Prepares to shuffle records.
    ///
    /// # Errors
    /// If they cannot be compared.
    pub fn new(setup: ShuffleSetup<'a>) -> Result<Self> {
        let layout = setup.encoder.layout(setup.fingerprints);
        let keys = Keys::new(layout.schema(), &layout.keys(), layout.record(), None)?;
        let memory = SortMemory::of_shuffle(Size(setup.memory.bytes));
        Ok(Self { setup, layout, keys, memory })
    }

    /// Returns how many files are read at a time.
    pub fn fan_in(&self) -> usize {
        self.memory.fan_in
    }

    /// Writes all records to disk, in sorted runs, and their ids to the index.
    ///
    /// # Errors
    /// Those of the records; if one cannot be expressed in the format, or the disk or the store fails.
    pub fn spill<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        gathered: impl Iterator<Item = Result<Gathered>> + Send + 'scope,
    ) -> Result<Spilled> {
        let (setup, layout) = (&self.setup, &self.layout);
        let bytes = PREPARED_BYTES.min(setup.memory.unit_bytes);
        let cuts = (0..setup.sides).map(|side| Cut::new(side, Cutting::Even { bytes, member: None })).collect();
        let feedback: Arc<[Feedback]> = (0..setup.sides).map(|_| Feedback::default()).collect();
        let units = Units::new(gathered, cuts, &feedback);
        let prepare = move |unit| setup.encoder.prepare(layout, setup.seed, unit);
        let window = setup.memory.encode_window.max(setup.jobs + 2);
        let prepared = ordered(scope, units, setup.jobs, window, setup.cancel, prepare);
        let index: Arc<Mutex<Vec<SideIndex>>> = Arc::new(Mutex::new(self.index()));
        let (limit, memory) = (self.memory.run_bytes, setup.memory.bytes);
        let chunks = Chunks { prepared, index: Arc::clone(&index), layout, limit, memory };
        let location = setup.store.location();
        let sort = move |chunk: Vec<RecordBatch>| {
            Run::sort(location, layout.schema(), &self.keys, &chunk, self.memory.batch_bytes)
        };
        let runs = ordered(scope, chunks, setup.jobs.min(2), 2, setup.cancel, sort);
        let runs = runs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        let index = std::mem::take(&mut *index.lock().unwrap_or_else(PoisonError::into_inner));
        let records = index.iter().map(|side| side.records).collect();
        let segments = index.into_iter().map(|side| Segments::finish([side.record_ids, side.subject_ids]));
        Ok(Spilled { runs, records, segments: segments.collect::<Result<_>>()? })
    }

    fn index(&self) -> Vec<SideIndex> {
        let (setup, sides) = (&self.setup, self.setup.sides);
        let ids = |kind, side| {
            let writer = SegmentWriter::new(Arc::clone(setup.store), kind, setup.writer.clone());
            match setup.division {
                Some(division) => writer.of_side(side, division),
                None => writer,
            }
        };
        let of_side = |side| SideIndex {
            record_ids: ids(IdKind::Record, side),
            subject_ids: ids(IdKind::Subject, side),
            records: 0,
        };
        (0..sides).map(of_side).collect()
    }

    /// Returns the records in their order, side by side; `input` is the size of the input, of which each record accounts for an equal part.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn merge(&self, spilled: &mut Spilled, input: InputSize) -> Result<Shuffled<'_>> {
        let setup = &self.setup;
        setup.observer.event(Event::Phase { name: "shuffling", bytes: Some(input.bytes) });
        release_freed_memory(setup.memory.bytes / 2);
        let check = || setup.cancel.check();
        let (runs, location) = (std::mem::take(&mut spilled.runs), setup.store.location());
        let runs = reduce(runs, self.memory.fan_in, location, self.layout.schema(), &self.keys, &check)?;
        let all: u64 = spilled.records.iter().sum();
        let merged = Merged::new(&self.keys, runs, Vec::new())?.with_batch_rows(batch_rows(all, input.bytes));
        let sides = spilled.records.iter().map(|records| (*records, 0)).collect();
        let (layout, observer) = (&self.layout, setup.observer);
        let (memory, batches, ready) = (setup.memory.bytes, 0, VecDeque::new());
        Ok(Shuffled { merged, layout, observer, memory, batches, input: input.bytes, sides, ready })
    }
}

/// Returns the number of records of a batch: a power of two, so that a slightly different size gives the same.
fn batch_rows(records: u64, bytes: u64) -> usize {
    let rows = u128::from(BATCH_BYTES) * u128::from(records) / u128::from(bytes.max(1));
    let rows = u64::try_from(rows).unwrap_or(MAX_BATCH).clamp(1, MAX_BATCH);
    1 << rows.ilog2()
}

/// Numbers prepared records and collects as many as are sorted at a time.
struct Chunks<'a, I> {
    prepared: I,
    index: Arc<Mutex<Vec<SideIndex>>>,
    layout: &'a Layout,
    /// Bytes of a run.
    limit: u64,
    /// The memory limit.
    memory: u64,
}

impl<I: Iterator<Item = Result<Prepared>>> Chunks<'_, I> {
    fn number(&self, prepared: &Prepared) -> Result<RecordBatch> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let side = index.get_mut(usize::from(prepared.side()));
        let side = side.ok_or_else(|| Error::internal("a record has no side"))?;
        let first = side.records;
        side.record_ids.push_all(&prepared.record_hashes, first)?;
        side.subject_ids.push_all(&prepared.subject_hashes, first)?;
        side.records += prepared.records() as u64;
        self.layout.numbered(prepared, first)
    }

    fn chunk(&mut self) -> Result<Vec<RecordBatch>> {
        release_freed_memory(self.memory / 8 * 7);
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while bytes < self.limit {
            let Some(prepared) = self.prepared.next() else { break };
            let batch = self.number(&prepared?)?;
            bytes += logical_bytes(&batch);
            chunk.push(batch);
        }
        Ok(chunk)
    }
}

impl<I: Iterator<Item = Result<Prepared>>> Iterator for Chunks<'_, I> {
    type Item = Result<Vec<RecordBatch>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.chunk()).filter(|chunk| !chunk.as_ref().is_ok_and(Vec::is_empty))
    }
}

/// Shuffled records, those of each side after those of the sides before it.
pub struct Shuffled<'a> {
    merged: Merged<'a>,
    layout: &'a Layout,
    observer: &'a dyn Observer,
    /// The memory limit, and batches since freed memory was released.
    memory: u64,
    batches: usize,
    /// Stored bytes of the input.
    input: u64,
    /// Records of each side, and how many of them were passed on.
    sides: Vec<(u64, u64)>,
    ready: VecDeque<Gathered>,
}

impl Shuffled<'_> {
    /// Makes a batch ready to be passed on, divided where another side begins.
    fn divide(&mut self, batch: &RecordBatch) -> Result<()> {
        let records_of_all = self.sides.iter().map(|(all, _)| *all).sum::<u64>().max(1);
        let mut first = 0;
        for of_side in self.layout.sides(batch).chunk_by(|a, b| a == b) {
            let side: Side = of_side.first().copied().unwrap_or_default();
            let records = self.layout.records(&batch.slice(first, of_side.len()))?;
            first += of_side.len();
            let (all, passed) =
                self.sides.get_mut(usize::from(side)).ok_or_else(|| Error::internal("a record has no side"))?;
            // The records of each side account for all of the input, however many they are.
            let share = |records: u64| u128::from(self.input) * u128::from(records) / u128::from((*all).max(1));
            let before = share(*passed);
            *passed += of_side.len() as u64;
            let bytes_in = u64::try_from(share(*passed) - before).unwrap_or_default();
            // Each side is told as its part of the input.
            let part = u128::from(bytes_in) * u128::from(*all) / u128::from(records_of_all);
            self.observer
                .event(Event::Read { bytes: u64::try_from(part).unwrap_or_default(), records: of_side.len() as u64 });
            self.ready.push_back(Gathered { records, bytes_in, side });
        }
        Ok(())
    }
}

impl Iterator for Shuffled<'_> {
    type Item = Result<Gathered>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(gathered) = self.ready.pop_front() {
                return Some(Ok(gathered));
            }
            let batch = self.merged.next()?;
            self.batches = (self.batches + 1) % RELEASED_BATCHES;
            if self.batches == 0 {
                release_freed_memory(self.memory / 4 * 3);
            }
            if let Err(error) = batch.and_then(|batch| self.divide(&batch)) {
                return Some(Err(error));
            }
        }
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
