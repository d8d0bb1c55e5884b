//! Shards that we write, as read by a decoder written from the protobuf specification and by our scan.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, DictionaryArray, FixedSizeListArray, Float64Array, Int8Array,
        Int64Array, ListArray, RecordBatch, StringArray, StringViewArray, StructArray, TimestampMicrosecondArray,
        UInt64Array,
    },
    datatypes::{DataType, Field, Fields, Float32Type, Int32Type, Int64Type, Schema, UInt64Type},
};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    codec::{checksum::xxh3_64, decompress},
    error::Kind,
    format::corpus,
    record::{Part, Sample, json},
    schema,
};

#[derive(Debug, Clone, PartialEq)]
enum Feature {
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

fn text(value: &str) -> Feature {
    Feature::Bytes(vec![value.as_bytes().to_vec()])
}

/// Removes one varint from the front.
fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

/// Returns all fields of a message as number and content; every field here is length-delimited.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        assert_eq!(tag & 7, 2, "length-delimited");
        let length = usize::try_from(varint(&mut bytes)).unwrap();
        let (content, rest) = bytes.split_at(length);
        found.push((tag >> 3, content));
        bytes = rest;
    }
    found
}

fn decode(example: &[u8]) -> BTreeMap<String, Feature> {
    let mut found = BTreeMap::new();
    // Fields after the features are optional for readers.
    let parts = fields(example);
    assert!(parts[0].0 == 1 && parts[1..].iter().all(|(number, _)| *number == 1000));
    for (number, entry) in fields(parts[0].1) {
        assert_eq!(number, 1);
        let entry = fields(entry);
        assert_eq!((entry[0].0, entry[1].0, entry.len()), (1, 2, 2));
        let key = String::from_utf8(entry[0].1.to_vec()).unwrap();
        assert!(found.last_key_value().is_none_or(|(last, _)| *last < key), "sorted: {key}");
        let list = fields(entry[1].1);
        assert_eq!(list.len(), 1);
        let items = fields(list[0].1);
        assert!(items.iter().all(|(number, _)| *number == 1));
        let packed = || {
            assert!(items.len() <= 1, "packed");
            items.first().map_or(&[][..], |(_, content)| content)
        };
        let feature = match list[0].0 {
            1 => Feature::Bytes(items.iter().map(|(_, content)| content.to_vec()).collect()),
            2 => Feature::Floats(packed().chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()),
            3 => {
                let (mut rest, mut ints) = (packed(), Vec::new());
                while !rest.is_empty() {
                    ints.push(varint(&mut rest).cast_signed());
                }
                Feature::Ints(ints)
            }
            other => panic!("list {other}"),
        };
        found.insert(key, feature);
    }
    found
}

/// Returns the data of each record, with every length and checksum compared to a plain computation.
fn unframe(mut bytes: &[u8]) -> Vec<&[u8]> {
    let masked = |bytes: &[u8]| {
        let crc = bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        });
        let crc = !crc;
        crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at(12);
        assert_eq!(head[8..], masked(&head[..8]));
        let (data, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(head[..8].try_into().unwrap())).unwrap());
        let (foot, rest) = rest.split_at(4);
        assert_eq!(foot, masked(data));
        found.push(data);
        bytes = rest;
    }
    found
}

fn frame(payload: &Payload, keys: &[String]) -> Result<(Vec<u8>, Vec<u64>)> {
    let mut framed = Framed::default();
    TfRecordFraming.frame(Keyed::new(payload, keys), &mut framed)?;
    let Framed { bytes: out, lengths, .. } = framed;
    assert_eq!(lengths.iter().sum::<u64>(), out.len() as u64);
    assert_eq!(lengths.len(), payload.len());
    Ok((out, lengths))
}

