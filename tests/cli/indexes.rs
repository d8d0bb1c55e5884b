//! Indexes for training tools, seekable shards and names, through the command line.
//!
//! What other people's readers make of them is `scripts/checks/index_check.py`.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use crate::{reseal, support};

use std::io::Read as _;

use reseal::reseal;
use serde_json::Value;
use support::Folder;

/// Six commits of two samples each.
fn samples(folder: &Folder, options: &str) {
    for i in 0..6 {
        for (name, extension) in [("a", "jpg"), ("a", "json"), ("b", "jpg"), ("b", "json")] {
            folder.write(&format!("raw{i}/{name}{i}.{extension}"), format!("{name} {extension} {i}").repeat(40));
        }
        folder.run(&format!("convert raw{i} {options}")).ok();
    }
}

#[cfg(feature = "energon")]
#[test]
fn indexes_do_not_depend_on_threads_and_follow_compaction() {
    let folder = Folder::new();
    samples(&folder, "--out one --jobs 1 --index dali,wids,energon");
    samples(&folder, "--out many --jobs 7 --index dali,wids,energon");
    for step in ["as converted", "compacted"] {
        assert!(folder.shards_below_tags("one") == folder.shards_below_tags("many"), "{step}");
        let read = |dataset: &str, name: &str| std::fs::read(folder.path().join(dataset).join(name)).unwrap();
        let text = |dataset: &str, name: &str| support::without_tags(&String::from_utf8(read(dataset, name)).unwrap());
        for name in ["shardindex.json", ".nv-meta/.info.json"] {
            assert_eq!(text("one", name), text("many", name), "{step}: {name}");
        }
        let database = ".nv-meta/index.sqlite";
        assert!(read("one", database) == read("many", database), "{step}: {database}");
        for dataset in ["one", "many"] {
            let verified = folder.run(&format!("verify {dataset} --json --read-data")).ok().summary();
            assert_eq!(verified["unreferenced"], 0, "{verified}");
        }
        folder.run("compact one --jobs 1").ok();
        folder.run("compact many --jobs 7").ok();
    }
    let info = std::fs::read_to_string(folder.path().join("one/.nv-meta/.info.json")).unwrap();
    assert_eq!(info.matches(".tar\": 12").count(), 1, "{info}");
}

#[cfg(feature = "energon")]
#[test]
fn what_a_killed_run_left_behind_is_reported_and_written_anew() {
    let folder = Folder::new();
    samples(&folder, "--index wids,energon");
    let paths = ["shardindex.json", ".nv-meta/index.uuid", ".nv-meta/index.sqlite"].map(|p| format!("shards/{p}"));
    for path in paths {
        let path = folder.path().join(path);
        let sound = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let ran = folder.run("verify");
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stdout.contains("found none"), "{ran:?}");
        // Nothing is new, yet the index is written.
        assert!(folder.run("convert raw0").ok().stdout.contains("nothing to do"));
        assert!(std::fs::read(&path).unwrap() == sound, "{}", path.display());
    }
    std::fs::write(folder.path().join("shards/.nv-meta/index.uuid"), "of another version").unwrap();
    assert!(folder.run("verify").stdout.contains("the index belongs to another version"));
    folder.run("compact --min-inputs 50 --dry-run").ok();
    assert_eq!(folder.run("verify").code, 1, "a dry run writes nothing");
    folder.run("compact --min-inputs 50 --since v99").ok();
    folder.run("verify").ok();
    // A description of the samples is the user's.
    let yaml = folder.path().join("shards/.nv-meta/dataset.yaml");
    std::fs::write(&yaml, "mine").unwrap();
    folder.run("compact").ok();
    folder.run("verify").ok();
    assert_eq!(std::fs::read_to_string(yaml).unwrap(), "mine");
}

