//! Leaves out columns of sources whose readers read all of them. Readers of Parquet, delimited text and JSON do that
//! themselves.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::{Field, Fields, Schema, SchemaRef},
};

use super::RecordSource;
use crate::{
    array::origin::Layout,
    error::{Error, Result},
    format::{Parsed, RecordReader, SourceBytes, SplitStream, arrays::Opened},
    record::{PartSizes, Payload, SourcePart, Split},
    scan::InputFormat,
    schema::schema_of,
};

/// Makes a source of rows give only the columns of these names.
pub(super) fn take(source: &mut RecordSource, taken: &[String]) {
    let selects_itself =
        (source.format.is_text() || source.format == InputFormat::Parquet) && source.file.table().is_none();
    if !selects_itself && !source.yields_samples() {
        source.reader = Arc::new(Selected { inner: Arc::clone(&source.reader), taken: taken.to_vec() });
    }
}

/// Reader of some of the columns of another reader.
#[derive(Debug)]
struct Selected {
    inner: Arc<dyn RecordReader>,
    taken: Vec<String>,
}

/// Returns a column of rows by its name.
pub(super) fn column_of(rows: &RecordBatch, field: &Field) -> Result<ArrayRef> {
    let column = rows.column_by_name(field.name()).cloned();
    column.ok_or_else(|| Error::internal("a column is missing").column(field.name().clone()))
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
fn only(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = schema.fields().iter().map(|field| column_of(batch, field)).collect::<Result<_>>()?;
    of_columns(schema, columns, batch.num_rows())
}

impl RecordReader for Selected {
    fn splits<'a>(&'a self, input: SourceBytes<'a>, split_bytes: usize, max_record_bytes: usize) -> SplitStream<'a> {
        self.inner.splits(input, split_bytes, max_record_bytes)
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        self.inner.parts(input, sizes)
    }

    fn splits_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        split_bytes: usize,
        max_record_bytes: usize,
    ) -> SplitStream<'a> {
        self.inner.splits_of(part, input, split_bytes, max_record_bytes)
    }

    fn reads_own_source(&self) -> bool {
        self.inner.reads_own_source()
    }

    fn columns(&self) -> Option<&[String]> {
        self.inner.columns()
    }

    fn arrays(&self) -> Result<Option<Arc<Opened>>> {
        self.inner.arrays()
    }

    fn blank_lines_before(&self) -> u64 {
        self.inner.blank_lines_before()
    }

    fn settle(&self, input: SourceBytes<'_>) -> Result<Option<&'static str>> {
        self.inner.settle(input)
    }

    fn lines_skipped(&self) -> u64 {
        self.inner.lines_skipped()
    }

    fn note(&self) -> Option<String> {
        self.inner.note()
    }

    fn remarks(&self) -> &[String] {
        self.inner.remarks()
    }

    fn rows(&self) -> Option<u64> {
        self.inner.rows()
    }

    fn layout(&self) -> Option<&Layout> {
        self.inner.layout()
    }

    fn constants(&self) -> Result<Option<RecordBatch>> {
        self.inner.constants()
    }

    fn infer(&self, split: &Split) -> Fields {
        self.inner.infer(split)
    }

    fn parse(&self, split: &Split, schema: &SchemaRef) -> Result<Parsed> {
        // Every value fits the type that its own split has for a column that is left out.
        let own = self.inner.infer(split);
        let others = own.iter().filter(|field| !self.taken.contains(field.name()));
        let all: Fields = schema.fields().iter().chain(others).cloned().collect();
        Ok(match self.inner.parse(split, &schema_of(&all))? {
            Parsed::Block(mut block) => {
                if let Payload::Rows(batch) = &block.payload {
                    block.payload = Payload::Rows(only(batch, schema)?);
                }
                Parsed::Block(block)
            }
            mismatch @ Parsed::Mismatch(_) => mismatch,
        })
    }
}
