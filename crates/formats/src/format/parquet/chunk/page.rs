//! Pages of a column chunk, and their metadata for the footer.
//!
//! ```text
//! page   header (thrift)  |  levels and values, compressed as one
//! body   u32 length of the levels  levels   values          if the column is nullable
//! chunk  dictionary page, if there is one | data page | data page | ...
//! ```
//!
//! All pages are of version 1, which every reader supports, and carry the CRC-32 of the bytes after their header.

use ::parquet::{
    basic::{BoundaryOrder, Compression, Encoding, EncodingMask, LogicalType, PageType, ZstdLevel},
    column::writer::ColumnCloseResult,
    file::{
        metadata::{ColumnChunkMetaData, ColumnIndexBuilder, LevelHistogram, OffsetIndexBuilder, PageEncodingStats},
        page_index::column_index::ColumnIndexMetaData,
    },
    schema::types::ColumnDescPtr,
};
use bytes::Bytes;

use super::{
    bits::put_zigzag,
    compress::Compressor,
    levels::{LevelLayout, PageRange},
    stats::{Bounds, ValueOrder},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
};

/// Number of pages that are stored uncompressed before compression is tried again.
const NOISE_PAGES: usize = 15;

/// Equal values of a column, as found by its dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeats {
    /// For each row the index of its value; `u32::MAX` for a null.
    pub keys: Vec<u32>,
    /// For each index the row of its first occurrence.
    pub firsts: Vec<u32>,
}

/// A finished column chunk; offsets in `close` are relative to its first byte.
#[derive(Debug)]
pub(in super::super) struct Chunk {
    /// The pages.
    pub(in super::super) bytes: Bytes,
    /// Metadata for the footer and the page indexes.
    pub(in super::super) close: ColumnCloseResult,
    /// What other tables can use, if requested.
    pub(in super::super) noted: Option<Box<Noted>>,
}

/// What other tables can use of an encoded column.
#[derive(Debug, Default)]
pub struct Noted {
    /// Which values are equal, if there is a dictionary.
    pub repeats: Option<Repeats>,
    /// The column itself, if it is one of texts.
    pub texts: Option<TextChunk>,
}

/// A column chunk of texts, which may be missing, in Zstandard. Tables with the same values beside a shard, which are
/// in Zstandard themselves, take it is: to encode them again would cost as much as in the shard.
#[derive(Debug, Clone)]
pub struct TextChunk {
    /// The pages.
    pub bytes: Bytes,
    /// Their metadata; without an index of their bounds, which these tables do not have.
    pub close: ColumnCloseResult,
}

/// Metadata of a data page.
#[derive(Debug)]
pub(super) struct PageFacts {
    /// Number of rows.
    pub(super) rows: usize,
    /// Number of slots of these rows: values and placeholders of missing values.
    pub(super) slots: usize,
    /// Number of slots without a value.
    pub(super) nulls: usize,
    /// Number of slots of each definition level; empty if all have the same.
    pub(super) levels: Vec<usize>,
    /// Least and greatest value; `None` if all are null or bounds are not wanted.
    pub(super) bounds: Option<Bounds>,
    /// Bytes of values of variable length, without their lengths.
    pub(super) text_bytes: Option<u64>,
}

impl PageFacts {
    /// Returns the metadata of a page of a column with this layout.
    pub(super) fn for_page(
        layout: &LevelLayout,
        page: &PageRange,
        bounds: Option<Bounds>,
        text_bytes: Option<u64>,
    ) -> Self {
        let (rows, slots, values) = (page.rows.len(), page.slots.len(), page.values.len());
        Self { rows, slots, nulls: slots - values, levels: layout.level_counts(&page.rows, values), bounds, text_bytes }
    }
}

/// Writes consecutive pages.
pub(super) struct PageWriter {
    descr: ColumnDescPtr,
    encoding: Encoding,
    order: ValueOrder,
    statistics: bool,
    /// Whether pages may be stored uncompressed if compression did not help their neighbours.
    stores_noise: bool,
    /// Remaining number of pages to store uncompressed.
    noise: usize,
    out: Stream,
    shared: SharedPages,
    pages: Vec<PageFacts>,
}

/// What tables beside the shard take of the pages.
enum SharedPages {
    None,
    /// Those of the shard.
    Own,
    /// The same in another compression.
    Other(Box<Stream>),
}

/// Compressed pages.
struct Stream {
    compressor: Compressor,
    bytes: Vec<u8>,
    /// The most recently compressed page, kept for its memory.
    packed: Vec<u8>,
    uncompressed: u64,
    /// Offset of the first data page, if a dictionary precedes it.
    after_dictionary: Option<usize>,
    offsets: OffsetIndexBuilder,
}

