//! What lies at a place of a WARC file where a record should begin: a record, or damage up to the next one.
//!
//! ```text
//! WARC/1.1 CRLF  Name: value CRLF ...  CRLF  block of Content-Length bytes  CRLF CRLF  WARC/1.1 ...
//! head           fields                      block                          tail       the next record
//! ```
//!
//! The length alone says where a block ends, and it is believed only if the next record, or the end, follows there.
//! Otherwise the record is damaged, and so is everything up to the next line that begins a record behind a blank one.
//! Some bytes behind an entry may have to be looked at to judge it, but what was judged once is judged the same when
//! the bytes end behind it: so ranges can be parsed without their neighbours.

use memchr::memmem;

use super::fields::{Fields, MAX_HEAD, first_line};

/// Bytes behind a record that are looked at to tell whether it ends there.
pub(super) const LOOK: usize = 1 << 10;
/// Maximum bytes of line ends behind a block.
pub(super) const MAX_TAIL: usize = 64;
/// Bytes of the shortest version line, without its end.
const VERSION: usize = b"WARC/1.0".len();

/// A record.
#[derive(Debug)]
pub(super) struct WarcRecord<'a> {
    pub(super) fields: Fields<'a>,
    pub(super) block: &'a [u8],
    /// The record without the line ends behind it.
    pub(super) content: &'a [u8],
}

/// What begins at a place.
#[derive(Debug)]
pub(super) enum Entry<'a> {
    /// A record, with its length up to the next one.
    Record(WarcRecord<'a>, usize),
    /// Bytes that are no record, as many as there are before the next one, and why.
    Damage(usize, String),
    /// So many bytes are needed to tell.
    Incomplete(usize),
    /// A header that states a block which is larger than is read.
    TooLarge {
        /// Bytes of the header.
        head: usize,
        /// Bytes of the block.
        length: u64,
    },
    /// Damage, behind which no record begins within the bytes that are read.
    Lost(String),
}

/// What is known of the bytes at hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Whether nothing follows them.
    pub(super) ends: bool,
    /// Maximum bytes of a block.
    pub(super) max_block: u64,
}

/// Why a record is none.
enum Fault {
    Head(String),
    /// The block states a length, and begins at an offset.
    Block {
        length: u64,
        start: usize,
    },
}

impl Fault {
    /// Says what is wrong; the next record begins at `end`.
    fn reason(&self, end: usize) -> String {
        match self {
            Self::Head(reason) => reason.clone(),
            Self::Block { length, start } => {
                let found = end.saturating_sub(*start);
                format!("expected a block of {length} bytes and then the next record, found {found} bytes before it")
            }
        }
    }
}

/// Reads the entry at the start of some bytes, of which there is at least one.
pub(super) fn read_entry(bytes: &[u8], extent: Extent) -> Entry<'_> {
    let fields = match read_head(bytes, extent.ends) {
        Ok(Some(fields)) => fields,
        // Twice as many, so that a long header is not read over and over.
        Ok(None) => return Entry::Incomplete(2 * bytes.len() + LOOK),
        Err(reason) => return skip_damage(bytes, extent, &Fault::Head(reason)),
    };
    let length = match content_length(&fields) {
        Ok(length) => length,
        Err(reason) => return skip_damage(bytes, extent, &Fault::Head(reason)),
    };
    let start = fields.bytes;
    let end = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(start);
    if extent.ends && end > bytes.len() {
        return skip_damage(bytes, extent, &Fault::Block { length, start });
    }
    if length > extent.max_block {
        return Entry::TooLarge { head: start, length };
    }
    if end > bytes.len() {
        return Entry::Incomplete(end.saturating_add(LOOK));
    }
    match tail_length(bytes[start..end].last().copied(), &bytes[end..], extent.ends) {
        Tail::Bytes(tail) => {
            Entry::Record(WarcRecord { fields, block: &bytes[start..end], content: &bytes[..end] }, end + tail)
        }
        Tail::Unknown => Entry::Incomplete(end + LOOK + MAX_TAIL),
        Tail::None => skip_damage(bytes, extent, &Fault::Block { length, start }),
    }
}

/// Whether these bytes begin with a version line.
pub(super) fn begins_record(bytes: &[u8]) -> bool {
    matches!(bytes, [b'W', b'A', b'R', b'C', b'/', b'0'..=b'9', b'.', b'0'..=b'9', ..])
}

