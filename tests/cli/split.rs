//! `convert --split`: which records are for training and which for evaluation.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage files")]

use crate::{reseal::restate, support};

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shardify::codec::{
    hex::{from_hex, to_hex},
    merkle,
};
use support::Folder;

const SPLIT: &str = "--split train=0.6,val=0.2,test=0.2";

/// Visits of patients: each visit once, each patient in all tables.
fn write_visits(folder: &Folder) {
    for (table, visits) in [("a", 0..3000), ("b", 3000..4000), ("c", 4000..4300)] {
        let row = |visit: u32| {
            format!("{visit},PAT-{:03},s{},{}\n", visit * 7 % 211, visit % 5, "x".repeat(visit as usize % 40))
        };
        folder.write(
            &format!("{table}.csv"),
            format!("visit,patient,site,note\n{}", visits.map(row).collect::<String>()),
        );
    }
}

/// Split of a shard.
fn split(shard: &str) -> String {
    let folder = shard.split('/').find_map(|folder| folder.strip_prefix("split="));
    folder.unwrap_or_else(|| panic!("no split: {shard}")).to_owned()
}

/// Rows of the export: one for each live record.
fn rows(folder: &Folder, dataset: &str, more: &str) -> Vec<Value> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl {more}")).ok();
    exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Splits of each value of a column of the export; asserts that no value has two.
#[track_caller]
fn splits_of(folder: &Folder, dataset: &str, column: &str, more: &str) -> BTreeMap<String, String> {
    let mut splits: BTreeMap<String, String> = BTreeMap::new();
    for row in rows(folder, dataset, more) {
        let group = row[column].as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
        let split = split(row["shard"].as_str().unwrap());
        let known = splits.entry(group.clone()).or_insert_with(|| split.clone());
        assert_eq!(*known, split, "{group} has two splits");
    }
    splits
}

/// All formats, any number of threads: the same shards, each patient in one split; later runs, merges, sorting, erasure
/// and removal keep the splits, and records are found by id and by origin.
#[test]
fn nobody_is_on_two_splits_whatever_is_done() {
    let folder = Folder::new();
    write_visits(&folder);
    let mut all: BTreeSet<BTreeMap<String, String>> = BTreeSet::new();
    for to in ["parquet", "tar", "tfrecord", "tar --codec zstd"] {
        let mut contents = Vec::new();
        for jobs in [1, 3] {
            let out = format!("{}-{jobs}", to.replace(' ', ""));
            let first = format!(
                "convert a.csv --out {out} --to {to} --id visit --subject patient {SPLIT} --target-shard 16KiB --jobs \
                 {jobs} --json"
            );
            let summary = folder.run(&first).ok().summary();
            let splits = summary["splits"].as_array().unwrap();
            let records: u64 = splits.iter().map(|split| split["records"].as_u64().unwrap()).sum();
            assert_eq!((splits.len(), records), (3, 3000), "{summary}");
            let shards: Vec<(String, Value)> = rows(&folder, &out, "")
                .iter()
                .map(|row| {
                    (row["shard"].as_str().unwrap().split_once('/').unwrap().1.to_owned(), row["record_id"].clone())
                })
                .collect();
            let bytes: Vec<(String, Vec<u8>)> = shards_of(&folder, &out);
            contents.push((shards, bytes));
        }
        assert!(contents[0] == contents[1], "{to}");
        let out = format!("{}-3", to.replace(' ', ""));
        let before = splits_of(&folder, &out, "subject_id", "");
        for table in ["b", "c"] {
            folder.run(&format!("convert {table}.csv --out {out}")).ok();
        }
        let after = splits_of(&folder, &out, "subject_id", "");
        assert!(before.iter().all(|(patient, split)| after[patient] == *split), "{to}");
        assert_eq!(after.len(), 211);
        folder.run(&format!("verify {out} --read-data")).ok();
        folder.run(&format!("compact {out} --target-shard 256KiB")).ok();
        assert_eq!(splits_of(&folder, &out, "subject_id", ""), after, "{to}");
        if to == "parquet" {
            folder.run(&format!("compact {out} --sort-by site,visit")).ok();
            assert_eq!(splits_of(&folder, &out, "subject_id", ""), after);
        }
        folder.run(&format!("erase {out} PAT-007 --all-versions")).ok();
        folder.run(&format!("remove {out} --source b.csv")).ok();
        folder.run(&format!("verify {out} --read-data")).ok();
        let mut left = splits_of(&folder, &out, "subject_id", "");
        let sources: BTreeSet<String> =
            rows(&folder, &out, "").iter().map(|row| row["source"].as_str().unwrap().to_owned()).collect();
        assert_eq!(sources, ["a.csv", "c.csv"].map(str::to_owned).into());
        folder.run(&format!("convert b.csv --out {out}")).ok();
        left.extend(splits_of(&folder, &out, "subject_id", ""));
        assert!(left.iter().all(|(patient, split)| after[patient] == *split), "{to}");
        folder.run(&format!("verify {out} --read-data")).ok();
        assert!(!splits_of(&folder, &out, "subject_id", "").contains_key("PAT-007"));
        all.insert(after);
    }
    assert_eq!(all.len(), 1, "formats differ");
}