#[test]
fn damaged_indexes_are_found() {
    for (options, extension, stated) in [
        ("--index dali,energon", ".idx", true),
        ("--index energon", ".tar.idx", true),
        ("--to tfrecord", ".tfindex", true),
        ("--to tfrecord", ".idx", true),
        ("--index dali", ".idx", false),
    ] {
        if !cfg!(feature = "energon") && options.contains("energon") {
            continue;
        }
        let folder = Folder::new();
        samples(&folder, options);
        let name = folder.shards("shards").into_iter().map(|(name, _)| name).find(|n| n.ends_with(extension)).unwrap();
        let path = folder.path().join("shards").join(&name);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.iter().rposition(|b| (b'0'..=b'8').contains(b) || extension == ".tar.idx").unwrap();
        bytes[last] += 1;
        if extension == ".idx" && !options.contains("tfrecord") {
            bytes.truncate(bytes.len() - 20);
        }
        std::fs::write(&path, bytes).unwrap();
        if stated {
            reseal(&folder.path().join("shards"), &[name]);
        }
        let ran = folder.run("verify");
        assert_eq!(ran.code, 1, "{options} {extension}: {ran:?}");
        let expected = if stated { "does not agree with the sidecar" } else { "expected 90 bytes, found 70" };
        assert!(ran.stdout.contains(expected), "{ran:?}");
        std::fs::remove_file(&path).unwrap();
        assert!(folder.run("verify").stdout.contains("found none"), "{options} {extension}");
    }
}

#[test]
fn a_dataset_keeps_its_indexes() {
    let folder = Folder::new();
    folder.write("raw/a.jpg", "x");
    folder.write("more/b.jpg", "y");
    folder.run("convert raw --index none").ok();
    let ran = folder.run("convert more --index dali");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("this dataset was created with --index none; you gave --index dali"), "{ran:?}");
    folder.run("convert more").ok();
    assert_eq!(folder.shards("shards"), folder.only_shards("shards"));
    let ran = folder.run("convert raw --out packed --codec zstd --index dali");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("use --codec none, which allows dali, wids, energon or hf"), "{ran:?}");
    let summary = folder.run("convert raw --out auto --json").ok().summary();
    assert_eq!(summary["indexes"], serde_json::json!(["dali"]));
}

/// Nothing is written that lacks a file, and no version of a dataset that has the index.
#[cfg(not(feature = "energon"))]
#[test]
fn an_index_that_the_program_was_built_without_is_refused() {
    let folder = Folder::new();
    folder.write("raw/a.jpg", "x");
    let refused = folder.run("convert raw --index energon");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("the feature `energon`, which the index energon needs"), "{refused:?}");
    assert!(refused.stderr.contains("--features energon") && !folder.path().join("shards").exists(), "{refused:?}");
}

#[cfg(feature = "energon")]
#[test]
fn keys_that_come_twice_are_refused_for_energon_before_the_commit() {
    let folder = Folder::new();
    folder.write("raw/a.jpg", "x");
    folder.write("more/a.txt", "x");
    folder.run("convert raw --index energon").ok();
    let ran = folder.run("convert more");
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("found `a` twice"), "{ran:?}");
    assert_eq!(folder.run("manifest --json").ok().summary()["version"], 1);
    assert!(folder.run("verify").ok().stdout.contains("is sound"));
}

#[test]
fn a_record_of_a_compressed_shard_is_read_alone() {
    for codec in ["zstd", "gzip"] {
        let folder = Folder::new();
        for part in 0..6 {
            let rows: String = (0..3_000).map(|i| format!("R{part}-{i:04},{i}\n")).collect();
            folder.write(&format!("{part}.csv"), format!("id,n\n{rows}"));
            folder.run(&format!("convert {part}.csv --to tar --id id --codec {codec}")).ok();
        }
        for step in ["as converted", "compacted"] {
            let out = folder.run("manifest --json --find R0-0000 R3-1500 R5-2999").ok();
            for hit in out.objects().iter().filter(|o| o["type"] == "hit") {
                assert_eq!(record(&folder, hit), 1024, "{codec} {step}");
            }
            folder.run("verify --read-data").ok();
            folder.run("compact").ok();
        }
        let human = folder.run("manifest --find R3-1500").ok();
        assert!(human.stdout.contains(" of the frame at "), "{human:?}");
    }
}

