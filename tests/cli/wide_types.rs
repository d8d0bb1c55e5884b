//! Types that hold more than other types of the same name: INT96 timestamps, intervals, and what else would be cut down
//! on its way through one that is narrower. Also Parquet files that contradict themselves.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{collections::HashMap, sync::Arc};

use crate::support;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, Decimal128Array, Int64Array, IntervalMonthDayNanoArray, RecordBatch,
        TimestampMicrosecondArray, TimestampNanosecondArray, new_null_array,
    },
    compute::concat_batches,
    datatypes::{
        DataType, Decimal128Type, Field, IntervalMonthDayNano, Schema, TimeUnit, TimestampMicrosecondType,
        TimestampNanosecondType,
    },
};
use bytes::Bytes;
use parquet::{
    arrow::{
        ARROW_SCHEMA_META_KEY, ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder,
        arrow_writer::ArrowWriterOptions, encode_arrow_schema,
    },
    basic::ConvertedType,
    column::reader::ColumnReader,
    data_type::{FixedLenByteArray, FixedLenByteArrayType, Int64Type, Int96, Int96Type},
    file::{
        metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter},
        properties::WriterProperties,
        reader::{FileReader, SerializedFileReader},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use support::Folder;

/// Julian days of 2024-01-02 and 9999-12-31.
const THAT_DAY: u32 = 2_460_312;
const LAST_DAY: u32 = 5_373_484;

/// Microseconds of these days since 1970.
const THAT_DAY_MICROS: i64 = 1_704_153_600_000_000;
const LAST_DAY_MICROS: i64 = 253_402_214_400_000_000;

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap()
}

