//! The proleptic Gregorian calendar: days since 1970-01-01 of dates, and dates of days.
//!
//! Years are counted from March, so that the leap day is the last day of a year, and month lengths follow the line
//! `(153 * month + 2) / 5`. The calendar repeats every 400 years, which are 146,097 days. Only the vector kernel for
//! timestamps in CSV has this arithmetic of its own, because its divisions are multiplications.

/// Days of 400 years.
const CYCLE: i64 = 146_097;

/// Whether a year has a leap day.
pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Returns the number of days of a month; 0 if it is not one of 1 to 12.
pub fn month_days(year: i64, month: i32) -> i32 {
    match month {
        2 => 28 + i32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    }
}

/// Returns the days since 1970-01-01 of a date of the years 1 to 5,000,000.
#[inline]
pub fn small_days(year: i32, month: i32, day: i32) -> i32 {
    let early = month <= 2;
    let year = year - i32::from(early);
    let month = if early { month + 9 } else { month - 3 };
    // 719468 days lie between 0000-03-01 and 1970-01-01.
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Returns the days since 1970-01-01 of a date, in any year of up to 12 digits.
pub fn days_from_date(year: i64, month: i32, day: i32) -> i64 {
    let of_cycle = i32::try_from(year.rem_euclid(400)).unwrap_or_default();
    (year.div_euclid(400) - 1) * CYCLE + i64::from(small_days(of_cycle + 400, month, day))
}

/// Returns the year, month and day of a day, counted from 1970-01-01.
pub fn date_from_days(days: i64) -> (i64, u64, u64) {
    let shifted = i128::from(days) + 719_468;
    let (cycle, day_of_cycle) = (shifted.div_euclid(CYCLE.into()), shifted.rem_euclid(CYCLE.into()));
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_cycle + cycle * 400 + i128::from(month <= 2);
    let small = |n: i128| u64::try_from(n).unwrap_or(0);
    (i64::try_from(year).unwrap_or(i64::MAX), small(month), small(day))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn far_years_are_counted() {
        // 400 years are 146,097 days, so the year 1,000,000,001,970 begins 2.5 billion of these cycles after 1970.
        assert_eq!(days_from_date(1_000_000_001_970, 1, 1), 2_500_000_000 * CYCLE);
        assert_eq!(days_from_date(-999_999_998_030, 1, 1), -2_500_000_000 * CYCLE);
        assert_eq!(date_from_days(2_500_000_000 * CYCLE), (1_000_000_001_970, 1, 1));
        assert_eq!(date_from_days(i64::MAX).1, date_from_days(i64::MAX).1.clamp(1, 12));
    }

    proptest! {
        #[test]
        fn dates_agree_with_jiff(number in -4_371_587i64..=2_932_896) {
            let expected = jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(number)).unwrap();
            let (year, month, day) = date_from_days(number);
            let same = (i64::from(expected.year()), expected.month().unsigned_abs(), expected.day().unsigned_abs());
            prop_assert_eq!((year, month, day), (same.0, same.1.into(), same.2.into()));
            prop_assert_eq!(days_from_date(year, same.1.into(), same.2.into()), number);
            prop_assert_eq!(month_days(year, expected.month().into()), i32::from(expected.days_in_month()));
            if year > 0 {
                let found = small_days(expected.year().into(), same.1.into(), same.2.into());
                prop_assert_eq!(i64::from(found), number);
            }
        }
    }
}
