//! Sorts shards: an external merge sort over whole records that produces a set of shards with disjoint ranges.
//!
//! Every record travels with its sidecar row, its number and its first version, so each move affects all of them:
//!
//! ```text
//! unsorted shards -> runs of --memory / 9, sorted side by side -> temporary files --+
//! sorted shards -------------------------------------------------------------------+-> merge -> row groups -> shards
//!                                                                                       numbers -> places of the set
//! ```
//!
//! The sum of hashes over all columns of all records is computed when they are read and again when they are encoded;
//! both must agree before anything is committed.

pub(in crate::exec) mod keys;
pub(in crate::exec) mod pairs;
pub(in crate::exec) mod runs;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, UInt64Array},
    compute::concat_batches,
    datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, UInt64Type},
};

use rayon::prelude::*;

use self::{
    keys::{Keys, Ranks, SAMPLE_ROWS, columns_of},
    pairs::Pairs,
    runs::{Batches, MergedRuns, SortRun, batch_rows, reduce_runs},
};
use super::{
    encode::sorted_parquet_encoder,
    ordered::{group_by_bytes, run_ordered},
    rewrite::{self, Rewriter},
    shard::{FinishedShard, ParquetShardWriter, ShardNaming},
};
use crate::{
    dataset::{
        Arrangement, Dataset, NumbersWriter, Order, PlaceRef, PlacesWriter, Run as NumberRun, RunTable, Scattered,
        ShardMeta, ShardOrder, SidecarColumns, SidecarGroups, numbered_rows, sidecar_batches, sidecar_schema,
        with_fingerprints,
    },
    error::{Error, Result},
    events::{Cancel, Event},
    format::parquet::{ParquetEncoder, RowGroup, cast_to, logical_bytes},
    id::Version,
    plan::{
        roll::rolls_before,
        sort::{Range, SortMemory},
    },
    record::{BATCH_ROWS, hash::row_hashes},
    schema::schema_of,
    storage::Staged,
};

/// A shard with its live runs.
pub type SortInput = (ShardMeta, Vec<NumberRun>);

/// One sort.
#[derive(Debug, Clone)]
pub struct Sort {
    /// Shards whose records are in another order.
    pub unsorted: Vec<SortInput>,
    /// Shards in the wanted order, grouped by set, each group in the order of its set.
    pub sets: Vec<Vec<SortInput>>,
    /// Path of the new shards' folder below that of the compaction: `/`, or `/key=value/`.
    pub partition: String,
    /// Name of the new set.
    pub set: String,
}

impl Sort {
    fn all_inputs(&self) -> impl Iterator<Item = &SortInput> {
        self.unsorted.iter().chain(self.sets.iter().flatten())
    }
}

/// Settings for sorts.
pub struct Sorter<'a> {
    /// The dataset whose shards are sorted.
    pub rewriter: Rewriter<'a>,
    /// Current and former places of record numbers.
    pub runs: &'a RunTable,
    /// Order of the records.
    pub order: &'a Order,
    /// Names and codec of new shards.
    pub naming: &'a ShardNaming,
    /// Target size of a shard, in bytes.
    pub target: u64,
    /// Memory limits.
    pub memory: SortMemory,
    /// Number of threads.
    pub jobs: usize,
}

/// Result of a sort.
#[derive(Debug, Default)]
pub struct Sorted {
    /// The new shards, in order.
    pub shards: Vec<FinishedShard>,
    /// Tables of places of their records, if runs cannot express them.
    pub places: Vec<PlaceRef>,
    /// The staged tables of places.
    pub staged: Vec<Staged>,
}

/// Minimum average number of records per plain run. Plain runs use memory in every command that opens the dataset, so
/// if there are more of them, a table of numbers beside the shard replaces them.
const RECORDS_PER_RUN: u64 = 256;

