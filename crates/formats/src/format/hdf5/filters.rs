//! HDF5 filters registered by number in addition to those of the crate: LZF, bzip2, Blosc, LZ4 and Zstandard; deflate
//! and shuffle replace the crate's, because nearly every chunk uses them.

use std::{
    io::Read,
    sync::atomic::{AtomicUsize, Ordering},
};

use hdf5_reader::{FilterRegistry, error::Error as Hdf5Error};

use crate::{
    codec::{blosc, lzf},
    error::{Error, Result},
};

/// Maximum bytes of one read.
pub(super) const MAX_READ: usize = 1 << 30;

/// Maximum bytes of a decoded chunk; a run stays within its memory with several of them in flight.
pub(super) const MAX_CHUNK: usize = 128 << 20;

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const LZF: u16 = 32_000;
const BZIP2: u16 = 307;
const BLOSC: u16 = 32_001;
const LZ4: u16 = 32_004;
const ZSTD: u16 = 32_015;

/// Returns all known filters.
pub(super) fn filter_registry() -> FilterRegistry {
    let mut registry = FilterRegistry::new();
    type Decode = fn(&[u8]) -> Result<Vec<u8>>;
    let filters: [(u16, Decode); 5] = [
        (LZF, |input| lzf::decompress(input, MAX_CHUNK)),
        (BZIP2, |input| read_bounded(bzip2::bufread::BzDecoder::new(input))),
        (BLOSC, |input| blosc::decompress(input, MAX_CHUNK)),
        (LZ4, decode_lz4),
        (ZSTD, decode_zstd),
    ];
    // The crate's implementations are slower.
    let shuffle = |_: &_, input: &[u8], width: usize| {
        let mut out = vec![0; input.len()];
        blosc::unshuffle(input, &mut out, width.max(1));
        Ok(out)
    };
    registry.register(SHUFFLE, Box::new(shuffle));
    let size = AtomicUsize::new(0);
    let deflate = move |_: &_, input: &[u8], _: usize| {
        let out = inflate_zlib(input, size.load(Ordering::Relaxed));
        let out = out.map_err(|e| Hdf5Error::DecompressionError(e.to_string()))?;
        size.store(out.len(), Ordering::Relaxed);
        Ok(out)
    };
    registry.register(DEFLATE, Box::new(deflate));
    for (id, decode) in filters {
        let filter = move |_: &_, input: &[u8], _: usize| {
            decode(input).map_err(|e| Hdf5Error::DecompressionError(e.to_string()))
        };
        registry.register(id, Box::new(filter));
    }
    registry
}

/// Inflates a zlib stream; `expected` is its inflated size, which is the same for all chunks of a dataset.
fn inflate_zlib(input: &[u8], expected: usize) -> Result<Vec<u8>> {
    let damaged = || Error::input("expected a zlib stream, found damaged bytes");
    let mut stream = flate2::Decompress::new(true);
    let mut out = Vec::with_capacity(expected.max(input.len() * 2).clamp(256, MAX_CHUNK) + 1);
    loop {
        let taken = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(taken..).ok_or_else(damaged)?;
        let before = (taken, out.len());
        let status = stream.decompress_vec(rest, &mut out, flate2::FlushDecompress::Finish).map_err(|_| damaged())?;
        match status {
            flate2::Status::StreamEnd if out.len() <= MAX_CHUNK => return Ok(out),
            _ if out.len() > MAX_CHUNK => {
                return Err(Error::input(format!("expected a chunk of at most {MAX_CHUNK} bytes, found more")));
            }
            _ if out.len() == out.capacity() => out.reserve(out.len().min(MAX_CHUNK + 1 - out.len())),
            _ if (usize::try_from(stream.total_in()).unwrap_or(usize::MAX), out.len()) == before => {
                return Err(damaged());
            }
            _ => {}
        }
    }
}

fn read_bounded(input: impl Read) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    input.take(MAX_CHUNK as u64 + 1).read_to_end(&mut out)?;
    if out.len() > MAX_CHUNK {
        return Err(Error::input(format!("expected a chunk of at most {MAX_CHUNK} bytes, found more")));
    }
    Ok(out)
}

fn decode_zstd(input: &[u8]) -> Result<Vec<u8>> {
    read_bounded(zstd::stream::read::Decoder::with_buffer(input)?)
}

/// Decodes HDF5's LZ4 framing: total bytes, bytes of a block, then blocks with their packed size; all numbers
/// big-endian.
fn decode_lz4(input: &[u8]) -> Result<Vec<u8>> {
    let cut = || Error::input("expected LZ4 blocks, found damaged bytes");
    let number = |at: usize| {
        let bytes = input.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(cut)?;
        usize::try_from(u32::from_be_bytes(*bytes)).map_err(|_| cut())
    };
    let (high, total, block) = (number(0)?, number(4)?, number(8)?);
    if high > 0 || total > MAX_CHUNK || block == 0 {
        return Err(cut());
    }
    let mut out = vec![0; total];
    let mut at = 12;
    for target in out.chunks_mut(block) {
        let packed = number(at)?;
        let content = input.get(at + 4..).and_then(|rest| rest.get(..packed)).ok_or_else(cut)?;
        at += 4 + packed;
        if packed == target.len() {
            target.copy_from_slice(content);
        } else if lz4_flex::block::decompress_into(content, target).ok() != Some(target.len()) {
            return Err(cut());
        }
    }
    Ok(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::io::Write;

    use super::*;

    fn zlib(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn streams_are_inflated_whatever_was_expected() {
        let content: Vec<u8> = (0..300_000_u32).map(|i| ((i * 7919) >> 9).to_le_bytes()[0]).collect();
        for length in [0, 1, 700, 300_000] {
            for expected in [0, 1, length, 1 << 20] {
                assert_eq!(inflate_zlib(&zlib(&content[..length]), expected).unwrap(), &content[..length]);
            }
        }
        let stored = zlib(&content);
        assert!(inflate_zlib(&stored[..stored.len() / 2], 300_000).is_err());
        assert!(inflate_zlib(&stored[..stored.len() - 2], 0).is_err());
        assert!(inflate_zlib(&content, 0).is_err());
        assert!(inflate_zlib(&zlib(&vec![0; MAX_CHUNK + 1]), 0).is_err());
        assert_eq!(inflate_zlib(&zlib(&vec![0; MAX_CHUNK]), 0).unwrap().len(), MAX_CHUNK);
    }
}
