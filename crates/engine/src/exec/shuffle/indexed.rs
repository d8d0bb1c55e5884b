//! Prepares gathered records to be shuffled: they get the numbers of the order of the input, and their ids go to the
//! index.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
};

use arrow::array::RecordBatch;

use super::{ShuffleSetup, Shuffler, Spilled};
use crate::{
    dataset::{IdKind, SegmentWriter, Segments},
    error::{Error, Result},
    exec::{
        cut::{Cutting, Feedback, UnitCutter, Units},
        encode::{Encoder, Layout, PreparedRecords},
        gather::Gathered,
        ordered::run_ordered,
    },
    id::Writer,
    record::split::{Split, Splits},
};

/// Bytes of records that are prepared together.
const PREPARED_BYTES: u64 = 1 << 20;

/// How gathered records are prepared and indexed.
pub struct ShuffledIds<'a> {
    /// Seed of the order.
    pub seed: u64,
    /// Encodes records.
    pub encoder: &'a Encoder,
    /// Names the objects of the run.
    pub writer: &'a Writer,
    /// The splits; `None` if the dataset is not divided.
    pub division: Option<&'a Splits>,
}

/// What is known of the records of a split.
struct SplitIndex {
    record_ids: SegmentWriter,
    subject_ids: SegmentWriter,
    records: u64,
}

impl ShuffledIds<'_> {
    /// Sorts all records into runs, and writes their ids to the index; returns the segments of each split as well.
    ///
    /// # Errors
    /// Those of the records; if one cannot be expressed in the format, or the disk or the store fails.
    pub fn spill_with_ids<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        shuffler: &'scope Shuffler<'_>,
        gathered: impl Iterator<Item = Result<Gathered>> + Send + 'scope,
    ) -> Result<(Spilled, Vec<Segments>)> {
        let (setup, layout) = (&shuffler.setup, &shuffler.layout);
        let bytes = PREPARED_BYTES.min(setup.memory.unit_bytes);
        let cuts =
            (0..setup.splits).map(|split| UnitCutter::new(split, Cutting::Even { bytes, member: None })).collect();
        let feedback: Arc<[Feedback]> = (0..setup.splits).map(|_| Feedback::default()).collect();
        let units = Units::new(gathered, cuts, &feedback);
        let prepare = move |unit| self.encoder.prepare_unit(layout, self.seed, unit);
        let window = setup.memory.encode_window.max(setup.jobs + 2);
        let prepared = run_ordered(scope, units, setup.jobs, window, setup.cancel, prepare);
        let index = Arc::new(Mutex::new(self.index(setup)));
        let numbered = {
            let index = Arc::clone(&index);
            prepared.map(move |prepared| number_records(layout, &index, prepared?))
        };
        let spilled = shuffler.spill_batches(scope, numbered)?;
        let index = std::mem::take(&mut *index.lock().unwrap_or_else(PoisonError::into_inner));
        let segments = index.into_iter().map(|split| Segments::finish_all([split.record_ids, split.subject_ids]));
        Ok((spilled, segments.collect::<Result<_>>()?))
    }

    fn index(&self, setup: &ShuffleSetup<'_>) -> Vec<SplitIndex> {
        let ids = |kind, split| {
            let writer =
                SegmentWriter::new(Arc::clone(setup.store), kind, self.encoder.hash_plan(), self.writer.clone());
            match self.division {
                Some(division) => writer.of_split(split, division),
                None => writer,
            }
        };
        let of_split = |split: Split| SplitIndex {
            record_ids: ids(IdKind::Record, split),
            subject_ids: ids(IdKind::Subject, split),
            records: 0,
        };
        (0..setup.splits).map(of_split).collect()
    }
}

/// Gives prepared records their numbers.
fn number_records(
    layout: &Layout,
    index: &Mutex<Vec<SplitIndex>>,
    mut prepared: PreparedRecords,
) -> Result<RecordBatch> {
    let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
    let split = index.get_mut(usize::from(prepared.split()));
    let split = split.ok_or_else(|| Error::internal("a record has no split"))?;
    let first = split.records;
    split.record_ids.push_all(std::mem::take(&mut prepared.record_hashes), first)?;
    split.subject_ids.push_all(std::mem::take(&mut prepared.subject_hashes), first)?;
    split.records += prepared.record_count() as u64;
    layout.with_numbers(&prepared, first)
}
