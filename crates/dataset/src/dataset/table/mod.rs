//! Small tables in Parquet: all lists, sidecars and segments are read and written through this module.
//!
//! They are plain Parquet with zstd and statistics, so DuckDB or pandas can query them without shardify.

pub(super) mod beside;
pub(super) mod chunks;
pub(super) mod closed;
mod fault;
pub(super) mod fetch;
pub(super) mod growth;
pub(super) mod list;
pub(super) mod partial;
pub(super) mod paths;
pub(super) mod sealed;

use std::{io::Write, sync::Arc};

use arrow::{
    array::{Array, RecordBatch, new_null_array},
    datatypes::{DataType, FieldRef, Schema, SchemaRef},
};
use bytes::Bytes;
use parquet::{
    arrow::{
        ArrowSchemaConverter, ArrowWriter,
        arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelector},
        arrow_writer::ArrowWriterOptions,
    },
    basic::{Compression, Encoding, ZstdLevel},
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
        writer::SerializedFileWriter,
    },
    schema::types::SchemaDescriptor,
};

use crate::{
    codec::seal::Seal,
    dataset::table::{
        chunks::Chunk,
        list::ListRef,
        sealed::{KEY, Sealed, SealingSink, checked_bytes as checked_sealed, get_sealed, open_sealed},
    },
    error::{Error, Result},
    format::parquet::TableChunk,
    storage::{Object, Staged, Store},
};

pub(super) use self::fault::{catch_panics, damage_error, parquet_error};
/// Rows of a long list held in memory at a time.
pub(in crate::dataset) use crate::record::BATCH_ROWS;

/// Rows per row group in lists: small enough that a lookup reads little.
pub(in crate::dataset) const ROW_GROUP_ROWS: usize = 32_768;

/// Tables of at most so many rows are not compressed: zstd would make them larger, and readers would set up a decoder
/// for each column, which takes longer than to decode it.
const FEW_ROWS: u64 = 64;

/// Writer properties shared by all tables.
pub(in crate::dataset) fn writer_properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_created_by(concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned())
}

/// Columns whose texts are long and differ little: of these, a few rows are worth a decoder.
const LONG: [&str; 4] = ["beside", "path", "shard", "entry"];

/// Rows from which on they are.
const LONG_ROWS: u64 = 8;

/// Omits the compression of a table of few rows, but for long texts, and bounds, by which nobody searches them.
fn suited_to(rows: u64, schema: &Schema, properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
    if rows > FEW_ROWS {
        return properties;
    }
    let plain = properties.set_compression(Compression::UNCOMPRESSED).set_statistics_enabled(EnabledStatistics::None);
    let long = schema.fields().iter().filter(|field| rows >= LONG_ROWS && LONG.contains(&field.name().as_str()));
    long.fold(plain, |properties, field| {
        properties.set_column_compression(field.name().as_str().into(), Compression::ZSTD(ZstdLevel::default()))
    })
}

/// Starts a table. Parquet's own types say all that its readers need, so it does not repeat the schema in Arrow's form.
fn start_writer<W: Write + Send>(sink: W, schema: SchemaRef, properties: WriterProperties) -> Result<ArrowWriter<W>> {
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    ArrowWriter::try_new_with_options(sink, schema, options).map_err(parquet_error)
}

/// Encodes a column of slowly increasing numbers as differences.
pub(in crate::dataset) fn with_delta_encoding(
    properties: WriterPropertiesBuilder,
    column: &str,
) -> WriterPropertiesBuilder {
    properties
        .set_column_dictionary_enabled(column.into(), false)
        .set_column_encoding(column.into(), Encoding::DELTA_BINARY_PACKED)
}

/// Properties of lists: numbers are encoded as differences because most increase or repeat; names share prefixes.
pub(in crate::dataset) fn list_properties(schema: &Schema) -> WriterProperties {
    list_builder(schema).build()
}

fn list_builder(schema: &Schema) -> WriterPropertiesBuilder {
    let encode = |properties: WriterPropertiesBuilder, field: &FieldRef| {
        let column = field.name().as_str();
        match field.data_type() {
            DataType::UInt64 | DataType::Int64 if column != "hash" => with_delta_encoding(properties, column),
            DataType::Utf8 if NAMES.contains(&column) => properties
                .set_column_dictionary_enabled(column.into(), false)
                .set_column_encoding(column.into(), Encoding::DELTA_BYTE_ARRAY),
            DataType::Binary => properties.set_column_dictionary_enabled(column.into(), false),
            // No two are the same.
            DataType::Utf8 if ["beside", "entry"].contains(&column) => {
                properties.set_column_dictionary_enabled(column.into(), false)
            }
            _ => properties,
        }
    };
    schema.fields().iter().fold(writer_properties(), encode)
}

