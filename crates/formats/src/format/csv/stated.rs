//! Delimited text in a dialect that a user states, or that its first records show beyond doubt: other quotes, escapes
//! before them, delimiters of several characters, comments, and other notations of numbers and dates.
//!
//! ```text
//! stream -- StatedRanges --> range -- split_fields --> values -- notation --> usual text -> the usual parser
//!           whole records            of each record            of typed columns
//! ```
//!
//! A stated dialect is the only reading: nothing is guessed or repaired, and a record that does not have it is
//! rejected. Where ranges are cut follows from the bytes alone, and positions are those of the source.

use std::ops::Range;

use super::{
    notation::Notation,
    repair::ParsedField,
    tokenize::{CR, LF, QUOTE},
};

/// Delimiter of the usual text that ranges become.
pub(super) const USUAL: u8 = b',';

/// Delimiters in the order of preference between equals: those that are less likely within values come first.
pub(super) const DELIMITERS: [u8; 4] = *b"\t,;|";

/// Number of records that decide about a dialect.
const SAMPLE_RECORDS: usize = 1000;

/// Minimum number of records, header included, for a dialect that nobody stated.
const EVIDENT_RECORDS: usize = 3;

/// Delimiters of several characters, and control characters, that are looked for.
const EVIDENT_DELIMITERS: [&[u8]; 7] = [b"~|~", b"|~|", b"||", b"::", b"^|^", b"\x01", b"\x1F"];

/// What a user states of a dialect, beyond a delimiter of one byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedDialect {
    /// Text between fields.
    pub delimiter: Option<Vec<u8>>,
    /// Byte that encloses values; `None` if nothing does.
    pub quote: Option<u8>,
    /// Byte before a quote, a delimiter, a line end or itself that is meant literally.
    pub escape: Option<u8>,
    /// First byte of lines that are no records.
    pub comment: Option<u8>,
    /// How numbers and dates are written.
    pub notation: Notation,
}

impl Default for StatedDialect {
    fn default() -> Self {
        Self { delimiter: None, quote: Some(QUOTE), escape: None, comment: None, notation: Notation::default() }
    }
}

impl StatedDialect {
    /// Whether nothing is stated.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// A dialect with its delimiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stated {
    delimiter: Vec<u8>,
    quote: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
    pub(super) notation: Notation,
}

/// Where a search for the end of a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    RecordStart,
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote that may close its value.
    Closing,
    Comment,
}

/// A search for the ends of records, which continues when more bytes are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordScan {
    /// Start of the current record.
    pub(super) start: usize,
    at: usize,
    state: ScanState,
}

impl RecordScan {
    pub(super) const fn new() -> Self {
        Self { start: 0, at: 0, state: ScanState::RecordStart }
    }
}

/// Why a record does not have the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SplitFault {
    /// A quote is not closed: its position.
    Open(usize),
    /// Text follows a closing quote.
    Torn(usize),
}

impl Stated {
    pub(super) fn new(stated: &StatedDialect, delimiter: Vec<u8>) -> Self {
        let StatedDialect { quote, escape, comment, notation, .. } = stated.clone();
        // A quote before a quote is the usual escape.
        Self { delimiter, quote, escape: escape.filter(|escape| Some(*escape) != quote), comment, notation }
    }

