//! Pages of the inputs, taken apart as far as splicing needs it.
//!
//! ```text
//! version 1   header | compress( [u32 length, repetition levels] [u32 length, definition levels] values )
//! version 2   header | repetition levels | definition levels | compress( values )
//! ```
//!
//! Headers are held against the chunk before any byte is believed, checksums are checked where there are any, and a page
//! is inflated only to what its codec could have made of it.

use std::ops::Range;

use ::parquet::{
    basic::{Compression, Type as Physical},
    file::metadata::ColumnChunkMetaData,
};
use bytes::Bytes;

use super::{
    super::{
        pages::brotli_reader,
        thrift::{Fault, PageHeader, PageKind, page_header},
    },
    beginning, hybrid,
    union::Form,
};

/// Bytes that a page may have once inflated.
const MOST_BYTES: u64 = 256 << 20;

/// Inflated pages up to this size are taken however well they were compressed.
const FREE_BYTES: u64 = 32 << 20;

/// More than honest pages larger than that are ever compressed.
const MAX_RATIO: u64 = 4096;

/// Number of the encoding PLAIN.
pub(super) const PLAIN: i64 = 0;

/// Number of the levels' old encoding.
const BIT_PACKED: i64 = 4;

/// Why a chunk cannot be spliced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is damaged.
    Damaged(String),
    /// It is made in a way that only the decoder knows.
    Unknown,
}

impl From<&str> for Refused {
    fn from(message: &str) -> Self {
        Self::Damaged(message.to_owned())
    }
}

/// Result of taking something apart.
pub(super) type Taken<T> = Result<T, Refused>;

/// A page and where it stands in its chunk.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) header: PageHeader,
    /// The header and the body.
    pub(super) whole: Range<usize>,
    /// What stands behind the header.
    pub(super) body: Range<usize>,
}

/// A chunk, taken apart into pages.
#[derive(Debug)]
pub(super) struct Pages {
    /// All bytes of the chunk.
    pub(super) bytes: Bytes,
    pub(super) codec: Compression,
    pub(super) dictionary: Option<Page>,
    pub(super) data: Vec<Page>,
    /// Levels that the column has.
    pub(super) repetition: i16,
    pub(super) definition: i16,
}

impl Pages {
    /// Walks through a chunk.
    pub(super) fn of(bytes: Bytes, chunk: &ColumnChunkMetaData) -> Taken<Self> {
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
            u64::try_from(chunk.num_values()).map_err(|_| "expected a number of values, found one below 0")?;
        let (mut at, mut values) = (0, 0_u64);
        // Some writers leave bytes behind the last page.
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

    fn page_at(&self, at: usize) -> Taken<Page> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let header = page_header(rest).map_err(|fault| match fault {
            Fault::Short => Refused::from("expected page headers within the column chunk"),
            Fault::Encrypted => Refused::from("expected page headers, found encrypted ones"),
            Fault::Malformed(message) => Refused::from(message),
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

    /// Whether the values of a data page are indices into the dictionary.
    pub(super) fn is_indices(page: &Page) -> bool {
        matches!(page.header.encoding, 2 | 8)
    }

    /// The body of a page, as it is stored.
    pub(super) fn stored(&self, page: &Page) -> &[u8] {
        &self.bytes[page.body.clone()]
    }

    /// The inflated dictionary, and where its entries are.
    pub(super) fn dictionary<'a>(&'a self, form: Form, buffer: &'a mut Vec<u8>) -> Taken<(&'a [u8], Vec<u32>)> {
        let Some(page) = &self.dictionary else { return Err("expected a dictionary, found none".into()) };
        if !matches!(page.header.encoding, 0 | 2) {
            return Err(Refused::Unknown);
        }
        let body = inflate(self.codec, self.stored(page), page.header.uncompressed, buffer)?;
        let entries = usize::try_from(page.header.values).map_err(|_| Refused::Unknown)?;
        let places = form.places(body, entries).ok_or("expected a dictionary of as many entries as its header says")?;
        Ok((body, places))
    }

    /// Inflates a data page and cuts it into levels and values.
    pub(super) fn cut<'a>(&'a self, page: &'a Page, buffer: &'a mut Vec<u8>) -> Taken<Cut<'a>> {
        let stored = self.stored(page);
        let (repetition, definition, values) = match page.header.kind {
            PageKind::Data { levels } => {
                let body = inflate(self.codec, stored, page.header.uncompressed, buffer)?;
                let (repetition, rest) = prefixed(body, self.repetition, levels[1])?;
                let (definition, values) = prefixed(rest, self.definition, levels[0])?;
                (repetition, definition, values)
            }
            PageKind::DataV2 { levels, compressed, .. } => {
                let place = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
                let short = || Refused::from("expected a page of version 2 that holds its levels");
                let (repetition, rest) = stored.split_at_checked(place(levels[0])).ok_or_else(short)?;
                let (definition, values) = rest.split_at_checked(place(levels[1])).ok_or_else(short)?;
                let inflated = page.header.uncompressed - levels[0] - levels[1];
                let codec = if compressed { self.codec } else { Compression::UNCOMPRESSED };
                (repetition, definition, inflate(codec, values, inflated, buffer)?)
            }
            PageKind::Dictionary | PageKind::Other => return Err(Refused::Unknown),
        };
        self.cut_of(page, [repetition, definition, values])
    }