fn rows(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn column(name: &str, array: impl arrow::array::Array + 'static) -> (Field, ArrayRef) {
    (Field::new(name, array.data_type().clone(), true), Arc::new(array))
}

fn decoded(batch: &RecordBatch) -> Vec<BTreeMap<String, Feature>> {
    let (bytes, _) = frame(&Payload::Rows(batch.clone()), &[]).unwrap();
    unframe(&bytes).into_iter().map(decode).collect()
}

fn scan(mut bytes: &[u8]) -> Result<Vec<Scanned>> {
    let mut found = Vec::new();
    TfRecordFraming.scan(&mut bytes, &mut |record| {
        found.push(record);
        Ok(())
    })?;
    Ok(found)
}

fn expected_scan(bytes: &[u8], lengths: &[u64]) -> Vec<Scanned> {
    let mut offset = 0;
    lengths
        .iter()
        .map(|&length| {
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
            let scanned = Scanned { offset, length, hash: xxh3_64(&bytes[range]) };
            offset += length;
            scanned
        })
        .collect()
}

fn sample(key: &str, parts: &[(&str, &[u8])]) -> Sample {
    let part = |(extension, bytes): &(&str, &[u8])| Part {
        extension: (*extension).to_owned(),
        bytes: Bytes::copy_from_slice(bytes),
    };
    Sample { key: key.to_owned(), origin: key.to_owned(), subject: None, parts: parts.iter().map(part).collect() }
}

#[test]
fn a_small_example_has_these_bytes() {
    let batch = rows(vec![
        column("n", Int64Array::from(vec![-1])),
        column("b", StringArray::from(vec!["hi"])),
        column("f", Float64Array::from(vec![1.5])),
    ]);
    let (bytes, lengths) = frame(&Payload::Rows(batch), &[]).unwrap();
    #[rustfmt::skip]
    let data = [
        0x0a, 51,
        0x0a, 11, 0x0a, 1, b'b', 0x12, 6, 0x0a, 4, 0x0a, 2, b'h', b'i',
        0x0a, 13, 0x0a, 1, b'f', 0x12, 8, 0x12, 6, 0x0a, 4, 0, 0, 0xc0, 0x3f,
        0x0a, 21 - 2, 0x0a, 1, b'n', 0x12, 14, 0x1a, 12, 0x0a, 10,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
    ];
    let mut data = data.to_vec();
    data[1] = u8::try_from(data.len() - 2).unwrap();
    assert_eq!(unframe(&bytes), [&data[..]]);
    assert_eq!(lengths, [data.len() as u64 + 16]);
}

#[test]
fn scalars_take_the_list_that_holds_them() {
    let stamps = TimestampMicrosecondArray::from(vec![Some(1_700_000_000_123_456), None]);
    let batch = rows(vec![
        column("bool", BooleanArray::from(vec![Some(true), None])),
        column("i8", Int8Array::from(vec![Some(-128), None])),
        column("i64", Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX)])),
        column("u64", UInt64Array::from(vec![Some(u64::MAX), None])),
        column("f64", Float64Array::from(vec![Some(0.1), Some(1e300)])),
        column("text", StringArray::from(vec![Some("ß"), Some("")])),
        column("raw", BinaryArray::from(vec![Some(&b"\xff\0"[..]), None])),
        column("day", Date32Array::from(vec![Some(19_000), None])),
        column("time", stamps.clone()),
        column("instant", stamps.clone().with_timezone("UTC")),
        column("view", StringViewArray::from(vec![Some("a view longer than twelve bytes"), None])),
        column("dict", "\"q\" r".split(' ').map(Some).collect::<DictionaryArray<Int32Type>>()),
        (schema::json_field("json"), Arc::new(StringArray::from(vec![Some("{\"a\":[1]}"), None]))),
        column("none", arrow::array::NullArray::new(2)),
    ]);
    let found = decoded(&batch);
    let text_of = |name: &str| text(&json::text_of(batch.column_by_name(name).unwrap().as_ref(), 0).unwrap());
    let expected: BTreeMap<String, Feature> = [
        ("bool", Feature::Ints(vec![1])),
        ("i8", Feature::Ints(vec![-128])),
        ("i64", Feature::Ints(vec![i64::MIN])),
        ("u64", text("18446744073709551615")),
        ("f64", Feature::Floats(vec![0.1])),
        ("text", text("ß")),
        ("raw", Feature::Bytes(vec![b"\xff\0".to_vec()])),
        ("day", text("2022-01-08")),
        ("time", text_of("time")),
        ("instant", text_of("instant")),
        ("view", text("a view longer than twelve bytes")),
        ("dict", text("\"q\"")),
        ("json", text("{\"a\":[1]}")),
    ]
    .map(|(name, feature)| (name.to_owned(), feature))
    .into();
    assert_eq!(found[0], expected);
    assert!(matches!(&found[0]["time"], Feature::Bytes(items) if items[0].starts_with(b"2023-11-14T22:13:20.123456")));
    assert_eq!(found[1].keys().collect::<Vec<_>>(), ["dict", "f64", "i64", "text"]);
    assert_eq!(found[1]["f64"], Feature::Floats(vec![f32::INFINITY]));
    assert_eq!(found[1]["text"], text(""));
}

