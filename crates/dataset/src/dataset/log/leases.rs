//! Leases: they protect what a long run still reads from `vacuum`, and ask others to hold back commits.
//!
//! A run that reads old versions for a long time, currently only `erase`, announces it in an object:
//!
//! ```text
//! _shardify/leases/<txn>-<serial>.json    {"transaction": ..., "operation": "erase", "version": 3, "seconds": 120}
//! ```
//!
//! For `seconds` after it was written, `vacuum` expires no version from `version` on. The run rewrites the lease under
//! the next serial well before that and deletes it at its end; the lease of a killed run expires by itself. A lease
//! with `"erasing": true` also asks others to delay their commits, for `delay` seconds or 30, because the run has lost
//! to them several times or is about to commit what took it long. Leases only avoid wasted work: a run that reads
//! objects deleted under it fails with a conflict and commits nothing.
//!
//! Erasures that follow each other would keep all versions readable, and each would take longer than the one before. So
//! a `vacuum` that is held back by many versions takes a lease with `"expiring": true`: no erasure begins while it
//! lasts, and it waits for those that run.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    dataset::{
        log::{operation::Operation, snapshot::Dataset},
        table::paths::system_path,
    },
    error::{Error, Result},
    id::{TransactionId, Version},
    storage::{Listed, Store},
};

/// Validity of a lease after it was last written.
pub const LEASE: Duration = Duration::from_secs(120);

/// How long a commit is delayed at first for an erasure that lost several times.
const FIRST_DELAY: Duration = Duration::from_secs(30);

/// Maximum delay of a commit.
const MAX_DELAY: Duration = Duration::from_secs(240);

/// Initial interval between checks whether such an erasure is done.
const POLL: Duration = Duration::from_millis(100);

/// Maximum interval: many waiting runs must not keep a slow store from serving the erasure.
const MAX_POLL: Duration = Duration::from_secs(2);

/// The same for a vacuum and erasures that take turns: they are few, and each waits for one other.
const MAX_TURN_POLL: Duration = Duration::from_millis(400);

/// Content of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    transaction: TransactionId,
    operation: Operation,
    /// Oldest version that the run reads.
    version: Version,
    /// Validity after it was written, by the clock of the store.
    seconds: u64,
    /// Whether other runs should delay their commits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    erasing: bool,
    /// For how many seconds; 30 if it is not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay: Option<u64>,
    /// Whether erasures should not begin yet, because versions are about to expire.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    expiring: bool,
}

impl Claim {
    fn new(transaction: &TransactionId, operation: Operation, version: Version, duration: Duration) -> Self {
        Self {
            transaction: transaction.clone(),
            operation,
            version,
            seconds: duration.as_secs().max(1),
            erasing: false,
            delay: None,
            expiring: false,
        }
    }

    /// How long commits of another run are to be delayed; `None` if they need not be. They are delayed, too, for an
    /// erasure that a vacuum waits for (`is_awaited`): until then no version expires, and each commit adds one that has
    /// to be searched.
    fn delay_of(&self, transaction: &TransactionId, is_awaited: bool) -> Option<Duration> {
        let asked = (self.erasing || is_awaited && !self.expiring) && self.transaction != *transaction;
        asked.then(|| self.delay.map_or(FIRST_DELAY, Duration::from_secs).min(MAX_DELAY))
    }
}

/// A lease held by this run; dropping it releases it.
#[derive(Debug)]
pub struct Lease {
    held: Arc<Mutex<HeldLease>>,
    renewal: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct HeldLease {
    dataset: Dataset,
    claim: Claim,
    /// Serials written so far; only the last one's object is valid.
    written: u64,
}

impl HeldLease {
    fn lease_path(&self, serial: u64) -> String {
        system_path(&format!("leases/{}-{serial}.json", self.claim.transaction))
    }

