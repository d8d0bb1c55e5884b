//! Cuts a source into ranges of whole records.
//!
//! Lines are cut after the last line end of each `range_bytes` bytes; a longer line makes its range longer. Every read
//! fills its buffer to a size that follows from the bytes read so far, so the cut never depends on how many bytes the
//! source returns at a time.
//!
//! ```text
//! read    |<------ range_bytes ------>|
//! bytes   record\nrecord\nrecord\nreco rd\nrecord\n
//! range   |<------------------->|
//! carried                        |<-->|
//! ```

use std::io::Read;

use crate::{
    error::{Error, Result},
    format::{ahead, carry::Carried},
    record::SourceRange,
};

/// Ranges are shorter than 2 GiB, because offsets within their columns have 31 bits.
pub(super) const MAX_RANGE: usize = 0x7FFF_FFFF;

/// Cuts at line ends.
pub(super) struct LineRanges<'a> {
    input: Box<dyn Read + Send + 'a>,
    carried: Carried,
    offset: u64,
    range_bytes: usize,
    max_record_bytes: usize,
    done: bool,
    /// Error that ended the input, returned after the records before it.
    fault: Option<Error>,
}

impl<'a> LineRanges<'a> {
    pub(super) fn new(input: Box<dyn Read + Send + 'a>, range_bytes: usize, max_record_bytes: usize) -> Self {
        let range_bytes = range_bytes.clamp(1, MAX_RANGE / 4);
        // The terminator counts towards the range but not towards the record.
        let max_record_bytes = max_record_bytes.min(MAX_RANGE / 2);
        Self { input, carried: Carried::default(), offset: 0, range_bytes, max_record_bytes, done: false, fault: None }
    }

    /// Says that the input begins at this place of the source, where a line starts.
    pub(super) fn starting_at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    fn next_range(&mut self) -> Result<Option<SourceRange>> {
        let mut target = self.range_bytes;
        let mut searched = 0;
        let cut = loop {
            let end = match self.fill_carried(target) {
                Ok(filled) => !filled,
                Err(fault) => {
                    // An incomplete last line is not a record.
                    let Some(last) = memchr::memrchr(b'\n', self.carried.as_slice()) else { return Err(fault) };
                    self.fault = Some(fault);
                    break last + 1;
                }
            };
            if end {
                self.done = true;
                break self.carried.len();
            }
            // After a long line there may be more, which must not matter: a range depends only on the bytes from its
            // start on, so that a source can be cut into parts between ranges.
            if let Some(at) = memchr::memrchr(b'\n', &self.carried.as_slice()[searched..target]) {
                break searched + at + 1;
            }
            if target > self.max_record_bytes {
                return Err(self.too_long(0));
            }
            searched = target;
            target = searched.saturating_mul(2).min(self.max_record_bytes + 1);
        };
        if cut > self.max_record_bytes {
            self.check_lengths(cut)?;
        }
        if cut == 0 {
            return Ok(None);
        }
        let more = !self.done && self.fault.is_none();
        let range = SourceRange::of_bytes(self.offset, self.carried.take_front(cut, more));
        self.offset += cut as u64;
        Ok(Some(range))
    }

    /// Reads until `target` bytes are carried; returns `false` if the source ends before. The buffer grows with the
    /// bytes found, because a short source must not reserve a whole range.
    fn fill_carried(&mut self, target: usize) -> Result<bool> {
        while self.carried.len() < target {
            let wanted = target.min(self.carried.len() + ahead::READ);
            let room = (2 * self.carried.len()).clamp(ahead::READ.min(target), target);
            if !self.carried.fill_from(&mut self.input, wanted, room)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn check_lengths(&self, cut: usize) -> Result<()> {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &self.carried.as_slice()[..cut]).chain([cut]) {
            if end.saturating_sub(start) > self.max_record_bytes {
                return Err(self.too_long(start));
            }
            start = end + 1;
        }
        Ok(())
    }

    fn too_long(&self, start: usize) -> Error {
        too_long("record", self.max_record_bytes).at_byte(self.offset + start as u64)
    }
}

impl Iterator for LineRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = match self.fault.take() {
            Some(fault) => Err(fault),
            None => self.next_range(),
        };
        self.done |= next.is_err();
        next.transpose()
    }
}

/// Reads a whole document as one range.
///
/// # Errors
/// If reading fails, the source is empty, or the document is longer than `max_bytes`.
pub(super) fn read_document(mut input: Box<dyn Read + Send + '_>, max_bytes: usize) -> Result<SourceRange> {
    let max_bytes = max_bytes.min(MAX_RANGE);
    let mut bytes = Vec::new();
    let mut target = 1 << 16;
    while fill_buffer(&mut input, &mut bytes, target.min(max_bytes + 1))? {
        if bytes.len() > max_bytes {
            return Err(too_long("document", max_bytes).at_byte(0));
        }
        target *= 2;
    }
    if bytes.is_empty() {
        return Err(Error::input("expected a JSON document, found nothing")
            .at_byte(0)
            .with_hint("leave the file out with --exclude"));
    }
    Ok(SourceRange::of_bytes(0, bytes.into()))
}

