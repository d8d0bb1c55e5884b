//! State shared by the attempts of one erasure.
//!
//! If other runs commit in between, the erasure is planned again on top of them. Shards, segments and lists that were
//! written are reused if the new plan needs them unchanged, so an attempt writes only what is new. Objects that the new
//! plan does not need are deleted at once.

use std::collections::{BTreeSet, HashMap, HashSet};

use rayon::prelude::*;

use super::{super::rewrite, finish};
use crate::{
    dataset::{Dataset, ErasureOrder, NewShard, Operation, PlaceRef, Publication, Reindexed, Unfinished},
    error::{Effect, Error, Kind, Result},
    exec::erase::{AffectedShard, Eraser, ExpectedShard, RewrittenShard},
    id::{TransactionId, Version},
    storage::{RequestMemory, Staged, for_each_waiting},
};

/// Memory of a segment or list that is examined, and of all that are examined at a time.
const EXAMINED: RequestMemory = RequestMemory { object_bytes: 8 << 20, total_bytes: 256 << 20 };

/// Upper bound on the number of commit attempts of one plan.
const MAX_COMMITS: usize = 1000;

/// A shard that was rewritten.
pub(super) struct DoneShard {
    ordinals: Vec<u64>,
    /// Folder of the new shard, with its partition.
    folder: String,
    pub(super) now: Option<NewShard>,
    pub(super) places: Vec<PlaceRef>,
    pub(super) bytes_copied: u64,
    pub(super) bytes_reencoded: u64,
    /// Paths of the objects published for it alone.
    paths: Vec<String>,
    /// Expected content of the new shard, until it was read back and verified.
    unverified: Option<ExpectedShard>,
}

/// A segment or a list that was examined: its replacement, if any, and the paths published for it.
type Examined = (Option<Reindexed>, Vec<String>);

/// Records and sources for which segments and lists were rewritten.
#[derive(PartialEq, Eq)]
pub(super) struct RewriteTargets {
    /// Numbers of the records to be erased.
    pub(super) records: BTreeSet<u64>,
    /// Records with this number or a greater one did not exist yet.
    pub(super) next_record: u64,
    /// Sources to be dropped.
    pub(super) sources: HashSet<String>,
}

impl RewriteTargets {
    /// Returns whether objects written for this are valid for a later plan: they contain no records that were added
    /// since.
    fn holds_for(&self, later: &Self) -> bool {
        self.sources == later.sources && later.records.range(..self.next_record).eq(self.records.iter())
    }
}

/// Everything that was written so far.
pub(super) struct ErasureWork<'a> {
    dataset: &'a Dataset,
    publication: Publication<'a>,
    /// The version that the first attempt read.
    pub(super) begun_on: Version,
    /// Rewritten shards by the paths of the old ones.
    shards: HashMap<String, DoneShard>,
    /// Paths of the objects that describe the folders of new shards.
    folders: HashMap<String, Vec<String>>,
    /// Examined segments and lists by path.
    others: HashMap<String, Examined>,
    wanted: Option<RewriteTargets>,
    order: Option<Unfinished>,
    /// Next numbers of folders and of other objects.
    numbers: (usize, usize),
    /// Number of plans that reached the commit.
    plans: usize,
}

impl<'a> ErasureWork<'a> {
    pub(super) fn begin(dataset: &'a Dataset, transaction: &TransactionId, newest: Version) -> Result<Self> {
        let publication = Publication::begin(dataset, transaction, Operation::Erase, newest)?;
        Ok(Self {
            dataset,
            publication,
            begun_on: newest,
            shards: HashMap::new(),
            folders: HashMap::new(),
            others: HashMap::new(),
            wanted: None,
            order: None,
            numbers: (0, 0),
            plans: 0,
        })
    }

    pub(super) fn transaction_id(&self) -> &TransactionId {
        self.publication.run_id()
    }

    /// Returns an upper bound on the commit attempts of earlier plans: each attempt numbers its lists, whose names stay
    /// in use.
    pub(super) fn attempts_to_commit(&mut self) -> usize {
        self.plans += 1;
        (self.plans - 1) * MAX_COMMITS
    }

    /// Returns whether another run has declared this run dead, so that its objects may be deleted.
    pub(super) fn is_abandoned(&self) -> bool {
        self.dataset.is_abandoned(self.publication.run_id(), self.begun_on).unwrap_or(false)
    }

