//! The list of shards: one row per live shard.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, BinaryArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
    },
    datatypes::{DataType, Field, Schema, TimeUnit},
};
use jiff::Timestamp;

use super::{
    order::ShardOrder,
    table::{self, column},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    id::Version,
    storage::{Store, checked_path},
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
    /// Where the records begin; what comes before is the header of a compressed stream.
    pub body_offset: u64,
    /// Bytes of records, as stored; what follows ends the shard. Zero for Parquet.
    pub body_bytes: u64,
    /// CRC-32 of the records before compression, for gzip, so that shards can be joined without decoding.
    pub body_crc32: u32,
    /// Target in bytes of the compaction that made it; 0 when a conversion did.
    pub compacted_for: u64,
    /// What shards are ordered by: its smallest record number, and of shards that were sorted together the smallest of
    /// them all, so that they stay together.
    pub first_record: u64,
    /// Version that added it.
    pub version: Version,
    /// When that version was committed.
    pub committed_at: Timestamp,
    /// How its records are ordered, where a compaction sorted them.
    pub order: Option<ShardOrder>,
}

impl ShardMeta {
    /// Stands in lists where there is no shard.
    pub fn nothing() -> Self {
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
        }
    }
}

/// Columns of a list.
pub(super) fn schema(ordered: bool) -> Schema {
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
    if ordered {
        fields.push(Field::new("order", DataType::Utf8, true));
    }
    Schema::new(fields)
}

/// Encodes rows for [`table::write`].
pub(super) fn batch(shards: &[ShardMeta]) -> Result<RecordBatch> {
    batch_with(shards, shards.iter().any(|shard| shard.order.is_some()))
}

/// The same, with the column of orders or without it.
pub(super) fn batch_with(shards: &[ShardMeta], ordered: bool) -> Result<RecordBatch> {
    let schema = schema(ordered);
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
    if ordered {
        let texts = shards.iter().map(|shard| shard.order.as_ref().map(ShardOrder::encode).transpose());
        columns.push(Arc::new(texts.collect::<Result<StringArray>>()?));
    }
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Reads a list.
pub(super) fn read(store: &dyn Store, path: &str) -> Result<Vec<ShardMeta>> {
    let mut out = Vec::new();
    for batch in table::read(store, path)? {
        let paths: &StringArray = column(&batch, "path")?;
        let codecs: &StringArray = column(&batch, "codec")?;
        let checksums: &BinaryArray = column(&batch, "checksum")?;
        let crcs: &UInt32Array = column(&batch, "body_crc32")?;
        let times: &TimestampMicrosecondArray = column(&batch, "committed_at")?;
        let number = |name| column::<UInt64Array>(&batch, name);
        let (records, bytes, raw_bytes) = (number("records")?, number("bytes")?, number("raw_bytes")?);
        let (body_offset, body_bytes) = (number("body_offset")?, number("body_bytes")?);
        let (first_record, version) = (number("first_record")?, number("version")?);
        let compacted_for = number("compacted_for")?;
        // Only lists of datasets that were sorted have it.
        let orders = batch.column_by_name("order").map(|_| column::<StringArray>(&batch, "order")).transpose()?;
        for i in 0..batch.num_rows() {
            let checksum = checksums.value(i).try_into().map_err(|_| {
                Error::integrity(format!("expected a checksum of 32 bytes, found {}", checksums.value(i).len()))
                    .at(path)
            })?;
            out.push(ShardMeta {
                path: checked_path(paths.value(i)).map_err(|e| e.at(path))?.to_owned(),
                records: records.value(i),
                bytes: bytes.value(i),
                codec: codecs
                    .value(i)
                    .parse()
                    .map_err(|e: Error| Error::integrity("expected the name of a codec").at(path).cause(e))?,
                raw_bytes: raw_bytes.value(i),
                checksum,
                body_offset: body_offset.value(i),
                body_bytes: body_bytes.value(i),
                body_crc32: crcs.value(i),
                compacted_for: compacted_for.value(i),
                first_record: first_record.value(i),
                version: Version(version.value(i)),
                committed_at: Timestamp::from_microsecond(times.value(i)).unwrap_or_default(),
                order: match orders.filter(|orders| orders.is_valid(i)) {
                    Some(orders) => Some(ShardOrder::decode(orders.value(i)).map_err(|e| e.at(path))?),
                    None => None,
                },
            });
        }
        debug_assert_eq!(paths.null_count(), 0);
    }
    Ok(out)
}
