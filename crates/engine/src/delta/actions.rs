//! Actions of a Delta log: the lines of its commits and the rows of its checkpoints, as far as they are read or
//! written.
//!
//! ```text
//! {"add":{"path":"day=1/part-0.parquet","partitionValues":{"day":"1"},"size":42,"dataChange":true,...}}
//! {"remove":{"path":"part-1.parquet","dataChange":true,...}}
//! {"metaData":{...}}   {"protocol":{...}}   {"txn":{...}}   {"commitInfo":{...}}   {"sidecar":{...}}
//! ```
//!
//! Unknown actions and fields are ignored, as the protocol requires; features that change how a table is read are
//! listed in the `protocol` action ([`super::protocol`]).

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    error::{Error, Result},
    storage::checked_path,
};

/// Values of partition columns, and properties.
pub type Values = BTreeMap<String, Option<String>>;

/// What is escaped in the path of a file, which is part of a URI.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'=');

/// One line of a commit, or one row of a checkpoint; at most one of the members is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Action {
    /// Remarks on the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_info: Option<CommitInfo>,
    /// What readers and writers must support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Schema and properties of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<Metadata>,
    /// What an application has written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txn: Option<Txn>,
    /// A data file is live from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<Add>,
    /// A data file is not live any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<Remove>,
    /// A file of changed rows, which is never written.
    #[serde(skip_serializing)]
    pub cdc: Option<Changed>,
    /// A part of a V2 checkpoint, which is never written.
    #[serde(skip_serializing)]
    pub sidecar: Option<Sidecar>,
}

/// Adds a data file to the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Add {
    /// Path below the table, percent-encoded.
    pub path: String,
    /// Values of the partition columns, by physical name.
    #[serde(default, deserialize_with = "texts")]
    pub partition_values: Values,
    /// Size in bytes.
    #[serde(default)]
    pub size: Option<i64>,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub modification_time: Option<i64>,
    /// Whether the file has rows that the table did not have before.
    #[serde(default = "yes")]
    pub data_change: bool,
    /// Counts and bounds, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// The same in a checkpoint that has them as columns.
    #[serde(default, skip_serializing, rename = "stats_parsed", deserialize_with = "raw")]
    pub stats_parsed: Option<String>,
    /// Remarks of writers.
    #[serde(default, skip_serializing_if = "Values::is_empty", deserialize_with = "texts")]
    pub tags: Values,
    /// Rows of the file that are deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<Descriptor>,
}

impl Add {
    /// Creates the action that adds a file, none of whose rows is deleted.
    pub fn new(path: &str, size: i64, modification_time: i64) -> Self {
        Self {
            path: encoded_path(path),
            partition_values: Values::new(),
            size: Some(size),
            modification_time: Some(modification_time),
            data_change: true,
            stats: None,
            stats_parsed: None,
            tags: Values::new(),
            deletion_vector: None,
        }
    }
}

/// Removes a data file from the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    /// Path below the table, percent-encoded.
    pub path: String,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    /// Whether the table has lost rows with it.
    #[serde(default = "yes")]
    pub data_change: bool,
    /// Whether the following fields are stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_file_metadata: Option<bool>,
    /// Values of the partition columns, by physical name.
    #[serde(default, deserialize_with = "texts")]
    pub partition_values: Values,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Rows of the file that were deleted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<Descriptor>,
}

impl Remove {
    /// Creates the action that removes what `add` has added.
    pub fn for_add(add: &Add, deletion_timestamp: i64, data_change: bool) -> Self {
        Self {
            path: add.path.clone(),
            deletion_timestamp: Some(deletion_timestamp),
            data_change,
            extended_file_metadata: Some(true),
            partition_values: add.partition_values.clone(),
            size: add.size,
            deletion_vector: add.deletion_vector.clone(),
        }
    }
}

/// Place of a deletion vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// `u`: file named by an id; `p`: file named by a path; `i`: inline.
    pub storage_type: String,
    /// The id, path or encoded bytes.
    pub path_or_inline_dv: String,
    /// Where it begins in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Its size.
    pub size_in_bytes: u64,
    /// How many rows it deletes.
    pub cardinality: u64,
}

impl Descriptor {
    /// Returns the text that identifies the vector among those of its data file.
    pub(super) fn unique_id(&self) -> String {
        format!("{}{}@{}", self.storage_type, self.path_or_inline_dv, self.offset.unwrap_or_default())
    }
}

/// Schema and properties of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Identifies the table.
    pub id: String,
    /// Format of the data files.
    #[serde(default)]
    pub format: FileFormat,
    /// The schema as JSON; some writers set up a table before they know it.
    #[serde(default)]
    pub schema_string: Option<String>,
    /// Logical names of the partition columns.
    #[serde(default)]
    pub partition_columns: Vec<String>,
    /// Properties.
    #[serde(default, deserialize_with = "texts")]
    pub configuration: Values,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub created_time: Option<i64>,
}

/// Format of data files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFormat {
    /// `parquet`.
    pub provider: String,
    /// None.
    #[serde(default, deserialize_with = "texts")]
    pub options: Values,
}

impl Default for FileFormat {
    fn default() -> Self {
        Self { provider: "parquet".to_owned(), options: Values::new() }
    }
}

