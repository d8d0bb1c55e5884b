//! The meaning of a text: the only place that decides which texts are numbers, dates and so on.
//!
//! Typing is lossless. A text is a number only in the form in which that number would be written, so `007` and `+5` and
//! ` 5` stay text. The grammar:
//!
//! ```text
//! boolean    true | false | True | False | TRUE | FALSE
//! int64      -?(0|[1-9][0-9]*), not -0, that fits
//! float64    -?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)? with a digit before the exponent, finite
//!            NaN | nan | -?inf | -?Inf | -?Infinity
//!            without point and exponent only if the number is exact in 64 bits
//! date32     YYYY-MM-DD                              a day of the Gregorian calendar, years 0001 to 9999
//! timestamp  YYYY-MM-DD[ T]HH:MM:SS[.f], f of 1 to 6 digits
//! instant    a timestamp followed by Z, +-HH:MM or +-HHMM
//! ```
//!
//! If the user set the type of a column, its numbers may also have surrounding spaces, a plus sign or leading zeros.

use arrow::datatypes::{DataType, Field, TimeUnit};

use super::digits;
use crate::{
    record::{civil, typed},
    schema,
};

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// The type of a value, or of a column as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Null,
    Boolean,
    Int64,
    Float64,
    Date32,
    Timestamp,
    Instant,
    Text,
}

impl ValueKind {
    /// Returns the kind of a value. Agrees with the parsers below: exactly one of them accepts it, or two if it is
    /// `Int64`.
    pub(super) fn from_text(text: &[u8]) -> Self {
        match text.first() {
            Some(b'0'..=b'9' | b'-' | b'.') => {
                if parse_int64(text).is_some() {
                    Self::Int64
                } else if parse_float64(text).is_some() {
                    Self::Float64
                } else if parse_date32(text).is_some() {
                    Self::Date32
                } else if parse_timestamp(text).is_some() {
                    Self::Timestamp
                } else if parse_instant(text).is_some() {
                    Self::Instant
                } else {
                    Self::Text
                }
            }
            Some(b'N' | b'n' | b'I' | b'i') if parse_float64(text).is_some() => Self::Float64,
            Some(b'T' | b't' | b'F' | b'f') if parse_boolean(text).is_some() => Self::Boolean,
            _ => Self::Text,
        }
    }

    /// Returns the kind that can represent the values of both, as [`schema::unite_fields`] does.
    pub(super) fn unite(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Null, b) => b,
            (a, Self::Null) => a,
            (Self::Int64, Self::Float64) | (Self::Float64, Self::Int64) => Self::Float64,
            _ => Self::Text,
        }
    }

    /// Whether a column of this kind accepts the value unchanged; cheaper than [`from_text`](Self::from_text).
    #[inline]
    pub(super) fn accepts_value(self, text: &[u8]) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean => parse_boolean(text).is_some(),
            Self::Int64 => parse_int64(text).is_some(),
            Self::Float64 => parse_float64(text).is_some(),
            Self::Date32 => parse_date32(text).is_some(),
            Self::Timestamp => parse_timestamp(text).is_some(),
            Self::Instant => parse_instant(text).is_some(),
            Self::Text => true,
        }
    }

    /// Returns the type in a schema.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Null => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Date32 => DataType::Date32,
            Self::Timestamp => schema::TIMESTAMP,
            Self::Instant => schema::instant_type(),
            Self::Text => DataType::Utf8,
        }
    }
}

/// Returns the name of a type for messages.
pub(super) fn type_name(field: &Field) -> String {
    match field.data_type() {
        DataType::Utf8 if schema::is_json(field) => "json".to_owned(),
        DataType::Utf8 => "text".to_owned(),
        DataType::Date32 => "date (YYYY-MM-DD)".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp (YYYY-MM-DD HH:MM:SS)".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp with zone (YYYY-MM-DDTHH:MM:SSZ)".to_owned(),
        _ => typed::describe_type(field),
    }
}

