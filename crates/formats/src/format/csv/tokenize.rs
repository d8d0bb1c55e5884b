//! Finds where fields and records end. Everything else about delimited text builds on this one scanner.
//!
//! [`index`](super::index) finds their positions, a region at a time; here they become records:
//!
//! ```text
//! bytes     4 2 , " a , " " b " \r \n 7 , \n
//! ends          2               10     13 14     positions
//! marks                          2         4     how many of them up to the end of each record
//! ```
//!
//! The rules are those of Python's `csv` with its default dialect: a quote opens a quoted field only as the first byte
//! of a field; inside, two quotes are one; after the closing quote the field continues literally up to the next
//! delimiter or terminator, and so does a field with a quote at any later position. LF, CR LF and a lone CR end a
//! record. Delimiter, quote and terminators are ASCII, so no cut is ever inside a UTF-8 character.
//!
//! The [`Tokenizer`] turns this into chunks that stay in the cache while the columns are built from them. Every row of
//! a chunk has exactly as many fields as the header: longer rows are set aside as bad, and shorter ones are padded with
//! empty fields.

use std::ops::Range;

use super::{
    index::{BLOCK, FieldIndex, ScanState, to_u32},
    simd,
};

/// The quote character.
pub(super) const QUOTE: u8 = b'"';
pub(super) const LF: u8 = b'\n';
pub(super) const CR: u8 = b'\r';

/// Number of bytes that are indexed before rows are made of them: they and the results stay in the cache.
const REGION: usize = 64 << 10;
/// A chunk ends with the first record that reaches this many fields, padding included.
const CHUNK_FIELDS: usize = 256 << 10;

/// Receives the results of [`scan_records`], in order.
pub(super) trait Sink {
    /// A field of the current record ends before `end`.
    fn end_field(&mut self, end: usize);

    /// A record ends, after its last field. A record of no bytes is a blank line. `next` is where the next record
    /// starts. Returns whether to continue the scan.
    fn end_record(&mut self, record: Range<usize>, next: usize) -> bool;
}

/// Why a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The sink stopped it; the next record starts here.
    Stopped(usize),
    /// The bytes are used up. Those from `start` on are a record without a terminator, whose last field and end were
    /// not passed to the sink; `open` is the position of an unclosed quote.
    Exhausted { start: usize, open: Option<usize> },
}

/// Scans whole records from `from` on, which is the start of a record.
pub(super) fn scan_records<S: Sink>(bytes: &[u8], delimiter: u8, from: usize, sink: &mut S) -> Ended {
    let (mut index, mut state) = (FieldIndex::default(), ScanState::at_record());
    let (mut start, mut passed, mut at) = (from, 0, from);
    // Most scans are for the first few records.
    let mut region = 8 * BLOCK;
    while at < bytes.len() {
        let to = (at + region).min(bytes.len());
        simd::index(bytes, at..to, delimiter, &mut state, &mut index);
        (at, region) = (to, REGION);
        let mut first = 0;
        for &mark in &index.marks[..index.records] {
            let ends = &index.ends[first.max(passed)..mark as usize];
            ends.iter().for_each(|&end| sink.end_field(end as usize));
            (first, passed) = (mark as usize, 0);
            let end = index.ends[first - 1] as usize;
            let next = next_record_start(bytes, end);
            let more = sink.end_record(start..end, next);
            start = next;
            if !more {
                return Ended::Stopped(next);
            }
        }
        let rest = first.max(passed)..index.fields;
        index.ends[rest].iter().for_each(|&end| sink.end_field(end as usize));
        passed = index.fields - first;
        index.drop_fields(first);
    }
    let open = state.is_inside().then(|| index.ends[..index.fields].last().map_or(start, |&end| end as usize + 1));
    Ended::Exhausted { start, open }
}

/// Returns where the record after a terminator starts.
#[inline]
pub(super) fn next_record_start(bytes: &[u8], terminator: usize) -> usize {
    let pair = bytes[terminator] == CR && bytes.get(terminator + 1) == Some(&LF);
    terminator + 1 + usize::from(pair)
}

