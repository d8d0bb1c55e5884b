//! Writing of segments: the ids of a commit become sorted buckets in bounded memory.

use std::{sync::Arc, thread::JoinHandle};

use rayon::prelude::*;

use super::{
    BUCKET_PAIRS, BucketWriter, SegmentRef, WrittenBucket,
    collect::{PARTS, Pairs, SEGMENT_PAIRS, sort_nearly_sorted},
    kept::{IdGroup, Later, PendingIds, SegmentForm},
    ordered::OrderedWriter,
    pairs::PairSum,
    segment::seals_of,
    sum,
};
use crate::{
    dataset::{
        ids::{IdKind, ascending::Ascending, column::IdHashes, width::HashPlan},
        table::paths::segment_path,
    },
    error::{Error, Result},
    id::{IdHash, Writer},
    record::split::{Split, Splits},
    storage::{Staged, Store},
};

/// Parts that are sorted at the same time where all pairs are hashed one after the other.
const PARTS_AT_ONCE: usize = 16;

/// The segments of a commit.
#[derive(Debug, Default)]
pub struct Segments {
    /// The segments.
    pub refs: Vec<SegmentRef>,
    /// Their buckets, to be published before the commit.
    pub staged: Vec<Staged>,
    /// Records whose record id also occurs earlier in their segment.
    pub repeated: u64,
}

impl Segments {
    /// Adds segments whose records follow the first `base` ones.
    pub fn append_shifted(&mut self, more: Self, base: u64) {
        self.refs.extend(more.refs.into_iter().map(|segment| segment.shifted_by(base)));
        self.staged.extend(more.staged);
        self.repeated += more.repeated;
    }

    /// Finishes the writers of all kinds, in parallel.
    ///
    /// # Errors
    /// If the store fails.
    pub fn finish_all<const KINDS: usize>(mut writers: [SegmentWriter; KINDS]) -> Result<Self> {
        writers.iter_mut().try_for_each(SegmentWriter::flush)?;
        let mut all = Self::default();
        for mut writer in writers {
            writer.wait_for_segment()?;
            all.refs.append(&mut writer.done.refs);
            all.staged.append(&mut writer.done.staged);
            all.repeated += writer.done.repeated;
        }
        Ok(all)
    }
}

/// A segment, its unpublished buckets, and the number of ids that also occur earlier.
type Written = (SegmentRef, Vec<Staged>, u64);

/// Collects the ids of one commit and writes a segment whenever enough have accumulated, so that memory is bounded.
///
/// While all ids ascend, they are kept, and a segment has them in place of the hashes. These are only made if the root
/// of the segment is that of its pairs, or once other ids follow.
#[derive(Debug)]
pub struct SegmentWriter {
    store: Arc<dyn Store>,
    kind: IdKind,
    plan: HashPlan,
    /// Start of the names of its segments.
    name: String,
    /// Name of the split that its records are in.
    split: Option<String>,
    pending: Pairs,
    /// The ids of the pending pairs if they ascend.
    order: PendingIds,
    /// Number of pairs that make a segment.
    most_pairs: usize,
    /// Thread that writes the previous segment.
    writing: Option<JoinHandle<Result<Written>>>,
    started: usize,
    done: Segments,
}

impl SegmentWriter {
    /// Starts the segments of a commit.
    pub fn new(store: Arc<dyn Store>, kind: IdKind, plan: &HashPlan, writer: impl Into<Writer>) -> Self {
        Self {
            store,
            kind,
            plan: plan.clone(),
            name: writer.into().to_string(),
            split: None,
            pending: Pairs::default(),
            order: PendingIds::default(),
            most_pairs: SEGMENT_PAIRS,
            writing: None,
            started: 0,
            done: Segments::default(),
        }
    }

    /// Makes it one of several writers of a run, one for each split of a divided dataset: its segments have names of
    /// their own, and all writers together take no more memory than one.
    #[must_use]
    pub fn of_split(mut self, split: Split, splits: &Splits) -> Self {
        if split > 0 {
            self.name = format!("{}-split{split}", self.name);
        }
        self.split = splits.split_name(split).map(str::to_owned);
        self.most_pairs = SEGMENT_PAIRS / splits.split_count().max(1);
        self
    }

