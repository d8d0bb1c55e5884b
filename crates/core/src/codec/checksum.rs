//! Checksums: CRC-32C as TFRecord masks it, and XXH3-64 for the bytes of a record.
//!
//! CRC-32C and XXH3 detect accidental damage; they do not protect against deliberate collisions.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the XXH3-64 (seed 0) of the bytes, the hash that the catalog keeps of every record.
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Returns the CRC-32C (Castagnoli) of the bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the CRC-32C of the bytes, masked as TFRecord stores it.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    mask_crc(crc32c(bytes))
}

/// Masks a checksum as TFRecord does: rotates right by 15 bits and adds a constant, so that a checksum of data that
/// contains checksums is not degenerate.
fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Computes [`masked_crc32c`] incrementally.
#[derive(Debug)]
pub struct MaskedCrc32c(Digest);

impl MaskedCrc32c {
    /// Creates the checksum of zero bytes.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds a piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the checksum of all pieces.
    #[expect(clippy::cast_possible_truncation, reason = "a 32-bit CRC in the digest's 64-bit result")]
    pub fn finish(&self) -> u32 {
        mask_crc(self.0.finalize() as u32)
    }
}

impl Default for MaskedCrc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_agree_with_published_values() {
        // RFC 3720, B.4, and the check value of the CRC catalogue.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn masking_agrees_with_the_definition() {
        let crc = crc32c(b"123456789");
        let defined = crc.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(masked_crc32c(b"123456789"), defined);
    }

    #[test]
    fn incremental_checksums_equal_those_of_the_whole() {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for size in [1, 3, 255, 256, 257, 4999, 5000] {
            let mut sum = MaskedCrc32c::new();
            bytes.chunks(size).for_each(|piece| sum.update(piece));
            assert_eq!(sum.finish(), masked_crc32c(&bytes), "{size}");
        }
    }
}
