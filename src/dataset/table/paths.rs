//! Paths of the objects of a dataset; nothing is read.

use crate::{
    array::CONSTANTS_FILE,
    id::{TransactionId, is_hex, run_of_folder},
    schema,
    storage::SYSTEM_FOLDER,
};

/// Objects that describe a folder of shards.
pub(in crate::dataset) const OF_FOLDER: [&str; 3] = [schema::file::NAME, CONSTANTS_FILE, "shardindex.json"];

/// Path of something in the system folder.
pub(in crate::dataset) fn system_path(below: &str) -> String {
    format!("{SYSTEM_FOLDER}/{below}")
}

/// Path of the sidecar of a shard. Shards that shardify named lose their ending; those that were adopted may differ in
/// nothing else, so they keep it.
pub fn sidecar_path(shard: &str) -> String {
    if !is_shard_name(shard) {
        return system_path(&format!("sidecar/adopted/{shard}.parquet"));
    }
    let (folder, name) = shard.rsplit_once('/').unwrap_or(("", shard));
    let number = name.split('.').next().unwrap_or(name);
    system_path(&format!("sidecar/{folder}/{number}.parquet"))
}

/// Path of the members of a shard: that of its sidecar, with the same begin of its name.
pub fn parts_path(shard: &str) -> String {
    parts_beside(&sidecar_path(shard))
}

/// Path of the members beside a sidecar.
pub(in crate::dataset) fn parts_beside(sidecar: &str) -> String {
    sidecar.replace(".parquet", ".parts.parquet")
}

/// Path of the numbers of a shard: that of its sidecar, with the same begin of its name.
pub fn numbers_path(shard: &str) -> String {
    numbers_beside(&sidecar_path(shard))
}

/// Path of the numbers beside a sidecar.
pub(in crate::dataset) fn numbers_beside(sidecar: &str) -> String {
    sidecar.replace(".parquet", ".records.parquet")
}

/// Path of the receipt of a run.
pub fn receipt_path(transaction: &TransactionId) -> String {
    format!("{SYSTEM_FOLDER}/receipts/{transaction}.json")
}

/// Whether shardify names shards like this: `<tag>/[key=value/]000017.tar.gz`.
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

/// Whether shardify names what it keeps beside its shards like this: indexes of shards, and what describes their folder.
pub fn is_beside_shards(path: &str) -> bool {
    is_own_folder(path) && (index_stem(path).is_some() || describes_folder(path))
}

/// Whether a path begins with the folder of a run: its tag, or the 12 digits that older releases gave to it, perhaps with
/// a serial number (`-2`).
pub(in crate::dataset) fn is_own_folder(path: &str) -> bool {
    let Some((folder, _)) = path.split_once('/') else { return false };
    let (digits, serial) = folder.split_once('-').unwrap_or((folder, "2"));
    let is_old = digits.len() == 12 && is_hex(digits) && !serial.is_empty();
    run_of_folder(folder).is_some() || (is_old && serial.bytes().all(|b| b.is_ascii_digit()))
}

/// The path of a shard without its compression and format: `t/000017` of `t/000017.tar.gz`.
pub(in crate::dataset) fn stem(path: &str) -> &str {
    let plain = [".gz", ".zst"].iter().find_map(|e| path.strip_suffix(e)).unwrap_or(path);
    [".parquet", ".tar", ".tfrecord", ".tfrecords"].iter().find_map(|e| plain.strip_suffix(e)).unwrap_or(path)
}

/// The stem of the shard that a file would be an index of; `None` for other files.
pub(in crate::dataset) fn index_stem(path: &str) -> Option<&str> {
    [".idx", ".tfindex"].iter().find_map(|e| path.strip_suffix(e)).map(stem)
}

/// Whether an object describes a folder of shards.
pub(in crate::dataset) fn describes_folder(path: &str) -> bool {
    let folder = folder_prefix(path);
    !folder.is_empty() && OF_FOLDER.contains(&&path[folder.len()..])
}

/// The folder of a path; empty for what lies in the root.
pub fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

/// The folder of a path, with its slash; empty for what lies in the root.
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