/// Returns the minimum and maximum value of each shard in an order, as bytes that compare like the values; `None` for
/// shards without records. For shards in that order, only the first and last rows are read.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the columns cannot be ordered that way; also fails if a shard cannot
/// be read.
pub fn shard_ranges(
    dataset: &Dataset,
    shards: &[(&ShardMeta, bool)],
    order: &Order,
    cancel: &Cancel,
) -> Result<Vec<Option<Range>>> {
    let united = rewrite::united_schema(dataset, shards.iter().map(|(shard, _)| *shard))?;
    let columns = columns_of(&united, order)?;
    let fields: Fields = columns.iter().map(|column| Arc::clone(&united.fields()[*column])).collect();
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    let schema = schema_of(&fields);
    let converter = keys::row_converter(fields.iter().map(|field| field.data_type()))?;
    shards
        .par_iter()
        .map(|(shard, sorted)| {
            let file = rewrite::open_parquet_shard(dataset, shard)?.with_columns(&names);
            let file = if *sorted { file.with_ends() } else { file };
            let mut range: Option<Range> = None;
            for batch in file.into_batches(BATCH_ROWS) {
                cancel.check()?;
                let rows = converter.convert_columns(cast_to(&batch?, &schema)?.columns())?;
                let (Some(least), Some(most)) = (rows.iter().min(), rows.iter().max()) else { continue };
                let (first, last) = range.get_or_insert_with(|| (least.data().to_vec(), most.data().to_vec()));
                if least.data() < first.as_slice() {
                    *first = least.data().to_vec();
                }
                if most.data() > last.as_slice() {
                    *last = most.data().to_vec();
                }
            }
            Ok(range)
        })
        .collect()
}

/// Columns of a record while it is sorted: those of the shard, those of the sidecar, its number and its first version.
struct SortLayout {
    data: SchemaRef,
    /// Whether sidecars have a column of fingerprints.
    fingerprints: bool,
    all: SchemaRef,
}

impl SortLayout {
    fn new(data: SchemaRef, fingerprints: bool) -> Self {
        let number = |name: &str| -> FieldRef { Arc::new(Field::new(name, DataType::UInt64, false)) };
        let sidecar = sidecar_schema(fingerprints);
        let fields = data.fields().iter().chain(sidecar.fields()).cloned();
        let all = fields.chain([number("record"), number("first_version")]).collect::<Fields>();
        Self { data, fingerprints, all: Arc::new(Schema::new(all)) }
    }

    /// Returns the index of the column of record numbers.
    fn number_column(&self) -> usize {
        self.all.fields().len() - 2
    }

    fn data_of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns()[..self.data.fields().len()].to_vec();
        Ok(RecordBatch::try_new(Arc::clone(&self.data), columns)?)
    }

    fn sidecar_of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns()[self.data.fields().len()..self.number_column()].to_vec();
        Ok(RecordBatch::try_new(sidecar_schema(self.fingerprints), columns)?)
    }

    fn numbers_of(&self, batch: &RecordBatch) -> Vec<(u64, Version)> {
        let column = |i: usize| batch.column(i).as_primitive::<UInt64Type>().values();
        let versions = column(self.number_column() + 1).iter().map(|version| Version(*version));
        column(self.number_column()).iter().copied().zip(versions).collect()
    }
}

/// Order-independent sum of the hashes of records.
#[derive(Debug, Default)]
pub(in crate::exec) struct Sum {
    hashes: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Sum {
    pub(in crate::exec) fn add_batch(&self, batch: &RecordBatch) {
        let sum = row_hashes(batch).into_iter().fold(0, u64::wrapping_add);
        self.hashes.fetch_add(sum, Ordering::Relaxed);
        self.records.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(logical_bytes(batch), Ordering::Relaxed);
    }

    /// Returns the number of records, and the sum.
    pub(in crate::exec) fn get(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.hashes.load(Ordering::Relaxed))
    }

