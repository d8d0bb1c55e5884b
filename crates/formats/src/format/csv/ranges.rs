//! Cuts a stream of delimited text at record boundaries, reading it once and in order.
//!
//! ```text
//! BOM  header  | record record record ... record | record ...
//! '--skipped--' '------- >= range_bytes --------' '- the next range
//! ```
//!
//! A range ends with the first record that reaches `range_bytes`, so cuts depend on the bytes alone and not on how they
//! arrive. Bytes are searched as soon as they are read, while they are in the cache. [`index`](super::index) finds the
//! terminators outside quotes.
//!
//! Records with far fewer fields than there are columns would make a table much larger than the text. So a range also
//! ends before its table would have more than a few values per byte, which complete records never reach.
//!
//! Memory: a range and one record. Buffers of dropped ranges are reused. A range contains at least one record, unless
//! only blank lines are left.

use std::{
    io::{self, Read},
    ops::Range,
};

use super::{
    index::{BLOCK, Counts, RangeSearch},
    simd,
    tokenize::{CR, Ended, LF, Sink, scan_records},
};
use crate::{
    error::{Error, Result},
    format::carry::Carried,
    record::SourceRange,
    units::Size,
};

/// Ranges and records are shorter than this, so that positions within a range, and Arrow's offsets, fit into 31
/// bits.
pub(super) const LIMIT: usize = (1 << 30) - 1;

/// Maximum number of values in the table of a range for each of its bytes; a value that is present takes at least one
/// byte.
const VALUES_PER_BYTE: usize = 4;

/// Number of bytes that are read before they are searched.
pub(super) const READ: usize = 256 << 10;

/// Iterator over the ranges of a source.
pub(super) struct CsvRanges<R> {
    input: R,
    delimiter: u8,
    range_bytes: usize,
    max_record_bytes: usize,
    /// Maximum number of records of a range.
    max_records: usize,
    /// Number of bytes to skip first.
    skip: u64,
    /// Position of the carried bytes in the stream.
    offset: u64,
    carried: Carried,
    /// Search for the end of the current range.
    search: RangeSearch,
    /// Whether the search counts what it passes.
    counting: bool,
    /// Start of a record that is known not to be too long so far, at or before the one at the end of the search.
    record: usize,
    exhausted: bool,
    /// Error that ended the input; returned after the records before it.
    fault: Option<Error>,
}

impl<R: Read> CsvRanges<R> {
    /// Creates an iterator over `input`, whose first `skip` bytes belong to no range.
    pub(super) fn new(input: R, delimiter: u8, skip: u64, range_bytes: usize, max_record_bytes: usize) -> Self {
        Self {
            input,
            delimiter,
            range_bytes: range_bytes.clamp(1, LIMIT),
            max_record_bytes: max_record_bytes.clamp(1, LIMIT),
            max_records: usize::MAX,
            skip,
            offset: skip,
            carried: Carried::default(),
            search: RangeSearch::new(),
            counting: false,
            record: 0,
            exhausted: false,
            fault: None,
        }
    }

    /// Sets the position of `input` in the stream, where a record starts.
    pub(super) fn starting_at(self, offset: u64) -> Self {
        Self { skip: 0, offset, ..self }
    }

    /// Counts what is in each range, for [`next_counted`](Self::next_counted).
    pub(super) fn with_counts(self) -> Self {
        Self { search: RangeSearch::with_counts(), counting: true, ..self }
    }

    /// Limits ranges to the number of records whose tables with this many columns are small enough.
    pub(super) fn with_columns(mut self, columns: usize) -> Self {
        self.max_records = most_records(self.range_bytes, columns);
        self
    }

    /// Returns the next range, and what it contains if that is known.
    pub(super) fn next_counted(&mut self) -> Result<Option<(SourceRange, Option<Counts>)>> {
        let Some(end) = self.next_end()? else { return Ok(None) };
        let counts = self.search.count_range(&self.carried.as_slice()[..end], self.delimiter);
        Ok(Some((self.take_range(end), counts)))
    }

