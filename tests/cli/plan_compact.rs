//! Compactions in tasks: the same shards as a compaction of one process, and everything that may happen between a plan
//! and its commit.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::support;

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use serde_json::Value;
use support::Folder;

/// Makes a dataset of many small shards.
fn dataset(folder: &Folder, name: &str, options: &str) {
    for file in 0..12 {
        let mut text = String::from("id,who,score\n");
        for row in 0..40 {
            writeln!(text, "r{file}-{row},PAT-{},{}.5", row % 7, file * row).unwrap();
        }
        folder.write(&format!("raw/{file}.csv"), text);
        folder.run(&format!("convert raw/{file}.csv --out {name} --id id --subject who {options}")).ok();
    }
}

fn plan(folder: &Folder, options: &str) -> (String, u64) {
    let report = folder.run(&format!("plan compact {options} --json")).ok().summary();
    assert!(report["plan"].is_string(), "{report}");
    (report["plan"].as_str().unwrap().to_owned(), report["tasks"].as_u64().unwrap())
}

/// Contents of the shards, whatever their names.
fn contents(folder: &Folder, dataset: &str) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = live(folder, dataset).into_values().collect();
    all.sort();
    all
}

/// The live shards.
fn live(folder: &Folder, dataset: &str) -> BTreeMap<String, Vec<u8>> {
    let listed = folder.run(&format!("manifest {dataset} --list --json")).ok();
    let paths = listed.objects().into_iter().filter_map(|shard| Some(shard.get("path")?.as_str()?.to_owned()));
    paths
        .map(|path| {
            let bytes = std::fs::read(folder.path().join(dataset).join(&path)).unwrap();
            (path, bytes)
        })
        .collect()
}

/// All records with their numbers, whatever shards they are in.
fn records(folder: &Folder, dataset: &str) -> Vec<String> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl")).ok();
    let record = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        value
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !["shard", "shard_version", "ordinal", "offset", "length"].contains(&&**name));
        value.to_string()
    };
    let mut all: Vec<String> = exported.stdout.lines().map(record).collect();
    all.sort();
    all
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            std::fs::copy(&entry, &target).unwrap();
        }
    }
}

#[test]
fn tasks_in_any_order_give_what_compact_gives() {
    for (options, target, indexes) in [
        ("", "12KiB", false),
        (&format!("--to {}", support::INDEXED_TAR), "160KiB", true),
        ("--to tar --codec zstd", "6KiB", false),
        ("--to tfrecord --index tfindex", "16KiB", false),
    ] {
        let folder = Folder::new();
        dataset(&folder, "plain", options);
        copy(&folder.path().join("plain"), &folder.path().join("tasks"));
        let before = records(&folder, "plain");
        let select = format!("--target-shard {target} --min-inputs 2");
        let whole = folder.run(&format!("compact plain {select} --json")).ok().summary();
        let (plan, tasks) = plan(&folder, &format!("tasks {select} --task-size 1KiB"));
        assert!(tasks > 1, "{options}: {tasks}");
        let order: Vec<u64> = (0..tasks).rev().chain(0..tasks).collect();
        for task in order {
            folder.run(&format!("run-task {plan} --task {task}")).ok();
        }
        let committed = folder.run(&format!("commit {plan} --json")).ok().summary();
        for field in [
            "records_in",
            "records_out",
            "bytes_in",
            "bytes_out",
            "shards_added",
            "shards_removed",
            "bytes_copied",
            "bytes_spliced",
            "bytes_reencoded",
            "shards_after",
            "version",
        ] {
            assert_eq!(committed[field], whole[field], "{options}: {field}");
        }
        assert!(contents(&folder, "tasks") == contents(&folder, "plain"), "{options}");
        assert!(records(&folder, "tasks") == before, "{options}");
        folder.run("verify tasks --read-data").ok();
        let found = folder.run("manifest tasks --find r7-3").ok();
        assert!(found.stdout.contains("raw/7.csv") || found.stdout.contains("7.csv"), "{found:?}");
        if indexes {
            let list = std::fs::read_to_string(folder.path().join("tasks/shardindex.json")).unwrap();
            let list: Value = serde_json::from_str(&list).unwrap();
            assert_eq!(list["shardlist"].as_array().unwrap().len(), live(&folder, "tasks").len());
        }
        let again = folder.run(&format!("plan compact tasks {select}")).ok();
        assert!(again.stdout.starts_with("nothing to do: "), "{again:?}");
        let left = folder.run("vacuum tasks --retain 0s --force --json").ok().summary();
        assert_eq!(left["objects_unreferenced"].as_u64().unwrap_or(0), 0, "{options}: {left}");
        folder.run("verify tasks --read-data").ok();
    }
}

