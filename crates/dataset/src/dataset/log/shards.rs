//! The list of shards: one row per live shard.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
    },
    datatypes::{DataType, Field, FieldRef, Schema, TimeUnit},
};
use jiff::Timestamp;

use crate::{
    codec::{Codec, seal::Seal},
    dataset::{
        log::{bounds::check_number, cache::LogCache, order::ShardOrder, runs::Scattered},
        table::{
            self,
            beside::{self, Beside},
            sealed::{Sealed, get_sealed},
            typed_column,
        },
    },
    error::{Error, Result},
    id::Version,
    storage::{SMALL, Staged, Store, checked_path, for_each_waiting},
};

/// Facts about one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardMeta {
    /// Path relative to the dataset.
    pub path: String,
    /// Records in it.
    pub records: u64,
    /// Size on disk in bytes.
    pub bytes: u64,
    /// Compression.
    pub codec: Codec,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// BLAKE3 of the whole object.
    pub checksum: [u8; 32],
    /// Offset of the records; the header of a compressed stream precedes them.
    pub body_offset: u64,
    /// Stored bytes of the records; the end of the compressed stream follows them. 0 for Parquet.
    pub body_bytes: u64,
    /// CRC-32 of the records before compression, for gzip, so that shards can be joined without decoding.
    pub body_crc32: u32,
    /// Target size in bytes of the compaction that wrote it; 0 for a conversion.
    pub compacted_for: u64,
    /// Sort key of shards: the smallest record number; for shards that were sorted together, the smallest of all of
    /// them, so that they stay together.
    pub first_record: u64,
    /// Version that added it.
    pub version: Version,
    /// When that version was committed.
    pub committed_at: Timestamp,
    /// Order of its records, if a compaction sorted them.
    pub order: Option<ShardOrder>,
    /// Objects beside it.
    pub beside: Arc<Beside>,
}

impl ShardMeta {
    /// Returns the placeholder for lists where there is no shard.
    pub fn placeholder() -> Self {
        Self {
            path: String::new(),
            records: 0,
            bytes: 0,
            codec: Codec::None,
            raw_bytes: 0,
            checksum: [0; 32],
            body_offset: 0,
            body_bytes: 0,
            body_crc32: 0,
            compacted_for: 0,
            first_record: 0,
            version: Version(0),
            committed_at: Timestamp::UNIX_EPOCH,
            order: None,
            beside: Beside::placeholder(),
        }
    }

    /// Returns the shard as a sealed object.
    pub fn as_sealed(&self) -> Sealed {
        Sealed::new(self.path.as_str(), Seal::from_hash(self.bytes, self.checksum))
    }

    /// Returns its sidecar.
    pub fn sidecar(&self) -> Sealed {
        self.beside.sidecar()
    }

    /// Returns its table of tar members.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if it does not have that index.
    pub fn parts_table(&self) -> Result<Sealed> {
        self.beside.parts_table()
    }

    /// Returns all sealed objects beside it: sidecar, indexes and descriptions of its folder.
    pub fn all_beside(&self) -> Vec<Sealed> {
        beside::all_of(&self.path, &self.beside)
    }

    /// Returns an object that belongs to it, by path.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the list of shards does not name it.
    pub fn beside_at(&self, path: &str) -> Result<Sealed> {
        let found = self.all_beside().into_iter().find(|object| object.path == path);
        found.ok_or_else(|| {
            Error::integrity("expected the seal of an object beside a shard, found none").at_location(path)
        })
    }

    /// Returns the descriptions of its folder that change the meaning of its records: types and constants.
    pub fn of_folder(&self) -> Vec<Sealed> {
        beside::of_folder(&self.path, &self.beside)
    }
}

/// Returns the columns of a list; nullable ones are omitted if they would be empty.
pub(in crate::dataset) fn shard_schema() -> Schema {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, false);
    let mut fields = vec![
        field("path", DataType::Utf8),
        field("records", DataType::UInt64),
        field("bytes", DataType::UInt64),
        field("codec", DataType::Utf8),
        field("raw_bytes", DataType::UInt64),
        field("checksum", DataType::Binary),
        field("body_offset", DataType::UInt64),
        field("body_bytes", DataType::UInt64),
        field("body_crc32", DataType::UInt32),
        field("compacted_for", DataType::UInt64),
        field("first_record", DataType::UInt64),
        field("version", DataType::UInt64),
        field("committed_at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
    ];
    fields.extend([ORDER, BESIDE].map(|name| Field::new(name, DataType::Utf8, true)));
    Schema::new(fields)
}

