//! What `remove`, `revert`, `block` and `unblock` did.

use std::io::Write;

use super::{SOME_LINES, clean, grouped, more, plural};
use crate::{
    error::Result,
    ops::{block::BlockReport, remove::RemoveReport, revert::RevertReport},
};

/// What `remove` did.
pub(in crate::cli) fn remove(w: &mut dyn Write, report: &RemoveReport, verbose: bool) -> Result<()> {
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    let sources = plural(report.sources, "source");
    let records = plural(report.records, "record");
    if report.sources == 0 {
        return Ok(writeln!(w, "nothing to remove, still at {}", report.version)?);
    }
    if report.dry_run {
        writeln!(w, "would remove {records} of {sources}; {} left", grouped(report.records_left))?;
    } else {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
        writeln!(w, "  removed    {records} of {sources}")?;
    }
    for source in report.removed.iter().take(limit) {
        writeln!(w, "  source     {} (from {})", clean(&source.uri), source.version)?;
    }
    more(w, report.removed.len(), limit, "source")?;
    let (dropped, rewritten) = (plural(report.shards_dropped, "shard"), plural(report.shards_rewritten, "shard"));
    writeln!(w, "  shards     {rewritten} rewritten without them, {dropped} dropped")?;
    if !report.dry_run {
        writeln!(w, "  left       {}", plural(report.records_left, "record"))?;
        writeln!(w, "  kept       in older versions until vacuumed; `shardify revert` restores them")?;
        writeln!(w, "  again      `shardify convert` takes these sources in again wherever it finds them")?;
    }
    Ok(())
}

/// What `block` and `unblock` did.
pub(in crate::cli) fn block(w: &mut dyn Write, report: &BlockReport) -> Result<()> {
    let (changed, unchanged) = (report.changed.len() as u64, report.unchanged.len() as u64);
    let (done, known) = match report.lifted {
        true => ("may come in again", "not on the list"),
        false => ("kept out from now on", "kept out already"),
    };
    let would = if report.dry_run { "would be " } else { "" };
    if changed > 0 && !report.dry_run {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
    }
    if changed > 0 {
        writeln!(w, "  ids        {would}{done}: {}", grouped(changed))?;
    }
    if unchanged > 0 {
        writeln!(w, "  ids        {known}: {}", grouped(unchanged))?;
    }
    Ok(())
}

/// What `revert` did.
pub(in crate::cli) fn revert(w: &mut dyn Write, report: &RevertReport) -> Result<()> {
    let (counts, to) = (&report.counts, report.to);
    if report.dry_run {
        writeln!(w, "would go back to {to}")?;
    } else if report.version == to || counts.shards_added + counts.shards_removed == 0 {
        writeln!(w, "{} of {}: holds what {to} held", report.version, clean(&report.dataset))?;
    } else {
        writeln!(w, "{} of {}, as {to} was", report.version, clean(&report.dataset))?;
    }
    writeln!(w, "  removed    {}", plural(counts.records_removed, "record"))?;
    writeln!(w, "  restored   {}", plural(counts.records_restored, "record"))?;
    if report.records_kept_out > 0 {
        writeln!(w, "  kept out   {}: erased since", plural(report.records_kept_out, "record"))?;
    }
    Ok(writeln!(
        w,
        "  left       {} (before: {})",
        plural(report.records_after, "record"),
        grouped(report.records_before)
    )?)
}
