//! Converts columns to the types that the user specified, for sources that have types of their own: values that the
//! given type represents exactly are converted, and rows with other values are rejected.
//!
//! Readers of delimited text and JSON parse the given types themselves, because they know the text of each value.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions},
    compute::filter_record_batch,
    datatypes::{FieldRef, Fields, SchemaRef},
};
use bytes::Bytes;

use crate::{
    error::Result,
    format::{Parsed, RecordReader, TypeMismatch},
    record::{
        Payload, RecordBlock, Reject, SourceRange,
        json::{RowJson, shorten_text},
        typed,
        widen::ValueMismatch,
    },
    schema::{ByName, file::print_type, schema_of},
};

/// Parses a range into rows with the columns of `schema`; the columns named in `given` have other types in the source.
///
/// # Errors
/// Fails like [`RecordReader::parse`].
pub(super) fn parse_given(
    reader: &dyn RecordReader,
    range: &SourceRange,
    schema: &SchemaRef,
    given: &[String],
) -> Result<Parsed> {
    let own = schema_of(&reader.infer(range));
    let own = ByName::new(own.fields());
    let stated = |field: &FieldRef| match own.find(field.name()) {
        Some((_, own)) if given.contains(field.name()) => Arc::clone(own),
        _ => Arc::clone(field),
    };
    let requested = schema_of(&schema.fields().iter().map(stated).collect::<Fields>());
    if requested.fields() == schema.fields() {
        return reader.parse(range, schema);
    }
    let mut block = match reader.parse(range, &requested)? {
        Parsed::Block(block) => block,
        mismatch @ Parsed::Mismatch(_) => return Ok(mismatch),
    };
    let Payload::Rows(source) = &block.payload else { return Ok(Parsed::Block(block)) };
    let source = source.clone();
    let (rows, rejected) = match convert_rows(&source, schema)? {
        Ok(converted) => converted,
        Err(ValueMismatch { column, row, value, expected, .. }) => {
            return Ok(Parsed::Mismatch(TypeMismatch { column, line: row as u64, byte: 0, value, expected }));
        }
    };
    block.payload = Payload::Rows(rows);
    reject_rows(&mut block, &source, &rejected, range)?;
    Ok(Parsed::Block(block))
}

/// A value that its column cannot represent: row, column, and the reason.
type Bad = (usize, String, String);

fn convert_rows(rows: &RecordBatch, schema: &SchemaRef) -> Result<Result<(RecordBatch, Vec<Bad>), ValueMismatch>> {
    let mut rejected = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(rows.num_columns());
    let mismatch = |error: ValueMismatch, from, to| ValueMismatch {
        value: if error.by_value { error.value } else { print_type(from) },
        expected: typed::describe_type(to),
        ..error
    };
    for ((array, from), to) in rows.columns().iter().zip(rows.schema_ref().fields()).zip(schema.fields()) {
        let (array, bad) = match typed::convert_column(array, from, to)? {
            Ok(converted) => converted,
            Err(error) => return Ok(Err(mismatch(error, from, to))),
        };
        columns.push(array);
        rejected.extend(bad.into_iter().map(|(row, value)| {
            let reason = format!("expected {}, found `{}`", typed::describe_type(to), shorten_text(&value));
            (row, to.name().clone(), reason)
        }));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(Ok((RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?, rejected)))
}

/// Turns rows into rejects with their content as in the source; if a row has several bad values, the first one is
/// reported.
fn reject_rows(block: &mut RecordBlock, source: &RecordBatch, rejected: &[Bad], range: &SourceRange) -> Result<()> {
    let Payload::Rows(rows) = &block.payload else { return Ok(()) };
    if rejected.is_empty() {
        return Ok(());
    }
    let rows = rows.clone();
    block.expand_numbers();
    let mut keep = vec![true; rows.num_rows()];
    let json = RowJson::new(source);
    for (row, column, reason) in rejected {
        if !std::mem::replace(&mut keep[*row], false) {
            continue;
        }
        let mut raw = Vec::new();
        json.write_row(*row, &mut raw);
        block.rejects.push(Reject {
            row: block.rows[*row],
            line: 0,
            byte: range.offset,
            column: Some(column.clone()),
            reason: reason.clone(),
            raw: Bytes::from(raw),
        });
    }
    block.rejects.sort_by_key(|reject| reject.row);
    let mut kept = keep.iter();
    block.hashes.retain(|_| kept.next() == Some(&true));
    let mut kept = keep.iter();
    block.rows.retain(|_| kept.next() == Some(&true));
    block.payload = Payload::Rows(filter_record_batch(&rows, &BooleanArray::from(keep))?);
    Ok(())
}
