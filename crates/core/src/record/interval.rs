//! Intervals: months, days and a time, which are kept apart because months and days have no fixed length.
//!
//! ```text
//! Parquet         months u32le | days u32le | milliseconds u32le      12 bytes, marked as `Logical::Interval`
//! Arrow           year_month, day_time and month_day_nano             signed parts
//! text            P14M2DT3.5S, P-1M, P0D                              ISO 8601, each part with its own sign
//! ```
//!
//! Every conversion here is exact or refused: a type that lacks a part, its sign or its precision does not take it.

use std::{io::Write as _, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, FixedSizeBinaryBuilder, IntervalDayTimeArray, IntervalMonthDayNanoArray,
        IntervalYearMonthArray, StringArray,
    },
    datatypes::{
        DataType, Field, IntervalDayTime, IntervalDayTimeType, IntervalMonthDayNano, IntervalMonthDayNanoType,
        IntervalUnit, IntervalYearMonthType, TimeUnit,
    },
};

use super::time;
use crate::schema::{INTERVAL, Logical};

const NANOS_PER_MS: i64 = 1_000_000;

/// Bytes of an interval in Parquet.
const WIDTH: usize = 12;

/// The parts of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    months: i64,
    days: i64,
    nanos: i64,
}

/// Returns whether values of the field are intervals of Arrow or Parquet.
pub fn is_interval(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Interval(_)) || is_stored(field)
}

/// Returns whether values of the field are intervals of Parquet.
pub fn is_stored(field: &Field) -> bool {
    field.data_type() == &INTERVAL && Logical::from_field(field) == Some(Logical::Interval)
}

impl Interval {
    /// Returns a value of an array of intervals; of other arrays, or of null, nothing.
    pub fn from_array(array: &dyn Array, row: usize) -> Option<Self> {
        if array.is_null(row) {
            return None;
        }
        Some(match array.data_type() {
            DataType::Interval(IntervalUnit::YearMonth) => {
                Self { months: array.as_primitive::<IntervalYearMonthType>().value(row).into(), ..Self::default() }
            }
            DataType::Interval(IntervalUnit::DayTime) => {
                let value = array.as_primitive::<IntervalDayTimeType>().value(row);
                let nanos = i64::from(value.milliseconds) * NANOS_PER_MS;
                Self { months: 0, days: value.days.into(), nanos }
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                Self { months: value.months.into(), days: value.days.into(), nanos: value.nanoseconds }
            }
            DataType::FixedSizeBinary(_) => {
                let bytes = array.as_fixed_size_binary_opt()?.value(row);
                let part = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
                let (months, days, milliseconds) = (part(0)?, part(4)?, part(8)?);
                Self { months: months.into(), days: days.into(), nanos: i64::from(milliseconds) * NANOS_PER_MS }
            }
            _ => return None,
        })
    }

    /// Appends the bytes of the interval in a type; `None` if the type cannot hold it.
    pub fn push_bytes(self, data_type: &DataType, out: &mut Vec<u8>) -> Option<()> {
        match data_type {
            DataType::Interval(IntervalUnit::YearMonth) => out.extend(self.year_month()?.to_ne_bytes()),
            DataType::Interval(IntervalUnit::DayTime) => {
                let value = self.day_time()?;
                out.extend(value.days.to_ne_bytes());
                out.extend(value.milliseconds.to_ne_bytes());
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let value = self.month_day_nano()?;
                out.extend(value.months.to_ne_bytes());
                out.extend(value.days.to_ne_bytes());
                out.extend(value.nanoseconds.to_ne_bytes());
            }
            _ => out.extend(self.to_stored_bytes()?),
        }
        Some(())
    }

    fn year_month(self) -> Option<i32> {
        i32::try_from(self.months).ok().filter(|_| self.days == 0 && self.nanos == 0)
    }

    fn day_time(self) -> Option<IntervalDayTime> {
        let (days, milliseconds) = (i32::try_from(self.days).ok()?, i32::try_from(self.whole_milliseconds()?).ok()?);
        (self.months == 0).then_some(IntervalDayTime { days, milliseconds })
    }

    fn month_day_nano(self) -> Option<IntervalMonthDayNano> {
        let (months, days) = (i32::try_from(self.months).ok()?, i32::try_from(self.days).ok()?);
        Some(IntervalMonthDayNano { months, days, nanoseconds: self.nanos })
    }

    fn to_stored_bytes(self) -> Option<[u8; WIDTH]> {
        let mut bytes = [0; WIDTH];
        for (place, part) in bytes.chunks_exact_mut(4).zip([self.months, self.days, self.whole_milliseconds()?]) {
            place.copy_from_slice(&u32::try_from(part).ok()?.to_le_bytes());
        }
        Some(bytes)
    }

    /// Returns the time in milliseconds, if it is a whole number of them.
    fn whole_milliseconds(self) -> Option<i64> {
        (self.nanos % NANOS_PER_MS == 0).then_some(self.nanos / NANOS_PER_MS)
    }

    /// Appends the text of the interval.
    pub fn push_text(self, out: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        if self == Self::default() {
            out.extend_from_slice(b"P0D");
            return;
        }
        out.push(b'P');
        if self.months != 0 {
            let _ = write!(out, "{}M", self.months);
        }
        if self.days != 0 {
            let _ = write!(out, "{}D", self.days);
        }
        if self.nanos != 0 {
            let (seconds, fraction) =
                (self.nanos.unsigned_abs() / 1_000_000_000, self.nanos.unsigned_abs() % 1_000_000_000);
            let _ = write!(out, "T{}{seconds}", if self.nanos < 0 { "-" } else { "" });
            if fraction > 0 {
                let digits = format!("{fraction:09}");
                let _ = write!(out, ".{}", digits.trim_end_matches('0'));
            }
            out.push(b'S');
        }
    }

