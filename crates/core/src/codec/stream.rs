//! Whole-file compression of a shard from units that are compressed separately, appended in order, and can be copied
//! from one file to another.
//!
//! Readers of training shards stop at the end of the first gzip member (Python's `tarfile` in stream mode, TensorFlow),
//! so a gzip shard is one member, assembled as pigz does it. Zstandard readers continue with the next frame.
//!
//! ```text
//! gzip  header (10)  [ deflate blocks, full flush to a byte ]*  03 00  CRC-32  length mod 2^32
//!       once          unit 1 .. unit n                          tail (10)
//! zstd                [ frame with content size and checksum ]*  5e 2a 4d 18  size  [stored u32 | raw u32]*
//!                     unit 1 .. unit n                           frames u32  00  b1 ea 92 8f       tail
//! none                [ bytes ]*
//! ```
//!
//! The tail of a zstd shard is the seek table of zstd's seekable format: a skippable frame, which plain readers ignore.
//! (Without units it follows an empty frame.) The offsets of the units are also kept in [`Frames`], because gzip cannot
//! store them: any unit can be decoded alone, a zstd frame as it is, a gzip unit as raw deflate data.
//!
//! Invariants: no unit refers to bytes of another unit; the bytes of a unit depend only on its raw bytes and the codec;
//! a shard of any number of units, zero included, decodes to the concatenation of their raw bytes.

use std::io::{self, Read};

use flate2::{Compress, FlushCompress, Status};
use zstd::zstd_safe::{CParameter, compress_bound};

use super::{
    Codec,
    decompress::{self, Compression},
};
use crate::error::{Error, Result};

/// Compressed bytes that can be placed anywhere between the header and the tail of a shard of the same codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The compressed bytes; empty if and only if there are no raw bytes.
    pub bytes: Vec<u8>,
    /// Length before compression.
    pub raw_bytes: u64,
    /// CRC-32 (as in gzip) of the raw bytes; 0 unless the codec is gzip.
    pub crc32: u32,
}

/// Method DEFLATE, no flags, no time, operating system unknown: the same for every shard.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block: fixed codes, only the end-of-block code.
const GZIP_LAST_BLOCK: [u8; 2] = [0x03, 0x00];
/// Content size 0, checksum on, one empty raw block: zstd does not accept an empty file.
const ZSTD_EMPTY_FRAME: [u8; 13] = [0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x00, 0x01, 0x00, 0x00, 0x99, 0xe9, 0xd8, 0x51];
/// First bytes of the skippable frame of a seek table: 0x184D2A5E.
const SKIPPABLE_MAGIC: [u8; 4] = [0x5e, 0x2a, 0x4d, 0x18];
/// Last bytes of the skippable frame: 0x8F92EAB1.
const SEEKABLE_MAGIC: [u8; 4] = [0xb1, 0xea, 0x92, 0x8f];
/// Bytes of the number of frames, the descriptor and the magic number.
const SEEK_TABLE_FOOTER: u32 = 9;
/// Maximum number of frames in the seekable format.
const SEEK_TABLE_FRAMES: u32 = 0x800_0000;

