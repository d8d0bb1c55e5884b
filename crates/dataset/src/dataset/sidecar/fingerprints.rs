//! Fingerprints of records in sidecars: an optional column, of which records that were added without them have nulls.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, FixedSizeBinaryArray, RecordBatch, StringArray, new_null_array},
    compute::concat,
    datatypes::DataType,
};
use parquet::arrow::ProjectionMask;

use super::sidecar_schema;
use crate::{
    dataset::table::{self, sealed::Sealed, typed_column},
    error::{Error, Result},
    record::{BATCH_ROWS, fingerprint::Fingerprint},
    storage::Store,
};

/// Name of the column.
pub(super) const COLUMN: &str = "fingerprint";

/// Bytes of a fingerprint.
pub(super) const BYTES: i32 = 16;

/// Returns the fingerprints of a batch of a sidecar, unless no record has one.
pub(super) fn of_batch(batch: &RecordBatch) -> Result<Option<FixedSizeBinaryArray>> {
    let Some(_) = batch.column_by_name(COLUMN) else { return Ok(None) };
    let array: &FixedSizeBinaryArray = typed_column(batch, COLUMN)?;
    Ok((array.null_count() < array.len()).then(|| array.clone()))
}

/// Concatenates fingerprints, each given with the number of its rows.
pub(super) fn join_arrays(parts: Vec<(Option<&FixedSizeBinaryArray>, usize)>) -> Result<Option<FixedSizeBinaryArray>> {
    if parts.iter().all(|(array, _)| array.is_none()) {
        return Ok(None);
    }
    let nulls = |rows| new_null_array(&DataType::FixedSizeBinary(BYTES), rows);
    let filled: Vec<Arc<dyn Array>> = parts
        .into_iter()
        .map(|(array, rows)| array.map_or_else(|| nulls(rows), |array| Arc::new(array.clone()) as Arc<dyn Array>))
        .collect();
    let joined = concat(&filled.iter().map(AsRef::as_ref).collect::<Vec<_>>())?;
    Ok(Some(joined.as_fixed_size_binary().clone()))
}

/// Returns a batch of a sidecar with the column, or without it.
///
/// # Errors
/// When the batch is not one of a sidecar.
pub fn with_fingerprints(batch: &RecordBatch, fingerprints: bool) -> Result<RecordBatch> {
    let schema = sidecar_schema(fingerprints);
    let own = |name: &String| batch.column_by_name(name).map(Arc::clone);
    let missing = || Error::integrity("expected the columns of a sidecar, found others");
    let columns = schema.fields().iter().map(|field| match own(field.name()) {
        Some(column) => Ok(column),
        None if field.name() == COLUMN => Ok(new_null_array(field.data_type(), batch.num_rows())),
        None => Err(missing()),
    });
    let columns = columns.collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// What identifies a record among duplicates, as its row in a sidecar states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordIdentity<'a> {
    /// Its fingerprint; `None` if it was added without one.
    Fingerprint(Option<&'a Fingerprint>),
    /// Its record id as stored; `None` if that is its origin.
    Id(Option<&'a str>),
}

/// Passes the fingerprint, or the record id, of each row of a sidecar to `visit`, in order; other columns are not read.
///
/// # Errors
/// When the sidecar is missing or damaged; those of `visit`.
pub fn each_known(
    store: &Arc<dyn Store>,
    sidecar: &Sealed,
    ids: bool,
    visit: &mut dyn FnMut(RecordIdentity<'_>) -> Result<()>,
) -> Result<()> {
    let damaged = |e: Error| table::damage_error(e, "the sidecar is damaged", sidecar.display_location(store.as_ref()));
    let builder = table::open_table(store, sidecar)?;
    let name = if ids || builder.schema().column_with_name(COLUMN).is_none() { "record_id" } else { COLUMN };
    let mask = ProjectionMask::columns(builder.parquet_schema(), [name]);
    let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
    let mut reader = table::catch_panics(|| builder.build().map_err(table::parquet_error)).map_err(damaged)?;
    while let Some(batch) = table::catch_panics(|| Ok::<_, Error>(reader.next().transpose()?)).map_err(damaged)? {
        if ids {
            let texts: &StringArray = typed_column(&batch, name).map_err(damaged)?;
            texts.iter().try_for_each(|id| visit(RecordIdentity::Id(id)))?;
        } else if name == COLUMN {
            let array: &FixedSizeBinaryArray = typed_column(&batch, name).map_err(damaged)?;
            array
                .iter()
                .try_for_each(|value| visit(RecordIdentity::Fingerprint(value.and_then(<[u8]>::first_chunk))))?;
        } else {
            (0..batch.num_rows()).try_for_each(|_| visit(RecordIdentity::Fingerprint(None)))?;
        }
    }
    Ok(())
}