/// Reads until `buffer` holds `target` bytes; returns `false` if the source ended before.
fn fill_buffer(input: &mut dyn Read, buffer: &mut Vec<u8>, target: usize) -> Result<bool> {
    let missing = target.saturating_sub(buffer.len());
    if missing > 0 {
        buffer.reserve_exact(missing);
        input.take(missing as u64).read_to_end(buffer)?;
    }
    Ok(buffer.len() >= target)
}

fn too_long(what: &str, max_bytes: usize) -> Error {
    Error::input(format!("expected a {what} of at most {max_bytes} bytes, found a longer one"))
        .with_hint("if the input is as it should be, raise --memory")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Kind;
    use crate::format::faulty::Faulty;

    /// Returns a few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(buffer.len()).min(self.0.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn cut(input: &'static [u8], range: usize, max: usize) -> Vec<&'static str> {
        let mut at = 0;
        LineRanges::new(Box::new(input), range, max)
            .map(|s| {
                let s = s.unwrap();
                assert_eq!(s.offset, at as u64);
                at += s.content_bytes().len();
                std::str::from_utf8(&input[at - s.content_bytes().len()..at]).unwrap()
            })
            .collect()
    }

    #[test]
    fn splits_end_behind_line_ends() {
        assert_eq!(cut(b"ab\ncd\nef\ngh", 7, 100), ["ab\ncd\n", "ef\ngh"]);
        assert_eq!(cut(b"ab\ncd\n", 3, 100), ["ab\n", "cd\n"]);
        assert_eq!(cut(b"abcdefghij\nklmnopqr", 2, 100), ["abcdefghij\n", "klmnopqr"]);
        assert_eq!(cut(b"", 2, 100), [""; 0]);
        assert_eq!(cut(b"a", 100, 100), ["a"]);
    }

    #[test]
    fn whole_lines_before_a_fault_are_not_lost() {
        for (text, whole) in [("{}\n[]\n{", "{}\n[]\n"), ("{", ""), ("", "")] {
            for size in [1, 4, 1000] {
                let found = Faulty::before_fault(LineRanges::new(Box::new(Faulty(text.as_bytes())), size, 100));
                assert_eq!(found, whole, "{text:?} by {size}");
            }
        }
    }

    #[test]
    fn a_long_record_is_an_error_with_its_place() {
        for (input, range) in [(&b"ab\nlong line\n"[..], 3), (b"ab\nlong line", 3), (b"ab\nlong line\n", 100)] {
            let error = LineRanges::new(Box::new(input), range, 8).find_map(Result::err).unwrap();
            assert_eq!((error.kind(), error.place().byte), (Kind::Input, Some(3)), "{input:?}");
            assert!(error.hints()[0].contains("--memory"));
        }
        assert_eq!(cut(b"ab\n12345678\n12345678", 3, 8), ["ab\n", "12345678\n", "12345678"]);
    }

    #[test]
    fn documents_are_read_whole_up_to_a_limit() {
        let long = vec![b' '; 200_000];
        assert_eq!(read_document(Box::new(&long[..]), 200_000).unwrap().content_bytes().len(), 200_000);
        assert_eq!(read_document(Box::new(&long[..]), 199_999).unwrap_err().kind(), Kind::Input);
        assert_eq!(read_document(Box::new(&b""[..]), 10).unwrap_err().kind(), Kind::Input);
    }

    proptest! {
        #[test]
        fn the_cut_depends_on_the_bytes_alone(
            input in "[ab\n]{0,60}", range in 1usize..20, max in 1usize..30, step in 1usize..7,
        ) {
            let collect = |step| -> Vec<Result<SourceRange>> {
                LineRanges::new(Box::new(Dribble(input.as_bytes(), step)), range, max).collect()
            };
            let (one, other) = (collect(usize::MAX), collect(step));
            prop_assert_eq!(one.len(), other.len());
            let mut whole = Vec::new();
            for (a, b) in one.iter().zip(&other) {
                match (a, b) {
                    (Ok(a), Ok(b)) => {
                        prop_assert_eq!(a.content_bytes(), b.content_bytes());
                        whole.extend_from_slice(a.content_bytes());
                    }
                    (Err(a), Err(b)) => prop_assert_eq!(a.place(), b.place()),
                    _ => prop_assert!(false, "{:?} {:?}", a, b),
                }
            }
            let too_long = input.split('\n').any(|line| line.len() > max);
            prop_assert_eq!(one.iter().any(Result::is_err), too_long);
            if !too_long {
                prop_assert_eq!(whole, input.as_bytes());
            }
        }
    }
}
