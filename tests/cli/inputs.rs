//! Every kind of input through the command line: what it is told to be, what is read of it, and what is refused.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use insta::assert_snapshot;
use support::{Folder, testdata_path};

/// Rows of a tar of JSON members, in order.
fn rows(folder: &Folder, dataset: &str) -> Vec<serde_json::Value> {
    let members = folder.members(dataset).into_values();
    members.map(|content| serde_json::from_slice(&content).unwrap()).collect()
}

fn counts(summary: &serde_json::Value) -> [u64; 3] {
    ["records_in", "records_out", "records_rejected"].map(|name| summary[name].as_u64().unwrap())
}

#[test]
fn every_format_and_compression_gives_the_same_rows() {
    let folder = Folder::new();
    folder.copy("inputs/people.csv", "people.csv");
    folder.run("convert people.csv --out plain --to tar").ok();
    let expected = rows(&folder, "plain");
    assert_eq!(expected.len(), 3);
    assert_eq!(expected[0]["name"], "Åsa");
    for name in [
        "people.csv.gz",
        "people.csv.bz2",
        "people.csv.xz",
        "people.csv.zst",
        "people.csv.lz4",
        "people.utf16.csv",
        "people.parquet",
        "people.arrow",
        "people.arrows",
        "people.avro",
    ] {
        folder.copy(&format!("inputs/{name}"), name);
        folder.run(&format!("convert {name} --out {name}.out --to tar")).ok();
        assert_eq!(rows(&folder, &format!("{name}.out")), expected, "{name}");
    }
    folder.copy("inputs/people.latin1.csv", "latin1");
    folder.run("convert latin1 --from csv --read encoding=latin1 --out l --to tar").ok();
    assert_eq!(rows(&folder, "l"), expected);
}

#[test]
fn names_are_not_trusted() {
    let folder = Folder::new();
    // A Parquet file called CSV, a table called Parquet.
    folder.copy("inputs/people.parquet", "a/people.csv");
    folder.copy("inputs/people.csv", "b/people.parquet");
    for source in ["a", "b"] {
        assert_eq!(
            counts(&folder.run(&format!("convert {source} --out {source}.out --json")).ok().summary()),
            [3, 3, 0]
        );
    }
    folder.copy("inputs/people.csv", "people.csv");
    let wrong = folder.run("convert people.csv --from parquet");
    assert_eq!(wrong.code, 6);
    assert_snapshot!(folder.redact(&wrong.stderr), @r"
    error: this file is not parquet
       at: [FOLDER]/people.csv
     hint: it looks like csv: leave --from out, or skip it with --exclude
    ");
}

#[test]
fn samples_go_to_columns_and_back() {
    let folder = Folder::new();
    folder.copy("inputs/samples.tar", "samples.tar");
    let summary = folder.run("convert samples.tar --json").ok().summary();
    assert_eq!((summary["format"].as_str(), counts(&summary)), (Some("tar"), [2, 2, 0]));
    assert_eq!(summary["entries_passed_over"], 1, "a pipe holds no data");
    let expected = folder.members("shards");
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["a/1.cls", "a/1.jpg", "a/2.jpg", "a/2.txt"]);
    for between in ["parquet", "parquet --write media=hf", "tfrecord"] {
        let name = between.replace(' ', "");
        let summary = folder.run(&format!("convert samples.tar --out {name} --to {between} --json")).ok().summary();
        assert_eq!(counts(&summary), [2, 2, 0]);
        folder.run(&format!("convert {name} --out {name}.back --to tar")).ok();
        assert_eq!(folder.members(&format!("{name}.back")), expected, "{between}");
        let hit = folder.run(&format!("manifest {name}.back --find a/2 --json")).ok().objects()[0].clone();
        assert_eq!(hit["record_id"], "a/2");
    }
}

#[test]
fn samples_of_archives_that_lack_parts_are_kept_refused_or_left_out() {
    let folder = Folder::new();
    folder.copy("inputs/samples.tar", "samples.tar");
    let refused = folder.run("convert samples.tar --missing fail");
    assert_eq!(refused.code, 6);
    assert!(refused.stderr.contains("a/1: expected the parts cls, jpg, txt, found no txt"), "{refused:?}");
    let left_out = folder.run("convert samples.tar --missing skip --json");
    assert_eq!((left_out.code, counts(&left_out.summary())), (3, [2, 0, 2]));
}

