//! Writing of segments: the ids of a commit become sorted buckets in bounded memory.

use std::{sync::Arc, thread::JoinHandle};

use rayon::prelude::*;

use super::{
    BUCKET_PAIRS, BucketWriter, SegmentRef, WrittenBucket, ordered::OrderedWriter, pairs::PairSum, segment::seals_of,
    sum,
};
use crate::{
    dataset::{
        ids::{IdKind, ascending::Ascending, column::IdHashes},
        table::paths::segment_path,
    },
    error::{Error, Result},
    id::{IdHash, Writer},
    record::side::{Side, Sides},
    storage::{Staged, Store},
};

/// Pairs held in memory before they are written as a segment (12 bytes each).
const SEGMENT_PAIRS: usize = 4 << 20;

/// Pairs from which on ids that ascend make a segment of their own when others follow that do not: fewer would be many segments.
const LEAST_ORDERED: usize = 1 << 20;

/// Bytes of ids in memory that make a segment.
const MOST_ORDERED_BYTES: usize = 24 << 20;

/// Bytes of a pair with its hash: ids that take more are stored as hashes.
const HASH_BYTES: u64 = 8;

/// Bytes of headers of pages, which count for little beside many ids.
const HEADER_BYTES: u64 = 1 << 10;

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
    pub fn append(&mut self, more: Self, base: u64) {
        self.refs.extend(more.refs.into_iter().map(|segment| segment.moved(base)));
        self.staged.extend(more.staged);
        self.repeated += more.repeated;
    }

    /// Finishes the writers of all kinds, in parallel.
    ///
    /// # Errors
    /// If the store fails.
    pub fn finish<const KINDS: usize>(mut writers: [SegmentWriter; KINDS]) -> Result<Self> {
        writers.iter_mut().try_for_each(SegmentWriter::flush)?;
        let mut all = Self::default();
        for mut writer in writers {
            writer.wait()?;
            all.refs.append(&mut writer.done.refs);
            all.staged.append(&mut writer.done.staged);
            all.repeated += writer.done.repeated;
        }
        Ok(all)
    }
}

/// A segment, its unpublished buckets, and the number of pairs whose hash also occurs earlier.
type Written = (SegmentRef, Vec<Staged>, u64);

/// Collects the ids of one commit and writes a segment whenever enough have accumulated, so that memory is bounded.
///
/// Hashes are evenly distributed. Pairs are partitioned by their first bits as they arrive, so that finishing a segment
/// means sorting many small parts, each of which fits a cache:
///
/// ```text
/// pairs as they arrive -> runs of 2^16 pairs, split into 256 parts -> part i of all runs, sorted -> bucket
/// ```
///
/// While all ids ascend, they are kept as well. Then a segment has them in place of the hashes, which only make its root.
#[derive(Debug)]
pub struct SegmentWriter {
    store: Arc<dyn Store>,
    kind: IdKind,
    /// Start of the names of its segments.
    name: String,
    /// Name of the side that its records are on.
    side: Option<String>,
    pending: Pairs,
    /// The ids of the pending pairs if they ascend.
    order: Ids,
    /// Number of pairs that make a segment.
    most_pairs: usize,
    /// Thread that writes the previous segment.
    writing: Option<JoinHandle<Result<Written>>>,
    started: usize,
    done: Segments,
}

impl SegmentWriter {
    /// Starts the segments of a commit.
    pub fn new(store: Arc<dyn Store>, kind: IdKind, writer: impl Into<Writer>) -> Self {
        Self {
            store,
            kind,
            name: writer.into().to_string(),
            side: None,
            pending: Pairs::default(),
            order: Ids::default(),
            most_pairs: SEGMENT_PAIRS,
            writing: None,
            started: 0,
            done: Segments::default(),
        }
    }