/// A record of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// First byte.
    pub(super) start: u32,
    /// End, before the terminator.
    pub(super) end: u32,
    /// Its number among the records of the range, bad ones included.
    pub(super) number: u32,
    /// Index of its first field among the `ends` of the chunk.
    pub(super) first: u32,
}

/// Reason why a record is bad, regardless of the types of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// More fields than the header.
    Fields,
    /// Not UTF-8.
    Utf8,
    /// A quote is not closed.
    Unclosed,
}

/// Divides a range into chunks of fields. `rows` and [`field_ends`](Self::field_ends) are those of the current chunk.
#[derive(Debug)]
pub(super) struct Tokenizer<'a> {
    /// The range.
    pub(super) bytes: &'a [u8],
    delimiter: u8,
    width: usize,
    /// State at `indexed`.
    state: ScanState,
    /// End of the bytes that were added to `index`.
    indexed: usize,
    index: FieldIndex,
    /// Number of records of `index` that were processed, and the index of the next one's first field.
    record: usize,
    first: usize,
    /// Where the next record starts.
    position: usize,
    /// Whether all records of `index` are UTF-8.
    utf8: bool,
    plainly_quoted: bool,
    /// The header, and whether a record with this many fields may not be one: see [`is_odd`](Self::is_odd).
    header: &'a [u8],
    odd: bool,
    records: u32,
    /// The valid rows of this chunk.
    pub(super) rows: Vec<Row>,
    /// Bad records of all chunks so far.
    pub(super) bad: Vec<(Row, Flaw)>,
    /// Number of blank lines so far.
    pub(super) blank: u64,
    /// Number of rows so far that had too few fields.
    pub(super) padded: u64,
}

impl<'a> Tokenizer<'a> {
    /// Creates a tokenizer for `bytes`, which must be shorter than 4 GiB; `width` is the number of columns.
    pub(super) fn new(bytes: &'a [u8], delimiter: u8, width: usize) -> Self {
        Self {
            bytes,
            delimiter,
            width,
            state: ScanState::at_record(),
            indexed: 0,
            index: FieldIndex::default(),
            record: 0,
            first: 0,
            position: 0,
            utf8: true,
            plainly_quoted: true,
            header: &[],
            odd: false,
            records: 0,
            rows: Vec::new(),
            bad: Vec::new(),
            blank: 0,
            padded: 0,
        }
    }

    /// Also detects this header among the records.
    pub(super) fn with_header(self, header: &'a [u8]) -> Self {
        Self { header, ..self }
    }

    /// Whether any record so far is not simply one with all its fields: it has another number of fields, text after a
    /// closing quote, nothing but delimiters, only the first field, or a single quote or byte order mark at the start;
    /// or it repeats the header.
    pub(super) fn is_odd(&self) -> bool {
        self.odd || self.index.torn != 0 || self.padded > 0 || !self.bad.is_empty()
    }

    /// Whether a record of this chunk may span lines: there are more lines so far than records.
    pub(super) fn may_span_lines(&self) -> bool {
        self.line_count() > self.record_count() + self.blank
    }

    /// Advances to the next chunk, which may have no valid rows; returns false at the end.
    pub(super) fn advance_chunk(&mut self) -> bool {
        self.rows.clear();
        if self.position >= self.bytes.len() {
            return false;
        }
        if self.record == self.index.records {
            self.index_more();
        }
        self.assemble_rows();
        true
    }

    /// Returns the ends of the fields of this chunk.
    pub(super) fn field_ends(&self) -> &[u32] {
        &self.index.ends
    }

    /// Whether values of this chunk that begin with a quote also end with one and contain no others.
    pub(super) fn is_plainly_quoted(&self) -> bool {
        self.plainly_quoted
    }

    /// Returns the number of line terminators so far, where CR LF is one; after the last chunk, that of the range.
    pub(super) fn line_count(&self) -> u64 {
        self.index.lines
    }

    /// Returns the number of records so far, bad ones included.
    pub(super) fn record_count(&self) -> u64 {
        u64::from(self.records)
    }

