//! Merges row groups of Parquet files without decoding what can be copied.
//!
//! ```text
//! survey   footers of all files ---> schema and metadata of the output
//! splice   row groups, in order ---> for each column:  column    pages copied, or indices and dictionaries rewritten
//!                                                      re-encode columns with another type or an unknown form
//!          page  hybrid  union                         parts of pages, parsed and assembled
//!          snappy  stored  beginning  expand           compressed pages, made without compressing
//!          slice                                        a range of rows of a row group: its pages, if they begin there
//!          facts bounds  bloom  out                    footer and page indexes of the result
//! table    the same for sidecars
//! prove    the written file ---> every page is the intended one
//! ```
//!
//! Foreign files are not trusted: page headers are checked against their chunk, counts against the footer, checksums
//! against the bytes. What cannot be spliced is decoded, column by column, so that one unusual column does not affect
//! the others. The values of columns with Bloom filters are read once more to build a new filter.

mod beginning;
mod bloom;
mod bounds;
mod column;
mod expand;
mod facts;
mod hybrid;
mod out;
mod page;
mod proof;
mod slice;
mod snappy;
mod source;
mod stored;
mod survey;
mod table;
mod union;

use std::{cmp::Reverse, ops::Range, sync::Arc};

use ::parquet::{
    arrow::ProjectionMask,
    basic::{ConvertedType, LogicalType},
    schema::types::{ColumnDescPtr, ColumnDescriptor},
};
use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::Schema,
};
use rayon::prelude::*;

pub(super) use self::out::SplicedChunk;
use self::{
    bloom::filter_of,
    column::{Part, Target, merge_chunks},
};
pub use self::{
    proof::{GroupNote, Proving},
    source::Source,
    survey::Survey,
    table::{TableChunk, splice_table},
};

use super::{
    chunk::name_of,
    encode::{Encoded, ParquetEncoder, RowGroup},
    read::RowGroupSize,
};
use crate::{
    error::{Error, Result},
    record::widen::cast_to,
};

/// How the bytes of the input pages, including headers, were processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of pages copied unchanged.
    pub copied: u64,
    /// Bytes of pages rewritten without decoding their values.
    pub spliced: u64,
    /// Bytes of all other pages.
    pub reencoded: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.copied += more.copied;
        self.spliced += more.spliced;
        self.reencoded += more.reencoded;
    }
}

/// Consecutive rows of a row group of a file.
#[derive(Debug, Clone)]
pub struct GroupPart {
    source: Arc<Source>,
    group: usize,
    rows: Range<u64>,
}

impl GroupPart {
    /// Returns a whole row group.
    pub fn whole(source: &Arc<Source>, group: usize) -> Self {
        let rows = source.row_groups().get(group).map_or(0, |group| group.rows);
        Self { source: Arc::clone(source), group, rows: 0..rows }
    }

    /// Returns some of its rows, counted from its first one.
    #[must_use]
    pub fn slice(self, rows: Range<u64>) -> Self {
        Self { rows, ..self }
    }

