//! HTTP messages in the blocks of records.
//!
//! ```text
//! HTTP/1.1 200 OK CRLF  Name: value CRLF ...  CRLF  body
//! GET / HTTP/1.1 CRLF   Name: value CRLF ...  CRLF  body
//! ```

use memchr::memmem;

use super::fields::{Fields, MAX_HEAD, first_line};

/// A message.
#[derive(Debug)]
pub(super) struct HttpMessage<'a> {
    /// The first line.
    pub(super) start_line: &'a [u8],
    pub(super) fields: Fields<'a>,
    pub(super) body: &'a [u8],
}

impl<'a> HttpMessage<'a> {
    /// Parses a block; `None` if it does not begin as a message does, or its header is too long.
    pub(super) fn parse(block: &'a [u8]) -> Option<Self> {
        let head = &block[..block.len().min(MAX_HEAD)];
        let (start_line, length) = first_line(head).filter(|(line, _)| is_start_line(line))?;
        let mut fields = Fields::read(&head[length..]);
        fields.bytes += length;
        // Without a blank line, all is header.
        let whole = fields.closed || fields.bytes == block.len();
        whole.then(|| Self { start_line, body: &block[fields.bytes..], fields })
    }

    /// Returns the status of a response.
    pub(super) fn status(&self) -> Option<i32> {
        let mut words = self.start_line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        words.next().filter(|version| is_version(version))?;
        let digits = words.next()?.get(..3)?;
        digits.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
    }

    /// Returns the codings of its body that `Transfer-Encoding` or `Content-Encoding` states, in lower case, in the
    /// order in which they were applied.
    pub(super) fn codings(&self, name: &str) -> Vec<String> {
        let values = self.fields.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        let words = values.map(|word| String::from_utf8_lossy(word.trim_ascii()).to_ascii_lowercase());
        words.filter(|word| !word.is_empty() && word != "identity").collect()
    }

    /// Returns the length that the header states for the body, if the body ends by it.
    pub(super) fn stated_length(&self) -> Option<u64> {
        let value = self.fields.value("Content-Length")?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }
}

fn is_version(word: &[u8]) -> bool {
    word.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/"))
}

/// Whether a line is a status line, or a request line.
fn is_start_line(line: &[u8]) -> bool {
    is_version(line) || line.rsplit(|byte| *byte == b' ').next().is_some_and(is_version)
}

/// Whether the header of a message states that its body is coded. It is looked at for each record while a source is
/// cut, so fields are not taken apart.
pub(super) fn states_coding(block: &[u8]) -> bool {
    let head = &block[..block.len().min(MAX_HEAD)];
    let end = [&b"\r\n\r\n"[..], b"\n\n"].iter().filter_map(|blank| memmem::find(head, blank)).min();
    let mut lines = head[..end.unwrap_or(head.len())].split(|byte| *byte == b'\n');
    let is_coding = |line: &[u8]| {
        [&b"content-encoding"[..], b"transfer-encoding"]
            .iter()
            .any(|name| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
    };
    lines.next().is_some_and(|line| is_start_line(line.trim_ascii_end())) && lines.any(is_coding)
}
