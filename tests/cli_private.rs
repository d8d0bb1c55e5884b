//! Private ids, by the real binary: what is stored in place of ids, who finds them, and what is refused.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod support;

use std::process::Command;

use serde_json::Value;
use support::{Folder, Ran};

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER_KEY: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn visits(first: usize) -> String {
    let rows = (first..first + 50).map(|i| format!("VISIT-{i},PATIENT-{},{i}\n", i % 7));
    format!("visit,patient,x\n{}", rows.collect::<String>())
}

/// Two conversions with private ids.
fn dataset(options: &str) -> Folder {
    let folder = Folder::new();
    folder.write("key", KEY);
    folder.write("other-key", OTHER_KEY);
    for i in 0..2 {
        folder.write(&format!("in/secret-{i}.csv"), visits(i * 50));
        let key = "--id-key key --id visit --subject patient --quiet";
        folder.run(&format!("convert in --out d {options} {key}")).ok();
    }
    folder
}

fn hits(ran: &Ran) -> Vec<Value> {
    ran.objects().into_iter().filter(|o| o["type"] == "hit").collect()
}

fn find(folder: &Folder, id: &str) -> Vec<Value> {
    hits(&folder.run(&format!("manifest d --find {id} --id-key key --json")))
}

#[test]
fn who_has_the_key_finds_and_nobody_else() {
    for to in ["parquet", "tar", "tfrecord"] {
        for mode in ["hmac", "sealed"] {
            let folder = dataset(&format!("--to {to} --id-mode {mode}"));
            for step in ["", "compact d --min-inputs 2 --quiet"] {
                if !step.is_empty() {
                    folder.run(step).ok();
                }
                let found = find(&folder, "VISIT-63");
                assert_eq!(found.len(), 1, "{to} {mode} {step}");
                assert_eq!(found[0]["record_id"], "VISIT-63");
                let of_subject = find(&folder, "PATIENT-3");
                assert_eq!(of_subject.len(), (0..100).filter(|i| i % 7 == 3).count());
                assert!(of_subject.iter().all(|hit| hit["kind"] == "subject" && hit["subject_id"] == "PATIENT-3"));
                let shown = of_subject[0]["record_id"].as_str().unwrap();
                // Sealed ids are shown, of others only the token is known.
                assert_eq!(shown == "VISIT-3", mode == "sealed", "{shown}");
                assert!(find(&folder, "VISIT-999").is_empty());
                assert!(find(&folder, of_subject[0]["record_id"].as_str().unwrap_or("")).len() <= 1);
                folder.run("verify d --read-data").ok();
            }
            let nobody = folder.run("manifest d --find VISIT-63");
            assert_eq!(nobody.code, 2);
            assert!(nobody.stderr.contains("--id-key"), "{}", nobody.stderr);
            let other = folder.run("manifest d --find VISIT-63 --id-key other-key");
            assert_eq!(other.code, 2);
            assert!(other.stderr.contains("check value"), "{}", other.stderr);
        }
    }
}

