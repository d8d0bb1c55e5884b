//! `reshard --shuffle`: the chosen records in the order of their ranks, with the shards that `convert --shuffle` would
//! have written.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use serde_json::Value;
use support::Folder;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const FORMATS: [&str; 6] = [
    "parquet",
    "tar --codec none",
    "tar --codec zstd",
    support::INDEXED_PARTS,
    "tfrecord --codec none",
    "tfrecord --codec gzip",
];

fn write_rows(folder: &Folder, name: &str, rows: std::ops::Range<u32>) {
    let row = |i: u32| format!("{name}-{i}-x,PAT-{}-x,{i},text {}\n", i % 50, i * 7919 % 1009);
    folder.write(&format!("in/{name}.csv"), format!("id,who,age,note\n{}", rows.map(row).collect::<String>()));
}

/// Three sources of 300 rows, each converted by a run of its own, in one dataset.
fn dataset(options: &str) -> Folder {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        write_rows(&folder, name, 0..300);
        folder.run(&format!("convert in --id id --subject who --target-shard 8KiB --to {options}")).ok();
    }
    folder
}

fn reshard(folder: &Folder, arguments: &str) -> Value {
    folder.run(&format!("reshard shards {arguments} --json")).ok().summary()
}

fn rows(folder: &Folder, dataset: &str) -> Vec<Value> {
    folder.run(&format!("manifest {dataset} --export jsonl")).ok().objects()
}

/// Ids, origin and hash of each record.
fn identity(row: &Value) -> String {
    ["record_id", "subject_id", "source", "row", "hash"].map(|name| row[name].to_string()).join(" ")
}

fn sorted(rows: &[Value]) -> Vec<String> {
    let mut all: Vec<String> = rows.iter().map(identity).collect();
    all.sort_unstable();
    all
}

fn rank(row: &Value, seed: u64) -> u128 {
    let name = row["source"].as_str().unwrap().as_bytes();
    xxh3_128_with_seed(&[name, &row["row"].as_u64().unwrap().to_le_bytes()].concat(), seed)
}

#[test]
fn records_of_all_runs_are_mixed_by_rank() {
    for to in FORMATS {
        let folder = dataset(to);
        let before = rows(&folder, "shards");
        let summary = reshard(&folder, "--out mixed --shuffle 7 --jobs 1");
        assert_eq!((&summary["records_out"], &summary["records_filtered"]), (&900.into(), &0.into()), "{to}");
        let mixed = rows(&folder, "mixed");
        assert!(mixed.is_sorted_by_key(|row| rank(row, 7)), "{to}");
        assert!(sorted(&before) == sorted(&mixed), "{to}");
        folder.run("verify mixed --read-data").ok();
        // Threads and memory decide nothing, and neither does it whether the records were shuffled when they were
        // converted.
        reshard(&folder, "--out again --shuffle 7 --jobs 6 --memory 64MiB");
        assert!(folder.shards_below_tags("mixed") == folder.shards_below_tags("again"), "{to}");
        folder
            .run(&format!("convert in --id id --subject who --target-shard 8KiB --out once --shuffle 7 --to {to}"))
            .ok();
        let order = |dataset: &str| rows(&folder, dataset).iter().map(identity).collect::<Vec<_>>();
        assert!(order("mixed") == order("once"), "{to}");
        for (who, hits) in [("PAT-7-x", 18), ("b-3-x", 1), ("nobody", 0)] {
            let found = folder.run(&format!("manifest mixed --find {who} --json")).objects();
            assert_eq!(found.iter().filter(|hit| hit["type"] == "hit").count(), hits, "{to}: {who}: {found:?}");
        }
    }
}

