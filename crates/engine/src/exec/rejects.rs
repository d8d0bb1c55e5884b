//! The file of rejected records: one JSON object per line, so that users can repair records and convert them again.
//!
//! Each line ends with a hash of its own: an erasure, which searches lines for words, has to know that none is damaged.
//! Lines do not keep content that names an erased record or subject: they state only that a record was rejected.

use std::{
    io::Write as _,
    sync::{Mutex, PoisonError},
};

use serde::Serialize;

use crate::{
    codec::{base64::to_base64, seal::close_line},
    dataset::{Pseudonymizer, SealingSink, SuppressList},
    error::{Error, Result},
    record::spelling::{any_span, possible_decodings, with_unescaped},
    storage::Staged,
};

/// Replaces a reason that names an erased record or subject.
pub(super) const WITHHELD: &str = "withheld: it names an erased record or subject";

/// Destination of rejected records.
pub struct RejectsFile {
    sink: Mutex<SealingSink>,
    pseudonymizer: Option<Pseudonymizer>,
}

impl std::fmt::Debug for RejectsFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RejectsFile").finish_non_exhaustive()
    }
}

impl RejectsFile {
    /// Writes to `sink`, with source names as the dataset stores them.
    pub fn new(sink: SealingSink, pseudonymizer: Option<Pseudonymizer>) -> Self {
        Self { sink: Mutex::new(sink), pseudonymizer }
    }

    /// Finishes the file, which is not published yet.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(self) -> Result<Staged> {
        self.sink.into_inner().unwrap_or_else(PoisonError::into_inner).finish()
    }

    /// Appends the lines of another file.
    ///
    /// # Errors
    /// Fails if the other file cannot be read, or the store fails.
    pub fn append_lines(&self, lines: &mut dyn std::io::Read) -> Result<()> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        std::io::copy(lines, &mut *sink)?;
        Ok(())
    }

    /// Writes a line for an unreadable source, or for the unreadable rest of one; `row` is its first record, `records`
    /// their number.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn write_fault(&self, row: u64, records: u64, fault: &Error) -> Result<()> {
        let place = fault.place();
        self.write(
            RejectLine {
                source: place.source.clone(),
                row,
                records: (records > 1).then_some(records),
                line: place.line,
                byte: place.byte,
                column: place.column.as_deref(),
                reason: fault.message(),
                raw: None,
                raw_base64: None,
            },
            None,
        )
    }

    /// Writes a line. `erased` is the list of erased ids.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub(super) fn write(&self, mut line: RejectLine<'_>, erased: Option<&SuppressList>) -> Result<()> {
        if let (Some(pseudonymizer), Some(source)) = (&self.pseudonymizer, &line.source) {
            line.source = Some(pseudonymizer.stored_uri(source).into_owned());
        }
        if erased.is_some_and(|list| line.names_erased(list)) {
            (line.raw, line.raw_base64, line.reason, line.column) = (None, None, WITHHELD, None);
        }
        let mut text =
            serde_json::to_vec(&line).map_err(|e| Error::internal("encoding a reject failed").with_cause(e))?;
        close_line(&mut text);
        text.push(b'\n');
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text)?;
        Ok(())
    }
}

/// One line of the file.
#[derive(Debug, Serialize)]
pub(super) struct RejectLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    pub(super) row: u64,
    /// Number of records of this line, if it is not 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) records: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) byte: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) column: Option<&'a str>,
    pub(super) reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_base64: Option<String>,
}

impl<'a> RejectLine<'a> {
    /// Adds the bytes of the record.
    pub(super) fn with_raw(self, raw: &'a [u8]) -> Self {
        let text = std::str::from_utf8(raw).ok();
        Self { raw: text, raw_base64: text.is_none().then(|| to_base64(raw)), ..self }
    }

    pub(super) fn names_erased(&self, list: &SuppressList) -> bool {
        let packed = self.raw_base64.as_deref().and_then(crate::codec::base64::from_base64).unwrap_or_default();
        let decodings = if packed.is_empty() { Vec::new() } else { possible_decodings(&packed) };
        let texts = [self.raw, Some(self.reason), self.column].into_iter().flatten();
        texts
            .chain(decodings.iter().map(String::as_str))
            .any(|text| with_unescaped(text).any(|text| any_span(&text, &mut |span| list.has_name(span))))
    }
}
