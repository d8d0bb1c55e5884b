//! Numbers and dates as a user states that a source writes them: `1.234,56` and `31.12.2026`.
//!
//! Values in the stated notation are written anew in the usual one before they are parsed, and only for columns that
//! have a type; the text of a text column is never changed.

use jiff::{
    Timestamp,
    civil::{Date, DateTime, date},
    tz::TimeZone,
};

use super::value;
use crate::error::{Error, Result};

/// How values are written, where that is stated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notation {
    /// Byte before the fraction of a number.
    pub decimal: Option<u8>,
    /// Byte between thousands.
    pub thousands: Option<u8>,
    /// Format of dates, as `strptime` has it.
    pub date: Option<String>,
    /// Format of times.
    pub timestamp: Option<String>,
}

/// What the values of a column are written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The text of the source.
    Text,
    /// A number, date or time. Digits alone are a number: `20261231` in a column that nobody says to be of dates.
    Value,
    /// A date or time.
    Time,
}

impl Notation {
    /// Whether nothing is stated.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a value in the usual notation, if it is one in the stated notation.
    ///
    /// A number in the usual notation that is none in the stated one gets a space, so that it is text: `1.5` is not one
    /// and a half where the comma is stated.
    pub(super) fn to_usual(&self, text: &[u8], wanted: Wanted) -> Option<Vec<u8>> {
        match wanted {
            Wanted::Text => None,
            Wanted::Time => self.to_usual_time(text),
            Wanted::Value if text.iter().all(u8::is_ascii_digit) => None,
            Wanted::Value => self.to_usual_number(text).or_else(|| self.to_usual_time(text)),
        }
    }

    fn to_usual_number(&self, text: &[u8]) -> Option<Vec<u8>> {
        if self.decimal.is_some() || self.thousands.is_some() {
            if let Some(number) = self.to_number(text) {
                return Some(number);
            }
            if value::parse_float64(text).is_some() && text.contains(&b'.') {
                return Some([text, b" "].concat());
            }
        }
        None
    }

    fn to_usual_time(&self, text: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(text).ok()?;
        if let Some(date) = self.date.as_ref().and_then(|format| Date::strptime(format, text).ok()) {
            return Some(date.to_string().into_bytes());
        }
        let format = self.timestamp.as_deref()?;
        let usual = match has_zone(format) {
            true => Timestamp::strptime(format, text).ok()?.to_string(),
            false => DateTime::strptime(format, text).ok()?.to_string(),
        };
        Some(usual.into_bytes())
    }

    /// Returns a number in the usual notation.
    fn to_number(&self, text: &[u8]) -> Option<Vec<u8>> {
        let decimal = self.decimal.unwrap_or(b'.');
        let (sign, rest) = match text.strip_prefix(b"-") {
            Some(rest) => (&b"-"[..], rest),
            None => (&b""[..], text),
        };
        let whole_end = rest.iter().position(|byte| *byte == decimal || matches!(byte, b'e' | b'E'));
        let (whole, rest) = rest.split_at(whole_end.unwrap_or(rest.len()));
        let groups: Vec<&[u8]> = match self.thousands {
            Some(separator) => whole.split(|byte| *byte == separator).collect(),
            None => vec![whole],
        };
        let is_grouped =
            groups.len() == 1 || matches!(groups[0].len(), 1..=3) && groups[1..].iter().all(|group| group.len() == 3);
        let digits = groups.concat();
        if !is_grouped || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut out = [sign, &digits].concat();
        if let Some(fraction) = rest.strip_prefix(&[decimal]) {
            out.push(b'.');
            out.extend_from_slice(fraction);
        } else {
            out.extend_from_slice(rest);
        }
        (value::parse_float64(&out).is_some() || value::parse_int64(&out).is_some()).then_some(out)
    }
}

/// Whether a format has an offset from UTC.
fn has_zone(format: &str) -> bool {
    ["%z", "%:z"].iter().any(|zone| format.contains(zone))
}

/// Checks a format of dates.
///
/// # Errors
/// If no date can be written and read with it.
pub fn check_date_format(format: &str) -> Result<()> {
    let date = date(2026, 12, 31);
    let text = jiff::fmt::strtime::format(format, date).unwrap_or_default();
    match Date::strptime(format, &text) {
        Ok(read) if read == date => Ok(()),
        _ => Err(bad_format("a date", "%d.%m.%Y", format)),
    }
}

