//! Finds duplicates in a run: the fingerprints of the records that the dataset holds, and of those of the run.

use std::{collections::HashMap, sync::Mutex};

use super::{inputs::Inputs, job::ConvertJob, plan::ConvertPlan};
use crate::{
    dataset::{DuplicatesWriter, RecordIdentity, Snapshot, SourceRow, each_known, numbered_rows, token_of},
    error::{Error, Result},
    exec::{
        gates::dedup::{DedupGate, EARLIER},
        seen::{Seen, SeenMemory},
    },
    id::Writer,
    ops::undo::SourceSelection,
    record::{
        dedup::{DedupBy, DedupChoice},
        fingerprint::Fingerprinter,
    },
};

/// Returns the gate of a run; `None` if nothing is to be found or stored.
///
/// # Errors
/// When what the dataset holds cannot be read.
pub(super) fn dedup_gate<'a>(
    job: &'a ConvertJob<'_>,
    plan: &'a ConvertPlan,
    writer: &Writer,
) -> Result<Option<DedupGate<'a>>> {
    let Some(by) = &plan.settings.dedup else { return Ok(None) };
    let fingerprinter = Fingerprinter::new(job.pseudonymizer.as_ref().map(|keys| keys.fingerprint_key()));
    let seen = match job.options.dedup {
        Some(DedupChoice::None) => None,
        _ => Some(Mutex::new(seen_before(job, plan, by, &fingerprinter)?)),
    };
    Ok(Some(DedupGate {
        by,
        stored: plan.stored_schema().fields().len(),
        fingerprinter,
        pseudonymizer: job.pseudonymizer.as_ref(),
        samples: match &plan.inputs {
            Inputs::Samples { samples, files } => Some((samples, files)),
            Inputs::Records(_) => None,
        },
        table: match &seen {
            Some(_) => Some(Mutex::new(DuplicatesWriter::create(job.dataset.store().as_ref(), writer)?)),
            None => None,
        },
        seen,
    }))
}

/// Returns the fingerprints of the records that the dataset holds, without those that this run replaces.
fn seen_before(job: &ConvertJob<'_>, plan: &ConvertPlan, by: &DedupBy, fingerprinter: &Fingerprinter) -> Result<Seen> {
    let mut seen = Seen::new(SeenMemory::from_limit(plan.memory.bytes));
    let Some(snapshot) = job.snapshot else { return Ok(seen) };
    let (store, table) = (snapshot.dataset().store(), snapshot.run_table()?);
    let by_shard = snapshot.runs_by_shard()?;
    let replaced = replaced_rows(job, plan, snapshot)?;
    let mut unknown = 0_u64;
    for shard in snapshot.live_shards()? {
        job.context.cancel.check()?;
        let mut replaced = replaced.get(&shard.path).map_or(&[][..], Vec::as_slice);
        let runs = by_shard.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice);
        let mut numbers = numbered_rows(store, runs, table)?;
        let mut rows = 0_u64..;
        each_known(store, &shard.sidecar(), !by.needs_fingerprints(), &mut |known| {
            let (row, number) = (rows.next(), numbers.next().transpose()?.flatten());
            if let (Some((next, rest)), Some(row)) = (replaced.split_first(), row)
                && *next == row
            {
                replaced = rest;
                return Ok(());
            }
            let number = number.ok_or_else(|| Error::integrity("expected a record number for each row, found none"))?;
            let fingerprint = match known {
                RecordIdentity::Fingerprint(None) => {
                    unknown += 1;
                    return Ok(());
                }
                RecordIdentity::Id(None) => return Ok(()),
                RecordIdentity::Fingerprint(Some(fingerprint)) => *fingerprint,
                RecordIdentity::Id(Some(id)) if job.pseudonymizer.is_some() => fingerprinter.of_id(token_of(id)),
                RecordIdentity::Id(Some(id)) => fingerprinter.of_id(id),
            };
            seen.find_or_insert(&fingerprint, EARLIER | number.record).map(drop)
        })?;
    }
    if unknown == 0 { Ok(seen) } else { Err(no_fingerprints(snapshot, by, unknown)) }
}

/// Returns the rows of shards that this run replaces, in ascending order.
fn replaced_rows(job: &ConvertJob<'_>, plan: &ConvertPlan, snapshot: &Snapshot) -> Result<HashMap<String, Vec<u64>>> {
    if plan.replaced.is_empty() {
        return Ok(HashMap::new());
    }
    let mut old = |row: &SourceRow| plan.replaced.contains(&row.uri);
    let selection = SourceSelection::select_sources(snapshot, job.pseudonymizer.as_ref(), &mut old)?;
    let affected = selection.affected_shards(snapshot)?;
    Ok(affected.into_iter().map(|affected| (affected.shard.path, affected.ordinals)).collect())
}

fn no_fingerprints(snapshot: &Snapshot, by: &DedupBy, unknown: u64) -> Error {
    let place = snapshot.dataset().store().location().to_string();
    let error = Error::usage(format!(
        "expected a fingerprint of each record that the dataset holds, found {unknown} records without one"
    ));
    let error = error
        .at_location(place.clone())
        .with_hint("only records that were converted with this --dedup have one")
        .with_hint(format!("find all duplicates in a new dataset: shardify convert {place} --out OTHER --dedup {by}"));
    match &snapshot.entry().settings.dedup {
        Some(_) => error.with_hint("or keep all records of this run with --dedup none"),
        None => error,
    }
}
