//! Finds where the table of a source begins. By the standard reading, the first line has the names, and every other
//! line is a record. Another reading is taken only where the standard one is impossible, because the records have
//! another number of fields than the first line, and where it fits all records of the sample:
//!
//! ```text
//! Report of the office            a note: it has another number of fields than all records
//! day,rain,town,height            the header; if it lacks the first name, that of the row labels is made up
//! 2024-01-01,0.5,Bonn,61,         data; a delimiter at the end of each record is ignored if the header lacks it
//! ```
//!
//! Lines that merely look unlike the others, such as a line of units, are records, and a note names them.

use std::borrow::Cow;

use super::{
    profile::{Profile, SAMPLE, SENTENCE, word_count},
    rows::HeadRows,
    value::ValueKind,
};

/// Lines before a table that may be notes.
const MAX_NOTES: usize = 20;
/// Number of characters of a line in a note about it.
const SHOWN: usize = 60;

/// The meaning of the first lines.
#[derive(Debug, Default)]
pub(super) struct HeadLayout {
    /// Number of the record that contains the names; if there are none, of the first record of the table. The records
    /// before it are notes.
    pub(super) header: usize,
    pub(super) profile: Profile,
    /// Whether each record ends with a delimiter that the header lacks.
    pub(super) trailing: bool,
    /// Whether the header lacks the name of the first column, which has the labels of the rows.
    pub(super) labels: bool,
    pub(super) notes: Vec<String>,
}

/// Returns the layout of a table with a header, according to its first records. `tidy` allows other readings than the
/// standard one.
pub(super) fn detect_layout(rows: &HeadRows<'_>, tidy: bool) -> HeadLayout {
    let notes = if tidy { notes_before(rows) } else { 0 };
    let mut found = HeadLayout { header: notes, ..HeadLayout::default() };
    if notes > 0 {
        found.notes.push(skipped_note("line", "before the table", (0..notes).map(|row| rows.record_text(row))));
    }
    let width = rows.field_count(found.header);
    // The first record may be unlike the others, as units are.
    let first = found.header + if rows.len() > found.header + 4 { 2 } else { 1 };
    found.profile = Profile::from_rows(rows, first, width);
    found.trailing = tidy && has_trailing(rows, found.header);
    found.labels = tidy && !found.trailing && has_labels(rows, found.header);
    if found.trailing || found.labels {
        found.profile = Profile::from_rows(rows, found.header + 1, width + 1);
    }
    if found.trailing {
        found.notes.push("each record ends with a delimiter that the header lacks; it was ignored".to_owned());
    }
    if found.labels {
        found.notes.push(
            "each record has one more field than the header; the first column was taken as row labels without a name"
                .to_owned(),
        );
    }
    if notes == 0 && !found.trailing && !found.labels {
        found.notes.extend(header_doubts(rows, &found.profile));
    }
    found
}

/// Returns a note on lines that are not records, with their text.
pub(super) fn skipped_note<'l>(kind: &str, place: &str, lines: impl ExactSizeIterator<Item = &'l [u8]>) -> String {
    let count = lines.len();
    let texts: Vec<String> = lines.take(MAX_NOTES).map(line_excerpt).collect();
    let more = if count > MAX_NOTES { format!(" and {} more", count - MAX_NOTES) } else { String::new() };
    let (kind, was) = if count == 1 { (kind.to_owned(), "was") } else { (format!("{kind}s"), "were") };
    format!("{count} {kind} {place} {was} skipped: {}{more}", texts.join(", "))
}

/// Returns a line for a note.
fn line_excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN + 4)]);
    let short: String = text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("`{short}{more}`")
}

/// Returns a note if the first lines do not look like a header and a record, although they are read as such.
fn header_doubts(rows: &HeadRows<'_>, profile: &Profile) -> Option<String> {
    let line = |row: usize| {
        format!("{} {}", if row == 0 { "the header" } else { "the first record" }, line_excerpt(rows.record_text(row)))
    };
    if rows.field_count(0) > 2 && is_note(rows, 0) {
        return Some(format!("{} reads like a note; if it is one, remove the line", line(0)));
    }
    if has_groups(rows) {
        return Some(format!(
            "{} looks like groups of columns, and the next line like their names, which is a record; if so, \
             remove the first line",
            line(0)
        ));
    }
    if is_below(rows, profile) {
        return Some(format!(
            "{} looks like units of the columns, and was kept as a record; if it is none, remove the line",
            line(1)
        ));
    }
    is_data(rows, profile).then(|| {
        "the first record was taken as the header and looks like data; without a header, use --read header=no"
            .to_owned()
    })
}

