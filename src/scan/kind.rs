//! Classifies inputs: sources that contain records, or files that are grouped into samples.
//!
//! The content decides; a name only suggests what to check for. But if a file's name states that it holds records and
//! its content is no supported format, that is an error: the file was truncated, damaged or encrypted. Tables next to
//! other files (images and their `metadata.csv`) have no single reading, and neither have rows next to samples, so
//! these are errors that name both files.

use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::datatypes::Fields;
use rayon::prelude::*;

use super::{
    SourceFile, foreign, selected,
    sniff::{self, SniffOptions},
};
use crate::{
    codec::encoding::{self, Encoding},
    error::{Error, Kind, Result},
    format::{RecordReader, SourceBytes, SplitStream},
    record::{SourcePart, Split, key::ending},
};

/// Input formats, as `--from` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputFormat {
    /// Comma-separated or otherwise delimited text.
    Csv,
    /// Tab-separated text.
    Tsv,
    /// One JSON object per line.
    Jsonl,
    /// A JSON document: an object, or an array of objects.
    Json,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC, as a file or a stream.
    Arrow,
    /// Any files, grouped into samples by name.
    Files,
    /// An archive of samples.
    Tar,
    /// TFRecord of `tf.train.Example`.
    TfRecord,
    /// NetCDF: classic, 64-bit offset, CDF-5, or netCDF-4.
    NetCdf,
    /// HDF5.
    Hdf5,
    /// Zarr, version 2 or 3.
    Zarr,
    /// NPY or NPZ of NumPy.
    Npy,
}

impl InputFormat {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Jsonl => "jsonl",
            Self::Json => "json",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Files => "files",
            Self::Tar => "tar",
            Self::TfRecord => "tfrecord",
            Self::NetCdf => "netcdf",
            Self::Hdf5 => "hdf5",
            Self::Zarr => "zarr",
            Self::Npy => "npy",
        }
    }

    /// Returns whether columns have their own types, which may conflict with those of another source.
    pub fn is_typed(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow) || self.is_array()
    }

    /// Returns whether records are text whose values have no types.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::Jsonl | Self::Json)
    }

    /// Returns whether sources contain arrays.
    pub fn is_array(self) -> bool {
        matches!(self, Self::NetCdf | Self::Hdf5 | Self::Zarr | Self::Npy)
    }
}

/// A source that contains records.
#[derive(Debug, Clone)]
pub struct RecordSource {
    /// The file.
    pub file: SourceFile,
    /// Its format and dialect.
    pub format: InputFormat,
    /// Whether the whole source is compressed.
    pub packed: bool,
    /// Encoding of its text; `None` for UTF-8.
    pub encoding: Option<Encoding>,
    /// Reader of its format.
    pub reader: Arc<dyn RecordReader>,
    /// Its first records, if they are kept in memory.
    pub sample: Option<Split>,
    /// Types of its first records.
    pub fields: Fields,
    /// The part of it that is read; `None` for all of it.
    pub part: Option<SourcePart>,
    /// How much of its start is read; `None` if it is read to its end.
    pub first: Option<Arc<First>>,
    /// Whether the hash of its content is needed, even if that takes reading bytes that the records do not need.
    pub hashed: bool,
}

impl RecordSource {
    /// Creates a source that is read whole, is not compressed, and of which nothing is in memory.
    pub(super) fn new(file: &SourceFile, format: InputFormat, reader: Arc<dyn RecordReader>) -> Self {
        Self {
            file: file.clone(),
            format,
            packed: false,
            encoding: None,
            reader,
            sample: None,
            fields: Fields::empty(),
            part: None,
            first: None,
            hashed: false,
        }
    }

