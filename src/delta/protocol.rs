//! Which tables can be read: the features that a table requires of readers, taken or refused by name.

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
pub(super) fn check(protocol: &Protocol, metadata: &Metadata) -> Result<Mapping> {
    let version = protocol.min_reader_version;
    if version > NEWEST_READER {
        return Err(Error::usage(format!(
            "expected a Delta table for readers of at most version {NEWEST_READER}, found version {version}"
        ))
        .hint(EXPORT));
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
            "catalogManaged" | "catalogOwned-preview" => {
                error.hint("the table's catalog decides which commits count; export the table with a program that asks the catalog")
            }
            _ => error
                .hint(format!("if the table does not use it, drop it: ALTER TABLE ... DROP FEATURE {first}"))
                .hint(EXPORT),
        });
    }
    match metadata.property("delta.columnMapping.mode") {
        // The property alone has no meaning in a table whose readers need not know it.
        Some("name") if version >= 2 => Ok(Mapping::Name),
        Some("id") if version >= 2 => Ok(Mapping::Id),
        Some(other) if version >= 2 && other != "none" => {
            Err(Error::usage(format!("expected a column mapping by name or id, found `{other}`")).hint(EXPORT))
        }
        _ => Ok(Mapping::None),
    }
}

/// What to do with a table that is refused.
pub(super) const EXPORT: &str =
    "export the table (e.g. with Spark, deltalake or DuckDB), and convert the exported files";
