//! `erase`: records leave the newest version, or all of them, nothing of them is left, and they do not come back.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and look into every file")]

use crate::support;

use std::path::Path;

use serde_json::Value;
use support::Folder;

/// Three conversions of 60 rows about 9 subjects; what is unique of each row is its note.
fn dataset(to: &str) -> Folder {
    dataset_with(to, "")
}

fn dataset_with(to: &str, options: &str) -> Folder {
    let folder = Folder::new();
    for k in 0..3 {
        let rows: String = (0..60).map(|i| format!("r{k}-{i},PAT-{},note<{k}:{i}>\n", i % 9)).collect();
        folder.write(&format!("{k}.csv"), format!("id,who,note\n{rows}"));
        folder.run(&format!("convert {k}.csv --id id --subject who --to {to} --codec none {options}")).ok();
    }
    folder
}

/// Files of the dataset that hold a text, in Parquet decompressed by shardify itself.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, visit) } else { visit(&path) }
        }
    }
    let mut found = Vec::new();
    walk(&folder.join("shards"), &mut |path| {
        let bytes = std::fs::read(path).unwrap();
        let mut texts = vec![bytes.clone()];
        if bytes.starts_with(b"PAR1") {
            let reader =
                parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes));
            let batches =
                reader.unwrap().build().unwrap().map(|batch| format!("{:?}", batch.unwrap().columns()).into_bytes());
            texts.extend(batches);
        }
        let has = |bytes: &Vec<u8>| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        if texts.iter().any(has) {
            found.push(path.display().to_string());
        }
    });
    found
}

fn of_type(objects: &[Value], kind: &str) -> Vec<Value> {
    objects.iter().filter(|o| o["type"] == kind).cloned().collect()
}

#[test]
fn a_subject_leaves_all_versions_and_everybody_else_stays() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = dataset(to);
        folder.run("compact --min-inputs 2").ok();
        assert!(!holding(folder.path(), "note<1:4>").is_empty(), "{to}: the search finds what is there");
        let before = folder.run("manifest --find PAT-3 r1-5 --at v3 --json").ok().objects();
        let plan = folder.run("erase shards PAT-4 --all-versions --dry-run --json").ok();
        assert_eq!((&plan.summary()["records_erased"], &plan.summary()["version"]), (&21.into(), &4.into()));
        let done =
            folder.run("erase shards PAT-4 --all-versions --reason request-17 --receipt receipt.json --json").ok();
        let summary = done.summary();
        assert_eq!((&summary["records_erased"], &summary["version"]), (&21.into(), &5.into()), "{to}");
        assert_eq!((&summary["shards_rewritten"], &summary["records_in"]), (&4.into(), &180.into()), "{to}");
        assert_eq!(summary["objects_unreferenced"], 0, "{to}: no run was cut short");
        for gone in ["note<0:4>", "note<1:13>", "note<2:58>", "PAT-4", "r1-13"] {
            assert_eq!(holding(folder.path(), gone), [""; 0], "{to} {gone}");
        }
        for version in ["v1", "v2", "v3", "v4", "v5"] {
            folder.run(&format!("verify --read-data --at {version}")).ok();
        }
        // Others are where they were in every version, but for the shards that were written anew.
        let after = folder.run("manifest --find PAT-3 r1-5 --at v3 --json").ok().objects();
        let names = |objects: &[Value]| -> Vec<(Value, Value, Value)> {
            let hit = |hit: &Value| (hit["record_id"].clone(), hit["versions"].clone(), hit["hash"].clone());
            of_type(objects, "hit").iter().map(hit).collect()
        };
        assert_eq!(names(&before), names(&after), "{to}");
        assert_eq!(folder.run("manifest --export csv --at v2").ok().stdout.lines().count(), 1 + 120 - 14, "{to}");
        let missing = folder.run("manifest --find PAT-4 r1-13");
        assert_eq!(missing.code, 1);
        assert!(missing.stderr.contains("`PAT-4` was erased in v5 (21 records; reason: request-17)"), "{missing:?}");
        assert!(missing.stderr.contains("`r1-13` was erased in v5"), "{missing:?}");
        let erased = of_type(&folder.run("manifest --find PAT-4 --at v2 --json").objects(), "erased");
        assert_eq!(erased[0]["state"], "erased");
        let receipt: Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("receipt.json")).unwrap()).unwrap();
        assert_eq!((&receipt["records_erased"], &receipt["version_after"]), (&21.into(), &5.into()));
        assert_eq!(receipt["shards"].as_array().unwrap().len(), 4);
        // Once more: there is nothing to do.
        let again = folder.run("erase shards PAT-4 --all-versions --json").ok();
        assert_eq!(again.summary()["version"], 5);
        assert_eq!(folder.run("erase shards nobody").code, 1);
    }
}

#[test]
fn older_versions_keep_what_only_the_newest_loses_until_they_are_vacuumed() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = dataset(to);
        let done = folder.run("erase shards r0-7 PAT-1").ok();
        assert!(done.stdout.contains("older      v1 to v3 keep them until vacuumed"), "{done:?}");
        assert_eq!(folder.run("manifest --find r0-7").code, 1);
        folder.run("manifest --find r0-7 PAT-1 --at v3").ok();
        (1..5).for_each(|v| drop(folder.run(&format!("verify --read-data --at v{v}")).ok()));
        assert!(!holding(folder.path(), "note<0:7>").is_empty());
        folder.run("vacuum --retain 0 --force").ok();
        for gone in ["note<0:7>", "note<2:10>", "r0-7", "PAT-1\""] {
            assert_eq!(holding(folder.path(), gone), [""; 0], "{to} {gone}");
        }
        folder.run("verify --read-data").ok();
        let hit = folder.run("manifest --find r0-8 --json").ok().objects().remove(0);
        assert_eq!(hit["versions"]["from"], 1);
    }
}