    /// The levels of a page, without its values if these need not be inflated for them.
    pub(super) fn levels<'a>(&'a self, page: &'a Page, buffer: &'a mut Vec<u8>) -> Taken<Cut<'a>> {
        /// Pages of fewer bytes are inflated before anybody has thought about it.
        const SHORT: u64 = 64 << 10;
        let PageKind::Data { levels } = page.header.kind else { return self.cut(page, buffer) };
        let easy = self.codec == Compression::SNAPPY && self.repetition == 0 && self.definition > 0;
        if !easy || page.header.uncompressed < SHORT {
            return self.cut(page, buffer);
        }
        // Packed ones with their length, and room for the heads of runs.
        let bits = u64::from(u16::BITS - self.definition.unsigned_abs().leading_zeros());
        let most = usize::try_from(page.header.values / 8 * bits / 4 * 5 + 1024).unwrap_or(usize::MAX);
        let found = beginning::of_snappy(self.stored(page), most, buffer)
            .and_then(|body| prefixed(body, self.definition, levels[0]).ok())
            .map(|(definition, _)| definition.len());
        let Some(length) = found else { return self.cut(page, buffer) };
        self.cut_of(page, [&[], &buffer[4..4 + length], &[]])
    }

    /// A page whose parts were found.
    fn cut_of<'a>(&self, page: &Page, [repetition, definition, values]: [&'a [u8]; 3]) -> Taken<Cut<'a>> {
        let count = usize::try_from(page.header.values).map_err(|_| Refused::Unknown)?;
        let counted = |levels: &[u8], most: i16| match most {
            0 => Ok(vec![i64::try_from(count).unwrap_or(i64::MAX)]),
            _ => hybrid::histogram(levels, most, count).ok_or(Refused::from("expected a level for each value")),
        };
        let histograms = [counted(repetition, self.repetition)?, counted(definition, self.definition)?];
        let present = histograms[1].last().copied().and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let begins_row = self.repetition == 0 || hybrid::begins_with_zero(repetition, self.repetition);
        Ok(Cut { repetition, definition, values, present, histograms, begins_row })
    }
}

/// A data page in its parts.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    /// Repetition levels without a length.
    pub(super) repetition: &'a [u8],
    /// Definition levels without a length.
    pub(super) definition: &'a [u8],
    /// The values that are not null.
    pub(super) values: &'a [u8],
    /// How many these are.
    pub(super) present: usize,
    /// How often each repetition level, and each definition level, occurs.
    pub(super) histograms: [Vec<i64>; 2],
    /// Whether a row begins with the page.
    pub(super) begins_row: bool,
}

impl Cut<'_> {
    /// Begins the body of a page of version 1 with the levels.
    pub(super) fn put_levels(&self, pages: &Pages, out: &mut Vec<u8>) {
        for (levels, most) in [(self.repetition, pages.repetition), (self.definition, pages.definition)] {
            if most > 0 {
                out.extend_from_slice(&u32::try_from(levels.len()).unwrap_or(u32::MAX).to_le_bytes());
                out.extend_from_slice(levels);
            }
        }
    }

    /// The width of the indices, and the indices.
    pub(super) fn indices(&self) -> Taken<(u8, &[u8])> {
        match self.values.split_first() {
            Some((width, indices)) => Ok((*width, indices)),
            None if self.present == 0 => Ok((0, &[])),
            None => Err("expected indices into a dictionary, found a page without values".into()),
        }
    }
}

fn prefixed(body: &[u8], most: i16, encoding: i64) -> Taken<(&[u8], &[u8])> {
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

/// What entries of a column's dictionary look like; booleans have none.
pub(super) fn form_of(chunk: &ColumnChunkMetaData) -> Option<Form> {
    Some(match chunk.column_type() {
        Physical::BOOLEAN => return None,
        Physical::INT32 | Physical::FLOAT => Form::Fixed(4),
        Physical::INT64 | Physical::DOUBLE => Form::Fixed(8),
        Physical::INT96 => Form::Fixed(12),
        Physical::BYTE_ARRAY => Form::Text,
        Physical::FIXED_LEN_BYTE_ARRAY => Form::Fixed(usize::try_from(chunk.column_descr().type_length()).ok()?),
    })
}

/// Inflates to exactly `length` bytes.
pub(super) fn inflate<'a>(
    codec: Compression,
    stored: &'a [u8],
    length: u64,
    buffer: &'a mut Vec<u8>,
) -> Taken<&'a [u8]> {
    if codec == Compression::UNCOMPRESSED {
        return if stored.len() as u64 == length { Ok(stored) } else { Err("expected a page of its size".into()) };
    }
    if length == 0 {
        return Ok(&[]);
    }
    if length > MOST_BYTES || (length > FREE_BYTES && length / MAX_RATIO > stored.len() as u64) {
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
        Compression::ZSTD(_) => zstd::bulk::decompress_to_buffer(stored, room).ok(),
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
