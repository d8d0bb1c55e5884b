//! Cells as all kinds of workbooks have them, and rows of them as bytes, which can wait until the types are known.
//!
//! ```text
//! row    = cell*
//! cell   = column u16   kind u8   value      little-endian; empty cells are omitted
//! value  = f64 (number)   u8 (boolean)   i32 (days)   i64 (milliseconds)   u32 length, UTF-8 (text)   nothing (error)
//! ```

use super::dates::{print_clock, print_date, print_span, print_stamp};

/// Most columns of a sheet.
pub(super) const MOST_COLUMNS: u32 = 16_384;
/// Most rows of a sheet.
pub(super) const MOST_ROWS: u32 = 1_048_576;

/// Number from which on whole numbers are not all exact.
const WHOLE_LIMIT: f64 = 9_007_199_254_740_992.0;

/// The value of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum CellValue<'a> {
    /// A number.
    Number(f64),
    /// A boolean.
    Bool(bool),
    /// Days since 1970-01-01.
    Date(i32),
    /// Milliseconds since 1970-01-01.
    Stamp(i64),
    /// Milliseconds since midnight.
    Clock(i32),
    /// Milliseconds of a duration.
    Span(i64),
    /// A text.
    Text(&'a str),
    /// What a formula gives that cannot be computed, such as `#DIV/0!`.
    Error,
}

/// Kinds of values that decide the type of a column, as bits.
pub(super) mod kind {
    /// A whole number that is exact.
    pub(crate) const WHOLE: u8 = 1;
    /// Any other number.
    pub(crate) const NUMBER: u8 = 2;
    pub(crate) const BOOL: u8 = 4;
    pub(crate) const DATE: u8 = 8;
    pub(crate) const STAMP: u8 = 16;
    pub(crate) const CLOCK: u8 = 32;
    pub(crate) const SPAN: u8 = 64;
    pub(crate) const TEXT: u8 = 128;
}

impl CellValue<'_> {
    /// Returns the kind of the value; 0 for an error.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Number(number) if number.fract() == 0.0 && number.abs() < WHOLE_LIMIT => kind::WHOLE,
            Self::Number(_) => kind::NUMBER,
            Self::Bool(_) => kind::BOOL,
            Self::Date(_) => kind::DATE,
            Self::Stamp(_) => kind::STAMP,
            Self::Clock(_) => kind::CLOCK,
            Self::Span(_) => kind::SPAN,
            Self::Text(_) => kind::TEXT,
            Self::Error => 0,
        }
    }

    /// Appends the value as text: numbers as short as they are exact, dates in ISO 8601, booleans as sheets show them.
    pub(super) fn print(&self, out: &mut String) {
        match self {
            Self::Number(number) => print_number(*number, out),
            Self::Bool(value) => out.push_str(if *value { "TRUE" } else { "FALSE" }),
            Self::Date(days) => print_date(i64::from(*days), out),
            Self::Stamp(milliseconds) => print_stamp(*milliseconds, out),
            Self::Clock(milliseconds) => print_clock(i64::from(*milliseconds), out),
            Self::Span(milliseconds) => print_span(*milliseconds, out),
            Self::Text(text) => out.push_str(text),
            Self::Error => {}
        }
    }
}

/// Appends a number: digits where there are few, else with an exponent.
fn print_number(number: f64, out: &mut String) {
    use std::fmt::Write as _;
    let size = number.abs();
    // Writing to a text cannot fail.
    let _ = match number {
        _ if number == 0.0 => write!(out, "0"),
        _ if (1e-5..1e17).contains(&size) => write!(out, "{number}"),
        _ => write!(out, "{number:e}"),
    };
}

const ERROR: u8 = 8;

/// Appends a cell to the bytes of its row.
pub(super) fn push_cell(row: &mut Vec<u8>, column: u16, value: CellValue<'_>) {
    row.extend_from_slice(&column.to_le_bytes());
    match value {
        CellValue::Number(number) => {
            row.push(0);
            row.extend_from_slice(&number.to_le_bytes());
        }
        CellValue::Bool(value) => row.extend_from_slice(&[1, u8::from(value)]),
        CellValue::Date(days) => {
            row.push(2);
            row.extend_from_slice(&days.to_le_bytes());
        }
        CellValue::Stamp(milliseconds) => {
            row.push(3);
            row.extend_from_slice(&milliseconds.to_le_bytes());
        }
        CellValue::Clock(milliseconds) => {
            row.push(4);
            row.extend_from_slice(&milliseconds.to_le_bytes());
        }
        CellValue::Span(milliseconds) => {
            row.push(5);
            row.extend_from_slice(&milliseconds.to_le_bytes());
        }
        CellValue::Text(text) => {
            row.push(6);
            row.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            row.extend_from_slice(text.as_bytes());
        }
        CellValue::Error => row.push(ERROR),
    }
}

