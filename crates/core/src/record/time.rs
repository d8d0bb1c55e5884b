//! Parses dates, timestamps and durations in ISO 8601 and other common spellings; the inverse of what `record::json`
//! writes.

use arrow::datatypes::TimeUnit;

use super::civil;

/// Seconds of a day.
const DAY: i128 = 86_400;

/// Returns the days since 1970-01-01 of `YYYY-MM-DD`; years beyond four digits have a sign.
pub fn parse_date(text: &str) -> Option<i32> {
    let (days, rest) = split_date(text)?;
    rest.is_empty().then(|| i32::try_from(days).ok())?
}

/// Returns the units since 1970-01-01 of `YYYY-MM-DDTHH:MM:SS[.fraction][Z]`; `None` also if the unit cannot hold the
/// value.
pub fn parse_timestamp(text: &str, unit: TimeUnit) -> Option<i64> {
    parse_local(text.strip_suffix('Z').unwrap_or(text), unit)
}

/// Returns the units since 1970-01-01 of `YYYY-MM-DDTHH:MM:SS[.fraction]` without a zone.
pub fn parse_local(text: &str, unit: TimeUnit) -> Option<i64> {
    let (days, rest) = split_date(text)?;
    let clock = parse_clock(rest.strip_prefix(['T', ' '])?, unit)?;
    i64::try_from(days * DAY * per_second(unit) + clock).ok()
}

/// Returns the units since 1970-01-01 in UTC of `YYYY-MM-DDTHH:MM:SS[.fraction]` followed by `Z`, `+HH:MM`, `+HHMM` or
/// `+HH`.
pub fn parse_instant(text: &str, unit: TimeUnit) -> Option<i64> {
    let text = text.strip_suffix(" UTC").map_or_else(|| text.to_owned(), |local| format!("{local}Z"));
    if text.ends_with(['Z', 'z']) {
        return parse_local(&text[..text.len() - 1], unit);
    }
    // The last sign belongs to the offset if it follows the time of day.
    let at = text.rfind(['+', '-']).filter(|at| text[..*at].contains(':'))?;
    let (moment, offset) = text.split_at(at);
    let (hours, minutes) = match &offset.as_bytes()[1..] {
        [h1, h2] => (parse_digits(&[*h1, *h2])?, 0),
        [h1, h2, b':', m1, m2] | [h1, h2, m1, m2] => (parse_digits(&[*h1, *h2])?, parse_digits(&[*m1, *m2])?),
        _ => return None,
    };
    if hours > 23 || minutes > 59 {
        return None;
    }
    let east = (hours * 3600 + minutes * 60) * per_second(unit) * if offset.starts_with('+') { 1 } else { -1 };
    i64::try_from(i128::from(parse_local(moment.trim_end(), unit)?) - east).ok()
}

/// Returns the units since midnight of `HH:MM[:SS[.fraction]]`.
pub fn time_of_day(text: &str, unit: TimeUnit) -> Option<i64> {
    let seconds = if text.len() == 5 { format!("{text}:00") } else { text.to_owned() };
    i64::try_from(parse_clock(&seconds, unit)?).ok()
}

/// Returns the units of a duration: ISO 8601 without years and months (`P1DT2H3M4.5S`), or
/// `[N day[s] ]HH:MM:SS[.fraction]`.
pub fn parse_duration(text: &str, unit: TimeUnit) -> Option<i64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let units = if text.starts_with('P') { iso_duration(text, unit)? } else { clock_duration(text, unit)? };
    i64::try_from(sign * units).ok()
}

