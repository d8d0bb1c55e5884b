//! Builds Arrow columns from the fields of a chunk, one column after the other.
//!
//! A builder receives a whole column of a chunk in one call, so that the type is matched once per chunk and the loop
//! over the values is compiled for that type. The parser is first tried on the raw field. If it fails, an empty field
//! is null; other fields may be quoted, or do not fit.
//!
//! Values and validity are written in Arrow's layout. On the fast path no branch depends on the length of a value, on
//! whether it is present, or on whether it is quoted, because these vary from row to row and cannot be predicted:
//!
//! ```text
//! text      start --copy 32 bytes--> values   the next value overwrites the excess; for longer values 128
//! validity  one bit per value in a register, 64 of them written at once
//! ```

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType, BooleanArray, NullArray, PrimitiveArray, StringArray},
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    compute::cast,
    datatypes::{
        DataType, Date32Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
        TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
    error::ArrowError,
};

use super::{
    numbers::{GROUP, Moments, TextGroup},
    simd,
    tokenize::{QUOTE, Row, Tokenizer, unquote_field},
    value,
};
use crate::{
    record::{
        buffer_pool,
        typed::{Form, Typed},
    },
    schema,
};

/// Number of bytes copied at once: for short values, and for longer ones.
const WIDE: usize = 32;
const WIDER: usize = 128;
/// Bytes of records up to which room for all of them is made instead of room for their values in a column.
const SHORT_RECORDS: usize = 64 << 10;

/// The fields of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells<'a> {
    /// The range.
    pub(super) bytes: &'a [u8],
    /// The rows, all of them UTF-8.
    pub(super) rows: &'a [Row],
    /// Ends of the fields, those of a row one after the other.
    pub(super) ends: &'a [u32],
    /// Whether every field that begins with a quote also ends with one and contains no others.
    pub(super) plainly_quoted: bool,
    /// Approximate number of rows of the whole range, for which builders reserve memory.
    pub(super) expected: usize,
    /// Unquoted texts that mean null, in addition to the empty field.
    pub(super) nulls: &'a [String],
}

impl<'a> Cells<'a> {
    /// Returns the cells of the current chunk.
    pub(super) fn from_tokens(tokens: &'a Tokenizer<'a>, nulls: &'a [String]) -> Self {
        Self {
            bytes: tokens.bytes,
            rows: &tokens.rows,
            ends: tokens.field_ends(),
            plainly_quoted: tokens.is_plainly_quoted(),
            expected: tokens.expected_rows(),
            nulls,
        }
    }

    /// Returns the start and end of a field; they are equal if the row lacks the field.
    #[inline]
    pub(super) fn field_span(&self, row: usize, column: usize) -> (usize, usize) {
        let row = &self.rows[row];
        let at = row.first as usize + column;
        let end = self.ends[at];
        let start = if column == 0 { row.start } else { self.ends[at - 1] + 1 };
        (start.min(end) as usize, end as usize)
    }

    /// Returns the raw field.
    #[inline]
    pub(super) fn raw_field(&self, row: usize, column: usize) -> &'a [u8] {
        let (start, end) = self.field_span(row, column);
        &self.bytes[start..end]
    }

    /// Whether an unquoted field is a text that means null.
    #[inline]
    pub(super) fn is_null_text(&self, raw: &[u8]) -> bool {
        self.nulls.iter().any(|null| null.as_bytes() == raw)
    }

    /// Returns the value of a field that is not text; `None` if it is null.
    #[inline]
    pub(super) fn unquoted_value<'s>(&self, raw: &'s [u8], scratch: &'s mut Vec<u8>) -> Option<&'s [u8]> {
        if raw.first() == Some(&QUOTE) {
            scratch.clear();
            return Some(unquote_field(raw, scratch)).filter(|value| !value.is_empty());
        }
        (!raw.is_empty() && !self.is_null_text(raw)).then_some(raw)
    }
}

