//! Rewrites ranges that contain damaged records, or lines that are not records, before they are parsed.
//!
//! ```text
//! range ---- records ---- good --------------------> unchanged         }
//!                    `--- one reading fits --------> with that reading } text for the normal parser
//!                    `--- anything else -----------> reject
//! ```
//!
//! The result for a record depends on its own bytes, the head of the source and the schema, never on its neighbours, so
//! it is the same wherever ranges are cut. An unclosed quote makes one record of many lines. If the lines after it are
//! records on their own, that record is divided. The normal parser detects that a range needs rewriting; clean ranges
//! are never rewritten.

use std::ops::Range;

use super::{
    dialect::BYTE_ORDER_MARK,
    notation::Wanted,
    repair::{self, ParsedField, RepairTarget},
    source::CsvSource,
    stated::{RecordScan, Stated, USUAL},
    tokenize::{CR, Ended, LF, QUOTE, Sink, count_lines, scan_records, unquote_field},
};
use crate::record::{Oddity, Remark};

/// Number of lines after an open quote that are examined to see whether they are records on their own.
const AHEAD: usize = 8;
/// Limits the work of dividing a record to this multiple of its length, plus `MIN_EFFORT` bytes.
const EFFORT: usize = 16;
const MIN_EFFORT: usize = 1 << 20;

const HEADER_AGAIN: &str = "expected a record, found the header again";
const LIKE_HEADER: &str = "this record is equal to the header, and was kept as a record";
const NO_VALUES: &str = "a line with nothing but delimiters was kept as a record without values";
const LONE: &str = "this record reads like a note, and was kept as a record";
const SWALLOWED: &str = "a quoted value contains lines with all fields of a record, and was kept as one value";
const OTHER_QUOTE: &str = "this record has values in `'`, and was kept as it is";

/// The origin of a record of the rewritten text, or of a rejected record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordOrigin {
    /// Its number among the records of the range.
    pub(super) number: u32,
    /// Its bytes in the range.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A rewritten range.
#[derive(Debug, Default)]
pub(super) struct Screened {
    /// Records that can be parsed, each with a terminator.
    pub(super) text: Vec<u8>,
    /// The origin of each of these records.
    pub(super) origins: Vec<RecordOrigin>,
    /// The other records, with reasons.
    pub(super) bad: Vec<(RecordOrigin, String)>,
    pub(super) blank: u64,
    /// Number of lines that are comments.
    pub(super) comments: u64,
    /// Line in the range and byte in the source of the first record that may be possible only if a quote is a
    /// character.
    pub(super) suspect: Option<(u64, u64)>,
    pub(super) remarks: Vec<Remark>,
}

impl Screened {
    /// Number of records of the range, rejected ones included.
    pub(super) fn record_count(&self) -> u64 {
        (self.origins.len() + self.bad.len()) as u64
    }
}

/// Returns whether a text value would change the type of a column.
pub(super) type IsOpen<'a> = &'a dyn Fn(usize) -> bool;

/// Rewrites a range. `wanted` says how values are written if their notation is stated.
pub(super) fn screen_range(
    source: &CsvSource,
    bytes: &[u8],
    offset: u64,
    is_open: IsOpen<'_>,
    wanted: &dyn Fn(usize) -> Wanted,
) -> Screened {
    if let Some(stated) = &source.stated {
        return screen_stated(stated, source.column_names().len(), bytes, offset, wanted);
    }
    let profile = source.profile.without_columns(|column| source.is_set(column));
    let expected = RepairTarget { delimiter: source.delimiter, width: source.column_names().len(), profile: &profile };
    let mut screen = Screen {
        source,
        bytes,
        offset,
        expected,
        is_open,
        unquoted: source.quoting.is_character(),
        ends: Vec::new(),
        out: Screened::default(),
        records: 0,
        again: None,
        effort: 0,
        depth: 0,
        line: (0, 0),
    };
    screen.run();
    screen.out
}

