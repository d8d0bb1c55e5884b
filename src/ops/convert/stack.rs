//! Commits a plan: stacks the outcomes of its tasks in one transaction.
//!
//! No object is rewritten but the files of rejected records, which are joined.

use std::time::Instant;

use super::{
    columns::force_binary,
    commit::with_types,
    inputs::Inputs,
    job::ConvertJob,
    plan::ConvertPlan,
    report::ConvertReport,
    work::{ConvertWork, publish_wider},
};
use crate::{
    dataset::{
        Dataset, Operation, Outcome, PlanRecord, Pseudonymizer, Publication, SealingSink, Snapshot, Transaction,
        check_sealed, delete_plan,
    },
    error::{Error, Result},
    events::Event,
    exec::{convert::infer_all, gather::OnError, rejects::RejectsFile},
    indexes::version,
    ops::{
        planned::Planned,
        stacked::Stacked,
        tasks::{self, Committed, Tasks, describe_mismatch},
        verify::tasks::check_index,
    },
    schema::{force_text, unite_lists, wire},
    storage::{SYSTEM_FOLDER, Staged},
};

/// Who ran the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RanBy {
    /// Workers, whose ids are compared with their indexes.
    Workers,
    /// This run, or the one that it continues.
    ThisRun,
}

/// Commits the outcomes of all tasks, or makes a plan with wider types.
///
/// # Errors
/// When shards are gone or ids are not those of their indexes; as a commit.
pub(super) fn commit_outcomes(
    Tasks { context, dataset, record }: Tasks<'_>,
    work: &ConvertWork,
    ran_by: RanBy,
    outcomes: Vec<Outcome>,
) -> Result<Committed<ConvertReport>> {
    let started = Instant::now();
    if let Some(next) = next_plan(dataset, record, work, &outcomes)? {
        return Ok(next);
    }
    tasks::check_present(dataset, record, &outcomes)?;
    if ran_by == RanBy::Workers {
        outcomes.iter().try_for_each(|outcome| check_index(dataset.store(), &work.settings, outcome))?;
    }
    let pseudonymizer = Pseudonymizer::from_settings(&work.settings, context.id_key.as_ref())?;
    let snapshot = dataset.newest_snapshot()?;
    let mut publication = Publication::begin(dataset, &record.id, Operation::Convert, record.base)?;
    let mut stacked = Stacked::from_outcomes(dataset, outcomes, work.faults.len() as u64);
    let joined = join_rejects(&stacked, dataset, record, work, pseudonymizer)?;
    let mut report = stacked_report(&stacked, dataset, work, snapshot.as_ref());
    report.rejects = joined.as_ref().map(|rejects| rejects.path.clone());
    stacked.counts.reconcile()?;
    report.set_splits(&work.settings, &stacked.adds);
    context.cancel.check()?;
    publication.publish(joined.into_iter().collect())?;
    let indexes = version::PreparedIndexes::new(dataset, snapshot.as_ref(), &stacked.adds, &work.settings.indexes)?;
    let fields = (!work.of_samples).then_some(&work.fields);
    let transaction = Transaction {
        arguments: work.arguments.clone(),
        revisions: work.revisions.clone(),
        ..stacked.build_transaction(record, with_types(&work.settings, fields), Operation::Convert)
    };
    context.observer.event(Event::Phase { name: "committing", bytes: None });
    let committed = publication.commit(&transaction)?;
    report.counts = committed.entry().counts;
    report.version = Some(committed.version());
    version::refresh_indexes(&committed, indexes, context.observer)?;
    report.note_shares(&work.settings, None, context.observer);
    // What is left of the plan is deleted by `vacuum` if this fails.
    let _ = delete_plan(dataset, &record.id, false);
    report.seconds = started.elapsed().as_secs_f64();
    Ok(Committed::Version(Box::new(report)))
}

