//! Faults of records, carried out of a `serde_json` walk.
//!
//! A `serde_json` walk can only be stopped with an error of that crate, which holds nothing but text. So the walk
//! stores the fault in a [`Trail`], stops with a placeholder error, and every level on the way out adds its name to the
//! path.

use serde::de::{Deserialize as _, IgnoredAny};
use serde_json::{Deserializer, de::StrRead};

use super::{bare, token};
use crate::record::json::shorten_text;

/// Why a record is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordFault {
    /// Dotted path of the field at fault, if there is one.
    pub(super) column: Option<String>,
    /// What is wrong.
    pub(super) what: What,
}

/// Kinds of fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// A value that needs a wider type.
    Mismatch {
        /// The value, shortened.
        value: String,
        /// Type of its column.
        expected: String,
    },
    /// A record that fits no schema.
    Broken {
        /// What was expected and what was found.
        reason: String,
        /// Offset of the fault from the start of the record.
        at: usize,
    },
}

/// Collects the fault of one record.
#[derive(Debug)]
pub(super) struct Trail<'a> {
    record: &'a str,
    /// The record itself, if what is walked has numbers in place of some of its words.
    source: Option<&'a str>,
    careful: bool,
    what: Option<What>,
    /// Names from the innermost to the outermost.
    names: Vec<String>,
}

impl<'a> Trail<'a> {
    /// Whether to read every value as text first.
    pub(super) fn is_careful(&self) -> bool {
        self.careful
    }

    /// Returns what the record has in place of a part of the text that is walked, if that is something else.
    pub(super) fn masked_source(&self, text: &str) -> Option<&'a str> {
        let at = self.offset_of(text);
        self.source?.get(at..at + text.len()).filter(|source| *source != text)
    }

    /// Stops because `value` does not fit a column of type `expected`.
    pub(super) fn stop_mismatch<E: serde::de::Error>(&mut self, value: &str, expected: impl ToString) -> E {
        self.stop_with(What::Mismatch { value: shorten_text(value), expected: expected.to_string() })
    }

    /// Stops because the record is invalid at `text`, which is a part of it.
    pub(super) fn stop_broken<E: serde::de::Error>(&mut self, text: &str, reason: impl Into<String>) -> E {
        let at = self.offset_of(text);
        self.stop_with(What::Broken { reason: reason.into(), at })
    }

    /// Stops because `serde_json` refused `text`, which is a part of the record. This is recorded only in a careful
    /// walk.
    pub(super) fn stop_malformed<E: serde::de::Error>(&mut self, text: &str, error: &serde_json::Error) -> E {
        if !self.careful && self.what.is_none() {
            return E::custom("stopped");
        }
        let at = self.offset_of(text) + error_offset(text, error);
        self.stop_with(What::Broken { reason: error_reason(error), at })
    }

    /// Stops because the key `name` is repeated, with the value `text`.
    pub(super) fn stop_repeated<E: serde::de::Error>(&mut self, text: &str, name: &str) -> E {
        let error = self.stop_broken(text, "expected each key once, found one that appears twice");
        self.add_name(name, error)
    }

    /// Stops because containers are nested too deep.
    pub(super) fn too_deep<E: serde::de::Error>(&mut self, text: &str) -> E {
        self.stop_broken(text, format!("expected at most {} nested arrays and objects, found more", token::MAX_DEPTH))
    }

    /// Adds `name` to the path of the field at fault, on the way out.
    pub(super) fn add_name<E>(&mut self, name: &str, error: E) -> E {
        if self.what.is_some() {
            self.names.push(name.to_owned());
        }
        error
    }

    /// Returns the fault that stopped the walk with `error`.
    fn into_fault(self, error: &serde_json::Error) -> RecordFault {
        let column = (!self.names.is_empty()).then(|| {
            let names: Vec<&str> = self.names.iter().rev().map(String::as_str).collect();
            names.join(".")
        });
        let what = self
            .what
            .unwrap_or_else(|| What::Broken { reason: error_reason(error), at: error_offset(self.record, error) });
        RecordFault { column, what }
    }

    fn stop_with<E: serde::de::Error>(&mut self, what: What) -> E {
        // The first fault is kept: a nested walk that was stopped fails its outer walk as well.
        self.what.get_or_insert(what);
        E::custom("stopped")
    }

    fn offset_of(&self, part: &str) -> usize {
        let offset = (part.as_ptr() as usize).wrapping_sub(self.record.as_ptr() as usize);
        if offset <= self.record.len() { offset } else { 0 }
    }
}

