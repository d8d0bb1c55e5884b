//! Delimited text: CSV, TSV and their relatives.
//!
//! ```text
//! head ---- dialect::sniff ----> CsvSource (delimiter, names, where the data starts)
//! stream -- ranges::CsvRanges -----> SourceRange     (whole records, found by their quotes and terminators)
//! SourceRange --- tokenize ----------> chunks of field ends, found by index and simd, and the records that are bad
//! chunk --- columns / value ---> Arrow columns, one after the other, while the bytes are in the cache
//! ```
//!
//! `tokenize` defines records, fields and blank lines; `value` defines numbers, dates and text. In addition:
//!
//! - An unquoted empty field is null, and so is the text that the user specified. A quoted empty field is an empty text
//!   in a text column and null in others. Otherwise a quoted value has the same type as an unquoted one.
//! - A record with fewer fields than the header ends in nulls and is counted; one with more is rejected. So is a record
//!   that is not UTF-8, one whose last quote is not closed, and one whose value does not fit a type the user set.
//! - A blank line is never a record, even if there is only one column.
//!
//! Types: [`CsvSource::infer`] returns the types of one range. A column of whole numbers and fractions is `Float64`, or
//! text if one of the whole numbers is too long for that. If the two occur only in different ranges, parsing with
//! `Float64` is a type mismatch. A caller that unites the type with the one that `infer` returns for that range, and
//! gets the same type again, must make the column text ([`CsvSource::force_text`], or `Utf8` in the schema): text
//! accepts every value, so this ends after one step for each column.

mod columns;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod corpus;
mod dialect;
mod digits;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod fuzz;
mod head;
mod index;
mod missing;
mod notation;
mod numbers;
mod options;
mod parts;
mod profile;
mod quotes;
mod quoting;
mod ranges;
mod repair;
mod rows;
mod screen;
mod simd;
mod source;
mod stated;
mod stated_source;
mod tokenize;
mod unstated;
mod value;

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array},
    compute::filter_record_batch,
    datatypes::{DataType, Field, Fields, SchemaRef},
};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use self::{
    columns::{CellFault, Cells, ColumnBuilder},
    notation::Wanted,
    quotes::Turned,
    ranges::CsvRanges,
    screen::{RecordOrigin, Screened, screen_range},
    stated_source::StatedRanges,
    tokenize::{CR, LF, QUOTE, Row, Tokenizer, count_lines},
    value::ValueKind,
};
pub use self::{
    dialect::sniff,
    missing::null_hint,
    notation::{Notation, check_date_format, check_timestamp_format},
    options::CsvOptions,
    source::CsvSource,
    stated::StatedDialect,
};
use super::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, TypeMismatch};
use crate::{
    error::{Error, Result},
    record::{PartSizes, Payload, RecordBlock, Reject, SourcePart, SourceRange},
    schema::{ByName, file::print_type},
};

/// Maximum number of characters of a value in messages.
const SHOWN: usize = 60;

impl CsvSource {
    fn tokens<'a>(&'a self, bytes: &'a [u8]) -> Tokenizer<'a> {
        Tokenizer::new(bytes, self.delimiter, self.column_names().len()).with_header(&self.header)
    }

