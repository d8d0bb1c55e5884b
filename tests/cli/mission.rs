//! The three commands of the README, typed as they stand, on real patient tables.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeMap;

use support::{Folder, testdata_path};

const TABLES: [&str; 3] = ["CONDITION_OCCURRENCE.csv", "MEASUREMENT.csv", "OBSERVATION.csv"];

fn patients() -> Folder {
    let folder = Folder::new();
    for table in TABLES {
        folder.copy(&format!("patients/{table}"), table);
    }
    folder.write("shardify.toml", "[convert]\nsubject = \"person_id\"\n");
    folder
}

/// Rows (from 1) of each person in each table, by a reading of the files that has nothing to do with shardify: these
/// tables have the person in the second column and no quotes before it.
fn rows_of(person: &str) -> BTreeMap<String, Vec<u64>> {
    let mut out = BTreeMap::new();
    for table in TABLES {
        let text = std::fs::read_to_string(testdata_path(&format!("patients/{table}"))).unwrap();
        let rows = text
            .lines()
            .skip(1)
            .zip(1..)
            .filter(|(line, _)| line.split(',').nth(1) == Some(person))
            .map(|(_, row)| row)
            .collect();
        out.insert(table.to_owned(), rows);
    }
    out
}

fn found(folder: &Folder, person: &str) -> BTreeMap<String, Vec<u64>> {
    let mut out: BTreeMap<String, Vec<u64>> = TABLES.iter().map(|t| ((*t).to_owned(), Vec::new())).collect();
    let ran = folder.run(&format!("manifest --json --find {person}")).ok();
    for hit in ran.objects().iter().filter(|o| o["type"] == "hit") {
        assert_eq!(hit["kind"], "subject");
        assert_eq!(hit["subject_id"], person);
        let source = hit["origin"]["source"].as_str().unwrap();
        let row = hit["origin"]["row"].as_u64().unwrap();
        assert_eq!(hit["record_id"], format!("{source}#{row}"));
        out.get_mut(source).unwrap().push(row);
    }
    out
}

#[test]
fn the_three_commands_work_in_a_row() {
    let folder = patients();
    let converted = folder.run("convert --target-shard 128MiB").ok();
    assert!(converted.stdout.contains("read       18,609 records from 3 sources"), "{converted:?}");
    folder.run("compact --since 7d").ok();
    for person in ["1", "7", "23"] {
        let expected = rows_of(person);
        assert!(expected.values().map(Vec::len).sum::<usize>() > 50);
        assert_eq!(found(&folder, person), expected, "person {person}");
    }
    let table = folder.run("manifest --find 7").ok().stdout;
    assert!(table.contains("MEASUREMENT.csv row "), "{table}");
    let nobody = folder.run("manifest --find 99999999");
    assert_eq!((nobody.code, nobody.stdout.as_str()), (1, ""));
    assert_eq!(nobody.stderr, "no record has the id `99999999` at v1\n");
}

#[test]
fn a_second_conversion_finds_nothing_to_do_and_new_tables_are_added() {
    let folder = patients();
    folder.run("convert").ok();
    let again = folder.run("convert").ok();
    assert!(again.stdout.starts_with("nothing to do: 3 sources already converted, still at v1"), "{again:?}");
    folder.copy("patients/DEATH.csv", "DEATH.csv");
    let added = folder.run("convert --json").ok().summary();
    assert_eq!(added["version"], 2);
    assert_eq!(added["sources_unchanged"], 3);
    assert_eq!(added["records_in"], added["records_out"]);
    folder.run("verify --read-data").ok();
}

#[test]
fn ids_are_found_before_and_after_compaction_in_every_format() {
    for (to, small, large) in [
        ("parquet", "20KiB", "2MiB"),
        ("tar", "1MiB", "8MiB"),
        ("tfrecord", "300KiB", "2MiB"),
        ("tar --codec gzip", "50KiB", "1MiB"),
        ("tar --codec zstd", "50KiB", "1MiB"),
        ("tfrecord --codec gzip", "50KiB", "1MiB"),
    ] {
        let folder = patients();
        let small = format!("--target-shard {small}");
        folder.run(&format!("convert CONDITION_OCCURRENCE.csv {small} --to {to}")).ok();
        folder.run(&format!("convert MEASUREMENT.csv {small}")).ok();
        folder.run(&format!("convert OBSERVATION.csv {small}")).ok();
        let expected = rows_of("7");
        assert_eq!(found(&folder, "7"), expected, "{to}");
        let compacted = folder.run(&format!("compact --json --target-shard {large}")).ok().summary();
        assert!(compacted["shards_removed"].as_u64().unwrap() > 1, "{to}: {compacted}");
        assert_eq!(compacted["version"], 4);
        assert_eq!(found(&folder, "7"), expected, "{to}");
        let verified = folder.run("verify --read-data");
        assert_eq!(verified.code, 0, "{to}: {verified:?}");
        let again = folder.run(&format!("compact --json --target-shard {large}")).ok().summary();
        assert_eq!((again["version"].as_u64(), again["shards_added"].as_u64()), (Some(4), Some(0)), "{to}");
        // The old versions still answer as they did.
        assert_eq!(folder.run("verify --read-data --at v2").code, 0);
        let hit = &folder.run("manifest --json --find MEASUREMENT.csv#17").ok().objects()[0];
        assert_eq!(hit["versions"]["from"], 2, "{hit}");
        assert_eq!(hit["earlier"][0]["versions"]["to"], 3, "{hit}");
    }
}
