//! Compresses pages, each by itself, with one context for all pages of a chunk.

use ::parquet::basic::{Compression, GzipLevel, ZstdLevel};

use crate::{
    codec::Codec,
    error::{Error, Result},
};

/// Compresses one page after the other.
pub(in super::super) struct Compressor {
    name: Compression,
    context: Context,
}

enum Context {
    None,
    Zstd(zstd::bulk::Compressor<'static>),
    Lz4,
    /// Boxed, for it is larger than everything around it.
    Snappy(Box<snap::raw::Encoder>),
    Gzip(flate2::Compression),
}

impl Compressor {
    /// Prepares for pages of a chunk.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when the level is out of range.
    pub(in super::super) fn new(codec: Codec) -> Result<Self> {
        let context = match codec {
            Codec::None => Context::None,
            Codec::Zstd(level) => Context::Zstd(zstd::bulk::Compressor::new(level)?),
            Codec::Lz4 => Context::Lz4,
            Codec::Snappy => Context::Snappy(Box::new(snap::raw::Encoder::new())),
            Codec::Gzip(level) => Context::Gzip(flate2::Compression::new(level)),
        };
        Ok(Self { name: name_of(codec)?, context })
    }

    /// Name in the footer.
    pub(in super::super) fn name(&self) -> Compression {
        self.name
    }

    /// Compresses a page; `out` is the place for the result where one is needed, and keeps its memory.
    ///
    /// # Errors
    /// When the library fails, as it does without memory.
    pub(in super::super) fn compress<'a>(&mut self, page: &'a [u8], out: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let failed = |e: String| Error::internal(format!("compressing a page failed: {e}"));
        let length = match &mut self.context {
            Context::None => return Ok(page),
            Context::Zstd(context) => {
                out.clear();
                out.reserve(zstd::zstd_safe::compress_bound(page.len()));
                context.compress_to_buffer(page, out)?
            }
            Context::Lz4 => {
                room(out, lz4_flex::block::get_maximum_output_size(page.len()));
                lz4_flex::block::compress_into(page, out).map_err(|e| failed(e.to_string()))?
            }
            Context::Snappy(encoder) => {
                room(out, snap::raw::max_compress_len(page.len()));
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
}

/// Makes `out` at least this long; what it holds does not matter.
fn room(out: &mut Vec<u8>, length: usize) {
    if out.len() < length {
        out.resize(length, 0);
    }
}

/// The codec as Parquet names it.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when the level is out of range.
pub(in super::super) fn name_of(codec: Codec) -> Result<Compression> {
    let out_of_range =
        |e: ::parquet::errors::ParquetError| Error::usage("the level of the codec is out of range").cause(e);
    Ok(match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(level).map_err(out_of_range)?),
        // Codec LZ4 of the Parquet format is deprecated for its undocumented framing.
        Codec::Lz4 => Compression::LZ4_RAW,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Gzip(level) => Compression::GZIP(GzipLevel::try_new(level).map_err(out_of_range)?),
    })
}
