//! The files of a record whose bytes are in memory, as ranges of these bytes: nothing is copied, and nothing allocated
//! for each file.

use std::ops::Range;

use super::{
    entry::{self, EntryKind, HeaderOutcome},
    header::{BLOCK, Head, padding_length, parse_headers},
    scan::key_of,
};
use crate::error::{Error, Result};

/// A file of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSpan<'a> {
    /// Full name, `key.extension`.
    pub name: &'a [u8],
    /// Length of the key in the name.
    pub key: usize,
    /// Its content, in the bytes of the record.
    pub content: Range<usize>,
}

impl<'a> MemberSpan<'a> {
    /// Returns the name after the key and its dot.
    pub fn extension(&self) -> &'a [u8] {
        self.name.get(self.key + 1..).unwrap_or_default()
    }
}

/// Finds the files of records; keeps what it allocates for the next record.
#[derive(Debug, Default)]
pub struct SpanReader {
    name: Vec<u8>,
    /// Whether a header that another program wrote was met, as in adopted shards.
    foreign: bool,
}

impl SpanReader {
    /// Passes the files of a record to `visit`, given all its bytes. Members that are no files are skipped.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) naming a byte of the record if the bytes are not whole
    /// members, or a file is none that readers of WebDataset read; when `visit` fails.
    pub fn each_member(&mut self, record: &[u8], mut visit: impl FnMut(&MemberSpan<'_>) -> Result<()>) -> Result<()> {
        let mut at = 0;
        while at < record.len() {
            let damaged = |problem: String| Error::integrity(problem).at_byte(at as u64);
            let window = record.get(at..).unwrap_or_default();
            let (head, size, is_file) = self.read_head(window).map_err(damaged)?;
            let end = usize::try_from(size).ok().and_then(|size| {
                let content = at.checked_add(head)?;
                let end = content.checked_add(size)?;
                (end.checked_add(padding_length(size))? <= record.len()).then_some(content..end)
            });
            let content =
                end.ok_or_else(|| damaged("expected a whole file, found the end of the record".to_owned()))?;
            let next = content.end + padding_length(content.len());
            if is_file {
                let key = key_of(&self.name).ok_or_else(|| {
                    let name = String::from_utf8_lossy(&self.name);
                    damaged(format!("expected a member named `key.extension`, found `{name}`"))
                })?;
                visit(&MemberSpan { name: &self.name, key: key.len(), content })?;
            }
            at = next;
        }
        Ok(())
    }

    /// Reads the headers of a member; returns their bytes, the bytes of its content, and whether it is a file. Its name
    /// is stored.
    fn read_head(&mut self, window: &[u8]) -> Result<(usize, u64, bool), String> {
        if !self.foreign {
            match parse_headers(window, &mut self.name) {
                Ok(Head::Member { length, size }) => return Ok((length, size, true)),
                Ok(Head::Needs(_)) => return Err("expected a whole header, found the end of the record".to_owned()),
                Err(_) => {}
            }
        }
        let entry = match entry::read_entry(window).map_err(|fault| fault.problem)? {
            HeaderOutcome::Entry(entry) => entry,
            HeaderOutcome::Needs(_) => return Err("expected a whole header, found the end of the record".to_owned()),
            HeaderOutcome::End(_) => return Err("expected a member, found zeros".to_owned()),
        };
        self.foreign = true;
        let is_file = match &entry.kind {
            EntryKind::File => true,
            EntryKind::NoFile | EntryKind::Ignored => false,
            EntryKind::Link(_) => return Err("expected a plain file, found a link".to_owned()),
            EntryKind::Unreadable(found) => return Err(format!("expected a plain file, found {found}")),
        };
        self.name = entry.name;
        debug_assert!(entry.header_bytes.is_multiple_of(BLOCK), "headers are whole blocks");
        Ok((entry.header_bytes, entry.size, is_file))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::{super::TarFraming, *};
    use crate::{
        format::{Framed, Framing, Keyed},
        record::{Part, Payload, Sample},
    };

    fn spans(record: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut found = Vec::new();
        SpanReader::default().each_member(record, |span| {
            let name = String::from_utf8_lossy(span.name).into_owned();
            assert!(name.ends_with(std::str::from_utf8(span.extension()).unwrap()) && span.key < name.len());
            found.push((name, record[span.content.clone()].to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn files_are_ranges_of_the_record() {
        let part = |extension: &str, size: usize| Part { extension: extension.into(), bytes: vec![b'x'; size].into() };
        let long = "d/".repeat(90) + &"n".repeat(120);
        let parts = vec![part("cls", 0), part("seg.png", 513), part("txt", 512)];
        let sample = Sample { key: long.clone(), origin: String::new(), subject: None, parts };
        let mut framed = Framed::default();
        TarFraming
            .frame(Keyed::new(&Payload::Samples(vec![sample]), std::slice::from_ref(&long)), &mut framed)
            .unwrap();
        let file = |extension: &str, size: usize| (format!("{long}.{extension}"), vec![b'x'; size]);
        assert_eq!(spans(&framed.bytes).unwrap(), [file("cls", 0), file("seg.png", 513), file("txt", 512)]);
        for end in (1..framed.bytes.len()).step_by(100) {
            if let Ok(found) = spans(&framed.bytes[..end]) {
                assert!(found.len() < 3, "{end}");
            }
        }
    }

    #[test]
    fn members_of_other_programs_are_read_and_folders_skipped() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut push = |name: &str, kind: tar::EntryType, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, content).unwrap();
        };
        push("folder/", tar::EntryType::Directory, b"");
        push("a.txt", tar::EntryType::Regular, b"one");
        push(&format!("{}.txt", "b".repeat(200)), tar::EntryType::Regular, b"two");
        let bytes = builder.into_inner().unwrap();
        let record = &bytes[..bytes.len() - 1024];
        let expected = [("a.txt".to_owned(), b"one".to_vec()), ("b".repeat(200) + ".txt", b"two".to_vec())];
        assert_eq!(spans(record).unwrap(), expected);
        assert!(spans(&bytes).is_err());
    }
}
