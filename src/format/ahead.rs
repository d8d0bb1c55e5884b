//! Reading ahead of a cut: a source says how long its next record is, and lies.
//!
//! A length in a file is a claim. The buffer grows with what was found, never with what was claimed, so that a few bytes
//! cannot ask for gigabytes.

use std::io::Read;

use crate::error::Result;

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
}
