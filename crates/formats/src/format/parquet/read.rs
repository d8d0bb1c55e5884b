//! Reads Parquet files of any origin.
//!
//! The parquet crate panics on some damaged files, and returns fewer rows than the footer promises for others. Here
//! every call into it is guarded, so that a panic becomes an error that names the file. A file counts as read only if
//! three counts agree: the footer's, the sum over the row groups, and the number of decoded rows.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use ::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
        },
    },
    basic::Compression,
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
        page_index::offset_index::PageLocation,
        reader::{ChunkReader, Length},
    },
};
use arrow::{
    array::RecordBatch,
    datatypes::{Fields, SchemaRef},
};
use bytes::Bytes;

use super::{
    facts::{ColumnFacts, facts_of},
    input::footer_bytes,
    logical::arrow_metadata,
    open::{exact_in_floats, open_fields},
    pages::{PARQUET, check_brotli, is_brotli},
    values::{ColumnValues, values_of},
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    format::guard::guard_decoding,
};

/// Reads the footer. `name` is the file's name in errors.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if it is not a readable Parquet file, or its counts disagree.
pub fn open<R: ChunkReader + 'static>(input: R, name: &str) -> Result<ParquetFile<R>> {
    open_file(input, name, false)
}

/// Reads the footer and, if the file has one, the page index, by which [`ParquetFile::with_rows`] reads single pages.
///
/// # Errors
/// As [`open`].
pub fn open_with_pages<R: ChunkReader + 'static>(input: R, name: &str) -> Result<ParquetFile<R>> {
    open_file(input, name, true)
}

fn open_file<R: ChunkReader + 'static>(input: R, name: &str, pages: bool) -> Result<ParquetFile<R>> {
    let footer = footer_bytes(input.len(), |range| {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        guard_decoding(PARQUET, name, || input.get_bytes(range.start, length))
    })
    .map_err(|e| e.at_location(name))?;
    let metadata = decode_footer(&footer, name)?;
    let metadata = Arc::new(if pages { with_page_index(metadata, &input, name)? } else { metadata });
    let input = SharedInput(Arc::new(input));
    let types = arrow_metadata(&input.0, &metadata, name)?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(input.clone(), types.clone());
    let groups = guard_decoding(PARQUET, name, || -> Result<Vec<RowGroupSize>, ParquetError> {
        builder.metadata().row_groups().iter().map(size_of).collect()
    })?;
    let group_rows: Vec<u64> = groups.iter().map(|group| group.rows).collect();
    let rows = rows_of(builder.metadata().file_metadata().num_rows(), &group_rows, name)?;
    Ok(ParquetFile {
        name: name.to_owned(),
        input,
        types,
        builder,
        mask: ProjectionMask::all(),
        ends_only: false,
        chosen: None,
        rows,
        groups,
    })
}

/// Decodes a footer, and checks that its counts of values agree.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if it is damaged, or its counts disagree.
pub(super) fn decode_footer(footer: &Bytes, name: &str) -> Result<ParquetMetaData> {
    let metadata =
        guard_decoding(PARQUET, name, || ParquetMetaDataReader::decode_metadata(footer).map(without_zero_offsets)?)?;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let is_flat = |chunk: &&ColumnChunkMetaData| chunk.column_descr().max_rep_level() == 0;
        for chunk in group.columns().iter().filter(is_flat) {
            let (rows, values) = (group.num_rows(), chunk.num_values());
            if rows != values {
                let message = format!("row group {number}: expected {rows} values, one for each row, found {values}");
                return Err(Error::input(message).at_location(name).in_column(chunk.column_path().string()));
            }
        }
    }
    Ok(metadata)
}

/// Adds the page index to what a footer states.
fn with_page_index<R: ChunkReader>(metadata: ParquetMetaData, input: &R, name: &str) -> Result<ParquetMetaData> {
    guard_decoding(PARQUET, name, || {
        let reader = ParquetMetaDataReader::new_with_metadata(metadata);
        let mut reader = reader.with_page_index_policy(PageIndexPolicy::Optional);
        reader.read_page_indexes(input)?;
        reader.finish()
    })
}

