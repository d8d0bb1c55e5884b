//! WARC files, WET and WAT among them, as tables: a row for each record, of any type.
//!
//! ```text
//! file      record*                                        possibly packed, with a gzip member for each record
//! record    WARC/1.1 CRLF  fields CRLF CRLF  block  CRLF CRLF
//! block     HTTP/1.1 200 OK CRLF  fields CRLF CRLF  body   of responses and requests; else the content itself
//! ```
//!
//! A range holds whole entries (see `entry`). The length of a block is what a record states, so damage to one record is
//! a bad record, and reading goes on at the next one. Bodies are decoded where ranges are parsed, by any thread.

mod body;
mod columns;
mod entry;
mod fields;
mod http;
mod ranges;

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::{Fields, SchemaRef};
use bytes::Bytes;

pub use self::columns::WarcOptions;
use self::{
    columns::{WarcColumns, WarcRow, column_fields, shows_bodies},
    entry::{Entry, Extent, WarcRecord, begins_record, read_entry},
    fields::MediaType,
    ranges::{Cut, WarcRanges},
};
use crate::{
    codec::checksum::xxh3_64,
    error::{Kind, Result},
    format::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, TypeMismatch, facts},
    record::{
        Oddity, PartSizes, Payload, RecordBlock, Reject, Remark, SourcePart, SourceRange,
        source_part::PartCuts,
        widen::{ValueMismatch, try_cast_to},
    },
};

/// All bytes of a range, of which nothing that it needs follows.
const WHOLE: Extent = Extent { ends: true, max_block: u64::MAX };

/// What notes say of bodies that stay as they are stored.
const LEFT: &str = "a body in brotli, or one that its codings do not decode, stays as it is; `encoding` names them";

/// Detects a WARC file by its head.
pub fn sniff(head: &[u8]) -> bool {
    begins_record(head)
}

/// Reads WARC files.
#[derive(Debug)]
pub struct WarcReader {
    options: WarcOptions,
    facts: ReaderFacts,
    fields: Fields,
    /// Whether there is a column for content that is text.
    text: bool,
    /// Maximum bytes of a record, as ranges were last asked for: no body becomes larger.
    max_record_bytes: AtomicUsize,
}

impl WarcReader {
    /// Creates a reader of a file that begins with `head`. Only columns of the names `taken` are read; `None` means
    /// all.
    pub fn new(head: &[u8], options: WarcOptions, taken: Option<&[String]>) -> Self {
        let text = options.text.unwrap_or_else(|| holds_text(head));
        let mut fields = column_fields(text);
        fields.retain(|field| taken.is_none_or(|taken| taken.contains(field.name())));
        // Bodies that no column shows are not decoded.
        let raw = options.raw || !shows_bodies(fields.iter().map(|field| field.name().as_str()));
        let options = WarcOptions { raw, ..options };
        let columns = fields.iter().map(|field| field.name().clone()).collect();
        let facts = ReaderFacts { columns: Some(columns), selects_columns: true, ..facts::ROWS.clone() };
        Self { options, facts, fields: fields.into(), text, max_record_bytes: AtomicUsize::new(usize::MAX) }
    }

    /// Prepares a cut of the entries that follow an offset, and notes how large their bodies may become.
    fn start_cut<'a>(&self, ranges: WarcRanges<'a>) -> WarcRanges<'a> {
        self.max_record_bytes.store(ranges.max_record_bytes(), Ordering::Relaxed);
        ranges.decoding(!self.options.raw)
    }
}

/// Whether the first record with content is one of those that WET and WAT consist of: text, or JSON.
fn holds_text(head: &[u8]) -> bool {
    let mut at = 0;
    while let Some(rest) = head.get(at..).filter(|rest| !rest.is_empty()) {
        let Entry::Record(record, length) = read_entry(rest, WHOLE) else { return states_text(rest) };
        if record.fields.value("WARC-Type") != Some(b"warcinfo") {
            return is_text(&record.fields);
        }
        at += length;
    }
    false
}

