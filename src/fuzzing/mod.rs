//! Doors for fuzzers: one function per reader, which takes the bytes of a file and does what a command would do with it.
//!
//! Whatever the bytes are, each returns within bounded time and memory. An error is fine, unless it blames the program or
//! the storage, for here only the bytes can be at fault: [`blames`] says which errors those are. `fuzz/` has a target of
//! cargo-fuzz for each of [`TARGETS`], `tests/fuzz_smoke.rs` drives the same functions without a fuzzer.

mod files;

use std::{ffi::OsString, str::FromStr, sync::Arc};

use bytes::Bytes;

use self::files::Files;
use crate::{
    array::records::ArrayOptions,
    cli,
    codec::{Codec, encoding::Encoding},
    dataset::{Dataset, find, find_prefix},
    error::{Error, Kind, Result},
    events::Cancel,
    exec::encode::{EncodeUnit, Encoder, SourceBatch, SourceName},
    format::{OutputFormat, Parsed},
    ops::{export, prove},
    record::Payload,
    scan::{self, Input, InputFormat, RecordSource, SniffOptions, classify},
    schema::{self, schema_of, unite_lists},
    storage::{Location, Store},
    units::{Size, parse_duration},
};

/// A reader as a fuzzer sees it.
pub type Target = fn(&[u8]) -> Result<()>;

/// All readers, by the names of their fuzz targets.
pub const TARGETS: [(&str, Target); 18] = [
    ("csv", csv),
    ("json", json),
    ("jsonl", jsonl),
    ("parquet", parquet),
    ("arrow", arrow),
    ("tar", tar),
    ("tfrecord", tfrecord),
    ("netcdf", netcdf),
    ("hdf5", hdf5),
    ("zarr", zarr),
    ("npy", npy),
    ("packed", packed),
    ("any", any),
    ("foreign_shards", foreign_shards),
    ("dataset", dataset),
    ("proof", proof),
    ("schema", schema),
    ("arguments", arguments),
];

/// Bytes of a split, and of a record at most; splits of a source that are looked at.
const SPLIT: usize = 64 << 10;
const RECORD: usize = 4 << 20;
const SPLITS: usize = 8;

/// Bytes of rows that are encoded again.
const ENCODED: u64 = 8 << 20;

/// Whether an error says that the program or the storage is at fault.
pub fn blames(error: &Error) -> bool {
    matches!(error.kind(), Kind::Internal | Kind::Storage)
}

/// Delimited text.
///
/// # Errors
/// When it cannot be read; see [`blames`].
pub fn csv(bytes: &[u8]) -> Result<()> {
    file("x.csv", bytes, Some(InputFormat::Csv))
}

/// A document of JSON.
///
/// # Errors
/// As [`csv`].
pub fn json(bytes: &[u8]) -> Result<()> {
    file("x.json", bytes, Some(InputFormat::Json))
}

/// Lines of JSON.
///
/// # Errors
/// As [`csv`].
pub fn jsonl(bytes: &[u8]) -> Result<()> {
    file("x.jsonl", bytes, Some(InputFormat::Jsonl))
}

/// Parquet.
///
/// # Errors
/// As [`csv`].
pub fn parquet(bytes: &[u8]) -> Result<()> {
    file("x.parquet", bytes, Some(InputFormat::Parquet))
}

/// Arrow IPC, a file or a stream.
///
/// # Errors
/// As [`csv`].
pub fn arrow(bytes: &[u8]) -> Result<()> {
    file("x.arrow", bytes, Some(InputFormat::Arrow))
}

/// An archive of samples.
///
/// # Errors
/// As [`csv`].
pub fn tar(bytes: &[u8]) -> Result<()> {
    file("x.tar", bytes, Some(InputFormat::Tar))
}

/// TFRecord of `tf.train.Example`.
///
/// # Errors
/// As [`csv`].
pub fn tfrecord(bytes: &[u8]) -> Result<()> {
    file("x.tfrecord", bytes, Some(InputFormat::TfRecord))
}

/// NetCDF.
///
/// # Errors
/// As [`csv`].
pub fn netcdf(bytes: &[u8]) -> Result<()> {
    file("x.nc", bytes, Some(InputFormat::NetCdf))
}

