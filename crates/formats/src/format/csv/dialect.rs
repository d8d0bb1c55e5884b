//! Detects by the first bytes of a source whether it is delimited text, and in which dialect.
//!
//! ```text
//! [EF BB BF] blank lines  header record  | first range ...
//! '-------------- data_offset ----------'
//! ```
//!
//! The delimiter is the one for which most records have as many fields as the first one. Every column gets a name, and
//! the names are distinct.

use std::ops::Range;

use super::{
    super::ReaderFacts,
    head::{HeadLayout, detect_layout, skipped_note},
    missing::note_missing,
    options::CsvOptions,
    profile::{Profile, SAMPLE},
    quotes::{Quotes, SINGLE},
    quoting::Quoting,
    rows::HeadRows,
    source::CsvSource,
    stated::{DELIMITERS, evident_dialect},
    stated_source::sniff_stated,
    tokenize::{CR, Ended, LF, QUOTE, Sink, count_lines, scan_records, unquote_field},
    unstated::note_notations,
};
use crate::schema::distinct_names;

/// Number of records in the sample that determines the delimiter.
const SAMPLE_RECORDS: usize = 1000;
/// Delimiters that are accepted only if every record has the same number of them, in a source that is declared to be
/// delimited text.
const RARE_DELIMITERS: [u8; 3] = *b"^~:";
/// Minimum number of records that must have a rare delimiter.
const RARE_RECORDS: usize = 3;
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Recognises delimited text by its first bytes; `complete` states that there are no more.
///
/// Returns `None` for anything else: NUL bytes, invalid UTF-8 or the start of a JSON document; also if the first record
/// is incomplete or its quotes are not closed. If `options` specify the delimiter, the source is delimited text unless
/// the delimiter is impossible or the first record is incomplete.
///
/// Text in which no delimiter fits is accepted, too, as a table with one column: see [`CsvSource::is_convincing`].
pub fn sniff(head: &[u8], complete: bool, options: &CsvOptions) -> Option<CsvSource> {
    let mark = if head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let mut text = &head[mark..];
    if !complete {
        // The end of the bytes may separate a CR from its LF.
        text = text.strip_suffix(&[CR]).unwrap_or(text);
    }
    if options.delimiter.is_none() && (!is_text(text, complete) || !options.certain && may_be_json(text)) {
        return None;
    }
    let Some(skipped) = end_of_lines(text, options.skip) else {
        return complete.then(|| CsvSource::without_records(head.len() as u64, count_lines(text), options));
    };
    let (mark, text) = (mark + skipped, &text[skipped..]);
    if let Some((delimiter, skip)) = stated_separator(text, options) {
        let stated = CsvOptions { delimiter: Some(delimiter), skip, certain: true, ..options.clone() };
        let mut source = sniff(head, complete, &stated)?;
        let shown = char::from(delimiter).escape_default();
        let note = format!("the first line, `sep={shown}`, names the delimiter, as Excel understands it");
        source.facts.notes.push(note);
        return Some(source);
    }
    if !options.stated.is_usual() {
        return sniff_stated(head, mark, options.skip, complete, options);
    }
    let comments = if options.tidy { find_comments(text, complete, options.delimiter) } else { Comments::default() };
    let mark = mark + comments.end;
    let (above, text) = text.split_at(comments.end);
    let blank = text.iter().position(|&byte| byte != LF && byte != CR).unwrap_or(text.len());
    if blank == text.len() {
        return complete.then(|| CsvSource::without_records(head.len() as u64, count_lines(text), options));
    }
    if options.delimiter.is_some_and(|delimiter| !is_possible(delimiter)) {
        return None;
    }
    let dialect = detect_dialect(text, complete, options);
    let may_be_evident = options.tidy && (options.named || options.certain);
    let has_delimiter = options.delimiter.is_some();
    if may_be_evident && let Some((stated, note)) = evident_dialect(text, complete, has_delimiter, dialect.delimiter) {
        let skipped = options.skip + comments.lines.len() as u64;
        let mut source = sniff_stated(head, mark, skipped, complete, &CsvOptions { stated, ..options.clone() })?;
        source.facts.notes.push(note);
        return Some(source);
    }
    usual_source(&TableStart { mark, above, comments, blank }, text, complete, options, dialect)
}