#[test]
fn lists_take_the_list_of_their_items() {
    let ints = || {
        ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
            Some(vec![Some(1), Some(-2), Some(300)]),
            Some(vec![]),
            None,
            Some(vec![Some(5), None]),
            Some(vec![Some(7)]),
        ])
    };
    let decimals = ListArray::from_iter_primitive::<UInt64Type, _, _>(vec![Some(vec![Some(u64::MAX), Some(0)]); 5]);
    let vectors =
        FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![Some(0.5), Some(2.0)]); 5], 2);
    let words = StringArray::from(vec!["a", "", "c", "d", "e"]);
    let nested =
        StructArray::from(vec![(Arc::new(Field::new("w", DataType::Utf8, true)), Arc::new(words) as ArrayRef)]);
    let batch = rows(vec![
        column("ints", ints()),
        column("decimals", decimals),
        column("vectors", vectors),
        column("nested", nested),
    ]);
    let found = decoded(&batch);
    let ints_found: Vec<_> = found.iter().map(|row| row.get("ints").cloned()).collect();
    assert_eq!(
        ints_found,
        [
            Some(Feature::Ints(vec![1, -2, 300])),
            Some(Feature::Ints(vec![])),
            None,
            Some(text("[5,null]")),
            Some(Feature::Ints(vec![7]))
        ]
    );
    assert_eq!(found[4]["decimals"], Feature::Bytes(vec![u64::MAX.to_string().into_bytes(), b"0".to_vec()]));
    assert_eq!(found[2]["vectors"], Feature::Floats(vec![0.5, 2.0]));
    assert_eq!(found[0]["nested"], text("{\"w\":\"a\"}"));
    // Slices of a batch encode like the same rows of the whole.
    for start in 0..5 {
        for count in 0..=5 - start {
            assert_eq!(decoded(&batch.slice(start, count)), found[start..start + count]);
        }
    }
}

#[test]
fn rows_without_values_and_batches_without_rows_are_records() {
    let batch = rows(vec![column("a", Int64Array::from(vec![None, None]))]);
    assert_eq!(decoded(&batch), [BTreeMap::new(), BTreeMap::new()]);
    assert_eq!(decoded(&batch.slice(0, 0)), []);
}

#[test]
fn samples_have_their_key_and_a_feature_for_each_part() {
    let samples = vec![sample("a/b", &[("7z", b"zip"), ("cls", b"3"), ("jpg", &[0xff; 300])]), sample("c", &[])];
    let keys = ["a/b#1".to_owned(), "c".to_owned()];
    let (bytes, _) = frame(&Payload::Samples(samples.clone()), &keys).unwrap();
    let found: Vec<_> = unframe(&bytes).into_iter().map(decode).collect();
    assert_eq!(found[0]["__key__"], text("a/b#1"));
    assert_eq!(found[0]["jpg"], Feature::Bytes(vec![vec![0xff; 300]]));
    assert_eq!(found[0].keys().collect::<Vec<_>>(), ["7z", "__key__", "cls", "jpg"]);
    assert_eq!(found[1].len(), 1);
    assert_eq!(frame(&Payload::Samples(samples), &keys[..1]).unwrap_err().kind(), Kind::Internal);
}

#[test]
fn features_with_one_name_are_an_error_rather_than_a_loss() {
    let twice = vec![sample("k", &[("__key__", b"x")])];
    assert_eq!(frame(&Payload::Samples(twice), &["k".to_owned()]).unwrap_err().kind(), Kind::Input);
    let batch = rows(vec![column("a", Int64Array::from(vec![1])), column("a", Int64Array::from(vec![2]))]);
    let error = frame(&Payload::Rows(batch), &[]).unwrap_err();
    assert_eq!((error.kind(), error.place().column.as_deref()), (Kind::Input, Some("a")));
}

#[test]
fn records_that_readers_refuse_are_errors() {
    let error = frame_one(usize::try_from(MAX_DATA).unwrap() + 1, &mut Vec::new(), |_| {}).unwrap_err();
    assert_eq!(error.kind(), Kind::Input);
    assert_eq!(frame_one(3, &mut Vec::new(), |out| out.push(1)).unwrap_err().kind(), Kind::Internal);
}

fn small_shard() -> (Vec<u8>, Vec<u64>) {
    let samples = vec![sample("a", &[("x", b"12345")]), sample("b", &[("y", &[7; 40])]), sample("c", &[])];
    frame(&Payload::Samples(samples), &["a", "b", "c"].map(str::to_owned)).unwrap()
}

#[test]
fn flipped_bytes_and_truncation_are_detected() {
    let (bytes, lengths) = small_shard();
    assert_eq!(scan(&bytes).unwrap(), expected_scan(&bytes, &lengths));
    for at in 0..bytes.len() {
        for flip in 1..=255 {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let error = scan(&damaged).unwrap_err();
            assert_eq!(error.kind(), Kind::Integrity);
            assert!(error.place().byte.unwrap() <= at as u64);
        }
    }
    let ends: Vec<u64> = lengths
        .iter()
        .scan(0, |end, length| {
            *end += length;
            Some(*end)
        })
        .collect();
    for length in 1..bytes.len() {
        match scan(&bytes[..length]) {
            Ok(found) => assert_eq!(ends[found.len() - 1], length as u64),
            Err(error) => {
                assert_eq!(error.place().byte, Some(length as u64));
                assert_eq!(error.kind(), Kind::Integrity);
            }
        }
    }
    assert_eq!(scan(b"").unwrap(), []);
}

