//! Cuts gathered records to units, each encoded on its own: of even sizes, or of the sizes that end Parquet shards at their target.
//!
//! Where a unit ends follows from the records and from the encoded sizes of units that lie a fixed number behind it, so that it
//! does not depend on threads.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    encode::{EncodeUnit, SourceBatch},
    gather::Gathered,
};
use crate::{
    error::{Error, Result},
    format::parquet::logical_bytes,
    plan::roll::RowGroupPlanner,
    record::{Payload, Sample},
};

/// Encoded sizes on their way back from the encoders to the planner.
#[derive(Debug, Default)]
pub struct Feedback {
    state: Mutex<FeedbackState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FeedbackState {
    sizes: Vec<Option<u64>>,
    closed: bool,
}

impl Feedback {
    /// Reports the encoded size of a unit.
    pub fn tell(&self, unit: usize, bytes: u64) {
        let mut state = self.lock();
        if state.sizes.len() <= unit {
            state.sizes.resize(unit + 1, None);
        }
        state.sizes[unit] = Some(bytes);
        self.changed.notify_all();
    }

    /// Ends all waiting: the run has failed.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The size of a unit, if it is known by now.
    fn size(&self, unit: usize) -> Option<u64> {
        self.lock().sizes.get(unit).copied().flatten()
    }

