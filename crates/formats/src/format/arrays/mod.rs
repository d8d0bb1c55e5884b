//! Common part of all array formats: a reader of records on top of an array source.
//!
//! Ranges cover whole chunks along the records if memory permits; chunks that several ranges need are kept on disk
//! (`stripes.rs`). A stored chunk is read and decoded once, or twice if it crosses the border of two ranges. Only texts
//! of variable length are read again for each range. Sources are open only while they are being read (`open.rs`).

mod open;
mod stripes;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::RecordBatch,
    datatypes::{FieldRef, Fields, SchemaRef},
};

pub use self::open::{ArraySource, OpenSources, Opened, ReopenArrays};
use self::{
    open::{OpenReservation, Outline, Prefetched},
    stripes::{Across, StripeSizes, Striped},
};
use super::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, rows::parsed_with};
use crate::{
    array::{
        Arrays,
        cells::read_cells,
        claims,
        records::{ArrayOptions, Axis, Plan, PlanColumn},
        rows::{coded_rows, needed_slabs, read_rows, tensor_row_hashes},
        slab::layer_shape,
    },
    error::{Error, Result},
    record::{
        Content, PartExtent, PartSizes, Payload, RecordBlock, SourcePart, SourceRange,
        coded::{batch_of, plain_batch},
        numbers::Numbers,
        source_part::PartCuts,
    },
    units::Size,
};

/// Maximum bytes of a record until `ranges` receives the bound of the run.
const DEFAULT_LIMIT: u64 = 256 << 20;

/// Minimum bytes per row when sizing a range, because its hash takes memory as well.
const MIN_ROW_BYTES: u64 = 4;

/// Factor by which ranges of cells may be larger: cells take about this fraction of the memory of other records with as
/// many bytes, because most of their columns are keys.
const CELLS_FACTOR: u64 = 4;

/// Divisor of the record limit that gives the maximum bytes of a range of whole chunks: several are in flight.
const ALIGNED_SHARE: u64 = 4;

/// Divisors of the record limit that give the memory for chunks kept on disk: chunks being transposed, records fetched
/// from disk, and blocks small enough to stay in memory.
const TRANSPOSED_SHARE: u64 = 2;
const FETCHED: u64 = 8;
const SMALL_BLOCK_SHARE: u64 = 64;

/// Slabs of a contiguous array that are transposed together.
const LAYERS: u64 = 8;

/// Maximum bytes of a block in memory, and of one fetch.
const MAX_SMALL_BLOCK: u64 = 1 << 20;
const MAX_BLOB: u64 = 256 << 10;

/// Maximum bytes of constants, which are kept for all records.
const MAX_CONSTANTS: u64 = 64 << 20;

/// Reads the records of one array source.
pub struct ArrayReader {
    name: String,
    outline: Arc<Outline>,
    options: Arc<ArrayOptions>,
    open: Arc<OpenSources>,
    again: ReopenArrays,
    /// Stored bytes of the source.
    bytes: u64,
    limit: AtomicU64,
    state: Mutex<SourceState>,
}

/// The source, while it is open.
#[derive(Debug, Default)]
struct SourceState {
    opened: Option<Arc<Opened>>,
    /// Reservation that lets it stay open while nothing is read.
    kept: Option<OpenReservation>,
    /// Sizes by which it was cut, and number of ranges not read yet.
    cut: Option<StripeSizes>,
    waiting: u64,
    /// Constants of all records, shared with other sources that have the same.
    constants: Option<Arc<RecordBatch>>,
}

impl std::fmt::Debug for ArrayReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrayReader").field("name", &self.name).field("state", &self.state).finish_non_exhaustive()
    }
}

