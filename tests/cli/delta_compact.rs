//! Compaction of Delta tables: what is merged, what is committed, and what is refused.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and damage their own files")]

use crate::{
    delta_log::{actions, commit, commit_path, tree},
    support,
};

use std::fs;

use serde_json::{Value, json};
use support::{Folder, Ran};

/// A folder with a Delta table of one small file per number, which no dataset is beside.
fn with_table(files: usize) -> Folder {
    let folder = Folder::new();
    for number in 0..files {
        let rows: String = (0..20).map(|row| format!("{},text {},{row}.5\n", number * 20 + row, row % 3)).collect();
        folder.write(&format!("s{number}.csv"), format!("n,text,x\n{rows}"));
        folder.run(&format!("convert s{number}.csv --to parquet --out table --index delta")).ok();
    }
    fs::remove_dir_all(folder.path().join("table/_shardify")).unwrap();
    folder
}

/// The rows of the table as JSON, sorted.
fn rows(folder: &Folder, dataset: &str) -> Vec<String> {
    folder.run(&format!("convert table --out {dataset}")).ok();
    let mut out = Vec::new();
    for (_, bytes) in folder.only_shards(dataset) {
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes));
        for batch in reader.unwrap().build().unwrap().map(Result::unwrap) {
            let json = shardify::record::json::RowJson::new(&batch);
            for row in 0..batch.num_rows() {
                let mut text = Vec::new();
                json.write_row(row, &mut text);
                out.push(String::from_utf8(text).unwrap());
            }
        }
    }
    out.sort();
    out
}

/// Asserts that a compaction is refused and changes nothing.
#[track_caller]
fn refused(folder: &Folder, arguments: &str, code: i32, texts: &[&str]) -> Ran {
    let before = tree(&folder.path().join("table"));
    let ran = folder.run(arguments);
    assert_eq!(ran.code, code, "{ran:?}");
    texts.iter().for_each(|text| assert!(ran.stderr.contains(text), "{text}: {ran:?}"));
    assert_eq!(tree(&folder.path().join("table")), before, "{ran:?}");
    ran
}

#[test]
fn small_files_are_merged_and_a_second_run_finds_nothing() {
    let folder = with_table(6);
    let before = rows(&folder, "before");
    let plan = folder.run("compact table --dry-run").ok();
    assert!(plan.stdout.contains("would leave 1 of 6 files"), "{plan:?}");
    let choices = folder.run("compact table --dry-run --json").ok().objects();
    assert_eq!(choices.iter().filter(|one| one["choice"] == "merge").count(), 6);
    let summary = folder.run("compact table --json").ok().summary();
    let expected = json!([6, 1, 6, 1, 120, 120, 6]);
    let fields =
        ["files_removed", "files_added", "files_before", "files_after", "records_in", "records_out", "version"];
    assert_eq!(Value::from(fields.map(|field| summary[field].clone()).to_vec()), expected);
    let actions = actions(&folder, 6);
    assert_eq!(actions[0]["commitInfo"]["operation"], "OPTIMIZE");
    let add = &actions.last().unwrap()["add"];
    assert_eq!((&add["dataChange"], &add["tags"]["shardify.compactedFor"]), (&false.into(), &"134217728".into()));
    let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
    let n = [&stats["numRecords"], &stats["minValues"]["n"], &stats["maxValues"]["n"], &stats["nullCount"]["n"]];
    assert_eq!(n, [&json!(120), &json!(0), &json!(119), &json!(0)]);
    assert!(!folder.path().join("table/_shardify").exists());
    assert_eq!(rows(&folder, "after"), before);
    let again = folder.run("compact table").ok();
    assert!(again.stdout.contains("nothing to do: 1 file, still at v6"), "{again:?}");
    // Older versions are as they were.
    let old = folder.run("convert table --read as-of=v5 --out old --json").ok().summary();
    assert_eq!(old["records_out"], 120);
    // A dataset of the table has nothing to convert.
    assert_eq!(folder.run("convert table --out before --json").ok().summary()["records_out"], 0);
}

