//! Walks through Thrift's compact protocol without building anything.
//!
//! The parquet crate allocates as many elements as a list in the footer declares, follows nested schemas by recursion,
//! and allocates the decompressed size that a page header declares. So a few bytes can request all memory, or a
//! recursion that overflows the stack, and neither can be caught. Therefore the footer and the page headers are
//! validated here first.
//!
//! ```text
//! struct  [ field ]* 00       field  delta << 4 | type  (delta 0: zigzag id follows)  value
//! list    size << 4 | type    (size 15: varint follows)  [ value ]*
//! map     varint size         key type << 4 | value type, unless empty  [ key value ]*
//! binary  varint length       bytes
//! ```

/// Maximum nesting depth; no footer or page header comes close to it.
const MAX_DEPTH: usize = 32;

/// Maximum nesting depth of columns, far below what a thread's stack allows.
const MAX_SCHEMA_DEPTH: usize = 64;

const STOP: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// Fields of a page header that are needed before the page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Size of the header in bytes.
    pub(super) header_bytes: u64,
    /// Size of the page in the file in bytes.
    pub(super) compressed: u64,
    /// Size of the decompressed page in bytes.
    pub(super) uncompressed: u64,
    /// Number of values, including nulls.
    pub(super) values: u64,
    /// Whether it is the dictionary of its column chunk.
    pub(super) dictionary: bool,
    /// CRC-32 of the page as stored, if the writer computed one.
    pub(super) crc: Option<u32>,
    /// Kind of the page.
    pub(super) kind: PageKind,
    /// Number of the encoding of its values.
    pub(super) encoding: i64,
}

/// Kinds of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Values that data pages refer to.
    Dictionary,
    /// Version 1: levels and values are compressed together.
    Data {
        /// Numbers of the encodings of definition and repetition levels.
        levels: [i64; 2],
    },
    /// Version 2: levels precede the values and are never compressed.
    DataV2 {
        /// Number of nulls among the values.
        nulls: u64,
        /// Number of rows that begin in the page.
        rows: u64,
        /// Bytes of the repetition levels and of the definition levels that follow them.
        levels: [u64; 2],
        /// Whether the values are compressed.
        compressed: bool,
    },
    /// A kind that readers ignore.
    Other,
}

/// Reason why a walk ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThriftFault {
    /// The bytes end within a value.
    Short,
    /// The bytes are not Thrift, or state something impossible.
    Malformed(&'static str),
    /// Columns are encrypted.
    Encrypted,
}

/// Reads the page header at the start of `bytes`.
pub(super) fn page_header(bytes: &[u8]) -> Result<PageHeader, ThriftFault> {
    let mut walk = ThriftWalk { bytes, at: 0 };
    let (mut sizes, mut kind, mut crc, mut fields) = ([None, None], None, None, [0; FIELDS]);
    let mut last = 0;
    while let Some((id, of)) = walk.next_field(&mut last)? {
        match id {
            1 => kind = Some(walk.read_integer(of)?),
            2 => sizes[0] = Some(walk.read_integer(of)?),
            3 => sizes[1] = Some(walk.read_integer(of)?),
            4 => crc = Some(walk.read_integer(of)?),
            // Headers of data pages, dictionary pages and data pages of version 2.
            5 | 7 | 8 if of == STRUCT => fields = walk.numeric_fields()?,
            _ => walk.skip_value(of, MAX_DEPTH)?,
        }
    }
    let [Some(uncompressed), Some(compressed)] = sizes else {
        return Err(ThriftFault::Malformed("expected a page header with sizes"));
    };
    let size = |size: i64| {
        u64::try_from(size).map_err(|_| ThriftFault::Malformed("expected a page size, found a negative one"))
    };
    let (encoding, kind) = match kind {
        Some(0) => (fields[2], PageKind::Data { levels: [fields[3], fields[4]] }),
        Some(2) => (fields[2], PageKind::Dictionary),
        Some(3) => {
            let levels = [size(fields[6])?, size(fields[5])?];
            let (nulls, rows) = (size(fields[2])?, size(fields[3])?);
            (fields[4], PageKind::DataV2 { nulls, rows, levels, compressed: fields[7] == 0 })
        }
        _ => (-1, PageKind::Other),
    };
    Ok(PageHeader {
        header_bytes: walk.at as u64,
        compressed: size(compressed)?,
        uncompressed: size(uncompressed)?,
        values: size(fields[1])?,
        dictionary: kind == PageKind::Dictionary,
        crc: crc.map(low_half),
        kind,
        encoding,
    })
}

/// Number of numeric fields read from the headers of pages; the first one has id 1.
const FIELDS: usize = 8;

/// Returns the low 32 bits of a number.
fn low_half(number: i64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or_default()
}

/// Validates a struct, such as a page index: every list and text must fit in its bytes.
pub(super) fn check_struct(bytes: &[u8]) -> Result<(), ThriftFault> {
    ThriftWalk { bytes, at: 0 }.skip_value(STRUCT, MAX_DEPTH)
}

