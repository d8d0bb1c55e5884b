//! Encoder of `tf.train.Example` in protobuf's wire format.
//!
//! ```text
//! Example    0a len Features   [ c2 3e len Exact ]*     field 1000, which other readers skip
//! Features   [ 0a len Entry ]*                            sorted by key, since protobuf maps have no order
//! Entry      0a len key   12 len Feature
//! Feature    0a len BytesList | 12 len FloatList | 1a len Int64List
//! BytesList  [ 0a len bytes ]*
//! FloatList  0a len little-endian f32s                    packed; nothing at all when empty
//! Int64List  0a len varints                               packed; negative numbers take ten bytes
//! Exact      0a len key   [ 12 len little-endian f64s ]   all values of that feature, where a float lost some of one
//!                         [ 18 01 ]                       its only value is the JSON text of a list of bytes
//! ```
//!
//! Every length precedes its content, so a record is measured first and then written without moving a byte.
//!
//! | column | feature |
//! |---|---|
//! | booleans, integers except `UInt64` | int64 |
//! | floats | float, rounded to the nearest `f32`, as there is no double; `Exact` where that does not come back |
//! | text, binary, JSON documents | bytes as they are |
//! | `UInt64`, dates, timestamps, other scalars | bytes: the text that JSON has for it, without quotes |
//! | list of these | list of the same kind; a list that holds a null is one JSON text |
//! | everything else | bytes: one JSON text |
//! | null | no feature |

use std::{io::Write, ops::Range};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, Float32Array, Float64Array, Int64Array, LargeBinaryArray, ListArray,
        OffsetSizeTrait, RecordBatch, UInt64Array,
    },
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    compute::cast,
    datatypes::{ArrowNativeType, DataType, Float32Type, Float64Type, Int64Type, UInt64Type},
};

use super::double;
use crate::{
    error::{Error, Result},
    record::{Sample, json},
};

/// Tag of the first field of most messages: number 1, length-delimited.
const FIRST: u8 = 0x0a;
/// Tag of the feature in an entry: number 2, length-delimited.
const SECOND: u8 = 0x12;
/// Tags of the lists in a feature.
const BYTES_LIST: u8 = 0x0a;
const FLOAT_LIST: u8 = 0x12;
const INT64_LIST: u8 = 0x1a;
/// Tag of the exact values in an Example: number 1000, length-delimited.
const EXACT: [u8; 2] = [0xc2, 0x3e];
/// Field of `Exact` that marks JSON text, and its value.
const EXACT_JSON: [u8; 2] = [0x18, 1];
/// Feature that holds the key of a sample.
const KEY: &str = "__key__";

/// Encodes the rows of one batch.
#[derive(Debug)]
pub(super) struct RowEncoder {
    columns: Vec<ExampleColumn>,
    /// The value of the measured row in each column.
    cells: Vec<Cell>,
    features_length: usize,
}

impl RowEncoder {
    /// Prepares the columns.
    pub(super) fn new(batch: &RecordBatch) -> Result<Self> {
        let schema = batch.schema_ref();
        let mut order: Vec<usize> = (0..batch.num_columns()).collect();
        order.sort_by_key(|&i| schema.field(i).name());
        if let Some(pair) = order.windows(2).find(|pair| schema.field(pair[0]).name() == schema.field(pair[1]).name()) {
            return Err(same_name(schema.field(pair[0]).name()));
        }
        let column = |i: usize| ExampleColumn::new(schema.field(i).name(), batch.column(i));
        let columns = order.into_iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(Self { cells: Vec::with_capacity(columns.len()), columns, features_length: 0 })
    }

    /// Returns the length of the Example of a row, which [`write`](Self::write) writes next.
    pub(super) fn measure_row(&mut self, row: usize) -> usize {
        self.cells.clear();
        self.features_length = 0;
        let mut exact_length = 0;
        for column in &self.columns {
            let cell = column.cell_at(row);
            if let Some(list) = cell.list_length() {
                self.features_length += delimited_length(column.prefix.len() + feature_length(list));
            }
            exact_length += column.exact_length(&cell).map_or(0, |length| EXACT.len() - 1 + delimited_length(length));
            self.cells.push(cell);
        }
        delimited_length(self.features_length) + exact_length
    }

    /// Appends the Example of the row that was measured last.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        push_head(out, FIRST, self.features_length);
        for (column, cell) in self.columns.iter().zip(&self.cells) {
            let Some(list) = cell.list_length() else { continue };
            push_head(out, FIRST, column.prefix.len() + feature_length(list));
            out.extend_from_slice(&column.prefix);
            push_varint(out, delimited_length(list) as u64);
            match cell {
                Cell::Items { range, .. } => {
                    push_head(out, column.values.list_tag(), list);
                    column.values.write(range.clone(), out);
                }
                Cell::Json { row, .. } => {
                    push_head(out, BYTES_LIST, list);
                    if let Some(lists) = &column.lists {
                        push_blobs(&lists.json, *row..*row + 1, out);
                    }
                }
                Cell::Absent => {}
            }
        }
        for (column, cell) in self.columns.iter().zip(&self.cells) {
            column.write_exact(cell, out);
        }
    }
}

