//! Parses values of a column type that the user chose, from text or from JSON; the inverse of `record::json`.
//!
//! ```text
//! type          text                                      in JSON
//! numbers       5  -0.25  1e3                             numbers, or strings of them
//! decimal       0.10, if all digits fit                   the same, never converted through a float
//! binary        base64                                    strings
//! date          2024-02-29                                strings
//! time          23:59[:59[.999]]                          strings
//! timestamp     2024-02-29 23:59:59[.999]                 strings
//!   with zone   the same with Z, +01:00, +0100 or +01     strings
//! duration      PT1H30M, P1DT2H, 26:30:00, 1 day 2:30:00  strings
//! json          a JSON document                           any value
//! ```
//!
//! A value that the type cannot hold exactly is rejected, except for decimal fractions in float columns, which become
//! the nearest float.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, UInt64Array, make_array, new_null_array},
    buffer::{BooleanBuffer, Buffer, NullBuffer},
    compute::{cast, concat, take},
    datatypes::{ArrowPrimitiveType, DataType, Field, Float16Type, i256},
};
use serde::de::IgnoredAny;

use super::{
    interval::{Interval, is_interval},
    json, time,
    widen::{ValueMismatch, cast_array},
};
use crate::{codec::base64::from_base64, error::Result, schema};

/// Milliseconds of a day, the unit of `Date64` values.
const MS_PER_DAY: i64 = 86_400_000;

/// Maximum digits of the widest decimal.
const MAX_DIGITS: usize = 76;

/// A value in the form of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// Text, without quotes and escapes.
    Text(&'a str),
    /// A JSON number.
    Number(&'a str),
    /// A JSON boolean.
    Boolean(bool),
}

/// Scalar values of one type; the caller keeps track of which are null.
#[derive(Debug)]
pub struct Typed {
    field: Field,
    /// Bytes of a value; `None` if values vary in length.
    width: Option<usize>,
    bytes: Vec<u8>,
    /// Ends of values that vary in length.
    ends: Vec<usize>,
    len: usize,
}

impl Typed {
    /// Creates an empty column of the field's type; `None` if values of the type have no text form.
    pub fn new(field: &Field) -> Option<Self> {
        let width = value_width(field.data_type())?;
        Some(Self { field: field.clone(), width, bytes: Vec::new(), ends: Vec::new(), len: 0 })
    }

    /// Appends a value; returns `false` and appends nothing if the type cannot hold it.
    pub fn push(&mut self, value: Form<'_>) -> bool {
        let before = self.bytes.len();
        let taken = append_value(&self.field, value, &mut self.bytes).is_some();
        if taken {
            self.end_value();
        } else {
            self.bytes.truncate(before);
        }
        taken
    }

    /// Appends a placeholder for a null.
    pub fn push_null(&mut self) {
        let length = self.bytes.len() + self.width.unwrap_or(0);
        self.bytes.resize(length, 0);
        self.end_value();
    }

    fn end_value(&mut self) {
        self.len += 1;
        if self.width.is_none() {
            self.ends.push(self.bytes.len());
        }
    }

    /// Keeps the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            self.ends.truncate(len);
            let bytes = self.width.map_or_else(|| self.ends.last().copied().unwrap_or(0), |width| width * len);
            self.bytes.truncate(bytes);
        }
    }

    /// Returns the values as an array and empties the column.
    ///
    /// # Errors
    /// When the length of `nulls` differs from the number of values.
    pub fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let (bytes, ends, len) =
            (std::mem::take(&mut self.bytes), std::mem::take(&mut self.ends), std::mem::take(&mut self.len));
        let data_type = self.field.data_type();
        if data_type == &DataType::Boolean {
            let bits = BooleanBuffer::collect_bool(len, |i| bytes[i] != 0);
            return Ok(Arc::new(BooleanArray::new(bits, nulls)));
        }
        let mut data = ArrayData::builder(data_type.clone()).len(len).nulls(nulls).align_buffers(true);
        if self.width.is_none() {
            let ends = std::iter::once(0).chain(ends);
            data = data.add_buffer(match data_type {
                DataType::LargeUtf8 | DataType::LargeBinary => {
                    Buffer::from_vec(ends.map(|end| i64::try_from(end).unwrap_or(i64::MAX)).collect())
                }
                _ => Buffer::from_vec(ends.map(|end| i32::try_from(end).unwrap_or(i32::MAX)).collect()),
            });
        }
        Ok(make_array(data.add_buffer(Buffer::from_vec(bytes)).build()?))
    }
}

