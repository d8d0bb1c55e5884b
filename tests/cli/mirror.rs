//! The Delta log of a dataset (`--index delta`), through the command line.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use crate::support;

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use support::Folder;

fn commit(version: u64) -> String {
    format!("shards/_delta_log/{version:020}.json")
}

fn actions(folder: &Folder, version: u64) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path().join(commit(version))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Paths and records of the files that the commits from 0 to `version` leave.
fn live(folder: &Folder, version: u64) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for action in (0..=version).flat_map(|version| actions(folder, version)) {
        if let Some(add) = action.get("add") {
            let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
            out.insert(add["path"].as_str().unwrap().to_owned(), stats["numRecords"].as_u64().unwrap());
        }
        if let Some(remove) = action.get("remove") {
            out.remove(remove["path"].as_str().unwrap()).unwrap();
        }
    }
    out
}

fn listed(folder: &Folder) -> BTreeMap<String, u64> {
    let objects = folder.run("manifest --list --json").ok().objects();
    let shards = objects.iter().filter(|object| object["type"] == "shard");
    shards.map(|s| (s["path"].as_str().unwrap().to_owned(), s["records"].as_u64().unwrap())).collect()
}

fn convert(folder: &Folder, run: u64) {
    let rows: String = (0..20).map(|i| format!("PAT-{},{},{}.5\n", i % 5, run * 100 + i, i)).collect();
    folder.write(&format!("raw/{run}.csv"), format!("patient,n,x\n{rows}"));
    folder.run(&format!("convert raw/{run}.csv --index delta --id n --subject patient")).ok();
}

fn exists(folder: &Folder, path: &str) -> bool {
    Path::exists(&folder.path().join(path))
}

