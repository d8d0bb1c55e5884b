//! Finds tables in the input folders and above them. A table's own log decides which of its files are live.
//!
//! ```text
//! root/_delta_log/...             Delta
//! root/metadata/*.metadata.json   Iceberg
//! root/_shardify/log/...          a dataset of shardify
//! ```
//!
//! Tables are recognised by path only. A glob, a partition folder or a single file may lie inside a table, so parent
//! folders are searched as well.

use std::collections::{BTreeMap, HashSet};

use rayon::prelude::*;

use super::{
    SourceFile,
    ignored::{DELTA_LOG, ICEBERG_LOG},
};
use crate::{
    error::{Error, Result},
    storage::{self, Location, SYSTEM_FOLDER, StoreSettings},
};

/// Format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Delta Lake.
    Delta,
    /// Apache Iceberg.
    Iceberg,
    /// A shardify dataset.
    Dataset,
}

/// A folder with a table log.
#[derive(Debug, Clone)]
pub struct FoundTable {
    /// Its format.
    pub format: TableFormat,
    /// Its root folder.
    pub root: Location,
    /// Whether a source contains all of it; otherwise a source is a part of it.
    pub whole: bool,
}

/// Tables found so far, by root.
#[derive(Debug, Default)]
pub(super) struct Tables {
    found: BTreeMap<String, FoundTable>,
    /// Folders already searched for a log.
    searched: HashSet<String>,
    /// Folders whose parents are searched at the end.
    starts: Vec<Location>,
}

impl Tables {
    /// Adds the table whose log an object below `root` belongs to, if any; `whole` states that everything below `root`
    /// is an input.
    pub(super) fn note_table(&mut self, root: &Location, path: &str, whole: bool) {
        if let Some((format, at)) = log_of(path) {
            let root = if at.is_empty() { root.clone() } else { root.join(at) };
            let found = self.found.entry(root.to_string()).or_insert(FoundTable { format, root, whole: false });
            found.whole |= whole;
            if format == TableFormat::Dataset {
                // A Delta log beside a dataset's own log mirrors it.
                found.format = format;
            }
        }
    }

    /// Schedules a folder and its parents for the search.
    pub(super) fn schedule_search(&mut self, folder: &Location) {
        if self.searched.insert(folder.to_string()) {
            self.starts.push(folder.clone());
        }
    }

    /// Returns all tables. Parent folders are searched only if some file has the name of a data file or shard.
    pub(super) fn finish(mut self, files: &[SourceFile], settings: &StoreSettings) -> Vec<FoundTable> {
        if files.par_iter().any(|file| may_be_of_a_table(file.name())) {
            for start in std::mem::take(&mut self.starts) {
                self.search_upwards(start, settings);
            }
        }
        self.found.into_values().collect()
    }

    fn search_upwards(&mut self, start: Location, settings: &StoreSettings) {
        let mut next = Some(start);
        while let Some(folder) = next {
            self.search_folder(&folder, settings);
            next = folder.split_name().map(|(above, _)| above).filter(|above| self.searched.insert(above.to_string()));
        }
    }

    /// Folders that cannot be listed are skipped: a missing permission above the inputs is not an error.
    fn search_folder(&mut self, folder: &Location, settings: &StoreSettings) {
        let Ok(store) = storage::open_store(folder, settings) else { return };
        for place in [DELTA_LOG, ICEBERG_LOG, &format!("{SYSTEM_FOLDER}/log")] {
            if let Ok(Some(path)) = store.find_first(place, &|path| log_of(path).is_some_and(|(_, at)| at.is_empty())) {
                self.note_table(folder, &path, false);
            }
        }
    }
}

/// Refuses files of Delta and Iceberg tables, some of whose rows may be deleted.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming the first of them.
pub fn refuse_foreign<'a>(tables: impl IntoIterator<Item = &'a FoundTable>, files: &[SourceFile]) -> Result<()> {
    for table in tables {
        let name = match table.format {
            TableFormat::Dataset => continue,
            TableFormat::Delta => "a Delta table",
            TableFormat::Iceberg => "an Iceberg table",
        };
        let root = format!("{}/", table.root.to_string().trim_end_matches('/'));
        let is_own = |file: &&SourceFile| {
            let uri = file.uri();
            uri.strip_prefix(&root).is_some_and(|path| log_of(path).is_some() || may_be_of_a_table(path))
        };
        if let Some(file) = files.iter().find(is_own) {
            let error =
                Error::usage(format!("expected plain files, found {name}, whose log decides which files are live"))
                    .at_location(file.uri());
            return Err(match table.format {
                TableFormat::Delta => {
                    error.with_hint(format!("`convert` reads it as a whole: name its folder, {}", table.root))
                }
                _ => {
                    error.with_hint("export the table (e.g. with pyiceberg or DuckDB), and convert the exported files")
                }
            });
        }
    }
    Ok(())
}

/// Whether an object is part of a table's log, by its path.
pub(super) fn is_of_log(path: &str) -> bool {
    log_of(path).is_some()
}

/// Returns what kind of table an object of its log says there is.
pub(super) fn name_of_log(path: &str) -> &'static str {
    match log_of(path) {
        Some((TableFormat::Iceberg, _)) => "an Iceberg table",
        Some((TableFormat::Dataset, _)) => "a dataset of shardify",
        _ => "a Delta table",
    }
}

/// Returns the table format and the table's root if an object is part of a table's log.
fn log_of(path: &str) -> Option<(TableFormat, &str)> {
    if !(path.ends_with(".json") || path.ends_with(".parquet") || path.ends_with(".crc")) {
        return None;
    }
    let mut start = 0;
    for part in path.split('/') {
        let below = path[start + part.len()..].strip_prefix('/').unwrap_or_default();
        let format = match part {
            DELTA_LOG if !below.is_empty() => Some(TableFormat::Delta),
            SYSTEM_FOLDER if below.starts_with("log/") => Some(TableFormat::Dataset),
            ICEBERG_LOG if !below.contains('/') && below.ends_with(".metadata.json") => Some(TableFormat::Iceberg),
            _ => None,
        };
        if let Some(format) = format {
            return Some((format, path[..start].trim_end_matches('/')));
        }
        start += part.len() + 1;
    }
    None
}

/// Returns whether a file name is that of a data file or shard.
fn may_be_of_a_table(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let begins = |part: &str, with: &str| part.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    let is_known = |part| ["parquet", "orc", "avro", "tar", "tfrecord"].into_iter().any(|with| begins(part, with));
    file.split('.').skip(1).any(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_recognised_by_their_paths() {
        for (path, expected) in [
            ("_delta_log/00000000000000000000.json", Some((TableFormat::Delta, ""))),
            ("a/b/_delta_log/00000000000000000010.checkpoint.parquet", Some((TableFormat::Delta, "a/b"))),
            ("a/metadata/v1.metadata.json", Some((TableFormat::Iceberg, "a"))),
            ("metadata/00001-x.metadata.json", Some((TableFormat::Iceberg, ""))),
            ("a/_shardify/log/18446744073709551614.json", Some((TableFormat::Dataset, "a"))),
            ("x.metadata.json", None),
            ("a/my_delta_log/1.json", None),
            ("my_delta_log/t/_delta_log/1.json", Some((TableFormat::Delta, "my_delta_log/t"))),
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
