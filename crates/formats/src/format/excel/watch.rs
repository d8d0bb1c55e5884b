//! Looks at the bytes of a workbook before a decoder gets them, because it allocates whatever they state.
//!
//! ```text
//! <sst uniqueCount="4000000000">     reserves memory for so many texts
//! <t>aaaa...                         a text of any length
//! type length value                  of xlsb: allocates the length before there is a value
//! ```

use memchr::memmem;

use crate::error::{Error, Result};

/// Most bytes of a text or tag of XML, or of a record of xlsb.
const MOST_TOKEN: u64 = 16 << 20;
const MOST_RECORD: u64 = 4 << 20;

/// Most bytes between two cells.
const MOST_BETWEEN: u64 = 128 << 20;

/// Most bytes, and tags, of everything but cells and their texts: sheets, styles and the like.
const MOST_OPENING: u64 = 64 << 20;
const MOST_TAGS: u64 = 1 << 20;

/// Bytes that a decoder takes for a text in the table of texts, at least.
const TEXT_BYTES: u64 = 24;

/// Bytes of a part that are seen again with the next piece, so that no attribute is cut in two.
const OVERLAP: usize = 256;

const COUNT: &[u8] = b"uniqueCount";

/// What is known of the part that is read.
pub(super) struct Watch {
    most_texts: u64,
    /// Whether parts are read that stay in memory.
    is_opening: bool,
    /// Bytes and tags of these parts.
    opening: u64,
    tags: u64,
    part: PartKind,
    records: Records,
    /// Bytes since the last `<`.
    run: u64,
    /// Bytes since the last cell.
    between: u64,
    /// The last bytes of the table of texts, or those behind the last cell.
    tail: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Xml,
    /// The table of texts.
    Texts,
    Records,
}

impl Watch {
    /// Most bytes of a part behind its last cell that are kept.
    pub(super) const MOST_TAIL: usize = 1 << 20;

    /// Whether a part of this name is the table of texts.
    pub(super) fn has_texts(name: &str) -> bool {
        let lower = name.to_ascii_lowercase();
        lower.ends_with("sharedstrings.xml") || lower.ends_with("sharedstrings.bin")
    }

    /// Creates a watch that lets the texts that cells share take so many bytes.
    pub(super) fn new(most_texts: u64) -> Self {
        Self {
            most_texts,
            is_opening: true,
            opening: 0,
            tags: 0,
            part: PartKind::Xml,
            records: Records::default(),
            run: 0,
            between: 0,
            tail: Vec::new(),
        }
    }

    /// Says that everything from here on is read as a stream.
    pub(super) fn end_opening(&mut self) {
        self.is_opening = false;
    }

    /// Says that the decoder has passed on a cell.
    pub(super) fn mark_cell(&mut self) {
        self.between = 0;
        self.tail.clear();
    }

