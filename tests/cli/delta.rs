//! Delta tables as sources: what comes of a version, what a later run takes, and what is refused.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::{delta_log::commit, support};

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};
use support::{Folder, Ran, testdata_path};

/// A table with mapped columns, a partition column, a type that was widened, and a deletion vector from v2 on.
const VISITS: &str = "delta/visits";

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let into = to.join(entry.file_name());
        if entry.path().is_dir() { copy_tree(&entry.path(), &into) } else { _ = fs::copy(entry.path(), into).unwrap() }
    }
}

/// A folder with the table as `table`.
fn with_table() -> Folder {
    let folder = Folder::new();
    copy_tree(&testdata_path(VISITS), &folder.path().join("table"));
    folder
}

/// Records of a dataset by origin, which is their id: the row as JSON.
fn records(folder: &Folder, dataset: &str) -> BTreeMap<String, Value> {
    let export = folder.run(&format!("manifest {dataset} --export jsonl --json")).ok().objects();
    let shards: BTreeMap<String, Vec<Value>> = export
        .iter()
        .filter_map(|one| one["shard"].as_str())
        .map(|path| (path.to_owned(), rows(&folder.path().join(dataset).join(path))))
        .collect();
    let row = |one: &Value| {
        let at = usize::try_from(one["ordinal"].as_u64()?).unwrap();
        Some((one["record_id"].as_str()?.to_owned(), shards[one["shard"].as_str()?][at].clone()))
    };
    export.iter().filter_map(row).collect()
}

/// Rows of a Parquet file as JSON.
fn rows(path: &Path) -> Vec<Value> {
    let file = fs::File::open(path).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let mut out = Vec::new();
    for batch in reader.map(Result::unwrap) {
        let json = shardify::record::json::RowJson::new(&batch);
        for row in 0..batch.num_rows() {
            let mut text = Vec::new();
            json.write_row(row, &mut text);
            out.push(serde_json::from_slice(&text).unwrap());
        }
    }
    out
}

