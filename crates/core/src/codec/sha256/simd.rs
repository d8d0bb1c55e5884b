//! The x86-64 kernels of [`sha256`](super), and the choice among the available ones.
//!
//! ```text
//! AVX-512   16 columns   a register holds one word of each; rotations and three-input functions are one instruction
//! SHA        2 columns   the processor's SHA instructions, alternating between two columns to hide their latency
//! AVX2       8 columns   a register holds one word of each
//! ```
//!
//! A kernel is returned only if the processor supports its instructions; the soundness of all `unsafe` code here
//! depends on that. Every kernel returns the same heads as [`portable`](super::portable_kernel); tests compare them.

use super::Kernel;

/// Returns the kernels that this processor supports with their names, fastest first.
pub(super) fn available_kernels() -> impl Iterator<Item = (&'static str, Kernel)> {
    #[cfg(target_arch = "x86_64")]
    let available = x86::x86_kernels();
    #[cfg(not(target_arch = "x86_64"))]
    let available: [Option<(&str, Kernel)>; 0] = [];
    available.into_iter().flatten()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![expect(unsafe_code, reason = "vector instructions, behind detection at run time")]

    use std::arch::x86_64::*;

    use super::super::{Blocks, COLUMNS, Heads, INITIAL, Kernel, WORDS};

    /// Round constants (FIPS 180-4, 4.2.2): four times 16 rounds, each half of which is a row here.
    const ROUNDS: [[[u32; 8]; 2]; 4] = [
        [
            [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
            [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
        ],
        [
            [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
            [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
        ],
        [
            [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
            [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
        ],
        [
            [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
            [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
        ],
    ];

    pub(super) fn x86_kernels() -> [Option<(&'static str, Kernel)>; 3] {
        let avx512: Kernel = |blocks, count, heads| {
            // SAFETY: returned only if the processor supports AVX-512.
            unsafe { avx512::hash(blocks, count, heads) }
        };
        let sha: Kernel = |blocks, count, heads| {
            // SAFETY: returned only if the processor supports the SHA and SSE4.1 instructions.
            unsafe { sha::hash(blocks, count, heads) }
        };
        let avx2: Kernel = |blocks, count, heads| {
            // SAFETY: returned only if the processor supports AVX2.
            unsafe { avx2::hash(blocks, count, heads) }
        };
        let has_sha = is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1");
        [
            is_x86_feature_detected!("avx512f").then_some(("avx512", avx512)),
            has_sha.then_some(("sha", sha)),
            is_x86_feature_detected!("avx2").then_some(("avx2", avx2)),
        ]
    }

    /// The hash, generic over registers that hold one word of each of several columns. The module that uses it defines
    /// the type `Vector` and functions on it.
    macro_rules! side_by_side {
        ($features:literal) => {
            /// Columns in a register.
            const LANES: usize = size_of::<Vector>() / size_of::<u32>();

            /// Hashes `count` columns, and the columns that fill the last register.
            #[target_feature(enable = $features)]
            pub(super) fn hash(blocks: &Blocks, count: usize, heads: &mut Heads) {
                let groups = heads.as_chunks_mut::<LANES>().0;
                for (group, heads) in groups.iter_mut().enumerate().take(count.div_ceil(LANES)) {
                    let mut words = [splat(0); WORDS];
                    for (word, row) in words.iter_mut().zip(&blocks.0) {
                        *word = load(&row.as_chunks::<LANES>().0[group]);
                    }
                    let (upper, lower) = halves(&mut words);
                    for ((head, upper), lower) in heads.iter_mut().zip(upper).zip(lower) {
                        *head = (u64::from(upper) << 32) | u64::from(lower);
                    }
                }
            }

            /// Returns the first and second word of the hashes.
            #[inline]
            #[target_feature(enable = $features)]
            fn halves(words: &mut [Vector; WORDS]) -> ([u32; LANES], [u32; LANES]) {
                let mut state = [splat(0); 8];
                for (word, initial) in state.iter_mut().zip(INITIAL) {
                    *word = splat(initial);
                }
                let [before @ .., [first, second]] = &ROUNDS;
                for [first, second] in before {
                    rounds::<0, true>(&mut state, words, first);
                    rounds::<8, true>(&mut state, words, second);
                }
                rounds::<0, false>(&mut state, words, first);
                rounds::<8, false>(&mut state, words, second);
                (store(add(state[0], splat(INITIAL[0]))), store(add(state[1], splat(INITIAL[1]))))
            }

            /// Computes eight of 16 rounds, beginning with `FIRST`. With `MORE` rounds to come after the 16, each round
            /// replaces its word by the word that is 16 later, which hides the latency of the round.
            #[inline]
            #[target_feature(enable = $features)]
            fn rounds<const FIRST: usize, const MORE: bool>(
                state: &mut [Vector; 8],
                words: &mut [Vector; WORDS],
                added: &[u32; 8],
            ) {
                let [a, b, c, d, e, f, g, h] = state;
                let mut step = |i: usize| {
                    let t = FIRST + i;
                    let step = add(words[t], splat(added[i]));
                    if MORE {
                        let (second, tenth, fifteenth) = ((t + 1) % WORDS, (t + 9) % WORDS, (t + 14) % WORDS);
                        words[t] = next(words[t], words[second], words[tenth], words[fifteenth]);
                    }
                    step
                };
                round(*a, *b, *c, d, *e, *f, *g, h, step(0));
                round(*h, *a, *b, c, *d, *e, *f, g, step(1));
                round(*g, *h, *a, b, *c, *d, *e, f, step(2));
                round(*f, *g, *h, a, *b, *c, *d, e, step(3));
                round(*e, *f, *g, h, *a, *b, *c, d, step(4));
                round(*d, *e, *f, g, *h, *a, *b, c, step(5));
                round(*c, *d, *e, f, *g, *h, *a, b, step(6));
                round(*b, *c, *d, e, *f, *g, *h, a, step(7));
            }

            /// Computes the next word from the first, second, tenth and fifteenth of the last 16.
            #[inline]
            #[target_feature(enable = $features)]
            fn next(first: Vector, second: Vector, tenth: Vector, fifteenth: Vector) -> Vector {
                let small0 = xor3(rotate::<7, 25>(second), rotate::<18, 14>(second), shift::<3>(second));
                let small1 = xor3(rotate::<17, 15>(fifteenth), rotate::<19, 13>(fifteenth), shift::<10>(fifteenth));
                add(add(add(first, tenth), small0), small1)
            }

            /// Computes one round; the caller renames the eight words instead of moving them.
            #[inline]
            #[target_feature(enable = $features)]
            #[expect(clippy::too_many_arguments, reason = "the words of the state, as the standard names them")]
            fn round(
                a: Vector,
                b: Vector,
                c: Vector,
                d: &mut Vector,
                e: Vector,
                f: Vector,
                g: Vector,
                h: &mut Vector,
                step: Vector,
            ) {
                let big1 = xor3(rotate::<6, 26>(e), rotate::<11, 21>(e), rotate::<25, 7>(e));
                let big0 = xor3(rotate::<2, 30>(a), rotate::<13, 19>(a), rotate::<22, 10>(a));
                // The value with the longest latency is added last.
                let first = add(add(add(*h, step), choice(e, f, g)), big1);
                *d = add(*d, first);
                *h = add(add(big0, majority(a, b, c)), first);
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn load(words: &[u32; LANES]) -> Vector {
                // SAFETY: both types have the same size, and every bit pattern is a valid vector.
                unsafe { std::mem::transmute(*words) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn store(vector: Vector) -> [u32; LANES] {
                // SAFETY: both types have the same size, and every bit pattern is a valid array of integers.
                unsafe { std::mem::transmute(vector) }
            }
        };
    }

    mod avx512 {
        use super::*;

        type Vector = __m512i;

        side_by_side!("avx512f");

        #[inline]
        #[target_feature(enable = "avx512f")]
        #[expect(clippy::cast_possible_wrap, reason = "only bits count")]
        fn splat(word: u32) -> Vector {
            _mm512_set1_epi32(word as i32)
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm512_add_epi32(a, b)
        }

        /// Rotates to the right by `RIGHT` bits, which equals a rotation to the left by `LEFT` bits.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn rotate<const RIGHT: i32, const LEFT: i32>(a: Vector) -> Vector {
            _mm512_ror_epi32::<RIGHT>(a)
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn shift<const RIGHT: u32>(a: Vector) -> Vector {
            _mm512_srli_epi32::<RIGHT>(a)
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
            _mm512_ternarylogic_epi32::<0x96>(a, b, c)
        }

        /// Selects bits of `f` where `e` is one, and of `g` where it is zero.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn choice(e: Vector, f: Vector, g: Vector) -> Vector {
            _mm512_ternarylogic_epi32::<0xca>(e, f, g)
        }

        /// Sets the bits that are one in at least two inputs.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn majority(a: Vector, b: Vector, c: Vector) -> Vector {
            _mm512_ternarylogic_epi32::<0xe8>(a, b, c)
        }
    }

    mod avx2 {
        use super::*;

        type Vector = __m256i;

        side_by_side!("avx2");

        #[inline]
        #[target_feature(enable = "avx2")]
        #[expect(clippy::cast_possible_wrap, reason = "only bits count")]
        fn splat(word: u32) -> Vector {
            _mm256_set1_epi32(word as i32)
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn add(a: Vector, b: Vector) -> Vector {
            _mm256_add_epi32(a, b)
        }

        /// Rotates to the right by `RIGHT` bits, which equals a rotation to the left by `LEFT` bits.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn rotate<const RIGHT: i32, const LEFT: i32>(a: Vector) -> Vector {
            _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(a), _mm256_slli_epi32::<LEFT>(a))
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn shift<const RIGHT: i32>(a: Vector) -> Vector {
            _mm256_srli_epi32::<RIGHT>(a)
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn xor3(a: Vector, b: Vector, c: Vector) -> Vector {
            _mm256_xor_si256(_mm256_xor_si256(a, b), c)
        }

        /// Selects bits of `f` where `e` is one, and of `g` where it is zero.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn choice(e: Vector, f: Vector, g: Vector) -> Vector {
            _mm256_xor_si256(g, _mm256_and_si256(e, _mm256_xor_si256(f, g)))
        }

        /// Sets the bits that are one in at least two inputs; `a ^ b` is the next round's `b ^ c`, so it is computed
        /// once for both.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn majority(a: Vector, b: Vector, c: Vector) -> Vector {
            _mm256_xor_si256(b, _mm256_and_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(b, c)))
        }
    }

    mod sha {
        use super::*;

        /// Columns whose rounds are interleaved.
        const INTERLEAVED: usize = 2;

        /// Columns that are transposed together: a row of the blocks has four words per register.
        const GROUP: usize = 4;

        /// A block in the layout of the SHA instructions: four registers of four words in order.
        type Block = [__m128i; 4];

        /// Hashes `count` columns, and the columns that fill the last group.
        #[target_feature(enable = "sha,sse4.1")]
        pub(super) fn hash(blocks: &Blocks, count: usize, heads: &mut Heads) {
            let groups = heads.as_chunks_mut::<GROUP>().0;
            for (group, heads) in groups.iter_mut().enumerate().take(count.div_ceil(GROUP)) {
                let columns = transpose_blocks(blocks, group);
                for (block, heads) in
                    columns.as_chunks::<INTERLEAVED>().0.iter().zip(heads.as_chunks_mut::<INTERLEAVED>().0)
                {
                    *heads = hash_interleaved(*block);
                }
            }
        }

        /// Returns the blocks of four columns.
        #[inline]
        #[target_feature(enable = "sha,sse4.1")]
        fn transpose_blocks(blocks: &Blocks, group: usize) -> [Block; GROUP] {
            let mut columns = [[_mm_setzero_si128(); 4]; GROUP];
            for (quarter, rows) in blocks.0.as_chunks::<4>().0.iter().enumerate() {
                let [w0, w1, w2, w3] = rows;
                let (w0, w1, w2, w3) =
                    (load_group(w0, group), load_group(w1, group), load_group(w2, group), load_group(w3, group));
                let (low01, high01) = (_mm_unpacklo_epi32(w0, w1), _mm_unpackhi_epi32(w0, w1));
                let (low23, high23) = (_mm_unpacklo_epi32(w2, w3), _mm_unpackhi_epi32(w2, w3));
                columns[0][quarter] = _mm_unpacklo_epi64(low01, low23);
                columns[1][quarter] = _mm_unpackhi_epi64(low01, low23);
                columns[2][quarter] = _mm_unpacklo_epi64(high01, high23);
                columns[3][quarter] = _mm_unpackhi_epi64(high01, high23);
            }
            columns
        }

        #[inline]
        #[target_feature(enable = "sha,sse4.1")]
        fn load_group(row: &[u32; COLUMNS], group: usize) -> __m128i {
            load_register(&row.as_chunks::<GROUP>().0[group])
        }

        #[inline]
        #[target_feature(enable = "sha,sse4.1")]
        fn load_register(words: &[u32; 4]) -> __m128i {
            // SAFETY: both types have the same size, and every bit pattern is a valid vector.
            unsafe { std::mem::transmute(*words) }
        }

        /// Hashes blocks with interleaved rounds, four of each at a time.
        #[inline]
        #[target_feature(enable = "sha,sse4.1")]
        fn hash_interleaved(mut blocks: [Block; INTERLEAVED]) -> [u64; INTERLEAVED] {
            let [a, b, c, d, e, f, g, h] = INITIAL;
            let (initial, other) = (load_register(&[f, e, b, a]), load_register(&[h, g, d, c]));
            let mut abef = [initial; INTERLEAVED];
            let mut cdgh = [other; INTERLEAVED];
            for (sixteen, added) in ROUNDS.iter().enumerate() {
                for (four, added) in added.as_flattened().as_chunks::<4>().0.iter().enumerate() {
                    let added = load_register(added);
                    let at = |later| (four + later) % 4;
                    for index in 0..INTERLEAVED {
                        let words = &mut blocks[index];
                        if sixteen > 0 {
                            words[at(0)] = next(words[at(0)], words[at(1)], words[at(2)], words[at(3)]);
                        }
                        let step = _mm_add_epi32(words[at(0)], added);
                        cdgh[index] = _mm_sha256rnds2_epu32(cdgh[index], abef[index], step);
                        abef[index] = _mm_sha256rnds2_epu32(abef[index], cdgh[index], _mm_shuffle_epi32::<0x0e>(step));
                    }
                }
            }
            let mut heads = [0; INTERLEAVED];
            for (head, abef) in heads.iter_mut().zip(abef) {
                // The upper half holds a and b.
                *head = _mm_extract_epi64::<1>(_mm_add_epi32(abef, initial)).cast_unsigned();
            }
            heads
        }

        /// Computes the next four words from the last 16.
        #[inline]
        #[target_feature(enable = "sha,sse4.1")]
        fn next(w0: __m128i, w4: __m128i, w8: __m128i, w12: __m128i) -> __m128i {
            let ninth = _mm_alignr_epi8::<4>(w12, w8);
            _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w0, w4), ninth), w12)
        }
    }
}
