//! Classification of a single JSON value by its text.
//!
//! `serde_json` passes every scalar on as the text of the source. Only the text distinguishes `1e3` from an integer of
//! 25 digits, so numbers are never converted through a float that might round them:
//! ```text
//! 12                      Int    (-0 is a float: an integer would lose its sign)
//! 1.5  1e3  -0            Float
//! 99999999999999999999    Exact  (no number type holds it: kept as text)
//! 1e400                   Exact
//! ```

use std::borrow::Cow;

/// Maximum number of open containers, the record included, as in `serde_json`; a deeper record is rejected.
pub(super) const MAX_DEPTH: usize = 127;

/// A number and the smallest type that holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// An integer.
    Int(i64),
    /// A number written with a fraction or exponent, or a negative zero.
    Float(f64),
    /// A number that neither type can hold without changing it.
    Exact,
}

/// Parses the text of a number.
pub(super) fn parse_number(text: &str) -> Number {
    if text == "-0" || text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        return match fast_float2::parse::<f64, _>(text) {
            Ok(value) if value.is_finite() => Number::Float(value),
            _ => Number::Exact,
        };
    }
    text.parse().map_or(Number::Exact, Number::Int)
}

/// Returns the integer as a float, if no digit is lost.
pub(super) fn exact_float(value: i64) -> Option<f64> {
    let float = value as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a float made from an i64 fits an i128")]
    let back = float as i128;
    (back == i128::from(value)).then_some(float)
}

/// Returns the content of a quoted string.
///
/// # Errors
/// If an escape names half of a surrogate pair.
pub(super) fn unquote_string(raw: &str) -> serde_json::Result<Cow<'_, str>> {
    if memchr::memchr(b'\\', raw.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default()));
    }
    serde_json::from_str(raw).map(Cow::Owned)
}

/// Returns the nesting depth of containers in a well-formed value: 0 for a scalar, 1 for `[]`.
pub(super) fn nesting_depth(raw: &str) -> usize {
    let (mut depth, mut deepest, mut at) = (0usize, 0, 0);
    let bytes = raw.as_bytes();
    while let Some(step) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| b"\"[]{}".contains(b))) {
        at += step;
        match bytes[at] {
            b'"' => at = string_end(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            _ => depth = depth.saturating_sub(1),
        }
        at += 1;
    }
    deepest
}

/// Returns the offset of the quote that ends the string at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(step) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += step;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

/// Returns the kind of value that starts with this byte, in words.
pub(super) fn kind(text: &str) -> &'static str {
    match text.bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        Some(_) => "something that is not JSON",
        None => "nothing",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_their_text_says() {
        for (text, expected) in [
            ("0", Number::Int(0)),
            ("-1", Number::Int(-1)),
            ("9223372036854775807", Number::Int(i64::MAX)),
            ("-9223372036854775808", Number::Int(i64::MIN)),
            ("9223372036854775808", Number::Exact),
            ("12345678901234567890123", Number::Exact),
            ("1e3", Number::Float(1000.0)),
            ("1.5", Number::Float(1.5)),
            ("1e400", Number::Exact),
            ("5e-324", Number::Float(5e-324)),
            ("9007199254740993.0", Number::Float(9007199254740992.0)),
        ] {
            assert_eq!(parse_number(text), expected, "{text}");
        }
        let Number::Float(zero) = parse_number("-0") else { panic!("-0 is a float") };
        assert!(zero.is_sign_negative());
    }

    #[test]
    fn floats_hold_some_integers_only() {
        assert_eq!(exact_float(1 << 53), Some(9_007_199_254_740_992.0));
        for value in [(1 << 53) + 1, i64::MAX, -(1 << 60) - 1] {
            assert_eq!(exact_float(value), None);
        }
        assert_eq!(exact_float(i64::MIN), Some(-9_223_372_036_854_775_808.0));
    }

    #[test]
    fn nesting_ignores_brackets_in_strings() {
        for (text, depth) in
            [("1", 0), ("[]", 1), (r#"{"a[":"]]\"[[[","b":[{}]}"#, 3), (r#"["\\",[]]"#, 2), (r#""unterminated \"#, 0)]
        {
            assert_eq!(nesting_depth(text), depth, "{text}");
        }
        assert_eq!(nesting_depth(&"[".repeat(100_000)), 100_000);
    }

    #[test]
    fn strings_lose_quotes_and_escapes() {
        assert_eq!(unquote_string(r#""a b""#).unwrap(), "a b");
        assert_eq!(unquote_string(r#""""#).unwrap(), "");
        assert_eq!(unquote_string(r#""a\u00e9\n\ud83d\ude00""#).unwrap(), "aé\n😀");
        assert!(unquote_string(r#""\ud800""#).is_err());
    }
}