    /// Returns the end of the next range in the buffer.
    fn next_end(&mut self) -> Result<Option<usize>> {
        skip_head(&mut self.input, &mut self.skip)?;
        loop {
            if let Some(end) = self.find_end() {
                self.check_length(end)?;
                return Ok(Some(self.limit_records(end)));
            }
            self.check_length(if self.exhausted { self.carried.len() } else { self.search.passed })?;
            if self.exhausted {
                if let Some(fault) = self.fault.take() {
                    return self.before_the_fault(fault).map(Some);
                }
                let end = self.limit_records(self.carried.len());
                return Ok((end > 0).then_some(end));
            }
            self.read_more();
        }
    }

    /// Reads the next piece of the range, or a smaller one if only its last record continues.
    fn read_more(&mut self) {
        let step = self.range_bytes.clamp(256, READ / 4);
        // One byte beyond the range usually shows whether a CR at its end is followed by LF.
        let length = self.carried.len();
        let missing = (self.range_bytes + step).saturating_sub(length);
        let wanted = length + if missing == 0 { step } else { missing.min(READ) };
        // Large ranges of a short source must not reserve memory that is never filled.
        let room = (2 * length).clamp(step, self.range_bytes + step);
        match self.carried.fill_from(&mut self.input, wanted, room) {
            Ok(filled) => self.exhausted = !filled,
            Err(error) => {
                self.exhausted = true;
                self.fault = Some(error.into());
            }
        }
    }

    /// Returns the end of the whole records of the buffer before a read error. An incomplete last record is not
    /// included.
    fn before_the_fault(&mut self, fault: Error) -> Result<usize> {
        let mut all = Longest { limit: usize::MAX, too_long: None };
        let Ended::Exhausted { start, .. } = scan_records(self.carried.as_slice(), self.delimiter, 0, &mut all) else {
            return Err(fault);
        };
        let end = self.limit_records(start);
        if end == 0 {
            return Err(fault);
        }
        self.fault = Some(fault);
        Ok(end)
    }

    /// Returns the end of the first record that reaches `range_bytes`, if it is in the buffer.
    fn find_end(&mut self) -> Option<usize> {
        let bytes = self.carried.as_slice();
        let target = self.range_bytes - 1;
        let at = simd::find_terminator(bytes, target, self.exhausted, self.delimiter, &mut self.search)?;
        match (bytes[at], bytes.get(at + 1)) {
            (CR, Some(&LF)) => Some(at + 2),
            (CR, None) if !self.exhausted => None,
            _ => Some(at + 1),
        }
    }

    /// Returns an earlier end if there are too many records up to this one.
    fn limit_records(&self, end: usize) -> usize {
        // The bytes that were not searched yet are a block or less.
        if self.search.records + BLOCK < self.max_records {
            return end;
        }
        match scan_records(&self.carried.as_slice()[..end], self.delimiter, 0, &mut Few(self.max_records)) {
            Ended::Stopped(next) => next,
            Ended::Exhausted { .. } => end,
        }
    }

    fn take_range(&mut self, end: usize) -> SourceRange {
        let bytes = self.carried.take_front(end, !self.exhausted);
        let range = SourceRange::of_bytes(self.offset, bytes);
        self.offset += end as u64;
        self.start_over();
        range
    }

    /// Starts the search of a range at the carried bytes.
    fn start_over(&mut self) {
        self.search = if self.counting { RangeSearch::with_counts() } else { RangeSearch::new() };
        self.record = 0;
    }

    /// Fails if a record of the buffer up to `end` is too long. Records are examined only if that is possible, which is
    /// rare, so that the usual search need not know where records start.
    fn check_length(&mut self, end: usize) -> Result<()> {
        if end - self.record <= self.max_record_bytes {
            return Ok(());
        }
        let mut longest = Longest { limit: self.max_record_bytes, too_long: None };
        match scan_records(&self.carried.as_slice()[..end], self.delimiter, self.record, &mut longest) {
            Ended::Stopped(_) => Err(self.too_long(longest.too_long.unwrap_or(self.record))),
            Ended::Exhausted { start, .. } if end - start > self.max_record_bytes => Err(self.too_long(start)),
            Ended::Exhausted { start, .. } => {
                self.record = start;
                Ok(())
            }
        }
    }

