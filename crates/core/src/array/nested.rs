//! Values of any length within structs, arrays and sequences: packs one element into bytes, and converts packed
//! elements to columns.
//!
//! ```text
//! text, bytes      length (u32), then the bytes
//! sequence         number of items (u32), then the items
//! struct, array    members or items, one after the other, without gaps
//! all other types  as they are
//! ```
//!
//! An element is packed completely, so that code that moves elements need not know their type. An element of no bytes
//! represents one that was never written: zeros, and empty values of any length.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, FixedSizeListArray, ListArray, StructArray},
    buffer::OffsetBuffer,
};

use super::dtype::{DType, Member, item_field, member_fields, texts_or_bytes};
use crate::error::{Error, Result};

/// Packs a length or a number of items.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) for numbers above 4 Gi.
pub fn pack_count(number: usize, out: &mut Vec<u8>) -> Result<()> {
    let number = u32::try_from(number);
    let number = number.map_err(|_| Error::input("expected less than 4 GiB in a value of any length, found more"))?;
    out.extend_from_slice(&number.to_le_bytes());
    Ok(())
}

/// Converts packed elements to an array.
///
/// # Errors
/// As [`DType::decode_column`].
pub(super) fn decode_packed(dtype: &DType, elements: &[Vec<u8>], raw: bool) -> Result<ArrayRef> {
    let mut unwritten = Vec::new();
    if elements.iter().any(Vec::is_empty) {
        pack_empty(dtype, &mut unwritten);
    }
    let rest = |element| if Vec::is_empty(element) { unwritten.as_slice() } else { element.as_slice() };
    let mut rests: Vec<&[u8]> = elements.iter().map(rest).collect();
    unpack_column(dtype, &mut rests, raw)
}

/// Packs an element that was never written.
fn pack_empty(dtype: &DType, out: &mut Vec<u8>) {
    match (dtype.byte_width(), dtype) {
        (Some(width), _) => out.resize(out.len() + width, 0),
        (_, DType::Struct(members, _)) => members.iter().for_each(|member| pack_empty(&member.dtype, out)),
        (_, DType::Array(item, count)) => (0..*count).for_each(|_| pack_empty(item, out)),
        _ => out.extend_from_slice(&[0; 4]),
    }
}

/// Removes an element from the front of each rest, and converts these elements to a column.
fn unpack_column(dtype: &DType, rests: &mut [&[u8]], raw: bool) -> Result<ArrayRef> {
    if let Some(width) = dtype.byte_width() {
        let mut bytes = Vec::with_capacity(width.saturating_mul(rests.len()));
        for rest in rests.iter_mut() {
            bytes.extend_from_slice(take_bytes(rest, width)?);
        }
        return dtype.decode_fixed(&bytes, rests.len(), raw);
    }
    match dtype {
        DType::AnyText | DType::AnyBytes => {
            let mut values = Vec::with_capacity(rests.len());
            for rest in rests.iter_mut() {
                let length = unpack_count(rest)?;
                values.push(take_bytes(rest, length)?);
            }
            texts_or_bytes(values.into_iter(), matches!(dtype, DType::AnyText) && !raw)
        }
        DType::Struct(members, _) => {
            let column = |member: &Member| unpack_column(&member.dtype, rests, raw);
            let columns = members.iter().map(column).collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(member_fields(members, raw), columns, None, rests.len())?))
        }
        DType::Array(item, length) => {
            let items = unpack_items(item, rests, |_| Ok(*length), raw)?;
            let length = i32::try_from(*length).map_err(|_| Error::input("expected smaller arrays in a struct"))?;
            Ok(Arc::new(FixedSizeListArray::try_new(Arc::new(item_field(item, raw)), length, items, None)?))
        }
        DType::Sequence(item) => {
            let mut lengths = Vec::with_capacity(rests.len());
            let length = |rest: &mut &[u8]| {
                let length = unpack_count(rest)?;
                lengths.push(length);
                Ok(length)
            };
            let items = unpack_items(item, rests, length, raw)?;
            let lengths = OffsetBuffer::from_lengths(lengths);
            Ok(Arc::new(ListArray::try_new(Arc::new(item_field(item, raw)), lengths, items, None)?))
        }
        _ => Err(Error::internal(format!("{} is not of any length", dtype.name()))),
    }
}

