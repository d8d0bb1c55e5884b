//! Types that users give columns: every type that can be named is read from delimited text and from JSON, or refused
//! before anything is read; what a type does not hold is a reject that says so.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use insta::assert_snapshot;
use serde_json::{Value, json};
use support::{Folder, Ran};

/// A type, a value of it as text, as JSON, and as JSON has it that shardify writes; and text that is no value of it.
const TYPES: &[(&str, &str, &str, &str, &str)] = &[
    ("bool", "TRUE", "true", "true", "1"),
    ("int8", "+5", "5", "5", "128"),
    ("int16", "-7", "\"-7\"", "-7", "1.5"),
    ("int32", "007", "7.0", "7", "2147483648"),
    ("int64", "1099511627776", "\"1099511627776\"", "1099511627776", "9223372036854775808"),
    ("uint8", "255", "255", "255", "-1"),
    ("uint16", "65535", "65535", "65535", "65536"),
    ("uint32", "4294967295", "4294967295", "4294967295", "x"),
    ("uint64", "18446744073709551615", "18446744073709551615", "18446744073709551615", "18446744073709551616"),
    ("float32", "0.5", "0.5", "0.5", "1e39"),
    ("float64", "1e3", "\"1e3\"", "1000.0", "1,5"),
    ("decimal(10, 2)", "1.5", "1.5", "\"1.50\"", "0.125"),
    ("decimal(38, 20)", "0.1", "\"0.1\"", "\"0.10000000000000000000\"", "1e30"),
    ("date", "2024-02-29", "\"2024-02-29\"", "\"2024-02-29\"", "2023-02-29"),
    ("time(ms)", "23:59", "\"23:59\"", "\"23:59:00\"", "24:00"),
    ("timestamp", "2024-01-02 03:04:05", "\"2024-01-02 03:04:05\"", "\"2024-01-02T03:04:05\"", "2024-01-02T03:04:05Z"),
    (
        "timestamp(ns)",
        "2024-01-02 03:04:05.000000001",
        "\"2024-01-02T03:04:05.000000001\"",
        "\"2024-01-02T03:04:05.000000001\"",
        "now",
    ),
    (
        "instant",
        "2024-01-02T03:04:05+01:00",
        "\"2024-01-02 02:04:05Z\"",
        "\"2024-01-02T02:04:05Z\"",
        "2024-01-02 03:04:05",
    ),
    (
        "timestamp(s, Europe/Paris)",
        "2024-01-02T03:04:05+0100",
        "\"2024-01-02T03:04:05+01\"",
        "\"2024-01-02T02:04:05Z\"",
        "2024-01-02T03:04:05",
    ),
    ("duration(ms)", "01:30:00", "\"PT1H30M\"", "\"PT5400S\"", "90"),
    ("text", "x", "[1, 2]", "", ""),
    ("large_text", "x", "\"x\"", "\"x\"", ""),
    ("binary", "AP8=", "\"AP8=\"", "\"AP8=\"", "x"),
    ("fixed_binary(2)", "AP8=", "\"AP8=\"", "\"AP8=\"", "AA=="),
    ("json", "[1]", "[1]", "[1]", "x"),
];

/// Rows of a dataset of tar, one member each.
fn rows(folder: &Folder, dataset: &str) -> Vec<Value> {
    folder.members(dataset).into_values().map(|content| serde_json::from_slice(&content).unwrap()).collect()
}

fn convert(folder: &Folder, source: &str, given: &[&str], more: &[&str]) -> Ran {
    let mut arguments = vec!["convert", source, "--to", "tar"];
    arguments.extend(given.iter().flat_map(|given| ["--type", given]));
    folder.run_with(&[&arguments[..], more].concat())
}

#[test]
fn delimited_text_and_json_are_read_in_every_scalar_type() {
    let folder = Folder::new();
    for (number, (data_type, text, document, written, bad)) in TYPES.iter().enumerate() {
        let given = format!("v={data_type}");
        let (csv, jsonl, json) = (format!("{number}.csv"), format!("{number}.jsonl"), format!("{number}.json"));
        folder.write(&csv, format!("k,v\n1,{text}\n2,\n"));
        folder.write(&jsonl, format!("{{\"k\":1,\"v\":{document}}}\n{{\"k\":2,\"v\":null}}\n"));
        folder.write(&json, format!("[{{\"k\":1,\"v\":{document}}},\n{{\"k\":2}}]"));
        for source in [&csv, &jsonl, &json] {
            let out = format!("{source}.out");
            convert(&folder, source, &[&given], &["--out", &out]).ok();
            let rows = rows(&folder, &out);
            assert_eq!((rows.len(), &rows[1]["v"]), (2, &Value::Null), "{source} {data_type}");
            if !written.is_empty() {
                assert_eq!(rows[0]["v"], serde_json::from_str::<Value>(written).unwrap(), "{source} {data_type}");
            }
        }
        if bad.is_empty() {
            continue;
        }
        folder.write(&csv, format!("k,v\n1,\"{bad}\"\n"));
        folder.write(&jsonl, format!("{{\"k\":1,\"v\":{}}}\n", json!(bad)));
        let sources: &[&String] = if *data_type == "json" { &[&csv] } else { &[&csv, &jsonl] };
        for source in sources {
            let ran = convert(&folder, source, &[&given], &["--out", "bad"]);
            assert_eq!(ran.code, 6, "{source} {data_type} {bad}");
            assert!(ran.stderr.contains("column `v`") && ran.stderr.contains(bad), "{}", ran.stderr);
            let name = data_type.split('(').next().unwrap();
            assert!(ran.stderr.contains(name) || name == "instant", "{}", ran.stderr);
        }
    }
}

