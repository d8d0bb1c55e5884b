//! Parser of numbers in place, eight digits at a time and without a loop whose end a branch predictor would have to
//! guess.
//!
//! Eight bytes are one little-endian word. Bytes after the digits are shifted out at the top, and zeros are shifted in
//! at the bottom, so that all lengths are handled alike:
//!
//! ```text
//! source    '8' '0' '.' '5' ',' '"' 's' 'b'
//! no point  38 30 35 2c 22 73 62 00          (lowest byte first)
//! aligned   00 00 00 00 00 08 00 05          then added up: pairs, fours, eight
//! ```
//!
//! Nothing is rounded twice: a float is made from an integer below 2^53 and a power of ten below 10^23, both exact, in
//! one division. Any other number is passed to the parser that [`token`] uses. The caller must check what follows a
//! number: `12` is found in `12.5` and in `12e3`.

use super::token::{self, Number};

const ZEROS: u64 = 0x3030_3030_3030_3030;
const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;

/// Powers of ten that a float holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
const WHOLE_POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Number of digits that always fit 64 bits.
const MAX_DIGITS: usize = 19;

/// Up to eight digits followed by something else.
#[derive(Debug, Clone, Copy)]
struct DigitWord {
    /// The bytes with the value of each digit instead of its character.
    digits: u64,
    /// Number of leading digits.
    count: usize,
}

impl DigitWord {
    #[inline(always)]
    fn from_text(text: &[u8]) -> Option<Self> {
        Some(Self::new(u64::from_le_bytes(*text.first_chunk()?)))
    }

    #[inline(always)]
    fn new(bytes: u64) -> Self {
        let digits = bytes ^ ZEROS;
        // The lowest byte that is not a digit is marked exactly; false marks appear only above it.
        let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & HIGHEST_BITS;
        Self { digits, count: others.trailing_zeros() as usize / 8 }
    }

    /// Returns the value of the digits; zero if there are none.
    #[inline(always)]
    fn to_u64(self) -> u64 {
        // In two steps, because a word cannot be shifted by all of its 64 bits.
        let aligned = self.digits << (32 - 4 * self.count) << (32 - 4 * self.count);
        let pairs = aligned.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
        let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
        fours.wrapping_mul(10_000 << 32 | 1) >> 32
    }

    /// Whether these are the digits of a whole number: at least one, and no leading zero.
    #[inline(always)]
    fn is_whole(self) -> bool {
        // Without branches, which would be as unpredictable as the number of digits.
        (self.count > 0) & ((self.count == 1) | (self.digits & 0xff != 0))
    }
}

/// Returns the integer of up to seven digits at the start of `text`, and its length.
#[inline(always)]
pub(super) fn short_integer(text: &[u8]) -> Option<(i64, usize)> {
    let sign = usize::from(*text.first()? == b'-');
    let word = DigitWord::from_text(&text[sign..])?;
    let value = word.to_u64().cast_signed();
    let minus_zero = value == 0 && sign > 0;
    if !word.is_whole() || word.count == 8 || minus_zero {
        return None;
    }
    Some((if sign == 0 { value } else { -value }, sign + word.count))
}

/// Returns the integer at the start of `text`, and its length.
pub(super) fn parse_integer(text: &[u8]) -> Option<(i64, usize)> {
    let sign = usize::from(*text.first()? == b'-');
    let (first, rest) = (DigitWord::from_text(&text[sign..])?, DigitWord::from_text(text.get(sign + 8..)?)?);
    if first.is_whole() && first.count == 8 && rest.count < 8 {
        let value = (first.to_u64() * WHOLE_POWERS[rest.count] + rest.to_u64()).cast_signed();
        return Some((if sign == 0 { value } else { -value }, sign + 8 + rest.count));
    }
    match parse_any(text)? {
        (Number::Int(value), length) => Some((value, length)),
        _ => None,
    }
}

/// The number at the start of `text` and its length, if it has up to seven digits and no exponent.
#[inline(always)]
pub(super) fn short_float(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(*text.first()? == b'-');
    let bytes = u64::from_le_bytes(*text[sign..].first_chunk()?);
    let whole = DigitWord::new(bytes);
    if !whole.is_whole() || whole.count == 8 {
        return None;
    }
    let (number, decimals) = if bytes.to_le_bytes()[whole.count & 7] == b'.' {
        let before = (1 << (8 * whole.count)) - 1;
        // Seven bytes and a zero.
        let all = DigitWord::new((bytes & before) | ((bytes >> 8) & !before));
        (all, all.count - whole.count)
    } else {
        (whole, 0)
    };
    let length = sign + number.count + usize::from(decimals > 0);
    let next = *text.get(length)?;
    let goes_on = next.is_ascii_digit() | (next | 0x20 == b'e') | (next == b'.');
    (!goes_on).then(|| (signed_decimal(number.to_u64(), decimals, sign), length))
}

/// Returns the number at the start of `text` as a float, if one holds it, and its length.
pub(super) fn parse_float(text: &[u8]) -> Option<(f64, usize)> {
    parse_decimal(text).or_else(|| match parse_any(text)? {
        (Number::Float(value), length) => Some((value, length)),
        (Number::Int(value), length) => Some((token::exact_float(value)?, length)),
        (Number::Exact, _) => None,
    })
}