/// Parses a boolean.
pub(super) fn parse_boolean(text: &[u8]) -> Option<bool> {
    match text {
        b"true" | b"True" | b"TRUE" => Some(true),
        b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// Parses a whole number in its usual form.
#[inline]
pub(super) fn parse_int64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = strip_sign(text);
    let magnitude = digits_of(digits)?;
    if negative {
        // Negative zero is not accepted: an integer could not preserve it.
        if magnitude == 0 { None } else { 0_i64.checked_sub_unsigned(magnitude) }
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Parses a whole number that is not negative, in its usual form.
#[inline]
pub(super) fn parse_uint64(text: &[u8]) -> Option<u64> {
    match digits_of(text) {
        // Twenty digits are too many for the loop, but may still fit.
        None if text.len() == 20 && text[0] != b'0' && text.iter().all(u8::is_ascii_digit) => {
            text.iter().try_fold(0_u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')))
        }
        value => value,
    }
}

#[inline]
fn strip_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    }
}

/// Parses one to nineteen digits without leading zeros.
#[inline]
fn digits_of(digits: &[u8]) -> Option<u64> {
    if digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    if digits.len() > 16 { long_digits(digits) } else { digits::parse_whole(digits) }
}

#[cold]
fn long_digits(digits: &[u8]) -> Option<u64> {
    let (first, rest) = digits.split_at(digits.len().min(16));
    if rest.len() > 3 {
        return None;
    }
    Some(
        digits::parse_whole(first)? * [1, 10, 100, 1000][rest.len()]
            + if rest.is_empty() { 0 } else { digits::parse_whole(rest)? },
    )
}

/// Powers of ten that are exact.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Parses a floating-point number in its usual form.
#[inline]
pub(super) fn parse_float64(text: &[u8]) -> Option<f64> {
    let (negative, rest) = strip_sign(text);
    // Both operands are exact, so one operation gives the nearest number (W. D. Clinger).
    let value = match digits::with_point(rest) {
        Some((mantissa, fraction)) if rest[0] != b'0' || rest[1] == b'.' => mantissa as f64 / POWERS[fraction],
        Some(_) => return None,
        None => return any_length(text),
    };
    Some(if negative { -value } else { value })
}

/// Parses a number of any length by the full grammar.
fn any_length(text: &[u8]) -> Option<f64> {
    let (negative, rest) = strip_sign(text);
    let mut at = 0;
    let mut mantissa = 0_u64;
    while let Some(digit) = digit_at(rest, at) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
        at += 1;
    }
    let whole = at;
    if whole > 1 && rest[0] == b'0' {
        return None;
    }
    let mut fraction = 0;
    let point = rest.get(at) == Some(&b'.');
    if point {
        at += 1;
        while let Some(digit) = digit_at(rest, at) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
            at += 1;
            fraction += 1;
        }
    }
    if whole + fraction == 0 {
        return not_finite(text);
    }
    let plain = at == rest.len();
    if !plain && !is_exponent(&rest[at..]) {
        return None;
    }
    if plain && whole + fraction <= 15 && fraction < POWERS.len() {
        let value = mantissa as f64 / POWERS[fraction];
        return Some(if negative { -value } else { value });
    }
    let value: f64 = fast_float2::parse(text).ok()?;
    (value.is_finite() && (!plain || point || is_exact(value, rest))).then_some(value)
}

/// Parses any number, even a whole number that is too long to be exact: for columns whose types the user set.
pub(super) fn any_float64(text: &[u8]) -> Option<f64> {
    parse_float64(text).or_else(|| text.last()?.is_ascii_digit().then(|| fast_float2::parse(text).ok())?)
}

/// Parses any number to single precision, for columns whose types the user set.
pub(super) fn any_float32(text: &[u8]) -> Option<f32> {
    let wide = any_float64(text)?;
    let narrow: f32 = fast_float2::parse(text).ok()?;
    (narrow.is_finite() || !wide.is_finite()).then_some(narrow)
}

#[inline]
fn digit_at(text: &[u8], at: usize) -> Option<u64> {
    let digit = text.get(at)?.wrapping_sub(b'0');
    (digit <= 9).then_some(u64::from(digit))
}

