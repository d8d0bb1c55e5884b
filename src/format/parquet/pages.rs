//! Looks at the page headers of a column chunk before any page is inflated.
//!
//! The crate reserves what a page header promises, and gzip and lz4 inflate as far as they go, whatever was promised.
//! Here headers are held against the footer, against a bound, and against what a codec can do; only then may the pages
//! be read. What a chunk will hold in memory while it is decoded comes out on the way.

use std::io::Read;

use ::parquet::{
    basic::{Compression, Type as PhysicalType},
    errors::ParquetError,
    file::{metadata::ColumnChunkMetaData, reader::ChunkReader},
};

use super::thrift::{Fault, PageHeader, page_header};

/// Bytes in which nearly every page header fits.
const HEADER_BYTES: u64 = 512;

/// Inflated pages up to this size are taken however well they were compressed.
const FREE_BYTES: u64 = 32 << 20;

/// More than honest pages larger than [`FREE_BYTES`] are ever compressed.
const MAX_RATIO: u64 = 4096;

/// The most that a byte of deflate can become; lz4 has a lower bound.
const DEFLATE_RATIO: u64 = 1032;

/// Walks through the pages of a chunk and returns the bytes that its largest pages take at once: a dictionary and a data
/// page. `limit` bounds each of them.
///
/// # Errors
/// When a header cannot be read, or a page would inflate beyond what footer, codec or `limit` allow.
pub(super) fn check_chunk<R: ChunkReader>(
    input: &R,
    chunk: &ColumnChunkMetaData,
    limit: u64,
) -> Result<u64, ParquetError> {
    let (mut at, length) = chunk.byte_range();
    let end = at.checked_add(length).filter(|&end| end <= input.len());
    let end = end.ok_or_else(|| fault("expected a column chunk within the file", chunk))?;
    let (mut dictionary, mut largest, mut total, mut values) = (0, 0, 0_u64, 0_u64);
    // Some writers leave bytes behind the last page.
    let promised_values = u64::try_from(chunk.num_values()).unwrap_or(0);
    while at < end && values < promised_values {
        let header = read_header(input, at, end, chunk)?;
        let data = at + header.header_bytes;
        at = data
            .checked_add(header.compressed)
            .filter(|&next| next <= end)
            .ok_or_else(|| fault("expected pages that end with their column chunk", chunk))?;
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
        return Err(fault(&message, chunk));
    }
    if values > promised_values {
        let message = format!("expected {promised_values} values as in the footer, found {values} in the pages");
        return Err(fault(&message, chunk));
    }
    Ok(dictionary + largest)
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
        return Err(fault(&format!("expected pages of at most {limit} bytes, found one of {uncompressed}"), chunk));
    }
    if packed && uncompressed > FREE_BYTES && uncompressed / MAX_RATIO > compressed {
        let message =
            format!("expected a page that was compressed, found {compressed} bytes that become {uncompressed}");
        return Err(fault(&message, chunk));
    }
    let unbounded = matches!(chunk.compression(), Compression::GZIP(_) | Compression::LZ4);
    if unbounded && compressed.saturating_mul(DEFLATE_RATIO) > FREE_BYTES.max(limit) {
        let found = inflated(input, at, header, chunk)?;
        if found > uncompressed {
            return Err(fault(&format!("expected a page that inflates to {uncompressed} bytes, found more"), chunk));
        }
    }
    // A page of a nested column may be decoded at once. Its values take bytes that the page need not have.
    if chunk.column_descr().max_rep_level() > 0 && header.values.saturating_mul(value_bytes(chunk)) > limit {
        return Err(fault(&format!("expected pages that decode to {limit} bytes, found one of more"), chunk));
    }
    Ok(())
}

/// Bytes that a value takes once it is decoded, its levels included, apart from the bytes of texts.
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

/// Counts what a page inflates to, without keeping it, as far as one byte too many. Damage is left to the decoder.
fn inflated<R: ChunkReader>(
    input: &R,
    at: u64,
    header: &PageHeader,
    chunk: &ColumnChunkMetaData,
) -> Result<u64, ParquetError> {
    let length = usize::try_from(header.compressed)?;
    let bytes = input.get_bytes(at, length)?;
    let limit = header.uncompressed + 1;
    let count = |decoder: &mut dyn Read| std::io::copy(&mut decoder.take(limit), &mut std::io::sink()).unwrap_or(0);
    Ok(match chunk.compression() {
        Compression::GZIP(_) => count(&mut flate2::read::MultiGzDecoder::new(&bytes[..])),
        _ => count(&mut lz4_flex::frame::FrameDecoder::new(&bytes[..])),
    })
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
            // Statistics may hold long values.
            Err(Fault::Short) if length < FREE_BYTES.min(end - at) => length = (length * 8).min(end - at),
            Err(Fault::Short) => return Err(fault("expected page headers within the column chunk", chunk)),
            Err(Fault::Encrypted) => return Err(fault("expected page headers, found encrypted ones", chunk)),
            Err(Fault::Malformed(message)) => return Err(fault(message, chunk)),
        }
    }
}

fn fault(message: &str, chunk: &ColumnChunkMetaData) -> ParquetError {
    ParquetError::General(format!("column {}: {message}", chunk.column_path()))
}

/// Estimate of the bytes of all values of a chunk once they are decoded.
pub(super) fn decoded_bytes(chunk: &ColumnChunkMetaData) -> u64 {
    /// Texts of a dictionary are repeated, how often is not known.
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