    /// Returns the error for a record of more bytes than are allowed. It follows from these bytes alone, however much
    /// was read.
    fn too_long(&self, record: usize) -> Error {
        let limit = Size(self.max_record_bytes as u64);
        let head = &self.carried.as_slice()[..self.carried.len().min(record + self.max_record_bytes + 1)];
        let mut all = Longest { limit: usize::MAX, too_long: None };
        let open = match scan_records(head, self.delimiter, record, &mut all) {
            Ended::Exhausted { open, .. } => open,
            Ended::Stopped(_) => None,
        };
        let error = Error::input(match open {
            Some(_) => {
                format!("expected the quote that opens here to be closed within a record of {limit}, found none")
            }
            None => format!("expected a record of at most {limit}, found a longer one"),
        });
        let error = error.at_byte(self.offset + open.unwrap_or(record) as u64);
        let error = if open.is_some() {
            error.with_hint("close the quote, or double it if it is meant literally")
        } else {
            error
        };
        error.with_hint("if records are really that long, allow more memory with --memory")
    }
}

/// Returns the number of records of a range whose table with this many columns is small enough.
pub(super) fn most_records(range_bytes: usize, columns: usize) -> usize {
    (VALUES_PER_BYTE * range_bytes / columns.max(1)).max(1)
}

/// Skips the bytes that belong to no range.
///
/// # Errors
/// If there are fewer.
pub(super) fn skip_head(input: &mut impl Read, skip: &mut u64) -> Result<()> {
    let expected = std::mem::take(skip);
    let found = io::copy(&mut input.take(expected), &mut io::sink())?;
    if found < expected {
        return Err(Error::input(format!(
            "expected at least {expected} bytes, as when the header was read, found {found}"
        ))
        .with_hint("the source seems to have changed during the run"));
    }
    Ok(())
}

impl<R: Read> Iterator for CsvRanges<R> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_end().map(|end| end.map(|end| self.take_range(end)));
        if next.is_err() {
            self.exhausted = true;
            self.skip = 0;
            self.carried.clear();
            self.start_over();
        }
        next.transpose()
    }
}

/// Stops after a number of records, not counting blank lines.
struct Few(usize);

impl Sink for Few {
    fn end_field(&mut self, _end: usize) {}

    fn end_record(&mut self, record: Range<usize>, _next: usize) -> bool {
        self.0 -= usize::from(!record.is_empty());
        self.0 > 0
    }
}

/// Stops at the first record that is too long.
struct Longest {
    limit: usize,
    too_long: Option<usize>,
}

impl Sink for Longest {
    fn end_field(&mut self, _end: usize) {}

    fn end_record(&mut self, record: Range<usize>, _next: usize) -> bool {
        if record.len() > self.limit {
            self.too_long = Some(record.start);
        }
        self.too_long.is_none()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::tokenize::{oracle, tests::trouble},
        *,
    };
    use crate::format::faulty::Faulty;

