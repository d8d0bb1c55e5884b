//! What an erasure does after its commit: delete what the commit put out of use, clean rejects, write the receipt.
//!
//! All that it takes stands in an order that the entry names, so that an erasure which was killed is finished by whichever
//! command writes next.

use std::collections::BTreeMap;

use super::{super::of_newest, receipt::Receipt, rejects, rejects::Words};
use crate::{
    dataset::{Dataset, ErasureOrder, ObjectKind, Retention, Snapshot, Unfinished, Unneeded, without_used},
    error::Result,
    events::Event,
    id::Version,
    ops::Context,
    storage::SYSTEM_FOLDER,
};

/// What a snapshot knows of the versions that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Readable {
    from: Version,
    tags: BTreeMap<String, Version>,
    newest: Version,
}

impl Readable {
    pub(super) fn of(newest: &Snapshot) -> Self {
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

/// Finishes all erasures that were cut short, as the newest version tells of them.
///
/// # Errors
/// When an order is missing or damaged; when the store fails.
pub(super) fn all(context: &Context<'_>, newest: &Snapshot) -> Result<Vec<Finished>> {
    let dataset = newest.dataset();
    let mut finished = Vec::new();
    let Some(erasures) = &newest.entry().erasures else { return Ok(finished) };
    for unfinished in &erasures.unfinished {
        if unfinished.is_finished(dataset.store().as_ref())? {
            continue;
        }
        let order = unfinished.order(dataset)?;
        let words = Words::hidden(erasures.salt()?, &order.words);
        let done = one(context, dataset, unfinished, order, &words)?;
        context.observer.event(Event::Note(format!(
            "finished the erasure of {}, which was cut short; objects deleted: {}",
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
pub(super) fn one(
    context: &Context<'_>,
    dataset: &Dataset,
    unfinished: &Unfinished,
    order: ErasureOrder,
    words: &Words<'_>,
) -> Result<Finished> {
    let mut receipt = Receipt::of_value(order.receipt)?;
    let wanted = order.delete.len();
    // What the version of the erasure refers to may be vacuumed by now; what counts is the newest one.
    let allowed = of_newest(dataset, &mut |newest| without_used(newest, order.delete.clone()))?;
    let mut kept = wanted - allowed.len();
    for object in allowed {
        context.cancel.check()?;
        // What a run that was killed has deleted is not there any more.
        let gone = object.delete(dataset)? || dataset.store().head(&object.path)?.is_none();
        if gone { receipt.objects_deleted.push(object.path) } else { kept += 1 }
    }
    if kept > 0 {
        context.observer.event(Event::Note(format!(
            "objects that stayed, because something else is at their paths by now: {kept}"
        )));
    }
    receipt.rejects_erased = rejects::erase(dataset.store().as_ref(), words)?;
    // The receipt says that they are gone, so a loss of power must not bring them back.
    let rejects = format!("{SYSTEM_FOLDER}/rejects/x");
    dataset.store().settle_deletions(&receipt.objects_deleted.iter().cloned().chain([rejects]).collect::<Vec<_>>())?;
    receipt.version_after = unfinished.version;
    receipt.version_before = Version(unfinished.version.0.saturating_sub(1));
    receipt.root_after = dataset.root_of(receipt.version_after)?;
    receipt.root_before = dataset.root_of(receipt.version_before)?;
    if receipt.all_versions {
        receipt.objects_unreferenced = unreferenced(context, dataset);
    }
    let path = receipt.write(dataset.store().as_ref(), &unfinished.transaction)?;
    Ok(Finished { path, receipt })
}

/// How many objects no version refers to; not known where the dataset cannot be listed.
pub(super) fn unreferenced(context: &Context<'_>, dataset: &Dataset) -> Option<u64> {
    let all = Retention { cutoff: jiff::Timestamp::MAX, ..Retention::default() };
    match crate::dataset::unreferenced(dataset, &all) {
        // What runs say of themselves holds no records; the lease of this very run is among it.
        Ok(found) => {
            let may_hold = |object: &&Unneeded| !object.committed && object.kind != ObjectKind::Intent;
            Some(found.objects.iter().filter(may_hold).count() as u64)
        }
        Err(error) => {
            context.observer.event(Event::Note(format!("what no version refers to is not known: {error}")));
            None
        }
    }
}
