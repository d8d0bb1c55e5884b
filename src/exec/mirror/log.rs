//! The Delta log of a dataset as it is stored: replays it, and says whether another program has written to it.
//!
//! Delta version `n` mirrors version `n + 1` of the dataset, and the action `txn` of each commit says so. A commit
//! without it is of another program: the log is read up to there and never written again. Checkpoints hold the state at
//! a version, so a replay reads the newest of them and the commits after it.

use std::{collections::BTreeMap, sync::Arc};

use rayon::prelude::*;

use super::{
    actions::{Action, Add, MetaData, Protocol, Remove, Txn, decode},
    checkpoint,
    schema::TableSchema,
};
use crate::{
    error::{Error, Result},
    id::Version,
    storage::{ObjectFacts, RESTORE_HINT, Store},
};

/// Folder of the log in a dataset.
pub const FOLDER: &str = "_delta_log";

/// Names the newest checkpoint.
pub(super) const LAST_CHECKPOINT: &str = "_delta_log/_last_checkpoint";

/// Attempts to read a log of which another process deletes old files.
const ATTEMPTS: usize = 5;

/// Returns the path of a commit.
pub(super) fn commit_path(version: u64) -> String {
    format!("{FOLDER}/{version:020}.json")
}

/// Returns the path of a checkpoint.
pub(super) fn checkpoint_path(version: u64) -> String {
    format!("{FOLDER}/{version:020}.checkpoint.parquet")
}

/// Returns the Delta version that mirrors a version of the dataset.
pub(super) fn delta_version(version: Version) -> u64 {
    version.0.saturating_sub(1)
}

/// State of a Delta table at a version.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// The Delta version; `None` before the first commit.
    pub(super) version: Option<u64>,
    /// The protocol.
    pub(super) protocol: Option<Protocol>,
    /// The columns.
    pub(super) table: Option<MetaData>,
    /// Live files by path.
    pub(super) adds: BTreeMap<String, Add>,
    /// Files that were removed, by path.
    pub(super) removes: BTreeMap<String, Remove>,
    /// The commit of another program that ends the mirror, if there is one.
    pub(super) foreign: Option<String>,
}

impl State {
    /// Returns the columns; a table without a commit has none.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the log has no such schema.
    pub(super) fn schema(&self) -> Result<TableSchema> {
        self.table.as_ref().map_or_else(|| Ok(TableSchema::default()), MetaData::schema)
    }

    /// Applies the actions of a commit or checkpoint.
    pub(super) fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Some(protocol) = action.protocol {
                self.protocol = Some(protocol);
            }
            if let Some(table) = action.meta_data {
                self.table = Some(table);
            }
            if let Some(add) = action.add {
                self.removes.remove(&add.path);
                self.adds.insert(add.path.clone(), add);
            }
            if let Some(remove) = action.remove {
                self.adds.remove(&remove.path);
                self.removes.insert(remove.path.clone(), remove);
            }
        }
    }
}

/// The log of one dataset.
#[derive(Debug)]
pub(super) struct Log<'a> {
    store: &'a dyn Store,
    app: String,
}

impl<'a> Log<'a> {
    /// Returns the log in a store whose commits have the application id `app`.
    pub(super) fn new(store: &'a dyn Store, app: String) -> Self {
        Self { store, app }
    }

    /// Returns the application id.
    pub(super) fn app(&self) -> &str {
        &self.app
    }

    /// Returns the state at a Delta version, or the newest one.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if a commit or checkpoint is missing or damaged; fails if the
    /// store fails.
    pub(super) fn read(&self, until: Option<u64>) -> Result<State> {
        let mut result = self.read_once(until);
        for _ in 1..ATTEMPTS {
            match result {
                Ok(Some(state)) => return Ok(state),
                Err(e) => return Err(e),
                // Another process has deleted a listed file, after it wrote a newer checkpoint.
                Ok(None) => result = self.read_once(until),
            }
        }
        result?.ok_or_else(|| {
            Error::conflict("files of the Delta log keep vanishing while it is read")
                .at(self.place(FOLDER))
                .hint("run the command again")
        })
    }

    /// Returns `None` if a file vanished.
    fn read_once(&self, until: Option<u64>) -> Result<Option<State>> {
        let files = Files::of(&self.store.list(FOLDER)?, until);
        let mut state = State::default();
        if let Some(version) = files.checkpoint {
            let path = checkpoint_path(version);
            let Some(bytes) = self.store.get(&path)? else { return Ok(None) };
            let actions = checkpoint::decode(bytes, &self.place(&path))?;
            self.advance(&mut state, version, actions, &path);
        }
        let first = files.checkpoint.map_or(0, |version| version + 1);
        let gap = files.commits.iter().zip(first..).find(|(found, expected)| **found != *expected);
        if let Some((_, missing)) = gap {
            return Err(Error::integrity("expected every commit of the Delta log, found that one is missing")
                .at(self.place(&commit_path(missing)))
                .hint(RESTORE_HINT)
                .hint(format!("without `{FOLDER}` the next `shardify convert` writes the log anew")));
        }
        let read = |version: &u64| self.store.get(&commit_path(*version));
        let commits: Vec<_> = files.commits.par_iter().map(read).collect::<Result<_>>()?;
        for (version, bytes) in files.commits.into_iter().zip(commits) {
            if state.foreign.is_some() {
                break;
            }
            let path = commit_path(version);
            let Some(bytes) = bytes else { return Ok(None) };
            let actions = decode(&bytes).map_err(|e| e.at(self.place(&path)).hint(RESTORE_HINT))?;
            self.advance(&mut state, version, actions, &path);
        }
        Ok(Some(state))
    }

