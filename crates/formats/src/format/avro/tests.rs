//! Tests with literal bytes of the specification, files of other writers, and files that are cut, damaged or hostile.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{fmt::Write as _, path::Path};

use arrow::datatypes::{DataType, Field, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::{
    error::Kind,
    format::part_checks::check_parts,
    record::{Reject, json::RowJson},
};

const SYNC: &[u8; 16] = b"0123456789abcdef";
const LARGE: usize = 1 << 24;

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

fn header(schema: &str, codec: &str) -> Vec<u8> {
    let entries = [text("avro.schema"), text(schema), text("avro.codec"), text(codec)].concat();
    [MAGIC.to_vec(), number(2), entries, vec![0], SYNC.to_vec()].concat()
}

fn block(records: i64, data: &[u8]) -> Vec<u8> {
    [number(records), number(i64::try_from(data.len()).unwrap()), data.to_vec(), SYNC.to_vec()].concat()
}

/// A file without compression of blocks with one record each.
fn file(schema: &str, records: &[&[u8]]) -> Vec<u8> {
    let blocks: Vec<u8> = records.iter().flat_map(|record| block(1, record)).collect();
    [header(schema, "null"), blocks].concat()
}

fn open(bytes: &[u8]) -> Result<AvroReader> {
    let mut input = bytes;
    let reader = AvroReader::open(&mut input)?.ok_or_else(|| AvroReader::cut_short(bytes.len() as u64))?;
    reader.with_columns(None, &[])
}

/// What was read of a file.
#[derive(Debug, Default, PartialEq)]
struct Read {
    rows: Vec<String>,
    /// The number of each row and its hash.
    numbers: Vec<(u64, u64)>,
    rejects: Vec<(u64, String)>,
    raw: Vec<u8>,
}

fn read_by(reader: &AvroReader, bytes: &[u8], range_bytes: usize) -> Result<Read> {
    let (mut found, mut records) = (Read::default(), 0);
    let mut offset = reader.header.bytes as u64;
    for range in reader.ranges(Box::new(bytes), range_bytes, LARGE) {
        let range = range?;
        assert_eq!(range.offset, offset);
        offset += range.bytes_in();
        let Parsed::Block(block) = reader.parse(&range, &types::schema_of(&reader.infer(&range)))? else {
            panic!("a type mismatch")
        };
        let Payload::Rows(batch) = &block.payload else { panic!("samples") };
        let json = RowJson::new(batch);
        for row in 0..batch.num_rows() {
            let mut out = Vec::new();
            json.write_row(row, &mut out);
            found.rows.push(String::from_utf8(out).unwrap());
            found.numbers.push((records + u64::from(block.rows[row]), block.hashes[row]));
        }
        for Reject { row, reason, raw, column, .. } in &block.rejects {
            let column = column.as_ref().map(|column| format!("{column}: ")).unwrap_or_default();
            found.rejects.push((records + u64::from(*row), format!("{column}{reason}")));
            found.raw.extend_from_slice(raw);
        }
        records += block.records_in();
    }
    assert_eq!(offset, bytes.len() as u64);
    Ok(found)
}

fn read(bytes: &[u8]) -> Result<Read> {
    read_by(&open(bytes)?, bytes, 1 << 20)
}

/// The rows of a file without faults.
fn rows(bytes: &[u8]) -> Vec<String> {
    let read = read(bytes).unwrap();
    assert_eq!(read.rejects.first(), None);
    read.rows
}

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"test","fields":[{fields}]}}"#)
}

/// A record with a field `a`.
fn of(data_type: &str) -> String {
    record(&format!(r#"{{"name":"a","type":{data_type}}}"#))
}

/// Reads one value of a field `a`.
fn value(data_type: &str, bytes: &[u8]) -> String {
    rows(&file(&of(data_type), &[bytes])).concat()
}

fn fault(data_type: &str, bytes: &[u8]) -> String {
    let read = read(&file(&of(data_type), &[bytes])).unwrap();
    assert_eq!((read.rows.len(), read.rejects.len()), (0, 1), "{read:?}");
    read.rejects[0].1.clone()
}

fn testdata(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)).unwrap()
}