/// A page before compression.
#[derive(Clone, Copy)]
struct Body<'a> {
    kind: PageType,
    encoding: Encoding,
    /// Number of values, missing ones included.
    values: usize,
    bytes: &'a [u8],
}

impl Stream {
    fn new(compressor: Compressor, packed: Vec<u8>) -> Self {
        let (bytes, offsets) = (Vec::new(), OffsetIndexBuilder::new());
        Self { compressor, bytes, packed, uncompressed: 0, after_dictionary: None, offsets }
    }

    /// Writes a page, uncompressed if `stored` and the codec's format allows that; returns the length of its compressed
    /// body.
    fn write_page(&mut self, body: Body<'_>, stored: bool) -> Result<usize> {
        let packed = match stored {
            true => self.compressor.store_uncompressed(body.bytes, &mut self.packed)?,
            false => self.compressor.compress(body.bytes, &mut self.packed)?,
        };
        let start = self.bytes.len();
        put_header(
            &mut self.bytes,
            body.kind,
            [to_i32(body.bytes.len())?, to_i32(packed.len())?, crc32fast::hash(packed).cast_signed()],
            [to_i32(body.values)?, body.encoding as i32],
        );
        self.uncompressed += (self.bytes.len() - start + body.bytes.len()) as u64;
        self.bytes.extend_from_slice(packed);
        let length = packed.len();
        if body.kind == PageType::DICTIONARY_PAGE {
            self.after_dictionary = Some(self.bytes.len());
        } else {
            self.offsets.append_offset_and_size(to_i64(start)?, to_i32(self.bytes.len() - start)?);
        }
        Ok(length)
    }

    /// Adds what the offset index says of the page that was written last.
    fn index_page(&mut self, facts: &PageFacts) -> Result<()> {
        self.offsets.append_row_count(to_i64(facts.rows)?);
        self.offsets.append_unencoded_byte_array_data_bytes(facts.text_bytes.map(u64::cast_signed));
        Ok(())
    }

    /// Reserves memory for `more` pages of the size of the `written` ones.
    fn expect_pages(&mut self, written: usize, more: usize) {
        let data = self.bytes.len() - self.after_dictionary.unwrap_or_default();
        let page = data / written.max(1);
        self.bytes.reserve_exact((page + page / 16) * more);
    }
}

impl PageWriter {
    /// Starts a chunk whose data pages have `encoding`; `packed` is memory for one page. Without `statistics`, neither
    /// bounds nor a column index are written.
    pub(super) fn new(
        descr: &ColumnDescPtr,
        compressor: Compressor,
        packed: Vec<u8>,
        encoding: Encoding,
        order: ValueOrder,
        statistics: bool,
    ) -> Self {
        Self {
            descr: ColumnDescPtr::clone(descr),
            encoding,
            order,
            statistics,
            stores_noise: false,
            noise: 0,
            out: Stream::new(compressor, packed),
            shared: SharedPages::None,
            pages: Vec::new(),
        }
    }

    /// Stores pages uncompressed, within the codec's format, after one that did not become smaller.
    pub(super) fn storing_noise(self) -> Self {
        Self { stores_noise: true, ..self }
    }

    /// Also returns the chunk for other tables, if it is one of texts that may be missing; called before the first page
    /// is written.
    ///
    /// # Errors
    /// When there is no memory to compress it.
    pub(super) fn with_sharing(self) -> Result<Self> {
        let texts = matches!(self.descr.logical_type_ref(), Some(LogicalType::String))
            && (self.descr.max_def_level(), self.descr.max_rep_level()) == (1, 0);
        let shared = match self.out.compressor.codec_name() {
            _ if !texts => SharedPages::None,
            Compression::ZSTD(_) => SharedPages::Own,
            // At the level of these tables.
            _ => {
                let codec = Codec::Zstd(ZstdLevel::default().compression_level());
                SharedPages::Other(Box::new(Stream::new(Compressor::new(codec)?, Vec::new())))
            }
        };
        Ok(Self { shared, ..self })
    }

    /// Writes the dictionary, which precedes all data pages.
    pub(super) fn write_dictionary(&mut self, entries: usize, body: &[u8]) -> Result<()> {
        self.write_page(PageType::DICTIONARY_PAGE, entries, body)
    }

