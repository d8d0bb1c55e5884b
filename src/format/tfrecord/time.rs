//! Dates and points in time from the ISO 8601 text that shards have of them: the inverse of what `record::json` writes.

use arrow::datatypes::TimeUnit;

/// Days since 1970-01-01 of `YYYY-MM-DD`; years beyond four digits carry a sign.
pub(super) fn date(text: &str) -> Option<i32> {
    let (days, rest) = split_date(text)?;
    rest.is_empty().then(|| i32::try_from(days).ok())?
}

/// Units since 1970-01-01 of `YYYY-MM-DDTHH:MM:SS[.fraction][Z]`; `None` as well when the unit cannot hold it.
pub(super) fn timestamp(text: &str, unit: TimeUnit) -> Option<i64> {
    let (days, rest) = split_date(text)?;
    let rest = rest.strip_prefix(['T', ' '])?;
    let rest = rest.strip_suffix('Z').unwrap_or(rest);
    let (clock, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let [h1, h2, b':', m1, m2, b':', s1, s2] = <[u8; 8]>::try_from(clock.as_bytes()).ok()? else { return None };
    let two = |a: u8, b: u8| digits(&[a, b]);
    let (hours, minutes, seconds) = (two(h1, h2)?, two(m1, m2)?, two(s1, s2)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let places = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    if fraction.len() > places {
        return None;
    }
    let missing = u32::try_from(places - fraction.len()).ok()?;
    let fraction = if fraction.is_empty() { 0 } else { digits(fraction.as_bytes())? * 10_i128.pow(missing) };
    let seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    i64::try_from(seconds * 10_i128.pow(u32::try_from(places).ok()?) + fraction).ok()
}

/// The days of a date at the start of a text, and what comes after it.
fn split_date(text: &str) -> Option<(i128, &str)> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (year, rest) = unsigned.split_once('-')?;
    // Twelve digits hold the years of all seconds that 64 bits count.
    let well_formed = year.len() == 4 || unsigned.len() < text.len() && (5..=12).contains(&year.len());
    let (month, rest) = rest.split_once('-')?;
    let (day, rest) = rest.split_at_checked(2)?;
    if !well_formed || month.len() != 2 {
        return None;
    }
    let (year, month, day) = (sign * digits(year.as_bytes())?, digits(month.as_bytes())?, digits(day.as_bytes())?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i128::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (1..=last).contains(&day).then(|| (days_from_civil(year, month, day), rest))
}

fn digits(text: &[u8]) -> Option<i128> {
    text.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + i128::from(digit - b'0')))
}

/// Days since 1970-01-01 of a day of the proleptic Gregorian calendar, counted in years that begin in March, so that the
/// leap day is the last.
fn days_from_civil(year: i128, month: i128, day: i128) -> i128 {
    let year = year - i128::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Array, Date32Array, TimestampNanosecondArray, TimestampSecondArray};
    use proptest::prelude::*;

    use super::*;
    use crate::record::json::text_of;

    fn written(array: &dyn Array) -> String {
        text_of(array, 0).unwrap()
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in
            ["", "2024-02-30", "2024-13-01", "24-01-01", "2024-1-01", "2024-01-01x", "12345-01-01", "2024-01-0ä"]
        {
            assert_eq!(date(text), None, "{text}");
        }
        for text in ["2024-01-01", "2024-01-01T24:00:00", "2024-01-01T00:00:00.1234", "2024-01-01T00:00"] {
            assert_eq!(timestamp(text, TimeUnit::Millisecond), None, "{text}");
        }
        assert_eq!(timestamp("1970-01-01T00:00:01.5Z", TimeUnit::Millisecond), Some(1500));
    }

    proptest! {
        #[test]
        fn dates_and_timestamps_come_back(days: i32, value: i64) {
            prop_assert_eq!(date(&written(&Date32Array::from(vec![days]))), Some(days));
            let nanoseconds = TimestampNanosecondArray::from(vec![value]);
            prop_assert_eq!(timestamp(&written(&nanoseconds), TimeUnit::Nanosecond), Some(value));
            let seconds = TimestampSecondArray::from(vec![value]).with_timezone("UTC");
            prop_assert_eq!(timestamp(&written(&seconds), TimeUnit::Second), Some(value));
        }
    }
}
