//! Which columns and records of tables a conversion keeps: `--columns`.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

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
    let ran = folder.run(&format!("convert {sources} --columns name --id id --to tar --out kept")).ok();
    assert_eq!(ran.summary()["columns"], json!([["name", "text"]]));
    let names = ["Ann", "Bob", "Dee", "Eve", "Fé", "Hal", "Ida"].map(|name| json!({ "name": name }));
    let mut found = rows(&folder, "kept");
    found.sort_by_key(ToString::to_string);
    assert_eq!(found, names);
    let found = folder.run("manifest kept --find b3").ok().summary();
    assert_eq!(found["records"][0]["origin"], "b.jsonl#3", "{found}");
    // Without --columns, the types of `age` cannot be united.
    let all = folder.run(&format!("convert {sources} --id id --to tar --out all"));
    assert_ne!(all.code, 0);
}

#[test]
fn columns_have_the_order_of_the_option_and_are_remembered() {
    let folder = Folder::new();
    folder.write("a.csv", "id,name,age\na1,Ann,30\n");
    let ran = folder.run("convert a.csv --columns age,id --out kept").ok();
    assert_eq!(ran.summary()["columns"], json!([["age", "int64"], ["id", "text"]]));
    folder.write("b.csv", "name,id,age\nBob,b1,x\n");
    let ran = folder.run("convert b.csv --out kept").ok();
    assert_eq!(ran.summary()["columns"], json!([["age", "text"], ["id", "text"]]));
    folder.write("c.csv", "id,name,age\nc1,Cy,1\n");
    let other = folder.run("convert c.csv --columns name --out kept");
    assert_eq!(other.code, 8, "{}", other.stderr);
    assert!(other.stderr.contains("expected --columns age,id, as this dataset has, found name"), "{}", other.stderr);
    let ran = folder.run_with(&["convert", "c.csv", "--columns", "*", "--accept", "settings", "--out", "kept"]).ok();
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
    let ran = folder.run("convert a.jsonl --columns late --out kept").ok();
    assert_eq!(ran.summary()["columns"], json!([["late", "int64"]]));
}

#[test]
fn a_repeated_header_is_skipped_whichever_columns_are_read() {
    let folder = Folder::new();
    folder.write("a.csv", "name,age\nAnn,30\nBob,31\nname,age\nCy,32\n");
    for columns in ["name", "age", "name,age"] {
        let ran = folder.run(&format!("convert a.csv --columns {columns} --out {columns}")).ok();
        assert_eq!(
            (&ran.summary()["records_in"], &ran.summary()["lines_skipped"]),
            (&json!(3), &json!(1)),
            "{columns}"
        );
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
    let ran = folder.run("convert a.parquet --columns id --out kept").ok();
    assert_eq!(ran.summary()["records_out"], 1000);
    // Its content was not hashed, so that a later time of change makes it a changed source.
    let again = folder.run("convert a.parquet --out kept").ok();
    assert_eq!(again.summary()["sources_unchanged"], 1);
}