/// HDF5.
///
/// # Errors
/// As [`csv`].
pub fn hdf5(bytes: &[u8]) -> Result<()> {
    file("x.h5", bytes, Some(InputFormat::Hdf5))
}

/// NPY and NPZ.
///
/// # Errors
/// As [`csv`].
pub fn npy(bytes: &[u8]) -> Result<()> {
    file("x.npy", bytes, Some(InputFormat::Npy))
}

/// A Zarr store, as [`several`] files.
///
/// # Errors
/// As [`csv`].
pub fn zarr(bytes: &[u8]) -> Result<()> {
    let files = several(bytes).into_iter().map(|(path, content)| (format!("x.zarr/{path}"), content));
    read(Files::store(files)?, Some(InputFormat::Zarr))
}

/// Anything, told by its content; whole files that are compressed come this way.
///
/// # Errors
/// As [`csv`].
pub fn any(bytes: &[u8]) -> Result<()> {
    file("x", bytes, None)
}

/// Delimited text within a file that is compressed as a whole.
///
/// # Errors
/// As [`csv`].
pub fn packed(bytes: &[u8]) -> Result<()> {
    file("x.csv.gz", bytes, Some(InputFormat::Csv))
}

/// Shards of other programs, as `adopt` walks through them.
///
/// # Errors
/// As [`csv`].
pub fn foreign_shards(bytes: &[u8]) -> Result<()> {
    let mut outcome = Ok(());
    for format in [OutputFormat::Tar, OutputFormat::TfRecord] {
        let Some(framing) = crate::exec::encode::framing(format) else { continue };
        let foreign = framing.scan_foreign(&mut &*bytes, &mut |_, _| Ok(())).map(|_| ());
        let own = framing.scan(&mut &*bytes, &mut |_| Ok(()));
        outcome = outcome.and(foreign).and(own);
    }
    outcome
}

/// A dataset, as [`several`] files: its newest version is opened, listed, searched and exported.
///
/// # Errors
/// As [`csv`].
pub fn dataset(bytes: &[u8]) -> Result<()> {
    let store: Arc<dyn Store> = Files::store(several(bytes).into_iter())?;
    let Some(snapshot) = Dataset::new(store).latest()? else { return Ok(()) };
    let mut outcome = snapshot.shards().map(|_| ()).and(snapshot.runs().map(|_| ()));
    outcome = outcome.and(snapshot.lineage().map(|_| ()));
    outcome = outcome.and(snapshot.each_source(&mut |_| Ok(())));
    for id in ["1", "p1", "a.csv#1"] {
        outcome = outcome.and(find(&snapshot, id).map(|_| ()));
    }
    outcome = outcome.and(find_prefix(&snapshot, "p", 10, &Cancel::default(), &mut |_| Ok(())).map(|_| ()));
    let exported = export::records(&snapshot, &Cancel::default(), &mut |_| Ok(()));
    outcome.and(exported.map(|_| ()))
}

/// A proof of presence or absence.
///
/// # Errors
/// As [`csv`].
pub fn proof(bytes: &[u8]) -> Result<()> {
    prove::verify_bytes(bytes, "a proof", prove::Expected { root: None, id: None }, None).map(|_| ())
}

/// `schema.json`, and types as the command line takes them: what was understood is printed and understood again.
///
/// # Errors
/// As [`csv`].
pub fn schema(bytes: &[u8]) -> Result<()> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    if let Ok(field) = schema::file::parse_type(text) {
        same(&schema::file::parse_type(&schema::file::print_type(&field))?, &field)?;
    }
    let fields = schema::file::parse(text)?;
    same(&schema::file::parse(&schema::file::print(&fields))?, &fields)
}

