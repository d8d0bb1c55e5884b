//! Reports of `compact` and `vacuum` of a Delta table.

use std::{collections::BTreeMap, io::Write};

use super::{
    SOME_LINES, clean, format_speed, group_digits, plural, write_amounts, write_count, write_line, write_more,
};
use crate::{
    error::Result,
    ops::{compact::TableReport, inspect::TableFacts, vacuum::TableVacuumReport},
    units::Size,
};

/// Writes what `compact` did to a Delta table.
pub(in crate::cli) fn write_table(w: &mut dyn Write, report: &TableReport, verbose: bool) -> Result<()> {
    if report.dry_run || verbose {
        for choice in &report.choices {
            let into = |group| format!("{} into {group:06}", choice.choice);
            let what = choice.group.map_or_else(|| choice.choice.to_owned(), into);
            let size = Size(choice.bytes).to_string();
            writeln!(w, "{what:<18} {size:>10}  {}  {}", clean(&choice.file), choice.reason)?;
        }
    }
    if report.dry_run {
        return Ok(writeln!(
            w,
            "would leave {} of {} files",
            group_digits(report.files_after),
            group_digits(report.files_before)
        )?);
    }
    if report.files_removed == 0 {
        return write_unchanged(w, report);
    }
    writeln!(w, "v{} of {}", report.version, clean(&report.table))?;
    let merged = plural(report.files_removed, "file");
    let (added, left, before) = (report.files_added, report.files_after, report.files_before);
    let what = if report.order.is_some() { "rewritten" } else { "merged" };
    write_line(
        w,
        what,
        format_args!(
            "{merged} into {}, {} of {} files left",
            group_digits(added),
            group_digits(left),
            group_digits(before)
        ),
    )?;
    if let Some(order) = &report.order {
        write_line(w, "order", clean(order))?;
    }
    write_count(
        w,
        "skipped",
        report.groups_dropped,
        "merge",
        "(other programs changed the files first, or one is damaged)",
    )?;
    write_line(
        w,
        "records",
        format_args!("{} in, {} out", group_digits(report.records_in), group_digits(report.records_out)),
    )?;
    if report.vectors_removed > 0 {
        let vectors = plural(report.vectors_removed, "deletion vector");
        write_line(
            w,
            "deleted",
            format_args!("{}, by {vectors}, are not in the new files", plural(report.rows_dropped, "row")),
        )?;
    }
    write_line(w, "bytes", format_args!("{} in, {} out", Size(report.bytes_in), Size(report.bytes_out)))?;
    let copied = report.bytes_copied + report.bytes_spliced;
    write_amounts(w, "work", &[("copied", copied), ("re-encoded", report.bytes_reencoded)])?;
    write_line(w, "old files", "stay for older versions until the table is vacuumed")?;
    write_line(w, "took", format_speed(report.bytes_in, report.seconds))
}

/// Writes the report of a compaction that left all files as they were.
fn write_unchanged(w: &mut dyn Write, report: &TableReport) -> Result<()> {
    writeln!(w, "nothing to do: {}, still at v{}", plural(report.files_before, "file"), report.version)?;
    let mut reasons = BTreeMap::<&str, u64>::new();
    report.choices.iter().for_each(|choice| *reasons.entry(choice.reason).or_default() += 1);
    for (reason, files) in reasons {
        write_line(w, "kept", format_args!("{}: {reason}", plural(files, "file")))?;
    }
    Ok(())
}

/// Writes what `inspect` found in the log of a Delta table.
pub(in crate::cli) fn write_table_facts(w: &mut dyn Write, facts: &TableFacts) -> Result<()> {
    write_line(w, "table", format_args!("at v{}, {}", facts.version, plural(facts.partitions, "partition")))?;
    if facts.vectors > 0 {
        let files = plural(facts.vectors, "file");
        write_line(
            w,
            "deleted",
            format_args!("{} in {files} with deletion vectors", plural(facts.deleted_rows, "row")),
        )?;
    }
    Ok(())
}

/// Writes what `vacuum` did to a Delta table.
pub(in crate::cli) fn write_table_vacuum(w: &mut dyn Write, report: &TableVacuumReport, verbose: bool) -> Result<()> {
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    if report.dry_run || verbose {
        for file in report.deleted.iter().take(limit) {
            let (kind, size) = (file.kind.name(), Size(file.bytes).to_string());
            writeln!(w, "delete {kind:<15} {size:>10}  {}", clean(&file.path))?;
        }
        write_more(w, report.deleted.len(), limit, "file")?;
    }
    let files = plural(report.files_deleted, "file");
    if report.dry_run {
        writeln!(w, "would delete {files}, {}", Size(report.bytes_deleted))?;
    } else if report.files_deleted == 0 {
        writeln!(w, "nothing to delete, still at v{}", report.version)?;
    } else {
        writeln!(w, "v{} of {}", report.version, clean(&report.table))?;
        write_line(w, "deleted", format_args!("{files}, {}", Size(report.bytes_deleted)))?;
    }
    for (kind, amount) in &report.by_kind {
        writeln!(w, "    {:<16} {}, {}", kind.name(), group_digits(amount.objects), Size(amount.bytes))?;
    }
    write_line(w, "readable", format_args!("v{} and later", report.retained_from))?;
    write_count(w, "kept", report.files_retained, "removed file", "within the retention")?;
    write_count(w, "kept", report.files_added_again, "file", "that another program added again")?;
    let unknown = format!("that the log does not name, {}", Size(report.bytes_unknown));
    write_count(w, "kept", report.files_unknown, "file", &unknown)?;
    for path in report.unlisted.iter().take(limit) {
        write_line(w, "unreadable", format_args!("{} (kept)", clean(path)))?;
    }
    write_more(w, report.unlisted.len(), limit, "place")?;
    for path in report.unknown.iter().take(if verbose { usize::MAX } else { 0 }) {
        write_line(w, "unknown", clean(path))?;
    }
    Ok(())
}
