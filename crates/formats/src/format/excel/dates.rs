//! Dates and times of sheets: numbers of days, with the time of day as a fraction, rounded to milliseconds.
//!
//! ```text
//! 1900   1 is 1900-01-01; 60 is 1900-02-29, a day that never was; from 61 on, days count from 1899-12-30
//! 1904   0 is 1904-01-01
//! ```
//!
//! A number from 0 to 1 is a time of day alone, as openpyxl and Excel take it. Texts are ISO 8601.

use std::fmt::Write as _;

use arrow::datatypes::TimeUnit;

use super::cells::CellValue;
use crate::record::{civil, time};

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;

/// Days from 1970-01-01 back to the days that serial numbers count from.
const EPOCH_1900: i64 = -25_569;
const EPOCH_1904: i64 = -24_107;

/// The first serial number of 1900 that counts from 1899-12-30, and the day before, which does not exist.
const MISSING_DAY: f64 = 60.0;

/// First and last days of the years 1 to 9999.
const FIRST_DAY: i64 = -719_162;
const LAST_DAY: i64 = 2_932_896;

/// Returns what a serial number stands for in a cell with the format of a date or time. One beyond the years 1 to 9999
/// stays a number, and the day that never was is an error.
pub(super) fn from_serial(serial: f64, is_1904: bool) -> CellValue<'static> {
    if !serial.is_finite() || serial.abs() > 4e6 {
        return CellValue::Number(serial);
    }
    let (mut day, clock) = split_serial(serial);
    if (0.0..1.0).contains(&serial) && clock < DAY {
        return CellValue::Clock(i32::try_from(clock).unwrap_or_default());
    }
    if !is_1904 && (MISSING_DAY..MISSING_DAY + 1.0).contains(&serial) {
        return CellValue::Error;
    }
    if !is_1904 && 0.0 < serial && serial < MISSING_DAY {
        day += 1;
    }
    let days = day + if is_1904 { EPOCH_1904 } else { EPOCH_1900 } + clock / DAY;
    match clock % DAY {
        _ if !(FIRST_DAY..=LAST_DAY).contains(&days) => CellValue::Number(serial),
        0 => CellValue::Date(i32::try_from(days).unwrap_or_default()),
        clock => CellValue::Stamp(days * DAY + clock),
    }
}

/// Returns the whole days of a serial number, and the milliseconds of the rest, up to a day.
#[expect(clippy::cast_possible_truncation, reason = "serial numbers are small")]
fn split_serial(serial: f64) -> (i64, i64) {
    let day = serial.floor();
    (day as i64, ((serial - day) * 86_400_000.0).round_ties_even() as i64)
}

/// Returns the duration that a number of days stands for; one that no duration holds stays a number.
pub(super) fn span_of_days(days: f64) -> CellValue<'static> {
    let milliseconds = (days * 86_400_000.0).round_ties_even();
    if !milliseconds.is_finite() || milliseconds.abs() > 9e15 {
        return CellValue::Number(days);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is within the bound")]
    CellValue::Span(milliseconds as i64)
}

/// Returns what a date or time in ISO 8601 stands for; `None` if it is none.
pub(super) fn from_iso(text: &str) -> Option<CellValue<'static>> {
    let unit = TimeUnit::Millisecond;
    if let Some(days) = time::parse_date(text) {
        return Some(CellValue::Date(days));
    }
    // More digits than milliseconds have are rounded, as those of serial numbers are.
    if let Some(microseconds) = time::parse_timestamp(text, TimeUnit::Microsecond) {
        let milliseconds = rounded(microseconds);
        return Some(match milliseconds.rem_euclid(DAY) {
            0 => CellValue::Date(i32::try_from(milliseconds.div_euclid(DAY)).ok()?),
            _ => CellValue::Stamp(milliseconds),
        });
    }
    let clock = time::time_of_day(text, unit).filter(|clock| *clock < DAY)?;
    i32::try_from(clock).ok().map(CellValue::Clock)
}

fn rounded(microseconds: i64) -> i64 {
    let (whole, rest) = (microseconds.div_euclid(1000), microseconds.rem_euclid(1000));
    whole + i64::from(rest > 500 || rest == 500 && whole % 2 != 0)
}

