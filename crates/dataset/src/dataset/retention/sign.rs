//! Files beside shards of older versions over which readers of the whole folder trip, so that none reads records twice.
//!
//! Shards that a compaction or an erasure replaced stay until `vacuum`, since older versions need them. A program that
//! reads a folder, or a pattern such as `*/*.parquet`, takes them for data. It finds two files more:
//!
//! ```text
//! READ-LIVE-SHARDS-ONLY.parquet                                     one column, whose name says what to do
//! READ-LIVE-SHARDS-ONLY.run-shardify-manifest-list-paths.parquet    no Parquet, its name says it
//! ```
//!
//! Readers that compare schemas show the first, readers that read every footer the name of the second. Both have the
//! same bytes in every dataset. They are written after the commit that replaces shards, and deleted by the vacuum that
//! leaves no older ones. Nothing relies on them, and they hold no records.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, BooleanArray},
    record_batch::RecordBatch,
};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;

use crate::{
    dataset::{
        log::snapshot::Snapshot,
        table::{parquet_error, paths::folder_of},
    },
    error::{Error, Result},
    record::clutter::SIGNS,
};

/// What they say.
const TEXT: &str = "This folder has shards of several versions. Read the live ones: shardify manifest DATASET --list \
                    --paths";
/// Maximum number of folders that get signs at a time.
const MAX_FOLDERS: usize = 64;

/// Returns the bytes of a sign.
///
/// # Errors
/// When encoding fails, which memory alone can cause.
pub(in crate::dataset) fn content_of(path: &str) -> Result<Bytes> {
    if !path.ends_with(SIGNS[0]) {
        return Ok(format!("{TEXT}\n").into());
    }
    let column: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    let batch = RecordBatch::try_from_iter([(TEXT, column)])
        .map_err(|e| Error::internal("making a sign failed").with_cause(e))?;
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).map_err(parquet_error)?;
    writer.write(&batch).map_err(parquet_error)?;
    writer.close().map_err(parquet_error)?;
    Ok(out.into())
}

/// Puts signs beside the Parquet shards that a version replaced: into one folder of each partition.
///
/// # Errors
/// When the store fails.
pub fn put_signs(snapshot: &Snapshot) -> Result<()> {
    let entry = snapshot.entry();
    if !entry.settings.shard_format.is_columnar() || entry.counts.shards_removed == 0 {
        return Ok(());
    }
    let live: HashSet<&str> = snapshot.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
    let mut folders: BTreeMap<&str, &str> = BTreeMap::new();
    for run in snapshot.run_table()?.as_slice() {
        if run.until == Some(entry.version) && !live.contains(run.shard.as_str()) {
            let folder = folder_of(&run.shard);
            let partition = folder.split_once('/').map_or("", |(_, partition)| partition);
            let least = folders.entry(partition).or_insert(folder);
            *least = (*least).min(folder);
        }
    }
    let store = snapshot.dataset().store();
    for folder in folders.into_values().take(MAX_FOLDERS) {
        for name in SIGNS {
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            store.put_if_absent(&path, content_of(name)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::record::clutter::is_sign;

    #[test]
    fn signs_are_known_by_their_names_and_are_the_same_everywhere() {
        for name in SIGNS {
            assert!(is_sign(name) && is_sign(&format!("a/split=train/{name}")));
            assert_eq!(content_of(name).unwrap(), content_of(&format!("b/{name}")).unwrap());
        }
        assert!(content_of(SIGNS[0]).unwrap().starts_with(b"PAR1"));
        assert!(!content_of(SIGNS[1]).unwrap().starts_with(b"PAR1"));
        for path in ["a/000000.parquet", "READ-LIVE-SHARDS-ONLY.csv", "x-READ-LIVE-SHARDS-ONLY.parquet"] {
            assert!(!is_sign(path), "{path}");
        }
    }
}
