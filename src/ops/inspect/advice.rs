//! The command that `inspect` advises: how the source was read is part of it.

use std::collections::BTreeMap;

use super::report::{HIGH_SCORE, InspectOptions, InspectReport};
use crate::{
    ops::{convert, shell_word},
    scan::InputFormat,
    units::group_digits,
};

/// Sets the command to run next, and states its assumptions.
pub(super) fn set_advice(
    report: &mut InspectReport,
    options: &InspectOptions,
    shard_formats: usize,
    only_shards: bool,
    note: Option<String>,
) {
    set_command(report, options, shard_formats, only_shards, note);
    if let (Some(id), Some(_)) = (&report.id, report.command.as_ref().filter(|command| command.contains(" --id "))) {
        report.advice.push_str(&match report.id_unique_in {
            Some(records) => format!("; `{id}` is unique in all {} records", group_digits(records)),
            None => format!(
                "; `{id}` is unique in {} sampled records, and may repeat in others: the run counts those",
                group_digits(report.sampled_records)
            ),
        });
    }
}

/// Returns the options of the `convert` that is advised.
pub(super) fn convert_options(report: &InspectReport, options: &InspectOptions) -> convert::ConvertOptions {
    let is_of_files = report.formats.iter().any(|format| format.format == "files");
    convert::ConvertOptions {
        sources: vec![report.source.clone()],
        // A sample of files that are parts of samples may look like something else.
        from: options.from.or(is_of_files.then_some(InputFormat::FILES)),
        id: report.id.iter().cloned().collect(),
        subject: report.subject.clone(),
        read: settings_of(report, options)
            .iter()
            .filter_map(|(key, value)| format!("{key}={value}").parse().ok())
            .collect(),
        ..convert::ConvertOptions::default()
    }
}

/// Returns the settings of input formats that were given or follow from what was found, by key.
fn settings_of(report: &InspectReport, options: &InspectOptions) -> BTreeMap<String, String> {
    let given = options.read.given_settings().map(|(key, value)| (key.to_owned(), value.to_owned()));
    report.record_dim.iter().map(|dim| ("record-dim".to_owned(), dim.clone())).chain(given).collect()
}

fn set_command(
    report: &mut InspectReport,
    how: &InspectOptions,
    shard_formats: usize,
    only_shards: bool,
    note: Option<String>,
) {
    let source = shell_word(&report.source);
    let mut options: String = how.from.iter().map(|from| format!(" --from {}", from.name())).collect();
    for (key, value) in settings_of(report, how) {
        options.push_str(&format!(" --read {key}={}", shell_word(&value)));
    }
    if let Some(id) = &report.id {
        options.push_str(&format!(" --id {}", shell_word(id)));
    }
    if let Some(subject) = &report.subject {
        options.push_str(&format!(" --subject {}", shell_word(subject)));
    }
    if let Some(note) = note {
        report.advice = note;
        return;
    }
    match (shard_formats, only_shards) {
        (0, _) => {
            report.command = Some(format!("shardify convert {source}{options}"));
            report.advice = "makes shards of 128 MiB in ./shards".to_owned();
        }
        (1, true) if report.small_file_score > HIGH_SCORE => {
            let merge = "shardify compact shards";
            report.command = Some(format!("shardify adopt {source} --out shards{options} && {merge}"));
            report.advice = "links the files into ./shards and merges them; the source stays unchanged".to_owned();
        }
        (1, true) => {
            report.command = Some(format!("shardify adopt {source}{options}"));
            report.advice = "the files are large enough; this makes their records searchable by id".to_owned();
        }
        _ => report.advice = "several formats side by side: inspect each with a glob, such as '*.parquet'".to_owned(),
    }
}
