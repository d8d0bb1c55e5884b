//! Records that we write round-trip; records of other writers are read, or refused with a reason.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array,
        Decimal128Array, DictionaryArray, FixedSizeBinaryBuilder, FixedSizeListArray, Float32Array, Float64Array,
        Int8Array, Int16Array, Int32Array, Int64Array, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray,
        RecordBatch, StringArray, StringViewArray, StructArray, Time64NanosecondArray, TimestampMicrosecondArray,
        TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt8Array, UInt16Array,
        UInt32Array, UInt64Array,
    },
    buffer::OffsetBuffer,
    compute::cast,
    datatypes::{
        DataType, Field, Fields, Float32Type, Float64Type, Int32Type, Int64Type, Schema, SchemaRef, UInt64Type,
    },
};
use proptest::prelude::*;

use super::*;
use crate::{
    codec::decompress,
    error::Kind,
    format::{Framed, Keyed, Parsed, RecordReader, corpus},
    record::{Part, Payload, RecordBlock, Sample, SourceRange},
    schema,
};

const LARGE: usize = 1 << 24;

fn framed(batch: &RecordBatch) -> Vec<u8> {
    let mut out = Framed::default();
    let payload = Payload::Rows(batch.clone());
    TfRecordFraming.frame(Keyed::new(&payload, &[]), &mut out).unwrap();
    out.bytes
}

/// Returns frames of data that need not be an Example.
fn frames(records: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        frame_one(record.len(), &mut out, |out| out.extend_from_slice(record)).unwrap();
    }
    out
}

fn ranges(bytes: &[u8], range_bytes: usize) -> Result<Vec<SourceRange>> {
    TfRecordReader::new(None).ranges(Box::new(bytes), range_bytes, LARGE).collect()
}

fn parse(range: &SourceRange, schema: &SchemaRef) -> RecordBlock {
    match TfRecordReader::new(None).parse(range, schema).unwrap() {
        Parsed::Block(block) => block,
        Parsed::Mismatch(mismatch) => panic!("{mismatch:?}"),
    }
}

fn rows_of(block: &RecordBlock) -> &RecordBatch {
    let Payload::Rows(batch) = &block.payload else { panic!("samples") };
    batch
}

/// Returns types inferred over ranges, and the blocks parsed with them.
fn read(bytes: &[u8], range_bytes: usize) -> (SchemaRef, Vec<RecordBlock>) {
    let ranges = ranges(bytes, range_bytes).unwrap();
    let reader = TfRecordReader::new(None);
    let fields = ranges.iter().fold(Fields::empty(), |all, range| schema::unite_lists(&all, &reader.infer(range)));
    let schema = schema::schema_of(&fields);
    let blocks = ranges.iter().map(|range| parse(range, &schema)).collect();
    (schema, blocks)
}

fn read_back(batch: &RecordBatch, range_bytes: usize) -> RecordBatch {
    let bytes = framed(batch);
    let reader = TfRecordReader::new(Some(batch.schema().fields().clone()));
    let mut found = Vec::new();
    for range in reader.ranges(Box::new(&bytes[..]), range_bytes, LARGE) {
        let range = range.unwrap();
        assert_eq!(&reader.infer(&range), batch.schema().fields());
        match reader.parse(&range, &batch.schema()).unwrap() {
            Parsed::Block(block) => found.push(rows_of(&block).clone()),
            Parsed::Mismatch(mismatch) => panic!("{mismatch:?}"),
        }
    }
    arrow::compute::concat_batches(&batch.schema(), &found).unwrap()
}

