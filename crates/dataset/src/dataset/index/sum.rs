//! Hashes of segments, which detect tampering and prove that a few pairs are all that exist for a hash.
//!
//! ```text
//! segment    "segment <kind> <record base> <pairs> <buckets> <root of buckets>[ <split>]\n"      hashes of eight bytes
//! '- bucket  "bucket <number> <pairs> <BLAKE3 of its pairs>\n"      a leaf of a Merkle tree as in RFC 6962
//!    '- pair  hash u64, record number u64, little-endian            64 are a BLAKE3 chunk; proofs use BLAKE3's tree
//!
//! segment    "sealed <kind> <record base> <pairs> <buckets> <root of seals>[ <split>]\n"         hashes of five bytes
//! '- bucket  "bucket <number> <seal>\n"
//! ```
//!
//! Record numbers are those in the bucket, relative to the segment's base. A bucket's hash is stored in its footer, so
//! a proof reads one bucket whole and only the footers of the others.

use std::{ops::RangeInclusive, sync::Arc};

use super::{
    ordered::HELD_PAIRS,
    pairs::{BucketSum, KEY, PAIR_BYTES},
    read::PairStream,
    segment::{SegmentRef, WrittenBucket, first_hash},
};
use crate::{
    codec::{
        chunk_tree,
        hex::{from_hex, to_hex},
        merkle::{self, Hash},
        seal::Seal,
    },
    dataset::{
        ids::width::HashWidth,
        table::{self, fetch},
    },
    error::{Error, Result},
    id::IdHash,
    storage::Store,
};

/// Pairs per block, the smallest part that a proof reveals.
pub const BLOCK_PAIRS: usize = chunk_tree::CHUNK / PAIR_BYTES;

/// Returns the text of a bucket's leaf.
pub fn bucket_leaf(bucket: u64, pairs: u64, hash: &Hash) -> String {
    format!("bucket {bucket} {pairs} {}\n", to_hex(hash))
}

/// Returns the text of a segment's leaf. For hashes of eight bytes `root` is that of its pairs, else that of its seals.
pub fn segment_leaf(segment: &SegmentRef, root: &Hash) -> String {
    let SegmentRef { kind, record_base, pairs, buckets, split, .. } = segment;
    let name = if segment.hashes.has_proofs() { "segment" } else { "sealed" };
    let split = split.as_ref().map_or_else(String::new, |split| format!(" {split}"));
    format!("{name} {} {record_base} {pairs} {buckets} {}{split}\n", kind.name(), to_hex(root))
}

/// Returns the text of a segment's leaf if it follows from what the log has.
pub(in crate::dataset) fn known_leaf(segment: &SegmentRef) -> Option<String> {
    let root = if segment.hashes.has_proofs() { segment.root } else { root_of_seals(segment) };
    root.map(|root| segment_leaf(segment, &root))
}

/// Returns the root over the seals of all buckets of a segment, in order; `None` if one has none.
fn root_of_seals(segment: &SegmentRef) -> Option<Hash> {
    let leaf = |(bucket, seal): (u64, &Seal)| merkle::hash_leaf(format!("bucket {bucket} {seal}\n").as_bytes());
    let leaves: Vec<Hash> = (0..).zip(&segment.seals).map(leaf).collect();
    (leaves.len() as u64 == segment.buckets).then(|| merkle::merkle_root(&leaves))
}

/// Returns the root over the pairs of buckets that were written, in order; `None` if their hashes have five bytes.
pub(in crate::dataset) fn root_of_written(buckets: &[WrittenBucket]) -> Option<Hash> {
    let facts: Option<Vec<(u64, Hash)>> = buckets.iter().map(|bucket| Some((bucket.pairs, bucket.hash?))).collect();
    facts.map(|facts| root_of(facts.into_iter()))
}

/// Returns the root over all buckets of a segment, in order.
pub(in crate::dataset) fn root_of(buckets: impl Iterator<Item = (u64, Hash)>) -> Hash {
    merkle::merkle_root(&bucket_leaves(buckets))
}