impl ArrayReader {
    /// Plans the records of a source. It stays open if `open` has room for it, and is otherwise reopened by `again`
    /// when it is read. `name` is used in errors; `bytes` is the size of the source.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn new(
        source: Box<dyn Arrays>,
        again: ReopenArrays,
        options: &ArrayOptions,
        name: &str,
        bytes: u64,
        open: &Arc<OpenSources>,
    ) -> Result<Self> {
        let plan = Plan::new(source.header(), options).map_err(|e| e.at_location(name))?;
        if !options.sparse {
            claims::check_claimed_size(source.header(), &plan, bytes).map_err(|e| e.at_location(name))?;
        }
        let opened = Opened { source: Striped::new(source), plan };
        let outline = open.intern_outline(Outline::from_plan(opened.header(), &opened.plan));
        let mut state =
            SourceState { kept: open.reserve_memory(opened.source.memory_bytes()), ..SourceState::default() };
        if state.kept.is_some() {
            state.opened = Some(Arc::new(opened));
        } else if outline.constants {
            // An error here is reported when the constants are requested.
            state.constants = constants_of(&opened, name).ok().map(|found| open.intern_constants(found));
        }
        let (name, limit) = (name.to_owned(), AtomicU64::new(DEFAULT_LIMIT));
        let (options, open, state) = (open.intern_options(options), Arc::clone(open), Mutex::new(state));
        Ok(Self { name, outline, options, open, again, bytes, limit, state })
    }

    fn lock_state(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the source when no range waits for it any more.
    fn finish_range(&self) {
        let mut state = self.lock_state();
        state.waiting = state.waiting.saturating_sub(1);
        if state.waiting == 0 && state.cut.is_some() {
            (state.opened, state.kept) = (None, None);
        }
    }

    /// Decides which variables are kept on disk.
    fn stripe_source(&self, opened: &Opened, sizes: &StripeSizes) {
        if sizes.step < sizes.rows.end - sizes.rows.start {
            let across = opened.plan.columns.iter().filter_map(|column| variable_across_ranges(opened, column, sizes));
            opened.source.set_stripes(across, sizes);
        }
    }

    /// Returns the first range for type inference, regardless of its size.
    pub fn first_range(&self) -> SourceRange {
        let outline = &self.outline;
        let rows = outline.rows.min(if outline.cells { outline.rows_per_record } else { 1 });
        // Large records are not read for an estimate.
        let rows = if rows.saturating_mul(outline.row_bytes) > DEFAULT_LIMIT { 0 } else { rows };
        SourceRange::new(0, Content::Rows { rows, bytes: self.share_of_rows(0, rows) })
    }

    /// Returns the bytes of the source that some rows represent, so that all rows together represent the whole source.
    fn share_of_rows(&self, first: u64, count: u64) -> u64 {
        let rows = u128::from(self.outline.rows.max(1));
        let until = |row: u64| u64::try_from(u128::from(self.bytes) * u128::from(row) / rows).unwrap_or(u64::MAX);
        until(first + count) - until(first)
    }

    /// Returns the rows per range: whole chunks of records if they fit.
    fn rows_per_range(&self, range_bytes: u64, limit: u64) -> Result<u64> {
        let outline = &self.outline;
        let per_record = outline.rows_per_record.max(1);
        let record_bytes = outline.row_bytes.saturating_mul(per_record);
        let atom = if outline.cells { record_bytes } else { outline.row_bytes };
        if atom > limit {
            return Err(Error::input(format!(
                "expected records of at most {}, found some of {}",
                Size(limit),
                Size(atom)
            ))
            .with_hint(
                "a record may take an eighth of the memory: raise --memory, cut smaller records with --read patch, or \
                 name another --read record-dim",
            ));
        }
        if record_bytes > limit {
            return Ok((range_bytes / atom).max(1));
        }
        let room = if outline.cells { range_bytes.saturating_mul(CELLS_FACTOR) } else { range_bytes };
        let fitting = (room / record_bytes).max(1);
        let chunk = outline.chunk;
        let records = if chunk <= fitting {
            fitting / chunk * chunk
        } else if record_bytes.saturating_mul(chunk) <= limit / ALIGNED_SHARE {
            chunk
        } else {
            fitting
        };
        let rows = records.saturating_mul(per_record);
        let most = range_bytes / MIN_ROW_BYTES;
        Ok(if rows > most { (most / per_record).max(1) * per_record } else { rows })
    }
}

