//! What holds when names repeat, several runs meet, clocks are wrong and files of the user lie around: no record is
//! lost, and nothing is deleted but what shardify wrote.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own files")]

use crate::support;

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use support::Folder;

/// Record ids that the newest version has, sorted.
fn ids(folder: &Folder, dataset: &str) -> Vec<String> {
    let exported = folder.run(&format!("manifest {dataset} --export jsonl")).ok().objects();
    let mut ids: Vec<String> = exported.iter().filter_map(|row| row["record_id"].as_str().map(str::to_owned)).collect();
    ids.sort();
    ids
}

/// Starts a conversion from standard input that waits before its text comes.
fn convert_stdin(folder: &Folder, text: &str, dataset: &str, wait: Duration) -> thread::JoinHandle<i32> {
    let (text, path, dataset) = (text.to_owned(), folder.path().to_owned(), dataset.to_owned());
    thread::spawn(move || {
        let mut run = Command::new(env!("CARGO_BIN_EXE_shardify"))
            .args(["convert", "-", "--from", "csv", "--id", "id", "--out", &dataset])
            .current_dir(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(wait);
        run.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        run.wait().unwrap().code().unwrap()
    })
}

#[test]
fn inputs_of_one_name_and_size_that_meet_are_all_kept() {
    let folder = Folder::new();
    let runs: Vec<_> = (0..4)
        .map(|i| {
            convert_stdin(&folder, &format!("id,v\nx{i},{i}\ny{i},{i}\n"), "d", Duration::from_millis(600 - 100 * i))
        })
        .collect();
    assert!(runs.into_iter().all(|run| run.join().unwrap() == 0));
    assert_eq!(ids(&folder, "d"), ["x0", "x1", "x2", "x3", "y0", "y1", "y2", "y3"]);
    folder.run("verify d --read-data").ok();
    // Lists of attempts that came too late may go, and nothing else.
    folder.run("vacuum d --retain 0s --force").ok();
    assert_eq!(ids(&folder, "d").len(), 8);
    folder.run("verify d --read-data").ok();
}

#[test]
fn a_name_that_comes_again_overwrites_no_tagged_version() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("one")).unwrap();
    folder.write("one/a.csv", "id,v\na,1\n");
    folder.run("convert one/a.csv --id id --out d").ok();
    folder.write("one/b.csv", "id,v\nb,1\n");
    folder.run("convert one/b.csv --id id --out d").ok();
    folder.run("manifest d --tag kept --at v2").ok();
    folder.run("compact d --min-inputs 2").ok();
    folder.run("vacuum d --retain 0s --force").ok();
    // The same name and size, from another folder.
    folder.write("two/a.csv", "id,v\nc,2\n");
    folder.run("convert two/a.csv --id id --out d").ok();
    folder.run("vacuum d --retain 0s --force").ok();
    assert_eq!(ids(&folder, "d"), ["a", "b", "c"]);
    let tagged = folder.run("manifest d --export jsonl --at kept").ok().objects();
    assert_eq!(tagged.iter().filter(|row| row["type"] != "summary").count(), 2);
    folder.run("verify d --read-data --at kept").ok();
}

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(files(&path));
        } else if !path.is_symlink() {
            out.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    out.sort();
    out
}

#[test]
fn files_of_the_user_stay_wherever_they_lie() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\na,1\n");
    folder.run("convert a.csv --id id --out d --to tar").ok();
    let tag = folder.only_shards("d")[0].0.split('/').next().unwrap().to_owned();
    let canaries: Vec<PathBuf> = [
        "notes.txt",
        "000000.tar",
        "0123456789abcdef/000000.tar",
        "0123456789abcdef/000000.idx",
        "0123456789ab/000000.tar",
        "_shardify/notes",
    ]
    .iter()
    .map(|name| folder.write(&format!("d/{name}"), "mine"))
    .chain(
        ["000099.tar", "000099.idx", "mine.json", "000000.tar.bak"]
            .map(|n| folder.write(&format!("d/{tag}/{n}"), "mine")),
    )
    .collect();
    for id in ["b", "c", "e"] {
        folder.write(&format!("{id}.csv"), format!("id,v\n{id},1\n"));
        folder.run(&format!("convert {id}.csv --id id --out d")).ok();
    }
    folder.run("compact d --min-inputs 2").ok();
    folder.run("erase d b --all-versions").ok();
    let odd = folder.path().join("d").join(OsStr::from_bytes(b"caf\xe9.txt"));
    fs::write(&odd, "mine").unwrap();
    let vacuumed = folder.run("vacuum d --retain 0s --force --json").ok().summary();
    assert!(vacuumed["objects_deleted"].as_u64() > Some(0), "{vacuumed}");
    assert_eq!(vacuumed["unlisted"].as_array().map(Vec::len), Some(1));
    folder.run("vacuum d --retain 0s --force").ok();
    for canary in canaries.into_iter().chain([odd]) {
        assert_eq!(fs::read(&canary).unwrap_or_default(), b"mine", "{}", canary.display());
    }
    assert_eq!(ids(&folder, "d"), ["a", "c", "e"]);
}

