//! Converts rows to a wider schema: the current one of a dataset, or the united one of all sources of a run.
//!
//! The wider schema was made by uniting, so it contains each column under its name with the same type or a wider one.
//! Nothing is dropped and no value changes; where that is impossible, it is an error. Arrow's casts overflow and round
//! in places, so every value that changed its type is cast back and compared.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, Int32Array, MapArray, OffsetSizeTrait,
        RecordBatch, RecordBatchOptions, StringBuilder, StructArray, new_null_array,
    },
    buffer::OffsetBuffer,
    compute::{CastOptions, cast_with_options, kernels::cmp::not_distinct},
    datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, SchemaRef},
};

use super::{
    interval::{self, is_interval},
    json,
};
use crate::{
    error::{Error, Result},
    schema::{self, ByName},
};

/// Reason why rows do not fit a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueMismatch {
    /// Name of the column.
    pub column: String,
    /// Row of the value within the batch, from 0; 0 for values inside of lists.
    pub row: usize,
    /// The value, or the type if no value would fit.
    pub value: String,
    /// Type that should hold the value, or a note that there is none.
    pub expected: String,
    /// Whether other values of the column may fit.
    pub by_value: bool,
}

/// Returns the rows with the columns of `schema`, matched by name; columns that the batch lacks are null.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when the batch has a column that `schema` lacks or cannot hold, and
/// [`Kind::Input`](crate::error::Kind::Input) when a value has no equal in the wider type.
pub fn cast_to(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    try_cast_to(batch, schema)?.map_err(|ValueMismatch { column, value, expected, by_value, .. }| {
        if by_value {
            Error::input(format!("expected values that fit into {expected}, found {value}"))
                .in_column(column)
                .with_hint("convert the column as text: --type COLUMN=text")
        } else {
            Error::internal(format!("expected {expected}, found {value}")).in_column(column)
        }
    })
}

/// As [`cast_to`], but returns what does not fit instead of failing.
///
/// # Errors
/// When the schema has non-nullable columns that the batch lacks.
pub fn try_cast_to(batch: &RecordBatch, schema: &SchemaRef) -> Result<Result<RecordBatch, ValueMismatch>> {
    if batch.schema_ref() == schema {
        return Ok(Ok(batch.clone()));
    }
    let from = batch.schema_ref().fields();
    Ok(match cast_fields(from, batch.columns(), schema.fields(), batch.num_rows()) {
        Ok(columns) => {
            let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)?)
        }
        Err(mismatch) => Err(mismatch),
    })
}

fn cast_fields(from: &Fields, columns: &[ArrayRef], to: &Fields, rows: usize) -> Result<Vec<ArrayRef>, ValueMismatch> {
    let (given, wanted) = (ByName::new(from), ByName::new(to));
    if let Some(lost) = from.iter().find(|field| wanted.find(field.name()).is_none()) {
        return Err(ValueMismatch {
            column: lost.name().clone(),
            row: 0,
            value: "one more".to_owned(),
            expected: "a column of the wider schema".to_owned(),
            by_value: false,
        });
    }
    to.iter()
        .map(|field| match given.find(field.name()) {
            Some((at, given)) => cast_array(&columns[at], given, field),
            None => Ok(new_null_array(field.data_type(), rows)),
        })
        .collect()
}

