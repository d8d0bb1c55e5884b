//! What compactions report and how they end, whether they merge or sort.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;

use crate::{
    dataset::{Counts, NewShard, Snapshot},
    error::{Error, Result},
    exec::constants::ConstantSets,
    id::Version,
    ops::rewrite::partition_folders,
};

/// Decision about one shard.
#[derive(Debug, Clone, Serialize)]
pub struct ShardChoice {
    /// Its path.
    pub shard: String,
    /// Its size.
    pub bytes: u64,
    /// `merge`, `divide`, `sort` or `keep`.
    pub choice: &'static str,
    /// Number of the group in which it is merged or divided.
    pub group: Option<usize>,
    /// Reason for the choice.
    pub reason: &'static str,
}

/// Report of a `compact` run.
#[derive(Debug, Clone, Serialize)]
pub struct CompactReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if there was nothing to do.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Order of the records; absent if they stay in the order of record numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Folder of the new shards.
    pub folder: Option<String>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
    /// Input bytes copied unchanged.
    pub bytes_copied: u64,
    /// Input bytes spliced.
    pub bytes_spliced: u64,
    /// Input bytes decoded and encoded again.
    pub bytes_reencoded: u64,
    /// Merges that were dropped because another run had replaced their shards.
    pub groups_dropped: u64,
    /// Segments of the id index that were merged, or would be.
    pub segments_merged: u64,
    /// Segments of the id index after the run.
    pub segments_after: u64,
    /// Live shards before the run.
    pub shards_before: u64,
    /// Live shards after the run.
    pub shards_after: u64,
    /// Time taken.
    pub seconds: f64,
    /// Decision about each shard, with its reason.
    #[serde(skip)]
    pub choices: Vec<ShardChoice>,
}

/// Decision about one file.
#[derive(Debug, Clone, Serialize)]
pub struct FileChoice {
    /// Its path below the table.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// `merge`, `sort` or `keep`.
    pub choice: &'static str,
    /// Number of the group in which it is merged.
    pub group: Option<usize>,
    /// Reason for the choice.
    pub reason: &'static str,
}

/// Report of a compaction of a table.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TableReport {
    /// The table.
    pub table: String,
    /// The new version of the table; the current one if there was nothing to do.
    pub version: u64,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// Order of the rows of new files; absent if they are merged in the order of the old ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Target size of a file.
    pub target: u64,
    /// Rows of the merged files that are not deleted.
    pub records_in: u64,
    /// Rows of the new files.
    pub records_out: u64,
    /// Bytes of the merged files.
    pub bytes_in: u64,
    /// Bytes of the new files.
    pub bytes_out: u64,
    /// Files that were merged, or would be.
    pub files_removed: u64,
    /// New files.
    pub files_added: u64,
    /// Deletion vectors of the merged files, which are not needed any more.
    pub vectors_removed: u64,
    /// Deleted rows that the new files do not have any more.
    pub rows_dropped: u64,
    /// Bytes of the merged files that were copied unchanged.
    pub bytes_copied: u64,
    /// Bytes of the merged files that were spliced.
    pub bytes_spliced: u64,
    /// Bytes of the merged files that were decoded and encoded again.
    pub bytes_reencoded: u64,
    /// Merges that were dropped because another program had removed or changed their files.
    pub groups_dropped: u64,
    /// Live files before the run.
    pub files_before: u64,
    /// Live files after the run, without those that others have added meanwhile.
    pub files_after: u64,
    /// Time taken.
    pub seconds: f64,
    /// Decision about each file, with its reason.
    #[serde(skip)]
    pub choices: Vec<FileChoice>,
}

impl CompactReport {
    /// Returns the report of a run that has not started, for a snapshot of `shards` shards.
    pub(in crate::ops) fn before_run(snapshot: &Snapshot, shards: u64, dry_run: bool) -> Self {
        Self {
            dataset: snapshot.dataset().store().location().to_string(),
            version: snapshot.version(),
            dry_run,
            order: None,
            folder: None,
            counts: Counts::default(),
            bytes_copied: 0,
            bytes_spliced: 0,
            bytes_reencoded: 0,
            groups_dropped: 0,
            segments_merged: 0,
            segments_after: snapshot.entry().segments.len() as u64,
            shards_before: shards,
            shards_after: shards,
            seconds: 0.0,
            choices: Vec::new(),
        }
    }
}

/// Returns the part of a shard's folder that follows the name of a compaction: only shards that may share a folder are
/// merged.
pub(in crate::ops) fn folder_suffix(path: &str, constants: &ConstantSets) -> String {
    let serial = match constants.kind_number(path) {
        0 => String::new(),
        kind => format!("-{}", kind + 1),
    };
    format!("{serial}/{}", partition_folders(path))
}

/// Returns the indexes of a snapshot's shards that are no longer live because another run has replaced them.
pub(in crate::ops) fn replaced_shards(snapshot: &Snapshot) -> Result<BTreeSet<usize>> {
    let latest = snapshot.dataset().open_newest()?;
    if latest.version() == snapshot.version() {
        return Ok(BTreeSet::new());
    }
    let live: HashSet<&str> = latest.live_shards()?.iter().map(|s| s.path.as_str()).collect();
    let shards = snapshot.live_shards()?.iter().enumerate();
    Ok(shards.filter(|(_, shard)| !live.contains(shard.path.as_str())).map(|(number, _)| number).collect())
}

/// Returns the counts of a run that replaces shards with `records` records and `bytes` bytes.
pub(in crate::ops) fn replacement_counts(
    records: u64,
    bytes: u64,
    adds: &[NewShard],
    removes: &[String],
) -> Result<Counts> {
    let counts = Counts {
        records_in: records,
        records_out: adds.iter().map(|s| s.meta.records).sum(),
        records_rejected: 0,
        records_erased: 0,
        bytes_in: bytes,
        bytes_out: adds.iter().map(|s| s.meta.bytes).sum(),
        shards_added: adds.len() as u64,
        shards_removed: removes.len() as u64,
        ..Counts::default()
    };
    counts.reconcile()?;
    Ok(counts)
}

/// Returns the error if nothing is left to commit.
pub(in crate::ops) fn all_gone() -> Error {
    Error::conflict("another run replaced the same shards meanwhile")
        .with_hint("nothing was committed; run the command again")
}
