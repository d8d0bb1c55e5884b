//! Tests with files and streams of several writers, whole, truncated and damaged.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use arrow::{
    array::{ArrayRef, DictionaryArray, Int32Array, NullArray, RecordBatchOptions, StringArray, StringViewArray},
    compute::concat_batches,
    datatypes::{DataType, Field, Int32Type},
    ipc::{
        CompressionType,
        writer::{FileWriter, IpcWriteOptions, StreamWriter},
    },
};

use super::*;
use crate::{
    error::Kind,
    record::{Payload, json::RowJson},
};

fn batch() -> RecordBatch {
    let words = ["one", "two", "a text of more than twelve bytes"];
    let text = |i: usize| (!i.is_multiple_of(7)).then(|| words[i % 3]);
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int32Array::from_iter_values(0..1000))),
        ("word", Arc::new((0..1000).map(text).collect::<DictionaryArray<Int32Type>>())),
        ("view", Arc::new((0..1000).map(text).collect::<StringViewArray>())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn stream(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

fn file(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

/// Returns all rows and their hashes.
fn read(bytes: &[u8], range_bytes: usize) -> Result<(RecordBatch, Vec<u64>)> {
    let reader = match sniff(bytes) {
        Some(IpcForm::File) => IpcReader::open(RangedInput::Bytes(bytes.to_vec().into()), "test")?,
        _ => IpcReader::of_stream(),
    };
    let ranges: Vec<_> = reader.ranges(Box::new(bytes), range_bytes, 1 << 20).collect::<Result<_>>()?;
    let stands_for: u64 = ranges.iter().map(SourceRange::bytes_in).sum();
    assert!(ranges.is_empty() || stands_for == bytes.len() as u64, "{stands_for} of {}", bytes.len());
    let (mut batches, mut hashes, mut row) = (Vec::new(), Vec::new(), 0);
    for range in &ranges {
        assert_eq!(range.offset, row);
        let schema = schema::schema_of(&reader.infer(range));
        let Parsed::Block(block) = reader.parse(range, &schema)? else { panic!("a type mismatch") };
        let Payload::Rows(batch) = block.payload else { panic!("samples") };
        row += batch.num_rows() as u64;
        batches.push(batch);
        hashes.extend(block.hashes);
    }
    let schema = batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
    Ok((concat_batches(&schema, &batches).unwrap(), hashes))
}

fn rows(batch: &RecordBatch) -> Vec<u8> {
    let (json, mut out) = (RowJson::new(batch), Vec::new());
    (0..batch.num_rows()).for_each(|row| json.write_row(row, &mut out));
    out
}

#[test]
fn files_and_streams_hold_the_same_rows() {
    let both = [batch(), batch().slice(10, 5)];
    let (expected, hashes) = read(&stream(&both, None), 1 << 20).unwrap();
    assert_eq!(expected.num_rows(), 1005);
    assert_eq!(expected.column(1).data_type(), &DataType::Utf8);
    let joined = concat_batches(&both[0].schema(), &both).unwrap();
    assert_eq!(rows(&expected), rows(&joined));
    for bytes in
        [file(&both), stream(&both, Some(CompressionType::LZ4_FRAME)), stream(&both, Some(CompressionType::ZSTD))]
    {
        assert!(sniff(&bytes).is_some());
        for range_bytes in [1, 1000, 1 << 20] {
            let (found, hashes_found) = read(&bytes, range_bytes).unwrap();
            assert_eq!(found, expected);
            assert_eq!(hashes_found, hashes);
        }
    }
}

#[test]
fn truncated_input_is_an_error() {
    let bytes = file(&[batch().slice(0, 20)]);
    for length in MAGIC.len()..bytes.len() {
        let error = read(&bytes[..length], 1 << 20).unwrap_err();
        assert_eq!(error.kind(), Kind::Input, "{length}: {error}");
    }
    let bytes = stream(&[batch().slice(0, 20)], None);
    let accepted = (0..bytes.len()).filter(|&length| read(&bytes[..length], 1 << 20).is_ok()).count();
    // Between messages: after the schema, after the dictionary, after the batch.
    assert!(accepted <= 3, "{accepted}");
    let error = read(&[&bytes[..], b"x"].concat(), 1 << 20).unwrap_err();
    assert!(error.message().contains("nothing after the end mark"), "{error}");
}

#[test]
fn flipped_bits_never_change_the_count_unnoticed() {
    for bytes in [file(&[batch().slice(0, 20)]), stream(&[batch().slice(0, 20)], Some(CompressionType::ZSTD))] {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            if let Err(error) = read(&damaged, 1 << 20) {
                assert!(matches!(error.kind(), Kind::Input | Kind::Integrity), "byte {at}: {error}");
            }
        }
    }
}

#[test]
fn sizes_that_are_only_claimed_take_no_memory() {
    // A message that states 2 GiB but has no body.
    let claim = [&[0xff, 0xff, 0xff, 0xff][..], &i32::MAX.to_le_bytes()].concat();
    assert!(read(&claim, 1 << 20).unwrap_err().message().contains("at most"));
    let zeros = RecordBatch::try_from_iter([("z", Arc::new(Int32Array::from(vec![0; 1 << 20])) as ArrayRef)]).unwrap();
    let error = read(&stream(&[zeros], Some(CompressionType::ZSTD)), 1 << 20).unwrap_err();
    assert!(error.message().contains("at most 2097152 bytes, found one of 4194304"), "{error}");
    let nulls = RecordBatch::try_from_iter([("n", Arc::new(NullArray::new(1 << 40)) as ArrayRef)]).unwrap();
    assert!(read(&stream(&[nulls], None), 1 << 20).unwrap_err().message().contains("at most"));
}

#[test]
fn the_size_of_a_dictionary_of_long_texts_counts_each_use() {
    let text = "x".repeat(500_000);
    let word: DictionaryArray<Int32Type> = std::iter::repeat_n(Some(text.as_str()), 5000).collect();
    let bytes = stream(&[RecordBatch::try_from_iter([("w", Arc::new(word) as ArrayRef)]).unwrap()], None);
    let ranges: Vec<_> =
        IpcReader::of_stream().ranges(Box::new(&bytes[..]), 1 << 20, 1 << 20).map(Result::unwrap).collect();
    assert!(ranges.len() >= 2500, "{}", ranges.len());
}

#[test]
fn tables_without_rows_or_columns() {
    let empty = batch().slice(0, 0);
    assert_eq!(read(&file(&[empty]), 100).unwrap().0.num_rows(), 0);
    let options = RecordBatchOptions::new().with_row_count(Some(3));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    assert!(read(&stream(&[none], None), 100).unwrap_err().message().contains("expected columns"));
    let twice = Schema::new(vec![Field::new("a", DataType::Utf8, true), Field::new("a", DataType::Utf8, true)]);
    let columns = vec![Arc::new(StringArray::from(vec!["x"])) as ArrayRef, Arc::new(StringArray::from(vec!["y"]))];
    let twice = RecordBatch::try_new(Arc::new(twice), columns).unwrap();
    assert_eq!(rows(&read(&stream(&[twice], None), 100).unwrap().0), br#"{"a":"x","a_2":"y"}"#);
}

#[test]
fn only_arrow_is_arrow() {
    for head in
        [&b""[..], b"PAR1", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10\0\0\0abcdefghijklmnop", b"id,name\n1,2\n"]
    {
        assert_eq!(sniff(head), None, "{head:?}");
    }
}

fn hash_of(bytes: &[u8], end: StreamEnd) -> Result<u64> {
    let reader = match sniff(bytes) {
        Some(IpcForm::File) => IpcReader::open(RangedInput::Bytes(bytes.to_vec().into()), "test")?,
        _ => IpcReader::of_stream(),
    };
    Ok(reader.table_hash(Box::new(bytes), 1 << 20, end)?.get())
}

#[test]
fn the_hash_of_rows_is_that_of_any_batches_and_forms() {
    let whole = batch();
    let expected = hash_of(&stream(std::slice::from_ref(&whole), None), StreamEnd::Mark).unwrap();
    for rows in [1, 7, 333, 1000] {
        let pieces: Vec<RecordBatch> = (0..1000).step_by(rows).map(|at| whole.slice(at, rows.min(1000 - at))).collect();
        for bytes in [stream(&pieces, None), stream(&pieces, Some(CompressionType::ZSTD))] {
            assert_eq!(hash_of(&bytes, StreamEnd::Mark).unwrap(), expected, "{rows}");
        }
    }
    assert_eq!(hash_of(&file(&[whole.slice(0, 3), whole.slice(3, 997)]), StreamEnd::Mark).unwrap(), expected);
    // As plain texts.
    let plain = cast_to(&whole, &plain(whole.schema_ref()).unwrap()).unwrap();
    assert_eq!(hash_of(&stream(std::slice::from_ref(&plain), None), StreamEnd::Mark).unwrap(), expected);
    for other in [plain.slice(0, 999), plain.slice(1, 999), plain.project(&[0, 2, 1]).unwrap(), plain.slice(0, 0)] {
        assert_ne!(hash_of(&stream(&[other], None), StreamEnd::Mark).unwrap(), expected);
    }
    let none = plain.slice(0, 0);
    assert_eq!(
        hash_of(&stream(std::slice::from_ref(&none), None), StreamEnd::Mark).unwrap(),
        hash_of(&file(&[none.clone(), none]), StreamEnd::Mark).unwrap()
    );
}

#[test]
fn a_stream_that_is_cut_anywhere_has_no_end() {
    let bytes = stream(&[batch().slice(0, 20), batch().slice(20, 5)], None);
    let check = |bytes: &[u8]| IpcReader::of_stream().check_end(Box::new(bytes), 1 << 20);
    assert!(check(&bytes).is_ok() && hash_of(&bytes, StreamEnd::Mark).is_ok());
    let mut between = 0;
    for length in 0..bytes.len() {
        let cut = &bytes[..length];
        for error in [check(cut).unwrap_err(), hash_of(cut, StreamEnd::Mark).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Input, "{length}: {error}");
            between += u64::from(error.message().contains("the stream was cut"));
        }
        // The schema has to be there.
        if let Ok(hash) = hash_of(cut, StreamEnd::Any) {
            assert!(length < bytes.len() - 8 || hash == hash_of(&bytes, StreamEnd::Mark).unwrap(), "{length}");
        }
    }
    // After the schema, the dictionary and each of the batches, which have the same dictionary; of both ways to look.
    assert_eq!(between, 8);
    assert!(check(&[&bytes[..], b"x"].concat()).unwrap_err().message().contains("nothing after the end mark"));
    // Before Arrow 0.15, marks had no continuation.
    assert!(check(&[&bytes[..bytes.len() - 8], &[0; 4]].concat()).is_ok());
    assert!(
        IpcReader::of_stream().check_end(Box::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..]), 1).is_err()
    );
}

#[test]
fn a_schema_that_is_longer_than_the_head_is_recognised() {
    let column = || Arc::new(Int32Array::from(vec![1])) as ArrayRef;
    let wide = RecordBatch::try_from_iter((0..500).map(|number| (format!("column_{number}"), column()))).unwrap();
    let bytes = stream(&[wide], None);
    assert_eq!(sniff(&bytes[..4096]), Some(IpcForm::Stream));
    // The head of another message, and bytes that look like one.
    let second = 8 + usize::try_from(i32::from_le_bytes(*bytes[4..].first_chunk().unwrap())).unwrap();
    assert_eq!(sniff(&bytes[second..second + 64]), None);
    for at in 8..72 {
        let mut damaged = bytes[..4096].to_vec();
        damaged[at] ^= 0xff;
        let _ = sniff(&damaged);
    }
    for head in [&[0xff; 64][..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 4, 0, 0, 0], b"\xff\xff\xff\xffabcdefgh"]
    {
        assert_eq!(sniff(head), None, "{head:?}");
    }
}
