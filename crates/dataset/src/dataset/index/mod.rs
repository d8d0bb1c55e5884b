//! The id index: maps the hash of an id to record numbers.
//!
//! A segment is an immutable set of (hash, record number) pairs of one kind of id, sorted by hash and then by number,
//! and split by the first bits of the hash into buckets of about a million pairs. Row groups are small and have minimum
//! and maximum hashes, so one lookup reads one bucket's footer and one row group, whatever the size of the index.
//! Hashes are not unique: every lookup must compare the id's text with the sidecar.
//!
//! ```text
//! _shardify/index/subject/<txn>-0.segment/b=0000.table    hash u64 | record u64     hash in [0, 2^64 / buckets)
//!                                         b=0001.table                              ...
//! ```
//!
//! The footer of a bucket stores a hash of its pairs, and the log stores a root of these ([`sum`]), so that tampering
//! is detected and a few pairs can be proved to be all that a version has for an id.
//!
//! Where ids ascend, a segment has the ids themselves, which take less ([`ordered`]). Nothing but its size and its
//! readers depend on that.
//!
//! Unless a dataset is made for proofs, hashes have [five bytes](HashWidth), and no hash of pairs is taken: the seals
//! of the buckets detect tampering, and the root of a version is that of the seals. In memory a hash always has 64
//! bits, of which the last are 0 then.
//!
//! Record numbers are relative to the segment's `record_base`, which the log entry stores: a commit that loses a
//! conflict gets a new base without rewriting the segment. Commits add segments (`write`); `compact` merges several
//! of one size into one (`merge`), so that a lookup always searches few ([`read`]).

mod collect;
mod kept;
mod merge;
mod ordered;
mod pairs;
pub(super) mod places;
mod read;
mod renumber;
mod segment;
mod sum;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod width_tests;
mod write;

use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema},
};
use parquet::schema::types::SchemaDescriptor;

use self::{pairs::PairSum, segment::ROW_GROUP_ROWS};
use crate::{
    codec::hex::to_hex,
    dataset::{
        ids::width::HashWidth,
        table::{
            self, Group, GroupWriter,
            chunks::{self, Values},
        },
    },
    error::Result,
    storage::Store,
};

pub(in crate::dataset) use merge::grow_segments;
pub use merge::{MergedSegment, merge_into_one, segments_to_merge};
pub(in crate::dataset) use ordered::rewrite_ordered;
pub use pairs::PAIR_BYTES;
pub(in crate::dataset) use read::bucket_pairs;
pub use read::{each_pair, read_segment};
pub(in crate::dataset) use read::{lookup_many, lookup_one};
pub use renumber::renumber_segments;
pub(in crate::dataset) use segment::WrittenBucket;
pub use segment::{SegmentRef, bucket_of};
pub use sum::{BLOCK_PAIRS, Block, SegmentTree, bucket_leaf, segment_leaf};
pub(in crate::dataset) use sum::{facts_of, known_leaf, root_of};
pub use write::{SegmentWriter, Segments};

/// Target pairs per bucket: a segment has the smallest power of two of buckets that holds no more than this on average.
const BUCKET_PAIRS: u64 = 1 << 20;

/// Pairs for each different hash from which on hashes are stored once: a hash with the run of its key takes up to 11
/// bytes, a difference between two hashes about 6.
const REPEATS: usize = 3;

fn schema(hashes: HashWidth) -> Schema {
    let field = |name| Field::new(name, DataType::UInt64, false);
    Schema::new(vec![field(hashes.column_name()), field("record")])
}

/// Writes a bucket from pairs in ascending order, whose hashes are [cut](HashWidth::truncate_hash) to the width of the
/// segment.
pub(in crate::dataset) struct BucketWriter {
    table: GroupWriter,
    columns: SchemaDescriptor,
    width: HashWidth,
    sum: PairSum,
    hashes: Vec<u64>,
    records: Vec<u64>,
    /// Whether hashes repeat so often that each is stored once; the first row group decides, so that all have a similar
    /// size.
    repeats: Option<bool>,
}

impl BucketWriter {
    pub(in crate::dataset) fn create(store: &dyn Store, segment: &SegmentRef, bucket: u64) -> Result<Self> {
        let width = segment.hashes;
        let columns = table::parquet_schema(&schema(width))?;
        let table = GroupWriter::create(store, &segment.bucket_path(bucket), &columns)?;
        let column = || Vec::with_capacity(ROW_GROUP_ROWS);
        Ok(Self { table, columns, width, sum: PairSum::new(width), hashes: column(), records: column(), repeats: None })
    }