    /// Opens the source, or the part of it that is read, as its reader expects it: decompressed, and text in UTF-8;
    /// `tap` observes the stored bytes.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    pub fn open(&self, tap: impl FnMut(&[u8]) + Send + 'static) -> Result<Box<dyn Read + Send>> {
        let mut tap = tap;
        let first = self.first.clone().filter(|_| self.is_recoded());
        first.iter().for_each(|first| first.begin());
        let tap = move |bytes: &[u8]| {
            if let Some(first) = &first {
                first.add(bytes.len() as u64);
            }
            tap(bytes);
        };
        if let Some(range) = self.part.as_ref().and_then(SourcePart::byte_range) {
            return self.file.open_range(range, tap);
        }
        let input = self.file.open(tap)?;
        Ok(match self.encoding {
            Some(encoding) => encoding::decode(encoding, input),
            None => input,
        })
    }

    /// Whether its stored bytes are not those that its reader reads.
    fn is_recoded(&self) -> bool {
        self.packed || self.encoding.is_some()
    }

    /// Returns the stored bytes that are read: those of the source, of the part, or about those of its start.
    pub fn bytes(&self) -> u64 {
        let all = self.part.as_ref().map_or_else(|| self.file.bytes(), |part| part.bytes);
        self.first.as_ref().map_or(all, |first| first.most.min(all))
    }

    /// Cuts the source, or the part of it that is read, into splits. `input` is what [`open`](Self::open) returns.
    pub fn splits<'a>(
        &'a self,
        input: SourceBytes<'a>,
        split_bytes: usize,
        max_record_bytes: usize,
    ) -> SplitStream<'a> {
        let splits = match &self.part {
            Some(part) => self.reader.splits_of(part, input, split_bytes, max_record_bytes),
            None => self.reader.splits(input, split_bytes, max_record_bytes),
        };
        match &self.first {
            Some(first) => first.of(splits, !self.is_recoded()),
            None => splits,
        }
    }

    /// Infers the types of its first records, and drops these unless `kept`.
    fn infer(&mut self, kept: bool) {
        if let Some(sample) = &self.sample {
            self.fields = self.reader.infer(sample);
        }
        if !kept {
            self.sample = None;
        }
    }

    /// Returns whether its records are samples rather than rows.
    pub fn yields_samples(&self) -> bool {
        self.reader.facts().yields_samples
    }
}

/// The start of a source: the splits up to the first one that reaches a number of stored bytes.
#[derive(Debug)]
pub struct First {
    most: u64,
    read: AtomicU64,
}

impl First {
    /// Creates a start of about `most` stored bytes.
    pub fn new(most: u64) -> Self {
        Self { most, read: AtomicU64::new(0) }
    }

