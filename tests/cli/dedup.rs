//! `convert --dedup`: which records are duplicates, of what, and what later runs and commands make of them.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeSet;

use serde_json::Value;
use support::Folder;

/// Origins of the live records, in the order of the export.
fn origins(folder: &Folder, dataset: &str) -> Vec<String> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl")).ok();
    let row = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let origin = |row: Value| match &row["row"] {
        Value::Null => row["record_id"].as_str().unwrap().to_owned(),
        number => format!("{}#{number}", row["source"].as_str().unwrap()),
    };
    exported.stdout.lines().map(|line| origin(row(line))).collect()
}

/// Records in, out, rejected, deduplicated and filtered.
#[track_caller]
fn counts(summary: &Value) -> [u64; 5] {
    let count = |name: &str| summary[format!("records_{name}")].as_u64().unwrap();
    let found = ["in", "out", "rejected", "deduplicated", "filtered"].map(count);
    assert_eq!(found[0], found[1..].iter().sum::<u64>(), "{summary}");
    found
}

/// Contents of the live shards, by their paths below the folders of runs.
fn contents(folder: &Folder, dataset: &str) -> Vec<(String, Vec<u8>)> {
    let listed = folder.run(&format!("manifest {dataset} --list --paths")).ok();
    let read = |path: &str| {
        let below: Vec<&str> = path.split('/').skip_while(|name| *name != dataset).skip(2).collect();
        (below.join("/"), std::fs::read(path).unwrap())
    };
    listed.stdout.lines().map(read).collect()
}

/// Runs a conversion; returns its counts.
#[track_caller]
fn convert(folder: &Folder, arguments: &str) -> [u64; 5] {
    counts(&folder.run(&format!("convert {arguments} --json")).ok().summary())
}

fn write_rows(folder: &Folder) {
    let line = |row: usize| format!("{},\"{}\",{}\n", row % 7, ["", "a", "a\"\"b", "é"][row % 4], row % 3);
    folder.write("a.csv", format!("n,t,m\n{}", (0..5000).map(line).collect::<String>()));
    folder.write("b.csv", format!("m,n,t\n1,0,a\n{}1,99,a\n", "0,50,\n".repeat(3)));
}

#[test]
fn the_first_of_equal_rows_stays_at_any_number_of_threads() {
    let folder = Folder::new();
    write_rows(&folder);
    let mut kept: BTreeSet<Vec<String>> = BTreeSet::new();
    for to in ["parquet", "tar", "tfrecord", "parquet --split train=0.5,val=0.5", "tar --records-per-shard 10"] {
        let mut shards = BTreeSet::new();
        for jobs in [1, 2, 7] {
            let out = format!("{}-{jobs}", to.replace([' ', '=', ',', '.'], ""));
            let found = convert(
                &folder,
                &format!("a.csv b.csv --out {out} --to {to} --dedup content --jobs {jobs} --memory 64MiB"),
            );
            // 84 different rows, of which the second table repeats one.
            assert_eq!(found, [5005, 86, 0, 4919, 0], "{to}");
            shards.insert(contents(&folder, &out));
            let mut origins = origins(&folder, &out);
            origins.sort();
            kept.insert(origins);
            folder.run(&format!("verify {out} --read-data")).ok();
        }
        assert_eq!(shards.len(), 1, "{to}");
    }
    assert_eq!(kept.len(), 1, "{kept:?}");
    let kept = kept.pop_first().unwrap();
    let mut wanted: Vec<String> = (1..=84).map(|row| format!("a.csv#{row}")).collect();
    wanted.extend(["b.csv#2", "b.csv#5"].map(str::to_owned));
    wanted.sort();
    assert_eq!(kept, wanted);
}

