//! The type that holds every value of two columns.
//!
//! | given | united |
//! |---|---|
//! | integers | the smallest integer that holds both; beside `uint64`, signed ones need `decimal(20, 0)` |
//! | integer and float | float64; integers that no float can represent are detected when they are read |
//! | floats | the wider one |
//! | decimals, decimal and integer | decimal with the digits of both before and after the point, while there are 76 |
//! | timestamps, times, durations of two units | the finer unit; values that overflow are detected when they are read |
//! | timestamps whose source states no unit (INT96), and coarser ones | microseconds |
//! | intervals of two types | interval(month_day_nano) |
//! | date and date with milliseconds | the latter |
//! | text and large text, binary and large binary | the large one |
//! | text and binary, binary of fixed and other sizes | binary |
//! | list and large list, lists of fixed and other sizes | list or large list of the united items |
//! | struct, map | united by name; keys and values united |
//! | JSON and text, if sources state these types | text |
//! | dictionaries, views, run ends | as their values |
//!
//! A logical type ([`Logical`](super::Logical)) is kept if both columns have it.
//!
//! All other pairs have no common type. Then text holds scalars, and JSON text holds anything with structure. If the
//! sources state their types, such a pair is an error instead ([`unite_conflict`]).

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, IntervalUnit, TimeUnit,
};

use super::{
    Logical, REPEATED, WHOLE_MICROS, WIDE, is_json, is_scalar, json_field,
    logical::{as_stated, is_stated, united_marks},
    mark_repeated,
    plain::map_of_fields,
    tensor::{tensor_item, united_shapes},
    tensor_dims, tensor_shape, unite_lists, wide_field,
};

/// Returns the field that holds every value of both; always nullable and named as `a`.
pub fn unite_fields(a: &Field, b: &Field) -> Field {
    let name = a.name();
    if let (Some(one), Some(other)) = (tensor_shape(a), tensor_shape(b))
        && one == other
        && let (DataType::FixedSizeList(x, _), DataType::FixedSizeList(y, _)) = (a.data_type(), b.data_type())
        && let Some(united) = super::tensor::unite_tensors(a, b, unite_fields(x, y))
    {
        return united;
    }
    if let (Some(x), Some(y)) = (tensor_item(a), tensor_item(b))
        && let Some(united) = united_shapes(a, b, unite_fields(x, y))
    {
        return united;
    }
    if is_json(a) || is_json(b) {
        return unite_json(a, b);
    }
    if [a, b].iter().all(|field| field.metadata().contains_key(REPEATED)) {
        return unite_repeated(a, b);
    }
    if let Some(united) = unite_intervals(a, b).or_else(|| unite_micros(a, b)) {
        return united;
    }
    let wide = a.metadata().contains_key(WIDE) || b.metadata().contains_key(WIDE);
    match (a.data_type(), b.data_type()) {
        (DataType::Int64, DataType::Int64 | DataType::Null) | (DataType::Null, DataType::Int64) if wide => {
            wide_field(name)
        }
        (DataType::Int64, DataType::Float64) | (DataType::Float64, DataType::Int64) if wide => {
            Field::new(name, DataType::Utf8, true)
        }
        (x, y) => match unite_types(x, y) {
            Some(united) => {
                let marks = united_marks(a, b, &united);
                Field::new(name, united, true).with_metadata(marks)
            }
            None if is_scalar(x) && is_scalar(y) => Field::new(name, DataType::Utf8, true),
            None => json_field(name),
        },
    }
}

/// Unites two columns of which at least one holds JSON documents.
fn unite_json(a: &Field, b: &Field) -> Field {
    use DataType::{LargeUtf8, Null, Utf8, Utf8View};
    let json = json_field(a.name());
    let states = |field: &Field| is_json(field) && is_stated(field);
    match (states(a), states(b)) {
        (true, true) => as_stated(json),
        (true, false) | (false, true) => {
            let other = if states(a) { b } else { a };
            match other.data_type() {
                Null => as_stated(json),
                // As text the documents stay unchanged; as documents the texts would get quotes.
                Utf8 | Utf8View if !is_json(other) => Field::new(a.name(), Utf8, true),
                LargeUtf8 if !is_json(other) => Field::new(a.name(), LargeUtf8, true),
                _ => json,
            }
        }
        (false, false) => json,
    }
}

/// Unites two columns of intervals of different types.
fn unite_intervals(a: &Field, b: &Field) -> Option<Field> {
    let is_interval = |field: &Field| {
        matches!(field.data_type(), DataType::Interval(_)) || Logical::from_field(field) == Some(Logical::Interval)
    };
    (is_interval(a) && is_interval(b) && a.data_type() != b.data_type())
        .then(|| Field::new(a.name(), DataType::Interval(IntervalUnit::MonthDayNano), true))
}

