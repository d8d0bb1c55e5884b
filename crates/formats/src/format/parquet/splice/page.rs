//! Pages of the inputs, parsed as far as splicing needs it.
//!
//! ```text
//! version 1   header | compress( [u32 length, repetition levels] [u32 length, definition levels] values )
//! version 2   header | repetition levels | definition levels | compress( values )
//! ```
//!
//! Headers are checked against the chunk before any other byte is used, checksums are verified if present, and a page
//! is decompressed only up to a size that its codec can produce.

use std::{cell::RefCell, ops::Range};

use ::parquet::{
    basic::{Compression, Type as Physical},
    file::metadata::ColumnChunkMetaData,
};
use bytes::Bytes;

use super::{
    super::{
        pages::brotli_reader,
        thrift::{PageHeader, PageKind, ThriftFault, page_header},
    },
    beginning,
    hybrid::{self, Hybrid},
    union::EntryForm,
};

/// Maximum decompressed size of a page in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Decompressed size in bytes up to which any compression ratio is accepted.
const FREE_BYTES: u64 = 32 << 20;

/// Maximum compression ratio of larger pages; honest pages never reach it.
const MAX_RATIO: u64 = 4096;

/// Number of the encoding PLAIN.
pub(super) const PLAIN: i64 = 0;

/// Number of the deprecated encoding of levels.
const BIT_PACKED: i64 = 4;

/// Reason why a chunk cannot be spliced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is damaged.
    Damaged(String),
    /// It has a form that only the decoder supports.
    Unknown,
}

impl From<&str> for Refused {
    fn from(message: &str) -> Self {
        Self::Damaged(message.to_owned())
    }
}

/// Result of parsing.
pub(super) type PageResult<T> = Result<T, Refused>;

/// A page and its position in the chunk.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) header: PageHeader,
    /// The header and the body.
    pub(super) whole: Range<usize>,
    /// The bytes after the header.
    pub(super) body: Range<usize>,
}

/// A chunk, divided into pages.
#[derive(Debug)]
pub(super) struct Pages {
    /// All bytes of the chunk.
    pub(super) bytes: Bytes,
    pub(super) codec: Compression,
    pub(super) dictionary: Option<Page>,
    pub(super) data: Vec<Page>,
    /// Maximum levels of the column.
    pub(super) repetition: i16,
    pub(super) definition: i16,
}

impl Pages {
    /// Parses the page headers of a chunk.
    pub(super) fn from_chunk(bytes: Bytes, chunk: &ColumnChunkMetaData) -> PageResult<Self> {
        let descriptor = chunk.column_descr();
        let mut pages = Self {
            codec: chunk.compression(),
            dictionary: None,
            data: Vec::new(),
            repetition: descriptor.max_rep_level(),
            definition: descriptor.max_def_level(),
            bytes,
        };
        let promised =
            u64::try_from(chunk.num_values()).map_err(|_| "expected a number of values, found a negative one")?;
        let (mut at, mut values) = (0, 0_u64);
        // Some writers leave bytes after the last page.
        while values < promised {
            let page = pages.page_at(at)?;
            at = page.whole.end;
            match page.header.kind {
                PageKind::Dictionary if pages.dictionary.is_none() && pages.data.is_empty() => {
                    pages.dictionary = Some(page);
                }
                PageKind::Dictionary => return Err("expected one dictionary at most, found another".into()),
                PageKind::Other => {}
                PageKind::Data { .. } | PageKind::DataV2 { .. } => {
                    values = values.saturating_add(page.header.values);
                    pages.data.push(page);
                }
            }
        }
        if values > promised {
            let message = format!("expected {promised} values as in the footer, found {values} in the pages");
            return Err(Refused::Damaged(message));
        }
        Ok(pages)
    }

