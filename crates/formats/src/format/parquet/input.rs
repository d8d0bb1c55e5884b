//! Parquet files as inputs: files from any writer are cut by rows, and each piece is decoded separately.
//!
//! ```text
//! row group 0        row group 1                                      row group 2, 3, 4
//! |-- range --|      |-- range --|-- range --|-- range --|            |-- range --------|
//! ```
//!
//! A range has as many rows as decode to about the size of a range: a part of a large row group or several small ones.
//! A worker opens the file at its row groups, skips the pages before its rows and decodes its rows alone, a few columns
//! at a time if pages are large, so that no row group is ever held in memory as a whole.
//!
//! Texts are decoded to views, which share the dictionary of their page; they are copied only after the size of the
//! rows was checked. So a dictionary with one long text that a million rows refer to is rejected before it takes
//! memory.
//!
//! Types are those of the file, in their plain form ([`schema::plain_fields`]). INT96 is a timestamp in
//! nanoseconds, or in microseconds if the values of a column need the range ([`super::int96`]).

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use ::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    },
    basic::Compression,
    errors::ParquetError,
    file::metadata::{ParquetMetaData, RowGroupMetaData},
};
use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    compute::concat,
    datatypes::{DataType, Field, Fields, Schema, SchemaRef},
};
use bytes::Bytes;

use super::{
    as_bytes,
    bounds::column_bounds,
    logical::{arrow_metadata, stored_metadata, with_item_marks},
    pages::{PARQUET, check_chunk, decoded_bytes},
    read::{decode_footer, rows_of},
    thrift::{ThriftFault, check_footer},
};
use crate::{
    error::{Error, Result},
    format::{
        Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, guard::guard_decoding, ranged::RangedInput,
        rows::parsed_rows,
    },
    record::{
        Content, PartExtent, PartSizes, SourcePart, SourceRange,
        filter::{GroupBounds, RowBounds},
        size::logical_bytes,
        source_part::PartCuts,
        widen::cast_to,
    },
    schema,
};

/// Maximum bytes of pages and ranges until `ranges` sets the run's limit.
const DEFAULT_LIMIT: u64 = 256 << 20;

/// Returns an error for the codec that has no decoder here.
fn refuse_codecs(metadata: &ParquetMetaData) -> Result<()> {
    let mut chunks = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    if chunks.all(|chunk| chunk.compression() != Compression::LZO) {
        return Ok(());
    }
    Err(Error::input("expected pages of a supported codec, found pages compressed with lzo")
        .with_hint("write the file again with another codec, such as zstd, or leave it out with --exclude"))
}

/// The decoder's message about text that is not UTF-8.
const NOT_UTF8: &str = "non UTF-8 data";

/// Bytes of the metadata's length and the magic bytes at the end of a file.
const TAIL_BYTES: u64 = 8;

/// Returns whether a file that begins with `head` is Parquet.
pub fn sniff(head: &[u8]) -> bool {
    head.starts_with(b"PAR1")
}

/// Returns whether a file that begins with `head` is Parquet with an encrypted footer.
pub fn is_encrypted(head: &[u8]) -> bool {
    head.starts_with(b"PARE")
}

/// Returns the error for an encrypted file.
pub fn encrypted_error() -> Error {
    Error::input("expected a Parquet file, found an encrypted one")
        .with_hint("decrypt it with the program that has its keys; --from files takes it is, --exclude leaves it out")
}

/// Reads one Parquet file.
#[derive(Debug)]
pub struct ParquetReader {
    name: String,
    input: RangedInput,
    /// Metadata with the types to decode to.
    metadata: ArrowReaderMetadata,
    /// The columns as the file states them, with field ids.
    stated: Fields,
    /// Schema of the decoded columns.
    schema: SchemaRef,
    /// What readers tell, such as the names of all columns of the file.
    facts: ReaderFacts,
    /// Indices of the columns that are read, ascending.
    taken: Vec<usize>,
    /// Position of each column in the file's schema, which also has groups without fields.
    roots: Vec<usize>,
    groups: Vec<ReaderGroup>,
    /// Maximum bytes of a page, a row or the rows of a range; set by `ranges`.
    limit: AtomicU64,
}

