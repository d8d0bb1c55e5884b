//! Fast path for records that look like the one before them: same keys, same order, same white space.
//!
//! The text between two values is compared with that of the previous record, as one or two words, and determines the
//! column of the next value. The value is read by the parser of its column without finding its end first, and is copied
//! or converted into the column at once.
//!
//! ```text
//! {"id":"V01","age":70}\n          order   start    {"id":     -> column 0
//! {"id":"V02","age":71}\n                  after 0  ,"age":    -> column 1
//!       ~~~~~      ~~  values              after 1  }          -> end
//! ```
//!
//! If the text differs, it is parsed and becomes the expected text from then on.
//!
//! This path accepts only what the exact one accepts, with the same result; it guarantees nothing else. In doubt it
//! gives up without a reason, and the caller truncates the columns and uses the exact path. So it never passes a line
//! end within a record: strings and gaps that contain one make it give up.

use serde_json::{Deserializer, value::RawValue};

use super::{
    columns::{JsonColumn, JsonValues, MemberColumns, Passed, TextStyle, to_offset},
    names::Names,
    number,
    simd::{self, LANE, Lane},
    token,
};

/// The text expected after each value, as far as it was seen.
#[derive(Debug)]
pub(super) struct GapOrder {
    /// Gap at the start of the object, then after each column, then after each key that is skipped.
    gaps: Vec<Gap>,
}

impl GapOrder {
    /// Returns the order of an object with this many fields, of which nothing was seen.
    pub(super) fn new(columns: usize) -> Self {
        Self { gaps: vec![Gap::default(); columns + 1] }
    }
}

/// The text between two values, and what follows it.
#[derive(Debug, Clone)]
struct Gap {
    text: Vec<u8>,
    /// Its first bytes, padded with zeros.
    first: Lane,
    /// Mask of these bytes.
    mask: Lane,
    next: Next,
}

/// What follows a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Column(usize),
    /// A value that is skipped; the gap after it has this number.
    Passed(usize),
    End,
}

impl Default for Gap {
    /// A gap that equals no text.
    fn default() -> Self {
        Self { text: Vec::new(), first: [1; LANE], mask: [0; LANE], next: Next::End }
    }
}

impl Gap {
    fn learn_text(&mut self, text: &[u8], next: Next) {
        let count = text.len().min(LANE);
        (self.first, self.mask) = ([0; LANE], [0; LANE]);
        self.first[..count].copy_from_slice(&text[..count]);
        self.mask[..count].fill(0xff);
        self.text.clear();
        self.text.extend_from_slice(text);
        self.next = next;
    }

    /// Whether `rest` begins with this gap; it must be longer than the gap by some bytes.
    #[inline(always)]
    fn is_prefix_of(&self, rest: &[u8]) -> bool {
        let Some(lane) = rest.first_chunk::<LANE>() else { return false };
        simd::agree(lane, &self.mask, &self.first) && (self.text.len() <= LANE || rest.starts_with(&self.text))
    }
}

/// Appends the record at `start`, which ends with its line and has no white space around it. Returns its end; on `None`
/// the columns may hold a part of it.
#[inline]
pub(super) fn append_line(members: &mut MemberColumns, rows: usize, text: &[u8], start: usize) -> Option<usize> {
    let mut reader = FastReader { text, beyond: 0 };
    let end = reader.append_object(members, rows, start, 1)?;
    let ends = match text.get(end)? {
        b'\n' => true,
        b'\r' => text.get(end + 1) == Some(&b'\n'),
        _ => false,
    };
    let known = reader.beyond == 0 || simdutf8::basic::from_utf8(&text[start..end]).is_ok();
    (ends && known).then_some(end)
}

/// Reads one record.
struct FastReader<'t> {
    text: &'t [u8],
    /// Non-ASCII bits of the bytes in and around strings.
    beyond: u32,
}

