//! Rows as JSON text: the form of tables inside WebDataset tars, exports and nested TFRecord features.
//!
//! Every column is written, in schema order and including nulls, so that all rows of a table have the same keys:
//!
//! ```text
//! {"id":7,"score":1.0,"born":"1999-12-31","seen":"2026-01-02T03:04:05.000006Z","tags":["a",null],"raw":"AP8="}
//! ```
//!
//! Records of JSON have keys of their own. In columns that some of them lack, a null is omitted ([`Nulls::Absent`]),
//! or each record would get the keys of all others.
//!
//! Numbers keep their value (the shortest text that parses to the same value), non-finite ones are the strings of the
//! proto3 JSON mapping, binary is base64, and JSON documents are embedded as they are. Writing a value allocates
//! nothing apart from growing `out`, except for types that no reader of this crate produces.

use std::{collections::HashSet, fmt::Write as _, io::Write as _};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{self as types, ArrowDictionaryKeyType, DataType, Field, TimeUnit},
    util::display::{ArrayFormatter, FormatOptions},
};

use super::{
    civil, duration,
    interval::{self, Interval},
};
use crate::codec::base64::to_base64;
use crate::schema;

/// Milliseconds of a day, the unit of `Date64` values.
const MS_PER_DAY: i64 = 86_400_000;

/// What members of objects that are null become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// `null`.
    Written,
    /// Nothing.
    Absent,
}

/// Writes the rows of one batch as JSON objects.
#[derive(Debug)]
pub struct RowJson<'a> {
    columns: Vec<JsonColumn<'a>>,
}

/// A column of rows that become objects.
#[derive(Debug)]
struct JsonColumn<'a> {
    name: &'a str,
    /// The name as a key, after a comma and with its colon.
    key: Vec<u8>,
    values: Encoder<'a>,
    nulls: Nulls,
}

impl<'a> RowJson<'a> {
    /// Prepares the columns of `batch`.
    pub fn new(batch: &'a RecordBatch) -> Self {
        let schema = batch.schema_ref();
        let columns = schema.fields().iter().zip(batch.columns()).map(|(field, array)| {
            let mut key = vec![b','];
            push_string(field.name(), &mut key);
            key.push(b':');
            JsonColumn { name: field.name(), key, values: Encoder::of_field(array, field), nulls: Nulls::Written }
        });
        Self { columns: columns.collect() }
    }

    /// Omits members of these columns, and of objects in them, that are null.
    #[must_use]
    pub fn omit_nulls(mut self, columns: &[String]) -> Self {
        let lacking: HashSet<&str> = columns.iter().map(String::as_str).collect();
        for column in self.columns.iter_mut().filter(|column| lacking.contains(column.name)) {
            column.nulls = Nulls::Absent;
        }
        self
    }

    /// Appends row `row` as one JSON object without a line end.
    ///
    /// # Panics
    /// When the row does not exist.
    pub fn write_row(&self, row: usize, out: &mut Vec<u8>) {
        let members = self.columns.iter().map(|column| (&column.key, column.values, column.nulls));
        push_object(members, row, out, |key, out| out.extend_from_slice(key));
    }
}

/// Appends an object of members that `push_key` writes a comma and the names of, with their colons.
#[inline]
fn push_object<'a, K>(
    members: impl Iterator<Item = (K, Encoder<'a>, Nulls)>,
    row: usize,
    out: &mut Vec<u8>,
    push_key: impl Fn(K, &mut Vec<u8>),
) {
    let start = out.len();
    for (key, encoder, nulls) in members {
        if nulls == Nulls::Written || encoder.has(row) {
            push_key(key, out);
            encoder.write(row, nulls, out);
        }
    }
    match out.get_mut(start) {
        // The comma before the first member.
        Some(first) => *first = b'{',
        None => out.push(b'{'),
    }
    out.push(b'}');
}

/// Appends one value of `array` as JSON.
///
/// # Panics
/// When the row does not exist.
pub fn write_value(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    Encoder::new(array, false).write(row, Nulls::Written, out);
}

