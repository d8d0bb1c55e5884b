//! Encoder of column chunks for the large tables, sidecars and segments. It uses what is already known about each
//! column.
//!
//! These tables have a row per record, so encoding must cost almost nothing: random numbers are stored plain,
//! increasing numbers as differences, repeating text in a dictionary whose keys are already known, and columns of nulls
//! have no values at all. The parquet crate writes the schema and the footer around the chunks.
//!
//! ```text
//! chunk  [ dictionary page ] data page*     version 1, at most PAGE_ROWS rows each
//! page   header (thrift) | [ u32 length | definition levels ] values     zstd from the levels on, or uncompressed
//! ```
//!
//! The output depends on the values alone.

use std::ops::Range;

use ::parquet::{
    basic::{Compression, Encoding, PageType, Type, ZstdLevel},
    column::writer::ColumnCloseResult,
    data_type::ByteArray,
    file::{
        metadata::{ColumnChunkMetaData, OffsetIndexBuilder},
        statistics::{Statistics, ValueStatistics},
    },
    schema::types::ColumnDescPtr,
};
use arrow::{
    array::{Array, FixedSizeBinaryArray, StringArray, UInt64Array},
    buffer::NullBuffer,
};
use bytes::Bytes;

use super::fault::parquet_error;
use crate::{
    error::{Error, Result},
    format::parquet::{
        TextChunk, put_behind_length, put_differences, put_even, put_header, put_hybrid, put_levels, put_same_levels,
        put_texts, put_texts_after_lengths, put_texts_without_prefixes, shared_prefix, width_of,
    },
    record::numbers::{Numbers, Progression},
};

/// Rows per page, which is what a reader of one row decodes.
const PAGE_ROWS: usize = 16_384;

/// Maximum bytes of a minimum or maximum text in the statistics.
const BOUND_BYTES: usize = 64;

/// Neighbouring pairs sampled to see whether texts share prefixes.
const SAMPLED_PAIRS: usize = 256;

/// An encoded column chunk in memory.
#[derive(Debug, Clone)]
pub(in crate::dataset) struct Chunk {
    pub(in crate::dataset) bytes: Bytes,
    pub(in crate::dataset) close: ColumnCloseResult,
}

impl From<TextChunk> for Chunk {
    fn from(TextChunk { bytes, close }: TextChunk) -> Self {
        Self { bytes, close }
    }
}

impl Chunk {
    /// Number of rows.
    pub(in crate::dataset) fn row_count(&self) -> usize {
        usize::try_from(self.close.rows_written).unwrap_or(usize::MAX)
    }

    /// Returns the chunk as one of another column of the same type.
    pub(in crate::dataset) fn with_column(&self, column: &ColumnDescPtr) -> Result<Self> {
        let known = &self.close.metadata;
        let mut builder = ColumnChunkMetaData::builder(std::sync::Arc::clone(column))
            .set_compression(known.compression())
            .set_total_compressed_size(known.compressed_size())
            .set_total_uncompressed_size(known.uncompressed_size())
            .set_num_values(known.num_values())
            .set_data_page_offset(known.data_page_offset())
            .set_dictionary_page_offset(known.dictionary_page_offset())
            .set_encodings(known.encodings().collect());
        if let Some(statistics) = known.statistics() {
            builder = builder.set_statistics(statistics.clone());
        }
        let close = ColumnCloseResult { metadata: builder.build().map_err(parquet_error)?, ..self.close.clone() };
        Ok(Self { bytes: self.bytes.clone(), close })
    }
}

