//! Values of a page in the encodings without a dictionary.
//!
//! ```text
//! PLAIN                    numbers, little-endian            texts: u32 length, bytes
//! BYTE_STREAM_SPLIT        byte 0 of all, byte 1 of all, ...
//! DELTA_BINARY_PACKED      see `bits`
//! DELTA_LENGTH_BYTE_ARRAY  lengths as differences | bytes of all
//! DELTA_BYTE_ARRAY         lengths of the prefixes shared with the previous text, as differences | the rest, as above
//! ```

use arrow::buffer::BooleanBuffer;

use super::{bits::put_delta, column::Word};

/// Appends numbers as byte streams.
pub(super) fn put_split<W: Word>(values: &[W], out: &mut Vec<u8>) {
    for byte in 0..W::WIDTH {
        out.extend(values.iter().map(|value| value.bits().to_le_bytes()[byte]));
    }
}

/// Appends integers as differences.
pub(crate) fn put_differences<W: Word>(values: &[W], out: &mut Vec<u8>) {
    let signed: Vec<i64> = values.iter().map(|value| value.signed()).collect();
    put_delta(out, &signed, W::WIDTH == 4);
}

/// Appends bits, lowest bit first.
pub(super) fn put_bits(values: &BooleanBuffer, out: &mut Vec<u8>) {
    let chunks = values.bit_chunks();
    chunks.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    out.extend_from_slice(&chunks.remainder_bits().to_le_bytes()[..chunks.remainder_len().div_ceil(8)]);
}

/// Appends texts, each preceded by its length.
pub(crate) fn put_texts(values: &[&[u8]], out: &mut Vec<u8>) {
    out.reserve(values.iter().map(|value| value.len() + 4).sum());
    for value in values {
        out.extend_from_slice(&length(value).to_le_bytes());
        out.extend_from_slice(value);
    }
}

/// Appends the lengths of all texts, followed by the texts.
pub(crate) fn put_texts_after_lengths(values: &[&[u8]], out: &mut Vec<u8>) {
    let lengths: Vec<i64> = values.iter().map(|value| i64::from(length(value))).collect();
    put_delta(out, &lengths, true);
    out.reserve(values.iter().map(|value| value.len()).sum());
    values.iter().for_each(|value| out.extend_from_slice(value));
}

/// Appends of each text the part that it does not share with the previous one.
pub(crate) fn put_texts_without_prefixes(values: &[&[u8]], out: &mut Vec<u8>) {
    let mut before: &[u8] = &[];
    let mut shared = Vec::with_capacity(values.len());
    let mut rest = Vec::with_capacity(values.len());
    for &value in values {
        let prefix = shared_prefix(before, value);
        shared.push(prefix as i64);
        rest.push(&value[prefix..]);
        before = value;
    }
    put_delta(out, &shared, true);
    put_texts_after_lengths(&rest, out);
}

/// Returns the length of the common prefix in bytes.
pub(crate) fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    let (one_words, _) = one.as_chunks::<8>();
    let (other_words, _) = other.as_chunks::<8>();
    let words = one_words.iter().zip(other_words).take_while(|(a, b)| a == b).count() * 8;
    words + one[words..].iter().zip(&other[words..]).take_while(|(a, b)| a == b).count()
}

/// Returns the length of a text; longer ones than 31 bits can count are left to the general writer.
fn length(value: &[u8]) -> u32 {
    u32::try_from(value.len()).unwrap_or(u32::MAX)
}
