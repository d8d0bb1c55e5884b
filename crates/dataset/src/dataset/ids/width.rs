//! How much of the hash of an id the id index has, which all segments of a dataset have in common.
//!
//! ```text
//! SHA-256 of the id   0f 1e 2d 3c 4b 5a 69 78 ...
//! eight bytes         0f1e2d3c4b5a6978              column `hash`:   proofs lead from the root of a version to them
//! five bytes          0f1e2d3c4b                    column `hash40`: no proofs
//! in memory           0f1e2d3c4b000000              in the upper bits: both have one order and the same buckets
//! ```
//!
//! A lookup compares the text of every id that it finds, so a hash need only be long enough for few others to have the
//! same: among 10^9 ids one in a thousand lookups finds an id that is not the wanted one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};

use super::{
    IdKind,
    column::{IdColumn, IdHashes},
};
use crate::{error::Error, id::IdHash};

/// Number of bytes of a hash in the id index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum HashWidth {
    /// All that [`IdHash`] has; the root of a segment is that of its pairs.
    #[default]
    Eight,
    /// The first five; a segment has no root, so its objects stand for it in the root of a version.
    Five,
}

impl HashWidth {
    /// Returns the width in a dataset: that of the dataset, or of a new one, with proofs or without.
    ///
    /// # Errors
    /// If the dataset has no proofs and they are asked for.
    pub fn for_dataset(old: Option<Self>, proofs: bool) -> Result<Self, Error> {
        match (old, proofs) {
            (Some(Self::Five), true) => Err(Self::without_proofs().with_hint("name another dataset with --out")),
            (Some(old), _) => Ok(old),
            (None, true) => Ok(Self::Eight),
            (None, false) => Ok(Self::Five),
        }
    }

    /// Returns the error for a dataset that has no proofs where they are needed.
    pub fn without_proofs() -> Error {
        Error::usage(
            "expected a dataset made with --proofs, found one whose id index has only the first bytes of hashes",
        )
    }

    /// Returns the number of bytes.
    pub fn byte_count(self) -> u8 {
        match self {
            Self::Eight => 8,
            Self::Five => 5,
        }
    }

    /// Whether the root of a version leads to the pairs of its segments.
    pub fn has_proofs(self) -> bool {
        self == Self::Eight
    }

    /// Whether it is the width that the log states by omission.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
    pub(in crate::dataset) fn is_eight(&self) -> bool {
        *self == Self::Eight
    }

    /// Returns a hash without the bytes that the index does not have.
    #[must_use]
    pub fn truncate_hash(self, hash: IdHash) -> IdHash {
        IdHash(self.to_stored(hash.0) << self.unstored_bits())
    }

    /// Returns the name of the column.
    pub(in crate::dataset) fn column_name(self) -> &'static str {
        match self {
            Self::Eight => "hash",
            Self::Five => "hash40",
        }
    }

    /// Returns the number in the column.
    pub(in crate::dataset) fn to_stored(self, hash: u64) -> u64 {
        hash >> self.unstored_bits()
    }

    /// Returns the hash of a number in the column; numbers that the column cannot have are cut.
    pub(in crate::dataset) fn of_stored(self, number: u64) -> u64 {
        number << self.unstored_bits()
    }

    /// Returns the greatest hash that is stored as a number.
    pub(in crate::dataset) fn end_of_stored(self, number: u64) -> u64 {
        self.of_stored(number) | !(u64::MAX << self.unstored_bits())
    }

    fn unstored_bits(self) -> u32 {
        u64::BITS - 8 * u32::from(self.byte_count())
    }
}

/// Which ids of a run are hashed where they are encoded, which all cores do, and which only if they turn out not to
/// ascend.
#[derive(Debug, Clone, Default)]
pub struct HashPlan {
    width: HashWidth,
    /// Whether ids of records, or of subjects, were found not to ascend throughout.
    needed: Arc<[AtomicBool; 2]>,
}

impl HashPlan {
    /// Returns the plan of a run whose index has hashes of this width.
    pub fn new(width: HashWidth) -> Self {
        Self { width, needed: Arc::default() }
    }

    /// Returns the width of the hashes.
    pub fn width(&self) -> HashWidth {
        self.width
    }

    /// Returns ids of consecutive records as the index needs them. What it makes of them depends on the ids alone.
    pub fn ids_for_index(&self, kind: IdKind, ids: Option<&IdColumn>) -> IdHashes {
        ids.map_or_else(IdHashes::default, |ids| {
            ids.for_index(self.width, self.needed_flag(kind).load(Ordering::Relaxed))
        })
    }

    /// States that ids of a kind do not ascend throughout.
    pub(in crate::dataset) fn require_hashes(&self, kind: IdKind) {
        self.needed_flag(kind).store(true, Ordering::Relaxed);
    }

    fn needed_flag(&self, kind: IdKind) -> &AtomicBool {
        match kind {
            IdKind::Record => &self.needed[0],
            IdKind::Subject => &self.needed[1],
        }
    }
}

impl From<HashWidth> for u8 {
    fn from(width: HashWidth) -> Self {
        width.byte_count()
    }
}

impl TryFrom<u8> for HashWidth {
    type Error = Error;

    fn try_from(bytes: u8) -> Result<Self, Error> {
        match bytes {
            8 => Ok(Self::Eight),
            5 => Ok(Self::Five),
            _ => Err(Error::integrity(format!("expected hashes of 5 or 8 bytes, found {bytes}"))),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn hashes_keep_their_order_and_their_first_bytes() {
        let hash = IdHash(0x0f1e_2d3c_4b5a_6978);
        assert_eq!((HashWidth::Eight.truncate_hash(hash), HashWidth::Eight.to_stored(hash.0)), (hash, hash.0));
        assert_eq!(HashWidth::Five.truncate_hash(hash), IdHash(0x0f1e_2d3c_4b00_0000));
        assert_eq!(HashWidth::Five.to_stored(hash.0), 0x0f_1e2d_3c4b);
        assert_eq!(HashWidth::Five.of_stored(0x0f_1e2d_3c4b), 0x0f1e_2d3c_4b00_0000);
        assert_eq!(serde_json::to_string(&HashWidth::Five).unwrap(), "5");
        assert_eq!(serde_json::from_str::<HashWidth>("8").unwrap(), HashWidth::Eight);
        assert!(serde_json::from_str::<HashWidth>("4").is_err());
    }
}
