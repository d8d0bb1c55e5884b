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
//! The file is read once, from its first byte to its last. Counts of rows, values and nulls come from the footers of
//! the inputs.

use std::io::Read;

use ::parquet::file::metadata::ColumnChunkMetaData;
use xxhash_rust::xxh3::xxh3_64;

use super::Source;
use crate::{
    error::{Error, Result},
    format::ranged::RangedInput,
};

/// One in this many pages with new bytes is decompressed again.
pub(super) const SAMPLE: usize = 16;

/// Number of bytes skipped at a time.
const PIECE_BYTES: u64 = 256 << 10;

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

/// Note about a row group; it has nothing about columns that were encoded again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNote {
    pub(in super::super) rows: u64,
    pub(in super::super) columns: Vec<Option<ChunkNote>>,
}

/// An order-dependent checksum of indices, after Fletcher: it detects mistakes at almost no cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums(u64, u64);

impl Sums {
    pub(super) fn add(&mut self, indices: &[u32]) {
        let Self(mut sum, mut sums) = *self;
        for index in indices {
            sum = sum.wrapping_add(u64::from(*index) + 1);
            sums = sums.wrapping_add(sum);
        }
        *self = Self(sum, sums);
    }
}

/// Compares a written file with the notes about its row groups.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if they differ.
pub fn prove(file: &Source, notes: &[GroupNote]) -> Result<()> {
    let differs = |message: String| Error::inconsistent_output(message).at(file.name.as_str());
    let groups = file.metadata.row_groups();
    if groups.len() != notes.len() {
        return Err(differs(format!("expected {} row groups, found {}", notes.len(), groups.len())));
    }
    let mut reader = Reader::new(&file.input)?;
    for (number, (group, note)) in groups.iter().zip(notes).enumerate() {
        if u64::try_from(group.num_rows()) != Ok(note.rows) || group.columns().len() != note.columns.len() {
            let message = format!("row group {number}: expected {} rows, found {}", note.rows, group.num_rows());
            return Err(differs(message));
        }
        for (chunk, note) in group.columns().iter().zip(&note.columns) {
            let Some(note) = note else { continue };
            let place = || format!("row group {number}, column {}", chunk.column_path());
            check_counts(chunk, note).map_err(|message| differs(format!("{}: {message}", place())))?;
            reader.skip_to(chunk.byte_range().0)?;
            for page in &note.pages {
                if xxh3_64(reader.take(page.bytes)?) != page.stored {
                    return Err(differs(format!("{}: expected the page as it was assembled, found another", place())));
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
struct Reader {
    source: Box<dyn Read + Send>,
    at: u64,
    page: Vec<u8>,
}

impl Reader {
    fn new(input: &RangedInput) -> Result<Self> {
        let source: Box<dyn Read + Send> = match input {
            RangedInput::Object(object) => object.read_back()?,
            RangedInput::Bytes(bytes) => Box::new(std::io::Cursor::new(bytes.clone())),
        };
        Ok(Self { source, at: 0, page: Vec::new() })
    }

    /// Skips to an offset; later reads start there.
    fn skip_to(&mut self, offset: u64) -> Result<()> {
        if offset < self.at {
            return Err(Error::integrity(format!("expected consecutive column chunks, found one at {offset}")));
        }
        while self.at < offset && !self.take((offset - self.at).min(PIECE_BYTES))?.is_empty() {}
        Ok(())
    }

    /// Returns the next bytes; fewer at the end of the file.
    fn take(&mut self, bytes: u64) -> Result<&[u8]> {
        let length = usize::try_from(bytes).map_err(|_| Error::internal("a page is larger than memory"))?;
        if self.page.len() < length {
            self.page.resize(length, 0);
        }
        let mut found = 0;
        while found < length {
            match self.source.read(&mut self.page[found..length])? {
                0 => break,
                more => found += more,
            }
        }
        self.at += found as u64;
        Ok(&self.page[..found])
    }
}
