//! The NPY format: a header that is a Python literal, and the elements.
//!
//! ```text
//! 93 N U M P Y  major minor  length (2 bytes in version 1, 4 in 2 and 3, little endian)
//! {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   blanks   \n     (Latin-1; UTF-8 in version 3)
//! elements, in C order or, if the header says so, in Fortran order
//! ```
//!
//! Objects, which numpy pickles, are rejected: reading them would execute code from the file.

use arrow::datatypes::TimeUnit;

use super::dtype::{DType, Member, Padding};
use crate::error::{Error, Result};

/// The first bytes of every NPY file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum length of a header in bytes.
const MAX_HEADER: usize = 1 << 20;

/// Bytes before the text of a version 2 or 3 header.
const PREAMBLE: usize = 12;

/// Maximum nesting depth of lists and structs.
const MAX_DEPTH: usize = 32;

/// A parsed header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// Type of an element.
    pub dtype: DType,
    /// Whether elements are in the opposite byte order.
    pub swapped: bool,
    /// Shape.
    pub shape: Vec<u64>,
    /// Whether the first index varies fastest.
    pub fortran: bool,
    /// Offset of the elements.
    pub offset: usize,
}

/// Number of bytes that contain the length of the header.
pub const HEAD: usize = PREAMBLE;

/// Returns the offset of the elements, given the beginning of a file.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is not an NPY file of a supported version.
pub fn data_offset(head: &[u8]) -> Result<usize> {
    let cut = || Error::input("expected an NPY header, found the end of the file");
    if !head.starts_with(MAGIC) {
        return Err(Error::input("expected an NPY file, which begins with \\x93NUMPY, found something else"));
    }
    let (start, length) = match *head.get(6).ok_or_else(cut)? {
        1 => (10, u32::from(u16::from_le_bytes([*head.get(8).ok_or_else(cut)?, *head.get(9).ok_or_else(cut)?]))),
        2 | 3 => {
            let bytes = head.get(8..12).and_then(|bytes| bytes.first_chunk::<4>()).ok_or_else(cut)?;
            (PREAMBLE, u32::from_le_bytes(*bytes))
        }
        other => return Err(Error::input(format!("expected NPY version 1, 2 or 3, found {other}"))),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_HEADER {
        return Err(Error::input(format!("expected an NPY header of at most 1 MiB, found one of {length} bytes")));
    }
    Ok(start + length)
}

/// Parses the header; `head` must contain all of it.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is damaged, or elements are Python objects or of another
/// unsupported type.
pub fn parse(head: &[u8]) -> Result<NpyHeader> {
    let offset = data_offset(head)?;
    let start = if head[6] == 1 { 10 } else { PREAMBLE };
    let text =
        head.get(start..offset).ok_or_else(|| Error::input("expected an NPY header, found the end of the file"))?;
    let text: String = match std::str::from_utf8(text) {
        Ok(text) => text.to_owned(),
        Err(_) => text.iter().map(|byte| char::from(*byte)).collect(),
    };
    let PythonLiteral::Dict(entries) = LiteralParser::parse(&text)? else {
        return Err(unexpected_header("a dict", &text));
    };
    let entry = |key: &str| {
        let found = entries.iter().find(|(name, _)| *name == PythonLiteral::Text(key.to_owned()));
        found.map(|(_, value)| value).ok_or_else(|| Error::input(format!("expected `{key}` in the NPY header")))
    };
    let fortran = match entry("fortran_order")? {
        PythonLiteral::Bool(fortran) => *fortran,
        other => return Err(unexpected_header("fortran_order to be True or False", &format!("{other:?}"))),
    };
    let PythonLiteral::List(lengths) = entry("shape")? else {
        return Err(unexpected_header("a tuple as shape", &text));
    };
    let length = |length: &PythonLiteral| match length {
        PythonLiteral::Int(length) => u64::try_from(*length).ok(),
        _ => None,
    };
    let shape: Option<Vec<u64>> = lengths.iter().map(length).collect();
    let shape = shape.ok_or_else(|| unexpected_header("a shape of numbers", &format!("{lengths:?}")))?;
    let (dtype, swapped) = dtype_of(entry("descr")?, MAX_DEPTH)?;
    Ok(NpyHeader { dtype, swapped, shape, fortran, offset })
}

fn unexpected_header(what: &str, found: &str) -> Error {
    let found: String = found.chars().take(80).collect();
    Error::input(format!("expected {what} in the NPY header, found {found}"))
}

/// Returns the header of a little-endian array in C order with the numpy type `descr`, which is a quoted type or a list
/// of members.
pub fn encode_header(descr: &str, shape: &[u64]) -> Vec<u8> {
    let mut dims = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if shape.len() == 1 {
        dims.push(',');
    }
    let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({dims}), }}");
    let (version, preamble) = if text.len() + 64 < usize::from(u16::MAX) { (1, 10) } else { (2, PREAMBLE) };
    let total = (preamble + text.len() + 1).next_multiple_of(64);
    text.push_str(&" ".repeat(total - preamble - text.len() - 1));
    text.push('\n');
    let mut out = [MAGIC, &[version, 0]].concat();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&length[..if version == 1 { 2 } else { 4 }]);
    out.extend_from_slice(text.as_bytes());
    out
}

