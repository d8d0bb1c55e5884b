//! The sidecar of a shard: one row per record, in record order, with its ids and origin.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `record_id` | text, null | record id; null when it is the origin, `source#row` |
//! | `subject_id` | text, null | id of what the record is about |
//! | `offset`, `length` | u64, null | bytes of the record in the uncompressed shard; null in Parquet |
//! | `source` | text | name of the source object |
//! | `row` | u64, null | number of the record in its source, from 1; null when the source is a file per record |
//! | `hash` | u64 | XXH3-64 of the record's bytes in the shard; in Parquet of its bytes in the source |
//! | `fingerprint` | 16 bytes, null | what duplicates are found by; absent from datasets without deduplication |

pub(super) mod extents;
pub(super) mod fingerprints;
pub(super) mod frames;
pub(super) mod lengths;
pub(super) mod numbers;
pub(super) mod parts;
pub(super) mod range;
mod write;

use std::{collections::HashMap, num::NonZeroU64, ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, StringArray, UInt64Array, new_null_array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use parquet::{
    arrow::arrow_reader::ParquetRecordBatchReaderBuilder,
    file::metadata::ParquetMetaDataReader,
    schema::types::{ColumnDescPtr, SchemaDescriptor},
};

use crate::{
    codec::seal::Seal,
    dataset::{
        ids::{
            IdKind,
            column::{IdColumn, IdHashes, Texts},
        },
        sidecar::frames::{FrameTable, METADATA_KEY},
        table::{
            self, Group,
            chunks::{self, Chunk, Values},
            fetch::{Parts, pages_of},
            sealed::{self, Sealed},
            typed_column,
        },
    },
    error::{Error, Result},
    record::numbers::Numbers,
    storage::Store,
};

pub use write::{SidecarPart, SidecarWriter};

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
    /// Content hash; `None` if none was computed, which the sidecar states as 0.
    pub hash: Option<NonZeroU64>,
}

impl SidecarRow {
    /// Returns the record id, derived from the origin if none is stored.
    pub fn id_or_origin(&self) -> String {
        match (&self.record_id, self.row) {
            (Some(id), _) => id.clone(),
            (None, Some(row)) => format!("{}#{row}", self.source),
            (None, None) => self.source.clone(),
        }
    }
}

/// Rows collected before they become a row group.
const GROUP_ROWS: usize = 1 << 16;

/// Maximum rows of a row group: what a lookup may have to read of each column if it cannot read single pages.
const MAX_GROUP_ROWS: usize = 1 << 19;

/// Maximum bytes that are read before the footer is known.
const MAX_TAIL: u64 = 288 << 10;

/// Columns of some rows, equally long.
#[derive(Debug, Clone)]
pub struct SidecarColumns {
    /// Record ids, unless they are the origins.
    pub record_ids: Option<IdColumn>,
    /// Subject ids, if the dataset has them.
    pub subject_ids: Option<IdColumn>,
    /// Offsets and lengths, unless the shard is Parquet.
    pub extents: Option<(UInt64Array, UInt64Array)>,
    /// Names of sources.
    pub sources: SourceRuns,
    /// Rows, unless each source is one record.
    pub rows: Option<RowNumbers>,
    /// Content hashes.
    pub hashes: Numbers,
    /// Fingerprints, unless no record has one.
    pub fingerprints: Option<FixedSizeBinaryArray>,
}

/// Rows in sources.
#[derive(Debug, Clone)]
pub enum RowNumbers {
    /// Row numbers; some records may have none.
    Array(UInt64Array),
    /// Every record has a row number.
    Known(Numbers),
}

impl FromIterator<u64> for RowNumbers {
    fn from_iter<I: IntoIterator<Item = u64>>(each: I) -> Self {
        Self::Known(each.into_iter().collect())
    }
}

impl RowNumbers {
    fn len(&self) -> usize {
        match self {
            Self::Array(array) => array.len(),
            Self::Known(numbers) => numbers.len(),
        }
    }

    fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::Array(array) => Self::Array(array.slice(range.start, range.len())),
            Self::Known(numbers) => Self::Known(numbers.slice(range)),
        }
    }

    fn to_array(&self) -> UInt64Array {
        match self {
            Self::Array(array) => array.clone(),
            Self::Known(numbers) => numbers.iter().collect::<Vec<u64>>().into(),
        }
    }

    fn encode_chunk(&self, column: &ColumnDescPtr) -> Result<Chunk> {
        match self {
            Self::Known(Numbers::Progressions(progressions)) => {
                chunks::encode_chunk(column, self.len(), &Values::Counted(progressions))
            }
            other => chunks::encode_chunk(column, self.len(), &Values::Growing(&other.to_array())),
        }
    }
}

