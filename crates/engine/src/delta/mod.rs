//! Reads Delta tables: which data files a version has, which of their rows are deleted, and what their columns are.
//!
//! ```text
//! _delta_log --list--> LogFiles --replay checkpoint, then commits--> Snapshot --> DataFile: columns, values, vector
//!                          `----- commits after a version ---------> Changes        `--> TableReader
//!                          |----- for merges of files -------------> LiveTable --> replace: the next commit
//!                          `----- of all commits ------------------> Removals --> vacuum: what is deleted
//! ```
//!
//! The log alone decides: a file in the table's folder that it does not name is no part of the table. A log is trusted
//! with nothing: paths stay below the table, and versions that are missing or damaged are errors.

pub mod actions;
pub mod checkpoint;
mod head;
mod live;
pub mod log;
mod protocol;
mod reader;
mod replace;
mod schema;
pub mod stats;
pub mod types;
mod vacuum;
mod vectors;

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use xxhash_rust::xxh3::xxh3_64;

use self::{
    actions::{Action, Add, Descriptor, Metadata, Protocol, data_path},
    checkpoint::Columns,
    log::{LogFiles, commit_path, each_action},
    schema::TableSchema,
};
pub use self::{
    live::{LiveFile, LiveTable},
    reader::TableReader,
    replace::{Arranged, Replaced, Replacement, changed_files, commit_replacements},
    schema::arrow_type,
    vacuum::{FileRole, Removals, Removed, Terms, Vacuuming, is_left_alone},
};
use crate::{
    error::{Error, Result},
    storage::Store,
};

/// A version of a table, as users name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AsOf {
    /// The version of a number.
    Version(u64),
    /// The newest version at an instant.
    Instant(Timestamp),
}

impl FromStr for AsOf {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(number) = text.strip_prefix('v').and_then(|number| number.parse().ok()) {
            return Ok(Self::Version(number));
        }
        let in_utc = || text.parse::<DateTime>().and_then(|at| at.to_zoned(TimeZone::UTC)).map(|at| at.timestamp());
        text.parse().or_else(|_| in_utc()).map(Self::Instant).map_err(|_: jiff::Error| {
            Error::usage(format!(
                "expected a version such as v12, or an instant such as 2026-11-25T09:00:00Z, found `{text}`"
            ))
        })
    }
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "v{version}"),
            Self::Instant(instant) => write!(f, "{instant}"),
        }
    }
}

impl TryFrom<String> for AsOf {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<AsOf> for String {
    fn from(as_of: AsOf) -> Self {
        as_of.to_string()
    }
}

/// A version of one table, as the list of sources records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Version of the table.
    pub version: u64,
    /// Hash of the table's place and id.
    pub table: u64,
}

impl Mark {
    /// Creates the mark of a version of a table.
    pub fn new(version: u64, place: &str, id: &str) -> Self {
        Self { version, table: xxh3_64(format!("{place}\n{id}").as_bytes()) }
    }

    /// Reads a mark; `None` if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, table) = text.strip_prefix("delta:v")?.split_once(':')?;
        Some(Self { version: version.parse().ok()?, table: u64::from_str_radix(table, 16).ok()? })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta:v{}:{:016x}", self.version, self.table)
    }
}

/// A table whose log was listed.
#[derive(Debug)]
pub struct Table {
    store: Arc<dyn Store>,
    files: LogFiles,
}

/// Everything that the data files of a snapshot share.
#[derive(Debug)]
struct TableInfo {
    store: Arc<dyn Store>,
    schema: TableSchema,
    id: String,
    version: u64,
}

/// A version of a table.
#[derive(Debug)]
pub struct Snapshot {
    info: Arc<TableInfo>,
    /// Live files by path.
    files: BTreeMap<String, DataFile>,
}

/// A data file of a table, and how it is read.
#[derive(Debug, Clone)]
pub struct DataFile {
    info: Arc<TableInfo>,
    partition_values: BTreeMap<String, Option<String>>,
    deletion_vector: Option<Descriptor>,
}

impl DataFile {
    /// Returns the version of the table that it was read at.
    pub fn version(&self) -> u64 {
        self.info.version
    }

    /// Returns the table's id.
    pub fn table_id(&self) -> &str {
        &self.info.id
    }

    /// Returns the table's place, without secrets.
    pub fn table_location(&self) -> String {
        self.info.store.location().to_string()
    }
}

/// What has happened to a table since one of its versions.
#[derive(Debug, Default)]
pub struct Changes {
    /// Files with new rows, by path. Some may have been merged into others since then.
    pub added: BTreeMap<String, DataFile>,
    /// The first version that removed or changed rows which earlier versions had.
    pub removed_in: Option<u64>,
}