    /// Returns the bytes of the records in memory.
    pub(in crate::exec) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// An encoded row group of sorted records.
struct SortedGroup {
    group: RowGroup,
    rows: SidecarGroups,
    numbers: Vec<(u64, Version)>,
}

impl Sorter<'_> {
    /// Sorts the records of shards.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if they cannot be ordered that way; also fails if an input is damaged
    /// or the store fails.
    pub fn sort_shards(&self, sort: &Sort) -> Result<Sorted> {
        let layout = SortLayout::new(
            self.rewriter.united_schema(sort.all_inputs().map(|(shard, _)| shard))?,
            self.naming.fingerprints,
        );
        let columns = columns_of(&layout.data, self.order)?;
        let curve = match self.order.by {
            Arrangement::Sort | Arrangement::Shuffle => None,
            Arrangement::ZOrder => Some(self.sample_ranks(sort, &layout, &columns)?),
        };
        let keys = Keys::new(&layout.all, &columns, layout.number_column(), curve)?;
        let (read, written) = (Sum::default(), Sum::default());
        let (sets, doubtful): (Vec<&Vec<SortInput>>, Vec<&Vec<SortInput>>) =
            sort.sets.iter().partition(|set| self.can_stream(set, &layout, &columns).unwrap_or(false));
        // Each streamed set keeps one shard open, with pages of every column.
        let (sets, more) = sets.split_at(sets.len().min(self.memory.fan_in / 8).max(1).min(sets.len()));
        let unsorted: Vec<&SortInput> =
            sort.unsorted.iter().chain(doubtful.into_iter().chain(more.iter().copied()).flatten()).collect();
        let runs = self.spill_runs(&unsorted, &layout, &keys, &read)?;
        let location = self.rewriter.store().location();
        let check = || self.rewriter.cancel.check();
        let runs = reduce_runs(runs, self.memory.fan_in - sets.len(), location, &layout.all, &keys, &check)?;
        let streams = sets.iter().map(|set| self.stream_set(set, &layout, &read)).collect();
        let merged = MergedRuns::new(&keys, runs, streams)?;
        let sorted = self.write(sort, &layout, merged, &written)?;
        if read.get() != written.get() {
            return Err(Error::inconsistent_output(format!(
                "expected the {} records that were read, found {} with other values",
                read.get().0,
                written.get().0
            )));
        }
        Ok(sorted)
    }

    /// Returns whether the shards of a set are sorted for this sort: values that are widened may have another order.
    fn can_stream(&self, set: &[SortInput], layout: &SortLayout, columns: &[usize]) -> Result<bool> {
        for (shard, _) in set {
            let file = self.rewriter.open_shard(shard)?;
            let same = |column: &usize| {
                let wanted = layout.data.field(*column);
                let found = file.schema().field_with_name(wanted.name());
                found.is_ok_and(|found| found.data_type().equals_datatype(wanted.data_type()))
            };
            if !columns.iter().all(same) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Computes quantiles of the columns of a Z-order from a sample of records at equal distances.
    fn sample_ranks(&self, sort: &Sort, layout: &SortLayout, columns: &[usize]) -> Result<Vec<Ranks>> {
        let records: u64 = sort.all_inputs().map(|(shard, _)| shard.records).sum();
        let every = records.div_ceil(SAMPLE_ROWS).max(1);
        let fields: Vec<FieldRef> = columns.iter().map(|column| Arc::clone(&layout.data.fields()[*column])).collect();
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let schema = schema_of(&fields.iter().cloned().collect());
        let mut samples: Vec<Vec<ArrayRef>> = vec![Vec::new(); columns.len()];
        let mut at = 0;
        for (shard, _) in sort.all_inputs() {
            for batch in self.rewriter.open_shard(shard)?.with_columns(&names).into_batches(BATCH_ROWS) {
                self.rewriter.cancel.check()?;
                let batch = batch?;
                let rows = batch.num_rows() as u64;
                let wanted: UInt64Array = (at..at + rows).filter(|row| row % every == 0).map(|row| row - at).collect();
                at += rows;
                // A shard without any of the columns yields as many nulls.
                let batch = cast_to(&batch, &schema)?;
                for (column, sample) in samples.iter_mut().enumerate() {
                    sample.push(arrow::compute::take(batch.column(column), &wanted, None)?);
                }
            }
        }
        samples.iter().zip(&fields).map(|(sample, field)| Ranks::new(sample, field.data_type())).collect()
    }

    /// Sorts records into runs that fit into memory.
    fn spill_runs(&self, inputs: &[&SortInput], layout: &SortLayout, keys: &Keys, read: &Sum) -> Result<Vec<SortRun>> {
        let location = self.rewriter.store().location();
        std::thread::scope(|scope| {
            let batches = inputs.iter().flat_map(|input| self.read_records(input, layout));
            let chunks = group_by_bytes(batches, self.memory.run_bytes, logical_bytes);
            let work = move |chunk: Vec<RecordBatch>| {
                chunk.iter().for_each(|batch| read.add_batch(batch));
                SortRun::sort_batches(location, &layout.all, keys, &chunk, self.memory.batch_bytes)
            };
            let runs = run_ordered(scope, chunks, self.jobs.min(2), 2, self.rewriter.cancel, work);
            Ok(runs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
        })
    }

    /// Returns the records of a sorted set in order, and the number of rows of a batch.
    fn stream_set<'s>(&'s self, set: &'s [SortInput], layout: &'s SortLayout, read: &'s Sum) -> (Batches<'s>, usize) {
        let rows = set.iter().map(|(shard, _)| self.rows_of_batch(shard)).min().unwrap_or(1);
        let batches = set.iter().flat_map(|input| self.read_records(input, layout));
        let counted = batches.inspect(|batch| {
            if let Ok(batch) = batch {
                read.add_batch(batch);
            }
        });
        (Box::new(counted), rows)
    }

    fn rows_of_batch(&self, shard: &ShardMeta) -> usize {
        batch_rows(shard.raw_bytes.max(shard.bytes), shard.records, self.memory.batch_bytes)
    }

    /// Returns the records of a shard with their sidecar rows, numbers and first versions.
    fn read_records<'s>(&'s self, input: &'s SortInput, layout: &'s SortLayout) -> Batches<'s> {
        match self.open_records(input, layout) {
            Ok(records) => records,
            Err(e) => Box::new(std::iter::once(Err(e))),
        }
    }

