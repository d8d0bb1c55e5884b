//! Leaves out the rows that do not satisfy a condition, and the columns that only the condition needed.
//!
//! It is the first gate behind the parser, so that a row which does not match counts as filtered whatever else is the
//! matter with it, and skipping a group of rows by its bounds changes no count.

use std::sync::Arc;

use arrow::{
    array::{BooleanArray, RecordBatch, RecordBatchOptions},
    compute::filter_record_batch,
    datatypes::{Schema, SchemaRef},
};

use crate::{
    error::Result,
    format::RecordReader,
    record::{Payload, RecordBlock, Split, filter::BoundFilter},
};

/// Filter behind the parser that selects rows and columns.
#[derive(Debug)]
pub struct SelectGate {
    /// Condition on rows; `None` if all are kept.
    pub filter: Option<BoundFilter>,
    /// Schema of the rows that are kept: the first columns of those that are read.
    pub carried: SchemaRef,
}

impl SelectGate {
    /// Returns an empty block in place of a split of which no row can satisfy the condition; `None` if its rows have to
    /// be read, as they have to if some may be rejected because of the types that the user gave.
    pub fn pruned(&self, reader: &dyn RecordReader, split: &Split, given: &[String]) -> Option<RecordBlock> {
        let filter = self.filter.as_ref().filter(|_| given.is_empty())?;
        let bounds = reader.bounds(split).filter(|bounds| split.rows().is_some() && !filter.may_match_some(bounds))?;
        let payload = Payload::Rows(RecordBatch::new_empty(Arc::clone(&self.carried)));
        Some(RecordBlock { payload, bytes_in: split.bytes_in(), deleted: bounds.deleted, ..RecordBlock::empty() })
    }

    /// Returns the block without the rows and columns that are left out, and the number of these rows.
    ///
    /// # Errors
    /// When a tested column is missing.
    pub fn pass(&self, mut block: RecordBlock) -> Result<(RecordBlock, u64)> {
        let Payload::Rows(rows) = &block.payload else { return Ok((block, 0)) };
        let before = rows.num_rows();
        let kept = self.filter.as_ref().map(|filter| filter.matches(rows)).transpose()?;
        let rows = first_columns(rows, self.carried.fields().len())?;
        let Some(kept) = kept.filter(|kept| kept.true_count() < before) else {
            block.payload = Payload::Rows(rows);
            return Ok((block, 0));
        };
        block.expand();
        retain(&mut block.rows, &kept);
        retain(&mut block.hashes, &kept);
        block.payload = Payload::Rows(filter_record_batch(&rows, &kept)?);
        Ok((block, (before - kept.true_count()) as u64))
    }
}

fn retain<T>(values: &mut Vec<T>, kept: &BooleanArray) {
    let mut flags = kept.values().iter();
    values.retain(|_| flags.next().unwrap_or(true));
}

/// Returns the first columns of some rows. Coded columns keep their types.
fn first_columns(rows: &RecordBatch, count: usize) -> Result<RecordBatch> {
    if rows.num_columns() <= count {
        return Ok(rows.clone());
    }
    let schema = rows.schema_ref();
    let fields = schema.fields()[..count].to_vec();
    let number = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    Ok(RecordBatch::try_new_with_options(schema, rows.columns()[..count].to_vec(), &number)?)
}