    /// Makes it one of several writers of a run, one for each side of a divided dataset: its segments have names of their own, and
    /// all writers together take no more memory than one.
    #[must_use]
    pub fn of_side(mut self, side: Side, sides: &Sides) -> Self {
        if side > 0 {
            self.name = format!("{}-side{side}", self.name);
        }
        self.side = sides.name(side).map(str::to_owned);
        self.most_pairs = SEGMENT_PAIRS / sides.count().max(1);
        self
    }

    /// Adds the hash of a record's id; the record is numbered from the first record of the commit. Numbers must ascend.
    ///
    /// # Errors
    /// If a full segment cannot be written.
    pub fn push(&mut self, hash: IdHash, record: u64) -> Result<()> {
        self.take_order(None, record)?;
        self.add(hash, record)
    }

    fn add(&mut self, hash: IdHash, record: u64) -> Result<()> {
        if !self.pending.push(hash.0, record) {
            self.flush()?;
            self.pending.push(hash.0, record);
        }
        if self.pending.len >= self.most_pairs { self.flush() } else { Ok(()) }
    }

    /// Adds the hashes of those of some consecutive records that have an id, given the number of the first.
    ///
    /// # Errors
    /// Like [`push`](Self::push).
    pub fn push_all(&mut self, hashes: &IdHashes, first: u64) -> Result<()> {
        let Some(mut rest) = hashes.all() else {
            return hashes.iter().try_for_each(|(row, hash)| self.push(hash, first + row as u64));
        };
        if rest.is_empty() {
            return Ok(());
        }
        self.take_order(hashes.ascending(), first)?;
        let mut record = first;
        while !rest.is_empty() {
            let taken = self.pending.extend(rest, record);
            if taken == 0 || self.pending.len >= self.most_pairs {
                self.flush()?;
            }
            rest = &rest[taken..];
            record += taken as u64;
        }
        Ok(())
    }

    /// Keeps the ids of the next pairs if they and those before ascend; `None` if they do not ascend themselves.
    fn take_order(&mut self, ids: Option<&Ascending>, first: u64) -> Result<()> {
        let fits = |ids: &Ascending| ids.len() <= self.most_pairs;
        let ids = ids.filter(|ids| fits(ids));
        if let (Some(ids), Ids::Ascend { bytes, .. }) = (ids, &self.order) {
            // A segment has whole parts.
            if self.pending.len + ids.len() > self.most_pairs || bytes + ids.bytes() > MOST_ORDERED_BYTES {
                self.flush()?;
            }
        }
        if self.order.push(ids, first, self.pending.len == 0) {
            return Ok(());
        }
        if self.pending.len >= LEAST_ORDERED && matches!(self.order, Ids::Ascend { .. }) {
            self.flush()?;
            if self.order.push(ids, first, true) {
                return Ok(());
            }
        }
        self.order = Ids::Mixed;
        Ok(())
    }

    /// Starts writing a segment of the collected pairs.
    fn flush(&mut self) -> Result<()> {
        let order = std::mem::take(&mut self.order);
        if self.pending.len == 0 {
            return Ok(());
        }
        self.wait()?;
        let mut pairs = std::mem::take(&mut self.pending);
        pairs.divide();
        let mut segment = SegmentRef {
            kind: self.kind,
            path: segment_path(&format!("{}/{}-{}", self.kind.name(), self.name, self.started)),
            record_base: 0,
            side: self.side.clone(),
            ordered: false,
            pairs: pairs.len as u64,
            buckets: (pairs.len as u64).div_ceil(BUCKET_PAIRS).next_power_of_two().min(PARTS as u64),
            bytes: 0,
            root: None,
            seals: Vec::new(),
        };
        self.started += 1;
        let store = Arc::clone(&self.store);
        let write = move || {
            let ordered = match order {
                Ids::Ascend { parts, .. } if count(&parts) == pairs.len => {
                    write_ordered(store.as_ref(), &segment, &parts, &pairs)?
                }
                _ => None,
            };
            let buckets: Vec<WrittenBucket> = match ordered {
                Some(bucket) => {
                    (segment.ordered, segment.buckets) = (true, 1);
                    vec![bucket]
                }
                None => (0..segment.buckets)
                    .into_par_iter()
                    .map(|bucket| write_bucket(store.as_ref(), &segment, bucket, &pairs))
                    .collect::<Result<_>>()?,
            };
            segment.bytes = buckets.iter().map(|bucket| bucket.bytes).sum();
            segment.root = Some(sum::root_of(buckets.iter().map(|bucket| (bucket.pairs, bucket.hash))));
            segment.seals = seals_of(&buckets);
            let repeated = buckets.iter().map(|bucket| bucket.repeated).sum();
            Ok((segment, buckets.into_iter().map(|bucket| bucket.staged).collect(), repeated))
        };
        self.writing = Some(std::thread::spawn(write));
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
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
        let _ = self.wait();
    }
}

