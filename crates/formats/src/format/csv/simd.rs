//! The [`index`](super::index) kernel for the vector instructions of x86-64, and the selection of the best one.
//!
//! ```text
//! 64 bytes --load--> one register of 64 (AVX-512) or two of 32 (AVX2)
//!          --compare--> one bit per byte --carry-less multiplication by all ones--> inside of quotes
//! bits     --compress the numbers 0 to 63--> positions (AVX-512 only; otherwise bit by bit)
//! ```
//!
//! A value of `Avx512` or `Avx2` is created only if the processor has these instructions; the soundness of all
//! `unsafe` code here depends on this. Tests show that every kernel agrees with [`Portable`].
#![expect(unsafe_code, reason = "vector instructions, behind detection at run time")]

use std::ops::Range;

use super::{
    index::{FieldIndex, Portable, RangeSearch, ScanState, UNQUOTED, Unquoted, index_with, terminator_with},
    numbers::{GROUP, Moments, TextGroup, floats_with, integers_with, timestamps_with},
};

/// Calls [`index_with`] with the fastest available kernel.
pub(super) fn index(bytes: &[u8], range: Range<usize>, delimiter: u8, state: &mut ScanState, index: &mut FieldIndex) {
    if delimiter & UNQUOTED != 0 {
        return index_with(Unquoted, bytes, range, delimiter, state, index);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = x86::Avx512::detect() {
        // SAFETY: the processor has the instructions, as the value proves.
        return unsafe { x86::index_avx512(kernel, bytes, range, delimiter, state, index) };
    } else if let Some(kernel) = x86::Avx2::detect() {
        // SAFETY: the processor has the instructions, as the value proves.
        return unsafe { x86::index_avx2(kernel, bytes, range, delimiter, state, index) };
    }
    index_with(Portable, bytes, range, delimiter, state, index);
}

/// Calls [`terminator_with`] with the fastest available kernel.
pub(super) fn find_terminator(
    bytes: &[u8],
    target: usize,
    complete: bool,
    delimiter: u8,
    search: &mut RangeSearch,
) -> Option<usize> {
    if delimiter & UNQUOTED != 0 {
        return terminator_with(Unquoted, bytes, target, complete, delimiter, search);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = x86::Avx512::detect() {
        // SAFETY: the processor has the instructions, as the value proves.
        return unsafe { x86::terminator_avx512(kernel, bytes, target, complete, delimiter, search) };
    } else if let Some(kernel) = x86::Avx2::detect() {
        // SAFETY: the processor has the instructions, as the value proves.
        return unsafe { x86::terminator_avx2(kernel, bytes, target, complete, delimiter, search) };
    }
    terminator_with(Portable, bytes, target, complete, delimiter, search)
}

/// Calls [`integers_with`] with the widest available vectors.
pub(super) fn parse_integers(group: &TextGroup, numbers: &mut [i64; GROUP]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if x86::Avx512::detect().is_some() {
        // SAFETY: the processor has the instructions, as was just found.
        return unsafe { x86::integers_avx512(group, numbers) };
    } else if x86::Avx2::detect().is_some() {
        // SAFETY: the processor has the instructions, as was just found.
        return unsafe { x86::integers_avx2(group, numbers) };
    }
    integers_with(group, numbers)
}

/// Calls [`floats_with`] with the widest available vectors.
pub(super) fn parse_floats(group: &TextGroup, numbers: &mut [f64; GROUP]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if x86::Avx512::detect().is_some() {
        // SAFETY: the processor has the instructions, as was just found.
        return unsafe { x86::floats_avx512(group, numbers) };
    } else if x86::Avx2::detect().is_some() {
        // SAFETY: the processor has the instructions, as was just found.
        return unsafe { x86::floats_avx2(group, numbers) };
    }
    floats_with(group, numbers)
}

/// Calls [`timestamps_with`] with the widest available vectors.
pub(super) fn parse_timestamps(moments: &Moments, micros: &mut [i64; GROUP]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if x86::Avx512::detect().is_some() {
        // SAFETY: the processor has the instructions, as was just found.
        return unsafe { x86::timestamps_avx512(moments, micros) };
    } else if x86::Avx2::detect().is_some() {
        // SAFETY: the processor has the instructions, as was just found.
        return unsafe { x86::timestamps_avx2(moments, micros) };
    }
    timestamps_with(moments, micros)
}

/// Returns the kernel for AVX2, which a processor with AVX-512 would not use.
#[cfg(test)]
#[expect(clippy::type_complexity, reason = "only the tests see it")]
pub(super) fn avx2() -> Option<(
    &'static str,
    fn(&[u8], Range<usize>, u8, &mut ScanState, &mut FieldIndex),
    fn(&[u8], usize, bool, u8, &mut RangeSearch) -> Option<usize>,
)> {
    #[cfg(target_arch = "x86_64")]
    if x86::Avx2::detect().is_some() {
        return Some((
            "avx2",
            |bytes, range, delimiter, state, index| {
                if let Some(kernel) = x86::Avx2::detect() {
                    // SAFETY: the processor has the instructions, as the value proves.
                    unsafe { x86::index_avx2(kernel, bytes, range, delimiter, state, index) }
                }
            },
            |bytes, target, complete, delimiter, search| {
                // SAFETY: the processor has the instructions, as the value proves.
                x86::Avx2::detect()
                    .and_then(|k| unsafe { x86::terminator_avx2(k, bytes, target, complete, delimiter, search) })
            },
        ));
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::{arch::x86_64::*, ops::Range};

    use super::super::{
        index::{
            BLOCK, BlockMarks, FieldIndex, Kernel, RangeSearch, ScanState, bit_by_bit, index_with, terminator_with,
        },
        numbers::{GROUP, Moments, TextGroup, floats_with, integers_with, timestamps_with},
        tokenize::{CR, LF, QUOTE},
    };

    /// The numbers 0 to 63.
    const NUMBERS: [u8; BLOCK] = {
        let (mut numbers, mut number, mut i) = ([0; BLOCK], 0_u8, 0);
        while i < BLOCK {
            numbers[i] = number;
            number += 1;
            i += 1;
        }
        numbers
    };

    /// Proof that the processor has AVX-512 with operations on bytes.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Avx512(());

    impl Avx512 {
        #[inline]
        pub(super) fn detect() -> Option<Self> {
            let there = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi2")
                && is_x86_feature_detected!("avx512vpopcntdq")
                && is_x86_feature_detected!("pclmulqdq")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            there.then_some(Self(()))
        }
    }

    /// Proof that the processor has AVX2.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Avx2(());

    impl Avx2 {
        #[inline]
        pub(super) fn detect() -> Option<Self> {
            let there = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("pclmulqdq")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            there.then_some(Self(()))
        }
    }

    /// Carry-less multiplication by all ones.
    ///
    /// # Safety
    /// The processor must have PCLMULQDQ.
    #[inline(always)]
    unsafe fn multiply(bits: u64) -> u64 {
        // SAFETY: the caller guarantees the instructions.
        unsafe {
            let product = _mm_clmulepi64_si128(_mm_set_epi64x(0, bits.cast_signed()), _mm_set1_epi8(-1), 0);
            _mm_cvtsi128_si64(product).cast_unsigned()
        }
    }

    impl Kernel for Avx512 {
        #[inline(always)]
        fn mark_block(self, block: &[u8; BLOCK], delimiter: u8) -> BlockMarks {
            // SAFETY: `self` proves the instructions; the load is unaligned and within the block.
            unsafe {
                let bytes = _mm512_loadu_si512(block.as_ptr().cast());
                let equal = |byte: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte.cast_signed()));
                BlockMarks {
                    delimiters: equal(delimiter),
                    feeds: equal(LF),
                    returns: equal(CR),
                    quotes: equal(QUOTE),
                    high: _mm512_movepi8_mask(bytes),
                }
            }
        }

        #[inline(always)]
        fn prefix_xor(self, bits: u64) -> u64 {
            // SAFETY: `self` proves the instructions.
            unsafe { multiply(bits) }
        }

        #[inline(always)]
        fn write_positions(self, bits: u64, base: u32, out: &mut [u32; BLOCK]) {
            // SAFETY: `self` proves the instructions; loads and stores are unaligned and within the arrays.
            unsafe {
                let numbers = _mm512_loadu_si512(NUMBERS.as_ptr().cast());
                let found = _mm512_maskz_compress_epi8(bits, numbers);
                let base = _mm512_set1_epi32(base.cast_signed());
                let sixteen = |quarter| _mm512_add_epi32(_mm512_cvtepu8_epi32(quarter), base);
                let (places, _) = out.as_chunks_mut::<16>();
                _mm512_storeu_si512(places[0].as_mut_ptr().cast(), sixteen(_mm512_castsi512_si128(found)));
                if bits.count_ones() > 16 {
                    let second = _mm512_extracti32x4_epi32::<1>(found);
                    _mm512_storeu_si512(places[1].as_mut_ptr().cast(), sixteen(second));
                    let third = _mm512_extracti32x4_epi32::<2>(found);
                    _mm512_storeu_si512(places[2].as_mut_ptr().cast(), sixteen(third));
                    let fourth = _mm512_extracti32x4_epi32::<3>(found);
                    _mm512_storeu_si512(places[3].as_mut_ptr().cast(), sixteen(fourth));
                }
            }
        }
    }

    impl Kernel for Avx2 {
        #[inline(always)]
        fn mark_block(self, block: &[u8; BLOCK], delimiter: u8) -> BlockMarks {
            // SAFETY: `self` proves the instructions; both loads are unaligned and within the block.
            unsafe {
                let halves = block.as_chunks::<32>().0;
                let low = _mm256_loadu_si256(halves[0].as_ptr().cast());
                let high = _mm256_loadu_si256(halves[1].as_ptr().cast());
                let bits = |low, high| {
                    let (low, high) = (_mm256_movemask_epi8(low), _mm256_movemask_epi8(high));
                    u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
                };
                let equal = |byte: u8| {
                    let byte = _mm256_set1_epi8(byte.cast_signed());
                    bits(_mm256_cmpeq_epi8(low, byte), _mm256_cmpeq_epi8(high, byte))
                };
                BlockMarks {
                    delimiters: equal(delimiter),
                    feeds: equal(LF),
                    returns: equal(CR),
                    quotes: equal(QUOTE),
                    high: bits(low, high),
                }
            }
        }

        #[inline(always)]
        fn prefix_xor(self, bits: u64) -> u64 {
            // SAFETY: `self` proves the instructions.
            unsafe { multiply(bits) }
        }

        #[inline(always)]
        fn write_positions(self, bits: u64, base: u32, out: &mut [u32; BLOCK]) {
            bit_by_bit(bits, base, out);
        }
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,pclmulqdq,bmi1,bmi2,lzcnt,popcnt"
    )]
    pub(super) fn index_avx512(
        kernel: Avx512,
        bytes: &[u8],
        range: Range<usize>,
        delimiter: u8,
        state: &mut ScanState,
        index: &mut FieldIndex,
    ) {
        index_with(kernel, bytes, range, delimiter, state, index);
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,pclmulqdq,bmi1,bmi2,lzcnt,popcnt"
    )]
    pub(super) fn terminator_avx512(
        kernel: Avx512,
        bytes: &[u8],
        target: usize,
        complete: bool,
        delimiter: u8,
        search: &mut RangeSearch,
    ) -> Option<usize> {
        terminator_with(kernel, bytes, target, complete, delimiter, search)
    }

    #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn index_avx2(
        kernel: Avx2,
        bytes: &[u8],
        range: Range<usize>,
        delimiter: u8,
        state: &mut ScanState,
        index: &mut FieldIndex,
    ) {
        index_with(kernel, bytes, range, delimiter, state, index);
    }

    #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn terminator_avx2(
        kernel: Avx2,
        bytes: &[u8],
        target: usize,
        complete: bool,
        delimiter: u8,
        search: &mut RangeSearch,
    ) -> Option<usize> {
        terminator_with(kernel, bytes, target, complete, delimiter, search)
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,pclmulqdq,bmi1,bmi2,lzcnt,popcnt"
    )]
    pub(super) fn integers_avx512(group: &TextGroup, numbers: &mut [i64; GROUP]) -> u64 {
        integers_with(group, numbers)
    }

    #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn integers_avx2(group: &TextGroup, numbers: &mut [i64; GROUP]) -> u64 {
        integers_with(group, numbers)
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,pclmulqdq,bmi1,bmi2,lzcnt,popcnt"
    )]
    pub(super) fn floats_avx512(group: &TextGroup, numbers: &mut [f64; GROUP]) -> u64 {
        floats_with(group, numbers)
    }

    #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn floats_avx2(group: &TextGroup, numbers: &mut [f64; GROUP]) -> u64 {
        floats_with(group, numbers)
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,pclmulqdq,bmi1,bmi2,lzcnt,popcnt"
    )]
    pub(super) fn timestamps_avx512(moments: &Moments, micros: &mut [i64; GROUP]) -> u64 {
        timestamps_with(moments, micros)
    }

    #[target_feature(enable = "avx2,pclmulqdq,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn timestamps_avx2(moments: &Moments, micros: &mut [i64; GROUP]) -> u64 {
        timestamps_with(moments, micros)
    }
}
