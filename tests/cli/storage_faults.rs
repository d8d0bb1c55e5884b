//! Storage that fails under the real binary: system calls fail by `strace --inject`, where strace is there and may
//! trace.
//!
//! A fault of storage ends the run with exit code 5 and commits nothing, whatever `--on-error` says; it never costs a
//! record.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use crate::support;

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use support::{Folder, Ran, corpus::not_run, testdata_path};

/// Runs shardify with system calls on `paths` failing as `inject` says; `None` where nothing can be injected.
fn run_faulty(folder: &Folder, paths: &[&Path], inject: &str, arguments: &str) -> Option<Ran> {
    let calls = inject.split(':').next().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}"), "-e", &format!("inject={inject}")]);
    for path in paths {
        strace.arg("-P").arg(path);
    }
    let output = strace
        .arg(env!("CARGO_BIN_EXE_shardify"))
        .args(arguments.split_whitespace())
        .current_dir(folder.path())
        .env_remove("SHARDIFY_DATASET")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    Some(Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    })
}

/// Whether faults can be injected here at all.
fn can_inject() -> bool {
    let traced = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let can = traced.is_ok_and(|output| output.status.success());
    if !can {
        not_run("there is no strace that may trace");
    }
    can
}

/// Reads of any kind.
const READS: &str = "read,pread64,preadv,preadv2,readv";

fn csv(rows: usize, from: usize) -> String {
    std::iter::once("id,who,text\n".to_owned())
        .chain((from..from + rows).map(|i| format!("{i},p{},some text of row {i}\n", i % 7)))
        .collect()
}

fn versions(folder: &Folder, dataset: &str) -> usize {
    std::fs::read_dir(folder.path().join(dataset).join("_shardify/log")).map_or(0, |entries| entries.count())
}

#[test]
fn a_source_that_cannot_be_read_ends_the_run_whatever_on_error_says() {
    if !can_inject() {
        return;
    }
    let folder = Folder::new();
    folder.write("csv/a.csv", csv(20, 0));
    folder.write("csv/b.csv", csv(20, 100));
    folder.write("large/a.csv", csv(40_000, 0));
    folder.write("large/b.csv", csv(40_000, 100_000));
    folder.run("convert csv --out made --to parquet --codec zstd").ok();
    let shard = folder.shards("made").into_iter().find(|(name, _)| name.ends_with(".parquet")).unwrap().1;
    folder.write("parquet/a.parquet", &shard);
    folder.write("parquet/b.parquet", &shard);
    for (name, content) in [("a", "one"), ("b", "two"), ("c", "three")] {
        folder.write(&format!("files/{name}.txt"), content);
    }
    for name in ["a", "b"] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(csv(50, if name == "a" { 0 } else { 50 }).as_bytes()).unwrap();
        folder.write(&format!("gzip/{name}.csv.gz"), gzip.finish().unwrap());
        let cube = std::fs::read(testdata_path("arrays/grid.nc")).unwrap();
        folder.write(&format!("arrays/{name}.nc"), cube);
    }
    let sources = [
        ("csv", "b.csv", ""),
        ("large", "b.csv", ""),
        ("parquet", "b.parquet", ""),
        ("files", "b.txt", "--from files"),
        ("gzip", "b.csv.gz", ""),
        ("arrays", "b.nc", ""),
    ];
    for (source, broken, options) in sources {
        let path = folder.path().join(source).join(broken);
        // The first read, and one of those that come after the file was looked at.
        for when in ["1", "2+"] {
            for on_error in ["skip", "quarantine"] {
                let out = format!("out-{source}-{on_error}-{}", when.len());
                let inject = format!("{READS}:error=EIO:when={when}");
                let arguments =
                    format!("convert {source} --out {out} --to tar --on-error {on_error} {options} --codec none");
                let ran = run_faulty(&folder, &[&path], &inject, &arguments).unwrap();
                if when != "1" && ran.code == 0 {
                    // It was read at once.
                    continue;
                }
                assert_eq!(ran.code, 5, "{source} {on_error} {when}: {ran:?}");
                assert_eq!(versions(&folder, &out), 0, "{source} {on_error}");
                assert!(ran.stderr.contains(broken), "the file is named: {ran:?}");
            }
        }
    }
}

