//! Records by their positions, for readers that choose them one by one, or in an order of their own.
//!
//! Positions that are near each other are one request, and rows of a Parquet shard are decoded together, so that no
//! page is decoded twice. Records are then copied into a batch in the order that was asked for. Threads run only while
//! records are read.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use arrow::datatypes::SchemaRef;

use super::{
    columns::{Layout, LoadColumns},
    gather::{LoadedBatch, Slot, gather_records},
    loader::{open_columns, open_source, readers_of},
    piece::{Piece, PieceData, PieceNumbers},
    pool::BytePool,
    rows::read_rows,
    source::{RecordSource, at_shard},
    stats::{Counters, add_to},
};
use crate::{
    dataset::{PositionedRows, Snapshot},
    error::{Error, Result},
};

/// Bytes between two records that are read with them, because a request costs as much: of a local file, and of a store.
const LOCAL_GAP: u64 = 16 << 10;
const REMOTE_GAP: u64 = 256 << 10;
/// Bytes of a request from which on the next record is another one, so that threads share the work.
const REQUEST_BYTES: u64 = 4 << 20;
/// Bytes of a local file that are read before another thread has begun.
const THREAD_BYTES: u64 = 1 << 20;
/// Bytes of places of records that are kept from one call to the next.
const PLACE_BYTES: u64 = 64 << 20;

/// The records of one version, or of one of its splits, by position. Several threads may take records at once.
#[derive(Debug)]
pub struct Records {
    source: RecordSource,
    columns: LoadColumns,
    basis: [u8; 32],
    readers: usize,
    /// Positions between two that are read with them, positions of a request, and those for which a thread is of use.
    most_gap: u64,
    most_span: u64,
    of_thread: u64,
    counters: Counters,
}

impl Records {
    /// Opens the records. Lists of the log and a few records are read.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if there are no records, no such split or no such column; when
    /// something cannot be read.
    pub fn open(snapshot: &Snapshot, split: Option<&str>, columns: Option<&[String]>, threads: usize) -> Result<Self> {
        let source = open_source(snapshot, split)?;
        let columns = open_columns(snapshot, &source, columns)?;
        let basis = source.positions.basis();
        let raw: u64 = source.positions.shards().iter().map(|shard| shard.committed().raw_bytes).sum();
        let average = (raw / source.positions.records().max(1)).max(1);
        let is_local = source.dataset.store().location().local_path().is_some();
        // Of Parquet, pages are read anyway, and rows between others would be decoded for nothing.
        let is_framed = !snapshot.entry().settings.shard_format.is_columnar();
        let gap = if is_local { LOCAL_GAP } else { REMOTE_GAP };
        let most_gap = if is_framed { gap / average } else { 0 };
        let readers = readers_of(&source, threads.max(1));
        let source = source.with_kept_bytes(0, PLACE_BYTES);
        let most_span = (REQUEST_BYTES / average).max(1);
        let of_thread = if is_local && is_framed { (THREAD_BYTES / average).max(1) } else { 1 };
        Ok(Self { source, columns, basis, readers, most_gap, most_span, of_thread, counters: Counters::default() })
    }

    /// Returns the number of records: positions are less than it.
    pub fn record_count(&self) -> u64 {
        self.source.positions.records()
    }

    /// Returns the hash of the positions.
    pub fn basis(&self) -> [u8; 32] {
        self.basis
    }

    /// Returns the columns of batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    /// Whether the shards are files of this machine, which answer soon.
    pub fn is_local(&self) -> bool {
        self.source.dataset.store().location().local_path().is_some()
    }

    /// Returns how many ranges of shards were read so far.
    pub fn requests(&self) -> u64 {
        self.counters.stats().requests
    }

    /// Reads the records at some positions, in this order; a position may be named several times.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if there is no record at a position, or none any more; naming the
    /// shard, and the row or byte, when one is missing or damaged.
    pub fn take(&self, positions: &[u64]) -> Result<LoadedBatch> {
        let mut wanted = positions.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        if let Some(last) = wanted.last().filter(|last| **last >= self.record_count()) {
            return Err(Error::usage(format!("expected positions below {}, found {last}", self.record_count())));
        }
        let stretches = self.stretches_of(&wanted);
        let tasks: Vec<&[PositionedRows]> = match self.columns.layout {
            Layout::Rows(_) => stretches.chunk_by(|one, next| one.shard == next.shard).collect(),
            Layout::Parts(_) | Layout::Examples => stretches.chunks(1).collect(),
        };
        let threads = wanted.len() as u64 / self.of_thread;
        let pieces = self.read_tasks(&tasks, usize::try_from(threads).unwrap_or(usize::MAX))?;
        let pieces: Vec<&Piece> = pieces.iter().flatten().collect();
        let slots = positions.iter().map(|position| slot_of(&pieces, *position)).collect::<Result<Vec<Slot>>>()?;
        let number = |slot: &Slot| pieces.get(slot.piece).map_or(0, |piece| piece.number_of(slot.row));
        let numbers = slots.iter().map(number).collect();
        let columns = gather_records(&pieces, &slots, &self.columns, &BytePool::new(0))?;
        let expected = positions.len() as u64;
        Ok(LoadedBatch { epoch: 0, step: 0, expected, numbers, positions: positions.to_vec(), columns })
    }

