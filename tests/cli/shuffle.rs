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

/// The shards have the order that `docs/FORMAT.md` states; they are the same at any number of threads and any memory,
/// and cut into tasks the samples keep that order.
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

/// Tables whose rows differ in length, with bad rows in between.
fn write_tables(folder: &Folder) {
    for (table, visits) in [("a", 0..3000), ("b/c", 3000..4000), ("d", 4000..4001), ("e", 4001..4001)] {
        let row = |visit: u32| match visit % 97 {
            5 => format!("bad,PAT-{visit},s,\n"),
            _ => format!("{visit},PAT-{:03},s{},{}\n", visit * 7 % 211, visit % 5, "x".repeat(visit as usize % 80)),
        };
        folder.write(
            &format!("in/{table}.csv"),
            format!("visit,patient,site,note\n{}", visits.map(row).collect::<String>()),
        );
    }
}

const TABLES: &str = "convert in --id visit --subject patient --type visit=int64 --on-error skip --target-shard 32KiB";

/// What a record is, wherever it lies.
fn identity(row: &Value) -> (String, String, u64, String, u64) {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| row[name].as_u64().unwrap();
    (text("record_id"), text("source"), number("row"), text("subject_id"), number("first_version"))
}

/// Rank of an exported record of a table.
fn rank(row: &Value, seed: u64) -> u128 {
    let name = row["source"].as_str().unwrap().as_bytes();
    xxh3_128_with_seed(&[name, &row["row"].as_u64().unwrap().to_le_bytes()].concat(), seed)
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all
}

/// All formats, any number of threads, any memory: the same bytes, in the order that `docs/FORMAT.md` states. Records
/// have the numbers and the contents that they have without it, and are found by id, subject and origin.
#[test]
fn rows_of_tables_are_in_the_order_of_their_ranks() {
    let folder = Folder::new();
    write_tables(&folder);
    for to in ["parquet", "tar", "tar --codec zstd", "tfrecord", "tfrecord --codec gzip"] {
        let plain = format!("plain-{}", to.replace(' ', ""));
        assert_eq!(folder.run(&format!("{TABLES} --out {plain} --to {to}")).code, 3);
        let mut contents = Vec::new();
        let mut out = String::new();
        for (number, more) in
            ["--jobs 1", "--jobs 2 --memory 64MiB", "--jobs 7 --memory 1GiB", "--memory 300MiB"].iter().enumerate()
        {
            out = format!("{}-{number}", to.replace(' ', ""));
            let ran = folder.run(&format!("{TABLES} --out {out} --to {to} --shuffle 3 {more}"));
            assert_eq!(ran.code, 3, "{ran:?}");
            contents.push(folder.shards_below_tags(&out));
        }
        assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "{to}");
        folder.run(&format!("verify {out} --read-data")).ok();
        let (before, after) = (rows(&folder, &plain), rows(&folder, &out));
        assert!(after.is_sorted_by_key(|row| rank(row, 3)), "{to}");
        assert_eq!(before.len(), 4001 - (0..4001).filter(|visit| visit % 97 == 5).count());
        let all = |rows: &[Value]| sorted(rows.iter().map(identity).collect::<Vec<_>>());
        assert!(all(&before) == all(&after), "{to}");
        assert_ne!(before.iter().map(identity).collect::<Vec<_>>(), after.iter().map(identity).collect::<Vec<_>>());
        for row in after.iter().step_by(371) {
            let hits = folder.run(&format!("manifest {out} --find {} --json", row["record_id"].as_str().unwrap())).ok();
            let hit = &hits.objects()[0];
            for name in ["shard", "ordinal", "hash", "record_id", "subject_id"] {
                assert_eq!(hit[name], row[name], "{to}: {hit}");
            }
            assert_eq!((&hit["origin"]["row"], &hit["versions"]["from"]), (&row["row"], &row["first_version"]), "{to}");
        }
        let patient = folder.run(&format!("manifest {out} --find PAT-007 --json")).ok().objects();
        assert_eq!(
            patient.iter().filter(|hit| hit["type"] == "hit").count(),
            before.iter().filter(|row| row["subject_id"] == "PAT-007").count()
        );
    }
}