    /// Parses a text of ISO 8601 with whole years, months, weeks and days; `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().strip_prefix('P')?;
        let (dates, times) = text.split_once('T').unwrap_or((text, ""));
        if dates.is_empty() && times.is_empty() || text.ends_with('T') {
            return None;
        }
        let mut found = Self::default();
        for (count, unit) in parse_parts(dates)? {
            let count: i64 = count.parse().ok()?;
            let (part, each) = match unit {
                'Y' => (&mut found.months, 12),
                'M' => (&mut found.months, 1),
                'W' => (&mut found.days, 7),
                'D' => (&mut found.days, 1),
                _ => return None,
            };
            *part = part.checked_add(count.checked_mul(each)?)?;
        }
        for (count, unit) in parse_parts(times)? {
            let (sign, count) = count.strip_prefix('-').map_or(("", count), |count| ("-", count));
            let nanos = time::parse_duration(&format!("{sign}PT{count}{unit}"), TimeUnit::Nanosecond)?;
            found.nanos = found.nanos.checked_add(nanos)?;
        }
        Some(found)
    }
}

/// Splits `1Y2M` into counts and units.
fn parse_parts(text: &str) -> Option<Vec<(&str, char)>> {
    let pieces = text.split_inclusive(|c: char| c.is_ascii_alphabetic());
    pieces
        .map(|piece| {
            let unit = piece.chars().last().filter(char::is_ascii_alphabetic)?;
            Some((piece.strip_suffix(unit)?, unit))
        })
        .collect()
}

/// Converts intervals to another type of intervals.
///
/// # Errors
/// The first row that the type cannot hold.
pub fn cast_intervals(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, usize> {
    let values: Vec<_> = (0..array.len()).map(|row| Interval::from_array(array.as_ref(), row)).collect();
    build_array(&values, to)
}

/// Parses texts as intervals.
///
/// # Errors
/// The first row with another text, or with a value that the type cannot hold.
pub fn of_texts(texts: &StringArray, to: &DataType) -> Result<ArrayRef, usize> {
    let parse = |(row, text): (usize, Option<&str>)| text.map(|text| Interval::parse(text).ok_or(row)).transpose();
    build_array(&texts.iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>()?, to)
}

fn build_array(values: &[Option<Interval>], to: &DataType) -> Result<ArrayRef, usize> {
    Ok(match to {
        DataType::Interval(IntervalUnit::YearMonth) => {
            Arc::new(IntervalYearMonthArray::from(convert_all(values, Interval::year_month)?))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            Arc::new(IntervalDayTimeArray::from(convert_all(values, Interval::day_time)?))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            Arc::new(IntervalMonthDayNanoArray::from(convert_all(values, Interval::month_day_nano)?))
        }
        _ => {
            let mut stored = FixedSizeBinaryBuilder::with_capacity(values.len(), 12);
            for (row, value) in convert_all(values, Interval::to_stored_bytes)?.iter().enumerate() {
                match value {
                    Some(bytes) => stored.append_value(bytes).map_err(|_| row)?,
                    None => stored.append_null(),
                }
            }
            Arc::new(stored.finish())
        }
    })
}

/// Converts each value; one that becomes nothing does not fit.
fn convert_all<T>(values: &[Option<Interval>], convert: fn(Interval) -> Option<T>) -> Result<Vec<Option<T>>, usize> {
    values.iter().enumerate().map(|(row, value)| value.map(|value| convert(value).ok_or(row)).transpose()).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn text(months: i64, days: i64, nanos: i64) -> String {
        let mut out = Vec::new();
        Interval { months, days, nanos }.push_text(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_are_iso_8601() {
        assert_eq!(text(14, 2, 3_500_000_000), "P14M2DT3.5S");
        assert_eq!(text(0, 0, 0), "P0D");
        assert_eq!(text(-1, 0, -1), "P-1MT-0.000000001S");
        assert_eq!(text(0, 0, i64::MIN), "PT-9223372036.854775808S");
        for (text, months, days, nanos) in [
            ("P1Y2M3W4DT5H6M7.008S", 14, 25, 18_367_008_000_000),
            ("P0D", 0, 0, 0),
            ("P-1MT-0.000000001S", -1, 0, -1),
            ("PT-9223372036.854775808S", 0, 0, i64::MIN),
        ] {
            assert_eq!(Interval::parse(text), Some(Interval { months, days, nanos }), "{text}");
        }
        for wrong in ["", "P", "PT", "P1", "P1DT", "1D", "P1.5M", "P1S", "PT1Y", "P99999999999999999999D"] {
            assert_eq!(Interval::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn types_take_only_what_they_hold() {
        let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(IntervalMonthDayNano { months: 1, days: 2, nanoseconds: 3_000_000 }),
            None,
        ]));
        let stored = cast_intervals(&values, &INTERVAL).unwrap();
        assert_eq!(stored.as_fixed_size_binary().value(0), [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        assert!(stored.is_null(1));
        assert_eq!(&cast_intervals(&stored, values.data_type()).unwrap(), &values);
        assert_eq!(cast_intervals(&values, &DataType::Interval(IntervalUnit::DayTime)), Err(0), "it has no months");
        for (months, days, nanoseconds) in [(-1, 0, 0), (0, -1, 0), (0, 0, -1_000_000), (0, 0, 1)] {
            let value = IntervalMonthDayNano { months, days, nanoseconds };
            let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![value]));
            assert_eq!(cast_intervals(&values, &INTERVAL), Err(0), "{value:?}");
        }
    }
}
