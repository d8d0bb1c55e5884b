//! The id index: which record numbers carry an id.
//!
//! A segment is an immutable set of (hash, record number) pairs of one kind of id, sorted by hash and split by the
//! first bits of the hash into buckets of about a million pairs. Row groups are small and carry min and max, so one
//! lookup reads one bucket's footer and one row group, however large the index is. Hashes are not unique: whoever
//! looks up must compare the id's text with the sidecar.
//!
//! ```text
//! _shardify/index/subject/<txn>-0/b=0000.parquet    hash u64 | record u64     hash in [0, 2^64 / buckets)
//!                                 b=0001.parquet                              ...
//! ```
//!
//! Record numbers are relative to the segment's `record_base`, which the log entry holds: a commit that has to give
//! way to another gets a new base without rewriting the segment.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, UInt64Array},
    datatypes::{DataType, Field, Schema},
};
use parquet::{
    arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::Compression,
    file::{properties::WriterProperties, statistics::Statistics},
};
use serde::{Deserialize, Serialize};

use super::{
    find::IdKind,
    system_path,
    table::{self, column},
};
use crate::{
    error::{Error, Result},
    id::{IdHash, TransactionId},
    storage::{Object, Store},
};

const BUCKET_PAIRS: u64 = 1 << 20;
const ROW_GROUP_ROWS: usize = 8_192;

/// Pairs held in memory before they become a segment of their own (16 bytes each).
const SEGMENT_PAIRS: usize = 4 << 20;

/// A segment as the log knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRef {
    /// What kind of id it holds.
    pub kind: IdKind,
    /// Folder of its buckets, relative to the dataset.
    pub path: String,
    /// Added to the record numbers in it.
    pub record_base: u64,
    /// Pairs in it.
    pub pairs: u64,
    /// Number of buckets, a power of two.
    pub buckets: u64,
}

impl SegmentRef {
    fn bucket_path(&self, bucket: u64) -> String {
        format!("{}/b={bucket:04x}.parquet", self.path)
    }

    fn bucket_of(&self, hash: IdHash) -> u64 {
        bucket_of(hash.0, self.buckets)
    }

    /// Paths of all its buckets.
    pub fn bucket_paths(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.buckets).map(|bucket| self.bucket_path(bucket))
    }
}

fn bucket_of(hash: u64, buckets: u64) -> u64 {
    match buckets.trailing_zeros() {
        0 => 0,
        bits => hash >> (64 - bits),
    }
}

/// Collects the ids of one commit; writes a segment whenever enough have come together, so that memory is bounded.
#[derive(Debug)]
pub struct SegmentWriter {
    store: Arc<dyn Store>,
    kind: IdKind,
    transaction: TransactionId,
    pairs: Vec<(u64, u64)>,
    segments: Vec<SegmentRef>,
}

impl SegmentWriter {
    /// Starts the segments of a commit.
    pub fn new(store: Arc<dyn Store>, kind: IdKind, transaction: TransactionId) -> Self {
        Self { store, kind, transaction, pairs: Vec::new(), segments: Vec::new() }
    }

    /// Adds the hash of the id of a record, numbered from the first record of the commit.
    ///
    /// # Errors
    /// When a full segment cannot be written.
    pub fn push(&mut self, hash: IdHash, record: u64) -> Result<()> {
        self.pairs.push((hash.0, record));
        if self.pairs.len() == SEGMENT_PAIRS { self.flush() } else { Ok(()) }
    }

    /// Writes what is left and names all segments.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish(mut self) -> Result<Vec<SegmentRef>> {
        if !self.pairs.is_empty() {
            self.flush()?;
        }
        Ok(self.segments)
    }

    fn flush(&mut self) -> Result<()> {
        use rayon::slice::ParallelSliceMut;
        let mut pairs = std::mem::take(&mut self.pairs);
        pairs.par_sort_unstable();
        let buckets = (pairs.len() as u64).div_ceil(BUCKET_PAIRS).next_power_of_two();
        let segment = SegmentRef {
            kind: self.kind,
            path: system_path(&format!("index/{}/{}-{}", self.kind.name(), self.transaction, self.segments.len())),
            record_base: 0,
            pairs: pairs.len() as u64,
            buckets,
        };
        let mut rest = pairs.as_slice();
        for bucket in 0..buckets {
            let end = rest.partition_point(|(hash, _)| bucket_of(*hash, buckets) <= bucket);
            let (own, later) = rest.split_at(end);
            table::write(self.store.as_ref(), &segment.bucket_path(bucket), &batch(own)?, properties())?;
            rest = later;
        }
        self.segments.push(segment);
        Ok(())
    }
}

fn properties() -> WriterProperties {
    let builder = table::properties()
        // Hashes are noise: a codec would cost time and save nothing.
        .set_compression(Compression::UNCOMPRESSED)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    table::delta(table::delta(builder, "hash"), "record").build()
}

