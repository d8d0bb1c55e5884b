//! Content hashes of rows: where they are stored, and what works without them.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeMap;

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding},
    file::metadata::{PageIndexPolicy, ParquetMetaDataReader, RowGroupMetaData},
};
use serde_json::Value;
use support::Folder;

/// Whether each record of the newest version has a content hash.
fn hashed(folder: &Folder, dataset: &str) -> Vec<bool> {
    let rows = folder.run(&format!("manifest {dataset} --export jsonl --json")).ok().objects();
    rows.iter().filter(|row| row["type"] == "record").map(|row| row["hash"].is_string()).collect()
}

/// Changed and rewritten records between two versions, and what happened to each record.
fn compared(folder: &Folder, versions: &str) -> ((u64, u64), BTreeMap<String, Value>) {
    let objects = folder.run(&format!("manifest d --diff {versions} --json")).ok().objects();
    let summary = objects.last().unwrap();
    let count = |name: &str| summary[name].as_u64().unwrap();
    let records = objects.iter().filter(|object| object["type"] == "record");
    let records = records.map(|object| (object["record_id"].as_str().unwrap().to_owned(), object["change"].clone()));
    ((count("records_changed"), count("records_rewritten")), records.collect())
}

#[test]
fn hashes_of_rows_are_stored_where_something_needs_them() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who,n\na,p,1\nb,q,2\n");
    folder.write("files/k.txt", "text");
    folder.run("convert a.csv --out origins").ok();
    folder.write("data/a.parquet", folder.only_shards("origins").remove(0).1);
    for (dataset, command, expected) in [
        ("origins", "", vec![true; 2]),
        ("ids", "convert a.csv --id id", vec![false; 2]),
        ("subjects", "convert a.csv --subject who", vec![false; 2]),
        ("asked", "convert a.csv --id id --hash-records", vec![true; 2]),
        ("typed", "convert data", vec![false; 2]),
        ("typed-asked", "convert data --hash-records", vec![true; 2]),
        ("adopted", "adopt data", vec![false; 2]),
        ("adopted-asked", "adopt data --hash-records", vec![true; 2]),
        ("tar", "convert a.csv --id id --to tar", vec![true; 2]),
        ("tfrecord", "convert a.csv --id id --to tfrecord", vec![true; 2]),
        ("samples", "convert files", vec![true]),
    ] {
        if !command.is_empty() {
            folder.run(&format!("{command} --out {dataset}")).ok();
        }
        assert_eq!(hashed(&folder, dataset), expected, "{command}");
        folder.run(&format!("verify {dataset} --read-data")).ok();
    }
    assert!(folder.run("manifest ids --export csv").ok().stdout.lines().nth(1).unwrap().ends_with("1,1,"));
    assert!(folder.run("manifest ids --find a --json").ok().objects()[0]["hash"].is_null());
    // The dataset keeps the choice, and a later run may make it.
    folder.write("b.csv", "id,who,n\nc,p,3\n");
    folder.run("convert b.csv --out asked").ok();
    folder.run("convert b.csv --out ids --hash-records").ok();
    assert_eq!((hashed(&folder, "asked"), hashed(&folder, "ids")), (vec![true; 3], vec![false, false, true]));
    for command in ["compact ids --min-inputs 2", "compact ids --sort-by n", "reshard ids --out cut --shards 2"] {
        folder.run(command).ok();
        assert_eq!(hashed(&folder, "ids"), [false, false, true], "{command}");
    }
    assert_eq!(hashed(&folder, "cut"), [false, false, true]);
    folder.run("pull ids copy").ok();
    folder.run("erase ids b --all-versions").ok();
    assert_eq!((hashed(&folder, "ids"), hashed(&folder, "copy")), (vec![false, true], vec![false, false, true]));
    for dataset in ["asked", "ids", "cut", "copy"] {
        folder.run(&format!("verify {dataset} --read-data")).ok();
    }
}

