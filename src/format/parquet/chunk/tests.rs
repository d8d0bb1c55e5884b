//! Chunks against the reader and the writer of the parquet crate: the same values come back, and the footer says of them
//! what that writer says.

#![expect(clippy::cast_possible_truncation, reason = "any bits will do, and tests are small")]

use std::sync::Arc;

use ::parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    file::{
        metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
        page_index::column_index::ColumnIndexMetaData,
        properties::WriterProperties,
        statistics::Statistics,
    },
};
use arrow::{
    array::{ArrayRef, AsArray, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, StringArray, new_null_array},
    compute::{cast, concat, concat_batches},
    datatypes::{
        ArrowPrimitiveType, DataType, Date32Type, Field, Float32Type, Float64Type, Int8Type, Int32Type, Int64Type,
        Schema, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    format::parquet::ParquetEncoder,
    record::coded::{batch_of, coded},
};

/// Values of a column by pattern, so that every encoding gets its turn.
#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    /// Different values, roughly.
    range: u64,
    /// Each value stands so many times in a row.
    repeat: usize,
    /// One value in so many is null; none if zero.
    nulls: usize,
    seed: u64,
    ascending: bool,
}

impl Shape {
    fn numbers(self) -> Vec<Option<u64>> {
        let mut state = self.seed | 1;
        let mut number = 0;
        (0..self.rows)
            .map(|row| {
                if row % self.repeat == 0 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    number = if self.ascending { row as u64 } else { state >> 5 } % self.range;
                }
                let null = self.nulls > 0 && (state.rotate_left(9) ^ row as u64).is_multiple_of(self.nulls as u64);
                (!null).then_some(number)
            })
            .collect()
    }
}

fn primitive<T: ArrowPrimitiveType>(numbers: &[Option<u64>], value: impl Fn(u64) -> T::Native) -> ArrayRef {
    Arc::new(numbers.iter().map(|n| n.map(&value)).collect::<PrimitiveArray<T>>())
}

fn columns(shape: Shape) -> Vec<(&'static str, ArrayRef)> {
    let n = shape.numbers();
    // Every few numbers one of those that are compared in a special way.
    let special = |v: u64, float: f64| match v % 11 {
        0 => 0.0,
        1 => -0.0,
        2 if shape.range > 20 => f64::NAN,
        _ => float,
    };
    let text = |v: u64| "é".repeat((v % 40) as usize) + &format!("{v:x}");
    vec![
        ("bool", Arc::new(n.iter().map(|n| n.map(|v| v & 1 == 0)).collect::<BooleanArray>())),
        ("i8", primitive::<Int8Type>(&n, |v| v as i8)),
        ("i32", primitive::<Int32Type>(&n, |v| v as i32 - 100)),
        ("i64", primitive::<Int64Type>(&n, |v| v.cast_signed() - 1000)),
        ("wide", primitive::<Int64Type>(&n, |v| v.wrapping_mul(0x9e37_79b9_7f4a_7c15).cast_signed())),
        ("u8", primitive::<UInt8Type>(&n, |v| v as u8)),
        ("u32", primitive::<UInt32Type>(&n, |v| (v << 31) as u32 | v as u32)),
        ("u64", primitive::<UInt64Type>(&n, |v| v << 60 | v)),
        ("date", primitive::<Date32Type>(&n, |v| v as i32)),
        ("time", primitive::<TimestampMicrosecondType>(&n, |v| v.cast_signed().wrapping_mul(1_000_000))),
        ("f32", primitive::<Float32Type>(&n, |v| special(v, v as f64 / 8.0) as f32)),
        ("f64", primitive::<Float64Type>(&n, |v| special(v, v as f64 / -16.0))),
        ("text", Arc::new(n.iter().map(|n| n.map(text)).collect::<StringArray>())),
        ("id", Arc::new(n.iter().map(|n| n.map(|v| format!("V{v:09}"))).collect::<StringArray>())),
        (
            "long",
            Arc::new(n.iter().map(|n| n.map(|v| "\u{10ffff}".repeat((v % 19) as usize))).collect::<StringArray>()),
        ),
        ("file", Arc::new(n.iter().map(|n| n.map(|v| v.to_le_bytes())).collect::<BinaryArray>())),
    ]
}

