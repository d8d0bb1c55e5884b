//! Sorted runs: as many records as fit into memory are sorted and written to a temporary file, in Arrow's stream
//! format, compressed with LZ4. A merge of all runs yields the total order.
//!
//! ```text
//! batches -> keys -> order of rows -> gathered a batch at a time -> file
//! files   -> heap of the first key of each -> rows in order -> gathered a batch at a time
//! ```

use arrow::{
    array::RecordBatch, compute::interleave_record_batch, datatypes::SchemaRef, ipc::CompressionType, row::Rows,
};

use super::keys::{Keys, key_prefix};
use crate::{
    error::{Error, Result},
    exec::spill::{self, SpillWriter, SpilledBatches},
    format::parquet::logical_bytes,
    record::BATCH_ROWS,
    storage::Location,
};

/// Batches in order, from any source.
pub(in crate::exec) type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch>> + Send + 'a>;

/// Returns the number of rows of a batch of `batch_bytes`, given that `rows` rows have `bytes` bytes.
pub(in crate::exec) fn batch_rows(bytes: u64, rows: u64, batch_bytes: u64) -> usize {
    let rows = batch_bytes.saturating_mul(rows.max(1)) / bytes.max(1);
    usize::try_from(rows.clamp(1, BATCH_ROWS as u64)).unwrap_or(1)
}

/// A sorted run in a temporary file, which is deleted on drop.
#[derive(Debug)]
pub(in crate::exec) struct SortRun(SpilledBatches);

impl SortRun {
    /// Writes batches that are already sorted; `None` if there are no rows.
    pub(in crate::exec) fn write(
        location: &Location,
        schema: &SchemaRef,
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<Option<Self>> {
        let mut writer = SpillWriter::create(location, schema, Some(CompressionType::LZ4_FRAME))?;
        for batch in batches {
            writer.push(&batch?)?;
        }
        let run = Self(writer.finish()?);
        Ok((run.0.record_count() > 0).then_some(run))
    }

    /// Sorts batches and writes them.
    pub(in crate::exec) fn sort_batches(
        location: &Location,
        schema: &SchemaRef,
        keys: &Keys,
        batches: &[RecordBatch],
        batch_bytes: u64,
    ) -> Result<Option<Self>> {
        let bytes: u64 = batches.iter().map(logical_bytes).sum();
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut rows = keys.empty_rows();
        rows.reserve(count, 24 * count);
        let mut places = Vec::with_capacity(count);
        for (number, batch) in batches.iter().enumerate() {
            keys.append_keys(&mut rows, batch)?;
            places.extend((0..batch.num_rows()).map(|row| (number, row)));
        }
        let rows_of_batch = batch_rows(bytes, count as u64, batch_bytes);
        let order = sorted_indices(&rows)?;
        drop(rows);
        let sources: Vec<&RecordBatch> = batches.iter().collect();
        let gather = |wanted: &[u32]| {
            let wanted: Vec<(usize, usize)> = wanted.iter().map(|row| places[*row as usize]).collect();
            Ok(interleave_record_batch(&sources, &wanted)?)
        };
        Self::write(location, schema, order.chunks(rows_of_batch).map(gather))
    }
}

/// Returns the row indexes in ascending order of their keys.
fn sorted_indices(rows: &Rows) -> Result<Vec<u32>> {
    let count = u32::try_from(rows.num_rows()).map_err(|_| Error::internal("a run has too many rows"))?;
    let mut order: Vec<(u128, u32)> = (0..count).zip(rows).map(|(i, row)| (key_prefix(row.data()), i)).collect();
    let key = |i: u32| rows.row(i as usize);
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(&key(b.1))));
    Ok(order.into_iter().map(|(_, row)| row).collect())
}