/// Names of the sources of consecutive records.
#[derive(Debug, Clone, Default)]
pub struct SourceRuns {
    names: Vec<Arc<str>>,
    /// Row after the last one of each source.
    ends: Vec<usize>,
}

impl SourceRuns {
    /// Adds records of a source.
    pub fn push(&mut self, name: &Arc<str>, records: usize) {
        if records == 0 {
            return;
        }
        let end = self.len() + records;
        match (self.names.last(), self.ends.last_mut()) {
            (Some(last), Some(last_end)) if last == name => *last_end = end,
            _ => {
                self.names.push(Arc::clone(name));
                self.ends.push(end);
            }
        }
    }

    /// Returns the runs of one name for each record.
    fn from_names(names: &StringArray) -> Self {
        let mut runs = Self::default();
        if let Some(name) = all_same(names) {
            runs.push(&name.into(), names.len());
            return runs;
        }
        // In shuffled shards, hardly any neighbours have one source, so each name is allocated once.
        let mut known: HashMap<&str, Arc<str>> = HashMap::new();
        let mut push = |name, count| runs.push(known.entry(name).or_insert_with(|| name.into()), count);
        let (mut last, mut count) = ("", 0);
        for name in names.iter().flatten() {
            if name != last {
                push(last, count);
                (last, count) = (name, 0);
            }
            count += 1;
        }
        push(last, count);
        runs
    }

    /// Records of one source.
    pub fn for_source(name: &Arc<str>, records: usize) -> Self {
        let mut runs = Self::default();
        runs.push(name, records);
        runs
    }

    /// Returns the name of each record's source.
    fn to_texts(&self) -> StringArray {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let lengths = self.ends.iter().zip(starts).map(|(end, start)| end - start);
        let repeated = self.names.iter().zip(lengths).flat_map(|(name, n)| std::iter::repeat_n(name.as_ref(), n));
        StringArray::from_iter_values(repeated)
    }

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns some of the records.
    #[must_use]
    pub fn slice(&self, first: usize, records: usize) -> Self {
        let mut out = Self::default();
        let mut at = first;
        let mut run = self.ends.partition_point(|end| *end <= first);
        while at < first + records && run < self.ends.len() {
            let end = self.ends[run].min(first + records);
            out.push(&self.names[run], end - at);
            (at, run) = (end, run + 1);
        }
        out
    }

    fn extend(&mut self, other: &Self) {
        let mut start = 0;
        for (name, end) in other.names.iter().zip(&other.ends) {
            self.push(name, end - start);
            start = *end;
        }
    }

    fn encode_chunk(&self, column: &ColumnDescPtr) -> Result<Chunk> {
        let rows = self.len();
        if self.names.len() == rows {
            let names = StringArray::from_iter_values(self.names.iter().map(AsRef::as_ref));
            return chunks::encode_chunk(column, rows, &Values::Texts(&names));
        }
        let (mut dictionary, mut known): (Vec<&str>, HashMap<&str, u32>) = (Vec::new(), HashMap::new());
        let mut keys = Vec::with_capacity(rows);
        for (name, end) in self.names.iter().zip(&self.ends) {
            let next = u32::try_from(dictionary.len()).unwrap_or(u32::MAX);
            let key = *known.entry(name).or_insert(next);
            if key == next {
                dictionary.push(name);
            }
            keys.resize(*end, key);
        }
        chunks::encode_chunk(column, rows, &Values::Keyed { keys: &keys, dictionary: &dictionary, valid: None })
    }
}

/// Returns the text that all rows share, if they do. Texts of equal length stored back to back are equal if all bytes
/// equal those one text further on.
fn all_same(texts: &StringArray) -> Option<&str> {
    let offsets = texts.value_offsets();
    let (first, last) = (*offsets.first()?, *offsets.last()?);
    let length = offsets.get(1)? - first;
    let even = offsets.windows(2).fold(true, |even, pair| even & (pair[1] - pair[0] == length));
    let place = |offset: i32| usize::try_from(offset).ok();
    let bytes = texts.value_data().get(place(first)?..place(last)?)?;
    let (head, tail) = (bytes.get(..bytes.len() - place(length)?)?, bytes.get(place(length)?..)?);
    (even && texts.null_count() == 0 && head == tail).then(|| texts.value(0))
}

