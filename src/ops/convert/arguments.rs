//! The options that determined the content of a run's shards, as recorded in the log.

use std::collections::BTreeMap;

use arrow::datatypes::Fields;
use serde::Serialize;

use super::options::{ConvertOptions, LabelSource, SubjectSource};
use crate::{
    dataset::Settings,
    exec::cut::ShardEnds,
    plan::{memory::MemoryPlan, names::OnMissing},
    record::{dedup::DedupChoice, subject::SubjectsFrom},
    schema,
};

/// Returns the options that were given, by name; options left at their default are absent.
pub(super) fn log_arguments(
    options: &ConvertOptions,
    settings: &Settings,
    prescribed: Option<&Fields>,
    memory: MemoryPlan,
) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        if !value.is_empty() {
            out.insert(name.to_owned(), value);
        }
    };
    set("to", settings.shard_format.to_string());
    set("codec", settings.codec.to_string());
    set("target-shard", settings.target_shard.0.to_string());
    end_arguments(options).into_iter().for_each(|(name, text)| set(name, text));
    set("row-group", settings.row_group.0.to_string());
    set("range", memory.range_bytes.to_string());
    set("unit", memory.unit_bytes.to_string());
    set("columns", settings.columns.join(","));
    condition_arguments(options, settings).into_iter().for_each(|(name, text)| set(name, text));
    set("shuffle", settings.shuffle.map_or_else(String::new, |seed| seed.to_string()));
    set("splits", settings.split.as_ref().map_or_else(String::new, ToString::to_string));
    set("dedup", dedup_argument(options, settings));
    set("id", settings.id.join(","));
    set("subject", settings.subject.clone().unwrap_or_default());
    beside_sources(options, settings).into_iter().for_each(|(name, text)| set(name, text));
    set("from", options.from.map_or_else(String::new, |f| f.name().to_owned()));
    let is_redacted = settings.private.as_ref().is_some_and(|private| private.redacted_sources);
    for (key, value) in options.read.given_settings() {
        // The name of a stream is that of a source.
        let shown = if key == "name" && is_redacted { "private" } else { value };
        set(&format!("read.{key}"), shown.to_owned());
    }
    options.write.given_settings().for_each(|(key, value)| set(&format!("write.{key}"), value.to_owned()));
    let indexes: Vec<&str> = options.index.iter().flatten().map(|kind| kind.files().name).collect();
    set("index", indexes.join(","));
    set("schema", prescribed.map_or_else(String::new, schema::file::print_file));
    set("on-name", options.on_name.map_or_else(String::new, choice_word));
    set("missing", if options.missing == OnMissing::Skip { choice_word(options.missing) } else { String::new() });
    set("limit", settings.limit.map_or_else(String::new, |records| records.to_string()));
    set("overwrite", if options.overwrite { "true".into() } else { String::new() });
    set("hash-records", if settings.hash_records { "true".into() } else { String::new() });
    set(
        "type",
        options
            .types
            .iter()
            .map(|f| format!("{}={}", f.name(), schema::file::print_type(f)))
            .collect::<Vec<_>>()
            .join(","),
    );
    out
}

/// Returns the word of a choice, as it is stored and as users type it.
fn choice_word(choice: impl Serialize) -> String {
    serde_json::to_value(choice).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Returns the condition on rows, and what it was resolved to if it depends on the time. It may name ids, which the log
/// of private ids must not state.
fn condition_arguments(options: &ConvertOptions, settings: &Settings) -> Vec<(&'static str, String)> {
    let Some(filter) = &options.filter else { return Vec::new() };
    let shown = |text: &str| if settings.private.is_some() { "private".to_owned() } else { text.to_owned() };
    let resolved = (filter.given() != filter.resolved()).then(|| ("where-resolved", shown(filter.resolved())));
    std::iter::once(("where", shown(filter.given()))).chain(resolved).collect()
}

/// Returns which duplicates were omitted.
fn dedup_argument(options: &ConvertOptions, settings: &Settings) -> String {
    match (&options.dedup, &settings.dedup) {
        (_, None) => String::new(),
        (Some(DedupChoice::None), Some(_)) => "none".to_owned(),
        (_, Some(by)) => by.to_string(),
    }
}

/// Returns where shards end, if not at a target size.
fn end_arguments(options: &ConvertOptions) -> Vec<(&'static str, String)> {
    match options.ends {
        None => Vec::new(),
        Some(ShardEnds::Records(records)) => vec![("records-per-shard", records.to_string())],
        Some(ShardEnds::Parts(shards)) => vec![("shards", shards.to_string())],
        Some(ShardEnds::Even(shards)) => vec![("shards", shards.to_string()), ("even", "true".to_owned())],
    }
}

/// Returns where subjects and labels come from that are beside the sources, or in their paths.
fn beside_sources(options: &ConvertOptions, settings: &Settings) -> Vec<(&'static str, String)> {
    let is = |holds: bool| if holds { "true".to_owned() } else { String::new() };
    let pattern = match &settings.subjects_from {
        Some(SubjectsFrom::Path(pattern)) => pattern.to_string(),
        _ => String::new(),
    };
    let labels = match &options.labels {
        Some(LabelSource::None) => "none".to_owned(),
        source => is(source.is_some()),
    };
    vec![
        ("subject-from-path", pattern),
        ("subject-table", is(matches!(options.subjects, Some(SubjectSource::Table { .. })))),
        ("key", if settings.keys.is_first_dot() { String::new() } else { settings.keys.to_string() }),
        ("labels", labels),
        ("label-from-folder", is(settings.classes.is_some() && settings.label_column.is_none())),
        ("label-column", settings.label_column.clone().unwrap_or_default()),
    ]
}
