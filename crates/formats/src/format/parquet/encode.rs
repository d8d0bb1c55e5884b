//! Encodes record batches as row groups, and writes row groups to a shard.
//!
//! [`ParquetEncoder::encode`] encodes and compresses, independently of the shard that will contain the row group;
//! appending only copies pages and adjusts their offsets. Column chunks are encoded in parallel, each by one thread
//! from start to end, so that the bytes cannot depend on the number of threads. Nearly all columns are encoded by
//! [`chunk`], lists within lists and unusual types by the parquet crate.

use std::{
    cmp::Reverse,
    io::{BufWriter, Write},
    sync::Arc,
};

use ::parquet::{
    arrow::{
        ARROW_SCHEMA_META_KEY, ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata,
        arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves},
    },
    basic::{ConvertedType, LogicalType, Type as PhysicalType},
    errors::ParquetError,
    file::{
        metadata::{KeyValue, SortingColumn},
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion},
        writer::SerializedFileWriter,
    },
    schema::types::{ColumnDescPtr, ColumnDescriptor, SchemaDescriptor, TypePtr},
};
use arrow::{
    array::{Array, ArrayRef, RecordBatch},
    datatypes::{Field, Schema, SchemaRef},
};
use rayon::prelude::*;

use super::{
    chunk::{self, Chunk, Noted, PAGE_BYTES, PAGE_ROWS},
    logical::with_meaning,
    splice::{GroupNote, SplicedChunk},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    record::{
        coded::{plain_column, value_type},
        size::logical_bytes,
    },
    schema::published_fields,
};

/// Encodes batches of one schema with one set of options.
#[derive(Debug)]
pub struct ParquetEncoder {
    schema: SchemaRef,
    root: TypePtr,
    properties: WriterPropertiesPtr,
    factory: ArrowRowGroupWriterFactory,
    codec: Codec,
    /// Parquet columns of each top-level Arrow field.
    leaves: Vec<Vec<ColumnDescPtr>>,
    /// Whether the schema is that of other files, whose columns may differ from those that Arrow would make.
    keeps: bool,
}

/// A row group in memory, encoded and compressed.
#[derive(Debug)]
pub struct RowGroup {
    columns: Vec<Encoded>,
    /// Number of rows.
    pub rows: usize,
    /// Bytes in a shard, without a share of the footer and the page indexes.
    pub encoded_bytes: u64,
    /// Bytes of its values in memory, as [`logical_bytes`] counts them.
    pub raw_bytes: u64,
}

/// A column chunk, by its encoder.
#[derive(Debug)]
pub(super) enum Encoded {
    Own(Chunk),
    General(ArrowColumnChunk),
    Spliced(SplicedChunk),
}

/// A Parquet file that is being written.
pub struct ParquetShard<W: Write + Send> {
    writer: SerializedFileWriter<RecoverableSink<W>>,
}

/// A sink that can be recovered after the footer was flushed. The file writer's own method to return its sink turns
/// errors of the last flush into text, so that a full disk would look like a bug of ours. It also writes pages in
/// pieces that are too small for a sink that hashes them.
struct RecoverableSink<W: Write>(Option<BufWriter<W>>);

/// Size in bytes of a write to the sink; it should fit into the processor's cache.
const PIECE_BYTES: usize = 128 << 10;

impl ParquetEncoder {
    /// Creates an encoder of batches of `schema`. `metadata` is written to the footer in the given order, followed by
    /// the Arrow schema, from which readers restore time zones and extension types.
    ///
    /// # Errors
    /// When the schema has no Parquet equivalent, or the codec's level is out of range.
    pub fn new(schema: &SchemaRef, codec: Codec, metadata: &[(String, String)]) -> Result<Self> {
        let made = ArrowSchemaConverter::new().convert(schema).map_err(encoding_failed)?;
        let root = with_meaning(made.root_schema(), schema.fields()).map_err(encoding_failed)?;
        let parquet_schema = SchemaDescriptor::new(Arc::new(root));
        let mut properties = writer_properties(&parquet_schema, codec, metadata)?;
        // pyarrow, and thus Hugging Face, reads metadata only from the Arrow schema, if there is one.
        let described = Schema::new(published_fields(schema.fields()))
            .with_metadata(metadata.iter().cloned().collect::<std::collections::BTreeMap<_, _>>());
        add_encoded_arrow_schema_to_metadata(&described, &mut properties);
        let properties = Arc::new(properties);
        let root = parquet_schema.root_schema_ptr();
        // The factory needs schema and options from a file writer; nothing is ever written to this one.
        let template = SerializedFileWriter::new(std::io::sink(), Arc::clone(&root), Arc::clone(&properties))
            .map_err(encoding_failed)?;
        let factory = ArrowRowGroupWriterFactory::new(&template, Arc::clone(schema));
        let leaves = leaves_of(&parquet_schema, schema.fields().len());
        Ok(Self { schema: Arc::clone(schema), root, properties, factory, codec, leaves, keeps: false })
    }

