//! The elements of data that snappy compressed.
//!
//! ```text
//! varint length of all | elements: a tag of 2 bits of kind and 6 of length, then
//!   0  literal         bytes; lengths from 61 on are 1 to 4 bytes after the tag
//!   1  copy            4 to 11 bytes at a distance below 2 KiB: 3 bits of it in the tag, 8 after it
//!   2  copy            1 to 64 bytes at a distance below 64 KiB: 2 bytes
//!   3  copy            1 to 64 bytes at any distance: 4 bytes
//! ```
//!
//! A copy may overlap the bytes that it produces, which then repeat.

use super::super::chunk::put_varint;

/// Maximum length of a literal that is encoded in the tag.
const SHORT_LITERAL: usize = 60;

/// Maximum length of a copy.
const LONGEST_COPY: usize = 64;

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    /// Bytes of the tag and the numbers after it.
    pub(super) header: usize,
    /// Uncompressed bytes.
    pub(super) length: usize,
    /// Distance of a copy; 0 for a literal, whose bytes follow the header.
    pub(super) distance: usize,
}

impl Element {
    /// Parses the first element of `bytes`; `None` if it is truncated, or is a copy without a distance.
    pub(super) fn parse_first(bytes: &[u8]) -> Option<Self> {
        let tag = *bytes.first()?;
        let long = usize::from(tag >> 2);
        let (length, extra) = match tag & 3 {
            0 if long < SHORT_LITERAL => (long + 1, 0),
            0 => (0, long + 1 - SHORT_LITERAL),
            1 => (4 + (long & 7), 1),
            2 => (long + 1, 2),
            _ => (long + 1, 4),
        };
        let number = bytes.get(1..=extra)?.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let header = 1 + extra;
        if tag & 3 == 0 {
            let length = if extra == 0 { length } else { number.checked_add(1)? };
            return (length <= bytes.len() - header).then_some(Self { header, length, distance: 0 });
        }
        let distance = number | if tag & 3 == 1 { usize::from(tag >> 5) << 8 } else { 0 };
        (distance > 0).then_some(Self { header, length, distance })
    }

    /// Returns the number of its stored bytes.
    pub(super) fn stored_length(&self) -> usize {
        self.header + if self.distance == 0 { self.length } else { 0 }
    }
}

/// Returns the length of the uncompressed data, and the elements; `None` if there is no length.
pub(super) fn parse_length(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

/// Appends the length of the uncompressed data, which precedes the elements.
pub(super) fn put_length(out: &mut Vec<u8>, bytes: u64) {
    put_varint(out, bytes);
}

/// Appends a literal.
pub(super) fn put_literal(out: &mut Vec<u8>, bytes: &[u8]) {
    let Some(last) = bytes.len().checked_sub(1) else { return };
    let width = (usize::BITS - last.leading_zeros()).div_ceil(8).max(1);
    if last < SHORT_LITERAL {
        out.push(last.to_le_bytes()[0] << 2);
    } else {
        let tag = SHORT_LITERAL + width as usize - 1;
        out.push(tag.to_le_bytes()[0] << 2);
        out.extend_from_slice(&last.to_le_bytes()[..width as usize]);
    }
    out.extend_from_slice(bytes);
}

/// Appends copies of `length` bytes in all. The distance must be below 4 GiB.
pub(super) fn put_copy(out: &mut Vec<u8>, distance: usize, length: usize) {
    let mut left = length;
    while left > 0 {
        let length = left.min(LONGEST_COPY);
        let [low, high, third, fourth, ..] = distance.to_le_bytes();
        let size = (length - 1).to_le_bytes()[0];
        if (4..12).contains(&length) && distance < 1 << 11 {
            out.extend_from_slice(&[1 | (size - 3) << 2 | high << 5, low]);
        } else if distance < 1 << 16 {
            out.extend_from_slice(&[2 | size << 2, low, high]);
        } else {
            out.extend_from_slice(&[3 | size << 2, low, high, third, fourth]);
        }
        left -= length;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn copies_of_all_sizes_are_read_by_others() {
        for before in [1, 7, 2047, 2048, 2049, 65_535, 65_536, 65_537, 200_000] {
            for length in [1, 3, 4, 11, 12, 63, 64, 65, 67, 68, 300] {
                let start: Vec<u8> = (0..before).map(|i: u32| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
                let mut expected = start.clone();
                (0..length).for_each(|at| expected.push(expected[at]));
                let mut packed = Vec::new();
                put_length(&mut packed, expected.len() as u64);
                put_literal(&mut packed, &start);
                put_copy(&mut packed, start.len(), length);
                assert!(snap::raw::Decoder::new().decompress_vec(&packed).unwrap() == expected, "{before} {length}");
                let (promised, mut rest) = parse_length(&packed).unwrap();
                let mut made = 0;
                while let Some(element) = Element::parse_first(rest) {
                    made += element.length as u64;
                    rest = &rest[element.stored_length()..];
                }
                assert_eq!((promised, rest.len()), (made, 0));
            }
        }
    }

    #[test]
    fn cut_off_elements_are_refused() {
        for bytes in
            [&[][..], &[0], &[4, 1], &[60 << 2], &[61 << 2, 9, 0, 1], &[1], &[2, 1], &[3, 1, 0, 0], &[1, 0], &[2, 0, 0]]
        {
            assert_eq!(Element::parse_first(bytes), None, "{bytes:?}");
        }
        assert_eq!(parse_length(&[0x80; 9]), None);
    }
}