/// Returns the name of a type for messages, with the form of its values where that is not obvious.
pub fn describe_type(field: &Field) -> String {
    let name = schema::file::print_type(field);
    let form = match field.data_type() {
        DataType::Date32 | DataType::Date64 => "YYYY-MM-DD",
        DataType::Time32(_) | DataType::Time64(_) => "HH:MM:SS",
        DataType::Timestamp(_, None) => "YYYY-MM-DD HH:MM:SS",
        DataType::Timestamp(_, Some(_)) => "YYYY-MM-DDTHH:MM:SSZ",
        DataType::Duration(_) => "as PT1H30M or 01:30:00",
        _ if is_interval(field) => "as P1M2DT3.5S",
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => "base64",
        _ => return name,
    };
    format!("{name} ({form})")
}

/// Returns the bytes of a value, or `Some(None)` if values vary in length; `None` for types whose values have no text
/// form.
fn value_width(data_type: &DataType) -> Option<Option<usize>> {
    Some(match data_type {
        DataType::Boolean => Some(1),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => None,
        DataType::FixedSizeBinary(width) => Some(usize::try_from(*width).ok()?),
        primitive => Some(primitive.primitive_width()?),
    })
}

/// Appends a value in Arrow's binary representation.
fn append_value(field: &Field, value: Form<'_>, out: &mut Vec<u8>) -> Option<()> {
    use DataType as T;
    match (field.data_type(), value) {
        (T::Boolean, Form::Boolean(value)) => out.push(u8::from(value)),
        (T::Boolean, Form::Text(text)) => out.push(u8::from(parse_boolean(text)?)),
        (T::Utf8 | T::LargeUtf8, Form::Boolean(value)) => out.extend(value.to_string().bytes()),
        (T::Utf8, Form::Text(text)) if schema::is_json(field) => {
            serde_json::from_str::<IgnoredAny>(text).ok()?;
            out.extend(text.bytes());
        }
        (T::Utf8 | T::LargeUtf8, Form::Text(text) | Form::Number(text)) => out.extend(text.bytes()),
        (_, Form::Boolean(_)) => return None,
        (number, Form::Text(text) | Form::Number(text)) if number.is_numeric() => append_number(number, text, out)?,
        (_, Form::Number(_)) => return None,
        (T::Binary | T::LargeBinary, Form::Text(text)) => out.extend(from_base64(text)?),
        (interval, Form::Text(text)) if is_interval(field) => Interval::parse(text)?.push_bytes(interval, out)?,
        (T::FixedSizeBinary(width), Form::Text(text)) => {
            out.extend(from_base64(text).filter(|bytes| i32::try_from(bytes.len()) == Ok(*width))?);
        }
        (moment, Form::Text(text)) => append_time(moment, text.trim(), out)?,
    }
    Some(())
}

