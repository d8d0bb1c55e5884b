//! Rows of Parquet shards, with the columns of batches.

use std::ops::Range;

use arrow::{
    array::{Array as _, ArrayData, ArrayRef, MutableArrayData, RecordBatch, make_array},
    compute::concat_batches,
    datatypes::SchemaRef,
};

use crate::{
    error::{Error, Result},
    format::parquet::{ParquetFile, cast_to},
    storage::Object,
};

/// Rows from which on the space that the decoder reserves does not matter.
const SPACIOUS_ROWS: usize = 4096;

/// Reads ranges of rows, which are in order and do not overlap. `complete` means that all columns are loaded: another
/// one in the shard is an error.
pub(super) fn read_rows(
    file: ParquetFile<Object>,
    ranges: &[Range<u64>],
    schema: &SchemaRef,
    complete: bool,
) -> Result<RecordBatch> {
    let unknown =
        file.schema().fields().iter().find(|field| complete && schema.column_with_name(field.name()).is_none());
    if let Some(field) = unknown {
        return Err(Error::usage("expected the columns of other shards, found another one")
            .in_column(field.name().clone())
            .with_hint("name the columns to load"));
    }
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let count: u64 = ranges.iter().map(|rows| rows.end.saturating_sub(rows.start)).sum();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let batches = file.with_columns(&names).with_rows(ranges).into_batches(count);
    let batches: Vec<RecordBatch> = batches.collect::<Result<_>>()?;
    let found = match batches.as_slice() {
        [] => RecordBatch::new_empty(SchemaRef::clone(schema)),
        [one] => one.clone(),
        [first, ..] => concat_batches(first.schema_ref(), &batches)?,
    };
    if found.num_rows() != count {
        let (start, end) = (ranges.first().map_or(0, |rows| rows.start), ranges.last().map_or(0, |rows| rows.end));
        let message = format!("expected {count} rows from {start} to {end}, found {} of them", found.num_rows());
        return Err(Error::integrity(message));
    }
    let found = cast_to(&found, schema)?;
    if count >= SPACIOUS_ROWS {
        return Ok(found);
    }
    let mut columns = found.columns().to_vec();
    drop(found);
    columns.iter_mut().for_each(|column| column.shrink_to_fit());
    Ok(RecordBatch::try_new(SchemaRef::clone(schema), columns)?)
}

/// Copies ranges of rows, one after the other, into memory of their own.
pub(super) fn copy_rows(ranges: &[(&RecordBatch, Range<usize>)], schema: &SchemaRef) -> Result<RecordBatch> {
    let mut batches: Vec<&RecordBatch> = Vec::new();
    let mut places = Vec::with_capacity(ranges.len());
    for (batch, rows) in ranges {
        if !batches.last().is_some_and(|last| std::ptr::eq(*last, *batch)) {
            batches.push(*batch);
        }
        places.push((batches.len() - 1, rows.clone()));
    }
    let count = ranges.iter().map(|(_, rows)| rows.len()).sum();
    let column = |at: usize| -> Result<ArrayRef> {
        let data: Vec<ArrayData> = batches.iter().map(|batch| batch.column(at).to_data()).collect();
        let mut copied = MutableArrayData::new(data.iter().collect(), false, count);
        places.iter().try_for_each(|(batch, rows)| copied.try_extend(*batch, rows.start, rows.end))?;
        Ok(make_array(copied.freeze()))
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(SchemaRef::clone(schema), columns)?)
}
