//! Notes about options that are allowed, but seldom meant.

use std::collections::{HashMap, HashSet};

use arrow::array::RecordBatch;
use rayon::prelude::*;

use super::{
    columns::unknown_column, inputs::Inputs, job::ConvertJob, layouts, plan::ConvertPlan, report::ConvertReport,
    unused::unused_settings,
};
use crate::{
    dataset::Settings,
    events::Event,
    exec::{cut::ShardEnds, encode::RowsAs},
    format::Parsed,
    record::{Payload, RecordBlock, id_column, parts::KEY_COLUMN, split::SplitBy},
    scan::{self, RecordSource, SourceFile},
    schema::{is_id, is_subject, names_any},
    units::Size,
};

/// Shards that a few workers of a loader need at least, and the number that is suggested.
const FEW_SHARDS: u64 = 4;
const SUGGESTED_SHARDS: u64 = 8;

/// Records of a dataset that is more than an experiment.
const MANY_RECORDS: u64 = 100;

/// What a run takes at least, whatever the limit: measured with small inputs.
const LEAST_MEMORY: Size = Size::from_mib(48);

/// Tells what the user should know before anything is read.
pub(super) fn tell_of_settings(job: &ConvertJob<'_>, settings: &Settings) {
    let note = |text: String| job.context.observer.event(Event::Note(text));
    if job.context.memory < LEAST_MEMORY {
        let memory = job.context.memory;
        note(format!("--memory {memory} is less than a run takes at least, some {LEAST_MEMORY}"));
    }
    if job.snapshot.is_none()
        && let Some(why) = unreadable_reason(settings)
    {
        note(why);
    }
}

/// Tells what is seldom meant, once the inputs are known.
pub(super) fn tell_of_plan(job: &ConvertJob<'_>, plan: &ConvertPlan) {
    let note = |text: String| job.context.observer.event(Event::Note(text));
    tell_remarks(job, plan);
    unused_settings(job, plan).into_iter().for_each(note);
    if let Inputs::Records(sources) = &plan.inputs
        && job.options.from.is_none()
    {
        let mut misnamed = sources.iter().filter_map(scan::misnamed_note);
        if let Some(first) = misnamed.next() {
            note(with_others(first, misnamed.count()));
        }
    }
    if let Inputs::Records(sources) = &plan.inputs
        && let Some(text) = unlike_note(sources)
    {
        note(text);
    }
    if let Some(column) = split_group(job, plan) {
        note(format!(
            "--split divides the records by their content, so records of one `{column}` may be in several parts; \
             --subject {column} or --split-by {column} keeps them together"
        ));
    }
    match &plan.inputs {
        Inputs::Samples { files, .. } if job.options.from.is_none() => {
            layouts::layout_notes(files, &job.options.sources).into_iter().for_each(note);
            if let [file] = &files[..]
                && scan::is_text(file)
            {
                note(format!(
                    "`{}` is stored as it is, as a sample of one part; if it holds records, name its format: --from csv, \
                     --from jsonl or another",
                    file.name()
                ));
            }
            let archives: Vec<&str> =
                files.par_iter().map(SourceFile::name).filter(|name| scan::is_foreign_archive(name)).collect();
            if let [first, others @ ..] = &archives[..] {
                let others = match others.len() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                note(format!(
                    "`{first}`{others}: an archive of this kind is stored whole, as one part of a sample; to convert \
                     what is in it, unpack it"
                ));
            }
        }
        Inputs::Records(_) if job.options.write.row_form() == Some(RowsAs::Parts) => {
            let values = plan.stored_schema().fields().len() as u64;
            let is_framed = plan.settings.shard_format.has_keys();
            if is_framed && values > 1 && plan.fields.find(KEY_COLUMN).is_none() {
                let least = Size(values << 10);
                note(format!(
                    "--write rows=parts makes a file of each of the {values} values of a row, {least} of tar at least; \
                     --write rows=json makes one file of a row"
                ));
            }
        }
        _ => {}
    }
}