/// Reads the record of a hit from its frame; returns its length.
fn record(folder: &Folder, hit: &Value) -> usize {
    let number = |name: &str| usize::try_from(hit[name].as_u64().unwrap()).unwrap();
    let name = hit["shard"].as_str().unwrap();
    let shard = std::fs::read(folder.path().join("shards").join(name)).unwrap();
    let frame = &shard[number("frame_offset")..][..number("frame_length")];
    let mut raw = Vec::new();
    if name.ends_with(".gz") {
        // There is no end of the stream in a unit, so it is read until nothing more comes.
        let mut inflate = flate2::Decompress::new(false);
        raw.reserve(64 << 20);
        inflate.decompress_vec(frame, &mut raw, flate2::FlushDecompress::Sync).unwrap();
    } else {
        zstd::stream::read::Decoder::new(frame).unwrap().read_to_end(&mut raw).unwrap();
    }
    let record = &raw[number("offset_in_frame")..][..number("length")];
    assert!(record.starts_with(format!("{}.json\0", hit["id"].as_str().unwrap()).as_bytes()));
    record.len()
}

#[test]
fn names_that_a_reader_cannot_take_are_found_before_anything_is_written() {
    let folder = Folder::new();
    for name in ["my photo.jpg", "my photo.txt", "plain.jpg", "plain.txt", "lone.txt"] {
        folder.write(&format!("raw/{name}"), "x");
    }
    let ran = folder.run("convert raw --index dali");
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("found 1 that some reader cannot accept: `my photo.jpg` (dali: blanks)"), "{ran:?}");
    assert!(!folder.path().join("shards").exists());

    let summary = folder.run("convert raw --index dali --on-name rename --out renamed --json").ok().summary();
    assert_eq!((summary["samples_renamed"].as_u64(), summary["samples_incomplete"].as_u64()), (Some(1), Some(1)));
    let index = folder.shards("renamed").into_iter().find(|(name, _)| name.ends_with(".idx")).unwrap().1;
    assert!(String::from_utf8(index).unwrap().contains(" my%20photo.jpg "));
    assert_eq!(folder.run_with(&["manifest", "renamed", "--find", "my photo"]).code, 0, "the id stays");

    let ran = folder.run("convert raw --index dali --on-name skip --missing skip --out left --json");
    assert_eq!((ran.code, ran.summary()["records_rejected"].as_u64()), (3, Some(2)));
    let ran = folder.run("convert raw --missing fail --out complete");
    assert!(ran.stderr.contains("expected the parts jpg, txt, found no jpg"), "{ran:?}");

    // Nobody chose this index, so it gives way.
    let summary = folder.run("convert raw --out auto --json").ok().summary();
    assert_eq!(summary["indexes"], serde_json::json!([]));
}

/// A tar as GNU tar makes it of a folder: an entry for the folder, then its files.
fn gnu_tar(folder: &str, files: &[(&str, usize)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: String, kind: tar::EntryType, size: usize| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_entry_type(kind);
        header.set_size(size as u64);
        builder.append_data(&mut header, name, vec![b'x'; size].as_slice()).unwrap();
    };
    add(format!("{folder}/"), tar::EntryType::Directory, 0);
    files.iter().for_each(|(name, size)| add(format!("{folder}/{name}"), tar::EntryType::Regular, *size));
    builder.into_inner().unwrap()
}

/// DALI's index of a tar of samples of two files each, and the offsets of energon, by the `tar` crate.
#[cfg(feature = "energon")]
fn derived(bytes: &[u8]) -> (String, Vec<u8>) {
    let mut archive = tar::Archive::new(bytes);
    let (mut lines, mut offsets, mut end, mut files) = (String::new(), Vec::new(), 0, 0);
    for entry in archive.entries().unwrap().map(Result::unwrap).filter(|entry| entry.header().entry_type().is_file()) {
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let extension = name.rsplit('.').next().unwrap();
        let (at, size) = (entry.raw_file_position(), entry.size());
        lines += if files % 2 == 0 { "\n" } else { " " };
        lines += &format!("{extension} {at} {size} {name}");
        if files % 2 == 0 {
            offsets.extend_from_slice(&entry.raw_header_position().to_le_bytes());
        }
        end = at + size.next_multiple_of(512);
        files += 1;
    }
    offsets.extend_from_slice(&end.to_le_bytes());
    (format!("v1.2 {}{lines}\n", files / 2), offsets)
}