#[test]
fn what_the_newest_version_lost_before_can_be_erased_from_the_others() {
    let folder = dataset("tar");
    folder.run("erase shards PAT-2").ok();
    folder.run("compact --min-inputs 2").ok();
    let done = folder.run("erase shards PAT-2 --all-versions --json").ok().summary();
    assert_eq!((&done["records_erased"], &done["version"]), (&21.into(), &6.into()));
    assert_eq!(holding(folder.path(), "PAT-2"), [""; 0]);
    // Another erasure on top, from the newest version alone, then from all.
    folder.run("erase shards PAT-3").ok();
    folder.run("manifest --find PAT-3 --at v2").ok();
    (1..8).for_each(|v| drop(folder.run(&format!("verify --read-data --at v{v}")).ok()));
    folder.run("erase shards PAT-3 PAT-5 --all-versions").ok();
    (1..9).for_each(|v| drop(folder.run(&format!("verify --read-data --at v{v}")).ok()));
    assert_eq!(holding(folder.path(), "PAT-5"), [""; 0]);
    folder.run("vacuum --retain 0 --force").ok();
    folder.run("verify --read-data").ok();
    assert_eq!(folder.run("manifest --export csv").ok().stdout.lines().count(), 1 + 180 - 3 * 21);
}

#[test]
fn who_was_erased_does_not_come_back() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = dataset(to);
        folder.run("erase shards PAT-4 r2-0 --all-versions").ok();
        let again = folder.run("convert 0.csv 1.csv 2.csv").ok();
        assert!(again.stdout.starts_with("nothing to do: 3 sources"), "{again:?}");
        // The same rows in another file.
        folder.write("copy.csv", std::fs::read(folder.path().join("2.csv")).unwrap());
        let copy = folder.run("convert copy.csv --on-error quarantine --json").ok().summary();
        assert_eq!((&copy["records_in"], &copy["records_out"]), (&60.into(), &52.into()), "{to}");
        assert_eq!((&copy["records_rejected"], &copy["records_erased"]), (&8.into(), &8.into()), "{to}");
        for gone in ["note<2:4>", "note<2:0>", "PAT-4", "r2-0\""] {
            assert_eq!(holding(folder.path(), gone), [""; 0], "{to} {gone}");
        }
        folder.run("verify --read-data").ok();
    }
}

#[test]
fn origins_are_erased_and_found_around_the_hole() {
    let folder = Folder::new();
    let rows: String = (0..100).map(|i| format!("note<{i}>,{i}\n")).collect();
    folder.write("a.csv", format!("note,x\n{rows}"));
    folder.run("convert a.csv").ok();
    folder.run_with(&["erase", "shards", "a.csv#10", "a.csv#11", "a.csv#100", "--all-versions"]).ok();
    assert_eq!(holding(folder.path(), "note<9>"), [""; 0]);
    for row in [1, 9, 12, 50, 99] {
        let hit = folder.run_with(&["manifest", "--find", &format!("a.csv#{row}"), "--json"]).ok().objects().remove(0);
        assert_eq!(hit["origin"]["row"], row);
    }
    assert_eq!(folder.run_with(&["manifest", "--find", "a.csv#11"]).code, 1);
    folder.write("a.csv", format!("note,x\n{rows}note<100>,1\n"));
    let appended = folder.run("convert a.csv --on-changed append --json").ok().summary();
    assert_eq!((&appended["records_out"], &appended["records_erased"]), (&98.into(), &3.into()));
}

#[test]
fn files_of_an_erased_sample_are_forgotten() {
    for (to, indexes) in [("tar", support::TAR_INDEXES), ("tfrecord", "dali,tfindex"), ("parquet", "none")] {
        let folder = Folder::new();
        for i in 0..20 {
            folder.write(&format!("in/p{i:02}/scan.jpg"), format!("picture<{i:02}>"));
            folder.write(&format!("in/p{i:02}/scan.json"), format!("{{\"note\":\"text<{i:02}>\"}}"));
        }
        let convert = format!("convert in --to {to} --index {indexes} --target-shard 8KiB");
        folder.run(&convert).ok();
        let done = folder.run("erase shards p07/scan --all-versions --json").ok().summary();
        assert_eq!((&done["records_erased"], &done["sources_erased"]), (&1.into(), &2.into()), "{to}");
        for gone in ["picture<07>", "text<07>", "p07"] {
            assert_eq!(holding(folder.path(), gone), [""; 0], "{to} {gone}");
        }
        folder.run("verify --read-data").ok();
        let again = folder.run(&format!("{convert} --json")).ok().summary();
        assert_eq!((&again["version"], &again["sources_erased"]), (&2.into(), &2.into()), "{to}");
        folder.run("manifest --find p08/scan").ok();
        // The same files in another place.
        std::fs::rename(folder.path().join("in"), folder.path().join("moved")).unwrap();
        let moved = folder.run(&format!("convert moved --to {to} --json"));
        assert!(moved.code == 0 || to == "tar", "{moved:?}");
        assert_eq!(holding(folder.path(), "p07"), [""; 0], "{to}");
    }
}