/// Merges runs until at most `fan_in` remain.
pub(in crate::exec) fn reduce_runs(
    runs: Vec<SortRun>,
    fan_in: usize,
    location: &Location,
    schema: &SchemaRef,
    keys: &Keys,
    check: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Vec<SortRun>> {
    spill::reduce_runs(runs, fan_in, |some| {
        let merged = MergedRuns::new(keys, some, Vec::new())?;
        let run = SortRun::write(location, schema, merged.map(|batch| check().and(batch)))?;
        run.ok_or_else(|| Error::internal("merged runs have no records"))
    })
}

/// The next row of a run.
struct Cursor<'a> {
    batches: Batches<'a>,
    keys: Rows,
    row: usize,
    prefix: u128,
    /// Index of its batch in the batches that rows are gathered from.
    source: usize,
    /// Last key of the previous batch.
    before: Vec<u8>,
}

impl Cursor<'_> {
    fn current_key(&self) -> &[u8] {
        self.keys.row(self.row).data()
    }

    fn comes_before(&self, other: &Self) -> bool {
        (self.prefix, self.current_key()) < (other.prefix, other.current_key())
    }
}

/// All rows of sorted runs, in order.
pub(in crate::exec) struct MergedRuns<'a> {
    keys: &'a Keys,
    cursors: Vec<Cursor<'a>>,
    /// Binary heap of the cursors that have rows; the root has the smallest key.
    heap: Vec<usize>,
    /// Batches that rows are gathered from.
    sources: Vec<RecordBatch>,
    batch_rows: usize,
    failed: bool,
}