/// A file with INT96 timestamps, given as days and nanoseconds of the day, and numbers from `first` on.
fn int96_file(values: &[(u32, u64)], first: i64, dictionary: bool) -> Vec<u8> {
    let schema = parse_message_type("message m { required int96 at; required int64 id; }").unwrap();
    let properties = WriterProperties::builder().set_dictionary_enabled(dictionary).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let of = |(day, nanos): &(u32, u64)| Int96::from(vec![low(*nanos), low(*nanos >> 32), *day]);
    let values: Vec<Int96> = values.iter().map(of).collect();
    column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let ids: Vec<i64> = (first..).take(values.len()).collect();
    column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// A file with Parquet's intervals: months, days and milliseconds.
fn interval_file(values: &[[u32; 3]], first: i64) -> Vec<u8> {
    let text = "message m { required fixed_len_byte_array(12) span (INTERVAL); required int64 id; }";
    let schema = parse_message_type(text).unwrap();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let stored: Vec<_> = values.iter().map(|value| FixedLenByteArray::from(stored(*value))).collect();
    column.typed::<FixedLenByteArrayType>().write_batch(&stored, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let ids: Vec<i64> = (first..).take(values.len()).collect();
    column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

fn stored(parts: [u32; 3]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.to_le_bytes()).collect()
}

/// Contents of the shards of the newest version, in their order.
fn live(folder: &Folder, dataset: &str) -> Vec<Bytes> {
    let listed = folder.run(&format!("manifest {dataset} --list --json")).ok().objects();
    let paths = listed.iter().filter(|o| o["type"] == "shard").map(|shard| shard["path"].as_str().unwrap().to_owned());
    paths.map(|path| std::fs::read(folder.path().join(dataset).join(path)).unwrap().into()).collect()
}

/// Rows of the newest version, as the parquet crate reads them.
fn rows(folder: &Folder, dataset: &str) -> RecordBatch {
    let batches: Vec<RecordBatch> = live(folder, dataset)
        .into_iter()
        .flat_map(|shard| ParquetRecordBatchReaderBuilder::try_new(shard).unwrap().build().unwrap())
        .collect::<Result<_, _>>()
        .unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn micros(rows: &RecordBatch, name: &str) -> Vec<i64> {
    rows.column_by_name(name).unwrap().as_primitive::<TimestampMicrosecondType>().values().to_vec()
}

/// Bytes of a column of intervals with the numbers beside them, and whether all shards state that they are intervals.
fn intervals(folder: &Folder, dataset: &str) -> (Vec<(i64, Vec<u8>)>, bool) {
    let (mut values, mut stated) = (Vec::new(), true);
    for shard in live(folder, dataset) {
        let file = SerializedFileReader::new(shard).unwrap();
        let schema = file.metadata().file_metadata().schema_descr();
        let of = |name: &str| schema.columns().iter().position(|c| c.name() == name).unwrap();
        stated &= schema.column(of("span")).converted_type() == ConvertedType::INTERVAL;
        for group in 0..file.num_row_groups() {
            let group = file.get_row_group(group).unwrap();
            let rows = usize::try_from(group.metadata().num_rows()).unwrap();
            let (mut spans, mut ids, mut levels) = (Vec::new(), Vec::new(), Vec::new());
            match group.get_column_reader(of("span")).unwrap() {
                ColumnReader::FixedLenByteArrayColumnReader(mut reader) => {
                    reader.read_records(rows, Some(&mut levels), None, &mut spans).unwrap();
                }
                _ => panic!("other bytes"),
            }
            match group.get_column_reader(of("id")).unwrap() {
                ColumnReader::Int64ColumnReader(mut reader) => {
                    reader.read_records(rows, Some(&mut levels), None, &mut ids).unwrap();
                }
                _ => panic!("other numbers"),
            }
            values.extend(ids.into_iter().zip(spans.iter().map(|span| span.data().to_vec())));
        }
    }
    values.sort();
    (values, stated)
}

fn arrow_file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// The file with another footer.
fn with_footer(file: &[u8], change: impl Fn(ParquetMetaData) -> ParquetMetaData) -> Vec<u8> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::copy_from_slice(file)).unwrap();
    let (rest, tail) = file.split_at(file.len() - 8);
    let length = u32::from_le_bytes(*tail.first_chunk().unwrap()) as usize;
    let mut out = rest[..rest.len() - length].to_vec();
    ParquetMetaDataWriter::new(&mut out, &change(metadata)).finish().unwrap();
    out
}

#[test]
fn int96_beyond_nanoseconds_is_read_in_microseconds() {
    let folder = Folder::new();
    for dictionary in [false, true] {
        let name = format!("far-{dictionary}");
        let values = [(THAT_DAY, 0), (LAST_DAY, 86_399_999_999_000), (0, 1_000)];
        folder.write(&format!("{name}.parquet"), int96_file(&values, 0, dictionary));
        folder.run(&format!("convert {name}.parquet --out {name}")).ok();
        let first_day = -210_866_803_200_000_000;
        let expected = [THAT_DAY_MICROS, LAST_DAY_MICROS + 86_399_999_999, first_day + 1];
        assert_eq!(micros(&rows(&folder, &name), "at"), expected);
    }
    folder.run("convert far-true.parquet --out given --type at=timestamp").ok();
    assert_eq!(micros(&rows(&folder, "given"), "at")[0], THAT_DAY_MICROS);
    folder.run("convert far-true.parquet --out tar --to tar").ok();
    let members = folder.members("tar").into_values().map(|row| String::from_utf8(row).unwrap()).collect::<Vec<_>>();
    assert!(members[1].contains("9999-12-31T23:59:59.999999"), "{members:?}");
    folder.run("convert tar --out again").ok();
    assert_eq!(micros(&rows(&folder, "again"), "at"), micros(&rows(&folder, "far-true"), "at"));
    let head = folder.run("head far-true").ok();
    assert!(head.stdout.contains("9999-12-31"), "{head:?}");
}

#[test]
fn int96_within_nanoseconds_stays_in_nanoseconds_and_units_are_united() {
    let folder = Folder::new();
    folder.write("in/a.parquet", int96_file(&[(THAT_DAY, 1_000), (THAT_DAY, 2_000)], 0, true));
    folder.run("convert in --out near").ok();
    let near = rows(&folder, "near");
    assert_eq!(
        near.column(0).as_primitive::<TimestampNanosecondType>().values(),
        &[THAT_DAY_MICROS * 1_000 + 1_000, THAT_DAY_MICROS * 1_000 + 2_000]
    );
    folder.write("in/b.parquet", int96_file(&[(LAST_DAY, 0)], 2, true));
    folder.run("convert in --out both").ok();
    let both = micros(&rows(&folder, "both"), "at");
    assert_eq!(both, [THAT_DAY_MICROS + 1, THAT_DAY_MICROS + 2, LAST_DAY_MICROS]);
    for threads in ["1", "4"] {
        folder.run(&format!("convert in --out t{threads} --jobs {threads}")).ok();
    }
    assert_eq!(live(&folder, "t1"), live(&folder, "t4"));
}

#[test]
fn int96_that_no_unit_holds_is_refused_by_name() {
    let folder = Folder::new();
    folder.write("a.parquet", int96_file(&[(THAT_DAY, 1), (LAST_DAY, 0)], 0, false));
    let refused = folder.run("convert a.parquet --out made");
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("INT96") && refused.stderr.contains("column `at`"), "{refused:?}");
}

