//! Compresses pages separately, with one context for all pages of a chunk.

use ::parquet::basic::{Compression, GzipLevel, ZstdLevel};
use zstd::zstd_safe::{CParameter, ResetDirective, Strategy, get_error_name};

use crate::{
    codec::Codec,
    error::{Error, Result},
};

/// Compresses one page after another.
pub(in super::super) struct Compressor {
    name: Compression,
    context: Context,
}

enum Context {
    None,
    Zstd {
        context: zstd::bulk::Compressor<'static>,
        level: i32,
        search: MatchSearch,
    },
    Lz4,
    /// Boxed because it is much larger than the other variants.
    Snappy(Box<snap::raw::Encoder>),
    Gzip(flate2::Compression),
}

/// How Zstandard searches for matches. At levels 3 and 4 it looks up each position in two tables: by its next eight
/// bytes, and by four or five. In texts of numbers, such short matches are chance and hardly shorter than their
/// literals; where long phrases recur, one table finds them as well as two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchSearch {
    /// As the level says.
    Usual,
    /// In one table, by seven bytes.
    Single,
    /// In two tables, by seven and eight bytes; that of seven is small, and so prefers near matches.
    Double,
}

impl MatchSearch {
    fn zstd_parameters(self) -> &'static [CParameter] {
        match self {
            Self::Usual => &[],
            Self::Single => {
                &[CParameter::Strategy(Strategy::ZSTD_fast), CParameter::MinMatch(7), CParameter::HashLog(15)]
            }
            Self::Double => &[CParameter::MinMatch(7), CParameter::HashLog(17), CParameter::ChainLog(12)],
        }
    }
}

impl Compressor {
    /// Creates a compressor for the pages of a chunk.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if the level is out of range.
    pub(in super::super) fn new(codec: Codec) -> Result<Self> {
        let context = match codec {
            Codec::None => Context::None,
            Codec::Zstd(level) => {
                Context::Zstd { context: zstd::bulk::Compressor::new(level)?, level, search: MatchSearch::Usual }
            }
            Codec::Lz4 => Context::Lz4,
            Codec::Snappy => Context::Snappy(Box::new(snap::raw::Encoder::new())),
            Codec::Gzip(level) => Context::Gzip(flate2::Compression::new(level)),
        };
        Ok(Self { name: name_of(codec)?, context })
    }

    /// Returns the codec's name in the footer.
    pub(in super::super) fn codec_name(&self) -> Compression {
        self.name
    }

    /// Returns the searches that are faster than the usual one, and often find as much; the fastest is last.
    pub(super) fn faster_searches(&self) -> &'static [MatchSearch] {
        match self.context {
            Context::Zstd { level: 3 | 4, .. } => &[MatchSearch::Double, MatchSearch::Single],
            _ => &[],
        }
    }

    /// Sets the search for all pages that follow.
    ///
    /// # Errors
    /// When the library fails.
    pub(super) fn set_search(&mut self, wanted: MatchSearch) -> Result<()> {
        let Context::Zstd { context, level, search } = &mut self.context else { return Ok(()) };
        if *search == wanted {
            return Ok(());
        }
        let context = context.context_mut();
        let mut set = || {
            context.reset(ResetDirective::Parameters)?;
            context.set_parameter(CParameter::CompressionLevel(*level))?;
            wanted.zstd_parameters().iter().try_for_each(|parameter| context.set_parameter(*parameter).map(drop))
        };
        set().map_err(|code| Error::internal(format!("setting up a compressor failed: {}", get_error_name(code))))?;
        *search = wanted;
        Ok(())
    }

    /// Compresses a page; `out` holds the result if the codec needs a buffer, and keeps its memory.
    ///
    /// # Errors
    /// When the library fails, for example without memory.
    pub(in super::super) fn compress<'a>(&mut self, page: &'a [u8], out: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let failed = |e: String| Error::internal(format!("compressing a page failed: {e}"));
        let length = match &mut self.context {
            Context::None => return Ok(page),
            Context::Zstd { context, .. } => {
                out.clear();
                out.reserve(zstd::zstd_safe::compress_bound(page.len()));
                context.compress_to_buffer(page, out)?
            }
            Context::Lz4 => {
                make_room(out, lz4_flex::block::get_maximum_output_size(page.len()));
                lz4_flex::block::compress_into(page, out).map_err(|e| failed(e.to_string()))?
            }
            Context::Snappy(encoder) => {
                make_room(out, snap::raw::max_compress_len(page.len()));
                encoder.compress(page, out).map_err(|e| failed(e.to_string()))?
            }
            Context::Gzip(level) => {
                out.clear();
                let mut encoder = flate2::write::GzEncoder::new(&mut *out, *level);
                std::io::Write::write_all(&mut encoder, page)?;
                encoder.finish()?;
                out.len()
            }
        };
        Ok(&out[..length])
    }

    /// Returns the page in the codec's format but uncompressed, if the format allows that.
    ///
    /// # Errors
    /// Those of [`Self::compress`].
    pub(super) fn store_uncompressed<'a>(&mut self, page: &'a [u8], out: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        match (&self.context, u32::try_from(page.len())) {
            (Context::Zstd { .. }, Ok(_)) => {
                out.clear();
                put_zstd_frame(out, page);
                Ok(out)
            }
            _ => self.compress(page, out),
        }
    }
}

