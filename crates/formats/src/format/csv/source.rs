//! What is known of a source of delimited text before its records are read.

use std::sync::Arc;

use super::{
    super::ReaderFacts, options::CsvOptions, profile::Profile, quotes::Quotes, quoting::Quoting, stated::Stated,
};

/// A source of delimited text; [`sniff`](super::sniff) creates it.
#[derive(Debug, Clone, PartialEq)]
pub struct CsvSource {
    /// What readers tell: distinct names of the columns, lines before the records, notes.
    pub(super) facts: ReaderFacts,
    /// Byte between fields.
    pub delimiter: u8,
    /// Share of the first records that have as many fields as the first one, between 0 and 1.
    pub consistency: f64,
    /// Bytes before the first range: byte order mark, header, and blank lines before it.
    pub data_offset: u64,
    /// Line terminators before the first range, so that its first line is number `header_lines + 1`.
    pub header_lines: u64,
    /// The user's options.
    pub options: CsvOptions,
    /// The raw header, with the usual quotes. Empty if there is none.
    pub(super) header: Vec<u8>,
    /// Profile of the first records' columns.
    pub(super) profile: Profile,
    /// How the quotes differ from the usual ones.
    pub(super) quotes: Quotes,
    /// What a quote is.
    pub(super) quoting: Quoting,
    /// Whether each record ends with a delimiter that the header lacks.
    pub(super) trailing: bool,
    /// Whether the header lacks the name of the first column.
    pub(super) labels: bool,
    /// The dialect, if it is stated or evident; everything else is then the usual.
    pub(super) stated: Option<Arc<Stated>>,
}

impl CsvSource {
    /// Returns the distinct names of the columns; none if the source has no records.
    pub fn column_names(&self) -> &[String] {
        self.facts.columns.as_deref().unwrap_or_default()
    }

    /// Whether the bytes alone show that this is a table: it has several columns, and most records have all of them.
    pub fn is_convincing(&self) -> bool {
        self.column_names().len() > 1 && self.consistency > 0.5
    }

    /// Makes [`infer`](crate::format::RecordReader::infer) return text for the column.
    pub fn force_text(&mut self, column: &str) {
        self.options.text.insert(column.to_owned());
    }

    /// Returns a source without records, whose first `lines` lines are blank.
    pub(super) fn without_records(data_offset: u64, lines: u64, options: &CsvOptions) -> Self {
        Self {
            facts: ReaderFacts {
                selects_columns: true,
                columns: Some(Vec::new()),
                blank_lines_before: lines,
                ..ReaderFacts::default()
            },
            delimiter: options.delimiter.unwrap_or(b','),
            consistency: 1.0,
            data_offset,
            header_lines: lines,
            options: options.clone(),
            header: Vec::new(),
            profile: Profile::default(),
            quotes: Quotes::default(),
            quoting: Quoting::default(),
            trailing: false,
            labels: false,
            stated: None,
        }
    }
}