/// Unites timestamps with ones whose unit is not stated, if the others are coarser: microseconds hold both, and reach
/// further than nanoseconds.
fn unite_micros(a: &Field, b: &Field) -> Option<Field> {
    let open = |field: &Field| field.metadata().contains_key(WHOLE_MICROS);
    let is_coarse = |field: &Field| match field.data_type() {
        DataType::Timestamp(unit, _) => *unit < TimeUnit::Nanosecond,
        _ => false,
    };
    let coarser = |field: &Field| match field.data_type() {
        DataType::Timestamp(_, zone) => {
            Field::new(a.name(), DataType::Timestamp(TimeUnit::Microsecond, zone.clone()), true)
        }
        _ => field.clone(),
    };
    match (open(a) && is_coarse(b), open(b) && is_coarse(a)) {
        (true, _) => Some(unite_fields(&coarser(a), b)),
        (_, true) => Some(unite_fields(a, &coarser(b))),
        _ => None,
    }
}

/// Unites two columns that are both marked as [`mark_repeated`].
fn unite_repeated(a: &Field, b: &Field) -> Field {
    let item = |field: &Field| match field.data_type() {
        DataType::List(item) => item.as_ref().clone(),
        _ => Field::new_list_field(field.data_type().clone(), true),
    };
    let united = match (item(a), item(b)) {
        // Bytes that are not text can only stay binary.
        (x, y) if *x.data_type() == DataType::Binary || *y.data_type() == DataType::Binary => {
            Field::new_list_field(DataType::Binary, true)
        }
        (x, y) => unite_fields(&x, &y),
    };
    let list = [a, b].iter().any(|field| matches!(field.data_type(), DataType::List(_)));
    let data_type = if list { DataType::List(Arc::new(united)) } else { united.data_type().clone() };
    mark_repeated(Field::new(a.name(), data_type, true))
}

/// Returns why two columns of sources that state their types should not be united: both types, if only text can hold
/// the values of both. The message names the place within the column.
pub fn unite_conflict(a: &Field, b: &Field) -> Option<String> {
    conflict_at(a.name(), a, b)
}

fn conflict_at(path: &str, a: &Field, b: &Field) -> Option<String> {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct};
    match (a.data_type(), b.data_type()) {
        (DataType::Null, _) | (_, DataType::Null) => None,
        _ if tensor_dims(a).map(|dims| dims.len()) != tensor_dims(b).map(|dims| dims.len()) => {
            let shape = |field| tensor_dims(field).map_or_else(|| "none".to_owned(), |dims| print_dims(&dims));
            Some(format!("`{path}` has the shapes {} and {}", shape(a), shape(b)))
        }
        _ if tensor_dims(a).is_some() => {
            let (x, y) = tensor_item(a).zip(tensor_item(b))?;
            conflict_at(&format!("{path}[]"), x, y)
        }
        _ if unite_intervals(a, b).is_some() => None,
        _ if is_json(a) != is_json(b) && is_json(&unite_json(a, b)) => {
            Some(format!("`{path}` is {} and {}", describe_type(a), describe_type(b)))
        }
        (Struct(x), Struct(y)) => x.iter().find_map(|field| {
            let (_, other) = y.find(field.name())?;
            conflict_at(&format!("{path}.{}", field.name()), field, other)
        }),
        (List(x) | LargeList(x) | FixedSizeList(x, _), List(y) | LargeList(y) | FixedSizeList(y, _)) => {
            conflict_at(&format!("{path}[]"), x, y)
        }
        (Map(x, _), Map(y, _)) => conflict_at(path, x, y),
        (x, y) if unite_types(x, y).is_some() => None,
        _ => Some(format!("`{path}` is {} and {}", describe_type(a), describe_type(b))),
    }
}

/// Formats a shape: `[2, ?]` if the second length is unknown.
pub fn print_dims(dims: &[Option<usize>]) -> String {
    let length = |dim: &Option<usize>| dim.map_or_else(|| "?".to_owned(), |length| length.to_string());
    format!("[{}]", dims.iter().map(length).collect::<Vec<_>>().join(", "))
}

fn describe_type(field: &Field) -> String {
    if is_json(field) { "json".to_owned() } else { super::file::print_type(field) }
}

