//! Blosc 1, the container that Zarr and HDF5 compress chunks with.
//!
//! ```text
//! version  codec version  flags  type size  | bytes  block size  packed bytes  (u32, little endian)   16 bytes
//! offset of each block (u32 each)   blocks         flags: 1 shuffled by byte, 2 stored, 4 shuffled by bit, codec << 5
//! block: streams of (i32 packed bytes, bytes): one per byte of the type, or a single one if bit 4 of the flags is set
//! ```
//!
//! A stream whose length equals its decoded length is stored uncompressed. Codecs are blosclz, lz4 (and lz4hc), snappy,
//! zlib and zstd.

use std::io::Read;

use crate::error::{Error, Result};

const HEADER: usize = 16;
const BYTE_SHUFFLE: u8 = 1;
const STORED: u8 = 2;
const BIT_SHUFFLE: u8 = 4;
const NOT_SPLIT: u8 = 16;
/// Maximum streams of a block, and their minimum size in bytes.
const MAX_SPLITS: usize = 16;
const MIN_STREAM: usize = 128;

fn u32_at(bytes: &[u8], at: usize) -> Result<usize> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let found = found.ok_or_else(|| Error::input("expected Blosc, found the end of the chunk"))?;
    Ok(usize::try_from(u32::from_le_bytes(*found)).unwrap_or(usize::MAX))
}

