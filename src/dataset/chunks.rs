//! Column chunks of the large tables, sidecars and segments, made straight from what is known about their columns.
//!
//! A row of them is written for every record, so they must cost next to nothing: numbers that are noise are stored as
//! they are, numbers that grow are stored as differences, text that repeats goes to a dictionary whose keys are known
//! already, and columns of nulls have no values at all. The parquet crate writes schema and footer around the chunks.
//!
//! ```text
//! chunk  [ dictionary page ] data page*     version 1, at most PAGE_ROWS rows each
//! page   header (thrift) | [ u32 length | definition levels ] values     zstd from the levels on, or as they are
//! ```
//!
//! What is written depends on the values alone.

use std::ops::Range;

use ::parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    column::writer::ColumnCloseResult,
    file::{
        metadata::{ColumnChunkMetaData, OffsetIndexBuilder},
        statistics::Statistics,
    },
    schema::types::ColumnDescPtr,
};
use arrow::{
    array::{Array, StringArray, UInt64Array},
    buffer::NullBuffer,
};
use bytes::Bytes;

use super::table;
use crate::error::{Error, Result};

/// Rows of a page: what a reader of one row decodes.
const PAGE_ROWS: usize = 16_384;

/// Neighbours that are looked at to see whether texts share their begins.
const SAMPLED: usize = 256;

/// A column chunk in memory.
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
}