    /// Applies a commit or checkpoint, unless it is of another program.
    fn advance(&self, state: &mut State, version: u64, actions: Vec<Action>, path: &str) {
        let is_ours = |txn: &Txn| txn.app_id == self.app && u64::try_from(txn.version) == Ok(version + 1);
        if actions.iter().filter_map(|action| action.txn.as_ref()).any(is_ours) {
            state.apply(actions);
            state.version = Some(version);
        } else {
            state.foreign = Some(path.to_owned());
        }
    }

    fn place(&self, path: &str) -> String {
        self.store.location().join(path).to_string()
    }
}

/// The files of a log that a replay needs.
struct Files {
    checkpoint: Option<u64>,
    /// Commits after the checkpoint, in order.
    commits: Vec<u64>,
}

impl Files {
    fn of(listed: &[ObjectFacts], until: Option<u64>) -> Self {
        let named = |ending: &str| {
            let numbers = listed.iter().filter_map(|facts| version_of(&facts.path, ending));
            let mut numbers: Vec<u64> = numbers.filter(|version| until.is_none_or(|until| *version <= until)).collect();
            numbers.sort_unstable();
            numbers
        };
        let checkpoint = named("checkpoint.parquet").last().copied();
        let commits = named("json").into_iter().filter(|version| checkpoint.is_none_or(|first| *version > first));
        Self { checkpoint, commits: commits.collect() }
    }
}

/// Returns the version in the name of a file of the log, if it has this ending.
fn version_of(path: &str, ending: &str) -> Option<u64> {
    let name = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
    let (number, rest) = name.split_once('.')?;
    (number.len() == 20 && rest == ending).then(|| number.parse().ok()).flatten()
}

/// Returns the files of a log whose names begin with a version before `first`.
pub(super) fn older_files(listed: &[ObjectFacts], first: u64) -> Vec<String> {
    let older = |path: &str| {
        let name = path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
        let number = name.get(..20).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        number.and_then(|number| number.parse::<u64>().ok()).is_some_and(|version| version < first)
    };
    listed.iter().map(|facts| &facts.path).filter(|path| older(path)).cloned().collect()
}

/// Returns whether there is a log in a store.
///
/// # Errors
/// When the store fails.
pub(super) fn exists(store: &Arc<dyn Store>) -> Result<bool> {
    Ok(store.first(FOLDER, &|path| version_of(path, "json").is_some())?.is_some())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{exec::mirror::actions::encode, storage::RemoteStore};

    fn add(path: &str) -> Action {
        let add = Add {
            path: path.to_owned(),
            partition_values: BTreeMap::new(),
            size: 1,
            modification_time: 0,
            data_change: true,
            stats: Some("{\"numRecords\":4}".to_owned()),
        };
        Action { add: Some(add), ..Action::default() }
    }

    fn txn(app: &str, version: i64) -> Action {
        let txn = Txn { app_id: app.to_owned(), version, last_updated: None };
        Action { txn: Some(txn), ..Action::default() }
    }

    fn put(store: &RemoteStore, version: u64, actions: &[Action]) {
        store.put(&commit_path(version), encode(actions).unwrap().into()).unwrap();
    }

    #[test]
    fn a_log_is_read_up_to_the_commit_of_another_program() {
        let store = RemoteStore::memory().unwrap();
        let log = Log::new(&store, "shardify-1".to_owned());
        assert_eq!(log.read(None).unwrap().version, None);
        put(&store, 0, &[txn("shardify-1", 1), add("a")]);
        put(&store, 1, &[txn("shardify-1", 2), add("b")]);
        assert_eq!(log.read(None).unwrap().adds.len(), 2);
        assert_eq!(log.read(Some(0)).unwrap().adds.keys().collect::<Vec<_>>(), ["a"]);
        for other in [txn("spark", 3), txn("shardify-1", 7), add("c")] {
            put(&store, 2, &[other]);
            let state = log.read(None).unwrap();
            assert_eq!((state.version, state.foreign), (Some(1), Some(commit_path(2))));
        }
        store.delete(&commit_path(1)).unwrap();
        assert!(log.read(None).unwrap_err().message().contains("one is missing"));
    }

    #[test]
    fn older_files_are_known_by_their_names() {
        let facts = |path: &str| ObjectFacts {
            path: format!("{FOLDER}/{path}"),
            bytes: 0,
            modified: jiff::Timestamp::UNIX_EPOCH,
            etag: None,
        };
        let names = [
            "00000000000000000003.json",
            "00000000000000000003.crc",
            "00000000000000000010.checkpoint.parquet",
            "_last_checkpoint",
            "00000000000000000011.json",
            "3.json",
        ];
        let listed: Vec<ObjectFacts> = names.iter().map(|name| facts(name)).collect();
        assert_eq!(older_files(&listed, 11), [0, 1, 2].map(|i| format!("{FOLDER}/{}", names[i])));
    }
}