    /// Appends the next pairs.
    pub(in crate::dataset) fn push_all(&mut self, mut pairs: &[(u64, u64)]) -> Result<()> {
        self.sum.add_pairs(pairs);
        while !pairs.is_empty() {
            let (taken, rest) = pairs.split_at(pairs.len().min(ROW_GROUP_ROWS - self.hashes.len()));
            self.hashes.extend(taken.iter().map(|pair| self.width.to_stored(pair.0)));
            self.records.extend(taken.iter().map(|pair| pair.1));
            if self.hashes.len() == ROW_GROUP_ROWS {
                self.flush()?;
            }
            pairs = rest;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let rows = self.hashes.len();
        let take = |values: &mut Vec<u64>| std::mem::replace(values, Vec::with_capacity(ROW_GROUP_ROWS));
        let (hashes, records) = (take(&mut self.hashes), UInt64Array::from(take(&mut self.records)));
        let repeats = *self.repeats.get_or_insert_with(|| {
            rows > 0 && (1 + hashes.windows(2).filter(|pair| pair[0] != pair[1]).count()) * REPEATS <= rows
        });
        let encode = |column, values: &Values<'_>| {
            let mut chunk = chunks::encode_chunk(&self.columns.column(column), rows, values)?;
            // An offset index is useless where each chunk is one page.
            chunk.close.offset_index = None;
            Ok::<_, crate::error::Error>(chunk)
        };
        // Hashes are random: compression would cost time and save nothing.
        let hashes = if repeats {
            let mut dictionary = hashes.clone();
            dictionary.dedup();
            let key = |key: &mut u32, pair: &[u64]| {
                *key += u32::from(pair[0] != pair[1]);
                Some(*key)
            };
            let keys: Vec<u32> = std::iter::once(0).chain(hashes.windows(2).scan(0, key)).take(rows).collect();
            encode(0, &Values::Ascending { keys: &keys, dictionary: &dictionary })?
        } else {
            encode(0, &Values::Packed(&UInt64Array::from(hashes)))?
        };
        let chunks = vec![hashes, encode(1, &Values::Packed(&records))?];
        self.table.append_group(Group { chunks, rows: rows as u64 })
    }

    /// Finishes the bucket.
    pub(in crate::dataset) fn finish(mut self) -> Result<WrittenBucket> {
        self.flush()?;
        let (pairs, bytes) = (self.table.row_count(), self.table.bytes_written());
        let hash = self.sum.hash();
        if let Some(hash) = hash {
            self.table.add_metadata(pairs::KEY, to_hex(&hash));
        }
        Ok(WrittenBucket { staged: self.table.finish()?, pairs, bytes, hash })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        dataset::ids::{IdKind, Wanted, width::HashPlan},
        id::{IdHash, TransactionId},
        storage::RemoteStore,
    };

