//! The structure of delimited text as bit masks: 64 bytes at a time, almost without branches.
//!
//! ```text
//! bytes     4 2 , " a , " " b " \r \n 7 , \n
//! quotes    . . . 1 . . 1 1 . 1 .  .  . . .
//! inside    . . . 1 1 1 . 1 1 . .  .  . . .    xor of all quotes up to here
//! breaks    . . 1 . . 1 . . . . 1  1  . 1 1    delimiters and terminators
//! cuts      . . 1 . . . . . . . 1  .  . 1 1    not inside, and no LF that belongs to a CR
//! records   . . . . . . . . . . 1  .  . . 1    cuts that are terminators
//! ```
//!
//! Each quote toggles between inside and outside. This is correct if quotes open only where they may: after a cut, or
//! right after the previous quote (two quotes inside are one, which the mask sees as closed and opened again). The
//! first quote of a block that opens anywhere else is literal. It is removed, and the block is evaluated again;
//! everything before it was correct, so one such step per literal quote gives the exact result.
//!
//! [`Kernel`] contains the operations that differ between processors. [`Portable`] runs everywhere, and the others are
//! tested against it.

use std::ops::Range;

use super::tokenize::{CR, LF, QUOTE};

/// Number of bytes of a block.
pub(super) const BLOCK: usize = 64;

/// Set in the delimiter, which is ASCII, where a quote is a character.
pub(super) const UNQUOTED: u8 = 0x80;

/// Number of blocks after which room for their fields and records is ensured.
const BATCH: usize = 16;

/// Positions of the significant bytes of a block; the lowest bit is the first byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockMarks {
    pub(super) delimiters: u64,
    pub(super) feeds: u64,
    pub(super) returns: u64,
    pub(super) quotes: u64,
    /// Bytes that are not ASCII.
    pub(super) high: u64,
}

/// Operations that have an implementation for each processor.
pub(super) trait Kernel: Copy {
    /// Compares the bytes of a block with the significant ones.
    fn mark_block(self, block: &[u8; BLOCK], delimiter: u8) -> BlockMarks;

    /// Returns, for each bit, the xor of all bits up to it.
    fn prefix_xor(self, bits: u64) -> u64;

    /// Writes `base` plus the number of each set bit, in order; subsequent elements of `out` may be overwritten, too.
    fn write_positions(self, bits: u64, base: u32, out: &mut [u32; BLOCK]);
}

/// Works on every processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable;

impl Kernel for Portable {
    #[inline(always)]
    fn mark_block(self, block: &[u8; BLOCK], delimiter: u8) -> BlockMarks {
        BlockMarks {
            delimiters: gather_bits(block, |byte| byte == delimiter),
            feeds: gather_bits(block, |byte| byte == LF),
            returns: gather_bits(block, |byte| byte == CR),
            quotes: gather_bits(block, |byte| byte == QUOTE),
            high: gather_bits(block, |byte| byte >= 0x80),
        }
    }

    #[inline(always)]
    fn prefix_xor(self, mut bits: u64) -> u64 {
        for shift in [1, 2, 4, 8, 16, 32] {
            bits ^= bits << shift;
        }
        bits
    }

    #[inline(always)]
    fn write_positions(self, bits: u64, base: u32, out: &mut [u32; BLOCK]) {
        bit_by_bit(bits, base, out);
    }
}

/// Works on every processor, for text in which a quote is a character.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unquoted;

impl Kernel for Unquoted {
    #[inline(always)]
    fn mark_block(self, block: &[u8; BLOCK], delimiter: u8) -> BlockMarks {
        BlockMarks { quotes: 0, ..Portable.mark_block(block, delimiter & !UNQUOTED) }
    }

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        Portable.prefix_xor(bits)
    }

    #[inline(always)]
    fn write_positions(self, bits: u64, base: u32, out: &mut [u32; BLOCK]) {
        Portable.write_positions(bits, base, out);
    }
}

/// One bit per byte. Written so that the compiler uses vector compares.
#[inline(always)]
fn gather_bits(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    // Gathers the lowest bit of each of eight bytes in the topmost byte of the product.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut hits = [0_u8; BLOCK];
    for (hit, &byte) in hits.iter_mut().zip(block) {
        *hit = u8::from(is(byte));
    }
    let mut bits = 0;
    for (i, eight) in hits.as_chunks::<8>().0.iter().enumerate() {
        bits |= (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) << (8 * i);
    }
    bits
}

/// Writes the positions of set bits, eight at a time, so that few branches depend on their number.
#[inline(always)]
pub(super) fn bit_by_bit(mut bits: u64, base: u32, out: &mut [u32; BLOCK]) {
    for eight in out.as_chunks_mut::<8>().0 {
        for place in eight {
            *place = base.wrapping_add(bits.trailing_zeros());
            bits &= bits.wrapping_sub(1);
        }
        if bits == 0 {
            return;
        }
    }
}

