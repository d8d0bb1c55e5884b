//! Tests every kernel against the plain state machine of the tests, on random and damaged text.
//!
//! `SHARDIFY_FUZZ_CASES` is the number of cases; the default is small and only shows that the test works.

use std::ops::Range;

use arrow::{
    array::{Array, AsArray},
    datatypes::{DataType, Field},
};

use super::{
    columns::{Cells, column_builder},
    index::{BLOCK, FieldIndex, Portable, RangeSearch, ScanState, index_with, terminator_with},
    numbers::{GROUP, Moments, TextGroup, floats_with, integers_with, timestamps_with},
    simd,
    tokenize::{Ended, QUOTE, Sink, Tokenizer, next_record_start, oracle, scan_records},
    value,
};

fn cases() -> u64 {
    std::env::var("SHARDIFY_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000)
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next()).unwrap() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Appends a text of mostly special bytes, or a valid table that is then damaged in a few places.
    fn text(&mut self, out: &mut Vec<u8>) {
        out.clear();
        let longest = self.pick(&[200, 200, 200, 600]);
        let length = self.below(longest);
        let kind = self.below(4);
        while out.len() < length {
            match kind {
                0 => out.push(self.pick(b"a,,\"\"\n\r")),
                1 => out.push(self.pick(b"aaaaaaaabcd 1234567\xc3\xa9,,\"\n")),
                _ => self.field(out),
            }
        }
        for _ in 0..if out.is_empty() { 0 } else { self.below(4) } {
            let at = self.below(out.len());
            match self.below(3) {
                0 => out[at] = self.pick(b"\",\n\ra\xff"),
                1 => out.insert(at, self.pick(b"\"\"\",\n\r")),
                _ if out.len() > 1 => drop(out.remove(at)),
                _ => {}
            }
        }
    }

    fn field(&mut self, out: &mut Vec<u8>) {
        const LONG: &str = "a value that is longer than what is copied at once, and than a block, which has sixty-four";
        const PLAIN: &[&str] =
            &["", "1", "-7", "36.99", "text", "longer text of some words", "a \"quote\" within", "\u{e9}\u{20ac}"];
        const QUOTED: &[&str] =
            &["", "a,b", "two\nlines", "two\r\nlines", "an \"\"escaped\"\" one", "\"\"", "\r", LONG];
        if self.below(2) == 0 {
            out.extend_from_slice(self.pick(PLAIN).as_bytes());
        } else {
            out.push(QUOTE);
            out.extend_from_slice(self.pick(QUOTED).as_bytes());
            out.push(QUOTE);
        }
        out.extend_from_slice(self.pick(&[",", ",", ",", "\n", "\r\n", "\r"]).as_bytes());
    }
}

type Indexer = fn(&[u8], Range<usize>, u8, &mut ScanState, &mut FieldIndex);
type Terminator = fn(&[u8], usize, bool, u8, &mut RangeSearch) -> Option<usize>;

/// Returns the kernels that this processor supports.
fn kernels() -> Vec<(&'static str, Indexer, Terminator)> {
    let portable: (_, Indexer, Terminator) = (
        "portable",
        |bytes, range, delimiter, state, index| index_with(Portable, bytes, range, delimiter, state, index),
        |bytes, target, complete, delimiter, search| {
            terminator_with(Portable, bytes, target, complete, delimiter, search)
        },
    );
    let mut kernels = vec![portable, ("chosen", simd::index, simd::find_terminator)];
    kernels.extend(simd::avx2());
    kernels
}

/// The result of the reference: ends of fields, and for each record the number of fields up to its end.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    ends: Vec<u32>,
    marks: Vec<u32>,
    terminators: Vec<usize>,
    lines: u64,
    open: bool,
}

fn expected(bytes: &[u8], records: &[oracle::Record]) -> Expected {
    let mut out = Expected::default();
    for record in records {
        let ended = record.next > record.end;
        let known = if ended { &record.ends[..] } else { &record.ends[..record.ends.len() - 1] };
        out.ends.extend(known.iter().map(|&end| u32::try_from(end).unwrap()));
        if ended {
            out.marks.push(u32::try_from(out.ends.len()).unwrap());
            out.terminators.extend(record.end..record.next);
        }
        out.open = !record.closed;
    }
    for (i, &byte) in bytes.iter().enumerate() {
        out.lines += u64::from(byte == b'\r' || byte == b'\n' && (i == 0 || bytes[i - 1] != b'\r'));
    }
    out
}

