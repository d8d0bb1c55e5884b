//! Decompresses inputs and shards of any origin: all members, frames or streams, one after the other.
//!
//! More compressions can be read than written. A shard may be compressed with a [`Codec`](super::Codec); bzip2 and xz
//! are only read, because readers of shards do not support them.
//!
//! Memory is bounded: windows and dictionaries are limited to the bounds below, whatever a file requests.

use std::io::{self, BufRead, BufReader, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

use crate::error::{Error, Result};

/// Maximum zstd window, as a power of two.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Maximum memory for the xz dictionary, in KiB: `xz -9` uses half of it.
const MEMORY_KIB: u32 = 132 << 10;

/// First bytes of the skippable frame that has the dictionary of a web archive: 0x184D2A5D.
const DICTIONARY_FRAME: [u8; 4] = [0x5d, 0x2a, 0x4d, 0x18];
/// First bytes of a dictionary, and of a frame: dictionaries may be compressed.
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Maximum bytes of a dictionary.
const MAX_DICTIONARY: u32 = 16 << 20;

/// Bytes of compressed input per read.
const INPUT_BUFFER: usize = 128 << 10;

/// Compression of a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// gzip: any number of members.
    Gzip,
    /// Zstandard: any number of frames, skippable ones included.
    Zstd,
    /// LZ4 frames.
    Lz4,
    /// Framed Snappy.
    Snappy,
    /// bzip2: any number of streams.
    Bzip2,
    /// xz: any number of streams, with padding between them.
    Xz,
}

impl Compression {
    /// Returns the common name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }
}

/// Detects the compression from the first bytes of a file; 10 bytes are enough.
pub fn detect_compression(head: &[u8]) -> Option<Compression> {
    match head {
        [0x1f, 0x8b, 0x08, ..] => Some(Compression::Gzip),
        // A frame, or a skippable frame as written by seekable zstd and pzstd.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(Compression::Lz4),
        [0xff, 0x06, 0x00, 0x00, b's', b'N', b'a', b'P', b'p', b'Y', ..] => Some(Compression::Snappy),
        // A block, or the end of an empty stream.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Compression::Bzip2),
        [0xfd, b'7', b'z', b'X', b'Z', 0x00, ..] => Some(Compression::Xz),
        _ => None,
    }
}

/// Decompresses an input or a shard.
///
/// Reading returns an [`Error`] of kind [`Input`](crate::error::Kind::Input) inside the [`io::Error`] when the bytes
/// are damaged or cut short; failures of `input` itself keep their kind.
///
/// # Errors
/// When the decoder cannot be set up.
pub fn open_decoder(compression: Compression, input: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
    let name = compression.name();
    let tagged = Tagged(input);
    if compression == Compression::Zstd {
        return Ok(Box::new(Decoded { inner: open_zstd(tagged)?, name, produced: 0 }));
    }
    let input = BufReader::with_capacity(INPUT_BUFFER, tagged);
    let inner: Box<dyn Read + Send> = match compression {
        Compression::Gzip | Compression::Zstd => Box::new(MultiGzDecoder::new(input)),
        Compression::Lz4 => {
            let input = EndTracker { input, ended: false };
            Box::new(Lz4Frames { inner: lz4_flex::frame::FrameDecoder::new(input), inside: false })
        }
        Compression::Snappy => Box::new(snap::read::FrameDecoder::new(input)),
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(input)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(input, true, MEMORY_KIB)),
    };
    Ok(Box::new(Decoded { inner, name, produced: 0 }))
}

type ZstdInput = io::Chain<io::Cursor<Vec<u8>>, Tagged>;

/// Opens a decoder of zstd frames, with the dictionary that a web archive has before them.
fn open_zstd(mut input: Tagged) -> Result<zstd::stream::read::Decoder<'static, BufReader<ZstdInput>>> {
    let mut start = Vec::new();
    input.by_ref().take(8).read_to_end(&mut start)?;
    let length = match start.split_first_chunk() {
        Some((&DICTIONARY_FRAME, length)) => length.first_chunk().map(|length| u32::from_le_bytes(*length)),
        _ => None,
    };
    let mut dictionary = Vec::new();
    if let Some(length) = length.filter(|length| *length <= MAX_DICTIONARY) {
        input.by_ref().take(u64::from(length)).read_to_end(&mut start)?;
        dictionary = dictionary_in(&start[8..])?;
    }
    let input = BufReader::with_capacity(INPUT_BUFFER, io::Cursor::new(start).chain(input));
    let failed = |e| match dictionary.is_empty() {
        true => set_up_failed(Compression::Zstd, e),
        false => dictionary_error().with_cause(e),
    };
    let mut decoder = zstd::stream::read::Decoder::with_dictionary(input, &dictionary).map_err(failed)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(failed)?;
    Ok(decoder)
}