    /// Cuts `input`, of which the first `head` bytes belong to no range.
    fn cut_ranges<'a>(
        &self,
        input: SourceBytes<'a>,
        head: u64,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> CsvRanges<SourceBytes<'a>> {
        let input = match self.quotes.are_usual() {
            true => input,
            false => Box::new(Turned::new(input, self.quotes, self.delimiter, head)),
        };
        CsvRanges::new(input, self.marked_delimiter(), head, range_bytes, max_record_bytes)
            .with_columns(self.column_names().len())
    }

    /// Whether a range must be rewritten, whatever its records are.
    fn is_unusual(&self, range: &[u8]) -> bool {
        let has_quotes = || memchr::memchr(QUOTE, range).is_some();
        self.stated.is_some()
            || self.trailing
            || !self.quotes.are_usual()
            || self.quoting.is_character() && has_quotes()
    }

    /// Returns the types of the columns' values. `None` if there is anything unusual, unless `screened` states that it
    /// was handled.
    fn guess(&self, bytes: &[u8], screened: bool) -> Option<Vec<Guess>> {
        let mut tokens = self.tokens(bytes);
        let mut found: Vec<Guess> = (0..self.column_names().len())
            .map(|column| Guess {
                kind: if self.is_text(column) { ValueKind::Text } else { ValueKind::Null },
                inexact: false,
            })
            .collect();
        while tokens.advance_chunk() {
            if !screened && tokens.is_odd() {
                return None;
            }
            let cells = Cells::from_tokens(&tokens, &self.options.nulls);
            for (column, guess) in found.iter_mut().enumerate() {
                guess.look_at(cells, column);
            }
        }
        // A line that is not a record may have made a column text.
        let surprise =
            self.profile.typed_columns().any(|column| found[column].kind == ValueKind::Text && !self.is_text(column));
        (screened || !surprise).then_some(found)
    }

    fn is_text(&self, column: usize) -> bool {
        self.options.text.contains(&self.column_names()[column])
    }

    /// Whether a value in a chunk swallows lines that are records on their own.
    fn swallows(&self, tokens: &Tokenizer<'_>) -> bool {
        let open = self.options.tidy && self.column_names().len() > 1 && !self.quoting.is_character();
        open && tokens.rows.iter().any(|row| {
            let record = &tokens.bytes[row.start as usize..row.end as usize];
            memchr::memchr2(LF, CR, record).is_some() && self.all_fit(record)
        })
    }

    /// Parses a range that must be rewritten.
    fn parse_screened(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let fields = ByName::new(schema.fields());
        let is_open = |column: usize| self.is_open(column, &fields);
        let wanted = |column: usize| self.wanted(column, &fields);
        let screened = screen_range(self, range.content_bytes(), range.offset, &is_open, &wanted);
        if let Some((line, byte)) = screened.suspect.filter(|_| self.quoting.is_open()) {
            let expected = TypeMismatch::QUOTES.to_owned();
            return Ok(Parsed::Mismatch(TypeMismatch {
                column: String::new(),
                line,
                byte,
                value: String::new(),
                expected,
            }));
        }
        if i32::try_from(screened.text.len()).is_err() {
            return Err(Error::internal("a range grew beyond 2 GiB"));
        }
        let builders = self.builders(schema)?.map_err(|column| Error::internal(format!("no column {column}")))?;
        let parsed = Parse::new(self, range, builders, Some(&screened)).run(schema)?;
        parsed.ok_or_else(|| Error::internal("a range that was written anew is odd"))
    }

    /// Returns the builders of the columns that are taken; the name of one that is not in the schema as an error.
    fn builders(&self, schema: &SchemaRef) -> Result<Result<Builders, String>> {
        let mut builders = Vec::with_capacity(self.column_names().len());
        let fields = ByName::new(schema.fields());
        for (column, name) in self.column_names().iter().enumerate().filter(|(column, _)| self.is_taken(*column)) {
            let Some((at, field)) = fields.find(name) else { return Ok(Err(name.clone())) };
            let Some(values) = columns::column_builder(field, self.is_pinned(name)) else {
                return Err(unreadable(field));
            };
            builders.push(Builder { column, at, values });
        }
        Ok(Ok(builders))
    }

    /// Whether the values of a column are parsed.
    fn is_taken(&self, column: usize) -> bool {
        self.options.taken.as_ref().is_none_or(|taken| taken.contains(&self.column_names()[column]))
    }

    /// Whether a text would change the type of a column.
    fn is_open(&self, column: usize, fields: &ByName<'_>) -> bool {
        !self.is_pinned(&self.column_names()[column]) && self.is_typed(column, fields)
    }

    /// Whether a column has another type than text.
    fn is_typed(&self, column: usize, fields: &ByName<'_>) -> bool {
        let typed =
            |(_, field): (usize, &Arc<Field>)| !matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8);
        fields.find(&self.column_names()[column]).is_some_and(typed)
    }

    /// Returns how values of a column are written for the usual parser.
    fn wanted(&self, column: usize, fields: &ByName<'_>) -> Wanted {
        match fields.find(&self.column_names()[column]).map(|(_, field)| field.data_type()) {
            Some(DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)) => Wanted::Time,
            _ if self.is_typed(column, fields) => Wanted::Value,
            _ => Wanted::Text,
        }
    }

    /// Whether the user set the type of a column, or made it text.
    fn is_set(&self, column: usize) -> bool {
        self.column_names().get(column).is_some_and(|name| self.is_pinned(name) || self.options.text.contains(name))
    }

    /// Returns the columns in which a second header shows although each of them is text by now. Empty if one of them
    /// still has a type, because then the second header is a type mismatch there. If none is read that had a type, they
    /// are the columns with types that are skipped.
    fn watched(&self, schema: &SchemaRef) -> Vec<usize> {
        let fields = ByName::new(schema.fields());
        let passed: Vec<usize> = self.profile.typed_columns().filter(|column| !self.is_taken(*column)).collect();
        if !passed.is_empty() && !self.profile.typed_columns().any(|column| self.is_open(column, &fields)) {
            return passed;
        }
        let strict: Vec<usize> = self.profile.strict_columns().filter(|column| !self.is_set(*column)).collect();
        let settled = strict.len() > 1 && !strict.iter().any(|column| self.is_open(*column, &fields));
        if settled { strict } else { Vec::new() }
    }

    /// Whether a value that does not fit rejects its record.
    fn is_fixed(&self, column: &str) -> bool {
        self.is_pinned(column) || self.options.bound.iter().any(|name| name == column)
    }

    fn is_pinned(&self, column: &str) -> bool {
        self.options.pinned.contains(column)
    }
}