/// Casts one column.
///
/// # Errors
/// When a value does not fit, or the types have no values in common.
pub(super) fn cast_array(array: &ArrayRef, from: &Field, to: &Field) -> Result<ArrayRef, ValueMismatch> {
    use DataType::{
        Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, Null, RunEndEncoded, Struct,
    };
    if schema::tensor_shape(from).is_some() && schema::variable_rank(to).is_some() {
        return cast_tensors(array, from, to);
    }
    let same_kind = schema::is_json(from) == schema::is_json(to);
    match (array.data_type(), to.data_type()) {
        (given, target) if given == target && same_kind => Ok(Arc::clone(array)),
        // No value fits every type.
        (_, target) if array.null_count() == array.len() => Ok(new_null_array(target, array.len())),
        (Null, target) => Ok(new_null_array(target, array.len())),
        (Dictionary(_, value), _) => unpack_array(array, value, to),
        (RunEndEncoded(_, value), _) => unpack_array(array, value.data_type(), to),
        _ if is_interval(from) && is_interval(to) => {
            interval::cast_intervals(array, to.data_type()).map_err(|row| value_mismatch(array, row, to))
        }
        (_, target) if interval::is_stored(from) && is_text(target) => {
            let open = DataType::Interval(IntervalUnit::MonthDayNano);
            let open = interval::cast_intervals(array, &open).map_err(|row| value_mismatch(array, row, to))?;
            Ok(format_texts(&open, to))
        }
        (given, target) if is_text(target) && !(is_text(given) && same_kind) => Ok(format_texts(array, to)),
        (Struct(given), Struct(fields)) => {
            let source = array.as_struct();
            let columns = cast_fields(given, source.columns(), fields, source.len())?;
            let nulls = source.nulls().cloned();
            cast_result(StructArray::try_new_with_length(fields.clone(), columns, nulls, source.len()), array, to)
        }
        (List(given), List(item)) => cast_lists::<i32>(array, given, item, to),
        (LargeList(given), LargeList(item)) => cast_lists::<i64>(array, given, item, to),
        (FixedSizeList(given, width), FixedSizeList(item, target)) if width == target => {
            let source = array.as_fixed_size_list();
            let values = cast_array(source.values(), given, item)?;
            let nulls = source.nulls().cloned();
            let cast = FixedSizeListArray::try_new_with_length(Arc::clone(item), *width, values, nulls, source.len());
            cast_result(cast, array, to)
        }
        // First the kind of list is converted, then its items.
        (LargeList(item) | ListView(item) | LargeListView(item) | FixedSizeList(item, _), List(_)) => {
            relist_array(array, List(Arc::clone(item)), to)
        }
        (List(item) | ListView(item) | LargeListView(item) | FixedSizeList(item, _), LargeList(_)) => {
            relist_array(array, LargeList(Arc::clone(item)), to)
        }
        (Map(given, _), Map(entries, sorted)) => cast_map(array, given, entries, *sorted, to),
        (given, target) if given.is_nested() || target.is_nested() => Err(type_mismatch(array, to)),
        _ => cast_scalars(array, to),
    }
}

/// Converts tensors of one shape to tensors with individual shapes.
fn cast_tensors(array: &ArrayRef, from: &Field, to: &Field) -> Result<ArrayRef, ValueMismatch> {
    let (DataType::FixedSizeList(given, length), DataType::Struct(parts)) = (from.data_type(), to.data_type()) else {
        return Err(type_mismatch(array, to));
    };
    let (Some(list), Some(shape)) = (array.as_fixed_size_list_opt(), schema::tensor_shape(from)) else {
        return Err(type_mismatch(array, to));
    };
    let (DataType::List(item), DataType::FixedSizeList(size, rank)) = (parts[0].data_type(), parts[1].data_type())
    else {
        return Err(type_mismatch(array, to));
    };
    let each = usize::try_from(*length).unwrap_or(0);
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(each, list.len()));
    let values = cast_array(list.values(), given, item)?;
    let data = cast_result(GenericListArray::<i32>::try_new(Arc::clone(item), offsets, values, None), array, to)?;
    let lengths = (0..list.len()).flat_map(|_| shape.iter().map(|length| i32::try_from(*length).unwrap_or(i32::MAX)));
    let lengths = Arc::new(Int32Array::from_iter_values(lengths));
    let shapes = FixedSizeListArray::try_new_with_length(Arc::clone(size), *rank, lengths, None, list.len());
    let shapes = cast_result(shapes, array, to)?;
    let nulls = list.nulls().cloned();
    cast_result(StructArray::try_new_with_length(parts.clone(), vec![data, shapes], nulls, list.len()), array, to)
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Casts with Arrow where that only changes the packing of values.
fn repack_array(array: &ArrayRef, target: &DataType, to: &Field) -> Result<ArrayRef, ValueMismatch> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, target, &options).map_err(|_| type_mismatch(array, to))
}

