//! The bytes of a block as numbers, texts and lengths, and what can be wrong with them.
//!
//! Two kinds of faults are told apart. A value that its type cannot have, such as text that is not UTF-8, concerns one
//! record: where it ends is known. After a length or a branch that cannot be, nothing is known of the rest of the
//! block, and not much of what is before it.

use super::header::{Number, read_number};

/// What makes a block unreadable. It is boxed, so that numbers are returned in registers.
#[derive(Debug)]
pub(super) struct Damage {
    /// What was expected, and what was found.
    pub(super) reason: String,
    /// Offset in the data of the block.
    pub(super) at: usize,
    /// Name of the column, if it is known.
    pub(super) column: Option<String>,
}

/// Data of a block, read from its start.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the offset of the next byte.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Returns the bytes that were read since an offset.
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    /// Returns the number of bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub(super) fn take_long(&mut self) -> Result<i64, Box<Damage>> {
        if let Some(byte @ 0..0x80) = self.bytes.get(self.at).copied() {
            self.at += 1;
            let bits = i64::from(byte);
            return Ok((bits >> 1) ^ -(bits & 1));
        }
        self.take_long_number()
    }

    fn take_long_number(&mut self) -> Result<i64, Box<Damage>> {
        match read_number(&self.bytes[self.at..]) {
            Number::Whole { value, bytes } => {
                self.at += bytes;
                Ok(value)
            }
            Number::Cut => Err(self.damage("expected a number, found the end of the block")),
            Number::Endless => Err(self.damage("expected a number of at most 64 bits, found a longer one")),
        }
    }

    #[inline]
    pub(super) fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], Box<Damage>> {
        match self.bytes[self.at..].split_at_checked(length) {
            Some((found, _)) => {
                self.at += length;
                Ok(found)
            }
            None => Err(self.beyond(length as u64)),
        }
    }

    /// Takes as many bytes as an array has.
    #[inline]
    pub(super) fn take_array<const N: usize>(&mut self) -> Result<[u8; N], Box<Damage>> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(found) => {
                self.at += N;
                Ok(*found)
            }
            None => Err(self.beyond(N as u64)),
        }
    }

    /// Takes a length and as many bytes.
    #[inline]
    pub(super) fn take_counted(&mut self) -> Result<&'a [u8], Box<Damage>> {
        let length = self.take_long()?;
        match usize::try_from(length) {
            Ok(length) => self.take_bytes(length),
            Err(_) => Err(self.damage(&format!("expected a length, found {length}"))),
        }
    }

    /// Takes the number of the next items of an array or a map, of which each has at least `least` bytes; 0 is the end.
    /// Also returns the bytes of the items, if they are stated. More than `empty` items without bytes are damage.
    pub(super) fn take_count(&mut self, least: u64, empty: u64) -> Result<(u64, Option<usize>), Box<Damage>> {
        let count = self.take_long()?;
        let bytes = match count {
            0.. => None,
            _ => {
                let bytes = self.take_long()?;
                let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= self.left());
                Some(fits.ok_or_else(|| self.beyond_signed(bytes))?)
            }
        };
        let most = (self.left() as u64).checked_div(least).unwrap_or(empty);
        let count = count.unsigned_abs();
        if count > most {
            return Err(self.damage(&format!("expected at most {most} items in the rest of the block, found {count}")));
        }
        Ok((count, bytes))
    }

    pub(super) fn damage(&self, reason: &str) -> Box<Damage> {
        Box::new(Damage { reason: reason.to_owned(), at: self.at, column: None })
    }

    fn beyond(&self, length: u64) -> Box<Damage> {
        self.damage(&format!("expected {length} bytes, found {} before the end of the block", self.left()))
    }

    fn beyond_signed(&self, length: i64) -> Box<Damage> {
        self.damage(&format!("expected items within the block, found some of {length} bytes"))
    }
}
