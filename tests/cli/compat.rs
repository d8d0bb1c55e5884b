//! The dataset in `testdata/compat/1/`, which is never made again, is read and goes on: its bytes are format 1.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and copy their own inputs")]

use crate::support;

use std::{fs, path::Path};

use support::{Folder, rewrite_entry, testdata_path};

#[test]
fn the_stored_dataset_of_format_1_is_read_and_goes_on() {
    let folder = Folder::new();
    copy_tree(&testdata_path("compat/1"), &folder.path().join("ds"));
    let verified = folder.run("verify ds --read-data --json").ok().summary();
    assert_eq!((verified["records"].as_u64(), verified["shards"].as_u64()), (Some(11), Some(1)));
    let found = |id: &str, at: &str| -> Vec<String> {
        let objects = folder.run(&format!("manifest ds --find {id} {at} --json")).objects();
        let hits = objects.into_iter().filter(|one| one["type"] == "hit");
        hits.map(|hit| format!("{} {}", hit["record_id"].as_str().unwrap(), hit["state"].as_str().unwrap())).collect()
    };
    let none: [&str; 0] = [];
    let visits = ["V01 live", "V04 live", "V07 live", "V10 live"];
    assert_eq!(found("PAT-1", ""), visits);
    assert_eq!(found("V02", ""), ["V02 live"]);
    assert_eq!(found("V05", ""), none);
    assert_eq!(found("V11", "--at gold"), ["V11 live"]);
    let history = folder.run("manifest ds --history --json").ok().objects();
    let operations: Vec<&str> = history.iter().filter_map(|one| one["operation"].as_str()).collect();
    assert_eq!(operations, ["convert", "convert", "tag", "compact", "erase"]);
    // It goes on: the erased record stays away, and the new one is found.
    folder.write("more.csv", "visit,patient,note\nV05,PAT-2,again\nV13,PAT-1,new\n");
    let more = folder.run("convert more.csv --out ds --json").summary();
    assert_eq!((more["records_out"].as_u64(), more["records_rejected"].as_u64()), (Some(1), Some(1)), "{more}");
    assert_eq!(found("V13", ""), ["V13 live"]);
    folder.run("verify ds --read-data").ok();
}

#[test]
fn an_entry_of_another_format_is_refused_by_name() {
    let folder = Folder::new();
    folder.write("a.csv", "id\n1\n");
    folder.run("convert a.csv --out ds").ok();
    let log = folder.path().join("ds/_shardify/log/18446744073709551614.json");
    for other in [0, 2] {
        rewrite_entry(&log, |entry| entry["format"] = other.into());
        for command in ["verify ds", "manifest ds --find 1", "convert a.csv --out ds", "compact ds", "pull ds copy"] {
            let refused = folder.run(command);
            assert_eq!(refused.code, 2, "{command}: {refused:?}");
            let found = format!("expected dataset format 1, found {other}");
            assert!(refused.stderr.contains(&found) && refused.stderr.contains("newer release"), "{refused:?}");
        }
    }
}

/// Copies a folder, such as a stored dataset that is to be written to.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