/// Returns the fields of a record, whose bytes count from its start; `None` if more bytes are needed.
fn read_head(bytes: &[u8], ends: bool) -> Result<Option<Fields<'_>>, String> {
    if !begins_record(bytes) {
        if bytes.len() < VERSION && !ends {
            return Ok(None);
        }
        let found = bytes[..bytes.len().min(VERSION)].escape_ascii();
        return Err(format!("expected a record, which begins with `WARC/1.0`, found `{found}`"));
    }
    let bytes = &bytes[..bytes.len().min(MAX_HEAD)];
    let Some((_, version)) = first_line(bytes) else { return Ok(None) };
    let mut fields = Fields::read(&bytes[version..]);
    fields.bytes += version;
    if fields.closed {
        Ok(Some(fields))
    } else if bytes.len() == MAX_HEAD {
        Err(format!("expected a header of at most {MAX_HEAD} bytes, found a longer one"))
    } else if ends {
        Err("expected a blank line behind the header, found none".to_owned())
    } else {
        Ok(None)
    }
}

/// Returns the length that the fields state.
fn content_length(fields: &Fields<'_>) -> Result<u64, String> {
    let mut values = fields.values("Content-Length");
    let Some(first) = values.next() else { return Err("expected a Content-Length, found none".to_owned()) };
    if let Some(other) = values.find(|value| *value != first) {
        let (first, other) = (first.escape_ascii(), other.escape_ascii());
        return Err(format!("expected one Content-Length, found `{first}` and `{other}`"));
    }
    let digits = std::str::from_utf8(first).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let shown = first[..first.len().min(40)].escape_ascii();
    digits
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("expected a number of bytes as Content-Length, found `{shown}`"))
}

/// What follows a block.
pub(super) enum Tail {
    /// So many line ends, and then a record or the end.
    Bytes(usize),
    /// Something else.
    None,
    Unknown,
}

/// Returns what follows a block that ends with a byte.
pub(super) fn tail_length(last: Option<u8>, rest: &[u8], ends: bool) -> Tail {
    let tail = rest.iter().take(MAX_TAIL).take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let (line_ends, after) = rest.split_at(tail);
    // A length that leads into the middle of a line end is wrong.
    let splits_line_end = last == Some(b'\r') && line_ends.starts_with(b"\n");
    if splits_line_end || !is_line_ends(line_ends) {
        return if ends || rest.len() > MAX_TAIL { Tail::None } else { Tail::Unknown };
    }
    // A file that was cut within the next version line has this record whole.
    let is_cut = after.len() < VERSION && b"WARC/1.".starts_with(&after[..after.len().min(VERSION - 1)]);
    if begins_record(after) || ends && is_cut {
        return Tail::Bytes(tail);
    }
    if after.len() < LOOK && !ends {
        return Tail::Unknown;
    }
    // The next record may be damaged in turn, which is no fault of this one.
    if tail > 1 && looks_like_head(&after[..after.len().min(LOOK)]) { Tail::Bytes(tail) } else { Tail::None }
}

/// Whether these are line ends of one kind; the last may be cut.
fn is_line_ends(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == b'\n') || bytes.chunks(2).all(|pair| b"\r\n".starts_with(pair))
}

/// Whether a field of WARC is among the lines before a blank one.
fn looks_like_head(bytes: &[u8]) -> bool {
    let is_field = |name: &[u8]| name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"WARC-"));
    Fields::read(bytes).list.iter().any(|field| field.value.is_some() && is_field(field.name))
}

/// Looks for the record behind one that is damaged.
fn skip_damage<'a>(bytes: &'a [u8], extent: Extent, fault: &Fault) -> Entry<'a> {
    let is_blank = |before: &[u8]| before.strip_suffix(b"\r").unwrap_or(before).ends_with(b"\n");
    let mut starts = memmem::find_iter(bytes, b"\nWARC/").filter(|at| is_blank(&bytes[..*at])).map(|at| at + 1);
    let found = starts.find(|at| begins_record(&bytes[*at..]) || bytes.len() - at < VERSION && !extent.ends);
    let end = match found {
        Some(at) if begins_record(&bytes[at..]) => at,
        None if extent.ends => bytes.len(),
        None if bytes.len() as u64 > extent.max_block => return Entry::Lost(fault.reason(bytes.len())),
        _ => return Entry::Incomplete(2 * bytes.len() + LOOK),
    };
    Entry::Damage(end, fault.reason(end))
}

#[cfg(test)]
#[expect(clippy::panic, reason = "tests fail loudly")]
mod tests {
    use super::*;

    const ONE: &str = "WARC/1.0\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n";
    const WHOLE: Extent = Extent { ends: true, max_block: 1 << 20 };
    const START: Extent = Extent { ends: false, ..WHOLE };

    fn damage(bytes: &[u8]) -> (usize, String) {
        match read_entry(bytes, WHOLE) {
            Entry::Damage(end, reason) => (end, reason),
            other => panic!("{other:?}"),
        }
    }

