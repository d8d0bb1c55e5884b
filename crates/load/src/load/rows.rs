//! Rows of Parquet shards, with the columns of batches.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray as _, BooleanArray, BooleanBufferBuilder, GenericByteArray,
        NullBufferBuilder, PrimitiveArray, RecordBatch, downcast_primitive,
    },
    buffer::{MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    compute::{concat_batches, interleave},
    datatypes::{
        ArrowNativeType as _, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, SchemaRef, Utf8Type,
    },
};

use crate::{
    error::{Error, Result},
    format::parquet::{ParquetFile, cast_to},
    storage::Object,
};

/// Rows from which on the space that the decoder reserves does not matter.
const SPACIOUS_ROWS: usize = 4096;

/// Reads ranges of rows, which are in order and do not overlap. `complete` means that all columns are loaded: another
/// one in the shard is an error.
pub(super) fn read_rows(
    file: ParquetFile<Object>,
    ranges: &[Range<u64>],
    schema: &SchemaRef,
    complete: bool,
) -> Result<RecordBatch> {
    let unknown =
        file.schema().fields().iter().find(|field| complete && schema.column_with_name(field.name()).is_none());
    if let Some(field) = unknown {
        return Err(Error::usage("expected the columns of other shards, found another one")
            .in_column(field.name().clone())
            .with_hint("name the columns to load"));
    }
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let count: u64 = ranges.iter().map(|rows| rows.end.saturating_sub(rows.start)).sum();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let batches = file.with_columns(&names).with_rows(ranges).into_batches(count);
    let batches: Vec<RecordBatch> = batches.collect::<Result<_>>()?;
    let found = match batches.as_slice() {
        [] => RecordBatch::new_empty(SchemaRef::clone(schema)),
        [one] => one.clone(),
        [first, ..] => concat_batches(first.schema_ref(), &batches)?,
    };
    if found.num_rows() != count {
        let (start, end) = (ranges.first().map_or(0, |rows| rows.start), ranges.last().map_or(0, |rows| rows.end));
        let message = format!("expected {count} rows from {start} to {end}, found {} of them", found.num_rows());
        return Err(Error::integrity(message));
    }
    let found = cast_to(&found, schema)?;
    if count >= SPACIOUS_ROWS {
        return Ok(found);
    }
    let mut columns = found.columns().to_vec();
    drop(found);
    columns.iter_mut().for_each(|column| column.shrink_to_fit());
    Ok(RecordBatch::try_new(SchemaRef::clone(schema), columns)?)
}

/// Rows of a batch that follow each other.
pub(super) type RowRange<'a> = (&'a RecordBatch, Range<usize>);

/// Adds a row to ranges: to the last one if it follows it.
pub(super) fn push_row<'a>(ranges: &mut Vec<RowRange<'a>>, batch: &'a RecordBatch, row: usize) {
    match ranges.last_mut().filter(|(last, rows)| std::ptr::eq(*last, batch) && rows.end == row) {
        Some((_, rows)) => rows.end += 1,
        None => ranges.push((batch, row..row + 1)),
    }
}

/// Copies ranges of rows, one after the other, into memory of their own.
pub(super) fn copy_rows(ranges: &[RowRange<'_>], schema: &SchemaRef) -> Result<RecordBatch> {
    if ranges.is_empty() {
        return Ok(RecordBatch::new_empty(SchemaRef::clone(schema)));
    }
    let column = |at: usize| {
        let parts: Vec<Part<'_>> = ranges.iter().map(|(batch, rows)| (batch.column(at), rows.clone())).collect();
        copy_column(schema.field(at).data_type(), &parts)
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(SchemaRef::clone(schema), columns)?)
}

/// Values of a column that follow each other.
type Part<'a> = (&'a ArrayRef, Range<usize>);