/// Values from which columns of every type are made.
#[derive(Debug, Clone)]
struct Seeds {
    ints: Vec<Option<i64>>,
    unsigned: Vec<Option<u64>>,
    doubles: Vec<Option<f64>>,
    texts: Vec<Option<String>>,
    bytes: Vec<Option<Vec<u8>>>,
    double_lists: Vec<Option<Vec<Option<f64>>>>,
    int_lists: Vec<Option<Vec<Option<i64>>>>,
    text_lists: Vec<Option<Vec<Option<String>>>>,
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        // Payloads of NaN are not preserved.
        prop::num::f64::ANY.prop_map(|value| if value.is_nan() { f64::NAN } else { value }),
        (any::<i16>(), 0..5).prop_map(|(digits, places)| f64::from(digits) / 10_f64.powi(places)),
        any::<f32>().prop_map(f64::from),
        Just(-0.0),
        Just(f64::INFINITY),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,8}",
        "[a-z]{0,3}",
        Just("[null]".to_owned()),
        Just("[\"a\",null]".to_owned()),
        Just("null".to_owned())
    ]
}

fn lists<T: std::fmt::Debug + Clone>(
    item: impl Strategy<Value = T> + Clone + 'static,
    rows: usize,
) -> impl Strategy<Value = Vec<Option<Vec<Option<T>>>>> {
    let full = prop::collection::vec(item.clone().prop_map(Some), 0..4);
    let list = prop_oneof![full, prop::collection::vec(prop::option::of(item), 0..4)];
    prop::collection::vec(prop::option::of(list), rows)
}

fn seeds() -> impl Strategy<Value = Seeds> {
    (1_usize..8).prop_flat_map(|rows| {
        (
            prop::collection::vec(any::<Option<i64>>(), rows),
            prop::collection::vec(any::<Option<u64>>(), rows),
            prop::collection::vec(prop::option::of(double()), rows),
            prop::collection::vec(prop::option::of(text()), rows),
            prop::collection::vec(any::<Option<Vec<u8>>>(), rows),
            lists(double().boxed(), rows),
            lists(any::<i64>(), rows),
            lists(text().boxed(), rows),
        )
            .prop_map(|(ints, unsigned, doubles, texts, bytes, double_lists, int_lists, text_lists)| Seeds {
                ints,
                unsigned,
                doubles,
                texts,
                bytes,
                double_lists,
                int_lists,
                text_lists,
            })
    })
}

/// Returns lists whose items are made from texts.
fn list_of(
    lists: &[Option<Vec<Option<String>>>],
    item: &Field,
    make: impl Fn(Vec<Option<String>>) -> ArrayRef,
) -> ArrayRef {
    let lengths = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
    let nulls = lists.iter().map(Option::is_some).collect();
    let items = make(lists.iter().flatten().flatten().cloned().collect());
    Arc::new(
        ListArray::try_new(Arc::new(item.clone()), OffsetBuffer::from_lengths(lengths), items, Some(nulls)).unwrap(),
    )
}

