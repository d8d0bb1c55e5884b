//! Reads real files in parts, and compares with what reading them as a whole gives: values, row numbers, hashes,
//! rejects with their places, counts and notes.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

#[path = "../../../../formats/src/format/corpus.rs"]
mod corpus;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use arrow::{
    array::{Int64Array, RecordBatch, StringArray},
    compute::concat_batches,
    datatypes::{DataType, Fields, Schema},
    ipc::writer::FileWriter,
};

use super::*;
use crate::{
    codec::Codec,
    events::{Event, Silent},
    exec::{gates::IdColumns, source::SourceName},
    format::{OutputFormat, parquet::schema_of_samples},
    plan::memory::MemoryPlan,
    record::{PartSizes, Payload, Sample, SourcePart, coded::plain_batch},
    scan::{self, Input, ScanOptions, Scouted, SniffOptions, classify_inputs, scout_parts},
    schema::{force_text, schema_of, unite_lists},
    storage::{LocalStore, StoreSettings},
};

/// All that reading gives.
#[derive(Debug, PartialEq)]
struct Outcome {
    rows: Vec<u64>,
    hashes: Vec<u64>,
    values: Option<RecordBatch>,
    samples: Vec<Sample>,
    rejects: String,
    /// Records, rejected, bytes, blank, padded, repaired, skipped, skipped.
    counts: [u64; 8],
    /// For each reason, the place that was told first, and the number of lines; other notes once each.
    notes: BTreeMap<String, (String, u64)>,
    hash: u64,
}

#[derive(Default)]
struct Notes(Mutex<BTreeMap<String, (String, u64)>>);

impl Observer for Notes {
    fn event(&self, event: Event) {
        let Event::Note(note) = event else { return };
        let mut notes = self.0.lock().unwrap();
        // `name, line 7: reason (and 3 more)`
        let (place, why) = match note.split_once(": ") {
            Some((place, why)) if place.contains(", line ") => (place, why),
            _ => ("", note.as_str()),
        };
        let (why, more) = match why.strip_suffix(" more)").and_then(|rest| rest.rsplit_once(" (and ")) {
            Some((why, more)) => (why, more.parse().unwrap()),
            None => (why, 0),
        };
        notes.entry(why.to_owned()).or_insert_with(|| (place.to_owned(), 0)).1 += more + 1;
    }
}

fn memory(range_bytes: u64) -> MemoryPlan {
    MemoryPlan {
        bytes: 64 << 20,
        range_bytes,
        max_record_bytes: 1 << 20,
        unit_bytes: 1 << 20,
        parse_window: 4,
        encode_window: 2,
        write_window: 0,
    }
}

/// The source in a file, if it holds records that can be read.
fn open(path: &Path) -> Option<RecordSource> {
    let text = [path.to_str()?.to_owned()];
    let found = scan::scan_sources(&text, Path::new("/"), &StoreSettings::default(), &ScanOptions::default()).ok()?;
    let options = SniffOptions { keep_going: true, sources: 1, ..SniffOptions::default() };
    match classify_inputs(found.files, &options).ok()? {
        Input::Records(mut sources) if sources.len() == 1 => sources.pop(),
        _ => None,
    }
}

fn facts(source: &RecordSource) -> SourceFacts {
    let name = source.file.name().to_owned();
    SourceFacts {
        name: Arc::new(SourceName { key: name.clone(), name, columns: None, subject: None }),
        file: source.file.clone(),
        bytes: source.input_bytes(),
        hashes_bytes: source.format.is_text(),
        stores_hashes: true,
        by_row: source.format.is_typed(),
        sheet: None,
        blank_lines: source.reader.facts().blank_lines_before,
        lines_skipped: source.reader.facts().lines_skipped,
        note: source.reader.facts().joined_notes(),
    }
}