fn bucket_leaves(buckets: impl Iterator<Item = (u64, Hash)>) -> Vec<Hash> {
    (0..)
        .zip(buckets)
        .map(|(bucket, (pairs, hash))| merkle::hash_leaf(bucket_leaf(bucket, pairs, &hash).as_bytes()))
        .collect()
}

/// Hasher of all pairs of a segment in order.
pub(super) struct SegmentSum<'a> {
    segment: &'a SegmentRef,
    buckets: Vec<(u64, Hash)>,
    open: BucketSum,
    pairs: u64,
}

impl<'a> SegmentSum<'a> {
    pub(super) fn new(segment: &'a SegmentRef) -> Self {
        Self { segment, buckets: Vec::new(), open: BucketSum::default(), pairs: 0 }
    }

    /// Adds pairs of one bucket; their record numbers are absolute.
    pub(super) fn add_pairs(&mut self, pairs: &[(u64, u64)]) {
        let Some((first, _)) = pairs.first() else { return };
        self.close_before(self.segment.bucket_of(IdHash(*first)));
        self.pairs += pairs.len() as u64;
        self.open.add_absolute(pairs, self.segment.record_base);
    }

    fn close_before(&mut self, bucket: u64) {
        while (self.buckets.len() as u64) < bucket {
            let closed = std::mem::take(&mut self.open);
            self.buckets.push((std::mem::take(&mut self.pairs), closed.hash()));
        }
    }

    /// Returns the root once all pairs are added.
    pub(super) fn into_root(mut self) -> Hash {
        self.close_before(self.segment.buckets);
        root_of(self.buckets.into_iter())
    }
}

/// Returns the range of hashes of a bucket.
pub(super) fn hashes_of(bucket: u64, buckets: u64) -> RangeInclusive<u64> {
    let end = if bucket + 1 < buckets { first_hash(bucket + 1, buckets) - 1 } else { u64::MAX };
    first_hash(bucket, buckets)..=end
}

/// A segment in the tree of a version.
#[derive(Debug)]
pub struct SegmentTree {
    /// Text of its leaf.
    pub text: String,
    /// The requested bucket.
    pub bucket: Option<BucketTree>,
}

/// A bucket in the tree of its segment.
#[derive(Debug)]
pub struct BucketTree {
    /// Text of its leaf.
    pub text: String,
    /// Sibling hashes on the path to the root of the segment.
    pub path: Vec<Hash>,
    /// The blocks around the requested hash.
    pub blocks: Vec<Block>,
}

/// A block of pairs, with its inclusion path to the hash of the bucket.
#[derive(Debug)]
pub struct Block {
    /// Index of the block.
    pub index: u64,
    /// Its pairs; record numbers are relative to the segment's base.
    pub pairs: Vec<u8>,
    /// Sibling hashes on the path.
    pub path: Vec<Hash>,
}

impl SegmentTree {
    /// Returns a segment's tree, with the blocks around a hash if one is given.
    ///
    /// # Errors
    /// If a bucket is missing or damaged, or the segment does not match the log.
    pub fn new(store: &Arc<dyn Store>, segment: &SegmentRef, around: Option<IdHash>) -> Result<Self> {
        if let (Some(text), None) = (known_leaf(segment), around) {
            return Ok(Self { text, bucket: None });
        }
        if !segment.hashes.has_proofs() {
            return Err(HashWidth::without_proofs().at_location(store.location().join(&segment.path).to_string()));
        }
        let numbers: Vec<u64> = (0..segment.buckets).collect();
        let facts = facts_of(store, segment, &numbers)?;
        let leaves = bucket_leaves(facts.iter().copied());
        let root = merkle::merkle_root(&leaves);
        if segment.root.is_some_and(|known| known != root) {
            return Err(mismatch_error(store, segment));
        }
        let show = |hash| {
            let number = segment.bucket_of(hash);
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let (pairs, own, blocks) = around_in(store, segment, number, hash)?;
            if facts.get(at) != Some(&(pairs, own)) {
                return Err(mismatch_error(store, segment));
            }
            Ok(BucketTree { text: bucket_leaf(number, pairs, &own), path: merkle::audit_path(&leaves, at), blocks })
        };
        let bucket = around.map(show).transpose()?;
        Ok(Self { text: segment_leaf(segment, &root), bucket })
    }
}

