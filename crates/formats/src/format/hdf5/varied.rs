//! Elements of variable length: replaces stored references into heaps with the bytes that they refer to.
//!
//! Texts and sequences of elements of fixed width become their bytes; types that contain such values are packed as
//! described in [`nested`](crate::array::nested). The order of the columns depends on the type alone, so a type is
//! analysed once and not for every element.

use hdf5_reader::{Datatype, StringSize, VarLenKind, error::Error as Hdf5Error};

use super::{
    chunks::ReadContext,
    filters::MAX_READ,
    heap::HeapCache,
    types::{dtype_of, to_native},
};
use crate::array::nested;

type Result<T> = std::result::Result<T, Hdf5Error>;

/// Stored form of the elements of a type.
enum ValueForm<'a> {
    /// Elements of this many bytes, in the file's byte order.
    Fixed(&'a Datatype, usize),
    Text,
    /// References to sequences of items, each with this many stored bytes.
    Sequence(Box<Self>, usize),
    /// Members with their offsets.
    Struct(Vec<(usize, Self)>, usize),
    Array(Box<Self>, usize),
}

impl<'a> ValueForm<'a> {
    /// Returns the form of a type. `reference` is the bytes of a reference into a heap.
    fn from_datatype(datatype: &'a Datatype, reference: usize) -> Result<Self> {
        if let Some(width) = dtype_of(datatype).byte_width() {
            return Ok(Self::Fixed(datatype, width));
        }
        Ok(match datatype {
            Datatype::String { size: StringSize::Variable, .. } | Datatype::VarLen { kind: VarLenKind::String, .. } => {
                Self::Text
            }
            Datatype::VarLen { base, .. } => {
                let item = Self::from_datatype(base, reference)?;
                let width = item.stored_width(reference)?;
                Self::Sequence(Box::new(item), width)
            }
            Datatype::Compound { size, fields } => {
                let member = |offset: u64, datatype| {
                    Ok((
                        usize::try_from(offset).map_err(|_| invalid_type())?,
                        Self::from_datatype(datatype, reference)?,
                    ))
                };
                let members = fields.iter().map(|field| member(field.byte_offset.into(), &field.datatype));
                Self::Struct(members.collect::<Result<_>>()?, usize::try_from(*size).map_err(|_| invalid_type())?)
            }
            Datatype::Array { base, dims } => {
                let count = dims.iter().try_fold(1, |all: usize, dim| all.checked_mul(usize::try_from(*dim).ok()?));
                Self::Array(Box::new(Self::from_datatype(base, reference)?), count.ok_or_else(invalid_type)?)
            }
            _ => return Err(invalid_type()),
        })
    }

    /// Returns the bytes of a stored element.
    fn stored_width(&self, reference: usize) -> Result<usize> {
        match self {
            Self::Fixed(_, width) | Self::Struct(_, width) => Ok(*width),
            Self::Text | Self::Sequence(..) => Ok(reference),
            Self::Array(item, count) => item.stored_width(reference)?.checked_mul(*count).ok_or_else(invalid_type),
        }
    }
}

/// Resolves stored elements of `width` bytes each.
///
/// # Errors
/// If a reference is invalid, or the result takes too much memory.
pub(super) fn resolve_elements(
    source: &ReadContext<'_>,
    heaps: &HeapCache,
    datatype: &Datatype,
    width: usize,
    stored: &[u8],
) -> Result<Vec<Vec<u8>>> {
    let reference = usize::from(source.file.superblock().offset_size) + 8;
    let form = ValueForm::from_datatype(datatype, reference)?;
    if form.stored_width(reference)? != width || width == 0 {
        return Err(invalid_type());
    }
    let mut reading = ValueResolver { source, heaps, reference, left: MAX_READ };
    stored.chunks_exact(width).map(|element| reading.resolve_element(&form, element)).collect()
}

struct ValueResolver<'a> {
    source: &'a ReadContext<'a>,
    heaps: &'a HeapCache,
    reference: usize,
    /// Bytes that the result may still grow by.
    left: usize,
}

impl ValueResolver<'_> {
    fn resolve_element(&mut self, form: &ValueForm<'_>, stored: &[u8]) -> Result<Vec<u8>> {
        match form {
            ValueForm::Text => Ok(self.resolve_text(stored)?.to_vec()),
            ValueForm::Sequence(item, width) if matches!(**item, ValueForm::Fixed(..)) => {
                let value = self.heaps.read_value(self.source, stored, *width)?;
                let mut out = value.as_ref().to_vec();
                self.charge_bytes(out.len())?;
                if let ValueForm::Fixed(datatype, _) = **item {
                    to_native(datatype, &mut out);
                }
                Ok(out)
            }
            form => {
                let mut out = Vec::new();
                self.pack_element(form, stored, &mut out)?;
                Ok(out)
            }
        }
    }

    /// Resolves a text, which ends at its first NUL.
    fn resolve_text(&mut self, stored: &[u8]) -> Result<HeapText> {
        let value = self.heaps.read_value(self.source, stored, 1)?;
        let end = memchr::memchr(0, value.as_ref()).unwrap_or(value.as_ref().len());
        self.charge_bytes(end)?;
        Ok(HeapText(value, end))
    }

    fn pack_element(&mut self, form: &ValueForm<'_>, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match form {
            ValueForm::Fixed(datatype, width) => {
                let start = out.len();
                out.extend_from_slice(stored.get(..*width).ok_or_else(invalid_type)?);
                to_native(datatype, &mut out[start..]);
                self.charge_bytes(*width)
            }
            ValueForm::Text => {
                let text = self.resolve_text(stored)?;
                put_count(text.len(), out)?;
                out.extend_from_slice(&text);
                self.charge_bytes(size_of::<u32>())
            }
            ValueForm::Sequence(item, width) => {
                let value = self.heaps.read_value(self.source, stored, *width)?;
                let items = value.as_ref().chunks_exact((*width).max(1));
                put_count(items.len(), out)?;
                self.charge_bytes(size_of::<u32>())?;
                for stored in items {
                    self.pack_element(item, stored, out)?;
                }
                Ok(())
            }
            ValueForm::Struct(members, _) => {
                for (start, member) in members {
                    self.pack_element(member, stored.get(*start..).ok_or_else(invalid_type)?, out)?;
                }
                Ok(())
            }
            ValueForm::Array(item, count) => {
                let width = item.stored_width(self.reference)?;
                for number in 0..*count {
                    self.pack_element(item, stored.get(number * width..).ok_or_else(invalid_type)?, out)?;
                }
                Ok(())
            }
        }
    }

    fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        let too_large =
            || Hdf5Error::ResourceLimit(format!("values of variable length take more than {MAX_READ} bytes"));
        self.left = left.ok_or_else(too_large)?;
        Ok(())
    }
}

/// A text in a heap, and its length.
struct HeapText(super::heap::HeapValue, usize);

impl std::ops::Deref for HeapText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.as_ref()[..self.1]
    }
}

fn put_count(number: usize, out: &mut Vec<u8>) -> Result<()> {
    nested::pack_count(number, out).map_err(|error| Hdf5Error::ResourceLimit(error.to_string()))
}

fn invalid_type() -> Hdf5Error {
    Hdf5Error::InvalidData("expected a type whose members lie within it".to_owned())
}