#[test]
fn every_version_is_mirrored_and_no_id_is_in_the_log() {
    let folder = Folder::new();
    for run in 1..=3 {
        convert(&folder, run);
        assert_eq!(live(&folder, run - 1), listed(&folder));
        folder.run("verify").ok();
    }
    folder.run("compact --min-inputs 2").ok();
    assert_eq!(live(&folder, 3), listed(&folder));
    let moved = actions(&folder, 3);
    let changes = moved.iter().filter_map(|a| a.get("add").or(a.get("remove"))).map(|a| a["dataChange"].clone());
    assert_eq!(changes.collect::<Vec<_>>(), [false; 4]);
    let text = std::fs::read_to_string(folder.path().join(commit(0))).unwrap();
    assert!(!text.contains("PAT-") && text.contains(r#"\"maxValues\":{\"x\":19.5}"#), "{text}");
    // A run that was killed before it wrote the log.
    std::fs::remove_file(folder.path().join(commit(3))).unwrap();
    let ran = folder.run("verify");
    assert!(ran.code == 1 && ran.stdout.contains("found none"), "{ran:?}");
    folder.run("compact").ok();
    folder.run("verify").ok();
    assert_eq!(actions(&folder, 3), moved);
}

#[test]
fn an_erasure_from_all_versions_takes_older_versions_out_of_the_log() {
    let folder = Folder::new();
    (1..=2).for_each(|run| convert(&folder, run));
    folder.run("erase shards --subject PAT-3 --all-versions").ok();
    assert!(!exists(&folder, &commit(0)) && !exists(&folder, &commit(1)) && exists(&folder, &commit(2)));
    assert!(exists(&folder, "shards/_delta_log/00000000000000000002.checkpoint.parquet"));
    let last = std::fs::read_to_string(folder.path().join("shards/_delta_log/_last_checkpoint")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["version"], 2);
    let ran = folder.run("verify --json").ok().summary();
    assert_eq!(ran["unreferenced"], 0, "{ran}");
    convert(&folder, 3);
    folder.run("verify").ok();
    // A dataset is a source, in spite of the Delta log in its folder.
    folder.run("convert shards --out copy").ok();
}

#[test]
fn the_log_of_another_program_is_never_written() {
    let folder = Folder::new();
    convert(&folder, 1);
    let foreign = folder.write(&commit(1), "{\"commitInfo\":{\"operation\":\"WRITE\"}}\n");
    convert(&folder, 2);
    assert_eq!(std::fs::read_to_string(foreign).unwrap(), "{\"commitInfo\":{\"operation\":\"WRITE\"}}\n");
    assert!(!exists(&folder, &commit(2)));
    let ran = folder.run("verify");
    assert!(ran.code == 1 && ran.stdout.contains("found one of another program"), "{ran:?}");
    folder.write("other/_delta_log/00000000000000000000.json", "{}");
    folder.write("a.csv", "a\n1\n");
    let ran = folder.run("convert a.csv --out other --index delta");
    assert!(ran.code == 2 && ran.stderr.contains("found the log of another table"), "{ran:?}");
}

#[test]
fn a_column_keeps_its_type() {
    let folder = Folder::new();
    for (name, text) in [("1", "a,b\n1,x\n"), ("2", "a,b,c\n2,7,1\n"), ("3", "a,b\nno,x\n")] {
        folder.write(&format!("{name}.csv"), text);
    }
    folder.run("convert 1.csv --index delta").ok();
    // A number fits a column of text, and a column is new.
    folder.run("convert 2.csv").ok();
    let table = actions(&folder, 1).into_iter().find_map(|action| action.get("metaData").cloned()).unwrap();
    assert!(table["schemaString"].as_str().unwrap().contains("\"c\""), "{table}");
    let ran = folder.run("convert 3.csv");
    assert!(ran.code == 6 && ran.stderr.contains("expected int64 (the type in this dataset), found `no`"), "{ran:?}");
    // A log of Delta keeps the type even where the dataset would be widened.
    let ran = folder.run("convert 3.csv --on-schema union");
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("has in the Delta log since v1, long, found text"), "{ran:?}");
    folder.run("verify").ok();
    let ran = folder.run("convert 1.csv --out t --index delta --type a=uint8");
    assert!(ran.code == 2 && ran.stderr.contains("--type 'a=int16'"), "{ran:?}");
}

#[test]
fn planned_runs_are_mirrored_too() {
    let folder = Folder::new();
    let rows = |first: u64| (first..first + 300).map(|i| format!("{i},x{i}\n")).collect::<String>();
    for source in 0..2 {
        folder.write(&format!("raw/{source}.csv"), format!("n,t\n{}", rows(source * 300)));
    }
    let run = |folder: &Folder, plan: &str| {
        let report = folder.run(&format!("plan {plan} --json")).ok().summary();
        let (path, tasks) = (report["plan"].as_str().unwrap(), report["tasks"].as_u64().unwrap());
        folder.run(&format!("run-task {path} --task 0..{}", tasks - 1)).ok();
        folder.run(&format!("commit {path}")).ok();
    };
    run(&folder, "convert raw --index delta --task-size 4KiB");
    assert_eq!(live(&folder, 0), listed(&folder));
    run(&folder, "compact --min-inputs 2");
    assert_eq!(live(&folder, 1), listed(&folder));
    let shard = folder.path().join("shards").join(listed(&folder).keys().next().unwrap());
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::copy(shard, folder.path().join("other/a.parquet")).unwrap();
    run(&folder, "adopt other --out shards");
    assert_eq!(live(&folder, 2), listed(&folder));
    assert_eq!(listed(&folder).len(), 2);
    folder.run("verify").ok();
}

#[test]
fn what_another_process_leaves_of_erased_versions_is_deleted() {
    let folder = Folder::new();
    (1..=3).for_each(|run| convert(&folder, run));
    folder.run("erase shards --subject PAT-3 --all-versions").ok();
    let log = |name: &str| format!("shards/_delta_log/{name}");
    // It wrote a checkpoint of the version before, and named it, after the erasure had deleted these.
    folder.write(&log("00000000000000000002.checkpoint.parquet"), "late");
    folder.write(&log("_last_checkpoint"), r#"{"version":2,"size":5}"#);
    let ran = folder.run("verify");
    assert!(ran.code == 1 && ran.stdout.contains("cannot be read any more"), "{ran:?}");
    folder.run("compact").ok();
    assert!(!exists(&folder, &log("00000000000000000002.checkpoint.parquet")));
    let last = std::fs::read_to_string(folder.path().join(log("_last_checkpoint"))).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap()["version"], 3);
    folder.run("verify").ok();
}

#[test]
fn bounds_that_the_log_of_another_program_keeps_are_told() {
    let folder = Folder::new();
    convert(&folder, 1);
    folder.write(&commit(1), "{\"commitInfo\":{\"operation\":\"WRITE\"}}\n");
    let ran = folder.run("erase shards --subject PAT-3 --all-versions").ok();
    assert!(ran.stderr.contains("still has bounds of values"), "{ran:?}");
    let ran = folder.run("verify");
    assert!(ran.code == 1 && ran.stdout.contains("00000000000000000000.json: expected no bounds"), "{ran:?}");
    std::fs::remove_dir_all(folder.path().join("shards/_delta_log")).unwrap();
    folder.run("compact").ok();
    folder.run("verify").ok();
    assert!(exists(&folder, &commit(1)) && !exists(&folder, &commit(0)));
}
