//! `reshard`: the new dataset has the chosen records and nothing of the others, finds them, and lives on.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and look into every file")]

use crate::support;

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use support::Folder;

const FORMATS: [&str; 7] = [
    "parquet",
    "tar --codec none",
    "tar --codec zstd",
    "tar --codec gzip",
    "tfrecord --codec none",
    "tfrecord --codec gzip",
    support::INDEXED_PARTS,
];

fn csv(name: &str, rows: std::ops::Range<usize>) -> String {
    let rows: String = rows.map(|i| format!("{name}-{i}-x,PAT-{}-x,{i},text {}\n", i % 50, i * 7919 % 1009)).collect();
    format!("id,who,age,note\n{rows}")
}

/// Three sources of 300 rows, each converted by a run of its own.
fn dataset(options: &str) -> Folder {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(&format!("{name}.csv"), csv(name, 0..300));
        folder.run(&format!("convert {name}.csv --id id --subject who --target-shard 8KiB --to {options}")).ok();
    }
    folder
}

fn reshard(folder: &Folder, arguments: &str) -> Value {
    folder.run(&format!("reshard shards {arguments} --json")).ok().summary()
}

/// Ids, origin and hash of each record, in order.
fn records(folder: &Folder, dataset: &str) -> Vec<Value> {
    let mut rows = folder.run(&format!("manifest {dataset} --export jsonl")).ok().objects();
    let places = ["shard", "ordinal", "offset", "first_version", "shard_version"];
    for row in &mut rows {
        places.iter().for_each(|name| drop(row.as_object_mut().unwrap().remove(*name)));
    }
    rows
}

/// The records as the program reads them.
fn values(folder: &Folder, dataset: &str) -> Vec<Value> {
    let mut rows = folder.run(&format!("head {dataset} -n 5000 --json")).ok().objects();
    rows.retain(|row| row["type"] == "record");
    // Rows have values, samples have a key and parts.
    rows.iter().map(|row| row.get("values").or(row.get("parts")).unwrap().clone()).collect()
}

fn counts(summary: &Value) -> [u64; 3] {
    ["records_in", "records_out", "records_filtered"].map(|name| summary[name].as_u64().unwrap())
}

fn files(folder: &Path, out: &mut Vec<Vec<u8>>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { files(&path, out) } else { out.push(fs::read(path).unwrap()) }
    }
}

fn has_text(folder: &Folder, dataset: &str, text: &str) -> bool {
    let mut all = Vec::new();
    files(&folder.path().join(dataset), &mut all);
    all.iter().any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[test]
fn duplicates_of_all_runs_are_taken_once() {
    // The index for energon has no room for a key that comes twice.
    for to in FORMATS.into_iter().filter(|to| *to != support::INDEXED_PARTS) {
        let folder = Folder::new();
        for (name, rows) in [("a", "1,x\n2,y\n3,x\n"), ("b", "4,y\n1,z\n5,w\n")] {
            folder.write(&format!("{name}.csv"), format!("id,note\n{rows}"));
            folder.run(&format!("convert {name}.csv --id id --to {to}")).ok();
        }
        let found = |options: &str, duplicates: u64| {
            let out = options.replace([' ', '-', '\'', '!', '='], "");
            let summary = reshard(&folder, &format!("{options} --out {out}"));
            assert_eq!(summary["records_deduplicated"], duplicates, "{to} {options}: {summary}");
            let rows = folder.run(&format!("manifest {out} --export jsonl")).ok().objects();
            rows.iter()
                .map(|row| format!("{}{}", row["source"], row["row"]))
                .collect::<Vec<_>>()
                .join(" ")
                .replace('"', "")
        };
        assert_eq!(found("--dedup content", 0), "a.csv1 a.csv2 a.csv3 b.csv1 b.csv2 b.csv3", "{to}");
        assert_eq!(found("--dedup id", 1), "a.csv1 a.csv2 a.csv3 b.csv1 b.csv3", "{to}");
        assert_eq!(found("--dedup note", 2), "a.csv1 a.csv2 b.csv2 b.csv3", "{to}");
    }
    let folder = dataset("parquet");
    let summary = reshard(&folder, "--dedup age --where age>=290 --out chosen");
    assert_eq!((counts(&summary), summary["records_deduplicated"].as_u64()), ([900, 10, 870], Some(20)));
    folder.write("keyless.csv", "a,b\n1,2\n");
    folder.run("convert keyless.csv --out keyless").ok();
    let refused = folder.run("reshard keyless --out none --dedup id");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("expected record ids for --dedup id, found none"), "{}", refused.stderr);
    let refused = folder.run("reshard shards --out none --dedup colour");
    assert!(refused.code == 2 && refused.stderr.contains("colour"), "{refused:?}");
}