    /// Returns the bytes since the last cell.
    pub(super) fn take_tail(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.tail)
    }

    /// Says that a part of so many bytes is read from its start.
    ///
    /// # Errors
    /// If it is the table of texts, and too large.
    pub(super) fn begin_part(&mut self, name: &str, bytes: u64) -> Result<()> {
        let is_texts = Self::has_texts(name);
        self.part = match (is_texts, name.to_ascii_lowercase().ends_with(".bin")) {
            (_, true) => PartKind::Records,
            (true, false) => PartKind::Texts,
            (false, false) => PartKind::Xml,
        };
        (self.run, self.between, self.records) = (0, 0, Records::default());
        self.tail.clear();
        match is_texts && bytes > self.most_texts {
            true => Err(too_many_texts(&format!("{bytes} bytes of them"), self.most_texts)),
            false if is_texts || !self.is_opening => Ok(()),
            false => {
                self.opening = self.opening.saturating_add(bytes);
                match self.opening > MOST_OPENING {
                    true => Err(too_large_opening(&format!("more than {MOST_OPENING} bytes up to `{name}`"))),
                    false => Ok(()),
                }
            }
        }
    }

    /// Looks at the next bytes of the part.
    ///
    /// # Errors
    /// If a decoder should not get them.
    pub(super) fn look_at(&mut self, bytes: &[u8]) -> Result<()> {
        self.between += bytes.len() as u64;
        if self.between > MOST_BETWEEN && !self.is_opening {
            return Err(Error::input(format!(
                "expected the next cell within {MOST_BETWEEN} bytes of a sheet, found none"
            )));
        }
        match self.part {
            PartKind::Records => self.records.look_at(bytes)?,
            PartKind::Texts => self.look_for_count(bytes)?,
            PartKind::Xml if self.is_opening => self.count_tags(bytes)?,
            PartKind::Xml => {}
        }
        if self.part != PartKind::Records {
            self.look_at_runs(bytes)?;
        }
        if !self.is_opening {
            let room = Self::MOST_TAIL.saturating_sub(self.tail.len());
            self.tail.extend(bytes.iter().take(room));
        }
        Ok(())
    }

    /// A text or tag is at least as long as the bytes without `<` in the middle of it.
    fn look_at_runs(&mut self, bytes: &[u8]) -> Result<()> {
        match memchr::memrchr(b'<', bytes) {
            Some(at) => self.run = (bytes.len() - at) as u64,
            None => self.run += bytes.len() as u64,
        }
        if self.run > MOST_TOKEN {
            return Err(Error::input(format!(
                "expected texts of at most {MOST_TOKEN} bytes in cells, found a longer one"
            )));
        }
        Ok(())
    }

    fn count_tags(&mut self, bytes: &[u8]) -> Result<()> {
        self.tags += memchr::memchr_iter(b'<', bytes).count() as u64;
        if self.tags > 2 * MOST_TAGS {
            return Err(too_large_opening(&format!("more than {MOST_TAGS} elements")));
        }
        Ok(())
    }

    /// Refuses a number of texts for which nobody has the memory.
    fn look_for_count(&mut self, bytes: &[u8]) -> Result<()> {
        self.tail.extend_from_slice(bytes);
        for at in memmem::find_iter(&self.tail, COUNT) {
            let rest = &self.tail[at + COUNT.len()..];
            let value = rest.trim_ascii_start();
            let value = value.strip_prefix(b"=").unwrap_or(value).trim_ascii_start();
            let (blanks, digits) = (rest.len() - value.len(), value.get(1..).unwrap_or_default());
            let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
            let number = std::str::from_utf8(&digits[..end]).ok().and_then(|digits| digits.parse::<u64>().ok());
            if end > 15
                || blanks > OVERLAP / 4
                || number.unwrap_or(0).saturating_mul(TEXT_BYTES) > self.most_texts.saturating_mul(8)
            {
                let found = String::from_utf8_lossy(&digits[..end.min(32)]).into_owned();
                return Err(too_many_texts(&format!("{found} of them stated"), self.most_texts));
            }
        }
        let done = self.tail.len().saturating_sub(OVERLAP);
        self.tail.drain(..done);
        Ok(())
    }
}

fn too_many_texts(found: &str, most: u64) -> Error {
    Error::input(format!("expected at most {most} bytes of texts that cells share, found {found}"))
        .with_hint("raise --memory; these texts may take an eighth of it")
        .with_hint("or save the sheet as CSV, which needs no such table")
}

fn too_large_opening(found: &str) -> Error {
    Error::input(format!("expected a workbook with usual styles and lists of sheets, found {found}"))
        .with_hint("save the sheet as CSV, or copy it into a new workbook")
}

/// Records of xlsb: a type of one or two bytes, a length of up to four, seven bits in each, and the value.
#[derive(Default)]
struct Records {
    /// Bytes of the type that were read, and whether it has ended.
    type_bytes: u8,
    in_length: bool,
    length_bytes: u8,
    length: u64,
    /// Bytes of the value that are left.
    left: u64,
}