const FOREIGN: [(&str, usize); 4] = [("p.jpg", 700), ("p.json", 3), ("q.jpg", 0), ("q.json", 512)];

#[cfg(feature = "energon")]
#[test]
fn shards_that_are_linked_get_the_indexes_of_their_dataset() {
    use md5::Digest as _;
    let folder = Folder::new();
    samples(&folder, "--index dali,wids,energon");
    let tars = [gnu_tar("one", &FOREIGN), gnu_tar("two", &FOREIGN)];
    folder.write("foreign/a.tar", &tars[0]);
    folder.write("foreign/site=2/b.tar", &tars[1]);
    let report = folder.run("adopt foreign --out shards --json").ok().summary();
    let tag = report["folder"].as_str().unwrap().to_owned();
    let read = |name: String| std::fs::read(folder.path().join("shards").join(name)).unwrap();
    for (bytes, place) in tars.iter().zip([format!("{tag}/"), format!("{tag}/site=2/")]) {
        let (lines, offsets) = derived(bytes);
        assert_eq!(String::from_utf8(read(format!("{place}000000.idx"))).unwrap(), lines);
        assert_eq!(read(format!("{place}000000.tar.idx")), offsets);
        let list: Value = serde_json::from_slice(&read(format!("{place}shardindex.json"))).unwrap();
        let md5: String = md5::Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(list["shardlist"][0]["md5sum"], md5);
        assert_eq!(list["shardlist"][0]["nsamples"], 2);
    }
    let live: Value = serde_json::from_slice(&read("shardindex.json".to_owned())).unwrap();
    assert_eq!(live["shardlist"].as_array().unwrap().len(), 8);
    let verified = folder.run("verify shards --json --read-data").ok().summary();
    assert_eq!((&verified["unreferenced"], &verified["problem_count"]), (&0.into(), &0.into()), "{verified}");
    // They are sealed: damage is found.
    let index = folder.path().join(format!("shards/{tag}/000000.idx"));
    let sound = std::fs::read(&index).unwrap();
    std::fs::write(&index, &sound[1..]).unwrap();
    assert_eq!(folder.run("verify shards").code, 1);
    std::fs::write(&index, sound).unwrap();
    // Energon wants every key once; nothing is committed.
    folder.write("again/c.tar", gnu_tar("one", &FOREIGN));
    let twice = folder.run("adopt again --out shards");
    assert!(twice.code == 6 && twice.stderr.contains("found `one/p` twice"), "{twice:?}");
    folder.run("convert raw0").ok();
    folder.run("compact shards --min-inputs 2").ok();
    folder.run("verify shards --read-data").ok();
    folder.run("vacuum shards --retain 0s --force").ok();
    let verified = folder.run("verify shards --json --read-data").ok().summary();
    assert_eq!((&verified["unreferenced"], &verified["records"]), (&0.into(), &16.into()), "{verified}");
}

