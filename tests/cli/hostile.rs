//! Datasets and folders that somebody else made: whatever they contain, no command writes, deletes or empties a file outside of them.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use std::{fs, os::unix::fs::symlink, path::Path};

use crate::support::Folder;

const ROWS: &str = "id,v\nA1,1\nA2,2\nA3,3\n";

/// Returns a folder with a dataset, and precious files outside of it.
fn dataset() -> Folder {
    let folder = Folder::new();
    folder.write("a.csv", ROWS);
    folder.run("convert a.csv --id id --out ds -q").ok();
    for name in ["one", "two"] {
        folder.write(&format!("home/{name}"), "precious");
    }
    folder
}

fn assert_untouched(folder: &Folder) {
    let mut names: Vec<_> =
        fs::read_dir(folder.path().join("home")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    for name in names {
        assert_eq!(fs::read_to_string(folder.path().join("home").join(name)).unwrap(), "precious");
    }
}

#[test]
fn links_in_place_of_locks_do_not_empty_their_targets() {
    let folder = dataset();
    let locks = folder.path().join("ds/_shardify/locks");
    fs::create_dir_all(&locks).unwrap();
    for (name, target) in [("erase", "one"), ("vacuum", "two")] {
        let _ = fs::remove_file(locks.join(name));
        symlink(Path::new("../../../home").join(target), locks.join(name)).unwrap();
    }
    for command in ["erase ds A1", "erase ds A1 --all-versions", "vacuum ds --retain 0s --force"] {
        let ran = folder.run(command);
        assert!(ran.code == 0 || ran.code == 5 && ran.stderr.contains("found the link"), "{command}: {ran:?}");
    }
    assert_untouched(&folder);
}

#[test]
fn links_in_place_of_folders_are_not_followed_for_writing_or_deleting() {
    for below in ["staging", "log", "locks", "lists", "erasures", "receipts", "index"] {
        let folder = dataset();
        let place = folder.path().join("ds/_shardify").join(below);
        if place.exists() {
            // The content is the same, behind a link.
            fs::rename(&place, folder.path().join("moved")).unwrap();
            for entry in fs::read_dir(folder.path().join("moved")).unwrap().map(Result::unwrap) {
                fs::rename(entry.path(), folder.path().join("home").join(entry.file_name())).unwrap();
            }
        }
        let before = listing(&folder.path().join("home"));
        symlink("../../home", &place).unwrap();
        folder.write("b.csv", "id,v\nB1,1\n");
        for command in [
            "convert b.csv --out ds",
            "compact ds --min-inputs 2",
            "erase ds A1 --all-versions",
            "vacuum ds --retain 0s --force",
        ] {
            let ran = folder.run(command);
            assert!([0, 5].contains(&ran.code), "{below}, {command}: {ran:?}");
        }
        assert_eq!(listing(&folder.path().join("home")), before, "{below}");
    }
}

fn listing(folder: &Path) -> Vec<(std::ffi::OsString, u64)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut out: Vec<_> = entries.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).collect();
    out.sort();
    out
}

#[test]
fn the_settings_of_a_folder_neither_write_elsewhere_nor_choose_what_is_erased() {
    let folder = dataset();
    folder.write("home/one", "precious");
    for (settings, command) in [
        ("[report]\nhtml = \"home/one\"\n", "report ds"),
        ("[check]\nprometheus = \"home/one\"\n", "check ds"),
        ("[erase]\nreceipt = \"home/one\"\n", "erase ds A1"),
        ("[erase]\nsubject = [\"A2\"]\n", "erase ds A1"),
        ("[vacuum]\nforce = true\n", "vacuum ds"),
        ("dataset = \"../ds\"\n", "manifest"),
        ("[convert]\nopenlineage = \"http://127.0.0.1:9/x\"\n", "convert a.csv --out ds"),
        ("[convert]\nid-key = \"home/one\"\n", "convert a.csv --out ds"),
    ] {
        folder.write("shardify.toml", settings);
        let ran = folder.run(command);
        assert!(ran.code == 2 && ran.stderr.contains("~/.config/shardify/shardify.toml"), "{settings}: {ran:?}");
    }
    assert_untouched(&folder);
}

#[test]
fn settings_are_a_small_file_and_no_pipe_or_device() {
    let folder = dataset();
    symlink("/dev/zero", folder.path().join("shardify.toml")).unwrap();
    assert!(folder.run("manifest ds").stderr.contains("pipe or device"));
    fs::remove_file(folder.path().join("shardify.toml")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("shardify.toml")).status();
    if made.is_ok_and(|made| made.success()) {
        assert!(folder.run("manifest ds").stderr.contains("pipe or device"));
        fs::remove_file(folder.path().join("shardify.toml")).unwrap();
    }
    folder.write("shardify.toml", "#".repeat((1 << 20) + 1));
    assert!(folder.run("manifest ds").stderr.contains("1048576 bytes"));
}

#[test]
fn the_intent_of_a_plan_deletes_nothing_outside_of_the_dataset() {
    let folder = dataset();
    for i in 1..=3 {
        folder.write(&format!("in/{i}.csv"), format!("id,v\nB{i},1\n"));
    }
    let planned = folder.run("plan convert in --out ds --task-size 8B --json").ok();
    let plan = planned.summary()["plan"].as_str().unwrap().to_owned();
    folder.run_with(&["run-task", &plan, "--task", "0", "-q"]).ok();
    let id = Path::new(&plan).file_stem().unwrap().to_str().unwrap();
    let outside = format!("{}/../../home/one", &id[..16]);
    let absolute = folder.path().join("home/two");
    let intent = serde_json::json!({
        "transaction": id, "operation": "plan", "planned_on": 1, "paths": [outside, absolute.to_str().unwrap()],
    });
    folder.write(&format!("ds/_shardify/intents/{id}-9-0.json"), intent.to_string());
    folder.run("erase ds A1 --all-versions");
    assert_untouched(&folder);
}
