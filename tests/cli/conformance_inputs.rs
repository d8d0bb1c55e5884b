//! One contract, every input format of the registry: what a source of it gives does not depend on threads, packing,
//! the way in, or what else is asked for; a damaged one ends in an error that names it, or gives what it still holds.
//! A format without a seed here fails.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and copy their own inputs")]

use crate::support;

use std::{io::Read, path::Path};

use serde_json::Value;
use shardify::scan::InputFormat;
use support::{Folder, testdata_path};

/// What cuts and flips of one seed there are.
const DAMAGES: usize = 24;

/// A small source with several records.
struct Seed {
    /// Its name.
    name: &'static str,
    /// What is copied from `testdata`, a file or a folder.
    from: &'static str,
    /// Options that it needs.
    options: &'static str,
}

impl Seed {
    fn of(format: InputFormat) -> Self {
        let (name, from, options) = match format.name() {
            "csv" => ("rows.csv", "csv/quotes_and_newlines.csv", ""),
            "tsv" => ("rows.tsv", "csv/quoted.tsv", ""),
            "jsonl" => ("rows.jsonl", "jsonl/nested.jsonl", ""),
            "json" => ("rows.json", "fhir/Observation-decimal.json", ""),
            "parquet" => ("rows.parquet", "inputs/people.parquet", ""),
            "arrow" => ("rows.arrow", "inputs/people.arrow", ""),
            "avro" => ("rows.avro", "avro/alltypes_plain.zstandard.avro", ""),
            "files" => ("samples", "files/images", ""),
            "tar" => ("samples.tar", "inputs/samples.tar", ""),
            "tfrecord" => ("rows.tfrecord", "inputs/people.tfrecord", ""),
            "warc" => ("web.warc", "warc/example-iana.org-chunked.warc", ""),
            "netcdf" => ("grid.nc", "arrays/grid.nc", ""),
            "hdf5" => ("grid.h5", "arrays/varied.h5", "--read var=own,rows"),
            "zarr" => ("grid.zarr", "arrays/grid.zarr", ""),
            "npy" => ("cube.npy", "arrays/cube.npy", ""),
            "safetensors" => ("features.safetensors", "safetensors/features.safetensors", ""),
            "nifti" => ("scan.nii", "nifti/functional.nii", ""),
            "excel" => ("book.xlsx", "excel/temperature.xlsx", ""),
            other => panic!("{other} has no seed: name a small source of it here"),
        };
        Self { name, from, options }
    }

    fn is_folder(&self) -> bool {
        testdata_path(self.from).is_dir()
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(testdata_path(self.from)).unwrap()
    }

    /// Writes it into a folder of a test.
    fn write(&self, folder: &Folder) {
        copy_tree(&testdata_path(self.from), &folder.path().join(self.name));
    }

    /// Converts it, and returns the records that are in the dataset.
    fn records(&self, folder: &Folder, source: &str, dataset: &str, options: &str) -> Vec<Value> {
        folder.run(&format!("convert {source} --out {dataset} {} {options}", self.options)).ok();
        records_of(folder, dataset)
    }
}

fn copy_tree(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        copy_tree(&entry.path(), &to.join(entry.file_name()));
    }
}

/// Returns the records of a dataset as JSON, in order.
fn records_of(folder: &Folder, dataset: &str) -> Vec<Value> {
    let printed = folder.run(&format!("head {dataset} -n 1000 --json")).ok().objects();
    printed.into_iter().filter(|one| one["type"] == "record").map(|mut one| one["values"].take()).collect()
}

/// Returns ids and rows of all records.
fn places_of(folder: &Folder, dataset: &str) -> Vec<(Value, Value, Value)> {
    let listed = folder.run(&format!("manifest {dataset} --export jsonl")).ok();
    listed.objects().iter().map(|one| (one["record_id"].clone(), one["source"].clone(), one["row"].clone())).collect()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut out).unwrap();
    out
}

fn each_seed(mut law: impl FnMut(InputFormat, &Seed, &Folder)) {
    let is_built = |format: &InputFormat| *format != InputFormat::EXCEL || cfg!(feature = "excel");
    for format in InputFormat::ALL.into_iter().filter(is_built) {
        let (seed, folder) = (Seed::of(format), Folder::new());
        seed.write(&folder);
        law(format, &seed, &folder);
    }
}

