//! Groups the files of each Zarr store, which is a folder but one source. The files come from the scan like all others.
//!
//! A folder is a store if it contains a marker file; the outermost such folder counts. `zarr.json` could be any
//! document, so its content is checked.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3Default;

use super::file::{Head, Root, SourceFile, StatedSource};
use crate::{
    error::Result,
    format::zarr::{MARKERS, is_metadata},
    storage::Folder,
};

/// Files of a store whose names begin with a dot, which a scan otherwise ignores.
const HIDDEN: [&str; 4] = [".zgroup", ".zarray", ".zattrs", ".zmetadata"];

/// Bytes of a `zarr.json` to read.
const HEAD: usize = 64 << 10;

fn folder_and_name(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Returns whether a path with a component that begins with a dot is only a file of a store.
pub(super) fn is_store_file(path: &str) -> bool {
    let (folder, name) = folder_and_name(path);
    HIDDEN.contains(&name) && !folder.split('/').any(|part| part.starts_with('.'))
}

/// Identifies a store: root and path.
type StoreKey = (usize, String);

fn store_key(file: &SourceFile, folder: &str) -> StoreKey {
    (Arc::as_ptr(file.root()).addr(), folder.to_owned())
}

/// Returns the outermost folder of a file that is a store.
fn store_of<'a>(file: &'a SourceFile, stores: &HashSet<StoreKey>) -> Option<&'a str> {
    let path = file.path();
    let ends = path.match_indices('/').map(|(end, _)| end);
    std::iter::once(0).chain(ends).map(|end| &path[..end]).find(|folder| stores.contains(&store_key(file, folder)))
}

#[derive(Default)]
struct StoreFiles {
    bytes: u64,
    modified: i64,
    content: Xxh3Default,
    /// Paths of metadata below the folder.
    metadata: Vec<String>,
}

/// Groups the files of each store into one source; returns how many hidden files belong to no store.
///
/// # Errors
/// Fails if a `zarr.json` cannot be read.
pub(super) fn group_stores(files: &mut Vec<SourceFile>) -> Result<u64> {
    let mut stores: HashSet<StoreKey> = HashSet::new();
    for file in files.iter() {
        let (folder, name) = folder_and_name(file.path());
        let marks = MARKERS.contains(&name) && store_of(file, &stores).is_none();
        if marks && (name != MARKERS[0] || says_zarr(&file.read_head(HEAD)?)) {
            stores.insert(store_key(file, folder));
        }
    }
    let mut found: BTreeMap<StoreKey, (Arc<Root>, StoreFiles)> = BTreeMap::new();
    let mut ignored = 0;
    files.retain(|file| {
        let Some(folder) = store_of(file, &stores) else {
            let hidden = is_store_file(file.path());
            ignored += u64::from(hidden);
            return !hidden;
        };
        let (_, store) =
            found.entry(store_key(file, folder)).or_insert_with(|| (Arc::clone(file.root()), StoreFiles::default()));
        store.bytes += file.bytes;
        store.modified = store.modified.max(file.modified);
        store.content.update(file.path().as_bytes());
        store.content.update(&file.bytes.to_le_bytes());
        store.content.update(&file.modified.to_le_bytes());
        store.content.update(file.etag().unwrap_or_default().as_bytes());
        let within = file.path().strip_prefix(folder).unwrap_or_default().trim_start_matches('/');
        if is_metadata(within) {
            store.metadata.push(within.to_owned());
        }
        false
    });
    files.extend(found.into_iter().map(|((_, folder), (root, store))| store_source(&folder, root, store)));
    Ok(ignored)
}

/// Returns whether a `zarr.json` is that of a store. One that is invalid JSON counts as a damaged store, because no
/// other program uses that name.
fn says_zarr(head: &Head) -> bool {
    let known = memchr::memmem::find(&head.bytes, b"\"zarr_format\"").is_some();
    known || head.complete && serde_json::from_slice::<serde::de::IgnoredAny>(&head.bytes).is_err()
}

fn store_source(folder: &str, root: Arc<Root>, mut store: StoreFiles) -> SourceFile {
    store.metadata.sort_unstable();
    let (root, name) = if folder.is_empty() {
        // The user's source is the store itself and provides its name.
        let location = root.store.location();
        let name = match root.prefix.strip_suffix('/').filter(|_| root.archive.is_some()) {
            Some(archive) => archive.to_owned(),
            None => location.split_name().map_or_else(|| "zarr".to_owned(), |(_, name)| name),
        };
        (root.with_prefix(name.clone()), name)
    } else {
        let name = format!("{}{folder}", root.prefix);
        (root, name)
    };
    let etag = Some(format!("{:016x}", store.content.digest()));
    let stated = StatedSource { name, bytes: store.bytes, modified: store.modified, etag };
    SourceFile::of_store(&root, &stated, Some(store.metadata))
}

impl SourceFile {
    /// Returns whether the source is a folder.
    pub fn is_store(&self) -> bool {
        self.is_store
    }

    /// Returns the folder of the source.
    pub fn folder(&self) -> Folder {
        Folder::new(Arc::clone(&self.root().store), self.path())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]
mod tests {
    use std::path::Path;

    use super::super::{ScanOptions, scan_sources};

    fn names(folder: &Path, source: &str) -> (Vec<String>, u64) {
        let found = scan_sources(
            &[source.to_owned()],
            folder,
            &crate::storage::StoreSettings::default(),
            &ScanOptions::default(),
        )
        .unwrap();
        let name = |file: &super::SourceFile| format!("{}{}", file.name(), if file.is_store() { "!" } else { "" });
        (found.files.iter().map(name).collect(), found.ignored)
    }

    #[test]
    fn stores_are_one_source() {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("a.csv", "x"),
            ("b.zarr/.zgroup", "{}"),
            ("b.zarr/t/.zarray", "{}"),
            ("b.zarr/t/0.0", "x"),
            ("c/zarr.json", r#"{"zarr_format": 3}"#),
            ("c/t/c/0", "x"),
            ("d/zarr.json", "{}"),
            ("e/.zattrs", "{}"),
            ("f/.hidden", "x"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        assert_eq!(
            names(folder.path(), "."),
            (vec!["a.csv".into(), "b.zarr!".into(), "c!".into(), "d/zarr.json".into()], 2)
        );
        assert_eq!(names(folder.path(), "b.zarr"), (vec!["b.zarr!".into()], 0));
    }
}