/// Writes the records of a range as usual text, their values as they are wanted.
fn screen_stated(
    stated: &Stated,
    width: usize,
    bytes: &[u8],
    offset: u64,
    wanted: &dyn Fn(usize) -> Wanted,
) -> Screened {
    let mut out = Screened::default();
    let (mut scan, mut number) = (RecordScan::new(), 0);
    let wanted: Vec<Wanted> = match stated.notation.is_usual() {
        true => Vec::new(),
        false => (0..width).map(wanted).collect(),
    };
    while let Some((at, _)) = stated.next_record(bytes, &mut scan, true) {
        let record = &bytes[at.clone()];
        if record.is_empty() {
            out.blank += 1;
            continue;
        }
        if stated.is_comment(record) {
            out.comments += 1;
            continue;
        }
        let origin = RecordOrigin { number, start: at.start, end: at.end };
        number += 1;
        match stated.read_record(record, width, offset + at.start as u64) {
            Ok(mut fields) => {
                for ((text, _), wanted) in fields.iter_mut().zip(&wanted) {
                    if let Some(usual) = stated.notation.to_usual(text, *wanted) {
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

struct Screen<'a> {
    source: &'a CsvSource,
    bytes: &'a [u8],
    /// Offset of the range in the source.
    offset: u64,
    expected: RepairTarget<'a>,
    is_open: IsOpen<'a>,
    /// Whether a quote is a character.
    unquoted: bool,
    /// Ends of the fields of the current record.
    ends: Vec<usize>,
    out: Screened,
    records: u32,
    /// The ranges to scan next: the rest of a record that is divided, and what follows it.
    again: Option<(Range<usize>, usize)>,
    /// Remaining bytes that may be scanned again within the current record.
    effort: usize,
    /// Number of nested records that are being divided.
    depth: usize,
    /// Position of a byte, and the number of lines before it.
    line: (usize, u64),
}

impl Screen<'_> {
    fn run(&mut self) {
        let mut todo = Vec::from([Range { start: 0, end: self.bytes.len() }]);
        while let Some(part) = todo.pop() {
            self.depth = todo.len();
            self.ends.clear();
            match scan_records(&self.bytes[..part.end], self.source.marked_delimiter(), part.start, self) {
                Ended::Exhausted { start, open } if start < part.end => {
                    self.ends.push(part.end);
                    self.record_is(start..part.end, part.end, open);
                }
                _ => {}
            }
            if let Some((rest, next)) = self.again.take() {
                todo.push(next..part.end);
                todo.push(rest);
            }
        }
    }

    /// Decides about a record; `open` is the position of an unclosed quote.
    fn record_is(&mut self, at: Range<usize>, next: usize, open: Option<usize>) {
        let bytes = self.bytes;
        let record = &bytes[at.clone()];
        let ends = std::mem::take(&mut self.ends);
        self.note_suspect(&at, if open.is_none() { ends.len() } else { 0 });
        if record.is_empty() {
            self.out.blank += 1;
        } else if let Err(error) = std::str::from_utf8(record) {
            let place = at.start + error.valid_up_to();
            let byte = bytes[place];
            self.reject_record(at, |byte_of| {
                format!("expected UTF-8, found the byte 0x{byte:02X} at byte {}", byte_of(place))
            });
        } else if open.is_none()
            && ends.len() == self.expected.width
            && (self.unquoted || !repair::is_torn(record, self.expected.delimiter))
        {
            self.screen_complete(at, &ends);
        } else if open.is_none() && self.has_only_more_delimiters(&ends) {
            let end = ends[self.expected.width - 1];
            self.screen_complete(at.start..end, &ends[..self.expected.width]);
        } else if record.iter().any(|byte| matches!(*byte, LF | CR)) {
            self.screen_multiline(at, next, &ends, open);
        } else {
            self.screen_damaged(at, &ends, open);
        }
        self.ends = ends;
        self.ends.clear();
    }

    /// Notes a record that may be possible only if a quote is a character, or would be several records then.
    fn note_suspect(&mut self, at: &Range<usize>, fields: usize) {
        let record = &self.bytes[at.clone()];
        if self.unquoted || !self.source.options.tidy || self.depth > 0 || record.is_empty() {
            return;
        }
        if self.source.quoting.is_open() && self.out.suspect.is_none() && self.source.is_suspect(record, fields) {
            self.out.suspect = Some((count_lines(&self.bytes[..at.start]), self.offset + at.start as u64));
        }
        let spans = fields == self.expected.width && record.iter().any(|byte| matches!(*byte, LF | CR));
        if spans && self.expected.width > 1 && self.source.all_fit(record) {
            self.add_remark(at, Oddity::Doubtful, SWALLOWED);
        }
    }

    /// Whether a delimiter ends this record and all others of the source.
    fn has_only_more_delimiters(&self, ends: &[usize]) -> bool {
        let width = self.expected.width;
        self.source.trailing && ends.len() == width + 1 && ends[width] == ends[width - 1] + 1
    }

    /// Decides about a record that has all its fields.
    fn screen_complete(&mut self, at: Range<usize>, ends: &[usize]) {
        let record = &self.bytes[at.clone()];
        let is_header = self.is_header(record);
        if is_header && self.source.options.repair && self.header_differs(&at, ends) {
            return self.reject_record(at, |_| HEADER_AGAIN.to_owned());
        }
        if self.expected.width > 1 && record.len() + 1 == self.expected.width {
            self.add_remark(&at, Oddity::Doubtful, NO_VALUES);
            return self.write_verbatim(at);
        }
        let values = self.source_fields(&at, ends);
        let texts: Vec<&[u8]> = values.iter().map(|(text, _)| text.as_slice()).collect();
        let mismatch =
            |column: &usize| !self.expected.profile.accepts_value(*column, texts[*column]) && (self.is_open)(*column);
        let mismatches = (0..texts.len()).any(|column| mismatch(&column));
        if !self.unquoted && (mismatches || record.first() == Some(&super::quotes::SINGLE)) {
            let fits = self.expected.profile.first_mismatch(texts.iter().copied()).is_none();
            let other = if fits { self.expected.all_single(record) } else { None };
            let other = other.map(|fields| (fields, repair::OTHER_QUOTE));
            match other.or_else(|| if fits { None } else { self.expected.repair_record(record) }) {
                Some((fields, why)) if self.source.options.repair => return self.write_repaired(at, &fields, why),
                Some((_, repair::OTHER_QUOTE)) => self.add_remark(&at, Oddity::Doubtful, OTHER_QUOTE),
                _ => {}
            }
        }
        let alone = texts.len() > 2 && texts[1..].iter().all(|text| text.is_empty());
        let is_note = (mismatches || alone) && self.expected.profile.is_note(&texts);
        if is_header {
            self.add_remark(&at, Oddity::Doubtful, LIKE_HEADER);
        } else if self.expected.profile.is_other_header(&texts) {
            self.add_remark(&at, Oddity::Doubtful, OTHER_HEADER);
        } else if is_note || alone && self.expected.profile.is_doubtful(&texts) {
            self.add_remark(&at, Oddity::Doubtful, LONE);
        }
        self.keep_record(at, &values);
    }

    /// Keeps a record, with the usual quotes.
    fn keep_record(&mut self, at: Range<usize>, values: &[ParsedField]) {
        if self.source.quotes.are_usual() && !(self.unquoted && self.bytes[at.clone()].contains(&QUOTE)) {
            return self.write_verbatim(at);
        }
        self.push_origin(&at);
        repair::write(values, self.expected.delimiter, &mut self.out.text);
    }

    /// Whether a record repeats the header, perhaps after a byte order mark where files were joined.
    fn is_header(&self, record: &[u8]) -> bool {
        let header = self.source.header.as_slice();
        let plain = record.strip_prefix(BYTE_ORDER_MARK).unwrap_or(record);
        !header.is_empty() && self.expected.width > 1 && plain == header
    }

    /// Whether the types of a record's values distinguish it from the header. If not, a record may be equal to the
    /// header: the header of a table without one is a record.
    fn header_differs(&self, at: &Range<usize>, ends: &[usize]) -> bool {
        let values = self.source_fields(at, ends);
        let texts: Vec<&[u8]> =
            values.iter().map(|(text, _)| text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)).collect();
        let mut typed = self.source.profile.typed_columns().peekable();
        let differs =
            |column: usize| texts.get(column).is_some_and(|text| !self.source.profile.accepts_value(column, text));
        typed.peek().is_some() && typed.all(differs)
    }

    /// Returns the values of a record as in the source.
    fn source_fields(&self, at: &Range<usize>, ends: &[usize]) -> Vec<ParsedField> {
        let mut start = at.start;
        let quotes = self.source.quotes;
        let mut scratch = Vec::new();
        ends.iter()
            .map(|&end| {
                let raw = &self.bytes[start.min(end)..end];
                start = end + 1;
                let quoted = !self.unquoted && raw.first() == Some(&QUOTE);
                scratch.clear();
                let mut text = if quoted { unquote_field(raw, &mut scratch).to_vec() } else { raw.to_vec() };
                if quotes.spaced && quoted {
                    text = text.trim_ascii().to_vec();
                }
                quotes.restore_bytes(&mut text);
                (text, quoted)
            })
            .collect()
    }

    /// Decides about a damaged record that spans lines: a value contains line ends, or an unclosed quote includes the
    /// next records.
    fn screen_multiline(&mut self, at: Range<usize>, next: usize, ends: &[usize], open: Option<usize>) {
        let record = &self.bytes[at.clone()];
        if self.depth == 0 {
            self.effort = EFFORT * record.len() + MIN_EFFORT;
        }
        let first = record.iter().position(|byte| matches!(*byte, LF | CR)).unwrap_or(record.len());
        let rest = super::tokenize::next_record_start(self.bytes, at.start + first).min(at.end);
        if rest == at.end {
            return self.line_alone(at.start..at.start + first);
        }
        let apart = self.effort >= record.len() && self.expected.has_types();
        if apart && self.are_records(rest..at.end) {
            self.effort -= record.len();
            self.again = Some((rest..at.end, next));
            return self.line_alone(at.start..at.start + first);
        }
        if let Some((fields, why)) = self.repair_damaged(record) {
            return self.write_repaired(at, &fields, why);
        }
        if apart && open.is_some() {
            self.effort -= record.len();
            self.again = Some((rest..at.end, next));
            return self.line_alone(at.start..at.start + first);
        }
        self.screen_damaged(at, ends, open);
    }

    /// Decides about the first line of a record that is divided.
    fn line_alone(&mut self, at: Range<usize>) {
        let record = &self.bytes[at.clone()];
        let mut fields = FieldEnds(Vec::new());
        let open = match scan_records(record, self.expected.delimiter, 0, &mut fields) {
            Ended::Exhausted { open, .. } => open,
            Ended::Stopped(_) => None,
        };
        fields.0.push(record.len());
        let ends: Vec<usize> = fields.0.iter().map(|end| at.start + end).collect();
        self.screen_damaged(at.clone(), &ends, open.map(|open| at.start + open));
    }

    /// Whether most of the next lines are records of this table on their own.
    fn are_records(&self, at: Range<usize>) -> bool {
        let (mut lines, mut good) = (0, 0);
        for line in self.bytes[at].split(|byte| matches!(*byte, LF | CR)).filter(|line| !line.is_empty()).take(AHEAD) {
            let mut fields = FieldEnds(Vec::new());
            let closed = matches!(
                scan_records(line, self.expected.delimiter, 0, &mut fields),
                Ended::Exhausted { open: None, .. }
            );
            fields.0.push(line.len());
            lines += 1;
            if closed && fields.0.len() == self.expected.width {
                let values = values_of(line, &fields.0);
                let fits = self.expected.profile.first_mismatch(values.iter().map(Vec::as_slice)).is_none();
                good += usize::from(fits && self.expected.width > 1);
            }
        }
        2 * good > lines
    }

    /// Decides about a record with another number of fields than there are columns, or with misplaced quotes.
    fn screen_damaged(&mut self, at: Range<usize>, ends: &[usize], open: Option<usize>) {
        let record = &self.bytes[at.clone()];
        if let Some((fields, why)) = self.repair_damaged(record).or_else(|| self.repair_as_text(record)) {
            return self.write_repaired(at, &fields, why);
        }
        if let Some(open) = open {
            return self.reject_record(at, |byte_of| {
                format!("expected a closing quote, found none: opened at byte {}, never closed", byte_of(open))
            });
        }
        let values = self.source_fields(&at, ends);
        let texts: Vec<&[u8]> = values.iter().map(|(text, _)| text.as_slice()).collect();
        let (width, found) = (self.expected.width, ends.len());
        let is_note = self.expected.profile.is_note(&texts);
        if is_note && self.expected.profile.clear_mismatch(&texts, |_| true).is_some() {
            return self.reject_record(at, |_| NOTE.to_owned());
        }
        if found > width || self.source.labels && found < width {
            return self.reject_record(at, |_| format!("expected {width} fields, found {found}"));
        }
        // A column that other records have made text accepts this value, too.
        if found < width
            && let Some(column) = self.expected.profile.clear_mismatch(&texts, self.is_open)
        {
            let name = self.source.column_names()[column].clone();
            return self.reject_record(at, |_| {
                format!(
                    "expected {width} fields, found {found}, and the value of `{name}` does not have the column's type"
                )
            });
        }
        if !self.unquoted && repair::is_torn(record, self.expected.delimiter) {
            return self.reject_record(at, |_| TORN.to_owned());
        }
        self.doubt_short(&at, is_note);
        self.keep_record(at, &values);
    }

    /// Adds a remark about a short record that looks like something else.
    fn doubt_short(&mut self, at: &Range<usize>, is_note: bool) {
        if at.end == self.bytes.len() {
            self.add_remark(at, Oddity::Doubtful, super::CUT);
        } else if self.bytes[at.start] == b'#' {
            self.add_remark(at, Oddity::Doubtful, super::COMMENT);
        } else if is_note {
            self.add_remark(at, Oddity::Doubtful, LONE);
        }
    }

    /// Returns the only reading of a damaged record that fits. If rejects are not allowed, it is used only where
    /// another delimiter is all that differs, and so in all records that lack the usual one.
    fn repair_damaged(&self, record: &[u8]) -> Option<(Vec<ParsedField>, &'static str)> {
        self.allowed_repair(self.expected.repair_record(record))
    }

    /// The same where columns that other records have made text accept any value. The number of records must not
    /// depend on the types, so this cannot decide where a record ends.
    fn repair_as_text(&self, record: &[u8]) -> Option<(Vec<ParsedField>, &'static str)> {
        let profile = self.expected.profile.without_columns(|column| !(self.is_open)(column));
        self.allowed_repair(RepairTarget { profile: &profile, ..self.expected }.repair_record(record))
    }

    fn allowed_repair(
        &self,
        repair: Option<(Vec<ParsedField>, &'static str)>,
    ) -> Option<(Vec<ParsedField>, &'static str)> {
        let options = &self.source.options;
        let repair = repair.filter(|_| options.tidy && !self.unquoted)?;
        (options.repair || repair.1 == repair::OTHER_DELIMITER).then_some(repair)
    }

    fn write_repaired(&mut self, at: Range<usize>, fields: &[ParsedField], why: &'static str) {
        self.add_remark(&at, Oddity::Repaired, why);
        self.push_origin(&at);
        let mut fields = fields.to_vec();
        fields.iter_mut().for_each(|(text, _)| self.source.quotes.restore_bytes(text));
        repair::write(&fields, self.expected.delimiter, &mut self.out.text);
    }

    fn write_verbatim(&mut self, at: Range<usize>) {
        self.push_origin(&at);
        self.out.text.extend_from_slice(&self.bytes[at]);
        self.out.text.push(LF);
    }

    fn push_origin(&mut self, at: &Range<usize>) {
        let origin = self.next_origin(at);
        self.out.origins.push(origin);
    }

    fn next_origin(&mut self, at: &Range<usize>) -> RecordOrigin {
        let number = self.records;
        self.records += 1;
        RecordOrigin { number, start: at.start, end: at.end }
    }

    fn reject_record(&mut self, at: Range<usize>, reason: impl FnOnce(&dyn Fn(usize) -> u64) -> String) {
        let origin = self.next_origin(&at);
        let reason = reason(&|at| self.offset + at as u64);
        self.out.bad.push((origin, reason));
    }

    fn add_remark(&mut self, at: &Range<usize>, oddity: Oddity, why: &'static str) {
        self.line.1 += count_lines(&self.bytes[self.line.0..at.start]);
        self.line.0 = at.start;
        match self.out.remarks.iter_mut().find(|one| one.why == why) {
            Some(one) => one.count += 1,
            None => self.out.remarks.push(Remark { line: self.line.1, count: 1, oddity, why }),
        }
    }
}

const NOTE: &str = "expected a record, found a line that reads like a note";
const OTHER_HEADER: &str = "this record has text in every column of numbers, times or truth values, as a second \
 header, and was kept as a record";
const TORN: &str = "expected a delimiter or the end of the line after a closing quote, found text";

impl Sink for Screen<'_> {
    fn end_field(&mut self, end: usize) {
        self.ends.push(end);
    }

    fn end_record(&mut self, record: Range<usize>, next: usize) -> bool {
        self.record_is(record, next, None);
        self.again.is_none()
    }
}

/// Collects the ends of the fields of one line.
struct FieldEnds(Vec<usize>);

impl Sink for FieldEnds {
    fn end_field(&mut self, end: usize) {
        self.0.push(end);
    }

    fn end_record(&mut self, _record: Range<usize>, _next: usize) -> bool {
        true
    }
}

fn values_of(line: &[u8], ends: &[usize]) -> Vec<Vec<u8>> {
    let mut start = 0;
    let value = |&end: &usize| {
        let raw = &line[start..end];
        start = end + 1;
        let mut scratch = Vec::new();
        if raw.first() == Some(&QUOTE) { unquote_field(raw, &mut scratch).to_vec() } else { raw.to_vec() }
    };
    ends.iter().map(value).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::util::display::array_value_to_string;

    use super::{
        super::{CsvOptions, corpus::read, sniff},
        *,
    };

    /// Rows, reasons of rejects, and reasons of remarks with their lines and counts.
    type Outcome = (Vec<String>, Vec<String>, Vec<(u64, u64, &'static str)>);

    /// Reads a text as if rejects were allowed, with the same outcome at every size of ranges.
    fn outcome(text: &str) -> Outcome {
        outcome_with(text, &CsvOptions { repair: true, ..CsvOptions::default() })
    }

    fn outcome_with(text: &str, options: &CsvOptions) -> Outcome {
        let source = sniff(text.as_bytes(), true, options).unwrap();
        let out = read(&source, text.as_bytes(), 1 << 20);
        for size in [1, 40, 300] {
            assert!(read(&source, text.as_bytes(), size) == out, "ranges of {size} bytes");
        }
        let value = |row, column| array_value_to_string(out.batch.column(column), row).unwrap();
        let columns = out.batch.num_columns();
        let row = |row| (0..columns).map(|column| value(row, column)).collect::<Vec<_>>().join("|");
        let rows = (0..out.batch.num_rows()).map(row).collect();
        assert_eq!(out.records, (out.batch.num_rows() + out.rejects.len()) as u64);
        (rows, out.rejects.into_iter().map(|(_, _, reason, _)| reason).collect(), out.remarks)
    }

    /// Returns a table with these lines before its last one. It has a value that has to be quoted.
    fn table(with: &str) -> String {
        let rows: String = (1..=20).map(|i| format!("{i},2024-01-{i:02},town {i},{i}.5\n")).collect();
        let rows = rows.replace("town 1,", "\"town, 1\",");
        format!("id,day,town,rain\n{rows}{with}90,2024-02-01,last,1.5\n")
    }

    /// Returns the result for the lines before the last one.
    fn added(with: &str) -> (Vec<String>, Vec<String>, Vec<&'static str>) {
        added_with(with, &CsvOptions { repair: true, ..CsvOptions::default() })
    }

    fn added_with(with: &str, options: &CsvOptions) -> (Vec<String>, Vec<String>, Vec<&'static str>) {
        let (rows, rejects, remarks) = outcome_with(&table(with), options);
        assert_eq!(rows[19], "20|2024-01-20|town 20|20.5", "{with:?}");
        assert_eq!(rows.last().unwrap(), "90|2024-02-01|last|1.5", "{with:?}");
        (rows[20..rows.len() - 1].to_vec(), rejects, remarks.into_iter().map(|(_, _, why)| why).collect())
    }

    #[test]
    fn damaged_records_with_a_single_reading_are_repaired() {
        for (line, row, why) in [
            ("30;2024-01-30;a, b;1.5\n", "30|2024-01-30|a, b|1.5", repair::OTHER_DELIMITER),
            ("30,2024-01-30,'a, b',1.5\n", "30|2024-01-30|a, b|1.5", repair::OTHER_QUOTE),
            ("'30','2024-01-30','it''s','1.5'\n", "30|2024-01-30|it's|1.5", repair::OTHER_QUOTE),
            ("30,2024-01-30,\"a \"b\" c\",1.5\n", "30|2024-01-30|a \"b\" c|1.5", repair::UNESCAPED),
            ("30,2024-01-30,\"a \"b,\" c\",1.5\n", "30|2024-01-30|a \"b,\" c|1.5", repair::UNESCAPED),
        ] {
            assert_eq!(added(line), (vec![row.to_owned()], vec![], vec![why]), "{line:?}");
        }
    }

    #[test]
    fn a_column_that_other_records_have_made_text_accepts_any_value_of_a_repaired_record() {
        let line = "30;2024-01-30;a, b;dry\n";
        let options = CsvOptions::default();
        let (_, rejects, _) = added_with(line, &options);
        assert!(rejects[0].contains("expected 4 fields, found 2"), "{rejects:?}");
        let (rows, rejects, remarks) = outcome_with(&table(&format!("29,2024-01-29,c,trace\n{line}")), &options);
        assert_eq!((rows[21].as_str(), rejects.len()), ("30|2024-01-30|a, b|dry", 0));
        assert_eq!(remarks, [(21, 1, repair::OTHER_DELIMITER)]);
        let torn = "30,2024-01-30,\"a \"b\" c\",dry\n";
        let (_, rejects, _) = outcome_with(&table(&format!("29,2024-01-29,c,trace\n{torn}")), &options);
        assert_eq!(rejects.len(), 1);
    }

    #[test]
    fn records_that_cannot_be_repaired_are_rejected() {
        for (line, reason) in [
            ("30,2024-01-30,a,more,1.5\n", "expected 4 fields, found 5"),
            ("30;2024-01-30;a;more;1.5\n", "expected 4 fields, found 1, and the value of `id` does not have"),
            ("Source: own survey of all the towns\n", "reads like a note"),
            ("id,day,town,rain\n", HEADER_AGAIN),
            ("\u{feff}id,day,town,rain\n", HEADER_AGAIN),
        ] {
            let (rows, rejects, remarks) = added(line);
            assert_eq!((rows.len(), rejects.len(), remarks.len()), (0, 1, 0), "{line:?}");
            assert!(rejects[0].contains(reason), "{line:?}: {}", rejects[0]);
        }
    }

    #[test]
    fn without_consent_nothing_is_repaired_but_the_delimiter() {
        let options = CsvOptions::default();
        let fourth = |line: &str| vec![line.trim_end().replace(',', "|")];
        for (line, why) in [
            ("id,day,town,rain\n", LIKE_HEADER),
            ("key,name,place,height\n", OTHER_HEADER),
            ("'30','2024-01-30','a','1.5'\n", OTHER_QUOTE),
        ] {
            let (rows, rejects, remarks) = outcome_with(&table(line), &options);
            assert_eq!((&rows[20..21], rejects.len()), (&fourth(line)[..], 0), "{line:?}");
            assert!(
                remarks.iter().any(|(at, count, what)| (*at, *count, *what) == (20, 1, why)),
                "{line:?} {remarks:?}"
            );
        }
        for (line, reason) in [
            ("30,2024-01-30,'a, b',1.5\n", "found 5"),
            ("30,2024-01-30,\"a \"b\" c\",1.5\n", "after a closing quote"),
            ("30,2024-01-30,\"open,1.5\n", "never closed"),
        ] {
            let (rows, rejects, remarks) = added_with(line, &options);
            assert_eq!((rows.len(), rejects.len(), remarks.len()), (0, 1, 0), "{line:?}");
            assert!(rejects[0].contains(reason), "{line:?}: {}", rejects[0]);
        }
        let strict = CsvOptions { tidy: false, ..CsvOptions::default() };
        assert_eq!(added_with("30;2024-01-30;a, b;1.5\n", &strict).1.len(), 1);
    }

    #[test]
    fn a_quote_is_a_character_where_all_lines_have_all_fields_without_quoting() {
        let many =
            |start: usize| -> String { (start..start + 40).map(|i| format!("{i}\tname {i}\t{i}.5\n")).collect() };
        for (first, second, quoted) in [
            ("\"open", "plain", false),
            ("\"open", "\"open", false),
            ("\"A friend\" of Bob", "5\" pipe", false),
            ("\"begin", "end\"", false),
            ("\"a\"", "\"b\"", true),
        ] {
            let text =
                format!("id\tname\tx\n{}100\t{first}\t1.5\n{}200\t{second}\t2.5\n{}", many(1), many(101), many(201));
            let (rows, rejects, remarks) = outcome_with(&text, &CsvOptions::default());
            let read = |value: &str| if quoted { value.replace('"', "") } else { value.to_owned() };
            assert_eq!((rows.len(), rejects.len(), remarks.len()), (122, 0, 0), "{first}");
            assert_eq!(rows[40], format!("100|{}|1.5", read(first)));
            assert_eq!(rows[81], format!("200|{}|2.5", read(second)));
        }
    }

    #[test]
    fn quoted_line_ends_stay_in_values() {
        for (text, rows, remarks) in [
            ("text\n\"two\nlines\"\n", 1, 0),
            ("id,text\n1,\"two\nlines\"\n2,x\n", 2, 0),
            ("id,text\n1,\"one\n2,two\"\n3,\"a, b\"\n", 2, 1),
            ("a,b\nx,\"one\ntwo, three\"\n", 1, 1),
        ] {
            let found = outcome_with(text, &CsvOptions::default());
            assert_eq!((found.0.len(), found.2.len()), (rows, remarks), "{text:?}: {found:?}");
        }
    }

    #[test]
    fn a_line_of_delimiters_is_a_record_without_values() {
        assert_eq!(added(",,,\n"), (vec!["|||".to_owned()], vec![], vec![NO_VALUES]));
    }

    #[test]
    fn an_unclosed_quote_does_not_swallow_other_records() {
        let after: String = (31..=39).map(|i| format!("{i},2024-03-{i},x,{i}.5\n").replace("03-3", "03-1")).collect();
        for closed_by in ["", "40,2024-01-30,\"a, b\",1.5\n"] {
            let (rows, rejects, remarks) = added(&format!("30,2024-01-30,\"open,1.5\n{after}{closed_by}"));
            assert_eq!(rows[0], "30|2024-01-30|open|1.5");
            assert_eq!(rows.len(), 10 + usize::from(!closed_by.is_empty()), "{rows:?}");
            assert_eq!((rejects.len(), remarks), (0, vec![repair::UNCLOSED]));
        }
        let (rows, rejects, _) = added(&format!("30,2024-01-30,\"open, and more, 1.5\n{after}"));
        assert_eq!((rows.len(), rejects.len()), (9, 1));
        assert!(rejects[0].contains("never closed"), "{}", rejects[0]);
    }

    #[test]
    fn valid_records_are_unchanged() {
        for (line, row) in [
            ("30,2024-01-30,\"two\nlines, and more\",1.5\n", "30|2024-01-30|two\nlines, and more|1.5"),
            ("30,2024-01-30,\"\"\"a\"\" b\",1.5\n", "30|2024-01-30|\"a\" b|1.5"),
            ("30,2024-01-30,'tis,1.5\n", "30|2024-01-30|'tis|1.5"),
            ("30,2024-01-30,a;b;c,1.5\n", "30|2024-01-30|a;b;c|1.5"),
            ("30,,,\n", "30|||"),
            ("30\n", "30|||"),
        ] {
            assert_eq!(added(line), (vec![row.to_owned()], vec![], vec![]), "{line:?}");
        }
    }

    #[test]
    fn columns_widened_to_text_accept_short_records_and_tell_a_second_header() {
        let (rows, rejects, remarks) = added("abc,2024-01-30,x,1.5\nabd\n");
        assert_eq!(rows, ["abc|2024-01-30|x|1.5", "abd|||"]);
        assert!(rejects.is_empty() && remarks.is_empty(), "{rejects:?} {remarks:?}");
        let mixed = "a1,2024-01-30,x,lots\n7,someday,x,1.5\n";
        let (rows, rejects, remarks) = added(&format!("{mixed}key,name,place,height\n"));
        assert_eq!((rows.len(), rejects.len(), remarks), (3, 0, vec![OTHER_HEADER]));
        let (rows, rejects, _) = added(&format!("{mixed}unknown,unknown,x,unknown\n"));
        assert_eq!((rows.len(), rejects.len()), (3, 0), "equal texts are no names");
    }

    #[test]
    fn records_equal_to_a_header_that_is_a_record_are_kept() {
        for text in ["1,2\n1,2\n3,4\n5,6\n1,2\n", "x,y\na,b\nx,y\nc,d\n"] {
            let (rows, rejects, remarks) = outcome(text);
            assert_eq!((rows.len(), rejects.len()), (text.lines().count() - 1, 0));
            assert_eq!(remarks[0].2, LIKE_HEADER);
        }
    }

    #[test]
    fn a_sentence_among_texts_is_kept_with_a_remark() {
        let rows: String = (1..=20).map(|i| format!("town {i},{i}\n")).collect();
        let (rows, rejects, remarks) = outcome(&format!("town,id\n{rows}Source: own survey of towns\nlast,21\n"));
        assert_eq!((rows[20].as_str(), rejects.len()), ("Source: own survey of towns|", 0));
        assert_eq!(remarks, [(20, 1, LONE)]);
    }

    #[test]
    fn work_on_many_unclosed_quotes_is_bounded() {
        let text = table(&"1,\"\"\"x\n".repeat(20_000));
        let source = sniff(text.as_bytes(), true, &CsvOptions::default()).unwrap();
        let out = read(&source, text.as_bytes(), 1 << 20);
        assert_eq!(out.records, (out.batch.num_rows() + out.rejects.len()) as u64);
    }
}
