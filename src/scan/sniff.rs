//! What one file is, told by its content: compression first, then formats with a signature, then text.

use std::{
    io::{Cursor, Read},
    sync::Arc,
};

use arrow::datatypes::Fields;

use super::{Head, InputFormat, RecordSource, SourceFile, foreign, rows::RowsInTar};
use crate::{
    array::{Arrays, records::ArrayOptions},
    codec::encoding::{self, Encoding},
    delta::{DataFile, TableReader},
    error::{Error, Kind, Place, Result},
    format::{
        Parsed, ReaderFacts, RecordReader, SourceBytes, SplitStream,
        arrays::{ArrayReader, OpenSources},
        csv, facts,
        hdf5::{self, Hdf5Source},
        ipc::{self, IpcForm, IpcReader},
        json,
        netcdf::{self, NetCdfSource},
        npy::{self, NpySource},
        parquet::{self, ParquetReader},
        ranged::RangedInput,
        tar::{self, TarReader},
        tfrecord::{self, TfRecordReader},
        zarr::ZarrSource,
    },
    record::Split,
    schema,
    storage::{Object, Spool},
};

/// Bytes looked at to tell a format.
const HEAD_BYTES: usize = 256 << 10;
/// The same, where there are so many sources that all of them together tell enough.
const SHORT_HEAD_BYTES: usize = 32 << 10;
/// The same of delimited text whose first record is longer than that: it may have tens of thousands of columns.
const WIDE_HEAD_BYTES: usize = 8 << 20;
/// Bytes looked at in all sources together, unless that would be less than the above of each.
const ALL_HEAD_BYTES: usize = 64 << 20;
/// Most bytes read to see one record of a format whose records can be large.
const SAMPLE_BYTES: usize = 32 << 20;
/// Largest Parquet or Arrow file that is read although it is compressed as a whole, which leaves no way but to hold it.
const PACKED_FILE: u64 = 256 << 20;

/// Last extensions of files that hold records, sorted.
pub(super) const RECORDS: &[&str] = &[
    "arrow",
    "arrows",
    "cdf",
    "csv",
    "feather",
    "geojson",
    "geojsonl",
    "geojsons",
    "h5",
    "hdf",
    "hdf5",
    "he5",
    "ipc",
    "json",
    "jsonl",
    "jsonlines",
    "nc",
    "nc4",
    "ndjson",
    "netcdf",
    "npy",
    "npz",
    "parq",
    "parquet",
    "pq",
    "psv",
    "tab",
    "tar",
    "tbz",
    "tbz2",
    "tfrec",
    "tfrecord",
    "tfrecords",
    "tgz",
    "tsv",
    "txz",
    "tzst",
];

/// Last extensions of files that are compressed or encrypted as a whole, those included that are not read.
pub(super) const PACKED: &[&str] =
    &["br", "bz2", "encrypted", "gz", "lz", "lz4", "lzma", "lzo", "sz", "xz", "z", "zst"];

/// How names of JSON Lines end.
pub(super) const JSON_LINES: &[&str] = &[".geojsonl", ".geojsons", ".jsonl", ".jsonlines", ".ndjson"];

/// How to read sources, where their content does not say.
#[derive(Debug, Clone, Default)]
pub struct SniffOptions {
    /// The format, when the user named it.
    pub from: Option<InputFormat>,
    /// Encoding of text, when the user named it.
    pub encoding: Option<Encoding>,
    /// Settings of delimited text.
    pub csv: csv::CsvOptions,
    /// What records of arrays are.
    pub arrays: ArrayOptions,
    /// Sources of arrays that are open.
    pub open: Arc<OpenSources>,
    /// Settings of JSON.
    pub json: json::JsonOptions,
    /// Columns of text that are to be read as bytes.
    pub binary: Vec<String>,
    /// Columns of rows that are read; `None` for all.
    pub taken: Option<Vec<String>>,
    /// Whether the hash of each source is needed, even if its records do not need all of its bytes.
    pub hashed: bool,
    /// Whether a source that cannot be read is a matter for the conversion.
    pub keep_going: bool,
    /// How many sources there are; of many, less of each is looked at.
    pub sources: usize,
    /// Of how many sources the first records stay in memory; of all if this is not said.
    pub samples: Option<usize>,
}

