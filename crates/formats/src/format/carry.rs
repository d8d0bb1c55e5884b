//! Bytes of a stream that were read but not returned yet, in buffers that are used again.
//!
//! ```text
//! buffer  [ the next range | carried over to the one after it | room ]
//!         0               end                             length     size
//! ```
//!
//! The room is initialised once for all sources. A buffer of megabytes that is allocated for each range is cleared by
//! the system when it is touched, and again before each read. Small ranges are copied, so that they hold no large
//! buffer.

use std::io::{self, Read};

use bytes::Bytes;

use crate::record::buffer_pool::range_buffers;

/// The bytes from the start of the next range on.
#[derive(Default)]
pub(super) struct Carried {
    buffer: Vec<u8>,
    length: usize,
}

impl Carried {
    /// Returns the bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Drops the bytes.
    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    /// Reads until there are `target` bytes; returns `false` if the source ends before. A buffer that is too small gets
    /// `room` bytes, or `target` if that is more.
    ///
    /// # Errors
    /// If reading fails; the bytes before the fault are kept.
    pub(super) fn fill_from(
        &mut self,
        input: &mut (impl Read + ?Sized),
        target: usize,
        room: usize,
    ) -> io::Result<bool> {
        if self.buffer.is_empty() {
            self.buffer = range_buffers().take_latest().unwrap_or_default();
        }
        if self.buffer.len() < target {
            self.buffer.resize(room.max(target), 0);
        }
        while self.length < target {
            match input.read(&mut self.buffer[self.length..target]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Removes and returns the first `end` bytes; `more` says whether others will be read after the rest.
    pub(super) fn take_front(&mut self, end: usize, more: bool) -> Bytes {
        let rest = end..self.length;
        self.length -= end;
        if end < self.buffer.len() / 2 {
            let range = Bytes::copy_from_slice(&self.buffer[..end]);
            self.buffer.copy_within(rest, 0);
            return range;
        }
        let next = range_buffers().take_latest().filter(|next| next.len() >= rest.len());
        let mut next = next.unwrap_or_else(|| vec![0; if more { self.buffer.len() } else { rest.len() }]);
        next[..rest.len()].copy_from_slice(&self.buffer[rest]);
        range_buffers().lend_buffer(std::mem::replace(&mut self.buffer, next)).slice(..end)
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        range_buffers().put_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_consecutive() {
        let mut input = &b"abcdefgh"[..];
        let mut carried = Carried::default();
        assert!(carried.fill_from(&mut input, 5, 6).unwrap());
        let first = carried.take_front(4, true);
        assert_eq!((&first[..], carried.as_slice()), (&b"abcd"[..], &b"e"[..]));
        assert!(carried.fill_from(&mut input, 6, 6).is_ok_and(|whole| !whole));
        let second = carried.take_front(4, true);
        assert_eq!((&second[..], carried.len()), (&b"efgh"[..], 0));
    }

    #[test]
    fn a_small_range_holds_no_large_buffer() {
        let mut carried = Carried::default();
        assert!(carried.fill_from(&mut &b"abcd"[..], 4, 100).unwrap());
        let place = carried.as_slice().as_ptr();
        assert_eq!(&carried.take_front(3, true)[..], b"abc");
        assert_eq!((carried.as_slice(), carried.as_slice().as_ptr()), (&b"d"[..], place));
    }

    #[test]
    fn bytes_before_a_fault_are_kept() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let mut carried = Carried::default();
        assert!(carried.fill_from(&mut b"ab".chain(Fails), 4, 4).is_err());
        assert_eq!(carried.as_slice(), b"ab");
        carried.clear();
        assert_eq!(carried.len(), 0);
    }
}