fn scalars(seeds: &Seeds) -> Vec<(Field, ArrayRef)> {
    #![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "any value will do")]
    let ints = &seeds.ints;
    macro_rules! from_ints {
        ($array:ty, $make:expr) => {
            Arc::new(ints.iter().map(|v| v.map($make)).collect::<$array>()) as ArrayRef
        };
    }
    let texts = || seeds.texts.iter().cloned();
    let bytes: Vec<Option<&[u8]>> = seeds.bytes.iter().map(Option::as_deref).collect();
    let mut fixed = FixedSizeBinaryBuilder::new(3);
    for value in ints {
        match value {
            Some(value) => fixed.append_value(&value.to_le_bytes()[..3]).unwrap(),
            None => fixed.append_null(),
        }
    }
    let decimals = from_ints!(Decimal128Array, i128::from);
    let decimals = decimals.as_primitive::<arrow::datatypes::Decimal128Type>().clone();
    let words: DictionaryArray<Int32Type> = seeds.texts.iter().map(Option::as_deref).collect();
    let documents = texts().map(|text| text.map(|text| serde_json::to_string(&text).unwrap())).collect::<StringArray>();
    const DAY: i64 = 86_400_000_000_000;
    let plain: Vec<(&str, ArrayRef)> = vec![
        ("bool", from_ints!(BooleanArray, |v| v % 2 == 0)),
        ("i8", from_ints!(Int8Array, |v| v as i8)),
        ("i16", from_ints!(Int16Array, |v| v as i16)),
        ("i32", from_ints!(Int32Array, |v| v as i32)),
        ("i64", from_ints!(Int64Array, |v| v)),
        ("u8", from_ints!(UInt8Array, |v| v as u8)),
        ("u16", from_ints!(UInt16Array, |v| v as u16)),
        ("u32", from_ints!(UInt32Array, |v| v as u32)),
        ("u64", Arc::new(seeds.unsigned.iter().copied().collect::<UInt64Array>())),
        (
            "f16",
            cast(&Float32Array::from_iter(ints.iter().map(|v| v.map(|v| f32::from(v as i8)))), &DataType::Float16)
                .unwrap(),
        ),
        ("f32", Arc::new(seeds.doubles.iter().map(|v| v.map(double::narrow_double)).collect::<Float32Array>())),
        ("f64", Arc::new(seeds.doubles.iter().copied().collect::<Float64Array>())),
        ("text", Arc::new(texts().collect::<StringArray>())),
        ("large text", Arc::new(texts().collect::<LargeStringArray>())),
        ("view", Arc::new(texts().collect::<StringViewArray>())),
        ("words", Arc::new(words)),
        ("raw", Arc::new(bytes.iter().copied().collect::<BinaryArray>())),
        ("large raw", Arc::new(bytes.iter().copied().collect::<LargeBinaryArray>())),
        ("raw view", Arc::new(bytes.iter().copied().collect::<BinaryViewArray>())),
        ("fixed", Arc::new(fixed.finish())),
        ("day", from_ints!(Date32Array, |v| v as i32)),
        ("day 64", from_ints!(Date64Array, |v| i64::from(v as i16) * 86_400_000)),
        ("clock", from_ints!(Time64NanosecondArray, |v: i64| v.rem_euclid(DAY))),
        ("s", from_ints!(TimestampSecondArray, |v| v)),
        ("ms", from_ints!(TimestampMillisecondArray, |v| v)),
        ("us", from_ints!(TimestampMicrosecondArray, |v| v)),
        ("ns", from_ints!(TimestampNanosecondArray, |v| v)),
        ("instant", Arc::new(ints.iter().copied().collect::<TimestampMicrosecondArray>().with_timezone("UTC"))),
        ("decimal", Arc::new(decimals.clone().with_precision_and_scale(38, 10).unwrap())),
        ("whole", Arc::new(decimals.with_precision_and_scale(38, 0).unwrap())),
        ("nothing", Arc::new(arrow::array::NullArray::new(ints.len()))),
    ];
    let mut columns: Vec<(Field, ArrayRef)> =
        plain.into_iter().map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array)).collect();
    columns.push((schema::json_field("json"), Arc::new(documents)));
    columns
}

