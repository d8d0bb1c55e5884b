//! Reads and decodes the records at some positions.
//!
//! Consecutive records of a shard are one request. What a shard needs once, its sidecar's footer or its own, is kept
//! for some shards. Every byte that is delivered was checked: records of tar by the hash in the sidecar, of TFRecord by
//! their checksum, pages of Parquet by theirs.

use std::{
    collections::HashMap,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Instant,
};

use arrow::array::RecordBatch;
use bytes::Bytes;

use super::{
    chunks::{RowChunks, RowTables},
    columns::{Layout, LoadColumns},
    framed::{self, Checked},
    pages::{PageSpan, SharedPages, page_spans},
    piece::{Piece, PieceData, PieceNumbers},
    pool::BytePool,
    rows::{copy_rows, read_rows},
    stats::{Counters, add_since, add_to},
};
use crate::{
    codec::Codec,
    dataset::{
        Dataset, PositionedRows, PositionedShard, Positions, RecordExtents, ScatteredNumbers, ShardExtents, ShardMeta,
    },
    error::{Error, Kind, Result},
    format::parquet::{self, ParquetFile},
    storage::Object,
};

/// Shards whose footers are kept.
const OPEN_SHARDS: usize = 1024;

/// Bytes of a local file that are read at a time: they fit into the cache of a core.
const READ_BYTES: usize = 512 << 10;

/// What is kept of a shard.
#[derive(Debug)]
pub(super) struct OpenShard {
    object: Object,
    /// Path or URL, for errors.
    place: String,
    numbers: Option<ScatteredNumbers>,
    content: ShardContent,
}

#[derive(Debug)]
enum ShardContent {
    Framed(ShardExtents),
    Table(Box<Table>),
}

/// A Parquet shard.
#[derive(Debug)]
struct Table {
    object: Object,
    /// Behind a mutex, because readers of Parquet cannot be shared; each read has its own.
    file: Mutex<ParquetFile<Object>>,
    /// First rows of the pages of the loaded columns, and the number of rows.
    pages: OnceLock<Vec<u64>>,
}

impl Table {
    fn reopened(&self) -> ParquetFile<Object> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).reopen()
    }

    fn with_columns(&self, columns: &LoadColumns) -> ParquetFile<Object> {
        let names: Vec<&str> = columns.schema.fields().iter().map(|field| field.name().as_str()).collect();
        self.reopened().with_columns(&names)
    }

    fn page_starts(&self, columns: &LoadColumns) -> &[u64] {
        self.pages.get_or_init(|| self.with_columns(columns).page_starts())
    }
}

impl OpenShard {
    /// Returns the tables beside the shard.
    fn tables(&self) -> RowTables<'_> {
        let extents = match &self.content {
            ShardContent::Framed(extents) => Some(extents),
            ShardContent::Table(_) => None,
        };
        let numbers = self.numbers.as_ref();
        let rows =
            extents.map(ShardExtents::row_count).into_iter().chain(numbers.map(ScatteredNumbers::row_count)).min();
        RowTables { extents, numbers, rows: rows.unwrap_or(0) }
    }
}

/// The records of a version.
#[derive(Debug)]
pub(super) struct RecordSource {
    pub(super) dataset: Dataset,
    pub(super) positions: Positions,
    is_columnar: bool,
    /// Buffers of blocks.
    pool: BytePool,
    chunks: RowChunks,
    pages: SharedPages,
    open: Mutex<HashMap<usize, OpenSlot>>,
}

/// A shard that is opened by whoever needs it first, while others wait for it.
type OpenSlot = Arc<Mutex<Option<Arc<OpenShard>>>>;

/// Bytes of records of a shard, and where each of them is.
pub(super) struct FramedBytes {
    pub(super) bytes: Bytes,
    /// Offset of the first byte in the uncompressed shard.
    pub(super) offset: u64,
    pub(super) extents: RecordExtents,
    /// Number of the first record in the shard, from 0.
    pub(super) first_row: u64,
}

impl RecordSource {
    pub(super) fn new(dataset: Dataset, positions: Positions, is_columnar: bool) -> Self {
        let (pool, chunks, pages) = (BytePool::new(0), RowChunks::new(0), SharedPages::new(0));
        Self { dataset, positions, is_columnar, pool, chunks, pages, open: Mutex::default() }
    }

    /// Keeps so many bytes of unused buffers of blocks, of places of records, and of pages.
    pub(super) fn with_kept_bytes(self, blocks: u64, places: u64) -> Self {
        let (pool, chunks) = (BytePool::new(blocks), RowChunks::new(places));
        Self { pool, chunks, pages: SharedPages::new(places), ..self }
    }

