//! Report of an erasure: about each id, about each shard, and about the run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{kinds::NameKind, receipt::ShardReceipt};
use crate::{dataset::Counts, id::Version, ops::training::SeenSummary};

/// Result for an id.
#[derive(Debug, Clone, Serialize)]
pub struct IdReport {
    /// The id.
    pub id: String,
    /// Records that carried it.
    pub records: u64,
    /// Those records by the kind of the id.
    pub carried_as: BTreeMap<NameKind, u64>,
    /// Records with it that runs omitted as duplicates of others.
    pub left_out: u64,
    /// Version that erased it before, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased_in: Option<Version>,
}

impl IdReport {
    /// Returns whether no record carries the id, none was omitted, and no earlier erasure of it is known.
    pub fn is_missing(&self) -> bool {
        self.records == 0 && self.left_out == 0 && self.erased_in.is_none()
    }
}

/// Report of an `erase` run.
#[derive(Debug, Clone, Serialize)]
pub struct EraseReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if there was nothing to erase.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Whether the records were also erased from older versions.
    pub all_versions: bool,
    /// Records erased.
    pub records_erased: u64,
    /// Records with the ids that runs omitted as duplicates of others; they are not imported again.
    pub left_out: u64,
    /// Oldest and newest version that still contain some of them, until they are vacuumed.
    pub kept_in: Option<(Version, Version)>,
    /// Tags of versions that may still contain some of them; `vacuum` never deletes these versions.
    pub kept_by: Vec<String>,
    /// Training runs whose version had some of them, and which of their steps saw them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub training_runs: Vec<SeenSummary>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Rewritten shards.
    pub shards_rewritten: u64,
    /// Bytes copied unchanged.
    pub bytes_copied: u64,
    /// Bytes encoded again.
    pub bytes_reencoded: u64,
    /// Objects deleted.
    pub objects_deleted: u64,
    /// Lines removed from files of rejects, and rows from tables of duplicates.
    pub rejects_erased: u64,
    /// Paths of damaged files of rejects and tables of duplicates, which may name the erased and were not searched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_searched: Vec<String>,
    /// Sources that the dataset no longer lists, because their names identified the erased subject.
    pub sources_erased: u64,
    /// Sources of other records, log entries, footers and folders of adopted shards whose names or texts contain an
    /// erased id, and are kept.
    pub names_kept: Vec<String>,
    /// Objects that no version refers to: unfinished runs may have left records in them.
    pub objects_unreferenced: u64,
    /// Path of the receipt, relative to the dataset.
    pub receipt: Option<String>,
    /// Ids that no record carries.
    pub missing: Vec<String>,
    /// Time taken.
    pub seconds: f64,
    /// The ids.
    #[serde(skip)]
    pub ids: Vec<IdReport>,
    /// The affected shards.
    #[serde(skip)]
    pub shards: Vec<ShardReceipt>,
}

impl EraseReport {
    pub(super) fn add_not_searched(&mut self, paths: Vec<String>) {
        self.not_searched.extend(paths);
        self.not_searched.sort_unstable();
        self.not_searched.dedup();
    }
}
