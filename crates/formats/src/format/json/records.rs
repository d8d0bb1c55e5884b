//! Iteration over the records of a range: lines, or the objects of a document.
//!
//! ```text
//! Lines      {"a":1}\n  \r\n {"a":2}\r\n           two records, one blank line
//! Document   [ {"a":1}, {"a":2} ]  or  {"a":1}     two records, or one
//! ```
//!
//! If a document is truncated or malformed, the records before the fault are kept; the rest is one broken record.

use std::{borrow::Cow, fmt, ops::ControlFlow};

use serde::de::{Deserialize, Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, value::RawValue};

use super::{Mode, bare, fault, token};
use crate::record::SourceRange;

/// Byte order mark that some programs write before UTF-8 text.
pub(super) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Position of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordPlace<'a> {
    /// Index among the records of the range.
    pub(super) row: u32,
    /// Line within the range, from 0.
    pub(super) line: u64,
    /// Offset of its first byte within the range.
    pub(super) start: usize,
    /// The record without white space around it.
    pub(super) bytes: &'a [u8],
}

/// An item found in a range.
#[derive(Debug)]
pub(super) enum LineItem<'a> {
    /// A candidate record, not yet parsed.
    Record(RecordPlace<'a>, &'a str),
    /// An item that cannot be a record, the offset of the fault within it, and the reason.
    Broken(RecordPlace<'a>, usize, String),
}

/// Visits every record until `visit` breaks; otherwise returns the number of blank lines. In a document, the records
/// are at `path`.
pub(super) fn visit_records<'a, B>(
    mode: Mode,
    path: &[String],
    range: &'a SourceRange,
    mut visit: impl FnMut(LineItem<'a>) -> ControlFlow<B>,
) -> ControlFlow<B, u64> {
    match mode {
        Mode::Lines => {
            let mut lines = LineCursor::new(range);
            while lines.next_start().is_some() {
                if let Some(found) = lines.next() {
                    visit(found)?;
                }
            }
            ControlFlow::Continue(lines.blank)
        }
        Mode::Document => match visit_document(range.content_bytes(), text_start(range), path, &mut visit) {
            Some(broken) => ControlFlow::Break(broken),
            None => ControlFlow::Continue(0),
        },
    }
}

/// Returns the offset of the text of a range.
fn text_start(range: &SourceRange) -> usize {
    if range.offset == 0 && range.content_bytes().starts_with(BOM) { BOM.len() } else { 0 }
}

/// Iterates over a range line by line.
#[derive(Debug)]
pub(super) struct LineCursor<'a> {
    bytes: &'a [u8],
    start: usize,
    row: u32,
    line: u64,
    blank: u64,
}

impl<'a> LineCursor<'a> {
    /// Starts before the first line.
    pub(super) fn new(range: &'a SourceRange) -> Self {
        Self { bytes: range.content_bytes(), start: text_start(range), row: 0, line: 0, blank: 0 }
    }

    /// Returns the start of the next line, if there is one.
    #[inline]
    pub(super) fn next_start(&self) -> Option<usize> {
        (self.start < self.bytes.len()).then_some(self.start)
    }

    /// Skips the next line, a record that ends at `end` before its line end, and returns its number.
    #[inline]
    pub(super) fn pass_record(&mut self, end: usize) -> u32 {
        let row = self.row;
        self.row += 1;
        self.line += 1;
        self.start = end + if self.bytes.get(end) == Some(&b'\r') { 2 } else { 1 };
        row
    }

    /// Advances over the next line and returns its content, unless it is blank.
    pub(super) fn next(&mut self) -> Option<LineItem<'a>> {
        let (start, line) = (self.start, self.line);
        let end = memchr::memchr(b'\n', &self.bytes[start..]).map_or(self.bytes.len(), |at| start + at);
        self.start = end + 1;
        self.line += 1;
        let (from, record) = trim_range(self.bytes, start, end);
        if record.is_empty() {
            self.blank += 1;
            return None;
        }
        let place = RecordPlace { row: self.row, line, start: from, bytes: record };
        self.row += 1;
        Some(match as_text(record) {
            Ok(text) => LineItem::Record(place, text),
            Err((at, reason)) => LineItem::Broken(place, at, reason),
        })
    }

    /// Returns the number of line ends so far.
    pub(super) fn line_count(&self) -> u64 {
        // The last line may lack its end.
        self.line - u64::from(self.start > self.bytes.len())
    }

    /// Returns the number of blank lines so far.
    pub(super) fn blank_count(&self) -> u64 {
        self.blank
    }
}