/// Returns the number of notes before the table: lines with another number of fields than all other lines.
fn notes_before(rows: &HeadRows<'_>) -> usize {
    let (width, count) = rows.most_common_width();
    if width < 2 {
        return 0;
    }
    let notes = (0..rows.len().min(MAX_NOTES))
        .take_while(|&row| rows.field_count(row) != width && reads_like_a_note(rows, row, width))
        .count();
    let follows = (notes..rows.len().min(notes + 2)).filter(|row| rows.field_count(*row) == width).count() == 2;
    let typical = 2 * count > rows.len() - notes;
    let fits = (notes..rows.len()).all(|row| rows.field_count(row) <= width);
    if notes == 0 || !follows || !typical || !fits || !is_mostly_text(rows, notes) {
        return 0;
    }
    // One name above two columns may also be a header that lacks the name of the row labels.
    let profile = Profile::from_rows(rows, notes + 1, width);
    let differs =
        || profile.typed_columns().any(|column| !profile.accepts_value(column, &rows.unquoted_field(notes, column)));
    if width > 2 || notes > 1 || word_count(rows.record_text(0)) >= SENTENCE || differs() { notes } else { 0 }
}

fn reads_like_a_note(rows: &HeadRows<'_>, row: usize, width: usize) -> bool {
    let values = rows.unquoted_fields(row);
    let said: usize = values.iter().map(|value| word_count(value)).sum();
    let next = |column| (row + 1 < rows.len()).then(|| rows.raw_field(row + 1, column));
    let cut = values.len() > 1 && values[1..].iter().all(|value| value.starts_with(b" "));
    // If the header has spaces after its delimiters, its records have them, too.
    let cut = cut
        && said >= SENTENCE
        && !next(1).is_some_and(|value| value.starts_with(b" ") && rows.field_count(row + 1) == width);
    is_note(rows, row) && (values.len() == 1 || said >= SENTENCE) || cut
}

/// Whether only the first field of a record is not empty.
fn is_note(rows: &HeadRows<'_>, row: usize) -> bool {
    let values = rows.unquoted_fields(row);
    !values[0].is_empty() && values[1..].iter().all(|value| value.is_empty())
}

/// Whether most fields of a record are texts.
fn is_mostly_text(rows: &HeadRows<'_>, row: usize) -> bool {
    let values = rows.unquoted_fields(row);
    let filled =
        values.iter().filter(|value| !value.is_empty() && ValueKind::from_text(value) == ValueKind::Text).count();
    2 * filled > values.len()
}

/// Whether the first record looks like names of groups, and the next one like names of columns.
fn has_groups(rows: &HeadRows<'_>) -> bool {
    if rows.len() < 3 || rows.field_count(0) != rows.field_count(1) || rows.field_count(0) < 2 {
        return false;
    }
    let (groups, columns) = (rows.unquoted_fields(0), rows.unquoted_fields(1));
    let all_text = |values: &[Cow<'_, [u8]>]| {
        values.iter().all(|value| value.is_empty() || ValueKind::from_text(value) == ValueKind::Text)
    };
    let gaps = groups.iter().filter(|value| value.is_empty()).count();
    let complete = columns.iter().all(|value| !value.is_empty());
    if gaps == 0 || 3 * gaps < groups.len() || !complete || !all_text(&groups) || !all_text(&columns) {
        return false;
    }
    let profile = Profile::from_rows(rows, 2, columns.len());
    let mut typed = profile.typed_columns().peekable();
    typed.peek().is_some() && typed.all(|column| !profile.accepts_value(column, &columns[column]))
}

/// Whether nearly all records have one more field than the header, and it is empty.
fn has_trailing(rows: &HeadRows<'_>, header: usize) -> bool {
    let width = rows.field_count(header);
    let below = header + 1..rows.len().min(header + 1 + SAMPLE);
    let ends = below
        .clone()
        .filter(|&row| rows.field_count(row) == width + 1 && rows.raw_field(row, width).is_empty())
        .count();
    width > 1 && ends > 0 && 10 * ends >= 9 * below.len()
}

/// Whether all records, at least two, have one more field than the header.
fn has_labels(rows: &HeadRows<'_>, header: usize) -> bool {
    let width = rows.field_count(header);
    rows.len() > header + 2 && (header + 1..rows.len()).all(|row| rows.field_count(row) == width + 1)
}

/// Whether the first record looks like units, or other names.
fn is_below(rows: &HeadRows<'_>, profile: &Profile) -> bool {
    if rows.len() < 3 || rows.field_count(1) != rows.field_count(0) || rows.field_count(1) < 2 {
        return false;
    }
    if rows.unquoted_fields(1) == rows.unquoted_fields(0) {
        return false;
    }
    let bracketed = |value: &[u8]| matches!(value, [b'(', .., b')'] | [b'[', .., b']']);
    let values = rows.unquoted_fields(1);
    let all = |row: usize| {
        let values = rows.unquoted_fields(row);
        let mut there = values.iter().filter(|value| !value.is_empty()).peekable();
        there.peek().is_some() && there.all(|value| bracketed(value))
    };
    if all(1) && !all(2) && !all(0) {
        return true;
    }
    let texts: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
    profile.is_strange(&texts)
}