/// Returns the type that holds all values of both without loss; within structs and lists, text is used if there is
/// none.
fn unite_types(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Dictionary, Duration, FixedSizeBinary, FixedSizeList, LargeBinary,
        LargeList, LargeUtf8, List, Map, Null, RunEndEncoded, Struct, Time32, Time64, Timestamp, Utf8, Utf8View,
    };
    Some(match (a, b) {
        (x, y) if x == y => x.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Dictionary(_, value), other) | (other, Dictionary(_, value)) => unite_types(value, other)?,
        (RunEndEncoded(_, value), other) | (other, RunEndEncoded(_, value)) => unite_types(value.data_type(), other)?,
        (x, y) if x.is_numeric() && y.is_numeric() => unite_numbers(x, y)?,
        (Timestamp(x, zone), Timestamp(y, other)) if zone.is_some() == other.is_some() => {
            // An instant is the same in every zone.
            let zone = if zone == other { zone.clone() } else { Some("UTC".into()) };
            Timestamp(*x.max(y), zone)
        }
        (Duration(x), Duration(y)) => Duration(*x.max(y)),
        (Time32(x) | Time64(x), Time32(y) | Time64(y)) => match *x.max(y) {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => Time32(unit),
            unit => Time64(unit),
        },
        (Date32 | Date64, Date32 | Date64) => Date64,
        (LargeUtf8, Utf8 | Utf8View) | (Utf8 | Utf8View, LargeUtf8) => LargeUtf8,
        (Utf8 | Utf8View, Utf8 | Utf8View) => Utf8,
        (x, y) if is_bytes(x) && is_bytes(y) => {
            let large = |t: &DataType| matches!(t, LargeUtf8 | LargeBinary);
            if large(x) || large(y) { LargeBinary } else { Binary }
        }
        (Binary | BinaryView | FixedSizeBinary(_), _) => return None,
        (FixedSizeList(x, n), FixedSizeList(y, m)) if n == m => FixedSizeList(unite_items(x, y), *n),
        (LargeList(x), List(y) | LargeList(y) | FixedSizeList(y, _)) => LargeList(unite_items(x, y)),
        (List(x) | FixedSizeList(x, _), LargeList(y)) => LargeList(unite_items(x, y)),
        (List(x) | FixedSizeList(x, _), List(y) | FixedSizeList(y, _)) => List(unite_items(x, y)),
        (Struct(x), Struct(y)) => Struct(unite_lists(x, y)),
        (Map(x, _), Map(y, _)) => return unite_maps(x, y),
        _ => return None,
    })
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
}

fn unite_items(a: &FieldRef, b: &FieldRef) -> FieldRef {
    Arc::new(unite_fields(a, b))
}

fn unite_maps(a: &Field, b: &Field) -> Option<DataType> {
    let (DataType::Struct(a), DataType::Struct(b)) = (a.data_type(), b.data_type()) else { return None };
    let ([key_a, value_a], [key_b, value_b]) = (&a[..], &b[..]) else { return None };
    // Keys and values without a common type are left to the sources to resolve.
    unite_types(key_a.data_type(), key_b.data_type())?;
    unite_types(value_a.data_type(), value_b.data_type())?;
    Some(map_of_fields(unite_fields(key_a, key_b), unite_fields(value_a, value_b)))
}

/// Returns the number type that holds all values of two different ones.
fn unite_numbers(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Float16, Float32, Float64, Int64};
    match (a, b) {
        (x, y) if x.is_integer() && y.is_integer() => unite_integers(x, y),
        (Float16, Float32) | (Float32, Float16) => Some(Float32),
        (x, y) if x.is_floating() && y.is_floating() => Some(Float64),
        (x, y) if x.is_floating() && y.is_integer() || x.is_integer() && y.is_floating() => Some(Float64),
        (x, y) if x.is_floating() || y.is_floating() => None,
        (x, y) => {
            let ((p, s), (q, t)) = (
                precision_and_scale(x).or_else(|| precision_and_scale(&Int64))?,
                precision_and_scale(y).or_else(|| precision_and_scale(&Int64))?,
            );
            let scale = s.max(t);
            let whole = (i16::from(p) - i16::from(s)).max(i16::from(q) - i16::from(t)).max(0);
            decimal_type(u8::try_from(whole + i16::from(scale)).ok()?, scale)
        }
    }
}

/// Returns the smallest integer type that holds both.
fn unite_integers(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let (width_a, width_b) = (a.primitive_width()?, b.primitive_width()?);
    let (signed_a, signed_b) = (a.is_signed_integer(), b.is_signed_integer());
    let width = match (signed_a, signed_b) {
        (true, false) => width_a.max(2 * width_b),
        (false, true) => width_b.max(2 * width_a),
        _ => width_a.max(width_b),
    };
    Some(match (signed_a || signed_b, width) {
        (true, 1) => Int8,
        (true, 2) => Int16,
        (true, 4) => Int32,
        (true, 8) => Int64,
        (false, 1) => UInt8,
        (false, 2) => UInt16,
        (false, 4) => UInt32,
        (false, _) => UInt64,
        (true, _) => return decimal_type(20, 0),
    })
}

