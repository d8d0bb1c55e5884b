//! Reports of `remove`, `revert`, `block` and `unblock`.

use std::io::Write;

use super::{SOME_LINES, clean, group_digits, plural, write_count, write_line, write_more};
use crate::{
    error::Result,
    ops::{
        block::BlockReport,
        undo::{RemoveReport, RevertReport},
    },
};

/// Writes what `remove` did.
pub(in crate::cli) fn write_remove(w: &mut dyn Write, report: &RemoveReport, verbose: bool) -> Result<()> {
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    let sources = plural(report.sources, "source");
    let records = plural(report.records, "record");
    if report.sources == 0 {
        return Ok(writeln!(w, "nothing to remove, still at {}", report.version)?);
    }
    if report.dry_run {
        writeln!(w, "would remove {records} of {sources}; {} left", group_digits(report.records_left))?;
    } else {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
        write_line(w, "removed", format_args!("{records} of {sources}"))?;
    }
    for source in report.removed.iter().take(limit) {
        write_line(w, "source", format_args!("{} (from {})", clean(&source.uri), source.version))?;
    }
    write_more(w, report.removed.len(), limit, "source")?;
    let (dropped, rewritten) = (plural(report.shards_dropped, "shard"), plural(report.shards_rewritten, "shard"));
    write_line(w, "shards", format_args!("{rewritten} rewritten without them, {dropped} dropped"))?;
    if !report.dry_run {
        write_line(w, "left", plural(report.records_left, "record"))?;
        write_line(w, "kept", "in older versions until vacuumed; `shardify revert` restores them")?;
        write_line(w, "again", "the next `shardify convert` reads these sources again if it finds them")?;
    }
    Ok(())
}

/// Writes what `block` and `unblock` did.
pub(in crate::cli) fn write_block(w: &mut dyn Write, report: &BlockReport) -> Result<()> {
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
        write_line(w, "ids", format_args!("{would}{done}: {}", group_digits(changed)))?;
    }
    if unchanged > 0 {
        write_line(w, "ids", format_args!("{known}: {}", group_digits(unchanged)))?;
    }
    Ok(())
}

/// Writes what `revert` did.
pub(in crate::cli) fn write_revert(w: &mut dyn Write, report: &RevertReport) -> Result<()> {
    let (counts, to) = (&report.counts, report.to);
    if report.dry_run {
        writeln!(w, "would restore {to}")?;
    } else if report.version == to || counts.shards_added + counts.shards_removed == 0 {
        writeln!(w, "{} of {}: same content as {to}", report.version, clean(&report.dataset))?;
    } else {
        writeln!(w, "{} of {}: content of {to}", report.version, clean(&report.dataset))?;
    }
    write_line(w, "removed", plural(counts.records_removed, "record"))?;
    write_line(w, "restored", plural(counts.records_restored, "record"))?;
    write_count(w, "skipped", report.records_kept_out, "record", "erased since then")?;
    let (after, before) = (plural(report.records_after, "record"), group_digits(report.records_before));
    write_line(w, "left", format_args!("{after} (before: {before})"))
}