/// Number of parts that pairs are split into by the first bits of their hashes; also the maximum number of buckets of a
/// segment.
const PARTS: usize = 256;

/// Bits that select a part.
const PART_BITS: u32 = PARTS.trailing_zeros();

/// Pairs per run: split together, so that all parts stay in a cache meanwhile.
const RUN_PAIRS: usize = 1 << 16;

/// Pairs collected for the next segment.
#[derive(Debug, Default)]
struct Pairs {
    /// Base of the record numbers below.
    first: u64,
    len: usize,
    runs: Vec<Run>,
    hashes: Vec<u64>,
    records: Vec<u32>,
}

/// Pairs split into parts, each in order of arrival.
#[derive(Debug)]
struct Run {
    hashes: Vec<u64>,
    records: Vec<u32>,
    /// Start of each part, and the end of the last one.
    starts: Vec<u32>,
}

impl Pairs {
    /// Adds a pair; returns false if its record is too far from the first one.
    fn push(&mut self, hash: u64, record: u64) -> bool {
        if self.len == 0 {
            self.first = record;
        }
        let Some(Ok(record)) = record.checked_sub(self.first).map(u32::try_from) else { return false };
        self.hashes.push(hash);
        self.records.push(record);
        self.len += 1;
        if self.hashes.len() == RUN_PAIRS {
            self.divide();
        }
        true
    }

    /// Adds pairs of consecutive records while the run has room and returns how many; 0 if their records are too far
    /// from the first one.
    fn extend(&mut self, hashes: &[IdHash], record: u64) -> usize {
        if self.len == 0 {
            self.first = record;
        }
        let Some(Ok(record)) = record.checked_sub(self.first).map(u32::try_from) else { return 0 };
        let room = (RUN_PAIRS - self.hashes.len()).min(SEGMENT_PAIRS - self.len);
        let taken = hashes.len().min(room).min(usize::try_from(u32::MAX - record).unwrap_or(usize::MAX));
        let Ok(end) = u32::try_from(taken).map(|taken| record + taken) else { return 0 };
        self.hashes.extend(hashes[..taken].iter().map(|hash| hash.0));
        self.records.extend(record..end);
        self.len += taken;
        if self.hashes.len() == RUN_PAIRS {
            self.divide();
        }
        taken
    }

    /// Makes a run of the pairs that are in none.
    fn divide(&mut self) {
        let part = |hash: u64| usize::from((hash >> (u64::BITS - PART_BITS)).to_le_bytes()[0]);
        let mut starts = vec![0_u32; PARTS + 1];
        self.hashes.iter().for_each(|hash| starts[part(*hash) + 1] += 1);
        for i in 0..PARTS {
            starts[i + 1] += starts[i];
        }
        let mut ends = starts.clone();
        let (mut hashes, mut records) = (vec![0; self.hashes.len()], vec![0; self.hashes.len()]);
        for (hash, record) in self.hashes.drain(..).zip(self.records.drain(..)) {
            let at = &mut ends[part(hash)];
            (hashes[*at as usize], records[*at as usize]) = (hash, record);
            *at += 1;
        }
        self.runs.push(Run { hashes, records, starts });
    }

