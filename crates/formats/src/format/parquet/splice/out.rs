//! Assembles a chunk from pages: those of the inputs, which are shared and not copied, and new ones.
//!
//! All metadata of a chunk in the footer and the page indexes is made here, from the facts of its pages and from the
//! footers of the inputs.

use std::{collections::BTreeMap, io::Read, sync::Arc};

use ::parquet::{
    basic::{BoundaryOrder, Compression, Encoding, EncodingMask, PageType},
    column::writer::ColumnCloseResult,
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, ColumnIndexBuilder, LevelHistogram, OffsetIndexBuilder, PageEncodingStats},
        page_index::column_index::ColumnIndexMetaData,
        reader::{ChunkReader, Length},
        statistics::Statistics,
    },
    schema::types::ColumnDescPtr,
};
use bytes::{Buf, Bytes};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    super::{
        chunk::put_header,
        thrift::{PageHeader, PageKind},
    },
    bounds::{ComparisonOrder, unite_statistics},
    facts::Facts,
    proof::{ChunkNote, PageNote, SAMPLE},
};
use crate::error::{Error, Result};

/// Approximate size in bytes of the pieces into which new pages are collected.
const PIECE_BYTES: usize = 512 << 10;

/// Size in bytes below which pages are copied rather than shared.
const MAX_COPIED_BYTES: usize = 4 << 10;

/// Consecutive bytes in several pieces.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Pieces {
    pieces: Arc<Vec<Bytes>>,
    bytes: u64,
}

impl Length for Pieces {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Pieces {
    type T = PiecesReader;

