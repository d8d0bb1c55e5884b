//! Finds where fields and records end. Everything else about delimited text builds on this one scanner.
//!
//! Sixty-four bytes at a time are compared with the bytes that can mean something, which gives a bit mask; only bytes
//! whose bit is set are looked at:
//!
//! ```text
//! bytes   4 2 , " a , " " b " \r \n 7 , \n
//! mask    . . 1 1 . 1 1 1 . 1 1  1  . 1 1
//!             |  `-----------'  `--'   | `- end of field and record
//!             |   inside quotes: only   `- end of field
//!             |   quotes matter; ""    CR LF: one terminator
//!             `- end of field
//! ```
//!
//! Rules, which are those of Python's `csv` with its default dialect: a quote opens a quoted field only as the first
//! byte of a field; inside, two quotes are one; after the closing quote the field goes on literally up to the next
//! delimiter or terminator, and so does a field that has a quote further on. LF, CR LF and a lone CR end a record.
//! Delimiter, quote and terminators are ASCII, so no cut ever falls inside a UTF-8 character.
//!
//! The [`Tokenizer`] turns this into chunks that stay in the cache while the columns are built from them. A chunk is a
//! dense matrix: every row has exactly as many fields as the header, since longer rows are set aside as bad and
//! shorter ones are filled up with empty fields.

use std::ops::Range;

/// The quote character.
pub(super) const QUOTE: u8 = b'"';
pub(super) const LF: u8 = b'\n';
pub(super) const CR: u8 = b'\r';

/// A chunk ends with the first record that reaches this many bytes.
const CHUNK_BYTES: usize = 128 << 10;
/// A chunk ends with the first record that reaches this many fields, filled up ones included.
const CHUNK_FIELDS: usize = 256 << 10;

/// Is told by [`scan`] what it finds, in order.
pub(super) trait Sink {
    /// A field of the current record ends before `end`.
    fn field(&mut self, end: usize);

    /// A record ends; its last field was told before. A record of no bytes is a blank line. `next` is where the next
    /// record starts. The scan goes on if this is true.
    fn record(&mut self, record: Range<usize>, next: usize) -> bool;
}

/// How a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The sink wanted no more; the next record starts here.
    Stopped(usize),
    /// The bytes are used up. Those from `start` on are a record without terminator, of which `field` is told neither
    /// its last field nor its end; `open` is the quote that was not closed.
    Exhausted { start: usize, open: Option<usize> },
}

/// Scans whole records from `from` on, where a record starts.
pub(super) fn scan<S: Sink>(bytes: &[u8], delimiter: u8, from: usize, sink: &mut S) -> Ended {
    if has_quotes(&bytes[from..]) {
        scan_blocks::<true, S>(bytes, delimiter, from, sink)
    } else {
        scan_blocks::<false, S>(bytes, delimiter, from, sink)
    }
}

fn has_quotes(bytes: &[u8]) -> bool {
    memchr::memchr(QUOTE, bytes).is_some()
}

/// What the scanner carries from one marked byte to the next.
struct State {
    /// Where the current record starts.
    record: usize,
    /// Where the current field starts.
    field: usize,
    /// The quote that opened the current field, until it is closed.
    open: Option<usize>,
    /// A byte that belongs to the one before it: the second of two quotes, the LF of a CR LF.
    skip: usize,
}

fn scan_blocks<const QUOTES: bool, S: Sink>(bytes: &[u8], delimiter: u8, from: usize, sink: &mut S) -> Ended {
    let mut state = State { record: from, field: from, open: None, skip: usize::MAX };
    let (blocks, tail) = bytes[from..].as_chunks::<64>();
    let mut base = from;
    for block in blocks {
        let marks = marks::<QUOTES>(block, delimiter);
        if let Some(next) = walk::<QUOTES, S>(bytes, delimiter, base, marks, &mut state, sink) {
            return Ended::Stopped(next);
        }
        base += block.len();
    }
    let mut last = [0; 64];
    last[..tail.len()].copy_from_slice(tail);
    let marks = marks::<QUOTES>(&last, delimiter) & ((1 << tail.len()) - 1);
    if let Some(next) = walk::<QUOTES, S>(bytes, delimiter, base, marks, &mut state, sink) {
        return Ended::Stopped(next);
    }
    Ended::Exhausted { start: state.record, open: state.open }
}

/// Bit `i` tells whether byte `i` can mean something. Written so that the compiler uses vector compares.
#[inline]
fn marks<const QUOTES: bool>(block: &[u8; 64], delimiter: u8) -> u64 {
    let mut hits = [0u8; 64];
    for (hit, &byte) in hits.iter_mut().zip(block) {
        let plain = (byte == delimiter) | (byte == LF) | (byte == CR);
        *hit = u8::from(if QUOTES { plain | (byte == QUOTE) } else { plain });
    }
    // Gathers the lowest bit of each of eight bytes in the topmost byte of the product.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut marks = 0;
    for (i, eight) in hits.as_chunks::<8>().0.iter().enumerate() {
        marks |= (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) << (8 * i);
    }
    marks
}