    /// Rewrites the lease and deletes the older object.
    fn write(&mut self) -> Result<()> {
        let store = self.dataset.store();
        let bytes =
            serde_json::to_vec(&self.claim).map_err(|e| Error::internal("encoding a lease failed").with_cause(e))?;
        let serial = self.written + 1;
        store.put_if_absent(&self.lease_path(serial), bytes.into())?;
        let older = std::mem::replace(&mut self.written, serial);
        if older > 0 { store.delete(&self.lease_path(older)) } else { Ok(()) }
    }
}

impl Lease {
    /// Takes a lease on all versions from `version` on, which holds until it is dropped: a thread rewrites it in time.
    /// `duration` is how long it outlives a killed run. Waits first while a vacuum expires versions.
    ///
    /// # Errors
    /// When the store fails.
    pub fn acquire(
        dataset: &Dataset,
        transaction: &TransactionId,
        operation: Operation,
        version: Version,
        duration: Duration,
    ) -> Result<Self> {
        Waiting::for_a_turn(dataset).until_gone(|claim, _| claim.expiring.then_some(MAX_DELAY), &|| Ok(()))?;
        Self::hold_claim(dataset, Claim::new(transaction, operation, version, duration))
    }

    /// Waits for the erasures that hold leases, a limited time, and lets no other begin until the result is dropped.
    ///
    /// # Errors
    /// When the store fails or `check` does.
    pub fn take_turn(
        dataset: &Dataset,
        transaction: &TransactionId,
        newest: Version,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let turn = Self::hold_claim(
            dataset,
            Claim { expiring: true, ..Claim::new(transaction, Operation::Vacuum, newest, LEASE) },
        )?;
        Waiting::for_a_turn(dataset).until_gone(|claim, _| (!claim.expiring).then_some(MAX_DELAY), check)?;
        Ok(turn)
    }

    fn hold_claim(dataset: &Dataset, claim: Claim) -> Result<Self> {
        let duration = Duration::from_secs(claim.seconds);
        let mut held = HeldLease { dataset: dataset.clone(), claim, written: 0 };
        held.write()?;
        let held = Arc::new(Mutex::new(held));
        let (end, ended) = mpsc::channel();
        let renewed = Arc::clone(&held);
        let renew = move || {
            while ended.recv_timeout(duration / 4) == Err(RecvTimeoutError::Timeout) {
                // A failed write is retried before the lease ends.
                let _ = renewed.lock().unwrap_or_else(PoisonError::into_inner).write();
            }
        };
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(renew);
        let thread = thread.map_err(|e| Error::internal("starting a thread failed").with_cause(e))?;
        Ok(Self { held, renewal: Some((end, thread)) })
    }

    /// Moves the lease to another version. Others should delay their commits if this run `lost` to them: each time for
    /// twice as long, since on a busy store an attempt may take minutes.
    ///
    /// # Errors
    /// When the store fails.
    pub fn renew(&self, version: Version, lost: usize) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = FIRST_DELAY.saturating_mul(1_u32 << lost.saturating_sub(1).min(16)).min(MAX_DELAY);
        (held.claim.version, held.claim.erasing) = (version, lost > 0);
        held.claim.delay = (delay > FIRST_DELAY).then_some(delay.as_secs());
        held.write()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.renewal.take() {
            drop(end);
            let _ = thread.join();
        }
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // An object that cannot be deleted expires by itself.
        let _ = held.dataset.store().delete(&held.lease_path(held.written));
    }
}

