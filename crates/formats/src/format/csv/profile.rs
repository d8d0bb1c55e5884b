//! Profiles the columns by the first records of a source, and decides whether a record fits the profile.
//!
//! Only records that are suspicious for another reason, such as a wrong number of fields, are compared with a profile,
//! and those that would change the type of a column. A profile depends on the head of the source alone, never on ranges
//! or threads.

use super::{missing::is_null, rows::HeadRows, value::ValueKind};

/// Maximum number of records in the sample on which decisions about a source are based.
pub(super) const SAMPLE: usize = 200;
/// Maximum number of records that a profile is computed from.
pub(super) const PROFILED: usize = 100;
/// Minimum number of values of a column for which a kind is determined.
const MIN_VALUES: usize = 3;
/// Minimum number of words of a value that reads like a sentence.
pub(super) const SENTENCE: usize = 4;

/// Whether a value may be the name of a column: it starts with a letter and does not represent a missing value.
pub(super) fn is_name(text: &[u8]) -> bool {
    let starts = text.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_' || *byte >= 0x80);
    starts && !is_null(text) && ValueKind::from_text(text) == ValueKind::Text
}

/// What the values of a column have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trait {
    /// The kind of at least three quarters of the values; `None` if that is text.
    kind: Option<ValueKind>,
    /// Whether the first half of the sample contains no value of another kind.
    strict: bool,
    /// Whether a value in that half reads like a sentence.
    sentences: bool,
    /// Whether a value in that half begins with a space.
    spaced: bool,
}

/// Properties of the columns of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Profile {
    columns: Vec<Trait>,
    /// Minimum number of values of a record in the first half of the sample.
    least: usize,
}

impl Profile {
    /// Profiles the records from `first` on that have `width` fields.
    pub(super) fn from_rows(rows: &HeadRows<'_>, first: usize, width: usize) -> Self {
        let good: Vec<usize> =
            (first..rows.len().min(first + PROFILED)).filter(|&row| rows.field_count(row) == width).collect();
        let filled = |&row: &usize| (0..width).filter(|&column| !rows.raw_field(row, column).is_empty()).count();
        let least = good.iter().take(good.len() / 2 + 1).map(filled).min().unwrap_or(0);
        Self { columns: (0..width).map(|column| Trait::from_column(rows, &good, column)).collect(), least }
    }

    /// Returns the profile without the columns whose types the user set.
    pub(super) fn without_columns(&self, is_set: impl Fn(usize) -> bool) -> Self {
        let one = |(column, one): (usize, &Trait)| Trait { kind: one.kind.filter(|_| !is_set(column)), ..*one };
        Self { columns: self.columns.iter().enumerate().map(one).collect(), least: self.least }
    }

    /// Returns the kind of a column, if most values have one that is not text.
    pub(super) fn column_kind(&self, column: usize) -> Option<ValueKind> {
        self.columns.get(column).and_then(|column| column.kind)
    }

