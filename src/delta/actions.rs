//! Actions of a Delta log: the lines of its commits and the rows of its checkpoints, as far as reading needs them.
//!
//! ```text
//! {"add":{"path":"day=1/part-0.parquet","partitionValues":{"day":"1"},"size":42,"dataChange":true,...}}
//! {"remove":{"path":"part-1.parquet","dataChange":true,...}}
//! {"metaData":{...}}   {"protocol":{...}}   {"commitInfo":{...}}   {"sidecar":{...}}
//! ```
//!
//! Unknown actions and fields are ignored, as the protocol requires; features that change how a table is read are
//! listed in the `protocol` action ([`super::protocol`]).

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer};

use crate::{
    error::{Error, Result},
    storage::checked_path,
};

/// One line of a commit, or one row of a checkpoint; at most one of the members is set.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Action {
    pub(super) add: Option<Add>,
    pub(super) remove: Option<Remove>,
    pub(super) meta_data: Option<Metadata>,
    pub(super) protocol: Option<Protocol>,
    pub(super) commit_info: Option<CommitInfo>,
    pub(super) sidecar: Option<Sidecar>,
}

/// Adds a data file to the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    /// Path below the table, percent-encoded.
    pub(super) path: String,
    /// Values of the partition columns, by physical name.
    #[serde(default, deserialize_with = "texts")]
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    /// Whether the file has rows that the table did not have before.
    #[serde(default = "yes")]
    pub(super) data_change: bool,
    /// Rows of the file that are deleted.
    #[serde(default)]
    pub(super) deletion_vector: Option<Descriptor>,
}

/// Removes a data file from the table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remove {
    pub(super) path: String,
    #[serde(default = "yes")]
    pub(super) data_change: bool,
    #[serde(default)]
    pub(super) deletion_vector: Option<Descriptor>,
}

/// Place of a deletion vector.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    /// `u`: file named by an id; `p`: file named by a path; `i`: inline.
    pub(super) storage_type: String,
    pub(super) path_or_inline_dv: String,
    #[serde(default)]
    pub(super) offset: Option<u64>,
    pub(super) size_in_bytes: u64,
    pub(super) cardinality: u64,
}

impl Descriptor {
    /// Returns the text that identifies the vector among those of its data file.
    pub(super) fn id(&self) -> String {
        format!("{}{}@{}", self.storage_type, self.path_or_inline_dv, self.offset.unwrap_or_default())
    }
}

/// Schema and properties of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    /// Identifies the table.
    pub(super) id: String,
    /// The schema as JSON; some writers set up a table before they know it.
    #[serde(default)]
    pub(super) schema_string: Option<String>,
    /// Logical names of the partition columns.
    #[serde(default)]
    pub(super) partition_columns: Vec<String>,
    #[serde(default, deserialize_with = "texts")]
    pub(super) configuration: BTreeMap<String, Option<String>>,
}

impl Metadata {
    /// Returns a property of the table.
    pub(super) fn property(&self, key: &str) -> Option<&str> {
        self.configuration.get(key)?.as_deref()
    }
}

/// What a reader must support.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: i64,
    #[serde(default)]
    pub(super) reader_features: Option<Vec<String>>,
}

/// Remarks of the writer; only its timestamp matters.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CommitInfo {
    /// Milliseconds since 1970.
    pub(super) in_commit_timestamp: Option<i64>,
}

/// A part of a V2 checkpoint.
#[derive(Debug, Deserialize)]
pub(super) struct Sidecar {
    pub(super) path: String,
}

fn yes() -> bool {
    true
}

/// Reads a map of texts: an object in a commit, a list of pairs in the JSON of a checkpoint's row.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Option<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Pair {
        key: String,
        value: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Object(BTreeMap<String, Option<String>>),
        Pairs(Vec<Pair>),
        Missing(()),
    }
    Ok(match Form::deserialize(from)? {
        Form::Object(map) => map,
        Form::Pairs(pairs) => pairs.into_iter().map(|pair| (pair.key, pair.value)).collect(),
        Form::Missing(()) => BTreeMap::new(),
    })
}

/// Returns the path of a data file below the table, which may not lead out of it.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if the path is absolute, is none, or contains `.` or `..`.
pub(super) fn data_path(path: &str) -> Result<String> {
    if path.starts_with('/') || has_scheme(path) {
        return Err(Error::input(format!("expected a path below the table, found the absolute path `{path}`"))
            .hint("the table is a shallow clone, or its files lie elsewhere; copy it as a whole (e.g. a deep clone), and convert that"));
    }
    let decoded = percent_decode_str(path).decode_utf8().ok().filter(|path| checked_path(path).is_ok());
    decoded.map(std::borrow::Cow::into_owned).ok_or_else(|| {
        Error::input(format!("expected a path below the table, found `{path}`"))
            .hint("the log is damaged or hostile; nothing was read there")
    })
}

/// Whether a path begins with a scheme, as URLs do; a colon may be in file names, too.
fn has_scheme(path: &str) -> bool {
    path.split_once(":/").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_table() {
        assert_eq!(data_path("day=1%252F2/part 0%20.parquet").unwrap(), "day=1%2F2/part 0 .parquet");
        assert_eq!(data_path("at=12:/x.parquet").unwrap(), "at=12:/x.parquet");
        for bad in ["", "../x", "a/../../x", "a//b", "/etc/passwd", "s3://b/x", "file:/x", "a/%2e%2e/x", "%ff", "a%00"]
        {
            assert!(data_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn actions_of_both_forms_are_read() {
        let line = r#"{"add":{"path":"a","partitionValues":{"p":null,"q":"1"},"size":1,"dataChange":false}}"#;
        let row = r#"{"add":{"path":"a","partitionValues":[{"key":"p","value":null},{"key":"q","value":"1"}]}}"#;
        let read = |text| serde_json::from_str::<Action>(text).unwrap().add.unwrap();
        let (line, row) = (read(line), read(row));
        assert_eq!(line.partition_values, row.partition_values);
        assert_eq!(line.partition_values["q"].as_deref(), Some("1"));
        assert_eq!((line.data_change, row.data_change), (false, true));
        assert!(serde_json::from_str::<Action>(r#"{"later":{"x":1}}"#).unwrap().add.is_none());
    }
}