/// Returns the leases valid at an instant, by the clock of the store, with their paths. Unreadable ones are ignored. If
/// locks show that a run has died, its lease has ended, too.
fn current_claims(store: &dyn Store, now: Timestamp) -> Result<Vec<(String, Claim)>> {
    let mut listed = Vec::new();
    store.walk_folder(&system_path("leases"), &mut |found| {
        if let Listed::Object(facts) = found {
            listed.push(facts);
        }
        Ok(())
    })?;
    let mut claims = Vec::new();
    for facts in listed {
        // It may have been released since it was listed.
        let Some(bytes) = store.get(&facts.path)? else { continue };
        let Ok(claim) = serde_json::from_slice::<Claim>(&bytes) else { continue };
        let lasts = SignedDuration::from_secs(i64::try_from(claim.seconds).unwrap_or(i64::MAX));
        let lasts_still = facts.modified.checked_add(lasts).is_ok_and(|end| now < end);
        if lasts_still && store.is_locked(claim.transaction.short_tag())? != Some(false) {
            claims.push((facts.path, claim));
        }
    }
    Ok(claims)
}

/// Returns the tags of runs that hold a lease at an instant, by the clock of the store, each with the oldest version
/// that must stay readable for it; `None` for a vacuum, which reads none of them.
///
/// # Errors
/// When the store fails.
pub fn active_holders(dataset: &Dataset, now: Timestamp) -> Result<Vec<(String, Option<Version>)>> {
    let claims = current_claims(dataset.store().as_ref(), now)?.into_iter().map(|(_, claim)| claim);
    Ok(claims
        .map(|claim| (claim.transaction.short_tag().to_owned(), (!claim.expiring).then_some(claim.version)))
        .collect())
}

/// Delays the attempts of a transaction to commit while an erasure asks for it. Every attempt is delayed, not only the
/// first, so that transactions that are already retrying do not keep winning; the total delay is limited to what the
/// lease states.
#[derive(Debug)]
pub(in crate::dataset) struct CommitDelay<'a> {
    transaction: &'a TransactionId,
    waiting: Waiting<'a>,
}

impl<'a> CommitDelay<'a> {
    /// Begins with the first attempt of a transaction to commit.
    pub(in crate::dataset) fn new(dataset: &'a Dataset, transaction: &'a TransactionId) -> Self {
        Self { transaction, waiting: Waiting::new(dataset) }
    }

    /// Waits while an erasure asks for it.
    ///
    /// # Errors
    /// When the store fails.
    pub(in crate::dataset) fn wait_for_erasures(&mut self) -> Result<()> {
        let transaction = self.transaction;
        self.waiting.until_gone(|claim, is_awaited| claim.delay_of(transaction, is_awaited), &|| Ok(()))
    }
}

/// Waits for leases of other runs.
#[derive(Debug)]
struct Waiting<'a> {
    dataset: &'a Dataset,
    begun: Instant,
    max_poll: Duration,
    /// Leases by when they were seen first. One that is not renewed in its time is that of a killed run, whatever this
    /// machine takes for the time.
    seen: HashMap<String, Instant>,
}

impl<'a> Waiting<'a> {
    fn new(dataset: &'a Dataset) -> Self {
        Self { dataset, begun: Instant::now(), max_poll: MAX_POLL, seen: HashMap::new() }
    }

    fn for_a_turn(dataset: &'a Dataset) -> Self {
        Self { max_poll: MAX_TURN_POLL, ..Self::new(dataset) }
    }