/// Bytes of all shards, by their paths below the folder of their run.
fn shards_of(folder: &Folder, dataset: &str) -> Vec<(String, Vec<u8>)> {
    let listed = folder.run(&format!("manifest {dataset} --list --paths")).ok();
    let read = |path: &str| {
        let below = path.split("split=").last().unwrap().to_owned();
        (below, std::fs::read(path).unwrap())
    };
    listed.stdout.lines().map(read).collect()
}

/// Records without ids are divided by their contents; each is found by its origin, also where bad rows were omitted,
/// and the records of a source can be removed.
#[test]
fn records_are_found_by_their_origins() {
    let folder = Folder::new();
    let row = |row: u32| if row % 13 == 5 { format!("x,bad,{row}\n") } else { format!("{row},{}\n", row % 97) };
    folder.write("a/t.csv", format!("n,m\n{}", (0..500).map(row).collect::<String>()));
    folder.write("b/t.csv", format!("n,m\n{}", (500..700).map(row).collect::<String>()));
    folder.write("b/u.csv", "n,m\nx,bad,1\nx,bad,2\n");
    for to in ["parquet", "tar"] {
        let options = "--split train=0.5,val=0.5 --on-error skip --type n=int64 --target-shard 4KiB";
        let ran = folder.run(&format!("convert a b --out {to} --to {to} {options}"));
        assert_eq!(ran.code, 3, "{ran:?}");
        folder.run(&format!("verify {to} --read-data")).ok();
        let rows = rows(&folder, to, "");
        assert_eq!(rows.len(), 700 - (0..700).filter(|row| row % 13 == 5).count());
        for row in rows.iter().step_by(7) {
            let origin = format!("{}#{}", row["source"].as_str().unwrap(), row["row"]);
            let found = folder.run(&format!("manifest {to} --find {origin} --json")).ok().objects();
            let hits: Vec<&Value> = found.iter().filter(|object| object["origin"]["row"] == row["row"]).collect();
            let is_hit = |hit: &&Value| hit["shard"] == row["shard"] && hit["ordinal"] == row["ordinal"];
            assert!(hits.iter().any(is_hit), "{row}: {found:?}");
        }
        let gone = folder.run(&format!("remove {to} --source {}", folder.path().join("a/t.csv").display())).ok();
        let left = self::rows(&folder, to, "");
        assert!(left.len() == 200 - (500..700).filter(|row| row % 13 == 5).count(), "{gone:?}");
        folder.run(&format!("verify {to} --read-data")).ok();
    }
}

