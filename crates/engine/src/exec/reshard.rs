//! Writes the shards of a dataset that is cut from another one.
//!
//! ```text
//! shards of the parent    | 0 1 2 3 4 | 5 6 7 8 |          a record that is kept is in one new shard
//!                             x           x x
//! new shards              | 0 2 3 | 4 5 8 |                bytes, sidecar rows and, under new numbers, runs
//! ```
//!
//! Records of tar and TFRecord are copied as they are stored (`stream`), row groups of Parquet page by page (`rows`);
//! ends of new shards are moved a little to where pages begin. Only units and row groups of which some records are
//! omitted, and columns whose pages do not begin where a shard does, are decoded. Nothing of a record that is omitted
//! is copied.

pub mod filter;
mod rows;
pub mod shuffle;
mod stream;

use std::{
    cmp::Reverse,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    buffer::BooleanBuffer,
    compute::filter_record_batch,
};

use super::{
    rewrite::Rewriter,
    shard::{FinishedShard, ShardNaming},
};
use crate::{
    dataset::{
        ContentHashes, Dataset, NumbersWriter, PlaceRef, PlacesWriter, RecordExtents, Renumbering, Run, RunTable,
        Scattered, ShardMeta, ShardOrder, numbered_rows, read_sidecar_range, sidecar_batches,
    },
    error::{Error, Result},
    events::Event,
    format::{
        parquet::{Source, Tally},
        ranged::RangedInput,
    },
    id::Version,
    plan::reshard::Share,
    record::BATCH_ROWS,
    storage::Staged,
};

/// The end of a Parquet shard may be moved by a shard's size divided by this to the next end of a row group.
const SNAP: u128 = 20;

/// The same for the end of a page.
const PAGE_SNAP: u128 = 10;

/// A shard of the parent, and which of its records are kept.
#[derive(Debug)]
pub struct Stock {
    /// The shard.
    pub shard: ShardMeta,
    /// Its runs, in row order.
    pub runs: Vec<Run>,
    /// Whether each of its records is kept; `None` if all are.
    pub kept: Option<BooleanBuffer>,
    /// Records that are kept, and their bytes.
    pub share: Share,
    /// Bytes of the kept records before compression; of Parquet, stored bytes.
    raw_bytes: u128,
    verified: Mutex<bool>,
}

impl Stock {
    /// Returns a shard whose kept records were not weighed yet.
    pub fn new(shard: ShardMeta, runs: Vec<Run>, kept: Option<BooleanBuffer>) -> Self {
        let records = kept.as_ref().map_or(shard.records, |kept| kept.count_set_bits() as u64);
        let share = Share { records, bytes: shard.bytes };
        let kept = kept.filter(|_| records < shard.records);
        let raw_bytes = u128::from(shard.raw_bytes);
        Self { shard, runs, kept, share, raw_bytes, verified: Mutex::default() }
    }

    /// Weighs the kept records of a shard.
    ///
    /// # Errors
    /// When the shard or its sidecar cannot be read.
    pub fn weigh_kept(&mut self, rewriter: &Rewriter<'_>) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let (mut all, mut of_kept) = (0_u128, 0_u128);
        if is_framed(self) {
            let mut at = 0;
            for batch in sidecar_batches(rewriter.dataset.store(), &self.shard.sidecar(), BATCH_ROWS)? {
                rewriter.cancel.check()?;
                for length in RecordExtents::from_batch(&batch?)?.lengths.values() {
                    all += u128::from(*length);
                    of_kept += if at < kept.len() && kept.value(at) { u128::from(*length) } else { 0 };
                    at += 1;
                }
            }
        } else {
            let mut at = 0;
            for group in rewriter.open_shard(&self.shard)?.row_groups() {
                let rows = count_kept(kept, at, group.rows);
                all += u128::from(group.encoded_bytes);
                of_kept += u128::from(group.encoded_bytes) * u128::from(rows) / u128::from(group.rows.max(1));
                at += group.rows;
            }
        }
        let bytes = u128::from(self.shard.bytes) * of_kept / all.max(1);
        self.raw_bytes = of_kept;
        self.share.bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(1);
        Ok(())
    }

    /// Returns the rows of some kept records as ranges of consecutive rows; `kept` counts kept records only.
    fn row_ranges(&self, kept: &Range<u64>) -> Vec<Range<u64>> {
        let Some(bits) = &self.kept else { return vec![kept.clone()] };
        let (mut out, mut at) = (Vec::new(), 0);
        for (start, end) in bits.set_slices() {
            let (start, end) = (start as u64, end as u64);
            let (first, last) = (at.max(kept.start), (at + (end - start)).min(kept.end));
            if first < last {
                out.push(start + (first - at)..start + (last - at));
            }
            at += end - start;
            if at >= kept.end {
                break;
            }
        }
        out
    }
}

