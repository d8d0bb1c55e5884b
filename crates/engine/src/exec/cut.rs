//! Cuts gathered records into units, which are encoded independently: units of even size, or of sizes that end Parquet
//! shards at their target.
//!
//! Where a unit ends depends only on the records and on the encoded sizes of units a fixed number behind it, so it does
//! not depend on threads.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::Scope,
};

use super::{
    budget::{Limits, Released, ordered_within},
    encode::{EncodeUnit, Encoded, Encoder, Output, SourceBatch},
    gather::Gathered,
    ordered::Ordered,
};
use crate::{
    error::{Error, Result},
    events::Cancel,
    format::parquet::logical_bytes,
    plan::{
        memory::MemoryPlan,
        roll::{InputSize, RowGroupPlanner},
    },
    record::{Payload, Sample, split::Split},
};

/// Encoded sizes, reported by the encoders to the planner.
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
    pub fn report_size(&self, unit: usize, bytes: u64) {
        let mut state = self.lock_state();
        if state.sizes.len() <= unit {
            state.sizes.resize(unit + 1, None);
        }
        state.sizes[unit] = Some(bytes);
        self.changed.notify_all();
    }

    /// Ends all waiting because the run has failed.
    pub fn close(&self) {
        self.lock_state().closed = true;
        self.changed.notify_all();
    }

    /// Returns the size of a unit if it is known by now.
    fn known_size(&self, unit: usize) -> Option<u64> {
        self.lock_state().sizes.get(unit).copied().flatten()
    }

    /// Waits for the size of a unit; `None` if the run has failed.
    fn wait_for_size(&self, unit: usize) -> Option<u64> {
        let mut state = self.lock_state();
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

    fn lock_state(&self) -> MutexGuard<'_, FeedbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends all waiting for sizes when it is dropped: a thread that waits for a size must not keep a scope open after a
/// failure, also if the thread that had it started panics.
pub struct Closing<'a>(pub &'a [Feedback]);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Feedback::close);
    }
}

/// How gathered records are cut into units and encoded.
#[derive(Clone)]
pub struct Encoding<'a> {
    /// Encodes units.
    pub encoder: &'a Encoder,
    /// Memory limits.
    pub memory: MemoryPlan,
    /// Number of threads.
    pub jobs: usize,
    /// Where shards end.
    pub size: ShardSize,
    /// Size of the input.
    pub input: InputSize,
    /// Number of records of each split, if shards are to be even.
    pub counts: Vec<u64>,
    /// Whether records are framed already, because they were shuffled.
    pub is_framed: bool,
    /// Cancellation token.
    pub cancel: &'a Cancel,
}

/// Encoded units, in order.
pub type EncodedUnits = Released<Ordered<(u64, Encoded)>>;

impl<'a> Encoding<'a> {
    /// Cuts gathered records into units and encodes these; each split has a feedback.
    pub fn encode_units<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        gathered: impl Iterator<Item = Result<Gathered>> + Send + 'scope,
        feedback: &Arc<[Feedback]>,
    ) -> EncodedUnits
    where
        'a: 'scope,
    {
        let cut = |split| {
            let cutting =
                Cutting::for_output(self.encoder.output(), &self.memory, self.size, self.is_framed, self.input);
            let input = match self.size.ends {
                Some(ShardEnds::Even(_)) => self.counts.get(usize::from(split)).copied().unwrap_or(0),
                _ => self.input.bytes,
            };
            UnitCutter::new(split, cutting).with_ends(self.size.ends, input)
        };
        let units = Units::new(gathered, (0..).zip(feedback.iter()).map(|(split, _)| cut(split)).collect(), feedback);
        let encode = {
            let feedback = Arc::clone(feedback);
            move |unit: EncodeUnit| encode_and_report(self.encoder, &feedback, unit)
        };
        // A record may be larger than a unit should be: then fewer are in flight.
        let window = self.memory.encode_window;
        let limits = Limits { bytes: self.memory.unit_bytes.saturating_mul(window as u64), jobs: self.jobs, window };
        ordered_within(scope, units, |unit| unit.raw_bytes, limits, self.cancel, encode)
    }
}