/// Counts the records and the line ends of a range of lines.
pub(super) fn count_lines(range: &SourceRange) -> (u64, u64) {
    let bytes = &range.content_bytes()[text_start(range)..];
    let ends = memchr::memchr_iter(b'\n', bytes).count();
    let lines = ends + usize::from(bytes.last().is_some_and(|last| *last != b'\n'));
    let first = usize::from(bytes.first().is_some_and(|first| !first.is_ascii_whitespace()));
    // Nearly always each line begins with its record.
    let records = if first + filled_after_ends(bytes) == lines { lines } else { count_filled(bytes) };
    (records as u64, ends as u64)
}

/// Counts the line ends that are followed by something else than white space. Written so that the compiler uses
/// vectors.
fn filled_after_ends(bytes: &[u8]) -> usize {
    let Some(next) = bytes.get(1..) else { return 0 };
    let (ends, next) = (bytes.chunks(SUMMED), next.chunks(SUMMED));
    let sum = |(ends, next): (&[u8], &[u8])| {
        let pairs = ends.iter().zip(next);
        // At most `SUMMED` ones, which fit a byte.
        usize::from(pairs.map(|(end, next)| u8::from(*end == b'\n') & u8::from(*next > b' ')).sum::<u8>())
    };
    ends.zip(next).map(sum).sum()
}

/// Bytes whose hits are counted in a byte.
const SUMMED: usize = 192;

/// Counts the lines that are not blank.
fn count_filled(bytes: &[u8]) -> usize {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]);
    let lines = ends.map(|end| &bytes[std::mem::replace(&mut start, end + 1)..end]);
    lines.filter(|line| !line.trim_ascii().is_empty()).count()
}

/// Returns the bytes between two offsets without ASCII white space around them, and their start.
fn trim_range(bytes: &[u8], start: usize, end: usize) -> (usize, &[u8]) {
    let tail = bytes[start..end].trim_ascii_start();
    (end - tail.len(), tail.trim_ascii_end())
}

/// Returns the bytes as text, or the offset and the reason if they are not text.
fn as_text(bytes: &[u8]) -> Result<&str, (usize, String)> {
    simdutf8::basic::from_utf8(bytes).or_else(|_| {
        simdutf8::compat::from_utf8(bytes).map_err(|error| {
            let at = error.valid_up_to();
            let found = bytes.get(at).map_or_else(|| "nothing".to_owned(), |b| format!("byte 0x{b:02X}"));
            (at, format!("expected UTF-8 text, found {found}"))
        })
    })
}

/// Visits the records of a document; returns the value that `visit` broke with.
fn visit_document<'a, B>(
    bytes: &'a [u8],
    start: usize,
    path: &[String],
    visit: &mut impl FnMut(LineItem<'a>) -> ControlFlow<B>,
) -> Option<B> {
    let (start, content) = trim_range(bytes, start, bytes.len());
    let mut cursor = Cursor { bytes, row: 0, line: 0, at: 0 };
    let found = as_text(content).and_then(|text| if path.is_empty() { Ok((0, text)) } else { value_at(text, path) });
    let (start, text) = match found {
        Ok((at, text)) => (start + at, text),
        Err((at, reason)) => {
            return visit(LineItem::Broken(cursor.place_record(start, content), at, reason)).break_value();
        }
    };
    if text.starts_with('{') {
        return visit(LineItem::Record(cursor.place_record(start, content), text)).break_value();
    }
    let masked = bare::mask_words(text);
    let walked = masked.as_deref().unwrap_or(text);
    if let Err((at, reason)) = check_top(walked) {
        return visit(LineItem::Broken(cursor.place_record(start, content), at, reason)).break_value();
    }
    let (mut taken, mut broke) = (0, None);
    let mut deserializer = Deserializer::from_str(walked);
    let result = deserializer
        .deserialize_seq(Elements(|element: &str| {
            let offset = element.as_ptr() as usize - walked.as_ptr() as usize;
            taken = offset + element.len();
            let element = &text[offset..taken];
            broke =
                visit(LineItem::Record(cursor.place_record(start + offset, element.as_bytes()), element)).break_value();
            broke.is_none()
        }))
        .and_then(|()| deserializer.end());
    if broke.is_some() {
        return broke;
    }
    let error = result.err()?;
    let fault = fault::error_offset(walked, &error);
    let (from, rest) = trim_range(bytes, start + taken, bytes.len());
    visit(LineItem::Broken(
        cursor.place_record(from, rest),
        (start + fault).saturating_sub(from),
        fault::error_reason(&error),
    ))
    .break_value()
}