/// Parses a number of up to seven digits before the point and some after it, without an exponent.
fn parse_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(*text.first()? == b'-');
    let whole = DigitWord::from_text(&text[sign..])?;
    let point = sign + whole.count;
    if !whole.is_whole() || whole.count == 8 || text.get(point) != Some(&b'.') {
        return None;
    }
    let (mut value, mut at) = (whole.to_u64(), point + 1);
    loop {
        let word = DigitWord::from_text(text.get(at..)?)?;
        // A value that overflowed is not used.
        value = value.wrapping_mul(WHOLE_POWERS[word.count]).wrapping_add(word.to_u64());
        at += word.count;
        if word.count < 8 {
            break;
        }
    }
    let decimals = at - point - 1;
    if decimals == 0 || matches!(text.get(at), Some(b'e' | b'E')) {
        return None;
    }
    if whole.count + decimals <= MAX_DIGITS && value < 1 << 53 {
        return Some((signed_decimal(value, decimals, sign), at));
    }
    fast_float2::parse::<f64, _>(&text[..at]).ok().map(|value| (value, at))
}

#[inline(always)]
fn signed_decimal(value: u64, decimals: usize, sign: usize) -> f64 {
    let value = value as f64 / POWERS[decimals];
    if sign == 0 { value } else { -value }
}

/// Parses any number at the start of `text`.
fn parse_any(text: &[u8]) -> Option<(Number, usize)> {
    let length = number_length(text)?;
    Some((token::parse_number(std::str::from_utf8(&text[..length]).ok()?), length))
}

/// Returns the length of the number at the start of `text`: `-? (0 | [1-9][0-9]*) (\.[0-9]+)? ([eE][+-]?[0-9]+)?`
pub(super) fn number_length(text: &[u8]) -> Option<usize> {
    let digits = |at: usize| text.get(at..).map_or(0, |rest| rest.iter().take_while(|b| b.is_ascii_digit()).count());
    let mut at = usize::from(*text.first()? == b'-');
    match digits(at) {
        0 => return None,
        count if count > 1 && text[at] == b'0' => return None,
        count => at += count,
    }
    if text.get(at) == Some(&b'.') {
        match digits(at + 1) {
            0 => return None,
            count => at += 1 + count,
        }
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        match digits(at) {
            0 => return None,
            count => at += count,
        }
    }
    Some(at)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the number of a whole text, if it is one in JSON.
    fn expected(text: &str) -> Option<Number> {
        serde_json::from_str::<&serde_json::value::RawValue>(text).ok()?;
        Some(token::parse_number(text))
    }

    fn check(text: &str) -> Result<(), TestCaseError> {
        let behind = format!("{text},\"more than a word of eight\"");
        let bytes = behind.as_bytes();
        let whole = |found: Option<usize>| found == Some(text.len());
        let number = expected(text);
        prop_assert_eq!(whole(number_length(bytes)), number.is_some(), "{}", text);
        let float = match number {
            Some(Number::Float(value)) => Some(value),
            Some(Number::Int(value)) => token::exact_float(value),
            _ => None,
        };
        for found in [short_float(bytes), super::parse_float(bytes)].into_iter().flatten() {
            if whole(Some(found.1)) {
                prop_assert_eq!(Some(found.0.to_bits()), float.map(f64::to_bits), "{}", text);
            }
        }
        prop_assert_eq!(whole(super::parse_float(bytes).map(|f| f.1)), float.is_some(), "{}", text);
        let int = if let Some(Number::Int(value)) = number { Some(value) } else { None };
        for found in [short_integer(bytes), parse_integer(bytes)].into_iter().flatten() {
            if whole(Some(found.1)) {
                prop_assert_eq!(Some(found.0), int, "{}", text);
            }
        }
        prop_assert_eq!(whole(parse_integer(bytes).map(|f| f.1)), int.is_some(), "{}", text);
        Ok(())
    }

    #[test]
    fn numbers_at_the_edges_are_exact() {
        for text in [
            "0",
            "-0",
            "00",
            "-00.5",
            "01",
            "0.",
            ".5",
            "-",
            "1.e5",
            "1e",
            "1e+",
            "9999999",
            "99999999",
            "999999.9",
            "9007199254740992",
            "9007199254740993",
            "900719925474099.3",
            "9007199.254740993",
            "0.000000000000001",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "1e22",
            "1e23",
            "123456.7e3",
            "1.2.3",
            "9999999.999999999999999",
            "0.9999999999999999999",
            "123456789012345",
            "12345678901234567",
        ] {
            check(text).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

        #[test]
        fn numbers_are_those_of_the_general_parser(text in "-?[0-9]{1,20}(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?") {
            check(&text)?;
        }

        #[test]
        fn texts_like_numbers_agree_with_the_reference(text in "[-+.eE0-9]{1,20}") {
            check(&text)?;
        }

        #[test]
        fn floats_are_what_their_shortest_text_says(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
            check(&format!("{value:?}"))?;
            check(&format!("{value:e}"))?;
        }

        #[test]
        fn decimals_are_rounded_once(value in 0..10_000_000_000_000_000u64, places in 0..17usize) {
            let digits = format!("{value:0width$}", width = places + 1);
            let (whole, decimals) = digits.split_at(digits.len() - places);
            check(&if places == 0 { whole.to_owned() } else { format!("{whole}.{decimals}") })?;
        }
    }
}
