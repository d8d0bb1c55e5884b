//! Batches: the records of a step, copied out of windows once, into memory of their own.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanBufferBuilder, LargeBinaryArray, RecordBatch, StringArray},
    buffer::{Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer},
};

use super::{
    columns::{Layout, LoadColumns},
    piece::{Cell, Piece, PieceData},
    pool::BytePool,
    rows::{RowRange, copy_rows, push_row},
    settings::Omitted,
    window::Window,
};
use crate::error::{Error, Result};

/// Bytes from which on the buffer of a column is used again.
const POOLED_BYTES: usize = 256 << 10;
/// Values begin at multiples of this, as those of Arrow's own buffers do.
const ALIGNMENT: usize = 64;

/// Turns of a step that one window has.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) window: Arc<Window>,
    /// Turns, counted from the first of the window.
    pub(super) turns: Range<usize>,
}

/// Records of a step for one rank.
#[derive(Debug)]
pub struct LoadedBatch {
    /// Number of the epoch.
    pub epoch: u64,
    /// Number of the step in the epoch, from 0.
    pub step: u64,
    /// Slots of the rank in the step: the number of records, unless some were left out.
    pub expected: u64,
    /// Record numbers.
    pub numbers: Vec<u64>,
    /// Positions in the version, or in the split.
    pub positions: Vec<u64>,
    /// The columns, in memory of their own.
    pub columns: RecordBatch,
}

impl LoadedBatch {
    /// Returns the bytes of the batch.
    pub fn memory_bytes(&self) -> u64 {
        (self.columns.get_array_memory_size() + 16 * self.numbers.len()) as u64
    }
}

/// A record of a batch: one of the pieces, and a row of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) piece: usize,
    pub(super) row: usize,
}

/// Copies the records of some slices, whose windows are complete.
///
/// # Errors
/// The error of the first window that could not be read.
pub(super) fn gather_step(
    slices: &[Slice],
    columns: &LoadColumns,
    without: &Omitted,
    pool: &BytePool,
    batch: LoadedBatch,
) -> Result<LoadedBatch> {
    let total = slices.iter().map(|slice| slice.turns.len()).sum();
    let (mut pieces, mut slots): (Vec<&Piece>, Vec<Slot>) = (Vec::new(), Vec::with_capacity(total));
    let mut rows: Vec<RowRange<'_>> = Vec::new();
    let (mut numbers, mut positions) = (Vec::with_capacity(total), Vec::with_capacity(total));
    for slice in slices {
        let content = match slice.window.content() {
            Some(Ok(content)) => content,
            Some(Err(error)) => return Err(error.flatten_causes()),
            None => return Err(Error::internal("expected a window that was read")),
        };
        let taken = content.order.get(slice.turns.clone());
        let taken = taken.ok_or_else(|| Error::internal("expected turns of the window"))?;
        let base = pieces.len();
        pieces.extend(&content.pieces);
        for (taken, turn) in taken.iter().zip(slice.turns.clone()) {
            let piece = base + taken.piece as usize;
            let of = pieces.get(piece).ok_or_else(|| Error::internal("expected a piece of the window"))?;
            // What has no record leaves its slot empty: nothing else moves.
            let Some(row) = of.row_at(taken.position as usize) else { continue };
            let (number, position) = (of.number_of(row), of.first + u64::from(taken.position));
            if without.has(number, position) {
                continue;
            }
            numbers.push(number);
            positions.push(position);
            match (&content.sorted, &of.data) {
                (Some(sorted), _) => push_row(&mut rows, &sorted.rows, sorted.row_of(turn)),
                (None, PieceData::Rows(batch)) => push_row(&mut rows, batch, row),
                (None, PieceData::Cells { .. }) => slots.push(Slot { piece, row }),
            }
        }
    }
    if numbers.is_empty() {
        return Ok(batch);
    }
    let gathered = match &columns.layout {
        Layout::Rows(_) => copy_rows(&rows, &columns.schema)?,
        Layout::Parts(_) | Layout::Examples => gather_records(&pieces, &slots, columns, pool)?,
    };
    Ok(LoadedBatch { numbers, positions, columns: gathered, ..batch })
}

/// Copies records out of pieces, in the order of the slots.
pub(super) fn gather_records(
    pieces: &[&Piece],
    slots: &[Slot],
    columns: &LoadColumns,
    pool: &BytePool,
) -> Result<RecordBatch> {
    let gathered = match &columns.layout {
        Layout::Rows(_) => return gather_rows(pieces, slots, columns),
        Layout::Parts(_) | Layout::Examples => gather_cells(pieces, slots, columns, pool)?,
    };
    Ok(RecordBatch::try_new(Arc::clone(&columns.schema), gathered)?)
}

