//! Report of `convert`.

use std::io::Write;

use super::{clean, format_speed, plural, shards_of, write_count, write_line};
use crate::{
    codec::Codec,
    error::Result,
    ops::convert::ConvertReport,
    units::{Size, group_digits},
};

/// Writes what `convert` did.
pub(in crate::cli) fn write_convert(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    if report.dry_run {
        return write_planned(w, report);
    }
    write_version(w, report, &format_speed(report.counts.bytes_in, report.seconds))
}

/// Writes what the commit of a plan did. Its time is that of the commit alone, so there is no rate.
pub(in crate::cli) fn write_committed(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    write_version(w, report, &format!("{:.2} s for the commit", report.seconds))
}

/// Writes the version that a run made, its counts, and how long it took.
fn write_version(w: &mut dyn Write, report: &ConvertReport, took: &str) -> Result<()> {
    let counts = &report.counts;
    let dataset = clean(&report.dataset);
    if report.sources == 0 {
        let version = report.version.map_or_else(String::new, |v| format!(", still at {v}"));
        writeln!(w, "nothing to do: {} already converted{version}", plural(report.sources_unchanged, "source"))?;
        return write_skipped(w, report);
    }
    writeln!(w, "{} of {dataset}", report.version.unwrap_or_default())?;
    let (records, sources) = (plural(counts.records_in, "record"), plural(report.sources, "source"));
    write_line(w, "read", format_args!("{records} from {sources}, {}", Size(counts.bytes_in)))?;
    let shards = shards_of(counts.shards_added - report.shards_rewritten, report.format, report.codec);
    let folder = report.folder.as_deref().map_or_else(String::new, |f| format!(" in {f}/"));
    write_line(
        w,
        "written",
        format_args!("{} to {shards}, {}{folder}", group_digits(counts.records_out), Size(counts.bytes_out)),
    )?;
    for split in &report.splits {
        let share = 100.0 * split.records as f64 / counts.records_out.max(1) as f64;
        let shards = plural(split.shards, "shard");
        write_line(
            w,
            "split",
            format_args!("{}: {} in {shards}, {share:.1} %", split.name, group_digits(split.records)),
        )?;
    }
    write_line(w, "rejected", group_digits(counts.records_refused()))?;
    write_count(w, "skipped", counts.records_erased, "record", "(erased earlier)")?;
    write_line(w, "filtered", group_digits(counts.records_filtered))?;
    write_line(w, "duplicate", group_digits(counts.records_deduplicated))?;
    write_count(w, "replaced", counts.records_removed, "record", "of earlier runs")?;
    if let Some(rejects) = &report.rejects {
        write_line(w, "rejects", format_args!("{dataset}/{rejects}"))?;
    }
    write_notes(w, report)?;
    write_skipped(w, report)?;
    write_line(w, "took", took)
}

/// Writes what a run would do.
fn write_planned(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    let dataset = clean(&report.dataset);
    writeln!(
        w,
        "would convert {} ({}) to {} ({}), with about {} of memory",
        plural(report.sources, "source"),
        Size(report.counts.bytes_in),
        report.format.title(),
        if report.codec == Codec::None { "uncompressed".to_owned() } else { report.codec.to_string() },
        Size(report.memory_bytes)
    )?;
    if let Some(estimate) = &report.estimate {
        let (records, shards) = (plural(estimate.records, "record"), plural(estimate.shards, "shard"));
        let least = if estimate.compressed { "at least " } else { "" };
        write_line(w, "about", format_args!("{least}{records} in {shards}, {}", Size(estimate.bytes)))?;
    }
    if let Some(rejected) = report.estimate.and_then(|estimate| estimate.rejected).filter(|rejected| *rejected > 0) {
        write_line(w, "rejected", plural(rejected, "record"))?;
    }
    if let Some(folder) = &report.folder {
        write_line(w, "into", format_args!("{dataset}/{folder}/"))?;
    }
    write_incomplete(w, report)?;
    report
        .columns
        .iter()
        .try_for_each(|(name, data_type)| write_line(w, "column", format_args!("{}: {data_type}", clean(name))))?;
    if report.estimate.as_ref().is_some_and(|estimate| estimate.sampled) {
        write_line(
            w,
            "from",
            "the first records of each source: later ones may widen types, add columns or be rejected",
        )?;
    }
    Ok(())
}

/// Writes counts of unusual input, such as padded records.
fn write_notes(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    write_count(w, "ignored", report.entries_ignored, "archive member", "(folders, devices, leftovers)")?;
    write_count(w, "blank", report.blank_lines, "line", "(not records)")?;
    write_count(w, "padded", report.records_padded, "record", "with fewer fields than the header")?;
    write_count(w, "repaired", report.records_repaired, "record", "(see the notes)")?;
    write_count(w, "skipped", report.lines_skipped, "line", "(not records)")?;
    write_count(w, "renamed", report.samples_renamed, "sample", "for readers that cannot handle their names")?;
    write_count(
        w,
        "repeated",
        report.ids_repeated,
        "record",
        "with the id of another record; --find shows all of them",
    )?;
    let similar = "with a spelling variant of an erased id; --id-normalize skips them";
    write_count(w, "similar", report.records_similar, "record", similar)?;
    write_incomplete(w, report)
}

fn write_incomplete(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    write_count(w, "incomplete", report.samples_incomplete, "sample", "without a part that others have; see --missing")
}

fn write_skipped(w: &mut dyn Write, report: &ConvertReport) -> Result<()> {
    if report.sources > 0 {
        write_count(w, "skipped", report.sources_unchanged, "source", "already converted")?;
    }
    write_count(w, "skipped", report.sources_changed, "source", "that changed")?;
    write_count(w, "skipped", report.sources_moved, "source", "known under another name")?;
    write_count(w, "skipped", report.sources_erased, "source", "of an erased subject or record")?;
    let reasons = "(hidden, leftovers, configuration, of another dataset, or links to folders)";
    write_count(w, "ignored", report.files_ignored, "file", reasons)
}
