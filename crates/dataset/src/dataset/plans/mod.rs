//! Plans: work that is cut into tasks, run by any number of processes, and committed once.
//!
//! ```text
//! _shardify/plans/<plan>-<hash>.json        the plan: operation, options, types, tasks; the hash is that of its bytes
//! _shardify/plans/<plan>-sources.table      a row per source, in the order of the tasks
//! _shardify/outcomes/<plan>-<task>.json     what a task wrote; created only if absent: the first attempt wins
//! _shardify/outcomes/<plan>-<n>.table       sources of the task as the log will record them; written by attempt <n>
//! _shardify/outcomes/<plan>-<n>.claim       reserves the names of attempt <n>: task + k * tasks for the k-th attempt
//! _shardify/intents/<plan>-<n>-<k>.json     objects of attempt <n>, until the plan is committed or given up
//! <tag>/..., <tag>-2/..., <tag>-3/...       shards, a folder per attempt
//! ```
//!
//! A plan is a run like any other: its id is that of the transaction that commits it, and the names of all its objects
//! begin with that id or its tag. So nothing that a task publishes can have the name of another object, no version
//! refers to it before the commit, and an entry of the log that abandons the run voids the plan with everything that
//! its tasks wrote. Two attempts of one task write different names; the outcome that is created first counts, and the
//! other attempt deletes what it wrote.
//!
//! Workers are given the name of a plan and read what it says, such as paths of sources. So the name has the hash of
//! the plan's bytes, which have the seals of its tables: who may write to the dataset can make a worker read nothing
//! that the planner did not name.
//!
//! A plan is *open* until it is committed, voided, or idle for [`MAX_IDLE`].

mod accounts;
mod outcome;
mod record;
mod sources;

pub use self::{
    accounts::{MADE_UP_HINT, check_outcomes},
    outcome::{
        Damage, Outcome, OutcomeCounts, OutcomeShard, Recorded, TaskMismatch, claim_attempt, each_source, stage_sources,
    },
    record::{NewPlan, PlanRecord, PlanTask, publish_like, publish_plan},
    sources::PlannedSource,
};

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    dataset::{
        log::{publication::Intent, snapshot::Dataset},
        table::paths::system_path,
    },
    error::Result,
    id::{TransactionId, Version, run_of_folder, run_of_name},
    storage::{ObjectFacts, Store},
};

/// Time after its last outcome for which `vacuum` keeps what the tasks of a plan wrote.
const MAX_IDLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Folders of objects that belong to plans alone.
const FOLDERS: [&str; 2] = ["plans/", "outcomes/"];

/// The name of a plan, which is that of nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanName {
    /// Its id.
    pub id: TransactionId,
    /// The first 32 digits of the BLAKE3 of its bytes.
    hash: String,
}

impl PlanName {
    /// Returns the name of the plan of an id that has these bytes.
    fn from_content(id: &TransactionId, bytes: &[u8]) -> Self {
        Self { id: id.clone(), hash: blake3::hash(bytes).to_hex()[..32].to_owned() }
    }

    /// Parses the path of a plan; `None` if it is not that of one.
    pub fn parse(path: &str) -> Option<Self> {
        let (id, hash) = path.rsplit('/').next()?.strip_suffix(".json")?.split_once('-')?;
        let is_id = |digits: &str| digits.len() == 32 && run_of_name(digits).is_some();
        (is_id(id) && is_id(hash)).then(|| Self { id: TransactionId(id.to_owned()), hash: hash.to_owned() })
    }

    /// Returns the path of the plan.
    pub fn path(&self) -> String {
        system_path(&format!("plans/{}-{}.json", self.id, self.hash))
    }
}

/// A plan whose objects exist.
#[derive(Debug, Clone)]
pub struct StoredPlan {
    /// Its name.
    pub name: PlanName,
    /// Number of its outcomes.
    pub outcomes: u64,
    /// When it was made, or its last task finished, by the clock of the store.
    pub touched: Timestamp,
}

/// Returns the plans with objects in the store, committed ones included, in the order of their ids.
///
/// # Errors
/// When the store fails.
pub fn stored_plans(dataset: &Dataset) -> Result<Vec<StoredPlan>> {
    let mut plans: BTreeMap<TransactionId, StoredPlan> = BTreeMap::new();
    let listed = |folder: &str| dataset.store().list_folder(system_path(folder).trim_end_matches('/'));
    for facts in listed(FOLDERS[0])? {
        if let Some(name) = PlanName::parse(&facts.path) {
            plans.insert(name.id.clone(), StoredPlan { name, outcomes: 0, touched: facts.modified });
        }
    }
    if plans.is_empty() {
        return Ok(Vec::new());
    }
    for facts in listed(FOLDERS[1])? {
        let name = facts.path.rsplit('/').next().unwrap_or_default();
        let Some(plan) = name.get(..32).and_then(|id| plans.get_mut(&TransactionId(id.to_owned()))) else { continue };
        plan.outcomes += u64::from(name.ends_with(".json"));
        plan.touched = plan.touched.max(facts.modified);
    }
    Ok(plans.into_values().collect())
}

