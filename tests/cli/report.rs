//! `report`: its numbers are those of the data, its page holds nothing but text and drawings, and no id of a private
//! dataset.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeMap;

use serde_json::Value;
use support::{Folder, testdata_path};

/// The objects of one type that `report --json` prints.
fn objects(folder: &Folder, arguments: &str, kind: &str) -> Vec<Value> {
    let ran = folder.run(&format!("report {arguments} --json")).ok();
    ran.objects().into_iter().filter(|object| object["type"] == kind).collect()
}

fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    objects.into_iter().map(|object| (object["column"].as_str().unwrap().to_owned(), object)).collect()
}

fn page(folder: &Folder, arguments: &str) -> String {
    folder.run(&format!("report {arguments} --html page.html")).ok();
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    check(&page);
    page
}

/// Asserts that a page needs nothing else, has no scripts, and closes what it opens.
#[track_caller]
pub(crate) fn check(page: &str) {
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    for forbidden in ["<script", "http:", "https:", "javascript:", "<link", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(!page.contains(['\u{202e}', '\u{200f}', '\u{61c}', '\u{0}', '\u{1b}']));
    let (mut open, mut rest) = (Vec::new(), page);
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').unwrap();
        let tag = &rest[start + 1..end];
        let name = tag.split([' ', '\n']).next().unwrap().trim_end_matches('/');
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name.to_owned()), "</{name}> in {}", &rest[..end.min(200)]),
            None if name.starts_with('!') || tag.ends_with('/') || ["meta", "br", "img"].contains(&name) => {}
            None => open.push(name.to_owned()),
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn numbers_of_a_table_are_those_of_its_rows() {
    let folder = Folder::new();
    let rows = |first: u64| -> String {
        (first..first + 500)
            .map(|n| format!("{n},{},{}\n", if n % 5 == 0 { String::new() } else { (n * n % 97).to_string() }, n % 3))
            .collect()
    };
    folder.write("in/a.csv", format!("id,x,kind\n{}", rows(0)));
    folder.run("convert in --out d --id id --quiet").ok();
    folder.write("in/b.csv", format!("id,x,kind\n{}", rows(500)));
    folder.run("convert in --out d --id id --quiet").ok();
    folder.run("manifest d --tag first --at v1").ok();
    let columns = by_name(objects(&folder, "d", "column"));
    let x = &columns["x"];
    let expected: Vec<u64> = (0..1_000_u64).filter(|n| n % 5 != 0).map(|n| n * n % 97).collect();
    assert_eq!((&x["nulls"], &x["range_exact"]), (&200.into(), &true.into()));
    assert_eq!(x["min"], expected.iter().min().unwrap().to_string());
    assert_eq!(x["max"], expected.iter().max().unwrap().to_string());
    let bins = x["bins"].as_array().unwrap();
    assert_eq!(bins.iter().map(|bin| bin["count"].as_u64().unwrap()).sum::<u64>(), 800);
    assert_eq!(columns["kind"]["top"][0]["value"], "0");
    assert_eq!(columns["kind"]["top"][0]["count"], 334);
    assert!(!columns.contains_key("id"), "ids are shown only if that is asked for");
    let with_ids = by_name(objects(&folder, "d --ids", "column"));
    assert_eq!((&with_ids["id"]["min"], &with_ids["id"]["max"]), (&"0".into(), &"999".into()));
    let summary = folder.run("report d --json").ok().summary();
    assert_eq!((&summary["records"], &summary["sample_is_all"]), (&1_000.into(), &true.into()));
    let versions = objects(&folder, "d", "version");
    assert_eq!(versions.len(), 3);
    assert_eq!((&versions[1]["records_in"], &versions[1]["records"]), (&500.into(), &1_000.into()));
    let text = folder.run("report d").ok().stdout;
    assert!(text.contains("records    1,000") && text.contains("0 to 96"), "{text}");
    let old = by_name(objects(&folder, "d --at first --ids", "column"));
    assert_eq!(old["id"]["max"], "499");
}

#[test]
fn drift_rejects_and_lineage_are_on_the_page() {
    let folder = Folder::new();
    folder.write("in/a.csv", "n,t\n1,a\n2,b\n3,c,too many\n4,d\n");
    folder.run("convert in --out d --on-error quarantine --quiet");
    folder.write("in/b.csv", "n,t\n1000,a\n2000,b\n3000,b\n");
    folder.run("convert in --out d --on-error quarantine --quiet");
    let page = page(&folder, "d --against v1");
    for text in ["Drift from v1 to v2", "Rejected records", "Lineage", "line 4", "a.csv", "v2 convert", "PSI"] {
        assert!(page.contains(text), "{text}");
    }
    let rejects = objects(&folder, "d", "reject");
    assert_eq!((rejects.len(), &rejects[0]["records"]), (1, &1.into()));
    assert_eq!(rejects[0]["examples"][0]["line"], 4);
    let folders = objects(&folder, "d", "source_folder");
    assert_eq!(folders.iter().map(|folder| folder["sources"].as_u64().unwrap()).sum::<u64>(), 2);
    let drift = objects(&folder, "d --against v1", "drift_column");
    assert_eq!(drift.len(), 2);
    assert!(folder.run("report d --against v9").code != 0);
}

#[test]
fn the_same_dataset_gives_the_same_page_on_any_number_of_threads() {
    let folder = Folder::new();
    let rows: String = (0..30_000).map(|n| format!("{n},{},text {}\n", n * 7 % 1_009, n % 50)).collect();
    folder.write("a.csv", format!("id,x,t\n{rows}"));
    folder.run("convert a.csv --out d --target-shard 64KiB --quiet").ok();
    let first = page(&folder, "d -j 1");
    assert_eq!(first, page(&folder, "d -j 4"));
}