impl FastReader<'_> {
    /// Appends the object at `at` to columns that all have length `len`; returns its end.
    #[inline(always)]
    fn append_object(&mut self, members: &mut MemberColumns, len: usize, start: usize, depth: usize) -> Option<usize> {
        let MemberColumns { names, columns, order, passed } = members;
        let (mut at, mut from, mut filled) = (start, 0, 0);
        loop {
            let gap = order.gaps.get_mut(from)?;
            if gap.is_prefix_of(self.text.get(at..)?) {
                at += gap.text.len();
            } else {
                let (end, next) = self.parse_gap(names, passed.as_mut(), from, at)?;
                gap.learn_text(&self.text[at..end], next);
                at = end;
            }
            let next = match gap.next {
                Next::Column(next) => next,
                Next::End => break,
                Next::Passed(number) => {
                    let Some(end) = self.skip_value(&mut passed.as_mut()?.text, at, depth) else {
                        *gap = Gap::default();
                        return None;
                    };
                    (at, from) = (end, number);
                    if order.gaps.len() <= number {
                        order.gaps.resize(number + 1, Gap::default());
                    }
                    continue;
                }
            };
            let column = columns.get_mut(next)?;
            if column.len() != len {
                return None;
            }
            let Some(end) = self.append_value(column, at, depth) else {
                // A gap without its trailing white space matches, but does not lead to the value.
                if self.skip_whitespace(at) > at {
                    *gap = Gap::default();
                }
                return None;
            };
            at = end;
            filled += 1;
            from = next + 1;
        }
        if filled < columns.len() {
            columns.iter_mut().filter(|c| c.len() == len).for_each(JsonColumn::push_missing);
        }
        Some(at)
    }

    /// Parses the text between values, from the opening brace if `from` is 0, or from the end of the value before field
    /// `from`. Returns its end and what follows it.
    #[inline(never)]
    fn parse_gap(&self, names: &Names, passed: Option<&mut Passed>, from: usize, at: usize) -> Option<(usize, Next)> {
        // A record starts with its brace; white space before it is not part of it.
        let mut at = if from == 0 { at } else { self.skip_whitespace(at) };
        match (from, self.text.get(at)?) {
            (0, b'{') if self.text.get(self.skip_whitespace(at + 1)) == Some(&b'}') => {
                return Some((self.skip_whitespace(at + 1) + 1, Next::End));
            }
            (0, b'{') | (1.., b',') => at = self.skip_whitespace(at + 1),
            (1.., b'}') => return Some((at + 1, Next::End)),
            _ => return None,
        }
        let end = self.string_end(at)?;
        let key = token::unquote_string(std::str::from_utf8(&self.text[at..end]).ok()?).ok()?;
        let colon = self.skip_whitespace(end);
        if self.text.get(colon) != Some(&b':') {
            return None;
        }
        let next = match (names.find_key(&key, from), passed) {
            (Some(column), _) => Next::Column(column),
            (None, Some(passed)) => Next::Passed(names.len() + 1 + passed.passed_number(&key)?),
            (None, None) => return None,
        };
        Some((self.skip_whitespace(colon + 1), next))
    }

    /// Returns the end of the value at `at`, which is skipped.
    #[inline(never)]
    fn skip_value(&mut self, text: &mut Vec<u8>, at: usize, depth: usize) -> Option<usize> {
        let rest = self.text.get(at..)?;
        let length = match rest.first()? {
            b'"' => {
                text.clear();
                return self.append_string(text, at + 1);
            }
            b'n' => rest.starts_with(b"null").then_some(4)?,
            b't' | b'f' => boolean_length(rest)?,
            b'[' | b'{' => nested_length(rest, depth)?,
            _ => number::number_length(rest)?,
        };
        Some(at + length)
    }

    /// Returns the end of the string at `at`, without checking its escapes.
    fn string_end(&self, mut at: usize) -> Option<usize> {
        if self.text.get(at) != Some(&b'"') {
            return None;
        }
        at += 1;
        loop {
            let stops = simd::mark_chunk(self.text.get(at..)?.first_chunk()?).stops;
            if stops == 0 {
                at += simd::WIDTH;
                continue;
            }
            at += stops.trailing_zeros() as usize;
            match self.text[at] {
                b'"' => return Some(at + 1),
                b'\\' => at += 2,
                _ => return None,
            }
        }
    }

    /// Returns the offset of the first byte from `at` on that is not white space within a line.
    #[inline(always)]
    fn skip_whitespace(&self, mut at: usize) -> usize {
        while let Some(b' ' | b'\t' | b'\r') = self.text.get(at) {
            at += 1;
        }
        at
    }

    /// Appends the value at `at`; returns its end, which for a number is only valid if the next byte can follow a
    /// number.
    #[inline(always)]
    fn append_value(&mut self, column: &mut JsonColumn, at: usize, depth: usize) -> Option<usize> {
        let rest = self.text.get(at..)?;
        match &mut column.values {
            JsonValues::Integers(values) => {
                if let Some((value, length)) = number::short_integer(rest) {
                    values.push(value);
                    column.nulls.push_valid();
                    return Some(at + length);
                }
            }
            JsonValues::Floats(values) => {
                if let Some((value, length)) = number::short_float(rest) {
                    values.push(value);
                    column.nulls.push_valid();
                    return Some(at + length);
                }
            }
            JsonValues::Text { offsets, bytes, style } if *style != TextStyle::Json && rest.first() == Some(&b'"') => {
                let end = self.append_string(bytes, at + 1)?;
                offsets.push(to_offset(bytes.len()));
                column.nulls.push_valid();
                return Some(end);
            }
            _ => {}
        }
        self.append_other(column, at, depth)
    }

    /// Appends the null at `at`.
    fn append_null(&self, column: &mut JsonColumn, at: usize) -> Option<usize> {
        if !self.text.get(at..)?.starts_with(b"null") {
            return None;
        }
        column.push_null();
        Some(at + 4)
    }

    /// Appends a value that is neither a short number in a number column nor a string in a text column.
    #[inline(never)]
    fn append_other(&mut self, column: &mut JsonColumn, at: usize, depth: usize) -> Option<usize> {
        let rest = self.text.get(at..)?;
        let first = *rest.first()?;
        if first == b'n' {
            return self.append_null(column, at);
        }
        let end = match &mut column.values {
            JsonValues::Integers(values) => {
                let (value, length) = number::parse_integer(rest)?;
                values.push(value);
                at + length
            }
            JsonValues::Floats(values) => {
                let (value, length) = number::parse_float(rest)?;
                values.push(value);
                at + length
            }
            JsonValues::Booleans(values) => {
                let length = boolean_length(rest)?;
                values.push(first == b't');
                at + length
            }
            JsonValues::Text { offsets, bytes, style } => {
                let length = match first {
                    b'[' | b'{' if *style != TextStyle::Scalars => nested_length(rest, depth)?,
                    b'"' if *style == TextStyle::Json => nested_length(rest, depth)?,
                    b't' | b'f' => boolean_length(rest)?,
                    _ => number::number_length(rest)?,
                };
                bytes.extend_from_slice(&rest[..length]);
                offsets.push(to_offset(bytes.len()));
                at + length
            }
            JsonValues::List { offsets, item, width: None, .. } if first == b'[' && depth < token::MAX_DEPTH => {
                let end = self.append_list(item, at + 1, depth + 1)?;
                offsets.push(to_offset(item.len()));
                end
            }
            JsonValues::Struct { members, .. } if first == b'{' && depth < token::MAX_DEPTH => {
                self.append_object(members, column.nulls.len(), at, depth + 1)?
            }
            _ => return None,
        };
        column.nulls.push_valid();
        Some(end)
    }

    /// Appends the items from `at` up to the closing bracket; returns the end of the list.
    fn append_list(&mut self, item: &mut JsonColumn, at: usize, depth: usize) -> Option<usize> {
        let mut at = self.skip_whitespace(at);
        if self.text.get(at) == Some(&b']') {
            return Some(at + 1);
        }
        loop {
            let end = self.append_value(item, at, depth)?;
            at = self.skip_whitespace(end);
            match self.text.get(at)? {
                b',' => at = self.skip_whitespace(at + 1),
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// Appends the content of the string whose first byte is at `at`; returns the offset after its quote.
    #[inline(always)]
    fn append_string(&mut self, out: &mut Vec<u8>, mut at: usize) -> Option<usize> {
        loop {
            let chunk = self.text.get(at..)?.first_chunk::<{ simd::WIDTH }>()?;
            let marks = simd::mark_chunk(chunk);
            self.beyond |= marks.beyond;
            let length = out.len();
            out.extend_from_slice(chunk);
            if marks.stops == 0 {
                at += simd::WIDTH;
                continue;
            }
            let count = marks.stops.trailing_zeros() as usize;
            out.truncate(length + count);
            at += count;
            if self.text[at] == b'"' {
                return Some(at + 1);
            }
            at = match SHORT_ESCAPES[usize::from(*self.text.get(at + 1)?)] {
                0 => self.append_escape(out, at)?,
                _ if self.text[at] != b'\\' => return None,
                character => {
                    out.push(character);
                    at + 2
                }
            };
        }
    }

    /// Appends the character of the `\u` escape at `at`, or of two if it is half of a surrogate pair.
    #[inline(never)]
    fn append_escape(&self, out: &mut Vec<u8>, at: usize) -> Option<usize> {
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
            digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
        };
        let (first, mut end) = (unit(at)?, at + 6);
        let code = if (0xd800..0xdc00).contains(&first) {
            let second = unit(end).filter(|unit| (0xdc00..0xe000).contains(unit))?;
            end += 6;
            0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00))
        } else {
            first
        };
        out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        Some(end)
    }
}

/// Characters of two-character escapes, by the character after the backslash; zero if there is no such escape, or it is
/// longer.
const SHORT_ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 8 {
        table[b"\"\\/bfnrt"[i] as usize] = b"\"\\/\x08\x0c\n\r\t"[i];
        i += 1;
    }
    table
};

/// Returns the length of the boolean that `rest` begins with.
fn boolean_length(rest: &[u8]) -> Option<usize> {
    [&b"true"[..], b"false"].iter().find(|word| rest.starts_with(word)).map(|word| word.len())
}

/// Returns the length of the string, list or object that `rest` begins with, if it is not nested too deep.
fn nested_length(rest: &[u8], depth: usize) -> Option<usize> {
    let line = &rest[..memchr::memchr(b'\n', rest)?];
    let raw = Deserializer::from_slice(line).into_iter::<&RawValue>().next()?.ok()?.get();
    (depth + token::nesting_depth(raw) <= token::MAX_DEPTH).then_some(raw.len())
}