#[test]
fn a_part_of_the_records_is_mixed_and_the_dataset_lives_on() {
    for to in FORMATS {
        let folder = dataset(to);
        let cut = reshard(&folder, "--out some --shuffle 3 --sample 0.5 --records-per-shard 100");
        let taken = cut["records_out"].as_u64().unwrap();
        let some = rows(&folder, "some");
        assert!(some.len() as u64 == taken && some.is_sorted_by_key(|row| rank(row, 3)), "{to}");
        let shards = folder.run("manifest some --list --json").ok().objects();
        let full = shards.iter().filter(|shard| shard["type"] == "shard" && shard["records"] == 100).count() as u64;
        assert_eq!(full, taken / 100, "{to}: {shards:?}");
        // A dataset of a dataset, in its order and in another one.
        folder.run("reshard some --out more --shuffle 4 --shards 3").ok();
        assert_eq!(folder.only_shards("more").len(), 3, "{to}");
        assert!(sorted(&rows(&folder, "more")) == sorted(&some), "{to}");
        folder.run("reshard more --out same --shards 2").ok();
        assert!(rows(&folder, "same").is_sorted_by_key(|row| rank(row, 4)), "{to}");
        let erased = folder.run("erase more --subject PAT-7-x --all-versions --json").ok().summary();
        let of_who = some.iter().filter(|row| row["subject_id"] == "PAT-7-x").count();
        assert_eq!(erased["records_erased"], of_who, "{to}");
        // Later runs shuffle what they add, with the seed of the new dataset.
        write_rows(&folder, "d", 0..40);
        folder.run("convert in/d.csv --out more").ok();
        folder.run("compact more").ok();
        let live = rows(&folder, "more");
        assert_eq!(live.len(), some.len() - of_who + 40 - usize::from(of_who > 0), "{to}");
        let added: Vec<&Value> = live.iter().filter(|row| row["source"] == "d.csv").collect();
        assert!(added.is_sorted_by_key(|row| rank(row, 4)), "{to}");
        for dataset in ["some", "more", "same"] {
            folder.run(&format!("verify {dataset} --read-data")).ok();
        }
    }
}

#[test]
fn samples_of_files_are_named_by_their_keys() {
    for to in ["tar", "tfrecord", "parquet"] {
        let folder = Folder::new();
        for number in 0..200 {
            folder.write(&format!("in/s{number:03}.txt"), format!("text {number}"));
            folder.write(&format!("in/s{number:03}.cls"), format!("{}", number % 3));
        }
        folder.run(&format!("convert in --to {to} --split train=0.8,val=0.2 --target-shard 4KiB")).ok();
        reshard(&folder, "--out mixed --shuffle 5");
        folder.run("verify mixed --read-data").ok();
        let split = |row: &Value| row["shard"].as_str().unwrap().split('/').nth(1).unwrap().to_owned();
        let mixed = rows(&folder, "mixed");
        assert!(mixed.is_sorted_by_key(|row| {
            (split(row), xxh3_128_with_seed(row["record_id"].as_str().unwrap().as_bytes(), 5))
        }));
        let of = |rows: &[Value]| {
            let mut all: Vec<_> = rows.iter().map(|row| (row["record_id"].to_string(), split(row))).collect();
            all.sort();
            all
        };
        assert!(of(&mixed) == of(&rows(&folder, "shards")) && mixed.len() == 200, "{to}");
        let val = reshard(&folder, "--out val --split val --shuffle 5");
        let of_val: Vec<&Value> = mixed.iter().filter(|row| split(row) == "split=val").collect();
        assert_eq!((&val["records_out"], of_val.len() > 10), (&of_val.len().into(), true), "{to}");
        assert_eq!(val["records_filtered"], 200 - of_val.len(), "{to}");
        let only = rows(&folder, "val");
        assert!(only.iter().map(|row| &row["record_id"]).eq(of_val.iter().map(|row| &row["record_id"])), "{to}");
        folder.run("verify val --read-data").ok();
        let ran = folder.run("reshard shards --out none --split dev");
        assert!(ran.code == 2 && ran.stderr.contains("expected one of train, val, found `dev`"), "{ran:?}");
        let damaged = format!("shards/{}", rows(&folder, "shards")[0]["shard"].as_str().unwrap());
        let mut bytes = std::fs::read(folder.path().join(&damaged)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        folder.write(&damaged, bytes);
        let ran = folder.run("reshard shards --out bad --shuffle 5");
        assert!(ran.code == 5 && ran.stderr.contains("checksum"), "{ran:?}");
        assert!(!folder.path().join("bad/_shardify/log").exists());
    }
}
