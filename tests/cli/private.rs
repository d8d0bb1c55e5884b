//! Private ids, by the real binary: what is stored in place of ids, who finds them, and what is refused.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and look into every file")]

use crate::support;

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
    refused("convert in --out new --id-mode hmac --id-key absent", "expected the file of the id key, found none");
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
    assert_eq!(folder.run("convert in --out d --id-key key").code, 8);
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

/// Files of a folder that hold a text, in Parquet as it is read.
fn holding(folder: &std::path::Path, text: &str) -> Vec<String> {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let holds = |path: &std::path::PathBuf| {
        let bytes = bytes::Bytes::from(std::fs::read(path).unwrap());
        let rows = bytes.starts_with(b"PAR1").then(|| {
            let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes.clone());
            let batches = reader.unwrap().build().unwrap();
            let rows = |batch: arrow::array::RecordBatch| -> String {
                (0..batch.num_rows()).map(|row| format!("{:?}", batch.slice(row, 1).columns())).collect()
            };
            batches.map(|batch| rows(batch.unwrap())).collect::<String>()
        });
        has(&bytes) || rows.is_some_and(|rows| has(rows.as_bytes()))
    };
    walk(folder).iter().filter(|path| holds(path)).map(|path| path.display().to_string()).collect()
}

#[test]
fn who_has_private_ids_is_erased_and_does_not_come_back() {
    for to in ["parquet", "tar", "tfrecord"] {
        for mode in ["hmac", "sealed --redact-source-paths"] {
            let case = format!("{to} {mode}");
            let folder = dataset(&format!("--to {to} --id-mode {mode}"));
            folder.run("compact d --min-inputs 2 --quiet").ok();
            assert!(
                !holding(&folder.path().join("d"), "VISIT-63").is_empty(),
                "{case}: the search finds what is there"
            );
            for (key, problem) in [("", "--id-key"), ("--id-key other-key", "check value")] {
                let refused = folder.run(&format!("erase d PATIENT-3 --all-versions {key}"));
                assert_eq!(refused.code, 2, "{case}: {refused:?}");
                assert!(refused.stderr.contains(problem), "{case}: {refused:?}");
            }
            let token = find(&folder, "PATIENT-3")[0]["record_id"].as_str().unwrap().to_owned();
            // From the newest version alone, then everywhere.
            folder.run("erase d VISIT-0 --id-key key").ok();
            assert!(find(&folder, "VISIT-0").is_empty());
            assert_eq!(hits(&folder.run("manifest d --find VISIT-0 --at v3 --id-key key --json")).len(), 1, "{case}");
            let whom = "VISIT-0 PATIENT-3 VISIT-64 --all-versions --id-key key";
            let planned = folder.run(&format!("erase d {whom} --dry-run --json")).ok().summary();
            let done = folder.run(&format!("erase d {whom} --receipt receipt.json --json")).ok().summary();
            assert_eq!((&planned["records_erased"], &done["records_erased"]), (&16.into(), &16.into()), "{case}");
            let receipt = std::fs::read_to_string(folder.path().join("receipt.json")).unwrap();
            let mut gone: Vec<String> = (10..100).filter(|i| i % 7 == 3).map(|i| format!("VISIT-{i}")).collect();
            gone.extend(["VISIT-64", "PATIENT-3", "VISIT-3\""].map(str::to_owned));
            // Of sealed ids the id is shown.
            gone.extend(Some(token).filter(|token| token.len() == 32));
            for gone in gone {
                assert_eq!(holding(&folder.path().join("d"), &gone), [""; 0], "{case} {gone}");
                assert!(!receipt.contains(&gone), "{receipt}");
            }
            for key in ["", "--id-key key"] {
                (1..=5).for_each(|v| drop(folder.run(&format!("verify d --read-data --at v{v} {key}")).ok()));
            }
            let nobody = folder.run("manifest d --find PATIENT-3 VISIT-64 VISIT-73 VISIT-0 --id-key key");
            assert_eq!(nobody.code, 1);
            for (id, records) in [("PATIENT-3", "14 records"), ("VISIT-64", "1 record"), ("VISIT-73", "1 record")] {
                assert!(nobody.stderr.contains(&format!("`{id}` was erased in v5 ({records})")), "{case}: {nobody:?}");
            }
            assert!(nobody.stderr.contains("`VISIT-0` was erased in v4"), "{case}: {nobody:?}");
            assert_eq!(find(&folder, "PATIENT-4").len(), 14, "{case}");
            // The same sources again, and the same rows in another file.
            let again = folder.run("convert in --out d --id-key key --json").ok().summary();
            assert_eq!((&again["version"], &again["sources_unchanged"]), (&5.into(), &2.into()), "{case}");
            folder.write("in/copy.csv", visits(50));
            let copied = folder.run("convert in --out d --id-key key --json").ok().summary();
            let erased = (50..100).filter(|i| i % 7 == 3 || *i == 64).count();
            assert_eq!(copied["records_erased"], erased, "{case}");
            assert_eq!(copied["records_out"], 50 - erased, "{case}");
            assert!(find(&folder, "PATIENT-3").is_empty() && find(&folder, "VISIT-64").is_empty());
            assert_eq!(folder.run("erase d nobody --id-key key").code, 1);
            folder.run("vacuum d --retain 0 --force").ok();
            folder.run("verify d --read-data --id-key key").ok();
            let other = folder.run("verify d --read-data --id-key other-key");
            assert_eq!(other.code, 2, "{case}: {other:?}");
        }
    }
}

