//! Lengths of the records of a framed shard, without the rest of its sidecar.

use std::sync::Arc;

use arrow::{
    array::{Array, UInt64Array},
    record_batch::RecordBatch,
};
use parquet::arrow::ProjectionMask;

use crate::{
    dataset::table::{self, sealed::Sealed, typed_column},
    error::{Error, Result},
    record::BATCH_ROWS,
    storage::Store,
};

/// Passes the lengths of the records of a shard to `visit`, in order.
///
/// # Errors
/// When the sidecar is missing, damaged, or that of a Parquet shard.
pub fn each_length(store: &Arc<dyn Store>, sidecar: &Sealed, visit: &mut dyn FnMut(&[u64])) -> Result<()> {
    let place = || sidecar.display_location(store.as_ref());
    let builder = table::open_table(store, sidecar)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), ["length"]);
    let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
    let read = || -> Result<()> {
        let mut reader = table::catch_panics(|| builder.build().map_err(table::parquet_error))?;
        while let Some(batch) = table::catch_panics(|| Ok::<Option<RecordBatch>, Error>(reader.next().transpose()?))? {
            let lengths: &UInt64Array = typed_column(&batch, "length")?;
            if lengths.null_count() > 0 {
                return Err(Error::integrity("expected a `length` for every record in a sidecar, found none"));
            }
            visit(lengths.values());
        }
        Ok(())
    };
    read().map_err(|e| table::damage_error(e, "the sidecar is damaged", place()))
}