    fn record(bytes: &[u8]) -> (&[u8], usize) {
        match read_entry(bytes, WHOLE) {
            Entry::Record(record, length) => (record.block, length),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_length_says_where_a_block_ends() {
        let two = [ONE, ONE].concat();
        assert_eq!(record(two.as_bytes()), (&b"hello"[..], ONE.len()));
        let blank = "WARC/1.1\ncontent-LENGTH: 20\n\na\r\n\r\nWARC/1.0\r\n\r\nb\r\n\n\nWARC/1.0\n";
        assert_eq!(record(blank.as_bytes()).0, b"a\r\n\r\nWARC/1.0\r\n\r\nb\r\n");
        // Any number of line ends may follow, none included; the last one of a file may be cut.
        for tail in ["", "\n", "\n\n", "\r\n", "\r\n\r\n\r\n"] {
            let bytes = format!("WARC/1.0\r\nContent-Length: 1\r\n\r\nx{tail}");
            assert_eq!(record(bytes.as_bytes()), (&b"x"[..], bytes.len()), "{tail:?}");
            assert_eq!(record([&bytes, ONE].concat().as_bytes()), (&b"x"[..], bytes.len()), "{tail:?}");
        }
        assert_eq!(record(&ONE.as_bytes()[..ONE.len() - 1]), (&b"hello"[..], ONE.len() - 1));
    }

    #[test]
    fn a_wrong_length_is_damage_up_to_the_next_record() {
        for length in [0, 1, 4, 6, 8, 10, 50, 100_000] {
            let wrong = format!("WARC/1.0\r\nContent-Length: {length}\r\n\r\nhello\r\n\r\n");
            let (end, reason) = damage([&wrong, ONE].concat().as_bytes());
            assert_eq!(end, wrong.len(), "{length}");
            assert!(reason.contains(&format!("block of {length} bytes")) && reason.contains("found 9 "), "{reason}");
            // Judged the same by its own bytes alone.
            assert_eq!(damage(wrong.as_bytes()), (end, reason));
        }
        let (end, reason) = damage(b"WARC/1.0\r\nContent-Length: 5\r\n\r\nhel");
        assert_eq!((end, reason.contains("found 3 bytes")), (34, true));
    }

    #[test]
    fn heads_without_a_usable_length_are_damage() {
        let of = |fields: &str| damage(format!("WARC/1.0\r\n{fields}\r\n\r\n{ONE}").as_bytes()).1;
        assert!(of("WARC-Type: x").contains("Content-Length, found none"));
        for value in ["-1", "+1", "", "x", "1 2", "0x5", "18446744073709551616"] {
            assert!(of(&format!("Content-Length: {value}")).contains(&format!("found `{value}`")), "{value}");
        }
        assert!(of("Content-Length: 0\r\nContent-Length: 1").contains("found `0` and `1`"));
        let same = format!("WARC/1.0\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx\r\n\r\n{ONE}");
        assert_eq!(record(same.as_bytes()).0, b"x");
        let long = [b"WARC/1.0\r\n".to_vec(), b"a: b\r\n".repeat(200_000), ONE.as_bytes().to_vec()].concat();
        assert!(damage(&long).1.contains("1048576 bytes"));
        assert!(damage(b"GIF89a is something else").1.contains("found `GIF89a i`"));
        assert!(damage(b"WARC/1.0\r\nContent-Length: 5").1.contains("blank line"));
    }

    #[test]
    fn damage_of_the_next_record_is_not_that_of_this_one() {
        for next in ["WARX/1.0\r\nWARC-Type: response\r\nContent-Length: 1\r\n\r\nx\r\n\r\n", "W", "WARC/", "WARC/1."] {
            let bytes = [ONE, next].concat();
            assert_eq!(record(bytes.as_bytes()), (&b"hello"[..], ONE.len()), "{next}");
        }
        assert_eq!(damage([ONE, "something\r\n\r\n", ONE].concat().as_bytes()).0, ONE.len() + 13);
    }

    #[test]
    fn more_bytes_are_asked_for_until_the_entry_is_sure() {
        let bytes = [ONE.as_bytes(), ONE.as_bytes()].concat();
        for length in 1..bytes.len() {
            match read_entry(&bytes[..length], START) {
                Entry::Incomplete(needed) => assert!(needed > length),
                Entry::Record(..) => assert!(length >= ONE.len() + VERSION, "{length}"),
                other => panic!("{length}: {other:?}"),
            }
        }
        let large = b"WARC/1.0\r\nContent-Length: 1048577\r\n\r\n";
        assert!(matches!(read_entry(large, START), Entry::TooLarge { head: 37, length: 1_048_577 }));
        assert!(matches!(read_entry(large, WHOLE), Entry::Damage(37, _)));
        let lost = vec![b'x'; (1 << 20) + 1];
        assert!(matches!(read_entry(&lost, START), Entry::Lost(_)));
    }
}