impl Codec {
    /// Returns the file name suffix of a shard compressed as a whole: `""`, `".zst"` or `".gz"`.
    pub fn stream_extension(self) -> &'static str {
        match self {
            Self::Zstd(_) => ".zst",
            Self::Gzip(_) => ".gz",
            Self::None | Self::Lz4 | Self::Snappy => "",
        }
    }

    /// Returns the bytes before the first unit.
    pub fn stream_header(self) -> &'static [u8] {
        match self {
            Self::Gzip(_) => &GZIP_HEADER,
            Self::None | Self::Zstd(_) | Self::Lz4 | Self::Snappy => &[],
        }
    }

    /// Compresses one unit.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) for codecs that are not supported for whole shards.
    pub fn compress_unit(self, raw: Vec<u8>) -> Result<Unit> {
        let raw_bytes = raw.len() as u64;
        let (bytes, crc32) = match self {
            Self::Lz4 | Self::Snappy => return Err(unsupported_codec(self)),
            _ if raw.is_empty() => (Vec::new(), 0),
            Self::None => (raw, 0),
            Self::Zstd(level) => (zstd_frame(level, &raw)?, 0),
            Self::Gzip(level) => (deflate_blocks(level, &raw)?, crc32fast::hash(&raw)),
        };
        Ok(Unit { bytes, raw_bytes, crc32 })
    }

    /// Decompresses one unit of `raw_bytes` raw bytes.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) when it is damaged or has another size.
    pub fn decompress_unit(self, stored: &[u8], raw_bytes: u64) -> Result<Vec<u8>> {
        let damaged = |found: String| Error::integrity(format!("expected a unit of {raw_bytes} bytes, found {found}"));
        // A gzip unit is raw deflate data that ends in a flush; the final block belongs to the shard.
        let last: &'static [u8] = if matches!(self, Self::Gzip(_)) { &GZIP_LAST_BLOCK } else { &[] };
        let input: Box<dyn Read + Send> = Box::new(io::Cursor::new(stored.to_vec()).chain(last));
        let mut source: Box<dyn Read> = match self {
            Self::Gzip(_) => Box::new(flate2::read::DeflateDecoder::new(input)),
            codec => open_shard_decoder(codec, input)?,
        };
        let mut raw = Vec::new();
        let read = source.by_ref().take(raw_bytes.saturating_add(1)).read_to_end(&mut raw);
        read.map_err(|e| damaged("damage".to_owned()).with_cause(e))?;
        if raw.len() as u64 == raw_bytes { Ok(raw) } else { Err(damaged(format!("{} bytes or more", raw.len()))) }
    }
}

/// Sizes of the units of a shard that is compressed as a whole, in order, as (stored, raw) bytes. The table is unknown
/// for a shard that was written without one; joining an unknown table makes the result unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frames(Option<Vec<(u32, u32)>>);

impl Default for Frames {
    fn default() -> Self {
        Self(Some(Vec::new()))
    }
}

impl Frames {
    /// An unknown table.
    pub const UNKNOWN: Self = Self(None);

    /// Adds a unit; a unit too large for a seek table makes the table unknown.
    pub fn push(&mut self, stored: u64, raw: u64) {
        match (u32::try_from(stored), u32::try_from(raw), &mut self.0) {
            (Ok(stored), Ok(raw), Some(frames)) => frames.push((stored, raw)),
            _ => self.0 = None,
        }
    }

    /// Adds the units of another shard, copied after those of this one.
    pub fn append_frames(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (Some(frames), Some(more)) => frames.extend_from_slice(more),
            _ => self.0 = None,
        }
    }

    /// Returns the units if they are known.
    pub fn units(&self) -> Option<&[(u32, u32)]> {
        self.0.as_deref()
    }

    /// Returns the raw bytes of all units.
    pub fn raw_bytes(&self) -> u64 {
        self.units().into_iter().flatten().map(|(_, raw)| u64::from(*raw)).sum()
    }

    /// Returns the size in bytes of the seek table of `units` units.
    pub fn seek_table_bytes(units: usize) -> u64 {
        8 + 8 * units as u64 + u64::from(SEEK_TABLE_FOOTER)
    }

    /// Returns the skippable frame that ends a seekable zstd file; empty if the units are unknown or too many.
    pub fn seek_table(&self) -> Vec<u8> {
        let Some(frames) = self.units() else { return Vec::new() };
        let Ok(count) = u32::try_from(frames.len()) else { return Vec::new() };
        if count > SEEK_TABLE_FRAMES {
            return Vec::new();
        }
        let size = 8 * count + SEEK_TABLE_FOOTER;
        let mut out = Vec::with_capacity(8 + size as usize);
        out.extend_from_slice(&SKIPPABLE_MAGIC);
        out.extend_from_slice(&size.to_le_bytes());
        for (stored, raw) in frames {
            out.extend_from_slice(&stored.to_le_bytes());
            out.extend_from_slice(&raw.to_le_bytes());
        }
        out.extend_from_slice(&count.to_le_bytes());
        // No checksums here: every frame has its own.
        out.push(0);
        out.extend_from_slice(&SEEKABLE_MAGIC);
        out
    }
}

