//! Encodes a column chunk with the encoding that suits its values.
//!
//! ```text
//! lists --- nested ----> arrays of leaf values, and their positions in the rows (levels)
//! arrays --- column ---> values without nulls, and the positions of the nulls
//! sample of them ------> Plan: which encoding gives the fewest bytes, after compression
//! pages  --- bits / values / dictionary ---> compress ---> page
//! ```
//!
//! A dictionary is used if its entries and the packed indices are smaller than the values themselves. This is predicted
//! from a sample, so that no dictionary is built and then discarded. Otherwise, the other encodings are tried on the
//! sample and compressed: packed differences, byte streams, texts without their prefixes. Only encodings that pyarrow,
//! DuckDB, Polars and Spark read are considered.
//!
//! A chunk has one encoding, and all decisions depend on the values alone. Lists within lists and unusual types are
//! left to the writer of the parquet crate.

mod bits;
mod coded;
mod column;
mod compress;
mod dictionary;
mod job;
mod levels;
mod nested;
mod page;
mod plan;
mod scratch;
mod stats;
mod values;

use ::parquet::schema::types::ColumnDescPtr;
use arrow::{
    array::{Array, ArrayRef},
    datatypes::Field,
};

pub use self::page::{Noted, Repeats, TextChunk};
pub(super) use self::{
    bits::{GROUP, least_run, put_packed, put_run, put_varint, unpack, width_of_all},
    compress::{Compressor, name_of, put_zstd_frame},
    dictionary::{expected_entries, first_last_words},
    job::Options,
    levels::{PAGE_BYTES, PAGE_ROWS},
    page::Chunk,
    plan::index_bytes,
};
pub use self::{
    bits::{put_behind_length, put_even, put_hybrid, put_levels, put_same_levels, width_of},
    page::put_header,
    values::{put_differences, put_texts, put_texts_after_lengths, put_texts_without_prefixes, shared_prefix},
};
use self::{
    column::{ChunkColumn, DenseValues},
    job::Job,
    levels::LevelLayout,
    nested::Leaf,
    plan::{Plan, plan_texts, plan_words},
    scratch::Scratch,
};
use crate::{
    error::{Error, Result},
    record::coded::{is_coded, plain_column},
};

/// Encodes consecutive arrays into one chunk for each of their leaf columns; returns the arrays if their type is not
/// supported here. `inspects_values` states for a column whether its values are examined.
///
/// # Errors
/// When the level of the codec is out of range, or a value or row is too large for a page.
pub(super) fn encode_field(
    field: &Field,
    columns: &[ColumnDescPtr],
    mut arrays: Vec<ArrayRef>,
    options: Options,
    inspects_values: impl Fn(&ColumnDescPtr) -> bool,
) -> Result<Result<Vec<Chunk>, Vec<ArrayRef>>> {
    let plain = |arrays: Vec<ArrayRef>| arrays.iter().map(plain_column).collect::<Result<Vec<_>>>();
    let coded = arrays.iter().filter(|array| is_coded(array.data_type())).count();
    if coded > 0 && coded < arrays.len() {
        arrays = plain(arrays)?;
    }
    let mut leaves = leaves_of(field, columns, &arrays, options);
    if leaves.is_none() && coded > 0 {
        arrays = plain(arrays)?;
        leaves = leaves_of(field, columns, &arrays, options);
    }
    let Some(leaves) = leaves else { return Ok(Err(arrays)) };
    // Each array is dropped as soon as it is encoded.
    drop(arrays);
    let mut scratch = Scratch::take_local();
    // Metadata of a chunk are large, and a collected result would have room for four.
    let mut chunks = Vec::with_capacity(leaves.len());
    for (leaf, column) in leaves.into_iter().zip(columns) {
        let inspects_values = options.inspects_values && inspects_values(column);
        chunks.push(encode_leaf(&mut scratch, column, leaf, Options { inspects_values, ..options })?);
    }
    scratch.put_back();
    Ok(Ok(chunks))
}