type Found = (InputFormat, Box<dyn RecordReader>);

/// The records that a file holds; `None` when it holds none.
pub(super) fn source(file: &SourceFile, options: &SniffOptions) -> Result<Option<RecordSource>> {
    if file.is_store() {
        return zarr_source(file, options);
    }
    if let Some(table) = file.table() {
        return table_source(file, table).map(Some);
    }
    let head_bytes = (ALL_HEAD_BYTES / options.sources.max(1)).clamp(SHORT_HEAD_BYTES, HEAD_BYTES);
    let head = file.head(head_bytes)?;
    let enough = head.complete || head_bytes == HEAD_BYTES;
    let complete = head.complete;
    let found = source_of(file, options, head)?;
    if found.is_none() && !complete && is_said_to_be_delimited(file, options) {
        return source_of(file, options, file.head(WIDE_HEAD_BYTES)?);
    }
    if enough || found.as_ref().is_some_and(|source| source.sample.is_some()) {
        return Ok(found);
    }
    // Its first record may just be longer than that.
    source_of(file, options, file.head(HEAD_BYTES)?)
}

/// Whether the user or the name says that a file is delimited text.
fn is_said_to_be_delimited(file: &SourceFile, options: &SniffOptions) -> bool {
    match options.from {
        Some(from) => matches!(from, InputFormat::Csv | InputFormat::Tsv),
        None => is_csv_name(&file.name().to_ascii_lowercase()),
    }
}

fn is_csv_name(lower: &str) -> bool {
    [".csv", ".tsv", ".tab", ".psv"].iter().any(|e| lower.ends_with(e) || lower.contains(&format!("{e}.")))
}

fn source_of(file: &SourceFile, options: &SniffOptions, head: Head) -> Result<Option<RecordSource>> {
    let Head { bytes: head, complete, packed } = head;
    let wanted = |format| options.from.is_none_or(|from| from == format);
    if wanted(InputFormat::Parquet) && parquet::is_encrypted(&head) {
        return Err(parquet::encrypted().at(file.uri()));
    }
    let found: Option<Found> = if wanted(InputFormat::Parquet) && parquet::sniff(&head) {
        let reader = ParquetReader::open_with_bytes(ranged(file, packed)?, &file.uri(), &options.binary)?;
        Some((
            InputFormat::Parquet,
            Box::new(match &options.taken {
                Some(taken) => reader.taking(taken),
                None => reader,
            }),
        ))
    } else if let Some(form) = ipc::sniff(&head).filter(|_| wanted(InputFormat::Arrow)) {
        let reader = match form {
            IpcForm::File => IpcReader::open(ranged(file, packed)?, &file.uri())?,
            IpcForm::Stream => IpcReader::of_stream(),
        };
        Some((InputFormat::Arrow, Box::new(reader)))
    } else if wanted(InputFormat::Tar) && tar::sniff(&head) {
        Some(match types_beside(file)? {
            Some(types) => (InputFormat::Tar, Box::new(RowsInTar::new(types))),
            None => (InputFormat::Tar, Box::new(TarReader::with_links(archive_of(file, packed)))),
        })
    } else if wanted(InputFormat::TfRecord) && tfrecord::sniff(&head) {
        Some((InputFormat::TfRecord, Box::new(TfRecordReader::new(types_beside(file)?))))
    } else if wanted(InputFormat::NetCdf) && netcdf::sniff(&head) {
        let open = |input| Ok((InputFormat::NetCdf, Box::new(NetCdfSource::open(input)?) as Box<dyn Arrays>));
        return array_source(file, options, packed, open);
    } else if (wanted(InputFormat::NetCdf) || wanted(InputFormat::Hdf5)) && hdf5::sniff(&head) {
        let uri = file.uri();
        return array_source(file, options, packed, move |input| {
            let source = Hdf5Source::open(input, &uri)?;
            Ok((if source.is_netcdf() { InputFormat::NetCdf } else { InputFormat::Hdf5 }, Box::new(source)))
        });
    } else if let Some(form) = npy::sniff(&head).filter(|_| wanted(InputFormat::Npy)) {
        let open = move |input| Ok((InputFormat::Npy, Box::new(NpySource::open(input, form)?) as Box<dyn Arrays>));
        return array_source(file, options, packed, open);
    } else {
        None
    };
    let Some((format, reader)) = found else { return text(file, Head { bytes: head, complete, packed }, options) };
    let mut source = RecordSource { packed, ..RecordSource::new(file, format, reader.into()) };
    source.sample = first_split(&source)?;
    Ok(Some(source))
}

