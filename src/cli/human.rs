//! Reports for people. Nothing parses them, so they may change; programs use `--json`.

mod convert;
mod inspect;
mod plan;
mod table;
mod training;
mod undo;

use std::{borrow::Cow, collections::BTreeMap, fmt::Display, io::Write};

pub(super) use self::{
    convert::{write_committed, write_convert},
    inspect::{write_inspect, write_sizes},
    plan::{nothing_planned, write_plan},
    table::{write_table, write_table_vacuum},
    undo::{write_block, write_remove, write_revert},
};
use crate::{
    codec::Codec,
    dataset::{Entry, Settings, ShardMeta, Snapshot},
    error::{Error, Result},
    format::OutputFormat,
    ops::{
        adopt::AdoptReport,
        compact::CompactReport,
        diff::{Change, DiffReport, RecordChange, RecordPlace},
        drift::DriftReport,
        erase::EraseReport,
        manifest::{ErasedReport, SummaryReport},
        parent::{ErasedAs, ParentReport},
        shell_word,
        tag::TagReport,
        vacuum::VacuumReport,
        verify::VerifyReport,
    },
    units::{Size, group_digits},
};

/// Maximum number of ids in a suggested command.
const SOME_IDS: usize = 5;

/// Returns text without control characters and changes of direction, since file names and ids are untrusted.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let tricky = |c: char| {
        c.is_control()
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
    };
    if !text.contains(tricky) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if tricky(c) { '\u{fffd}' } else { c }).collect())
}

/// Writes an error with its place, causes and hints.
pub(super) fn write_error(w: &mut dyn Write, error: &Error) -> Result<()> {
    writeln!(w, "error: {}", clean(error.message()))?;
    let place = error.place().to_string();
    if !place.is_empty() {
        writeln!(w, "   at: {}", clean(&place))?;
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        writeln!(w, "cause: {}", clean(&inner.to_string()))?;
        cause = inner.source();
    }
    for hint in error.hints() {
        writeln!(w, " hint: {}", clean(hint))?;
    }
    Ok(())
}

/// Writes an indented line: a label and a text.
pub(super) fn write_line(w: &mut dyn Write, label: &str, text: impl Display) -> Result<()> {
    Ok(writeln!(w, "  {label:<10} {text}")?)
}

/// Writes an indented line with a count and what it is about; nothing if the count is 0.
fn write_count(w: &mut dyn Write, label: &str, n: u64, noun: &str, about: &str) -> Result<()> {
    if n == 0 { Ok(()) } else { write_line(w, label, format_args!("{} {about}", plural(n, noun))) }
}

/// Writes amounts of bytes with what was done with them; those of 0 bytes are omitted.
pub(super) fn write_amounts(w: &mut dyn Write, label: &str, amounts: &[(&str, u64)]) -> Result<()> {
    let done = amounts.iter().filter(|(_, bytes)| *bytes > 0).map(|(what, bytes)| format!("{what} {}", Size(*bytes)));
    let done: Vec<String> = done.collect();
    if done.is_empty() { Ok(()) } else { write_line(w, label, done.join(", ")) }
}

/// Writes what became of the id index.
fn merged_segments(w: &mut dyn Write, report: &CompactReport) -> Result<()> {
    if report.segments_merged > 0 {
        let merged = plural(report.segments_merged, "segment");
        write_line(w, "id index", format_args!("merged {merged}, {} left", group_digits(report.segments_after)))?;
    }
    Ok(())
}

