//! The work of an erasure after its commit: deletes the replaced objects, cleans the files of rejects, writes the
//! receipt.
//!
//! An order, named by the log entry, contains everything this needs, so the next command that writes finishes an
//! interrupted erasure.

use std::collections::BTreeMap;

use super::{super::of_newest, receipt::Receipt, rejects, rejects::Words};
use crate::{
    dataset::{Dataset, DeletableObject, ErasureOrder, ObjectKind, Retention, Snapshot, Unfinished, without_used},
    error::Result,
    events::Event,
    id::Version,
    ops::Context,
    record::clutter::is_sign,
    storage::{SMALL, SYSTEM_FOLDER, for_each_waiting},
};

/// Versions of a snapshot that are readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Readable {
    from: Version,
    tags: BTreeMap<String, Version>,
    newest: Version,
}

impl Readable {
    pub(super) fn from_snapshot(newest: &Snapshot) -> Self {
        Self { from: newest.readable_from(), tags: newest.tags().clone(), newest: newest.version() }
    }
}

/// An erasure that was finished.
#[derive(Debug)]
pub(super) struct Finished {
    /// Path of the receipt, relative to the dataset.
    pub(super) path: String,
    pub(super) receipt: Receipt,
}

/// Finishes all interrupted erasures that the newest version names.
///
/// # Errors
/// When an order is missing or damaged, or the store fails.
pub(super) fn finish_all(context: &Context<'_>, newest: &Snapshot) -> Result<Vec<Finished>> {
    let dataset = newest.dataset();
    let mut finished = Vec::new();
    let Some(erasures) = &newest.entry().erasures else { return Ok(finished) };
    for unfinished in &erasures.unfinished {
        if unfinished.is_finished(dataset.store().as_ref())? {
            continue;
        }
        let order = unfinished.read_order(dataset)?;
        let words = Words::from_hashed(erasures.parse_salt()?, &order.words);
        let done = finish_one(context, dataset, unfinished, order, &words)?;
        context.observer.event(Event::Note(format!(
            "finished the interrupted erasure of {}; objects deleted: {}",
            unfinished.version,
            done.receipt.objects_deleted.len()
        )));
        finished.push(done);
    }
    Ok(finished)
}

/// Finishes one erasure.
///
/// # Errors
/// When the store fails.
pub(super) fn finish_one(
    context: &Context<'_>,
    dataset: &Dataset,
    unfinished: &Unfinished,
    order: ErasureOrder,
    words: &Words<'_>,
) -> Result<Finished> {
    let mut receipt = Receipt::of_value(order.receipt)?;
    let wanted = order.delete.len();
    // What the erasure's version refers to may be vacuumed by now, so the newest version decides.
    let allowed = of_newest(dataset, &mut |newest| without_used(newest, order.delete.clone()))?;
    let mut kept = wanted - allowed.len();
    let deleted = for_each_waiting(dataset.store().as_ref(), SMALL, &allowed, |object| {
        context.cancel.check()?;
        // An object that is missing was deleted by an interrupted run.
        Ok(object.delete(dataset)? || dataset.store().head(&object.path)?.is_none())
    })?;
    for (object, gone) in allowed.into_iter().zip(deleted) {
        if gone { receipt.objects_deleted.push(object.path) } else { kept += 1 }
    }
    if kept > 0 {
        context
            .observer
            .event(Event::Note(format!("objects not deleted because their paths now hold something else: {kept}")));
    }
    let searched = rejects::erase_all(dataset.store(), words)?;
    (receipt.rejects_erased, receipt.not_searched) = (searched.removed, searched.damaged);
    // The receipt states that they are deleted, so the deletions must survive a power failure.
    let others = ["rejects", "duplicates"].map(|folder| format!("{SYSTEM_FOLDER}/{folder}/x"));
    dataset.store().settle_deletions(&receipt.objects_deleted.iter().cloned().chain(others).collect::<Vec<_>>())?;
    receipt.version_after = unfinished.version;
    receipt.version_before = Version(unfinished.version.0.saturating_sub(1));
    receipt.root_after = dataset.root_of(receipt.version_after)?;
    receipt.root_before = dataset.root_of(receipt.version_before)?;
    if receipt.all_versions {
        receipt.objects_unreferenced = count_unreferenced(context, dataset);
    }
    let path = receipt.write(dataset.store().as_ref(), &unfinished.transaction)?;
    Ok(Finished { path, receipt })
}

/// Returns the number of objects that no version refers to; `None` if the dataset cannot be listed.
pub(super) fn count_unreferenced(context: &Context<'_>, dataset: &Dataset) -> Option<u64> {
    let all = Retention { cutoff: jiff::Timestamp::MAX, ..Retention::default() };
    match crate::dataset::find_unreferenced(dataset, &all) {
        // Objects with which runs describe themselves contain no records; the lease of this run is among them.
        Ok(found) => {
            let may_hold = |object: &&DeletableObject| {
                !object.committed && object.kind != ObjectKind::Intent && !is_sign(&object.facts.path)
            };
            Some(found.objects.iter().filter(may_hold).count() as u64)
        }
        Err(error) => {
            context.observer.event(Event::Note(format!("unreferenced objects could not be counted: {error}")));
            None
        }
    }
}