#[test]
fn values_are_those_of_the_specification() {
    // The examples of the specification.
    for (number, byte) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (2, 4), (-64, 0x7f)] {
        assert_eq!(value(r#""int""#, &[byte]), format!(r#"{{"a":{number}}}"#));
    }
    assert_eq!(value(r#""long""#, &[0x80, 0x01]), r#"{"a":64}"#);
    assert_eq!(value(r#""string""#, b"\x06foo"), r#"{"a":"foo"}"#);
    let two = record(r#"{"name":"a","type":"long"},{"name":"b","type":"string"}"#);
    assert_eq!(rows(&file(&two, &[b"\x36\x06foo"])), [r#"{"a":27,"b":"foo"}"#]);
    assert_eq!(value(r#"{"type":"array","items":"long"}"#, &[4, 6, 0x36, 0]), r#"{"a":[3,27]}"#);
    // The same items with their bytes.
    assert_eq!(value(r#"{"type":"array","items":"long"}"#, &[3, 4, 6, 0x36, 0]), r#"{"a":[3,27]}"#);
    assert_eq!(value(r#"["null","string"]"#, &[0]), r#"{"a":null}"#);
    assert_eq!(value(r#"["null","string"]"#, b"\x02\x02a"), r#"{"a":"a"}"#);
    assert_eq!(value(r#"["string","null"]"#, b"\x00\x02a"), r#"{"a":"a"}"#);
    assert_eq!(value(r#"["long"]"#, &[0, 2]), r#"{"a":1}"#);
    assert_eq!(value(r#"{"type":"enum","name":"Foo","symbols":["A","B","C","D"]}"#, &[6]), r#"{"a":"D"}"#);
    assert_eq!(
        value(r#"{"type":"map","values":"int"}"#, b"\x02\x02k\x0a\x01\x06\x02l\x01\x00"),
        r#"{"a":[{"key":"k","value":5},{"key":"l","value":-1}]}"#
    );
    assert_eq!(value(r#""boolean""#, &[1]), r#"{"a":true}"#);
    assert_eq!(value(r#""float""#, &1.5_f32.to_le_bytes()), r#"{"a":1.5}"#);
    assert_eq!(value(r#""double""#, &0.1_f64.to_le_bytes()), r#"{"a":0.1}"#);
    assert_eq!(value(r#""null""#, &[]), r#"{"a":null}"#);
    let (least, most) = (number(i64::MIN), number(i64::MAX));
    assert_eq!(value(r#""long""#, &least), format!(r#"{{"a":{}}}"#, i64::MIN));
    assert_eq!(value(r#""long""#, &most), format!(r#"{{"a":{}}}"#, i64::MAX));
}

#[test]
fn logical_types_have_their_meaning() {
    for (data_type, expected) in [
        (r#"{"type":"int","logicalType":"date"}"#, DataType::Date32),
        (r#"{"type":"int","logicalType":"time-millis"}"#, DataType::Time32(TimeUnit::Millisecond)),
        (r#"{"type":"long","logicalType":"time-micros"}"#, DataType::Time64(TimeUnit::Microsecond)),
        (
            r#"{"type":"long","logicalType":"timestamp-millis"}"#,
            DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
        ),
        (
            r#"{"type":"long","logicalType":"timestamp-nanos"}"#,
            DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        ),
        (r#"{"type":"long","logicalType":"local-timestamp-micros"}"#, DataType::Timestamp(TimeUnit::Microsecond, None)),
        (r#"{"type":"bytes","logicalType":"decimal","precision":38,"scale":2}"#, DataType::Decimal128(38, 2)),
        (r#"{"type":"bytes","logicalType":"decimal","precision":39}"#, DataType::Decimal256(39, 0)),
        (r#"{"type":"fixed","name":"f","size":16,"logicalType":"uuid"}"#, DataType::FixedSizeBinary(16)),
        (r#"{"type":"fixed","name":"f","size":12,"logicalType":"duration"}"#, DataType::FixedSizeBinary(12)),
        // Logical types that the specification says to ignore.
        (r#"{"type":"bytes","logicalType":"decimal","precision":2,"scale":3}"#, DataType::Binary),
        (r#"{"type":"bytes","logicalType":"decimal","scale":3}"#, DataType::Binary),
        (
            r#"{"type":"fixed","name":"f","size":4,"logicalType":"decimal","precision":10}"#,
            DataType::FixedSizeBinary(4),
        ),
        (r#"{"type":"long","logicalType":"date"}"#, DataType::Int64),
        (r#"{"type":"string","logicalType":"varchar","maxLength":3}"#, DataType::Utf8),
    ] {
        let reader = open(&header(&of(data_type), "null")).unwrap();
        assert_eq!(reader.fields[0].data_type(), &expected, "{data_type}");
    }
    let decimal = r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}"#;
    for (bytes, number) in [(&[2, 1][..], "0.01"), (&[2, 0xff], "-0.01"), (&[0], "0.00"), (&[4, 0x27, 0x0f], "99.99")] {
        assert_eq!(value(decimal, bytes), format!(r#"{{"a":"{number}"}}"#));
    }
    let long = [&[40][..], &[0xff; 18], &[0xd8, 0xf1]].concat();
    assert_eq!(value(decimal, &long), r#"{"a":"-99.99"}"#, "bytes that repeat the sign");
    assert!(fault(decimal, &[4, 0x27, 0x10]).contains("at most 4 digits"));
    let uuid = r#"{"type":"string","logicalType":"uuid"}"#;
    let shown = "123E4567-e89b-12d3-a456-426614174000";
    assert_eq!(value(uuid, &text(shown)), format!(r#"{{"a":"{shown}"}}"#), "as it is written");
    let big = open(&header(&of(r#"{"type":"bytes","logicalType":"big-decimal"}"#), "null")).unwrap();
    assert!(big.facts.remarks[0].contains("`a` has the logical type big-decimal"));
}

#[test]
fn names_are_resolved_by_namespace() {
    let schema = r#"{"type":"record","name":"one","namespace":"n","aliases":["old"],"fields":[
        {"name":"a","type":{"type":"fixed","name":"two","size":1}},
        {"name":"b","type":"two"},
        {"name":"c","type":{"type":"record","name":"m.three","fields":[
            {"name":"d","type":{"type":"enum","name":"two","symbols":["x"]}},
            {"name":"e","type":"two"},
            {"name":"f","type":"n.two"}]}},
        {"name":"g","type":"m.two"}]}"#;
    let row = rows(&file(schema, &[&[65, 66, 0, 0, 67, 0]])).concat();
    assert_eq!(row, r#"{"a":"QQ==","b":"Qg==","c":{"d":"x","e":"x","f":"Qw=="},"g":"x"}"#);
    let message = |schema: &str| open(&header(schema, "null")).unwrap_err().to_string();
    assert!(message(&of(r#""old""#)).contains("the unknown name `old`"));
    assert!(message(&of(r#"{"type":"fixed","name":"test","size":1}"#)).contains("found two"));
    assert!(message("{").contains("as JSON"));
    assert!(message(r#"{"name":"a"}"#).contains("found one without"));
    assert!(message(&of(r#"{"type":"fixed","name":"f","size":-1}"#)).contains("a size of 0"));
}

#[test]
fn types_that_no_column_has_are_named_and_can_be_left_out() {
    let schema = record(
        r#"{"name":"a","type":"int"},{"name":"b","type":["null","int",{"type":"array","items":"string"}]},
           {"name":"c","type":["null","test"]}"#,
    );
    // 1, ["x"], a record with 2 and null; and 3, 4, null.
    let first: &[u8] = b"\x02\x04\x02\x02x\x00\x02\x04\x00\x00";
    let bytes = file(&schema, &[first, &[6, 2, 8, 0]]);
    let error = open(&bytes).unwrap_err();
    assert_eq!((error.place().column.as_deref(), error.hints().len()), (Some("b"), 2), "{error}");
    let only = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        AvroReader::open(&mut &bytes[..]).unwrap().unwrap().with_columns(Some(&names), &[])
    };
    assert!(only(&["c"]).unwrap_err().message().contains("the recursive type `test`"));
    let read = read_by(&only(&["a"]).unwrap(), &bytes, 1).unwrap();
    assert_eq!(read.rows, [r#"{"a":1}"#, r#"{"a":3}"#]);
    let nested =
        of(r#"{"type":"record","name":"r","fields":[{"name":"x","type":{"type":"map","values":["int","string"]}}]}"#);
    assert_eq!(open(&header(&nested, "null")).unwrap_err().place().column.as_deref(), Some("a.x{}"));
    assert_eq!(rows(&testdata("avro/weather-snappy.avro")).len(), 5);
}

#[test]
fn columns_that_are_not_taken_are_skipped() {
    let bytes = testdata("avro/nullable.impala.avro");
    let all = read(&bytes).unwrap();
    let names = open(&bytes).unwrap().facts.columns.clone().unwrap();
    for name in names {
        let one = AvroReader::open(&mut &bytes[..])
            .unwrap()
            .unwrap()
            .with_columns(Some(std::slice::from_ref(&name)), &[])
            .unwrap();
        let one = read_by(&one, &bytes, 1 << 20).unwrap();
        assert_eq!(one.numbers.len(), all.numbers.len());
        let column = |row: &String| serde_json::from_str::<serde_json::Value>(row).unwrap()[&name].clone();
        assert_eq!(one.rows.iter().map(column).collect::<Vec<_>>(), all.rows.iter().map(column).collect::<Vec<_>>());
    }
}

#[test]
fn values_alone_are_a_column() {
    let bytes = file(r#""int""#, &[&[2], &[4]]);
    assert_eq!(rows(&bytes), [r#"{"value":1}"#, r#"{"value":2}"#]);
    assert_eq!(rows(&file("int", &[&[2]])), [r#"{"value":1}"#]);
    let record = record(r#"{"name":"a","type":"int"}"#);
    assert_eq!(
        rows(&file(&format!(r#"["null",{record}]"#), &[&[0], &[2, 2]])),
        [r#"{"value":null}"#, r#"{"value":{"a":1}}"#]
    );
}

#[test]
fn every_codec_gives_the_same_rows() {
    let names = ["alltypes_plain.bzip2", "alltypes_plain.snappy", "alltypes_plain.xz", "alltypes_plain.zstandard"];
    let read: Vec<Vec<String>> = names.iter().map(|name| rows(&testdata(&format!("avro/{name}.avro")))).collect();
    assert!(read.iter().all(|rows| *rows == read[0] && rows.len() == 8), "{read:?}");
    assert!(read[0][0].starts_with(r#"{"id":4,"bool_col":true,"tinyint_col":0"#), "{}", read[0][0]);
    assert!(rows(&testdata("avro/test-deflate-6-B.avro")).len() > 100);
    assert_eq!(rows(&testdata("inputs/people.avro")).len(), 3);
    let error = open(&header(r#""int""#, "lzo")).unwrap_err();
    assert!(error.message().contains("the codec `lzo`"), "{error}");
}

#[test]
fn values_that_cannot_be_reject_their_record_alone() {
    let schema = record(
        r#"{"name":"t","type":"string"},{"name":"e","type":["null",{"type":"enum","name":"e","symbols":["x"]}]},
           {"name":"m","type":{"type":"map","values":"boolean"}}"#,
    );
    let records: [&[u8]; 6] = [
        b"\x02a\x00\x00",
        b"\x02\xff\x00\x00",
        b"\x02b\x02\x04\x00",
        b"\x02c\x02\x00\x02\x02\xc3\x01\x00",
        b"\x02d\x00\x02\x02k\x07\x00",
        b"\x02e\x02\x00\x02\x02k\x01\x00",
    ];
    let bytes = [header(&schema, "null"), block(6, &records.concat())].concat();
    let found = read(&bytes).unwrap();
    assert_eq!(found.rows, [r#"{"t":"a","e":null,"m":[]}"#, r#"{"t":"e","e":"x","m":[{"key":"k","value":true}]}"#]);
    assert_eq!(found.numbers.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 5]);
    let expected = [
        (1, r"t: expected text in UTF-8, found `\xff`".to_owned()),
        (2, "e: expected one of 1 symbols, found number 2".to_owned()),
        (3, r"m: expected text in UTF-8, found `\xc3`".to_owned()),
        (4, "m: expected a boolean of 0 or 1, found 7".to_owned()),
    ];
    assert_eq!(found.rejects, expected);
    assert_eq!(found.raw, records[1..5].concat());
    let binary =
        AvroReader::open(&mut &bytes[..]).unwrap().unwrap().with_columns(Some(&["t".to_owned()]), &["t".to_owned()]);
    assert_eq!(read_by(&binary.unwrap(), &bytes, 1).unwrap().rows.len(), 6, "bytes need not be UTF-8");
    assert!(fault(r#""int""#, &number(1 << 31)).contains("32 bits, found 2147483648"));
}

#[test]
fn damage_rejects_all_records_of_its_block() {
    let good = block(2, b"\x02a\x02b");
    for (records, data, reason) in [
        (2, &b"\x02a\x06b"[..], "expected 3 bytes, found 1 before the end of the block, at byte "),
        (2, b"\x02a\x01b", "expected a length, found -1, at byte "),
        (2, b"\x02a\x02bc", "expected the end of the block after its records, found 1 bytes more, at byte "),
        (3, b"\x02a\x02b", "expected a number, found the end of the block, at byte "),
        (1, &[0xff; 11], "expected a number of at most 64 bits, found a longer one, at byte "),
    ] {
        let bad = block(records, data);
        let bytes = [header(&of(r#""string""#), "null"), good.clone(), bad.clone(), good.clone()].concat();
        let found = read(&bytes).unwrap();
        let count = u64::try_from(records).unwrap();
        assert_eq!(found.rows.len(), 4, "{found:?}");
        assert_eq!(found.numbers.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 1, 2 + count, 3 + count]);
        assert_eq!(found.rejects.len() as u64, count);
        assert!(found.rejects.iter().all(|(_, why)| why.contains(reason)), "{found:?}");
        assert_eq!(found.raw, bad);
        check(&bytes);
    }
    // The file ends with a line feed, which is no block.
    let branch = testdata("bad/bad_branch.avro");
    let branch = read(&branch[..branch.len() - 1]).unwrap();
    assert_eq!(branch.rejects[0], (0, "value: expected a branch of a union below 2, found 2, at byte 87".to_owned()));
}

#[test]
fn the_next_marker_is_sought_behind_a_gap() {
    let block_of = |name: &str| block(2, &[text(name), text("y")].concat());
    let blocks = [block_of("one"), block_of("two"), block_of("three")];
    let start = header(&of(r#""string""#), "null");
    let whole = [start.clone(), blocks.concat()].concat();
    assert_eq!(rows(&whole).len(), 6);
    let second = start.len() + blocks[0].len();
    // Any bit of the numbers and the marker of a block.
    let places = (second..second + 2).chain(second + blocks[1].len() - 16..second + blocks[1].len());
    for (at, bit) in places.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        let found = read(&bytes).unwrap();
        let good = found.rows.iter().filter(|row| row.contains("one") || row.contains("three")).count();
        assert_eq!(
            (found.rows.len(), good, found.raw.len()),
            (4, 2, blocks[1].len()),
            "byte {at}, bit {bit}: {found:?}"
        );
        check(&bytes);
    }
    // The last one, which nothing follows.
    let mut bytes = whole.clone();
    *bytes.last_mut().unwrap() ^= 1;
    let found = read(&bytes).unwrap();
    assert_eq!((found.rows.len(), found.rejects.len()), (4, 1));
    let reason = &found.rejects[0].1;
    assert!(reason.starts_with("expected a block of 2 records and the sync marker 30313233"), "{reason}");
}

#[test]
fn a_file_that_is_cut_ends_in_an_error() {
    for bytes in [testdata("avro/alltypes_plain.snappy.avro"), testdata("avro/simple_enum.avro")] {
        let whole = read(&bytes).unwrap().rows;
        let head = open(&bytes).unwrap().header.bytes;
        for length in MAGIC.len()..bytes.len() {
            let cut = &bytes[..length];
            if length == head {
                assert_eq!(read(cut).unwrap(), Read::default(), "a file without blocks");
                continue;
            }
            let error = read(cut).unwrap_err();
            assert_eq!(error.kind(), Kind::Input);
            assert!(error.place().byte.is_some(), "{length}: {error}");
        }
        assert!(!whole.is_empty());
    }
}

#[test]
fn flipped_bits_are_rejects_errors_or_other_values() {
    for name in ["avro/alltypes_plain.snappy.avro", "avro/alltypes_plain.xz.avro", "avro/nested_records.avro"] {
        let bytes = testdata(name);
        let checked = name.contains("snappy") || name.contains("xz");
        let (whole, head) = (read(&bytes).unwrap(), open(&bytes).unwrap().header.bytes);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            match read(&damaged) {
                Err(error) => assert_eq!(error.kind(), Kind::Input, "{name} {at}: {error}"),
                Ok(found) if checked && at >= head => {
                    assert!(
                        found.rows.is_empty() && !found.rejects.is_empty() || found == whole,
                        "{name} {at}: {found:?}"
                    );
                }
                Ok(_) => {}
            }
        }
    }
}

#[test]
fn stated_sizes_take_no_memory() {
    let long = of(r#""long""#);
    for (records, size, reason) in [
        (i64::MAX, 4, "expected at most 4 records in a block of 4 bytes"),
        (-2, 4, "expected the number of records of a block, found -2"),
        (1, i64::MAX, "expected a block of at most 16777216 bytes, found one of 9223372036854775807"),
        (1, 1 << 32, "expected a block of at most 16777216 bytes, found one of 4294967296"),
        (1, -1, "expected the size of a block, found -1"),
    ] {
        let bytes = [header(&long, "null"), number(records), number(size), vec![2; 4]].concat();
        let error = read(&bytes).unwrap_err();
        assert!(error.message().contains(reason), "{error}");
    }
    // Arrays and texts that state more than there is.
    for data_type in [r#"{"type":"array","items":"long"}"#, r#""string""#, r#"{"type":"map","values":"null"}"#] {
        for count in [1 << 32, i64::MAX] {
            assert!(fault(data_type, &[number(count), vec![0; 9]].concat()).contains("expected"));
        }
    }
    // Header: an entry, or the number of entries.
    for bytes in [[number(1), number(1 << 40)].concat(), [number(1), number(-3)].concat(), vec![0xff; 10]] {
        let error = open(&[MAGIC, &bytes].concat()).unwrap_err();
        assert!(error.message().contains("header"), "{error}");
    }
}

#[test]
fn records_and_items_without_bytes_are_few() {
    for schema in [
        of(r#""null""#),
        of(r#"{"type":"record","name":"e","fields":[]}"#),
        of(r#"{"type":"fixed","name":"f","size":0}"#),
    ] {
        let of_count = |records| [header(&schema, "null"), block(records, b""), block(2, b"")].concat();
        assert_eq!(rows(&of_count(1000)).len(), 1002);
        let found = read(&of_count(1 << 40)).unwrap();
        assert_eq!((found.rows.len(), found.rejects.len()), (2, 1));
        assert!(found.rejects[0].1.contains("expected at most 65536 records"), "{found:?}");
    }
    let nulls = of(r#"{"type":"array","items":"null"}"#);
    let many = [number(1 << 40), vec![0]].concat();
    let found = read(&[header(&nulls, "null"), block(1, &many), block(1, &[4, 0])].concat()).unwrap();
    assert_eq!((found.rows.len(), found.rejects.len()), (1, 1));
    // As many as may be, again and again.
    let some = [number(1 << 16), vec![0]].concat().repeat(10);
    let found = read(&[header(&nulls, "null"), block(10, &some), block(1, &[4, 0])].concat()).unwrap();
    assert_eq!((found.rows.len(), found.rejects.len()), (1, 10), "room for values ends");
    let wide = of(r#"["null",{"type":"fixed","name":"f","size":200000000}]"#);
    assert!(
        read(&[header(&wide, "null"), block(3, &[0; 3])].concat()).unwrap().rejects[0].1.contains("raise --memory")
    );
    let none = open(&[header(&record(""), "null"), block(3, b"")].concat()).unwrap();
    let bytes = [header(&record(""), "null"), block(3, b"")].concat();
    assert!(read_by(&none, &bytes, 1).unwrap_err().message().contains("expected columns"));
}

#[test]
fn bombs_are_rejects() {
    let zeros = vec![0; 40 << 20];
    let data = [number(40 << 20), zeros].concat();
    let mut deflated = Vec::new();
    std::io::copy(&mut flate2::read::DeflateEncoder::new(&data[..], flate2::Compression::best()), &mut deflated)
        .unwrap();
    let mut snappy = snap::raw::Encoder::new().compress_vec(&data).unwrap();
    snappy.extend_from_slice(&crc32fast::hash(&data).to_be_bytes());
    for (codec, packed) in
        [("deflate", deflated), ("zstandard", zstd::bulk::compress(&data, 3).unwrap()), ("snappy", snappy)]
    {
        let bytes = [header(&of(r#""bytes""#), codec), block(1, &packed)].concat();
        let found = read(&bytes).unwrap();
        assert!(found.rejects[0].1.contains("at most 16777216 bytes"), "{codec}: {:?}", found.rejects);
    }
    // A size that snappy data only state.
    let claim = [&[0xff, 0xff, 0xff, 0x07][..], &[0; 9]].concat();
    let found = read(&[header(&of(r#""bytes""#), "snappy"), block(1, &claim)].concat()).unwrap();
    assert!(found.rejects[0].1.contains("damaged"), "{found:?}");
}

#[test]
fn schemas_that_grow_are_bounded() {
    let level = |number: usize, of: &str| {
        let of = if number == 0 { r#""int""#.to_owned() } else { of.to_owned() };
        format!(
            r#"{{"type":"record","name":"r{number}","fields":[{{"name":"a","type":{of}}},{{"name":"b","type":{}}}]}}"#,
            if number == 0 { r#""int""#.to_owned() } else { format!("\"r{}\"", number - 1) }
        )
    };
    let twice = (0..28).fold(String::new(), |of, number| level(number, &of));
    let error = open(&header(&twice, "null")).unwrap_err();
    assert!(error.message().contains("at most 100000 types"), "{error}");
    let deep = (0..70).fold("\"int\"".to_owned(), |of, _| format!(r#"{{"type":"array","items":{of}}}"#));
    assert!(open(&header(&deep, "null")).is_err());
}

/// Checks that parts and ranges of all sizes give the same records.
fn check(bytes: &[u8]) {
    let (reader, whole) = (open(bytes).unwrap(), read(bytes).unwrap());
    for range_bytes in [1, 40, 200, 1 << 20] {
        assert_eq!(read_by(&reader, bytes, range_bytes).unwrap(), whole);
        for part_bytes in [1, 100, 1000] {
            check_parts(&reader, bytes, range_bytes, LARGE, part_bytes);
        }
    }
}

#[test]
fn parts_and_ranges_are_the_whole() {
    for name in [
        "avro/test-deflate-6-B.avro",
        "avro/alltypes_plain.snappy.avro",
        "avro/nullable.impala.avro",
        "inputs/people.avro",
    ] {
        check(&testdata(name));
    }
}

#[test]
fn only_avro_is_avro() {
    assert!(sniff(b"Obj\x01rest") && !sniff(b"Obj\x02") && !sniff(b"Objects,b\n") && !sniff(b""));
    assert!(is_single_object(&[0xc3, 0x01, 0]) && !is_single_object(b"abc"));
}

/// A type and a value of it, as the bytes of Avro and as JSON.
#[derive(Debug, Clone)]
enum Shape {
    Long,
    Text,
    Flag,
    Maybe(Box<Self>),
    Array(Box<Self>),
    Map(Box<Self>),
    Record(Vec<Self>),
}

impl Shape {
    fn schema(&self, names: &mut usize) -> String {
        match self {
            Self::Long => r#""long""#.to_owned(),
            Self::Text => r#""string""#.to_owned(),
            Self::Flag => r#""boolean""#.to_owned(),
            Self::Maybe(of) => format!(r#"["null",{}]"#, of.schema(names)),
            Self::Array(of) => format!(r#"{{"type":"array","items":{}}}"#, of.schema(names)),
            Self::Map(of) => format!(r#"{{"type":"map","values":{}}}"#, of.schema(names)),
            Self::Record(parts) => {
                *names += 1;
                let mut out = format!(r#"{{"type":"record","name":"r{names}","fields":["#);
                for (at, part) in parts.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    let _ = write!(out, r#"{comma}{{"name":"f{at}","type":{}}}"#, part.schema(names));
                }
                out + "]}"
            }
        }
    }

    /// Writes a value that `seed` decides; returns it as JSON.
    fn write(&self, seed: &mut u64, out: &mut Vec<u8>) -> serde_json::Value {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dice = *seed >> 33;
        let count = i64::try_from(dice % 4).unwrap();
        match self {
            Self::Long => {
                let value = seed.cast_signed() >> (dice % 64);
                out.extend(number(value));
                value.into()
            }
            Self::Text => {
                let value = "aß語🙂".repeat(usize::try_from(dice % 3).unwrap());
                out.extend(text(&value));
                value.into()
            }
            Self::Flag => {
                out.push(u8::from(dice % 2 == 1));
                (dice % 2 == 1).into()
            }
            Self::Maybe(of) => {
                out.push(if dice.is_multiple_of(3) { 0 } else { 2 });
                if dice.is_multiple_of(3) { serde_json::Value::Null } else { of.write(seed, out) }
            }
            Self::Array(of) => {
                let mut items = Vec::new();
                let values: Vec<_> = (0..count).map(|_| of.write(seed, &mut items)).collect();
                if count > 0 {
                    let stated = dice % 8 > 3;
                    out.extend(number(if stated { -count } else { count }));
                    out.extend(if stated { number(i64::try_from(items.len()).unwrap()) } else { Vec::new() });
                }
                out.extend(items);
                out.push(0);
                values.into()
            }
            Self::Map(of) => {
                let mut values = Vec::new();
                for key in 0..count {
                    out.extend(number(1));
                    out.extend(text(&format!("k{key}")));
                    values.push(serde_json::json!({"key": format!("k{key}"), "value": of.write(seed, out)}));
                }
                out.push(0);
                values.into()
            }
            Self::Record(parts) => {
                let values = parts.iter().enumerate().map(|(at, part)| (format!("f{at}"), part.write(seed, out)));
                serde_json::Value::Object(values.collect())
            }
        }
    }
}

fn any_kind() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![Just(Shape::Long), Just(Shape::Text), Just(Shape::Flag)];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_filter("no union in a union", |kind| !matches!(kind, Shape::Maybe(_)))
                .prop_map(|kind| Shape::Maybe(Box::new(kind))),
            inner.clone().prop_map(|kind| Shape::Array(Box::new(kind))),
            inner.clone().prop_map(|kind| Shape::Map(Box::new(kind))),
            prop::collection::vec(inner, 1..4).prop_map(Shape::Record),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_values_are_read_as_they_were_written(
        columns in prop::collection::vec(any_kind(), 1..5),
        mut seed in any::<u64>(),
        blocks in prop::collection::vec(0..20_i64, 1..5),
        range_bytes in prop_oneof![Just(1_usize), 10..300_usize],
        damaged in any::<prop::sample::Index>(),
    ) {
        let root = Shape::Record(columns);
        let mut bytes = header(&root.schema(&mut 0), "null");
        let mut expected = Vec::new();
        for records in blocks {
            let mut data = Vec::new();
            expected.extend((0..records).map(|_| root.write(&mut seed, &mut data)));
            bytes.extend(block(records, &data));
        }
        let reader = open(&bytes).unwrap();
        let found = read_by(&reader, &bytes, range_bytes).unwrap();
        prop_assert_eq!(&found.rejects, &[]);
        let parsed: Vec<serde_json::Value> = found.rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
        prop_assert_eq!(parsed, expected);
        check_parts(&reader, &bytes, range_bytes, LARGE, 50);
        let at = damaged.index(bytes.len());
        bytes[at] ^= 0x11;
        if let Err(error) = read(&bytes) {
            prop_assert_eq!(error.kind(), Kind::Input);
        }
    }
}

#[test]
fn fields_are_those_of_the_file() {
    let reader = open(&testdata("avro/timestamp_logical_types.avro")).unwrap();
    let names: Vec<&str> = reader.fields.iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names[..2], ["id", "ts_millis"]);
    assert!(reader.fields.iter().all(|field| field.is_nullable()));
    assert_eq!(reader.fields[0].as_ref(), &Field::new("id", DataType::Int32, true));
    let decimals = rows(&testdata("avro/int256_decimal.avro"));
    assert!(!decimals.is_empty() && rows(&testdata("avro/int64_decimal.avro")).len() > 1);
}
