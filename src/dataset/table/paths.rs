//! Paths of the objects of a dataset; this module does no I/O.

use crate::{
    array::CONSTANTS_FILE,
    id::{TransactionId, is_hex, run_of_folder},
    schema,
    storage::SYSTEM_FOLDER,
};

/// Names of objects that describe a folder of shards.
pub(in crate::dataset) const OF_FOLDER: [&str; 3] = [schema::file::NAME, CONSTANTS_FILE, "shardindex.json"];

/// Returns the path of an object in the system folder.
pub(in crate::dataset) fn system_path(below: &str) -> String {
    format!("{SYSTEM_FOLDER}/{below}")
}

/// Returns the path of a shard's sidecar. Shards named by shardify lose their extension; adopted shards keep it because
/// it may be the only difference between two of them.
pub fn sidecar_path(shard: &str) -> String {
    if !is_shard_name(shard) {
        return system_path(&format!("sidecar/adopted/{shard}.parquet"));
    }
    let (folder, name) = shard.rsplit_once('/').unwrap_or(("", shard));
    let number = name.split('.').next().unwrap_or(name);
    system_path(&format!("sidecar/{folder}/{number}.parquet"))
}

/// Returns the path of a shard's table of members: that of its sidecar, with the same stem.
pub fn parts_path(shard: &str) -> String {
    parts_beside(&sidecar_path(shard))
}

/// Returns the path of the table of members beside a sidecar.
pub(in crate::dataset) fn parts_beside(sidecar: &str) -> String {
    sidecar.replace(".parquet", ".parts.parquet")
}

/// Returns the path of a shard's table of record numbers: that of its sidecar, with the same stem.
pub fn numbers_path(shard: &str) -> String {
    numbers_beside(&sidecar_path(shard))
}

/// Returns the path of the table of record numbers beside a sidecar.
pub(in crate::dataset) fn numbers_beside(sidecar: &str) -> String {
    sidecar.replace(".parquet", ".records.parquet")
}

/// Returns the path of a run's receipt.
pub fn receipt_path(transaction: &TransactionId) -> String {
    format!("{SYSTEM_FOLDER}/receipts/{transaction}.json")
}

/// Whether a path has the form of a shard named by shardify: `<tag>/[key=value/]000017.tar.gz`.
pub fn is_shard_name(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let Some((file, folders)) = parts.split_last() else { return false };
    let stem = stem(file);
    let folders_fit = folders.iter().skip(1).all(|part| part.contains('='));
    is_own_folder(path)
        && stem.len() < file.len()
        && stem.len() >= 6
        && stem.bytes().all(|b| b.is_ascii_digit())
        && folders_fit
}

/// Whether a path has the form of an object that shardify keeps beside its shards: a shard's index, or a description of
/// the folder.
pub fn is_beside_shards(path: &str) -> bool {
    is_own_folder(path) && (index_stem(path).is_some() || describes_folder(path))
}

/// Whether a path begins with the folder of a run: its tag, or the 12 digits used by older releases, optionally with a
/// serial number (`-2`).
pub(in crate::dataset) fn is_own_folder(path: &str) -> bool {
    let Some((folder, _)) = path.split_once('/') else { return false };
    let (digits, serial) = folder.split_once('-').unwrap_or((folder, "2"));
    let is_old = digits.len() == 12 && is_hex(digits) && !serial.is_empty();
    run_of_folder(folder).is_some() || (is_old && serial.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns a shard's path without its compression and format extensions: `t/000017` for `t/000017.tar.gz`.
pub(in crate::dataset) fn stem(path: &str) -> &str {
    let plain = [".gz", ".zst"].iter().find_map(|e| path.strip_suffix(e)).unwrap_or(path);
    [".parquet", ".tar", ".tfrecord", ".tfrecords"].iter().find_map(|e| plain.strip_suffix(e)).unwrap_or(path)
}

/// Returns the stem of the shard that the file would be an index of; `None` for other files.
pub(in crate::dataset) fn index_stem(path: &str) -> Option<&str> {
    [".idx", ".tfindex"].iter().find_map(|e| path.strip_suffix(e)).map(stem)
}

/// Whether an object describes a folder of shards.
pub(in crate::dataset) fn describes_folder(path: &str) -> bool {
    let folder = folder_prefix(path);
    !folder.is_empty() && OF_FOLDER.contains(&&path[folder.len()..])
}

/// Returns the folder of a path; empty for objects in the root.
pub fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

/// Returns the folder of a path with its trailing slash; empty for objects in the root.
pub(in crate::dataset) fn folder_prefix(path: &str) -> &str {
    &path[..path.rfind('/').map_or(0, |slash| slash + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_names_of_digits_in_the_folder_of_a_run() {
        let names =
            ["0123456789abcdef/000000.tar.gz", "0123456789ab-12/000001.parquet", "0123456789ab/y=1/000000.parquet"];
        names.iter().for_each(|own| assert!(is_shard_name(own), "{own}"));
        let others = ["000000.tar", "0123456789ab/x.tar", "0123456789AB/000000.tar", "0123456789ab/deep/000000.tar"];
        others.iter().for_each(|other| assert!(!is_shard_name(other), "{other}"));
    }
}