/// Returns the delimiter that a first line `sep=;` states, which is no record, and the number of lines with it; `None`
/// if there is no such line, or the user stated something else.
fn stated_separator(text: &[u8], options: &CsvOptions) -> Option<(u8, u64)> {
    let is_free = options.tidy && options.delimiter.is_none() && options.skip == 0 && options.stated.is_usual();
    let rest = text.strip_prefix(b"sep=").filter(|_| is_free)?;
    match rest {
        [delimiter, LF, ..] | [delimiter, CR, LF, ..] if is_possible(*delimiter) => Some((*delimiter, 1)),
        _ => None,
    }
}

/// What is before a table.
struct TableStart<'t> {
    /// Bytes before it.
    mark: usize,
    /// Lines before it that are no records.
    above: &'t [u8],
    /// Comments among them.
    comments: Comments<'t>,
    /// Bytes of the blank lines at its start.
    blank: usize,
}

/// Returns the source of a table in a usual dialect, given its text.
fn usual_source(
    start: &TableStart<'_>,
    text: &[u8],
    complete: bool,
    options: &CsvOptions,
    dialect: Dialect,
) -> Option<CsvSource> {
    let TableStart { mark, above, comments, blank } = start;
    let Dialect { delimiter, sample, quotes, single_quotes } = dialect;
    let turned = if quotes.are_usual() { None } else { Some(quotes.apply(delimiter, text)) };
    let text = turned.as_deref().unwrap_or(text);
    let rows = HeadRows::from_text(text, delimiter, complete, SAMPLE + 1);
    let consistency = sample.consistency();
    let first = sample.first?;
    let mut layout = match options.has_header {
        true if rows.len() > 0 => detect_layout(&rows, options.tidy),
        _ => HeadLayout { profile: Profile::from_rows(&rows, 0, first.fields), ..HeadLayout::default() },
    };
    note_dialect(&mut layout.notes, comments, quotes, single_quotes);
    let (record, next) = match layout.header {
        0 => (first.record, first.next),
        header => (rows.record_range(header), rows.next(header)),
    };
    let names = match options.has_header {
        true => parse_header(&text[record.clone()], delimiter)?,
        false => vec![String::new(); first.fields],
    };
    let unnamed = layout.labels.then(String::new);
    let columns = distinct_names(unnamed.into_iter().chain(names.iter().map(|name| quotes.name(name))).collect());
    if options.tidy {
        let first = if options.has_header { layout.header + 1 } else { 0 };
        let is_given = |name: &str| options.pinned.contains(name) || options.text.contains(name);
        layout.notes.extend(note_missing(&rows, first, &columns, &options.nulls, is_given));
        layout.notes.extend(note_notations(&rows, first, &columns, is_given));
    }
    // Without header, blank lines before the first record are counted with the others.
    let head = if options.has_header { &text[..next] } else { &text[..0] };
    let data = &text[head.len()..];
    let blank_lines = if options.has_header { count_lines(&text[..*blank]) } else { 0 };
    let mut source = CsvSource {
        facts: ReaderFacts {
            selects_columns: true,
            columns: Some(columns),
            blank_lines_before: count_lines(above) - comments.lines.len() as u64 + blank_lines,
            lines_skipped: options.skip + (comments.lines.len() + layout.header) as u64,
            notes: layout.notes,
            ..ReaderFacts::default()
        },
        delimiter,
        consistency: if layout.labels { 1.0 } else { consistency },
        data_offset: (mark + head.len()) as u64,
        header_lines: options.skip + count_lines(above) + count_lines(head),
        options: options.clone(),
        header: if options.has_header { text[record].to_vec() } else { Vec::new() },
        profile: layout.profile,
        quotes,
        trailing: layout.trailing,
        labels: layout.labels,
        stated: None,
        quoting: if options.tidy { Quoting::default() } else { Quoting::always_standard() },
    };
    if complete {
        source.settle_at_once(data);
    }
    Some(source)
}

