//! Omits columns of sources whose readers read all of them; most readers do that themselves.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::{Field, Fields, Schema, SchemaRef},
};

use super::source::RecordSource;
use crate::{
    error::{Error, Result},
    format::{
        Parsed, RecordReader,
        adapted::{Adapted, Adapter},
    },
    record::{Payload, SourceRange},
    schema::schema_of,
};

/// Makes a source of rows give only the columns of these names.
pub(super) fn select_columns(source: &mut RecordSource, taken: &[String]) {
    let mut facts = source.reader.facts().clone();
    if !facts.selects_columns && !source.yields_samples() {
        facts.units.retain(|(column, _)| taken.contains(column));
        source.reader = Arc::new(Adapted::new(Arc::clone(&source.reader), facts, Selected { taken: taken.to_vec() }));
    }
}

/// Takes some of the columns of a reader.
#[derive(Debug)]
struct Selected {
    taken: Vec<String>,
}

/// Returns a column of rows by its name.
pub(super) fn column_of(rows: &RecordBatch, field: &Field) -> Result<ArrayRef> {
    let column = rows.column_by_name(field.name()).cloned();
    column.ok_or_else(|| Error::internal("a column is missing").in_column(field.name().clone()))
}

/// Returns rows of the columns of a schema; coded columns keep their types, which encoders look at.
pub(super) fn of_columns(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let typed =
        |(field, column): (&Arc<Field>, &ArrayRef)| field.as_ref().clone().with_data_type(column.data_type().clone());
    let fields: Fields = schema.fields().iter().zip(&columns).map(typed).collect();
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    let number = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &number)?)
}

/// Returns the rows with the columns of `schema` alone.
fn project_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = schema.fields().iter().map(|field| column_of(batch, field)).collect::<Result<_>>()?;
    of_columns(schema, columns, batch.num_rows())
}

impl Adapter for Selected {
    fn parse(&self, inner: &dyn RecordReader, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        // Every value fits the type that its own range has for a column that is omitted.
        let own = inner.infer(range);
        let others = own.iter().filter(|field| !self.taken.contains(field.name()));
        let all: Fields = schema.fields().iter().chain(others).cloned().collect();
        Ok(match inner.parse(range, &schema_of(&all))? {
            Parsed::Block(mut block) => {
                if let Payload::Rows(batch) = &block.payload {
                    block.payload = Payload::Rows(project_batch(batch, schema)?);
                }
                Parsed::Block(block)
            }
            mismatch @ Parsed::Mismatch(_) => mismatch,
        })
    }
}