#[derive(Debug)]
struct ReaderGroup {
    first_row: u64,
    rows: u64,
    /// Bytes in the file.
    encoded: u64,
    /// Estimate of the bytes of a decoded row.
    row_bytes: u64,
    /// For each column that is read, the bytes of its pages while they are decoded; set once the page headers were
    /// read.
    pages: OnceLock<Vec<u64>>,
}

impl ParquetReader {
    /// Reads the footer. `name` is the file's name in errors.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is not a readable Parquet file, or its counts disagree.
    pub fn open(input: RangedInput, name: &str) -> Result<Self> {
        Self::open_with_bytes(input, name, &[])
    }

    /// Like [`open`](Self::open), with the text columns named in `binary` read as bytes.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with_bytes(input: RangedInput, name: &str, binary: &[String]) -> Result<Self> {
        let metadata = metadata_of(&input, name)?;
        let given = arrow_metadata(&Arc::new(input.clone()), &metadata, name)?;
        Self::new(input, name, &metadata, &given, binary)
    }

    /// Like [`open`](Self::open), with the types of the Parquet schema alone, whatever Arrow types the writer recorded,
    /// and with INT96 timestamps in microseconds, as in a Delta table.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_as_stored(input: RangedInput, name: &str) -> Result<Self> {
        let metadata = metadata_of(&input, name)?;
        let given = stored_metadata(&Arc::new(input.clone()), &metadata, name)?;
        Self::new(input, name, &metadata, &given, &[])
    }

    fn new(
        input: RangedInput,
        name: &str,
        metadata: &Arc<ParquetMetaData>,
        given: &ArrowReaderMetadata,
        binary: &[String],
    ) -> Result<Self> {
        let rows = guard_decoding(PARQUET, name, || {
            let groups = metadata.row_groups().iter();
            groups
                .map(|group| u64::try_from(group.num_rows()).map_err(ParquetError::from))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let total = rows_of(metadata.file_metadata().num_rows(), &rows, name)?;
        let own = as_bytes::as_binary(given.schema().fields(), binary);
        let decoded = if own == *given.schema().fields() {
            with_views(given, name)?
        } else {
            let views = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(schema::view_fields(&own))));
            guard_decoding(PARQUET, name, || {
                let plain = Arc::new(as_bytes::without_text(given.metadata(), binary)?);
                ArrowReaderMetadata::try_new(plain, views)
            })?
        };
        let fields = schema::plain_fields(&with_item_marks(&own, metadata)).map_err(|e| e.at_location(name))?;
        if fields.is_empty() && total > 0 {
            return Err(Error::input(format!("expected columns, found {total} rows without any")).at_location(name));
        }
        let columns = schema::distinct_names(fields.iter().map(|field| field.name().clone()).collect());
        let named = fields.iter().zip(&columns).map(|(field, name)| field.as_ref().clone().with_name(name));
        let schema = Arc::new(Schema::new(named.collect::<Fields>()));
        let mut first_row = 0;
        let mut groups = Vec::with_capacity(rows.len());
        for (group, rows) in metadata.row_groups().iter().zip(rows) {
            groups.push(ReaderGroup::new(group, first_row, rows, |_| true));
            first_row += rows;
        }
        let leaves = metadata.file_metadata().schema_descr();
        let mut roots: Vec<usize> = (0..leaves.num_columns()).map(|leaf| leaves.get_column_root_idx(leaf)).collect();
        roots.dedup();
        if roots.len() != columns.len() {
            let message = format!("expected {} columns as in the Parquet schema, found {}", roots.len(), columns.len());
            return Err(Error::input(message).at_location(name));
        }
        let (limit, stated) = (AtomicU64::new(DEFAULT_LIMIT), given.schema().fields().clone());
        let taken = (0..columns.len()).collect();
        Ok(Self {
            name: name.to_owned(),
            input,
            metadata: decoded,
            stated,
            schema,
            facts: ReaderFacts {
                reads_own_source: true,
                selects_columns: true,
                columns: Some(columns),
                ..ReaderFacts::default()
            },
            taken,
            roots,
            groups,
            limit,
        })
    }

    /// Returns the names of all columns of the file.
    fn column_names(&self) -> &[String] {
        self.facts.columns.as_deref().unwrap_or_default()
    }

    /// Returns the name of a column by its place among those of the file.
    pub fn column_name(&self, at: usize) -> Option<&str> {
        self.column_names().get(at).map(String::as_str)
    }

    /// Reads only the columns of these names; the bytes of others are not read.
    #[must_use]
    pub fn with_projection(mut self, names: &[String]) -> Self {
        self.taken = (0..self.column_names().len()).filter(|at| names.contains(&self.column_names()[*at])).collect();
        self.facts.skips_bytes = self.taken.len() < self.column_names().len();
        let fields = self.taken.iter().map(|at| Arc::clone(&self.schema.fields()[*at]));
        self.schema = Arc::new(Schema::new(fields.collect::<Fields>()));
        let leaves = self.metadata.parquet_schema();
        let is_taken = |leaf: usize| self.place_of(leaves.get_column_root_idx(leaf)).is_some();
        let groups = self.metadata.metadata().row_groups().iter().zip(&self.groups);
        self.groups = groups.map(|(group, at)| ReaderGroup::new(group, at.first_row, at.rows, is_taken)).collect();
        self
    }

    /// Returns the place of the column with this position in the file's schema among those that are read.
    fn place_of(&self, root: usize) -> Option<usize> {
        self.taken.binary_search_by_key(&root, |at| self.roots[*at]).ok()
    }

    /// Returns the file's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the columns as the file states them, with the field ids of Parquet as metadata.
    pub fn stated_fields(&self) -> &Fields {
        &self.stated
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.first_row + group.rows)
    }

    /// Decodes the rows of a range in the plain types of the file; also returns the bytes of input that they account
    /// for.
    ///
    /// # Errors
    /// If the file is damaged, or the rows take more memory than a range may.
    pub fn read_rows(&self, range: &SourceRange) -> Result<(RecordBatch, u64)> {
        let Content::Rows { rows, bytes } = range.content else {
            return Err(Error::internal("expected rows of a Parquet file, found bytes").at_location(&*self.name));
        };
        let named = self.decode_rows(range.offset, rows)?;
        Ok((cast_to(&named, &self.schema).map_err(|e| e.at_location(&*self.name))?, bytes))
    }

    /// Cuts the rows of the file into ranges.
    pub fn ranges_of_rows(&self, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'static> {
        self.ranges_of_groups(0..self.groups.len(), range_bytes, max_record_bytes)
    }

    fn record_limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Decodes `count` rows from `first` on, in the types of the file.
    fn decode_rows(&self, first: u64, count: u64) -> Result<RecordBatch> {
        let from = self.groups.partition_point(|group| group.first_row + group.rows <= first);
        let to = self.groups.partition_point(|group| group.first_row < first + count);
        let groups = self.groups.get(from..to).filter(|groups| !groups.is_empty());
        let groups =
            groups.ok_or_else(|| Error::internal("a range is not within its file").at_location(&*self.name))?;
        let mut held = vec![0; self.taken.len()];
        for (group, number) in groups.iter().zip(from..) {
            for (held, &bytes) in held.iter_mut().zip(self.decoded_page_bytes(number, group)?) {
                *held = bytes.max(*held);
            }
        }
        let skipped = first - groups[0].first_row;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.taken.len());
        let mut bytes = 0;
        while columns.len() < self.taken.len() {
            let next = columns.len()..columns.len() + columns_within(&held[columns.len()..], self.record_limit());
            let part = self.decode_columns(from..to, next.clone(), skipped, count).map_err(|error| {
                self.naming_text(error, next, |column| self.decode_columns(from..to, column, skipped, count))
            })?;
            bytes += logical_bytes(&part);
            if bytes > self.record_limit() {
                return Err(self.too_large(from, count, bytes));
            }
            columns.extend_from_slice(part.columns());
        }
        let rows = RecordBatchOptions::new().with_row_count(usize::try_from(count).ok());
        let fields = self.decoded_fields(0..self.taken.len());
        let fields = fields.zip(&self.taken).map(|(field, at)| field.with_name(&self.column_names()[*at]));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields.collect::<Fields>())), columns, &rows)?)
    }

    /// Returns the fields of some of the columns that are read, as they are decoded.
    fn decoded_fields(&self, columns: Range<usize>) -> impl Iterator<Item = Field> {
        self.taken[columns].iter().map(|at| self.metadata.schema().field(*at).clone())
    }

    fn decode_columns(
        &self,
        groups: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
        skipped: u64,
        count: u64,
    ) -> Result<RecordBatch> {
        let parts = guard_decoding(PARQUET, &self.name, || {
            let (skipped, count) = (usize::try_from(skipped)?, usize::try_from(count)?);
            let roots = self.taken[columns.clone()].iter().map(|at| self.roots[*at]);
            let mask = ProjectionMask::roots(self.metadata.parquet_schema(), roots);
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.input.clone(), self.metadata.clone())
                .with_row_groups(groups.collect())
                .with_projection(mask)
                .with_batch_size(count)
                .with_offset(skipped)
                .with_limit(count)
                .build()
        })
        .and_then(|reader| guard_decoding(PARQUET, &self.name, || reader.collect::<Result<Vec<_>, _>>()))?;
        let found: u64 = parts.iter().map(|part| part.num_rows() as u64).sum();
        if found != count || parts.iter().any(|part| part.num_columns() != columns.len()) {
            let message = format!("expected {count} rows as in the footer, found {found} in the pages");
            return Err(Error::input(message).at_location(&*self.name));
        }
        let schema = Schema::new(self.decoded_fields(columns.clone()).collect::<Fields>());
        let columns = (0..columns.len()).map(|i| {
            let arrays: Vec<_> = parts.iter().map(|part| part.column(i).as_ref()).collect();
            match parts.as_slice() {
                [one] => Ok(Arc::clone(one.column(i))),
                _ => concat(&arrays),
            }
        });
        let columns = guard_decoding(PARQUET, &self.name, || columns.collect::<Result<Vec<_>, _>>())?;
        Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
    }

    /// If the error is about text that is not UTF-8, names the column: the first that cannot be decoded alone.
    fn naming_text(
        &self,
        error: Error,
        columns: Range<usize>,
        decode: impl Fn(Range<usize>) -> Result<RecordBatch>,
    ) -> Error {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        if !cause.is_some_and(|cause| cause.contains(NOT_UTF8)) {
            return error;
        }
        let fields = self.schema.fields();
        let is_bad = |at: &usize| as_bytes::is_text(fields[*at].data_type()) && decode(*at..*at + 1).is_err();
        match columns.clone().find(is_bad) {
            Some(at) => {
                let name = &self.column_names()[self.taken[at]];
                Error::input("expected text in UTF-8, found other bytes")
                    .at_location(&*self.name)
                    .in_column(name.clone())
                    .with_hint(format!("take the bytes as they are: --type '{name}=binary'"))
            }
            None => error,
        }
    }

    /// Reads the page headers of a row group, once; see [`ReaderGroup::pages`].
    fn decoded_page_bytes<'a>(&self, number: usize, group: &'a ReaderGroup) -> Result<&'a [u64]> {
        if let Some(pages) = group.pages.get() {
            return Ok(pages);
        }
        let metadata = self.metadata.metadata().row_group(number);
        let found = guard_decoding(PARQUET, &self.name, || -> Result<Vec<u64>, ParquetError> {
            let mut held = vec![0; self.taken.len()];
            for (leaf, chunk) in metadata.columns().iter().enumerate() {
                let root = self.metadata.parquet_schema().get_column_root_idx(leaf);
                if let Some(place) = self.place_of(root) {
                    held[place] += check_chunk(&self.input, chunk, self.record_limit())?;
                }
            }
            Ok(held)
        })?;
        Ok(group.pages.get_or_init(|| found))
    }

    fn too_large(&self, group: usize, rows: u64, bytes: u64) -> Error {
        Error::input(format!(
            "row group {group}: expected rows of at most {} bytes, found {rows} that take {bytes}",
            self.record_limit()
        ))
        .at_location(&*self.name)
        .with_hint("raise --memory; a record may take an eighth of it")
    }

    /// Returns the share of the file's bytes that corresponds to the rows of a row group before `row`; the shares of
    /// all rows add up to the file.
    fn share_before(&self, group: usize, row: u64) -> u64 {
        let encoded = |groups: &[ReaderGroup]| groups.iter().map(|group| u128::from(group.encoded)).sum::<u128>();
        let at = &self.groups[group];
        let total = encoded(&self.groups);
        let before =
            encoded(&self.groups[..group]) + u128::from(at.encoded) * u128::from(row) / u128::from(at.rows.max(1));
        let is_last = at.first_row + row >= self.row_count();
        match u128::from(self.input.byte_count()) * before / total.max(1) {
            _ if is_last => self.input.byte_count(),
            share => u64::try_from(share).unwrap_or(u64::MAX),
        }
    }

    fn ranges_of_groups(
        &self,
        groups: Range<usize>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'static> {
        self.limit.store(max_record_bytes as u64, Ordering::Relaxed);
        let ranges = if groups.end > self.groups.len() {
            let message = format!("expected {} row groups as when the parts were planned", groups.end);
            Err(Error::input(format!("{message}, found {}", self.groups.len()))
                .at_location(&*self.name)
                .with_hint("the file was changed since then; plan again"))
        } else {
            self.cut_ranges(groups, range_bytes.max(1) as u64, max_record_bytes as u64)
        };
        match ranges {
            Ok(ranges) => Box::new(ranges.into_iter().map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    /// Cuts the rows of some row groups into pieces of about `range_bytes`: first row, number of rows, and end of the
    /// piece.
    fn cut_ranges(&self, groups: Range<usize>, range_bytes: u64, max_record_bytes: u64) -> Result<Vec<SourceRange>> {
        let mut ranges = Vec::new();
        let Some(within) = self.groups.get(groups.clone()).filter(|within| !within.is_empty()) else {
            return Ok(ranges);
        };
        let last_row = within.last().map_or(0, |group| group.first_row + group.rows);
        let done = if groups.start == 0 { 0 } else { self.share_before(groups.start, 0) };
        let (mut first, mut rows, mut budget, mut done) = (within[0].first_row, 0_u64, range_bytes, done);
        for (number, group) in groups.zip(within) {
            if group.row_bytes > max_record_bytes && group.rows > 0 {
                return Err(self.too_large(number, 1, group.row_bytes));
            }
            let mut taken = 0;
            while taken < group.rows {
                let fitting = (budget / group.row_bytes).min(MAX_ROWS - rows).min(group.rows - taken);
                let step = if rows == 0 { fitting.max(1) } else { fitting };
                (rows, taken) = (rows + step, taken + step);
                budget = budget.saturating_sub(step.saturating_mul(group.row_bytes));
                let is_last = group.first_row + taken == last_row;
                if is_last || taken < group.rows {
                    let end = self.share_before(number, taken);
                    ranges.push(SourceRange::new(first, Content::Rows { rows, bytes: end - done }));
                    (first, rows, budget, done) = (first + rows, 0, range_bytes, end);
                }
            }
        }
        Ok(ranges)
    }
}

/// Maximum rows of a range, so that ranges end even if columns have almost no bytes.
const MAX_ROWS: u64 = 1 << 20;

impl RecordReader for ParquetReader {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, _: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        self.ranges_of_rows(range_bytes, max_record_bytes)
    }

    /// Parts end between row groups.
    fn parts(&self, _: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        // The whole file is refused if a row is too large.
        if self.groups.iter().any(|group| group.rows > 0 && group.row_bytes > sizes.max_record_bytes as u64) {
            return Ok(Vec::new());
        }
        let total: u128 = self.groups.iter().map(|group| u128::from(group.encoded)).sum();
        let mut cuts = PartCuts::new(sizes, 0);
        let mut encoded = 0;
        for group in &self.groups {
            encoded += u128::from(group.encoded);
            let end = u128::from(self.input.byte_count()) * encoded / total.max(1);
            cuts.add_piece(u64::try_from(end).unwrap_or(u64::MAX), group.rows, 0);
        }
        Ok(cuts.of_units())
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        _: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let PartExtent::Units { first, count, .. } = part.extent else {
            let error = Error::internal("expected row groups as a part of a Parquet file, found something else");
            return Box::new(std::iter::once(Err(error.at_location(&*self.name))));
        };
        let number = |group: u64| usize::try_from(group).unwrap_or(usize::MAX);
        self.ranges_of_groups(number(first)..number(first.saturating_add(count)), range_bytes, max_record_bytes)
    }

    fn bounds<'a>(&'a self, range: &SourceRange) -> Option<RowBounds<'a>> {
        let end = range.offset + range.row_count()?;
        let within =
            |group: &(usize, &ReaderGroup)| group.1.first_row < end && range.offset < group.1.first_row + group.1.rows;
        let bounds = |(number, group): (usize, &ReaderGroup)| GroupBounds {
            rows: group.rows,
            of_column: Box::new(move |column: &str, data_type: &DataType| {
                let field = self.schema.field_with_name(column).ok().filter(|field| field.data_type() == data_type)?;
                column_bounds(&self.metadata, number, field)
            }),
        };
        Some(RowBounds { groups: self.groups.iter().enumerate().filter(within).map(bounds).collect(), deleted: 0 })
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        self.schema.fields().clone()
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let (plain, bytes) = self.read_rows(range)?;
        parsed_rows(&plain, range, schema, bytes).map_err(|e| e.at_location(&*self.name))
    }
}

