//! Which columns and rows of tables a conversion keeps: `--columns`, `--where`.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout, reason = "tests fail loudly")]

use crate::support;

use std::{fs::File, sync::Arc};

use arrow::{
    array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray},
    datatypes::Int64Type,
    ipc::writer::FileWriter,
};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use support::Folder;

/// Rows of a dataset of tar, one JSON member each, in order.
fn rows(folder: &Folder, dataset: &str) -> Vec<Value> {
    folder.members(dataset).into_values().map(|content| serde_json::from_slice(&content).unwrap()).collect()
}

/// Origins of the records with an id.
fn origins(folder: &Folder, dataset: &str, id: &str) -> Vec<String> {
    let found = folder.run(&format!("manifest {dataset} --find {id} --json")).ok();
    let origin = |object: &Value| Some(format!("{}#{}", object["origin"]["source"].as_str()?, object["origin"]["row"]));
    found.objects().iter().filter_map(origin).collect()
}

/// The same two rows as delimited text, JSON, Parquet and Arrow; `age` of the texts has no common type.
fn write_sources(folder: &Folder, prefix: &str) {
    folder.write("a.csv", "id,name,age,note\na1,Ann,30,x\na2,Bob,abc,\n");
    let lines = [
        json!({"id": "b1", "name": "Dee", "age": [1, {"k": "x\"}"}], "deep": {"a": [1, {"b": null}]}, "note": true}),
        json!({"deep": "text", "name": "Eve", "age": 5, "id": "b2"}),
        json!({"id": "b3", "age": {}, "name": "Fé", "extra": "é\n"}),
    ];
    folder.write("b.jsonl", lines.map(|line| format!("{line}\n")).concat());
    let ids = ["1", "2"].map(|id| format!("{prefix}{id}"));
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(StringArray::from(ids.to_vec()))),
        ("age", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None]), None]))),
        ("name", Arc::new(StringArray::from(vec!["Hal", "Ida"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut parquet =
        ArrowWriter::try_new(File::create(folder.path().join("c.parquet")).unwrap(), batch.schema(), None).unwrap();
    parquet.write(&batch).unwrap();
    parquet.close().unwrap();
    let mut arrow = FileWriter::try_new(File::create(folder.path().join("d.arrow")).unwrap(), &batch.schema()).unwrap();
    arrow.write(&batch).unwrap();
    arrow.finish().unwrap();
}

#[test]
fn only_named_columns_are_kept_of_every_format() {
    let folder = Folder::new();
    write_sources(&folder, "c");
    let sources = "a.csv b.jsonl c.parquet d.arrow";
    let ran = folder.run(&format!("convert {sources} --columns name --id id --to tar --out kept --json")).ok();
    assert_eq!(ran.summary()["columns"], json!([["name", "text"]]));
    let names = ["Ann", "Bob", "Dee", "Eve", "Fé", "Hal", "Ida"].map(|name| json!({ "name": name }));
    let mut found = rows(&folder, "kept");
    found.sort_by_key(ToString::to_string);
    assert_eq!(found, names);
    assert_eq!(origins(&folder, "kept", "b3"), ["b.jsonl#3"]);
}

#[test]
fn columns_have_the_order_of_the_option_and_are_remembered() {
    let folder = Folder::new();
    folder.write("a.csv", "id,name,age\na1,Ann,30\n");
    let ran = folder.run("convert a.csv --columns age,id --out kept --json").ok();
    assert_eq!(ran.summary()["columns"], json!([["age", "int64"], ["id", "text"]]));
    folder.write("b.csv", "name,id,age\nBob,b1,x\n");
    let ran = folder.run("convert b.csv --out kept --on-schema union --json").ok();
    assert_eq!(ran.summary()["columns"], json!([["age", "text"], ["id", "text"]]));
    folder.write("c.csv", "id,name,age\nc1,Cy,1\n");
    let other = folder.run("convert c.csv --columns name --out kept");
    assert_eq!(other.code, 8, "{}", other.stderr);
    assert!(
        other.stderr.contains("this dataset was created with --columns age,id; you gave --columns name"),
        "{}",
        other.stderr
    );
    let ran = folder
        .run_with(&["convert", "c.csv", "--columns", "*", "--accept", "settings", "--out", "kept", "--json"])
        .ok();
    assert_eq!(ran.summary()["columns"].as_array().unwrap().len(), 3);
}

#[test]
fn a_misspelt_column_is_refused_with_the_nearest_one() {
    let folder = Folder::new();
    write_sources(&folder, "c");
    for source in ["a.csv", "b.jsonl", "c.parquet", "d.arrow"] {
        let ran = folder.run(&format!("convert {source} --columns nmae --out kept"));
        assert_eq!(ran.code, 2, "{source}: {}", ran.stderr);
        assert!(ran.stderr.contains("there is a column `name`"), "{source}: {}", ran.stderr);
    }
    folder.write("files/a.jpg", "x");
    let ran = folder.run("convert files --columns name --out kept");
    assert_eq!((ran.code, ran.stderr.contains("samples have no columns")), (2, true), "{}", ran.stderr);
}

#[test]
fn a_column_that_only_later_records_have_is_found() {
    let folder = Folder::new();
    let mut text: String = (0..20_000).map(|i| format!("{{\"id\":{i},\"name\":\"person {i}\"}}\n")).collect();
    text.push_str("{\"id\":1,\"late\":7}\n");
    folder.write("a.jsonl", text);
    let ran = folder.run("convert a.jsonl --columns late --out kept --json").ok();
    assert_eq!(ran.summary()["columns"], json!([["late", "int64"]]));
}

#[test]
fn a_repeated_header_is_a_record_whichever_columns_are_read() {
    let folder = Folder::new();
    let rows: String = (0..60).map(|row| format!("p{row},{row}\n")).collect();
    folder.write("a.csv", format!("name,age\n{rows}name,age\nlast,1\n"));
    for columns in ["name", "age", "name,age"] {
        let ran = folder.run(&format!("convert a.csv --columns {columns} --out {columns} --json")).ok();
        assert_eq!(ran.summary()["records_out"], json!(62), "{columns}");
        assert!(ran.stderr.contains("line 62: this record is equal to the header"), "{ran:?}");
        // With rejects it is one: its values do not have the types of the columns.
        let ran = folder.run(&format!("convert a.csv --columns {columns} --out s{columns} --on-error skip --json"));
        let summary = ran.summary();
        assert_eq!((&summary["records_in"], &summary["records_rejected"]), (&json!(62), &json!(1)), "{columns}");
    }
}

/// Wide values of columns that are not kept must not be counted on: the file is cut short within them.
#[test]
fn bytes_of_other_parquet_columns_are_not_read() {
    let folder = Folder::new();
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let wide: ArrayRef = Arc::new(StringArray::from_iter_values((0..1000).map(|i| format!("value {}", i * 7919))));
    let batch = RecordBatch::try_from_iter([("wide", wide), ("id", ids)]).unwrap();
    let path = folder.path().join("a.parquet");
    let mut parquet = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    parquet.write(&batch).unwrap();
    parquet.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4..2000].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert_ne!(folder.run("convert a.parquet --out all").code, 0);
    let ran = folder.run("convert a.parquet --columns id --out kept --json").ok();
    assert_eq!(ran.summary()["records_out"], 1000);
    // Its content was not hashed, so that a later time of change makes it a changed source.
    let again = folder.run("convert a.parquet --out kept --json").ok();
    assert_eq!(again.summary()["sources_unchanged"], 1);
}

/// Numbers, texts, days and nulls, as delimited text with stated types.
fn write_table(folder: &Folder) {
    folder.write(
        "t.csv",
        "n,x,text,day,at\n1,0.5,a,2026-01-01,2026-01-01 12:00:00\n2,NaN,b,2026-02-01,\n3,,\"\",,2026-01-01 00:00:00\n\
         ,-0.0,ab,2025-12-31,2025-12-31 23:59:59\n9007199254740993,1.5,é,2026-01-31,2026-03-01 00:00:00\n",
    );
}

#[test]
fn rows_are_kept_by_conditions_of_sql() {
    let folder = Folder::new();
    write_table(&folder);
    for (number, (condition, rows)) in [
        ("n = 1", &[1][..]),
        ("n != 1", &[2, 3, 5]),
        ("not n = 1", &[2, 3, 5]),
        ("n is null or n in (2, null)", &[2, 4]),
        ("n not in (2, null)", &[]),
        ("n > 1.5 and n < 9007199254740992.5", &[2, 3]),
        ("9007199254740992 < n", &[5]),
        ("n = 9007199254740992e0", &[5]),
        ("x > 1e300", &[2]),
        ("x = 0", &[4]),
        ("x between -1 and 1", &[1, 4]),
        ("text = ''", &[3]),
        ("text like '_' and text >= 'b'", &[2, 5]),
        ("text like 'a%'", &[1, 4]),
        ("day >= date '2026-02-01' - 1", &[2, 5]),
        ("day >= '2026-01-31' OR day < DATE '2026-01-01'", &[2, 4, 5]),
        ("day > today() + 36500", &[]),
        ("at < day", &[]),
        ("at >= day", &[1, 4, 5]),
        ("at between timestamp '2025-12-31 23:59:59.5' and now() + interval '900 years'", &[1, 3, 5]),
        ("\"n\" <> 1 and not (x > 0 or day is null)", &[]),
        ("true", &[1, 2, 3, 4, 5]),
        ("n = null", &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let out = format!("out{number}");
        let types = ["x=float64", "text=text", "n=int64"].map(|given| format!("--type={given}"));
        let mut arguments = vec!["convert", "t.csv", "--where", condition, "--out", &out, "--to", "tar", "--json"];
        arguments.extend(types.iter().map(String::as_str));
        let summary = folder.run_with(&arguments).ok().summary();
        let counts = ["records_in", "records_out", "records_filtered"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counts, [5, rows.len() as u64, 5 - rows.len() as u64], "{condition}");
        let exported = folder.run(&format!("manifest {out} --export jsonl --json")).ok();
        let mut found: Vec<u64> = exported.objects().iter().filter_map(|row| row["row"].as_u64()).collect();
        found.sort_unstable();
        assert_eq!(found, rows.iter().map(|row| *row as u64).collect::<Vec<_>>(), "{condition}");
    }
}

#[test]
fn conditions_that_make_no_sense_are_refused_with_their_place() {
    let folder = Folder::new();
    write_table(&folder);
    for (condition, message) in [
        ("n = ", "expected a column or a literal in --where, found its end at character 5"),
        ("n = 1 2", "expected `and`, `or` or the end in --where, found `2` at character 7"),
        ("n < 1 < 2", "expected `and`, `or` or the end in --where, found `<` at character 7"),
        ("n in 1", "expected `(` in --where, found `1` at character 6"),
        ("text = 'a", "expected a closing ' in --where, found its end at character 10"),
        ("n ; 1", "found `;` at character 3"),
        ("lower(text) = 'a'", "the only functions are today() and now()"),
        (
            "day = date '2026-02-30'",
            "expected a date such as '2026-01-31' in --where, found `'2026-02-30'` at character 12",
        ),
        ("txet = 1", "there is a column `text`"),
        ("n = 'a'", "expected a number to compare with int64 in --where, found the text 'a'"),
        ("text = 1", "expected text, such as 'a' to compare with text in --where, found a number"),
        ("day > 5", "expected a date, such as date '2026-01-31' to compare with date in --where, found a number"),
        ("n", "expected a number to compare with int64 in --where, found no comparison"),
        ("n = text", "found column `text` of text"),
        ("1 = 1", "found two literals"),
        (&"(".repeat(10_000), "expected at most 100 levels"),
    ] {
        let ran = folder.run_with(&["convert", "t.csv", "--where", condition, "--out", "out"]);
        assert_eq!(ran.code, 2, "{condition}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{condition}: {}", ran.stderr);
        assert!(!folder.path().join("out/_shardify/log").exists(), "{condition}");
    }
    folder.write("files/a.jpg", "x");
    let ran = folder.run_with(&["convert", "files", "--where", "n = 1", "--out", "out"]);
    assert_eq!((ran.code, ran.stderr.contains("samples have no columns")), (2, true), "{}", ran.stderr);
}

#[test]
fn the_day_of_a_run_is_in_the_log() {
    let folder = Folder::new();
    write_table(&folder);
    folder.run_with(&["convert", "t.csv", "--where", "day <= today() - 30 or n = 1", "--out", "out"]).ok();
    let history = folder.run("manifest out --history --json").ok();
    let entry = history.objects().into_iter().find(|object| object["type"] == "version").unwrap();
    let arguments = &entry["arguments"];
    assert_eq!(arguments["where"], "day <= today() - 30 or n = 1", "{entry}");
    let resolved = arguments["where-resolved"].as_str().unwrap();
    let day = resolved.strip_prefix("day <= date '").and_then(|rest| rest.strip_suffix("' or n = 1")).unwrap();
    assert!(day.len() == 10 && day > "2020-01-01", "{resolved}");
}

/// Rows are `width` numbers; of every ten, one matches.
#[test]
fn tasks_give_the_same_shards_and_only_matching_groups_are_read() {
    let folder = Folder::new();
    let mut csv = String::from("id,part,value\n");
    for row in 0..4000 {
        csv.push_str(&format!("r{row},{},{}\n", row / 400, row * 7919 % 1000));
    }
    folder.write("big/a.csv", &csv);
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values((0..4000).map(|row| format!("p{row}"))));
    let parts: ArrayRef = Arc::new(Int64Array::from_iter_values((0..4000).map(|row| row / 400)));
    let batch = RecordBatch::try_from_iter([("id", ids), ("part", parts)]).unwrap();
    let properties =
        parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let file = File::create(folder.path().join("big/b.parquet")).unwrap();
    let mut parquet = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    parquet.write(&batch).unwrap();
    parquet.close().unwrap();
    let select = ["--columns", "part", "--id", "id", "--where", "part = 3 or id = 'r5'", "--to", "tar"];
    let convert = |out: &str, more: &[&str]| {
        folder.run_with(&[&["convert", "big", "--out", out, "--json"], &select[..], more].concat()).ok().summary()
    };
    let whole = convert("whole", &["--jobs", "1"]);
    assert_eq!(
        (&whole["records_in"], &whole["records_out"], &whole["records_filtered"]),
        (&json!(8000), &json!(801), &json!(7199))
    );
    convert("threads", &["--jobs", "3"]);
    let contents = |out: &str| folder.shards(out).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert_eq!(contents("whole"), contents("threads"));
    let cut = convert("cut", &["--task-size", "20KiB"]);
    assert_eq!((&cut["records_in"], &cut["records_filtered"]), (&json!(8000), &json!(7199)));
    assert!(cut["shards_added"].as_u64().unwrap() > 1);
    assert_eq!(folder.members("whole"), folder.members("cut"));
    for out in ["whole", "cut"] {
        assert_eq!(origins(&folder, out, "p1201"), ["b.parquet#1202"]);
    }
}

/// Samples of files, archives and rows, compressed and not: every shard but the last has the number of records asked
/// for.
#[test]
fn shards_have_so_many_records() {
    let folder = Folder::new();
    let lines: String = (0..5003).map(|row| format!("{row},{}\n", "x".repeat(row % 50))).collect();
    folder.write("a.csv", format!("id,text\n{lines}"));
    folder.write("b.csv", "id,text\n-1,\n");
    (0..25).for_each(|file| drop(folder.write(&format!("files/{file:02}.txt"), "x".repeat(file))));
    let runs = [
        ("a.csv b.csv", "--to parquet --write row-group=8KiB", 1000, 5004),
        ("a.csv b.csv", "--to parquet", 2502, 5004),
        ("a.csv b.csv", "--to tar --codec gzip --where id<1234", 700, 1235),
        ("a.csv b.csv", "--to tfrecord", 4096, 5004),
        ("files", "--to tar", 10, 25),
        ("files", "--to parquet", 7, 25),
        ("files", "--to tfrecord", 100, 25),
    ];
    for (number, (sources, more, each, records)) in runs.into_iter().enumerate() {
        let mut contents = Vec::new();
        for jobs in [1, 3] {
            let out = format!("out{number}-{jobs}");
            folder
                .run(&format!("convert {sources} --out {out} {more} --records-per-shard {each} --jobs {jobs} --json"))
                .ok();
            let listed = folder.run(&format!("manifest {out} --list --json")).ok();
            let shards: Vec<u64> = listed.objects().iter().filter_map(|shard| shard["records"].as_u64()).collect();
            let wanted: Vec<u64> = (0..records).step_by(each).map(|first| each.min(records - first) as u64).collect();
            let found: Vec<u64> = shards.iter().copied().take(wanted.len()).collect();
            assert_eq!(found, wanted, "{sources} {more}: {listed:?}");
            contents.push(folder.shards(&out).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>());
        }
        assert_eq!(contents[0], contents[1], "{sources} {more}");
    }
    let both = folder.run("convert a.csv --records-per-shard 5 --target-shard 1MiB --out out");
    assert_eq!(both.code, 2, "{}", both.stderr);
}

/// The input is divided into equal parts, at any number of threads; there are not more shards than records.
#[test]
fn there_are_so_many_shards() {
    let folder = Folder::new();
    let lines: String = (0..5003).map(|row| format!("{row},{}\n", "x".repeat(20 + row % 3))).collect();
    folder.write("a.csv", format!("id,text\n{lines}"));
    folder.write("b.csv", format!("id,text\n{lines}"));
    (0..25).for_each(|file| drop(folder.write(&format!("files/{file:02}.txt"), "x".repeat(5000))));
    for (number, (sources, more, shards, wanted)) in [
        ("a.csv b.csv", "--to parquet", 7, 7),
        ("a.csv b.csv", "--to parquet --write row-group=8KiB", 2, 2),
        ("a.csv b.csv", "--to tar", 10, 10),
        ("a.csv b.csv", "--to tfrecord --codec gzip", 1, 1),
        ("files", "--to tar", 5, 5),
        ("files", "--to parquet", 100, 25),
    ]
    .into_iter()
    .enumerate()
    {
        let mut contents = Vec::new();
        for jobs in [1, 3] {
            let out = format!("out{number}-{jobs}");
            folder.run(&format!("convert {sources} --out {out} {more} --shards {shards} --jobs {jobs}")).ok();
            let listed = folder.run(&format!("manifest {out} --list --json")).ok();
            let found: Vec<u64> = listed.objects().iter().filter_map(|shard| shard["records"].as_u64()).collect();
            let found = &found[..found.len().min(wanted)];
            let all: u64 = found.iter().sum();
            let even = |records: &u64| (*records as f64 * wanted as f64 / all as f64 - 1.0).abs() < 0.05;
            assert!(found.len() == wanted && found.iter().all(even), "{sources} {more}: {found:?}");
            let shards = folder.shards_below_tags(&out).into_iter();
            let is_shard = |path: &str| [".parquet", ".tar", ".tfrecord", ".gz"].iter().any(|end| path.ends_with(end));
            contents.push(shards.filter(|(path, _)| is_shard(path)).map(|(_, bytes)| bytes).collect::<Vec<_>>());
        }
        assert!(contents[0] == contents[1] && contents[0].len() == wanted, "{sources} {more}");
    }
    for more in ["--target-shard 1MiB", "--records-per-shard 5"] {
        assert_eq!(folder.run(&format!("convert a.csv --out out --shards 2 {more}")).code, 2, "{more}");
    }
}

/// A Parquet file of a small column of numbers and one of 4 MB that no codec makes smaller, in row groups of 1,000.
fn large_parquet(first: i64) -> Vec<u8> {
    let ids: Vec<i64> = (first..first + 4000).collect();
    let noise = |id: &i64| -> String {
        let digest = |part: u64| blake3::hash(format!("{id}-{part}").as_bytes()).to_hex().to_string();
        (0..16).map(digest).collect()
    };
    let texts: Vec<String> = ids.iter().map(noise).collect();
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from(ids.clone()))),
        ("text", Arc::new(StringArray::from(texts))),
        ("other", Arc::new(Int64Array::from(ids))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let plain = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(1000))
        .set_dictionary_enabled(false)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(plain)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Runs a command, and returns how many bytes it read, as Linux counts them; `None` where nothing counts.
fn bytes_read(folder: &Folder, arguments: &str) -> Option<u64> {
    let script = "\"$0\" \"$@\" >&2 && cat /proc/$$/io";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_shardify")]).args(arguments.split(' ')).current_dir(folder.path());
    let ran = shell.output().unwrap();
    let stdout = String::from_utf8_lossy(&ran.stdout);
    let read = stdout.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    if read.is_none() {
        println!("NOT RUN: bytes that are read: no /proc/<pid>/io: {}", String::from_utf8_lossy(&ran.stderr));
    }
    read
}

/// Readers within others skip what they would skip alone: columns, and row groups by their bounds.
#[test]
fn what_is_not_taken_is_not_read_of_partitions_and_tables_either() {
    let folder = Folder::new();
    let files = [large_parquet(0), large_parquet(4000)];
    let total = files.iter().map(|file| file.len() as u64).sum::<u64>();
    assert!(total > 8_000_000);
    let mut log = vec![
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
        json!({"metaData": {"id": "i", "format": {"provider": "parquet", "options": {}}, "configuration": {},
            "partitionColumns": ["day"], "schemaString": json!({"type": "struct", "fields": [
                {"name": "id", "type": "long", "nullable": true, "metadata": {}},
                {"name": "text", "type": "string", "nullable": true, "metadata": {}},
                {"name": "other", "type": "long", "nullable": true, "metadata": {}},
                {"name": "day", "type": "integer", "nullable": true, "metadata": {}}]}).to_string()}}),
    ];
    for (day, file) in files.iter().enumerate() {
        folder.write(&format!("hive/day={day}/0.parquet"), file);
        folder.write(&format!("table/{day}.parquet"), file);
        log.push(json!({"add": {"path": format!("{day}.parquet"), "size": file.len(), "modificationTime": 0,
            "dataChange": true, "partitionValues": {"day": day.to_string()}}}));
    }
    let log: String = log.iter().map(|line| format!("{line}\n")).collect();
    folder.write("table/_delta_log/00000000000000000000.json", log);
    // Formats are told by heads of sources; the content of those that are read as a whole is hashed.
    for (number, (more, records, most)) in [
        ("hive --read hive-columns=yes --columns id", 8000, total / 4),
        ("hive --read hive-columns=yes --where day=1 --columns text", 4000, total * 3 / 4),
        ("hive --read hive-columns=yes --where id<1000 --columns text", 1000, total * 3 / 5),
        ("table --where day=1", 4000, total * 7 / 4),
        ("table --where id<1000", 1000, total * 8 / 5),
    ]
    .into_iter()
    .enumerate()
    {
        let Some(read) = bytes_read(&folder, &format!("convert {more} --out out{number}")) else { return };
        // The shards that are written are read back.
        let written: u64 = folder.shards(&format!("out{number}")).iter().map(|(_, shard)| shard.len() as u64).sum();
        assert!(read < most + written, "{more}: {read} of {total} bytes were read, {written} written");
        let summary = folder.run(&format!("manifest out{number} --json")).ok().summary();
        assert_eq!(summary["records"], records, "{more}: {summary}");
    }
}
