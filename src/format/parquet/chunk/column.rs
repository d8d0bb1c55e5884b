//! A column as the encoder sees it: its values without the nulls, one behind the other, and where the nulls are.
//!
//! Numbers are words of 32 or 64 bits whatever they mean; only an [`Order`] knows that. Text is not copied.

use ::parquet::{basic::SortOrder, basic::Type as Physical, schema::types::ColumnDescriptor};
use arrow::{
    array::{Array, ArrowPrimitiveType, AsArray, BooleanBufferBuilder, GenericByteArray, types::ByteArrayType},
    buffer::BooleanBuffer,
    datatypes::{
        DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
        UInt64Type,
    },
};

use super::{levels::Layout, scratch::Scratch, stats::Order};
use crate::record::coded::value_type;

/// A value of fixed width.
pub(crate) trait Word: Copy + Eq {
    /// Bytes of it.
    const WIDTH: usize;

    /// Its bits, the upper ones cleared.
    fn bits(self) -> u64;

    /// The number that its bits are, if they are one with a sign.
    fn signed(self) -> i64;

    /// Appends values, lowest byte first.
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
pub(super) enum Values<'a> {
    /// 32 bits each.
    Narrow(Vec<u32>),
    /// 64 bits each.
    Wide(Vec<u64>),
    /// One bit each.
    Bits(BooleanBuffer),
    /// Of variable length.
    Bytes(Vec<&'a [u8]>),
}

/// A column of one or more arrays.
pub(super) struct Column<'a> {
    /// Its rows, and their slots.
    pub(super) layout: &'a Layout,
    /// Which slots have a value; `None` if all have.
    pub(super) validity: Option<BooleanBuffer>,
    /// Values of those slots.
    pub(super) values: Values<'a>,
    /// How they are compared.
    pub(super) order: Order,
}

impl<'a> Column<'a> {
    /// The column made of all arrays, which have one type; `None` if that is stored otherwise than value by value.
    pub(super) fn of(
        descr: &ColumnDescriptor,
        layout: &'a Layout,
        arrays: &'a [&'a dyn Array],
        scratch: &mut Scratch,
    ) -> Option<Self> {
        let (values, order) = gather(arrays.first()?.data_type(), arrays, descr, scratch)?;
        let fits = matches!(
            (&values, descr.physical_type()),
            (Values::Narrow(_), Physical::INT32 | Physical::FLOAT)
                | (Values::Wide(_), Physical::INT64 | Physical::DOUBLE)
                | (Values::Bits(_), Physical::BOOLEAN)
                | (Values::Bytes(_), Physical::BYTE_ARRAY)
        );
        // A null where the schema allows none is for the general writer to refuse.
        let nulls = validity(arrays);
        let allowed = nulls.is_none() || layout.nullable || layout.levels.is_some();
        let validity = layout.validity().or(nulls);
        (fits && allowed).then_some(Self { layout, validity, values, order })
    }
}

fn validity(arrays: &[&dyn Array]) -> Option<BooleanBuffer> {
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

/// The values of arrays of this type, and their order.
pub(super) fn gather<'a>(
    of: &DataType,
    arrays: &'a [&'a dyn Array],
    descr: &ColumnDescriptor,
    scratch: &mut Scratch,
) -> Option<(Values<'a>, Order)> {
    let whole = |wide| match descr.sort_order() {
        SortOrder::UNSIGNED => Order::Unsigned { wide },
        _ => Order::Signed { wide },
    };
    let narrow = |values| Some((Values::Narrow(values), whole(false)));
    let wide = |values| Some((Values::Wide(values), whole(true)));
    match of {
        DataType::Int8 => narrow(words::<Int8Type, _>(&mut scratch.narrow, arrays, |v| i32::from(v).cast_unsigned())),
        DataType::Int16 => narrow(words::<Int16Type, _>(&mut scratch.narrow, arrays, |v| i32::from(v).cast_unsigned())),
        DataType::Int32 => narrow(words::<Int32Type, _>(&mut scratch.narrow, arrays, i32::cast_unsigned)),
        DataType::UInt8 => narrow(words::<UInt8Type, _>(&mut scratch.narrow, arrays, u32::from)),
        DataType::UInt16 => narrow(words::<UInt16Type, _>(&mut scratch.narrow, arrays, u32::from)),
        DataType::UInt32 => narrow(words::<UInt32Type, _>(&mut scratch.narrow, arrays, |v| v)),
        DataType::Date32 => narrow(words::<Date32Type, _>(&mut scratch.narrow, arrays, i32::cast_unsigned)),
        DataType::Int64 => wide(words::<Int64Type, _>(&mut scratch.wide, arrays, i64::cast_unsigned)),
        DataType::UInt64 => wide(words::<UInt64Type, _>(&mut scratch.wide, arrays, |v| v)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            wide(words::<TimestampMillisecondType, _>(&mut scratch.wide, arrays, i64::cast_unsigned))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            wide(words::<TimestampMicrosecondType, _>(&mut scratch.wide, arrays, i64::cast_unsigned))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            wide(words::<TimestampNanosecondType, _>(&mut scratch.wide, arrays, i64::cast_unsigned))
        }
        DataType::Float32 => Some((
            Values::Narrow(words::<Float32Type, _>(&mut scratch.narrow, arrays, f32::to_bits)),
            Order::Float { wide: false },
        )),
        DataType::Float64 => Some((
            Values::Wide(words::<Float64Type, _>(&mut scratch.wide, arrays, f64::to_bits)),
            Order::Float { wide: true },
        )),
        DataType::Boolean => Some((Values::Bits(bits(arrays)), Order::Boolean)),
        DataType::Utf8 => {
            let arrays = arrays.iter().map(|array| array.as_string::<i32>());
            Some((Values::Bytes(slices(scratch.texts(), arrays)), Order::Bytes { utf8: true }))
        }
        DataType::Binary => {
            let arrays = arrays.iter().map(|array| array.as_binary::<i32>());
            Some((Values::Bytes(slices(scratch.texts(), arrays)), Order::Bytes { utf8: false }))
        }
        _ => None,
    }
}

/// Whether values of this type are stored value by value, or as keys of such values.
pub(super) fn takes(of: &DataType) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Float32, Float64, Int8, Int16, Int32, Int64, Timestamp, UInt8, UInt16, UInt32, UInt64,
        Utf8,
    };
    match &*value_type(of) {
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Date32 | Float32 | Float64 => true,
        Timestamp(unit, _) => *unit != TimeUnit::Second,
        Boolean | Utf8 | Binary => true,
        _ => false,
    }
}

fn values_in(arrays: &[&dyn Array]) -> usize {
    arrays.iter().map(|array| array.len() - array.null_count()).sum()
}

/// Values in memory that was used before.
fn words<T: ArrowPrimitiveType, W>(room: &mut Vec<W>, arrays: &[&dyn Array], word: impl Fn(T::Native) -> W) -> Vec<W> {
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

fn bits(arrays: &[&dyn Array]) -> BooleanBuffer {
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

fn slices<'a, T: ByteArrayType<Offset = i32> + 'a>(
    mut out: Vec<&'a [u8]>,
    arrays: impl Iterator<Item = &'a GenericByteArray<T>> + Clone,
) -> Vec<&'a [u8]> {
    out.reserve(arrays.clone().map(|array| array.len() - array.null_count()).sum());
    for array in arrays {
        let (offsets, data) = (array.value_offsets(), array.value_data());
        let place = |offset: i32| usize::try_from(offset).unwrap_or_default();
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