impl Metadata {
    /// Returns a property of the table.
    pub fn property(&self, key: &str) -> Option<&str> {
        self.configuration.get(key)?.as_deref()
    }
}

/// What readers and writers must support.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// Version that readers need.
    pub min_reader_version: i64,
    /// Version that writers need.
    #[serde(default)]
    pub min_writer_version: i64,
    /// Features that readers need, from version 3 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    /// Features that writers need, from version 7 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}

/// What an application has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    /// Identifies the application.
    pub app_id: String,
    /// The application's own version.
    pub version: i64,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub last_updated: Option<i64>,
}

/// Remarks of the writer. Of those of others, only the timestamp matters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommitInfo {
    /// Milliseconds since 1970, if the table's properties say that commits state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_commit_timestamp: Option<i64>,
    /// Milliseconds since 1970.
    #[serde(skip_deserializing)]
    pub timestamp: i64,
    /// The operation, by Delta's name.
    #[serde(skip_deserializing)]
    pub operation: String,
    /// Its parameters.
    #[serde(skip_deserializing)]
    pub operation_parameters: Value,
    /// The program.
    #[serde(skip_deserializing)]
    pub engine_info: String,
    /// The version that the writer has read.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub read_version: Option<u64>,
    /// What concurrent writers may do, by Delta's name.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub isolation_level: Option<String>,
    /// Whether the commit only adds files.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub is_blind_append: Option<bool>,
    /// Counts of the operation, by Delta's names.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub operation_metrics: Option<Value>,
    /// Identifies the commit.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub txn_id: Option<String>,
}

/// A file of rows that a commit has changed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Changed {
    /// Path below the table, percent-encoded.
    pub path: String,
}

/// A part of a V2 checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Sidecar {
    /// Path below the folder of sidecars, percent-encoded.
    pub path: String,
}

/// Encodes the actions of a commit, a line each.
///
/// # Errors
/// Never in practice: all actions can be written as JSON.
pub fn encode_commit(actions: &[Action]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for action in actions {
        serde_json::to_writer(&mut out, action)
            .map_err(|e| Error::internal("encoding an action of a Delta log failed").with_cause(e))?;
        out.push(b'\n');
    }
    Ok(out)
}

fn yes() -> bool {
    true
}

/// Reads any JSON as it is written.
fn raw<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Box<RawValue>>::deserialize(from)?.map(|json| json.get().to_owned()))
}

/// Reads a map of texts: an object in a commit, a list of pairs in the JSON of a checkpoint's row.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Values, D::Error> {
    #[derive(Deserialize)]
    struct Pair {
        key: String,
        value: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Object(Values),
        Pairs(Vec<Pair>),
        Missing(()),
    }
    Ok(match Form::deserialize(from)? {
        Form::Object(map) => map,
        Form::Pairs(pairs) => pairs.into_iter().map(|pair| (pair.key, pair.value)).collect(),
        Form::Missing(()) => Values::new(),
    })
}

/// Returns the path of a data file below the table, which may not lead out of it.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if the path is absolute, is none, or contains `.` or `..`.
pub fn data_path(path: &str) -> Result<String> {
    if path.starts_with('/') || has_scheme(path) {
        return Err(Error::input(format!("expected a path below the table, found the absolute path `{path}`"))
            .with_hint(
                "the table is a shallow clone, or its files lie elsewhere; copy it as a whole (e.g. a deep clone), \
             and convert that",
            ));
    }
    let decoded = percent_decode_str(path).decode_utf8().ok().filter(|path| checked_path(path).is_ok());
    decoded.map(std::borrow::Cow::into_owned).ok_or_else(|| {
        Error::input(format!("expected a path below the table, found `{path}`"))
            .with_hint("the log is damaged or hostile; nothing was read there")
    })
}

/// Returns the path of a data file as a log has it.
pub fn encoded_path(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
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
        let parsed = read(r#"{"add":{"path":"a","stats_parsed":{"numRecords":3,"minValues":{"d":1.10}}}}"#);
        assert_eq!(parsed.stats_parsed.as_deref(), Some(r#"{"numRecords":3,"minValues":{"d":1.10}}"#));
    }

    #[test]
    fn paths_are_encoded_as_parts_of_uris() {
        for (path, expected) in [
            ("0c4d77ab0b1e/000000.parquet", "0c4d77ab0b1e/000000.parquet"),
            ("t/city=New%20York/a b.parquet", "t/city=New%2520York/a%20b.parquet"),
            ("a:b#c?d/ü.parquet", "a%3Ab%23c%3Fd/%C3%BC.parquet"),
        ] {
            assert_eq!(encoded_path(path), expected);
            assert_eq!(data_path(expected).unwrap(), path);
        }
    }

    #[test]
    fn actions_are_written_as_they_are_read() {
        for line in [
            r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
            r#"{"add":{"path":"a.parquet","partitionValues":{"k":null},"size":5,"modificationTime":7,"dataChange":false}}"#,
            r#"{"txn":{"appId":"a","version":3,"lastUpdated":4}}"#,
            r#"{"remove":{"path":"a","deletionTimestamp":1,"dataChange":true,"partitionValues":{}}}"#,
        ] {
            let action: Action = serde_json::from_str(line).unwrap();
            assert_eq!(String::from_utf8(encode_commit(&[action]).unwrap()).unwrap(), format!("{line}\n"));
        }
    }
}