    /// Writes a data page: `body` contains levels and values.
    pub(super) fn write_data(&mut self, facts: PageFacts, body: &[u8]) -> Result<()> {
        self.write_page(PageType::DATA_PAGE, facts.slots, body)?;
        self.out.index_page(&facts)?;
        if let SharedPages::Other(stream) = &mut self.shared {
            stream.index_page(&facts)?;
        }
        self.pages.push(facts);
        Ok(())
    }

    fn write_page(&mut self, kind: PageType, values: usize, bytes: &[u8]) -> Result<()> {
        // A row is never divided between pages.
        if i32::try_from(bytes.len()).is_err() {
            return Err(Error::input(format!(
                "expected rows of less than 2 GiB a column, found {} bytes",
                bytes.len()
            ))
            .with_hint("cut smaller records with --read patch, or slice another dimension with --read record-dim"));
        }
        let encoding = if kind == PageType::DICTIONARY_PAGE { Encoding::PLAIN } else { self.encoding };
        let body = Body { kind, encoding, values, bytes };
        let stored = kind == PageType::DATA_PAGE && self.noise > 0;
        let packed = self.out.write_page(body, stored)?;
        if stored {
            self.noise -= 1;
        } else if self.stores_noise && kind == PageType::DATA_PAGE && packed * 64 > bytes.len() * 63 {
            self.noise = NOISE_PAGES;
        }
        if let SharedPages::Other(stream) = &mut self.shared {
            stream.write_page(body, false)?;
        }
        Ok(())
    }

    /// Reserves memory for `more` pages of the size of those that were written.
    pub(super) fn expect_pages(&mut self, more: usize) {
        self.out.expect_pages(self.pages.len(), more);
        if let SharedPages::Other(stream) = &mut self.shared {
            stream.expect_pages(self.pages.len(), more);
        }
    }

    /// Finishes the chunk; also returns the compressor and the memory.
    pub(super) fn finish(mut self) -> Result<(Chunk, Compressor, Vec<u8>)> {
        let column_index = if self.statistics { Some(self.column_index()?) } else { None };
        let offsets = std::mem::take(&mut self.out.offsets);
        let close = self.close_result(&self.out, offsets)?;
        let bytes = Bytes::from(std::mem::take(&mut self.out.bytes));
        let texts = match std::mem::replace(&mut self.shared, SharedPages::None) {
            SharedPages::None => None,
            SharedPages::Own => Some(TextChunk { bytes: bytes.clone(), close: close.clone() }),
            SharedPages::Other(mut stream) => {
                let offsets = std::mem::take(&mut stream.offsets);
                Some(TextChunk { close: self.close_result(&stream, offsets)?, bytes: stream.bytes.into() })
            }
        };
        let close = ColumnCloseResult { column_index, ..close };
        let noted = texts.map(|chunk| Box::new(Noted { repeats: None, texts: Some(chunk) }));
        let chunk = Chunk { bytes, close, noted };
        Ok((chunk, self.out.compressor, self.out.packed))
    }