/// What is known about the bytes before a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanState {
    /// All bits are set inside quotes.
    inside: u64,
    /// Whether a quote at the first byte opens a field: 0 or 1, like the following fields.
    ready: u64,
    /// Whether the last byte is a CR that ends a record.
    ended: u64,
    /// Whether the last byte is a CR.
    returned: u64,
    /// Whether the last byte is a closing quote.
    closed: u64,
}

/// The fields and records that end in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cuts {
    /// Ends of fields; the LF of a CR LF is not one.
    pub(super) fields: u64,
    /// Ends of fields that also end a record.
    pub(super) records: u64,
    /// Terminators outside quotes, the LF of a CR LF included.
    pub(super) terminators: u64,
    /// Nonzero if a closing quote is followed by anything but the end of its field.
    pub(super) intricate: u64,
    /// Like `intricate`, except for doubled quotes.
    pub(super) torn: u64,
    /// Number of line terminators, also within quotes.
    pub(super) lines: u32,
}

impl ScanState {
    /// Returns the state at the start of a record.
    pub(super) fn at_record() -> Self {
        Self { inside: 0, ready: 1, ended: 0, returned: 0, closed: 0 }
    }

    /// Whether a quoted field is not closed yet.
    pub(super) fn is_inside(self) -> bool {
        self.inside != 0
    }

    /// Advances by one block.
    #[inline(always)]
    pub(super) fn advance_block<K: Kernel>(&mut self, kernel: K, marks: BlockMarks) -> Cuts {
        let terminators = marks.feeds | marks.returns;
        let breaks = marks.delimiters | terminators;
        let mut quotes = marks.quotes;
        let (inside, cuts) = loop {
            let inside = kernel.prefix_xor(quotes) ^ self.inside;
            let cuts = breaks & !inside;
            let ready = (cuts | quotes) << 1 | self.ready;
            let literal = quotes & inside & !ready;
            if literal == 0 {
                break (inside, cuts);
            }
            quotes &= !(literal & literal.wrapping_neg());
        };
        let closing = quotes & !inside;
        let ended = marks.returns & cuts;
        let fields = cuts & !((ended << 1 | self.ended) & marks.feeds);
        // Most files have none of them; the others have them in every block.
        let lone = if marks.returns | self.returned == 0 {
            0
        } else {
            let pairs = (marks.returns << 1 | self.returned) & marks.feeds;
            marks.returns.count_ones().wrapping_sub(pairs.count_ones())
        };
        let intricate = (closing << 1 | self.closed) & !breaks;
        let found = Cuts {
            fields,
            records: fields & terminators,
            terminators: cuts & terminators,
            intricate,
            torn: intricate & !marks.quotes,
            lines: marks.feeds.count_ones().wrapping_add(lone),
        };
        *self = Self {
            inside: if inside >> 63 == 0 { 0 } else { u64::MAX },
            ready: (cuts | quotes) >> 63,
            ended: ended >> 63,
            returned: marks.returns >> 63,
            closed: closing >> 63,
        };
        found
    }
}

/// The ends of fields and records.
#[derive(Debug, Default)]
pub(super) struct FieldIndex {
    /// Positions of the bytes that end fields; only the first `fields` count.
    pub(super) ends: Vec<u32>,
    pub(super) fields: usize,
    /// For each record, the number of `ends` up to its terminator; only the first `records` count.
    pub(super) marks: Vec<u32>,
    pub(super) records: usize,
    /// Line terminators so far.
    pub(super) lines: u64,
    /// Nonzero if a closing quote is followed by anything but the end of its field.
    pub(super) intricate: u64,
    /// Like `intricate`, except for doubled quotes.
    pub(super) torn: u64,
    /// Nonzero if there is a byte that is not ASCII.
    pub(super) high: u64,
}

impl FieldIndex {
    /// Ensures room for the fields and records of a batch.
    #[inline]
    fn make_room(&mut self) {
        for (places, used) in [(&mut self.ends, self.fields), (&mut self.marks, self.records)] {
            if places.len() < used + BATCH * BLOCK {
                places.resize(2 * used + 2 * BATCH * BLOCK, 0);
            }
        }
    }

