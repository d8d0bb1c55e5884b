//! Commits a plan: stacks the outcomes of its tasks in one transaction.
//!
//! ```text
//! task 0  records 0..n0      task 1  records 0..n1      task 2 ...
//! stacked 0..n0              n0..n0+n1                  ...          numbers of the transaction, which the commit shifts
//! ```
//!
//! Numbers of an outcome count from the first record of its task, so stacking adds a base to them; no object is rewritten
//! but the files of rejected records, which are joined.

use std::{collections::HashMap, sync::Arc, time::Instant};

use super::{
    columns::force_binary,
    inputs::Inputs,
    job::Job,
    plan::ConvertPlan,
    report::ConvertReport,
    task::{described, voided},
    work::{Work, publish_wider},
};
use crate::{
    dataset::{
        Counts, Dataset, ListRef, NewShard, NewSources, Numbers, Outcome, OutcomeCounts, PlanRecord, PlanState,
        Pseudonymizer, Publication, Retraction, SegmentRef, Snapshot, SourceRow, Transaction, delete_plan,
        each_source_of_task, folder_of, plan_state,
    },
    error::{Effect, Error, Result},
    events::Event,
    exec::{convert::infer_all, gather::OnError, live, rejects::RejectsFile},
    id::{TransactionId, Version},
    ops::Context,
    schema::{force_text, unite_lists, wire},
    storage::{SYSTEM_FOLDER, Staged, Store},
};

/// Result of committing a plan.
#[derive(Debug)]
pub enum Committed {
    /// The plan is this version now.
    Version(Box<ConvertReport>),
    /// The plan is this version already.
    Already(Version),
    /// A value fitted no column, which the text describes; the tasks of this plan have to be run.
    Next(Box<PlanRecord>, String),
}

/// Commits a plan whose tasks all have outcomes.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) naming the tasks without an outcome, or if the plan was voided; as a
/// commit.
pub(super) fn commit(context: &Context<'_>, dataset: &Dataset, record: &PlanRecord, work: &Work) -> Result<Committed> {
    match commit_once(context, dataset, record, work) {
        // Another process may have committed the plan meanwhile, and deleted what this one was reading.
        Err(error) if error.effect() == Effect::None => match plan_state(dataset, &record.id, record.base)? {
            PlanState::Committed(version) => Ok(Committed::Already(version)),
            _ => Err(error),
        },
        result => result,
    }
}

fn commit_once(context: &Context<'_>, dataset: &Dataset, record: &PlanRecord, work: &Work) -> Result<Committed> {
    let started = Instant::now();
    match plan_state(dataset, &record.id, record.base)? {
        PlanState::Open => {}
        PlanState::Committed(version) => {
            delete_plan(dataset, &record.id, false)?;
            return Ok(Committed::Already(version));
        }
        PlanState::Void(version) => return Err(voided(dataset, version)),
    }
    let outcomes = all_outcomes(dataset, record)?;
    if let Some(next) = next_plan(dataset, record, work, &outcomes)? {
        return Ok(next);
    }
    check_present(dataset, record, &outcomes)?;
    let pseudonymizer = Pseudonymizer::of(&work.settings, context.id_key.as_ref())?;
    let snapshot = dataset.latest()?;
    let mut publication = Publication::begin(dataset, &record.id, "convert", record.base)?;
    let stacked = Stacked::of(dataset, outcomes, work);
    let rejects = stacked.rejects(dataset, record, work, pseudonymizer)?;
    let mut report = stacked.report(dataset, work, snapshot.as_ref());
    report.rejects = rejects.as_ref().map(|rejects| rejects.path.clone());
    stacked.counts.reconcile()?;
    context.cancel.check()?;
    publication.publish(rejects.into_iter().collect())?;
    let store = dataset.store().as_ref();
    let database = live::Database::with(snapshot.as_ref(), &stacked.adds, store, &work.settings.indexes)?;
    let transaction = Transaction {
        id: record.id.clone(),
        operation: "convert",
        arguments: work.arguments.clone(),
        revisions: work.revisions.clone(),
        counts: stacked.counts,
        settings: work.settings.clone(),
        adds: stacked.adds,
        removes: Vec::new(),
        segments: stacked.segments,
        merges: Vec::new(),
        places: Vec::new(),
        retraction: Retraction::default(),
        sources: &stacked.sources,
        numbers: Numbers::Fresh(stacked.counts.records_out),
        calls: fresh_calls(),
    };
    context.observer.event(Event::Phase { name: "committing", bytes: None });
    let committed = publication.commit(&transaction)?;
    report.counts = committed.entry().counts;
    report.version = Some(committed.version());
    live::refresh(&committed, database)?;
    // What is left of the plan is deleted by `vacuum` if this fails.
    let _ = delete_plan(dataset, &record.id, false);
    report.seconds = started.elapsed().as_secs_f64();
    Ok(Committed::Version(Box::new(report)))
}

