//! `compact` divides large shards: the records are the same, under the same numbers, in shards of about the target, and
//! a second run finds nothing to do.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and delete folders")]

use crate::support;

use serde_json::Value;
use support::Folder;

/// Numbers that look random, and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const FORMATS: [&str; 6] =
    ["parquet", "tar", "tar --codec zstd", "tar --codec gzip", "tfrecord", "tfrecord --codec gzip"];

/// Writes a table whose rows have these sizes.
fn write_rows(folder: &Folder, name: &str, sizes: &[usize], dice: &mut Dice) {
    let mut rows = String::from("id,who,note\n");
    for (row, size) in sizes.iter().enumerate() {
        let note: String = (0..*size).map(|_| char::from(b'a' + u8::try_from(dice.below(26)).unwrap())).collect();
        rows.push_str(&format!("{name}{row},PAT-{},{note}\n", row % 17));
    }
    folder.write(&format!("{name}.csv"), rows);
}

/// Live records by their ids, without the places that a compaction changes.
fn records(folder: &Folder, dataset: &str) -> Vec<Value> {
    let mut rows = folder.run(&format!("manifest {dataset} --export jsonl")).ok().objects();
    for row in &mut rows {
        for field in ["shard", "ordinal", "offset", "shard_version"] {
            row.as_object_mut().unwrap().remove(field);
        }
    }
    // Small shards on both sides of a large one may have become one.
    rows.sort_by_key(|row| row["record_id"].as_str().map(str::to_owned));
    rows
}

/// Sizes of the live shards.
fn sizes(folder: &Folder, dataset: &str) -> Vec<u64> {
    let listed = folder.run(&format!("manifest {dataset} --list --json")).ok().objects();
    listed.iter().filter(|one| one["type"] == "shard").map(|one| one["bytes"].as_u64().unwrap()).collect()
}

/// The rows themselves, as another conversion reads them.
fn contents(folder: &Folder, dataset: &str) -> Vec<String> {
    let out = format!("{dataset}-rows");
    folder.run(&format!("convert {dataset} --out {out} --to tfrecord --target-shard 1GiB")).ok();
    let rows = folder.run(&format!("head {out} -n 10000 --json")).ok().objects();
    std::fs::remove_dir_all(folder.path().join(&out)).unwrap();
    let mut rows: Vec<String> =
        rows.iter().filter(|one| one["type"] == "record").map(|one| one["values"].to_string()).collect();
    rows.sort();
    rows
}

/// Each format, by one process and as tasks: shards of about the target, the same records and bytes, and nothing more
/// to do.
#[test]
fn large_shards_become_several_of_about_the_target() {
    for to in FORMATS {
        let folder = Folder::new();
        let mut dice = Dice(5);
        write_rows(&folder, "a", &(0..3000).map(|row| row % 211).collect::<Vec<_>>(), &mut dice);
        folder.run(&format!("convert a.csv --out d --id id --subject who --to {to} --target-shard 1GiB")).ok();
        let (before, bytes, rows) = (records(&folder, "d"), sizes(&folder, "d"), contents(&folder, "d"));
        let [bytes] = bytes.as_slice() else { panic!("{to}: {bytes:?}") };
        let target = bytes / 7;
        let dry = folder.run(&format!("compact d --target-shard {target} --dry-run")).ok().stdout;
        assert!(dry.contains("divide") && dry.contains("larger than 180% of the target"), "{to}: {dry}");
        assert!(dry.contains("the dataset would have 7 shards instead of 1"), "{to}: {dry}");
        let proof = if to.len() % 2 == 0 { "--verify full" } else { "" };
        let done = folder.run(&format!("compact d --target-shard {target} {proof} --json")).ok().summary();
        assert_eq!((&done["shards_after"], &done["records_out"]), (&7.into(), &3000.into()), "{to}");
        let after = sizes(&folder, "d");
        let fits = |size: &&u64| **size as f64 > 0.75 * target as f64 && (**size as f64) < 1.8 * target as f64;
        assert_eq!(after.iter().filter(fits).count(), 7, "{to}: {target} {after:?}");
        assert_eq!(records(&folder, "d"), before, "{to}");
        assert!(contents(&folder, "d") == rows, "{to}");
        folder.run("verify d --read-data").ok();
        folder.run("verify d --at v1 --read-data").ok();
        let found = folder.run("manifest d --find a2998 a17 PAT-3 --json").ok().summary();
        assert_eq!(found["hits"], 2 + (0..3000).filter(|row| row % 17 == 3).count(), "{to}");
        let again = folder.run(&format!("compact d --target-shard {target} --json")).ok().summary();
        assert_eq!((&again["version"], &again["shards_added"]), (&2.into(), &0.into()), "{to}");
        // As tasks, with the same bytes.
        folder.run(&format!("convert a.csv --out t --id id --subject who --to {to} --target-shard 1GiB")).ok();
        let plan = folder.run(&format!("plan compact t --target-shard {target} --json")).ok().summary();
        folder.run(&format!("run-task {} --task 0", plan["plan"].as_str().unwrap())).ok();
        folder.run(&format!("commit {}", plan["plan"].as_str().unwrap())).ok();
        assert_eq!(folder.shards_below_tags("t"), folder.shards_below_tags("d"), "{to}");
        folder.run("verify t --read-data").ok();
    }
}