/// Encodes a unit, and tells the planner of its split how large it is.
fn encode_and_report(encoder: &Encoder, feedback: &[Feedback], unit: EncodeUnit) -> Result<Encoded> {
    let (split, number) = (usize::from(unit.split), unit.number);
    let footer = match encoder.output() {
        Output::Parquet(parquet) => parquet.footer_bytes(1) - parquet.footer_bytes(0),
        Output::Stream(_) => 0,
    };
    let encoded = encoder.encode_reporting(unit, |bytes| {
        if let Some(feedback) = feedback.get(split) {
            feedback.report_size(number, bytes + footer);
        }
    });
    if encoded.is_err() {
        feedback.iter().for_each(Feedback::close);
    }
    encoded
}

/// Rule by which units are cut.
#[derive(Debug)]
pub enum Cutting {
    /// Units of an even size.
    Even {
        /// Bytes of a unit.
        bytes: u64,
        /// Bytes that each member of a record needs besides its content; `None` for row groups.
        member: Option<u64>,
    },
    /// Units sized by the bytes that the open shard still lacks.
    RowGroups(RowGroupPlanner),
}

/// Minimum bytes counted per row, because its hash, row number and id use memory as well.
const MIN_ROW_BYTES: u64 = 32;

/// Where the shards of a run end.
#[derive(Debug, Clone, Copy)]
pub struct ShardSize {
    /// Target size of a shard, in bytes.
    pub target: u64,
    /// Where shards end; `None` at the target size.
    pub ends: Option<ShardEnds>,
}

impl Cutting {
    /// Returns the rule for shards of an output; `is_framed` tells that records are framed already. `input` is the size
    /// of the input.
    fn for_output(output: &Output, memory: &MemoryPlan, size: ShardSize, is_framed: bool, input: InputSize) -> Self {
        match output {
            Output::Stream(framing) => {
                Self::Even { bytes: memory.unit_bytes, member: (!is_framed).then(|| framing.member_bytes()) }
            }
            Output::Parquet(_) if size.ends.is_some() => Self::Even { bytes: memory.unit_bytes, member: None },
            Output::Parquet(parquet) => {
                let target = size.target.saturating_sub(parquet.footer_bytes(0)).max(1);
                Self::RowGroups(RowGroupPlanner::new(target, memory.unit_bytes, Some(input)))
            }
        }
    }

    /// Estimated bytes of the records once encoded.
    fn payload_weight(&self, payload: &Payload) -> u64 {
        match (self, payload) {
            (Self::RowGroups(_) | Self::Even { member: None, .. }, Payload::Rows(batch)) => {
                logical_bytes(batch).max(MIN_ROW_BYTES.saturating_mul(batch.num_rows() as u64))
            }
            (Self::Even { member: Some(member), .. }, Payload::Rows(batch)) => {
                // Each row repeats the column names.
                let names: u64 = batch.schema_ref().fields().iter().map(|field| field.name().len() as u64 + 4).sum();
                logical_bytes(batch).saturating_add((member + names).saturating_mul(batch.num_rows() as u64))
            }
            (_, Payload::Samples(samples)) => samples.iter().map(|sample| self.weight_of(sample)).sum(),
        }
    }

    fn weight_of(&self, sample: &Sample) -> u64 {
        let member = match self {
            Self::RowGroups(_) => 0,
            Self::Even { member, .. } => member.unwrap_or(0),
        };
        sample.byte_count() + member * sample.parts.len() as u64
    }

    /// Splits a batch of `bytes` so that the head has about `room` bytes; at least one record when `force`.
    fn split_batch(
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
        let (head, tail) = batch.split_at(head_records);
        (head, if head_records == records { bytes } else { head_bytes }, tail)
    }
}