/// A source of arrays.
fn array_source(
    file: &SourceFile,
    options: &SniffOptions,
    packed: bool,
    open: impl Fn(RangedInput) -> Result<(InputFormat, Box<dyn Arrays>)> + Send + Sync + 'static,
) -> Result<Option<RecordSource>> {
    let again = {
        let file = file.clone();
        move || placed(open(ranged(&file, packed)?), &file)
    };
    let (format, arrays) = again()?;
    let again = Box::new(move || Ok(again()?.1));
    let reader = ArrayReader::new(arrays, again, &options.arrays, &file.uri(), file.bytes(), &options.open)?;
    Ok(Some(of_arrays(file, format, packed, reader)))
}

/// A folder that is one source; `None` when the user named another format.
fn zarr_source(file: &SourceFile, options: &SniffOptions) -> Result<Option<RecordSource>> {
    if options.from.is_some_and(|from| from != InputFormat::Zarr) {
        return Ok(None);
    }
    let again = {
        let file = file.clone();
        move || Ok(Box::new(placed(ZarrSource::open(file.folder(), file.store_metadata()), &file)?) as Box<dyn Arrays>)
    };
    let arrays = again()?;
    let reader = ArrayReader::new(arrays, Box::new(again), &options.arrays, &file.uri(), file.bytes(), &options.open)?;
    Ok(Some(of_arrays(file, InputFormat::Zarr, false, reader)))
}

/// A data file of a Delta table.
fn table_source(file: &SourceFile, table: &DataFile) -> Result<RecordSource> {
    let inner = ParquetReader::open_as_stored(RangedInput::Object(file.object()), &file.uri())?;
    let reader = Arc::new(placed(TableReader::open(inner, table), file)?);
    let mut source = RecordSource::new(file, InputFormat::Parquet, reader);
    source.sample = first_split(&source)?;
    Ok(source)
}

/// Names the source in an error that does not.
fn placed<T>(result: Result<T>, file: &SourceFile) -> Result<T> {
    result.map_err(|e| if e.place().source.is_some() { e } else { e.at(file.uri()) })
}

fn of_arrays(file: &SourceFile, format: InputFormat, packed: bool, reader: ArrayReader) -> RecordSource {
    let sample = Some(reader.first_split());
    RecordSource { packed, sample, ..RecordSource::new(file, format, Arc::new(reader)) }
}

/// A source that fails with `error` when it is converted.
pub(super) fn unreadable(file: &SourceFile, options: &SniffOptions, error: Error) -> RecordSource {
    let format = options.from.unwrap_or(InputFormat::Csv);
    let reader =
        Arc::new(Unreadable { kind: error.kind(), message: error.message().to_owned(), place: error.place().clone() });
    RecordSource::new(file, format, reader)
}

/// Parquet and Arrow files are read out of order, so one that is compressed as a whole is decompressed to memory.
fn ranged(file: &SourceFile, packed: bool) -> Result<RangedInput> {
    if !packed {
        return Ok(RangedInput::Object(file.object()));
    }
    let mut bytes = Vec::new();
    file.open(|_| {})?.take(PACKED_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PACKED_FILE {
        return Err(Error::input(
            "expected at most 256 MiB of Parquet, Arrow or arrays in a compressed file, found more",
        )
        .at(file.uri())
        .hint("decompress it first; these formats compress by themselves"));
    }
    Ok(RangedInput::Bytes(bytes.into()))
}

/// A stream that ends where it cannot be read: whoever reads it in order reports that.
struct UntilDamage<R>(R);

impl<R: Read> Read for UntilDamage<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer) {
            Err(e) if e.kind() != std::io::ErrorKind::Interrupted => Ok(0),
            read => read,
        }
    }
}