/// Removes a number of items from the front of each rest, and converts all of them to one column.
fn unpack_items(
    item: &DType,
    rests: &mut [&[u8]],
    mut length: impl FnMut(&mut &[u8]) -> Result<usize>,
    raw: bool,
) -> Result<ArrayRef> {
    if let Some(width) = item.byte_width().filter(|width| *width > 0) {
        let mut bytes = Vec::new();
        for rest in rests.iter_mut() {
            let own = length(rest)?.checked_mul(width).ok_or_else(truncated_value)?;
            bytes.extend_from_slice(take_bytes(rest, own)?);
        }
        return item.decode_fixed(&bytes, bytes.len() / width, raw);
    }
    let mut all = Vec::new();
    for rest in rests.iter_mut() {
        for _ in 0..length(rest)? {
            all.push(*rest);
            skip_element(item, rest)?;
        }
    }
    unpack_column(item, &mut all, raw)
}

/// Removes an element from the front.
fn skip_element(dtype: &DType, rest: &mut &[u8]) -> Result<()> {
    match (dtype.byte_width(), dtype) {
        (Some(width), _) => take_bytes(rest, width).map(drop),
        (_, DType::Struct(members, _)) => members.iter().try_for_each(|member| skip_element(&member.dtype, rest)),
        (_, DType::Array(item, count)) => (0..*count).try_for_each(|_| skip_element(item, rest)),
        (_, DType::Sequence(item)) => (0..unpack_count(rest)?).try_for_each(|_| skip_element(item, rest)),
        _ => {
            let length = unpack_count(rest)?;
            take_bytes(rest, length).map(drop)
        }
    }
}

fn unpack_count(rest: &mut &[u8]) -> Result<usize> {
    let bytes = rest.first_chunk::<4>().ok_or_else(truncated_value)?;
    *rest = &rest[4..];
    usize::try_from(u32::from_le_bytes(*bytes)).map_err(|_| truncated_value())
}

fn take_bytes<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8]> {
    let (own, after) = rest.split_at_checked(bytes).ok_or_else(truncated_value)?;
    *rest = after;
    Ok(own)
}

fn truncated_value() -> Error {
    Error::internal("a packed value is truncated")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{Int16Type, UInt8Type};

    use super::*;
    use crate::array::Values;

    fn member(name: &str, dtype: DType) -> Member {
        Member { name: name.into(), offset: 0, dtype }
    }

    fn text(text: &str, out: &mut Vec<u8>) {
        pack_count(text.len(), out).unwrap();
        out.extend_from_slice(text.as_bytes());
    }

    #[test]
    fn structs_with_texts_sequences_and_arrays_become_columns() {
        let pair = DType::Struct(vec![member("n", DType::UInt(1)), member("t", DType::AnyText)], 0);
        let members = vec![
            member("id", DType::Int(2)),
            member("name", DType::AnyText),
            member("pairs", DType::Sequence(Box::new(pair))),
            member("seq", DType::Sequence(Box::new(DType::Int(2)))),
            member("two", DType::Array(Box::new(DType::AnyText), 2)),
        ];
        let dtype = DType::Struct(members, 99);
        assert_eq!(dtype.byte_width(), None);
        let mut one = 7_i16.to_ne_bytes().to_vec();
        text("ä", &mut one);
        pack_count(2, &mut one).unwrap();
        one.push(1);
        text("x", &mut one);
        one.push(2);
        text("", &mut one);
        pack_count(1, &mut one).unwrap();
        one.extend(9_i16.to_ne_bytes());
        text("a", &mut one);
        text("bc", &mut one);
        let column = dtype.decode_column(Values::Varied(vec![one.clone(), Vec::new()]), false).unwrap();
        assert_eq!(column.data_type(), &dtype.column_type(false));
        let column = column.as_struct();
        assert_eq!(column.column(0).as_primitive::<Int16Type>().values(), &[7, 0]);
        assert_eq!(column.column(1).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["ä", ""]);
        let pairs = column.column(2).as_list::<i32>();
        assert_eq!((pairs.value_length(0), pairs.value_length(1)), (2, 0));
        assert_eq!(pairs.values().as_struct().column(0).as_primitive::<UInt8Type>().values(), &[1, 2]);
        assert_eq!(column.column(3).as_list::<i32>().values().as_primitive::<Int16Type>().values(), &[9]);
        let two = column.column(4).as_fixed_size_list().values();
        assert_eq!(two.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "bc", "", ""]);
        for end in 1..one.len() {
            assert!(dtype.decode_column(Values::Varied(vec![one[..end].to_vec()]), false).is_err(), "{end}");
        }
    }
}