impl SidecarColumns {
    /// Returns the columns of a batch of another sidecar.
    ///
    /// # Errors
    /// If the batch is not one of a sidecar.
    pub fn from_batch(batch: &RecordBatch) -> Result<Self> {
        let ids = |name| -> Result<Option<IdColumn>> {
            let texts: &StringArray = typed_column(batch, name)?;
            Ok((texts.null_count() < texts.len()).then(|| texts.clone().into()))
        };
        let numbers = |name| -> Result<Option<UInt64Array>> {
            let numbers: &UInt64Array = typed_column(batch, name)?;
            Ok((numbers.null_count() < numbers.len()).then(|| numbers.clone()))
        };
        let names: &StringArray = typed_column(batch, "source")?;
        let hashes: &UInt64Array = typed_column(batch, "hash")?;
        Ok(Self {
            record_ids: ids("record_id")?,
            subject_ids: ids("subject_id")?,
            extents: numbers("offset")?.zip(numbers("length")?),
            sources: SourceRuns::from_names(names),
            rows: numbers("row")?.map(RowNumbers::Array),
            hashes: hashes.values().to_vec().into(),
            fingerprints: fingerprints::of_batch(batch)?,
        })
    }

    /// Returns some of the rows.
    #[must_use]
    pub fn slice(&self, first: usize, rows: usize) -> Self {
        Self {
            record_ids: self.record_ids.as_ref().map(|ids| ids.slice(first, rows)),
            subject_ids: self.subject_ids.as_ref().map(|ids| ids.slice(first, rows)),
            extents: self.extents.as_ref().map(|(o, l)| (o.slice(first, rows), l.slice(first, rows))),
            sources: self.sources.slice(first, rows),
            rows: self.rows.as_ref().map(|numbers| numbers.slice(first..first + rows)),
            hashes: self.hashes.slice(first..first + rows),
            fingerprints: self.fingerprints.as_ref().map(|array| array.slice(first, rows)),
        }
    }

    /// Concatenates columns of consecutive rows.
    ///
    /// # Errors
    /// When they are larger than an array can be.
    pub fn join_parts(parts: Vec<Self>) -> Result<Self> {
        let ids = |of: fn(&Self) -> Option<&IdColumn>| -> Result<Option<IdColumn>> {
            if parts.iter().all(|part| of(part).is_none()) {
                return Ok(None);
            }
            let texts = |part: &Self| {
                of(part).map_or_else(|| StringArray::new_null(part.hashes.len()), |ids| ids.texts().clone())
            };
            Ok(Some(IdColumn::join_parts(&parts.iter().map(texts).collect::<Vec<_>>())?))
        };
        let numbers = |all: Vec<Option<UInt64Array>>| -> Result<Option<UInt64Array>> {
            if all.iter().all(Option::is_none) {
                return Ok(None);
            }
            let nulls = |part: &Self| UInt64Array::new_null(part.hashes.len());
            let all: Vec<UInt64Array> =
                all.into_iter().zip(&parts).map(|(array, part)| array.unwrap_or_else(|| nulls(part))).collect();
            let joined = arrow::compute::concat(&all.iter().map(|part| part as &dyn Array).collect::<Vec<_>>())?;
            Ok(Some(joined.to_data().into()))
        };
        let rows = parts.iter().map(|part| part.rows.as_ref().map(RowNumbers::to_array));
        let rows = numbers(rows.collect())?.map(RowNumbers::Array);
        let extents: Vec<_> = parts.iter().map(|part| part.extents.clone().unzip()).collect();
        let (offsets, lengths) = extents.into_iter().unzip();
        let extents = numbers(offsets)?.zip(numbers(lengths)?);
        let mut sources = SourceRuns::default();
        parts.iter().for_each(|part| sources.extend(&part.sources));
        let fingerprints = parts.iter().map(|part| (part.fingerprints.as_ref(), part.hashes.len()));
        let fingerprints = fingerprints::join_arrays(fingerprints.collect())?;
        Ok(Self {
            record_ids: ids(|part| part.record_ids.as_ref())?,
            subject_ids: ids(|part| part.subject_ids.as_ref())?,
            extents,
            rows,
            sources,
            fingerprints,
            hashes: parts.into_iter().fold(Numbers::default(), |mut all, part| {
                all.append(part.hashes);
                all
            }),
        })
    }

