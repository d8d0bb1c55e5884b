//! Delimited text: CSV, TSV and their relatives.
//!
//! ```text
//! head ---- dialect::sniff ----> CsvSource (delimiter, names, where the data starts)
//! stream -- split::Splits -----> Split     (whole records, found by their quotes and terminators)
//! Split --- tokenize::scan ----> chunks of field ends, each as dense as a matrix, and the records that are bad
//! chunk --- columns / value ---> Arrow columns, one after the other, while the bytes are in the cache
//! ```
//!
//! What is a record, a field, a blank line is said in `tokenize`; what is a number, a date, text in `value`. Besides:
//!
//! - An unquoted empty field is null, and so is the text the user names. A quoted empty field is an empty text in a
//!   text column and null in others. Otherwise a quoted value has the same type as an unquoted one.
//! - A record with fewer fields than the header ends in nulls and is counted; one with more is rejected. So is a record
//!   that is not UTF-8, one whose last quote is not closed, and one whose value does not fit a type the user set.
//! - A blank line is never a record, even if there is only one column.
//!
//! Types: [`CsvSource::infer`] answers for one split. A column of whole numbers and fractions is `Float64`, unless one
//! of the whole numbers is too long for that, when it is text. If the two meet in different splits only, parsing with
//! `Float64` gives a misfit. A caller that unites the type with what `infer` says of that split, and gets the type it
//! had, must make the column text ([`CsvSource::force_text`], or `Utf8` in the schema): text takes every value, so this
//! ends after one step for each column.

mod columns;
mod dialect;
mod split;
mod tokenize;
mod value;

use std::{io::Read, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array},
    compute::filter_record_batch,
    datatypes::{DataType, Field, Fields, SchemaRef},
};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

pub use self::dialect::{CsvOptions, sniff};
use self::{
    columns::{Cells, Column, Fault},
    split::Splits,
    tokenize::{Flaw, Row, Tokenizer, count_lines},
    value::Kind,
};
use super::{Misfit, Parsed, TableFormat};
use crate::{
    error::{Error, Result},
    record::{Payload, RecordBlock, Reject, Split},
};

/// Characters of a value that messages show.
const SHOWN: usize = 60;

/// A source of delimited text. Made by [`sniff`].
#[derive(Debug, Clone, PartialEq)]
pub struct CsvSource {
    /// Names of the columns, no two the same. None if the source has no records.
    pub columns: Vec<String>,
    /// Byte between fields.
    pub delimiter: u8,
    /// Share of the first records that have as many fields as the first one, from 0 to 1.
    pub consistency: f64,
    /// Bytes before the first split: byte order mark, header, and blank lines before it.
    pub data_offset: u64,
    /// Line terminators before the first split, so that its first line is number `header_lines + 1`.
    pub header_lines: u64,
    /// Blank lines before the header, which no split holds.
    pub header_blank_lines: u64,
    /// What the user said.
    pub options: CsvOptions,
}

impl CsvSource {
    /// Whether the bytes alone tell that this is a table: several columns, and most records have all of them.
    pub fn is_convincing(&self) -> bool {
        self.columns.len() > 1 && self.consistency > 0.5
    }

    /// Makes [`infer`](TableFormat::infer) answer that the column is text.
    pub fn force_text(&mut self, column: &str) {
        if !self.options.text.iter().any(|name| name == column) {
            self.options.text.push(column.to_owned());
        }
    }

    fn empty(data_offset: u64, lines: u64, options: &CsvOptions) -> Self {
        Self {
            columns: Vec::new(),
            delimiter: options.delimiter.unwrap_or(b','),
            consistency: 1.0,
            data_offset,
            header_lines: lines,
            header_blank_lines: lines,
            options: options.clone(),
        }
    }

    fn null(&self) -> Option<&[u8]> {
        self.options.null.as_deref().map(str::as_bytes)
    }

    /// The place of each column in the schema and its builder; the name of one that is not there as an error.
    fn builders(&self, schema: &SchemaRef) -> Result<Result<Vec<(usize, Box<dyn Column>)>, String>> {
        let mut builders = Vec::with_capacity(self.columns.len());
        for name in &self.columns {
            let Some((at, field)) = schema.fields().find(name) else { return Ok(Err(name.clone())) };
            let Some(builder) = columns::column(field.data_type(), self.is_pinned(name)) else {
                let found = field.data_type();
                return Err(Error::usage(format!("expected a type that delimited text can be read as, found {found}"))
                    .column(name)
                    .hint("leave the type out, or set it to a boolean, a number, date32, timestamp or text"));
            };
            builders.push((at, builder));
        }
        Ok(Ok(builders))
    }

    fn is_pinned(&self, column: &str) -> bool {
        self.options.pinned.iter().any(|name| name == column)
    }
}