/// Later runs, a race for a version, merges, sorting, erasure, removal, undo and vacuum: the same records as without
/// the order, and `verify` finds nothing.
#[test]
fn shuffled_datasets_live_like_others() {
    let folder = Folder::new();
    write_tables(&folder);
    let text = |range: std::ops::Range<u32>| {
        let row = |n: u32| format!("{n},PAT-{:03},s{},late\n", n * 7 % 211, n % 5);
        format!("visit,patient,site,note\n{}", range.map(row).collect::<String>())
    };
    folder.write("more/f.csv", text(5000..5600));
    folder.write("more/g.csv", text(5600..5700));
    for to in ["parquet", "tar", "tar --codec gzip", "tfrecord"] {
        let name = to.replace(' ', "");
        let names = [format!("plain-{name}"), format!("mixed-{name}")];
        for (out, more) in names.iter().zip(["", "--shuffle 3"]) {
            assert_eq!(folder.run(&format!("{TABLES} --out {out} --to {to} {more}")).code, 3);
            folder.run(&format!("convert more --out {out}")).ok();
        }
        let same = |what: &str| {
            // Merges make versions of one of the two alone.
            let early = |(id, source, row, subject, version)| (id, source, row, subject, std::cmp::min(version, 3));
            let of = |out: &String| sorted(rows(&folder, out).iter().map(identity).map(early).collect::<Vec<_>>());
            let (one, other) = (of(&names[0]), of(&names[1]));
            let differs = one.iter().zip(&other).find(|(a, b)| a != b);
            assert!(one == other, "{to}: {what}: {} and {}, {differs:?}", one.len(), other.len());
            folder.run(&format!("verify {} --read-data", names[1])).ok();
        };
        let second = rows(&folder, &names[1]).split_off(3959);
        assert!(
            second.iter().all(|row| row["first_version"] == 2) && second.is_sorted_by_key(|row| rank(row, 3)),
            "{to}"
        );
        let each = |command: &str| names.iter().for_each(|out| drop(folder.run(&command.replace("DATASET", out)).ok()));
        each("compact DATASET --target-shard 256KiB");
        same("merged");
        if to == "parquet" {
            each("compact DATASET --sort-by site,visit --target-shard 64KiB");
            same("sorted");
        }
        each("erase DATASET PAT-007 --all-versions");
        same("erased");
        each("remove DATASET --source more/f.csv");
        same("removed");
        each("revert DATASET --to v2");
        same("reverted");
        folder.write("in/d.csv", text(8000..8300));
        for out in &names {
            let ran = folder.run(&format!("convert in --out {out} --on-changed replace --on-error skip"));
            assert!(ran.code == 0 || ran.code == 3, "{ran:?}");
        }
        same("replaced");
        each("vacuum DATASET --retain 0s --force");
        same("vacuumed");
        folder.write("in/d.csv", "visit,patient,site,note\n4000,PAT-1,s,x\n");
    }
}

