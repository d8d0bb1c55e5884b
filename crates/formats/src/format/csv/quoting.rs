//! Decides whether a quote is a character. By the standard, it encloses a value; programs that write tab-separated text
//! often quote nothing, so that a value may begin with a quote that is never closed and would swallow the next records.
//!
//! ```text
//! record that is impossible by the standard, or whose value swallows lines that are records on their own
//!     `--- do all lines of the source have all fields without quoting?   yes: a quote is a character, everywhere
//!                                                                       no: the standard, to the end
//! ```
//!
//! The question is asked when the first such record is met, so sources without one are read once. The answer follows
//! from the bytes of the source alone, so it is the same at any size of ranges and number of threads.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use super::{
    index::UNQUOTED,
    ranges::CsvRanges,
    source::CsvSource,
    tokenize::{CR, Ended, LF, QUOTE, Sink, scan_records},
};
use crate::{error::Result, format::SourceBytes};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// What a quote is in a source, as far as it is known; shared by all copies of the source.
#[derive(Debug, Clone, Default)]
pub(super) struct Quoting(Arc<AtomicU8>);

/// The standard, as long as there is no reason to ask.
const STANDARD: u8 = 0;
/// A quote is a character.
const CHARACTER: u8 = 1;
/// The standard: the other reading does not fit.
const SETTLED: u8 = 2;

impl Quoting {
    /// The standard, whatever is found.
    pub(super) fn always_standard() -> Self {
        Self(Arc::new(AtomicU8::new(SETTLED)))
    }

    /// Whether a quote is a character.
    pub(super) fn is_character(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CHARACTER
    }

    /// Whether the question has not been asked.
    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) == STANDARD
    }

    fn set_decision(&self, is_character: bool) {
        self.0.store(if is_character { CHARACTER } else { SETTLED }, Ordering::Relaxed);
    }
}

impl PartialEq for Quoting {
    fn eq(&self, other: &Self) -> bool {
        self.0.load(Ordering::Relaxed) == other.0.load(Ordering::Relaxed)
    }
}

/// The note on a source in which a quote is a character.
pub(super) const NOTE: &str = "every line has all fields without quoting, and not all values are quoted as RFC 4180 \
 has it: `\"` was read as a character";

impl CsvSource {
    /// The delimiter, with the mark of sources in which a quote is a character.
    pub(super) fn marked_delimiter(&self) -> u8 {
        if self.quoting.is_character() { self.delimiter | UNQUOTED } else { self.delimiter }
    }

    /// Whether the records after the head all have their fields without quoting; then that is how they are read.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub(super) fn settle_quoting(&self, input: SourceBytes<'_>) -> Result<bool> {
        let separator = self.delimiter | UNQUOTED;
        let mut fits = true;
        for range in CsvRanges::new(input, separator, self.data_offset, PIECE, usize::MAX) {
            fits = fits && self.all_fit(range?.content_bytes());
            if !fits {
                break;
            }
        }
        self.quoting.set_decision(fits);
        Ok(fits)
    }

    /// Settles the question for the text after the head, if it is complete and gives a reason to ask.
    pub(super) fn settle_at_once(&mut self, text: &[u8]) {
        if !self.quoting.is_open() || memchr::memchr(QUOTE, text).is_none() || self.column_names().len() < 2 {
            return;
        }
        let mut tokens = self.tokens(text);
        while tokens.advance_chunk() && !tokens.is_odd() && !tokens.may_span_lines() {}
        if !tokens.is_odd() && !tokens.may_span_lines() {
            return;
        }
        let mut found = Suspects { source: self, text, ends: 0, any: false };
        if let Ended::Exhausted { start, open } = scan_records(text, self.delimiter, 0, &mut found)
            && start < text.len()
        {
            found.any = self.is_suspect(&text[start..], if open.is_some() { 0 } else { found.ends + 1 });
        }
        if found.any {
            let fits = self.all_fit(text);
            self.quoting.set_decision(fits);
            if fits {
                self.facts.notes.push(NOTE.to_owned());
            }
        }
    }

    /// Whether a record has lines that are all records on their own without quoting, as far as their fields tell, and
    /// is impossible by the standard or swallows lines. `fields` are those that it has by the standard; 0 if a quote is
    /// open.
    pub(super) fn is_suspect(&self, record: &[u8], fields: usize) -> bool {
        if self.column_names().len() < 2 || memchr::memchr(QUOTE, record).is_none() {
            return false;
        }
        let spans = memchr::memchr2(LF, CR, record).is_some();
        let impossible = || fields != self.column_names().len() || super::repair::is_torn(record, self.delimiter);
        self.all_fit(record) && (impossible() || spans && self.is_evident(record))
    }

    /// Whether the lines that a quoted value swallows are evidently records: they have the columns' types, or so many
    /// delimiters as lines of text seldom have.
    fn is_evident(&self, record: &[u8]) -> bool {
        if self.profile.typed_columns().next().is_none() {
            return self.delimiter == b'\t' || self.column_names().len() > 2;
        }
        let fits = |line: &[u8]| self.profile.first_mismatch(line.split(|byte| *byte == self.delimiter)).is_none();
        record.split(|byte| matches!(*byte, LF | CR)).filter(|line| !line.is_empty()).all(fits)
    }

    /// Whether all lines have as many fields as there are columns, without quoting.
    pub(super) fn all_fit(&self, lines: &[u8]) -> bool {
        if !self.quotes.are_usual() || self.trailing {
            return false;
        }
        let mut found = Widths { wanted: self.column_names().len(), ends: 0, fits: true };
        match scan_records(lines, self.delimiter | UNQUOTED, 0, &mut found) {
            Ended::Exhausted { start, .. } if start < lines.len() => found.fits && found.ends + 1 == found.wanted,
            _ => found.fits,
        }
    }
}

/// Compares the number of fields of each line.
struct Widths {
    wanted: usize,
    ends: usize,
    fits: bool,
}

impl Sink for Widths {
    fn end_field(&mut self, _end: usize) {
        self.ends += 1;
    }

    fn end_record(&mut self, record: Range<usize>, _next: usize) -> bool {
        self.fits = record.is_empty() || self.ends == self.wanted;
        self.ends = 0;
        self.fits
    }
}

/// Looks for a reason to ask.
struct Suspects<'a> {
    source: &'a CsvSource,
    text: &'a [u8],
    ends: usize,
    any: bool,
}

impl Sink for Suspects<'_> {
    fn end_field(&mut self, _end: usize) {
        self.ends += 1;
    }

    fn end_record(&mut self, record: Range<usize>, _next: usize) -> bool {
        self.any = self.source.is_suspect(&self.text[record], self.ends);
        self.ends = 0;
        !self.any
    }
}