/// Returns the dictionary that a skippable frame has, decompressed; empty if it has something else.
fn dictionary_in(frame: &[u8]) -> Result<Vec<u8>> {
    let mut dictionary = Vec::new();
    if frame.starts_with(&FRAME_MAGIC) {
        let failed = |e| set_up_failed(Compression::Zstd, e);
        let mut inner = zstd::stream::read::Decoder::with_buffer(frame).map_err(failed)?;
        inner.window_log_max(ZSTD_WINDOW_LOG).map_err(failed)?;
        let read = inner.take(u64::from(MAX_DICTIONARY) + 1).read_to_end(&mut dictionary);
        if !matches!(read, Ok(read) if read <= MAX_DICTIONARY as usize) {
            return Err(dictionary_error());
        }
    } else {
        dictionary.extend_from_slice(frame);
    }
    if !dictionary.starts_with(&DICTIONARY_MAGIC) {
        dictionary.clear();
    }
    Ok(dictionary)
}

fn dictionary_error() -> Error {
    let most = MAX_DICTIONARY >> 20;
    Error::input(format!(
        "expected a zstd dictionary of at most {most} MiB before the data, found damage or a larger one"
    ))
    .with_hint("compare the file with its original; it may have been cut short while it was copied")
}

fn set_up_failed(compression: Compression, error: io::Error) -> Error {
    Error::internal(format!("cannot set up a decoder for {}", compression.name())).with_cause(error)
}

/// Wraps the failures of an input into [`Error`], so that they can be distinguished from damaged bytes after the
/// decoder.
struct Tagged(Box<dyn Read + Send>);

impl Read for Tagged {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => Error::from(error).into(),
        })
    }
}

/// Converts errors of a decoder into an [`Error`] that states the number of decompressed bytes.
struct Decoded<R> {
    inner: R,
    name: &'static str,
    produced: u64,
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(out) {
            Ok(count) => {
                self.produced += count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<Error>()) => Err(error),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(Error::input(format!(
                "expected {} data with a dictionary of at most {} MiB, found a larger one",
                self.name,
                MEMORY_KIB >> 10
            ))
            .with_hint("compress it again with a lower level, or decompress it")
            .into()),
            Err(error) => Err(Error::input(format!(
                "expected {} data, found damage or an early end after {} decompressed bytes",
                self.name, self.produced
            ))
            .with_hint("compare the file with its original; it may have been cut short while it was copied")
            .with_cause(error)
            .into()),
        }
    }
}

/// Reads all lz4 frames. The decoder reports the end of a frame and a frame that is cut short in the same way, so it
/// sees the end of the input only inside a frame.
struct Lz4Frames {
    inner: lz4_flex::frame::FrameDecoder<EndTracker>,
    inside: bool,
}

impl Read for Lz4Frames {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside && self.inner.get_mut().input.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.inside = true;
            let count = self.inner.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            if self.inner.get_ref().ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.inside = false;
        }
    }
}

/// Records whether the end of the input was reached.
struct EndTracker {
    input: BufReader<Tagged>,
    ended: bool,
}

impl Read for EndTracker {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        self.ended |= count == 0 && !out.is_empty();
        Ok(count)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn decode(compression: Compression, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        open_decoder(compression, Box::new(io::Cursor::new(bytes.to_vec())))?.read_to_end(&mut out)?;
        Ok(out)
    }

    /// `hello, hello\n` and empty input, as compressed by Python's `bz2` and `lzma`.
    const BZIP2: &str =
        "425a68393141592653599f3c11f30000035100001040040244a0002129a3108602f28370a1e2ee48a70a1213e7823e60";
    const BZIP2_EMPTY: &str = "425a683917724538509000000000";
    const XZ: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a301000c68656c6c6f2c2068656c6c6f0a00000000bc7aaf8\
         992fc24ca0001250d7119c4b61fb6f37d010000000004595a";
    const XZ_EMPTY: &str = "fd377a585a000004e6d6b446000000001cdf44211fb6f37d010000000004595a";
    /// An xz stream that requests a dictionary of 1.5 GiB.
    const XZ_LARGE: &str = "fd377a585a000004e6d6b44602002101250000003b787b4101000c68656c6c6f2c2068656c6c6f0a00000000b\
         c7aaf8992fc24ca0001250d7119c4b61fb6f37d010000000004595a";
    const TEXT: &[u8] = b"hello, hello\n";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn streams_are_read_one_after_the_other() {
        for (compression, one, empty) in [(Compression::Bzip2, BZIP2, BZIP2_EMPTY), (Compression::Xz, XZ, XZ_EMPTY)] {
            let (one, empty) = (bytes(one), bytes(empty));
            assert_eq!((detect_compression(&one), detect_compression(&empty)), (Some(compression), Some(compression)));
            assert_eq!(decode(compression, &one).unwrap(), TEXT);
            assert_eq!(decode(compression, &empty).unwrap(), b"");
            assert_eq!(decode(compression, &[&one[..], &empty, &one].concat()).unwrap(), [TEXT, TEXT].concat());
        }
        let padded = [&bytes(XZ)[..], &[0; 8], &bytes(XZ)].concat();
        assert_eq!(decode(Compression::Xz, &padded).unwrap(), [TEXT, TEXT].concat());
    }