#[test]
fn private_samples_and_origins_are_erased() {
    for (mode, sources) in [("hmac", 2), ("sealed", 2), ("hmac --redact-source-paths", 0)] {
        let folder = Folder::new();
        folder.write("key", KEY);
        for i in 0..20 {
            folder.write(&format!("in/p{i:02}.jpg"), format!("picture<{i:02}>"));
            folder.write(&format!("in/p{i:02}.json"), format!("{{\"note\":\"text<{i:02}>\"}}"));
        }
        folder.run(&format!("convert in --out d --id-mode {mode} --id-key key --index dali,wids")).ok();
        let done = folder.run("erase d p07 --all-versions --id-key key --json").ok().summary();
        assert_eq!((&done["records_erased"], &done["sources_erased"]), (&1.into(), &sources.into()), "{mode}");
        for gone in ["picture<07>", "text<07>", "p07"] {
            assert_eq!(holding(&folder.path().join("d"), gone), [""; 0], "{mode} {gone}");
        }
        folder.run("verify d --read-data --id-key key").ok();
        let again = folder.run("convert in --out d --id-key key --json").ok().summary();
        assert_eq!(again["version"], 2, "{mode}: {again}");
        // Touched files are taken in again, but for those of who was erased.
        folder.write("in/p07.jpg", "picture<07> once more");
        folder.write("in/p21.jpg", "new");
        let changed = folder.run("convert in --out d --id-key key --on-changed append --json");
        assert!(changed.code == 0, "{mode}: {changed:?}");
        assert_eq!(holding(&folder.path().join("d"), "picture<07>"), [""; 0], "{mode}");
        // Records without an id of their own.
        let rows: String = (0..50).map(|i| format!("note<{i}>\n")).collect();
        folder.write("a.csv", format!("note\n{rows}"));
        folder.run(&format!("convert a.csv --out e --id-mode {mode} --id-key key")).ok();
        folder.run_with(&["erase", "e", "a.csv#10", "--all-versions", "--id-key", "key"]).ok();
        assert_eq!(holding(&folder.path().join("e"), "note<9>"), [""; 0], "{mode}");
        folder.write("a.csv", format!("note\n{rows}note<50>\n"));
        let appended = folder.run("convert a.csv --out e --on-changed append --id-key key --json").ok().summary();
        assert_eq!((&appended["records_out"], &appended["records_erased"]), (&50.into(), &1.into()), "{mode}");
        let missing = folder.run_with(&["manifest", "e", "--find", "a.csv#10", "--id-key", "key", "--at", "v2"]);
        assert!(missing.stderr.contains("was erased in v2"), "{mode}: {missing:?}");
    }
}

