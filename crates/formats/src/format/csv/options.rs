//! What is said of delimited text before it is read.

use std::collections::HashSet;

use super::stated::StatedDialect;

/// What the user said about a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    /// Byte between fields: ASCII, neither quote nor line terminator nor NUL. Detected if not given.
    pub delimiter: Option<u8>,
    /// Whether the first record holds the names of the columns.
    pub has_header: bool,
    /// Whether the user declared the source to be delimited text, so that a bracket at the start is part of a value.
    pub certain: bool,
    /// Whether at least the source's name implies delimited text.
    pub named: bool,
    /// Unquoted texts that mean null, in addition to the empty field.
    pub nulls: Vec<String>,
    /// Columns whose types the user set: records with values that do not fit are rejected, and the types do not change.
    pub pinned: HashSet<String>,
    /// Columns whose types the dataset set: as pinned ones, but only the usual notation of values is accepted.
    pub bound: HashSet<String>,
    /// Columns that are text regardless of their values.
    pub text: HashSet<String>,
    /// Whether another reading than the standard one may be taken where that one is impossible.
    pub tidy: bool,
    /// Whether damaged records may be repaired, because rejects are allowed.
    pub repair: bool,
    /// What the user stated of the dialect, beyond a delimiter of one byte.
    pub stated: StatedDialect,
    /// Number of lines to skip before the header, or before the first record.
    pub skip: u64,
    /// Columns that are parsed; `None` for all. Others are skipped, whatever their values.
    pub taken: Option<HashSet<String>>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: None,
            has_header: true,
            certain: false,
            named: false,
            nulls: Vec::new(),
            pinned: HashSet::new(),
            bound: HashSet::new(),
            text: HashSet::new(),
            tidy: true,
            repair: false,
            stated: StatedDialect::default(),
            skip: 0,
            taken: None,
        }
    }
}