    /// Returns the metadata of finished pages, without the index of their bounds.
    fn close_result(&self, stream: &Stream, offsets: OffsetIndexBuilder) -> Result<ColumnCloseResult> {
        let rows: usize = self.pages.iter().map(|page| page.rows).sum();
        let slots: usize = self.pages.iter().map(|page| page.slots).sum();
        let nulls: usize = self.pages.iter().map(|page| page.nulls).sum();
        let stats_of = |page_type, encoding, count| PageEncodingStats { page_type, encoding, count };
        let mut encodings = vec![self.encoding, Encoding::RLE];
        let mut kinds = vec![stats_of(PageType::DATA_PAGE, self.encoding, to_i32(self.pages.len())?)];
        if stream.after_dictionary.is_some() {
            encodings.push(Encoding::PLAIN);
            kinds.insert(0, stats_of(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
        }
        let mut metadata = ColumnChunkMetaData::builder(ColumnDescPtr::clone(&self.descr))
            .set_compression(stream.compressor.codec_name())
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_page_encoding_stats(kinds)
            .set_total_compressed_size(to_i64(stream.bytes.len())?)
            .set_total_uncompressed_size(stream.uncompressed.cast_signed())
            .set_num_values(to_i64(slots)?)
            .set_data_page_offset(to_i64(stream.after_dictionary.unwrap_or_default())?)
            .set_dictionary_page_offset(stream.after_dictionary.map(|_| 0));
        if self.statistics {
            let bounds = self.pages.iter().filter_map(|page| page.bounds.as_ref());
            let text_bytes = self.pages.iter().map(|page| page.text_bytes).sum::<Option<u64>>();
            metadata = metadata
                .set_statistics(self.order.chunk_statistics(bounds, nulls as u64, self.descr.sort_order().is_signed()))
                .set_unencoded_byte_array_data_bytes(text_bytes.map(u64::cast_signed))
                .set_definition_level_histogram(definition_histogram(self.pages.iter())?)
                .set_repetition_level_histogram(self.repetition_histogram(rows, slots)?);
        }
        Ok(ColumnCloseResult {
            bytes_written: stream.bytes.len() as u64,
            rows_written: rows as u64,
            metadata: metadata.build().map_err(metadata_error)?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(offsets.build()),
        })
    }

    /// Returns the histogram of repetition levels: all slots but the first of each row have level 1.
    fn repetition_histogram(&self, rows: usize, slots: usize) -> Result<Option<LevelHistogram>> {
        if self.descr.max_rep_level() == 0 {
            return Ok(None);
        }
        Ok(Some(LevelHistogram::from(vec![to_i64(rows)?, to_i64(slots - rows)?])))
    }

    fn column_index(&self) -> Result<ColumnIndexMetaData> {
        let mut index = ColumnIndexBuilder::new(self.descr.physical_type());
        for page in &self.pages {
            let nans = page.bounds.as_ref().map_or(0, Bounds::nan_count);
            let nans = self.order.is_float().then_some(nans.cast_signed());
            let (least, greatest) = match &page.bounds {
                Some(bounds) => (self.order.index_min(bounds).0, self.order.index_max(bounds).0),
                None => (Vec::new(), Vec::new()),
            };
            index.append(page.nulls == page.slots, least, greatest, to_i64(page.nulls)?, nans);
            let repetitions = self.repetition_histogram(page.rows, page.slots)?;
            index.append_histograms(&repetitions, &definition_histogram(std::iter::once(page))?);
        }
        index.set_boundary_order(self.boundary_order());
        index.build().map_err(metadata_error)
    }

    fn boundary_order(&self) -> BoundaryOrder {
        let bounds: Vec<&Bounds> = self.pages.iter().filter_map(|page| page.bounds.as_ref()).collect();
        if bounds.windows(2).all(|pair| pair[0].not_above(pair[1])) {
            BoundaryOrder::ASCENDING
        } else if bounds.windows(2).all(|pair| pair[1].not_above(pair[0])) {
            BoundaryOrder::DESCENDING
        } else {
            BoundaryOrder::UNORDERED
        }
    }
}

/// Returns how many slots of some pages have each definition level.
fn definition_histogram<'a>(pages: impl Iterator<Item = &'a PageFacts>) -> Result<Option<LevelHistogram>> {
    let mut counts: Vec<i64> = Vec::new();
    for page in pages {
        counts.resize(page.levels.len(), 0);
        for (count, more) in counts.iter_mut().zip(&page.levels) {
            *count += to_i64(*more)?;
        }
    }
    Ok((!counts.is_empty()).then(|| LevelHistogram::from(counts)))
}

/// Appends a page header: sizes before and after compression and the checksum, then the number of values and the code
/// of their encoding.
pub fn put_header(out: &mut Vec<u8>, kind: PageType, sizes: [i32; 3], [values, encoding]: [i32; 2]) {
    const NUMBER: u8 = 5;
    const STRUCT: u8 = 12;
    const STOP: u8 = 0;
    let number = |out: &mut Vec<u8>, value: i32| {
        // Each field id is one greater than the id before it.
        out.push(1 << 4 | NUMBER);
        put_zigzag(out, i64::from(value));
    };
    let dictionary = kind == PageType::DICTIONARY_PAGE;
    number(out, if dictionary { 2 } else { 0 });
    sizes.into_iter().for_each(|size| number(out, size));
    // Field 5 is the header of a data page, field 7 that of a dictionary.
    out.push(if dictionary { 3 << 4 | STRUCT } else { 1 << 4 | STRUCT });
    number(out, values);
    number(out, encoding);
    if !dictionary {
        number(out, Encoding::RLE as i32);
        number(out, Encoding::RLE as i32);
    }
    out.extend_from_slice(&[STOP, STOP]);
}

fn to_i32(number: usize) -> Result<i32> {
    i32::try_from(number).map_err(|_| Error::internal(format!("expected a page below 2 GiB, found {number} bytes")))
}

fn to_i64(number: usize) -> Result<i64> {
    i64::try_from(number).map_err(|_| Error::internal(format!("expected a chunk below 8 EiB, found {number} bytes")))
}

fn metadata_error(error: ::parquet::errors::ParquetError) -> Error {
    Error::internal("describing a column chunk failed").with_cause(error)
}