#[test]
fn proofs_are_about_tokens() {
    let folder = dataset("--id-mode hmac --proofs");
    assert_eq!(folder.run("manifest d --prove PATIENT-3 --out p.json").code, 2, "it takes the key");
    folder.run("manifest d --prove PATIENT-3 --out there.json --id-key key").ok();
    folder.run("manifest d --prove PATIENT-99 --out not.json --id-key key").ok();
    std::fs::rename(folder.path().join("d"), folder.path().join("elsewhere")).unwrap();
    let text = std::fs::read_to_string(folder.path().join("there.json")).unwrap();
    assert!(!text.contains("PATIENT"));
    let proof: Value = serde_json::from_str(&text).unwrap();
    let token = proof["id"].as_str().unwrap();
    let root = proof["root"].as_str().unwrap();
    let verify = |proof: &str, more: &str| folder.run(&format!("verify-proof {proof} --root {root} {more}"));
    assert!(proof["head"].as_str().unwrap().contains("ids hmac"), "the root says how ids are stored");
    let there = verify("there.json", "");
    assert_eq!(there.code, 0, "{there:?}");
    assert!(there.stdout.starts_with(&format!("`{token}` is in v2: 14 records with it")), "{there:?}");
    assert!(there.stdout.contains("hmac, key with the check value"), "{there:?}");
    let not_there = verify("not.json", "");
    assert!(not_there.code == 0 && not_there.stdout.contains("is not in v2"), "{not_there:?}");
    let unchecked = folder.run("verify-proof not.json");
    assert!(unchecked.code == 7 && unchecked.stdout.contains("root not checked"), "{unchecked:?}");
    assert_eq!(verify("there.json", "--id PATIENT-3 --id-key key").code, 0);
    assert_eq!(verify("there.json", "--id PATIENT-4 --id-key key").code, 1);
    assert_eq!(verify("there.json", "--id PATIENT-3").code, 2, "it takes the key");
    folder.write("other", [9; 32]);
    let other = verify("there.json", "--id PATIENT-3 --id-key other");
    assert!(other.code == 1 && other.stdout.contains("another key"), "{other:?}");
    // Somebody who is there, looked up as if ids were stored as they are, would not be found.
    let not = std::fs::read_to_string(folder.path().join("not.json")).unwrap();
    let missing: Value = serde_json::from_str(&not).unwrap();
    let plain = not.replace("  \"private\": true,\n", "");
    assert_ne!(plain, not);
    let similar = format!("{}{}", &token[..16], "0".repeat(16));
    for forged in [
        text.replace(token, "PATIENT-3"),
        text.replace("\"private\": true", "\"private\": false"),
        plain.replace(missing["id"].as_str().unwrap(), "PATIENT-3"),
        plain.replace(missing["id"].as_str().unwrap(), "PATIENT-99"),
        not.replace("ids hmac", "ids plain").replace(missing["id"].as_str().unwrap(), "PATIENT-3"),
    ] {
        folder.write("forged.json", forged);
        assert_eq!(verify("forged.json", "").code, 1);
    }
    folder.write("forged.json", text.replace(token, &similar));
    assert_eq!(verify("forged.json", "--id PATIENT-3 --id-key key").code, 1, "tokens are compared in full");
}

/// Content hashes of the records of the newest version, by row.
fn content_hashes(folder: &Folder) -> Vec<u64> {
    let rows = folder.run("manifest --export jsonl").ok().objects();
    rows.iter().map(|row| u64::from_str_radix(row["hash"].as_str().unwrap(), 16).unwrap()).collect()
}

