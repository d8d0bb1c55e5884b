//! What entries say about erasures; every later one repeats it.

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

/// What an entry says about erasures; every later one repeats it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasures {
    /// How many there were, so that a run notices that another one has erased meanwhile.
    pub count: u64,
    /// Salt of the hashes of erased ids, in hexadecimal.
    pub(in crate::dataset) salt: String,
    /// Older versions are read through `rewritten` and `replaced`; 0 when nothing was ever erased from all versions.
    #[serde(default)]
    pub rewrote_before: Version,
    /// Hashes of erased ids.
    pub suppressed: Vec<ListRef>,
    /// Numbers of erased records.
    pub tombstones: Vec<ListRef>,
    /// Shards that were written anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewritten: Vec<ListRef>,
    /// Segments and lists that were written anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<ListRef>,
    /// Erasures that had something left to do, as far as is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<Unfinished>,
}

impl Erasures {
    pub(in crate::dataset) fn new(salt: Salt) -> Self {
        Self {
            count: 0,
            salt: salt.encode(),
            rewrote_before: Version(0),
            suppressed: Vec::new(),
            tombstones: Vec::new(),
            rewritten: Vec::new(),
            replaced: Vec::new(),
            unfinished: Vec::new(),
        }
    }

    /// The salt.
    ///
    /// # Errors
    /// When the entry is damaged.
    pub fn salt(&self) -> Result<Salt> {
        Salt::decode(&self.salt)
    }

    /// All lists.
    pub(in crate::dataset) fn lists(&self) -> impl Iterator<Item = &ListRef> {
        [&self.suppressed, &self.tombstones, &self.rewritten, &self.replaced].into_iter().flatten()
    }
}

/// An erasure that was committed and whose receipt was not there yet, as an entry names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// The version that it made.
    pub version: Version,
    /// Names the run.
    pub transaction: TransactionId,
    /// Path of its order.
    pub order: String,
    /// BLAKE3 of the order.
    pub(in crate::dataset) blake3: String,
}

impl Unfinished {
    /// The same as what is left to do after the commit of a version.
    #[must_use]
    pub fn of_version(&self, version: Version) -> Self {
        Self { version, ..self.clone() }
    }

    /// Whether nothing is left to do.
    ///
    /// # Errors
    /// When the store fails.
    pub fn is_finished(&self, store: &dyn Store) -> Result<bool> {
        Ok(store.head(&receipt_path(&self.transaction))?.is_some())
    }
}

impl Erasures {
    /// Forgets erasures that are finished; the one that made `version` cannot be.
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