    #[test]
    fn truncation_and_damage_are_errors() {
        for (compression, hex) in [(Compression::Bzip2, BZIP2), (Compression::Xz, XZ)] {
            let whole = bytes(hex);
            for length in 1..whole.len() {
                for start in [&whole[..0], &whole[..]] {
                    let cut = [start, &whole[..length]].concat();
                    let error = decode(compression, &cut).map(|out| (length, out.len())).unwrap_err();
                    assert_eq!(error.kind(), Kind::Input, "{compression:?} {length}: {error}");
                }
            }
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x10;
                match decode(compression, &damaged) {
                    Ok(out) => assert!(out == TEXT, "{compression:?} {at}"),
                    Err(error) => assert_eq!(error.kind(), Kind::Input),
                }
            }
            let garbage = [&whole[..], b"garbage"].concat();
            assert_eq!(decode(compression, &garbage).unwrap_err().kind(), Kind::Input, "{compression:?}");
        }
    }

    #[test]
    fn zstd_frames_may_follow_their_dictionary() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/warc");
        let packed = std::fs::read(folder.join("dictionary.warc.zst")).unwrap();
        let records = decode(Compression::Gzip, &std::fs::read(folder.join("example.warc.gz")).unwrap()).unwrap();
        let length = u32::from_le_bytes(*packed[4..].first_chunk().unwrap()) as usize;
        let (dictionary, frames) = packed[8..].split_at(length);
        let file = |stored: &[u8]| {
            let length = u32::try_from(stored.len()).unwrap().to_le_bytes();
            [&DICTIONARY_FRAME[..], &length, stored, frames].concat()
        };
        let bare = zstd::bulk::decompress(dictionary, 4096).unwrap();
        assert!(frames.starts_with(&FRAME_MAGIC) && bare.starts_with(&DICTIONARY_MAGIC));
        for stored in [dictionary, &bare] {
            assert!(decode(Compression::Zstd, &file(stored)).unwrap() == records);
            for at in 8..stored.len() + 8 {
                let mut damaged = file(stored);
                damaged[at] ^= 0x10;
                assert!(decode(Compression::Zstd, &damaged).map_or_else(|e| e.kind() == Kind::Input, |_| true), "{at}");
                let cut = decode(Compression::Zstd, &file(stored)[..at]);
                assert!(cut.map_or_else(|e| e.kind() == Kind::Input, |out| out.is_empty()), "{at}");
            }
        }
        // Other skippable frames are skipped, whatever they hold.
        let plain = zstd::bulk::compress(TEXT, 3).unwrap();
        for content in [&b""[..], b"x", b"seek table"] {
            let length = u32::try_from(content.len()).unwrap().to_le_bytes();
            let file = [&DICTIONARY_FRAME[..], &length, content, &plain].concat();
            assert_eq!(decode(Compression::Zstd, &file).unwrap(), TEXT);
        }
        let bomb = file(&zstd::bulk::compress(&vec![0; 20 << 20], 3).unwrap());
        assert!(decode(Compression::Zstd, &bomb).unwrap_err().message().contains("at most 16 MiB"));
    }

    #[test]
    fn a_dictionary_beyond_the_bound_is_refused() {
        let error = decode(Compression::Xz, &bytes(XZ_LARGE)).unwrap_err();
        assert!(error.message().contains("at most 132 MiB"), "{error}");
    }

    #[test]
    fn failures_of_the_input_keep_their_kind() {
        struct Failing(Vec<u8>);
        impl Read for Failing {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                if self.0.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "connection lost"));
                }
                let count = self.0.len().min(out.len());
                out[..count].copy_from_slice(&self.0[..count]);
                self.0.drain(..count);
                Ok(count)
            }
        }
        for (compression, hex) in [(Compression::Bzip2, BZIP2), (Compression::Xz, XZ)] {
            for length in [0, 20] {
                let input = Failing(bytes(hex)[..length].to_vec());
                let error =
                    open_decoder(compression, Box::new(input)).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
                assert_eq!(Error::from(error).kind(), Kind::Storage, "{compression:?} {length}");
            }
        }
    }

    #[test]
    fn text_is_not_compressed() {
        for head in [&b"BZh1 is a name"[..], b"]\0\0\0\0", b"]", b"\xfd7zXY", b""] {
            assert_eq!(detect_compression(head), None, "{head:?}");
        }
    }
}
