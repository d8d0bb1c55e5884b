//! Chunks shared by many records: each is read and decoded once, and its records are fetched from disk.
//!
//! ```text
//! records  0 1 2 3 | 4 5 6 7       a block has as many records as a chunk; its chunks are transposed so that records
//! chunk A  ------- | -------       come first, and written to disk. A window of records is read from there into
//! chunk B  ------- | -------       memory, and ranges are copied out of the window.
//! ```
//!
//! A block exists from the first range that needs it until the last one is done, in whatever order threads read them,
//! so no chunk is read twice. Chunks of one value, such as missing ones, take no space.

mod block;

use std::{
    any::Any,
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use self::block::{Block, BlockOrigin};
use crate::{
    array::{
        Arrays, Header, Slab, Values,
        slab::{BufferExtent, copy_box, permute_axes},
    },
    error::Result,
};

/// Cached windows of a variable: the current one, and the one before it, which other threads may still read.
const WINDOWS: usize = 2;

/// An array source with some variables that are read through the disk.
#[derive(Debug)]
pub(super) struct Striped {
    inner: Box<dyn Arrays>,
    /// Stripes by variable number.
    stripes: OnceLock<BTreeMap<usize, Stripe>>,
    /// Held while a block is made, which uses all processors and much memory.
    making: Mutex<()>,
}

/// Sizes of what is held in memory, and how records are read.
#[derive(Debug, Clone)]
pub(super) struct StripeSizes {
    /// Bytes of chunks transposed in memory at a time.
    pub(super) group: u64,
    /// Bytes of a piece that are stored as one blob, so that a few chunks can be read without unpacking all.
    pub(super) blob: usize,
    /// Maximum bytes of a block that stays in memory.
    pub(super) max_in_memory: usize,
    /// Records fetched from disk together.
    pub(super) piece: u64,
    /// Whether these records form a window, from which several ranges are copied.
    pub(super) windows: bool,
    /// Rows of a range.
    pub(super) step: u64,
    /// Rows of a record.
    pub(super) rows_per_record: u64,
    /// Rows that are read: all of the source, or those of a part.
    pub(super) rows: Range<u64>,
}

/// A variable with chunks that several ranges need.
#[derive(Debug)]
pub(super) struct Across {
    /// Its number.
    pub(super) variable: usize,
    /// Its axis of records, if it has one.
    pub(super) axis: Option<usize>,
    /// Shape of its chunks.
    pub(super) chunk: Vec<u64>,
}

#[derive(Debug)]
struct Stripe {
    /// Axis `order[i]` of the array is axis `i` of a block; and the inverse.
    order: Vec<usize>,
    back: Vec<usize>,
    /// Shapes of the array and of its chunks, transposed.
    shape: Vec<u64>,
    chunk: Vec<u64>,
    width: usize,
    /// Whether records are along the first axis of a block; otherwise every record needs all of it.
    sliced: bool,
    sizes: StripeSizes,
    blocks: Mutex<BTreeMap<u64, Waited>>,
    /// Windows by block, and by their position in it.
    windows: Mutex<BTreeMap<(u64, u64), LazySlot<Window>>>,
    buffers: BufferPool,
}

/// A value that is made by its first user.
type LazySlot<T> = Arc<Mutex<Option<Arc<T>>>>;

/// A block, and the ranges that still need it.
#[derive(Debug)]
struct Waited {
    block: LazySlot<Block>,
    ranges: u64,
}

/// Buffers of dropped windows. Rows are small and outlive windows: without reuse, the free space between rows would
/// become too fragmented for a window.
type BufferPool = Arc<Mutex<Vec<Vec<u8>>>>;

/// Records in memory, transposed.
#[derive(Debug)]
struct Window {
    area: Slab,
    bytes: Vec<u8>,
    buffers: BufferPool,
}

impl Drop for Window {
    fn drop(&mut self) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.bytes));
    }
}

impl Striped {
    pub(super) fn new(inner: Box<dyn Arrays>) -> Self {
        Self { inner, stripes: OnceLock::new(), making: Mutex::new(()) }
    }

