//! Bytes of an HDF5 file as its reader asks for them. Small pieces, which are its bookkeeping, come out of blocks that are
//! kept; large ones, which are chunks, are read alone and not kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use hdf5_reader::{Storage, StorageBuffer, error::Error as Hdf5Error};

use super::{SIGNATURE, headers::Headers, starts};
use crate::format::ranged::RangedInput;

/// Size of a block, and how many are kept.
const BLOCK: u64 = 64 << 10;
const BLOCKS: usize = 128;

/// Reads an input in blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    input: RangedInput,
    kept: Mutex<HashMap<u64, Bytes>>,
    headers: Headers,
}

impl Blocks {
    /// Finds where the file begins in its input.
    pub(super) fn new(input: RangedInput) -> Result<Self, Hdf5Error> {
        let mut blocks = Self { input, kept: Mutex::default(), headers: Headers::new(0) };
        let head = if blocks.input.bytes() == 0 { Bytes::new() } else { blocks.block(0)? };
        let base = starts().find(|start| head.get(*start..).is_some_and(|rest| rest.starts_with(SIGNATURE)));
        blocks.headers = Headers::new(base.unwrap_or(0) as u64);
        Ok(blocks)
    }

    pub(super) fn headers(&self) -> &Headers {
        &self.headers
    }

    fn range(&self, start: u64, end: u64) -> Result<Bytes, Hdf5Error> {
        self.input.range(start..end).map_err(|error| Hdf5Error::Io(std::io::Error::from(error)))
    }

    fn block(&self, number: u64) -> Result<Bytes, Hdf5Error> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = kept().get(&number) {
            return Ok(block.clone());
        }
        let block = self.range(number * BLOCK, ((number + 1) * BLOCK).min(self.input.bytes()))?;
        let mut kept = kept();
        if kept.len() >= BLOCKS {
            kept.clear();
        }
        kept.insert(number, block.clone());
        Ok(block)
    }
}

impl Storage for Blocks {
    fn len(&self) -> u64 {
        self.input.bytes()
    }

    fn read_range(&self, offset: u64, len: usize) -> Result<StorageBuffer, Hdf5Error> {
        let total = self.input.bytes();
        let end = offset.checked_add(len as u64).filter(|end| *end <= total);
        let end = end.ok_or(Hdf5Error::UnexpectedEof {
            offset,
            needed: len as u64,
            available: total.saturating_sub(offset),
        })?;
        if len == 0 {
            return Ok(StorageBuffer::from_vec(Vec::new()));
        }
        let read = self.read(offset, end, len)?;
        match self.headers.corrected(offset, read.as_ref()) {
            Some(corrected) => Ok(StorageBuffer::from_vec(corrected)),
            None => Ok(read),
        }
    }
}

impl Blocks {
    fn read(&self, offset: u64, end: u64, len: usize) -> Result<StorageBuffer, Hdf5Error> {
        let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
        if last - first > 1 {
            return whole(self.range(offset, end)?);
        }
        let start = usize::try_from(offset - first * BLOCK).unwrap_or(usize::MAX);
        if first == last {
            return StorageBuffer::from_shared_owner(Arc::new(self.block(first)?), start, len);
        }
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(self.block(first)?.get(start..).unwrap_or_default());
        let rest = len - out.len();
        out.extend_from_slice(self.block(last)?.get(..rest).unwrap_or_default());
        Ok(StorageBuffer::from_vec(out))
    }
}

fn whole(bytes: Bytes) -> Result<StorageBuffer, Hdf5Error> {
    let length = bytes.len();
    StorageBuffer::from_shared_owner(Arc::new(bytes), 0, length)
}
