//! What `convert` did.

use std::io::Write;

use super::{clean, plural, speed};
use crate::{
    error::Result,
    ops::convert::ConvertReport,
    units::{Size, grouped},
};

/// What `convert` did.
pub(in crate::cli) fn convert(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    let counts = &report.counts;
    let dataset = clean(&report.dataset);
    if report.dry_run {
        return planned(w, report);
    }
    if report.sources == 0 {
        let version = report.version.map_or_else(String::new, |v| format!(", still at {v}"));
        writeln!(w, "nothing to do: {} converted already{version}", plural(report.sources_unchanged, "source"))?;
        return skipped(w, report);
    }
    let version = report.version.unwrap_or_default();
    writeln!(w, "{version} of {dataset}")?;
    writeln!(
        w,
        "  read       {} from {}, {}",
        plural(counts.records_in, "record"),
        plural(report.sources, "source"),
        Size(counts.bytes_in)
    )?;
    let folder = report.folder.as_deref().map_or_else(String::new, |f| format!(" in {f}/"));
    writeln!(
        w,
        "  written    {} to {} of {} {}, {}{folder}",
        grouped(counts.records_out),
        plural(counts.shards_added - report.shards_rewritten, "shard"),
        report.format,
        report.codec,
        Size(counts.bytes_out)
    )?;
    let erased = match counts.records_erased {
        0 => String::new(),
        erased => format!(", {} of them because they were erased before", grouped(erased)),
    };
    writeln!(w, "  rejected   {}{erased}", grouped(counts.records_rejected))?;
    writeln!(w, "  duplicate  {}", grouped(counts.records_deduplicated))?;
    if counts.records_removed > 0 {
        writeln!(w, "  replaced   {} of the sources before they changed", plural(counts.records_removed, "record"))?;
    }
    if let Some(rejects) = &report.rejects {
        writeln!(w, "  rejects    {dataset}/{rejects}")?;
    }
    oddities(w, report)?;
    incomplete(w, report)?;
    skipped(w, report)?;
    writeln!(w, "  took       {}", speed(counts.bytes_in, report.seconds))?;
    Ok(())
}

/// Writes what a run would do.
fn planned(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    let counts = &report.counts;
    let dataset = clean(&report.dataset);
    writeln!(
        w,
        "would convert {} ({}) to {} of {}, in about {} of memory",
        plural(report.sources, "source"),
        Size(counts.bytes_in),
        report.format,
        report.codec,
        Size(report.memory_bytes)
    )?;
    if let Some(estimate) = &report.estimate {
        let (records, shards) = (plural(estimate.records, "record"), plural(estimate.shards, "shard"));
        writeln!(w, "  about      {records} in {shards}, {}", Size(estimate.bytes))?;
    }
    if let Some(folder) = &report.folder {
        writeln!(w, "  into       {dataset}/{folder}/")?;
    }
    incomplete(w, report)?;
    for (name, data_type) in &report.columns {
        writeln!(w, "  column     {}: {data_type}", clean(name))?;
    }
    Ok(())
}

/// Writes counts of unusual input, such as archive members that are no files and padded records; those that are 0 are left out.
fn oddities(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    if report.entries_passed_over > 0 {
        let entries = plural(report.entries_passed_over, "archive member");
        writeln!(w, "  passed     {entries} over (folders, links, devices)")?;
    }
    if report.blank_lines > 0 {
        writeln!(w, "  blank      {} (not records)", plural(report.blank_lines, "line"))?;
    }
    if report.records_padded > 0 {
        writeln!(w, "  padded     {} with fewer fields than the header", plural(report.records_padded, "record"))?;
    }
    if report.records_repaired > 0 {
        writeln!(w, "  repaired   {} (see the notes)", plural(report.records_repaired, "record"))?;
    }
    if report.lines_skipped > 0 {
        writeln!(w, "  skipped    {} (not records)", plural(report.lines_skipped, "line"))?;
    }
    if report.samples_renamed > 0 {
        writeln!(w, "  renamed    {} for readers that could not take them", plural(report.samples_renamed, "sample"))?;
    }
    if report.ids_repeated > 0 {
        let records = plural(report.ids_repeated, "record");
        writeln!(w, "  repeated   {records} with an id that another one has; --find shows all of them")?;
    }
    if report.records_similar > 0 {
        let records = plural(report.records_similar, "record");
        writeln!(w, "  similar    {records} with an id spelled like an erased one; --id-normalize keeps them out")?;
    }
    Ok(())
}

fn incomplete(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    if report.samples_incomplete > 0 {
        let samples = plural(report.samples_incomplete, "sample");
        writeln!(w, "  incomplete {samples} without a part that others have; see --missing")?;
    }
    Ok(())
}

fn skipped(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    if report.sources > 0 && report.sources_unchanged > 0 {
        writeln!(w, "  skipped    {} converted already", plural(report.sources_unchanged, "source"))?;
    }
    if report.sources_changed > 0 {
        writeln!(w, "  skipped    {} that changed", plural(report.sources_changed, "source"))?;
    }
    if report.sources_moved > 0 {
        writeln!(w, "  skipped    {} known under another name", plural(report.sources_moved, "source"))?;
    }
    if report.sources_erased > 0 {
        writeln!(w, "  left out   {}: somebody who was erased", plural(report.sources_erased, "source"))?;
    }
    if report.files_passed_over > 0 {
        writeln!(
            w,
            "  ignored    {} (hidden, configuration, of another dataset, or links to folders)",
            plural(report.files_passed_over, "file")
        )?;
    }
    Ok(())
}
