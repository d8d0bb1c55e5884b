//! The index of NVIDIA DALI: parts of a tar, or records of a TFRecord, whose lines are those of [`tfindex`].
//!
//! ```text
//! "v1.2 <samples>\n"  [ext offset size name]+ "\n"     a line per sample of a tar; offsets are those of the content
//! ```
//!
//! The index of a tar begins with a count, so its text is kept in memory, compressed with zstd, until the shard ends.

use std::io::{Read as _, Write as _};

use super::{
    kind::{About, FileBeside, Index, StartedShard, TEXT_BYTES},
    names::{MemberName, Renaming, Rule},
    tfindex::{self, RecordLines},
};
use crate::{
    dataset::SealingSink,
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind, tar::places::Place},
    storage::Staged,
};

/// The index for NVIDIA DALI.
pub(super) struct Dali;

/// Names that neither the index nor the program that makes it elsewhere can hold.
const RULES: &[Rule] = &[
    Rule { fault: "blanks", reader: "dali", index: Some(IndexKind::Dali), harmless: false, breaks: has_blanks },
    Rule { fault: "not ASCII", reader: "dali", index: Some(IndexKind::Dali), harmless: false, breaks: is_not_ascii },
];

fn has_blanks(name: MemberName<'_>) -> bool {
    name.key.chars().chain(name.extension.chars()).any(char::is_whitespace)
}

fn is_not_ascii(name: MemberName<'_>) -> bool {
    !name.key.is_ascii() || !name.extension.is_ascii()
}

impl Index for Dali {
    fn about(&self) -> &'static About {
        &About {
            help: "For NVIDIA DALI",
            formats: &[OutputFormat::Tar, OutputFormat::TfRecord],
            is_default: true,
            lists_members: true,
            rules: RULES,
            renaming: Renaming { plain: true, ..Renaming::NONE },
            ..About::NONE
        }
    }

    fn start_beside(&self, shard: &StartedShard<'_>) -> Result<Option<Box<dyn FileBeside>>> {
        let sink = shard.create_sink(IndexKind::Dali)?;
        if !shard.format.has_keys() {
            return Ok(Some(Box::new(RecordLines::new(sink))));
        }
        let lines = Lines::new(Vec::new(), 1)
            .map_err(|e| Error::internal("cannot set up a buffer for an index").with_cause(e))?;
        Ok(Some(Box::new(MemberLines { sink, lines, text: Vec::new() })))
    }

    fn matches_records(&self, bytes: &[u8], records: &[(u64, u64)], format: OutputFormat) -> bool {
        if !format.has_keys() {
            tfindex::lines_match_records(bytes, records)
        } else {
            lines_match_records(bytes, records)
        }
    }
}

/// Compressed text of an open index.
type Lines = zstd::stream::write::Encoder<'static, Vec<u8>>;

struct MemberLines {
    sink: SealingSink,
    lines: Lines,
    text: Vec<u8>,
}

impl FileBeside for MemberLines {
    fn add_member(&mut self, place: &Place<'_>, record: u64) -> Result<()> {
        self.text.clear();
        push_entry(&mut self.text, place, place.first && record == 0)?;
        Ok(self.lines.write_all(&self.text)?)
    }

    fn finish(self: Box<Self>, records: u64, _end: u64) -> Result<Vec<Staged>> {
        let Self { mut sink, lines, .. } = *self;
        sink.write_all(header_line(records).as_bytes())?;
        let packed = lines.finish()?;
        let mut text = zstd::stream::read::Decoder::new(packed.as_slice())?;
        let mut buffer = vec![0; TEXT_BYTES];
        loop {
            let n = text.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            sink.write_all(&buffer[..n])?;
        }
        if records > 0 {
            sink.write_all(b"\n")?;
        }
        Ok(vec![sink.finish()?])
    }
}

/// Returns the first line.
fn header_line(samples: u64) -> String {
    format!("v1.2 {samples}\n")
}

/// Appends a member; `begins` means that it is the first of the shard. The caller ends the last line.
///
/// # Errors
/// If the name contains whitespace, which the format cannot quote, or the extension is empty.
fn push_entry(out: &mut Vec<u8>, place: &Place<'_>, begins: bool) -> Result<()> {
    if place.name.bytes().any(|b| b.is_ascii_whitespace()) || place.extension().is_empty() {
        return Err(Error::input(format!("the index of DALI cannot hold the name `{}`", place.name))
            .with_hint("escape such names with --on-name rename, or omit the index with --index none"));
    }
    if !begins {
        out.push(if place.first { b'\n' } else { b' ' });
    }
    // Writing to memory cannot fail.
    let _ = write!(out, "{} {} {} {}", place.extension(), place.content, place.size, place.name);
    Ok(())
}

/// Returns whether there is one line per record, with offsets and sizes inside the record.
fn lines_match_records(bytes: &[u8], records: &[(u64, u64)]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut lines = text.lines();
    let inside = |line: &str, (offset, length): (u64, u64)| {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| fields.get(i).and_then(|field| field.parse::<u64>().ok());
        !fields.is_empty()
            && fields.len().is_multiple_of(4)
            && (0..fields.len()).step_by(4).all(|i| match (number(i + 1), number(i + 2)) {
                (Some(at), Some(size)) => {
                    at > offset && at.checked_add(size).is_some_and(|end| end <= offset.saturating_add(length))
                }
                _ => false,
            })
    };
    let ended = bytes.ends_with(b"\n");
    let head = lines.next() == Some(header_line(records.len() as u64).trim_end());
    let lines: Vec<&str> = lines.collect();
    ended
        && head
        && lines.len() == records.len()
        && lines.iter().zip(records).all(|(line, extent)| inside(line, *extent))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn place(name: &str, first: bool, content: u64, size: u64) -> Place<'_> {
        let key = name[name.rfind('/').map_or(0, |slash| slash + 1)..].find('.').unwrap();
        Place {
            name,
            key: key + name.rfind('/').map_or(0, |slash| slash + 1),
            first,
            header: content - 512,
            content,
            size,
        }
    }

    #[test]
    fn a_sample_is_a_line() {
        let mut out = Vec::new();
        push_entry(&mut out, &place("a.cls", true, 512, 0), true).unwrap();
        push_entry(&mut out, &place("a.jpg", false, 1024, 3), false).unwrap();
        push_entry(&mut out, &place("d/b.X.png", true, 2048, 512), false).unwrap();
        assert_eq!(out, b"cls 512 0 a.cls jpg 1024 3 a.jpg\nX.png 2048 512 d/b.X.png");
        let file = [b"v1.2 2\n", &out[..], b"\n"].concat();
        assert!(lines_match_records(&file, &[(0, 1536), (1536, 1024)]));
        assert!(!lines_match_records(&file, &[(0, 1536), (2048, 1024)]));
        assert!(!lines_match_records(&file, &[(0, 1536)]));
    }

    #[test]
    fn names_that_the_index_cannot_hold_are_errors() {
        for name in ["a b.jpg", "a.j\tpg", "a."] {
            assert!(push_entry(&mut Vec::new(), &place(name, true, 512, 0), true).is_err(), "{name}");
        }
    }
}
