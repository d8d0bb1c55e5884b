//! Time units of the CF conventions, such as `days since 1970-01-01`, in all CF calendars.
//!
//! | calendar | becomes |
//! |---|---|
//! | standard, gregorian, proleptic_gregorian, julian | timestamp: the instant (julian 1500-02-29 is 1500-03-10) |
//! | noleap, 365_day | timestamp with the same year, month, day and time, which every calendar has |
//! | all_leap, 366_day, 360_day | text, because there may be a 30th of February |

use crate::{
    error::{Error, Result},
    record::civil,
};

const DAY: i128 = 86_400_000_000;

/// The first day of the Gregorian calendar, 1582-10-15, in days since 1970.
const GREGORIAN: i64 = -141_427;

/// A CF calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// Julian up to 1582-10-04, Gregorian from 1582-10-15 on.
    Standard,
    /// Gregorian at all times.
    Proleptic,
    /// Julian at all times.
    Julian,
    /// Years of 365 days.
    NoLeap,
    /// Years of 366 days.
    AllLeap,
    /// Months of 30 days.
    Days360,
}

/// Units and calendar of a time axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeUnits {
    /// Microseconds per unit.
    unit: i128,
    calendar: Calendar,
    /// Start of counting, in microseconds from day 0 of the calendar.
    epoch: i128,
}

/// Days before each month of a year without a leap day.
const MONTHS: [i64; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];

impl Calendar {
    fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "standard" | "gregorian" | "" => Self::Standard,
            "proleptic_gregorian" => Self::Proleptic,
            "julian" => Self::Julian,
            "noleap" | "365_day" => Self::NoLeap,
            "all_leap" | "366_day" => Self::AllLeap,
            "360_day" => Self::Days360,
            _ => return None,
        })
    }

    /// Whether the calendar's dates can be timestamps.
    pub fn has_timestamps(self) -> bool {
        !matches!(self, Self::AllLeap | Self::Days360)
    }

    fn is_leap(self, year: i64) -> bool {
        match self {
            Self::Proleptic | Self::Standard => civil::is_leap(year),
            Self::Julian => year % 4 == 0,
            Self::NoLeap => false,
            Self::AllLeap | Self::Days360 => true,
        }
    }

    /// Returns the number of a year as astronomers count; `None` for the year 0 of calendars of real days, in which the
    /// year 1 follows the year -1.
    fn astronomical_year(self, year: i64) -> Option<i64> {
        match self {
            Self::Standard | Self::Julian if year == 0 => None,
            Self::Standard | Self::Julian if year < 0 => Some(year + 1),
            _ => Some(year),
        }
    }

    /// Returns the days from day 0 of the calendar, which is 1970-01-01 in calendars with real days; `None` for invalid
    /// dates.
    fn days_from_date(self, year: i64, month: i64, day: i64) -> Option<i64> {
        if !(1..=12).contains(&month) || day < 1 {
            return None;
        }
        let index = usize::try_from(month).ok()?;
        if self == Self::Days360 {
            return (day <= 30).then(|| year * 360 + (month - 1) * 30 + day - 1);
        }
        let leap = i64::from(self.is_leap(year));
        let length = MONTHS[index] - MONTHS[index - 1] + if month == 2 { leap } else { 0 };
        if day > length {
            return None;
        }
        let of_year = MONTHS[index - 1] + if month > 2 { leap } else { 0 } + day - 1;
        Some(match self {
            Self::NoLeap => year * 365 + of_year,
            Self::AllLeap => year * 366 + of_year,
            Self::Julian => julian_days(year) + of_year,
            Self::Proleptic => civil::days_from_date(year, 1, 1) + of_year,
            Self::Standard => {
                let found = civil::days_from_date(year, 1, 1) + of_year;
                if found >= GREGORIAN {
                    found
                } else {
                    let found = Self::Julian.days_from_date(year, month, day)?;
                    // The ten days that the Gregorian reform skipped are invalid.
                    return (found < GREGORIAN).then_some(found);
                }
            }
            Self::Days360 => return None,
        })
    }

    /// Returns year, month and day of a day.
    fn date_from_days(self, day: i64) -> (i64, i64, i64) {
        if self == Self::Days360 {
            let of_year = day.rem_euclid(360);
            return (day.div_euclid(360), of_year / 30 + 1, of_year % 30 + 1);
        }
        let length = if self == Self::NoLeap { 365 } else { 366 };
        let (year, of_year) = (day.div_euclid(length), day.rem_euclid(length));
        let leap = i64::from(self.is_leap(year));
        let start = |month: usize| MONTHS[month - 1] + if month > 2 { leap } else { 0 };
        let month = (1..=12).rev().find(|month| of_year >= start(*month)).unwrap_or(1);
        (year, month as i64, of_year - start(month) + 1)
    }
}

/// Returns the days from 1970-01-01 to the first day of a Julian year.
fn julian_days(year: i64) -> i64 {
    let y = year - 1;
    y * 365 + y.div_euclid(4) - 719_164
}

