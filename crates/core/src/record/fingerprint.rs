//! Fingerprints of records: equal for equal records, and different for all others.
//!
//! A record is written in a canonical form, of which BLAKE3 is taken; 16 bytes of it are the fingerprint. With 2^40
//! different records, the chance that any two share one is 2^-49.
//!
//! ```text
//! row       number of its values that are not null, then for each, in the order of names, the name and the value
//! sample    number of its parts, then for each, in the order of extensions, the extension and the bytes
//! text      number of bytes, the bytes                     n         7 bits a byte, least significant first
//! value     tag, then                                      integer   zigzag: 0, -1, 1, -2, ...
//!   00 null in a list or map    01 false   02 true         03 integer       04 float: 8 bytes, one form of NaN
//!   05 decimal: scale, integer  06 decimal: scale, 32 bytes                  07 text       08 binary
//!   09 list: n, values          0a struct: as a row        0b map: n, keys and values
//!   0c date: days               0d timestamp, 0e instant, 0f time, 10 duration: nanoseconds
//!   11 interval: months, days, nanoseconds                 12 anything else: JSON text
//! ```
//!
//! Every form is of known length from its start, so no two different records have one canonical form. Equality is that
//! of SQL's `DISTINCT`: nulls equal each other and nothing else, and so do NaNs, and 0.0 is -0.0. Numbers are compared
//! by value, so that a column may be of integers in one run and of floats or decimals in another: a float or decimal
//! without a fraction is an integer, and a decimal has no zeros at its end. A field that is null and a field that is
//! missing are the same, as in a union of tables by name.

use arrow::{
    array::{Array, ArrayRef, AsArray, OffsetSizeTrait},
    datatypes::{
        ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
        Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
        IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, Time32MillisecondType, Time32SecondType,
        Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
    },
};

use super::{
    Payload, Sample,
    coded::plain_column,
    json,
    parts::{KEY_COLUMN, is_table_of_samples, unnamed_samples},
    path::column_at,
};
use crate::error::{Error, Result};

/// Fingerprint of a record.
pub type Fingerprint = [u8; 16];

/// Key of fingerprints that nobody can compute without it.
pub type FingerprintKey = [u8; 32];

const NULL: u8 = 0x00;
const FALSE: u8 = 0x01;
const TRUE: u8 = 0x02;
const INTEGER: u8 = 0x03;
const FLOAT: u8 = 0x04;
const DECIMAL: u8 = 0x05;
const WIDE_DECIMAL: u8 = 0x06;
const TEXT: u8 = 0x07;
const BINARY: u8 = 0x08;
const LIST: u8 = 0x09;
const STRUCT: u8 = 0x0a;
const MAP: u8 = 0x0b;
const DATE: u8 = 0x0c;
const TIMESTAMP: u8 = 0x0d;
const INSTANT: u8 = 0x0e;
const TIME: u8 = 0x0f;
const DURATION: u8 = 0x10;
const INTERVAL: u8 = 0x11;
const OTHER: u8 = 0x12;

/// Floats without a fraction below this are written as integers: 2^126, which `i128` holds.
const INTEGERS: f64 = 85_070_591_730_234_615_865_843_651_857_942_052_864.0;

/// Takes fingerprints, keyed if ids are private.
#[derive(Debug, Clone, Default)]
pub struct Fingerprinter {
    key: Option<FingerprintKey>,
}

impl Fingerprinter {
    /// Takes fingerprints with a key, or without one.
    pub fn new(key: Option<FingerprintKey>) -> Self {
        Self { key }
    }