impl ArrayReader {
    /// Returns how chunks that several ranges need are held, if `rows` are read in ranges of `step` rows.
    fn stripe_sizes(&self, rows: Range<u64>, step: u64, limit: u64) -> StripeSizes {
        let rows_per_record = self.outline.rows_per_record.max(1);
        let records = step / rows_per_record;
        let record_bytes = self.outline.row_bytes.saturating_mul(rows_per_record);
        let fetched = (limit / FETCHED / record_bytes).checked_div(records).unwrap_or(0) * records;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        StripeSizes {
            group: limit / TRANSPOSED_SHARE,
            blob: bytes((limit / TRANSPOSED_SHARE / 128).min(MAX_BLOB)),
            max_in_memory: bytes((limit / SMALL_BLOCK_SHARE).min(MAX_SMALL_BLOCK)),
            piece: fetched.max(records).max(1),
            windows: records > 0 && fetched >= 2 * records,
            step,
            rows_per_record,
            rows,
        }
    }
}

/// Returns the variable of a column if more than two ranges need its chunks. Contiguous data are treated as chunks of a
/// size that reads well.
fn variable_across_ranges(opened: &Opened, column: &PlanColumn, sizes: &StripeSizes) -> Option<Across> {
    let axis = column.axes.iter().position(|axis| *axis == Axis::Record);
    let records = sizes.step / sizes.rows_per_record;
    let variable = &opened.header().variables[column.variable];
    let (chunk, striped) = match &variable.chunks {
        Some(chunk) => (chunk.clone(), axis.is_none() || records == 0 || column.chunk > records),
        None => {
            let width = variable.dtype.byte_width()? as u64;
            let chunk = layer_shape(&variable.shape, width, sizes.group / LAYERS);
            let striped = axis.is_some_and(|axis| axis > 0 && chunk[axis] > records.max(1));
            (chunk, striped)
        }
    };
    striped.then_some(Across { variable: column.variable, axis, chunk })
}

/// Returns the values that are the same for all records of a source, as one row.
fn constants_of(opened: &Opened, name: &str) -> Result<RecordBatch> {
    let plan = opened.plan.of_constants(opened.header()).map_err(|e| e.at_location(name))?;
    if plan.row_bytes() > MAX_CONSTANTS {
        let names: Vec<&str> = plan.columns.iter().map(|column| column.field.name().as_str()).collect();
        return Err(Error::input(format!(
            "expected at most {} of values without the dimension `{}` of the records, found {} ({})",
            Size(MAX_CONSTANTS),
            opened.plan.dim.as_deref().unwrap_or_default(),
            Size(plan.row_bytes()),
            names.join(", ")
        ))
        .at_location(name)
        .with_hint("choose variables with --read var, or name another --read record-dim"));
    }
    let _prefetched = opened.source.prefetch(&needed_slabs(&plan, 0, 1))?;
    read_rows(&opened.source, &plan, 0, 1)
}

/// A range being read; the source is closed after the last one.
struct RangeGuard<'a>(&'a ArrayReader);

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.0.finish_range();
    }
}

