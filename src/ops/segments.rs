//! The part of `compact` that keeps lookups in the id index fast: segments of about the same size are merged.

use std::collections::BTreeMap;

use super::{Context, compact::report::CompactReport};
use crate::{
    dataset::{
        Counts, MergedSegment, Operation, Publication, SegmentMerge, Snapshot, Transaction, merge_into_one,
        segments_to_merge,
    },
    error::{Error, Kind, Result},
    events::Event,
    storage::Staged,
};

/// Merged segments to be named by a commit.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// Which segment replaces which.
    pub(super) merges: Vec<SegmentMerge>,
    /// Their buckets, which must be published before the commit.
    pub(super) staged: Vec<Staged>,
}

/// Returns the number of segments that a run would merge.
pub(super) fn to_merge(snapshot: &Snapshot) -> u64 {
    segments_to_merge(&snapshot.entry().segments).iter().map(|group| group.len() as u64).sum()
}

/// Merges segments of a size of which there are too many.
///
/// # Errors
/// When one of them is damaged, or the store fails.
pub(super) fn merge_segments(context: &Context<'_>, snapshot: &Snapshot) -> Result<Merged> {
    let groups = segments_to_merge(&snapshot.entry().segments);
    let mut all = Merged::default();
    if groups.is_empty() {
        return Ok(all);
    }
    let bytes = groups.iter().flatten().map(|segment| segment.bytes).sum();
    context.observer.event(Event::Phase { name: "merging the id index", bytes: Some(bytes) });
    for group in groups {
        let MergedSegment { inputs, output, staged } =
            merge_into_one(snapshot.dataset().store(), group, context.memory.0 / 2, &context.cancel)?;
        context.observer.event(Event::Read { bytes: output.bytes, records: output.pairs });
        let replaces = inputs.into_iter().map(|segment| segment.path).collect();
        all.merges.push(SegmentMerge { replaces, by: output });
        all.staged.extend(staged);
    }
    Ok(all)
}

/// Merges segments like [`merge_segments`] beside work that is worth a commit without them: if a segment is damaged,
/// none are merged, and the error is returned beside them.
///
/// # Errors
/// When the run is interrupted.
pub(super) fn merge_if_whole(context: &Context<'_>, snapshot: &Snapshot) -> Result<(Merged, Option<Error>)> {
    match merge_segments(context, snapshot) {
        Err(error) if error.kind() == Kind::Interrupted => Err(error),
        Err(error) => Ok((Merged::default(), Some(error))),
        Ok(merged) => Ok((merged, None)),
    }
}

/// Merges segments in a version of their own: if no shard is to be rewritten, or after a shard was rewritten.
///
/// # Errors
/// As [`merge_segments`], and when the commit fails.
pub(super) fn merge_alone(context: &Context<'_>, snapshot: &Snapshot, report: &mut CompactReport) -> Result<()> {
    let Merged { merges, staged } = merge_segments(context, snapshot)?;
    if merges.is_empty() {
        return Ok(());
    }
    context.cancel.check()?;
    let dataset = snapshot.dataset();
    let compaction = Transaction::for_compaction(snapshot, BTreeMap::new(), Counts::default(), Vec::new(), Vec::new());
    let mut publication = Publication::begin(dataset, &compaction.id, Operation::Compact, snapshot.version())?;
    publication.publish(staged)?;
    let merged = merges.iter().map(|merge| merge.replaces.len() as u64).sum();
    let committed = publication.commit(&Transaction { merges, ..compaction })?;
    report.version = committed.version();
    report.segments_merged = merged;
    report.segments_after = committed.entry().segments.len() as u64;
    Ok(())
}