    fn new_hasher(&self) -> blake3::Hasher {
        self.key.as_ref().map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed)
    }

    /// Returns the fingerprint of each row of these columns.
    ///
    /// # Errors
    /// When a coded column cannot be expanded.
    pub fn of_rows(&self, columns: &[(&str, ArrayRef)], rows: usize) -> Result<Vec<Fingerprint>> {
        let plain: Vec<(&str, ArrayRef)> =
            columns.iter().map(|(name, column)| Ok((*name, plain_column(column)?))).collect::<Result<_>>()?;
        let mut sorted: Vec<(&str, &dyn Array)> = plain.iter().map(|(name, column)| (*name, column.as_ref())).collect();
        sorted.sort_by_key(|(name, _)| *name);
        let mut form = Vec::new();
        let fingerprint = |row: usize| {
            form.clear();
            put_fields(&sorted, row, &mut form);
            truncated_hash(self.new_hasher().update(&form))
        };
        Ok((0..rows).map(fingerprint).collect())
    }

    /// Returns the fingerprint of the parts of a sample.
    pub fn of_sample(&self, sample: &Sample) -> Fingerprint {
        let (mut hasher, mut form) = (self.new_hasher(), Vec::new());
        put_number(sample.parts.len() as u128, &mut form);
        for part in &sample.parts {
            put_text(part.extension.as_bytes(), &mut form);
            put_number(part.bytes.len() as u128, &mut form);
            hasher.update(&form).update(&part.bytes);
            form.clear();
        }
        truncated_hash(hasher.update(&form))
    }

    /// Returns the fingerprint of some parts of a sample, named by their extensions; of all parts if it has none of
    /// them.
    pub fn of_parts(&self, sample: &Sample, names: &[String]) -> Fingerprint {
        let parts = sample.parts.iter().filter(|part| names.contains(&part.extension)).cloned().collect::<Vec<_>>();
        if parts.is_empty() {
            return self.of_sample(sample);
        }
        self.of_sample(&Sample { parts, key: String::new(), origin: String::new(), subject: None })
    }

    /// Returns the fingerprint of each record by some columns or parts; by all that is stored if `names` is empty. Of
    /// rows, the first `stored` columns are.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if rows lack a column; when a coded column cannot be expanded.
    pub fn of_payload(&self, payload: &Payload, names: &[String], stored: usize) -> Result<Vec<Fingerprint>> {
        match payload {
            Payload::Samples(samples) => Ok(self.of_samples(samples, names)),
            Payload::Rows(rows) if names.is_empty() => {
                let stored = rows.project(&(0..rows.num_columns().min(stored)).collect::<Vec<_>>())?;
                if is_table_of_samples(stored.schema_ref().fields()) {
                    // The key names a sample and is not a part of it.
                    return Ok(self.of_samples(&unnamed_samples(&stored)?, names));
                }
                let fields = stored.schema_ref().fields();
                let names = fields.iter().map(|field| field.name().as_str());
                self.of_rows(&names.zip(stored.columns().iter().cloned()).collect::<Vec<_>>(), rows.num_rows())
            }
            Payload::Rows(rows) => {
                if is_table_of_samples(rows.schema_ref().fields()) && !names.iter().any(|name| name == KEY_COLUMN) {
                    return Ok(self.of_samples(&unnamed_samples(rows)?, names));
                }
                let column = |name: &String| -> Result<ArrayRef> {
                    column_at(rows, name)?.ok_or_else(|| {
                        Error::input("expected the column that duplicates are found by, found none")
                            .in_column(name.clone())
                    })
                };
                let columns: Vec<ArrayRef> = names.iter().map(column).collect::<Result<_>>()?;
                self.of_rows(&names.iter().map(String::as_str).zip(columns).collect::<Vec<_>>(), rows.num_rows())
            }
        }
    }

    fn of_samples(&self, samples: &[Sample], names: &[String]) -> Vec<Fingerprint> {
        let of_one = |sample| if names.is_empty() { self.of_sample(sample) } else { self.of_parts(sample, names) };
        samples.iter().map(of_one).collect()
    }

    /// Returns the fingerprint of a record id, as it is stored.
    pub fn of_id(&self, id: &str) -> Fingerprint {
        truncated_hash(self.new_hasher().update(id.as_bytes()))
    }
}

fn truncated_hash(hasher: &blake3::Hasher) -> Fingerprint {
    let mut out = Fingerprint::default();
    hasher.finalize_xof().fill(&mut out);
    out
}

