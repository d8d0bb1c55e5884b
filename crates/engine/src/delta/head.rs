//! The end of a log that other programs write to as well: commits are created only if absent, and those of programs
//! that were faster are read.
//!
//! ```text
//! known version | commits of winners ... | the next commit
//! ```

use bytes::Bytes;
use serde_json::Value;

use super::{
    LiveTable,
    actions::{Action, CommitInfo, encode_commit},
    log::{LogFiles, commit_path, each_action},
};
use crate::{
    error::{Error, Result},
    storage::{NewEntry, Store},
};

/// Maximum times that other programs may write the next commit first.
pub(super) const RACES: usize = 100;

/// The newest known version of a table.
pub(super) struct TableHead<'a> {
    pub(super) table: &'a LiveTable,
    pub(super) version: u64,
    /// The time that its commit states.
    stated_time: Option<i64>,
    /// What to do about a conflict.
    advice: &'static str,
}

/// What an operation says of itself in its commit.
pub(super) struct Remarks<'a> {
    /// The operation, by Delta's name.
    pub(super) operation: &'a str,
    pub(super) parameters: Value,
    pub(super) metrics: Value,
    pub(super) isolation: &'a str,
    /// Identifies the commit.
    pub(super) id: &'a str,
}

impl<'a> TableHead<'a> {
    pub(super) fn new(table: &'a LiveTable, advice: &'static str) -> Self {
        Self { table, version: table.version(), stated_time: table.stated_time, advice }
    }

    /// Returns the error for a run that other programs have overtaken.
    pub(super) fn conflict_error(&self, message: &str) -> Error {
        Error::conflict(message).with_hint(self.advice)
    }

    fn store(&self) -> &dyn Store {
        self.table.store().as_ref()
    }

    /// Returns the place of the next commit.
    pub(super) fn next_commit_location(&self) -> String {
        self.store().location().join(&commit_path(self.version + 1)).to_string()
    }

    /// Returns the first action of the next commit, and its time; `now` is in milliseconds since 1970.
    pub(super) fn commit_info(&self, remarks: Remarks<'_>, now: i64) -> (Action, i64) {
        let in_commit_timestamp = self.stated_time.map(|last| now.max(last.saturating_add(1)));
        let now = in_commit_timestamp.unwrap_or(now);
        let info = CommitInfo {
            in_commit_timestamp,
            timestamp: now,
            operation: remarks.operation.to_owned(),
            operation_parameters: remarks.parameters,
            engine_info: concat!("shardify/", env!("CARGO_PKG_VERSION")).to_owned(),
            read_version: Some(self.version),
            isolation_level: Some(remarks.isolation.to_owned()),
            is_blind_append: Some(false),
            operation_metrics: Some(remarks.metrics),
            txn_id: Some(remarks.id.to_owned()),
        };
        (Action { commit_info: Some(info), ..Action::default() }, now)
    }

    /// Creates the next commit; returns false if another program's exists.
    ///
    /// # Errors
    /// When the store fails; [`Error::effect`] says whether the commit may exist.
    pub(super) fn create_commit(&mut self, actions: &[Action]) -> Result<bool> {
        let version = self.version + 1;
        let created = create_commit_file(self.store(), version, encode_commit(actions)?.into())?;
        if created {
            self.version = version;
            let time = actions.first().and_then(|action| action.commit_info.as_ref()?.in_commit_timestamp);
            self.stated_time = time.or(self.stated_time);
        }
        Ok(created)
    }

    /// Reads the commits after the known version, which becomes the newest one; `at_least` is known to exist.
    ///
    /// # Errors
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) if one of them changes the schema, the properties or the
    /// protocol; those of `visit`; when the log is damaged, or the store fails.
    pub(super) fn read_winners(&mut self, at_least: u64, visit: &mut dyn FnMut(&Action) -> Result<()>) -> Result<()> {
        // A listing of some stores is older than what was just created.
        let newest = LogFiles::list(self.store())?.newest_version().unwrap_or_default().max(at_least);
        for version in self.version + 1..=newest {
            let path = commit_path(version);
            let mut changes = None;
            let mut stated_time = self.stated_time;
            each_action(self.store(), &path, &mut |action| {
                if action.protocol.is_some() {
                    changes = Some("its protocol");
                } else if action.meta_data.is_some() {
                    changes = Some("its schema or properties");
                }
                visit(&action)?;
                if let Some(time) = action.commit_info.and_then(|info| info.in_commit_timestamp) {
                    stated_time = stated_time.map(|known| known.max(time));
                }
                Ok(())
            })?;
            if let Some(what) = changes {
                let message = format!("another program changed the table meanwhile: {what}");
                return Err(self.conflict_error(&message).at_location(self.store().location().join(&path).to_string()));
            }
            (self.version, self.stated_time) = (version, stated_time);
        }
        Ok(())
    }
}

/// Creates a commit; returns false if another program's exists.
fn create_commit_file(store: &dyn Store, version: u64, bytes: Bytes) -> Result<bool> {
    let path = commit_path(version);
    let new = NewEntry {
        path: &path,
        version: &version,
        name: "commit",
        unsure: "nothing was deleted; check the disk, and whether the newest version of the table is there",
    };
    new.create(store, bytes.clone(), || Ok(store.get(&path)?.map(|found| found == bytes)))
}