#[test]
fn int96_of_adopted_files_survives_every_rewrite() {
    let folder = Folder::new();
    let write = |dataset: &str| {
        folder.write(&format!("{dataset}/a.parquet"), int96_file(&[(THAT_DAY, 0), (THAT_DAY, 5_000)], 0, true));
        folder.write(&format!("{dataset}/b.parquet"), int96_file(&[(LAST_DAY, 7_000), (THAT_DAY, 0)], 2, false));
        folder.run(&format!("adopt {dataset} --id id")).ok();
    };
    let at = |dataset: &str| {
        let rows = rows(&folder, dataset);
        let ids = rows.column_by_name("id").unwrap().as_primitive::<arrow::datatypes::Int64Type>().values().to_vec();
        let mut values: Vec<_> = ids.into_iter().zip(micros(&rows, "at")).collect();
        values.sort_unstable();
        values
    };
    let expected = [(0, THAT_DAY_MICROS), (1, THAT_DAY_MICROS + 5), (2, LAST_DAY_MICROS + 7), (3, THAT_DAY_MICROS)];
    for rewrite in ["--min-inputs 2 --verify full", "--sort-by id", "--zorder id,at"] {
        let dataset = rewrite.split(' ').next().unwrap().trim_start_matches('-').to_owned();
        write(&dataset);
        folder.run(&format!("compact {dataset} {rewrite}")).ok();
        assert_eq!(at(&dataset), expected, "{rewrite}");
    }
    write("erased");
    folder.run("erase erased 3").ok();
    folder.run("reshard erased --out cut --shards 1").ok();
    assert_eq!(at("cut"), expected[..3]);
}

#[test]
fn intervals_keep_months_days_and_milliseconds() {
    let folder = Folder::new();
    let parts: Vec<[u32; 3]> = vec![[14, 2, 3_500], [0, 0, 0], [u32::MAX, u32::MAX, u32::MAX], [1, 0, 0]];
    let expected: Vec<(i64, Vec<u8>)> = (0..).zip(parts.iter().map(|parts| stored(*parts))).collect();
    let write = |dataset: &str| {
        folder.write(&format!("{dataset}/a.parquet"), interval_file(&parts[..2], 0));
        folder.write(&format!("{dataset}/b.parquet"), interval_file(&parts[2..], 2));
    };
    write("in");
    folder.run("convert in --out made").ok();
    assert_eq!(intervals(&folder, "made"), (expected.clone(), true));
    for rewrite in ["--min-inputs 2 --verify full", "--sort-by id"] {
        let dataset = rewrite.split(' ').next().unwrap().trim_start_matches('-').to_owned();
        write(&dataset);
        folder.run(&format!("adopt {dataset} --id id")).ok();
        folder.run(&format!("compact {dataset} {rewrite}")).ok();
        assert_eq!(intervals(&folder, &dataset), (expected.clone(), true), "{rewrite}");
    }
    write("erased");
    folder.run("adopt erased --id id").ok();
    folder.run("erase erased 3").ok();
    folder.run("reshard erased --out cut --shards 1").ok();
    assert_eq!(intervals(&folder, "cut"), (expected[..3].to_vec(), true));
    let head = folder.run("head made").ok();
    assert!(head.stdout.contains("P14M2DT3.5S"), "{head:?}");
}

