//! Conversions in tasks: on one machine one after the other, or by many processes that share the dataset.
//!
//! A run whose sources are more than one task stores a plan, runs its tasks and commits it. If it is killed, the same
//! command finds the plan and runs only the tasks without an outcome.

use std::time::Instant;

use super::{
    ConvertOptions, ConvertReport,
    job::Job,
    listing::Listing,
    plan::{ConvertPlan, Decision, decide},
    stack::{self, Committed},
    task::{TaskReport, TaskRunner},
    work::{Work, obstacle, publish},
};
use crate::{
    dataset::{Dataset, Outcome, PlanRecord, plan_of_path, plan_path},
    error::{Error, Kind, Result},
    events::Event,
    id::{TransactionId, Version},
    ops::Context,
    storage::{Location, SYSTEM_FOLDER},
};

/// A plan that is stored.
#[derive(Debug, Clone, serde::Serialize)]
pub struct PlanReport {
    /// The dataset.
    pub dataset: String,
    /// Location of the plan; `None` if there is nothing to convert.
    pub plan: Option<String>,
    /// Number of tasks.
    pub tasks: usize,
    /// Number of tasks that have an outcome already, because an open plan is continued.
    pub tasks_done: usize,
    /// Sources to be converted.
    pub sources: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Expected shards.
    pub shards: u64,
    /// Expected records.
    pub records: u64,
    /// Sources that the dataset contains already.
    pub sources_unchanged: u64,
    /// Time taken.
    pub seconds: f64,
}

