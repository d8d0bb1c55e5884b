//! Carries out a plan: the pipeline, again with wider types for as long as a value does not fit its column.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use arrow::datatypes::Fields;

use super::{
    columns::force_binary,
    inputs::{Inputs, source_facts},
    job::Job,
    plan::ConvertPlan,
};
use crate::{
    error::Result,
    events::Event,
    exec::{
        convert::{Converted, Pipeline, Reading, Work, infer_all, run},
        encode::SourceName,
        gather::{OnError, SourceFacts, Tally},
        rejects::RejectsFile,
        shard::ShardNaming,
        suppress::SuppressGate,
    },
    format::Misfit,
    id::TransactionId,
    ops::inputs::Identity,
    scan::SourceFile,
    schema::{self, unite_lists},
    storage::{SYSTEM_FOLDER, Staged},
};

/// What a run made, before it has its names.
pub(super) struct Made {
    /// Shards and segments.
    pub(super) converted: Converted,
    /// What was counted.
    pub(super) tally: Tally,
    /// Hash of each file of samples, in their order; empty if nobody asked for them.
    pub(super) part_hashes: Vec<AtomicU64>,
    /// The file of rejected records.
    pub(super) rejects: Option<Staged>,
}

/// Runs the pipeline until every value fits its column; returns the plan with the types that hold all of them.
///
/// # Errors
/// When a source cannot be read, a record is bad and may not be, or the store fails.
pub(super) fn carry_out(
    job: &Job<'_>,
    mut plan: ConvertPlan,
    naming: &ShardNaming,
    transaction: &TransactionId,
) -> Result<(ConvertPlan, Made)> {
    loop {
        job.context.observer.event(Event::Phase { name: "converting", bytes: Some(plan.bytes) });
        let rejects = rejects_file(job, &plan, transaction)?;
        let part_hashes = part_hashes(job, &plan.inputs);
        let faults = plan.faults.len() as u64;
        let tally = Mutex::new(Tally { records_in: faults, rejected: faults, ..Tally::default() });
        let outputs = Outputs { naming, transaction, rejects: rejects.as_ref(), part_hashes: &part_hashes };
        let result = attempt(job, &plan, &outputs, &tally);
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (result, &tally.misfit) {
            (Ok(converted), _) => {
                let rejects = match rejects {
                    Some(file) if tally.rejected > 0 => Some(file.finish()?),
                    _ => None,
                };
                return Ok((plan, Made { converted, tally, part_hashes, rejects }));
            }
            (Err(error), Some((source, misfit))) => match wider(job, &plan, *source, misfit)? {
                Some(fields) => plan = ConvertPlan { fields, ..plan },
                None => return Err(error),
            },
            (Err(error), None) => return Err(error),
        }
    }
}

/// Types that hold a value which did not fit; `None` when there are none.
fn wider(job: &Job<'_>, plan: &ConvertPlan, source: usize, misfit: &Misfit) -> Result<Option<Fields>> {
    let changed = |wider: Fields| (wider != plan.fields).then_some(wider);
    let Inputs::Records(sources) = &plan.inputs else {
        // The name of a part promised text, and the content is something else.
        return Ok(changed(force_binary(&plan.fields, &misfit.column)));
    };
    if plan.given.prescribed.is_some() || plan.given.names().contains(&misfit.column) {
        return Ok(None);
    }
    let observer = job.context.observer;
    observer.event(Event::Note(format!(
        "{}: column `{}` was taken for {} but holds `{}`; looking at all values and starting again",
        sources[source].file.name(),
        misfit.column,
        misfit.expected,
        misfit.value
    )));
    observer.event(Event::Phase { name: "inferring types", bytes: None });
    let seen = infer_all(sources, plan.memory, job.context.jobs, observer, &job.context.cancel)?;
    let unite = |fields: &[Fields]| plan.given.unite(&plan.settings, fields, sources);
    let wider = unite(&[unite_lists(&plan.fields, &unite(&seen))]);
    // The types seen already allow for everything: only text can hold this value.
    Ok(changed(if wider == plan.fields { schema::force_text(&wider, &misfit.column) } else { wider }))
}

