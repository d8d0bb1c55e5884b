//! What `inspect` says about files that can be converted, but seldom well as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::inspect::{InspectReport, InspectedColumn};
use crate::{
    error::Error,
    format::{
        OutputFormat,
        files::{Samples, TreeFile as _},
    },
    scan::{self, InputFormat, RecordSource, ScanResult, SourceFile},
    units::{Size, group_digits},
};

/// Uncompressed bytes of a row group from which on readers need much memory for it.
const HUGE_ROW_GROUP: u64 = 512 << 20;

/// Extensions of pictures and recordings, which usually have labels.
const MEDIA: [&str; 12] = ["jpg", "jpeg", "png", "gif", "bmp", "tif", "tiff", "webp", "wav", "flac", "mp3", "ogg"];

/// Names as many of some files as fit on a line.
fn such_as(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [one, rest @ ..] => format!("`{one}` and {} more", rest.len()),
    }
}

/// Returns what is wrong with files whatever they contain, and with what could not be listed.
pub(super) fn of_files(found: &ScanResult) -> Vec<String> {
    let files = &found.files;
    let named = |wanted: &dyn Fn(&SourceFile) -> bool| -> Vec<&str> {
        files.iter().filter(|file| wanted(file)).map(SourceFile::name).collect()
    };
    let mut out = Vec::new();
    let empty = named(&|file| !file.is_store() && file.bytes() == 0);
    if !empty.is_empty() {
        out.push(format!("{}: empty", such_as(&empty)));
    }
    let archives = named(&|file| scan::is_foreign_archive(file.name()));
    if !archives.is_empty() {
        out.push(format!(
            "{}: archives of a kind that is not read; unpack them to convert what is in them",
            such_as(&archives)
        ));
    }
    out.extend(found.faults.first().map(Error::to_line));
    out
}

/// Returns which names of files state another format than the content has.
pub(super) fn of_names(sources: &[RecordSource], shards: &BTreeMap<OutputFormat, Vec<SourceFile>>) -> Vec<String> {
    let of_shard = |format: OutputFormat, file: &SourceFile| {
        let format = InputFormat::from(format);
        scan::contradiction_note(file.name(), "", format)
    };
    let of_shards = shards.iter().flat_map(|(format, files)| files.iter().filter_map(|file| of_shard(*format, file)));
    let mut all = sources.iter().filter_map(scan::misnamed_note).chain(of_shards);
    let Some(first) = all.next() else { return Vec::new() };
    let others = all.count();
    vec![if others == 0 { first } else { format!("{first}; and {others} more like this") }]
}

/// Returns what is wrong with samples of files: parts that are missing, and labels.
pub(super) fn of_samples(files: &[SourceFile], samples: &Samples) -> Vec<String> {
    let parts = samples.column_names(files);
    let count = samples.len();
    let of_kinds = |sample: usize| samples.get(sample, files).file_indexes().count();
    let lacking = (0..count).filter(|sample| of_kinds(*sample) < parts.len()).count();
    let mut out = Vec::new();
    if lacking > 0 {
        let (lacking, count) = (group_digits(lacking as u64), group_digits(count as u64));
        let parts = parts.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
        out.push(format!(
            "{lacking} of {count} samples lack a part that others have ({parts}); --missing skip leaves them out"
        ));
        return out;
    }
    let is_media = |part: &String| MEDIA.contains(&part.to_ascii_lowercase().as_str());
    if parts.len() == 1 && parts.iter().all(is_media) {
        let folders: BTreeSet<&str> =
            files.iter().map(|file| file.path().rsplit_once('/').map_or("", |(f, _)| f)).collect();
        let way = match folders.len() {
            2.. => "--label-from-folder labels them by their folders, --labels FILE by a table",
            _ => "--labels FILE joins a table with them",
        };
        out.push(format!("the samples have no labels: {way}"));
    }
    out
}

/// Returns what is wrong with the row groups of Parquet, given the uncompressed size of the largest.
pub(super) fn of_row_groups(largest: u64) -> Option<String> {
    (largest > HUGE_ROW_GROUP).then(|| {
        format!("row groups of up to {}: readers decode one at once; `convert` makes them 64 MiB", Size(largest))
    })
}

/// Returns what is wrong with the sizes and the ids of a whole source.
pub(super) fn of_report(
    report: &InspectReport,
    high_score: u64,
    is_id: &dyn Fn(&InspectedColumn) -> bool,
) -> Vec<String> {
    let mut out = Vec::new();
    if report.files > 1 && report.small_file_score > high_score {
        let share = match report.small_file_score {
            99.. => "nearly all".to_owned(),
            score => format!("some {score} %"),
        };
        let (small, files) = (group_digits(report.small_files), group_digits(report.files));
        out.push(format!("{small} of {files} files are small: opening files takes {share} of the time to read them"));
    }
    let damaged: u64 = report.formats.iter().map(|format| format.damaged).sum();
    if damaged > 0 {
        out.push(format!(
            "{} cannot be read; --on-error skip leaves them out",
            if damaged == 1 { "1 file".to_owned() } else { format!("{} files", group_digits(damaged)) }
        ));
    }
    let is_record_id = |column: &&InspectedColumn| is_id(column) && report.subject.as_ref() != Some(&column.column);
    let repeating = report.columns.iter().filter(is_record_id).find(|column| !column.unique);
    if let (Some(column), None, 2..) = (repeating, &report.id, report.sampled_records) {
        let why = if column.nulls > 0.0 { "has nulls" } else { "repeats" };
        out.push(format!("`{}` looks like an id and {why}: records with one id are found together", column.column));
    }
    out
}