/// Writes what `adopt` did.
pub(super) fn write_adopt(w: &mut dyn Write, report: &AdoptReport, verbose: bool) -> Result<()> {
    let counts = &report.counts;
    let dataset = clean(&report.dataset);
    if let (Some(format), true) = (report.format, counts.shards_added > 0) {
        writeln!(w, "{} of {dataset}", report.version.unwrap_or_default())?;
        let place = match &report.folder {
            None => "in place".to_owned(),
            Some(folder) if report.files_copied == 0 => format!("linked into {folder}/"),
            Some(folder) => format!("{} copied into {folder}/, the rest linked", group_digits(report.files_copied)),
        };
        let shards = plural(counts.shards_added, &format!("{} shard", format.title()));
        write_line(w, "adopted", format_args!("{shards}, {}, {place}", Size(counts.bytes_out)))?;
        let ids = match report.records_with_id {
            0 => "the id is the origin, file#row".to_owned(),
            all if all == counts.records_out => "with ids".to_owned(),
            some => format!("{} with ids (the others have the origin, file#row)", group_digits(some)),
        };
        let subjects = match report.records_with_subject {
            0 => String::new(),
            some => format!(", {} with subject ids", group_digits(some)),
        };
        write_line(w, "records", format_args!("{}, {ids}{subjects}", group_digits(counts.records_out)))?;
        if report.folder.is_none() {
            let note = "`compact` and `erase` replace these files, and `vacuum` deletes what they replaced; \
                        to keep them, adopt into another folder with --out";
            write_line(w, "originals", note)?;
        }
    } else {
        let version = report.version.map_or_else(String::new, |v| format!(", still at {v}"));
        writeln!(w, "nothing to do: {} already adopted{version}", plural(report.files_unchanged, "file"))?;
    }
    if counts.shards_added > 0 {
        write_count(w, "skipped", report.files_unchanged, "file", "already adopted")?;
    }
    write_count(w, "ignored", report.files_ignored, "file", "(not shards)")?;
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    for skipped in report.skipped.iter().take(limit) {
        write_line(w, "skipped", format_args!("{}: {}", clean(&skipped.file), clean(&skipped.problem)))?;
    }
    write_more(w, report.skipped.len(), limit, "file")?;
    if counts.shards_added > 0 {
        write_line(w, "took", format_speed(counts.bytes_in, report.seconds))?;
    }
    Ok(())
}

/// Writes what `compact` did.
pub(super) fn write_compact(w: &mut dyn Write, report: &CompactReport, verbose: bool) -> Result<()> {
    let counts = &report.counts;
    if report.dry_run || verbose {
        for choice in &report.choices {
            let what = match choice.group {
                Some(group) if choice.choice == "merge" => format!("merge into {group:06}"),
                _ => choice.choice.to_owned(),
            };
            writeln!(
                w,
                "{what:<18} {:>10}  {}  {}",
                Size(choice.bytes).to_string(),
                clean(&choice.shard),
                choice.reason
            )?;
        }
    }
    if report.dry_run {
        writeln!(
            w,
            "the dataset would have {} instead of {}",
            plural(report.shards_after, "shard"),
            group_digits(report.shards_before)
        )?;
        if report.segments_merged > 0 {
            writeln!(w, "would merge {} of the id index", plural(report.segments_merged, "segment"))?;
        }
        return Ok(());
    }
    if counts.shards_added == 0 {
        return write_unchanged(w, report);
    }
    writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
    writeln!(
        w,
        "  {:<10} {} into {}; the dataset now has {}",
        match report.order {
            Some(_) => "sorted",
            None if counts.shards_added > counts.shards_removed => "divided",
            None => "merged",
        },
        plural(counts.shards_removed, "shard"),
        group_digits(counts.shards_added),
        plural(report.shards_after, "shard"),
    )?;
    if let Some(order) = &report.order {
        write_line(w, "order", clean(order))?;
    }
    if report.groups_dropped > 0 {
        write_count(w, "skipped", report.groups_dropped, "merge", "(another run replaced the shards first)")?;
    }
    merged_segments(w, report)?;
    write_line(
        w,
        "records",
        format_args!("{} in, {} out", group_digits(counts.records_in), group_digits(counts.records_out)),
    )?;
    write_line(w, "bytes", format_args!("{} in, {} out", Size(counts.bytes_in), Size(counts.bytes_out)))?;
    write_amounts(w, "work", &[("copied", report.bytes_copied), ("re-encoded", report.bytes_reencoded)])?;
    write_count(w, "replaced", counts.shards_removed, "shard", &format!("kept until `vacuum`: {READ_LIVE}"))?;
    write_line(w, "took", format_speed(counts.bytes_in, report.seconds))?;
    Ok(())
}

