//! `vacuum`: deletes what no retained version of a dataset needs, or reports what it would delete; `table.rs` does so
//! for Delta tables.
//!
//! First the log records which versions are no longer readable and which runs can no longer commit; then objects are
//! deleted, shards first and lists last. An interrupted run leaves a consistent dataset, and the next one finishes the
//! work. If the store supports locks, active runs are detected, and whatever they may have written is kept regardless
//! of its age.

mod table;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;

pub use self::table::{DeletedFile, TableVacuumReport, vacuum_table};
use super::Context;
use crate::{
    dataset::{
        Dataset, DeletableObject, ObjectKind, PendingDeletion, Retention, Snapshot, Unreferenced, expire_versions,
        find_unreferenced,
        leases::{self, Lease},
        open_plans, retain_deletable,
    },
    error::{Error, Result},
    events::Event,
    id::{TransactionId, Version, run_of_folder},
    indexes::version::{PreparedIndexes, refresh_indexes},
    storage::{Location, Lock, SMALL, SYSTEM_FOLDER, for_each_waiting},
};

/// Default time for which versions are retained.
pub const DEFAULT_RETAIN: Duration = Duration::from_secs(7 * 86_400);
/// Minimum time to retain without `force`: a shorter one may be less than the duration of a run.
const SHORTEST_RETAIN: Duration = Duration::from_secs(86_400);
/// Concurrent deletions: each is a request of its own, and mostly waits.
const DELETIONS_AT_ONCE: usize = 32;

/// Objects that one request deletes, where the store has such requests.
const DELETED_TOGETHER: usize = 256;

/// Versions that erasures may keep from expiring before a vacuum waits for its turn: so few cost the next erasures
/// little.
const MAX_HELD_BACK: u64 = 32;

/// Options of `vacuum`.
#[derive(Debug, Clone)]
pub struct VacuumOptions {
    /// Versions that were current within this time before now stay readable; `None` for [`DEFAULT_RETAIN`], or what a
    /// Delta table states.
    pub retain: Option<Duration>,
    /// Allow retaining less than a day, or less than a Delta table states.
    pub force: bool,
    /// Plan without changing anything.
    pub dry_run: bool,
}

/// Number and size of objects of a kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Amount {
    /// Number of objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An object that was deleted, or would be.
#[derive(Debug, Clone, Serialize)]
pub struct Deleted {
    /// Its path.
    pub path: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its size.
    pub bytes: u64,
}

/// Report of a `vacuum` run.
#[derive(Debug, Clone, Serialize)]
pub struct VacuumReport {
    /// The dataset.
    pub dataset: String,
    /// The new version; the current one if no version becomes unreadable.
    pub version: Version,
    /// Whether this is only a plan.
    pub dry_run: bool,
    /// The oldest version that is readable after the run.
    pub readable_from: Version,
    /// Versions that become unreadable.
    pub versions_expired: u64,
    /// Versions beyond the retention time that stay readable because they have a tag.
    pub versions_tagged: u64,
    /// Objects deleted.
    pub objects_deleted: u64,
    /// Their bytes.
    pub bytes_deleted: u64,
    /// Deleted objects by kind.
    pub by_kind: BTreeMap<ObjectKind, Amount>,
    /// Unreferenced objects that are too young to be deleted.
    pub objects_young: u64,
    /// Unreferenced objects that an active run may need.
    pub objects_in_use: u64,
    /// Unfinished runs whose objects are deleted; one that is still active fails when it tries to commit.
    pub runs_abandoned: u64,
    /// Files that were adopted in place and have changed since: they are kept.
    pub files_changed: Vec<String>,
    /// Locations that cannot be listed: unreadable folders, names that are not UTF-8. They are left alone.
    pub unlisted: Vec<String>,
    /// Files in the dataset's folder that shardify did not write.
    pub files_foreign: u64,
    /// Time taken.
    pub seconds: f64,
    /// The objects.
    #[serde(skip)]
    pub deleted: Vec<Deleted>,
    /// The files that shardify did not write.
    #[serde(skip)]
    pub foreign: Vec<String>,
}