/// Returns the duration that a text in ISO 8601 states, such as `PT10H30M0S`.
pub(super) fn span_of_iso(text: &str) -> Option<CellValue<'static>> {
    time::parse_duration(text, TimeUnit::Microsecond).map(|microseconds| CellValue::Span(rounded(microseconds)))
}

/// Appends a date.
pub(super) fn print_date(days: i64, out: &mut String) {
    let (year, month, day) = civil::date_from_days(days);
    // Writing to a text cannot fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
}

/// Appends a date and a time.
pub(super) fn print_stamp(milliseconds: i64, out: &mut String) {
    print_date(milliseconds.div_euclid(DAY), out);
    out.push('T');
    print_clock(milliseconds.rem_euclid(DAY), out);
}

/// Appends a time of day, without a fraction that is 0.
pub(super) fn print_clock(milliseconds: i64, out: &mut String) {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if rest != 0 {
        let _ = write!(out, ".{rest:03}");
    }
}

/// Appends a duration in seconds.
pub(super) fn print_span(milliseconds: i64, out: &mut String) {
    let (sign, size) = (if milliseconds < 0 { "-" } else { "" }, milliseconds.unsigned_abs());
    let _ = match (size / 1000, size % 1000) {
        (0, 0) => write!(out, "P0D"),
        (seconds, 0) => write!(out, "{sign}PT{seconds}S"),
        (seconds, rest) => {
            let fraction = format!("{rest:03}");
            write!(out, "{sign}PT{seconds}.{}S", fraction.trim_end_matches('0'))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: CellValue<'_>) -> String {
        let mut out = String::new();
        value.print(&mut out);
        out
    }

    /// As Excel shows these numbers in the format `yyyy-mm-dd hh:mm:ss.000`, apart from the day that never was.
    #[test]
    fn serial_numbers_are_the_days_that_excel_shows() {
        let of_1900 = [
            (0.0, "00:00:00"),
            (0.5, "12:00:00"),
            (0.999_999_99, "23:59:59.999"),
            (1.0, "1900-01-01"),
            (1.25, "1900-01-01T06:00:00"),
            (59.0, "1900-02-28"),
            (60.0, ""),
            (60.75, ""),
            (61.0, "1900-03-01"),
            (25_569.0, "1970-01-01"),
            (45_356.000_011_574_07, "2024-03-05T00:00:01"),
            (45_356.999_999_999, "2024-03-06"),
            (2_958_465.0, "9999-12-31"),
            (2_958_466.0, "2958466"),
            (-1.0, "1899-12-29"),
            (1e300, "1e300"),
        ];
        of_1900.into_iter().for_each(|(serial, expected)| assert_eq!(text(from_serial(serial, false)), expected));
        let of_1904 =
            [(0.25, "06:00:00"), (1.0, "1904-01-02"), (60.0, "1904-03-01"), (43_894.5, "2024-03-05T12:00:00")];
        of_1904.into_iter().for_each(|(serial, expected)| assert_eq!(text(from_serial(serial, true)), expected));
    }

    #[test]
    fn texts_in_iso_8601_are_dates_times_and_durations() {
        let of = |iso: &str| from_iso(iso).map(text).unwrap_or_default();
        assert_eq!(of("2024-03-05"), "2024-03-05");
        assert_eq!(of("2024-03-05T00:00:00"), "2024-03-05");
        assert_eq!(of("2024-03-05T10:20:30.5006"), "2024-03-05T10:20:30.501");
        assert_eq!(of("10:20:30"), "10:20:30");
        assert_eq!(of("next week"), "");
        let span = |iso: &str| span_of_iso(iso).map(text).unwrap_or_default();
        assert_eq!(span("PT26H30M05.25S"), "PT95405.25S");
        assert_eq!(span("PT00H00M00S"), "P0D");
        assert_eq!(span("soon"), "");
        assert_eq!(text(span_of_days(-0.5)), "-PT43200S");
        assert_eq!(text(span_of_days(1e300)), "1e300");
    }
}