#[test]
fn a_file_that_took_the_place_of_an_adopted_one_stays() {
    let folder = Folder::new();
    for id in ["a", "b"] {
        folder.write(&format!("{id}.csv"), format!("id,v\n{id},1\n"));
        folder.run(&format!("convert {id}.csv --id id --out made-{id} --to tar --index none")).ok();
        let shard = folder.only_shards(&format!("made-{id}"))[0].0.clone();
        fs::create_dir_all(folder.path().join("d")).unwrap();
        fs::copy(folder.path().join(format!("made-{id}/{shard}")), folder.path().join(format!("d/{id}.tar"))).unwrap();
    }
    folder.run("adopt d").ok();
    folder.run("compact d --min-inputs 2").ok();
    // One of the two is replaced by the user before the versions that had it expire.
    folder.write("d/a.tar", "another file");
    let vacuumed = folder.run("vacuum d --retain 0s --force --json").ok().summary();
    assert_eq!(vacuumed["files_changed"], serde_json::json!(["a.tar"]));
    assert_eq!(fs::read(folder.path().join("d/a.tar")).unwrap(), b"another file");
    assert!(!folder.path().join("d/b.tar").exists(), "what was adopted and is replaced goes");
    folder.run("verify d --read-data").ok();
}

#[test]
fn an_adoption_that_failed_before_its_commit_costs_no_file() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\na,1\n");
    folder.run("convert a.csv --id id --out made --to tar --index none").ok();
    let shard = folder.only_shards("made")[0].0.clone();
    fs::create_dir_all(folder.path().join("d")).unwrap();
    fs::copy(folder.path().join(format!("made/{shard}")), folder.path().join("d/a.tar")).unwrap();
    fs::copy(folder.path().join(format!("made/{shard}")), folder.path().join("d/b.tar")).unwrap();
    folder.run("adopt d --include a.tar").ok();
    let before = files(&folder.path().join("d/_shardify"));
    folder.run("adopt d --include b.tar").ok();
    // As a run leaves it that is killed between its lists and its entry.
    fs::remove_file(folder.path().join("d/_shardify/log/18446744073709551613.json")).unwrap();
    folder.run("vacuum d --retain 0s --force").ok();
    assert!(folder.path().join("d/b.tar").exists(), "no entry names it");
    assert!(folder.path().join("d/a.tar").exists());
    let after: Vec<PathBuf> = files(&folder.path().join("d/_shardify")).into_iter().map(|(path, _)| path).collect();
    assert!(before.iter().all(|(path, _)| after.contains(path)));
    folder.run("adopt d --include b.tar").ok();
    folder.run("verify d --read-data").ok();
}

/// The newest entry of the log.
fn newest(folder: &Folder, dataset: &str) -> Value {
    let log = folder.path().join(dataset).join("_shardify/log");
    let mut entries: Vec<PathBuf> = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    serde_json::from_slice(&fs::read(&entries[0]).unwrap()).unwrap()
}