    /// Reads the records at consecutive positions, shard by shard. Those that are not `needed` are not looked at.
    ///
    /// # Errors
    /// Naming the shard, and the row or byte, when it is missing or damaged.
    pub(super) fn read_pieces(
        &self,
        positions: &Range<u64>,
        needed: Option<&[bool]>,
        columns: &LoadColumns,
        counters: &Counters,
    ) -> Result<Vec<Piece>> {
        let read = |rows: PositionedRows| {
            let needed = needed.map(|needed| needed_rows(&rows, positions.start, needed));
            let piece = self.read_piece(&rows, needed.as_deref(), columns, counters);
            piece.map_err(|e| self.explain_failure(rows.shard, e))
        };
        self.positions.rows_at(positions.clone()).into_iter().map(read).collect()
    }

    /// Reads the records at consecutive positions of a shard; `needed` has a flag for each of its rows.
    pub(super) fn read_piece(
        &self,
        at: &PositionedRows,
        needed: Option<&[bool]>,
        columns: &LoadColumns,
        counters: &Counters,
    ) -> Result<Piece> {
        let (shard, rows) = (at.shard, at.rows.clone());
        if rows.is_empty() {
            return Piece::new(at, PieceNumbers::From(0), PieceData::nothing());
        }
        let open = self.open_shard(shard)?;
        let numbers = self.numbers_of(shard, &rows, counters)?;
        let numbers = PieceNumbers::new(numbers);
        let data = match (&open.content, &columns.layout) {
            (ShardContent::Framed(_), layout) => {
                let checked = if matches!(layout, Layout::Parts(_)) { Checked::Needed(needed) } else { Checked::None };
                let framed = self.read_framed(shard, rows, checked, counters)?;
                let begun = Instant::now();
                let data = match layout {
                    Layout::Parts(parts) => framed::part_cells(&framed, parts, needed),
                    _ => framed::example_cells(&framed, needed),
                };
                add_since(&counters.decoded, begun);
                data.map_err(|e| at_shard(e, &open.place))?
            }
            (ShardContent::Table(table), _) => {
                let rows = self.read_table(shard, table, &rows, columns, counters);
                PieceData::Rows(rows.map_err(|e| at_shard(e, &open.place))?)
            }
        };
        Piece::new(at, numbers, data)
    }

    /// Decodes consecutive rows of a table; what others read of the same pages is decoded once.
    fn read_table(
        &self,
        shard: usize,
        table: &Table,
        rows: &Range<u64>,
        columns: &LoadColumns,
        counters: &Counters,
    ) -> Result<RecordBatch> {
        let decode = |rows: Range<u64>| {
            let begun = Instant::now();
            let complete = matches!(columns.layout, Layout::Rows(true));
            // Pages are small, and a request of a store takes long: neighbours are fetched together, and at once.
            let ahead = table.object.is_remote().then(|| table.with_columns(columns).bytes_of_rows(&rows));
            let _held = ahead.map(|ranges| table.object.prefetch_ranges(ranges)).transpose()?;
            let found = read_rows(table.reopened(), &[rows], &columns.schema, complete)?;
            add_since(&counters.decoded, begun);
            add_to(&counters.requests, 1);
            add_to(&counters.bytes_read, found.get_array_memory_size() as u64);
            Ok(found)
        };
        let spans = page_spans(rows, table.page_starts(columns));
        if let [PageSpan::Alone(rows)] = spans.as_slice() {
            return decode(rows.clone());
        }
        let mut decoded = Vec::with_capacity(spans.len());
        for span in spans {
            let (part, of) = match span {
                PageSpan::Alone(part) => (part.clone(), (part.start, decode(part)?)),
                PageSpan::Shared(part, page) => {
                    let first = page.start;
                    (part, (first, self.pages.page(shard, first, || decode(page))?))
                }
            };
            let row = |row: u64| usize::try_from(row - of.0).unwrap_or(usize::MAX);
            decoded.push((row(part.start)..row(part.end), of.1));
        }
        let ranges: Vec<_> = decoded.iter().map(|(rows, batch)| (batch, rows.clone())).collect();
        copy_rows(&ranges, &columns.schema)
    }

    /// Returns the record numbers of consecutive live rows of a shard.
    pub(super) fn numbers_of(&self, shard: usize, rows: &Range<u64>, counters: &Counters) -> Result<Vec<u64>> {
        let begun = Instant::now();
        let open = self.open_shard(shard)?;
        let mut numbers = Vec::new();
        match &open.numbers {
            Some(_) => self.chunks.push_numbers(shard, open.tables(), rows.clone(), &mut numbers)?,
            None => self.shard_at(shard)?.push_numbers(rows.clone(), &mut numbers),
        }
        add_since(&counters.read, begun);
        Ok(numbers)
    }

