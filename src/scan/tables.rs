//! Tables among the inputs, and above them: folders with a log of their own, which says what of their files is live.
//!
//! ```text
//! root/_delta_log/...             Delta
//! root/metadata/*.metadata.json   Iceberg
//! root/_shardify/log/...          a dataset of this program
//! ```
//!
//! A file is looked at for its place alone. Patterns, partitions and files that are named one by one lie below a root as well, so
//! folders are searched upwards, too.

use std::collections::{BTreeMap, HashSet};

use super::SourceFile;
use crate::{
    error::{Error, Result},
    storage::{self, Location, SYSTEM_FOLDER, StoreSettings},
};

/// Who keeps a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// Delta Lake.
    Delta,
    /// Apache Iceberg.
    Iceberg,
    /// This program.
    Dataset,
}

/// A folder with a log.
#[derive(Debug, Clone)]
pub struct Table {
    /// Who keeps it.
    pub keeper: Keeper,
    /// The folder.
    pub root: Location,
}

/// Tables by their places.
#[derive(Debug, Default)]
pub(super) struct Tables {
    found: BTreeMap<String, Table>,
    /// Folders that were searched for a log.
    searched: HashSet<String>,
    /// Folders from which to search upwards.
    starts: Vec<Location>,
}

impl Tables {
    /// Looks at the place of an object below `root`.
    pub(super) fn note(&mut self, root: &Location, path: &str) {
        if let Some((keeper, at)) = log_of(path) {
            let root = if at.is_empty() { root.clone() } else { root.join(at) };
            self.found.entry(root.to_string()).or_insert(Table { keeper, root });
        }
    }

    /// Has the folders above a place searched, too.
    pub(super) fn start(&mut self, folder: &Location) {
        if self.searched.insert(folder.to_string()) {
            self.starts.push(folder.clone());
        }
    }

    /// All tables, once the folders above were searched for logs of those whose files these may be.
    pub(super) fn finish(mut self, files: &[SourceFile], settings: &StoreSettings) -> Vec<Table> {
        if files.iter().any(|file| may_be_of_a_table(file.name())) {
            for start in std::mem::take(&mut self.starts) {
                self.climb(start, settings);
            }
        }
        self.found.into_values().collect()
    }

    fn climb(&mut self, start: Location, settings: &StoreSettings) {
        let mut next = Some(start);
        while let Some(folder) = next {
            self.search(&folder, settings);
            next = folder.split_name().map(|(above, _)| above).filter(|above| self.searched.insert(above.to_string()));
        }
    }

    /// A folder that may not be listed is none whose log this run could have heeded.
    fn search(&mut self, folder: &Location, settings: &StoreSettings) {
        let Ok(store) = storage::open(folder, settings) else { return };
        for place in ["_delta_log", "metadata", &format!("{SYSTEM_FOLDER}/log")] {
            if let Ok(Some(path)) = store.first(place, &|path| log_of(path).is_some_and(|(_, at)| at.is_empty())) {
                self.note(folder, &path);
            }
        }
    }
}

/// Refuses files that belong to somebody else's table: rows of some of them are deleted.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming the first of them.
pub fn refuse_foreign(tables: &[Table], files: &[SourceFile]) -> Result<()> {
    for table in tables {
        let name = match table.keeper {
            Keeper::Dataset => continue,
            Keeper::Delta => "a Delta table",
            Keeper::Iceberg => "an Iceberg table",
        };
        let root = format!("{}/", table.root.to_string().trim_end_matches('/'));
        let is_own = |file: &&SourceFile| {
            let uri = file.uri();
            uri.strip_prefix(&root).is_some_and(|path| log_of(path).is_some() || may_be_of_a_table(path))
        };
        if let Some(file) = files.iter().find(is_own) {
            return Err(Error::usage(format!(
                "expected plain files, found {name}, whose own log says which of them are live"
            ))
            .at(file.uri())
            .hint("export the table (e.g. with deltalake, pyiceberg or DuckDB), and convert what was exported"));
        }
    }
    Ok(())
}

/// The log that an object is a part of, and the path of the table.
fn log_of(path: &str) -> Option<(Keeper, &str)> {
    if !(path.ends_with(".json") || path.ends_with(".parquet") || path.ends_with(".crc")) {
        return None;
    }
    let root_of = |folder: &str| {
        let at = path.find(folder)?;
        let is_whole = at == 0 || path.as_bytes()[at - 1] == b'/';
        is_whole.then(|| path[..at].trim_end_matches('/'))
    };
    if let Some(root) = root_of("_delta_log/") {
        return Some((Keeper::Delta, root));
    }
    if let Some(root) = root_of(&format!("{SYSTEM_FOLDER}/log/")) {
        return Some((Keeper::Dataset, root));
    }
    let (above, _) = path.strip_suffix(".metadata.json")?.rsplit_once('/').unwrap_or_default();
    let root = above.strip_suffix("metadata")?;
    (root.is_empty() || root.ends_with('/')).then(|| (Keeper::Iceberg, root.trim_end_matches('/')))
}

/// Whether a name is one that files of tables and datasets have.
fn may_be_of_a_table(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let has = |extension: &str| {
        let of = |part: &str| {
            part.len() >= extension.len()
                && part.is_char_boundary(extension.len())
                && part[..extension.len()].eq_ignore_ascii_case(extension)
        };
        file.split('.').skip(1).any(of)
    };
    ["parquet", "orc", "avro", "tar", "tfrecord"].into_iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_told_by_their_places() {
        for (path, expected) in [
            ("_delta_log/00000000000000000000.json", Some((Keeper::Delta, ""))),
            ("a/b/_delta_log/00000000000000000010.checkpoint.parquet", Some((Keeper::Delta, "a/b"))),
            ("a/metadata/v1.metadata.json", Some((Keeper::Iceberg, "a"))),
            ("metadata/00001-x.metadata.json", Some((Keeper::Iceberg, ""))),
            ("a/_shardify/log/18446744073709551614.json", Some((Keeper::Dataset, "a"))),
            ("x.metadata.json", None),
            ("a/my_delta_log/1.json", None),
            ("a/mymetadata/v1.metadata.json", None),
            ("a/part-0.parquet", None),
            ("_shardify/lists/x.parquet", None),
        ] {
            assert_eq!(log_of(path), expected, "{path}");
        }
    }

    #[test]
    fn names_of_files_of_tables() {
        let yes = ["a/part-0.snappy.parquet", "x.PARQUET", "0/000000.tar.gz", "a.tfrecord-00000-of-00010", "b.orc"];
        yes.iter().for_each(|name| assert!(may_be_of_a_table(name), "{name}"));
        let no = ["a.csv", "parquet", "a.parq", "x.jsonl.gz", "target"];
        no.iter().for_each(|name| assert!(!may_be_of_a_table(name), "{name}"));
    }
}