    /// Returns the rows as a batch with the columns of a sidecar, with or without that of fingerprints.
    ///
    /// # Errors
    /// When the columns differ in length.
    pub fn to_batch(&self, fingerprints: bool) -> Result<RecordBatch> {
        let rows = self.hashes.len();
        let texts = |ids: Option<&IdColumn>| ids.map_or_else(|| StringArray::new_null(rows), |ids| ids.texts().clone());
        let numbers = |numbers: Option<UInt64Array>| numbers.unwrap_or_else(|| UInt64Array::new_null(rows));
        let (offsets, lengths) = self.extents.clone().unzip();
        let schema = sidecar_schema(fingerprints);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(texts(self.record_ids.as_ref())),
            Arc::new(texts(self.subject_ids.as_ref())),
            Arc::new(numbers(offsets)),
            Arc::new(numbers(lengths)),
            Arc::new(self.sources.to_texts()),
            Arc::new(numbers(self.rows.as_ref().map(RowNumbers::to_array))),
            Arc::new(UInt64Array::from(self.hashes.iter().collect::<Vec<u64>>())),
        ];
        if let Some(field) = schema.fields().get(columns.len()) {
            let known = self.fingerprints.as_ref().map(|array| Arc::new(array.clone()) as ArrayRef);
            columns.push(known.unwrap_or_else(|| new_null_array(field.data_type(), rows)));
        }
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    fn check_lengths(&self) -> Result<()> {
        let rows = self.hashes.len();
        let lengths = [
            self.record_ids.as_ref().map(|ids| ids.texts().len()),
            self.subject_ids.as_ref().map(|ids| ids.texts().len()),
            self.extents.as_ref().map(|(offsets, _)| offsets.len()),
            self.extents.as_ref().map(|(_, lengths)| lengths.len()),
            Some(self.sources.len()),
            self.rows.as_ref().map(RowNumbers::len),
            self.fingerprints.as_ref().map(FixedSizeBinaryArray::len),
        ];
        if lengths.iter().flatten().all(|length| *length == rows) {
            return Ok(());
        }
        Err(Error::internal(format!("expected columns of {rows} rows for a sidecar, found {lengths:?}")))
    }
}

/// Encoded rows of a sidecar.
pub struct SidecarGroups(Vec<Group>);

impl std::fmt::Debug for SidecarGroups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SidecarGroups").field(&self.0.len()).finish()
    }
}

impl SidecarGroups {
    /// Encodes rows, with or without the column of fingerprints; can run on any thread and should be given many rows.
    ///
    /// # Errors
    /// When the columns differ in length.
    pub fn encode_columns(columns: &SidecarColumns, fingerprints: bool) -> Result<Self> {
        columns.check_lengths()?;
        let described = table::parquet_schema(&sidecar_schema(fingerprints))?;
        let rows = columns.hashes.len();
        let parts = rows.div_ceil(MAX_GROUP_ROWS).max(1);
        let bounds = (0..parts).map(|part| part * rows / parts..(part + 1) * rows / parts);
        bounds.map(|range| columns.encode_group(&described, range)).collect::<Result<_>>().map(Self)
    }
}

impl SidecarGroups {
    /// Returns the hashes of the ids of a kind with their columns, for the id index has them in the same form if they
    /// ascend.
    #[must_use]
    pub fn share_columns(&self, kind: IdKind, hashes: IdHashes) -> IdHashes {
        let column = match kind {
            IdKind::Record => 0,
            IdKind::Subject => 1,
        };
        hashes.encoded_as(self.0.iter().filter_map(|group| group.chunks.get(column)).cloned().collect())
    }
}

impl SidecarColumns {
    fn encode_group(&self, columns: &SchemaDescriptor, range: Range<usize>) -> Result<Group> {
        let rows = range.len();
        let column = |i| columns.column(i);
        let ids = |i, ids: Option<&IdColumn>| match ids.map(|ids| ids.compact_texts(range.start, rows)) {
            None => chunks::encode_chunk(&column(i), rows, &Values::Nulls),
            Some(Texts::Plain(texts)) => chunks::encode_chunk(&column(i), rows, &Values::Texts(&texts)),
            Some(Texts::Encoded(chunk)) => chunk.with_column(&column(i)),
            Some(Texts::Keyed { keys, dictionary, valid }) => {
                let values = Values::Keyed { keys: &keys, dictionary: &dictionary, valid: valid.as_ref() };
                chunks::encode_chunk(&column(i), rows, &values)
            }
        };
        let numbers = |i, numbers: Option<&UInt64Array>| match numbers {
            None => chunks::encode_chunk(&column(i), rows, &Values::Nulls),
            Some(numbers) => {
                chunks::encode_chunk(&column(i), rows, &Values::Growing(&numbers.slice(range.start, rows)))
            }
        };
        let mut chunks = vec![
            ids(0, self.record_ids.as_ref())?,
            ids(1, self.subject_ids.as_ref())?,
            numbers(2, self.extents.as_ref().map(|(offsets, _)| offsets))?,
            numbers(3, self.extents.as_ref().map(|(_, lengths)| lengths))?,
            self.sources.slice(range.start, rows).encode_chunk(&column(4))?,
            match &self.rows {
                None => chunks::encode_chunk(&column(5), rows, &Values::Nulls)?,
                Some(known) => known.slice(range.clone()).encode_chunk(&column(5))?,
            },
            hash_chunk(&column(6), &self.hashes.slice(range.clone()))?,
        ];
        if columns.num_columns() > chunks.len() {
            let of_range = self.fingerprints.as_ref().map(|array| array.slice(range.start, rows));
            let values = of_range.as_ref().map_or(Values::Nulls, Values::Fixed);
            chunks.push(chunks::encode_chunk(&column(7), rows, &values)?);
        }
        Ok(Group { chunks, rows: rows as u64 })
    }
}

