//! Types of elements, and conversion of elements to columns.
//!
//! | element | column |
//! |---|---|
//! | bool, int8 to int64, uint8 to uint64, float16 to float64 | the same |
//! | complex | struct of `re` and `im` |
//! | text of fixed or any length | text; binary with `--read raw=yes` |
//! | opaque bytes | binary of fixed size |
//! | instants, time spans | timestamp, duration; "not a time" is null |
//! | struct, array within a struct | struct, list of fixed size |
//! | sequences of any length | list |
//!
//! [`nested`] describes how values of any length are packed within others.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, BinaryBuilder, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray, StringBuilder,
        StructArray, make_array, new_null_array,
    },
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer},
    datatypes::{ArrowPrimitiveType, DataType, Field, Fields, Float16Type, TimeUnit},
};

use super::{Values, nested};
use crate::error::{Error, Result};

/// Type of an element. Widths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DType {
    /// One byte; any value except 0 is true.
    Bool,
    /// Signed integer.
    Int(usize),
    /// Unsigned integer.
    UInt(usize),
    /// IEEE 754 float.
    Float(usize),
    /// Two floats of this width each.
    Complex(usize),
    /// Text of this width, padded.
    Text(usize, Padding),
    /// Text of this many UCS-4 characters, padded with NUL.
    Wide(usize),
    /// Uninterpreted bytes.
    Opaque(usize),
    /// Time since 1970 as int64, in multiples of a unit; the smallest number is "not a time".
    Instant(TimeUnit, i64),
    /// Duration as int64, in multiples of a unit; the smallest number is "not a time".
    Span(TimeUnit, i64),
    /// Named members.
    Struct(Vec<Member>, usize),
    /// A fixed number of elements of a type.
    Array(Box<Self>, usize),
    /// Text of any length.
    AnyText,
    /// Bytes of any length.
    AnyBytes,
    /// Any number of elements.
    Sequence(Box<Self>),
    /// A type that cannot be read, with a description.
    Refused(String),
}

/// Padding of text of fixed width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// NUL at the end.
    Nul,
    /// The first NUL ends the text.
    Terminated,
    /// Blanks at the end.
    Blank,
}

/// A member of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of the member.
    pub name: String,
    /// Offset in bytes.
    pub offset: usize,
    /// Type of the member.
    pub dtype: DType,
}

/// A float of 16 bits.
pub(super) type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// The number that represents "not a time".
pub const NOT_A_TIME: i64 = i64::MIN;

impl DType {
    /// Returns the bytes of an element; `None` if they vary.
    pub fn byte_width(&self) -> Option<usize> {
        Some(match self {
            Self::Bool => 1,
            Self::Int(width) | Self::UInt(width) | Self::Float(width) | Self::Text(width, _) | Self::Opaque(width) => {
                *width
            }
            Self::Complex(part) => 2 * part,
            Self::Wide(characters) => 4 * characters,
            Self::Instant(..) | Self::Span(..) => 8,
            Self::Struct(members, width) => {
                members.iter().all(|member| member.dtype.byte_width().is_some()).then_some(*width)?
            }
            Self::Array(item, count) => item.byte_width()?.checked_mul(*count)?,
            Self::AnyText | Self::AnyBytes | Self::Sequence(_) | Self::Refused(_) => return None,
        })
    }

    /// Returns why elements cannot be read; `None` if they can.
    pub fn refusal_reason(&self) -> Option<&str> {
        let within = match self {
            Self::Refused(why) => Some(why.as_str()),
            Self::Struct(members, _) => members.iter().find_map(|member| member.dtype.refusal_reason()),
            Self::Array(item, _) | Self::Sequence(item) => item.refusal_reason(),
            _ => None,
        };
        // The number of elements cannot be derived from their bytes.
        within.or_else(|| (self.byte_width() == Some(0)).then_some("elements without a byte"))
    }

    /// Returns the name for messages.
    pub fn name(&self) -> String {
        match self {
            Self::Bool => "bool".to_owned(),
            Self::Int(width) => format!("int{}", 8 * width),
            Self::UInt(width) => format!("uint{}", 8 * width),
            Self::Float(width) => format!("float{}", 8 * width),
            Self::Complex(part) => format!("complex{}", 16 * part),
            Self::Text(width, _) => format!("text({width})"),
            Self::Wide(characters) => format!("text({characters})"),
            Self::Opaque(width) => format!("bytes({width})"),
            Self::Instant(..) => "timestamp".to_owned(),
            Self::Span(..) => "duration".to_owned(),
            Self::Struct(members, _) => {
                let members: Vec<String> =
                    members.iter().map(|member| format!("{}: {}", member.name, member.dtype.name())).collect();
                format!("struct<{}>", members.join(", "))
            }
            Self::Array(item, count) => format!("{}[{count}]", item.name()),
            Self::AnyText => "text".to_owned(),
            Self::AnyBytes => "bytes".to_owned(),
            Self::Sequence(item) => format!("sequence<{}>", item.name()),
            Self::Refused(why) => why.clone(),
        }
    }