impl ArraySource for ArrayReader {
    fn open_source(&self) -> Result<Arc<Opened>> {
        let mut state = self.lock_state();
        if let Some(opened) = &state.opened {
            return Ok(Arc::clone(opened));
        }
        let source = (self.again)().map_err(|e| self.with_source_name(e))?;
        let plan = Plan::new(source.header(), &self.options).map_err(|e| self.with_source_name(e))?;
        let opened = Arc::new(Opened { source: Striped::new(source), plan });
        if self.open.intern_outline(Outline::from_plan(opened.header(), &opened.plan)) != self.outline {
            return Err(Error::input("expected the arrays found when the source was first opened, found others")
                .at_location(self.name.as_str())
                .with_hint("the source was changed while it was read: run again when it is no longer being written"));
        }
        if let Some(sizes) = &state.cut {
            self.stripe_source(&opened, sizes);
        }
        if state.waiting > 0 {
            state.opened = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn read_constants(&self) -> Result<Option<RecordBatch>> {
        if !self.outline.constants {
            return Ok(None);
        }
        if let Some(known) = &self.lock_state().constants {
            return Ok(Some(known.as_ref().clone()));
        }
        let opened = self.open_source()?;
        constants_of(&opened, &self.name).map(Some).map_err(|e| self.with_source_name(e))
    }
}

impl RecordReader for ArrayReader {
    fn facts(&self) -> &ReaderFacts {
        &self.outline.facts
    }

    fn ranges<'a>(&'a self, _: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        self.ranges_of_rows(0..self.outline.rows, range_bytes, max_record_bytes)
    }

    /// Parts end between stored chunks, and between ranges where these are whole chunks.
    fn parts(&self, _: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        let Ok(step) = self.rows_per_range(sizes.range_bytes.max(1) as u64, sizes.max_record_bytes as u64) else {
            return Ok(Vec::new());
        };
        let chunk = self.outline.chunk.max(1).saturating_mul(self.outline.rows_per_record.max(1));
        let unit = if step.is_multiple_of(chunk) { step } else { chunk };
        let (rows, count) = (self.outline.rows, sizes.part_count());
        let mut cuts = PartCuts::new(sizes, 0);
        let mut first = 0;
        for number in 1..=count {
            let end = u128::from(rows) * u128::from(number) / u128::from(count);
            let end = u64::try_from(end).unwrap_or(rows).checked_next_multiple_of(unit).unwrap_or(rows).min(rows);
            if end > first {
                cuts.add_piece(self.share_of_rows(0, end), end - first, 0);
                first = end;
            }
        }
        Ok(cuts.of_rows())
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        _: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let PartExtent::Rows { rows } = part.extent else {
            let error = Error::internal("expected rows as a part of arrays, found something else");
            return Box::new(std::iter::once(Err(error.at_location(self.name.as_str()))));
        };
        let end = part.first_row.saturating_add(rows);
        if end > self.outline.rows {
            let message = format!("expected {end} rows as when the parts were planned, found {}", self.outline.rows);
            let error = Error::input(message).with_hint("the source was changed since then; plan again");
            return Box::new(std::iter::once(Err(error.at_location(self.name.as_str()))));
        }
        self.ranges_of_rows(part.first_row..end, range_bytes, max_record_bytes)
    }

    fn infer(&self, _: &SourceRange) -> Fields {
        self.outline.fields.clone()
    }

    fn arrays(&self) -> Option<&dyn ArraySource> {
        Some(self)
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        let Content::Rows { rows: count, bytes } = range.content else {
            return Err(Error::internal("expected records of arrays, found bytes").at_location(self.name.as_str()));
        };
        let _closing = RangeGuard(self);
        let opened = self.open_source()?;
        let read = range.offset..range.offset + count;
        let _done = opened.source.begin_reading(read.clone());
        let _prefetched = self.prefetch_rows(&opened, &read).map_err(|e| self.with_source_name(e))?;
        if self.outline.cells {
            return self.parse_cells(&opened, range, schema, count, bytes).map_err(|e| self.with_source_name(e));
        }
        let values = if opened.plan.coded && self.matches_schema(schema) { coded_rows } else { read_rows };
        let batch = values(&opened.source, &opened.plan, range.offset, count).map_err(|e| self.with_source_name(e))?;
        let hashes = if range.hashed { tensor_row_hashes(&batch)? } else { vec![0; batch.num_rows()] };
        if !self.matches_schema(schema) {
            return parsed_with(hashes, &batch, schema, bytes).map_err(|e| self.with_source_name(e));
        }
        let rows = (0..).take(batch.num_rows()).collect();
        let payload = Payload::Rows(batch_of(schema.fields(), batch.columns().to_vec(), batch.num_rows())?);
        Ok(Parsed::Block(RecordBlock { rows, payload, hashes, bytes_in: bytes, ..RecordBlock::empty() }))
    }
}

impl ArrayReader {
    /// Cuts some rows into ranges.
    fn ranges_of_rows(&self, within: Range<u64>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'_> {
        self.limit.store(max_record_bytes as u64, Ordering::Relaxed);
        let step = match self.rows_per_range(range_bytes.max(1) as u64, max_record_bytes as u64) {
            Ok(step) => step,
            Err(error) => return Box::new(std::iter::once(Err(error.at_location(self.name.as_str())))),
        };
        let sizes = self.stripe_sizes(within.clone(), step, max_record_bytes as u64);
        let ranges = (within.end - within.start).div_ceil(step);
        let mut state = self.lock_state();
        if let Some(opened) = &state.opened {
            self.stripe_source(opened, &sizes);
        }
        (state.cut, state.waiting) = (Some(sizes), ranges);
        drop(state);
        Box::new((0..ranges).map(move |number| {
            let first = within.start + number * step;
            let count = step.min(within.end - first);
            Ok(SourceRange::new(first, Content::Rows { rows: count, bytes: self.share_of_rows(first, count) }))
        }))
    }