/// Encodes samples; holds the order of the parts from measuring to writing.
#[derive(Debug, Default)]
pub(super) struct SampleEncoder {
    /// Indices of the parts sorted by extension, and `None` for the key.
    order: Vec<Option<usize>>,
    features_length: usize,
}

impl SampleEncoder {
    /// Returns the length of the Example of a sample, which [`write`](Self::write) writes next.
    pub(super) fn measure_sample(&mut self, sample: &Sample, key: &str) -> Result<usize> {
        self.order.clear();
        self.order.extend((0..sample.parts.len()).map(Some));
        self.order.push(None);
        self.order.sort_by_key(|&part| part_feature(sample, key, part).0);
        self.features_length = 0;
        let mut previous = None;
        for &part in &self.order {
            let (name, bytes) = part_feature(sample, key, part);
            if previous == Some(name) {
                return Err(same_name(name).at_location(&*sample.origin));
            }
            previous = Some(name);
            self.features_length += delimited_length(entry_length(name, bytes));
        }
        Ok(delimited_length(self.features_length))
    }

    /// Appends the Example of the sample that was measured last.
    pub(super) fn write(&self, sample: &Sample, key: &str, out: &mut Vec<u8>) {
        push_head(out, FIRST, self.features_length);
        for &part in &self.order {
            let (name, bytes) = part_feature(sample, key, part);
            let list = delimited_length(bytes.len());
            push_head(out, FIRST, entry_length(name, bytes));
            push_delimited(out, FIRST, name.as_bytes());
            push_head(out, SECOND, delimited_length(list));
            push_head(out, BYTES_LIST, list);
            push_delimited(out, FIRST, bytes);
        }
    }
}

/// Returns the name and content of the feature of a part, or of the key.
fn part_feature<'a>(sample: &'a Sample, key: &'a str, part: Option<usize>) -> (&'a str, &'a [u8]) {
    match part.and_then(|index| sample.parts.get(index)) {
        Some(part) => (&part.extension, &part.bytes),
        None => (KEY, key.as_bytes()),
    }
}

fn entry_length(name: &str, bytes: &[u8]) -> usize {
    delimited_length(name.len()) + delimited_length(delimited_length(delimited_length(bytes.len())))
}

fn same_name(name: &str) -> Error {
    Error::input(format!("expected features with distinct names, found `{name}` twice"))
        .in_column(name)
        .with_hint("an Example keeps one feature per name; rename one of the two")
}

/// A column ready to be measured and written.
#[derive(Debug)]
struct ExampleColumn {
    /// The key with tag and length, and the tag of the feature.
    prefix: Vec<u8>,
    values: FeatureValues,
    nulls: Option<NullBuffer>,
    /// Lists as ranges of `values`; `None` for scalars.
    lists: Option<Lists>,
}

#[derive(Debug)]
struct Lists {
    offsets: OffsetBuffer<i32>,
    /// JSON text of the lists that hold a null, empty for the others.
    json: LargeBinaryArray,
}

/// The value of one row in one column, with the length of the list message.
#[derive(Debug)]
enum Cell {
    Absent,
    Items { range: Range<usize>, length: usize },
    Json { row: usize, length: usize },
}

impl Cell {
    fn list_length(&self) -> Option<usize> {
        match self {
            Self::Absent => None,
            Self::Items { length, .. } | Self::Json { length, .. } => Some(*length),
        }
    }
}

impl ExampleColumn {
    fn new(name: &str, array: &ArrayRef) -> Result<Self> {
        let mut prefix = Vec::with_capacity(name.len() + 8);
        push_delimited(&mut prefix, FIRST, name.as_bytes());
        prefix.push(SECOND);
        let array = unpack_array(array)?;
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let (values, lists) = match array.data_type() {
            DataType::List(item) if !is_nested(item.data_type()) => {
                let (values, lists) = prepare_lists(array.as_list())?;
                (values, Some(lists))
            }
            _ => (FeatureValues::new(&array)?, None),
        };
        Ok(Self { prefix, values, nulls, lists })
    }

