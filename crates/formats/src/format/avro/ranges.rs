//! Cuts an Avro file into ranges of whole blocks, and finds the next block behind damage.
//!
//! ```text
//! block  block  block  bl?ck  block  block                    a block whose head or marker is wrong
//! |--- range --------|-- gap -|--- range ---|                 a gap is a range of its own, and one reject
//! ```
//!
//! What records take once they are unpacked is not known from the stored bytes of most codecs, so the first block of a
//! range is unpacked here to tell. A gap that is larger than a record may be, or has no marker behind it, ends the
//! source.

use std::io::Read;

use bytes::Bytes;
use memchr::memmem;

use super::{
    AvroReader,
    header::{BLOCK_HEAD, BlockHead, BlockLimits, DAMAGED, SYNC},
    table::MAX_REJECTS,
};
use crate::{
    error::{Error, Result},
    format::{SourceBytes, ahead},
    record::{SourceRange, StatedBlocks},
};

/// Maximum blocks of a range, if they are compressed: how much they unpack to is known of the first alone.
const MAX_BLOCKS: u64 = 128;

/// What a large block is taken to unpack to, as a multiple of its bytes.
const USUAL_RATIO: u64 = 8;

/// Iterator over ranges.
pub(super) struct AvroRanges<'a> {
    reader: &'a AvroReader,
    input: Box<dyn Read + Send + 'a>,
    /// Bytes read but not returned yet; starts with a block.
    buffer: Vec<u8>,
    /// Offset of the buffer in the source.
    offset: u64,
    /// Bytes before the first block that are to be dropped.
    skipped: usize,
    range_bytes: usize,
    limits: BlockLimits,
    done: bool,
}

/// What is at an offset of the buffer.
enum Found {
    Block(BlockHead),
    /// The end of the source.
    End,
    /// No block: what is wrong, and where the next block may begin.
    Damage(String, Option<usize>),
}

impl<'a> AvroRanges<'a> {
    /// Starts at a block at this offset in the source, `skipped` bytes behind the start of `input`.
    pub(super) fn new(
        reader: &'a AvroReader,
        input: SourceBytes<'a>,
        offset: u64,
        skipped: usize,
        range_bytes: usize,
    ) -> Self {
        let (buffer, limits) = (Vec::new(), reader.limits());
        Self { reader, input, buffer, offset, skipped, range_bytes: range_bytes.max(1), limits, done: false }
    }

    fn next_range(&mut self) -> Result<Option<SourceRange>> {
        if self.skipped > 0 {
            if !self.fill_buffer(self.skipped)? {
                return Err(self.cut_short("expected the header of an Avro file"));
            }
            self.buffer.drain(..self.skipped);
            self.offset += self.skipped as u64;
            self.skipped = 0;
        }
        let room = (self.range_bytes + ahead::READ).saturating_sub(self.buffer.len());
        self.buffer.reserve_exact(room);
        let mut taken = Taken::default();
        loop {
            match self.block_at(taken.bytes)? {
                Found::Block(head) => {
                    let more = self.weigh_block(&head, &mut taken);
                    if taken.blocks > 0 && self.is_full(&taken, &head, more) {
                        break;
                    }
                    taken.add_block(&head, more);
                }
                Found::End => {
                    self.done = true;
                    break;
                }
                // The blocks before it are valid.
                Found::Damage(..) if taken.blocks > 0 => break,
                Found::Damage(reason, next) => return self.take_gap(&reason, next).map(Some),
            }
        }
        if self.reader.columns.is_empty() && taken.records > 0 {
            return Err(Error::input("expected columns, found records without any fields")
                .with_hint("leave the file out with --exclude"));
        }
        let weight = taken.unpacked.max(taken.records.saturating_mul(self.reader.weight.bytes));
        let range = ahead::take_range(&mut self.buffer, &mut self.offset, taken.bytes);
        let blocks = Some(StatedBlocks { records: taken.records, unpacked_bytes: weight });
        Ok(range.map(|range| SourceRange { blocks, ..range }))
    }

    /// Whether a block that unpacks to so many bytes is one too many for a range.
    fn is_full(&self, taken: &Taken, head: &BlockHead, unpacked: u64) -> bool {
        let (limit, records) = (self.range_bytes as u64, taken.records + head.records);
        (taken.bytes + head.next()) as u64 > limit
            || taken.unpacked.saturating_add(unpacked) > limit
            || records.saturating_mul(self.reader.weight.bytes) > limit.saturating_mul(2)
            || records > MAX_REJECTS
            || !self.limits.plain && taken.blocks >= MAX_BLOCKS
    }

