//! Common part of readers of typed sources, whose rows arrive decoded and are only cast to the schema.

use arrow::{array::RecordBatch, datatypes::SchemaRef};

use super::{Parsed, TypeMismatch};
use crate::{
    error::Result,
    record::{
        Payload, RecordBlock, SourceRange,
        hash::row_hashes,
        widen::{ValueMismatch, try_cast_to},
    },
};

/// Converts rows of a range from the types of their source to the columns of `schema`. `bytes` is the size that they
/// represent.
pub(super) fn parsed_rows(rows: &RecordBatch, range: &SourceRange, schema: &SchemaRef, bytes: u64) -> Result<Parsed> {
    parsed_with(range.hashes_if_needed(rows.num_rows(), || row_hashes(rows)), rows, schema, bytes)
}

/// Like [`parsed_rows`], for rows with known hashes.
pub(super) fn parsed_with(hashes: Vec<u64>, rows: &RecordBatch, schema: &SchemaRef, bytes: u64) -> Result<Parsed> {
    Ok(match try_cast_to(rows, schema)? {
        Err(ValueMismatch { column, row, value, expected, .. }) => {
            Parsed::Mismatch(TypeMismatch { column, line: row as u64, byte: 0, value, expected })
        }
        Ok(batch) => Parsed::Block(RecordBlock {
            rows: (0..).take(batch.num_rows()).collect(),
            payload: Payload::Rows(batch),
            hashes,
            bytes_in: bytes,
            ..RecordBlock::empty()
        }),
    })
}