#[test]
fn versions_that_only_a_name_keeps_are_cleaned_too() {
    for (to, sorted) in [("parquet", false), ("parquet", true), ("tar", false), ("tfrecord", false)] {
        let case = format!("{to} {sorted}");
        let folder = dataset(to);
        if sorted {
            folder.run("compact --sort-by note --min-inputs 2").ok();
        }
        let named = if sorted { 4 } else { 3 };
        folder.run(&format!("manifest --tag train-1 --at v{named}")).ok();
        // All shards of the named version are replaced, and its time is vacuumed.
        folder.run("erase shards PAT-8 PAT-7 PAT-6").ok();
        folder.run(if sorted { "compact --zorder id,note" } else { "compact --min-inputs 2" }).ok();
        folder.run("vacuum --retain 0 --force").ok();
        assert_eq!(folder.run(&format!("verify --at v{}", named - 1)).code, 2, "{case}: v{} is gone", named - 1);
        folder.run("verify --read-data --at train-1").ok();
        assert_eq!(folder.run("manifest --find PAT-4 --at train-1 --json").ok().objects().len(), 22, "{case}");
        let done = folder.run("erase shards PAT-4 PAT-8 --all-versions --json").ok().summary();
        assert_eq!(done["records_erased"], 21 + 18, "{case}: those that only the named version had among them");
        let check = |notes: &[&str], rows: usize| {
            for gone in notes {
                assert_eq!(holding(folder.path(), gone), [""; 0], "{case} {gone}");
            }
            folder.run("verify --read-data").ok();
            folder.run("verify --read-data --at train-1").ok();
            let export = folder.run("manifest --export csv --at train-1").ok().stdout;
            assert_eq!(export.lines().count(), 1 + rows, "{case}");
            let hit = folder.run("manifest --find r1-3 --at train-1 --json").ok().objects().remove(0);
            assert_eq!((&hit["versions"]["from"], &hit["record_id"]), (&2.into(), &"r1-3".into()), "{case}");
            assert_eq!(folder.run("manifest --find PAT-4 --at train-1").code, 1);
        };
        let gone = ["note<0:4>", "note<1:13>", "note<2:58>", "PAT-4", "note<2:17>", "PAT-8"];
        check(&gone, 180 - 21 - 18);
        // Once more on top, and after another vacuum.
        let more = folder.run("erase shards PAT-5 r1-6 --all-versions --json").ok().summary();
        assert_eq!(more["records_erased"], 21 + 1, "{case}");
        check(&["note<0:5>", "note<1:6>", "PAT-5"], 180 - 21 - 18 - 21 - 1);
        folder.write("4.csv", "id,who,note\nx,PAT-1,here\n");
        folder.run("convert 4.csv").ok();
        folder.run("vacuum --retain 0 --force").ok();
        check(&["note<0:5>", "note<1:6>", "PAT-5", "PAT-4", "PAT-8"], 180 - 21 - 18 - 21 - 1);
        folder.run("manifest --untag train-1").ok();
        folder.run("vacuum --retain 0 --force").ok();
        folder.run("verify --read-data").ok();
        assert_eq!(folder.run("manifest --find PAT-7").code, 1);
    }
}

#[test]
fn sorted_records_are_erased() {
    let folder = dataset("parquet");
    folder.run("compact --sort-by note --min-inputs 2").ok();
    folder.run("erase shards PAT-4 --all-versions").ok();
    assert_eq!(holding(folder.path(), "note<1:13>"), [""; 0]);
    (1..6).for_each(|v| drop(folder.run(&format!("verify --read-data --at v{v}")).ok()));
    let hit = folder.run("manifest --find r1-14 --json").ok().objects().remove(0);
    assert_eq!(hit["versions"]["from"], 2);
    folder.run("compact --zorder note,id").ok();
    folder.run("verify --read-data").ok();
    assert_eq!(folder.run("manifest --export csv").ok().stdout.lines().count(), 1 + 180 - 21);
}

#[test]
fn everything_may_be_erased() {
    let folder = dataset("tar");
    let ids: Vec<String> = (0..9).map(|i| format!("PAT-{i}")).collect();
    folder.write("ids.txt", ids.join("\n"));
    let done = folder.run("erase shards --ids ids.txt --all-versions --json").ok().summary();
    assert_eq!((&done["records_erased"], &done["shards_added"]), (&180.into(), &0.into()));
    assert!(folder.only_shards("shards").is_empty());
    (1..5).for_each(|v| drop(folder.run(&format!("verify --read-data --at v{v}")).ok()));
    folder.write("3.csv", "id,who,note\nnew,PAT-10,here\nold,PAT-1,gone\n");
    let next = folder.run("convert 3.csv --json").ok().summary();
    assert_eq!((&next["records_out"], &next["records_erased"]), (&1.into(), &1.into()));
}

#[test]
fn an_erasure_that_was_cut_short_is_finished() {
    let folder = dataset("tar");
    let old: Vec<(String, Vec<u8>)> = folder.only_shards("shards");
    folder.run("erase shards PAT-4 --all-versions").ok();
    // As if the run had been killed before it deleted this one.
    let (name, bytes) = old.iter().find(|(name, _)| !folder.path().join("shards").join(name).exists()).unwrap();
    std::fs::write(folder.path().join("shards").join(name), bytes).unwrap();
    let verify = folder.run("verify");
    assert_eq!(verify.code, 1, "{verify:?}");
    assert!(verify.stdout.contains("run the same `shardify erase` again"), "{verify:?}");
    let again = folder.run("erase shards PAT-4 --all-versions --json").ok().summary();
    assert_eq!((&again["objects_deleted"], &again["version"]), (&1.into(), &4.into()));
    folder.run("verify --read-data").ok();
    assert_eq!(holding(folder.path(), "note<0:4>"), [""; 0]);
}

