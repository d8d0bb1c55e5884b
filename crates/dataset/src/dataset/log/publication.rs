//! Publication of a run's objects before its commit, and their withdrawal.
//!
//! Everything that a run publishes has the run's [tag](TransactionId::short_tag) in its path and is recorded before it
//! is published: an *intent* lists the paths. So the writer of each object without a version is known, and that run can
//! be abandoned before anything is deleted (see `retention::vacuum`).
//!
//! ```text
//! lock     _shardify/locks/<tag>              held while the run is active, if the store has locks
//! intent   _shardify/intents/<txn>-<n>.json   written before objects get their names, and lists them
//! names    <tag>/..., _shardify/.../<tag>...  created only if absent
//! commit   entry of the log                   then the intents and the lock are deleted
//! ```
//!
//! A run that ends without a commit deletes what it published when its [`Publication`] is dropped. A killed run leaves
//! its intents for `vacuum`. If the outcome of the commit is unknown, everything stays. A task of a plan hands what it
//! published over to the run that commits the plan.

use std::{collections::HashSet, thread, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    dataset::{
        log::{
            commit::commit_transaction,
            operation::Operation,
            shards::{NewShard, record_beside},
            snapshot::{Dataset, Snapshot},
            transaction::Transaction,
        },
        table::{closed, paths::system_path},
    },
    error::{Kind, Result},
    id::{TransactionId, Version, Writer},
    storage::{Lock, Staged, Store},
};

/// Attempts to take the lock of a run: `vacuum` holds it for a moment to check whether the run is active.
const LOCK_ATTEMPTS: usize = 100;
/// Time between the attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Objects that a run is about to publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::dataset) struct Intent {
    /// The run.
    pub(in crate::dataset) transaction: TransactionId,
    /// What it does; for a plan, what its tasks do.
    pub(in crate::dataset) operation: Operation,
    /// The version that the run looked at when it started.
    pub(in crate::dataset) planned_on: Version,
    /// Paths that get names, relative to the dataset.
    pub(in crate::dataset) paths: Vec<String>,
}

impl Intent {
    /// Reads an intent; `None` if its run has ended meanwhile.
    ///
    /// # Errors
    /// [`Kind::Integrity`] if it is damaged; if the store fails.
    pub(in crate::dataset) fn read(store: &dyn Store, path: &str) -> Result<Option<Self>> {
        let Some(bytes) = store.get(path)? else { return Ok(None) };
        let intent = closed::decode_json(store, path, &bytes, "the intent of a run");
        intent.map(Some).map_err(|e| e.with_hint("or delete this file when no other command runs on this dataset"))
    }
}

/// Objects that a run has published but not committed yet.
#[derive(Debug)]
pub struct Publication<'a> {
    dataset: &'a Dataset,
    writer: Writer,
    operation: Operation,
    planned_on: Version,
    intents: Vec<String>,
    paths: Vec<String>,
    /// Whether the outcome of an attempt to commit is unknown.
    is_unknown: bool,
    /// Whether the run has ended: it has committed, or everything was withdrawn.
    ended: bool,
    /// Whether the store failed while publishing, so that it is unknown which objects are published.
    unsettled: bool,
    _lock: Lock,
}

impl<'a> Publication<'a> {
    /// Begins to write: takes the lock of the run, which shows other runs that it is active.
    ///
    /// # Errors
    /// When the store fails.
    pub fn begin(dataset: &'a Dataset, id: &TransactionId, operation: Operation, planned_on: Version) -> Result<Self> {
        Self::begin_as(dataset, id.clone().into(), operation, planned_on)
    }

    /// Like [`begin`](Self::begin), for one of several writers of a run.
    ///
    /// # Errors
    /// When the store fails.
    pub fn begin_as(dataset: &'a Dataset, writer: Writer, operation: Operation, planned_on: Version) -> Result<Self> {
        let lock = lock_run(dataset, &writer)?;
        Ok(Self {
            dataset,
            writer,
            operation,
            planned_on,
            intents: Vec::new(),
            paths: Vec::new(),
            is_unknown: false,
            ended: false,
            unsettled: false,
            _lock: lock,
        })
    }