    /// Returns the number of rows that the whole range will have if the rest is like the chunks so far, and a few more.
    pub(super) fn expected_rows(&self) -> usize {
        let whole = self.bytes.len() as u64 * (u64::from(self.records) + 1) / self.position.max(1) as u64;
        usize::try_from(whole + whole / 32).unwrap_or(self.rows.len()).max(self.rows.len())
    }

    /// Finds at least one more record, unless the rest is a record with an unclosed quote.
    fn index_more(&mut self) {
        self.index.drop_fields(self.first);
        (self.first, self.record) = (0, 0);
        // A record that begins in the last region and ends in the next is checked with both.
        let carried = if self.position < self.indexed { u64::MAX } else { 0 };
        let (mut high, mut intricate) = (self.index.high & carried, self.index.intricate & carried);
        while self.index.records == 0 && self.indexed < self.bytes.len() {
            (self.index.high, self.index.intricate) = (0, 0);
            let to = (self.indexed + REGION).min(self.bytes.len());
            simd::index(self.bytes, self.indexed..to, self.delimiter, &mut self.state, &mut self.index);
            self.indexed = to;
            (high, intricate) = (high | self.index.high, intricate | self.index.intricate);
        }
        self.plainly_quoted = intricate == 0;
        let known = match self.index.last_record() {
            Some(end) => next_record_start(self.bytes, end as usize),
            None => self.position,
        };
        if self.indexed == self.bytes.len() && known < self.indexed && !self.state.is_inside() {
            self.index.push_end(to_u32(self.indexed), true);
        }
        // The last byte of a terminator is ASCII, so no character spans the end.
        let end = self.index.last_record().map_or(self.position, |end| end as usize);
        self.utf8 = high == 0 || simdutf8::basic::from_utf8(&self.bytes[self.position..end]).is_ok();
    }

    /// Makes rows of the records that were found.
    fn assemble_rows(&mut self) {
        let (bytes, width) = (self.bytes, self.width);
        // Ends of padded rows are stored after all ends that were found.
        let mut filled = self.index.fields;
        let mut fields = 0;
        while self.record < self.index.records && fields < CHUNK_FIELDS {
            let first = self.first;
            self.first = self.index.marks[self.record] as usize;
            self.record += 1;
            let found = self.first - first;
            let end = self.index.ends[self.first - 1];
            let record = self.position..end as usize;
            self.position = if record.end < bytes.len() { next_record_start(bytes, record.end) } else { record.end };
            let row = Row { start: to_u32(record.start), end, number: self.records, first: to_u32(first) };
            if record.is_empty() {
                self.blank += 1;
                continue;
            }
            self.records += 1;
            if !self.utf8 && std::str::from_utf8(&bytes[record.clone()]).is_err() {
                self.bad.push((row, Flaw::Utf8));
            } else if found == width {
                fields += width;
                self.odd |= may_be_none(&bytes[record], self.delimiter, width, self.header);
                self.rows.push(row);
            } else if found > width {
                self.bad.push((row, Flaw::Fields));
            } else {
                self.padded += 1;
                fields += width;
                self.rows.push(Row { first: to_u32(filled), ..row });
                filled = self.index.fill_up(first..self.first, filled, width);
            }
        }
        if self.record == self.index.records && self.indexed == self.bytes.len() && self.position < self.indexed {
            let (start, end) = (self.position, self.indexed);
            let row = Row { start: to_u32(start), end: to_u32(end), number: self.records, first: 0 };
            self.records += 1;
            self.position = end;
            self.bad.push((row, Flaw::Unclosed));
        }
    }
}

/// Whether a record with all its fields may not be a record, or may be quoted in another way, so that it must be
/// examined.
#[inline(always)]
fn may_be_none(record: &[u8], delimiter: u8, width: usize, header: &[u8]) -> bool {
    let Some((&first, rest)) = record.split_first() else { return false };
    let last = *rest.last().unwrap_or(&first);
    let empty = last == delimiter && width > 2 && only_first(record, delimiter, width);
    let same = record.len() == header.len() && record == header;
    width > 1 && (empty | same | (record.len() + 1 == width) | (first == b'\'') | (first == 0xEF))
}