    /// Creates an encoder for row groups that are spliced from those of other files, whose Parquet schema is kept.
    /// `hint` is the Arrow schema stored in those files; without it, the schema is serialised again. `None` if Arrow
    /// derives other fields from the schema, or if it has unknown types.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub(super) fn for_kept_schema(
        schema: &SchemaRef,
        kept: &SchemaDescriptor,
        codec: Codec,
        metadata: &[(String, String)],
        hint: Option<&Option<String>>,
        sorting: Option<Vec<SortingColumn>>,
    ) -> Result<Option<Self>> {
        let mut encoder = Self::new(schema, codec, metadata)?;
        let unknown = |column: &ColumnDescPtr| matches!(column.logical_type_ref(), Some(LogicalType::_Unknown { .. }));
        if kept.root_schema().get_fields().len() != schema.fields().len() || kept.columns().iter().any(unknown) {
            return Ok(None);
        }
        let mut properties = writer_properties(kept, codec, metadata)?.into_builder().set_sorting_columns(sorting);
        if let Some(hint) = hint {
            let mut all = properties_metadata(metadata);
            all.extend(hint.clone().map(|value| KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), value)));
            properties = properties.set_key_value_metadata(Some(all));
        } else {
            properties = properties.set_key_value_metadata(encoder.properties.key_value_metadata().cloned());
        }
        encoder.properties = Arc::new(properties.build());
        encoder.root = kept.root_schema_ptr();
        encoder.leaves = leaves_of(kept, schema.fields().len());
        encoder.keeps = true;
        Ok(Some(encoder))
    }

    /// Returns the compression of the pages.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Returns the Parquet columns of each field.
    pub(super) fn leaf_columns(&self) -> &[Vec<ColumnDescPtr>] {
        &self.leaves
    }

    /// Returns whether the schema is that of the files that row groups come from.
    pub(super) fn keeps_schema(&self) -> bool {
        self.keeps
    }

    /// Encodes one field separately; `None` if its columns differ from those that Arrow would make.
    pub(super) fn encode_field(&self, field: usize, arrays: &[ArrayRef]) -> Result<Option<Vec<Encoded>>> {
        if let Ok(chunks) = self.encode_own(field, arrays.to_vec(), false)? {
            return Ok(Some(chunks.into_iter().map(Encoded::Own).collect()));
        }
        if self.keeps {
            return Ok(None);
        }
        let writers = self.factory.create_column_writers(0).map_err(encoding_failed)?;
        let before = self.leaves[..field].iter().map(Vec::len).sum();
        let writers = writers.into_iter().skip(before).take(self.leaves[field].len()).collect();
        encode_parts(self.schema.field(field), arrays.iter(), writers).map(Some)
    }

    /// States in every row group that its rows are sorted by these columns, ascending, nulls first. A row group cannot
    /// state the order of nested columns; they and all columns after them are omitted.
    #[must_use]
    pub fn sorted_by(self, columns: &[usize]) -> Self {
        let mut leaf = 0;
        let firsts: Vec<Option<i32>> = self
            .leaves
            .iter()
            .map(|leaves| {
                let first = leaf;
                leaf += leaves.len();
                (leaves.len() == 1).then(|| i32::try_from(first).ok()).flatten()
            })
            .collect();
        let sorting: Vec<SortingColumn> = columns
            .iter()
            .map_while(|column| *firsts.get(*column)?)
            .map(|column_idx| SortingColumn { column_idx, descending: false, nulls_first: true })
            .collect();
        let properties = self.properties.as_ref().clone().into_builder();
        let properties = properties.set_sorting_columns((!sorting.is_empty()).then_some(sorting)).build();
        Self { properties: Arc::new(properties), ..self }
    }

    /// Returns the schema of the batches and of the shards.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Estimates the bytes of the footer and the page index of a shard with that many row groups.
    pub fn footer_bytes(&self, row_groups: u64) -> u64 {
        /// Typical bytes of metadata, statistics and page index of a column chunk.
        const CHUNK_BYTES: u64 = 140;
        /// Typical bytes of a column in the Parquet schema and, in base64, in the Arrow schema.
        const COLUMN_BYTES: u64 = 90;
        let names: u64 = self.schema.fields().iter().map(|f| 3 * f.name().len() as u64).sum();
        let columns = self.leaves.iter().map(Vec::len).sum::<usize>() as u64;
        512 + names + columns * COLUMN_BYTES + row_groups * columns * CHUNK_BYTES
    }

    /// Encodes all rows of all batches into one row group, columns in parallel on the current rayon pool.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) if a batch has another schema, or a null in a non-nullable
    /// column.
    pub fn encode(&self, batches: &[RecordBatch]) -> Result<RowGroup> {
        Ok(self.encode_noting(batches.to_vec(), &[])?.0)
    }

    /// Like [`Self::encode`]; also returns what other tables can use of some fields. Columns are dropped one by one as
    /// they are encoded.
    ///
    /// # Errors
    /// Those of [`Self::encode`].
    pub fn encode_noting(&self, batches: Vec<RecordBatch>, noted: &[usize]) -> Result<(RowGroup, Vec<Noted>)> {
        for batch in &batches {
            self.check_batch(batch)?;
        }
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let raw_bytes = batches.iter().map(logical_bytes).sum();
        let named = |field: usize| move |e: Error| e.in_column(self.schema.field(field).name().as_str());
        let mut columns: Vec<(usize, Vec<ArrayRef>)> = columns_of(batches, self.leaves.len());
        // The largest first: if it started last, it would keep one thread busy while the others are idle.
        columns.sort_by_key(|(_, arrays)| Reverse(arrays.iter().map(|a| a.get_buffer_memory_size()).sum::<usize>()));
        let mut first = columns
            .into_iter()
            .par_bridge()
            .map(|(field, arrays)| {
                let own = self.encode_own(field, arrays, noted.contains(&field)).map_err(named(field))?;
                Ok((field, own.map_or_else(Attempt::General, Attempt::Own)))
            })
            .collect::<Result<Vec<_>>>()?;
        first.sort_unstable_by_key(|(field, _)| *field);
        let mut notes: Vec<Noted> = noted.iter().map(|_| Noted::default()).collect();
        let mut writers = match first.iter().any(|(_, attempt)| matches!(attempt, Attempt::General(_))) {
            true => self.factory.create_column_writers(0).map_err(encoding_failed)?,
            false => Vec::new(),
        }
        .into_iter();
        let mut fields = Vec::new();
        for (field, mut attempt) in first {
            if let (Attempt::Own(chunks), Some(place)) = (&mut attempt, noted.iter().position(|noted| *noted == field))
                && let [chunk] = chunks.as_mut_slice()
            {
                notes[place] = chunk.noted.take().map(|noted| *noted).unwrap_or_default();
            }
            fields.push((field, attempt, writers.by_ref().take(self.leaves[field].len()).collect::<Vec<_>>()));
        }
        let encoded: Vec<Result<Vec<Encoded>>> = fields
            .into_par_iter()
            .map(|(field, attempt, writers)| match attempt {
                Attempt::Own(chunks) => Ok(chunks.into_iter().map(Encoded::Own).collect()),
                Attempt::General(arrays) => {
                    encode_parts(self.schema.field(field), arrays.iter(), writers).map_err(named(field))
                }
            })
            .collect();
        let mut columns = Vec::with_capacity(self.leaves.iter().map(Vec::len).sum());
        for field in encoded {
            columns.append(&mut field?);
        }
        let encoded_bytes = columns.iter().map(Encoded::stored_bytes).sum();
        Ok((RowGroup { rows, encoded_bytes, raw_bytes, columns }, notes))
    }

    /// Encodes the columns of a field, or returns the arrays if the parquet crate has to encode them.
    fn encode_own(
        &self,
        field: usize,
        arrays: Vec<ArrayRef>,
        is_noted: bool,
    ) -> Result<Result<Vec<Chunk>, Vec<ArrayRef>>> {
        // In the schemas of other writers, lists have several forms.
        let options = chunk::Options { codec: self.codec, inspects_values: true, nested: !self.keeps, is_noted };
        chunk::encode_field(self.schema.field(field), &self.leaves[field], arrays, options, |leaf| !is_binary(leaf))
    }

    /// Starts a shard. Bytes are written to `sink` in large pieces, so it needs no buffer.
    ///
    /// # Errors
    /// When `sink` fails.
    pub fn start_shard<W: Write + Send>(&self, sink: W) -> Result<ParquetShard<W>> {
        let writer = SerializedFileWriter::new(
            RecoverableSink(Some(BufWriter::with_capacity(PIECE_BYTES, sink))),
            Arc::clone(&self.root),
            Arc::clone(&self.properties),
        )
        .map_err(encoding_failed)?;
        Ok(ParquetShard { writer })
    }

    fn check_batch(&self, batch: &RecordBatch) -> Result<()> {
        let (expected, found) = (self.schema.fields(), batch.schema_ref().fields());
        if expected.len() != found.len() {
            return Err(Error::internal(format!("expected {} columns, found {}", expected.len(), found.len())));
        }
        for (e, f) in expected.iter().zip(found) {
            if e.name() != f.name() || !e.data_type().equals_datatype(&value_type(f.data_type())) {
                let message = format!(
                    "expected `{}` of type {}, found `{}` of {}",
                    e.name(),
                    e.data_type(),
                    f.name(),
                    f.data_type()
                );
                return Err(Error::internal(message).in_column(e.name().as_str()));
            }
        }
        Ok(())
    }
}