/// Decompresses a chunk to at most `limit` bytes.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is damaged or longer, or its codec or version is not supported.
pub fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>> {
    let damaged = |what: &str| Error::input(format!("expected Blosc, found {what}"));
    let Some(header) = input.first_chunk::<HEADER>() else { return Err(damaged("the end of the chunk")) };
    let (version, flags, type_size) = (header[0], header[2], usize::from(header[3]));
    if !(1..=2).contains(&version) {
        return Err(damaged(&format!("version {version}")));
    }
    let (bytes, block_bytes) = (u32_at(input, 4)?, u32_at(input, 8)?);
    if bytes > limit {
        return Err(damaged(&format!("{bytes} bytes, more than the {limit} of a chunk")));
    }
    if flags & STORED != 0 {
        let content = input.get(HEADER..HEADER + bytes).ok_or_else(|| damaged("the end of the chunk"))?;
        return Ok(content.to_vec());
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    if block_bytes == 0 || type_size == 0 {
        return Err(damaged("blocks of no bytes"));
    }
    let blocks = bytes.div_ceil(block_bytes);
    let mut out = vec![0; bytes];
    let mut scratch = vec![0; block_bytes.min(bytes)];
    for (number, target) in out.chunks_mut(block_bytes).enumerate() {
        let start = u32_at(input, HEADER + 4 * number)?;
        let block = &mut scratch[..target.len()];
        let whole = target.len() == block_bytes;
        let splits = if flags & NOT_SPLIT == 0 && whole && is_split(type_size, block_bytes) { type_size } else { 1 };
        let stream_bytes = target.len() / splits;
        let mut at = start;
        for stream in block.chunks_mut(stream_bytes.max(1)) {
            let packed = u32_at(input, at)?;
            let content = at.checked_add(4).and_then(|from| input.get(from..from.checked_add(packed)?));
            let content = content.ok_or_else(|| damaged("a stream beyond the end of the chunk"))?;
            at += 4 + packed;
            if packed == stream.len() {
                stream.copy_from_slice(content);
            } else {
                decompress_stream(flags >> 5, content, stream)?;
            }
        }
        if flags & BYTE_SHUFFLE != 0 && type_size > 1 {
            unshuffle(block, target, type_size);
        } else if flags & BIT_SHUFFLE != 0 && target.len() >= type_size {
            bit_unshuffle(block, target, type_size);
        } else {
            target.copy_from_slice(block);
        }
    }
    debug_assert!(blocks > 0);
    Ok(out)
}

/// Whether old versions, which did not record it, split such blocks.
fn is_split(type_size: usize, block_bytes: usize) -> bool {
    type_size <= MAX_SPLITS && block_bytes / type_size >= MIN_STREAM && block_bytes.is_multiple_of(type_size)
}

fn decompress_stream(codec: u8, input: &[u8], out: &mut [u8]) -> Result<()> {
    let damaged = |name: &str| Error::input(format!("expected {name} in Blosc, found damaged bytes"));
    let written = match codec {
        0 => decompress_blosclz(input, out).ok_or_else(|| damaged("blosclz"))?,
        1 => lz4_flex::block::decompress_into(input, out).map_err(|e| damaged("lz4").with_cause(e))?,
        2 => {
            let length = snap::raw::decompress_len(input).map_err(|e| damaged("snappy").with_cause(e))?;
            if length > out.len() {
                return Err(damaged("snappy"));
            }
            snap::raw::Decoder::new().decompress(input, out).map_err(|e| damaged("snappy").with_cause(e))?
        }
        3 => {
            let mut inflated = Vec::with_capacity(out.len());
            let limit = out.len() as u64 + 1;
            let mut decoder = flate2::bufread::ZlibDecoder::new(input).take(limit);
            decoder.read_to_end(&mut inflated).map_err(|e| damaged("zlib").with_cause(e))?;
            if inflated.len() == out.len() {
                out.copy_from_slice(&inflated);
            }
            inflated.len()
        }
        4 => zstd::bulk::decompress_to_buffer(input, out).map_err(|e| damaged("zstd").with_cause(e))?,
        other => return Err(Error::input(format!("expected a Blosc 1 codec, found codec number {other}"))),
    };
    if written == out.len() { Ok(()) } else { Err(damaged("as many bytes as the block has")) }
}

/// Reverses the byte shuffle, which groups bytes by their position within an element; a trailing partial element is
/// copied.
pub fn unshuffle(input: &[u8], out: &mut [u8], type_size: usize) {
    match type_size {
        2 => return join_planes::<2>(input, out),
        4 => return join_planes::<4>(input, out),
        8 => return join_planes::<8>(input, out),
        _ => {}
    }
    let elements = out.len() / type_size;
    for (place, plane) in input.chunks_exact(elements.max(1)).take(type_size).enumerate() {
        for (element, byte) in out.chunks_exact_mut(type_size).zip(plane) {
            element[place] = *byte;
        }
    }
    let whole = elements * type_size;
    out[whole..].copy_from_slice(&input[whole..]);
}

/// [`unshuffle`] for elements of `N` bytes, which the compiler vectorises.
fn join_planes<const N: usize>(input: &[u8], out: &mut [u8]) {
    let (elements, rest) = out.as_chunks_mut::<N>();
    let count = elements.len();
    let (planes, tail) = input.split_at(count * N);
    rest.copy_from_slice(tail);
    let planes: [&[u8]; N] = std::array::from_fn(|plane| &planes[plane * count..][..count]);
    for (i, element) in elements.iter_mut().enumerate() {
        *element = std::array::from_fn(|plane| planes[plane][i]);
    }
}

/// Reverses the bit shuffle. Blocks whose number of elements is not a multiple of eight were not shuffled.
fn bit_unshuffle(input: &[u8], out: &mut [u8], type_size: usize) {
    let elements = out.len() / type_size;
    if !elements.is_multiple_of(8) {
        return out.copy_from_slice(input);
    }
    let row = elements / 8;
    out[elements * type_size..].copy_from_slice(&input[elements * type_size..]);
    out[..elements * type_size].fill(0);
    for bit in 0..type_size * 8 {
        let (place, shift) = (bit / 8, bit % 8);
        for (group, byte) in input[bit * row..][..row].iter().enumerate() {
            for element in 0..8 {
                out[(group * 8 + element) * type_size + place] |= (byte >> element & 1) << shift;
            }
        }
    }
}

/// Decodes Blosc's own codec: literals, and copies of at least 3 bytes from up to 8191 + 65536 bytes back.
fn decompress_blosclz(input: &[u8], out: &mut [u8]) -> Option<usize> {
    const FAR: usize = 8191;
    let (mut at, mut to) = (0_usize, 0_usize);
    let next = |at: &mut usize| -> Option<usize> {
        *at += 1;
        input.get(*at - 1).map(|byte| usize::from(*byte))
    };
    let mut control = next(&mut at)? & 31;
    loop {
        if control >= 32 {
            let mut length = (control >> 5) - 1;
            let mut back = (control & 31) << 8;
            if length == 6 {
                loop {
                    let more = next(&mut at)?;
                    length += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = next(&mut at)?;
            if low == 255 && back == 31 << 8 {
                back = (next(&mut at)? << 8) + next(&mut at)? + FAR;
            } else {
                back += low;
            }
            let start = to.checked_sub(back + 1)?;
            for from in start..start + length + 3 {
                *out.get_mut(to)? = out[from];
                to += 1;
            }
        } else {
            let literal = input.get(at..at + control + 1)?;
            out.get_mut(to..to + literal.len())?.copy_from_slice(literal);
            (at, to) = (at + literal.len(), to + literal.len());
        }
        if at >= input.len() {
            return Some(to);
        }
        control = next(&mut at)?;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn container(flags: u8, type_size: u8, bytes: u32, block: u32, body: &[u8]) -> Vec<u8> {
        let mut out = vec![2, 1, flags, type_size];
        let total = u32::try_from(HEADER + body.len()).unwrap();
        [bytes, block, total].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn planes_of_all_widths_are_joined() {
        for width in [1_usize, 2, 3, 4, 8, 16] {
            for length in [0, 1, width, 5 * width, 5 * width + width / 2, 67 * width + 1] {
                let plain: Vec<u8> = (0..length).map(|i| (i * 37).to_le_bytes()[0]).collect();
                let whole = length / width;
                let planes = (0..width).flat_map(|plane| (0..whole).map(move |i| i * width + plane));
                let mut shuffled: Vec<u8> = planes.map(|at| plain[at]).collect();
                shuffled.extend_from_slice(&plain[whole * width..]);
                let mut out = vec![0; length];
                unshuffle(&shuffled, &mut out, width);
                assert_eq!(out, plain, "{width} {length}");
            }
        }
    }

    #[test]
    fn stored_and_packed_blocks() {
        assert_eq!(decompress(&container(STORED, 4, 3, 3, b"abc"), 10).unwrap(), b"abc");
        let packed = lz4_flex::block::compress(&[7; 300]);
        let mut body = 20_u32.to_le_bytes().to_vec();
        body.extend_from_slice(&u32::try_from(packed.len()).unwrap().to_le_bytes());
        body.extend_from_slice(&packed);
        assert_eq!(decompress(&container(1 << 5, 1, 300, 300, &body), 300).unwrap(), [7; 300]);
        assert!(decompress(&container(1 << 5, 1, 300, 300, &body), 299).is_err());
        assert!(decompress(&container(7 << 5, 1, 300, 300, &body), 300).is_err());
        for at in 0..body.len() {
            let mut changed = body.clone();
            changed[at] ^= 0xff;
            let _ = decompress(&container(1 << 5, 1, 300, 300, &changed), 300);
            let _ = decompress(&container(0, 1, 300, 300, &changed), 300);
            let _ = decompress(&container(1 << 5, 1, 300, 300, &body[..at]), 300);
        }
    }

    #[test]
    fn shuffles_are_undone() {
        let mut out = vec![0; 7];
        unshuffle(&[1, 3, 5, 2, 4, 6, 9], &mut out, 2);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 9]);
        // Eight elements of one byte: bit 0 of all of them is in the first byte.
        let mut out = vec![0; 8];
        bit_unshuffle(&[0b0000_0101, 0, 0, 0, 0, 0, 0, 0b1000_0000], &mut out, 1);
        assert_eq!(out, [1, 0, 1, 0, 0, 0, 0, 128]);
        bit_unshuffle(&[1, 2, 3], &mut out[..3], 1);
        assert_eq!(out[..3], [1, 2, 3]);
    }

    #[test]
    fn blosclz_copies_its_own_output() {
        let mut out = vec![0; 8];
        assert_eq!(decompress_blosclz(&[2, b'a', b'b', b'c', 2 << 5, 2], &mut out), Some(7));
        assert_eq!(&out[..7], b"abcabca");
        assert_eq!(decompress_blosclz(&[0, b'a', 7 << 5, 255, 255, 0, 0], &mut out), None);
    }
}