    /// Returns the stored bytes that were read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The source is read anew.
    fn begin(&self) {
        self.read.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the first splits. Their bytes are counted here, unless those that were stored are counted as they are
    /// read.
    fn of<'a>(&'a self, mut splits: SplitStream<'a>, counts: bool) -> SplitStream<'a> {
        if counts {
            self.begin();
        }
        Box::new(std::iter::from_fn(move || {
            let split = if self.read() < self.most { splits.next()? } else { return None };
            if let (true, Ok(split)) = (counts, &split) {
                self.add(split.bytes_in());
            }
            Some(split)
        }))
    }
}

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
pub fn classify(found: Vec<SourceFile>, options: &SniffOptions) -> Result<Input> {
    if options.from == Some(InputFormat::Files) {
        return Ok(Input::Files(found));
    }
    if options.from.is_none() {
        foreign::refuse_stores(&found)?;
    }
    let alone = found.len() == 1;
    // JSON documents next to files that cannot be tables are labels, which need not be opened to be recognised.
    let named = |file: &SourceFile| file.is_store() || file.table().is_some() || names_records(file.name());
    let mixed = options.from.is_none() && found.par_iter().any(|file| !named(file));
    // Next to an image, an array of the same name is part of a sample, too.
    let may_be_part = |file: &SourceFile| is_document(file.name()) || is_numpy(file.name());
    let may_hold =
        |file: &SourceFile| options.from.is_some() || alone || (named(file) && !(mixed && may_be_part(file)));
    if !found.par_iter().any(may_hold) {
        return as_files(found, options);
    }
    let read: Vec<(SourceFile, Option<RecordSource>)> = found
        .into_par_iter()
        .enumerate()
        .map(|(number, file)| {
            let mut source = if may_hold(&file) { detect(&file, options)? } else { None };
            if let Some(source) = &mut source {
                source.hashed = options.hashed;
                if let Some(taken) = &options.taken {
                    selected::take(source, taken);
                }
                source.infer(options.samples.is_none_or(|samples| number < samples));
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
        |s: &RecordSource| matches!(s.format, InputFormat::Json | InputFormat::Npy) || is_document(s.file.name());
    let records = read.iter().find(|(_, s)| s.as_ref().is_some_and(|s| !is_label(s)));
    let other = read.iter().find(|(_, s)| s.is_none());
    match (records, other) {
        (Some((records, _)), Some((other, _))) => {
            let is_table = |s: &RecordSource| !is_label(s) && !s.yields_samples() && !s.format.is_array();
            let mut tables = read.iter().filter(|(_, s)| s.as_ref().is_some_and(is_table)).map(|(file, _)| file);
            let of_bids = read.iter().any(|(file, _)| file.name().rsplit('/').next() == Some(BIDS));
            let table = tables.next().filter(|_| tables.next().is_none());
            Err(records_beside_files((records, other), table, of_bids))
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
/// The options that convert its recordings, with their subjects.
pub const BIDS_OPTIONS: &str = "--from files --include 'sub-*/**' --subject-from-path 'sub-{subject}/**'";

/// Returns the error for files with records beside others, of which only `table` is a table, if there is one.
fn records_beside_files(
    (records, other): (&SourceFile, &SourceFile),
    table: Option<&SourceFile>,
    of_bids: bool,
) -> Error {
    let bids = format!(
        "for the recordings of a dataset in BIDS: {BIDS_OPTIONS}; its tables are datasets of their own: --include \
         participants.tsv"
    );
    let labels = match table {
        Some(table) => format!("if it has the labels of the other files: --labels {}", table.uri()),
        None => "if a table has the labels of the other files: --labels FILE".to_owned(),
    };
    Error::usage(format!(
        "expected either records or files, found both: `{}` contains records, `{}` does not",
        records.name(),
        other.name()
    ))
    .hint(if of_bids { bids } else { labels })
    .hint("to convert the files with records alone: --include '*.csv' (or *.jsonl ...)")
    .hint("to convert all files as samples, grouped by name: --from files")
}

/// Returns whether a name states that the file holds JSON Lines, so that an empty one has no records.
fn names_json_lines(name: &str) -> bool {
    ends_with_any(name, sniff::JSON_LINES)
}

/// Detects the records of a file. If the run continues without bad sources, an unreadable file becomes a source that
/// fails when it is converted.
fn detect(file: &SourceFile, options: &SniffOptions) -> Result<Option<RecordSource>> {
    let empty_lines;
    let options = match options.from {
        None if file.bytes() == 0 && names_json_lines(file.name()) => {
            empty_lines = SniffOptions { from: Some(InputFormat::Jsonl), ..options.clone() };
            &empty_lines
        }
        _ => options,
    };
    let found = sniff::source(file, options).and_then(|found| match (found, options.from) {
        (None, Some(from)) => Err(Error::input(format!("expected {}, found something else", from.name()))
            .at(file.uri())
            .hint("name the right format with --from, or skip the file with --exclude")),
        // A truncated or damaged table is not treated as a file of a sample, whatever is next to it.
        (None, None) if names_records(file.name()) => Err(foreign::not_as_named(file)),
        (found, _) => Ok(found),
    });
    match (found, file.fault()) {
        // After a failure of the store, the format is unknown, whatever was detected in the bytes that arrived.
        (_, Some(fault)) => Err(fault),
        (Err(e), None) if options.keep_going && e.kind() != Kind::Storage => {
            Ok(Some(sniff::unreadable(file, options, e)))
        }
        (found, None) => found,
    }
}

/// Returns whether the sources are NumPy arrays next to JSON documents that describe them.
fn is_sample_of_arrays(sources: &[RecordSource]) -> bool {
    let any = |format| sources.iter().any(|source| source.format == format);
    let only = sources.iter().all(|s| s.format == InputFormat::Npy || is_document(s.file.name()));
    only && any(InputFormat::Npy) && !sources.iter().all(|source| source.format == InputFormat::Npy)
}

fn refuse_arrays_and_others(sources: &[RecordSource]) -> Result<()> {
    let arrays = sources.iter().find(|s| s.format.is_array());
    let others = sources.iter().find(|s| !s.format.is_array());
    match (arrays, others) {
        (Some(arrays), Some(others)) => Err(Error::usage(format!(
            "expected either arrays or other records, found both: `{}` is {}, `{}` is {}",
            arrays.file.name(),
            arrays.format.name(),
            others.file.name(),
            others.format.name()
        ))
        .hint("convert them one after the other, selecting each with --include")),
        _ => Ok(()),
    }
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
        .hint("convert them one after the other, selecting each with --include")),
        _ => Ok(()),
    }
}

/// Returns whether a name is that of a JSON document.
fn is_document(name: &str) -> bool {
    ends_with_any(name, &[".json", ".geojson"])
}

/// Returns whether a name is that of a NumPy array.
fn is_numpy(name: &str) -> bool {
    ends_with_any(name, &[".npy", ".npz"])
}

/// Whether a name ends with one of these, in any case.
fn ends_with_any(name: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| {
        let tail = name.len().checked_sub(end.len()).and_then(|at| name.get(at..));
        tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    })
}

/// Returns whether a name suggests that the file contains records.
pub fn names_records(name: &str) -> bool {
    let ending = ending(name);
    let extension = match ending.rsplit_once('.') {
        Some((inner, packed)) if sniff::PACKED.contains(&packed) => inner,
        _ => &ending,
    };
    // `train.tfrecord-00000-of-00010` is a common way to number shards.
    let last = extension.rsplit('.').next().unwrap_or_default();
    let last = last.split_once("-of-").map_or(last, |(head, _)| head.trim_end_matches(|c: char| c.is_ascii_digit()));
    sniff::RECORDS.binary_search(&last.trim_end_matches('-')).is_ok()
}