    fn start_batch(&mut self) -> Batch<'_> {
        self.make_room();
        Batch {
            ends: &mut self.ends[self.fields..],
            marks: &mut self.marks[self.records..],
            before: to_u32(self.fields),
            found: BatchCounts::default(),
        }
    }

    /// Stores the results of a batch.
    fn go_on(&mut self, found: BatchCounts) {
        self.fields += found.fields;
        self.records += found.records;
        self.lines += u64::from(found.lines);
        self.intricate |= found.intricate;
        self.torn |= found.torn;
        self.high |= found.high;
    }

    /// Adds the end of a field, and of a record if `record`.
    pub(super) fn push_end(&mut self, end: u32, record: bool) {
        self.make_room();
        self.ends[self.fields] = end;
        self.fields += 1;
        if record {
            self.marks[self.records] = to_u32(self.fields);
            self.records += 1;
        }
    }

    /// Returns the position of the last terminator.
    pub(super) fn last_record(&self) -> Option<u32> {
        let mark = self.marks[..self.records].last()?;
        Some(self.ends[*mark as usize - 1])
    }

    /// Removes all records and the first fields; the fields after them belong to a record that is not complete yet.
    pub(super) fn drop_fields(&mut self, fields: usize) {
        self.ends.copy_within(fields..self.fields, 0);
        self.fields -= fields;
        self.records = 0;
    }

    /// Writes ends to `at` and after it, and repeats the last one up to `width` ends. Returns where they end.
    pub(super) fn fill_up(&mut self, ends: Range<usize>, at: usize, width: usize) -> usize {
        let found = ends.len();
        if self.ends.len() < at + width {
            self.ends.resize(at + width, 0);
        }
        let last = self.ends[ends.end - 1];
        self.ends.copy_within(ends, at);
        self.ends[at + found..at + width].fill(last);
        at + width
    }
}

/// What a few blocks add to an [`FieldIndex`], kept in registers.
struct Batch<'a> {
    ends: &'a mut [u32],
    marks: &'a mut [u32],
    /// Fields before the batch.
    before: u32,
    found: BatchCounts,
}

/// The result of a batch.
#[derive(Debug, Clone, Copy, Default)]
struct BatchCounts {
    fields: usize,
    records: usize,
    lines: u32,
    intricate: u64,
    torn: u64,
    high: u64,
}

impl Batch<'_> {
    #[inline(always)]
    fn add_block<K: Kernel>(&mut self, kernel: K, marks: BlockMarks, cuts: Cuts, base: u32) {
        if let Some(out) = self.ends.get_mut(self.found.fields..).and_then(|rest| rest.first_chunk_mut()) {
            kernel.write_positions(cuts.fields, base, out);
        }
        let mut records = cuts.records;
        if let Some(out) = self.marks.get_mut(self.found.records..).and_then(|rest| rest.first_chunk_mut::<BLOCK>()) {
            let before = self.before + to_u32(self.found.fields);
            for two in out.as_chunks_mut::<2>().0 {
                for place in two {
                    // All bits up to the lowest one.
                    let up_to = records ^ records.wrapping_sub(1);
                    *place = before + (cuts.fields & up_to).count_ones();
                    records &= records.wrapping_sub(1);
                }
                if records == 0 {
                    break;
                }
            }
        }
        self.found.fields += cuts.fields.count_ones() as usize;
        self.found.records += cuts.records.count_ones() as usize;
        self.found.lines = self.found.lines.wrapping_add(cuts.lines);
        self.found.intricate |= cuts.intricate;
        self.found.torn |= cuts.torn;
        self.found.high |= marks.high;
    }
}

/// Adds to `index` the fields and records of a range, which ends with `bytes` or is a whole number of blocks.
#[inline(always)]
pub(super) fn index_with<K: Kernel>(
    kernel: K,
    bytes: &[u8],
    range: Range<usize>,
    delimiter: u8,
    state: &mut ScanState,
    index: &mut FieldIndex,
) {
    let (blocks, tail) = bytes[range.clone()].as_chunks::<BLOCK>();
    let mut at = *state;
    let mut base = to_u32(range.start);
    for blocks in blocks.chunks(BATCH) {
        let mut batch = index.start_batch();
        for block in blocks {
            let marks = kernel.mark_block(block, delimiter);
            let cuts = at.advance_block(kernel, marks);
            batch.add_block(kernel, marks, cuts, base);
            base = base.wrapping_add(to_u32(BLOCK));
        }
        let found = batch.found;
        index.go_on(found);
    }
    if !tail.is_empty() {
        let marks = last_marks(kernel, tail, delimiter);
        let cuts = at.advance_block(kernel, marks);
        let mut batch = index.start_batch();
        batch.add_block(kernel, marks, cuts, base);
        let found = batch.found;
        index.go_on(found);
    }
    *state = at;
}