/// How to read a dataset whose folder has shards of older versions, whose records a glob would count twice.
pub(super) const READ_LIVE: &str = "read what `manifest --list` names, not all files";

/// Writes the report of a compaction that left all shards as they were.
fn write_unchanged(w: &mut dyn Write, report: &CompactReport) -> Result<()> {
    if report.segments_merged > 0 {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
        write_line(w, "shards", format_args!("{} unchanged", group_digits(report.shards_after)))?;
        return merged_segments(w, report);
    }
    let order = report.order.as_deref().map_or_else(String::new, |order| format!(" {}", clean(order)));
    writeln!(w, "nothing to do: {}{order}, still at {}", plural(report.shards_before, "shard"), report.version)?;
    let mut reasons = BTreeMap::<&str, u64>::new();
    report.choices.iter().for_each(|choice| *reasons.entry(choice.reason).or_default() += 1);
    for (reason, shards) in reasons {
        write_line(w, "kept", format_args!("{}: {reason}", plural(shards, "shard")))?;
    }
    Ok(())
}

/// Writes the summary of a version.
pub(super) fn write_summary(w: &mut dyn Write, report: &SummaryReport) -> Result<()> {
    let settings = &report.settings;
    writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
    write_line(w, "committed", format_args!("{} by {}", report.committed_at, report.operation))?;
    write_line(w, "records", group_digits(report.totals.records))?;
    write_line(
        w,
        "shards",
        format_args!(
            "{}, {}",
            shards_of(report.totals.shards, settings.shard_format, settings.codec),
            Size(report.totals.bytes)
        ),
    )?;
    let [smallest, median, largest] = report.shard_bytes.map(Size);
    let range = match smallest == largest {
        true => format!("{smallest} each"),
        false => format!("{smallest} to {largest}, median {median}"),
    };
    write_line(w, "sizes", format_args!("{range}, target {}", settings.target_shard))?;
    if report.older_shards > 0 {
        let older = plural(report.older_shards, "shard");
        write_line(
            w,
            "older",
            format_args!("{older} of older versions in the same folder; `--list --paths` names the live ones"),
        )?;
    }
    write_line(w, "sources", group_digits(report.sources))?;
    write_parent(w, report.parent.as_ref(), &report.dataset)?;
    self::write_settings(w, settings)?;
    for (tag, version) in report.tags.iter().take(SOME_LINES) {
        write_line(w, "tag", format_args!("{} is {version}", clean(tag)))?;
    }
    write_more(w, report.tags.len(), SOME_LINES, "tag")
}

/// Writes the settings of a dataset that later runs keep.
fn write_settings(w: &mut dyn Write, settings: &Settings) -> Result<()> {
    let id = if settings.id.is_empty() { "origin or sample key".to_owned() } else { settings.id.join(",") };
    write_line(w, "record id", clean(&id))?;
    if let Some(subject) = &settings.subject {
        write_line(w, "subject", clean(subject))?;
    }
    if !settings.keys.is_first_dot() {
        write_line(w, "key", clean(&settings.keys.to_string()))?;
    }
    if let Some(classes) = &settings.classes {
        write_line(w, "classes", named_classes(classes))?;
    }
    if let Some(split) = &settings.split {
        write_line(w, "split", clean(&split.to_string()))?;
    }
    if let Some(dedup) = &settings.dedup {
        write_line(w, "dedup", format_args!("by {}", clean(&dedup.to_string())))?;
    }
    if let Some(seed) = settings.shuffle {
        write_line(w, "order", format_args!("shuffled with seed {seed}"))?;
    }
    if settings.hashes.has_proofs() {
        write_line(w, "proofs", "of ids: `manifest --prove`")?;
    }
    if let Some(private) = &settings.private {
        let sources = if private.redacted_sources { ", names of sources too" } else { "" };
        write_line(
            w,
            "ids",
            format_args!("private ({}), key {}{sources}", private.mode.name(), clean(&private.check)),
        )?;
    }
    Ok(())
}