/// How an archive is read out of order: one that is compressed as a whole is decompressed to disk.
fn archive_of(file: &SourceFile, packed: bool) -> tar::Reopen {
    let file = file.clone();
    tar::Reopen::new(move || {
        if !packed {
            return Ok(RangedInput::Object(file.object()));
        }
        let spool = Spool::of(UntilDamage(file.open(|_| {})?))?;
        Ok(RangedInput::Object(Object::new(Arc::clone(spool.store()), Spool::NAME, spool.bytes())))
    })
}

/// Types that the rows in a file had, if shardify wrote it and its folder says so.
fn types_beside(file: &SourceFile) -> Result<Option<Fields>> {
    let Some(text) = file.object().sibling(schema::file::NAME)? else { return Ok(None) };
    // Somebody else's file of that name says nothing.
    Ok(std::str::from_utf8(&text).ok().and_then(|text| schema::file::parse(text).ok()))
}

/// The first records of a source; `None` when there are none, or when they are too large or damaged to tell anything.
fn first_split(source: &RecordSource) -> Result<Option<Split>> {
    let input: Box<dyn Read + Send> =
        if source.reader.facts().reads_own_source { Box::new(std::io::empty()) } else { source.open(|_| {})? };
    let mut splits = source.reader.splits(input, HEAD_BYTES, SAMPLE_BYTES);
    Ok(splits.next().and_then(Result::ok))
}

fn text(file: &SourceFile, head: Head, options: &SniffOptions) -> Result<Option<RecordSource>> {
    let Head { bytes: head, complete, packed } = head;
    let encoding = options.encoding.or_else(|| encoding::sniff(&head));
    let head = match encoding {
        None => head,
        Some(encoding) => {
            let mut text = Vec::new();
            encoding::decode(encoding, Box::new(Cursor::new(head))).read_to_end(&mut text)?;
            // A character that the head cuts in two is no fault.
            if !complete && text.last() == Some(&encoding::MALFORMED) {
                text.pop();
            }
            text
        }
    };
    if options.from.is_none() && foreign::holds_no_records(&head) {
        return Ok(None);
    }
    let Some((format, reader)) = text_reader(file, &head, complete, options)? else { return Ok(None) };
    let sample = whole_records(reader.as_ref(), head, complete);
    Ok(Some(RecordSource { packed, encoding, sample, ..RecordSource::new(file, format, reader.into()) }))
}

fn text_reader(file: &SourceFile, head: &[u8], complete: bool, options: &SniffOptions) -> Result<Option<Found>> {
    let json_source = |mode| Box::new(json::JsonSource::new(mode).with_options(options.json.clone()));
    Ok(match options.from {
        Some(from @ (InputFormat::Csv | InputFormat::Tsv)) => {
            let mut csv = csv::CsvOptions { certain: true, ..options.csv.clone() };
            if from == InputFormat::Tsv {
                csv.delimiter.get_or_insert(b'\t');
            }
            let source = sniff_csv(file, head, complete, &csv)?;
            source.map(|source| (InputFormat::Csv, Box::new(source) as Box<dyn RecordReader>))
        }
        Some(InputFormat::Jsonl) => Some((InputFormat::Jsonl, json_source(json::Mode::Lines))),
        Some(InputFormat::Json) => Some((InputFormat::Json, json_source(json::Mode::Document))),
        Some(_) => None,
        None => {
            let lower = file.name().to_ascii_lowercase();
            let is_csv_name = is_csv_name(&lower);
            let named = csv::CsvOptions { named: is_csv_name, ..options.csv.clone() };
            if !is_csv_name && let Some(source) = json::sniff(head, complete) {
                let lines = source.mode() == json::Mode::Lines;
                let format = if lines { InputFormat::Jsonl } else { InputFormat::Json };
                return Ok(Some((format, Box::new(source.with_options(options.json.clone())))));
            }
            // What is left of a document is no table, although commas are all over it.
            match json_name(&lower) {
                Some(json::Mode::Lines) if foreign::is_table(head, complete) => return Ok(None),
                Some(json::Mode::Lines) if !is_csv_name && !head.is_empty() => {
                    return Ok(Some((InputFormat::Jsonl, json_source(json::Mode::Lines))));
                }
                Some(json::Mode::Document) if !is_csv_name => {
                    let structured = matches!(head.trim_ascii_start().first(), Some(b'{' | b'['));
                    return Ok(structured.then(|| (InputFormat::Json, json_source(json::Mode::Document) as Box<_>)));
                }
                _ => {}
            }
            let source = match is_csv_name {
                true => match sniff_csv(file, head, complete, &named)? {
                    None if json::sniff(head, complete).is_none() => {
                        let certain = csv::CsvOptions { certain: true, ..named };
                        sniff_csv(file, head, complete, &certain)?.filter(csv::CsvSource::is_convincing)
                    }
                    found => found,
                },
                // Any text is a table of one column; only a name makes it worth reading as one.
                false => match csv::sniff(head, complete, &options.csv) {
                    None if is_damaged_text(head) => {
                        sniff_csv(file, head, complete, &options.csv)?.filter(csv::CsvSource::is_convincing)
                    }
                    found => found,
                }
                .filter(|source| source.columns().len() > 1),
            };
            source.map(|source| (InputFormat::Csv, Box::new(source) as Box<dyn RecordReader>))
        }
    })
}