#[test]
fn bins_follow_the_target_and_the_window() {
    let folder = with_table(12);
    let sizes: Vec<u64> =
        (0..12).map(|version| actions(&folder, version).last().unwrap()["add"]["size"].as_u64().unwrap()).collect();
    let target = sizes[0] * 3;
    let summary = folder.run(&format!("compact table --min-inputs 2 --target-shard {target} --json")).ok().summary();
    assert_eq!((&summary["files_removed"], &summary["files_added"]), (&12.into(), &4.into()));
    let again = folder.run(&format!("compact table --min-inputs 2 --target-shard {target} --json")).ok().summary();
    assert_eq!(again["files_removed"], 0);
    let none = folder.run("compact table --min-inputs 2 --until 2020-01-01 --json").ok().summary();
    assert_eq!(none["files_removed"], 0);
    let since = folder.run("compact table --min-inputs 2 --since 7d --json").ok().summary();
    assert_eq!((&since["files_removed"], &since["files_added"]), (&4.into(), &1.into()));
    refused(&folder, "compact table --since v3", 2, &["expected a duration, a date or an instant"]);
}

/// Copies every live file of the table with mapped columns and a deletion vector, and adds the copies.
fn with_visits(copies: usize) -> Folder {
    let folder = Folder::new();
    for path in ["aB/part-0.parquet", "part%1.parquet"] {
        folder.copy(&format!("delta/visits/{path}"), &format!("table/{path}"));
    }
    for version in 0..3 {
        let name = format!("{version:020}.json");
        folder.copy(&format!("delta/visits/_delta_log/{name}"), &format!("table/_delta_log/{name}"));
    }
    let mut adds = Vec::new();
    for (path, add) in [("aB/part-0.parquet", 2), ("part%1.parquet", 1)] {
        let add = actions(&folder, add).pop().unwrap();
        for copy in 0..copies {
            let new = format!("copies/{copy}-{}", path.replace(['/', '%'], "-"));
            folder.copy(&format!("delta/visits/{path}"), &format!("table/{new}"));
            let mut add = add.clone();
            add["add"]["path"] = new.into();
            adds.push(add);
        }
    }
    commit(&folder, 3, &adds);
    folder
}

#[test]
fn deleted_rows_mapped_columns_and_partitions() {
    let folder = with_visits(3);
    let before = rows(&folder, "before");
    assert_eq!(before.len(), 4 * 6);
    let ran = folder.run("compact table --min-inputs 2 --json").ok();
    let summary = ran.summary();
    assert_eq!((&summary["files_removed"], &summary["files_added"]), (&8.into(), &2.into()));
    assert_eq!((&summary["vectors_removed"], &summary["rows_dropped"]), (&4.into(), &8.into()));
    assert_eq!((&summary["records_in"], &summary["records_out"]), (&24.into(), &24.into()));
    assert_eq!(rows(&folder, "after"), before);
    let adds: Vec<Value> = actions(&folder, 4).into_iter().filter_map(|action| action.get("add").cloned()).collect();
    let of_partition: Vec<&Value> = adds.iter().map(|add| &add["partitionValues"]["c2"]).collect();
    assert_eq!(of_partition, [&json!("2026-11-01"), &Value::Null]);
    assert!(adds.iter().all(|add| add.get("deletionVector").is_none()));
    // Files have the physical names and the field ids of the table.
    let path = folder.path().join("table").join(adds[0]["path"].as_str().unwrap());
    let file = parquet::file::reader::SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let root = parquet::file::reader::FileReader::metadata(&file).file_metadata().schema_descr().root_schema().clone();
    let fields: Vec<(String, i32)> =
        root.get_fields().iter().map(|field| (field.name().to_owned(), field.get_basic_info().id())).collect();
    assert_eq!(fields, [("c1".to_owned(), 1), ("c3".to_owned(), 3), ("c4".to_owned(), 4)]);
    let again = folder.run("compact table --min-inputs 2 --json").ok().summary();
    assert_eq!(again["files_removed"], 0);
}

