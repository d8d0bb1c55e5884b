//! Which folders of sources each version took records from.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{dataset::Snapshot, error::Result, id::Version};

/// Maximum number of folders that are told apart.
const MAX_FOLDERS: usize = 1_000;

/// Sources in one folder that one version added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFolder {
    /// Version that added them.
    pub version: Version,
    /// The folder; absent if names of sources are not shown, or for the sum of all other folders.
    pub folder: Option<String>,
    /// Number of sources.
    pub sources: u64,
    /// Number of those whose records were removed since.
    pub removed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records read from them.
    pub records: u64,
}

/// Returns the folders of all sources up to a snapshot.
pub(super) fn source_folders(snapshot: &Snapshot, hide: bool) -> Result<Vec<SourceFolder>> {
    let mut out: BTreeMap<(Version, Option<String>), SourceFolder> = BTreeMap::new();
    snapshot.each_source(&mut |source| {
        let folder = source.uri.rfind('/').map_or(source.uri.as_str(), |slash| &source.uri[..=slash]);
        let mut key = (source.version, (!hide).then(|| folder.to_owned()));
        if !out.contains_key(&key) && out.len() >= MAX_FOLDERS {
            key.1 = None;
        }
        let empty =
            SourceFolder { version: key.0, folder: key.1.clone(), sources: 0, removed: 0, bytes: 0, records: 0 };
        let sum = out.entry(key).or_insert(empty);
        sum.sources += 1;
        sum.removed += u64::from(source.removed.is_some());
        sum.bytes = sum.bytes.saturating_add(source.bytes);
        sum.records = sum.records.saturating_add(source.records);
        Ok(())
    })?;
    Ok(out.into_values().collect())
}
