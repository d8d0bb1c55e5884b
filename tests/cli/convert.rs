//! `convert` as a user meets it: inputs, types, bad records, options.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use insta::assert_snapshot;
use support::Folder;

#[test]
fn the_summary_accounts_for_every_record() {
    let folder = Folder::new();
    folder.write("a.csv", "id,name\n1,ada\n\n2\n3,grace\n");
    let ran = folder.run("convert a.csv --codec none").ok();
    assert_snapshot!(folder.redact(&ran.stdout).lines().filter(|l| !l.contains("written")).collect::<Vec<_>>().join("\n"), @r"
    v1 of [FOLDER]/shards
      read       3 records from 1 source, 25 B
      rejected   0
      filtered   0
      duplicate  0
      blank      1 line (not records)
      padded     1 record with fewer fields than the header
    ");
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_bad_record_stops_the_run_with_its_place() {
    let folder = Folder::new();
    folder.write("a.csv", "id,name\n1,ada\n2,grace,extra,field\n");
    let ran = folder.run("convert a.csv");
    assert_eq!(ran.code, 6);
    assert_snapshot!(folder.redact(&ran.stderr), @r"
    error: expected 2 fields, found 4
       at: [FOLDER]/a.csv, line 3, byte 14
     hint: skip bad records with --on-error skip, or keep them in a file with --on-error quarantine
    ");
    assert_eq!(ran.stdout, "");
    assert_eq!(folder.run("manifest").code, 2, "nothing was committed");
}

#[test]
fn rejects_are_counted_or_kept() {
    let folder = Folder::new();
    folder.write("a.csv", b"id,name\n1,ada\n2,grace,extra\n3,\xff\n4,\"linus\"\n");
    let skipped = folder.run("convert a.csv --json --out skipped --on-error skip");
    assert_eq!(skipped.code, 3);
    let summary = skipped.summary();
    assert_eq!(summary["records_in"], 4);
    assert_eq!(summary["records_out"], 2);
    assert_eq!(summary["records_rejected"], 2);
    let kept = folder.run("convert a.csv --json --out kept --on-error quarantine");
    assert_eq!(kept.code, 3);
    let path = kept.summary()["rejects"].as_str().unwrap().to_owned();
    let rejects = std::fs::read_to_string(folder.path().join("kept").join(path)).unwrap();
    let lines: Vec<serde_json::Value> = rejects.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((lines[0]["line"].as_u64(), lines[0]["row"].as_u64()), (Some(3), Some(2)));
    assert_eq!(lines[0]["raw"], "2,grace,extra");
    assert_eq!(lines[1]["raw_base64"], "Myz/");
    // Rows keep their numbers in the source, so ids stay right beside rejects.
    let hit = &folder.run("manifest kept --json --find a.csv#4").ok().objects()[0];
    assert_eq!((hit["ordinal"].as_u64(), hit["origin"]["row"].as_u64()), (Some(1), Some(4)));
    assert_eq!(folder.run("manifest kept --find a.csv#2").code, 1);
}

#[test]
fn a_late_mismatch_widens_the_column_and_loses_nothing() {
    let folder = Folder::new();
    let mut text = "n,when,flag\n".to_owned();
    for i in 0..60_000 {
        text.push_str(&format!("{i},2024-01-01,true\n"));
    }
    text.push_str("1.5,2024-01-01 10:00:00,maybe\n007,soon,true\n");
    folder.write("a.csv", text);
    let ran = folder.run("convert a.csv --json").ok();
    assert!(ran.stderr.contains("but contains `1.5`; starting again with text"), "{ran:?}");
    let summary = ran.summary();
    assert_eq!(summary["records_out"], 60_002);
    let types: Vec<&str> = summary["columns"].as_array().unwrap().iter().map(|c| c[1].as_str().unwrap()).collect();
    assert_eq!(types, ["text", "text", "text"]);
    folder.run("verify --read-data").ok();
}

/// Where types are inferred, the first records have no value in some places.
#[test]
fn columns_without_values_at_first_have_the_types_of_later_ones() {
    let folder = Folder::new();
    let (mut table, mut lines) = ("id,n,when,word,never\n".to_owned(), String::new());
    for i in 0..40_000 {
        let has = i >= 30_000;
        let then = |text: &'static str| if has { text } else { "" };
        table.push_str(&format!(
            "patient-{i:08},{},{},{},\n",
            if has { i.to_string() } else { String::new() },
            then("2026-01-02"),
            then("b")
        ));
        let (member, items) = if has { (i.to_string(), "[1.5]") } else { ("null".to_owned(), "[]") };
        lines.push_str(&format!("{{\"a\":{{\"n\":{member}}},\"items\":{items},\"any\":{{{}}}}}\n", then("\"x\":true")));
    }
    folder.write("a.csv", table);
    folder.write("a.jsonl", lines);
    let types = |sources: &str| {
        let ran = folder.run(&format!("convert {sources} --json")).ok();
        assert_eq!(ran.stderr.matches("but contains").count(), 1, "{}", ran.stderr);
        let summary = ran.summary();
        let column = |c: &serde_json::Value| format!("{}:{}", c[0].as_str().unwrap(), c[1].as_str().unwrap());
        let columns: Vec<_> = summary["columns"].as_array().unwrap().iter().map(column).collect();
        (columns.join(" "), summary["records_out"].as_u64().unwrap(), summary["records_filtered"].as_u64().unwrap())
    };
    let table = "id:text n:int64 when:date word:text never:text".to_owned();
    assert_eq!(types("a.csv --out table"), (table.clone(), 40_000, 0));
    // A condition on such a column is about the values that it has.
    assert_eq!(types("a.csv --out some --where n>=39990"), (table, 10, 39_990));
    let nested = "a:struct<n: int64> items:list<float64> any:struct<x: bool>".to_owned();
    assert_eq!(types("a.jsonl --out nested"), (nested, 40_000, 0));
    for dataset in ["table", "some", "nested"] {
        folder.run(&format!("verify {dataset} --read-data")).ok();
    }
    // What was seen is what the dataset is bound to; where nothing was, it is still open.
    let types = &folder.run("manifest table --json").ok().objects()[0]["settings"]["types"];
    assert_eq!((&types[3]["type"], &types[4]["type"]), (&"text".into(), &"null".into()), "{types}");
}

/// The head of a table of many columns ends within a record.
#[test]
fn wide_tables_have_the_types_of_whole_records() {
    let folder = Folder::new();
    let row = |cell: &dyn Fn(usize) -> String| (0..20_000).map(cell).collect::<Vec<_>>().join(",") + "\n";
    let numbers = row(&|column| format!("{}", 10_000 + column));
    folder.write("a.csv", row(&|column| format!("c{column}")) + &numbers.repeat(3));
    let summary = folder.run("convert a.csv --out d --json").ok().summary();
    assert!(summary["columns"].as_array().unwrap().iter().all(|column| column[1] == "int64"));
}

#[test]
fn more_columns_than_memory_are_refused_at_once() {
    let folder = Folder::new();
    let names: Vec<String> = (0..50_000).map(|column| format!("c{column}")).collect();
    folder.write("a.csv", names.join(",") + "\n" + &vec!["1"; 50_000].join(",") + "\n");
    let ran = folder.run("convert a.csv --out d --memory 512MiB");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("found 50000 columns") && ran.stderr.contains("--memory 549MiB"), "{}", ran.stderr);
    folder.run("convert a.csv --out d --memory 512MiB --columns c1,c49999").ok();
    folder.run("convert a.csv --out tar --to tar --memory 512MiB --quiet").ok();
}

#[test]
fn long_records_of_text_come_back_from_a_table() {
    let folder = Folder::new();
    let rows: Vec<Vec<String>> = (0..300)
        .map(|row| (0..400).map(|column| format!("w{row}x{column}").repeat(row * column % 5)).collect())
        .collect();
    let names: Vec<String> = (0..400).map(|column| format!("c{column}")).collect();
    let lines = std::iter::once(&names).chain(&rows).map(|row| row.join(",") + "\n");
    folder.write("a.csv", lines.collect::<String>());
    folder.run("convert a.csv --out d --to tar --rows json --quiet").ok();
    let members = folder.members("d");
    assert_eq!(members.len(), rows.len());
    for (member, row) in members.values().zip(&rows) {
        let found: serde_json::Value = serde_json::from_slice(member).unwrap();
        let expected = |(name, cell): (&String, &String)| found[name].as_str().unwrap_or_default() == cell;
        assert!(names.iter().zip(row).all(expected), "{found}");
    }
}

#[test]
fn a_pinned_type_rejects_what_does_not_fit() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\nx\n");
    let ran = folder.run("convert a.csv --type n=int32");
    assert_eq!(ran.code, 6);
    assert!(ran.stderr.contains("line 3") && ran.stderr.contains("`n`"), "{ran:?}");
    folder.run("convert a.csv --type n=text").ok();
}

#[test]
fn the_same_conversion_is_byte_identical_at_any_number_of_jobs() {
    for to in ["parquet", "tar", "tfrecord", "tar --codec zstd", "tfrecord --codec gzip", "parquet --codec gzip"] {
        let folder = Folder::new();
        let tables = support::testdata_path("patients");
        let convert = |jobs: u32| {
            folder
                .run(&format!(
                    "convert {} --out d{jobs} --jobs {jobs} --to {to} --target-shard 200KiB",
                    tables.display()
                ))
                .ok();
            folder.shards_below_tags(&format!("d{jobs}"))
        };
        let one = convert(1);
        assert!(one.len() > 1, "{to}");
        assert!(one == convert(2), "{to}: 2 jobs");
        assert!(one == convert(7), "{to}: 7 jobs");
    }
}

#[test]
fn shards_hit_the_target() {
    let folder = Folder::new();
    let mut text = "id,kind,score,note\n".to_owned();
    for i in 0..150_000_u64 {
        let noise = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        text.push_str(&format!("{i},{},{}.{:03},note {noise:x}\n", i % 7, noise % 1000, noise % 997));
    }
    folder.write("a.csv", text);
    for to in [
        "parquet --codec none",
        "parquet --codec zstd",
        "parquet --codec snappy",
        "parquet --codec lz4",
        "parquet --codec gzip",
        "tar",
        "tar --codec gzip",
        "tar --codec zstd",
        "tfrecord",
        "tfrecord --codec gzip",
    ] {
        let out = to.replace(' ', "");
        folder.run(&format!("convert a.csv --out {out} --to {to} --target-shard 512KiB")).ok();
        let sizes: Vec<usize> = folder.only_shards(&out).iter().map(|(_, bytes)| bytes.len()).collect();
        assert!(sizes.len() > 2, "{to}: {sizes:?}");
        for size in &sizes[..sizes.len() - 1] {
            let off = *size as f64 / f64::from(512 << 10);
            assert!((0.9..=1.1).contains(&off), "{to}: {off:.3} in {sizes:?}");
        }
    }
}

#[test]
fn files_become_samples_by_the_webdataset_rule() {
    let folder = Folder::new();
    folder.write("raw/a/1.jpg", "one");
    folder.write("raw/a/1.json", "{}");
    folder.write("raw/a/1.seg.png", "mask");
    folder.write("raw/b/2.JPG", "two");
    folder.write("raw/NOTES", "no extension");
    folder.write("raw/.hidden", "x");
    let summary = folder.run("convert raw --json").ok().summary();
    assert_eq!((summary["format"].as_str(), summary["records_out"].as_u64()), (Some("tar"), Some(3)));
    assert_eq!(summary["files_passed_over"], 1);
    let hit = folder.run("manifest --json --find a/1").ok().objects()[0].clone();
    assert_eq!(hit["origin"]["source"], "a/1.{jpg,json,seg.png}");
    let shards = folder.only_shards("shards");
    let names: Vec<String> = tar::Archive::new(shards[0].1.as_slice())
        .entries()
        .unwrap()
        .map(|e| e.unwrap().path().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["NOTES.bin", "a/1.jpg", "a/1.json", "a/1.seg.png", "b/2.jpg"]);
}

#[test]
fn tables_beside_other_files_are_not_guessed() {
    let folder = Folder::new();
    folder.write("raw/a.jpg", [0xff, 0xd8, 0xff, 0x00]);
    folder.write("raw/labels.csv", "file,label\na.jpg,cat\n");
    let ran = folder.run("convert raw");
    assert_eq!(ran.code, 2);
    assert_snapshot!(folder.redact(&ran.stderr), @r"
    error: expected either records or files, found both: `labels.csv` contains records, `a.jpg` does not
     hint: if it has the labels of the other files: --labels [FOLDER]/raw/labels.csv
     hint: to convert the files with records alone: --include '*.csv' (or *.jsonl ...)
     hint: to convert all files as samples, grouped by name: --from files
    ");
    folder.run("convert raw --from files --out files").ok();
    folder.run_with(&["convert", "raw", "--include", "*.csv", "--out", "tables"]).ok();
}

#[test]
fn a_changed_source_is_named() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    folder.run("convert a.csv").ok();
    folder.write("a.csv", "n\n1\n2\n");
    let ran = folder.run("convert a.csv");
    assert_eq!(ran.code, 8);
    assert!(ran.stderr.contains("a.csv") && ran.stderr.contains("--on-changed"), "{ran:?}");
    assert_eq!(folder.run("convert a.csv --on-changed skip --json").ok().summary()["version"], 1);
    assert_eq!(folder.run("convert a.csv --on-changed append --json").ok().summary()["version"], 2);
    assert_eq!(folder.run("verify --read-data --json").ok().summary()["records"], 3);
}

#[test]
fn combinations_that_no_reader_opens_are_refused() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    for to in ["tar --codec lz4", "tar --codec snappy", "tfrecord --codec zstd", "tfrecord --codec lz4"] {
        let ran = folder.run(&format!("convert a.csv --to {to}"));
        assert_eq!(ran.code, 2, "{to}");
        assert!(ran.stderr.contains("hint: "), "{to}: {ran:?}");
    }
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    let ran = folder.run("convert a.csv --dry-run").ok();
    assert!(ran.stdout.contains("would convert 1 source"), "{ran:?}");
    assert!(ran.stdout.contains("about      1 record in 1 shard"), "{ran:?}");
    let sampled = "from       the first records of each source: later ones may widen types";
    assert!(!ran.stdout.contains(sampled), "{ran:?}");
    let large = folder.run(&format!("convert {} --dry-run", support::testdata_path("patients").display())).ok();
    assert!(large.stdout.contains(sampled), "{large:?}");
    for to in ["parquet", "tar", "tfrecord"] {
        let tables = support::testdata_path("patients");
        let plan = folder.run(&format!("convert {} --to {to} --dry-run --json", tables.display())).ok().summary();
        let records = plan["estimate"]["records"].as_f64().unwrap();
        assert!((records / 18_640.0 - 1.0).abs() < 0.2, "{plan}");
    }
    assert!(!folder.path().join("shards/_shardify/log").exists());
}