/// Names of the nullable columns.
const ORDER: &str = "order";
const BESIDE: &str = "beside";

/// Encodes rows for [`table::write`].
pub(in crate::dataset) fn to_batch(shards: &[ShardMeta]) -> Result<RecordBatch> {
    let full = full_batch(shards)?;
    let used = |(i, field): (usize, &FieldRef)| {
        (!field.is_nullable() || full.column(i).null_count() < shards.len()).then_some(i)
    };
    let used: Vec<usize> = full.schema_ref().fields().iter().enumerate().filter_map(used).collect();
    Ok(full.project(&used)?)
}

/// Encodes rows with all columns.
pub(in crate::dataset) fn full_batch(shards: &[ShardMeta]) -> Result<RecordBatch> {
    let schema = shard_schema();
    let numbers =
        |of: fn(&ShardMeta) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(shards.iter().map(of))) };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(shards.iter().map(|s| s.path.as_str()))),
        numbers(|s| s.records),
        numbers(|s| s.bytes),
        Arc::new(StringArray::from_iter_values(shards.iter().map(|s| s.codec.to_string()))),
        numbers(|s| s.raw_bytes),
        Arc::new(BinaryArray::from_iter_values(shards.iter().map(|s| s.checksum))),
        numbers(|s| s.body_offset),
        numbers(|s| s.body_bytes),
        Arc::new(UInt32Array::from_iter_values(shards.iter().map(|s| s.body_crc32))),
        numbers(|s| s.compacted_for),
        numbers(|s| s.first_record),
        numbers(|s| s.version.0),
        Arc::new(
            TimestampMicrosecondArray::from_iter_values(shards.iter().map(|s| s.committed_at.as_microsecond()))
                .with_timezone("UTC"),
        ),
    ];
    let orders = shards.iter().map(|shard| shard.order.as_ref().map(ShardOrder::to_json).transpose());
    columns.push(Arc::new(orders.collect::<Result<StringArray>>()?));
    let beside = shards.iter().map(|shard| (!shard.path.is_empty()).then(|| shard.beside.to_json()).transpose());
    columns.push(Arc::new(beside.collect::<Result<StringArray>>()?));
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Takes a list, what it was read for, and what was read.
type VisitList<'a, T> = dyn FnMut(&(T, Sealed), Result<Vec<ShardMeta>>) -> Result<()> + 'a;

/// Lists in memory at a time.
const LISTS_AT_ONCE: usize = 256;

/// Reads lists, each given with what it is read for, and passes what was read to `visit`, in their order.
///
/// # Errors
/// Those of `visit`, which decides about lists that cannot be read.
pub(in crate::dataset) fn each_list<T: Sync>(
    cache: &LogCache,
    lists: &[(T, Sealed)],
    visit: &mut VisitList<'_, T>,
) -> Result<()> {
    for some in lists.chunks(LISTS_AT_ONCE) {
        let found = for_each_waiting(cache.store().as_ref(), SMALL, some, |(_, list)| Ok(read(cache, list)))?;
        some.iter().zip(found).try_for_each(|(list, found)| visit(list, found))?;
    }
    Ok(())
}

/// Reads a list.
pub(in crate::dataset) fn read(cache: &LogCache, list: &Sealed) -> Result<Vec<ShardMeta>> {
    let batches = cache.read_list(list)?;
    let checked = || -> Result<Vec<ShardMeta>> {
        let shards = decode_batches(&batches)?;
        shards.iter().try_for_each(|shard| checked_path(&shard.path).map(drop))?;
        Ok(shards)
    };
    checked().map_err(|e| table::damage_error(e, "the table is damaged", list.display_location(cache.store().as_ref())))
}