/// Columns of lists whose neighbouring texts differ little.
const NAMES: [&str; 4] = ["path", "shard", "uri", "name"];

/// Writes one batch as a table and returns its seal.
pub(in crate::dataset) fn write(
    store: &dyn Store,
    path: &str,
    batch: &RecordBatch,
    properties: WriterProperties,
) -> Result<Seal> {
    let bytes = encode_batch(batch, properties)?;
    let seal = Seal::for_bytes(&bytes);
    store.put(path, bytes.into())?;
    Ok(seal)
}

/// Encodes one batch as a table.
pub(in crate::dataset) fn encode_batch(batch: &RecordBatch, properties: WriterProperties) -> Result<Vec<u8>> {
    let properties = suited_to(batch.num_rows() as u64, batch.schema_ref(), properties.into_builder()).build();
    let mut writer = start_writer(Vec::new(), batch.schema(), properties)?;
    writer.write(batch).map_err(parquet_error)?;
    writer.into_inner().map_err(parquet_error)
}

/// Writes a table batch by batch.
pub(in crate::dataset) struct TableWriter<'a> {
    store: &'a dyn Store,
    path: String,
    statistics: EnabledStatistics,
    /// Rows that are not written yet: all of them while they are few.
    held: Vec<RecordBatch>,
    writer: Option<ArrowWriter<SealingSink>>,
    rows: u64,
}

impl<'a> TableWriter<'a> {
    /// Starts a table; nothing is stored until the first row.
    pub(in crate::dataset) fn new(store: &'a dyn Store, path: &str) -> Self {
        Self {
            store,
            path: path.to_owned(),
            statistics: EnabledStatistics::Chunk,
            held: Vec::new(),
            writer: None,
            rows: 0,
        }
    }

    /// Starts a table without column statistics: it is read by row number alone.
    pub(in crate::dataset) fn without_statistics(store: &'a dyn Store, path: &str) -> Self {
        Self { statistics: EnabledStatistics::None, ..Self::new(store, path) }
    }

    /// Appends rows.
    pub(in crate::dataset) fn add_rows(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.rows += batch.num_rows() as u64;
        self.held.push(batch.clone());
        if self.rows <= FEW_ROWS { Ok(()) } else { self.write_held() }
    }

    fn write_held(&mut self) -> Result<()> {
        for batch in std::mem::take(&mut self.held) {
            if self.writer.is_none() {
                let sink = SealingSink::in_blocks(self.store, &self.path)?;
                let properties = list_builder(&batch.schema()).set_statistics_enabled(self.statistics);
                let properties = suited_to(self.rows, batch.schema_ref(), properties).build();
                self.writer = Some(start_writer(sink, batch.schema(), properties)?);
            }
            self.writer.as_mut().map_or(Ok(()), |writer| writer.write(&batch)).map_err(parquet_error)?;
        }
        Ok(())
    }

    /// Finishes the table, which has no name until it is published. `None` if it has no rows.
    pub(in crate::dataset) fn finish(mut self) -> Result<Option<(Staged, u64)>> {
        self.write_held()?;
        let Some(writer) = self.writer else { return Ok(None) };
        Ok(Some((finish_table(writer)?, self.rows)))
    }
}

/// Finishes a table with the hashes of its blocks; it has no name until it is published.
pub(in crate::dataset) fn finish_table(mut writer: ArrowWriter<SealingSink>) -> Result<Staged> {
    writer.flush().map_err(parquet_error)?;
    writer.sync()?;
    if let Some(blocks) = writer.inner_mut().end_body() {
        writer.append_key_value_metadata(KeyValue::new(KEY.to_owned(), blocks));
    }
    writer.into_inner().map_err(parquet_error)?.finish()
}

/// An encoded row group in memory.
pub(in crate::dataset) struct Group {
    pub(in crate::dataset) chunks: Vec<Chunk>,
    pub(in crate::dataset) rows: u64,
}

/// Returns the Parquet columns of a schema.
pub(in crate::dataset) fn parquet_schema(schema: &Schema) -> Result<SchemaDescriptor> {
    ArrowSchemaConverter::new().convert(schema).map_err(parquet_error)
}

/// Writes a table whose row groups are encoded elsewhere.
pub(in crate::dataset) struct GroupWriter {
    writer: SerializedFileWriter<SealingSink>,
    rows: u64,
}

impl GroupWriter {
    /// Starts a table.
    pub(in crate::dataset) fn create(store: &dyn Store, path: &str, columns: &SchemaDescriptor) -> Result<Self> {
        // The offset index lets a reader of one row find its page.
        let properties = writer_properties().set_offset_index_disabled(false).build();
        let writer = SerializedFileWriter::new(
            SealingSink::in_blocks(store, path)?,
            columns.root_schema_ptr(),
            Arc::new(properties),
        );
        Ok(Self { writer: writer.map_err(parquet_error)?, rows: 0 })
    }