/// Plans a conversion without running it.
///
/// # Errors
/// As [`convert`](super::convert), and if the conversion cannot be cut into tasks.
pub fn plan(context: &Context<'_>, out: &Location, options: &ConvertOptions) -> Result<PlanReport> {
    let started = Instant::now();
    let dataset = context.dataset(out)?;
    let snapshot = dataset.latest()?;
    crate::ops::erase::finish_cut_short(context, snapshot.as_ref())?;
    let (listing, suppress) = Listing::new(context, (out, snapshot.as_ref()), options)?;
    let (job, settings) = Job::new(context, (&dataset, snapshot.as_ref()), options, suppress)?;
    let mut report = PlanReport {
        dataset: dataset.store().location().to_string(),
        plan: None,
        tasks: 0,
        tasks_done: 0,
        sources: 0,
        bytes: 0,
        shards: 0,
        records: 0,
        sources_unchanged: listing.skipped.unchanged,
        seconds: 0.0,
    };
    if let Decision::Convert(plan) = decide(&job, settings, listing)? {
        if let Some(why) = obstacle(&job, &plan) {
            return Err(Error::usage(format!("expected a conversion that can be cut into tasks, but {why}"))
                .hint("run `shardify convert` instead"));
        }
        dataset.test_store()?;
        let record = publish(&job, &plan, 1)?.ok_or_else(|| Error::internal("a plan has no tasks"))?;
        let estimate = plan.estimate(&job)?;
        let done = Outcome::existing(&dataset, &record.id, record.tasks.len())?;
        report.plan = Some(location_of(&dataset, &record.id));
        report.tasks = record.tasks.len();
        report.tasks_done = done.into_iter().filter(|done| *done).count();
        report.sources = plan.inputs.files().count() as u64;
        report.bytes = plan.bytes;
        (report.shards, report.records) = (estimate.shards.max(report.tasks as u64), estimate.records);
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// A plan that was named by its path or URL.
pub enum OpenedPlan {
    /// It exists.
    Plan(Dataset, Box<PlanRecord>),
    /// It was committed, and is deleted.
    Committed(Dataset, Version),
}

/// Opens a plan by its path or URL.
///
/// # Errors
/// When there is and was no plan, it is damaged, or another release made it; if the store fails.
pub fn open_plan(context: &Context<'_>, place: &str) -> Result<OpenedPlan> {
    let location = context.location(place)?;
    let shown = location.to_string();
    let wrong = || {
        Error::usage("expected the path or URL of a plan, as `shardify plan` prints it")
            .at(shown.clone())
            .hint("it ends with _shardify/plans/ and a name of 32 digits and .json")
    };
    let mut above = location.clone();
    let mut names = Vec::new();
    for _ in 0..3 {
        let (folder, name) = above.split_name().ok_or_else(wrong)?;
        names.push(name);
        above = folder;
    }
    let id = plan_of_path(&names[0]).filter(|_| names[1] == "plans" && names[2] == SYSTEM_FOLDER).ok_or_else(wrong)?;
    let dataset = context.dataset(&above)?;
    if let Some(record) = PlanRecord::read(&dataset, &id)? {
        return Ok(OpenedPlan::Plan(dataset, Box::new(record)));
    }
    let entries = match dataset.latest()? {
        Some(newest) => dataset.history(newest.version())?,
        None => Vec::new(),
    };
    match entries.iter().find(|entry| entry.transaction == id) {
        Some(entry) => Ok(OpenedPlan::Committed(dataset, entry.version)),
        None => Err(Error::usage("expected a plan, found none")
            .at(shown)
            .hint("it was given up by a vacuum or voided by an erasure, or the path is wrong: plan again")),
    }
}

/// Returns the path or URL of a plan.
pub fn location_of(dataset: &Dataset, id: &TransactionId) -> String {
    dataset.store().location().join(&plan_path(id)).to_string()
}

/// Runs tasks of a plan, one after the other.
///
/// # Errors
/// When a task does not exist or fails; the tasks before it keep their outcomes.
pub fn run_tasks(
    context: &Context<'_>,
    (dataset, record): (&Dataset, &PlanRecord),
    tasks: impl Iterator<Item = usize>,
    done: &mut dyn FnMut(TaskReport),
) -> Result<()> {
    let work = Work::read(record)?;
    let runner = TaskRunner::new(context, dataset, record, &work)?;
    for task in tasks {
        done(run_task(&runner, task).map_err(with_what_is_kept)?);
    }
    Ok(())
}

/// Adds what a run that stopped has achieved, where running again may help.
fn with_what_is_kept(error: Error) -> Error {
    match error.kind() {
        Kind::Interrupted | Kind::Storage => {
            error.hint("finished tasks are kept: the same command continues after them")
        }
        _ => error,
    }
}

/// Runs one task.
fn run_task(runner: &TaskRunner<'_>, task: usize) -> Result<TaskReport> {
    let TaskRunner { context, dataset, record, .. } = runner;
    context.cancel.check()?;
    let Some(bytes) = record.tasks.get(task).map(|task| task.bytes) else {
        let last = record.tasks.len().saturating_sub(1);
        return Err(Error::usage(format!("expected a task from 0 to {last}, found {task}"))
            .at(location_of(dataset, &record.id)));
    };
    context.observer.event(Event::Phase { name: "converting", bytes: Some(bytes) });
    runner.run(task)
}

/// Commits a plan.
///
/// # Errors
/// When tasks have no outcome, or the plan is void; as a commit.
pub fn commit(context: &Context<'_>, dataset: &Dataset, record: &PlanRecord) -> Result<Committed> {
    stack::commit(context, dataset, record, &Work::read(record)?)
}

/// Carries out a plan of several tasks in this process, and commits it; `None` if it has only one.
pub(super) fn execute(job: &Job<'_>, plan: &ConvertPlan) -> Result<Option<ConvertReport>> {
    job.dataset.test_store()?;
    let Some(mut record) = publish(job, plan, 2)? else { return Ok(None) };
    let observer = job.context.observer;
    loop {
        let all = record.tasks.len();
        let before = Outcome::existing(job.dataset, &record.id, all)?.into_iter().filter(|done| *done).count();
        if before > 0 {
            observer.event(Event::Note(format!("continuing a killed run: {before} of {all} tasks are done")));
        }
        let stopped = run_until_mismatch(job, plan, &record).map_err(with_what_is_kept)?;
        let committed = match stopped {
            // The other tasks would be run again.
            true => stack::widen(job, &record, plan)?,
            false => stack::commit(job.context, job.dataset, &record, &Work::read(&record)?)?,
        };
        match committed {
            Committed::Version(report) => return Ok(Some(*report)),
            Committed::Already(version) => {
                return Err(Error::conflict(format!("another process committed this plan as version {version}"))
                    .at(job.dataset.store().location().to_string()));
            }
            Committed::Next(next, why) => {
                observer.event(Event::Note(format!("{why}; starting again with wider types")));
                record = *next;
            }
        }
    }
}

/// Runs all tasks of a plan; returns true if it stopped at a value that fits no column.
fn run_until_mismatch(job: &Job<'_>, plan: &ConvertPlan, record: &PlanRecord) -> Result<bool> {
    let work = Work::read(record)?;
    let runner = TaskRunner::new(job.context, job.dataset, record, &work)?.with_opened(&plan.inputs);
    for task in 0..record.tasks.len() {
        if run_task(&runner, task)?.mismatch.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
