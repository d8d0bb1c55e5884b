//! Search for the bytes that end the copy of a string, 32 at a time: quotes, backslashes and control characters.
//!
//! ```text
//! chunk   M  ü  l  l  e  r  "  ,  "  a ...
//! stops   0  0  0  0  0  0  0  1  0  1 ...     (bit per byte, the first lowest)
//! beyond  0  1  1  0  0  0  0  0  0  0 ...     not ASCII: must be validated
//! ```

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector instructions"))]

/// Bytes classified at a time.
pub(super) const WIDTH: usize = 32;

/// Bytes compared at a time.
pub(super) const LANE: usize = 16;

/// A block of bytes that are compared at a time.
pub(super) type Lane = [u8; LANE];

/// Classification of some bytes, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    /// Bytes that are not copied unchanged.
    pub(super) stops: u32,
    /// Non-ASCII bytes.
    pub(super) beyond: u32,
}

/// Classifies bytes with the best instructions that every machine of this architecture has.
#[inline(always)]
pub(super) fn mark_chunk(chunk: &[u8; WIDTH]) -> Marks {
    #[cfg(target_arch = "x86_64")]
    return sse2(chunk);
    #[cfg(not(target_arch = "x86_64"))]
    scalar(chunk)
}

/// Like [`mark_chunk`], without vector instructions.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn scalar(chunk: &[u8; WIDTH]) -> Marks {
    const LOWEST_BITS: u64 = 0x0101_0101_0101_0101;
    const HIGHEST_BITS: u64 = 0x8080_8080_8080_8080;
    // Gathers the highest bit of each byte.
    let gather =
        |bits: u64| u32::from(((bits & HIGHEST_BITS) >> 7).wrapping_mul(0x0102_0408_1020_4080).to_be_bytes()[0]);
    // Marks bytes below 0x80 that are less than `limit`.
    let less = |word: u64, limit: u64| !((word | HIGHEST_BITS) - LOWEST_BITS * limit) & !word & HIGHEST_BITS;
    let equal = |word: u64, byte: u8| less(word ^ (LOWEST_BITS * u64::from(byte)), 1);
    let mut marks = Marks { stops: 0, beyond: 0 };
    for (i, bytes) in chunk.as_chunks::<8>().0.iter().enumerate() {
        let word = u64::from_le_bytes(*bytes);
        let stops = less(word, 0x20) | equal(word, b'"') | equal(word, b'\\');
        marks.stops |= gather(stops) << (8 * i);
        marks.beyond |= gather(word) << (8 * i);
    }
    marks
}

/// Whether bytes equal the wanted ones where the mask has ones; the wanted ones have zeros elsewhere.
#[inline(always)]
pub(super) fn agree(bytes: &Lane, mask: &Lane, wanted: &Lane) -> bool {
    #[cfg(target_arch = "x86_64")]
    return agree_sse2(bytes, mask, wanted);
    #[cfg(not(target_arch = "x86_64"))]
    agree_scalar(bytes, mask, wanted)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn agree_scalar(bytes: &Lane, mask: &Lane, wanted: &Lane) -> bool {
    u128::from_ne_bytes(*bytes) & u128::from_ne_bytes(*mask) == u128::from_ne_bytes(*wanted)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn agree_sse2(bytes: &Lane, mask: &Lane, wanted: &Lane) -> bool {
    use std::arch::x86_64::{__m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
    // SAFETY: every x86-64 processor has SSE2, and each of the three is read as the 16 bytes that it is.
    unsafe {
        let load = |lane: &Lane| _mm_loadu_si128(lane.as_ptr().cast::<__m128i>());
        let equal = _mm_cmpeq_epi8(_mm_and_si128(load(bytes), load(mask)), load(wanted));
        _mm_movemask_epi8(equal) == 0xffff
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn sse2(chunk: &[u8; WIDTH]) -> Marks {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };
    let half = |at: usize| {
        // SAFETY: every x86-64 processor has SSE2, and 16 bytes from 0 or 16 on are within the 32 of the chunk.
        unsafe {
            let bytes = _mm_loadu_si128(chunk.as_ptr().add(at).cast::<__m128i>());
            let quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"'.cast_signed()));
            let backslashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\'.cast_signed()));
            let controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
            let stops = _mm_or_si128(_mm_or_si128(quotes, backslashes), controls);
            (_mm_movemask_epi8(stops).cast_unsigned(), _mm_movemask_epi8(bytes).cast_unsigned())
        }
    };
    let (low, high) = (half(0), half(16));
    Marks { stops: low.0 | high.0 << 16, beyond: low.1 | high.1 << 16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(chunk: &[u8; WIDTH]) -> Marks {
        let bits = |test: fn(u8) -> bool| chunk.iter().rev().fold(0, |bits, &b| bits << 1 | u32::from(test(b)));
        Marks { stops: bits(|b| b < 0x20 || b == b'"' || b == b'\\'), beyond: bits(|b| b >= 0x80) }
    }

    #[test]
    fn lanes_agree_where_the_mask_says_so() {
        for length in 0..=LANE {
            let mut mask = [0; LANE];
            mask[..length].fill(0xff);
            for at in 0..LANE {
                for byte in [0, b'a', b'b', 0x80 | b'a', 0xff] {
                    let (mut bytes, mut wanted) = ([b'a'; LANE], [b'a'; LANE]);
                    bytes[at] = byte;
                    wanted[length..].fill(0);
                    let expected = bytes[..length] == wanted[..length];
                    assert_eq!(agree_scalar(&bytes, &mask, &wanted), expected);
                    assert_eq!(agree(&bytes, &mask, &wanted), expected);
                }
            }
        }
        assert!(!agree(&[0; LANE], &[0; LANE], &[1; LANE]));
    }

    #[test]
    fn every_byte_in_every_place_is_marked_as_it_should_be() {
        for filling in [b'a', b'"', 0, 0x1f, 0x20, 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']'] {
            for at in 0..WIDTH {
                for byte in 0..=u8::MAX {
                    let mut chunk = [filling; WIDTH];
                    chunk[at] = byte;
                    assert_eq!(scalar(&chunk), plain(&chunk), "{chunk:?}");
                    assert_eq!(mark_chunk(&chunk), plain(&chunk), "{chunk:?}");
                }
            }
        }
    }
}
