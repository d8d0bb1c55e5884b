//! The sidecar of a shard: one row per record, in record order, saying who it is and where it came from.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `record_id` | text, null | record id; null when it is the origin, `source#row` |
//! | `subject_id` | text, null | whom the record is about |
//! | `offset`, `length` | u64, null | bytes of the record in the uncompressed shard; null in Parquet |
//! | `source` | text | name of the source object |
//! | `row` | u64, null | number of the record in its source, from 1; null when the source is a file per record |
//! | `hash` | u64 | XXH3-64 of the record's bytes in the shard; in Parquet of its bytes in the source |

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelector},
    },
    file::{
        metadata::{KeyValue, ParquetMetaDataReader},
        properties::WriterProperties,
    },
};

use super::{
    frames::{FrameTable, METADATA_KEY},
    is_shard_name, system_path,
    table::{self, column},
};
use crate::{
    error::{Error, Result},
    storage::{Object, Sink, Staged, Store},
};

/// Path of the sidecar of a shard. Shards that shardify named lose their ending; those that were adopted may differ in
/// nothing else, so they keep it.
pub fn sidecar_path(shard: &str) -> String {
    if !is_shard_name(shard) {
        return system_path(&format!("sidecar/adopted/{shard}.parquet"));
    }
    let (folder, name) = shard.rsplit_once('/').unwrap_or(("", shard));
    let number = name.split('.').next().unwrap_or(name);
    system_path(&format!("sidecar/{folder}/{number}.parquet"))
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarRow {
    /// Record id as stored; `None` when it is the origin.
    pub record_id: Option<String>,
    /// Subject id.
    pub subject_id: Option<String>,
    /// Offset in the uncompressed shard.
    pub offset: Option<u64>,
    /// Length in bytes.
    pub length: Option<u64>,
    /// Name of the source.
    pub source: String,
    /// Row in the source, from 1.
    pub row: Option<u64>,
    /// Content hash.
    pub hash: u64,
}

impl SidecarRow {
    /// The record id, derived from the origin where none is stored.
    pub fn id(&self) -> String {
        match (&self.record_id, self.row) {
            (Some(id), _) => id.clone(),
            (None, Some(row)) => format!("{}#{row}", self.source),
            (None, None) => self.source.clone(),
        }
    }
}

/// Writes a sidecar as its shard grows.
pub struct SidecarWriter {
    writer: ArrowWriter<Box<dyn Sink>>,
    rows: u64,
}

impl std::fmt::Debug for SidecarWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SidecarWriter").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Columns of some rows, equally long.
#[derive(Debug, Clone)]
pub struct SidecarColumns {
    /// Record ids, unless they are the origins.
    pub record_ids: Option<StringArray>,
    /// Subject ids, if the dataset has them.
    pub subject_ids: Option<StringArray>,
    /// Offsets and lengths, unless the shard is Parquet.
    pub extents: Option<(Vec<u64>, Vec<u64>)>,
    /// Names of sources.
    pub sources: StringArray,
    /// Rows, unless each source is one record.
    pub rows: Option<Vec<u64>>,
    /// Content hashes.
    pub hashes: Vec<u64>,
}

impl SidecarWriter {
    /// Starts the sidecar of a shard.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create(store: &dyn Store, shard: &str) -> Result<Self> {
        let sink = store.create(&sidecar_path(shard))?;
        let writer = ArrowWriter::try_new(sink, schema(), Some(properties())).map_err(table::failed)?;
        Ok(Self { writer, rows: 0 })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When the columns differ in length.
    pub fn append(&mut self, columns: SidecarColumns) -> Result<()> {
        let rows = columns.hashes.len();
        let nulls = || Arc::new(UInt64Array::new_null(rows)) as ArrayRef;
        let text =
            |array: Option<StringArray>| Arc::new(array.unwrap_or_else(|| StringArray::new_null(rows))) as ArrayRef;
        let numbers = |values: Vec<u64>| Arc::new(UInt64Array::from(values)) as ArrayRef;
        let (offsets, lengths) = match columns.extents {
            Some((offsets, lengths)) => (numbers(offsets), numbers(lengths)),
            None => (nulls(), nulls()),
        };
        self.append_batch(&RecordBatch::try_new(
            schema(),
            vec![
                text(columns.record_ids),
                text(columns.subject_ids),
                offsets,
                lengths,
                Arc::new(columns.sources),
                columns.rows.map_or_else(nulls, numbers),
                numbers(columns.hashes),
            ],
        )?)
    }

    /// Adds rows of another sidecar whose records were moved by `shift` bytes.
    ///
    /// # Errors
    /// When the batch is not one of a sidecar.
    pub fn append_moved(&mut self, batch: &RecordBatch, shift: i128) -> Result<()> {
        self.append_moved_with(batch, shift, &mut |_, _| Ok(()))
    }

    /// The same, and tells the new offset and the length of each record that has them.
    ///
    /// # Errors
    /// When the batch is not one of a sidecar; whatever `visit` fails with.
    pub fn append_moved_with(
        &mut self,
        batch: &RecordBatch,
        shift: i128,
        visit: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let offsets: &UInt64Array = column(batch, "offset")?;
        let moved: UInt64Array = offsets
            .iter()
            .map(|offset| offset.map(|o| u64::try_from(i128::from(o) + shift)).transpose())
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| Error::integrity("an offset in a sidecar is out of range"))?;
        let lengths: &UInt64Array = column(batch, "length")?;
        for (offset, length) in moved.iter().zip(lengths).filter_map(|(offset, length)| offset.zip(length)) {
            visit(offset, length)?;
        }
        let mut columns = batch.columns().to_vec();
        columns[2] = Arc::new(moved);
        self.append_batch(&RecordBatch::try_new(schema(), columns)?)
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Says where the units of the shard begin.
    ///
    /// # Errors
    /// When the table cannot be encoded.
    pub fn set_frames(&mut self, table: &FrameTable) -> Result<()> {
        self.writer.append_key_value_metadata(KeyValue::new(METADATA_KEY.to_owned(), table.encode()?));
        Ok(())
    }

    /// Ends the sidecar; it has no name yet.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish(self) -> Result<Staged> {
        self.writer.into_inner().map_err(table::failed)?.finish()
    }

    fn append_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(table::failed)
    }
}