    /// Records the objects in an intent, then publishes them.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if an object of such a name exists; if the store fails.
    pub fn publish(&mut self, staged: Vec<Staged>) -> Result<()> {
        if staged.is_empty() {
            return Ok(());
        }
        let intent = Intent {
            transaction: self.writer.run.clone(),
            operation: self.operation,
            planned_on: self.planned_on,
            paths: staged.iter().map(|staged| staged.path.clone()).collect(),
        };
        let path = system_path(&format!("intents/{}-{}.json", self.writer, self.intents.len()));
        let text = closed::encode_json(&intent, "an intent")?;
        self.dataset.store().put(&path, text.into())?;
        self.intents.push(path);
        let before = self.paths.len();
        self.paths.extend(intent.paths);
        let published = self.dataset.store().publish_staged(staged);
        if let Err(error) = &published {
            // The store has withdrawn what it published. Objects that exist after a conflict have another owner.
            self.paths.truncate(before);
            self.unsettled |= error.kind() != Kind::Conflict;
        }
        published
    }

    /// Publishes shards with all that was staged for them, and lets them name what lies beside them: their sidecars,
    /// indexes and numbers, with their seals.
    ///
    /// # Errors
    /// Those of [`publish`](Self::publish).
    pub fn publish_shards<'s>(
        &mut self,
        shards: impl Iterator<Item = &'s mut NewShard>,
        staged: Vec<Staged>,
    ) -> Result<()> {
        record_beside(shards, &staged);
        self.publish(staged)
    }

    /// Deletes some published objects, because they will not be committed.
    ///
    /// # Errors
    /// When the store fails.
    pub fn withdraw_objects(&mut self, paths: &[String]) -> Result<()> {
        let withdrawn: HashSet<&str> = paths.iter().map(String::as_str).collect();
        let (gone, kept): (Vec<String>, Vec<String>) =
            std::mem::take(&mut self.paths).into_iter().partition(|path| withdrawn.contains(path.as_str()));
        self.paths = kept;
        self.dataset.store().delete_all(&gone)
    }

    /// Returns the id of the run.
    pub fn run_id(&self) -> &TransactionId {
        &self.writer.run
    }

    /// Records that another run may commit what was published: `record` returns whether it did, or was not needed. If
    /// it fails, its outcome is unknown unless the error says that the objects are wrong.
    ///
    /// # Errors
    /// Those of `record`.
    pub fn hand_over_by(mut self, record: impl FnOnce() -> Result<bool>) -> Result<bool> {
        self.is_unknown = true;
        let recorded = record();
        match &recorded {
            Ok(true) => self.hand_over(),
            Ok(false) => self.is_unknown = false,
            Err(error) => self.is_unknown = error.kind() != Kind::Integrity,
        }
        recorded
    }

    /// Ends without a commit: another run commits or withdraws what was published. The intents stay until then.
    pub fn hand_over(mut self) {
        let _ = self.dataset.store().delete(&lock_path(&self.writer));
        self.ended = true;
    }

    /// Commits a transaction whose objects were published here.
    ///
    /// # Errors
    /// Like [`commit_transaction`].
    pub fn commit(mut self, transaction: &Transaction<'_>) -> Result<Snapshot> {
        let (dataset, planned_on) = (self.dataset, self.planned_on);
        self.attempt_commit(|| commit_transaction(dataset, transaction, planned_on))
    }

    /// Makes an attempt to commit the published objects. After a conflict, it can be repeated.
    ///
    /// # Errors
    /// Those of the attempt.
    pub fn attempt_commit<T>(&mut self, attempt: impl FnOnce() -> Result<T>) -> Result<T> {
        // Until the attempt returns, or if it panics, its outcome is unknown.
        self.is_unknown = true;
        let outcome = attempt();
        match &outcome {
            Ok(_) => self.end_run(),
            Err(error) => self.is_unknown = error.kind() != Kind::Conflict,
        }
        outcome
    }

    /// Whether the outcome of an attempt to commit is unknown.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Deletes the intents and the lock, which are no longer needed. `vacuum` deletes them if this fails.
    fn end_run(&mut self) {
        let store = self.dataset.store();
        let mut done = if self.unsettled { Vec::new() } else { std::mem::take(&mut self.intents) };
        done.push(lock_path(&self.writer));
        let _ = store.delete_all(&done);
        self.ended = true;
    }
}

