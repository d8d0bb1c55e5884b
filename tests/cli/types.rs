//! Types that a reader of the shards sees: what a source states is stated by every output, there and back.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::support;

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, AsArray, BinaryArray, Date32Builder, Date64Array, DurationNanosecondArray, DurationSecondArray,
        FixedSizeBinaryArray, FixedSizeListArray, LargeListArray, ListArray, MapBuilder, NullArray, RecordBatch,
        StringBuilder, StructArray, Time32SecondArray, TimestampSecondArray,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field, Float32Type, Int32Type, Schema},
};
use bytes::Bytes;
use insta::assert_snapshot;
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{EdgeInterpolationAlgorithm, LogicalType, Repetition, TimeUnit, Type as Physical},
    column::writer::ColumnWriter,
    data_type::{ByteArray, FixedLenByteArray},
    file::{
        properties::WriterProperties, reader::FileReader, serialized_reader::SerializedFileReader,
        writer::SerializedFileWriter,
    },
    schema::{printer::print_schema, types::Type},
};
use support::Folder;

/// A column of a file that is written without Arrow.
fn column(name: &str, physical: Physical, logical: Option<LogicalType>) -> Type {
    let length = if physical == Physical::FIXED_LEN_BYTE_ARRAY { 16 } else { -1 };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_length(length)
        .with_repetition(Repetition::OPTIONAL)
        .build()
        .unwrap()
}

fn group(name: &str, logical: Option<LogicalType>, repetition: Repetition, parts: Vec<Type>) -> Type {
    Type::group_type_builder(name)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .with_fields(parts.into_iter().map(Arc::new).collect())
        .build()
        .unwrap()
}

/// A file with a column of every logical type that Arrow has no type for, each with a value and, `nulls` says, a null.
fn logical_file(more: &[&str]) -> Vec<u8> {
    let uuid = |name: &str| column(name, Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid));
    let bytes = |name: &str, logical| column(name, Physical::BYTE_ARRAY, logical);
    let karney = Some(EdgeInterpolationAlgorithm::KARNEY);
    let mut columns = vec![
        uuid("uuid"),
        bytes("json", Some(LogicalType::Json)),
        bytes("enum", Some(LogicalType::Enum)),
        bytes("bson", Some(LogicalType::Bson)),
        bytes("plane", Some(LogicalType::geometry(Some("EPSG:3857".to_owned())))),
        bytes("globe", Some(LogicalType::geography(None, karney))),
        bytes("bytes", None),
        column("utc", Physical::INT64, Some(LogicalType::time(true, TimeUnit::MICROS))),
        column("local", Physical::INT64, Some(LogicalType::time(false, TimeUnit::MICROS))),
        column("nothing", Physical::INT32, Some(LogicalType::Unknown)),
        group(
            "variant",
            Some(LogicalType::variant(Some(1))),
            Repetition::OPTIONAL,
            vec![bytes("metadata", None), bytes("value", None)],
        ),
        group(
            "uuids",
            Some(LogicalType::List),
            Repetition::OPTIONAL,
            vec![group("list", None, Repetition::REPEATED, vec![uuid("element")])],
        ),
    ];
    columns.extend(more.iter().map(|name| bytes(name, Some(LogicalType::String))));
    let mut file = SerializedFileWriter::new(
        Vec::new(),
        Arc::new(
            Type::group_type_builder("m").with_fields(columns.into_iter().map(Arc::new).collect()).build().unwrap(),
        ),
        Arc::default(),
    )
    .unwrap();
    let mut descriptors = file.schema_descr().columns().to_vec().into_iter();
    let mut rows = file.next_row_group().unwrap();
    while let Some(mut column) = rows.next_column().unwrap() {
        let descriptor = descriptors.next().unwrap();
        let (most, repeated) = (descriptor.max_def_level(), descriptor.max_rep_level() > 0);
        let nothing = descriptor.name() == "nothing";
        let levels = if nothing { [0, 0] } else { [most, 0] };
        let repetition = repeated.then_some(&[0_i16, 0][..]);
        let text = if descriptor.name() == "json" { "{\"a\":\n 1.50}" } else { "0123456789abcdef" };
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                writer.write_batch(&[ByteArray::from(text)], Some(&levels), repetition).unwrap();
            }
            ColumnWriter::FixedLenByteArrayColumnWriter(writer) => {
                let value = FixedLenByteArray::from(text.as_bytes().to_vec());
                writer.write_batch(&[value], Some(&levels), repetition).unwrap();
            }
            ColumnWriter::Int64ColumnWriter(writer) => {
                writer.write_batch(&[3_600_000_001], Some(&levels), repetition).unwrap();
            }
            ColumnWriter::Int32ColumnWriter(writer) => {
                writer.write_batch(&[], Some(&levels), repetition).unwrap();
            }
            _ => panic!("{}", descriptor.name()),
        }
        column.close().unwrap();
    }
    rows.close().unwrap();
    file.into_inner().unwrap()
}

