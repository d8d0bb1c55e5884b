//! `convert --split`: which records are for training and which for evaluation.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use support::Folder;

const SPLIT: &str = "--split train=0.6,val=0.2,test=0.2";

/// Visits of patients: each visit once, each patient in all tables.
fn write_visits(folder: &Folder) {
    for (table, visits) in [("a", 0..3000), ("b", 3000..4000), ("c", 4000..4300)] {
        let row = |visit: u32| {
            format!("{visit},PAT-{:03},s{},{}\n", visit * 7 % 211, visit % 5, "x".repeat(visit as usize % 40))
        };
        folder.write(
            &format!("{table}.csv"),
            format!("visit,patient,site,note\n{}", visits.map(row).collect::<String>()),
        );
    }
}

/// Side of a shard.
fn side(shard: &str) -> String {
    let folder = shard.split('/').find_map(|folder| folder.strip_prefix("split="));
    folder.unwrap_or_else(|| panic!("no side: {shard}")).to_owned()
}

/// Rows of the export: one for each live record.
fn rows(folder: &Folder, dataset: &str, more: &str) -> Vec<Value> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl {more}")).ok();
    exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sides of each value of a column of the export; asserts that no value has two.
#[track_caller]
fn sides_of(folder: &Folder, dataset: &str, column: &str, more: &str) -> BTreeMap<String, String> {
    let mut sides: BTreeMap<String, String> = BTreeMap::new();
    for row in rows(folder, dataset, more) {
        let group = row[column].as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
        let side = side(row["shard"].as_str().unwrap());
        let known = sides.entry(group.clone()).or_insert_with(|| side.clone());
        assert_eq!(*known, side, "{group} has two sides");
    }
    sides
}

/// All formats, any number of threads: the same shards, each patient on one side; later runs, merges, sorting, erasure and removal keep
/// the sides, and records are found by id and by origin.
#[test]
fn nobody_is_on_two_sides_whatever_is_done() {
    let folder = Folder::new();
    write_visits(&folder);
    let mut all: BTreeSet<BTreeMap<String, String>> = BTreeSet::new();
    for to in ["parquet", "tar", "tfrecord", "tar --codec zstd"] {
        let mut contents = Vec::new();
        for jobs in [1, 3] {
            let out = format!("{}-{jobs}", to.replace(' ', ""));
            let first = format!(
                "convert a.csv --out {out} --to {to} --id visit --subject patient {SPLIT} --target-shard 16KiB --jobs {jobs} --json"
            );
            let summary = folder.run(&first).ok().summary();
            let splits = summary["splits"].as_array().unwrap();
            let records: u64 = splits.iter().map(|split| split["records"].as_u64().unwrap()).sum();
            assert_eq!((splits.len(), records), (3, 3000), "{summary}");
            let shards: Vec<(String, Value)> = rows(&folder, &out, "")
                .iter()
                .map(|row| {
                    (row["shard"].as_str().unwrap().split_once('/').unwrap().1.to_owned(), row["record_id"].clone())
                })
                .collect();
            let bytes: Vec<(String, Vec<u8>)> = shards_of(&folder, &out);
            contents.push((shards, bytes));
        }
        assert!(contents[0] == contents[1], "{to}");
        let out = format!("{}-3", to.replace(' ', ""));
        let before = sides_of(&folder, &out, "subject_id", "");
        for table in ["b", "c"] {
            folder.run(&format!("convert {table}.csv --out {out}")).ok();
        }
        let after = sides_of(&folder, &out, "subject_id", "");
        assert!(before.iter().all(|(patient, side)| after[patient] == *side), "{to}");
        assert_eq!(after.len(), 211);
        folder.run(&format!("verify {out} --read-data")).ok();
        folder.run(&format!("compact {out} --target-shard 256KiB")).ok();
        assert_eq!(sides_of(&folder, &out, "subject_id", ""), after, "{to}");
        if to == "parquet" {
            folder.run(&format!("compact {out} --sort-by site,visit")).ok();
            assert_eq!(sides_of(&folder, &out, "subject_id", ""), after);
        }
        folder.run(&format!("erase {out} PAT-007 --all-versions")).ok();
        folder.run(&format!("remove {out} --source b.csv")).ok();
        folder.run(&format!("verify {out} --read-data")).ok();
        let mut left = sides_of(&folder, &out, "subject_id", "");
        let sources: BTreeSet<String> =
            rows(&folder, &out, "").iter().map(|row| row["source"].as_str().unwrap().to_owned()).collect();
        assert_eq!(sources, ["a.csv", "c.csv"].map(str::to_owned).into());
        folder.run(&format!("convert b.csv --out {out}")).ok();
        left.extend(sides_of(&folder, &out, "subject_id", ""));
        assert!(left.iter().all(|(patient, side)| after[patient] == *side), "{to}");
        folder.run(&format!("verify {out} --read-data")).ok();
        assert!(!sides_of(&folder, &out, "subject_id", "").contains_key("PAT-007"));
        all.insert(after);
    }
    assert_eq!(all.len(), 1, "formats differ");
}