fn batch(pairs: &[(u64, u64)]) -> Result<RecordBatch> {
    let schema =
        Schema::new(vec![Field::new("hash", DataType::UInt64, false), Field::new("record", DataType::UInt64, false)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(pairs.iter().map(|p| p.0))),
        Arc::new(UInt64Array::from_iter_values(pairs.iter().map(|p| p.1))),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Record numbers that a segment has under a hash.
pub(super) fn lookup(store: &Arc<dyn Store>, segment: &SegmentRef, hash: IdHash) -> Result<Vec<u64>> {
    let path = segment.bucket_path(segment.bucket_of(hash));
    let facts = store.head(&path)?.ok_or_else(|| {
        Error::integrity("expected a bucket of the id index, found none").at(store.location().join(&path).to_string())
    })?;
    let object = Object::new(Arc::clone(store), path.clone(), facts.bytes);
    let damaged =
        |e: Error| Error::integrity("the id index is damaged").at(store.location().join(&path).to_string()).cause(e);
    table::guarded(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(object).map_err(table::failed)?;
        let groups = (0..builder.metadata().num_row_groups())
            .filter(|i| may_hold(builder.metadata().row_group(*i).column(0).statistics(), hash.0))
            .collect();
        let mask = ProjectionMask::all();
        let reader = builder.with_projection(mask).with_row_groups(groups).build().map_err(table::failed)?;
        let mut found = Vec::new();
        for batch in reader {
            let batch = batch?;
            let hashes: &UInt64Array = column(&batch, "hash")?;
            let records: &UInt64Array = column(&batch, "record")?;
            let start = hashes.values().partition_point(|h| *h < hash.0);
            found.extend(
                hashes.values()[start..]
                    .iter()
                    .zip(&records.values()[start..])
                    .take_while(|(h, _)| **h == hash.0)
                    .map(|(_, record)| segment.record_base + record),
            );
        }
        Ok(found)
    })
    .map_err(damaged)
}

/// Whether a row group may hold a hash: yes, unless its statistics say otherwise.
fn may_hold(statistics: Option<&Statistics>, hash: u64) -> bool {
    match statistics {
        // UINT64 is stored as INT64 but ordered as unsigned.
        Some(Statistics::Int64(s)) => match (s.min_opt(), s.max_opt()) {
            (Some(min), Some(max)) => min.cast_unsigned() <= hash && hash <= max.cast_unsigned(),
            _ => true,
        },
        _ => true,
    }
}

/// All pairs of a segment, record numbers made absolute, with a check of order and count.
///
/// # Errors
/// When a bucket is missing, damaged or not sorted.
pub fn read_segment(store: &dyn Store, segment: &SegmentRef) -> Result<Vec<(IdHash, u64)>> {
    let mut out = Vec::new();
    for (bucket, path) in segment.bucket_paths().enumerate() {
        let place = || store.location().join(&path).to_string();
        for batch in table::read(store, &path)? {
            let hashes: &UInt64Array = column(&batch, "hash")?;
            let records: &UInt64Array = column(&batch, "record")?;
            for (hash, record) in hashes.values().iter().zip(records.values()) {
                let sorted = out.last().is_none_or(|(last, _): &(IdHash, u64)| last.0 <= *hash);
                if !sorted || bucket_of(*hash, segment.buckets) != bucket as u64 {
                    return Err(Error::integrity("the id index is not sorted").at(place()));
                }
                out.push((IdHash(*hash), segment.record_base + record));
            }
        }
    }
    if out.len() as u64 != segment.pairs {
        return Err(Error::integrity(format!("expected {} pairs, found {}", segment.pairs, out.len()))
            .at(store.location().join(&segment.path).to_string()));
    }
    Ok(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn every_pushed_id_is_found_and_no_other() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::memory().unwrap());
        let mut writer = SegmentWriter::new(Arc::clone(&store), IdKind::Subject, TransactionId::fresh());
        for record in 0..50_000_u64 {
            writer.push(IdHash::of(&format!("PAT-{}", record % 10_000)), record).unwrap();
        }
        let mut segments = writer.finish().unwrap();
        segments[0].record_base = 1_000_000;
        let find =
            |id: &str| segments.iter().flat_map(|s| lookup(&store, s, IdHash::of(id)).unwrap()).collect::<Vec<_>>();
        assert_eq!(find("PAT-23"), [1_000_023, 1_010_023, 1_020_023, 1_030_023, 1_040_023]);
        assert!(find("PAT-10000").is_empty());
        assert_eq!(read_segment(store.as_ref(), &segments[0]).unwrap().len(), 50_000);
    }

    #[test]
    fn buckets_are_the_first_bits() {
        assert_eq!(bucket_of(u64::MAX, 1), 0);
        assert_eq!(bucket_of(u64::MAX, 4), 3);
        assert_eq!(bucket_of(1 << 62, 4), 1);
    }

    #[test]
    fn a_missing_bucket_is_damage_and_not_an_empty_answer() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::memory().unwrap());
        let segment =
            SegmentRef { kind: IdKind::Record, path: "_shardify/index/x".into(), record_base: 0, pairs: 1, buckets: 1 };
        assert!(lookup(&store, &segment, IdHash::of("a")).is_err());
    }
}