    /// Estimates what a block unpacks to; it begins where `taken` ends.
    fn weigh_block(&self, head: &BlockHead, taken: &mut Taken) -> u64 {
        let codec = self.reader.header.codec;
        let data = &self.buffer[taken.bytes + head.start..taken.bytes + head.end];
        let packed = data.len() as u64;
        if let Some(stated) = codec.stated_bytes(data) {
            return stated.min(self.limits.bytes);
        }
        if packed >= self.range_bytes as u64 / USUAL_RATIO {
            return packed.saturating_mul(USUAL_RATIO);
        }
        let first = *taken.first.get_or_insert_with(|| {
            let mut unpacked = Vec::new();
            let limit = self.range_bytes as u64 * USUAL_RATIO;
            // What is damaged, or larger, is found out when it is parsed.
            let result = codec.unpack_to(&Bytes::copy_from_slice(data), limit, &mut unpacked);
            (packed.max(1), if result.is_err() { limit } else { unpacked.len() as u64 })
        });
        let share = u128::from(packed) * u128::from(first.1) / u128::from(first.0);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Looks for a block at an offset of the buffer.
    fn block_at(&mut self, at: usize) -> Result<Found> {
        if !self.fill_buffer(at + BLOCK_HEAD)? && self.buffer.len() == at {
            return Ok(Found::End);
        }
        let head = match BlockHead::read(&self.buffer[at..], self.limits) {
            Ok(head) => head,
            Err(reason) => return Ok(Found::Damage(reason, None)),
        };
        let next = at + head.next();
        if !self.fill_buffer(next)? {
            let reason = format!("expected a block of {} bytes, found the end of the file", head.end - head.start);
            return Ok(Found::Damage(reason, None));
        }
        match self.reader.whole_block(&self.buffer[at..], self.limits) {
            Ok(head) => Ok(Found::Block(head)),
            Err(reason) => Ok(Found::Damage(reason, Some(next))),
        }
    }

    /// Returns what is between here and the next block, which may begin at `next`.
    fn take_gap(&mut self, reason: &str, next: Option<usize>) -> Result<SourceRange> {
        let end = match next {
            // Only the marker may be wrong.
            Some(next) if self.is_boundary(next)? => Some(next),
            _ => self.find_marker()?,
        };
        let range = end.and_then(|end| ahead::take_range(&mut self.buffer, &mut self.offset, end));
        range.ok_or_else(|| Error::input(reason).at_byte(self.offset).with_hint(DAMAGED))
    }

    /// Whether a whole block, or the end of the source, is at an offset.
    fn is_boundary(&mut self, at: usize) -> Result<bool> {
        Ok(matches!(self.block_at(at)?, Found::Block(_) | Found::End))
    }

    /// Returns the end of the next sync marker.
    fn find_marker(&mut self) -> Result<Option<usize>> {
        let most = usize::try_from(self.limits.bytes).unwrap_or(usize::MAX);
        let sync = self.reader.header.sync;
        let finder = memmem::Finder::new(&sync);
        let mut searched = 0;
        loop {
            if let Some(found) = finder.find(&self.buffer[searched..]) {
                return Ok(Some(searched + found + SYNC));
            }
            let before = self.buffer.len();
            searched = before.saturating_sub(SYNC - 1);
            if searched <= most {
                self.fill_buffer(before + ahead::READ)?;
            }
            if self.buffer.len() == before {
                return Ok(None);
            }
        }
    }

    fn fill_buffer(&mut self, target: usize) -> Result<bool> {
        ahead::fill_buffer(self.input.as_mut(), &mut self.buffer, target)
    }

    fn cut_short(&self, expected: &str) -> Error {
        ahead::cut_short(expected, self.offset + self.buffer.len() as u64)
    }
}

/// Blocks that a range has so far.
#[derive(Default)]
struct Taken {
    bytes: usize,
    blocks: u64,
    records: u64,
    unpacked: u64,
    /// Bytes of the first block, as stored and unpacked.
    first: Option<(u64, u64)>,
}

impl Taken {
    fn add_block(&mut self, head: &BlockHead, unpacked: u64) {
        self.bytes += head.next();
        self.blocks += 1;
        self.records += head.records;
        self.unpacked = self.unpacked.saturating_add(unpacked);
    }
}

impl Iterator for AvroRanges<'_> {
    type Item = Result<SourceRange>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_range();
        self.done |= next.is_err();
        next.transpose()
    }
}
