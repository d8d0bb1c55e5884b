//! Reports of `remove`, `revert`, `block` and `unblock`.

use std::io::Write;

use super::{SOME_LINES, clean, count, grouped, line, more, plural};
use crate::{
    error::Result,
    ops::{
        block::BlockReport,
        undo::{RemoveReport, RevertReport},
    },
};

/// Writes what `remove` did.
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
        line(w, "removed", format_args!("{records} of {sources}"))?;
    }
    for source in report.removed.iter().take(limit) {
        line(w, "source", format_args!("{} (from {})", clean(&source.uri), source.version))?;
    }
    more(w, report.removed.len(), limit, "source")?;
    let (dropped, rewritten) = (plural(report.shards_dropped, "shard"), plural(report.shards_rewritten, "shard"));
    line(w, "shards", format_args!("{rewritten} rewritten without them, {dropped} dropped"))?;
    if !report.dry_run {
        line(w, "left", plural(report.records_left, "record"))?;
        line(w, "kept", "in older versions until vacuumed; `shardify revert` restores them")?;
        line(w, "again", "the next `shardify convert` reads these sources again if it finds them")?;
    }
    Ok(())
}

/// Writes what `block` and `unblock` did.
pub(in crate::cli) fn block(w: &mut dyn Write, report: &BlockReport) -> Result<()> {
    let (changed, unchanged) = (report.changed.len() as u64, report.unchanged.len() as u64);
    let (done, known) = match report.lifted {
        true => ("allowed again", "were not blocked"),
        false => ("blocked", "already blocked"),
    };
    let would = if report.dry_run { "would be " } else { "" };
    if changed > 0 && !report.dry_run {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
    }
    if changed > 0 {
        line(w, "ids", format_args!("{would}{done}: {}", grouped(changed)))?;
    }
    if unchanged > 0 {
        line(w, "ids", format_args!("{known}: {}", grouped(unchanged)))?;
    }
    Ok(())
}

/// Writes what `revert` did.
pub(in crate::cli) fn revert(w: &mut dyn Write, report: &RevertReport) -> Result<()> {
    let (counts, to) = (&report.counts, report.to);
    if report.dry_run {
        writeln!(w, "would restore {to}")?;
    } else if report.version == to || counts.shards_added + counts.shards_removed == 0 {
        writeln!(w, "{} of {}: same content as {to}", report.version, clean(&report.dataset))?;
    } else {
        writeln!(w, "{} of {}: content of {to}", report.version, clean(&report.dataset))?;
    }
    line(w, "removed", plural(counts.records_removed, "record"))?;
    line(w, "restored", plural(counts.records_restored, "record"))?;
    count(w, "skipped", report.records_kept_out, "record", "erased since then")?;
    let (after, before) = (plural(report.records_after, "record"), grouped(report.records_before));
    line(w, "left", format_args!("{after} (before: {before})"))
}