/// Every row of a sidecar, as batches with the columns of the table above.
///
/// # Errors
/// When it is missing or damaged.
pub fn read_all(store: &dyn Store, shard: &str) -> Result<Vec<RecordBatch>> {
    let path = sidecar_path(shard);
    let batches = table::read(store, &path)?;
    for batch in &batches {
        if batch.schema().fields() != schema().fields() {
            return Err(Error::integrity("expected the columns of a sidecar, found others")
                .at(store.location().join(&path).to_string()));
        }
    }
    Ok(batches)
}

/// The rows of a sidecar in batches of at most `rows`, read as they are asked for.
///
/// # Errors
/// When it is missing or its footer is damaged; each batch may fail as well.
pub fn stream(
    store: &Arc<dyn Store>,
    shard: &str,
    rows: usize,
) -> Result<impl Iterator<Item = Result<Vec<SidecarRow>>> + use<>> {
    let path = sidecar_path(shard);
    let place = store.location().join(&path).to_string();
    let facts = store.head(&path)?.ok_or_else(|| Error::integrity("expected a sidecar, found none").at(&*place))?;
    let damaged = move |e: Error| Error::integrity("the sidecar is damaged").at(&*place).cause(e);
    let object = Object::new(Arc::clone(store), path, facts.bytes);
    let mut reader = table::guarded(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(object).map_err(table::failed)?;
        builder.with_batch_size(rows).build().map_err(table::failed)
    })
    .map_err(&damaged)?;
    Ok(std::iter::from_fn(move || {
        let batch = table::guarded(|| {
            let Some(batch) = reader.next().transpose()? else { return Ok(None) };
            let mut rows = Vec::with_capacity(batch.num_rows());
            decode(&batch, &mut rows)?;
            Ok(Some(rows))
        });
        batch.map_err(&damaged).transpose()
    }))
}

/// Some rows of a sidecar, given their ordinals in ascending order; only the row groups that hold them are read.
///
/// # Errors
/// When the sidecar is missing, damaged or shorter.
pub fn read_rows(store: &Arc<dyn Store>, shard: &str, ordinals: &[u64]) -> Result<Vec<SidecarRow>> {
    let path = sidecar_path(shard);
    let place = || store.location().join(&path).to_string();
    let facts = store.head(&path)?.ok_or_else(|| Error::integrity("expected a sidecar, found none").at(place()))?;
    let object = Object::new(Arc::clone(store), path.clone(), facts.bytes);
    let rows = table::guarded(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(object).map_err(table::failed)?;
        let mut selectors = Vec::new();
        let mut at = 0;
        for ordinal in ordinals {
            let ordinal = usize::try_from(*ordinal).map_err(|_| Error::integrity("row out of range"))?;
            selectors.push(RowSelector::skip(ordinal - at));
            selectors.push(RowSelector::select(1));
            at = ordinal + 1;
        }
        let reader = builder.with_row_selection(RowSelection::from(selectors)).build().map_err(table::failed)?;
        let mut rows = Vec::with_capacity(ordinals.len());
        for batch in reader {
            decode(&batch?, &mut rows)?;
        }
        Ok(rows)
    })
    .map_err(|e| Error::integrity("the sidecar is damaged").at(place()).cause(e))?;
    if rows.len() != ordinals.len() {
        return Err(Error::integrity(format!("expected {} rows, found {}", ordinals.len(), rows.len())).at(place()));
    }
    Ok(rows)
}