/// Iterates over the cells of a row; what is not one ends it.
pub(super) struct RowCells<'a>(pub(super) &'a [u8]);

impl<'a> RowCells<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn take_text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(u32::from_le_bytes(self.take()?)).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

impl<'a> Iterator for RowCells<'a> {
    type Item = (u16, CellValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let column = u16::from_le_bytes(self.take()?);
        let [kind] = self.take()?;
        let value = match kind {
            0 => CellValue::Number(f64::from_le_bytes(self.take()?)),
            1 => CellValue::Bool(self.take()? != [0]),
            2 => CellValue::Date(i32::from_le_bytes(self.take()?)),
            3 => CellValue::Stamp(i64::from_le_bytes(self.take()?)),
            4 => CellValue::Clock(i32::from_le_bytes(self.take()?)),
            5 => CellValue::Span(i64::from_le_bytes(self.take()?)),
            6 => CellValue::Text(self.take_text()?),
            _ => CellValue::Error,
        };
        Some((column, value))
    }
}

/// Returns the letters of a column, which is counted from 0: `A`, `Z`, `AA`.
pub(super) fn column_letters(column: u32) -> String {
    let (mut rest, mut letters) = (column + 1, Vec::new());
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(b'A' + u8::try_from(rest % 26).unwrap_or_default()));
        rest /= 26;
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_have_the_letters_of_a_sheet() {
        let letters = [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (701, "ZZ"), (702, "AAA"), (16_383, "XFD")];
        letters.into_iter().for_each(|(column, expected)| assert_eq!(column_letters(column), expected));
    }

    #[test]
    fn numbers_are_printed_as_short_as_they_are_exact() {
        let numbers = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000"),
            (1e17, "1e17"),
            (1.5e300, "1.5e300"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
        ];
        for (number, expected) in numbers {
            let mut text = String::new();
            CellValue::Number(number).print(&mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn whole_numbers_end_where_they_are_no_longer_exact() {
        let kinds = [(1.0, kind::WHOLE), (0.5, kind::NUMBER), (9_007_199_254_740_991.0, kind::WHOLE)];
        let more = [(9_007_199_254_740_992.0, kind::NUMBER), (f64::INFINITY, kind::NUMBER), (-3.0, kind::WHOLE)];
        kinds.into_iter().chain(more).for_each(|(number, kind)| assert_eq!(CellValue::Number(number).kind(), kind));
    }

    proptest! {
        #[test]
        fn rows_come_back_as_they_were(cells in prop::collection::vec((any::<u16>(), 0..8, any::<i64>(), ".*"), 0..9)) {
            let value = |kind: i32, number: i64, text: &'static str| match kind {
                0 => CellValue::Number(f64::from(i32::try_from(number % 100_000).unwrap_or_default()) / 8.0),
                1 => CellValue::Bool(number > 0),
                2 => CellValue::Date(i32::try_from(number % 100_000).unwrap_or_default()),
                3 => CellValue::Stamp(number),
                4 => CellValue::Clock(i32::try_from(number % 86_400_000).unwrap_or_default()),
                5 => CellValue::Span(number),
                6 => CellValue::Text(text),
                _ => CellValue::Error,
            };
            let cells: Vec<(u16, CellValue<'static>)> = cells
                .into_iter()
                .map(|(column, kind, number, text)| (column, value(kind, number, Box::leak(text.into_boxed_str()))))
                .collect();
            let mut row = Vec::new();
            cells.iter().for_each(|(column, value)| push_cell(&mut row, *column, *value));
            prop_assert_eq!(RowCells(&row).collect::<Vec<_>>(), cells);
            for end in 0..row.len() {
                prop_assert!(RowCells(&row[..end]).count() <= RowCells(&row).count());
            }
        }
    }
}