/// Reads sources; a value that does not fit as the error.
fn read(sources: &[RecordSource], schema: &SchemaRef, range_bytes: u64) -> std::result::Result<Outcome, String> {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path().to_owned()));
    let encoder = Encoder::new(OutputFormat::Tar, Codec::None, &Arc::new(Schema::empty()), Vec::new(), None).unwrap();
    let facts: Vec<SourceFacts> = sources.iter().map(facts).collect();
    let (observer, cancel) = (Notes::default(), Cancel::default());
    let rejects = RejectsFile::new(crate::dataset::SealingSink::whole(store.as_ref(), "rejects").unwrap(), None);
    let tally = Mutex::new(Tally { sources: vec![SourceTally::default(); sources.len()], ..Tally::default() });
    let (writer, ids) = (Writer::from(crate::id::TransactionId::fresh()), Arc::new(IdColumns::default()));
    let pipeline = Pipeline {
        store: &store,
        encoder: &encoder,
        naming: ShardNaming {
            tag: "x".into(),
            format: OutputFormat::Tar,
            codec: Codec::None,
            indexes: Vec::new(),
            fingerprints: false,
        },
        target: 1 << 20,
        ends: None,
        splits: None,
        gates: Gates { list: &[], ids: &ids },
        shuffle: None,
        memory: memory(range_bytes),
        jobs: 2,
        on_error: OnError::Quarantine,
        given: &[],
        suppress: None,
        rejects: Some(&rejects),
        facts: &facts,
        writer: &writer,
        observer: &observer,
        cancel: &cancel,
    };
    let gathered = std::thread::scope(|scope| {
        let outcomes = read_records(scope, Parser { pipeline: &pipeline, sources, schema });
        let setup = GatherSetup {
            framing: None,
            on_error: OnError::Quarantine,
            rejects: Some(&rejects),
            sources: &facts,
            tally: &tally,
            observer: &observer,
            suppress: None,
            gates: pipeline.gates,
            fingerprints: false,
            progress: Progress::OfReading,
        };
        Gather::new(outcomes, setup).collect::<Result<Vec<_>>>()
    });
    let tally = tally.into_inner().unwrap();
    let gathered = match (gathered, tally.misfit) {
        (Ok(gathered), _) => gathered,
        (Err(_), Some(misfit)) => return Err(misfit.mismatch.column),
        (Err(error), None) => panic!("{error}"),
    };
    store.publish_staged(vec![rejects.finish().unwrap()]).unwrap();
    let (mut rows, mut hashes, mut batches, mut samples) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for found in gathered {
        rows.extend(found.records.rows.iter());
        hashes.extend(found.records.hashes.iter());
        match found.records.payload {
            Payload::Rows(batch) => batches.push(plain_batch(&batch).unwrap()),
            Payload::Samples(more) => samples.extend(more),
        }
    }
    Ok(Outcome {
        rows,
        hashes,
        values: batches.first().map(|first| concat_batches(&first.schema(), &batches).unwrap()),
        samples,
        rejects: String::from_utf8(store.get("rejects").unwrap().unwrap().to_vec()).unwrap(),
        counts: [
            tally.records_in,
            tally.rejected,
            tally.bytes_in,
            tally.blank_lines,
            tally.padded,
            tally.repaired,
            tally.skipped_lines,
            tally.ignored,
        ],
        notes: observer.0.into_inner().unwrap(),
        hash: tally.sources.iter().map(|source| source.hash).sum(),
    })
}

/// Types that all values of a source fit, and what reading it with them gives.
fn whole(source: RecordSource, range_bytes: u64) -> (Arc<Schema>, Outcome) {
    let samples = source.yields_samples();
    let sources = [source];
    let inferred =
        infer_all(&sources, memory(range_bytes), 2, &Silent, &Cancel::default()).unwrap().pop().unwrap_or_default();
    let mut fields: Fields = unite_lists(&sources[0].fields, &inferred);
    loop {
        let schema = if samples { schema_of_samples(&fields, false) } else { schema_of(&fields) };
        match read(&sources, &schema, range_bytes) {
            Ok(outcome) => return (schema, outcome),
            Err(column) => {
                let wider = force_text(&fields, &column);
                assert!(wider != fields, "{column}");
                fields = wider;
            }
        }
    }
}

/// Reads a file in parts of several sizes; returns the greatest number of parts.
fn check(path: &Path) -> usize {
    let Some(source) = open(path) else { return 0 };
    let bytes = source.file.bytes();
    let mut most = 0;
    for (range_bytes, count) in [(1, 3), (bytes / 50, 7), (bytes / 8, 3), (1 << 20, 2)] {
        // Many tiny ranges only take long.
        let range_bytes = range_bytes.max(if bytes > 20_000 { bytes / 400 } else { 1 }).max(1);
        let sizes = PartSizes {
            source_bytes: bytes,
            part_bytes: (bytes / count).max(1),
            range_bytes: usize::try_from(range_bytes).unwrap(),
            max_record_bytes: 1 << 20,
        };
        let Some(Scouted { parts, hash }) = scout_parts(&open(path).unwrap(), &sizes).unwrap() else { continue };
        most = most.max(parts.len());
        check_parts_of(path, &parts, range_bytes, hash);
    }
    most
}