/// The shards of a dataset.
fn shards(folder: &Folder, dataset: &str) -> Vec<Bytes> {
    folder.only_shards(dataset).into_iter().map(|(_, bytes)| Bytes::from(bytes)).collect()
}

/// The only shard of a dataset, and its Parquet schema.
fn shard(folder: &Folder, dataset: &str) -> (Bytes, String) {
    let shards = shards(folder, dataset);
    let [bytes] = shards.as_slice() else { panic!("{} shards", shards.len()) };
    (bytes.clone(), schema(bytes))
}

fn schema(bytes: &Bytes) -> String {
    let reader = SerializedFileReader::new(bytes.clone()).unwrap();
    let mut text = Vec::new();
    print_schema(&mut text, reader.metadata().file_metadata().schema());
    String::from_utf8(text).unwrap()
}

fn rows(bytes: &Bytes) -> RecordBatch {
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap().build().unwrap();
    let batch = reader.next().unwrap().unwrap();
    assert!(reader.next().is_none());
    batch
}

#[test]
fn logical_types_are_carried() {
    let folder = Folder::new();
    folder.write("in/a.parquet", logical_file(&[]));
    folder.run("convert in --out out").ok();
    let (bytes, found) = shard(&folder, "out");
    assert_snapshot!(found, @r"
    message arrow_schema {
      OPTIONAL FIXED_LEN_BYTE_ARRAY (16) uuid (UUID);
      OPTIONAL BYTE_ARRAY json (JSON);
      OPTIONAL BYTE_ARRAY enum (ENUM);
      OPTIONAL BYTE_ARRAY bson (BSON);
      OPTIONAL BYTE_ARRAY plane (GEOMETRY(EPSG:3857));
      OPTIONAL BYTE_ARRAY globe (GEOGRAPHY(KARNEY));
      OPTIONAL BYTE_ARRAY bytes;
      OPTIONAL INT64 utc (TIME(MICROS,true));
      OPTIONAL INT64 local (TIME(MICROS,false));
      OPTIONAL INT32 nothing (UNKNOWN);
      OPTIONAL group variant (VARIANT(Some(1))) {
        OPTIONAL BYTE_ARRAY metadata;
        OPTIONAL BYTE_ARRAY value;
      }
      OPTIONAL group uuids (LIST) {
        REPEATED group list {
          OPTIONAL FIXED_LEN_BYTE_ARRAY (16) item (UUID);
        }
      }
    }
    ");
    let batch = rows(&bytes);
    assert_eq!(batch.column_by_name("json").unwrap().as_string::<i32>().value(0), "{\"a\":\n 1.50}");
    assert_eq!(batch.column_by_name("uuid").unwrap().as_fixed_size_binary().value(0), b"0123456789abcdef");

    // Merged as they are, and with columns that only some have.
    for (name, more, merged) in [("same", &[][..], found.clone()), ("more", &["a"], String::new())] {
        folder.write(&format!("{name}/b.parquet"), logical_file(more));
        folder.run(&format!("convert in --out {name}.out")).ok();
        folder.run(&format!("convert {name} --out {name}.out")).ok();
        folder.run(&format!("compact {name}.out --min-inputs 2 --verify full")).ok();
        let after = shards(&folder, &format!("{name}.out")).last().map(schema).unwrap();
        let all = shards(&folder, &format!("{name}.out")).iter().map(schema).collect::<Vec<_>>();
        let merged =
            if merged.is_empty() { found.replace("\n}", "\n  OPTIONAL BYTE_ARRAY a (STRING);\n}") } else { merged };
        assert!(all.contains(&merged), "{after}");
    }
}

#[test]
fn logical_types_come_back_from_formats_without_types() {
    let folder = Folder::new();
    folder.write("in/a.parquet", logical_file(&[]));
    folder.run("convert in --out out").ok();
    let (expected, types) = shard(&folder, "out");
    for format in ["tar", "tfrecord"] {
        folder.run(&format!("convert in --to {format} --out {format}")).ok();
        folder.run(&format!("convert {format} --to parquet --out {format}.back")).ok();
        let (found, back) = shard(&folder, &format!("{format}.back"));
        assert_eq!(back, types, "{format}");
        for (expected, found) in rows(&expected).columns().iter().zip(rows(&found).columns()) {
            if expected.data_type() == &DataType::Utf8 && format == "tar" {
                // A row in a tar is one line.
                assert_eq!(found.as_string::<i32>().value(0), "{\"a\":  1.50}");
            } else {
                assert_eq!(expected, found, "{format}");
            }
        }
    }
}

/// A table as Arrow has it, in a file of Arrow.
fn arrow_file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
    let mut file = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    file.into_inner().unwrap()
}