    /// Returns numpy's name of the type, for elements in little-endian order; `None` if numpy has only objects for it.
    pub fn numpy_name(&self) -> Option<String> {
        Some(match self {
            Self::Bool => "|b1".to_owned(),
            Self::Int(1) => "|i1".to_owned(),
            Self::UInt(1) => "|u1".to_owned(),
            Self::Int(width) => format!("<i{width}"),
            Self::UInt(width) => format!("<u{width}"),
            Self::Float(width) => format!("<f{width}"),
            Self::Complex(part) => format!("<c{}", 2 * part),
            Self::Text(width, _) => format!("|S{width}"),
            Self::Wide(characters) => format!("<U{characters}"),
            Self::Opaque(width) => format!("|V{width}"),
            _ => return None,
        })
    }

    /// Returns the column type; with `raw`, text stays binary.
    pub fn column_type(&self, raw: bool) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int(1) => DataType::Int8,
            Self::Int(2) => DataType::Int16,
            Self::Int(4) => DataType::Int32,
            Self::Int(_) => DataType::Int64,
            Self::UInt(1) => DataType::UInt8,
            Self::UInt(2) => DataType::UInt16,
            Self::UInt(4) => DataType::UInt32,
            Self::UInt(_) => DataType::UInt64,
            Self::Float(2) => DataType::Float16,
            Self::Float(4) => DataType::Float32,
            Self::Float(_) => DataType::Float64,
            Self::Complex(part) => {
                let float = Self::Float(*part).column_type(raw);
                DataType::Struct(vec![Field::new("re", float.clone(), false), Field::new("im", float, false)].into())
            }
            Self::Text(..) | Self::AnyText if raw => DataType::Binary,
            Self::Text(..) | Self::Wide(_) | Self::AnyText => DataType::Utf8,
            // Arrow has no type of width 0.
            Self::Opaque(width) => match i32::try_from(*width) {
                Ok(width) if width > 0 => DataType::FixedSizeBinary(width),
                _ => DataType::Binary,
            },
            Self::AnyBytes => DataType::Binary,
            Self::Instant(unit, _) => DataType::Timestamp(*unit, None),
            Self::Span(unit, _) => DataType::Duration(*unit),
            Self::Struct(members, _) => DataType::Struct(member_fields(members, raw)),
            Self::Array(item, count) => {
                DataType::FixedSizeList(Arc::new(item_field(item, raw)), i32::try_from(*count).unwrap_or(i32::MAX))
            }
            Self::Sequence(item) => DataType::List(Arc::new(item_field(item, raw))),
            Self::Refused(_) => DataType::Null,
        }
    }

    /// Converts elements to an array.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for text that is not UTF-8 and times outside the range of the column.
    pub fn decode_column(&self, values: Values, raw: bool) -> Result<ArrayRef> {
        match (self, values) {
            // Numbers need no conversion.
            (Self::Int(width) | Self::UInt(width) | Self::Float(width), Values::Fixed(bytes))
                if bytes.len() % width == 0 && bytes.as_ptr().align_offset(*width) == 0 =>
            {
                let data = arrow::array::ArrayData::builder(self.column_type(raw)).len(bytes.len() / width);
                Ok(make_array(data.add_buffer(Buffer::from_vec(bytes)).build()?))
            }
            (_, Values::Fixed(bytes)) => match self.byte_width() {
                Some(0) => Ok(new_null_array(&self.column_type(raw), 0)),
                Some(width) if bytes.len() % width == 0 => self.decode_fixed(&bytes, bytes.len() / width, raw),
                _ => Err(Error::internal(format!("expected elements of {}, found {} bytes", self.name(), bytes.len()))),
            },
            (Self::Struct(..) | Self::Array(..), Values::Varied(elements)) => {
                nested::decode_packed(self, &elements, raw)
            }
            (Self::Sequence(item), Values::Varied(sequences)) => {
                let Some(width) = item.byte_width().filter(|width| *width > 0) else {
                    return nested::decode_packed(self, &sequences, raw);
                };
                let lengths = OffsetBuffer::from_lengths(sequences.iter().map(|bytes| bytes.len() / width));
                let bytes = sequences.concat();
                let items = item.decode_fixed(&bytes, bytes.len() / width, raw)?;
                Ok(Arc::new(ListArray::try_new(Arc::new(item_field(item, raw)), lengths, items, None)?))
            }
            (_, Values::Varied(values)) => texts_or_bytes(values.iter().map(Vec::as_slice), self.is_text() && !raw),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::Text(..) | Self::Wide(_) | Self::AnyText)
    }

    pub(super) fn decode_fixed(&self, bytes: &[u8], count: usize, raw: bool) -> Result<ArrayRef> {
        Ok(match self {
            Self::Bool => Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(count, |i| bytes[i] != 0), None)),
            Self::Int(_) | Self::UInt(_) | Self::Float(_) => {
                primitive_array(self.column_type(raw), bytes, count, None)?
            }
            Self::Complex(part) => {
                let float = Self::Float(*part);
                let halves = [0, *part].map(|offset| gather_member(bytes, 2 * part, offset, *part));
                let halves =
                    halves.iter().map(|half| float.decode_fixed(half, count, raw)).collect::<Result<Vec<_>>>()?;
                let DataType::Struct(fields) = self.column_type(raw) else {
                    return Err(Error::internal("a complex number is no struct"));
                };
                Arc::new(StructArray::try_new(fields, halves, None)?)
            }
            Self::Text(width, padding) => {
                texts_or_bytes(bytes.chunks_exact(*width).map(|text| trim_padding(text, *padding)), !raw)?
            }
            Self::Wide(characters) => decode_utf32(bytes, *characters)?,
            Self::Opaque(width) => {
                let width =
                    i32::try_from(*width).map_err(|_| Error::input("expected less than 2 GiB in an element"))?;
                Arc::new(FixedSizeBinaryArray::try_new(width, Buffer::from_slice_ref(bytes), None)?)
            }
            Self::Instant(_, scale) | Self::Span(_, scale) => scale_times(self.column_type(raw), bytes, count, *scale)?,
            Self::Struct(members, width) => {
                let column = |member: &Member| {
                    let Some(own) = member.dtype.byte_width() else {
                        return Err(Error::internal("a struct with a member of any length"));
                    };
                    member.dtype.decode_fixed(&gather_member(bytes, *width, member.offset, own), count, raw)
                };
                let columns = members.iter().map(column).collect::<Result<Vec<_>>>()?;
                Arc::new(StructArray::try_new_with_length(member_fields(members, raw), columns, None, count)?)
            }
            Self::Array(item, length) => {
                let items = item.decode_fixed(bytes, count * length, raw)?;
                let length = i32::try_from(*length).map_err(|_| Error::input("expected smaller arrays in a struct"))?;
                Arc::new(FixedSizeListArray::try_new(Arc::new(item_field(item, raw)), length, items, None)?)
            }
            Self::AnyText | Self::AnyBytes | Self::Sequence(_) | Self::Refused(_) => {
                return Err(Error::internal(format!("{} has no width", self.name())));
            }
        })
    }

    /// Returns numbers as doubles; empty if elements are not numbers.
    pub fn decode_doubles(&self, bytes: &[u8]) -> Vec<f64> {
        match self {
            Self::Float(4) => map_elements(bytes, |b| f64::from(f32::from_ne_bytes(b))),
            Self::Float(8) => map_elements(bytes, f64::from_ne_bytes),
            Self::Float(2) => map_elements(bytes, |b| Half::from_ne_bytes(b).to_f64()),
            #[expect(clippy::cast_precision_loss, reason = "for attributes, where doubles are asked for")]
            _ => self.decode_integers(bytes).into_iter().map(|integer| integer as f64).collect(),
        }
    }

    /// Returns integers; empty if elements are not integers.
    pub fn decode_integers(&self, bytes: &[u8]) -> Vec<i128> {
        match self {
            Self::Int(1) => map_elements(bytes, |b| i8::from_ne_bytes(b).into()),
            Self::Int(2) => map_elements(bytes, |b| i16::from_ne_bytes(b).into()),
            Self::Int(4) => map_elements(bytes, |b| i32::from_ne_bytes(b).into()),
            Self::Int(8) => map_elements(bytes, |b| i64::from_ne_bytes(b).into()),
            Self::UInt(1) | Self::Bool => map_elements(bytes, |b| u8::from_ne_bytes(b).into()),
            Self::UInt(2) => map_elements(bytes, |b| u16::from_ne_bytes(b).into()),
            Self::UInt(4) => map_elements(bytes, |b| u32::from_ne_bytes(b).into()),
            Self::UInt(8) => map_elements(bytes, |b| u64::from_ne_bytes(b).into()),
            _ => Vec::new(),
        }
    }

    /// Whether elements have a byte order.
    pub fn has_order(&self) -> bool {
        match self {
            Self::Bool | Self::Int(1) | Self::UInt(1) | Self::Text(..) | Self::Opaque(_) => false,
            Self::Array(item, _) => item.has_order(),
            Self::Struct(members, _) => members.iter().any(|member| member.dtype.has_order()),
            _ => true,
        }
    }

    /// Reverses the byte order of elements in place.
    pub fn swap_bytes(&self, bytes: &mut [u8]) {
        match self {
            Self::Int(width) | Self::UInt(width) | Self::Float(width) | Self::Complex(width) => {
                reverse_elements(bytes, *width)
            }
            Self::Instant(..) | Self::Span(..) => reverse_elements(bytes, 8),
            Self::Wide(_) => reverse_elements(bytes, 4),
            Self::Array(item, _) => item.swap_bytes(bytes),
            Self::Struct(members, width) if *width > 0 => {
                for element in bytes.chunks_exact_mut(*width) {
                    for member in members {
                        if let Some(own) = member.dtype.byte_width() {
                            member.dtype.swap_bytes(&mut element[member.offset..member.offset + own]);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

fn reverse_elements(bytes: &mut [u8], width: usize) {
    match width {
        0 | 1 => {}
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|value| value.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|value| value.reverse()),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|value| value.reverse()),
        width => bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

fn map_elements<const N: usize, T>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|bytes| value(*bytes)).collect()
}

pub(super) fn item_field(item: &DType, raw: bool) -> Field {
    Field::new("item", item.column_type(raw), item.may_be_null())
}

pub(super) fn member_fields(members: &[Member], raw: bool) -> Fields {
    let field = |m: &Member| Field::new(&m.name, m.dtype.column_type(raw), m.dtype.may_be_null());
    members.iter().map(field).collect()
}

impl DType {
    /// Whether a single element may be null.
    pub fn may_be_null(&self) -> bool {
        matches!(self, Self::Instant(..) | Self::Span(..))
    }
}

/// Collects the bytes of one member of every element.
fn gather_member(bytes: &[u8], width: usize, offset: usize, own: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / width.max(1) * own);
    bytes.chunks_exact(width.max(1)).for_each(|element| out.extend_from_slice(&element[offset..offset + own]));
    out
}

/// Converts numbers to an array.
pub(super) fn primitive_array(
    data_type: DataType,
    bytes: &[u8],
    count: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let data = arrow::array::ArrayData::builder(data_type)
        .len(count)
        .add_buffer(Buffer::from_slice_ref(bytes))
        .nulls(nulls)
        .build()?;
    Ok(make_array(data))
}

fn scale_times(data_type: DataType, bytes: &[u8], count: usize, scale: i64) -> Result<ArrayRef> {
    let mut out = Vec::with_capacity(bytes.len());
    let numbers = map_elements(bytes, i64::from_ne_bytes);
    for number in &numbers {
        let scaled = if *number == NOT_A_TIME { Some(0) } else { number.checked_mul(scale) };
        let scaled = scaled.ok_or_else(|| {
            Error::input(format!("expected a time that fits into a 64-bit timestamp, found {number}"))
        })?;
        out.extend_from_slice(&scaled.to_ne_bytes());
    }
    let valid = BooleanBuffer::collect_bool(count, |i| numbers[i] != NOT_A_TIME);
    primitive_array(data_type, &out, count, Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0))
}

fn trim_padding(text: &[u8], padding: Padding) -> &[u8] {
    let end = match padding {
        Padding::Terminated => memchr::memchr(0, text).unwrap_or(text.len()),
        Padding::Nul => text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1),
        Padding::Blank => text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1),
    };
    &text[..end]
}