/// Returns the value at a path of names in a document, and its offset.
fn value_at<'a>(text: &'a str, path: &[String]) -> Result<(usize, &'a str), (usize, String)> {
    let masked = bare::mask_words(text);
    let mut value = masked.as_deref().unwrap_or(text);
    let whole = value.as_ptr() as usize;
    let offset = |part: &str| part.as_ptr() as usize - whole;
    for (depth, name) in path.iter().enumerate() {
        let at = offset(value);
        let found = Deserializer::from_str(value).deserialize_map(Member(name));
        let found = found.map_err(|error| (at + fault::error_offset(value, &error), fault::error_reason(&error)))?;
        value = found.ok_or_else(|| {
            (at, format!("expected the records at `{}`, found no such member", path[..=depth].join(".")))
        })?;
    }
    let at = offset(value);
    Ok((at, &text[at..at + value.len()]))
}

/// Finds the value of a member.
struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some((name, value)) = map.next_entry::<Cow<'_, str>, &'de RawValue>()? {
            if name == self.0 && found.replace(value.get()).is_some() {
                return Err(A::Error::custom("expected each key once, found one that appears twice"));
            }
        }
        Ok(found)
    }
}

/// Returns the path to the array of objects that takes up most of an object, as far as the start of a text shows: a
/// member of the object, or of members of it, as in `{"data": {"items": [...]}}`. Arrays that are smaller describe one
/// record.
pub(super) fn first_array(text: &str) -> Option<String> {
    let mut at = text.find('{').filter(|at| text[..*at].trim_ascii().is_empty())? + 1;
    // What is open: the name of the member, which an item of an array has not, and where an array of objects began.
    let mut open: Vec<(Option<String>, Option<usize>)> = Vec::new();
    let mut name = None;
    let is_most = |from: usize, to: usize| 2 * (to - from) >= text.len();
    while let Some(next) = text[at..].find(['"', '{', '[', '}', ']']) {
        at += next;
        let from = &text[at..];
        match from.as_bytes()[0] {
            b'"' => {
                let (text, after) = from.split_at(bare::string_length(from));
                at += text.len();
                name = after.trim_ascii_start().starts_with(':').then(|| serde_json::from_str(text).ok()).flatten();
                continue;
            }
            b'[' => open.push((name.take(), from[1..].trim_ascii_start().starts_with('{').then_some(at))),
            b'{' => open.push((name.take(), None)),
            _ => {
                if open.last().is_some_and(|(_, start)| start.is_some_and(|start| is_most(start, at)))
                    && let Some(path) = path_of(&open)
                {
                    return Some(path);
                }
                open.pop();
            }
        }
        at += 1;
    }
    // The text ends within what is open; the outermost array has the records.
    let outer = open.iter().position(|(_, start)| start.is_some())?;
    let start = open[outer].1.filter(|start| is_most(*start, text.len()));
    start.and_then(|_| path_of(&open[..=outer]))
}

/// Returns members as a path; `None` if one has no name, or one that a path cannot have.
fn path_of(members: &[(Option<String>, Option<usize>)]) -> Option<String> {
    let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty() && !name.contains('.'));
    members.iter().map(|(name, _)| named(name)).collect::<Option<Vec<_>>>().map(|names| names.join("."))
}