/// Whether all fields but the first are empty.
#[inline(never)]
fn only_first(record: &[u8], delimiter: u8, width: usize) -> bool {
    record.len() >= width && record[record.len() + 1 - width..].iter().all(|byte| *byte == delimiter)
}

/// Returns the number of line terminators in `bytes`, where CR LF is one.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    let feeds = memchr::memchr_iter(LF, bytes).count();
    let lone = memchr::memchr_iter(CR, bytes).filter(|&at| bytes.get(at + 1) != Some(&LF)).count();
    (feeds + lone) as u64
}

/// Returns the text of a field that starts with a quote: without the outer quotes, and with doubled quotes halved.
/// Appends to `out`, which should be empty, unless the text is a part of the field.
pub(super) fn unquote_field<'a>(field: &'a [u8], out: &'a mut Vec<u8>) -> &'a [u8] {
    let inner = &field[1..];
    let Some(first) = memchr::memchr(QUOTE, inner) else { return inner };
    if first + 1 == inner.len() {
        return &inner[..first];
    }
    let mut rest = inner;
    while let Some(at) = memchr::memchr(QUOTE, rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if rest.first() == Some(&QUOTE) {
            out.push(QUOTE);
            rest = &rest[1..];
        } else {
            break;
        }
    }
    out.extend_from_slice(rest);
    out
}

/// A plain state machine that works byte by byte; tests compare everything else with it.
#[cfg(test)]
pub(super) mod oracle {
    use super::{CR, LF, QUOTE};

    /// A record as the reference reads it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(in super::super) struct Record {
        pub(in super::super) start: usize,
        pub(in super::super) end: usize,
        pub(in super::super) next: usize,
        pub(in super::super) fields: Vec<Vec<u8>>,
        /// Ends of its fields.
        pub(in super::super) ends: Vec<usize>,
        pub(in super::super) closed: bool,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum At {
        FieldStart,
        Plain,
        Quoted,
        AfterQuote,
    }

