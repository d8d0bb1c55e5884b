//! The opened sources of a run: their formats are known, and how each is read.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{columns::GivenTypes, job::ConvertJob};
use crate::{
    array::records::ArrayOptions,
    dataset::Settings,
    error::{Error, Result},
    exec::{
        constants,
        gates::subjects::SubjectResolver,
        gather::OnError,
        source::{SourceFacts, SourceName},
    },
    format::{
        OutputFormat,
        csv::CsvOptions,
        files::{self, Samples},
        json::JsonOptions,
    },
    ops::inputs::{Identity, LiveDataset},
    record::key::escape_key,
    scan::{Input, RecordSource, SniffOptions, SourceFile, classify_inputs},
    storage::with_io_threads,
    units::Size,
};

/// Maximum number of sources whose first records stay in memory for an estimate; those of thousands would need too
/// much.
pub(super) const SAMPLES_KEPT: usize = 64;

/// The sources, in the order of conversion.
pub(super) enum Inputs {
    /// Sources that contain records.
    Records(Vec<RecordSource>),
    /// Files that make up samples.
    Samples { files: Vec<SourceFile>, samples: Samples },
}

impl Inputs {
    /// Returns whether the records are samples rather than rows.
    pub(super) fn give_samples(&self) -> bool {
        match self {
            Self::Records(sources) => sources.iter().any(RecordSource::yields_samples),
            Self::Samples { .. } => true,
        }
    }

    /// Returns the files to be read.
    pub(super) fn source_files(&self) -> Box<dyn Iterator<Item = &SourceFile> + '_> {
        match self {
            Self::Records(sources) => Box::new(sources.iter().map(|source| &source.file)),
            Self::Samples { files, .. } => Box::new(files.iter()),
        }
    }

    /// Forgets the files of samples, of which there may be millions; what else samples have stays.
    pub(super) fn forget_files(&mut self) {
        if let Self::Samples { files, samples } = self {
            *files = Vec::new();
            *samples = std::mem::take(samples).without_files();
        }
    }

    /// Whether the list of files of samples needs more than a quarter of the memory limit.
    pub(super) fn has_long_list(&self, job: &ConvertJob<'_>) -> bool {
        self.check_list(job).is_err()
    }

    /// Fails if the list of files of samples needs more than a quarter of the memory limit while they are read.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) with the limit that is enough.
    pub(super) fn check_list(&self, job: &ConvertJob<'_>) -> Result<()> {
        let Self::Samples { files, .. } = self else { return Ok(()) };
        check_memory_share(job, files.iter(), UNCUT_SHARE, "a quarter")
    }

    /// Returns the constants of all records: those of arrays, or those of the datasets among the sources.
    pub(super) fn shared_constants(&self, live: &[LiveDataset]) -> Result<Option<Bytes>> {
        if !live.is_empty() {
            let files: Vec<String> = self.source_files().map(SourceFile::uri).collect();
            let mut all: Option<Bytes> = None;
            for dataset in live {
                match (&all, dataset.shared_constants(&files)?) {
                    (Some(known), Some(found)) if *known != found => {
                        return Err(Error::input("expected datasets with the same constants, found others")
                            .at_location(dataset.dataset_location())
                            .with_hint("convert them one by one into datasets of their own"));
                    }
                    (_, Some(found)) => all = Some(found),
                    (_, None) => {}
                }
            }
            if all.is_some() {
                return Ok(all);
            }
        }
        let Self::Records(sources) = self else { return Ok(None) };
        let of_sources = sources.iter().map(|source| (source.file.uri(), source.reader.as_ref()));
        constants::of_sources(of_sources)?.as_ref().map(constants::encode_constants).transpose()
    }
}

/// The list of files of samples may have the fourth part of the memory limit while they are read.
const UNCUT_SHARE: u64 = 4;

/// The list of tables and archives may have the eighth part of the memory limit: an open one takes several times as
/// much.
const OPENED_SHARE: u64 = 8;

