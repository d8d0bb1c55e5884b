//! Paths of the objects of a dataset; this module does no I/O.

use crate::{
    array::CONSTANTS_FILE,
    format::index,
    id::{TransactionId, run_of_folder},
    schema,
    storage::SYSTEM_FOLDER,
};

/// Returns the names of objects that describe a folder of shards.
pub(in crate::dataset) fn of_folder() -> impl Iterator<Item = &'static str> {
    [schema::file::NAME, CONSTANTS_FILE].into_iter().chain(index::of_folders())
}

/// Ending of tables below the system folder. They are Parquet, but readers that are given the folder of a dataset
/// choose files by their endings, and would take the rows of a `.parquet` for records.
const TABLE: &str = ".table";

/// Ending of the folder of a segment.
const SEGMENT: &str = ".segment";

/// Returns the path of an object in the system folder.
pub(in crate::dataset) fn system_path(below: &str) -> String {
    format!("{SYSTEM_FOLDER}/{below}")
}

/// Returns the path of a new table in the system folder.
pub(in crate::dataset) fn table_path(below: &str) -> String {
    format!("{SYSTEM_FOLDER}/{below}{TABLE}")
}

/// Returns the folder of a new segment of the id index.
pub(in crate::dataset) fn segment_path(below: &str) -> String {
    format!("{SYSTEM_FOLDER}/index/{below}{SEGMENT}")
}

/// Returns the path of a bucket of the segment in a folder.
pub(in crate::dataset) fn bucket_path(segment: &str, bucket: u64) -> String {
    format!("{segment}/b={bucket:04x}{TABLE}")
}

/// Returns the path of the sidecar of a shard that shardify names.
pub fn sidecar_path(shard: &str) -> String {
    let (folder, name) = shard.rsplit_once('/').unwrap_or(("", shard));
    table_path(&format!("sidecar/{folder}/{}", name.split('.').next().unwrap_or(name)))
}

/// Returns the path of the sidecar of a shard that is adopted in place, which is the `number`th of the writer with this
/// tag. The path of the shard is no part of it: readers that look for endings would find that of the shard.
pub fn adopted_sidecar_path(tag: &str, number: usize) -> String {
    table_path(&format!("sidecar/{tag}/adopted/{number:06}"))
}

/// Whether a stated path is that of the sidecar of a shard that was adopted in place.
pub(in crate::dataset) fn is_adopted_sidecar(sidecar: &str) -> bool {
    sidecar.strip_prefix(SYSTEM_FOLDER).and_then(|rest| rest.split('/').nth(3)) == Some("adopted")
}

/// Returns the path of the table of members beside a sidecar.
pub(in crate::dataset) fn parts_beside(sidecar: &str) -> String {
    beside_table(sidecar, "parts")
}

/// Returns the path of the table of record numbers beside a sidecar.
pub(in crate::dataset) fn numbers_beside(sidecar: &str) -> String {
    beside_table(sidecar, "records")
}

/// Returns the path of a table beside a sidecar: the name goes before the ending.
fn beside_table(sidecar: &str, name: &str) -> String {
    format!("{}.{name}{TABLE}", sidecar.strip_suffix(TABLE).unwrap_or(sidecar))
}

/// Returns the path of a run's receipt.
pub fn receipt_path(transaction: &TransactionId) -> String {
    format!("{SYSTEM_FOLDER}/receipts/{transaction}.json")
}

/// Whether a path has the form of a shard named by shardify: `<tag>/[key=value/]000017.tar.gz`.
pub fn is_shard_name(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let Some((file, folders)) = parts.split_last() else { return false };
    let stem = shard_stem(file);
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

/// Whether a path begins with the folder of a run: its tag, optionally with a serial number (`-2`).
pub(in crate::dataset) fn is_own_folder(path: &str) -> bool {
    path.split_once('/').is_some_and(|(folder, _)| run_of_folder(folder).is_some())
}

/// Returns a shard's path without its compression and format extensions: `t/000017` for `t/000017.tar.gz`.
pub(in crate::dataset) fn shard_stem(path: &str) -> &str {
    let plain = [".gz", ".zst"].iter().find_map(|e| path.strip_suffix(e)).unwrap_or(path);
    [".parquet", ".tar", ".tfrecord", ".tfrecords"].iter().find_map(|e| plain.strip_suffix(e)).unwrap_or(path)
}

/// Returns the stem of the shard that the file would be an index of; `None` for other files.
pub(in crate::dataset) fn index_stem(path: &str) -> Option<&str> {
    index::strip_beside(path).map(shard_stem)
}

/// Whether an object describes a folder of shards.
pub(in crate::dataset) fn describes_folder(path: &str) -> bool {
    let folder = folder_prefix(path);
    !folder.is_empty() && of_folder().any(|name| name == &path[folder.len()..])
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
        let names = [
            "0123456789abcdef/000000.tar.gz",
            "0123456789abcdef-12/000001.parquet",
            "0123456789abcdef/y=1/000000.parquet",
        ];
        names.iter().for_each(|own| assert!(is_shard_name(own), "{own}"));
        let others =
            ["000000.tar", "0123456789abcdef/x.tar", "0123456789ABCDEF/000000.tar", "0123456789abcdef/deep/000000.tar"];
        others.iter().for_each(|other| assert!(!is_shard_name(other), "{other}"));
    }
}
