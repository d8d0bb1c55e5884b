//! Entry points for fuzzers: one function per reader, which processes the bytes of a file as a command would.
//!
//! For any bytes, each function returns within bounded time and memory. Errors are expected, except those that blame
//! the program or the storage, because only the bytes can be at fault here: [`blames`] identifies these errors. `fuzz/`
//! has a cargo-fuzz target for each of [`TARGETS`]; `tests/fuzz_smoke.rs` calls the same functions without a fuzzer.

mod files;

use std::{ffi::OsString, str::FromStr, sync::Arc};

use bytes::Bytes;

use self::files::MemoryFiles;
use crate::{
    array::records::ArrayOptions,
    cli,
    codec::{Codec, encoding::Encoding, zip::ZipMember},
    dataset::{Dataset, find_hits, find_prefix},
    delta::Table,
    error::{Error, Kind, Result},
    events::Cancel,
    exec::{
        encode::{EncodeUnit, Encoder, SourceBatch},
        source::SourceName,
    },
    format::{OutputFormat, Parsed, ipc::StreamEnd},
    ops::{export, prove},
    record::Payload,
    scan::{self, Input, InputFormat, RecordSource, SniffOptions, SourceFile, StatedStream, classify_inputs},
    schema::{self, schema_of, unite_lists},
    storage::{Location, Store, ZipStore},
    units::{Size, parse_duration},
};

/// Maximum bytes of a record of a stream.
const FUZZED_RECORD: usize = 1 << 20;

/// Entry point of a reader.
pub type Target = fn(&[u8]) -> Result<()>;

/// All entry points, by the names of their fuzz targets.
pub const TARGETS: [(&str, Target); 25] = [
    ("csv", csv),
    ("json", json),
    ("jsonl", jsonl),
    ("parquet", parquet),
    ("arrow", arrow),
    ("avro", avro),
    ("tar", tar),
    ("tfrecord", tfrecord),
    ("warc", warc),
    ("netcdf", netcdf),
    ("hdf5", hdf5),
    ("zarr", zarr),
    ("npy", npy),
    ("safetensors", safetensors),
    ("nifti", nifti),
    ("zip", zip),
    ("excel", excel),
    ("packed", packed),
    ("any", any),
    ("foreign_shards", foreign_shards),
    ("delta", delta),
    ("dataset", dataset),
    ("proof", proof),
    ("schema", schema),
    ("arguments", arguments),
];

/// Bytes of a range.
const SPLIT: usize = 64 << 10;
/// Maximum bytes of a record.
const RECORD: usize = 4 << 20;
/// Maximum number of ranges read from a source.
const SPLITS: usize = 8;

/// Maximum bytes of rows that are encoded again.
const ENCODED: u64 = 8 << 20;

/// Returns whether an error blames the program or the storage.
pub fn blames(error: &Error) -> bool {
    matches!(error.kind(), Kind::Internal | Kind::Storage)
}

/// Reads delimited text.
///
/// # Errors
/// Fails if the bytes cannot be read; see [`blames`].
pub fn csv(bytes: &[u8]) -> Result<()> {
    read_file("x.csv", bytes, Some(InputFormat::CSV))
}

/// Reads a JSON document.
///
/// # Errors
/// Fails like [`csv`].
pub fn json(bytes: &[u8]) -> Result<()> {
    read_file("x.json", bytes, Some(InputFormat::JSON))
}

/// Reads JSON Lines.
///
/// # Errors
/// Fails like [`csv`].
pub fn jsonl(bytes: &[u8]) -> Result<()> {
    read_file("x.jsonl", bytes, Some(InputFormat::JSONL))
}

/// Reads Parquet.
///
/// # Errors
/// Fails like [`csv`].
pub fn parquet(bytes: &[u8]) -> Result<()> {
    read_file("x.parquet", bytes, Some(InputFormat::PARQUET))
}

/// Reads Arrow IPC, a file or a stream, whose rows are first hashed, as those of standard input are.
///
/// # Errors
/// Fails like [`csv`].
pub fn arrow(bytes: &[u8]) -> Result<()> {
    let (name, from, end) = (Some("x"), InputFormat::ARROW, StreamEnd::Any);
    let stated = StatedStream { name, etag: None, from, end, max_record_bytes: FUZZED_RECORD };
    let hashed = stated.read_source(bytes);
    let read = read_file("x.arrow", bytes, Some(InputFormat::ARROW));
    hashed.map_or_else(|error| if blames(&error) { Err(error) } else { Ok(()) }, |_| Ok(())).and(read)
}

