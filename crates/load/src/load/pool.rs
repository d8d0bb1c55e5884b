//! Buffers that are used again.
//!
//! Megabytes that one thread allocates and another frees go back to the system, which clears every page again before
//! they are used: that takes longer than to read or to copy them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

/// Buffers below this are not kept: the allocator keeps them.
const LEAST: usize = 64 << 10;

/// Returns the length of the buffer for so many bytes: at most an eighth more, so that blocks of similar size are
/// interchangeable.
fn rounded(length: usize) -> usize {
    if length < LEAST { length } else { length.next_multiple_of((length / 16).next_power_of_two()) }
}

/// Unused buffers, by capacity.
#[derive(Debug, Clone)]
pub(super) struct BytePool(Arc<Mutex<UnusedBuffers>>);

#[derive(Debug)]
struct UnusedBuffers {
    by_length: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Bytes of these, and of those that are lent.
    bytes: usize,
    lent: usize,
    most_bytes: usize,
}

impl UnusedBuffers {
    /// Takes buffers out until all buffers are as few as they may be, or none is left.
    fn make_room(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while self.bytes + self.lent > self.most_bytes {
            let Some(mut largest) = self.by_length.last_entry() else { break };
            match largest.get_mut().pop() {
                Some(buffer) => {
                    self.bytes -= buffer.len();
                    out.push(buffer);
                }
                None => drop(largest.remove()),
            }
        }
        out
    }
}

impl BytePool {
    /// Makes a pool that keeps buffers as long as they and those that are lent have at most so many bytes.
    pub(super) fn new(most_bytes: u64) -> Self {
        let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        Self(Arc::new(Mutex::new(UnusedBuffers { by_length: BTreeMap::new(), bytes: 0, lent: 0, most_bytes })))
    }

    /// Returns a buffer of at least `length` bytes with unspecified content.
    pub(super) fn take_buffer(&self, length: usize) -> Vec<u8> {
        let wanted = rounded(length);
        if length < LEAST {
            return vec![0; length];
        }
        let mut unused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // At most a quarter more than needed, so that the memory stays what was counted.
        let fitting = unused.by_length.range_mut(wanted..=wanted + wanted / 4).find(|(_, buffers)| !buffers.is_empty());
        if let Some(buffer) = fitting.and_then(|(_, buffers)| buffers.pop()) {
            unused.bytes -= buffer.len();
            unused.lent += buffer.len();
            return buffer;
        }
        unused.lent += wanted;
        let dropped = unused.make_room();
        drop(unused);
        drop(dropped);
        vec![0; wanted]
    }

    /// Makes a range of the buffer immutable; the buffer comes back when nothing refers to it any more.
    pub(super) fn lend_buffer(&self, buffer: Vec<u8>, range: Range<usize>) -> Bytes {
        Bytes::from_owner(LentBuffer { buffer, pool: self.clone() }).slice(range)
    }

    fn put_back(&self, buffer: Vec<u8>) {
        if buffer.len() < LEAST {
            return;
        }
        let mut unused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unused.lent = unused.lent.saturating_sub(buffer.len());
        if unused.bytes + unused.lent + buffer.len() <= unused.most_bytes {
            unused.bytes += buffer.len();
            unused.by_length.entry(buffer.len()).or_default().push(buffer);
        }
    }
}

struct LentBuffer {
    buffer: Vec<u8>,
    pool: BytePool,
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.pool.put_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_with_their_last_slice() {
        let pool = BytePool::new(3 << 20);
        let buffer = pool.take_buffer(1_000_000);
        assert_eq!(buffer.len(), 1 << 20);
        let place = buffer.as_ptr();
        let lent = pool.lend_buffer(buffer, 10..20);
        let slice = lent.slice(5..);
        drop(lent);
        let other = pool.take_buffer(1_000_000);
        assert_ne!(other.as_ptr(), place);
        assert_eq!(slice.len(), 5);
        drop(slice);
        let (smaller, fitting) = (pool.take_buffer(500_000), pool.take_buffer(900_000));
        assert_ne!(smaller.as_ptr(), place);
        assert_eq!(fitting.as_ptr(), place);
    }

    #[test]
    fn buffers_are_hardly_larger_than_needed() {
        for length in [0, 1, 65_535, 65_536, 100_000, 1 << 20, 4_000_001, 123_456_789] {
            assert!((length..=length + length / 8).contains(&rounded(length)), "{length}");
        }
    }

    #[test]
    fn buffers_that_are_kept_and_lent_have_a_limit() {
        let pool = BytePool::new(3 << 20);
        let state = || {
            let unused = pool.0.lock().unwrap_or_else(PoisonError::into_inner);
            (unused.bytes >> 20, unused.lent >> 20)
        };
        let lend = |length: usize| pool.lend_buffer(pool.take_buffer(length), 0..1);
        let (one, other, small) = (lend(1 << 20), lend(1 << 20), lend(1));
        drop((one, small));
        assert_eq!(state(), (1, 1));
        let large = lend(2 << 20);
        assert_eq!(state(), (0, 3));
        drop((other, large));
        assert_eq!(state(), (3, 0));
        let all = [lend(2 << 20), lend(2 << 20)];
        assert_eq!(state(), (0, 4));
        drop(all);
        assert_eq!(state(), (2, 0));
    }
}