/// Returns the number of classes, and the names of the first ones with their numbers.
fn named_classes(classes: &[String]) -> String {
    let named = classes.iter().enumerate().take(SOME_LINES).map(|(number, name)| format!("{number} {}", clean(name)));
    let more = if classes.len() > SOME_LINES { ", ..." } else { "" };
    format!("{}: {}{more}", group_digits(classes.len() as u64), named.collect::<Vec<_>>().join(", "))
}

/// Writes the dataset that another one was cut from, and who was erased there since.
fn write_parent(w: &mut dyn Write, parent: Option<&ParentReport>, dataset: &str) -> Result<()> {
    let Some(parent) = parent else { return Ok(()) };
    write_line(w, "parent", format_args!("{} of {}", parent.version, clean(&parent.dataset)))?;
    let Some(erased) = parent.erased.filter(|erased| *erased > 0) else { return Ok(()) };
    write_line(w, "erased", format_args!("the parent has erased {} that are here", plural(erased, "record")))?;
    let dataset = clean(dataset);
    let dataset = shell_word(&dataset);
    if parent.is_private {
        return write_line(w, "", format_args!("repeat the erasure here: `shardify erase {dataset} ID`"));
    }
    let option = |one: &ErasedAs| format!(" --{} {}", one.kind, shell_word(&clean(&one.id)));
    let ids: String = parent.erased_as.iter().take(SOME_IDS).map(option).collect();
    let more = if parent.erased_as.len() > SOME_IDS { " ..." } else { "" };
    write_line(w, "", format_args!("shardify erase {dataset}{ids}{more}"))?;
    write_line(w, "", "add --all-versions to erase from older versions as well")
}

/// Writes that a tag was set or deleted.
pub(super) fn write_tag(w: &mut dyn Write, report: &TagReport) -> Result<()> {
    let (tag, dataset) = (clean(&report.tag), clean(&report.dataset));
    if !report.changed {
        writeln!(w, "nothing to do: {} already has the tag {tag}, still at {}", report.tagged, report.version)?;
        return Ok(());
    }
    writeln!(w, "{} of {dataset}", report.version)?;
    if report.removed {
        write_line(w, "untagged", format_args!("{tag}, which was {}", report.tagged))?;
        if !report.readable {
            write_line(w, "vacuumed", format_args!("{} is no longer readable: only its tag kept it", report.tagged))?;
        }
    } else {
        write_line(w, "tagged", format_args!("{} as {tag}", report.tagged))?;
    }
    Ok(())
}

/// Writes the live shards.
pub(super) fn write_shards(w: &mut dyn Write, shards: &[ShardMeta]) -> Result<()> {
    for shard in shards {
        writeln!(
            w,
            "{:>10}  {:>12} records  {:>6}  {}",
            Size(shard.bytes).to_string(),
            group_digits(shard.records),
            shard.version.to_string(),
            clean(&shard.path)
        )?;
    }
    Ok(())
}

/// Writes versions; `newest` knows which of them can be read, and their tags.
pub(super) fn write_history(w: &mut dyn Write, entries: &[Entry], newest: &Snapshot) -> Result<()> {
    for entry in entries {
        let c = &entry.counts;
        let state = if newest.can_read(entry.version) { "" } else { "  vacuumed" };
        let tags: Vec<&str> =
            newest.tags().iter().filter(|(_, v)| **v == entry.version).map(|(t, _)| t.as_str()).collect();
        let tags = if tags.is_empty() { String::new() } else { format!("  [{}]", clean(&tags.join(", "))) };
        let counts = [
            (c.records_filtered, "filtered"),
            (c.records_deduplicated, "duplicate"),
            (c.records_erased, "erased"),
            (c.records_removed, "removed"),
            (c.records_restored, "restored"),
        ];
        let others: String = counts
            .into_iter()
            .filter(|(records, _)| *records > 0)
            .map(|(records, how)| format!("  {} {how}", group_digits(records)))
            .collect();
        writeln!(
            w,
            "{:<6} {:.0}  {:<8} {:>12} in {:>12} out {:>8} rejected {:>10}  +{} -{} shards{others}{state}{tags}",
            entry.version.to_string(),
            entry.committed_at,
            entry.operation,
            group_digits(c.records_in),
            group_digits(c.records_out),
            group_digits(c.records_refused()),
            Size(c.bytes_out).to_string(),
            c.shards_added,
            c.shards_removed
        )?;
        for revision in &entry.revisions {
            let branch = revision.reference.as_deref().map_or_else(String::new, |name| format!(" ({name})"));
            let text = format!("{} {}{branch}  {}", revision.system, revision.revision, revision.source);
            writeln!(w, "       {}", clean(&text))?;
        }
    }
    Ok(())
}

