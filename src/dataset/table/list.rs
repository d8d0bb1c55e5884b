//! References to lists: tables that entries of the log name, and that are merged as they become many.

use serde::{Deserialize, Serialize};

use super::sealed::Sealed;
use crate::codec::{hex::hash_or_none, merkle::Hash, seal::Seal};

/// A list in Parquet, referenced by every entry that it is part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRef {
    /// Path relative to the dataset.
    pub path: String,
    /// Rows it has.
    pub rows: u64,
    /// How often it was merged: lists of one level are merged when there are several, so there are always few.
    pub level: u32,
    /// Root of the hashes of its rows, of lists of shards.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub root: Option<Hash>,
    /// What the list has to be; absent: an older release wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

impl ListRef {
    /// The object.
    pub fn sealed(&self) -> Sealed {
        Sealed::new(self.path.as_str(), self.seal)
    }
}
