//! The daily commands: what changed, exports, vacuum, adopting what is there, and looking into it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::support;

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
      records    +121 -0 ~0, 80 moved, 0 unchanged
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
    + record   r2-0
    + record   r2-1
    + record   r2-2
    + record   r2-3
    + record   r2-4
      ... 116 records more; -v or --json shows all
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
        let old_hits = folder.run("manifest --find r1-7 PAT-1 --at v3 --json").ok().objects();
        let plan = folder.run("vacuum --retain 0 --force --dry-run --json").ok().objects();
        assert_eq!(objects(&folder), before, "a dry run changes nothing");
        let done = folder.run("vacuum --retain 0 --force --json").ok();
        assert_eq!(of_type(&done.objects(), "object"), of_type(&plan, "object"));
        assert_eq!(done.summary()["by_kind"]["shard"]["objects"], 5, "{to}: {done:?}");
        assert_eq!(done.summary()["by_kind"]["staging"]["objects"], 1);
        assert_eq!((&done.summary()["readable_from"], &done.summary()["version"]), (&6.into(), &7.into()));
        let after = objects(&folder);
        // Entries of the log are not among the objects of this test.
        let (entries, gone): (Vec<_>, Vec<_>) =
            of_type(&plan, "object").into_iter().partition(|object| object["kind"] == "entry");
        let gone = gone.len();
        assert_eq!(entries.len(), 5, "{to}");
        assert_eq!(before.keys().filter(|path| !after.contains_key(*path)).count(), gone);
        assert!(after.contains_key(&folder.path().join("shards/notes.txt")));
        folder.run("verify --read-data").ok();
        let hit = folder.run("manifest --find r1-7 --json").ok().objects().remove(0);
        assert_eq!((&hit["versions"]["from"], &hit["origin"]["row"]), (&2.into(), &8.into()), "{to}: {hit}");
        // Where it was is known for ever, and that it is there no more.
        let then = folder.run("manifest --find r1-7 PAT-1 --at v3 --json").ok();
        let first = then.objects().remove(0);
        let was = of_type(&old_hits, "hit").remove(0);
        assert_eq!((&first["shard"], &first["ordinal"]), (&was["shard"], &was["ordinal"]), "{to}");
        assert_eq!((&first["state"], &first["now"]["shard"]), (&"vacuumed".into(), &hit["shard"]));
        assert_eq!(then.summary()["hits"], old_hits.last().unwrap()["hits"]);
        assert_eq!(folder.run("manifest --find r1-7 --at v1").code, 1, "it was not there yet");
        let text = folder.run("manifest --find r1-7 --at v3").ok().stdout;
        assert!(text.contains("these bytes are deleted; the newest version has it in"), "{text}");
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
        for _ in 0..2 {
            folder.run("compact --min-inputs 2 --target-shard 1GiB").ok();
            folder.run("vacuum --retain 0 --force").ok();
        }
        let later = folder.run("manifest --find r1-7 --at v3 --json").ok().objects().remove(0);
        assert_eq!((&later["shard"], &later["state"]), (&was["shard"], &"vacuumed".into()));
        folder.run("verify --read-data").ok();
    }
}

#[test]
fn a_vacuum_that_was_cut_short_is_finished_by_the_next() {
    let folder = compacted("tar");
    let before = objects(&folder);
    let log = || -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(folder.path().join("shards/_shardify/log")).unwrap();
        let entries = entries.map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    };
    let logged = log();
    folder.run("vacuum --retain 0 --force").ok();
    let (whole, left) = (objects(&folder), log());
    assert_eq!((logged.len(), left.len()), (6, 2));
    for (path, bytes) in logged {
        std::fs::write(path, bytes).unwrap();
    }
    // As if it had stopped somewhere in between: some of what it deleted is still there, and lists and entries of the
    // log, which go last, all are.
    let is_list = |path: &Path| path.to_string_lossy().contains("/lists/");
    let deleted = before.iter().filter(|(path, _)| !whole.contains_key(*path));
    let (lists, others): (Vec<_>, Vec<_>) = deleted.partition(|(path, _)| is_list(path));
    for (path, bytes) in others.into_iter().skip(3).step_by(2).chain(lists) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder.run("verify --read-data").ok();
    assert_eq!(folder.run("manifest --find r1-7 --json").ok().summary()["hits"], 1);
    assert_eq!(folder.run("manifest --at v2").code, 2);
    folder.run("vacuum --retain 0 --force").ok();
    // It makes one version more expire, which is in the history then.
    let is_new = |path: &&PathBuf| !whole.contains_key(*path) && !path.to_string_lossy().contains("-history-");
    assert!(!objects(&folder).keys().any(|path| is_new(&path)));
    assert_eq!(log().len(), left.len());
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

