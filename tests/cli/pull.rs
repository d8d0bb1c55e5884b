//! `pull`: the copy is a dataset, nothing is fetched twice, damage is found, and nobody who was erased stays in it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage files")]

use crate::support;

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use support::Folder;

fn csv(name: &str, rows: std::ops::Range<usize>) -> String {
    let rows: String = rows.map(|i| format!("{name}{i},PAT-{},text {i}\n", i % 5)).collect();
    format!("id,who,note\n{rows}")
}

/// Three sources of 30 rows, each converted by a run of its own.
fn dataset(options: &str) -> Folder {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(&format!("{name}.csv"), csv(name, 0..30));
        folder.run(&format!("convert {name}.csv --id id --subject who {options}")).ok();
    }
    folder
}

fn pull(folder: &Folder, arguments: &str) -> Value {
    folder.run(&format!("pull shards {arguments} --json")).ok().summary()
}

/// Where the records are, without versions, which a copy counts by itself.
fn positions(folder: &Folder, dataset: &str) -> Vec<Value> {
    let mut rows = folder.run(&format!("manifest {dataset} --export jsonl")).ok().objects();
    for row in &mut rows {
        ["version", "first_version", "shard_version"]
            .iter()
            .for_each(|name| drop(row.as_object_mut().unwrap().remove(*name)));
    }
    rows
}

/// All files below a folder with their bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let name = entry.strip_prefix(folder).unwrap().display().to_string();
                out.insert(name, fs::read(entry).unwrap());
            }
        }
    }
    out
}

#[test]
fn the_copy_is_a_dataset_and_later_pulls_fetch_what_is_new() {
    for to in ["parquet", support::INDEXED_TAR, "tfrecord --codec gzip", "tar --codec zstd"] {
        let folder = dataset(&format!("--to {to}"));
        let first = pull(&folder, "copy");
        assert_eq!(
            (&first["version"], &first["upstream_version"], &first["records"]),
            (&1.into(), &3.into(), &90.into())
        );
        assert_eq!((&first["files_kept"], &first["files_fetched"]), (&0.into(), &first["files"]), "{to}");
        folder.run("verify copy --read-data").ok();
        assert_eq!(positions(&folder, "copy"), positions(&folder, "shards"), "{to}");
        assert_eq!(folder.only_shards("copy"), folder.only_shards("shards"), "{to}");
        let hits = folder.run("manifest copy --find PAT-3 --json").ok().summary();
        assert_eq!(hits["hits"], 18, "{to}: {hits}");
        assert_eq!(pull(&folder, "copy")["unchanged"], true, "{to}");

        folder.write("d.csv", csv("d", 0..30));
        folder.run("convert d.csv").ok();
        let second = pull(&folder, "copy");
        // Both segments of the id index have become others.
        let kept = first["files"].as_u64().unwrap() - 2;
        assert_eq!((&second["version"], &second["files_kept"]), (&2.into(), &kept.into()), "{to}: {second}");
        let compacted = folder.run("compact --min-inputs 2 --json").ok().summary();
        assert_eq!(compacted["shards_after"], 1, "{to}");
        pull(&folder, "copy");
        assert_eq!(positions(&folder, "copy"), positions(&folder, "shards"), "{to}");
        for at in ["v1", "v2", "v3"] {
            folder.run(&format!("verify copy --read-data --at {at}")).ok();
        }
        let found = folder.run("manifest copy --find d7 --json").ok().objects();
        assert_eq!(found[0]["record_id"], "d7", "{to}: {found:?}");
        let history = folder.run("manifest copy --history --json").ok().objects();
        assert_eq!(history.iter().filter(|entry| entry["operation"] == "pull").count(), 3, "{to}");
        assert_eq!(history[0]["arguments"]["upstream_version"].as_str().unwrap().len(), 2, "{history:?}");
    }
}