impl<'a> MergedRuns<'a> {
    /// Starts to merge runs and batches that are already in order.
    pub(in crate::exec) fn new(keys: &'a Keys, runs: Vec<SortRun>, sorted: Vec<(Batches<'a>, usize)>) -> Result<Self> {
        let mut inputs: Vec<(Batches<'a>, usize)> = Vec::new();
        for run in runs {
            let rows = run.0.batch_rows();
            inputs.push((Box::new(run.0.into_batches()?), rows));
        }
        inputs.extend(sorted);
        let batch_rows = inputs.iter().map(|(_, rows)| *rows).min().unwrap_or(1).max(1);
        let mut merged =
            Self { keys, cursors: Vec::new(), heap: Vec::new(), sources: Vec::new(), batch_rows, failed: false };
        for (batches, _) in inputs {
            let (keys, before) = (merged.keys.empty_rows(), Vec::new());
            merged.cursors.push(Cursor { batches, keys, row: 0, prefix: 0, source: 0, before });
            let cursor = merged.cursors.len() - 1;
            if merged.load_batch(cursor)? {
                merged.heap.push(cursor);
            }
        }
        for at in (0..merged.heap.len() / 2).rev() {
            merged.sift_down(at);
        }
        Ok(merged)
    }

    /// Reads the next batch of a run; returns false if there is none.
    fn load_batch(&mut self, number: usize) -> Result<bool> {
        let cursor = &mut self.cursors[number];
        loop {
            let Some(batch) = cursor.batches.next().transpose()? else { return Ok(false) };
            if batch.num_rows() == 0 {
                continue;
            }
            cursor.keys = self.keys.batch_keys(&batch)?;
            cursor.row = 0;
            cursor.prefix = key_prefix(cursor.current_key());
            cursor.source = self.sources.len();
            self.sources.push(batch);
            check_order(cursor)?;
            return Ok(true);
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len()
                    && self.cursors[self.heap[child]].comes_before(&self.cursors[self.heap[first]])
                {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    fn gather_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut wanted: Vec<(usize, usize)> = Vec::with_capacity(self.batch_rows);
        while wanted.len() < self.batch_rows {
            let Some(number) = self.heap.first().copied() else { break };
            let cursor = &mut self.cursors[number];
            wanted.push((cursor.source, cursor.row));
            cursor.row += 1;
            if cursor.row < cursor.keys.num_rows() {
                cursor.prefix = key_prefix(cursor.current_key());
            } else if !self.load_batch(number)? {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        let batch = interleave_record_batch(&self.sources.iter().collect::<Vec<_>>(), &wanted)?;
        // Only batches that still have rows are kept.
        let mut kept = Vec::with_capacity(self.heap.len());
        for number in &self.heap {
            let cursor = &mut self.cursors[*number];
            kept.push(self.sources[cursor.source].clone());
            cursor.source = kept.len() - 1;
        }
        self.sources = kept;
        Ok(Some(batch))
    }
}

/// Verifies that a batch is in order and follows the previous one; otherwise the merge would silently produce a wrong
/// order.
fn check_order(cursor: &mut Cursor<'_>) -> Result<()> {
    let last = cursor.keys.row(cursor.keys.num_rows() - 1).data();
    let sorted = cursor.keys.iter().is_sorted() && *cursor.before < *cursor.current_key();
    if sorted || (cursor.before.is_empty() && cursor.keys.iter().is_sorted()) {
        cursor.before = last.to_vec();
        return Ok(());
    }
    Err(Error::integrity("expected records in the order that their shards state, found another order")
        .with_hint("sort by other columns first, then by these again; that sorts all shards from scratch"))
}

impl Iterator for MergedRuns<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let batch = self.gather_batch();
        self.failed = batch.is_err();
        batch.transpose()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt64Array};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Rows that are sorted in runs of any size and merged with any fan-in have the order of one stable sort.
        #[test]
        fn runs_merge_to_a_stable_sort(
            values in prop::collection::vec(prop::option::weighted(0.9, -5..5_i64), 1..300),
            run in 1..80_usize,
            fan_in in 2..6_usize,
        ) {
            let column: ArrayRef = Arc::new(values.iter().copied().collect::<Int64Array>());
            let records: ArrayRef = Arc::new((0..values.len() as u64).collect::<UInt64Array>());
            let batch = RecordBatch::try_from_iter([("v", column), ("n", records)]).unwrap();
            let schema = batch.schema();
            let keys = Keys::new(&schema, &[0], 1, None).unwrap();
            let here = Location::parse("memory:///", std::path::Path::new("/")).unwrap();
            let mut runs = Vec::new();
            for start in (0..values.len()).step_by(run) {
                let part = batch.slice(start, run.min(values.len() - start));
                let halves = [part.slice(0, part.num_rows() / 2), part.slice(part.num_rows() / 2,
                    part.num_rows().div_ceil(2))];
                runs.extend(SortRun::sort_batches(&here, &schema, &keys, &halves, 64).unwrap());
            }
            let runs = reduce_runs(runs, fan_in, &here, &schema, &keys, &|| Ok(())).unwrap();
            prop_assert!(runs.len() <= fan_in);
            let found: Vec<u64> = MergedRuns::new(&keys, runs, Vec::new())
                .unwrap()
                .flat_map(|batch| {
                    batch.unwrap().column(1).as_primitive::<arrow::datatypes::UInt64Type>().values().to_vec()
                })
                .collect();
            let mut expected: Vec<u64> = (0..values.len() as u64).collect();
            expected.sort_by_key(|record| values[usize::try_from(*record).unwrap()]);
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn batches_stated_as_sorted_are_checked() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![3, 1]));
        let records: ArrayRef = Arc::new(UInt64Array::from(vec![0, 1]));
        let batch = RecordBatch::try_from_iter([("v", column), ("n", records)]).unwrap();
        let keys = Keys::new(&batch.schema(), &[0], 1, None).unwrap();
        let merge = |parts: Vec<RecordBatch>| {
            let batches: Batches<'_> = Box::new(parts.into_iter().map(Ok));
            let rows = MergedRuns::new(&keys, Vec::new(), vec![(batches, 10)])?;
            rows.map(|batch| Ok(batch?.num_rows())).sum::<Result<usize>>()
        };
        assert!(merge(vec![batch.clone()]).is_err());
        assert!(merge(vec![batch.slice(0, 1), batch.slice(1, 1)]).is_err());
        assert_eq!(merge(vec![batch.slice(1, 1), batch.slice(0, 1)]).unwrap(), 2);
        assert!(!batch.column(0).is_null(0));
    }
}