/// Whether the first record has the same kinds of values as the records below it.
fn is_data(rows: &HeadRows<'_>, profile: &Profile) -> bool {
    let values = rows.unquoted_fields(0);
    let typed: Vec<&[u8]> =
        profile.typed_columns().map(|column| &*values[column]).filter(|value| !value.is_empty()).collect();
    let fits = profile.first_mismatch(values.iter().map(|value| &**value)).is_none();
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
        (source.column_names().to_vec(), text[data..].lines().next().unwrap(), source.facts.notes.join("; "))
    }

    #[test]
    fn notes_have_another_number_of_fields_than_all_records() {
        for (above, note) in [
            (
                "Report of the office, all rights reserved\n",
                "1 line before the table was skipped: `Report of the office, all",
            ),
            (
                "Report of the office\nFor questions, comments and more ask\n\n",
                "2 lines before the table were skipped: `Report",
            ),
        ] {
            let text = format!("{above}{NAMES}{ROWS}");
            let (names, first, notes) = start(&text);
            assert_eq!((names.join(","), first), ("id,day,town,rain".to_owned(), "1,2024-01-01,a,1.5"), "{above}");
            assert!(notes.contains(note), "{notes}");
            let options = CsvOptions { tidy: false, delimiter: Some(b','), ..CsvOptions::default() };
            let source = sniff(text.as_bytes(), true, &options).unwrap();
            assert_eq!(source.column_names()[0], "Report of the office");
        }
        // A record that is longer than the others does not fit.
        let source = sniffed(&format!("Report of the office\n{NAMES}{ROWS}5,2024-01-05,e,5.5,more\n"));
        assert!(source.facts.lines_skipped == 0 && source.column_names().len() == 1, "{source:?}");
    }

    #[test]
    fn lines_that_the_standard_can_read_are_kept_with_a_note() {
        for (text, names, first, note) in [
            (format!("{NAMES}[-],(day),(text),(mm)\n{ROWS}"), "id,day,town,rain", "[-],(day),(text),(mm)", "units"),
            (format!("{NAMES}number,text,text,mm\n{ROWS}"), "id,day,town,rain", "number,text,text,mm", "units"),
            (format!("{NAMES}<0.3,pending,x,10%\n{ROWS}"), "id,day,town,rain", "<0.3,pending,x,10%", "units"),
            (format!("Time,,Place,\n{NAMES}{ROWS}"), "Time,column_2,Place,column_4", "id,day,town,rain", "groups"),
            (format!(",,Time,\n{NAMES}{ROWS}"), "column_1,column_2,Time,column_4", "id,day,town,rain", "groups"),
            (
                format!("Report of the office,,,\n{NAMES}{ROWS}"),
                "Report of the office,column_2,column_3,column_4",
                "id,day,town,rain",
                "a note",
            ),
        ] {
            let (columns, line, notes) = start(&text);
            assert_eq!((columns.join(",").as_str(), line), (names, first), "{text}");
            assert!(notes.contains(note), "{notes}");
        }
    }

    #[test]
    fn a_header_may_lack_the_name_of_the_row_labels() {
        let text = "Ad,Media,Direct\nVisit,9806,13104,24321\nSign-up,3065,6096,11453\nSelection,1763,3130,5863\n";
        let (names, first, notes) = start(text);
        assert_eq!(names, ["column_1", "Ad", "Media", "Direct"]);
        assert!(first.starts_with("Visit,") && notes.contains("row labels"), "{first} {notes}");
        let (names, ..) = start("x\n\"1\",4\n\"2\",5\n");
        assert_eq!(names, ["column_1", "x"]);
        // One record, or one of another length, is no evidence.
        for text in ["a,b\n1,2,3\n", "a,b\n1,2,3\n4,5,6\n7,8\n"] {
            assert_eq!(start(text).0, ["a", "b"], "{text}");
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
            "a;b\none,5;x\ntwo,5;y\n",
        ] {
            let source = sniffed(text);
            assert!(
                source.facts.notes.is_empty() && !source.is_unusual(text.as_bytes()),
                "{text:?}: {:?}",
                source.facts.notes
            );
            assert_eq!(source.header_lines, 1);
        }
    }

    #[test]
    fn a_first_record_that_looks_like_data_is_noted() {
        assert!(start(ROWS).2.contains("--read header=no"));
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
            assert_eq!(
                sniffed(&format!("{NAMES}{ROWS}").replace(',', delimiter)).column_names().len(),
                4,
                "{delimiter}"
            );
        }
        let single = sniffed("a,b\n'x, y',1\nz,2\n'it''s',3\n'u, v',4\n'w, ',5\n");
        assert!(single.quotes.swapped && single.column_names() == ["a", "b"], "{single:?}");
        let spaced = sniffed("a, b\n1, \"x, y\"\n2, z\n3, \"u, v\"\n4, \"w, \"\n");
        assert!(spaced.quotes.spaced, "{spaced:?}");
    }
}
