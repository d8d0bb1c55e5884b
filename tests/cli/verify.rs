//! `verify` finds damage of every kind, and says where.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::{reseal, support};

use std::path::{Path, PathBuf};

use reseal::{live_segments, reseal};
use support::Folder;

fn files_below(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, out) } else { out.push(path) }
    }
}

fn dataset(to: &str) -> Folder {
    let folder = Folder::new();
    let mut text = "id,who,x\n".to_owned();
    for i in 0..500 {
        text.push_str(&format!("r{i},PAT-{},{}\n", i % 50, i * 3));
    }
    folder.write("a.csv", text);
    folder.run(&format!("convert a.csv --id id --subject who --to {to}")).ok();
    folder
}

/// Flips one bit in the middle of every object of a dataset, in turn; each must be noticed.
#[test]
fn a_flipped_bit_anywhere_is_found() {
    for to in ["parquet", "tar", "tfrecord", "tar --codec gzip", "tar --codec zstd"] {
        let folder = dataset(to);
        let mut files = Vec::new();
        files_below(&folder.path().join("shards"), &mut files);
        for file in files.iter().filter(|f| !f.to_string_lossy().contains("/locks/")) {
            let sound = std::fs::read(file).unwrap();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            // Lists of sources are not part of what verify reads.
            if name.contains("-sources-") || file.extension().is_some_and(|e| e == "json") {
                continue;
            }
            for at in [4, sound.len() / 3, sound.len() / 2] {
                let mut damaged = sound.clone();
                damaged[at] ^= 0x10;
                std::fs::write(file, &damaged).unwrap();
                let ran = folder.run("verify --read-data");
                // A bit of a table that no value depends on may be flipped unnoticed only below `_shardify/`.
                let in_shard = !file.to_string_lossy().contains("_shardify");
                assert!(ran.code == 1 || (!in_shard && ran.code == 0), "{to} {name} at {at}: {ran:?}");
                assert!(!in_shard || ran.stdout.contains("damaged: "), "{to} {name} at {at}: {ran:?}");
            }
            std::fs::write(file, &sound).unwrap();
        }
        folder.run("verify --read-data").ok();
    }
}

#[test]
fn missing_and_short_objects_are_found_without_reading_data() {
    let folder = dataset("tar");
    let shard = folder.path().join("shards").join(&folder.only_shards("shards")[0].0);
    let sound = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &sound[..sound.len() - 1]).unwrap();
    let ran = folder.run("verify");
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains(&format!("expected {} bytes, found {}", sound.len(), sound.len() - 1)), "{ran:?}");
    std::fs::remove_file(&shard).unwrap();
    assert_eq!(folder.run("verify").code, 1);
    assert_eq!(folder.run("verify --json --read-data").summary()["problem_count"], 1);
}

#[test]
fn compact_refuses_to_copy_damage() {
    let folder = Folder::new();
    for i in 0..6 {
        folder.write(&format!("{i}.csv"), format!("n,m\n{i},x\n"));
        folder.run(&format!("convert {i}.csv --to tar")).ok();
    }
    let shard = folder.path().join("shards").join(&folder.only_shards("shards")[2].0);
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[600] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let ran = folder.run("compact");
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("checksum"), "{ran:?}");
    assert_eq!(folder.run("manifest --json").ok().summary()["version"], 6, "nothing was committed");
}

#[test]
fn no_dataset_is_an_error_with_a_hint() {
    let folder = Folder::new();
    for command in ["verify", "manifest", "compact", "manifest --find x"] {
        let ran = folder.run(command);
        assert_eq!(ran.code, 2, "{command}");
        assert!(ran.stderr.contains("hint: "), "{command}: {ran:?}");
    }
}

#[test]
fn an_index_of_other_ids_is_found() {
    for (sorted, proofs) in [(false, true), (true, true), (false, false), (true, false)] {
        let build = |first: usize| {
            let folder = Folder::new();
            for k in 0..2 {
                let rows: String = (0..300)
                    .map(|i| format!("r{},PAT-{},{}\n", first + i * 7 % 300 + 300 * k, i % 9, i * 7 % 90))
                    .collect();
                folder.write(&format!("{k}.csv"), format!("id,who,x\n{rows}"));
                let proofs = if proofs { "--proofs" } else { "" };
                folder.run(&format!("convert {k}.csv --id id --subject who {proofs}")).ok();
            }
            if sorted {
                folder.run("compact --sort-by x --min-inputs 2").ok();
            }
            folder.run("verify --read-data").ok();
            folder
        };
        let buckets = |folder: &Folder, kind: &str| live_segments(&folder.path().join("shards"), kind);
        let (ours, others) = (build(0), build(5));
        let mut changed = Vec::new();
        for (bucket, other) in buckets(&ours, "record").iter().zip(buckets(&others, "record")) {
            std::fs::copy(other, bucket).unwrap();
            let path = bucket.strip_prefix(ours.path().join("shards")).unwrap();
            changed.push(path.to_string_lossy().into_owned());
        }
        reseal(&ours.path().join("shards"), &changed);
        let ran = ours.run("verify");
        assert_eq!(ran.code, 1, "{ran:?}");
        // Without hashes of the pairs in the log, the sidecars tell.
        let expected = match proofs {
            true => "expected pairs of the id index that match the hash in the log",
            false => "is not in the id index",
        };
        assert!(ran.stdout.contains(expected), "{ran:?}");
    }
}

#[test]
fn repeated_ids_are_counted() {
    let folder = Folder::new();
    folder.write("a.csv", "id,who\na,P\nb,P\na,Q\na,Q\nc,P\n");
    let ran = folder.run("convert a.csv --id id --subject who --json").ok();
    assert_eq!(ran.summary()["ids_repeated"], 2);
    folder.write("b.csv", "id,who\nx,P\nx,P\n");
    let ran = folder.run("convert b.csv").ok();
    assert!(ran.stdout.contains("  repeated   1 record with the id of another record"), "{ran:?}");
}
