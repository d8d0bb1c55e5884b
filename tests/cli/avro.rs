//! Avro files as inputs: what is read of them, what is left out, and what is told of damage.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{Folder, testdata_path};

fn number(value: i64) -> Vec<u8> {
    let mut bits = ((value << 1) ^ (value >> 63)).cast_unsigned();
    let mut out = Vec::new();
    while bits >= 0x80 {
        out.push(u8::try_from(bits & 0x7f).unwrap() | 0x80);
        bits >>= 7;
    }
    out.push(u8::try_from(bits).unwrap());
    out
}

fn text(text: &str) -> Vec<u8> {
    [number(i64::try_from(text.len()).unwrap()), text.as_bytes().to_vec()].concat()
}

/// A file of blocks of rows with a number and a text.
fn file(blocks: &[&[(i64, &str)]]) -> Vec<u8> {
    let schema = r#"{"type":"record","name":"row","fields":[
        {"name":"id","type":"long"},{"name":"name","type":["null","string"]}]}"#;
    let sync = b"0123456789abcdef";
    let mut out = [b"Obj\x01", &number(1)[..], &text("avro.schema"), &text(schema), &[0], sync].concat();
    for rows in blocks {
        let data: Vec<u8> = rows.iter().flat_map(|(id, name)| [number(*id), vec![2], text(name)].concat()).collect();
        let head = [number(i64::try_from(rows.len()).unwrap()), number(i64::try_from(data.len()).unwrap())].concat();
        out.extend([head, data, sync.to_vec()].concat());
    }
    out
}

fn counts(summary: &Value) -> [u64; 3] {
    ["records_in", "records_out", "records_rejected"].map(|name| summary[name].as_u64().unwrap())
}

/// Rows of a tar of JSON members, in order.
fn rows(folder: &Folder, dataset: &str) -> Vec<String> {
    folder.members(dataset).into_values().map(|content| String::from_utf8(content).unwrap()).collect()
}