impl Drop for Publication<'_> {
    /// Withdraws uncommitted objects. Errors are ignored: the user needs the error that led here.
    fn drop(&mut self) {
        if self.is_unknown || self.ended {
            return;
        }
        let store = self.dataset.store();
        if store.delete_all(&std::mem::take(&mut self.paths)).is_ok() {
            self.end_run();
        }
    }
}

/// Returns the path of a run's lock file, if the store is a local folder.
fn lock_path(writer: &Writer) -> String {
    system_path(&format!("locks/{}", writer.shard_folder()))
}

fn lock_run(dataset: &Dataset, writer: &Writer) -> Result<Lock> {
    let mut attempt = 1;
    loop {
        match dataset.store().acquire_lock(&writer.shard_folder()) {
            Err(error) if error.kind() == Kind::Conflict && attempt < LOCK_ATTEMPTS => thread::sleep(LOCK_PAUSE),
            taken => return taken,
        }
        attempt += 1;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::{io::Write as _, sync::Arc};

    use super::*;
    use crate::{error::Error, storage::RemoteStore};

    fn staged(store: &dyn Store, path: &str) -> Staged {
        let mut sink = store.create_sink(path).unwrap();
        sink.write_all(path.as_bytes()).unwrap();
        sink.finish().unwrap()
    }

    fn paths(store: &dyn Store) -> Vec<String> {
        let mut paths: Vec<String> = store.list_folder("").unwrap().into_iter().map(|facts| facts.path).collect();
        paths.sort();
        paths
    }

    #[test]
    fn published_objects_are_recorded_until_the_run_ends() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        let store = dataset.store().as_ref();
        let id = TransactionId::fresh();
        let (one, two) = (format!("{}/000000.tar", id.short_tag()), format!("{}/000001.tar", id.short_tag()));
        let mut publication = Publication::begin(&dataset, &id, Operation::Convert, Version(3)).unwrap();
        publication.publish(vec![staged(store, &one), staged(store, &two)]).unwrap();
        let intent = Intent::read(store, &system_path(&format!("intents/{id}-0.json"))).unwrap().unwrap();
        assert_eq!((intent.planned_on, intent.paths), (Version(3), vec![one.clone(), two.clone()]));
        publication.withdraw_objects(&[one.clone(), "of/another".into()]).unwrap();
        assert!(!paths(store).contains(&one) && paths(store).contains(&two));
        let lost: Result<()> = publication.attempt_commit(|| Err(Error::conflict("another was faster")));
        assert_eq!(lost.unwrap_err().kind(), Kind::Conflict);
        drop(publication);
        assert!(paths(store).is_empty(), "{:?}", paths(store));
    }

    #[test]
    fn nothing_is_withdrawn_while_the_commit_is_uncertain() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        let store = dataset.store().as_ref();
        let id = TransactionId::fresh();
        let path = format!("{}/000000.tar", id.short_tag());
        let mut publication = Publication::begin(&dataset, &id, Operation::Convert, Version(0)).unwrap();
        publication.publish(vec![staged(store, &path)]).unwrap();
        assert!(publication.attempt_commit::<()>(|| Err(Error::storage("no answer"))).is_err());
        drop(publication);
        let mut left = [path, system_path(&format!("intents/{id}-0.json"))];
        left.sort();
        assert_eq!(paths(store), left);
    }

    #[test]
    fn an_object_of_somebody_else_is_neither_overwritten_nor_deleted() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        let store = dataset.store().as_ref();
        let id = TransactionId::fresh();
        let path = format!("{}/000000.tar", id.short_tag());
        store.put(&path, "mine".into()).unwrap();
        let mut publication = Publication::begin(&dataset, &id, Operation::Convert, Version(0)).unwrap();
        let error = publication.publish(vec![staged(store, &path)]).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        drop(publication);
        assert_eq!(store.get(&path).unwrap().unwrap(), "mine");
        assert_eq!(paths(store), [path]);
    }
}