    fn open_records<'s>(&'s self, (shard, runs): &'s SortInput, layout: &'s SortLayout) -> Result<Batches<'s>> {
        self.rewriter.verify_checksum(shard)?;
        let rows = self.rows_of_batch(shard);
        let mut data = self.rewriter.open_shard(shard)?.into_batches(rows);
        let mut sidecar =
            Slices { batches: sidecar_batches(self.rewriter.dataset.store(), &shard.sidecar(), rows)?, rest: None };
        let live: Vec<&NumberRun> = runs.iter().collect();
        let mut numbers = numbered_rows(self.rewriter.dataset.store(), &live, self.runs)?;
        let mut left = shard.records;
        let mut next = move || -> Result<Option<RecordBatch>> {
            self.rewriter.cancel.check()?;
            let wrong = |found: String| {
                let message = format!("expected {} records, found {found}", shard.records);
                Err(Error::integrity(message).at_location(self.rewriter.location_of(shard)))
            };
            let Some(batch) = data.next().transpose()? else {
                return if left == 0 { Ok(None) } else { wrong(format!("{left} less")) };
            };
            let rows = batch.num_rows();
            left = match left.checked_sub(rows as u64) {
                Some(left) => left,
                None => return wrong("more".to_owned()),
            };
            let (mut records, mut versions) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
            for _ in 0..rows {
                match numbers.next().transpose()?.flatten() {
                    Some(known) => {
                        records.push(known.record);
                        versions.push(known.first_version.0);
                    }
                    None => return wrong("one without a number".to_owned()),
                }
            }
            let mut columns = cast_to(&batch, &layout.data)?.columns().to_vec();
            let of_sidecar = sidecar.take_rows(rows).and_then(|batch| with_fingerprints(&batch, layout.fingerprints));
            columns
                .extend_from_slice(of_sidecar.map_err(|e| e.at_location(self.rewriter.location_of(shard)))?.columns());
            columns.push(Arc::new(UInt64Array::from(records)));
            columns.push(Arc::new(UInt64Array::from(versions)));
            if left == 0 {
                self.rewriter.observer.event(Event::Read { bytes: shard.bytes, records: shard.records });
            }
            Ok(Some(RecordBatch::try_new(Arc::clone(&layout.all), columns)?))
        };
        Ok(Box::new(std::iter::from_fn(move || next().transpose())))
    }

    /// Encodes sorted records and appends them to shards.
    fn write(&self, sort: &Sort, layout: &SortLayout, merged: MergedRuns<'_>, written: &Sum) -> Result<Sorted> {
        let parquet = &sorted_parquet_encoder(self.naming.codec, &layout.data, self.order, Vec::new())?;
        let mut shards = Shards::new(self, sort, parquet);
        let limit = self.group_bytes(sort);
        std::thread::scope(|scope| {
            let mut batches = merged.peekable();
            let groups = std::iter::from_fn(move || {
                batches.peek()?;
                let (mut group, mut bytes) = (Vec::new(), 0);
                while bytes < limit {
                    let next = match batches.next() {
                        None => break,
                        Some(next) => next.and_then(|batch| Ok((logical_bytes(&layout.data_of(&batch)?), batch))),
                    };
                    match next {
                        Err(e) => return Some(Err(e)),
                        Ok((more, batch)) => {
                            bytes += more;
                            group.push(batch);
                        }
                    }
                }
                Some(Ok(group))
            });
            let encode = move |group: Vec<RecordBatch>| {
                let data: Vec<RecordBatch> = group.iter().map(|batch| layout.data_of(batch)).collect::<Result<_>>()?;
                let (mut rows, mut numbers) = (Vec::new(), Vec::new());
                for batch in &group {
                    written.add_batch(batch);
                    rows.push(SidecarColumns::from_batch(&layout.sidecar_of(batch)?)?);
                    numbers.extend(layout.numbers_of(batch));
                }
                drop(group);
                let rows = SidecarGroups::encode_columns(&SidecarColumns::join_parts(rows)?, layout.fingerprints)?;
                Ok(SortedGroup { group: parquet.encode(&data)?, rows, numbers })
            };
            // One thread encodes, by columns on all processors, while another merges.
            for unit in run_ordered(scope, groups, 1, 2, self.rewriter.cancel, encode) {
                shards.append_group(unit?)?;
            }
            shards.finish()
        })
    }

    /// Returns the byte limit of a row group: as large as allowed, but small enough to end a shard near its target.
    fn group_bytes(&self, sort: &Sort) -> u64 {
        let sum = |of: fn(&ShardMeta) -> u64| sort.all_inputs().map(|(shard, _)| of(shard)).sum::<u64>().max(1);
        let (raw, stored) = (sum(|shard| shard.raw_bytes), sum(|shard| shard.bytes));
        let part = u128::from(self.target / 8) * u128::from(raw) / u128::from(stored);
        u64::try_from(part).unwrap_or(u64::MAX).clamp(1 << 16, self.rewriter.row_group.max(1 << 16))
    }
}