/// Fails if the start of a document that is not an object shows that it is not an array of objects either.
fn check_top(text: &str) -> Result<(), (usize, String)> {
    let Some(inner) = text.strip_prefix('[') else {
        let error = serde_json::from_str::<IgnoredAny>(text).err();
        return Err(error.map_or_else(
            || (0, format!("expected an object or an array of objects, found {}", token::kind(text))),
            |error| (fault::error_offset(text, &error), fault::error_reason(&error)),
        ));
    };
    let first = inner.trim_ascii_start();
    match first.as_bytes().first() {
        Some(b'"' | b'[' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => Err((
            text.len() - first.len(),
            format!("expected an array of objects, found an array that starts with {}", token::kind(first)),
        )),
        _ => Ok(()),
    }
}

/// Counts records and lines up to a position.
struct Cursor<'a> {
    bytes: &'a [u8],
    row: u32,
    line: u64,
    at: usize,
}

impl Cursor<'_> {
    fn place_record<'a>(&mut self, start: usize, record: &'a [u8]) -> RecordPlace<'a> {
        self.line += memchr::memchr_iter(b'\n', &self.bytes[self.at..start]).count() as u64;
        self.at = start;
        let row = self.row;
        self.row += 1;
        RecordPlace { row, line: self.line, start, bytes: record }
    }
}

/// Passes the text of each element of an array to a function until it returns false.
struct Elements<F>(F);