    /// Joins sorted positions that are read together, and finds their rows.
    fn stretches_of(&self, wanted: &[u64]) -> Vec<PositionedRows> {
        let mut spans: Vec<Range<u64>> = Vec::new();
        for position in wanted {
            let near = |span: &&mut Range<u64>| {
                *position - span.end <= self.most_gap && position - span.start < self.most_span
            };
            match spans.last_mut().filter(near) {
                Some(span) => span.end = position + 1,
                None => spans.push(*position..position + 1),
            }
        }
        spans.into_iter().flat_map(|span| self.source.positions.rows_at(span)).collect()
    }

    /// Reads all tasks, in their order, on as many threads as are of use.
    fn read_tasks(&self, tasks: &[&[PositionedRows]], threads: usize) -> Result<Vec<Vec<Piece>>> {
        let threads = threads.min(self.readers).min(tasks.len());
        if threads < 2 {
            return tasks.iter().map(|task| self.read_task(task)).collect();
        }
        let (next, read) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(tasks.len())));
        let work = || {
            while let Some((at, task)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, tasks.get(at)?)))
            {
                let found = self.read_task(task);
                if found.is_err() {
                    // The others need not be read.
                    next.fetch_max(tasks.len(), Ordering::Relaxed);
                }
                read.lock().unwrap_or_else(PoisonError::into_inner).push((at, found));
            }
        };
        thread::scope(|scope| {
            // Where no thread can be started, those that run do its work.
            let spawn = |_| thread::Builder::new().name("load-take".to_owned()).spawn_scoped(scope, work).ok();
            let started: Vec<_> = (1..threads).filter_map(spawn).collect();
            work();
            let panicked = |thread: thread::ScopedJoinHandle<'_, ()>| thread.join().err();
            started.into_iter().filter_map(panicked).last().map_or(Ok(()), |e| Err(Error::of_panic(e.as_ref())))
        })?;
        let mut read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
        read.sort_by_key(|(at, _)| *at);
        read.into_iter().map(|(_, found)| found).collect()
    }

    fn read_task(&self, stretches: &[PositionedRows]) -> Result<Vec<Piece>> {
        match (&self.columns.layout, stretches) {
            (Layout::Rows(is_complete), [first, ..]) if stretches.iter().any(|rows| !rows.rows.is_empty()) => {
                self.read_table_rows(first.shard, stretches, *is_complete)
            }
            _ => {
                stretches.iter().map(|rows| self.source.read_piece(rows, None, &self.columns, &self.counters)).collect()
            }
        }
    }

    /// Decodes rows of one table together: each page once.
    fn read_table_rows(&self, shard: usize, stretches: &[PositionedRows], is_complete: bool) -> Result<Vec<Piece>> {
        let ranges = stretches.iter().map(|stretch| stretch.rows.clone()).filter(|rows| !rows.is_empty());
        let ranges: Vec<Range<u64>> = ranges.collect();
        let decoded = read_rows(self.source.open_table(shard)?, &ranges, &self.columns.schema, is_complete)
            .map_err(|e| at_shard(e, &self.source.place_of(shard)))?;
        add_to(&self.counters.requests, 1);
        let mut at = 0;
        let piece = |stretch: &PositionedRows| {
            let numbers = self.source.numbers_of(shard, &stretch.rows, &self.counters)?;
            let (records, start) = (numbers.len(), at);
            at += records;
            if at > decoded.num_rows() {
                return Err(Error::internal("expected a row for each number"));
            }
            let data = PieceData::Rows(decoded.slice(start, records));
            Piece::new(stretch, PieceNumbers::new(numbers), data)
        };
        stretches.iter().map(piece).collect()
    }
}

/// Finds a position among pieces, which are in the order of their positions.
fn slot_of(pieces: &[&Piece], position: u64) -> Result<Slot> {
    let missing = || Error::internal(format!("expected a record at position {position}, found none"));
    let at = pieces.partition_point(|piece| piece.first <= position).checked_sub(1).ok_or_else(missing)?;
    let piece = pieces.get(at).ok_or_else(missing)?;
    let offset = usize::try_from(position - piece.first).ok().filter(|offset| *offset < piece.positions);
    match piece.row_at(offset.ok_or_else(missing)?) {
        Some(row) => Ok(Slot { piece: at, row }),
        None => Err(Error::usage(format!("the record at position {position} was erased"))),
    }
}