    /// Reads the bytes of consecutive records of a framed shard, decompressed, and compares some with their hashes.
    pub(super) fn read_framed(
        &self,
        shard: usize,
        rows: Range<u64>,
        checked: Checked<'_>,
        counters: &Counters,
    ) -> Result<FramedBytes> {
        let begun = Instant::now();
        let open = self.open_shard(shard)?;
        let ShardContent::Framed(of_shard) = &open.content else {
            return Err(Error::internal("expected a framed shard, found a table"));
        };
        let first_row = rows.start;
        let extents = self.chunks.extents(shard, open.tables(), rows)?;
        let range = framed::range_of(&extents).map_err(|e| at_shard(e, &open.place))?;
        let codec = self.meta_of(shard)?.codec;
        let (bytes, offset) = if codec == Codec::None {
            let mut check = framed::HashCheck::new(&extents, range.start, first_row, checked);
            let mut arrived = |bytes: &[u8]| check.advance(bytes);
            let bytes = self.read_object(&open, range.clone(), counters, &mut arrived)?;
            add_since(&counters.read, begun);
            (bytes, range.start)
        } else {
            let units = of_shard.frames().and_then(|frames| frames.units_of(&range));
            let units = units.ok_or_else(|| {
                Error::integrity("expected the units of a compressed shard, found none").at_location(&open.place)
            })?;
            let (first, last) = match (units.first(), units.last()) {
                (Some(first), Some(last)) => (first.0, last.0),
                _ => return Err(Error::internal("expected a unit of a compressed shard")),
            };
            let stored = first.offset..last.offset + last.length;
            let stored = self.read_object(&open, stored, counters, &mut |_| Ok(()))?;
            add_since(&counters.read, begun);
            let begun = Instant::now();
            let raw = framed::decompress(codec, &stored, &units).map_err(|e| at_shard(e, &open.place))?;
            let wanted = self.keep_range(&raw, range.start - first.raw_offset..range.end - first.raw_offset)?;
            let mut check = framed::HashCheck::new(&extents, range.start, first_row, checked);
            check.advance(&wanted).map_err(|e| at_shard(e, &open.place))?;
            add_since(&counters.decoded, begun);
            (wanted, range.start)
        };
        Ok(FramedBytes { bytes, offset, extents, first_row })
    }

    /// Copies a range of decompressed units, which would otherwise stay in memory as a whole.
    fn keep_range(&self, raw: &[u8], range: Range<u64>) -> Result<Bytes> {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let wanted = raw.get(at(range.start)..at(range.end));
        let wanted = wanted.ok_or_else(|| Error::integrity("expected larger units of a compressed shard"))?;
        let mut buffer = self.pool.take_buffer(wanted.len());
        buffer.get_mut(..wanted.len()).unwrap_or_default().copy_from_slice(wanted);
        Ok(self.pool.lend_buffer(buffer, 0..wanted.len()))
    }