/// Bytes of all shards, by their paths below the folder of their run.
fn shards_of(folder: &Folder, dataset: &str) -> Vec<(String, Vec<u8>)> {
    let listed = folder.run(&format!("manifest {dataset} --list --paths")).ok();
    let read = |path: &str| {
        let below = path.split("split=").last().unwrap().to_owned();
        (below, std::fs::read(path).unwrap())
    };
    listed.stdout.lines().map(read).collect()
}

/// Records without ids are divided by their contents; each is found by its origin, also where bad rows were left out, and the records of
/// a source can be removed.
#[test]
fn records_are_found_by_their_origins() {
    let folder = Folder::new();
    let row = |row: u32| if row % 13 == 5 { format!("x,bad,{row}\n") } else { format!("{row},{}\n", row % 97) };
    folder.write("a/t.csv", format!("n,m\n{}", (0..500).map(row).collect::<String>()));
    folder.write("b/t.csv", format!("n,m\n{}", (500..700).map(row).collect::<String>()));
    folder.write("b/u.csv", "n,m\nx,bad,1\nx,bad,2\n");
    for to in ["parquet", "tar"] {
        let options = "--split train=0.5,val=0.5 --on-error skip --type n=int64 --target-shard 4KiB";
        let ran = folder.run(&format!("convert a b --out {to} --to {to} {options}"));
        assert_eq!(ran.code, 3, "{ran:?}");
        folder.run(&format!("verify {to} --read-data")).ok();
        let rows = rows(&folder, to, "");
        assert_eq!(rows.len(), 700 - (0..700).filter(|row| row % 13 == 5).count());
        for row in rows.iter().step_by(7) {
            let origin = format!("{}#{}", row["source"].as_str().unwrap(), row["row"]);
            let found = folder.run(&format!("manifest {to} --find {origin} --json")).ok().objects();
            let hits: Vec<&Value> = found.iter().filter(|object| object["origin"]["row"] == row["row"]).collect();
            let is_hit = |hit: &&Value| hit["shard"] == row["shard"] && hit["ordinal"] == row["ordinal"];
            assert!(hits.iter().any(is_hit), "{row}: {found:?}");
        }
        let gone = folder.run(&format!("remove {to} --source {}", folder.path().join("a/t.csv").display())).ok();
        let left = self::rows(&folder, to, "");
        assert!(left.len() == 200 - (500..700).filter(|row| row % 13 == 5).count(), "{gone:?}");
        folder.run(&format!("verify {to} --read-data")).ok();
    }
}

/// A plan with tasks that cut a source divides as a run without tasks does, in any order of its tasks.
#[test]
fn tasks_divide_alike() {
    let folder = Folder::new();
    write_visits(&folder);
    let row = |visit: u32| format!("{visit},PAT-{:03},s{},{}\n", visit * 7 % 211, visit % 5, "y".repeat(2000));
    folder.write("a.csv", format!("visit,patient,site,note\n{}", (0..3000).map(row).collect::<String>()));
    let options = format!("a.csv b.csv c.csv --memory 64MiB --id visit --subject patient {SPLIT} --target-shard 16KiB");
    folder.run(&format!("convert {options} --out whole")).ok();
    folder.run(&format!("convert {options} --task-size 1MiB --out tasks")).ok();
    let plan = folder.run(&format!("plan convert {options} --task-size 1MiB --out planned --json")).ok().summary();
    let tasks = plan["tasks"].as_u64().unwrap();
    assert!(tasks > 3, "{plan}");
    let url = plan["plan"].as_str().unwrap();
    for task in (0..tasks).rev() {
        folder.run(&format!("run-task {url} --task {task}")).ok();
        folder.run(&format!("run-task {url} --task {task}")).ok();
    }
    let committed = folder.run(&format!("commit {url} --json")).ok().summary();
    assert_eq!(committed["splits"].as_array().map(Vec::len), Some(3));
    assert_eq!(shards_of(&folder, "tasks").len(), shards_of(&folder, "planned").len());
    assert!(shards_of(&folder, "tasks") == shards_of(&folder, "planned"));
    let whole = sides_of(&folder, "whole", "subject_id", "");
    for dataset in ["tasks", "planned"] {
        assert_eq!(sides_of(&folder, dataset, "subject_id", ""), whole);
        assert_eq!(rows(&folder, dataset, "").len(), 4300);
        folder.run(&format!("verify {dataset} --read-data")).ok();
        folder.run(&format!("remove {dataset} --source a.csv")).ok();
        let sources: BTreeSet<String> =
            rows(&folder, dataset, "").iter().map(|row| row["source"].as_str().unwrap().to_owned()).collect();
        assert_eq!(sources, ["b.csv", "c.csv"].map(str::to_owned).into());
        folder.run(&format!("verify {dataset} --read-data")).ok();
    }
}