/// Reads an Avro file.
///
/// # Errors
/// Fails like [`csv`].
pub fn avro(bytes: &[u8]) -> Result<()> {
    read_file("x.avro", bytes, Some(InputFormat::AVRO))
}

/// Reads an archive of samples.
///
/// # Errors
/// Fails like [`csv`].
pub fn tar(bytes: &[u8]) -> Result<()> {
    read_file("x.tar", bytes, Some(InputFormat::TAR))
}

/// Reads TFRecord of `tf.train.Example`.
///
/// # Errors
/// Fails like [`csv`].
pub fn tfrecord(bytes: &[u8]) -> Result<()> {
    read_file("x.tfrecord", bytes, Some(InputFormat::TFRECORD))
}

/// Reads a web archive.
///
/// # Errors
/// Fails like [`csv`].
pub fn warc(bytes: &[u8]) -> Result<()> {
    read_file("x.warc", bytes, Some(InputFormat::WARC))
}

/// Reads NetCDF.
///
/// # Errors
/// Fails like [`csv`].
pub fn netcdf(bytes: &[u8]) -> Result<()> {
    read_file("x.nc", bytes, Some(InputFormat::NETCDF))
}

/// Reads HDF5.
///
/// # Errors
/// Fails like [`csv`].
pub fn hdf5(bytes: &[u8]) -> Result<()> {
    read_file("x.h5", bytes, Some(InputFormat::HDF5))
}

/// Reads NPY or NPZ.
///
/// # Errors
/// Fails like [`csv`].
pub fn npy(bytes: &[u8]) -> Result<()> {
    read_file("x.npy", bytes, Some(InputFormat::NPY))
}

/// Reads a sheet of a workbook, of any kind; builds without the feature `excel` read nothing.
///
/// # Errors
/// Fails like [`csv`].
pub fn excel(bytes: &[u8]) -> Result<()> {
    read_file("x.xlsx", bytes, Some(InputFormat::EXCEL))
}

/// Reads safetensors.
///
/// # Errors
/// Fails like [`csv`].
pub fn safetensors(bytes: &[u8]) -> Result<()> {
    read_file("x.safetensors", bytes, Some(InputFormat::SAFETENSORS))
}

/// Reads NIfTI, plain or compressed.
///
/// # Errors
/// Fails like [`csv`].
pub fn nifti(bytes: &[u8]) -> Result<()> {
    read_file("x.nii", bytes, Some(InputFormat::NIFTI))
}

/// Reads the members of a zip archive.
///
/// # Errors
/// Fails like [`csv`].
pub fn zip(bytes: &[u8]) -> Result<()> {
    let store = MemoryFiles::new_store(std::iter::once(("x.zip".to_owned(), Bytes::copy_from_slice(bytes))))?;
    let Some(facts) = store.head("x.zip")? else { return Ok(()) };
    let choose = &mut |member: &ZipMember, _| Ok(member.unsafe_name().or_else(|| member.refusal()).is_none());
    let archive: Arc<dyn Store> = Arc::new(ZipStore::open(store, facts, choose)?);
    let mut outcome = Ok(());
    for facts in archive.list_folder("")?.into_iter().take(SPLITS) {
        let mut streamed = Vec::new();
        let mut start = std::io::Read::take(archive.read(&facts.path)?, RECORD as u64);
        let read = std::io::Read::read_to_end(&mut start, &mut streamed).map_err(Error::from);
        let ranges = archive.get_range(&facts.path, facts.bytes / 2..facts.bytes.min(facts.bytes / 2 + 9)).map(drop);
        outcome = outcome.and(read.map(drop)).and(ranges).and(archive.get(&facts.path).map(drop));
    }
    outcome
}

/// Reads a Zarr store, given as [`several`] files.
///
/// # Errors
/// Fails like [`csv`].
pub fn zarr(bytes: &[u8]) -> Result<()> {
    let files = several(bytes).into_iter().map(|(path, content)| (format!("x.zarr/{path}"), content));
    read(MemoryFiles::new_store(files)?, Some(InputFormat::ZARR))
}

/// Reads a Delta table, given as [`several`] files: its log, and the data files that this names.
///
/// # Errors
/// Fails like [`csv`].
pub fn delta(bytes: &[u8]) -> Result<()> {
    let store: Arc<dyn Store> = MemoryFiles::new_store(several(bytes).into_iter())?;
    let table = Table::open(Arc::clone(&store))?;
    let snapshot = table.read_snapshot(None)?;
    let outcome = table.changes_since(0, &snapshot).map(|_| ());
    let in_table = |file: SourceFile| {
        let data = snapshot.files().get(file.name())?.clone();
        Some(file.in_table(data))
    };
    let files = scan::in_store(&store)?.into_iter().filter_map(in_table).take(SPLITS).collect();
    outcome.and(read_classified(files, &SniffOptions { from: Some(InputFormat::PARQUET), ..SniffOptions::default() }))
}