    fn cell_at(&self, row: usize) -> Cell {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Cell::Absent;
        }
        let Some(lists) = &self.lists else {
            let range = row..row + 1;
            return Cell::Items { length: self.values.message_length(range.clone()), range };
        };
        let text = blob_length(&lists.json, row);
        if text > 0 {
            return Cell::Json { row, length: delimited_length(text) };
        }
        // Offsets of an Arrow list are never negative.
        let range = lists.offsets[row].as_usize()..lists.offsets[row + 1].as_usize();
        Cell::Items { length: self.values.message_length(range.clone()), range }
    }

    /// Returns the key with tag and length.
    fn tagged_key(&self) -> &[u8] {
        &self.prefix[..self.prefix.len() - 1]
    }

    /// Returns the length of the `Exact` of a cell that needs one.
    fn exact_length(&self, cell: &Cell) -> Option<usize> {
        match (cell, &self.values) {
            (Cell::Items { range, .. }, FeatureValues::Double { lost, .. })
                if lost.slice(range.start, range.len()).has_true() =>
            {
                Some(self.tagged_key().len() + delimited_length(8 * range.len()))
            }
            (Cell::Json { .. }, values) if values.list_tag() == BYTES_LIST => {
                Some(self.tagged_key().len() + EXACT_JSON.len())
            }
            _ => None,
        }
    }

    fn write_exact(&self, cell: &Cell, out: &mut Vec<u8>) {
        let Some(length) = self.exact_length(cell) else { return };
        out.extend_from_slice(&EXACT);
        push_varint(out, length as u64);
        out.extend_from_slice(self.tagged_key());
        match (cell, &self.values) {
            (Cell::Items { range, .. }, FeatureValues::Double { exact, .. }) => {
                push_head(out, SECOND, 8 * range.len());
                exact.values()[range.clone()].iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
            }
            _ => out.extend_from_slice(&EXACT_JSON),
        }
    }
}

/// Converts an array to one of the types handled below: dictionaries, views and rarer kinds of list are unpacked.
fn unpack_array(array: &ArrayRef) -> Result<ArrayRef> {
    let data_type = match array.data_type() {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        DataType::RunEndEncoded(_, value) => value.data_type().clone(),
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
            if !is_nested(item.data_type()) =>
        {
            DataType::List(std::sync::Arc::clone(item))
        }
        _ => return Ok(ArrayRef::clone(array)),
    };
    unpack_array(&cast(array, &data_type)?)
}

/// Whether values are nested, so that they are not scalars as items of a list.
fn is_nested(data_type: &DataType) -> bool {
    data_type.is_nested() && !matches!(data_type, DataType::RunEndEncoded(..))
}

fn prepare_lists(list: &ListArray) -> Result<(FeatureValues, Lists)> {
    let (first, last) = (list.offsets()[0].as_usize(), list.offsets()[list.len()].as_usize());
    let items = unpack_array(&list.values().slice(first, last - first))?;
    // Item offsets are relative to the start of the slice.
    let base = list.offsets()[0];
    let offsets: Vec<i32> = list.offsets().iter().map(|offset| offset - base).collect();
    let nulls = items.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let json = match nulls {
        None => LargeBinaryArray::new_null(list.len()),
        Some(nulls) => render_rows(list.len(), |row, out| {
            let (start, end) = (offsets[row].as_usize(), offsets[row + 1].as_usize());
            if list.is_valid(row) && nulls.slice(start, end - start).null_count() > 0 {
                json::write_value(list, row, out);
            }
        })?,
    };
    Ok((FeatureValues::new(&items)?, Lists { offsets: OffsetBuffer::new(offsets.into()), json }))
}

/// Values of a column, or items of all its lists, in one of the three kinds of feature. Values under a null are never
/// read.
#[derive(Debug)]
enum FeatureValues {
    Int64(Int64Array),
    Float(Float32Array),
    Double {
        rounded: Float32Array,
        exact: Float64Array,
        /// Marks the values that do not round-trip through the rounded one.
        lost: BooleanBuffer,
    },
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
}

