//! The list of sources: what was converted, so that a repeated run finds nothing to do and a changed source is
//! detected.

use std::{collections::BTreeMap, num::NonZeroU64, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array},
    datatypes::{DataType, Field, Schema, TimeUnit, UInt64Type},
};
use jiff::Timestamp;

use parquet::{
    arrow::arrow_reader::ArrowReaderMetadata,
    file::{metadata::RowGroupMetaData, statistics::Statistics},
};

use crate::{
    dataset::{
        log::bounds::check_number,
        table::{
            self,
            fetch::{Parts, group_range, in_parallel},
            list::ListRef,
            typed_column,
        },
    },
    error::{Error, Result},
    id::Version,
    record::stream_tag::StreamTag,
    storage::Store,
};

/// One converted input object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// Its URL or absolute path.
    pub uri: String,
    /// Name under which origins refer to it.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of its last modification.
    pub modified: Timestamp,
    /// Entity tag, if the store provides one; of a named stream, a [`StreamTag`].
    pub etag: Option<String>,
    /// XXH3-64 of its bytes; 0 for a file that is one part of a sample. Of a named stream, what its tag says.
    pub hash: u64,
    /// Records read from it, rejected ones included; 0 for a file that is one part of a sample.
    pub records: u64,
    /// Number of its first written record, from which on its records are consecutive.
    pub first_record: u64,
    /// Numbers of the first records of its other runs, if it has several: one for each split of a divided dataset.
    pub other_firsts: Vec<u64>,
    /// Description of its records if it holds arrays: a [`Layout`](crate::array::origin::Layout) in JSON.
    pub arrays: Option<String>,
    /// XXH3-64 of its bytes, for a file that is one part of a sample, if requested.
    pub part_hash: Option<u64>,
    /// Version that added it.
    pub version: Version,
    /// Version that removed its records; `None` while the dataset has them.
    pub removed: Option<Version>,
}

impl SourceRow {
    /// Whether it is a file that is one part of a sample: the records of samples are counted nowhere but in their
    /// shards, and such a file is not hashed as a whole source.
    pub fn is_part_of_sample(&self) -> bool {
        self.records == 0 && self.hash == 0
    }

    /// Returns the tag of a named stream; `None` for any other source.
    pub fn stream_tag(&self) -> Option<StreamTag<'_>> {
        StreamTag::parse(self.etag.as_deref()?)
    }

    /// Returns the XXH3-64 of its bytes; `None` if it was not computed.
    pub fn content_hash(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.hash).or_else(|| self.part_hash.and_then(NonZeroU64::new))
    }

    /// Returns the number of the first record of each of its runs.
    pub fn first_records(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first_record).chain(self.other_firsts.iter().copied())
    }

    /// Returns the row with `base` added to the numbers of its records.
    #[must_use]
    pub fn shifted_by(mut self, base: u64) -> Self {
        self.first_record += base;
        self.other_firsts.iter_mut().for_each(|first| *first += base);
        self
    }
}