#[test]
fn content_hashes_of_private_datasets_take_the_key_to_check_a_guess() {
    for to in ["parquet", "tar", "tfrecord"] {
        let (plain, private, other) = (Folder::new(), Folder::new(), Folder::new());
        for (folder, options) in [
            (&plain, ""),
            (&private, "--id-mode hmac --id-key key"),
            (&other, "--id-mode sealed --id-key key --redact-source-paths"),
        ] {
            let key = if std::ptr::eq(folder, &other) { [9; 32] } else { [7; 32] };
            folder.write("key", key);
            for name in ["a", "b"] {
                folder.write(&format!("{name}.csv"), format!("id,sex,year\n{name}1,f,1970\n{name}2,m,1981\n"));
                folder.run(&format!("convert {name}.csv --id id --to {to} --codec none --hash-records {options}")).ok();
            }
        }
        let hashes = [&plain, &private, &other].map(content_hashes);
        for (at, guess) in hashes[0].iter().enumerate() {
            assert!(!hashes[1].contains(guess) && !hashes[2].contains(guess), "{to}: row {at}");
        }
        assert!(hashes[1].iter().all(|hash| !hashes[2].contains(hash)), "{to}: of another key");
        // Without the key shards are proved by their checksums, with it record by record.
        private.run("compact --min-inputs 2").ok();
        other.run_with(&["verify", "--read-data", "--id-key", "key"]).ok();
        for key in ["", "--id-key key"] {
            private.run(&format!("verify --read-data {key}")).ok();
        }
        let mut merged = content_hashes(&private);
        merged.sort_unstable();
        let mut before = hashes[1].clone();
        before.sort_unstable();
        assert_eq!(merged, before, "{to}");
        // A source that was touched is known by its content, though its hash is keyed.
        private.write("a.csv", "id,sex,year\na1,f,1970\na2,m,1981\n");
        assert_eq!(private.run("convert a.csv --id-key key --json").ok().summary()["sources_unchanged"], 1, "{to}");
        // A record that is taken in again unchanged is told from one that changed.
        private.write("a.csv", "id,sex,year\na1,f,1970\na2,m,1999\n");
        private.run("convert a.csv --on-changed replace --id-key key").ok();
        let diff = private.run("manifest --diff v3 v4 --json").ok().summary();
        assert_eq!((&diff["records_changed"], &diff["records_rewritten"]), (&1.into(), &1.into()), "{to} {diff}");
    }
}

#[test]
fn keys_are_random_and_shown_nowhere() {
    let folder = Folder::new();
    folder.write("a.csv", "id\n1\n");
    folder.write("zeros", [0; 32]);
    let refused = folder.run("convert a.csv --id id --id-mode hmac --id-key zeros");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("32 zero bytes"), "{}", refused.stderr);
    let key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let refused = folder.run(&format!("convert a.csv --id id --id-mode hmac --id-key {key}"));
    assert_eq!(refused.code, 2);
    assert!(!refused.stderr.contains(&key[..8]) && refused.stderr.contains("found a key"), "{}", refused.stderr);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.write("key", [7; 32]);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let warned = folder.run("convert a.csv --id id --id-mode hmac --id-key key").ok();
        assert!(warned.stderr.contains("others on this machine can read"), "{}", warned.stderr);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let quiet = folder.run("convert a.csv --id-key key").ok();
        assert!(!quiet.stderr.contains("others"), "{}", quiet.stderr);
    }
}

#[test]
fn lineage_of_a_private_dataset_names_nobody() {
    let folder = Folder::new();
    folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    folder.write("PAT-1/a.csv", "id,v\nPAT-1,1\n");
    folder.write("PAT-1/.git/HEAD", "ref: refs/heads/import/PAT-1\n");
    folder.write("PAT-1/.git/refs/heads/import/PAT-1", "0123456789abcdef0123456789abcdef01234567\n");
    folder.write("PAT-1/b.csv", "id,v\nPAT-1,1\nPAT-2,2,3\n");
    let private = "--id id --id-mode hmac --id-key key --redact-source-paths --openlineage events.jsonl";
    assert_eq!(folder.run(&format!("convert PAT-1/b.csv {private}")).code, 6);
    folder.run(&format!("convert PAT-1/a.csv {private}")).ok();
    assert_eq!(folder.run(&format!("convert PAT-1/b.csv {private}")).code, 6);
    folder.run("erase shards PAT-1 --id-key key --openlineage events.jsonl").ok();
    let events = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
    assert!(events.contains("\"hmac:") && events.contains("shardify convert failed (Input)"), "{events}");
    assert!(!events.contains("PAT-"), "{events}");
    // The log names neither the branch nor the folder; the commit it does.
    let log = std::fs::read_dir(folder.path().join("shards/_shardify/log")).unwrap();
    for entry in log {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains("PAT-"), "{text}");
    }
    let history = folder.run("manifest --log --json --id-key key").stdout;
    assert!(!history.contains("import/PAT"), "{history}");
}

