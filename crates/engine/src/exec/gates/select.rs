//! Omits the rows that do not satisfy a condition, and the columns that only the condition needed.
//!
//! It is the first gate behind the parser, so that a row which does not match counts as filtered whatever else is the
//! matter with it, and skipping a group of rows by its bounds changes no count.

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{Schema, SchemaRef},
};

use super::{Gate, GatedBlock};
use crate::{
    error::Result,
    exec::source::SourceFacts,
    format::RecordReader,
    record::{Payload, RecordBlock, SourceRange, filter::BoundFilter},
};

/// Filter behind the parser that selects rows and columns.
#[derive(Debug)]
pub struct SelectGate {
    /// Condition on rows; `None` if all are kept.
    pub filter: Option<BoundFilter>,
    /// Schema of the rows that are kept: the first columns of those that are read.
    pub carried: SchemaRef,
    /// Whether rows that cannot satisfy the condition need not be read: not if some may be rejected because of the
    /// types that the user gave.
    pub prunes: bool,
}

impl Gate for SelectGate {
    fn prune_range(&self, reader: &dyn RecordReader, range: &SourceRange) -> Option<RecordBlock> {
        let filter = self.filter.as_ref().filter(|_| self.prunes)?;
        let bounds =
            reader.bounds(range).filter(|bounds| range.row_count().is_some() && !filter.may_match_some(bounds))?;
        let payload = Payload::Rows(RecordBatch::new_empty(Arc::clone(&self.carried)));
        Some(RecordBlock { payload, bytes_in: range.bytes_in(), deleted: bounds.deleted, ..RecordBlock::empty() })
    }

    fn pass_block(&self, gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        let Payload::Rows(rows) = &gated.block.payload else { return Ok(()) };
        let kept = self.filter.as_ref().map(|filter| filter.matching_rows(rows)).transpose()?;
        gated.block.payload = Payload::Rows(first_columns(rows, self.carried.fields().len())?);
        if let Some(kept) = kept {
            gated.effects.filtered += gated.retain_records(&kept)?;
        }
        Ok(())
    }
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