/// Returns a number for the names of lists that no other commit of the plan uses: a killed one may have left lists.
fn fresh_calls() -> usize {
    let digits = &TransactionId::fresh().0[..8];
    usize::from_str_radix(digits, 16).unwrap_or_default()
}

/// Returns the outcomes of all tasks.
fn all_outcomes(dataset: &Dataset, record: &PlanRecord) -> Result<Vec<Outcome>> {
    let outcomes = Outcome::read_all(dataset, &record.id, record.tasks.len())?;
    let missing: Vec<usize> =
        outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_none()).map(|(task, _)| task).collect();
    if missing.is_empty() {
        return Ok(outcomes.into_iter().flatten().collect());
    }
    Err(Error::conflict(format!(
        "expected outcomes of {} tasks, found {}; missing: {}",
        record.tasks.len(),
        record.tasks.len() - missing.len(),
        ranges(&missing)
    ))
    .at(dataset.store().location().to_string())
    .hint("run the missing tasks, then commit again"))
}

/// Fails unless the shards of all tasks exist with their sizes: one listing for each folder. The outcome of a task whose
/// shard is gone is deleted, so that the task can be run again.
fn check_present(dataset: &Dataset, record: &PlanRecord, outcomes: &[Outcome]) -> Result<()> {
    let store = dataset.store().as_ref();
    let mut gone: Vec<(usize, String)> = Vec::new();
    for (task, outcome) in outcomes.iter().enumerate() {
        let Some(folder) = outcome.shards.first().map(|shard| folder_of(shard.path()).to_owned()) else { continue };
        let listed: HashMap<String, u64> =
            store.list(&folder)?.into_iter().map(|facts| (facts.path, facts.bytes)).collect();
        let lost = outcome.shards.iter().find(|shard| listed.get(shard.path()) != Some(&shard.bytes()));
        gone.extend(lost.map(|shard| (task, shard.path().to_owned())));
    }
    let Some((task, path)) = gone.first() else { return Ok(()) };
    for (task, _) in &gone {
        Outcome::delete(dataset, &record.id, *task as u64)?;
    }
    let tasks: Vec<usize> = gone.iter().map(|(task, _)| *task).collect();
    Err(Error::conflict(format!("the shard of a task is gone; run task {} again", ranges(&tasks)))
        .at(store.location().join(path).to_string())
        .hint(format!("then commit again; {} of {} tasks are affected", gone.len(), outcomes.len()))
        .hint(format!("shardify run-task {} --task {task}", super::planned::location_of(dataset, &record.id))))
}

/// Formats ascending numbers as ranges: `3, 17-20`.
pub(super) fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[usize]| match run {
        [only] => only.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    runs.map(text).collect::<Vec<_>>().join(", ")
}

/// Returns the plan with wider types that follows if a value fitted no column.
fn next_plan(dataset: &Dataset, record: &PlanRecord, work: &Work, outcomes: &[Outcome]) -> Result<Option<Committed>> {
    let mismatches: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.mismatch.as_ref()).collect();
    let Some(first) = mismatches.first() else { return Ok(None) };
    let mut fields = work.fields.clone();
    for mismatch in &mismatches {
        fields = match &mismatch.fields {
            None => force_binary(&fields, &mismatch.column),
            Some(seen) => unite_lists(&fields, &wire::decode(seen)?),
        };
    }
    if fields == work.fields {
        // The types already include what the tasks have seen: only text can hold these values.
        fields = mismatches.iter().fold(fields, |fields, mismatch| force_text(&fields, &mismatch.column));
    }
    if fields == work.fields {
        return Err(Error::input(format!("no type holds all values: {}", described(first))));
    }
    let next = publish_wider(dataset, record, work, fields)?;
    // Nothing that the tasks wrote can be committed any more.
    delete_plan(dataset, &record.id, true)?;
    Ok(Some(Committed::Next(Box::new(next), described(first))))
}

/// Returns the plan that follows one with a value that fitted no column, given all sources: their types are inferred at
/// once, so that no other value stops the next plan.
///
/// # Errors
/// As [`commit`].
pub(super) fn widen(job: &Job<'_>, record: &PlanRecord, plan: &ConvertPlan) -> Result<Committed> {
    let outcomes = Outcome::read_all(job.dataset, &record.id, record.tasks.len())?;
    let work = Work::read(record)?;
    if let Inputs::Records(sources) = &plan.inputs {
        let (observer, cancel) = (job.context.observer, &job.context.cancel);
        observer.event(Event::Phase { name: "inferring types", bytes: None });
        let seen = infer_all(sources, plan.memory, job.context.jobs, observer, cancel)?;
        let all = plan.given.unite(&plan.settings, &seen, sources);
        let fields = unite_lists(&work.fields, &all);
        if fields != work.fields {
            let first = outcomes.iter().flatten().find_map(|outcome| outcome.mismatch.as_ref()).map(described);
            let next = publish_wider(job.dataset, record, &work, fields)?;
            delete_plan(job.dataset, &record.id, true)?;
            return Ok(Committed::Next(Box::new(next), first.unwrap_or_default()));
        }
    }
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    let next = next_plan(job.dataset, record, &work, &outcomes)?;
    next.ok_or_else(|| Error::internal("a task stopped without a value that fits no column"))
}