/// Arguments, one a line, and the small languages in them: sizes, durations, codecs, encodings, places.
///
/// # Errors
/// As [`csv`].
pub fn arguments(bytes: &[u8]) -> Result<()> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    let words = std::iter::once("shardify").chain(text.split('\n'));
    let mut outcome = cli::understand(words.map(OsString::from));
    for word in text.split('\n') {
        outcome = outcome.and(Size::from_str(word).map(|_| ()));
        outcome = outcome.and(parse_duration(word).map(|_| ()));
        outcome = outcome.and(Encoding::from_str(word).map(|_| ()));
        outcome = outcome.and(Location::parse(word, std::path::Path::new("/")).map(|location| {
            let _ = (location.to_string(), location.split_name());
        }));
        if let Ok(codec) = Codec::from_str(word) {
            same(&Codec::from_str(&codec.to_string())?, &codec)?;
        }
    }
    outcome
}

fn same<T: PartialEq + std::fmt::Debug>(a: &T, b: &T) -> Result<()> {
    if a == b { Ok(()) } else { Err(Error::internal(format!("expected what was printed, {b:?}, found {a:?}"))) }
}

/// Files out of one run of bytes: length of the path in a byte, the path, length of the content in three bytes, the content.
/// The last one takes what there is.
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

/// The opposite of [`several`], for who makes seeds; paths of up to 255 bytes, contents of less than 16 MiB.
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

fn file(name: &str, bytes: &[u8], from: Option<InputFormat>) -> Result<()> {
    read(Files::store([(name.to_owned(), Bytes::copy_from_slice(bytes))].into_iter())?, from)
}

/// Reads all sources of a store as `convert` does; arrays in each of the ways that they can be cut.
fn read(store: Arc<dyn Store>, from: Option<InputFormat>) -> Result<()> {
    let arrays = from.is_some_and(InputFormat::is_array);
    let ways: &[(bool, bool)] =
        if arrays { &[(false, false), (true, false), (false, true)] } else { &[(false, false)] };
    let mut outcome = Ok(());
    for (raw, flatten) in ways {
        let found = scan::in_store(&store)?;
        let arrays = ArrayOptions { raw: *raw, flatten: *flatten, coded: true, ..ArrayOptions::default() };
        let options = SniffOptions { from, arrays, ..SniffOptions::default() };
        let read = classify(found, &options).and_then(|input| match input {
            Input::Files(_) => Ok(()),
            Input::Records(sources) => sources.iter().try_for_each(records),
        });
        outcome = outcome.and(read);
    }
    outcome
}

/// Types and parses the first splits of a source and encodes what comes out.
fn records(source: &RecordSource) -> Result<()> {
    let input: Box<dyn std::io::Read + Send> =
        if source.reader.reads_by_itself() { Box::new(std::io::empty()) } else { source.open(|_| {})? };
    let mut splits = Vec::new();
    let mut outcome = Ok(());
    for split in source.reader.splits(input, SPLIT, RECORD).take(SPLITS) {
        match split {
            Ok(split) => splits.push(split),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    let fields = splits.iter().fold(source.fields.clone(), |all, split| unite_lists(&all, &source.reader.infer(split)));
    let schema = schema_of(&fields);
    for split in &splits {
        match source.reader.parse(split, &schema) {
            Ok(Parsed::Block(block)) => outcome = outcome.and(encode(block.payload, &schema)),
            Ok(Parsed::Misfit(_)) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome.and(source.reader.constants().map(|_| ()))
}

/// Encodes records to all formats.
fn encode(payload: Payload, schema: &arrow::datatypes::SchemaRef) -> Result<()> {
    let records = payload.len();
    let formats: &[OutputFormat] = match &payload {
        Payload::Rows(batch) if batch.get_array_memory_size() as u64 > ENCODED => return Ok(()),
        Payload::Rows(_) => &[OutputFormat::Parquet, OutputFormat::Tar, OutputFormat::TfRecord],
        Payload::Samples(_) => &[OutputFormat::Tar],
    };
    let source = Arc::new(SourceName { name: "x".into(), key: "x".into(), columns: None, subject: None });
    for format in formats {
        let encoder = Encoder::new(*format, Codec::None, schema, Vec::new(), None)?;
        let batch = SourceBatch {
            payload: payload.clone(),
            source: Arc::clone(&source),
            rows: (1..=records as u64).collect::<Vec<_>>().into(),
            hashes: vec![0; records].into(),
        };
        encoder.encode(EncodeUnit { number: 0, batches: vec![batch], starts_shard: true, bytes_in: 0 })?;
    }
    Ok(())
}