    /// Rows written so far.
    pub(in crate::dataset) fn row_count(&self) -> u64 {
        self.rows
    }

    /// Bytes written so far; once all groups are appended, only the footer is missing.
    pub(in crate::dataset) fn bytes_written(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Appends a row group; one without rows is ignored.
    pub(in crate::dataset) fn append_group(&mut self, group: Group) -> Result<()> {
        if group.rows == 0 {
            return Ok(());
        }
        let mut writer = self.writer.next_row_group().map_err(parquet_error)?;
        for chunk in group.chunks {
            writer.append_column(&chunk.bytes, chunk.close).map_err(parquet_error)?;
        }
        writer.close().map_err(parquet_error)?;
        self.rows += group.rows;
        Ok(())
    }

    /// Appends a row group assembled from others.
    pub(in crate::dataset) fn append_spliced(&mut self, chunks: Vec<TableChunk>, rows: u64) -> Result<()> {
        let mut writer = self.writer.next_row_group().map_err(parquet_error)?;
        for chunk in chunks {
            let (pages, close) = chunk.into_parts();
            writer.append_column(&pages, close).map_err(parquet_error)?;
        }
        writer.close().map_err(parquet_error)?;
        self.rows += rows;
        Ok(())
    }

    /// Adds a key and value to the footer metadata.
    pub(in crate::dataset) fn add_metadata(&mut self, key: &str, value: String) {
        self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }

    /// Finishes the table; it has no name until it is published.
    pub(in crate::dataset) fn finish(mut self) -> Result<Staged> {
        self.writer.flush()?;
        if let Some(blocks) = self.writer.inner_mut().end_body() {
            self.add_metadata(KEY, blocks);
        }
        self.writer.into_inner().map_err(parquet_error)?.finish()
    }
}

/// Reads a whole table.
pub(in crate::dataset) fn read(store: &dyn Store, table: &Sealed) -> Result<Vec<RecordBatch>> {
    decode_sealed(store, table, get_sealed(store, table)?)
}

/// Checks and decodes a whole table that was read.
pub(in crate::dataset) fn decode_checked(store: &dyn Store, table: &Sealed, bytes: Bytes) -> Result<Vec<RecordBatch>> {
    decode_sealed(store, table, checked_sealed(store, table, bytes)?)
}

fn decode_sealed(store: &dyn Store, table: &Sealed, bytes: Bytes) -> Result<Vec<RecordBatch>> {
    decode_table(bytes).map_err(|e| damage_error(e, "the table is damaged", table.display_location(store)))
}

/// Passes a list to `visit`, batch by batch.
pub(in crate::dataset) fn read_batches(
    store: &Arc<dyn Store>,
    list: &ListRef,
    visit: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let place = || store.location().join(&list.path).to_string();
    let damaged = |e: Error| damage_error(e, "the table is damaged", place());
    let object = open_sealed(store, &list.as_sealed())?;
    let mut reader = catch_panics(|| {
        ParquetRecordBatchReaderBuilder::try_new(object)
            .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
            .map_err(parquet_error)
    })
    .map_err(damaged)?;
    let mut rows = 0;
    while let Some(batch) = catch_panics(|| Ok(reader.next().transpose()?)).map_err(damaged)? {
        rows += batch.num_rows() as u64;
        visit(&batch)?;
    }
    check_rows(store.as_ref(), list, rows)
}

/// Fails unless a list has as many rows as the entry says that names it.
pub(in crate::dataset) fn check_rows(store: &dyn Store, list: &ListRef, found: u64) -> Result<()> {
    if found == list.rows {
        return Ok(());
    }
    Err(Error::integrity(format!("expected {} rows, found {found}", list.rows))
        .at_location(store.location().join(&list.path).to_string()))
}

/// Returns the column names of a list, from its footer.
pub(in crate::dataset) fn columns_of(store: &Arc<dyn Store>, list: &ListRef) -> Result<Vec<String>> {
    let reader = open_table(store, &list.as_sealed())?;
    Ok(reader.schema().fields().iter().map(|field| field.name().clone()).collect())
}

/// Selects single rows, given in ascending order.
///
/// # Errors
/// If a row is out of range.
pub(in crate::dataset) fn select_rows(rows: &[u64]) -> Result<RowSelection> {
    let mut selectors = Vec::with_capacity(2 * rows.len());
    let mut at = 0;
    for row in rows {
        let row = usize::try_from(*row).map_err(|_| Error::integrity("row out of range"))?;
        selectors.push(RowSelector::skip(row - at));
        selectors.push(RowSelector::select(1));
        at = row + 1;
    }
    Ok(RowSelection::from(selectors))
}

/// Opens a table for partial reads.
pub(in crate::dataset) fn open_table(
    store: &Arc<dyn Store>,
    table: &Sealed,
) -> Result<ParquetRecordBatchReaderBuilder<Object>> {
    let object = open_sealed(store, table)?;
    catch_panics(|| ParquetRecordBatchReaderBuilder::try_new(object).map_err(parquet_error))
        .map_err(|e| damage_error(e, "the table is damaged", table.display_location(store.as_ref())))
}

/// Opens a table that states the hash of its own rows, which its reader checks.
pub(in crate::dataset) fn open_unsealed(
    store: &Arc<dyn Store>,
    path: &str,
) -> Result<ParquetRecordBatchReaderBuilder<Object>> {
    let place = || store.location().join(path).to_string();
    let missing = || Error::integrity("expected an object that the log refers to, found none").at_location(place());
    let bytes = store.head(path)?.ok_or_else(missing)?.bytes;
    catch_panics(|| {
        ParquetRecordBatchReaderBuilder::try_new(Object::new(Arc::clone(store), path, bytes)).map_err(parquet_error)
    })
    .map_err(|e| damage_error(e, "the table is damaged", place()))
}

/// Returns the same rows with all columns of a schema; those that are omitted because they would be empty are null.
pub(in crate::dataset) fn with_all_columns(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &FieldRef| {
        rows.column_by_name(field.name()).cloned().unwrap_or_else(|| new_null_array(field.data_type(), rows.num_rows()))
    };
    Ok(RecordBatch::try_new(Arc::clone(schema), schema.fields().iter().map(column).collect())?)
}

/// Decodes a whole table; a panic of the decoder on damaged bytes becomes an error.
pub(in crate::dataset) fn decode_table(bytes: Bytes) -> Result<Vec<RecordBatch>> {
    catch_panics(|| {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)
            .and_then(|builder| builder.with_batch_size(1 << 16).build())
            .map_err(parquet_error)?;
        reader.map(|batch| batch.map_err(Error::from)).collect()
    })
}

