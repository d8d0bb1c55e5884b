//! Texts that stand for a missing value in many files. Only an empty field is null by itself: `NA` may be Namibia, and
//! `-` a sign. Among numbers or times such a text makes the whole column text, so a note says how to read it as null.

use super::{
    profile::{PROFILED, generic_kind},
    rows::HeadRows,
    value::ValueKind,
};

/// Number of columns that a note names.
const NAMED: usize = 3;

/// Whether a text stands for a missing value in many files.
pub(super) fn is_null(text: &[u8]) -> bool {
    const MAX_NULL_BYTES: usize = 4;
    const NULLS: [&[u8]; 15] = [
        b"", b"NA", b"N/A", b"n/a", b"na", b"NaN", b"nan", b"null", b"NULL", b"None", b"none", b"-", b"?", b".", b"\\N",
    ];
    text.len() <= MAX_NULL_BYTES && NULLS.contains(&text)
}

/// Returns what makes a text null; `None` if the text stands for no missing value.
pub fn null_hint(text: &str) -> Option<String> {
    (!text.is_empty() && is_null(text.as_bytes())).then(|| format!("to read it as null: {}", setting_of(text)))
}

/// Returns the setting for texts, for a shell.
fn setting_of(texts: &str) -> String {
    match texts.contains(['\\', '?']) {
        true => format!("--read 'null={texts}'"),
        false => format!("--read null={texts}"),
    }
}

/// Returns a note about columns of numbers, times or truth values that have such texts; `None` if there are none.
/// Records begin at `first`, `nulls` are the texts that are null already, and `is_given` names columns whose types the
/// user set.
pub(super) fn note_missing(
    rows: &HeadRows<'_>,
    first: usize,
    names: &[String],
    nulls: &[String],
    is_given: impl Fn(&str) -> bool,
) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut columns: Vec<&str> = Vec::new();
    for (column, name) in names.iter().enumerate().filter(|(_, name)| !is_given(name)) {
        let Some(found) = missing_in(rows, first, column, nulls) else { continue };
        columns.push(name);
        texts.extend(found);
    }
    texts.sort_unstable();
    texts.dedup();
    if columns.is_empty() {
        return None;
    }
    let named = join_names(&columns);
    let shown: Vec<String> = texts.iter().map(|text| format!("`{text}`")).collect();
    let (have, are) = if columns.len() == 1 { ("has", "it is") } else { ("have", "they are") };
    Some(format!(
        "{named} {have} {} among values that are no text, so {are} text; to read that as null: {}",
        shown.join(" and "),
        setting_of(&texts.join(","))
    ))
}

/// Returns names of columns for a note: the first few, and how many more there are.
pub(super) fn join_names(columns: &[&str]) -> String {
    let named = |columns: &[&str]| columns.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match columns {
        [last] => named(&[last]),
        [before @ .., last] if before.len() < NAMED => format!("{} and `{last}`", named(before)),
        all => format!("{} and {} more columns", named(&all[..NAMED]), all.len() - NAMED),
    }
}

/// Returns such texts in the first records of a column, if its other values are of one kind that is not text.
fn missing_in(rows: &HeadRows<'_>, first: usize, column: usize, nulls: &[String]) -> Option<Vec<String>> {
    let rows_of = || first..rows.len().min(first + PROFILED);
    let is_known = |value: &[u8]| value.is_empty() || nulls.iter().any(|null| null.as_bytes() == value);
    let values = || rows_of().map(|row| rows.unquoted_field(row, column)).filter(|value| !is_known(value));
    let kind_of = |value: &[u8]| generic_kind(ValueKind::from_text(value));
    // `NaN` is a float.
    let is_text_for_null = |value: &[u8]| is_null(value) && kind_of(value) == ValueKind::Text;
    let texts = values().filter(|value| is_text_for_null(value));
    let texts: Vec<String> = texts.filter_map(|text| String::from_utf8(text.into_owned()).ok()).collect();
    // Usually there are none, and no value has to be parsed.
    if texts.is_empty() {
        return None;
    }
    let mut kinds = values().filter(|value| !is_text_for_null(value)).map(|value| kind_of(&value));
    let kind = kinds.next().filter(|kind| *kind != ValueKind::Text)?;
    kinds.all(|other| other == kind).then_some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str, nulls: &[&str]) -> Option<String> {
        let rows = HeadRows::from_text(text.as_bytes(), b',', true, 200);
        let names: Vec<String> = text.lines().next().unwrap_or_default().split(',').map(str::to_owned).collect();
        let nulls: Vec<String> = nulls.iter().map(|text| (*text).to_owned()).collect();
        note_missing(&rows, 1, &names, &nulls, |_| false)
    }

    #[test]
    fn texts_among_numbers_are_told_with_the_setting() {
        let text = "id,x,t,s\n1,2,2026-01-01,a\n2,\\N,2026-01-02,NA\n3,4,?,b\n4,5,2026-01-04,c\n";
        assert_eq!(
            note(text, &[]).as_deref(),
            Some(
                "`x` and `t` have `?` and `\\N` among values that are no text, so they are text; \
                 to read that as null: --read 'null=?,\\N'"
            )
        );
        assert_eq!(
            note(text, &["\\N"]).as_deref(),
            Some("`t` has `?` among values that are no text, so it is text; to read that as null: --read 'null=?'")
        );
        assert_eq!(note(text, &["\\N", "?"]), None);
    }

    #[test]
    fn nothing_is_told_of_other_texts_and_of_values() {
        assert_eq!(note("x\n1\n2\n3\nNaN\n", &[]), None, "a float");
        assert_eq!(note("x\n1\n2\n3\nNA\nfour\n", &[]), None, "text all the same");
        assert_eq!(note("x\nNA\nDE\nFR\nNO\n", &[]), None, "countries");
        assert_eq!(note("x\n1\n2\n3\n\n", &[]), None);
    }
}
