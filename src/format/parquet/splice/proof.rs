//! What a new file must hold, noted while it was put together, and the look at the file once it is written.
//!
//! Every page is read back and compared by a checksum: for pages that were copied, with that of the source's bytes; for
//! new ones, with that of what was made. Rewritten indices are read out of the written page and compared with those that
//! the table gave, one page in [`SAMPLE`] of gathered values is inflated and compared. Counts of rows, values and nulls
//! come from the footers of the inputs.

use ::parquet::file::metadata::ColumnChunkMetaData;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Source, hybrid,
    page::{Page, Pages, Refused, Taken},
};
use crate::error::{Error, Result};

/// One page in so many of those with gathered values is inflated.
pub(super) const SAMPLE: usize = 16;

/// What was noted of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageNote {
    /// Checksum of the page with its header.
    pub(super) stored: u64,
    /// What to look at beyond that.
    pub(super) inner: Inner,
}

/// What to look at inside of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inner {
    /// Nothing.
    Nothing,
    /// The checksum of the indices.
    Indices(Sums),
    /// The checksum of the inflated values.
    Values(u64),
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
    use rayon::prelude::*;
    let differs = |message: String| {
        Error::integrity(message).at(file.name.as_str()).hint("nothing was committed; please report this as a bug")
    };
    let groups = file.metadata.row_groups();
    if groups.len() != notes.len() {
        return Err(differs(format!("expected {} row groups, found {}", notes.len(), groups.len())));
    }
    let chunks = groups.iter().zip(notes).enumerate().flat_map(|(number, (group, note))| {
        group.columns().iter().zip(&note.columns).map(move |(chunk, note)| (number, chunk, note))
    });
    for (number, (group, note)) in groups.iter().zip(notes).enumerate() {
        if u64::try_from(group.num_rows()) != Ok(note.rows) || group.columns().len() != note.columns.len() {
            let message = format!("row group {number}: expected {} rows, found {}", note.rows, group.num_rows());
            return Err(differs(message));
        }
    }
    let chunks: Vec<_> = chunks.collect();
    chunks.par_iter().try_for_each(|(number, chunk, note)| {
        let Some(note) = note else { return Ok(()) };
        let (start, length) = chunk.byte_range();
        let bytes = file.input.range(start..start + length)?;
        check(bytes, chunk, note).map_err(|refused| {
            let reason = match refused {
                Refused::Damaged(message) => message,
                Refused::Unknown => "expected pages that can be read".to_owned(),
            };
            differs(format!("row group {number}, column {}: {reason}", chunk.column_path()))
        })
    })
}

fn check(bytes: bytes::Bytes, chunk: &ColumnChunkMetaData, note: &ChunkNote) -> Taken<()> {
    let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
    if chunk.num_values() != note.values || (note.nulls.is_some() && nulls != note.nulls) {
        let (found, expected) = (chunk.num_values(), note.values);
        let message = format!("expected {expected} values with {:?} nulls, found {found} with {nulls:?}", note.nulls);
        return Err(Refused::Damaged(message));
    }
    let pages = Pages::of(bytes, chunk)?;
    if pages.dictionary.iter().chain(&pages.data).count() != note.pages.len() {
        return Err(format!("expected {} pages, found {}", note.pages.len(), pages.data.len()).as_str().into());
    }
    let mut buffer = Vec::new();
    for (page, note) in pages.dictionary.iter().chain(&pages.data).zip(&note.pages) {
        let same = xxh3_64(&pages.bytes[page.whole.clone()]) == note.stored;
        if !same || !look(&pages, page, note.inner, &mut buffer)? {
            return Err("expected the page that was made, found another".into());
        }
    }
    Ok(())
}

fn look(pages: &Pages, page: &Page, inner: Inner, buffer: &mut Vec<u8>) -> Taken<bool> {
    Ok(match inner {
        Inner::Nothing => true,
        Inner::Values(expected) => xxh3_64(pages.cut(page, buffer)?.values) == expected,
        Inner::Indices(expected) => {
            let cut = pages.cut(page, buffer)?;
            let (width, indices) = cut.indices()?;
            let mut sums = Sums::default();
            hybrid::read(indices, width, cut.present, |indices| sums.add(indices)) && sums == expected
        }
    })
}
