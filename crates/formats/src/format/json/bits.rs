//! Bit sequences to which single bits are appended: booleans, and null masks.
//!
//! ```text
//! words   [ bit 0 .. bit 63 ] [ bit 64 .. ]       bits after the last are zero
//! ```
//!
//! Storage grows once per 64 bits, whereas Arrow's builders resize with every bit.

use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};

const WORD: usize = u64::BITS as usize;

/// A sequence of bits.
#[derive(Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    fn with_ones(len: usize) -> Self {
        let mut bits = Self { words: vec![u64::MAX; len.div_ceil(WORD)], len };
        bits.clear_tail();
        bits
    }

    #[inline]
    pub(super) fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(WORD) {
            self.words.push(0);
        }
        if let Some(last) = self.words.last_mut() {
            *last |= u64::from(bit) << (self.len % WORD);
        }
        self.len += 1;
    }

    /// Truncates to the first `len` bits, if there are as many.
    pub(super) fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            self.words.truncate(len.div_ceil(WORD));
            self.clear_tail();
        }
    }

    pub(super) fn finish(mut self) -> BooleanBuffer {
        self.words.iter_mut().for_each(|word| *word = word.to_le());
        BooleanBuffer::new(Buffer::from_vec(self.words), 0, self.len)
    }

    fn clear_tail(&mut self) {
        let used = self.len % WORD;
        if let Some(last) = self.words.last_mut().filter(|_| used > 0) {
            *last &= (1 << used) - 1;
        }
    }
}

/// Null mask of a column; nothing is stored before the first null.
#[derive(Debug, Default)]
pub(super) struct Validity {
    len: usize,
    bits: Option<Bits>,
}

impl Validity {
    /// Returns the number of values.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn push_valid(&mut self) {
        if let Some(bits) = &mut self.bits {
            bits.push(true);
        }
        self.len += 1;
    }

    #[inline]
    pub(super) fn push_null(&mut self) {
        self.bits.get_or_insert_with(|| Bits::with_ones(self.len)).push(false);
        self.len += 1;
    }

    /// Truncates to the first `len` values, if there are as many.
    #[inline]
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if let Some(bits) = &mut self.bits {
            bits.truncate(len);
        }
    }

    pub(super) fn finish(self) -> Option<NullBuffer> {
        self.bits.map(|bits| NullBuffer::new(bits.finish())).filter(|nulls| nulls.null_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_are_read_as_written(
            first in prop::collection::vec(any::<bool>(), 0..200), keep in 0usize..250,
            more in prop::collection::vec(any::<bool>(), 0..200),
        ) {
            let (mut expected, mut bits, mut validity) = (Vec::new(), Bits::default(), Validity::default());
            for values in [first, more] {
                expected.truncate(keep);
                bits.truncate(keep);
                validity.truncate(keep);
                for value in values {
                    expected.push(value);
                    bits.push(value);
                    if value { validity.push_valid() } else { validity.push_null() }
                }
            }
            prop_assert_eq!(validity.len(), expected.len());
            prop_assert_eq!(bits.finish(), BooleanBuffer::from(expected.clone()));
            let nulls = NullBuffer::from(expected);
            prop_assert_eq!(validity.finish(), (nulls.null_count() > 0).then_some(nulls));
        }
    }
}
