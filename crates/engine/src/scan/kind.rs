//! Classifies inputs: sources that contain records, or files that are grouped into samples.
//!
//! The content decides; a name only suggests what to check for. But if a file's name states that it holds records and
//! its content is no supported format, that is an error: the file was truncated, damaged or encrypted. Tables next to
//! other files (images and their `metadata.csv`) have no single reading, and neither have rows next to samples, so
//! these are errors that name both files.

use rayon::prelude::*;

use super::{
    InputFormat, SourceFile, foreign,
    formats::{self, PACKED, SniffOptions},
    selected, sniff,
    source::RecordSource,
};
use crate::{
    error::{Error, Kind, Result},
    record::key::lowercase_extension,
};

/// Classified inputs.
#[derive(Debug)]
pub enum Input {
    /// Sources that contain records.
    Records(Vec<RecordSource>),
    /// Files that are grouped into samples.
    Files(Vec<SourceFile>),
}

/// Classifies the inputs.
///
/// # Errors
/// Fails if a file is not what `--from` states or cannot be read, or if inputs are mixed that have no single reading.
pub fn classify_inputs(found: Vec<SourceFile>, options: &SniffOptions) -> Result<Input> {
    if options.from == Some(InputFormat::FILES) {
        return Ok(Input::Files(found));
    }
    if options.from.is_none() {
        foreign::refuse_stores(&found)?;
    }
    let alone = found.len() == 1;
    // JSON documents next to files that cannot be tables are labels, which need not be opened to be recognised.
    let named = |file: &SourceFile| file.is_store() || file.table_file().is_some() || names_records(file.name());
    let mixed = options.from.is_none() && found.par_iter().any(|file| !named(file));
    // Next to an image, an array of the same name is part of a sample, too.
    let may_be_part = |file: &SourceFile| is_document(file.name()) || is_array_of_sample(file.name());
    let may_hold =
        |file: &SourceFile| options.from.is_some() || alone || (named(file) && !(mixed && may_be_part(file)));
    if !found.par_iter().any(may_hold) {
        return as_files(found, options);
    }
    let read: Vec<(SourceFile, Option<RecordSource>)> = found
        .into_par_iter()
        .enumerate()
        .map(|(number, file)| {
            let mut source = if may_hold(&file) { detect_records(&file, options)? } else { None };
            if let Some(source) = &mut source {
                source.hashed = options.hashed;
                if let Some(taken) = &options.taken {
                    selected::select_columns(source, taken);
                }
                source.infer_fields(options.samples.is_none_or(|samples| number < samples));
            }
            Ok((file, source))
        })
        .collect::<Result<_>>()?;
    if read.iter().all(|(_, source)| source.is_some()) {
        let sources: Vec<RecordSource> = read.into_iter().filter_map(|(_, source)| source).collect();
        if options.from.is_none() && is_sample_of_arrays(&sources) {
            return Ok(Input::Files(sources.into_iter().map(|source| source.file).collect()));
        }
        refuse_arrays_and_others(&sources)?;
        refuse_rows_and_samples(&sources)?;
        return Ok(Input::Records(sources));
    }
    // JSON documents next to other files are their labels or metadata; rows of a table next to them are not.
    let is_label =
        |s: &RecordSource| s.format == InputFormat::JSON || may_be_in_sample(s.format) || is_document(s.file.name());
    let records = read.iter().find(|(_, s)| s.as_ref().is_some_and(|s| !is_label(s)));
    let other = read.iter().find(|(_, s)| s.is_none());
    match (records, other) {
        (Some((records, _)), Some((other, _))) => {
            let is_table = |s: &RecordSource| !is_label(s) && !s.yields_samples() && !s.format.is_array();
            let mut tables = read.iter().filter(|(_, s)| s.as_ref().is_some_and(is_table)).map(|(file, _)| file);
            let of_bids = read.iter().any(|(file, _)| file.name().rsplit('/').next() == Some(BIDS));
            let table = tables.next().filter(|_| tables.next().is_none());
            Err(records_beside_files(records, other, table, of_bids))
        }
        _ => as_files(read.into_iter().map(|(file, _)| file).collect(), options),
    }
}

/// Takes files as parts of samples, unless they are tables or archives that cannot be read.
fn as_files(files: Vec<SourceFile>, options: &SniffOptions) -> Result<Input> {
    if options.from.is_none() {
        foreign::refuse_unread(&files)?;
    }
    Ok(Input::Files(files))
}

/// The document that every dataset in BIDS has.
pub const BIDS: &str = "dataset_description.json";
/// The options that convert its recordings with the documents about them, and their subjects.
pub const BIDS_OPTIONS: &str = "--from files --include 'sub-*/**' --subject-from-path bids";
/// The options that convert its images as arrays.
pub const BIDS_IMAGES: &str = "--from nifti --include 'sub-*/**/*.nii*' --subject-from-path bids";

/// Whether files are those of a dataset in BIDS.
fn is_bids<'a>(mut files: impl Iterator<Item = &'a SourceFile>) -> bool {
    files.any(|file| file.name().rsplit('/').next() == Some(BIDS))
}

fn bids_hint() -> String {
    format!(
        "for the recordings of a dataset in BIDS: {BIDS_OPTIONS}; for its images as arrays: {BIDS_IMAGES}; its tables \
         are datasets of their own: --include participants.tsv"
    )
}