impl TableFormat for CsvSource {
    fn columns(&self) -> Option<&[String]> {
        Some(&self.columns)
    }

    fn splits<'a>(
        &'a self,
        input: Box<dyn Read + Send + 'a>,
        split_bytes: usize,
        max_record_bytes: usize,
    ) -> Box<dyn Iterator<Item = Result<Split>> + Send + 'a> {
        Box::new(Splits::new(input, self.delimiter, self.data_offset, split_bytes, max_record_bytes))
    }

    fn infer(&self, split: &Split) -> Fields {
        let bytes = &split.bytes[..];
        let width = self.columns.len();
        let utf8 = simdutf8::basic::from_utf8(bytes).is_ok();
        let mut tokens = Tokenizer::new(bytes, self.delimiter, width, utf8);
        let mut found: Vec<Guess> = self
            .columns
            .iter()
            .map(|name| Guess {
                kind: if self.options.text.contains(name) { Kind::Text } else { Kind::Null },
                inexact: false,
            })
            .collect();
        while tokens.advance() {
            let cells = Cells { bytes, text: None, rows: &tokens.rows, ends: &tokens.ends, width, null: self.null() };
            for (column, guess) in found.iter_mut().enumerate() {
                guess.look_at(cells, column);
            }
        }
        let field = |(name, guess): (&String, &Guess)| Arc::new(Field::new(name, guess.data_type(), true));
        self.columns.iter().zip(&found).map(field).collect()
    }

    fn parse(&self, split: &Split, schema: &SchemaRef) -> Result<Parsed> {
        if i32::try_from(split.bytes.len()).is_err() {
            return Err(Error::internal(format!("expected a split below 2 GiB, found {} bytes", split.bytes.len())));
        }
        match self.builders(schema)? {
            Ok(builders) => Parse::new(self, split, builders).run(schema),
            Err(column) => Ok(Parsed::Misfit(Misfit {
                column,
                line: 0,
                byte: split.offset,
                value: String::new(),
                expected: "no such column".to_owned(),
            })),
        }
    }
}

/// What is known of a column.
#[derive(Debug, Clone, Copy)]
struct Guess {
    kind: Kind,
    /// Whether there is a whole number that `Float64` cannot hold.
    inexact: bool,
}

impl Guess {
    fn look_at(&mut self, cells: Cells<'_>, column: usize) {
        let mut scratch = Vec::new();
        for row in 0..cells.rows.len() {
            if self.kind == Kind::Text {
                return;
            }
            if let Some(text) = cells.value(cells.raw(row, column), &mut scratch) {
                let kind = Kind::of(text);
                self.inexact |= kind == Kind::Int64 && text.len() > 15 && value::float64(text).is_none();
                self.kind = self.kind.unite(kind);
            }
        }
    }

    fn data_type(&self) -> DataType {
        if self.kind == Kind::Float64 && self.inexact { DataType::Utf8 } else { self.kind.data_type() }
    }
}

/// The work on one split.
struct Parse<'a> {
    source: &'a CsvSource,
    split: &'a Split,
    /// The whole split, if it is UTF-8.
    text: Option<&'a str>,
    /// For each column of the source, its place in the schema.
    builders: Vec<(usize, Box<dyn Column>)>,
    rows: Vec<u32>,
    hashes: Vec<u64>,
    /// For each row appended, whether it stays; shorter than `rows` if all later ones do.
    stays: Vec<bool>,
    /// Records with a value that does not fit: record, column, reason.
    unfit: Vec<(Row, usize, String)>,
}

impl<'a> Parse<'a> {
    fn new(source: &'a CsvSource, split: &'a Split, builders: Vec<(usize, Box<dyn Column>)>) -> Self {
        let text = simdutf8::basic::from_utf8(&split.bytes).ok();
        let (rows, hashes, stays, unfit) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { source, split, text, builders, rows, hashes, stays, unfit }
    }

    fn run(mut self, schema: &SchemaRef) -> Result<Parsed> {
        let bytes = &self.split.bytes[..];
        let width = self.source.columns.len();
        let mut tokens = Tokenizer::new(bytes, self.source.delimiter, width, self.text.is_some());
        let mut faults = Vec::new();
        while tokens.advance() {
            let (rows, ends) = (&tokens.rows[..], &tokens.ends[..]);
            let cells = Cells { bytes, text: self.text, rows, ends, width, null: self.source.null() };
            for (column, (_, builder)) in self.builders.iter_mut().enumerate() {
                builder.append(cells, column, &mut faults);
            }
            if !faults.is_empty()
                && let Some(misfit) = self.judge(cells, schema, &mut faults)
            {
                return Ok(Parsed::Misfit(misfit));
            }
            self.rows.extend(rows.iter().map(|row| row.number));
            self.hashes.extend(rows.iter().map(|row| xxh3_64(&bytes[row.start as usize..row.end as usize])));
        }
        self.finish(&tokens, schema).map(Parsed::Block)
    }