    /// Returns the next record and the start of the one after it; `None` if it may continue behind these bytes.
    pub(super) fn next_record(
        &self,
        bytes: &[u8],
        scan: &mut RecordScan,
        complete: bool,
    ) -> Option<(Range<usize>, usize)> {
        while let Some(&byte) = bytes.get(scan.at) {
            if scan.state == ScanState::RecordStart {
                scan.state = if self.comment == Some(byte) { ScanState::Comment } else { ScanState::FieldStart };
            }
            let is_quoted = scan.state == ScanState::Quoted;
            if !is_quoted && matches!(byte, LF | CR) {
                let next = match (byte, bytes.get(scan.at + 1)) {
                    (CR, Some(&LF)) => scan.at + 2,
                    (CR, None) if !complete => return None,
                    _ => scan.at + 1,
                };
                let record = scan.start..scan.at;
                *scan = RecordScan { start: next, at: next, state: ScanState::RecordStart };
                return Some((record, next));
            }
            scan.at += match scan.state {
                ScanState::Comment => 1,
                _ if self.escape == Some(byte) => {
                    if scan.at + 1 == bytes.len() && !complete {
                        return None;
                    }
                    if !is_quoted {
                        scan.state = ScanState::Plain;
                    }
                    2
                }
                ScanState::Quoted => {
                    if self.quote == Some(byte) {
                        scan.state = ScanState::Closing;
                    }
                    1
                }
                ScanState::Closing | ScanState::FieldStart if self.quote == Some(byte) => {
                    scan.state = ScanState::Quoted;
                    1
                }
                _ => {
                    let rest = &bytes[scan.at..];
                    if rest.starts_with(&self.delimiter) {
                        scan.state = ScanState::FieldStart;
                        self.delimiter.len()
                    } else if !complete && self.delimiter.starts_with(rest) {
                        return None;
                    } else {
                        scan.state = ScanState::Plain;
                        1
                    }
                }
            };
            scan.at = scan.at.min(bytes.len());
        }
        if !complete || scan.start == bytes.len() {
            return None;
        }
        let record = scan.start..bytes.len();
        *scan = RecordScan { start: bytes.len(), at: bytes.len(), state: ScanState::RecordStart };
        Some((record, bytes.len()))
    }

    /// Divides a record into its values; says of each whether it was quoted.
    pub(super) fn split_fields(&self, record: &[u8]) -> Result<Vec<ParsedField>, SplitFault> {
        let mut fields = Vec::new();
        let mut at = 0;
        loop {
            let mut text = Vec::new();
            let quoted = self.quote.is_some() && record.get(at).copied() == self.quote;
            if quoted {
                at = self.read_quoted(record, at, &mut text)?;
            } else {
                while at < record.len() && !record[at..].starts_with(&self.delimiter) {
                    at = self.read_char(record, at, &mut text);
                }
            }
            fields.push((text, quoted));
            match &record[at..] {
                [] => return Ok(fields),
                rest if rest.starts_with(&self.delimiter) => at += self.delimiter.len(),
                _ => return Err(SplitFault::Torn(at)),
            }
        }
    }

    /// Reads a value whose opening quote is at `open`; returns the position behind its closing one.
    fn read_quoted(&self, record: &[u8], open: usize, text: &mut Vec<u8>) -> Result<usize, SplitFault> {
        let mut at = open + 1;
        while let Some(&byte) = record.get(at) {
            if self.quote != Some(byte) {
                at = self.read_char(record, at, text);
            } else if record.get(at + 1) == Some(&byte) {
                text.push(byte);
                at += 2;
            } else {
                return Ok(at + 1);
            }
        }
        Err(SplitFault::Open(open))
    }

    /// Reads a byte, or what an escape and the one after it mean; returns the position behind it.
    fn read_char(&self, record: &[u8], at: usize, text: &mut Vec<u8>) -> usize {
        match record.get(at + 1) {
            Some(&next) if self.escape == Some(record[at]) => {
                let is_literal = self.quote == Some(next)
                    || self.escape == Some(next)
                    || self.delimiter.first() == Some(&next)
                    || matches!(next, LF | CR);
                if !is_literal {
                    text.push(record[at]);
                }
                text.push(next);
                at + 2
            }
            _ => {
                text.push(record[at]);
                at + 1
            }
        }
    }

    pub(super) fn is_comment(&self, record: &[u8]) -> bool {
        self.comment.is_some() && record.first().copied() == self.comment
    }

    /// Returns the values of a record, or why it is rejected.
    pub(super) fn read_record(&self, record: &[u8], width: usize, offset: u64) -> Result<Vec<ParsedField>, String> {
        if let Err(error) = std::str::from_utf8(record) {
            let at = error.valid_up_to();
            let (byte, place) = (record[at], offset + at as u64);
            return Err(format!("expected UTF-8, found the byte 0x{byte:02X} at byte {place}"));
        }
        match self.split_fields(record) {
            Ok(fields) if fields.len() > width => Err(format!("expected {width} fields, found {}", fields.len())),
            Ok(fields) => Ok(fields),
            Err(SplitFault::Open(at)) => Err(format!(
                "expected a closing quote, found none: opened at byte {}, never closed",
                offset + at as u64
            )),
            Err(SplitFault::Torn(at)) => Err(format!(
                "expected a delimiter or the end of the line after a closing quote, found text at byte {}",
                offset + at as u64
            )),
        }
    }