#[test]
fn compressed_tables_are_read() {
    use std::io::Write;
    let folder = Folder::new();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(b"n,m\n1,2\n3,4\n").unwrap();
    folder.write("a.csv.gz", gz.finish().unwrap());
    assert_eq!(folder.run("convert a.csv.gz --json").ok().summary()["records_out"], 2);
}

#[test]
fn empty_inputs_are_no_records_and_no_failure() {
    let folder = Folder::new();
    folder.write("in/empty.csv", "");
    folder.write("in/header.csv", "a,b\n");
    let summary = folder.run("convert in --json").ok().summary();
    assert_eq!((summary["records_in"].as_u64(), summary["version"].as_u64()), (Some(0), Some(1)));
    folder.run("verify --read-data").ok();
    folder.run("manifest").ok();
    folder.run("compact").ok();
}

#[test]
fn memory_that_a_record_does_not_fit_is_an_error_that_says_so() {
    let folder = Folder::new();
    folder.write("a.csv", format!("n\n\"{}\"\n", "x".repeat(9 << 20)));
    let ran = folder.run("convert a.csv --memory 32MiB");
    assert_eq!(ran.code, 6);
    assert!(ran.stderr.contains("--memory"), "{ran:?}");
    folder.run("convert a.csv --memory 512MiB").ok();
}