/// Paths and bytes of all files of the dataset.
fn all_files(folder: &Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    fn walk(folder: &Path, out: &mut std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, out);
            } else {
                out.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
    let mut out = std::collections::BTreeMap::new();
    walk(&folder.join("shards"), &mut out);
    out
}

#[test]
fn whoever_writes_next_finishes_an_erasure_that_was_killed_after_its_commit() {
    let next = ["erase shards PAT-4 --all-versions", "convert 3.csv", "compact --min-inputs 2", "vacuum"];
    for (number, next) in next.into_iter().enumerate() {
        let folder = Folder::new();
        folder.write(
            "a.csv",
            "id,who,note\nr1,PAT-4,extra<9>,x\nr2,PAT-5,extra<8>,x\nr3,PAT-4,here<1>\nr4,PAT-5,here<2>\n",
        );
        assert_eq!(folder.run("convert a.csv --id id --subject who --on-error quarantine").code, 3);
        folder.write("b.csv", "id,who,note\nr5,PAT-4,here<3>\nr6,PAT-6,here<4>\n");
        folder.run("convert b.csv").ok();
        folder.write("3.csv", "id,who,note\nr7,PAT-7,here<5>\n");
        let before = all_files(folder.path());
        let done = folder.run("erase shards PAT-4 --all-versions --json --reason r17").ok().summary();
        assert_eq!((&done["records_erased"], &done["rejects_erased"]), (&2.into(), &1.into()));
        let receipt = folder.path().join("shards").join(done["receipt"].as_str().unwrap());
        let complete: Value = serde_json::from_slice(&std::fs::read(&receipt).unwrap()).unwrap();
        assert!(complete["objects_deleted"].as_array().unwrap().len() >= 4, "{complete}");
        // As if it had been killed when half of the deletions were done: the others, the rejects and the receipt are
        // missing.
        std::fs::remove_file(&receipt).unwrap();
        for (i, (path, bytes)) in before.iter().enumerate() {
            if i % 2 == number % 2 || path.to_string_lossy().contains("rejects") {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
        }
        assert!(!holding(folder.path(), "extra<9>").is_empty());
        assert_eq!(folder.run("verify").code, 1);
        let ran = folder.run(next);
        assert_eq!(ran.code, 0, "{next}: {ran:?}");
        for gone in ["PAT-4", "here<1>", "here<3>", "extra<9>"] {
            assert_eq!(holding(folder.path(), gone), [""; 0], "{next}: {gone}");
        }
        let resumed: Value = serde_json::from_slice(&std::fs::read(&receipt).unwrap()).unwrap();
        for field in
            ["records_erased", "shards", "rejects_erased", "objects_deleted", "root_after", "version_after", "reason"]
        {
            assert_eq!(resumed[field], complete[field], "{next}: {field}");
        }
        folder.run("verify --read-data").ok();
        assert_eq!(holding(folder.path(), "extra<8>").len(), 1, "{next}");
        // The log no longer names it once somebody has committed.
        let newest = |folder: &Folder| -> Value {
            let log = folder.path().join("shards/_shardify/log");
            let first = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
            serde_json::from_slice(&std::fs::read(first).unwrap()).unwrap()
        };
        folder.run("manifest --tag done").ok();
        assert_eq!(newest(&folder)["erasures"]["unfinished"], Value::Null, "{next}");
    }
}

#[test]
fn erasing_takes_no_offence_at_what_others_keep_in_the_folder() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = dataset("parquet");
    let foreign = folder.path().join("shards").join(std::ffi::OsStr::from_bytes(b"n\xffte.txt"));
    std::fs::write(&foreign, "mine").unwrap();
    let done = folder.run("erase shards PAT-4 --all-versions --json").ok().summary();
    assert_eq!(done["records_erased"], 21);
    assert_eq!(holding(folder.path(), "note<1:13>"), [""; 0]);
    assert!(folder.path().join("shards").join(done["receipt"].as_str().unwrap()).exists());
    assert_eq!(std::fs::read(&foreign).unwrap(), b"mine");
}