/// A value that does not fit its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CellFault {
    /// Row within the chunk.
    pub(super) row: usize,
    /// Column within the source.
    pub(super) column: usize,
}

/// A column that grows chunk by chunk.
pub(super) trait ColumnBuilder {
    /// Appends one value per row; a value that does not fit is appended as null and reported in `faults`.
    fn append_cells(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<CellFault>);

    /// Returns the column and empties the builder.
    fn finish(&mut self) -> Result<ArrayRef, ArrowError>;
}

/// Returns the builder of a type; `None` if delimited text cannot be read as that type. `pinned` states that the user
/// set the type.
pub(super) fn column_builder(field: &Field, pinned: bool) -> Option<Box<dyn ColumnBuilder>> {
    let data_type = field.data_type();
    Some(match data_type {
        DataType::Null => Box::new(Nulls(0)),
        DataType::Utf8 if schema::is_json(field) => {
            Box::new(Others { values: Typed::new(field)?, valid: BitmapBuilder::default(), as_documents: !pinned })
        }
        DataType::Utf8 => Box::new(TextColumn::default()),
        DataType::LargeUtf8 => Box::new(Cast(TextColumn::default(), DataType::LargeUtf8)),
        // If the type is binary because other sources contain bytes, text becomes its bytes.
        DataType::Binary | DataType::LargeBinary if !pinned => Box::new(Cast(TextColumn::default(), data_type.clone())),
        DataType::Boolean => Box::new(Booleans::default()),
        DataType::Int8 => integer_column::<Int8Type>(pinned),
        DataType::Int16 => integer_column::<Int16Type>(pinned),
        DataType::Int32 => integer_column::<Int32Type>(pinned),
        DataType::Int64 if pinned => {
            quick_column::<Int64Type>(Quick::Short(simd::parse_integers), lenient_parser(value::parse_int64))
        }
        DataType::Int64 => quick_column::<Int64Type>(Quick::Short(simd::parse_integers), value::parse_int64),
        DataType::UInt8 => integer_column::<UInt8Type>(pinned),
        DataType::UInt16 => integer_column::<UInt16Type>(pinned),
        DataType::UInt32 => integer_column::<UInt32Type>(pinned),
        DataType::UInt64 if pinned => plain_column::<UInt64Type>(lenient_parser(value::parse_uint64)),
        DataType::UInt64 => plain_column::<UInt64Type>(value::parse_uint64),
        DataType::Float32 => plain_column::<Float32Type>(lenient_parser(value::any_float32)),
        DataType::Float64 if pinned => {
            quick_column::<Float64Type>(Quick::Short(simd::parse_floats), lenient_parser(value::any_float64))
        }
        DataType::Float64 => quick_column::<Float64Type>(Quick::Short(simd::parse_floats), value::parse_float64),
        DataType::Date32 => plain_column::<Date32Type>(value::parse_date32),
        DataType::Timestamp(TimeUnit::Microsecond, None) => quick_column::<TimestampMicrosecondType>(
            Quick::Moment(simd::parse_timestamps, None),
            value::parse_timestamp,
        ),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC" => {
            let quick = Some(Quick::Moment(simd::parse_timestamps, Some(b'Z')));
            Box::new(Primitives::<TimestampMicrosecondType, _>::new(quick, value::parse_instant, data_type.clone()))
        }
        _ => Box::new(Others { values: Typed::new(field)?, valid: BitmapBuilder::default(), as_documents: false }),
    })
}

/// Parses the usual texts of a group; the others are zero, and their bits are not set.
#[derive(Clone, Copy)]
enum Quick<N> {
    /// Texts of up to eight bytes.
    Short(fn(&TextGroup, &mut [N; GROUP]) -> u64),
    /// Date and time to the second, followed by this byte if there is one.
    Moment(fn(&Moments, &mut [N; GROUP]) -> u64, Option<u8>),
}

