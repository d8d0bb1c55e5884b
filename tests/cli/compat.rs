//! Datasets that former releases wrote are read as they are: `testdata/compat/` is never made again.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and copy their own inputs")]

use crate::support;

use std::{fs, path::Path};

use serde_json::Value;
use support::{Folder, testdata_path};

#[test]
fn datasets_of_format_1_are_read() {
    let folder = Folder::new();
    for format in ["parquet", "tar", "tfrecord"] {
        let dataset = testdata_path(&format!("compat/v1/{format}"));
        let dataset = dataset.to_str().unwrap();
        let summary = folder.run(&format!("manifest {dataset} --json")).ok().summary();
        assert_eq!((summary["version"].as_u64(), summary["records"].as_u64()), (Some(4), Some(150)), "{format}");
        let verified = folder.run(&format!("verify {dataset} --read-data --json")).ok().summary();
        assert_eq!((verified["records"].as_u64(), verified["shards"].as_u64()), (Some(150), Some(1)), "{format}");
        assert_eq!(folder.run(&format!("verify {dataset} --json --at v3")).code, 0, "{format}");
        let found = folder.run(&format!("manifest {dataset} --json --find 7")).ok();
        let hits: Vec<String> = found
            .objects()
            .iter()
            .filter(|o| o["type"] == "hit")
            .map(|hit| format!("{} {} {}", hit["record_id"].as_str().unwrap(), hit["versions"], hit["state"]))
            .collect();
        assert!(hits.iter().any(|h| h.starts_with("PERSON.csv#7 ") && h.ends_with("\"live\"")), "{format}: {hits:?}");
        assert_eq!(
            hits.iter().filter(|h| h.starts_with("CONDITION_OCCURRENCE.csv#")).count(),
            21,
            "{format}: {hits:?}"
        );
    }
    let samples = testdata_path("compat/v1/samples");
    folder.run(&format!("verify {} --read-data", samples.display())).ok();
}

#[test]
fn datasets_of_format_2_are_read() {
    let folder = Folder::new();
    for (name, row) in [("sorted", 343), ("zorder", 1207)] {
        let dataset = testdata_path(&format!("compat/v2/{name}"));
        let dataset = dataset.to_str().unwrap();
        let verified = folder.run(&format!("verify {dataset} --read-data --json")).ok().summary();
        assert_eq!((verified["records"].as_u64(), verified["shards"].as_u64()), (Some(1461), Some(1)), "{name}");
        let place = |at: &str| {
            let hits = folder.run(&format!("manifest {dataset} --json --find 2012-03-04 --at {at}")).ok().objects();
            let hits: Vec<_> = hits.into_iter().filter(|o| o["type"] == "hit").collect();
            assert_eq!(
                (hits.len(), hits[0]["state"].as_str(), hits[0]["origin"]["row"].as_u64()),
                (1, Some("live"), Some(64)),
                "{name}"
            );
            hits[0]["ordinal"].as_u64()
        };
        assert_eq!((place("v1"), place("v2")), (Some(63), Some(row)), "{name}");
        let snow = folder.run(&format!("manifest {dataset} --json --find snow")).ok().objects();
        assert_eq!(snow.iter().filter(|o| o["type"] == "hit").count(), 26, "{name}");
    }
}

#[test]
fn datasets_of_format_3_are_read_and_their_proofs_hold() {
    let folder = Folder::new();
    let root = "533175ca2d8d737feea93591bae8830b8da688f8182446166f3d156b0925a055";
    let before = "1810b18edae679893b94e16e61b0962c0e315d230913001e06fb150d19b7cb7d";
    // Roots of these versions do not say whether ids are stored as they are, so that absence follows only if they are.
    of_person_and_condition(&folder, "v3", (root, before), (7, &Value::Null));
    folder.run(&format!("verify {} --read-data", stored("v3", "tensors"))).ok();
}

#[test]
fn datasets_of_format_4_are_read_and_their_proofs_hold() {
    let folder = Folder::new();
    let root = "a0af8953f748ba1dcc002b22046a8598222cabb9b62248504566511e6bf5bef5";
    let before = "09af7bcbe85d7e67f8a260c51766c17de2d0a0cdcd0e79d4b169e3349d0d3bf0";
    of_person_and_condition(&folder, "v4", (root, before), (0, &"plain".into()));
    let verified = folder.run(&format!("verify {} --read-data --json", stored("v4", "samples"))).ok().summary();
    assert_eq!(verified["records"].as_u64(), Some(8));
}

fn stored(format: &str, name: &str) -> String {
    testdata_path(&format!("compat/{format}/{name}")).to_str().unwrap().to_owned()
}

/// Two patient tables of which somebody was erased, the roots of the newest version and of the one named `before`, what
/// becomes of a proof of absence, and one of the tables with private ids.
fn of_person_and_condition(folder: &Folder, format: &str, roots: (&str, &str), absent: (i32, &Value)) {
    let dataset = stored(format, "erased");
    let verified = folder.run(&format!("verify {dataset} --read-data --json")).ok().summary();
    assert_eq!((verified["records"].as_u64(), verified["version"].as_u64()), (Some(485), Some(5)));
    folder.run(&format!("verify {dataset} --read-data --at before")).ok();
    let hits = |dataset: &str, rest: &str| {
        let found = folder.run(&format!("manifest {dataset} --json --find {rest}")).objects();
        found.iter().filter(|o| o["type"] == "hit").count()
    };
    let of_erased = ["7 --at before", "7 --at v5", "5 --at before", "5 --at v5"].map(|rest| hits(&dataset, rest));
    assert_eq!(of_erased, [22, 22, 0, 0]);
    let (root, before) = roots;
    assert_eq!(folder.run(&format!("manifest {dataset} --root --json")).ok().summary()["root"], root);
    let then = folder.run(&format!("manifest {dataset} --root --at before --json")).ok().summary();
    assert_eq!(then["root"], before);
    for (claim, code) in [("present", 0), ("absent", absent.0)] {
        let proof = stored(format, &format!("{claim}.json"));
        let checked = folder.run(&format!("verify-proof {proof} --root {root} --json"));
        assert_eq!(
            (checked.code, &checked.summary()["claim"], &checked.summary()["ids"]),
            (code, &claim.into(), absent.1)
        );
    }
    let key = folder.write("key", "the key of a dataset for tests..");
    let private = stored(format, "private");
    folder.run(&format!("verify {private} --read-data --id-key {}", key.display())).ok();
    assert_eq!(hits(&private, &format!("7 --id-key {}", key.display())), 1);
}

#[test]
fn an_erasure_that_a_former_release_was_killed_in_is_finished() {
    // Whoever writes next finishes it.
    for next in ["vacuum ds", "manifest ds --tag now", "compact ds"] {
        finished_by(next);
    }
}

fn finished_by(next: &str) {
    let folder = Folder::new();
    copy_tree(&testdata_path("compat/v4/unfinished"), &folder.path().join("ds"));
    assert_eq!(folder.run("verify ds").code, 1, "what is left of the erased is damage");
    folder.run(next).ok();
    let verified = folder.run("verify ds --read-data --json").ok().summary();
    assert_eq!((verified["records"].as_u64(), verified["unreferenced"].as_u64()), (Some(463), Some(0)));
    for version in ["v1", "before"] {
        assert_eq!(folder.run(&format!("manifest ds --find 7 --at {version}")).code, 1, "{version}");
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