/// Samples of files have sides by their keys, or by subjects from their paths; energon sees the parts.
#[test]
fn samples_are_divided() {
    let folder = Folder::new();
    for patient in 0..20 {
        for scan in 0..5 {
            folder.write(&format!("scans/P{patient:02}/{scan}.txt"), format!("scan {scan} of {patient}"));
            folder.write(&format!("scans/P{patient:02}/{scan}.cls"), format!("{scan}"));
        }
    }
    folder.run(&format!("convert scans --out keys --index energon {SPLIT}")).ok();
    let sides = sides_of(&folder, "keys", "record_id", "");
    assert_eq!((sides.len(), sides.values().collect::<BTreeSet<_>>().len()), (100, 3));
    let yaml = std::fs::read_to_string(folder.path().join("keys/.nv-meta/split.yaml")).unwrap();
    let mut part = "";
    let mut listed = BTreeSet::new();
    for line in yaml.lines() {
        match line.strip_prefix("  - ") {
            Some(path) => assert!(listed.insert(path.trim_matches('"').to_owned()) && side(path) == part, "{yaml}"),
            None => part = line.trim().trim_end_matches(':'),
        }
    }
    let live: BTreeSet<String> =
        rows(&folder, "keys", "").iter().map(|row| row["shard"].as_str().unwrap().to_owned()).collect();
    assert_eq!(listed, live, "{yaml}");
    folder.run("verify keys --read-data").ok();
    for to in ["tar", "parquet", "tfrecord"] {
        let out = format!("patients-{to}");
        let subjects = "--subject-from-path {subject}/*";
        folder.run(&format!("convert scans --out {out} --to {to} {subjects} {SPLIT}")).ok();
        assert_eq!(sides_of(&folder, &out, "subject_id", "").len(), 20);
        assert_eq!(rows(&folder, &out, "").len(), 100);
        folder.run(&format!("verify {out} --read-data")).ok();
        let note = folder.run(&format!("adopt {out}2 --out {out}"));
        assert_eq!(note.code, 2, "{note:?}");
    }
}

/// The side of a private id follows from what is stored of it, so that it can be checked without the key.
#[test]
fn private_ids_are_divided_by_what_is_stored() {
    let folder = Folder::new();
    write_visits(&folder);
    folder.write("key", "0123456789abcdef0123456789abcdef");
    for mode in ["hmac", "sealed"] {
        let options = format!("--id visit --subject patient --id-mode {mode} --id-key key {SPLIT}");
        folder.run(&format!("convert a.csv --out {mode} {options}")).ok();
        folder.run(&format!("convert b.csv --out {mode} --id-key key")).ok();
        let sides = sides_of(&folder, mode, "subject_id", "--id-key key");
        assert_eq!((sides.len(), sides.values().collect::<BTreeSet<_>>().len()), (211, 3));
        folder.run(&format!("verify {mode} --read-data")).ok();
    }
}