#[test]
fn a_file_without_any_rows_left_is_dropped() {
    let folder = with_table(5);
    let mut gone = Vec::new();
    for version in 0..5 {
        let mut add = actions(&folder, version).pop().unwrap();
        // Rows 0 to 19 as one run of a bitmap of 64 bits.
        let rows = roaring::RoaringTreemap::from_iter(0..20_u64);
        let mut bytes = 1_681_511_377_u32.to_le_bytes().to_vec();
        rows.serialize_into(&mut bytes).unwrap();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let size = bytes.len();
        let vector =
            json!({"storageType": "i", "pathOrInlineDv": z85::encode(&bytes), "sizeInBytes": size, "cardinality": 20});
        add["add"]["deletionVector"] = vector;
        let path = add["add"]["path"].clone();
        gone.push(json!({"remove": {"path": path, "dataChange": true}}));
        gone.push(add);
    }
    let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}});
    gone.insert(0, protocol);
    commit(&folder, 5, &gone);
    let summary = folder.run("compact table --json").ok().summary();
    assert_eq!((&summary["files_removed"], &summary["files_added"]), (&5.into(), &0.into()));
    assert_eq!((&summary["records_out"], &summary["rows_dropped"]), (&0.into(), &100.into()));
}

#[test]
fn features_that_need_more_are_refused_by_name() {
    for (features, text) in [
        (vec!["rowTracking", "domainMetadata"], "rowTracking"),
        (vec!["clustering"], "clustering"),
        (vec!["icebergCompatV2", "columnMapping"], "icebergCompatV2"),
        (vec!["somethingNew"], "somethingNew"),
    ] {
        let folder = with_table(5);
        let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}});
        commit(&folder, 5, &[protocol]);
        refused(&folder, "compact table", 2, &[text, "OPTIMIZE"]);
        refused(&folder, "compact table --zorder n,x", 2, &[text, "OPTIMIZE"]);
    }
    let folder = with_table(5);
    commit(&folder, 5, &[json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 8}})]);
    refused(&folder, "compact table", 2, &["at most version 7"]);
    let folder = with_table(5);
    let writer =
        ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"];
    commit(
        &folder,
        5,
        &[json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writer}})],
    );
    folder.run("compact table").ok();
}

#[test]
fn options_without_a_meaning_for_tables_are_refused() {
    let folder = with_table(2);
    for option in ["--verify full", "--no-check"] {
        refused(&folder, &format!("compact table {option}"), 2, &[option.split(' ').next().unwrap(), "Delta table"]);
    }
    refused(&folder, "plan compact table", 2, &["Delta table", "--max-bytes"]);
}

/// A file that a commit adds: its path, its rows of `text` and `n`, and its tag of the order.
type Arranged = (String, Vec<(String, i64)>, Value);

/// The added files of a version.
fn arranged(folder: &Folder, version: u64) -> Vec<Arranged> {
    use arrow::{
        array::AsArray,
        compute::cast,
        datatypes::{DataType, Int64Type},
    };
    let adds = actions(folder, version).into_iter().filter_map(|action| action.get("add").cloned());
    let rows = |add: Value| {
        let path = add["path"].as_str().unwrap().to_owned();
        let bytes = bytes::Bytes::from(fs::read(folder.path().join("table").join(&path)).unwrap());
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        let mut rows = Vec::new();
        for batch in reader.build().unwrap().map(Result::unwrap) {
            let text = cast(batch.column_by_name("text").unwrap(), &DataType::Utf8).unwrap();
            let n = batch.column_by_name("n").unwrap().as_primitive::<Int64Type>();
            let both = text.as_string::<i32>().iter().zip(n.iter());
            rows.extend(both.map(|(text, n)| (text.unwrap().to_owned(), n.unwrap())));
        }
        let order = serde_json::from_str(add["tags"]["shardify.order"].as_str().unwrap()).unwrap();
        (path, rows, order)
    };
    adds.map(rows).collect()
}