#[test]
fn json_is_read_in_nested_types() {
    let folder = Folder::new();
    folder.write(
        "a.jsonl",
        concat!(
            r#"{"l":["2024-01-01",null],"f":[1,2],"g":[1.5,"2"],"s":{"a":3,"b":["PT1S"]},"t":{"x":1}}"#,
            "\n{\"l\":null}\n",
            r#"{"l":[],"f":[1],"s":{}}"#,
            "\n",
            r#"{"l":["2024-01-01","soon"]}"#,
            "\n",
            r#"{"s":{"a":"3.5"}}"#,
            "\n"
        ),
    );
    let given = [
        "l=list<date>",
        "f=fixed_list<int8, 2>",
        "g=large_list<decimal(5, 1)>",
        "s=struct<a: int32, b: list<duration(s)>>",
        "t=text",
    ];
    let ran = convert(&folder, "a.jsonl", &given, &["--out", "o", "--on-error", "quarantine", "--json"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let rejects = ran.summary()["rejects"].as_str().unwrap().to_owned();
    let rejects = std::fs::read_to_string(folder.path().join("o").join(rejects)).unwrap();
    let rejects: Vec<Value> = rejects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        rejects.iter().map(|r| (r["line"].as_u64(), r["column"].as_str(), r["reason"].as_str())).collect();
    assert_eq!(
        told,
        [
            (Some(3), Some("f"), Some("expected a list of 2 items, found 1 items")),
            (Some(4), Some("l"), Some("expected date (YYYY-MM-DD), found \"soon\"")),
            (Some(5), Some("s.a"), Some("expected int32, found \"3.5\"")),
        ]
    );
    assert_eq!(
        rows(&folder, "o")[0],
        json!({"l":["2024-01-01",null],"f":[1,2],"g":["1.5","2.0"],"s":{"a":3,"b":["PT1S"]},"t":"{\"x\":1}"})
    );
    assert_eq!(rows(&folder, "o").len(), 2);
}

#[test]
fn types_without_a_text_are_refused_before_anything_is_read() {
    let folder = Folder::new();
    folder.write("a.csv", "a\nx\n");
    folder.write("a.jsonl", "{\"a\":\"x\"}\n");
    let csv = convert(&folder, "a.csv", &["a=list<int64>"], &[]);
    assert_eq!(csv.code, 2);
    assert_snapshot!(folder.redact(&csv.stderr), @r"
    error: expected a type that delimited text can be read as, found list<int64>
       at: [FOLDER]/a.csv, column `a`
     hint: lists and structs are read as `json`; any other value as `text`
    ");
    folder.write("schema.txt", r#"{"columns": [{"name": "a", "type": "map<text, text>"}]}"#);
    let json = folder.run("convert a.jsonl --schema schema.txt");
    assert_eq!(json.code, 2);
    assert_snapshot!(folder.redact(&json.stderr), @r"
    error: expected a type that JSON can be read as, found map<text, text>
       at: [FOLDER]/a.jsonl, column `a`
     hint: omit the type, or keep the values as written with `json`
    ");
}

#[test]
fn typed_values_that_do_not_fit_are_rejects_and_never_text() {
    let folder = Folder::new();
    folder
        .write("a.jsonl", "{\"a\":1,\"d\":\"2024-01-02\"}\n{\"a\":1099511627776,\"d\":\"x\"}\n{\"a\":3,\"d\":null}\n");
    for format in ["parquet", "tfrecord", "tar"] {
        folder.run(&format!("convert a.jsonl --to {format} --out {format}")).ok();
        let out = format!("{format}.out");
        let given = ["a=int32", "d=date"];
        let stopped = convert(&folder, format, &given, &["--out", &out]);
        assert_eq!(stopped.code, 6, "{stopped:?}");
        assert!(stopped.stderr.contains("expected int32, found `1099511627776`"), "{}", stopped.stderr);
        assert!(stopped.stderr.contains("column `a`"), "{}", stopped.stderr);
        let skipped = convert(&folder, format, &given, &["--out", &out, "--on-error", "skip", "--json"]);
        assert_eq!(skipped.code, 3, "{skipped:?}");
        assert_eq!(skipped.summary()["columns"], json!([["a", "int32"], ["d", "date"]]));
        assert_eq!(rows(&folder, &out), [json!({"a":1,"d":"2024-01-02"}), json!({"a":3,"d":null})]);
    }
    let nothing = convert(&folder, "parquet", &["a=list<int64>"], &["--on-error", "skip"]);
    assert_eq!(nothing.code, 6);
    assert!(nothing.stderr.contains("expected list<int64>, found `int64`"), "{}", nothing.stderr);
}

#[test]
fn text_beside_bytes_is_not_taken_for_base64() {
    let folder = Folder::new();
    folder.write("bytes.jsonl", "{\"x\":\"AP8=\"}\n");
    folder.run_with(&["convert", "bytes.jsonl", "--out", "bytes", "--type", "x=binary"]).ok();
    folder.write("a.csv", "x,y\nabcd,1\n");
    folder.run("convert a.csv bytes --out o --to tar").ok();
    let found: Vec<Value> = rows(&folder, "o").into_iter().map(|row| row["x"].clone()).collect();
    assert_eq!(found, [json!("YWJjZA=="), json!("AP8=")]);
}

#[test]
fn text_beside_documents_becomes_documents() {
    let folder = Folder::new();
    folder.write("a.csv", "x,y\na,1\n2.50,2\n");
    folder.write("b.jsonl", "{\"x\":[1],\"y\":3}\n");
    folder.run("convert a.csv b.jsonl --out o --to tar").ok();
    let found: Vec<Value> = rows(&folder, "o").into_iter().map(|row| row["x"].clone()).collect();
    assert_eq!(found, [json!("a"), json!(2.5), json!([1])]);
}
