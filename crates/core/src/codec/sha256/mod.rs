//! SHA-256 of many short texts at once, truncated to the first eight bytes, as used for record ids.
//!
//! A text of up to 55 bytes is one SHA-256 block with its padding. Hashed one after the other, such blocks leave the
//! processor waiting most of the time, because each round of the hash depends on the previous one. So 16 blocks are
//! laid out side by side, each in its own column, and [`simd`] hashes as many at once as its registers hold. Longer
//! texts, and all texts on processors without a kernel, are hashed by the crate `sha2`.
//!
//! ```text
//!            text 0        text 1              text 15
//! word  0    "CLN-"        "CLN-"        ...   "CLN-"
//! word  1    "0000"        "0000"              "0000"
//! word  2    "0017"        "0018"              "0032"
//! word  3    "5" 80 00 00  "5" 80 00 00        "5" 80 00 00
//!   ...      0             0                   0
//! word 15    104 (bits)    104                 104
//! ```

mod simd;

use sha2::{Digest, Sha256, block_api::compress256};

/// Texts that are hashed at once.
const COLUMNS: usize = 16;

/// Words of a SHA-256 block.
const WORDS: usize = 16;

/// Maximum length in bytes of a text that fits into one block with its padding.
const MAX_SHORT_BYTES: usize = 55;

/// Initial state of SHA-256 (FIPS 180-4, 5.3.3).
pub const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// One block per column: the first words of all columns, then their second words and so on.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Blocks([[u32; COLUMNS]; WORDS]);

/// First eight bytes of the hash of each column, big-endian.
type Heads = [u64; COLUMNS];

/// Hashes the given number of columns from the first on; the other heads are unspecified afterwards.
type Kernel = fn(&Blocks, usize, &mut Heads);

/// Appends the first eight bytes, big-endian, of the SHA-256 of each text to `heads`, in order.
pub fn sha256_heads<'a>(texts: impl IntoIterator<Item = &'a [u8]>, heads: &mut Vec<u64>) {
    let kernel = simd::available_kernels().next().map_or(portable_kernel as Kernel, |(_, kernel)| kernel);
    heads_by(kernel, texts.into_iter(), heads);
}

fn heads_by<'a>(kernel: Kernel, mut texts: impl Iterator<Item = &'a [u8]>, heads: &mut Vec<u64>) {
    heads.reserve(texts.size_hint().0);
    let mut long = Vec::new();
    loop {
        let mut blocks = Blocks([[0; COLUMNS]; WORDS]);
        let mut count = 0;
        for (column, text) in texts.by_ref().take(COLUMNS).enumerate() {
            if text.len() <= MAX_SHORT_BYTES {
                blocks.put_text(column, text);
            } else {
                long.push((column, text));
            }
            count = column + 1;
        }
        let mut found = [0; COLUMNS];
        kernel(&blocks, count, &mut found);
        for (column, text) in long.drain(..) {
            found[column] = head_of_long(text);
        }
        heads.extend_from_slice(&found[..count]);
        if count < COLUMNS {
            return;
        }
    }
}

impl Blocks {
    /// Writes a text of up to [`MAX_SHORT_BYTES`] bytes with its padding into a column that is all zeros.
    #[inline(always)]
    fn put_text(&mut self, column: usize, text: &[u8]) {
        let column = column % COLUMNS;
        let (whole, rest) = text.as_chunks::<4>();
        for (row, word) in self.0.iter_mut().zip(whole) {
            row[column] = u32::from_be_bytes(*word);
        }
        // Byte by byte, because a copy of unknown length would be a call.
        let last = match *rest {
            [a, b, c] => [a, b, c, 0x80],
            [a, b] => [a, b, 0x80, 0],
            [a] => [a, 0x80, 0, 0],
            _ => [0x80, 0, 0, 0],
        };
        self.0[whole.len() % WORDS][column] = u32::from_be_bytes(last);
        self.0[WORDS - 1][column] = 8 * u32::try_from(text.len()).unwrap_or(u32::MAX);
    }
}

/// The kernel for every processor, and the reference for the other kernels.
fn portable_kernel(blocks: &Blocks, count: usize, heads: &mut Heads) {
    for (column, head) in heads.iter_mut().enumerate().take(count) {
        let mut block = [0; 4 * WORDS];
        for (bytes, row) in block.as_chunks_mut::<4>().0.iter_mut().zip(&blocks.0) {
            *bytes = row[column].to_be_bytes();
        }
        let mut state = INITIAL;
        compress256(&mut state, &[block]);
        *head = (u64::from(state[0]) << 32) | u64::from(state[1]);
    }
}

#[cold]
fn head_of_long(text: &[u8]) -> u64 {
    let digest = Sha256::digest(text);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(texts: &[Vec<u8>]) {
        let expected: Vec<u64> = texts.iter().map(|text| head_of_long(text)).collect();
        let all = simd::available_kernels().chain([("portable", portable_kernel as Kernel)]);
        for (name, kernel) in all {
            let mut found = vec![7];
            heads_by(kernel, texts.iter().map(Vec::as_slice), &mut found);
            assert_eq!(found[0], 7);
            assert_eq!(found[1..], expected, "{name}");
        }
        let mut found = Vec::new();
        sha256_heads(texts.iter().map(Vec::as_slice), &mut found);
        assert_eq!(found, expected);
    }

    #[test]
    fn heads_agree_with_published_values() {
        // FIPS 180-2, B.1, and the well-known hash of the empty string.
        let mut found = Vec::new();
        sha256_heads([b"abc".as_slice(), b""], &mut found);
        assert_eq!(found, [0xba78_16bf_8f01_cfea, 0xe3b0_c442_98fc_1c14]);
    }

    #[test]
    fn every_length_works_in_every_column() {
        for first in 0..=80 {
            for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33] {
                let texts: Vec<Vec<u8>> = (0..count).map(|i| vec![0xb1 + i; (first + usize::from(i)) % 81]).collect();
                check(&texts);
            }
        }
    }

    proptest! {
        #[test]
        fn any_texts(texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=80), 0..70)) {
            check(&texts);
        }
    }
}