    /// Waits while there are leases to wait for, each for at most the time that `patience` states, counted from the
    /// beginning of all waits; it is also told whether a vacuum waits.
    fn until_gone(
        &mut self,
        patience: impl Fn(&Claim, bool) -> Option<Duration>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let mut pause = POLL;
        loop {
            let claims = current_claims(self.dataset.store().as_ref(), Timestamp::now())?;
            let is_awaited = claims.iter().any(|(_, claim)| claim.expiring);
            let asked = claims.into_iter().filter_map(|(path, claim)| {
                let longest = patience(&claim, is_awaited)?;
                let first = self.seen.entry(path).or_insert_with(Instant::now);
                (first.elapsed().as_secs() < claim.seconds).then_some(longest)
            });
            if asked.max().is_none_or(|longest| self.begun.elapsed() >= longest) {
                return Ok(());
            }
            check()?;
            std::thread::sleep(pause);
            pause = (2 * pause).min(self.max_poll);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::{LocalStore, RemoteStore};

    fn oldest(dataset: &Dataset, now: Timestamp) -> Result<Option<Version>> {
        Ok(active_holders(dataset, now)?.into_iter().filter_map(|(_, version)| version).min())
    }

    fn leases(dataset: &Dataset) -> Vec<String> {
        dataset.store().list_folder("_shardify/leases").unwrap().into_iter().map(|facts| facts.path).collect()
    }

    #[test]
    fn a_lease_keeps_its_version_until_it_is_released_or_expires() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        assert_eq!(oldest(&dataset, Timestamp::now()).unwrap(), None);
        let take = |version| {
            Lease::acquire(
                &dataset,
                &TransactionId::fresh(),
                Operation::Erase,
                Version(version),
                Duration::from_secs(60),
            )
            .unwrap()
        };
        let (newer, older) = (take(7), take(3));
        assert_eq!(oldest(&dataset, Timestamp::now()).unwrap(), Some(Version(3)));
        older.renew(Version(9), 0).unwrap();
        assert_eq!(oldest(&dataset, Timestamp::now()).unwrap(), Some(Version(7)));
        assert_eq!(leases(&dataset).len(), 2, "what was renewed is deleted");
        let later = Timestamp::now().checked_add(SignedDuration::from_secs(61)).unwrap();
        assert_eq!(oldest(&dataset, later).unwrap(), None, "a run that was killed holds nothing for ever");
        drop((newer, older));
        assert_eq!(leases(&dataset), Vec::<String>::new());
        dataset.store().put("_shardify/leases/notes.txt", "not a lease".into()).unwrap();
        assert_eq!(oldest(&dataset, Timestamp::now()).unwrap(), None);
    }

    #[test]
    fn a_lease_is_renewed_while_it_is_held() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        let lease =
            Lease::acquire(&dataset, &TransactionId::fresh(), Operation::Erase, Version(2), Duration::from_secs(1))
                .unwrap();
        let first = leases(&dataset);
        std::thread::sleep(Duration::from_millis(1300));
        assert_ne!(leases(&dataset), first);
        assert_eq!(oldest(&dataset, Timestamp::now()).unwrap(), Some(Version(2)));
        drop(lease);
    }

