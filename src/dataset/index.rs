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

use std::{sync::Arc, thread::JoinHandle};

use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema},
};
use parquet::{
    arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder},
    file::statistics::Statistics,
    schema::types::SchemaDescriptor,
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    chunks::{self, Values},
    find::IdKind,
    system_path,
    table::{self, Group, GroupWriter, column},
};
use crate::{
    error::{Error, Result},
    id::{IdHash, TransactionId},
    storage::{Object, Staged, Store},
};

const BUCKET_PAIRS: u64 = 1 << 20;
pub(super) const ROW_GROUP_ROWS: usize = 8_192;

/// Pairs held in memory before they become a segment of their own (12 bytes each).
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
        Self::bucket_at(&self.path, bucket)
    }

    /// Path of a bucket of the segment in a folder.
    pub(super) fn bucket_at(folder: &str, bucket: u64) -> String {
        format!("{folder}/b={bucket:04x}.parquet")
    }

    pub(super) fn bucket_of(&self, hash: IdHash) -> u64 {
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

/// What the ids of a commit became.
#[derive(Debug, Default)]
pub struct Segments {
    /// The segments.
    pub refs: Vec<SegmentRef>,
    /// Their buckets, to be published before the commit.
    pub staged: Vec<Staged>,
}

impl Segments {
    /// Ends writers of all kinds, side by side.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish<const KINDS: usize>(mut writers: [SegmentWriter; KINDS]) -> Result<Self> {
        writers.iter_mut().try_for_each(SegmentWriter::flush)?;
        let mut all = Self::default();
        for mut writer in writers {
            writer.wait()?;
            all.refs.append(&mut writer.done.refs);
            all.staged.append(&mut writer.done.staged);
        }
        Ok(all)
    }
}

/// A segment and its buckets without names.
type Written = (SegmentRef, Vec<Staged>);

/// Collects the ids of one commit; writes a segment whenever enough have come together, so that memory is bounded.
///
/// Hashes are spread evenly. Pairs are divided by their first bits as they come, so that what is left to do for a
/// segment is to sort many small parts, each of which fits a cache:
///
/// ```text
/// pairs as they come -> runs of 2^16 pairs, divided into 256 parts -> part i of all runs, sorted -> bucket
/// ```
#[derive(Debug)]
pub struct SegmentWriter {
    store: Arc<dyn Store>,
    kind: IdKind,
    transaction: TransactionId,
    pending: Pairs,
    /// Made into a segment by another thread.
    writing: Option<JoinHandle<Result<Written>>>,
    started: usize,
    done: Segments,
}

impl SegmentWriter {
    /// Starts the segments of a commit.
    pub fn new(store: Arc<dyn Store>, kind: IdKind, transaction: TransactionId) -> Self {
        Self {
            store,
            kind,
            transaction,
            pending: Pairs::default(),
            writing: None,
            started: 0,
            done: Segments::default(),
        }
    }

    /// Adds the hash of the id of a record, numbered from the first record of the commit. Numbers grow.
    ///
    /// # Errors
    /// When a full segment cannot be written.
    pub fn push(&mut self, hash: IdHash, record: u64) -> Result<()> {
        if !self.pending.push(hash.0, record) {
            self.flush()?;
            self.pending.push(hash.0, record);
        }
        if self.pending.len == SEGMENT_PAIRS { self.flush() } else { Ok(()) }
    }