fn times() -> Vec<(&'static str, ArrayRef)> {
    let zoned = TimestampSecondArray::from(vec![Some(1_577_923_200), None]).with_timezone("Europe/Berlin");
    vec![
        ("date", Arc::new(Date64Array::from(vec![Some(1_577_923_200_000), None]))),
        ("local", Arc::new(TimestampSecondArray::from(vec![Some(1_577_923_200), None]))),
        ("zoned", Arc::new(zoned)),
        ("time", Arc::new(Time32SecondArray::from(vec![Some(61), None]))),
        ("nothing", Arc::new(NullArray::new(2))),
    ]
}

#[test]
fn units_that_parquet_lacks_become_units_that_it_has() {
    let folder = Folder::new();
    folder.write("a.arrow", arrow_file(times()));
    folder.run("convert a.arrow --to parquet --out out").ok();
    let (bytes, found) = shard(&folder, "out");
    assert_snapshot!(found, @r"
    message arrow_schema {
      OPTIONAL INT32 date (DATE);
      OPTIONAL INT64 local (TIMESTAMP(MILLIS,false));
      OPTIONAL INT64 zoned (TIMESTAMP(MILLIS,true));
      OPTIONAL INT32 time (TIME(MILLIS,false));
      OPTIONAL INT32 nothing (UNKNOWN);
    }
    ");
    let batch = rows(&bytes);
    let stored =
        |name: &str| arrow::util::display::array_value_to_string(batch.column_by_name(name).unwrap(), 0).unwrap();
    assert_eq!(stored("date"), "2020-01-02");
    assert_eq!(stored("local"), "2020-01-02T00:00:00");
    assert_eq!(stored("time"), "00:01:01");
    assert_eq!(batch.schema().field(2).data_type().to_string(), r#"Timestamp(ms, "Europe/Berlin")"#);
}

/// Types that JSON and Examples have no word for: `schema.json` states them.
#[test]
fn types_that_are_stated_beside_shards_come_back() {
    let folder = Folder::new();
    let lists = || vec![Some(vec![Some(1), None]), None, Some(vec![])];
    let pairs = || vec![Some(vec![Some(0.5), None]), None, Some(vec![Some(1.0), Some(-1.0)])];
    let codes = || {
        FixedSizeBinaryArray::try_from_sparse_iter_with_size(
            [Some(b"\x00\xff\x01"), None, Some(b"abc")].iter().copied(),
            3,
        )
        .unwrap()
    };
    let mut map = MapBuilder::new(None, StringBuilder::new(), Date32Builder::new());
    map.keys().append_value("first");
    map.values().append_value(18_000);
    map.keys().append_value("");
    map.values().append_null();
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    let of_codes = ListArray::new(
        Arc::new(Field::new("item", DataType::FixedSizeBinary(3), true)),
        OffsetBuffer::from_lengths([2, 0, 1]),
        Arc::new(codes()),
        None,
    );
    let lengths = || DurationNanosecondArray::from(vec![Some(i64::MIN), None, Some(1_500_000_000)]);
    let inner = vec![("took", Arc::new(lengths()) as ArrayRef, true), ("code", Arc::new(codes()), true)];
    let record = StructArray::try_from(inner.into_iter().map(|(n, c, _)| (n, c)).collect::<Vec<_>>()).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("code", Arc::new(codes())),
        ("codes", Arc::new(of_codes)),
        ("large", Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists()))),
        ("pair", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(pairs(), 2))),
        ("map", Arc::new(map.finish())),
        ("seconds", Arc::new(DurationSecondArray::from(vec![Some(i64::MAX), None, Some(-1)]))),
        ("nanos", Arc::new(lengths())),
        ("record", Arc::new(record)),
        ("nothing", Arc::new(NullArray::new(3))),
    ];
    folder.write("a.arrow", arrow_file(columns));
    folder.run("convert a.arrow --to parquet --out out").ok();
    let (expected, types) = shard(&folder, "out");
    for format in ["tar", "tfrecord"] {
        folder.run(&format!("convert a.arrow --to {format} --out {format}")).ok();
        folder.run(&format!("convert {format} --to parquet --out {format}.back")).ok();
        let (found, back) = shard(&folder, &format!("{format}.back"));
        assert_eq!(back, types, "{format}");
        assert_eq!(rows(&found), rows(&expected), "{format}");
    }
}