/// The outcomes of all tasks, one after the other.
struct Stacked {
    adds: Vec<NewShard>,
    segments: Vec<SegmentRef>,
    counts: Counts,
    others: OutcomeCounts,
    sources: StackedSources,
    rejects: Vec<crate::dataset::SealedRef>,
}

/// The tables of sources of all tasks, each with the number of the first record of its task.
struct StackedSources {
    store: Arc<dyn Store>,
    tables: Vec<(ListRef, u64)>,
    arrays: bool,
    part_hashes: bool,
}

impl NewSources for StackedSources {
    /// Parts of one source, which follow each other, become one row.
    fn each(&self, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
        let mut last: Option<SourceRow> = None;
        for (list, base) in &self.tables {
            each_source_of_task(&self.store, list, *base, &mut |row| match &mut last {
                Some(before) if before.uri == row.uri => {
                    before.records += row.records;
                    Ok(())
                }
                _ => last.replace(row).map_or(Ok(()), &mut *visit),
            })?;
        }
        last.map_or(Ok(()), visit)
    }

    fn have_arrays(&self) -> bool {
        self.arrays
    }

    fn have_part_hashes(&self) -> bool {
        self.part_hashes
    }
}

impl Stacked {
    fn of(dataset: &Dataset, outcomes: Vec<Outcome>, work: &Work) -> Self {
        let faults = work.faults.len() as u64;
        let mut all = Self {
            adds: Vec::new(),
            segments: Vec::new(),
            counts: Counts { records_in: faults, records_rejected: faults, ..Counts::default() },
            others: OutcomeCounts::default(),
            sources: StackedSources {
                store: Arc::clone(dataset.store()),
                tables: Vec::new(),
                arrays: false,
                part_hashes: false,
            },
            rejects: Vec::new(),
        };
        let mut base = 0;
        for outcome in outcomes {
            all.adds.extend(outcome.shards.into_iter().map(|shard| shard.stacked(base)));
            let shifted = |segment: SegmentRef| SegmentRef { record_base: segment.record_base + base, ..segment };
            all.segments.extend(outcome.segments.into_iter().map(shifted));
            all.sources.arrays |= outcome.arrays;
            all.sources.part_hashes |= outcome.part_hashes;
            all.sources.tables.extend(outcome.sources.map(|list| (list, base)));
            all.rejects.extend(outcome.rejects);
            all.others += outcome.others;
            all.counts = sum(all.counts, outcome.counts);
            base += outcome.records;
        }
        all
    }

    /// Joins the files of rejected records of all tasks, after the places that could not be listed; `None` if none are
    /// kept.
    fn rejects(
        &self,
        dataset: &Dataset,
        record: &PlanRecord,
        work: &Work,
        pseudonymizer: Option<Pseudonymizer>,
    ) -> Result<Option<Staged>> {
        let kept = work.options.on_error == OnError::Quarantine;
        if !kept || (self.rejects.is_empty() && work.faults.is_empty()) {
            return Ok(None);
        }
        let store = dataset.store().as_ref();
        let path = format!("{SYSTEM_FOLDER}/rejects/{}.jsonl", record.id);
        let file = RejectsFile::new(store.create(&path)?, pseudonymizer);
        work.faults.iter().try_for_each(|fault| file.fault(1, 1, &fault.error()))?;
        for rejects in &self.rejects {
            file.append(&mut store.read(&rejects.path)?)?;
        }
        Ok(Some(file.finish()?))
    }

    fn report(&self, dataset: &Dataset, work: &Work, snapshot: Option<&Snapshot>) -> ConvertReport {
        let mut report = ConvertReport::of(dataset, snapshot, &work.settings, work.skipped, work.faults.len());
        report.sources = work.sources;
        report.samples_renamed = work.renamed;
        report.samples_incomplete = work.incomplete;
        report.set_others(self.others, work.similar);
        report.columns = work.columns();
        report
    }
}

/// Returns the counts of two tasks together.
fn sum(a: Counts, b: Counts) -> Counts {
    Counts {
        records_in: a.records_in + b.records_in,
        records_out: a.records_out + b.records_out,
        records_rejected: a.records_rejected + b.records_rejected,
        records_erased: a.records_erased + b.records_erased,
        records_deduplicated: a.records_deduplicated + b.records_deduplicated,
        records_filtered: a.records_filtered + b.records_filtered,
        records_removed: a.records_removed + b.records_removed,
        records_restored: a.records_restored + b.records_restored,
        bytes_in: a.bytes_in + b.bytes_in,
        bytes_out: a.bytes_out + b.bytes_out,
        shards_added: a.shards_added + b.shards_added,
        shards_removed: a.shards_removed + b.shards_removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tasks_are_ranges() {
        assert_eq!(ranges(&[3, 17, 18, 19, 20, 22]), "3, 17-20, 22");
    }
}