/// Checks that fields of delimited text can have a type.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) naming the column and the type.
pub fn check_type(field: &Field) -> Result<()> {
    if columns::column_builder(field, true).is_some() { Ok(()) } else { Err(unreadable(field)) }
}

fn unreadable(field: &Field) -> Error {
    let found = print_type(field);
    Error::usage(format!("expected a type that delimited text can be read as, found {found}"))
        .in_column(field.name())
        .with_hint("lists and structs are read as `json`; any other value as `text`")
}

impl RecordReader for CsvSource {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        match &self.stated {
            Some(stated) => Box::new(StatedRanges::new(input, self, stated, range_bytes, max_record_bytes)),
            None => Box::new(self.cut_ranges(input, self.data_offset, range_bytes, max_record_bytes)),
        }
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        parts::cut_csv_parts(self, input, sizes)
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        match (part.byte_range().filter(|bytes| bytes.start > 0), &self.stated) {
            (Some(bytes), Some(stated)) => {
                let ranges = StatedRanges::new(input, self, stated, range_bytes, max_record_bytes);
                Box::new(ranges.starting_at(bytes.start))
            }
            (Some(bytes), None) => {
                Box::new(self.cut_ranges(input, 0, range_bytes, max_record_bytes).starting_at(bytes.start))
            }
            (None, _) => self.ranges(input, range_bytes, max_record_bytes),
        }
    }

    fn settle(&self, input: SourceBytes<'_>) -> Result<Option<&'static str>> {
        Ok(Self::settle_quoting(self, input)?.then_some(quoting::NOTE))
    }

    fn infer(&self, range: &SourceRange) -> Fields {
        let plain =
            if self.is_unusual(range.content_bytes()) { None } else { self.guess(range.content_bytes(), false) };
        let found = plain.or_else(|| {
            let is_open = |column: usize| !self.is_pinned(&self.column_names()[column]) && !self.is_text(column);
            let wanted = |column: usize| if self.is_text(column) { Wanted::Text } else { Wanted::Value };
            self.guess(&screen_range(self, range.content_bytes(), range.offset, &is_open, &wanted).text, true)
        });
        let found = found.unwrap_or_default();
        let field = |(name, guess): (&String, &Guess)| Arc::new(Field::new(name, guess.data_type(), true));
        self.column_names().iter().zip(&found).map(field).collect()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        if i32::try_from(range.content_bytes().len()).is_err() {
            return Err(Error::internal(format!(
                "expected a range below 2 GiB, found {} bytes",
                range.content_bytes().len()
            )));
        }
        match self.builders(schema)? {
            Ok(builders) if !self.is_unusual(range.content_bytes()) => {
                match Parse::new(self, range, builders, None).run(schema)? {
                    Some(parsed) => Ok(parsed),
                    None => self.parse_screened(range, schema),
                }
            }
            Ok(_) => self.parse_screened(range, schema),
            Err(column) => Ok(Parsed::Mismatch(TypeMismatch {
                column,
                line: 0,
                byte: range.offset,
                value: String::new(),
                expected: TypeMismatch::NO_COLUMN.to_owned(),
            })),
        }
    }
}

/// What is known about a column's values.
#[derive(Debug, Clone, Copy)]
struct Guess {
    kind: ValueKind,
    /// Whether a whole number cannot be represented as `Float64`.
    inexact: bool,
}

impl Guess {
    fn look_at(&mut self, cells: Cells<'_>, column: usize) {
        let mut scratch = Vec::new();
        for row in 0..cells.rows.len() {
            if self.kind == ValueKind::Text {
                return;
            }
            if let Some(text) = cells.unquoted_value(cells.raw_field(row, column), &mut scratch) {
                if !self.kind.accepts_value(text) {
                    self.kind = self.kind.unite(ValueKind::from_text(text));
                }
                // It is a whole number that is too long to be exact.
                self.inexact |=
                    text.len() > 15 && value::parse_int64(text).is_some() && value::parse_float64(text).is_none();
            }
        }
    }

