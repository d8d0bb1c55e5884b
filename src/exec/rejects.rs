//! The file of rejected records: one JSON object per line, so that people can repair records and convert them again.
//!
//! What names somebody who was erased is not kept: the line says that a record was rejected, and not what it held.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::{
    codec::base64::base64,
    dataset::{Hiding, SuppressList},
    error::{Error, Result},
    record::spelling::{any_span, readings, with_unescaped},
    storage::{Sink, Staged},
};

/// In place of what names somebody who was erased.
const WITHHELD: &str = "withheld: it names somebody who was erased";

/// Destination of rejected records.
pub struct RejectsFile {
    sink: Mutex<Box<dyn Sink>>,
    hiding: Option<Hiding>,
}

impl std::fmt::Debug for RejectsFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RejectsFile").finish_non_exhaustive()
    }
}

impl RejectsFile {
    /// Writes to `sink`, with names of sources as the dataset stores them.
    pub fn new(sink: Box<dyn Sink>, hiding: Option<Hiding>) -> Self {
        Self { sink: Mutex::new(sink), hiding }
    }

    /// Ends the file; it has no name yet.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish(self) -> Result<Staged> {
        self.sink.into_inner().unwrap_or_else(PoisonError::into_inner).finish()
    }

    /// Keeps what could not be read at all, or not to its end; `row` is the first record of it, `records` how many there are.
    ///
    /// # Errors
    /// When the store fails.
    pub fn fault(&self, row: u64, records: u64, fault: &Error) -> Result<()> {
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

    /// Writes a line. `erased` is the list of those who were erased.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) fn write(&self, mut line: RejectLine<'_>, erased: Option<&SuppressList>) -> Result<()> {
        if let (Some(hiding), Some(source)) = (&self.hiding, &line.source) {
            line.source = Some(hiding.uri(source).into_owned());
        }
        if erased.is_some_and(|list| line.names_anyone(list)) {
            (line.raw, line.raw_base64, line.reason, line.column) = (None, None, WITHHELD, None);
        }
        let mut text = serde_json::to_vec(&line).map_err(|e| Error::internal("encoding a reject failed").cause(e))?;
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
    /// How many records this line stands for, when there are several.
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
    /// Returns the same with the bytes of the record.
    pub(super) fn with_raw(self, raw: &'a [u8]) -> Self {
        let text = std::str::from_utf8(raw).ok();
        Self { raw: text, raw_base64: text.is_none().then(|| base64(raw)), ..self }
    }

    fn names_anyone(&self, list: &SuppressList) -> bool {
        let packed = self.raw_base64.as_deref().and_then(crate::codec::base64::from_base64).unwrap_or_default();
        let readings = if packed.is_empty() { Vec::new() } else { readings(&packed) };
        let texts = [self.raw, Some(self.reason), self.column].into_iter().flatten();
        texts
            .chain(readings.iter().map(String::as_str))
            .any(|text| with_unescaped(text).any(|text| any_span(&text, &mut |span| list.has_name(span))))
    }
}