/// A plan with tasks that cut a source divides as a run without tasks does, in any order of its tasks.
#[test]
fn tasks_divide_alike() {
    let folder = Folder::new();
    write_visits(&folder);
    let row = |visit: u32| format!("{visit},PAT-{:03},s{},{}\n", visit * 7 % 211, visit % 5, "y".repeat(2000));
    folder.write("a.csv", format!("visit,patient,site,note\n{}", (0..3000).map(row).collect::<String>()));
    let options = format!("a.csv b.csv c.csv --memory 64MiB --id visit --subject patient {SPLIT} --target-shard 16KiB");
    folder.run(&format!("convert {options} --out whole")).ok();
    folder.run(&format!("convert {options} --task-size 1MiB --out tasks")).ok();
    let plan = folder.run(&format!("plan convert {options} --task-size 1MiB --out planned --json")).ok().summary();
    let tasks = plan["tasks"].as_u64().unwrap();
    assert!(tasks > 3, "{plan}");
    let url = plan["plan"].as_str().unwrap();
    for task in (0..tasks).rev() {
        folder.run(&format!("run-task {url} --task {task}")).ok();
        folder.run(&format!("run-task {url} --task {task}")).ok();
    }
    let committed = folder.run(&format!("commit {url} --json")).ok().summary();
    assert_eq!(committed["splits"].as_array().map(Vec::len), Some(3));
    assert_eq!(shards_of(&folder, "tasks").len(), shards_of(&folder, "planned").len());
    assert!(shards_of(&folder, "tasks") == shards_of(&folder, "planned"));
    let whole = splits_of(&folder, "whole", "subject_id", "");
    for dataset in ["tasks", "planned"] {
        assert_eq!(splits_of(&folder, dataset, "subject_id", ""), whole);
        assert_eq!(rows(&folder, dataset, "").len(), 4300);
        folder.run(&format!("verify {dataset} --read-data")).ok();
        folder.run(&format!("remove {dataset} --source a.csv")).ok();
        let sources: BTreeSet<String> =
            rows(&folder, dataset, "").iter().map(|row| row["source"].as_str().unwrap().to_owned()).collect();
        assert_eq!(sources, ["b.csv", "c.csv"].map(str::to_owned).into());
        folder.run(&format!("verify {dataset} --read-data")).ok();
    }
}

/// Samples of files have splits by their keys, or by subjects from their paths; energon sees the parts.
#[test]
fn samples_are_divided() {
    let folder = Folder::new();
    for patient in 0..20 {
        for scan in 0..5 {
            folder.write(&format!("scans/P{patient:02}/{scan}.txt"), format!("scan {scan} of {patient}"));
            folder.write(&format!("scans/P{patient:02}/{scan}.cls"), format!("{scan}"));
        }
    }
    let index = if cfg!(feature = "energon") { "energon" } else { "wids" };
    folder.run(&format!("convert scans --out keys --index {index} {SPLIT}")).ok();
    let splits = splits_of(&folder, "keys", "record_id", "");
    assert_eq!((splits.len(), splits.values().collect::<BTreeSet<_>>().len()), (100, 3));
    if cfg!(feature = "energon") {
        let yaml = std::fs::read_to_string(folder.path().join("keys/.nv-meta/split.yaml")).unwrap();
        let mut part = "";
        let mut listed = BTreeSet::new();
        for line in yaml.lines() {
            match line.strip_prefix("  - ") {
                Some(path) => {
                    assert!(listed.insert(path.trim_matches('"').to_owned()) && split(path) == part, "{yaml}")
                }
                None => part = line.trim().trim_end_matches(':'),
            }
        }
        let live: BTreeSet<String> =
            rows(&folder, "keys", "").iter().map(|row| row["shard"].as_str().unwrap().to_owned()).collect();
        assert_eq!(listed, live, "{yaml}");
    }
    folder.run("verify keys --read-data").ok();
    for to in ["tar", "parquet", "tfrecord"] {
        let out = format!("patients-{to}");
        let subjects = "--subject-from-path {subject}/*";
        folder.run(&format!("convert scans --out {out} --to {to} {subjects} {SPLIT}")).ok();
        assert_eq!(splits_of(&folder, &out, "subject_id", "").len(), 20);
        assert_eq!(rows(&folder, &out, "").len(), 100);
        folder.run(&format!("verify {out} --read-data")).ok();
        let note = folder.run(&format!("adopt {out}2 --out {out}"));
        assert_eq!(note.code, 2, "{note:?}");
    }
}

