//! Memory that is used again.
//!
//! Megabytes that are allocated by one thread and freed by another go back to the system each time, which then has to
//! clear every page again. What comes and goes at the pace of the data is kept here instead:
//!
//! ```text
//! take -> Vec -> lend -> Bytes, and slices of it -> the last one dropped -> take ...
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers kept at most.
const KEPT: usize = 16;

/// Larger buffers are not kept.
const LARGEST: usize = 16 << 20;

/// Capacities are multiples of this, so that buffers for pieces of about one size can stand in for each other.
const STEP: usize = 256 << 10;

/// Buffers that nobody uses.
#[derive(Debug, Clone, Default)]
pub struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    /// An empty buffer with room for `capacity` bytes at least.
    pub fn take(&self, capacity: usize) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match kept {
            Some(buffer) if buffer.capacity() >= capacity => buffer,
            _ => Vec::with_capacity(capacity.next_multiple_of(STEP)),
        }
    }

    /// Makes the buffer immutable; it comes back when nothing refers to it any more.
    pub fn lend(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, spare: self.clone() })
    }

    fn keep(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT && (1..=LARGEST).contains(&buffer.capacity()) {
            kept.push(buffer);
        }
    }
}

struct Lent {
    buffer: Vec<u8>,
    spare: Spare,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.spare.keep(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_is_dropped() {
        let spare = Spare::default();
        let mut buffer = spare.take(100);
        buffer.extend_from_slice(b"abcdef");
        let place = buffer.as_ptr();
        let whole = spare.lend(buffer);
        let slice = whole.slice(2..4);
        drop(whole);
        let other = spare.take(1);
        assert_ne!(other.as_ptr(), place);
        assert_eq!(&slice[..], b"cd");
        drop(slice);
        let again = spare.take(STEP);
        assert_eq!(again.as_ptr(), place);
        assert!(again.is_empty());
    }

    #[test]
    fn a_buffer_that_is_too_small_or_too_large_is_not_given() {
        let spare = Spare::default();
        drop(spare.lend(spare.take(10)));
        assert!(spare.take(STEP + 1).capacity() > STEP);
        drop(spare.lend(Vec::with_capacity(LARGEST + 1)));
        assert!(spare.take(1).capacity() <= LARGEST);
    }
}
