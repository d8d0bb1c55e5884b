//! Flipped bits: whatever is damaged of a dataset is found, and nothing is answered or deleted on its word.
//! `scripts/checks/flip_check.py` does the same with thousands of bits, and datasets of every kind.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage what they look at")]

use crate::support;

use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Folder, Ran};

/// Exit code of damage.
const DAMAGED: i32 = 5;

/// A dataset of sorted, erased and tagged shards in two formats.
fn dataset(to: &str) -> Folder {
    let folder = Folder::new();
    for k in 0..2 {
        let rows: String = (0..40).map(|i| format!("r{k}-{i},PAT-{},{}\n", i % 9, i * 37 % 41)).collect();
        folder.write(&format!("{k}.csv"), format!("id,who,x\n{rows}"));
        folder.run(&format!("convert {k}.csv --id id --subject who --to {to}")).ok();
    }
    let merge = if to == "parquet" { "compact --sort-by x" } else { "compact --min-inputs 2" };
    for step in [merge, "manifest --tag gold", "erase shards PAT-4 --all-versions", "convert 0.csv --on-changed append"]
    {
        folder.run(step).ok();
    }
    folder.write("2.csv", "id,who,x\nz,PAT-3,7\n");
    folder.run("convert 2.csv --id id --subject who").ok();
    folder
}

/// All files of the dataset but those that are under no checksum.
fn files(folder: &Folder) -> Vec<PathBuf> {
    fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { walk(&entry, out) } else { out.push(entry) }
        }
    }
    let mut out = Vec::new();
    walk(&folder.path().join("shards"), &mut out);
    // Orders of erasures that are finished are of no version any more.
    let left_out = ["locks", "rejects", "staging", "intents", "erasures", "leases", "clock", "store.json"];
    out.retain(|path| !left_out.iter().any(|name| path.display().to_string().contains(&format!("_shardify/{name}"))));
    out.retain(|path| path.metadata().unwrap().len() > 0);
    // What described a folder of shards that are erased is of no version any more.
    let of_shards = |path: &Path| {
        let beside = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        beside.into_iter().any(|name| name.to_string_lossy().starts_with("000000."))
    };
    out.retain(|path| !path.ends_with("schema.json") || of_shards(path));
    out.sort();
    out
}

/// What a command answers, without what differs from run to run.
fn answer(ran: &Ran) -> Vec<String> {
    let steady = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        ["seconds", "cutoff"].iter().for_each(|name| {
            value.as_object_mut().unwrap().remove(*name);
        });
        value.to_string()
    };
    ran.stdout.lines().map(steady).collect()
}

#[test]
fn a_flipped_bit_is_found_and_never_answered_from() {
    let commands = [
        "manifest --find PAT-3 --json",
        "manifest --find r1-5 --json",
        "manifest --export jsonl --json",
        "erase shards PAT-3 --all-versions --dry-run --json",
        "vacuum --retain 0s --force --dry-run --json",
    ];
    for to in ["parquet", "tfrecord"] {
        let folder = dataset(to);
        folder.run("verify --read-data").ok();
        let before = commands.map(|command| answer(&folder.run(command)));
        // One bit of each file, somewhere else in each.
        // The signs beside old shards hold nothing, and nobody asks them.
        let files = files(&folder).into_iter().filter(|path| !path.to_string_lossy().contains("READ-LIVE-SHARDS"));
        for (number, path) in files.enumerate() {
            let sound = std::fs::read(&path).unwrap();
            let at = number.wrapping_mul(7_919) % sound.len();
            let mut flipped = sound.clone();
            flipped[at] ^= 1 << (number % 8);
            std::fs::write(&path, flipped).unwrap();
            let place = format!("{} byte {at} bit {}", path.display(), number % 8);
            let verified = folder.run("verify --read-data");
            assert!([1, DAMAGED].contains(&verified.code), "{place}: {verified:?}");
            for (command, before) in commands.iter().zip(&before) {
                let ran = folder.run(command);
                assert!(ran.code == DAMAGED || answer(&ran) == *before, "{place}: {command}: {ran:?}");
            }
            std::fs::write(&path, sound).unwrap();
        }
        folder.run("verify --read-data").ok();
    }
}

#[test]
fn a_flipped_bit_in_the_list_of_live_shards_makes_vacuum_delete_nothing() {
    let folder = dataset("tar");
    let lists: Vec<PathBuf> =
        files(&folder).into_iter().filter(|path| path.display().to_string().contains("-shards-")).collect();
    let objects = files(&folder).len();
    for path in lists {
        let sound = std::fs::read(&path).unwrap();
        for at in (4..sound.len()).step_by(97) {
            let mut flipped = sound.clone();
            flipped[at] ^= 1;
            std::fs::write(&path, flipped).unwrap();
            let ran = folder.run("vacuum --retain 0s --force");
            assert_eq!((ran.code, files(&folder).len()), (DAMAGED, objects), "{} byte {at}: {ran:?}", path.display());
            assert!(ran.stderr.contains("hint: "), "{ran:?}");
        }
        std::fs::write(&path, sound).unwrap();
    }
    folder.run("verify --read-data").ok();
}
