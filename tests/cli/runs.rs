//! Rules that hold within one run hold across the runs of a dataset: types, constants and divisions of its records.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use support::Folder;

const FORMATS: [&str; 3] = ["parquet", "tar", "tfrecord"];

/// Days of rows in which some columns have no value: the first, one in the middle, the last.
const DAYS: [&str; 5] = [
    r#"{"id":0,"v":null,"d":null,"f":null,"pr":null,"l":[],"tags":[]}"#,
    r#"{"id":1,"v":7,"d":"2024-01-02","f":0.5,"pr":{"a":1},"l":[{"b":1}],"tags":[1]}"#,
    r#"{"id":2,"v":8,"d":"2024-01-03","f":1.5,"pr":{"a":2},"l":[{"b":2}],"tags":[2]}"#,
    r#"{"id":3,"v":null,"d":null,"f":null,"pr":{},"l":[],"tags":null}"#,
    r#"{"id":4,"v":9,"d":"2024-01-04","f":2,"pr":{"a":3},"l":[{"b":3}],"tags":[3]}"#,
];

/// The columns of a live Parquet shard, each as its path and its physical and logical type, by the crate `parquet`.
fn columns(bytes: &[u8]) -> BTreeMap<String, String> {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(bytes)).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let name = |at: usize| {
        let column = schema.column(at);
        (column.path().string(), format!("{:?} {:?}", column.physical_type(), column.logical_type_ref()))
    };
    (0..schema.num_columns()).map(name).collect()
}

/// The columns of each live shard of a dataset.
fn live_columns(folder: &Folder, dataset: &str) -> BTreeSet<BTreeMap<String, String>> {
    let listed = folder.run(&format!("manifest {dataset} --list --json")).ok().objects();
    let paths = listed.iter().filter_map(|one| one["path"].as_str());
    paths.map(|path| columns(&std::fs::read(folder.path().join(dataset).join(path)).unwrap())).collect()
}

fn write_days(folder: &Folder) {
    for (number, rows) in DAYS.iter().enumerate() {
        folder.write(&format!("day{number}.jsonl"), format!("{rows}\n"));
    }
}

#[test]
fn a_column_without_values_takes_the_type_of_the_dataset() {
    let folder = Folder::new();
    write_days(&folder);
    for (name, days) in [("first", [0, 1, 2]), ("middle", [1, 3, 2]), ("last", [1, 4, 3])] {
        for to in FORMATS {
            let (one, several) = (format!("one-{name}-{to}"), format!("several-{name}-{to}"));
            let all = days.map(|day| format!("day{day}.jsonl"));
            folder.run(&format!("convert {} --out {one} --to {to}", all.join(" "))).ok();
            for day in &all {
                folder.run(&format!("convert {day} --out {several} --to {to}")).ok();
            }
            let back = |dataset: &str, out: &str| {
                folder.run(&format!("convert {dataset} --to parquet --out {out}-{name}-{to}")).ok();
                live_columns(&folder, &format!("{out}-{name}-{to}"))
            };
            let expected = back(&one, "expected");
            assert_eq!(expected.len(), 1);
            if to == "parquet" && name != "first" {
                assert_eq!(live_columns(&folder, &several), expected, "{name}");
            }
            assert_eq!(back(&several, "before"), expected, "{name} {to} before the merge");
            folder.run(&format!("compact {several} --min-inputs 2")).ok();
            assert_eq!(back(&several, "after"), expected, "{name} {to} after the merge");
            folder.run(&format!("verify {several} --read-data")).ok();
        }
    }
    let merged = live_columns(&folder, "several-first-parquet").into_iter().next().unwrap();
    for (column, expected) in [
        ("v", "INT64 None"),
        ("d", "BYTE_ARRAY Some(String)"),
        ("f", "DOUBLE None"),
        ("pr.a", "INT64 None"),
        ("l.list.item.b", "INT64 None"),
        ("tags.list.item", "INT64 None"),
    ] {
        assert_eq!(merged.get(column).map(String::as_str), Some(expected), "{column}: {merged:?}");
    }
}

#[test]
fn a_shard_without_values_gets_the_type_even_if_nothing_is_merged() {
    let folder = Folder::new();
    write_days(&folder);
    folder.run("convert day0.jsonl --out ds").ok();
    folder.run("convert day1.jsonl --out ds").ok();
    let compacted = folder.run("compact ds --json").ok();
    assert_eq!((&compacted.summary()["records_in"], &compacted.summary()["records_out"]), (&1.into(), &1.into()));
    assert_eq!(live_columns(&folder, "ds").len(), 1);
    // A second run finds nothing to do.
    assert_eq!(folder.run("compact ds --json").ok().summary()["records_in"], 0);
}