    /// Returns all records, including blank lines as one empty field.
    pub(in super::super) fn records(bytes: &[u8], delimiter: u8) -> Vec<Record> {
        let mut out = Vec::new();
        let (mut start, mut at, mut fields, mut field) = (0, At::FieldStart, Vec::new(), Vec::new());
        let mut ends = Vec::new();
        let mut i = 0;
        while i < bytes.len() {
            let byte = bytes[i];
            i += 1;
            match at {
                At::Quoted if byte == QUOTE => at = At::AfterQuote,
                At::Quoted => field.push(byte),
                At::AfterQuote if byte == QUOTE => {
                    field.push(byte);
                    at = At::Quoted;
                }
                At::FieldStart if byte == QUOTE => at = At::Quoted,
                _ if byte == delimiter => {
                    fields.push(std::mem::take(&mut field));
                    ends.push(i - 1);
                    at = At::FieldStart;
                }
                _ if byte == LF || byte == CR => {
                    let end = i - 1;
                    if byte == CR && bytes.get(i) == Some(&LF) {
                        i += 1;
                    }
                    fields.push(std::mem::take(&mut field));
                    ends.push(end);
                    let (fields, ends) = (std::mem::take(&mut fields), std::mem::take(&mut ends));
                    out.push(Record { start, end, next: i, fields, ends, closed: true });
                    start = i;
                    at = At::FieldStart;
                }
                _ => {
                    field.push(byte);
                    at = At::Plain;
                }
            }
        }
        if start < bytes.len() {
            fields.push(field);
            ends.push(i);
            out.push(Record { start, end: i, next: i, fields, ends, closed: at != At::Quoted });
        }
        out
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Collects records with their fields as text, using the scanner.
    #[derive(Default)]
    struct Collect {
        ends: Vec<usize>,
        records: Vec<(usize, usize, usize, Vec<usize>)>,
    }

    impl Sink for Collect {
        fn end_field(&mut self, end: usize) {
            self.ends.push(end);
        }

        fn end_record(&mut self, record: Range<usize>, next: usize) -> bool {
            self.records.push((record.start, record.end, next, std::mem::take(&mut self.ends)));
            true
        }
    }

    fn texts(bytes: &[u8], start: usize, ends: &[usize]) -> Vec<Vec<u8>> {
        let mut from = start;
        ends.iter()
            .map(|&end| {
                let field = &bytes[from..end];
                from = end + 1;
                let mut scratch = Vec::new();
                if field.first() == Some(&QUOTE) { unquote_field(field, &mut scratch).to_vec() } else { field.to_vec() }
            })
            .collect()
    }

    fn check(bytes: &[u8]) {
        let expected = oracle::records(bytes, b',');
        let mut got = Collect::default();
        let Ended::Exhausted { start, open } = scan_records(bytes, b',', 0, &mut got) else { panic!("never stops") };
        if start < bytes.len() {
            let mut ends = std::mem::take(&mut got.ends);
            ends.push(bytes.len());
            got.records.push((start, bytes.len(), bytes.len(), ends));
        }
        assert_eq!(got.records.len(), expected.len(), "{:?}", String::from_utf8_lossy(bytes));
        for ((start, end, next, ends), want) in got.records.iter().zip(&expected) {
            assert_eq!((*start, *end, *next), (want.start, want.end, want.next));
            assert_eq!(texts(bytes, *start, ends), want.fields, "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(open.is_none(), expected.last().is_none_or(|record| record.closed));
    }

    /// Bytes that are mostly special.
    pub(in super::super) fn trouble(longest: usize) -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop::sample::select(&b"aa1,,\"\"\"\n\n\r"[..]), 0..longest)
    }

    proptest! {
        #[test]
        fn scanner_agrees_with_the_reference(bytes in trouble(300)) {
            check(&bytes);
        }
    }

    #[test]
    fn the_reference_agrees_with_python() {
        for (text, rows) in [
            ("a\rb", vec![vec!["a"], vec!["b"]]),
            ("a\n\r\nb", vec![vec!["a"], vec![""], vec!["b"]]),
            ("a\r\n\rb", vec![vec!["a"], vec![""], vec!["b"]]),
            ("\" a\"b,c\n", vec![vec![" ab", "c"]]),
            ("\"a\"b\"c,d\"\n", vec![vec!["ab\"c", "d\""]]),
            ("a\"b,\"c\n", vec![vec!["a\"b", "c\n"]]),
            ("\"\"a\"\"b,c", vec![vec!["a\"\"b", "c"]]),
            ("\"a\"\"", vec![vec!["a\""]]),
            ("a,\"b\r\nc\"\r\n", vec![vec!["a", "b\r\nc"]]),
            (",", vec![vec!["", ""]]),
        ] {
            let got: Vec<Vec<String>> = oracle::records(text.as_bytes(), b',')
                .into_iter()
                .map(|r| r.fields.into_iter().map(|f| String::from_utf8_lossy(&f).into_owned()).collect())
                .collect();
            assert_eq!(got, rows, "{text:?}");
            check(text.as_bytes());
        }
    }

    #[test]
    fn lines_are_counted_once() {
        for (text, lines) in [("", 0), ("a", 0), ("a\n", 1), ("\r\n\r\n", 2), ("\r\r\n\n\r", 4), ("\n\r", 2)] {
            assert_eq!(count_lines(text.as_bytes()), lines, "{text:?}");
        }
    }

    #[test]
    fn rows_form_a_dense_matrix_and_bad_ones_are_set_aside() {
        let mut tokens = Tokenizer::new(b"1,2\n\n3\n4,5,6\n7,\"8", b',', 2);
        assert!(tokens.advance_chunk());
        let ends = tokens.rows.iter().map(|row| &tokens.field_ends()[row.first as usize..][..2]).collect::<Vec<_>>();
        assert_eq!(ends, [[1, 3], [6, 6]]);
        assert_eq!(tokens.rows.iter().map(|r| r.number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            tokens.bad.iter().map(|(r, f)| (r.number, *f)).collect::<Vec<_>>(),
            [(2, Flaw::Fields), (3, Flaw::Unclosed)]
        );
        assert_eq!((tokens.blank, tokens.padded, tokens.line_count()), (1, 1, 4));
        assert!(!tokens.advance_chunk());
    }
}
