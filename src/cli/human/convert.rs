//! Report of `convert`.

use std::io::Write;

use super::{clean, count, line, plural, speed};
use crate::{
    error::Result,
    ops::convert::ConvertReport,
    units::{Size, grouped},
};

/// Writes what `convert` did.
pub(in crate::cli) fn convert(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    if report.dry_run {
        return planned(w, report);
    }
    version(w, report, &speed(report.counts.bytes_in, report.seconds))
}

/// Writes what the commit of a plan did. Its time is that of the commit alone, so there is no rate.
pub(in crate::cli) fn committed(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    version(w, report, &format!("{:.2} s for the commit", report.seconds))
}

/// Writes the version that a run made, its counts, and how long it took.
fn version(w: &mut dyn Write, report: &ConvertReport, took: &str) -> Result<()> {
    let counts = &report.counts;
    let dataset = clean(&report.dataset);
    if report.sources == 0 {
        let version = report.version.map_or_else(String::new, |v| format!(", still at {v}"));
        writeln!(w, "nothing to do: {} already converted{version}", plural(report.sources_unchanged, "source"))?;
        return skipped(w, report);
    }
    writeln!(w, "{} of {dataset}", report.version.unwrap_or_default())?;
    let (records, sources) = (plural(counts.records_in, "record"), plural(report.sources, "source"));
    line(w, "read", format_args!("{records} from {sources}, {}", Size(counts.bytes_in)))?;
    let shards = plural(counts.shards_added - report.shards_rewritten, "shard");
    let format = format!("{} {}, {}", report.format, report.codec, Size(counts.bytes_out));
    let folder = report.folder.as_deref().map_or_else(String::new, |f| format!(" in {f}/"));
    line(w, "written", format_args!("{} to {shards} of {format}{folder}", grouped(counts.records_out)))?;
    for split in &report.splits {
        let share = 100.0 * split.records as f64 / counts.records_out.max(1) as f64;
        let shards = plural(split.shards, "shard");
        line(w, "split", format_args!("{}: {} in {shards}, {share:.1} %", split.name, grouped(split.records)))?;
    }
    let erased = match counts.records_erased {
        0 => String::new(),
        erased => format!(", {} of them because they were erased before", grouped(erased)),
    };
    line(w, "rejected", format_args!("{}{erased}", grouped(counts.records_rejected)))?;
    line(w, "filtered", grouped(counts.records_filtered))?;
    line(w, "duplicate", grouped(counts.records_deduplicated))?;
    count(w, "replaced", counts.records_removed, "record", "of changed sources")?;
    if let Some(rejects) = &report.rejects {
        line(w, "rejects", format_args!("{dataset}/{rejects}"))?;
    }
    notes(w, report)?;
    skipped(w, report)?;
    line(w, "took", took)
}

/// Writes what a run would do.
fn planned(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    let dataset = clean(&report.dataset);
    writeln!(
        w,
        "would convert {} ({}) to {} of {}, in about {} of memory",
        plural(report.sources, "source"),
        Size(report.counts.bytes_in),
        report.format,
        report.codec,
        Size(report.memory_bytes)
    )?;
    if let Some(estimate) = &report.estimate {
        let (records, shards) = (plural(estimate.records, "record"), plural(estimate.shards, "shard"));
        let least = if estimate.compressed { "at least " } else { "" };
        line(w, "about", format_args!("{least}{records} in {shards}, {}", Size(estimate.bytes)))?;
    }
    if let Some(rejected) = report.estimate.and_then(|estimate| estimate.rejected).filter(|rejected| *rejected > 0) {
        line(w, "rejected", plural(rejected, "record"))?;
    }
    if let Some(folder) = &report.folder {
        line(w, "into", format_args!("{dataset}/{folder}/"))?;
    }
    incomplete(w, report)?;
    report
        .columns
        .iter()
        .try_for_each(|(name, data_type)| line(w, "column", format_args!("{}: {data_type}", clean(name))))?;
    if report.estimate.as_ref().is_some_and(|estimate| estimate.sampled) {
        line(w, "from", "the first records of each source: later ones may widen types, add columns or be rejected")?;
    }
    Ok(())
}

/// Writes counts of unusual input, such as padded records.
fn notes(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    count(w, "ignored", report.entries_ignored, "archive member", "(folders, devices, leftovers)")?;
    count(w, "blank", report.blank_lines, "line", "(not records)")?;
    count(w, "padded", report.records_padded, "record", "with fewer fields than the header")?;
    count(w, "repaired", report.records_repaired, "record", "(see the notes)")?;
    count(w, "skipped", report.lines_skipped, "line", "(not records)")?;
    count(w, "renamed", report.samples_renamed, "sample", "for readers that cannot handle their names")?;
    count(w, "repeated", report.ids_repeated, "record", "with the id of another record; --find shows all of them")?;
    let similar = "with a spelling variant of an erased id; --id-normalize skips them";
    count(w, "similar", report.records_similar, "record", similar)?;
    incomplete(w, report)
}

fn incomplete(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    count(w, "incomplete", report.samples_incomplete, "sample", "without a part that others have; see --missing")
}

fn skipped(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    if report.sources > 0 {
        count(w, "skipped", report.sources_unchanged, "source", "already converted")?;
    }
    count(w, "skipped", report.sources_changed, "source", "that changed")?;
    count(w, "skipped", report.sources_moved, "source", "known under another name")?;
    count(w, "skipped", report.sources_erased, "source", "of an erased subject or record")?;
    let reasons = "(hidden, leftovers, configuration, of another dataset, or links to folders)";
    count(w, "ignored", report.files_ignored, "file", reasons)
}
