//! Carries out a plan: runs the pipeline, and again with wider types as long as a value does not fit its column.

use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicU64};

use arrow::datatypes::{DataType, Field, Fields};

use super::{
    columns::force_binary,
    gates::GateResults,
    inputs::{Inputs, source_facts},
    job::ConvertJob,
    plan::ConvertPlan,
};
use crate::{
    dataset::SealingSink,
    error::{Error, Result},
    events::{Event, Silent},
    exec::{
        convert::{Converted, Pipeline, PipelineInput, ReadPlan, count, infer_all, run},
        cut::ShardEnds,
        gates::Gates,
        gather::{Misfit, OnError, Tally},
        rejects::RejectsFile,
        shard::ShardNaming,
        source::{SourceFacts, SourceName},
    },
    format::{TypeMismatch, csv},
    id::Writer,
    indexes::version,
    ops::inputs::Identity,
    record::{interval::is_stored, path::field_at},
    scan::{SourceFile, check_archives},
    schema::{self, unite_lists},
    storage::{SYSTEM_FOLDER, Staged},
};

/// Attempts whose misfit may make its column text without a look at all values; each of them reads the input up to it.
const TEXT_ATTEMPTS: usize = 2;

/// Unpublished result of a run.
pub(super) struct RunOutput {
    /// Shards and segments.
    pub(super) converted: Converted,
    /// Counts of the run.
    pub(super) tally: Tally,
    /// Hash of each file of samples, in their order; empty if they are not needed.
    pub(super) part_hashes: Vec<AtomicU64>,
    /// The file of rejected records.
    pub(super) rejects: Option<Staged>,
    /// What the gates found.
    pub(super) found: GateResults,
}

/// Result of running the pipeline once.
pub(super) enum RunAttempt {
    /// Every value fitted its column.
    Made(Box<RunOutput>),
    /// A value did not fit its column.
    Mismatch {
        /// The value and its column.
        misfit: Misfit,
        /// The error of the run if no type holds the value.
        error: Error,
    },
}

/// Runs the pipeline until every value fits its column; returns the plan with the types that hold all of them.
///
/// # Errors
/// When a source cannot be read, a record is bad and rejects are not allowed, or the store fails.
pub(super) fn carry_out(
    job: &ConvertJob<'_>,
    mut plan: ConvertPlan,
    naming: &ShardNaming,
    writer: &Writer,
) -> Result<(ConvertPlan, RunOutput)> {
    let mut guesses = TEXT_ATTEMPTS;
    loop {
        job.context.observer.event(Event::Phase { name: "converting", bytes: Some(plan.bytes) });
        match run_once(job, &plan, naming, writer).map_err(|error| plan.given.explain_mismatch(error))? {
            RunAttempt::Made(made) => return Ok((plan, *made)),
            RunAttempt::Mismatch { misfit, error } => {
                match widen_types(job, &plan, &misfit, guesses > 0)? {
                    Some(fields) => plan = ConvertPlan { fields, ..plan },
                    None => return Err(plan.given.explain_mismatch(error)),
                }
                guesses = guesses.saturating_sub(1);
            }
        }
    }
}

/// Runs the pipeline once.
///
/// # Errors
/// As [`carry_out`].
pub(super) fn run_once(
    job: &ConvertJob<'_>,
    plan: &ConvertPlan,
    naming: &ShardNaming,
    writer: &Writer,
) -> Result<RunAttempt> {
    let rejects = rejects_file(job, plan, writer)?;
    let part_hashes = part_hashes(job, &plan.inputs);
    let faults = plan.faults.len() as u64;
    let tally = Mutex::new(Tally { records_in: faults, rejected: faults, ..Tally::default() });
    let outputs = Outputs { naming, writer, rejects: rejects.as_ref(), part_hashes: &part_hashes };
    let result = attempt_run(job, plan, &outputs, &tally);
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (result, tally.misfit.take()) {
        (Ok((converted, found)), _) => {
            match &plan.inputs {
                Inputs::Records(sources) => sources.iter().try_for_each(|source| source.file.check_unchanged())?,
                Inputs::Samples { files, .. } => check_archives(files.iter())?,
            }
            let rejects = match rejects {
                Some(file) if tally.rejected > 0 => Some(file.finish()?),
                _ => None,
            };
            Ok(RunAttempt::Made(Box::new(RunOutput { converted, tally, part_hashes, rejects, found })))
        }
        (Err(error), Some(misfit)) => Ok(RunAttempt::Mismatch { misfit, error }),
        (Err(error), None) => Err(error),
    }
}