/// Number of changed records that are shown.
pub(super) const SOME_RECORDS: usize = 5;

/// Number of lines of one kind before the rest is only counted.
const SOME_LINES: usize = 20;

/// Writes how values drifted.
pub(super) fn write_drift(w: &mut dyn Write, report: &DriftReport, verbose: bool) -> Result<()> {
    writeln!(w, "{} to {} of {}", report.from, report.to, clean(&report.dataset))?;
    let beyond = if report.volume_beyond { "  beyond" } else { "" };
    let (before, after) = (group_digits(report.records_before), group_digits(report.records_after));
    write_line(w, "records", format_args!("{before} to {after}, {:+.1}%{beyond}", report.volume_change * 100.0))?;
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    let width = report.columns.iter().take(limit).map(|c| c.column.chars().count()).max().unwrap_or(0).min(40);
    for column in report.columns.iter().take(limit) {
        let psi = column.psi.map_or_else(|| "     -".to_owned(), |psi| format!("{psi:6.4}"));
        let nulls = match (column.nulls_before, column.nulls_after) {
            (0.0, 0.0) => String::new(),
            (before, after) => format!("  nulls {:.1}% to {:.1}%", before * 100.0, after * 100.0),
        };
        let beyond =
            if column.beyond.is_empty() { String::new() } else { format!("  beyond: {}", column.beyond.join(", ")) };
        writeln!(w, "  {:<width$}  {:<8}  psi {psi}{nulls}{beyond}", clean(&column.column), column.kind)?;
    }
    write_more(w, report.columns.len(), limit, "column")?;
    if let Some(note) = report.not_compared {
        write_line(w, "skipped", note)?;
    }
    let t = report.thresholds;
    let limits = format!("psi {}, nulls {}, records {}", t.psi, t.null_share, t.volume);
    let columns = plural(report.columns_compared, "column");
    match report.columns_beyond {
        0 if !report.drifted => writeln!(w, "no drift in {columns} ({limits})")?,
        n => writeln!(w, "drift: {n} of {columns} beyond the thresholds ({limits})")?,
    }
    Ok(())
}

/// Writes a record that was added, removed or changed.
pub(super) fn record_change(w: &mut dyn Write, change: &RecordChange) -> Result<()> {
    let id = clean(&change.record_id);
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => {
            let (place, other) = match (&before.hash, &after.hash) {
                (Some(hash), Some(other)) => (format!("hash {hash}"), other.clone()),
                _ => {
                    let place = |place: &RecordPlace| format!("{} row {}", clean(&place.shard), place.ordinal);
                    (place(before), place(after))
                }
            };
            writeln!(w, "{} record   {id}  {place} to {other}", change_sign(change.change))?;
        }
        (place, other) => {
            if let Some(place) = place.as_ref().or(other.as_ref()) {
                let shard = clean(&place.shard);
                writeln!(w, "{} record   {id}  {shard} row {}", change_sign(change.change), place.ordinal)?;
            }
        }
    }
    Ok(())
}

fn change_sign(change: Change) -> char {
    match change {
        Change::Added => '+',
        Change::Removed => '-',
        Change::Changed | Change::Rewritten => '~',
    }
}

