//! `report`: as text, as JSON, or as a page of HTML.

use std::io::Write;

use unicode_width::UnicodeWidthStr;

use super::{
    CommandSession,
    align::{self, pad_to_width},
    args::ReportArgs,
    exit::CommandOutcome,
    html,
    human::{self, clean, plural, write_line},
    json,
};
use crate::{
    error::Result,
    ops::{
        inspect::Bucket,
        report::{ColumnReport, PartReport, Report, ReportOptions, SizeBin, TopValue, build_report},
    },
    storage,
    units::{Size, group_digits},
};

/// Versions and rejects that are shown as text.
const SOME: usize = 10;
/// Columns of a name and of a value.
const NAME: usize = 28;
const VALUE: usize = 26;

impl CommandSession<'_> {
    pub(super) fn write_report(&self, args: &ReportArgs) -> Result<CommandOutcome> {
        let source = match &args.source {
            Some(source) => source.clone(),
            None => self.dataset_location(None)?.to_string(),
        };
        let options = ReportOptions { source, at: args.at.clone(), against: args.against.clone(), ids: args.ids };
        let found = build_report(&self.context, &options)?;
        self.progress.stop();
        let Some(file) = &args.html else {
            self.print_answer(|w| if self.global.json { as_json(w, &found) } else { write_text(w, &found) })?;
            return Ok(CommandOutcome::Done);
        };
        let page = html::page(&found);
        let bytes = page.len() as u64;
        storage::save_file(&self.context.parse_location(file)?, &self.context.settings, page.into_bytes().into())?;
        if self.global.json {
            self.print_answer(|w| as_json(w, &found))?;
        } else {
            self.print_report(|w| Ok(writeln!(w, "{}  {}", clean(file), Size(bytes))?))?;
        }
        Ok(CommandOutcome::Done)
    }
}

/// Writes objects with all numbers of the page.
fn as_json(w: &mut dyn Write, report: &Report) -> Result<()> {
    report.version_list.iter().try_for_each(|version| json::write_object(w, "version", version))?;
    report.shard_sizes.iter().try_for_each(|bin| json::write_object(w, "sizes", bin))?;
    report.record_sizes.iter().try_for_each(|bin| json::write_object(w, "record_sizes", bin))?;
    report.column_list.iter().try_for_each(|column| json::write_object(w, "column", column))?;
    report.parts.iter().try_for_each(|part| json::write_object(w, "part", part))?;
    if let Some(drift) = &report.drift {
        drift.columns.iter().try_for_each(|column| json::write_object(w, "drift_column", column))?;
        json::write_object(w, "drift", drift)?;
    }
    report.rejects.groups.iter().try_for_each(|group| json::write_object(w, "reject", group))?;
    report.folders.iter().try_for_each(|folder| json::write_object(w, "source_folder", folder))?;
    report.media.pictures.iter().try_for_each(|picture| json::write_object(w, "picture", picture))?;
    let mut summary = serde_json::to_value(report).unwrap_or_default();
    summary["rejects"] = serde_json::json!(report.rejects);
    json::write_summary(w, &summary)
}

/// Writes the report for a terminal.
fn write_text(w: &mut dyn Write, report: &Report) -> Result<()> {
    let version = report.version.map_or_else(String::new, |version| format!("{version} of "));
    writeln!(w, "{version}{}", clean(&report.source))?;
    if let Some(at) = &report.committed_at {
        write_line(w, "committed", at)?;
    }
    let about = if report.records_exact { "" } else { "~" };
    if let Some(records) = report.records {
        write_line(w, "records", format_args!("{about}{}", group_digits(records)))?;
    }
    let files = plural(report.files, if report.version.is_some() { "shard" } else { "file" });
    let codec = report.codec.as_deref().map_or_else(String::new, |codec| format!(" {codec}"));
    write_line(w, "files", format_args!("{files} of {}{codec}, {}", report.format, Size(report.bytes)))?;
    if report.version.is_some() {
        write_line(w, "sources", group_digits(report.sources))?;
    }
    if report.damaged > 0 {
        write_line(w, "damaged", plural(report.damaged, "file"))?;
    }
    write_sizes(w, "sizes", &report.shard_sizes, "files")?;
    let heading = format!("sizes of records, of {}", report.record_sizes_from);
    write_sizes(w, &heading, &report.record_sizes, "records")?;
    write_versions(w, report)?;
    write_columns(w, report)?;
    for part in &report.parts {
        let all = plural(part.samples, "sample");
        writeln!(w, "  {:<12} {all}, {}, {}", clean(&part.extension), Size(part.bytes), part.media)?;
        if !part.classes.is_empty() {
            writeln!(w, "{:15}{}", "", class_shares(part))?;
        }
    }
    write_rejects(w, report)?;
    if let Some(drift) = &report.drift {
        writeln!(w, "drift")?;
        human::write_drift(w, drift, false)?;
    }
    if !report.hidden.is_empty() {
        let names = report.hidden.iter().map(|name| clean(name)).collect::<Vec<_>>().join(", ");
        let why =
            if report.is_private { "because ids are private" } else { "because they hold ids (--ids shows them)" };
        writeln!(w, "not shown, {why}: {names}")?;
    }
    Ok(())
}

