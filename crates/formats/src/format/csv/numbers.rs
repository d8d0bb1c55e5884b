//! Parses many short numbers and times at once: each value is at the end of a word, and there are no branches between
//! them.
//!
//! ```text
//! text      ... , 3 6 . 9 9 , ...
//! word      x x , 3 6 . 9 9        eight bytes, the last one topmost; length 5
//! digits    0 0 0 0 3 6 9 9        others masked out, point taken out
//! number    3699, then divided by the power of ten that belongs to the place of the point
//! ```
//!
//! Everything is arithmetic on words, so that the compiler can use vector instructions: eight numbers at a time if
//! [`simd`](super::simd) finds AVX-512. Texts that are longer, quoted or not such a number are reported as not parsed
//! and left to [`value`](super::value), with which everything here agrees.

/// Number of texts of a group.
pub(super) const GROUP: usize = 64;

const ZEROS: u64 = 0x3030_3030_3030_3030;
const POINTS: u64 = 0x2e2e_2e2e_2e2e_2e2e;
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;
const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;

/// Texts of up to eight bytes.
#[derive(Debug)]
pub(super) struct TextGroup {
    /// For each text, the eight bytes that end with it, the last one topmost.
    pub(super) words: [u64; GROUP],
    /// Lengths of the texts, from 0 to 8.
    pub(super) lengths: [u64; GROUP],
}

impl TextGroup {
    pub(super) fn new() -> Self {
        Self { words: [0; GROUP], lengths: [0; GROUP] }
    }
}

/// Parses whole numbers as [`value::int64`](super::value::parse_int64) does. A bit of the result is set if the text is
/// one; otherwise the number is zero.
#[inline(always)]
pub(super) fn integers_with(group: &TextGroup, numbers: &mut [i64; GROUP]) -> u64 {
    let mut good = [0; GROUP];
    for i in 0..GROUP {
        let (word, length) = (group.words[i], group.lengths[i]);
        let negative = u64::from(byte_from_end(word, length) == u64::from(b'-')) & u64::from(length > 0);
        let count = length.wrapping_sub(negative);
        let mask = top_mask(count);
        let digits = (word ^ ZEROS) & mask;
        let magnitude = add_up(digits);
        let leading_zero = u64::from(count > 1) & u64::from(byte_from_end(word, count) == u64::from(b'0'));
        let no_zero = negative & u64::from(magnitude == 0);
        let fine = u64::from(nondigit_bits(digits) == 0) & u64::from(count > 0) & !leading_zero & !no_zero;
        let sign = 0_u64.wrapping_sub(negative);
        numbers[i] = (((magnitude ^ sign).wrapping_sub(sign)) & 0_u64.wrapping_sub(fine)).cast_signed();
        good[i] = fine;
    }
    pack_bits(&good)
}

/// Parses numbers as [`value::float64`](super::value::parse_float64) does. Returns bits as [`integers_with`] does.
#[inline(always)]
pub(super) fn floats_with(group: &TextGroup, numbers: &mut [f64; GROUP]) -> u64 {
    let mut good = [0; GROUP];
    let mut mantissas = [0_i64; GROUP];
    let mut powers = [0_u8; GROUP];
    let mut signs = [0_u64; GROUP];
    for i in 0..GROUP {
        let (word, length) = (group.words[i], group.lengths[i]);
        let negative = u64::from(byte_from_end(word, length) == u64::from(b'-')) & u64::from(length > 0);
        let count = length.wrapping_sub(negative);
        let mask = top_mask(count);
        let text = (word & mask) | (ZEROS & !mask);
        // The lowest byte that becomes zero is marked exactly; false marks appear only above it.
        let other = text ^ POINTS;
        let marks = other.wrapping_sub(LOWEST_BITS) & !other & HIGHEST_BITS;
        let point = marks & marks.wrapping_neg();
        let below = (point >> 7).wrapping_sub(1);
        // Without a point, all bytes are kept.
        let has_point = u64::from(point != 0);
        let shift = 8 * has_point;
        let above = !below << shift;
        let digits = ((text & above) | ((text & below) << shift) | (u64::from(b'0') * has_point)) ^ ZEROS;
        let second = byte_from_end(word, count.wrapping_sub(1));
        let zero = u64::from(byte_from_end(word, count) == u64::from(b'0')) & u64::from(second != u64::from(b'.'));
        let leading_zero = u64::from(count > 1) & zero;
        let fine = u64::from(nondigit_bits(digits) == 0) & u64::from(count > has_point) & !leading_zero;
        mantissas[i] = (add_up(digits) & 0_u64.wrapping_sub(fine)).cast_signed();
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let place = below.count_ones() as u8;
        powers[i] = place;
        signs[i] = (negative & fine) << 63;
        good[i] = fine;
    }
    for i in 0..GROUP {
        // Both operands are exact, so one operation gives the nearest number (W. D. Clinger).
        let value = mantissas[i] as f64 / POWERS[usize::from(powers[i] / 8) & 15];
        numbers[i] = f64::from_bits(value.to_bits() ^ signs[i]);
    }
    pack_bits(&good)
}

/// Texts of the form `YYYY-MM-DD HH:MM:SS`, with a space or a `T` between date and time.
#[derive(Debug)]
pub(super) struct Moments {
    /// `YYYY-MM-`
    pub(super) months: [u64; GROUP],
    /// `DD HH:MM`
    pub(super) days: [u64; GROUP],
    /// `HH:MM:SS`
    pub(super) times: [u64; GROUP],
}

