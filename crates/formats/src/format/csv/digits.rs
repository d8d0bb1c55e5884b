//! Parses up to eight decimal digits at once, without a loop whose end no branch predictor could foresee.
//!
//! A text of up to eight bytes is one little-endian word, made of two overlapping loads. It is shifted to the top and
//! padded with zeros, so that every length looks the same:
//!
//! ```text
//! text      '1' '2' '.' '5'
//! word      31 32 2e 35 00 00 00 00   (lowest byte first)
//! no point  31 32 35 00 00 00 00 00
//! aligned   30 30 30 30 30 31 32 35   then added up: pairs, fours, eight
//! ```

/// Maximum length of a text, in bytes.
const MAX_BYTES: usize = 16;
const ZEROS: u64 = 0x3030_3030_3030_3030;
const POINTS: u64 = 0x2e2e_2e2e_2e2e_2e2e;
const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;
const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;

/// Returns the number that one to sixteen digits represent; `None` for any other text.
#[inline]
pub(super) fn parse_whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > MAX_BYTES {
        return None;
    }
    match text.split_last_chunk::<8>() {
        None | Some(([], _)) => parse_word(load_word(text), text.len()),
        Some((first, last)) => {
            Some(parse_word(load_word(first), first.len())? * 100_000_000 + parse_word(u64::from_le_bytes(*last), 8)?)
        }
    }
}

/// Parses digits with a decimal point: returns the number without the point, and the number of digits after it. `None`
/// for texts of more than sixteen bytes and for any other text, digits without a point included.
#[inline]
pub(super) fn with_point(text: &[u8]) -> Option<(u64, usize)> {
    if text.len() < 2 || text.len() > MAX_BYTES {
        return None;
    }
    if text.len() > 8 {
        return long_with_point(text);
    }
    let word = load_word(text);
    let before = point_position(word);
    if before >= text.len() {
        return None;
    }
    let below = (1 << (8 * before)) - 1;
    let digits = (word & below) | ((word >> 8) & !below);
    Some((parse_word(digits, text.len() - 1)?, text.len() - 1 - before))
}

#[inline]
fn long_with_point(text: &[u8]) -> Option<(u64, usize)> {
    let before = match point_position(u64::from_le_bytes(*text.first_chunk()?)) {
        8 => text.len() - 8 + point_position(u64::from_le_bytes(*text.last_chunk()?)),
        before => before,
    };
    if before == text.len() {
        return None;
    }
    let (first, last) = (&text[..before], &text[before + 1..]);
    let part = |digits: &[u8]| if digits.is_empty() { Some(0) } else { parse_whole(digits) };
    Some((part(first)? * POWERS[last.len()] + part(last)?, last.len()))
}

/// Powers of ten.
const POWERS: [u64; MAX_BYTES] = {
    let mut powers = [1; MAX_BYTES];
    let mut i = 1;
    while i < MAX_BYTES {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// Loads one to eight bytes as a little-endian word.
#[inline]
fn load_word(text: &[u8]) -> u64 {
    if let Some(all) = text.first_chunk::<8>() {
        u64::from_le_bytes(*all)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (text.len() - 4))
    } else {
        text.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }
}

/// Returns the position of the first point, or 8.
#[inline]
fn point_position(word: u64) -> usize {
    // The lowest byte that becomes zero is marked exactly; false marks appear only above it.
    let other = word ^ POINTS;
    (other.wrapping_sub(LOWEST_BITS) & !other & HIGHEST_BITS).trailing_zeros() as usize / 8
}

/// Returns the number that the lowest `length` bytes represent, if all are digits; `length` is 1 to 8.
#[inline]
fn parse_word(word: u64, length: usize) -> Option<u64> {
    let free = 8 * (8 - length);
    let digits = (word << free | ZEROS & ((1 << free) - 1)) ^ ZEROS;
    let strange = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & HIGHEST_BITS;
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    (strange == 0).then(|| fours.wrapping_mul(10_000 << 32 | 1) >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whole_numbers_agree_with_the_standard_library(text in "[0-9]{0,18}") {
            let expected = text.parse::<u64>().ok().filter(|_| text.len() <= MAX_BYTES);
            prop_assert_eq!(parse_whole(text.as_bytes()), expected);
        }

        #[test]
        fn decimal_points_are_removed(before in "[0-9]{0,9}", after in "[0-9]{0,9}") {
            let text = format!("{before}.{after}");
            let digits = before.clone() + &after;
            let expected = digits.parse().ok().filter(|_| text.len() <= MAX_BYTES).map(|n: u64| (n, after.len()));
            prop_assert_eq!(with_point(text.as_bytes()), expected);
        }

        #[test]
        fn anything_else_is_refused(text in proptest::collection::vec(any::<u8>(), 0..20)) {
            let digits = text.iter().all(u8::is_ascii_digit);
            let points = text.iter().filter(|b| **b == b'.').count();
            let others = text.iter().filter(|b| !b.is_ascii_digit()).count();
            let fits = (1..=MAX_BYTES).contains(&text.len());
            prop_assert_eq!(parse_whole(&text).is_some(), digits && fits);
            prop_assert_eq!(with_point(&text).is_some(), fits && points == 1 && others == 1 && text.len() > 1);
        }

        #[test]
        fn a_single_other_byte_is_refused(mut text in "[0-9]{1,16}".prop_map(String::into_bytes), at in 0usize..16,
            byte: u8) {
            let at = at % text.len();
            text[at] = byte;
            prop_assert_eq!(parse_whole(&text).is_some(), byte.is_ascii_digit());
        }
    }
}
