//! Tests of the reader against files of the real world, if a corpus of them is available.
//!
//! Without one, these tests report that they were not run (`format/corpus.rs`).

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::path::{Path, PathBuf};

use super::{
    JsonSource, Mode, sniff,
    tests::{read, rows},
};
use crate::format::corpus;

fn files(folder: &str) -> Vec<PathBuf> {
    let Some(root) = corpus::folder() else { return Vec::new() };
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x))
}

/// Returns files and the record counts of an independent reader.
fn oracle(kind: &str, what: &str) -> Vec<(PathBuf, u64)> {
    let root = files("").into_iter().find(|p| p.ends_with("ORACLE.tsv"));
    let Some(root) = root else { return Vec::new() };
    let text = std::fs::read_to_string(&root).unwrap();
    let lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    lines
        .filter(|f| f.len() > 4 && f[1] == kind && f[2] == "ok" && f[3] == what)
        .map(|f| (root.with_file_name(f[0]), f[4].parse().unwrap()))
        .collect()
}

#[test]
fn the_json_test_suite_is_accepted_and_refused_as_it_says() {
    for path in files("json-edge/nst__JSONTestSuite") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap();
        let document = read(&JsonSource::new(Mode::Document), &bytes);
        let found = sniff(&bytes, true).map(|source| read(&source, &bytes));
        // Inside an object, every kind of document can be a value.
        let wrapped = [b"{\"v\":", &bytes[..], b"}"].concat();
        let value = read(&JsonSource::new(Mode::Document), &wrapped);
        let twice = bytes.windows(11).any(|w| w == b"\"a\":\"b\",\"a\"");
        if name.starts_with("y_") && !twice {
            assert!(value.rejects.is_empty(), "{name}: {:?}", value.rejects);
            assert_eq!(value.payload.len(), 1);
            if bytes.trim_ascii().starts_with(b"{") {
                assert_eq!((document.payload.len(), document.rejects.len()), (1, 0), "{name}");
            }
        }
        if name.starts_with("n_") {
            assert!(found.is_none_or(|block| !block.rejects.is_empty()), "{name} was taken");
            assert!(!document.rejects.is_empty() || bytes.is_empty(), "{name} was taken as a document");
            // Python reads and writes these words.
            let word = ["n_number_NaN.json", "n_number_infinity.json", "n_number_minus_infinity.json"];
            assert_eq!(value.rejects.is_empty(), word.contains(&name.as_str()), "{name} as a value");
        }
    }
}

#[test]
fn line_counts_agree_with_an_independent_reader() {
    for (path, count) in oracle("jsonl-real", "json-lines") {
        let bytes = std::fs::read(&path).unwrap();
        let source = sniff(&bytes[..bytes.len().min(4096)], false).unwrap();
        assert_eq!(source.mode(), Mode::Lines);
        let block = read(&source, &bytes);
        assert_eq!((block.payload.len() as u64, block.rejects.len()), (count, 0), "{path:?}");
        for (row, line) in rows(&block).iter().zip(bytes.split(|&b| b == b'\n')) {
            let (ours, theirs): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(row).unwrap(), serde_json::from_slice(line).unwrap());
            assert_eq!(ours, theirs);
        }
    }
}

#[test]
fn edge_cases_of_lines_are_accounted_for() {
    for path in files("json-edge").into_iter().filter(|p| has_extension(p, &["ndjson", "jsonl", "json"])) {
        let bytes = std::fs::read(&path).unwrap();
        let block = read(&JsonSource::new(Mode::Lines), &bytes);
        let lines = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes).split(|&b| b == b'\n');
        let expected = lines.filter(|line| !line.trim_ascii().is_empty()).count();
        assert_eq!(block.records_in(), expected as u64, "{path:?}");
    }
}

#[test]
fn real_documents_are_read() {
    let all = files("json-real").into_iter().chain(files("patients"));
    for path in all.filter(|p| has_extension(p, &["json", "geojson"])) {
        let bytes = std::fs::read(&path).unwrap();
        let block = read(&JsonSource::new(Mode::Document), &bytes);
        let value: Result<serde_json::Value, _> = serde_json::from_slice(&bytes);
        match value {
            Ok(serde_json::Value::Object(_)) => assert_eq!(block.payload.len(), 1, "{path:?} {:?}", block.rejects),
            Ok(serde_json::Value::Array(items)) if items.first().is_some_and(serde_json::Value::is_object) => {
                assert_eq!(block.records_in(), items.len() as u64, "{path:?}");
                assert_eq!(block.rejects.len(), items.iter().filter(|i| !i.is_object()).count(), "{path:?}");
            }
            _ => assert!(!block.rejects.is_empty() || block.payload.is_empty(), "{path:?}"),
        }
    }
}
