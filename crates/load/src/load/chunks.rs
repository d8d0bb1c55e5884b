//! Places and numbers of records, decoded once for many small blocks.
//!
//! Tables beside shards have pages of thousands of rows, and a block may be one record: each would decode a page.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::array::UInt64Array;

use crate::{
    dataset::{RecordExtents, ScatteredNumbers, ShardExtents},
    error::{Error, Result},
};

/// Rows of a chunk: those of a page of a sidecar.
pub(super) const CHUNK_ROWS: u64 = 16_384;
/// Bytes of a row: its offset, length and hash, or its number.
const ROW_BYTES: u64 = 32;

/// What the tables beside a shard state of some consecutive rows.
#[derive(Debug)]
pub(super) struct RowChunk {
    first: u64,
    extents: Option<RecordExtents>,
    numbers: Vec<u64>,
}

/// The tables beside a shard that are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowTables<'a> {
    pub(super) extents: Option<&'a ShardExtents>,
    pub(super) numbers: Option<&'a ScatteredNumbers>,
    /// Rows of the shard.
    pub(super) rows: u64,
}

/// Decoded chunks, by shard and number.
#[derive(Debug)]
pub(super) struct RowChunks {
    kept: Mutex<HashMap<ChunkKey, Arc<RowChunk>>>,
    most: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ChunkKey {
    shard: usize,
    number: u64,
}

impl RowTables<'_> {
    fn read_chunk(&self, rows: Range<u64>) -> Result<RowChunk> {
        let first = rows.start;
        let mut numbers = Vec::new();
        if let Some(table) = self.numbers {
            table.read_rows(rows.clone(), &mut numbers)?;
        }
        let extents = self.extents.map(|table| table.read_rows(rows)).transpose()?;
        Ok(RowChunk { first, extents, numbers })
    }
}

impl RowChunk {
    /// Returns the places of some of its rows.
    fn extents_of(&self, rows: &Range<u64>) -> Result<RecordExtents> {
        let missing = || Error::internal("expected rows of the chunk");
        let of_chunk = self.extents.as_ref().ok_or_else(missing)?;
        let start = usize::try_from(rows.start.checked_sub(self.first).ok_or_else(missing)?).map_err(|_| missing())?;
        let length = usize::try_from(rows.end.saturating_sub(rows.start)).map_err(|_| missing())?;
        if start + length > of_chunk.offsets.len() {
            return Err(missing());
        }
        let slice = |array: &UInt64Array| array.slice(start, length);
        let RecordExtents { offsets, lengths, hashes } = of_chunk;
        Ok(RecordExtents { offsets: slice(offsets), lengths: slice(lengths), hashes: slice(hashes) })
    }

    fn numbers_of(&self, rows: &Range<u64>) -> Option<&[u64]> {
        let at = |row: u64| usize::try_from(row.checked_sub(self.first)?).ok();
        self.numbers.get(at(rows.start)?..at(rows.end)?)
    }
}

impl RowChunks {
    /// Makes a place for chunks of so many bytes in all.
    pub(super) fn new(bytes: u64) -> Self {
        let most = usize::try_from(bytes / (CHUNK_ROWS * ROW_BYTES)).unwrap_or(usize::MAX).max(2);
        Self { kept: Mutex::default(), most }
    }

    /// Returns the places of consecutive rows.
    pub(super) fn extents(&self, shard: usize, tables: RowTables<'_>, rows: Range<u64>) -> Result<RecordExtents> {
        let mut parts = Vec::new();
        self.each_chunk(shard, tables, rows, |chunk, rows| {
            parts.push(chunk.extents_of(&rows)?);
            Ok(())
        })?;
        if let [part] = parts.as_slice() {
            return Ok(part.clone());
        }
        let joined = |of: fn(&RecordExtents) -> &UInt64Array| -> UInt64Array {
            parts.iter().flat_map(|part| of(part).values().iter().copied()).collect::<Vec<_>>().into()
        };
        let (offsets, lengths) = (joined(|part| &part.offsets), joined(|part| &part.lengths));
        Ok(RecordExtents { offsets, lengths, hashes: joined(|part| &part.hashes) })
    }

    /// Appends the numbers of consecutive rows, which a table has.
    pub(super) fn push_numbers(
        &self,
        shard: usize,
        tables: RowTables<'_>,
        rows: Range<u64>,
        out: &mut Vec<u64>,
    ) -> Result<()> {
        self.each_chunk(shard, tables, rows, |chunk, rows| {
            let numbers = chunk.numbers_of(&rows).ok_or_else(|| Error::internal("expected rows of the chunk"))?;
            out.extend_from_slice(numbers);
            Ok(())
        })
    }

    fn each_chunk(
        &self,
        shard: usize,
        tables: RowTables<'_>,
        rows: Range<u64>,
        mut visit: impl FnMut(&RowChunk, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        if rows.end - rows.start >= CHUNK_ROWS {
            return visit(&tables.read_chunk(rows.clone())?, rows);
        }
        let mut at = rows.start;
        while at < rows.end {
            let number = at / CHUNK_ROWS;
            let end = ((number + 1) * CHUNK_ROWS).min(rows.end);
            let chunk = self.chunk_at(ChunkKey { shard, number }, tables)?;
            visit(&chunk, at..end)?;
            at = end;
        }
        Ok(())
    }

    fn chunk_at(&self, key: ChunkKey, tables: RowTables<'_>) -> Result<Arc<RowChunk>> {
        if let Some(chunk) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(chunk));
        }
        let first = key.number * CHUNK_ROWS;
        let chunk = Arc::new(tables.read_chunk(first..(first + CHUNK_ROWS).min(tables.rows))?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.len() >= self.most {
            // Blocks come in a random order, so any chunk is as good as another.
            let Some(other) = kept.keys().next().copied() else { break };
            kept.remove(&other);
        }
        kept.insert(key, Arc::clone(&chunk));
        Ok(chunk)
    }
}