    /// Whether its own columns are those of the schema, so that values may be coded.
    fn matches_schema(&self, schema: &SchemaRef) -> bool {
        let same = |(to, own): (&FieldRef, &FieldRef)| to.name() == own.name() && to.data_type() == own.data_type();
        let fields = &self.outline.fields;
        schema.fields().len() == fields.len() && schema.fields().iter().zip(fields).all(same)
    }

    /// Prefetches everything that some rows need.
    fn prefetch_rows(&self, opened: &Opened, read: &Range<u64>) -> Result<Prefetched> {
        opened.source.prefetch(&needed_slabs(&opened.plan, read.start, read.end - read.start))
    }

    fn parse_cells(
        &self,
        opened: &Opened,
        range: &SourceRange,
        schema: &SchemaRef,
        count: u64,
        bytes: u64,
    ) -> Result<Parsed> {
        let cells = read_cells(&opened.source, &opened.plan, range.offset, count, range.hashed)?;
        let sharing = usize::try_from(self.outline.rows_per_record).unwrap_or(0);
        if !self.matches_schema(schema) {
            let hashes = Numbers::shared_by(cells.hashes, sharing).iter().collect();
            return parsed_with(hashes, &plain_batch(&cells.batch)?, schema, bytes);
        }
        let (columns, rows) = (cells.batch.columns().to_vec(), cells.batch.num_rows());
        let payload = Payload::Rows(batch_of(schema.fields(), columns, rows)?);
        let (hashes, bytes_in) = (cells.hashes, bytes);
        Ok(Parsed::Block(RecordBlock { payload, hashes, sharing, bytes_in, ..RecordBlock::empty() }))
    }