    #[test]
    fn commits_wait_for_an_erasure_that_asks_for_it_and_for_no_other() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        let (eraser, other) = (TransactionId::fresh(), TransactionId::fresh());
        let lease = Lease::acquire(&dataset, &eraser, Operation::Erase, Version(1), LEASE).unwrap();
        let waited = |transaction: &TransactionId| {
            let begun = Instant::now();
            CommitDelay::new(&dataset, transaction).wait_for_erasures().unwrap();
            begun.elapsed()
        };
        assert!(waited(&other) < POLL);
        lease.renew(Version(1), 1).unwrap();
        assert!(waited(&eraser) < POLL, "it does not wait for itself");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waited(&other));
            std::thread::sleep(3 * POLL);
            drop(lease);
            let waited = waiting.join().unwrap();
            assert!(waited >= 2 * POLL && waited < FIRST_DELAY / 2, "{waited:?}");
        });
    }

    #[test]
    fn the_delay_doubles_with_each_attempt_that_is_lost() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        let (eraser, other) = (TransactionId::fresh(), TransactionId::fresh());
        let lease = Lease::acquire(&dataset, &eraser, Operation::Erase, Version(1), LEASE).unwrap();
        for (lost, seconds) in
            [(0, None), (1, Some(30)), (2, Some(60)), (3, Some(120)), (4, Some(240)), (40, Some(240))]
        {
            lease.renew(Version(1), lost).unwrap();
            let claims = current_claims(dataset.store().as_ref(), Timestamp::now()).unwrap();
            let [(_, claim)] = claims.as_slice() else { panic!("expected one lease, found {claims:?}") };
            assert_eq!(claim.delay_of(&other, false), seconds.map(Duration::from_secs), "{lost}");
            assert_eq!(claim.delay_of(&eraser, true), None);
        }
    }

    /// Writes the lease of an erasure that asks for the longest delay, for so many seconds.
    fn leave_lease(dataset: &Dataset, seconds: u64) -> TransactionId {
        let transaction = TransactionId::fresh();
        let claim = Claim::new(&transaction, Operation::Erase, Version(1), Duration::from_secs(seconds));
        let claim = Claim { erasing: true, delay: Some(240), ..claim };
        let bytes = serde_json::to_vec(&claim).unwrap();
        dataset.store().put(&format!("_shardify/leases/{transaction}-1.json"), bytes.into()).unwrap();
        transaction
    }

    #[test]
    fn a_vacuum_waits_for_erasures_that_run_and_is_waited_for() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        let take = || Lease::acquire(&dataset, &TransactionId::fresh(), Operation::Erase, Version(1), LEASE).unwrap();
        let first = take();
        std::thread::scope(|scope| {
            let turn =
                scope.spawn(|| Lease::take_turn(&dataset, &TransactionId::fresh(), Version(9), &|| Ok(())).unwrap());
            while leases(&dataset).len() < 2 {
                std::thread::sleep(POLL / 10);
            }
            let second = scope.spawn(take);
            let commit =
                scope.spawn(|| CommitDelay::new(&dataset, &TransactionId::fresh()).wait_for_erasures().unwrap());
            std::thread::sleep(3 * POLL);
            assert!(!commit.is_finished(), "each commit adds a version that the erasure has to search");
            assert!(
                !turn.is_finished() && !second.is_finished(),
                "the first erasure still runs, and the second has not begun"
            );
            drop(first);
            let turn = turn.join().unwrap();
            assert_eq!(oldest(&dataset, Timestamp::now()).unwrap(), None, "nothing holds versions back");
            assert_eq!(active_holders(&dataset, Timestamp::now()).unwrap().len(), 1, "its own lease is in use");
            std::thread::sleep(3 * POLL);
            assert!(!second.is_finished(), "the vacuum is not done");
            drop(turn);
            drop(second.join().unwrap());
        });
        assert_eq!(leases(&dataset), Vec::<String>::new());
        let first = take();
        let stopped =
            Lease::take_turn(&dataset, &TransactionId::fresh(), Version(9), &|| Err(Error::internal("stopped")));
        assert!(stopped.is_err());
        assert_eq!(leases(&dataset).len(), 1, "a vacuum that is stopped lets others begin");
        drop(first);
    }

    #[test]
    fn nobody_waits_long_for_an_erasure_that_was_killed() {
        let dataset = Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()));
        leave_lease(&dataset, 1);
        let begun = Instant::now();
        CommitDelay::new(&dataset, &TransactionId::fresh()).wait_for_erasures().unwrap();
        assert!(begun.elapsed() < FIRST_DELAY, "{:?}", begun.elapsed());
    }

    #[test]
    fn nobody_waits_for_an_erasure_whose_lock_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let dataset = Dataset::new(Arc::new(LocalStore::new(folder.path().to_owned())));
        let eraser = leave_lease(&dataset, 120);
        let begun = Instant::now();
        CommitDelay::new(&dataset, &TransactionId::fresh()).wait_for_erasures().unwrap();
        assert!(begun.elapsed() < FIRST_DELAY, "{:?}", begun.elapsed());
        let lock = dataset.store().acquire_lock(eraser.short_tag()).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| CommitDelay::new(&dataset, &TransactionId::fresh()).wait_for_erasures());
            std::thread::sleep(3 * POLL);
            assert!(!waiting.is_finished(), "its run is alive");
            drop(lock);
            waiting.join().unwrap().unwrap();
        });
    }
}