/// Kept records of a shard that go to a new shard, counted among the kept ones.
#[derive(Debug, Clone)]
pub struct StockPart<'a> {
    /// The shard.
    pub stock: &'a Stock,
    /// The records.
    pub kept: Range<u64>,
}

/// A new shard.
#[derive(Debug, Clone)]
pub struct NewCut<'a> {
    /// What it is made of, in order.
    pub parts: Vec<StockPart<'a>>,
    /// Its folder, format, codec and indexes.
    pub naming: ShardNaming,
    /// Its number in the folder.
    pub number: usize,
    /// Sort key of the shards that were sorted together.
    pub first_of_set: u64,
}

impl NewCut<'_> {
    fn record_count(&self) -> u64 {
        self.parts.iter().map(|part| part.kept.end - part.kept.start).sum()
    }
}

/// Settings for writing the shards.
pub struct Resharder<'a> {
    /// The parent.
    pub rewriter: Rewriter<'a>,
    /// The new dataset.
    pub child: &'a Dataset,
    /// Places of the parent's record numbers.
    pub runs: &'a RunTable,
    /// New record numbers.
    pub numbering: &'a Renumbering,
    /// How content hashes are compared.
    pub hashes: ContentHashes,
    /// Target that the new shards are marked with, so that a compaction leaves them as they are.
    pub settled_for: u64,
    /// Whether runs stay apart whose numbers follow each other: they may have come in different versions.
    pub keeps_runs: bool,
}

/// A written shard.
#[derive(Debug)]
pub struct CutShard {
    /// The shard, which is not published yet.
    pub finished: FinishedShard,
    /// How the bytes of its records were processed.
    pub tally: Tally,
    /// Tables of places of its records, if it is sorted.
    pub places: Vec<PlaceRef>,
}