    /// Starts to make a segment of what there is.
    fn flush(&mut self) -> Result<()> {
        if self.pending.len == 0 {
            return Ok(());
        }
        self.wait()?;
        let mut pairs = std::mem::take(&mut self.pending);
        pairs.divide();
        let segment = SegmentRef {
            kind: self.kind,
            path: system_path(&format!("index/{}/{}-{}", self.kind.name(), self.transaction, self.started)),
            record_base: 0,
            pairs: pairs.len as u64,
            buckets: (pairs.len as u64).div_ceil(BUCKET_PAIRS).next_power_of_two().min(PARTS as u64),
        };
        self.started += 1;
        let store = Arc::clone(&self.store);
        let write = move || {
            let buckets: Result<Vec<Staged>> = (0..segment.buckets)
                .into_par_iter()
                .map(|bucket| write_bucket(store.as_ref(), &segment, bucket, &pairs))
                .collect();
            Ok((segment, buckets?))
        };
        self.writing = Some(std::thread::spawn(write));
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let (segment, staged) = writing.join().map_err(|_| Error::internal("writing the id index failed"))??;
        self.done.refs.push(segment);
        self.done.staged.extend(staged);
        Ok(())
    }
}

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        // A run that fails leaves no thread that still writes.
        let _ = self.wait();
    }
}

/// Parts that pairs are divided into by the first bits of their hashes; also the most buckets of a segment.
const PARTS: usize = 256;

/// Bits that choose a part.
const PART_BITS: u32 = PARTS.trailing_zeros();

/// Pairs of a run: what is divided at a time, so that all parts stay in a cache meanwhile.
const RUN_PAIRS: usize = 1 << 16;

/// Pairs of a segment to be.
#[derive(Debug, Default)]
struct Pairs {
    /// Number of the record that the numbers below count from.
    first: u64,
    len: usize,
    runs: Vec<Run>,
    hashes: Vec<u64>,
    records: Vec<u32>,
}

/// Pairs divided into parts, each in the order in which its pairs came.
#[derive(Debug)]
struct Run {
    hashes: Vec<u64>,
    records: Vec<u32>,
    /// Where part `i` begins, and where the last one ends.
    starts: Vec<u32>,
}

impl Pairs {
    /// Adds a pair; false when its record is too far from the first one.
    fn push(&mut self, hash: u64, record: u64) -> bool {
        if self.len == 0 {
            self.first = record;
        }
        let Some(Ok(record)) = record.checked_sub(self.first).map(u32::try_from) else { return false };
        self.hashes.push(hash);
        self.records.push(record);
        self.len += 1;
        if self.hashes.len() == RUN_PAIRS {
            self.divide();
        }
        true
    }

    /// Makes a run of the pairs that are in none.
    fn divide(&mut self) {
        let part = |hash: u64| usize::from((hash >> (u64::BITS - PART_BITS)).to_le_bytes()[0]);
        let mut starts = vec![0_u32; PARTS + 1];
        self.hashes.iter().for_each(|hash| starts[part(*hash) + 1] += 1);
        for i in 0..PARTS {
            starts[i + 1] += starts[i];
        }
        let mut ends = starts.clone();
        let (mut hashes, mut records) = (vec![0; self.hashes.len()], vec![0; self.hashes.len()]);
        for (hash, record) in self.hashes.drain(..).zip(self.records.drain(..)) {
            let at = &mut ends[part(hash)];
            (hashes[*at as usize], records[*at as usize]) = (hash, record);
            *at += 1;
        }
        self.runs.push(Run { hashes, records, starts });
    }