fn table(shape: Shape) -> RecordBatch {
    let columns = columns(shape);
    let fields: Vec<Field> =
        columns.iter().map(|(name, c)| Field::new(*name, c.data_type().clone(), shape.nulls > 0)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// The table in pieces, as a row group.
fn encoded(table: &RecordBatch, codec: Codec, pieces: usize) -> Bytes {
    let encoder = ParquetEncoder::new(&table.schema(), codec, &[]).unwrap();
    let step = table.num_rows().div_ceil(pieces).max(1);
    let batches: Vec<RecordBatch> =
        (0..table.num_rows()).step_by(step).map(|at| table.slice(at, step.min(table.num_rows() - at))).collect();
    let mut shard = encoder.start(Vec::new()).unwrap();
    shard.append(encoder.encode(&batches).unwrap()).unwrap();
    shard.finish().unwrap().into()
}

fn footer(bytes: &Bytes) -> ParquetMetaData {
    ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required).parse_and_finish(bytes).unwrap()
}

fn reference(table: &RecordBatch) -> Bytes {
    let properties = WriterProperties::builder().set_statistics_truncate_length(Some(64)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), table.schema(), Some(properties)).unwrap();
    writer.write(table).unwrap();
    writer.into_inner().unwrap().into()
}

fn same_statistics(column: &str, own: &Statistics, reference: &Statistics) {
    let facts = |s: &Statistics| {
        (
            s.min_bytes_opt().map(<[u8]>::to_vec),
            s.max_bytes_opt().map(<[u8]>::to_vec),
            s.null_count_opt(),
            s.min_is_exact(),
            s.max_is_exact(),
            s.is_min_max_backwards_compatible(),
        )
    };
    assert_eq!(facts(own), facts(reference), "{column}");
}

/// What a column index says of a page.
fn page_facts(index: &ColumnIndexMetaData, page: usize) -> (bool, Option<i64>, Option<i64>, String) {
    use ColumnIndexMetaData::{BOOLEAN, BYTE_ARRAY, DOUBLE, FLOAT, INT32, INT64};
    let bounds = match index {
        BOOLEAN(i) => format!("{:?} {:?}", i.min_value(page), i.max_value(page)),
        INT32(i) => format!("{:?} {:?}", i.min_value(page), i.max_value(page)),
        INT64(i) => format!("{:?} {:?}", i.min_value(page), i.max_value(page)),
        FLOAT(i) => format!("{:?} {:?}", i.min_value(page), i.max_value(page)),
        DOUBLE(i) => format!("{:?} {:?}", i.min_value(page), i.max_value(page)),
        BYTE_ARRAY(i) => format!("{:?} {:?}", i.min_value(page), i.max_value(page)),
        other => format!("{other:?}"),
    };
    (index.is_null_page(page), index.null_count(page), index.nan_count(page), bounds)
}

/// Compares what the index says of each page with a file of its rows alone.
fn check_pages(table: &RecordBatch, own: &ParquetMetaData) {
    let indexes = own.page_index().unwrap();
    for (at, column) in own.row_group(0).columns().iter().enumerate() {
        let pages = indexes.offset_index(0, at).unwrap().page_locations();
        let (last, (start, length)) = (pages.last().unwrap(), column.byte_range());
        assert_eq!((last.offset + i64::from(last.compressed_page_size)).cast_unsigned(), start + length);
        let Some(index) = indexes.column_index(0, at).filter(|_| column.statistics().is_some()) else { continue };
        for (page, place) in pages.iter().enumerate() {
            let first = place.first_row_index as usize;
            let end = pages.get(page + 1).map_or(table.num_rows(), |next| next.first_row_index as usize);
            let alone = footer(&reference(&table.project(&[at]).unwrap().slice(first, end - first)));
            let alone = alone.page_index().unwrap().column_index(0, 0).unwrap();
            let name = column.column_path();
            // A reference of several pages says nothing of all of them together.
            if alone.num_pages() == 1 {
                assert_eq!(page_facts(index, page), page_facts(alone, 0), "{name} page {page}");
            }
        }
    }
}

fn check(shape: Shape, codec: Codec, pieces: usize) -> Vec<Vec<Encoding>> {
    let table = table(shape);
    check_bytes(&table, &encoded(&table, codec, pieces))
}

fn check_bytes(table: &RecordBatch, bytes: &Bytes) -> Vec<Vec<Encoding>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let back = concat_batches(&table.schema(), &batches).unwrap();
    for (own, original) in back.columns().iter().zip(table.columns()) {
        assert_eq!(own.to_data(), original.to_data());
    }
    let (own, expected) = (footer(bytes), footer(&reference(table)));
    for (own, expected) in own.row_group(0).columns().iter().zip(expected.row_group(0).columns()) {
        let name = own.column_path().string();
        if let Some(statistics) = own.statistics() {
            same_statistics(&name, statistics, expected.statistics().unwrap());
            assert_eq!(own.definition_level_histogram(), expected.definition_level_histogram(), "{name}");
            assert_eq!(own.unencoded_byte_array_data_bytes(), expected.unencoded_byte_array_data_bytes(), "{name}");
        }
        assert_eq!(own.num_values(), expected.num_values());
    }
    check_pages(table, &own);
    own.row_group(0).columns().iter().map(|column| column.encodings().collect()).collect()
}

