//! Decoding of features to columns: the inverse of `example`.
//!
//! Values arrive as numbers, as bytes, or as JSON if a list holds a null or values are nested. A column accepts every
//! representation of a value of its type, and reports values that do not fit.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Date32Builder, Float32Builder, Float64Builder,
        Int64Builder, ListArray, MapArray, NullArray, StringBuilder, StructArray, UInt64Builder,
        builder::NullBufferBuilder,
    },
    buffer::{NullBuffer, OffsetBuffer, ScalarBuffer},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, FieldRef, TimeUnit},
};
use serde_json::value::RawValue;

use super::{
    decode::{Exact, Feature},
    double::widen_float,
};
use crate::{
    codec::base64::from_base64,
    record::{duration, interval, time},
    schema,
};

/// A value does not fit the column's type; index of the value in its column.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowMismatch(pub(super) usize);

/// Returns the field that a column is read back as: the same, except that types for which shards only have a
/// description (unions, and lists of unusual kinds) become text.
pub(super) fn readable_field(field: &Field) -> Field {
    use DataType::{FixedSizeList, LargeList, LargeListView, List, ListView, Map, Struct};
    let inner = |field: &FieldRef| Arc::new(readable_field(field));
    let data_type = match field.data_type() {
        List(item) => List(inner(item)),
        LargeList(item) => LargeList(inner(item)),
        FixedSizeList(item, count) => FixedSizeList(inner(item), *count),
        ListView(item) if !item.data_type().is_nested() => ListView(inner(item)),
        LargeListView(item) if !item.data_type().is_nested() => LargeListView(inner(item)),
        Struct(fields) => Struct(fields.iter().map(inner).collect()),
        Map(entries, sorted) => Map(inner(entries), *sorted),
        scalar if is_readable(scalar) => scalar.clone(),
        _ => DataType::Utf8,
    };
    field.clone().with_data_type(data_type)
}

fn is_readable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => !values.is_nested() && is_readable(values),
        other => !other.is_nested(),
    }
}

/// One value of a scalar column, or one item of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    Int(i64),
    Float(f32),
    Double(f64),
    Bytes(&'a [u8]),
    Json(&'a RawValue),
}

impl<'a> Item<'a> {
    /// Returns the value as text; JSON strings without their quotes.
    pub(super) fn to_text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Int(value) => Some(value.to_string().into()),
            Self::Float(value) => {
                Some(float_text(value.is_finite().then(|| serde_json::to_string(&value)), value.into()))
            }
            Self::Double(value) => Some(float_text(value.is_finite().then(|| serde_json::to_string(&value)), value)),
            Self::Bytes(bytes) => str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Self::Json(raw) => match raw.get().as_bytes().first()? {
                b'"' => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
                b'[' | b'{' => None,
                _ => Some(raw.get().into()),
            },
        }
    }

    fn to_double(self, scratch: &mut Vec<u8>) -> Option<f64> {
        match self {
            Self::Float(value) => Some(widen_float(value, scratch)),
            Self::Double(value) => Some(value),
            Self::Int(value) => exact_double(value),
            other => parse_special(&other.to_text()?).or_else(|| fast_float2::parse(&*other.to_text()?).ok()),
        }
    }

    fn to_float(self) -> Option<f32> {
        match self {
            Self::Float(value) => Some(value),
            Self::Int(value) => {
                exact_double(value).map(super::double::narrow_double).filter(|float| f64::from(*float) == value as f64)
            }
            Self::Double(_) => None,
            other => {
                let text = other.to_text()?;
                parse_special(&text).map(super::double::narrow_double).or_else(|| fast_float2::parse(&*text).ok())
            }
        }
    }
}

/// Returns a float as written by `record::json`, which has names for non-finite values.
fn float_text(text: Option<serde_json::Result<String>>, value: f64) -> Cow<'static, str> {
    match text {
        Some(text) => text.unwrap_or_default().into(),
        None if value.is_nan() => "NaN".into(),
        None => if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
    }
}