#[test]
fn other_shards_hold_the_same_records_in_the_same_order() {
    for to in FORMATS {
        let folder = dataset(to);
        let (expected, read) = (records(&folder, "shards"), values(&folder, "shards"));
        assert_eq!(expected.len(), 900, "{to}");
        for (number, cut) in ["--shards 7", "--records-per-shard 100", "--target-shard 20KiB", ""].iter().enumerate() {
            let out = format!("cut-{number}");
            let summary = reshard(&folder, &format!("--out {out} {cut}"));
            assert_eq!(counts(&summary), [900, 900, 0], "{to} {cut}");
            assert!(records(&folder, &out) == expected, "{to} {cut}");
            assert!(values(&folder, &out) == read, "{to} {cut}");
            folder.run(&format!("verify {out} --read-data")).ok();
            let found = folder.run(&format!("manifest {out} --find PAT-7-x b-3-x --json")).ok().objects();
            assert_eq!(found.iter().filter(|hit| hit["type"] == "hit").count(), 19, "{to} {cut}");
        }
        let shards = folder.run("manifest cut-1 --list --json").ok().objects();
        assert!(
            shards.iter().filter(|one| one["type"] == "shard").all(|one| one["records"] == 100),
            "{to}: {shards:?}"
        );
        assert_eq!(folder.only_shards("cut-0").len(), 7, "{to}");
        let sizes: Vec<usize> = folder.only_shards("cut-0").iter().map(|(_, bytes)| bytes.len()).collect();
        let (least, most) = (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
        // Rows of a row group count as equally large, and footers of small Parquet files are most of them.
        assert!(to == "parquet" || most < least * 3 / 2, "{to}: {sizes:?}");
    }
}

#[test]
fn shards_do_not_depend_on_threads() {
    for to in FORMATS {
        let folder = dataset(to);
        let options = "--sample 0.4 --seed 9 --shards 5";
        reshard(&folder, &format!("--out one {options} --jobs 1"));
        reshard(&folder, &format!("--out many {options} --jobs 8"));
        assert!(folder.shards_below_tags("one") == folder.shards_below_tags("many"), "{to}");
        reshard(&folder, "--out other --sample 0.4 --seed 10");
        assert!(records(&folder, "one") != records(&folder, "other"), "{to}");
        reshard(&folder, "--out more --sample 0.8 --seed 9");
        let more: BTreeSet<String> = records(&folder, "more").iter().map(ToString::to_string).collect();
        assert!(records(&folder, "one").iter().all(|row| more.contains(&row.to_string())), "{to}");
    }
}

#[test]
fn only_records_with_the_ids_are_taken_and_nothing_of_the_others() {
    for to in FORMATS {
        let folder = dataset(to);
        let some = "a-5-x\nPAT-3-x\nb-77-x\nnobody\n\nb.csv#100\na-5-x\nc-299-x\n";
        // As many ids as are compared with those of all records.
        let many: String = (0..2000).map(|i| format!("absent-{i}\n")).collect();
        for (number, ids) in [some.to_owned(), format!("{some}{many}")].iter().enumerate() {
            let out = format!("some-{number}");
            let given = ["reshard", "shards", "--out", &out, "--ids", "-", "--json", "--shards", "2"];
            let summary = folder.run_input(&given, ids.as_bytes()).ok().summary();
            // An origin stands only for records without an id.
            assert_eq!(counts(&summary), [900, 21, 879], "{to}");
            let missing: Vec<&str> = ["nobody", "b.csv#100"].into_iter().collect();
            let told = summary["ids_missing"].as_array().unwrap();
            assert_eq!(told[..2], missing, "{to}");
            assert_eq!(told.len(), 2 + number * 2000, "{to}");
            let wanted = |row: &Value| {
                row["subject_id"] == "PAT-3-x"
                    || ["a-5-x", "b-77-x", "c-299-x"].iter().any(|id| row["record_id"] == *id)
            };
            let mut expected = records(&folder, "shards");
            expected.retain(wanted);
            assert!(records(&folder, &out) == expected, "{to}");
            folder.run(&format!("verify {out} --read-data")).ok();
            for (id, hits) in [("PAT-3-x", 18), ("a-5-x", 1), ("c-299-x", 1)] {
                let found = folder.run(&format!("manifest {out} --find {id} --json")).ok().summary();
                assert_eq!(found["hits"], hits, "{to} {id}");
            }
            assert_eq!(folder.run(&format!("manifest {out} --find a-6-x PAT-4-x a.csv#7")).code, 1, "{to}");
            // Parquet and compressed shards hide texts, of which the index has hashes.
            let index = fs::read_dir(folder.path().join(&out).join("_shardify/index/subject")).unwrap().count();
            assert!(index > 0 && !has_text(&folder, &out, "a-6-x") && !has_text(&folder, &out, "PAT-4-x"), "{to}");
        }
        folder.write("none", "nobody\n");
        let none = folder.run("reshard shards --out none-at-all --ids none");
        assert_eq!(none.code, 2, "{none:?}");
        assert!(
            none.stderr.contains("nobody") && !folder.path().join("none-at-all/_shardify/log").exists(),
            "{none:?}"
        );
    }
}

#[test]
fn files_of_samples_that_are_left_out_are_not_listed() {
    let folder = Folder::new();
    for i in 0..40 {
        folder.write(&format!("in/pat-{i:02}-x.jpg"), vec![u8::try_from(i).unwrap(); 700 + i]);
        folder.write(&format!("in/pat-{i:02}-x.cls"), i.to_string());
    }
    folder.run("convert in --target-shard 10KiB").ok();
    let given = ["reshard", "shards", "--out", "some", "--ids", "-", "--json"];
    folder.run_input(&given, b"pat-03-x\npat-39-x\npat-20-x\n").ok();
    let members = folder.members("some");
    let expected: Vec<_> = folder
        .members("shards")
        .into_iter()
        .filter(|(name, _)| ["pat-03-x", "pat-39-x", "pat-20-x"].iter().any(|key| name.starts_with(key)))
        .collect();
    assert_eq!(members.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(folder.run("manifest some --json").ok().summary()["sources"], 6);
    assert!(!has_text(&folder, "some", "pat-04-x") && has_text(&folder, "shards", "pat-04-x"));
    folder.run("verify some --read-data").ok();
    // Samples that are here are not converted again; the others are new.
    let again = folder.run("convert in --out some --json").ok().summary();
    assert_eq!((&again["records_out"], &again["sources_unchanged"]), (&37.into(), &6.into()), "{again}");
    folder.run("verify some --read-data").ok();
}

#[test]
fn a_condition_keeps_the_rows_that_convert_keeps() {
    let folder = dataset("parquet");
    for (number, condition) in
        ["age >= 150 and who <> 'PAT-7-x'", "note like '%99%' or age in (1, 2)", "age >= 0"].iter().enumerate()
    {
        let (cut, converted) = (format!("cut-{number}"), format!("converted-{number}"));
        let summary =
            folder.run_with(&["reshard", "shards", "--out", &cut, "--where", condition, "--json"]).ok().summary();
        let inputs = ["a.csv", "b.csv", "c.csv"];
        let all = ["convert", inputs[0], inputs[1], inputs[2], "--out", &converted, "--where", condition, "--id", "id"];
        folder.run_with(&[&all[..], &["--subject", "who"]].concat()).ok();
        let found = values(&folder, &cut);
        assert!(!found.is_empty() && found == values(&folder, &converted), "{condition}");
        assert_eq!(counts(&summary)[1], found.len() as u64, "{condition}");
        folder.run(&format!("verify {cut} --read-data")).ok();
    }
    let history = folder.run("manifest cut-0 --history --json").ok().objects();
    assert_eq!(history[0]["arguments"]["where"], "age >= 150 and who <> 'PAT-7-x'");
    let unknown = folder.run_with(&["reshard", "shards", "--out", "x", "--where", "height > 3"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("height"), "{unknown:?}");
    let tar = dataset("tar");
    let refused = tar.run_with(&["reshard", "shards", "--out", "x", "--where", "age > 3"]);
    assert!(refused.code == 2 && refused.stderr.contains("Parquet"), "{refused:?}");
}

#[test]
fn the_new_dataset_is_converted_into_compacted_and_erased_from() {
    for to in FORMATS {
        let folder = dataset(to);
        folder.run("erase shards --subject PAT-9-x --all-versions").ok();
        reshard(&folder, "--out cut --sample 0.5 --shards 4");
        let before = records(&folder, "cut");
        // Who was erased from the parent is blocked here.
        folder.write("d.csv", csv("d", 0..100));
        let added = folder.run("convert d.csv --out cut --json").ok().summary();
        assert_eq!((&added["records_out"], &added["records_erased"]), (&98.into(), &2.into()), "{to}: {added}");
        assert_eq!(folder.run("convert a.csv b.csv c.csv --out cut --json").ok().summary()["records_in"], 0, "{to}");
        // A compaction leaves the shards of the cut as they are.
        let kept = folder.run("compact cut --min-inputs 2 --json").ok().summary();
        assert!(kept["shards_after"].as_u64() >= Some(5), "{to}: {kept}");
        folder.run("compact cut --min-inputs 2 --target-shard 1MiB").ok();
        assert!(records(&folder, "cut")[..before.len()] == before, "{to}");
        let subject = before[0]["subject_id"].as_str().unwrap();
        folder.run(&format!("erase cut --subject {subject} --all-versions")).ok();
        folder.run("verify cut --read-data").ok();
        assert_eq!(folder.run(&format!("manifest cut --find {subject}")).code, 1, "{to}");
        let rest = records(&folder, "cut");
        assert!(rest.iter().all(|row| row["subject_id"] != subject) && rest.len() > 400, "{to}");
        let source = before.last().unwrap()["source"].as_str().unwrap();
        folder.run(&format!("remove cut --source {source}")).ok();
        assert!(records(&folder, "cut").iter().all(|row| row["source"] != source), "{to}");
        folder.run("vacuum cut --retain 0 --force").ok();
        folder.run("verify cut --read-data").ok();
        // A part of a part, of which the first run is still found.
        folder.run("reshard cut --out again --records-per-shard 50").ok();
        assert!(records(&folder, "again") == records(&folder, "cut"), "{to}");
        folder.run("verify again --read-data").ok();
    }
}

#[test]
fn who_is_erased_from_the_parent_is_told_in_the_child() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = dataset(to);
        reshard(&folder, "--out cut --sample 0.9");
        let told = |summary: Value| summary["parent"]["erased"].clone();
        assert_eq!(told(folder.run("verify cut --json").ok().summary()), 0, "{to}");
        let here = records(&folder, "cut").iter().filter(|row| row["subject_id"] == "PAT-3-x").count();
        assert!(here > 0);
        folder.run("erase shards --subject PAT-3-x").ok();
        assert_eq!(told(folder.run("verify cut --json").ok().summary()), here, "{to}");
        assert_eq!(told(folder.run("inspect cut --json").ok().summary()), here, "{to}");
        let text = folder.run("verify cut").ok().stdout;
        assert!(text.contains(&format!("the parent has erased {here} records that are here")), "{text}");
        assert!(text.contains("shardify erase ") && text.contains("--subject PAT-3-x"), "{text}");
        folder.run("erase cut --subject PAT-3-x").ok();
        assert_eq!(told(folder.run("verify cut --json").ok().summary()), 0, "{to}");
        let summary = folder.run("manifest cut --json").ok().summary();
        assert_eq!((&summary["parent"]["version"], summary["parent"]["root"].as_str().unwrap().len()), (&3.into(), 64));
        fs::rename(folder.path().join("shards"), folder.path().join("moved")).unwrap();
        assert_eq!(told(folder.run("verify cut --json").ok().summary()), Value::Null, "{to}");
    }
}

#[test]
fn private_ids_stay_private() {
    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    for (to, mode) in [("parquet", "hmac"), ("tar", "sealed"), ("tfrecord --redact-source-paths", "hmac")] {
        let folder = Folder::new();
        folder.write("key", KEY);
        folder.write("a.csv", csv("a", 0..300));
        folder.run(&format!("convert a.csv --id id --subject who --id-key key --to {to} --id-mode {mode}")).ok();
        folder.write("ids", "a-5-x\nPAT-3-x\nnobody\n");
        let blind = folder.run("reshard shards --out blind --ids ids");
        assert!(blind.code == 2 && blind.stderr.contains("--id-key"), "{to}: {blind:?}");
        let summary = reshard(&folder, "--out some --ids ids --id-key key --shards 2");
        assert_eq!(
            (counts(&summary), &summary["ids_missing"]),
            ([300, 7, 293], &serde_json::json!(["nobody"])),
            "{to}"
        );
        folder.run("verify some --read-data --id-key key").ok();
        let find = |id: &str| folder.run(&format!("manifest some --find {id} --id-key key --json"));
        assert_eq!(find("PAT-3-x").ok().summary()["hits"], 6, "{to}");
        assert_eq!(find("a-6-x").code, 1, "{to}");
        // Without the key, any other cut is possible.
        let whole = reshard(&folder, "--out whole --shards 3 --sample 0.5");
        assert_eq!(counts(&whole)[0], 300, "{to}");
        folder.run("verify whole --read-data").ok();
        let entry = folder.run("manifest some --history --json").ok().objects().remove(0);
        assert_eq!(entry["arguments"]["ids"], "3", "{to}");
    }
}

#[test]
fn sorted_adopted_and_partitioned_datasets_are_cut() {
    let folder = dataset("parquet");
    folder.run("compact --sort-by note").ok();
    for (out, options) in [("sorted", "--shards 3"), ("sampled", "--sample 0.5 --shards 2")] {
        reshard(&folder, &format!("--out {out} {options}"));
        folder.run(&format!("verify {out} --read-data")).ok();
        let notes: Vec<String> = values(&folder, out).iter().map(|row| row["note"].to_string()).collect();
        assert!(notes.len() > 300 && notes.is_sorted(), "{out}");
        let some = records(&folder, out)[17]["record_id"].as_str().unwrap().to_owned();
        assert_eq!(folder.run(&format!("manifest {out} --find {some} --json")).ok().summary()["hits"], 1, "{out}");
    }
    folder.run("erase sampled --subject PAT-3-x").ok();
    folder.run("verify sampled --read-data").ok();

    let folder = dataset("parquet");
    reshard(&folder, "--out cut --shards 2 --at v2");
    folder.run("verify cut --read-data").ok();
    assert_eq!(records(&folder, "cut").len(), 600);

    // Partitions stay apart, and so do files of other types.
    let folder = Folder::new();
    for site in ["A", "B"] {
        folder.write("x.csv", csv(site, 0..200));
        folder.run(&format!("convert x.csv --out made-{site}")).ok();
        for (number, (_, bytes)) in folder.only_shards(&format!("made-{site}")).into_iter().enumerate() {
            folder.write(&format!("shards/site={site}/{number}.parquet"), bytes);
        }
    }
    folder.run("adopt shards --id id").ok();
    reshard(&folder, "--out cut --shards 5");
    folder.run("verify cut --read-data").ok();
    let listed = folder.run("manifest cut --list --json").ok().objects();
    for site in ["A", "B"] {
        assert!(
            listed.iter().any(|one| one["path"].as_str().is_some_and(|path| path.contains(&format!("/site={site}/"))))
        );
    }
    let few = folder.run("reshard shards --out x --shards 1");
    assert!(few.code == 2 && few.stderr.contains("at least 2"), "{few:?}");
}

#[test]
fn types_and_constants_of_folders_go_along() {
    let folder = Folder::new();
    folder.write("a.csv", "id,day,n\nx,2024-01-31,007\ny,2024-02-01,8\n");
    folder.run("convert a.csv --to tfrecord --id id").ok();
    reshard(&folder, "--out cut --shards 2");
    assert_eq!(values(&folder, "cut"), values(&folder, "shards"));
    assert!(folder.shards_below_tags("cut").iter().any(|(path, _)| path == "schema.json"));
    folder.run("verify cut --read-data").ok();
}

#[test]
fn impossible_wishes_are_refused_and_nothing_is_written() {
    let folder = dataset("tar");
    folder.run("reshard shards --out there").ok();
    for (arguments, told) in [
        ("--out there", "no dataset yet"),
        ("--out shards/inner", "outside"),
        ("--out x --shards 901", "at most 900"),
        ("--out x --shards 0", "1 or more"),
        ("--out x --records-per-shard 0", "1 or more"),
        ("--out x --sample 1.5", "--sample"),
        ("--out x --sample 0", "--sample"),
        ("--out x --shards 2 --target-shard 3MiB", "cannot be used with"),
        ("--out x --seed 3", "--sample"),
        ("--out x --ids missing.txt", "missing.txt"),
        ("--out x --at v9", "v9"),
        ("", "--out"),
    ] {
        let refused = folder.run(&format!("reshard shards {arguments}"));
        assert!(refused.code == 2 && refused.stderr.contains(told), "{arguments}: {refused:?}");
        assert!(!folder.path().join("x").exists(), "{arguments}");
    }
    let plan = reshard(&folder, "--out x --shards 9 --dry-run");
    assert_eq!((&plan["shards_after"], &plan["version"], &plan["dry_run"]), (&9.into(), &Value::Null, &true.into()));
    assert!(!folder.path().join("x/_shardify").exists());
    assert_eq!(folder.run("reshard nothing --out x").code, 2);
}

#[test]
fn damage_is_found_and_never_copied() {
    for to in FORMATS {
        let folder = dataset(to);
        let (path, mut bytes) = folder.only_shards("shards").swap_remove(1);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 16;
        folder.write(&format!("shards/{path}"), bytes);
        let damaged = folder.run("reshard shards --out cut --shards 3");
        assert!([5, 6].contains(&damaged.code) && damaged.stderr.contains(&path), "{to}: {damaged:?}");
        assert!(!folder.path().join("cut/_shardify/log").exists(), "{to}");
        assert!(
            folder
                .path()
                .join("cut")
                .read_dir()
                .is_ok_and(|all| all.flatten().all(|one| one.file_name() == "_shardify"))
        );
    }
}

#[test]
fn neighbours_with_one_key_are_refused() {
    let folder = Folder::new();
    folder.write("a.csv", "id,x\nsame,1\nother,2\nsame,3\nlast,4\n");
    folder.run("convert a.csv --to tar --id id").ok();
    let ids = ["reshard", "shards", "--out", "cut", "--ids", "-"];
    let refused = folder.run_input(&ids, b"same\nlast\n");
    assert!(refused.code == 2 && refused.stderr.contains("twice in a row"), "{refused:?}");
}