    /// Pairs of a part, sorted.
    fn part(&self, part: usize) -> Vec<(u64, u64)> {
        let range = |run: &Run| run.starts[part] as usize..run.starts[part + 1] as usize;
        let count: usize = self.runs.iter().map(|run| range(run).len()).sum();
        // As many piles as make them a few pairs each; then little is left to be sorted.
        let bits = (count / 4).max(2).ilog2().min(u64::BITS - PART_BITS);
        let pile = |hash: u64| usize::try_from((hash << PART_BITS) >> (u64::BITS - bits)).unwrap_or(0);
        let mut starts = vec![0_u32; (1 << bits) + 1];
        for run in &self.runs {
            run.hashes[range(run)].iter().for_each(|hash| starts[pile(*hash) + 1] += 1);
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut sorted = vec![(0, 0); count];
        for run in &self.runs {
            for (hash, record) in run.hashes[range(run)].iter().zip(&run.records[range(run)]) {
                let at = &mut starts[pile(*hash)];
                sorted[*at as usize] = (*hash, self.first + u64::from(*record));
                *at += 1;
            }
        }
        // What was the begin of a pile is its end by now.
        let mut from = 0;
        for end in &starts[..1 << bits] {
            let end = *end as usize;
            sorted[from..end].sort_unstable();
            from = end;
        }
        sorted
    }
}

fn write_bucket(store: &dyn Store, segment: &SegmentRef, bucket: u64, pairs: &Pairs) -> Result<Staged> {
    let columns = table::describe(&schema())?;
    let mut table = GroupWriter::create(store, &segment.bucket_path(bucket), &columns)?;
    let parts = PARTS as u64 / segment.buckets;
    let (mut hashes, mut records) = (Vec::with_capacity(ROW_GROUP_ROWS), Vec::with_capacity(ROW_GROUP_ROWS));
    for part in bucket * parts..(bucket + 1) * parts {
        for (hash, record) in pairs.part(usize::try_from(part).unwrap_or(0)) {
            hashes.push(hash);
            records.push(record);
            if hashes.len() == ROW_GROUP_ROWS {
                table.append(group(&columns, &mut hashes, &mut records)?)?;
            }
        }
    }
    table.append(group(&columns, &mut hashes, &mut records)?)?;
    table.finish()
}

/// A row group of pairs. Hashes are noise: a codec would cost time and save nothing.
pub(super) fn group(columns: &SchemaDescriptor, hashes: &mut Vec<u64>, records: &mut Vec<u64>) -> Result<Group> {
    let rows = hashes.len();
    let chunk = |column, values: &mut Vec<u64>| {
        let array = UInt64Array::from(std::mem::replace(values, Vec::with_capacity(ROW_GROUP_ROWS)));
        chunks::encode(&columns.column(column), rows, &Values::Packed(&array))
    };
    Ok(Group { chunks: vec![chunk(0, hashes)?, chunk(1, records)?], rows: rows as u64 })
}

pub(super) fn schema() -> Schema {
    Schema::new(vec![Field::new("hash", DataType::UInt64, false), Field::new("record", DataType::UInt64, false)])
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
        let Segments { refs: mut segments, staged } = Segments::finish([writer]).unwrap();
        store.publish(staged).unwrap();
        segments[0].record_base = 1_000_000;
        let find =
            |id: &str| segments.iter().flat_map(|s| lookup(&store, s, IdHash::of(id)).unwrap()).collect::<Vec<_>>();
        assert_eq!(find("PAT-23"), [1_000_023, 1_010_023, 1_020_023, 1_030_023, 1_040_023]);
        assert!(find("PAT-10000").is_empty());
        assert_eq!(read_segment(store.as_ref(), &segments[0]).unwrap().len(), 50_000);
    }

    #[test]
    fn segments_are_sorted_and_complete() {
        for (count, distinct) in [(1, 1), (300, 7), (70_000, 70_000), (3 << 20, 50_000)] {
            let store: Arc<dyn Store> = Arc::new(RemoteStore::memory().unwrap());
            let mut writer = SegmentWriter::new(Arc::clone(&store), IdKind::Record, TransactionId::fresh());
            let hash = |i: u64| {
                (i * 7 % distinct)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29)
                    .wrapping_mul(0x2545_f491_4f6c_dd1d)
            };
            let mut expected: Vec<(IdHash, u64)> = (0..count).map(|i| (IdHash(hash(i)), 5 + i)).collect();
            expected.iter().for_each(|(hash, record)| writer.push(*hash, *record).unwrap());
            let Segments { refs, staged } = Segments::finish([writer]).unwrap();
            store.publish(staged).unwrap();
            expected.sort_unstable();
            assert!(read_segment(store.as_ref(), &refs[0]).unwrap() == expected, "{count}");
        }
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