/// Returns the end of the first lines; `None` if there are fewer.
fn end_of_lines(text: &[u8], lines: u64) -> Option<usize> {
    match usize::try_from(lines).ok()?.checked_sub(1) {
        None => Some(0),
        Some(last) => memchr::memchr_iter(LF, text).nth(last).map(|at| at + 1),
    }
}

/// Adds the notes about comment lines and quotes to those about the first lines.
fn note_dialect(notes: &mut Vec<String>, comments: &Comments<'_>, quotes: Quotes, single_quotes: bool) {
    if !comments.lines.is_empty() {
        notes.insert(0, skipped_note("comment line", "(`#`) before the table", comments.lines.iter().copied()));
    }
    if quotes.swapped {
        notes.push("`'` was taken as the quote".to_owned());
    }
    if quotes.spaced {
        notes.push("spaces between delimiters and quotes were ignored".to_owned());
    }
    if single_quotes {
        notes.push("`'` encloses a value of one record and is doubled in it; it was kept as text".to_owned());
    }
}

/// How a text is delimited and quoted.
struct Dialect {
    delimiter: u8,
    sample: Sample,
    quotes: Quotes,
    /// Whether `'` may be a quote in one record.
    single_quotes: bool,
}

/// Returns the dialect that fits best. Unusual dialects are tried only if the usual one results in records of different
/// lengths, or in fields that are all in single quotes.
fn detect_dialect(text: &[u8], complete: bool, options: &CsvOptions) -> Dialect {
    let find = |text: &[u8]| match options.delimiter {
        Some(delimiter) => (delimiter, Sample::from_text(text, delimiter, complete)),
        None => detect_delimiter(text, complete),
    };
    let (delimiter, sample) = find(text);
    let mut best = Dialect { delimiter, sample, quotes: Quotes::default(), single_quotes: false };
    if best.sample.consistency() <= 0.5 || best.sample.column_count() < 2 {
        let named = options.named || options.certain;
        let rare = if named && options.delimiter.is_none() { find_rare_delimiter(text, complete) } else { None };
        let by_mode = || if options.delimiter.is_none() && options.tidy { by_mode(text, complete) } else { None };
        let other = rare.or_else(by_mode);
        if let Some((delimiter, sample)) = other {
            best = Dialect { delimiter, sample, ..best };
        }
    }
    if !options.tidy {
        return best;
    }
    let single = memchr::memchr(SINGLE, text).is_some();
    let quoted = match single && best.sample.consistency() >= 1.0 {
        true => single_quotes(text, best.delimiter, complete),
        false => SingleQuotes::None,
    };
    best.single_quotes = quoted == SingleQuotes::InOneRecord;
    if quoted == SingleQuotes::Throughout {
        let quotes = Quotes { swapped: true, spaced: false };
        let sample = Sample::from_text(&quotes.apply(best.delimiter, text), best.delimiter, complete);
        if sample.consistency() >= 1.0 {
            return Dialect { sample, quotes, ..best };
        }
    }
    if best.sample.consistency() >= 1.0 {
        return best;
    }
    let spaced = memchr::memmem::find(text, b" \"").is_some();
    let tries = [(single, Quotes { swapped: true, spaced: false }), (spaced, Quotes { swapped: false, spaced: true })];
    let own = best.delimiter;
    for (_, quotes) in tries.into_iter().filter(|(possible, _)| *possible) {
        let others: &[u8] = if options.delimiter.is_some() { &[] } else { &DELIMITERS };
        let delimiters = others.iter().copied().filter(|one| *one != own);
        for delimiter in std::iter::once(own).chain(delimiters) {
            let sample = Sample::from_text(&quotes.apply(delimiter, text), delimiter, complete);
            if sample.column_count() > 1 && sample.consistency() >= 1.0 && sample.records > 1 {
                return Dialect { delimiter, sample, quotes, single_quotes: false };
            }
        }
    }
    best
}