fn check_kernels(bytes: &[u8], records: &[oracle::Record], random: &mut Random) {
    let wanted = expected(bytes, records);
    let step = BLOCK * (1 + random.below(12));
    let target = random.below(bytes.len() + 2);
    let end = wanted.terminators.iter().copied().find(|&at| at >= target);
    let read = BLOCK * random.below(bytes.len() / BLOCK + 1);
    for (name, index_by, terminator_by) in kernels() {
        let shown = || format!("{name}: {:?}", String::from_utf8_lossy(bytes));
        let (mut index, mut state) = (FieldIndex::default(), ScanState::at_record());
        for from in (0..bytes.len()).step_by(step) {
            index_by(bytes, from..bytes.len().min(from + step), b',', &mut state, &mut index);
        }
        assert_eq!(index.ends[..index.fields], wanted.ends, "{}", shown());
        assert_eq!(index.marks[..index.records], wanted.marks, "{}", shown());
        assert_eq!((index.lines, state.is_inside()), (wanted.lines, wanted.open), "{}", shown());
        assert_eq!(index.high != 0, !bytes.is_ascii(), "{}", shown());
        // The bytes are searched in two steps, as when they arrive one after the other.
        let mut search = RangeSearch::new();
        let early = terminator_by(&bytes[..read], target, false, b',', &mut search);
        let found = early.or_else(|| terminator_by(bytes, target, true, b',', &mut search));
        assert_eq!(found, end, "{} from {target}", shown());
        let passed = wanted.marks.iter().filter(|&&m| (wanted.ends[m as usize - 1] as usize) < search.passed).count();
        assert_eq!(search.records, passed, "{}", shown());
    }
}

/// Ends of fields and records according to the scanner.
#[derive(Default)]
struct Ends(Vec<usize>, Vec<(usize, usize, usize)>);

impl Sink for Ends {
    fn end_field(&mut self, end: usize) {
        self.0.push(end);
    }

    fn end_record(&mut self, record: Range<usize>, next: usize) -> bool {
        self.1.push((record.start, record.end, next));
        true
    }
}

fn check_scan(bytes: &[u8], records: &[oracle::Record]) {
    let mut found = Ends::default();
    let ended = scan_records(bytes, b',', 0, &mut found);
    let whole: Vec<_> = records.iter().filter(|r| r.next > r.end).map(|r| (r.start, r.end, r.next)).collect();
    assert_eq!(found.1, whole);
    let wanted = expected(bytes, records).ends;
    assert!(found.0.iter().copied().eq(wanted.iter().map(|&end| end as usize)));
    let last = records.last().filter(|r| r.next == r.end);
    let start = last.map_or(bytes.len(), |r| r.start);
    let open = last.filter(|r| !r.closed).map(|r| r.ends.iter().rev().nth(1).map_or(r.start, |end| end + 1));
    assert_eq!(ended, Ended::Exhausted { start, open });
}