    /// Returns the columns that are not text.
    pub(super) fn typed_columns(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.columns.len()).filter(|&column| self.column_kind(column).is_some())
    }

    /// Whether a value is null or of the kind of its column.
    pub(super) fn accepts_value(&self, column: usize, text: &[u8]) -> bool {
        self.column_kind(column).is_none_or(|kind| is_null(text) || is_of(kind, text))
    }

    /// Returns the columns that, according to the sample, contain only values of one kind other than text.
    pub(super) fn strict_columns(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.columns.len()).filter(|&column| self.is_strict(column))
    }

    fn is_strict(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(|one| one.kind.is_some() && one.strict)
    }

    /// Returns the first strict column for which `counts` is true and whose value is of another kind.
    pub(super) fn clear_mismatch(&self, values: &[&[u8]], counts: impl Fn(usize) -> bool) -> Option<usize> {
        let mismatch = |(column, text): (usize, &&[u8])| {
            (self.is_strict(column) && counts(column) && !self.accepts_value(column, text)).then_some(column)
        };
        values.iter().enumerate().find_map(mismatch)
    }

    /// Whether a record is another header: it has a name in each of at least two strict columns, and its values are
    /// distinct.
    pub(super) fn is_other_header(&self, values: &[&[u8]]) -> bool {
        let strict = self.strict_columns().count();
        if strict < 2 || !self.strict_columns().all(|column| values.get(column).is_some_and(|text| is_name(text))) {
            return false;
        }
        let mut names: Vec<&[u8]> = values.iter().copied().filter(|text| !text.is_empty()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        names.len() == count && names.iter().all(|name| ValueKind::from_text(name) == ValueKind::Text)
    }

    /// Returns the first column whose value is of another kind.
    pub(super) fn first_mismatch<'v>(&self, values: impl IntoIterator<Item = &'v [u8]>) -> Option<usize> {
        values
            .into_iter()
            .enumerate()
            .find(|(column, text)| !self.accepts_value(*column, text))
            .map(|(column, _)| column)
    }

    /// Whether a record has text in all of at least two columns that contain only numbers, times or truth values.
    pub(super) fn is_strange(&self, values: &[&[u8]]) -> bool {
        let mut mismatches = 0;
        let filled = |(column, text): &(usize, &&[u8])| self.is_strict(*column) && !text.is_empty();
        for (column, text) in values.iter().enumerate().filter(filled) {
            if self.accepts_value(column, text) {
                return false;
            }
            mismatches += 1;
        }
        mismatches > 1
    }

    /// Whether a record consists of a single sentence, although all other records have several values.
    pub(super) fn is_doubtful(&self, values: &[&[u8]]) -> bool {
        self.least > 1 && values.first().is_some_and(|first| is_sentence(first))
    }

    /// Whether a record is a line of prose: a sentence in the first field alone, or a sentence that was cut at its
    /// commas while the values of these columns look different.
    pub(super) fn is_note(&self, values: &[&[u8]]) -> bool {
        let words: usize = values.iter().map(|value| word_count(value)).sum();
        let Some((first, rest)) = values.split_first().filter(|_| words >= SENTENCE && self.columns.len() > 1) else {
            return false;
        };
        if first.is_empty() {
            return false;
        }
        let column = &self.columns[0];
        let unlike = column.kind.is_some() || !column.sentences;
        if rest.iter().all(|value| value.is_empty()) {
            return unlike;
        }
        // A value of several words is normal in a column of texts; a space after each comma is not.
        let rest: Vec<_> = rest.iter().enumerate().filter(|(_, value)| !value.is_empty()).collect();
        let cut = |(at, value): &(usize, &&[u8])| {
            value.starts_with(b" ") && self.columns.get(at + 1).is_none_or(|column| !column.spaced)
        };
        rest.iter().all(cut) && (column.kind.is_none() || !self.accepts_value(0, first))
    }
}

impl Trait {
    fn from_column(rows: &HeadRows<'_>, good: &[usize], column: usize) -> Self {
        let mut counts: Vec<(ValueKind, usize, bool)> = Vec::new();
        let mut found = Self { kind: None, strict: true, sentences: false, spaced: false };
        let mut values = 0;
        for (number, &row) in good.iter().enumerate() {
            let value = rows.unquoted_field(row, column);
            // The last lines of a short source may not be records.
            let early = 2 * number <= good.len();
            if early {
                found.sentences = found.sentences || is_sentence(&value);
                found.spaced |= value.starts_with(b" ");
            }
            if is_null(&value) {
                continue;
            }
            values += 1;
            let kind = generic_kind(ValueKind::from_text(&value));
            match counts.iter_mut().find(|(one, ..)| *one == kind) {
                Some((_, count, seen)) => (*count, *seen) = (*count + 1, *seen | early),
                None => counts.push((kind, 1, early)),
            }
        }
        if let Some(&(kind, count, _)) = counts.iter().max_by_key(|(_, count, _)| *count)
            && kind != ValueKind::Text
            && count >= MIN_VALUES
            && 4 * count >= 3 * values
        {
            found.kind = Some(kind);
            found.strict = counts.iter().all(|&(other, _, early)| other == kind || !early);
        }
        found
    }
}

/// Maps whole numbers to fractions, which are one kind here.
pub(super) fn generic_kind(kind: ValueKind) -> ValueKind {
    if kind == ValueKind::Int64 { ValueKind::Float64 } else { kind }
}

fn is_of(kind: ValueKind, text: &[u8]) -> bool {
    generic_kind(ValueKind::from_text(text)) == kind
}

/// Returns the number of words of a text, not counting those with less than two letters.
pub(super) fn word_count(text: &[u8]) -> usize {
    let is_word = |part: &&[u8]| part.iter().filter(|byte| byte.is_ascii_alphabetic() || **byte >= 0x80).count() > 1;
    text.split(|byte| byte.is_ascii_whitespace()).filter(is_word).count()
}

/// Whether a text has as many words as a sentence.
fn is_sentence(text: &[u8]) -> bool {
    // Even the shortest sentence contains words of two letters.
    text.len() >= 3 * SENTENCE - 1 && word_count(text) >= SENTENCE
}
