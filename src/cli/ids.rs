//! Files of ids: one per line; of a file `.jsonl`, a JSON text per line, which may hold line breaks.
//!
//! A byte order mark, the line ends of other systems and empty lines are no part of ids. Blanks are, because ids may
//! have them anywhere; those around an id are told, because most come from a spreadsheet.

use std::{io, path::Path};

use super::CommandSession;
use crate::{
    error::{Error, Result},
    events::{Event, Observer as _},
    storage::SmallFile,
};

/// Share of the memory that a file of ids may take; in memory, ids take about twice as much.
const MEMORY_SHARE: u64 = 4;

/// Size that a file of ids may have in any case.
const MIN_BYTES: u64 = 64 << 20;

impl CommandSession<'_> {
    /// Reads a file of ids; `-` is standard input.
    pub(super) fn read_ids(&self, path: &Path) -> Result<Vec<String>> {
        let bytes = self.read_list(path, "a file of ids")?;
        let place = path.display().to_string();
        let of_json = path.extension().is_some_and(|extension| extension == "jsonl");
        let (ids, padded) = parse_ids(&bytes, of_json).map_err(|e| e.at_location(place.clone()))?;
        if let Some(line) = padded {
            let text =
                format!("{place}, line {line}: an id begins or ends with a blank, which is taken as a part of it");
            self.progress.event(Event::Note(text));
        }
        Ok(ids)
    }

    /// Reads a file that is a list and fits into memory; `-` is standard input, and `what` names it in errors.
    pub(super) fn read_list(&self, path: &Path, what: &'static str) -> Result<Vec<u8>> {
        let file = SmallFile::new(what, (self.context.memory.0 / MEMORY_SHARE).max(MIN_BYTES));
        if path.as_os_str() == "-" {
            return file.read_stream(io::stdin()).map_err(|e| e.at_location("standard input"));
        }
        let missing = || Error::usage(format!("expected {what}, found none")).at_location(path.display().to_string());
        file.read(path)?.ok_or_else(missing)
    }
}

/// Returns the ids of a file, and the first line with blanks around its id.
fn parse_ids(bytes: &[u8], of_json: bool) -> Result<(Vec<String>, Option<u64>)> {
    let hint = "save the file as UTF-8, such as with iconv -f UTF-16 -t UTF-8";
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(Error::usage("expected ids in UTF-8, found UTF-16").with_hint(hint));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count();
        Error::usage("expected ids in UTF-8, found other bytes").at_line(line as u64).with_hint(hint)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut ids, mut padded) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.split('\n')) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim().is_empty() {
            continue;
        }
        if of_json {
            ids.push(serde_json::from_str(line).map_err(|e| {
                let error = Error::usage("expected a JSON text on every line, such as \"PAT-1\"");
                error.at_line(number).with_cause(e)
            })?);
            continue;
        }
        if line.contains('\r') {
            return Err(Error::usage("expected one id on a line, found a carriage return in it")
                .at_line(number)
                .with_hint("end lines with a line feed, or give ids with line breaks as JSON texts in a file .jsonl"));
        }
        if line.trim() != line {
            padded.get_or_insert(number);
        }
        ids.push(line.to_owned());
    }
    Ok((ids, padded))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn marks_and_line_ends_are_no_part_of_ids_but_blanks_are() {
        for (text, ids, padded) in [
            ("\u{feff}a\r\nb c\r\n\r\nd", vec!["a", "b c", "d"], None),
            ("a\r\nb\r", vec!["a", "b"], None),
            ("a\n\n  \n\t\nb\n", vec!["a", "b"], None),
            ("a\nb \n c\n", vec!["a", "b ", " c"], Some(2)),
            ("a\u{feff}\n", vec!["a\u{feff}"], None),
            ("", vec![], None),
        ] {
            let (found, first) = parse_ids(text.as_bytes(), false).unwrap();
            assert_eq!((found, first), (ids.into_iter().map(str::to_owned).collect(), padded), "{text:?}");
        }
        assert_eq!(
            parse_ids(b"\xef\xbb\xbf\"a\\nb\"\r\n\n\" c\"\n", true).unwrap(),
            (vec!["a\nb".into(), " c".into()], None)
        );
    }

    #[test]
    fn what_is_no_list_of_ids_is_an_error_with_its_line() {
        for (bytes, of_json, line, message) in [
            (&b"\xff\xfea\0"[..], false, None, "UTF-16"),
            (b"a\nb\xe4\n", false, Some(2), "UTF-8"),
            (b"a\rb\rc\n", false, Some(1), "carriage return"),
            (b"\"a\"\nb\n", true, Some(2), "JSON"),
            (b"1\n", true, Some(1), "JSON"),
        ] {
            let error = parse_ids(bytes, of_json).unwrap_err();
            assert!(error.message().contains(message) && error.place().line == line, "{error}");
        }
    }
}