/// The split of a private id follows from what is stored of it, so that it can be checked without the key.
#[test]
fn private_ids_are_divided_by_what_is_stored() {
    let folder = Folder::new();
    write_visits(&folder);
    folder.write("key", "0123456789abcdef0123456789abcdef");
    for mode in ["hmac", "sealed"] {
        let options = format!("--id visit --subject patient --id-mode {mode} --id-key key {SPLIT}");
        folder.run(&format!("convert a.csv --out {mode} {options}")).ok();
        folder.run(&format!("convert b.csv --out {mode} --id-key key")).ok();
        let splits = splits_of(&folder, mode, "subject_id", "--id-key key");
        assert_eq!((splits.len(), splits.values().collect::<BTreeSet<_>>().len()), (211, 3));
        folder.run(&format!("verify {mode} --read-data")).ok();
    }
}

/// Columns that are not kept may decide; values that are equal have one split, and missing ones have splits by their
/// records.
#[test]
fn any_column_can_decide() {
    let folder = Folder::new();
    let row =
        |row: u32| format!("{row},{}\n", if row.is_multiple_of(3) { String::new() } else { format!("g{}", row % 50) });
    folder.write("a.csv", format!("n,g\n{}", (0..3000).map(row).collect::<String>()));
    folder.run("convert a.csv --columns n --id n --split a=0.5,b=0.5,seed=3 --split-by g --out out").ok();
    let mut splits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(&folder, "out", "") {
        let number: u32 = row["record_id"].as_str().unwrap().parse().unwrap();
        let group = if number.is_multiple_of(3) { String::new() } else { format!("g{}", number % 50) };
        splits.entry(group).or_default().insert(split(row["shard"].as_str().unwrap()));
    }
    let nulls = splits.remove("").unwrap();
    assert_eq!(nulls.len(), 2);
    assert!(splits.len() == 50 && splits.values().all(|splits| splits.len() == 1), "{splits:?}");
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let folder = Folder::new();
    write_visits(&folder);
    folder.write("files/a.txt", "a");
    folder.write("own.csv", "n,split\n1,train\n");
    folder.run("convert a.csv --out plain").ok();
    folder.run("convert a.csv --id visit --split a=0.5,b=0.5 --out divided").ok();
    folder.run("convert a.csv --out shards").ok();
    for (command, part) in [
        ("convert b.csv --out plain --split a=0.5,b=0.5", "are not divided"),
        ("convert b.csv --out divided --split a=0.4,b=0.6", "a=0.5,b=0.5 by id, found a=0.4,b=0.6 by id"),
        ("convert b.csv --out divided --split a=0.5,b=0.5,seed=1", "found a=0.5,b=0.5 by id with seed 1"),
        ("convert b.csv --out new --split a=0.5,b=0.4", "add up to 1"),
        ("convert b.csv --out new --split a=0.5,b=0.5 --split-by subject", "expected subjects to split by"),
        ("convert b.csv --out new --split a=0.5,b=0.5 --split-by id", "expected record ids to split by"),
        ("convert b.csv --out new --split a=0.5,b=0.5 --split-by sitte", "there is a column `site`"),
        ("convert files --out new --split a=0.5,b=0.5 --split-by site", "by subject or id"),
        ("convert own.csv --out new --split a=0.5,b=0.5", "no column `split` beside --split"),
        ("convert b.csv --out new --split-by site", "--split"),
        ("adopt shards --out divided", "this dataset is split (a=0.5,b=0.5 by id)"),
    ] {
        let ran = folder.run(command);
        assert!(ran.code == 2 && ran.stderr.contains(part), "{command}: {ran:?}");
        assert!(!folder.path().join("new").exists(), "{command}");
    }
    folder.run("convert b.csv --out divided --split a=0.5,b=0.5").ok();
    folder.run("convert own.csv --columns n --out without --split a=0.5,b=0.5").ok();
    folder.run("convert own.csv --to tar --out members --split a=0.5,b=0.5").ok();
}

