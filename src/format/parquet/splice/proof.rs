//! What a new file must hold, noted while it was put together, and the look at the file once it is written.
//!
//! ```text
//! page that was copied      checksum of the source's bytes    = checksum of the bytes in the file
//! page that was made        checksum of what was made         = checksum of the bytes in the file
//!        indices            what was compressed, read again   = what the table gave
//!        one in SAMPLE      what was made, inflated again     = what was compressed
//! ```
//!
//! The file is read once, from its first byte to its last. Counts of rows, values and nulls come from the footers of the
//! inputs.

use std::io::Read;

use ::parquet::file::metadata::ColumnChunkMetaData;
use xxhash_rust::xxh3::xxh3_64;

use super::Source;
use crate::{
    error::{Error, Result},
    format::ranged::RangedInput,
};

/// One page in so many of those with new bytes is inflated again.
pub(super) const SAMPLE: usize = 16;

/// Bytes that are passed by at once.
const PIECE: u64 = 256 << 10;

/// What was noted of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageNote {
    /// Checksum of the page with its header.
    pub(super) stored: u64,
    /// Bytes of both.
    pub(super) bytes: u64,
}

/// What was noted of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct ChunkNote {
    /// The dictionary, then the data pages.
    pub(super) pages: Vec<PageNote>,
    /// Values as the footers of the inputs have them.
    pub(super) values: i64,
    /// Nulls, if all footers say how many.
    pub(super) nulls: Option<u64>,
}

/// What was noted of a row group; of columns that were encoded anew, nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNote {
    pub(in super::super) rows: u64,
    pub(in super::super) columns: Vec<Option<ChunkNote>>,
}

/// A checksum of indices that knows their order, after Fletcher: it is to find mistakes and has to cost next to nothing.
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

/// Compares a written file with what was noted of its row groups.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) when they differ.
pub fn prove(file: &Source, notes: &[GroupNote]) -> Result<()> {
    let differs = |message: String| Error::mistaken(message).at(file.name.as_str());
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
                    return Err(differs(format!("{}: expected the page that was made, found another", place())));
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

/// Reads a file onwards.
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

    /// Goes on to an offset; what is asked for behind it is taken from there.
    fn skip_to(&mut self, offset: u64) -> Result<()> {
        if offset < self.at {
            return Err(Error::integrity(format!(
                "expected column chunks one behind the other, found one at {offset}"
            )));
        }
        while self.at < offset && !self.take((offset - self.at).min(PIECE))?.is_empty() {}
        Ok(())
    }

    /// The next bytes; fewer at the end of the file.
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
