//! Notes about the expected content of a new file, taken while it is assembled, and the verification of the written
//! file.
//!
//! ```text
//! copied page               checksum of the source's bytes    = checksum of the bytes in the file
//! new page                  checksum of the assembled bytes   = checksum of the bytes in the file
//!        indices            compressed input, read again      = values from the table
//!        one in SAMPLE      page, decompressed again          = compressed input
//! ```
//!
//! The file is read once, from its first byte to its last: by a thread that follows the writer, so that the last row
//! group alone remains when the file is complete, or afterwards if a store cannot read unfinished files. The footer is
//! read when it is complete. Counts of rows, values and nulls come from the footers of the inputs.

use std::{io::BufRead, ops::Range, sync::Arc, thread::JoinHandle};

use ::parquet::{
    file::metadata::{ColumnChunkMetaData, RowGroupMetaData},
    schema::types::ColumnPath,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use xxhash_rust::xxh3::Xxh3;

use super::Source;
use crate::{
    error::{Error, Result},
    format::ranged::{RangedInput, SpillReader},
};

/// One in this many pages with new bytes is decompressed again.
pub(super) const SAMPLE: usize = 16;

/// Note about a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageNote {
    /// Checksum of the page with its header.
    pub(super) stored: u64,
    /// Size of the page with its header in bytes.
    pub(super) bytes: u64,
}

/// Note about a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct ChunkNote {
    /// The dictionary, if any, then the data pages.
    pub(super) pages: Vec<PageNote>,
    /// Number of values from the footers of the inputs.
    pub(super) values: i64,
    /// Number of nulls, if all footers state it.
    pub(super) nulls: Option<u64>,
}

/// Note about a row group; it has nothing about the pages of columns that were encoded again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNote {
    rows: u64,
    columns: Vec<ColumnNote>,
}

/// Note about a column: where its chunk was written, and what is known of the pages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ColumnNote {
    path: ColumnPath,
    place: Range<u64>,
    chunk: Option<ChunkNote>,
}

impl GroupNote {
    /// Returns the note about a row group that was written, from what is known of its columns.
    pub(in super::super) fn from_written(written: &RowGroupMetaData, chunks: Vec<Option<ChunkNote>>) -> Self {
        let columns = written.columns().iter().zip(chunks);
        let note = |(column, chunk): (&ColumnChunkMetaData, _)| {
            let path = column.column_path().clone();
            ColumnNote { path, place: place_of(column), chunk }
        };
        Self { rows: u64::try_from(written.num_rows()).unwrap_or(0), columns: columns.map(note).collect() }
    }

    /// Returns the end of its last chunk in the file.
    fn end_offset(&self) -> u64 {
        self.columns.iter().map(|column| column.place.end).max().unwrap_or(0)
    }
}

fn place_of(column: &ColumnChunkMetaData) -> Range<u64> {
    let (start, bytes) = column.byte_range();
    start..start.saturating_add(bytes)
}

/// An order-dependent checksum of indices, after Fletcher: it detects mistakes at almost no cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums(u64, u64);

impl Sums {
    pub(super) fn add_indices(&mut self, indices: &[u32]) {
        let Self(mut sum, mut sums) = *self;
        for index in indices {
            sum = sum.wrapping_add(u64::from(*index) + 1);
            sums = sums.wrapping_add(sum);
        }
        *self = Self(sum, sums);
    }
}

/// Size of a file from which on it is read while it is written: a thread is not worthwhile for a smaller one.
const FOLLOWED_BYTES: u64 = 8 << 20;

/// Compares a new file with the notes about its row groups.
#[derive(Debug, Default)]
pub struct Proving {
    notes: Vec<Arc<GroupNote>>,
    following: Option<Following>,
}

/// The thread that reads the file while it is written.
#[derive(Debug)]
struct Following {
    groups: Sender<Arc<GroupNote>>,
    thread: JoinHandle<Result<()>>,
}

impl Proving {
    /// Adds the note about the next row group. `follow` opens the file, which is being written; reads wait for its
    /// bytes.
    pub fn add_group(&mut self, note: GroupNote, follow: impl FnOnce() -> Option<Box<dyn BufRead + Send>>) {
        let note = Arc::new(note);
        let was_small = self.notes.last().is_none_or(|last| last.end_offset() < FOLLOWED_BYTES);
        self.notes.push(Arc::clone(&note));
        if let Some(following) = &self.following {
            // The thread ends early if it finds a mistake, which `finish` returns.
            let _ = following.groups.send(note);
        } else if was_small && note.end_offset() >= FOLLOWED_BYTES {
            self.following = follow().and_then(|reader| Following::start_reading(reader, &self.notes));
        }
    }

    /// Compares the complete file with the notes.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if they differ.
    pub fn finish(self, file: &Source) -> Result<()> {
        let differs = |message: String| Error::inconsistent_output(message).at_location(file.name.as_str());
        let groups = file.metadata.row_groups();
        if groups.len() != self.notes.len() {
            return Err(differs(format!("expected {} row groups, found {}", self.notes.len(), groups.len())));
        }
        for (number, (group, note)) in groups.iter().zip(&self.notes).enumerate() {
            check_footer(number, group, note).map_err(differs)?;
        }
        let read = match self.following {
            Some(following) => following.join_thread(),
            None => check_pages(ProofReader::from_input(&file.input)?, self.notes.into_iter()),
        };
        read.map_err(|error| if error.place().source.is_some() { error } else { error.at_location(file.name.as_str()) })
    }
}

