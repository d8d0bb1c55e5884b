//! Builds Arrow columns from the fields of a chunk, one column after the other.
//!
//! A whole column of a chunk is handed to its builder in one call, so that the type is looked at once per chunk and the
//! loop over the values is made for that type. The parser is tried on the field as it stands first; only what it does
//! not take is looked at more closely: empty (null), quoted, or a value that does not fit.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, ArrowPrimitiveType, BooleanArray, BooleanBufferBuilder, NullArray, NullBufferBuilder, PrimitiveArray,
        StringBuilder,
    },
    datatypes::{
        DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
        TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};

use super::{
    tokenize::{QUOTE, Row, unquote},
    value,
};

/// The fields of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells<'a> {
    /// The split.
    pub(super) bytes: &'a [u8],
    /// The split as text, if all of it is; otherwise each row for itself is known to be.
    pub(super) text: Option<&'a str>,
    /// The rows.
    pub(super) rows: &'a [Row],
    /// Ends of the fields, `width` per row.
    pub(super) ends: &'a [u32],
    /// Fields per row.
    pub(super) width: usize,
    /// Rows that the whole split will have, roughly: what builders make room for.
    pub(super) expected: usize,
    /// Unquoted text that means null, besides nothing.
    pub(super) null: Option<&'a [u8]>,
}

impl<'a> Cells<'a> {
    /// Where the field begins and ends; both ends are the same for one that the row lacks.
    #[inline]
    pub(super) fn span(&self, row: usize, column: usize) -> (usize, usize) {
        let at = row * self.width + column;
        let end = self.ends[at] as usize;
        let start = if column == 0 { self.rows[row].start } else { self.ends[at - 1] + 1 } as usize;
        (start.min(end), end)
    }

    /// The field as it stands in the source.
    #[inline]
    pub(super) fn raw(&self, row: usize, column: usize) -> &'a [u8] {
        let (start, end) = self.span(row, column);
        &self.bytes[start..end]
    }

    /// The value of a field that is not text: nothing if it is null.
    #[inline]
    pub(super) fn value<'s>(&self, raw: &'s [u8], scratch: &'s mut Vec<u8>) -> Option<&'s [u8]> {
        if raw.first() == Some(&QUOTE) {
            scratch.clear();
            return Some(unquote(raw, scratch)).filter(|value| !value.is_empty());
        }
        (!raw.is_empty() && self.null != Some(raw)).then_some(raw)
    }

    #[inline]
    fn str(&self, start: usize, end: usize) -> &'a str {
        match self.text {
            Some(text) => text.get(start..end),
            None => std::str::from_utf8(&self.bytes[start..end]).ok(),
        }
        .unwrap_or_default()
    }
}

/// A value that does not fit its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// Row within the chunk.
    pub(super) row: usize,
    /// Column within the source.
    pub(super) column: usize,
}

/// A column that grows chunk by chunk.
pub(super) trait Column {
    /// Appends one value per row; a value that does not fit is appended as null and told to `faults`.
    fn append(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<Fault>);

    /// The column; the builder is empty afterwards.
    fn finish(&mut self) -> ArrayRef;
}

/// The builder of a type, if delimited text can be read as that type. `pinned` tells that the user set the type.
pub(super) fn column(data_type: &DataType, pinned: bool) -> Option<Box<dyn Column>> {
    Some(match data_type {
        DataType::Null => Box::new(Nulls(0)),
        DataType::Utf8 => Box::new(Text::default()),
        DataType::Boolean => {
            Box::new(Booleans { values: BooleanBufferBuilder::new(0), nulls: NullBufferBuilder::new(0) })
        }
        DataType::Int8 => integer::<Int8Type>(pinned),
        DataType::Int16 => integer::<Int16Type>(pinned),
        DataType::Int32 => integer::<Int32Type>(pinned),
        DataType::Int64 if pinned => plain::<Int64Type>(loose(value::int64)),
        DataType::Int64 => plain::<Int64Type>(value::int64),
        DataType::UInt8 => integer::<UInt8Type>(pinned),
        DataType::UInt16 => integer::<UInt16Type>(pinned),
        DataType::UInt32 => integer::<UInt32Type>(pinned),
        DataType::UInt64 if pinned => plain::<UInt64Type>(loose(value::uint64)),
        DataType::UInt64 => plain::<UInt64Type>(value::uint64),
        DataType::Float32 => plain::<Float32Type>(loose(value::any_float32)),
        DataType::Float64 if pinned => plain::<Float64Type>(loose(value::any_float64)),
        DataType::Float64 => plain::<Float64Type>(value::float64),
        DataType::Date32 => plain::<Date32Type>(value::date32),
        DataType::Timestamp(TimeUnit::Microsecond, None) => plain::<TimestampMicrosecondType>(value::timestamp),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC" => {
            Box::new(Primitives::<TimestampMicrosecondType, _>::new(value::instant, data_type.clone()))
        }
        _ => return None,
    })
}