/// Returns the type of a literal, and whether its elements are in the opposite byte order.
fn dtype_of(descr: &PythonLiteral, depth: usize) -> Result<(DType, bool)> {
    let deeper = depth.checked_sub(1).ok_or_else(|| Error::input("expected fewer levels of structs"))?;
    match descr {
        PythonLiteral::Text(text) => parse_type_string(text),
        // A type with a shape: ('<f4', (2, 3)).
        PythonLiteral::List(pair)
            if matches!(pair.as_slice(), [PythonLiteral::Text(_) | PythonLiteral::List(_), PythonLiteral::List(_)]) =>
        {
            let (item, swapped) = dtype_of(&pair[0], deeper)?;
            let PythonLiteral::List(lengths) = &pair[1] else { return Err(Error::internal("a list that is none")) };
            Ok((DType::Array(Box::new(item), element_count(lengths)?), swapped))
        }
        PythonLiteral::List(members) => parse_struct(members, deeper),
        other => Err(unexpected_header("a type", &format!("{other:?}"))),
    }
}

fn element_count(lengths: &[PythonLiteral]) -> Result<usize> {
    let product = lengths.iter().try_fold(1_usize, |all, length| match length {
        PythonLiteral::Int(length) => all.checked_mul(usize::try_from(*length).ok()?),
        _ => None,
    });
    product.ok_or_else(|| unexpected_header("a shape of numbers", &format!("{lengths:?}")))
}

fn parse_struct(members: &[PythonLiteral], depth: usize) -> Result<(DType, bool)> {
    let (mut out, mut offset) = (Vec::with_capacity(members.len()), 0_usize);
    let mut orders = [false; 2];
    for member in members {
        let PythonLiteral::List(parts) = member else {
            return Err(unexpected_header("a member", &format!("{member:?}")));
        };
        let name = match parts.first() {
            Some(PythonLiteral::Text(name)) => name.clone(),
            // A member with a title: (('title', 'name'), '<f4').
            Some(PythonLiteral::List(names)) if let [_, PythonLiteral::Text(name)] = names.as_slice() => name.clone(),
            other => return Err(unexpected_header("the name of a member", &format!("{other:?}"))),
        };
        let (mut dtype, swapped) = match parts.get(1) {
            Some(descr) => dtype_of(descr, depth)?,
            None => return Err(unexpected_header("the type of a member", &format!("{member:?}"))),
        };
        match parts.get(2) {
            Some(PythonLiteral::List(lengths)) => dtype = DType::Array(Box::new(dtype), element_count(lengths)?),
            Some(PythonLiteral::Int(length)) => {
                dtype = DType::Array(Box::new(dtype), usize::try_from(*length).unwrap_or_default());
            }
            _ => {}
        }
        if dtype.has_order() {
            orders[usize::from(swapped)] = true;
        }
        let width = dtype.byte_width().unwrap_or_default();
        // numpy represents gaps by members without a name.
        if !name.is_empty() {
            out.push(Member { name, offset, dtype });
        }
        offset = offset.checked_add(width).ok_or_else(|| Error::input("expected smaller elements"))?;
    }
    if orders == [true, true] {
        return Ok((DType::Refused("a struct with members in both byte orders".to_owned()), false));
    }
    Ok((DType::Struct(out, offset), orders[1]))
}

/// Parses a type description: a quoted type, or a list of members, with brackets of any kind.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is malformed.
pub fn parse_descr(text: &str) -> Result<(DType, bool)> {
    dtype_of(&LiteralParser::parse(text)?, MAX_DEPTH)
}