impl<N> Quick<N> {
    /// Returns which texts are not empty, and which are values; `numbers` receives the values. Other elements of
    /// `group` are unspecified.
    fn parse_rows(
        self,
        cells: Cells<'_>,
        rows: Range<usize>,
        column: usize,
        group: &mut TextGroup,
        numbers: &mut [N; GROUP],
    ) -> (u64, u64) {
        let mut there = 0;
        let valid = match self {
            Self::Short(parse) => {
                group.lengths[rows.len()..].fill(0);
                for (i, row) in rows.enumerate() {
                    let (start, end) = cells.field_span(row, column);
                    there |= u64::from(start != end) << i;
                    let word = cells.bytes[..end].last_chunk().filter(|_| end - start <= 8);
                    group.words[i] = word.map_or(0, |word| u64::from_le_bytes(*word));
                    group.lengths[i] = word.map_or(0, |_| (end - start) as u64);
                }
                parse(group, numbers)
            }
            Self::Moment(parse, suffix) => {
                let mut moments = Moments::new();
                for (i, row) in rows.enumerate() {
                    let raw = cells.raw_field(row, column);
                    there |= u64::from(!raw.is_empty()) << i;
                    if let Some((text, rest)) = raw.split_first_chunk()
                        && rest.len() < 2
                        && rest.first().copied() == suffix
                    {
                        moments.set_text(i, text);
                    }
                }
                parse(&moments, numbers)
            }
        };
        (there, valid)
    }
}

/// Returns a column of numbers, most of which `quick` parses; it agrees with `parse`, which parses all of them.
fn quick_column<T: ArrowPrimitiveType>(
    quick: Quick<T::Native>,
    parse: impl Fn(&[u8]) -> Option<T::Native> + 'static,
) -> Box<dyn ColumnBuilder> {
    Box::new(Primitives::<T, _>::new(Some(quick), parse, T::DATA_TYPE))
}

fn plain_column<T: ArrowPrimitiveType>(parse: impl Fn(&[u8]) -> Option<T::Native> + 'static) -> Box<dyn ColumnBuilder> {
    Box::new(Primitives::<T, _>::new(None, parse, T::DATA_TYPE))
}

fn integer_column<T>(pinned: bool) -> Box<dyn ColumnBuilder>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    let parse = |text: &[u8]| T::Native::try_from(value::parse_int64(text)?).ok();
    if pinned { plain_column::<T>(lenient_parser(parse)) } else { plain_column::<T>(parse) }
}

/// Extends a parser to numbers in unusual forms.
fn lenient_parser<N>(parse: impl Fn(&[u8]) -> Option<N>) -> impl Fn(&[u8]) -> Option<N> {
    move |text| parse(text).or_else(|| parse(value::plain_number(text, &mut [0; 64])?))
}

/// Bits of a column, 64 at a time.
#[derive(Debug, Default)]
struct BitmapBuilder {
    words: Vec<u64>,
    length: usize,
    ones: usize,
}

impl BitmapBuilder {
    /// Appends the lowest `count` bits, at most 64; all higher bits must be zero.
    #[inline]
    fn push_bits(&mut self, bits: u64, count: usize) {
        let used = self.length % GROUP;
        match self.words.last_mut() {
            Some(last) if used > 0 => {
                *last |= bits << used;
                if used + count > GROUP {
                    self.words.push(bits >> (GROUP - used));
                }
            }
            _ if count > 0 => self.words.push(bits),
            _ => {}
        }
        self.length += count;
        self.ones += bits.count_ones() as usize;
    }

    fn take_buffer(&mut self) -> BooleanBuffer {
        let Self { words, length, .. } = std::mem::take(self);
        BooleanBuffer::new(Buffer::from_vec(words), 0, length)
    }

