//! Compares chunks with the reader and the writer of the parquet crate: the values round-trip, and the footer agrees
//! with that writer's.

#![expect(clippy::cast_possible_truncation, reason = "any bits will do, and tests are small")]

use std::sync::Arc;

use ::parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::Encoding,
    file::{
        metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
        page_index::column_index::ColumnIndexMetaData,
        properties::WriterProperties,
        statistics::Statistics,
    },
};
use arrow::{
    array::{
        ArrayRef, AsArray, BinaryArray, BooleanArray, FixedSizeListArray, Int32Array, LargeBinaryArray,
        LargeStringArray, ListArray, PrimitiveArray, RecordBatch, StringArray, StructArray, new_null_array,
    },
    buffer::{NullBuffer, OffsetBuffer},
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
    codec::Codec,
    format::parquet::ParquetEncoder,
    record::coded::{batch_of, coded_column},
};

/// Pattern of a column's values, such that every encoding is used.
#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    /// Approximate number of distinct values.
    range: u64,
    /// Number of consecutive repetitions of each value.
    repeat: usize,
    /// One value in this many is null; none if zero.
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
    // Every few numbers, one that has a special order.
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
        ("large_text", Arc::new(n.iter().map(|n| n.map(text)).collect::<LargeStringArray>())),
        ("large_file", Arc::new(n.iter().map(|n| n.map(|v| v.to_le_bytes())).collect::<LargeBinaryArray>())),
    ]
}