#[test]
fn an_older_version_a_tag_and_a_sorted_dataset_can_be_pulled() {
    let folder = dataset("");
    folder.run("manifest --tag train --at v2").ok();
    folder.run("compact --sort-by note").ok();
    let old = pull(&folder, "copy --at train");
    assert_eq!((&old["upstream_version"], &old["records"]), (&2.into(), &60.into()));
    assert_eq!(folder.run("manifest copy --at train --list --json").ok().summary()["shards"], 2);
    let new = pull(&folder, "copy");
    assert_eq!(new["records"], 90);
    folder.run("verify copy --read-data").ok();
    assert_eq!(positions(&folder, "copy"), positions(&folder, "shards"));
    assert_eq!(folder.run("manifest copy --find b4 --json").ok().summary()["hits"], 1);
    pull(&folder, "copy --at v1");
    folder.run("verify copy --read-data").ok();
    assert_eq!(folder.run("manifest copy --find b4").code, 1);
    folder.run("verify copy --read-data --at v2").ok();
    // The copy is vacuumed like any dataset, and pulled into afterwards.
    folder.run("manifest copy --untag train").ok();
    folder.run("vacuum copy --retain 0 --force").ok();
    folder.run("verify copy --read-data").ok();
    assert_eq!(folder.only_shards("copy").len(), 1);
    pull(&folder, "copy");
    folder.run("verify copy --read-data").ok();
}

#[test]
fn a_copy_of_a_copy_can_be_pulled() {
    let folder = dataset("");
    pull(&folder, "copy");
    folder.run("pull copy again").ok();
    folder.run("verify again --read-data").ok();
    assert_eq!(positions(&folder, "again"), positions(&folder, "shards"));
}

#[test]
fn erased_records_leave_the_copy_with_the_next_pull() {
    let folder = dataset("--codec none --to tar");
    pull(&folder, "copy");
    folder.run("manifest copy --tag mine").ok();
    // A pull that was killed has left files of records that are erased meanwhile.
    folder.write("d.csv", csv("secret-d", 0..30));
    folder.run("convert d.csv").ok();
    folder.run("compact --min-inputs 2").ok();
    let left: Vec<_> = folder.only_shards("shards").into_iter().map(|(path, _)| path).collect();
    let newest = left.last().unwrap().clone();
    let marker = folder.path().join("copy/_shardify/pull.json");
    for path in &left {
        fs::create_dir_all(folder.path().join("copy").join(path).parent().unwrap()).unwrap();
        fs::copy(folder.path().join("shards").join(path), folder.path().join("copy").join(path)).unwrap();
    }
    support::rewrite_entry(&marker, |pending| {
        pending["files"].as_array_mut().unwrap().extend(left.iter().map(|path| path.as_str().into()));
    });
    folder.run("erase shards --subject PAT-3 --all-versions --reason 1").ok();
    assert!(folder.path().join("copy").join(newest).exists());
    let ran = folder.run("pull shards copy").ok();
    assert!(ran.stdout.contains("1 erasure since the last pull"), "{}", ran.stdout);
    folder.run("verify copy --read-data").ok();
    for (path, bytes) in files(&folder.path().join("copy")) {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("PAT-3"), "{path}");
    }
    assert_eq!(folder.run("manifest copy --find PAT-3").code, 1);
    assert_eq!(folder.run("manifest copy --at v1").code, 2, "older versions of the copy had the records");
    let erased = folder.run("manifest copy --find PAT-3 --json").objects();
    assert!(erased.iter().any(|object| object["type"] == "erased"), "{erased:?}");
    assert_eq!(pull(&folder, "copy")["unchanged"], true);
    // Who was erased from the upstream dataset is blocked in the copy, too.
    folder.write("e.csv", csv("e", 0..5));
    let converted = folder.run("convert e.csv --out copy --json").ok().summary();
    assert_eq!(converted["records_erased"], 1, "{converted}");
    // From then on it is a dataset of its own.
    assert_eq!(folder.run("pull shards copy").code, 2);
}

#[test]
fn an_older_version_has_what_was_erased_from_the_newest_alone() {
    let folder = dataset("");
    folder.run("erase shards --subject PAT-1").ok();
    pull(&folder, "copy --at v3");
    folder.run("verify copy --read-data").ok();
    assert_eq!(folder.run("manifest copy --find PAT-1 --json").ok().summary()["hits"], 18);
    pull(&folder, "copy");
    folder.run("verify copy --read-data").ok();
    assert_eq!(folder.run("manifest copy --find PAT-1").code, 1);
    folder.run("erase shards --subject PAT-2").ok();
    let pruned = pull(&folder, "copy");
    assert_eq!((&pruned["erasures"], &pruned["pruned"]), (&1.into(), &true.into()));
    assert_eq!(folder.run("manifest copy --at v1").code, 2);
    folder.run("verify copy --read-data").ok();
    assert_eq!(pull(&folder, "copy --prune")["unchanged"], true, "there is nothing older");
}