/// Writes what changed between two versions; `some` are the first of the changed records.
pub(super) fn write_diff(w: &mut dyn Write, report: &DiffReport, some: &[RecordChange], verbose: bool) -> Result<()> {
    writeln!(w, "{} to {} of {}", report.from, report.to, clean(&report.dataset))?;
    let records = &report.records;
    write_line(
        w,
        "records",
        format_args!(
            "+{} -{} ~{}, {} moved, {} unchanged",
            group_digits(records.records_added),
            group_digits(records.records_removed),
            group_digits(records.records_changed),
            group_digits(records.records_moved),
            group_digits(records.records_unchanged)
        ),
    )?;
    write_line(
        w,
        "shards",
        format_args!(
            "+{} -{}, {} to {}",
            group_digits(report.shards_added),
            group_digits(report.shards_removed),
            group_digits(report.before.shards),
            group_digits(report.after.shards)
        ),
    )?;
    write_line(
        w,
        "bytes",
        format_args!(
            "+{} -{}, {} to {}",
            Size(report.bytes_added),
            Size(report.bytes_removed),
            Size(report.before.bytes),
            Size(report.after.bytes)
        ),
    )?;
    write_line(
        w,
        "sources",
        format_args!("+{} -{}", group_digits(report.sources_added), group_digits(report.sources_removed)),
    )?;
    for setting in &report.settings {
        let (from, to) = (setting.from.to_string(), setting.to.to_string());
        write_line(w, "setting", format_args!("{}: {} to {}", setting.setting, clean(&from), clean(&to)))?;
    }
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    for shard in report.shards.iter().take(limit) {
        let size = Size(shard.bytes).to_string();
        let (sign, records) = (change_sign(shard.change), group_digits(shard.records));
        writeln!(w, "{sign} shard    {size:>10}  {records:>12} records  {}", clean(&shard.shard))?;
    }
    write_more(w, report.shards.len(), limit, "shard")?;
    for source in report.sources.iter().take(limit) {
        let size = Size(source.bytes).to_string();
        let (sign, records) = (change_sign(source.change), group_digits(source.records));
        writeln!(w, "{sign} source   {size:>10}  {records:>12} records  {}", clean(&source.source))?;
    }
    write_more(w, report.sources.len(), limit, "source")?;
    some.iter().try_for_each(|change| record_change(w, change))?;
    let changed = records.records_added + records.records_removed + records.records_changed;
    let left = if verbose { 0 } else { changed - some.len() as u64 };
    if left > 0 {
        writeln!(w, "  ... {} more; -v or --json shows all", plural(left, "record"))?;
    }
    Ok(())
}

fn write_more(w: &mut dyn Write, lines: usize, limit: usize, what: &str) -> Result<()> {
    if lines > limit {
        writeln!(w, "  ... {} more; -v shows all", plural((lines - limit) as u64, what))?;
    }
    Ok(())
}

/// Writes what `vacuum` did.
pub(super) fn write_vacuum(w: &mut dyn Write, report: &VacuumReport, verbose: bool) -> Result<()> {
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    if report.dry_run || verbose {
        for object in report.deleted.iter().take(limit) {
            writeln!(
                w,
                "delete {:<11} {:>10}  {}",
                object.kind.name(),
                Size(object.bytes).to_string(),
                clean(&object.path)
            )?;
        }
        write_more(w, report.deleted.len(), limit, "object")?;
    }
    if report.dry_run {
        let objects = plural(report.objects_deleted, "object");
        writeln!(w, "would delete {objects}, {}", Size(report.bytes_deleted))?;
    } else if report.objects_deleted == 0 {
        writeln!(w, "nothing to delete, still at {}", report.version)?;
    } else {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
        write_line(
            w,
            "deleted",
            format_args!("{}, {}", plural(report.objects_deleted, "object"), Size(report.bytes_deleted)),
        )?;
    }
    for (kind, amount) in &report.by_kind {
        writeln!(w, "    {:<12} {}, {}", kind.name(), group_digits(amount.objects), Size(amount.bytes))?;
    }
    let expired = plural(report.versions_expired, "version");
    if report.versions_expired > 0 {
        write_line(w, "versions", format_args!("{expired} expired, readable from {}", report.readable_from))?;
    }
    write_count(w, "tagged", report.versions_tagged, "version", "kept")?;
    write_count(w, "kept", report.objects_young, "object", "younger than the retention")?;
    write_count(w, "kept", report.objects_in_use, "object", "that an active run may need")?;
    write_count(
        w,
        "abandoned",
        report.runs_abandoned,
        "run",
        "that did not finish; if still active, it will fail to commit",
    )?;
    for path in report.files_changed.iter().take(limit) {
        write_line(w, "changed", format_args!("{} (kept: differs from the adopted file)", clean(path)))?;
    }
    write_more(w, report.files_changed.len(), limit, "file")?;
    for path in report.unlisted.iter().take(limit) {
        write_line(w, "unreadable", format_args!("{} (kept)", clean(path)))?;
    }
    write_more(w, report.unlisted.len(), limit, "place")?;
    for path in report.foreign.iter().take(limit) {
        write_line(w, "foreign", clean(path))?;
    }
    write_more(w, report.foreign.len(), limit, "file")
}