/// Returns types that hold a value which did not fit; `None` if there are none. All values are read for that, unless
/// `may_guess` and the column becomes text, which holds every other value too.
fn widen_types(job: &ConvertJob<'_>, plan: &ConvertPlan, misfit: &Misfit, may_guess: bool) -> Result<Option<Fields>> {
    let Misfit { source, mismatch, near } = misfit;
    let settled = mismatch.is_of_quotes();
    let changed = |wider: Fields| (settled || wider != plan.fields).then_some(wider);
    let Inputs::Records(sources) = &plan.inputs else {
        // The part's name indicated text, but its content is not text.
        return Ok(changed(force_binary(&plan.fields, &mismatch.column)));
    };
    let (observer, name) = (job.context.observer, sources[*source].file.name());
    let fixed = plan.given.prescribed.is_some() || plan.given.given_names().contains(&mismatch.column);
    let unite = |fields: &[Fields]| plan.given.unite_columns(&plan.settings, fields, sources);
    let with = |seen: &[Fields]| unite(&[unite_lists(&plan.fields, &unite(seen))]);
    let text = Some(with(std::slice::from_ref(near))).filter(|wider| {
        let is_text = field_at(wider, &mismatch.column).is_some_and(|field| *field.data_type() == DataType::Utf8);
        may_guess && !settled && !fixed && is_text && *wider != plan.fields
    });
    let note = match (settled, &text) {
        (true, _) => sources[*source].reader.settle(sources[*source].open(|_| {})?)?.map(str::to_owned),
        (false, _) if fixed => None,
        (false, text) => {
            let next =
                if text.is_some() { "starting again with text" } else { "reading all values and starting again" };
            let TypeMismatch { column, expected, value, .. } = mismatch;
            Some(match expected == TypeMismatch::NO_COLUMN {
                true => format!("the first records have no column `{column}`; {next}"),
                false => {
                    let hint = Some(value).filter(|_| sources[*source].format.takes_settings("CSV"));
                    let hint =
                        hint.and_then(|value| csv::null_hint(value)).map_or_else(String::new, |is| format!("; {is}"));
                    format!("column `{column}` was inferred as {expected} but contains `{value}`; {next}{hint}")
                }
            })
        }
    };
    note.into_iter().for_each(|note| observer.event(Event::Note(format!("{name}: {note}"))));
    if fixed {
        return Ok(settled.then(|| plan.fields.clone()));
    }
    let is_bound = plan.given.is_bound(&mismatch.column);
    let wider = match text {
        Some(text) => text,
        None => {
            observer.event(Event::Phase { name: "inferring types", bytes: None });
            let seen = infer_all(sources, plan.memory, job.context.jobs, observer, &job.context.cancel)?;
            if settled { unite(&seen) } else { with(&seen) }
        }
    };
    // What was settled need not widen any type.
    let is_same = wider == plan.fields && !settled;
    // A source states that these are intervals: they are refused rather than turned into text without being asked.
    let is_refused = |field: &Arc<Field>| field.name() == &mismatch.column && is_stored(field);
    if is_same && wider.iter().any(is_refused) {
        let error = mismatch.error().at_location(sources[*source].file.uri());
        return Err(error.with_hint(format!("take the column as text: --type '{}=text'", mismatch.column)));
    }
    // The sampled types already include everything else: only text can hold this value.
    let wider = match is_same {
        true if is_bound => return Ok(None),
        true => schema::force_text(&wider, &mismatch.column),
        false => wider,
    };
    let is_given = |column: &str| plan.given.given_names().iter().any(|name| name == column);
    let fitted = version::fit_fields(job.dataset, job.snapshot, &plan.settings.indexes, wider, &is_given)
        .map_err(|e| e.at_location(sources[*source].file.uri()))?;
    Ok(changed(fitted))
}

/// Outputs of an attempt besides the shards.
struct Outputs<'a> {
    naming: &'a ShardNaming,
    writer: &'a Writer,
    rejects: Option<&'a RejectsFile>,
    part_hashes: &'a [AtomicU64],
}

fn rejects_file(job: &ConvertJob<'_>, plan: &ConvertPlan, writer: &Writer) -> Result<Option<RejectsFile>> {
    if job.options.on_error != OnError::Quarantine {
        return Ok(None);
    }
    let path = format!("{SYSTEM_FOLDER}/rejects/{writer}.jsonl");
    let file = RejectsFile::new(SealingSink::whole(job.dataset.store().as_ref(), &path)?, job.pseudonymizer.clone());
    plan.faults.iter().try_for_each(|fault| file.write_fault(1, 1, fault))?;
    Ok(Some(file))
}

/// Allocates the hash of each file of samples, if they are needed.
fn part_hashes(job: &ConvertJob<'_>, inputs: &Inputs) -> Vec<AtomicU64> {
    match inputs {
        Inputs::Samples { files, .. } if job.options.identity == Identity::Content => {
            files.iter().map(|_| AtomicU64::new(0)).collect()
        }
        _ => Vec::new(),
    }
}

