//! Decoded rows that wait until they are converted: in memory, or on disk if there are many, or nowhere if even that is
//! full, so that they are decoded again.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BinaryArray, RecordBatch},
    buffer::{Buffer, OffsetBuffer, ScalarBuffer},
};

use super::options::Room;
use crate::{
    error::{Error, Result},
    storage::Spill,
};

/// Name of the only column of a chunk, which holds the bytes of each row.
const CELLS: &str = "cells";

/// Consecutive rows as bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunk {
    /// End of each row.
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Chunk {
    /// Most bytes of a chunk, if it has more than a row.
    pub(super) const MOST_BYTES: usize = 512 << 10;
    /// Most rows of a chunk.
    pub(super) const MOST_ROWS: usize = 8_192;

    /// Returns the number of rows.
    pub(super) fn row_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of bytes.
    pub(super) fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a row.
    pub(super) fn push_row(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    /// Whether another row should begin a chunk of its own.
    pub(super) fn is_full(&self, row: &[u8]) -> bool {
        !self.ends.is_empty() && (self.ends.len() == Self::MOST_ROWS || self.bytes.len() + row.len() > Self::MOST_BYTES)
    }

    /// Returns the rows as a batch of one column of bytes.
    ///
    /// # Errors
    /// Never, for rows that were pushed.
    pub(super) fn into_batch(self) -> Result<RecordBatch> {
        let offsets: Vec<i32> = std::iter::once(0).chain(self.ends).collect();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let rows: ArrayRef = Arc::new(BinaryArray::try_new(offsets, Buffer::from_vec(self.bytes), None)?);
        Ok(RecordBatch::try_from_iter([(CELLS, rows)])?)
    }
}

/// Where a chunk waits.
#[derive(Debug)]
enum Place {
    Memory(Chunk),
    Disk { offset: u64, ends: Vec<i32>, bytes: usize },
}

/// The rows of a sheet.
#[derive(Debug)]
pub(super) struct KeptRows {
    room: Arc<Room>,
    /// Bytes in memory.
    memory: u64,
    spill: Option<Spill>,
    places: Vec<Place>,
    /// Bytes of all chunks.
    bytes: u64,
}

impl KeptRows {
    /// Creates an empty list.
    pub(super) fn new(room: &Arc<Room>) -> Self {
        Self { room: Arc::clone(room), memory: 0, spill: None, places: Vec::new(), bytes: 0 }
    }

    /// Appends a chunk; returns whether there is room. The first one that does not fit into memory takes a file on
    /// disk, if `needs_room` even one more than there should be.
    ///
    /// # Errors
    /// When the disk is full.
    pub(super) fn push(&mut self, chunk: Chunk, needs_room: bool) -> Result<bool> {
        let bytes = chunk.byte_count() as u64;
        self.bytes += bytes;
        if self.spill.is_none() && self.room.take_memory(bytes) {
            self.memory += bytes;
            self.places.push(Place::Memory(chunk));
            return Ok(true);
        }
        if self.spill.is_none() {
            if !self.room.take_spill() && !needs_room {
                return Ok(false);
            }
            self.spill = Some(Spill::new()?);
        }
        let Some(spill) = &self.spill else { return Ok(false) };
        let offset = spill.append(&chunk.bytes)?;
        self.places.push(Place::Disk { offset, ends: chunk.ends, bytes: chunk.bytes.len() });
        Ok(true)
    }

    /// Returns the number of chunks.
    pub(super) fn chunk_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the bytes of all chunks.
    pub(super) fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// Returns a chunk.
    ///
    /// # Errors
    /// When it cannot be read back.
    pub(super) fn chunk(&self, number: usize) -> Result<Chunk> {
        match (self.places.get(number), &self.spill) {
            (Some(Place::Memory(chunk)), _) => Ok(chunk.clone()),
            (Some(Place::Disk { offset, ends, bytes }), Some(spill)) => {
                let mut out = vec![0; *bytes];
                spill.read(*offset, &mut out)?;
                Ok(Chunk { ends: ends.clone(), bytes: out })
            }
            _ => Err(Error::internal("no such rows of a sheet")),
        }
    }
}

impl Drop for KeptRows {
    fn drop(&mut self) {
        self.room.give_memory(self.memory);
        if self.spill.is_some() {
            self.room.give_spill();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn chunk(byte: u8) -> Chunk {
        let mut chunk = Chunk::default();
        (0..3).for_each(|_| chunk.push_row(&[byte; 10]));
        chunk
    }

    #[test]
    fn rows_wait_in_memory_and_then_on_disk() {
        let room = Arc::new(Room::with_memory(16 * 70));
        let mut kept = KeptRows::new(&room);
        (0..5).for_each(|byte| assert!(kept.push(chunk(byte), false).unwrap()));
        assert_eq!((kept.chunk_count(), kept.byte_count(), kept.memory), (5, 150, 60));
        for number in 0..5 {
            let batch = kept.chunk(number).unwrap().into_batch().unwrap();
            assert_eq!(batch.num_rows(), 3);
            assert_eq!(kept.chunk(number).unwrap().bytes, vec![u8::try_from(number).unwrap(); 30]);
        }
        drop(kept);
        assert!(room.take_memory(70), "all of it was given back");
    }

    #[test]
    fn without_room_rows_are_not_kept_unless_they_have_to() {
        let room = Arc::new(Room::with_memory(0));
        while room.take_spill() {}
        let mut kept = KeptRows::new(&room);
        assert!(!kept.push(chunk(1), false).unwrap());
        assert!(kept.push(chunk(1), true).unwrap());
        drop(kept);
    }
}
