//! `compact --sort-by` and `--zorder`: records move, and everything that is known about them moves along.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeMap;

use support::Folder;

/// A dataset of conversions whose values are in no order, with the same values in several records.
fn shuffled(files: std::ops::Range<u64>, folder: &Folder) {
    for k in files {
        let row = |i: u64| {
            let x = (i * 7919 + k * 31) % 97;
            let x = if x == 5 { String::new() } else { x.to_string() };
            format!("r{k}-{i},PAT-{},{x},t{}\n", i % 7, (i * 31 + k) % 13)
        };
        let rows: String = (0..300).map(row).collect();
        folder.write(&format!("{k}.csv"), format!("id,who,x,t\n{rows}"));
        folder.run(&format!("convert {k}.csv --id id --subject who --to parquet")).ok();
    }
}

/// What is exported of each record that a sort must not change.
fn records(folder: &Folder, at: &str) -> BTreeMap<String, (String, String, u64, u64)> {
    let exported = folder.run(&format!("manifest --export jsonl --json {at}")).ok().objects();
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    exported
        .iter()
        .filter(|o| o["type"] == "record")
        .map(|row| {
            let numbers = (row["row"].as_u64().unwrap(), row["first_version"].as_u64().unwrap());
            (text(row, "record_id"), (text(row, "subject_id"), text(row, "hash"), numbers.0, numbers.1))
        })
        .collect()
}

/// Every id of the last export leads to the place that the export says.
fn check_finds(folder: &Folder) {
    let exported = folder.run("manifest --export jsonl --json").ok().objects();
    let rows: Vec<_> = exported.iter().filter(|o| o["type"] == "record").collect();
    for row in rows.iter().step_by(rows.len() / 20 + 1) {
        let id = row["record_id"].as_str().unwrap();
        let hit = folder.run(&format!("manifest --find {id} --json")).ok().objects().remove(0);
        for field in ["shard", "ordinal", "hash", "subject_id"] {
            assert_eq!(hit[field], row[field], "{id} {field}");
        }
        assert_eq!(hit["versions"]["from"], row["first_version"], "{id}");
    }
    let subjects = folder.run("manifest --find PAT-3 --json").ok().objects();
    let expected = rows.iter().filter(|row| row["subject_id"] == "PAT-3").count();
    assert_eq!(subjects.iter().filter(|o| o["type"] == "hit").count(), expected);
}

#[test]
fn a_sort_moves_records_with_all_that_is_known_of_them() {
    for order in ["--sort-by x", "--sort-by t,x", "--zorder x,t"] {
        let folder = Folder::new();
        shuffled(0..3, &folder);
        let before = records(&folder, "");
        let done = folder.run(&format!("compact {order} --json")).ok().summary();
        assert_eq!((&done["records_in"], &done["records_out"]), (&900.into(), &900.into()), "{order}");
        assert!(records(&folder, "") == before, "{order}");
        assert!(records(&folder, "--at v3") == before, "{order}");
        check_finds(&folder);
        assert_eq!(folder.run("verify --read-data --json").ok().summary()["problem_count"], 0);
        let diff = folder.run("manifest --diff v3 v4 --json").ok().summary();
        assert_eq!((&diff["records_moved"], &diff["records_added"]), (&900.into(), &0.into()), "{order}");
        // A second run has nothing to do, and neither has a merge in record order.
        for again in [format!("compact {order} --json"), "compact --min-inputs 2 --json".to_owned()] {
            assert_eq!(folder.run(&again).ok().summary()["shards_added"], 0, "{again}");
        }
    }
}

#[test]
fn new_shards_are_merged_into_sorted_ones_and_vacuum_keeps_first_versions() {
    let folder = Folder::new();
    shuffled(0..2, &folder);
    folder.run("compact --sort-by x").ok();
    shuffled(2..4, &folder);
    let before = records(&folder, "");
    let planned = folder.run("compact --sort-by x --dry-run").ok().stdout;
    assert!(planned.contains("in this order already: merged with the others without sorting"), "{planned}");
    folder.run("compact --sort-by x").ok();
    assert!(records(&folder, "") == before);
    folder.run("vacuum --retain 0s --force").ok();
    assert!(records(&folder, "") == before);
    check_finds(&folder);
    folder.run("compact --sort-by t").ok();
    folder.run("vacuum --retain 0s --force").ok();
    assert!(records(&folder, "") == before);
    check_finds(&folder);
    // Where records were before they were sorted is known for ever; of sorted shards that are gone it is an error.
    let now = folder.run("manifest --find r2-5 --json").ok().objects().remove(0);
    let then = folder.run("manifest --find r2-5 --at v5 --json").ok().objects().remove(0);
    assert_eq!((&then["state"], &then["ordinal"]), (&"vacuumed".into(), &5.into()), "{then}");
    assert_eq!((&then["now"]["shard"], &then["now"]["ordinal"]), (&now["shard"], &now["ordinal"]));
    assert_eq!(folder.run("manifest --find r2-5 --at v3").code, 1, "it was not there yet");
    let gone = folder.run("manifest --find r2-5 --at v6");
    assert!(gone.code == 2 && gone.stderr.contains("of sorted shards it is not kept"), "{gone:?}");
    assert_eq!(folder.run("verify --read-data --json").ok().summary()["problem_count"], 0);
}

#[test]
fn what_is_in_order_already_needs_no_places() {
    let folder = Folder::new();
    let rows: String = (0..2_000).map(|i| format!("{i}\n")).collect();
    folder.write("a.csv", format!("x\n{rows}"));
    folder.run("convert a.csv --to parquet").ok();
    folder.run("compact --sort-by x").ok();
    assert!(!folder.path().join("shards/_shardify/index/place").exists());
    let hit = folder.run("manifest --find a.csv#77 --json").ok().objects().remove(0);
    assert_eq!(hit["ordinal"], 76);
}

#[test]
fn what_cannot_be_sorted_says_what_to_do() {
    let folder = Folder::new();
    shuffled(0..1, &folder);
    for (order, expected) in [
        ("--sort-by y", "the columns are: id, who, x, t"),
        ("--sort-by x,x", "found `x` twice"),
        ("--zorder x", "use --sort-by for one column"),
        ("--sort-by x --zorder x,t", "cannot be used with"),
    ] {
        let ran = folder.run(&format!("compact {order}"));
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{order}: {ran:?}");
    }
    folder.write("b.csv", "x\n1\n");
    folder.run("convert b.csv --to tar --out tars").ok();
    let ran = folder.run("compact tars --sort-by x");
    assert!(ran.code == 2 && ran.stderr.contains("--to parquet"), "{ran:?}");
}