/// Writes that an id was erased.
pub(super) fn write_erased(w: &mut dyn Write, id: &ErasedReport) -> Result<()> {
    let reason = id.reason.as_deref().map_or_else(String::new, |reason| format!("; reason: {}", clean(reason)));
    let records = plural(id.records, "record");
    Ok(writeln!(w, "`{}` was erased in {} ({records}{reason})", clean(&id.id), id.version)?)
}

/// Writes which older versions still have erased records.
fn older_versions(w: &mut dyn Write, report: &EraseReport) -> Result<()> {
    if let Some((from, to)) = report.kept_in {
        let versions = if from == to { format!("{from} keeps") } else { format!("{from} to {to} keep") };
        let until = match report.kept_by.as_slice() {
            [] => "until vacuumed".to_owned(),
            [name] => format!("until vacuumed, and as long as the tag `{}` is there", clean(name)),
            names => format!("until vacuumed, and as long as {} are there", plural(names.len() as u64, "tag")),
        };
        write_line(w, "older", format_args!("{versions} them {until}; --all-versions also erases there"))?;
    } else if report.all_versions && report.records_erased > 0 && !report.dry_run {
        write_line(w, "older", "versions no longer contain them")?;
    }
    Ok(())
}

/// Writes what `erase` did.
pub(super) fn write_erase(w: &mut dyn Write, report: &EraseReport, verbose: bool) -> Result<()> {
    let limit = if verbose { usize::MAX } else { SOME_LINES };
    let carried = report.ids.iter().filter(|id| id.records > 0).count() as u64;
    let records = format!("{} of {}", plural(report.records_erased, "record"), plural(carried, "id"));
    if report.dry_run {
        for shard in report.shards.iter().take(limit) {
            let state = if shard.live { "live" } else { "older versions" };
            writeln!(
                w,
                "rewrite {:>10} records  {}  ({state})",
                group_digits(shard.records_erased),
                clean(&shard.was)
            )?;
        }
        write_more(w, report.shards.len(), limit, "shard")?;
        let carried = report.ids.iter().flat_map(|id| id.carried_as.iter().map(move |carried| (id, carried)));
        for (id, (kind, records)) in carried.clone().take(limit) {
            writeln!(w, "erase   {:>10} records  with the {} {}", group_digits(*records), kind.name(), clean(&id.id))?;
        }
        write_more(w, carried.count(), limit, "id")?;
        writeln!(w, "would erase {records}, in {}", plural(report.shards_rewritten, "shard"))?;
    } else if report.records_erased > 0 || report.left_out > 0 {
        writeln!(w, "{} of {}", report.version, clean(&report.dataset))?;
        let bytes = Size(report.bytes_copied + report.bytes_reencoded);
        if report.records_erased > 0 {
            write_line(w, "erased", &records)?;
            let shards = plural(report.shards_rewritten, "shard");
            write_line(w, "rewritten", format_args!("{shards}, {bytes} read, compared after writing"))?;
        }
    } else {
        writeln!(w, "nothing to erase, still at {}", report.version)?;
    }
    write_count(w, "blocked", report.left_out, "record", "that had been omitted as a duplicate")?;
    let before: Vec<String> =
        report.ids.iter().filter(|id| id.records == 0).filter_map(|id| id.erased_in).map(|v| v.to_string()).collect();
    if let (Some(first), count) = (before.first(), before.len() as u64) {
        let whom = if count == 1 { format!("1 id, in {first}") } else { plural(count, "id") };
        write_line(w, "earlier", &whom)?;
    }
    older_versions(w, report)?;
    training::write_training_runs(w, &report.training_runs)?;
    if report.objects_deleted > 0 {
        write_line(w, "deleted", plural(report.objects_deleted, "object"))?;
    }
    write_count(w, "rejects", report.rejects_erased, "line", "removed")?;
    for path in report.not_searched.iter().take(limit) {
        let what = "is damaged and was not searched; restore it and erase again, or delete it";
        write_line(w, "warning", format_args!("{} {what}", clean(path)))?;
    }
    write_count(w, "sources", report.sources_erased, "source", "no longer listed")?;
    for name in report.names_kept.iter().take(limit) {
        write_line(w, "kept", format_args!("{}, which names an erased id", clean(name)))?;
    }
    if report.objects_unreferenced > 0 {
        let objects = plural(report.objects_unreferenced, "object");
        write_line(
            w,
            "left over",
            format_args!("{objects} that no version needs, possibly with erased records; `vacuum` deletes them"),
        )?;
    }
    if let Some(receipt) = &report.receipt {
        write_line(w, "receipt", clean(receipt))?;
    }
    if !report.dry_run && report.records_erased > 0 {
        write_line(w, "took", format_speed(report.bytes_copied + report.bytes_reencoded, report.seconds))?;
    }
    Ok(())
}