fn append_number(data_type: &DataType, text: &str, out: &mut Vec<u8>) -> Option<()> {
    use DataType as T;
    let integer = |digits| parse_decimal(text, digits, 0).and_then(i256::to_i128);
    match data_type {
        T::Int8 => out.extend(i8::try_from(integer(3)?).ok()?.to_ne_bytes()),
        T::Int16 => out.extend(i16::try_from(integer(5)?).ok()?.to_ne_bytes()),
        T::Int32 => out.extend(i32::try_from(integer(10)?).ok()?.to_ne_bytes()),
        T::Int64 => out.extend(i64::try_from(integer(19)?).ok()?.to_ne_bytes()),
        T::UInt8 => out.extend(u8::try_from(integer(3)?).ok()?.to_ne_bytes()),
        T::UInt16 => out.extend(u16::try_from(integer(5)?).ok()?.to_ne_bytes()),
        T::UInt32 => out.extend(u32::try_from(integer(10)?).ok()?.to_ne_bytes()),
        T::UInt64 => out.extend(u64::try_from(integer(20)?).ok()?.to_ne_bytes()),
        T::Float16 => {
            let wide = parse_float(text)?;
            let value = <Float16Type as ArrowPrimitiveType>::Native::from_f64(wide);
            out.extend(Some(value).filter(|value| value.is_finite() || !wide.is_finite())?.to_ne_bytes());
        }
        T::Float32 => {
            let value: f32 = fast_float2::parse(text.trim()).ok()?;
            out.extend(Some(value).filter(|value| value.is_finite() || is_named(text))?.to_ne_bytes());
        }
        T::Float64 => out.extend(parse_float(text)?.to_ne_bytes()),
        T::Decimal32(p, s) => out.extend(i32::try_from(parse_decimal(text, *p, *s)?.to_i128()?).ok()?.to_ne_bytes()),
        T::Decimal64(p, s) => out.extend(i64::try_from(parse_decimal(text, *p, *s)?.to_i128()?).ok()?.to_ne_bytes()),
        T::Decimal128(p, s) => out.extend(parse_decimal(text, *p, *s)?.to_i128()?.to_ne_bytes()),
        T::Decimal256(p, s) => out.extend(parse_decimal(text, *p, *s)?.to_le_bytes()),
        _ => return None,
    }
    Some(())
}

fn append_time(data_type: &DataType, text: &str, out: &mut Vec<u8>) -> Option<()> {
    use DataType as T;
    let long = match data_type {
        T::Date32 => {
            return {
                out.extend(time::parse_date(text)?.to_ne_bytes());
                Some(())
            };
        }
        T::Time32(unit) => {
            out.extend(i32::try_from(time::time_of_day(text, *unit)?).ok()?.to_ne_bytes());
            return Some(());
        }
        T::Date64 => match time::parse_date(text) {
            Some(days) => i64::from(days) * MS_PER_DAY,
            None => time::parse_local(text, arrow::datatypes::TimeUnit::Millisecond)?,
        },
        T::Time64(unit) => time::time_of_day(text, *unit)?,
        T::Timestamp(unit, None) => time::parse_local(text, *unit)?,
        T::Timestamp(unit, Some(_)) => time::parse_instant(text, *unit)?,
        T::Duration(unit) => time::parse_duration(text, *unit)?,
        _ => return None,
    };
    out.extend(long.to_ne_bytes());
    Some(())
}

/// Parses a boolean in delimited text.
pub fn parse_boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Parses the nearest float; `None` for numbers beyond its range.
pub fn parse_float(text: &str) -> Option<f64> {
    let value: f64 = fast_float2::parse(text.trim()).ok()?;
    (value.is_finite() || is_named(text)).then_some(value)
}