/// Returns the number of digits in total and after the point.
fn precision_and_scale(data_type: &DataType) -> Option<(u8, i8)> {
    use DataType::{
        Decimal32, Decimal64, Decimal128, Decimal256, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64,
    };
    Some(match data_type {
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) | Decimal256(p, s) => (*p, *s),
        Int8 | UInt8 => (3, 0),
        Int16 | UInt16 => (5, 0),
        Int32 | UInt32 => (10, 0),
        Int64 => (19, 0),
        UInt64 => (20, 0),
        _ => return None,
    })
}

fn decimal_type(precision: u8, scale: i8) -> Option<DataType> {
    match precision {
        p if p <= DECIMAL128_MAX_PRECISION => Some(DataType::Decimal128(p, scale)),
        p if p <= DECIMAL256_MAX_PRECISION => Some(DataType::Decimal256(p, scale)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::map_of, *};

    fn unite(a: DataType, b: DataType) -> DataType {
        let (a, b) = (Field::new("c", a, true), Field::new("c", b, true));
        let (ab, ba) = (unite_fields(&a, &b), unite_fields(&b, &a));
        assert_eq!(ab, ba);
        ab.data_type().clone()
    }

    #[test]
    fn numbers_widen_no_further_than_they_must() {
        use DataType::{
            Decimal128, Decimal256, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt32, UInt64,
        };
        for (a, b, expected) in [
            (Int8, Int16, Int16),
            (UInt8, Int8, Int16),
            (UInt32, Int32, Int64),
            (UInt32, UInt64, UInt64),
            (UInt64, Int8, Decimal128(20, 0)),
            (Float16, Float32, Float32),
            (Int32, Float32, Float64),
            (Decimal128(10, 2), Decimal128(5, 4), Decimal128(12, 4)),
            (Decimal128(10, 2), Int64, Decimal128(21, 2)),
            (Decimal128(38, 2), Decimal128(20, 10), Decimal256(46, 10)),
            (Decimal128(10, 2), Float64, DataType::Utf8),
            (Decimal256(76, 0), Decimal256(76, 76), DataType::Utf8),
        ] {
            assert_eq!(unite(a.clone(), b.clone()), expected, "{a} and {b}");
        }
    }

    #[test]
    fn times_take_the_finer_unit() {
        use DataType::{Date32, Date64, Time32, Time64, Timestamp, Utf8};
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        let zone = |name: &str| Some(name.into());
        for (a, b, expected) in [
            (Timestamp(Second, None), Timestamp(Nanosecond, None), Timestamp(Nanosecond, None)),
            (Timestamp(Second, zone("UTC")), Timestamp(Second, zone("Asia/Tokyo")), Timestamp(Second, zone("UTC"))),
            (Timestamp(Second, None), Timestamp(Second, zone("UTC")), Utf8),
            (Time32(Millisecond), Time64(Microsecond), Time64(Microsecond)),
            (Date32, Date64, Date64),
            (Date32, Timestamp(Second, None), Utf8),
        ] {
            assert_eq!(unite(a.clone(), b.clone()), expected, "{a} and {b}");
        }
    }

    #[test]
    fn bytes_and_lists_take_the_larger_form() {
        use DataType::{
            Binary, FixedSizeBinary, FixedSizeList, Int8, Int16, LargeBinary, LargeList, LargeUtf8, List, Utf8,
            Utf8View,
        };
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        for (a, b, expected) in [
            (Utf8, LargeUtf8, LargeUtf8),
            (Utf8, Utf8View, Utf8),
            (Utf8, Binary, Binary),
            (FixedSizeBinary(2), FixedSizeBinary(3), Binary),
            (FixedSizeBinary(2), LargeUtf8, LargeBinary),
            (DataType::Dictionary(Box::new(Int8), Box::new(Utf8)), Utf8, Utf8),
            (List(item(Int8)), FixedSizeList(item(Int16), 3), List(item(Int16))),
            (List(item(Int8)), LargeList(item(Int8)), LargeList(item(Int8))),
            (map_of(Utf8, Int8), map_of(Utf8, Int16), map_of(Utf8, Int16)),
            (Binary, Int8, Utf8),
        ] {
            assert_eq!(unite(a.clone(), b.clone()), expected, "{a} and {b}");
        }
    }

    #[test]
    fn conflicts_name_their_place() {
        let field = |data_type| Field::new("c", data_type, true);
        let of_x = |data_type| field(DataType::Struct(vec![Field::new("x", data_type, true)].into()));
        assert_eq!(unite_conflict(&field(DataType::Int8), &field(DataType::Float64)), None);
        assert_eq!(unite_conflict(&of_x(DataType::Int8), &of_x(DataType::Int64)), None);
        let found = unite_conflict(&of_x(DataType::Int8), &of_x(DataType::Utf8));
        assert_eq!(found.as_deref(), Some("`c.x` is int8 and text"));
        let found = unite_conflict(&of_x(DataType::Int8), &field(DataType::Int8));
        assert_eq!(found.as_deref(), Some("`c` is struct<x: int8> and int8"));
    }
}