    /// Adds the hash of a record's id; the record is numbered from the first record of the commit. Numbers must ascend.
    ///
    /// # Errors
    /// If a full segment cannot be written.
    pub fn push(&mut self, hash: IdHash, record: u64) -> Result<()> {
        self.end_ascending()?;
        if !self.pending.push(hash.0, record) {
            self.flush()?;
            self.order = PendingIds::Mixed;
            self.pending.push(hash.0, record);
        }
        if self.pending.len >= self.most_pairs { self.flush() } else { Ok(()) }
    }

    /// Adds those of some consecutive records that have an id, given the number of the first.
    ///
    /// # Errors
    /// Like [`push`](Self::push).
    pub fn push_all(&mut self, mut ids: IdHashes, first: u64) -> Result<()> {
        let Some(rows) = ids.len_if_complete() else {
            return ids.iter().try_for_each(|(row, hash)| self.push(hash, first + row as u64));
        };
        if rows == 0 {
            return Ok(());
        }
        let ascending = ids.take_ascending().filter(|ids| ids.len() <= self.most_pairs);
        if !self.take_order(ascending.as_ref(), first)? {
            self.end_ascending()?;
        }
        let width = self.plan.width();
        match &mut self.order {
            PendingIds::Ascend(kept) if !width.has_proofs() => match kept.hash_later(ids, first, width)? {
                Later::Kept => Ok(()),
                Later::Full => self.flush(),
                Later::Hashed => self.hash_kept(),
            },
            _ => self.push_consecutive(&ids.record_hashes(), first),
        }
    }

    /// Adds the hashes of consecutive records.
    fn push_consecutive(&mut self, hashes: &[IdHash], first: u64) -> Result<()> {
        let (mut rest, mut record) = (hashes, first);
        while !rest.is_empty() {
            let taken = self.pending.push_consecutive(rest, record);
            if taken == 0 || self.pending.len >= self.most_pairs {
                self.flush()?;
            }
            rest = &rest[taken..];
            record += taken as u64;
        }
        Ok(())
    }

    /// Number of ids that are in no segment.
    fn pending_pairs(&self) -> usize {
        self.pending.len.max(self.order.unhashed_count())
    }

    /// Keeps the ids of the next records if they and those before ascend, and returns whether they do. `None`: they do
    /// not ascend themselves.
    fn take_order(&mut self, ids: Option<&Ascending>, first: u64) -> Result<bool> {
        let Some(ids) = ids else { return Ok(false) };
        if self.order.is_full(ids, first, self.pending_pairs(), self.most_pairs) {
            self.flush()?;
        }
        let is_first = self.pending_pairs() == 0;
        if self.order.try_push(ids, first, is_first)? {
            return Ok(true);
        }
        if matches!(&self.order, PendingIds::Ascend(kept) if kept.is_enough(self.pending_pairs())) {
            self.flush()?;
            return self.order.try_push(ids, first, true);
        }
        Ok(false)
    }

    /// Ends what was kept, because ids follow that do not ascend: enough ids are a segment, others become pairs.
    fn end_ascending(&mut self) -> Result<()> {
        match &self.order {
            PendingIds::Mixed => return Ok(()),
            PendingIds::Ascend(kept) if kept.is_enough(self.pending_pairs()) => self.flush()?,
            PendingIds::Ascend(_) => {}
        }
        self.hash_kept()
    }

    /// Makes pairs of all ids that were kept.
    fn hash_kept(&mut self) -> Result<()> {
        self.plan.require_hashes(self.kind);
        if let PendingIds::Ascend(kept) = std::mem::replace(&mut self.order, PendingIds::Mixed) {
            kept.hash_parts().try_for_each(|(hashes, first)| self.push_consecutive(&hashes, first))?;
        }
        self.order = PendingIds::Mixed;
        Ok(())
    }

