//! `convert`: converts sources into shards of a dataset.
//!
//! ```text
//! Listing --decide--> ConvertPlan --carry out--> shards, segments, counts --fold--> Transaction --commit--> version
//! ```
//!
//! If a value does not fit the types seen in the samples, all tables are read in full and the run starts again with
//! types that fit every value; nothing of the first attempt is kept.

mod advice;
mod arguments;
mod classes;
mod columns;
mod commit;
mod consent;
mod dedup;
mod estimate;
mod fingerprints;
mod gates;
mod idle;
mod inputs;
mod job;
mod keys;
mod label_column;
mod labels;
mod layouts;
mod listing;
mod options;
mod plan;
mod planned;
mod report;
mod run;
mod select;
mod shuffle;
mod side_by_side;
mod side_table;
mod sources;
mod split;
mod stack;
mod stream;
mod subjects;
mod tables;
mod task;
mod trial;
mod units;
mod unused;
mod work;
mod write;

use std::time::Instant;

pub(super) use self::{
    advice::reader_remarks,
    keys::collapsed_note,
    labels::leave_out_metadata,
    layouts::layout_notes,
    tables::refuse_tables,
    trial::{FileStart, SMALL, Trial, refusal_of_small, run_trial},
};
use self::{
    job::ConvertJob,
    listing::{Listing, SkippedCounts},
    plan::{ConvertPlan, Decision, decide_plan},
};
pub use self::{
    options::{
        Accept, ConvertOptions, LabelSource, OnSchema, SplitChoice, SubjectSource, column_type, parse_condition,
    },
    planned::plan_conversion,
    report::{ConvertReport, Estimate},
    work::ConvertWork,
    write::{WriteOption, WriteSetting, WriteSettings},
};
use super::Context;
use crate::{
    dataset::{Dataset, Operation, Publication, Settings, Snapshot},
    error::{Error, Result},
    exec::shard::ShardNaming,
    id::TransactionId,
    indexes::version,
    storage::{self, Location},
    units::Size,
};

/// Converts sources into a dataset.
///
/// # Errors
/// Usage, bad input, conflict, storage; nothing is committed then.
pub fn convert_sources(context: &Context<'_>, out: &Location, options: &ConvertOptions) -> Result<ConvertReport> {
    let started = Instant::now();
    let dataset = context.open_dataset(out)?;
    let snapshot = dataset.newest_snapshot()?;
    let result = convert_onto(context, out, &dataset, snapshot.as_ref(), options);
    let mut report = super::or_overtaken_since(&dataset, snapshot.as_ref(), result)?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Converts sources into a dataset, given its newest snapshot.
fn convert_onto(
    context: &Context<'_>,
    out: &Location,
    dataset: &Dataset,
    snapshot: Option<&Snapshot>,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    if !options.dry_run {
        super::erase::finish_cut_short(context, snapshot)?;
    }
    let (listing, suppress) = Listing::new(context, out, snapshot, options)?;
    let (job, settings) = ConvertJob::new(context, dataset, snapshot, options, suppress)?;
    advice::tell_of_settings(&job, &settings);
    match decide_plan(&job, settings, listing)? {
        Decision::Nothing { settings, skipped, faults } => end_idle(&job, &settings, skipped, faults),
        Decision::Convert(plan) => {
            advice::tell_of_plan(&job, &plan);
            if options.dry_run {
                return dry_run_report(job, *plan);
            }
            let (bytes, stored) = (plan.bytes, advice::Stored::of_plan(&plan));
            let report = execute_plan(&job, *plan).map_err(|error| with_needs(error, bytes))?;
            advice::tell_of_report(&job, &stored, &report);
            Ok(report)
        }
    }
}

/// Adds the size of the inputs to the error of a full disk.
fn with_needs(error: Error, bytes: u64) -> Error {
    if !storage::is_full(&error) {
        return error;
    }
    error.with_hint(format!(
        "the inputs of the run have {}; `convert --dry-run` estimates the size of the shards",
        Size(bytes)
    ))
}

/// Ends a run without new sources; indexes that a killed run left outdated are updated.
fn end_idle(job: &ConvertJob<'_>, settings: &Settings, skipped: SkippedCounts, faults: usize) -> Result<ConvertReport> {
    job.choose_indexes(settings)?;
    if let Some(snapshot) = job.snapshot.filter(|_| !job.options.dry_run) {
        version::refresh_indexes(snapshot, version::PreparedIndexes::default(), job.context.observer)?;
    }
    Ok(ConvertReport::new(job, settings, skipped, faults))
}

/// Returns the report of a plan that is not carried out.
fn dry_run_report(job: ConvertJob<'_>, plan: ConvertPlan) -> Result<ConvertReport> {
    let mut report = report_of(&job, &plan);
    let estimate = if trial::is_small(&job, &plan) {
        let (plan, estimate) = trial::convert_in_memory(job, plan)?;
        report.columns = plan.column_types();
        estimate
    } else {
        report.columns = plan.column_types();
        plan.estimate_output(&job)?
    };
    report.estimate = Some(estimate);
    Ok(report)
}

/// Carries out a plan, and commits the result.
fn execute_plan(job: &ConvertJob<'_>, plan: ConvertPlan) -> Result<ConvertReport> {
    if work::may_be_cut(job, &plan)
        && work::task_obstacle(job, &plan).is_none()
        && let Some(record) = planned::find_or_store(job, &plan)?
    {
        return planned::execute_tasks(job, plan, record);
    }
    let why = || work::task_obstacle(job, &plan).unwrap_or("it is one");
    plan.inputs.check_list(job).map_err(|e| e.with_hint(format!("the run is not cut into tasks: {}", why())))?;
    let transaction = TransactionId::fresh();
    let naming = ShardNaming::for_dataset(&plan.settings, transaction.short_tag());
    let mut report = report_of(job, &plan);
    job.dataset.test_store()?;
    let publication = Publication::begin(job.dataset, &transaction, Operation::Convert, plan.base)?;
    let (plan, made) = run::carry_out(job, plan, &naming, &transaction.into())?;
    report.columns = plan.column_types();
    commit::commit_run(job, &plan, &naming.tag, publication, made, report)
}

/// Returns the report of a plan that has not been carried out yet.
fn report_of(job: &ConvertJob<'_>, plan: &ConvertPlan) -> ConvertReport {
    let mut report = ConvertReport::new(job, &plan.settings, plan.skipped, plan.faults.len());
    report.samples_renamed = plan.naming.checked.renamed;
    report.samples_incomplete = plan.naming.checked.incomplete;
    report.sources = plan.inputs.source_files().count() as u64;
    report.memory_bytes = plan.memory.peak_memory();
    report.counts.bytes_in = plan.bytes;
    report
}