/// Whether a float is written as a name (`NaN`, `-Infinity`).
fn is_named(text: &str) -> bool {
    text.trim().trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Parses an integer; `None` if there is a fraction, or too many digits.
pub fn parse_integer(text: &str) -> Option<i64> {
    i64::try_from(parse_decimal(text, 19, 0)?.to_i128()?).ok()
}

/// Parses a number in units of the last digit of `scale`; `None` if it has more than `precision` digits, or more
/// decimal places.
fn parse_decimal(text: &str, precision: u8, scale: i8) -> Option<i256> {
    let text = text.trim();
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let shift = i64::from(scale) + i64::from(exponent) - i64::try_from(fraction.len()).ok()?;
    let significant = digits.trim_matches('0');
    if significant.is_empty() {
        return Some(i256::ZERO);
    }
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    let zeros = usize::try_from(shift + i64::try_from(zeros).ok()?).ok()?;
    if significant.len() + zeros > usize::from(precision).min(MAX_DIGITS) {
        return None;
    }
    digits = format!("{}{significant}{:0<zeros$}", if negative { "-" } else { "" }, "");
    digits.parse().ok()
}

/// Converted values, null where the target type cannot hold them, and the rows and values that did not fit.
pub type Converted = (ArrayRef, Vec<(usize, String)>);

/// Converts values of a source that states its types to the type that the user chose for the column. Also returns the
/// rows and values that the type cannot hold.
///
/// Text, including JSON documents, is parsed in the type's text form; bytes become text unchanged.
///
/// # Errors
/// When the type can hold no value of the column.
pub fn convert_column(array: &ArrayRef, from: &Field, to: &Field) -> Result<Result<Converted, ValueMismatch>> {
    if let DataType::Dictionary(_, value) = array.data_type() {
        return convert_column(&cast(array, value)?, &from.clone().with_data_type(value.as_ref().clone()), to);
    }
    let same = array.data_type() == to.data_type() && schema::is_json(from) == schema::is_json(to);
    let binary = matches!(array.data_type(), DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_));
    if same {
        return Ok(Ok((Arc::clone(array), Vec::new())));
    }
    let bytes = matches!(to.data_type(), DataType::Binary | DataType::LargeBinary);
    let text = matches!(to.data_type(), DataType::Utf8 | DataType::LargeUtf8);
    if array.data_type().is_string()
        && !bytes
        && (!text || schema::is_json(to))
        && let Some(typed) = Typed::new(to)
    {
        return parse_texts(&cast(array, &DataType::LargeUtf8)?, typed).map(Ok);
    }
    if binary
        && text
        && let Some(typed) = Typed::new(to)
    {
        return decode_bytes(&cast(array, &DataType::LargeBinary)?, typed).map(Ok);
    }
    let mut unfit = Vec::new();
    let mut parts = Vec::new();
    if let Err(error) = cast_part(array, 0, from, to, &mut parts, &mut unfit) {
        return Ok(Err(error));
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(Ok((if parts.is_empty() { new_null_array(to.data_type(), 0) } else { concat(&parts)? }, unfit)))
}

/// Parses texts.
fn parse_texts(texts: &ArrayRef, mut typed: Typed) -> Result<Converted> {
    let mut unfit = Vec::new();
    for (row, text) in texts.as_string::<i64>().iter().enumerate() {
        if text.is_none_or(|text| !typed.push(Form::Text(text))) {
            typed.push_null();
            unfit.extend(text.map(|text| (row, text.to_owned())));
        }
    }
    finish_conversion(typed, texts, unfit)
}

/// Interprets bytes as text.
fn decode_bytes(values: &ArrayRef, mut typed: Typed) -> Result<Converted> {
    let mut unfit = Vec::new();
    for (row, bytes) in values.as_binary::<i64>().iter().enumerate() {
        if bytes.is_none_or(|bytes| !std::str::from_utf8(bytes).is_ok_and(|text| typed.push(Form::Text(text)))) {
            typed.push_null();
            unfit.extend(bytes.map(|bytes| (row, String::from_utf8_lossy(bytes).into_owned())));
        }
    }
    finish_conversion(typed, values, unfit)
}

fn finish_conversion(mut typed: Typed, given: &ArrayRef, unfit: Vec<(usize, String)>) -> Result<Converted> {
    let mut valid: Vec<bool> = (0..given.len()).map(|row| given.is_valid(row)).collect();
    unfit.iter().for_each(|(row, _)| valid[*row] = false);
    Ok((typed.finish(Some(NullBuffer::from(valid)))?, unfit))
}

/// Casts all values that fit and replaces the others by nulls; bisects ranges that do not fit as a whole.
fn cast_part(
    array: &ArrayRef,
    first: usize,
    from: &Field,
    to: &Field,
    parts: &mut Vec<ArrayRef>,
    unfit: &mut Vec<(usize, String)>,
) -> Result<(), ValueMismatch> {
    match cast_array(array, from, to) {
        Ok(cast) => parts.push(cast),
        Err(error) if !error.by_value => return Err(error),
        Err(_) if array.len() == 1 => {
            parts.push(new_null_array(to.data_type(), 1));
            unfit.push((first, json::text_of(array, 0).unwrap_or_default()));
        }
        Err(_) => {
            let half = array.len() / 2;
            cast_part(&slice_rows(array, 0..half), first, from, to, parts, unfit)?;
            cast_part(&slice_rows(array, half..array.len()), first + half, from, to, parts, unfit)?;
        }
    }
    Ok(())
}

/// Returns a range of rows; lists without the items of other rows, which must not affect the cast.
fn slice_rows(array: &ArrayRef, rows: Range<usize>) -> ArrayRef {
    let slice = array.slice(rows.start, rows.len());
    if !array.data_type().is_nested() {
        return slice;
    }
    let numbers = UInt64Array::from_iter_values(rows.map(|row| row as u64));
    take(array, &numbers, None).unwrap_or(slice)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{BinaryArray, Int64Array, ListArray, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::schema::file::parse_type;

    /// Returns values as text again; `-` for those that did not fit.
    fn read_back(data_type: &str, values: &[Form<'_>]) -> Vec<String> {
        let field = parse_type(data_type).unwrap();
        let read = |value: &Form<'_>| {
            let mut typed = Typed::new(&field).unwrap();
            typed.push_null();
            if !typed.push(*value) {
                return "-".to_owned();
            }
            let array = typed.finish(None).unwrap();
            assert_eq!((array.data_type(), array.len()), (field.data_type(), 2), "{data_type}");
            json::text_of(&array, 1).unwrap()
        };
        values.iter().map(read).collect()
    }

    fn texts(data_type: &str, values: &[&str]) -> Vec<String> {
        read_back(data_type, &values.iter().map(|value| Form::Text(value)).collect::<Vec<_>>())
    }

    #[test]
    fn numbers_fit_exactly_or_not_at_all() {
        assert_eq!(
            texts("int8", &["127", "128", "-128", "+5", " 007 ", "5.0", "1e2", "5.5", ""]),
            ["127", "-", "-128", "5", "7", "5", "100", "-", "-"]
        );
        assert_eq!(
            texts("uint64", &["18446744073709551615", "18446744073709551616", "-1", "-0"]),
            ["18446744073709551615", "-", "-", "0"]
        );
        assert_eq!(texts("float32", &["0.1", "1e39", "-Infinity", "NaN", "x"]), ["0.1", "-", "-Infinity", "NaN", "-"]);
        assert_eq!(texts("float16", &["0.5", "70000", "inf"]), ["0.5", "-", "Infinity"]);
        assert_eq!(texts("float64", &["0.1", "1e400", "1_0"]), ["0.1", "-", "-"]);
        for (data_type, digits) in
            [("decimal32", 7), ("decimal64", 7), ("decimal", 7), ("decimal256", 7), ("decimal", 50)]
        {
            assert_eq!(
                texts(
                    &format!("{data_type}({digits}, 2)"),
                    &["1.5", "-12345.670", "0.001", "1e-2", "100e2", ".5", ".", "1.2.3"]
                ),
                ["1.50", "-12345.67", "-", "0.01", "10000.00", "0.50", "-", "-"]
            );
        }
        assert_eq!(texts("decimal(5, 2)", &["999.99", "1000", "0e99", "1e99999999999"]), ["999.99", "-", "0.00", "-"]);
        assert_eq!(texts("decimal(3, -2)", &["12300", "12345"]), ["12300", "-"]);
        let numbers = [Form::Number("0.30"), Form::Number("1"), Form::Boolean(true)];
        assert_eq!(read_back("decimal(10, 2)", &numbers), ["0.30", "1.00", "-"]);
        assert_eq!(
            read_back("bool", &[Form::Boolean(true), Form::Text("FALSE"), Form::Number("1")]),
            ["true", "false", "-"]
        );
    }

    #[test]
    fn every_other_type_has_a_text_form() {
        for (data_type, good, bad) in [
            ("date", "2024-02-29", "2024-02-30"),
            ("date_ms", "2024-02-29", "2024"),
            ("time(s)", "23:59:58", "23:59:58.5"),
            ("time(us)", "23:59:58.123456", "24:00:00"),
            ("timestamp", "2024-02-29T23:59:58.123456", "2024-02-29T23:59:58Z"),
            ("timestamp(ns)", "2024-02-29T23:59:58.123456789", "yesterday"),
            ("timestamp(ms, Europe/Paris)", "2024-02-29T23:59:58.123Z", "2024-02-29T23:59:58"),
            ("instant", "2024-02-29T23:59:58Z", "2024-02-29 23:59:58"),
            ("duration(ms)", "PT5.123S", "PT5.1234S"),
            ("binary", "AP8=", "x"),
            ("large_binary", "", "AP8"),
            ("fixed_binary(2)", "AP8=", "AA=="),
            ("json", "{\"a\": [1]}", "x"),
            ("large_text", "é", "\u{0}"),
        ] {
            let bad = texts(data_type, &[good, bad]);
            assert_eq!(bad[0], good, "{data_type}");
            assert_eq!(bad[1] == "-", data_type != "large_text", "{data_type}");
        }
        assert_eq!(read_back("date", &[Form::Number("5"), Form::Boolean(true)]), ["-", "-"]);
        assert!(Typed::new(&parse_type("list<date>").unwrap()).is_none());
    }

    #[test]
    fn truncated_values_are_removed() {
        for data_type in ["int32", "binary", "large_text"] {
            let mut typed = Typed::new(&parse_type(data_type).unwrap()).unwrap();
            for text in ["1234", "5678", "9012"] {
                assert!(typed.push(Form::Text(text)));
            }
            typed.truncate(1);
            assert!(typed.push(Form::Text("3456")));
            let array = typed.finish(None).unwrap();
            assert_eq!(array.len(), 2);
            assert_eq!(json::text_of(&array, 1).unwrap(), "3456", "{data_type}");
        }
    }

    fn converted(array: impl Array + 'static, from: &str, to: &str) -> (Vec<Option<String>>, Vec<(usize, String)>) {
        let (from, to) = (parse_type(from).unwrap(), parse_type(to).unwrap());
        let (array, unfit) = convert_column(&(Arc::new(array) as ArrayRef), &from, &to).unwrap().unwrap();
        assert_eq!(array.data_type(), to.data_type());
        ((0..array.len()).map(|row| json::text_of(&array, row)).collect(), unfit)
    }

    #[test]
    fn typed_values_are_converted_if_they_fit() {
        let some = |text: &str| Some(text.to_owned());
        let numbers = Int64Array::from(vec![Some(1), None, Some(1 << 40), Some(-5), Some(1 << 41)]);
        assert_eq!(
            converted(numbers, "int64", "int32"),
            (
                vec![some("1"), None, None, some("-5"), None],
                vec![(2, "1099511627776".into()), (4, "2199023255552".into())]
            )
        );
        let words = StringArray::from(vec![Some("2024-01-02"), None, Some("x")]);
        assert_eq!(converted(words, "text", "date"), (vec![some("2024-01-02"), None, None], vec![(2, "x".into())]));
        let documents = StringArray::from(vec!["{}", "x"]);
        assert_eq!(converted(documents, "text", "json"), (vec![some("{}"), None], vec![(1, "x".into())]));
        let bytes = BinaryArray::from(vec![&b"abc"[..], b"\xff"]);
        assert_eq!(converted(bytes, "binary", "text"), (vec![some("abc"), None], vec![(1, "\u{fffd}".into())]));
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)]), Some(vec![Some(300)])]);
        assert_eq!(
            converted(lists, "list<int64>", "list<uint8>"),
            (vec![some("[1]"), None], vec![(1, "[300]".into())])
        );
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let (from, to) = (parse_type("int64").unwrap(), parse_type("list<int64>").unwrap());
        assert!(!convert_column(&numbers, &from, &to).unwrap().unwrap_err().by_value);
    }
}