#[test]
fn a_file_of_the_users_at_the_path_of_an_erased_shard_stays() {
    let folder = Folder::new();
    let shards = dataset("tar").only_shards("shards");
    for (i, (_, bytes)) in shards.iter().enumerate() {
        folder.write(&format!("mine/{i}.tar"), bytes);
    }
    folder.write("mine/0.idx", "an index of mine");
    folder.run("adopt mine").ok();
    let key = |row: usize| -> String {
        let rows = folder.run("manifest mine --export jsonl").ok().objects();
        rows[row]["record_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (key(0), key(1));
    folder.run_with(&["erase", "mine", &first, "--all-versions"]).ok();
    assert!(!folder.path().join("mine/0.tar").exists());
    assert!(folder.path().join("mine/0.idx").exists(), "it was not adopted");
    // Another file of the user's with the name that the adopted one had.
    folder.write("mine/0.tar", "something else");
    folder.run_with(&["erase", "mine", &second, "--all-versions"]).ok();
    folder.run_with(&["erase", "mine", &first, "--all-versions"]).ok();
    folder.run("vacuum mine --retain 0 --force").ok();
    assert_eq!(std::fs::read(folder.path().join("mine/0.tar")).unwrap(), b"something else");
}

#[test]
fn adopted_shards_are_written_anew_and_nobody_is_adopted_again() {
    let folder = dataset("tfrecord");
    let shards = folder.only_shards("shards");
    for (i, (_, bytes)) in shards.iter().enumerate() {
        folder.write(&format!("mine/{i}.tfrecord"), bytes);
    }
    folder.run("adopt mine --id id --subject who").ok();
    folder.run("erase mine PAT-4 --all-versions").ok();
    folder.run("verify mine --read-data").ok();
    folder.write("more/x.tfrecord", &shards[0].1);
    let refused = folder.run("adopt more --out mine --id id --subject who");
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("erased from this dataset"), "{refused:?}");
}

#[test]
fn rejected_lines_about_somebody_go() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who\nr1,PAT-1\nr2,PAT-2,extra<1>\nr3,PAT-3,extra<2>\nr4,PAT-2\n");
    assert_eq!(folder.run("convert a.csv --id id --subject who --on-error quarantine").code, 3);
    assert!(!holding(folder.path(), "extra<1>").is_empty());
    let done = folder.run("erase shards PAT-2 --all-versions --json").ok().summary();
    assert_eq!((&done["records_erased"], &done["rejects_erased"]), (&1.into(), &1.into()));
    assert_eq!(holding(folder.path(), "extra<1>"), [""; 0]);
    assert_eq!(holding(folder.path(), "extra<2>").len(), 1);
}

#[test]
fn proofs_hold_without_the_dataset() {
    for to in ["parquet", "tar"] {
        let folder = dataset_with(to, "--proofs");
        let root = folder.run("manifest --root --json").ok().summary()["root"].as_str().unwrap().to_owned();
        assert_eq!(folder.run("manifest --root").ok().stdout, format!("{root}  v3\n"));
        let made = folder.run("manifest --prove PAT-4 --out there.json --json").ok().summary();
        assert_eq!((&made["claim"], made["records"].as_array().unwrap().len()), (&"present".into(), 21));
        folder.run("manifest --prove PAT-99 --out not.json").ok();
        folder.run("manifest --prove r2-3 --at v2 --out before.json").ok();
        folder.run("erase shards PAT-4 --all-versions").ok();
        std::fs::rename(folder.path().join("shards"), folder.path().join("elsewhere")).unwrap();
        let present = folder.run(&format!("verify-proof there.json --root {root}")).ok();
        assert!(present.stdout.starts_with("`PAT-4` is in v3: 21 records with it"), "{present:?}");
        let absent = folder.run(&format!("verify-proof not.json --root {root}"));
        assert_eq!(absent.code, 0, "{absent:?}");
        assert!(absent.stdout.starts_with("`PAT-99` is not in v3"), "{absent:?}");
        let unchecked = folder.run("verify-proof before.json --json");
        assert_eq!((unchecked.code, &unchecked.summary()["root_checked"]), (7, &false.into()));
        assert_eq!(folder.run(&format!("verify-proof before.json --root {root}")).code, 1, "v2 has another root");
        assert!(!folder.path().join("_shardify").exists(), "a folder of proofs is no dataset");
        let text = std::fs::read_to_string(folder.path().join("not.json")).unwrap();
        folder.write("changed.json", text.replace("PAT-99", "PAT-4"));
        assert_eq!(folder.run("verify-proof changed.json").code, 1);
        folder.run("manifest elsewhere --prove PAT-4 --out gone.json").ok();
        let next = folder.run("manifest elsewhere --root --json").ok().summary();
        assert_ne!(next["root"], root.as_str());
        let gone = folder.run(&format!("verify-proof gone.json --root {}", next["root"].as_str().unwrap()));
        assert_eq!(gone.code, 0, "{gone:?}");
        assert!(gone.stdout.starts_with("`PAT-4` is not in v4"), "{gone:?}");
        assert_eq!(folder.run("verify-proof 0.csv").code, 6);
        assert_eq!(folder.run("verify-proof nothing.json").code, 2);
    }
}

#[test]
fn folders_in_a_foreign_tar_go_with_their_sample() {
    let folder = Folder::new();
    let mut builder = tar::Builder::new(Vec::new());
    for i in 0..20 {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        builder.append_data(&mut header, format!("p{i:02}/"), &b""[..]).unwrap();
        for part in ["jpg", "json"] {
            let content = format!("part<{i}>");
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, format!("p{i:02}/scan.{part}"), content.as_bytes()).unwrap();
        }
    }
    folder.write("shards/a.tar", builder.into_inner().unwrap());
    folder.run("adopt shards").ok();
    folder.run("erase shards p07/scan --all-versions").ok();
    assert_eq!(holding(folder.path(), "p07/"), [""; 0]);
    assert_eq!(holding(folder.path(), "p08/scan.jpg").len(), 1);
    folder.run("verify --read-data").ok();
}

/// Measurements of people, as in OMOP: both have numbers, and these meet.
fn measurements(to: &str) -> Folder {
    let folder = Folder::new();
    let row = |i: u64| format!("{i},{},value<{i}>\n", 8 + i % 3);
    let rows = |from: u64, to: u64| (from..to).map(row).collect::<String>();
    folder.write("mon/export.csv", format!("measurement_id,person_id,value\n{}", rows(1, 31)));
    folder.write("tue/export.csv", format!("measurement_id,person_id,value\n{}", rows(31, 61)));
    let arguments = format!("--id measurement_id --subject person_id --to {to} --codec none");
    folder.run(&format!("convert mon/export.csv {arguments}")).ok();
    folder.run(&format!("convert tue/export.csv {arguments}")).ok();
    folder
}

