//! One batch of the batches that several datasets have in a step.

use std::sync::Arc;

use arrow::{array::RecordBatch, compute::concat_batches, datatypes::Schema, error::ArrowError};

use super::gather::LoadedBatch;
use crate::error::{Error, Result};

/// Joins batches, one after the other, into memory of their own. The epoch and the step are those of the first.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if their columns differ in name or type, or if there is no batch.
pub fn join_batches(batches: &[LoadedBatch]) -> Result<LoadedBatch> {
    let [first, others @ ..] = batches else { return Err(Error::usage("expected one batch or more, found none")) };
    let schema = first.columns.schema();
    if let Some(other) = others.iter().find(|batch| !has_same_columns(&schema, &batch.columns.schema())) {
        let (expected, found) = (columns_of(&schema), columns_of(&other.columns.schema()));
        return Err(Error::usage(format!("expected the columns {expected}, found {found}")));
    }
    // What differs may be notes beside the fields, which the first batch then has for all.
    let same = |batch: &LoadedBatch| RecordBatch::try_new(Arc::clone(&schema), batch.columns.columns().to_vec());
    let columns = batches.iter().map(same).collect::<std::result::Result<Vec<_>, ArrowError>>()?;
    Ok(LoadedBatch {
        epoch: first.epoch,
        step: first.step,
        expected: batches.iter().map(|batch| batch.expected).sum(),
        numbers: batches.iter().flat_map(|batch| batch.numbers.iter().copied()).collect(),
        positions: batches.iter().flat_map(|batch| batch.positions.iter().copied()).collect(),
        columns: concat_batches(&schema, &columns)?,
    })
}

fn has_same_columns(one: &Schema, other: &Schema) -> bool {
    let fields =
        |schema: &Schema| schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect::<Vec<_>>();
    fields(one) == fields(other)
}

fn columns_of(schema: &Schema) -> String {
    schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect::<Vec<_>>().join(", ")
}
