//! Bounded read-ahead for sources whose stated record lengths may be wrong.
//!
//! A length in a file is untrusted. The buffer grows with the bytes found, never with the stated length, so that a few
//! bytes cannot request gigabytes.

use std::io::Read;

use bytes::Bytes;

use crate::{
    error::{Error, Result},
    record::SourceRange,
};

/// Bytes of one read.
pub(super) const READ: usize = 256 << 10;

/// Reads until `buffer` holds `target` bytes; returns `false` if the source ends before.
///
/// # Errors
/// If reading fails.
pub(super) fn fill_buffer(input: &mut dyn Read, buffer: &mut Vec<u8>, target: usize) -> Result<bool> {
    while buffer.len() < target {
        let step = READ.max(buffer.len().min(target - buffer.len()));
        if input.take(step as u64).read_to_end(buffer)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the error of a file that ends at a byte, where more was expected.
pub(super) fn cut_short(expected: &str, byte: u64) -> Error {
    Error::input(format!("{expected}, found the end of the file"))
        .at_byte(byte)
        .with_hint("the file was cut short; get it anew from where it came from")
}

/// Removes and returns the first `length` bytes of the buffer as a range. `offset` is their position in the source and
/// is advanced to the rest. Returns `None` if there is nothing to return.
pub(super) fn take_range(buffer: &mut Vec<u8>, offset: &mut u64, length: usize) -> Option<SourceRange> {
    if length == 0 {
        return None;
    }
    let rest = buffer.split_off(length);
    let range = SourceRange::of_bytes(*offset, Bytes::from(std::mem::replace(buffer, rest)));
    *offset += length as u64;
    Some(range)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn false_sizes_take_no_more_memory_than_the_input() {
        let mut buffer = Vec::new();
        assert!(!fill_buffer(&mut &b"short"[..], &mut buffer, usize::MAX).unwrap());
        assert_eq!((&buffer[..], buffer.capacity() < 2 * READ), (&b"short"[..], true));
        let long = vec![7; 3 * READ];
        let mut input = &long[..];
        buffer.clear();
        assert!(fill_buffer(&mut input, &mut buffer, 10).unwrap());
        assert!(fill_buffer(&mut input, &mut buffer, long.len()).unwrap());
        assert_eq!(buffer, long);
    }

    #[test]
    fn cuts_are_consecutive() {
        let (mut buffer, mut offset) = (b"abcde".to_vec(), 7);
        assert!(take_range(&mut buffer, &mut offset, 0).is_none());
        let first = take_range(&mut buffer, &mut offset, 2).unwrap();
        let rest = take_range(&mut buffer, &mut offset, 3).unwrap();
        assert_eq!(
            (first.offset, first.content_bytes(), rest.offset, rest.content_bytes()),
            (7, &b"ab"[..], 9, &b"cde"[..])
        );
        assert_eq!((buffer.len(), offset), (0, 12));
    }
}