#[test]
fn samples_are_equal_by_their_parts() {
    let folder = Folder::new();
    for (name, content) in [
        ("in/1/x.txt", "one"),
        ("in/1/x.cls", "7"),
        ("in/2/y.txt", "one"),
        ("in/2/y.cls", "7"),
        ("in/3/z.txt", "one7"),
        ("in/3/z.cls", ""),
        ("in/4/w.txt", "one"),
        ("in/5/v.text", "one"),
        ("in/6/u.txt", "one"),
    ] {
        folder.write(name, content);
    }
    let kept = ["1/x", "3/z", "4/w", "5/v"];
    for to in ["tar", "parquet"] {
        assert_eq!(convert(&folder, &format!("in --out {to} --to {to} --dedup content")), [6, 4, 0, 2, 0]);
        assert_eq!(origins(&folder, to), kept, "{to}");
    }
    assert_eq!(convert(&folder, "in --out ids --dedup id"), [6, 6, 0, 0, 0]);
    // The archive and the table of samples hold each sample twice.
    let tar = folder.path().join("plain");
    assert_eq!(convert(&folder, "in --out plain"), [6, 6, 0, 0, 0]);
    assert_eq!(convert(&folder, &format!("{} --out tars --dedup content", tar.display())), [6, 4, 0, 2, 0]);
    assert_eq!(convert(&folder, "in --out table --to parquet"), [6, 6, 0, 0, 0]);
    assert_eq!(convert(&folder, "table --out tables --to parquet --dedup content"), [6, 4, 0, 2, 0]);
    let error = folder.run("convert in --out x --dedup png");
    assert_eq!(error.code, 2);
    assert!(error.stderr.contains("no sample has a part `png`"), "{error:?}");
}

#[test]
fn ids_and_columns_name_what_is_compared() {
    let folder = Folder::new();
    folder.write("v.csv", "visit,patient,note\n1,A,x\n2,A,x\n1,B,y\n,A,x\n,A,x\n3,,z\n4,,z\n");
    let kept = |arguments: &str| {
        let out = format!("d{}", arguments.replace(' ', ""));
        let found = convert(&folder, &format!("v.csv --out {out} {arguments}"));
        assert_eq!(found[0], 7);
        let origin = |origin: String| origin.split_once('#').unwrap().1.to_owned();
        let kept: Vec<String> = origins(&folder, &out).into_iter().map(origin).collect();
        assert_eq!(kept.len() as u64, found[1]);
        kept.join(" ")
    };
    // Records without an id have their origins as ids; values that are null are equal.
    assert_eq!(kept("--id visit --dedup id"), "1 2 4 5 6 7");
    assert_eq!(kept("--dedup patient"), "1 3 6");
    assert_eq!(kept("--dedup patient,visit"), "1 2 3 4 6 7");
    assert_eq!(kept("--dedup patient --columns note"), "1 3 6");
    assert_eq!(kept("--dedup content --columns note --to tar"), "1 3 6");
    assert_eq!(kept("--dedup content --id visit --columns note"), "1 3 6");
    // Rows that are filtered out are nobody's first.
    let found = convert(&folder, "v.csv --out w --dedup patient --where visit>1");
    assert_eq!(found, [7, 2, 0, 1, 4]);
    for (arguments, said) in [
        ("--dedup id", "name the columns of the record id with --id"),
        ("--dedup patien", "there is a column `patient`"),
        ("--dedup patient,,x", "expected content, id, none"),
        ("--dedup patient --split train=0.5,val=0.5 --split-by nobody", "no source has this column"),
    ] {
        let ran = folder.run(&format!("convert v.csv --out x {arguments}"));
        assert!(ran.code == 2 && ran.stderr.contains(said), "{arguments}: {ran:?}");
    }
}

#[test]
fn rejected_rows_are_nobodys_first() {
    let folder = Folder::new();
    folder.write("r.csv", "n,t\n1,a\n2\"x,b\"\n1,a\n3,b\n3,b\n");
    folder.write("s.jsonl", "{\"n\": 1, \"t\": \"a\"}\n{\"n\": \n{\"t\": \"b\", \"n\": 3.0}\n");
    let ran = folder.run("convert r.csv s.jsonl --type n=int64 --out d --dedup content --on-error skip --json");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(counts(&ran.summary()), [8, 2, 2, 4, 0]);
    assert_eq!(origins(&folder, "d"), ["r.csv#1", "r.csv#4"]);
    // A value that does not fit starts the run again, and nothing of the first attempt counts.
    let many: String = (0..60_000).map(|row| format!("{{\"n\": {}}}\n", row % 100)).collect();
    folder.write("t.jsonl", format!("{many}{{\"n\": \"x\"}}\n{{\"n\": \"7\"}}\n"));
    assert_eq!(convert(&folder, "t.jsonl --out t --dedup content"), [60_002, 101, 0, 59_901, 0]);
}