/// Where an attempt writes besides the shards.
struct Outputs<'a> {
    naming: &'a ShardNaming,
    transaction: &'a TransactionId,
    rejects: Option<&'a RejectsFile>,
    part_hashes: &'a [AtomicU64],
}

fn rejects_file(job: &Job<'_>, plan: &ConvertPlan, transaction: &TransactionId) -> Result<Option<RejectsFile>> {
    if job.options.on_error != OnError::Quarantine {
        return Ok(None);
    }
    let path = format!("{SYSTEM_FOLDER}/rejects/{transaction}.jsonl");
    let file = RejectsFile::new(job.dataset.store().create(&path)?, job.hiding.clone());
    plan.faults.iter().try_for_each(|fault| file.fault(1, 1, fault))?;
    Ok(Some(file))
}

/// Room for the hash of each file of samples, if they are asked for.
fn part_hashes(job: &Job<'_>, inputs: &Inputs) -> Vec<AtomicU64> {
    match inputs {
        Inputs::Samples { files, .. } if job.options.identity == Identity::Content => {
            files.iter().map(|_| AtomicU64::new(0)).collect()
        }
        _ => Vec::new(),
    }
}

/// Runs the pipeline once.
fn attempt(job: &Job<'_>, plan: &ConvertPlan, outputs: &Outputs<'_>, tally: &Mutex<Tally>) -> Result<Converted> {
    let schema = plan.schema();
    let reading;
    let (facts, work) = match &plan.inputs {
        Inputs::Records(sources) => {
            let schema = Arc::clone(&schema);
            (source_facts(sources, plan.subjects.as_ref()), Work::Records { sources, schema })
        }
        Inputs::Samples { files, samples } => {
            reading = Reading::new(files, samples, plan.memory, job.context.jobs);
            let (left_out, hashes) = (&plan.naming.checked.left_out, outputs.part_hashes);
            (facts_of_samples(files), Work::Samples { files, samples, reading: &reading, left_out, hashes })
        }
    };
    let encoder = plan.encoder(job.hiding.as_ref(), &schema)?;
    let suppress = job.suppress.as_ref().map(|list| SuppressGate {
        list,
        id: plan.id_columns(&schema),
        subject: plan.settings.subject.clone(),
        normalize: job.options.id_normalize,
        similar: AtomicU64::new(0),
    });
    let given = plan.given.names();
    let pipeline = Pipeline {
        given: &given,
        store: job.dataset.store(),
        encoder: &encoder,
        naming: outputs.naming.clone(),
        target: plan.settings.target_shard.0,
        memory: plan.memory,
        jobs: job.context.jobs,
        on_error: job.options.on_error,
        names: plan.naming.gate.as_ref(),
        parts: plan.naming.parts.as_ref(),
        subjects: plan.subjects.as_ref(),
        suppress: suppress.as_ref(),
        rejects: outputs.rejects,
        facts: &facts,
        transaction: outputs.transaction,
        observer: job.context.observer,
        cancel: &job.context.cancel,
    };
    let converted = run(&pipeline, &work, tally)?;
    if let Some(gate) = &suppress {
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.similar = gate.similar.load(Ordering::Relaxed);
    }
    Ok(converted)
}

/// Samples are one source, whose records name their files themselves.
fn facts_of_samples(files: &[SourceFile]) -> Vec<SourceFacts> {
    let name = SourceName { name: String::new(), key: String::new(), columns: None, subject: None };
    let facts = files.first().map(|file| SourceFacts {
        name: Arc::new(name),
        file: file.clone(),
        hashes_bytes: false,
        by_row: false,
        blank_lines: 0,
        note: None,
    });
    facts.into_iter().collect()
}
