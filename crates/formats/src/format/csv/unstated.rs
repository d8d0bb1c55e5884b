//! Notations that the first values of a column of text have and nobody stated: `1.234,56` and `31.12.2026`. Nothing is
//! read by them, since `1,234` may be two numbers and `01/02/2026` two days; a note names the settings that would.

use super::{
    missing::{is_null, join_names},
    notation::{Notation, Wanted},
    profile::{PROFILED, generic_kind},
    rows::HeadRows,
    value::ValueKind,
};

/// Marks before the fraction and between thousands.
const NUMBERS: [(Option<u8>, Option<u8>); 4] =
    [(Some(b','), None), (Some(b','), Some(b'.')), (None, Some(b',')), (Some(b','), Some(b' '))];

/// Formats of days.
const DAYS: [&str; 7] = ["%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d-%b-%Y"];

/// Formats of times of the day behind a day.
const TIMES: [&str; 3] = [" %H:%M", " %H:%M:%S", " %I:%M %p"];

/// Returns notes on columns whose texts are numbers, dates or times in another notation. Records begin at `first`;
/// `is_given` names columns whose types the user set.
pub(super) fn note_notations(
    rows: &HeadRows<'_>,
    first: usize,
    names: &[String],
    is_given: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for (column, name) in names.iter().enumerate().filter(|(_, name)| !is_given(name)) {
        let Some(settings) = notation_in(rows, first, column) else { continue };
        match found.iter_mut().find(|(known, _)| *known == settings) {
            Some((_, columns)) => columns.push(name),
            None => found.push((settings, vec![name])),
        }
    }
    let note = |(settings, columns): (String, Vec<&str>)| {
        let (was, are) = if columns.len() == 1 { ("was", "it is") } else { ("were", "they are") };
        format!("{} {was} taken as text; if {are} {settings}", join_names(&columns))
    };
    found.into_iter().map(note).collect()
}

/// Returns what the texts of a column may be, with the settings that read them so; `None` if they are nothing else.
fn notation_in(rows: &HeadRows<'_>, first: usize, column: usize) -> Option<String> {
    let rows_of = || first..rows.len().min(first + PROFILED);
    let values = || rows_of().map(|row| rows.unquoted_field(row, column)).filter(|value| !is_null(value));
    let is_other = |value: &[u8]| has_marks(value) && generic_kind(ValueKind::from_text(value)) == ValueKind::Text;
    if !values().any(|value| is_other(&value)) {
        return None;
    }
    let has = |notation: &Notation, wanted| {
        let mut values = values();
        // A zero at the beginning of an id or a postcode is part of it.
        let is_number = |value: &[u8]| {
            let is_plain = value.iter().all(u8::is_ascii_digit) && (value.len() == 1 || value.first() != Some(&b'0'));
            wanted == Wanted::Value && is_plain
        };
        values.all(|value| {
            is_number(&value) || notation.to_usual(&value, wanted).is_some_and(|usual| !usual.ends_with(b" "))
        })
    };
    let shows = |mark: Option<u8>| mark.is_none_or(|mark| values().any(|value| value.contains(&mark)));
    let numbers = NUMBERS.into_iter().find(|(decimal, thousands)| {
        (shows(*decimal) && shows(*thousands))
            && has(&Notation { decimal: *decimal, thousands: *thousands, ..Notation::default() }, Wanted::Value)
    });
    if let Some((decimal, thousands)) = numbers {
        let setting = |key: &str, mark: Option<u8>| mark.map(|mark| format!("--read '{key}={}'", char::from(mark)));
        let settings: Vec<String> =
            [setting("decimal", decimal), setting("thousands", thousands)].into_iter().flatten().collect();
        return Some(format!("numbers: {}", settings.join(" ")));
    }
    let days: Vec<String> = DAYS
        .into_iter()
        .filter(|format| has(&Notation { date: Some((*format).to_owned()), ..Notation::default() }, Wanted::Time))
        .map(|format| format!("--read 'date={format}'"))
        .collect();
    if !days.is_empty() {
        return Some(format!("dates: {}", days.join(" or ")));
    }
    let formats = DAYS.into_iter().flat_map(|day| TIMES.into_iter().map(move |time| format!("{day}{time}")));
    let times: Vec<String> = formats
        .filter(|format| has(&Notation { timestamp: Some(format.clone()), ..Notation::default() }, Wanted::Time))
        .map(|format| format!("--read 'timestamp={format}'"))
        .collect();
    (!times.is_empty()).then(|| format!("times: {}", times.join(" or ")))
}

/// Whether a value may be a number or a day with marks that the usual notations lack. Most values are not, and need not
/// be parsed.
fn has_marks(value: &[u8]) -> bool {
    let begins = value.first().is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+'));
    let count = |mark: u8| value.iter().filter(|byte| **byte == mark).count();
    begins && (value.iter().any(|byte| matches!(byte, b',' | b'/' | b' ')) || count(b'.') > 1 || count(b'-') > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(values: &[&str]) -> Vec<String> {
        let text: String = std::iter::once(&"x").chain(values).map(|value| format!("{value}\n")).collect();
        let rows = HeadRows::from_text(text.as_bytes(), b';', true, 200);
        note_notations(&rows, 1, &["x".to_owned()], |_| false)
    }

    #[test]
    fn settings_that_read_a_column_are_named() {
        for (values, expected) in [
            (&["1,5", "-2,25", "3"][..], "numbers: --read 'decimal=,'"),
            (&["1.234,56", "7", "12.345"], "numbers: --read 'decimal=,' --read 'thousands=.'"),
            (&["1,234,567", "1,200.50"], "numbers: --read 'thousands=,'"),
            (&["1 234,5", "7,25"], "numbers: --read 'decimal=,' --read 'thousands= '"),
            (&["31.12.2026", "01.02.2026", "NA"], "dates: --read 'date=%d.%m.%Y'"),
            (&["12/31/2026", "01/02/2026"], "dates: --read 'date=%m/%d/%Y'"),
            (&["01/02/2026", "03/04/2026"], "dates: --read 'date=%d/%m/%Y' or --read 'date=%m/%d/%Y'"),
            (&["31-DEC-2026"], "dates: --read 'date=%d-%b-%Y'"),
            (&["31.12.2026 23:59:59", "01.02.2026 00:00:00"], "times: --read 'timestamp=%d.%m.%Y %H:%M:%S'"),
        ] {
            let found = notes(values);
            assert_eq!(found, [format!("`x` was taken as text; if it is {expected}")], "{values:?}");
        }
    }

    #[test]
    fn other_texts_get_no_note() {
        for values in [
            &["1,5", "two"][..],
            &["1", "2"],
            &["1.5", "2"],
            &["2026-01-02", "2026-01-03"],
            &["31.12.2026", "12.31.2026"],
            &["a"],
            &["1-2", "3-4"],
            &["10%"],
            &["192.168.0.1"],
            &["+49 30 1234"],
            &["01234", "99501"],
            &["1", "2", "007"],
        ] {
            assert!(notes(values).is_empty(), "{values:?}: {:?}", notes(values));
        }
    }
}
