//! The files to convert: the found files, without those that the dataset contains already or that must not be imported.

use std::collections::HashSet;

use super::{
    labels::Labels,
    options::{ConvertOptions, SubjectSource},
    side_table,
    stream::{STDIN, StandardInput},
    subjects,
    tables::{self, TableSource},
};
use arrow::datatypes::Fields;

use crate::{
    dataset::{Snapshot, SuppressList},
    error::{Error, Result},
    events::Event,
    exec::gather::OnError,
    ops::{Context, inputs},
    record::{IGNORED_NAMES, key_rule::KeyRule, list_names},
    scan::{self, Archives, InputFormat, ScanOptions, ScanResult, SourceFile, TableFormat},
    storage::{Location, plain_argument},
};

/// Sources and files that are not converted, by the reason why.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct SkippedCounts {
    /// Files that are not sources: hidden, configuration, or parts of datasets.
    pub(super) ignored: u64,
    /// Sources that have not changed since they were converted.
    pub(super) unchanged: u64,
    /// Sources that have changed since, if `--on-changed skip` is set.
    pub(super) changed: u64,
    /// Sources known under another name.
    pub(super) moved: u64,
    /// Sources that were erased, or whose subject was.
    pub(super) erased: u64,
}

/// The listed sources of a run; none of them is opened yet.
pub(super) struct Listing {
    /// Files to be converted, in order.
    pub(super) fresh: Vec<SourceFile>,
    /// Number of sources of the whole conversion, of which these may be a sample.
    pub(super) of: usize,
    /// Locations that could not be listed; each counts as a rejected record.
    pub(super) faults: Vec<Error>,
    /// Datasets among the sources.
    pub(super) live: Vec<inputs::LiveDataset>,
    /// Stored URIs of sources whose old records are to be removed.
    pub(super) replaced: HashSet<String>,
    /// Skipped sources and files.
    pub(super) skipped: SkippedCounts,
    /// Labels of samples; `None` if there are none.
    pub(super) labels: Option<Labels>,
}

impl Listing {
    /// Lists the sources, without those that were erased from the dataset.
    ///
    /// # Errors
    /// When there are no sources, a location cannot be listed and no rejects are allowed, or a source has changed and
    /// must not.
    pub(super) fn new(
        context: &Context<'_>,
        out: &Location,
        snapshot: Option<&Snapshot>,
        options: &ConvertOptions,
    ) -> Result<(Self, Option<SuppressList>)> {
        let keys = options.key.as_ref().or_else(|| snapshot.map(|s| &s.entry().settings.keys));
        let types = snapshot.and_then(|s| s.entry().settings.label_types.clone()).unwrap_or_default();
        // What is replaced as a whole is read as if nothing were known.
        let known_by = snapshot.filter(|_| !options.overwrite);
        let stream = StandardInput::of_options(context, options)?;
        let stream_file = stream.as_ref().map(|stream| stream.list_source(known_by)).transpose()?;
        let given = GivenInputs { stream: stream_file, keys, types: &types };
        let ListedInputs { mut found, live, tables, labels } = find_inputs(context, out, given, options)?;
        tell_found(context, options, &mut found);
        if options.on_error == OnError::Fail && !found.faults.is_empty() {
            let first = found.faults.swap_remove(0);
            return Err(first.with_hint("count such places as rejects with --on-error skip or quarantine"));
        }
        let suppress = snapshot.map(SuppressList::from_snapshot).transpose()?.flatten();
        let files = found.files.len();
        let may_come = |file: &SourceFile| suppress.as_ref().is_none_or(|list| !list.has_source(&file.uri()));
        found.files.retain(may_come);
        let mut erased = (files - found.files.len()) as u64;
        let known = inputs::partition_sources(context, found.files, known_by, options.identity, options.on_changed)?;
        let inputs::Partition { mut fresh, mut unchanged, mut changed, moved, mut replaced } = known;
        for table in tables {
            let known = table.partition_files(context, known_by, options.on_changed)?;
            unchanged += known.unchanged;
            changed += known.changed;
            replaced.extend(known.replaced);
            let (come, erased_files): (Vec<_>, Vec<_>) = known.fresh.into_iter().partition(may_come);
            erased += erased_files.len() as u64;
            fresh.extend(come);
        }
        if let (Some(snapshot), true) = (snapshot, options.overwrite) {
            snapshot.each_source(&mut |row| {
                replaced.extend(row.removed.is_none().then_some(row.uri));
                Ok(())
            })?;
        }
        if let Some(stream) = &stream {
            stream.read_listed(&mut fresh)?;
        }
        scan::sort_by_name(&mut fresh);
        let skipped = SkippedCounts { ignored: found.ignored, unchanged, changed, moved, erased };
        Ok((Self { of: fresh.len(), fresh, faults: found.faults, live, replaced, skipped, labels }, suppress))
    }
}