impl Records {
    fn look_at(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(&byte) = bytes.first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len() as u64);
                self.left -= skipped;
                bytes = bytes.get(usize::try_from(skipped).unwrap_or(usize::MAX)..).unwrap_or_default();
                continue;
            }
            bytes = &bytes[1..];
            let more = byte & 0x80 != 0;
            if !self.in_length {
                self.type_bytes += 1;
                self.in_length = !more || self.type_bytes == 2;
                continue;
            }
            self.length |= u64::from(byte & 0x7f) << (7 * self.length_bytes);
            self.length_bytes += 1;
            if !more || self.length_bytes == 4 {
                if self.length > MOST_RECORD {
                    let found = self.length;
                    return Err(Error::input(format!(
                        "expected records of at most {MOST_RECORD} bytes, found one that states {found}"
                    )));
                }
                *self = Self { left: self.length, ..Self::default() };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn texts(most: u64) -> Watch {
        let mut watch = Watch::new(most);
        watch.begin_part("xl/sharedStrings.xml", 100).unwrap();
        watch
    }

    #[test]
    fn stated_numbers_of_texts_are_bounded() {
        let head = b"<?xml version=\"1.0\"?><sst count=\"3\" uniqueCount=\"4000000000\"><si><t>a</t></si></sst>";
        assert!(texts(1 << 20).look_at(head).unwrap_err().message().contains("4000000000"));
        // In pieces of any size, too.
        for size in 1..40 {
            let mut watch = texts(1 << 20);
            assert!(head.chunks(size).any(|piece| watch.look_at(piece).is_err()), "{size}");
        }
        assert!(texts(1 << 20).look_at(b"<sst uniqueCount = '40000'>").is_ok());
        assert!(texts(1 << 20).look_at(b"<sst uniqueCount=\"99999999999999999999999999\">").is_err());
        let blanks = [b"<sst uniqueCount".as_slice(), &[b' '; 400], b"='4000000000'>"].concat();
        assert!(texts(1 << 20).look_at(&blanks).is_err());
        assert!(Watch::new(1 << 20).begin_part("xl/sharedStrings.bin", (1 << 20) + 1).is_err());
    }

    #[test]
    fn texts_and_records_have_a_greatest_length() {
        let mut watch = Watch::new(1 << 20);
        watch.end_opening();
        watch.begin_part("xl/worksheets/sheet1.xml", u64::MAX).unwrap();
        let piece = vec![b'a'; 1 << 20];
        assert!((0..15).all(|_| watch.look_at(&piece).is_ok()));
        watch.look_at(b"<c>").unwrap();
        assert!((0..15).all(|_| watch.look_at(&piece).is_ok()));
        assert!((0..2).any(|_| watch.look_at(&piece).is_err()));

        let mut watch = Watch::new(1 << 20);
        watch.begin_part("xl/worksheets/sheet1.bin", 1 << 20).unwrap();
        // Type 0x0181 of three bytes, then type 5 of 2^28 - 1 bytes.
        let records = [0x81, 0x03, 3, 1, 2, 3, 5, 0xff, 0xff, 0xff, 0x7f];
        assert!(records.chunks(1).any(|byte| watch.look_at(byte).is_err()));
        watch.begin_part("xl/worksheets/sheet1.bin", 1).unwrap();
        watch.look_at(&[0x81, 0x03, 3, 0xff, 0xff, 0xff, 5, 0x80, 0x01]).unwrap();
    }

    #[test]
    fn what_stays_in_memory_is_bounded() {
        let mut watch = Watch::new(1 << 20);
        assert!(watch.begin_part("xl/styles.xml", 65 << 20).is_err());
        let mut watch = Watch::new(1 << 20);
        watch.begin_part("xl/styles.xml", 1 << 20).unwrap();
        let piece = b"<xf/>".repeat(1 << 20);
        assert!((0..3).any(|_| watch.look_at(&piece).is_err()));
    }
}