#[test]
fn other_folders_are_refused() {
    let folder = dataset("");
    folder.write("full/notes.txt", "mine");
    assert_eq!(folder.run("pull shards full").code, 2);
    folder.run("convert a.csv --out other").ok();
    assert_eq!(folder.run("pull shards other").code, 2);
    pull(&folder, "copy");
    assert_eq!(folder.run("pull other copy").code, 2);
    assert_eq!(folder.run("pull shards copy --data-only").code, 2);
    assert_eq!(folder.run("pull shards shards/inside").code, 2);
    assert_eq!(folder.run("pull shards s3://bucket/copy").code, 2);
    assert_eq!(folder.run("pull nothing copy2").code, 2);
    assert!(!folder.path().join("copy2").exists());
    assert_eq!(fs::read_dir(folder.path().join("full")).unwrap().count(), 1);
}

#[test]
fn data_alone_can_be_pulled() {
    let folder = dataset("--to tar --index dali --codec none");
    let first = pull(&folder, "data --data-only");
    assert_eq!((&first["version"], &first["shards"], &first["files"]), (&Value::Null, &3.into(), &9.into()), "{first}");
    assert_eq!(folder.shards("data"), folder.shards("shards"));
    folder.run("compact --min-inputs 2").ok();
    let second = pull(&folder, "data --data-only");
    assert_eq!((&second["files_fetched"], &second["files_deleted"]), (&3.into(), &9.into()), "{second}");
    assert_eq!(folder.only_shards("data").len(), 1);
    assert_eq!(pull(&folder, "data --data-only")["unchanged"], true);
}

#[test]
fn every_changed_byte_upstream_is_found_and_named() {
    let folder = dataset("--to tar --codec none --index dali");
    folder.run("compact --min-inputs 2").ok();
    let root = folder.path().join("shards");
    let copied = |path: &str| !path.starts_with("_shardify/") || path.contains("/sidecar/") || path.contains("/index/");
    let live: Vec<String> = folder
        .run("manifest --list --json")
        .ok()
        .objects()
        .iter()
        .filter_map(|o| o["path"].as_str().map(str::to_owned))
        .collect();
    let tag = live[0].split('/').next().unwrap().to_owned();
    let all: Vec<String> = files(&root).into_keys().filter(|path| copied(path)).collect();
    let log = files(&root.join("_shardify/log"));
    let newest = String::from_utf8(log.into_values().next().unwrap()).unwrap();
    let is_named = |path: &str| path.contains("/index/") && newest.contains(path.rsplit_once('/').unwrap().0);
    let named: Vec<&String> = all.iter().filter(|path| path.contains(&tag) || is_named(path)).collect();
    assert!(named.len() > 5, "{all:?}");
    for (number, path) in named.iter().enumerate() {
        let file = root.join(path);
        let sound = fs::read(&file).unwrap();
        for at in [0, sound.len() / 2, sound.len() - 1] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (number % 8);
            fs::write(&file, bytes).unwrap();
            let ran = folder.run(&format!("pull shards copy{number}-{at}"));
            assert_eq!(ran.code, 5, "{path} byte {at}: {ran:?}");
            assert!(ran.stderr.contains(path.as_str()), "{path} byte {at}: {}", ran.stderr);
            assert!(!folder.path().join(format!("copy{number}-{at}/_shardify/log")).exists(), "{path}");
        }
        fs::write(&file, &sound[..sound.len() - 1]).unwrap();
        assert_eq!(folder.run(&format!("pull shards short{number}")).code, 5, "{path}");
        fs::write(&file, &sound).unwrap();
    }
    // What a failed pull has fetched is kept; which files that are depends on which of several threads finds the damage
    // first.
    let mut kept = 0;
    for number in 0..named.len() {
        kept +=
            folder.run(&format!("pull shards copy{number}-0 --json")).ok().summary()["files_kept"].as_u64().unwrap();
        folder.run(&format!("verify copy{number}-0 --read-data")).ok();
    }
    assert!(kept > 0);
}