impl SourceBatch {
    /// Splits it behind so many records.
    pub fn split_at(self, head_records: usize) -> (Option<Self>, Option<Self>) {
        let records = self.payload.len();
        if head_records == 0 {
            return (None, Some(self));
        }
        if head_records >= records {
            return (Some(self), None);
        }
        let Self { payload, lacking, source, mut rows, mut hashes, mut fingerprints, sidecar } = self;
        let (head_payload, tail_payload) = match payload {
            Payload::Rows(batch) => (
                Payload::Rows(batch.slice(0, head_records)),
                Payload::Rows(batch.slice(head_records, records - head_records)),
            ),
            Payload::Samples(mut samples) => {
                let tail = samples.split_off(head_records);
                (Payload::Samples(samples), Payload::Samples(tail))
            }
        };
        let (tail_rows, tail_hashes) = (rows.split_off(head_records), hashes.split_off(head_records));
        let tail_sidecar = sidecar.as_ref().map(|rows| rows.slice(head_records, records - head_records));
        let tail = Self {
            payload: tail_payload,
            lacking: Arc::clone(&lacking),
            source: Arc::clone(&source),
            rows: tail_rows,
            hashes: tail_hashes,
            fingerprints: fingerprints.split_off(head_records.min(fingerprints.len())),
            sidecar: tail_sidecar,
        };
        let sidecar = sidecar.map(|rows| rows.slice(0, head_records));
        (Some(Self { payload: head_payload, lacking, source, rows, hashes, fingerprints, sidecar }), Some(tail))
    }
}

/// Where shards end, if not by their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShardEnds {
    /// After each so many records.
    Records(u64),
    /// After each of so many equal parts of the input.
    Parts(u64),
    /// After each of so many parts of the records of a split, whose counts differ by at most one.
    Even(u64),
}

/// The shard that is being filled, if shards do not end by their sizes.
#[derive(Debug)]
struct OpenShard {
    ends: ShardEnds,
    /// Stored bytes of the input; of even shards, the number of records.
    input: u64,
    /// Number of the shard, from 0.
    number: u64,
    /// Its records so far.
    records: u64,
    /// Stored bytes of input that all records so far account for; of even shards, their number.
    read: u64,
}

impl OpenShard {
    /// Returns the bytes of input, or the records, at which the shard ends; `None` if it has so many records, or is the
    /// last one.
    fn end_position(&self) -> Option<u64> {
        match self.ends {
            ShardEnds::Parts(parts) | ShardEnds::Even(parts) if self.number + 1 < parts => {
                let end = u128::from(self.input) * u128::from(self.number + 1) / u128::from(parts);
                u64::try_from(end).ok()
            }
            ShardEnds::Parts(_) | ShardEnds::Even(_) | ShardEnds::Records(_) => None,
        }
    }

    /// Returns how much records count that account for so many bytes of input.
    fn record_weight(&self, records: u64, bytes_in: u64) -> u64 {
        if matches!(self.ends, ShardEnds::Even(_)) { records } else { bytes_in }
    }

    /// Returns how many of the next records, which account for so many bytes of input, belong to the shard.
    fn remaining_records(&self, records: usize, bytes_in: u64) -> usize {
        let room = match (self.ends, self.end_position()) {
            (ShardEnds::Records(most), _) => most.saturating_sub(self.records).into(),
            (ShardEnds::Even(_), end) => end.map_or(u128::MAX, |end| end.saturating_sub(self.read).into()),
            (ShardEnds::Parts(_), Some(end)) if bytes_in > 0 => {
                let share = records as u128 * u128::from(end.saturating_sub(self.read)) / u128::from(bytes_in);
                share.max(u128::from(self.records == 0))
            }
            (ShardEnds::Parts(_), _) => u128::MAX,
        };
        usize::try_from(room).unwrap_or(usize::MAX).min(records)
    }