impl Resharder<'_> {
    /// Returns for some ascending marks, in bytes of a shard's kept records, the number of kept records before the
    /// nearest place where a new shard may begin. New shards have about `even` bytes.
    ///
    /// # Errors
    /// When the shard or its sidecar cannot be read.
    pub fn shard_ends(&self, stock: &Stock, marks: &[u64], even: u64) -> Result<Vec<u64>> {
        if is_framed(stock) {
            return self.ends_of_records(stock, marks);
        }
        let shard = &stock.shard;
        let object = self.rewriter.dataset.object_at(&shard.path, shard.bytes);
        let source = Source::open(RangedInput::Object(object), &self.rewriter.location_of(shard))?;
        let mut places: Vec<(u64, u128)> = Vec::new();
        let (mut records, mut bytes) = (0, 0_u128);
        let mut at = 0;
        for group in source.row_groups() {
            let rows = stock.kept.as_ref().map_or(group.rows, |kept| count_kept(kept, at, group.rows));
            records += rows;
            bytes += u128::from(group.encoded_bytes) * u128::from(rows) / u128::from(group.rows.max(1));
            places.push((records, bytes));
            at += group.rows;
        }
        let ends: Vec<End> = marks.iter().map(|mark| nearest_end(&places, *mark, even, stock.share)).collect();
        if stock.kept.is_some() || ends.iter().all(|end| end.inside.is_none()) {
            return Ok(ends.into_iter().map(|end| end.records).collect());
        }
        let source = source.with_indexes()?;
        Ok(ends.iter().map(|end| end.at_page(&source)).collect())
    }

    /// Returns the ends of records that are nearest to some ascending marks.
    fn ends_of_records(&self, stock: &Stock, marks: &[u64]) -> Result<Vec<u64>> {
        let scaled = |mark: &u64| u128::from(*mark) * stock.raw_bytes / u128::from(stock.share.bytes.max(1));
        let mut left = marks.iter().map(scaled).peekable();
        let mut out = Vec::with_capacity(marks.len());
        let (mut at, mut records, mut bytes) = (0, 0, 0_u128);
        for batch in sidecar_batches(self.rewriter.dataset.store(), &stock.shard.sidecar(), BATCH_ROWS)? {
            self.rewriter.cancel.check()?;
            for length in RecordExtents::from_batch(&batch?)?.lengths.values() {
                if stock.kept.as_ref().is_none_or(|kept| at < kept.len() && kept.value(at)) {
                    let end = bytes + u128::from(*length);
                    while let Some(mark) = left.next_if(|mark| *mark <= end) {
                        out.push(if end - mark < mark.saturating_sub(bytes) { records + 1 } else { records });
                    }
                    (records, bytes) = (records + 1, end);
                }
                at += 1;
            }
            if left.peek().is_none() {
                break;
            }
        }
        out.extend(left.map(|_| records));
        Ok(out)
    }

    /// Writes a new shard.
    ///
    /// # Errors
    /// When a shard of the parent is damaged, or a store fails.
    pub fn write(&self, new: &NewCut<'_>) -> Result<CutShard> {
        self.rewriter.cancel.check()?;
        let (mut finished, tally) = match new.naming.format.facts().framing {
            Some(framing) => self.write_stream(new, framing)?,
            None => self.write_rows(new)?,
        };
        let shard = &mut finished.shard;
        if shard.meta.records != new.record_count() {
            let (expected, found) = (new.record_count(), shard.meta.records);
            return Err(Error::inconsistent_output(format!("expected {expected} records, found {found}")));
        }
        shard.meta.compacted_for = self.settled_for;
        let mut places = Vec::new();
        if let Some(order) = new.parts.first().and_then(|part| part.stock.shard.order.as_ref()) {
            let set = format!("{}-{}", new.naming.tag.replace('/', "-"), new.number);
            shard.meta.order = Some(ShardOrder { order: order.order.clone(), set: set.clone() });
            shard.meta.first_record = new.first_of_set;
            if new.parts.iter().any(is_scattered) {
                let (table, mut staged) = self.write_number_tables(new, &set, &mut finished)?;
                places = table;
                staged.append(&mut finished.staged);
                finished.staged = staged;
            }
        }
        let meta = finished.meta();
        self.rewriter.observer.event(Event::Read { bytes: meta.bytes, records: meta.records });
        self.rewriter.observer.event(Event::Shard { bytes: meta.bytes });
        Ok(CutShard { finished, tally, places })
    }

    /// Returns the first record number and the length of each run of a new shard; sorted ones get theirs from
    /// [`write_number_tables`](Self::write_number_tables).
    fn new_runs(&self, new: &NewCut<'_>) -> Result<Vec<(u64, Option<u64>)>> {
        if new.parts.iter().any(is_scattered) {
            return Ok(vec![(new.first_of_set, None)]);
        }
        let mut out: Vec<(u64, Option<u64>)> = Vec::new();
        for part in &new.parts {
            let mut runs = part.stock.runs.iter().peekable();
            for rows in part.stock.row_ranges(&part.kept) {
                let mut at = rows.start;
                while at < rows.end {
                    while runs.next_if(|run| run.ordinal + run.records <= at).is_some() {}
                    let run = runs.peek().filter(|run| run.ordinal <= at);
                    let old =
                        run.map(|run| (run.first + (at - run.ordinal), (run.ordinal + run.records).min(rows.end)));
                    let (old, end) = old.ok_or_else(|| unnumbered_error(part.stock, at))?;
                    let first = self.numbering.new_number(old).ok_or_else(|| unnumbered_error(part.stock, at))?;
                    match out.last_mut() {
                        Some((last, Some(records))) if !self.keeps_runs && *last + *records == first => {
                            *records += end - at;
                        }
                        _ => out.push((first, Some(end - at))),
                    }
                    at = end;
                }
            }
        }
        Ok(out)
    }

    /// Writes the tables of numbers and places of a sorted shard.
    fn write_number_tables(
        &self,
        new: &NewCut<'_>,
        set: &str,
        finished: &mut FinishedShard,
    ) -> Result<(Vec<PlaceRef>, Vec<Staged>)> {
        let store = self.child.store();
        let mut numbers = NumbersWriter::create(store.as_ref(), &finished.shard.meta.path)?;
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        for part in &new.parts {
            let runs: Vec<&Run> = part.stock.runs.iter().collect();
            let rows = part.stock.row_ranges(&part.kept);
            let mut wanted = rows.iter().cloned().flatten().peekable();
            for (row, known) in (0..).zip(numbered_rows(self.rewriter.dataset.store(), &runs, self.runs)?) {
                if wanted.next_if_eq(&row).is_none() {
                    continue;
                }
                let old = known?.ok_or_else(|| unnumbered_error(part.stock, row))?.record;
                let record = self.numbering.new_number(old).ok_or_else(|| unnumbered_error(part.stock, row))?;
                numbers.push(record, Version(1))?;
                pairs.push((record, pairs.len() as u64));
            }
        }
        pairs.sort_unstable();
        let mut places = PlacesWriter::new(store.as_ref(), set)?;
        pairs.iter().try_for_each(|(record, ordinal)| places.push(*record, 0, *ordinal))?;
        let (tables, mut staged): (Vec<PlaceRef>, Vec<Staged>) = places.finish()?.into_iter().unzip();
        staged.push(numbers.finish()?);
        let (first, last) = (pairs.first().map_or(0, |pair| pair.0), pairs.last().map_or(0, |pair| pair.0));
        finished.shard.scattered =
            Some(Scattered { span: last - first + 1, set: set.to_owned(), shard: 0, base: None });
        finished.shard.runs = vec![(first, pairs.len() as u64, 0)];
        Ok((tables, staged))
    }

    /// Verifies the checksum of a whole shard, once however many new shards it becomes.
    fn verify_once(&self, stock: &Stock) -> Result<()> {
        let mut verified = stock.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if !*verified {
            self.rewriter.verify_checksum(&stock.shard)?;
            *verified = true;
        }
        Ok(())
    }

    /// Returns the sidecar rows of some rows of a shard.
    fn sidecar_rows(&self, stock: &Stock, rows: &[Range<u64>]) -> Result<Vec<RecordBatch>> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(Vec::new()) };
        let store = self.rewriter.dataset.store();
        let batches = read_sidecar_range(store, &stock.shard.sidecar(), first.start..last.end)?;
        if rows.len() == 1 {
            return Ok(batches);
        }
        let mut filter = RowPicker::new(rows, first.start);
        batches.iter().map(|batch| filter.pick_rows(batch)).collect()
    }

    fn locate_error(&self, error: Error, shard: &ShardMeta) -> Error {
        if error.place().source.is_none() { error.at_location(self.rewriter.location_of(shard)) } else { error }
    }
}

