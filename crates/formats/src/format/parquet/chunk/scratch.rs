//! Memory that the columns encoded by one thread reuse.
//!
//! A row group has many columns, each of which needs megabytes for a short time. If they were returned to the system,
//! it would have to clear them page by page for the next column, which takes longer than filling them.

use std::cell::RefCell;

use super::{
    column::DenseValues,
    compress::{Compressor, MatchSearch},
};
use crate::{codec::Codec, error::Result};

/// Maximum size in bytes of a buffer that is kept; larger ones are freed.
const MAX_KEPT_BYTES: usize = 8 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Buffers whose contents are irrelevant.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) narrow: Vec<u32>,
    pub(super) wide: Vec<u64>,
    texts: Vec<&'static [u8]>,
    /// Dictionary indices of values.
    pub(super) indices: Vec<u32>,
    /// The page that is being assembled.
    pub(super) body: Vec<u8>,
    /// The most recently compressed page.
    pub(super) packed: Vec<u8>,
    compressor: Option<(Codec, Compressor)>,
}

impl Scratch {
    /// Takes this thread's buffers; [`put_back`](Self::put_back) stores them again.
    pub(super) fn take_local() -> Self {
        SCRATCH.take()
    }

    /// Keeps the buffers for the next column of this thread.
    pub(super) fn put_back(mut self) {
        limit_capacity(&mut self.narrow);
        limit_capacity(&mut self.wide);
        limit_capacity(&mut self.texts);
        limit_capacity(&mut self.indices);
        limit_capacity(&mut self.body);
        limit_capacity(&mut self.packed);
        SCRATCH.set(self);
    }

    /// Reclaims the buffer of a column's values.
    pub(super) fn take_back(&mut self, values: DenseValues<'_>) {
        match values {
            DenseValues::Narrow(values) => self.narrow = values,
            DenseValues::Wide(values) => self.wide = values,
            DenseValues::Bytes(values) => self.texts = empty_texts(values),
            DenseValues::Bits(_) => {}
        }
    }

    /// Returns a buffer for texts of any lifetime.
    pub(super) fn take_texts<'a>(&mut self) -> Vec<&'a [u8]> {
        empty_texts(std::mem::take(&mut self.texts))
    }

    /// Returns a page compressor, which [`Self::keep_compressor`] stores again.
    ///
    /// # Errors
    /// When the level of the codec is out of range.
    pub(super) fn take_compressor(&mut self, codec: Codec) -> Result<Compressor> {
        match self.compressor.take() {
            Some((of, mut compressor)) if of == codec => {
                compressor.set_search(MatchSearch::Usual)?;
                Ok(compressor)
            }
            _ => Compressor::new(codec),
        }
    }

    /// Keeps a compressor with its context.
    pub(super) fn keep_compressor(&mut self, codec: Codec, compressor: Compressor) {
        self.compressor = Some((codec, compressor));
    }
}

/// Returns the same memory for elements of another lifetime. Collecting in place reuses it.
fn empty_texts<'b>(mut texts: Vec<&[u8]>) -> Vec<&'b [u8]> {
    texts.clear();
    texts.into_iter().map(|_| -> &'b [u8] { &[] }).collect()
}

fn limit_capacity<T>(buffer: &mut Vec<T>) {
    buffer.clear();
    if buffer.capacity() * size_of::<T>() > MAX_KEPT_BYTES {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_texts_outlives_them() {
        let mut scratch = Scratch::default();
        let place = {
            let text = String::from("abc");
            let texts = vec![text.as_bytes(); 1000];
            let place = texts.as_ptr().addr();
            scratch.take_back(DenseValues::Bytes(texts));
            place
        };
        let texts = scratch.take_texts();
        assert_eq!((texts.as_ptr().addr(), texts.len(), texts.capacity()), (place, 0, 1000));
    }
}
