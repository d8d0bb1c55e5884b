//! What the list of sources says of a stream that has a name: what its hash is taken of, and the tag that the user
//! stated, in the column `etag`.
//!
//! ```text
//! rows            rows:v42            the hash is that of the table, however it was cut into batches
//! bytes           bytes:v42           the hash is that of the bytes
//! ```

use std::fmt;

/// What the hash of a stream is taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamHash {
    /// Its rows: a [hash of the table](super::table_hash).
    Rows,
    /// Its bytes.
    Bytes,
}

/// The entity tag of a named stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamTag<'a> {
    /// What the hash is taken of.
    pub hash: StreamHash,
    /// The tag that the user stated.
    pub stated: Option<&'a str>,
}

impl<'a> StreamTag<'a> {
    /// Parses a tag; returns `None` for one of another source.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (word, stated) = match text.split_once(':') {
            Some((word, stated)) => (word, Some(stated)),
            None => (text, None),
        };
        let hash = [StreamHash::Rows, StreamHash::Bytes].into_iter().find(|hash| hash.word() == word)?;
        Some(Self { hash, stated })
    }
}

impl StreamHash {
    fn word(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Bytes => "bytes",
        }
    }
}

impl fmt::Display for StreamTag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hash.word())?;
        self.stated.map_or(Ok(()), |stated| write!(f, ":{stated}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_streams_alone() {
        let rows = |stated| Some(StreamTag { hash: StreamHash::Rows, stated });
        for (text, tag) in [
            ("rows", rows(None)),
            ("rows:v42", rows(Some("v42"))),
            ("rows:0/16B3748:2", rows(Some("0/16B3748:2"))),
            ("bytes:v1", Some(StreamTag { hash: StreamHash::Bytes, stated: Some("v1") })),
        ] {
            assert_eq!(StreamTag::parse(text), tag, "{text}");
            assert_eq!(tag.map(|tag| tag.to_string()).as_deref(), Some(text));
        }
        for other in ["", "\"rows\"", "crc32:01234567", "delta:v3:0123456789abcdef", "rowsx", "0123456789abcdef"] {
            assert_eq!(StreamTag::parse(other), None, "{other}");
        }
    }
}