/// Returns the delimiter for which most records have the same number of fields, even if the first record has another
/// number, as when notes precede the table.
fn by_mode(text: &[u8], complete: bool) -> Option<(u8, Sample)> {
    let mut best: Option<(u8, f64, usize)> = None;
    for delimiter in DELIMITERS {
        let rows = HeadRows::from_text(text, delimiter, complete, SAMPLE + 1);
        let (width, count) = rows.most_common_width();
        if width < 2 || rows.len() < 3 {
            continue;
        }
        let found = detect_layout(&rows, true);
        if found.header == 0 && !found.labels {
            continue;
        }
        let share = count as f64 / rows.len() as f64;
        if best.is_none_or(|(_, other, columns)| (share, width) > (other, columns)) {
            best = Some((delimiter, share, width));
        }
    }
    let (delimiter, share, _) = best.filter(|(_, share, _)| *share > 0.5)?;
    let mut sample = Sample::from_text(text, delimiter, complete);
    sample.share = Some(share);
    Some((delimiter, sample))
}

/// Returns a rare delimiter that every record has equally often.
fn find_rare_delimiter(text: &[u8], complete: bool) -> Option<(u8, Sample)> {
    let samples = RARE_DELIMITERS.into_iter().map(|one| (one, Sample::from_text(text, one, complete)));
    samples
        .into_iter()
        .find(|(_, sample)| sample.column_count() > 1 && sample.consistency() >= 1.0 && sample.records >= RARE_RECORDS)
}

/// Use of `'` as a quote in records that all have the right number of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SingleQuotes {
    /// There is no evidence that `'` is a quote.
    None,
    /// One record has a value in single quotes that doubles one of them.
    InOneRecord,
    /// All values of a column are in single quotes, or values of several records are and some of them double one; and
    /// no value has a single quote only at its start.
    Throughout,
}

/// Returns how a text uses `'`.
fn single_quotes(text: &[u8], delimiter: u8, complete: bool) -> SingleQuotes {
    let rows = HeadRows::from_text(text, delimiter, complete, SAMPLE + 1);
    let (width, _) = rows.most_common_width();
    let (mut doubled, mut records) = (0, std::collections::BTreeSet::new());
    for column in 0..width {
        let (mut quoted, mut plain) = (0, 0);
        for row in 1..rows.len() {
            match rows.raw_field(row, column) {
                [] => {}
                [SINGLE, inner @ .., SINGLE] => {
                    quoted += 1;
                    records.insert(row);
                    doubled += usize::from(memchr::memmem::find(inner, b"''").is_some());
                }
                [SINGLE, ..] => return SingleQuotes::None,
                _ => plain += 1,
            }
        }
        if quoted > 2 && plain == 0 {
            return SingleQuotes::Throughout;
        }
    }
    match records.len() {
        _ if doubled == 0 => SingleQuotes::None,
        1 => SingleQuotes::InOneRecord,
        _ => SingleQuotes::Throughout,
    }
}

/// Comment lines (`#`) before a table.
#[derive(Debug, Default)]
struct Comments<'t> {
    end: usize,
    lines: Vec<&'t [u8]>,
}

/// Finds comments before a header. A line that begins with `#` is a comment if all such lines are followed by a table
/// of several columns, and the line has another number of fields: `#id,name` may be the header itself.
fn find_comments(text: &[u8], complete: bool, delimiter: Option<u8>) -> Comments<'_> {
    let mut lines: Vec<&[u8]> = Vec::new();
    let is_blank = |line: &[u8]| line.iter().all(|&byte| byte == LF || byte == CR);
    lines.extend(text.split_inclusive(|&byte| byte == LF).take_while(|line| is_blank(line) || line[0] == b'#'));
    let body = lines.iter().map(|line| line.len()).sum::<usize>();
    if body == text.len() || lines.iter().all(|line| is_blank(line)) {
        return Comments::default();
    }
    let (delimiter, table) = match delimiter {
        Some(delimiter) => (delimiter, Sample::from_text(&text[body..], delimiter, complete)),
        None => detect_delimiter(&text[body..], complete),
    };
    let mut found = Comments::default();
    if table.column_count() < 2 || table.consistency() <= 0.5 {
        return found;
    }
    let mut start = 0;
    for line in lines {
        if !is_blank(line) && Sample::from_text(line, delimiter, true).column_count() == table.column_count() {
            break;
        }
        start += line.len();
        if !is_blank(line) {
            found.lines.push(line.trim_ascii_end());
            found.end = start;
        }
    }
    found
}