/// Writes what `verify` found; with `quiet` only damage.
pub(super) fn write_verify(w: &mut dyn Write, report: &VerifyReport, quiet: bool) -> Result<()> {
    for problem in &report.problems {
        writeln!(w, "damaged: {}: {}", clean(&problem.object), clean(&problem.problem))?;
    }
    if quiet {
        return Ok(());
    }
    let Some(version) = report.version else {
        writeln!(w, "nothing was committed to {} yet", clean(&report.dataset))?;
        if report.unreferenced > 0 {
            write_line(w, "left over", left_over(report))?;
        }
        return Ok(());
    };
    let verdict = if report.problems.is_empty() { "sound" } else { "damaged" };
    writeln!(w, "{version} of {} is {verdict}", clean(&report.dataset))?;
    let depth = if report.read_data { "every byte read" } else { "data not read; see --read-data" };
    write_line(
        w,
        "checked",
        format_args!(
            "{} in {}, {}, {} in the index ({depth})",
            plural(report.records, "record"),
            plural(report.shards, "shard"),
            Size(report.bytes),
            plural(report.ids, "id")
        ),
    )?;
    if report.unreferenced > 0 {
        write_line(w, "left over", left_over(report))?;
    }
    write_parent(w, report.parent.as_ref(), &report.dataset)
}

/// Returns what unreferenced objects are and what to do about them.
fn left_over(report: &VerifyReport) -> String {
    let objects = plural(report.unreferenced, "object");
    match report.erasures {
        0 => format!("{objects} that no version needs; harmless"),
        _ => format!("{objects} that no version needs, possibly with erased records; `vacuum` deletes them"),
    }
}

/// Returns a number of shards with their format and codec, such as `2 Parquet shards (zstd:1)`.
fn shards_of(shards: u64, format: OutputFormat, codec: Codec) -> String {
    let title = format.title();
    match codec {
        Codec::None => plural(shards, &format!("uncompressed {title} shard")),
        codec => format!("{} ({codec})", plural(shards, &format!("{title} shard"))),
    }
}

/// Returns a count with its noun, in the plural unless it is 1.
pub(super) fn plural(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {what}{s}", group_digits(n))
}

fn format_speed(bytes: u64, seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and for show")]
    let rate = (bytes as f64 / seconds.max(1e-9)) as u64;
    format!("{seconds:.2} s, {}/s", Size(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_drive_the_terminal() {
        assert_eq!(clean("plain é 漢"), "plain é 漢");
        assert_eq!(clean("a\x1b[31mb\u{202e}c"), "a\u{fffd}[31mb\u{fffd}c");
    }
}