/// Appends a Zstandard frame of uncompressed blocks.
///
/// ```text
/// magic 28 b5 2f fd   a0: one segment, its length in 4 bytes   length   [ size << 3 | last, 3 bytes   bytes ]*
/// ```
pub(in super::super) fn put_zstd_frame(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEAD: [u8; 5] = [0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    const BLOCK: usize = 128 << 10;
    out.reserve(bytes.len() + 16 + bytes.len() / BLOCK * 3);
    out.extend_from_slice(&HEAD);
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    let mut rest = bytes;
    loop {
        let (block, after) = rest.split_at(rest.len().min(BLOCK));
        let head = block.len() << 3 | usize::from(after.is_empty());
        out.extend_from_slice(&head.to_le_bytes()[..3]);
        out.extend_from_slice(block);
        if after.is_empty() {
            return;
        }
        rest = after;
    }
}

/// Makes `out` at least this long; its content is arbitrary.
fn make_room(out: &mut Vec<u8>, length: usize) {
    if out.len() < length {
        out.resize(length, 0);
    }
}

/// Returns the codec's name in Parquet.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the level is out of range.
pub(in super::super) fn name_of(codec: Codec) -> Result<Compression> {
    let out_of_range =
        |e: ::parquet::errors::ParquetError| Error::usage("the level of the codec is out of range").with_cause(e);
    Ok(match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(level).map_err(out_of_range)?),
        // Parquet's codec LZ4 is deprecated because its framing is undocumented.
        Codec::Lz4 => Compression::LZ4_RAW,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Gzip(level) => Compression::GZIP(GzipLevel::try_new(level).map_err(out_of_range)?),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn every_search_compresses_without_loss_and_may_be_changed() {
        let page: Vec<u8> = (0..60_000_u32)
            .flat_map(|i| format!("2021-{:02} {:08};", i % 12, i.wrapping_mul(0x9e37_79b9)).into_bytes())
            .collect();
        for (codec, count) in [(Codec::Zstd(3), 2), (Codec::Zstd(4), 2), (Codec::Zstd(9), 0), (Codec::Snappy, 0)] {
            let mut compressor = Compressor::new(codec).unwrap();
            assert_eq!(compressor.faster_searches().len(), count, "{codec:?}");
            let usual = compressor.compress(&page, &mut Vec::new()).unwrap().to_vec();
            let mut results = std::collections::BTreeSet::from([usual.clone()]);
            for search in compressor.faster_searches() {
                compressor.set_search(*search).unwrap();
                let mut out = Vec::new();
                let packed = compressor.compress(&page, &mut out).unwrap();
                assert_eq!(zstd::bulk::decompress(packed, page.len()).unwrap(), page);
                results.insert(packed.to_vec());
            }
            assert_eq!(results.len(), count + 1);
            compressor.set_search(MatchSearch::Usual).unwrap();
            assert_eq!(
                compressor.compress(&page, &mut Vec::new()).unwrap(),
                usual,
                "the level's own parameters are back"
            );
        }
    }

    #[test]
    fn stored_pages_are_frames() {
        let mut compressor = Compressor::new(Codec::Zstd(3)).unwrap();
        for length in [0, 1, 300, 128 << 10, (128 << 10) + 1, 1 << 20] {
            let page: Vec<u8> = (0..length).map(|i: usize| ((i * 7919) >> 5).to_le_bytes()[0]).collect();
            let mut out = Vec::new();
            let stored = compressor.store_uncompressed(&page, &mut out).unwrap();
            assert_eq!(zstd::bulk::decompress(stored, length).unwrap(), page);
            assert!(stored.len() <= length + 9 + 3 * (length / (128 << 10) + 1));
        }
    }
}