/// Returns a column by name and type.
pub(in crate::dataset) fn typed_column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A> {
    batch
        .column_by_name(name)
        .and_then(|column| column.as_any().downcast_ref())
        .ok_or_else(|| Error::integrity(format!("expected a column `{name}`, found none or one of another type")))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{AsArray, UInt64Array};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use crate::storage::RemoteStore;

    fn numbers(rows: std::ops::Range<u64>) -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(UInt64Array::from_iter_values(rows)) as Arc<dyn Array>)]).unwrap()
    }

    /// Returns the compression of a table, and the numbers that it holds.
    fn read_back(bytes: Bytes) -> (Compression, Vec<u64>) {
        let file = SerializedFileReader::new(bytes.clone()).unwrap();
        let numbers =
            |batch: &RecordBatch| batch.column(0).as_primitive::<arrow::datatypes::UInt64Type>().values().to_vec();
        let rows = decode_table(bytes).unwrap().iter().flat_map(numbers).collect();
        (file.metadata().row_group(0).column(0).compression(), rows)
    }

    #[test]
    fn few_rows_are_not_compressed_and_more_are_whatever_their_batches() {
        let store: &dyn Store = &RemoteStore::in_memory().unwrap();
        let few = FEW_ROWS;
        for ends in
            [vec![1], vec![few], vec![few + 1], vec![1, 2, few], vec![1, 2, few + 1], vec![few, few + 1, few + 2]]
        {
            let mut table = TableWriter::new(store, "t");
            let starts = [0].iter().chain(&ends);
            starts.zip(&ends).for_each(|(start, end)| table.add_rows(&numbers(*start..*end)).unwrap());
            let (staged, rows) = table.finish().unwrap().unwrap();
            store.publish_staged(vec![staged]).unwrap();
            let end = *ends.last().unwrap();
            assert_eq!(rows, end);
            let (compression, found) = read_back(store.get("t").unwrap().unwrap());
            assert_eq!(found, (0..end).collect::<Vec<_>>());
            assert_eq!(compression == Compression::UNCOMPRESSED, end <= few, "{ends:?}");
            let whole = numbers(0..end);
            let whole = read_back(encode_batch(&whole, list_properties(&whole.schema())).unwrap().into());
            assert_eq!(whole, (compression, found));
            store.delete("t").unwrap();
        }
    }

    #[test]
    fn a_table_without_rows_is_not_stored() {
        let store: &dyn Store = &RemoteStore::in_memory().unwrap();
        let mut table = TableWriter::new(store, "t");
        table.add_rows(&numbers(0..0)).unwrap();
        assert!(table.finish().unwrap().is_none());
        assert_eq!(store.get("t").unwrap(), None);
    }
}
