//! Sorted runs of prepared records, in memory as long as there is room and in temporary files then, of which any
//! interval of ranks can be read. A run in a file is cut into blocks of so few records that an interval of many runs
//! fits into memory; the first key of each block is in memory.

use std::{
    ops::{Range, RangeInclusive},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array},
    compute::{concat, take},
    datatypes::{SchemaRef, UInt8Type, UInt64Type},
};

use crate::{
    error::{Error, Result},
    exec::{
        encode::Layout,
        spill::{SpillWriter, SpilledBatches},
    },
    record::{shuffle::Rank, split::Split},
    storage::Location,
};

/// Where records belong in the order of all, apart from ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Split of the record.
    pub split: Split,
    /// Its rank.
    pub rank: Rank,
}

/// The keys and the numbers of the records of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyColumns<'b> {
    splits: &'b [u8],
    high: &'b [u64],
    low: &'b [u64],
    numbers: &'b [u64],
}

impl<'b> KeyColumns<'b> {
    /// Returns those of a batch.
    pub(super) fn from_batch(layout: &Layout, batch: &'b RecordBatch) -> Self {
        let [split, high, low] = layout.key_columns();
        let numbers = |column: usize| -> &'b [u64] { batch.column(column).as_primitive::<UInt64Type>().values() };
        let splits = batch.column(split).as_primitive::<UInt8Type>().values();
        Self { splits, high: numbers(high), low: numbers(low), numbers: numbers(layout.number_column()) }
    }

    /// Returns the number of records.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the key of a record.
    pub(super) fn key_at(&self, row: usize) -> Key {
        Key { split: self.splits[row], rank: (Rank::from(self.high[row]) << 64) | Rank::from(self.low[row]) }
    }

    /// Returns the number of a record, which decides between equal keys.
    pub(super) fn number_at(&self, row: usize) -> u64 {
        self.numbers[row]
    }
}

/// Returns the rows with such keys of records in order.
fn rows_of(columns: &KeyColumns<'_>, keys: &RangeInclusive<Key>) -> Range<usize> {
    let first = partition_point(columns.len(), |row| columns.key_at(row) < *keys.start());
    first..partition_point(columns.len(), |row| columns.key_at(row) <= *keys.end())
}

/// Returns the first row for which something does not hold, which holds for all rows before it.
fn partition_point(rows: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, rows);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Records in their order.
#[derive(Debug)]
pub(super) enum ShuffleRun {
    /// In memory.
    Held(RecordBatch),
    /// In a file.
    File(RunFile),
}

impl ShuffleRun {
    /// Writes records that are in order to a file, in blocks of so many records.
    pub(super) fn write(location: &Location, layout: &Layout, sorted: &RecordBatch, block_rows: usize) -> Result<Self> {
        let mut file = ShuffleRunWriter::create(location, layout.schema())?;
        let mut at = 0;
        while at < sorted.num_rows() {
            let rows = block_rows.clamp(1, sorted.num_rows() - at);
            file.push_block(layout, &sorted.slice(at, rows))?;
            at += rows;
        }
        file.finish()
    }

    /// Returns the number of records.
    pub(super) fn record_count(&self) -> u64 {
        match self {
            Self::Held(batch) => batch.num_rows() as u64,
            Self::File(file) => file.blocks.record_count(),
        }
    }

    /// Appends the records with such keys to others.
    pub(super) fn read(&self, layout: &Layout, keys: &RangeInclusive<Key>, out: &mut Vec<RecordBatch>) -> Result<()> {
        let mut add = |batch: &RecordBatch| {
            let rows = rows_of(&KeyColumns::from_batch(layout, batch), keys);
            if !rows.is_empty() {
                out.push(batch.slice(rows.start, rows.len()));
            }
        };
        match self {
            Self::Held(batch) => add(batch),
            Self::File(file) => file.read(keys)?.iter().for_each(add),
        }
        Ok(())
    }
}

/// Returns records in order, without the first `dropped` columns.
pub(super) fn sort_records(layout: &Layout, batches: &[RecordBatch], dropped: usize) -> Result<RecordBatch> {
    let mut order: Vec<(Key, u64, u32)> = Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
    let mut at = 0_u32;
    for batch in batches {
        let keys = KeyColumns::from_batch(layout, batch);
        let end = u32::try_from(keys.len()).ok().and_then(|rows| at.checked_add(rows));
        let end = end.ok_or_else(|| Error::internal("too many records to be sorted at a time"))?;
        order.extend((0..).zip(at..end).map(|(row, place)| (keys.key_at(row), keys.number_at(row), place)));
        at = end;
    }
    // Not an unstable sort: that of sorted pieces is a merge.
    order.sort_by_key(|(key, number, _)| (*key, *number));
    let order = UInt32Array::from_iter_values(order.into_iter().map(|(_, _, place)| place));
    let wanted: Vec<usize> = (dropped..layout.schema().fields().len()).collect();
    let schema: SchemaRef = Arc::new(layout.schema().project(&wanted)?);
    if order.is_empty() {
        return Ok(RecordBatch::new_empty(schema));
    }
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(wanted.len());
    // One column at a time, because all of them take twice the memory.
    for column in &wanted {
        let parts: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(*column).as_ref()).collect();
        columns.push(take(&concat(&parts)?, &order, None)?);
    }
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// A run in a temporary file, which is deleted on drop.
#[derive(Debug)]
pub(super) struct RunFile {
    blocks: SpilledBatches,
    /// First key of each block.
    firsts: Vec<Key>,
}

impl RunFile {
    /// Returns the blocks that may have records with such keys.
    fn read(&self, keys: &RangeInclusive<Key>) -> Result<Vec<RecordBatch>> {
        // The block before may end with records of the interval.
        let from = self.firsts.partition_point(|first| first < keys.start()).saturating_sub(1);
        self.blocks.read(from..self.firsts.partition_point(|first| first <= keys.end()))
    }
}

/// Writes a run to a file, one block after the other.
pub(super) struct ShuffleRunWriter {
    writer: SpillWriter,
    firsts: Vec<Key>,
}

impl ShuffleRunWriter {
    /// Creates a file.
    pub(super) fn create(location: &Location, schema: &SchemaRef) -> Result<Self> {
        Ok(Self { writer: SpillWriter::create(location, schema, None)?, firsts: Vec::new() })
    }

    /// Appends records that follow those before.
    pub(super) fn push_block(&mut self, layout: &Layout, block: &RecordBatch) -> Result<()> {
        if block.num_rows() == 0 {
            return Ok(());
        }
        self.firsts.push(KeyColumns::from_batch(layout, block).key_at(0));
        self.writer.push(block)
    }

    /// Finishes the file.
    pub(super) fn finish(self) -> Result<ShuffleRun> {
        Ok(ShuffleRun::File(RunFile { blocks: self.writer.finish()?, firsts: self.firsts }))
    }
}