/// A folder of tars as another program would leave them: GNU headers, folders in between, a note beside them.
fn foreign_tars(folder: &Folder) {
    for k in 0..6 {
        let mut builder = tar::Builder::new(Vec::new());
        for i in 0..10 {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            builder.append_data(&mut header, format!("d{k}/"), &b""[..]).unwrap();
            for (extension, bytes) in [("txt", format!("text {i}")), ("cls", i.to_string())] {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(tar::EntryType::Regular);
                header.set_mtime(1_700_000_000 + i);
                header.set_size(bytes.len() as u64);
                builder.append_data(&mut header, format!("d{k}/s{i}.{extension}"), bytes.as_bytes()).unwrap();
            }
        }
        folder.write(&format!("data/part.{k}.tar"), builder.into_inner().unwrap());
    }
    folder.write("data/README.md", "notes");
}

#[test]
fn shards_of_others_are_adopted_in_place_and_live_on() {
    let folder = Folder::new();
    foreign_tars(&folder);
    let before = std::fs::read(folder.path().join("data/part.3.tar")).unwrap();
    let adopted = folder.run("adopt data").ok();
    assert_snapshot!(folder.redact(&adopted.stdout), @r"
    v1 of [FOLDER]/data
      adopted    6 tar shards, 156 KiB, in place
      records    60, with ids
      originals  `compact` and `erase` replace these files, and `vacuum` deletes what they replaced; to keep them, adopt into another folder with --out
      ignored    1 file (not shards)
    ");
    assert_eq!(std::fs::read(folder.path().join("data/part.3.tar")).unwrap(), before);
    folder.run("verify data --read-data").ok();
    let hit = folder.run("manifest data --find d3/s7 --json").ok().objects().remove(0);
    assert_eq!((&hit["shard"], &hit["ordinal"]), (&"part.3.tar".into(), &7.into()));
    assert!(folder.run("adopt data").ok().stdout.starts_with("nothing to do: 6 files already adopted, still at v1"));
    assert_eq!(folder.run("compact data --json").ok().summary()["shards_removed"], 6);
    folder.run("verify data --read-data").ok();
    // A file that comes later is taken up; what a compaction made is not.
    std::fs::copy(folder.path().join("data/part.3.tar"), folder.path().join("data/more.tar")).unwrap();
    assert_eq!(folder.run("adopt data --json").ok().summary()["shards_added"], 1);
    folder.run("vacuum data --retain 0 --force").ok();
    assert!(folder.path().join("data/README.md").exists() && !folder.path().join("data/part.3.tar").exists());
    assert_eq!(folder.run("manifest data --find d3/s7 --json").ok().summary()["hits"], 2);
    assert_eq!(folder.run("verify data --read-data --json").ok().summary()["records"], 70);
}

#[test]
fn adopting_into_another_dataset_leaves_the_source_alone() {
    let folder = Folder::new();
    for k in 0..3 {
        folder.write("a.csv", format!("id,x\nr{k},{k}\n"));
        folder.run(&format!("convert a.csv --out tmp{k}")).ok();
        let shard = folder.shards(&format!("tmp{k}")).remove(0).1;
        folder.write(&format!("data/year=202{k}/part-0.parquet"), shard);
    }
    folder.write("data/_SUCCESS", "");
    folder.run("adopt data --out set --id id").ok();
    let paths: Vec<String> = of_type(&folder.run("manifest set --list --json").ok().objects(), "shard")
        .iter()
        .map(|s| s["path"].as_str().unwrap().split_once('/').unwrap().1.to_owned())
        .collect();
    assert_eq!(paths, ["year=2020/000000.parquet", "year=2021/000000.parquet", "year=2022/000000.parquet"]);
    assert_eq!(folder.run("manifest set --find r2 --json").ok().summary()["hits"], 1);
    // Folders that say something about their records are never merged.
    assert_eq!(folder.run("compact set --min-inputs 2 --json").ok().summary()["shards_added"], 0);
    assert!(!folder.path().join("data/_shardify").exists());
    folder.write("b.csv", "id,x\nr9,9\n");
    folder.run("convert b.csv --out set").ok();
    assert_eq!(folder.run("verify set --read-data --json").ok().summary()["records"], 4);
    assert_eq!(folder.run("adopt data --out set --id nothing").code, 0, "there is nothing new");
    assert_eq!(folder.run("adopt data --out other --id nothing").code, 6);
}

#[test]
fn what_cannot_be_adopted_is_named() {
    let folder = Folder::new();
    foreign_tars(&folder);
    folder.write("data/broken.tar", "this is no tar");
    let cut = std::fs::read(folder.path().join("data/part.0.tar")).unwrap();
    folder.write("data/cut.tar", &cut[..1100]);
    let ran = folder.run("adopt data");
    assert_eq!(ran.code, 6);
    assert!(ran.stderr.contains("data/broken.tar"), "{ran:?}");
    assert!(!folder.path().join("data/_shardify/log").exists());
    let skipped = folder.run("adopt data --on-error skip --json");
    assert_eq!(skipped.code, 3, "{skipped:?}");
    assert_eq!((&skipped.summary()["shards_added"], &skipped.summary()["files_skipped"]), (&6.into(), &2.into()));
    folder.run("verify data --read-data").ok();
    folder.write("a.csv", "n\n1\n");
    folder.run("convert a.csv --out p").ok();
    folder.write("mixed/a.parquet", folder.shards("p").remove(0).1);
    folder.write("mixed/b.tar", cut);
    let ran = folder.run("adopt mixed");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("`a.parquet` is parquet, `b.tar` is tar"), "{ran:?}");
    assert_eq!(folder.run("adopt mixed/a.parquet").code, 2);
    folder.write("delta/_delta_log/00000000000000000000.json", "{}");
    assert!(folder.run("adopt delta").stderr.contains("a Delta table, whose log decides"));
}