impl<'de, F: FnMut(&'de str) -> bool> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            if !(self.0)(element.get()) {
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

/// Whether bytes are one JSON value, or a prefix of one.
pub(super) enum ValueExtent {
    /// One whole value.
    Whole,
    /// The bytes end before the value does.
    Started,
    /// Not JSON.
    Not,
}

/// Classifies bytes as JSON, without checking the content of its strings.
pub(super) fn value_extent(bytes: &[u8]) -> ValueExtent {
    let masked = std::str::from_utf8(bytes).ok().and_then(bare::mask_words);
    let mut deserializer = Deserializer::from_slice(masked.as_ref().map_or(bytes, |masked| masked.as_bytes()));
    match IgnoredAny::deserialize(&mut deserializer).and_then(|_| deserializer.end()) {
        Ok(()) => ValueExtent::Whole,
        Err(error) if error.is_eof() => ValueExtent::Started,
        Err(_) => ValueExtent::Not,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn found(mode: Mode, bytes: &[u8]) -> Vec<String> {
        let range = SourceRange::of_bytes(0, Bytes::copy_from_slice(bytes));
        let mut out = Vec::new();
        let blank = visit_records::<()>(mode, &[], &range, |found| {
            out.push(match found {
                LineItem::Record(p, text) => format!("{} {} {} {text}", p.row, p.line, p.start),
                LineItem::Broken(p, at, reason) => {
                    format!("{} {} {}+{at} {reason}: {}", p.row, p.line, p.start, String::from_utf8_lossy(p.bytes))
                }
            });
            ControlFlow::Continue(())
        });
        if let ControlFlow::Continue(blank @ 1..) = blank {
            out.push(format!("blank {blank}"));
        }
        out
    }

    #[test]
    fn lines_are_records_unless_blank() {
        assert_eq!(
            found(Mode::Lines, b"\xEF\xBB\xBF{1}\r\n\n \t\r\n  {2} \n{3"),
            ["0 0 3 {1}", "1 3 15 {2}", "2 4 20 {3", "blank 2"]
        );
        assert_eq!(found(Mode::Lines, b""), [""; 0]);
        assert_eq!(found(Mode::Lines, b"\n"), ["blank 1"]);
        assert_eq!(
            found(Mode::Lines, b"{\xFF}\n{}"),
            ["0 0 0+1 expected UTF-8 text, found byte 0xFF: {\u{fffd}}", "1 1 4 {}"]
        );
    }

    #[test]
    fn the_array_that_has_the_records_is_found() {
        for (text, path) in [
            (r#"{"a": 1, "b": [{"x": 1}, {"x": 2}]}"#, Some("b")),
            (r#"{"a": 1, "category": [{"x": 1}], "text": "a record that has a list"}"#, None),
            (r#"{"meta": {"n": [{"k": 1}]}, "rows": [{"x": 1}, {"x": [{"y": 2}]}, {"x": 30}]}"#, Some("rows")),
            (
                r#"{"meta": {"n": 2}, "data": {"items": [{"a": 1}, {"a": 2}, {"a": "long"}, {"a": 5}]}}"#,
                Some("data.items"),
            ),
            (
                r#"{"data": {"pages": {"items": [{"a": "[{"}, {"a": 2}, {"a": "a long text"}, {"a""#,
                Some("data.pages.items"),
            ),
            (r#"{"code": {"coding": [{"c": 1}]}, "subject": {"reference": "someone"}, "value": 1234567}"#, None),
            (r#"{"a.b": [{"x": 1}]}"#, None),
            (r#"{"a": [[{"x": 1}]], "b": [1, 2]}"#, None),
            (r#"{"a": {}}"#, None),
            ("[{\"a\": [{}]}]", None),
        ] {
            assert_eq!(first_array(text).as_deref(), path, "{text}");
        }
    }

    #[test]
    fn documents_hold_one_object_or_an_array_of_them() {
        assert_eq!(found(Mode::Document, b"\n {\"a\":\n1}\n"), ["0 1 2 {\"a\":\n1}"]);
        assert_eq!(
            found(Mode::Document, b"\xEF\xBB\xBF[ {\"a\":1},\n\n {},5 ]\n"),
            ["0 0 5 {\"a\":1}", "1 2 16 {}", "2 2 19 5"]
        );
        assert_eq!(found(Mode::Document, b"[]"), [""; 0]);
    }

    #[test]
    fn broken_documents_keep_the_records_before_the_fault() {
        let eof = "invalid JSON: the record ends";
        assert_eq!(
            found(Mode::Document, b"[{},\n{\"a\":"),
            ["0 0 1 {}".to_owned(), format!("1 0 3+6 {eof} where a value is expected: ,\n{{\"a\":")]
        );
        assert_eq!(found(Mode::Document, b"[{}] x"), ["0 0 1 {}", "1 0 3+2 invalid JSON: trailing characters: ] x"]);
        assert_eq!(found(Mode::Document, b"["), [format!("0 0 0+0 {eof} within a list: [")]);
        assert_eq!(
            found(Mode::Document, b" [1,{}]"),
            ["0 0 1+1 expected an array of objects, found an array that starts with a number: [1,{}]"]
        );
        assert_eq!(
            found(Mode::Document, b"\"x\""),
            ["0 0 0+0 expected an object or an array of objects, found a string: \"x\""]
        );
        assert_eq!(found(Mode::Document, b"  "), [format!("0 0 2+0 {eof} where a value is expected: ")]);
    }

    #[test]
    fn a_visitor_can_stop() {
        let range = SourceRange::of_bytes(0, Bytes::from_static(b"[{},{},{}]"));
        let mut seen = 0;
        let end = visit_records(Mode::Document, &[], &range, |_| {
            seen += 1;
            if seen == 2 { ControlFlow::Break("enough") } else { ControlFlow::Continue(()) }
        });
        assert_eq!((end, seen), (ControlFlow::Break("enough"), 2));
    }
}

#[cfg(test)]
mod part_tests {
    use proptest::prelude::*;

    use super::{super::JsonSource, *};
    use crate::format::part_checks::check_parts;

    const LINES: [&str; 10] = [
        "{\"a\":1}\n",
        "{\"a\":1}\r\n",
        "\n",
        "\r\n",
        " \t\n",
        " {\"a\":\"x\"}\n",
        "junk\n",
        "{\"a\":\n",
        "\u{1}\n",
        "\u{b}\n",
    ];

    proptest! {
        #[test]
        fn parts_of_lines_are_those_of_the_whole(
            choices in proptest::collection::vec(0_usize..20, 0..300),
            mark: bool,
            ending: bool,
            range in 1_usize..300,
            part in 1_u64..1000,
        ) {
            let lines = choices.into_iter().map(|choice| LINES.get(choice).copied().unwrap_or(LINES[0]));
            let mut text: String = ["\u{feff}"].into_iter().filter(|_| mark).chain(lines).collect();
            if !ending {
                text.truncate(text.trim_end().len());
            }
            let source = JsonSource::new(Mode::Lines);
            check_parts(&source, text.as_bytes(), range, 1 << 20, part);
            check_parts(&source, text.as_bytes(), range, 8, part);
        }
    }
}