fn not_finite(text: &[u8]) -> Option<f64> {
    match text {
        b"NaN" | b"nan" => Some(f64::NAN),
        b"inf" | b"Inf" | b"Infinity" => Some(f64::INFINITY),
        b"-inf" | b"-Inf" | b"-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn is_exponent(text: &[u8]) -> bool {
    let digits = match text {
        [b'e' | b'E', b'+' | b'-', digits @ ..] | [b'e' | b'E', digits @ ..] => digits,
        _ => return false,
    };
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Whether the number is exactly what the digits represent.
fn is_exact(value: f64, digits: &[u8]) -> bool {
    digits.len() <= 15 || format!("{:.0}", value.abs()).as_bytes() == digits
}

/// Parses a date to days since 1970-01-01.
#[inline]
pub(super) fn parse_date32(text: &[u8]) -> Option<i32> {
    parse_days(text.try_into().ok()?)
}

/// Parses a timestamp without zone to microseconds since 1970-01-01.
#[inline]
pub(super) fn parse_timestamp(text: &[u8]) -> Option<i64> {
    let (micros, rest) = date_and_time(text)?;
    rest.is_empty().then_some(micros)
}

/// Parses a timestamp with zone to microseconds since 1970-01-01 in UTC.
#[inline]
pub(super) fn parse_instant(text: &[u8]) -> Option<i64> {
    let (micros, rest) = date_and_time(text)?;
    let (east, hours, minutes) = match rest {
        b"Z" => return Some(micros),
        &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] | &[sign @ (b'+' | b'-'), h1, h2, m1, m2] => {
            (sign == b'+', parse_digits(&[h1, h2])?, parse_digits(&[m1, m2])?)
        }
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    let shift = (hours * 3600 + minutes * 60) * SECOND;
    Some(if east { micros - shift } else { micros + shift })
}

/// Parses date and time to microseconds; returns the rest, too.
#[inline]
fn date_and_time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (head, rest) = text.split_first_chunk::<19>()?;
    let days = parse_days(head.first_chunk()?)?;
    let time = u64::from_le_bytes(*head.last_chunk()?) ^ text_word(b"00:00:00");
    let (hours, minutes, seconds) = (digit_pair(time, 0), digit_pair(time, 3), digit_pair(time, 6));
    let apart = matches!(head[10], b' ' | b'T');
    if !apart | is_strange(time, const { digit_room(b"99:99:99") }) | (hours > 23) | (minutes > 59) | (seconds > 59) {
        return None;
    }
    let seconds = i64::from(days) * 86_400 + i64::from(hours * 3600 + minutes * 60 + seconds);
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            if !(1..=6).contains(&digits) {
                return None;
            }
            let scale = [0, 100_000, 10_000, 1_000, 100, 10, 1][digits];
            (parse_digits(&rest[..digits])? * scale, &rest[digits..])
        }
        rest => (0, rest),
    };
    Some((seconds * SECOND + fraction, rest))
}

/// Parses ten bytes to days since 1970-01-01.
#[inline]
fn parse_days(text: &[u8; 10]) -> Option<i32> {
    /// Days of months 0 to 15 in a common year.
    const DAYS_OF_MONTHS: [i32; 16] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0];
    let date = u64::from_le_bytes(*text.first_chunk()?) ^ text_word(b"0000-00-");
    let last = u64::from_le_bytes(*text.last_chunk()?) ^ text_word(b"00-00-00");
    if is_strange(date, const { digit_room(b"9999-99-") }) | is_strange(last, const { digit_room(b"99-99-99") }) {
        return None;
    }
    let (year, month, day) =
        (digit_pair(date, 0) * 100 + digit_pair(date, 2), digit_pair(date, 5), digit_pair(last, 6));
    let leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0));
    let longest = DAYS_OF_MONTHS[month.min(15) as usize] + i32::from(leap & (month == 2));
    if (year == 0) | (day == 0) | (day > longest) {
        return None;
    }
    Some(civil::small_days(year, month, day))
}

/// Returns eight bytes as a little-endian word.
const fn text_word(text: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*text)
}