/// Returns the value as plain text: text as it is, dates and instants in ISO 8601, numbers as in JSON, nested values as
/// JSON; `None` for null.
///
/// # Panics
/// When the row does not exist.
pub fn text_of(array: &dyn Array, row: usize) -> Option<String> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return None;
    }
    match array.data_type() {
        DataType::Utf8 => return Some(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => return Some(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => return Some(array.as_string_view().value(row).to_owned()),
        _ => {}
    }
    let mut out = Vec::new();
    write_value(array, row, &mut out);
    let text = String::from_utf8(out).ok()?;
    if text.starts_with('"') { serde_json::from_str(&text).ok() } else { Some(text) }
}

/// A column prepared for writing value by value; common types are resolved once.
#[derive(Clone, Copy)]
enum Encoder<'a> {
    Boolean(&'a BooleanArray),
    Int64(&'a Int64Array),
    Float32(&'a Float32Array),
    Float64(&'a Float64Array),
    Text(&'a StringArray),
    /// Text that already is JSON.
    Json(&'a StringArray),
    /// Parquet's intervals.
    Interval(&'a dyn Array),
    Other(&'a dyn Array),
}

impl std::fmt::Debug for Encoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

impl<'a> Encoder<'a> {
    fn new(array: &'a dyn Array, json: bool) -> Self {
        match array.data_type() {
            DataType::Boolean => Self::Boolean(array.as_boolean()),
            DataType::Int64 => Self::Int64(array.as_primitive()),
            DataType::Float32 => Self::Float32(array.as_primitive()),
            DataType::Float64 => Self::Float64(array.as_primitive()),
            DataType::Utf8 if json => Self::Json(array.as_string()),
            DataType::Utf8 => Self::Text(array.as_string()),
            _ => Self::Other(array),
        }
    }

    fn of_field(array: &'a ArrayRef, field: &Field) -> Self {
        match interval::is_stored(field) {
            true => Self::Interval(array.as_ref()),
            false => Self::new(array.as_ref(), schema::is_json(field)),
        }
    }

    /// Whether there is a value.
    fn has(&self, row: usize) -> bool {
        match self {
            Self::Boolean(array) => array.is_valid(row),
            Self::Int64(array) => array.is_valid(row),
            Self::Float32(array) => array.is_valid(row),
            Self::Float64(array) => array.is_valid(row),
            Self::Text(array) | Self::Json(array) => array.is_valid(row),
            Self::Interval(array) => array.is_valid(row),
            Self::Other(array) => array.is_valid(row) && array.data_type() != &DataType::Null,
        }
    }

    fn write(&self, row: usize, nulls: Nulls, out: &mut Vec<u8>) {
        match self {
            Self::Boolean(array) if array.is_valid(row) => push_bool(array.value(row), out),
            Self::Int64(array) if array.is_valid(row) => push_plain(array.value(row), out),
            Self::Float32(array) if array.is_valid(row) => push_f32(array.value(row), out),
            Self::Float64(array) if array.is_valid(row) => push_f64(array.value(row), out),
            Self::Text(array) if array.is_valid(row) => push_string(array.value(row), out),
            Self::Json(array) if array.is_valid(row) => push_document(array.value(row), out),
            Self::Interval(array) if array.is_valid(row) => write_interval(*array, row, out),
            Self::Other(array) if array.is_valid(row) => write_other(*array, row, nulls, out),
            _ => out.extend_from_slice(b"null"),
        }
    }
}

/// Writes a non-null value of a type that [`Encoder`] does not resolve in advance.
fn write_other(array: &dyn Array, row: usize, nulls: Nulls, out: &mut Vec<u8>) {
    match array.data_type() {
        DataType::Null => out.extend_from_slice(b"null"),
        DataType::Int8 => push_plain(array.as_primitive::<types::Int8Type>().value(row), out),
        DataType::Int16 => push_plain(array.as_primitive::<types::Int16Type>().value(row), out),
        DataType::Int32 => push_plain(array.as_primitive::<types::Int32Type>().value(row), out),
        DataType::UInt8 => push_plain(array.as_primitive::<types::UInt8Type>().value(row), out),
        DataType::UInt16 => push_plain(array.as_primitive::<types::UInt16Type>().value(row), out),
        DataType::UInt32 => push_plain(array.as_primitive::<types::UInt32Type>().value(row), out),
        DataType::UInt64 => push_plain(array.as_primitive::<types::UInt64Type>().value(row), out),
        DataType::Float16 => push_f32(array.as_primitive::<types::Float16Type>().value(row).to_f32(), out),
        DataType::LargeUtf8 => push_string(array.as_string::<i64>().value(row), out),
        DataType::Utf8View => push_string(array.as_string_view().value(row), out),
        DataType::Binary => push_base64(array.as_binary::<i32>().value(row), out),
        DataType::LargeBinary => push_base64(array.as_binary::<i64>().value(row), out),
        DataType::BinaryView => push_base64(array.as_binary_view().value(row), out),
        DataType::FixedSizeBinary(_) => push_base64(array.as_fixed_size_binary().value(row), out),
        DataType::Date32 => {
            let days = array.as_primitive::<types::Date32Type>().value(row);
            push_quoted(out, |out| push_date(i64::from(days), out));
        }
        DataType::Date64 => {
            let value = array.as_primitive::<types::Date64Type>().value(row);
            match value.rem_euclid(MS_PER_DAY) {
                0 => push_quoted(out, |out| push_date(value.div_euclid(MS_PER_DAY), out)),
                _ => push_quoted(out, |out| push_timestamp(value, TimeUnit::Millisecond, false, out)),
            }
        }
        DataType::Timestamp(unit, zone) => {
            let value = timestamp_value(array, *unit, row);
            push_quoted(out, |out| push_timestamp(value, *unit, zone.is_some(), out));
        }
        DataType::Duration(unit) => {
            let value = duration_value(array, *unit, row);
            push_quoted(out, |out| duration::push_duration(value, *unit, out));
        }
        DataType::Interval(_) => write_interval(array, row, out),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Map(..) => {
            write_list(array, row, nulls, out)
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            let members = columns.map(|(field, column)| (field, Encoder::of_field(column, field), nulls));
            push_object(members, row, out, |field, out| {
                out.push(b',');
                push_string(field.name(), out);
                out.push(b':');
            });
        }
        DataType::Dictionary(key, _) => write_dictionary(array, key, row, out),
        _ => write_formatted(array, row, out),
    }
}

fn write_interval(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    let interval = Interval::from_array(array, row).unwrap_or_default();
    push_quoted(out, |out| interval.push_text(out));
}

fn write_list(array: &dyn Array, row: usize, nulls: Nulls, out: &mut Vec<u8>) {
    let entries: ArrayRef;
    let (values, field, range) = match array.data_type() {
        DataType::List(field) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            (list.values(), field, offset(offsets[row].into())..offset(offsets[row + 1].into()))
        }
        DataType::LargeList(field) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            (list.values(), field, offset(offsets[row])..offset(offsets[row + 1]))
        }
        DataType::FixedSizeList(field, _) => {
            let list = array.as_fixed_size_list();
            let start = list.value_offset_at(row);
            (list.values(), field, start..start + offset(list.value_length().into()))
        }
        // Keys may be of any type and may repeat, so a map is written as a list of its entries.
        DataType::Map(field, _) => {
            let map = array.as_map();
            let offsets = map.value_offsets();
            entries = std::sync::Arc::new(map.entries().clone());
            (&entries, field, offset(offsets[row].into())..offset(offsets[row + 1].into()))
        }
        _ => return out.extend_from_slice(b"null"),
    };
    let items = Encoder::of_field(values, field);
    out.push(b'[');
    for item in range.clone() {
        if item > range.start {
            out.push(b',');
        }
        items.write(item, nulls, out);
    }
    out.push(b']');
}

/// Converts an offset; offsets of arrays are never negative.
fn offset(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

fn write_dictionary(array: &dyn Array, key: &DataType, row: usize, out: &mut Vec<u8>) {
    fn write<K: ArrowDictionaryKeyType>(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
        let dictionary = array.as_dictionary::<K>();
        match dictionary.key(row) {
            Some(index) => write_value(dictionary.values().as_ref(), index, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    match key {
        DataType::Int8 => write::<types::Int8Type>(array, row, out),
        DataType::Int16 => write::<types::Int16Type>(array, row, out),
        DataType::Int32 => write::<types::Int32Type>(array, row, out),
        DataType::Int64 => write::<types::Int64Type>(array, row, out),
        DataType::UInt8 => write::<types::UInt8Type>(array, row, out),
        DataType::UInt16 => write::<types::UInt16Type>(array, row, out),
        DataType::UInt32 => write::<types::UInt32Type>(array, row, out),
        _ => write::<types::UInt64Type>(array, row, out),
    }
}

/// Writes other types (decimals, times) as a string in Arrow's own notation.
fn write_formatted(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    let mut text = String::new();
    if let Ok(formatter) = ArrayFormatter::try_new(array, &FormatOptions::default()) {
        // A value that Arrow cannot format leaves the text written so far.
        let _ = write!(text, "{}", formatter.value(row));
    }
    push_string(&text, out);
}

fn push_bool(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Writes numbers and strings as `serde_json` does; appending to a vector cannot fail.
fn push_plain<T: serde::Serialize>(value: T, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, &value);
}

fn push_string(text: &str, out: &mut Vec<u8>) {
    push_plain(text, out);
}

fn push_f32(value: f32, out: &mut Vec<u8>) {
    if value.is_finite() { push_plain(value, out) } else { push_f64(value.into(), out) }
}

fn push_f64(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        push_plain(value, out);
    } else if value.is_nan() {
        out.extend_from_slice(b"\"NaN\"");
    } else {
        out.extend_from_slice(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
    }
}

/// Embeds a JSON document on one line: line breaks are insignificant between values, and strings contain none. Text
/// that its source declares as JSON but that is not a document becomes a string.
fn push_document(text: &str, out: &mut Vec<u8>) {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return push_string(text, out);
    }
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    for byte in out[start..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
}

fn push_quoted(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    content(out);
    out.push(b'"');
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    push_quoted(out, |out| out.extend(to_base64(bytes).bytes()));
}

fn timestamp_value(array: &dyn Array, unit: TimeUnit, row: usize) -> i64 {
    match unit {
        TimeUnit::Second => array.as_primitive::<types::TimestampSecondType>().value(row),
        TimeUnit::Millisecond => array.as_primitive::<types::TimestampMillisecondType>().value(row),
        TimeUnit::Microsecond => array.as_primitive::<types::TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<types::TimestampNanosecondType>().value(row),
    }
}

fn duration_value(array: &dyn Array, unit: TimeUnit, row: usize) -> i64 {
    match unit {
        TimeUnit::Second => array.as_primitive::<types::DurationSecondType>().value(row),
        TimeUnit::Millisecond => array.as_primitive::<types::DurationMillisecondType>().value(row),
        TimeUnit::Microsecond => array.as_primitive::<types::DurationMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<types::DurationNanosecondType>().value(row),
    }
}

/// Appends `YYYY-MM-DD`; years beyond four digits have a sign, as ISO 8601 requires.
fn push_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil::date_from_days(days);
    match year {
        0..=9999 => push_digits(year.unsigned_abs(), 4, out),
        _ => {
            out.push(if year < 0 { b'-' } else { b'+' });
            // Writing to a vector cannot fail.
            let _ = write!(out, "{:04}", year.unsigned_abs());
        }
    }
    out.push(b'-');
    push_digits(month, 2, out);
    out.push(b'-');
    push_digits(day, 2, out);
}

/// Appends `YYYY-MM-DDTHH:MM:SS`, the fraction with all digits of the unit unless it is zero, and `Z` for instants.
fn push_timestamp(value: i64, unit: TimeUnit, instant: bool, out: &mut Vec<u8>) {
    let (per_second, digits): (i64, usize) = match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1_000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
    };
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second).unsigned_abs());
    push_date(seconds.div_euclid(86_400), out);
    let second = seconds.rem_euclid(86_400).unsigned_abs();
    for (separator, part) in [(b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)] {
        out.push(separator);
        push_digits(part, 2, out);
    }
    if fraction > 0 {
        out.push(b'.');
        push_digits(fraction, digits, out);
    }
    if instant {
        out.push(b'Z');
    }
}

fn push_digits(value: u64, width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + width, b'0');
    let mut rest = value;
    for digit in out[start..].iter_mut().rev() {
        *digit = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
    }
}

/// Shortens a value so that it fits on a line.
pub fn shorten_text(text: &str) -> String {
    const LIMIT: usize = 60;
    let mut out: String = text.chars().take(LIMIT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LIMIT).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{
            BinaryArray, Date32Array, DictionaryArray, Int32Array, ListArray, StructArray, TimestampMicrosecondArray,
            TimestampNanosecondArray, UInt64Array,
        },
        buffer::OffsetBuffer,
        datatypes::{Fields, Schema},
    };
    use proptest::prelude::*;

    use super::*;

    fn value(array: &dyn Array, row: usize) -> String {
        let mut out = Vec::new();
        write_value(array, row, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn long_values_are_shortened() {
        assert_eq!(shorten_text("a\nb"), "a b");
        assert_eq!(shorten_text(&"é".repeat(61)).chars().count(), 61);
    }

    #[test]
    fn a_row_has_every_column_in_order() {
        let fields = vec![
            Field::new("id", DataType::Int64, true),
            Field::new("na\"me", DataType::Utf8, true),
            schema::json_field("doc"),
            Field::new("ok", DataType::Boolean, true),
        ];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(7), None])),
            Arc::new(StringArray::from(vec![Some("a\n\"é\u{1}"), None])),
            Arc::new(StringArray::from(vec![Some(r#"{"x": [1]}"#), None])),
            Arc::new(BooleanArray::from(vec![Some(true), None])),
        ];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let rows = RowJson::new(&batch);
        let mut out = Vec::new();
        rows.write_row(0, &mut out);
        out.push(b'\n');
        rows.write_row(1, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"id\":7,\"na\\\"me\":\"a\\n\\\"é\\u0001\",\"doc\":{\"x\": [1]},\"ok\":true}\n\
             {\"id\":null,\"na\\\"me\":null,\"doc\":null,\"ok\":null}"
        );
    }

    #[test]
    fn a_table_without_columns_gives_empty_objects() {
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        let mut out = Vec::new();
        RowJson::new(&batch).write_row(0, &mut out);
        assert_eq!(out, b"{}");
    }

    #[test]
    fn numbers_keep_their_value() {
        let floats = Float64Array::from(vec![1.0, 0.1, -0.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        let texts: Vec<String> = (0..floats.len()).map(|i| value(&floats, i)).collect();
        assert_eq!(texts, ["1.0", "0.1", "-0.0", "1e+300", "\"NaN\"", "\"Infinity\"", "\"-Infinity\""]);
        assert_eq!(value(&Float32Array::from(vec![0.1]), 0), "0.1");
        assert_eq!(value(&Float32Array::from(vec![f32::NAN]), 0), "\"NaN\"");
        assert_eq!(value(&UInt64Array::from(vec![u64::MAX]), 0), u64::MAX.to_string());
        assert_eq!(value(&Int64Array::from(vec![i64::MIN]), 0), i64::MIN.to_string());
    }

    #[test]
    fn dates_and_instants_are_iso() {
        let dates = Date32Array::from(vec![0, -1, 10_957, 19_782, -719_528, -719_529, 2_932_897, i32::MIN, i32::MAX]);
        let texts: Vec<String> = (0..dates.len()).map(|i| text_of(&dates, i).unwrap()).collect();
        assert_eq!(texts[..4], ["1970-01-01", "1969-12-31", "2000-01-01", "2024-02-29"]);
        assert_eq!(texts[4..7], ["0000-01-01", "-0001-12-31", "+10000-01-01"]);
        assert_eq!(texts[7..], ["-5877641-06-23", "+5881580-07-11"]);
        let stamps = TimestampMicrosecondArray::from(vec![0, -1, 1_700_000_000_000_001, i64::MIN, i64::MAX]);
        assert_eq!(value(&stamps, 0), "\"1970-01-01T00:00:00\"");
        assert_eq!(value(&stamps, 1), "\"1969-12-31T23:59:59.999999\"");
        assert_eq!(value(&stamps, 2), "\"2023-11-14T22:13:20.000001\"");
        assert_eq!(value(&stamps, 3), "\"-290308-12-21T19:59:05.224192\"");
        assert_eq!(value(&stamps, 4), "\"+294247-01-10T04:00:54.775807\"");
        let zoned = stamps.with_timezone("UTC");
        assert_eq!(text_of(&zoned, 2).unwrap(), "2023-11-14T22:13:20.000001Z");
        let nanos = TimestampNanosecondArray::from(vec![1]);
        assert_eq!(value(&nanos, 0), "\"1970-01-01T00:00:00.000000001\"");
    }

    #[test]
    fn base64_has_padding() {
        let array = BinaryArray::from(vec![&b""[..], b"f", b"fo", b"foo", b"foob", &[0, 255, 254]]);
        let texts: Vec<String> = (0..array.len()).map(|i| text_of(&array, i).unwrap()).collect();
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "AP/+"]);
    }

    #[test]
    fn nested_values_are_arrays_and_objects() {
        let fields: Fields = vec![Field::new("a", DataType::Int64, true), schema::json_field("j")].into();
        let members = StructArray::new(
            fields.clone(),
            vec![
                Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
                Arc::new(StringArray::from(vec![Some("[1, 2]"), None, Some("\"s\"")])),
            ],
            Some(vec![true, true, false].into()),
        );
        let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
        let list = ListArray::new(item, OffsetBuffer::from_lengths([2, 0, 1]), Arc::new(members), None);
        assert_eq!(value(&list, 0), r#"[{"a":1,"j":[1, 2]},{"a":null,"j":null}]"#);
        assert_eq!(value(&list, 1), "[]");
        assert_eq!(value(&list.slice(2, 1), 0), "[null]");
        let dictionary: DictionaryArray<types::Int32Type> = vec![Some("x"), None, Some("x")].into_iter().collect();
        assert_eq!(value(&dictionary, 2), "\"x\"");
        assert_eq!(value(&dictionary, 1), "null");
    }

    #[test]
    fn text_of_scalars_is_plain() {
        assert_eq!(text_of(&StringArray::from(vec!["a\"b"]), 0).unwrap(), "a\"b");
        assert_eq!(text_of(&Int32Array::from(vec![Some(-5), None]), 0).unwrap(), "-5");
        assert_eq!(text_of(&Int32Array::from(vec![Some(-5), None]), 1), None);
        assert_eq!(text_of(&BooleanArray::from(vec![false]), 0).unwrap(), "false");
        assert_eq!(text_of(&Float64Array::from(vec![f64::NAN]), 0).unwrap(), "NaN");
        assert_eq!(text_of(&Float64Array::from(vec![2.5]), 0).unwrap(), "2.5");
        assert_eq!(text_of(&arrow::array::NullArray::new(1), 0), None);
    }

    proptest! {
        #[test]
        fn dates_agree_with_another_calendar(days in -4_000_000i32..2_900_000) {
            let date = jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(days));
            if let Ok(date) = date && date.year() >= 0 {
                prop_assert_eq!(text_of(&Date32Array::from(vec![days]), 0).unwrap(), date.to_string());
            }
        }

        #[test]
        fn floats_round_trip(bits: u64) {
            let float = f64::from_bits(bits);
            if float.is_finite() {
                let back: f64 = value(&Float64Array::from(vec![float]), 0).parse().unwrap();
                prop_assert_eq!(back.to_bits(), bits);
            }
        }

        #[test]
        fn strings_round_trip(text: String) {
            let json = value(&StringArray::from(vec![text.clone()]), 0);
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
