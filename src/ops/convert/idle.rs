//! A run that finds no new sources: options that would have been wrong are errors all the same, and options without
//! effect are said.

use std::collections::HashSet;

use arrow::datatypes::{Field, Fields};

use super::{arguments::log_arguments, consent, job::ConvertJob};
use crate::{
    dataset::{Operation, Settings, Snapshot},
    error::{Error, Result},
    events::Event,
    id::Version,
    record::{dedup::DedupChoice, filter::Filter, path::field_at},
    schema,
};

/// Arguments that only concern how sources are read and what becomes of their records.
const OF_SOURCES: [&str; 8] = ["from", "where", "type", "dedup", "shuffle", "shards", "even", "records-per-shard"];

/// Maximum number of earlier commits whose columns are looked up.
const COMMITS: usize = 64;

/// Checks the options of a run whose sources were all converted before.
///
/// # Errors
/// When they contradict the dataset, or name a column that it does not have.
pub(super) fn check_options(job: &ConvertJob<'_>, settings: &Settings) -> Result<()> {
    let Some(snapshot) = job.snapshot else { return Ok(()) };
    let old = &snapshot.entry().settings;
    job.check_settings(old, settings)?;
    check_columns(job, snapshot, settings)?;
    let note = |text: String| job.context.observer.event(Event::Note(text));
    for (what, then, now) in consent::minor_changes(old, settings) {
        let way = match what {
            "target-shard" => "`shardify reshard` cuts its shards anew",
            _ => "for records that it has, convert into another dataset with --out",
        };
        note(format!("the dataset's --{what} stays {then}, not {now}: there are no new sources; {way}"));
    }
    let unused = without_effect(job, snapshot, settings)?;
    if !unused.is_empty() {
        note(format!(
            "sources that were converted before are not read again, so {} had no effect; to convert them anew, name \
             another dataset with --out",
            unused.join(", ")
        ));
    }
    Ok(())
}

/// Returns an error if an option names a column that the dataset does not have.
fn check_columns(job: &ConvertJob<'_>, snapshot: &Snapshot, settings: &Settings) -> Result<()> {
    let options = job.options;
    let types = options.types.iter().map(|field: &Field| field.name().as_str());
    let tested = options.filter.as_ref().map(Filter::columns).unwrap_or_default();
    let duplicates = match &options.dedup {
        Some(DedupChoice::By(by)) => by.columns(),
        _ => &[],
    };
    let named = types.chain(tested).chain(duplicates.iter().map(String::as_str));
    let mut wanted: Vec<&str> = named.collect();
    // A column that is not kept may have been in the sources.
    if wanted.is_empty() || !settings.columns.is_empty() {
        return Ok(());
    }
    let mut seen = HashSet::new();
    let mut newest: Option<Fields> = None;
    for shard in snapshot.live_shards()?.iter().rev().filter(|shard| seen.insert(shard.version)).take(COMMITS) {
        let Some(fields) = job.columns_of(shard, settings.shard_format)? else { return Ok(()) };
        wanted.retain(|column| fields.find(column).is_none() && field_at(&fields, column).is_none());
        if wanted.is_empty() {
            return Ok(());
        }
        newest.get_or_insert(fields);
    }
    let Some(fields) = newest else { return Ok(()) };
    let names: Vec<&String> = fields.iter().map(|field| field.name()).collect();
    let error = Error::usage("the dataset has no such column").at_location(job.dataset.store().location().to_string());
    Err(schema::hint_columns(error.in_column(wanted[0]), wanted[0], &names))
}

/// Returns the options that no earlier run had, and that this one cannot apply.
fn without_effect(job: &ConvertJob<'_>, snapshot: &Snapshot, settings: &Settings) -> Result<Vec<String>> {
    let memory = job.context.memory_plan(settings);
    let all = log_arguments(job.options, settings, None, memory);
    let old = log_arguments(&super::ConvertOptions::default(), &snapshot.entry().settings, None, memory);
    // The size of row groups is a setting of the dataset, which is told of by itself. What a stream is called, and its
    // state, are why it is not read again.
    let is_other = |name: &str| ["write.row-group", "read.name", "read.etag", "read.end"].contains(&name);
    let is_of_format = |name: &str| (name.starts_with("read.") || name.starts_with("write.")) && !is_other(name);
    let is_given = |name: &&String| {
        (OF_SOURCES.contains(&name.as_str()) || is_of_format(name)) && all.get(*name) != old.get(*name)
    };
    let given: Vec<&String> = all.keys().filter(is_given).collect();
    if given.is_empty() {
        return Ok(Vec::new());
    }
    let mut new = given;
    for version in (1..=snapshot.version().0).rev().take(COMMITS) {
        let entry = snapshot.dataset().read_entry(Version(version))?;
        new.retain(|name| entry.operation != Operation::Convert || entry.arguments.get(*name) != all.get(*name));
        if new.is_empty() {
            break;
        }
    }
    Ok(new.into_iter().map(|name| format!("--{}", name.replace('.', " "))).collect())
}
