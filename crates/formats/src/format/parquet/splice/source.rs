//! A Parquet file as an input of splicing: its footer and page indexes, validated before use.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, OnceLock},
};

use ::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder},
    },
    basic::{Compression, Type as PhysicalType},
    errors::ParquetError,
    file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
    schema::types::Type,
};
use arrow::{
    array::RecordBatch,
    datatypes::{DataType, SchemaRef},
};

use super::{
    super::{
        input::read_footer,
        logical::arrow_metadata,
        pages::{PARQUET, check_brotli},
        read::{RowGroupSize, decode_footer, rows_of, size_of},
        thrift::check_struct,
    },
    facts::Indexes,
};
use crate::{
    codec::Codec,
    error::{Error, Result},
    format::{guard::guard_decoding, ranged::RangedInput},
};

/// Maximum bytes of the page indexes of one column.
const INDEX_BYTES: u64 = 64 << 20;

/// A file with a parsed footer.
#[derive(Debug)]
pub struct Source {
    pub(super) name: String,
    pub(super) input: RangedInput,
    pub(super) metadata: Arc<ParquetMetaData>,
    groups: Vec<RowGroupSize>,
    rows: u64,
    arrow: OnceLock<ArrowReaderMetadata>,
}

impl Source {
    /// Reads the footer. `name` is the file's name in errors.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is not a readable Parquet file, or its counts disagree.
    pub fn open(input: RangedInput, name: &str) -> Result<Self> {
        let footer = read_footer(&input).map_err(|e| e.at_location(name))?;
        let metadata = decode_footer(&footer, name)?;
        let groups = guard_decoding(PARQUET, name, || -> Result<Vec<RowGroupSize>, ParquetError> {
            metadata.row_groups().iter().map(size_of).collect()
        })?;
        let group_rows: Vec<u64> = groups.iter().map(|group| group.rows).collect();
        let rows = rows_of(metadata.file_metadata().num_rows(), &group_rows, name)?;
        let metadata = Arc::new(metadata);
        Ok(Self { name: name.to_owned(), input, metadata, groups, rows, arrow: OnceLock::new() })
    }

    /// Reads the page indexes, if there are any and they are readable; splicing also works without them.
    ///
    /// # Errors
    /// When the storage fails.
    #[must_use = "the indexes are in what comes back"]
    pub fn with_indexes(mut self) -> Result<Self> {
        let chunks = || self.metadata.row_groups().iter().flat_map(|group| group.columns());
        if !chunks().any(|chunk| chunk.offset_index_offset().is_some() || chunk.column_index_offset().is_some()) {
            return Ok(self);
        }
        let ranges = chunks().flat_map(|chunk| {
            [
                (chunk.column_index_offset(), chunk.column_index_length()),
                (chunk.offset_index_offset(), chunk.offset_index_length()),
            ]
        });
        for (offset, length) in ranges {
            let (Some(offset), Some(length)) = (offset, length) else { continue };
            let (Ok(offset), Ok(length)) = (u64::try_from(offset), u64::try_from(length)) else { return Ok(self) };
            let end = offset.saturating_add(length);
            if length > INDEX_BYTES || end > self.input.byte_count() {
                return Ok(self);
            }
            if check_struct(&self.input.read_range(offset..end)?).is_err() {
                return Ok(self);
            }
        }
        let metadata = self.metadata.as_ref().clone();
        let read = guard_decoding(PARQUET, &self.name, || {
            let mut reader =
                ParquetMetaDataReader::new_with_metadata(metadata).with_page_index_policy(PageIndexPolicy::Optional);
            reader.read_page_indexes(&self.input)?;
            reader.finish()
        });
        if let Ok(metadata) = read {
            self.metadata = Arc::new(metadata);
        }
        Ok(self)
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> u64 {
        self.rows
    }

    /// Returns the compression of its first column chunk; `None` if it has none, or no codec here writes it.
    pub fn codec(&self) -> Option<Codec> {
        let chunk = self.metadata.row_groups().iter().find(|group| group.num_rows() > 0)?.columns().first()?;
        Some(match chunk.compression() {
            Compression::UNCOMPRESSED => Codec::None,
            Compression::SNAPPY => Codec::Snappy,
            Compression::ZSTD(_) => Codec::Zstd(1),
            Compression::GZIP(_) => Codec::Gzip(6),
            Compression::LZ4_RAW => Codec::Lz4,
            _ => return None,
        })
    }

    /// Whether it has timestamps of the deprecated type INT96.
    pub fn has_int96(&self) -> bool {
        let schema = self.metadata.file_metadata().schema_descr();
        schema.columns().iter().any(|column| column.physical_type() == PhysicalType::INT96)
    }

    /// Returns the root of its Parquet schema.
    pub fn root_schema(&self) -> &Type {
        self.metadata.file_metadata().schema_descr().root_schema()
    }

    /// Estimates its memory in bytes.
    pub fn held_bytes(&self) -> u64 {
        /// Estimated memory of a column chunk's metadata in bytes.
        const CHUNK_BYTES: u64 = 1536;
        let chunks: usize = self.metadata.row_groups().iter().map(|group| group.num_columns()).sum();
        let whole = if matches!(self.input, RangedInput::Bytes(_)) { self.input.byte_count() } else { 0 };
        whole + chunks as u64 * CHUNK_BYTES
    }

    /// Returns the row groups in order.
    pub fn row_groups(&self) -> &[RowGroupSize] {
        &self.groups
    }

    /// Returns the rows of a row group where pages begin, by the page indexes, with the bytes of the columns that have
    /// one there.
    pub fn page_starts(&self, group: usize) -> BTreeMap<u64, u64> {
        let mut starts = BTreeMap::new();
        let columns = self.metadata.row_groups().get(group).map_or(&[][..], |group| group.columns());
        for (leaf, chunk) in columns.iter().enumerate() {
            let bytes = u64::try_from(chunk.compressed_size()).unwrap_or(0);
            let pages = self.page_indexes(group, leaf).offsets.map_or(&[][..], |index| index.page_locations());
            for row in pages.iter().filter_map(|page| u64::try_from(page.first_row_index).ok()) {
                *starts.entry(row).or_default() += bytes;
            }
        }
        starts
    }

    pub(super) fn page_indexes(&self, group: usize, leaf: usize) -> Indexes<'_> {
        let Some(index) = self.metadata.page_index() else { return Indexes { columns: None, offsets: None } };
        Indexes { columns: index.column_index(group, leaf), offsets: index.offset_index(group, leaf) }
    }