fn put_number(mut number: u128, out: &mut Vec<u8>) {
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn put_integer(number: i128, out: &mut Vec<u8>) {
    put_number(((number << 1) ^ (number >> 127)).cast_unsigned(), out);
}

fn put_tagged(tag: u8, number: i128, out: &mut Vec<u8>) {
    out.push(tag);
    put_integer(number, out);
}

fn put_text(text: &[u8], out: &mut Vec<u8>) {
    put_number(text.len() as u128, out);
    out.extend_from_slice(text);
}

fn put_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_text(bytes, out);
}

fn put_float(value: f64, out: &mut Vec<u8>) {
    if value.fract() == 0.0 && value.abs() < INTEGERS {
        // Exact, because there is no fraction and the value is in range.
        #[expect(clippy::cast_possible_truncation, reason = "an integer that i128 holds")]
        return put_tagged(INTEGER, value as i128, out);
    }
    let value = if value.is_nan() { f64::NAN } else { value };
    out.push(FLOAT);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Writes `unscaled / 10^scale` without zeros at its end.
fn put_decimal(mut unscaled: i128, mut scale: i32, out: &mut Vec<u8>) {
    while scale > 0 && unscaled % 10 == 0 {
        (unscaled, scale) = (unscaled / 10, scale - 1);
    }
    while let (true, Some(larger)) = (scale < 0, unscaled.checked_mul(10)) {
        (unscaled, scale) = (larger, scale + 1);
    }
    if unscaled == 0 || scale == 0 {
        return put_tagged(INTEGER, unscaled, out);
    }
    put_tagged(DECIMAL, scale.into(), out);
    put_integer(unscaled, out);
}

fn put_wide_decimal(mut unscaled: i256, mut scale: i32, out: &mut Vec<u8>) {
    let ten = i256::from_i128(10);
    while scale > 0 && unscaled.wrapping_rem(ten) == i256::ZERO {
        (unscaled, scale) = (unscaled.wrapping_div(ten), scale - 1);
    }
    if let Some(narrow) = unscaled.to_i128() {
        return put_decimal(narrow, scale, out);
    }
    put_tagged(WIDE_DECIMAL, scale.into(), out);
    out.extend_from_slice(&unscaled.to_le_bytes());
}

/// Writes the fields that are not null in this row, in their order.
fn put_fields(fields: &[(&str, &dyn Array)], row: usize, out: &mut Vec<u8>) {
    let present = |field: &&(&str, &dyn Array)| !is_null(field.1, row);
    put_number(fields.iter().filter(present).count() as u128, out);
    for (name, field) in fields.iter().filter(present) {
        put_text(name.as_bytes(), out);
        put_value(*field, row, out);
    }
}

/// Whether a value is null; a column of nulls has no null flags.
fn is_null(array: &dyn Array, row: usize) -> bool {
    array.is_null(row) || *array.data_type() == DataType::Null
}

fn put_value_or_null(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    if is_null(array, row) { out.push(NULL) } else { put_value(array, row, out) }
}

fn primitive_value<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

/// Writes a value that is not null.
fn put_value(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    match array.data_type() {
        DataType::Boolean => out.push(if array.as_boolean().value(row) { TRUE } else { FALSE }),
        DataType::Int8 => put_tagged(INTEGER, primitive_value::<Int8Type>(array, row).into(), out),
        DataType::Int16 => put_tagged(INTEGER, primitive_value::<Int16Type>(array, row).into(), out),
        DataType::Int32 => put_tagged(INTEGER, primitive_value::<Int32Type>(array, row).into(), out),
        DataType::Int64 => put_tagged(INTEGER, primitive_value::<Int64Type>(array, row).into(), out),
        DataType::UInt8 => put_tagged(INTEGER, primitive_value::<UInt8Type>(array, row).into(), out),
        DataType::UInt16 => put_tagged(INTEGER, primitive_value::<UInt16Type>(array, row).into(), out),
        DataType::UInt32 => put_tagged(INTEGER, primitive_value::<UInt32Type>(array, row).into(), out),
        DataType::UInt64 => put_tagged(INTEGER, primitive_value::<UInt64Type>(array, row).into(), out),
        DataType::Float16 => put_float(primitive_value::<Float16Type>(array, row).to_f64(), out),
        DataType::Float32 => put_float(primitive_value::<Float32Type>(array, row).into(), out),
        DataType::Float64 => put_float(primitive_value::<Float64Type>(array, row), out),
        DataType::Decimal32(_, scale) => {
            put_decimal(primitive_value::<Decimal32Type>(array, row).into(), (*scale).into(), out)
        }
        DataType::Decimal64(_, scale) => {
            put_decimal(primitive_value::<Decimal64Type>(array, row).into(), (*scale).into(), out)
        }
        DataType::Decimal128(_, scale) => {
            put_decimal(primitive_value::<Decimal128Type>(array, row), (*scale).into(), out)
        }
        DataType::Decimal256(_, scale) => {
            put_wide_decimal(primitive_value::<Decimal256Type>(array, row), (*scale).into(), out)
        }
        DataType::Utf8 => put_bytes(TEXT, array.as_string::<i32>().value(row).as_bytes(), out),
        DataType::LargeUtf8 => put_bytes(TEXT, array.as_string::<i64>().value(row).as_bytes(), out),
        DataType::Utf8View => put_bytes(TEXT, array.as_string_view().value(row).as_bytes(), out),
        DataType::Binary => put_bytes(BINARY, array.as_binary::<i32>().value(row), out),
        DataType::LargeBinary => put_bytes(BINARY, array.as_binary::<i64>().value(row), out),
        DataType::BinaryView => put_bytes(BINARY, array.as_binary_view().value(row), out),
        DataType::FixedSizeBinary(_) => put_bytes(BINARY, array.as_fixed_size_binary().value(row), out),
        DataType::Date32
        | DataType::Date64
        | DataType::Timestamp(..)
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Duration(_)
        | DataType::Interval(_) => put_time(array, row, out),
        _ => put_nested(array, row, out),
    }
}

fn put_time(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    const DAY: i64 = 86_400_000;
    let nanoseconds = |unit: &TimeUnit, ticks: i64| {
        let of_tick: i128 = match unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        };
        i128::from(ticks) * of_tick
    };
    match array.data_type() {
        DataType::Date32 => put_tagged(DATE, primitive_value::<Date32Type>(array, row).into(), out),
        DataType::Date64 => put_tagged(DATE, primitive_value::<Date64Type>(array, row).div_euclid(DAY).into(), out),
        DataType::Timestamp(unit, zone) => {
            let ticks = match unit {
                TimeUnit::Second => primitive_value::<TimestampSecondType>(array, row),
                TimeUnit::Millisecond => primitive_value::<TimestampMillisecondType>(array, row),
                TimeUnit::Microsecond => primitive_value::<TimestampMicrosecondType>(array, row),
                TimeUnit::Nanosecond => primitive_value::<TimestampNanosecondType>(array, row),
            };
            let tag = if zone.is_some() { INSTANT } else { TIMESTAMP };
            put_tagged(tag, nanoseconds(unit, ticks), out);
        }
        DataType::Time32(unit) => {
            let ticks = match unit {
                TimeUnit::Second => primitive_value::<Time32SecondType>(array, row),
                _ => primitive_value::<Time32MillisecondType>(array, row),
            };
            put_tagged(TIME, nanoseconds(unit, ticks.into()), out);
        }
        DataType::Time64(unit) => {
            let ticks = match unit {
                TimeUnit::Microsecond => primitive_value::<Time64MicrosecondType>(array, row),
                _ => primitive_value::<Time64NanosecondType>(array, row),
            };
            put_tagged(TIME, nanoseconds(unit, ticks), out);
        }
        DataType::Duration(unit) => {
            let ticks = match unit {
                TimeUnit::Second => primitive_value::<DurationSecondType>(array, row),
                TimeUnit::Millisecond => primitive_value::<DurationMillisecondType>(array, row),
                TimeUnit::Microsecond => primitive_value::<DurationMicrosecondType>(array, row),
                TimeUnit::Nanosecond => primitive_value::<DurationNanosecondType>(array, row),
            };
            put_tagged(DURATION, nanoseconds(unit, ticks), out);
        }
        DataType::Interval(unit) => {
            let (months, days, nanoseconds): (i128, i128, i128) = match unit {
                IntervalUnit::YearMonth => (primitive_value::<IntervalYearMonthType>(array, row).into(), 0, 0),
                IntervalUnit::DayTime => {
                    let value = primitive_value::<IntervalDayTimeType>(array, row);
                    (0, value.days.into(), i128::from(value.milliseconds) * 1_000_000)
                }
                IntervalUnit::MonthDayNano => {
                    let value = primitive_value::<IntervalMonthDayNanoType>(array, row);
                    (value.months.into(), value.days.into(), value.nanoseconds.into())
                }
            };
            put_tagged(INTERVAL, months, out);
            put_integer(days, out);
            put_integer(nanoseconds, out);
        }
        _ => put_other(array, row, out),
    }
}

