//! What a run knows of a source beside its records.

use std::{io::Read as _, sync::Arc};

use crate::{codec::encoding, error::Error, format::facts::SheetRows, scan::SourceFile};

/// Bytes of a source that tell its encoding.
const HEAD_BYTES: usize = 256 << 10;

/// Names that records of a source get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceName {
    /// Source name in origins; empty if samples state their own origin.
    pub name: String,
    /// Prefix of the keys of its rows; escaped.
    pub key: String,
    /// Columns of the source, if all its rows have the same. Formats that store each row by itself omit columns that
    /// only other sources have.
    pub columns: Option<Vec<String>>,
    /// Subject id of all its rows, from its path or from a table.
    pub subject: Option<String>,
}

/// Properties of a source that gates and gathering need.
#[derive(Debug, Clone)]
pub struct SourceFacts {
    /// How its records are named.
    pub name: Arc<SourceName>,
    /// The file; for samples, which have no lines, the first file.
    pub file: SourceFile,
    /// Stored bytes of it that are read: all, or those of a part.
    pub bytes: u64,
    /// Whether content hashes of its records are hashes of their bytes, as for text.
    pub hashes_bytes: bool,
    /// Whether sidecars have the content hashes of its records, unless they hash the records as framed.
    pub stores_hashes: bool,
    /// Whether its records have only row numbers, without lines or byte offsets of their own.
    pub by_row: bool,
    /// The sheet that its records are rows of, if they are: messages name rows of it.
    pub sheet: Option<Arc<SheetRows>>,
    /// Blank lines before its first record, which belong to no range.
    pub blank_lines: u64,
    /// Lines before its first record that are not records, and belong to no range.
    pub lines_skipped: u64,
    /// Note on a decision about it that its records do not show.
    pub note: Option<String>,
}

impl SourceFacts {
    /// Returns whether its records are samples, which state their own files and have no lines.
    pub fn is_samples(&self) -> bool {
        self.name.name.is_empty()
    }

    /// Returns what to do about a record that cannot be converted. Text in another encoding is not to be skipped.
    pub fn error_hint(&self, record: &[u8]) -> &'static str {
        if !self.hashes_bytes || std::str::from_utf8(record).is_ok() {
            return "skip bad records with --on-error skip, or keep them in a file with --on-error quarantine";
        }
        let mut text = self.file.read_head(HEAD_BYTES).map(|head| head.bytes).unwrap_or_default();
        text.push(b'\n');
        text.extend_from_slice(record);
        encoding::encoding_hint(&text)
    }

    /// Counts the lines before a byte, because the reader does not count those before the first range, such as a
    /// header.
    pub fn lines_before(&self, byte: u64) -> u64 {
        let mut head = Vec::new();
        // If counting fails, the byte in the message is still right.
        match self.file.open(|_| {}).map(|r| r.take(byte).read_to_end(&mut head)) {
            Ok(Ok(_)) => head.iter().filter(|b| **b == b'\n').count() as u64,
            _ => 0,
        }
    }

    /// Adds the source to an error that has none. Samples state their own files.
    pub fn locate_error(&self, error: Error) -> Error {
        if self.is_samples() || error.place().source.is_some() { error } else { error.at_location(self.file.uri()) }
    }
}