fn iso_duration(text: &str, unit: TimeUnit) -> Option<i128> {
    let (days, times) = text[1..].split_once('T').map_or((&text[1..], None), |(days, times)| (days, Some(times)));
    let mut total = 0;
    let mut parts = 0;
    for (part, names) in [(Some(days), "WD"), (times, "HMS")] {
        let mut rest = part.unwrap_or_default();
        let mut allowed = names;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let name = rest[end..].chars().next()?;
            allowed = &allowed[allowed.find(name)? + 1..];
            let seconds = match name {
                'W' => 7 * DAY,
                'D' => DAY,
                'H' => 3600,
                'M' => 60,
                _ => 1,
            };
            let (whole, fraction) = rest[..end].split_once('.').unwrap_or((&rest[..end], ""));
            // Only seconds may have a fraction.
            if whole.is_empty() || whole.len() > 20 || rest[..end].contains('.') && name != 'S' {
                return None;
            }
            total += parse_digits(whole.as_bytes())? * seconds * per_second(unit) + part_of_second(fraction, unit)?;
            parts += 1;
            rest = &rest[end + 1..];
        }
    }
    (parts > 0 && times != Some("")).then_some(total)
}

fn clock_duration(text: &str, unit: TimeUnit) -> Option<i128> {
    let (days, time) = match text.split_once(" day") {
        Some((days, time)) => (days, time.strip_prefix('s').unwrap_or(time).trim_start_matches([',', ' '])),
        None => ("0", text),
    };
    let (hours, rest) = time.split_once(':')?;
    if days.is_empty() || days.len() > 12 || hours.is_empty() || hours.len() > 12 {
        return None;
    }
    let hours = parse_digits(days.as_bytes())? * 24 + parse_digits(hours.as_bytes())?;
    Some(hours * 3600 * per_second(unit) + parse_clock(&format!("00:{rest}"), unit)?)
}

/// Returns the units since midnight of `HH:MM:SS[.fraction]`.
fn parse_clock(text: &str, unit: TimeUnit) -> Option<i128> {
    let (clock, fraction) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let [h1, h2, b':', m1, m2, b':', s1, s2] = <[u8; 8]>::try_from(clock.as_bytes()).ok()? else { return None };
    let two = |a: u8, b: u8| parse_digits(&[a, b]);
    let (hours, minutes, seconds) = (two(h1, h2)?, two(m1, m2)?, two(s1, s2)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(((hours * 60 + minutes) * 60 + seconds) * per_second(unit) + part_of_second(fraction, unit)?)
}

/// Returns the units of the digits after a decimal point; `None` if there are more than the unit has.
fn part_of_second(fraction: &str, unit: TimeUnit) -> Option<i128> {
    let fraction = fraction.trim_end_matches('0');
    let places = decimal_places(unit);
    let missing = places.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    Some(parse_digits(fraction.as_bytes())? * 10_i128.pow(missing))
}

fn per_second(unit: TimeUnit) -> i128 {
    10_i128.pow(decimal_places(unit))
}

/// Returns the number of decimal places of seconds in a unit.
pub(super) fn decimal_places(unit: TimeUnit) -> u32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Returns the days of a date at the start of a text, and the rest of the text.
fn split_date(text: &str) -> Option<(i128, &str)> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (year, rest) = unsigned.split_once('-')?;
    // Twelve digits hold the years of all seconds that fit into 64 bits.
    let well_formed = year.len() == 4 || unsigned.len() < text.len() && (5..=12).contains(&year.len());
    let (month, rest) = rest.split_once('-')?;
    let (day, rest) = rest.split_at_checked(2)?;
    if !well_formed || month.len() != 2 {
        return None;
    }
    let year = sign * i64::try_from(parse_digits(year.as_bytes())?).ok()?;
    let two = |text: &str| i32::try_from(parse_digits(text.as_bytes())?).ok();
    let (month, day) = (two(month)?, two(day)?);
    let is_known = (1..=civil::month_days(year, month)).contains(&day);
    is_known.then(|| (civil::days_from_date(year, month, day).into(), rest))
}

