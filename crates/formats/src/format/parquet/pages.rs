//! Checks the page headers of a column chunk before any page is decompressed.
//!
//! The parquet crate reserves the memory that a page header declares, and brotli, gzip and lz4 decompress regardless of
//! the declared size. Here headers are checked against the footer, a limit, and the possible ratio of the codec before
//! the pages may be read. Pages that could become larger than declared are decompressed once to count their bytes,
//! without keeping them. The result includes the memory that a chunk needs while it is decoded.

use std::io::Read;

use ::parquet::{
    basic::{Compression, Type as PhysicalType},
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, RowGroupMetaData},
        reader::ChunkReader,
    },
};

use super::thrift::{PageHeader, PageKind, ThriftFault, page_header};
use crate::error::Error;

/// Format name in errors of the guard.
pub(super) const PARQUET: &str = "a Parquet file";

/// Size in bytes that nearly every page header fits in.
const HEADER_BYTES: u64 = 512;

/// Decompressed size in bytes up to which any compression ratio is accepted.
const FREE_BYTES: u64 = 32 << 20;

/// Maximum compression ratio of pages larger than [`FREE_BYTES`]; honest pages never reach it.
const MAX_RATIO: u64 = 4096;

/// Maximum compression ratio of deflate; that of lz4 is lower.
const DEFLATE_RATIO: u64 = 1032;

/// Number of bytes of brotli that are decompressed at a time.
const BROTLI_BYTES: usize = 64 << 10;

/// Maximum size of a brotli page if the caller has no limit of its own.
pub(super) const MAX_BROTLI_BYTES: u64 = 256 << 20;

/// Returns whether a column chunk has brotli pages. A few bytes of brotli can become gigabytes, so [`check_brotli`] has
/// to check them before they are decoded.
pub(super) fn is_brotli(chunk: &ColumnChunkMetaData) -> bool {
    matches!(chunk.compression(), Compression::BROTLI(_))
}

/// Checks the brotli pages of a row group, in the columns that `is_read` accepts; other codecs are ignored.
///
/// # Errors
/// Those of [`check_chunk`].
pub(super) fn check_brotli<R: ChunkReader>(
    input: &R,
    group: &RowGroupMetaData,
    is_read: impl Fn(usize) -> bool,
) -> Result<(), ParquetError> {
    let mut chunks = group.columns().iter().enumerate().filter(|(leaf, chunk)| is_brotli(chunk) && is_read(*leaf));
    chunks.try_for_each(|(_, chunk)| check_chunk(input, chunk, MAX_BROTLI_BYTES).map(drop))
}

/// Returns a decoder of one brotli page.
///
/// # Errors
/// When the window is larger than Parquet allows: it may have up to a gigabyte, which the decoder would reserve.
pub(super) fn brotli_reader(page: &[u8]) -> Result<impl Read, &'static str> {
    const LARGE_WINDOW: u8 = 0x11;
    match page.first() {
        Some(first) if first & 0x7f == LARGE_WINDOW => Err("expected a page of brotli, found one with a large window"),
        _ => Ok(brotli::Decompressor::new(page, BROTLI_BYTES)),
    }
}

/// Checks the pages of a chunk and returns the memory that its largest pages need together: a dictionary and a data
/// page. `limit` is the maximum of each.
///
/// # Errors
/// When a header cannot be read, or a page would decompress beyond what the footer, the codec or `limit` allow.
pub(super) fn check_chunk<R: ChunkReader>(
    input: &R,
    chunk: &ColumnChunkMetaData,
    limit: u64,
) -> Result<u64, ParquetError> {
    let (mut at, length) = chunk.byte_range();
    let end = at.checked_add(length).filter(|&end| end <= input.len());
    let start = at;
    let end = end.ok_or_else(|| page_error("expected a column chunk within the file", chunk, start))?;
    let (mut dictionary, mut largest, mut total, mut values) = (0, 0, 0_u64, 0_u64);
    // Some writers leave bytes after the last page.
    let promised_values = u64::try_from(chunk.num_values()).unwrap_or(0);
    while at < end && values < promised_values {
        let header = read_header(input, at, end, chunk)?;
        let data = at + header.header_bytes;
        at = data
            .checked_add(header.compressed)
            .filter(|&next| next <= end)
            .ok_or_else(|| page_error("expected pages that end with their column chunk", chunk, at))?;
        check_page(input, data, &header, chunk, limit)?;
        let held = header.uncompressed.max(header.compressed);
        if header.dictionary {
            dictionary = held
        } else {
            largest = held.max(largest)
        }
        total = total.saturating_add(header.uncompressed);
        values = values.saturating_add(if header.dictionary { 0 } else { header.values });
    }
    let promised = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
    if total > promised && total > FREE_BYTES {
        let message = format!("expected pages of {promised} bytes as in the footer, found {total}");
        return Err(page_error(&message, chunk, start));
    }
    if values != promised_values {
        let message = format!("expected {promised_values} values as in the footer, found {values} in the pages");
        return Err(page_error(&message, chunk, start));
    }
    // The brotli decoder has a buffer as large as the page, and the page grows by doubling.
    let factor = if is_brotli(chunk) { 3 } else { 1 };
    Ok((dictionary + largest).saturating_mul(factor))
}