/// Compares the text columns that the tokenizer and the builders make of the rows.
fn check_columns(bytes: &[u8], records: &[oracle::Record], width: usize) {
    let mut tokens = Tokenizer::new(bytes, b',', width);
    let mut columns: Vec<_> =
        (0..width).map(|_| column_builder(&Field::new("", DataType::Utf8, true), false).unwrap()).collect();
    let mut faults = Vec::new();
    while tokens.advance_chunk() {
        for (i, column) in columns.iter_mut().enumerate() {
            column.append_cells(Cells::from_tokens(&tokens, &[]), i, &mut faults);
        }
    }
    let arrays: Vec<_> = columns.iter_mut().map(|column| column.finish().unwrap()).collect();
    let mut row = 0;
    let mut bad = 0;
    for record in records.iter().filter(|r| r.start < r.end) {
        let text = std::str::from_utf8(&bytes[record.start..record.end]).is_ok();
        if !record.closed || !text || record.fields.len() > width {
            bad += 1;
            continue;
        }
        for (i, array) in arrays.iter().enumerate() {
            let array = array.as_string::<i32>();
            let got = array.is_valid(row).then(|| array.value(row).as_bytes());
            let start = if i == 0 { record.start } else { record.ends.get(i - 1).map_or(record.end, |end| end + 1) };
            let there = record.ends.get(i).is_some_and(|&end| start < end);
            assert_eq!(
                got,
                record.fields.get(i).filter(|_| there).map(Vec::as_slice),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
        row += 1;
    }
    assert!(arrays.iter().all(|array| array.len() == row));
    assert_eq!((tokens.bad.len(), faults.len()), (bad, 0));
    assert_eq!(tokens.line_count(), expected(bytes, records).lines);
}

#[test]
fn every_kernel_agrees_with_the_reference() {
    let mut random = Random(0x5eed);
    let mut bytes = Vec::new();
    for case in 0..cases() {
        random.text(&mut bytes);
        let records = oracle::records(&bytes, b',');
        check_kernels(&bytes, &records, &mut random);
        if case % 4 == 0 {
            check_scan(&bytes, &records);
            check_columns(&bytes, &records, 1 + random.below(5));
        }
        for record in records.iter().filter(|r| r.next > r.end) {
            assert_eq!(next_record_start(&bytes, record.end), record.next);
        }
    }
}

#[test]
fn numbers_agree_with_the_slow_path() {
    let mut random = Random(0x5eed);
    for _ in 0..cases() / GROUP as u64 {
        let mut group = TextGroup::new();
        let mut texts = Vec::new();
        let kind = random.below(3);
        for i in 0..GROUP {
            let from: &[u8] = [&b"0123456789"[..], b"0123456789.", b"-.00123456789e+ \"\xe9"][kind];
            let mut word = [0; 8];
            word.iter_mut().for_each(|byte| *byte = random.pick(from));
            let length = random.below(9);
            if length > 0 && random.below(4) == 0 {
                word[8 - length] = b'-';
            }
            group.words[i] = u64::from_le_bytes(word);
            group.lengths[i] = length as u64;
            texts.push(word[8 - length..].to_vec());
        }
        for integers in [integers_with, simd::parse_integers] {
            let mut numbers = [7; GROUP];
            let good = integers(&group, &mut numbers);
            for (i, text) in texts.iter().enumerate() {
                let wanted = value::parse_int64(text);
                assert_eq!((numbers[i], good >> i & 1 == 1), (wanted.unwrap_or(0), wanted.is_some()), "{text:?}");
            }
        }
        for floats in [floats_with, simd::parse_floats] {
            let mut numbers = [7.; GROUP];
            let good = floats(&group, &mut numbers);
            for (i, text) in texts.iter().enumerate() {
                // Exponents and names are left to the slow path.
                let wanted = value::parse_float64(text).filter(|_| text.iter().all(|b| b"-.0123456789".contains(b)));
                let wanted = (wanted.unwrap_or(0.).to_bits(), wanted.is_some());
                assert_eq!((numbers[i].to_bits(), good >> i & 1 == 1), wanted, "{text:?}");
            }
        }
    }
}

#[test]
fn times_agree_with_the_slow_path() {
    let mut random = Random(0x5eed);
    for _ in 0..cases() / GROUP as u64 {
        let mut moments = Moments::new();
        let mut texts = Vec::new();
        for i in 0..GROUP {
            let (year, month, day) = (random.below(10_000), random.below(14), random.below(33));
            let year = if random.below(4) == 0 { year / 100 * 100 } else { year };
            let (hour, minute, second) = (random.below(25), random.below(61), random.below(61));
            let between = random.pick(b"  TTx");
            let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}").into_bytes();
            text[10] = between;
            if random.below(8) == 0 {
                let at = random.below(text.len());
                text[at] = random.pick(b"0/:; -T\x80\xff\0");
            }
            moments.set_text(i, text[..].try_into().unwrap());
            texts.push(text);
        }
        for timestamps in [timestamps_with, simd::parse_timestamps] {
            let mut micros = [7; GROUP];
            let good = timestamps(&moments, &mut micros);
            for (i, text) in texts.iter().enumerate() {
                let wanted = value::parse_timestamp(text);
                let got = (micros[i], good >> i & 1 == 1);
                assert_eq!(got, (wanted.unwrap_or(0), wanted.is_some()), "{}", String::from_utf8_lossy(text));
            }
        }
    }
}