fn parse_digits(text: &[u8]) -> Option<i128> {
    text.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + i128::from(digit - b'0')))
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
    fn malformed_times_are_rejected() {
        for text in
            ["", "2024-02-30", "2024-13-01", "24-01-01", "2024-1-01", "2024-01-01x", "12345-01-01", "2024-01-0ä"]
        {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in ["2024-01-01", "2024-01-01T24:00:00", "2024-01-01T00:00:00.1234", "2024-01-01T00:00"] {
            assert_eq!(parse_timestamp(text, TimeUnit::Millisecond), None, "{text}");
        }
        assert_eq!(parse_timestamp("1970-01-01T00:00:01.5Z", TimeUnit::Millisecond), Some(1500));
    }

    #[test]
    fn instants_are_moved_to_utc() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01 01:00:00+01:00", 0),
            ("1969-12-31T23:30:00-0030", 0),
            ("1970-01-01T01:00:01 +01", 1),
            ("1970-01-01 00:00:01 UTC", 1),
        ] {
            assert_eq!(parse_instant(text, TimeUnit::Second), Some(seconds), "{text}");
        }
        for text in
            ["1970-01-01T00:00:00", "1970-01-01", "1970-01-01T00:00:00+24:00", "1970-01-01T00:00:00+1", "Z", "é+01"]
        {
            assert_eq!(parse_instant(text, TimeUnit::Second), None, "{text}");
        }
        assert_eq!(parse_local("1970-01-01T00:00:00Z", TimeUnit::Second), None);
    }

    #[test]
    fn times_of_day_and_durations_have_several_spellings() {
        let ms = TimeUnit::Millisecond;
        assert_eq!(time_of_day("01:02", ms), Some(3_720_000));
        assert_eq!(time_of_day("23:59:59.9990", ms), Some(86_399_999));
        for text in ["24:00", "1:02", "00:00:00.0001", "00:00:00.", ""] {
            assert_eq!(time_of_day(text, ms), None, "{text}");
        }
        for (text, expected) in [
            ("PT1.5S", 1500),
            ("-P1DT2H3M4.005S", -93_784_005),
            ("P1W", 604_800_000),
            ("P0D", 0),
            ("36:00:01", 129_601_000),
            ("-00:00:00.001", -1),
            ("2 days 00:00:01", 172_801_000),
            ("1 day, 1:00:00", 90_000_000),
        ] {
            assert_eq!(parse_duration(text, ms), Some(expected), "{text}");
        }
        for text in
            ["", "P", "PT", "P1DT", "P1Y", "PT1M1H", "PT1.5M", "PT.5S", "PT0.0001S", "5", "1 day", "00:60:00", "Pé"]
        {
            assert_eq!(parse_duration(text, ms), None, "{text}");
        }
        assert_eq!(parse_duration("PT9999999999999999S", ms), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_a_time_or_none(text in "[-+PTWDHMSZ0-9:. é]{0,16}") {
            for unit in [TimeUnit::Second, TimeUnit::Nanosecond] {
                let _ = (parse_date(&text), parse_timestamp(&text, unit));
                let _ = (parse_instant(&text, unit), parse_local(&text, unit));
                let _ = (time_of_day(&text, unit), parse_duration(&text, unit));
            }
        }

        #[test]
        fn durations_round_trip(value: i64) {
            let array = arrow::array::DurationMicrosecondArray::from(vec![value]);
            prop_assert_eq!(parse_duration(&written(&array), TimeUnit::Microsecond), Some(value));
        }

        #[test]
        fn dates_and_timestamps_round_trip(days: i32, value: i64) {
            prop_assert_eq!(parse_date(&written(&Date32Array::from(vec![days]))), Some(days));
            let nanoseconds = TimestampNanosecondArray::from(vec![value]);
            prop_assert_eq!(parse_timestamp(&written(&nanoseconds), TimeUnit::Nanosecond), Some(value));
            let seconds = TimestampSecondArray::from(vec![value]).with_timezone("UTC");
            prop_assert_eq!(parse_timestamp(&written(&seconds), TimeUnit::Second), Some(value));
        }
    }
}