    /// Deletes what a new plan does not need unchanged. A list of a folder's shards would name shards that do not exist
    /// any more, so if there are such lists (`listed`), a folder is kept or deleted as a whole.
    pub(super) fn discard_outdated(
        &mut self,
        affected_shards: &[(AffectedShard, bool)],
        others: &HashSet<&str>,
        wanted: RewriteTargets,
        listed: bool,
    ) -> Result<()> {
        let wants: HashMap<&str, &[u64]> = affected_shards
            .iter()
            .map(|(affected, _)| (affected.shard.path.as_str(), affected.ordinals.as_slice()))
            .collect();
        let is_wanted =
            |path: &str, done: &DoneShard| wants.get(path).is_some_and(|ordinals| *ordinals == done.ordinals);
        let broken: HashSet<String> = self
            .shards
            .iter()
            .filter(|(path, done)| !is_wanted(path, done))
            .map(|(_, done)| done.folder.clone())
            .collect();
        let mut gone: Vec<String> = Vec::new();
        self.shards.retain(|path, done| {
            let stays = is_wanted(path, done) && !(listed && broken.contains(&done.folder));
            if !stays {
                gone.append(&mut done.paths);
            }
            stays
        });
        let left: HashSet<&str> = self.shards.values().map(|done| done.folder.as_str()).collect();
        self.folders.retain(|folder, paths| {
            let stays = left.contains(folder.as_str());
            if !stays {
                gone.append(paths);
            }
            stays
        });
        let holds = self.wanted.as_ref().is_none_or(|before| before.holds_for(&wanted));
        self.others.retain(|path, (_, paths)| {
            let stays = holds && others.contains(path.as_str());
            if !stays {
                gone.append(paths);
            }
            stays
        });
        self.wanted = Some(wanted);
        self.drop_order()?;
        self.publication.withdraw_objects(&gone)
    }

    /// Names the new shards for affected shards that were not rewritten yet: one new folder for each old folder.
    pub(super) fn name_shards(&mut self, affected_shards: &[(AffectedShard, bool)]) -> Vec<AffectedShard> {
        let unwritten = affected_shards.iter().filter(|(affected, _)| !self.shards.contains_key(&affected.shard.path));
        let mut out: Vec<AffectedShard> = unwritten.map(|(affected, _)| affected.clone()).collect();
        rewrite::name_shards(&mut out, self.publication.run_id(), &mut self.numbers.0);
        out
    }

    /// Publishes new shards together with the descriptions of their folders.
    pub(super) fn publish_shards(
        &mut self,
        affected_shards: &[AffectedShard],
        rewritten: Vec<RewrittenShard>,
    ) -> Result<()> {
        let store = self.dataset.store().as_ref();
        let mut staged: Vec<Staged> = Vec::new();
        let (mut beside, mut written) = (HashMap::new(), HashMap::new());
        for (folder, mut own) in rewrite::describe_folders(store, affected_shards, &rewritten)? {
            beside.insert(folder.to_owned(), own.iter().map(|staged| staged.path.clone()).collect::<Vec<_>>());
            staged.append(&mut own);
        }
        for (affected, mut one) in affected_shards.iter().zip(rewritten) {
            let unverified = one.expected_shard();
            let mut own = std::mem::take(&mut one.staged);
            if let Some(finished) = &mut one.finished {
                own.append(&mut finished.staged);
            }
            let done = DoneShard {
                ordinals: affected.ordinals.clone(),
                folder: affected.naming.tag.clone(),
                now: one.finished.map(|finished| finished.shard),
                places: one.places,
                bytes_copied: one.bytes_copied,
                bytes_reencoded: one.bytes_reencoded,
                paths: own.iter().map(|staged| staged.path.clone()).collect(),
                unverified,
            };
            written.insert(affected.shard.path.clone(), done);
            staged.append(&mut own);
        }
        // Until it is published, an object cannot be committed by a later attempt.
        let shards = written.values_mut().filter_map(|done| done.now.as_mut());
        self.publication.publish_shards(shards, staged)?;
        self.folders.extend(beside);
        self.shards.extend(written);
        Ok(())
    }

    /// Reads back shards that were not verified yet: old objects are deleted only if the new shard contains all kept
    /// records.
    pub(super) fn verify_rewritten(&mut self, eraser: &Eraser<'_>) -> Result<()> {
        let unverified: Vec<&ExpectedShard> =
            self.shards.values().filter_map(|done| done.unverified.as_ref()).collect();
        unverified.into_par_iter().try_for_each(|expected| eraser.verify_rewritten(expected))?;
        self.shards.values_mut().for_each(|done| done.unverified = None);
        Ok(())
    }

    /// Returns the rewrite of a shard.
    pub(super) fn of_shard(&self, path: &str) -> Result<&DoneShard> {
        self.shards.get(path).ok_or_else(|| Error::internal("a shard was not rewritten"))
    }