fn put_nested(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    match array.data_type() {
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let mut sorted: Vec<(&str, &dyn Array)> =
                fields.iter().zip(columns).map(|(field, column)| (field.name().as_str(), column.as_ref())).collect();
            sorted.sort_by_key(|(name, _)| *name);
            out.push(STRUCT);
            put_fields(&sorted, row, out);
        }
        DataType::List(_) => put_list(
            array.as_list::<i32>().values().as_ref(),
            item_range(array.as_list::<i32>().value_offsets(), row),
            out,
        ),
        DataType::LargeList(_) => put_list(
            array.as_list::<i64>().values().as_ref(),
            item_range(array.as_list::<i64>().value_offsets(), row),
            out,
        ),
        DataType::FixedSizeList(_, width) => {
            let list = array.as_fixed_size_list();
            let width = usize::try_from(*width).unwrap_or_default();
            put_list(list.values().as_ref(), row * width..(row + 1) * width, out);
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries = item_range(map.value_offsets(), row);
            out.push(MAP);
            put_number(entries.len() as u128, out);
            for entry in entries {
                put_value_or_null(map.keys().as_ref(), entry, out);
                put_value_or_null(map.values().as_ref(), entry, out);
            }
        }
        _ => put_other(array, row, out),
    }
}

/// Returns the items of a list, given its offsets.
fn item_range<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> std::ops::Range<usize> {
    let at = |row: usize| offsets.get(row).map_or(0, |offset| offset.as_usize());
    at(row)..at(row + 1)
}