fn check_page<R: ChunkReader>(
    input: &R,
    at: u64,
    header: &PageHeader,
    chunk: &ColumnChunkMetaData,
    limit: u64,
) -> Result<(), ParquetError> {
    let PageHeader { compressed, uncompressed, .. } = *header;
    let packed = chunk.compression() != Compression::UNCOMPRESSED;
    if uncompressed.max(compressed) > limit {
        return Err(page_error(
            &format!("expected pages of at most {limit} bytes, found one of {uncompressed}"),
            chunk,
            at,
        ));
    }
    if packed && uncompressed > FREE_BYTES && uncompressed / MAX_RATIO > compressed {
        let message =
            format!("expected a page that was compressed, found {compressed} bytes that become {uncompressed}");
        return Err(page_error(&message, chunk, at));
    }
    let most = match chunk.compression() {
        Compression::BROTLI(_) => u64::MAX,
        Compression::GZIP(_) | Compression::LZ4 => compressed.saturating_mul(DEFLATE_RATIO),
        _ => 0,
    };
    if most > FREE_BYTES.max(limit) && inflates_beyond(input, at, header, chunk)? {
        let message = format!("expected a page that inflates to {uncompressed} bytes, found more");
        return Err(page_error(&message, chunk, at));
    }
    // A page of a nested column may be decoded at once, and its decoded values may be larger than the page.
    if chunk.column_descr().max_rep_level() > 0 && header.values.saturating_mul(value_bytes(chunk)) > limit {
        return Err(page_error(&format!("expected pages that decode to {limit} bytes, found one of more"), chunk, at));
    }
    Ok(())
}

/// Returns the bytes of a decoded value, including its levels, but without the bytes of texts.
fn value_bytes(chunk: &ColumnChunkMetaData) -> u64 {
    let descriptor = chunk.column_descr();
    let levels = if descriptor.max_rep_level() > 0 { 4 } else { 0 };
    levels
        + match descriptor.physical_type() {
            PhysicalType::BOOLEAN => 1,
            PhysicalType::INT32 | PhysicalType::FLOAT => 4,
            PhysicalType::INT64 | PhysicalType::INT96 | PhysicalType::DOUBLE => 8,
            PhysicalType::BYTE_ARRAY => 16,
            PhysicalType::FIXED_LEN_BYTE_ARRAY => u64::try_from(descriptor.type_length()).unwrap_or(0),
        }
}

/// Returns whether a page decompresses to more than its header declares. Counts bytes without keeping them, up to the
/// first excess byte. Damage is left to the decoder, which encounters it at the same byte.
fn inflates_beyond<R: ChunkReader>(
    input: &R,
    at: u64,
    header: &PageHeader,
    chunk: &ColumnChunkMetaData,
) -> Result<bool, ParquetError> {
    let levels = match header.kind {
        PageKind::DataV2 { compressed: false, .. } => return Ok(false),
        // Levels precede the values and are not compressed.
        PageKind::DataV2 { levels: [repetition, definition], .. } => repetition.saturating_add(definition),
        _ => 0,
    };
    let Some(promised) = header.uncompressed.checked_sub(levels).filter(|_| levels <= header.compressed) else {
        return Err(page_error("expected a page of version 2 that holds its levels", chunk, at));
    };
    let bytes = input.get_bytes(at + levels, usize::try_from(header.compressed - levels)?)?;
    let limit = promised + 1;
    let count = |decoder: &mut dyn Read| std::io::copy(&mut decoder.take(limit), &mut std::io::sink()).unwrap_or(0);
    let found = match chunk.compression() {
        Compression::BROTLI(_) => count(&mut brotli_reader(&bytes).map_err(|message| page_error(message, chunk, at))?),
        Compression::GZIP(_) => count(&mut flate2::read::MultiGzDecoder::new(&bytes[..])),
        _ => count(&mut lz4_flex::frame::FrameDecoder::new(&bytes[..])),
    };
    Ok(found > promised)
}

fn read_header<R: ChunkReader>(
    input: &R,
    at: u64,
    end: u64,
    chunk: &ColumnChunkMetaData,
) -> Result<PageHeader, ParquetError> {
    let mut length = HEADER_BYTES.min(end - at);
    loop {
        let bytes = input.get_bytes(at, usize::try_from(length)?)?;
        match page_header(&bytes) {
            Ok(header) => return Ok(header),
            // Statistics may contain long values.
            Err(ThriftFault::Short) if length < FREE_BYTES.min(end - at) => length = (length * 8).min(end - at),
            Err(ThriftFault::Short) => {
                return Err(page_error("expected page headers within the column chunk", chunk, at));
            }
            Err(ThriftFault::Encrypted) => {
                return Err(page_error("expected page headers, found encrypted ones", chunk, at));
            }
            Err(ThriftFault::Malformed(message)) => return Err(page_error(message, chunk, at)),
        }
    }
}

/// Returns the error for a page or chunk that begins at byte `at` of the file.
fn page_error(message: &str, chunk: &ColumnChunkMetaData, at: u64) -> ParquetError {
    let cause = format!("column {}: {message}", chunk.column_path());
    let error = Error::input("expected a Parquet file, found one that cannot be decoded").with_cause(cause);
    ParquetError::External(Box::new(error.at_byte(at)))
}

/// Estimates the bytes of all values of a chunk once they are decoded.
pub(super) fn decoded_bytes(chunk: &ColumnChunkMetaData) -> u64 {
    /// Bytes assumed per value in a dictionary: texts repeat an unknown number of times.
    const DICTIONARY_BYTES: u64 = 24;
    let values = u64::try_from(chunk.num_values()).unwrap_or(u64::MAX);
    if chunk.column_type() != PhysicalType::BYTE_ARRAY {
        return values.saturating_mul(value_bytes(chunk));
    }
    let stored = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
    let told = chunk.unencoded_byte_array_data_bytes().and_then(|bytes| u64::try_from(bytes).ok());
    let repeated = if chunk.dictionary_page_offset().is_some() { DICTIONARY_BYTES } else { 0 };
    let bytes = told.unwrap_or_else(|| stored.saturating_add(values.saturating_mul(repeated)));
    bytes.max(stored).saturating_add(values.saturating_mul(4))
}