impl Following {
    /// Starts to read; `None` if no thread can be started.
    fn start_reading(reader: Box<dyn BufRead + Send>, notes: &[Arc<GroupNote>]) -> Option<Self> {
        let (groups, following) = unbounded();
        let check = move || check_pages(ProofReader::new(reader), Receiver::into_iter(following));
        let thread = std::thread::Builder::new().name("proof".to_owned()).spawn(check).ok()?;
        for note in notes {
            groups.send(Arc::clone(note)).ok()?;
        }
        Some(Self { groups, thread })
    }

    /// Waits until all row groups are compared.
    fn join_thread(self) -> Result<()> {
        drop(self.groups);
        self.thread.join().unwrap_or_else(|_| Err(Error::internal("the thread that reads a new file back panicked")))
    }
}

/// Compares what the footer says of a row group with the note.
fn check_footer(number: usize, group: &RowGroupMetaData, note: &GroupNote) -> Result<(), String> {
    if u64::try_from(group.num_rows()) != Ok(note.rows) || group.columns().len() != note.columns.len() {
        return Err(format!("row group {number}: expected {} rows, found {}", note.rows, group.num_rows()));
    }
    for (column, note) in group.columns().iter().zip(&note.columns) {
        let counted = note.chunk.as_ref().map_or(Ok(()), |chunk| check_counts(column, chunk));
        let (found, expected) = (place_of(column), &note.place);
        let placed = if found == *expected {
            Ok(())
        } else {
            Err(format!("expected it at {expected:?}, where it was written, found {found:?}"))
        };
        counted
            .and(placed)
            .map_err(|message| format!("row group {number}, column {}: {message}", column.column_path()))?;
    }
    Ok(())
}

/// Compares the pages of row groups with their notes.
fn check_pages(mut reader: ProofReader, notes: impl Iterator<Item = Arc<GroupNote>>) -> Result<()> {
    for (number, note) in notes.enumerate() {
        for ColumnNote { path, place, chunk } in &note.columns {
            let Some(chunk) = chunk else { continue };
            reader.skip_to(place.start)?;
            for page in &chunk.pages {
                if reader.checksum_next(page.bytes)? != page.stored {
                    let message = "expected the page as it was assembled, found another";
                    return Err(Error::inconsistent_output(format!("row group {number}, column {path}: {message}")));
                }
            }
        }
    }
    Ok(())
}

fn check_counts(chunk: &ColumnChunkMetaData, note: &ChunkNote) -> Result<(), String> {
    let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
    if chunk.num_values() != note.values || (note.nulls.is_some() && nulls != note.nulls) {
        let (found, expected) = (chunk.num_values(), note.values);
        return Err(format!("expected {expected} values with {:?} nulls, found {found} with {nulls:?}", note.nulls));
    }
    let (found, expected) = (chunk.byte_range().1, note.pages.iter().map(|page| page.bytes).sum::<u64>());
    if found != expected {
        return Err(format!("expected pages of {expected} bytes, found {found} bytes"));
    }
    Ok(())
}

/// Reads a file sequentially.
struct ProofReader {
    source: Box<dyn BufRead + Send>,
    at: u64,
}

impl ProofReader {
    fn from_input(input: &RangedInput) -> Result<Self> {
        Ok(Self::new(match input {
            RangedInput::Object(object) => object.read_back()?,
            RangedInput::Bytes(bytes) => Box::new(std::io::Cursor::new(bytes.clone())),
            RangedInput::Disk(spill, bytes) => Box::new(std::io::BufReader::new(SpillReader::new(spill, 0, *bytes))),
        }))
    }

    fn new(source: Box<dyn BufRead + Send>) -> Self {
        Self { source, at: 0 }
    }

    /// Skips to an offset; later reads start there.
    fn skip_to(&mut self, offset: u64) -> Result<()> {
        if offset < self.at {
            return Err(Error::integrity(format!("expected consecutive column chunks, found one at {offset}")));
        }
        self.pass_next(offset - self.at, |_| ())
    }

    /// Returns the checksum of the next bytes; of fewer at the end of the file.
    fn checksum_next(&mut self, bytes: u64) -> Result<u64> {
        let mut sum = Xxh3::new();
        self.pass_next(bytes, |piece| sum.update(piece))?;
        Ok(sum.digest())
    }

    /// Passes the next bytes on as they are in memory; fewer at the end of the file.
    fn pass_next(&mut self, bytes: u64, mut look: impl FnMut(&[u8])) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let piece = self.source.fill_buf().map_err(|error| {
                Error::storage("reading back what was written failed")
                    .with_cause(error)
                    .with_hint("nothing of this file was committed; check the disk, then run the command again")
            })?;
            let length = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if length == 0 {
                break;
            }
            look(&piece[..length]);
            self.source.consume(length);
            left -= length as u64;
            self.at += length as u64;
        }
        Ok(())
    }
}
