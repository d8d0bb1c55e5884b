//! Memory that is used again.
//!
//! Megabytes that are allocated by one thread and freed by another go back to the system each time, which then has to
//! clear every page again. What comes and goes at the pace of the data is kept here instead:
//!
//! ```text
//! take -> Vec -> lend -> Bytes, and slices of it -> the last one dropped -> take ...
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use bytes::Bytes;

/// Buffers kept at most, where nothing else is said.
const KEPT: usize = 16;

/// Buffers of columns kept at most: what the columns of a few units take.
const KEPT_OF_COLUMNS: usize = 256;

/// Bytes of all that is kept, at most.
const KEPT_BYTES: usize = 96 << 20;

/// Larger buffers are not kept.
const LARGEST: usize = 16 << 20;

/// Capacities are multiples of this, so that buffers for pieces of about one size can stand in for each other.
const STEP: usize = 256 << 10;

/// A buffer is not given for what is this many times smaller.
const TOO_LARGE: usize = 4;

/// Buffers that nobody uses.
#[derive(Debug, Clone)]
pub struct Spare(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Kept {
    buffers: VecDeque<Vec<u8>>,
    bytes: usize,
    most: usize,
}

impl Default for Spare {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

/// Memory of the values of columns, which are made by one stage of a pipeline and dropped by another.
pub fn of_columns() -> &'static Spare {
    static COLUMNS: LazyLock<Spare> = LazyLock::new(|| Spare::keeping(KEPT_OF_COLUMNS));
    &COLUMNS
}

impl Spare {
    fn keeping(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept { buffers: VecDeque::new(), bytes: 0, most })))
    }

    /// An empty buffer with room for `capacity` bytes at least; the largest there is if that is 0, for nobody knows.
    pub fn take(&self, capacity: usize) -> Vec<u8> {
        let mut buffer = self.find(capacity).unwrap_or_else(|| Vec::with_capacity(capacity.next_multiple_of(STEP)));
        buffer.clear();
        buffer
    }

    /// A buffer of `length` bytes at least, which hold anything.
    pub fn take_filled(&self, length: usize) -> Vec<u8> {
        match self.find(length) {
            Some(mut buffer) => {
                buffer.resize(buffer.len().max(length), 0);
                buffer
            }
            None => vec![0; length],
        }
    }

    /// The smallest buffer with so much room.
    fn find(&self, capacity: usize) -> Option<Vec<u8>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |found| (capacity..=capacity.max(STEP) * TOO_LARGE).contains(&found);
        let buffers = kept.buffers.iter().map(Vec::capacity).enumerate();
        let (place, _) = match capacity {
            0 => buffers.max_by_key(|(_, capacity)| *capacity),
            _ => buffers.filter(|(_, capacity)| fits(*capacity)).min_by_key(|(_, capacity)| *capacity),
        }?;
        let buffer = kept.buffers.remove(place)?;
        kept.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Makes the buffer immutable; it comes back when nothing refers to it any more.
    pub fn lend(&self, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { buffer, spare: self.clone() })
    }

    fn keep(&self, buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if !(1..=LARGEST).contains(&capacity) {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest make way, for nobody seems to want them.
        while kept.buffers.len() >= kept.most || kept.bytes + capacity > KEPT_BYTES {
            let Some(oldest) = kept.buffers.pop_front() else { break };
            kept.bytes -= oldest.capacity();
        }
        kept.bytes += capacity;
        kept.buffers.push_back(buffer);
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
    #[test]
    fn what_is_taken_filled_keeps_its_length() {
        let spare = Spare::default();
        let mut buffer = spare.take_filled(1000);
        buffer[..3].copy_from_slice(b"abc");
        let place = buffer.as_ptr();
        buffer.truncate(900);
        drop(spare.lend(buffer));
        let again = spare.take_filled(950);
        assert_eq!((again.as_ptr(), again.len(), &again[..3]), (place, 950, &b"abc"[..]));
    }

    #[test]
    fn the_oldest_makes_way() {
        let spare = Spare::keeping(2);
        let buffers: Vec<Vec<u8>> = (1..4).map(|i| Vec::with_capacity(i * STEP)).collect();
        buffers.into_iter().for_each(|buffer| drop(spare.lend(buffer)));
        assert_eq!(spare.find(1).map(|buffer| buffer.capacity()), Some(2 * STEP));
        assert_eq!(spare.find(1).map(|buffer| buffer.capacity()), Some(3 * STEP));
        assert!(spare.find(1).is_none());
    }
}
