//! What `reshard` reports.

use serde::Serialize;

use crate::{dataset::Counts, id::Version};

/// A new shard, or one that is planned.
#[derive(Debug, Clone, Serialize)]
pub struct ReshardedShard {
    /// Its path.
    pub path: String,
    /// Its records.
    pub records: u64,
    /// Its size; estimated in a plan.
    pub bytes: u64,
}

/// Report of `reshard`.
#[derive(Debug, Clone, Serialize)]
pub struct ReshardReport {
    /// The dataset that was cut.
    pub parent: String,
    /// Its version.
    pub parent_version: Version,
    /// Root of that version in hexadecimal, if it has one.
    pub parent_root: Option<String>,
    /// The new dataset.
    pub dataset: String,
    /// Its version; absent if nothing was written.
    pub version: Option<Version>,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Shards of the parent.
    pub shards_before: u64,
    /// Shards of the new dataset.
    pub shards_after: u64,
    /// Smallest and largest shard in bytes; estimated in a plan.
    pub shard_bytes: [u64; 2],
    /// Fewest and most records of a shard.
    pub shard_records: [u64; 2],
    /// Bytes of the parent that were copied as they are stored.
    pub bytes_copied: u64,
    /// Bytes of the parent whose pages were spliced.
    pub bytes_spliced: u64,
    /// Bytes of the parent that were decoded and encoded again.
    pub bytes_reencoded: u64,
    /// Ids that were given; absent without --ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<u64>,
    /// Ids that no record has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids_missing: Vec<String>,
    /// Time taken.
    pub seconds: f64,
    /// The shards.
    #[serde(skip)]
    pub shards: Vec<ReshardedShard>,
}