#[test]
fn ids_stand_in_no_file_beside_the_shards() {
    for mode in ["hmac", "sealed"] {
        let folder = dataset(&format!("--id-mode {mode}"));
        let export = folder.run("manifest d --export csv").ok().stdout;
        assert!(!export.contains("VISIT") && !export.contains("PATIENT"), "{export}");
        assert!(export.contains("secret-0.csv"));
        let token = export.lines().nth(1).unwrap().split(',').next().unwrap();
        assert!(token.len() == 32 && token.bytes().all(|b| b.is_ascii_hexdigit()), "{token}");
        let opened = folder.run("manifest d --export csv --id-key key").ok().stdout;
        assert_eq!(opened.contains("VISIT-7,PATIENT-0"), mode == "sealed", "{opened}");
        let diff = folder.run("manifest d --diff v1 v2 --json").ok().stdout;
        assert!(!diff.contains("VISIT"), "{diff}");
        for file in walk(&folder.path().join("d/_shardify")) {
            let bytes = std::fs::read(&file).unwrap();
            let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
            assert!(!has(b"VISIT-") && !has(b"PATIENT-"), "{}", file.display());
            assert!(!has(KEY.as_bytes()) && !has(b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b"));
        }
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { out.extend(walk(&path)) } else { out.push(path) }
    }
    out
}

#[test]
fn how_ids_are_stored_is_chosen_once() {
    let folder = dataset("--id-mode hmac");
    folder.write("in/more.csv", visits(100));
    let refused = |arguments: &str, reason: &str| {
        let ran = folder.run(arguments);
        assert_eq!(ran.code, 2, "{arguments}: {ran:?}");
        assert!(ran.stderr.contains(reason), "{arguments}: {}", ran.stderr);
    };
    refused("convert in --out d --id visit --subject patient", "--id-key");
    refused("convert in --out d --id-key other-key", "check value");
    refused("convert in --out d --id-mode plain --id-key key", "--id-mode hmac");
    refused("convert in --out d --id-mode sealed --id-key key", "--id-mode hmac");
    refused("convert in --out d --redact-source-paths --id-key key", "made without");
    refused("convert in --out new --id-mode hmac", "expected a key");
    refused("convert in --out new --id-key key", "ids would be plain");
    refused("convert in --out new --redact-source-paths", "--id-mode");
    folder.write("short", "00ff");
    refused("convert in --out new --id-mode hmac --id-key short", "32 bytes");
    refused("convert in --out new --id-mode hmac --id-key absent", "cannot be read");
    // By the environment, which says nothing to datasets with plain ids.
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shardify"));
        command.args(arguments).current_dir(folder.path()).env("SHARDIFY_ID_KEY", KEY).output().unwrap()
    };
    assert_eq!(run(&["convert", "in", "--out", "d"]).status.code(), Some(0));
    assert_eq!(run(&["manifest", "d", "--find", "VISIT-120"]).status.code(), Some(0));
    assert_eq!(run(&["convert", "in", "--out", "plain", "--id", "visit"]).status.code(), Some(0));
    assert_eq!(hits(&folder.run("manifest plain --find VISIT-120 --json")).len(), 1);
    let summary = folder.run("manifest d --json").ok().summary();
    assert_eq!((&summary["settings"]["private"]["mode"], &summary["records"]), (&"hmac".into(), &150.into()));
    assert!(folder.run("manifest d").ok().stdout.contains("private (hmac)"));
}

#[test]
fn names_of_sources_are_hidden_where_that_is_asked_for() {
    let folder = dataset("--id-mode sealed --redact-source-paths");
    let everything = ["--export csv", "--history --json", "--diff v1 v2 --json", "--export prov", "--list --json"];
    for question in everything {
        let answer = folder.run(&format!("manifest d {question}")).ok().stdout;
        assert!(!answer.contains("secret-"), "{question}: {answer}");
    }
    // What is there already is known again, and what changed is noticed.
    let again = folder.run("convert in --out d --id-key key --json").ok().summary();
    assert_eq!((&again["sources_unchanged"], &again["version"]), (&2.into(), &2.into()));
    folder.write("in/secret-1.csv", visits(500));
    assert_eq!(folder.run("convert in --out d --id-key key").code, 2);
    folder.run("verify d --read-data").ok();
    // Records without an id of their own are found by their origin.
    folder.write("plain/secret.csv", "x\n1\n2\n3\n");
    folder.run("convert plain --out e --id-mode hmac --redact-source-paths --id-key key --quiet").ok();
    let found = hits(&folder.run("manifest e --find secret.csv#2 --id-key key --json"));
    assert_eq!((found.len(), &found[0]["origin"]["row"]), (1, &2.into()));
    assert_eq!(folder.run("manifest e --find secret.csv#9 --id-key key").code, 1);
    assert_eq!(folder.run("adopt in --id-mode hmac --redact-source-paths --id-key key").code, 2);
}

#[test]
fn ids_of_adopted_and_sorted_shards_are_private_too() {
    let folder = Folder::new();
    folder.write("key", KEY);
    folder.write("in/a.csv", visits(0));
    folder.run("convert in --out others --quiet").ok();
    let shard = folder.only_shards("others").remove(0);
    folder.write("shards/part-0.parquet", shard.1);
    let options = "--id visit --subject patient --id-mode sealed --id-key key --quiet";
    folder.run(&format!("adopt shards --out d {options}")).ok();
    folder.run("compact d --sort-by x --quiet").ok();
    assert_eq!(find(&folder, "VISIT-31").len(), 1);
    assert_eq!(find(&folder, "PATIENT-6")[0]["subject_id"], "PATIENT-6");
    folder.run("verify d --read-data").ok();
    assert!(!folder.run("manifest d --export jsonl").ok().stdout.contains("VISIT"));
}
