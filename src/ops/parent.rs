//! What a dataset that was cut from another one knows of its parent, and whether somebody was erased there who is here.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Context;
use crate::{
    dataset::{Dataset, IdKind, Parent, SidecarRow, Snapshot, SuppressList, stream_sidecar, token_of},
    error::Result,
    events::Cancel,
    id::Version,
    record::BATCH_ROWS,
};

/// Maximum number of ids in a report.
const MAX_IDS: usize = 10_000;

/// What somebody was erased as, in the terms of `erase`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ErasedAs {
    /// `record`, `subject` or `source`.
    pub kind: &'static str,
    /// The id as stored: a token if ids are private.
    pub id: String,
}

/// The parent of a dataset.
#[derive(Debug, Clone, Serialize)]
pub struct ParentReport {
    /// The dataset.
    pub dataset: String,
    /// The version.
    pub version: Version,
    /// Root of that version in hexadecimal, if it had one.
    pub root: Option<String>,
    /// Records that are here and that the parent has erased or blocks; absent if the parent was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erased: Option<u64>,
    /// What they were erased as, up to 10,000.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub erased_as: BTreeSet<ErasedAs>,
    /// Whether ids are private: then they cannot be given to `erase`.
    pub is_private: bool,
}

/// How far the parent is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Only what the dataset itself knows.
    Here,
    /// In a local folder, if it has erased since the dataset was cut from it.
    Nearby,
    /// Wherever it is.
    Anywhere,
}

/// Returns the parent of a snapshot's dataset; `None` if it was not cut from another one.
///
/// # Errors
/// When the dataset cannot be read. A parent that cannot be read is no error.
pub fn parent_report(context: &Context<'_>, snapshot: &Snapshot, look: Look) -> Result<Option<ParentReport>> {
    let first = snapshot.dataset().entries_up_to(Version(1))?;
    let Some(parent) = first.first().and_then(Parent::from_entry) else { return Ok(None) };
    let mut report = ParentReport {
        dataset: parent.origin.place.clone(),
        version: parent.origin.version,
        root: parent.root.clone(),
        erased: None,
        erased_as: BTreeSet::new(),
        is_private: snapshot.entry().settings.private.is_some(),
    };
    if let Some(newest) = open_parent(context, &parent, look) {
        let since = newest.entry().erasures.as_ref().is_some_and(|now| now.count > parent.erasures);
        // Without an erasure, the list need not be readable.
        let list =
            if look == Look::Anywhere || since { SuppressList::without_key(&newest).ok().flatten() } else { None };
        match list {
            Some(list) => count_erased(snapshot, &list, &context.cancel, &mut report)?,
            None => report.erased = Some(0),
        }
    }
    Ok(Some(report))
}

/// Opens the newest version of the parent, if it is still the dataset that it was.
fn open_parent(context: &Context<'_>, parent: &Parent, look: Look) -> Option<Snapshot> {
    let location = context.parse_location(&parent.origin.place).ok()?;
    if look == Look::Here || look == Look::Nearby && location.local_path().is_none() {
        return None;
    }
    let dataset: Dataset = context.open_dataset(&location).ok()?;
    let newest = dataset.newest_snapshot().ok().flatten()?;
    let id = dataset.transaction_of(Version(1)).ok()?;
    (id == parent.origin.id).then_some(newest)
}

/// Counts the live records that the parent blocks.
fn count_erased(snapshot: &Snapshot, list: &SuppressList, cancel: &Cancel, report: &mut ParentReport) -> Result<()> {
    let mut erased = 0;
    for shard in snapshot.live_shards()? {
        for rows in stream_sidecar(snapshot.dataset().store(), &shard.sidecar(), BATCH_ROWS)? {
            cancel.check()?;
            for one in rows?.iter().filter_map(|row| erased_as(list, row)) {
                erased += 1;
                if report.erased_as.len() < MAX_IDS {
                    report.erased_as.insert(one);
                }
            }
        }
    }
    report.erased = Some(erased);
    Ok(())
}

/// Returns what a record was erased as; `None` if it was not erased.
fn erased_as(list: &SuppressList, row: &SidecarRow) -> Option<ErasedAs> {
    let named = |kind, id: &str| Some(ErasedAs { kind, id: token_of(id).to_owned() });
    let has = |kind, id: &Option<String>| id.clone().filter(|id| list.has_stored(kind, id));
    if let Some(id) = has(IdKind::Subject, &row.subject_id) {
        return named("subject", &id);
    }
    if let Some(id) = has(IdKind::Record, &row.record_id) {
        return named("record", &id);
    }
    let origin = format!("{}#{}", row.source, row.row?);
    list.has_origin(&origin, None).then_some(ErasedAs { kind: "source", id: origin })
}
