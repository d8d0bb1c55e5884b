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

use std::{
    io::{self, Read},
    ops::Range,
    sync::Arc,
};

use super::{
    super::ReaderFacts,
    dialect::{CsvOptions, DELIMITERS},
    notation::{Notation, Wanted},
    profile::Profile,
    quotes::Quotes,
    quoting::Quoting,
    repair::{self, ParsedField},
    screen::{RecordOrigin, Screened},
    source::CsvSource,
    tokenize::{CR, LF, QUOTE, count_lines},
};
use crate::{
    error::{Error, Result},
    format::carry::Carried,
    record::SourceRange,
    schema::distinct_names,
    units::Size,
};

/// Delimiter of the usual text that ranges become.
const USUAL: u8 = b',';

/// Number of records that decide about a dialect.
const SAMPLE_RECORDS: usize = 1000;

/// Minimum number of records, header included, for a dialect that nobody stated.
const EVIDENT_RECORDS: usize = 3;

/// Number of bytes that are read before they are searched.
const READ: usize = 256 << 10;

/// Maximum number of values in the table of a range for each of its bytes.
const VALUES_PER_BYTE: usize = 4;

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
    notation: Notation,
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
struct RecordScan {
    /// Start of the current record.
    start: usize,
    at: usize,
    state: ScanState,
}

impl RecordScan {
    const fn new() -> Self {
        Self { start: 0, at: 0, state: ScanState::RecordStart }
    }
}

/// Why a record does not have the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitFault {
    /// A quote is not closed: its position.
    Open(usize),
    /// Text follows a closing quote.
    Torn(usize),
}

impl Stated {
    fn new(stated: &StatedDialect, delimiter: Vec<u8>) -> Self {
        let StatedDialect { quote, escape, comment, notation, .. } = stated.clone();
        // A quote before a quote is the usual escape.
        Self { delimiter, quote, escape: escape.filter(|escape| Some(*escape) != quote), comment, notation }
    }

