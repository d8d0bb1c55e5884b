//! The live files of a table, for a program that replaces some of them by others with the same rows.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::{
    AsOf, DataFile, ReplayState, Table, TableInfo,
    actions::{Add, Metadata, Protocol},
    checkpoint, protocol,
    stats::Types,
};
use crate::{
    error::{Error, Result},
    schema::schema_of,
    storage::Store,
};

/// Number of columns with statistics, if the table states none, as in Delta.
const STATS_COLUMNS: usize = 32;

/// A version of a table whose files may be replaced.
#[derive(Debug)]
pub struct LiveTable {
    pub(super) info: Arc<TableInfo>,
    pub(super) protocol: Protocol,
    pub(super) metadata: Metadata,
    files: Vec<LiveFile>,
    /// The time that the newest commit states, in milliseconds since 1970, if commits of the table state it.
    pub(super) stated_time: Option<i64>,
}

/// A live file.
#[derive(Debug, Clone)]
pub struct LiveFile {
    /// Path below the table, decoded.
    pub path: String,
    /// What the log says of it.
    pub add: Add,
    /// How it is read.
    pub data: DataFile,
}

impl LiveFile {
    /// Returns the size in bytes that the log states.
    pub fn stated_bytes(&self) -> u64 {
        self.add.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default()
    }

    /// Returns the number of rows that its statistics state, also deleted ones; `None` if they state none.
    pub fn stated_rows(&self) -> Option<u64> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct StatedRows {
            num_records: Option<u64>,
        }
        serde_json::from_str::<StatedRows>(self.add.stats.as_deref()?).ok()?.num_records
    }

    /// Returns how many rows its deletion vector deletes; `None` if it has none.
    pub fn deleted_row_count(&self) -> Option<u64> {
        self.add.deletion_vector.as_ref().map(|vector| vector.cardinality)
    }

    /// Returns its folder below the table, with a slash behind it, or nothing.
    pub fn folder_prefix(&self) -> &str {
        self.path.rfind('/').map_or("", |end| &self.path[..=end])
    }
}

impl Table {
    /// Whether there is a log.
    pub fn exists(&self) -> bool {
        self.files.newest_version().is_some()
    }

    /// Reads the newest version for a program that replaces files. Statistics of files of at least `stats_below` bytes
    /// are dropped.
    ///
    /// # Errors
    /// Those of [`Self::read_snapshot`].
    pub fn live_table(&self, stats_below: u64) -> Result<LiveTable> {
        let version = self.version_of(None::<AsOf>)?;
        let (info, state) =
            self.read_state(version, ReplayState { stats_below, ..ReplayState::default() }, checkpoint::REPLACING)?;
        let ReplayState { protocol: Some(protocol), metadata: Some(metadata), live, .. } = state else {
            return Err(Error::internal("the state of a table lost its protocol"));
        };
        let stated_time = match metadata.property("delta.enableInCommitTimestamps") {
            Some("true") => Some(self.newest_time(version)?),
            _ => None,
        };
        let file = |(path, add): (String, Add)| LiveFile { path, data: DataFile::from_add(&info, &add), add };
        let files = live.into_iter().map(file).collect();
        Ok(LiveTable { info, protocol, metadata, files, stated_time })
    }

    /// Returns the time that the newest commit states; the next one must be later.
    fn newest_time(&self, version: u64) -> Result<i64> {
        let missing = || {
            Error::input("expected the time of the newest commit, which the table's properties demand, found none")
                .at_location(self.root_location())
                .with_hint("the log is damaged, or its newest commit was deleted: restore it from a copy")
        };
        if self.files.missing_commit(version..=version).is_some() {
            return Err(missing());
        }
        self.stated_time(version)?.ok_or_else(missing)
    }
}

impl LiveTable {
    /// Checks that files may be replaced by others with the same rows.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), naming the features of the table that prevent it.
    pub fn check_rewritable(&self) -> Result<()> {
        protocol::check_rewrite(&self.protocol, &self.metadata)
            .map_err(|e| e.at_location(self.store().location().to_string()))
    }

    /// Returns the version.
    pub fn version(&self) -> u64 {
        self.info.version
    }

    /// Returns the store of the table.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.info.store
    }

    /// Returns the live files in the order of their paths.
    pub fn files(&self) -> &[LiveFile] {
        &self.files
    }

    /// Returns a property of the table.
    pub fn property(&self, key: &str) -> Option<&str> {
        self.metadata.property(key)
    }

    /// Returns the schema of data files: physical names with their field ids, without partition columns.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if a column has a type that is not written.
    pub fn file_schema(&self) -> Result<SchemaRef> {
        Ok(schema_of(&self.info.schema.file_fields()?))
    }

    /// Returns that schema with the names that users see, in the same order.
    ///
    /// # Errors
    /// As [`Self::file_schema`].
    pub fn named_file_schema(&self) -> Result<SchemaRef> {
        Ok(schema_of(&self.info.schema.named_file_fields()?))
    }

    /// Checks that rows can be ordered by columns, as far as partitions are concerned.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if one of them is a partition column.
    pub fn check_sortable(&self, names: &[String]) -> Result<()> {
        let Some(name) = names.iter().find(|name| self.metadata.partition_columns.contains(name)) else {
            return Ok(());
        };
        Err(Error::usage(format!(
            "expected columns of data files to order rows by, found the partition column `{name}`"
        ))
        .at_location(self.store().location().to_string())
        .with_hint("leave it out: all rows of a file have one value in it"))
    }

    /// Returns the paths of the columns that new files should have statistics of: those that the table's properties
    /// name, and the given columns of data files.
    pub fn stats_columns(&self, others: &[String]) -> Vec<Vec<String>> {
        let names = self
            .property("delta.dataSkippingStatsColumns")
            .map(|list| list.split(',').map(|name| name.trim().trim_matches('`').to_owned()).collect::<Vec<_>>());
        let first = match self.property("delta.dataSkippingNumIndexedCols").map(str::parse::<i64>) {
            Some(Ok(count)) => usize::try_from(count).unwrap_or(usize::MAX),
            _ => STATS_COLUMNS,
        };
        let mut out = self.info.schema.stats_columns(names.as_deref(), first);
        for name in others {
            let path = vec![name.clone()];
            if !out.contains(&path) {
                out.push(path);
            }
        }
        out
    }

    /// Returns the types of the columns that statistics may have.
    pub fn leaf_types(&self) -> Types {
        self.info.schema.leaf_types()
    }

    /// Whether columns of data files are found by their field ids.
    pub fn maps_by_id(&self) -> bool {
        self.info.schema.mapping == protocol::Mapping::Id
    }
}