fn nested(seeds: &Seeds) -> Vec<(Field, ArrayRef)> {
    let doubles = || ListArray::from_iter_primitive::<Float64Type, _, _>(seeds.double_lists.clone());
    let ints = || ListArray::from_iter_primitive::<Int64Type, _, _>(seeds.int_lists.clone());
    let unsigned = seeds.int_lists.iter().map(|l| l.clone().map(|l| l.into_iter().map(|v| v.map(i64::cast_unsigned))));
    let pairs = seeds.double_lists.iter().map(|list| {
        let mut pair = list.clone()?;
        pair.resize(2, None);
        Some(pair.into_iter().map(|v| v.map(double::narrow_double)).collect::<Vec<_>>())
    });
    let item = |data_type: DataType| Field::new_list_field(data_type, true);
    let texts = |texts: Vec<Option<String>>| Arc::new(StringArray::from(texts)) as ArrayRef;
    let raw = |texts: Vec<Option<String>>| {
        Arc::new(BinaryArray::from_iter(texts.into_iter().map(|t| t.map(String::into_bytes)))) as ArrayRef
    };
    let times = |texts: Vec<Option<String>>| {
        let value = |text: Option<String>| text.map(|text| i64::try_from(text.len()).unwrap() * 86_399_999_999);
        Arc::new(texts.into_iter().map(value).collect::<TimestampMicrosecondArray>()) as ArrayRef
    };
    let documents = |texts: Vec<Option<String>>| {
        let quoted = texts.into_iter().map(|text| text.map(|text| serde_json::to_string(&text).unwrap()));
        Arc::new(quoted.collect::<StringArray>()) as ArrayRef
    };
    let document = schema::json_field("item");
    let point = list_of(&seeds.text_lists, &item(DataType::Utf8), texts);
    let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let mut fields = scalars(seeds);
    fields.retain(|(field, _)| field.data_type() != &DataType::Null);
    fields.push((Field::new("doubles", doubles().data_type().clone(), true), Arc::new(doubles())));
    fields.push((Field::new("texts", point.data_type().clone(), true), Arc::clone(&point)));
    let (fields, arrays): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let nulls = seeds.ints.iter().map(Option::is_some).collect();
    let whole: ArrayRef = Arc::new(StructArray::try_new(fields.into(), arrays, Some(nulls)).unwrap());
    let each_one = || OffsetBuffer::from_lengths(vec![1; whole.len()]);
    let structs = ListArray::new(Arc::new(item(whole.data_type().clone())), each_one(), Arc::clone(&whole), None);
    let lists = ListArray::new(Arc::new(item(doubles().data_type().clone())), each_one(), Arc::new(doubles()), None);
    let large = cast(&lists, &DataType::LargeList(Arc::new(item(doubles().data_type().clone())))).unwrap();
    let arrays: Vec<(&str, ArrayRef)> = vec![
        ("doubles", Arc::new(doubles())),
        ("ints", Arc::new(ints())),
        ("large list", Arc::new(LargeListArray::from_iter_primitive::<UInt64Type, _, _>(unsigned))),
        ("pairs", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(pairs, 2))),
        ("texts", point),
        ("raw", list_of(&seeds.text_lists, &item(DataType::Binary), raw)),
        ("times", list_of(&seeds.text_lists, &item(time), times)),
        ("documents", list_of(&seeds.text_lists, &document, documents)),
        ("struct", Arc::clone(&whole)),
        ("structs", Arc::new(structs)),
        ("lists", Arc::new(lists)),
        ("large lists", large),
    ];
    arrays.into_iter().map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array)).collect()
}

fn batch(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn assert_same(found: &RecordBatch, expected: &RecordBatch) {
    for (field, (found, expected)) in found.schema().fields().iter().zip(found.columns().iter().zip(expected.columns()))
    {
        assert_eq!(found, expected, "{field}");
    }
    assert_eq!(found, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn scalars_round_trip(seeds in seeds(), range_bytes in 1_usize..4000) {
        let batch = batch(scalars(&seeds));
        assert_same(&read_back(&batch, range_bytes), &batch);
    }

    #[test]
    fn lists_and_structs_round_trip(seeds in seeds()) {
        let batch = batch(nested(&seeds));
        assert_same(&read_back(&batch, LARGE), &batch);
    }

    /// Without a schema, doubles are doubles if a float would lose some.
    #[test]
    fn doubles_round_trip_without_a_schema(values in prop::collection::vec(double(), 1..20)) {
        let values = Float64Array::from([&values[..], &[1.0 / 3.0]].concat());
        let batch = batch(vec![(Field::new("a", DataType::Float64, true), Arc::new(values))]);
        let (schema, blocks) = read(&framed(&batch), LARGE);
        prop_assert_eq!(schema.field(0).data_type(), &DataType::Float64);
        assert_same(rows_of(&blocks[0]), &batch);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        seeds in seeds(),
    ) {
        let batch = batch(nested(&seeds));
        let mut record = framed(&batch.slice(0, 1))[HEAD..].to_vec();
        record.truncate(record.len() - FOOT);
        for (at, byte) in flips {
            let at = at.index(record.len());
            record[at] = byte;
        }
        let _ = ranges(&bytes, 100);
        let range = &ranges(&frames(&[&bytes, &record]), LARGE).unwrap()[0];
        let fields = TfRecordReader::new(None).infer(range);
        for schema in [schema::schema_of(&fields), batch.schema()] {
            if let Parsed::Block(block) = TfRecordReader::new(None).parse(range, &schema).unwrap() {
                prop_assert_eq!(block.records_in(), 2);
            }
        }
    }
}

/// Returns a length-delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// Returns an entry of the features of an Example.
fn entry(name: &str, feature: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, feature)].concat())
}

