//! Folds the result of a run into one transaction, and commits it.

use std::collections::{BTreeSet, HashMap};

use arrow::datatypes::Fields;

use super::{
    gates::GateResults, job::ConvertJob, plan::ConvertPlan, report::ConvertReport, run::RunOutput,
    select::ConvertSelection, sources::Fresh, stream::STDIN,
};
use crate::{
    dataset::{
        Counts, NewShard, NewSources as _, Numbers, Operation, OutcomeCounts, PlaceRef, Publication, Revision,
        SegmentRef, Settings, Transaction,
    },
    error::Result,
    events::Event,
    exec::{constants, convert::Converted, gather::Tally, shard::FinishedShard, types},
    indexes::{self, version},
    ops::{
        inputs::{Identity, tell_left_out},
        lineage, revision,
        undo::SourceReplacement,
    },
    schema::bound,
    storage::{Staged, Store},
};

/// Parts of a transaction.
pub(super) struct ConvertCommitParts {
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
pub(super) fn commit_run(
    job: &ConvertJob<'_>,
    plan: &ConvertPlan,
    folder: &str,
    mut publication: Publication<'_>,
    made: RunOutput,
    mut report: ConvertReport,
) -> Result<ConvertReport> {
    let RunOutput { converted, tally, part_hashes, rejects, found: GateResults { groups, duplicates, .. } } = made;
    report.rejects = rejects.as_ref().map(|rejects| rejects.path.clone());
    report.set_others(outcome_counts(&tally, &converted), plan.similar);
    report.folder = Some(folder.to_owned());
    let store = job.dataset.store().as_ref();
    let ConvertCommitParts { mut staged, mut adds, segments, places, counts } =
        assemble_commit(store, plan, converted, &tally, rejects)?;
    counts.reconcile()?;
    let (table, duplicates) = duplicates.unzip();
    staged.extend(table);
    report.set_splits(&plan.settings, &adds);
    job.context.cancel.check()?;
    publication.publish_shards(adds.iter_mut(), staged)?;
    let indexes = version::PreparedIndexes::new(job.dataset, job.snapshot, &adds, &plan.settings.indexes)?;
    let pseudonymizer = job.pseudonymizer.as_ref();
    let sources = Fresh { inputs: &plan.inputs, hashes: &[], part_hashes: &part_hashes, tally: &tally, pseudonymizer };
    if plan.settings.limit.is_some() {
        report.sources = sources.source_rows().count() as u64;
    }
    let transaction = Transaction {
        arguments: plan.arguments.clone(),
        revisions: source_revisions(job),
        counts,
        adds,
        segments,
        places,
        sources: &sources,
        duplicates,
        numbers: Numbers::Fresh(counts.records_out),
        ..Transaction::new(
            publication.run_id().clone(),
            Operation::Convert,
            with_types(&plan.settings, plan.row_fields()),
        )
    };
    let snapshot = match plan.replaced.is_empty() {
        true => publication.commit(&transaction)?,
        false => {
            let (context, dataset, replaced) = (job.context, job.dataset, &plan.replaced);
            SourceReplacement { context, dataset, pseudonymizer, base: plan.base, replaced }
                .commit_replacement(transaction, publication)?
        }
    };
    report.shards_rewritten = snapshot.entry().counts.shards_added.saturating_sub(counts.shards_added);
    report.counts = snapshot.entry().counts;
    report.version = Some(snapshot.version());
    version::refresh_indexes(&snapshot, indexes, job.context.observer)?;
    if plan.replaced.is_empty() {
        tell_copies(job, &sources)?;
    } else {
        tell_left_out(job.context, &snapshot)?;
    }
    report.note_shares(&plan.settings, groups, job.context.observer);
    Ok(report)
}

/// Tells which new sources have the content of one that the dataset had under another name: they were renamed or
/// copied, and their records are there twice.
fn tell_copies(job: &ConvertJob<'_>, sources: &Fresh<'_>) -> Result<()> {
    let Some(before) = job.snapshot.filter(|_| job.options.identity == Identity::Path) else { return Ok(()) };
    let mut new: HashMap<(u64, u64), String> = HashMap::new();
    sources.each_row(&mut |row| {
        if !row.is_part_of_sample() && row.bytes > 0 && row.hash != 0 && row.records > 0 {
            new.entry((row.bytes, row.hash)).or_insert(row.name);
        }
        Ok(())
    })?;
    if new.is_empty() {
        return Ok(());
    }
    let (mut copies, mut first) = (0_u64, None);
    before.each_source(&mut |row| {
        if let (None, Some(name)) = (row.removed, new.remove(&(row.bytes, row.hash))) {
            copies += 1;
            first.get_or_insert((name, row.name));
        }
        Ok(())
    })?;
    if let Some((name, known)) = first {
        let others = if copies == 1 { String::new() } else { format!(" and {} more", copies - 1) };
        job.context.observer.event(Event::Note(format!(
            "`{name}`{others}: the dataset has the same content as `{known}`, so these records are in it twice; `remove` \
             takes one out, and --identity content skips renamed and copied inputs"
        )));
    }
    Ok(())
}

/// Returns the settings of a dataset after a run with these columns of rows, whose types bind later runs.
pub(super) fn with_types(settings: &Settings, fields: Option<&Fields>) -> Settings {
    let Some(fields) = fields else { return settings.clone() };
    let known = settings.types.clone().unwrap_or_default();
    let stored = ConvertSelection::new(settings, None).stored_columns(fields);
    let types = bound::types_after_run(&known, &stored);
    let retyped =
        bound::retyped_columns(&known, &types).map(str::to_owned).chain(settings.retyped.iter().cloned()).collect();
    Settings { types: Some(types), retyped, ..settings.clone() }
}

/// Returns the counts of a run that the log does not keep.
pub(super) fn outcome_counts(tally: &Tally, converted: &Converted) -> OutcomeCounts {
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
pub(super) fn assemble_commit(
    store: &dyn Store,
    plan: &ConvertPlan,
    converted: Converted,
    tally: &Tally,
    rejects: Option<Staged>,
) -> Result<ConvertCommitParts> {
    let Converted { shards, records, segments, places, staged: placed, .. } = converted;
    let mut staged: Vec<Staged> = Vec::new();
    let finished = shards.iter().map(|finished| (finished.meta(), finished.md5));
    staged.extend(indexes::of_folders(store, &plan.settings.indexes, finished)?);
    let fields = plan.fields_to_keep();
    let folders: BTreeSet<&str> = shards.iter().map(FinishedShard::folder).collect();
    for folder in folders {
        if let Some(fields) = &fields {
            staged.push(types::stage_types(store, folder, fields)?);
        }
        if let Some(constants) = &plan.constants {
            staged.push(constants::stage_constants(store, folder, constants)?);
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
    Ok(ConvertCommitParts { staged, adds, segments: segments.refs, places, counts })
}

/// Returns the revisions of the sources; each repository occurs once.
pub(super) fn source_revisions(job: &ConvertJob<'_>) -> Vec<Revision> {
    let sources = job.options.sources.iter().filter(|source| *source != STDIN);
    let folders = sources.filter_map(|source| lineage::source_folder_or_file(job.context, source));
    revision::all_revisions(folders, job.pseudonymizer.as_ref())
}