#[test]
fn pictures_are_in_the_page() {
    let folder = Folder::new();
    let source = testdata_path("files").display().to_string();
    for to in ["tar", "tfrecord", "parquet"] {
        folder.run(&format!("convert {source} --out {to} --to {to} --quiet")).ok();
    }
    for source in ["tar", "tfrecord", "parquet", source.as_str()] {
        let page = page(&folder, source);
        for media in ["image/png", "image/jpeg", "image/webp"] {
            assert!(page.contains(&format!("src=\"data:{media};base64,")), "{source} {media}");
        }
    }
    let sizes = objects(&folder, "tar", "record_sizes");
    let records = folder.run("report tar --json").ok().summary()["records"].clone();
    let counted: u64 = sizes.iter().map(|bin| bin["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, records.as_u64().unwrap());
}

#[test]
fn private_datasets_show_no_ids_and_no_sources() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = Folder::new();
        folder.write("key", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
        let rows: String = (0..40).map(|n| format!("VISIT-{n},PATIENT-{},{n}\n", n % 7)).collect();
        folder.write("in/PATIENT-secret.csv", format!("visit,patient,x\n{rows}VISIT-99,PATIENT-99,1,2,3\n"));
        let ids = "--id-mode hmac --id-key key --id visit --subject patient";
        folder.run(&format!("convert in --out d --to {to} {ids} --on-error quarantine --quiet"));
        let (page, json) = (page(&folder, "d"), folder.run("report d --json").ok().stdout);
        let text = folder.run("report d").ok().stdout;
        for shown in [&page, &json, &text] {
            assert!(!shown.contains("VISIT-") && !shown.contains("PATIENT-"), "{to}: {shown}");
            assert!(shown.contains("private") || shown.contains("hidden"), "{to}");
        }
        assert!(page.contains("Rejected records"), "{to}");
    }
}

#[test]
fn names_and_values_are_never_markup() {
    let folder = Folder::new();
    let hostile = "<script>alert(1)</script></style><img src=x onerror=\"a\">'&amp;\u{202e}\u{200f}\u{61c}";
    let quoted = format!("\"{}\"", hostile.replace('"', "\"\""));
    folder.write("</script><b>.csv", format!("{quoted},b\n{quoted},\u{1b}[31m\n{quoted},2\n1,2,3,4\n"));
    folder.run_with(&["convert", "</script><b>.csv", "--out", "<i>d", "--on-error", "quarantine", "--quiet"]);
    for source in ["<i>d", "</script><b>.csv"] {
        folder.run_with(&["report", source, "--html", "page.html"]).ok();
        let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
        check(&page);
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{source}");
        let printed = folder.run_with(&["report", source]).ok().stdout;
        assert!(!printed.contains(['\u{202e}', '\u{1b}', '\u{61c}']), "{printed}");
    }
}

#[test]
fn sources_are_described_before_they_are_converted() {
    let folder = Folder::new();
    folder.write("in/a.csv", "id,x\n1,2.5\n2,\n");
    folder.write("in/b.csv", "id,x\n3,7.5\n");
    let columns = by_name(objects(&folder, "in", "column"));
    assert_eq!(columns["id"]["max"], "3");
    assert!((columns["x"]["null_share"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9);
    let summary = folder.run("report in --json").ok().summary();
    assert_eq!((&summary["records"], &summary["files"], &summary["version"]), (&3.into(), &2.into(), &Value::Null));
    page(&folder, "in");
    let parquet = testdata_path("inputs/people.parquet").display().to_string();
    assert!(!objects(&folder, &parquet, "column").is_empty());
    for wrong in ["report nothing", "report in --at v1", "report in --against v1", "report in --html no/page.html"] {
        let ran = folder.run(wrong);
        assert!(ran.code != 0 && ran.stderr.starts_with("error: "), "{wrong}: {ran:?}");
    }
    let bad = testdata_path("bad").display().to_string();
    let ran = folder.run(&format!("report {bad}"));
    assert!(ran.code != 70, "{ran:?}");
}

#[test]
fn the_page_replaces_files_and_nothing_else() {
    let folder = Folder::new();
    folder.write("a.csv", "id\n1\n");
    folder.write("kept", "old");
    std::os::unix::fs::symlink("kept", folder.path().join("link")).unwrap();
    folder.run("report a.csv --html link").ok();
    assert!(folder.path().join("link").is_symlink());
    assert!(std::fs::read_to_string(folder.path().join("kept")).unwrap().starts_with("<!doctype html>"));
    folder.run("report a.csv --html /dev/null").ok();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    let ran = folder.run("report a.csv --html /dev/full");
    assert!(ran.code == 5 && ran.stderr.contains("error: "), "{ran:?}");
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "no temporary file is left: {names:?}");
}

/// Every Parquet file of the corpus is described, or refused with an error.
#[test]
fn damaged_tables_are_no_bugs() {
    let Some(corpus) = support::corpus::folder() else { return };
    let folder = Folder::new();
    let mut files = Vec::new();
    let mut folders = vec![corpus];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "parquet") {
                files.push(entry);
            }
        }
    }
    files.sort();
    assert!(files.len() > 20);
    for file in files.iter().step_by(5) {
        let ran = folder.run_with(&["report", file.to_str().unwrap(), "--html", "page.html"]);
        assert!([0, 2, 3, 5, 6].contains(&ran.code), "{}: {ran:?}", file.display());
        if ran.code == 0 {
            check(&std::fs::read_to_string(folder.path().join("page.html")).unwrap());
        }
    }
}
