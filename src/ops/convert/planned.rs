//! Conversions in tasks: on one machine one after the other, or by many processes that share the dataset.
//!
//! A run whose sources are more than one task stores a plan, runs its tasks and commits it. If it is killed, the same
//! command finds the plan and runs only the tasks without an outcome.

use std::time::Instant;

use super::{
    ConvertOptions, ConvertReport,
    advice::tell_remarks,
    job::ConvertJob,
    listing::Listing,
    plan::{ConvertPlan, Decision, decide_plan},
    stack::{self, RanBy},
    task::ConvertRunner,
    work::{ConvertWork, find_or_publish, task_obstacle},
};
use crate::{
    dataset::{Operation, Outcome, PlanRecord},
    error::{Error, Result},
    events::Event,
    ops::{
        Context,
        planned::{Planned, TaskRunner},
        tasks::{Committed, PlanReport, Tasks, with_what_is_kept},
    },
    storage::Location,
};

/// Plans a conversion without running it.
///
/// # Errors
/// As [`convert_sources`](super::convert_sources), and if the conversion cannot be cut into tasks.
pub fn plan_conversion(context: &Context<'_>, out: &Location, options: &ConvertOptions) -> Result<PlanReport> {
    let started = Instant::now();
    let dataset = context.open_dataset(out)?;
    let snapshot = dataset.newest_snapshot()?;
    crate::ops::erase::finish_cut_short(context, snapshot.as_ref())?;
    let (listing, suppress) = Listing::new(context, out, snapshot.as_ref(), options)?;
    let (job, settings) = ConvertJob::new(context, &dataset, snapshot.as_ref(), options, suppress)?;
    let mut report = PlanReport::without_tasks(&dataset, Operation::Convert, listing.skipped.unchanged);
    if let Decision::Convert(plan) = decide_plan(&job, settings, listing)? {
        if let Some(why) = task_obstacle(&job, &plan) {
            return Err(Error::usage(format!("expected a conversion that can be cut into tasks, but {why}"))
                .with_hint("run `shardify convert` instead"));
        }
        tell_remarks(&job, &plan);
        dataset.test_store()?;
        let record = find_or_publish(&job, &plan, 1)?.ok_or_else(|| Error::internal("a plan has no tasks"))?;
        let estimate = plan.estimate_output(&job)?;
        report.set_plan(&dataset, &record)?;
        report.sources = plan.inputs.source_files().count() as u64;
        report.bytes = plan.bytes;
        (report.shards, report.records) = (estimate.shards.max(report.tasks as u64), estimate.records);
    }
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

impl Planned for ConvertWork {
    const OPERATION: Operation = Operation::Convert;
    type Report = ConvertReport;

    fn task_runner<'a>(&'a self, tasks: Tasks<'a>) -> Result<Box<dyn TaskRunner + 'a>> {
        Ok(Box::new(ConvertRunner::new(tasks, self)?.with_tables()?))
    }

    fn commit_outcomes(&self, tasks: Tasks<'_>, outcomes: Vec<Outcome>) -> Result<Committed<ConvertReport>> {
        stack::commit_outcomes(tasks, self, RanBy::Workers, outcomes)
    }
}

/// Stores a plan of several tasks, or finds the one of a killed run; `None` if there is only one.
pub(super) fn find_or_store(job: &ConvertJob<'_>, plan: &ConvertPlan) -> Result<Option<PlanRecord>> {
    job.dataset.test_store()?;
    find_or_publish(job, plan, 2)
}

/// Carries out a stored plan in this process, and commits it.
pub(super) fn execute_tasks(
    job: &ConvertJob<'_>,
    mut plan: ConvertPlan,
    mut record: PlanRecord,
) -> Result<ConvertReport> {
    // Each task reads its own part of the list.
    plan.inputs.forget_files();
    let plan = &plan;
    let observer = job.context.observer;
    loop {
        let all = record.tasks.len();
        let before = Outcome::list_existing(job.dataset, &record.id, all)?.into_iter().filter(|done| *done).count();
        if before > 0 {
            observer.event(Event::Note(format!("continuing a killed run: {before} of {all} tasks are done")));
        }
        let stopped = run_until_mismatch(job, plan, &record).map_err(with_what_is_kept)?;
        let committed = match stopped {
            // The other tasks would be run again.
            true => stack::plan_wider(job, &record, plan)?,
            false => {
                let (tasks, work) = (job.plan_tasks(&record), ConvertWork::read(&record)?);
                tasks.commit_by(|outcomes| stack::commit_outcomes(tasks, &work, RanBy::ThisRun, outcomes))?
            }
        };
        match committed {
            Committed::Version(report) => return Ok(*report),
            Committed::Already(version) => {
                return Err(Error::conflict(format!("another process committed this plan as version {version}"))
                    .at_location(job.dataset.store().location().to_string()));
            }
            Committed::Next(next, why) => {
                observer.event(Event::Note(format!("{why}; starting again with wider types")));
                record = *next;
            }
        }
    }
}

/// Runs all tasks of a plan; returns true if it stopped at a value that fits no column.
fn run_until_mismatch(job: &ConvertJob<'_>, plan: &ConvertPlan, record: &PlanRecord) -> Result<bool> {
    let work = ConvertWork::read(record)?;
    let tasks = job.plan_tasks(record);
    let runner = ConvertRunner::new(tasks, &work)?.with_opened(&plan.inputs);
    let all: Vec<usize> = (0..record.tasks.len()).collect();
    runner.begin_tasks(&all)?;
    for task in all {
        if tasks.run_task(&runner, task)?.mismatch.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