/// Encodes hashes, which are random unless none was computed, or many records share one, as cells of a grid do.
fn hash_chunk(column: &ColumnDescPtr, hashes: &Numbers) -> Result<Chunk> {
    if hashes.are_zero() {
        let keys = vec![0; hashes.len()];
        return chunks::encode_chunk(column, keys.len(), &Values::Repeated { keys: &keys, dictionary: &[0] });
    }
    let progressions = match hashes {
        Numbers::Each(each) => return chunks::encode_chunk(column, each.len(), &Values::Noise(each)),
        Numbers::Progressions(progressions) if progressions.iter().all(|progression| progression.step == 0) => {
            progressions
        }
        Numbers::Progressions(_) => {
            let each: Vec<u64> = hashes.iter().collect();
            return chunks::encode_chunk(column, each.len(), &Values::Noise(&each));
        }
    };
    let dictionary: Vec<u64> = progressions.iter().map(|progression| progression.first).collect();
    let mut keys = Vec::with_capacity(hashes.len());
    for (progression, key) in progressions.iter().zip(0_u32..) {
        keys.resize(keys.len() + progression.count, key);
    }
    chunks::encode_chunk(column, keys.len(), &Values::Repeated { keys: &keys, dictionary: &dictionary })
}

/// Positions of records in a framed shard, and the hashes of their bytes, in order.
#[derive(Debug, Clone)]
pub struct RecordExtents {
    /// Offsets in the uncompressed shard.
    pub offsets: UInt64Array,
    /// Bytes of each.
    pub lengths: UInt64Array,
    /// XXH3-64 of these bytes.
    pub hashes: UInt64Array,
}

impl RecordExtents {
    /// Returns those in a batch of a sidecar.
    ///
    /// # Errors
    /// When the batch is not one of a sidecar of a framed shard.
    pub fn from_batch(batch: &RecordBatch) -> Result<Self> {
        let numbers = |name| -> Result<UInt64Array> {
            let numbers: &UInt64Array = typed_column(batch, name)?;
            if numbers.null_count() == 0 {
                return Ok(numbers.clone());
            }
            Err(Error::integrity(format!("expected a `{name}` for every record in a sidecar, found none")))
        };
        Ok(Self { offsets: numbers("offset")?, lengths: numbers("length")?, hashes: numbers("hash")? })
    }
}

/// Returns the ids of the first and the last record of a sidecar; `None` if it is empty.
///
/// # Errors
/// When a batch is not one of a sidecar.
pub fn end_ids(batches: &[RecordBatch]) -> Result<Option<(String, String)>> {
    let mut filled = batches.iter().filter(|batch| batch.num_rows() > 0);
    let Some(first) = filled.next() else { return Ok(None) };
    let last = filled.next_back().unwrap_or(first);
    let mut ends = Vec::with_capacity(2);
    decode_batch(&first.slice(0, 1), &mut ends)?;
    decode_batch(&last.slice(last.num_rows() - 1, 1), &mut ends)?;
    Ok(Some((ends[0].id_or_origin(), ends[1].id_or_origin())))
}

/// Returns every row of a sidecar, as batches with the columns of the table above.
///
/// # Errors
/// When it is missing or damaged.
pub fn read_all(store: &dyn Store, sidecar: &Sealed) -> Result<Vec<RecordBatch>> {
    let batches = table::read(store, sidecar)?;
    check_columns(&batches).map_err(|e| e.at_location(sidecar.display_location(store)))?;
    Ok(batches)
}