    /// Returns its bytes in pieces of a few bytes.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn the_error_for_a_long_record_does_not_depend_on_what_was_read() {
        let text = format!("a,b\n1,\"{}\"\n{}", "x\n".repeat(40), "2,y\n".repeat(200));
        let errors = [1, 79, 200, 400, 1 << 20].map(|range_bytes| {
            let error = ranges(text.as_bytes(), range_bytes, 60, 1 << 20).unwrap_err();
            (error.to_string(), error.place().byte)
        });
        assert!(errors[0].0.contains("quote that opens here") && errors[0].1 == Some(6), "{errors:?}");
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    }

    fn ranges(bytes: &[u8], range_bytes: usize, max: usize, piece: usize) -> Result<Vec<SourceRange>> {
        CsvRanges::new(Dribble(bytes, piece), b',', 0, range_bytes, max).collect()
    }

    /// Returns where the ranges must end, according to the reference.
    fn expected_ends(bytes: &[u8], range_bytes: usize) -> Vec<usize> {
        let (mut ends, mut start) = (Vec::new(), 0);
        for record in oracle::records(bytes, b',') {
            if record.next - start >= range_bytes || record.next == bytes.len() {
                ends.push(record.next);
                start = record.next;
            }
        }
        ends
    }

    #[test]
    fn whole_records_before_a_fault_are_not_lost() {
        for (text, whole) in
            [("a,b\n1,2\n3,4\n5,", "a,b\n1,2\n3,4\n"), ("a,\"b\nc\"\nd,\"e\nf", "a,\"b\nc\"\n"), ("a,b", ""), ("", "")]
        {
            for size in [1, 4, 7, 1000] {
                let found = Faulty::before_fault(CsvRanges::new(Faulty(text.as_bytes()), b',', 0, size, 100));
                assert_eq!(found, whole, "{text:?} by {size}");
            }
        }
    }

    proptest! {
        #[test]
        fn splits_end_at_record_boundaries_at_every_size(bytes in trouble(2000), size in 1usize..600,
            piece in 1usize..400) {
            let ranges = ranges(&bytes, size, 1 << 20, piece).unwrap();
            let (starts, sizes) = (ranges.iter().map(|s| s.offset), ranges.iter().map(|s| s.content_bytes().len()));
            let ends: Vec<_> = starts.zip(sizes).map(|(start, size)| usize::try_from(start).unwrap() + size).collect();
            prop_assert_eq!(ends, expected_ends(&bytes, size));
            let joined: Vec<u8> = ranges.iter().flat_map(|s| s.content_bytes().to_vec()).collect();
            prop_assert_eq!(joined, bytes);
        }

        #[test]
        fn long_records_are_found_at_every_range_size(bytes in trouble(2000), size in 1usize..600, max in 1usize..60) {
            let long = oracle::records(&bytes, b',').into_iter().find(|r| r.end - r.start > max);
            let result = ranges(&bytes, size, max, 7);
            prop_assert_eq!(result.is_err(), long.is_some());
            if let (Err(error), Some(long)) = (result, long) {
                let byte = usize::try_from(error.place().byte.unwrap()).unwrap();
                prop_assert!(byte >= long.start && byte < long.end, "{} {:?}", error, long);
            }
        }
    }

    #[test]
    fn an_unclosed_quote_is_named() {
        let mut bytes = b"a,b\n1,\"2\n".to_vec();
        bytes.extend(b"3,4\n".repeat(1000));
        let error = ranges(&bytes, 64, 500, 100).unwrap_err();
        assert_eq!(error.place().byte, Some(6));
        assert!(error.message().contains("quote"), "{error}");
        assert!(error.hints().iter().any(|h| h.contains("--memory")));
    }

    #[test]
    fn short_records_of_wide_tables_make_short_ranges() {
        let bytes = b"1\n\n\"\n\"\n".repeat(1000);
        let ranges: Vec<_> =
            CsvRanges::new(&bytes[..], b',', 0, 1000, 100).with_columns(500).map(Result::unwrap).collect();
        assert_eq!(ranges.iter().map(|s| s.content_bytes().len()).sum::<usize>(), bytes.len());
        assert!(
            ranges
                .iter()
                .all(|s| oracle::records(s.content_bytes(), b',').iter().filter(|r| r.start < r.end).count() <= 8)
        );
        assert_eq!(ranges.len(), 250);
        let full = b"1,2,3,4\n".repeat(1000);
        let ranges = CsvRanges::new(&full[..], b',', 0, 1000, 100).with_columns(4);
        assert_eq!(ranges.count(), 8);
    }

    #[test]
    fn the_head_is_skipped() {
        let ranges: Vec<_> = CsvRanges::new(&b"a,b\n1,2\n"[..], b',', 4, 1, 100).map(Result::unwrap).collect();
        assert_eq!((ranges.len(), ranges[0].offset, ranges[0].content_bytes()), (1, 4, &b"1,2\n"[..]));
        let mut short = CsvRanges::new(&b"a,"[..], b',', 4, 1, 100);
        assert!(short.next().unwrap().is_err());
        assert!(short.next().is_none());
    }
}
