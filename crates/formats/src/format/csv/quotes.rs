//! Converts sources with unusual quotes to the usual quotes as their bytes arrive, so that no other code needs to know
//! of them.
//!
//! ```text
//! swapped   1,'a, b',it"s     ->   1,"a, b",it's       " and ' change places, and back in the values
//! spaced    1, "a, b" ,2      ->   1," a, b ",2        spaces outside of quotes move inside, where they are taken off
//! ```
//!
//! The number of bytes does not change, so that positions in messages are correct.

use std::io::{self, Read};

use super::tokenize::{CR, LF, QUOTE};

/// The alternative quote.
pub(super) const SINGLE: u8 = b'\'';
/// Number of bytes that are read at a time.
const PIECE: usize = 64 << 10;
/// Maximum number of spaces that are moved into quotes; further ones stay where they are.
const MAX_SPACES: usize = 1 << 10;

/// How the quotes of a source differ from the usual ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Quotes {
    /// Whether `'` is the quote, and `"` is not.
    pub(super) swapped: bool,
    /// Whether there are spaces between delimiters and quotes.
    pub(super) spaced: bool,
}

impl Quotes {
    /// Whether the quotes are the usual ones.
    pub(super) fn are_usual(self) -> bool {
        self == Self::default()
    }

    /// Converts the head of a source.
    pub(super) fn apply(self, delimiter: u8, head: &[u8]) -> Vec<u8> {
        let mut turn = Turn::new(self, delimiter);
        let mut out = Vec::with_capacity(head.len());
        turn.convert_bytes(head, &mut out);
        turn.flush(&mut out);
        out
    }

    /// Returns the original name of a column.
    pub(super) fn name(self, name: &str) -> String {
        let name = if self.spaced { name.trim() } else { name };
        if !self.swapped {
            return name.to_owned();
        }
        name.chars()
            .map(|one| match one {
                '"' => '\'',
                '\'' => '"',
                one => one,
            })
            .collect()
    }

    /// Restores the original bytes of a value or record.
    pub(super) fn restore_bytes(self, bytes: &mut [u8]) {
        if self.swapped {
            bytes.iter_mut().for_each(|byte| *byte = swap_quote(*byte));
        }
    }
}

fn swap_quote(byte: u8) -> u8 {
    match byte {
        QUOTE => SINGLE,
        SINGLE => QUOTE,
        byte => byte,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    /// At the start of a field or after its leading spaces.
    Start,
    Plain,
    Inside,
    /// After a quote that may be closing, or after spaces that follow it.
    Closing,
}

/// Converts bytes to the usual quotes.
#[derive(Debug)]
struct Turn {
    quotes: Quotes,
    delimiter: u8,
    at: QuoteState,
    /// Number of spaces that were not written yet.
    spaces: usize,
}

impl Turn {
    fn new(quotes: Quotes, delimiter: u8) -> Self {
        Self { quotes, delimiter, at: QuoteState::Start, spaces: 0 }
    }

    fn convert_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            let byte = if self.quotes.swapped { swap_quote(byte) } else { byte };
            if self.quotes.spaced { self.convert_byte(byte, out) } else { out.push(byte) }
        }
    }

    fn convert_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        let ends = byte == self.delimiter || byte == LF || byte == CR;
        match self.at {
            QuoteState::Start | QuoteState::Closing
                if byte == b' ' && self.delimiter != b' ' && self.spaces < MAX_SPACES =>
            {
                return self.spaces += 1;
            }
            QuoteState::Start if byte == QUOTE => {
                out.push(QUOTE);
                self.write_spaces(out);
                return self.at = QuoteState::Inside;
            }
            QuoteState::Closing if ends => {
                self.write_spaces(out);
                out.extend([QUOTE, byte]);
                return self.at = QuoteState::Start;
            }
            QuoteState::Closing => {
                out.push(QUOTE);
                // Two quotes are one; anything else does not end the field.
                let escaped = byte == QUOTE && self.spaces == 0;
                self.write_spaces(out);
                self.at = QuoteState::Inside;
                if !escaped {
                    return self.convert_byte(byte, out);
                }
            }
            QuoteState::Inside if byte == QUOTE => return self.at = QuoteState::Closing,
            QuoteState::Inside => {}
            QuoteState::Start | QuoteState::Plain => {
                self.write_spaces(out);
                self.at = if ends { QuoteState::Start } else { QuoteState::Plain };
            }
        }
        out.push(byte);
    }

    fn write_spaces(&mut self, out: &mut Vec<u8>) {
        out.resize(out.len() + std::mem::take(&mut self.spaces), b' ');
    }

    /// Writes the remaining bytes at the end.
    fn flush(&mut self, out: &mut Vec<u8>) {
        self.write_spaces(out);
        if self.at == QuoteState::Closing {
            out.push(QUOTE);
        }
    }
}

/// A reader of a source that converts its quotes. The first bytes, such as a byte order mark or a preamble, are not
/// converted.
pub(super) struct Turned<R> {
    input: R,
    turn: Turn,
    /// Number of bytes that are not converted.
    head: u64,
    ready: Vec<u8>,
    given: usize,
    ended: bool,
}

impl<R: Read> Turned<R> {
    pub(super) fn new(input: R, quotes: Quotes, delimiter: u8, head: u64) -> Self {
        Self { input, turn: Turn::new(quotes, delimiter), head, ready: Vec::new(), given: 0, ended: false }
    }

    fn read_piece(&mut self) -> io::Result<()> {
        (self.given, self.ended) = (0, false);
        self.ready.clear();
        let mut piece = vec![0; PIECE];
        let read = self.input.read(&mut piece)?;
        let untouched = usize::try_from(self.head).unwrap_or(usize::MAX).min(read);
        self.head -= untouched as u64;
        self.ready.extend_from_slice(&piece[..untouched]);
        self.turn.convert_bytes(&piece[untouched..read], &mut self.ready);
        if read == 0 {
            self.turn.flush(&mut self.ready);
            self.turn.at = QuoteState::Plain;
            self.ended = true;
        }
        Ok(())
    }
}

impl<R: Read> Read for Turned<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() && !self.ended {
            self.read_piece()?;
        }
        let length = out.len().min(self.ready.len() - self.given);
        out[..length].copy_from_slice(&self.ready[self.given..self.given + length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_converted_for_any_size_of_reads() {
        let (swapped, spaced) = (Quotes { swapped: true, spaced: false }, Quotes { swapped: false, spaced: true });
        for (quotes, text, wanted) in [
            (swapped, "1,'a, b',it\"s\n", "1,\"a, b\",it's\n"),
            (spaced, "1, \"a, b\" ,2\n", "1,\" a, b \",2\n"),
            (spaced, "1 , x \n \"a \"\"b\"\"\"\n", "1 , x \n\" a \"\"b\"\"\"\n"),
            (spaced, " \"a, \nb\"", "\" a, \nb\""),
            (spaced, "a,  ", "a,  "),
        ] {
            assert_eq!(String::from_utf8(quotes.apply(b',', text.as_bytes())).unwrap(), wanted);
            for piece in 1..4 {
                let mut out = Vec::new();
                let pieces = text.as_bytes().chunks(piece).map(<[u8]>::to_vec);
                let input = pieces.fold(Box::new(io::empty()) as Box<dyn Read>, |all, piece| {
                    Box::new(all.chain(io::Cursor::new(piece)))
                });
                Turned::new(input, quotes, b',', 0).read_to_end(&mut out).unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), wanted, "pieces of {piece}");
            }
        }
    }
}