/// A dataset that is cut from a divided one is divided alike, and its records are found by their origins.
#[test]
fn datasets_cut_from_others_are_divided_alike() {
    let folder = Folder::new();
    for table in 0..3 {
        let rows: String = (0..300).map(|row| format!("{},{}\n", table * 1000 + row, row % 7)).collect();
        folder.write(&format!("in/{table}.csv"), format!("n,m\n{rows}"));
    }
    folder.run("convert in --split a=0.5,b=0.3,c=0.2 --target-shard 2KiB --out whole").ok();
    folder.run("reshard whole --out some --sample 0.5 --records-per-shard 50").ok();
    let split_of = |row: &Value| (row["hash"].to_string(), split(row["shard"].as_str().unwrap()));
    let whole: BTreeMap<String, String> = rows(&folder, "whole", "").iter().map(split_of).collect();
    let some = rows(&folder, "some", "");
    assert!((300..600).contains(&some.len()), "{}", some.len());
    let mut ids = String::new();
    for row in &some {
        let (hash, split) = split_of(row);
        assert_eq!(whole[&hash], split, "{row}");
        ids.push_str(&format!("{}#{}\n", row["source"].as_str().unwrap(), row["row"]));
    }
    folder.write("ids.txt", ids);
    let found = folder.run("manifest some --find-file ids.txt --json").ok().objects();
    let place = |object: &Value| (object["shard"].to_string(), object["ordinal"].to_string());
    let found: BTreeSet<(String, String)> = found.iter().filter(|o| o["type"] != "summary").map(place).collect();
    assert_eq!(found, some.iter().map(place).collect());
    folder.run("remove some --source 2.csv").ok();
    assert!(rows(&folder, "some", "").iter().all(|row| row["source"] != "2.csv"));
    folder.run("verify some --read-data").ok();
}

/// A change of a certificate.
type Change = Box<dyn Fn(&mut Value)>;

/// Changes of a certificate, each with its name.
fn forgeries(form: &str) -> Vec<(&'static str, Change)> {
    fn replaced(field: &'static str, old: &'static str, new: &'static str) -> Change {
        Box::new(move |proof| {
            let text = proof[field].as_str().unwrap();
            assert!(text.contains(old), "{field}: {old}");
            proof[field] = text.replacen(old, new, 1).into();
        })
    }
    fn set(pointer: &'static str, value: Value) -> Change {
        Box::new(move |proof| *proof.pointer_mut(pointer).unwrap() = value.clone())
    }
    fn list(field: &'static str, change: fn(&mut Vec<Value>)) -> Change {
        Box::new(move |proof| change(proof[field].as_array_mut().unwrap()))
    }
    fn segment(old: &str, new: &str) -> Change {
        let (old, new) = (old.to_owned(), new.to_owned());
        Box::new(move |proof| {
            let segments = proof["segments"].as_array_mut().unwrap();
            let one = segments.iter_mut().find(|text| text.as_str().unwrap().contains(&old)).unwrap();
            *one = one.as_str().unwrap().replacen(&old, &new, 1).into();
        })
    }
    vec![
        ("another type", set("/type", "proof".into())),
        ("another schema", set("/schema", 2.into())),
        ("another version", set("/version", 1.into())),
        ("no version", set("/version", Value::Null)),
        ("another root", set("/root", "00".repeat(32).into())),
        ("a short root", set("/root", "00".into())),
        ("other shares", set("/split/shares/0/1", 0.5.into())),
        ("another name of a share", set("/split/shares/0/0", "other".into())),
        ("swapped shares", Box::new(|proof| proof["split"]["shares"].as_array_mut().unwrap().swap(0, 2))),
        ("a share less", Box::new(|proof| drop(proof["split"]["shares"].as_array_mut().unwrap().pop()))),
        ("another kind", set("/split/by", "id".into())),
        ("a kind that is no id", set("/split/by", "content".into())),
        ("another seed", set("/split/seed", 1.into())),
        ("a rule with more", Box::new(|proof| proof["split"]["more"] = 1.into())),
        ("another name of a split", set("/splits/0/name", "other".into())),
        ("another share of a split", set("/splits/0/share", 0.5.into())),
        ("another number of segments of a split", set("/splits/0/segments", 3.into())),
        ("another number of pairs", set("/splits/1/pairs", 1.into())),
        ("swapped splits", list("splits", |splits| splits.swap(0, 1))),
        ("a split less", list("splits", |splits| drop(splits.pop()))),
        ("a split twice", list("splits", |splits| splits.push(splits[0].clone()))),
        ("a split with more", Box::new(|proof| proof["splits"][0]["more"] = 1.into())),
        ("another form of the head", replaced("head", "root 1", "root 2")),
        ("another version of the head", replaced("head", "version 2", "version 1")),
        ("other ids in the head", replaced("head", "ids plain", "ids hmac 0011223344556677")),
        ("fewer segments in the head", replaced("head", "segments 6", "segments 5")),
        ("more lists in the head", replaced("head", "lists 1", "lists 2")),
        ("other tombstones", replaced("head", "tombstones ", "tombstones 0")),
        ("another seed in the head", replaced("head", "\"seed\":7", "\"seed\":8")),
        ("other shares in the head", replaced("head", "[\"train\",0.6]", "[\"train\",0.4]")),
        ("another kind in the head", replaced("head", "\"subject\"", "\"id\"")),
        (
            "no rule in the head",
            Box::new(|proof| {
                let head = proof["head"].as_str().unwrap();
                proof["head"] = head[..head.find("split").unwrap()].into();
            }),
        ),
        (
            "a rule twice in the head",
            Box::new(|proof| {
                let head = proof["head"].as_str().unwrap();
                proof["head"] = format!("{head}{}", &head[head.find("split").unwrap()..]).into();
            }),
        ),
        ("no head", set("/head", "".into())),
        ("another list", set("/lists/0", "00".repeat(32).into())),
        ("a list less", list("lists", |lists| drop(lists.pop()))),
        ("a list more", list("lists", |lists| lists.push(lists[0].clone()))),
        ("a segment less", list("segments", |segments| drop(segments.pop()))),
        ("no segments", list("segments", Vec::clear)),
        ("a segment twice", list("segments", |segments| segments.push(segments[0].clone()))),
        ("swapped segments", list("segments", |segments| segments.swap(0, 1))),
        ("a segment of another side", segment(" train\n", " test\n")),
        ("a segment of two splits", segment(" train\n", " train test\n")),
        ("a segment of no split", segment(" train\n", "\n")),
        ("a segment of a split that is not there", segment(" train\n", " other\n")),
        ("a segment of the other kind", segment(" subject ", " record ")),
        ("a segment of the other form", segment(form, if form == "sealed" { "segment" } else { "sealed" })),
        ("a segment of other records", segment(" subject 0 ", " subject 1 ")),
        ("a segment as a bucket", segment(form, "bucket")),
        ("a segment without an end", segment("\n", "")),
        ("a field more", Box::new(|proof| proof["more"] = 1.into())),
        ("a field less", Box::new(|proof| drop(proof.as_object_mut().unwrap().remove("splits")))),
    ]
}