/// The values of a chunk.
pub(in crate::dataset) enum Values<'a> {
    /// Only nulls.
    Nulls,
    /// Unordered numbers.
    Noise(&'a [u64]),
    /// Dictionary-coded numbers with one key per row; neighbours are mostly equal.
    Repeated { keys: &'a [u32], dictionary: &'a [u64] },
    /// Like `Repeated`, but the dictionary ascends and its numbers are random, so compression would not make them
    /// smaller.
    Ascending { keys: &'a [u32], dictionary: &'a [u64] },
    /// Numbers in long arithmetic progressions.
    Counted(&'a [Progression]),
    /// Numbers that increase, or differ little from one to the next.
    Growing(&'a UInt64Array),
    /// Like `Growing`, but the differences are random, so compression would not make them smaller.
    Packed(&'a UInt64Array),
    /// Texts that are mostly distinct.
    Texts(&'a StringArray),
    /// Unordered values of one length.
    Fixed(&'a FixedSizeBinaryArray),
    /// Dictionary-coded texts with one key per row; keys of nulls are ignored.
    Keyed { keys: &'a [u32], dictionary: &'a [&'a str], valid: Option<&'a NullBuffer> },
}

/// Encodes a column of `rows` rows.
///
/// # Errors
/// When a page is larger than Parquet allows.
pub(in crate::dataset) fn encode_chunk(column: &ColumnDescPtr, rows: usize, values: &Values<'_>) -> Result<Chunk> {
    let mut pages = Pages::new(column.max_def_level() > 0, values)?;
    match values {
        Values::Keyed { dictionary, .. } => {
            put_texts(&dictionary.iter().map(|text| text.as_bytes()).collect::<Vec<_>>(), &mut pages.page);
            pages.end_dictionary(dictionary.len())?;
        }
        Values::Repeated { dictionary, .. } | Values::Ascending { dictionary, .. } => {
            pages.page.extend(dictionary.iter().flat_map(|number| number.to_le_bytes()));
            pages.end_dictionary(dictionary.len())?;
        }
        _ => {}
    }
    let mut start = 0;
    while start < rows {
        let end = rows.min(start + PAGE_ROWS);
        pages.push_data_page(values, start..end)?;
        start = end;
    }
    pages.finish(column, rows, chunk_statistics(column, rows, values))
}

/// Returns the column statistics: minimum, maximum and null count.
fn chunk_statistics(column: &ColumnDescPtr, rows: usize, values: &Values<'_>) -> Option<Statistics> {
    let texts = |bounds: Option<(&str, &str)>, nulls: usize| text_statistics(bounds, nulls as u64);
    match values {
        Values::Noise(_) | Values::Repeated { .. } | Values::Fixed(_) => None,
        Values::Nulls if column.physical_type() == Type::BYTE_ARRAY => texts(None, rows),
        Values::Nulls => None,
        Values::Ascending { dictionary, .. } => {
            let (least, greatest) = (dictionary.first()?.cast_signed(), dictionary.last()?.cast_signed());
            Some(Statistics::int64(Some(least), Some(greatest), None, Some(0), false))
        }
        Values::Counted(progressions) => {
            let least = progressions.iter().map(|progression| progression.first).min()?;
            let greatest = progressions
                .iter()
                .map(|progression| progression.number_at(progression.count.saturating_sub(1)))
                .max()?;
            Some(Statistics::int64(Some(least.cast_signed()), Some(greatest.cast_signed()), None, Some(0), false))
        }
        Values::Growing(numbers) | Values::Packed(numbers) => {
            let (least, greatest) = (arrow::compute::min(numbers)?, arrow::compute::max(numbers)?);
            let nulls = numbers.null_count() as u64;
            // UINT64 is stored as INT64 but ordered as unsigned.
            Some(Statistics::int64(Some(least.cast_signed()), Some(greatest.cast_signed()), None, Some(nulls), false))
        }
        Values::Texts(array) => texts(text_bounds(array.iter().flatten()), array.null_count()),
        Values::Keyed { dictionary, valid, .. } => {
            texts(text_bounds(dictionary.iter().copied()), valid.map_or(0, NullBuffer::null_count))
        }
    }
}

/// Returns the minimum and maximum of some texts.
fn text_bounds<'a>(texts: impl Iterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    texts.fold(None, |bounds, text| match bounds {
        None => Some((text, text)),
        Some((least, greatest)) if text > greatest => Some((least, text)),
        Some((least, greatest)) if text < least => Some((text, greatest)),
        bounds => bounds,
    })
}

/// Returns statistics of bounded length: a prefix of the minimum, and an upper bound made from a prefix of the maximum.
fn text_statistics(bounds: Option<(&str, &str)>, nulls: u64) -> Option<Statistics> {
    let Some((least, greatest)) = bounds else {
        return Some(Statistics::byte_array(None, None, None, Some(nulls), false));
    };
    let begin = |text: &str| text[..text.floor_char_boundary(BOUND_BYTES)].to_owned();
    let (short, cut) = (begin(least), greatest.len() > BOUND_BYTES);
    let exact = short.len() == least.len();
    let long = if cut { text_after(&begin(greatest))? } else { greatest.to_owned() };
    let [least, greatest] = [short, long].map(|text| Some(ByteArray::from(text.into_bytes())));
    let known = ValueStatistics::new(least, greatest, None, Some(nulls), false);
    Some(Statistics::ByteArray(known.with_min_is_exact(exact).with_max_is_exact(!cut)))
}

/// Returns a text greater than every text with this prefix; `None` if no text of that length is.
fn text_after(begin: &str) -> Option<String> {
    let next = |c: char| char::from_u32(c as u32 + 1).or_else(|| (c == '\u{d7ff}').then_some('\u{e000}'));
    let mut chars: Vec<char> = begin.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = next(last) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// The pages of one chunk.
struct Pages {
    out: Vec<u8>,
    /// The current page before compression.
    page: Vec<u8>,
    optional: bool,
    encoding: Encoding,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Whether it is still undecided if compression pays off; the first page decides.
    undecided: bool,
    raw_bytes: usize,
    dictionary_end: Option<usize>,
    offsets: OffsetIndexBuilder,
}

impl Pages {
    fn new(optional: bool, values: &Values<'_>) -> Result<Self> {
        let (encoding, packed) = match values {
            Values::Nulls | Values::Noise(_) | Values::Fixed(_) => (Encoding::PLAIN, false),
            Values::Packed(_) => (Encoding::DELTA_BINARY_PACKED, false),
            Values::Growing(_) | Values::Counted(_) => (Encoding::DELTA_BINARY_PACKED, true),
            Values::Texts(texts) if share_prefixes(texts) => (Encoding::DELTA_BYTE_ARRAY, true),
            Values::Texts(_) => (Encoding::DELTA_LENGTH_BYTE_ARRAY, true),
            Values::Keyed { .. } | Values::Repeated { .. } => (Encoding::RLE_DICTIONARY, true),
            Values::Ascending { .. } => (Encoding::RLE_DICTIONARY, false),
        };
        let zstd = packed.then(|| zstd::bulk::Compressor::new(1)).transpose()?;
        let (out, page) = (Vec::new(), Vec::new());
        let undecided = matches!(values, Values::Growing(_) | Values::Counted(_));
        let offsets = OffsetIndexBuilder::new();
        Ok(Self { out, page, optional, encoding, zstd, undecided, raw_bytes: 0, dictionary_end: None, offsets })
    }

    /// Ends the dictionary page, whose entries are in `page`.
    fn end_dictionary(&mut self, entries: usize) -> Result<()> {
        self.push_page(entries, true)?;
        self.dictionary_end = Some(self.out.len());
        Ok(())
    }

    fn push_data_page(&mut self, values: &Values<'_>, rows: Range<usize>) -> Result<()> {
        self.page.clear();
        if self.optional {
            put_definition_levels(values, &rows, &mut self.page)?;
        }
        match values {
            Values::Nulls => {}
            Values::Noise(numbers) => {
                numbers[rows.clone()].iter().for_each(|n| self.page.extend_from_slice(&n.to_le_bytes()));
            }
            Values::Repeated { keys, dictionary } | Values::Ascending { keys, dictionary } => {
                let width = width_of(dictionary.len().saturating_sub(1) as u64).max(1);
                self.page.push(width);
                put_hybrid(&mut self.page, &keys[rows.clone()], width);
            }
            Values::Counted(progressions) => put_counted(progressions, &rows, &mut self.page),
            Values::Growing(numbers) | Values::Packed(numbers) => {
                let slice = UInt64Array::slice(numbers, rows.start, rows.len());
                if slice.null_count() == 0 {
                    put_differences(slice.values(), &mut self.page);
                } else {
                    put_differences(&slice.iter().flatten().collect::<Vec<_>>(), &mut self.page);
                }
            }
            Values::Fixed(values) => {
                let slice = FixedSizeBinaryArray::slice(values, rows.start, rows.len());
                slice.iter().flatten().for_each(|value| self.page.extend_from_slice(value));
            }
            Values::Texts(texts) => {
                let slice = StringArray::slice(texts, rows.start, rows.len());
                let texts: Vec<&[u8]> = slice.iter().flatten().map(str::as_bytes).collect();
                if self.encoding == Encoding::DELTA_BYTE_ARRAY {
                    put_texts_without_prefixes(&texts, &mut self.page);
                } else {
                    put_texts_after_lengths(&texts, &mut self.page);
                }
            }
            Values::Keyed { keys, dictionary, valid } => {
                let keys = &keys[rows.clone()];
                let width = width_of(dictionary.len().saturating_sub(1) as u64).max(1);
                self.page.push(width);
                match valid.map(|valid| valid.slice(rows.start, rows.len())).filter(|v| v.null_count() > 0) {
                    None => put_hybrid(&mut self.page, keys, width),
                    Some(valid) => {
                        let keys: Vec<u32> = valid.valid_indices().map(|row| keys[row]).collect();
                        put_hybrid(&mut self.page, &keys, width);
                    }
                }
            }
        }
        let start = self.out.len();
        self.push_page(rows.len(), false)?;
        self.offsets.append_offset_and_size(chunk_offset(start)?, page_size(self.out.len() - start)?);
        self.offsets.append_row_count(chunk_offset(rows.len())?);
        Ok(())
    }

    /// Appends the page, preceded by its header.
    fn push_page(&mut self, values: usize, dictionary: bool) -> Result<()> {
        let packed = self.zstd.as_mut().map(|zstd| zstd.compress(&self.page)).transpose()?;
        let packed = if std::mem::take(&mut self.undecided) {
            let packed = packed.filter(|packed| packed.len() * 10 < self.page.len() * 9);
            self.zstd = self.zstd.take().filter(|_| packed.is_some());
            packed
        } else {
            packed
        };
        let stored = packed.as_deref().unwrap_or(&self.page);
        let (kind, encoding) = match dictionary {
            true => (PageType::DICTIONARY_PAGE, Encoding::PLAIN),
            false => (PageType::DATA_PAGE, self.encoding),
        };
        let start = self.out.len();
        let sizes = [page_size(self.page.len())?, page_size(stored.len())?, crc32fast::hash(stored).cast_signed()];
        put_header(&mut self.out, kind, sizes, [page_size(values)?, encoding as i32]);
        self.raw_bytes += self.out.len() - start + self.page.len();
        self.out.extend_from_slice(stored);
        Ok(())
    }

    fn finish(self, column: &ColumnDescPtr, rows: usize, statistics: Option<Statistics>) -> Result<Chunk> {
        let compression = match self.zstd {
            Some(_) => Compression::ZSTD(ZstdLevel::default()),
            None => Compression::UNCOMPRESSED,
        };
        let mut encodings = vec![Encoding::RLE, self.encoding];
        let mut builder = ColumnChunkMetaData::builder(std::sync::Arc::clone(column))
            .set_compression(compression)
            .set_total_compressed_size(chunk_offset(self.out.len())?)
            .set_total_uncompressed_size(chunk_offset(self.raw_bytes)?)
            .set_num_values(chunk_offset(rows)?)
            .set_data_page_offset(chunk_offset(self.dictionary_end.unwrap_or(0))?);
        if self.dictionary_end.is_some() {
            encodings.push(Encoding::PLAIN);
            builder = builder.set_dictionary_page_offset(Some(0));
        }
        if let Some(statistics) = statistics {
            builder = builder.set_statistics(statistics);
        }
        let metadata = builder.set_encodings(encodings).build().map_err(parquet_error)?;
        let close = ColumnCloseResult {
            bytes_written: self.out.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(self.offsets.build()),
        };
        Ok(Chunk { bytes: self.out.into(), close })
    }
}

fn page_size(bytes: usize) -> Result<i32> {
    i32::try_from(bytes).map_err(|_| Error::internal("a page of a table is too large"))
}

fn chunk_offset(at: usize) -> Result<i64> {
    i64::try_from(at).map_err(|_| Error::internal("a chunk of a table is too large"))
}

/// Appends the numbers of some rows, encoded as differences.
fn put_counted(progressions: &[Progression], rows: &Range<usize>, out: &mut Vec<u8>) {
    let part = Numbers::Progressions(progressions.to_vec()).slice(rows.clone());
    match &part {
        Numbers::Progressions(progressions) if progressions.len() == 1 => {
            progressions
                .iter()
                .for_each(|progression| put_even(out, progression.first, progression.step, progression.count));
        }
        part => put_differences(&part.iter().collect::<Vec<u64>>(), out),
    }
}

/// Appends the definition levels: one run if all rows agree, else their bits.
fn put_definition_levels(values: &Values<'_>, rows: &Range<usize>, out: &mut Vec<u8>) -> Result<()> {
    let valid = match values {
        Values::Nulls | Values::Noise(_) | Values::Repeated { .. } | Values::Ascending { .. } | Values::Counted(_) => {
            None
        }
        Values::Growing(numbers) | Values::Packed(numbers) => numbers.nulls(),
        Values::Texts(texts) => texts.nulls(),
        Values::Fixed(values) => values.nulls(),
        Values::Keyed { valid, .. } => *valid,
    };
    let valid = valid.map(|valid| valid.slice(rows.start, rows.len())).filter(|valid| valid.null_count() > 0);
    let ((), bytes) = put_behind_length(out, |out| match valid {
        Some(valid) if valid.null_count() < rows.len() => put_levels(out, valid.inner()),
        valid => {
            let all = valid.is_none() && !matches!(values, Values::Nulls);
            put_same_levels(out, rows.len(), u32::from(all));
        }
    });
    page_size(bytes).map(|_| ())
}

/// Whether neighbouring texts share a large part of their prefixes.
fn share_prefixes(texts: &StringArray) -> bool {
    let mut last: &[u8] = &[];
    let (mut shared, mut all) = (0, 0);
    for text in texts.iter().take(SAMPLED_PAIRS).flatten().map(str::as_bytes) {
        shared += shared_prefix(last, text);
        all += text.len();
        last = text;
    }
    shared * 4 > all
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, RecordBatch},
        datatypes::{DataType, Field, Schema},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::{
        dataset::table::{self, Group, GroupWriter, sealed::Sealed},
        storage::{RemoteStore, Store},
    };

    /// Returns what the parquet crate reads from two equal row groups.
    fn read_back(data_type: &DataType, nullable: bool, rows: usize, values: &Values<'_>) -> Vec<ArrayRef> {
        let schema = Schema::new(vec![Field::new("c", data_type.clone(), nullable)]);
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let columns = table::parquet_schema(&schema).unwrap();
        let mut writer = GroupWriter::create(store.as_ref(), "t", &columns).unwrap();
        for _ in 0..2 {
            let chunk = encode_chunk(&columns.column(0), rows, values).unwrap();
            writer.append_group(Group { chunks: vec![chunk], rows: rows as u64 }).unwrap();
        }
        let staged = writer.finish().unwrap();
        let written = Sealed::from_staged(&staged).unwrap();
        store.publish_staged(vec![staged]).unwrap();
        let batches: Vec<RecordBatch> = table::read(store.as_ref(), &written).unwrap();
        let all = arrow::compute::concat_batches(&Arc::new(schema), &batches).unwrap();
        (0..2).map(|group| all.column(0).slice(group * rows, rows)).collect()
    }

    fn check_numbers(numbers: &UInt64Array) {
        let nullable = numbers.null_count() > 0;
        for values in [Values::Growing(numbers), Values::Packed(numbers)] {
            for found in read_back(&DataType::UInt64, true, numbers.len(), &values) {
                assert_eq!(found.as_ref(), numbers as &dyn Array);
            }
        }
        if !nullable {
            for found in read_back(&DataType::UInt64, false, numbers.len(), &Values::Noise(numbers.values())) {
                assert_eq!(found.as_ref(), numbers as &dyn Array);
            }
        }
    }

    fn check_texts(texts: &StringArray) {
        for found in read_back(&DataType::Utf8, true, texts.len(), &Values::Texts(texts)) {
            assert_eq!(found.as_ref(), texts as &dyn Array);
        }
        let dictionary: Vec<&str> = texts.iter().map(Option::unwrap_or_default).collect();
        let keys: Vec<u32> = (0..).take(texts.len()).collect();
        let values = Values::Keyed { keys: &keys, dictionary: &dictionary, valid: texts.nulls() };
        for found in read_back(&DataType::Utf8, true, texts.len(), &values) {
            assert_eq!(found.as_ref(), texts as &dyn Array);
        }
    }

    #[test]
    fn chunks_of_several_pages_are_read_back() {
        let count = 3 * PAGE_ROWS + 77;
        check_numbers(&(0..count as u64).map(|i| Some(i * 512)).collect());
        check_numbers(&(0..count as u64).map(|i| (i % 11 != 3).then_some(i.wrapping_mul(i) << 20)).collect());
        check_numbers(&(0..count as u64).map(|i| (i > 40_000).then_some(u64::MAX - i)).collect());
        check_texts(&(0..count).map(|i| Some(format!("V{i:09}"))).collect());
        check_texts(&(0..count).map(|i| (i % 3 == 0).then(|| "x".repeat(i * 7919 % 60))).collect());
        check_texts(&(0..count).map(|i| (i > 40_000).then(|| i.to_string())).collect());
        for found in read_back(&DataType::Utf8, true, count, &Values::Nulls) {
            assert_eq!(found.null_count(), count);
        }
        let keys: Vec<u32> = (0..count).map(|i| u32::from(i > 30_000)).collect();
        let values = Values::Keyed { keys: &keys, dictionary: &["a", "b"], valid: None };
        for found in read_back(&DataType::Utf8, false, count, &values) {
            let expected: StringArray = keys.iter().map(|key| Some(["a", "b"][*key as usize])).collect();
            assert_eq!(found.as_ref(), &expected as &dyn Array);
        }
    }

    #[test]
    fn bounds_of_texts_are_short_and_hold_all_of_them() {
        let long = "é".repeat(4_000);
        let highest = "\u{10ffff}".repeat(100);
        for texts in [vec!["b", "a", "c"], vec![&*long, "a"], vec!["", &*long], vec![&*highest], vec!["\u{d7ff}"]] {
            let Some(Statistics::ByteArray(known)) = text_statistics(text_bounds(texts.iter().copied()), 1) else {
                assert_eq!(texts, [highest.as_str()], "only what nothing comes after has none");
                continue;
            };
            let (least, greatest) = (known.min_bytes_opt().unwrap(), known.max_bytes_opt().unwrap());
            assert!(least.len() <= BOUND_BYTES && greatest.len() <= BOUND_BYTES + 3);
            assert!(texts.iter().all(|text| least <= text.as_bytes() && text.as_bytes() <= greatest), "{texts:?}");
            assert_eq!(known.max_is_exact(), texts.iter().max().unwrap().len() <= BOUND_BYTES);
            assert!(std::str::from_utf8(greatest).is_ok());
        }
        assert_eq!(text_after("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(text_after("a\u{10ffff}").as_deref(), Some("b"));
    }

    proptest! {
        #[test]
        fn numbers_of_all_widths_are_read_back(
            numbers in proptest::collection::vec(proptest::option::weighted(0.8, (any::<u64>(), 0..64_u32)), 1..400),
        ) {
            check_numbers(&numbers.iter().map(|n| n.map(|(n, shift)| n >> shift)).collect());
            check_numbers(&numbers.iter().flatten().map(|(n, shift)| Some(n >> shift)).collect());
        }

        #[test]
        fn texts_are_read_back(
            texts in proptest::collection::vec(proptest::option::weighted(0.8, "[ab\u{e9}]{0,12}"), 1..400),
        ) {
            check_texts(&texts.into_iter().collect());
        }
    }
}
