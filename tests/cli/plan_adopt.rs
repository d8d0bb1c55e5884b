//! Adoptions in tasks: the same dataset as an adoption of one process, and files of the user that never change.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::support;

use std::{collections::BTreeMap, fmt::Write as _};

use support::Folder;

/// Puts eight shards into a folder, one of them in a `key=value` folder below it.
fn shards(folder: &Folder, name: &str, options: &str) {
    for file in 0..8 {
        let mut text = String::from("id,who,score\n");
        for row in 0..30 {
            writeln!(text, "r{file}-{row},PAT-{},{}.5", row % 7, file * row).unwrap();
        }
        folder.write("one.csv", text);
        let _ = std::fs::remove_dir_all(folder.path().join("one"));
        folder.run(&format!("convert one.csv --out one {options}")).ok();
        let (path, bytes) = folder.only_shards("one").into_iter().next().unwrap();
        let (_, ending) = path.split_once('.').unwrap();
        let below = if file == 5 { "day=3/" } else { "" };
        folder.write(&format!("{name}/{below}part-{file}.{ending}"), bytes);
    }
    folder.write(&format!("{name}/notes.txt"), "mine");
    std::fs::remove_file(folder.path().join("one.csv")).unwrap();
}

fn plan(folder: &Folder, options: &str) -> (String, u64) {
    let report = folder.run(&format!("plan adopt {options} --json")).ok().summary();
    assert!(report["plan"].is_string(), "{report}");
    (report["plan"].as_str().unwrap().to_owned(), report["tasks"].as_u64().unwrap())
}

/// All records, whatever the folders of their shards are called.
fn records(folder: &Folder, dataset: &str) -> Vec<String> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl")).ok();
    let record = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().retain(|name, _| name != "shard");
        value.to_string().replace("/tasks/", "/plain/")
    };
    exported.stdout.lines().map(record).collect()
}

/// The user's files in a folder.
fn files(folder: &Folder, name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for place in [name.to_owned(), format!("{name}/day=3")] {
        for entry in std::fs::read_dir(folder.path().join(&place)).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_file() {
                out.insert(entry.to_str().unwrap().to_owned(), std::fs::read(&entry).unwrap());
            }
        }
    }
    out
}

const KINDS: [(&str, &str); 3] =
    [("", "--id id --subject who"), ("--to tar", ""), ("--to tfrecord", "--id id --subject who")];

#[test]
fn tasks_in_any_order_give_what_adopt_gives() {
    for (made, ids) in KINDS {
        for in_place in [false, true] {
            let folder = Folder::new();
            let of = |dataset: &str| match in_place {
                true => (dataset.to_owned(), format!("{dataset} {ids}")),
                false => ("given".to_owned(), format!("given --out {dataset} {ids}")),
            };
            let ((raw, plain), (_, tasks)) = (of("plain"), of("tasks"));
            shards(&folder, &raw, made);
            if in_place {
                shards(&folder, "tasks", made);
            }
            let whole = folder.run(&format!("adopt {plain} --json")).ok().summary();
            let given = files(&folder, if in_place { "tasks" } else { "given" });
            let (plan, count) = plan(&folder, &format!("{tasks} --task-size 4KiB"));
            assert!(count > 2, "{count} tasks");
            for task in (0..count).rev().chain(0..count) {
                folder.run(&format!("run-task {plan} --task {task}")).ok();
            }
            let committed = folder.run(&format!("commit {plan} --json")).ok().summary();
            for field in [
                "format",
                "version",
                "in_place",
                "records_in",
                "records_out",
                "bytes_out",
                "shards_added",
                "files_copied",
                "files_passed_over",
                "records_with_id",
                "records_with_subject",
                "record_ids",
            ] {
                assert_eq!(committed[field], whole[field], "{made} {in_place}: {field}");
            }
            assert!(records(&folder, "tasks") == records(&folder, "plain"), "{made} {in_place}");
            assert!(folder.run(&format!("commit {plan}")).ok().stdout.contains("already committed as v1"));
            folder.run("verify tasks --read-data").ok();
            if !ids.is_empty() {
                assert_eq!(folder.run("manifest tasks --find r5-3 --json").ok().objects().len(), 2);
            }
            let again = folder.run(&format!("plan adopt {tasks}")).ok();
            assert!(again.stdout.starts_with("nothing to do: 8 files"), "{again:?}");
            folder.run("vacuum tasks --retain 0s --force").ok();
            folder.run("verify tasks --read-data").ok();
            assert!(files(&folder, if in_place { "tasks" } else { "given" }) == given, "{made} {in_place}");
        }
    }
}