impl TimeUnits {
    /// Parses `UNIT since DATE` in a calendar; `None` if the text does not have this form.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) when it has this form but the unit, date or calendar is invalid.
    pub fn parse(units: &str, calendar: &str) -> Option<Result<Self>> {
        let lower = units.trim().to_ascii_lowercase();
        let (unit, since) = lower.split_once(" since ")?;
        Some(Self::read(unit.trim(), since.trim(), calendar).ok_or_else(|| {
            Error::input(format!(
                "expected units of time such as `days since 1970-01-01`, found `{units}` ({calendar})"
            ))
            .with_hint("keep the numbers as they are with --read raw=yes")
            .with_hint(
                "months have a length only in the calendar 360_day; the calendars standard and julian have no year 0",
            )
        }))
    }

    fn read(unit: &str, since: &str, calendar: &str) -> Option<Self> {
        let calendar = Calendar::parse(calendar)?;
        let unit = match unit {
            "microsecond" | "microseconds" | "microsec" | "microsecs" => 1,
            "millisecond" | "milliseconds" | "millisec" | "millisecs" | "msec" | "msecs" | "ms" => 1_000,
            "second" | "seconds" | "sec" | "secs" | "s" => 1_000_000,
            "minute" | "minutes" | "min" | "mins" => 60_000_000,
            "hour" | "hours" | "hr" | "hrs" | "h" => 3_600_000_000,
            "day" | "days" | "d" => DAY,
            "week" | "weeks" => 7 * DAY,
            "month" | "months" if calendar == Calendar::Days360 => 30 * DAY,
            "common_year" | "common_years" if calendar == Calendar::NoLeap => 365 * DAY,
            _ => return None,
        };
        let (date, time) = match since.find(|c: char| c == 't' || c.is_whitespace()) {
            Some(at) => (&since[..at], since[at + 1..].trim()),
            None => (since, ""),
        };
        let (sign, date) = match date.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, date.strip_prefix('+').unwrap_or(date)),
        };
        let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
        let (year, month, day) = (parts.next()??, parts.next().unwrap_or(Some(1))?, parts.next().unwrap_or(Some(1))?);
        if parts.next().is_some() || year > 999_999 {
            return None;
        }
        let day = calendar.days_from_date(calendar.astronomical_year(sign * year)?, month, day)?;
        Some(Self { unit, calendar, epoch: i128::from(day) * DAY + time_of_day(time)? })
    }

    /// Whether values become timestamps rather than text.
    pub fn has_timestamps(&self) -> bool {
        self.calendar.has_timestamps()
    }

    /// Returns the time that is `number` units after the start, in microseconds of the calendar.
    fn at_integer(&self, number: i128) -> Option<i128> {
        number.checked_mul(self.unit)?.checked_add(self.epoch)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "rounded to microseconds")]
    fn at_double(&self, number: f64) -> Option<i128> {
        let moved = number * self.unit as f64;
        (moved.abs() < 1e30).then(|| moved.round() as i128 + self.epoch)
    }

    fn timestamp_from_micros(&self, micros: i128) -> Option<i64> {
        if self.calendar != Calendar::NoLeap {
            return i64::try_from(micros).ok();
        }
        let (year, month, day) = self.calendar.date_from_days(i64::try_from(micros.div_euclid(DAY)).ok()?);
        let day = Calendar::Proleptic.days_from_date(year, month, day)?;
        i64::try_from(i128::from(day) * DAY + micros.rem_euclid(DAY)).ok()
    }

    fn format_micros(&self, micros: i128) -> Option<String> {
        let (year, month, day) = self.calendar.date_from_days(i64::try_from(micros.div_euclid(DAY)).ok()?);
        let time = micros.rem_euclid(DAY);
        let (seconds, fraction) = (time / 1_000_000, time % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let sign = if year < 0 { "-" } else { "" };
        let text = format!("{sign}{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}", year.abs());
        Some(if fraction == 0 { text } else { format!("{text}.{fraction:06}") })
    }

    /// Converts an integer to a timestamp in microseconds since 1970.
    pub fn timestamp_of_integer(&self, number: i128) -> Option<i64> {
        self.timestamp_from_micros(self.at_integer(number)?)
    }

    /// Converts a float to a timestamp, rounded to the microsecond.
    pub fn timestamp_of_double(&self, number: f64) -> Option<i64> {
        self.timestamp_from_micros(self.at_double(number)?)
    }

    /// Converts an integer to a date as text.
    pub fn text_of_integer(&self, number: i128) -> Option<String> {
        self.format_micros(self.at_integer(number)?)
    }

    /// Converts a float to a date as text.
    pub fn text_of_double(&self, number: f64) -> Option<String> {
        self.format_micros(self.at_double(number)?)
    }
}

