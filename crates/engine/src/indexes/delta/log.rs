//! The Delta log of a dataset as it is stored: replays it, and says whether another program has written to it.
//!
//! Delta version `n` mirrors version `n + 1` of the dataset, and the action `txn` of each commit says so. A commit
//! without it is of another program: the log is read up to there and never written again. Checkpoints hold the state at
//! a version, so a replay reads the newest of them and the commits after it.

use std::{collections::BTreeMap, slice, sync::Arc};

use rayon::prelude::*;

use super::schema::LoggedSchema;
use crate::{
    delta::{
        actions::{Action, Add, Metadata, Protocol, Remove, Txn, data_path},
        checkpoint,
        log::{FOLDER, LogFiles, commit_path, each_action},
    },
    error::{Error, Kind, Result},
    id::Version,
    storage::{RESTORE_HINT, Store},
};

/// Names the newest checkpoint.
pub(super) const LAST_CHECKPOINT: &str = "_delta_log/_last_checkpoint";

/// Attempts to read a log of which another process deletes old files.
const ATTEMPTS: usize = 5;

/// Receives the actions of a file.
type Visit<'a> = &'a mut dyn FnMut(Action) -> Result<()>;

/// Returns the Delta version that mirrors a version of the dataset.
pub(super) fn delta_version(version: Version) -> u64 {
    version.0.saturating_sub(1)
}

/// State of a Delta table at a version.
#[derive(Debug, Clone, Default)]
pub(super) struct TableState {
    /// The Delta version; `None` before the first commit.
    pub(super) version: Option<u64>,
    /// The protocol.
    pub(super) protocol: Option<Protocol>,
    /// The columns.
    pub(super) table: Option<Metadata>,
    /// Live files by path.
    pub(super) adds: BTreeMap<String, Add>,
    /// Files that were removed, by path.
    pub(super) removes: BTreeMap<String, Remove>,
    /// The commit of another program that ends the mirror, if there is one.
    pub(super) foreign: Option<String>,
}

impl TableState {
    /// Returns the columns; a table without a commit has none.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the log has no such schema.
    pub(super) fn read_schema(&self) -> Result<LoggedSchema> {
        let text = self.table.as_ref().and_then(|table| table.schema_string.as_deref());
        text.map_or_else(|| Ok(LoggedSchema::default()), serde_json::from_str)
            .map_err(|e| Error::integrity("expected the schema of a Delta table, found something else").with_cause(e))
    }

    /// Applies the actions of a commit or checkpoint.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for a path that leads out of the table.
    pub(super) fn apply_actions(&mut self, actions: Vec<Action>) -> Result<()> {
        for action in actions {
            if let Some(protocol) = action.protocol {
                self.protocol = Some(protocol);
            }
            if let Some(table) = action.meta_data {
                self.table = Some(table);
            }
            if let Some(add) = action.add {
                let path = data_path(&add.path)?;
                self.removes.remove(&path);
                self.adds.insert(path, add);
            }
            if let Some(remove) = action.remove {
                let path = data_path(&remove.path)?;
                self.adds.remove(&path);
                self.removes.insert(path, remove);
            }
        }
        Ok(())
    }
}

/// The log of one dataset.
#[derive(Debug)]
pub(super) struct Log<'a> {
    store: &'a Arc<dyn Store>,
    app: String,
}

impl<'a> Log<'a> {
    /// Returns the log in a store whose commits have the application id `app`.
    pub(super) fn new(store: &'a Arc<dyn Store>, app: String) -> Self {
        Self { store, app }
    }

    /// Returns the application id.
    pub(super) fn app_id(&self) -> &str {
        &self.app
    }