fn parse_special(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Returns the double that equals an integer, if there is one.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "checked by going back")]
fn exact_double(value: i64) -> Option<f64> {
    let double = value as f64;
    (double as i128 == i128::from(value)).then_some(double)
}

/// A column builder.
#[derive(Debug)]
pub(super) enum FeatureColumn<'a> {
    Scalars(Scalars),
    Lists {
        items: Scalars,
        item: FieldRef,
        target: DataType,
        offsets: Vec<i32>,
        nulls: NullBufferBuilder,
    },
    /// Nested values, as JSON.
    Nested {
        field: Field,
        values: Vec<Option<&'a RawValue>>,
    },
}

impl<'a> FeatureColumn<'a> {
    /// Returns an empty column.
    pub(super) fn new(field: &Field) -> Self {
        match item_of(field.data_type()) {
            Some(item) if !item.data_type().is_nested() => Self::Lists {
                items: Scalars::new(item),
                item: Arc::clone(item),
                target: field.data_type().clone(),
                offsets: vec![0],
                nulls: NullBufferBuilder::new(0),
            },
            _ if field.data_type().is_nested() => Self::Nested { field: field.clone(), values: Vec::new() },
            _ => Self::Scalars(Scalars::new(field)),
        }
    }

    /// Appends a null.
    pub(super) fn push_null(&mut self) {
        match self {
            Self::Scalars(values) => values.push_null(),
            Self::Lists { offsets, nulls, items, .. } => {
                nulls.append_null();
                offsets.push(to_offset(items.len));
            }
            Self::Nested { values, .. } => values.push(None),
        }
    }

    /// Appends a feature and its exact value, if any; `None` if it does not fit.
    pub(super) fn push(&mut self, feature: &Feature<'a>, exact: Option<&Exact<'a>>) -> Option<()> {
        if *feature == Feature::None {
            self.push_null();
            return Some(());
        }
        match self {
            Self::Scalars(values) => values.push_only(feature, exact),
            Self::Lists { items, offsets, nulls, .. } => {
                match feature {
                    // What was written while the items had no type.
                    Feature::Bytes(bytes) if bytes.is_empty() => {}
                    Feature::Bytes(bytes) if items.accepts_numbers() || exact.is_some_and(|exact| exact.json) => {
                        let [text] = bytes[..] else { return None };
                        let list: Vec<Option<&RawValue>> = serde_json::from_slice(text).ok()?;
                        list.into_iter().try_for_each(|item| items.push(item.map(Item::Json)))?;
                    }
                    feature => visit_items(feature, exact, |item| items.push(Some(item)))?,
                }
                nulls.append_non_null();
                offsets.push(to_offset(items.len));
                Some(())
            }
            Self::Nested { field, values } => {
                let Feature::Bytes(bytes) = feature else { return None };
                let text = match bytes[..] {
                    [text] => text,
                    // An empty list, as it was written while its items had no type.
                    [] if item_of(field.data_type()).is_some() => b"[]",
                    _ => return None,
                };
                values.push(Some(serde_json::from_slice(text).ok()?));
                Some(())
            }
        }
    }

    /// Returns the column as an array.
    pub(super) fn finish(self) -> Result<ArrayRef, RowMismatch> {
        match self {
            Self::Scalars(values) => values.finish(),
            Self::Lists { items, item, target, offsets, mut nulls } => {
                let row = |RowMismatch(at): RowMismatch| RowMismatch(row_of(&offsets, at));
                list_array(items.finish().map_err(row)?, &item, &target, &offsets, nulls.finish())
            }
            Self::Nested { field, values } => nested_array(&field, &values),
        }
    }
}

/// Calls `take` for each value of a feature.
pub(super) fn visit_items<'a>(
    feature: &Feature<'a>,
    exact: Option<&Exact<'a>>,
    mut take: impl FnMut(Item<'a>) -> Option<()>,
) -> Option<()> {
    match feature {
        Feature::None => Some(()),
        Feature::Ints(values) => values.iter().try_for_each(|value| take(Item::Int(*value))),
        Feature::Bytes(values) => values.iter().try_for_each(|bytes| take(Item::Bytes(bytes))),
        Feature::Floats(values) => match exact.and_then(|exact| exact.exact_doubles(values.len())) {
            Some(mut doubles) => doubles.try_for_each(|value| take(Item::Double(value))),
            None => values.iter().try_for_each(|value| take(Item::Float(*value))),
        },
    }
}

