//! A column in the encoder's form: its values in sequence without the nulls, and the positions of the nulls.
//!
//! Numbers are words of 32 or 64 bits regardless of their type; only a [`ValueOrder`] distinguishes them. Texts are not
//! copied.

use ::parquet::{basic::SortOrder, basic::Type as Physical, schema::types::ColumnDescriptor};
use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBufferBuilder, GenericByteArray, types::ByteArrayType,
    },
    buffer::BooleanBuffer,
    datatypes::{
        ArrowNativeType, DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};

use super::{levels::LevelLayout, scratch::Scratch, stats::ValueOrder};
use crate::record::coded::value_type;

/// Maximum length of a text in bytes.
const MAX_TEXT_BYTES: i64 = i32::MAX as i64;

/// A value of fixed width.
pub trait Word: Copy + Eq {
    /// Width in bytes.
    const WIDTH: usize;

    /// Returns its bits, zero-extended.
    fn bits(self) -> u64;

    /// Returns its bits as a signed number.
    fn signed(self) -> i64;

    /// Appends values in little-endian order.
    fn put(values: &[Self], out: &mut Vec<u8>);
}

macro_rules! word {
    ($type:ty, $width:literal) => {
        impl Word for $type {
            const WIDTH: usize = $width;

            #[inline]
            fn bits(self) -> u64 {
                u64::from(self)
            }

            #[inline]
            fn signed(self) -> i64 {
                i64::from(self.cast_signed())
            }

            fn put(values: &[Self], out: &mut Vec<u8>) {
                let start = out.len();
                out.resize(start + values.len() * $width, 0);
                let (places, _) = out[start..].as_chunks_mut::<$width>();
                for (place, value) in places.iter_mut().zip(values) {
                    *place = value.to_le_bytes();
                }
            }
        }
    };
}

word!(u32, 4);
word!(u64, 8);

/// Values without nulls.
pub(super) enum DenseValues<'a> {
    /// 32 bits each.
    Narrow(Vec<u32>),
    /// 64 bits each.
    Wide(Vec<u64>),
    /// One bit each.
    Bits(BooleanBuffer),
    /// Byte strings of variable length.
    Bytes(Vec<&'a [u8]>),
}

/// A column of one or more arrays.
pub(super) struct ChunkColumn<'a> {
    /// Its rows and their slots.
    pub(super) layout: &'a LevelLayout,
    /// Which slots have a value; `None` if all have.
    pub(super) validity: Option<BooleanBuffer>,
    /// Values of those slots.
    pub(super) values: DenseValues<'a>,
    /// Order in which they are compared.
    pub(super) order: ValueOrder,
}

/// Returns which slots have a value, from the nulls of the arrays; `None` if all have.
pub(super) fn merge_validity(arrays: &[ArrayRef]) -> Option<BooleanBuffer> {
    if arrays.iter().all(|array| array.null_count() == 0) {
        return None;
    }
    let mut all = BooleanBufferBuilder::new(arrays.iter().map(|a| a.len()).sum());
    for array in arrays {
        match array.nulls() {
            Some(nulls) => all.append_buffer(nulls.inner()),
            None => all.append_n(array.len(), true),
        }
    }
    Some(all.finish())
}

/// Returns whether values of this type, or keys of such values, can be encoded as a column like this.
pub(super) fn supports_type(of: &DataType, column: &ColumnDescriptor) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Float32, Float64, Int8, Int16, Int32, Int64, LargeBinary, LargeUtf8, Timestamp, UInt8,
        UInt16, UInt32, UInt64, Utf8,
    };
    let stored = match &*value_type(of) {
        Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | Date32 => Physical::INT32,
        Int64 | UInt64 | Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond, _) => {
            Physical::INT64
        }
        Float32 => Physical::FLOAT,
        Float64 => Physical::DOUBLE,
        Boolean => Physical::BOOLEAN,
        Utf8 | LargeUtf8 | Binary | LargeBinary => Physical::BYTE_ARRAY,
        _ => return false,
    };
    stored == column.physical_type()
}

