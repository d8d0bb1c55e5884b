//! Folds the result of a run into one transaction, and commits it.

use std::collections::BTreeSet;

use arrow::datatypes::Fields;

use super::{
    gates::Found, job::Job, listing::STDIN, plan::ConvertPlan, report::ConvertReport, run::Made, select::Selection,
    sources::Fresh,
};
use crate::{
    dataset::{
        Counts, NewShard, Numbers, Operation, OutcomeCounts, PlaceRef, Publication, Revision, SegmentRef, Settings,
        Transaction,
    },
    error::Result,
    exec::{constants, convert::Converted, gather::Tally, shard::FinishedShard, types},
    indexes::{self, version},
    ops::{inputs::tell_left_out, lineage, revision, undo::Replacing},
    schema::bound,
    storage::{Staged, Store},
};

/// Parts of a transaction.
pub(super) struct Folded {
    /// Objects to be published.
    pub(super) staged: Vec<Staged>,
    /// Shards to be added.
    pub(super) adds: Vec<NewShard>,
    /// Segments of the id index.
    pub(super) segments: Vec<SegmentRef>,
    /// Tables of places of shuffled records.
    pub(super) places: Vec<PlaceRef>,
    /// Counts of the run.
    pub(super) counts: Counts,
}

/// Publishes and commits the result of a run.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict), or when the store fails; nothing is committed then.
pub(super) fn commit(
    job: &Job<'_>,
    plan: &ConvertPlan,
    folder: &str,
    mut publication: Publication<'_>,
    made: Made,
    mut report: ConvertReport,
) -> Result<ConvertReport> {
    let Made { converted, tally, part_hashes, rejects, found: Found { groups, duplicates, .. } } = made;
    report.rejects = rejects.as_ref().map(|rejects| rejects.path.clone());
    report.set_others(others(&tally, &converted), plan.similar);
    report.folder = Some(folder.to_owned());
    let store = job.dataset.store().as_ref();
    let Folded { mut staged, mut adds, segments, places, counts } = fold(store, plan, converted, &tally, rejects)?;
    counts.reconcile()?;
    let (table, duplicates) = duplicates.unzip();
    staged.extend(table);
    report.set_splits(&plan.settings, &adds);
    job.context.cancel.check()?;
    publication.publish_shards(adds.iter_mut(), staged)?;
    let indexes = version::Prepared::new(job.dataset, job.snapshot, &adds, &plan.settings.indexes)?;
    let pseudonymizer = job.pseudonymizer.as_ref();
    let sources = Fresh { inputs: &plan.inputs, hashes: &[], part_hashes: &part_hashes, tally: &tally, pseudonymizer };
    let transaction = Transaction {
        arguments: plan.arguments.clone(),
        revisions: revisions(job),
        counts,
        adds,
        segments,
        places,
        sources: &sources,
        duplicates,
        numbers: Numbers::Fresh(counts.records_out),
        ..Transaction::new(publication.id().clone(), Operation::Convert, with_types(&plan.settings, plan.row_fields()))
    };
    let snapshot = match plan.replaced.is_empty() {
        true => publication.commit(&transaction)?,
        false => {
            let (context, dataset, replaced) = (job.context, job.dataset, &plan.replaced);
            Replacing { context, dataset, pseudonymizer, base: plan.base, replaced }.commit(transaction, publication)?
        }
    };
    report.shards_rewritten = snapshot.entry().counts.shards_added.saturating_sub(counts.shards_added);
    report.counts = snapshot.entry().counts;
    report.version = Some(snapshot.version());
    version::refresh(&snapshot, indexes, job.context.observer)?;
    if !plan.replaced.is_empty() {
        tell_left_out(job.context, &snapshot)?;
    }
    report.note_shares(&plan.settings, groups, job.context.observer);
    Ok(report)
}

/// Returns the settings of a dataset after a run with these columns of rows, whose types bind later runs.
pub(super) fn with_types(settings: &Settings, fields: Option<&Fields>) -> Settings {
    let Some(fields) = fields else { return settings.clone() };
    let known = settings.types.clone().unwrap_or_default();
    let stored = Selection::new(settings, None).stored(fields);
    let types = bound::after(&known, &stored);
    let retyped = bound::retyped(&known, &types).map(str::to_owned).chain(settings.retyped.iter().cloned()).collect();
    Settings { types: Some(types), retyped, ..settings.clone() }
}

/// Returns the counts of a run that the log does not keep.
pub(super) fn others(tally: &Tally, converted: &Converted) -> OutcomeCounts {
    OutcomeCounts {
        blank_lines: tally.blank_lines,
        padded: tally.padded,
        repaired: tally.repaired,
        skipped_lines: tally.skipped_lines,
        ignored_entries: tally.ignored,
        similar: tally.similar,
        repeated: converted.segments.repeated,
        ..OutcomeCounts::default()
    }
}

/// Collects the objects to be published, the additions to the dataset, and the counts.
pub(super) fn fold(
    store: &dyn Store,
    plan: &ConvertPlan,
    converted: Converted,
    tally: &Tally,
    rejects: Option<Staged>,
) -> Result<Folded> {
    let Converted { shards, records, segments, places, staged: placed, .. } = converted;
    let mut staged: Vec<Staged> = Vec::new();
    let finished = shards.iter().map(|finished| (finished.meta(), finished.md5));
    staged.extend(indexes::of_folders(store, &plan.settings.indexes, finished)?);
    let fields = plan.fields_to_keep();
    let folders: BTreeSet<&str> = shards.iter().map(FinishedShard::folder).collect();
    for folder in folders {
        if let Some(fields) = &fields {
            staged.push(types::stage(store, folder, fields)?);
        }
        if let Some(constants) = &plan.constants {
            staged.push(constants::stage(store, folder, constants)?);
        }
    }
    let mut adds: Vec<NewShard> = Vec::with_capacity(shards.len());
    for finished in shards {
        staged.extend(finished.staged);
        adds.push(finished.shard);
    }
    staged.extend(rejects);
    staged.extend(segments.staged);
    staged.extend(placed);
    let counts = Counts {
        records_in: tally.records_in,
        records_out: records,
        records_rejected: tally.rejected,
        records_erased: tally.erased,
        records_filtered: tally.filtered,
        records_deduplicated: tally.deduplicated,
        bytes_in: tally.bytes_in.max(plan.bytes),
        bytes_out: adds.iter().map(|shard| shard.meta.bytes).sum(),
        shards_added: adds.len() as u64,
        shards_removed: 0,
        ..Counts::default()
    };
    Ok(Folded { staged, adds, segments: segments.refs, places, counts })
}

/// Returns the revisions of the sources; each repository occurs once.
pub(super) fn revisions(job: &Job<'_>) -> Vec<Revision> {
    let sources = job.options.sources.iter().filter(|source| *source != STDIN);
    let folders = sources.filter_map(|source| lineage::source_folder_or_file(job.context, source));
    revision::all(folders, job.pseudonymizer.as_ref())
}