#[test]
fn rows_keep_their_types_through_formats_that_have_none() {
    let folder = Folder::new();
    folder.copy("inputs/people.parquet", "people.parquet");
    let columns = |summary: &serde_json::Value| summary["columns"].clone();
    let direct = folder.run("convert people.parquet --out direct --json").ok().summary();
    for between in ["tar", "tfrecord"] {
        folder.run(&format!("convert people.parquet --out {between} --to {between}")).ok();
        let back = folder.run(&format!("convert {between} --out {between}.back --to parquet --json")).ok().summary();
        assert_eq!((columns(&back), counts(&back)), (columns(&direct), [3, 3, 0]), "{between}");
    }
}

#[test]
fn rows_become_parts_when_asked() {
    let folder = Folder::new();
    folder.copy("inputs/people.csv", "people.csv");
    folder.run("convert people.csv --to tar --write rows=parts --id id").ok();
    let members = folder.members("shards");
    assert_eq!(members["P-1.name"], "Åsa".as_bytes());
    assert_eq!((&members["P-1.born"][..], &members["P-3.score"][..]), (&b"1999-12-31"[..], &b"2.5"[..]));
    assert!(!members.contains_key("P-3.name"), "null is no member");
}

#[test]
fn standard_input_is_known_by_its_content() {
    let folder = Folder::new();
    let csv = std::fs::read(testdata_path("inputs/people.csv")).unwrap();
    let first = folder.run_input(&["convert", "-", "--from", "csv", "--json"], &csv).ok().summary();
    assert_eq!((counts(&first), first["version"].as_u64()), ([3, 3, 0], Some(1)));
    let again = folder.run_input(&["convert", "-", "--from", "csv", "--json"], &csv).ok().summary();
    assert_eq!((again["sources_unchanged"].as_u64(), again["version"].as_u64()), (Some(1), Some(1)));
    let nameless = folder.run_input(&["convert", "-"], &csv);
    assert_eq!(nameless.code, 2);
    assert_snapshot!(nameless.stderr, @r"
    error: expected --from with `-`, because the format of standard input cannot be derived from a name
     hint: name the format, such as --from csv or --from jsonl
    ");
}

#[test]
fn a_schema_is_followed() {
    let folder = Folder::new();
    folder.copy("inputs/people.csv", "people.csv");
    let columns = r#"{"columns": [{"name": "id", "type": "text"}, {"name": "score", "type": "float32"},
        {"name": "name", "type": "text"}, {"name": "born", "type": "text"}, {"name": "note", "type": "int8"}]}"#;
    folder.write("schema.json", columns);
    let summary = folder.run("convert people.csv --schema schema.json --out a --json").ok().summary();
    let types: Vec<&str> = summary["columns"].as_array().unwrap().iter().map(|c| c[1].as_str().unwrap()).collect();
    assert_eq!(types, ["text", "float32", "text", "text", "int8"]);
    folder.write("short.json", r#"{"columns": [{"name": "id", "type": "text"}]}"#);
    let ran = folder.run("convert people.csv --schema short.json --out b");
    assert_eq!((ran.code, ran.stderr.contains("`name`")), (6, true), "{ran:?}");
    folder.write("bad.json", r#"{"columns": [{"name": "id", "type": "texd"}]}"#);
    assert_eq!(folder.run("convert people.csv --schema bad.json --out c").code, 2);
}

#[test]
fn ids_lie_within_nested_columns_too() {
    let folder = Folder::new();
    folder.write("visits.jsonl", "{\"id\":1,\"subject\":{\"reference\":\"P-1\"}}\n{\"id\":2,\"subject\":null}\n");
    folder.run("convert visits.jsonl --id id --subject subject.reference").ok();
    let hits = folder.run("manifest --find P-1 --json").ok().objects();
    assert_eq!((hits.len(), hits[0]["record_id"].as_str()), (2, Some("1")));
    folder.run("verify --read-data").ok();
    assert_eq!(folder.run("convert visits.jsonl --out b --subject subject.nothing").code, 2);
}

#[test]
fn records_of_json_keep_their_own_keys() {
    let folder = Folder::new();
    folder.write(
        "a.jsonl",
        "{\"id\":1,\"x\":null,\"m\":{\"a\":1}}\n{\"id\":2,\"x\":null,\"m\":{\"b\":[{\"c\":2},{}]},\"y\":\"z\"}\n",
    );
    folder.write("b.jsonl", "{\"id\":3,\"w\":true}\n");
    folder.write("c.csv", "id,x,y\n4,,\n");
    folder.run("convert a.jsonl b.jsonl --to tar --out tar").ok();
    let told = |dataset: &str| -> Vec<String> {
        folder.members(dataset).into_values().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
    };
    assert_eq!(
        told("tar"),
        [
            r#"{"id":1,"x":null,"m":{"a":1}}"#,
            r#"{"id":2,"x":null,"m":{"b":[{"c":2},{}]},"y":"z"}"#,
            r#"{"id":3,"w":true}"#
        ]
    );
    folder.run("convert c.csv --to tar --out rows").ok();
    assert_eq!(told("rows"), [r#"{"id":4,"x":null,"y":null}"#]);
    // Shards of tar are read with the types of their dataset.
    folder.run("convert tar --out back").ok();
    folder.run("verify back --read-data").ok();
    let back = folder.run("head back --json -n 3").ok().stdout;
    assert!(back.contains("\"w\":true") || back.contains("\"w\": true"), "{back}");
}

#[test]
fn a_table_that_outgrows_its_records_is_refused_by_name() {
    let folder = Folder::new();
    let line = |at: usize| format!("{{\"id\":{at},\"key_{at}\":1,\"t\":\"x\"}}\n");
    let lines: String = (0..9_000).map(line).collect();
    folder.write("keys.jsonl", &lines);
    for to in ["parquet", "tar"] {
        let refused = folder.run(&format!("convert keys.jsonl --to {to} --out out --on-error skip"));
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
        assert!(refused.stderr.contains("keys.jsonl") && refused.stderr.contains("--columns"), "{refused:?}");
        assert!(!folder.path().join("out").join("_shardify/log").exists());
    }
    folder.run("convert keys.jsonl --columns id,t --out some").ok();
    // One file for each record is as bad.
    (0..400).for_each(|at| _ = folder.write(&format!("files/{at}.json"), files_line(at)));
    let refused = folder.run("convert files --out files.out");
    assert_eq!(refused.code, 2, "{refused:?}");
    // Within a record, such an object becomes JSON.
    let nested: String = (0..2_000).map(|at| format!("{{\"id\":{at},\"m\":{{\"key_{at}\":1}}}}\n")).collect();
    folder.write("nested.jsonl", nested);
    folder.run("convert nested.jsonl --out nested").ok();
}

/// An object with a hundred keys of its own.
fn files_line(at: usize) -> String {
    let keys: Vec<String> = (0..100).map(|key| format!("\"key_{at}_{key}\":1")).collect();
    format!("{{{}}}\n", keys.join(","))
}

#[test]
fn what_has_no_single_reading_is_refused() {
    let folder = Folder::new();
    folder.copy("inputs/samples.tar", "mixed/samples.tar");
    folder.copy("inputs/people.csv", "mixed/people.csv");
    let mixed = folder.run("convert mixed");
    assert_eq!(mixed.code, 2);
    assert_snapshot!(mixed.stderr, @r"
    error: expected either samples or rows, found both: `samples.tar` contains samples, `people.csv` rows
     hint: convert them one after the other, selecting each with --include
    ");
    folder.copy("inputs/people.parquet", "table/part-0.parquet");
    folder.write("table/_delta_log/00000000000000000000.json", "{}");
    let delta = folder.run("convert table");
    assert_eq!((delta.code, delta.stderr.contains("the log of a Delta table")), (6, true), "{delta:?}");
    for around in [
        "table --exclude **/_delta_log/**",
        "table/*.parquet",
        "table/part-0.parquet",
        "table/year=2026",
        "table/year=2026/*",
    ] {
        folder.copy("inputs/people.parquet", "table/year=2026/part-1.parquet");
        let delta = folder.run(&format!("convert {around} --out t"));
        assert_eq!((delta.code, delta.stderr.contains("Delta table")), (2, true), "{around}: {delta:?}");
        assert!(!delta.stderr.contains("_delta_log/**"), "no hint leads around it");
    }
    for around in ["table", "table/year=2026", "table/part-0.parquet"] {
        let delta = folder.run(&format!("adopt {around} --out t"));
        assert_eq!((delta.code, delta.stderr.contains("Delta table")), (2, true), "{around}: {delta:?}");
    }
    folder.copy("inputs/people.parquet", "ice/data/part-0.parquet");
    folder.write("ice/metadata/v1.metadata.json", "{}");
    assert!(folder.run("convert ice/data --out t").stderr.contains("an Iceberg table"));
    // A table beside what is read is nobody's business.
    folder.copy("inputs/people.csv", "people.csv");
    folder.run("convert people.csv --out t").ok();
}

#[test]
fn of_a_dataset_among_the_inputs_only_live_records_come() {
    for to in ["parquet", "tar"] {
        let folder = Folder::new();
        for name in ["a", "b"] {
            let rows: String = (0..20).map(|i| format!("{name}{i},P{},note\n", i % 4)).collect();
            folder.write(&format!("par/{name}.csv"), format!("id,who,note\n{rows}"));
            folder
                .run(&format!("convert par/{name}.csv --id id --subject who --to {to} --codec none --out par/ds"))
                .ok();
        }
        folder.run("compact par/ds --min-inputs 2").ok();
        folder.run("erase par/ds --subject P1").ok();
        // Old shards of both conversions and of the compaction are still there, with P1 in them.
        let read = |sources: &str, out: &str| {
            folder.run(&format!("convert {sources} --exclude *.csv --out {out} --json")).ok()
        };
        for (sources, out) in [(".", "o1"), ("par", "o2"), ("par/ds", "o3"), ("par/ds/*/*", "o4")] {
            assert_eq!(read(sources, out).summary()["records_out"], 30, "{to}: {sources}");
        }
        let shards: Vec<String> =
            folder.shards("par/ds").into_iter().map(|(path, _)| format!("par/ds/{path}")).collect();
        assert_eq!(read(&shards.join(" "), "o5").summary()["records_out"], 30, "{to}: {shards:?}");
        let adopted = folder.run("adopt par --exclude *.csv --out o6 --json").ok().summary();
        assert_eq!(adopted["records_out"], 30, "{to}: {adopted}");
        let in_place = folder.run("adopt par --exclude *.csv");
        assert_eq!((in_place.code, in_place.stderr.contains("of another dataset")), (2, true), "{in_place:?}");
    }
}

#[test]
fn types_that_contradict_each_other_are_an_error_that_names_both_sources() {
    let folder = Folder::new();
    for (name, kind, value) in [("a", "timestamp", "2026-01-01T00:00:00"), ("b", "instant", "2026-01-01T00:00:00Z")] {
        folder.write(&format!("{name}.csv"), format!("at\n{value}\n"));
        folder.run(&format!("convert {name}.csv --type at={kind} --out {name}")).ok();
    }
    let ran = folder.run("convert a b --out both");
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.stderr.contains("/a/") && ran.stderr.contains("/b/"), "{ran:?}");
    folder.run("convert a b --out both --type at=text").ok();
}

#[test]
fn a_bad_source_costs_one_reject_when_that_is_allowed() {
    let folder = Folder::new();
    folder.copy("inputs/people.parquet", "in/a.parquet");
    let whole = std::fs::read(testdata_path("inputs/people.parquet")).unwrap();
    folder.write("in/b.parquet", &whole[..whole.len() / 2]);
    folder.copy("inputs/people.parquet", "in/c.parquet");
    let refused = folder.run("convert in");
    assert_eq!((refused.code, refused.stderr.contains("b.parquet")), (6, true), "{refused:?}");
    let ran = folder.run("convert in --on-error quarantine --json");
    assert_eq!((ran.code, counts(&ran.summary())), (3, [7, 6, 1]), "{ran:?}");
    let rejects = ran.summary()["rejects"].as_str().unwrap().to_owned();
    let line = std::fs::read_to_string(folder.path().join("shards").join(rejects)).unwrap();
    assert!(line.contains("b.parquet") && line.lines().count() == 1, "{line}");
    // Damage among the values: so many rows are known to be lost.
    let mut damaged = whole.clone();
    damaged[20..60].fill(0xff);
    folder.write("in/b.parquet", damaged);
    let ran = folder.run("convert in --on-error quarantine --out damaged --json");
    assert_eq!((ran.code, counts(&ran.summary())), (3, [9, 6, 3]), "{ran:?}");
    // Nothing at all comes out of a file that is cut within its first frame.
    for name in ["people.csv.xz", "people.csv.zst", "people.csv.bz2"] {
        let packed = std::fs::read(testdata_path(&format!("inputs/{name}"))).unwrap();
        folder.write(name, &packed[..packed.len() / 2]);
        let ran = folder.run(&format!("convert {name}"));
        assert_eq!((ran.code, ran.stderr.contains(&format!("/{name}"))), (6, true), "{ran:?}");
    }
    // A truncated archive: what comes before the damage is kept.
    let tar = std::fs::read(testdata_path("inputs/samples.tar")).unwrap();
    folder.write("cut.tar", &tar[..5000]);
    let ran = folder.run("convert cut.tar --on-error skip --out t --json");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(counts(&ran.summary())[2], 1);
}

#[test]
fn of_a_dataset_only_the_newest_version_is_read() {
    let folder = Folder::new();
    folder.copy("inputs/people.csv", "a.csv");
    folder.copy("inputs/people.csv", "b.csv");
    for name in ["a", "b"] {
        folder.run(&format!("convert {name}.csv --out made")).ok();
    }
    folder.run("compact made --min-inputs 2").ok();
    assert_eq!(folder.only_shards("made").len(), 3);
    let summary = folder.run("convert made --out again --json").ok().summary();
    assert_eq!((counts(&summary), summary["sources"].as_u64()), ([6, 6, 0], Some(1)));
}

#[test]
fn what_lies_beside_shards_is_no_input() {
    let folder = Folder::new();
    folder.copy("inputs/samples.tar", "samples.tar");
    folder.run(&format!("convert samples.tar --out made --index {}", support::TAR_INDEXES)).ok();
    let summary = folder.run("convert made --out again --json").ok().summary();
    assert_eq!(counts(&summary), [2, 2, 0]);
}

#[test]
fn a_header_in_another_encoding_is_no_columns_of_question_marks() {
    let folder = Folder::new();
    folder.write("cafes.csv", b"id,caf\xe9,caf\xea\n1,a,b\n");
    let refused = folder.run("convert cafes.csv --out shards");
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("expected a header in UTF-8, found the byte 0xE9"), "{refused:?}");
    assert!(refused.stderr.contains("--read encoding"), "{refused:?}");
    let converted = folder.run("convert cafes.csv --out shards --read encoding=windows-1252 --json").ok().stdout;
    assert!(converted.contains("caf\u{e9}") && converted.contains("caf\u{ea}"), "{converted}");
    // In the records, it is one bad record, which is not to be skipped.
    folder.write("late.csv", b"id,name\n1,a\n2,caf\xe9\n3,c\n");
    folder.write("late.jsonl", b"{\"id\":1}\n{\"id\":2,\"name\":\"caf\xe9\"}\n");
    for name in ["late.csv", "late.jsonl"] {
        let refused = folder.run(&format!("convert {name} --out refused"));
        assert!(
            refused.stderr.contains("--read encoding=windows-1252") && !refused.stderr.contains("skip"),
            "{refused:?}"
        );
    }
    let late = folder.run("convert late.csv --out late --on-error skip --json").summary();
    assert_eq!((late["records_out"].as_u64(), late["records_rejected"].as_u64()), (Some(2), Some(1)), "{late}");
}

/// A Parquet file with one column of text, whatever its bytes are.
fn parquet_of_text(values: &[&[u8]]) -> Vec<u8> {
    use parquet::{
        data_type::{ByteArray, ByteArrayType},
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::parser::parse_message_type,
    };
    let schema = parse_message_type("message m { required binary s (UTF8); required binary t (UTF8); }").unwrap();
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema.into(), properties.into()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(value.to_vec())).collect();
    let plain = vec![ByteArray::from("plain"); values.len()];
    for values in [plain, values] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn text_of_parquet_that_is_not_utf8_is_read_as_bytes_if_the_user_says_so() {
    let folder = Folder::new();
    folder.write("a.parquet", parquet_of_text(&[b"ok", b"caf\xe9"]));
    let ran = folder.run("convert a.parquet");
    assert_eq!(ran.code, 6);
    assert_snapshot!(folder.redact(&ran.stderr), @r"
    error: expected text in UTF-8, found other bytes
       at: [FOLDER]/a.parquet, column `t`
     hint: take the bytes as they are: --type 't=binary'
    ");
    folder.run("convert a.parquet --type t=binary --out o --to tar").ok();
    let found: Vec<_> = rows(&folder, "o").into_iter().map(|row| (row["s"].clone(), row["t"].clone())).collect();
    assert_eq!(found, [("plain".into(), "b2s=".into()), ("plain".into(), "Y2Fm6Q==".into())]);
}

/// The same file with its uncompressed columns called compressed, by the number of the codec.
fn called_compressed(mut bytes: Vec<u8>, column: char, codec: u8) -> Vec<u8> {
    // The codec of a column stands behind its path.
    let path = [0x18, 1, u8::try_from(column).unwrap(), 0x15, 0];
    let at = bytes.windows(5).rposition(|w| w == path).unwrap();
    bytes[at + 4] = codec << 1;
    bytes
}

#[test]
fn pages_of_a_codec_that_is_not_read_are_told_by_its_name() {
    let folder = Folder::new();
    folder.write("a.parquet", called_compressed(parquet_of_text(&[b"x"]), 't', 3));
    let ran = folder.run("convert a.parquet");
    assert_eq!(ran.code, 6);
    assert!(ran.stderr.contains("found pages compressed with lzo"), "{}", ran.stderr);
}

/// Rows of every kind of column, encoded with a codec and a version of data pages.
fn parquet_with(rows: std::ops::Range<i64>, codec: parquet::basic::Compression, version: i32) -> Vec<u8> {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
    use parquet::{
        arrow::ArrowWriter,
        file::properties::{WriterProperties, WriterVersion},
    };
    let lists = rows.clone().map(|i| (i % 4 > 0).then(|| (0..i % 4).map(Some).collect::<Vec<_>>()));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        (
            "text",
            Arc::new(StringArray::from_iter(rows.clone().map(|i| (i % 7 > 0).then(|| format!("text {}", i % 90))))),
        ),
        ("x", Arc::new(Float64Array::from_iter_values(rows.map(|i| i as f64 / 7.0)))),
        ("list", Arc::new(ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>(lists))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let version = if version == 2 { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_writer_version(version)
        .set_data_page_row_count_limit(500)
        .set_bloom_filter_enabled(true);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn brotli_pages_are_read_and_become_pages_of_another_codec() {
    use parquet::{
        basic::{BrotliLevel, Compression},
        file::reader::{FileReader as _, SerializedFileReader},
    };
    let brotli = Compression::BROTLI(BrotliLevel::try_new(5).unwrap());
    for version in [1, 2] {
        let folder = Folder::new();
        for (part, range) in [0..2000, 2000..3000, 3000..5000].into_iter().enumerate() {
            folder.write(&format!("in/{part}.parquet"), parquet_with(range.clone(), brotli, version));
            folder.write(&format!("plain/{part}.parquet"), parquet_with(range, Compression::UNCOMPRESSED, version));
        }
        folder.run("convert plain --to tar --out expected").ok();
        let expected = rows(&folder, "expected");
        assert_eq!(expected.len(), 5000);
        folder.run("convert in --to tar --out converted").ok();
        assert!(rows(&folder, "converted") == expected, "version {version}");
        // Merging takes pages, dictionaries and Bloom filters apart; adopting decodes all of them.
        folder.run("adopt in --out linked").ok();
        folder.run("verify linked --read-data").ok();
        folder.run("compact linked --min-inputs 2 --verify full").ok();
        folder.run("vacuum linked --retain 0s --force").ok();
        let shards = folder.only_shards("linked");
        let file = SerializedFileReader::new(bytes::Bytes::from(shards[0].1.clone())).unwrap();
        let chunks = file.metadata().row_groups().iter().flat_map(|group| group.columns());
        assert!(chunks.into_iter().all(|chunk| matches!(chunk.compression(), Compression::ZSTD(_))));
        folder.write("merged.parquet", &shards[0].1);
        folder.run("convert merged.parquet --to tar --out again").ok();
        assert!(shards.len() == 1 && rows(&folder, "again") == expected, "version {version}");
    }
}

/// A Parquet file of one value, whose page says that it inflates to a few hundred bytes, and inflates to `bytes`.
fn brotli_bomb(bytes: u64) -> Vec<u8> {
    use std::io::Read as _;

    use parquet::{
        data_type::{FixedLenByteArray, FixedLenByteArrayType},
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::parser::parse_message_type,
    };
    let mut page = Vec::new();
    let parameters = brotli::enc::BrotliEncoderParams { quality: 1, ..Default::default() };
    brotli::BrotliCompress(&mut std::io::repeat(0).take(bytes), &mut page, &parameters).unwrap();
    let schema = format!("message m {{ required fixed_len_byte_array({}) s; }}", page.len());
    let schema = parse_message_type(&schema).unwrap();
    let mut out = Vec::new();
    let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut writer = SerializedFileWriter::new(&mut out, schema.into(), properties.into()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<FixedLenByteArrayType>().write_batch(&[FixedLenByteArray::from(page)], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    called_compressed(out, 's', 4)
}

#[test]
fn a_page_of_brotli_that_inflates_to_more_than_it_says_is_refused_in_little_memory() {
    let folder = Folder::new();
    let bomb = brotli_bomb(640 << 20);
    assert!(bomb.len() < 4 << 20, "{}", bomb.len());
    folder.write("in/a.parquet", &bomb);
    // Half a gigabyte of addresses, where the page would take more than that.
    let run = |arguments: &str| {
        let shell = format!("ulimit -v 524288; exec {} {arguments} --memory 64MiB", env!("CARGO_BIN_EXE_shardify"));
        let ran = std::process::Command::new("sh").args(["-c", &shell]).current_dir(folder.path()).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    for command in ["convert in", "convert in --to tar --out t", "adopt in --out linked", "adopt in"] {
        let (code, told) = run(command);
        assert_eq!(code, Some(6), "{command}: {told}");
        assert!(told.contains("a.parquet, byte "), "{command}: {told}");
        assert!(told.contains("expected a page that inflates to"), "{command}: {told}");
    }
}

#[test]
fn delimited_text_may_begin_with_a_bracket_and_have_very_many_columns() {
    let folder = Folder::new();
    folder.write("a.csv", "[id],name\n1,x\n");
    folder.write("b.txt", "{id,name\n1,x\n");
    folder.write("b.json.csv", "[{\"a\":1,\"b\":2}]");
    let names: Vec<String> = (0..3000).map(|i| format!("{:0120}", i)).collect();
    let wide = format!("{}\n{}\n", names.join(","), vec!["1"; names.len()].join(","));
    assert!(wide.len() > 300_000);
    folder.write("wide.csv", &wide);
    folder.write("wide.txt", wide);
    for (source, first) in [
        ("a.csv", "[id]"),
        ("b.txt --from csv", "{id"),
        ("wide.csv", names[0].as_str()),
        ("wide.txt --from csv", names[0].as_str()),
    ] {
        let out = format!("{}.out", source.len());
        let summary = folder.run(&format!("convert {source} --out {out} --json")).ok().summary();
        assert_eq!((summary["columns"][0][0].as_str(), counts(&summary)), (Some(first), [1, 1, 0]), "{source}");
    }
    // A document is one, whatever its name says.
    assert_eq!(folder.run("convert b.json.csv --out j").code, 6);
}