/// Returns the leaf columns of a field, if they are supported here.
fn leaves_of(field: &Field, columns: &[ColumnDescPtr], arrays: &[ArrayRef], options: Options) -> Option<Vec<Leaf>> {
    if arrays.is_empty() || columns.is_empty() {
        return None;
    }
    let leaves = match columns {
        [column] if !field.data_type().is_nested() && column.max_rep_level() == 0 && column.max_def_level() <= 1 => {
            let rows = arrays.iter().map(|array| array.len()).sum();
            vec![Leaf { layout: LevelLayout::flat(rows, column.max_def_level() == 1), arrays: arrays.to_vec() }]
        }
        _ if options.nested => nested::field_leaves(field, arrays)?,
        _ => return None,
    };
    let fits = |(leaf, column): (&Leaf, &ColumnDescPtr)| {
        let (definition, repetition) = (i16::from(leaf.layout.max_level), i16::from(leaf.layout.repeats));
        // A null in a non-nullable column is reported by the general writer.
        let allowed =
            |array: &ArrayRef| leaf.layout.nullable || leaf.layout.levels.is_some() || array.logical_null_count() == 0;
        (column.max_def_level(), column.max_rep_level()) == (definition, repetition)
            && leaf.arrays.iter().all(|array| {
                column::supports_type(array.data_type(), column) && allowed(array) && !column::is_too_long(array)
            })
    };
    (leaves.len() == columns.len() && leaves.iter().zip(columns).all(fits)).then_some(leaves)
}

fn encode_leaf(scratch: &mut Scratch, descr: &ColumnDescPtr, mut leaf: Leaf, options: Options) -> Result<Chunk> {
    if leaf.arrays.iter().any(|array| is_coded(array.data_type())) {
        if let Some(chunk) = coded::encode_coded(scratch, descr, &leaf, options)? {
            return Ok(chunk);
        }
        leaf.arrays = leaf.arrays.iter().map(plain_column).collect::<Result<_>>()?;
    }
    let Leaf { layout, arrays } = leaf;
    let validity = layout.slot_validity().or_else(|| column::merge_validity(&arrays));
    if let Some((values, order)) = column::collect_words(&arrays, descr, scratch) {
        drop(arrays);
        return encode_values(scratch, descr, ChunkColumn { layout: &layout, validity, values, order }, options);
    }
    let Some((values, order)) = column::collect_texts(&arrays, scratch) else {
        return Err(Error::internal(format!("expected values that can be encoded, found others in {}", descr.path())));
    };
    encode_values(scratch, descr, ChunkColumn { layout: &layout, validity, values, order }, options)
}

fn encode_values(
    scratch: &mut Scratch,
    descr: &ColumnDescPtr,
    column: ChunkColumn<'_>,
    options: Options,
) -> Result<Chunk> {
    let mut compressor = scratch.take_compressor(options.codec)?;
    let plan = match &column.values {
        DenseValues::Narrow(values) => plan_words(values, column.order, &mut compressor)?,
        DenseValues::Wide(values) => plan_words(values, column.order, &mut compressor)?,
        DenseValues::Bytes(values) if options.inspects_values => plan_texts(values, &mut compressor)?,
        DenseValues::Bits(_) | DenseValues::Bytes(_) => Plan::plain(),
    };
    compressor.set_search(plan.search)?;
    let job = Job { column: &column, plan, descr, options };
    let (chunk, compressor, packed) = match &column.values {
        DenseValues::Narrow(values) => job.write_words(values, compressor, scratch),
        DenseValues::Wide(values) => job.write_words(values, compressor, scratch),
        DenseValues::Bits(values) => job.write_bits(values, compressor, scratch),
        DenseValues::Bytes(values) => job.write_texts(values, compressor, scratch),
    }?;
    scratch.keep_compressor(options.codec, compressor);
    scratch.packed = packed;
    scratch.take_back(column.values);
    Ok(chunk)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