/// Returns what raises the largest allowed byte of a word to just below its highest bit: 9 where the form has a `9`, 0
/// elsewhere.
const fn digit_room(form: &[u8; 8]) -> u64 {
    let (mut room, mut at) = ([0x7f; 8], 0);
    while at < form.len() {
        if form[at] == b'9' {
            room[at] = 0x76;
        }
        at += 1;
    }
    u64::from_le_bytes(room)
}

/// Whether a byte of the word is larger than its form allows.
#[inline(always)]
fn is_strange(digits: u64, room: u64) -> bool {
    const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;
    (digits.wrapping_add(room) | digits) & HIGHEST_BITS != 0
}

/// Returns the number that two bytes of a word of digits represent.
#[inline(always)]
fn digit_pair(digits: u64, at: usize) -> i32 {
    let digits = digits.to_le_bytes();
    i32::from(digits[at]) * 10 + i32::from(digits[at + 1])
}

/// Parses a few digits.
#[inline]
fn parse_digits(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |n, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then_some(n * 10 + i64::from(digit))
    })
}

/// Writes the number without surrounding spaces, plus sign and leading zeros into `out`; `None` if it is too long.
pub(super) fn plain_number<'a>(text: &[u8], out: &'a mut [u8; 64]) -> Option<&'a [u8]> {
    let text = text.trim_ascii();
    let (negative, mut digits) = strip_sign(text.strip_prefix(b"+").unwrap_or(text));
    while let [b'0', rest @ ..] = digits
        && rest.first().is_some_and(u8::is_ascii_digit)
    {
        digits = rest;
    }
    let negative = negative && digits != b"0";
    let start = usize::from(negative);
    out[0] = b'-';
    out.get_mut(start..start + digits.len())?.copy_from_slice(digits);
    Some(&out[..start + digits.len()])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kinds_follow_the_grammar() {
        for (kind, texts) in [
            (ValueKind::Boolean, "true false True False TRUE FALSE"),
            (ValueKind::Int64, "0 -1 42 9223372036854775807 -9223372036854775808"),
            (ValueKind::Float64, "-0 1. .5 -.5 0.5 1e5 1E-7 1.5e+3 NaN nan inf -inf Inf -Inf Infinity -Infinity"),
            (ValueKind::Float64, "9223372036854775808 10000000000000000000000 0.1234567890123456789 1e-400 0e0"),
            (ValueKind::Date32, "2024-02-29 0001-01-01 9999-12-31 1970-01-01"),
            (ValueKind::Timestamp, "2024-02-29T23:59:59 2024-01-01T00:00:00.1 2024-01-01T00:00:00.123456"),
            (ValueKind::Instant, "2024-01-01T00:00:00Z 2024-01-01T00:00:00.5+05:30 2024-01-01T00:00:00-0330"),
            (
                ValueKind::Text,
                "007 +5 -007 00 - . -. 1e e5 1e+ 0x10 1_000 1,5 9223372036854775809 1e400 -1e999 tRUE yes",
            ),
            (
                ValueKind::Text,
                "2024-02-30 2023-02-29 2024-13-01 0000-01-01 2024-1-1 2024-01-00 2024_01_01 nAn NAN infinity",
            ),
            (ValueKind::Text, "2024-01-01T24:00:00 2024-01-01T00:00:60 2024-01-01T00:00 2024-01-01T00:00:00."),
            (ValueKind::Text, "2024-01-01T00:00:00.1234567 2024-01-01T00:00:00z 2024-01-01T00:00:00+05 a é 00.5 1.5.2"),
            (
                ValueKind::Text,
                "2024-01-01T00:00:00+24:00 2024-01-01T00:00:00+0060 2024-01-01T00:00:00.+01:00 +inf -NaN",
            ),
        ] {
            for text in texts.split(' ') {
                assert_eq!(ValueKind::from_text(text.as_bytes()), kind, "{text}");
            }
        }
        for text in ["", " 1", "1 ", "2024-01-01 ", "2024-01-01  00:00:00", "12345678901234567890é"] {
            assert_eq!(ValueKind::from_text(text.as_bytes()), ValueKind::Text, "{text}");
        }
        assert_eq!(ValueKind::from_text(b"2024-01-01 10:00:00"), ValueKind::Timestamp);
    }

    #[test]
    fn whole_numbers_are_floats_only_if_exact() {
        assert_eq!(parse_float64(b"999999999999999"), Some(999_999_999_999_999.0));
        assert_eq!(parse_float64(b"9007199254740992"), Some(9_007_199_254_740_992.0));
        assert_eq!(parse_float64(b"9007199254740993"), None);
        assert_eq!(parse_float64(b"-9223372036854775808"), Some(-9_223_372_036_854_775_808.0));
        assert_eq!(parse_float64(b"9223372036854775807"), None);
        assert_eq!(any_float64(b"9007199254740993"), Some(9_007_199_254_740_992.0));
        assert_eq!(any_float64(b"abc1"), None);
    }

    #[test]
    fn instants_are_moved_to_utc() {
        assert_eq!(parse_instant(b"1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(parse_instant(b"1969-12-31 23:30:00.000001-0030"), Some(1));
    }

    #[test]
    fn unsigned_numbers_have_their_full_range() {
        assert_eq!(parse_uint64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_uint64(b"18446744073709551616"), None);
        assert_eq!(parse_uint64(b"-1"), None);
    }

    #[test]
    fn plain_numbers_lose_spaces_signs_and_leading_zeros() {
        let mut out = [0; 64];
        for (text, plain) in
            [(" +007 ", "7"), ("-0012.50", "-12.50"), ("000", "0"), ("-00", "0"), ("abc", "abc"), ("", "")]
        {
            assert_eq!(plain_number(text.as_bytes(), &mut out).unwrap(), plain.as_bytes(), "{text}");
        }
        assert!(plain_number(&[b'1'; 100], &mut out).is_none());
    }

    proptest! {
        #[test]
        fn integers_agree_with_the_standard_library(text in "-?[0-9]{1,21}") {
            let canonical = text.parse::<i128>().unwrap().to_string() == text;
            let expected = text.parse::<i64>().ok().filter(|_| canonical);
            prop_assert_eq!(parse_int64(text.as_bytes()), expected);
        }

        #[test]
        fn floats_agree_with_the_standard_library(text in "-?(0|[1-9][0-9]{0,20})\\.[0-9]{0,25}(e[+-]?[0-9]{1,3})?") {
            let expected = text.parse::<f64>().ok().filter(|v| v.is_finite());
            prop_assert_eq!(parse_float64(text.as_bytes()).map(f64::to_bits), expected.map(f64::to_bits));
        }

        #[test]
        fn whole_floats_are_exact(text in "-?[1-9][0-9]{10,40}") {
            let value: f64 = text.parse().unwrap();
            prop_assert_eq!(parse_float64(text.as_bytes()).is_some(), format!("{value:.0}") == text);
        }

        #[test]
        fn dates_agree_with_jiff(year in 1i16..=9999, month in 0i8..14, day in 0i8..33, second in 0i64..86_400) {
            let text = format!("{year:04}-{month:02}-{day:02}");
            let expected = jiff::civil::Date::new(year, month, day).ok();
            let epoch = jiff::civil::date(1970, 1, 1);
            prop_assert_eq!(parse_date32(text.as_bytes()), expected.map(|d| (d - epoch).get_days()));
            if let Some(date) = expected {
                let text = format!("{text} {:02}:{:02}:{:02}.25", second / 3600, second / 60 % 60, second % 60);
                let days = i64::from((date - epoch).get_days());
                prop_assert_eq!(parse_timestamp(text.as_bytes()), Some((days * 86_400 + second) * SECOND + 250_000));
            }
        }

        #[test]
        fn nothing_panics(text in proptest::collection::vec(prop::sample::select(&b"-+.0123456789eETZ: \
             naif\xc3"[..]), 0..32)) {
            ValueKind::from_text(&text);
            any_float32(&text);
            plain_number(&text, &mut [0; 64]);
        }
    }
}