/// Returns the plan with wider types that follows if a value fitted no column.
fn next_plan(
    dataset: &Dataset,
    record: &PlanRecord,
    work: &ConvertWork,
    outcomes: &[Outcome],
) -> Result<Option<Committed<ConvertReport>>> {
    let mismatches: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.mismatch.as_ref()).collect();
    let Some(first) = mismatches.first() else { return Ok(None) };
    let mut fields = work.fields.clone();
    for mismatch in &mismatches {
        fields = match &mismatch.fields {
            None => force_binary(&fields, &mismatch.column),
            Some(seen) => unite_lists(&fields, &wire::decode_fields(seen)?),
        };
    }
    if fields == work.fields {
        // The types already include what the tasks have seen: only text can hold these values.
        fields = mismatches.iter().fold(fields, |fields, mismatch| force_text(&fields, &mismatch.column));
    }
    if fields == work.fields {
        return Err(Error::input(format!("no type holds all values: {}", describe_mismatch(first))));
    }
    let next = publish_wider(dataset, record, work, fields)?;
    // Nothing that the tasks wrote can be committed any more.
    delete_plan(dataset, &record.id, true)?;
    Ok(Some(Committed::Next(Box::new(next), describe_mismatch(first))))
}

/// Returns the plan that follows one with a value that fitted no column, given all sources: their types are inferred at
/// once, so that no other value stops the next plan.
///
/// # Errors
/// As [`commit_outcomes`].
pub(super) fn plan_wider(
    job: &ConvertJob<'_>,
    record: &PlanRecord,
    plan: &ConvertPlan,
) -> Result<Committed<ConvertReport>> {
    let outcomes = Outcome::read_all(job.dataset, &record.id, record.tasks.len())?;
    let work = ConvertWork::read(record)?;
    if let Inputs::Records(sources) = &plan.inputs {
        let (observer, cancel) = (job.context.observer, &job.context.cancel);
        observer.event(Event::Phase { name: "inferring types", bytes: None });
        let seen = infer_all(sources, plan.memory, job.context.jobs, observer, cancel)?;
        let all = plan.given.unite_columns(&plan.settings, &seen, sources);
        let fields = unite_lists(&work.fields, &all);
        if fields != work.fields {
            let first = outcomes.iter().flatten().find_map(|outcome| outcome.mismatch.as_ref()).map(describe_mismatch);
            let next = publish_wider(job.dataset, record, &work, fields)?;
            delete_plan(job.dataset, &record.id, true)?;
            return Ok(Committed::Next(Box::new(next), first.unwrap_or_default()));
        }
    }
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    let next = next_plan(job.dataset, record, &work, &outcomes)?;
    next.ok_or_else(|| Error::internal("a task stopped without a value that fits no column"))
}

/// Joins the files of rejected records of all tasks, after the places that could not be listed; `None` if none are
/// kept.
fn join_rejects(
    stacked: &Stacked,
    dataset: &Dataset,
    record: &PlanRecord,
    work: &ConvertWork,
    pseudonymizer: Option<Pseudonymizer>,
) -> Result<Option<Staged>> {
    let kept = work.options.on_error == OnError::Quarantine;
    if !kept || (stacked.rejects.is_empty() && work.faults.is_empty()) {
        return Ok(None);
    }
    let store = dataset.store().as_ref();
    let path = format!("{SYSTEM_FOLDER}/rejects/{}.jsonl", record.id);
    let file = RejectsFile::new(SealingSink::whole(store, &path)?, pseudonymizer);
    work.faults.iter().try_for_each(|fault| file.write_fault(1, 1, &fault.to_error()))?;
    for rejects in &stacked.rejects {
        check_sealed(dataset.store(), rejects)?;
        file.append_lines(&mut store.read(&rejects.path)?)?;
    }
    Ok(Some(file.finish()?))
}

fn stacked_report(
    stacked: &Stacked,
    dataset: &Dataset,
    work: &ConvertWork,
    snapshot: Option<&Snapshot>,
) -> ConvertReport {
    let mut report = ConvertReport::before_run(dataset, snapshot, &work.settings, work.skipped, work.faults.len());
    report.sources = work.sources;
    report.samples_renamed = work.renamed;
    report.samples_incomplete = work.incomplete;
    report.set_others(stacked.others, work.similar);
    report.columns = work.column_types();
    report
}