/// Reads a file of any format, detected by content; also covers compressed files.
///
/// # Errors
/// Fails like [`csv`].
pub fn any(bytes: &[u8]) -> Result<()> {
    read_file("x", bytes, None)
}

/// Reads delimited text from a compressed file.
///
/// # Errors
/// Fails like [`csv`].
pub fn packed(bytes: &[u8]) -> Result<()> {
    read_file("x.csv.gz", bytes, Some(InputFormat::CSV))
}

/// Scans shards of other programs as `adopt` does.
///
/// # Errors
/// Fails like [`csv`].
pub fn foreign_shards(bytes: &[u8]) -> Result<()> {
    let mut outcome = Ok(());
    for framing in OutputFormat::ALL.into_iter().filter_map(|format| format.facts().framing) {
        let foreign = framing.scan_foreign(&mut &*bytes, &mut |_, _| Ok(())).map(|_| ());
        let own = framing.scan(&mut &*bytes, &mut |_| Ok(()));
        outcome = outcome.and(foreign).and(own);
    }
    outcome
}

/// Reads a dataset, given as [`several`] files: opens, lists, searches and exports its newest version.
///
/// # Errors
/// Fails like [`csv`].
pub fn dataset(bytes: &[u8]) -> Result<()> {
    let store: Arc<dyn Store> = MemoryFiles::new_store(several(bytes).into_iter())?;
    let Some(snapshot) = Dataset::new(store).newest_snapshot()? else { return Ok(()) };
    let mut outcome = snapshot.live_shards().map(|_| ()).and(snapshot.run_table().map(|_| ()));
    outcome = outcome.and(snapshot.full_run_table().map(|_| ()));
    outcome = outcome.and(snapshot.each_source(&mut |_| Ok(())));
    for id in ["1", "p1", "a.csv#1"] {
        outcome = outcome.and(find_hits(&snapshot, id).map(|_| ()));
    }
    outcome = outcome.and(find_prefix(&snapshot, "p", 10, &Cancel::default(), &mut |_| Ok(())).map(|_| ()));
    let exported = export::visit_records(&snapshot, &Cancel::default(), &mut |_| Ok(()));
    outcome.and(exported.map(|_| ()))
}

/// Verifies a proof of presence or absence.
///
/// # Errors
/// Fails like [`csv`].
pub fn proof(bytes: &[u8]) -> Result<()> {
    prove::verify_bytes(bytes, "a proof", prove::Expected { root: None, id: None }, None).map(|_| ())
}

/// Parses `schema.json` and types in command-line syntax; a parsed value must survive being printed and parsed again.
///
/// # Errors
/// Fails like [`csv`].
pub fn schema(bytes: &[u8]) -> Result<()> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    if let Ok(field) = schema::file::parse_type(text) {
        check_same(&schema::file::parse_type(&schema::file::print_type(&field))?, &field)?;
    }
    let fields = schema::file::parse(text)?;
    check_same(&schema::file::parse(&schema::file::print_file(&fields))?, &fields)
}

/// Parses arguments, one per line, and the values in them: sizes, durations, codecs, encodings, locations.
///
/// # Errors
/// Fails like [`csv`].
pub fn arguments(bytes: &[u8]) -> Result<()> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    let words = std::iter::once("shardify").chain(text.split('\n'));
    let mut outcome = cli::check_arguments(words.map(OsString::from));
    for word in text.split('\n') {
        outcome = outcome.and(Size::from_str(word).map(|_| ()));
        outcome = outcome.and(parse_duration(word).map(|_| ()));
        outcome = outcome.and(Encoding::from_str(word).map(|_| ()));
        outcome = outcome.and(Location::parse(word, std::path::Path::new("/")).map(|location| {
            let _ = (location.to_string(), location.split_name());
        }));
        if let Ok(codec) = Codec::from_str(word) {
            check_same(&Codec::from_str(&codec.to_string())?, &codec)?;
        }
    }
    outcome
}

fn check_same<T: PartialEq + std::fmt::Debug>(a: &T, b: &T) -> Result<()> {
    if a == b { Ok(()) } else { Err(Error::internal(format!("expected what was printed, {b:?}, found {a:?}"))) }
}