#[test]
fn rows_are_sorted_and_later_files_join_them() {
    let folder = with_table(6);
    let before = rows(&folder, "before");
    let plan = folder.run("compact table --sort-by text,n --dry-run").ok();
    assert!(plan.stdout.contains("sort into 000000") && plan.stdout.contains("would leave 1 of 6 files"), "{plan:?}");
    let summary = folder.run("compact table --sort-by text,n --json").ok().summary();
    assert_eq!((&summary["files_removed"], &summary["files_added"]), (&6.into(), &1.into()));
    assert_eq!((&summary["records_out"], &summary["order"]), (&120.into(), &"sorted by text, n".into()));
    let made = arranged(&folder, 6);
    assert!(made[0].1.is_sorted() && made[0].1.len() == 120);
    assert_eq!((&made[0].2["by"], &made[0].2["columns"]), (&"sort".into(), &json!(["text", "n"])));
    let info = &actions(&folder, 6)[0]["commitInfo"];
    assert_eq!(info["operationParameters"]["sortBy"], "[\"text\",\"n\"]");
    assert_eq!(info["operationParameters"]["zOrderBy"], "[]");
    let add = actions(&folder, 6).pop().unwrap();
    let stats: Value = serde_json::from_str(add["add"]["stats"].as_str().unwrap()).unwrap();
    let (least, greatest) = (&stats["minValues"], &stats["maxValues"]);
    assert_eq!((&least["n"], &greatest["n"], &greatest["text"]), (&0.into(), &119.into(), &"text 2".into()));
    assert_eq!((&stats["numRecords"], &greatest["x"]), (&120.into(), &json!(19.5)));
    assert_eq!(rows(&folder, "after"), before);
    let again = folder.run("compact table --sort-by text,n").ok();
    assert!(again.stdout.contains("nothing to do: 1 file, still at v6"), "{again:?}");
    // A merge in the order of the files does not destroy the order.
    assert_eq!(folder.run("compact table --min-inputs 2 --json").ok().summary()["files_removed"], 0);
    // Files with the same values are sorted together with those that they overlap.
    let mut adds = Vec::new();
    for version in [1, 2] {
        let mut add = actions(&folder, version).pop().unwrap();
        let path = add["add"]["path"].as_str().unwrap().to_owned();
        let new = format!("again-{version}.parquet");
        fs::copy(folder.path().join("table").join(path), folder.path().join("table").join(&new)).unwrap();
        add["add"]["path"] = new.into();
        adds.push(add);
    }
    commit(&folder, 7, &adds);
    let summary = folder.run("compact table --sort-by text,n --json").ok().summary();
    assert_eq!((&summary["files_removed"], &summary["records_out"]), (&3.into(), &160.into()));
    assert!(arranged(&folder, 8)[0].1.is_sorted());
    assert!(!folder.path().join("table/_shardify").exists());
}

#[test]
fn sorted_files_that_nothing_overlaps_stay() {
    // A row group has 64 KiB at least.
    let folder = Folder::new();
    let row = |row: u32| format!("{},text {},{row}.5\n", row * 7919 % 20_000, row % 3);
    folder.write("rows.csv", format!("n,text,x\n{}", (0..20_000).map(row).collect::<String>()));
    folder.run("convert rows.csv --to parquet --out table --index delta").ok();
    fs::remove_dir_all(folder.path().join("table/_shardify")).unwrap();
    folder.run("compact table --sort-by n --target-shard 1500").ok();
    let first = arranged(&folder, 1);
    let ends: Vec<(i64, i64)> =
        first.iter().map(|(_, rows, _)| (rows.first().unwrap().1, rows.last().unwrap().1)).collect();
    assert!(ends.len() > 1 && ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ends:?}");
    // Rows behind all others become files of their own.
    folder.write("later.csv", "n,text,x\n90000,later,1.5\n90001,later,2.5\n");
    folder.run("convert later.csv --to parquet --out other --index delta").ok();
    let later: Vec<Value> = fs::read_to_string(folder.path().join("other/_delta_log").join(format!("{:020}.json", 0)))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut add = later.last().unwrap().clone();
    fs::copy(
        folder.path().join("other").join(add["add"]["path"].as_str().unwrap()),
        folder.path().join("table/later.parquet"),
    )
    .unwrap();
    add["add"]["path"] = "later.parquet".into();
    commit(&folder, 2, &[add]);
    let summary = folder.run("compact table --sort-by n --target-shard 1500 --json").ok().summary();
    assert!(summary["files_removed"].as_u64().unwrap() < first.len() as u64, "{summary}");
    let again = folder.run("compact table --sort-by n --target-shard 1500 --json").ok().summary();
    assert_eq!(again["files_removed"], 0);
}