    /// Reads a range of a shard; that of a local file into a buffer that is used again. `arrived` receives all bytes
    /// that were read so far, again and again.
    fn read_object(
        &self,
        open: &OpenShard,
        range: Range<u64>,
        counters: &Counters,
        arrived: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Bytes> {
        add_to(&counters.requests, 1);
        add_to(&counters.bytes_read, range.end.saturating_sub(range.start));
        let Some(local) = self.dataset.store().as_local() else {
            let bytes = open.object.exact_range(range).and_then(|bytes| arrived(&bytes).map(|()| bytes));
            return bytes.map_err(|e| at_shard(e, &open.place));
        };
        let cut = || {
            let message = format!("expected {} bytes or more, found fewer", range.end);
            at_shard(Error::integrity(message), &open.place)
        };
        let file = local.open_file(open.object.path()).map_err(|e| at_shard(e, &open.place))?;
        // A length beyond the end of the file must not be allocated first.
        if file.metadata()?.len() < range.end {
            return Err(cut());
        }
        let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(|_| cut())?;
        let mut buffer = self.pool.take_buffer(length);
        let mut at = 0;
        while at < length {
            let next = length.min(at + READ_BYTES);
            let into = buffer.get_mut(at..next).unwrap_or_default();
            file.read_exact_at(into, range.start + at as u64).map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => cut(),
                _ => at_shard(Error::storage("reading failed").with_cause(e), &open.place).at_byte(range.start),
            })?;
            arrived(buffer.get(..next).unwrap_or_default()).map_err(|e| at_shard(e, &open.place))?;
            at = next;
        }
        Ok(self.pool.lend_buffer(buffer, 0..length))
    }

    /// Returns the file of a Parquet shard.
    pub(super) fn open_table(&self, shard: usize) -> Result<ParquetFile<Object>> {
        match &self.open_shard(shard)?.content {
            ShardContent::Table(table) => Ok(table.reopened()),
            ShardContent::Framed(_) => Err(Error::internal("expected a table, found a framed shard")),
        }
    }

    /// Returns the path or URL of a shard.
    pub(super) fn place_of(&self, shard: usize) -> String {
        let meta = self.positions.shards().get(shard).and_then(PositionedShard::meta);
        let path = meta.map_or("", |meta| meta.path.as_str());
        self.dataset.store().location().join(path).to_string()
    }

    /// Returns the average bytes of a record in the shard that has the largest among some positions, and the shard.
    pub(super) fn largest_records(&self, positions: &Range<u64>) -> Option<(u64, usize)> {
        let average = |rows: PositionedRows| {
            let meta = self.meta_of(rows.shard).ok()?;
            Some((meta.raw_bytes / meta.records.max(1), rows.shard))
        };
        self.positions.rows_at(positions.clone()).into_iter().filter_map(average).max()
    }

    fn shard_at(&self, shard: usize) -> Result<&PositionedShard> {
        self.positions.shards().get(shard).ok_or_else(|| Error::internal("expected a shard at each position"))
    }

    fn meta_of(&self, shard: usize) -> Result<&ShardMeta> {
        self.shard_at(shard)?.meta().ok_or_else(|| Error::internal("expected a shard with records, found none"))
    }

    /// Says so if a shard cannot be read because records were erased since the loader was opened.
    fn explain_failure(&self, shard: usize, error: Error) -> Error {
        let Ok(meta) = self.meta_of(shard) else { return error };
        let is_missing = |path: &str| matches!(self.dataset.store().head(path), Ok(None));
        if !is_missing(&meta.path) && !is_missing(&meta.beside.at) {
            return error;
        }
        let Ok(Some(version)) = self.dataset.erased_in(&meta.path) else { return error };
        Error::conflict(format!("records were erased from all versions while the loader ran, by version {version}"))
            .at_location(self.place_of(shard))
            .with_hint("the shards that the loader began with are deleted")
            .with_hint(
                "open the dataset again, and load the last state with `erased=\"skip\"`: erased records leave holes",
            )
    }

    fn open_shard(&self, shard: usize) -> Result<Arc<OpenShard>> {
        let slot = {
            let mut kept = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() >= OPEN_SHARDS && !kept.contains_key(&shard) {
                kept.clear();
            }
            Arc::clone(kept.entry(shard).or_default())
        };
        let mut open = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*open {
            return Ok(Arc::clone(open));
        }
        Ok(Arc::clone(open.insert(Arc::new(self.open_new(shard)?))))
    }

    fn open_new(&self, shard: usize) -> Result<OpenShard> {
        let positioned = self.shard_at(shard)?;
        let meta = self.meta_of(shard)?;
        let (store, place) = (self.dataset.store(), self.place_of(shard));
        let object = self.dataset.object_at(&meta.path, meta.bytes);
        let content = if self.is_columnar {
            let file = parquet::open_with_pages(object.clone(), &place).map_err(|e| at_shard(e, &place))?;
            if file.row_count() < meta.records {
                let (expected, found) = (meta.records, file.row_count());
                let error = Error::integrity(format!("expected at least {expected} rows, found {found}"));
                return Err(at_shard(error, &place));
            }
            let pages = OnceLock::new();
            ShardContent::Table(Box::new(Table { object: object.clone(), file: Mutex::new(file), pages }))
        } else {
            ShardContent::Framed(ShardExtents::open(store, meta)?)
        };
        Ok(OpenShard { object, place, numbers: positioned.open_numbers(store)?, content })
    }
}

/// Returns for each row whether it is needed, given that for positions from `first` on.
fn needed_rows(at: &PositionedRows, first: u64, needed: &[bool]) -> Vec<bool> {
    let has_record = |position: &u64| at.holes.binary_search(position).is_err();
    let is_needed = |position: u64| {
        let at = usize::try_from(position.saturating_sub(first)).ok();
        at.and_then(|at| needed.get(at)).copied().unwrap_or(true)
    };
    at.positions.clone().filter(has_record).map(is_needed).collect()
}

/// Adds the shard to an error. What is wrong with the bytes of a shard is damage, whatever a reader of inputs calls it.
pub(super) fn at_shard(error: Error, place: &str) -> Error {
    let kind = if error.kind() == Kind::Input { Kind::Integrity } else { error.kind() };
    let mut out = Error::new(kind, error.message().to_owned()).at_location(place);
    if let Some(byte) = error.place().byte {
        out = out.at_byte(byte);
    }
    if let Some(column) = &error.place().column {
        out = out.in_column(column.clone());
    }
    out = error.hints().iter().fold(out, |out, hint| out.with_hint(hint.clone()));
    if kind == Kind::Integrity && error.hints().is_empty() {
        out = out.with_hint("run `shardify verify --read-data`, which lists what is damaged");
    }
    match std::error::Error::source(&error) {
        Some(cause) => out.with_cause(cause.to_string()),
        None => out,
    }
}