/// Removes offsets of dictionaries that are zero: there the file has its magic bytes, and such writers start the chunk
/// with the dictionary where its data pages are said to be.
fn without_zero_offsets(metadata: ParquetMetaData) -> Result<ParquetMetaData, ParquetError> {
    let is_zero = |chunk: &ColumnChunkMetaData| chunk.dictionary_page_offset() == Some(0);
    if !metadata.row_groups().iter().any(|group| group.columns().iter().any(is_zero)) {
        return Ok(metadata);
    }
    let fixed = |chunk: &ColumnChunkMetaData| match is_zero(chunk) {
        true => chunk.clone().into_builder().set_dictionary_page_offset(None).build(),
        false => Ok(chunk.clone()),
    };
    let groups = metadata.row_groups().iter().map(|group| {
        let columns = group.columns().iter().map(fixed).collect::<Result<Vec<_>, _>>()?;
        group.clone().into_builder().set_column_metadata(columns).build()
    });
    let groups = groups.collect::<Result<Vec<_>, _>>()?;
    Ok(metadata.into_builder().set_row_groups(groups).build())
}

/// Returns the number of rows of a file, on which its footer and its row groups must agree.
pub(super) fn rows_of(file_rows: i64, groups: &[u64], name: &str) -> Result<u64> {
    let group_rows = groups.iter().map(|&rows| u128::from(rows)).sum::<u128>();
    match u64::try_from(file_rows) {
        Ok(rows) if u128::from(rows) == group_rows => Ok(rows),
        _ => {
            let message = format!("expected {file_rows} rows as in the footer, found {group_rows} in the row groups");
            Err(Error::input(message).at_location(name))
        }
    }
}

/// A Parquet file whose footer was read.
#[derive(Debug)]
pub struct ParquetFile<R: ChunkReader + 'static> {
    name: String,
    input: SharedInput<R>,
    types: ArrowReaderMetadata,
    builder: ParquetRecordBatchReaderBuilder<SharedInput<R>>,
    /// The columns that are decoded.
    mask: ProjectionMask,
    /// Whether only the first and the last row are decoded.
    ends_only: bool,
    /// The row groups that are decoded; `None` for all.
    chosen: Option<Vec<usize>>,
    rows: u64,
    groups: Vec<RowGroupSize>,
}

/// An input shared by the decoder and the check of pages.
#[derive(Debug)]
struct SharedInput<R>(Arc<R>);

impl<R> Clone for SharedInput<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: ChunkReader> Length for SharedInput<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for SharedInput<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.0.get_bytes(start, length)
    }
}

/// A row group's sizes, from the footer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowGroupSize {
    /// Number of rows.
    pub rows: u64,
    /// Bytes in the file.
    pub encoded_bytes: u64,
    /// Bytes of the encoded pages before compression.
    pub uncompressed_bytes: u64,
}