/// Vacuums a dataset.
///
/// # Errors
/// When there is no dataset, the log cannot be read, or the store fails; running it again finishes the work.
pub fn vacuum_dataset(context: &Context<'_>, location: &Location, options: &VacuumOptions) -> Result<VacuumReport> {
    let started = Instant::now();
    let retain = options.retain.unwrap_or(DEFAULT_RETAIN);
    if retain < SHORTEST_RETAIN && !options.force {
        return Err(Error::usage("expected --retain of a day or more, found less")
            .with_hint("otherwise, what a running command has written but not committed yet could be deleted")
            .with_hint("when no other command runs on this dataset, add --force"));
    }
    let dataset = context.open_dataset(location)?;
    let newest = dataset.open_newest()?;
    if !options.dry_run {
        super::erase::finish_cut_short(context, Some(&newest))?;
    }
    let now = dataset.store_time()?;
    super::warn_about_clocks(context, &newest, now);
    let cutoff = now
        .checked_sub(retain)
        .map_err(|e| Error::usage("expected a --retain that ends after the year 0").with_cause(e))?;
    let _alone = if options.dry_run { None } else { Some(dataset.store().acquire_lock(OWN_LOCK)?) };
    let mut holders = leases::active_holders(&dataset, now)?;
    let mut turn = None;
    if !options.dry_run && is_held_back(&newest, oldest_leased(&holders), cutoff)? {
        turn = Some(Turn::wait_for_turn(context, &newest)?);
        // Leases of killed runs have ended in the meantime.
        holders = leases::active_holders(&dataset, dataset.store_time()?)?;
    }
    let leased = oldest_leased(&holders);
    let mut retention = Retention { cutoff, leased, ..Retention::default() };
    retention.active.extend(holders.into_iter().map(|(run, _)| run));
    let plans = open_plans(&dataset)?.into_iter().filter(|plan| !plan.is_idle(now));
    retention.active.extend(plans.map(|plan| plan.name.id.short_tag().to_owned()));
    let idle = detect_active_runs(&dataset, &mut retention)?;
    let mut found = super::or_overtaken(Some(&newest), find_unreferenced(&dataset, &retention))?;
    let mut report = VacuumReport {
        dataset: location.to_string(),
        version: found.version,
        dry_run: options.dry_run,
        readable_from: newest.entry().readable_from.max(Version(1)),
        versions_expired: found.versions_expired,
        versions_tagged: found.tagged.len() as u64,
        objects_deleted: 0,
        bytes_deleted: 0,
        by_kind: BTreeMap::new(),
        objects_young: found.young,
        objects_in_use: found.in_use,
        runs_abandoned: 0,
        files_changed: Vec::new(),
        unlisted: std::mem::take(&mut found.unlisted),
        files_foreign: found.foreign.len() as u64,
        seconds: 0.0,
        deleted: Vec::new(),
        foreign: std::mem::take(&mut found.foreign),
    };
    if found.versions_expired > 0 {
        report.readable_from = found.oldest_retained;
    }
    if !options.dry_run {
        carry_out(context, &dataset, options, turn, &mut found, &mut report)?;
        idle.iter().try_for_each(|lock| delete_lock(&dataset, lock))?;
    }
    report.runs_abandoned = found.abandoned.len() as u64;
    count_deleted(&mut report, found.objects);
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// The turn of this run among erasures: none begins while it is held.
struct Turn {
    _lease: Lease,
    /// Shows others that this run is alive.
    _lock: Lock,
}

impl Turn {
    /// Waits for the erasures that run, a limited time.
    fn wait_for_turn(context: &Context<'_>, newest: &Snapshot) -> Result<Self> {
        let note = "waiting for an erasure that reads versions which would expire without it";
        context.observer.event(Event::Note(note.to_owned()));
        let (dataset, transaction) = (newest.dataset(), TransactionId::fresh());
        let lock = dataset.store().acquire_lock(transaction.short_tag())?;
        let lease = Lease::take_turn(dataset, &transaction, newest.version(), &|| context.cancel.check())?;
        Ok(Self { _lease: lease, _lock: lock })
    }
}

/// Returns the oldest version that a lease keeps readable.
fn oldest_leased(holders: &[(String, Option<Version>)]) -> Option<Version> {
    holders.iter().filter_map(|(_, version)| *version).min()
}

/// Returns whether a lease keeps many versions readable that would expire without it.
fn is_held_back(newest: &Snapshot, leased: Option<Version>, cutoff: Timestamp) -> Result<bool> {
    let Some(leased) = leased else { return Ok(false) };
    // A version expires once the next one has been current for long enough.
    let next = Version(leased.max(newest.readable_from()).0.max(1) + MAX_HELD_BACK);
    if next > newest.version() {
        return Ok(false);
    }
    let entry = super::or_overtaken(Some(newest), newest.dataset().read_entry(next))?;
    Ok(newest.committed_at(next, entry.committed_at) <= cutoff)
}

/// Commits the log entry that must precede the deletions, and deletes.
fn carry_out(
    context: &Context<'_>,
    dataset: &Dataset,
    options: &VacuumOptions,
    turn: Option<Turn>,
    found: &mut Unreferenced,
    report: &mut VacuumReport,
) -> Result<()> {
    if found.needs_entry() {
        let arguments =
            BTreeMap::from([("retain".to_owned(), format!("{}s", options.retain.unwrap_or(DEFAULT_RETAIN).as_secs()))]);
        report.version = expire_versions(dataset, found, &arguments)?.version();
    }
    // From here on, erasures see which versions have expired.
    drop(turn);
    let newest = dataset.open_newest()?;
    // Readers of the Delta log must not find objects in it that are deleted below.
    refresh_indexes(&newest, PreparedIndexes::default(), context.observer)?;
    super::or_overtaken(Some(&newest), retain_deletable(dataset, found))?;
    let objects = std::mem::take(&mut found.objects);
    let (unchanged, changed) = check_files(context, dataset, objects)?;
    report.files_changed = changed;
    delete_objects(context, dataset, &unchanged)?;
    found.objects = unchanged;
    Ok(())
}

/// Name of the lock of `vacuum` itself.
const OWN_LOCK: &str = "vacuum";

/// Detects active runs by their locks, one at a time; returns the names of locks that are no longer held.
fn detect_active_runs(dataset: &Dataset, retention: &mut Retention) -> Result<Vec<String>> {
    let folder = format!("{SYSTEM_FOLDER}/locks");
    let mut idle = Vec::new();
    for facts in dataset.store().list_folder(&folder)? {
        let name = facts.path[folder.len() + 1..].to_owned();
        if name == OWN_LOCK {
            continue;
        }
        match (dataset.store().is_locked(&name)?, run_of_folder(&name)) {
            (Some(true), Some(run)) => {
                retention.active.insert(run.to_owned());
            }
            (Some(true), None) => retention.unknown_active = true,
            (Some(false), _) => idle.push(name),
            // If locks cannot be queried, the age of objects and the log decide.
            (None, _) => {}
        }
    }
    Ok(idle)
}

/// Deletes the file of an abandoned lock while holding the lock.
fn delete_lock(dataset: &Dataset, name: &str) -> Result<()> {
    // Locks with fixed names are used repeatedly.
    if run_of_folder(name).is_none() {
        return Ok(());
    }
    match dataset.store().acquire_lock(name) {
        Ok(_held) => dataset.store().delete(&format!("{SYSTEM_FOLDER}/locks/{name}")),
        // Another process holds the lock.
        Err(_) => Ok(()),
    }
}

/// Removes from the list the user's files that have changed since they were adopted; returns the others and the paths
/// of the changed ones.
fn check_files(
    context: &Context<'_>,
    dataset: &Dataset,
    objects: Vec<DeletableObject>,
) -> Result<(Vec<DeletableObject>, Vec<String>)> {
    let (mut unchanged, mut changed) = (Vec::with_capacity(objects.len()), Vec::new());
    for object in objects {
        context.cancel.check()?;
        let is_same = object.checksum.is_none() || {
            let path = object.facts.path.clone();
            PendingDeletion { path, blake3: object.checksum }.is_deletable(dataset)?
        };
        if is_same { unchanged.push(object) } else { changed.push(object.facts.path) }
    }
    Ok((unchanged, changed))
}

/// Deletes objects, kind by kind.
fn delete_objects(context: &Context<'_>, dataset: &Dataset, objects: &[DeletableObject]) -> Result<()> {
    let bytes = objects.iter().map(|o| o.facts.bytes).sum();
    context.observer.event(Event::Phase { name: "deleting", bytes: Some(bytes) });
    let pool = deletion_pool()?;
    for kind in objects.chunk_by(|a, b| a.kind == b.kind) {
        pool.install(|| kind.par_chunks(DELETED_TOGETHER).try_for_each(|some| delete_some(context, dataset, some)))?;
    }
    Ok(())
}

/// Returns threads for deletions.
fn deletion_pool() -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(DELETIONS_AT_ONCE)
        .build()
        .map_err(|e| Error::internal("starting threads failed").with_cause(e))
}