    /// Returns the state at a Delta version, or the newest one.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if a commit or checkpoint is missing or damaged; fails if the
    /// store fails.
    pub(super) fn read(&self, until: Option<u64>) -> Result<TableState> {
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
                .at_location(self.object_location(FOLDER))
                .with_hint("run the command again")
        })
    }

    /// Returns `None` if a file vanished.
    fn read_once(&self, until: Option<u64>) -> Result<Option<TableState>> {
        let files = LogFiles::list(self.store.as_ref())?;
        let mut state = TableState::default();
        let Some(newest) = files.newest_version().map(|newest| until.map_or(newest, |until| newest.min(until))) else {
            return Ok(Some(state));
        };
        let mut first = 0;
        if let Some((version, paths)) = files.newest_checkpoint(newest) {
            let read =
                |visit: Visit<'_>| checkpoint::each_checkpoint_action(self.store, paths, checkpoint::WRITTEN, visit);
            let Some(actions) = self.read_actions(paths, read)? else { return Ok(None) };
            self.advance_state(&mut state, version, actions, &paths[0])?;
            first = version + 1;
        }
        if let Some(missing) = files.missing_commit(first..=newest) {
            return Err(Error::integrity("expected every commit of the Delta log, found that one is missing")
                .at_location(self.object_location(&commit_path(missing)))
                .with_hint(RESTORE_HINT)
                .with_hint(rewrite_hint()));
        }
        let read = |version: u64| {
            let path = commit_path(version);
            self.read_actions(slice::from_ref(&path), |visit| each_action(self.store.as_ref(), &path, visit))
        };
        let commits: Vec<_> = (first..=newest).into_par_iter().map(read).collect::<Result<_>>()?;
        for (version, actions) in (first..).zip(commits) {
            if state.foreign.is_some() {
                break;
            }
            let Some(actions) = actions else { return Ok(None) };
            self.advance_state(&mut state, version, actions, &commit_path(version))?;
        }
        Ok(Some(state))
    }

    /// Reads the actions of a commit or checkpoint; `None` if one of its files vanished.
    fn read_actions(
        &self,
        paths: &[String],
        read: impl FnOnce(Visit<'_>) -> Result<()>,
    ) -> Result<Option<Vec<Action>>> {
        let mut out = Vec::new();
        let Err(error) = read(&mut |action| {
            out.push(action);
            Ok(())
        }) else {
            return Ok(Some(out));
        };
        for path in paths {
            if self.store.head(path)?.is_none() {
                return Ok(None);
            }
        }
        Err(damaged_error(error, self.object_location(&paths[0])))
    }

    /// Applies a commit or checkpoint, unless it is of another program.
    fn advance_state(&self, state: &mut TableState, version: u64, actions: Vec<Action>, path: &str) -> Result<()> {
        let is_ours = |txn: &Txn| txn.app_id == self.app && u64::try_from(txn.version) == Ok(version + 1);
        if actions.iter().filter_map(|action| action.txn.as_ref()).any(is_ours) {
            state.apply_actions(actions).map_err(|e| damaged_error(e, self.object_location(path)))?;
            state.version = Some(version);
        } else {
            state.foreign = Some(path.to_owned());
        }
        Ok(())
    }

    fn object_location(&self, path: &str) -> String {
        self.store.location().join(path).to_string()
    }
}

/// Returns the error for a log that cannot be read: unlike that of a source, it is a part of the dataset.
fn damaged_error(error: Error, place: String) -> Error {
    match error.kind() {
        Kind::Input => Error::integrity("expected the Delta log of this dataset, found a damaged file")
            .at_location(place)
            .with_hint(RESTORE_HINT)
            .with_hint(rewrite_hint())
            .with_cause(error),
        _ => error,
    }
}

fn rewrite_hint() -> String {
    format!("without `{FOLDER}` the next `shardify convert` writes the log anew")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{delta::actions::encode_commit, storage::RemoteStore};

    fn add(path: &str) -> Action {
        Action { add: Some(Add::new(path, 1, 0)), ..Action::default() }
    }

    fn txn(app: &str, version: i64) -> Action {
        let txn = Txn { app_id: app.to_owned(), version, last_updated: None };
        Action { txn: Some(txn), ..Action::default() }
    }

    fn put(store: &Arc<dyn Store>, version: u64, actions: &[Action]) {
        store.put(&commit_path(version), encode_commit(actions).unwrap().into()).unwrap();
    }

    #[test]
    fn a_log_is_read_up_to_the_commit_of_another_program() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
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
}
