//! Finds where the table of a source begins: which of the first lines are notes, group names, column names, units, or
//! data.
//!
//! ```text
//! Report of the office            a note: one sentence, where the table has several fields
//! Weather,,Place,                 names of groups: empty fields above names that are all there
//! day,rain,town,height            the header
//! [-],(mm),[-],(m)                units: everything in brackets, or text above columns of numbers
//! 2024-01-01,0.5,Bonn,61          data
//! ```

use std::borrow::Cow;

use super::{
    profile::{Profile, SAMPLE, SENTENCE, words},
    rows::Rows,
    value::Kind,
};

/// Lines before a table that may be notes.
const MAX_NOTES: usize = 20;

/// The meaning of the first lines.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Number of the record that contains the names; if there are none, of the first record of the table.
    pub(super) header: usize,
    /// Number of lines after the header that are not records.
    pub(super) below: usize,
    pub(super) profile: Profile,
    /// Whether each record ends with a delimiter that the header lacks.
    pub(super) trailing: bool,
    pub(super) notes: Vec<String>,
}

/// Returns the layout of a table with a header, according to its first records.
pub(super) fn layout(rows: &Rows<'_>) -> Layout {
    let notes = notes_before(rows);
    let mut found = Layout { header: notes, ..Layout::default() };
    if notes > 0 {
        found.notes.push(match notes {
            1 => "1 line of text before the table was skipped".to_owned(),
            lines => format!("{lines} lines of text before the table were skipped"),
        });
    }
    if has_groups(rows, notes) {
        found.header += 1;
        found.notes.push("a line of groups above the header was skipped".to_owned());
    }
    let width = rows.width(found.header);
    // The record below the header may be units.
    let first = found.header + if rows.len() > found.header + 4 { 2 } else { 1 };
    found.profile = Profile::of(rows, first, width);
    found.trailing = has_trailing(rows, found.header);
    if found.trailing {
        found.profile = trimmed(rows, found.header);
        found.notes.push("each record ends with a delimiter that the header lacks; it was ignored".to_owned());
    }
    if is_below(rows, found.header, &found.profile) {
        found.below = 1;
        found.notes.push("a line below the header, as of units, was skipped".to_owned());
    } else if found.header == 0 && is_data(rows, &found.profile) {
        found.notes.push(
            "the first record was taken as the header and looks like data; if the source has no header, use --no-header"
                .to_owned(),
        );
    }
    found
}

/// Returns the number of notes before the table.
fn notes_before(rows: &Rows<'_>) -> usize {
    let (width, count) = rows.mode();
    if width < 2 {
        return 0;
    }
    let is_note = |row: &usize| reads_like_a_note(rows, *row, width);
    let notes = (0..rows.len().min(MAX_NOTES)).take_while(is_note).count();
    let follows = (notes..rows.len().min(notes + 2)).filter(|row| rows.width(*row) == width).count() == 2;
    let typical = 2 * count > rows.len() - notes;
    if notes > 0 && follows && typical && names(rows, notes) { notes } else { 0 }
}

fn reads_like_a_note(rows: &Rows<'_>, row: usize, width: usize) -> bool {
    let values = rows.values(row);
    let said: usize = values.iter().map(|value| words(value)).sum();
    let alone = !values[0].is_empty() && values[1..].iter().all(|value| value.is_empty());
    let next = |column| (row + 1 < rows.len()).then(|| rows.raw(row + 1, column));
    let cut = values.len() > 1 && values[1..].iter().all(|value| value.starts_with(b" "));
    // If the header has spaces after its delimiters, its records have them, too.
    let cut = cut
        && said >= SENTENCE
        && !next(1).is_some_and(|value| value.starts_with(b" ") && rows.width(row + 1) == width);
    alone && (values.len() == 1 || values.len() == width && width > 2 || said >= SENTENCE) || cut
}