    #[test]
    fn ids_may_come_one_by_one_or_together() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        for nulls in [false, true] {
            let made: Vec<Vec<(IdHash, u64)>> = [false, true]
                .into_iter()
                .map(|together| {
                    let mut writer = SegmentWriter::new(
                        Arc::clone(&store),
                        IdKind::Record,
                        &HashPlan::default(),
                        TransactionId::fresh(),
                    );
                    // Records are not all consecutive, and numbers exceed 32 bits.
                    for (start, rows) in [(0, 70_000), (70_000, 3), (100_000, 150_000), (u64::from(u32::MAX) + 9, 10)] {
                        let id = |row: u64| (!nulls || !row.is_multiple_of(3)).then(|| format!("R{}", start + row));
                        let ids: arrow::array::StringArray = (0..rows).map(id).collect();
                        let hashes = crate::dataset::IdColumn::from(ids).to_hashes();
                        if together {
                            writer.push_all(hashes, start).unwrap();
                        } else {
                            hashes.iter().for_each(|(row, hash)| writer.push(hash, start + row as u64).unwrap());
                        }
                    }
                    let Segments { refs, staged, repeated } = Segments::finish_all([writer]).unwrap();
                    assert_eq!((refs.len(), repeated), (2, 0));
                    store.publish_staged(staged).unwrap();
                    refs.iter().flat_map(|segment| read_segment(&store, segment).unwrap()).collect()
                })
                .collect();
            assert_eq!(made[0].len() > 200_000, !nulls);
            assert_eq!(made[0], made[1]);
        }
    }

    #[test]
    fn exactly_the_added_ids_are_found() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer =
            SegmentWriter::new(Arc::clone(&store), IdKind::Subject, &HashPlan::default(), TransactionId::fresh());
        for record in 0..50_000_u64 {
            writer.push(IdHash::from_id(&format!("PAT-{}", record % 10_000)), record).unwrap();
        }
        let Segments { refs: mut segments, staged, .. } = Segments::finish_all([writer]).unwrap();
        store.publish_staged(staged).unwrap();
        segments[0].record_base = 1_000_000;
        let find = |id: &str| {
            segments
                .iter()
                .flat_map(|s| lookup_one(&store, s, Wanted { hash: IdHash::from_id(id), id }).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(find("PAT-23"), [1_000_023, 1_010_023, 1_020_023, 1_030_023, 1_040_023]);
        assert!(find("PAT-10000").is_empty());
        assert_eq!(read_segment(&store, &segments[0]).unwrap().len(), 50_000);
    }

    #[test]
    fn hashes_that_repeat_are_stored_once() {
        // Whether the hash of a pair differs from the one before it.
        let repeated = |pair: u64| u64::from(pair.is_multiple_of(25));
        let first_half = |pair: u64| if pair < 30_000 { repeated(pair) } else { 1 };
        let second_half = |pair: u64| if pair < 30_000 { 1 } else { repeated(pair) };
        let cases: [(&dyn Fn(u64) -> u64, u64); 4] =
            [(&repeated, 35), (&first_half, 90), (&second_half, 90), (&|pair| u64::from(pair == 0), 30)];
        for (step, most) in cases {
            let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
            let mut writer =
                SegmentWriter::new(Arc::clone(&store), IdKind::Subject, &HashPlan::default(), TransactionId::fresh());
            let mut at = 0;
            let hashes: Vec<IdHash> = (0..60_000_u64)
                .map(|pair| {
                    at += step(pair) * (u64::MAX / 60_001 + pair * 0x9e37_79b9 % 1_000_003);
                    IdHash(at)
                })
                .collect();
            // They arrive in another order.
            for record in 0..60_000 {
                writer.push(hashes[record * 7_919 % 60_000], record as u64).unwrap();
            }
            let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
            store.publish_staged(staged).unwrap();
            let found = read_segment(&store, &refs[0]).unwrap();
            assert!(found.is_sorted() && found.iter().map(|pair| pair.0).eq(hashes.iter().copied()));
            assert!(refs[0].bytes * 10 < 60_000 * most, "{} bytes", refs[0].bytes);
            for number in [0, 8_191, 8_192, 29_999, 30_000, 59_999] {
                let hash = hashes[number];
                let expected: Vec<u64> = found.iter().filter(|pair| pair.0 == hash).map(|pair| pair.1).collect();
                assert_eq!(lookup_one(&store, &refs[0], Wanted { hash, id: "" }).unwrap(), expected);
                assert!(lookup_one(&store, &refs[0], Wanted { hash: IdHash(hash.0 + 1), id: "" }).unwrap().is_empty());
            }
        }
    }

    #[test]
    fn segments_are_sorted_and_complete() {
        for (count, distinct) in [(1, 1), (300, 7), (70_000, 70_000), (3 << 20, 50_000)] {
            let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
            let mut writer =
                SegmentWriter::new(Arc::clone(&store), IdKind::Record, &HashPlan::default(), TransactionId::fresh());
            let hash = |i: u64| {
                (i * 7 % distinct)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29)
                    .wrapping_mul(0x2545_f491_4f6c_dd1d)
            };
            let mut expected: Vec<(IdHash, u64)> = (0..count).map(|i| (IdHash(hash(i)), 5 + i)).collect();
            expected.iter().for_each(|(hash, record)| writer.push(*hash, *record).unwrap());
            let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
            store.publish_staged(staged).unwrap();
            expected.sort_unstable();
            assert!(read_segment(&store, &refs[0]).unwrap() == expected, "{count}");
        }
    }

    #[test]
    fn buckets_are_the_first_bits() {
        assert_eq!(bucket_of(IdHash(u64::MAX), 1), 0);
        assert_eq!(bucket_of(IdHash(u64::MAX), 4), 3);
        assert_eq!(bucket_of(IdHash(1 << 62), 4), 1);
    }

    #[test]
    fn a_missing_bucket_is_damage_and_not_an_empty_answer() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let segment = SegmentRef {
            kind: IdKind::Record,
            path: "_shardify/index/x".into(),
            record_base: 0,
            split: None,
            ordered: false,
            hashes: HashWidth::Eight,
            pairs: 1,
            buckets: 1,
            bytes: 0,
            root: None,
            seals: Vec::new(),
        };
        assert!(lookup_one(&store, &segment, Wanted { hash: IdHash::from_id("a"), id: "a" }).is_err());
    }
}
