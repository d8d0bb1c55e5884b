//! Cuts a WARC file into ranges of whole entries: records, and what is damaged between them.
//!
//! A range ends before the entry with which it would weigh more than `range_bytes`. An entry weighs as many bytes as it
//! has, and a body that will be decoded as many more as it usually becomes, so that a range of packed bodies does not
//! become many times larger than others.
//!
//! A record that is larger than is read is passed over by its length. Its header is a range of its own, whose only link
//! says why it leads nowhere.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    body,
    entry::{Entry, Extent, LOOK, MAX_TAIL, Tail, WarcRecord, read_entry, tail_length},
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
/// Bytes of one read of what is passed over.
const SKIPPED: usize = 256 << 10;

/// A range, and the offset in the source of what follows it.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) range: SourceRange,
    pub(super) end: u64,
}

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
    ready: VecDeque<Cut>,
    /// Error to be returned after the ranges that are ready.
    failure: Option<Error>,
    done: bool,
}

/// How far the carried bytes were judged.
struct Judged {
    /// Ends of ranges.
    ends: Vec<usize>,
    /// End of the entries, of which the last may belong to a range that is not complete.
    at: usize,
    stop: CutEnd,
}

/// Why no further bytes were judged.
enum CutEnd {
    /// All of them were.
    AtEnd,
    /// So many bytes are needed.
    Needs(usize),
    /// A record with a header and a block of so many bytes is too large.
    TooLarge { head: usize, length: u64 },
    /// The entry here cannot be read.
    Lost(String),
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

    /// Returns the next range.
    pub(super) fn next_cut(&mut self) -> Option<Result<Cut>> {
        while self.ready.is_empty() && !self.done {
            self.fill_ready();
        }
        self.ready.pop_front().map(Ok).or_else(|| self.failure.take().map(Err))
    }

    /// Reads until there is a range, or nothing is left.
    fn fill_ready(&mut self) {
        let mut target = self.range_bytes + LOOK;
        loop {
            // Memory follows the bytes that were found, not those that a length states.
            let step = target.min((2 * self.carried.len()).max(self.range_bytes + LOOK));
            let (ends, fault) = match self.carried.fill_from(self.input.as_mut(), step, step) {
                Ok(filled) => (!filled, None),
                Err(error) => (false, Some(Error::from(error))),
            };
            let Judged { mut ends, at, stop } = self.judge_entries(ends);
            if !matches!(stop, CutEnd::Needs(_)) || fault.is_some() {
                // What lies before a fault is valid.
                ends.extend((at > ends.last().copied().unwrap_or_default()).then_some(at));
            }
            match stop {
                CutEnd::Needs(more) if fault.is_none() && ends.is_empty() => {
                    target = more;
                    continue;
                }
                CutEnd::Needs(_) if fault.is_none() => {}
                CutEnd::Needs(_) => self.fail(fault),
                CutEnd::AtEnd => self.done = true,
                CutEnd::Lost(reason) => self.fail(Some(self.lost(at, &reason))),
                CutEnd::TooLarge { head, length } => {
                    self.take_ranges(&ends);
                    return self.pass_over(head, length);
                }
            }
            return self.take_ranges(&ends);
        }
    }

    fn fail(&mut self, failure: Option<Error>) {
        (self.failure, self.done) = (failure, true);
    }

    /// Judges the entries that are complete.
    fn judge_entries(&self, ends: bool) -> Judged {
        let bytes = self.carried.as_slice();
        let extent = Extent { ends, max_block: self.max_record_bytes as u64 };
        let mut judged = Judged { ends: Vec::new(), at: 0, stop: CutEnd::AtEnd };
        let (mut start, mut weight) = (0, 0_usize);
        while judged.at < bytes.len() {
            let at = judged.at;
            let (length, more) = match read_entry(&bytes[at..], extent) {
                Entry::Record(record, length) => (length, self.weigh_record(&record, length)),
                Entry::Damage(length, _) => (length, length),
                Entry::Incomplete(needed) => {
                    judged.stop = CutEnd::Needs(at.saturating_add(needed));
                    return judged;
                }
                // A source that ends within the block is damaged, which can still be told if it ends soon.
                Entry::TooLarge { .. } if !ends && bytes.len() - at <= self.max_record_bytes => {
                    judged.stop = CutEnd::Needs(at + self.max_record_bytes + LOOK);
                    return judged;
                }
                Entry::TooLarge { head, length } => {
                    judged.stop = CutEnd::TooLarge { head, length };
                    return judged;
                }
                Entry::Lost(reason) => {
                    judged.stop = CutEnd::Lost(reason);
                    return judged;
                }
            };
            if at > start && weight.saturating_add(more) > self.range_bytes {
                judged.ends.push(at);
                (start, weight) = (at, 0);
            }
            weight = weight.saturating_add(more);
            judged.at += length;
        }
        if !ends {
            judged.stop = CutEnd::Needs(judged.at + LOOK);
        }
        judged
    }

    fn weigh_record(&self, record: &WarcRecord<'_>, length: usize) -> usize {
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
            let range = SourceRange::of_bytes(self.offset + start as u64, bytes.slice(start..*end));
            self.ready.push_back(Cut { range, end: self.offset + *end as u64 });
            start = *end;
        }
        self.offset += *last as u64;
    }

    /// Passes over the record at the start of the carried bytes, which is too large to be read.
    fn pass_over(&mut self, head: usize, length: u64) {
        let (at, limit) = (self.offset, self.max_record_bytes);
        let kept = Bytes::copy_from_slice(&self.carried.as_slice()[..head]);
        match self.skip_record(head as u64 + length) {
            Ok(true) => {
                let reason = format!(
                    "expected a record of at most {limit} bytes, found one of {length}; only its header is kept; raise \
                     --memory"
                );
                let range = SourceRange { linked: vec![Err(reason)], ..SourceRange::of_bytes(at, kept) };
                self.ready.push_back(Cut { range, end: self.offset });
            }
            Ok(false) => {
                let error = Error::input(format!(
                    "expected a block of {length} bytes and then the next record, found something else, or the end"
                ));
                self.fail(Some(
                    error.at_byte(at).with_hint("the file is damaged behind this byte; get it again from its source"),
                ));
            }
            Err(fault) => self.fail(Some(fault)),
        }
    }

    /// Skips the bytes of a record and the line ends behind it; returns whether a record, or the end, follows.
    fn skip_record(&mut self, bytes: u64) -> Result<bool> {
        let carried = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.carried.len());
        drop(self.carried.take_front(carried, true));
        let mut left = bytes - carried as u64;
        self.offset += carried as u64;
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(SKIPPED).min(SKIPPED);
            let more = self.carried.fill_from(self.input.as_mut(), piece, SKIPPED)?;
            let found = self.carried.len();
            self.carried.clear();
            left -= found as u64;
            self.offset += found as u64;
            if !more && left > 0 {
                return Ok(false);
            }
        }
        let ends = !self.carried.fill_from(self.input.as_mut(), MAX_TAIL + LOOK, SKIPPED)?;
        let Tail::Bytes(tail) = tail_length(None, self.carried.as_slice(), ends) else { return Ok(false) };
        drop(self.carried.take_front(tail, true));
        self.offset += tail as u64;
        Ok(true)
    }

    fn lost(&self, at: usize, reason: &str) -> Error {
        Error::input(format!("{reason}, and none in the {} bytes behind it", self.max_record_bytes))
            .at_byte(self.offset + at as u64)
            .with_hint("the file is damaged behind this byte; get it again from its source")
    }
}

impl Iterator for WarcRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_cut().map(|cut| cut.map(|cut| cut.range))
    }
}