    /// Returns the bits as validity; `None` if all values are valid.
    fn take_nulls(&mut self) -> Option<NullBuffer> {
        if self.ones == self.length {
            *self = Self::default();
            return None;
        }
        Some(NullBuffer::new(self.take_buffer()))
    }
}

/// Values of fixed width.
struct Primitives<T: ArrowPrimitiveType, P> {
    quick: Option<Quick<T::Native>>,
    parse: P,
    data_type: DataType,
    values: Vec<T::Native>,
    valid: BitmapBuilder,
    scratch: Vec<u8>,
}

/// Buffers for the values that are parsed at a time. They are no part of a builder: a table may have as many columns
/// as others have rows.
struct Parsing<N> {
    group: TextGroup,
    numbers: [N; GROUP],
}

impl<T, P> Primitives<T, P>
where
    T: ArrowPrimitiveType,
    P: Fn(&[u8]) -> Option<T::Native>,
{
    fn new(quick: Option<Quick<T::Native>>, parse: P, data_type: DataType) -> Self {
        Self { quick, parse, data_type, values: Vec::new(), valid: BitmapBuilder::default(), scratch: Vec::new() }
    }

    /// Appends the values of at most a group of rows with `quick`.
    fn append_quickly(
        &mut self,
        quick: Quick<T::Native>,
        parsing: &mut Parsing<T::Native>,
        cells: Cells<'_>,
        rows: Range<usize>,
        faults: &mut Faults<'_>,
    ) {
        let Parsing { group, numbers } = parsing;
        let (there, mut valid) = quick.parse_rows(cells, rows.clone(), faults.column, group, numbers);
        let mut others = there & if cells.nulls.is_empty() { !valid } else { u64::MAX };
        while others != 0 {
            let i = others.trailing_zeros() as usize;
            others &= others - 1;
            let value = self.look_at(cells, rows.start + i, faults);
            numbers[i] = value.unwrap_or_default();
            valid = (valid & !(1 << i)) | u64::from(value.is_some()) << i;
        }
        self.values.extend_from_slice(&numbers[..rows.len()]);
        self.valid.push_bits(valid, rows.len());
    }

    /// Parses any value; `None` if it is null or does not fit.
    fn look_at(&mut self, cells: Cells<'_>, row: usize, faults: &mut Faults<'_>) -> Option<T::Native> {
        let raw = cells.raw_field(row, faults.column);
        if let Some(value) = (self.parse)(raw)
            && !cells.is_null_text(raw)
        {
            return Some(value);
        }
        let value = cells.unquoted_value(raw, &mut self.scratch)?;
        let parsed = (self.parse)(value);
        if parsed.is_none() {
            faults.found.push(CellFault { row, column: faults.column });
        }
        parsed
    }
}

/// Collects values that do not fit.
struct Faults<'a> {
    column: usize,
    found: &'a mut Vec<CellFault>,
}