impl<R: ChunkReader + 'static> ParquetFile<R> {
    /// Returns what the footer states of each column: structs are flattened, and lists count as one column.
    ///
    /// # Errors
    /// When the footer is damaged.
    pub fn column_facts(&self) -> Result<Vec<ColumnFacts>> {
        let metadata = self.builder.metadata();
        guard_decoding(PARQUET, &self.name, || Ok::<_, ParquetError>(facts_of(metadata, self.builder.schema())))
    }

    /// Returns the same file with all its columns and rows, without reading the footer again.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let rows = self.groups.iter().map(|group| group.rows).sum();
        Self {
            name: self.name.clone(),
            input: self.input.clone(),
            types: self.types.clone(),
            builder: ParquetRecordBatchReaderBuilder::new_with_metadata(self.input.clone(), self.types.clone()),
            mask: ProjectionMask::all(),
            ends_only: false,
            chosen: None,
            rows,
            groups: self.groups.clone(),
        }
    }

    /// Returns the schema, including the Arrow types that the writer recorded.
    pub fn schema(&self) -> &SchemaRef {
        self.builder.schema()
    }

    /// Returns the fields, in which texts without any value have the type null.
    pub fn open_fields(&self) -> Fields {
        open_fields(self.schema().fields(), self.builder.metadata())
    }

    /// Whether all values of a column of integers, by its bounds, are ones that float64 holds.
    pub fn is_exact_in_floats(&self, column: &str) -> bool {
        exact_in_floats(self.builder.metadata(), column)
    }

    /// Returns the compression of the first column; most writers use one codec for all columns.
    pub fn codec(&self) -> Codec {
        let first = self.builder.metadata().row_groups().first().and_then(|group| group.columns().first());
        let named = |name: &str| name.parse().unwrap_or_default();
        match first.map(|column| column.compression()) {
            Some(Compression::SNAPPY) => Codec::Snappy,
            Some(Compression::LZ4 | Compression::LZ4_RAW) => Codec::Lz4,
            Some(Compression::ZSTD(_)) => named("zstd"),
            Some(Compression::GZIP(_)) => named("gzip"),
            // Our writers do not use brotli; if such files are merged, their pages are compressed with zstd.
            Some(Compression::BROTLI(_)) => named("zstd"),
            _ => Codec::None,
        }
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> u64 {
        self.rows
    }

    /// Returns the row groups in order.
    pub fn row_groups(&self) -> &[RowGroupSize] {
        &self.groups
    }

    /// Returns what the footer says about the values of columns that are not nested.
    pub fn column_values(&self) -> Vec<ColumnValues> {
        values_of(self.builder.metadata())
    }

    /// Returns the key-value metadata of the footer, in its order; a missing value becomes an empty one.
    pub fn key_value_metadata(&self) -> Vec<(String, String)> {
        let entries = self.builder.metadata().file_metadata().key_value_metadata();
        entries.into_iter().flatten().map(|e| (e.key.clone(), e.value.clone().unwrap_or_default())).collect()
    }

    /// Selects the columns of the given names for decoding; they stay in the order of the file.
    #[must_use]
    pub fn with_columns(mut self, names: &[&str]) -> Self {
        let fields = self.builder.schema().fields();
        let roots = (0..fields.len()).filter(|i| names.contains(&fields[*i].name().as_str()));
        let mask = ProjectionMask::roots(self.builder.parquet_schema(), roots.collect::<Vec<_>>());
        self.mask = mask.clone();
        self.builder = self.builder.with_projection(mask);
        self
    }

    /// Decodes only the first and the last row.
    #[must_use]
    pub fn with_ends(mut self) -> Self {
        if let Ok(between @ 1..) = usize::try_from(self.rows.saturating_sub(2)) {
            let rows = [RowSelector::select(1), RowSelector::skip(between), RowSelector::select(1)];
            self.builder = self.builder.with_row_selection(RowSelection::from(rows.to_vec()));
            self.rows = 2;
            self.ends_only = true;
        }
        self
    }

    /// Decodes only the rows in these ranges, which are in order and do not overlap. Row groups without such rows are
    /// not read.
    #[must_use]
    pub fn with_rows(mut self, ranges: &[Range<u64>]) -> Self {
        let (mut chosen, mut selectors, mut first, mut rows) = (Vec::new(), Vec::new(), 0, 0);
        for (number, group) in self.groups.iter().enumerate() {
            let end = first + group.rows;
            let of_group = ranges.iter().map(|range| range.start.max(first)..range.end.min(end));
            let of_group: Vec<Range<u64>> = of_group.filter(|range| range.start < range.end).collect();
            if !of_group.is_empty() {
                let length = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
                let mut at = first;
                for range in &of_group {
                    selectors.push(RowSelector::skip(length(range.start.saturating_sub(at))));
                    selectors.push(RowSelector::select(length(range.end - range.start)));
                    rows += range.end - range.start;
                    at = range.end;
                }
                selectors.push(RowSelector::skip(length(end - at)));
                chosen.push(number);
            }
            first = end;
        }
        self.builder = self.builder.with_row_groups(chosen.clone()).with_row_selection(RowSelection::from(selectors));
        self.rows = rows;
        self.chosen = Some(chosen);
        self
    }

    /// Returns the first row of each page, and the number of rows at the end: of the column that has the most bytes
    /// among those that are decoded. None if pages are not indexed.
    pub fn page_starts(&self) -> Vec<u64> {
        let metadata = self.builder.metadata();
        let (mut out, mut first) = (Vec::new(), 0);
        for (number, (group, size)) in metadata.row_groups().iter().zip(&self.groups).enumerate() {
            let pages = metadata.page_index_for_row_group(number);
            let decoded = group.columns().iter().enumerate().filter(|(leaf, _)| self.mask.leaf_included(*leaf));
            let largest = decoded.max_by_key(|(_, chunk)| chunk.uncompressed_size());
            let Some(pages) = largest.and_then(|(leaf, _)| pages.page_locations(leaf)) else { return Vec::new() };
            let rows = pages.iter().filter_map(|page| u64::try_from(page.first_row_index).ok());
            out.extend(rows.filter(|row| *row < size.rows).map(|row| first + row));
            first += size.rows;
        }
        out.push(first);
        // What a file states of itself may be wrong.
        if out.first() == Some(&0) && out.is_sorted() { out } else { Vec::new() }
    }

    /// Returns the bytes that have to be read to decode some rows: their pages, and dictionaries. None if pages are not
    /// indexed.
    pub fn bytes_of_rows(&self, rows: &Range<u64>) -> Vec<Range<u64>> {
        let metadata = self.builder.metadata();
        let (mut out, mut first) = (Vec::new(), 0);
        for (number, (group, size)) in metadata.row_groups().iter().zip(&self.groups).enumerate() {
            let wanted = rows.start.saturating_sub(first)..rows.end.saturating_sub(first).min(size.rows);
            first += size.rows;
            if wanted.is_empty() {
                continue;
            }
            let index = metadata.page_index_for_row_group(number);
            let decoded = group.columns().iter().enumerate().filter(|(leaf, _)| self.mask.leaf_included(*leaf));
            for (leaf, chunk) in decoded {
                let pages = index.page_locations(leaf).map_or(&[][..], Vec::as_slice);
                out.extend(bytes_of_pages(chunk, pages, &wanted));
            }
        }
        out
    }

    /// Decodes the file, `batch_rows` rows at a time. Ends after the first error.
    pub fn into_batches(self, batch_rows: usize) -> Batches {
        let unchecked = self.unchecked_groups();
        let Self { name, input, builder, mask, rows, .. } = self;
        let metadata = Arc::clone(builder.metadata());
        let check = move |group| check_brotli(&input, metadata.row_group(group), |leaf| mask.leaf_included(leaf));
        let batch_rows = batch_rows.max(1);
        let (reader, failure) = match guard_decoding(PARQUET, &name, || builder.with_batch_size(batch_rows).build()) {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        let batch_rows = batch_rows as u64;
        Batches { name, reader, failure, expected: rows, seen: 0, batch_rows, unchecked, check: Box::new(check) }
    }

    /// Returns the row groups whose pages have to be checked before they are decoded, with the first row of each.
    fn unchecked_groups(&self) -> VecDeque<(u64, usize)> {
        let metadata = self.builder.metadata();
        let mut first = 0;
        let mut out = VecDeque::new();
        for (number, (group, size)) in metadata.row_groups().iter().zip(&self.groups).enumerate() {
            let is_read = self.chosen.as_ref().is_none_or(|chosen| chosen.contains(&number));
            if is_read && group.columns().iter().any(is_brotli) {
                // Skipped rows may be decoded, too.
                let is_partial = self.ends_only || self.chosen.is_some();
                out.push_back((if is_partial { 0 } else { first }, number));
            }
            first += size.rows;
        }
        out
    }
}

/// Returns the bytes of the pages of a column chunk that have some of its rows, and of its dictionary.
fn bytes_of_pages(chunk: &ColumnChunkMetaData, pages: &[PageLocation], rows: &Range<u64>) -> Vec<Range<u64>> {
    let number = |number: i64| u64::try_from(number).unwrap_or_default();
    let mut out = Vec::new();
    let dictionary = chunk.dictionary_page_offset().map(number).zip(pages.first().map(|page| number(page.offset)));
    out.extend(dictionary.map(|(start, end)| start..end).filter(|range| !range.is_empty()));
    for (at, page) in pages.iter().enumerate() {
        let end = pages.get(at + 1).map_or(u64::MAX, |next| number(next.first_row_index));
        if number(page.first_row_index) < rows.end && rows.start < end {
            let start = number(page.offset);
            out.push(start..start.saturating_add(u64::try_from(page.compressed_page_size).unwrap_or_default()));
        }
    }
    out
}

/// The rows of a file, in batches.
pub struct Batches {
    name: String,
    /// The decoder; `None` once the file is read or an error occurred.
    reader: Option<ParquetRecordBatchReader>,
    failure: Option<Error>,
    expected: u64,
    seen: u64,
    /// Number of rows that are decoded at once.
    batch_rows: u64,
    unchecked: VecDeque<(u64, usize)>,
    check: Box<PageCheck>,
}

/// Checks the pages of a row group.
type PageCheck = dyn Fn(usize) -> Result<(), ParquetError> + Send;

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failure.take() {
            return Some(Err(error));
        }
        if let Err(error) = self.check_pages() {
            self.reader = None;
            return Some(Err(error));
        }
        let reader = self.reader.as_mut()?;
        match guard_decoding(PARQUET, &self.name, || reader.next().transpose()) {
            Ok(Some(batch)) => {
                self.seen += batch.num_rows() as u64;
                if self.seen > self.expected { Some(Err(self.row_count_error())) } else { Some(Ok(batch)) }
            }
            Ok(None) if self.seen == self.expected => {
                self.reader = None;
                None
            }
            Ok(None) => Some(Err(self.row_count_error())),
            Err(error) => {
                self.reader = None;
                Some(Err(error))
            }
        }
    }
}