/// Whether the columns are those of a sidecar, with fingerprints or without.
fn is_sidecar(of: &Schema) -> bool {
    [false, true].into_iter().any(|fingerprints| of.fields() == sidecar_schema(fingerprints).fields())
}

fn check_columns(batches: &[RecordBatch]) -> Result<()> {
    match batches.iter().all(|batch| is_sidecar(batch.schema_ref())) {
        true => Ok(()),
        false => Err(Error::integrity("expected the columns of a sidecar, found others")),
    }
}

/// Streams the rows of a sidecar in batches of at most `rows`.
///
/// # Errors
/// When it is missing or its footer is damaged; each batch may fail as well.
pub fn stream_rows(
    store: &Arc<dyn Store>,
    sidecar: &Sealed,
    rows: usize,
) -> Result<impl Iterator<Item = Result<Vec<SidecarRow>>> + use<>> {
    let place = sidecar.display_location(store.as_ref());
    let damaged = move |e: Error| table::damage_error(e, "the sidecar is damaged", place.clone());
    let object = sealed::open_sealed(store, sidecar)?;
    let mut reader = table::catch_panics(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(object).map_err(table::parquet_error)?;
        builder.with_batch_size(rows).build().map_err(table::parquet_error)
    })
    .map_err(&damaged)?;
    Ok(std::iter::from_fn(move || {
        let batch = table::catch_panics(|| {
            let Some(batch) = reader.next().transpose()? else { return Ok(None) };
            let mut rows = Vec::with_capacity(batch.num_rows());
            decode_batch(&batch, &mut rows)?;
            Ok(Some(rows))
        });
        batch.map_err(&damaged).transpose()
    }))
}

/// Streams the rows of a sidecar as batches of at most `rows`, with the columns of the table above.
///
/// # Errors
/// When it is missing or its footer is damaged; each batch may fail as well.
pub fn stream_batches(
    store: &Arc<dyn Store>,
    sidecar: &Sealed,
    rows: usize,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
    let place = sidecar.display_location(store.as_ref());
    let builder = table::open_table(store, sidecar)?.with_batch_size(rows);
    let damaged = move |e: Error| table::damage_error(e, "the sidecar is damaged", place.clone());
    let mut reader = table::catch_panics(|| builder.build().map_err(table::parquet_error)).map_err(&damaged)?;
    Ok(std::iter::from_fn(move || {
        let batch = table::catch_panics(|| Ok(reader.next().transpose()?)).and_then(|batch| match batch {
            Some(batch) if !is_sidecar(batch.schema_ref()) => {
                Err(Error::integrity("expected the columns of a sidecar, found others"))
            }
            batch => Ok(batch),
        });
        batch.map_err(&damaged).transpose()
    }))
}

/// Returns some rows of a sidecar, given their ordinals in ascending order; only the pages that hold them are read.
///
/// # Errors
/// When the sidecar is missing, damaged or shorter.
pub fn read_rows(store: &Arc<dyn Store>, sidecar: &Sealed, ordinals: &[u64]) -> Result<Vec<SidecarRow>> {
    Ok(read_rows_near(store, sidecar, ordinals, false)?.0)
}

/// Like [`read_rows`], and returns the frame table if it is requested and known. A small sidecar is
/// read whole.
///
/// # Errors
/// As [`read_rows`].
pub(in crate::dataset) fn read_rows_near(
    store: &Arc<dyn Store>,
    sidecar: &Sealed,
    ordinals: &[u64],
    frames: bool,
) -> Result<(Vec<SidecarRow>, Option<FrameTable>)> {
    let place = || sidecar.display_location(store.as_ref());
    let mut parts = Parts::open(store, sidecar, first_read(&sidecar.seal), None)?;
    let read = table::catch_panics(|| {
        // With a page index, single pages can be read.
        let metadata = parts.read_metadata(true)?;
        let pairs = metadata.metadata().file_metadata().key_value_metadata();
        let text = pairs.into_iter().flatten().find(|pair| pair.key == METADATA_KEY).and_then(|p| p.value.as_deref());
        let frames = text.filter(|_| frames).map(FrameTable::from_json).transpose()?;
        parts.fetch_ranges(&pages_of(metadata.metadata(), ordinals))?;
        let reader = parts.into_reader(metadata).with_row_selection(table::select_rows(ordinals)?);
        let mut rows = Vec::with_capacity(ordinals.len());
        for batch in reader.build().map_err(table::parquet_error)? {
            decode_batch(&batch?, &mut rows)?;
        }
        Ok((rows, frames))
    });
    let (rows, frames) = read.map_err(|e| table::damage_error(e, "the sidecar is damaged", place()))?;
    if rows.len() != ordinals.len() {
        return Err(
            Error::integrity(format!("expected {} rows, found {}", ordinals.len(), rows.len())).at_location(place())
        );
    }
    Ok((rows, frames))
}