impl ReaderGroup {
    /// Describes a row group, of which the leaves that `is_taken` names are read.
    fn new(group: &RowGroupMetaData, first_row: u64, rows: u64, is_taken: impl Fn(usize) -> bool) -> Self {
        let chunks = || group.columns().iter().enumerate().filter(|(leaf, _)| is_taken(*leaf)).map(|(_, chunk)| chunk);
        let encoded = chunks().map(|chunk| u64::try_from(chunk.compressed_size()).unwrap_or(0));
        let decoded = chunks().map(decoded_bytes).fold(0, u64::saturating_add);
        Self {
            first_row,
            rows,
            encoded: encoded.fold(0, u64::saturating_add),
            row_bytes: (decoded / rows.max(1)).max(1),
            pages: OnceLock::new(),
        }
    }
}

/// Returns how many of the columns can be decoded together within `limit`; at least one.
fn columns_within(held: &[u64], limit: u64) -> usize {
    let mut sum = 0_u64;
    held.iter()
        .take_while(|&&bytes| {
            sum = sum.saturating_add(bytes);
            sum <= limit
        })
        .count()
        .max(1)
}

/// Returns the metadata at the end of the file, after validating it.
pub(super) fn read_footer(input: &RangedInput) -> Result<Bytes> {
    footer_bytes(input.byte_count(), |range| input.read_range(range))
}