    /// Returns its number of rows.
    pub fn row_count(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// Returns the bytes of its pages before compression; of a slice, its share by rows.
    pub fn uncompressed_bytes(&self) -> u64 {
        self.share_of(self.group_size().uncompressed_bytes)
    }

    /// Returns its bytes in the file; of a slice, its share by rows.
    pub fn encoded_bytes(&self) -> u64 {
        self.share_of(self.group_size().encoded_bytes)
    }

    fn group_size(&self) -> RowGroupSize {
        self.source.row_groups().get(self.group).copied().unwrap_or_default()
    }

    /// Returns the share of its rows in some bytes of the row group.
    fn share_of(&self, bytes: u64) -> u64 {
        let share = u128::from(bytes) * u128::from(self.row_count()) / u128::from(self.group_size().rows.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Returns the chunk of a column.
    fn column_part(&self, leaf: usize) -> Part<'_> {
        Part {
            name: &self.source.name,
            input: &self.source.input,
            chunk: self.source.metadata.row_group(self.group).column(leaf),
            indexes: self.source.page_indexes(self.group, leaf),
            rows: self.rows.clone(),
            group_rows: self.group_size().rows,
        }
    }

    /// Returns its rows, decoded.
    ///
    /// # Errors
    /// When the file is damaged or cannot be read.
    pub fn decode_rows(&self) -> Result<Vec<RecordBatch>> {
        self.source.decode_rows(self.group, self.rows.clone(), ProjectionMask::all())
    }

    /// Returns one top-level field, decoded.
    fn decode_field(&self, name: &str) -> Result<Vec<RecordBatch>> {
        self.source.decode_field(self.group, self.rows.clone(), name)
    }
}

/// Average number of rows below which row groups are decoded: pages with so few rows would be slow to read.
const MIN_MEAN_ROWS: u64 = 400;

/// Maximum number of small row groups that are spliced nevertheless.
const MAX_SMALL_PARTS: usize = 8;

/// Merges row groups into one, columns in parallel on the current rayon pool. `None` if a column can neither be spliced
/// nor encoded for the schema of the encoder.
///
/// # Errors
/// When a file is damaged, naming it, or cannot be read.
pub fn splice_groups(encoder: &ParquetEncoder, parts: &[GroupPart]) -> Result<Option<(RowGroup, Tally)>> {
    let rows: u64 = parts.iter().map(GroupPart::row_count).sum();
    let tiny = parts.len() > MAX_SMALL_PARTS && rows / (parts.len() as u64) < MIN_MEAN_ROWS;
    let fields: Vec<OutputField> = encoder
        .schema()
        .fields()
        .iter()
        .enumerate()
        .map(|(number, _)| OutputField::from_encoder(encoder, number, parts))
        .collect::<Result<_>>()?;
    let spliced = |field: &OutputField| -> Vec<(usize, usize)> {
        let leaves =
            if tiny { 0 } else { field.leaves.as_ref().map_or(0, |_| encoder.leaf_columns()[field.number].len()) };
        (0..leaves).map(|leaf| (field.number, leaf)).collect()
    };
    let mut tasks: Vec<(usize, usize)> = fields.iter().flat_map(spliced).collect();
    // The largest first: if it started last, it would keep one thread busy while the others are idle.
    tasks.sort_by_cached_key(|(field, leaf)| Reverse(fields[*field].column_bytes(*leaf, parts)));
    let mut merged = tasks
        .into_iter()
        .par_bridge()
        .map(|(field, leaf)| Ok(((field, leaf), fields[field].splice_column(encoder, leaf, parts)?)))
        .collect::<Result<Vec<_>>>()?;
    merged.sort_unstable_by_key(|(task, _)| *task);
    let mut done: Vec<Vec<Option<(SplicedChunk, Tally)>>> = fields.iter().map(|_| Vec::new()).collect();
    for ((field, _), chunk) in merged {
        done[field].push(chunk);
    }
    let finished: Vec<Option<(Vec<Encoded>, Tally)>> = done
        .into_par_iter()
        .zip(&fields)
        .with_max_len(1)
        .map(|(chunks, field)| {
            let wanted = encoder.leaf_columns()[field.number].len();
            let chunks: Vec<_> = chunks.into_iter().flatten().collect();
            if chunks.len() == wanted {
                let mut tally = Tally::default();
                let encoded = chunks.into_iter().map(|(chunk, part)| {
                    tally += part;
                    Encoded::Spliced(chunk)
                });
                let encoded = encoded.collect();
                return Ok(Some((encoded, tally)));
            }
            match field.reencode(encoder, parts)? {
                None if tiny => field.splice_all(encoder, parts),
                encoded => Ok(encoded),
            }
        })
        .collect::<Result<_>>()?;
    let (mut columns, mut tally) = (Vec::new(), Tally::default());
    for field in finished {
        let Some((mut encoded, part)) = field else { return Ok(None) };
        columns.append(&mut encoded);
        tally += part;
    }
    let rows = usize::try_from(rows).map_err(|_| Error::internal("a row group has more rows than memory"))?;
    let raw_bytes = parts.iter().map(GroupPart::uncompressed_bytes).sum();
    Ok(Some((RowGroup::from_columns(columns, rows, raw_bytes), tally)))
}

/// A top-level field of the output.
struct OutputField {
    number: usize,
    /// For each part its columns, if they are stored like those of the output.
    leaves: Option<Vec<Range<usize>>>,
}

impl OutputField {
    fn from_encoder(encoder: &ParquetEncoder, number: usize, parts: &[GroupPart]) -> Result<Self> {
        let leaves = &encoder.leaf_columns()[number];
        if encoder.keeps_schema() {
            let first: usize = encoder.leaf_columns()[..number].iter().map(Vec::len).sum();
            let same = parts.iter().map(|_| first..first + leaves.len()).collect();
            return Ok(Self { number, leaves: Some(same) });
        }
        let field = encoder.schema().field(number);
        let mut found = Vec::with_capacity(parts.len());
        for part in parts {
            let Some((_, columns)) = part.source.locate_field(field.name())? else {
                return Ok(Self { number, leaves: None });
            };
            let theirs = part.source.type_of(field.name())?;
            let schema = part.source.metadata.file_metadata().schema_descr();
            let alike = theirs.is_some_and(|theirs| theirs.equals_datatype(field.data_type()))
                && columns.len() == leaves.len()
                && columns.clone().zip(leaves).all(|(theirs, ours)| is_alike(&schema.column(theirs), ours));
            if !alike {
                return Ok(Self { number, leaves: None });
            }
            found.push(columns);
        }
        Ok(Self { number, leaves: Some(found) })
    }

    /// Returns the bytes of a column in all parts.
    fn column_bytes(&self, leaf: usize, parts: &[GroupPart]) -> u64 {
        let leaves = self.leaves.iter().flatten().zip(parts);
        let chunks = leaves.map(|(leaves, part)| part.column_part(leaves.start + leaf).chunk.uncompressed_size());
        chunks.map(|bytes| u64::try_from(bytes).unwrap_or(0)).sum()
    }

    /// Splices one column; `None` if that is not possible.
    fn splice_column(
        &self,
        encoder: &ParquetEncoder,
        leaf: usize,
        parts: &[GroupPart],
    ) -> Result<Option<(SplicedChunk, Tally)>> {
        let Some(leaves) = &self.leaves else { return Ok(None) };
        let column: &ColumnDescPtr = &encoder.leaf_columns()[self.number][leaf];
        let target = Target { column, codec: encoder.codec(), name: name_of(encoder.codec())? };
        let chunks: Vec<Part<'_>> =
            parts.iter().zip(leaves).map(|(part, leaves)| part.column_part(leaves.start + leaf)).collect();
        let Some((mut chunk, tally)) = merge_chunks(&target, &chunks)? else { return Ok(None) };
        chunk.close.bloom_filter = filter_of(column, &chunks)?;
        Ok(Some((chunk, tally)))
    }

    /// Splices all columns.
    fn splice_all(&self, encoder: &ParquetEncoder, parts: &[GroupPart]) -> Result<Option<(Vec<Encoded>, Tally)>> {
        let (mut encoded, mut tally) = (Vec::new(), Tally::default());
        for leaf in 0..encoder.leaf_columns()[self.number].len() {
            let Some((chunk, part)) = self.splice_column(encoder, leaf, parts)? else { return Ok(None) };
            encoded.push(Encoded::Spliced(chunk));
            tally += part;
        }
        Ok(Some((encoded, tally)))
    }

    /// Decodes the field of all parts and encodes it; `None` if its columns have no encoder.
    fn reencode(&self, encoder: &ParquetEncoder, parts: &[GroupPart]) -> Result<Option<(Vec<Encoded>, Tally)>> {
        let field = encoder.schema().field(self.number);
        let schema = Arc::new(Schema::new(vec![field.clone()]));
        let mut tally = Tally::default();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for part in parts {
            let batches = match part.source.locate_field(field.name())? {
                Some((_, columns)) => {
                    let group = part.source.metadata.row_group(part.group);
                    let bytes = |leaf: usize| group.columns().get(leaf).map_or(0, |c| c.compressed_size());
                    let bytes: u64 = columns.map(|leaf| u64::try_from(bytes(leaf)).unwrap_or(0)).sum();
                    tally.reencoded += part.share_of(bytes);
                    part.decode_field(field.name())?
                }
                // All null.
                None => {
                    let rows = usize::try_from(part.row_count()).unwrap_or(usize::MAX);
                    let options = RecordBatchOptions::new().with_row_count(Some(rows));
                    vec![RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?]
                }
            };
            for batch in &batches {
                let cast = cast_to(batch, &schema).map_err(|e| e.at_location(part.source.name.as_str()))?;
                arrays.extend(cast.columns().first().cloned());
            }
        }
        let encoded = encoder.encode_field(self.number, &arrays).map_err(|e| e.in_column(field.name().as_str()))?;
        Ok(encoded.map(|encoded| (encoded, tally)))
    }
}

/// Returns whether pages of one column are valid in the other.
fn is_alike(one: &ColumnDescriptor, other: &ColumnDescriptor) -> bool {
    one.physical_type() == other.physical_type()
        && one.type_length() == other.type_length()
        && one.max_def_level() == other.max_def_level()
        && one.max_rep_level() == other.max_rep_level()
        && one.type_scale() == other.type_scale()
        && logical_type_of(one) == logical_type_of(other)
}

/// Returns the logical type; writers store it in the deprecated form, in the current one, or in both.
fn logical_type_of(column: &ColumnDescriptor) -> Option<LogicalType> {
    if let Some(logical) = column.logical_type_ref() {
        return Some(logical.clone());
    }
    let integer = |bit_width, is_signed| Some(LogicalType::integer(bit_width, is_signed));
    match column.converted_type() {
        ConvertedType::UTF8 => Some(LogicalType::String),
        ConvertedType::DATE => Some(LogicalType::Date),
        ConvertedType::JSON => Some(LogicalType::Json),
        ConvertedType::ENUM => Some(LogicalType::Enum),
        ConvertedType::INT_8 => integer(8, true),
        ConvertedType::INT_16 => integer(16, true),
        ConvertedType::UINT_8 => integer(8, false),
        ConvertedType::UINT_16 => integer(16, false),
        ConvertedType::UINT_32 => integer(32, false),
        ConvertedType::UINT_64 => integer(64, false),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