/// What Parquet itself does not call a shape, whatever is said of it beside the schema, may hold other bytes.
#[test]
fn extensions_alone_make_no_logical_types_of_parquet_columns() {
    let folder = Folder::new();
    let field = Field::new("shape", DataType::Binary, true).with_metadata([
        ("ARROW:extension:name", "geoarrow.wkb"),
        ("ARROW:extension:metadata", r#"{"crs":"EPSG:3857"}"#),
    ]);
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"no shape"[..]), None]));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![bytes]).unwrap();
    let mut file = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    file.write(&batch).unwrap();
    folder.write("a.parquet", file.into_inner().unwrap());
    let mut file = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    folder.write("a.arrow", file.into_inner().unwrap());
    for (kind, expected) in [("parquet", "shape;"), ("arrow", "shape (GEOMETRY(EPSG:3857));")] {
        folder.run(&format!("convert a.{kind} --to parquet --out {kind}")).ok();
        let (bytes, found) = shard(&folder, kind);
        assert!(found.contains(expected), "{found}");
        assert_eq!(rows(&bytes).schema().field(0), batch.schema().field(0), "the extension stays");
    }
}

/// pyarrow stores dates in milliseconds as dates, and says beside the schema what they were.
#[test]
fn coerced_dates_stay_dates_where_rows_are_encoded_anew() {
    let folder = Folder::new();
    let dates: ArrayRef = Arc::new(Date64Array::from(vec![Some(86_400_000), None, Some(-86_400_000)]));
    let batch = RecordBatch::try_from_iter_with_nullable([("date", dates, true)]).unwrap();
    let coerced = WriterProperties::builder().set_coerce_types(true).build();
    let mut file = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(coerced)).unwrap();
    file.write(&batch).unwrap();
    folder.write("a.parquet", file.into_inner().unwrap());
    folder.run("adopt a.parquet --out out").ok();
    folder.run("compact out --sort-by date").ok();
    let merged = shards(&folder, "out").iter().map(schema).next_back().unwrap();
    assert_snapshot!(merged, @r"
    message arrow_schema {
      OPTIONAL INT32 date (DATE);
    }
    ");
}