#[test]
fn intervals_come_back_from_tar_and_tfrecord() {
    let folder = Folder::new();
    folder.write("a.parquet", interval_file(&[[14, 2, 3_500], [0, 0, 0]], 0));
    for to in ["tar", "tfrecord"] {
        folder.run(&format!("convert a.parquet --out {to} --to {to}")).ok();
        folder.run(&format!("convert {to} --out back-{to}")).ok();
        let expected = vec![(0, stored([14, 2, 3_500])), (1, stored([0, 0, 0]))];
        assert_eq!(intervals(&folder, &format!("back-{to}")), (expected, true));
    }
    let first = folder.members("tar").into_values().next().unwrap();
    assert_eq!(String::from_utf8(first).unwrap().trim_end(), r#"{"span":"P14M2DT3.5S","id":0}"#);
}

#[test]
fn intervals_of_arrow_are_kept_or_refused_by_name() {
    let folder = Folder::new();
    let interval = |months, days, nanoseconds| Some(IntervalMonthDayNano { months, days, nanoseconds });
    let file = |values: Vec<Option<IntervalMonthDayNano>>| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..).take(values.len())));
        arrow_file(vec![("span", Arc::new(IntervalMonthDayNanoArray::from(values))), ("id", ids)])
    };
    folder.write("good.arrow", file(vec![interval(1, 2, 3_000_000), interval(14, 0, 0)]));
    folder.run("convert good.arrow --out good").ok();
    assert_eq!(intervals(&folder, "good"), (vec![(0, stored([1, 2, 3])), (1, stored([14, 0, 0]))], true));
    for (name, value) in [("fine", interval(1, 2, 3)), ("negative", interval(-1, 0, 0))] {
        folder.write(&format!("{name}.arrow"), file(vec![value]));
        let refused = folder.run(&format!("convert {name}.arrow --out {name}"));
        assert_eq!(refused.code, 6, "{refused:?}");
        assert!(
            refused.stderr.contains("column `span`") && refused.stderr.contains("--type 'span=text'"),
            "{refused:?}"
        );
        folder.run(&format!("convert {name}.arrow --out {name}-text --type span=text")).ok();
        folder.run(&format!("convert {name}.arrow --out {name}-tar --to tar")).ok();
    }
    let text = rows(&folder, "fine-text");
    assert_eq!(text.column(0).as_string::<i32>().value(0), "P1M2DT0.000000003S");
    let negative = folder.members("negative-tar").into_values().next().unwrap();
    assert!(String::from_utf8(negative).unwrap().contains("P-1M"));
}

#[test]
fn text_becomes_intervals_on_demand() {
    let folder = Folder::new();
    folder.write("a.csv", "span,id\nP1Y2M3DT4.5S,0\nP0D,1\n");
    folder.run("convert a.csv --out made --type span=interval").ok();
    assert_eq!(intervals(&folder, "made"), (vec![(0, stored([14, 3, 4_500])), (1, stored([0, 0, 0]))], true));
    folder.write("b.csv", "span,id\nP-1D,0\n");
    assert_eq!(folder.run("convert b.csv --out wrong --type span=interval").code, 6);
}

#[test]
fn types_that_parquet_lacks_do_not_end_in_a_bug() {
    let folder = Folder::new();
    let hundreds: ArrayRef =
        Arc::new(Decimal128Array::from(vec![Some(12), None]).with_precision_and_scale(5, -2).unwrap());
    let empty = new_null_array(&DataType::FixedSizeBinary(0), 2);
    folder.write("a.arrow", arrow_file(vec![("price", hundreds), ("none", empty)]));
    folder.run("convert a.arrow --out made").ok();
    let made = rows(&folder, "made");
    assert_eq!(made.column(0).data_type(), &DataType::Decimal128(7, 0));
    assert_eq!(made.column(0).as_primitive::<Decimal128Type>().value(0), 1_200);
    assert!(made.column(0).is_null(1));
}

#[test]
fn far_timestamps_come_back_from_tar() {
    let folder = Folder::new();
    let values = vec![i64::MIN, i64::MAX, -62_198_755_200_000_001, 0];
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(values.clone()));
    let zoned: ArrayRef = Arc::new(TimestampMicrosecondArray::from(values.clone()).with_timezone("Asia/Tokyo"));
    let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![i32::MIN, i32::MAX, -800_000, 0]));
    folder.write("a.arrow", arrow_file(vec![("at", at), ("zoned", zoned), ("day", Arc::clone(&days))]));
    folder.run("convert a.arrow --out tar --to tar").ok();
    folder.run("convert tar --out back").ok();
    let back = rows(&folder, "back");
    assert_eq!((micros(&back, "at"), micros(&back, "zoned")), (values.clone(), values));
    let zone = DataType::Timestamp(TimeUnit::Microsecond, Some("Asia/Tokyo".into()));
    assert_eq!((back.column(1).data_type(), back.column(2)), (&zone, &days));
}