fn example(entries: &[Vec<u8>]) -> Vec<u8> {
    field(1, &entries.concat())
}

#[test]
fn whatever_protobuf_allows_is_read() {
    let unknown = [0xf8, 0x01, 5, 0xfd, 0x01, 1, 2, 3, 4, 0xf9, 0x01, 1, 2, 3, 4, 5, 6, 7, 8];
    let value_first = field(1, &[field(2, &field(1, &field(1, b"ab"))), field(1, b"text")].concat());
    let unpacked = [&field(1, &[7])[..], &[8, 1, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]].concat();
    let floats = [&[0x0d][..], &1.5_f32.to_le_bytes()].concat();
    let records = [
        [&unknown[..], &example(&[entry("ints", &field(3, &unpacked)), value_first, unknown.to_vec()])].concat(),
        [example(&[entry("float", &field(2, &floats))]), example(&[entry("none", b"")])].concat(),
        vec![],
    ];
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    let (schema, blocks) = read(&frames(&records), LARGE);
    let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["float", "ints", "none", "text"]);
    let rows = rows_of(&blocks[0]);
    assert_eq!(blocks[0].rejects, []);
    let ints = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(7), Some(1), Some(-1)]), None, None]);
    assert_eq!(rows["ints"].as_ref(), &ints as &dyn Array);
    assert_eq!(rows["float"].as_ref(), &Float32Array::from(vec![None, Some(1.5), None]) as &dyn Array);
    assert_eq!(rows["text"].as_ref(), &StringArray::from(vec![Some("ab"), None, None]) as &dyn Array);
    assert_eq!(rows["none"].null_count(), 3);
}

#[test]
fn invalid_examples_are_rejected_with_the_reason() {
    let good = example(&[entry("a", &field(3, &field(1, &[5])))]);
    let sequence = [example(&[]), field(2, b"")].concat();
    let twice = example(&[entry("a", b""), entry("a", b"")]);
    let name = field(1, &field(1, &field(1, b"\xff")));
    let records: [(&[u8], &str); 7] = [
        (&sequence, "SequenceExample"),
        (&twice, "`a` twice"),
        (&name, "UTF-8"),
        (b"just a line of text", "tf.train.Example"),
        (&field(3, b"other"), "field 3"),
        (&good[..good.len() - 1], "cut short"),
        (&[0x0a, 2, 0x0a, 0xff], "cut short"),
    ];
    for (record, reason) in records {
        let bytes = frames(&[&good, record, &good]);
        let (_, blocks) = read(&bytes, LARGE);
        let block = &blocks[0];
        assert_eq!((block.rows.as_slice(), block.rejects.len()), (&[0, 2][..], 1));
        let reject = &block.rejects[0];
        assert!(reject.reason.contains(reason), "{reason}: {}", reject.reason);
        assert_eq!((reject.row, reject.byte, &reject.raw[..]), (1, good.len() as u64 + 16, record));
    }
    let mut damaged = frames(&[&good, &good]);
    damaged[HEAD + 1] ^= 1;
    let block = parse(&ranges(&damaged, LARGE).unwrap()[0], &read(&frames(&[&good]), LARGE).0);
    assert_eq!((block.rows.as_slice(), block.rejects[0].row), (&[1][..], 0));
    assert!(block.rejects[0].reason.contains("checksum"));
}