pub(super) fn texts_or_bytes<'a>(values: impl Iterator<Item = &'a [u8]>, text: bool) -> Result<ArrayRef> {
    if !text {
        let mut out = BinaryBuilder::new();
        values.for_each(|value| out.append_value(value));
        return Ok(Arc::new(out.finish()));
    }
    let mut out = StringBuilder::new();
    for (number, value) in values.enumerate() {
        match simdutf8::basic::from_utf8(value) {
            Ok(text) => out.append_value(text),
            Err(_) => {
                return Err(Error::input(format!("expected text in UTF-8, found other bytes in element {number}"))
                    .with_hint("keep texts as bytes with --read raw=yes, or choose other variables with --read var"));
            }
        }
    }
    Ok(Arc::new(out.finish()))
}

fn decode_utf32(bytes: &[u8], characters: usize) -> Result<ArrayRef> {
    let mut out = StringBuilder::new();
    let mut text = String::new();
    for element in bytes.chunks_exact((4 * characters).max(4)) {
        text.clear();
        let codes = map_elements(element, u32::from_ne_bytes);
        let end = codes.iter().rposition(|code| *code != 0).map_or(0, |last| last + 1);
        for code in &codes[..end] {
            let character = char::from_u32(*code);
            text.push(character.ok_or_else(|| Error::input(format!("expected a character, found {code:#x}")))?);
        }
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Array, AsArray, Float32Array, Int16Array};
    use arrow::datatypes::TimestampSecondType;

    use super::*;

    fn column(dtype: &DType, bytes: &[u8]) -> ArrayRef {
        dtype.decode_column(Values::Fixed(bytes.to_vec()), false).unwrap()
    }

    #[test]
    fn numbers_and_bools() {
        assert_eq!(column(&DType::Int(2), &[1, 0, 255, 255]).as_ref(), &Int16Array::from(vec![1, -1]) as &dyn Array);
        assert_eq!(
            column(&DType::Bool, &[0, 1, 7]).as_ref(),
            &BooleanArray::from(vec![false, true, true]) as &dyn Array
        );
        let mut swapped = 1.5_f32.to_be_bytes();
        DType::Float(4).swap_bytes(&mut swapped);
        assert_eq!(column(&DType::Float(4), &swapped).as_ref(), &Float32Array::from(vec![1.5]) as &dyn Array);
    }

    #[test]
    fn padding_is_removed_from_texts() {
        let texts = |padding| {
            let column = column(&DType::Text(4, padding), b"a\0b\0 x  ");
            column.as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(texts(Padding::Nul), ["a\0b", " x  "]);
        assert_eq!(texts(Padding::Terminated), ["a", " x  "]);
        assert_eq!(texts(Padding::Blank), ["a\0b\0", " x"]);
        let wide: Vec<u8> = ['ä', '\0'].iter().flat_map(|c| u32::from(*c).to_ne_bytes()).collect();
        assert_eq!(column(&DType::Wide(2), &wide).as_string::<i32>().value(0), "ä");
        assert!(DType::Text(1, Padding::Nul).decode_column(Values::Fixed(vec![0xff]), false).is_err());
        assert!(DType::Text(1, Padding::Nul).decode_column(Values::Fixed(vec![0xff]), true).is_ok());
    }

    #[test]
    fn structs_hold_complex_numbers_arrays_and_times() {
        let members = vec![
            Member { name: "z".into(), offset: 0, dtype: DType::Complex(4) },
            Member { name: "a".into(), offset: 8, dtype: DType::Array(Box::new(DType::UInt(1)), 2) },
            Member { name: "t".into(), offset: 10, dtype: DType::Instant(TimeUnit::Second, 60) },
        ];
        let dtype = DType::Struct(members, 18);
        let mut bytes = [1.0_f32.to_ne_bytes(), 2.0_f32.to_ne_bytes()].concat();
        bytes.extend([7, 8]);
        bytes.extend(2_i64.to_ne_bytes());
        let column = column(&dtype, &bytes);
        let members = column.as_struct();
        assert_eq!(column.data_type(), &dtype.column_type(false));
        assert_eq!(members.column(2).as_primitive::<TimestampSecondType>().value(0), 120);
        assert_eq!(members.column(1).as_fixed_size_list().value(0).len(), 2);
        let none =
            DType::Instant(TimeUnit::Second, 60).decode_column(Values::Fixed(NOT_A_TIME.to_ne_bytes().to_vec()), false);
        assert_eq!(none.unwrap().null_count(), 1);
    }

    #[test]
    fn sequences_are_lists() {
        let dtype = DType::Sequence(Box::new(DType::Int(2)));
        let column = dtype.decode_column(Values::Varied(vec![vec![1, 0, 2, 0], vec![]]), false).unwrap();
        let list = column.as_list::<i32>();
        assert_eq!((list.value_length(0), list.value_length(1), list.value(0).len()), (2, 0, 2));
    }
}