impl Moments {
    pub(super) fn new() -> Self {
        Self { months: [0; GROUP], days: [0; GROUP], times: [0; GROUP] }
    }

    /// Sets a text.
    #[inline(always)]
    pub(super) fn set_text(&mut self, i: usize, text: &[u8; 19]) {
        let word = |at: usize| text[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (self.months[i], self.days[i], self.times[i]) = (word(0), word(8), word(11));
    }
}

/// Parses timestamps to microseconds as [`value::timestamp`](super::value::parse_timestamp) does. Returns bits as
/// [`integers_with`] does.
#[inline(always)]
pub(super) fn timestamps_with(moments: &Moments, micros: &mut [i64; GROUP]) -> u64 {
    let mut good = [0; GROUP];
    for i in 0..GROUP {
        let months = moments.months[i] ^ u64::from_le_bytes(*b"0000-00-");
        let apart = moments.days[i] >> 16 & 0xff;
        let days = moments.days[i] & 0xffff ^ u64::from_le_bytes(*b"00\0\0\0\0\0\0");
        let times = moments.times[i] ^ u64::from_le_bytes(*b"00:00:00");
        // Digits may be at most 9, all other bytes must be zero.
        let strange = (months.wrapping_add(0x7f76_767f_7676_7676) | months)
            | (days.wrapping_add(0x7676) | days)
            | (times.wrapping_add(0x7676_7f76_767f_7676) | times);
        let pairs = |digits: u64| digits.wrapping_mul(10 << 8 | 1) >> 8;
        let (date, day, time) = (pairs(months), pairs(days) & 0xff, pairs(times));
        let (century, month) = (date & 0xff, date >> 40 & 0xff);
        let year = century * 100 + (date >> 16 & 0xff);
        let (hours, minutes, seconds) = (time & 0xff, time >> 24 & 0xff, time >> 48 & 0xff);
        // Conditions are the highest bits of differences, because comparisons would not become vector instructions.
        let is_zero = |value: u64| value.wrapping_sub(1) >> 63;
        let leap = is_zero(year & 3) & (is_zero(century & 3) | (is_zero(date >> 16 & 0xff) ^ 1));
        let longest = (30 + ((month + (month >> 3)) & 1)).wrapping_sub(is_zero(month ^ 2) * (2 - leap));
        let separator = (apart ^ u64::from(b' ')).wrapping_mul(apart ^ u64::from(b'T'));
        let least = year.wrapping_sub(1) | month.wrapping_sub(1) | day.wrapping_sub(1);
        let most = 12_u64.wrapping_sub(month) | longest.wrapping_sub(day);
        let clock = 23_u64.wrapping_sub(hours) | 59_u64.wrapping_sub(minutes) | 59_u64.wrapping_sub(seconds);
        let odd = 0_u64.wrapping_sub((strange & HIGHEST_BITS) >> 7) | 0_u64.wrapping_sub(separator);
        let fine = (least | most | clock | odd) >> 63 ^ 1;
        // Years that start in March have their leap day last; 719468 days lie between 0000-03-01 and 1970-01-01.
        let early = month.wrapping_sub(3) >> 63;
        let year = year.wrapping_sub(early);
        let century = year.wrapping_mul(5243) >> 19;
        let month = month.wrapping_add(12 * early).wrapping_sub(3);
        // Divides by five, by multiplication.
        let before = (month.wrapping_mul(153).wrapping_add(2)).wrapping_mul(52_429) >> 18;
        let days = year.wrapping_mul(365).wrapping_add(year >> 2).wrapping_sub(century).wrapping_add(century >> 2);
        let days = days.wrapping_add(before).wrapping_add(day).wrapping_sub(719_469);
        let seconds = days.wrapping_mul(86_400).wrapping_add(hours * 3600 + minutes * 60 + seconds);
        micros[i] = (seconds.wrapping_mul(1_000_000) & 0_u64.wrapping_sub(fine)).cast_signed();
        good[i] = fine;
    }
    pack_bits(&good)
}

/// Divisors by the position of the point from the left among eight bytes; 8 if there is none.
const POWERS: [f64; 16] = [1e7, 1e6, 1e5, 1e4, 1e3, 1e2, 1e1, 1e0, 1e0, 0., 0., 0., 0., 0., 0., 0.];

/// Returns the byte `length` before the end of a word; any byte if the length is zero.
#[inline(always)]
fn byte_from_end(word: u64, length: u64) -> u64 {
    word >> (64_u64.wrapping_sub(length.wrapping_mul(8)) & 63) & 0xff
}

/// Returns a mask of the topmost bytes; `length` is 0 to 8.
#[inline(always)]
fn top_mask(length: u64) -> u64 {
    let half = 32_u64.wrapping_sub(length.wrapping_mul(4)) & 63;
    u64::MAX << half << half
}

/// Returns nonzero if there is anything but digits, from which the code of zero was subtracted.
#[inline(always)]
fn nondigit_bits(digits: u64) -> u64 {
    (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & HIGHEST_BITS
}

/// Returns the number that eight digits represent: adds up pairs, fours, and all.
#[inline(always)]
fn add_up(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

#[inline(always)]
fn pack_bits(good: &[u64; GROUP]) -> u64 {
    let mut bits = 0;
    for (i, good) in good.iter().enumerate() {
        bits |= (good & 1) << i;
    }
    bits
}