#[test]
fn an_id_of_several_things_is_refused_until_it_is_said_which_is_meant() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = measurements(to);
        // Measurement 8 is about person 10.
        for dry_run in ["", " --dry-run"] {
            let refused = folder.run(&format!("erase shards 8 --all-versions{dry_run}"));
            assert_eq!(refused.code, 2, "{refused:?}");
            let said = "`8` is a record id of 1 record and a subject id of 20 records: which is meant?";
            assert!(refused.stderr.contains(said), "{}", refused.stderr);
            assert!(refused.stderr.contains("--record 8 or --subject 8"), "{}", refused.stderr);
        }
        let plan = folder.run("erase shards --subject 8 --dry-run --json").ok().objects();
        assert_eq!(of_type(&plan, "id")[0]["carried_as"], serde_json::json!({"subject": 20}));
        let erased = folder.run("erase shards --subject 8 --all-versions --json").ok().summary();
        assert_eq!(erased["records_erased"], 20);
        assert!(holding(folder.path(), "value<3>").is_empty());
        assert!(!holding(folder.path(), "value<8>").is_empty(), "{to}: measurement 8 is about somebody else");
        folder.run("verify --read-data").ok();
        // Nothing of person 8 comes back, and a measurement with that number does.
        folder.write("wed.csv", "measurement_id,person_id,value\n8,10,again<8>\n70,8,back<70>\n71,9,new<71>\n");
        let again = folder.run("convert wed.csv --json").ok().summary();
        assert_eq!((again["records_out"].clone(), again["records_erased"].clone()), (2.into(), 1.into()), "{again}");
        assert!(holding(folder.path(), "back<70>").is_empty());
        // Two records have the number 8 by now, and nobody is called so.
        assert_eq!(folder.run("erase shards --record 8 --all-versions --json").ok().summary()["records_erased"], 2);
        assert!(holding(folder.path(), "value<8>").is_empty() && holding(folder.path(), "again<8>").is_empty());
        assert!(!holding(folder.path(), "value<11>").is_empty());
        folder.run("verify --read-data").ok();
        let known = folder.run("erase shards --subject 8 --json").ok().objects();
        assert_eq!(of_type(&known, "id")[0]["records"], 0);
        assert_eq!(folder.run("erase shards --subject 99").code, 1);
        folder.write("ids.txt", "10\n99\n");
        assert_eq!(folder.run("erase shards --ids ids.txt --dry-run").code, 2);
        let people = folder.run("erase shards --ids ids.txt --as subject --dry-run --json");
        assert_eq!((people.code, &people.summary()["records_erased"]), (1, &19.into()), "{people:?}");
    }
}

#[test]
fn a_row_of_files_of_one_name_is_refused_until_all_of_them_are_meant() {
    let folder = Folder::new();
    for day in ["mon", "tue"] {
        folder.write(&format!("{day}/export.csv"), format!("text\nfirst of {day}\nsecond of {day}\n"));
        folder.run(&format!("convert {day}/export.csv --to tar --codec none")).ok();
    }
    let refused = folder.run("erase shards export.csv#1");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("`export.csv#1` is an origin of 2 records"), "{}", refused.stderr);
    let erased = folder.run("erase shards --source export.csv#1 --all-versions --json").ok().summary();
    assert_eq!(erased["records_erased"], 2);
    assert!(holding(folder.path(), "first of").is_empty() && !holding(folder.path(), "second of tue").is_empty());
}

#[test]
fn what_is_left_out_and_what_keeps_the_erased_is_told() {
    let folder = Folder::new();
    for name in ["P1", "P2"] {
        folder.write(&format!("img/{name}.jpg"), format!("picture of {name}"));
    }
    folder.run("convert img --out ds").ok();
    folder.run("erase ds P2 --all-versions").ok();
    folder.write("img/P2.jpg", "another picture");
    let again = folder.run("convert img --out ds").ok();
    assert!(again.stdout.contains("skipped    1 source of an erased subject or record"), "{again:?}");
    let rows = folder.run("convert img --out ds --json").ok().summary();
    assert_eq!(rows["sources_erased"], 1);

    let folder = dataset("tar");
    folder.run("manifest --tag paper").ok();
    let erased = folder.run("erase shards --subject PAT-4").ok();
    assert!(erased.stdout.contains("as long as the tag `paper` is there"), "{erased:?}");
    folder.write("none.txt", "\n");
    assert_eq!(folder.run("manifest --find-file none.txt").code, 2);
}