    fn get_read(&self, start: u64) -> ::parquet::errors::Result<Self::T> {
        let mut reader = PiecesReader { pieces: self.clone(), next: 0, current: Bytes::new() };
        let mut skipped = usize::try_from(start)?;
        while let Some(piece) = self.pieces.get(reader.next).filter(|piece| piece.len() <= skipped) {
            skipped -= piece.len();
            reader.next += 1;
        }
        reader.next_piece();
        reader.current.advance(skipped.min(reader.current.len()));
        Ok(reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ::parquet::errors::Result<Bytes> {
        let mut out = Vec::new();
        self.get_read(start)?.take(length as u64).read_to_end(&mut out)?;
        Ok(out.into())
    }
}

/// Reads pieces one after another.
#[derive(Debug)]
pub(in super::super) struct PiecesReader {
    pieces: Pieces,
    next: usize,
    current: Bytes,
}

impl PiecesReader {
    fn next_piece(&mut self) {
        if let Some(piece) = self.pieces.pieces.get(self.next) {
            self.current = piece.clone();
            self.next += 1;
        }
    }
}

impl Read for PiecesReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.current.is_empty() {
            self.next_piece();
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

/// A finished chunk; offsets in `close` are relative to its first byte.
#[derive(Debug)]
pub(in super::super) struct SplicedChunk {
    /// The pages.
    pub(in super::super) pieces: Pieces,
    /// Metadata for the footer and the page indexes.
    pub(in super::super) close: ColumnCloseResult,
    /// Note that the written file is compared with.
    pub(in super::super) note: ChunkNote,
}

/// A chunk that is being assembled.
pub(super) struct Out {
    column: ColumnDescPtr,
    codec: Compression,
    pieces: Vec<Bytes>,
    /// New pages after the last piece.
    tail: Vec<u8>,
    /// Total bytes of all pieces.
    before: usize,
    uncompressed: u64,
    /// Offset of the first data page, if a dictionary precedes it.
    after_dictionary: Option<usize>,
    /// Number of pages by kind and encoding.
    kinds: BTreeMap<(i32, i32), i32>,
    offsets: OffsetIndexBuilder,
    facts: Vec<Facts>,
    notes: Vec<PageNote>,
}

impl Out {
    pub(super) fn new(column: &ColumnDescPtr, codec: Compression) -> Self {
        Self {
            column: ColumnDescPtr::clone(column),
            codec,
            pieces: Vec::new(),
            tail: Vec::new(),
            before: 0,
            uncompressed: 0,
            after_dictionary: None,
            kinds: BTreeMap::new(),
            offsets: OffsetIndexBuilder::new(),
            facts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns whether the next page is one of the sampled ones.
    pub(super) fn is_sample(&self) -> bool {
        self.notes.len().is_multiple_of(SAMPLE)
    }

    fn end_offset(&self) -> usize {
        self.before + self.tail.len()
    }

    /// Adds an existing page with its header.
    pub(super) fn copy_page(&mut self, page: Bytes, header: &PageHeader, facts: Option<Facts>) -> Result<()> {
        let (start, length) = (self.end_offset(), page.len());
        self.notes.push(PageNote { stored: xxh3_64(&page), bytes: length as u64 });
        if length < MAX_COPIED_BYTES {
            self.tail.extend_from_slice(&page);
        } else {
            self.end_tail();
            self.before += length;
            self.pieces.push(page);
        }
        let kind = match header.kind {
            PageKind::Dictionary => 2,
            PageKind::DataV2 { .. } => 3,
            _ => 0,
        };
        let encoding = i32::try_from(header.encoding).unwrap_or(-1);
        self.count_page(start, kind, encoding, header.header_bytes + header.uncompressed, facts)
    }

    /// Adds a page of version 1, or a dictionary if `facts` is `None`; `stored` decompresses to `inflated` bytes.
    pub(super) fn put_page(
        &mut self,
        values: u64,
        encoding: i32,
        inflated: usize,
        stored: &[u8],
        facts: Option<Facts>,
    ) -> Result<()> {
        let start = self.end_offset();
        let kind = if facts.is_some() { PageType::DATA_PAGE } else { PageType::DICTIONARY_PAGE };
        let crc = crc32fast::hash(stored).cast_signed();
        let before = self.tail.len();
        put_header(
            &mut self.tail,
            kind,
            [to_i32(inflated as u64)?, to_i32(stored.len() as u64)?, crc],
            [to_i32(values)?, encoding],
        );
        let header = self.tail.len() - before;
        self.tail.extend_from_slice(stored);
        let page = &self.tail[before..];
        self.notes.push(PageNote { stored: xxh3_64(page), bytes: page.len() as u64 });
        if self.tail.len() > PIECE_BYTES {
            self.end_tail();
        }
        self.count_page(start, if facts.is_some() { 0 } else { 2 }, encoding, (header + inflated) as u64, facts)
    }

    fn count_page(&mut self, start: usize, kind: i32, encoding: i32, bytes: u64, facts: Option<Facts>) -> Result<()> {
        self.uncompressed += bytes;
        *self.kinds.entry((kind, encoding)).or_default() += 1;
        let Some(facts) = facts else {
            self.after_dictionary = Some(self.end_offset());
            return Ok(());
        };
        self.offsets.append_offset_and_size(to_i64(start as u64)?, to_i32((self.end_offset() - start) as u64)?);
        self.offsets.append_row_count(to_i64(facts.rows.unwrap_or_default())?);
        self.facts.push(facts);
        Ok(())
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.before += self.tail.len();
            let room = if self.tail.len() > PIECE_BYTES { Vec::with_capacity(PIECE_BYTES / 4 * 5) } else { Vec::new() };
            self.pieces.push(std::mem::replace(&mut self.tail, room).into());
        }
    }

    /// Finishes the chunk, which has `rows` rows and contains the values of `chunks`.
    pub(super) fn finish(
        mut self,
        chunks: &[&ColumnChunkMetaData],
        rows: u64,
        order: ComparisonOrder,
    ) -> Result<SplicedChunk> {
        self.end_tail();
        let mut facts = std::mem::take(&mut self.facts);
        let nulls = facts.iter().map(|page| page.nulls).sum::<Option<u64>>();
        // The index states the number of NaNs for all pages or for none.
        if facts.iter().any(|page| page.nans.is_none()) {
            facts.iter_mut().for_each(|page| page.nans = None);
        }
        let texts: Option<Vec<i64>> = facts.iter().map(|page| page.text_bytes).collect();
        for bytes in texts.into_iter().flatten() {
            self.offsets.append_unencoded_byte_array_data_bytes(Some(bytes));
        }
        let rows_known = facts.iter().map(|page| page.rows).sum::<Option<u64>>() == Some(rows);
        let bytes = self.before as u64;
        let metadata = ColumnChunkMetaData::builder(ColumnDescPtr::clone(&self.column))
            .set_compression(self.codec)
            .set_encodings_mask(self.encoding_mask())
            .set_page_encoding_stats(self.page_kinds())
            .set_total_compressed_size(to_i64(bytes)?)
            .set_total_uncompressed_size(to_i64(self.uncompressed)?)
            .set_num_values(chunks.iter().map(|chunk| chunk.num_values()).sum())
            .set_data_page_offset(to_i64(self.after_dictionary.unwrap_or_default() as u64)?)
            .set_dictionary_page_offset(self.after_dictionary.map(|_| 0))
            .set_unencoded_byte_array_data_bytes(
                chunks.iter().map(|chunk| chunk.unencoded_byte_array_data_bytes()).sum(),
            )
            .set_repetition_level_histogram(sum_histograms(chunks, &facts, 0))
            .set_definition_level_histogram(sum_histograms(chunks, &facts, 1));
        let metadata = match unite_statistics(chunks, order, nulls) {
            Some(statistics) => metadata.set_statistics(statistics),
            None => metadata,
        };
        let close = ColumnCloseResult {
            bytes_written: bytes,
            rows_written: rows,
            metadata: metadata.build().map_err(metadata_error)?,
            bloom_filter: None,
            column_index: if rows_known { self.column_index(&facts, order)? } else { None },
            offset_index: rows_known.then(|| std::mem::take(&mut self.offsets).build()),
        };
        let stated = |chunk: &&ColumnChunkMetaData| chunk.statistics().and_then(Statistics::null_count_opt);
        let note = ChunkNote {
            pages: self.notes,
            values: chunks.iter().map(|chunk| chunk.num_values()).sum(),
            nulls: chunks.iter().map(stated).sum(),
        };
        Ok(SplicedChunk { pieces: Pieces { pieces: Arc::new(self.pieces), bytes }, close, note })
    }

    fn encoding_mask(&self) -> EncodingMask {
        let levels = self.column.max_def_level() > 0 || self.column.max_rep_level() > 0;
        let pages = self.kinds.keys().filter_map(|(_, encoding)| encoding_of(*encoding));
        let encodings: Vec<Encoding> = pages.chain(levels.then_some(Encoding::RLE)).collect();
        EncodingMask::new_from_encodings(encodings.iter())
    }

    fn page_kinds(&self) -> Vec<PageEncodingStats> {
        let kind = |number| match number {
            2 => PageType::DICTIONARY_PAGE,
            3 => PageType::DATA_PAGE_V2,
            _ => PageType::DATA_PAGE,
        };
        let known = |((page, encoding), count): (&(i32, i32), &i32)| {
            let (page_type, encoding) = (kind(*page), encoding_of(*encoding)?);
            Some(PageEncodingStats { page_type, encoding, count: *count })
        };
        self.kinds.iter().filter_map(known).collect()
    }

    /// Returns the column index; `None` unless each page has known facts.
    fn column_index(&self, facts: &[Facts], order: ComparisonOrder) -> Result<Option<ColumnIndexMetaData>> {
        let mut index = ColumnIndexBuilder::new(self.column.physical_type());
        let histograms = [0, 1].map(|i| facts.iter().all(|page| page.histograms[i].is_some()));
        for page in facts {
            let Some(nulls) = page.nulls else { return Ok(None) };
            let (least, greatest) = match &page.bounds {
                _ if page.is_null() => (Vec::new(), Vec::new()),
                Some(bounds) => bounds.clone(),
                None => return Ok(None),
            };
            index.append(page.is_null(), least, greatest, to_i64(nulls)?, page.nans);
            let levels = |i: usize| page.histograms[i].clone().filter(|_| histograms[i]).map(LevelHistogram::from);
            index.append_histograms(&levels(0), &levels(1));
        }
        let bounds: Vec<_> = facts.iter().filter(|page| !page.is_null()).filter_map(|f| f.bounds.as_ref()).collect();
        let rises = |(one, other): (&Vec<u8>, &Vec<u8>)| order.compare(one, other).is_le();
        index.set_boundary_order(if order == ComparisonOrder::Undefined {
            BoundaryOrder::UNORDERED
        } else if bounds.windows(2).all(|p| rises((&p[0].0, &p[1].0)) && rises((&p[0].1, &p[1].1))) {
            BoundaryOrder::ASCENDING
        } else if bounds.windows(2).all(|p| rises((&p[1].0, &p[0].0)) && rises((&p[1].1, &p[0].1))) {
            BoundaryOrder::DESCENDING
        } else {
            BoundaryOrder::UNORDERED
        });
        // Bounds of a foreign index may have a size that does not match the type.
        Ok(index.build().ok())
    }
}

/// Returns the histogram of levels of all pages, or of all chunks from their footers.
fn sum_histograms(chunks: &[&ColumnChunkMetaData], facts: &[Facts], which: usize) -> Option<LevelHistogram> {
    let add = |all: Option<Vec<i64>>, more: Option<Vec<i64>>| match (all, more) {
        (Some(all), Some(more)) if all.is_empty() => Some(more),
        (Some(all), Some(more)) if all.len() == more.len() => Some(all.iter().zip(&more).map(|(a, b)| a + b).collect()),
        _ => None,
    };
    let of_chunk = |chunk: &&ColumnChunkMetaData| {
        let levels = [chunk.repetition_level_histogram(), chunk.definition_level_histogram()][which];
        levels.map(|levels| levels.values().to_vec())
    };
    let pages = facts.iter().map(|page| page.histograms[which].clone()).fold(Some(Vec::new()), add);
    let found = pages.or_else(|| chunks.iter().map(of_chunk).fold(Some(Vec::new()), add));
    found.filter(|counts| !counts.is_empty()).map(LevelHistogram::from)
}

/// Returns the encoding with a number.
fn encoding_of(number: i32) -> Option<Encoding> {
    Some(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return None,
    })
}

fn to_i32(number: u64) -> Result<i32> {
    i32::try_from(number).map_err(|_| Error::internal(format!("expected a page below 2 GiB, found {number} bytes")))
}

fn to_i64(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| Error::internal(format!("expected a chunk below 8 EiB, found {number} bytes")))
}

fn metadata_error(error: ParquetError) -> Error {
    Error::internal("describing a column chunk failed").with_cause(error)
}