/// The column chunks from our own encoder, or the arrays if it does not support the column.
enum Attempt {
    Own(Vec<Chunk>),
    General(Vec<ArrayRef>),
}

/// Returns each field with its arrays in all batches.
fn columns_of(batches: Vec<RecordBatch>, fields: usize) -> Vec<(usize, Vec<ArrayRef>)> {
    let mut columns: Vec<_> = (0..fields).map(|field| (field, Vec::with_capacity(batches.len()))).collect();
    for batch in batches {
        let (_, arrays, _) = batch.into_parts();
        columns.iter_mut().zip(arrays).for_each(|((_, column), array)| column.push(array));
    }
    columns
}

impl<W: Write + Send> ParquetShard<W> {
    /// Appends a row group and returns the note with which the file is compared; one without rows is ignored.
    ///
    /// # Errors
    /// When the sink fails, or the row group comes from an encoder with another schema.
    pub fn append(&mut self, group: RowGroup) -> Result<Option<GroupNote>> {
        if group.rows == 0 {
            return Ok(None);
        }
        let mut writer = self.writer.next_row_group().map_err(encoding_failed)?;
        let mut notes = Vec::with_capacity(group.columns.len());
        for chunk in group.columns {
            let (appended, note) = match chunk {
                Encoded::Own(chunk) => (writer.append_column(&chunk.bytes, chunk.close), None),
                Encoded::Spliced(chunk) => (writer.append_column(&chunk.pieces, chunk.close), Some(chunk.note)),
                Encoded::General(chunk) => (chunk.append_to_row_group(&mut writer), None),
            };
            appended.map_err(encoding_failed)?;
            notes.push(note);
        }
        let written = writer.close().map_err(encoding_failed)?;
        // Without columns, the row count would come from the first column chunk, which does not exist.
        if usize::try_from(written.num_rows()).ok() != Some(group.rows) {
            let message = format!("expected a row group of {} rows, wrote {}", group.rows, written.num_rows());
            return Err(Error::internal(message));
        }
        Ok(Some(GroupNote::from_written(&written, notes)))
    }