/// Any records, any shards, any target: the same records remain, and a second run has nothing to do.
#[test]
fn any_shards_keep_their_records() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let folder = Folder::new();
        let to = FORMATS[usize::try_from(seed).unwrap() % FORMATS.len()];
        for name in ["a", "b", "c"] {
            let (rows, most) = (1 + dice.below(300), [2, 40, 900][dice.below(3)]);
            let sizes: Vec<usize> =
                (0..rows).map(|_| if dice.below(40) == 0 { most * 20 } else { 1 + dice.below(most) }).collect();
            write_rows(&folder, name, &sizes, &mut dice);
            let group = dice.one(&["--write row-group=8KiB", ""]);
            let size = dice.one(&["2KiB", "64KiB", "1GiB"]);
            folder
                .run(&format!(
                    "convert {name}.csv --out d --id id --subject who --to {to} --target-shard {size} {group}"
                ))
                .ok();
        }
        if seed % 3 == 0 {
            folder.run("erase d PAT-5").ok();
        }
        let (before, rows) = (records(&folder, "d"), contents(&folder, "d"));
        let targets = [dice.one(&["1KiB", "6KiB", "40KiB"]), "3KiB"];
        for target in &targets[..if seed < 6 { 2 } else { 1 }] {
            let proof = dice.one(&["--verify full", ""]);
            folder.run(&format!("compact d --min-inputs 2 --target-shard {target} {proof}")).ok();
            let after = records(&folder, "d");
            assert_eq!(after.len(), before.len(), "{seed}: {target}");
            let differing = before.iter().zip(&after).find(|(old, new)| old != new);
            assert_eq!(differing, None, "{seed}: {target}");
            assert!(contents(&folder, "d") == rows, "{seed}: {target}");
            folder.run("verify d --read-data").ok();
            let again = folder.run(&format!("compact d --min-inputs 2 --target-shard {target} --json")).ok().summary();
            assert_eq!(again["shards_added"], 0, "{seed}: {target} {again}");
        }
    }
}

/// What cannot be divided stays, with the reason; parts of a divided dataset and constants stay with their records.
#[test]
fn shards_that_cannot_be_divided_stay() {
    let folder = Folder::new();
    let mut dice = Dice(9);
    write_rows(&folder, "one", &[50_000], &mut dice);
    write_rows(&folder, "a", &[100; 2000], &mut dice);
    folder.run("convert one.csv --out one --to tar").ok();
    folder.run("convert a.csv --out sorted --id id").ok();
    folder.run("compact sorted --sort-by note").ok();
    for dataset in ["one", "sorted"] {
        let ran = folder.run(&format!("compact {dataset} --target-shard 4KiB --dry-run")).ok().stdout;
        assert!(ran.contains("keep") && ran.contains("cannot be divided"), "{dataset}: {ran}");
        let ran = folder.run(&format!("compact {dataset} --target-shard 4KiB --json")).ok().summary();
        assert_eq!(ran["shards_added"], 0, "{ran}");
    }
    folder.run("convert a.csv --out splits --id id --split train=0.7,test=0.3").ok();
    let before = records(&folder, "splits");
    folder.run("compact splits --target-shard 16KiB").ok();
    assert_eq!(records(&folder, "splits"), before);
    assert!(sizes(&folder, "splits").len() > 6);
    folder.run("verify splits --read-data").ok();
    let bounded = folder.run("compact splits --target-shard 2KiB --max-bytes 40KiB --dry-run").ok().stdout;
    assert!(bounded.contains("left to another run by --max-bytes") && bounded.contains("divide"), "{bounded}");
}