/// Goes through the marked bytes of one block; gives where to go on when the sink wants no more.
#[inline]
fn walk<const QUOTES: bool, S: Sink>(
    bytes: &[u8],
    delimiter: u8,
    base: usize,
    mut marks: u64,
    state: &mut State,
    sink: &mut S,
) -> Option<usize> {
    while marks != 0 {
        let at = base + marks.trailing_zeros() as usize;
        marks &= marks - 1;
        let byte = bytes[at];
        if QUOTES && (byte == QUOTE || state.open.is_some()) {
            quoted(bytes, at, state);
        } else if byte == delimiter {
            sink.field(at);
            state.field = at + 1;
        } else if at != state.skip {
            let mut next = at + 1;
            if byte == CR && bytes.get(next) == Some(&LF) {
                state.skip = next;
                next += 1;
            }
            sink.field(at);
            let more = sink.record(state.record..at, next);
            state.record = next;
            state.field = next;
            if !more {
                return Some(next);
            }
        }
    }
    None
}

/// A quote anywhere, or another marked byte inside quotes.
#[inline]
fn quoted(bytes: &[u8], at: usize, state: &mut State) {
    if bytes[at] != QUOTE || at == state.skip {
        return;
    }
    if state.open.is_none() {
        if at == state.field {
            state.open = Some(at);
        }
    } else if bytes.get(at + 1) == Some(&QUOTE) {
        state.skip = at + 1;
    } else {
        state.open = None;
    }
}

/// A record of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// First byte.
    pub(super) start: u32,
    /// End, before the terminator.
    pub(super) end: u32,
    /// Number among the records of the split, bad ones included.
    pub(super) number: u32,
}

/// Why a record is bad, whatever the types of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// More fields than the header: this many.
    Fields(usize),
    /// Not UTF-8 from this byte on.
    Utf8(usize),
    /// The quote at this byte is not closed.
    Unclosed(usize),
}

/// Cuts a split into chunks of fields. `rows` and `ends` are the current chunk.
#[derive(Debug)]
pub(super) struct Tokenizer<'a> {
    bytes: &'a [u8],
    delimiter: u8,
    width: usize,
    utf8: bool,
    quotes: bool,
    position: usize,
    chunk_end: usize,
    records: u32,
    /// The good rows of this chunk.
    pub(super) rows: Vec<Row>,
    /// Ends of the fields of `rows`, row by row, `width` for each.
    pub(super) ends: Vec<u32>,
    /// Bad records of all chunks so far.
    pub(super) bad: Vec<(Row, Flaw)>,
    /// Blank lines so far.
    pub(super) blank: u64,
    /// Rows so far that had too few fields.
    pub(super) padded: u64,
}

impl<'a> Tokenizer<'a> {
    /// Starts on `bytes`, which must be shorter than 4 GiB; `width` is the number of columns and `utf8` tells whether
    /// the bytes are known to be UTF-8 as a whole.
    pub(super) fn new(bytes: &'a [u8], delimiter: u8, width: usize, utf8: bool) -> Self {
        Self {
            bytes,
            delimiter,
            width,
            utf8,
            quotes: has_quotes(bytes),
            position: 0,
            chunk_end: 0,
            records: 0,
            rows: Vec::new(),
            ends: Vec::new(),
            bad: Vec::new(),
            blank: 0,
            padded: 0,
        }
    }

    /// Goes on to the next chunk, which may turn out to have no good rows; false at the end.
    pub(super) fn advance(&mut self) -> bool {
        self.rows.clear();
        self.ends.clear();
        if self.position >= self.bytes.len() {
            return false;
        }
        self.chunk_end = self.position.saturating_add(CHUNK_BYTES);
        // Looked for once per split rather than once per chunk, which would take quadratic time.
        let ended = if self.quotes {
            scan_blocks::<true, Self>(self.bytes, self.delimiter, self.position, self)
        } else {
            scan_blocks::<false, Self>(self.bytes, self.delimiter, self.position, self)
        };
        self.position = match ended {
            Ended::Stopped(next) => next,
            Ended::Exhausted { start, open } => {
                let end = self.bytes.len();
                if let Some(open) = open {
                    self.set_aside(start..end, Flaw::Unclosed(open));
                } else if start < end {
                    self.field(end);
                    self.record(start..end, end);
                }
                end
            }
        };
        true
    }

    /// Rows that the whole split will have if the rest is like the chunks so far.
    pub(super) fn expected_rows(&self) -> usize {
        let whole = self.bytes.len() as u64 * (u64::from(self.records) + 1) / self.position.max(1) as u64;
        usize::try_from(whole).unwrap_or(self.rows.len()).max(self.rows.len())
    }