#[test]
fn nothing_is_written_beside_shards_that_stay_in_place() {
    let folder = Folder::new();
    folder.write("raw/a.jpg", "x");
    folder.run("convert raw --index dali").ok();
    folder.write("shards/extra/x.tar", gnu_tar("one", &FOREIGN));
    folder.write("shards/extra/x.idx", "mine");
    folder.run("adopt shards").ok();
    let beside = || {
        let names = std::fs::read_dir(folder.path().join("shards/extra")).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(beside(), ["x.idx", "x.tar"]);
    let verified = folder.run("verify shards --json --read-data").ok().summary();
    assert_eq!((&verified["records"], &verified["problem_count"]), (&3.into(), &0.into()), "{verified}");
    // A merge makes them part of shards with indexes, and the user's file stays.
    folder.write("more/b.jpg", "y");
    folder.run("convert more").ok();
    folder.run("compact shards --min-inputs 2").ok();
    folder.run("verify shards --read-data").ok();
    folder.run("vacuum shards --retain 0s --force").ok();
    assert_eq!(std::fs::read(folder.path().join("shards/extra/x.idx")).unwrap(), b"mine");
    for kind in ["wids", "energon"].into_iter().filter(|kind| cfg!(feature = "energon") || *kind != "energon") {
        folder.run(&format!("convert raw --out {kind} --index {kind}")).ok();
        folder.write(&format!("{kind}/extra/y.tar"), gnu_tar("two", &FOREIGN));
        let refused = folder.run(&format!("adopt {kind}"));
        assert!(refused.code == 2 && refused.stderr.contains("expected --out"), "{refused:?}");
    }
}

#[test]
fn shards_that_an_index_cannot_describe_are_not_adopted() {
    let folder = Folder::new();
    folder.write("raw/a.jpg", "x");
    folder.run("convert raw --index dali").ok();
    folder.write("blanks/a.tar", gnu_tar("one", &[("p q.jpg", 1)]));
    let refused = folder.run("adopt blanks --out shards");
    assert!(refused.code == 6 && refused.stderr.contains("cannot hold the name `one/p q.jpg`"), "{refused:?}");
    folder.write("bare/a.tar", gnu_tar("one", &[("README", 1)]));
    let refused = folder.run("adopt bare --out shards");
    assert!(refused.code == 6 && refused.stderr.contains("found `one/README`"), "{refused:?}");
    folder.run("convert raw --to tar --codec gzip --index none --out packed").ok();
    folder.write("gz/a.tar.gz", folder.only_shards("packed").remove(0).1);
    let refused = folder.run("adopt gz --out shards");
    assert!(refused.code == 2 && refused.stderr.contains("that the index dali fits"), "{refused:?}");
    for folder_name in ["blanks", "bare", "gz"] {
        folder.run(&format!("adopt {folder_name} --out plain")).ok();
    }
}

#[test]
fn adopted_tfrecord_gets_offsets_of_its_records() {
    let folder = Folder::new();
    folder.write("a.csv", "id\n1\n2\n");
    folder.run("convert a.csv --to tfrecord --index none --out made").ok();
    folder.write("foreign/a.tfrecord", folder.only_shards("made").remove(0).1);
    folder.write("b.csv", "id\n3\n");
    folder.run("convert b.csv --to tfrecord").ok();
    let report = folder.run("adopt foreign --out shards --json").ok().summary();
    let place = |ending: &str| format!("shards/{}/000000.{ending}", report["folder"].as_str().unwrap());
    let read = |ending: &str| std::fs::read_to_string(folder.path().join(place(ending))).unwrap();
    let bytes = std::fs::read(folder.path().join("foreign/a.tfrecord")).unwrap();
    let first = 16 + u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let lines = format!("0 {first}\n{first} {}\n", bytes.len() as u64 - first);
    assert_eq!((read("idx"), read("tfindex")), (lines.clone(), lines));
    let verified = folder.run("verify shards --json --read-data").ok().summary();
    assert_eq!((&verified["unreferenced"], &verified["records"]), (&0.into(), &3.into()), "{verified}");
}

#[cfg(feature = "energon")]
#[test]
fn files_of_the_users_are_never_replaced() {
    for (path, kind) in [
        ("shardindex.json", "wids"),
        (".nv-meta/split.yaml", "energon"),
        (".nv-meta/.info.json", "energon"),
        (".nv-meta/index.sqlite", "energon"),
        (".nv-meta/index.uuid", "energon"),
    ] {
        let folder = Folder::new();
        samples(&folder, "--out made --index wids,energon");
        let command = "convert raw0 --to tar --out d --index wids,energon";
        let mine = folder.write(&format!("d/{path}"), "mine");
        let ran = folder.run(command);
        assert!(ran.code == 2 && ran.stderr.contains(path) && ran.stderr.contains(kind), "{path}: {ran:?}");
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");
        std::fs::remove_file(mine).unwrap();
        folder.run(command).ok();
        // What is the dataset's own is replaced.
        folder.run("convert raw1 --out d").ok();
        folder.run("verify d").ok();
    }
}