/// Whatever was done to the records that the dataset holds, a later run omits those that are live, and no others.
#[test]
fn live_records_come_before_those_of_a_run() {
    let folder = Folder::new();
    let table = |name: &str, rows: std::ops::Range<u32>| {
        let row = |n: u32| format!("{n},P{:02},{}\n", n % 40, n / 2);
        folder.write(&format!("{name}.csv"), format!("n,patient,half\n{}", rows.map(row).collect::<String>()));
    };
    for (name, rows) in [("a", 0..200), ("b", 100..300), ("c", 0..400), ("d", 250..420)] {
        table(name, rows);
    }
    for (to, by) in [
        ("parquet", "content"),
        ("parquet", "n"),
        ("parquet", "id"),
        ("tar", "content"),
        ("tfrecord", "n,half"),
        ("parquet --id-mode hmac --id-key key", "content"),
        ("tar --id-mode hmac --id-key key", "id"),
    ] {
        folder.write("key", "0123456789abcdef0123456789abcdef");
        let (out, key) =
            (format!("{to} {by}").replace([' ', ',', '-'], ""), to.contains("key").then_some("--id-key key"));
        let key = key.unwrap_or_default();
        let first = format!("a.csv --out {out} --to {to} --id n --subject patient --dedup {by} --target-shard 4KiB");
        assert_eq!(convert(&folder, &first), [200, 200, 0, 0, 0], "{to} {by}");
        // The dataset keeps the setting.
        assert_eq!(convert(&folder, &format!("b.csv --out {out} {key}")), [200, 100, 0, 100, 0], "{to} {by}");
        folder.run(&format!("compact {out} --target-shard 64KiB")).ok();
        if to.starts_with("parquet") {
            folder.run(&format!("compact {out} --sort-by half")).ok();
        }
        folder.run(&format!("verify {out} --read-data")).ok();
        folder.run(&format!("erase {out} --subject P07 --all-versions {key}")).ok();
        folder.run(&format!("unblock {out} --subject P07 {key}")).ok();
        // 300 records less those of a patient (n % 40 == 7: 7, 47, ... 287), who may come back.
        assert_eq!(convert(&folder, &format!("c.csv --out {out} {key}")), [400, 108, 0, 292, 0], "{to} {by}");
        folder.run(&format!("remove {out} --source a.csv {key}")).ok();
        // The records of a.csv are gone; those of b.csv and c.csv are not.
        assert_eq!(convert(&folder, &format!("d.csv --out {out} {key}")), [170, 20, 0, 150, 0], "{to} {by}");
        table("e", 0..200);
        let again = convert(&folder, &format!("e.csv --out {out} {key}"));
        assert_eq!(again, [200, 195, 0, 5, 0], "{to} {by}");
        folder.run(&format!("verify {out} --read-data")).ok();
        let mut rows: Vec<String> = origins(&folder, &out);
        assert_eq!(rows.len(), 420);
        rows.sort();
        rows.dedup();
        assert_eq!(rows.len(), 420);
    }
}

#[test]
fn a_changed_source_is_compared_with_what_it_does_not_replace() {
    let folder = Folder::new();
    folder.write("a.csv", "n,m\n1,1\n2,2\n3,3\n");
    folder.write("b.csv", "n,m\n4,4\n");
    assert_eq!(convert(&folder, "a.csv b.csv --out d --dedup content"), [4, 4, 0, 0, 0]);
    folder.write("a.csv", "n,m\n1,1\n2,2\n3,3\n4,4\n5,5\n");
    assert_eq!(convert(&folder, "a.csv --out d --on-changed replace"), [5, 4, 0, 1, 0]);
    assert_eq!(origins(&folder, "d"), ["b.csv#1", "a.csv#1", "a.csv#2", "a.csv#3", "a.csv#5"]);
    // Types may be widened between runs: numbers are compared by value.
    folder.write("c.csv", "n,m\n1.0,1\n2.5,2\n,\n");
    assert_eq!(convert(&folder, "c.csv --out d --on-schema union"), [3, 2, 0, 1, 0]);
    // A column that is new and empty changes nothing.
    folder.write("e.jsonl", "{\"n\": 5, \"m\": 5, \"x\": null}\n{\"n\": 5, \"m\": 5, \"x\": 1}\n");
    assert_eq!(convert(&folder, "e.jsonl --out d"), [2, 1, 0, 1, 0]);
}