/// Most bytes among a thousand that are not UTF-8 in damaged text.
const DAMAGED_PER_MILLE: usize = 10;

/// Whether bytes are text in UTF-8 apart from a few.
fn is_damaged_text(head: &[u8]) -> bool {
    let invalid: usize = head.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    invalid > 0 && invalid * 1000 <= head.len() * DAMAGED_PER_MILLE && memchr::memchr(0, head).is_none()
}

/// How records lie in a file whose name says that it is JSON.
fn json_name(lower: &str) -> Option<json::Mode> {
    let named = |ends: &[&str]| ends.iter().any(|e| lower.ends_with(e) || lower.contains(&format!("{e}.")));
    if named(JSON_LINES) {
        return Some(json::Mode::Lines);
    }
    named(&[".json", ".geojson"]).then_some(json::Mode::Document)
}

/// Sniffs what is said to be delimited text: a few bytes that are not UTF-8 make bad records, not another format. In
/// the header they would make columns that nobody named.
fn sniff_csv(
    file: &SourceFile,
    head: &[u8],
    complete: bool,
    options: &csv::CsvOptions,
) -> Result<Option<csv::CsvSource>> {
    let valid = csv::sniff(head, complete, options);
    if valid.is_some() {
        return Ok(valid);
    }
    let mut text = head.to_vec();
    let mut at = 0;
    let mut first = None;
    while let Err(e) = std::str::from_utf8(&text[at..]) {
        at += e.valid_up_to();
        first.get_or_insert(at);
        text[at] = b'?';
    }
    let source = csv::sniff(&text, complete, options);
    match (&source, first) {
        (Some(csv), Some(at)) if (at as u64) < csv.data_offset => {
            Err(Error::input(format!("expected a header in UTF-8, found the byte 0x{:02X}", head[at]))
                .byte(at as u64)
                .at(file.name())
                .hint(encoding::hint(head)))
        }
        _ => Ok(source),
    }
}

/// The first split of the head, as far as it holds whole records.
fn whole_records(reader: &dyn RecordReader, head: Vec<u8>, complete: bool) -> Option<Split> {
    let length = head.len().max(1);
    let limit = if complete { length.min(HEAD_BYTES / 2) } else { length.div_ceil(2) };
    // A record larger than the head says nothing yet.
    reader.splits(Box::new(Cursor::new(head)), limit, length * 2).next().and_then(Result::ok)
}

/// Stands for a file that could not be read, until it is its turn.
#[derive(Debug)]
struct Unreadable {
    kind: Kind,
    message: String,
    place: Place,
}

impl RecordReader for Unreadable {
    fn facts(&self) -> &ReaderFacts {
        &facts::HELD
    }

    fn splits<'a>(&'a self, _: SourceBytes<'a>, _: usize, _: usize) -> SplitStream<'a> {
        Box::new(std::iter::once_with(|| {
            let mut error = Error::new(self.kind, self.message.clone());
            let place = &self.place;
            error = place.source.iter().fold(error, |e, source| e.at(source.clone()));
            Err(place.byte.iter().fold(error, |e, byte| e.byte(*byte)))
        }))
    }

    fn infer(&self, _: &Split) -> Fields {
        Fields::empty()
    }

    fn parse(&self, _: &Split, _: &arrow::datatypes::SchemaRef) -> Result<Parsed> {
        Err(Error::internal("nothing was read of this source"))
    }
}