/// Columns that are not kept may decide; values that are equal have one side, and missing ones have sides by their records.
#[test]
fn any_column_can_decide() {
    let folder = Folder::new();
    let row =
        |row: u32| format!("{row},{}\n", if row.is_multiple_of(3) { String::new() } else { format!("g{}", row % 50) });
    folder.write("a.csv", format!("n,g\n{}", (0..3000).map(row).collect::<String>()));
    folder.run("convert a.csv --columns n --id n --split a=0.5,b=0.5 --split-by g --split-seed 3 --out out").ok();
    let mut sides: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(&folder, "out", "") {
        let number: u32 = row["record_id"].as_str().unwrap().parse().unwrap();
        let group = if number.is_multiple_of(3) { String::new() } else { format!("g{}", number % 50) };
        sides.entry(group).or_default().insert(side(row["shard"].as_str().unwrap()));
    }
    let nulls = sides.remove("").unwrap();
    assert_eq!(nulls.len(), 2);
    assert!(sides.len() == 50 && sides.values().all(|sides| sides.len() == 1), "{sides:?}");
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let folder = Folder::new();
    write_visits(&folder);
    folder.write("files/a.txt", "a");
    folder.write("own.csv", "n,split\n1,train\n");
    folder.run("convert a.csv --out plain").ok();
    folder.run("convert a.csv --id visit --split a=0.5,b=0.5 --out divided").ok();
    folder.run("convert a.csv --out shards").ok();
    for (command, part) in [
        ("convert b.csv --out plain --split a=0.5,b=0.5", "are not divided"),
        ("convert b.csv --out divided --split a=0.4,b=0.6", "a=0.5,b=0.5 by id, found a=0.4,b=0.6 by id"),
        ("convert b.csv --out divided --split a=0.5,b=0.5 --split-seed 1", "found a=0.5,b=0.5 by id with seed 1"),
        ("convert b.csv --out new --split a=0.5,b=0.4", "add up to 1"),
        ("convert b.csv --out new --split a=0.5,b=0.5 --split-by subject", "expected subjects to split by"),
        ("convert b.csv --out new --split a=0.5,b=0.5 --split-by id", "expected record ids to split by"),
        ("convert b.csv --out new --split a=0.5,b=0.5 --split-by sitte", "there is a column `site`"),
        ("convert files --out new --split a=0.5,b=0.5 --split-by site", "by subject or id"),
        ("convert own.csv --out new --split a=0.5,b=0.5", "no column `split` beside --split"),
        ("convert b.csv --out new --split-by site", "--split"),
        ("convert b.csv --out new --split a=0.5,b=0.5 --shards 3", "cannot be used with"),
        ("adopt shards --out divided", "records that are divided"),
    ] {
        let ran = folder.run(command);
        assert!(ran.code == 2 && ran.stderr.contains(part), "{command}: {ran:?}");
        assert!(!folder.path().join("new").exists(), "{command}");
    }
    folder.run("convert b.csv --out divided --split a=0.5,b=0.5").ok();
    folder.run("convert own.csv --columns n --out without --split a=0.5,b=0.5").ok();
    folder.run("convert own.csv --to tar --out members --split a=0.5,b=0.5").ok();
}

/// A dataset that is cut from a divided one is divided alike, and its records are found by their origins.
#[test]
fn datasets_cut_from_others_are_divided_alike() {
    let folder = Folder::new();
    for table in 0..3 {
        let rows: String = (0..300).map(|row| format!("{},{}\n", table * 1000 + row, row % 7)).collect();
        folder.write(&format!("in/{table}.csv"), format!("n,m\n{rows}"));
    }
    folder.run("convert in --split a=0.5,b=0.3,c=0.2 --target-shard 2KiB --out whole").ok();
    folder.run("reshard whole --out some --sample 0.5 --records-per-shard 50").ok();
    let side_of = |row: &Value| (row["hash"].to_string(), side(row["shard"].as_str().unwrap()));
    let whole: BTreeMap<String, String> = rows(&folder, "whole", "").iter().map(side_of).collect();
    let some = rows(&folder, "some", "");
    assert!((300..600).contains(&some.len()), "{}", some.len());
    let mut ids = String::new();
    for row in &some {
        let (hash, side) = side_of(row);
        assert_eq!(whole[&hash], side, "{row}");
        ids.push_str(&format!("{}#{}\n", row["source"].as_str().unwrap(), row["row"]));
    }
    folder.write("ids.txt", ids);
    let found = folder.run("manifest some --find-file ids.txt --json").ok().objects();
    let place = |object: &Value| (object["shard"].to_string(), object["ordinal"].to_string());
    let found: BTreeSet<(String, String)> = found.iter().filter(|o| o["type"] != "summary").map(place).collect();
    assert_eq!(found, some.iter().map(place).collect());
    folder.run("remove some --source 2.csv").ok();
    assert!(rows(&folder, "some", "").iter().all(|row| row["source"] != "2.csv"));
    folder.run("verify some --read-data").ok();
}