    /// Returns the sink, to which bytes may still have to be written.
    pub fn sink(&self) -> Option<&W> {
        self.writer.inner().0.as_ref().map(BufWriter::get_ref)
    }

    /// Returns the bytes written so far, including buffered ones, but without the footer.
    pub fn bytes_written(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Writes the page indexes and the footer, and returns the sink.
    ///
    /// # Errors
    /// When the sink fails.
    pub fn finish(mut self) -> Result<W> {
        self.writer.finish().map_err(encoding_failed)?;
        let sink = self.writer.inner_mut().0.take();
        let sink = sink.ok_or_else(|| Error::internal("the sink of a shard was taken twice"))?;
        Ok(sink.into_inner().map_err(std::io::IntoInnerError::into_error)?)
    }
}

impl<W: Write> Write for RecoverableSink<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.as_mut().map_or(Err(std::io::ErrorKind::BrokenPipe.into()), |sink| sink.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl<W: Write + Send> std::fmt::Debug for ParquetShard<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetShard").field("writer", &self.writer).finish()
    }
}

impl RowGroup {
    /// Returns the bytes of the pages before compression.
    pub fn uncompressed_bytes(&self) -> u64 {
        let bytes = self.columns.iter().map(|column| match column {
            Encoded::Own(chunk) => chunk.close.metadata.uncompressed_size(),
            Encoded::General(chunk) => chunk.close().metadata.uncompressed_size(),
            Encoded::Spliced(chunk) => chunk.close.metadata.uncompressed_size(),
        });
        bytes.map(|bytes| u64::try_from(bytes).unwrap_or(0)).sum()
    }