/// Values of a type that is not nested.
#[derive(Debug)]
pub(super) struct Scalars {
    target: DataType,
    values: ScalarBuilder,
    len: usize,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum ScalarBuilder {
    Nulls,
    Boolean(BooleanBuilder),
    Int(Int64Builder),
    UInt(UInt64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Date(Date32Builder),
    Timestamp(Int64Builder, TimeUnit),
    Duration(Int64Builder, TimeUnit),
    Binary(BinaryBuilder),
    /// Text, and types that Arrow can parse from text.
    Text(StringBuilder),
    Interval(StringBuilder),
    /// JSON documents.
    Json(StringBuilder),
}

impl Scalars {
    fn new(field: &Field) -> Self {
        use DataType as T;
        let stored = match field.data_type() {
            T::Dictionary(_, values) => values.as_ref(),
            other => other,
        };
        let values = match stored {
            T::Null => ScalarBuilder::Nulls,
            T::Boolean => ScalarBuilder::Boolean(BooleanBuilder::new()),
            T::UInt64 => ScalarBuilder::UInt(UInt64Builder::new()),
            integer if integer.is_integer() => ScalarBuilder::Int(Int64Builder::new()),
            T::Float16 | T::Float32 => ScalarBuilder::Float(Float32Builder::new()),
            T::Float64 => ScalarBuilder::Double(Float64Builder::new()),
            T::Date32 => ScalarBuilder::Date(Date32Builder::new()),
            T::Timestamp(unit, _) => ScalarBuilder::Timestamp(Int64Builder::new(), *unit),
            T::Duration(unit) => ScalarBuilder::Duration(Int64Builder::new(), *unit),
            _ if interval::is_interval(field) => ScalarBuilder::Interval(StringBuilder::new()),
            T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => {
                ScalarBuilder::Binary(BinaryBuilder::new())
            }
            _ if schema::is_json(field) => ScalarBuilder::Json(StringBuilder::new()),
            _ => ScalarBuilder::Text(StringBuilder::new()),
        };
        Self { target: field.data_type().clone(), values, len: 0, scratch: Vec::new() }
    }

    /// Whether a shard stores these values as numbers, so that bytes in their place are JSON.
    fn accepts_numbers(&self) -> bool {
        use ScalarBuilder::{Boolean, Double, Float, Int, Nulls};
        matches!(self.values, Nulls | Boolean(_) | Int(_) | Float(_) | Double(_))
    }

    fn push_null(&mut self) {
        self.len += 1;
        match &mut self.values {
            ScalarBuilder::Nulls => {}
            ScalarBuilder::Boolean(values) => values.append_null(),
            ScalarBuilder::Int(values) | ScalarBuilder::Timestamp(values, _) | ScalarBuilder::Duration(values, _) => {
                values.append_null()
            }
            ScalarBuilder::UInt(values) => values.append_null(),
            ScalarBuilder::Float(values) => values.append_null(),
            ScalarBuilder::Double(values) => values.append_null(),
            ScalarBuilder::Date(values) => values.append_null(),
            ScalarBuilder::Binary(values) => values.append_null(),
            ScalarBuilder::Text(values) | ScalarBuilder::Interval(values) | ScalarBuilder::Json(values) => {
                values.append_null()
            }
        }
    }

    fn push(&mut self, item: Option<Item<'_>>) -> Option<()> {
        let Some(item) = item else {
            self.push_null();
            return Some(());
        };
        let scratch = &mut self.scratch;
        match (&mut self.values, item) {
            (ScalarBuilder::Nulls, _) => return None,
            (ScalarBuilder::Boolean(values), Item::Int(value @ 0..=1)) => values.append_value(value == 1),
            (ScalarBuilder::Boolean(values), item) => values.append_value(item.to_text()?.parse().ok()?),
            (ScalarBuilder::Int(values), Item::Int(value)) => values.append_value(value),
            (ScalarBuilder::Int(values), item) => values.append_value(item.to_text()?.parse().ok()?),
            (ScalarBuilder::UInt(values), item) => values.append_value(item.to_text()?.parse().ok()?),
            (ScalarBuilder::Float(values), item) => values.append_value(item.to_float()?),
            (ScalarBuilder::Double(values), item) => values.append_value(item.to_double(scratch)?),
            (ScalarBuilder::Date(values), item) => values.append_value(time::parse_date(&item.to_text()?)?),
            (ScalarBuilder::Timestamp(values, unit), item) => {
                values.append_value(time::parse_timestamp(&item.to_text()?, *unit)?)
            }
            (ScalarBuilder::Duration(values, unit), item) => {
                values.append_value(duration::parse(&item.to_text()?, *unit)?)
            }
            (ScalarBuilder::Binary(values), Item::Bytes(bytes)) => values.append_value(bytes),
            (ScalarBuilder::Binary(values), Item::Json(_)) => values.append_value(from_base64(&item.to_text()?)?),
            (ScalarBuilder::Binary(values), item) => values.append_value(item.to_text()?.as_bytes()),
            (ScalarBuilder::Text(values) | ScalarBuilder::Interval(values), item) => {
                values.append_value(item.to_text()?)
            }
            (ScalarBuilder::Json(values), item) => values.append_value(json_document(item)?),
        }
        self.len += 1;
        Some(())
    }

    /// Appends a feature with one value; a JSON column accepts any number of them as a list.
    fn push_only(&mut self, feature: &Feature<'_>, exact: Option<&Exact<'_>>) -> Option<()> {
        let mut items = Vec::new();
        visit_items(feature, exact, |item| {
            items.push(item);
            Some(())
        })?;
        match (&items[..], &mut self.values) {
            ([item], _) => self.push(Some(*item)),
            (items, ScalarBuilder::Json(values)) => {
                let items = items.iter().map(|item| json_document(*item)).collect::<Option<Vec<_>>>()?;
                values.append_value(format!("[{}]", items.join(",")));
                self.len += 1;
                Some(())
            }
            _ => None,
        }
    }

    fn finish(self) -> Result<ArrayRef, RowMismatch> {
        let array: ArrayRef = match self.values {
            ScalarBuilder::Nulls => Arc::new(NullArray::new(self.len)),
            ScalarBuilder::Boolean(mut values) => Arc::new(values.finish()),
            ScalarBuilder::Int(mut values)
            | ScalarBuilder::Timestamp(mut values, _)
            | ScalarBuilder::Duration(mut values, _) => Arc::new(values.finish()),
            ScalarBuilder::UInt(mut values) => Arc::new(values.finish()),
            ScalarBuilder::Float(mut values) => Arc::new(values.finish()),
            ScalarBuilder::Double(mut values) => Arc::new(values.finish()),
            ScalarBuilder::Date(mut values) => Arc::new(values.finish()),
            ScalarBuilder::Binary(mut values) => Arc::new(values.finish()),
            ScalarBuilder::Interval(mut values) => {
                return interval::of_texts(&values.finish(), &self.target).map_err(RowMismatch);
            }
            ScalarBuilder::Text(mut values) | ScalarBuilder::Json(mut values) => Arc::new(values.finish()),
        };
        let array = match &self.target {
            DataType::Dictionary(_, values) => convert_array(array, values)?,
            _ => array,
        };
        convert_array(array, &self.target)
    }
}

/// Returns a value as JSON: documents unchanged, other text quoted.
fn json_document(item: Item<'_>) -> Option<Cow<'_, str>> {
    match item {
        Item::Json(raw) => Some(raw.get().into()),
        Item::Bytes(bytes) if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() => item.to_text(),
        Item::Int(_) => item.to_text(),
        Item::Float(value) if value.is_finite() => item.to_text(),
        Item::Double(value) if value.is_finite() => item.to_text(),
        _ => serde_json::to_string(&item.to_text()?).ok().map(Cow::Owned),
    }
}

/// Casts values to another type, which must hold each of them.
fn convert_array(array: ArrayRef, target: &DataType) -> Result<ArrayRef, RowMismatch> {
    if array.data_type() == target {
        return Ok(array);
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let out = cast_with_options(&array, target, &options).map_err(|_| RowMismatch(0))?;
    if out.logical_null_count() == array.logical_null_count() {
        return Ok(out);
    }
    let (before, after) = (array.logical_nulls(), out.logical_nulls());
    let is_null = |nulls: &Option<NullBuffer>, row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    Err(RowMismatch((0..array.len()).find(|row| is_null(&before, *row) != is_null(&after, *row)).unwrap_or(0)))
}

/// Returns the field of the items, for all kinds of list.
fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item),
        _ => None,
    }
}

/// Returns lists of `target`'s kind over these items.
fn list_array(
    items: ArrayRef,
    item: &FieldRef,
    target: &DataType,
    offsets: &[i32],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, RowMismatch> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets.to_vec()));
    let list = ListArray::try_new(Arc::clone(item), offsets, items, nulls).map_err(|_| RowMismatch(0))?;
    convert_array(Arc::new(list), target)
}

