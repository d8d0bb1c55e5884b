//! Partial reads of tables with few requests.
//!
//! The cost of a lookup at a remote store is the number of consecutive requests. A table is therefore opened by reading
//! its end, which holds the footer, without requesting its size first; a part that is likely to be needed is requested
//! at the same time; and all parts that turn out to be needed are requested together, with nearby parts merged into one
//! request.
//!
//! ```text
//! | ........ group ........ group ........ | footer |        request 1: the end     request 1': a guess
//!            ^^^^^^^^^^^^^^^                ^^^^^^^^          request 2: only if the guess was wrong
//! ```

use std::{
    io::{Cursor, Read},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    errors::ParquetError,
    file::{
        metadata::{PageIndexPolicy, ParquetMetaData},
        reader::{ChunkReader, Length},
    },
};

use super::{
    fault::parquet_error,
    sealed::{Sealed, checked_tail},
};
use crate::{
    codec::seal::{BLOCK_BYTES, BlockHashes, Seal},
    error::{Error, Result},
    storage::{BLOCK_MISMATCH, Object, RESTORE_HINT, Store},
};

/// Maximum gap in bytes between two parts that are fetched with one request.
const GAP: usize = 64 << 10;

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// An object with some parts in memory. Other parts are fetched when they are read. Everything is
/// checked before it is kept.
#[derive(Debug, Clone)]
pub(in crate::dataset) struct Parts {
    store: Arc<dyn Store>,
    object: Object,
    blocks: BlockHashes,
    held: Vec<(u64, Bytes)>,
}

impl Parts {
    /// Reads the last `tail` bytes of an object and, at the same time, a part that will probably be needed.
    ///
    /// # Errors
    /// If the object does not exist, does not match its seal, or the store fails. A guess beyond the end of the object
    /// is not an error.
    pub(in crate::dataset) fn open(
        store: &Arc<dyn Store>,
        object: &Sealed,
        tail: u64,
        guess: Option<Range<u64>>,
    ) -> Result<Self> {
        let path = object.path.as_str();
        let seal = &object.seal;
        let (tail, guess) = in_blocks(seal, tail, guess);
        let guessed = |range: Range<u64>| Some((range.start, store.get_range(path, range).ok()?));
        let (tail, guessed) = match guess {
            None => (store.read_tail(path, tail), None),
            Some(guess) => std::thread::scope(|scope| {
                let guessed = scope.spawn(|| guessed(guess));
                let tail = store.read_tail(path, tail);
                (tail, guessed.join().ok().flatten())
            }),
        };
        let (end, bytes) = tail?.ok_or_else(|| {
            Error::integrity("expected an object that the log refers to, found none")
                .at_location(object.display_location(store.as_ref()))
        })?;
        let opened = Object::new(Arc::clone(store), path, bytes);
        let start = bytes.saturating_sub(end.len() as u64);
        let before = usize::try_from(seal.body_bytes().saturating_sub(start)).unwrap_or(usize::MAX).min(end.len());
        let blocks = checked_tail(store.as_ref(), object, seal, bytes, &end.slice(before..))?;
        let mut parts = Self {
            store: Arc::clone(store),
            object: opened.with_checks(blocks.clone(), end.slice(before..)),
            blocks,
            held: Vec::new(),
        };
        parts.check_blocks(start, &end[..before])?;
        parts.held.push((start, end));
        if let Some((start, bytes)) = guessed {
            parts.hold_range(start, bytes)?;
        }
        Ok(parts)
    }

    /// Checks fetched whole blocks against the seal.
    fn check_blocks(&self, start: u64, bytes: &[u8]) -> Result<()> {
        match self.blocks.find_damage(start, bytes) {
            Some(at) => Err(Error::integrity(BLOCK_MISMATCH)
                .at_location(self.store.location().join(self.object.path()).to_string())
                .at_byte(at)
                .with_hint(RESTORE_HINT)),
            None => Ok(()),
        }
    }

    fn hold_range(&mut self, start: u64, bytes: Bytes) -> Result<()> {
        self.check_blocks(start, &bytes)?;
        self.held.push((start, bytes));
        Ok(())
    }

    fn held_range(&self, range: &Range<u64>) -> Option<Bytes> {
        self.held.iter().find_map(|(start, bytes)| {
            let at = |offset: u64| usize::try_from(offset.checked_sub(*start)?).ok();
            let (from, to) = (at(range.start)?, at(range.end)?);
            (from <= to && to <= bytes.len()).then(|| bytes.slice(from..to))
        })
    }