#[test]
fn leftovers_of_a_killed_run_go_once_the_log_has_abandoned_it() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\na,1\n");
    folder.run("convert a.csv --id id --out d").ok();
    folder.write("b.csv", "id,v\nb,1\n");
    folder.run("convert b.csv --id id --out d").ok();
    // As a run leaves it that is killed before its entry: objects, and the intent that names them.
    let killed = newest(&folder, "d")["transaction"].as_str().unwrap().to_owned();
    let shards = folder.only_shards("d").into_iter().map(|(path, _)| path);
    let left: Vec<String> = shards.filter(|path| path.starts_with(&killed[..16])).collect();
    assert_eq!(left.len(), 1);
    fs::remove_file(folder.path().join("d/_shardify/log/18446744073709551613.json")).unwrap();
    let intent = serde_json::json!({"transaction": killed, "operation": "convert", "planned_on": 1, "paths": left});
    folder.write(&format!("d/_shardify/intents/{killed}-0.json"), support::closed(&intent));
    let young = folder.run("vacuum d --json").ok().summary();
    assert_eq!((&young["objects_deleted"], &young["runs_abandoned"]), (&0.into(), &0.into()), "{young}");
    let vacuumed = folder.run("vacuum d --retain 0s --force --json").ok().summary();
    assert_eq!(vacuumed["runs_abandoned"], 1, "{vacuumed}");
    assert!(!folder.path().join("d").join(&left[0]).exists());
    assert_eq!(newest(&folder, "d")["abandoned"], serde_json::json!([&killed[..16]]));
    assert_eq!(folder.run("vacuum d --retain 0s --force --json").ok().summary()["objects_deleted"], 0);
    assert_eq!(ids(&folder, "d"), ["a"]);
    folder.run("convert b.csv --id id --out d").ok();
    assert_eq!(ids(&folder, "d"), ["a", "b"]);
    folder.run("verify d --read-data").ok();
}

#[test]
fn thousands_of_old_locks_and_foreign_keys_in_the_log_are_no_obstacle() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\na,1\n");
    folder.run("convert a.csv --id id --out d").ok();
    (0..3_000).for_each(|i| {
        folder.write(&format!("d/_shardify/locks/{i:016x}"), "");
    });
    let limited = Command::new("sh")
        .args(["-c", &format!("ulimit -n 64; {} vacuum d --retain 0s --force", env!("CARGO_BIN_EXE_shardify"))])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
    assert_eq!(fs::read_dir(folder.path().join("d/_shardify/locks")).unwrap().count(), 1, "that of vacuum stays");
    assert_eq!(ids(&folder, "d"), ["a"]);
}

/// Changes the time of the newest entry, as a machine with a wrong clock would have written it.
fn redate(folder: &Folder, dataset: &str, instant: &str) {
    let log = folder.path().join(dataset).join("_shardify/log");
    let mut entries: Vec<PathBuf> = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    support::rewrite_entry(&entries[0], |entry| entry["committed_at"] = instant.into());
}

#[test]
fn one_wrong_clock_does_not_stop_retention_for_ever() {
    let folder = Folder::new();
    let convert = |name: &str| {
        folder.write(&format!("{name}.csv"), format!("id,v\n{name},1\n"));
        folder.run(&format!("convert {name}.csv --id id --out d")).ok();
    };
    convert("a");
    convert("b");
    redate(&folder, "d", "2099-01-01T00:00:00.000000Z");
    convert("c");
    let entry = newest(&folder, "d");
    assert!(entry["committed_at"].as_str().unwrap() < "2099", "{entry}");
    assert_eq!((&entry["corrections"][0]["first"], &entry["corrections"][0]["last"]), (&2.into(), &2.into()));
    convert("e");
    assert_eq!(newest(&folder, "d")["corrections"], entry["corrections"], "later entries repeat it");
    // Versions are found by time again, and expire.
    let at = folder.run("manifest d --json --at 2098-01-01").ok().summary();
    assert_eq!(at["version"], 4);
    folder.run("compact d --min-inputs 2").ok();
    let vacuumed = folder.run("vacuum d --retain 0s --force");
    assert!(vacuumed.stderr.contains("clock that was ahead"), "{}", vacuumed.stderr);
    let entry = newest(&folder, "d");
    assert_eq!(entry["readable_from"], 5, "{entry}");
    assert_eq!(ids(&folder, "d"), ["a", "b", "c", "e"]);
}

#[test]
fn a_dry_run_of_vacuum_writes_nothing() {
    let folder = Folder::new();
    folder.write("a.csv", "id,v\na,1\n");
    folder.run("convert a.csv --id id --out d").ok();
    let before = files(&folder.path().join("d"));
    folder.run("vacuum d --retain 0s --force --dry-run").ok();
    assert!(before == files(&folder.path().join("d")));
}