fn is_possible(delimiter: u8) -> bool {
    delimiter.is_ascii() && !matches!(delimiter, QUOTE | LF | CR | 0)
}

fn is_text(text: &[u8], complete: bool) -> bool {
    let valid = match simdutf8::compat::from_utf8(text) {
        Ok(_) => true,
        Err(error) => !complete && error.error_len().is_none(),
    };
    valid && memchr::memchr(0, text).is_none()
}

fn may_be_json(text: &[u8]) -> bool {
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// The first record of a sample.
#[derive(Debug, Clone)]
struct First {
    record: Range<usize>,
    next: usize,
    fields: usize,
}

/// How many fields records have with some delimiter.
#[derive(Debug, Default)]
struct Sample {
    first: Option<First>,
    /// Fields of the current record.
    fields: usize,
    /// Records that are not blank, and how many of them have as many fields as the first.
    records: usize,
    alike: usize,
    /// Share of records with the same number of fields, if that is not the number of the first.
    share: Option<f64>,
}

impl Sample {
    fn from_text(text: &[u8], delimiter: u8, complete: bool) -> Self {
        let mut sample = Self::default();
        if let Ended::Exhausted { start, open: None } = scan_records(text, delimiter, 0, &mut sample)
            && complete
            && start < text.len()
        {
            sample.end_field(text.len());
            sample.end_record(start..text.len(), text.len());
        }
        sample
    }

    fn consistency(&self) -> f64 {
        if let Some(share) = self.share {
            return share;
        }
        if self.records == 0 { 0.0 } else { self.alike as f64 / self.records as f64 }
    }

    fn column_count(&self) -> usize {
        self.first.as_ref().map_or(0, |first| first.fields)
    }
}

impl Sink for Sample {
    fn end_field(&mut self, _end: usize) {
        self.fields += 1;
    }

    fn end_record(&mut self, record: Range<usize>, next: usize) -> bool {
        let fields = std::mem::take(&mut self.fields);
        if !record.is_empty() {
            let first = self.first.get_or_insert(First { record, next, fields });
            self.records += 1;
            self.alike += usize::from(fields == first.fields);
        }
        self.records < SAMPLE_RECORDS
    }
}

/// Returns the delimiter that fits best; the comma if none does.
fn detect_delimiter(text: &[u8], complete: bool) -> (u8, Sample) {
    let mut best: Option<(u8, Sample)> = None;
    for delimiter in DELIMITERS {
        let sample = Sample::from_text(text, delimiter, complete);
        let rank = |s: &Sample| (s.consistency(), s.column_count());
        if sample.column_count() > 1 && best.as_ref().is_none_or(|(_, other)| rank(&sample) > rank(other)) {
            best = Some((delimiter, sample));
        }
    }
    best.unwrap_or_else(|| (b',', Sample::from_text(text, b',', complete)))
}

/// Returns the fields of the header; `None` if it is not UTF-8.
fn parse_header(record: &[u8], delimiter: u8) -> Option<Vec<String>> {
    struct HeaderEnds(Vec<usize>);
    impl Sink for HeaderEnds {
        fn end_field(&mut self, end: usize) {
            self.0.push(end);
        }

        fn end_record(&mut self, _record: Range<usize>, _next: usize) -> bool {
            true
        }
    }
    let mut ends = HeaderEnds(Vec::new());
    scan_records(record, delimiter, 0, &mut ends);
    ends.0.push(record.len());
    let mut start = 0;
    let field = |end| {
        let raw = &record[start..end];
        start = end + 1;
        let mut scratch = Vec::new();
        let name = if raw.first() == Some(&QUOTE) { unquote_field(raw, &mut scratch) } else { raw };
        std::str::from_utf8(name).ok().map(str::to_owned)
    };
    ends.0.into_iter().map(field).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn sniffed(head: &str) -> CsvSource {
        sniff(head.as_bytes(), true, &CsvOptions::default()).unwrap()
    }

    #[test]
    fn delimiters_are_found_by_consistency() {
        for (text, delimiter, columns) in [
            ("a,b\n1,2\n", b',', 2),
            ("a\tb\n1,5\t2,5\n", b'\t', 2),
            ("a;b;c\n1,5;2,5;3,5\n", b';', 3),
            ("a|b\n\"x|y\"|2\n", b'|', 2),
            ("lat, lon\tname\n1, 2\tx\n", b'\t', 2),
            ("a;b,c,d\n1,2,3\n4;5,6,7\n", b',', 3),
            ("a,b", b',', 2),
            ("name\nx\n", b',', 1),
            ("\"a,b\"\n1\n", b',', 1),
        ] {
            let source = sniffed(text);
            assert_eq!((source.delimiter, source.column_names().len()), (delimiter, columns), "{text:?}");
        }
        assert!(sniffed("a,b\n1,2\n").is_convincing());
        assert!(!sniffed("Hello, world\nthis is\nprose\n").is_convincing());
        assert!(!sniffed("name\nx\n").is_convincing());
    }

    #[test]
    fn one_value_in_single_quotes_is_kept_with_a_note() {
        let table = |first: &str| format!("id,name\n1,{first}\n2,O'Hara\n3,Kim\n4,Lee\n");
        let doubtful = sniffed(&table("'Eugene O''Neill'"));
        assert!(!doubtful.quotes.swapped && doubtful.facts.notes.len() == 1, "{:?}", doubtful.facts.notes);
        for usual in ["'tis", "O'Neill", "'quoted'"] {
            assert!(sniffed(&table(usual)).facts.notes.is_empty(), "{usual}");
        }
    }

    #[test]
    fn the_head_is_measured() {
        let source = sniffed("\u{feff}\r\n\n\"a\r\nb\",c\r\n1,2\r\n");
        assert_eq!(source.column_names(), ["a\r\nb", "c"]);
        assert_eq!((source.data_offset, source.header_lines, source.facts.blank_lines_before), (16, 4, 2));
        let options = CsvOptions { has_header: false, ..CsvOptions::default() };
        let source = sniff("\u{feff}\n1,2\n".as_bytes(), true, &options).unwrap();
        assert_eq!(source.column_names(), ["column_1", "column_2"]);
        assert_eq!((source.data_offset, source.header_lines, source.facts.blank_lines_before), (3, 0, 0));
    }

    #[test]
    fn missing_and_equal_names_become_distinct() {
        assert_eq!(sniffed("a,,a,a_2,a,\"\"\n").column_names(), ["a", "column_2", "a_3", "a_2", "a_4", "column_6"]);
        assert_eq!(sniffed("column_2,,\"q\"\"\"\n").column_names(), ["column_2", "column_2_2", "q\""]);
    }

    #[test]
    fn other_formats_are_not_detected() {
        let default = CsvOptions::default();
        for head in [&b"{\"a\": 1}\n"[..], b"[1, 2]\n", b" \n[", b"a,b\0\n", b"a,\xff\n", b"a,\xc3"] {
            assert!(sniff(head, true, &default).is_none(), "{head:?}");
        }
        assert!(sniff(b"\"a,b\n1,2\n", true, &default).is_none(), "the quote swallows everything");
        let delimiter = |byte| CsvOptions { delimiter: Some(byte), ..CsvOptions::default() };
        assert!(sniff(b"[a],[b]\n\0\xff,2\n", true, &delimiter(b',')).is_some());
        for byte in [b'"', b'\n', b'\r', 0, 0xe9] {
            assert!(sniff(b"a,b\n", true, &delimiter(byte)).is_none());
        }
    }

    #[test]
    fn a_truncated_head_must_contain_the_first_record() {
        let default = CsvOptions::default();
        for head in [&b"a,b"[..], b"a,b\r", b"\"a\n", b"", b"\n\n"] {
            assert!(sniff(head, false, &default).is_none(), "{head:?}");
        }
        assert_eq!(sniff(b"a,b\r\n1,\xc3", false, &default).unwrap().data_offset, 5);
    }

    #[test]
    fn an_empty_source_is_a_table_without_columns() {
        for head in ["", "\u{feff}", "\n\r\n", "\u{feff}\r"] {
            let source = sniffed(head);
            assert!(source.column_names().is_empty(), "{head:?}");
            assert_eq!(source.data_offset, head.len() as u64);
        }
        assert_eq!(sniffed("\n\r\n").facts.blank_lines_before, 2);
    }
}