fn table(shape: Shape) -> RecordBatch {
    let columns = columns(shape);
    let fields: Vec<Field> =
        columns.iter().map(|(name, c)| Field::new(*name, c.data_type().clone(), shape.nulls > 0)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// Encodes the table in pieces, as one row group.
fn encoded(table: &RecordBatch, codec: Codec, pieces: usize) -> Bytes {
    let encoder = ParquetEncoder::new(&table.schema(), codec, &[]).unwrap();
    let step = table.num_rows().div_ceil(pieces).max(1);
    let batches: Vec<RecordBatch> =
        (0..table.num_rows()).step_by(step).map(|at| table.slice(at, step.min(table.num_rows() - at))).collect();
    let mut shard = encoder.start_shard(Vec::new()).unwrap();
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

/// Returns a column index's metadata of a page.
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

/// Compares the index of each page with a file that contains only the page's rows.
fn check_pages(table: &RecordBatch, own: &ParquetMetaData) {
    let indexes = own.page_index().unwrap();
    for (at, column) in own.row_group(0).columns().iter().enumerate() {
        let pages = indexes.offset_index(0, at).unwrap().page_locations();
        let (last, (start, length)) = (pages.last().unwrap(), column.byte_range());
        assert_eq!((last.offset + i64::from(last.compressed_page_size)).cast_unsigned(), start + length);
        let root = |column: &ColumnChunkMetaData| column.column_path().parts()[0].clone();
        let field = table.schema_ref().index_of(&root(column)).unwrap();
        let leaf = own.row_group(0).columns()[..at].iter().filter(|other| root(other) == root(column)).count();
        let Some(index) = indexes.column_index(0, at).filter(|_| column.statistics().is_some()) else { continue };
        for (page, place) in pages.iter().enumerate() {
            let first = place.first_row_index as usize;
            let end = pages.get(page + 1).map_or(table.num_rows(), |next| next.first_row_index as usize);
            let alone = footer(&reference(&table.project(&[field]).unwrap().slice(first, end - first)));
            let alone = alone.page_index().and_then(|index| index.column_index(0, leaf));
            let name = column.column_path();
            // A reference with several pages has no bounds for all of them together.
            let Some(alone) = alone.filter(|alone| alone.num_pages() == 1) else { continue };
            let (mut own, mut expected) = (page_facts(index, page), page_facts(alone, 0));
            if column.column_descr().max_rep_level() > 0 {
                // The parquet crate's writer compares nulls with rows to detect pages without values.
                let levels = index.definition_level_histogram(page).unwrap();
                assert_eq!(own.0, levels.last() == Some(&0), "{name} page {page}");
                if own.1 == Some((end - first) as i64) {
                    (own.3, expected.3) = (String::new(), String::new());
                }
                (own.0, expected.0) = (false, false);
                assert_eq!(index.repetition_level_histogram(page), alone.repetition_level_histogram(0), "{name}");
            }
            assert_eq!(own, expected, "{name} page {page}");
            assert_eq!(index.definition_level_histogram(page), alone.definition_level_histogram(0), "{name}");
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
            assert_eq!(own.repetition_level_histogram(), expected.repetition_level_histogram(), "{name}");
            assert_eq!(own.unencoded_byte_array_data_bytes(), expected.unencoded_byte_array_data_bytes(), "{name}");
        }
        assert_eq!(own.num_values(), expected.num_values());
    }
    check_pages(table, &own);
    own.row_group(0).columns().iter().map(|column| column.encodings().collect()).collect()
}

/// Returns the columns as keys, where possible: nulls have a value of their own.
fn coded_table(table: &RecordBatch) -> RecordBatch {
    let of = |column: &ArrayRef| -> Option<ArrayRef> {
        column.data_type().primitive_width()?;
        let to = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(column.data_type().clone()));
        let packed = cast(column, &to).ok()?;
        let packed = packed.as_dictionary::<UInt16Type>();
        let none = u16::try_from(packed.values().len()).ok()?;
        let values = concat(&[packed.values(), &new_null_array(column.data_type(), 1)]).unwrap();
        Some(coded_column(packed.keys().iter().map(|key| key.unwrap_or(none)).collect(), values).unwrap())
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
    let mut shard = encoder.start_shard(Vec::new()).unwrap();
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
        // With many entries, some types are smaller without a dictionary.
        assert!(dictionaries >= if range > 4096 { 5 } else { 9 }, "{used:?}");
    }
}

#[test]
fn columns_of_several_pages_are_distinguished() {
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

/// Returns which rows of lists are null, if any: these have items nevertheless.
fn nulls_of(shape: Shape, rows: usize, every: usize) -> Option<NullBuffer> {
    (shape.nulls > 0).then(|| (0..rows).map(|row| row % (shape.nulls + every) != 1).collect())
}

/// Returns the columns as items: of tensors, of lists of any length, and of tensors with a shape column.
fn tables_of_lists(shape: Shape) -> [RecordBatch; 3] {
    let nullable = shape.nulls > 0;
    let table = |columns: Vec<(String, ArrayRef)>| {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, nullable))).unwrap()
    };
    let each = 1 + shape.repeat % 7;
    let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), nullable));
    let fixed = |array: &ArrayRef| -> ArrayRef {
        let rows = array.len() / each;
        let nulls = nulls_of(shape, rows, 2);
        let length = i32::try_from(each).unwrap();
        Arc::new(FixedSizeListArray::try_new(item(array), length, array.slice(0, rows * each), nulls).unwrap())
    };
    let any = |array: &ArrayRef, every: usize| -> ListArray {
        // A few long ones among many short ones, of which some are empty.
        let (mut lengths, mut left) = (Vec::new(), array.len());
        while left > 0 {
            let length = if lengths.len() % 50 == 7 { 40 } else { lengths.len() % 4 + usize::from(!nullable) };
            lengths.push(length.min(left));
            left -= length.min(left);
        }
        let nulls = nulls_of(shape, lengths.len(), every);
        ListArray::try_new(item(array), OffsetBuffer::from_lengths(lengths), Arc::clone(array), nulls).unwrap()
    };
    let shaped = |array: &ArrayRef| -> ArrayRef {
        let data: ArrayRef = Arc::new(any(array, 5));
        let lengths: ArrayRef = Arc::new(Int32Array::from_iter_values((0..data.len() * 2).map(|i| i as i32 % 9)));
        let shapes: ArrayRef = Arc::new(FixedSizeListArray::try_new(item(&lengths), 2, lengths, None).unwrap());
        let deep: ArrayRef = Arc::new(Int32Array::from_iter(
            (0..data.len()).map(|row| (row % 3 != 1 || !nullable).then_some(row as i32 % 5)),
        ));
        let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), nullable));
        let inner = StructArray::new(vec![field("deep", &deep)].into(), vec![deep], nulls_of(shape, data.len(), 4));
        let inner: ArrayRef = Arc::new(inner);
        let fields = vec![field("data", &data), field("shape", &shapes), field("inner", &inner)];
        let nulls = nulls_of(shape, data.len(), 3);
        Arc::new(StructArray::new(fields.into(), vec![data, shapes, inner], nulls))
    };
    let columns = columns(shape);
    let of = |make: &dyn Fn(&ArrayRef) -> ArrayRef| {
        table(columns.iter().map(|(name, array)| ((*name).to_owned(), make(array))).collect())
    };
    [of(&fixed), of(&|array| Arc::new(any(array, 2))), of(&shaped)]
}