/// Parses a type that numpy describes as one text: `<f4`, `|S10`, `<M8[ns]`.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is malformed.
pub fn parse_type_string(text: &str) -> Result<(DType, bool)> {
    let refused = |why: &str| Ok((DType::Refused(format!("{why} ({text})")), false));
    let mut rest = text;
    let order = rest.chars().next().filter(|c| "<>|=".contains(*c));
    rest = rest.strip_prefix(['<', '>', '|', '=']).unwrap_or(rest);
    let swapped = match order {
        Some('>') => cfg!(target_endian = "little"),
        Some('<') => cfg!(target_endian = "big"),
        _ => false,
    };
    let Some(kind) = rest.chars().next() else { return Err(unexpected_header("a type", text)) };
    let (digits, unit) = rest[kind.len_utf8()..].split_once('[').unwrap_or((&rest[kind.len_utf8()..], ""));
    let width = match digits {
        "" if kind == 'O' => 8,
        digits => digits.parse::<usize>().map_err(|e| unexpected_header("a type", text).with_cause(e))?,
    };
    let dtype = match (kind, width) {
        ('b', 1) => DType::Bool,
        ('i', 1 | 2 | 4 | 8) => DType::Int(width),
        ('u', 1 | 2 | 4 | 8) => DType::UInt(width),
        ('f', 2 | 4 | 8) => DType::Float(width),
        ('c', 8 | 16) => DType::Complex(width / 2),
        ('f' | 'c', _) => return refused("floats of extended precision, whose bytes differ between processors"),
        ('S' | 'a', width) => DType::Text(width, Padding::Nul),
        ('U', width) => DType::Wide(width),
        ('V', width) => DType::Opaque(width),
        ('M' | 'm', 8) => {
            let (number, unit) = unit.trim_end_matches(']').split_at(unit.find(char::is_alphabetic).unwrap_or(0));
            let number: i64 = if number.is_empty() { 1 } else { number.parse().unwrap_or(1) };
            let (unit, scale) = match unit {
                // Parquet has no timestamps in seconds.
                "W" => (TimeUnit::Millisecond, 604_800_000),
                "D" => (TimeUnit::Millisecond, 86_400_000),
                "h" => (TimeUnit::Millisecond, 3_600_000),
                "m" => (TimeUnit::Millisecond, 60_000),
                "s" => (TimeUnit::Millisecond, 1_000),
                "ms" => (TimeUnit::Millisecond, 1),
                "us" => (TimeUnit::Microsecond, 1),
                "ns" => (TimeUnit::Nanosecond, 1),
                "" | "generic" => return Ok((DType::Int(8), swapped)),
                _ => return refused("times in units that Arrow does not support"),
            };
            let Some(scale) = number.checked_mul(scale) else { return refused("times in units that are too long") };
            if kind == 'M' { DType::Instant(unit, scale) } else { DType::Span(unit, scale) }
        }
        ('O', _) => return refused("Python objects, which only unpickling would read"),
        ('T', _) => return refused("numpy's variable-length strings, which NPY files store as pickles"),
        _ => return Err(unexpected_header("a type", text)),
    };
    Ok((dtype, swapped))
}

/// A Python literal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PythonLiteral {
    Text(String),
    Int(i128),
    Bool(bool),
    None,
    /// A list or a tuple.
    List(Vec<Self>),
    Dict(Vec<(Self, Self)>),
}

struct LiteralParser<'a> {
    rest: &'a str,
}

impl<'a> LiteralParser<'a> {
    fn parse(text: &'a str) -> Result<PythonLiteral> {
        let mut parser = Self { rest: text };
        let value = parser.parse_value(MAX_DEPTH)?;
        if parser.rest.trim().is_empty() { Ok(value) } else { Err(unexpected_header("the end", parser.rest)) }
    }