/// Returns the plans that can still be committed.
///
/// # Errors
/// When the store or the log cannot be read.
pub fn open_plans(dataset: &Dataset) -> Result<Vec<StoredPlan>> {
    let mut plans = Vec::new();
    for plan in stored_plans(dataset)? {
        let is_open = match PlanRecord::read(dataset, &plan.name) {
            Ok(Some(record)) => plan_state(dataset, &record.id, record.base)? == PlanState::Open,
            Ok(None) => false,
            // A plan that cannot be read may be that of another release.
            Err(_) => true,
        };
        plans.extend(is_open.then_some(plan));
    }
    Ok(plans)
}

impl StoredPlan {
    /// Returns whether `vacuum` gives the plan up at an instant, by the clock of the store.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.touched.checked_add(MAX_IDLE).is_ok_and(|end| now >= end)
    }
}

/// Deletes the plans that an erasure has voided, with everything that their tasks wrote; returns their number.
///
/// # Errors
/// When the store or the log cannot be read.
pub fn delete_void(dataset: &Dataset) -> Result<u64> {
    let mut deleted = 0;
    for plan in stored_plans(dataset)? {
        let Ok(Some(record)) = PlanRecord::read(dataset, &plan.name) else { continue };
        if let PlanState::Void(_) = plan_state(dataset, &record.id, record.base)? {
            delete_plan(dataset, &record.id, true)?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// State of a plan in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanState {
    /// Its tasks can be run, and it can be committed.
    Open,
    /// It is this version.
    Committed(Version),
    /// An entry of this version voided it: a vacuum gave it up, or an erasure deleted what it wrote.
    Void(Version),
}

/// Returns the state of a plan that was made on a version.
///
/// # Errors
/// When the log cannot be read.
pub fn plan_state(dataset: &Dataset, plan: &TransactionId, base: Version) -> Result<PlanState> {
    let Some(newest) = dataset.newest_snapshot()? else { return Ok(PlanState::Open) };
    let erasures = |entry: &crate::dataset::Entry| entry.erasures.as_ref().map_or(0, |erasures| erasures.count);
    let then = if base.0 == 0 { 0 } else { dataset.read_entry(base).as_ref().map_or(0, erasures) };
    for entry in dataset.entries_between(base.next(), newest.version())? {
        if entry.transaction == *plan {
            return Ok(PlanState::Committed(entry.version));
        }
        if entry.abandons(plan) || erasures(&entry) != then {
            return Ok(PlanState::Void(entry.version));
        }
    }
    Ok(PlanState::Open)
}

/// Deletes the objects of a plan that no version refers to: its outcomes and claims, its intents and the plan itself;
/// of a plan that cannot be committed any more, also everything that its tasks published.
///
/// # Errors
/// When the store fails; `vacuum` deletes the rest.
pub fn delete_plan(dataset: &Dataset, plan: &TransactionId, published: bool) -> Result<()> {
    let store = dataset.store().as_ref();
    let intents = plan_objects(store, "intents/", plan)?;
    if published {
        for facts in &intents {
            // Whoever may write to the dataset can make an intent, so it is trusted only for names of the plan.
            let intent = Intent::read(store, &facts.path)?;
            for path in intent.iter().flat_map(|intent| &intent.paths).filter(|path| is_of(path, plan)) {
                store.delete(path)?;
            }
        }
    }
    // The plan is deleted last, so that a process which still runs a task sees it until nothing can be used any more.
    let folders = [FOLDERS[1], FOLDERS[0]];
    let own = folders.into_iter().map(|folder| plan_objects(store, folder, plan)).collect::<Result<Vec<_>>>()?;
    intents.iter().chain(own.iter().flatten()).try_for_each(|facts| store.delete(&facts.path))
}

/// Returns the objects of a plan in a system folder.
fn plan_objects(store: &dyn Store, folder: &str, plan: &TransactionId) -> Result<Vec<ObjectFacts>> {
    let folder = system_path(folder);
    let mut listed = store.list_folder(folder.trim_end_matches('/'))?;
    let start = format!("{folder}{plan}");
    listed.retain(|facts| facts.path.strip_prefix(&start).is_some_and(|rest| rest.starts_with(['-', '.'])));
    Ok(listed)
}

/// Whether a path has a name that only the writers of a plan use.
pub fn is_of(path: &str, plan: &TransactionId) -> bool {
    let tag = Some(plan.short_tag());
    path.split('/').any(|part| run_of_folder(part) == tag || run_of_name(part) == tag)
}