    fn page_at(&self, at: usize) -> PageResult<Page> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let header = page_header(rest).map_err(|fault| match fault {
            ThriftFault::Short => Refused::from("expected page headers within the column chunk"),
            ThriftFault::Encrypted => Refused::from("expected page headers, found encrypted ones"),
            ThriftFault::Malformed(message) => Refused::from(message),
        })?;
        let outside = || Refused::from("expected pages that end with their column chunk");
        let start = at + usize::try_from(header.header_bytes).map_err(|_| outside())?;
        let length = usize::try_from(header.compressed).map_err(|_| outside())?;
        let end = start.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or_else(outside)?;
        if let PageKind::DataV2 { levels, nulls, rows, .. } = header.kind {
            let levels = levels[0].saturating_add(levels[1]);
            if levels > header.compressed.min(header.uncompressed) || nulls > header.values || rows > header.values {
                return Err("expected a page of version 2 that holds its levels".into());
            }
        }
        if header.crc.is_some_and(|crc| crc32fast::hash(&self.bytes[start..end]) != crc) {
            return Err("expected a page with the checksum in its header, found another".into());
        }
        Ok(Page { header, whole: at..end, body: start..end })
    }

    /// Returns whether the values of a data page are dictionary indices.
    pub(super) fn is_indices(page: &Page) -> bool {
        matches!(page.header.encoding, 2 | 8)
    }

    /// Returns the body of a page as stored.
    pub(super) fn stored_body(&self, page: &Page) -> &[u8] {
        &self.bytes[page.body.clone()]
    }

    /// Returns the decompressed dictionary, and the positions of its entries.
    pub(super) fn inflate_dictionary<'a>(
        &'a self,
        form: EntryForm,
        buffer: &'a mut Vec<u8>,
    ) -> PageResult<(&'a [u8], Vec<u32>)> {
        let Some(page) = &self.dictionary else { return Err("expected a dictionary, found none".into()) };
        if !matches!(page.header.encoding, 0 | 2) {
            return Err(Refused::Unknown);
        }
        let body = inflate_page(self.codec, self.stored_body(page), page.header.uncompressed, buffer)?;
        let entries = usize::try_from(page.header.values).map_err(|_| Refused::Unknown)?;
        let places =
            form.entry_starts(body, entries).ok_or("expected a dictionary of as many entries as its header says")?;
        Ok((body, places))
    }

    /// Decompresses a data page and divides it into levels and values.
    pub(super) fn cut_page<'a>(&'a self, page: &'a Page, buffer: &'a mut Vec<u8>) -> PageResult<CutPage<'a>> {
        let stored = self.stored_body(page);
        let (repetition, definition, values) = match page.header.kind {
            PageKind::Data { levels } => {
                let body = inflate_page(self.codec, stored, page.header.uncompressed, buffer)?;
                let (repetition, rest) = take_prefixed(body, self.repetition, levels[1])?;
                let (definition, values) = take_prefixed(rest, self.definition, levels[0])?;
                (repetition, definition, values)
            }
            PageKind::DataV2 { levels, compressed, .. } => {
                let place = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
                let short = || Refused::from("expected a page of version 2 that holds its levels");
                let (repetition, rest) = stored.split_at_checked(place(levels[0])).ok_or_else(short)?;
                let (definition, values) = rest.split_at_checked(place(levels[1])).ok_or_else(short)?;
                let inflated = page.header.uncompressed - levels[0] - levels[1];
                let codec = if compressed { self.codec } else { Compression::UNCOMPRESSED };
                (repetition, definition, inflate_page(codec, values, inflated, buffer)?)
            }
            PageKind::Dictionary | PageKind::Other => return Err(Refused::Unknown),
        };
        self.cut_of(page, [repetition, definition, values])
    }

    /// Returns the levels of a page; the values are omitted if they need not be decompressed for that.
    pub(super) fn cut_levels<'a>(&'a self, page: &'a Page, buffer: &'a mut Vec<u8>) -> PageResult<CutPage<'a>> {
        /// Stored size in bytes below which a page is decompressed as a whole.
        const SHORT: u64 = 64 << 10;
        let PageKind::Data { levels } = page.header.kind else { return self.cut_page(page, buffer) };
        let easy = self.codec == Compression::SNAPPY && self.repetition == 0 && self.definition > 0;
        if !easy || page.header.uncompressed < SHORT {
            return self.cut_page(page, buffer);
        }
        // Packed levels with their length, and room for the headers of runs.
        let bits = u64::from(u16::BITS - self.definition.unsigned_abs().leading_zeros());
        let most = usize::try_from(page.header.values / 8 * bits / 4 * 5 + 1024).unwrap_or(usize::MAX);
        let found = beginning::of_snappy(self.stored_body(page), most, buffer)
            .and_then(|body| take_prefixed(body, self.definition, levels[0]).ok())
            .map(|(definition, _)| definition.len());
        let Some(length) = found else { return self.cut_page(page, buffer) };
        self.cut_of(page, [&[], &buffer[4..4 + length], &[]])
    }

    /// Returns a page divided into the given sections.
    fn cut_of<'a>(&self, page: &Page, [repetition, definition, values]: [&'a [u8]; 3]) -> PageResult<CutPage<'a>> {
        let count = usize::try_from(page.header.values).map_err(|_| Refused::Unknown)?;
        let counted = |levels: &[u8], most: i16| match most {
            0 => Ok(vec![i64::try_from(count).unwrap_or(i64::MAX)]),
            _ => hybrid::level_histogram(levels, most, count).ok_or(Refused::from("expected a level for each value")),
        };
        let histograms = [counted(repetition, self.repetition)?, counted(definition, self.definition)?];
        let present = histograms[1].last().copied().and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let begins_row = self.repetition == 0 || hybrid::begins_with_zero(repetition, self.repetition);
        Ok(CutPage { repetition, definition, values, present, histograms, begins_row })
    }
}