/// Returns the error for a segment that differs from the one in the log.
pub(super) fn mismatch_error(store: &Arc<dyn Store>, segment: &SegmentRef) -> Error {
    Error::integrity("expected pairs of the id index that match the hash in the log, found others")
        .at_location(store.location().join(&segment.path).to_string())
}

/// Returns each bucket's number of pairs and hash, from the footers.
pub(in crate::dataset) fn facts_of(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    buckets: &[u64],
) -> Result<Vec<(u64, Hash)>> {
    fetch::in_parallel(buckets, &|bucket: &u64| bucket_facts(store, segment, *bucket)).into_iter().collect()
}

fn bucket_facts(store: &Arc<dyn Store>, segment: &SegmentRef, bucket: u64) -> Result<(u64, Hash)> {
    let footer = table::open_table(store, &segment.sealed_bucket(bucket)?)?;
    let about = footer.metadata().file_metadata();
    let value = about.key_value_metadata().into_iter().flatten().find(|pair| pair.key == KEY);
    let hash = value.and_then(|pair| from_hex(pair.value.as_deref()?)?.try_into().ok());
    match (hash, u64::try_from(about.num_rows())) {
        (Some(hash), Ok(pairs)) => Ok((pairs, hash)),
        _ => Err(Error::integrity("expected the hash of its pairs in the footer of a bucket, found none")
            .at_location(store.location().join(&segment.bucket_path(bucket)).to_string())),
    }
}