/// Returns the marks of less than a block.
#[inline(always)]
fn last_marks<K: Kernel>(kernel: K, tail: &[u8], delimiter: u8) -> BlockMarks {
    let mut block = [0; BLOCK];
    block[..tail.len()].copy_from_slice(tail);
    let BlockMarks { delimiters, feeds, returns, quotes, high } = kernel.mark_block(&block, delimiter);
    let there = u64::MAX.checked_shr(to_u32(BLOCK - tail.len())).unwrap_or(0);
    BlockMarks { delimiters: delimiters & there, feeds, returns, quotes, high }
}

/// Search for the end of a range.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeSearch {
    /// Number of bytes that were searched: whole blocks.
    pub(super) passed: usize,
    /// Number of records that end within these bytes, blank lines included.
    pub(super) records: usize,
    /// Whether the following are counted.
    counting: bool,
    /// Blank lines among them.
    blank: usize,
    /// Line terminators there, wherever they are.
    lines: u64,
    /// Whether a record begins with the next byte: 0 or 1.
    begins: u64,
    state: ScanState,
}

/// What a range consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Records that end with a terminator, without blank lines.
    pub(super) records: u64,
    /// Line terminators, where CR LF is one.
    pub(super) lines: u64,
    /// Whether a record that spans lines ended, or one without a terminator began.
    pub(super) intricate: bool,
}

impl RangeSearch {
    /// Returns a search at its start.
    pub(super) fn new() -> Self {
        Self { passed: 0, records: 0, counting: false, blank: 0, lines: 0, begins: 1, state: ScanState::at_record() }
    }

    /// The same, with what [`count_range`](Self::count_range) tells.
    pub(super) fn with_counts() -> Self {
        Self { counting: true, ..Self::new() }
    }

    #[inline(always)]
    fn pass_block(&mut self, cuts: Cuts, state: ScanState) {
        self.passed += BLOCK;
        self.records += cuts.records.count_ones() as usize;
        self.state = state;
        if self.counting {
            self.blank += (cuts.records & (cuts.terminators << 1 | self.begins)).count_ones() as usize;
            self.lines += u64::from(cuts.lines);
            self.begins = cuts.terminators >> 63;
        }
    }

    /// Counts what is in a range, which ends with `bytes`; nothing if the search has passed its end, or did not count.
    pub(super) fn count_range(mut self, bytes: &[u8], delimiter: u8) -> Option<Counts> {
        if !self.counting {
            return None;
        }
        let mut begins = self.begins;
        for block in bytes.get(self.passed..)?.chunks(BLOCK) {
            let mut state = self.state;
            let marks = match delimiter & UNQUOTED {
                0 => last_marks(Portable, block, delimiter),
                _ => last_marks(Unquoted, block, delimiter),
            };
            let cuts = state.advance_block(Portable, marks);
            begins = cuts.terminators >> (block.len() - 1) & 1;
            self.pass_block(cuts, state);
        }
        Some(Counts {
            records: (self.records - self.blank) as u64,
            lines: self.lines,
            intricate: self.lines != self.records as u64 || begins == 0,
        })
    }
}

/// Returns the first terminator at `target` or later that is outside quotes. The search never goes beyond the block
/// that contains it. Less than a block is searched only if `complete` states that no more bytes will come.
#[inline(always)]
pub(super) fn terminator_with<K: Kernel>(
    kernel: K,
    bytes: &[u8],
    target: usize,
    complete: bool,
    delimiter: u8,
    search: &mut RangeSearch,
) -> Option<usize> {
    let (blocks, tail) = bytes[search.passed..].as_chunks::<BLOCK>();
    let before = blocks.len().min(target.saturating_sub(search.passed) / BLOCK);
    let mut at = *search;
    for block in &blocks[..before] {
        let mut state = at.state;
        let cuts = state.advance_block(kernel, kernel.mark_block(block, delimiter));
        at.pass_block(cuts, state);
    }
    let wanted = |passed: usize, cuts: Cuts| {
        let found = cuts.terminators & (u64::MAX << target.saturating_sub(passed).min(BLOCK - 1));
        (found != 0).then(|| passed + found.trailing_zeros() as usize)
    };
    let mut found = None;
    for block in &blocks[before..] {
        let mut state = at.state;
        let cuts = state.advance_block(kernel, kernel.mark_block(block, delimiter));
        found = wanted(at.passed, cuts);
        if found.is_some() {
            break;
        }
        at.pass_block(cuts, state);
    }
    *search = at;
    if found.is_none() && complete && target < bytes.len() {
        found = wanted(at.passed, at.state.advance_block(kernel, last_marks(kernel, tail, delimiter)));
    }
    found
}

#[expect(clippy::cast_possible_truncation, reason = "ranges are shorter than 4 GiB")]
pub(super) fn to_u32(position: usize) -> u32 {
    position as u32
}