impl FeatureValues {
    fn new(array: &ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Null => Self::Int64(Int64Array::new_null(array.len())),
            DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32 => Self::Int64(cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone()),
            DataType::Float16 | DataType::Float32 => {
                Self::Float(cast(array, &DataType::Float32)?.as_primitive::<Float32Type>().clone())
            }
            DataType::Float64 => {
                let exact = array.as_primitive::<Float64Type>().clone();
                let mut text = Vec::new();
                let lost = exact.values().iter().map(|value| !double::round_trips(*value, &mut text)).collect();
                Self::Double { rounded: exact.unary(double::narrow_double), exact, lost }
            }
            DataType::Utf8 => Self::Bytes(BinaryArray::from(array.as_string::<i32>().clone())),
            DataType::LargeUtf8 => Self::LargeBytes(LargeBinaryArray::from(array.as_string::<i64>().clone())),
            DataType::Binary => Self::Bytes(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Self::LargeBytes(array.as_binary::<i64>().clone()),
            DataType::UInt64 => Self::LargeBytes(render_decimals(array.as_primitive::<UInt64Type>())?),
            data_type => Self::LargeBytes(render_others(array, data_type)?),
        })
    }

    /// Returns the tag of the list in its feature.
    fn list_tag(&self) -> u8 {
        match self {
            Self::Int64(_) => INT64_LIST,
            Self::Float(_) | Self::Double { .. } => FLOAT_LIST,
            Self::Bytes(_) | Self::LargeBytes(_) => BYTES_LIST,
        }
    }

    /// Returns the length of the list message with these values.
    fn message_length(&self, range: Range<usize>) -> usize {
        match self {
            _ if range.is_empty() => 0,
            Self::Int64(array) => delimited_length(varints_length(&array.values()[range])),
            Self::Float(array) | Self::Double { rounded: array, .. } => {
                delimited_length(size_of_val(&array.values()[range]))
            }
            Self::Bytes(array) => range.map(|row| delimited_length(blob_length(array, row))).sum(),
            Self::LargeBytes(array) => range.map(|row| delimited_length(blob_length(array, row))).sum(),
        }
    }

    /// Appends the list message with these values.
    fn write(&self, range: Range<usize>, out: &mut Vec<u8>) {
        match self {
            _ if range.is_empty() => {}
            Self::Int64(array) => {
                let values = &array.values()[range];
                push_head(out, FIRST, varints_length(values));
                values.iter().for_each(|value| push_varint(out, value.cast_unsigned()));
            }
            Self::Float(array) | Self::Double { rounded: array, .. } => {
                let values = &array.values()[range];
                push_head(out, FIRST, size_of_val(values));
                let start = out.len();
                out.resize(start + size_of_val(values), 0);
                for (bytes, value) in out[start..].chunks_exact_mut(4).zip(values) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
            }
            Self::Bytes(array) => push_blobs(array, range, out),
            Self::LargeBytes(array) => push_blobs(array, range, out),
        }
    }
}

fn push_blobs<O: OffsetSizeTrait>(array: &arrow::array::GenericBinaryArray<O>, range: Range<usize>, out: &mut Vec<u8>) {
    range.for_each(|row| push_delimited(out, FIRST, array.value(row)));
}

fn blob_length<O: OffsetSizeTrait>(array: &arrow::array::GenericBinaryArray<O>, row: usize) -> usize {
    array.value_length(row).as_usize()
}

fn render_decimals(array: &UInt64Array) -> Result<LargeBinaryArray> {
    render_rows(array.len(), |row, out| {
        if array.is_valid(row) {
            // Writing to memory cannot fail.
            let _ = write!(out, "{}", array.value(row));
        }
    })
}

fn render_others(array: &ArrayRef, data_type: &DataType) -> Result<LargeBinaryArray> {
    render_rows(array.len(), |row, out| match data_type {
        _ if array.is_null(row) => {}
        // The JSON text of a point in time is that text in quotes, without escapes.
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            let start = out.len();
            json::write_value(array.as_ref(), row, out);
            if out.len() >= start + 2 && out[start] == b'"' && out.ends_with(b"\"") {
                out.pop();
                out.remove(start);
            }
        }
        nested if is_nested(nested) => json::write_value(array.as_ref(), row, out),
        _ => out.extend_from_slice(json::text_of(array.as_ref(), row).unwrap_or_default().as_bytes()),
    })
}

/// Returns the texts of `count` rows, each appended by `write`.
fn render_rows(count: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> Result<LargeBinaryArray> {
    let mut bytes = Vec::new();
    let mut offsets = Vec::with_capacity(count + 1);
    offsets.push(0);
    for row in 0..count {
        write(row, &mut bytes);
        offsets.push(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?)
}

/// Returns the length of a feature: one list, whose message has `list` bytes, with its tag and length.
fn feature_length(list: usize) -> usize {
    let feature = delimited_length(list);
    varint_length(feature as u64) + feature
}

/// Returns the length of a field with tag, length and content of this length.
fn delimited_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

fn varints_length(values: &[i64]) -> usize {
    values.iter().map(|value| varint_length(value.cast_unsigned())).sum()
}

/// Returns the bytes of a varint, seven bits in each.
fn varint_length(value: u64) -> usize {
    // Equal to the number of bits divided by 7, rounded up, for all of 1 to 64 bits.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    (bits * 9 + 64) / 64
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn push_head(out: &mut Vec<u8>, tag: u8, length: usize) {
    out.push(tag);
    push_varint(out, length as u64);
}

fn push_delimited(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    push_head(out, tag, bytes.len());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_the_length_they_are_given() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1_u64 << bits) - 1, (1_u64 << bits) + 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                push_varint(&mut out, value);
                assert_eq!(out.len(), varint_length(value), "{value}");
            }
        }
    }
}