/// Returns the tensors as keys, where possible.
fn coded_tensors(table: &RecordBatch) -> RecordBatch {
    let of = |column: &ArrayRef| -> Option<ArrayRef> {
        let list = column.as_fixed_size_list();
        let values = RecordBatch::try_from_iter_with_nullable([("item", Arc::clone(list.values()), true)]).unwrap();
        let values = Arc::clone(coded_table(&values).column(0));
        let DataType::FixedSizeList(item, length) = list.data_type() else { unreachable!() };
        let item = Arc::new(item.as_ref().clone().with_data_type(values.data_type().clone()));
        Some(Arc::new(FixedSizeListArray::try_new(item, *length, values, list.nulls().cloned()).unwrap()))
    };
    let columns = table.columns().iter().map(|column| of(column).unwrap_or_else(|| Arc::clone(column))).collect();
    batch_of(table.schema_ref().fields(), columns, table.num_rows()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn readers_get_every_list(shape in shape(), pieces in 1_usize..5) {
        for table in tables_of_lists(shape) {
            if table.num_rows() > 0 {
                check_bytes(&table, &encoded(&table, Codec::Zstd(1), pieces));
            }
        }
    }

    #[test]
    fn readers_get_every_coded_tensor(shape in shape(), cut in 0_usize..3000, hidden: bool) {
        let [table, ..] = tables_of_lists(shape);
        // Null lists are supported only with plain values.
        let list = |column: &ArrayRef| -> ArrayRef {
            let list = column.as_fixed_size_list();
            let nulls = list.nulls().filter(|_| hidden).cloned();
            let DataType::FixedSizeList(item, length) = list.data_type() else { unreachable!() };
            Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *length, Arc::clone(list.values()), nulls).unwrap())
        };
        let columns = table.columns().iter().map(list).collect();
        let table = RecordBatch::try_new(table.schema(), columns).unwrap();
        let cut = cut.min(table.num_rows());
        let parts = [table.slice(0, cut), table.slice(cut, table.num_rows() - cut)].map(|part| coded_tensors(&part));
        let encoder = ParquetEncoder::new(&table.schema(), Codec::Lz4, &[]).unwrap();
        let mut shard = encoder.start_shard(Vec::new()).unwrap();
        shard.append(encoder.encode(&parts).unwrap()).unwrap();
        if table.num_rows() > 0 {
            check_bytes(&table, &shard.finish().unwrap().into());
        }
    }
}

/// Returns the first row of each page of a column.
fn first_rows(bytes: &Bytes, column: usize) -> Vec<i64> {
    let footer = footer(bytes);
    let pages = footer.page_index().unwrap().offset_index(0, column).unwrap().page_locations().clone();
    pages.iter().map(|page| page.first_row_index).collect()
}

fn tensors(each: usize, values: ArrayRef, nulls: Option<NullBuffer>) -> RecordBatch {
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    let rows = values.len().checked_div(each).unwrap_or(4);
    let length = i32::try_from(each).unwrap();
    let list = FixedSizeListArray::try_new_with_length(item, length, values, nulls, rows).unwrap();
    RecordBatch::try_from_iter_with_nullable([("x", Arc::new(list) as ArrayRef, true)]).unwrap()
}

