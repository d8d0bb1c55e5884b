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

use super::{
    bits::{put_delta, put_delta_narrow},
    column::Word,
};

/// Appends numbers as byte streams.
pub(super) fn put_range<W: Word>(values: &[W], out: &mut Vec<u8>) {
    for byte in 0..W::WIDTH {
        out.extend(values.iter().map(|value| value.bits().to_le_bytes()[byte]));
    }
}

/// Appends integers as differences.
pub fn put_differences<W: Word>(values: &[W], out: &mut Vec<u8>) {
    if W::WIDTH == 4 {
        put_delta_narrow(out, &values.iter().map(|value| low_bits(value.signed())).collect::<Vec<i32>>());
    } else {
        put_delta(out, &values.iter().map(|value| value.signed()).collect::<Vec<i64>>());
    }
}

/// Appends bits, lowest bit first.
pub(super) fn put_bits(values: &BooleanBuffer, out: &mut Vec<u8>) {
    let chunks = values.bit_chunks();
    chunks.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    out.extend_from_slice(&chunks.remainder_bits().to_le_bytes()[..chunks.remainder_len().div_ceil(8)]);
}

/// Appends texts, each preceded by its length.
pub fn put_texts(values: &[&[u8]], out: &mut Vec<u8>) {
    out.reserve(values.iter().map(|value| value.len() + 4).sum());
    for value in values {
        out.extend_from_slice(&text_length(value).to_le_bytes());
        out.extend_from_slice(value);
    }
}

/// Appends the lengths of all texts, followed by the texts.
pub fn put_texts_after_lengths(values: &[&[u8]], out: &mut Vec<u8>) {
    let lengths: Vec<i32> = values.iter().map(|value| text_length(value).cast_signed()).collect();
    put_delta_narrow(out, &lengths);
    out.reserve(values.iter().map(|value| value.len()).sum());
    values.iter().for_each(|value| out.extend_from_slice(value));
}

/// Appends of each text the part that it does not share with the previous one.
pub fn put_texts_without_prefixes(values: &[&[u8]], out: &mut Vec<u8>) {
    let mut before: &[u8] = &[];
    let (mut shared, mut lengths) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
    let mut rest = Vec::new();
    for &value in values {
        let prefix = shared_prefix(before, value);
        let own = &value[prefix..];
        shared.push(i32::try_from(prefix).unwrap_or(i32::MAX));
        lengths.push(text_length(own).cast_signed());
        rest.extend_from_slice(own);
        before = value;
    }
    put_delta_narrow(out, &shared);
    put_delta_narrow(out, &lengths);
    out.extend_from_slice(&rest);
}

/// Returns the length of the common prefix in bytes.
pub fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    let most = one.len().min(other.len());
    let (one, other) = (&one[..most], &other[..most]);
    let (one_words, one_rest) = one.as_chunks::<8>();
    let (other_words, other_rest) = other.as_chunks::<8>();
    for (number, (a, b)) in one_words.iter().zip(other_words).enumerate() {
        if a != b {
            return number * 8 + same_bytes(a, b);
        }
    }
    match (one.last_chunk(), other.last_chunk()) {
        // The last whole word, part of which is known to be the same.
        (Some(a), Some(b)) if a != b => most - 8 + same_bytes(a, b),
        (Some(_), _) => most,
        _ => one_rest.iter().zip(other_rest).take_while(|(a, b)| a == b).count(),
    }
}

/// Returns how many bytes are the same before the first that differs.
fn same_bytes(a: &[u8; 8], b: &[u8; 8]) -> usize {
    (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).trailing_zeros() as usize / 8
}

#[expect(clippy::cast_possible_truncation, reason = "differences wrap at this width")]
fn low_bits(value: i64) -> i32 {
    value as i32
}

/// Returns the length of a text; longer ones than 31 bits can count are left to the general writer.
fn text_length(value: &[u8]) -> u32 {
    u32::try_from(value.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_the_first_byte_that_differs() {
        let text: Vec<u8> = (0..40).collect();
        for len in 0..=text.len() {
            assert_eq!(shared_prefix(&text[..len], &text), len);
            assert_eq!(shared_prefix(&text, &text[..len]), len);
            for at in 0..len {
                let mut other = text[..len].to_vec();
                other[at] ^= 0x80;
                assert_eq!((shared_prefix(&other, &text), shared_prefix(&text, &other)), (at, at), "{len}");
            }
        }
    }
}
