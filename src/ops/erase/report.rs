//! What an erasure reports: of each id, of each shard, and of the run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{kinds::NameKind, receipt::ShardReceipt};
use crate::{dataset::Counts, id::Version};

/// What became of an id.
#[derive(Debug, Clone, Serialize)]
pub struct IdReport {
    /// The id.
    pub id: String,
    /// Records that carried it.
    pub records: u64,
    /// The same by what it was to them.
    pub carried_as: BTreeMap<NameKind, u64>,
    /// Version that erased it before, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased_in: Option<Version>,
}

impl IdReport {
    /// Whether nobody carries the id, nor ever did as far as anybody knows.
    pub fn is_missing(&self) -> bool {
        self.records == 0 && self.erased_in.is_none()
    }
}

/// What was done, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct EraseReport {
    /// The dataset.
    pub dataset: String,
    /// The version made; the current one when there was nothing to erase.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Whether older versions lose the records as well.
    pub all_versions: bool,
    /// Records erased.
    pub records_erased: u64,
    /// Oldest and newest version that still have some of them, until they are vacuumed.
    pub kept_in: Option<(Version, Version)>,
    /// Tags of versions that may still have some of them; no vacuum takes these.
    pub kept_by: Vec<String>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Shards written anew.
    pub shards_rewritten: u64,
    /// Bytes copied as they were stored.
    pub bytes_copied: u64,
    /// Bytes encoded anew.
    pub bytes_reencoded: u64,
    /// Objects deleted.
    pub objects_deleted: u64,
    /// Lines taken out of files of rejects.
    pub rejects_erased: u64,
    /// Sources that the dataset no longer lists, because their names said whom they were about.
    pub sources_erased: u64,
    /// Names of sources and shards that hold an erased id, and stay because of other records.
    pub names_kept: Vec<String>,
    /// Objects that no version refers to: runs that did not finish may have left records there.
    pub objects_unreferenced: u64,
    /// The receipt, relative to the dataset.
    pub receipt: Option<String>,
    /// Ids that nobody carries.
    pub missing: Vec<String>,
    /// Time taken.
    pub seconds: f64,
    /// The ids.
    #[serde(skip)]
    pub ids: Vec<IdReport>,
    /// The touched shards.
    #[serde(skip)]
    pub shards: Vec<ShardReceipt>,
}