/// The values of a chunk.
pub(super) enum Values<'a> {
    /// Nothing but nulls.
    Nulls,
    /// Numbers without order.
    Noise(&'a [u64]),
    /// Numbers that grow, or differ little from one to the next.
    Growing(&'a UInt64Array),
    /// The same, where their differences are noise that no codec makes smaller.
    Packed(&'a UInt64Array),
    /// Texts of which few are equal.
    Texts(&'a StringArray),
    /// Texts of a dictionary, one key per row; keys of nulls do not matter.
    Keyed { keys: &'a [u32], dictionary: &'a [&'a str], valid: Option<&'a NullBuffer> },
}

/// Encodes a column of `rows` rows.
///
/// # Errors
/// When a page is larger than Parquet allows.
pub(super) fn encode(column: &ColumnDescPtr, rows: usize, values: &Values<'_>) -> Result<Chunk> {
    let mut pages = Pages::new(column.max_def_level() > 0, values)?;
    if let Values::Keyed { dictionary, .. } = values {
        pages.dictionary(dictionary)?;
    }
    let mut start = 0;
    while start < rows {
        let end = rows.min(start + PAGE_ROWS);
        pages.data(values, start..end)?;
        start = end;
    }
    pages.finish(column, rows, statistics(values))
}

/// Least and greatest number, for those who look for one.
fn statistics(values: &Values<'_>) -> Option<Statistics> {
    let (Values::Growing(numbers) | Values::Packed(numbers)) = values else { return None };
    let (least, greatest) = (arrow::compute::min(numbers)?, arrow::compute::max(numbers)?);
    let nulls = numbers.null_count() as u64;
    // UINT64 is stored as INT64 but ordered as unsigned.
    Some(Statistics::int64(Some(least.cast_signed()), Some(greatest.cast_signed()), None, Some(nulls), false))
}

/// Pages of one chunk.
struct Pages {
    out: Vec<u8>,
    /// A page before compression.
    page: Vec<u8>,
    optional: bool,
    encoding: Encoding,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Whether the first page decides if compression is worth it.
    undecided: bool,
    raw_bytes: usize,
    dictionary_end: Option<usize>,
    offsets: OffsetIndexBuilder,
}

impl Pages {
    fn new(optional: bool, values: &Values<'_>) -> Result<Self> {
        let (encoding, packed) = match values {
            Values::Nulls | Values::Noise(_) => (Encoding::PLAIN, false),
            Values::Packed(_) => (Encoding::DELTA_BINARY_PACKED, false),
            Values::Growing(_) => (Encoding::DELTA_BINARY_PACKED, true),
            Values::Texts(texts) if share_begins(texts) => (Encoding::DELTA_BYTE_ARRAY, true),
            Values::Texts(_) => (Encoding::DELTA_LENGTH_BYTE_ARRAY, true),
            Values::Keyed { .. } => (Encoding::RLE_DICTIONARY, true),
        };
        let zstd = packed.then(|| zstd::bulk::Compressor::new(1)).transpose()?;
        let (out, page) = (Vec::new(), Vec::new());
        let undecided = matches!(values, Values::Growing(_));
        let offsets = OffsetIndexBuilder::new();
        Ok(Self { out, page, optional, encoding, zstd, undecided, raw_bytes: 0, dictionary_end: None, offsets })
    }

    fn dictionary(&mut self, texts: &[&str]) -> Result<()> {
        self.page.clear();
        for text in texts {
            self.page.extend_from_slice(&length(text.len())?.to_le_bytes());
            self.page.extend_from_slice(text.as_bytes());
        }
        self.push(texts.len(), true)?;
        self.dictionary_end = Some(self.out.len());
        Ok(())
    }

    fn data(&mut self, values: &Values<'_>, rows: Range<usize>) -> Result<()> {
        self.page.clear();
        if self.optional {
            levels(values, &rows, &mut self.page)?;
        }
        match values {
            Values::Nulls => {}
            Values::Noise(numbers) => {
                numbers[rows.clone()].iter().for_each(|n| self.page.extend_from_slice(&n.to_le_bytes()));
            }
            Values::Growing(numbers) | Values::Packed(numbers) => {
                let slice = UInt64Array::slice(numbers, rows.start, rows.len());
                if slice.null_count() == 0 {
                    differences(slice.values(), &mut self.page);
                } else {
                    differences(&slice.iter().flatten().collect::<Vec<_>>(), &mut self.page);
                }
            }
            Values::Texts(texts) => {
                let slice = StringArray::slice(texts, rows.start, rows.len());
                let texts: Vec<&[u8]> = slice.iter().flatten().map(str::as_bytes).collect();
                if self.encoding == Encoding::DELTA_BYTE_ARRAY {
                    shared_begins(&texts, &mut self.page);
                } else {
                    lengths_and_bytes(&texts, &mut self.page);
                }
            }
            Values::Keyed { keys, dictionary, valid } => {
                let keys = &keys[rows.clone()];
                let width = (usize::BITS - dictionary.len().saturating_sub(1).leading_zeros()).max(1);
                match valid.map(|valid| valid.slice(rows.start, rows.len())).filter(|v| v.null_count() > 0) {
                    None => hybrid(keys, width, &mut self.page),
                    Some(valid) => {
                        let keys: Vec<u32> = valid.valid_indices().map(|row| keys[row]).collect();
                        hybrid(&keys, width, &mut self.page);
                    }
                }
            }
        }
        let start = self.out.len();
        self.push(rows.len(), false)?;
        self.offsets.append_offset_and_size(offset(start)?, length(self.out.len() - start)?.cast_signed());
        self.offsets.append_row_count(offset(rows.len())?);
        Ok(())
    }

    /// Puts the page behind its header.
    fn push(&mut self, values: usize, dictionary: bool) -> Result<()> {
        let packed = self.zstd.as_mut().map(|zstd| zstd.compress(&self.page)).transpose()?;
        let packed = if std::mem::take(&mut self.undecided) {
            let packed = packed.filter(|packed| packed.len() * 10 < self.page.len() * 9);
            self.zstd = self.zstd.take().filter(|_| packed.is_some());
            packed
        } else {
            packed
        };
        let stored = packed.as_deref().unwrap_or(&self.page);
        let encoding = if dictionary { Encoding::PLAIN } else { self.encoding };
        let start = self.out.len();
        header(self.page.len(), stored.len(), values, encoding, dictionary, &mut self.out)?;
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
            .set_total_compressed_size(offset(self.out.len())?)
            .set_total_uncompressed_size(offset(self.raw_bytes)?)
            .set_num_values(offset(rows)?)
            .set_data_page_offset(offset(self.dictionary_end.unwrap_or(0))?);
        if self.dictionary_end.is_some() {
            encodings.push(Encoding::PLAIN);
            builder = builder.set_dictionary_page_offset(Some(0));
        }
        if let Some(statistics) = statistics {
            builder = builder.set_statistics(statistics);
        }
        let metadata = builder.set_encodings(encodings).build().map_err(table::failed)?;
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

fn length(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| Error::internal("a page of a table is too large"))
}

fn offset(at: usize) -> Result<i64> {
    i64::try_from(at).map_err(|_| Error::internal("a chunk of a table is too large"))
}

/// Header of a page, in thrift's compact protocol: `field delta << 4 | type`, numbers as zigzag varints.
fn header(
    raw: usize,
    stored: usize,
    values: usize,
    encoding: Encoding,
    dictionary: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    const NEXT_I32: u8 = 0x15;
    const RLE: i32 = 3;
    let number = |out: &mut Vec<u8>, number: i32| {
        out.push(NEXT_I32);
        varint(zigzag(i64::from(number)), out);
    };
    let size = |n: usize| i32::try_from(n).map_err(|_| Error::internal("a page of a table is too large"));
    number(out, if dictionary { 2 } else { 0 });
    number(out, size(raw)?);
    number(out, size(stored)?);
    // Structs: field 7 says what is in a dictionary page, field 5 what is in a data page.
    out.push(if dictionary { 0x4c } else { 0x2c });
    number(out, size(values)?);
    number(out, encoding as i32);
    if !dictionary {
        number(out, RLE);
        number(out, RLE);
    }
    out.extend_from_slice(&[0, 0]);
    Ok(())
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// Which rows have values: one run when they all agree, else their bits.
fn levels(values: &Values<'_>, rows: &Range<usize>, out: &mut Vec<u8>) -> Result<()> {
    let valid = match values {
        Values::Nulls | Values::Noise(_) => None,
        Values::Growing(numbers) | Values::Packed(numbers) => numbers.nulls(),
        Values::Texts(texts) => texts.nulls(),
        Values::Keyed { valid, .. } => *valid,
    };
    let valid = valid.map(|valid| valid.slice(rows.start, rows.len())).filter(|valid| valid.null_count() > 0);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    match valid {
        Some(valid) if valid.null_count() < rows.len() => {
            varint(((rows.len().div_ceil(8) as u64) << 1) | 1, out);
            let bits: Vec<bool> = valid.iter().collect();
            out.extend(bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| (byte << 1) | u8::from(*bit))));
        }
        valid => {
            let all = valid.is_none() && !matches!(values, Values::Nulls);
            varint((rows.len() as u64) << 1, out);
            out.push(u8::from(all));
        }
    }
    let bytes = length(out.len() - at - 4)?;
    out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// Keys: runs where there are few, else packed to `width` bits each.
fn hybrid(keys: &[u32], width: u32, out: &mut Vec<u8>) {
    out.push(low_byte(u64::from(width)));
    let bytes = width.div_ceil(8) as usize;
    let runs = keys.chunk_by(|a, b| a == b);
    if runs.clone().take(keys.len() / 8 + 1).count() * 8 <= keys.len() {
        for run in runs {
            varint((run.len() as u64) << 1, out);
            out.extend_from_slice(&run[0].to_le_bytes()[..bytes]);
        }
        return;
    }
    varint(((keys.len().div_ceil(8) as u64) << 1) | 1, out);
    let mut bits = Bits::new(out);
    keys.iter().for_each(|key| bits.push(u64::from(*key), width));
    for _ in keys.len()..keys.len().next_multiple_of(8) {
        bits.push(0, width);
    }
    bits.end();
}

/// Numbers of some bits, one behind the other, lowest bit first.
struct Bits<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    filled: u32,
}

impl<'a> Bits<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, word: 0, filled: 0 }
    }

    /// Adds a number below 2^`width`.
    #[inline]
    fn push(&mut self, value: u64, width: u32) {
        self.word |= value << self.filled;
        let filled = self.filled + width;
        if filled < 64 {
            self.filled = filled;
            return;
        }
        self.out.extend_from_slice(&self.word.to_le_bytes());
        self.word = value.checked_shr(64 - self.filled).unwrap_or(0);
        self.filled = filled - 64;
    }

    fn end(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.word.to_le_bytes()[..bytes]);
    }
}

const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// `DELTA_BINARY_PACKED`: the first number, then differences in blocks, each as the excess over the least of its block.
///
/// ```text
/// 128 | 4 | count | first     block: least difference | 4 widths | 4 x 32 excesses of that many bits
/// ```
fn differences(numbers: &[u64], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint((BLOCK / MINIBLOCK) as u64, out);
    varint(numbers.len() as u64, out);
    let Some((first, rest)) = numbers.split_first() else { return varint(0, out) };
    varint(zigzag(first.cast_signed()), out);
    let mut last = *first;
    let mut excess = [0_u64; BLOCK];
    for block in rest.chunks(BLOCK) {
        let mut least = i64::MAX;
        for (difference, number) in excess.iter_mut().zip(block) {
            *difference = number.wrapping_sub(last);
            least = least.min(difference.cast_signed());
            last = *number;
        }
        let taken = &mut excess[..block.len()];
        taken.iter_mut().for_each(|difference| *difference = difference.wrapping_sub(least.cast_unsigned()));
        excess[block.len()..].fill(0);
        varint(zigzag(least), out);
        let widths: [u32; BLOCK / MINIBLOCK] = std::array::from_fn(|mini| {
            let all = excess[mini * MINIBLOCK..][..MINIBLOCK].iter().fold(0, |all, excess| all | excess);
            u64::BITS - all.leading_zeros()
        });
        out.extend(widths.map(|width| low_byte(u64::from(width))));
        let mut bits = Bits::new(out);
        for (mini, width) in excess.chunks(MINIBLOCK).zip(widths).filter(|(_, width)| *width > 0) {
            mini.iter().for_each(|excess| bits.push(*excess, width));
        }
        bits.end();
    }
}

/// `DELTA_LENGTH_BYTE_ARRAY`: all lengths, then all bytes.
fn lengths_and_bytes(texts: &[&[u8]], out: &mut Vec<u8>) {
    differences(&texts.iter().map(|text| text.len() as u64).collect::<Vec<_>>(), out);
    texts.iter().for_each(|text| out.extend_from_slice(text));
}

/// `DELTA_BYTE_ARRAY`: how many bytes each text has in common with the one before, then the rest of each.
fn shared_begins(texts: &[&[u8]], out: &mut Vec<u8>) {
    let mut shared = Vec::with_capacity(texts.len());
    let mut rest = Vec::with_capacity(texts.len());
    let mut last: &[u8] = &[];
    for text in texts {
        let common = common_begin(last, text);
        shared.push(common as u64);
        rest.push(&text[common..]);
        last = text;
    }
    differences(&shared, out);
    lengths_and_bytes(&rest, out);
}

fn common_begin(one: &[u8], other: &[u8]) -> usize {
    let words = one.chunks_exact(8).zip(other.chunks_exact(8));
    let equal = words.take_while(|(a, b)| a == b).count() * 8;
    equal + one[equal..].iter().zip(&other[equal..]).take_while(|(a, b)| a == b).count()
}

/// Whether neighbours begin alike to a good part.
fn share_begins(texts: &StringArray) -> bool {
    let mut last: &[u8] = &[];
    let (mut shared, mut all) = (0, 0);
    for text in texts.iter().take(SAMPLED).flatten().map(str::as_bytes) {
        shared += common_begin(last, text);
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

    use super::{
        super::table::{Group, GroupWriter},
        *,
    };
    use crate::storage::{RemoteStore, Store};

    /// What the parquet crate reads of two equal row groups.
    fn read_back(data_type: &DataType, nullable: bool, rows: usize, values: &Values<'_>) -> Vec<ArrayRef> {
        let schema = Schema::new(vec![Field::new("c", data_type.clone(), nullable)]);
        let store: Arc<dyn Store> = Arc::new(RemoteStore::memory().unwrap());
        let columns = table::describe(&schema).unwrap();
        let mut writer = GroupWriter::create(store.as_ref(), "t", &columns).unwrap();
        for _ in 0..2 {
            let chunk = encode(&columns.column(0), rows, values).unwrap();
            writer.append(Group { chunks: vec![chunk], rows: rows as u64 }).unwrap();
        }
        store.publish(vec![writer.finish().unwrap()]).unwrap();
        let batches: Vec<RecordBatch> = table::read(store.as_ref(), "t").unwrap();
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