#[test]
fn damaged_bytes_still_cost_no_more_than_a_reject() {
    let folder = Folder::new();
    folder.write("in/a.csv", csv(20, 0));
    folder.run("convert in --out made --to parquet").ok();
    let shard = folder.shards("made").into_iter().find(|(name, _)| name.ends_with(".parquet")).unwrap().1;
    folder.write("parquet/a.parquet", &shard);
    folder.write("parquet/b.parquet", &shard[..shard.len() / 2]);
    // A footer that points behind the end of the file.
    let footer = u32::from_le_bytes(shard[shard.len() - 8..][..4].try_into().unwrap()) as usize + 8;
    let cut = [&shard[..4], &shard[shard.len() - footer..]].concat();
    folder.write("parquet/c.parquet", cut);
    let ran = folder.run("convert parquet --out out --on-error skip --json");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(ran.summary()["records_out"], 20);
    let ran = folder.run("adopt parquet --out adopted --on-error skip --json");
    assert_eq!(ran.code, 3, "{ran:?}");
}

#[test]
fn a_folder_that_cannot_be_listed_ends_the_run_unless_it_is_excluded() {
    if !can_inject() {
        return;
    }
    let folder = Folder::new();
    folder.write("in/a.csv", csv(20, 0));
    folder.write("in/below/b.csv", csv(20, 100));
    let below = folder.path().join("in/below");
    for error in ["EIO", "EACCES"] {
        let inject = format!("getdents64:error={error}");
        let ran = run_faulty(&folder, &[&below], &inject, "convert in --out out --on-error skip").unwrap();
        assert_eq!(ran.code, 5, "{ran:?}");
        assert_eq!(versions(&folder, "out"), 0);
        assert!(ran.stderr.contains("in/below") && ran.stderr.contains("--exclude"), "{ran:?}");
    }
    let inject = "getdents64:error=EACCES";
    let ran = run_faulty(&folder, &[&below], inject, "convert in --out out --exclude below/** --json").unwrap();
    assert_eq!(ran.ok().summary()["records_out"], 20);
}

#[test]
fn a_shard_that_cannot_be_read_is_no_bad_input() {
    if !can_inject() {
        return;
    }
    let folder = Folder::new();
    folder.write("a.csv", csv(2000, 0));
    folder.run("convert a.csv --out data --to parquet --id id --subject who").ok();
    let (name, shard) = folder.shards("data").into_iter().find(|(name, _)| name.ends_with(".parquet")).unwrap();
    folder.write("mine/a.parquet", &shard);
    let (theirs, ours) = (folder.path().join("mine/a.parquet"), folder.path().join("data").join(name));
    let commands = [
        (&theirs, "adopt mine --out adopted --on-error skip"),
        (&ours, "compact data --sort-by text"),
        (&ours, "erase data p3"),
    ];
    for (path, command) in commands {
        for when in ["1+", "2+", "4+"] {
            let ran = run_faulty(&folder, &[path], &format!("{READS}:error=EIO:when={when}"), command).unwrap();
            if when != "1+" && ran.code == 0 {
                continue;
            }
            assert_eq!(ran.code, 5, "{command} {when}: {ran:?}");
            assert_eq!(versions(&folder, "adopted"), 0);
            assert_eq!(versions(&folder, "data"), 1, "{command} {when}: {ran:?}");
        }
    }
}