#[test]
fn inspect_takes_files_without_records_beside_others() {
    let folder = Folder::new();
    folder.write("in/a.json", r#"[{"id": 1}, {"id": 2}]"#);
    folder.write("in/b.json", "[]");
    let shown = folder.run("inspect in --json").ok().objects();
    let column = shown.iter().find(|one| one["type"] == "column").unwrap();
    assert_eq!((&column["column"], &column["unique"]), (&"id".into(), &true.into()));
}

#[test]
fn inspect_says_what_is_there_and_what_to_run_next() {
    let folder = Folder::new();
    let rows: String =
        (0..100).map(|i| format!("R{i},PAT-{},{}\n", i % 9, if i % 4 == 0 { "" } else { "x" })).collect();
    folder.write("a.csv", format!("record_id,patient_id,note\n{rows}"));
    let output = Command::new(env!("CARGO_BIN_EXE_shardify"))
        .args(["inspect", "a.csv"])
        .current_dir(folder.path())
        .env("TERM", "dumb")
        .output()
        .unwrap();
    assert_snapshot!(folder.redact(&String::from_utf8(output.stdout).unwrap()), @r"
    a.csv
      csv        1 file, 1.2 KiB, 100 records
    sizes
        1.0 KiB+           1 file  100 %   1.2 KiB
    columns in 100 sampled records
      record_id   text  unique
      patient_id  text
      note        text  25.0% null
    next
      shardify convert a.csv --id record_id --subject patient_id
      makes shards of 128 MiB in ./shards; `record_id` is unique in all 100 records
    ");
    folder.run("convert a.csv --id record_id --subject patient_id").ok();
    let summary = folder.run("inspect shards --json").ok().summary();
    assert_eq!(
        (&summary["records"], &summary["id"], &summary["version"]),
        (&100.into(), &"record_id".into(), &1.into())
    );
    foreign_tars(&folder);
    let tars = folder.run("inspect data/*.tar --json").ok().summary();
    assert_eq!((&tars["records"], &tars["exact"]), (&60.into(), &true.into()));
    let command = tars["command"].as_str().unwrap().to_owned();
    assert_eq!(command, "shardify adopt 'data/*.tar' --out shards && shardify compact shards");
    assert_eq!(folder.run("inspect nothing").code, 2);
    folder.write("bad/x.parquet", "PAR1 and nothing more");
    assert!(folder.run("inspect bad").ok().stdout.contains("1 damaged"));
}
