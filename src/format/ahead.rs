//! Reading ahead of a cut: a source says how long its next record is, and lies.
//!
//! A length in a file is a claim. The buffer grows with what was found, never with what was claimed, so that a few bytes
//! cannot ask for gigabytes.

use std::io::Read;

use bytes::Bytes;

use crate::{error::Result, record::Split};

/// Bytes read at once.
pub(super) const READ: usize = 256 << 10;

/// Reads until `buffer` holds `target` bytes; `false` when the source ends before.
///
/// # Errors
/// When reading fails.
pub(super) fn fill(input: &mut dyn Read, buffer: &mut Vec<u8>, target: usize) -> Result<bool> {
    while buffer.len() < target {
        let step = READ.max(buffer.len().min(target - buffer.len()));
        if input.take(step as u64).read_to_end(buffer)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Hands out the first `length` bytes of what was read; `offset` is where they begin in the source, and then where the
/// rest does. `None` when there is nothing to hand out.
pub(super) fn cut(buffer: &mut Vec<u8>, offset: &mut u64, length: usize) -> Option<Split> {
    if length == 0 {
        return None;
    }
    let rest = buffer.split_off(length);
    let split = Split::of_bytes(*offset, Bytes::from(std::mem::replace(buffer, rest)));
    *offset += length as u64;
    Some(split)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn claims_cost_no_more_than_there_is() {
        let mut buffer = Vec::new();
        assert!(!fill(&mut &b"short"[..], &mut buffer, usize::MAX).unwrap());
        assert_eq!((&buffer[..], buffer.capacity() < 2 * READ), (&b"short"[..], true));
        let long = vec![7; 3 * READ];
        let mut input = &long[..];
        buffer.clear();
        assert!(fill(&mut input, &mut buffer, 10).unwrap());
        assert!(fill(&mut input, &mut buffer, long.len()).unwrap());
        assert_eq!(buffer, long);
    }

    #[test]
    fn cuts_follow_each_other() {
        let (mut buffer, mut offset) = (b"abcde".to_vec(), 7);
        assert!(cut(&mut buffer, &mut offset, 0).is_none());
        let first = cut(&mut buffer, &mut offset, 2).unwrap();
        let rest = cut(&mut buffer, &mut offset, 3).unwrap();
        assert_eq!((first.offset, first.bytes(), rest.offset, rest.bytes()), (7, &b"ab"[..], 9, &b"cde"[..]));
        assert_eq!((buffer.len(), offset), (0, 12));
    }
}