#[test]
fn a_proof_says_whose_hashes_it_shows() {
    let folder = Folder::new();
    folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    folder.write("a.csv", (0..200).fold("id\n".to_owned(), |text, id| text + &format!("PAT-{id}\n")));
    folder.run("convert a.csv --id id --out plain --proofs").ok();
    folder.run("convert a.csv --id id --out private --proofs --id-mode hmac --id-key key").ok();
    let told = folder.run("manifest plain --prove PAT-X --out proof.json").ok();
    assert!(told.stderr.contains("the proof shows") && told.stderr.contains("hashes of ids"), "{}", told.stderr);
    let quiet = folder.run("manifest private --prove PAT-X --out proof.json --id-key key").ok();
    assert!(!quiet.stderr.contains("shows"), "{}", quiet.stderr);
}

#[test]
fn salted_datasets_of_one_key_have_tokens_of_their_own() {
    let folder = Folder::new();
    folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    folder.write("wrong", "100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    folder.write("a.csv", "id,v\nPAT-1,1\nPAT-2,2\nPAT-3,3\n");
    folder.write("b.csv", "id,v\nPAT-4,4\nPAT-2,5\n");
    let exported = |dataset: &str| -> Vec<String> {
        let lines = folder.run(&format!("manifest {dataset} --export jsonl")).ok().stdout;
        lines.lines().filter_map(|line| line.split("\"record_id\":\"").nth(1)).map(|id| id[..32].to_owned()).collect()
    };
    for mode in ["hmac", "sealed"] {
        for (dataset, salt) in [("plain", ""), ("one", "--id-salt"), ("other", "--id-salt")] {
            let dataset = format!("{mode}-{dataset}");
            folder
                .run(&format!(
                    "convert a.csv --id id --out {dataset} --id-mode {mode} --id-key key {salt} --redact-source-paths \
                 --proofs --openlineage e.jsonl"
                ))
                .ok();
        }
        let tokens = ["plain", "one", "other"].map(|dataset| exported(&format!("{mode}-{dataset}")));
        assert!(tokens.iter().all(|tokens| tokens.len() == 3), "{tokens:?}");
        assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2] && tokens[0] != tokens[2], "{tokens:?}");
        let dataset = format!("{mode}-one");
        assert_eq!(folder.run(&format!("manifest {dataset} --find PAT-2 --id-key wrong")).code, 2);
        folder.run(&format!("manifest {dataset} --find PAT-2 --id-key key")).ok();
        folder.run(&format!("manifest {dataset} --prove PAT-2 --out p.json --id-key key")).ok();
        let root = folder.run(&format!("manifest {dataset} --root --json")).ok().summary()["root"].clone();
        let root = root.as_str().unwrap();
        folder.run(&format!("verify-proof p.json --root {root} --id PAT-2 --id-key key")).ok();
        assert_eq!(folder.run(&format!("verify-proof p.json --root {root} --id PAT-3 --id-key key")).code, 1);
        assert_eq!(folder.run(&format!("verify-proof p.json --root {root} --id PAT-2 --id-key wrong")).code, 1);
        folder.run(&format!("erase {dataset} PAT-2 --all-versions --id-key key")).ok();
        let again = folder.run(&format!("convert b.csv --out {dataset} --id-key key --json")).ok().summary();
        assert_eq!((&again["records_erased"], &again["records_out"]), (&1.into(), &1.into()), "{again}");
        folder.run(&format!("compact {dataset} --min-inputs 2")).ok();
        folder.run(&format!("verify {dataset} --read-data --id-key key")).ok();
        let refused = folder.run(&format!("convert b.csv --out {mode}-plain --id-key key --id-salt"));
        assert_eq!(refused.code, 2, "{}", refused.stderr);
    }
    assert_eq!(folder.run("convert a.csv --id id --out x --id-salt").code, 2);
    let events = std::fs::read_to_string(folder.path().join("e.jsonl")).unwrap();
    assert!(!events.contains("a.csv"), "{events}");
}