impl<T, P> ColumnBuilder for Primitives<T, P>
where
    T: ArrowPrimitiveType,
    P: Fn(&[u8]) -> Option<T::Native>,
{
    fn append_cells(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<CellFault>) {
        if self.values.is_empty() {
            self.values.reserve(cells.expected);
        }
        let rows = cells.rows.len();
        let faults = &mut Faults { column, found: faults };
        let mut quick = self.quick.map(|quick| {
            let parsing = Parsing { group: TextGroup::new(), numbers: [T::Native::default(); GROUP] };
            (quick, parsing)
        });
        for first in (0..rows).step_by(GROUP) {
            let group = first..rows.min(first + GROUP);
            if let Some((quick, parsing)) = &mut quick {
                self.append_quickly(*quick, parsing, cells, group, faults);
                continue;
            }
            let mut valid = 0;
            for row in group.clone() {
                let value = self.look_at(cells, row, faults);
                self.values.push(value.unwrap_or_default());
                valid |= u64::from(value.is_some()) << (row - first);
            }
            self.valid.push_bits(valid, group.len());
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = std::mem::take(&mut self.values);
        let array = PrimitiveArray::<T>::try_new(values.into(), self.valid.take_nulls())?;
        Ok(Arc::new(array.with_data_type(self.data_type.clone())))
    }
}

/// Truth values.
#[derive(Default)]
struct Booleans {
    values: BitmapBuilder,
    valid: BitmapBuilder,
}

impl ColumnBuilder for Booleans {
    fn append_cells(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<CellFault>) {
        let mut scratch = Vec::new();
        for row in 0..cells.rows.len() {
            let value = cells.unquoted_value(cells.raw_field(row, column), &mut scratch);
            let parsed = value.and_then(value::parse_boolean);
            if value.is_some() && parsed.is_none() {
                faults.push(CellFault { row, column });
            }
            self.valid.push_bits(u64::from(parsed.is_some()), 1);
            self.values.push_bits(u64::from(parsed.unwrap_or_default()), 1);
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(BooleanArray::new(self.values.take_buffer(), self.valid.take_nulls())))
    }
}

/// Values of any other type.
struct Others {
    values: Typed,
    valid: BitmapBuilder,
    /// Whether values must be converted to JSON documents, because other sources have documents in this column.
    as_documents: bool,
}

/// Returns the JSON document of a value: a number unchanged, anything else as a string.
fn json_document(text: &str) -> String {
    let number =
        value::parse_float64(text.as_bytes()).is_some() && serde_json::from_str::<serde_json::Number>(text).is_ok();
    if number { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

impl ColumnBuilder for Others {
    fn append_cells(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<CellFault>) {
        let mut scratch = Vec::new();
        for row in 0..cells.rows.len() {
            let value = cells.unquoted_value(cells.raw_field(row, column), &mut scratch);
            // Rows that are not UTF-8 were rejected before.
            let text = value.map(|value| std::str::from_utf8(value).unwrap_or_default());
            let taken = text.is_some_and(|text| match self.as_documents {
                true => self.values.push(Form::Text(&json_document(text))),
                false => self.values.push(Form::Text(text)),
            });
            if !taken {
                self.values.push_null();
                if text.is_some() {
                    faults.push(CellFault { row, column });
                }
            }
            self.valid.push_bits(u64::from(taken), 1);
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.values.finish(self.valid.take_nulls()).map_err(|e| ArrowError::ComputeError(e.to_string()))
    }
}

/// Text that is cast at the end.
struct Cast(TextColumn, DataType);

impl ColumnBuilder for Cast {
    fn append_cells(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<CellFault>) {
        self.0.append_cells(cells, column, faults);
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        cast(&self.0.finish()?, &self.1)
    }
}

/// Text, which takes every value.
#[derive(Default)]
struct TextColumn {
    /// The values, followed by unused bytes.
    values: Vec<u8>,
    /// Bytes of the values.
    used: usize,
    /// Ends of the values, preceded by a zero.
    offsets: Vec<i32>,
    valid: BitmapBuilder,
    /// Buffer for a value whose quotes are removed.
    scratch: Vec<u8>,
}

impl ColumnBuilder for TextColumn {
    fn append_cells(&mut self, cells: Cells<'_>, column: usize, _faults: &mut Vec<CellFault>) {
        let rows = cells.rows.len();
        if self.offsets.is_empty() {
            self.offsets.reserve(cells.expected + 1);
            self.offsets.push(0);
        }
        if self.used == 0 && rows > 0 {
            // Slightly more than the whole column takes if the other chunks are like this one.
            let chunk: usize = (0..rows).map(|row| cells.raw_field(row, column).len()).sum();
            let whole = chunk as u64 * cells.expected as u64 / rows as u64;
            self.make_room(usize::try_from(whole + whole / 32).unwrap_or(0));
        }
        for first in (0..rows).step_by(GROUP) {
            self.append_group(cells, first..rows.min(first + GROUP), column);
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let Self { mut values, used, mut offsets, mut valid, .. } = std::mem::take(self);
        if offsets.is_empty() {
            offsets.push(0);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        values.truncate(used);
        let values = Buffer::from(buffer_pool::column_buffers().lend_buffer(values));
        Ok(Arc::new(StringArray::try_new(offsets, values, valid.take_nulls())?))
    }
}

impl TextColumn {
    /// Ensures room for this many more bytes, and for the excess bytes that are copied beyond them.
    fn make_room(&mut self, bytes: usize) {
        let wanted = self.used + bytes + WIDER;
        if self.values.capacity() == 0 {
            self.values = buffer_pool::column_buffers().take_filled(wanted);
        } else if self.values.len() < wanted {
            self.values.resize(wanted.max(self.values.capacity()), 0);
        }
    }

    fn append_group(&mut self, cells: Cells<'_>, rows: Range<usize>, column: usize) {
        // No value is longer than its record; of records with many columns it is much shorter.
        let records: usize = cells.rows[rows.clone()].iter().map(|row| (row.end - row.start) as usize).sum();
        self.make_room(match records {
            ..=SHORT_RECORDS => records,
            _ => rows.clone().map(|row| cells.raw_field(row, column).len()).sum(),
        });
        let out = &mut self.values[self.used..];
        let mut ends = [0; GROUP];
        let mut valid = 0;
        let mut at = 0;
        for (i, row) in rows.clone().enumerate() {
            let (start, end) = cells.field_span(row, column);
            let there = (start != end) & !cells.is_null_text(&cells.bytes[start..end]);
            let quoted = there & (cells.bytes.get(start) == Some(&QUOTE));
            valid |= u64::from(there) << i;
            if quoted & !cells.plainly_quoted {
                // Quotes are ASCII, so the text remains UTF-8 without them.
                self.scratch.clear();
                let value = unquote_field(&cells.bytes[start..end], &mut self.scratch);
                out[at..at + value.len()].copy_from_slice(value);
                at += value.len();
            } else {
                let quotes = 2 * usize::from(quoted);
                let length = (end - start).wrapping_sub(quotes) & 0_usize.wrapping_sub(there.into());
                copy_wide(&cells.bytes[start + usize::from(quoted)..], &mut out[at..], length);
                at += length;
            }
            ends[i] = to_offset(self.used + at);
        }
        self.valid.push_bits(valid, rows.len());
        self.offsets.extend_from_slice(&ends[..rows.len()]);
        self.used += at;
    }
}

/// Copies this many bytes, and some bytes after them if there are any.
#[inline(always)]
fn copy_wide(from: &[u8], to: &mut [u8], length: usize) {
    match (from.first_chunk::<WIDE>(), to.first_chunk_mut::<WIDE>()) {
        (Some(from), Some(to)) if length <= WIDE => return *to = *from,
        _ => {}
    }
    match (from.first_chunk::<WIDER>(), to.first_chunk_mut::<WIDER>()) {
        (Some(from), Some(to)) if length <= WIDER => *to = *from,
        _ => to[..length].copy_from_slice(&from[..length]),
    }
}

/// A column that contains only nulls.
struct Nulls(usize);

impl ColumnBuilder for Nulls {
    fn append_cells(&mut self, cells: Cells<'_>, column: usize, faults: &mut Vec<CellFault>) {
        let mut scratch = Vec::new();
        for row in 0..cells.rows.len() {
            if cells.unquoted_value(cells.raw_field(row, column), &mut scratch).is_some() {
                faults.push(CellFault { row, column });
            }
        }
        self.0 += cells.rows.len();
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(NullArray::new(std::mem::take(&mut self.0))))
    }
}

/// Converts a position to an offset; texts of a range are shorter than 2 GiB, as the range is.
#[inline(always)]
fn to_offset(place: usize) -> i32 {
    i32::try_from(place).unwrap_or(i32::MAX)
}