/// A data page divided into levels and values.
#[derive(Debug)]
pub(super) struct CutPage<'a> {
    /// Repetition levels without the length prefix.
    pub(super) repetition: &'a [u8],
    /// Definition levels without the length prefix.
    pub(super) definition: &'a [u8],
    /// The non-null values.
    pub(super) values: &'a [u8],
    /// Number of non-null values.
    pub(super) present: usize,
    /// Histograms of the repetition levels and of the definition levels.
    pub(super) histograms: [Vec<i64>; 2],
    /// Whether a row begins at the start of the page.
    pub(super) begins_row: bool,
}

impl CutPage<'_> {
    /// Appends the levels at the start of a version 1 page's body.
    pub(super) fn put_levels(&self, pages: &Pages, out: &mut Vec<u8>) {
        for (levels, most) in [(self.repetition, pages.repetition), (self.definition, pages.definition)] {
            if most > 0 {
                out.extend_from_slice(&u32::try_from(levels.len()).unwrap_or(u32::MAX).to_le_bytes());
                out.extend_from_slice(levels);
            }
        }
    }

    /// Returns the indices.
    pub(super) fn packed_indices(&self) -> PageResult<Hybrid<'_>> {
        let count = self.present;
        match self.values.split_first() {
            Some((width, bytes)) => Ok(Hybrid { bytes, width: *width, count }),
            None if count == 0 => Ok(Hybrid { bytes: &[], width: 0, count }),
            None => Err("expected indices into a dictionary, found a page without values".into()),
        }
    }
}

fn take_prefixed(body: &[u8], most: i16, encoding: i64) -> PageResult<(&[u8], &[u8])> {
    if most == 0 {
        return Ok((&[], body));
    }
    if encoding == BIT_PACKED {
        return Err(Refused::Unknown);
    }
    let cut = body
        .split_first_chunk::<4>()
        .and_then(|(length, rest)| rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?));
    cut.ok_or(Refused::from("expected a page that holds its levels"))
}

/// Returns the form of the entries of a column's dictionary; booleans have none.
pub(super) fn form_of(chunk: &ColumnChunkMetaData) -> Option<EntryForm> {
    Some(match chunk.column_type() {
        Physical::BOOLEAN => return None,
        Physical::INT32 | Physical::FLOAT => EntryForm::Fixed(4),
        Physical::INT64 | Physical::DOUBLE => EntryForm::Fixed(8),
        Physical::INT96 => EntryForm::Fixed(12),
        Physical::BYTE_ARRAY => EntryForm::Text,
        Physical::FIXED_LEN_BYTE_ARRAY => EntryForm::Fixed(usize::try_from(chunk.column_descr().type_length()).ok()?),
    })
}

thread_local! {
    /// Reused, because a decoder asks for the features of the processor, which takes a virtual machine microseconds.
    static UNZSTD: RefCell<std::io::Result<zstd::bulk::Decompressor<'static>>> =
        RefCell::new(zstd::bulk::Decompressor::new());
}

/// Decompresses to exactly `length` bytes.
pub(super) fn inflate_page<'a>(
    codec: Compression,
    stored: &'a [u8],
    length: u64,
    buffer: &'a mut Vec<u8>,
) -> PageResult<&'a [u8]> {
    if codec == Compression::UNCOMPRESSED {
        return if stored.len() as u64 == length { Ok(stored) } else { Err("expected a page of its size".into()) };
    }
    if length == 0 {
        return Ok(&[]);
    }
    if length > MAX_BYTES || (length > FREE_BYTES && length / MAX_RATIO > stored.len() as u64) {
        let message = format!("expected a page that was compressed, found {} bytes that become {length}", stored.len());
        return Err(Refused::Damaged(message));
    }
    let length = usize::try_from(length).map_err(|_| Refused::Unknown)?;
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    let room = &mut buffer[..length];
    let found = match codec {
        Compression::SNAPPY => match snap::raw::decompress_len(stored) {
            Ok(promised) if promised == length => snap::raw::Decoder::new().decompress(stored, room).ok(),
            _ => None,
        },
        Compression::ZSTD(_) => UNZSTD.with_borrow_mut(|decoder| match decoder {
            Ok(decoder) => decoder.decompress_to_buffer(stored, room).ok(),
            // Without memory for a decoder, there is none for the page.
            Err(_) => None,
        }),
        Compression::LZ4_RAW => lz4_flex::block::decompress_into(stored, room).ok(),
        Compression::GZIP(_) => {
            let mut decoder = flate2::read::MultiGzDecoder::new(stored);
            std::io::Read::read_exact(&mut decoder, room).is_ok().then_some(length)
        }
        Compression::BROTLI(_) => {
            let mut decoder = brotli_reader(stored)?;
            let whole = std::io::Read::read_exact(&mut decoder, room).is_ok();
            (whole && matches!(std::io::Read::read(&mut decoder, &mut [0]), Ok(0))).then_some(length)
        }
        _ => return Err(Refused::Unknown),
    };
    match found {
        Some(found) if found == length => Ok(&buffer[..length]),
        _ => Err(Refused::Damaged(format!("expected a page that inflates to {length} bytes, found another"))),
    }
}