    fn set_aside(&mut self, record: Range<usize>, flaw: Flaw) {
        self.ends.truncate(self.rows.len() * self.width);
        let row = self.row(record);
        self.bad.push((row, flaw));
    }

    fn row(&mut self, record: Range<usize>) -> Row {
        let row = Row { start: narrow(record.start), end: narrow(record.end), number: self.records };
        self.records += 1;
        row
    }
}

impl Sink for Tokenizer<'_> {
    #[inline]
    fn field(&mut self, end: usize) {
        self.ends.push(narrow(end));
    }

    #[inline]
    fn record(&mut self, record: Range<usize>, next: usize) -> bool {
        let base = self.rows.len() * self.width;
        let found = self.ends.len() - base;
        if record.is_empty() {
            self.blank += 1;
            self.ends.truncate(base);
        } else if !self.utf8
            && let Err(error) = std::str::from_utf8(&self.bytes[record.clone()])
        {
            self.set_aside(record.clone(), Flaw::Utf8(record.start + error.valid_up_to()));
        } else if found > self.width {
            self.set_aside(record, Flaw::Fields(found));
        } else {
            if found < self.width {
                self.padded += 1;
                self.ends.resize(base + self.width, narrow(record.end));
            }
            let row = self.row(record);
            self.rows.push(row);
        }
        next < self.chunk_end && self.ends.len() < CHUNK_FIELDS
    }
}

#[expect(clippy::cast_possible_truncation, reason = "splits are shorter than 4 GiB")]
fn narrow(position: usize) -> u32 {
    position as u32
}

/// Line terminators in `bytes`, where CR LF is one.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    let feeds = memchr::memchr_iter(LF, bytes).count();
    let lone = memchr::memchr_iter(CR, bytes).filter(|&at| bytes.get(at + 1) != Some(&LF)).count();
    (feeds + lone) as u64
}

/// The text of a field that starts with a quote: outer quotes taken off, doubled ones halved. Appends to `out`, which
/// should be empty, unless the text stands in the field as it is.
pub(super) fn unquote<'a>(field: &'a [u8], out: &'a mut Vec<u8>) -> &'a [u8] {
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

/// A plain state machine, byte by byte, that tests compare everything else with.
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
        pub(in super::super) closed: bool,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum At {
        FieldStart,
        Plain,
        Quoted,
        AfterQuote,
    }

    /// All records, blank lines included (as one empty field).
    pub(in super::super) fn records(bytes: &[u8], delimiter: u8) -> Vec<Record> {
        let mut out = Vec::new();
        let (mut start, mut at, mut fields, mut field) = (0, At::FieldStart, Vec::new(), Vec::new());
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
                    at = At::FieldStart;
                }
                _ if byte == LF || byte == CR => {
                    let end = i - 1;
                    if byte == CR && bytes.get(i) == Some(&LF) {
                        i += 1;
                    }
                    fields.push(std::mem::take(&mut field));
                    out.push(Record { start, end, next: i, fields: std::mem::take(&mut fields), closed: true });
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
            out.push(Record { start, end: i, next: i, fields, closed: at != At::Quoted });
        }
        out
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Records with their fields as text, by way of the scanner.
    #[derive(Default)]
    struct Collect {
        ends: Vec<usize>,
        records: Vec<(usize, usize, usize, Vec<usize>)>,
    }

    impl Sink for Collect {
        fn field(&mut self, end: usize) {
            self.ends.push(end);
        }

        fn record(&mut self, record: Range<usize>, next: usize) -> bool {
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
                if field.first() == Some(&QUOTE) { unquote(field, &mut scratch).to_vec() } else { field.to_vec() }
            })
            .collect()
    }

    fn check(bytes: &[u8]) {
        let expected = oracle::records(bytes, b',');
        let mut got = Collect::default();
        let Ended::Exhausted { start, open } = scan(bytes, b',', 0, &mut got) else { panic!("never stops") };
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

    /// Bytes that are mostly trouble.
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
    fn rows_become_a_dense_matrix_and_bad_ones_stand_aside() {
        let mut tokens = Tokenizer::new(b"1,2\n\n3\n4,5,6\n7,\"8", b',', 2, true);
        assert!(tokens.advance());
        assert_eq!(tokens.ends, [1, 3, 6, 6]);
        assert_eq!(tokens.rows.iter().map(|r| r.number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            tokens.bad.iter().map(|(r, f)| (r.number, *f)).collect::<Vec<_>>(),
            [(2, Flaw::Fields(3)), (3, Flaw::Unclosed(15))]
        );
        assert_eq!((tokens.blank, tokens.padded), (1, 1));
        assert!(!tokens.advance());
    }
}
