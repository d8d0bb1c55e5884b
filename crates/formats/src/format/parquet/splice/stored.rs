//! Assembles compressed pages without compressing: prepends bytes to compressed data, and stores bytes that would not
//! become smaller.
//!
//! ```text
//! snappy   length of all | a literal | the existing elements, whose distances only go back
//! zstd     a frame of uncompressed blocks | the existing frame
//! none     bytes | bytes
//! ```

use ::parquet::basic::Compression;

use super::{super::chunk::put_zstd_frame, snappy};

/// Appends `bytes` uncompressed, then `packed`, which decompresses to `length` bytes; returns false if the codec does
/// not support that, or `packed` is not in its format.
pub(super) fn put_before(codec: Compression, bytes: &[u8], packed: &[u8], length: u64, out: &mut Vec<u8>) -> bool {
    match codec {
        Compression::UNCOMPRESSED => out.extend_from_slice(bytes),
        Compression::SNAPPY => {
            let Some((promised, elements)) = snappy::parse_length(packed).filter(|(promised, _)| *promised == length)
            else {
                return false;
            };
            snappy::put_length(out, promised + bytes.len() as u64);
            snappy::put_literal(out, bytes);
            out.extend_from_slice(elements);
            return true;
        }
        Compression::ZSTD(_) => {
            if !bytes.is_empty() {
                put_zstd_frame(out, bytes);
            }
        }
        _ => return false,
    }
    out.extend_from_slice(packed);
    true
}

/// Appends a page uncompressed; returns false if the codec does not support that.
pub(super) fn put_stored(codec: Compression, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    match codec {
        Compression::UNCOMPRESSED => out.extend_from_slice(bytes),
        Compression::SNAPPY => {
            snappy::put_length(out, bytes.len() as u64);
            snappy::put_literal(out, bytes);
        }
        Compression::ZSTD(_) => put_zstd_frame(out, bytes),
        _ => return false,
    }
    true
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use ::parquet::basic::ZstdLevel;

    use super::*;
    use crate::{
        codec::Codec,
        format::parquet::{chunk::Compressor, splice::page::inflate_page},
    };

    #[test]
    fn prepended_bytes_are_read_first() {
        for (codec, ours) in [
            (Compression::SNAPPY, Codec::Snappy),
            (Compression::ZSTD(ZstdLevel::default()), Codec::Zstd(3)),
            (Compression::UNCOMPRESSED, Codec::None),
        ] {
            for length in [0, 1, 59, 60, 61, 255, 256, 257, 65_536, 65_537, 300_000] {
                let front: Vec<u8> = (0..length).map(|i: u32| i.wrapping_mul(31).to_le_bytes()[1]).collect();
                let behind = "the same again and again ".repeat(400);
                let mut packed = Vec::new();
                let packed = Compressor::new(ours).unwrap().compress(behind.as_bytes(), &mut packed).unwrap().to_vec();
                let (mut out, mut buffer) = (Vec::new(), Vec::new());
                assert!(put_before(codec, &front, &packed, behind.len() as u64, &mut out));
                let whole = (front.len() + behind.len()) as u64;
                let found = inflate_page(codec, &out, whole, &mut buffer).unwrap();
                assert_eq!((&found[..front.len()], &found[front.len()..]), (&front[..], behind.as_bytes()));
                out.clear();
                assert!(put_stored(codec, &front, &mut out));
                assert_eq!(inflate_page(codec, &out, front.len() as u64, &mut buffer).unwrap(), &front[..]);
            }
        }
        assert!(!put_before(Compression::SNAPPY, b"x", &[3, 8, b'a', b'b', b'c'], 4, &mut Vec::new()));
        assert!(!put_before(Compression::LZ4_RAW, b"x", b"y", 1, &mut Vec::new()));
    }
}
