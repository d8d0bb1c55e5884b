//! `convert --shuffle`: the records of a run in an order that follows from a seed.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::collections::BTreeSet;

use serde_json::Value;
use support::Folder;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Rows of the export: one for each live record, in the order of the shards.
fn rows(folder: &Folder, dataset: &str) -> Vec<Value> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl")).ok();
    exported.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(folder: &Folder, dataset: &str) -> Vec<String> {
    rows(folder, dataset).iter().map(|row| row["record_id"].as_str().unwrap().to_owned()).collect()
}

/// Samples of two parts in folders, some with upper-case extensions.
fn write_samples(folder: &Folder, below: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let key = format!("{below}/{}/s-{number:04}", number % 7);
        folder.write(&format!("{key}.txt"), "x".repeat(number as usize % 300));
        folder.write(&format!("{key}.JSON"), format!("{{\"n\":{number}}}"));
    }
}

/// The shards have the order that `docs/FORMAT.md` states; they are the same at any number of threads and any memory, and cut into
/// tasks the samples keep that order.
#[test]
fn samples_of_files_are_in_the_order_of_their_ranks() {
    let folder = Folder::new();
    write_samples(&folder, "tree", 0..400);
    for to in ["tar", "parquet", "tfrecord --codec gzip"] {
        let name = to.split(' ').next().unwrap();
        folder.run(&format!("convert tree --out {name}-plain --to {to} --target-shard 64KiB")).ok();
        let mut all = Vec::new();
        for (number, more) in
            ["--jobs 1", "--jobs 2 --memory 64MiB", "--jobs 7 --memory 1GiB", "--memory 200MiB"].iter().enumerate()
        {
            let out = format!("{name}-{number}");
            folder.run(&format!("convert tree --out {out} --to {to} --shuffle 11 --target-shard 64KiB {more}")).ok();
            folder.run(&format!("verify {out} --read-data")).ok();
            all.push(folder.shards_below_tags(&out));
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{to}");
        let (plain, shuffled) = (ids(&folder, &format!("{name}-plain")), ids(&folder, &format!("{name}-0")));
        let mut expected = plain.clone();
        expected.sort_by_key(|key| xxh3_128_with_seed(key.as_bytes(), 11));
        assert!(shuffled == expected && shuffled != plain && shuffled.len() == 400, "{to}");
        folder.run(&format!("convert tree --out {name}-other --to {to} --shuffle 12")).ok();
        assert_ne!(ids(&folder, &format!("{name}-other")), shuffled);
    }
    let members = |dataset: &str| folder.members(dataset);
    assert_eq!(members("tar-0"), members("tar-plain"));
    folder.run("convert tree --out tasks --to tar --shuffle 11 --task-size 400KiB --jobs 2").ok();
    assert_eq!(ids(&folder, "tasks"), ids(&folder, "tar-0"));
    folder.run("verify tasks --read-data").ok();
    assert!(folder.only_shards("tasks").len() > 2);
    let planned = folder.run("plan convert tree --out planned --to tar --shuffle 11 --task-size 400KiB --json").ok();
    let tasks = planned.summary()["tasks"].as_u64().unwrap();
    assert!(tasks > 2, "{planned:?}");
    let plan = planned.summary()["plan"].as_str().unwrap().to_owned();
    for task in (0..tasks).rev() {
        folder.run(&format!("run-task {plan} --task {task} --jobs 1")).ok();
    }
    folder.run(&format!("commit {plan}")).ok();
    let contents = |dataset: &str| -> BTreeSet<Vec<u8>> {
        folder.only_shards(dataset).into_iter().map(|(_, bytes)| bytes).collect()
    };
    assert_eq!(ids(&folder, "planned"), ids(&folder, "tar-0"));
    assert_eq!(contents("planned"), contents("tasks"));
}

/// Labels and classes stay with their samples, erased samples stay out, and a later run shuffles what it adds.
#[test]
fn samples_of_files_keep_what_belongs_to_them() {
    let folder = Folder::new();
    write_samples(&folder, "tree", 0..120);
    folder.run("convert tree --exclude *.JSON --label-from-folder --out plain --target-shard 16KiB").ok();
    folder.run("convert tree --exclude *.JSON --label-from-folder --out mixed --target-shard 16KiB --shuffle 5").ok();
    assert_eq!(folder.members("plain"), folder.members("mixed"));
    let mut before = ids(&folder, "mixed");
    write_samples(&folder, "tree", 120..200);
    folder.run("convert tree --exclude *.JSON --out mixed").ok();
    let after = ids(&folder, "mixed");
    assert_eq!(after[..120], before);
    before.sort_unstable();
    let mut added: Vec<String> = after[120..].to_vec();
    assert_eq!(added.len(), 80);
    assert!(added.is_sorted_by_key(|key| xxh3_128_with_seed(key.as_bytes(), 5)));
    added.sort_unstable();
    assert!(added.iter().all(|key| !before.contains(key)));
    folder.run("erase mixed 0/s-0007 --all-versions").ok();
    folder.run("compact mixed").ok();
    folder.run("verify mixed --read-data").ok();
    assert!(!ids(&folder, "mixed").contains(&"0/s-0007".to_owned()));
    let text = folder.run("manifest mixed").ok().stdout;
    assert!(text.contains("shuffled with seed 5"), "{text}");
    assert_eq!(folder.run("manifest mixed --json").ok().summary()["settings"]["shuffle"], 5);
    let history = folder.run("manifest mixed --history --json").ok().stdout;
    assert!(history.contains(r#""shuffle":"5""#), "{history}");
}

/// A dataset has one seed, or none.
#[test]
fn the_seed_is_fixed_when_a_dataset_is_made() {
    let folder = Folder::new();
    write_samples(&folder, "a", 0..5);
    write_samples(&folder, "b", 5..9);
    folder.run("convert a --out mixed --shuffle 18446744073709551615").ok();
    folder.run("convert a --out plain").ok();
    for (dataset, seed, message) in [
        ("mixed", "6", "expected the seed 18446744073709551615 of this dataset, found 6"),
        ("plain", "6", "expected no --shuffle, because the records of this dataset are not shuffled, found it"),
    ] {
        let ran = folder.run(&format!("convert b --out {dataset} --shuffle {seed}"));
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
    }
    folder.run("convert b --out mixed --shuffle 18446744073709551615").ok();
    assert_eq!(ids(&folder, "mixed").len(), 9);
}