    /// The first fault in a column that may get another type; if there is none, the records with faults are marked.
    fn judge(&mut self, cells: Cells<'_>, schema: &SchemaRef, faults: &mut Vec<Fault>) -> Option<Misfit> {
        faults.sort_unstable_by_key(|fault| (fault.row, fault.column));
        let expected =
            |fault: &Fault| value::type_name(schema.field(self.builders[fault.column].0).data_type());
        let name = |fault: &Fault| &self.source.columns[fault.column];
        if let Some(fault) = faults.iter().find(|fault| !self.source.is_pinned(name(fault))) {
            let (start, _) = cells.span(fault.row, fault.column);
            return Some(Misfit {
                column: name(fault).clone(),
                line: count_lines(&cells.bytes[..cells.rows[fault.row].start as usize]),
                byte: self.split.offset + start as u64,
                value: shown(cells, *fault),
                expected: expected(fault),
            });
        }
        faults.dedup_by_key(|fault| fault.row);
        self.stays.resize(self.rows.len() + cells.rows.len(), true);
        for fault in faults.drain(..) {
            self.stays[self.rows.len() + fault.row] = false;
            let reason = format!("expected {}, found `{}`", expected(&fault), shown(cells, fault));
            self.unfit.push((cells.rows[fault.row], fault.column, reason));
        }
        None
    }

    fn finish(mut self, tokens: &Tokenizer<'_>, schema: &SchemaRef) -> Result<RecordBlock> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; schema.fields().len()];
        for (at, builder) in &mut self.builders {
            columns[*at] = Some(builder.finish());
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
        // Of records with too few fields, the rejected ones count as rejected only.
        let bytes = &self.split.bytes[..];
        let short = |(row, ..): &&(Row, usize, String)| self.is_short(*row);
        let padded = tokens.padded - self.unfit.iter().filter(short).count() as u64;
        Ok(RecordBlock {
            payload: Payload::Rows(batch),
            rejects: self.rejects(&tokens.bad),
            rows: self.rows,
            hashes: self.hashes,
            lines: count_lines(bytes),
            blank_lines: tokens.blank,
            padded,
            bytes_in: bytes.len() as u64,
        })
    }

    /// Whether a good row has fewer fields than the header.
    fn is_short(&self, row: Row) -> bool {
        let record = &self.split.bytes[row.start as usize..row.end as usize];
        let mut alone = Tokenizer::new(record, self.source.delimiter, self.source.columns.len(), true);
        alone.advance();
        alone.padded > 0
    }

    /// All rejects in input order.
    fn rejects(&self, bad: &[(Row, Flaw)]) -> Vec<Reject> {
        let bytes = &self.split.bytes[..];
        let unfit = self.unfit.iter().map(|(row, column, reason)| (*row, Some(*column), reason.clone()));
        let mut all: Vec<_> = bad.iter().map(|(row, flaw)| (*row, None, self.reason(*flaw))).chain(unfit).collect();
        all.sort_by_key(|(row, ..)| row.number);
        let (mut line, mut counted) = (0, 0);
        all.into_iter()
            .map(|(row, column, reason)| {
                let (start, end) = (row.start as usize, row.end as usize);
                line += count_lines(&bytes[counted..start]);
                counted = start;
                Reject {
                    row: row.number,
                    line,
                    byte: self.split.offset + start as u64,
                    column: column.map(|column| self.source.columns[column].clone()),
                    reason,
                    // A copy: a slice would keep the whole split in memory.
                    raw: Bytes::copy_from_slice(&bytes[start..end]),
                }
            })
            .collect()
    }

    fn reason(&self, flaw: Flaw) -> String {
        let place = |at: usize| self.split.offset + at as u64;
        match flaw {
            Flaw::Fields(found) => format!("expected {} fields, found {found}", self.source.columns.len()),
            Flaw::Utf8(at) => {
                format!("expected UTF-8, found the byte 0x{:02X} at byte {}", self.split.bytes[at], place(at))
            }
            Flaw::Unclosed(at) => format!("expected a closing quote, found none: opened at byte {}, never closed", place(at)),
        }
    }
}

/// The value as a message shows it: on one line, and not too long.
fn shown(cells: Cells<'_>, fault: Fault) -> String {
    let mut scratch = Vec::new();
    let value = cells.value(cells.raw(fault.row, fault.column), &mut scratch).unwrap_or_default();
    let text = String::from_utf8_lossy(&value[..value.len().min(4 * SHOWN + 4)]);
    let mut out: String = text.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}
