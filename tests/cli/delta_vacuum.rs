//! `vacuum` of Delta tables: what is deleted, what stays, and what is refused.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::{
    delta_log::{actions, commit, commit_path, tree},
    support,
};

use std::{
    fs,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use support::Folder;

/// The protocol of Delta's example of deletion vectors: a place and the file that it means.
const VECTOR: (&str, &str) = ("ab^-aqEH.-t@S}K{vb[*k^", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin");
const OTHER_VECTOR: (&str, &str) =
    ("cd^-aqEH.-t@S}K{vb[*k^", "cd/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin");

/// A table of one small file per number, which no dataset is beside.
fn with_table(files: usize) -> Folder {
    let folder = Folder::new();
    for number in 0..files {
        folder.write(&format!("s{number}.csv"), format!("n,text\n{number},a\n{},b\n", number + 100));
        folder.run(&format!("convert s{number}.csv --to parquet --out table --index delta")).ok();
    }
    fs::remove_dir_all(folder.path().join("table/_shardify")).unwrap();
    folder
}

/// The path of the file that a version adds.
fn added(folder: &Folder, version: u64) -> String {
    actions(folder, version).last().unwrap()["add"]["path"].as_str().unwrap().to_owned()
}

fn remove(path: &str, days: u64) -> Value {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() - Duration::from_secs(days * 86_400);
    json!({"remove": {"path": path, "deletionTimestamp": u64::try_from(at.as_millis()).unwrap(), "dataChange": true}})
}

/// Makes files of the table old.
fn age(folder: &Folder, days: u64, path: &str) {
    let path = folder.path().join("table").join(path);
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(days * 86_400)).unwrap();
}

/// What a command deletes from the table, as paths below it.
fn deleted_by(folder: &Folder, arguments: &str) -> Vec<String> {
    let root = folder.path().join("table");
    let before = tree(&root);
    folder.run(arguments).ok();
    let after = tree(&root);
    before.difference(&after).map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect()
}

/// A table of four files; the first was removed 9 days ago, the second 2 days ago.
fn with_removed() -> Folder {
    let folder = with_table(4);
    for (version, days) in [(0, 9), (1, 2)] {
        let path = added(&folder, version);
        commit(&folder, 4 + version, &[remove(&path, days)]);
        age(&folder, 10, &path);
        age(&folder, days, &format!("_delta_log/{:020}.json", 4 + version));
    }
    for version in 0..4 {
        age(&folder, 10, &format!("_delta_log/{version:020}.json"));
    }
    folder
}

#[test]
fn what_was_removed_before_the_retention_is_deleted() {
    let folder = with_removed();
    let first = added(&folder, 0);
    let plan = folder.run("vacuum table --dry-run").ok();
    assert!(plan.stdout.contains("would delete 1 file") && plan.stdout.contains(&first), "{plan:?}");
    assert!(plan.stdout.contains("v4 and later"), "{plan:?}");
    assert!(folder.path().join("table").join(&first).exists());
    let ran = folder.run("vacuum table --json").ok();
    let summary = ran.summary();
    assert_eq!((&summary["files_deleted"], &summary["files_retained"]), (&1.into(), &1.into()));
    assert_eq!((&summary["version"], &summary["retained_from"]), (&7.into(), &4.into()));
    assert_eq!(ran.objects()[0]["path"], first.as_str());
    assert!(!folder.path().join("table").join(&first).exists());
    let (start, end) = (&actions(&folder, 6)[0]["commitInfo"], &actions(&folder, 7)[0]["commitInfo"]);
    assert_eq!((&start["operation"], &end["operation"]), (&"VACUUM START".into(), &"VACUUM END".into()));
    assert_eq!(start["operationParameters"]["specifiedRetentionMillis"], 604_800_000);
    assert_eq!(end["operationMetrics"]["numDeletedFiles"], 1);
    // Retained versions are read as before.
    assert_eq!(folder.run("convert table --out new --json").ok().summary()["records_out"], 4);
    assert_eq!(folder.run("convert table --read as-of=v4 --out old --json").ok().summary()["records_out"], 6);
    let again = folder.run("vacuum table").ok();
    assert!(again.stdout.contains("nothing to delete, still at v7"), "{again:?}");
}

#[test]
fn the_retention_of_the_table_holds() {
    let folder = with_removed();
    let less = folder.run("vacuum table --retain 1d");
    assert_eq!(less.code, 2, "{less:?}");
    assert!(less.stderr.contains("expected --retain of 7d or more") && less.stderr.contains("--force"), "{less:?}");
    assert_eq!(deleted_by(&folder, "vacuum table --retain 1d --force").len(), 2);
    let folder = with_removed();
    let mut metadata = actions(&folder, 0).into_iter().find(|action| action.get("metaData").is_some()).unwrap();
    metadata["metaData"]["configuration"]["delta.deletedFileRetentionDuration"] = "interval 30 days".into();
    commit(&folder, 6, std::slice::from_ref(&metadata));
    assert!(deleted_by(&folder, "vacuum table").is_empty());
    assert_eq!(folder.run("vacuum table --retain 7d").code, 2);
    metadata["metaData"]["configuration"]["delta.deletedFileRetentionDuration"] = "a while".into();
    commit(&folder, 7, &[metadata]);
    let unknown = folder.run("vacuum table");
    assert!(unknown.code == 2 && unknown.stderr.contains("a while"), "{unknown:?}");
}

#[test]
fn files_that_the_log_does_not_name_stay() {
    let folder = with_removed();
    for name in ["notes.txt", "orphan.parquet", "_secret/a", ".hidden", "_change_data/x", "k=1/orphan.parquet"] {
        folder.write(&format!("table/{name}"), "mine");
        age(&folder, 90, name);
    }
    assert_eq!(deleted_by(&folder, "vacuum table --retain 0 --force").len(), 2);
    let told = folder.run("vacuum table --retain 0 --force -v").ok();
    assert!(told.stdout.contains("4 files that the log does not name"), "{told:?}");
    assert!(told.stdout.contains("orphan.parquet") && !told.stdout.contains("_secret"), "{told:?}");
}

#[test]
fn a_log_cannot_name_what_is_not_a_data_file() {
    let folder = with_table(2);
    let names = ["_delta_log/00000000000000000000.json", "_shardify/x", ".hidden", "_secret/a"];
    for name in &names[1..] {
        folder.write(&format!("table/{name}"), "mine");
    }
    let removes: Vec<Value> = names.iter().map(|name| remove(name, 90)).collect();
    commit(&folder, 2, &removes);
    assert!(deleted_by(&folder, "vacuum table --retain 0 --force").is_empty());
    for path in ["../s0.csv", "/etc/passwd", "file:/etc/passwd", "s3://bucket/x", "a/%2e%2e/%2e%2e/s0.csv"] {
        commit(&folder, 2, &[remove(path, 90)]);
        let ran = folder.run("vacuum table --retain 0 --force");
        assert_eq!(ran.code, 6, "{path}: {ran:?}");
        assert!(ran.stderr.contains("expected a path below the table"), "{path}: {ran:?}");
    }
}

#[test]
fn vectors_and_changes_go_with_what_needs_them() {
    let folder = with_table(2);
    let mut add = actions(&folder, 1).pop().unwrap();
    let path = add["add"]["path"].as_str().unwrap().to_owned();
    let vector = |place: &str| {
        json!({"storageType": "u", "pathOrInlineDv": place, "offset": 1, "sizeInBytes": 34,
        "cardinality": 1})
    };
    let features = ["deletionVectors", "changeDataFeed"];
    let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": features}});
    let changed = |name: &str| json!({"cdc": {"path": name, "partitionValues": {}, "size": 4, "dataChange": false}});
    add["add"]["deletionVector"] = vector(VECTOR.0);
    commit(&folder, 2, &[protocol, remove(&path, 9), add.clone(), changed("_change_data/one.parquet")]);
    let mut without = remove(&path, 9);
    without["remove"]["deletionVector"] = vector(VECTOR.0);
    add["add"]["deletionVector"] = vector(OTHER_VECTOR.0);
    commit(&folder, 3, &[without, add, changed("_change_data/two.parquet")]);
    let files = [VECTOR.1, OTHER_VECTOR.1, "_change_data/one.parquet", "_change_data/two.parquet"];
    for (file, days) in files.into_iter().zip([10, 10, 10, 1]) {
        folder.write(&format!("table/{file}"), "vector");
        age(&folder, days, file);
    }
    // The newest version needs the second vector, and the files of rows.
    for version in 0..4 {
        age(&folder, 9, &format!("_delta_log/{version:020}.json"));
    }
    assert_eq!(deleted_by(&folder, "vacuum table"), ["_change_data/one.parquet", VECTOR.1]);
    assert_eq!(deleted_by(&folder, "vacuum table --retain 0 --force"), ["_change_data/two.parquet"]);
}

#[test]
fn clocks_that_are_wrong_delete_nothing_early() {
    // The writer's clock is behind; the time of its commit is that of the store.
    let folder = with_table(2);
    let path = added(&folder, 0);
    commit(&folder, 2, &[remove(&path, 90)]);
    age(&folder, 90, &path);
    assert!(deleted_by(&folder, "vacuum table").is_empty());
    // A file that is written anew is young, whatever the log says of its name.
    for version in 0..3 {
        age(&folder, 90, &format!("_delta_log/{version:020}.json"));
    }
    fs::File::options()
        .append(true)
        .open(folder.path().join("table").join(&path))
        .unwrap()
        .set_modified(SystemTime::now())
        .unwrap();
    assert!(deleted_by(&folder, "vacuum table").is_empty());
    age(&folder, 90, &path);
    assert_eq!(deleted_by(&folder, "vacuum table"), [path.as_str()]);
}

#[test]
fn links_are_not_followed_out_of_the_table() {
    let folder = with_table(2);
    let path = added(&folder, 0);
    folder.write("outside/part.parquet", "mine");
    folder.write("outside/file.parquet", "mine");
    std::os::unix::fs::symlink("../outside", folder.path().join("table/k=1")).unwrap();
    std::os::unix::fs::symlink("../outside/file.parquet", folder.path().join("table/link.parquet")).unwrap();
    commit(&folder, 2, &[remove(&path, 90), remove("k=1/part.parquet", 90), remove("link.parquet", 90)]);
    folder.run("vacuum table --retain 0 --force").ok();
    assert!(!folder.path().join("table").join(&path).exists());
    for name in ["part", "file"] {
        assert_eq!(fs::read_to_string(folder.path().join(format!("outside/{name}.parquet"))).unwrap(), "mine");
    }
}

#[test]
fn a_file_that_is_added_again_stays() {
    let folder = with_removed();
    let first = actions(&folder, 0).pop().unwrap();
    commit(&folder, 6, &[first]);
    assert!(deleted_by(&folder, "vacuum table").is_empty());
}

#[test]
fn features_that_decide_about_files_are_refused_by_name() {
    let table = |features: &[&str]| {
        let folder = with_removed();
        let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}});
        commit(&folder, 6, &[protocol]);
        folder
    };
    for feature in ["icebergCompatV2", "somethingNew"] {
        let folder = table(&["appendOnly", feature]);
        let before = tree(folder.path());
        let ran = folder.run("vacuum table");
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(feature) && ran.stderr.contains("VACUUM"), "{ran:?}");
        assert_eq!(tree(folder.path()), before);
    }
    let folder = table(&["clustering", "domainMetadata", "rowTracking", "vacuumProtocolCheck"]);
    assert_eq!(deleted_by(&folder, "vacuum table").len(), 1);
}

#[test]
fn damaged_logs_are_errors_and_nothing_is_deleted() {
    let damaged = |damage: &dyn Fn(&Folder), texts: &[&str]| {
        let folder = with_removed();
        damage(&folder);
        let before = tree(&folder.path().join("table"));
        let ran = folder.run("vacuum table --retain 0 --force");
        assert_eq!(ran.code, 6, "{ran:?}");
        texts.iter().for_each(|text| assert!(ran.stderr.contains(text), "{text}: {ran:?}"));
        assert_eq!(tree(&folder.path().join("table")), before);
    };
    damaged(&|folder| fs::remove_file(folder.path().join(commit_path(2))).unwrap(), &["version 2", "00002.json"]);
    damaged(&|folder| _ = folder.write(&commit_path(4), "{\"remove\":{\"pa"), &["00004.json, line 1"]);
}