fn unpack_array(array: &ArrayRef, value: &DataType, to: &Field) -> Result<ArrayRef, ValueMismatch> {
    let plain = repack_array(array, value, to)?;
    cast_array(&plain, &Field::new(to.name(), value.clone(), true), to)
}

fn relist_array(array: &ArrayRef, target: DataType, to: &Field) -> Result<ArrayRef, ValueMismatch> {
    let lists = repack_array(array, &target, to)?;
    cast_array(&lists, &Field::new(to.name(), target, true), to)
}

fn cast_lists<O: OffsetSizeTrait>(
    array: &ArrayRef,
    given: &Field,
    item: &FieldRef,
    to: &Field,
) -> Result<ArrayRef, ValueMismatch> {
    let source = array.as_list::<O>();
    let values = cast_array(source.values(), given, item)?;
    let nulls = source.nulls().cloned();
    cast_result(GenericListArray::<O>::try_new(Arc::clone(item), source.offsets().clone(), values, nulls), array, to)
}

/// Matches keys and values of a map by position, because their names differ between writers.
fn cast_map(
    array: &ArrayRef,
    given: &Field,
    entries: &FieldRef,
    sorted: bool,
    to: &Field,
) -> Result<ArrayRef, ValueMismatch> {
    let source = array.as_map();
    let (DataType::Struct(pair), DataType::Struct(wider)) = (given.data_type(), entries.data_type()) else {
        return Err(type_mismatch(array, to));
    };
    let columns = [source.keys(), source.values()].into_iter().zip(pair).zip(wider);
    let columns = columns.map(|((column, given), field)| cast_array(column, given, field)).collect::<Result<_, _>>()?;
    let nulls = source.entries().nulls().cloned();
    let pairs = StructArray::try_new(wider.clone(), columns, nulls).map_err(|_| type_mismatch(array, to))?;
    let (offsets, nulls) = (source.offsets().clone(), source.nulls().cloned());
    cast_result(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, sorted), array, to)
}

fn cast_result<A: Array + 'static>(
    cast: Result<A, arrow::error::ArrowError>,
    array: &ArrayRef,
    to: &Field,
) -> Result<ArrayRef, ValueMismatch> {
    cast.map(|cast| Arc::new(cast) as ArrayRef).map_err(|_| type_mismatch(array, to))
}

/// Casts plain values and checks that they cast back to the same values.
fn cast_scalars(array: &ArrayRef, to: &Field) -> Result<ArrayRef, ValueMismatch> {
    let options = |safe| CastOptions { safe, ..CastOptions::default() };
    // Values that do not fit become null, which reveals them.
    let cast = cast_with_options(array, to.data_type(), &options(true)).map_err(|_| type_mismatch(array, to))?;
    let back = cast_with_options(&cast, array.data_type(), &options(true)).map_err(|_| type_mismatch(array, to))?;
    let same = not_distinct(&back, array).map_err(|_| type_mismatch(array, to))?;
    match same.values().iter().position(|same| !same) {
        None => Ok(cast),
        Some(row) => Err(value_mismatch(array, row, to)),
    }
}

/// Returns why a value does not fit.
fn value_mismatch(array: &ArrayRef, row: usize, to: &Field) -> ValueMismatch {
    let expected = match interval::is_stored(to) {
        true => "an interval of whole milliseconds without negative parts, as in Parquet".to_owned(),
        false => to.data_type().to_string(),
    };
    let value = json::text_of(array, row).unwrap_or_default();
    ValueMismatch { column: to.name().clone(), row, value, expected, by_value: true }
}