#[test]
fn every_output_has_the_same_rows() {
    let folder = Folder::new();
    folder.copy("inputs/people.avro", "people.avro");
    assert_snapshot!(folder.run("inspect people.avro").ok().stdout, @r"
    people.avro
      avro       1 file, 407 B, 3 records
    sizes
          256 B+           1 file  100 %     407 B
    columns in 3 sampled records
      id     text  unique
      name   text  33.3% null
      born   date  unique
      score  float64  33.3% null
    next
      shardify convert people.avro --id id
      makes shards of 128 MiB in ./shards; `id` is unique in all 3 records
    ");
    folder.run("convert people.avro --to tar --out tar --id id").ok();
    let expected = rows(&folder, "tar");
    assert_eq!(expected[1], r#"{"id":"P-2","name":"Bo, jr","born":"2001-02-03","score":null}"#);
    for format in ["parquet", "tfrecord"] {
        folder.run(&format!("convert people.avro --to {format} --out {format}")).ok();
        folder.run(&format!("convert {format} --to tar --out {format}-back")).ok();
        assert_eq!(rows(&folder, &format!("{format}-back")), expected, "{format}");
    }
    let found = folder.run("manifest tar --find P-2 --json").ok();
    assert!(found.stdout.contains(r#""origin":{"row":2,"source":"people.avro","#), "{}", found.stdout);
    let again = folder.run("convert people.avro --to tar --out tar --id id").ok();
    assert!(again.stdout.contains("nothing to do: 1 source already converted"), "{}", again.stdout);
    let head = folder.run("head people.avro --json").ok();
    assert_eq!(head.stdout.lines().count(), 4, "three records and a summary: {}", head.stdout);
    let dry = folder.run("convert people.avro --dry-run --json --out dry").ok().summary();
    assert_eq!(dry["estimate"]["records"].as_u64(), Some(3), "{dry}");
}

#[test]
fn streams_and_packed_files_are_read_from_front_to_back() {
    let folder = Folder::new();
    let bytes = std::fs::read(testdata_path("inputs/people.avro")).unwrap();
    let mut packed = Vec::new();
    let encoder = flate2::bufread::GzEncoder::new(&bytes[..], flate2::Compression::fast());
    std::io::copy(&mut { encoder }, &mut packed).unwrap();
    folder.write("people.avro.gz", &packed);
    let ran = folder.run("convert people.avro.gz --out gz --json").ok().summary();
    assert_eq!(counts(&ran), [3, 3, 0]);
    for (input, out) in [(&bytes, "plain"), (&packed, "packed")] {
        let ran = folder.run_input(&["convert", "-", "--from", "avro", "--out", out, "--json"], input);
        assert_eq!(counts(&ran.ok().summary()), [3, 3, 0], "{out}");
    }
}

#[test]
fn files_of_a_folder_are_united_by_name() {
    let folder = Folder::new();
    folder.write("in/a/x.avro", file(&[&[(1, "a")], &[(2, "b")]]));
    folder.write("in/b/x.avro", file(&[&[(1, "a")], &[(2, "b")]]));
    folder.copy("inputs/people.avro", "in/people.avro");
    folder.copy("inputs/people.csv", "in/people.csv");
    // The id is a number in two files and text in the others.
    let refused = folder.run("convert in --out d");
    assert_eq!(refused.code, 6, "{refused:?}");
    folder.run("convert in --exclude people.* --out same --to tar --jobs 8").ok();
    assert_eq!(rows(&folder, "same").len(), 4);
    let ran = folder.run("convert in --type id=text --columns id,born --out d --to tar --json").ok().summary();
    assert_eq!(counts(&ran), [10, 10, 0]);
    let found = rows(&folder, "d");
    assert!(found.contains(&r#"{"id":"P-3","born":"1980-01-01"}"#.to_owned()), "{found:?}");
    let ran = ["convert", "in/a", "--where", "id = 2", "--columns", "name", "--out", "w", "--to", "tar", "--json"];
    let ran = folder.run_with(&ran).ok().summary();
    assert_eq!((counts(&ran), rows(&folder, "w")), ([2, 1, 0], vec![r#"{"name":"b"}"#.to_owned()]));
    let later = folder.run("convert in/people.avro --out same");
    assert!(later.code == 6 && later.stderr.contains("this dataset has int64 here; the source has text"), "{later:?}");
}

#[test]
fn damage_is_an_error_or_rejects() {
    let folder = Folder::new();
    let good = file(&[&[(1, "a"), (2, "b")], &[(3, "c"), (4, "d")], &[(5, "e"), (6, "f")]]);
    let whole = file(&[&[(1, "a"), (2, "b")], &[(3, "c"), (4, "d")]]);
    let mut gap = good.clone();
    gap[whole.len() - 1] ^= 1;
    folder.write("gap.avro", &gap);
    let ran = folder.run("convert gap.avro --out d");
    assert_eq!(ran.code, 6);
    assert_snapshot!(folder.redact(&ran.stderr), @r"
    error: row 3: expected a block of 2 records and the sync marker 30313233343536373839616263646566, found 30313233343536373839616263646567, at byte 181; 26 bytes up to the next sync marker are no records
       at: [FOLDER]/gap.avro
     hint: skip bad records with --on-error skip, or keep them in a file with --on-error quarantine
    ");
    let ran = folder.run("convert gap.avro --out d --to tar --on-error quarantine --json");
    assert_eq!((ran.code, counts(&ran.summary())), (3, [5, 4, 1]), "{ran:?}");
    assert_eq!(rows(&folder, "d")[2], r#"{"id":5,"name":"e"}"#);
    let rejects =
        std::fs::read_to_string(folder.path().join("d").join(ran.summary()["rejects"].as_str().unwrap())).unwrap();
    let reject: Value = serde_json::from_str(&rejects).unwrap();
    assert_eq!(reject["row"].as_u64(), Some(3), "{rejects}");
    // A text that is none concerns its row alone.
    let place = good.windows(2).position(|two| two == [2, b'd']).unwrap() + 1;
    let mut bad = good.clone();
    bad[place] = 0xff;
    folder.write("bad.avro", &bad);
    let ran = folder.run("convert bad.avro --out t --to tar --on-error skip --json");
    assert_eq!((ran.code, counts(&ran.summary())), (3, [6, 5, 1]), "{ran:?}");
    let binary = folder.run("convert bad.avro --out binary --type name=binary --json").ok().summary();
    assert_eq!(counts(&binary), [6, 6, 0]);
    folder.write("cut.avro", &good[..good.len() - 5]);
    let ran = folder.run("convert cut.avro --out c");
    assert_eq!(ran.code, 6);
    assert!(ran.stderr.contains("cut.avro, byte 207"), "{}", ran.stderr);
    let ran = folder.run("convert cut.avro --out c --on-error skip --json");
    assert_eq!((ran.code, counts(&ran.summary())), (3, [5, 4, 1]), "{ran:?}");
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = Folder::new();
    folder.copy("bad/union.avro", "union.avro");
    folder.copy("avro/recursive.avro", "recursive.avro");
    folder.write("message.avro", [&[0xc3, 0x01][..], &[7; 20]].concat());
    folder.write("none.avro", file(&[]));
    folder.write("head.avro", &file(&[])[..50]);
    folder.copy("csv/types.csv", "table.avro");
    let ran = folder.run("convert union.avro --out d");
    assert_eq!(ran.code, 6);
    assert_snapshot!(folder.redact(&ran.stderr), @r"
    error: expected a type, or a union of one type and null, found a union of several types
       at: [FOLDER]/union.avro, column `data1`
     hint: write each of its types to a field of its own, which may be null
     hint: name the columns to convert with --columns, without this one
    ");
    let ran = folder.run("convert recursive.avro --out d");
    assert!(ran.code == 6 && ran.stderr.contains("the recursive type `LongList`"), "{ran:?}");
    let ran = folder.run("convert recursive.avro --columns value --out d --json").ok().summary();
    assert_eq!(counts(&ran), [2, 2, 0]);
    let ran = folder.run("convert message.avro --out e");
    assert!(ran.code == 6 && ran.stderr.contains("Avro's single-object encoding"), "{ran:?}");
    let ran = folder.run("convert head.avro --out e");
    assert!(ran.code == 6 && ran.stderr.contains("head.avro, byte 50"), "{ran:?}");
    let ran = folder.run("convert none.avro --out e").ok();
    assert!(ran.stderr.contains("the source has no records"), "{ran:?}");
    let ran = folder.run("convert table.avro --out f").ok();
    assert!(ran.stderr.contains("`table.avro` is named as Avro but contains csv"), "{ran:?}");
}

#[test]
fn parts_of_a_large_file_are_converted_by_tasks() {
    let folder = Folder::new();
    let name = "x".repeat(1000);
    let block: Vec<(i64, &str)> = (0..50).map(|id| (id, name.as_str())).collect();
    folder.write("large.avro", file(&[block.as_slice(); 60]));
    let report = folder.run("plan convert large.avro --out d --task-size 1MiB --memory 64MiB --json").ok().summary();
    let (plan, tasks) = (report["plan"].as_str().unwrap().to_owned(), report["tasks"].as_u64().unwrap());
    assert!(tasks > 1, "{report}");
    for task in 0..tasks {
        folder.run(&format!("run-task {plan} --task {task}")).ok();
    }
    let done = folder.run(&format!("commit {plan} --json")).ok().summary();
    assert_eq!(done["records_out"].as_u64(), Some(3000), "{done}");
    let last = folder.run("manifest d --find large.avro#3000 --json").ok();
    assert!(last.stdout.contains("large.avro#3000"), "{}", last.stdout);
}