#[test]
fn files_are_cut_between_records_and_damage_is_an_error_with_its_byte() {
    let good = example(&[entry("a", &field(3, &field(1, &[5])))]);
    let bytes = frames(&[&good, &good, &good]);
    let length = bytes.len() / 3;
    for (range_bytes, count) in [(1, 3), (length, 3), (2 * length, 2), (LARGE, 1)] {
        let ranges = ranges(&bytes, range_bytes).unwrap();
        assert_eq!((ranges.len(), ranges.last().unwrap().offset % length as u64), (count, 0));
        assert_eq!(ranges.iter().map(SourceRange::bytes_in).sum::<u64>(), bytes.len() as u64);
    }
    for cut in 1..bytes.len() {
        if cut % length != 0 {
            let error = ranges(&bytes[..cut], 1).unwrap_err();
            assert_eq!((error.kind(), error.place().byte), (Kind::Input, Some(cut as u64)));
        }
    }
    let mut damaged = bytes.clone();
    damaged[length] ^= 1;
    let reader = TfRecordReader::new(None);
    let mut cut = reader.ranges(Box::new(&damaged[..]), 1, LARGE);
    assert_eq!(cut.next().unwrap().unwrap().bytes_in(), length as u64);
    assert_eq!(cut.next().unwrap().unwrap_err().place().byte, Some(length as u64));
    assert!(cut.next().is_none());
    let error = reader.ranges(Box::new(&bytes[..]), 1, good.len() - 1).next().unwrap().unwrap_err();
    assert!(error.message().contains("at most"));
    // Lengths with a valid checksum but no data.
    let huge = |length: u64| [&length.to_le_bytes()[..], &masked_crc32c(&length.to_le_bytes()).to_le_bytes()].concat();
    for length in [1000, LARGE as u64, u64::MAX] {
        assert_eq!(ranges(&huge(length), 1).unwrap_err().kind(), Kind::Input);
    }
    assert!(sniff(&bytes) && sniff(&bytes[..HEAD]) && !sniff(&bytes[..HEAD - 1]) && !sniff(&bytes[1..]));
    assert_eq!(ranges(b"", 1).unwrap().len(), 0);
}

#[test]
fn kinds_unite_over_ranges_and_values_that_do_not_fit_are_named() {
    let one = example(&[entry("a", &field(3, &field(1, &[5]))), entry("b", &field(1, &field(1, b"t")))]);
    let two = example(&[entry("a", &field(3, &field(1, &[5, 6]))), entry("b", &field(1, &field(1, b"\xff")))]);
    let bytes = frames(&[&one, &two]);
    let (schema, blocks) = read(&bytes, 1);
    assert_eq!(schema.field(0).data_type(), &DataType::new_list(DataType::Int64, true));
    assert_eq!(schema.field(1).data_type(), &DataType::Binary);
    assert_eq!((blocks.len(), blocks[0].payload.len()), (2, 1));
    let narrow = read(&frames(&[&one]), 1).0;
    let range = &ranges(&bytes, LARGE).unwrap()[0];
    let Parsed::Mismatch(mismatch) = TfRecordReader::new(None).parse(range, &narrow).unwrap() else {
        panic!("a block")
    };
    assert_eq!(
        (mismatch.column.as_str(), mismatch.byte, mismatch.expected.as_str()),
        ("a", one.len() as u64 + 16, "Int64")
    );
    assert_eq!(mismatch.value, "[5, 6]");
    // A number that does not fit is found when the column is finished.
    let small = Arc::new(Schema::new(vec![Field::new("a", DataType::Int8, true)]));
    let large = example(&[entry("a", &field(3, &field(1, &[0xff, 0x7f])))]);
    let range = &ranges(&frames(&[&example(&[]), &large]), LARGE).unwrap()[0];
    let Parsed::Mismatch(mismatch) = TfRecordReader::new(None).parse(range, &small).unwrap() else { panic!("a block") };
    assert_eq!((mismatch.column.as_str(), mismatch.byte), ("a", 18));
}