/// The kernels of Arrow take value by value, or set up more for each array than short ranges cost.
fn copy_column(data_type: &DataType, parts: &[Part<'_>]) -> Result<ArrayRef> {
    macro_rules! copy_numbers {
        ($number:ty) => {
            copy_primitive::<$number>(data_type, parts)
        };
    }
    downcast_primitive! {
        data_type => (copy_numbers),
        DataType::Boolean => copy_booleans(parts),
        DataType::Utf8 => copy_bytes::<Utf8Type>(parts),
        DataType::LargeUtf8 => copy_bytes::<LargeUtf8Type>(parts),
        DataType::Binary => copy_bytes::<BinaryType>(parts),
        DataType::LargeBinary => copy_bytes::<LargeBinaryType>(parts),
        _ => {
            let arrays: Vec<&dyn Array> = parts.iter().map(|(array, _)| array.as_ref()).collect();
            let places = parts.iter().enumerate().flat_map(|(at, (_, rows))| rows.clone().map(move |row| (at, row)));
            Ok(interleave(&arrays, &places.collect::<Vec<_>>())?)
        }
    }
}

fn count_of(parts: &[Part<'_>]) -> usize {
    parts.iter().map(|(_, rows)| rows.len()).sum()
}

fn outside() -> Error {
    Error::internal("expected rows of the batch")
}

/// Returns which of the values are null; `None` if none is.
fn copy_nulls(parts: &[Part<'_>]) -> Option<NullBuffer> {
    if parts.iter().all(|(array, _)| array.null_count() == 0) {
        return None;
    }
    let mut nulls = NullBufferBuilder::new(count_of(parts));
    for (array, rows) in parts {
        match array.nulls() {
            Some(of) => nulls.append_buffer(&of.slice(rows.start, rows.len())),
            None => nulls.append_n_non_nulls(rows.len()),
        }
    }
    nulls.finish()
}

fn copy_primitive<T: ArrowPrimitiveType>(data_type: &DataType, parts: &[Part<'_>]) -> Result<ArrayRef> {
    let mut values: Vec<T::Native> = Vec::with_capacity(count_of(parts));
    for (array, rows) in parts {
        let of = array.as_primitive_opt::<T>().ok_or_else(outside)?.values();
        values.extend_from_slice(of.get(rows.clone()).ok_or_else(outside)?);
    }
    let copied = PrimitiveArray::<T>::try_new(ScalarBuffer::from(values), copy_nulls(parts))?;
    Ok(Arc::new(copied.with_data_type(data_type.clone())))
}

fn copy_booleans(parts: &[Part<'_>]) -> Result<ArrayRef> {
    let mut values = BooleanBufferBuilder::new(count_of(parts));
    for (array, rows) in parts {
        let of = array.as_boolean_opt().ok_or_else(outside)?.values();
        if rows.end > of.len() {
            return Err(outside());
        }
        values.append_buffer(&of.slice(rows.start, rows.len()));
    }
    Ok(Arc::new(BooleanArray::new(values.finish(), copy_nulls(parts))))
}

fn copy_bytes<T: ByteArrayType>(parts: &[Part<'_>]) -> Result<ArrayRef> {
    let mut offsets: Vec<T::Offset> = Vec::with_capacity(count_of(parts) + 1);
    offsets.push(T::Offset::usize_as(0));
    let (mut pieces, mut length) = (Vec::with_capacity(parts.len()), 0);
    for (array, rows) in parts {
        let of = array.as_bytes_opt::<T>().ok_or_else(outside)?;
        let ends = of.value_offsets().get(rows.start..=rows.end).ok_or_else(outside)?;
        let (Some(first), Some(last)) = (ends.first(), ends.last()) else { return Err(outside()) };
        let (first, last) = (first.as_usize(), last.as_usize());
        let too_large = || Error::usage("expected a batch with less text");
        T::Offset::from_usize(length + last - first).ok_or_else(too_large)?;
        offsets.extend(ends.iter().skip(1).map(|end| T::Offset::usize_as(length + end.as_usize() - first)));
        length += last - first;
        pieces.push(of.value_data().get(first..last).ok_or_else(outside)?);
    }
    let mut values = MutableBuffer::with_capacity(length);
    pieces.into_iter().for_each(|piece| values.extend_from_slice(piece));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(GenericByteArray::<T>::try_new(offsets, values.into(), copy_nulls(parts))?))
}

/// Puts rows of several batches into an order, column by column, so that little is in memory twice.
pub(super) fn reorder_rows(
    batches: Vec<RecordBatch>,
    places: &[(usize, usize)],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let mut left: Vec<_> = batches.into_iter().map(|batch| batch.columns().to_vec().into_iter()).collect();
    let column = |_| {
        let arrays: Vec<ArrayRef> = left.iter_mut().filter_map(Iterator::next).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&arrays, places)?)
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(SchemaRef::clone(schema), columns)?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Float64Array, LargeBinaryArray, ListArray, StringArray, TimestampSecondArray},
        compute::concat_batches,
        datatypes::Int32Type,
    };

    use super::*;

    /// Columns of several types; nulls in some.
    fn batch(rows: i64) -> RecordBatch {
        let null = |row: i64| (row % 3 != 0).then_some(row);
        let lists = (0..rows).map(|row| null(row).map(|row| vec![i32::try_from(row).ok(); 2]));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("time", Arc::new(TimestampSecondArray::from_iter((0..rows).map(null)).with_timezone("UTC"))),
            (
                "number",
                Arc::new(Float64Array::from_iter_values((0..rows).map(|row| f64::from(i32::try_from(row).unwrap())))),
            ),
            ("flag", Arc::new(BooleanArray::from_iter((0..rows).map(|row| null(row).map(|row| row % 2 == 0))))),
            ("text", Arc::new(StringArray::from_iter((0..rows).map(|row| null(row).map(|row| format!("€ {row}")))))),
            (
                "bytes",
                Arc::new(LargeBinaryArray::from_iter_values(
                    (0..rows).map(|row| vec![7; usize::try_from(row).unwrap()]),
                )),
            ),
            ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
            .unwrap()
    }

    #[test]
    fn ranges_are_copied_as_slices_are_joined() {
        let (one, other) = (batch(40), batch(17).slice(3, 12));
        let schema = one.schema();
        let ranges = [(&one, 3..3), (&one, 0..1), (&other, 2..9), (&one, 39..40), (&one, 5..20), (&other, 0..12)];
        let slices: Vec<RecordBatch> = ranges.iter().map(|(of, rows)| of.slice(rows.start, rows.len())).collect();
        let copied = copy_rows(&ranges, &schema).unwrap();
        assert_eq!(copied, concat_batches(&schema, &slices).unwrap());
        assert!(copied.columns().iter().all(|column| column.offset() == 0));
        assert_eq!(copy_rows(&[], &schema).unwrap(), RecordBatch::new_empty(Arc::clone(&schema)));
        let numbers = one.project(&[1]).unwrap();
        assert!(copy_rows(&[(&numbers, 40..41)], &numbers.schema()).is_err());
    }

    #[test]
    fn rows_are_put_into_an_order() {
        let batches = vec![batch(5), batch(9)];
        let places = [(1, 8), (0, 0), (1, 0), (0, 4)];
        let mut ranges = Vec::new();
        places.iter().for_each(|(at, row)| push_row(&mut ranges, &batches[*at], *row));
        let expected = copy_rows(&ranges, &batches[0].schema()).unwrap();
        let schema = batches[0].schema();
        assert_eq!(reorder_rows(batches, &places, &schema).unwrap(), expected);
    }
}