/// Whether no field of a record is empty, a number or a time.
fn names(rows: &Rows<'_>, row: usize) -> bool {
    let values = rows.values(row);
    let filled = values.iter().filter(|value| !value.is_empty() && Kind::of(value) == Kind::Text).count();
    2 * filled > values.len()
}

/// Whether a record contains names of groups, and the next one the names of the columns.
fn has_groups(rows: &Rows<'_>, row: usize) -> bool {
    if row + 2 >= rows.len() || rows.width(row) != rows.width(row + 1) || rows.width(row) < 2 {
        return false;
    }
    let (groups, columns) = (rows.values(row), rows.values(row + 1));
    let all_text =
        |values: &[Cow<'_, [u8]>]| values.iter().all(|value| value.is_empty() || Kind::of(value) == Kind::Text);
    let gaps = groups.iter().filter(|value| value.is_empty()).count();
    let mut named = columns.clone();
    named.sort_unstable();
    named.dedup();
    let complete = named.len() == columns.len() && columns.iter().all(|value| !value.is_empty());
    if groups[0].is_empty()
        || gaps == 0
        || 3 * gaps < groups.len()
        || !complete
        || !all_text(&groups)
        || !all_text(&columns)
    {
        return false;
    }
    let profile = Profile::of(rows, row + 2, columns.len());
    let mut typed = profile.typed().peekable();
    typed.peek().is_some() && typed.all(|column| !profile.takes(column, &columns[column]))
}

/// Whether nearly all records have one more field than the header, and it is empty.
fn has_trailing(rows: &Rows<'_>, header: usize) -> bool {
    let width = rows.width(header);
    let below = header + 1..rows.len().min(header + 1 + SAMPLE);
    let ends = below.clone().filter(|&row| rows.width(row) == width + 1 && rows.raw(row, width).is_empty()).count();
    width > 1 && ends > 0 && 10 * ends >= 9 * below.len()
}

/// Returns the profile of records that have one more field than the header.
fn trimmed(rows: &Rows<'_>, header: usize) -> Profile {
    Profile::of(rows, header + 1, rows.width(header) + 1)
}

/// Whether the record after the header contains units, or other names.
fn is_below(rows: &Rows<'_>, header: usize, profile: &Profile) -> bool {
    let row = header + 1;
    if row + 1 >= rows.len() || rows.width(row) != rows.width(header) || rows.width(row) < 2 {
        return false;
    }
    if rows.record(row).len() == rows.record(header).len() && rows.values(row) == rows.values(header) {
        return false;
    }
    let bracketed = |value: &[u8]| matches!(value, [b'(', .., b')'] | [b'[', .., b']']);
    let values = rows.values(row);
    let all = |row: usize| {
        let values = rows.values(row);
        let mut there = values.iter().filter(|value| !value.is_empty()).peekable();
        there.peek().is_some() && there.all(|value| bracketed(value))
    };
    if all(row) && !all(row + 1) && !all(header) {
        return true;
    }
    let texts: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
    profile.is_strange(&texts)
}

/// Whether the first record has the same kinds of values as the records below it.
fn is_data(rows: &Rows<'_>, profile: &Profile) -> bool {
    let values = rows.values(0);
    let typed: Vec<&[u8]> = profile.typed().map(|column| &*values[column]).filter(|value| !value.is_empty()).collect();
    let fits = profile.mismatch(values.iter().map(|value| &**value)).is_none();
    if typed.is_empty() || !fits {
        return false;
    }
    // Years and consecutive numbers can be names of columns.
    let is_name =
        |value: &[u8]| value.len() == 4 && matches!(value, [b'1' | b'2', ..]) && value.iter().all(u8::is_ascii_digit);
    let numbers: Vec<Option<u64>> = typed.iter().map(|value| std::str::from_utf8(value).ok()?.parse().ok()).collect();
    let counting = numbers.len() > 1
        && numbers.windows(2).all(|two| two[1].is_some() && two[0].and_then(|n| n.checked_add(1)) == two[1]);
    !counting && typed.iter().any(|value| !is_name(value))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::super::{CsvOptions, CsvSource, sniff};

    fn sniffed(text: &str) -> CsvSource {
        let named = CsvOptions { named: true, ..CsvOptions::default() };
        sniff(text.as_bytes(), true, &named).unwrap()
    }

    const ROWS: &str = "1,2024-01-01,a,1.5\n2,2024-01-02,b,2.5\n3,2024-01-03,c,3.5\n4,2024-01-04,d,4.5\n";
    const NAMES: &str = "id,day,town,rain\n";

    /// Returns the columns, the first record of the data, and the notes.
    fn start(text: &str) -> (Vec<String>, &str, String) {
        let source = sniffed(text);
        let data = usize::try_from(source.data_offset).unwrap();
        (source.columns.clone(), text[data..].lines().next().unwrap(), source.notes.join("; "))
    }

    #[test]
    fn the_table_is_found_below_other_lines() {
        for (above, below, note) in [
            ("Report of the office, all rights reserved\n", "", "1 line of text"),
            ("Report of the office\nFor questions, comments, and corrections ask\n\n", "", "2 lines of text"),
            ("Report of the office,,,\n", "", "1 line of text"),
            ("Time,,Place,\n", "", "groups"),
            ("", "[-],(day),(text),(mm)\n", "units"),
            ("", "number,text,text,number\n", "units"),
        ] {
            let text = format!("{above}{NAMES}{below}{ROWS}");
            let (names, first, notes) = start(&text);
            assert_eq!(
                (names.join(","), first),
                ("id,day,town,rain".to_owned(), "1,2024-01-01,a,1.5"),
                "{above}{below}"
            );
            assert!(notes.contains(note), "{notes}");
        }
    }

    #[test]
    fn clean_tables_get_no_notes() {
        for text in [
            &format!("{NAMES}{ROWS}")[..],
            "country,2019,2020\na,1,2\nb,3,4\nc,5,6\n",
            "0,1,2\n5,7,9\n8,6,4\n1,1,1\n",
            ",a,b\n0,x,y\n1,z,w\n2,u,v\n",
            "name, town\nx, a\ny, b\nz, c\n",
            "a,b\n'tis,1\nx,2\ny,3\n",
            "title\nA long title of a book\nAnother one\n",
            "a;b\n1,5;x\n2,5;y\n",
        ] {
            let source = sniffed(text);
            assert!(source.notes.is_empty() && !source.is_unusual(), "{text:?}: {:?}", source.notes);
            assert_eq!(source.header_lines, 1);
        }
    }

    #[test]
    fn a_first_record_that_looks_like_data_is_noted() {
        assert!(start(ROWS).2.contains("--no-header"));
    }

    #[test]
    fn a_delimiter_at_the_end_of_each_record_is_not_a_column() {
        let (names, _, notes) = start(&format!("{NAMES}{}", ROWS.replace('\n', ",\n")));
        assert_eq!(names.len(), 4);
        assert!(notes.contains("ends with a delimiter"), "{notes}");
    }

    #[test]
    fn unusual_delimiters_and_quotes_are_found() {
        for delimiter in ["^", "~", ":"] {
            assert_eq!(sniffed(&format!("{NAMES}{ROWS}").replace(',', delimiter)).columns.len(), 4, "{delimiter}");
        }
        let single = sniffed("a,b\n'x, y',1\nz,2\n'it''s',3\n'u, v',4\n'w, ',5\n");
        assert!(single.quotes.swapped && single.columns == ["a", "b"], "{single:?}");
        let spaced = sniffed("a, b\n1, \"x, y\"\n2, z\n3, \"u, v\"\n4, \"w, \"\n");
        assert!(spaced.quotes.spaced, "{spaced:?}");
    }
}