/// Runs the pipeline of a plan; even shards need the number of records first.
fn attempt_run(
    job: &ConvertJob<'_>,
    plan: &ConvertPlan,
    outputs: &Outputs<'_>,
    tally: &Mutex<Tally>,
) -> Result<(Converted, GateResults)> {
    let is_even = matches!(job.options.ends, Some(ShardEnds::Even(_)));
    let shuffles = plan.settings.shuffle.is_some() && matches!(plan.inputs, Inputs::Records(_));
    let counts = if is_even && !shuffles { Some(count_splits(job, plan, outputs, tally)?) } else { None };
    let expected: Option<u64> = counts.as_ref().map(|counts| counts.iter().sum());
    let (converted, found) = with_pipeline(job, plan, outputs, |pipeline, input| run(pipeline, input, tally, counts))?;
    tally.lock().unwrap_or_else(PoisonError::into_inner).similar = found.similar;
    if let Some(expected) = expected.filter(|expected| *expected != converted.records) {
        return Err(Error::conflict(format!("expected {expected} records, found {}", converted.records))
            .with_hint("the inputs have changed while they were read; run the command again"));
    }
    Ok((converted, found))
}

/// Counts the records of each split by reading all inputs once before they are converted.
fn count_splits(
    job: &ConvertJob<'_>,
    plan: &ConvertPlan,
    outputs: &Outputs<'_>,
    tally: &Mutex<Tally>,
) -> Result<Vec<u64>> {
    job.context.observer.event(Event::Phase { name: "counting records", bytes: Some(plan.bytes) });
    let own = Mutex::new(Tally::default());
    let counted = with_pipeline(job, plan, outputs, |pipeline, input| {
        // What there is to say is said by the run that writes.
        let on_error = if pipeline.on_error == OnError::Fail { OnError::Fail } else { OnError::Skip };
        let naming = pipeline.naming.clone();
        let pipeline = Pipeline { on_error, rejects: None, observer: &Silent, naming, ..*pipeline };
        count(&pipeline, input, &own)
    });
    let mut own = own.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.lock().unwrap_or_else(PoisonError::into_inner).misfit = own.misfit.take();
    job.context.observer.event(Event::Phase { name: "converting", bytes: Some(plan.bytes) });
    Ok(counted?.0)
}

/// Assembles the pipeline of a plan. Returns what the work of the pipeline gives, and what its gates found.
fn with_pipeline<T>(
    job: &ConvertJob<'_>,
    plan: &ConvertPlan,
    outputs: &Outputs<'_>,
    work: impl FnOnce(&Pipeline<'_>, &PipelineInput<'_>) -> Result<T>,
) -> Result<(T, GateResults)> {
    let schema = plan.input_schema();
    let read_plan;
    let (facts, input) = match &plan.inputs {
        Inputs::Records(sources) => {
            let schema = Arc::clone(&schema);
            (
                source_facts(sources, &plan.settings, plan.subjects.as_ref(), plan.keys.as_deref()),
                PipelineInput::Records { sources, schema },
            )
        }
        Inputs::Samples { files, samples } => {
            read_plan = ReadPlan::new(files, samples, plan.memory, job.context.jobs);
            let (rejected, hashes) = (&plan.naming.checked.rejected, outputs.part_hashes);
            let subjects = plan.subjects.as_ref();
            (
                facts_of_samples(files),
                PipelineInput::Samples { files, samples, read_plan: &read_plan, rejected, hashes, subjects },
            )
        }
    };
    let encoder = plan.build_encoder(job.pseudonymizer.as_ref(), &schema)?;
    let (given, ids) = (plan.given.given_names(), Arc::new(plan.id_columns(&schema)));
    let gates = plan.open_gates(job, outputs.writer)?;
    let list = gates.ordered_gates();
    let pipeline = Pipeline {
        given: &given,
        store: job.dataset.store(),
        encoder: &encoder,
        naming: outputs.naming.clone(),
        target: plan.settings.target_shard.0,
        ends: job.options.ends,
        memory: plan.memory,
        jobs: job.context.jobs,
        on_error: job.options.on_error,
        gates: Gates { list: &list, ids: &ids },
        splits: plan.settings.split.as_ref(),
        // Samples of files are listed in the order of their ranks.
        shuffle: plan.settings.shuffle.filter(|_| matches!(plan.inputs, Inputs::Records(_))),
        suppress: job.suppress.as_ref(),
        rejects: outputs.rejects,
        facts: &facts,
        writer: outputs.writer,
        observer: job.context.observer,
        cancel: &job.context.cancel,
    };
    let worked = work(&pipeline, &input)?;
    Ok((worked, gates.finish()?))
}

/// Returns the facts of samples, which form one source: their records name their files themselves.
fn facts_of_samples(files: &[SourceFile]) -> Vec<SourceFacts> {
    let name = SourceName { name: String::new(), key: String::new(), columns: None, subject: None };
    let facts = files.first().map(|file| SourceFacts {
        name: Arc::new(name),
        file: file.clone(),
        bytes: file.bytes(),
        hashes_bytes: false,
        stores_hashes: true,
        by_row: false,
        sheet: None,
        blank_lines: 0,
        lines_skipped: 0,
        note: None,
    });
    facts.into_iter().collect()
}