#[test]
fn columns_may_have_the_names_of_internal_ones() {
    let folder = Folder::new();
    let line = |row: u32| format!("{},{},{}\n", row * 7 % 50, row * 11 % 50, row);
    folder.write("rows.csv", format!("row,place,n\n{}", (0..50).map(line).collect::<String>()));
    folder.run("convert rows.csv --to parquet --out table --index delta").ok();
    fs::remove_dir_all(folder.path().join("table/_shardify")).unwrap();
    let before = rows(&folder, "before");
    for (version, order) in [(1, "--zorder row,place"), (2, "--sort-by place"), (3, "--sort-by row,place")] {
        folder.run(&format!("compact table {order}")).ok();
        assert_eq!(rows(&folder, &format!("after{version}")), before, "{order}");
    }
}

#[test]
fn a_zorder_is_noted_as_spark_does() {
    let folder = with_table(4);
    let before = rows(&folder, "before");
    let summary = folder.run("compact table --zorder n,x --json").ok().summary();
    assert_eq!((&summary["order"], &summary["records_out"]), (&"in Z-order of n, x".into(), &80.into()));
    assert_eq!(actions(&folder, 4)[0]["commitInfo"]["operationParameters"]["zOrderBy"], "[\"n\",\"x\"]");
    assert_eq!(rows(&folder, "after"), before);
    assert_eq!(folder.run("compact table --zorder n,x --json").ok().summary()["files_removed"], 0);
    assert_eq!(folder.run("compact table --zorder x,n --json").ok().summary()["files_removed"], 1);
    refused(&folder, "compact table --zorder n", 2, &["2 to 5 columns"]);
    refused(&folder, "compact table --sort-by gone", 2, &["`gone`", "the columns are: n, text, x"]);
    refused(&folder, "compact table --sort-by n,n", 2, &["`n` twice"]);
}

#[test]
fn rows_of_partitions_with_vectors_and_mapped_columns_are_sorted() {
    let folder = with_visits(3);
    let before = rows(&folder, "before");
    refused(&folder, "compact table --sort-by day", 2, &["the partition column `day`"]);
    refused(&folder, "compact table --sort-by lab", 2, &["`lab`", "single values"]);
    refused(&folder, "compact table --sort-by c1", 2, &["`c1`", "the columns are: id, note, lab"]);
    let summary = folder.run("compact table --sort-by id --json").ok().summary();
    assert_eq!((&summary["files_removed"], &summary["files_added"]), (&8.into(), &2.into()));
    assert_eq!((&summary["vectors_removed"], &summary["rows_dropped"]), (&4.into(), &8.into()));
    assert_eq!(rows(&folder, "after"), before);
    // Tags and statistics have the names of data files.
    let add = actions(&folder, 4).pop().unwrap();
    let order: Value = serde_json::from_str(add["add"]["tags"]["shardify.order"].as_str().unwrap()).unwrap();
    assert_eq!(order["columns"], json!(["c1"]));
    let stats: Value = serde_json::from_str(add["add"]["stats"].as_str().unwrap()).unwrap();
    assert!(stats["minValues"]["c1"].is_number() && stats["nullCount"]["c4"]["c6"].is_number(), "{stats}");
    assert_eq!(folder.run("compact table --sort-by id --json").ok().summary()["files_removed"], 0);
}