/// Sources that a run adds, produced on demand because there may be millions, while those before are written.
pub trait NewSources: Sync {
    /// Passes the rows to `visit`, with record numbers relative to the first new record.
    ///
    /// # Errors
    /// Those of `visit`, and of reading the rows if they are stored.
    fn each_row(&self, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()>;

    /// Returns the optional columns that some of them have a value in.
    fn optional_columns(&self) -> OptionalColumns {
        OptionalColumns::default()
    }
}

/// No sources.
impl NewSources for () {
    fn each_row(&self, _visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

/// A small number of sources.
impl NewSources for Vec<SourceRow> {
    fn each_row(&self, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
        self.iter().cloned().try_for_each(visit)
    }
}

/// Name of the column that only lists of sources with arrays have.
const ARRAYS: &str = "arrays";

/// Name of the column that only lists with removed sources have.
const REMOVED: &str = "removed";

/// Name of the column that only lists with hashed parts of samples have.
const PART_HASH: &str = "part_hash";

/// Name of the column that only lists of divided datasets have.
const OTHER_FIRSTS: &str = "other_first_records";

/// The optional columns of a list, which are omitted where no source has a value in them.
#[derive(Debug, Clone, Copy, Default)]
pub struct OptionalColumns {
    /// Some sources hold arrays.
    pub arrays: bool,
    /// Some sources were removed.
    pub removed: bool,
    /// Some sources are parts of samples with known hashes.
    pub part_hashes: bool,
    /// The records of some sources are not consecutive.
    pub other_firsts: bool,
}

impl OptionalColumns {
    /// Returns the optional columns among the columns of a list.
    pub(in crate::dataset) fn from_columns(columns: &[String]) -> Self {
        let has = |name: &str| columns.iter().any(|column| column == name);
        Self {
            arrays: has(ARRAYS),
            removed: has(REMOVED),
            part_hashes: has(PART_HASH),
            other_firsts: has(OTHER_FIRSTS),
        }
    }
}

/// Returns the columns of a list; optional ones are omitted if they would be empty.
pub(in crate::dataset) fn source_schema() -> Schema {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, false);
    let mut fields = vec![
        field("uri", DataType::Utf8),
        field("name", DataType::Utf8),
        field("bytes", DataType::UInt64),
        field("modified", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        Field::new("etag", DataType::Utf8, true),
        field("hash", DataType::UInt64),
        field("records", DataType::UInt64),
        field("first_record", DataType::UInt64),
        field("version", DataType::UInt64),
    ];
    fields.push(Field::new(ARRAYS, DataType::Utf8, true));
    fields.push(Field::new(REMOVED, DataType::UInt64, true));
    fields.push(Field::new(PART_HASH, DataType::UInt64, true));
    fields.push(Field::new_list(OTHER_FIRSTS, Field::new_list_field(DataType::UInt64, true), true));
    Schema::new(fields)
}

/// Passes the rows that `each` visits to `give`, encoded for a list with some of the optional columns.
pub(in crate::dataset) fn in_batches(
    optional: OptionalColumns,
    each: impl FnOnce(&mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()>,
    give: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let mut pending = Vec::new();
    each(&mut |source| {
        pending.push(source);
        if pending.len() < table::BATCH_ROWS {
            return Ok(());
        }
        give(to_batch(&std::mem::take(&mut pending), optional)?)
    })?;
    if pending.is_empty() { Ok(()) } else { give(to_batch(&pending, optional)?) }
}

/// Encodes rows for a list with some of the optional columns.
pub(in crate::dataset) fn to_batch(sources: &[SourceRow], optional: OptionalColumns) -> Result<RecordBatch> {
    let numbers =
        |of: fn(&SourceRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(sources.iter().map(of))) };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(sources.iter().map(|s| s.uri.as_str()))),
        Arc::new(StringArray::from_iter_values(sources.iter().map(|s| s.name.as_str()))),
        numbers(|s| s.bytes),
        Arc::new(
            TimestampMicrosecondArray::from_iter_values(sources.iter().map(|s| s.modified.as_microsecond()))
                .with_timezone("UTC"),
        ),
        Arc::new(sources.iter().map(|s| s.etag.as_deref()).collect::<StringArray>()),
        numbers(|s| s.hash),
        numbers(|s| s.records),
        numbers(|s| s.first_record),
        numbers(|s| s.version.0),
    ];
    let mut fields = source_schema().fields().to_vec();
    fields.retain(|field| match field.name().as_str() {
        ARRAYS => optional.arrays,
        REMOVED => optional.removed,
        PART_HASH => optional.part_hashes,
        OTHER_FIRSTS => optional.other_firsts,
        _ => true,
    });
    if optional.arrays {
        columns.push(Arc::new(sources.iter().map(|s| s.arrays.as_deref()).collect::<StringArray>()));
    }
    if optional.removed {
        columns.push(Arc::new(sources.iter().map(|s| s.removed.map(|version| version.0)).collect::<UInt64Array>()));
    }
    if optional.part_hashes {
        columns.push(Arc::new(sources.iter().map(|s| s.part_hash).collect::<UInt64Array>()));
    }
    if optional.other_firsts {
        let firsts = sources.iter().map(|s| Some(s.other_firsts.iter().map(|first| Some(*first))));
        columns.push(Arc::new(ListArray::from_iter_primitive::<UInt64Type, _, _>(firsts)));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// Passes the rows of a list to `visit`, in bounded memory.
pub(in crate::dataset) fn read(
    store: &Arc<dyn Store>,
    list: &ListRef,
    visit: &mut dyn FnMut(SourceRow) -> Result<()>,
) -> Result<()> {
    table::read_batches(store, list, &mut |batch| decode_batch(batch, visit))
}

fn decode_batch(batch: &RecordBatch, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
    let number = |name| typed_column::<UInt64Array>(batch, name);
    let (bytes, hash, records) = (number("bytes")?, number("hash")?, number("records")?);
    let (first_record, version) = (number("first_record")?, number("version")?);
    let (uri, name): (&StringArray, &StringArray) = (typed_column(batch, "uri")?, typed_column(batch, "name")?);
    let etag: &StringArray = typed_column(batch, "etag")?;
    let modified: &TimestampMicrosecondArray = typed_column(batch, "modified")?;
    let arrays = arrays_of(batch)?;
    let removed = batch.column_by_name(REMOVED).map(|_| number(REMOVED)).transpose()?;
    let part_hash = batch.column_by_name(PART_HASH).map(|_| number(PART_HASH)).transpose()?;
    let other_firsts = other_firsts_of(batch)?;
    (0..batch.num_rows()).try_for_each(|i| {
        visit(SourceRow {
            uri: uri.value(i).to_owned(),
            name: name.value(i).to_owned(),
            bytes: bytes.value(i),
            modified: Timestamp::from_microsecond(modified.value(i)).unwrap_or_default(),
            etag: etag.is_valid(i).then(|| etag.value(i).to_owned()),
            hash: hash.value(i),
            records: check_number("records of a source", records.value(i))?,
            first_record: check_number("the first record of a source", first_record.value(i))?,
            other_firsts: other_firsts.map(|lists| firsts_at(lists, i)).unwrap_or_default(),
            arrays: arrays.and_then(|arrays| arrays.is_valid(i).then(|| arrays.value(i).to_owned())),
            version: Version(version.value(i)),
            part_hash: part_hash.and_then(|hashes| hashes.is_valid(i).then(|| hashes.value(i))),
            removed: removed.and_then(|removed| removed.is_valid(i).then(|| Version(removed.value(i)))),
        })
    })
}

/// Returns the column for arrays, in lists that have it.
fn arrays_of(batch: &RecordBatch) -> Result<Option<&StringArray>> {
    batch.column_by_name(ARRAYS).map(|_| typed_column(batch, ARRAYS)).transpose()
}

/// Returns the column for records that are not consecutive, in lists that have it.
fn other_firsts_of(batch: &RecordBatch) -> Result<Option<&ListArray>> {
    batch.column_by_name(OTHER_FIRSTS).map(|_| typed_column(batch, OTHER_FIRSTS)).transpose()
}

fn firsts_at(lists: &ListArray, row: usize) -> Vec<u64> {
    let firsts = lists.is_valid(row).then(|| lists.value(row));
    firsts.and_then(|firsts| Some(firsts.as_primitive_opt::<UInt64Type>()?.values().to_vec())).unwrap_or_default()
}

/// Facts in a list about the source of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct Origin {
    /// Its URL or absolute path.
    pub(in crate::dataset) uri: String,
    /// Description of its records, if it holds arrays.
    pub(in crate::dataset) arrays: Option<String>,
}

/// Bytes at the end of a list that are read first: a whole list of some hundred sources, or the footer of a long one.
const TAIL: u64 = 64 << 10;

/// The opened lists of sources of a snapshot. Of long lists, only row groups that may contain an answer are read.
pub(in crate::dataset) struct Catalog {
    store: Arc<dyn Store>,
    lists: Vec<(String, Parts, ArrowReaderMetadata)>,
}

impl Catalog {
    /// Reads the ends of all lists in parallel.
    pub(in crate::dataset) fn open(store: &Arc<dyn Store>, lists: &[ListRef]) -> Result<Self> {
        let store = Arc::clone(store);
        let open = |list: &ListRef| {
            let parts = Parts::open(&store, &list.as_sealed(), TAIL, None)?;
            let metadata = table::catch_panics(|| parts.read_metadata(false))
                .map_err(|e| list_damage_error(&store, &list.path, e))?;
            Ok((list.path.clone(), parts, metadata))
        };
        let lists = in_parallel(lists, &open).into_iter().collect::<Result<_>>()?;
        Ok(Self { store, lists })
    }