/// The columns as keys, where that can be: nulls have a value of their own.
fn coded_table(table: &RecordBatch) -> RecordBatch {
    let of = |column: &ArrayRef| -> Option<ArrayRef> {
        column.data_type().primitive_width()?;
        let to = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(column.data_type().clone()));
        let packed = cast(column, &to).ok()?;
        let packed = packed.as_dictionary::<UInt16Type>();
        let none = u16::try_from(packed.values().len()).ok()?;
        let values = concat(&[packed.values(), &new_null_array(column.data_type(), 1)]).unwrap();
        Some(coded(packed.keys().iter().map(|key| key.unwrap_or(none)).collect(), values).unwrap())
    };
    let columns = table.columns().iter().map(|column| of(column).unwrap_or_else(|| Arc::clone(column))).collect();
    batch_of(table.schema_ref().fields(), columns, table.num_rows()).unwrap()
}

fn check_coded(shape: Shape, codec: Codec, pieces: usize) -> Vec<Vec<Encoding>> {
    let table = table(shape);
    let encoder = ParquetEncoder::new(&table.schema(), codec, &[]).unwrap();
    let step = table.num_rows().div_ceil(pieces).max(1);
    let batches: Vec<RecordBatch> = (0..table.num_rows())
        .step_by(step)
        .map(|at| coded_table(&table.slice(at, step.min(table.num_rows() - at))))
        .flat_map(|batch| {
            [
                batch.slice(0, batch.num_rows() / 3),
                batch.slice(batch.num_rows() / 3, batch.num_rows() - batch.num_rows() / 3),
            ]
        })
        .collect();
    let mut shard = encoder.start(Vec::new()).unwrap();
    shard.append(encoder.encode(&batches).unwrap()).unwrap();
    check_bytes(&table, &shard.finish().unwrap().into())
}

fn shape() -> impl Strategy<Value = Shape> {
    (1_usize..3000, 0_u32..50, 1_usize..60, 0_usize..20, any::<u64>(), any::<bool>()).prop_map(
        |(rows, bits, repeat, nulls, seed, ascending)| Shape {
            rows,
            range: (1 << bits) + 1,
            repeat,
            nulls,
            seed,
            ascending,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn readers_get_every_value_and_true_bounds(shape in shape(), pieces in 1_usize..5) {
        check(shape, Codec::Lz4, pieces);
    }

    #[test]
    fn readers_get_every_value_of_coded_columns(shape in shape(), pieces in 1_usize..5) {
        check_coded(shape, Codec::Zstd(1), pieces);
    }
}

#[test]
fn coded_columns_have_runs_and_pages_of_noise() {
    for (range, repeat, nulls, ascending) in
        [(1, 1, 0, false), (300, 700, 0, true), (300, 90, 9, false), (9000, 1, 0, false), (9000, 3, 9, false)]
    {
        let shape = Shape { rows: 70_001, range, repeat, nulls, seed: 11, ascending };
        let used = check_coded(shape, Codec::Zstd(3), 2);
        let dictionaries = used.iter().filter(|encodings| encodings.contains(&Encoding::RLE_DICTIONARY)).count();
        // Of many entries some types are better off without one.
        assert!(dictionaries >= if range > 4096 { 5 } else { 9 }, "{used:?}");
    }
}

#[test]
fn columns_of_several_pages_are_told_apart() {
    let mut used = std::collections::BTreeSet::new();
    let codecs = [Codec::Zstd(3), Codec::Snappy, Codec::None, Codec::Gzip(1)];
    for (i, (range, ascending)) in
        [(1, false), (300, false), (40_000, false), (1 << 50, false), (1 << 50, true)].into_iter().enumerate()
    {
        for nulls in [0, 1, 9] {
            let shape = Shape { rows: 45_001, range, repeat: 1 + i % 2 * 9, nulls, seed: 7, ascending };
            used.extend(check(shape, codecs[(i + nulls) % 4], 3).into_iter().flatten().map(|e| e.to_string()));
        }
    }
    let expected = ["BYTE_STREAM_SPLIT", "DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY", "PLAIN", "RLE", "RLE_DICTIONARY"];
    assert!(expected.iter().all(|e| used.contains(*e)), "{used:?}");
}