    fn with_source_name(&self, error: Error) -> Error {
        if error.place().source.is_some() { error } else { error.at_location(self.name.as_str()) }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeMap;

    use arrow::{compute::concat_batches, datatypes::Schema};
    use rayon::prelude::*;

    use super::*;
    use crate::array::{
        DType, Header, Slab, Values, Variable,
        slab::{BufferExtent, copy_box},
    };

    /// Number of reads of each chunk of each variable.
    type Reads = Arc<Mutex<BTreeMap<(usize, Vec<u64>), u32>>>;

    /// Arrays whose elements are their own numbers, many of them the same, which count the reads of each chunk.
    #[derive(Debug)]
    struct Counting(Header, Reads);

    impl Arrays for Counting {
        fn header(&self) -> &Header {
            &self.0
        }

        fn read(&self, number: usize, slab: &Slab) -> Result<Values> {
            let variable = &self.0.variables[number];
            let chunk = variable.chunks.as_deref().unwrap_or(&variable.shape);
            let grid: Vec<u64> = variable.shape.iter().zip(chunk).map(|(length, c)| length.div_ceil(*c)).collect();
            for at in 0..if variable.chunks.is_some() { grid.iter().product::<u64>() } else { 0 } {
                let mut rest = at;
                let mut start = vec![0; grid.len()];
                for axis in (0..grid.len()).rev() {
                    start[axis] = rest % grid[axis] * chunk[axis];
                    rest /= grid[axis];
                }
                if slab.intersect_box(&start, chunk).is_some() {
                    *self.1.lock().unwrap().entry((number, start)).or_default() += 1;
                }
            }
            let shape = &variable.shape;
            if variable.chunks.is_none() && shape.len() > 1 {
                // Reads of contiguous variables are counted by the elements read.
                *self.1.lock().unwrap().entry((usize::MAX, vec![])).or_default() +=
                    u32::try_from(slab.element_count()).unwrap();
            }
            let number = |at: u64| u16::try_from(at % 60_000).unwrap() / 700 * 700 + u16::from(at.is_multiple_of(5));
            let all: Vec<u8> = (0..variable.element_count()).flat_map(|at| number(at).to_ne_bytes()).collect();
            let mut out = vec![0; slab.byte_count(2)?];
            let whole = Slab::from_shape(&variable.shape);
            let from = BufferExtent { start: &whole.start, shape: &variable.shape };
            copy_box(slab, 2, from, &all, BufferExtent { start: &slab.start, shape: &slab.count }, &mut out);
            Ok(Values::Fixed(out))
        }
    }

    fn header() -> Header {
        let (t, y, x) = (("t", 40), ("y", 30), ("x", 20));
        let variable = |name: &str, dims: &[(&str, u64)], chunks: &[u64]| Variable {
            chunks: Some(chunks.to_vec()),
            ..Variable::with_dims(name, DType::UInt(2), dims)
        };
        let variables = vec![
            variable("across", &[t, y, x], &[16, 7, 20]),
            variable("all", &[t, y, x], &[40, 3, 2]),
            variable("turned", &[y, x, t], &[8, 20, 13]),
            variable("maps", &[t, y, x], &[1, 11, 6]),
            variable("t", &[t], &[1000]),
            variable("mask", &[y, x], &[4, 4]),
        ];
        Header { variables, ..Header::default() }
    }

    /// Returns all rows, from the ranges that these bounds produce, and the reads of each chunk.
    fn read(options: &ArrayOptions, range_bytes: usize, limit: usize) -> (RecordBatch, Reads, usize) {
        read_of(header(), options, range_bytes, limit)
    }

    fn read_of(
        header: Header,
        options: &ArrayOptions,
        range_bytes: usize,
        limit: usize,
    ) -> (RecordBatch, Reads, usize) {
        let reads = Reads::default();
        let opens = Arc::clone(&reads);
        let source = move || Counting(header.clone(), Arc::clone(&opens));
        // Some are closed after planning.
        let open = Arc::new(OpenSources::with_memory(0));
        let _other = range_bytes.is_multiple_of(2).then(|| open.reserve_memory(1));
        let first = Box::new(source());
        let reader = ArrayReader::new(first, Box::new(move || Ok(Box::new(source()))), options, "made", 1000, &open);
        let reader = reader.unwrap();
        let ranges: Vec<SourceRange> =
            reader.ranges(Box::new(std::io::empty()), range_bytes, limit).collect::<Result<_>>().unwrap();
        let schema: SchemaRef = Arc::new(Schema::new(reader.outline.fields.clone()));
        let parse = |range: &SourceRange| match reader.parse(range, &schema).unwrap() {
            Parsed::Block(block) => match block.payload {
                Payload::Rows(rows) => plain_batch(&rows).unwrap(),
                Payload::Samples(_) => unreachable!(),
            },
            Parsed::Mismatch(_) => unreachable!(),
        };
        let batches: Vec<RecordBatch> = ranges.par_iter().map(parse).collect();
        assert!(reader.lock_state().opened.is_none(), "it is open although nobody will read it");
        (concat_batches(&schema, &batches).unwrap(), reads, ranges.len())
    }

    #[test]
    fn every_chunk_is_read_at_most_twice_and_every_record_is_right() {
        let record_dim = Some("t".to_owned());
        let patch = |y, x| vec![("y".to_owned(), y), ("x".to_owned(), x)];
        for options in [
            ArrayOptions { record_dim: record_dim.clone(), ..ArrayOptions::default() },
            ArrayOptions { record_dim: Some("x".into()), ..ArrayOptions::default() },
            ArrayOptions { record_dim: record_dim.clone(), patch: patch(8, 6), ..ArrayOptions::default() },
            ArrayOptions {
                record_dim: record_dim.clone(),
                patch: patch(7, 20),
                stride: vec![("y".into(), 2)],
                ..ArrayOptions::default()
            },
            ArrayOptions { record_dim, flatten: true, ..ArrayOptions::default() },
        ] {
            let (whole, _, one) = read(&options, 1 << 30, 1 << 30);
            assert_eq!(one, 1);
            for (range, limit) in [(1, 1 << 14), (6_000, 1 << 14), (20_000, 1 << 16), (1_000, 1 << 18), (1, 4_000)] {
                // A record that is not cut must fit.
                if limit < 1 << 14 && options.patch.is_empty() || limit < 1 << 16 && options.flatten {
                    continue;
                }
                let (found, reads, ranges) = read(&options, range, limit);
                assert!(ranges > 1 && found == whole, "{options:?} {range} {limit}");
                let reads = reads.lock().unwrap();
                let most = reads.iter().max_by_key(|(_, count)| **count).unwrap();
                assert!(*most.1 <= 2, "{options:?} {range} {limit}: {most:?}");
            }
        }
    }

    #[test]
    fn contiguous_arrays_are_read_once_for_any_record_axis() {
        let plain = |dims: &[(&str, u64)]| Header {
            variables: vec![Variable::with_dims("v", DType::UInt(2), dims)],
            ..Header::default()
        };
        for dims in [
            &[("y", 30), ("t", 40), ("x", 20)][..],
            &[("t", 40), ("y", 30), ("x", 20)],
            &[("y", 1), ("t", 40), ("x", 600)],
            &[("y", 30), ("x", 20), ("t", 40)],
        ] {
            let options = ArrayOptions { record_dim: Some("t".to_owned()), ..ArrayOptions::default() };
            let (whole, _, one) = read_of(plain(dims), &options, 1 << 30, 1 << 30);
            let (found, reads, ranges) = read_of(plain(dims), &options, 3_000, 1 << 14);
            assert!(one == 1 && ranges > 10 && found == whole, "{dims:?}");
            assert_eq!(reads.lock().unwrap().values().copied().sum::<u32>(), 24_000, "{dims:?}");
        }
    }

    #[test]
    fn blocks_are_dropped_after_the_last_range_that_needs_them() {
        let options = ArrayOptions { record_dim: Some("t".to_owned()), ..ArrayOptions::default() };
        let (_, reads, ranges) = read(&options, 1, 1 << 13);
        assert_eq!(ranges, 40);
        // All but those of the per-record map are needed by several ranges.
        assert!(reads.lock().unwrap().values().all(|count| *count == 1));
    }
}