/// Decodes nested values from their JSON.
fn nested_array(field: &Field, values: &[Option<&RawValue>]) -> Result<ArrayRef, RowMismatch> {
    let values: Vec<Option<&RawValue>> = values.iter().map(|raw| raw.filter(|raw| raw.get() != "null")).collect();
    match (field.data_type(), item_of(field.data_type())) {
        (DataType::Map(entries, sorted), _) => {
            let lists = Field::new(field.name(), DataType::List(Arc::clone(entries)), true);
            let lists = nested_array(&lists, &values)?;
            let lists = lists.as_list::<i32>();
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            let pairs = lists.values().as_struct().clone();
            let map = MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, *sorted);
            Ok(Arc::new(map.map_err(|_| RowMismatch(0))?))
        }
        (DataType::Struct(fields), _) => {
            let mut objects = Vec::with_capacity(values.len());
            for (row, raw) in values.iter().enumerate() {
                objects.push(raw.map(|raw| parse_object(raw).ok_or(RowMismatch(row))).transpose()?);
            }
            let nulls: NullBuffer = values.iter().map(Option::is_some).collect();
            let columns = fields.iter().map(|field| {
                let values: Vec<_> = objects.iter().map(|o| o.as_ref()?.get(field.name()).copied()).collect();
                nested_array(field, &values)
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let array = StructArray::try_new_with_length(fields.clone(), columns, Some(nulls), values.len());
            Ok(Arc::new(array.map_err(|_| RowMismatch(0))?))
        }
        (target, Some(item)) => {
            let (mut items, mut offsets, mut nulls) = (Vec::new(), vec![0], NullBufferBuilder::new(values.len()));
            for (row, raw) in values.iter().enumerate() {
                if let Some(raw) = raw {
                    let list: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| RowMismatch(row))?;
                    items.extend(list.into_iter().map(Some));
                }
                nulls.append(raw.is_some());
                offsets.push(to_offset(items.len()));
            }
            let items = nested_array(item, &items).map_err(|RowMismatch(at)| RowMismatch(row_of(&offsets, at)))?;
            list_array(items, item, target, &offsets, nulls.finish())
        }
        _ => {
            let mut scalars = Scalars::new(field);
            for (row, raw) in values.into_iter().enumerate() {
                scalars.push(raw.map(Item::Json)).ok_or(RowMismatch(row))?;
            }
            scalars.finish()
        }
    }
}

fn parse_object(raw: &RawValue) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

/// Offsets fit, because a column never holds more items than its range has bytes, which is less than 2 GiB.
fn to_offset(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

/// Returns the list that holds an item.
fn row_of(offsets: &[i32], item: usize) -> usize {
    offsets.partition_point(|start| *start <= to_offset(item)).saturating_sub(1)
}