    /// Creates a row group from finished columns.
    pub(super) fn from_columns(columns: Vec<Encoded>, rows: usize, raw_bytes: u64) -> Self {
        Self { encoded_bytes: columns.iter().map(Encoded::stored_bytes).sum(), columns, rows, raw_bytes }
    }
}

fn leaves_of(schema: &SchemaDescriptor, fields: usize) -> Vec<Vec<ColumnDescPtr>> {
    let mut leaves = vec![Vec::new(); fields];
    for leaf in 0..schema.num_columns() {
        if let Some(leaves) = leaves.get_mut(schema.get_column_root_idx(leaf)) {
            leaves.push(schema.column(leaf));
        }
    }
    leaves
}

impl Encoded {
    fn stored_bytes(&self) -> u64 {
        match self {
            Self::Own(chunk) => chunk.close.bytes_written,
            Self::Spliced(chunk) => chunk.close.bytes_written,
            Self::General(chunk) => chunk.close().bytes_written,
        }
    }
}

/// Encodes a column with the parquet crate.
fn encode_parts<'a>(
    field: &Field,
    arrays: impl Iterator<Item = &'a ArrayRef>,
    mut writers: Vec<ArrowColumnWriter>,
) -> Result<Vec<Encoded>> {
    for array in arrays {
        let leaves = compute_leaves(field, &plain_column(array)?).map_err(encoding_failed)?;
        for (leaf, writer) in leaves.iter().zip(&mut writers) {
            writer.write(leaf).map_err(encoding_failed)?;
        }
    }
    writers.into_iter().map(|writer| writer.close().map(Encoded::General).map_err(encoding_failed)).collect()
}

fn writer_properties(
    schema: &SchemaDescriptor,
    codec: Codec,
    metadata: &[(String, String)],
) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(chunk::name_of(codec)?)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_key_value_metadata(Some(properties_metadata(metadata)));
    for column in schema.columns().iter().filter(|column| is_binary(column)) {
        // Whole files: all are different, and filters by their first bytes are unlikely.
        builder = builder
            .set_column_dictionary_enabled(column.path().clone(), false)
            .set_column_statistics_enabled(column.path().clone(), EnabledStatistics::None);
    }
    Ok(builder.build())
}

fn properties_metadata(metadata: &[(String, String)]) -> Vec<KeyValue> {
    metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect()
}