#[test]
fn versions_are_compared_with_hashes_and_without() {
    for (first, second) in
        [("", ""), ("", "--hash-records"), ("--hash-records", ""), ("--id-mode hmac --id-key key", "--id-key key")]
    {
        let folder = Folder::new();
        folder.write("key", [7; 32]);
        let row = |i: usize, text: &str| format!("r{i},{i},{text}\n");
        let table = |text: &dyn Fn(usize) -> &'static str| -> String {
            format!("id,n,text\n{}", (0..500).map(|i| row(i, text(i))).collect::<String>())
        };
        folder.write("in/a.csv", table(&|_| "x"));
        folder.write("in/b.csv", "id,n,text\nother,1,x\n");
        folder.run(&format!("convert in --out d --id id --target-shard 16KiB {first}")).ok();
        // Every tenth row has another text, and r7 is gone; so is r499, whose place has the new one.
        let changed = table(&|i| if i % 10 == 0 { "y" } else { "x" });
        folder.write("in/a.csv", changed.replace("r7,7,x\n", "").replace("r499,499,x", "new,499,x"));
        folder.run(&format!("convert in --out d --on-changed replace {second}")).ok();
        for again in ["", "compact d --min-inputs 2 --target-shard 1MiB", "compact d --sort-by text,n"] {
            if !again.is_empty() {
                folder.run(again).ok();
            }
            for (versions, gone, new) in [("v1 latest", "removed", "added"), ("latest v1", "added", "removed")] {
                let newest = if again.is_empty() {
                    "v2"
                } else if again.contains("sort") {
                    "v4"
                } else {
                    "v3"
                };
                let (counts, records) = compared(&folder, &versions.replace("latest", newest));
                assert_eq!(counts, (50, 448), "{first} {second} {again} {versions}");
                if !first.contains("hmac") {
                    assert_eq!(
                        (&records["r7"], &records["r499"], &records["new"]),
                        (&gone.into(), &gone.into(), &new.into())
                    );
                    assert_eq!(
                        (&records["r30"], records.get("r31"), records.get("other")),
                        (&"changed".into(), None, None)
                    );
                }
            }
        }
        let shown = folder.run("manifest d --diff v1 v2").ok().stdout;
        let place = if first == "--hash-records" { "  hash " } else { ".parquet row " };
        assert!(shown.lines().any(|line| line.starts_with('~') && line.contains(place)), "{shown}");
        folder.run(&format!("verify d --read-data {}", if first.contains("key") { "--id-key key" } else { "" })).ok();
    }
}

/// Values are compared, not the types and encodings that they are stored with.
#[test]
fn equal_values_of_wider_types_are_no_change() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id,n,t\na,1,2024-01-02\nb,2,2024-01-03\nc,,2024-01-04\n");
    folder.run("convert in --out d --id id").ok();
    folder.write("in/a.csv", "id,n,t,more\na,1.0,2024-01-02,\nb,2.5,2024-01-03,\nc,,2024-01-04,\n");
    folder.run("convert in --out d --id id --on-changed replace --on-schema union").ok();
    let (counts, records) = compared(&folder, "v1 v2");
    assert_eq!((counts, &records["b"]), ((1, 2), &"changed".into()));
    // Of an id that is there several times, equal rows are matched first.
    folder.write("in/b.csv", "id,n\nz,1\nz,2\nz,3\n");
    folder.run("convert in --out d --id id").ok();
    folder.write("in/b.csv", "id,n\nz,3\nz,1\n");
    folder.run("convert in --out d --id id --on-changed replace").ok();
    let (counts, records) = compared(&folder, "v3 v4");
    assert_eq!((counts, &records["z"]), ((0, 2), &"removed".into()));
}

#[test]
fn a_diff_is_the_same_with_little_memory_and_names_a_damaged_shard() {
    let folder = Folder::new();
    let rows = |add: usize| -> String {
        (0..40_000).map(|i| format!("record-number-{i},{}\n", if i % 1_000 == 0 { i + add } else { i })).collect()
    };
    folder.write("in/a.csv", format!("id,n\n{}", rows(0)));
    folder.run("convert in --out d --id id").ok();
    folder.write("in/a.csv", format!("id,n\n{}", rows(1)));
    folder.run("convert in --out d --id id --on-changed replace").ok();
    for memory in ["1MiB", "1GiB"] {
        let summary = folder.run(&format!("manifest d --diff v1 v2 --json --memory {memory}")).ok().summary();
        assert_eq!((&summary["records_changed"], &summary["records_rewritten"]), (&40.into(), &39_960.into()));
    }
    let name = folder.only_shards("d").remove(0).0;
    folder.write(&format!("d/{name}"), "PAR1 is not enough");
    let ran = folder.run("manifest d --diff v1 v2");
    assert!(ran.code != 0 && ran.stderr.contains(&name), "{ran:?}");
}

/// Without a hash, the place of a record decides: nothing that was erased comes back.
#[test]
fn rows_that_were_erased_by_their_origin_stay_blocked() {
    for (options, accepted) in [("", 2), ("--subject who", 1), ("--subject who --hash-records", 2)] {
        let folder = Folder::new();
        folder.write("in/a.csv", "who,n\n,1\nq,2\n");
        folder.run(&format!("convert in --out d {options}")).ok();
        folder.run("erase d a.csv#1 --all-versions").ok();
        folder.run("convert in --out e").ok();
        for (rows, left) in [("who,n\n,1\nr,2\n", 1), ("who,n\n,7\nq,2\n", accepted)] {
            folder.write("in/a.csv", rows);
            folder.run("convert in --out d --on-changed replace").ok();
            assert_eq!(hashed(&folder, "d").len(), left, "{options} {rows}");
        }
        folder.run("verify d --read-data").ok();
    }
}

/// The stored bytes of a column in each row group of a Parquet file.
fn stored(file: &[u8], column: &str) -> Vec<Vec<u8>> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::copy_from_slice(file)).unwrap();
    let chunk = |group: &RowGroupMetaData| {
        let chunk = group.columns().iter().find(|chunk| chunk.column_path().string() == column).unwrap();
        let (start, length) = chunk.byte_range();
        file[usize::try_from(start).unwrap()..][..usize::try_from(length).unwrap()].to_vec()
    };
    metadata.row_groups().iter().map(chunk).collect()
}