fn gather_cells(pieces: &[&Piece], slots: &[Slot], columns: &LoadColumns, pool: &BytePool) -> Result<Vec<ArrayRef>> {
    let width = columns.schema.fields().len();
    let key = match &columns.layout {
        Layout::Parts(parts) => parts.key,
        _ => None,
    };
    let mut found: Vec<(Cell, &Slot)> = Vec::with_capacity(slots.len());
    let mut out = Vec::with_capacity(width);
    for column in 0..width {
        found.clear();
        for slot in slots {
            let cells = match pieces.get(slot.piece).map(|piece| &piece.data) {
                Some(PieceData::Cells { cells, .. }) => cells,
                _ => return Err(Error::internal("expected cells, found rows")),
            };
            let cell = cells.get(slot.row * width + column);
            found.push((*cell.ok_or_else(|| Error::internal("expected a cell of the record"))?, slot));
        }
        out.push(if key == Some(column) { gather_keys(pieces, &found)? } else { gather_bytes(pieces, &found, pool)? });
    }
    Ok(out)
}

/// Returns the bytes that cells of a slot's piece refer to: those that were read, and the keys.
fn bytes_of<'a>(pieces: &[&'a Piece], slot: &Slot) -> (&'a [u8], &'a [u8]) {
    match pieces.get(slot.piece).map(|piece| &piece.data) {
        Some(PieceData::Cells { bytes, keys, .. }) => (bytes, keys),
        _ => (&[], &[]),
    }
}

fn gather_bytes(pieces: &[&Piece], cells: &[(Cell, &Slot)], pool: &BytePool) -> Result<ArrayRef> {
    let (mut offsets, mut end, mut absent) = (Vec::with_capacity(cells.len() + 1), 0_usize, 0_usize);
    offsets.push(0_i64);
    for (cell, _) in cells {
        absent += usize::from(cell.is_absent());
        end += cell.len();
        offsets.push(i64::try_from(end).map_err(|_| Error::usage("expected a smaller batch"))?);
    }
    let values = if end < POOLED_BYTES {
        let mut values = MutableBuffer::with_capacity(end);
        cells.iter().for_each(|(cell, slot)| values.extend_from_slice(cell.bytes_of(bytes_of(pieces, slot).0)));
        values.into()
    } else {
        gather_pooled(pieces, cells, end, pool)?
    };
    let nulls = (absent > 0).then(|| {
        let mut valid = BooleanBufferBuilder::new(cells.len());
        cells.iter().for_each(|(cell, _)| valid.append(!cell.is_absent()));
        NullBuffer::new(valid.finish())
    });
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(LargeBinaryArray::try_new(offsets, values, nulls)?))
}

/// Copies values of so many bytes into a buffer of the pool.
fn gather_pooled(pieces: &[&Piece], cells: &[(Cell, &Slot)], bytes: usize, pool: &BytePool) -> Result<Buffer> {
    let mut buffer = pool.take_buffer(bytes + ALIGNMENT);
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let start = if start < ALIGNMENT { start } else { 0 };
    let mut at = start;
    for (cell, slot) in cells {
        let value = cell.bytes_of(bytes_of(pieces, slot).0);
        let into = buffer.get_mut(at..at + value.len());
        into.ok_or_else(|| Error::internal("expected a buffer for all values"))?.copy_from_slice(value);
        at += value.len();
    }
    Ok(pool.lend_buffer(buffer, start..at).into())
}

fn gather_keys(pieces: &[&Piece], cells: &[(Cell, &Slot)]) -> Result<ArrayRef> {
    let keys = cells.iter().map(|(cell, slot)| cell.bytes_of(bytes_of(pieces, slot).1));
    let bytes: usize = cells.iter().map(|(cell, _)| cell.len()).sum();
    let (mut offsets, mut values) = (Vec::with_capacity(cells.len() + 1), MutableBuffer::with_capacity(bytes));
    offsets.push(0_i32);
    for key in keys {
        values.extend_from_slice(key);
        offsets.push(i32::try_from(values.len()).map_err(|_| Error::usage("expected a batch with fewer keys"))?);
    }
    Ok(Arc::new(StringArray::try_new(OffsetBuffer::new(ScalarBuffer::from(offsets)), values.into(), None)?))
}

fn gather_rows(pieces: &[&Piece], slots: &[Slot], columns: &LoadColumns) -> Result<RecordBatch> {
    let mut ranges = Vec::new();
    for slot in slots {
        match pieces.get(slot.piece).map(|piece| &piece.data) {
            Some(PieceData::Rows(rows)) => push_row(&mut ranges, rows, slot.row),
            _ => return Err(Error::internal("expected rows, found cells")),
        }
    }
    copy_rows(&ranges, &columns.schema)
}