    fn accept_symbol(&mut self, symbol: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(symbol);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn parse_value(&mut self, depth: usize) -> Result<PythonLiteral> {
        let depth = depth.checked_sub(1).ok_or_else(|| Error::input("expected fewer levels in the NPY header"))?;
        if self.accept_symbol('{') {
            let mut entries = Vec::new();
            while !self.accept_symbol('}') {
                let key = self.parse_value(depth)?;
                if !self.accept_symbol(':') {
                    return Err(unexpected_header("`:`", self.rest));
                }
                entries.push((key, self.parse_value(depth)?));
                if !self.accept_symbol(',') && !self.rest.starts_with('}') {
                    return Err(unexpected_header("`,`", self.rest));
                }
            }
            return Ok(PythonLiteral::Dict(entries));
        }
        for (open, close) in [('(', ')'), ('[', ']')] {
            if !self.accept_symbol(open) {
                continue;
            }
            let mut values = Vec::new();
            while !self.accept_symbol(close) {
                values.push(self.parse_value(depth)?);
                if !self.accept_symbol(',') && !self.rest.starts_with(close) {
                    return Err(unexpected_header("`,`", self.rest));
                }
            }
            return Ok(PythonLiteral::List(values));
        }
        self.parse_scalar()
    }

    fn parse_scalar(&mut self) -> Result<PythonLiteral> {
        if let Some(rest) = self.rest.strip_prefix(['u', 'b']).filter(|rest| rest.starts_with(['\'', '"'])) {
            self.rest = rest;
        }
        for quote in ['\'', '"'] {
            if self.accept_symbol(quote) {
                return self.parse_text(quote);
            }
        }
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        let value = match word {
            "True" => PythonLiteral::Bool(true),
            "False" => PythonLiteral::Bool(false),
            "None" => PythonLiteral::None,
            // Python 2 wrote numbers as 3L.
            word => PythonLiteral::Int(
                word.trim_end_matches('L').parse().map_err(|_| unexpected_header("a value", self.rest))?,
            ),
        };
        self.rest = rest;
        Ok(value)
    }

    fn parse_text(&mut self, quote: char) -> Result<PythonLiteral> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                c if c == quote => {
                    self.rest = &self.rest[at + c.len_utf8()..];
                    return Ok(PythonLiteral::Text(text));
                }
                '\\' => match characters.next() {
                    Some((_, escaped @ ('\\' | '\'' | '"'))) => text.push(escaped),
                    _ => return Err(unexpected_header("a plain name", self.rest)),
                },
                other => text.push(other),
            }
        }
        Err(unexpected_header("the end of a text", self.rest))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn with(version: u8, text: &str) -> Vec<u8> {
        let mut out = [MAGIC, &[version, 0]].concat();
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        out.extend_from_slice(&length[..if version == 1 { 2 } else { 4 }]);
        out.extend_from_slice(text.as_bytes());
        out
    }

    fn descr(descr: &str) -> Result<NpyHeader> {
        parse(&with(1, &format!("{{'descr': {descr}, 'fortran_order': True, 'shape': (3, 4L), }}  \n")))
    }

    #[test]
    fn headers_of_all_versions_are_read() {
        let text = "{'descr': '>f4', 'fortran_order': False, 'shape': (5,)}\n";
        for version in [1, 2, 3] {
            let header = parse(&with(version, text)).unwrap();
            let offset = if version == 1 { 10 } else { 12 } + text.len();
            let expected = NpyHeader { dtype: DType::Float(4), swapped: true, shape: vec![5], fortran: false, offset };
            assert_eq!(header, expected);
        }
        for bad in ["", "{}", "{'descr': '<f4'", "{'descr': '<f4', 'fortran_order': 1, 'shape': (5,)}", "((((((((("] {
            assert!(parse(&with(1, bad)).is_err(), "{bad}");
        }
        assert!(parse(&with(9, text)).is_err() && parse(b"\x93NUMPY\x01").is_err() && parse(b"PK").is_err());
        assert!(parse(&with(1, &"(".repeat(1000))).is_err());
    }

    #[test]
    fn types_are_distinguished() {
        for (text, dtype) in [
            ("'|b1'", DType::Bool),
            ("'<i8'", DType::Int(8)),
            ("'<c16'", DType::Complex(8)),
            ("'|S7'", DType::Text(7, Padding::Nul)),
            ("'<U7'", DType::Wide(7)),
            ("'<M8[D]'", DType::Instant(TimeUnit::Millisecond, 86_400_000)),
            ("'<m8[25us]'", DType::Span(TimeUnit::Microsecond, 25)),
        ] {
            assert_eq!(descr(text).unwrap().dtype, dtype, "{text}");
        }
        let found = descr("[('a', '<f4', (2,)), ('', '|V4'), (('title', 'b'), '|u1')]").unwrap();
        let member = |name: &str, offset, dtype| Member { name: name.to_owned(), offset, dtype };
        let members = vec![member("a", 0, DType::Array(Box::new(DType::Float(4)), 2)), member("b", 12, DType::UInt(1))];
        assert_eq!((found.dtype, found.fortran), (DType::Struct(members, 13), true));
        for text in ["'|O'", "'O'", "'<f16'", "'<M8[M]'", "[('a', '|O')]"] {
            assert!(descr(text).unwrap().dtype.refusal_reason().is_some(), "{text}");
        }
        assert!(descr("'<q4'").is_err() && descr("7").is_err());
    }

    #[test]
    fn written_headers_are_read_back() {
        for shape in [&[][..], &[3], &[2, 3]] {
            let header = encode_header("'<f4'", shape);
            assert_eq!(header.len() % 64, 0);
            let found = parse(&header).unwrap();
            assert_eq!((found.shape.as_slice(), found.offset, found.dtype), (shape, header.len(), DType::Float(4)));
        }
    }
}
