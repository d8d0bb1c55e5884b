//! Live rows of shards, for commands that describe records: of the rows of a shard, only those in a run of the version
//! are records.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};

use crate::{
    dataset::{Run, ShardMeta, Snapshot, each_length},
    error::Result,
    format::parquet::{self, ParquetFile},
    scan::SourceFile,
    storage::{Object, Store},
};

/// Where a file is.
pub(in crate::ops) enum Source {
    /// In a dataset.
    Stored(Object),
    /// Anywhere else; it may be damaged.
    Found(SourceFile),
}

/// A shard, or a Parquet file.
pub(in crate::ops) struct Table {
    pub(in crate::ops) object: Source,
    /// Its name in errors.
    pub(in crate::ops) place: String,
    /// Its live rows; `None` for all.
    pub(in crate::ops) live: Option<Vec<Range<u64>>>,
}

impl Table {
    /// Reads the footer of a Parquet file.
    pub(in crate::ops) fn open_parquet(&self) -> Result<ParquetFile<Object>> {
        let object = match &self.object {
            Source::Stored(object) => object.clone(),
            Source::Found(file) => file.object(),
        };
        parquet::open(object, &self.place)
    }

    /// Returns the live rows, given the number of all rows.
    pub(in crate::ops) fn live_rows(&self, rows: u64) -> Vec<Range<u64>> {
        self.live.clone().unwrap_or_else(|| join_ranges(std::iter::once(0..rows)))
    }

    /// Returns whether a row is live.
    pub(in crate::ops) fn is_live(&self, row: u64) -> bool {
        self.live.as_ref().is_none_or(|live| {
            let at = live.partition_point(|range| range.end <= row);
            live.get(at).is_some_and(|range| range.start <= row)
        })
    }
}

/// Returns the shards of a version with their live rows.
pub(in crate::ops) fn shard_tables(snapshot: &Snapshot, shards: &[ShardMeta]) -> Result<Vec<Table>> {
    let dataset = snapshot.dataset();
    let runs = snapshot.runs_by_shard()?;
    let live = |shard: &ShardMeta| -> Vec<Range<u64>> {
        let runs = runs.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice);
        join_ranges(runs.iter().map(|run: &&Run| run.ordinal..run.ordinal.saturating_add(run.records)))
    };
    let table = |shard: &ShardMeta| Table {
        object: Source::Stored(dataset.object_at(&shard.path, shard.bytes)),
        place: dataset.store().location().join(&shard.path).to_string(),
        live: Some(live(shard)),
    };
    Ok(shards.iter().map(table).collect())
}

/// Joins ranges that touch; they are in order.
fn join_ranges(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match out.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => out.push(range),
        }
    }
    out
}

/// Returns the number of rows in ranges.
pub(in crate::ops) fn row_count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns the rows of a batch that are live.
pub(in crate::ops) fn filter_live(batch: RecordBatch, live: &[bool]) -> Result<RecordBatch> {
    match live.iter().all(|live| *live) {
        true => Ok(batch),
        false => Ok(filter_record_batch(&batch, &BooleanArray::from(live.to_vec()))?),
    }
}

/// Passes the lengths of some records of a framed shard to `visit`, from its sidecar.
pub(in crate::ops) fn each_live_length(
    store: &Arc<dyn Store>,
    shard: &ShardMeta,
    rows: &[Range<u64>],
    visit: &mut dyn FnMut(&[u64]) -> Result<()>,
) -> Result<()> {
    let (mut first, mut result) = (0_u64, Ok(()));
    each_length(store, &shard.sidecar(), &mut |lengths| {
        let end = first + lengths.len() as u64;
        for range in rows.iter().filter(|range| range.start < end && range.end > first) {
            let at = |row: u64| usize::try_from(row - first).unwrap_or(lengths.len());
            if result.is_ok() {
                result = visit(&lengths[at(range.start.max(first))..at(range.end.min(end))]);
            }
        }
        first = end;
    })?;
    result
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::{self, Location, StoreSettings};

    #[test]
    fn rows_outside_all_runs_are_not_live() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::from_local_path(folder.path()).unwrap();
        let store = storage::open_store(&location, &StoreSettings::default()).unwrap();
        let live = vec![0..4, 5..17, 20..22, 30..70];
        let object = Source::Stored(Object::new(store, "s", 0));
        let table = Table { object, place: String::new(), live: Some(live.clone()) };
        let found: Vec<u64> = (0..100).filter(|row| table.is_live(*row)).collect();
        assert_eq!(found, live.into_iter().flatten().collect::<Vec<u64>>());
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        assert_eq!(join_ranges([0..0, 1..3, 3..4, 6..7].into_iter()), [1..4, 6..7]);
        assert_eq!(row_count(&[1..4, 6..7]), 4);
    }
}
