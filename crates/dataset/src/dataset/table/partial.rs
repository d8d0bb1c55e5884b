//! A table of which consecutive rows are read many times: its footer is read and checked once.

use std::{ops::Range, sync::Arc};

use arrow::{array::RecordBatch, compute::concat_batches};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
        },
    },
    file::metadata::PageIndexPolicy,
};

use super::{catch_panics, damage_error, parquet_error, sealed::Sealed, sealed::open_sealed};
use crate::{
    error::{Error, Result},
    storage::{Object, Store},
};

/// A table whose footer was read.
#[derive(Debug)]
pub(in crate::dataset) struct PartialTable {
    object: Object,
    metadata: ArrowReaderMetadata,
    /// What the table is, for messages about damage.
    damage: &'static str,
    place: String,
}

impl PartialTable {
    /// Reads the footer and the page index; `damage` is the message if something is wrong with the table.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub(in crate::dataset) fn open(store: &Arc<dyn Store>, table: &Sealed, damage: &'static str) -> Result<Self> {
        let place = table.display_location(store.as_ref());
        let object = open_sealed(store, table)?;
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = catch_panics(|| ArrowReaderMetadata::load(&object, options).map_err(parquet_error))
            .map_err(|e| damage_error(e, damage, place.clone()))?;
        Ok(Self { object, metadata, damage, place })
    }

    /// Returns a value of the footer's metadata.
    pub(in crate::dataset) fn metadata_value(&self, key: &str) -> Option<&str> {
        let pairs = self.metadata.metadata().file_metadata().key_value_metadata();
        pairs.into_iter().flatten().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref())
    }

    /// Returns the number of rows.
    pub(in crate::dataset) fn row_count(&self) -> u64 {
        u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Returns the error for damage of the table.
    pub(in crate::dataset) fn damage_error(&self, error: Error) -> Error {
        damage_error(error, self.damage, self.place.clone())
    }

    /// Returns some columns of consecutive rows; only pages with such rows are read.
    ///
    /// # Errors
    /// When the table is damaged, shorter, or lacks a column.
    pub(in crate::dataset) fn read_rows(&self, columns: &[&str], rows: Range<u64>) -> Result<RecordBatch> {
        catch_panics(|| self.decode_rows(columns, &rows)).map_err(|e| self.damage_error(e))
    }

    fn decode_rows(&self, columns: &[&str], rows: &Range<u64>) -> Result<RecordBatch> {
        let length = |rows: u64| usize::try_from(rows).map_err(|_| Error::integrity("expected fewer rows"));
        let (mut groups, mut selectors, mut at) = (Vec::new(), Vec::new(), 0_u64);
        for (number, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let end = at.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
            if at < rows.end && rows.start < end {
                let (first, last) = (rows.start.max(at), rows.end.min(end));
                groups.push(number);
                selectors.push(RowSelector::skip(length(first - at)?));
                selectors.push(RowSelector::select(length(last - first)?));
                selectors.push(RowSelector::skip(length(end - last)?));
            }
            at = end;
        }
        let wanted = rows.end.saturating_sub(rows.start);
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.object.clone(), self.metadata.clone());
        let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
        let builder = builder.with_projection(mask).with_row_groups(groups);
        let builder = builder.with_row_selection(RowSelection::from(selectors)).with_batch_size(length(wanted.max(1))?);
        let reader = builder.build().map_err(parquet_error)?;
        let schema = parquet_schema_of(&reader);
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.map_err(Error::from)).collect::<Result<_>>()?;
        let found = match batches.as_slice() {
            [one] => one.clone(),
            some => concat_batches(&schema, some)?,
        };
        if found.num_rows() as u64 == wanted && found.num_columns() == columns.len() {
            return Ok(found);
        }
        let Range { start, end } = rows;
        Err(Error::integrity(format!("expected rows {start} to {end}, found {} of them", found.num_rows())))
    }
}

fn parquet_schema_of(reader: &dyn arrow::array::RecordBatchReader) -> arrow::datatypes::SchemaRef {
    reader.schema()
}