    fn data_type(&self) -> DataType {
        if self.kind == ValueKind::Float64 && self.inexact { DataType::Utf8 } else { self.kind.data_type() }
    }
}

/// State of parsing one range.
struct Parse<'a> {
    source: &'a CsvSource,
    range: &'a SourceRange,
    builders: Builders,
    rows: Vec<u32>,
    hashes: Vec<u64>,
    /// For each appended row, whether it is kept; shorter than `rows` if all later ones are kept.
    stays: Vec<bool>,
    /// Records with a value that does not fit: record, column, reason.
    unfit: Vec<(Row, usize, String)>,
    /// The rewritten range, if it had to be rewritten.
    screened: Option<&'a Screened>,
}

/// Remark about a line that lacks most fields and begins with `#`.
const COMMENT: &str = "this looks like a comment and was taken as a record, with nulls for the fields that it lacks";

/// Remark about a last line that lacks fields and a terminator.
const CUT: &str =
    "the last record has fewer fields than the header and no line end, as in a file that was cut short; it was padded";

/// The builder of a column.
struct Builder {
    /// Index of the column in the source.
    column: usize,
    /// Its index in the schema.
    at: usize,
    values: Box<dyn ColumnBuilder>,
}

/// The builders of the columns that are taken.
type Builders = Vec<Builder>;

impl<'a> Parse<'a> {
    fn new(source: &'a CsvSource, range: &'a SourceRange, builders: Builders, screened: Option<&'a Screened>) -> Self {
        let (rows, hashes, stays, unfit) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { source, range, builders, rows, hashes, stays, unfit, screened }
    }

    /// Parses the range; `None` if it must be rewritten.
    fn run(mut self, schema: &SchemaRef) -> Result<Option<Parsed>> {
        let bytes = self.screened.map_or(self.range.content_bytes(), |screened| screened.text.as_slice());
        let mut tokens = self.source.tokens(bytes);
        let mut faults = Vec::new();
        let watched = if self.screened.is_none() { self.source.watched(schema) } else { Vec::new() };
        while tokens.advance_chunk() {
            if self.screened.is_none() && tokens.is_odd() {
                return Ok(None);
            }
            if self.screened.is_none() && tokens.may_span_lines() && self.source.swallows(&tokens) {
                return Ok(None);
            }
            let cells = Cells::from_tokens(&tokens, &self.source.options.nulls);
            if !watched.is_empty() && has_names(cells, &watched) {
                return Ok(None);
            }
            for builder in &mut self.builders {
                builder.values.append_cells(cells, builder.column, &mut faults);
            }
            if !faults.is_empty()
                && let Some(mismatch) = self.judge(cells, schema, &mut faults)
            {
                return Ok(self.screened.is_some().then_some(Parsed::Mismatch(mismatch)));
            }
            if self.rows.is_empty() {
                self.rows.reserve(cells.expected);
                self.hashes.reserve(cells.expected);
            }
            if self.screened.is_some() {
                for row in &tokens.rows {
                    let origin = self.origin(*row);
                    self.rows.push(origin.number);
                    let hash = if self.range.hashed { xxh3_64(&self.raw(origin)) } else { 0 };
                    self.hashes.push(hash);
                }
                continue;
            }
            self.rows.extend(tokens.rows.iter().map(|row| row.number));
            if self.range.hashed {
                self.hashes.extend(tokens.rows.iter().map(|row| xxh3_64(&bytes[row.start as usize..row.end as usize])));
            } else {
                self.hashes.resize(self.rows.len(), 0);
            }
        }
        self.finish(&tokens, schema).map(Parsed::Block).map(Some)
    }

    /// Returns the first fault in a column whose type may change; if there is none, marks the records with faults.
    fn judge(&mut self, cells: Cells<'_>, schema: &SchemaRef, faults: &mut Vec<CellFault>) -> Option<TypeMismatch> {
        faults.sort_unstable_by_key(|fault| (fault.row, fault.column));
        let expected = |fault: &CellFault| {
            let builder = self.builders.iter().find(|builder| builder.column == fault.column);
            builder.map_or_else(String::new, |builder| value::type_name(schema.field(builder.at)))
        };
        let name = |fault: &CellFault| &self.source.column_names()[fault.column];
        if let Some(fault) = faults.iter().find(|fault| !self.source.is_fixed(name(fault))) {
            let origin = self.origin(cells.rows[fault.row]);
            let row = cells.rows[fault.row];
            let start = row.start as usize;
            // The values of a repaired record are at other positions, so only its start is known.
            let same = row.end as usize - start == origin.end - origin.start;
            let within = if same { cells.field_span(fault.row, fault.column).0 - start } else { 0 };
            return Some(TypeMismatch {
                column: name(fault).clone(),
                line: count_lines(&self.range.content_bytes()[..origin.start]),
                byte: self.range.offset + (origin.start + within) as u64,
                value: shown(cells, *fault),
                expected: expected(fault),
            });
        }
        faults.dedup_by_key(|fault| fault.row);
        self.stays.resize(self.rows.len() + cells.rows.len(), true);
        for fault in faults.drain(..) {
            self.stays[self.rows.len() + fault.row] = false;
            let whose = if self.source.is_pinned(name(&fault)) { "" } else { " (the type in this dataset)" };
            let reason = format!("expected {}{whose}, found `{}`", expected(&fault), shown(cells, fault));
            self.unfit.push((cells.rows[fault.row], fault.column, reason));
        }
        None
    }