/// The same of a record whose end is not there.
fn states_text(rest: &[u8]) -> bool {
    let head = fields::first_line(rest).filter(|_| begins_record(rest));
    head.is_some_and(|(_, length)| is_text(&fields::Fields::read(&rest[length..])))
}

fn is_text(fields: &fields::Fields<'_>) -> bool {
    let media = fields.value("Content-Type").and_then(MediaType::parse).map(|media| media.essence);
    match fields.value("WARC-Type") {
        Some(b"conversion") => media.is_some_and(|media| media.starts_with("text/")),
        Some(b"metadata") => media.as_deref() == Some("application/json"),
        _ => false,
    }
}

impl RecordReader for WarcReader {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        Box::new(self.start_cut(WarcRanges::new(input, 0, range_bytes, max_record_bytes)))
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        let mut ranges = self.start_cut(WarcRanges::new(input, 0, sizes.range_bytes, sizes.max_record_bytes));
        let mut cuts = PartCuts::new(sizes, 0);
        while let Some(cut) = ranges.next_cut() {
            match cut {
                // A record that is passed over is longer than its range.
                Ok(Cut { range, end }) => cuts.add_piece(end, entries(&range).count() as u64, 0),
                Err(error) if error.kind() == Kind::Storage => return Err(error),
                Err(_) => break,
            }
        }
        Ok(cuts.of_bytes())
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        Box::new(self.start_cut(WarcRanges::new(input, part.start_byte(), range_bytes, max_record_bytes)))
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        self.fields.clone()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let limit = self.max_record_bytes.load(Ordering::Relaxed);
        let names = self.fields.iter().map(|field| field.name().as_str());
        let mut columns = WarcColumns::new(names, self.text, range.content_bytes().len());
        let mut left = Remark { line: 0, count: 0, oddity: Oddity::Doubtful, why: LEFT };
        let mut block = RecordBlock { bytes_in: range.bytes_in(), ..RecordBlock::empty() };
        for (row, Found { at, content, record }) in (0..).zip(entries(range)) {
            let byte = range.offset + at as u64;
            match record {
                Ok(record) => {
                    let row_of_record = WarcRow::new(&record, self.options, limit);
                    left.count += u64::from(row_of_record.keeps_coding());
                    columns.push_row(&row_of_record);
                    block.rows.push(row);
                    block.hashes.push(if range.hashed { xxh3_64(record.content) } else { 0 });
                }
                Err(reason) => {
                    let raw = Bytes::copy_from_slice(content);
                    let reason = format!("{reason} (the record begins at byte {byte})");
                    block.rejects.push(Reject { row, line: 0, byte, column: None, reason, raw });
                }
            }
        }
        if left.count > 0 && !self.options.raw {
            block.remarks.push(left);
        }
        block.payload = match try_cast_to(&columns.finish()?, schema)? {
            Ok(rows) => Payload::Rows(rows),
            Err(ValueMismatch { column, row, value, expected, .. }) => {
                return Ok(Parsed::Mismatch(TypeMismatch { column, line: row as u64, byte: 0, value, expected }));
            }
        };
        Ok(Parsed::Block(block))
    }
}

/// An entry of a range.
struct Found<'a> {
    /// Offset in the range.
    at: usize,
    content: &'a [u8],
    /// The record, or what is wrong with it.
    record: Result<WarcRecord<'a>, String>,
}

/// Iterates over the entries of a range, which are complete.
fn entries(range: &SourceRange) -> impl Iterator<Item = Found<'_>> {
    let (bytes, mut next) = (range.content_bytes(), 0);
    let too_large = range.linked.first().and_then(|link| link.clone().err());
    std::iter::from_fn(move || {
        let (at, rest) = (next, bytes.get(next..).filter(|rest| !rest.is_empty())?);
        let (length, record) = match read_entry(rest, WHOLE) {
            Entry::Record(record, length) => (length, Ok(record)),
            Entry::Damage(length, reason) => (length, Err(too_large.clone().unwrap_or(reason))),
            // A range has no such entries.
            Entry::Incomplete(_) | Entry::TooLarge { .. } | Entry::Lost(_) => return None,
        };
        next += length;
        Some(Found { at, content: &rest[..length], record })
    })
}
