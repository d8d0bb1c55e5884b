//! Lines `Name: value` as WARC and HTTP have them before their content.
//!
//! Lines end with CR LF, or with LF alone. A line that begins with a blank continues the value before it. Names and
//! values need not be UTF-8: what is not is taken as ISO 8859-1, in which every byte is a character.

use std::borrow::Cow;

use memchr::memchr;

/// Maximum bytes of the lines before the content.
pub(super) const MAX_HEAD: usize = 1 << 20;

/// A line with its continuations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field<'a> {
    /// The name, or the whole line if it has no colon.
    pub(super) name: &'a [u8],
    /// The value without blanks around it; `None` if the line has no colon.
    pub(super) value: Option<Cow<'a, [u8]>>,
}

impl Field<'_> {
    /// Whether this is its name, in any case.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The lines before some content.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) list: Vec<Field<'a>>,
    /// Bytes of the lines and of the blank line behind them.
    pub(super) bytes: usize,
    /// Whether there was a blank line.
    pub(super) closed: bool,
}

impl<'a> Fields<'a> {
    /// Reads lines up to a blank one, or to the end.
    pub(super) fn read(bytes: &'a [u8]) -> Self {
        let mut fields = Self::default();
        while let Some((line, length)) = first_line(&bytes[fields.bytes..]) {
            fields.bytes += length;
            if line.is_empty() {
                fields.closed = true;
                break;
            }
            fields.add_line(line);
        }
        fields
    }

    fn add_line(&mut self, line: &'a [u8]) {
        if matches!(line, [b' ' | b'\t', ..])
            && let Some(Field { value: Some(value), .. }) = self.list.last_mut()
        {
            let joined = value.to_mut();
            joined.push(b' ');
            joined.extend_from_slice(line.trim_ascii());
            return;
        }
        let (name, value) = match memchr(b':', line) {
            Some(colon) => (line[..colon].trim_ascii(), Some(Cow::Borrowed(line[colon + 1..].trim_ascii()))),
            None => (line.trim_ascii(), None),
        };
        self.list.push(Field { name, value });
    }

    /// Returns the first value of a name.
    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// Returns all values of a name, in order.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.list.iter().filter(move |field| field.is_named(name)).filter_map(|field| field.value.as_deref())
    }
}

/// Returns the first line without its end, and its length with it; `None` if there is nothing.
pub(super) fn first_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (line, length) = match memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], end + 1),
        None if bytes.is_empty() => return None,
        None => (bytes, bytes.len()),
    };
    Some((line.strip_suffix(b"\r").unwrap_or(line), length))
}

/// Returns bytes as text.
pub(super) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// Returns a URI as text: bytes that are not UTF-8 are escaped by percent signs, and angle brackets around it, which
/// some writers have, are left out.
pub(super) fn uri_text(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = without_brackets(bytes);
    let Err(_) = simdutf8::basic::from_utf8(bytes) else { return String::from_utf8_lossy(bytes) };
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("%{byte:02X}")));
    }
    Cow::Owned(out)
}

/// Returns the bytes between angle brackets, or all if there are none around them.
pub(super) fn without_brackets(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">")).unwrap_or(bytes)
}

/// A media type, as `Content-Type` states it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    /// Type and subtype in lower case.
    pub(super) essence: String,
    /// The parameter `charset` in lower case.
    pub(super) charset: Option<String>,
}

impl MediaType {
    /// Parses a value; `None` if it states no type.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let text = text_of(value);
        let mut parts = text.split(';');
        let essence = parts.next().map(|essence| essence.trim().to_ascii_lowercase()).filter(|e| !e.is_empty())?;
        let of_charset = |part: &str| {
            let (name, value) = part.split_once('=')?;
            let value = value.trim().trim_matches(['"', '\'']).trim().to_ascii_lowercase();
            (name.trim().eq_ignore_ascii_case("charset") && !value.is_empty()).then_some(value)
        };
        Some(Self { essence, charset: parts.find_map(of_charset) })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_up_to_a_blank_one() {
        let bytes = b"A: 1\r\nb-C :  two \n three\r\n\tfour\r\nno colon\r\nA:\r\n\r\nbody: 1\r\n";
        let fields = Fields::read(bytes);
        let value = |text: &str| Some(Cow::Owned(text.as_bytes().to_vec()));
        let expected = [
            Field { name: b"A", value: value("1") },
            Field { name: b"b-C", value: value("two three four") },
            Field { name: b"no colon", value: None },
            Field { name: b"A", value: value("") },
        ];
        assert_eq!(fields.list, expected);
        assert!(fields.closed && bytes[fields.bytes..].starts_with(b"body"));
        assert_eq!(fields.values("a").collect::<Vec<_>>(), [&b"1"[..], b""]);
        assert_eq!((fields.value("B-c"), fields.value("x")), (Some(&b"two three four"[..]), None));
    }

    #[test]
    fn what_has_no_blank_line_is_not_closed() {
        for bytes in [&b""[..], b"A: 1", b"A: 1\r\n", b"A: 1\n\r"] {
            let fields = Fields::read(bytes);
            assert_eq!((fields.closed, fields.bytes), (bytes == b"A: 1\n\r", bytes.len()), "{bytes:?}");
        }
        // A continuation without anything before it is a line.
        assert_eq!(Fields::read(b" x: 1\n\n").list, [Field { name: b"x", value: Some(Cow::Borrowed(&b"1"[..])) }]);
    }

    #[test]
    fn bytes_that_are_not_utf8_stay_readable() {
        assert_eq!((text_of(b"caf\xc3\xa9"), text_of(b"caf\xe9")), ("café".into(), "café".into()));
        assert_eq!(uri_text(b"<http://a/\xe9b\xc3\xa9>"), "http://a/%E9bé");
        assert_eq!((uri_text(b"<a"), uri_text(b"a b")), ("<a".into(), "a b".into()));
    }

    #[test]
    fn media_types_are_parsed() {
        let parse = |text: &str| MediaType::parse(text.as_bytes()).map(|m| (m.essence, m.charset.unwrap_or_default()));
        let html = |charset: &str| Some(("text/html".to_owned(), charset.to_owned()));
        assert_eq!(parse("Text/HTML; Charset=\"UTF-8\""), html("utf-8"));
        assert_eq!(parse("text/html;a=b; charset = 'Latin1' "), html("latin1"));
        assert_eq!((parse("text/html"), parse("text/html; charset="), parse(" ; x")), (html(""), html(""), None));
        assert!(MediaType::parse(b"\xff").unwrap().essence.starts_with('ÿ'));
    }
}