    /// Sets which variables have chunks that several ranges need.
    pub(super) fn set_stripes(&self, variables: impl Iterator<Item = Across>, sizes: &StripeSizes) {
        let stripe = |Across { variable: number, axis, chunk }: Across| {
            let variable = &self.inner.header().variables[number];
            let width = variable.dtype.byte_width().filter(|width| *width > 0)?;
            let shape = &variable.shape;
            if chunk.len() != shape.len() || shape.is_empty() || chunk.contains(&0) || shape.contains(&0) {
                return None;
            }
            let front = axis.unwrap_or(0);
            let order: Vec<usize> =
                std::iter::once(front).chain((0..shape.len()).filter(|other| *other != front)).collect();
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(place, axis)| back[*axis] = place);
            // A chunk may be longer than the array.
            let chunk: Vec<u64> = chunk.iter().zip(shape).map(|(chunk, length)| *chunk.min(length)).collect();
            let stripe = Stripe {
                shape: reorder_axes(shape, &order),
                chunk: reorder_axes(&chunk, &order),
                order,
                back,
                width,
                sliced: axis.is_some(),
                sizes: sizes.clone(),
                blocks: Mutex::default(),
                windows: Mutex::default(),
                buffers: BufferPool::default(),
            };
            Some((number, stripe))
        };
        let _ = self.stripes.set(variables.filter_map(stripe).collect());
    }

    /// Announces that a range of these rows is being read, until the returned value is dropped.
    pub(super) fn begin_reading(&self, rows: Range<u64>) -> StripeReadGuard<'_> {
        StripeReadGuard { source: self, rows }
    }
}

/// A range being read.
#[derive(Debug)]
pub(super) struct StripeReadGuard<'a> {
    source: &'a Striped,
    rows: Range<u64>,
}

impl Drop for StripeReadGuard<'_> {
    fn drop(&mut self) {
        for stripe in self.source.stripes.get().into_iter().flat_map(BTreeMap::values) {
            stripe.release_rows(&self.rows);
        }
    }
}

impl Arrays for Striped {
    fn header(&self) -> &Header {
        self.inner.header()
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let stripe = self.stripes.get().and_then(|stripes| stripes.get(&variable));
        match stripe.filter(|stripe| stripe.shape.len() == slab.count.len() && slab.element_count() > 0) {
            Some(stripe) => stripe.read(self, variable, slab).map(Values::Fixed),
            None => self.inner.read(variable, slab),
        }
    }

    /// Chunks that are kept on disk are prefetched when the block is made.
    fn prefetch(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        let stripes = self.stripes.get().filter(|stripes| !stripes.is_empty());
        let Some(stripes) = stripes else { return self.inner.prefetch(wanted) };
        let rest: Vec<_> = wanted.iter().filter(|(variable, _)| !stripes.contains_key(variable)).cloned().collect();
        self.inner.prefetch(&rest)
    }

    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }
}

fn reorder_axes(values: &[u64], order: &[usize]) -> Vec<u64> {
    order.iter().map(|axis| values[*axis]).collect()
}

/// Returns the value of a slot, which the first user makes.
fn get_or_make<T>(slot: &LazySlot<T>, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(made) = &*slot {
        return Ok(Arc::clone(made));
    }
    let made = Arc::new(make()?);
    *slot = Some(Arc::clone(&made));
    Ok(made)
}

