//! Cuts a WARC file into ranges of whole entries: records, and what is damaged between them.
//!
//! A range ends before the entry with which it would weigh more than `range_bytes`. An entry weighs as many bytes as it
//! has, and a body that will be decoded as many as it usually becomes, so that a range of packed bodies does not become
//! many times larger than others.

use std::collections::VecDeque;

use super::{
    body,
    entry::{Entry, Extent, LOOK, Record, read_entry},
    http,
};
use crate::{
    error::{Error, Result},
    format::{SourceBytes, carry::Carried},
    record::SourceRange,
};

/// Maximum bytes of a range, so that its decoded bodies stay below 2 GiB, because offsets in columns have 31 bits.
const MAX_RANGE: usize = 64 << 20;
/// Maximum bytes of a record, for the same reason.
const MAX_RECORD: usize = 512 << 20;

/// Iterator over ranges.
pub(super) struct WarcRanges<'a> {
    input: SourceBytes<'a>,
    carried: Carried,
    /// Offset of the carried bytes in the source.
    offset: u64,
    range_bytes: usize,
    max_record_bytes: usize,
    /// Whether bodies will be decoded.
    decodes: bool,
    ready: VecDeque<SourceRange>,
    /// Error to be returned after the ranges that are ready.
    failure: Option<Error>,
    done: bool,
}

/// How far the carried bytes were judged.
struct Judged {
    /// Ends of ranges.
    ends: Vec<usize>,
    stop: Stop,
}

/// Why no further bytes were judged.
enum Stop {
    /// All of them were.
    AtEnd,
    /// So many bytes are needed.
    Needs(usize),
    /// The entry here cannot be read.
    At(usize, Error),
}

impl<'a> WarcRanges<'a> {
    /// Starts at an entry, at this offset in the source.
    pub(super) fn new(input: SourceBytes<'a>, offset: u64, range_bytes: usize, max_record_bytes: usize) -> Self {
        Self {
            input,
            carried: Carried::default(),
            offset,
            range_bytes: range_bytes.clamp(1, MAX_RANGE),
            max_record_bytes: max_record_bytes.min(MAX_RECORD),
            decodes: true,
            ready: VecDeque::new(),
            failure: None,
            done: false,
        }
    }

    /// Says whether bodies will be decoded.
    pub(super) fn decoding(self, decodes: bool) -> Self {
        Self { decodes, ..self }
    }

    /// Returns the maximum bytes of a record.
    pub(super) fn max_record_bytes(&self) -> usize {
        self.max_record_bytes
    }

    /// Reads until there is a range.
    fn fill_ready(&mut self) {
        let mut target = self.range_bytes + LOOK;
        loop {
            // Memory follows the bytes that were found, not those that a length states.
            let step = target.min((2 * self.carried.len()).max(self.range_bytes + LOOK));
            let (ends, fault) = match self.carried.fill_from(self.input.as_mut(), step, step) {
                Ok(filled) => (!filled, None),
                Err(error) => (false, Some(Error::from(error))),
            };
            let mut judged = self.judge_entries(ends);
            match (judged.stop, fault) {
                (Stop::Needs(_), Some(fault)) => {
                    // What lies before a fault is valid.
                    self.close_last(&mut judged.ends);
                    (self.failure, self.done) = (Some(fault), true);
                }
                (Stop::Needs(more), None) if judged.ends.is_empty() => {
                    target = more;
                    continue;
                }
                (Stop::Needs(_), None) => {}
                (Stop::At(at, error), _) => {
                    if judged.ends.last().is_none_or(|end| *end < at) && at > 0 {
                        judged.ends.push(at);
                    }
                    (self.failure, self.done) = (Some(error), true);
                }
                (Stop::AtEnd, _) => self.done = true,
            }
            return self.take_ranges(&judged.ends);
        }
    }

    /// Judges the entries that are complete.
    fn judge_entries(&self, ends: bool) -> Judged {
        let bytes = self.carried.as_slice();
        let extent = Extent { ends, max_block: self.max_record_bytes as u64 };
        let mut judged = Judged { ends: Vec::new(), stop: Stop::AtEnd };
        let (mut at, mut start, mut weight) = (0, 0, 0_usize);
        while at < bytes.len() {
            let (length, more) = match read_entry(&bytes[at..], extent) {
                Entry::Record(record, length) => (length, self.weigh_record(&record, length)),
                Entry::Damage(length, _) => (length, length),
                Entry::Incomplete(needed) => {
                    judged.stop = Stop::Needs(at + needed);
                    return judged;
                }
                Entry::TooLarge(found) => {
                    judged.stop = Stop::At(at, self.too_large(at, found));
                    return judged;
                }
            };
            if at > start && weight.saturating_add(more) > self.range_bytes {
                judged.ends.push(at);
                (start, weight) = (at, 0);
            }
            weight = weight.saturating_add(more);
            at += length;
        }
        if !ends {
            judged.stop = Stop::Needs(at + LOOK);
        } else if at > start {
            judged.ends.push(at);
        }
        judged
    }

    /// Ends a range behind the last entry that is complete.
    fn close_last(&self, ends: &mut Vec<usize>) {
        let bytes = self.carried.as_slice();
        let extent = Extent { ends: false, max_block: self.max_record_bytes as u64 };
        let start = ends.last().copied().unwrap_or_default();
        let mut at = start;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match read_entry(rest, extent) {
                Entry::Record(_, length) | Entry::Damage(length, _) => at += length,
                Entry::Incomplete(_) | Entry::TooLarge(_) => break,
            }
        }
        if at > start {
            ends.push(at);
        }
    }

    fn weigh_record(&self, record: &Record<'_>, length: usize) -> usize {
        if self.decodes && http::states_coding(record.block) {
            length.saturating_add(body::usual_growth(record.block.len()))
        } else {
            length
        }
    }

    fn take_ranges(&mut self, ends: &[usize]) {
        let Some(last) = ends.last() else { return };
        let bytes = self.carried.take_front(*last, !self.done);
        let mut start = 0;
        for end in ends {
            self.ready.push_back(SourceRange::of_bytes(self.offset + start as u64, bytes.slice(start..*end)));
            start = *end;
        }
        self.offset += *last as u64;
    }

    fn too_large(&self, at: usize, found: u64) -> Error {
        let limit = self.max_record_bytes;
        Error::input(format!("expected a record of at most {limit} bytes, found one of {found}"))
            .at_byte(self.offset + at as u64)
            .with_hint("if the input is as it should be, raise --memory")
    }
}

impl Iterator for WarcRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.done {
            self.fill_ready();
        }
        self.ready.pop_front().map(Ok).or_else(|| self.failure.take().map(Err))
    }
}