    /// Returns the pairs of a part, sorted.
    fn part(&self, part: usize) -> Vec<(u64, u64)> {
        let range = |run: &Run| run.starts[part] as usize..run.starts[part + 1] as usize;
        let count: usize = self.runs.iter().map(|run| range(run).len()).sum();
        // As many piles as give them a few pairs each, so that little is left to sort.
        let bits = (count / 4).max(2).ilog2().min(u64::BITS - PART_BITS);
        let pile = |hash: u64| usize::try_from((hash << PART_BITS) >> (u64::BITS - bits)).unwrap_or(0);
        let mut starts = vec![0_u32; (1 << bits) + 1];
        for run in &self.runs {
            run.hashes[range(run)].iter().for_each(|hash| starts[pile(*hash) + 1] += 1);
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut sorted = vec![(0, 0); count];
        for run in &self.runs {
            for (hash, record) in run.hashes[range(run)].iter().zip(&run.records[range(run)]) {
                let at = &mut starts[pile(*hash)];
                sorted[*at as usize] = (*hash, self.first + u64::from(*record));
                *at += 1;
            }
        }
        // Each pile's start has advanced to its end.
        let mut from = 0;
        for end in &starts[..1 << bits] {
            let end = *end as usize;
            sorted[from..end].sort_unstable();
            from = end;
        }
        sorted
    }
}

/// The ids of the pending pairs.
#[derive(Debug)]
enum Ids {
    /// They ascend: the number of the first record of each part, and its ids. Only if these are all pending pairs do they make a segment.
    Ascend { parts: Vec<(u64, Ascending)>, bytes: usize },
    /// They do not, or not all of them are known.
    Mixed,
}

impl Default for Ids {
    fn default() -> Self {
        Self::Ascend { parts: Vec::new(), bytes: 0 }
    }
}

impl Ids {
    /// Adds ids; returns false if they do not follow those before. `first` is the number of their first record, and `is_first` whether no pairs are
    /// before them.
    fn push(&mut self, ids: Option<&Ascending>, first: u64, is_first: bool) -> bool {
        let (Self::Ascend { parts, bytes }, Some(ids)) = (self, ids) else { return false };
        let follows = parts.last().map_or(is_first, |(_, before)| before.last() <= ids.first());
        if follows {
            *bytes += ids.bytes();
            parts.push((first, ids.clone()));
        }
        follows
    }
}

fn count(parts: &[(u64, Ascending)]) -> usize {
    parts.iter().map(|(_, ids)| ids.len()).sum()
}

/// Writes the only bucket of a segment whose ids ascend; `None` if hashes take less.
fn write_ordered(
    store: &dyn Store,
    segment: &SegmentRef,
    parts: &[(u64, Ascending)],
    pairs: &Pairs,
) -> Result<Option<WrittenBucket>> {
    let mut writer = OrderedWriter::create(store, segment)?;
    for (first, ids) in parts {
        let mut record = *first;
        ids.each(&mut |id| {
            record += 1;
            writer.push(id, record - 1)
        })?;
    }
    if writer.end()? > segment.pairs * HASH_BYTES + HEADER_BYTES {
        return Ok(None);
    }
    let mut sum = PairSum::default();
    let all: Vec<usize> = (0..PARTS).collect();
    for some in all.chunks(PARTS_AT_ONCE) {
        let sorted: Vec<Vec<(u64, u64)>> = some.par_iter().map(|part| pairs.part(*part)).collect();
        sorted.iter().for_each(|pairs| sum.add(pairs));
    }
    writer.finish(&sum).map(Some)
}

fn write_bucket(store: &dyn Store, segment: &SegmentRef, bucket: u64, pairs: &Pairs) -> Result<WrittenBucket> {
    let mut writer = BucketWriter::create(store, segment, bucket)?;
    let parts = PARTS as u64 / segment.buckets;
    for part in bucket * parts..(bucket + 1) * parts {
        writer.push_all(&pairs.part(usize::try_from(part).unwrap_or(0)))?;
    }
    writer.finish()
}