/// Cuts batches to other lengths.
struct Slices<I> {
    batches: I,
    rest: Option<RecordBatch>,
}

impl<I: Iterator<Item = Result<RecordBatch>>> Slices<I> {
    /// Returns the next `rows` rows.
    fn take_rows(&mut self, rows: usize) -> Result<RecordBatch> {
        let mut parts: Vec<RecordBatch> = Vec::new();
        let mut missing = rows;
        while missing > 0 {
            let batch = match self.rest.take() {
                Some(batch) => batch,
                None => match self.batches.next() {
                    Some(batch) => batch?,
                    None => return Err(Error::integrity(format!("expected {missing} more rows of the sidecar"))),
                },
            };
            let taken = missing.min(batch.num_rows());
            if taken < batch.num_rows() {
                self.rest = Some(batch.slice(taken, batch.num_rows() - taken));
            }
            parts.push(batch.slice(0, taken));
            missing -= taken;
        }
        match parts.as_slice() {
            [one] => Ok(one.clone()),
            parts => {
                Ok(concat_batches(&parts.first().map_or_else(|| sidecar_schema(false), RecordBatch::schema), parts)?)
            }
        }
    }
}

/// Shards that are written from sorted records.
struct Shards<'a> {
    sorter: &'a Sorter<'a>,
    parquet: &'a ParquetEncoder,
    naming: ShardNaming,
    set: &'a str,
    open: Option<(ParquetShardWriter, NumbersWriter, Bounds)>,
    finished: Vec<(FinishedShard, Staged, Bounds)>,
    pairs: Pairs<'a>,
    /// Plain runs of all shards, as long as there are few.
    plain: Option<BTreeMap<usize, PlainRuns>>,
    plain_runs: u64,
    /// Number and first version of the previous record.
    last: (u64, Version),
    records: u64,
}

/// (first record, records, ordinal) of the plain runs of a shard, and the first version of each.
type PlainRuns = (Vec<(u64, u64, u64)>, Vec<Version>);