    /// Returns the next record and the start of the one after it; `None` if it may continue behind these bytes.
    fn next_record(&self, bytes: &[u8], scan: &mut RecordScan, complete: bool) -> Option<(Range<usize>, usize)> {
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
    fn split_fields(&self, record: &[u8]) -> Result<Vec<ParsedField>, SplitFault> {
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

    fn is_comment(&self, record: &[u8]) -> bool {
        self.comment.is_some() && record.first().copied() == self.comment
    }

    /// Writes the records of a range as usual text, their values as they are wanted.
    pub(super) fn screen(&self, width: usize, bytes: &[u8], offset: u64, wanted: &dyn Fn(usize) -> Wanted) -> Screened {
        let mut out = Screened::default();
        let (mut scan, mut number) = (RecordScan::new(), 0);
        let wanted: Vec<Wanted> = match self.notation.is_usual() {
            true => Vec::new(),
            false => (0..width).map(wanted).collect(),
        };
        while let Some((at, _)) = self.next_record(bytes, &mut scan, true) {
            let record = &bytes[at.clone()];
            if record.is_empty() {
                out.blank += 1;
                continue;
            }
            if self.is_comment(record) {
                out.comments += 1;
                continue;
            }
            let origin = RecordOrigin { number, start: at.start, end: at.end };
            number += 1;
            match self.read_record(record, width, offset + at.start as u64) {
                Ok(mut fields) => {
                    for ((text, _), wanted) in fields.iter_mut().zip(&wanted) {
                        if let Some(usual) = self.notation.to_usual(text, *wanted) {
                            *text = usual;
                        }
                    }
                    out.origins.push(origin);
                    repair::write(&fields, USUAL, &mut out.text);
                }
                Err(reason) => out.bad.push((origin, reason)),
            }
        }
        out
    }

    /// Returns the values of a record, or why it is rejected.
    fn read_record(&self, record: &[u8], width: usize, offset: u64) -> Result<Vec<ParsedField>, String> {
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
    fn first_records<'t>(&'t self, text: &'t [u8], complete: bool) -> impl Iterator<Item = (Range<usize>, usize)> + 't {
        let mut scan = RecordScan::new();
        std::iter::from_fn(move || self.next_record(text, &mut scan, complete))
            .filter(|(at, _)| !at.is_empty() && !self.is_comment(&text[at.clone()]))
    }

    /// Returns the number of fields of the first record, the share of records that have as many, and the number of
    /// records; a record that does not have the dialect counts as one that has not.
    fn consistency(&self, text: &[u8], complete: bool) -> (usize, f64, usize) {
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

/// Recognises text in a stated dialect; `start` is where its first record or header may begin, and `skipped` the number
/// of lines before it that the user skips.
pub(super) fn sniff_stated(
    head: &[u8],
    start: usize,
    skipped: u64,
    complete: bool,
    options: &CsvOptions,
) -> Option<CsvSource> {
    let text = &head[start..];
    let delimiter = options.stated.delimiter.clone().or_else(|| options.delimiter.map(|delimiter| vec![delimiter]));
    let dialect = match delimiter {
        Some(delimiter) => Stated::new(&options.stated, delimiter),
        None => detect(&options.stated, text, complete),
    };
    let (_, consistency, _) = dialect.consistency(text, complete);
    let first = dialect.first_records(text, complete).next();
    let Some((first, next)) = first else {
        return complete.then(|| CsvSource::without_records(head.len() as u64, count_lines(head), options));
    };
    let fields = dialect.split_fields(&text[first.clone()]).ok()?;
    let names: Option<Vec<String>> = match options.has_header {
        true => fields.into_iter().map(|(name, _)| String::from_utf8(name).ok()).collect(),
        false => Some(vec![String::new(); fields.len()]),
    };
    let before = if options.has_header { next } else { 0 };
    let comments = |line: &&[u8]| dialect.is_comment(line);
    let above = text[..if options.has_header { first.start } else { 0 }].split_inclusive(|byte| *byte == LF);
    let comments = above.filter(comments).count() as u64;
    let lines = count_lines(&head[..start + before]);
    let header_lines = if options.has_header { 1 + count_lines(&text[first]) } else { 0 };
    Some(CsvSource {
        facts: ReaderFacts {
            columns: Some(distinct_names(names?)),
            lines_skipped: skipped + comments,
            blank_lines_before: lines.saturating_sub(header_lines + skipped + comments),
            ..ReaderFacts::default()
        },
        delimiter: USUAL,
        consistency,
        data_offset: (start + before) as u64,
        header_lines: lines,
        options: CsvOptions { tidy: false, repair: false, ..options.clone() },
        header: Vec::new(),
        profile: Profile::default(),
        quotes: Quotes::default(),
        quoting: Quoting::always_standard(),
        trailing: false,
        labels: false,
        stated: Some(Arc::new(dialect)),
    })
}

/// Returns a stated dialect with the delimiter that fits best.
fn detect(stated: &StatedDialect, text: &[u8], complete: bool) -> Stated {
    let tries = DELIMITERS.iter().map(|delimiter| Stated::new(stated, vec![*delimiter]));
    let rated = tries.map(|dialect| {
        let (width, share, _) = dialect.consistency(text, complete);
        ((width > 1, share, width), dialect)
    });
    let best = rated.reduce(|best, other| if other.0 > best.0 { other } else { best });
    best.filter(|(rating, _)| rating.0).map_or_else(|| Stated::new(stated, vec![USUAL]), |(_, dialect)| dialect)
}

/// Returns the dialect that a text shows beyond doubt although nobody stated it, and a note; `delimiter` is the one
/// that it has by the usual rules.
pub(super) fn evident_dialect(
    text: &[u8],
    complete: bool,
    options: &CsvOptions,
    delimiter: u8,
) -> Option<(StatedDialect, String)> {
    let is_table = |dialect: &Stated| {
        let (width, share, records) = dialect.consistency(text, complete);
        width > 1 && share >= 1.0 && records >= EVIDENT_RECORDS
    };
    if options.delimiter.is_none() {
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

/// Iterator over the ranges of a source in a stated dialect.
pub(super) struct StatedRanges<R> {
    input: R,
    dialect: Arc<Stated>,
    range_bytes: usize,
    max_record_bytes: usize,
    max_records: usize,
    /// Number of bytes to skip first.
    skip: u64,
    /// Position of the carried bytes in the stream.
    offset: u64,
    carried: Carried,
    scan: RecordScan,
    exhausted: bool,
    /// Error that ended the input; returned after the records before it.
    fault: Option<Error>,
}

impl<R: Read> StatedRanges<R> {
    /// Creates an iterator over `input`, whose first bytes up to the data of `source` belong to no range.
    pub(super) fn new(
        input: R,
        source: &CsvSource,
        dialect: &Arc<Stated>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> Self {
        let skip = source.data_offset;
        Self {
            input,
            dialect: Arc::clone(dialect),
            range_bytes: range_bytes.max(1),
            max_record_bytes: max_record_bytes.max(1),
            max_records: (VALUES_PER_BYTE * range_bytes / source.column_names().len().max(1)).max(1),
            skip,
            offset: skip,
            carried: Carried::default(),
            scan: RecordScan::new(),
            exhausted: false,
            fault: None,
        }
    }

    /// Sets the position of `input` in the stream, where a record starts.
    pub(super) fn starting_at(self, offset: u64) -> Self {
        Self { skip: 0, offset, ..self }
    }

    /// Returns the end of the next range in the buffer.
    fn next_end(&mut self) -> Result<Option<usize>> {
        if self.skip > 0 {
            io::copy(&mut (&mut self.input).take(std::mem::take(&mut self.skip)), &mut io::sink())?;
        }
        let mut records = 0;
        loop {
            let whole = self.exhausted && self.fault.is_none();
            while let Some((record, next)) = self.dialect.next_record(self.carried.as_slice(), &mut self.scan, whole) {
                self.check_length(&record)?;
                records += usize::from(!record.is_empty());
                if next >= self.range_bytes || records >= self.max_records {
                    return Ok(Some(next));
                }
            }
            self.check_length(&(self.scan.start..self.carried.len()))?;
            if self.exhausted {
                // A record that a fault cuts is not part of what was read before it.
                return match (self.scan.start, self.fault.take()) {
                    (0, Some(fault)) => Err(fault),
                    (end, fault) => {
                        self.fault = fault;
                        Ok((end > 0).then_some(end))
                    }
                };
            }
            self.read_more();
        }
    }

    fn read_more(&mut self) {
        let step = self.range_bytes.clamp(256, READ);
        let wanted = self.carried.len() + step;
        match self.carried.fill_from(&mut self.input, wanted, wanted.max(2 * self.carried.len())) {
            Ok(filled) => self.exhausted = !filled,
            Err(error) => {
                self.exhausted = true;
                self.fault = Some(error.into());
            }
        }
    }

    fn check_length(&self, record: &Range<usize>) -> Result<()> {
        if record.len() <= self.max_record_bytes {
            return Ok(());
        }
        let limit = Size(self.max_record_bytes as u64);
        Err(Error::input(format!("expected a record of at most {limit}, found a longer one"))
            .at_byte(self.offset + record.start as u64)
            .with_hint("a quote that is not closed makes one record of many: --read quote=none reads it as a character")
            .with_hint("if records are really that long, allow more memory with --memory"))
    }
}

impl<R: Read> Iterator for StatedRanges<R> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_end() {
            Ok(end) => {
                let end = end?;
                let bytes = self.carried.take_front(end, !self.exhausted);
                let range = SourceRange::of_bytes(self.offset, bytes);
                self.offset += end as u64;
                self.scan = RecordScan::new();
                Some(Ok(range))
            }
            Err(error) => {
                self.exhausted = true;
                self.carried.clear();
                self.scan = RecordScan::new();
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::util::display::array_value_to_string;
    use proptest::prelude::*;

    use super::{
        super::{corpus::read, sniff},
        *,
    };
    use crate::format::part_checks::check_parts;

    fn options(stated: StatedDialect) -> CsvOptions {
        CsvOptions { certain: true, stated, ..CsvOptions::default() }
    }

    /// Columns with their types, rows, reasons of rejects, and the number of comments; the same at any size of ranges.
    fn outcome(text: &str, options: &CsvOptions) -> (String, Vec<String>, Vec<String>) {
        let source = sniff(text.as_bytes(), true, options).unwrap();
        let out = read(&source, text.as_bytes(), 1 << 20);
        for size in [1, 7, 40] {
            assert!(read(&source, text.as_bytes(), size) == out, "ranges of {size} bytes");
        }
        let types =
            out.batch.schema().fields().iter().map(|f| format!("{}:{}", f.name(), f.data_type())).collect::<Vec<_>>();
        let value = |row, column: usize| match out.batch.column(column).is_null(row) {
            true => "null".to_owned(),
            false => array_value_to_string(out.batch.column(column), row).unwrap(),
        };
        let row = |row| (0..out.batch.num_columns()).map(|column| value(row, column)).collect::<Vec<_>>().join(" / ");
        let rows = (0..out.batch.num_rows()).map(row).collect();
        (types.join(" "), rows, out.rejects.into_iter().map(|(_, _, reason, _)| reason).collect())
    }

    fn stated(delimiter: &str) -> StatedDialect {
        StatedDialect { delimiter: Some(delimiter.as_bytes().to_vec()), ..StatedDialect::default() }
    }

    #[test]
    fn delimiters_of_several_characters_divide_outside_of_quotes() {
        let text = "id||name||v\n1||\"a||b\"||0.5\r\n2|| x| ||\n3||||1.5\n4||\"say \"\"hi\"\"\"||2";
        let (types, rows, rejects) = outcome(text, &options(stated("||")));
        assert_eq!(types, "id:Int64 name:Utf8 v:Float64");
        assert_eq!(rows, ["1 / a||b / 0.5", "2 /  x|  / null", "3 / null / 1.5", "4 / say \"hi\" / 2.0"]);
        assert!(rejects.is_empty());
        let (_, rows, _) = outcome("aÇb\n1ÇÄ\n", &options(stated("Ç")));
        assert_eq!(rows, ["1 / Ä"]);
    }

    #[test]
    fn escapes_are_taken_off_where_they_mean_something() {
        let dialect = StatedDialect { escape: Some(b'\\'), ..stated(",") };
        let text =
            "id,t\n1,\"say \\\"hi\\\", you\"\n2,a\\,b\n3,C:\\dir\\\\x\n4,\"two\\\nlines\"\n5,two\\\nlines\n6,\\N\n";
        let (_, rows, rejects) = outcome(text, &CsvOptions { nulls: vec!["\\N".into()], ..options(dialect) });
        assert_eq!(
            rows,
            ["1 / say \"hi\", you", "2 / a,b", "3 / C:\\dir\\x", "4 / two\nlines", "5 / two\nlines", "6 / null"]
        );
        assert!(rejects.is_empty());
    }

    #[test]
    fn quotes_may_be_others_or_none() {
        let single = StatedDialect { quote: Some(b'\''), ..stated(",") };
        let (_, rows, _) = outcome("a,b\n1,'x, \"y\"'\n2,'it''s'\n", &options(single));
        assert_eq!(rows, ["1 / x, \"y\"", "2 / it's"]);
        let none = StatedDialect { quote: None, ..stated("\t") };
        let (_, rows, _) = outcome("a\tb\n1\t\"open\n2\t\"\"\n3\t5\"\n", &options(none));
        assert_eq!(rows, ["1 / \"open", "2 / \"\"", "3 / 5\""]);
    }

    #[test]
    fn what_does_not_have_the_dialect_is_rejected() {
        let text = "a;b\n1;2;3\n\"x\"y;2\n4;\"5\n6;7\n";
        let dialect = StatedDialect { comment: Some(b'#'), ..stated(";") };
        let (_, rows, rejects) = outcome(text, &options(dialect));
        assert!(rows.is_empty(), "{rows:?}");
        assert_eq!(rejects.len(), 3, "{rejects:?}");
        assert!(rejects[0].contains("expected 2 fields, found 3"), "{rejects:?}");
        assert!(
            rejects[1].contains("found text at byte 13") && rejects[2].contains("opened at byte 19"),
            "{rejects:?}"
        );
    }

    #[test]
    fn comments_and_skipped_lines_are_no_records() {
        let dialect = StatedDialect { comment: Some(b'%'), ..StatedDialect::default() };
        let text = "made by x\n% it's \"one\na;b\n1;2\n% more\n\n3;\"%\"\n";
        let source = sniff(text.as_bytes(), true, &CsvOptions { skip: 1, ..options(dialect.clone()) }).unwrap();
        assert_eq!((source.column_names(), source.facts.lines_skipped), (&["a".to_owned(), "b".to_owned()][..], 2));
        let (_, rows, _) = outcome(text, &CsvOptions { skip: 1, ..options(dialect) });
        assert_eq!(rows, ["1 / 2", "3 / %"]);
        let (_, rows, _) = outcome("x\na,b\n1,2\n", &CsvOptions { skip: 1, ..options(StatedDialect::default()) });
        assert_eq!(rows, ["1 / 2"]);
    }

    #[test]
    fn notations_change_typed_columns_alone() {
        let notation =
            Notation { decimal: Some(b','), thousands: Some(b'.'), date: Some("%d.%m.%Y".into()), timestamp: None };
        let text = "n;t;d\n1.234,5;1,5;31.12.2026\n-7;x;01.01.2027\n";
        let (types, rows, _) = outcome(text, &options(StatedDialect { notation, ..StatedDialect::default() }));
        assert_eq!(types, "n:Float64 t:Utf8 d:Date32");
        assert_eq!(rows, ["1234.5 / 1,5 / 2026-12-31", "-7.0 / x / 2027-01-01"]);
    }

    #[test]
    fn dialects_that_show_are_taken_with_a_note() {
        let named = CsvOptions { named: true, ..CsvOptions::default() };
        let rows = |line: &str| (0..5).map(|i| line.replace('N', &i.to_string())).collect::<String>();
        for (text, columns, note) in [
            (format!("id||v\n{}", rows("N||x\n")), 2, "`||`"),
            (format!("id~|~v\n{}", rows("N~|~x\n")), 2, "`~|~`"),
            (format!("id::v\n{}", rows("N::x\n")), 2, "`::`"),
            (format!("id\u{1}v\n{}", rows("N\u{1}x\n")), 2, r"`\x01`"),
            (format!("id,v\n{}", rows("N,\"a \\\"b\\\", c\"\n")), 2, r"`\`"),
        ] {
            let source = sniff(text.as_bytes(), true, &named).unwrap();
            assert_eq!(source.column_names().len(), columns, "{text}");
            assert!(source.facts.notes[0].contains(note), "{:?}", source.facts.notes);
        }
        for text in ["id|w|v\n1||x\n2|a|y\n3||z\n", "a,b\n1,C:\\\"x\n2,y\n", "t::x,v\n1::2,3\n1:2,3\n"] {
            assert!(sniff(text.as_bytes(), true, &named).unwrap().stated.is_none(), "{text}");
        }
    }

    #[test]
    fn parts_have_the_records_of_the_whole() {
        let dialect = StatedDialect { escape: Some(b'\\'), comment: Some(b'#'), ..stated("::") };
        let text = "id::t\n1::\"a\\\"\n::b\"\n# c\n2::x\n\n3::y\\\nz\n4::\"w\"\n".repeat(3);
        let source = sniff(text.as_bytes(), true, &options(dialect)).unwrap();
        let parts = check_parts(&source, text.as_bytes(), 20, 1 << 20, 40);
        assert!(parts.len() > 1, "{parts:?}");
    }

    proptest! {
        /// Values are written by the rules of a dialect, and come back.
        #[test]
        fn what_is_written_is_read(
            rows in prop::collection::vec(prop::collection::vec("[a|:\\\\'\"\n\r ,1]{0,6}", 3), 1..8),
            delimiter in prop::sample::select(vec!["||", ",", "::", "~"]),
            quote in prop::sample::select(vec![b'"', b'\'']),
        ) {
            let quote_char = char::from(quote);
            let write = |value: &String| {
                let escaped: String = value.chars().flat_map(|one| match one {
                    one if one == quote_char || one == '\\' => vec!['\\', one],
                    one => vec![one],
                }).collect();
                format!("{quote_char}{escaped}{quote_char}")
            };
            let line = |row: &Vec<String>| row.iter().map(write).collect::<Vec<_>>().join(delimiter) + "\n";
            let text = format!("x{delimiter}y{delimiter}z\n{}", rows.iter().map(line).collect::<String>());
            let dialect = StatedDialect { quote: Some(quote), escape: Some(b'\\'), ..stated(delimiter) };
            let text_columns = ["x", "y", "z"].map(str::to_owned).into_iter().collect();
            let (_, found, rejects) = outcome(&text, &CsvOptions { text: text_columns, ..options(dialect) });
            let wanted: Vec<String> = rows.iter().map(|row| row.join(" / ")).collect();
            prop_assert_eq!(found, wanted);
            prop_assert!(rejects.is_empty());
        }
    }
}