/// Each split is shuffled by itself; copies, datasets cut from it and private ids work as they do for others.
#[test]
fn splits_copies_and_private_ids_are_shuffled() {
    let folder = Folder::new();
    write_tables(&folder);
    folder.write("key", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    for to in ["parquet", "tar"] {
        for (name, more) in [
            ("split", "--split train=0.7,val=0.3"),
            ("private", "--id-mode hmac --id-key key --redact-source-paths"),
            ("sized", "--records-per-shard 500"),
        ] {
            let out = format!("{name}-{to}");
            let options = if name == "sized" { TABLES.replace(" --target-shard 32KiB", "") } else { TABLES.to_owned() };
            let ran = folder.run(&format!("{options} --out {out} --to {to} --shuffle 8 {more}"));
            assert_eq!(ran.code, 3, "{ran:?}");
            let key = if name == "private" { " --id-key key" } else { "" };
            folder.run(&format!("verify {out} --read-data{key}")).ok();
            let all = rows(&folder, &out);
            let splits = all.chunk_by(|a, b| a["shard"].as_str().map(split) == b["shard"].as_str().map(split));
            let count = splits.map(|split| assert!(split.is_sorted_by_key(|row| rank(row, 8)), "{out}")).count();
            assert_eq!(count, if name == "split" { 2 } else { 1 }, "{out}");
            if name == "sized" {
                let shards: Vec<usize> = all.chunk_by(|a, b| a["shard"] == b["shard"]).map(<[Value]>::len).collect();
                assert_eq!(shards, [500, 500, 500, 500, 500, 500, 500, 459]);
            }
            folder.run(&format!("pull {out} copy-{out}")).ok();
            folder.run(&format!("verify copy-{out} --read-data{key}")).ok();
            let identities = |out: &str| rows(&folder, out).iter().map(identity).collect::<Vec<_>>();
            assert_eq!(identities(&format!("copy-{out}")), identities(&out));
        }
        folder.run(&format!("reshard split-{to} --out few-{to} --sample 0.5 --target-shard 16KiB")).ok();
        folder.run(&format!("verify few-{to} --read-data")).ok();
    }
}

fn split(shard: &str) -> Option<&str> {
    shard.split('/').find_map(|folder| folder.strip_prefix("split="))
}

/// Inputs larger than a task are shuffled as a whole, and cannot be planned.
#[test]
fn tables_are_shuffled_in_one_task() {
    let folder = Folder::new();
    write_tables(&folder);
    let ran = folder.run(&format!("{TABLES} --out one --shuffle 1 --task-size 20KiB"));
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(rows(&folder, "one").is_sorted_by_key(|row| rank(row, 1)));
    let ran = folder.run(&format!("plan {TABLES} --out planned --shuffle 1 --task-size 20KiB"));
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("--shuffle mixes the records of all tables") && ran.stderr.contains("shardify convert"),
        "{ran:?}"
    );
}

/// More data than is sorted at a time: several runs on disk, with sources of all readers, one of them too wide for its
/// first types.
#[test]
fn runs_on_disk_are_merged() {
    let folder = Folder::new();
    let row = |n: u32| {
        format!("{{\"n\":{n},\"text\":\"{}\",\"list\":[{n},null],\"s\":{{\"a\":{}}}}}\n", "y".repeat(700), n % 3)
    };
    folder.write("big.jsonl", (0..40_000).map(row).collect::<String>() + "{\"n\":\"late\",\"text\":null}\n");
    folder.run("convert big.jsonl --out plain --write row-group=4MiB --memory 64MiB").ok();
    for (number, memory) in ["64MiB", "100MiB", "1GiB"].iter().enumerate() {
        folder
            .run(&format!("convert big.jsonl --out m{number} --write row-group=4MiB --memory {memory} --shuffle 2"))
            .ok();
        folder.run(&format!("verify m{number} --read-data")).ok();
    }
    let shards = |out: &str| folder.shards_below_tags(out);
    assert!(shards("m0") == shards("m1") && shards("m1") == shards("m2"));
    let mixed = rows(&folder, "m0");
    assert_eq!(mixed.len(), 40_001);
    assert!(mixed.is_sorted_by_key(|row| rank(row, 2)));
    let all = |out: &str| sorted(rows(&folder, out).iter().map(identity).collect::<Vec<_>>());
    assert!(all("plain") == all("m0"));
}

/// Without ids, records are found by their origins, also those of a later run and behind rejected rows.
#[test]
fn records_are_found_by_their_origins() {
    let folder = Folder::new();
    write_tables(&folder);
    for to in ["parquet", "tar"] {
        let options = "--type visit=int64 --on-error skip --target-shard 32KiB";
        assert_eq!(folder.run(&format!("convert in/a.csv --out {to} --to {to} --shuffle 4 {options}")).code, 3);
        assert_eq!(folder.run(&format!("convert in/b in/d.csv --out {to} {options}")).code, 3);
        let all = rows(&folder, to);
        for row in all.iter().step_by(97) {
            let origin = format!("{}#{}", row["source"].as_str().unwrap(), row["row"]);
            let hit = &folder.run(&format!("manifest {to} --find {origin} --json")).ok().objects()[0];
            assert_eq!((&hit["shard"], &hit["ordinal"]), (&row["shard"], &row["ordinal"]), "{to}: {origin}");
        }
        let bad = folder.run(&format!("manifest {to} --find a.csv#6 --json")).objects();
        assert_eq!(bad[0]["missing"][0], "a.csv#6", "{bad:?}");
    }
}
