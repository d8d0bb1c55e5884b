//! Conversions in tasks: on one machine one after the other, or by many processes that share the dataset.
//!
//! A run whose sources are more than one task stores a plan, runs its tasks and commits it. If it is killed, the same
//! command finds the plan and runs only the tasks without an outcome.

use std::time::Instant;

use super::{
    ConvertOptions, ConvertReport,
    advice::tell_remarks,
    job::Job,
    listing::Listing,
    plan::{ConvertPlan, Decision, decide},
    stack::{self, RanBy},
    task::TaskRunner,
    work::{Work, obstacle, publish},
};
use crate::{
    dataset::{Dataset, Operation, Outcome, PlanRecord},
    error::{Error, Result},
    events::Event,
    ops::{
        Context,
        tasks::{Committed, PlanReport, TaskReport, plan_again, with_what_is_kept},
    },
    storage::Location,
};

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
    let mut report = PlanReport::empty(&dataset, Operation::Convert, listing.skipped.unchanged);
    if let Decision::Convert(plan) = decide(&job, settings, listing)? {
        if let Some(why) = obstacle(&job, &plan) {
            return Err(Error::usage(format!("expected a conversion that can be cut into tasks, but {why}"))
                .hint("run `shardify convert` instead"));
        }
        tell_remarks(&job, &plan);
        dataset.test_store()?;
        let record = publish(&job, &plan, 1)?.ok_or_else(|| Error::internal("a plan has no tasks"))?;
        let estimate = plan.estimate(&job)?;
        report.set_plan(&dataset, &record)?;
        report.sources = plan.inputs.files().count() as u64;
        report.bytes = plan.bytes;
        (report.shards, report.records) = (estimate.shards.max(report.tasks as u64), estimate.records);
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
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
    let runner = TaskRunner::new(context, dataset, record, &work)?.with_tables()?;
    // The first that does not exist ends the command.
    let tasks: Vec<usize> = tasks.take(record.tasks.len() + 1).collect();
    runner.begin(&tasks)?;
    for task in tasks {
        done(runner.run(task).map_err(with_what_is_kept)?);
    }
    Ok(())
}

/// Commits a plan.
///
/// # Errors
/// When tasks have no outcome, or the plan is void; as a commit.
pub fn commit(context: &Context<'_>, dataset: &Dataset, record: &PlanRecord) -> Result<Committed<ConvertReport>> {
    stack::commit(context, dataset, record, &Work::read(record)?, RanBy::Workers).map_err(plan_again)
}

/// Stores a plan of several tasks, or finds the one of a killed run; `None` if there is only one.
pub(super) fn begin(job: &Job<'_>, plan: &ConvertPlan) -> Result<Option<PlanRecord>> {
    job.dataset.test_store()?;
    publish(job, plan, 2)
}

/// Carries out a stored plan in this process, and commits it.
pub(super) fn execute(job: &Job<'_>, mut plan: ConvertPlan, mut record: PlanRecord) -> Result<ConvertReport> {
    // Each task reads its own part of the list.
    plan.inputs.forget_files();
    let plan = &plan;
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
            false => stack::commit(job.context, job.dataset, &record, &Work::read(&record)?, RanBy::ThisRun)?,
        };
        match committed {
            Committed::Version(report) => return Ok(*report),
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
    let tasks: Vec<usize> = (0..record.tasks.len()).collect();
    runner.begin(&tasks)?;
    for task in tasks {
        if runner.run(task)?.mismatch.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