/// Walks a record, which must be exactly one object.
///
/// `serde_json` refuses numbers that floats cannot hold unless their text is requested. The first walk does not request
/// it where a list or struct is expected, because reading containers twice costs time; if it fails, a second, `careful`
/// walk does. A record that is invalid because of words that Python writes is walked with numbers in their place.
pub(super) fn walk_record(
    record: &str,
    mut visit: impl for<'r> FnMut(&mut Deserializer<StrRead<'r>>, &mut Trail<'r>) -> serde_json::Result<()>,
) -> Result<(), RecordFault> {
    let fault = match walk_text(record, None, &mut visit) {
        Err(fault @ RecordFault { what: What::Broken { .. }, .. }) => fault,
        other => return other,
    };
    match bare::mask_words(record) {
        Some(masked) => walk_text(&masked, Some(record), &mut visit),
        None => Err(fault),
    }
}

/// Walks a text; `source` is the record if the text is masked.
fn walk_text<'r>(
    record: &'r str,
    source: Option<&'r str>,
    visit: &mut impl for<'t> FnMut(&mut Deserializer<StrRead<'t>>, &mut Trail<'t>) -> serde_json::Result<()>,
) -> Result<(), RecordFault> {
    let mut attempt = |careful| {
        let mut trail = Trail { record, source, careful, what: None, names: Vec::new() };
        let mut deserializer = Deserializer::from_str(record);
        let result = if record.starts_with('{') {
            visit(&mut deserializer, &mut trail)
        } else {
            IgnoredAny::deserialize(&mut deserializer).and_then(|_| {
                Err(trail.stop_broken(record, format!("expected an object, found {}", token::kind(record))))
            })
        };
        result.and_then(|()| deserializer.end()).map_err(|error| (trail.what.is_some(), trail.into_fault(&error)))
    };
    match attempt(source.is_some()) {
        Err((false, _)) => attempt(true).map_err(|(_, fault)| fault),
        other => other.map_err(|(_, fault)| fault),
    }
}

/// Beginning of the reason for a record that ends too early.
pub(super) const UNEXPECTED_END: &str = "invalid JSON: the record ends";

/// Returns the message of `serde_json` without its line and column.
pub(super) fn error_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = if error.line() > 0 { text.rfind(" at line ") } else { None };
    let text = &text[..end.unwrap_or(text.len())];
    match text.strip_prefix("EOF while parsing ") {
        Some("a value") => format!("{UNEXPECTED_END} where a value is expected"),
        Some(within) => format!("{UNEXPECTED_END} within {within}"),
        None => format!("invalid JSON: {text}"),
    }
}

/// Returns the byte offset of an error within the parsed text.
pub(super) fn error_offset(text: &str, error: &serde_json::Error) -> usize {
    let line = error.line().saturating_sub(1);
    let start = match line {
        0 => 0,
        _ => memchr::memchr_iter(b'\n', text.as_bytes()).nth(line - 1).map_or(text.len(), |at| at + 1),
    };
    (start + error.column().saturating_sub(1)).min(text.len())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn offsets_point_at_the_offending_byte() {
        for (text, at) in [("{\"a\":x}", 5), ("{\n \"a\": tru }", 11), ("[1,\n2,\n", 7), ("", 0)] {
            let error = serde_json::from_str::<serde::de::IgnoredAny>(text).unwrap_err();
            assert_eq!(error_offset(text, &error), at, "{text:?} {error}");
        }
    }

    #[test]
    fn reasons_have_no_line_numbers_of_their_own() {
        let error = serde_json::from_str::<serde::de::IgnoredAny>("[1").unwrap_err();
        assert_eq!(error_reason(&error), "invalid JSON: the record ends within a list");
    }

    #[test]
    fn names_are_joined_from_the_outside_in() {
        let mut trail = Trail { record: "{}", source: None, careful: false, what: None, names: Vec::new() };
        let error: serde_json::Error = trail.stop_mismatch("1", "Utf8");
        let error = trail.add_name("b", error);
        let error = trail.add_name("a", error);
        let fault = trail.into_fault(&error);
        assert_eq!(fault.column.unwrap(), "a.b");
        assert_eq!(fault.what, What::Mismatch { value: "1".into(), expected: "Utf8".into() });
    }
}
