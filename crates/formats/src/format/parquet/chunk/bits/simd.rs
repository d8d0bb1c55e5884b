//! Packs and unpacks groups of eight values with vector instructions, if the processor has them.
//!
//! ```text
//! unpack   16 bytes from the group on, 16 from its fifth value on     (one half of a vector each)
//!          bytes  -- shuffle -->  for each value the four bytes that hold it
//!                 -- shift each by its own count, mask -->  eight values
//! pack     eight values  -- or with the neighbour, shifted -->  four pairs  --> two fours  --> W bytes
//! ```
//!
//! Each function returns how many values it has processed, in whole groups from the first one on; the caller processes
//! the rest with the scalar version in the parent module. Packed values must have no bits beyond the width.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector instructions"))]

use super::GROUP;

/// Number of bytes after the packed ones that may be overwritten.
pub(super) const SLACK: usize = 32;

/// Unpacks values of `width` bits from the first byte on.
pub(super) fn unpack(bytes: &[u8], width: u8, out: &mut [u32]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        macro_rules! by_width {
            ($($w:literal)*) => {
                match width {
                    // SAFETY: the processor supports AVX2, which was checked above.
                    $($w => unsafe { avx2::unpack::<$w>(bytes, out) },)*
                    _ => 0,
                }
            };
        }
        // A wider value may span five bytes.
        return by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25);
    }
    0
}

/// Packs values into `width` bits each; `out` has room for them and for [`SLACK`] more bytes.
pub(super) fn pack(values: &[u32], width: u8, out: &mut [u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        macro_rules! by_width {
            ($($w:literal)*) => {
                match width {
                    // SAFETY: the processor supports AVX2, which was checked above.
                    $($w => unsafe { avx2::pack::<$w>(values, out) },)*
                    _ => 0,
                }
            };
        }
        return by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    }
    0
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm256_and_si256,
        _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_set_m128i,
        _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_shuffle_epi8, _mm256_sll_epi64, _mm256_srl_epi64,
        _mm256_srli_si256, _mm256_srlv_epi32, _mm256_storeu_si256,
    };

    use super::{GROUP, SLACK};

    /// Number of bytes in half a vector.
    const HALF: usize = 16;

    /// Returns for each value the indices, within its half, of the four bytes that contain it.
    const fn byte_places<const W: usize>() -> [u8; 2 * HALF] {
        let mut places = [0; 2 * HALF];
        let mut at = 0;
        while at < places.len() {
            let value = at / 4;
            let begin = if value < GROUP / 2 { 0 } else { W / 2 };
            #[expect(clippy::cast_possible_truncation, reason = "less than 16")]
            {
                places[at] = (value * W / 8 - begin + at % 4) as u8;
            }
            at += 1;
        }
        places
    }

    /// Returns for each value the number of bits that precede it in its first byte.
    const fn bit_shifts<const W: usize>() -> [u32; GROUP] {
        let mut shifts = [0; GROUP];
        let mut value = 0;
        while value < GROUP {
            #[expect(clippy::cast_possible_truncation, reason = "less than 8")]
            {
                shifts[value] = (value * W % 8) as u32;
            }
            value += 1;
        }
        shifts
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn unpack<const W: usize>(bytes: &[u8], out: &mut [u32]) -> usize {
        let (groups, _) = out.as_chunks_mut::<GROUP>();
        // Bytes read for a group, which are more than the group has.
        let reach = W / 2 + HALF;
        let within = bytes.len().checked_sub(reach).map_or(0, |more| more / W + 1);
        let whole = groups.len().min(within);
        let places = const { byte_places::<W>() };
        let shifts = const { bit_shifts::<W>() };
        // SAFETY: both arrays are as long as a vector.
        let (places, shifts) = unsafe {
            (
                _mm256_loadu_si256(places.as_ptr().cast::<__m256i>()),
                _mm256_loadu_si256(shifts.as_ptr().cast::<__m256i>()),
            )
        };
        let mask = _mm256_set1_epi32(((1_u32 << W) - 1).cast_signed());
        for (number, group) in groups[..whole].iter_mut().enumerate() {
            let at = number * W;
            // SAFETY: `whole` counts only groups whose `reach` bytes are within the slice; the output of a group is as
            // long as a vector.
            unsafe {
                let begin = bytes.as_ptr().add(at);
                let low = _mm_loadu_si128(begin.cast::<__m128i>());
                let high = _mm_loadu_si128(begin.add(W / 2).cast::<__m128i>());
                let words = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), places);
                let values = _mm256_and_si256(_mm256_srlv_epi32(words, shifts), mask);
                _mm256_storeu_si256(group.as_mut_ptr().cast::<__m256i>(), values);
            }
        }
        whole * GROUP
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn pack<const W: usize>(values: &[u32], out: &mut [u8]) -> usize {
        let (groups, _) = values.as_chunks::<GROUP>();
        let whole = groups.len().min(out.len().saturating_sub(SLACK) / W);
        let lower = _mm256_set1_epi64x(0xffff_ffff);
        let upper = _mm256_set1_epi64x(!0xffff_ffff);
        let count = |bits: usize| _mm_cvtsi64_si128(i64::try_from(bits).unwrap_or(0));
        for (number, group) in groups[..whole].iter().enumerate() {
            let at = number * W;
            // SAFETY: a group is as long as a vector.
            let values = unsafe { _mm256_loadu_si256(group.as_ptr().cast::<__m256i>()) };
            let upper = _mm256_srl_epi64(_mm256_and_si256(values, upper), count(32 - W));
            let pairs = _mm256_or_si256(_mm256_and_si256(values, lower), upper);
            if W <= 16 {
                let fours = _mm256_or_si256(pairs, _mm256_sll_epi64(_mm256_srli_si256::<8>(pairs), count(2 * W)));
                let first = low_word(_mm256_castsi256_si128(fours));
                let second = low_word(_mm256_extracti128_si256::<1>(fours));
                let all = u128::from(first) | u128::from(second) << (4 * W);
                if let Some(bytes) = out[at..].first_chunk_mut() {
                    *bytes = all.to_le_bytes();
                }
            } else {
                let four = |pairs: [u64; 2]| u128::from(pairs[0]) | u128::from(pairs[1]) << (2 * W);
                let first = four(half_words(_mm256_castsi256_si128(pairs)));
                let second = four(half_words(_mm256_extracti128_si256::<1>(pairs)));
                let (low, high) = match W {
                    32 => (first, second),
                    _ => (first | second << (4 * W), second >> (128 - 4 * W)),
                };
                if let Some(bytes) = out[at..].first_chunk_mut() {
                    *bytes = low.to_le_bytes();
                }
                if let Some(bytes) = out[at + HALF..].first_chunk_mut() {
                    *bytes = high.to_le_bytes();
                }
            }
        }
        whole * GROUP
    }

    #[target_feature(enable = "avx2")]
    fn low_word(half: __m128i) -> u64 {
        _mm_cvtsi128_si64(half).cast_unsigned()
    }

    #[target_feature(enable = "avx2")]
    fn half_words(half: __m128i) -> [u64; 2] {
        use std::arch::x86_64::_mm_extract_epi64;
        [low_word(half), _mm_extract_epi64::<1>(half).cast_unsigned()]
    }
}