#[test]
fn broken_lines_of_somebody_erased_are_not_kept() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who,n\n1,PAT-4,1\n2,PAT-5,2\n3,J\u{f6}rg \"x\",3\n4,a/b,4\n");
    folder.run("convert a.csv --id id --subject who").ok();
    folder
        .run_with(&["erase", "shards", "--subject", "PAT-4", "--subject", "J\u{f6}rg \"x\"", "--subject", "a/b"])
        .ok();
    // Broken lines about them, and about somebody else.
    folder.write("b.csv", "id,who,n\n5,PAT-4,1,2,3\n6,PAT-5,1,2,3\n7,\"J\u{f6}rg \"\"x\"\"\",1,2\n");
    folder.write(
        "c.jsonl",
        "{\"id\":11,\"who\":\"z\",\"n\":1}\n{\"id\":8,\"who\":\"a\\/b\",\"n\":}\n{\"id\":9,\"who\":\"J\\u00f6rg \\\"x\
         \\\"\",\"n\":}\n{\"id\":10,\"who\":\"PAT-44\",\"n\":}\n",
    );
    for (name, lines) in [("b.csv", 3), ("c.jsonl", 3)] {
        let ran = folder.run(&format!("convert {name} --on-error quarantine --json"));
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        let path = folder.path().join("shards").join(ran.summary()["rejects"].as_str().unwrap());
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), lines, "{text}");
        let (withheld, kept): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains("withheld"));
        assert_eq!((withheld.len(), kept.len()), (2, 1), "{text}");
        assert!(kept[0].contains("PAT-5") || kept[0].contains("PAT-44"), "{text}");
        assert!(withheld.iter().all(|line| !line.contains("raw")), "{text}");
    }
}

#[test]
fn escaped_names_leave_the_rejects() {
    let folder = Folder::new();
    folder.write(
        "a.jsonl",
        "{\"id\":1,\"who\":\"J\\u00f6rg\",\"n\":1}\n{\"id\":2,\"who\":\"a\\/b\",\"n\":1}\n{\"id\":3,\"who\":\"J\\u00f\
         6rg\",\"n\":}\n{\"id\":4,\"who\":\"a\\/b\",\"n\":}\n{\"id\":5,\"who\":\"c\",\"n\":}\n",
    );
    folder.write("l.csv", b"id,who,n\n6,J\xf6rg,1,2,3\n7,c,1\n".as_slice());
    assert_eq!(folder.run("convert a.jsonl --id id --subject who --on-error quarantine").code, 3);
    folder.run("convert l.csv --on-error quarantine --read encoding=latin1");
    let rejects = || -> Vec<String> {
        let files = std::fs::read_dir(folder.path().join("shards/_shardify/rejects")).unwrap();
        files
            .flat_map(|file| {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect()
    };
    assert_eq!(rejects().len(), 4);
    folder.run_with(&["erase", "shards", "--subject", "J\u{f6}rg", "--subject", "a/b", "--all-versions"]).ok();
    let left = rejects();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].contains("\\\"c\\\""), "{left:?}");
}

#[test]
fn other_spellings_of_erased_ids_are_told_and_left_out_on_request() {
    for to in ["parquet", "tar"] {
        let folder = Folder::new();
        folder.write("a.csv", "id,who\nr1,7\nr2,PAT-8\nr3,9\n");
        folder.run(&format!("convert a.csv --id id --subject who --type who=text --to {to}")).ok();
        folder.run("erase shards --subject 7 --subject PAT-8").ok();
        folder.write("b.csv", "id,who\nr4,007\nr5,7.0\nr6, 7\nr7,+7\nr8,pat-8\nr9,70\nr10,7\n7,10\n");
        let told = folder.run("convert b.csv --type who=text --json").ok().summary();
        assert_eq!((&told["records_similar"], &told["records_erased"]), (&5.into(), &1.into()), "{to} {told}");
        let said = folder.run("remove --source b.csv").ok();
        assert!(said.stdout.contains("removed    7 records"), "{}", said.stdout);
        let kept = folder.run("convert b.csv --type who=text --id-normalize --json").ok().summary();
        assert_eq!((&kept["records_out"], &kept["records_erased"]), (&2.into(), &6.into()), "{to} {kept}");
    }
}

#[test]
fn who_opts_out_in_advance_never_comes_in_and_may_be_let_in_again() {
    for (to, options) in
        [("parquet", ""), ("tar", ""), ("tfrecord", "--id-mode hmac --id-key key --redact-source-paths")]
    {
        let folder = Folder::new();
        folder.write("key", [7; 32]);
        let key = if options.is_empty() { "" } else { "--id-key key" };
        folder.write("a.csv", "id,who\nr1,PAT-1\n");
        folder.run(&format!("convert a.csv --id id --subject who --to {to} {options}")).ok();
        let blocked = folder.run(&format!("block --subject PAT-9 --reason opt-out {key} --json")).ok().summary();
        assert_eq!((&blocked["version"], &blocked["changed"]), (&2.into(), &vec!["PAT-9"].into()), "{to}");
        let again = folder.run(&format!("block --subject PAT-9 {key} --json")).ok().summary();
        assert_eq!((&again["version"], &again["unchanged"]), (&2.into(), &vec!["PAT-9"].into()), "{to}");
        let refused = folder.run(&format!("block --subject PAT-1 {key}"));
        assert_eq!(refused.code, 2, "{to}: there are records, {}", refused.stderr);
        assert!(refused.stderr.contains("shardify erase"), "{}", refused.stderr);
        folder.write("b.csv", "id,who\nr2,PAT-9\nr3,PAT-2\nPAT-9,PAT-3\n");
        let kept = folder.run(&format!("convert b.csv {key} --json")).ok().summary();
        assert_eq!((&kept["records_out"], &kept["records_erased"]), (&2.into(), &1.into()), "{to}");
        let lifted = folder.run(&format!("unblock --subject PAT-9 --reason mistake {key} --json")).ok().summary();
        assert_eq!(lifted["changed"], serde_json::json!(["PAT-9"]), "{to}");
        assert_eq!(folder.run(&format!("unblock --subject PAT-9 {key}")).code, 1, "{to}: not on the list any more");
        folder.write("c.csv", "id,who\nr4,PAT-9\n");
        assert_eq!(folder.run(&format!("convert c.csv {key} --json")).ok().summary()["records_out"], 1, "{to}");
        folder.run("verify --read-data").ok();
        let history = folder.run("manifest --history --json").ok().stdout;
        assert!(history.contains("\"mistake\"") && !history.contains("PAT-9"), "{history}");
    }
}