/// Tells what is ignored, and takes out files about the data.
fn tell_found(context: &Context<'_>, options: &ConvertOptions, found: &mut ScanResult) {
    if found.folder_links > 0 {
        let count = found.folder_links;
        let note = format!("links to folders are not followed, found {count}; name those folders themselves");
        context.observer.event(Event::Note(note));
    }
    if found.archive_links > 0 {
        let count = found.archive_links;
        context.observer.event(Event::Note(format!("symbolic links in archives are not followed, found {count}")));
    }
    let tell_ignored = |count: u64, names: &[String], what: &str, end: &str| {
        if let Some(more) = count.checked_sub(names.len() as u64).filter(|_| count > 0) {
            let names = list_names(names, more);
            context.observer.event(Event::Note(format!("ignored files {what}: {names}{end}")));
        }
    };
    tell_ignored(found.hidden, &found.ignored_names, "that are hidden or leftovers of a system", "");
    if options.from != Some(InputFormat::FILES) && options.include.is_empty() {
        let is_stream = |name: &str| options.read.stream_name() == Some(name);
        let is_named = |name: &str| is_stream(name) || options.sources.iter().any(|source| source.ends_with(name));
        let (count, names) = found.take_bookkeeping(is_named);
        tell_ignored(count, &names, "about the data", "; --include takes them");
    }
}

/// Everything that the user's sources name.
struct ListedInputs {
    /// Files that are sources on their own.
    found: ScanResult,
    /// Datasets among them.
    live: Vec<inputs::LiveDataset>,
    /// Delta tables among them, with the files in their folders.
    tables: Vec<TableSource>,
    /// Labels of the files.
    labels: Option<Labels>,
}

/// Refuses a stream with the name of another source: origins could not tell their records apart.
fn refuse_same_name(files: &[SourceFile], stream: &SourceFile) -> Result<()> {
    match files.iter().find(|file| file.name() == stream.name()) {
        Some(file) => Err(Error::usage(format!("expected sources of different names, found two `{}`", file.name()))
            .at_location(file.uri())
            .with_hint("give standard input another name: --read name=NAME")),
        None => Ok(()),
    }
}

/// Returns the error for sources without files.
fn no_files(options: &ConvertOptions) -> Error {
    let is_pattern = |source: &String| source.contains(['*', '?', '[']);
    let chosen = !options.include.is_empty() || !options.exclude.is_empty();
    let what = match chosen || options.sources.iter().any(is_pattern) {
        true => "no files match",
        false => "there are no files to convert",
    };
    Error::usage(what)
        .at_location(options.sources.iter().map(|source| plain_argument(source)).collect::<Vec<_>>().join(" "))
        .with_hint(if chosen { "check --include and --exclude" } else { "name a file or folder with data" })
}

