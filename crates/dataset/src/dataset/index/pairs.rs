//! Hash of the pairs of a bucket, which its footer stores and the root of its segment follows from.
//!
//! ```text
//! pair  hash u64, record number u64, little-endian      record numbers are relative to the base of the segment
//! ```

use crate::{codec::merkle::Hash, dataset::ids::width::HashWidth, error::Result};

/// What is called with pairs of hash and record number, some at a time.
pub(super) type VisitPairs<'a> = dyn FnMut(&[(u64, u64)]) -> Result<()> + 'a;

/// Bytes of a pair.
pub const PAIR_BYTES: usize = 16;

/// Pairs hashed at a time, which stay in a cache.
const PAIRS_AT_ONCE: usize = 8_192;

/// Footer metadata key of a bucket's hash.
pub(super) const KEY: &str = "shardify.blake3";

/// Hasher of a bucket whose pairs arrive in order.
#[derive(Debug, Default)]
pub(super) struct BucketSum {
    hasher: blake3::Hasher,
    /// The pairs that were added last.
    pub(super) bytes: Vec<u8>,
}

impl BucketSum {
    /// Adds `count` pairs.
    fn add_pairs(&mut self, count: usize, pairs: impl Iterator<Item = (u64, u64)>) {
        self.bytes.resize(count * PAIR_BYTES, 0);
        for (bytes, (hash, record)) in self.bytes.as_chunks_mut::<PAIR_BYTES>().0.iter_mut().zip(pairs) {
            bytes[..8].copy_from_slice(&hash.to_le_bytes());
            bytes[8..].copy_from_slice(&record.to_le_bytes());
        }
        self.hasher.update(&self.bytes);
    }

    /// Adds pairs whose record numbers are relative to `base` after it is subtracted.
    pub(super) fn add_absolute(&mut self, pairs: &[(u64, u64)], base: u64) {
        self.add_pairs(pairs.len(), pairs.iter().map(|(hash, record)| (*hash, record.wrapping_sub(base))));
    }

    /// Returns the hash of the pairs added so far.
    pub(super) fn hash(&self) -> Hash {
        *self.hasher.finalize().as_bytes()
    }
}

/// Sum of the pairs of a bucket that is written: its hash, if the root of the segment follows from it, and how many
/// there are.
#[derive(Debug)]
pub(super) struct PairSum {
    sum: Option<BucketSum>,
    pairs: u64,
}

impl PairSum {
    pub(super) fn new(hashes: HashWidth) -> Self {
        let sum = hashes.has_proofs().then(BucketSum::default);
        Self { sum, pairs: 0 }
    }

    /// Adds the next pairs, with the record numbers that the bucket has.
    pub(super) fn add_pairs(&mut self, pairs: &[(u64, u64)]) {
        self.pairs += pairs.len() as u64;
        if let Some(sum) = &mut self.sum {
            pairs.chunks(PAIRS_AT_ONCE).for_each(|pairs| sum.add_pairs(pairs.len(), pairs.iter().copied()));
        }
    }

    /// Number of pairs.
    pub(super) fn pair_count(&self) -> u64 {
        self.pairs
    }

    /// Returns the hash of the pairs added so far; `None` if the root of the segment does not follow from it.
    pub(super) fn hash(&self) -> Option<Hash> {
        self.sum.as_ref().map(BucketSum::hash)
    }
}