    /// Returns the first records of a text, without blank lines and comments, each with the start of the next one.
    pub(super) fn first_records<'t>(
        &'t self,
        text: &'t [u8],
        complete: bool,
    ) -> impl Iterator<Item = (Range<usize>, usize)> + 't {
        let mut scan = RecordScan::new();
        std::iter::from_fn(move || self.next_record(text, &mut scan, complete))
            .filter(|(at, _)| !at.is_empty() && !self.is_comment(&text[at.clone()]))
    }

    /// Returns the number of fields of the first record, the share of records that have as many, and the number of
    /// records; a record that does not have the dialect counts as one that has not.
    pub(super) fn consistency(&self, text: &[u8], complete: bool) -> (usize, f64, usize) {
        let widths: Vec<usize> = self
            .first_records(text, complete)
            .take(SAMPLE_RECORDS)
            .map(|(at, _)| self.split_fields(&text[at]).map_or(0, |fields| fields.len()))
            .collect();
        let first = widths.first().copied().unwrap_or(0);
        let alike = widths.iter().filter(|width| **width == first).count();
        (first, alike as f64 / widths.len().max(1) as f64, widths.len())
    }
}

/// Returns a stated dialect with the delimiter that fits best.
pub(super) fn detect(stated: &StatedDialect, text: &[u8], complete: bool) -> Stated {
    let tries = DELIMITERS.iter().map(|delimiter| Stated::new(stated, vec![*delimiter]));
    let rated = tries.map(|dialect| {
        let (width, share, _) = dialect.consistency(text, complete);
        ((width > 1, share, width), dialect)
    });
    let best = rated.reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.filter(|(rating, _)| rating.0).map_or_else(|| Stated::new(stated, vec![USUAL]), |(_, dialect)| dialect)
}

/// Returns the dialect that a text shows beyond doubt although nobody stated it, and a note; `delimiter` is the one
/// that it has by the usual rules, or the user's if `has_delimiter`.
pub(super) fn evident_dialect(
    text: &[u8],
    complete: bool,
    has_delimiter: bool,
    delimiter: u8,
) -> Option<(StatedDialect, String)> {
    let is_table = |dialect: &Stated| {
        let (width, share, records) = dialect.consistency(text, complete);
        width > 1 && share >= 1.0 && records >= EVIDENT_RECORDS
    };
    if !has_delimiter {
        let first = text.split(|byte| matches!(*byte, LF | CR)).find(|line| !line.is_empty()).unwrap_or_default();
        for long in EVIDENT_DELIMITERS.into_iter().filter(|long| memchr::memmem::find(first, long).is_some()) {
            let stated = StatedDialect { delimiter: Some(long.to_vec()), ..StatedDialect::default() };
            if is_table(&Stated::new(&stated, long.to_vec())) && has_no_parts(text, long) {
                return Some((stated, format!("`{}` was taken as the delimiter", long.escape_ascii())));
            }
        }
    }
    memchr::memmem::find(text, br#"\""#)?;
    let stated = StatedDialect { escape: Some(b'\\'), ..StatedDialect::default() };
    let usual = Stated::new(&StatedDialect::default(), vec![delimiter]);
    let fits = !is_table(&usual) && is_table(&Stated::new(&stated, vec![delimiter]));
    let stated = StatedDialect { delimiter: Some(vec![delimiter]), ..stated };
    fits.then(|| (stated, "`\\` was taken as the escape of quotes, as MySQL, Hive and Spark write it".to_owned()))
}

/// Whether the punctuation of a delimiter occurs in a text within the whole delimiter alone.
fn has_no_parts(text: &[u8], delimiter: &[u8]) -> bool {
    let whole = memchr::memmem::find_iter(text, delimiter).count();
    let count = |one: u8| memchr::memchr_iter(one, text).count();
    let within = |one: u8| delimiter.iter().filter(|byte| **byte == one).count();
    delimiter.iter().all(|one| count(*one) == whole * within(*one))
}