#[test]
fn a_plan_that_is_given_up_leaves_the_files() {
    for in_place in [false, true] {
        let folder = Folder::new();
        shards(&folder, "given", "");
        folder.write("first.csv", "id,who,score\nfirst,PAT-3,1\n");
        let dataset = if in_place { "given" } else { "ds" };
        folder.run(&format!("convert first.csv --out {dataset} --id id --subject who")).ok();
        let before = files(&folder, "given");
        let options = if in_place { "given".to_owned() } else { "given --out ds".to_owned() };
        let (plan, count) = plan(&folder, &format!("{options} --id id --subject who --task-size 4KiB"));
        folder.run(&format!("run-task {plan} --task 0..{}", count - 1)).ok();
        folder.run(&format!("erase --subject PAT-3 {dataset} --all-versions")).ok();
        let refused = folder.run(&format!("commit {plan}"));
        assert!([2, 4].contains(&refused.code) && refused.stderr.contains("plan again"), "{refused:?}");
        assert!(files(&folder, "given") == before, "{in_place}");
        let verified = folder.run(&format!("verify {dataset} --read-data --json")).ok().summary();
        assert_eq!(verified["leftovers"].as_u64().unwrap_or(0), 0, "{in_place}: {verified}");
    }
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let folder = Folder::new();
    shards(&folder, "given", "--to tfrecord");
    let refused = folder.run("plan adopt given --out ds --redact-source-paths --private-ids pseudonyms");
    assert_eq!(refused.code, 2, "{refused:?}");
    let (absent, count) = plan(&folder, "given --out ds --id nothing --task-size 4KiB");
    folder.run(&format!("run-task {absent} --task 0..{}", count - 1)).ok();
    let refused = folder.run(&format!("commit {absent}"));
    assert!(refused.code == 6 && refused.stderr.contains("nothing"), "{refused:?}");
    let path = folder.path().join("given/part-2.tfrecord");
    let bytes = std::fs::read(&path).unwrap();
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let changed = folder.run(&format!(
        "run-task {} --task 0..{}",
        plan(&folder, "given --out ds --id id --task-size 4KiB").0,
        count - 1
    ));
    assert!(changed.code == 5 && changed.stderr.contains("part-2"), "{changed:?}");
    let (skipping, count) = plan(&folder, "given --out ds --id id --task-size 4KiB --on-error skip");
    folder.run(&format!("run-task {skipping} --task 0..{}", count - 1)).ok();
    let committed = folder.run(&format!("commit {skipping} --json"));
    assert_eq!(committed.code, 3, "{committed:?}");
    assert_eq!(
        (committed.summary()["shards_added"].as_u64(), committed.summary()["files_skipped"].as_u64()),
        (Some(7), Some(1))
    );
    folder.run("verify ds --read-data").ok();
    // A file that changes after it was planned.
    let (plan, _) = plan(&folder, "given --out other --id id --include part-1* --task-size 4KiB");
    folder.write("given/part-1.tfrecord", "other");
    let refused = folder.run(&format!("run-task {plan} --task 0"));
    assert!(refused.code == 6 && refused.stderr.contains("part-1"), "{refused:?}");
}

#[test]
fn an_outcome_names_files_of_its_plan_alone() {
    let folder = Folder::new();
    shards(&folder, "given", "");
    folder.write("given/other/secret.parquet", "theirs");
    let (plan, count) = plan(&folder, "given --include part-* --task-size 4KiB");
    folder.run(&format!("run-task {plan} --task 0..{}", count - 1)).ok();
    let outcome = support::outcome_path(&plan, 1);
    for wrong in ["../secret.parquet", "other/secret.parquet"] {
        support::rewrite_entry(&outcome, |outcome| outcome["shards"][0]["path"] = wrong.into());
        let refused = folder.run(&format!("commit {plan}"));
        assert_eq!(refused.code, 5, "{wrong}: {refused:?}");
    }
}