    /// Ensures that the given parts, in ascending order, are in memory. Earlier parts are dropped, except the end of
    /// the object.
    ///
    /// # Errors
    /// If the store fails, or the fetched bytes do not match the seal.
    pub(in crate::dataset) fn fetch_ranges(&mut self, parts: &[Range<u64>]) -> Result<()> {
        let mut missing: Vec<Range<u64>> = Vec::new();
        for part in parts.iter().filter(|part| self.held_range(part).is_none()) {
            let part = self.blocks.covering_range(part);
            match missing.last_mut() {
                Some(last) if part.start <= last.end.saturating_add(GAP as u64) => last.end = last.end.max(part.end),
                _ => missing.push(part),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let held = &self.held;
        self.held = held
            .iter()
            .take(1)
            .cloned()
            .chain(
                held.iter()
                    .skip(1)
                    .filter(|(start, bytes)| {
                        parts.iter().any(|part| part.start < start + bytes.len() as u64 && *start < part.end)
                    })
                    .cloned(),
            )
            .collect();
        // Bypasses `Object`, which reads ahead and serves one reader at a time.
        let (store, path) = (&self.store, self.object.path());
        let fetched = in_parallel(&missing, &|range: &Range<u64>| store.get_range(path, range.clone()));
        for (range, bytes) in missing.into_iter().zip(fetched) {
            self.hold_range(range.start, bytes?)?;
        }
        Ok(())
    }

    /// Reads the footer and, if `pages` is set and the table has one, the page index.
    ///
    /// # Errors
    /// If the footer is damaged.
    pub(in crate::dataset) fn read_metadata(&self, pages: bool) -> Result<ArrowReaderMetadata> {
        let policy = if pages { PageIndexPolicy::Optional } else { PageIndexPolicy::Skip };
        let options = ArrowReaderOptions::new().with_page_index_policy(policy);
        ArrowReaderMetadata::load(self, options).map_err(parquet_error)
    }

    /// Returns a reader of the fetched parts.
    pub(in crate::dataset) fn into_reader(
        self,
        metadata: ArrowReaderMetadata,
    ) -> ParquetRecordBatchReaderBuilder<Self> {
        ParquetRecordBatchReaderBuilder::new_with_metadata(self, metadata)
    }
}

/// Returns what to read of an object so that all of it can be checked: the bytes at its end, and a guessed part, which
/// is omitted if the end includes it.
fn in_blocks(seal: &Seal, tail: u64, guess: Option<Range<u64>>) -> (u64, Option<Range<u64>>) {
    let wanted = seal.bytes.saturating_sub(tail.max(seal.tail));
    let start = wanted / BLOCK_BYTES * BLOCK_BYTES;
    let around = |range: Range<u64>| {
        let end = range.end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).min(seal.body_bytes());
        range.start / BLOCK_BYTES * BLOCK_BYTES..end
    };
    (seal.bytes - start, guess.map(around).filter(|range| range.start < range.end.min(start)))
}

/// Returns the byte range of a row group's pages.
pub(in crate::dataset) fn group_range(metadata: &ParquetMetaData, group: usize) -> Range<u64> {
    let columns = metadata.row_group(group).columns();
    let ranges = columns.iter().map(parquet::file::metadata::ColumnChunkMetaData::byte_range);
    let (start, end) = ranges.fold((u64::MAX, 0), |(start, end), (at, length)| (start.min(at), end.max(at + length)));
    start.min(end)..end
}

/// Returns the byte ranges of the pages and dictionaries of some rows; empty if the table has no page index.
pub(in crate::dataset) fn pages_of(metadata: &ParquetMetaData, ordinals: &[u64]) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let mut first = 0;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let from = ordinals.partition_point(|ordinal| *ordinal < first);
        let own: Vec<u64> =
            ordinals[from..].iter().take_while(|row| **row < first + rows).map(|row| row - first).collect();
        first += rows;
        if own.is_empty() {
            continue;
        }
        let index = metadata.page_index_for_row_group(number);
        for (column, chunk) in group.columns().iter().enumerate() {
            let Some(pages) = index.page_locations(column) else { continue };
            let number = |n: i64| u64::try_from(n).unwrap_or(0);
            let start = chunk.byte_range().0;
            ranges.extend(pages.first().map(|page| start..number(page.offset)).filter(|range| range.start < range.end));
            for (i, page) in pages.iter().enumerate() {
                let end = pages.get(i + 1).map_or(rows, |next| number(next.first_row_index));
                let next = own.get(own.partition_point(|row| *row < number(page.first_row_index)));
                if next.is_some_and(|row| *row < end) {
                    let offset = number(page.offset);
                    ranges.push(offset..offset + number(i64::from(page.compressed_page_size)));
                }
            }
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

/// Applies a function to each task, several at a time. Meant for waiting on a store, not for computing.
pub(in crate::dataset) fn in_parallel<T: Sync, R: Send>(tasks: &[T], run: &(dyn Fn(&T) -> R + Sync)) -> Vec<R> {
    if let [task] = tasks {
        return vec![run(task)];
    }
    let mut out = Vec::with_capacity(tasks.len());
    for tasks in tasks.chunks(MAX_CONCURRENT_REQUESTS) {
        std::thread::scope(|scope| {
            let running: Vec<_> = tasks.iter().map(|task| scope.spawn(move || run(task))).collect();
            for (task, running) in tasks.iter().zip(running) {
                // A task that panicked runs again here, where the panic is caught by the guard around this call.
                out.push(running.join().unwrap_or_else(|_| run(task)));
            }
        });
    }
    out
}

impl Length for Parts {
    fn len(&self) -> u64 {
        self.object.len()
    }
}

impl ChunkReader for Parts {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let part = self.held.iter().find(|(at, bytes)| *at <= start && start < at + bytes.len() as u64);
        Ok(match part {
            Some((at, bytes)) => {
                let from = usize::try_from(start - at).unwrap_or(usize::MAX).min(bytes.len());
                let rest = at + bytes.len() as u64;
                Box::new(Cursor::new(bytes.slice(from..)).chain(self.object.get_read(rest)?))
            }
            None => Box::new(self.object.get_read(start)?),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let range = start..start.saturating_add(length as u64);
        if range.end > self.len() {
            return Err(ParquetError::EOF("the table ends too early".to_owned()));
        }
        match self.held_range(&range) {
            Some(bytes) => Ok(bytes),
            None => self.object.get_bytes(start, length),
        }
    }
}