/// Adds how the dataset is named, to the error for a last source that does not exist.
fn hint_output(error: Error, sources: &[String]) -> Error {
    let last =
        sources.last().filter(|last| sources.len() > 1 && error.place().source.as_deref() == Some(last.as_str()));
    match last {
        Some(last) => error.with_hint(format!("the dataset to write is named by an option: --out {last}")),
        None => error,
    }
}

/// Omits files that only describe others, and names those of other tools; returns how many.
fn leave_out_companions(context: &Context<'_>, files: &mut Vec<SourceFile>) -> u64 {
    // A stream is called what its user calls it.
    let streams: Vec<SourceFile> = files.extract_if(.., |file| file.stream_tag().is_some()).collect();
    let scan::Companions { count, metadata } = scan::ignore_companions(files);
    files.extend(streams);
    if let [(_, tool), ..] = &metadata[..] {
        let names: Vec<String> = metadata.iter().take(IGNORED_NAMES).map(|(name, _)| name.clone()).collect();
        let names = list_names(&names, (metadata.len() - names.len()) as u64);
        let note = format!("ignored files of {tool} that describe or copy the records next to them: {names}");
        context.observer.event(Event::Note(note));
    }
    count
}

/// What is known before sources are looked for.
struct GivenInputs<'a> {
    /// Standard input, if it is a source.
    stream: Option<SourceFile>,
    /// The rule for keys.
    keys: Option<&'a KeyRule>,
    /// Types of the labels that the dataset has.
    types: &'a Fields,
}

/// Finds the inputs, standard input included.
fn find_inputs(
    context: &Context<'_>,
    out: &Location,
    given: GivenInputs<'_>,
    options: &ConvertOptions,
) -> Result<ListedInputs> {
    let scan_options = ScanOptions {
        include: options.include.clone(),
        exclude: options.exclude.clone(),
        dataset: Some(out.clone()),
        memory: context.memory,
        archives: if options.from == Some(InputFormat::FILES) { Archives::Named } else { Archives::All },
    };
    let named: Vec<String> = options.sources.iter().filter(|source| *source != STDIN).cloned().collect();
    let mut found = ScanResult::default();
    if !named.is_empty() {
        found = scan::scan_sources(&named, &context.folder, &context.settings, &scan_options)
            .map_err(|error| hint_output(error, &named))?;
    }
    let mut live = Vec::new();
    let tables = tables::take_tables(context, &mut found, options)?;
    for table in found.tables.iter().filter(|table| table.format == TableFormat::Dataset) {
        let Some(dataset) = inputs::LiveDataset::open_at(context, &table.root)? else { continue };
        found.ignored += dataset.remove_stale_files(&mut found.files);
        live.push(dataset);
    }
    if let Some(stream) = given.stream {
        refuse_same_name(&found.files, &stream)?;
        found.files.push(stream);
    }
    if let Some(SubjectSource::Table { place, .. }) = &options.subjects {
        // The table of subjects may be in a folder of sources.
        let table = side_table::locate_table(context, place, subjects::TABLE)?.uri();
        let files = found.files.len();
        found.files.retain(|file| file.uri() != table);
        found.ignored += (files - found.files.len()) as u64;
    }
    if let Some(rule) = given.keys {
        found.files.iter_mut().for_each(|file| file.key_by(rule));
    }
    let labels = Labels::read(context, options, given.types, &mut found.files, &mut found.ignored)?;
    if options.from != Some(InputFormat::FILES) {
        found.ignored += leave_out_companions(context, &mut found.files);
    }
    if found.files.is_empty() && found.faults.is_empty() && tables.is_empty() {
        if options.sources.iter().any(|source| context.parse_location(source).is_ok_and(|source| source == *out)) {
            return Err(Error::usage(
                "expected a source other than the dataset itself, found the same folder for both",
            )
            .at_location(out.to_string())
            .with_hint(
                "name another dataset with --out; `compact` merges the shards of this one, `reshard` cuts it anew",
            ));
        }
        return Err(no_files(options));
    }
    Ok(ListedInputs { found, live, tables, labels })
}