fn write_sizes(w: &mut dyn Write, heading: &str, bins: &[SizeBin], noun: &str) -> Result<()> {
    if bins.is_empty() {
        return Ok(());
    }
    writeln!(w, "{heading}")?;
    let bucket = |bin: &SizeBin| Bucket { from: bin.from, files: bin.count, bytes: bin.bytes };
    human::write_sizes(w, &bins.iter().map(bucket).collect::<Vec<_>>(), noun)
}

/// Returns the most frequent classes with their shares.
pub(super) fn class_shares(part: &PartReport) -> String {
    let share = |count: u64| 100.0 * count as f64 / part.samples.max(1) as f64;
    let one = |class: &TopValue| format!("{} ({:.1} %)", clean(&class.value), share(class.count));
    part.classes.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn write_versions(w: &mut dyn Write, report: &Report) -> Result<()> {
    if report.version_list.is_empty() {
        return Ok(());
    }
    writeln!(w, "versions")?;
    let hidden = report.version_list.len().saturating_sub(SOME);
    if hidden > 0 {
        writeln!(w, "  ... {} before", plural(report.versions - SOME as u64, "version"))?;
    }
    for version in &report.version_list[hidden..] {
        let tags = if version.tags.is_empty() { String::new() } else { format!("  {}", version.tags.join(", ")) };
        writeln!(
            w,
            "  {:<5} {}  {:<8} {:>13} records {:>9}{}",
            version.version.to_string(),
            version.committed_at,
            version.operation,
            group_digits(version.totals.records),
            Size(version.totals.bytes).to_string(),
            clean(&tags)
        )?;
    }
    Ok(())
}

fn write_columns(w: &mut dyn Write, report: &Report) -> Result<()> {
    if !report.column_list.is_empty() || !report.parts.is_empty() {
        let sample = if report.sample_is_all { "all records" } else { report.sample.as_str() };
        writeln!(w, "values in {sample}")?;
    }
    let names = report.column_list.iter().map(|column| clean(&column.column).width());
    let width = names.max().unwrap_or(0).min(NAME);
    for column in &report.column_list {
        let nulls = match column.null_share {
            0.0 => String::new(),
            share => format!("  {:.1}% null", share * 100.0),
        };
        let name = pad_to_width(&column.column, width);
        writeln!(w, "  {name}  {}{nulls}{}", clean(&column.data_type), column_range(column))?;
        let top: Vec<String> = column
            .top
            .iter()
            .take(3)
            .map(|top| format!("{} ({})", cut_to_line(&top.value, VALUE), group_digits(top.count)))
            .collect();
        if !top.is_empty() && column.bins.len() != 1 {
            writeln!(w, "  {:width$}  {}", "", top.join(", "))?;
        }
    }
    let shown = report.column_list.len();
    write_more(w, usize::try_from(report.columns).unwrap_or(shown), shown, "column")
}

/// Writes how many lines are not shown.
fn write_more(w: &mut dyn Write, all: usize, shown: usize, what: &str) -> Result<()> {
    if all > shown {
        writeln!(w, "  ... {} more", plural((all - shown) as u64, what))?;
    }
    Ok(())
}

/// Returns the range of a column; that of a sample has a sign.
fn column_range(column: &ColumnReport) -> String {
    let about = if column.range_exact { "" } else { "~" };
    match (&column.min, &column.max) {
        (Some(min), Some(max)) => format!("  {about}{} to {}", cut_to_line(min, VALUE), cut_to_line(max, VALUE)),
        _ => String::new(),
    }
}

/// Returns as much of a text as fits, on one line.
fn cut_to_line(text: &str, width: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    align::cut_to_width(&clean(&text), width)
}

fn write_rejects(w: &mut dyn Write, report: &Report) -> Result<()> {
    let rejects = &report.rejects;
    if rejects.records == 0 {
        return Ok(());
    }
    writeln!(w, "rejected  {}", plural(rejects.records, "record"))?;
    for group in rejects.groups.iter().take(SOME) {
        writeln!(w, "  {:>9}  {}", group_digits(group.records), clean(&group.reason))?;
        if let Some(example) = group.examples.first() {
            let source = example.source.as_deref().unwrap_or_default();
            let place = example.line.map_or_else(|| format!("row {}", example.row), |line| format!("line {line}"));
            writeln!(w, "             {}, {place}: {}", clean(source), clean(&example.reason))?;
        }
    }
    write_more(w, rejects.groups.len(), SOME, "reason")
}
