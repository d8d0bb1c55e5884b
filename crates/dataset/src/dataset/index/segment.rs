//! What a segment of the id index is: how the log refers to it, and where a hash is in it.

use serde::{Deserialize, Serialize};

use crate::{
    codec::{
        hex::hash_or_none,
        merkle::Hash,
        seal::{self, Seal},
    },
    dataset::{
        ids::{IdKind, width::HashWidth},
        table::{
            paths,
            sealed::{Sealed, seal_of},
        },
    },
    error::{Error, Result},
    id::IdHash,
    storage::Staged,
};

/// Pairs per row group, which is what a lookup decodes.
pub(super) const ROW_GROUP_ROWS: usize = 8_192;

/// A segment as referenced by the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRef {
    /// Kind of its ids.
    pub kind: IdKind,
    /// Folder of its buckets, relative to the dataset.
    pub path: String,
    /// Base added to its record numbers.
    pub record_base: u64,
    /// Name of the split that all its records are in; absent if the dataset is not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Whether it has the ids themselves, in ascending order, in place of their hashes (see [`super::ordered`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordered: bool,
    /// Bytes of its hashes, and of those that are made of its ids where it is ordered.
    #[serde(rename = "hash_bytes", default, skip_serializing_if = "HashWidth::is_eight")]
    pub hashes: HashWidth,
    /// Number of pairs.
    pub pairs: u64,
    /// Number of buckets, a power of two; 1 if it is ordered.
    pub buckets: u64,
    /// Bytes of the pairs in all buckets, without footers, from which the position of a hash in a bucket is estimated.
    pub bytes: u64,
    /// Merkle root of the hashes of its buckets; `None` if its hashes have five bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub root: Option<Hash>,
    /// Seal of each bucket.
    #[serde(with = "seal::many")]
    pub seals: Vec<Seal>,
}

impl SegmentRef {
    /// Returns the segment with `base` added to the numbers of its records.
    #[must_use]
    pub fn shifted_by(self, base: u64) -> Self {
        Self { record_base: self.record_base + base, ..self }
    }

    pub(in crate::dataset) fn bucket_path(&self, bucket: u64) -> String {
        Self::bucket_at(&self.path, bucket)
    }

    /// Returns a bucket.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the segment does not have it.
    pub fn sealed_bucket(&self, bucket: u64) -> Result<Sealed> {
        let seal = usize::try_from(bucket).ok().and_then(|bucket| self.seals.get(bucket));
        let missing = || Error::integrity(format!("expected a segment with a bucket {bucket}, found none"));
        Ok(Sealed::new(self.bucket_path(bucket), *seal.ok_or_else(|| missing().at_location(self.path.clone()))?))
    }

    /// Returns the path of a bucket of a segment in a folder.
    pub(in crate::dataset) fn bucket_at(folder: &str, bucket: u64) -> String {
        paths::bucket_path(folder, bucket)
    }

    /// Returns the number of the bucket that holds a hash.
    pub fn bucket_of(&self, hash: IdHash) -> u64 {
        bucket_of(hash, self.buckets)
    }

    /// Returns the paths of all its buckets.
    pub fn bucket_paths(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.buckets).map(|bucket| self.bucket_path(bucket))
    }
}

/// Returns the number of the bucket, of `buckets` (a power of two), that holds a hash.
pub fn bucket_of(hash: IdHash, buckets: u64) -> u64 {
    match buckets.trailing_zeros() {
        0 => 0,
        bits => hash.0.unbounded_shr(64 - bits.min(64)),
    }
}

/// Returns the lowest hash of a bucket.
pub(super) fn first_hash(bucket: u64, buckets: u64) -> u64 {
    match buckets.trailing_zeros() {
        0 => 0,
        bits => bucket << (64 - bits),
    }
}

/// Returns the seals of all buckets of a segment, in order.
pub(super) fn seals_of(buckets: &[WrittenBucket]) -> Result<Vec<Seal>> {
    buckets.iter().map(|bucket| seal_of(&bucket.staged)).collect()
}

/// A written bucket that has no name yet.
pub(in crate::dataset) struct WrittenBucket {
    pub(in crate::dataset) staged: Staged,
    pub(in crate::dataset) pairs: u64,
    /// Bytes of the pairs, without the footer.
    pub(super) bytes: u64,
    /// Hash of its pairs; `None` if its hashes have five bytes.
    pub(in crate::dataset) hash: Option<Hash>,
}