/// The state of a table while its log is replayed.
#[derive(Default)]
struct ReplayState {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    live: BTreeMap<String, Add>,
    /// Statistics of files of at least so many bytes are dropped: they may be most of a log.
    stats_below: u64,
}

impl ReplayState {
    fn apply_action(&mut self, action: Action) -> Result<()> {
        if let Some(remove) = action.remove {
            let path = data_path(&remove.path)?;
            let id = |vector: &Option<Descriptor>| vector.as_ref().map(Descriptor::unique_id);
            // A file is removed and added again when its vector changes, in any order.
            if self.live.get(&path).is_some_and(|add| id(&add.deletion_vector) == id(&remove.deletion_vector)) {
                self.live.remove(&path);
            }
        }
        if let Some(mut add) = action.add {
            let parsed = add.stats_parsed.take();
            add.stats = add.stats.or(parsed);
            if add.size.and_then(|size| u64::try_from(size).ok()).is_none_or(|size| size >= self.stats_below) {
                add.stats = None;
            }
            self.live.insert(data_path(&add.path)?, add);
        }
        self.protocol = action.protocol.or(self.protocol.take());
        self.metadata = action.meta_data.or(self.metadata.take());
        Ok(())
    }
}

impl Table {
    /// Lists the log of the table that `store` is rooted at.
    ///
    /// # Errors
    /// If the store fails.
    pub fn open(store: Arc<dyn Store>) -> Result<Self> {
        Ok(Self { files: LogFiles::list(store.as_ref())?, store })
    }

    fn root_location(&self) -> String {
        self.store.location().to_string()
    }

    /// Reads a version, by default the newest.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if there is no such version or the table has features that are not
    /// supported, [`Kind::Input`](crate::error::Kind::Input) if the log is damaged; if the store fails.
    pub fn read_snapshot(&self, as_of: Option<AsOf>) -> Result<Snapshot> {
        let version = self.version_of(as_of)?;
        let (info, state) = self.read_state(version, ReplayState::default(), checkpoint::READ)?;
        let files = state.live.into_iter().map(|(path, add)| (path, DataFile::new(&info, add))).collect();
        Ok(Snapshot { info, files })
    }

    /// Returns the number of a version, by default of the newest.
    fn version_of(&self, as_of: Option<AsOf>) -> Result<u64> {
        let newest = self.files.newest_version().ok_or_else(|| {
            Error::input("expected the log of a Delta table, found no version in it").at_location(self.root_location())
        })?;
        match as_of {
            None => Ok(newest),
            Some(AsOf::Version(version)) if version <= newest => Ok(version),
            Some(AsOf::Version(version)) => {
                Err(Error::usage(format!("expected at most the newest version v{newest}, found v{version}"))
                    .at_location(self.root_location()))
            }
            Some(AsOf::Instant(instant)) => self.version_at(instant, newest),
        }
    }

    /// Returns the state at a version, and what its files share.
    fn read_state(&self, version: u64, empty: ReplayState, columns: Columns) -> Result<(Arc<TableInfo>, ReplayState)> {
        let state = self.replay_log(version, empty, columns)?;
        let (Some(protocol), Some(metadata)) = (&state.protocol, &state.metadata) else {
            return Err(Error::input(
                "expected the log of a Delta table to state protocol and schema, found neither or one",
            )
            .at_location(self.root_location())
            .with_hint("the log is damaged: restore it from a copy"));
        };
        let at = |e: Error| if e.place().source.is_some() { e } else { e.at_location(self.root_location()) };
        let mapping = protocol::check_features(protocol, metadata).map_err(at)?;
        let schema = TableSchema::read(metadata, mapping).map_err(at)?;
        let (store, id) = (Arc::clone(&self.store), metadata.id.clone());
        Ok((Arc::new(TableInfo { store, schema, id, version }), state))
    }

    fn replay_log(&self, version: u64, mut state: ReplayState, columns: Columns) -> Result<ReplayState> {
        let checkpoint = self.files.newest_checkpoint(version);
        let first = checkpoint.map_or(0, |(version, _)| version + 1);
        if let Some(missing) = self.files.missing_commit(first..=version) {
            return Err(self.missing_commit_error(missing, version));
        }
        if let Some((_, files)) = checkpoint {
            checkpoint::each_checkpoint_action(&self.store, files, columns, &mut |action| state.apply_action(action))?;
        }
        self.files.each_action(self.store.as_ref(), first..=version, &mut |action| state.apply_action(action))?;
        Ok(state)
    }