/// Whether in all shards `alike` holds for a column of record ids and one of subject ids: given the shard, its column,
/// the sidecar and its column.
fn compared_columns(
    folder: &Folder,
    dataset: &str,
    columns: [&str; 2],
    alike: impl Fn(&[u8], &str, &[u8], &str) -> bool,
) -> [bool; 2] {
    let sidecars = folder.path().join(dataset).join("_shardify/sidecar");
    let mut all = [true; 2];
    for (path, shard) in folder.only_shards(dataset) {
        let name = path.trim_start_matches(&format!("{dataset}/")).replace(".parquet", ".table");
        let sidecar = std::fs::read(sidecars.join(name)).unwrap();
        for (all, (column, own)) in all.iter_mut().zip(columns.iter().zip(["record_id", "subject_id"])) {
            *all &= alike(&shard, column, &sidecar, own);
        }
    }
    all
}

/// Whether sidecars have the ids of records and of subjects as the shards have these columns.
fn taken(folder: &Folder, dataset: &str, columns: [&str; 2]) -> [bool; 2] {
    compared_columns(folder, dataset, columns, |shard, column, sidecar, own| {
        stored(shard, column) == stored(sidecar, own)
    })
}

/// First row of each page of a column, its encodings and its compression, for each row group.
fn pages(file: &[u8], column: &str) -> Vec<(Vec<i64>, Vec<Encoding>, Compression)> {
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    let metadata = reader.parse_and_finish(&Bytes::copy_from_slice(file)).unwrap();
    let of_group = |(number, group): (usize, &RowGroupMetaData)| {
        let place = group.columns().iter().position(|chunk| chunk.column_path().string() == column).unwrap();
        let locations = metadata.page_index().unwrap().offset_index(number, place).unwrap().page_locations();
        let firsts = locations.iter().map(|page| page.first_row_index).collect();
        (firsts, group.column(place).encodings().collect(), group.column(place).compression())
    };
    metadata.row_groups().iter().enumerate().map(of_group).collect()
}

/// Whether sidecars have the pages of the shards in Zstandard.
fn compressed_again(folder: &Folder, dataset: &str, columns: [&str; 2]) -> [bool; 2] {
    compared_columns(folder, dataset, columns, |shard, column, sidecar, own| {
        let (of_shard, of_sidecar) = (pages(shard, column), pages(sidecar, own));
        let alike = |(one, other): (&(Vec<i64>, _, _), &(_, _, Compression))| {
            (&one.0, &one.1) == (&other.0, &other.1) && one.0.len() > 1 && matches!(other.2, Compression::ZSTD(_))
        };
        of_shard.len() == of_sidecar.len() && of_shard.iter().zip(&of_sidecar).all(alike)
    })
}

#[test]
fn ids_are_encoded_once_where_the_shard_has_them() {
    let folder = Folder::new();
    let rows = (0..70_000_u64).map(|n| {
        let who = if n % 50 == 7 { String::new() } else { format!("PAT-{:05}", n.wrapping_mul(0x9e37_79b9) % 9_000) };
        format!("V{n:07},{who},{n},{}\n", n % 3)
    });
    folder.write("a.csv", format!("id,who,n,m\n{}", rows.collect::<String>()));
    folder.write("key", "0123456789abcdef".repeat(4));
    for (dataset, options, expected) in [
        ("texts", "--id id --subject who", [true, true]),
        ("level", "--id id --subject who --codec zstd:9", [true, true]),
        ("cut", "--id id --subject who --write row-group=256KiB --target-shard 200KiB", [true, true]),
        // The same pages, compressed again.
        ("snappy", "--id id --subject who --codec snappy", [false, false]),
        ("plain", "--id id --subject who --codec none", [false, false]),
        ("gzip", "--id id --subject who --codec gzip:1", [false, false]),
        // Several columns, ids that are numbers, and pseudonyms are not what the shard has.
        ("both", "--id id,n --subject who", [false, true]),
        ("numbers", "--id n --subject m", [false, false]),
        ("private", "--id id --subject who --id-mode hmac --id-key key", [false, false]),
    ] {
        let columns = if dataset == "numbers" { ["n", "m"] } else { ["id", "who"] };
        folder.run(&format!("convert a.csv --out {dataset} {options}")).ok();
        assert_eq!(taken(&folder, dataset, columns), expected, "{dataset}");
        if ["snappy", "plain", "gzip"].contains(&dataset) {
            assert_eq!(compressed_again(&folder, dataset, columns), [true, true], "{dataset}");
        }
        if dataset == "private" {
            continue;
        }
        let objects = folder.run(&format!("manifest {dataset} --export jsonl --json")).ok().objects();
        let records: Vec<&Value> = objects.iter().filter(|object| object["type"] == "record").collect();
        assert_eq!(records.len(), 70_000);
        for (n, record) in (0_u64..).zip(records).step_by(997) {
            let id = match dataset {
                "both" => format!("V{n:07},{n}"),
                "numbers" => n.to_string(),
                _ => format!("V{n:07}"),
            };
            assert_eq!(record["record_id"], id.as_str(), "{dataset}");
        }
        folder.run(&format!("verify {dataset} --read-data")).ok();
    }
}