fn check_parts_of(path: &Path, parts: &[SourcePart], range_bytes: u64, hash: u64) {
    let (schema, expected) = whole(open(path).unwrap(), range_bytes);
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), open(path).unwrap().file.bytes());
    let of_part = |part: &SourcePart| RecordSource { part: Some(part.clone()), ..open(path).unwrap() };
    let sources: Vec<RecordSource> = parts.iter().map(of_part).collect();
    let found = read(&sources, &schema, range_bytes);
    let place = || format!("{} by {range_bytes}: {parts:?}", path.display());
    let found = found.unwrap_or_else(|column| panic!("{}: {column}", place()));
    assert_eq!(found.hash, 0, "the hash of a part is not that of its source");
    // Whoever cuts a source may read all bytes of one whose reading ends before, and then knows their hash.
    let is_broken = expected.notes.keys().any(|why| why.starts_with("skipped: "));
    let found = Outcome { hash: if is_broken { expected.hash } else { hash }, ..found };
    // What is damaged within a file of row groups, batches or chunks ends its part there, and not the file.
    let damaged = sources[0].reader.facts().reads_own_source && is_broken;
    if !damaged && found != expected {
        assert_eq!(format!("{:#?}", found.notes), format!("{:#?}", expected.notes), "{}", place());
        assert_eq!(found.rejects, expected.rejects, "{}", place());
        assert_eq!((found.counts, &found.rows), (expected.counts, &expected.rows), "{}", place());
        panic!("{}: {found:?} {expected:?}", place());
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let store = path.extension().is_some_and(|extension| extension == "zarr");
            if path.is_dir() && !store { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Checks many files; returns for each extension how many were read in parts.
fn check_all(files: Vec<PathBuf>) -> BTreeMap<String, usize> {
    let mut cut = BTreeMap::new();
    for path in files {
        if check(&path) > 1 {
            let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            *cut.entry(extension).or_default() += 1;
        }
    }
    cut
}

#[test]
fn parts_of_the_test_data_are_the_whole() {
    let cut = check_all(files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")));
    for extension in ["csv", "tsv", "jsonl", "tar", "tfrecord", "parquet", "nc", "npy", "h5"] {
        assert!(cut.contains_key(extension), "{extension}: {cut:?}");
    }
    for packed in ["gz", "zst", "lz4", "xz", "bz2"] {
        assert!(!cut.contains_key(packed), "{packed}");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "tells what was tested")]
fn parts_of_real_files_are_the_whole() {
    let Some(folder) = corpus::folder() else { return };
    let small = |path: &PathBuf| fs::metadata(path).is_ok_and(|facts| facts.len() < 1 << 17);
    let folders = ["csv-edge", "csv-real", "json-edge", "jsonl-real", "patients", "parquet", "tar-edge", "tar-wds"];
    let arrays = ["tfrecord", "netcdf", "hdf5", "npy", "zarr"];
    let files = folders.iter().chain(&arrays).flat_map(|name| files_below(&folder.join(name)));
    eprintln!("files read in parts: {:?}", check_all(files.filter(small).collect()));
}

fn table(rows: i64) -> RecordBatch {
    let texts = StringArray::from_iter_values((0..rows).map(|row| format!("text {}", row % 97)));
    let numbers = Int64Array::from_iter_values(0..rows);
    RecordBatch::try_from_iter([("n", Arc::new(numbers) as _), ("t", Arc::new(texts) as _)]).unwrap()
}

#[test]
fn parts_of_parquet_end_between_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let table = table(10_000);
    let encoder = crate::format::parquet::ParquetEncoder::new(&table.schema(), Codec::None, &[]).unwrap();
    let mut shard = encoder.start_shard(Vec::new()).unwrap();
    for (start, rows) in [(0, 1000), (1000, 3000), (4000, 1), (4001, 2999), (7000, 3000)] {
        shard.append(encoder.encode(&[table.slice(start, rows)]).unwrap()).unwrap();
    }
    fs::write(&path, shard.finish().unwrap()).unwrap();
    assert_eq!(check(&path), 4);
}

#[test]
fn parts_of_arrow_files_end_between_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    let table = table(5000);
    let keyed =
        arrow::compute::cast(table.column(1), &DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()));
    let table = RecordBatch::try_from_iter([("n", Arc::clone(table.column(0))), ("t", keyed.unwrap())]).unwrap();
    let mut writer = FileWriter::try_new(fs::File::create(&path).unwrap(), &table.schema()).unwrap();
    for start in (0..5000).step_by(500) {
        writer.write(&table.slice(start, 500)).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(check(&path), 7);
}