fn plain<T: ArrowPrimitiveType>(parse: impl Fn(&[u8]) -> Option<T::Native> + 'static) -> Box<dyn Column> {
    Box::new(Primitives::<T, _>::new(parse, T::DATA_TYPE))
}

fn integer<T>(pinned: bool) -> Box<dyn Column>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    let parse = |text: &[u8]| T::Native::try_from(value::int64(text)?).ok();
    if pinned { plain::<T>(loose(parse)) } else { plain::<T>(parse) }
}

/// Also takes numbers in unusual forms.
fn loose<N>(parse: impl Fn(&[u8]) -> Option<N>) -> impl Fn(&[u8]) -> Option<N> {
    move |text| parse(text).or_else(|| parse(value::plain_number(text, &mut [0; 64])?))
}

/// Values of fixed width.
struct Primitives<T: ArrowPrimitiveType, P> {
    parse: P,
    data_type: DataType,
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
    scratch: Vec<u8>,
}

impl<T: ArrowPrimitiveType, P> Primitives<T, P> {
    fn new(parse: P, data_type: DataType) -> Self {
        Self { parse, data_type, values: Vec::new(), nulls: NullBufferBuilder::new(0), scratch: Vec::new() }
    }
}

impl<T: ArrowPrimitiveType, P: Fn(&[u8]) -> Option<T::Native>> Primitives<T, P> {
    /// A field that the parser does not take as it stands.
    #[cold]
    fn look_closer(&mut self, cells: Cells<'_>, raw: &[u8], fault: Fault, faults: &mut Vec<Fault>) {
        let value = cells.value(raw, &mut self.scratch);
        let parsed = value.and_then(|value| (self.parse)(value));
        if value.is_some() && parsed.is_none() {
            faults.push(fault);
        }
        self.nulls.append(parsed.is_some());
        self.values.push(parsed.unwrap_or_default());
    }
}

impl<T: ArrowPrimitiveType, P: Fn(&[u8]) -> Option<T::Native>> Column for Primitives<T, P> {
    fn append(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<Fault>) {
        if self.values.is_empty() {
            self.values.reserve(cells.expected);
        }
        for row in 0..cells.rows.len() {
            let raw = cells.raw(row, column);
            match (self.parse)(raw) {
                Some(value) if cells.null.is_none_or(|null| null != raw) => {
                    self.values.push(value);
                    self.nulls.append_non_null();
                }
                _ => self.look_closer(cells, raw, Fault { row, column }, faults),
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::new(values.into(), self.nulls.finish());
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

/// Truth values.
struct Booleans {
    values: BooleanBufferBuilder,
    nulls: NullBufferBuilder,
}

impl Column for Booleans {
    fn append(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<Fault>) {
        let mut scratch = Vec::new();
        for row in 0..cells.rows.len() {
            let value = cells.value(cells.raw(row, column), &mut scratch);
            let parsed = value.and_then(value::boolean);
            if value.is_some() && parsed.is_none() {
                faults.push(Fault { row, column });
            }
            self.nulls.append(parsed.is_some());
            self.values.append(parsed.unwrap_or_default());
        }
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(BooleanArray::new(self.values.finish(), self.nulls.finish()))
    }
}

/// Text, which takes every value.
#[derive(Default)]
struct Text {
    values: StringBuilder,
    scratch: Vec<u8>,
}

impl Column for Text {
    fn append(&mut self, cells: Cells<'_>, column: usize, _faults: &mut Vec<Fault>) {
        for row in 0..cells.rows.len() {
            let (start, end) = cells.span(row, column);
            let raw = &cells.bytes[start..end];
            if raw.is_empty() || cells.null == Some(raw) {
                self.values.append_null();
            } else if raw[0] != QUOTE {
                self.values.append_value(cells.str(start, end));
            } else if raw.len() > 1 && memchr::memchr(QUOTE, &raw[1..raw.len() - 1]).is_none() && raw.ends_with(b"\"") {
                self.values.append_value(cells.str(start + 1, end - 1));
            } else {
                self.scratch.clear();
                // Quotes are ASCII, so taking some of them away leaves UTF-8.
                let value = unquote(raw, &mut self.scratch);
                self.values.append_value(std::str::from_utf8(value).unwrap_or_default());
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.values.finish())
    }
}

/// A column that has nothing but nulls.
struct Nulls(usize);

impl Column for Nulls {
    fn append(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<Fault>) {
        let mut scratch = Vec::new();
        for row in 0..cells.rows.len() {
            if cells.value(cells.raw(row, column), &mut scratch).is_some() {
                faults.push(Fault { row, column });
            }
        }
        self.0 += cells.rows.len();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(NullArray::new(std::mem::take(&mut self.0)))
    }
}