/// Formats values as text, or as JSON documents if `to` holds those.
fn format_texts(array: &ArrayRef, to: &Field) -> ArrayRef {
    let json = schema::is_json(to);
    let mut texts = StringBuilder::new();
    for row in 0..array.len() {
        if json && array.is_valid(row) {
            let mut text = Vec::new();
            json::write_value(array, row, &mut text);
            texts.append_value(String::from_utf8_lossy(&text));
        } else {
            texts.append_option(json::text_of(array, row));
        }
    }
    let texts: ArrayRef = Arc::new(texts.finish());
    cast_with_options(&texts, to.data_type(), &CastOptions::default()).unwrap_or(texts)
}

fn type_mismatch(array: &ArrayRef, to: &Field) -> ValueMismatch {
    ValueMismatch {
        column: to.name().clone(),
        row: 0,
        value: array.data_type().to_string(),
        expected: to.data_type().to_string(),
        by_value: false,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Float64Array, Int64Array, StringArray},
        datatypes::{Float64Type, Schema},
    };

    use super::*;
    use crate::error::Kind;

    fn nullable(name: &str, data_type: DataType) -> Field {
        Field::new(name, data_type, true)
    }

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn columns_move_widen_and_appear() {
        let from = batch(vec![
            ("b", Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef),
            ("a", Arc::new(StringArray::from(vec!["x", "y"])) as ArrayRef),
        ]);
        let schema = Arc::new(Schema::new(vec![
            nullable("a", DataType::Utf8),
            nullable("b", DataType::Float64),
            nullable("c", DataType::Date32),
        ]));
        let cast = cast_to(&from, &schema).unwrap();
        assert_eq!(cast.schema(), schema);
        assert_eq!(cast.column(0).as_string::<i32>().value(1), "y");
        assert_eq!(cast.column(1).as_primitive::<Float64Type>(), &Float64Array::from(vec![Some(1.0), None]));
        assert_eq!(cast.column(2).null_count(), 2);
    }

    #[test]
    fn structs_and_lists_widen_inside() {
        let inner: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let narrow = StructArray::from(vec![(Arc::new(nullable("x", DataType::Int64)), inner)]);
        let from = batch(vec![("s", Arc::new(narrow) as ArrayRef)]);
        let wide = DataType::Struct(vec![nullable("w", DataType::Utf8), nullable("x", DataType::Float64)].into());
        let cast = cast_to(&from, &Arc::new(Schema::new(vec![nullable("s", wide)]))).unwrap();
        let columns = cast.column(0).as_struct().columns();
        assert_eq!((columns[0].null_count(), columns[1].as_primitive::<Float64Type>().value(1)), (2, 2.0));
    }

    #[test]
    fn values_that_would_change_or_vanish_are_errors() {
        let from = batch(vec![("a", Arc::new(Int64Array::from(vec![(1 << 53) + 1])) as ArrayRef)]);
        let to = |name: &str, data_type| Arc::new(Schema::new(vec![nullable(name, data_type)]));
        assert_eq!(cast_to(&from, &to("a", DataType::Float64)).unwrap_err().kind(), Kind::Input);
        assert_eq!(cast_to(&from, &to("b", DataType::Int64)).unwrap_err().kind(), Kind::Internal);
        let list = DataType::List(Arc::new(nullable("item", DataType::Date32)));
        assert_eq!(cast_to(&from, &to("a", list)).unwrap_err().kind(), Kind::Internal);
    }

    #[test]
    fn rows_survive_without_columns() {
        let rows = RecordBatchOptions::new().with_row_count(Some(3));
        let empty = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &rows).unwrap();
        let schema = Arc::new(Schema::new(vec![nullable("a", DataType::Utf8)]));
        assert_eq!(cast_to(&empty, &schema).unwrap().column(0).null_count(), 3);
    }
}