/// Returns the metadata of a file of that many bytes.
pub(super) fn footer_bytes(length: u64, read: impl Fn(Range<u64>) -> Result<Bytes>) -> Result<Bytes> {
    let no_footer = || {
        Error::input("expected a Parquet file, found one that does not end with a footer")
            .with_hint("the file may have been cut short while it was copied or written")
    };
    let start = length.checked_sub(TAIL_BYTES).ok_or_else(no_footer)?;
    let tail = read(start..length)?;
    let metadata = match &tail[..] {
        [a, b, c, d, b'P', b'A', b'R', b'1'] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        [.., b'P', b'A', b'R', b'E'] => return Err(encrypted_error()),
        _ => return Err(no_footer()),
    };
    let bytes = read(start.checked_sub(metadata).ok_or_else(no_footer)?..start)?;
    check_footer(&bytes).map_err(|fault| match fault {
        ThriftFault::Short => no_footer(),
        ThriftFault::Encrypted => encrypted_error(),
        ThriftFault::Malformed(message) => Error::input(format!("{message}, found a damaged footer")),
    })?;
    Ok(bytes)
}

/// Reads and checks the metadata of a file.
fn metadata_of(input: &RangedInput, name: &str) -> Result<Arc<ParquetMetaData>> {
    let footer = read_footer(input).map_err(|e| e.at_location(name))?;
    let metadata = Arc::new(decode_footer(&footer, name)?);
    refuse_codecs(&metadata).map_err(|e| e.at_location(name))?;
    Ok(metadata)
}

