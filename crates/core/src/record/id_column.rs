//! The ids of rows: the texts of one column, or of several joined by commas.

use arrow::{
    array::{Array as _, ArrayRef, RecordBatch, StringArray, StringBuilder},
    datatypes::DataType,
};

use super::{coded::plain_column, json::text_of, path::column_at};
use crate::error::{Error, Result};

/// Returns the text of an id column. Several columns are joined with `,`, and one null part makes the id null. Also
/// used to read ids from Parquet shards.
///
/// # Errors
/// Fails if the batch lacks a column, or values have no plain text.
pub fn id_column(batch: &RecordBatch, columns: &[String]) -> Result<StringArray> {
    let parts: Vec<StringArray> = columns
        .iter()
        .map(|name| {
            let column = column_at(batch, name)?
                .ok_or_else(|| Error::internal("an id column is not in the records").in_column(name.clone()))?;
            text_column(&column, name)
        })
        .collect::<Result<_>>()?;
    if let [one] = parts.as_slice() {
        return Ok(one.clone());
    }
    let mut out = StringBuilder::new();
    for row in 0..batch.num_rows() {
        if parts.iter().any(|p| p.is_null(row)) {
            out.append_null();
            continue;
        }
        let id: Vec<&str> = parts.iter().map(|p| p.value(row)).collect();
        out.append_value(id.join(","));
    }
    Ok(out.finish())
}

fn text_column(column: &ArrayRef, name: &str) -> Result<StringArray> {
    let column = &plain_column(column)?;
    if let Some(text) = column.as_any().downcast_ref::<StringArray>() {
        return Ok(text.clone());
    }
    if matches!(column.data_type(), DataType::List(_) | DataType::Struct(_)) {
        return Err(Error::usage("expected a column of plain values for ids, found nested ones").in_column(name));
    }
    Ok((0..column.len()).map(|row| text_of(column.as_ref(), row)).collect())
}