#[test]
fn damaged_logs_and_files_are_errors_and_nothing_is_written() {
    let damaged = |damage: &dyn Fn(&Folder), texts: &[&str]| {
        for command in ["compact table", "compact table --sort-by n"] {
            let folder = with_table(5);
            damage(&folder);
            refused(&folder, command, 6, texts);
        }
    };
    damaged(&|folder| fs::remove_file(folder.path().join(commit_path(2))).unwrap(), &["version 2", "00002.json"]);
    damaged(&|folder| _ = folder.write(&commit_path(2), "{\"add\":{\"pa"), &["00002.json, line 1"]);
    for path in ["../x.parquet", "/etc/passwd", "s3://bucket/x.parquet", "a/%2e%2e/x.parquet"] {
        let damage = |folder: &Folder| {
            let mut all = actions(folder, 2);
            all.last_mut().unwrap()["add"]["path"] = path.into();
            commit(folder, 2, &all);
        };
        damaged(&damage, &["00002.json", "expected a path below the table"]);
    }
    let data = |folder: &Folder| {
        folder.path().join("table").join(actions(folder, 2).last().unwrap()["add"]["path"].as_str().unwrap())
    };
    damaged(&|folder| fs::remove_file(data(folder)).unwrap(), &["expected a data file", "vacuumed"]);
    let cut = |folder: &Folder| {
        let bytes = fs::read(data(folder)).unwrap();
        fs::write(data(folder), &bytes[..bytes.len() - 9]).unwrap();
    };
    damaged(&cut, &["as the log says"]);
    let flip = |folder: &Folder| {
        let mut bytes = fs::read(data(folder)).unwrap();
        let at = bytes.len() - 20;
        bytes[at..].fill(0xff);
        fs::write(data(folder), bytes).unwrap();
    };
    damaged(&flip, &[".parquet"]);
}

#[test]
fn a_full_disk_or_a_lost_commit_leaves_the_table_as_it_was() {
    let folder = with_table(5);
    // The next version cannot be created: its name is that of a folder.
    fs::create_dir_all(folder.path().join(commit_path(5)).join("x")).unwrap();
    let before = tree(&folder.path().join("table"));
    let ran = folder.run("compact table");
    assert_ne!(ran.code, 0, "{ran:?}");
    let after = tree(&folder.path().join("table"));
    assert!(after.is_superset(&before), "{ran:?}");
}

#[test]
fn what_killed_runs_have_staged_is_deleted_after_a_week() {
    let folder = with_table(5);
    let old = folder.write("table/_shardify/staging/killed-0", "x");
    let week = std::time::Duration::from_secs(8 * 24 * 3600);
    fs::File::options().write(true).open(&old).unwrap().set_modified(std::time::SystemTime::now() - week).unwrap();
    let running = folder.write("table/_shardify/staging/running-0", "x");
    folder.run("compact table").ok();
    assert!(!old.exists() && running.exists());
}

#[test]
fn inspect_says_what_is_wrong_and_the_command() {
    let folder = with_visits(3);
    let found = folder.run("inspect table").ok();
    for text in ["at v3, 2 partitions", "8 rows in 4 files with deletion vectors", "8 files"] {
        assert!(found.stdout.contains(text), "{text}: {found:?}");
    }
    let folder = with_table(6);
    let found = folder.run("inspect table").ok();
    assert!(
        found.stdout.contains("shardify compact table") && found.stdout.contains("leaves 1 of 6 files"),
        "{found:?}"
    );
    let summary = folder.run("inspect table --json").ok().summary();
    assert_eq!((&summary["table"]["version"], &summary["records"]), (&5.into(), &120.into()));
    folder.run("compact table").ok();
    assert!(folder.run("inspect table").ok().stdout.contains("no files that are worth merging"));
}