impl Stripe {
    fn read(&self, source: &Striped, variable: usize, slab: &Slab) -> Result<Vec<u8>> {
        let wanted =
            Slab { start: reorder_axes(&slab.start, &self.order), count: reorder_axes(&slab.count, &self.order) };
        let mut out = vec![0; slab.byte_count(self.width)?];
        let to = BufferExtent { start: &wanted.start, shape: &wanted.count };
        let (first, end) = (wanted.start[0], wanted.start[0] + wanted.count[0]);
        for block in first / self.records_per_block()..end.div_ceil(self.records_per_block()) {
            if !(self.sizes.windows && self.sliced) {
                self.load_block(source, variable, block)?.copy_to(&wanted, to, &mut out)?;
                continue;
            }
            // A window is within one block, so that it can be made again while the block exists.
            let start = block * self.records_per_block();
            let pieces = |until: u64| until.min(start + self.records_per_block()) - start;
            for piece in pieces(first.max(start)) / self.sizes.piece..pieces(end).div_ceil(self.sizes.piece) {
                let window = self.load_window(source, variable, block, piece)?;
                if let Some(shared) = wanted.intersect_box(&window.area.start, &window.area.count) {
                    let from = BufferExtent { start: &window.area.start, shape: &window.area.count };
                    copy_box(&shared, self.width, from, &window.bytes, to, &mut out);
                }
            }
        }
        let turned = self.order.iter().copied().ne(0..self.order.len());
        Ok(if turned { permute_axes(&out, self.width, &wanted.count, &self.back) } else { out })
    }

    fn load_window(&self, source: &Striped, variable: usize, block: u64, piece: u64) -> Result<Arc<Window>> {
        let number = (block, piece);
        let slot = {
            let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = Arc::clone(windows.entry(number).or_default());
            while windows.len() > WINDOWS && windows.first_key_value().is_some_and(|(first, _)| *first < number) {
                windows.pop_first();
            }
            slot
        };
        get_or_make(&slot, || {
            let first = piece * self.sizes.piece;
            let area = self.slab_of_records(
                block * self.records_per_block() + first,
                self.sizes.piece.min(self.records_per_block() - first),
            );
            let mut bytes = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
            bytes.resize(area.byte_count(self.width)?, 0);
            let to = BufferExtent { start: &area.start, shape: &area.count };
            self.load_block(source, variable, block)?.copy_to(&area, to, &mut bytes)?;
            Ok(Window { area, bytes, buffers: Arc::clone(&self.buffers) })
        })
    }

    /// Returns the records of a block.
    fn records_per_block(&self) -> u64 {
        if self.sliced { self.chunk[0] } else { self.shape[0] }
    }

    fn load_block(&self, source: &Striped, variable: usize, number: u64) -> Result<Arc<Block>> {
        let slot = {
            let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Waited { block: LazySlot::default(), ranges: self.ranges_of(number) };
            Arc::clone(&blocks.entry(number).or_insert_with(new).block)
        };
        get_or_make(&slot, || {
            let _making = source.making.lock().unwrap_or_else(PoisonError::into_inner);
            let origin = BlockOrigin {
                source: source.inner.as_ref(),
                variable,
                width: self.width,
                order: &self.order,
                back: &self.back,
                chunk: &self.chunk,
            };
            let first = number * self.records_per_block();
            let area = self.slab_of_records(first, self.records_per_block());
            Block::read_area(&origin, area, &self.sizes)
        })
    }

    /// Returns the slab of up to `records` records from `first` on.
    fn slab_of_records(&self, first: u64, records: u64) -> Slab {
        let mut area = Slab::from_shape(&self.shape);
        (area.start[0], area.count[0]) = (first, records.min(self.shape[0] - first));
        area
    }

    /// Returns the rows that are read of the records of a block.
    fn rows_of(&self, number: u64) -> Range<u64> {
        let read = &self.sizes.rows;
        if !self.sliced {
            return read.clone();
        }
        let rows = |record: u64| {
            let row = record.min(self.shape[0]).saturating_mul(self.sizes.rows_per_record);
            row.clamp(read.start, read.end)
        };
        rows(number * self.records_per_block())..rows((number + 1) * self.records_per_block())
    }

    /// Returns the number of ranges that need a block.
    fn ranges_of(&self, number: u64) -> u64 {
        let (rows, first) = (self.rows_of(number), self.sizes.rows.start);
        (rows.end - first).div_ceil(self.sizes.step) - (rows.start - first) / self.sizes.step
    }

    fn release_rows(&self, rows: &Range<u64>) {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.retain(|number, waited| {
            let of_block = self.rows_of(*number);
            if of_block.start < rows.end && rows.start < of_block.end {
                waited.ranges = waited.ranges.saturating_sub(1);
            }
            waited.ranges > 0
        });
    }
}
