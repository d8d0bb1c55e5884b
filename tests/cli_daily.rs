//! The daily commands: what changed, exports, vacuum, adopting what is there, and looking into it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

mod support;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use insta::assert_snapshot;
use serde_json::Value;
use support::Folder;

/// A dataset of five small conversions and the compaction of them.
fn compacted(to: &str) -> Folder {
    let folder = Folder::new();
    for k in 0..5 {
        let rows: String = (0..40).map(|i| format!("r{k}-{i},PAT-{},{i}\n", i % 7)).collect();
        folder.write(&format!("{k}.csv"), format!("id,who,x\n{rows}"));
        folder.run(&format!("convert {k}.csv --id id --subject who --to {to}")).ok();
    }
    folder.run("compact").ok();
    folder
}

/// The objects of one type.
fn of_type(objects: &[Value], kind: &str) -> Vec<Value> {
    objects.iter().filter(|o| o["type"] == kind).cloned().collect()
}

#[test]
fn a_diff_tells_added_from_moved() {
    let folder = compacted("tar");
    folder.write("5.csv", "id,who,x\nr5-0,PAT-1,0\n");
    folder.run("convert 5.csv").ok();
    let diff = folder.run("manifest --diff v2 v7").ok();
    let tags = |line: &str| {
        let Some((head, path)) = line.rsplit_once("  ") else { return line.to_owned() };
        if path.contains('/') && !head.is_empty() { head.to_owned() } else { line.to_owned() }
    };
    let shown = folder.redact(&diff.stdout).lines().map(tags).collect::<Vec<_>>().join("\n");
    assert_snapshot!(shown, @r"
    v2 to v7 of [FOLDER]/shards
      records    +121 -0, 80 moved, 0 where they were
      shards     +2 -2, 2 to 2
      bytes      +203 KiB -82.0 KiB, 82.0 KiB to 203 KiB
      sources    +4 -0
    - shard      41.0 KiB            40 records
    - shard      41.0 KiB            40 records
    + shard       201 KiB           200 records
    + shard       2.0 KiB             1 records
    + source        589 B            40 records  2.csv
    + source        589 B            40 records  3.csv
    + source        589 B            40 records  4.csv
    + source         22 B             1 records  5.csv
    ");
    let objects = folder.run("manifest --diff v5 v6 --json").ok().objects();
    assert_eq!(of_type(&objects, "shard").len(), 6);
    let summary = objects.last().unwrap();
    assert_eq!((&summary["records_moved"], &summary["records_added"]), (&200.into(), &0.into()));
    let back = folder.run("manifest --diff v7 v5 --json").ok().summary();
    assert_eq!((&back["records_removed"], &back["sources_removed"]), (&1.into(), &1.into()));
    assert_eq!(folder.run("manifest --diff v1 v99").code, 2);
    assert_eq!(folder.run("manifest --diff v1").code, 2);
}

#[test]
fn an_export_has_every_live_record_once_and_says_where_it_is() {
    let folder = compacted("tar");
    let csv = folder.run("manifest --export csv").ok().stdout;
    assert_eq!(csv.lines().count(), 201);
    assert_eq!(
        csv.lines().next().unwrap(),
        "record_id,subject_id,shard,ordinal,offset,length,source,row,first_version,shard_version,hash"
    );
    let objects = folder.run("manifest --export jsonl --json").ok().objects();
    assert_eq!(objects.last().unwrap()["records"], 200);
    for (row, line) in of_type(&objects, "record").iter().zip(csv.lines().skip(1)).step_by(17) {
        let id = row["record_id"].as_str().unwrap();
        let hit = folder.run(&format!("manifest --find {id} --json")).ok().objects().remove(0);
        for field in ["shard", "ordinal", "offset", "length", "hash", "subject_id"] {
            assert_eq!(hit[field], row[field], "{id} {field}");
        }
        assert_eq!(hit["versions"]["from"], row["first_version"]);
        assert!(line.starts_with(&format!("{id},")));
    }
    let old = folder.run("manifest --export jsonl --at v2").ok().stdout;
    assert_eq!(old.lines().count(), 80);
    let first: Value = serde_json::from_str(old.lines().next().unwrap()).unwrap();
    assert_eq!((&first["first_version"], &first["shard_version"]), (&1.into(), &1.into()));
    assert_eq!(folder.run("manifest --export csv --json").code, 2);
    assert_eq!(folder.run("manifest --export jsonl --escape-formulas").code, 2);
}

#[test]
fn an_export_in_parquet_is_a_whole_file() {
    let folder = compacted("parquet");
    let output = Command::new(env!("CARGO_BIN_EXE_shardify"))
        .args(["manifest", "--export", "parquet"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let file = bytes::Bytes::from(output.stdout);
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 200);
    let rows: usize = reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 200);
}

#[test]
fn cells_that_look_like_formulas_are_exported_as_they_are_unless_asked() {
    let folder = Folder::new();
    folder.write("a.csv", "id,x\n=1+1,a\n@b,c\nplain,d\n");
    folder.run("convert a.csv --id id").ok();
    let first = |csv: &str| csv.lines().skip(1).map(|l| l.split(',').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(first(&folder.run("manifest --export csv").ok().stdout), ["=1+1", "@b", "plain"]);
    let escaped = folder.run("manifest --export csv --escape-formulas").ok().stdout;
    assert_eq!(first(&escaped), ["\"'=1+1\"", "\"'@b\"", "plain"]);
}

#[test]
fn a_closed_pipe_ends_an_export_in_order() {
    let folder = Folder::new();
    let rows: String = (0..50_000).map(|i| format!("row-{i},{i}\n")).collect();
    folder.write("a.csv", format!("id,x\n{rows}"));
    folder.run("convert a.csv --id id").ok();
    for format in ["csv", "jsonl", "parquet"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_shardify"))
            .args(["manifest", "--export", format])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(run.stdout.take());
        let output = run.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{format}");
    }
}

/// Paths and contents of all files of a dataset but its log and locks.
fn objects(folder: &Folder) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(folder: &Path, out: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, out);
            } else {
                out.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(&folder.path().join("shards"), &mut out);
    out.retain(|path, _| !["log", "locks"].contains(&path.parent().unwrap().file_name().unwrap().to_str().unwrap()));
    out
}

#[test]
fn vacuum_deletes_what_no_retained_version_needs_and_nothing_else() {
    for to in ["parquet", "tar", "tfrecord"] {
        let folder = compacted(to);
        folder.write("shards/notes.txt", "mine");
        folder.write("shards/_shardify/staging/0123456789ab-7", "left by a killed run");
        let before = objects(&folder);
        assert_eq!(folder.run("vacuum").ok().stdout.lines().next().unwrap(), "nothing to delete, still at v6", "{to}");
        assert_eq!(folder.run("vacuum --retain 1h").code, 2);
        let plan = folder.run("vacuum --retain 0 --force --dry-run --json").ok().objects();
        assert_eq!(objects(&folder), before, "a dry run changes nothing");
        let done = folder.run("vacuum --retain 0 --force --json").ok();
        assert_eq!(of_type(&done.objects(), "object"), of_type(&plan, "object"));
        assert_eq!(done.summary()["by_kind"]["shard"]["objects"], 5, "{to}: {done:?}");
        assert_eq!(done.summary()["by_kind"]["staging"]["objects"], 1);
        assert_eq!((&done.summary()["readable_from"], &done.summary()["version"]), (&6.into(), &7.into()));
        let after = objects(&folder);
        let gone = of_type(&plan, "object").len();
        assert_eq!(before.keys().filter(|path| !after.contains_key(*path)).count(), gone);
        assert!(after.contains_key(&folder.path().join("shards/notes.txt")));
        folder.run("verify --read-data").ok();
        let hit = folder.run("manifest --find r1-7 --json").ok().objects().remove(0);
        assert_eq!((&hit["versions"]["from"], &hit["origin"]["row"]), (&2.into(), &8.into()), "{to}: {hit}");
        let old = folder.run("manifest --at v3");
        assert_eq!(old.code, 2);
        assert!(old.stderr.contains("v3 was vacuumed"), "{old:?}");
        let versions = of_type(&folder.run("manifest --history --json").ok().objects(), "version");
        let readable: Vec<bool> = versions.iter().map(|v| v["readable"].as_bool().unwrap()).collect();
        assert_eq!(readable, [false, false, false, false, false, true, true]);
        // The dataset goes on as before.
        folder.write("9.csv", "id,who,x\nr9-0,PAT-1,0\n");
        folder.run("convert 9.csv").ok();
        assert_eq!(folder.run("manifest --find PAT-1 --json").ok().summary()["hits"], 31);
        folder.run("verify --read-data").ok();
    }
}

#[test]
fn a_vacuum_that_was_cut_short_is_finished_by_the_next() {
    let folder = compacted("tar");
    let before = objects(&folder);
    folder.run("vacuum --retain 0 --force").ok();
    let whole = objects(&folder);
    // As if it had stopped somewhere in between: some of what it deleted is still there.
    for (path, bytes) in before.iter().filter(|(path, _)| !whole.contains_key(*path)).skip(3).step_by(2) {
        std::fs::write(path, bytes).unwrap();
    }
    folder.run("verify --read-data").ok();
    assert_eq!(folder.run("manifest --find r1-7 --json").ok().summary()["hits"], 1);
    assert_eq!(folder.run("manifest --at v2").code, 2);
    folder.run("vacuum --retain 0 --force").ok();
    assert!(objects(&folder).keys().all(|path| whole.contains_key(path) || path.to_string_lossy().contains("/lists/")));
    folder.run("verify --read-data").ok();
}

#[test]
fn vacuum_leaves_an_active_run_alone() {
    let folder = compacted("tar");
    let rows: String = (0..150_000).map(|i| format!("{i},PAT-{},{}\n", i % 100, i * 3)).collect();
    folder.write("big.csv", format!("id,who,x\n{rows}"));
    let mut run = Command::new(env!("CARGO_BIN_EXE_shardify"))
        .args(["convert", "big.csv", "--target-shard", "1MiB"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut vacuumed = 0;
    while run.try_wait().unwrap().is_none() {
        vacuumed += usize::from(folder.run("vacuum --retain 0 --force").code == 0);
    }
    assert!(run.wait().unwrap().success());
    assert!(vacuumed > 0);
    assert_eq!(folder.run("verify --read-data --json").ok().summary()["records"], 150_200);
}