#[test]
fn a_file_that_was_cut_or_lost_in_the_copy_is_fetched_again() {
    let folder = dataset("");
    pull(&folder, "copy");
    let (path, bytes) = folder.only_shards("copy").pop().unwrap();
    let file = folder.path().join("copy").join(path);
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(pull(&folder, "copy")["files_fetched"], 1);
    folder.run("verify copy --read-data").ok();
    fs::remove_file(&file).unwrap();
    assert_eq!(pull(&folder, "copy")["files_fetched"], 1);
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

#[test]
fn private_datasets_are_pulled_without_their_key() {
    let folder = Folder::new();
    folder.write("key", [7; 32]);
    folder.write("a.csv", csv("a", 0..30));
    folder.run("convert a.csv --id id --subject who --id-mode sealed --id-key key").ok();
    pull(&folder, "copy");
    folder.run("verify copy --read-data --id-key key").ok();
    assert_eq!(folder.run("manifest copy --find PAT-3 --id-key key --json").ok().summary()["hits"], 6);
}

/// A dataset that is divided by patients, and a folder that it can be pulled into.
fn divided(options: &str) -> Folder {
    let folder = Folder::new();
    folder.write("key", [7; 32]);
    for name in ["a", "b"] {
        let rows: String = (0..400).map(|i| format!("{name}{i},PAT-{},text {i}\n", i % 60)).collect();
        folder.write(&format!("{name}.csv"), format!("id,who,note\n{rows}"));
        let convert = "--id id --subject who --split train=0.5,val=0.25,test=0.25 --target-shard 4KiB";
        folder.run(&format!("convert {name}.csv {convert} {options}")).ok();
    }
    folder
}

/// Rows of the export whose shards are of some splits.
fn on_splits(rows: &[Value], splits: &[&str]) -> Vec<Value> {
    let is_on =
        |row: &&Value| splits.iter().any(|split| row["shard"].as_str().unwrap().contains(&format!("split={split}/")));
    rows.iter().filter(is_on).cloned().collect()
}

/// Every form: the copy of a part has exactly the shards of the named splits, under the same record numbers, and finds
/// their ids alone.
#[test]
fn parts_of_a_divided_dataset_can_be_pulled() {
    for to in ["parquet", support::INDEXED_TAR, "tfrecord", "tar --codec zstd"] {
        let folder = divided(&format!("--to {to}"));
        let all = positions(&folder, "shards");
        let first = pull(&folder, "copy --split val,test");
        assert_eq!(first["split"], serde_json::json!(["test", "val"]));
        let part = on_splits(&all, &["val", "test"]);
        assert!(!part.is_empty() && part.len() < all.len());
        assert_eq!(positions(&folder, "copy"), part, "{to}");
        assert_eq!(first["records"], part.len());
        folder.run("verify copy --read-data").ok();
        for (number, row) in all.iter().enumerate() {
            let id = row["record_id"].as_str().unwrap();
            let expected = if part.contains(row) { 0 } else { 1 };
            if number % 37 == 0 {
                let found = folder.run(&format!("manifest copy --find {id}"));
                assert_eq!(found.code, expected, "{to}: {row}: {found:?}");
            }
        }
        assert_eq!(pull(&folder, "copy --split test,val")["unchanged"], true);
        // Another part: its own version; older ones stay.
        let other = pull(&folder, "copy --split train,val");
        assert!(other["files_kept"].as_u64().unwrap() > 0 && other["version"] == 2, "{other}");
        assert_eq!(positions(&folder, "copy"), on_splits(&all, &["train", "val"]));
        folder.run("verify copy --read-data").ok();
        folder.run("verify copy --at v1 --read-data").ok();
        let whole = pull(&folder, "copy");
        assert_eq!((&whole["files_fetched"], &whole["version"]), (&0.into(), &3.into()), "{whole}");
        assert_eq!(positions(&folder, "copy"), all);
        folder.run("verify copy --read-data").ok();
        let pruned = pull(&folder, "copy --split train --prune");
        assert!(pruned["files_deleted"].as_u64().unwrap() > 0);
        assert_eq!(positions(&folder, "copy"), on_splits(&all, &["train"]));
        folder.run("verify copy --read-data").ok();
        // A copy of a part is pulled as the part that it is.
        folder.run("pull copy again").ok();
        assert_eq!(positions(&folder, "again"), on_splits(&all, &["train"]));
        let refused = folder.run("pull copy again --split val");
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains("expected one of train, found `val`"), "{}", refused.stderr);
        folder.run("pull copy again --split train").ok();
    }
}