fn put_list(items: &dyn Array, range: std::ops::Range<usize>, out: &mut Vec<u8>) {
    out.push(LIST);
    put_number(range.len() as u128, out);
    range.for_each(|item| put_value_or_null(items, item, out));
}

/// Writes a value of a type that no reader returns.
fn put_other(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    let mut text = Vec::new();
    json::write_value(array, row, &mut text);
    put_bytes(OTHER, &text, out);
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use arrow::{
        array::{
            BinaryArray, BooleanArray, Decimal128Array, Decimal256Array, Float32Array, Float64Array, Int64Array,
            ListArray, NullArray, StringArray, StructArray, TimestampMillisecondArray, TimestampSecondArray,
            UInt64Array,
        },
        datatypes::{Field, Int64Type},
    };
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::record::Part;

    fn all(name: &str, array: impl Array + 'static) -> Vec<Fingerprint> {
        let rows = array.len();
        Fingerprinter::default().of_rows(&[(name, Arc::new(array) as ArrayRef)], rows).unwrap()
    }

    fn distinct(fingerprints: &[Fingerprint]) -> usize {
        fingerprints.iter().collect::<HashSet<_>>().len()
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let integers = all("x", Int64Array::from(vec![Some(0), Some(-1), Some(100), Some(i64::MAX), None]));
        assert_eq!(distinct(&integers), 5);
        let floats =
            [0.0, -0.0, -1.0, 100.0, f64::NAN, -f64::NAN, 0.5, f64::INFINITY, f64::NEG_INFINITY, 1e300, 5e-324];
        let floats = all("x", Float64Array::from(floats.to_vec()));
        assert_eq!(floats[..4], [integers[0], integers[0], integers[1], integers[2]]);
        assert_eq!((floats[4], distinct(&floats)), (floats[5], 9));
        assert_eq!(all("x", Float32Array::from(vec![0.5, f32::NAN])), [floats[6], floats[4]]);
        assert_eq!(all("x", UInt64Array::from(vec![i64::MAX as u64, u64::MAX]))[0], integers[3]);
        let decimal = |unscaled: i128, scale: i8| {
            all("x", Decimal128Array::from(vec![unscaled]).with_precision_and_scale(38, scale).unwrap())[0]
        };
        assert_eq!(
            [decimal(10_000, 2), decimal(100, 0), decimal(1, -2), decimal(-1000, 3)],
            [integers[2], integers[2], integers[2], integers[1]]
        );
        assert_eq!(decimal(15, 1), decimal(1500, 3));
        assert_ne!(decimal(15, 1), decimal(15, 2));
        let wide = |value: i256, scale: i8| {
            all("x", Decimal256Array::from(vec![value]).with_precision_and_scale(76, scale).unwrap())[0]
        };
        assert_eq!(wide(i256::from_i128(1500), 3), decimal(15, 1));
        let large = i256::from_i128(i128::MAX).wrapping_mul(i256::from_i128(7));
        assert_eq!(wide(large.wrapping_mul(i256::from_i128(10)), 1), wide(large, 0));
        assert_ne!(wide(large, 0), wide(large, 2));
    }

    #[test]
    fn kinds_of_values_differ() {
        let mut found = all("x", StringArray::from(vec![Some(""), Some("1"), Some("é"), Some("e\u{301}"), None]));
        found.extend(all("x", BinaryArray::from(vec![b"".as_slice(), b"1"])));
        found.extend(all("x", BooleanArray::from(vec![true, false])));
        found.extend(all("x", Int64Array::from(vec![0, 1])));
        found.extend(all("x", TimestampSecondArray::from(vec![0, 1])));
        found.extend(all("x", TimestampSecondArray::from(vec![0, 1]).with_timezone("UTC")));
        assert_eq!(distinct(&found), found.len());
        assert_eq!(all("x", NullArray::new(1))[0], found[4]);
        let milliseconds = TimestampMillisecondArray::from(vec![0, 1000]);
        assert_eq!(all("x", milliseconds), all("x", TimestampSecondArray::from(vec![0, 1])));
    }

    #[test]
    fn nested_values_have_their_shape() {
        let lists = [
            Some(vec![Some(1), None]),
            Some(vec![None, Some(1)]),
            Some(vec![Some(1)]),
            Some(vec![]),
            None,
            Some(vec![None]),
            Some(vec![Some(1), None]),
        ];
        let lists = all("x", ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        assert_eq!((lists[0], distinct(&lists)), (lists[6], 6));
        let structs = |names: [&str; 2], values: [Option<i64>; 2], null: bool| {
            let columns: Vec<ArrayRef> =
                values.iter().map(|v| Arc::new(Int64Array::from(vec![*v])) as ArrayRef).collect();
            let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
            all("x", StructArray::new(fields.into(), columns, Some(vec![!null].into())))[0]
        };
        let (a, b) = (Some(1), Some(2));
        assert_eq!(structs(["a", "b"], [a, b], false), structs(["b", "a"], [b, a], false));
        assert_eq!(structs(["a", "b"], [a, None], false), structs(["a", "c"], [a, None], false));
        assert_ne!(structs(["a", "b"], [a, b], false), structs(["a", "b"], [b, a], false));
        assert_ne!(structs(["a", "b"], [None, None], false), structs(["a", "b"], [None, None], true));
    }

    #[test]
    fn keys_change_all_fingerprints() {
        let sample = Sample { key: "k".into(), origin: String::new(), subject: None, parts: Vec::new() };
        let of = |key: Option<FingerprintKey>| {
            let by = Fingerprinter::new(key);
            [
                by.of_id("1"),
                by.of_sample(&sample),
                by.of_rows(&[("x", Arc::new(Int64Array::from(vec![1])))], 1).unwrap()[0],
            ]
        };
        let found: Vec<Fingerprint> = [None, Some([1; 32]), Some([2; 32])].into_iter().flat_map(of).collect();
        assert_eq!(distinct(&found), 9);
    }

    /// A value of a column of a few kinds, small enough that many are equal.
    #[derive(Debug, Clone, PartialEq)]
    enum Model {
        Null,
        Text(String),
        List(Vec<Option<i64>>),
    }

    fn model() -> impl Strategy<Value = Model> {
        prop_oneof![
            Just(Model::Null),
            "[ab\0\u{7}]{0,3}".prop_map(Model::Text),
            prop::collection::vec(prop::option::of(-1_i64..2), 0..3).prop_map(Model::List),
        ]
    }

    /// A row of up to three of five columns, each with a text and a list: names and texts share their bytes with
    /// lengths and tags.
    fn row() -> impl Strategy<Value = Vec<(String, Model)>> {
        prop::collection::btree_map("[ab\u{1}\u{7}]{0,2}", model(), 0..3).prop_map(|row| row.into_iter().collect())
    }

    fn of_row(row: &[(String, Model)]) -> Fingerprint {
        let column = |model: &Model| -> ArrayRef {
            match model {
                Model::Null => Arc::new(StringArray::from(vec![None::<&str>])),
                Model::Text(text) => Arc::new(StringArray::from(vec![text.as_str()])),
                Model::List(list) => Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(list.clone())])),
            }
        };
        let columns: Vec<(&str, ArrayRef)> =
            row.iter().rev().map(|(name, model)| (name.as_str(), column(model))).collect();
        Fingerprinter::default().of_rows(&columns, 1).unwrap()[0]
    }

    fn of_parts(parts: &[(String, String)]) -> Fingerprint {
        let part = |(extension, bytes): &(String, String)| Part {
            extension: extension.clone(),
            bytes: Bytes::from(bytes.clone()),
        };
        let parts = parts.iter().map(part).collect();
        Fingerprinter::default().of_sample(&Sample { key: "k".into(), origin: String::new(), subject: None, parts })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn rows_are_equal_exactly_if_their_fingerprints_are(a in row(), b in row()) {
            let present = |row: &[(String, Model)]| row.iter().filter(|(_,
                m)| *m != Model::Null).cloned().collect::<Vec<_>>();
            prop_assert_eq!(present(&a) == present(&b), of_row(&a) == of_row(&b));
        }

        #[test]
        fn samples_are_equal_exactly_if_their_fingerprints_are(
            a in prop::collection::btree_map("[ab\u{1}]{0,2}", "[ab\u{1}\u{2}]{0,3}", 0..3),
            b in prop::collection::btree_map("[ab\u{1}]{0,2}", "[ab\u{1}\u{2}]{0,3}", 0..3),
        ) {
            let parts = |of: &std::collections::BTreeMap<String, String>| of.clone().into_iter().collect::<Vec<_>>();
            prop_assert_eq!(a == b, of_parts(&parts(&a)) == of_parts(&parts(&b)));
        }

        #[test]
        fn integers_and_floats_agree_with_their_values(a in -3_i64..3, b in -6_i64..6) {
            let float = b as f64 / 2.0;
            let equal = all("x", Int64Array::from(vec![a]))[0] == all("x", Float64Array::from(vec![float]))[0];
            prop_assert_eq!(equal, a as f64 == float);
        }
    }
}
