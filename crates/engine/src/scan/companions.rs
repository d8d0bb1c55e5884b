//! Files that are no records, but describe those next to them: indexes of shards, markers of jobs, metadata of other
//! tools.
//!
//! ```text
//! train/data-00000.arrow  train/state.json  train/dataset_info.json    Hugging Face: the records are in the first one
//! ```

use std::collections::HashSet;

use rayon::prelude::*;

use super::SourceFile;
use crate::{array::CONSTANTS_FILE, format::index, record::key::lowercase_extension, schema};

/// What was omitted because it only describes other files.
#[derive(Debug, Default)]
pub struct Companions {
    /// Number of files, those of metadata included.
    pub count: u64,
    /// Names of files of metadata, with the tools that made them.
    pub metadata: Vec<(String, &'static str)>,
}

/// Removes files that only describe shards or records next to them, such as indexes, job markers and metadata of other
/// tools.
pub fn ignore_companions(found: &mut Vec<SourceFile>) -> Companions {
    let folder = |name: &str| name.rfind('/').map_or(0, |slash| slash + 1);
    let shards: HashSet<String> = found
        .par_iter()
        .filter(|file| holds_shards(file.name()))
        .map(|file| file.name()[..folder(file.name())].to_owned())
        .collect();
    let lists_shards = |name: &str| index::of_folders().any(|list| list == name) && !shards.is_empty();
    let is_ignored = |file: &SourceFile| {
        let (parent, last) = file.name().split_at(folder(file.name()));
        MARKERS.contains(&last)
            || !shards.is_empty() && shards.contains(parent) && is_companion(last)
            || lists_shards(last)
    };
    let before = found.len();
    // Usually there is none, which all cores check.
    if found.par_iter().any(is_ignored) {
        found.retain(|file| !is_ignored(file));
    }
    let metadata = ignore_metadata(found);
    Companions { count: (before - found.len()) as u64, metadata }
}

/// Files that Spark and similar tools write beside tables, and the constants beside shards of arrays.
const MARKERS: [&str; 4] = ["_SUCCESS", "_metadata", "_common_metadata", CONSTANTS_FILE];

fn is_companion(name: &str) -> bool {
    index::strip_beside(name).is_some() || name == schema::file::NAME
}

fn holds_shards(name: &str) -> bool {
    lowercase_extension(name).split('.').any(|part| matches!(part, "tar" | "tgz") || part.starts_with("tfrec"))
}

/// A file in which a tool describes the records next to it.
struct MetadataFile {
    /// Name of the file, or the end of names if it begins with a dot.
    name: &'static str,
    /// The tool.
    tool: &'static str,
    /// What names of the files that it describes contain.
    of: &'static [&'static str],
}

/// Files that describe the records in their folder or below.
const METADATA: [MetadataFile; 12] = [
    MetadataFile { name: "state.json", tool: HUGGING_FACE, of: &[".arrow"] },
    MetadataFile { name: "dataset_dict.json", tool: HUGGING_FACE, of: &[".arrow"] },
    MetadataFile { name: "dataset_info.json", tool: HUGGING_FACE, of: &[".arrow", ".parquet"] },
    MetadataFile { name: "dataset_infos.json", tool: HUGGING_FACE, of: RECORDS },
    MetadataFile { name: "dataset_info.json", tool: TFDS, of: &[".tfrecord"] },
    MetadataFile { name: "features.json", tool: TFDS, of: &[".tfrecord"] },
    MetadataFile { name: "metadata.json", tool: TFDS, of: &[".tfrecord"] },
    MetadataFile { name: ".labels.txt", tool: TFDS, of: &[".tfrecord"] },
    MetadataFile { name: "croissant.json", tool: "Croissant", of: RECORDS },
    MetadataFile { name: "datapackage.json", tool: "Frictionless Data", of: RECORDS },
    MetadataFile { name: "dataset-metadata.json", tool: "Kaggle", of: RECORDS },
    MetadataFile { name: ".csv-metadata.json", tool: "CSV on the Web", of: &[".csv"] },
];

const HUGGING_FACE: &str = "Hugging Face datasets";
const TFDS: &str = "TensorFlow Datasets";
/// What names of files of records contain.
const RECORDS: &[&str] = &[".parquet", ".jsonl", ".csv", ".tsv", ".arrow", ".tfrecord", ".tar", ".ndjson"];

/// Removes files in which tools describe the records next to them; returns their names, each with its tool.
fn ignore_metadata(found: &mut Vec<SourceFile>) -> Vec<(String, &'static str)> {
    let may_be = |name: &str| name.ends_with(".json") || name.ends_with(".txt");
    let is_any = |file: &SourceFile| {
        is_cached_copy(file.name()) || may_be(file.name()) && METADATA.iter().any(|k| names_metadata(k, file.name()))
    };
    if !found.par_iter().any(is_any) {
        return Vec::new();
    }
    let mut names = Vec::new();
    let all: Vec<String> = found.iter().map(|file| file.name().to_owned()).collect();
    found.retain(|file| {
        let name = file.name();
        let folder = &name[..name.rfind('/').map_or(0, |slash| slash + 1)];
        let below = all.partition_point(|other| other.as_str() < folder);
        let below = || all[below..].iter().take_while(|other| other.starts_with(folder));
        let has = |known: &&MetadataFile| {
            below().any(|other| known.of.iter().any(|part| last_component(other).contains(part) && other != name))
        };
        // A copy is one only beside what it is a copy of.
        if is_cached_copy(name) && below().any(|other| other.ends_with(".arrow") && !is_cached_copy(other)) {
            names.push((name.to_owned(), HUGGING_FACE));
            return false;
        }
        let Some(known) = METADATA.iter().filter(|known| names_metadata(known, name)).find(has) else { return true };
        names.push((name.to_owned(), known.tool));
        false
    });
    names
}

/// Whether a file has what Hugging Face datasets computed from the records next to it: `cache-0f1e2d3c4b5a6978.arrow`,
/// or a part of it with `_00000_of_00004` behind the number.
fn is_cached_copy(name: &str) -> bool {
    let stem = last_component(name).strip_prefix("cache-").and_then(|rest| rest.strip_suffix(".arrow"));
    let number = stem.and_then(|stem| stem.split('_').next());
    number.is_some_and(|number| number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn names_metadata(known: &MetadataFile, name: &str) -> bool {
    name.ends_with(known.name) && (known.name.starts_with('.') || last_component(name) == known.name)
}

/// Returns the last component of a path.
fn last_component(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_told_by_their_names() {
        let tool = |name: &str| METADATA.iter().find(|known| names_metadata(known, name)).map(|known| known.tool);
        assert!(is_cached_copy("a/cache-0123456789abcdef.arrow"));
        assert!(is_cached_copy("cache-0123456789abcdef_00001_of_00004.arrow"));
        assert!(!is_cached_copy("cache-0123.arrow") && !is_cached_copy("json-train.arrow"));
        assert_eq!(tool("a/state.json"), Some(HUGGING_FACE));
        assert_eq!(tool("mnist/3.0.1/label.labels.txt"), Some(TFDS));
        assert_eq!(tool("a.csv-metadata.json"), Some("CSV on the Web"));
        assert_eq!((tool("a/my_state.json"), tool("a.json"), tool("state.json/a")), (None, None, None));
    }
}