/// Records of a part are found by their origins, those of the other parts are not.
#[test]
fn a_part_finds_its_records_by_their_origins() {
    let folder = Folder::new();
    folder.write("a.csv", csv("a", 0..300));
    folder.run("convert a.csv --split train=0.5,val=0.25,test=0.25 --split-by note --target-shard 2KiB").ok();
    for part in ["train", "test", "val,train"] {
        let copy = part.replace(',', "-");
        pull(&folder, &format!("{copy} --split {part}"));
        folder.run(&format!("verify {copy} --read-data")).ok();
        let all = positions(&folder, "shards");
        let kept = on_splits(&all, &part.split(',').collect::<Vec<_>>());
        for row in all.iter().step_by(11) {
            let origin = format!("{}#{}", row["source"].as_str().unwrap(), row["row"]);
            let found = folder.run(&format!("manifest {copy} --find {origin}"));
            assert_eq!(found.code, i32::from(!kept.contains(row)), "{origin}: {found:?}");
        }
    }
}

/// Sorting, erasure and more runs upstream: the part follows.
#[test]
fn a_part_follows_its_dataset() {
    let folder = divided("");
    folder.run("compact shards --sort-by note").ok();
    pull(&folder, "copy --split val");
    let follows = |more: &str| {
        pull(&folder, &format!("copy --split val {more}"));
        let upstream = positions(&folder, &format!("shards {}", more.trim_end_matches("--prune")));
        assert!(positions(&folder, "copy") == on_splits(&upstream, &["val"]), "{more}");
        folder.run("verify copy --read-data").ok();
    };
    follows("");
    let erased = positions(&folder, "copy")[0]["subject_id"].as_str().unwrap().to_owned();
    folder.run(&format!("erase shards {erased} --all-versions")).ok();
    follows("");
    assert_eq!(folder.run(&format!("manifest copy --find {erased}")).code, 1);
    folder.run("compact shards --target-shard 1MiB").ok();
    follows("");
    follows("--at v2 --prune");
    // The copy becomes a dataset of its own: it divides what is added as before.
    folder.write("c.csv", csv("c", 0..30).replace("PAT-", "NEW-"));
    folder.run("convert c.csv --out copy").ok();
    folder.run("verify copy --read-data").ok();
    folder.run("pull copy again").ok();
    assert_eq!(positions(&folder, "again"), positions(&folder, "copy"));
}

#[test]
fn parts_of_private_datasets_are_pulled_without_their_key() {
    let folder = divided("--id-mode sealed --id-key key");
    pull(&folder, "copy --split val");
    folder.run("verify copy --read-data --id-key key").ok();
    let rows = folder.run("manifest shards --export jsonl --id-key key").ok().objects();
    let hits = |dataset: &str, id: &str| folder.run(&format!("manifest {dataset} --find {id} --id-key key")).code;
    for row in rows.iter().step_by(31) {
        let id = row["record_id"].as_str().unwrap();
        let is_there = row["shard"].as_str().unwrap().contains("split=val/");
        assert_eq!((hits("shards", id), hits("copy", id)), (0, i32::from(!is_there)));
    }
}

#[test]
fn parts_that_cannot_be_pulled_are_refused() {
    let folder = divided("");
    let refused = |arguments: &str, part: &str| {
        let ran = folder.run(&format!("pull {arguments}"));
        assert!(ran.code == 2 && ran.stderr.contains(part), "{ran:?}");
    };
    refused("shards copy --split validation", "expected one of train, val, test, found `validation`");
    folder.run("convert a.csv --out plain").ok();
    refused("plain copy --split train", "expected a dataset made with --split");
    folder.run("pull shards data --split test --data-only").ok();
    let names = files(&folder.path().join("data"));
    let shards: Vec<&String> = names.keys().filter(|name| !name.starts_with("_shardify/")).collect();
    assert!(!shards.is_empty() && shards.iter().all(|name| name.contains("split=test/")), "{shards:?}");
    let other = pull(&folder, "data --split val --data-only");
    assert_eq!(other["files_deleted"], shards.len());
}

#[test]
fn shards_of_older_versions_that_stay_are_told() {
    let folder = dataset("");
    assert_eq!(pull(&folder, "copy")["files_older"], 0);
    let compacted = folder.run("compact --min-inputs 2").ok().stdout;
    assert!(
        compacted.contains("replaced   3 shards kept until `vacuum`: read what `manifest --list` names"),
        "{compacted}"
    );
    let said = folder.run("pull shards copy").ok().stdout;
    assert!(said.contains("older      3 files of older versions stay; --prune deletes them"), "{said}");
    assert_eq!(folder.only_shards("copy").len(), 4);
    assert_eq!(pull(&folder, "copy --prune")["files_older"], 0);
    assert_eq!(folder.only_shards("copy").len(), 1);
}