/// Returns a note that tables have other columns than others, so that values of the one table that they become are
/// null: most of them, if the tables have few columns in common.
fn unlike_note(sources: &[RecordSource]) -> Option<String> {
    let tables: Vec<&RecordSource> =
        sources.iter().filter(|s| !s.yields_samples() && !s.format.is_array() && !s.fields.is_empty()).collect();
    let first = tables.first()?;
    fn column_names(table: &RecordSource) -> impl Iterator<Item = &str> {
        table.fields.iter().map(|field| field.name().as_str())
    }
    if tables.iter().all(|table| column_names(table).eq(column_names(first))) {
        return None;
    }
    let mut having: HashMap<&str, usize> = HashMap::new();
    for field in tables.iter().flat_map(|table| table.fields.iter()) {
        *having.entry(field.name()).or_default() += 1;
    }
    let all = having.len();
    let shared = having.values().filter(|tables_with| **tables_with == tables.len()).count();
    let values: usize = having.values().sum();
    if shared * 2 >= all || values * 2 > all * tables.len() {
        return lacking_note(&tables, &having);
    }
    let own: HashSet<&str> = column_names(first).collect();
    let other = tables.iter().min_by_key(|table| column_names(table).filter(|name| own.contains(*name)).count())?;
    Some(format!(
        "{} tables, such as `{}` and `{}`, become one, although they have {shared} of {all} columns in common: the \
         others are null in most records; for a dataset of one table, name its files, or use --include '{}'",
        tables.len(),
        first.file.name(),
        other.file.name(),
        first.file.name()
    ))
}

/// Returns a note on tables that lack columns which others have; `having` tells how many tables have a column. Where
/// each record has its own columns, a sample of them says nothing.
fn lacking_note(tables: &[&RecordSource], having: &HashMap<&str, usize>) -> Option<String> {
    let lacks = |table: &&&RecordSource| table.fields.len() < having.len() && table.reader.facts().columns.is_some();
    let lacking: Vec<&&RecordSource> = tables.iter().filter(lacks).collect();
    let first = lacking.first()?;
    let own: HashSet<&str> = first.fields.iter().map(|field| field.name().as_str()).collect();
    let missing = having.keys().filter(|name| !own.contains(*name)).min()?;
    let (count, lack) = (lacking.len(), if lacking.len() == 1 { "lacks" } else { "lack" });
    Some(format!(
        "{count} of {} tables {lack} columns that others have, which are null in their records: `{}` has no \
         `{missing}`",
        tables.len(),
        first.file.name(),
    ))
}

/// Tells what readers remark upon their sources.
pub(super) fn tell_remarks(job: &ConvertJob<'_>, plan: &ConvertPlan) {
    if let Inputs::Records(sources) = &plan.inputs {
        reader_remarks(sources).into_iter().for_each(|text| job.context.observer.event(Event::Note(text)));
    }
}

/// Returns what readers remark upon their sources, each once with the first source that it applies to.
pub(in crate::ops) fn reader_remarks(sources: &[RecordSource]) -> Vec<String> {
    let mut all: Vec<(&str, &String, usize)> = Vec::new();
    let mut known: HashMap<&String, usize> = HashMap::new();
    for (source, remark) in sources.iter().flat_map(|s| s.reader.facts().remarks.iter().map(|r| (s.file.name(), r))) {
        match known.get(remark) {
            Some(number) => all[*number].2 += 1,
            None => {
                known.insert(remark, all.len());
                all.push((source, remark, 0));
            }
        }
    }
    let others = |more: usize| if more == 0 { String::new() } else { format!(" and {more} more") };
    all.into_iter().map(|(source, remark, more)| format!("{source}{}: {remark}", others(more))).collect()
}

/// What groups of records are often named after, besides people.
const GROUPS: [&str; 10] =
    ["group", "speaker", "session", "author", "device", "household", "family", "document", "video", "study"];

/// Maximum number of sources whose first records are looked at for repeated values.
const LOOKED_AT: usize = 8;

/// Returns the column that looks like the name of a group, if the records are divided by their content because the user
/// named nothing.
fn split_group(job: &ConvertJob<'_>, plan: &ConvertPlan) -> Option<String> {
    let is_chosen = job.options.split.as_ref().is_none_or(|choice| choice.by.is_some());
    let by_content = plan.settings.split.as_ref().is_some_and(|splits| splits.by == SplitBy::Content);
    let Inputs::Records(sources) = &plan.inputs else { return None };
    if is_chosen || !by_content {
        return None;
    }
    let schema = plan.input_schema();
    let parsed = |source: &RecordSource| match source.reader.parse(source.sample.as_ref()?, &schema) {
        Ok(Parsed::Block(RecordBlock { payload: Payload::Rows(batch), .. })) => Some(batch),
        _ => None,
    };
    let samples: Vec<RecordBatch> = sources.iter().take(LOOKED_AT).filter_map(parsed).collect();
    let repeats = |name: &str| {
        let mut seen = HashSet::new();
        let ids: Vec<_> = samples.iter().filter_map(|batch| id_column(batch, &[name.to_owned()]).ok()).collect();
        ids.iter().flatten().flatten().any(|id| !seen.insert(id))
    };
    let (whom, groups) = (|name: &&str| is_subject(name), |name: &&str| names_any(name, &GROUPS) || is_id(name));
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    // The first records of binary formats are not read before the run.
    let found = names().filter(whom).find(|name| samples.is_empty() || repeats(name));
    found.or_else(|| names().filter(groups).find(|name| repeats(name))).map(str::to_owned)
}