#[test]
fn a_false_length_takes_no_memory() {
    for (length, expected) in [(MAX_DATA, 16), (MAX_DATA + 1, 0), (u64::MAX, 0), (u64::MAX - 15, 0)] {
        let head = length.to_le_bytes();
        let bytes = [&head[..], &masked_crc32c(&head).to_le_bytes(), b"data"].concat();
        let error = scan(&bytes).unwrap_err();
        assert_eq!((error.kind(), error.place().byte), (Kind::Integrity, Some(expected)));
    }
}

#[test]
fn records_longer_than_the_buffer_are_scanned_in_pieces() {
    let big: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    let samples = vec![sample("a", &[("x", &big)]), sample("b", &[("x", &big[..262_144 - 60])]), sample("c", &[])];
    let (bytes, lengths) = frame(&Payload::Samples(samples), &["a", "b", "c"].map(str::to_owned)).unwrap();
    assert_eq!(scan(&bytes).unwrap(), expected_scan(&bytes, &lengths));
    let mut damaged = bytes;
    damaged[2_000_000] ^= 1;
    assert_eq!(scan(&damaged).unwrap_err().place().byte, Some(0));
}

/// Scans every file of a corpus of shards written by TensorFlow, if available.
#[test]
fn shards_of_tensorflow_are_scanned_and_counted() {
    let Some(corpus) = corpus::folder() else { return };
    let oracle = std::fs::read_to_string(corpus.join("ORACLE.tsv")).unwrap();
    for line in oracle.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [path, "tfrecord", "ok", "records", count, ..] = fields[..] else { continue };
        let bytes = std::fs::read(corpus.join(path)).unwrap();
        let compression = decompress::detect_compression(&bytes);
        let stored: Box<dyn std::io::Read + Send> = Box::new(std::io::Cursor::new(bytes));
        let mut input = match compression {
            Some(compression) => decompress::open_decoder(compression, stored).unwrap(),
            None => stored,
        };
        let mut found = 0_u64;
        TfRecordFraming
            .scan(&mut input, &mut |_| {
                found += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(found.to_string(), count, "{path}");
    }
}

proptest! {
    #[test]
    fn rows_are_decoded_as_they_were(
        values in prop::collection::vec(
            (any::<Option<i64>>(), any::<Option<f32>>(), any::<Option<String>>(), any::<Option<Vec<i64>>>()), 0..20),
        name in "\\PC{0,200}",
    ) {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(
            values.iter().map(|v| v.3.clone().map(|list| list.into_iter().map(Some).collect::<Vec<_>>())),
        );
        let batch = rows(vec![
            column("z int", values.iter().map(|v| v.0).collect::<Int64Array>()),
            column("float", values.iter().map(|v| v.1.map(f64::from)).collect::<Float64Array>()),
            column("é", lists),
            column(&format!("_{name}"), values.iter().map(|v| v.2.clone()).collect::<StringArray>()),
        ]);
        let (bytes, lengths) = frame(&Payload::Rows(batch.clone()), &[]).unwrap();
        prop_assert_eq!(scan(&bytes).unwrap(), expected_scan(&bytes, &lengths));
        for (row, found) in values.iter().zip(decoded(&batch)) {
            let expected: BTreeMap<String, Feature> = [
                ("z int".to_owned(), row.0.map(|v| Feature::Ints(vec![v]))),
                ("float".to_owned(), row.1.map(|v| Feature::Floats(vec![v]))),
                ("é".to_owned(), row.3.clone().map(Feature::Ints)),
                (format!("_{name}"), row.2.as_deref().map(text)),
            ].into_iter().filter_map(|(name, feature)| Some((name, feature?))).collect();
            // Compares the debug text, because NaN is not equal to itself.
            prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }
    }

    #[test]
    fn no_bytes_make_the_scan_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = scan(&bytes);
    }
}

#[test]
fn unused_fields_are_not_written() {
    let fields = Fields::from(vec![Field::new("a", DataType::Utf8, true)]);
    let nested = StructArray::new_null(fields, 2);
    assert_eq!(decoded(&rows(vec![column("s", nested)])), [BTreeMap::new(), BTreeMap::new()]);
}
