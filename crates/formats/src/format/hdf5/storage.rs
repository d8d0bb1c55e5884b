//! Byte access to an HDF5 file for the crate. Small pieces, which are metadata, are served from cached blocks; large
//! ones, which are chunks, are read directly and not cached. Prefetched ranges of a remote file are served from the
//! prefetch.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use hdf5_reader::{Storage, StorageBuffer, error::Error as Hdf5Error, superblock::Superblock};

use super::{
    checks::{FractalHeaps, is_whole, read_le_uint},
    headers::Headers,
};
use crate::{error::Error, format::ranged::RangedInput, storage::Prefetched};

/// Block size, and number of cached blocks: more if each is a request.
const BLOCK: u64 = 64 << 10;
const BLOCKS: usize = 32;
const REMOTE_BLOCKS: usize = 128;

/// Reads an input in blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    input: RangedInput,
    kept: Mutex<HashMap<u64, Bytes>>,
    headers: Headers,
    heaps: Mutex<FractalHeaps>,
    /// Bytes of addresses and of lengths.
    sizes: (u8, u8),
}

impl Blocks {
    /// Finds the offset of the file in its input, and checks that the file is complete.
    pub(super) fn new(input: RangedInput) -> Result<Self, Hdf5Error> {
        let mut blocks =
            Self { input, kept: Mutex::default(), headers: Headers::new(0), heaps: Mutex::default(), sizes: (8, 8) };
        let superblock = Superblock::parse_from_storage(&blocks)?;
        let base = superblock.base_address;
        let at = match superblock.version {
            0 => 24,
            1 => 28,
            _ => 12,
        };
        let stored = Storage::read_range(&blocks, base.saturating_add(at), superblock.offset_size.into())?;
        is_whole(&superblock, read_le_uint(stored.as_ref()), blocks.input.byte_count())?;
        blocks.headers = Headers::new(base);
        blocks.sizes = (superblock.offset_size, superblock.length_size);
        Ok(blocks)
    }

    pub(super) fn headers(&self) -> &Headers {
        &self.headers
    }

    pub(super) fn is_remote(&self) -> bool {
        self.input.is_remote()
    }

    /// Returns the bytes held in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let blocks = self.kept.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        self.input.memory_bytes() + (blocks * BLOCK).min(self.input.byte_count())
    }

    /// Prefetches ranges of the input.
    pub(super) fn prefetch_ranges(&self, ranges: Vec<Range<u64>>) -> Result<Option<Prefetched>, Hdf5Error> {
        self.input.prefetch_ranges(ranges).map_err(storage_error)
    }

    /// Reads a chunk of `bytes` bytes at an offset of the input.
    pub(super) fn read_chunk(&self, at: u64, bytes: usize) -> Result<StorageBuffer, Hdf5Error> {
        let end = self.checked_end(at, bytes)?;
        if bytes > 0 && self.input.is_remote() {
            whole_buffer(self.exact_range(at, end)?)
        } else {
            self.read(at, end, bytes)
        }
    }

    /// Returns the end of a piece if it is within the file.
    fn checked_end(&self, offset: u64, len: usize) -> Result<u64, Hdf5Error> {
        let total = self.input.byte_count();
        let end = offset.checked_add(len as u64).filter(|end| *end <= total);
        end.ok_or(Hdf5Error::UnexpectedEof { offset, needed: len as u64, available: total.saturating_sub(offset) })
    }

    fn exact_range(&self, start: u64, end: u64) -> Result<Bytes, Hdf5Error> {
        self.input.exact_range(start..end).map_err(storage_error)
    }

    fn read_block(&self, number: u64) -> Result<Bytes, Hdf5Error> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = kept().get(&number) {
            return Ok(block.clone());
        }
        let range = number * BLOCK..((number + 1) * BLOCK).min(self.input.byte_count());
        // Most metadata is at the start or contiguous; the rest is scattered among chunks.
        let goes_on = number == 0 || kept().contains_key(&(number - 1));
        let block = if goes_on {
            self.input.read_range(range).map_err(storage_error)?
        } else {
            self.exact_range(range.start, range.end)?
        };
        let mut kept = kept();
        if kept.len() >= if self.input.is_remote() { REMOTE_BLOCKS } else { BLOCKS } {
            kept.clear();
        }
        kept.insert(number, block.clone());
        Ok(block)
    }
}

impl Storage for Blocks {
    fn len(&self) -> u64 {
        self.input.byte_count()
    }

    fn read_range(&self, offset: u64, len: usize) -> Result<StorageBuffer, Hdf5Error> {
        let end = self.checked_end(offset, len)?;
        let read = self.read(offset, end, len)?;
        self.look_at_heaps(offset, read.as_ref())?;
        match self.headers.correct_bytes(offset, read.as_ref()) {
            Some(corrected) => Ok(StorageBuffer::from_vec(corrected)),
            None => Ok(read),
        }
    }
}

impl Blocks {
    /// Checks the indirect blocks of heaps when the crate reads the signature of one.
    fn look_at_heaps(&self, offset: u64, bytes: &[u8]) -> Result<(), Hdf5Error> {
        let heaps = || self.heaps.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.starts_with(b"FRHP") {
            heaps().examine_header(bytes, self.headers.base_offset(), self.sizes.0, self.sizes.1);
        }
        // The lock is released before the block is read.
        let waiting = if bytes.len() == 4 { heaps().take_indirect(offset) } else { None };
        if let Some(block) = waiting {
            let length = block.byte_len().ok_or(Hdf5Error::OffsetOutOfBounds(offset))?;
            let whole = self.read(offset, self.checked_end(offset, length)?, length)?;
            heaps().check_indirect(block, offset, whole.as_ref(), self.headers.base_offset())?;
        }
        Ok(())
    }

    fn read(&self, offset: u64, end: u64, len: usize) -> Result<StorageBuffer, Hdf5Error> {
        if len == 0 {
            return Ok(StorageBuffer::from_vec(Vec::new()));
        }
        if let Some(cached) = self.input.cached_range(&(offset..end)) {
            return whole_buffer(cached);
        }
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        if last - first > 1 {
            return whole_buffer(self.exact_range(offset, end)?);
        }
        let start = usize::try_from(offset - first * BLOCK).unwrap_or(usize::MAX);
        if first == last {
            return StorageBuffer::from_shared_owner(Arc::new(self.read_block(first)?), start, len);
        }
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(self.read_block(first)?.get(start..).unwrap_or_default());
        let rest = len - out.len();
        out.extend_from_slice(self.read_block(last)?.get(..rest).unwrap_or_default());
        Ok(StorageBuffer::from_vec(out))
    }
}

fn storage_error(error: Error) -> Hdf5Error {
    Hdf5Error::Io(std::io::Error::from(error))
}

fn whole_buffer(bytes: Bytes) -> Result<StorageBuffer, Hdf5Error> {
    let length = bytes.len();
    StorageBuffer::from_shared_owner(Arc::new(bytes), 0, length)
}