    /// Returns the source of each of some records, given with its name: of sources with that name, the last one that
    /// begins at or before the record.
    pub(in crate::dataset) fn find_origins(&self, wanted: &[(u64, &str)]) -> Result<Vec<Option<Origin>>> {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        wanted.iter().enumerate().for_each(|(i, (_, name))| by_name.entry(name).or_default().push(i));
        let mut best: Vec<Option<(SourceRank, Origin)>> = vec![None; wanted.len()];
        for (path, parts, metadata) in &self.lists {
            let footer = metadata.metadata();
            let groups: Vec<usize> =
                (0..footer.num_row_groups()).filter(|group| may_name(footer.row_group(*group), &by_name)).collect();
            // One at a time: a list may have a row per file.
            for group in groups {
                let read = || {
                    let mut parts = parts.clone();
                    parts.fetch_ranges(&[group_range(footer, group)])?;
                    let reader = parts.into_reader(metadata.clone()).with_row_groups(vec![group]);
                    reader.build().map_err(table::parquet_error)?.map(|batch| batch.map_err(Error::from)).collect()
                };
                let batches: Vec<RecordBatch> =
                    table::catch_panics(read).map_err(|e| list_damage_error(&self.store, path, e))?;
                for batch in batches {
                    update_best(&batch, wanted, &by_name, &mut best)?;
                }
            }
        }
        Ok(best.into_iter().map(|best| best.map(|(_, origin)| origin)).collect())
    }
}

fn list_damage_error(store: &Arc<dyn Store>, path: &str, cause: Error) -> Error {
    Error::integrity("the table is damaged").at_location(store.location().join(path).to_string()).with_cause(cause)
}

/// Whether a row group may have a source with one of these names: true unless its statistics exclude it.
fn may_name(group: &RowGroupMetaData, names: &BTreeMap<&str, Vec<usize>>) -> bool {
    let column = group.columns().iter().find(|column| column.column_path().string() == "name");
    let Some(Statistics::ByteArray(known)) = column.and_then(|column| column.statistics()) else { return true };
    let (Some(least), Some(greatest)) = (known.min_bytes_opt(), known.max_bytes_opt()) else { return true };
    let (Ok(least), Ok(greatest)) = (std::str::from_utf8(least), std::str::from_utf8(greatest)) else { return true };
    least > greatest || names.range(least..=greatest).next().is_some()
}

/// Precedence of sources with one name that begin at or before a record: number of the first record, whether the source
/// has records, and version. A source whose records were all rejected begins where the next one begins.
type SourceRank = (u64, bool, u64);

/// Keeps the sources of a batch that match a record better than those found before.
fn update_best(
    batch: &RecordBatch,
    wanted: &[(u64, &str)],
    by_name: &BTreeMap<&str, Vec<usize>>,
    best: &mut [Option<(SourceRank, Origin)>],
) -> Result<()> {
    let (names, uris): (&StringArray, &StringArray) = (typed_column(batch, "name")?, typed_column(batch, "uri")?);
    let (firsts, records): (&UInt64Array, &UInt64Array) =
        (typed_column(batch, "first_record")?, typed_column(batch, "records")?);
    let versions: &UInt64Array = typed_column(batch, "version")?;
    let arrays = arrays_of(batch)?.filter(|arrays| arrays.null_count() < arrays.len());
    let other_firsts = other_firsts_of(batch)?;
    for row in 0..batch.num_rows() {
        let others = other_firsts.map(|lists| firsts_at(lists, row)).unwrap_or_default();
        for i in by_name.get(names.value(row)).into_iter().flatten() {
            let reached =
                others.iter().copied().chain([firsts.value(row)]).filter(|first| *first <= wanted[*i].0).max();
            let Some(first) = reached else { continue };
            let place = (first, records.value(row) > 0, versions.value(row));
            // Within a version, sources are in the order of their records.
            if best[*i].as_ref().is_none_or(|(known, _)| *known <= place) {
                let arrays = arrays.filter(|arrays| arrays.is_valid(row)).map(|arrays| arrays.value(row).to_owned());
                best[*i] = Some((place, Origin { uri: uris.value(row).to_owned(), arrays }));
            }
        }
    }
    Ok(())
}