/// Validates the metadata of a footer: every list and text must fit in its bytes, and columns must not be nested deeper
/// than a stack can follow. Encrypted columns, which nothing here reads, are errors.
pub(super) fn check_footer(bytes: &[u8]) -> Result<(), ThriftFault> {
    let mut walk = ThriftWalk { bytes, at: 0 };
    let mut last = 0;
    while let Some((id, of)) = walk.next_field(&mut last)? {
        match (id, of) {
            (2, LIST) => walk.check_schema()?,
            (2, _) => return Err(ThriftFault::Malformed("expected a list of columns")),
            // The encryption algorithm, in footers that are not encrypted themselves.
            (8, STRUCT) => return Err(ThriftFault::Encrypted),
            _ => walk.skip_value(of, MAX_DEPTH)?,
        }
    }
    Ok(())
}

struct ThriftWalk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl ThriftWalk<'_> {
    fn read_byte(&mut self) -> Result<u8, ThriftFault> {
        let byte = *self.bytes.get(self.at).ok_or(ThriftFault::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn read_varint(&mut self) -> Result<u64, ThriftFault> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ThriftFault::Malformed("expected a number of at most 10 bytes"))
    }

    fn read_zigzag(&mut self) -> Result<i64, ThriftFault> {
        let value = self.read_varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn read_integer(&mut self, of: u8) -> Result<i64, ThriftFault> {
        if (4..=6).contains(&of) { self.read_zigzag() } else { Err(ThriftFault::Malformed("expected an integer")) }
    }

    fn advance(&mut self, count: u64) -> Result<(), ThriftFault> {
        let rest = (self.bytes.len() - self.at) as u64;
        if count > rest {
            return Err(ThriftFault::Short);
        }
        self.at += usize::try_from(count).map_err(|_| ThriftFault::Short)?;
        Ok(())
    }

    /// Returns id and type of the next field; `None` at the end of the struct.
    fn next_field(&mut self, last: &mut i64) -> Result<Option<(i64, u8)>, ThriftFault> {
        let head = self.read_byte()?;
        if head & 0x0f == STOP {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => self.read_zigzag()?,
            delta => last.saturating_add(i64::from(delta)),
        };
        // The parquet crate truncates longer numbers, and would see a different field than this walk.
        if i16::try_from(*last).is_err() {
            return Err(ThriftFault::Malformed("expected the number of a field, of 16 bits"));
        }
        Ok(Some((*last, head & 0x0f)))
    }

    /// Walks through a struct and returns its first numeric fields, by their id; 0 for a missing one. A boolean is
    /// returned as 0 or 1, inverted, because the only one has the default true.
    fn numeric_fields(&mut self) -> Result<[i64; FIELDS], ThriftFault> {
        let (mut last, mut found) = (0, [0; FIELDS]);
        while let Some((id, of)) = self.next_field(&mut last)? {
            let place = usize::try_from(id).ok().and_then(|id| found.get_mut(id));
            match (place, of) {
                (Some(place), TRUE | FALSE) => *place = i64::from(of == FALSE),
                (Some(place), 4..=6) => *place = self.read_integer(of)?,
                _ => self.skip_value(of, MAX_DEPTH)?,
            }
        }
        Ok(found)
    }

    fn list_head(&mut self) -> Result<(u64, u8), ThriftFault> {
        let head = self.read_byte()?;
        let size = if head >> 4 == 15 { self.read_varint()? } else { u64::from(head >> 4) };
        // Each element has at least one byte.
        if size > (self.bytes.len() - self.at) as u64 {
            return Err(ThriftFault::Malformed("expected a list that fits in the footer"));
        }
        Ok((size, head & 0x0f))
    }

    /// Validates the schema, which lists groups and columns depth first, each group with its number of children.
    fn check_schema(&mut self) -> Result<(), ThriftFault> {
        let (count, of) = self.list_head()?;
        // Number of remaining children of each open group.
        let mut open: Vec<i64> = Vec::new();
        for number in 0..count {
            if of != STRUCT {
                return Err(ThriftFault::Malformed("expected a schema of structs"));
            }
            let (mut last, mut children) = (0, 0);
            while let Some((id, of)) = self.next_field(&mut last)? {
                if id == 5 { children = self.read_integer(of)? } else { self.skip_value(of, MAX_DEPTH)? }
            }
            // The parquet crate truncates numbers to 32 bits, so it may see a large count in place of a negative one.
            if i32::try_from(children).is_err() || children > 0 && children.cast_unsigned() >= count - number {
                return Err(ThriftFault::Malformed("expected a schema with as many columns as its groups say"));
            }
            while open.last() == Some(&0) {
                open.pop();
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
            }
            if open.len() > MAX_SCHEMA_DEPTH {
                return Err(ThriftFault::Malformed("expected columns of at most 64 levels"));
            }
        }
        Ok(())
    }

    fn skip_value(&mut self, of: u8, depth: usize) -> Result<(), ThriftFault> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(ThriftFault::Malformed("expected fewer levels of thrift structs"));
        };
        match of {
            TRUE | FALSE => Ok(()),
            BYTE => self.advance(1),
            4..=6 => self.read_varint().map(drop),
            DOUBLE => self.advance(8),
            UUID => self.advance(16),
            BINARY => {
                let length = self.read_varint()?;
                self.advance(length)
            }
            LIST | SET => {
                let (count, of) = self.list_head()?;
                (0..count).try_for_each(|_| self.skip_element(of, depth))
            }
            MAP => {
                let count = self.read_varint()?;
                let of = if count > 0 { self.read_byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.skip_element(of >> 4, depth)?;
                    self.skip_element(of & 0x0f, depth)
                })
            }
            STRUCT => {
                let mut last = 0;
                while let Some((_, of)) = self.next_field(&mut last)? {
                    self.skip_value(of, depth)?;
                }
                Ok(())
            }
            _ => Err(ThriftFault::Malformed("expected a thrift type")),
        }
    }

    /// Skips an element of a collection, where booleans have a byte of their own; in fields, their type is their value.
    fn skip_element(&mut self, of: u8, depth: usize) -> Result<(), ThriftFault> {
        if matches!(of, TRUE | FALSE) { self.advance(1) } else { self.skip_value(of, depth) }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    /// Type 0, decompressed 300, stored 7, a data page header with 5 values of encoding 0.
    const HEADER: [u8; 15] = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 14, 0x2c, 0x15, 10, 0x15, 0, 0, 0, 0xaa];

    #[test]
    fn a_page_header_is_measured() {
        let header = page_header(&HEADER).unwrap();
        let expected = PageHeader {
            header_bytes: 14,
            compressed: 7,
            uncompressed: 300,
            values: 5,
            dictionary: false,
            crc: None,
            kind: PageKind::Data { levels: [0, 0] },
            encoding: 0,
        };
        assert_eq!(header, expected);
        for length in 0..14 {
            assert_eq!(page_header(&HEADER[..length]), Err(ThriftFault::Short), "{length}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(page_header(&[0]), Err(ThriftFault::Malformed(_))));
        let negative = [0x15, 0, 0x15, 1, 0x15, 14, 0];
        assert!(matches!(page_header(&negative), Err(ThriftFault::Malformed(_))));
        let text_for_a_size = [0x15, 0, 0x18, 1, b'x', 0x15, 14, 0];
        assert!(matches!(page_header(&text_for_a_size), Err(ThriftFault::Malformed(_))));
    }

    #[test]
    fn lists_that_cannot_fit_are_refused() {
        // Field 4, a list of 2^28 structs.
        let footer = [0x49, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x01, 0];
        assert!(matches!(check_footer(&footer), Err(ThriftFault::Malformed(_))));
    }

    #[test]
    fn deep_schemas_are_refused() {
        let schema = |depth: u8| {
            let mut footer = vec![0x29, 0xfc, depth];
            for _ in 1..depth {
                footer.extend([0x55, 2, 0]); // one child
            }
            footer.extend([0, 0]);
            footer
        };
        assert_eq!(check_footer(&schema(60)), Ok(()));
        assert!(matches!(check_footer(&schema(100)), Err(ThriftFault::Malformed(_))));
    }

    #[test]
    fn groups_without_their_columns_are_refused() {
        // A schema with one group that declares 1, or 2^31 - 1, columns; then with one that has its column.
        assert!(matches!(check_footer(&[0x29, 0x1c, 0x55, 2, 0, 0]), Err(ThriftFault::Malformed(_))));
        let many = [0x29, 0x1c, 0x55, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0];
        assert!(matches!(check_footer(&many), Err(ThriftFault::Malformed(_))));
        assert_eq!(check_footer(&[0x29, 0x2c, 0x55, 2, 0, 0, 0]), Ok(()));
    }

    /// The parquet crate uses the low bits of a number as the number.
    #[test]
    fn numbers_that_are_too_long_for_their_field_are_refused() {
        let malformed =
            |footer: &[u8]| assert!(matches!(check_footer(footer), Err(ThriftFault::Malformed(_))), "{footer:x?}");
        // A negative count of columns, with 1,200,000,000 in its low 32 bits.
        let mut footer = vec![0x29, 0x1c, 0x55];
        let count = (-1_i64 << 32) + 1_200_000_000;
        let mut rest = ((count << 1) ^ (count >> 63)).cast_unsigned();
        while rest >= 0x80 {
            footer.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        footer.extend([u8::try_from(rest).unwrap(), 0, 0]);
        malformed(&footer);
        // The same field with the id 65541 instead of 5.
        malformed(&[0x29, 0x1c, 0x05, 0x8a, 0x80, 0x08, 2, 0, 0]);
        // A set of columns.
        malformed(&[0x2a, 0x1c, 0, 0]);
    }

    #[test]
    fn nesting_of_structs_is_limited() {
        assert!(matches!(check_footer(&[0x1c; 100_000]), Err(ThriftFault::Malformed(_))));
    }
}