fn delete_some(context: &Context<'_>, dataset: &Dataset, objects: &[DeletableObject]) -> Result<()> {
    context.cancel.check()?;
    let store = dataset.store();
    // An object that has changed is not the one that was examined.
    let is_same = |object: &DeletableObject| -> Result<bool> {
        Ok(object.committed || store.head(&object.facts.path)?.is_some_and(|now| now == object.facts))
    };
    let same = for_each_waiting(store.as_ref(), SMALL, objects, is_same)?;
    let same = objects.iter().zip(same).filter(|(_, same)| *same);
    let paths: Vec<String> = same.map(|(object, _)| object.facts.path.clone()).collect();
    store.delete_all(&paths)?;
    let bytes = objects.iter().map(|object| object.facts.bytes).sum();
    context.observer.event(Event::Read { bytes, records: 0 });
    Ok(())
}

fn count_deleted(report: &mut VacuumReport, objects: Vec<DeletableObject>) {
    for object in objects {
        let bytes = object.facts.bytes;
        report.objects_deleted += 1;
        report.bytes_deleted += bytes;
        let amount = report.by_kind.entry(object.kind).or_default();
        amount.objects += 1;
        amount.bytes += bytes;
        report.deleted.push(Deleted { path: object.facts.path, kind: object.kind, bytes });
    }
}
