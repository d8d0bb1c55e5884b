//! Datasets with proofs and without: what each keeps of ids, and that nothing else depends on it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and change their own files")]

use crate::{compat::copy_tree, reseal::restate, support};

use std::{fs, path::Path};

use serde_json::Value;
use support::Folder;

fn visits(first: u32, rows: u32) -> String {
    // Visits ascend, patients do not.
    let row = |visit: u32| format!("V{visit:05},PAT-{},{visit}\n", visit * 7919 % 97);
    (first..first + rows).fold("visit,patient,x\n".to_owned(), |text, visit| text + &row(visit))
}

fn convert(folder: &Folder, out: &str, options: &str) {
    for (name, first) in [("a", 0), ("b", 400)] {
        folder.write(&format!("{name}.csv"), visits(first, 400));
        folder.run(&format!("convert {name}.csv --id visit --subject patient --out {out} {options}")).ok();
    }
}

fn newest(folder: &Folder, dataset: &str) -> Value {
    let log = folder.path().join(dataset).join("_shardify/log");
    let first = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    serde_json::from_slice(&fs::read(first).unwrap()).unwrap()
}

/// Hits of an id, without what differs from dataset to dataset.
fn hits(folder: &Folder, dataset: &str, id: &str) -> Vec<String> {
    let found = folder.run(&format!("manifest {dataset} --find {id} --json")).objects();
    let hit = |hit: &Value| format!("{} {} {} {}", hit["kind"], hit["record"], hit["record_id"], hit["versions"]);
    found.iter().filter(|object| object["type"] == "hit").map(hit).collect()
}

fn root(folder: &Folder, dataset: &str) -> String {
    folder.run(&format!("manifest {dataset} --root --json")).ok().summary()["root"].as_str().unwrap().to_owned()
}

#[test]
fn datasets_with_and_without_proofs_answer_alike() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = Folder::new();
        convert(&folder, "with", &format!("--to {to} --proofs"));
        convert(&folder, "without", &format!("--to {to}"));
        for next in ["compact", "erase", "vacuum"] {
            for dataset in ["with", "without"] {
                match next {
                    "compact" => folder.run(&format!("compact {dataset} --min-inputs 2")).ok(),
                    "erase" => folder.run(&format!("erase {dataset} PAT-5 V00123 --all-versions")).ok(),
                    _ => folder.run(&format!("vacuum {dataset} --retain 0s --force")).ok(),
                };
                folder.run(&format!("verify {dataset} --read-data")).ok();
            }
            for id in ["V00000", "V00400", "V00799", "V00800", "PAT-5", "PAT-96", "PAT-97", "V00123"] {
                assert_eq!(hits(&folder, "with", id), hits(&folder, "without", id), "{to} {next} {id}");
            }
            assert!(!hits(&folder, "without", "PAT-96").is_empty());
        }
        let (with, without) = (newest(&folder, "with"), newest(&folder, "without"));
        assert_eq!((&with["format"], &without["format"]), (&1.into(), &1.into()));
        let segments = |entry: &Value| entry["segments"].as_array().unwrap().clone();
        assert!(segments(&with).iter().all(|one| one["hash_bytes"].is_null() && one["root"].is_string()));
        assert!(segments(&without).iter().all(|one| one["hash_bytes"] == 5 && one["root"].is_null()));
        assert!(with["root"].is_string() && without["root"].is_string());
    }
}

#[test]
fn a_dataset_without_proofs_says_so_and_has_a_root() {
    let folder = Folder::new();
    convert(&folder, "ds", "");
    let refused = folder.run("manifest ds --prove PAT-5 --out proof.json");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("expected a dataset made with --proofs") && refused.stderr.contains("--find"));
    assert!(!folder.path().join("proof.json").exists());
    let (first, second) = (root(&folder, "ds"), folder.run("manifest ds --root --at v1").ok().stdout);
    assert!(!second.starts_with(&first) && newest(&folder, "ds")["root"] == first);
    // The choice is made once.
    for again in ["convert a.csv --out ds --proofs", "adopt other --out ds --proofs"] {
        folder.copy("inputs/people.parquet", "other/people.parquet");
        let refused = folder.run(again);
        assert!(refused.code == 2 && refused.stderr.contains("made with --proofs"), "{refused:?}");
    }
    // Datasets made from it are like it.
    folder.run("pull ds copy").ok();
    folder.run_with(&["reshard", "ds", "--out", "cut", "--where", "x < 500"]).ok();
    for (dataset, records) in [("copy", 800), ("cut", 500)] {
        assert_eq!(newest(&folder, dataset)["settings"]["hash_bytes"], 5, "{dataset}");
        let verified = folder.run(&format!("verify {dataset} --read-data --json")).ok().summary();
        assert_eq!(verified["records"], records, "{dataset}");
    }
    assert_eq!(hits(&folder, "cut", "V00499").len(), 1);
    assert!(hits(&folder, "cut", "V00500").is_empty());
}

#[test]
fn adopted_shards_have_proofs_if_they_are_asked_for() {
    let folder = Folder::new();
    convert(&folder, "made", "");
    fs::create_dir(folder.path().join("files")).unwrap();
    for (number, (_, bytes)) in folder.shards("made").into_iter().enumerate() {
        folder.write(&format!("files/{number}.parquet"), bytes);
    }
    for (out, options, code) in [("with", "--proofs", 0), ("without", "", 2)] {
        folder.run(&format!("adopt files --id visit --subject patient --out {out} {options}")).ok();
        folder.run(&format!("verify {out} --read-data")).ok();
        assert_eq!(hits(&folder, out, "PAT-96").len(), hits(&folder, "made", "PAT-96").len());
        assert_eq!(folder.run(&format!("manifest {out} --prove PAT-96 --out proof.json")).code, code);
    }
}

#[test]
fn an_index_that_was_changed_is_found_without_proofs_too() {
    let folder = Folder::new();
    convert(&folder, "ds", "");
    let tables = |folder: &Path| -> Vec<std::path::PathBuf> {
        let kinds = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let segments = kinds.flat_map(|kind| fs::read_dir(kind).unwrap().map(|entry| entry.unwrap().path()));
        segments.map(|segment| segment.join("b=0000.table")).collect()
    };
    let all = tables(&folder.path().join("ds/_shardify/index"));
    assert!(!all.is_empty());
    for table in all {
        let bytes = fs::read(&table).unwrap();
        let mut changed = bytes.clone();
        changed[bytes.len() / 3] ^= 1;
        fs::write(&table, changed).unwrap();
        let verified = folder.run("verify ds");
        assert_eq!(verified.code, 1, "{verified:?}");
        fs::write(&table, bytes).unwrap();
    }
    folder.run("verify ds").ok();
}

#[test]
fn an_index_of_other_ids_is_found_by_the_sidecars() {
    let folder = Folder::new();
    folder.write("a.csv", visits(0, 400));
    folder.write("b.csv", visits(0, 400).replace("PAT-5,", "PAT-98,"));
    for name in ["a", "b"] {
        folder.run(&format!("convert {name}.csv --id visit --subject patient --out {name}")).ok();
    }
    let segments = newest(&folder, "b")["segments"].clone();
    let index = folder.path().join("a/_shardify/index");
    fs::remove_dir_all(&index).unwrap();
    copy_tree(&folder.path().join("b/_shardify/index"), &index);
    restate(&folder.path().join("a"), |entry| entry["segments"] = segments);
    let verified = folder.run("verify a");
    assert_eq!(verified.code, 1, "{verified:?}");
    assert!(verified.stdout.contains("the subject id `PAT-5` of row"), "{verified:?}");
}