#[test]
fn a_dataset_has_one_setting() {
    let folder = Folder::new();
    folder.write("a.csv", "n,m\n1,1\n1,1\n");
    folder.write("b.csv", "n,m\n1,1\n2,2\n2,2\n");
    assert_eq!(convert(&folder, "a.csv --out plain --id n"), [2, 2, 0, 0, 0]);
    let error = folder.run("convert b.csv --out plain --dedup content");
    assert!(error.code == 2 && error.stderr.contains("found 2 records without one"), "{error:?}");
    assert!(error.stderr.contains("--out OTHER --dedup content"), "{error:?}");
    // Ids are in every dataset.
    assert_eq!(convert(&folder, "b.csv --out plain --dedup id"), [3, 1, 0, 2, 0]);
    // As the error says: a new dataset of the old one.
    assert_eq!(convert(&folder, "plain b.csv --out other --id n --dedup content"), [6, 2, 0, 4, 0]);
    let error = folder.run("convert b.csv --out other --dedup n");
    assert!(
        error.code == 2 && error.stderr.contains("expected --dedup content, as in this dataset, found n"),
        "{error:?}"
    );
    folder.write("c.csv", "n,m\n1,1\n3,3\n3,3\n");
    assert_eq!(convert(&folder, "c.csv --out other --dedup none"), [3, 3, 0, 0, 0]);
    folder.write("d.csv", "n,m\n3,3\n4,4\n");
    assert_eq!(convert(&folder, "d.csv --out other"), [2, 1, 0, 1, 0]);
    let log = folder.run("manifest other --history --json").ok();
    let entries: Vec<Value> = log.objects();
    let stated: Vec<&str> = entries.iter().filter_map(|entry| entry["arguments"]["dedup"].as_str()).collect();
    assert_eq!(stated.len(), 3, "{entries:?}");
    // Each task would see only its own records.
    let error = folder.run("plan convert d.csv --out new --dedup content");
    assert!(error.code == 2 && error.stderr.contains("duplicates are found among all records"), "{error:?}");
    assert_eq!(convert(&folder, "a.csv b.csv c.csv --out one --dedup content --task-size 8"), [8, 3, 0, 5, 0]);
}

#[test]
fn more_fingerprints_than_memory_holds_are_still_exact() {
    let folder = Folder::new();
    let rows: String = (0..400_000_u64).map(|row| format!("{}\n", row * 7_919 % 250_000)).collect();
    folder.write("a.csv", format!("n\n{rows}"));
    assert_eq!(convert(&folder, "a.csv --out d --dedup content --memory 64MiB"), [400_000, 250_000, 0, 150_000, 0]);
    let rows: String = (240_000..260_000).map(|row| format!("{row}\n")).collect();
    folder.write("b.csv", format!("n\n{rows}"));
    assert_eq!(convert(&folder, "b.csv --out d --memory 64MiB"), [20_000, 10_000, 0, 10_000, 0]);
}

/// The objects of a lookup of one type.
fn found(folder: &Folder, arguments: &str, code: u8, kind: &str) -> Vec<Value> {
    let ran = folder.run(&format!("manifest {arguments} --json"));
    assert_eq!(ran.code, i32::from(code), "{arguments}: {ran:?}");
    ran.objects().into_iter().filter(|object| object["type"] == kind).collect()
}