/// Adds to a note about a source how many others there are.
fn with_others(note: String, others: usize) -> String {
    match others {
        0 => note,
        others => format!("{note}; and {others} more like this"),
    }
}

/// What the notes about a report depend on besides the report.
pub(super) struct Stored {
    are_samples: bool,
    /// Whether all columns of the sources are stored.
    has_all_columns: bool,
}

impl Stored {
    /// Returns what a plan stores.
    pub(super) fn of_plan(plan: &ConvertPlan) -> Self {
        let has_all_columns = plan.settings.columns.is_empty() && plan.given.prescribed.is_none();
        Self { are_samples: plan.inputs.give_samples(), has_all_columns }
    }
}

/// Tells what the user should know about the result.
pub(super) fn tell_of_report(job: &ConvertJob<'_>, stored: &Stored, report: &ConvertReport) {
    let note = |text: String| job.context.observer.event(Event::Note(text));
    if report.counts.records_in == 0 {
        let which = if report.sources == 1 { "the source has" } else { "the sources have" };
        note(format!("{which} no records: nothing, or only a header"));
        return;
    }
    if !stored.are_samples && stored.has_all_columns {
        let columns: Vec<&String> = report.columns.iter().map(|(name, _)| name).collect();
        for field in job.options.types.iter().filter(|field| !columns.contains(&field.name())) {
            let hints = unknown_column(field.name(), &columns).hints().join("; ");
            note(format!("no record has the column `{}`, which --type names; {hints}", field.name()));
        }
    }
    if let Some(ShardEnds::Parts(wanted)) = job.options.ends
        && report.splits.is_empty()
        && report.counts.shards_added < wanted
        && !report.dry_run
    {
        let (records, made) = (report.counts.records_out, report.counts.shards_added);
        note(format!(
            "--shards {wanted} gave {made}: a shard has at least one record, and there are {records}, of different \
             sizes"
        ));
    }
    if let Some(text) = few_shards(job, report) {
        note(text);
    }
}

/// Returns how to get more shards if there are fewer than a loader with a few workers needs, and the user did not
/// choose how many.
fn few_shards(job: &ConvertJob<'_>, report: &ConvertReport) -> Option<String> {
    let is_chosen = job.options.ends.is_some() || job.options.target_shard.is_some();
    let parts = report.splits.iter().map(|split| split.shards).filter(|shards| *shards > 0);
    let shards = parts.min().unwrap_or(report.counts.shards_added);
    let is_new = job.snapshot.is_none() && !is_chosen;
    if !is_new || !report.format.has_keys() || shards >= FEW_SHARDS || report.counts.records_out < MANY_RECORDS {
        return None;
    }
    let (has, dataset) = (if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") }, &report.dataset);
    let of = if report.splits.is_empty() { "the dataset has" } else { "a part of the dataset has" };
    let way = match report.splits.is_empty() {
        true => format!(
            "`shardify reshard {dataset} --shards {SUGGESTED_SHARDS} --out NEW`, or `convert --shards \
             {SUGGESTED_SHARDS}`, makes {SUGGESTED_SHARDS}"
        ),
        false => {
            let bytes = report.splits.iter().map(|split| split.bytes).filter(|bytes| *bytes > 0).min().unwrap_or(0);
            let target = (bytes / SUGGESTED_SHARDS).div_ceil(1 << 10).max(1);
            format!("`convert --target-shard {target}KiB` makes at least {SUGGESTED_SHARDS} of each part")
        }
    };
    Some(format!(
        "{of} {has}: webdataset assigns whole shards to workers, so at most that many workers get data; {way}"
    ))
}

/// Returns why usual loaders do not read shards of these settings, if they do not.
fn unreadable_reason(settings: &Settings) -> Option<String> {
    let codec = settings.codec;
    let facts = settings.shard_format.facts();
    let loader = facts.loader.as_ref().filter(|loader| (facts.allows)(codec) && !(loader.opens)(codec))?;
    let readers = loader.words;
    Some(format!("{readers}, not {codec}: choose --codec none or gzip if such a loader is to read the shards"))
}
