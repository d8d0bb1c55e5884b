//! What a run gives names to before it commits, and how it takes that back.
//!
//! Everything that a run publishes has the run's [tag](TransactionId::tag) in its path, and is on record before it gets
//! its name: an *intent* lists the paths. So whoever comes later knows of each object without a version who wrote it, and
//! can declare that run abandoned before anything is deleted (see [`vacuum`](super::vacuum)).
//!
//! ```text
//! lock     _shardify/locks/<tag>              held while the run is active, where the store has locks
//! intent   _shardify/intents/<txn>-<n>.json   {"transaction", "operation", "planned_on", "paths"}: before each publishing
//! names    <tag>/..., _shardify/.../<tag>...  created only if absent
//! commit   entry of the log                   then the intents and the lock go
//! ```
//!
//! A run that ends without a commit deletes what it published, when its [`Publication`] is dropped. A run that is killed
//! leaves its intents for `vacuum`. When nobody knows whether the commit took place, everything stays.

use std::{collections::HashSet, thread, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    dataset::{
        log::{
            commit::commit,
            snapshot::{Dataset, Snapshot},
            transaction::Transaction,
        },
        table::paths::system_path,
    },
    error::{Error, Kind, Result},
    id::{TransactionId, Version},
    storage::{Lock, Staged},
};

/// Times that the lock of a run is asked for: `vacuum` holds it for a moment to see whether the run is active.
const LOCK_ATTEMPTS: usize = 100;
/// Time between them.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What a run is about to publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::dataset) struct Intent {
    /// The run.
    pub(in crate::dataset) transaction: TransactionId,
    /// `convert`, `compact`, ...
    pub(in crate::dataset) operation: String,
    /// The version that the run looked at when it started.
    pub(in crate::dataset) planned_on: Version,
    /// Paths that get names, relative to the dataset.
    pub(in crate::dataset) paths: Vec<String>,
}

/// Objects that a run has given names to and not committed yet.
#[derive(Debug)]
pub struct Publication<'a> {
    dataset: &'a Dataset,
    id: TransactionId,
    operation: &'static str,
    planned_on: Version,
    intents: Vec<String>,
    paths: Vec<String>,
    /// Whether an attempt to commit ended in a way that nobody knows.
    is_unknown: bool,
    /// Whether the run has ended: it has committed, or all was taken back.
    ended: bool,
    /// Whether the store failed while it gave names, so that nobody knows which objects have theirs.
    unsettled: bool,
    _lock: Lock,
}

