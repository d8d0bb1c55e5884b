//! Durations as ISO 8601 text: `PT86400.5S`, `-PT1S`, `P0D`. Seconds are not split into minutes and days.

use std::io::Write as _;

use arrow::datatypes::TimeUnit;

use super::time;

/// Appends a duration without trailing zeros in the fraction.
pub(super) fn push_duration(value: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    if value == 0 {
        out.extend_from_slice(b"P0D");
        return;
    }
    let places = time::decimal_places(unit);
    let per_second = 10_u64.pow(places);
    let (seconds, fraction) = (value.unsigned_abs() / per_second, value.unsigned_abs() % per_second);
    let sign = if value < 0 { "-" } else { "" };
    // Writing to a vector cannot fail.
    let _ = write!(out, "{sign}PT{seconds}");
    if fraction > 0 {
        let _ = write!(out, ".{fraction:0width$}", width = places as usize);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
    out.push(b'S');
}

/// Parses a text of this form; `None` for other texts, including other forms of durations, and for values that the unit
/// cannot hold.
pub fn parse(text: &str, unit: TimeUnit) -> Option<i64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if unsigned != "P0D" {
        let seconds = unsigned.strip_prefix("PT")?.strip_suffix('S')?;
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > time::decimal_places(unit) as usize {
            return None;
        }
    }
    time::parse_duration(text, unit)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{array::DurationMicrosecondArray, util::display::array_value_to_string};
    use proptest::prelude::*;

    use super::*;

    const UNITS: [TimeUnit; 4] = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];

    fn text(value: i64, unit: TimeUnit) -> String {
        let mut out = Vec::new();
        push_duration(value, unit, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn durations_are_seconds() {
        assert_eq!(text(-86_400_500, TimeUnit::Millisecond), "-PT86400.5S");
        assert_eq!(text(i64::MIN, TimeUnit::Second), "-PT9223372036854775808S");
        assert_eq!(text(1, TimeUnit::Nanosecond), "PT0.000000001S");
        for wrong in ["", "PT", "PTS", "PT1", "PT1.S2", "PT+1S", "PT1.1234S", "PT99999999999999999999S", "P1D", "1"] {
            assert_eq!(parse(wrong, TimeUnit::Millisecond), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn durations_round_trip(value: i64, small in -2_000_000..2_000_000_i64,
            unit in prop::sample::select(&UNITS[..])) {
            for value in [value, small] {
                prop_assert_eq!(parse(&text(value, unit), unit), Some(value));
            }
            let array = DurationMicrosecondArray::from(vec![small]);
            prop_assert_eq!(text(small, TimeUnit::Microsecond), array_value_to_string(&array, 0).unwrap());
        }
    }
}