/// Splits bytes into files, each encoded as: length of the path in one byte, the path, length of the content in
/// three bytes, the content. The last file may be truncated.
pub fn several(mut bytes: &[u8]) -> Vec<(String, Bytes)> {
    let mut files = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (path, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        let (size, rest) = rest.split_at(rest.len().min(3));
        let size = size.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let (content, rest) = rest.split_at(rest.len().min(size));
        files.push((String::from_utf8_lossy(path).into_owned(), Bytes::copy_from_slice(content)));
        bytes = rest;
    }
    files
}

/// Encodes files for [`several`], to create seeds; paths of up to 255 bytes, contents of less than 16 MiB.
pub fn joined<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, content) in files {
        out.push(u8::try_from(path.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(&path.as_bytes()[..path.len().min(255)]);
        out.extend_from_slice(&u32::try_from(content.len()).unwrap_or(0).to_le_bytes()[..3]);
        out.extend_from_slice(content);
    }
    out
}

fn read_file(name: &str, bytes: &[u8], from: Option<InputFormat>) -> Result<()> {
    read(MemoryFiles::new_store([(name.to_owned(), Bytes::copy_from_slice(bytes))].into_iter())?, from)
}

/// Reads all sources of a store as `convert` does, and arrays in each supported layout of records.
fn read(store: Arc<dyn Store>, from: Option<InputFormat>) -> Result<()> {
    let arrays = from.is_some_and(InputFormat::is_array);
    let layouts: &[(bool, bool)] =
        if arrays { &[(false, false), (true, false), (false, true)] } else { &[(false, false)] };
    let mut outcome = Ok(());
    for (raw, flatten) in layouts {
        let found = scan::in_store(&store)?;
        let arrays = ArrayOptions { raw: *raw, flatten: *flatten, coded: true, ..ArrayOptions::default() };
        let options = SniffOptions { from, arrays, ..SniffOptions::default() };
        outcome = outcome.and(read_classified(found, &options));
    }
    outcome
}

fn read_classified(found: Vec<SourceFile>, options: &SniffOptions) -> Result<()> {
    match classify_inputs(found, options)? {
        Input::Files(_) => Ok(()),
        Input::Records(sources) => sources.iter().try_for_each(read_records),
    }
}

/// Infers the types of the first ranges of a source, parses them, and encodes the records.
fn read_records(source: &RecordSource) -> Result<()> {
    let input: Box<dyn std::io::Read + Send> =
        if source.reader.facts().reads_own_source { Box::new(std::io::empty()) } else { source.open(|_| {})? };
    let mut ranges = Vec::new();
    let mut outcome = Ok(());
    for range in source.reader.ranges(input, SPLIT, RECORD).take(SPLITS) {
        match range {
            Ok(range) => ranges.push(range),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    let fields = ranges.iter().fold(source.fields.clone(), |all, range| unite_lists(&all, &source.reader.infer(range)));
    let schema = schema_of(&fields);
    for range in &ranges {
        match source.reader.parse(range, &schema) {
            Ok(Parsed::Block(block)) => outcome = outcome.and(encode_records(block.payload, &schema)),
            Ok(Parsed::Mismatch(_)) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome.and(source.reader.arrays().map_or(Ok(()), |arrays| arrays.read_constants().map(drop)))
}

/// Encodes records in all formats.
fn encode_records(payload: Payload, schema: &arrow::datatypes::SchemaRef) -> Result<()> {
    let records = payload.len();
    let formats: &[OutputFormat] = match &payload {
        Payload::Rows(batch) if batch.get_array_memory_size() as u64 > ENCODED => return Ok(()),
        Payload::Rows(_) => &OutputFormat::ALL,
        Payload::Samples(_) => &[OutputFormat::Tar],
    };
    let source = Arc::new(SourceName { name: "x".into(), key: "x".into(), columns: None, subject: None });
    for format in formats {
        let encoder = Encoder::new(*format, Codec::None, schema, Vec::new(), None)?;
        let batch = SourceBatch {
            lacking: Arc::default(),
            payload: payload.clone(),
            source: Arc::clone(&source),
            rows: (1..=records as u64).collect::<Vec<_>>().into(),
            hashes: vec![0; records].into(),
            fingerprints: Vec::new(),
            sidecar: None,
        };
        encoder.encode_unit(EncodeUnit {
            split: 0,
            number: 0,
            batches: vec![batch],
            starts_shard: true,
            bytes_in: 0,
            raw_bytes: 0,
        })?;
    }
    Ok(())
}