    /// Waits for the size of a unit; `None` when the run has failed.
    fn wait(&self, unit: usize) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if let Some(Some(bytes)) = state.sizes.get(unit) {
                return Some(*bytes);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, FeedbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How units are cut.
#[derive(Debug)]
pub enum Cutting {
    /// Every so many bytes.
    Even {
        /// Bytes of a unit.
        bytes: u64,
        /// Bytes that a member of a record takes besides its content.
        member: u64,
    },
    /// By what is missing in the shard.
    RowGroups(RowGroupPlanner, Arc<Feedback>),
}

/// Minimum bytes counted per row: its hash, row number and id take memory as well.
const LEAST_ROW: u64 = 32;

impl Cutting {
    /// Estimated bytes of the records once encoded.
    fn weight(&self, payload: &Payload) -> u64 {
        match (self, payload) {
            (Self::RowGroups(..), Payload::Rows(batch)) => {
                logical_bytes(batch).max(LEAST_ROW.saturating_mul(batch.num_rows() as u64))
            }
            (Self::Even { member, .. }, Payload::Rows(batch)) => {
                // In each row the columns are named again.
                let names: u64 = batch.schema_ref().fields().iter().map(|field| field.name().len() as u64 + 4).sum();
                logical_bytes(batch).saturating_add((member + names).saturating_mul(batch.num_rows() as u64))
            }
            (_, Payload::Samples(samples)) => samples.iter().map(|sample| self.weight_of(sample)).sum(),
        }
    }

    fn weight_of(&self, sample: &Sample) -> u64 {
        let member = match self {
            Self::RowGroups(..) => 0,
            Self::Even { member, .. } => *member,
        };
        sample.bytes() + member * sample.parts.len() as u64
    }

    /// Splits a batch of `bytes` so that the head has about `room` bytes; at least one record when `force`.
    fn split(
        &self,
        batch: SourceBatch,
        bytes: u64,
        room: u64,
        force: bool,
    ) -> (Option<SourceBatch>, u64, Option<SourceBatch>) {
        let records = batch.payload.len();
        let (head_records, head_bytes) = match &batch.payload {
            Payload::Rows(_) => {
                let share = u128::from(room) * records as u128 / u128::from(bytes.max(1));
                let taken = usize::try_from(share).unwrap_or(records).clamp(usize::from(force), records);
                let taken_bytes = u64::try_from(u128::from(bytes) * taken as u128 / records as u128).unwrap_or(bytes);
                (taken, taken_bytes)
            }
            Payload::Samples(samples) => {
                let mut taken = 0;
                let mut taken_bytes = 0;
                for sample in samples {
                    let weight = self.weight_of(sample);
                    if taken_bytes + weight > room && !(force && taken == 0) {
                        break;
                    }
                    taken += 1;
                    taken_bytes += weight;
                }
                (taken, taken_bytes)
            }
        };
        if head_records == 0 {
            return (None, 0, Some(batch));
        }
        if head_records == records {
            return (Some(batch), bytes, None);
        }
        let (head_payload, tail_payload) = match batch.payload {
            Payload::Rows(batch) => (
                Payload::Rows(batch.slice(0, head_records)),
                Payload::Rows(batch.slice(head_records, records - head_records)),
            ),
            Payload::Samples(mut samples) => {
                let tail = samples.split_off(head_records);
                (Payload::Samples(samples), Payload::Samples(tail))
            }
        };
        let (mut rows, mut hashes) = (batch.rows, batch.hashes);
        let (tail_rows, tail_hashes) = (rows.split_off(head_records), hashes.split_off(head_records));
        let source = Arc::clone(&batch.source);
        let tail = SourceBatch { payload: tail_payload, source, rows: tail_rows, hashes: tail_hashes };
        (Some(SourceBatch { payload: head_payload, source: batch.source, rows, hashes }), head_bytes, Some(tail))
    }
}

/// Size of the unit that is filled next.
#[derive(Debug, Clone, Copy)]
struct UnitBudget {
    /// Weight at most, unless one record has more.
    bytes: u64,
    starts_shard: bool,
}

/// Turns gathered records into units.
pub struct Cut<I> {
    input: I,
    cutting: Cutting,
    pending: VecDeque<(SourceBatch, u64)>,
    pending_bytes: u64,
    pending_bytes_in: u64,
    /// Units cut so far.
    units: usize,
    /// Units whose encoded size the planner knows.
    sizes_known: usize,
    /// Budget of the unit that is being filled.
    budget: Option<UnitBudget>,
    ended: bool,
}

impl<I: Iterator<Item = Result<Gathered>>> Cut<I> {
    /// Cuts what `input` gathers.
    pub fn new(input: I, cutting: Cutting) -> Self {
        Self {
            input,
            cutting,
            pending: VecDeque::new(),
            pending_bytes: 0,
            pending_bytes_in: 0,
            units: 0,
            sizes_known: 0,
            budget: None,
            ended: false,
        }
    }

    fn take(&mut self, gathered: Gathered) {
        let Gathered { records, bytes_in } = gathered;
        self.pending_bytes_in += bytes_in;
        if records.payload.is_empty() {
            return;
        }
        let bytes = self.cutting.weight(&records.payload);
        self.pending_bytes += bytes;
        self.pending.push_back((records, bytes));
    }

    /// Budget of the unit to be filled next; `None` while that depends on a size that is not known yet and there is still
    /// something else to do: to gather what the largest unit would take.
    fn budget(&mut self) -> Result<Option<UnitBudget>> {
        if let Some(budget) = self.budget {
            return Ok(Some(budget));
        }
        let budget = match &mut self.cutting {
            Cutting::Even { bytes, .. } => UnitBudget { bytes: *bytes, starts_shard: false },
            Cutting::RowGroups(planner, feedback) => {
                let idle = self.ended || self.pending_bytes >= planner.unit_bytes();
                while self.sizes_known < planner.must_know() {
                    let bytes = match feedback.size(self.sizes_known) {
                        Some(bytes) => bytes,
                        None if !idle => return Ok(None),
                        None => feedback.wait(self.sizes_known).ok_or_else(|| Error::internal("the run has ended"))?,
                    };
                    planner.encoded(self.sizes_known, bytes);
                    self.sizes_known += 1;
                }
                let cut = planner.cut();
                UnitBudget { bytes: cut.raw_bytes, starts_shard: cut.starts_shard }
            }
        };
        self.budget = Some(budget);
        Ok(self.budget)
    }

    /// Cuts a unit within its budget (at least one record) off the pending records.
    fn cut_unit(&mut self, budget: UnitBudget) -> EncodeUnit {
        let mut batches = Vec::new();
        let mut room = budget.bytes;
        let mut raw = 0;
        while let Some((batch, bytes)) = self.pending.pop_front() {
            if bytes <= room {
                room -= bytes;
                raw += bytes;
                batches.push(batch);
                continue;
            }
            let (head, head_bytes, tail) = self.cutting.split(batch, bytes, room, batches.is_empty());
            if let Some(head) = head {
                raw += head_bytes;
                batches.push(head);
            }
            if let Some(tail) = tail {
                self.pending.push_front((tail, bytes - head_bytes));
            }
            break;
        }
        self.pending_bytes -= raw;
        self.budget = None;
        if let Cutting::RowGroups(planner, _) = &mut self.cutting {
            planner.push(raw);
        }
        let bytes_in = std::mem::take(&mut self.pending_bytes_in);
        let unit = EncodeUnit { number: self.units, batches, starts_shard: budget.starts_shard, bytes_in };
        self.units += 1;
        unit
    }

    fn next_unit(&mut self) -> Result<Option<EncodeUnit>> {
        loop {
            if self.pending.is_empty() {
                if self.ended {
                    return Ok(None);
                }
            } else {
                match self.budget()? {
                    Some(budget) if self.ended || self.pending_bytes >= budget.bytes => {
                        return Ok(Some(self.cut_unit(budget)));
                    }
                    _ => {}
                }
            }
            match self.input.next() {
                Some(gathered) => self.take(gathered?),
                None => self.ended = true,
            }
        }
    }
}

impl<I: Iterator<Item = Result<Gathered>>> Iterator for Cut<I> {
    type Item = Result<EncodeUnit>;

    fn next(&mut self) -> Option<Result<EncodeUnit>> {
        self.next_unit().transpose()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{ArrayRef, UInt8Array};
    use arrow::record_batch::RecordBatch;

    use super::*;
    use crate::{
        exec::encode::SourceName,
        record::{Part, numbers::Numbers},
    };

    /// Rows of one byte.
    fn narrow(rows: usize) -> Payload {
        let column: ArrayRef = Arc::new(UInt8Array::from(vec![7; rows]));
        Payload::Rows(RecordBatch::try_from_iter([("flag", column)]).unwrap())
    }

    fn samples(count: usize) -> Payload {
        let part = || Part { extension: "cls".into(), bytes: vec![b'1'].into() };
        let sample = || Sample { key: "k".into(), origin: "o".into(), subject: None, parts: vec![part(), part()] };
        Payload::Samples((0..count).map(|_| sample()).collect())
    }

    #[test]
    fn short_records_count_for_what_they_become() {
        let framed = Cutting::Even { bytes: 64 << 10, member: 768 };
        assert!((1000 * (1 + 768 + 8)..1000 * 800).contains(&framed.weight(&narrow(1000))));
        assert_eq!(framed.weight(&samples(10)), 10 * 2 * (1 + 768));
        let table = Cutting::RowGroups(RowGroupPlanner::new(1 << 20, 1 << 16), Arc::default());
        assert_eq!(table.weight(&narrow(1000)), 32_000);
        assert_eq!(table.weight(&samples(10)), 20);
    }

    #[test]
    fn a_piece_is_split_by_weight() {
        let framed = Cutting::Even { bytes: 64 << 10, member: 768 };
        for payload in [narrow(1000), samples(1000)] {
            let bytes = framed.weight(&payload);
            let batch = SourceBatch {
                source: Arc::new(SourceName { name: "a".into(), key: "a".into(), columns: None, subject: None }),
                rows: Numbers::counting(1, 1000),
                hashes: Numbers::default(),
                payload,
            };
            let (head, weight, tail) = framed.split(batch, bytes, bytes / 4, false);
            let (head, tail) = (head.unwrap().payload.len(), tail.unwrap().payload.len());
            assert!((248..=250).contains(&head) && head + tail == 1000, "{head} and {tail}");
            assert!(weight <= bytes / 4);
        }
    }
}