#[test]
fn values_of_another_type_need_a_word() {
    for to in FORMATS {
        for (good, bad, known, found) in [
            ("id,v\n1,5\n", "id,v\n2,6\n3,abc\n", "int64", "`abc`"),
            ("id,v\n1,5\n", "id,v\n2,6\n3,1.5\n", "int64", "`1.5`"),
            ("id,v\n1,5\n", "id,v\n2,6\n3,007\n", "int64", "`007`"),
            ("id,v\n1,2024-01-02\n", "id,v\n2,2024-01-03\n3,soon\n", "date (YYYY-MM-DD)", "`soon`"),
            ("id,v\n1,0.5\n", "id,v\n2,1\n3,many\n", "float64", "`many`"),
        ] {
            let folder = Folder::new();
            folder.write("good.csv", good);
            folder.write("bad.csv", bad);
            folder.run(&format!("convert good.csv --out ds --to {to}")).ok();
            let refused = folder.run("convert bad.csv --out ds");
            assert_eq!(refused.code, 6, "{to} {found}: {}", refused.stderr);
            let message = format!("expected {known} (the type in this dataset), found {found}");
            for part in [message.as_str(), "line 3", "column `v`", "--type v=", "--on-schema union", "--on-error skip"]
            {
                assert!(refused.stderr.contains(part), "{to} {part}: {}", refused.stderr);
            }
            assert_eq!(folder.run("manifest ds --json").ok().summary()["version"], 1);
            let skipped = folder.run("convert bad.csv --out ds --on-error skip --json");
            assert_eq!((skipped.code, &skipped.summary()["records_rejected"]), (3, &1.into()), "{to} {found}");
        }
    }
}

/// A merge changes neither a value nor its type, whatever was accepted.
#[test]
fn shards_of_types_that_were_accepted_are_kept_apart() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\n1,5\n");
    folder.write("b.csv", "id,v\n2,5\n");
    folder.write("c.csv", "id,v\n3,abc\n");
    folder.write("d.csv", "id,v\n4,5.50\n");
    for to in FORMATS {
        folder.run(&format!("convert a.csv --out {to} --to {to}")).ok();
        folder.run(&format!("convert b.csv --out {to}")).ok();
        folder.run(&format!("convert c.csv --out {to} --on-schema union")).ok();
        folder.run(&format!("convert d.csv --out {to}")).ok();
        let done = folder.run(&format!("compact {to} --min-inputs 2 --json")).ok().summary();
        assert_eq!((&done["records_out"], &done["shards_after"]), (&4.into(), &2.into()), "{to}");
        folder.run(&format!("verify {to} --read-data")).ok();
    }
    let types: BTreeSet<String> =
        live_columns(&folder, "parquet").into_iter().map(|columns| columns["v"].clone()).collect();
    assert_eq!(types.len(), 2, "{types:?}");
    // Whole numbers are floats for every reader.
    folder.write("e.csv", "id,v\n5,0.5\n");
    folder.run("convert a.csv --out numbers").ok();
    folder.run("convert e.csv --out numbers --on-schema union").ok();
    folder.run("compact numbers --min-inputs 2").ok();
    assert_eq!(live_columns(&folder, "numbers").into_iter().next().unwrap()["v"], "DOUBLE None");
}

#[test]
fn types_that_a_source_states_are_compared_before_it_is_read() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\n1,5\n");
    folder.write("t.csv", "id,v\n2,x\n");
    folder.run("convert a.csv --out ds").ok();
    folder.run("convert t.csv --out text").ok();
    let refused = folder.run("convert text --out ds");
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("this dataset has int64 here; the source has text"), "{}", refused.stderr);
    let refused = folder.run("convert t.csv --out ds --type v=text");
    assert_eq!(refused.code, 6, "{}", refused.stderr);
}

/// The run that commits second was planned when the column had no type yet.
#[test]
fn two_runs_at_once_do_not_commit_types_that_disagree() {
    let folder = Folder::new();
    write_days(&folder);
    folder.write("a.csv", "id,v\n1,5\n");
    folder.write("text.csv", "id,v\n1,x\n");
    folder.write("none.csv", "id,v\n0,\n");
    folder.run("convert none.csv --out ds").ok();
    let plan = folder.run("plan convert text.csv --out ds --json").ok().summary()["plan"].as_str().unwrap().to_owned();
    folder.run("convert a.csv --out ds").ok();
    folder.run(&format!("run-task {plan} --task 0")).ok();
    let refused = folder.run(&format!("commit {plan}"));
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("another run gave a column another type"), "{}", refused.stderr);
}

#[test]
fn a_divided_dataset_stays_divided() {
    let folder = Folder::new();
    let rows: String = (0..60).map(|id| format!("{id},{}\n", id % 7)).collect();
    folder.write("rows.csv", format!("id,n\n{rows}"));
    folder.write("more.csv", "id,n\n100,1\n");
    folder.run("convert rows.csv --id id --split train=0.7,val=0.3 --out divided").ok();
    let splits = |dataset: &str| -> BTreeMap<String, String> {
        let exported = folder.run(&format!("manifest {dataset} --export jsonl")).ok().stdout;
        let rows = exported.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let split = |shard: &str| shard.split('/').find(|part| part.starts_with("split=")).unwrap_or("").to_owned();
        rows.map(|row| (row["record_id"].as_str().unwrap().to_owned(), split(row["shard"].as_str().unwrap()))).collect()
    };
    let expected = splits("divided");
    assert_eq!(expected.values().collect::<BTreeSet<_>>().len(), 2);
    for to in FORMATS {
        folder.run(&format!("convert divided --id id --to {to} --out {to}")).ok();
        assert_eq!(splits(to), expected, "{to}");
    }
    folder.run("convert more.csv --out whole --id id").ok();
    let refused = folder.run("convert divided --out whole");
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    folder.run("convert divided --out whole --accept settings").ok();
    folder.run("convert divided --id id --out given-up --accept settings").ok();
    assert!(splits("given-up").values().all(String::is_empty));
}
