//! Dates, times and intervals in conditions. All are in UTC.

use jiff::{
    SignedDuration, Span, Timestamp,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};

/// Nanoseconds of a day.
pub(super) const DAY: i128 = 86_400_000_000_000;

/// A date, or a date and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instant {
    at: DateTime,
    /// Whether only the date was stated.
    pub(super) is_date: bool,
    /// Whether an offset was stated.
    zoned: bool,
}

/// A distance between instants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FilterInterval {
    months: i64,
    nanoseconds: i128,
}

impl Instant {
    /// Parses a date, such as `2026-01-31`.
    pub(super) fn parse_date(text: &str) -> Option<Self> {
        let plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let date: Date = text.parse().ok().filter(|_| plain)?;
        Some(Self { at: date.to_datetime(Time::midnight()), is_date: true, zoned: false })
    }

    /// Parses a date and time, with an offset or in UTC, or a date alone.
    pub(super) fn parse_timestamp(text: &str) -> Option<Self> {
        if let Some(date) = Self::parse_date(text) {
            return Some(Self { is_date: false, ..date });
        }
        if let Ok(at) = text.parse::<DateTime>() {
            return Some(Self { at, is_date: false, zoned: false });
        }
        text.parse::<Timestamp>().ok().map(Self::from_timestamp)
    }

    /// Returns the instant of a timestamp.
    pub(super) fn from_timestamp(timestamp: Timestamp) -> Self {
        Self { at: timestamp.to_zoned(TimeZone::UTC).datetime(), is_date: false, zoned: true }
    }

    /// Returns the day of a timestamp.
    pub(super) fn day_of(timestamp: Timestamp) -> Self {
        let date = timestamp.to_zoned(TimeZone::UTC).date();
        Self { at: date.to_datetime(Time::midnight()), is_date: true, zoned: false }
    }

    /// Returns the nanoseconds since 1970.
    pub(super) fn unix_nanoseconds(self) -> i128 {
        let days = self.at.date().duration_since(Date::constant(1970, 1, 1)).as_hours() / 24;
        let time = self.at.time().duration_since(Time::midnight()).as_nanos();
        i128::from(days) * DAY + time
    }

    /// Adds days to a date; `None` for a time, or beyond the calendar.
    pub(super) fn plus_days(self, days: i64) -> Option<Self> {
        let at = self.at.checked_add(Span::new().try_days(days).ok()?).ok().filter(|_| self.is_date)?;
        Some(Self { at, ..self })
    }

    /// Adds an interval; the result is a time. `None` beyond the calendar.
    pub(super) fn checked_add(self, interval: FilterInterval) -> Option<Self> {
        let moved = self.at.checked_add(Span::new().try_months(interval.months).ok()?).ok()?;
        let duration = SignedDuration::try_from_nanos_i128(interval.nanoseconds)?;
        Some(Self { at: moved.checked_add(duration).ok()?, is_date: false, zoned: self.zoned })
    }
}

/// Formats the instant as a literal of a condition.
impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.is_date, self.zoned) {
            (true, _) => write!(f, "date '{}'", self.at.date()),
            (false, zoned) => write!(f, "timestamp '{}{}'", self.at, if zoned { "Z" } else { "" }),
        }
    }
}

impl FilterInterval {
    /// Parses an interval of one or more units, such as `7 days` or `1 month 12 hours`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let mut sum = Self::default();
        while let Some(number) = words.next() {
            let part = Self::from_units(number.parse().ok()?, words.next()?)?;
            sum =
                Self { months: sum.months.checked_add(part.months)?, nanoseconds: sum.nanoseconds + part.nanoseconds };
        }
        (!text.trim().is_empty()).then_some(sum)
    }

    /// Returns so many units.
    pub(super) fn from_units(count: i64, unit: &str) -> Option<Self> {
        let unit = unit.to_ascii_lowercase();
        let of = |months: i64, nanoseconds: i128| {
            Some(Self { months: months.checked_mul(count)?, nanoseconds: nanoseconds * i128::from(count) })
        };
        match unit.strip_suffix('s').unwrap_or(&unit) {
            "second" => of(0, 1_000_000_000),
            "minute" => of(0, 60_000_000_000),
            "hour" => of(0, 3_600_000_000_000),
            "day" => of(0, DAY),
            "week" => of(0, 7 * DAY),
            "month" => of(1, 0),
            "year" => of(12, 0),
            _ => None,
        }
    }

    /// Returns the interval in the other direction.
    pub(super) fn negated(self) -> Self {
        Self { months: -self.months, nanoseconds: -self.nanoseconds }
    }
}