/// Reads a bucket and passes its pairs to `visit` as they are hashed; returns their number and hash.
fn sum_bucket(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    bucket: u64,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<(u64, Hash)> {
    let (mut sum, mut pairs, mut batch) = (BucketSum::default(), 0, Vec::new());
    let mut stream = PairStream::new(store, segment, hashes_of(bucket, segment.buckets), HELD_PAIRS);
    while stream.next_batch(&mut batch)? {
        pairs += batch.len() as u64;
        sum.add_absolute(&batch, segment.record_base);
        visit(&sum.bytes);
    }
    Ok((pairs, sum.hash()))
}

/// Returns a bucket's number of pairs, its hash, and the blocks around one of its hashes.
fn around_in(
    store: &Arc<dyn Store>,
    segment: &SegmentRef,
    bucket: u64,
    wanted: IdHash,
) -> Result<(u64, Hash, Vec<Block>)> {
    let mut around = Around { wanted, chunks: Vec::new(), kept: Vec::new(), before: None };
    let mut rest: Vec<u8> = Vec::new();
    let (pairs, hash) = sum_bucket(store, segment, bucket, &mut |bytes| {
        rest.extend_from_slice(bytes);
        let whole = rest.len() / chunk_tree::CHUNK * chunk_tree::CHUNK;
        rest[..whole].chunks(chunk_tree::CHUNK).for_each(|block| around.add_block(block));
        rest.drain(..whole);
    })?;
    if !rest.is_empty() {
        around.add_block(&rest);
    }
    Ok((pairs, hash, around.into_blocks()))
}

/// Selects the blocks around a hash while all blocks of a bucket pass.
struct Around {
    wanted: IdHash,
    /// All chunk hashes in the tree of the bucket's hash.
    chunks: Vec<Hash>,
    kept: Vec<(u64, Vec<u8>)>,
    /// The block before the hash; that it is the last such block is known only when the next one begins.
    before: Option<(u64, Vec<u8>)>,
}

impl Around {
    fn add_block(&mut self, bytes: &[u8]) {
        let number = self.chunks.len() as u64;
        self.chunks.push(chunk_tree::hash_chunk(bytes, number));
        let hash = |pair: Option<&[u8]>| pair.and_then(|pair| pair.first_chunk()).map(|hash| u64::from_le_bytes(*hash));
        let mut pairs = bytes.chunks_exact(PAIR_BYTES);
        let first = hash(pairs.next());
        let (Some(first), Some(last)) = (first, hash(pairs.last()).or(first)) else { return };
        if last < self.wanted.0 {
            self.before = Some((number, bytes.to_vec()));
        } else if first <= self.wanted.0 {
            self.before = None;
            self.kept.push((number, bytes.to_vec()));
        } else if self.kept.is_empty() {
            self.kept.extend(self.before.take());
            self.kept.push((number, bytes.to_vec()));
        }
    }

    fn into_blocks(mut self) -> Vec<Block> {
        // All blocks are before the hash: the last one proves it.
        if self.kept.is_empty() {
            self.kept.extend(self.before.take());
        }
        let block = |(index, pairs): (u64, Vec<u8>)| {
            let path = chunk_tree::sibling_hashes(&self.chunks, usize::try_from(index).unwrap_or(usize::MAX));
            Block { index, pairs, path }
        };
        self.kept.into_iter().map(block).collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::{
        super::{SegmentWriter, Segments, each_pair},
        *,
    };
    use crate::{
        dataset::ids::{IdKind, width::HashPlan},
        id::TransactionId,
        storage::RemoteStore,
    };

    /// Writes a segment of `pairs` pairs at some base.
    fn written(pairs: u64) -> (Arc<dyn Store>, SegmentRef) {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer =
            SegmentWriter::new(Arc::clone(&store), IdKind::Record, &HashPlan::default(), TransactionId::fresh());
        (0..pairs).for_each(|record| writer.push(IdHash::from_id(&format!("R{record}")), record).unwrap());
        let Segments { mut refs, staged, .. } = Segments::finish_all([writer]).unwrap();
        store.publish_staged(staged).unwrap();
        (store, SegmentRef { record_base: 70, ..refs.remove(0) })
    }

    #[test]
    fn a_segment_has_one_root_however_it_is_summed_up() {
        for count in [1, 64, 65, 10_000, 1_500_000] {
            let (store, segment) = written(count);
            let unknown = SegmentRef { root: None, ..segment.clone() };
            let mut sum = SegmentSum::new(&segment);
            let mut bytes = vec![Vec::new(); usize::try_from(segment.buckets).unwrap()];
            each_pair(&store, &segment, &mut |hash, record| {
                sum.add_pairs(&[(hash.0, record)]);
                let bucket = usize::try_from(segment.bucket_of(hash)).unwrap();
                bytes[bucket].extend([hash.0.to_le_bytes(), (record - 70).to_le_bytes()].concat());
                Ok(())
            })
            .unwrap();
            assert_eq!(Some(sum.into_root()), segment.root);
            let plain = bytes.iter().map(|pairs| (pairs.len() as u64 / 16, *blake3::hash(pairs).as_bytes()));
            assert_eq!(Some(root_of(plain)), segment.root);
            let text = SegmentTree::new(&store, &segment, None).unwrap().text;
            assert_eq!(SegmentTree::new(&store, &unknown, None).unwrap().text, text);
            for hash in [IdHash::from_id("R0"), IdHash::from_id("nobody"), IdHash(0), IdHash(u64::MAX)] {
                let tree = SegmentTree::new(&store, &segment, Some(hash)).unwrap();
                assert_eq!(tree.text, text);
                let bucket = tree.bucket.unwrap();
                let words: Vec<&str> = bucket.text.split_whitespace().collect();
                let (number, pairs): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
                assert_eq!(number, segment.bucket_of(hash));
                let leaf = merkle::hash_leaf(bucket.text.as_bytes());
                assert_eq!(merkle::root_from_path(leaf, number, segment.buckets, &bucket.path), segment.root);
                assert!(!bucket.blocks.is_empty() && bucket.blocks.len() <= 2);
                for block in bucket.blocks {
                    let top = chunk_tree::root_from_chunk(&block.pairs, block.index, pairs * 16, &block.path).unwrap();
                    assert_eq!(to_hex(&top), words[3]);
                }
            }
        }
    }

    #[test]
    fn changed_pairs_are_detected() {
        let (store, segment) = written(1_000);
        let (_, other) = written(1_001);
        let wrong = SegmentRef { root: other.root, ..segment.clone() };
        assert!(each_pair(&store, &segment, &mut |_, _| Ok(())).is_ok());
        assert!(each_pair(&store, &wrong, &mut |_, _| Ok(())).is_err());
        assert!(SegmentTree::new(&store, &wrong, Some(IdHash(5))).is_err());
    }
}