    /// Whether the shard ends within the next records.
    fn ends_within(&self, records: u64, bytes_in: u64) -> bool {
        match self.ends {
            ShardEnds::Records(most) => self.records + records >= most,
            ShardEnds::Parts(_) | ShardEnds::Even(_) => {
                self.end_position().is_some_and(|end| self.read + self.record_weight(records, bytes_in) >= end)
            }
        }
    }
}

/// Size limit of the next unit.
#[derive(Debug, Clone, Copy)]
struct UnitBudget {
    /// Maximum weight, unless a single record is heavier.
    bytes: u64,
    starts_shard: bool,
}

/// Records that are in no unit yet.
struct PendingBatch {
    batch: SourceBatch,
    /// Their weight.
    bytes: u64,
    /// Bytes of input that they account for. They stay with the records, because how many batches are pending when a
    /// unit is cut depends on timing.
    bytes_in: u64,
}

/// Turns gathered records of one split into units.
pub struct UnitCutter {
    split: Split,
    cutting: Cutting,
    pending: VecDeque<PendingBatch>,
    pending_bytes: u64,
    /// Bytes of input without accepted records; they count with the next batch.
    rejected_bytes_in: u64,
    /// Units cut so far.
    units: usize,
    /// Units whose encoded size the planner knows.
    sizes_known: usize,
    /// Budget of the unit that is being filled.
    budget: Option<UnitBudget>,
    /// The shard that is being filled; `None` if shards end by their sizes.
    shard: Option<OpenShard>,
    ended: bool,
}

impl UnitCutter {
    /// Cuts the records of a split.
    pub fn new(split: Split, cutting: Cutting) -> Self {
        Self {
            split,
            cutting,
            pending: VecDeque::new(),
            pending_bytes: 0,
            rejected_bytes_in: 0,
            units: 0,
            sizes_known: 0,
            budget: None,
            shard: None,
            ended: false,
        }
    }

    /// Ends shards as `ends` says instead of by their sizes; `input` are the stored bytes of the input, or the records
    /// of the split if its shards are to be even.
    #[must_use]
    pub fn with_ends(self, ends: Option<ShardEnds>, input: u64) -> Self {
        let shard = ends.map(|ends| OpenShard { ends, input, number: 0, records: 0, read: 0 });
        Self { shard, ..self }
    }

    fn push(&mut self, gathered: Gathered) {
        let Gathered { records, bytes_in, .. } = gathered;
        if records.payload.is_empty() {
            self.rejected_bytes_in += bytes_in;
            return;
        }
        let bytes = self.cutting.payload_weight(&records.payload);
        let bytes_in = bytes_in + std::mem::take(&mut self.rejected_bytes_in);
        self.pending_bytes += bytes;
        self.pending.push_back(PendingBatch { batch: records, bytes, bytes_in });
    }

    /// Returns the budget of the next unit; `None` while it depends on a size that is not known yet and there are still
    /// records to gather, up to those of the largest unit.
    fn next_budget(&mut self, feedback: &Feedback) -> Result<Option<UnitBudget>> {
        if let Some(budget) = self.budget {
            return Ok(Some(budget));
        }
        let budget = match &mut self.cutting {
            Cutting::Even { bytes, .. } => UnitBudget { bytes: *bytes, starts_shard: false },
            Cutting::RowGroups(planner) => {
                let idle = self.ended || self.pending_bytes >= planner.unit_bytes();
                while self.sizes_known < planner.must_know() {
                    let bytes = match feedback.known_size(self.sizes_known) {
                        Some(bytes) => bytes,
                        None if !idle => return Ok(None),
                        None => feedback
                            .wait_for_size(self.sizes_known)
                            .ok_or_else(|| Error::internal("the run has ended"))?,
                    };
                    planner.report_encoded(self.sizes_known, bytes);
                    self.sizes_known += 1;
                }
                let cut = planner.next_cut();
                UnitBudget { bytes: cut.raw_bytes, starts_shard: cut.starts_shard }
            }
        };
        self.budget = Some(budget);
        Ok(self.budget)
    }