/// Decodes the rows of a list. A row without a shard has an empty path.
pub(in crate::dataset) fn decode_batches(batches: &[RecordBatch]) -> Result<Vec<ShardMeta>> {
    let mut out = Vec::new();
    for batch in batches {
        let paths: &StringArray = typed_column(batch, "path")?;
        let codecs: &StringArray = typed_column(batch, "codec")?;
        let checksums: &BinaryArray = typed_column(batch, "checksum")?;
        let crcs: &UInt32Array = typed_column(batch, "body_crc32")?;
        let times: &TimestampMicrosecondArray = typed_column(batch, "committed_at")?;
        let number = |name| typed_column::<UInt64Array>(batch, name);
        let (records, bytes, raw_bytes) = (number("records")?, number("bytes")?, number("raw_bytes")?);
        let (body_offset, body_bytes) = (number("body_offset")?, number("body_bytes")?);
        let (first_record, version) = (number("first_record")?, number("version")?);
        let compacted_for = number("compacted_for")?;
        // Columns without values are omitted.
        let optional = |name| batch.column_by_name(name).map(|_| typed_column::<StringArray>(batch, name)).transpose();
        let (orders, beside) = (optional(ORDER)?, optional(BESIDE)?);
        for i in 0..batch.num_rows() {
            let checksum = checksums.value(i).try_into().map_err(|_| {
                Error::integrity(format!("expected a checksum of 32 bytes, found {}", checksums.value(i).len()))
            })?;
            out.push(ShardMeta {
                path: if paths.value(i).is_empty() { "" } else { checked_path(paths.value(i))? }.to_owned(),
                records: check_number("records of a shard", records.value(i))?,
                bytes: check_number("bytes of a shard", bytes.value(i))?,
                codec: codecs
                    .value(i)
                    .parse()
                    .map_err(|e: Error| Error::integrity("expected the name of a codec").with_cause(e))?,
                raw_bytes: check_number("bytes of a shard", raw_bytes.value(i))?,
                checksum,
                body_offset: check_number("the position of a body", body_offset.value(i))?,
                body_bytes: check_number("bytes of a body", body_bytes.value(i))?,
                body_crc32: crcs.value(i),
                compacted_for: compacted_for.value(i),
                first_record: check_number("the first record of a shard", first_record.value(i))?,
                version: Version(version.value(i)),
                committed_at: Timestamp::from_microsecond(times.value(i)).unwrap_or_default(),
                order: match orders.filter(|orders| orders.is_valid(i)) {
                    Some(orders) => Some(ShardOrder::from_json(orders.value(i))?),
                    None => None,
                },
                beside: match beside.filter(|beside| beside.is_valid(i)) {
                    Some(beside) => Arc::new(Beside::from_json(beside.value(i))?),
                    None if paths.value(i).is_empty() => Beside::placeholder(),
                    None => return Err(Error::integrity("expected the objects beside a shard, found none")),
                },
            });
        }
        debug_assert_eq!(paths.null_count(), 0);
    }
    Ok(out)
}

/// A shard to be added.
#[derive(Debug, Clone)]
pub struct NewShard {
    /// Its facts; version and commit time are filled in at commit.
    pub meta: ShardMeta,
    /// (first record, records, ordinal) of each run.
    pub runs: Vec<(u64, u64, u64)>,
    /// First version that had the records of each run, if they come from runs that do not tell it; else empty.
    pub since: Vec<Version>,
    /// Set and span of its one run, if the numbers are not consecutive.
    pub scattered: Option<Scattered>,
}

impl NewShard {
    /// Returns the shard with `base` added to the numbers of its records.
    #[must_use]
    pub fn shifted_by(mut self, base: u64) -> Self {
        self.meta.first_record += base;
        self.runs.iter_mut().for_each(|(first, ..)| *first += base);
        self.scattered = self.scattered.map(|scattered| scattered.shifted_by(base));
        self
    }
}

/// Checks the descriptions of the shards' folders: types and constants, which change the meaning of records.
///
/// # Errors
/// As [`get_sealed`].
pub fn check_folders<'a>(store: &dyn Store, shards: impl Iterator<Item = &'a ShardMeta>) -> Result<()> {
    let mut seen: HashSet<String> = HashSet::new();
    for object in shards.flat_map(ShardMeta::of_folder) {
        if !seen.contains(&object.path) {
            get_sealed(store, &object)?;
            seen.insert(object.path);
        }
    }
    Ok(())
}

/// Records the staged objects beside new shards; must be called before they are published.
pub(in crate::dataset) fn record_beside<'a>(shards: impl Iterator<Item = &'a mut NewShard>, staged: &[Staged]) {
    let seals: BTreeMap<&str, Seal> =
        staged.iter().filter_map(|staged| Some((staged.path.as_str(), staged.seal()?))).collect();
    for shard in shards {
        let meta = &mut shard.meta;
        meta.beside = Arc::new(meta.beside.with_staged(&meta.path, &seals));
    }
}