    fn missing_commit_error(&self, missing: u64, wanted: u64) -> Error {
        let place = self.store.location().join(&commit_path(missing)).to_string();
        match self.files.oldest_version() {
            Some(oldest) if wanted < oldest => Error::usage(format!(
                "expected a version that the log still has, found v{wanted}; the oldest is v{oldest}"
            ))
            .at_location(place),
            _ => Error::input(format!("expected version {missing} in the log of a Delta table, found none"))
                .at_location(place)
                .with_hint(
                    "the log is damaged, or was copied in part: restore the file, or copy the whole table again",
                ),
        }
    }

    /// Returns the newest version at an instant.
    fn version_at(&self, instant: Timestamp, newest: u64) -> Result<u64> {
        let metadata = self.replay_log(newest, ReplayState::default(), checkpoint::READ)?.metadata;
        let property = |key| metadata.as_ref().and_then(|metadata| metadata.property(key));
        let stated_from = match property("delta.enableInCommitTimestamps") {
            Some("true") => property("delta.inCommitTimestampEnablementVersion").map_or(0, |v| v.parse().unwrap_or(0)),
            _ => u64::MAX,
        };
        let wanted = instant.as_millisecond();
        let mut found = None;
        let mut last = i64::MIN;
        for (version, modified) in self.files.commit_times() {
            let stated = if version >= stated_from { self.stated_time(version)? } else { None };
            // Times of files may run backwards; those of versions do not.
            last = stated.unwrap_or(modified.max(last.saturating_add(1)));
            if last > wanted {
                break;
            }
            found = Some(version);
        }
        found.ok_or_else(|| {
            let oldest = Timestamp::from_millisecond(last).unwrap_or_default();
            Error::usage(format!(
                "expected an instant of which the log has a version, found {instant}; the oldest is of {oldest}"
            ))
            .at_location(self.root_location())
        })
    }

    /// Returns the time that a commit states, in milliseconds since 1970.
    fn stated_time(&self, version: u64) -> Result<Option<i64>> {
        let mut time = None;
        each_action(self.store.as_ref(), &commit_path(version), &mut |action| {
            time = action.commit_info.and_then(|info| info.in_commit_timestamp).or(time);
            Ok(())
        })?;
        Ok(time)
    }

    /// Returns what has happened since a version, up to a snapshot; `None` if the log no longer tells.
    ///
    /// A file added with `dataChange` has new rows, even if it was merged into others later. A file removed with
    /// `dataChange` had rows of the old version, unless it was added in between.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if the log is damaged; if the store fails.
    pub fn changes_since(&self, since: u64, snapshot: &Snapshot) -> Result<Option<Changes>> {
        let mut changes = Changes::default();
        for version in since + 1..=snapshot.version() {
            if self.files.missing_commit(version..=version).is_some() {
                return Ok(None);
            }
            let (mut adds, mut removes) = (BTreeMap::new(), Vec::new());
            each_action(self.store.as_ref(), &commit_path(version), &mut |action| {
                if let Some(add) = action.add.filter(|add| add.data_change) {
                    adds.insert(data_path(&add.path)?, add);
                }
                if let Some(remove) = action.remove.filter(|remove| remove.data_change) {
                    removes.push(data_path(&remove.path)?);
                }
                Ok(())
            })?;
            for path in removes {
                // With another vector, the file is still there.
                let again = adds.remove(&path);
                match (changes.added.remove(&path), again) {
                    (Some(_), Some(add)) => {
                        changes.added.insert(path, DataFile::new(&snapshot.info, add));
                    }
                    (Some(_), None) => {}
                    (None, _) => _ = changes.removed_in.get_or_insert(version),
                }
            }
            changes.added.extend(adds.into_iter().map(|(path, add)| (path, DataFile::new(&snapshot.info, add))));
        }
        Ok(Some(changes))
    }
}

impl DataFile {
    fn new(info: &Arc<TableInfo>, add: Add) -> Self {
        let Add { partition_values, deletion_vector, .. } = add;
        Self { info: Arc::clone(info), partition_values, deletion_vector }
    }

    fn from_add(info: &Arc<TableInfo>, add: &Add) -> Self {
        let (partition_values, deletion_vector) = (add.partition_values.clone(), add.deletion_vector.clone());
        Self { info: Arc::clone(info), partition_values, deletion_vector }
    }
}

impl Snapshot {
    /// Returns the version.
    pub fn version(&self) -> u64 {
        self.info.version
    }

    /// Returns the table's id.
    pub fn table_id(&self) -> &str {
        &self.info.id
    }

    /// Returns the live files by path.
    pub fn files(&self) -> &BTreeMap<String, DataFile> {
        &self.files
    }
}