/// What was omitted is found by its id and its origin, with the place of the record that it repeats, as long as
/// neither is erased.
#[test]
fn what_was_left_out_is_on_record() {
    for (to, private) in [
        ("parquet", ""),
        ("tar", ""),
        ("parquet --split train=0.5,val=0.5", ""),
        ("tfrecord", "hmac"),
        ("parquet", "sealed"),
    ] {
        let folder = Folder::new();
        folder.write("key", "0123456789abcdef0123456789abcdef");
        let key = if private.is_empty() { "" } else { "--id-key key" };
        let mode = if private.is_empty() { String::new() } else { format!("--id-mode {private} {key}") };
        folder.write("a.csv", "id,patient,v\nV1,P1,x\nV2,P2,y\n");
        folder.write("b.csv", "id,patient,v\nV3,P3,x\nV4,P4,z\nV5,P1,z\n");
        folder.write("c.csv", "id,patient,v\nV6,P6,y\nV7,P7,x\nV8,P8,w\n");
        let first =
            format!("a.csv b.csv --out d --to {to} {mode} --id id --subject patient --dedup v --target-shard 1KiB");
        assert_eq!(convert(&folder, &first), [5, 3, 0, 2, 0]);
        assert_eq!(convert(&folder, &format!("c.csv --out d {key}")), [3, 1, 0, 2, 0]);
        let of = |id: &str| -> Vec<String> {
            let all = found(&folder, &format!("d --find {id} {key}"), 0, "duplicate");
            let place = |object: &Value| {
                let of = &object["of"];
                assert_eq!((&object["state"], &of["state"]), (&"duplicate".into(), &"live".into()), "{object}");
                assert!(folder.path().join("d").join(of["shard"].as_str().unwrap()).exists(), "{object}");
                format!("{}#{} {}", object["source"].as_str().unwrap(), object["row"], of["origin"]["row"])
            };
            all.iter().map(place).collect()
        };
        let look = || {
            assert_eq!(of("V3"), ["b.csv#1 1"]);
            assert_eq!(of("b.csv#3"), ["b.csv#3 2"]);
            assert_eq!(of("V6"), ["c.csv#1 2"]);
            assert_eq!((of("V7"), of("V1")), (vec!["c.csv#2 1".to_owned()], vec![]));
        };
        look();
        assert_eq!(found(&folder, &format!("d --find V6 --at v1 {key}"), 1, "duplicate"), Vec::<Value>::new());
        folder.run("compact d --target-shard 1MiB --min-inputs 2").ok();
        folder.run("vacuum d --force --retain 0s").ok();
        look();
        let told = folder.run(&format!("manifest d --find V3 {key}")).ok().stdout;
        assert!(told.contains("`V3` (b.csv row 1) was omitted in v1 as a duplicate of `"), "{told}");
        // Somebody of whom there is only a duplicate, and somebody of whom there is a record and a duplicate.
        folder.run(&format!("erase d --subject P3 --all-versions {key}"));
        assert!(found(&folder, &format!("d --find V3 {key}"), 1, "duplicate").is_empty());
        folder.run(&format!("erase d --subject P1 --all-versions {key}")).ok();
        assert!(found(&folder, &format!("d --find V5 {key}"), 1, "duplicate").is_empty());
        let left = found(&folder, &format!("d --find V7 {key}"), 0, "duplicate");
        assert!(left.len() == 1 && left[0]["of"].is_null(), "{left:?}");
        assert_eq!(of("V6"), ["c.csv#1 2"]);
        folder.run("verify d --read-data").ok();
    }
}

#[test]
fn samples_that_were_left_out_are_on_record() {
    let folder = Folder::new();
    for (name, content) in [("in/a.txt", "1"), ("in/b.txt", "2"), ("in/c.txt", "1"), ("more/d.txt", "2")] {
        folder.write(name, content);
    }
    assert_eq!(convert(&folder, "in --out d --dedup content"), [3, 2, 0, 1, 0]);
    assert_eq!(convert(&folder, "more --out d"), [1, 0, 0, 1, 0]);
    let of = |id: &str| found(&folder, &format!("d --find {id}"), 0, "duplicate")[0]["of"]["record_id"].clone();
    assert_eq!((of("c"), of("d")), ("a".into(), "b".into()));
}