    fn finish(mut self, tokens: &Tokenizer<'_>, schema: &SchemaRef) -> Result<RecordBlock> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; schema.fields().len()];
        for builder in &mut self.builders {
            columns[builder.at] = Some(builder.values.finish()?);
        }
        let missing = |field: &Arc<Field>| new_null_array(field.data_type(), self.rows.len());
        let columns =
            columns.into_iter().zip(schema.fields()).map(|(array, field)| array.unwrap_or_else(|| missing(field)));
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.len()));
        let mut batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect(), &options)?;
        if !self.unfit.is_empty() {
            self.stays.resize(self.rows.len(), true);
            batch = filter_record_batch(&batch, &BooleanArray::from(self.stays.clone()))?;
            let mut stays = self.stays.iter();
            self.rows.retain(|_| stays.next() == Some(&true));
            let mut stays = self.stays.iter();
            self.hashes.retain(|_| stays.next() == Some(&true));
        }
        // Rejected records with too few fields count as rejected only.
        let bytes = self.range.content_bytes();
        let short = |(row, ..): &&(Row, usize, String)| self.screened.is_some() && self.is_short(*row);
        let padded = tokens.padded - self.unfit.iter().filter(short).count() as u64;
        Ok(RecordBlock {
            payload: Payload::Rows(batch),
            rejects: self.rejects(),
            rows: self.rows,
            hashes: self.hashes,
            lines: if self.screened.is_some() { count_lines(bytes) } else { tokens.line_count() },
            blank_lines: self.screened.map_or(tokens.blank, |screened| screened.blank),
            skipped_lines: self.screened.map_or(0, |screened| screened.comments),
            padded,
            remarks: self.screened.map(|screened| screened.remarks.clone()).unwrap_or_default(),
            bytes_in: bytes.len() as u64,
            ..RecordBlock::empty()
        })
    }

    /// Returns the position and the number of a row.
    fn origin(&self, row: Row) -> RecordOrigin {
        match self.screened {
            Some(screened) => screened.origins[row.number as usize],
            None => RecordOrigin { number: row.number, start: row.start as usize, end: row.end as usize },
        }
    }

    /// Returns the source bytes of a record.
    fn raw(&self, origin: RecordOrigin) -> Cow<'a, [u8]> {
        let bytes = &self.range.content_bytes()[origin.start..origin.end];
        if !self.source.quotes.swapped {
            return Cow::Borrowed(bytes);
        }
        let mut bytes = bytes.to_vec();
        self.source.quotes.restore_bytes(&mut bytes);
        Cow::Owned(bytes)
    }

    /// Whether a valid row has fewer fields than the header.
    fn is_short(&self, row: Row) -> bool {
        let bytes = self.screened.map_or(self.range.content_bytes(), |screened| screened.text.as_slice());
        let record = &bytes[row.start as usize..row.end as usize];
        let mut alone = Tokenizer::new(record, self.source.delimiter, self.source.column_names().len());
        alone.advance_chunk();
        alone.padded > 0
    }

    /// Returns all rejects in input order.
    fn rejects(&self) -> Vec<Reject> {
        let bytes = self.range.content_bytes();
        let unfit = self.unfit.iter().map(|(row, column, reason)| (self.origin(*row), Some(*column), reason.clone()));
        let bad = self.screened.map_or(&[][..], |screened| screened.bad.as_slice());
        let mut all: Vec<_> = bad.iter().map(|(origin, why)| (*origin, None, why.clone())).chain(unfit).collect();
        all.sort_by_key(|(origin, ..)| origin.number);
        let (mut line, mut counted) = (0, 0);
        all.into_iter()
            .map(|(origin, column, reason)| {
                line += count_lines(&bytes[counted..origin.start]);
                counted = origin.start;
                Reject {
                    row: origin.number,
                    line,
                    byte: self.range.offset + origin.start as u64,
                    column: column.map(|column| self.source.column_names()[column].clone()),
                    reason,
                    // A slice would keep the whole range in memory.
                    raw: Bytes::copy_from_slice(&self.raw(origin)),
                }
            })
            .collect()
    }
}