    /// Cuts a unit within its budget, but of at least one record, off the pending records.
    fn cut_unit(&mut self, budget: UnitBudget) -> EncodeUnit {
        let mut batches = Vec::new();
        let mut room = budget.bytes;
        let (mut raw, mut unit_bytes_in) = (0, 0);
        let mut starts_shard = budget.starts_shard;
        while let Some(PendingBatch { batch, bytes, bytes_in }) =
            self.pop_within_shard(&mut starts_shard, batches.is_empty())
        {
            if bytes <= room {
                self.note_records(batch.payload.len(), bytes_in);
                room -= bytes;
                raw += bytes;
                unit_bytes_in += bytes_in;
                batches.push(batch);
                continue;
            }
            let (head, head_bytes, tail) = self.cutting.split_batch(batch, bytes, room, batches.is_empty());
            let share = u128::from(bytes_in) * u128::from(head_bytes) / u128::from(bytes.max(1));
            let head_bytes_in = u64::try_from(share).unwrap_or(bytes_in);
            if let Some(head) = head {
                raw += head_bytes;
                unit_bytes_in += head_bytes_in;
                self.note_records(head.payload.len(), head_bytes_in);
                batches.push(head);
            }
            if let Some(batch) = tail {
                let (bytes, bytes_in) = (bytes - head_bytes, bytes_in - head_bytes_in);
                self.pending.push_front(PendingBatch { batch, bytes, bytes_in });
            }
            break;
        }
        self.pending_bytes -= raw;
        self.budget = None;
        if let Cutting::RowGroups(planner) = &mut self.cutting {
            planner.push(raw, unit_bytes_in);
        }
        let number = self.units;
        let unit =
            EncodeUnit { split: self.split, number, batches, starts_shard, bytes_in: unit_bytes_in, raw_bytes: raw };
        self.units += 1;
        unit
    }

    /// Takes the next pending records that belong to the open shard. If there are none, the next shard starts if the
    /// unit is `empty`, or the unit ends.
    fn pop_within_shard(&mut self, starts_shard: &mut bool, empty: bool) -> Option<PendingBatch> {
        let Some(shard) = &mut self.shard else { return self.pending.pop_front() };
        let front = self.pending.front()?;
        let records = front.batch.payload.len();
        let mut room = shard.remaining_records(records, front.bytes_in);
        if room == 0 {
            if !empty {
                return None;
            }
            *shard = OpenShard { number: shard.number + 1, records: 0, ..*shard };
            *starts_shard = true;
            room = shard.remaining_records(records, front.bytes_in);
        }
        let PendingBatch { batch, bytes, bytes_in } = self.pending.pop_front()?;
        match batch.split_at(room) {
            (Some(head), Some(tail)) => {
                let head_bytes = self.cutting.payload_weight(&head.payload).min(bytes);
                let share = u128::from(bytes_in) * room as u128 / records.max(1) as u128;
                let head_in = u64::try_from(share).unwrap_or(bytes_in);
                self.pending.push_front(PendingBatch {
                    batch: tail,
                    bytes: bytes - head_bytes,
                    bytes_in: bytes_in - head_in,
                });
                Some(PendingBatch { batch: head, bytes: head_bytes, bytes_in: head_in })
            }
            (Some(batch), None) | (None, Some(batch)) => Some(PendingBatch { batch, bytes, bytes_in }),
            (None, None) => None,
        }
    }

    /// Notes that the open shard got records.
    fn note_records(&mut self, records: usize, bytes_in: u64) {
        if let Some(shard) = &mut self.shard {
            shard.records += records as u64;
            shard.read += shard.record_weight(records as u64, bytes_in);
        }
    }