/// Returns the values of numeric or boolean arrays of one type, and their order.
pub(super) fn collect_words(
    arrays: &[ArrayRef],
    descr: &ColumnDescriptor,
    scratch: &mut Scratch,
) -> Option<(DenseValues<'static>, ValueOrder)> {
    let whole = |wide| match descr.sort_order() {
        SortOrder::UNSIGNED => ValueOrder::Unsigned { wide },
        _ => ValueOrder::Signed { wide },
    };
    let narrow = |values| Some((DenseValues::Narrow(values), whole(false)));
    let wide = |values| Some((DenseValues::Wide(values), whole(true)));
    match arrays.first()?.data_type() {
        DataType::Int8 => {
            narrow(collect_native::<Int8Type, _>(&mut scratch.narrow, arrays, |v| i32::from(v).cast_unsigned()))
        }
        DataType::Int16 => {
            narrow(collect_native::<Int16Type, _>(&mut scratch.narrow, arrays, |v| i32::from(v).cast_unsigned()))
        }
        DataType::Int32 => narrow(collect_native::<Int32Type, _>(&mut scratch.narrow, arrays, i32::cast_unsigned)),
        DataType::UInt8 => narrow(collect_native::<UInt8Type, _>(&mut scratch.narrow, arrays, u32::from)),
        DataType::UInt16 => narrow(collect_native::<UInt16Type, _>(&mut scratch.narrow, arrays, u32::from)),
        DataType::UInt32 => narrow(collect_native::<UInt32Type, _>(&mut scratch.narrow, arrays, |v| v)),
        DataType::Date32 => narrow(collect_native::<Date32Type, _>(&mut scratch.narrow, arrays, i32::cast_unsigned)),
        DataType::Int64 => wide(collect_native::<Int64Type, _>(&mut scratch.wide, arrays, i64::cast_unsigned)),
        DataType::UInt64 => wide(collect_native::<UInt64Type, _>(&mut scratch.wide, arrays, |v| v)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            wide(collect_native::<TimestampMillisecondType, _>(&mut scratch.wide, arrays, i64::cast_unsigned))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            wide(collect_native::<TimestampMicrosecondType, _>(&mut scratch.wide, arrays, i64::cast_unsigned))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            wide(collect_native::<TimestampNanosecondType, _>(&mut scratch.wide, arrays, i64::cast_unsigned))
        }
        DataType::Float32 => Some((
            DenseValues::Narrow(collect_native::<Float32Type, _>(&mut scratch.narrow, arrays, f32::to_bits)),
            ValueOrder::Float { wide: false },
        )),
        DataType::Float64 => Some((
            DenseValues::Wide(collect_native::<Float64Type, _>(&mut scratch.wide, arrays, f64::to_bits)),
            ValueOrder::Float { wide: true },
        )),
        DataType::Boolean => Some((DenseValues::Bits(collect_bits(arrays)), ValueOrder::Boolean)),
        _ => None,
    }
}

/// Returns the values of text or binary arrays, and their order.
pub(super) fn collect_texts<'a>(
    arrays: &'a [ArrayRef],
    scratch: &mut Scratch,
) -> Option<(DenseValues<'a>, ValueOrder)> {
    let room = scratch.take_texts();
    let (values, utf8) = match arrays.first()?.data_type() {
        DataType::Utf8 => (collect_slices(room, arrays.iter().map(|array| array.as_string::<i32>())), true),
        DataType::LargeUtf8 => (collect_slices(room, arrays.iter().map(|array| array.as_string::<i64>())), true),
        DataType::Binary => (collect_slices(room, arrays.iter().map(|array| array.as_binary::<i32>())), false),
        DataType::LargeBinary => (collect_slices(room, arrays.iter().map(|array| array.as_binary::<i64>())), false),
        _ => return None,
    };
    Some((DenseValues::Bytes(values), ValueOrder::Bytes { utf8 }))
}

/// Returns whether some text is too long for a page.
pub(super) fn is_too_long(array: &dyn Array) -> bool {
    let long = |offsets: &[i64]| offsets.windows(2).any(|pair| pair[1] - pair[0] > MAX_TEXT_BYTES);
    match array.data_type() {
        DataType::LargeUtf8 => long(array.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => long(array.as_binary::<i64>().value_offsets()),
        _ => false,
    }
}

fn values_in(arrays: &[ArrayRef]) -> usize {
    arrays.iter().map(|array| array.len() - array.null_count()).sum()
}

/// Collects values in a reused buffer.
fn collect_native<T: ArrowPrimitiveType, W>(
    room: &mut Vec<W>,
    arrays: &[ArrayRef],
    word: impl Fn(T::Native) -> W,
) -> Vec<W> {
    let mut out = std::mem::take(room);
    out.clear();
    out.reserve(values_in(arrays));
    for array in arrays {
        let array = array.as_primitive::<T>();
        let values = array.values();
        match array.nulls() {
            Some(nulls) if nulls.null_count() > 0 => {
                for (start, end) in nulls.valid_slices() {
                    out.extend(values[start..end].iter().map(|value| word(*value)));
                }
            }
            _ => out.extend(values.iter().map(|value| word(*value))),
        }
    }
    out
}

fn collect_bits(arrays: &[ArrayRef]) -> BooleanBuffer {
    let mut out = BooleanBufferBuilder::new(values_in(arrays));
    for array in arrays {
        let array = array.as_boolean();
        match array.nulls() {
            Some(nulls) if nulls.null_count() > 0 => {
                for (start, end) in nulls.valid_slices() {
                    out.append_buffer(&array.values().slice(start, end - start));
                }
            }
            _ => out.append_buffer(array.values()),
        }
    }
    out.finish()
}

fn collect_slices<'a, T: ByteArrayType + 'a>(
    mut out: Vec<&'a [u8]>,
    arrays: impl Iterator<Item = &'a GenericByteArray<T>> + Clone,
) -> Vec<&'a [u8]> {
    out.reserve(arrays.clone().map(|array| array.len() - array.null_count()).sum());
    for array in arrays {
        let (offsets, data) = (array.value_offsets(), array.value_data());
        let place = |offset: T::Offset| offset.as_usize();
        let mut take = |start: usize, end: usize| {
            let pairs = offsets[start..=end].windows(2);
            out.extend(pairs.map(|pair| &data[place(pair[0])..place(pair[1])]));
        };
        match array.nulls() {
            Some(nulls) if nulls.null_count() > 0 => nulls.valid_slices().for_each(|(start, end)| take(start, end)),
            _ => take(0, array.len()),
        }
    }
    out
}