#[test]
fn a_plan_is_continued_and_committed_once() {
    let folder = Folder::new();
    dataset(&folder, "ds", "");
    let select = "ds --target-shard 12KiB --min-inputs 2 --task-size 1KiB";
    let (first, tasks) = plan(&folder, select);
    folder.run(&format!("run-task {first} --task 0")).ok();
    let again = folder.run(&format!("plan compact {select} --json")).ok().summary();
    assert_eq!((again["plan"].as_str().unwrap(), again["tasks_done"].as_u64().unwrap()), (first.as_str(), 1));
    let (other, _) = plan(&folder, "ds --target-shard 11KiB --min-inputs 2 --task-size 1KiB");
    assert_ne!(other, first);
    let refused = folder.run(&format!("commit {first}"));
    assert!(refused.code == 4 && refused.stderr.contains("missing: 1"), "{refused:?}");
    folder.run(&format!("run-task {first} --task 0..{}", tasks - 1)).ok();
    folder.run(&format!("commit {first}")).ok();
    assert!(folder.run(&format!("commit {first}")).ok().stdout.contains("already committed as v13"));
    folder.run("verify ds --read-data").ok();
}

#[test]
fn merges_of_shards_that_were_replaced_are_left_out() {
    let folder = Folder::new();
    dataset(&folder, "ds", "");
    let before = records(&folder, "ds");
    let (plan, tasks) = plan(&folder, "ds --target-shard 12KiB --min-inputs 2 --task-size 1KiB");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    // Some of the shards are merged by another run.
    folder.run("compact ds --until v5 --min-inputs 2").ok();
    let committed = folder.run(&format!("commit {plan} --json"));
    assert_eq!(committed.code, 0, "{committed:?}");
    let report = committed.summary();
    assert!(report["groups_dropped"].as_u64().unwrap() > 0, "{report}");
    assert!(records(&folder, "ds") == before);
    folder.run("verify ds --read-data").ok();
    let verified = folder.run("verify ds --json").ok().summary();
    assert_eq!(verified["leftovers"].as_u64().unwrap_or(0), 0, "{verified}");
    // Nothing of the next plan is left to commit.
    let (plan, tasks) = self::plan(&folder, "ds --target-shard 64KiB --min-inputs 2");
    folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    folder.run("compact ds --target-shard 64KiB --min-inputs 2").ok();
    let refused = folder.run(&format!("commit {plan}"));
    assert!(refused.code == 4 && refused.stderr.contains("plan again"), "{refused:?}");
    assert!(!Path::new(&plan).exists());
    assert!(records(&folder, "ds") == before);
    assert_eq!(folder.run("verify ds --json").ok().summary()["leftovers"].as_u64().unwrap_or(0), 0);
}

#[test]
fn an_erasure_voids_a_plan_and_nobody_comes_back() {
    for (options, target) in [("", "12KiB"), ("--to tar", "160KiB")] {
        let folder = Folder::new();
        dataset(&folder, "ds", options);
        let (plan, tasks) = plan(&folder, &format!("ds --target-shard {target} --min-inputs 2 --task-size 1KiB"));
        folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
        folder.run("erase --subject PAT-3 ds").ok();
        let committed = folder.run(&format!("commit {plan}"));
        assert!([2, 4].contains(&committed.code), "{committed:?}");
        assert_eq!(folder.run("manifest ds --find PAT-3").code, 1);
        let (plan, tasks) = self::plan(&folder, &format!("ds --target-shard {target} --min-inputs 2 --task-size 1KiB"));
        folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
        folder.run("erase --subject PAT-4 ds --all-versions").ok();
        let refused = folder.run(&format!("commit {plan}"));
        assert!([2, 4].contains(&refused.code) && refused.stderr.contains("plan again"), "{refused:?}");
        assert_eq!(folder.run("manifest ds --find PAT-4").code, 1);
        assert_eq!(folder.run("manifest ds --find PAT-5").code, 0);
        folder.run("verify ds --read-data").ok();
    }
}

#[test]
fn a_damaged_shard_stops_only_its_own_merge() {
    let folder = Folder::new();
    dataset(&folder, "ds", "");
    let before = live(&folder, "ds");
    let (plan, tasks) = plan(&folder, "ds --target-shard 12KiB --min-inputs 2 --task-size 1KiB");
    let (path, bytes) = before.iter().next().unwrap();
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 3;
    damaged[middle] ^= 1;
    std::fs::write(folder.path().join("ds").join(path), &damaged).unwrap();
    let ran = folder.run(&format!("run-task {plan} --task 0..{}", tasks - 1)).ok();
    assert!(ran.stdout.contains("1 omitted"), "{ran:?}");
    let committed = folder.run(&format!("commit {plan}"));
    assert!(committed.code == 5 && committed.stderr.contains("are committed as v13"), "{committed:?}");
    assert!(live(&folder, "ds").len() < before.len() && live(&folder, "ds").contains_key(path));
    std::fs::write(folder.path().join("ds").join(path), bytes).unwrap();
    folder.run("verify ds --read-data").ok();
}

#[test]
fn a_version_that_was_vacuumed_and_sorting_are_told() {
    let folder = Folder::new();
    dataset(&folder, "ds", "");
    let refused = folder.run("plan compact ds --sort-by id");
    assert!(refused.code == 2 && refused.stderr.contains("on one machine"), "{refused:?}");
    let (plan, _) = plan(&folder, "ds --target-shard 12KiB --min-inputs 2 --task-size 1KiB");
    folder.run("compact ds --min-inputs 2").ok();
    folder.run("vacuum ds --retain 0s --force").ok();
    let refused = folder.run(&format!("run-task {plan} --task 0"));
    assert!(refused.code == 4 && refused.stderr.contains("plan again"), "{refused:?}");
}
