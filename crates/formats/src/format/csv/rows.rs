//! The first records of a source with their fields, for the decisions that precede reading it.

use std::{borrow::Cow, ops::Range};

use super::tokenize::{Ended, QUOTE, Sink, scan_records, unquote_field};

/// Maximum number of fields that are kept: a table may have tens of thousands of columns.
const MAX_FIELDS: usize = 1 << 20;

/// Records of a text, without blank lines.
#[derive(Debug)]
pub(super) struct HeadRows<'t> {
    text: &'t [u8],
    limit: usize,
    ends: Vec<usize>,
    rows: Vec<RecordSpan>,
    first: usize,
}

#[derive(Debug, Clone)]
struct RecordSpan {
    record: Range<usize>,
    next: usize,
    ends: Range<usize>,
}

impl<'t> HeadRows<'t> {
    /// Reads up to `limit` records; `complete` states that the last one may lack its terminator.
    pub(super) fn from_text(text: &'t [u8], delimiter: u8, complete: bool, limit: usize) -> Self {
        let mut rows = Self { text, limit, ends: Vec::new(), rows: Vec::new(), first: 0 };
        if let Ended::Exhausted { start, open: None } = scan_records(text, delimiter, 0, &mut rows)
            && complete
            && start < text.len()
        {
            rows.end_field(text.len());
            Sink::end_record(&mut rows, start..text.len(), text.len());
        }
        rows
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Number of fields of a record.
    pub(super) fn field_count(&self, row: usize) -> usize {
        self.rows[row].ends.len()
    }

    /// Returns the position of a record, without its terminator.
    pub(super) fn record_range(&self, row: usize) -> Range<usize> {
        self.rows[row].record.clone()
    }

    /// Returns the text of a record.
    pub(super) fn record_text(&self, row: usize) -> &'t [u8] {
        &self.text[self.record_range(row)]
    }

    /// Returns where the record after this one may begin.
    pub(super) fn next(&self, row: usize) -> usize {
        self.rows[row].next
    }

    /// Returns a raw field; empty if there is none.
    pub(super) fn raw_field(&self, row: usize, column: usize) -> &'t [u8] {
        let at = &self.rows[row];
        let ends = &self.ends[at.ends.clone()];
        let Some(&end) = ends.get(column) else { return &[] };
        let start = if column == 0 { at.record.start } else { ends[column - 1] + 1 };
        &self.text[start..end]
    }

    /// Returns a field without its quotes.
    pub(super) fn unquoted_field(&self, row: usize, column: usize) -> Cow<'t, [u8]> {
        let raw = self.raw_field(row, column);
        if raw.first() != Some(&QUOTE) {
            return Cow::Borrowed(raw);
        }
        let mut scratch = Vec::new();
        Cow::Owned(unquote_field(raw, &mut scratch).to_vec())
    }

    /// Returns all fields of a record.
    pub(super) fn unquoted_fields(&self, row: usize) -> Vec<Cow<'t, [u8]>> {
        (0..self.field_count(row)).map(|column| self.unquoted_field(row, column)).collect()
    }

    /// Returns the number of fields that most records have, and the number of these records; the larger number of
    /// fields wins a tie.
    pub(super) fn most_common_width(&self) -> (usize, usize) {
        let mut counts = std::collections::BTreeMap::new();
        self.rows.iter().for_each(|row| *counts.entry(row.ends.len()).or_insert(0_usize) += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
    }
}

impl Sink for HeadRows<'_> {
    fn end_field(&mut self, end: usize) {
        self.ends.push(end);
    }

    fn end_record(&mut self, record: Range<usize>, next: usize) -> bool {
        if record.is_empty() {
            self.ends.truncate(self.first);
        } else {
            self.rows.push(RecordSpan { record, next, ends: self.first..self.ends.len() });
        }
        self.first = self.ends.len();
        self.rows.len() < self.limit && self.ends.len() < MAX_FIELDS
    }
}
