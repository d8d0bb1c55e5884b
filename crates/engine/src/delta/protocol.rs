//! Which tables can be read, and whose files can be replaced by others with the same rows: the features that a table
//! requires of readers and writers, taken or refused by name.

use super::actions::{Metadata, Protocol};
use crate::error::{Error, Result};

/// The highest version of readers that the protocol of Delta defines.
const NEWEST_READER: i64 = 3;

/// Features whose tables are read as they should be.
const SUPPORTED: &[&str] = &[
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
];

/// The highest version of writers that the protocol of Delta defines. Lower ones than this imply [`REWRITABLE`]
/// features.
const NEWEST_WRITER: i64 = 7;

/// Features that ask nothing more of a writer that replaces files by others with the same rows, physical columns and
/// partition values, in commits without a change of data.
const REWRITABLE: &[&str] = &[
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
];

/// Checks that files of the table can be replaced by others with the same rows; [`check_features`] says whether they
/// can be read.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming the features that prevent it.
pub(super) fn check_rewrite(protocol: &Protocol, metadata: &Metadata) -> Result<()> {
    let version = protocol.min_writer_version;
    if version > NEWEST_WRITER {
        return Err(Error::usage(format!(
            "expected a Delta table for writers of at most version {NEWEST_WRITER}, found version {version}"
        ))
        .with_hint(OPTIMIZE));
    }
    let features = protocol.writer_features.as_deref().unwrap_or_default();
    let mut refused: Vec<&str> =
        features.iter().map(String::as_str).filter(|feature| !REWRITABLE.contains(feature)).collect();
    refused.extend(
        metadata
            .configuration
            .keys()
            .map(String::as_str)
            .filter(|key| is_coordinated(key) || *key == "delta.enableRowTracking")
            .filter(|key| metadata.property(key) != Some("false")),
    );
    if refused.is_empty() {
        return Ok(());
    }
    let why = match refused[0] {
        "clustering" | "clustered" => "files of a clustered table are arranged by its clustering columns",
        "rowTracking" | "delta.enableRowTracking" => "rows of this table have ids, which only its own writers keep",
        _ => "the table asks something of writers that shardify does not do",
    };
    Err(Error::usage(format!(
        "expected a Delta table whose files may be merged, found one with {}",
        refused.join(", ")
    ))
    .with_hint(why)
    .with_hint(OPTIMIZE))
}

/// Features that say nothing about which files may be deleted, beyond those that files may be merged with.
const VACUUMABLE: &[&str] = &["clustering", "materializePartitionColumns", "rowTracking"];

/// Checks that files which the log has removed may be deleted; [`check_features`] says whether the table can be read.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming the features that prevent it.
pub(super) fn check_vacuum(protocol: &Protocol, metadata: &Metadata) -> Result<()> {
    let version = protocol.min_writer_version;
    if version > NEWEST_WRITER {
        return Err(Error::usage(format!(
            "expected a Delta table for writers of at most version {NEWEST_WRITER}, found version {version}"
        ))
        .with_hint(VACUUM));
    }
    let features = protocol.writer_features.iter().flatten().map(String::as_str);
    let mut refused: Vec<&str> =
        features.filter(|feature| !REWRITABLE.contains(feature) && !VACUUMABLE.contains(feature)).collect();
    refused.extend(metadata.configuration.keys().map(String::as_str).filter(|key| is_coordinated(key)));
    if refused.is_empty() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "expected a Delta table whose files may be deleted, found one with {}",
        refused.join(", ")
    ))
    .with_hint("the table asks something of writers that shardify does not do; nothing was deleted")
    .with_hint(VACUUM))
}

/// Whether a property says that a catalog decides which commits of the table count.
fn is_coordinated(key: &str) -> bool {
    key.starts_with("delta.coordinatedCommits.")
}

/// What to do with a table whose files cannot be deleted here.
const VACUUM: &str = "use a program that supports it, such as Spark: VACUUM delta.`PATH`";

/// What to do with a table whose files cannot be merged here.
const OPTIMIZE: &str = "merge its files with a program that supports it, such as Spark: OPTIMIZE delta.`PATH`";

/// How columns of data files are matched with those of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mapping {
    /// By their names.
    None,
    /// By physical names that the schema states.
    Name,
    /// By field ids that the schema states.
    Id,
}

/// Checks that every feature of the table is supported; returns how columns are matched.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming the features that are not.
pub(super) fn check_features(protocol: &Protocol, metadata: &Metadata) -> Result<Mapping> {
    let version = protocol.min_reader_version;
    if version > NEWEST_READER {
        return Err(Error::usage(format!(
            "expected a Delta table for readers of at most version {NEWEST_READER}, found version {version}"
        ))
        .with_hint(EXPORT));
    }
    let features = protocol.reader_features.as_deref().unwrap_or_default();
    let unknown: Vec<&str> =
        features.iter().map(String::as_str).filter(|feature| !SUPPORTED.contains(feature)).collect();
    if let Some(first) = unknown.first() {
        let error = Error::usage(format!(
            "expected a Delta table of supported features, found one that needs {}",
            unknown.join(", ")
        ));
        return Err(match *first {
            "catalogManaged" | "catalogOwned-preview" => error.with_hint(
                "the table's catalog decides which commits count; export the table with a program that \
                 asks the catalog",
            ),
            _ => error
                .with_hint(format!("if the table does not use it, drop it: ALTER TABLE ... DROP FEATURE {first}"))
                .with_hint(EXPORT),
        });
    }
    match metadata.property("delta.columnMapping.mode") {
        // The property alone has no meaning in a table whose readers need not know it.
        Some("name") if version >= 2 => Ok(Mapping::Name),
        Some("id") if version >= 2 => Ok(Mapping::Id),
        Some(other) if version >= 2 && other != "none" => {
            Err(Error::usage(format!("expected a column mapping by name or id, found `{other}`")).with_hint(EXPORT))
        }
        _ => Ok(Mapping::None),
    }
}

/// What to do with a table that is refused.
pub(super) const EXPORT: &str =
    "export the table (e.g. with Spark, deltalake or DuckDB), and convert the exported files";