#[test]
fn pages_of_tensors_are_whole_rows() {
    let shape = Shape { rows: 600_000, range: 1 << 40, repeat: 1, nulls: 0, seed: 3, ascending: false };
    let doubles = primitive::<Float64Type>(&shape.numbers(), |v| v as f64);
    for (each, expected) in [(200_000, vec![0, 1, 2]), (60_000, vec![0, 2, 4, 6, 8]), (600_000, vec![0])] {
        let table = tensors(each, Arc::clone(&doubles), None);
        let bytes = encoded(&table, Codec::None, 2);
        assert_eq!(first_rows(&bytes, 0), expected);
        check_bytes(&table, &bytes);
    }
    // Limited by rows, as in other pages.
    let table = tensors(2, doubles.slice(0, 60_000), None);
    assert_eq!(first_rows(&encoded(&table, Codec::None, 1), 0), [0, 20_000]);
}

#[test]
fn tensors_without_items_and_without_values() {
    let none: ArrayRef = Arc::new(Int32Array::from(Vec::<i32>::new()));
    for nulls in [None, Some(NullBuffer::from(vec![true, false, true, false]))] {
        let table = tensors(0, Arc::clone(&none), nulls);
        let bytes = encoded(&table, Codec::Zstd(1), 2);
        let own = footer(&bytes);
        let column = own.row_group(0).column(0);
        assert_eq!((column.num_values(), own.row_group(0).num_rows()), (4, 4));
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
        let found: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        assert_eq!(found, [table]);
    }
    let table = tensors(500, new_null_array(&DataType::Float64, 2000), None);
    check_bytes(&table, &encoded(&table, Codec::Zstd(1), 2));
    let table = tensors(500, new_null_array(&DataType::Int8, 2000), NullBuffer::from(vec![false; 4]).into());
    check_bytes(&table, &encoded(&table, Codec::Zstd(1), 2));
}

/// Types that this module does not encode round-trip, too.
#[test]
fn other_lists_are_left_to_the_general_writer() {
    let shape = Shape { rows: 4000, range: 500, repeat: 1, nulls: 9, seed: 3, ascending: false };
    let doubles = primitive::<Float64Type>(&shape.numbers(), |v| v as f64);
    let half = cast(&doubles, &DataType::Float16).unwrap();
    let part = |name: &str| Arc::new(Field::new(name, DataType::Float64, true));
    let complex = StructArray::new(
        vec![part("re"), part("im")].into(),
        vec![Arc::clone(&doubles), Arc::clone(&doubles)],
        nulls_of(shape, 4000, 1),
    );
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..4000).map(|i| (i % 90).to_string())));
    let lists = Arc::clone(tensors(10, texts, nulls_of(shape, 400, 2)).column(0));
    for values in [half, Arc::new(complex), lists] {
        let table = tensors(20, values, nulls_of(shape, 20, 2).filter(|_| false));
        let reader = ParquetRecordBatchReaderBuilder::try_new(encoded(&table, Codec::Zstd(1), 3)).unwrap();
        let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        assert_eq!(concat_batches(&table.schema(), &batches).unwrap(), table);
    }
}

#[test]
fn nulls_where_there_may_be_none_are_refused() {
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let list = |item: bool, values: &ArrayRef, nulls: Option<NullBuffer>| -> ArrayRef {
        let item = Arc::new(Field::new("item", DataType::Int32, item));
        Arc::new(FixedSizeListArray::try_new(item, 1, Arc::clone(values), nulls).unwrap())
    };
    let whole: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    for (array, of) in [
        (list(true, &values, None), list(false, &whole, None)),
        (list(true, &whole, Some(vec![true, false].into())), list(true, &whole, None)),
    ] {
        let given = RecordBatch::try_from_iter_with_nullable([("x", array, true)]).unwrap();
        let schema = Arc::new(Schema::new(vec![Field::new("x", of.data_type().clone(), false)]));
        let encoder = ParquetEncoder::new(&schema, Codec::None, &[]).unwrap();
        assert!(encoder.encode(&[given]).is_err());
    }
}
