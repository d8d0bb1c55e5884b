//! Reusable buffers.
//!
//! Megabytes that one thread allocates and another frees are returned to the system each time, which then has to clear
//! every page again. Buffers that are needed at the rate of the data are kept here instead:
//!
//! ```text
//! take -> Vec -> lend -> Bytes, and slices of it -> the last one dropped -> take ...
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use bytes::Bytes;

/// Default maximum number of buffers kept.
const MAX_BUFFERS: usize = 16;

/// Maximum number of column buffers kept: enough for the columns of a few units.
const MAX_COLUMN_BUFFERS: usize = 256;

/// Maximum bytes of all buffers kept.
const MAX_KEPT_BYTES: usize = 96 << 20;

/// Maximum capacity in bytes of a buffer that is kept.
const MAX_CAPACITY: usize = 16 << 20;

/// Capacities are multiples of this, so that buffers for pieces of similar size are interchangeable.
const STEP: usize = 256 << 10;

/// Maximum ratio of a buffer's capacity to the requested one.
const MAX_RATIO: usize = 4;

/// A pool of unused buffers.
#[derive(Debug, Clone)]
pub struct BufferPool(Arc<Mutex<PooledBuffers>>);

#[derive(Debug)]
struct PooledBuffers {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
    max_buffers: usize,
}

impl Default for BufferPool {
    fn default() -> Self {
        Self::with_max_buffers(MAX_BUFFERS)
    }
}

/// Returns the pool for values of columns, which one stage of a pipeline builds and another drops.
pub fn column_buffers() -> &'static BufferPool {
    static COLUMNS: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::with_max_buffers(MAX_COLUMN_BUFFERS));
    &COLUMNS
}

/// Returns the pool for the bytes of ranges, which one stage of a pipeline reads and another drops. Its buffers are
/// initialised to their lengths.
pub fn range_buffers() -> &'static BufferPool {
    static RANGES: LazyLock<BufferPool> = LazyLock::new(BufferPool::default);
    &RANGES
}

impl BufferPool {
    fn with_max_buffers(max_buffers: usize) -> Self {
        Self(Arc::new(Mutex::new(PooledBuffers { buffers: VecDeque::new(), bytes: 0, max_buffers })))
    }

    /// Returns an empty buffer with a capacity of at least `capacity` bytes; if that is 0, the size is unknown and the
    /// largest buffer is returned.
    pub fn take_buffer(&self, capacity: usize) -> Vec<u8> {
        let mut buffer =
            self.take_fitting(capacity).unwrap_or_else(|| Vec::with_capacity(capacity.next_multiple_of(STEP)));
        buffer.clear();
        buffer
    }

    /// Returns a buffer of at least `length` bytes with unspecified content.
    pub fn take_filled(&self, length: usize) -> Vec<u8> {
        match self.take_fitting(length) {
            Some(mut buffer) => {
                buffer.resize(buffer.len().max(length), 0);
                buffer
            }
            None => vec![0; length],
        }
    }

    /// Returns the buffer that came back last, with unspecified content: the one most probably of the size of the next.
    pub fn take_latest(&self) -> Option<Vec<u8>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = kept.buffers.pop_back()?;
        kept.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Returns the smallest buffer with this capacity.
    fn take_fitting(&self, capacity: usize) -> Option<Vec<u8>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |found| (capacity..=capacity.max(STEP) * MAX_RATIO).contains(&found);
        let buffers = kept.buffers.iter().map(Vec::capacity).enumerate();
        let (place, _) = match capacity {
            0 => buffers.max_by_key(|(_, capacity)| *capacity),
            _ => buffers.filter(|(_, capacity)| fits(*capacity)).min_by_key(|(_, capacity)| *capacity),
        }?;
        let buffer = kept.buffers.remove(place)?;
        kept.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Makes the buffer immutable; it returns to the pool when nothing refers to it any more.
    pub fn lend_buffer(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, pool: self.clone() })
    }

    /// Takes a buffer back, unless it is empty or too large to be kept.
    pub fn put_back(&self, buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest buffers are dropped first, because they have not been requested for the longest time.
        while kept.buffers.len() >= kept.max_buffers || kept.bytes + capacity > MAX_KEPT_BYTES {
            let Some(oldest) = kept.buffers.pop_front() else { break };
            kept.bytes -= oldest.capacity();
        }
        kept.bytes += capacity;
        kept.buffers.push_back(buffer);
    }
}

struct Lent {
    buffer: Vec<u8>,
    pool: BufferPool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.put_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_buffer_keeps_its_length() {
        let pool = BufferPool::default();
        assert!(pool.take_latest().is_none());
        pool.put_back(Vec::new());
        pool.put_back(vec![1; 10]);
        drop(pool.lend_buffer(vec![2; 20]));
        assert_eq!(pool.take_latest().map(|buffer| buffer.len()), Some(20));
        assert_eq!(pool.take_latest().map(|buffer| buffer.len()), Some(10));
        assert!(pool.take_latest().is_none());
    }

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_is_dropped() {
        let pool = BufferPool::default();
        let mut buffer = pool.take_buffer(100);
        buffer.extend_from_slice(b"abcdef");
        let place = buffer.as_ptr();
        let whole = pool.lend_buffer(buffer);
        let slice = whole.slice(2..4);
        drop(whole);
        let other = pool.take_buffer(1);
        assert_ne!(other.as_ptr(), place);
        assert_eq!(&slice[..], b"cd");
        drop(slice);
        let again = pool.take_buffer(STEP);
        assert_eq!(again.as_ptr(), place);
        assert!(again.is_empty());
    }

    #[test]
    fn a_buffer_that_is_too_small_or_too_large_is_not_returned() {
        let pool = BufferPool::default();
        drop(pool.lend_buffer(pool.take_buffer(10)));
        assert!(pool.take_buffer(STEP + 1).capacity() > STEP);
        drop(pool.lend_buffer(Vec::with_capacity(MAX_CAPACITY + 1)));
        assert!(pool.take_buffer(1).capacity() <= MAX_CAPACITY);
    }
    #[test]
    fn filled_buffers_keep_their_length() {
        let pool = BufferPool::default();
        let mut buffer = pool.take_filled(1000);
        buffer[..3].copy_from_slice(b"abc");
        let place = buffer.as_ptr();
        buffer.truncate(900);
        drop(pool.lend_buffer(buffer));
        let again = pool.take_filled(950);
        assert_eq!((again.as_ptr(), again.len(), &again[..3]), (place, 950, &b"abc"[..]));
    }

    #[test]
    fn the_oldest_buffer_is_dropped_first() {
        let pool = BufferPool::with_max_buffers(2);
        let buffers: Vec<Vec<u8>> = (1..4).map(|i| Vec::with_capacity(i * STEP)).collect();
        buffers.into_iter().for_each(|buffer| drop(pool.lend_buffer(buffer)));
        assert_eq!(pool.take_fitting(1).map(|buffer| buffer.capacity()), Some(2 * STEP));
        assert_eq!(pool.take_fitting(1).map(|buffer| buffer.capacity()), Some(3 * STEP));
        assert!(pool.take_fitting(1).is_none());
    }
}
