//! State of erasures in log entries; every later entry repeats it.

use serde::{Deserialize, Serialize};

use crate::{
    dataset::{
        ids::salt::Salt,
        table::{list::ListRef, paths::receipt_path},
    },
    error::Result,
    id::{TransactionId, Version},
    storage::Store,
};

/// State of erasures in an entry; every later entry repeats it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasures {
    /// Number of erasures, with which a run detects that another run has erased in the meantime.
    pub count: u64,
    /// Salt of the hashes of erased ids, in hexadecimal.
    pub(in crate::dataset) salt: String,
    /// Versions before this one are read through `rewritten` and `replaced`; 0 if nothing was ever erased from all
    /// versions.
    #[serde(default)]
    pub rewrote_before: Version,
    /// Hashes of erased ids.
    pub suppressed: Vec<ListRef>,
    /// Numbers of erased records.
    pub tombstones: Vec<ListRef>,
    /// Shards that were rewritten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewritten: Vec<ListRef>,
    /// Segments and lists that were rewritten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<ListRef>,
    /// Erasures that had work left, as far as is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<Unfinished>,
}

impl Erasures {
    pub(in crate::dataset) fn new(salt: Salt) -> Self {
        Self {
            count: 0,
            salt: salt.hex_text(),
            rewrote_before: Version(0),
            suppressed: Vec::new(),
            tombstones: Vec::new(),
            rewritten: Vec::new(),
            replaced: Vec::new(),
            unfinished: Vec::new(),
        }
    }

    /// Returns the salt.
    ///
    /// # Errors
    /// When the entry is damaged.
    pub fn parse_salt(&self) -> Result<Salt> {
        Salt::from_hex(&self.salt)
    }

    /// Returns all lists.
    pub(in crate::dataset) fn all_lists(&self) -> impl Iterator<Item = &ListRef> {
        [&self.suppressed, &self.tombstones, &self.rewritten, &self.replaced].into_iter().flatten()
    }
}

/// An erasure that was committed but had no receipt yet, as an entry names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// The version that it created.
    pub version: Version,
    /// Id of the run.
    pub transaction: TransactionId,
    /// Path of its order.
    pub order: String,
    /// BLAKE3 of the order.
    pub(in crate::dataset) blake3: String,
}

impl Unfinished {
    /// Returns the same reference for the given version.
    #[must_use]
    pub fn of_version(&self, version: Version) -> Self {
        Self { version, ..self.clone() }
    }

    /// Whether no work is left.
    ///
    /// # Errors
    /// When the store fails.
    pub fn is_finished(&self, store: &dyn Store) -> Result<bool> {
        Ok(store.head(&receipt_path(&self.transaction))?.is_some())
    }
}

impl Erasures {
    /// Removes finished erasures; the one that created `version` cannot be finished.
    pub(in crate::dataset) fn drop_finished(&mut self, store: &dyn Store, version: Version) -> Result<()> {
        let mut kept = Vec::new();
        for unfinished in std::mem::take(&mut self.unfinished) {
            if unfinished.version == version || !unfinished.is_finished(store)? {
                kept.push(unfinished);
            }
        }
        self.unfinished = kept;
        Ok(())
    }
}