/// Releases before wrote such columns as bare numbers, as Arrow's own writer does.
#[test]
fn merging_mends_bare_numbers_where_all_values_fit() {
    let folder = Folder::new();
    let file = |columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let mut file = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        file.write(&batch).unwrap();
        file.into_inner().unwrap()
    };
    let odd = |day: i64| vec![("odd", Arc::new(Date64Array::from(vec![day * 86_400_000 + 1])) as ArrayRef)];
    for (number, dataset) in [(1, "whole"), (2, "whole"), (3, "odd"), (4, "odd")] {
        let bytes = if dataset == "whole" { file(times()) } else { file(odd(number)) };
        folder.write(&format!("{dataset}/{number}.parquet"), bytes);
    }
    for dataset in ["whole", "odd"] {
        folder.run(&format!("adopt {dataset} --out {dataset}.out")).ok();
        folder.run(&format!("compact {dataset}.out --min-inputs 2 --verify full")).ok();
    }
    let merged = |dataset: &str| {
        let all = shards(&folder, dataset);
        schema(all.iter().max_by_key(|bytes| rows(bytes).num_rows()).unwrap())
    };
    assert_snapshot!(merged("whole.out"), @r"
    message arrow_schema {
      OPTIONAL INT32 date (DATE);
      OPTIONAL INT64 local (TIMESTAMP(MILLIS,false));
      OPTIONAL INT64 zoned (TIMESTAMP(MILLIS,true));
      OPTIONAL INT32 time (TIME(MILLIS,false));
      OPTIONAL INT32 nothing (UNKNOWN);
    }
    ");
    assert_snapshot!(merged("odd.out"), @r"
    message arrow_schema {
      OPTIONAL INT64 odd;
    }
    ");
}

/// A file of this schema with two rows: each list has two items and none, each column outside of lists a value.
fn listed_file(message: &str) -> Vec<u8> {
    let schema = parquet::schema::parser::parse_message_type(message).unwrap();
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default()).unwrap();
    let mut descriptors = file.schema_descr().columns().to_vec().into_iter();
    let mut rows = file.next_row_group().unwrap();
    while let Some(mut column) = rows.next_column().unwrap() {
        let descriptor = descriptors.next().unwrap();
        let most = descriptor.max_def_level();
        let is_list = descriptor.max_rep_level() > 0;
        let (levels, repetition) =
            if is_list { (vec![most, most, 0], vec![0, 1, 0]) } else { (vec![most; 2], vec![0; 2]) };
        let (levels, repetition) = ((most > 0).then_some(&levels[..]), is_list.then_some(&repetition[..]));
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                writer.write_batch(&["\"A\"", "\"B\""].map(ByteArray::from), levels, repetition).unwrap();
            }
            ColumnWriter::Int32ColumnWriter(writer) => {
                writer.write_batch(&[7, 8], levels, repetition).unwrap();
            }
            _ => panic!("{}", descriptor.name()),
        }
        column.close().unwrap();
    }
    rows.close().unwrap();
    file.into_inner().unwrap()
}

/// The decoder knows no marks of the items of such lists, and for their sake forgot those of all other columns.
#[test]
fn marks_are_carried_beside_lists_of_two_levels() {
    let folder = Folder::new();
    let message = "message m {
        OPTIONAL group alleles (LIST) { REPEATED BYTE_ARRAY array (ENUM); }
        OPTIONAL group documents (LIST) { REPEATED BYTE_ARRAY array (JSON); }
        OPTIONAL group effects (LIST) { REPEATED group array { OPTIONAL BYTE_ARRAY impact (ENUM); OPTIONAL INT32 rank; } }
        OPTIONAL BYTE_ARRAY kind (ENUM);
        OPTIONAL BYTE_ARRAY note (JSON);
    }";
    folder.write("in/a.parquet", listed_file(message));
    folder.run("convert in --out out").ok();
    let (bytes, found) = shard(&folder, "out");
    assert_snapshot!(found, @r"
    message arrow_schema {
      OPTIONAL group alleles (LIST) {
        REPEATED group list {
          OPTIONAL BYTE_ARRAY item (ENUM);
        }
      }
      OPTIONAL group documents (LIST) {
        REPEATED group list {
          OPTIONAL BYTE_ARRAY item (STRING);
        }
      }
      OPTIONAL group effects (LIST) {
        REPEATED group list {
          OPTIONAL group item {
            OPTIONAL BYTE_ARRAY impact (ENUM);
            OPTIONAL INT32 rank;
          }
        }
      }
      OPTIONAL BYTE_ARRAY kind (ENUM);
      OPTIONAL BYTE_ARRAY note (JSON);
    }
    ");
    let batch = rows(&bytes);
    let alleles = batch.column_by_name("alleles").unwrap().as_list::<i32>().value(0);
    assert_eq!(alleles.as_binary::<i32>().iter().flatten().collect::<Vec<_>>(), [b"\"A\"", b"\"B\""]);
    let documents = batch.column_by_name("documents").unwrap().as_list::<i32>().value(0);
    assert_eq!(documents.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["\"A\"", "\"B\""]);
    assert!(batch.columns().iter().take(3).all(|column| column.is_null(1)));
    // Read and merged otherwise than by `convert`, the file gives the same values.
    folder.run("adopt in").ok();
    folder.run("verify in --read-data").ok();
}
