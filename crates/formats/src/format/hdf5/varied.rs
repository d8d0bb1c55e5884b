//! Elements of variable length: replaces stored references into heaps with the bytes that they refer to.
//!
//! Texts and sequences of elements of fixed width become their bytes; types that contain such values are packed as
//! described in [`nested`](crate::array::nested). The order of the columns depends on the type alone, so a type is
//! analysed once and not for every element.

use hdf5_reader::{Datatype, StringSize, VarLenKind, error::Error as Hdf5Error};

use super::{
    chunks::Source,
    filters::MAX_READ,
    heap::Heaps,
    types::{dtype_of, to_native},
};
use crate::array::nested;

type Result<T> = std::result::Result<T, Hdf5Error>;

/// Stored form of the elements of a type.
enum Form<'a> {
    /// Elements of this many bytes, in the file's byte order.
    Fixed(&'a Datatype, usize),
    Text,
    /// References to sequences of items, each with this many stored bytes.
    Sequence(Box<Self>, usize),
    /// Members with their offsets.
    Struct(Vec<(usize, Self)>, usize),
    Array(Box<Self>, usize),
}

impl<'a> Form<'a> {
    /// Returns the form of a type. `reference` is the bytes of a reference into a heap.
    fn of(datatype: &'a Datatype, reference: usize) -> Result<Self> {
        if let Some(width) = dtype_of(datatype).width() {
            return Ok(Self::Fixed(datatype, width));
        }
        Ok(match datatype {
            Datatype::String { size: StringSize::Variable, .. } | Datatype::VarLen { kind: VarLenKind::String, .. } => {
                Self::Text
            }
            Datatype::VarLen { base, .. } => {
                let item = Self::of(base, reference)?;
                let width = item.width(reference)?;
                Self::Sequence(Box::new(item), width)
            }
            Datatype::Compound { size, fields } => {
                let member = |offset: u64, datatype| {
                    Ok((usize::try_from(offset).map_err(|_| odd())?, Self::of(datatype, reference)?))
                };
                let members = fields.iter().map(|field| member(field.byte_offset.into(), &field.datatype));
                Self::Struct(members.collect::<Result<_>>()?, usize::try_from(*size).map_err(|_| odd())?)
            }
            Datatype::Array { base, dims } => {
                let count = dims.iter().try_fold(1, |all: usize, dim| all.checked_mul(usize::try_from(*dim).ok()?));
                Self::Array(Box::new(Self::of(base, reference)?), count.ok_or_else(odd)?)
            }
            _ => return Err(odd()),
        })
    }

    /// Returns the bytes of a stored element.
    fn width(&self, reference: usize) -> Result<usize> {
        match self {
            Self::Fixed(_, width) | Self::Struct(_, width) => Ok(*width),
            Self::Text | Self::Sequence(..) => Ok(reference),
            Self::Array(item, count) => item.width(reference)?.checked_mul(*count).ok_or_else(odd),
        }
    }
}

/// Resolves stored elements of `width` bytes each.
///
/// # Errors
/// If a reference is invalid, or the result takes too much memory.
pub(super) fn elements(
    source: &Source<'_>,
    heaps: &Heaps,
    datatype: &Datatype,
    width: usize,
    stored: &[u8],
) -> Result<Vec<Vec<u8>>> {
    let reference = usize::from(source.file.superblock().offset_size) + 8;
    let form = Form::of(datatype, reference)?;
    if form.width(reference)? != width || width == 0 {
        return Err(odd());
    }
    let mut reading = Reading { source, heaps, reference, left: MAX_READ };
    stored.chunks_exact(width).map(|element| reading.element(&form, element)).collect()
}

struct Reading<'a> {
    source: &'a Source<'a>,
    heaps: &'a Heaps,
    reference: usize,
    /// Bytes that the result may still grow by.
    left: usize,
}

impl Reading<'_> {
    fn element(&mut self, form: &Form<'_>, stored: &[u8]) -> Result<Vec<u8>> {
        match form {
            Form::Text => Ok(self.text(stored)?.to_vec()),
            Form::Sequence(item, width) if matches!(**item, Form::Fixed(..)) => {
                let value = self.heaps.value(self.source, stored, *width)?;
                let mut out = value.as_ref().to_vec();
                self.count(out.len())?;
                if let Form::Fixed(datatype, _) = **item {
                    to_native(datatype, &mut out);
                }
                Ok(out)
            }
            form => {
                let mut out = Vec::new();
                self.pack(form, stored, &mut out)?;
                Ok(out)
            }
        }
    }

    /// Resolves a text, which ends at its first NUL.
    fn text(&mut self, stored: &[u8]) -> Result<Text> {
        let value = self.heaps.value(self.source, stored, 1)?;
        let end = memchr::memchr(0, value.as_ref()).unwrap_or(value.as_ref().len());
        self.count(end)?;
        Ok(Text(value, end))
    }

    fn pack(&mut self, form: &Form<'_>, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match form {
            Form::Fixed(datatype, width) => {
                let start = out.len();
                out.extend_from_slice(stored.get(..*width).ok_or_else(odd)?);
                to_native(datatype, &mut out[start..]);
                self.count(*width)
            }
            Form::Text => {
                let text = self.text(stored)?;
                count(text.len(), out)?;
                out.extend_from_slice(&text);
                self.count(size_of::<u32>())
            }
            Form::Sequence(item, width) => {
                let value = self.heaps.value(self.source, stored, *width)?;
                let items = value.as_ref().chunks_exact((*width).max(1));
                count(items.len(), out)?;
                self.count(size_of::<u32>())?;
                for stored in items {
                    self.pack(item, stored, out)?;
                }
                Ok(())
            }
            Form::Struct(members, _) => {
                for (start, member) in members {
                    self.pack(member, stored.get(*start..).ok_or_else(odd)?, out)?;
                }
                Ok(())
            }
            Form::Array(item, count) => {
                let width = item.width(self.reference)?;
                for number in 0..*count {
                    self.pack(item, stored.get(number * width..).ok_or_else(odd)?, out)?;
                }
                Ok(())
            }
        }
    }

    fn count(&mut self, bytes: usize) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        let too_large =
            || Hdf5Error::ResourceLimit(format!("values of variable length take more than {MAX_READ} bytes"));
        self.left = left.ok_or_else(too_large)?;
        Ok(())
    }
}

/// A text in a heap, and its length.
struct Text(super::heap::Value, usize);

impl std::ops::Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.as_ref()[..self.1]
    }
}

fn count(number: usize, out: &mut Vec<u8>) -> Result<()> {
    nested::count(number, out).map_err(|error| Hdf5Error::ResourceLimit(error.to_string()))
}

fn odd() -> Hdf5Error {
    Hdf5Error::InvalidData("expected a type whose members lie within it".to_owned())
}