    /// Returns the schema in Arrow's types.
    pub(super) fn reader_metadata(&self) -> Result<&ArrowReaderMetadata> {
        if let Some(arrow) = self.arrow.get() {
            return Ok(arrow);
        }
        let arrow = arrow_metadata(&Arc::new(self.input.clone()), &self.metadata, &self.name)?;
        Ok(self.arrow.get_or_init(|| arrow))
    }

    pub(super) fn schema(&self) -> Result<&SchemaRef> {
        Ok(self.reader_metadata()?.schema())
    }

    /// Returns the index of the Parquet group or column that is the top-level Arrow field `name`, and its leaf columns.
    pub(super) fn locate_field(&self, name: &str) -> Result<Option<(usize, Range<usize>)>> {
        let fields = self.schema()?.fields();
        let Some(field) = fields.iter().position(|field| field.name() == name) else { return Ok(None) };
        let descriptor = self.metadata.file_metadata().schema_descr();
        // Arrow omits groups without columns.
        let mut roots: Vec<usize> =
            (0..descriptor.num_columns()).map(|leaf| descriptor.get_column_root_idx(leaf)).collect();
        let of_root = |root: usize| {
            let mut leaves = roots.iter().enumerate().filter(|(_, of)| **of == root).map(|(leaf, _)| leaf);
            leaves.clone().next().unwrap_or_default()..leaves.next_back().map_or(0, |leaf| leaf + 1)
        };
        let ranges: Vec<Range<usize>> = (0..descriptor.root_schema().get_fields().len()).map(of_root).collect();
        roots.dedup();
        if roots.len() != fields.len() {
            return Err(Error::input(format!("expected {} columns, found {}", fields.len(), roots.len()))
                .at_location(self.name.as_str()));
        }
        Ok(roots.get(field).map(|root| (*root, ranges.get(*root).cloned().unwrap_or_default())))
    }

    /// Returns the type of the Arrow field `name`.
    pub(super) fn type_of(&self, name: &str) -> Result<Option<&DataType>> {
        Ok(self.schema()?.field_with_name(name).ok().map(|field| field.data_type()))
    }

    /// Decodes one top-level field of some rows of a row group.
    pub(super) fn decode_field(&self, group: usize, rows: Range<u64>, name: &str) -> Result<Vec<RecordBatch>> {
        let Some((field, _)) = self.locate_field(name)? else {
            return Err(Error::internal("the column to decode is missing").at_location(self.name.as_str()));
        };
        let mask = ProjectionMask::roots(self.reader_metadata()?.parquet_schema(), [field]);
        self.decode_rows(group, rows, mask).map_err(|e| e.in_column(name))
    }

    /// Decodes some rows of a row group, counted from its first one.
    pub(super) fn decode_rows(&self, group: usize, rows: Range<u64>, mask: ProjectionMask) -> Result<Vec<RecordBatch>> {
        const ROWS: usize = 8_192;
        let arrow = self.reader_metadata()?;
        let (skip, expected) = (rows.start, rows.end.saturating_sub(rows.start));
        let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        let batches = guard_decoding(PARQUET, &self.name, || -> Result<Vec<RecordBatch>, ParquetError> {
            check_brotli(&self.input, self.metadata.row_group(group), |leaf| mask.leaf_included(leaf))?;
            let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(self.input.clone(), arrow.clone())
                .with_row_groups(vec![group])
                .with_projection(mask)
                .with_batch_size(ROWS);
            if self.groups.get(group).is_some_and(|group| expected < group.rows) {
                reader = reader.with_offset(count(skip)).with_limit(count(expected));
            }
            let reader = reader.build()?;
            reader.map(|batch| batch.map_err(Into::into)).collect()
        })?;
        let found: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        if found != expected {
            let message = format!("expected {expected} rows as in the footer, found {found} in the pages");
            return Err(Error::input(message).at_location(self.name.as_str()));
        }
        Ok(batches)
    }
}