/// Minimum and maximum record number of a shard, and its number of records.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    first: u64,
    last: u64,
    records: u64,
}

impl<'a> Shards<'a> {
    fn new(sorter: &'a Sorter<'a>, sort: &'a Sort, parquet: &'a ParquetEncoder) -> Self {
        Self {
            sorter,
            parquet,
            naming: sorter.naming.in_partition(&sort.partition),
            set: &sort.set,
            open: None,
            finished: Vec::new(),
            pairs: Pairs::new(sorter.rewriter.store(), sorter.rewriter.cancel, sorter.memory.fan_in),
            plain: Some(BTreeMap::new()),
            plain_runs: 0,
            last: (0, Version(0)),
            records: sort.all_inputs().map(|(shard, _)| shard.records).sum(),
        }
    }

    fn append_group(&mut self, unit: SortedGroup) -> Result<()> {
        let size = self.open.as_ref().map_or(0, |(open, ..)| open.bytes_written());
        if rolls_before(size, unit.group.encoded_bytes, self.sorter.target) {
            self.roll_shard()?;
        }
        let shard = self.finished.len();
        if self.open.is_none() {
            let store = self.sorter.rewriter.store();
            let open = ParquetShardWriter::create(store, self.parquet, &self.naming, shard)?;
            let numbers = NumbersWriter::create(store, &self.naming.shard_path(shard))?;
            self.open = Some((open, numbers, Bounds { first: u64::MAX, last: 0, records: 0 }));
        }
        let Some((open, numbers, bounds)) = &mut self.open else {
            return Err(Error::internal("no shard is open"));
        };
        open.append_row_group(unit.group, unit.rows)?;
        for (record, version) in unit.numbers {
            numbers.push(record, version)?;
            self.pairs.push(record, shard, bounds.records)?;
            if let Some(plain) = &mut self.plain {
                let (runs, since) = plain.entry(shard).or_default();
                match runs.last_mut() {
                    Some((_, length, _)) if (record, version) == (self.last.0 + 1, self.last.1) => *length += 1,
                    _ => {
                        runs.push((record, 1, bounds.records));
                        since.push(version);
                        self.plain_runs += 1;
                    }
                }
                if self.plain_runs > (self.records / RECORDS_PER_RUN).max(16) {
                    self.plain = None;
                }
            }
            self.last = (record, version);
            bounds.first = bounds.first.min(record);
            bounds.last = bounds.last.max(record);
            bounds.records += 1;
        }
        Ok(())
    }

    fn roll_shard(&mut self) -> Result<()> {
        let Some((open, numbers, bounds)) = self.open.take() else { return Ok(()) };
        let finished = open.finish(&[(bounds.first, None)])?;
        self.sorter.rewriter.observer.event(Event::Shard { bytes: finished.shard.meta.bytes });
        self.finished.push((finished, numbers.finish()?, bounds));
        Ok(())
    }

    /// Finishes the last shard and records where the records are: as plain runs if there are few, else as numbers and
    /// places.
    fn finish(mut self) -> Result<Sorted> {
        self.roll_shard()?;
        let mut sorted = Sorted::default();
        let first_record = self.finished.iter().map(|(_, _, bounds)| bounds.first).min().unwrap_or_default();
        let order = ShardOrder { order: self.sorter.order.clone(), set: self.set.to_owned() };
        for (number, (mut finished, numbers, bounds)) in self.finished.into_iter().enumerate() {
            let shard = &mut finished.shard;
            shard.meta.first_record = first_record;
            shard.meta.order = Some(order.clone());
            match &mut self.plain {
                Some(plain) => (shard.runs, shard.since) = plain.remove(&number).unwrap_or_default(),
                None => {
                    let span = bounds.last - bounds.first + 1;
                    shard.scattered =
                        Some(Scattered { span, set: self.set.to_owned(), shard: number as u64, base: None });
                    finished.staged.insert(0, numbers);
                }
            }
            sorted.shards.push(finished);
        }
        if self.plain.is_none() {
            let places = PlacesWriter::new(self.sorter.rewriter.store(), self.set)?;
            (sorted.places, sorted.staged) = self.pairs.finish(places)?.into_iter().unzip();
        }
        Ok(sorted)
    }
}
