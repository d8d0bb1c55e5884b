//! What readers of typed sources have in common: rows that come decoded, and only have to be brought to the schema.

use arrow::{array::RecordBatch, datatypes::SchemaRef};

use super::{Misfit, Parsed};
use crate::{
    error::Result,
    record::{
        Payload, RecordBlock,
        hash::row_hashes,
        widen::{Unfit, cast_or_unfit},
    },
};

/// Rows of a split in the types of their source, as rows with the columns of `schema`. `bytes` is what they stand for.
pub(super) fn parsed(rows: &RecordBatch, schema: &SchemaRef, bytes: u64) -> Result<Parsed> {
    parsed_with(row_hashes(rows), rows, schema, bytes)
}

/// The same for rows whose hashes are known.
pub(super) fn parsed_with(hashes: Vec<u64>, rows: &RecordBatch, schema: &SchemaRef, bytes: u64) -> Result<Parsed> {
    Ok(match cast_or_unfit(rows, schema)? {
        Err(Unfit { column, row, value, expected, .. }) => {
            Parsed::Misfit(Misfit { column, line: row as u64, byte: 0, value, expected })
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