/// Fails if a list of files needs more than its share of the memory limit: the part with this divisor and name.
fn check_memory_share<'a>(
    job: &ConvertJob<'_>,
    files: impl ExactSizeIterator<Item = &'a SourceFile>,
    share: u64,
    name: &str,
) -> Result<()> {
    let (count, bytes) = (files.len(), files.map(SourceFile::memory_bytes).sum::<u64>());
    let needed = Size(share.saturating_mul(bytes).next_multiple_of(1 << 20));
    if needed.0 <= job.context.memory.0 {
        return Ok(());
    }
    let limit = job.context.memory;
    Err(Error::usage(format!(
        "expected a list of inputs that fits into {name} of --memory {limit}, found {count} inputs, whose list needs \
         {}",
        Size(bytes)
    ))
    .with_hint(format!("raise the limit: --memory {}MiB", needed.0 >> 20)))
}

/// Detects the formats of files by their content, given the total number of sources of the conversion.
///
/// # Errors
/// When a file cannot be read, or the files have no common reading.
pub(super) fn detect_formats(
    job: &ConvertJob<'_>,
    files: Vec<SourceFile>,
    total: usize,
    given: &GivenTypes,
    format: OutputFormat,
) -> Result<Input> {
    let options = sniff_options(job, total, given, format);
    let remote = files.iter().any(SourceFile::is_remote);
    let input = with_io_threads(files.len(), remote, || classify_inputs(files, &options))??;
    if let Input::Records(sources) = &input {
        check_memory_share(job, sources.iter().map(|source| &source.file), OPENED_SHARE, "an eighth")?;
    }
    Ok(input)
}

/// Returns the detection options for that many sources, with what is known beforehand.
fn sniff_options(job: &ConvertJob<'_>, sources: usize, given: &GivenTypes, format: OutputFormat) -> SniffOptions {
    let (pinned, bound, taken) = (given.given_names(), given.bound_names(), given.selection.names_to_read());
    let stated = job.options.read.to_sniff_options(job.options.from, job.context.memory.0);
    SniffOptions {
        csv: CsvOptions {
            repair: stated.csv.tidy && job.options.on_error != OnError::Fail,
            pinned: pinned.iter().cloned().collect(),
            bound: bound.iter().cloned().collect(),
            taken: taken.as_ref().map(|taken| taken.iter().cloned().collect()),
            ..stated.csv
        },
        json: JsonOptions { pinned, bound, taken: taken.clone(), ..stated.json },
        arrays: ArrayOptions { coded: format.is_columnar(), floats: given.float_widths(), ..stated.arrays },
        binary: given.binary_names(),
        taken,
        hashed: job.options.identity == Identity::Content,
        compared: true,
        keep_going: job.options.on_error != OnError::Fail,
        sources,
        samples: Some(SAMPLES_KEPT),
        ..stated
    }
}

/// Returns the start of the record ids of each source's rows: its name without extension if that is unique.
pub(super) fn keys_of(sources: &[RecordSource]) -> Vec<String> {
    let stem = |name: &str| files::split_key(name).0.to_owned();
    let mut stems: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        *stems.entry(stem(source.file.name())).or_default() += 1;
    }
    let key = |source: &RecordSource| {
        let (name, short) = (source.file.name(), stem(source.file.name()));
        escape_key(if stems.get(&short) == Some(&1) { &short } else { name })
    };
    sources.iter().map(key).collect()
}

/// Returns the names of sources, given the [keys](keys_of) if these follow from more than these sources.
pub(super) fn source_facts(
    sources: &[RecordSource],
    settings: &Settings,
    resolver: Option<&SubjectResolver>,
    keys: Option<&[String]>,
) -> Vec<SourceFacts> {
    let keys = keys.map_or_else(|| keys_of(sources), <[String]>::to_vec);
    let facts = |(source, key): (&RecordSource, String)| {
        let columns = source.reader.facts().columns.clone();
        let subject = resolver.and_then(|resolver| resolver.of_source(&source.file));
        SourceFacts {
            name: Arc::new(SourceName { name: source.file.name().to_owned(), key, columns, subject }),
            file: source.file.clone(),
            bytes: source.input_bytes(),
            hashes_bytes: source.format.is_text(),
            stores_hashes: settings.shard_format.is_columnar()
                && (source.yields_samples() || settings.hashes_rows(source.format.is_text())),
            by_row: source.format.is_typed(),
            sheet: source.reader.facts().sheet.clone(),
            blank_lines: source.reader.facts().blank_lines_before,
            lines_skipped: source.reader.facts().lines_skipped,
            note: source.reader.facts().joined_notes(),
        }
    };
    sources.iter().zip(keys).map(facts).collect()
}