/// Returns the metadata with texts decoded to views, if the file's types allow it.
fn with_views(given: &ArrowReaderMetadata, name: &str) -> Result<ArrowReaderMetadata> {
    let views = Arc::new(Schema::new(schema::view_fields(given.schema().fields())));
    let options = ArrowReaderOptions::new().with_schema(views);
    let metadata: Arc<ParquetMetaData> = Arc::clone(given.metadata());
    match guard_decoding(PARQUET, name, || ArrowReaderMetadata::try_new(metadata, options)) {
        Ok(metadata) => Ok(metadata),
        // A type in the file's own Arrow schema may not be accepted as a requested type.
        Err(_) => Ok(given.clone()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Int64Array, StringArray},
        datatypes::{DataType, Field},
    };

    use super::*;
    use crate::{codec::Codec, error::Kind, format::parquet::ParquetEncoder, record::Payload};

    fn file(batch: &RecordBatch, group_rows: usize) -> Vec<u8> {
        let encoder = ParquetEncoder::new(&batch.schema(), Codec::Zstd(1), &[]).unwrap();
        let mut shard = encoder.start_shard(Vec::new()).unwrap();
        for start in (0..batch.num_rows()).step_by(group_rows) {
            let rows = group_rows.min(batch.num_rows() - start);
            shard.append(encoder.encode(&[batch.slice(start, rows)]).unwrap()).unwrap();
        }
        shard.finish().unwrap()
    }

    fn read(bytes: &[u8], range_bytes: usize, limit: usize) -> Result<(RecordBatch, Vec<u64>, usize)> {
        let reader = ParquetReader::open(RangedInput::Bytes(Bytes::copy_from_slice(bytes)), "x.parquet")?;
        let ranges: Vec<_> = reader.ranges(Box::new(std::io::empty()), range_bytes, limit).collect::<Result<_>>()?;
        let (mut batches, mut hashes) = (Vec::new(), Vec::new());
        for range in &ranges {
            let Parsed::Block(block) = reader.parse(range, &reader.schema)? else { panic!("a type mismatch") };
            let Payload::Rows(batch) = block.payload else { panic!("samples") };
            batches.push(batch);
            hashes.extend(block.hashes);
        }
        Ok((arrow::compute::concat_batches(&reader.schema, &batches)?, hashes, ranges.len()))
    }

    fn table(rows: i64) -> RecordBatch {
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(0..rows))),
            ("text", Arc::new(StringArray::from_iter_values((0..rows).map(|i| format!("text {}", i % 9))))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn rows_and_hashes_do_not_depend_on_the_cuts() {
        let table = table(50_000);
        let (whole, hashes, ranges) = read(&file(&table, 50_000), 1 << 30, 1 << 30).unwrap();
        assert_eq!((whole.columns(), ranges), (table.columns(), 1));
        for (group_rows, range_bytes) in [(50_000, 10_000), (100, 100_000), (7_001, 50_000), (1000, 1)] {
            let (found, same, ranges) = read(&file(&table.slice(0, 3000), group_rows), range_bytes, 1 << 20).unwrap();
            assert_eq!(found, whole.slice(0, 3000));
            assert_eq!(same, hashes[..3000]);
            assert!(ranges > 1 || range_bytes == 100_000, "{ranges}");
        }
    }

    #[test]
    fn names_are_distinct() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let schema = Arc::new(Schema::new(vec![field("a"), field("a")]));
        let column = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        let batch = RecordBatch::try_new(schema, vec![column(1), column(2)]).unwrap();
        let (found, ..) = read(&file(&batch, 10), 100, 1 << 20).unwrap();
        assert_eq!(found.schema().field(1).name(), "a_2");
        assert_eq!(found.columns(), batch.columns());
    }

    #[test]
    fn rows_that_a_dictionary_makes_large_are_refused_before_they_are_copied_out() {
        let text = "x".repeat(500_000);
        let words = StringArray::from_iter_values(std::iter::repeat_n(text.as_str(), 2000));
        let batch = RecordBatch::try_from_iter([("w", Arc::new(words) as ArrayRef)]).unwrap();
        let bytes = file(&batch, 2000);
        assert!(bytes.len() < 100_000);
        let error = read(&bytes, 8 << 20, 100_000).unwrap_err();
        assert_eq!(error.kind(), Kind::Input);
        assert!(error.message().contains("row group 0: expected rows of at most 100000 bytes"), "{error}");
    }

    #[test]
    fn pages_beyond_the_bound_are_refused_before_they_are_inflated() {
        let words = StringArray::from_iter_values([&"x".repeat(40 << 20)]);
        let batch = RecordBatch::try_from_iter([("w", Arc::new(words) as ArrayRef)]).unwrap();
        let bytes = file(&batch, 1);
        assert!(read(&bytes, 8 << 20, 1 << 30).unwrap_err().to_string().contains("cannot be decoded"));
        assert_eq!(read(&bytes, 8 << 20, 16 << 20).unwrap_err().kind(), Kind::Input);
    }

    #[test]
    fn pages_that_do_not_match_their_checksum_are_refused() {
        let numbers = Int64Array::from_iter_values((0..500).map(|i| i * 7_919_i64.pow(3) % 1_000_003));
        let batch = RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef)]).unwrap();
        let encoder = ParquetEncoder::new(&batch.schema(), Codec::None, &[]).unwrap();
        let mut shard = encoder.start_shard(Vec::new()).unwrap();
        shard.append(encoder.encode(&[batch]).unwrap()).unwrap();
        let mut bytes = shard.finish().unwrap();
        assert!(read(&bytes, 8 << 20, 8 << 20).is_ok());
        // A digit of a value, which no length and no offset depends on.
        bytes[300] ^= 1;
        let error = read(&bytes, 8 << 20, 8 << 20).unwrap_err();
        assert_eq!(error.kind(), Kind::Input);
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("CRC"), "{error:?}");
    }

    #[test]
    fn damage_never_panics_or_changes_the_count() {
        let whole = file(&table(100), 60);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            match read(&damaged, 1000, 1 << 20) {
                Ok((found, ..)) => assert_eq!(found.num_rows(), 100, "byte {at}"),
                Err(error) => assert!(matches!(error.kind(), Kind::Input | Kind::Integrity), "byte {at}: {error}"),
            }
            assert!(read(&whole[..at], 1000, 1 << 20).is_err(), "{at} bytes");
        }
    }
}