/// Whether a record has a name in each of these columns.
fn has_names(cells: Cells<'_>, columns: &[usize]) -> bool {
    let named = |row: usize, column: usize| {
        let raw = cells.raw_field(row, column);
        profile::is_name(raw.strip_prefix(b"\"").unwrap_or(raw))
    };
    (0..cells.rows.len()).any(|row| columns.iter().all(|&column| named(row, column)))
}

/// Returns the value for a message: shortened, on one line.
fn shown(cells: Cells<'_>, fault: CellFault) -> String {
    let mut scratch = Vec::new();
    let value = cells.unquoted_value(cells.raw_field(fault.row, fault.column), &mut scratch).unwrap_or_default();
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * SHOWN + 4)]);
    let mut out: String = text.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Array, AsArray},
        compute::cast,
        datatypes::{Int64Type, Schema},
        util::display::array_value_to_string,
    };
    use proptest::prelude::*;

    use super::{
        corpus::{Outcome, read},
        tokenize::{oracle, tests::trouble},
        *,
    };

    fn source(text: &str, options: &CsvOptions) -> CsvSource {
        sniff(text.as_bytes(), true, options).unwrap()
    }

    fn outcome(text: &str) -> Outcome {
        read(&source(text, &CsvOptions::default()), text.as_bytes(), 1 << 20)
    }

    fn types(text: &str) -> Vec<String> {
        outcome(text).batch.schema().fields().iter().map(|f| f.data_type().to_string()).collect()
    }

    /// Values of a column; null is `-`.
    fn values(batch: &RecordBatch, column: usize) -> Vec<String> {
        let array = match batch.column(column).data_type() {
            // Without a table of zones Arrow does not print those that have a name.
            DataType::Timestamp(_, Some(_)) => cast(batch.column(column), &crate::schema::TIMESTAMP).unwrap(),
            _ => Arc::clone(batch.column(column)),
        };
        let array = &array;
        let value = |i| if array.is_null(i) { "-".to_owned() } else { array_value_to_string(array, i).unwrap() };
        (0..array.len()).map(value).collect()
    }

    fn range(bytes: &str) -> SourceRange {
        SourceRange::of_bytes(100, Bytes::copy_from_slice(bytes.as_bytes()))
    }

    fn block(parsed: Parsed) -> RecordBlock {
        let Parsed::Block(block) = parsed else { panic!("{parsed:?}") };
        block
    }

    fn batch(block: &RecordBlock) -> &RecordBatch {
        let Payload::Rows(batch) = &block.payload else { panic!("rows expected") };
        batch
    }

    fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
        Arc::new(Schema::new(fields.iter().map(|(n, t)| Field::new(*n, t.clone(), true)).collect::<Vec<_>>()))
    }

    #[test]
    fn every_type_is_read() {
        let out = outcome(
            "b,i,f,d,t,z,s,n\n\
             true,1,1.5,2024-02-29,2024-01-01 10:00:00.5,2024-01-01T10:00:00+02:00,007,\n\
             \"False\",\"-2\",3,1969-12-31,2024-01-01T00:00:00,2024-01-01 00:00:00Z,\"a \"\"b\"\"\",\n\
             ,,,\"\",,,\"\",\n",
        );
        let columns: Vec<_> = (0..8).map(|i| values(&out.batch, i)).collect();
        assert_eq!(columns[0], ["true", "false", "-"]);
        assert_eq!(columns[1], ["1", "-2", "-"]);
        assert_eq!(columns[2], ["1.5", "3.0", "-"]);
        assert_eq!(columns[3], ["2024-02-29", "1969-12-31", "-"]);
        assert_eq!(columns[4], ["2024-01-01T10:00:00.500", "2024-01-01T00:00:00", "-"]);
        assert_eq!(columns[5], ["2024-01-01T08:00:00", "2024-01-01T00:00:00", "-"]);
        assert_eq!(columns[6], ["007", "a \"b\"", ""]);
        assert_eq!(columns[7], ["-", "-", "-"]);
        assert_eq!(out.batch.schema().field(5).data_type(), &crate::schema::instant_type());
    }

    #[test]
    fn types_widen_only_without_loss() {
        assert_eq!(types("a,b,c\n1,true,2024-01-01\n2.5,1,2024-01-01 00:00:00\n"), ["Float64", "Utf8", "Utf8"]);
        assert_eq!(types("a,b\n9007199254740993,1\n0.5,1\n"), ["Utf8", "Int64"]);
        let text = "a,b\n9007199254740993,1\n0.5,1\n";
        let out = read(&source(text, &CsvOptions::default()), text.as_bytes(), 1);
        assert_eq!(values(&out.batch, 0), ["9007199254740993", "0.5"]);
    }

    #[test]
    fn a_value_of_another_type_is_a_mismatch() {
        let source = source("a,b\n", &CsvOptions::default());
        let schema = schema(&[("a", DataType::Int64), ("b", DataType::Int64)]);
        let Parsed::Mismatch(mismatch) = source.parse(&range("1,2\r\n\r\n3,\"x\ny\"\nz,4\n"), &schema).unwrap() else {
            panic!("expected a type mismatch")
        };
        assert_eq!((mismatch.column.as_str(), mismatch.line, mismatch.byte), ("b", 2, 109));
        assert_eq!((mismatch.value.as_str(), mismatch.expected.as_str()), ("x\u{fffd}y", "int64"));
    }

    #[test]
    fn columns_are_matched_by_name() {
        let source = source("a,b\n", &CsvOptions::default());
        let wider = schema(&[("z", DataType::Utf8), ("b", DataType::Utf8), ("a", DataType::Int64)]);
        let got = block(source.parse(&range("1,x\n2,y\n"), &wider).unwrap());
        assert_eq!(values(batch(&got), 0), ["-", "-"]);
        assert_eq!(values(batch(&got), 1), ["x", "y"]);
        assert_eq!(values(batch(&got), 2), ["1", "2"]);
        let Parsed::Mismatch(mismatch) = source.parse(&range("1,x\n"), &schema(&[("a", DataType::Int64)])).unwrap()
        else {
            panic!("expected a type mismatch")
        };
        assert_eq!(mismatch.column, "b");
        let odd = schema(&[("a", DataType::new_list(DataType::Int64, true)), ("b", DataType::Utf8)]);
        assert_eq!(source.parse(&range(""), &odd).unwrap_err().place().column.as_deref(), Some("a"));
    }

    #[test]
    fn bad_records_are_rejected_and_others_kept() {
        let options = CsvOptions { pinned: ["a".to_owned()].into(), tidy: false, ..CsvOptions::default() };
        let source = source("a,b\n", &options);
        let mut bytes = b"1,x\nabc\n\n2,y,z\r\n3,\xff\n".to_vec();
        bytes.extend_from_slice(b" +007 ,\"l\n\"\n4\n5,\"open\n");
        let whole = SourceRange::of_bytes(100, bytes.into());
        let got = block(source.parse(&whole, &schema(&[("a", DataType::Int8), ("b", DataType::Utf8)])).unwrap());
        assert_eq!(values(batch(&got), 0), ["1", "7", "4"]);
        assert_eq!(values(batch(&got), 1), ["x", "l\n", "-"]);
        assert_eq!(got.rows, [0, 4, 5]);
        assert_eq!(got.hashes, [xxh3_64(b"1,x"), xxh3_64(b" +007 ,\"l\n\""), xxh3_64(b"4")]);
        let facts: Vec<_> =
            got.rejects.iter().map(|r| (r.row, r.line, r.byte, r.column.as_deref(), r.reason.as_str())).collect();
        assert_eq!(
            facts,
            [
                (1, 1, 104, Some("a"), "expected int8, found `abc`"),
                (2, 3, 109, None, "expected 2 fields, found 3"),
                (3, 4, 116, None, "expected UTF-8, found the byte 0xFF at byte 118"),
                (6, 8, 134, None, "expected a closing quote, found none: opened at byte 136, never closed"),
            ]
        );
        assert_eq!(&got.rejects[1].raw[..], b"2,y,z");
        assert_eq!((got.lines, got.blank_lines, got.padded, got.bytes_in), (9, 1, 1, 42));
    }

    #[test]
    fn pinned_types_of_every_width_are_built() {
        for (data_type, good, bad) in [
            (DataType::Int8, "-128", "128"),
            (DataType::Int16, "32767", "32768"),
            (DataType::Int32, "0005", "2147483648"),
            (DataType::Int64, "+1", "1.0"),
            (DataType::UInt8, "255", "-1"),
            (DataType::UInt16, "65535", "65536"),
            (DataType::UInt32, "4294967295", "4294967296"),
            (DataType::UInt64, "18446744073709551615", "18446744073709551616"),
            (DataType::Float32, "1.5", "x"),
            (DataType::Float64, "12345678901234567890123", "1,5"),
            (DataType::Boolean, "TRUE", "1"),
            (DataType::Date32, "2024-02-29", "2023-02-29"),
        ] {
            let options =
                CsvOptions { pinned: ["a".to_owned()].into(), delimiter: Some(b';'), ..CsvOptions::default() };
            let source = source("a\n", &options);
            let got = block(source.parse(&range(&format!("{good}\n{bad}\n")), &schema(&[("a", data_type)])).unwrap());
            assert_eq!((got.rows, got.rejects.len()), (vec![0], 1), "{good} {bad}");
        }
    }

    #[test]
    fn the_null_texts_of_the_user_are_null_unless_quoted() {
        let options = CsvOptions { nulls: vec!["-999".to_owned(), "NA".to_owned()], ..CsvOptions::default() };
        let source = source("a,b\n", &options);
        let got = block(
            source
                .parse(
                    &range("-999,-999\nNA,NA\n\"-999\",\"-999\"\n"),
                    &schema(&[("a", DataType::Int64), ("b", DataType::Utf8)]),
                )
                .unwrap(),
        );
        assert_eq!(
            batch(&got).column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
            [None, None, Some(-999)]
        );
        assert_eq!(values(batch(&got), 1), ["-", "-", "-999"]);
    }

    #[test]
    fn a_source_without_records_works() {
        for text in ["", "\u{feff}", "\n\n"] {
            let source = source(text, &CsvOptions::default());
            let mut ranges = source.ranges(Box::new(text.as_bytes()), 10, 10);
            assert!(ranges.next().is_none());
            let got = block(source.parse(&SourceRange::of_bytes(0, Bytes::new()), &schema(&[])).unwrap());
            assert_eq!((got.payload.len(), got.rejects.len()), (0, 0));
        }
        assert_eq!(outcome("a,b\n").batch.num_rows(), 0);
        let none = source("", &CsvOptions::default());
        let got = block(none.parse(&range("1\n\n"), &schema(&[])).unwrap());
        assert_eq!((got.records_in(), got.blank_lines), (1, 1));
    }

    proptest! {
        #[test]
        fn text_is_kept_as_the_reference_reads_it(bytes in trouble(1500), size in 1usize..500) {
            let options = CsvOptions { has_header: false, delimiter: Some(b','), tidy: false, ..CsvOptions::default() };
            let Some(mut source) = sniff(&bytes, true, &options) else { return Ok(()) };
            for column in source.column_names().to_vec() {
                source.force_text(&column);
            }
            let width = source.column_names().len();
            let out = read(&source, &bytes, size);
            let (mut rows, mut bad, mut blank, mut padded) = (Vec::new(), 0, 0, 0);
            for record in oracle::records(&bytes, b',') {
                if record.start == record.end {
                    blank += 1;
                } else if !record.closed || record.fields.len() > width
                    || repair::is_torn(&bytes[record.start..record.end], b',') {
                    bad += 1;
                } else {
                    padded += u64::from(record.fields.len() < width);
                    rows.push(record);
                }
            }
            prop_assert_eq!((out.records, out.rejects.len()), ((rows.len() + bad) as u64, bad));
            if width > 0 {
                prop_assert_eq!((out.blank, out.padded), (blank, padded));
            }
            for column in 0..width {
                let expected: Vec<Option<String>> = rows
                    .iter()
                    .map(|record| {
                        let text = String::from_utf8(record.fields.get(column)?.clone()).unwrap();
                        // An empty field is null unless it is quoted, which the reference does not tell.
                        (!text.is_empty()).then_some(text)
                    })
                    .collect();
                let array = out.batch.column(column).as_string::<i32>();
                let got: Vec<Option<String>> =
                    array.iter().map(|v| v.filter(|v| !v.is_empty()).map(str::to_owned)).collect();
                prop_assert_eq!(got, expected);
            }
        }

        #[test]
        fn the_size_of_ranges_does_not_matter(
            cells in proptest::collection::vec(prop::sample::select(&[
                "1", "-7", "0.5", "9007199254740993", "true", "2024-01-01", "\"1\"", "", "\"\"", "x", "é", "\"a\nb\"",
                "2024-01-01 00:00:00", "NaN",
            ][..]), 2..200),
            size in 1usize..300,
        ) {
            let rows: Vec<String> = cells.chunks(2).map(|row| row.join(",") + "\r\n").collect();
            let text = format!("a,b\r\n{}", rows.concat());
            let source = source(&text, &CsvOptions { delimiter: Some(b','), ..CsvOptions::default() });
            prop_assert_eq!(format!("{:?}", read(&source, text.as_bytes(), size)), format!("{:?}", read(&source,
                text.as_bytes(), 1 << 20)));
        }
    }
}