/// Reads every file of a corpus of shards written by TensorFlow, if available.
#[test]
fn corpus_agrees_with_the_oracle() {
    let Some(corpus) = corpus::folder() else { return };
    let oracle = std::fs::read_to_string(corpus.join("ORACLE.tsv")).unwrap();
    for line in oracle.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [path, "tfrecord", "ok", "records", count, ..] = fields[..] else { continue };
        let mut bytes = std::fs::read(corpus.join(path)).unwrap();
        if let Some(codec) = decompress::detect_compression(&bytes) {
            let mut input = decompress::open_decoder(codec, Box::new(std::io::Cursor::new(bytes))).unwrap();
            bytes = Vec::new();
            input.read_to_end(&mut bytes).unwrap();
        }
        assert!(sniff(&bytes));
        let (_, blocks) = read(&bytes, 1 << 20);
        let taken: usize = blocks.iter().map(|block| block.payload.len()).sum();
        let rejected: usize = blocks.iter().map(|block| block.rejects.len()).sum();
        assert_eq!((taken + rejected).to_string(), count, "{path}");
        let sequences = path.contains("sequence");
        assert_eq!(if sequences { taken } else { rejected }, 0, "{path}");
        let reasons = blocks.iter().flat_map(|block| &block.rejects);
        assert!(reasons.into_iter().all(|reject| reject.reason.contains("SequenceExample")));
    }
}

/// Reads a file written by the `tfrecord` package, if Python has it.
#[test]
fn files_of_the_tfrecord_package_are_read() {
    const WRITE: &str = "
import sys, tfrecord
writer = tfrecord.TFRecordWriter(sys.argv[1])
for i in range(-3, 3):
    writer.write({'n': (i, 'int'), 'v': ([0.5, i / 4], 'float'), 't': (b'text %d' % i, 'byte')})
writer.close()";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.tfrecord");
    let python = std::process::Command::new("python3").args(["-c", WRITE]).arg(&file).output();
    if !python.is_ok_and(|output| output.status.success()) {
        return;
    }
    let (schema, blocks) = read(&std::fs::read(&file).unwrap(), LARGE);
    let rows = rows_of(&blocks[0]);
    assert_eq!((rows.num_rows(), blocks[0].rejects.len(), schema.fields().len()), (6, 0, 3));
    assert_eq!(rows["n"].as_ref(), &Int64Array::from_iter_values(-3..3) as &dyn Array);
    let texts = (-3..3).map(|i| Some(format!("text {i}"))).collect::<StringArray>();
    assert_eq!(rows["t"].as_ref(), &texts as &dyn Array);
    let lists = (-3_i16..3).map(|i| Some([Some(0.5), Some(f32::from(i) / 4.0)]));
    assert_eq!(rows["v"].as_ref(), &ListArray::from_iter_primitive::<Float32Type, _, _>(lists) as &dyn Array);
}

#[test]
fn parts_of_samples_have_the_types_that_they_have_from_tar() {
    let part = |extension: &str, bytes: &[u8]| Part { extension: extension.into(), bytes: bytes.to_vec().into() };
    let sample = |parts| Sample { key: "a".into(), origin: String::new(), subject: None, parts };
    let typed = |parts: Vec<Part>| {
        let (payload, keys, mut out) = (Payload::Samples(vec![sample(parts)]), ["a".to_owned()], Framed::default());
        TfRecordFraming.frame(Keyed::new(&payload, &keys), &mut out).unwrap();
        let (schema, _) = read(&out.bytes, LARGE);
        schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect::<Vec<_>>()
    };
    let named = |name: &str, data_type| (name.to_owned(), data_type);
    // Bytes that happen to be UTF-8 are still binary.
    let found = typed(vec![part("bin", b"abc"), part("txt", b"abc")]);
    let key = named("__key__", DataType::Utf8);
    assert_eq!(found, [key.clone(), named("bin", DataType::Binary), named("txt", DataType::Utf8)]);
    assert_eq!(typed(vec![part("txt", b"\xff")]), [key, named("txt", DataType::Binary)]);
}