#[test]
fn a_commit_whose_folder_cannot_be_synced_is_not_acknowledged() {
    if !can_inject() {
        return;
    }
    let folder = Folder::new();
    folder.write("a.csv", csv(200, 0));
    folder.run("convert a.csv --out data --to parquet --id id --subject who").ok();
    let log = folder.path().join("data/_shardify/log");
    let before = folder.shards("data");
    let ran = run_faulty(&folder, &[&log], "fsync:error=EIO", "erase data p3 --all-versions").unwrap();
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.stderr.contains("power cut") && ran.stderr.contains("verify"), "{ran:?}");
    let after = folder.shards("data");
    assert!(before.iter().all(|shard| after.contains(shard)), "nothing that a version needs is deleted");
    // Once the disk works again it is finished.
    folder.run("erase data p3 --all-versions").ok();
    assert!(before.iter().all(|shard| !folder.shards("data").contains(shard)));
    folder.run("verify data --read-data").ok();

    let folder = Folder::new();
    folder.write("a.csv", csv(20, 0));
    let log = folder.path().join("data/_shardify/log");
    let ran = run_faulty(&folder, &[&log], "fsync:error=EIO", "convert a.csv --out data --to parquet").unwrap();
    assert_eq!(ran.code, 5, "{ran:?}");
    // The version is there, for all that can be seen, and so is everything that it needs.
    folder.run("verify data --read-data").ok();
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_not_the_end_of_the_process() {
    let folder = Folder::new();
    folder.write("a.csv", csv(60_000, 0));
    let run = format!(
        "ulimit -f 1000; exec {} convert a.csv --out data --codec none --to tar",
        env!("CARGO_BIN_EXE_shardify")
    );
    let output = Command::new("sh").args(["-c", &run]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("data/"), "{output:?}");
    assert_eq!(versions(&folder, "data"), 0);
}

#[test]
fn a_full_disk_below_a_sort_names_the_place() {
    if !can_inject() {
        return;
    }
    let folder = Folder::new();
    folder.write("a.csv", csv(20_000, 0));
    folder.run("convert a.csv --out data --to parquet").ok();
    let staging = folder.path().join("data/_shardify/staging");
    for error in ["ENOSPC", "EIO"] {
        let command = "compact data --sort-by text --memory 64MiB";
        let inject = format!("write,pwrite64:error={error}");
        let ran = run_faulty(&folder, &[&staging], &inject, command).unwrap();
        if ran.code != 0 {
            assert_eq!(ran.code, 5, "{ran:?}");
            assert!(ran.stderr.contains("_shardify"), "{ran:?}");
        }
    }
}

#[test]
fn what_lies_in_the_folder_of_the_log_and_is_no_entry_does_no_harm() {
    let folder = Folder::new();
    folder.write("a.csv", csv(20, 0));
    folder.run("convert a.csv --out data").ok();
    for name in [".DS_Store", "_SUCCESS", "0.json", "00000000000000000000.json.tmp"] {
        folder.write(&format!("data/_shardify/log/{name}"), "");
    }
    folder.run("verify data").ok();
    folder.write("b.csv", csv(20, 100));
    let ran = folder.run("convert b.csv --out data --json").ok();
    assert_eq!(ran.summary()["version"], 2);
}

#[test]
fn a_path_that_leads_out_of_the_dataset_is_refused() {
    let folder = Folder::new();
    folder.write("a.csv", csv(20, 0));
    folder.run("convert a.csv --out data").ok();
    let log = folder.path().join("data/_shardify/log");
    let entry = std::fs::read_dir(&log).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&entry).unwrap();
    for path in ["../../etc/passwd", "/etc/passwd", "_shardify//lists", "a/./b"] {
        let start = text.find("_shardify/lists/").unwrap();
        let end = start + text[start..].find('"').unwrap();
        std::fs::write(&entry, [&text[..start], path, &text[end..]].concat()).unwrap();
        let ran = folder.run("manifest data");
        assert_eq!(ran.code, 5, "{path}: {ran:?}");
    }
}

#[test]
fn a_run_that_was_killed_before_the_first_version_leaves_what_verify_counts() {
    let folder = Folder::new();
    folder.write("data/_shardify/staging/x", "left");
    folder.write("data/_shardify/locks/y", "");
    let ran = folder.run("verify data").ok();
    assert!(ran.stdout.contains("left over  1 object"), "{ran:?}");
}