/// Where the units of a compressed shard begin; `None` for shards without such a table. Reads the footer only.
///
/// # Errors
/// When the sidecar is missing or damaged.
pub fn read_frames(store: &Arc<dyn Store>, shard: &str) -> Result<Option<FrameTable>> {
    let path = sidecar_path(shard);
    let place = || store.location().join(&path).to_string();
    let facts = store.head(&path)?.ok_or_else(|| Error::integrity("expected a sidecar, found none").at(place()))?;
    let object = Object::new(Arc::clone(store), path.clone(), facts.bytes);
    table::guarded(|| {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&object).map_err(table::failed)?;
        let pairs = metadata.file_metadata().key_value_metadata();
        let text = pairs.into_iter().flatten().find(|pair| pair.key == METADATA_KEY).and_then(|p| p.value.as_deref());
        text.map(FrameTable::decode).transpose()
    })
    .map_err(|e| Error::integrity("the sidecar is damaged").at(place()).cause(e))
}

/// Rows of a batch.
pub(super) fn decode(batch: &RecordBatch, out: &mut Vec<SidecarRow>) -> Result<()> {
    let text = |name| column::<StringArray>(batch, name);
    let number = |name| column::<UInt64Array>(batch, name);
    let (ids, subjects, sources) = (text("record_id")?, text("subject_id")?, text("source")?);
    let (offsets, lengths, rows) = (number("offset")?, number("length")?, number("row")?);
    let hashes = number("hash")?;
    let some_text = |array: &StringArray, i| array.is_valid(i).then(|| array.value(i).to_owned());
    let some_number = |array: &UInt64Array, i| array.is_valid(i).then(|| array.value(i));
    out.extend((0..batch.num_rows()).map(|i| SidecarRow {
        record_id: some_text(ids, i),
        subject_id: some_text(subjects, i),
        offset: some_number(offsets, i),
        length: some_number(lengths, i),
        source: sources.value(i).to_owned(),
        row: some_number(rows, i),
        hash: hashes.value(i),
    }));
    Ok(())
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("record_id", DataType::Utf8, true),
        Field::new("subject_id", DataType::Utf8, true),
        Field::new("offset", DataType::UInt64, true),
        Field::new("length", DataType::UInt64, true),
        Field::new("source", DataType::Utf8, false),
        Field::new("row", DataType::UInt64, true),
        Field::new("hash", DataType::UInt64, false),
    ]))
}

fn properties() -> WriterProperties {
    let builder = ["offset", "length", "row"].into_iter().fold(table::properties(), table::delta);
    builder.set_column_dictionary_enabled("hash".into(), false).build()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    fn columns(range: std::ops::Range<u64>) -> SidecarColumns {
        let rows: Vec<u64> = range.collect();
        SidecarColumns {
            record_ids: None,
            subject_ids: Some(rows.iter().map(|r| Some(format!("PAT-{}", r % 7))).collect()),
            extents: Some((rows.iter().map(|r| r * 512).collect(), vec![512; rows.len()])),
            sources: rows.iter().map(|_| Some("a.csv")).collect(),
            hashes: rows.iter().map(|r| r.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect(),
            rows: Some(rows),
        }
    }

    #[test]
    fn rows_are_read_by_ordinal_across_row_groups() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::memory().unwrap());
        let mut writer = SidecarWriter::create(store.as_ref(), "tag/000003.tar.gz").unwrap();
        writer.append(columns(0..50_000)).unwrap();
        writer.append(columns(50_000..100_000)).unwrap();
        assert_eq!(writer.rows(), 100_000);
        store.publish(vec![writer.finish().unwrap()]).unwrap();
        let rows = read_rows(&store, "tag/000003.tar.gz", &[0, 32_768, 99_999]).unwrap();
        assert_eq!(rows.iter().map(|r| r.row.unwrap()).collect::<Vec<_>>(), [0, 32_768, 99_999]);
        assert_eq!(rows[2].id(), "a.csv#99999");
        assert_eq!(rows[1].offset, Some(32_768 * 512));
        assert!(read_rows(&store, "tag/000003.tar.gz", &[100_000]).is_err());
    }

    #[test]
    fn moved_rows_have_new_offsets() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::memory().unwrap());
        let mut writer = SidecarWriter::create(store.as_ref(), "t/000000.tar").unwrap();
        writer.append(columns(10..12)).unwrap();
        store.publish(vec![writer.finish().unwrap()]).unwrap();
        let mut moved = SidecarWriter::create(store.as_ref(), "t/000001.tar").unwrap();
        for batch in read_all(store.as_ref(), "t/000000.tar").unwrap() {
            moved.append_moved(&batch, -5_120).unwrap();
        }
        store.publish(vec![moved.finish().unwrap()]).unwrap();
        assert_eq!(read_rows(&store, "t/000001.tar", &[0, 1]).unwrap()[1].offset, Some(512));
    }
}
