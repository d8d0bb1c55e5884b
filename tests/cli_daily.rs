//! The daily commands: what changed, exports, vacuum, adopting what is there, and looking into it.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

mod support;

use std::process::{Command, Stdio};

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