/// Accumulates the bytes after the last unit of a shard while units are appended in order.
#[derive(Debug, Clone)]
pub struct Tail {
    codec: Codec,
    raw_bytes: u64,
    crc: crc32fast::Hasher,
    frames: Frames,
}

impl Tail {
    /// Creates the tail of a shard without units.
    pub fn new(codec: Codec) -> Self {
        Self { codec, raw_bytes: 0, crc: crc32fast::Hasher::new(), frames: Frames::default() }
    }

    /// Adds a unit with its stored and raw sizes in bytes.
    pub fn add_unit(&mut self, stored: u64, raw_bytes: u64, crc32: u32) {
        let mut frames = Frames::default();
        if !self.codec.stream_extension().is_empty() && stored > 0 {
            frames.push(stored, raw_bytes);
        }
        self.add_frames(raw_bytes, crc32, &frames);
    }

    /// Adds units that were [combined](Self::combined_totals) elsewhere.
    pub fn add_frames(&mut self, raw_bytes: u64, crc32: u32, frames: &Frames) {
        self.frames.append_frames(frames);
        self.raw_bytes += raw_bytes;
        if matches!(self.codec, Codec::Gzip(_)) {
            self.crc.combine(&crc32fast::Hasher::new_with_initial_len(crc32, raw_bytes));
        }
    }

    /// Returns the raw length and CRC-32 of all units added, as if they were one; the CRC-32 is 0 unless the codec is
    /// gzip.
    pub fn combined_totals(&self) -> (u64, u32) {
        (self.raw_bytes, self.crc.clone().finalize())
    }

    /// Returns the units added.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Returns the bytes that end the shard. Joining shards by copying omits them; they are the last 10 bytes of a gzip
    /// shard, the seek table of a zstd shard, and empty otherwise.
    #[expect(clippy::cast_possible_truncation, reason = "gzip stores the length modulo 2^32")]
    pub fn finish(mut self) -> Vec<u8> {
        match self.codec {
            Codec::Gzip(_) => {
                let (raw_bytes, crc) = self.combined_totals();
                [&GZIP_LAST_BLOCK[..], &crc.to_le_bytes(), &(raw_bytes as u32).to_le_bytes()].concat()
            }
            Codec::Zstd(_) if self.raw_bytes == 0 => {
                self.frames.push(ZSTD_EMPTY_FRAME.len() as u64, 0);
                [&ZSTD_EMPTY_FRAME[..], &self.frames.seek_table()].concat()
            }
            Codec::Zstd(_) => self.frames.seek_table(),
            Codec::None | Codec::Lz4 | Codec::Snappy => Vec::new(),
        }
    }
}

/// Decompresses a shard, as [`decompress::open_decoder`] does; without a codec the input is returned.
///
/// # Errors
/// When the decoder cannot be set up.
pub fn open_shard_decoder(codec: Codec, input: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
    let compression = match codec {
        Codec::None => return Ok(input),
        Codec::Zstd(_) => Compression::Zstd,
        Codec::Gzip(_) => Compression::Gzip,
        Codec::Lz4 => Compression::Lz4,
        Codec::Snappy => Compression::Snappy,
    };
    decompress::open_decoder(compression, input)
}