    /// Whether the pending records complete a shard that does not end by its size.
    fn fills_shard(&self) -> bool {
        let Some(shard) = &self.shard else { return false };
        let records = self.pending.iter().map(|pending| pending.batch.payload.len() as u64).sum();
        shard.ends_within(records, self.pending.iter().map(|pending| pending.bytes_in).sum())
    }

    /// Returns the next unit, if its records are there. Behind the last record, all are.
    fn next_unit(&mut self, feedback: &Feedback) -> Result<Option<EncodeUnit>> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        Ok(match self.next_budget(feedback)? {
            Some(budget) if self.ended || self.pending_bytes >= budget.bytes || self.fills_shard() => {
                Some(self.cut_unit(budget))
            }
            _ => None,
        })
    }
}

/// The units of all splits. Those of one split have its order; which split is next depends on timing.
pub struct Units<I> {
    input: I,
    cuts: Vec<UnitCutter>,
    /// Encoded sizes of the units of each split.
    feedback: Arc<[Feedback]>,
    ended: bool,
}

impl<I: Iterator<Item = Result<Gathered>>> Units<I> {
    /// Cuts what `input` gathers; the records of a split go to the cut of its number, whose encoders report sizes to
    /// its feedback.
    pub fn new(input: I, cuts: Vec<UnitCutter>, feedback: &Arc<[Feedback]>) -> Self {
        Self { input, cuts, feedback: Arc::clone(feedback), ended: false }
    }

    fn next_unit(&mut self) -> Result<Option<EncodeUnit>> {
        loop {
            for (cut, feedback) in self.cuts.iter_mut().zip(self.feedback.iter()) {
                if let Some(unit) = cut.next_unit(feedback)? {
                    return Ok(Some(unit));
                }
            }
            if self.ended {
                return Ok(None);
            }
            match self.input.next() {
                Some(gathered) => {
                    let gathered = gathered?;
                    let cut = self.cuts.get_mut(usize::from(gathered.split));
                    cut.ok_or_else(|| Error::internal("a record has no split"))?.push(gathered);
                }
                None => {
                    self.ended = true;
                    self.cuts.iter_mut().for_each(|cut| cut.ended = true);
                }
            }
        }
    }
}

impl<I: Iterator<Item = Result<Gathered>>> Iterator for Units<I> {
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
        exec::source::SourceName,
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
    fn short_records_are_weighed_as_encoded() {
        let framed = Cutting::Even { bytes: 64 << 10, member: Some(768) };
        assert!((1000 * (1 + 768 + 8)..1000 * 800).contains(&framed.payload_weight(&narrow(1000))));
        assert_eq!(framed.payload_weight(&samples(10)), 10 * 2 * (1 + 768));
        let table = Cutting::RowGroups(RowGroupPlanner::new(1 << 20, 1 << 16, None));
        assert_eq!(table.payload_weight(&narrow(1000)), 32_000);
        assert_eq!(table.payload_weight(&samples(10)), 20);
    }

    #[test]
    fn a_piece_is_split_by_weight() {
        let framed = Cutting::Even { bytes: 64 << 10, member: Some(768) };
        for payload in [narrow(1000), samples(1000)] {
            let bytes = framed.payload_weight(&payload);
            let batch = SourceBatch {
                lacking: Arc::default(),
                source: Arc::new(SourceName { name: "a".into(), key: "a".into(), columns: None, subject: None }),
                rows: Numbers::counting_from(1, 1000),
                hashes: Numbers::default(),
                fingerprints: Vec::new(),
                sidecar: None,
                payload,
            };
            let (head, weight, tail) = framed.split_batch(batch, bytes, bytes / 4, false);
            let (head, tail) = (head.unwrap().payload.len(), tail.unwrap().payload.len());
            assert!((248..=250).contains(&head) && head + tail == 1000, "{head} and {tail}");
            assert!(weight <= bytes / 4);
        }
    }
}