/// Root of the leaves that a certificate has, if it has some.
fn root_of_leaves(proof: &Value) -> Option<String> {
    let mut leaves = vec![merkle::hash_leaf(proof["head"].as_str()?.as_bytes())];
    for list in proof["lists"].as_array()? {
        leaves.push(from_hex(list.as_str()?)?.try_into().ok()?);
    }
    for segment in proof["segments"].as_array()? {
        leaves.push(merkle::hash_leaf(segment.as_str()?.as_bytes()));
    }
    Some(to_hex(&merkle::merkle_root(&leaves)))
}

/// Each change of a certificate is found, also if the root that it states follows from the changed leaves.
#[test]
fn a_forged_certificate_of_a_split_is_refused() {
    forge("sealed", "");
    forge("segment", "--proofs");
}

fn forge(form: &str, options: &str) {
    let folder = Folder::new();
    write_visits(&folder);
    for table in ["a", "b"] {
        folder.run(&format!("convert {table}.csv --out d --id visit --subject patient {SPLIT},seed=7 {options}")).ok();
    }
    let printed = folder.run("manifest d --prove-split").ok().stdout;
    let root = folder.run("manifest d --root").ok().stdout.split_whitespace().next().unwrap().to_owned();
    folder.run("manifest d --prove-split --out genuine.json").ok();
    assert_eq!(std::fs::read_to_string(folder.path().join("genuine.json")).unwrap(), printed);
    assert!(printed.len() < 10_000 && !printed.contains("PAT-"), "{printed}");
    let checked = folder.run(&format!("verify-proof genuine.json --root {root}")).ok();
    assert!(checked.stdout.starts_with("no subject id is in two splits of v2: "), "{}", checked.stdout);
    assert_eq!(folder.run("verify-proof genuine.json").code, 7);
    assert_eq!(folder.run("verify-proof genuine.json --id PAT-1").code, 2);
    let genuine: Value = serde_json::from_str(&printed).unwrap();
    let line = folder.run("manifest d --prove-split --json").ok();
    assert_eq!(line.objects(), std::slice::from_ref(&genuine));
    folder.write("line.json", &line.stdout);
    folder.run(&format!("verify-proof line.json --root {root}")).ok();
    assert_eq!(root_of_leaves(&genuine).as_ref(), Some(&root));
    assert_eq!(genuine["segments"].as_array().unwrap().len(), 6);
    let refused = |name: &str, bytes: &[u8]| {
        folder.write("forged.json", bytes);
        let ran = folder.run(&format!("verify-proof forged.json --root {root}"));
        assert!([1, 6].contains(&ran.code), "{name}: {ran:?}");
    };

    for (name, change) in forgeries(form) {
        let mut forged = genuine.clone();
        change(&mut forged);
        assert_ne!(forged, genuine, "{name}");
        refused(name, &serde_json::to_vec(&forged).unwrap());
        if let Some(own) = root_of_leaves(&forged).filter(|own| *own != root) {
            forged["root"] = own.into();
            refused(name, &serde_json::to_vec(&forged).unwrap());
        }
    }
    for (name, bytes) in [
        ("cut", printed.as_bytes()[..printed.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("followed by more", format!("{printed}{{}}").into_bytes()),
        ("a field twice", printed.replacen("\"schema\": 1,", "\"schema\": 1, \"schema\": 1,", 1).into_bytes()),
        ("a rule's field twice", printed.replacen("\"seed\": 7", "\"seed\": 7, \"seed\": 7", 1).into_bytes()),
        ("an array", format!("[{printed}]").into_bytes()),
    ] {
        refused(name, &bytes);
    }
    // Every hexadecimal digit counts.
    for at in (0..printed.len()).filter(|at| printed.as_bytes()[*at] == b'a').step_by(29) {
        let mut bytes = printed.clone().into_bytes();
        bytes[at] = b'b';
        refused("another letter", &bytes);
    }
}

/// What can be proved of a dataset, and what is refused with the reason.
#[test]
fn splits_are_proved_where_ids_decide() {
    let folder = Folder::new();
    write_visits(&folder);
    folder.write("key", [7; 32]);
    let convert = |out: &str, options: &str| {
        folder.run(&format!("convert a.csv --out {out} {SPLIT} {options}")).ok();
    };
    let root_of = |out: &str| {
        let printed = folder.run(&format!("manifest {out} --root")).ok().stdout;
        printed.split_whitespace().next().unwrap().to_owned()
    };
    let proved = |out: &str| {
        folder.run(&format!("manifest {out} --prove-split --out proof.json")).ok();
        folder.run(&format!("verify-proof proof.json --root {}", root_of(out))).ok();
        folder.run(&format!("verify {out} --read-data")).ok();
    };
    convert("subjects", "--id visit --subject patient --to tar");
    convert("ids", "--id visit --proofs");
    convert("private", "--id visit --subject patient --id-mode hmac --id-key key");
    ["subjects", "ids", "private"].into_iter().for_each(proved);
    for operation in [
        "compact subjects",
        "erase subjects PAT-007 --all-versions",
        "reshard subjects --out cut --target-shard 32KiB",
        "pull ids copy --split val",
        "remove subjects --source a.csv",
    ] {
        folder.run(operation).ok();
    }
    ["subjects", "cut", "copy"].into_iter().for_each(proved);
    // A proof of an id leads through a segment that states its split.
    folder.run("manifest ids --prove 17 --out proof.json").ok();
    folder.run(&format!("verify-proof proof.json --root {} --id 17", root_of("ids"))).ok();
    convert("contents", "--split-by content");
    convert("sites", "--split-by site --subject patient");
    convert("archives", "--id visit --to tar");
    folder.run("convert a.csv --out whole").ok();
    for (out, part) in [
        ("contents", "follow from contents"),
        ("sites", "follow from a column"),
        ("archives", "may have been renamed"),
        ("whole", "not divided"),
    ] {
        let ran = folder.run(&format!("manifest {out} --prove-split"));
        assert!(ran.code == 2 && ran.stderr.contains(part), "{out}: {ran:?}");
    }
}

/// An entry whose segments state other sides than their records have is found, and so is one that states none.
#[test]
fn wrong_splits_of_segments_are_found() {
    for sorted in [false, true] {
        let folder = Folder::new();
        write_visits(&folder);
        folder.run(&format!("convert a.csv --out d --id visit --subject patient {SPLIT}")).ok();
        if sorted {
            folder.run("compact d --sort-by site,note").ok();
        }
        folder.run("verify d").ok();
        let log = folder.path().join("d/_shardify/log");
        let mut entries: Vec<_> = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        let genuine = std::fs::read(&entries[0]).unwrap();
        restate(&folder.path().join("d"), |entry| {
            let split = entry["segments"][0]["split"].clone();
            let other = entry["segments"].as_array().unwrap().iter().position(|one| one["split"] != split).unwrap();
            entry["segments"][0]["split"] = entry["segments"][other]["split"].clone();
        });
        let found = folder.run("verify d");
        assert!(found.code == 1 && found.stdout.contains("a segment of the id index states the split"), "{found:?}");
        std::fs::write(&entries[0], genuine).unwrap();
        support::rewrite_entry(&entries[0], |entry| {
            let segments = entry["segments"].as_array_mut().unwrap();
            segments.iter_mut().for_each(|one| drop(one.as_object_mut().unwrap().remove("split")));
        });
        for command in ["manifest d --find V1", "manifest d --prove-split", "pull d copy --split val"] {
            let refused = folder.run(command);
            assert!(refused.code == 5 && refused.stderr.contains("state their split"), "{refused:?}");
        }
    }
}

/// Few groups give other shares than were asked for: the run says how many there are and which shares they gave.
#[test]
fn few_groups_of_other_shares_are_told() {
    let folder = Folder::new();
    let rows: String = (0..2900).map(|i| format!("v{i},state-{}\n", i % 29)).collect();
    folder.write("visits.csv", format!("visit,state\n{rows}"));
    let convert = "convert visits.csv --split train=0.8,val=0.1,test=0.1";
    let told = folder.run(&format!("{convert} --out states --split-by state")).ok();
    let line = told.stderr.lines().find(|line| line.contains("groups")).unwrap_or_else(|| panic!("{told:?}"));
    assert!(line.starts_with("note: 29 groups by state; shares of records are "), "{line}");
    assert!(line.ends_with(" % (80.0/10.0/10.0 % were asked for), since groups stay whole"), "{line}");
    let planned = folder.run(&format!("{convert} --out planned --split-by state --task-size 8KiB")).ok();
    assert!(planned.stderr.contains("shares of records are "), "{planned:?}");
    let even = folder.run(&format!("{convert} --out visits --split-by visit")).ok();
    assert!(!even.stderr.contains("shares of records"), "{even:?}");
}

#[test]
fn a_division_by_content_names_the_column_that_looks_like_a_group() {
    let folder = Folder::new();
    let table = |group: &str, groups: usize| -> String {
        format!("{group},n\n") + &(0..60).map(|i| format!("g{},{i}\n", i % groups)).collect::<String>()
    };
    for (number, (group, groups, is_told)) in [
        ("patient_id", 6, true),
        ("user", 6, true),
        ("speaker", 6, true),
        ("site_id", 6, true),
        ("patient_id", 60, false),
        ("colour", 6, false),
    ]
    .into_iter()
    .enumerate()
    {
        folder.write("t.csv", table(group, groups));
        let said = folder.run(&format!("convert t.csv --out a{number} --split train=0.8,val=0.2")).ok().stderr;
        let told = format!("--subject {group} or --split-by {group} keeps them together");
        assert_eq!(said.contains(&told), is_told, "{group} {groups}: {said}");
        let options = format!("--split train=0.8,val=0.2 --split-by {group}");
        let said = folder.run(&format!("convert t.csv --out b{number} {options}")).ok().stderr;
        assert!(!said.contains("keeps them together"), "{said}");
    }
}
