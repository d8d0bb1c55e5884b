//! A window of a lane in memory: the pieces of its blocks, and which record each of its turns takes.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::array::RecordBatch;

use super::{
    piece::{Piece, PieceData},
    rows::reorder_rows,
    stats::Counters,
};
use crate::{
    error::{Error, Result},
    order::LaneWindow,
};

/// The bytes of windows, kept by all who read and gather.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    held: HeldBytes,
    pub(super) counters: Counters,
    /// Held by those who put rows into an order: few at a time, because a column is in memory twice then.
    sorting: [Mutex<()>; 4],
}

/// Bytes of windows, which an epoch shares with the one that is read ahead.
pub(super) type HeldBytes = Arc<AtomicU64>;

impl Ledger {
    /// Makes a ledger of windows beside others.
    pub(super) fn beside(held: HeldBytes) -> Self {
        Self { held, ..Self::default() }
    }

    /// Returns the count that others may share.
    pub(super) fn shared_held(&self) -> HeldBytes {
        Arc::clone(&self.held)
    }

    /// Returns the bytes of windows that are held or being read.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    fn hold(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::SeqCst);
        self.counters.hold_bytes(bytes);
    }

    fn free(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
        self.counters.free_bytes(bytes);
    }
}

/// The record of a turn: a piece of the window, and a position of it, counted from its first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) piece: u32,
    pub(super) position: u32,
}

/// What a window has once all its blocks are read.
#[derive(Debug)]
pub(super) struct WindowContent {
    pub(super) pieces: Vec<Piece>,
    /// For each turn of the window.
    pub(super) order: Vec<Taken>,
    /// The rows of a table in the order of the turns; the pieces have none then.
    pub(super) sorted: Option<SortedRows>,
}

/// Rows in the order of the turns of a window.
#[derive(Debug)]
pub(super) struct SortedRows {
    pub(super) rows: RecordBatch,
    /// Turns that have no row, ascending.
    skipped: Vec<usize>,
}

impl SortedRows {
    /// Returns the row of a turn that has one.
    pub(super) fn row_of(&self, turn: usize) -> usize {
        turn - self.skipped.partition_point(|skipped| *skipped < turn)
    }
}

/// Bytes of a window up to which its rows are put into the order of its turns.
const MOST_SORTED_BYTES: u64 = 64 << 20;

/// Puts the rows of pieces into the order of turns while they are in the caches of the core: else each batch would
/// fetch rows from all over the window.
fn sort_rows(pieces: &mut [Piece], order: &[Taken]) -> Result<Option<SortedRows>> {
    let bytes: u64 = pieces.iter().map(Piece::memory_bytes).sum();
    let schema = pieces.iter().find_map(|piece| match &piece.data {
        PieceData::Rows(rows) => Some(rows.schema()),
        PieceData::Cells { .. } => None,
    });
    let Some(schema) = schema.filter(|_| bytes <= MOST_SORTED_BYTES) else { return Ok(None) };
    let (mut places, mut skipped) = (Vec::with_capacity(order.len()), Vec::new());
    for (turn, taken) in order.iter().enumerate() {
        let piece = taken.piece as usize;
        match pieces.get(piece).and_then(|piece| piece.row_at(taken.position as usize)) {
            Some(row) => places.push((piece, row)),
            None => skipped.push(turn),
        }
    }
    let rows_of = |piece: &mut Piece| match std::mem::replace(&mut piece.data, PieceData::nothing()) {
        PieceData::Rows(rows) => rows,
        PieceData::Cells { .. } => RecordBatch::new_empty(Arc::clone(&schema)),
    };
    let batches = pieces.iter_mut().map(rows_of).collect();
    Ok(Some(SortedRows { rows: reorder_rows(batches, &places, &schema)?, skipped }))
}

/// A window that is being read, or was read.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) place: LaneWindow,
    /// Positions of each block.
    pub(super) blocks: Vec<Range<u64>>,
    /// For each of these positions whether its record is needed; `None` if all are.
    needed: Option<Vec<bool>>,
    filling: Mutex<Filling>,
    content: OnceLock<Result<WindowContent>>,
    ledger: Arc<Ledger>,
    /// Bytes that the ledger counts for it.
    charged: AtomicU64,
}

#[derive(Debug)]
struct Filling {
    pieces: Vec<Vec<Piece>>,
    missing: usize,
    failure: Option<Error>,
}