/// Parses `12:30:15.5 +01:00` as microseconds of UTC since midnight.
fn time_of_day(text: &str) -> Option<i128> {
    let text = text.trim().trim_end_matches(['z', 'Z']).trim_end_matches("utc").trim();
    if text.is_empty() {
        return Some(0);
    }
    let (time, zone) = match text.find(|c: char| c.is_whitespace() || c == '+' || c == '-') {
        Some(at) => (&text[..at], text[at..].trim()),
        None => (text, ""),
    };
    let offset = match zone.strip_prefix(['+', '-']) {
        Some(rest) if zone.starts_with('-') => -parse_clock(rest)?,
        Some(rest) => parse_clock(rest)?,
        None if zone.is_empty() => 0,
        None => parse_clock(zone)?,
    };
    Some(parse_clock(time)? - offset)
}

fn parse_clock(text: &str) -> Option<i128> {
    let mut parts = text.split(':');
    let first = parts.next()?;
    // Zones may lack the colon: +0130.
    let (hours, minutes) = match (first.len(), parts.next()) {
        (4, None) => (first.get(..2)?, first.get(2..)?),
        (_, minutes) => (first, minutes.unwrap_or("0")),
    };
    let (hours, minutes): (i128, i128) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds: f64 = parts.next().unwrap_or("0").parse().ok()?;
    let fits = (0..=24).contains(&hours) && (0..60).contains(&minutes) && (0.0..61.0).contains(&seconds);
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 seconds")]
    (fits && parts.next().is_none())
        .then(|| hours * 3_600_000_000 + minutes * 60_000_000 + (seconds * 1e6).round() as i128)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn units(units: &str, calendar: &str) -> TimeUnits {
        TimeUnits::parse(units, calendar).unwrap().unwrap()
    }

    #[test]
    fn day_numbers_agree_with_cftime() {
        // Seconds since 1970 of `cftime.num2date(N, units, calendar)`, converted to the proleptic Gregorian calendar.
        for (text, calendar, number, seconds) in [
            ("days since 1970-01-01", "standard", 1, 86_400),
            ("hours since 1900-01-01 00:00:0.0", "gregorian", 876_581, 946_702_800),
            ("days since 0001-01-01", "standard", 0, -62_135_769_600),
            ("days since 0001-01-01", "proleptic_gregorian", 0, -62_135_596_800),
            ("days since 1582-10-04", "standard", 1, -12_219_292_800),
            ("seconds since 2000-01-01T12:00:00Z", "julian", 0, 947_851_200),
            ("days since 2000-02-28", "noleap", 1, 951_868_800),
            ("minutes since 1970-01-01 01:30 +01:30", "standard", 0, 0),
            // The year before 1 is -1, so that 2,451,545 days lead from the first day of Julian dates to 2000.
            ("days since -4713-01-01", "standard", 2_451_545, 946_684_800),
            ("days since -4713-01-01", "julian", 2_451_545, 946_684_800),
            ("days since 0000-01-01", "proleptic_gregorian", 730_485, 946_684_800),
            ("common_years since 2000-01-01", "noleap", 1, 978_307_200),
        ] {
            let found = units(text, calendar).timestamp_of_integer(number).unwrap();
            assert_eq!(found, seconds * 1_000_000, "{number} {text} {calendar}");
        }
        assert_eq!(units("days since 1970-01-01", "standard").timestamp_of_double(0.5), Some(43_200_000_000));
        assert_eq!(units("days since 1970-01-01", "standard").timestamp_of_double(1e300), None);
    }

    #[test]
    fn calendars_with_other_days_give_text() {
        let days = units("days since 1900-01-01", "360_day");
        assert!(!days.has_timestamps());
        assert_eq!(days.text_of_integer(59).unwrap(), "1900-02-30T00:00:00");
        assert_eq!(days.text_of_double(360.5).unwrap(), "1901-01-01T12:00:00");
        assert_eq!(units("months since 2000-01-30", "360_day").text_of_integer(1).unwrap(), "2000-02-30T00:00:00");
        assert_eq!(units("days since 0000-01-01", "360_day").text_of_integer(-1).unwrap(), "-0001-12-30T00:00:00");
        assert_eq!(units("days since 1901-02-28", "all_leap").text_of_integer(1).unwrap(), "1901-02-29T00:00:00");
    }

    #[test]
    fn invalid_units_are_rejected() {
        assert!(TimeUnits::parse("kelvin", "standard").is_none());
        for (units, calendar) in [
            ("months since 1970-01-01", ""),
            ("days since 1970-13-01", ""),
            ("days since x", ""),
            ("days since 1", "x"),
            ("days since 0000-01-01", "standard"),
            ("days since 0-1-1", "julian"),
            ("common_years since 2000-01-01", "standard"),
        ] {
            assert!(TimeUnits::parse(units, calendar).unwrap().is_err(), "{units}");
        }
    }

    #[test]
    fn every_day_round_trips() {
        for calendar in [Calendar::NoLeap, Calendar::AllLeap, Calendar::Days360] {
            for day in -800..800 {
                let (year, month, of_month) = calendar.date_from_days(day);
                assert_eq!(calendar.days_from_date(year, month, of_month), Some(day), "{calendar:?}");
            }
        }
    }
}