/// Returns the number of bytes to read first at the end of a sidecar: all of a small one, because another request costs
/// more than some extra bytes.
fn first_read(seal: &Seal) -> u64 {
    if seal.bytes <= MAX_TAIL { seal.bytes } else { seal.tail }
}

/// Returns the frame table of a compressed shard; `None` for shards without one. Reads the footer only.
///
/// # Errors
/// When the sidecar is missing or damaged.
pub fn read_frames(store: &Arc<dyn Store>, sidecar: &Sealed) -> Result<Option<FrameTable>> {
    read_metadata(store, sidecar, METADATA_KEY, FrameTable::from_json)
}

/// Metadata key that states what the hashes cover, if known.
const HASHES_KEY: &str = "shardify.hashes";
/// Value of [`HASHES_KEY`]: the hashes of rows of a Parquet shard cover its own values.
const OF_VALUES: &str = "values";

/// Whether the hashes of a Parquet shard cover its own values. Reads the footer only.
///
/// # Errors
/// When the sidecar is missing or damaged.
pub fn hashes_cover_values(store: &Arc<dyn Store>, sidecar: &Sealed) -> Result<bool> {
    Ok(read_metadata(store, sidecar, HASHES_KEY, |text| Ok(text == OF_VALUES))?.unwrap_or(false))
}

/// Returns the value of a metadata key of a sidecar.
fn read_metadata<T>(
    store: &Arc<dyn Store>,
    sidecar: &Sealed,
    key: &str,
    decode: impl Fn(&str) -> Result<T>,
) -> Result<Option<T>> {
    let object = sealed::open_sealed(store, sidecar)?;
    table::catch_panics(|| {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&object).map_err(table::parquet_error)?;
        let pairs = metadata.file_metadata().key_value_metadata();
        let text = pairs.into_iter().flatten().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
        text.map(&decode).transpose()
    })
    .map_err(|e| table::damage_error(e, "the sidecar is damaged", sidecar.display_location(store.as_ref())))
}

/// Decodes the rows of a batch.
pub(in crate::dataset) fn decode_batch(batch: &RecordBatch, out: &mut Vec<SidecarRow>) -> Result<()> {
    let text = |name| typed_column::<StringArray>(batch, name);
    let number = |name| typed_column::<UInt64Array>(batch, name);
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
        hash: NonZeroU64::new(hashes.value(i)),
    }));
    Ok(())
}

