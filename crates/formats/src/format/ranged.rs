//! Inputs that are read out of order: a stored object, or bytes in memory or on disk if a source had to be
//! decompressed.

use std::{any::Any, io::Read, ops::Range, sync::Arc};

use ::parquet::{
    errors::ParquetError,
    file::reader::{ChunkReader, Length},
};
use bytes::Bytes;

use crate::{
    error::{Error, Result},
    storage::{Object, Prefetched, Spill},
};

/// The source of a file's bytes.
#[derive(Debug, Clone)]
pub enum RangedInput {
    /// From storage, range by range.
    Object(Object),
    /// From memory.
    Bytes(Bytes),
    /// From a temporary file with this number of bytes.
    Disk(Arc<Spill>, u64),
}

impl RangedInput {
    /// Returns the size in bytes.
    pub fn byte_count(&self) -> u64 {
        match self {
            Self::Object(object) => object.byte_count(),
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Disk(_, bytes) => *bytes,
        }
    }

    /// Whether reading it takes requests over a network.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Object(object) if object.is_remote())
    }

    /// Returns the bytes that are in memory while it is open.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Object(_) | Self::Disk(..) => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads a range.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if the range is beyond the end, because then an offset in the file is
    /// wrong.
    pub fn read_range(&self, range: Range<u64>) -> Result<Bytes> {
        self.read(range, Object::get_range)
    }

    /// Reads an isolated range, as [`Object::exact_range`] does.
    ///
    /// # Errors
    /// Like [`read_range`](Self::read_range).
    pub fn exact_range(&self, range: Range<u64>) -> Result<Bytes> {
        self.read(range, Object::exact_range)
    }

    /// Returns a range that is already in memory, because it was prefetched or fetched with another; never for local
    /// files.
    pub fn cached_range(&self, range: &Range<u64>) -> Option<Bytes> {
        match self {
            Self::Object(object) => object.cached_range(range),
            Self::Bytes(_) | Self::Disk(..) => None,
        }
    }

    /// Prefetches ranges, as [`Object::prefetch_ranges`] does.
    ///
    /// # Errors
    /// If the store fails.
    pub fn prefetch_ranges(&self, wanted: Vec<Range<u64>>) -> Result<Option<Prefetched>> {
        match self {
            Self::Object(object) => object.prefetch_ranges(wanted),
            Self::Bytes(_) | Self::Disk(..) => Ok(None),
        }
    }

    /// Prefetches all ranges that some parts of a remote file need; does nothing for other inputs.
    ///
    /// # Errors
    /// Like [`prefetch_ranges`](Self::prefetch_ranges).
    pub fn prefetch_parts<T>(
        &self,
        wanted: &[T],
        ranges: impl Fn(&T) -> Vec<Range<u64>>,
    ) -> Result<Option<Box<dyn Any + Send>>> {
        if !self.is_remote() {
            return Ok(None);
        }
        let prefetched = self.prefetch_ranges(wanted.iter().flat_map(ranges).collect())?;
        Ok(prefetched.map(|prefetched| Box::new(prefetched) as Box<dyn Any + Send>))
    }

    fn read(&self, range: Range<u64>, from: impl Fn(&Object, Range<u64>) -> Result<Bytes>) -> Result<Bytes> {
        let within = range.start <= range.end && range.end <= self.byte_count();
        match (self, usize::try_from(range.start), usize::try_from(range.end)) {
            (Self::Object(object), ..) if within => from(object, range),
            (Self::Bytes(bytes), Ok(start), Ok(end)) if within => Ok(bytes.slice(start..end)),
            (Self::Disk(spill, _), Ok(start), Ok(end)) if within => {
                let mut bytes = vec![0; end - start];
                spill.read(range.start, &mut bytes)?;
                Ok(bytes.into())
            }
            _ => {
                let message = format!("expected bytes {} to {}, found the end of the file", range.start, range.end);
                Err(Error::input(message).with_hint("the file may have been cut short while it was copied or written"))
            }
        }
    }
}

impl Length for RangedInput {
    fn len(&self) -> u64 {
        self.byte_count()
    }
}

impl ChunkReader for RangedInput {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> ::parquet::errors::Result<Self::T> {
        Ok(match self {
            Self::Object(object) => Box::new(object.get_read(start)?),
            Self::Bytes(bytes) => Box::new(bytes.get_read(start)?),
            Self::Disk(spill, bytes) => Box::new(SpillReader::new(spill, start, *bytes)),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ::parquet::errors::Result<Bytes> {
        let end = start.saturating_add(length as u64);
        if end > self.byte_count() {
            return Err(ParquetError::EOF(format!("expected bytes {start} to {end}, found the end of the file")));
        }
        self.read_range(start..end).map_err(|error| ParquetError::External(Box::new(std::io::Error::from(error))))
    }
}

/// Reads a temporary file from front to back.
pub(super) struct SpillReader {
    spill: Arc<Spill>,
    at: u64,
    end: u64,
}

impl SpillReader {
    pub(super) fn new(spill: &Arc<Spill>, start: u64, end: u64) -> Self {
        Self { spill: Arc::clone(spill), at: start, end }
    }
}

impl Read for SpillReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let rest = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let count = out.len().min(rest);
        self.spill.read(self.at, &mut out[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}