fn zstd_frame(level: i32, raw: &[u8]) -> Result<Vec<u8>> {
    let failed =
        |error: io::Error| Error::internal(format!("zstd cannot compress {} bytes", raw.len())).with_cause(error);
    // A separate context for every frame, so that no frame depends on data compressed before.
    let mut compressor = zstd::bulk::Compressor::new(level).map_err(failed)?;
    compressor.set_parameter(CParameter::ChecksumFlag(true)).map_err(failed)?;
    compressor.set_parameter(CParameter::ContentSizeFlag(true)).map_err(failed)?;
    let mut bytes = Vec::with_capacity(compress_bound(raw.len()));
    compressor.compress_to_buffer(raw, &mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn deflate_blocks(level: u32, raw: &[u8]) -> Result<Vec<u8>> {
    let mut deflate = Compress::new(flate2::Compression::new(level), false);
    // Fixed codes need 9 bits for some bytes, which adds up to an eighth; untouched pages are free.
    let mut bytes = Vec::with_capacity(raw.len() + raw.len() / 8 + 1024);
    loop {
        let taken = usize::try_from(deflate.total_in()).unwrap_or(raw.len());
        let status = deflate
            .compress_vec(&raw[taken..], &mut bytes, FlushCompress::Full)
            .map_err(|e| Error::internal(format!("gzip cannot compress {} bytes", raw.len())).with_cause(e))?;
        // A flush is complete when the output has free space, or when nothing is left to do.
        let complete = bytes.len() < bytes.capacity() || matches!(status, Status::BufError);
        if deflate.total_in() == raw.len() as u64 && complete {
            return Ok(bytes);
        }
        bytes.reserve(64 << 10);
    }
}

fn unsupported_codec(codec: Codec) -> Error {
    Error::usage(format!("expected a codec for whole shards, found `{codec}`"))
        .with_hint("tar and TFRecord shards support none, zstd and gzip; lz4 and snappy are for Parquet only")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::io::Write;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::{super::decompress::detect_compression, *};
    use crate::error::Kind;

    const SHARD_CODECS: [Codec; 5] = [Codec::None, Codec::Zstd(1), Codec::Zstd(7), Codec::Gzip(1), Codec::Gzip(6)];

    fn shard(codec: Codec, units: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = codec.stream_header().to_vec();
        let mut tail = Tail::new(codec);
        for raw in units {
            let unit = codec.compress_unit(raw.clone()).unwrap();
            assert_eq!(unit.raw_bytes, raw.len() as u64);
            tail.add_unit(unit.bytes.len() as u64, unit.raw_bytes, unit.crc32);
            bytes.extend(unit.bytes);
        }
        bytes.extend(tail.finish());
        bytes
    }

    fn decode(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        open_shard_decoder(codec, Box::new(io::Cursor::new(bytes.to_vec())))?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..length)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[3]
            })
            .collect()
    }

    #[test]
    fn a_shard_without_units_is_empty() {
        for codec in SHARD_CODECS {
            assert_eq!(decode(codec, &shard(codec, &[])).unwrap(), b"", "{codec}");
            assert_eq!(decode(codec, &shard(codec, &[vec![], vec![]])).unwrap(), b"", "{codec}");
        }
        let empty = zstd::bulk::decompress(&ZSTD_EMPTY_FRAME, 0).unwrap();
        assert_eq!(empty, b"");
        assert_eq!(ZSTD_EMPTY_FRAME.to_vec(), zstd_frame(1, b"").unwrap());
    }

    #[test]
    fn units_are_decoded_separately() {
        for codec in SHARD_CODECS {
            for raw in [noise(100_000), b"aaaa".repeat(70_000), vec![7]] {
                let unit = codec.compress_unit(raw.clone()).unwrap();
                assert!(codec.decompress_unit(&unit.bytes, unit.raw_bytes).unwrap() == raw, "{codec}");
                assert!(codec.decompress_unit(&unit.bytes, unit.raw_bytes + 1).is_err(), "{codec}");
                assert!(codec.decompress_unit(&unit.bytes, unit.raw_bytes - 1).is_err(), "{codec}");
            }
        }
    }

    #[test]
    fn incompressible_and_large_units_pass() {
        for codec in SHARD_CODECS.into_iter().chain([Codec::Gzip(9)]) {
            let units = [noise(3_000_000), vec![0; 5_000_000], noise(1)];
            assert!(decode(codec, &shard(codec, &units)).unwrap() == units.concat(), "{codec}");
        }
    }

    #[test]
    fn gzip_shards_are_one_member() {
        let units = [b"first unit ".repeat(500), noise(70_000), b"last".to_vec()];
        let bytes = shard(Codec::Gzip(6), &units);
        // The single-member decoder must consume everything, including the CRC and length check.
        let mut single = GzDecoder::new(&bytes[..]);
        let mut out = Vec::new();
        single.read_to_end(&mut out).unwrap();
        assert_eq!(out, units.concat());
        assert!(single.into_inner().is_empty());
        assert_eq!(bytes[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    }

    #[test]
    fn units_can_be_copied_into_another_file() {
        let units = [b"aaaa".repeat(1000), noise(1000), b"aaaa".repeat(1000)];
        for codec in SHARD_CODECS {
            let (mut body, mut group) = (Vec::new(), Tail::new(codec));
            for raw in &units[1..] {
                let unit = codec.compress_unit(raw.clone()).unwrap();
                group.add_unit(unit.bytes.len() as u64, unit.raw_bytes, unit.crc32);
                body.extend(unit.bytes);
            }
            let first = codec.compress_unit(units[0].clone()).unwrap();
            let mut tail = Tail::new(codec);
            let (raw_bytes, crc32) = group.combined_totals();
            tail.add_frames(raw_bytes, crc32, group.frames());
            tail.add_unit(first.bytes.len() as u64, first.raw_bytes, first.crc32);
            let joined = [codec.stream_header(), &body, &first.bytes, &tail.finish()].concat();
            assert_eq!(decode(codec, &joined).unwrap(), [&units[1][..], &units[2], &units[0]].concat(), "{codec}");
        }
    }

    #[test]
    fn zstd_shards_end_in_the_seek_table_of_their_frames() {
        let units = [noise(1000), b"aaaa".repeat(5000)];
        let bytes = shard(Codec::Zstd(1), &units);
        let footer = &bytes[bytes.len() - 9..];
        assert_eq!(footer, [2, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f]);
        let table = &bytes[bytes.len() - 9 - 16 - 8..];
        assert_eq!(table[..8], [0x5e, 0x2a, 0x4d, 0x18, 25, 0, 0, 0]);
        let number = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().unwrap()) as usize;
        let first = zstd::bulk::decompress(&bytes[..number(8)], number(12)).unwrap();
        let second = zstd::bulk::decompress(&bytes[number(8)..][..number(16)], number(20)).unwrap();
        assert_eq!([first, second], units);
        assert_eq!(number(8) + number(16) + table.len(), bytes.len());
    }

    #[test]
    fn zstd_frames_state_their_size_and_checksum() {
        let frame = Codec::Zstd(3).compress_unit(noise(1000)).unwrap().bytes;
        assert_eq!(zstd::zstd_safe::get_frame_content_size(&frame).unwrap(), Some(1000));
        assert_ne!(frame[4] & 0b100, 0, "checksum flag");
    }

    #[test]
    fn the_length_in_gzip_wraps_at_four_gibibytes() {
        let mut tail = Tail::new(Codec::Gzip(6));
        let zeros = crc32fast::hash(&[0; 4096]);
        (0..(1 << 20) + 1).for_each(|_| tail.add_unit(20, 4096, zeros));
        assert_eq!(tail.combined_totals().0, (4 << 30) + 4096);
        assert_eq!(tail.finish()[6..], 4096_u32.to_le_bytes());
    }

    #[test]
    fn codecs_of_parquet_are_refused_for_shards_but_read_as_inputs() {
        for codec in [Codec::Lz4, Codec::Snappy] {
            let error = codec.compress_unit(vec![1]).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.hints()[0].contains("zstd"));
        }
        let raw = b"some text, some text".repeat(4000);
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&raw).unwrap();
        let lz4 = lz4.finish().unwrap();
        assert_eq!(detect_compression(&lz4), Some(Compression::Lz4));
        assert!(decode(Codec::Lz4, &[&lz4[..], &lz4].concat()).unwrap() == [&raw[..], &raw].concat());
        for cut in 1..lz4.len() {
            let bytes = [&lz4[..], &lz4[..cut]].concat();
            let error = decode(Codec::Lz4, &bytes).map(|out| (cut, out.len())).unwrap_err();
            assert_eq!(error.kind(), Kind::Input, "{cut}");
        }
        assert_eq!(decode(Codec::Lz4, b"").unwrap(), b"");
        let mut snappy = snap::write::FrameEncoder::new(Vec::new());
        snappy.write_all(&raw).unwrap();
        let snappy = snappy.into_inner().unwrap();
        assert_eq!(detect_compression(&snappy), Some(Compression::Snappy));
        assert!(decode(Codec::Snappy, &snappy).unwrap() == raw);
        // Snappy has no end marker; truncation is detected unless it is between two chunks.
        let accepted = (1..snappy.len()).filter(|&cut| decode(Codec::Snappy, &snappy[..cut]).is_ok()).count();
        assert_eq!(accepted, raw.len().div_ceil(65_536));
    }

    #[test]
    fn several_gzip_members_are_read_to_the_end() {
        let one = shard(Codec::Gzip(6), &[b"one,".to_vec()]);
        let two = shard(Codec::Gzip(1), &[b"two".to_vec()]);
        assert_eq!(decode(Codec::Gzip(6), &[one, two].concat()).unwrap(), b"one,two");
    }

    #[test]
    fn truncation_and_damage_are_errors() {
        let units = [b"hello hello ".repeat(20), noise(100)];
        for codec in [Codec::Zstd(1), Codec::Gzip(6)] {
            let bytes = shard(codec, &units);
            let frame = codec.compress_unit(units[0].clone()).unwrap().bytes.len();
            let both = frame + codec.compress_unit(units[1].clone()).unwrap().bytes.len();
            for length in 1..bytes.len() {
                if codec == Codec::Zstd(1) && (length == frame || length == both) {
                    continue; // between two frames, which only a count of records can tell, or before the seek table
                }
                let error = decode(codec, &bytes[..length]).unwrap_err();
                assert_eq!(error.kind(), Kind::Input, "{codec} {length}");
            }
            for at in 10..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert!(decode(codec, &damaged).map_or(true, |out| out != units.concat() || out.len() == 340));
            }
        }
    }

    #[test]
    fn failures_of_the_input_keep_their_kind() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "connection lost"))
            }
        }
        for codec in [Codec::None, Codec::Zstd(1), Codec::Gzip(6), Codec::Lz4, Codec::Snappy] {
            let opened = open_shard_decoder(codec, Box::new(Failing));
            let read = opened.and_then(|mut shard| shard.read(&mut [0; 9]).map_err(Error::from));
            assert_eq!(read.unwrap_err().kind(), Kind::Storage, "{codec}");
        }
    }

    #[test]
    fn a_window_beyond_the_bound_is_refused() {
        // A frame header that requests a window of 2^31 bytes, then an empty last block.
        let bytes = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        assert_eq!(decode(Codec::Zstd(1), &bytes).unwrap_err().kind(), Kind::Input);
    }

    #[test]
    fn magic_bytes_are_detected() {
        for (codec, found) in [(Codec::Zstd(1), Compression::Zstd), (Codec::Gzip(6), Compression::Gzip)] {
            assert_eq!(detect_compression(&shard(codec, &[b"x".to_vec()])), Some(found));
        }
        for head in [&b""[..], b"\x1f\x8b", b"id,name", b"PAR1", b"\x28\xb5\x2f"] {
            assert_eq!(detect_compression(head), None);
        }
    }

    proptest! {
        #[test]
        fn units_decode_to_their_concatenation(
            units in prop::collection::vec(prop::collection::vec(prop_oneof![Just(7_u8), any::<u8>()], 0..3000), 0..6),
            which in 0..SHARD_CODECS.len(),
        ) {
            let codec = SHARD_CODECS[which];
            prop_assert_eq!(decode(codec, &shard(codec, &units)).unwrap(), units.concat());
        }
    }
}
