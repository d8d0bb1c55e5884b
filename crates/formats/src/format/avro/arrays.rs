//! Arrow arrays of decoded columns.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Decimal128Array, Decimal256Array,
        FixedSizeBinaryArray, Float32Array, Float64Array, ListArray, MapArray, NullArray, PrimitiveArray, StringArray,
        StructArray,
    },
    buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    datatypes::{
        DataType, Date32Type, Field, Int32Type, Int64Type, Time32MillisecondType, Time64MicrosecondType, TimeUnit,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    },
    error::ArrowError,
};

use super::column::{AvroColumn, Values, Variable};

/// Returns the values of a column as an array of the type of its field.
///
/// # Errors
/// If texts are not UTF-8.
pub(super) fn finish_column(column: AvroColumn, field: &Field) -> Result<ArrayRef, ArrowError> {
    let (count, nulls) = (column.valid.len(), column.valid.build());
    Ok(match column.values {
        Values::Null(count) => Arc::new(NullArray::new(count)),
        Values::Boolean(values) => Arc::new(BooleanArray::new(values.build(), nulls)),
        Values::Int(values) => match field.data_type() {
            DataType::Date32 => of_numbers::<Date32Type>(values, nulls, field)?,
            DataType::Time32(_) => of_numbers::<Time32MillisecondType>(values, nulls, field)?,
            _ => of_numbers::<Int32Type>(values, nulls, field)?,
        },
        Values::Long(values) => match field.data_type() {
            DataType::Time64(_) => of_numbers::<Time64MicrosecondType>(values, nulls, field)?,
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                of_numbers::<TimestampMillisecondType>(values, nulls, field)?
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                of_numbers::<TimestampMicrosecondType>(values, nulls, field)?
            }
            DataType::Timestamp(..) => of_numbers::<TimestampNanosecondType>(values, nulls, field)?,
            _ => of_numbers::<Int64Type>(values, nulls, field)?,
        },
        Values::Float(values) => Arc::new(Float32Array::try_new(values.into(), nulls)?),
        Values::Double(values) => Arc::new(Float64Array::try_new(values.into(), nulls)?),
        Values::Bytes(Variable { offsets, bytes }) => {
            Arc::new(BinaryArray::try_new(offsets_of(offsets)?, bytes.into(), nulls)?)
        }
        Values::Text(Variable { offsets, bytes }) | Values::Enum(_, Variable { offsets, bytes }) => {
            Arc::new(StringArray::try_new(offsets_of(offsets)?, bytes.into(), nulls)?)
        }
        // Arrow does not know how many values of no bytes there are.
        Values::Fixed(0, _) => Arc::new(BinaryArray::try_new(offsets_of(vec![0; count])?, Buffer::default(), nulls)?),
        Values::Fixed(width, values) => of_bytes(width, values, nulls)?,
        Values::Decimal(_, values) => {
            Arc::new(Decimal128Array::try_new(values.into(), nulls)?.with_data_type(field.data_type().clone()))
        }
        Values::LargeDecimal(_, values) => {
            Arc::new(Decimal256Array::try_new(values.into(), nulls)?.with_data_type(field.data_type().clone()))
        }
        Values::List(offsets, items) => {
            let DataType::List(item) = field.data_type() else { return Err(unexpected(field)) };
            let items = finish_column(*items, item)?;
            Arc::new(ListArray::try_new(Arc::clone(item), offsets_of(offsets)?, items, nulls)?)
        }
        Values::Map(offsets, keys, values) => {
            let DataType::Map(entries, sorted) = field.data_type() else { return Err(unexpected(field)) };
            let DataType::Struct(pair) = entries.data_type() else { return Err(unexpected(field)) };
            let keys = StringArray::try_new(offsets_of(keys.offsets)?, keys.bytes.into(), None)?;
            let columns = vec![Arc::new(keys) as ArrayRef, finish_column(*values, &pair[1])?];
            let pairs = StructArray::try_new(pair.clone(), columns, None)?;
            Arc::new(MapArray::try_new(Arc::clone(entries), offsets_of(offsets)?, pairs, nulls, *sorted)?)
        }
        Values::Struct(count, parts) => {
            let DataType::Struct(fields) = field.data_type() else { return Err(unexpected(field)) };
            let parts = parts.into_iter().zip(fields).map(|(part, field)| finish_column(part, field));
            Arc::new(StructArray::try_new_with_length(fields.clone(), parts.collect::<Result<_, _>>()?, nulls, count)?)
        }
    })
}

fn of_numbers<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    field: &Field,
) -> Result<ArrayRef, ArrowError> {
    let array = PrimitiveArray::<T>::try_new(ScalarBuffer::from(values), nulls)?;
    Ok(Arc::new(array.with_data_type(field.data_type().clone())))
}

fn of_bytes(width: usize, values: Vec<u8>, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let width = i32::try_from(width).unwrap_or(i32::MAX);
    Ok(Arc::new(FixedSizeBinaryArray::try_new(width, Buffer::from_vec(values), nulls)?))
}

/// Returns the offsets of values from their ends.
fn offsets_of(mut ends: Vec<i32>) -> Result<OffsetBuffer<i32>, ArrowError> {
    ends.insert(0, 0);
    Ok(OffsetBuffer::new(ScalarBuffer::from(ends)))
}

fn unexpected(field: &Field) -> ArrowError {
    ArrowError::SchemaError(format!("unexpected type {}", field.data_type()))
}