/// Checks a format of times.
///
/// # Errors
/// If no time can be written and read with it.
pub fn check_timestamp_format(format: &str) -> Result<()> {
    let time = date(2026, 12, 31).at(23, 59, 0, 0);
    let fits = match has_zone(format) {
        true => time.to_zoned(TimeZone::UTC).is_ok_and(|zoned| {
            let text = jiff::fmt::strtime::format(format, &zoned).unwrap_or_default();
            Timestamp::strptime(format, &text).is_ok_and(|read| read == zoned.timestamp())
        }),
        false => {
            let text = jiff::fmt::strtime::format(format, time).unwrap_or_default();
            DateTime::strptime(format, &text).is_ok_and(|read| read == time)
        }
    };
    if fits { Ok(()) } else { Err(bad_format("a time", "%d.%m.%Y %H:%M:%S", format)) }
}

fn bad_format(what: &str, example: &str, format: &str) -> Error {
    Error::usage(format!("expected the format of {what}, such as `{example}`, found `{format}`")).with_hint(
        "%Y %m %d %H %M %S are year, month, day, hour, minute and second; %y, %b, %B, %p, %I, %f and %z as in strptime",
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn usual(notation: &Notation, text: &str) -> Option<String> {
        notation.to_usual(text.as_bytes(), Wanted::Value).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn numbers_are_those_of_the_stated_notation_alone() {
        let german = Notation { decimal: Some(b','), thousands: Some(b'.'), ..Notation::default() };
        let comma = Notation { decimal: Some(b','), ..Notation::default() };
        let english = Notation { thousands: Some(b','), ..Notation::default() };
        for (notation, text, wanted) in [
            (&german, "1.234.567,89", Some("1234567.89")),
            (&german, "-1.234", Some("-1234")),
            (&german, "1234,5", Some("1234.5")),
            (&german, "1,5e3", Some("1.5e3")),
            (&german, "7", None),
            (&german, "1.5", Some("1.5 ")),
            (&german, "12.34.567", None),
            (&german, "a,b", None),
            (&german, "", None),
            (&comma, "0,25", Some("0.25")),
            (&comma, "0.25", Some("0.25 ")),
            (&comma, "1,2,3", None),
            (&english, "1,234.5", Some("1234.5")),
            (&english, "1,23", None),
            (&english, "2.5", Some("2.5")),
        ] {
            assert_eq!(usual(notation, text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn dates_and_times_are_read_by_their_formats() {
        let of = |date: Option<&str>, timestamp: Option<&str>| Notation {
            date: date.map(str::to_owned),
            timestamp: timestamp.map(str::to_owned),
            ..Notation::default()
        };
        let date = of(Some("%d.%m.%Y"), None);
        assert_eq!(usual(&date, "31.12.2026").as_deref(), Some("2026-12-31"));
        assert_eq!((usual(&date, "2026-12-31"), usual(&date, "32.12.2026")), (None, None));
        assert_eq!(usual(&of(Some("%b %d, %Y"), None), "Feb 29, 2024").as_deref(), Some("2024-02-29"));
        let digits = of(Some("%Y%m%d"), None);
        assert_eq!(usual(&digits, "20261231"), None);
        assert_eq!(digits.to_usual(b"20261231", Wanted::Time).as_deref(), Some(&b"2026-12-31"[..]));
        let time = of(None, Some("%m/%d/%Y %I:%M %p"));
        assert_eq!(usual(&time, "12/31/2026 11:05 PM").as_deref(), Some("2026-12-31T23:05:00"));
        let fraction = of(None, Some("%d.%m.%Y %H:%M:%S%.f"));
        assert_eq!(usual(&fraction, "31.12.2026 23:05:01.25").as_deref(), Some("2026-12-31T23:05:01.25"));
        let zone = of(None, Some("%d/%b/%Y:%H:%M:%S %z"));
        assert_eq!(usual(&zone, "31/Dec/2026:23:05:01 +0100").as_deref(), Some("2026-12-31T22:05:01Z"));
    }

    #[test]
    fn formats_that_read_nothing_are_refused() {
        for format in ["%d.%m.%Y", "%Y%m%d", "%m/%d/%y", "%d %B %Y", "%F"] {
            check_date_format(format).unwrap();
        }
        for format in ["", "dd.mm.yyyy", "%d.%m", "%Q", "%H:%M"] {
            check_date_format(format).unwrap_err();
        }
        for format in ["%Y-%m-%dT%H:%M:%S", "%d/%b/%Y:%H:%M:%S %z", "%m/%d/%Y %I:%M %p", "%d.%m.%Y %H:%M"] {
            check_timestamp_format(format).unwrap();
        }
        for format in ["%d.%m.%Y", "hh:mm", "%"] {
            check_timestamp_format(format).unwrap_err();
        }
    }
}