impl Batches {
    /// Checks the row groups that contain the next rows.
    fn check_pages(&mut self) -> Result<()> {
        while let Some((_, group)) = self.unchecked.front().filter(|(first, _)| *first < self.seen + self.batch_rows) {
            guard_decoding(PARQUET, &self.name, || (self.check)(*group))?;
            self.unchecked.pop_front();
        }
        Ok(())
    }

    fn row_count_error(&mut self) -> Error {
        self.reader = None;
        let message = format!("expected {} rows as in the footer, found {} in the pages", self.expected, self.seen);
        Error::input(message).at_location(self.name.as_str())
    }
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").field("name", &self.name).field("seen", &self.seen).finish_non_exhaustive()
    }
}

pub(super) fn size_of(group: &::parquet::file::metadata::RowGroupMetaData) -> Result<RowGroupSize, ParquetError> {
    let size = |value: i64| u64::try_from(value).map_err(ParquetError::from);
    let encoded = group.columns().iter().try_fold(0_u64, |sum, column| {
        let bytes = size(column.compressed_size())?;
        Ok::<_, ParquetError>(sum.saturating_add(bytes))
    })?;
    let uncompressed = group.columns().iter().try_fold(0_u64, |sum, column| {
        let bytes = size(column.uncompressed_size())?;
        Ok::<_, ParquetError>(sum.saturating_add(bytes))
    })?;
    Ok(RowGroupSize { rows: size(group.num_rows())?, encoded_bytes: encoded, uncompressed_bytes: uncompressed })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::{fs::File, sync::Arc};

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;
    use crate::{
        codec::Codec,
        error::Kind,
        format::parquet::{ParquetEncoder, corpus::oracle},
    };

    fn count<R: ChunkReader + 'static>(input: R) -> Result<u64> {
        open(input, "test")?.into_batches(1024).try_fold(0, |sum, batch| Ok(sum + batch?.num_rows() as u64))
    }

    fn small_file() -> Vec<u8> {
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(0..100))),
            ("text", Arc::new(StringArray::from_iter_values((0..100).map(|i| format!("text {}", i % 9))))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let encoder = ParquetEncoder::new(&batch.schema(), Codec::Snappy, &[]).unwrap();
        let mut shard = encoder.start_shard(Vec::new()).unwrap();
        shard.append(encoder.encode(&[batch.slice(0, 60)]).unwrap()).unwrap();
        shard.append(encoder.encode(&[batch.slice(60, 40)]).unwrap()).unwrap();
        shard.finish().unwrap()
    }

    #[test]
    fn truncated_files_are_bad_input() {
        let whole = small_file();
        assert_eq!(count(Bytes::from(whole.clone())).unwrap(), 100);
        for length in (0..whole.len()).step_by(13) {
            let error = count(Bytes::from(whole[..length].to_vec())).unwrap_err();
            assert_eq!(error.kind(), Kind::Input, "{length} bytes: {error}");
            assert_eq!(error.place().source.as_deref(), Some("test"));
        }
    }

    #[test]
    fn ranges_of_rows_are_read_from_their_row_groups() {
        let ids = |ranges: &[(u64, u64)]| -> Vec<i64> {
            let ranges: Vec<Range<u64>> = ranges.iter().map(|(from, to)| *from..*to).collect();
            let file = open(Bytes::from(small_file()), "test").unwrap().with_rows(&ranges);
            let batches: Vec<RecordBatch> = file.into_batches(7).map(Result::unwrap).collect();
            let paged = open_with_pages(Bytes::from(small_file()), "test").unwrap();
            let again = paged.reopen().with_rows(&ranges).into_batches(7).map(Result::unwrap);
            assert_eq!(again.collect::<Vec<_>>(), batches);
            let values = batches.iter().flat_map(|batch| {
                let ids: &Int64Array = arrow::array::AsArray::as_primitive(batch.column(0));
                ids.values().to_vec()
            });
            values.collect()
        };
        assert_eq!(ids(&[(58, 62), (98, 100)]), [58, 59, 60, 61, 98, 99]);
        assert_eq!(ids(&[(60, 61)]), [60]);
        assert_eq!(ids(&[(0, 100)]), (0..100).collect::<Vec<_>>());
        assert!(ids(&[]).is_empty());
    }

    /// Metadata beside pages has no checksum, so it may be wrong; the number of rows must not be, and nothing may
    /// panic.
    #[test]
    fn flipped_bits_never_change_the_count_unnoticed() {
        let whole = small_file();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            match count(Bytes::from(damaged)) {
                Ok(rows) => assert_eq!(rows, 100, "byte {at}"),
                Err(error) => assert!(matches!(error.kind(), Kind::Input | Kind::Integrity), "byte {at}: {error}"),
            }
        }
    }

    /// Every Parquet file of the corpus yields the oracle's count or a clean error, and a file that the oracle reads is
    /// rejected only if it is listed.
    #[test]
    fn corpus_agrees_with_the_oracle() {
        let mut surprises = Vec::new();
        for (path, expected) in oracle() {
            let file = path.display();
            let found = count(File::open(&path).unwrap());
            if found.as_ref().ok().copied() != expected {
                surprises.push(format!("{file}: oracle {expected:?}, found {found:?}"));
            }
            if let Err(error) = found {
                assert!(matches!(error.kind(), Kind::Input | Kind::Integrity), "{file}: {error}");
            }
        }
        assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    }
}