#[test]
fn who_was_erased_by_mistake_may_come_in_again() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who\nr1,PAT-1\nr2,PAT-2\n");
    folder.run("convert a.csv --id id --subject who").ok();
    folder.run("erase shards --subject PAT-1").ok();
    folder.write("b.csv", "id,who\nr3,PAT-1\nr4,PAT-2\n");
    assert_eq!(folder.run("convert b.csv --json").ok().summary()["records_erased"], 1);
    folder.run("unblock --subject PAT-1").ok();
    folder.write("c.csv", "id,who\nr5,pat-1\nr6,PAT-1\n");
    let taken = folder.run("convert c.csv --json").ok().summary();
    assert_eq!((&taken["records_out"], &taken["records_similar"]), (&2.into(), &0.into()));
    // What was erased stays erased, in reverts too.
    folder.run("revert --to v1").ok();
    assert_eq!(folder.run("manifest --json").ok().summary()["records"], 1);
    folder.run("verify --read-data").ok();
}

#[test]
fn names_in_paths_and_reasons_are_listed() {
    let folder = Folder::new();
    folder.write("PAT-4/export.csv", "id,who\nr1,PAT-4\nr2,PAT-5\n");
    folder.run("convert PAT-4/export.csv --id id --subject who").ok();
    folder.write("b.csv", "id,who\nr3,PAT-6\n");
    folder.run("convert b.csv").ok();
    folder.run_with(&["erase", "shards", "PAT-6", "--reason", "asked for by PAT-4, her daughter"]).ok();
    let done = folder.run("erase shards PAT-4 --all-versions --json").ok().summary();
    let kept: Vec<&str> = done["names_kept"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept[0].contains("v3 (reason)") && kept[1].ends_with("PAT-4/export.csv"), "{kept:?}");
    // A source of which nothing is left is forgotten with its path.
    folder.write("PAT-7/export.csv", "id,who\nr4,PAT-7\n");
    folder.run("convert PAT-7/export.csv").ok();
    let done = folder.run("erase shards PAT-7 --all-versions --json").ok().summary();
    assert_eq!((&done["sources_erased"], done["names_kept"].as_array().unwrap().len()), (&1.into(), 0), "{done}");
}

#[test]
fn an_origin_keeps_out_what_stood_there_and_not_tomorrows_record() {
    for (to, private) in [("parquet", ""), ("parquet", "--id-mode hmac --id-key key"), ("tar", "")] {
        let folder = Folder::new();
        folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
        let key = if private.is_empty() { "" } else { "--id-key key" };
        folder.write("monday/export.csv", "who,n\nAda,1\nBob,2\n");
        folder.write("monday/list.jsonl", "{\"who\":\"Eve\",\"n\":5}\n{\"who\":\"Fay\",\"n\":6}\n");
        folder.run(&format!("convert monday/export.csv monday/list.jsonl --to {to} {private}")).ok();
        folder.run(&format!("erase shards --source export.csv#1 --source list.jsonl#2 --all-versions {key}")).ok();
        // The same lines stay out, from elsewhere too; other records in that row do only where contents cannot be
        // compared.
        folder.write("again/export.csv", "who,n\nAda,1\nBob,2\n");
        folder.write("tuesday/export.csv", "who,n\nCyd,3\nDan,4\n");
        folder.write("tuesday/list.jsonl", "{\"who\":\"Gil\",\"n\":7}\n{\"who\":\"Hal\",\"n\":8}\n");
        let again = folder.run(&format!("convert again --json {key}")).ok().summary();
        assert_eq!((&again["records_erased"], &again["records_out"]), (&1.into(), &1.into()), "{to} {again}");
        let tuesday = folder.run(&format!("convert tuesday --json {key}")).ok().summary();
        let kept = if to == "parquet" { 4 } else { 2 };
        assert_eq!(tuesday["records_out"], kept, "{to} {private} {tuesday}");
        folder.run(&format!("verify --read-data {key}")).ok();
    }
}

#[test]
fn runs_that_have_ended_leave_nothing_over() {
    for to in ["parquet", "tar"] {
        let folder = Folder::new();
        for day in 0..9 {
            let rows: String = (0..20).map(|row| format!("d{day}-{row},PAT-{}\n", row % 5)).collect();
            folder.write(&format!("day-{day}.csv"), format!("id,who\n{rows}"));
            folder.run(&format!("convert day-{day}.csv --id id --subject who --to {to}")).ok();
            if day % 4 == 3 {
                folder.run("compact --min-inputs 2").ok();
            }
        }
        folder.run("erase shards d1-3").ok();
        let summary = folder.run("erase shards PAT-4 --all-versions --json").ok().summary();
        assert_eq!(summary["objects_unreferenced"], 0, "{to}: {summary}");
        let vacuumed = folder.run("vacuum --retain 0 --force --json").ok().summary();
        assert_eq!(vacuumed["runs_abandoned"], 0, "{to}: {vacuumed}");
        folder.run("verify --read-data").ok();
    }
}