impl Window {
    /// Makes a window without content, which is counted as so many bytes until it is read.
    pub(super) fn new(
        place: LaneWindow,
        blocks: Vec<Range<u64>>,
        needed: Option<Vec<bool>>,
        bytes: u64,
        ledger: &Arc<Ledger>,
    ) -> Self {
        ledger.hold(bytes);
        let pieces = blocks.iter().map(|_| Vec::new()).collect();
        let filling = Mutex::new(Filling { pieces, missing: blocks.len(), failure: None });
        let (content, ledger) = (OnceLock::new(), Arc::clone(ledger));
        Self { place, blocks, needed, filling, content, ledger, charged: AtomicU64::new(bytes) }
    }

    /// Makes a window that cannot be read.
    pub(super) fn failed(place: LaneWindow, error: Error, ledger: &Arc<Ledger>) -> Self {
        let window = Self::new(place, Vec::new(), None, 0, ledger);
        // Nobody else has it yet.
        let _ = window.content.set(Err(error));
        window
    }

    /// Returns for each record of a block whether it is needed; `None` if all are.
    pub(super) fn needed_of(&self, block: usize) -> Option<&[bool]> {
        let length = |block: &Range<u64>| usize::try_from(block.end - block.start).unwrap_or(usize::MAX);
        let first: usize = self.blocks.iter().take(block).map(length).sum();
        self.needed.as_ref()?.get(first..first + self.blocks.get(block).map(length)?)
    }

    /// Returns the content, once it is complete.
    pub(super) fn content(&self) -> Option<&Result<WindowContent>> {
        self.content.get()
    }

    /// Whether a block has failed, so that the others need not be read.
    pub(super) fn has_failed(&self) -> bool {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner).failure.is_some()
    }

    /// Stores a block; returns whether it was the last one. `permutation` is that of the window.
    pub(super) fn store_block<I: Iterator<Item = u64>>(
        &self,
        block: usize,
        read: Result<Vec<Piece>>,
        permutation: impl FnOnce() -> Option<I>,
    ) -> bool {
        let complete = {
            let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
            filling.missing = filling.missing.saturating_sub(1);
            match (read, filling.pieces.get_mut(block)) {
                (Ok(pieces), Some(place)) => *place = pieces,
                (Ok(_), None) => filling.failure = Some(Error::internal("expected a block of the window")),
                (Err(error), _) => drop(filling.failure.get_or_insert(error)),
            }
            if filling.missing > 0 {
                return false;
            }
            (std::mem::take(&mut filling.pieces), filling.failure.take())
        };
        let content = match complete {
            (_, Some(error)) => Err(error),
            (pieces, None) => self.complete(pieces.into_iter().flatten().collect(), permutation()),
        };
        if let Ok(content) = &content {
            let pieces: u64 = content.pieces.iter().map(Piece::memory_bytes).sum();
            let sorted = content.sorted.as_ref().map_or(0, |sorted| sorted.rows.get_array_memory_size());
            self.charge(pieces + (sorted + size_of_val(content.order.as_slice())) as u64);
        }
        // The last block comes once.
        let _ = self.content.set(content);
        true
    }

    /// Finds the record of each turn.
    fn complete(
        &self,
        mut pieces: Vec<Piece>,
        permutation: Option<impl Iterator<Item = u64>>,
    ) -> Result<WindowContent> {
        let mut ends = Vec::with_capacity(pieces.len());
        let mut records = 0_u64;
        for piece in &pieces {
            records += piece.positions as u64;
            ends.push(records);
        }
        if records != self.place.records() {
            let expected = self.place.records();
            return Err(Error::internal(format!("expected {expected} records in a window, found {records}")));
        }
        let taken = |at: u64| {
            let piece = ends.partition_point(|end| *end <= at);
            let before = piece.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or_default();
            let number = |number: u64| u32::try_from(number).map_err(|_| Error::usage("expected a smaller window"));
            Ok(Taken { piece: number(piece as u64)?, position: number(at - before)? })
        };
        let (order, sorted): (Vec<Taken>, _) = match permutation {
            Some(permutation) => {
                let order = permutation.map(taken).collect::<Result<Vec<_>>>()?;
                let sorting = self.ledger.sorting.get(usize::try_from(self.place.lane % 4).unwrap_or(0));
                let _held = sorting.map(|sorting| sorting.lock().unwrap_or_else(PoisonError::into_inner));
                let sorted = sort_rows(&mut pieces, &order)?;
                (order, sorted)
            }
            None => ((0..records).map(taken).collect::<Result<_>>()?, None),
        };
        Ok(WindowContent { pieces, order, sorted })
    }

    /// Replaces the estimated bytes by those that were found.
    fn charge(&self, bytes: u64) {
        self.ledger.hold(bytes);
        self.ledger.free(self.charged.swap(bytes, Ordering::SeqCst));
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.ledger.free(self.charged.load(Ordering::SeqCst));
    }
}
