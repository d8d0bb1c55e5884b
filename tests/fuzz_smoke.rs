//! The functions that fuzzers drive, with a fixed number of mutations of small seeds: what `fuzz/` finds with a nightly
//! compiler stays found with any. `SHARDIFY_FUZZ_CASES=1000000 cargo test --release --test fuzz_smoke` makes as many
//! for each reader.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests fail loudly, say what they did, and cut random numbers"
)]

#[path = "../fuzz/src/mutate.rs"]
#[expect(clippy::cast_possible_truncation, unreachable_pub, reason = "mutations cut numbers to bytes")]
mod mutate;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use mutate::Random;
use shardify::fuzzing::{TARGETS, Target, blames, joined};

/// Mutations of each reader.
const CASES: u64 = 1_000;

/// Time that one input may take, on a machine that does other things as well.
const SLOW: Duration = Duration::from_secs(10);

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn files_below(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files_below(&path, out) } else { out.push(path) }
    }
}

/// All files below a folder, as one input.
fn folder(path: &Path) -> Vec<u8> {
    let mut files = Vec::new();
    files_below(path, &mut files);
    let name = |file: &Path| file.strip_prefix(path).unwrap().to_string_lossy().into_owned();
    let files: Vec<(String, Vec<u8>)> = files.iter().map(|file| (name(file), std::fs::read(file).unwrap())).collect();
    joined(files.iter().map(|(name, content)| (name.as_str(), content.as_slice())))
}

/// Files of testdata with one of these extensions, small ones only.
fn with_extension(extensions: &[&str]) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    files_below(&testdata(), &mut files);
    files.retain(|file| file.extension().is_some_and(|e| extensions.contains(&e.to_str().unwrap())));
    let mut seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    seeds.retain(|seed| !seed.is_empty() && seed.len() < 200_000);
    seeds.truncate(24);
    seeds
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    std::io::copy(&mut flate2::bufread::GzEncoder::new(bytes, flate2::Compression::fast()), &mut out).unwrap();
    out
}

fn arrow_files() -> Vec<Vec<u8>> {
    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, types::Int32Type};
    let columns: [(&str, ArrayRef); 3] = [
        ("id", std::sync::Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
        ("name", std::sync::Arc::new(StringArray::from(vec![Some("a"), Some(""), None]))),
        ("values", {
            let lists = [Some(vec![Some(1), None]), None, Some(vec![])];
            std::sync::Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
        }),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut file = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    let mut stream = arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    for _ in 0..2 {
        file.write(&batch).unwrap();
        stream.write(&batch).unwrap();
    }
    vec![file.into_inner().unwrap(), stream.into_inner().unwrap()]
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    match name {
        "csv" => with_extension(&["csv"]),
        "json" => with_extension(&["json"]),
        "jsonl" => with_extension(&["jsonl"]),
        "parquet" => with_extension(&["parquet"]),
        "arrow" => arrow_files(),
        "tar" => with_extension(&["tar"]),
        "tfrecord" => with_extension(&["tfrecord"]),
        "foreign_shards" => with_extension(&["tar", "tfrecord"]),
        "netcdf" => with_extension(&["nc"]),
        "hdf5" => with_extension(&["h5", "hdf5", "nc"]),
        "npy" => with_extension(&["npy", "npz"]),
        "zip" => with_extension(&["npz"]),
        "excel" => with_extension(&["xlsx", "xlsb", "xls", "ods"]),
        "zarr" => vec![folder(&testdata().join("arrays/grid.zarr"))],
        "delta" => vec![folder(&testdata().join("delta/visits"))],
        "packed" => with_extension(&["csv"]).iter().map(|seed| gzipped(seed)).collect(),
        "any" => with_extension(&["csv", "jsonl", "npy", "nc", "gz", "tar", "parquet", "txt"]),
        "dataset" => vec![folder(&testdata().join("compat/1"))],
        "proof" => ["absent.json", "present.json"]
            .map(|path| std::fs::read(testdata().join("proofs").join(path)).unwrap())
            .to_vec(),
        "schema" => vec![
            br#"{"columns": [{"name": "a", "type": "int64"}, {"name": "b", "type": "list<struct<x: float32, y: text>>"}]}"#.to_vec(),
            b"struct<a: decimal(38,10), b: list<fixed_list<timestamp, 3>>, c: map<text, binary>>".to_vec(),
        ],
        "arguments" => vec![
            b"convert\na.csv\n--out\nd\n--target-shard\n1.5GiB\n--codec\nzstd:3\n--type\na=list<int8>\n\
                --read\npatch=x=3,y=4\n--read\nflatten=yes".to_vec(),
            b"compact\nd\n--since\n7d\n--target-shard\n128MiB".to_vec(),
            b"erase\nd\n--subject\n1\n--all-versions\ns3://a:b@c/d?e=f\nutf-16le\n90m".to_vec(),
        ],
        other => panic!("{other} has no seeds"),
    }
}

fn cases() -> u64 {
    std::env::var("SHARDIFY_FUZZ_CASES").map_or(CASES, |cases| cases.parse().unwrap())
}

/// Runs one input; returns what is wrong with it.
fn problem(target: Target, input: &[u8]) -> Option<String> {
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    let took = started.elapsed();
    match outcome {
        Err(_) => Some("panicked".to_owned()),
        Ok(Err(error)) if blames(&error) => Some(format!("{:?}: {error}", error.kind())),
        Ok(_) if took > SLOW => Some(format!("took {took:?}")),
        Ok(_) => None,
    }
}

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|(known, _)| *known == name).unwrap().1;
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "{name}");
    if let Ok(folder) = std::env::var("SHARDIFY_FUZZ_SEEDS") {
        write_seeds(&Path::new(&folder).join(name), &seeds);
    }
    for seed in &seeds {
        assert_eq!(problem(target, seed), None, "{name}, as it is");
    }
    let started = Instant::now();
    for case in 0..cases() {
        let mut random = Random::new(case + 1);
        let seed = &seeds[random.below(seeds.len())];
        let input = mutate::mutant(name, seed, &mut random);
        if let Some(problem) = problem(target, &input) {
            let kept = std::env::temp_dir().join(format!("shardify-fuzz-{name}-{case}"));
            keep(&kept, &input);
            panic!("{name}, case {case}: {problem}; the input is in {}", kept.display());
        }
    }
    eprintln!("{name}: {} cases in {:?}", cases(), started.elapsed());
}

#[expect(clippy::disallowed_methods, reason = "who mends it wants the input")]
fn keep(path: &Path, input: &[u8]) {
    std::fs::write(path, input).unwrap();
}

/// The seeds as files, for `cargo fuzz run`.
#[expect(clippy::disallowed_methods, reason = "fuzzers start from files")]
fn write_seeds(folder: &Path, seeds: &[Vec<u8>]) {
    std::fs::create_dir_all(folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number:02}")), seed).unwrap();
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { fuzz(stringify!($name)); })*

        #[test]
        fn all_readers_are_here() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$(stringify!($name)),*]);
        }
    };
}

targets!(
    csv json jsonl parquet arrow tar tfrecord netcdf hdf5 zarr npy zip excel packed any foreign_shards delta dataset
    proof schema arguments
);