fn ids(records: &BTreeMap<String, Value>) -> Vec<i64> {
    let mut ids: Vec<i64> = records.values().map(|row| row["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

fn add(folder: &Folder, path: &str, change: bool) -> Value {
    let size = fs::metadata(folder.path().join("table").join(path)).unwrap().len();
    json!({"add": {"path": path, "partitionValues": {"c2": null}, "size": size, "modificationTime": 0,
        "dataChange": change}})
}

fn remove(path: &str, change: bool) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": 0, "dataChange": change}})
}

fn refused(ran: &Ran, code: i32, text: &str) {
    assert_eq!((ran.code, ran.stderr.contains(text)), (code, true), "{text}: {ran:?}");
}

#[test]
fn rows_have_the_names_types_and_values_of_the_table() {
    let folder = with_table();
    let summary = folder.run("convert table --out ds --json").ok().summary();
    assert_eq!((&summary["records_in"], &summary["records_out"]), (&6.into(), &6.into()));
    let records = records(&folder, "ds");
    let expected = json!({
        "aB/part-0.parquet#1": {"id": 1, "day": "2026-11-01", "note": "note 1", "lab": null},
        "aB/part-0.parquet#3": {"id": 3, "day": "2026-11-01", "note": null, "lab": null},
        "aB/part-0.parquet#5": {"id": 5, "day": "2026-11-01", "note": "note 5", "lab": null},
        "part%1.parquet#1": {"id": 6, "day": null, "note": null, "lab": {"code": "L6", "value": 1.5}},
        "part%1.parquet#2": {"id": 7, "day": null, "note": "note 7", "lab": {"code": "L7", "value": 1.75}},
        "part%1.parquet#3": {"id": 8, "day": null, "note": "note 8", "lab": {"code": "L8", "value": 2.0}},
    });
    assert_eq!(serde_json::to_value(&records).unwrap(), expected);
    // An origin leads to its record, also behind deleted rows.
    let found = folder.run("manifest ds --find aB/part-0.parquet#5 --json").ok();
    assert!(found.stdout.contains("aB/part-0.parquet#5"), "{found:?}");
    assert_eq!(folder.run("manifest ds --find aB/part-0.parquet#4").code, 1);
    folder.run("verify ds --read-data").ok();
}

#[test]
fn shards_are_the_same_for_any_number_of_threads_and_formats_take_them() {
    let folder = with_table();
    folder.run("convert table --out one --jobs 1").ok();
    folder.run("convert table --out four --jobs 4").ok();
    let bytes = |dataset| folder.shards_below_tags(dataset).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert_eq!(bytes("one"), bytes("four"));
    for to in ["tar", "tfrecord"] {
        let summary = folder.run(&format!("convert table --to {to} --out {to} --id id --json")).ok().summary();
        assert_eq!(summary["records_out"], 6, "{to}");
    }
}

#[test]
fn older_versions_are_named_by_number_or_instant() {
    let folder = with_table();
    for (version, expected) in [("v0", 1..=5), ("v1", 1..=8)] {
        folder.run(&format!("convert table --read as-of={version} --out {version}")).ok();
        assert_eq!(ids(&records(&folder, version)), expected.collect::<Vec<_>>(), "{version}");
    }
    for (version, day) in [(0, "2026-01-01"), (1, "2026-02-01"), (2, "2026-03-01")] {
        let path = folder.path().join(format!("table/_delta_log/{version:020}.json"));
        let at: jiff::Timestamp = format!("{day}T00:00:00Z").parse().unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(at.into()).unwrap();
    }
    for (instant, count) in [("2026-01-01T00:00:00Z", 5), ("2026-02-28T23:59:59+00:00", 8), ("2026-03-01", 6)] {
        let summary = folder.run(&format!("convert table --read as-of={instant} --out i{count} --json")).ok().summary();
        assert_eq!(summary["records_out"], count, "{instant}");
    }
    refused(&folder.run("convert table --read as-of=2025-12-31 --out none"), 2, "expected an instant");
    refused(&folder.run("convert table --read as-of=v3 --out none"), 2, "newest version v2");
    refused(&folder.run("convert table --read as-of=12 --out none"), 2, "v12");
    folder.copy("inputs/people.csv", "people.csv");
    refused(&folder.run("convert people.csv --read as-of=v1 --out none"), 2, "expected a Delta table for --read as-of");
}

#[test]
fn a_later_run_takes_what_was_added_since_and_nothing_twice() {
    let folder = with_table();
    let table = folder.path().join("table");
    folder.run("convert table --read as-of=v1 --out old").ok();
    folder.run("convert table --out ds").ok();
    assert_eq!(folder.run("convert table --out ds --json").ok().summary()["records_out"], 0);
    fs::copy(table.join("part%1.parquet"), table.join("part-2.parquet")).unwrap();
    commit(&folder, 3, &[add(&folder, "part-2.parquet", true)]);
    // An OPTIMIZE merges the new file before it was converted, and moves rows that were.
    fs::copy(table.join("part%1.parquet"), table.join("merged.parquet")).unwrap();
    let merge =
        [remove("part-2.parquet", false), remove("part%251.parquet", false), add(&folder, "merged.parquet", false)];
    commit(&folder, 4, &merge);
    let summary = folder.run("convert table --out ds --json").ok().summary();
    assert_eq!((&summary["records_out"], &summary["sources"]), (&3.into(), &1.into()));
    assert_eq!(ids(&records(&folder, "ds")), [1, 3, 5, 6, 6, 7, 7, 8, 8]);
    assert_eq!(folder.run("convert table --out ds --json").ok().summary()["records_out"], 0);
    // A file that came and went has never been there.
    fs::copy(table.join("part%1.parquet"), table.join("brief.parquet")).unwrap();
    commit(&folder, 5, &[add(&folder, "brief.parquet", true)]);
    commit(&folder, 6, &[remove("brief.parquet", true)]);
    assert_eq!(folder.run("convert table --out ds --json").ok().summary()["records_out"], 0);
    // v2 deleted rows that `old` has.
    refused(&folder.run("convert table --out old"), 8, "v2 removed or changed rows");
    assert_eq!(folder.run("convert table --out old --on-changed skip --json").ok().summary()["records_out"], 0);
    folder.run("convert table --out old --on-changed replace").ok();
    assert_eq!(ids(&records(&folder, "old")), [1, 3, 5, 6, 7, 8]);
    assert_eq!(folder.run("convert table --out old --json").ok().summary()["records_out"], 0);
    folder.run("verify old --read-data").ok();
}

#[test]
fn an_append_keeps_rows_that_the_table_has_lost() {
    let folder = with_table();
    folder.run("convert table --read as-of=v0 --out ds").ok();
    refused(&folder.run("convert table --out ds"), 8, "--on-changed append");
    folder.run("convert table --out ds --on-changed append").ok();
    assert_eq!(ids(&records(&folder, "ds")), (1..=8).collect::<Vec<_>>());
}

#[test]
fn a_log_that_no_longer_tells_is_a_changed_source() {
    let folder = with_table();
    folder.run("convert table --out ds").ok();
    fs::remove_dir_all(folder.path().join("table/_delta_log")).unwrap();
    copy_tree(&testdata_path(VISITS).join("_delta_log"), &folder.path().join("table/_delta_log"));
    // The table was made anew at the same place.
    let first = folder.path().join("table/_delta_log/00000000000000000000.json");
    let text = fs::read_to_string(&first).unwrap().replace("6f1a2f9e", "00000000");
    fs::write(&first, text).unwrap();
    refused(&folder.run("convert table --out ds"), 8, "another table");
    folder.run("convert table --out ds --on-changed replace").ok();
    assert_eq!(ids(&records(&folder, "ds")), [1, 3, 5, 6, 7, 8]);
}

#[test]
fn an_added_file_that_is_gone_is_a_changed_source() {
    let folder = with_table();
    let table = folder.path().join("table");
    folder.run("convert table --out ds").ok();
    fs::copy(table.join("part%1.parquet"), table.join("both.parquet")).unwrap();
    fs::copy(table.join("part%1.parquet"), table.join("part-2.parquet")).unwrap();
    commit(&folder, 3, &[add(&folder, "part-2.parquet", true)]);
    commit(&folder, 4, &[remove("part-2.parquet", false), add(&folder, "both.parquet", false)]);
    fs::remove_file(table.join("part-2.parquet")).unwrap();
    refused(&folder.run("convert table --out ds"), 8, "`part-2.parquet`, which was added later, is gone");
}

/// What the error says, and the damage that causes it.
type Damage<'a> = (&'a str, &'a dyn Fn(&Folder));

#[test]
fn damaged_logs_are_errors_and_nothing_is_written() {
    let log = "table/_delta_log/";
    let damage: [Damage<'_>; 6] = [
        ("version 1 in the log", &|folder| {
            fs::remove_file(folder.path().join(format!("{log}{:020}.json", 1))).unwrap();
        }),
        ("00000000000000000002.json, line 3", &|folder| {
            let path = folder.path().join(format!("{log}{:020}.json", 2));
            let text = fs::read(&path).unwrap();
            fs::write(&path, &text[..text.len() / 2]).unwrap();
        }),
        ("../other.parquet", &|folder| {
            commit(folder, 3, &[json!({"add": {"path": "../other.parquet", "partitionValues": {}, "size": 1}})]);
        }),
        ("absolute path `s3://bucket/x.parquet`", &|folder| {
            commit(folder, 3, &[json!({"add": {"path": "s3://bucket/x.parquet", "partitionValues": {}, "size": 1}})]);
        }),
        ("gone.parquet", &|folder| {
            commit(folder, 3, &[json!({"add": {"path": "gone.parquet", "partitionValues": {}, "size": 1}})]);
        }),
        ("part%1.parquet", &|folder| {
            let action =
                json!({"add": {"path": "part%251.parquet", "partitionValues": {"c2": "yesterday"}, "size": 1}});
            commit(folder, 3, &[action]);
        }),
    ];
    for (text, damage) in damage {
        let folder = with_table();
        damage(&folder);
        refused(&folder.run("convert table --out ds"), 6, text);
        assert!(!folder.path().join("ds").exists(), "{text}");
    }
}

#[test]
fn unknown_features_and_types_are_refused_by_name() {
    let first = "table/_delta_log/00000000000000000000.json";
    for (from, to, text) in [
        ("\"typeWidening\"]", "\"variantType\"]", "variantType"),
        ("\"typeWidening\"]", "\"catalogManaged\"]", "catalog"),
        ("\"minReaderVersion\":3", "\"minReaderVersion\":4", "version 4"),
        ("\\\"type\\\":\\\"double\\\"", "\\\"type\\\":\\\"geometry(4326)\\\"", "geometry(4326)"),
    ] {
        let folder = with_table();
        let path = folder.path().join(first);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, before.replacen(from, to, 1)).unwrap();
        assert_ne!(before, fs::read_to_string(&path).unwrap(), "{from}");
        refused(&folder.run("convert table --out ds"), 2, text);
    }
}

#[test]
fn parts_of_a_table_are_refused() {
    let folder = with_table();
    for around in ["table/aB", "table/aB/part-0.parquet", "table/*.parquet", "table --exclude **/_delta_log/**"] {
        refused(&folder.run(&format!("convert {around} --out ds")), 2, "Delta table");
    }
    refused(&folder.run("convert table --from csv --out ds"), 2, "--from");
    refused(&folder.run("plan convert table --out ds"), 2, "Delta table");
    refused(&folder.run("adopt table --out ds"), 2, "Delta table");
    // A folder above it contains all of it.
    for name in ["lake/a", "lake/b"] {
        copy_tree(&folder.path().join("table"), &folder.path().join(name));
    }
    let summary = folder.run("convert lake --out ds --json").ok().summary();
    assert_eq!((&summary["sources"], &summary["records_out"]), (&4.into(), &12.into()));
    assert_eq!(folder.run("convert lake --out ds --json").ok().summary()["records_out"], 0);
}

#[test]
fn private_datasets_recognise_the_table() {
    let folder = with_table();
    folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    let convert = "convert table --out ds --id id --id-mode hmac --redact-source-paths --id-key key --json";
    assert_eq!(folder.run(convert).ok().summary()["records_out"], 6);
    assert_eq!(folder.run(convert).ok().summary()["records_out"], 0);
}