impl<'a> Publication<'a> {
    /// Starts to write: takes the lock of the run, by which others see that it is active.
    ///
    /// # Errors
    /// When the store fails.
    pub fn begin(
        dataset: &'a Dataset,
        id: &TransactionId,
        operation: &'static str,
        planned_on: Version,
    ) -> Result<Self> {
        let lock = lock(dataset, id)?;
        Ok(Self {
            dataset,
            id: id.clone(),
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

    /// Puts on record what is about to be published, then publishes it.
    ///
    /// # Errors
    /// [`Kind::Conflict`] when an object of such a name exists; when the store fails.
    pub fn publish(&mut self, staged: Vec<Staged>) -> Result<()> {
        if staged.is_empty() {
            return Ok(());
        }
        let intent = Intent {
            transaction: self.id.clone(),
            operation: self.operation.to_owned(),
            planned_on: self.planned_on,
            paths: staged.iter().map(|staged| staged.path.clone()).collect(),
        };
        let path = system_path(&format!("intents/{}-{}.json", self.id, self.intents.len()));
        let text = serde_json::to_vec(&intent).map_err(|e| Error::internal("encoding an intent failed").cause(e))?;
        self.dataset.store().put(&path, text.into())?;
        self.intents.push(path);
        let before = self.paths.len();
        self.paths.extend(intent.paths);
        let published = self.dataset.store().publish(staged);
        if let Err(error) = &published {
            // The store has taken back what got its name. What is there after a conflict has another owner.
            self.paths.truncate(before);
            self.unsettled |= error.kind() != Kind::Conflict;
        }
        published
    }

    /// Deletes some of what was published, because it will not be committed.
    ///
    /// # Errors
    /// When the store fails.
    pub fn withdraw(&mut self, paths: &[String]) -> Result<()> {
        let withdrawn: HashSet<&str> = paths.iter().map(String::as_str).collect();
        let (gone, kept): (Vec<String>, Vec<String>) =
            std::mem::take(&mut self.paths).into_iter().partition(|path| withdrawn.contains(path.as_str()));
        self.paths = kept;
        gone.iter().try_for_each(|path| self.dataset.store().delete(path))
    }

    /// The run.
    pub fn id(&self) -> &TransactionId {
        &self.id
    }

    /// Commits a transaction whose objects were published here.
    ///
    /// # Errors
    /// As [`commit`].
    pub fn commit(mut self, transaction: &Transaction<'_>) -> Result<Snapshot> {
        let (dataset, planned_on) = (self.dataset, self.planned_on);
        self.attempt(|| commit(dataset, transaction, planned_on))
    }

    /// Makes an attempt to commit what was published here. After a conflict another one may be made.
    ///
    /// # Errors
    /// Those of the attempt.
    pub fn attempt<T>(&mut self, attempt: impl FnOnce() -> Result<T>) -> Result<T> {
        // Until the attempt says how it ended, by a panic too, nobody knows.
        self.is_unknown = true;
        let outcome = attempt();
        match &outcome {
            Ok(_) => self.end(),
            Err(error) => self.is_unknown = error.kind() != Kind::Conflict,
        }
        outcome
    }

    /// Whether nobody knows how an attempt to commit ended.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The intents are of no use any more, and neither is the lock. What cannot be deleted is left to `vacuum`.
    fn end(&mut self) {
        let store = self.dataset.store();
        if !self.unsettled {
            self.intents.drain(..).for_each(|path| drop(store.delete(&path)));
        }
        let _ = store.delete(&lock_path(&self.id));
        self.ended = true;
    }
}

impl Drop for Publication<'_> {
    /// Takes back what is not committed: the error that led here is what the user has to know.
    fn drop(&mut self) {
        if self.is_unknown || self.ended {
            return;
        }
        let store = self.dataset.store();
        if self.paths.drain(..).try_for_each(|path| store.delete(&path)).is_ok() {
            self.end();
        }
    }
}

/// Path of the file that is the lock of a run, where the store is a local folder.
fn lock_path(id: &TransactionId) -> String {
    system_path(&format!("locks/{}", id.tag()))
}

fn lock(dataset: &Dataset, id: &TransactionId) -> Result<Lock> {
    let mut attempt = 1;
    loop {
        match dataset.store().lock(id.tag()) {
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
    use crate::storage::{RemoteStore, Store};

    fn staged(store: &dyn Store, path: &str) -> Staged {
        let mut sink = store.create(path).unwrap();
        sink.write_all(path.as_bytes()).unwrap();
        sink.finish().unwrap()
    }

    fn paths(store: &dyn Store) -> Vec<String> {
        let mut paths: Vec<String> = store.list("").unwrap().into_iter().map(|facts| facts.path).collect();
        paths.sort();
        paths
    }

    #[test]
    fn what_is_published_is_on_record_until_the_run_ends() {
        let dataset = Dataset::new(Arc::new(RemoteStore::memory().unwrap()));
        let store = dataset.store().as_ref();
        let id = TransactionId::fresh();
        let (one, two) = (format!("{}/000000.tar", id.tag()), format!("{}/000001.tar", id.tag()));
        let mut publication = Publication::begin(&dataset, &id, "convert", Version(3)).unwrap();
        publication.publish(vec![staged(store, &one), staged(store, &two)]).unwrap();
        let bytes = store.get(&system_path(&format!("intents/{id}-0.json"))).unwrap().unwrap();
        let intent: Intent = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((intent.planned_on, intent.paths), (Version(3), vec![one.clone(), two.clone()]));
        publication.withdraw(&[one.clone(), "of/another".into()]).unwrap();
        assert!(!paths(store).contains(&one) && paths(store).contains(&two));
        let lost: Result<()> = publication.attempt(|| Err(Error::conflict("another was faster")));
        assert_eq!(lost.unwrap_err().kind(), Kind::Conflict);
        drop(publication);
        assert!(paths(store).is_empty(), "{:?}", paths(store));
    }

    #[test]
    fn nothing_is_taken_back_while_nobody_knows_whether_it_was_committed() {
        let dataset = Dataset::new(Arc::new(RemoteStore::memory().unwrap()));
        let store = dataset.store().as_ref();
        let id = TransactionId::fresh();
        let path = format!("{}/000000.tar", id.tag());
        let mut publication = Publication::begin(&dataset, &id, "convert", Version(0)).unwrap();
        publication.publish(vec![staged(store, &path)]).unwrap();
        assert!(publication.attempt::<()>(|| Err(Error::storage("no answer"))).is_err());
        drop(publication);
        let mut left = [path, system_path(&format!("intents/{id}-0.json"))];
        left.sort();
        assert_eq!(paths(store), left);
    }

    #[test]
    fn an_object_of_somebody_else_is_neither_overwritten_nor_deleted() {
        let dataset = Dataset::new(Arc::new(RemoteStore::memory().unwrap()));
        let store = dataset.store().as_ref();
        let id = TransactionId::fresh();
        let path = format!("{}/000000.tar", id.tag());
        store.put(&path, "mine".into()).unwrap();
        let mut publication = Publication::begin(&dataset, &id, "convert", Version(0)).unwrap();
        let error = publication.publish(vec![staged(store, &path)]).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        drop(publication);
        assert_eq!(store.get(&path).unwrap().unwrap(), "mine");
        assert_eq!(paths(store), [path]);
    }
}
