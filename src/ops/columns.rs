//! Columns whose values can be described one by one: members of structs are columns of their own.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StructArray, make_array},
    buffer::NullBuffer,
    compute::cast,
    datatypes::{DataType, Field, FieldRef},
};

use crate::error::Result;

/// A column of a batch.
pub(super) struct FlatColumn {
    /// Name; of members of structs, a path with dots.
    pub(super) name: String,
    /// Its field.
    pub(super) field: FieldRef,
    /// Its values: a member is null where its struct is.
    pub(super) values: ArrayRef,
}

/// Returns the columns of a batch: structs are flattened, and dictionaries replaced by their values.
pub(super) fn flat_columns(batch: &RecordBatch) -> Result<Vec<FlatColumn>> {
    let mut out = Vec::new();
    for (field, values) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        add(field.name(), field, values, &mut out)?;
    }
    Ok(out)
}

fn add(name: &str, field: &FieldRef, values: &ArrayRef, out: &mut Vec<FlatColumn>) -> Result<()> {
    match values.data_type() {
        DataType::Struct(_) => {
            let parts: &StructArray = values.as_struct();
            for (field, part) in parts.fields().iter().zip(parts.columns()) {
                let part = match NullBuffer::union(parts.nulls(), part.nulls()) {
                    Some(nulls) if !matches!(part.data_type(), DataType::Null) => {
                        make_array(part.to_data().into_builder().nulls(Some(nulls)).build()?)
                    }
                    _ => Arc::clone(part),
                };
                add(&format!("{name}.{}", field.name()), field, &part, out)?;
            }
        }
        DataType::Dictionary(_, plain) => {
            let field = Field::new(field.name(), plain.as_ref().clone(), field.is_nullable());
            add(name, &Arc::new(field.clone()), &cast(values, field.data_type())?, out)?;
        }
        _ => out.push(FlatColumn { name: name.to_owned(), field: Arc::clone(field), values: Arc::clone(values) }),
    }
    Ok(())
}

/// Returns numbers, dates and times as floating-point numbers: dates and times in the unit of their type.
pub(super) fn as_number(values: &ArrayRef) -> Result<ArrayRef> {
    let whole = match values.data_type() {
        DataType::Date32 | DataType::Time32(_) => cast(values, &DataType::Int32)?,
        kind if kind.is_temporal() => cast(values, &DataType::Int64)?,
        _ => Arc::clone(values),
    };
    Ok(cast(&whole, &DataType::Float64)?)
}
