//! References to lists: tables that log entries name and that are merged when there are many.

use serde::{Deserialize, Serialize};

use super::sealed::Sealed;
use crate::codec::{hex::hash_or_none, merkle::Hash, seal::Seal};

/// A list in Parquet, referenced by every entry that includes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRef {
    /// Path relative to the dataset.
    pub path: String,
    /// Number of rows.
    pub rows: u64,
    /// Merkle root of the row hashes, for lists of shards; `None` for others, and in memory for a version whose shards
    /// an erasure has replaced since.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub root: Option<Hash>,
    /// Seal of the list.
    pub seal: Seal,
}

impl ListRef {
    /// Returns the list as a sealed object.
    pub fn as_sealed(&self) -> Sealed {
        Sealed::new(self.path.as_str(), self.seal)
    }
}
