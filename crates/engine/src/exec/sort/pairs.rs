//! Places of records that were moved: collected in the order of the rows, and put in that of the record numbers on
//! disk.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
};

use super::{
    keys::Keys,
    runs::{MergedRuns, SortRun, reduce_runs},
};
use crate::{
    dataset::{PlaceRef, PlacesWriter},
    error::{Error, Result},
    events::Cancel,
    record::BATCH_ROWS,
    storage::{Staged, Store},
};

/// Pairs of record number and row to sort at a time.
const PAIRS: usize = 1 << 19;

/// Collects the place of each record and orders them by record number.
pub(in crate::exec) struct Pairs<'a> {
    store: &'a dyn Store,
    cancel: &'a Cancel,
    /// Number of runs that are merged at a time.
    fan_in: usize,
    pending: Vec<(u64, u32, u32)>,
    runs: Vec<SortRun>,
}

impl<'a> Pairs<'a> {
    /// Collects places of a dataset in `store`.
    pub(in crate::exec) fn new(store: &'a dyn Store, cancel: &'a Cancel, fan_in: usize) -> Self {
        Self { store, cancel, fan_in, pending: Vec::new(), runs: Vec::new() }
    }

    /// Adds the shard of a record, and its row there.
    pub(in crate::exec) fn push(&mut self, record: u64, shard: usize, ordinal: u64) -> Result<()> {
        let small = |n: u64| u32::try_from(n).map_err(|_| Error::internal("a shard has too many records"));
        self.pending.push((record, small(shard as u64)?, small(ordinal)?));
        if self.pending.len() == PAIRS { self.flush() } else { Ok(()) }
    }

    fn schema() -> SchemaRef {
        let field = |name: &str| Field::new(name, DataType::UInt64, false);
        Arc::new(Schema::new(vec![field("record"), field("shard"), field("ordinal")]))
    }

    fn flush(&mut self) -> Result<()> {
        self.pending.sort_unstable();
        let batches = self.pending.chunks(BATCH_ROWS).map(|pairs| {
            let column = |of: fn(&(u64, u32, u32)) -> u64| -> ArrayRef {
                Arc::new(UInt64Array::from_iter_values(pairs.iter().map(of)))
            };
            let columns = vec![column(|p| p.0), column(|p| u64::from(p.1)), column(|p| u64::from(p.2))];
            Ok(RecordBatch::try_new(Self::schema(), columns)?)
        });
        self.runs.extend(SortRun::write(self.store.location(), &Self::schema(), batches)?);
        self.pending.clear();
        Ok(())
    }

    /// Writes the tables of places.
    pub(in crate::exec) fn finish(mut self, mut places: PlacesWriter<'_>) -> Result<Vec<(PlaceRef, Staged)>> {
        self.flush()?;
        let schema = Self::schema();
        let keys = Keys::new(&schema, &[], 0, None)?;
        let check = || self.cancel.check();
        let runs = reduce_runs(self.runs, self.fan_in, self.store.location(), &schema, &keys, &check)?;
        for batch in MergedRuns::new(&keys, runs, Vec::new())? {
            check()?;
            let batch = batch?;
            let column = |i: usize| batch.column(i).as_primitive::<UInt64Type>().values();
            for ((record, shard), ordinal) in column(0).iter().zip(column(1)).zip(column(2)) {
                places.push(*record, *shard, *ordinal)?;
            }
        }
        places.finish()
    }
}