#[test]
fn a_range_as_index_of_pandas_is_not_stated_for_other_rows() {
    let folder = Folder::new();
    let described = |stop: usize| {
        let range = format!(r#"{{"kind":"range","name":null,"start":0,"stop":{stop},"step":1}}"#);
        format!(r#"{{"index_columns":["key",{range}],"columns":[{{"name":"key","pandas_type":"int64"}}]}}"#)
    };
    let write = |dataset: &str| {
        for (name, rows) in [("a", 3), ("b", 3)] {
            let key: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3));
            let batch = RecordBatch::try_from_iter([("key", key)]).unwrap();
            let note = KeyValue::new("pandas".to_owned(), described(rows));
            let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![note.clone()])).build();
            let schema = batch.schema().as_ref().clone();
            let notes = HashMap::from([("pandas".to_owned(), note.value.unwrap())]);
            let schema = Arc::new(schema.with_metadata(notes));
            let mut writer =
                ArrowWriter::try_new(Vec::new(), std::sync::Arc::clone(&schema), Some(properties)).unwrap();
            writer.write(&batch.with_schema(schema).unwrap()).unwrap();
            folder.write(&format!("{dataset}/{name}.parquet"), writer.into_inner().unwrap());
        }
        folder.run(&format!("adopt {dataset}")).ok();
    };
    write("merged");
    folder.run("compact merged --min-inputs 2").ok();
    let shard = live(&folder, "merged").remove(0);
    let reader = ParquetRecordBatchReaderBuilder::try_new(shard).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 6);
    let entries = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let pandas = entries.iter().find(|entry| entry.key == "pandas").unwrap().value.clone().unwrap();
    for text in [&pandas, reader.schema().metadata().get("pandas").unwrap()] {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["index_columns"], serde_json::json!(["key"]), "other indexes stay");
        assert_eq!(value["columns"][0]["name"], "key");
    }
}

#[test]
fn files_that_contradict_themselves_are_bad_input() {
    let folder = Folder::new();
    let good = int96_file(&[(THAT_DAY, 0), (THAT_DAY, 1_000)], 0, false);
    // The number of rows in the footer, and the type of the list of row groups that follows it.
    let mut rows = good.clone();
    let at = rows.windows(3).rposition(|bytes| bytes == [0x16, 4, 0x19]).unwrap();
    rows[at + 1] = 14;
    let values = with_footer(&good, |metadata| {
        let group = metadata.row_group(0).clone();
        let mut columns = group.columns().to_vec();
        columns[1] = columns[1].clone().into_builder().set_num_values(3).build().unwrap();
        let group = group.into_builder().set_column_metadata(columns).build().unwrap();
        metadata.into_builder().set_row_groups(vec![group]).build()
    });
    for (name, file, expected) in [
        ("rows", rows, "expected 7 rows as in the footer, found 2 in the row groups"),
        ("values", values, "row group 0: expected 2 values, one for each row, found 3"),
    ] {
        folder.write(&format!("{name}/a.parquet"), file);
        for command in [format!("convert {name} --out made-{name}"), format!("adopt {name}")] {
            let refused = folder.run(&command);
            assert_eq!(refused.code, 6, "{command}: {refused:?}");
            assert!(refused.stderr.contains(expected), "{command}: {refused:?}");
        }
    }
}

#[test]
fn a_dictionary_at_offset_zero_is_where_the_chunk_begins() {
    let folder = Folder::new();
    let good = int96_file(&[(THAT_DAY, 0), (THAT_DAY, 1_000)], 0, true);
    let zero = with_footer(&good, |metadata| {
        let group = metadata.row_group(0).clone();
        let columns = group.columns().iter().map(|chunk| {
            let start = chunk.dictionary_page_offset().unwrap();
            let chunk = chunk.clone().into_builder().set_dictionary_page_offset(Some(0));
            chunk.set_data_page_offset(start).build().unwrap()
        });
        let group = group.clone().into_builder().set_column_metadata(columns.collect()).build().unwrap();
        metadata.into_builder().set_row_groups(vec![group]).build()
    });
    folder.write("in/a.parquet", zero);
    folder.run("convert in --out made").ok();
    assert_eq!(rows(&folder, "made").column(1).as_ref(), &Int64Array::from(vec![0, 1]));
}

#[test]
fn an_arrow_schema_of_another_file_does_not_change_values() {
    let folder = Folder::new();
    let price: ArrayRef = Arc::new(Decimal128Array::from(vec![125]).with_precision_and_scale(20, 2).unwrap());
    let at: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_500_000_001]));
    let batch = RecordBatch::try_from_iter([("price", price), ("at", at)]).unwrap();
    let other = Schema::new(vec![
        Field::new("price", DataType::Decimal256(40, 0), false),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
    ]);
    let note = KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&other));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![note])).build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    folder.write("in/a.parquet", writer.into_inner().unwrap());
    folder.run("convert in --out made").ok();
    assert_eq!(rows(&folder, "made").columns(), batch.columns());
}