/// Returns the columns of a sidecar.
pub fn sidecar_schema(fingerprints: bool) -> SchemaRef {
    let mut fields = vec![
        Field::new("record_id", DataType::Utf8, true),
        Field::new("subject_id", DataType::Utf8, true),
        Field::new("offset", DataType::UInt64, true),
        Field::new("length", DataType::UInt64, true),
        Field::new("source", DataType::Utf8, false),
        Field::new("row", DataType::UInt64, true),
        Field::new("hash", DataType::UInt64, false),
    ];
    if fingerprints {
        fields.push(Field::new(fingerprints::COLUMN, DataType::FixedSizeBinary(fingerprints::BYTES), true));
    }
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn sources_are_distinguished_wherever_they_change() {
        for texts in [
            vec!["a"; 5],
            vec!["ab", "ab", "ba"],
            vec!["abab", "ab", "ab"],
            vec!["a", "b", "a", "a"],
            vec!["", "", "a"],
            vec!["", ""],
            vec!["aa", "a", "aaa"],
            vec![],
        ] {
            for first in 0..texts.len().max(1) {
                let array = StringArray::from(texts.clone());
                let runs = SourceRuns::from_names(&array.slice(first, texts.len().saturating_sub(first)));
                let mut start = 0;
                let found: Vec<&str> = runs
                    .names
                    .iter()
                    .zip(&runs.ends)
                    .flat_map(|(name, end)| std::iter::repeat_n(&**name, end - std::mem::replace(&mut start, *end)))
                    .collect();
                assert_eq!(found, texts.get(first..).unwrap_or_default(), "{texts:?} {first}");
            }
        }
    }

    fn columns(range: std::ops::Range<u64>) -> SidecarColumns {
        let rows: Vec<u64> = range.collect();
        SidecarColumns {
            record_ids: None,
            subject_ids: Some(rows.iter().map(|r| Some(format!("PAT-{}", r % 7))).collect::<StringArray>().into()),
            extents: Some((rows.iter().map(|r| r * 512).collect(), vec![512; rows.len()].into())),
            sources: SourceRuns::for_source(&"a.csv".into(), rows.len()),
            hashes: rows.iter().map(|r| r.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect::<Vec<_>>().into(),
            rows: Some(RowNumbers::Array(rows.into())),
            fingerprints: None,
        }
    }

    #[test]
    fn rows_are_read_by_ordinal_across_row_groups() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer = SidecarWriter::create(store.as_ref(), "tag/000003.tar.gz", false).unwrap();
        writer.append_rows(columns(0..50_000)).unwrap();
        writer.append_rows(columns(50_000..100_000)).unwrap();
        assert_eq!(writer.row_count(), 100_000);
        let sidecar = publish(store.as_ref(), writer);
        let rows = read_rows(&store, &sidecar, &[0, 32_768, 99_999]).unwrap();
        assert_eq!(rows.iter().map(|r| r.row.unwrap()).collect::<Vec<_>>(), [0, 32_768, 99_999]);
        assert_eq!(rows[2].id_or_origin(), "a.csv#99999");
        assert_eq!(rows[1].offset, Some(32_768 * 512));
        assert!(read_rows(&store, &sidecar, &[100_000]).is_err());
        assert_eq!(
            stream_batches(&store, &sidecar, 9_000).unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(),
            100_000
        );
    }

    #[test]
    fn a_flipped_bit_is_detected_wherever_it_is_read() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer = SidecarWriter::create(store.as_ref(), "tag/000003.parquet", false).unwrap();
        writer.append_rows(columns(0..200_000)).unwrap();
        let sidecar = publish(store.as_ref(), writer);
        let whole = store.get(&sidecar.path).unwrap().unwrap();
        let seal = sidecar.seal;
        assert!(!seal.is_whole() && seal.bytes == whole.len() as u64);
        let (asked, right) = ([70_000, 199_999], read_rows(&store, &sidecar, &[70_000, 199_999]).unwrap());
        let mut refused = 0;
        for at in (0..whole.len()).step_by(10_007).chain([whole.len() - 1, whole.len() - 9]) {
            let mut flipped = whole.to_vec();
            flipped[at] ^= 1;
            store.put(&sidecar.path, flipped.into()).unwrap();
            let integrity = |e: Error| assert_eq!(e.kind(), crate::error::Kind::Integrity, "{at}");
            integrity(read_all(store.as_ref(), &sidecar).unwrap_err());
            integrity(sealed::check_sealed(&store, &sidecar).unwrap_err());
            let streamed = stream_batches(&store, &sidecar, 8_192).and_then(Iterator::collect::<Result<Vec<_>>>);
            // A dictionary may be read before pages of other columns, but every byte is checked.
            integrity(streamed.unwrap_err());
            match read_rows(&store, &sidecar, &asked) {
                Ok(rows) => assert_eq!(rows, right, "{at}"),
                Err(e) => {
                    refused += 1;
                    integrity(e);
                }
            }
        }
        assert!(refused > 2, "{refused}");
        store.put(&sidecar.path, whole.slice(..whole.len() - 1)).unwrap();
        assert_eq!(read_rows(&store, &sidecar, &asked).unwrap_err().kind(), crate::error::Kind::Integrity);
    }

    fn publish(store: &dyn Store, writer: SidecarWriter) -> Sealed {
        let staged = writer.finish().unwrap();
        let sidecar = Sealed::from_staged(&staged).unwrap();
        store.publish_staged(vec![staged]).unwrap();
        sidecar
    }

    #[test]
    fn moved_rows_have_new_offsets() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer = SidecarWriter::create(store.as_ref(), "t/000000.tar", false).unwrap();
        writer.append_rows(columns(10..12)).unwrap();
        let sidecar = publish(store.as_ref(), writer);
        let mut moved = SidecarWriter::create(store.as_ref(), "t/000001.tar", false).unwrap();
        for batch in read_all(store.as_ref(), &sidecar).unwrap() {
            moved.append_moved(&batch, -5_120).unwrap();
        }
        let sidecar = publish(store.as_ref(), moved);
        assert_eq!(read_rows(&store, &sidecar, &[0, 1]).unwrap()[1].offset, Some(512));
    }
}