#[test]
fn a_source_is_known_by_its_content() {
    each_seed(|format, seed, folder| {
        let found = folder.run(&format!("inspect {} --json {}", seed.name, seed.options)).ok();
        let formats: Vec<String> = found
            .objects()
            .iter()
            .filter(|one| one["type"] == "format")
            .map(|one| one["format"].as_str().unwrap_or_default().to_owned())
            .collect();
        // Both are delimited text, and are stored as one.
        let expected = if format.name() == "tsv" { "csv" } else { format.name() };
        assert!(formats.iter().all(|one| one == expected) || format == InputFormat::FILES, "{formats:?}");
        if format.is_text() || format == InputFormat::FILES {
            return;
        }
        // Under a name without an ending too, and never as another format with types.
        if !seed.is_folder() {
            folder.write("noname", seed.bytes());
            let found = folder.run(&format!("inspect noname --json {}", seed.options)).ok();
            assert_eq!(found.objects()[0]["format"], expected, "{found:?}");
        }
        for other in InputFormat::ALL.into_iter().filter(|other| !other.is_text() && *other != InputFormat::FILES) {
            let ran = folder.run(&format!("convert {} --out x --from {} --dry-run", seed.name, other.name()));
            // netCDF-4 is HDF5.
            let is_kin = [format, other].iter().all(|one| ["netcdf", "hdf5"].contains(&one.name()));
            if other == format || is_kin {
                continue;
            }
            assert!([2, 6].contains(&ran.code), "{} as {}: {ran:?}", format.name(), other.name());
        }
    });
}

#[test]
fn threads_change_no_byte_and_a_second_run_finds_nothing() {
    each_seed(|format, seed, folder| {
        for to in ["parquet", "tar", "tfrecord"] {
            let run = |jobs: u32, out: &str| {
                folder.run(&format!("convert {} --out {out} --to {to} --jobs {jobs} {}", seed.name, seed.options))
            };
            let (one, many) = (format!("{to}1"), format!("{to}8"));
            run(1, &one).ok();
            run(8, &many).ok();
            assert_eq!(folder.shards_below_tags(&one), folder.shards_below_tags(&many), "{} to {to}", format.name());
            let ids = |dataset: &str| places_of(folder, dataset);
            assert!(ids(&one) == ids(&many) && !ids(&one).is_empty(), "{}", format.name());
            let again = run(8, &many).ok();
            assert!(again.stdout.contains("nothing to do"), "{}: {again:?}", format.name());
        }
    });
}

#[test]
fn packing_standard_input_and_other_options_change_no_record() {
    each_seed(|format, seed, folder| {
        let plain = seed.records(folder, seed.name, "plain", "");
        assert!(!plain.is_empty(), "{}", format.name());
        let skipped = seed.records(folder, seed.name, "skipped", "--on-error skip");
        assert_eq!(plain, skipped, "{}", format.name());
        assert_eq!(places_of(folder, "plain"), places_of(folder, "skipped"), "{}", format.name());
        if !seed.is_folder() {
            let packed = format!("{}.gz", seed.name);
            folder.write(&packed, gzipped(&seed.bytes()));
            assert_eq!(plain, seed.records(folder, &packed, "packed", ""), "{}", format.name());
            let options = format!("convert - --from {} --out piped {}", format.name(), seed.options);
            let options: Vec<&str> = options.split_whitespace().collect();
            folder.run_input(&options, &seed.bytes()).ok();
            let mut piped = records_of(folder, "piped");
            // Keys of samples come from their names, which standard input has not.
            assert_eq!(plain.len(), piped.len(), "{}", format.name());
            piped.retain(|record| !plain.contains(record));
            assert!(piped.is_empty(), "{}: {piped:?}", format.name());
        }
        let Some(column) = plain[0].as_object().and_then(|one| one.keys().find(|key| !key.starts_with("__"))) else {
            return;
        };
        if format == InputFormat::FILES || format == InputFormat::TAR || seed.options.contains("var=") {
            return;
        }
        let taken = seed.records(folder, seed.name, "taken", &format!("--columns {column}"));
        let of_column = |records: &[Value]| records.iter().map(|one| one[column].clone()).collect::<Vec<_>>();
        assert_eq!(of_column(&plain), of_column(&taken), "{}", format.name());
        assert_eq!(places_of(folder, "plain"), places_of(folder, "taken"), "{}", format.name());
    });
}

#[test]
fn damage_ends_in_an_error_that_names_the_source() {
    each_seed(|format, seed, folder| {
        if seed.is_folder() {
            return;
        }
        let bytes = seed.bytes();
        let step = (bytes.len() / DAMAGES).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            for (kind, damaged) in [("cut", &bytes[..at]), ("flip", &flipped)] {
                folder.write(seed.name, damaged);
                let told = format!("{} {kind} at {at}", format.name());
                let ran = folder.run(&format!("convert {} --out {kind}{at} --json {}", seed.name, seed.options));
                match ran.code {
                    0 => {
                        let summary = ran.summary();
                        let count = |name: &str| summary[name].as_u64().unwrap();
                        let (read, written) = (count("records_in"), count("records_out"));
                        let others = count("records_rejected") + count("records_filtered");
                        assert_eq!(read, written + others + count("records_deduplicated"), "{told}: {summary}");
                    }
                    2 | 3 | 6 => assert!(ran.stderr.contains(seed.name), "{told}: {ran:?}"),
                    _ => panic!("{told}: {ran:?}"),
                }
            }
        }
    });
}