    /// Starts writing a segment of all ids that are in none.
    fn flush(&mut self) -> Result<()> {
        let (count, order) = (self.pending_pairs(), std::mem::take(&mut self.order));
        if count == 0 {
            return Ok(());
        }
        self.wait_for_segment()?;
        let mut pairs = std::mem::take(&mut self.pending);
        let mut segment = SegmentRef {
            kind: self.kind,
            path: segment_path(&format!("{}/{}-{}", self.kind.name(), self.name, self.started)),
            record_base: 0,
            split: self.split.clone(),
            ordered: false,
            hashes: self.plan.width(),
            pairs: count as u64,
            buckets: (count as u64).div_ceil(BUCKET_PAIRS).next_power_of_two().min(PARTS as u64),
            bytes: 0,
            root: None,
            seals: Vec::new(),
        };
        self.started += 1;
        let store = Arc::clone(&self.store);
        let write = move || {
            let outcome = match order {
                PendingIds::Ascend(kept) => kept.finish(segment.hashes, count, &mut pairs)?,
                PendingIds::Mixed => SegmentForm::Hashed,
            };
            pairs.partition_pairs();
            let (buckets, repeated) = match outcome {
                SegmentForm::Ordered(groups, repeated) => {
                    (segment.ordered, segment.buckets) = (true, 1);
                    (vec![write_ordered(store.as_ref(), &segment, &groups, &pairs)?], repeated)
                }
                SegmentForm::Hashed => {
                    let write = |bucket| write_bucket(store.as_ref(), &segment, bucket, &pairs);
                    let written: Vec<(WrittenBucket, u64)> =
                        (0..segment.buckets).into_par_iter().map(write).collect::<Result<_>>()?;
                    let repeated = written.iter().map(|(_, repeated)| repeated).sum();
                    (written.into_iter().map(|(bucket, _)| bucket).collect(), repeated)
                }
            };
            segment.bytes = buckets.iter().map(|bucket| bucket.bytes).sum();
            segment.root = sum::root_of_written(&buckets);
            segment.seals = seals_of(&buckets)?;
            Ok((segment, buckets.into_iter().map(|bucket| bucket.staged).collect(), repeated))
        };
        self.writing = Some(std::thread::spawn(write));
        Ok(())
    }

    fn wait_for_segment(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let (segment, staged, repeated) =
            writing.join().map_err(|_| Error::internal("writing the id index failed"))??;
        if segment.kind == IdKind::Record {
            self.done.repeated += repeated;
        }
        self.done.refs.push(segment);
        self.done.staged.extend(staged);
        Ok(())
    }
}

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        // A failed run leaves no writing thread behind.
        let _ = self.wait_for_segment();
    }
}

/// Writes the only bucket of a segment whose ids ascend; the pairs make its root, if it has one.
fn write_ordered(store: &dyn Store, segment: &SegmentRef, groups: &[IdGroup], pairs: &Pairs) -> Result<WrittenBucket> {
    let mut writer = OrderedWriter::create(store, segment)?;
    groups.iter().try_for_each(|group| writer.append_group(&group.ids, &group.records))?;
    if !segment.hashes.has_proofs() {
        return writer.finish(None);
    }
    let mut sum = PairSum::new(segment.hashes);
    let all: Vec<usize> = (0..PARTS).collect();
    for some in all.chunks(PARTS_AT_ONCE) {
        let sorted: Vec<Vec<(u64, u64)>> = some.par_iter().map(|part| pairs.sorted_part(*part)).collect();
        sorted.iter().for_each(|pairs| sum.add_pairs(pairs));
    }
    writer.finish(Some(&sum))
}

/// Writes a bucket of pairs; also returns how many of their hashes equal the one before, before they are cut.
fn write_bucket(store: &dyn Store, segment: &SegmentRef, bucket: u64, pairs: &Pairs) -> Result<(WrittenBucket, u64)> {
    let mut writer = BucketWriter::create(store, segment, bucket)?;
    let (parts, mut repeated) = (PARTS as u64 / segment.buckets, 0);
    for part in bucket * parts..(bucket + 1) * parts {
        let mut pairs = pairs.sorted_part(usize::try_from(part).unwrap_or(0));
        repeated += pairs.windows(2).filter(|pair| pair[0].0 == pair[1].0).count() as u64;
        if !segment.hashes.has_proofs() {
            pairs.iter_mut().for_each(|(hash, _)| *hash = segment.hashes.truncate_hash(IdHash(*hash)).0);
            sort_nearly_sorted(&mut pairs);
        }
        writer.push_all(&pairs)?;
    }
    Ok((writer.finish()?, repeated))
}