/// Returns the error for files with records beside others, of which only `table` is a table, if there is one.
fn records_beside_files(records: &SourceFile, other: &SourceFile, table: Option<&SourceFile>, of_bids: bool) -> Error {
    let labels = match table {
        Some(table) => format!("if it has the labels of the other files: --labels {}", table.uri()),
        None => "if a table has the labels of the other files: --labels FILE".to_owned(),
    };
    let unread = foreign::describe_unread(other.name());
    let is = unread.map_or_else(|| "does not".to_owned(), |what| format!("is {what}, which is not supported"));
    Error::usage(format!(
        "expected either records or files, found both: `{}` contains records, `{}` {is}",
        records.name(),
        other.name()
    ))
    .with_hint(if of_bids { bids_hint() } else { labels })
    .with_hint("to convert the files with records alone: --include '*.csv' (or *.jsonl ...)")
    .with_hint("to convert all files as samples, grouped by name: --from files")
}

/// Returns whether a name states that the file holds JSON Lines, so that an empty one has no records.
fn names_json_lines(name: &str) -> bool {
    InputFormat::JSONL.matches_extension(name)
}

/// Detects the records of a file. If the run continues without bad sources, an unreadable file becomes a source that
/// fails when it is converted.
fn detect_records(file: &SourceFile, options: &SniffOptions) -> Result<Option<RecordSource>> {
    let empty_lines;
    let options = match options.from {
        None if file.bytes() == 0 && names_json_lines(file.name()) => {
            empty_lines = SniffOptions { from: Some(InputFormat::JSONL), ..options.clone() };
            &empty_lines
        }
        _ => options,
    };
    let found = sniff::sniff_source(file, options).and_then(|found| match (found, options.from) {
        (None, Some(from)) => Err(not_in_format(file, from, options)),
        // A truncated or damaged table is not treated as a file of a sample, whatever is next to it.
        (None, None) if names_records(file.name()) => Err(foreign::not_as_named(file)),
        (Some(source), _) if options.compared && source.reader.facts().reads_own_source => {
            file.check_member().map(|()| Some(source))
        }
        (found, _) => Ok(found),
    });
    match (found, file.store_fault()) {
        // After a failure of the store, the format is unknown, whatever was detected in the bytes that arrived.
        (_, Some(fault)) => Err(fault),
        (Err(e), None) if options.keep_going && e.kind() != Kind::Storage => {
            Ok(Some(sniff::unreadable_source(file, options, e)))
        }
        (found, None) => found,
    }
}

/// Returns the error for a file that is not in the format that --from names.
pub(super) fn not_in_format(file: &SourceFile, from: InputFormat, options: &SniffOptions) -> Error {
    let error = Error::input(format!("this file is not {}", from.name())).at_location(file.uri());
    let options = SniffOptions { from: None, ..options.clone() };
    match sniff::sniff_source(file, &options) {
        Ok(Some(found)) => error
            .with_hint(format!("it looks like {}: leave --from out, or skip it with --exclude", found.format.name())),
        _ => error.with_hint("name the right format with --from, or skip the file with --exclude"),
    }
}

/// Returns whether the sources are arrays, one to a file, next to JSON documents that describe them.
fn is_sample_of_arrays(sources: &[RecordSource]) -> bool {
    let is_array = |source: &RecordSource| may_be_in_sample(source.format);
    let only = sources.iter().all(|source| is_array(source) || is_document(source.file.name()));
    only && sources.iter().any(is_array) && !sources.iter().all(is_array)
}

fn refuse_arrays_and_others(sources: &[RecordSource]) -> Result<()> {
    let arrays = sources.iter().find(|s| s.format.is_array());
    let others = sources.iter().find(|s| !s.format.is_array());
    let (Some(arrays), Some(others)) = (arrays, others) else { return Ok(()) };
    let error = Error::usage(format!(
        "expected either arrays or other records, found both: `{}` is {}, `{}` is {}",
        arrays.file.name(),
        arrays.format.name(),
        others.file.name(),
        others.format.name()
    ));
    if is_bids(sources.iter().map(|source| &source.file)) {
        return Err(error.with_hint(bids_hint()));
    }
    Err(error.with_hint("convert them one after the other, selecting each with --include"))
}

fn refuse_rows_and_samples(sources: &[RecordSource]) -> Result<()> {
    let samples = sources.iter().find(|s| s.yields_samples());
    let rows = sources.iter().find(|s| !s.yields_samples());
    match (samples, rows) {
        (Some(samples), Some(rows)) => Err(Error::usage(format!(
            "expected either samples or rows, found both: `{}` contains samples, `{}` rows",
            samples.file.name(),
            rows.file.name()
        ))
        .with_hint("convert them one after the other, selecting each with --include")),
        _ => Ok(()),
    }
}

/// Returns whether a name is that of a JSON document.
fn is_document(name: &str) -> bool {
    InputFormat::JSON.matches_extension(name)
}

/// Formats whose files hold an array each, which may be one part of a sample of several files.
const ARRAYS_OF_SAMPLES: [InputFormat; 2] = [InputFormat::NPY, InputFormat::NIFTI];

fn may_be_in_sample(format: InputFormat) -> bool {
    ARRAYS_OF_SAMPLES.contains(&format)
}

/// Returns whether a name is that of such an array.
fn is_array_of_sample(name: &str) -> bool {
    ARRAYS_OF_SAMPLES.iter().any(|format| format.matches_packed_name(name))
}

/// Returns whether a name suggests that the file contains records.
pub fn names_records(name: &str) -> bool {
    let ending = lowercase_extension(name);
    let extension = match ending.rsplit_once('.') {
        Some((inner, packed)) if PACKED.contains(&packed) => inner,
        _ => &ending,
    };
    // `train.tfrecord-00000-of-00010` is a common way to number shards.
    let last = extension.rsplit('.').next().unwrap_or_default();
    let last = last.split_once("-of-").map_or(last, |(head, _)| head.trim_end_matches(|c: char| c.is_ascii_digit()));
    formats::stated_format(last.trim_end_matches('-')).is_some()
}