/// Picks rows from consecutive batches.
struct RowPicker<'a> {
    rows: &'a [Range<u64>],
    at: u64,
}

impl<'a> RowPicker<'a> {
    /// Starts with the batch that begins with row `at`.
    fn new(rows: &'a [Range<u64>], at: u64) -> Self {
        Self { rows, at }
    }

    fn pick_rows(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let end = self.at + batch.num_rows() as u64;
        let mut keep = vec![false; batch.num_rows()];
        let mut kept = 0;
        while let Some(rows) = self.rows.first().filter(|rows| rows.start < end) {
            let (from, to) = (rows.start.max(self.at), rows.end.min(end));
            if from < to {
                let (from, to) = (row_index(from - self.at), row_index(to - self.at));
                keep[from..to].fill(true);
                kept += to - from;
            }
            if rows.end > end {
                break;
            }
            self.rows = &self.rows[1..];
        }
        self.at = end;
        if kept == keep.len() { Ok(batch.clone()) } else { Ok(filter_record_batch(batch, &BooleanArray::from(keep))?) }
    }
}

fn row_index(row: u64) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

fn is_framed(stock: &Stock) -> bool {
    !stock.shard.path.ends_with(".parquet")
}

fn is_scattered(part: &StockPart<'_>) -> bool {
    part.stock.runs.iter().any(|run| run.scattered.is_some())
}

fn unnumbered_error(stock: &Stock, row: u64) -> Error {
    Error::integrity(format!("row {row} has no record number")).at_location(stock.shard.path.clone())
}

/// Returns how many of some consecutive rows are kept.
fn count_kept(kept: &BooleanBuffer, first: u64, rows: u64) -> u64 {
    let first = row_index(first).min(kept.len());
    kept.slice(first, row_index(rows).min(kept.len() - first)).count_set_bits() as u64
}

/// Where a new shard may end.
struct End {
    /// Records before it.
    records: u64,
    /// If it is inside of a row group: its number, its first record, and by how many records the end may be moved.
    inside: Option<(usize, u64, u64)>,
}

impl End {
    /// Returns the records before the nearest row where pages begin: of as many bytes of columns as possible, for the
    /// other columns are decoded.
    fn at_page(&self, source: &Source) -> u64 {
        let Some((group, first, room)) = self.inside else { return self.records };
        let row = self.records - first;
        let near = source.page_starts(group).into_iter().filter(|(start, _)| start.abs_diff(row) <= room);
        let best = near.max_by_key(|(start, bytes)| (*bytes, Reverse(start.abs_diff(row))));
        best.map_or(self.records, |(start, _)| first + start)
    }
}

/// Returns the place of a mark, or the end of a row group that is near; `places` are the rows and bytes up to the end
/// of each row group.
fn nearest_end(places: &[(u64, u128)], mark: u64, even: u64, share: Share) -> End {
    let total = places.last().map_or(0, |(_, bytes)| *bytes);
    let scaled = |bytes: u64| u128::from(bytes) * total / u128::from(share.bytes.max(1));
    let (mark, even) = (scaled(mark), scaled(even));
    let after = places.partition_point(|(_, bytes)| *bytes < mark);
    let (first, start) = after.checked_sub(1).and_then(|i| places.get(i)).copied().unwrap_or((0, 0));
    let Some((last, end)) = places.get(after).copied() else { return End { records: first, inside: None } };
    let (behind, ahead) = (mark - start, end - mark);
    if behind.min(ahead) <= even / SNAP {
        return End { records: if behind <= ahead { first } else { last }, inside: None };
    }
    let rows = |bytes: u128| u64::try_from(bytes * u128::from(last - first) / (end - start).max(1)).unwrap_or(0);
    End { records: first + rows(behind), inside: Some((after, first, rows(even / PAGE_SNAP))) }
}