/// Returns whether a column's values are not examined. This includes shapes: bounds of their bytes are meaningless.
fn is_binary(column: &ColumnDescriptor) -> bool {
    let shape = matches!(column.logical_type_ref(), Some(LogicalType::Geometry(_) | LogicalType::Geography(_)));
    column.physical_type() == PhysicalType::BYTE_ARRAY
        && (shape || column.logical_type_ref().is_none())
        && column.converted_type() == ConvertedType::NONE
}

/// Converts an error: errors of the sink keep their kind; any other is internal, because the batches are our own.
fn encoding_failed(error: ParquetError) -> Error {
    match crate::format::guard::io_error(error) {
        Ok(io) => Error::from(io),
        Err(error) => Error::internal("encoding Parquet failed").with_cause(error),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::fmt::Write as _;

    use ::parquet::{
        column::page::Page,
        file::{
            metadata::{PageIndexPolicy, ParquetMetaDataReader},
            reader::{FileReader, SerializedFileReader},
        },
    };
    use arrow::{
        array::{
            Array, BinaryArray, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, ListArray,
            StringArray, StructArray, TimestampMicrosecondArray,
        },
        compute::concat_batches,
        datatypes::{DataType, Int64Type},
    };
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::{error::Kind, format::parquet::open, schema};

    const CODECS: [Codec; 5] = [Codec::None, Codec::Zstd(1), Codec::Lz4, Codec::Snappy, Codec::Gzip(6)];

    fn shard(schema: &SchemaRef, codec: Codec, groups: &[&[RecordBatch]]) -> Bytes {
        let metadata = [("shardify.test".to_owned(), "1".to_owned())];
        let encoder = ParquetEncoder::new(schema, codec, &metadata).unwrap();
        let mut shard = encoder.start_shard(Vec::new()).unwrap();
        for group in groups {
            shard.append(encoder.encode(group).unwrap()).unwrap();
        }
        let before = shard.bytes_written();
        let bytes = shard.finish().unwrap();
        assert!(bytes.len() as u64 > before);
        bytes.into()
    }

    fn rows(bytes: Bytes, schema: &SchemaRef) -> RecordBatch {
        let batches: Vec<_> = open(bytes, "test").unwrap().into_batches(1000).map(Result::unwrap).collect();
        concat_batches(schema, &batches).unwrap()
    }

    /// Returns a table of every type that readers of this crate produce, with nulls, sliced so that offsets matter.
    fn everything() -> RecordBatch {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
            Some(vec![Some(i64::MIN)]),
        ]);
        let inner: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![Some("é"), None, Some(""), Some("z")])),
            Arc::new(Float64Array::from(vec![Some(f64::NAN), Some(-0.0), None, Some(f64::INFINITY)])),
        ];
        let fields =
            vec![Field::new("text", DataType::Utf8, true), Field::new("float", DataType::Float64, true)].into();
        let nested = StructArray::new(fields, inner, Some(vec![true, false, true, true].into()));
        let micros = vec![Some(0), None, Some(-1), Some(1_700_000_000_123_456)];
        let columns: Vec<(Field, ArrayRef)> = vec![
            (
                Field::new("bool", DataType::Boolean, true),
                Arc::new(BooleanArray::from(vec![None, Some(true), None, Some(false)])),
            ),
            (
                Field::new("int", DataType::Int64, true),
                Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MAX), Some(3)])),
            ),
            (
                Field::new("date", DataType::Date32, true),
                Arc::new(Date32Array::from(vec![Some(-1), None, Some(0), Some(20_000)])),
            ),
            (Field::new("local", schema::TIMESTAMP, true), Arc::new(TimestampMicrosecondArray::from(micros.clone()))),
            (
                Field::new("instant", schema::instant_type(), true),
                Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("UTC")),
            ),
            (
                schema::json_field("json"),
                Arc::new(StringArray::from(vec![Some("{}"), None, Some("[1]"), Some("null")])),
            ),
            (
                Field::new("bytes", DataType::Binary, true),
                Arc::new(BinaryArray::from(vec![Some(&b"\0\xff"[..]), None, Some(b""), Some(b"x")])),
            ),
            (Field::new("list", list.data_type().clone(), true), Arc::new(list)),
            (Field::new("nested", nested.data_type().clone(), true), Arc::new(nested)),
        ];
        let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    #[test]
    fn every_type_and_codec_round_trips_with_its_schema() {
        let batch = everything();
        let schema = batch.schema();
        for codec in CODECS {
            let bytes = shard(&schema, codec, &[&[batch.slice(0, 1), batch.slice(1, 2)], &[batch.slice(3, 1)]]);
            let file = open(bytes.clone(), "test").unwrap();
            assert_eq!(&published_fields(file.schema().fields()), schema.fields(), "field metadata included");
            assert_eq!(file.schema().metadata().get("shardify.test").map(String::as_str), Some("1"));
            assert_eq!(file.row_groups().iter().map(|group| group.rows).collect::<Vec<_>>(), [3, 1]);
            let keys: Vec<_> = file.key_value_metadata().into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, ["shardify.test", "ARROW:schema"]);
            assert_eq!(rows(bytes, &schema), batch, "{codec:?}");
        }
    }

    #[test]
    fn bytes_do_not_depend_on_threads() {
        let columns = (0..50).map(|c| {
            let values: StringArray = (0..3000).map(|r| (r % 7 != c % 7).then(|| format!("{}", r * c % 101))).collect();
            (format!("c{c}"), Arc::new(values) as ArrayRef)
        });
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let with_threads = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                shard(&batch.schema(), Codec::Zstd(1), &[std::slice::from_ref(&batch), &[batch.slice(5, 100)]])
            })
        };
        let one = with_threads(1);
        assert_eq!(one, with_threads(4));
        assert_eq!(one, with_threads(4));
    }

    /// Describes row groups, pages, encodings and indexes of a shard as text.
    fn layout(bytes: &Bytes) -> String {
        let reader = SerializedFileReader::new(bytes.clone()).unwrap();
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .parse_and_finish(bytes)
            .unwrap();
        let file = metadata.file_metadata();
        let mut text = format!("version {} by {}\n", file.version(), file.created_by().unwrap());
        for (g, group) in metadata.row_groups().iter().enumerate() {
            writeln!(text, "group of {} rows", group.num_rows()).unwrap();
            for (c, column) in group.columns().iter().enumerate() {
                let statistics = if column.statistics().is_some() { "statistics" } else { "no statistics" };
                let indexes = match (column.column_index_length(), column.offset_index_length()) {
                    (Some(_), Some(_)) => "both indexes",
                    (None, Some(_)) => "offset index",
                    _ => "no index",
                };
                let (name, codec) = (column.column_path(), column.compression());
                write!(text, "  {name} {codec}, {statistics}, {indexes}:").unwrap();
                for page in reader.get_row_group(g).unwrap().get_column_page_reader(c).unwrap() {
                    let page = page.unwrap();
                    let kind = match &page {
                        Page::DataPage { .. } => "v1",
                        Page::DataPageV2 { .. } => "v2",
                        Page::DictionaryPage { .. } => "dictionary",
                    };
                    write!(text, " {kind} {} {}", page.encoding(), page.num_values()).unwrap();
                }
                text.push('\n');
            }
        }
        text
    }

    #[test]
    fn layout_of_a_shard() {
        let count = 25_000;
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", Arc::new(Int64Array::from_iter_values(0..count))),
            ("class", Arc::new(StringArray::from_iter_values((0..count).map(|row| (row % 3).to_string())))),
            ("jpg", Arc::new(BinaryArray::from_iter_values((0..count).map(|_| [7_u8; 100])))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let expected = format!(
            "version 1 by shardify {}
group of 25000 rows
  \"id\" ZSTD(ZstdLevel(1)), statistics, both indexes: v1 DELTA_BINARY_PACKED 20000 v1 DELTA_BINARY_PACKED 5000
  \"class\" ZSTD(ZstdLevel(1)), statistics, both indexes: dictionary PLAIN 3 v1 RLE_DICTIONARY 20000 v1 \
   RLE_DICTIONARY 5000
  \"jpg\" ZSTD(ZstdLevel(1)), no statistics, offset index: v1 PLAIN 10082 v1 PLAIN 10082 v1 PLAIN 4836
",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(layout(&shard(&batch.schema(), Codec::Zstd(1), &[&[batch]])), expected);
    }

    #[test]
    fn sizes_of_a_row_group() {
        let batch = everything();
        let encoder = ParquetEncoder::new(&batch.schema(), Codec::Snappy, &[]).unwrap();
        let group = encoder.encode(&[batch.clone(), batch.clone()]).unwrap();
        assert_eq!((group.rows, group.raw_bytes), (8, 2 * logical_bytes(&batch)));
        let mut shard = encoder.start_shard(Vec::new()).unwrap();
        let (before, encoded) = (shard.bytes_written(), group.encoded_bytes);
        assert_eq!(before, 4);
        shard.append(group).unwrap();
        assert_eq!(shard.bytes_written(), before + encoded);
    }

    #[test]
    fn no_rows_leave_no_row_group() {
        let batch = everything();
        let bytes = shard(&batch.schema(), Codec::None, &[&[], &[batch.slice(0, 0)]]);
        let file = open(bytes, "test").unwrap();
        assert_eq!((file.row_count(), file.row_groups().len()), (0, 0));
        assert_eq!(file.into_batches(10).count(), 0);
    }

    #[test]
    fn large_values_get_pages_of_their_own() {
        let blob = |byte| vec![byte; 700 << 10];
        let column: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..5).map(blob)));
        let batch = RecordBatch::try_from_iter([("jpg", column)]).unwrap();
        let text = layout(&shard(&batch.schema(), Codec::None, &[&[batch]]));
        assert!(text.matches("v1 PLAIN").count() >= 3, "{text}");
    }

    #[test]
    fn other_schemas_and_forbidden_nulls_are_bugs() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
        let encode = |field: Field| {
            let schema = Arc::new(Schema::new(vec![field]));
            ParquetEncoder::new(&schema, Codec::None, &[]).unwrap().encode(std::slice::from_ref(&batch)).unwrap_err()
        };
        for field in [
            Field::new("a", DataType::Int64, false),
            Field::new("b", DataType::Int64, true),
            Field::new("a", DataType::Utf8, true),
        ] {
            let error = encode(field);
            assert_eq!((error.kind(), error.place().column.is_some()), (Kind::Internal, true), "{error}");
        }
        let narrow = RecordBatch::try_from_iter([("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap();
        let encoder = ParquetEncoder::new(&batch.schema(), Codec::None, &[]).unwrap();
        assert_eq!(encoder.encode(&[narrow]).unwrap_err().kind(), Kind::Internal);
    }

    #[test]
    fn levels_out_of_range_are_refused() {
        let schema = everything().schema();
        for codec in [Codec::Zstd(99), Codec::Gzip(99)] {
            assert_eq!(ParquetEncoder::new(&schema, codec, &[]).unwrap_err().kind(), Kind::Usage);
        }
    }

    #[test]
    fn a_full_disk_is_a_storage_error() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let batch = everything();
        let encoder = ParquetEncoder::new(&batch.schema(), Codec::None, &[]).unwrap();
        let outcome = encoder.start_shard(Full(100)).and_then(|mut shard| {
            shard.append(encoder.encode(&[batch])?)?;
            shard.finish()
        });
        assert_eq!(outcome.err().unwrap().kind(), Kind::Storage);
    }

    proptest! {
        /// Rows round-trip, wherever batches and row groups are cut.
        #[test]
        fn round_trip(
            values in prop::collection::vec((prop::option::of(any::<i64>()), prop::option::of(".{0,8}")), 1..60),
            cuts in (0..60_usize, 0..60_usize),
            codec in prop::sample::select(&CODECS[..]),
        ) {
            let (ints, texts): (Vec<_>, Vec<_>) = values.into_iter().unzip();
            let columns: [(&str, ArrayRef, bool); 2] =
                [("i", Arc::new(Int64Array::from(ints)), true), ("t", Arc::new(StringArray::from(texts)), true)];
            let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            let all = batch.num_rows();
            let (a, b) = (cuts.0.min(cuts.1).min(all), cuts.0.max(cuts.1).min(all));
            let groups = [batch.slice(0, a), batch.slice(a, b - a), batch.slice(b, all - b)];
            let bytes = shard(&batch.schema(), codec, &[&groups[..2], &groups[2..]]);
            prop_assert_eq!(rows(bytes, &batch.schema()), batch);
        }
    }
}