    /// Returns the replacements of segments or lists, given their paths: those that were not examined yet are passed to
    /// `make` with a unique number, several at a time.
    pub(super) fn reindex_objects<T: Sync>(
        &mut self,
        all: &[T],
        path: impl Fn(&T) -> &str,
        make: impl Fn(&T, usize) -> Result<Option<Reindexed>> + Sync + Send,
    ) -> Result<Vec<Reindexed>> {
        let fresh = all.iter().filter(|one| !self.others.contains_key(path(one)));
        let fresh: Vec<(&T, usize)> = fresh.zip(self.numbers.1 + 1..).collect();
        self.numbers.1 += fresh.len();
        let store = self.dataset.store().as_ref();
        let made = for_each_waiting(store, EXAMINED, &fresh, |(one, number)| make(one, *number))?;
        let mut staged: Vec<Staged> = Vec::new();
        let mut looked: Vec<(String, Examined)> = Vec::new();
        for ((one, _), mut made) in fresh.into_iter().zip(made) {
            let mut own = made.as_mut().map(|made| std::mem::take(&mut made.staged)).unwrap_or_default();
            let paths = own.iter().map(|staged| staged.path.clone()).collect();
            staged.append(&mut own);
            looked.push((path(one).to_owned(), (made, paths)));
        }
        // Until it is published, an object cannot be committed by a later attempt.
        self.publication.publish(staged)?;
        self.others.extend(looked);
        Ok(all.iter().filter_map(|one| self.others.get(path(one))?.0.as_ref()).map(Reindexed::without_staged).collect())
    }

    /// Writes the order of the work that remains after the commit.
    pub(super) fn keep_order(&mut self, order: &ErasureOrder) -> Result<Unfinished> {
        self.numbers.1 += 1;
        let kept = order.write(self.dataset, self.publication.run_id(), self.numbers.1)?;
        self.order = Some(kept.clone());
        Ok(kept)
    }

    fn drop_order(&mut self) -> Result<()> {
        self.order.take().map_or(Ok(()), |order| self.dataset.store().delete(&order.order))
    }

    /// Attempts to commit what was written.
    pub(super) fn attempt_commit<T>(&mut self, commit: impl FnOnce() -> Result<T>) -> Result<T> {
        self.publication.attempt_commit(commit)
    }

    /// Ends without a commit and deletes what was written, unless it is unknown whether the commit took place.
    pub(super) fn give_up(mut self) {
        if !self.publication.is_unknown() {
            // Whatever cannot be deleted is left to `vacuum`.
            let _ = self.drop_order();
        }
    }
}

/// Returns whether other runs deleted what an attempt was reading, or committed what it did not see, so that a new
/// attempt may succeed. `seen` are the readable versions known to the attempt.
pub(super) fn is_overtaken(dataset: &Dataset, error: &Error, seen: &finish::Readable) -> bool {
    // An error after this run's own commit is not caused by other runs.
    if error.effect() != Effect::None {
        return false;
    }
    match error.kind() {
        Kind::Conflict => true,
        Kind::Storage | Kind::Integrity | Kind::Usage => {
            dataset.open_newest().is_ok_and(|newest| finish::Readable::from_snapshot(&newest) != *seen)
        }
        _ => false,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn written_shards_are_reused_by_later_plans_with_the_same_old_records() {
        let wanted = |records: &[u64], next_record, sources: &[&str]| RewriteTargets {
            records: records.iter().copied().collect(),
            next_record,
            sources: sources.iter().map(|uri| (*uri).to_owned()).collect(),
        };
        let first = wanted(&[3, 7], 10, &["a"]);
        assert!(first.holds_for(&wanted(&[3, 7], 10, &["a"])));
        assert!(first.holds_for(&wanted(&[3, 7, 12], 20, &["a"])), "12 is new");
        assert!(!first.holds_for(&wanted(&[3], 20, &["a"])), "another run has erased 7");
        assert!(!first.holds_for(&wanted(&[3, 7, 9], 20, &["a"])));
        assert!(!first.holds_for(&wanted(&[3, 7], 20, &[])));
    }

    #[test]
    fn unpublished_objects_are_written_again_by_the_next_attempt() {
        let store: std::sync::Arc<dyn crate::storage::Store> =
            std::sync::Arc::new(crate::storage::RemoteStore::in_memory().unwrap());
        let dataset = Dataset::new(store);
        let mut work = ErasureWork::begin(&dataset, &TransactionId::fresh(), Version(1)).unwrap();
        let looked_at: Mutex<Vec<(&str, usize)>> = Mutex::default();
        for is_gone in [true, false] {
            let looked = work.reindex_objects(
                &["a", "b"],
                |path| path,
                |path, number| {
                    looked_at.lock().unwrap().push((path, number));
                    match *path == "b" && is_gone {
                        true => Err(Error::storage("a vacuum was faster")),
                        false => Ok(None),
                    }
                },
            );
            assert_eq!(looked.is_err(), is_gone);
        }
        let mut looked_at = looked_at.into_inner().unwrap();
        looked_at.sort_unstable();
        looked_at.dedup();
        assert_eq!(looked_at[looked_at.len() - 2..], [("b", 2), ("b", 4)]);
        assert!(looked_at.contains(&("a", 3)));
    }
}
