//! The corpus of real files, where it is present: everything converts to all three outputs with the oracle's counts.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use support::{Folder, corpus};

/// Files of a kind with the number of records that the oracle counts in each; of CSV, without the header.
fn oracle(corpus: &Path, kind: &str) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(corpus.join("ORACLE.tsv")).unwrap();
    let mut out = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0].starts_with(&format!("{kind}/")) && fields[2] == "ok" {
            let count: u64 = fields[4].parse().unwrap_or(0);
            let header = u64::from(fields[3].starts_with("csv-rows"));
            out.push((fields[0].to_owned(), count - header));
        }
    }
    out
}

/// Converts a source to all three outputs and checks the counts.
fn converts(source: &Path, expected: u64) {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = Folder::new();
        let ran = folder.run_with(&["convert", source.to_str().unwrap(), "--to", to, "--json"]);
        assert_eq!(ran.code, 0, "{} to {to}: {ran:?}", source.display());
        let summary = ran.summary();
        let counts = ["records_in", "records_out", "records_rejected"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counts, [expected, expected, 0], "{} to {to}", source.display());
        folder.run("verify --read-data").ok();
    }
}

/// Runs a test over a kind, or says that the corpus is not here.
fn with_corpus(test: impl FnOnce(PathBuf)) {
    if let Some(path) = corpus::folder() {
        test(path);
    }
}

#[test]
fn real_tables_have_the_oracles_counts() {
    with_corpus(|corpus| {
        for kind in ["csv-real", "jsonl-real"] {
            let files = oracle(&corpus, kind);
            assert!(files.len() >= 4);
            for (file, count) in &files {
                converts(&corpus.join(file), *count);
            }
            converts(&corpus.join(kind), files.iter().map(|(_, count)| count).sum());
        }
    });
}

#[test]
fn patients_have_the_oracles_counts() {
    with_corpus(|corpus| {
        let files = oracle(&corpus, "patients");
        for (file, count) in files.iter().filter(|(name, _)| name.ends_with(".csv")) {
            converts(&corpus.join(file), *count);
        }
        converts(&corpus.join("patients"), files.iter().map(|(_, count)| count).sum());
    });
}

/// Images and audio: every file is a part of exactly one sample, and samples are counted by the WebDataset rule.
#[test]
fn media_are_grouped_by_the_webdataset_rule() {
    with_corpus(|corpus| {
        for kind in ["images", "audio"] {
            let keys: HashSet<String> = std::fs::read_to_string(corpus.join("MANIFEST.tsv"))
                .unwrap()
                .lines()
                .filter_map(|l| l.split('\t').next()?.strip_prefix(&format!("{kind}/")).map(str::to_owned))
                .map(|path| {
                    let start = path.rfind('/').map_or(0, |i| i + 1);
                    let dot = path[start..].find('.').map_or(path.len(), |i| start + i);
                    path[..dot].to_owned()
                })
                .collect();
            assert!(keys.len() > 30);
            converts(&corpus.join(kind), keys.len() as u64);
        }
    });
}

/// Whatever the file, the outcome is a conversion that accounts for everything or an error that says what to do; never
/// a panic, and never a hang.
#[test]
fn hostile_text_ends_in_counts_or_in_an_error() {
    with_corpus(|corpus| {
        for kind in ["csv-edge", "json-edge"] {
            let mut files = Vec::new();
            walk(&corpus.join(kind), &mut files);
            assert!(files.len() > 200);
            for file in files {
                let folder = Folder::new();
                let arguments =
                    ["convert", file.to_str().unwrap(), "--json", "--on-error", "skip", "--memory", "64MiB"];
                let ran = folder.run_with(&arguments);
                let name = file.display();
                assert!(matches!(ran.code, 0 | 2 | 3 | 6), "{name}: {ran:?}");
                assert!(!ran.stderr.contains("panicked"), "{name}: {ran:?}");
                if matches!(ran.code, 0 | 3) {
                    let s = ran.summary();
                    let [i, o, r] = ["records_in", "records_out", "records_rejected"].map(|n| s[n].as_u64().unwrap());
                    assert_eq!(i, o + r, "{name}");
                } else {
                    let error = ran.error();
                    let helps = error["hints"] != serde_json::json!([]) || error["source"].is_string();
                    assert!(error["type"] == "error" && helps, "{name}: {ran:?}");
                }
            }
        }
    });
}

fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, out) } else { out.push(path) }
    }
    out.sort();
}
