//! Actions of a Delta log: the part of the protocol that the mirror writes, and reads back.
//!
//! ```text
//! _delta_log/00000000000000000000.json     commitInfo, protocol, metaData, txn, add, add ...     an action per line
//! _delta_log/00000000000000000001.json     commitInfo, txn, remove ..., add ...
//! ```

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::TableSchema;
use crate::error::{Error, Result};

/// What is escaped in the path of a file, which is part of a URI.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'=');

/// Feature of tables that have timestamps without a zone.
const LOCAL_TIMES: &str = "timestampNtz";

/// Features that writer version 2 implies.
const LEGACY_FEATURES: [&str; 2] = ["appendOnly", "invariants"];

/// One line of a log file: one field is present.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Action {
    /// Describes the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) commit_info: Option<Value>,
    /// Versions and features of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<Protocol>,
    /// Columns of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meta_data: Option<MetaData>,
    /// What the commit mirrors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) txn: Option<Txn>,
    /// A file is live from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) add: Option<Add>,
    /// A file is not live any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remove: Option<Remove>,
}

/// Versions and features of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    /// Version that readers need.
    pub(super) min_reader_version: i32,
    /// Version that writers need.
    pub(super) min_writer_version: i32,
    /// Features that readers need, from version 3 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reader_features: Option<Vec<String>>,
    /// Features that writers need, from version 7 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) writer_features: Option<Vec<String>>,
}

impl Protocol {
    /// Returns the oldest protocol that a table with these columns can have.
    pub(super) fn of(schema: &TableSchema) -> Self {
        if !schema.has_local_times() {
            return Self { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
        }
        let writer = std::iter::once(LOCAL_TIMES).chain(LEGACY_FEATURES).map(str::to_owned).collect();
        Self {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: Some(vec![LOCAL_TIMES.to_owned()]),
            writer_features: Some(writer),
        }
    }
}

/// Columns of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetaData {
    /// A UUID that never changes.
    pub(super) id: String,
    /// Format of the files.
    pub(super) format: FileFormat,
    /// The columns, as JSON in a text.
    pub(super) schema_string: String,
    /// Columns whose values are in the names of folders.
    pub(super) partition_columns: Vec<String>,
    /// Properties of the table.
    #[serde(default)]
    pub(super) configuration: BTreeMap<String, String>,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub(super) created_time: Option<i64>,
}

/// Format of the files of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileFormat {
    /// `parquet`.
    pub(super) provider: String,
    /// None.
    #[serde(default)]
    pub(super) options: BTreeMap<String, String>,
}

impl MetaData {
    /// Returns the columns.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if it is no schema.
    pub(super) fn schema(&self) -> Result<TableSchema> {
        serde_json::from_str(&self.schema_string)
            .map_err(|e| Error::integrity("expected the schema of a Delta table, found something else").cause(e))
    }
}

/// What a commit mirrors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Txn {
    /// `shardify-` and the transaction id of the first version.
    pub(super) app_id: String,
    /// Version of the dataset.
    pub(super) version: i64,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub(super) last_updated: Option<i64>,
}

/// A live file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Add {
    /// Path relative to the table, percent-encoded.
    pub(super) path: String,
    /// Values of the partition columns.
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    /// Size in bytes.
    pub(super) size: i64,
    /// Milliseconds since 1970.
    pub(super) modification_time: i64,
    /// Whether records came into the table with it.
    pub(super) data_change: bool,
    /// Counts and bounds, as JSON in a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stats: Option<String>,
}

impl Add {
    /// Returns the number of records that its statistics state.
    pub(super) fn records(&self) -> Option<u64> {
        let stats: Value = serde_json::from_str(self.stats.as_deref()?).ok()?;
        stats["numRecords"].as_u64()
    }
}

/// A file that is not live any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remove {
    /// Path relative to the table, percent-encoded.
    pub(super) path: String,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub(super) deletion_timestamp: Option<i64>,
    /// Whether records left the table with it.
    pub(super) data_change: bool,
    /// Whether the following fields are present.
    #[serde(default)]
    pub(super) extended_file_metadata: Option<bool>,
    /// Values of the partition columns.
    #[serde(default)]
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    /// Size in bytes.
    #[serde(default)]
    pub(super) size: Option<i64>,
}

/// Returns the path of a file as the log has it.
pub(super) fn encoded_path(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}

/// Encodes the actions of a commit, a line each.
///
/// # Errors
/// Never in practice: all actions can be written as JSON.
pub(super) fn encode(actions: &[Action]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for action in actions {
        serde_json::to_writer(&mut out, action)
            .map_err(|e| Error::internal("encoding an action of a Delta log failed").cause(e))?;
        out.push(b'\n');
    }
    Ok(out)
}

/// Decodes the actions of a commit.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) with the line that is no action.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Action>> {
    let lines = bytes.split(|byte| *byte == b'\n').zip(1_u64..).filter(|(line, _)| !line.trim_ascii().is_empty());
    let decoded = lines.map(|(line, number)| {
        serde_json::from_slice(line).map_err(|e| {
            Error::integrity("expected an action of a Delta log, found something else").line(number).cause(e)
        })
    });
    decoded.collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_as_parts_of_uris() {
        for (path, expected) in [
            ("0c4d77ab0b1e/000000.parquet", "0c4d77ab0b1e/000000.parquet"),
            ("t/city=New%20York/a b.parquet", "t/city=New%2520York/a%20b.parquet"),
            ("a:b#c?d/ü.parquet", "a%3Ab%23c%3Fd/%C3%BC.parquet"),
        ] {
            assert_eq!(encoded_path(path), expected);
        }
    }

    #[test]
    fn actions_are_read_as_written() {
        let text = concat!(
            r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
            "\n",
            r#"{"add":{"path":"a.parquet","partitionValues":{"k":null},"size":5,"modificationTime":7,"dataChange":false}}"#,
            "\n"
        );
        let actions = decode(text.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(encode(&actions).unwrap()).unwrap(), text);
        let unknown = decode(b"{\"cdc\": {}}\n{\"add\": 3}\n").unwrap_err();
        assert_eq!(unknown.place().line, Some(2));
    }
}
