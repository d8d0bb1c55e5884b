//! Writing of segments: the ids of a commit become sorted buckets in bounded memory.

use std::{sync::Arc, thread::JoinHandle};

use arrow::{
    array::{Array, AsArray, StringArray},
    compute::concat,
};
use rayon::prelude::*;

use super::{
    BUCKET_PAIRS, BucketWriter, SegmentRef, WrittenBucket, ordered::OrderedWriter, pairs::PairSum, segment::seals_of,
    sum,
};
use crate::{
    dataset::{
        ids::{
            IdKind,
            ascending::{self, Ascending, Form, HASH_BYTES, LEAST_GROUP_ROWS, text_bytes},
            column::IdHashes,
        },
        table::{chunks::Chunk, paths::segment_path},
    },
    error::{Error, Result},
    id::{IdHash, Writer},
    record::{
        numbers::Progression,
        side::{Side, Sides},
    },
    storage::{Staged, Store},
};

/// Pairs held in memory before they are written as a segment (12 bytes each).
const SEGMENT_PAIRS: usize = 4 << 20;

/// Pairs from which on ids that ascend make a segment of their own when others follow that do not: fewer would be many segments.
const LEAST_ORDERED: usize = 1 << 20;

/// Bytes of ids in memory that make a segment.
const MOST_ORDERED_BYTES: usize = 24 << 20;

/// Bytes of headers of pages, which count for little beside many ids.
const HEADER_BYTES: usize = 1 << 10;

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
        if let (Some(ids), Ids::Ascend(kept)) = (ids, &self.order) {
            // A segment has whole parts.
            if self.pending.len + ids.len() > self.most_pairs || kept.bytes + ids.bytes() > MOST_ORDERED_BYTES {
                self.flush()?;
            }
        }
        if self.order.push(ids, first, self.pending.len == 0)? {
            return Ok(());
        }
        if self.pending.len >= LEAST_ORDERED && matches!(self.order, Ids::Ascend(_)) {
            self.flush()?;
            if self.order.push(ids, first, true)? {
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
            let groups = match order {
                Ids::Ascend(kept) => kept.finish(pairs.len)?,
                Ids::Mixed => None,
            };
            let buckets: Vec<WrittenBucket> = match groups {
                Some(groups) => {
                    (segment.ordered, segment.buckets) = (true, 1);
                    vec![write_ordered(store.as_ref(), &segment, &groups, &pairs)?]
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
        // As many piles as pairs, so that hardly anything is left to sort.
        let bits = count.max(2).ilog2().min(u64::BITS - PART_BITS);
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
        sort_nearly_sorted(&mut sorted);
        sorted
    }
}

/// Places that a pair is moved by at most before all pairs are sorted in another way.
const MOST_MOVES: usize = 64;

/// Sorts pairs hardly any of which is more than a few places from its own.
fn sort_nearly_sorted(pairs: &mut [(u64, u64)]) {
    for at in 1..pairs.len() {
        let pair = pairs[at];
        let mut to = at;
        while to > 0 && pairs[to - 1] > pair {
            pairs[to] = pairs[to - 1];
            to -= 1;
        }
        pairs[to] = pair;
        if at - to > MOST_MOVES {
            return pairs.sort_unstable();
        }
    }
}

/// The ids of the pending pairs.
#[derive(Debug)]
enum Ids {
    /// They ascend. Only if these are all pending pairs do they make a segment.
    Ascend(Kept),
    /// They do not, or not all of them are known.
    Mixed,
}

/// Ids that ascend.
#[derive(Debug, Default)]
struct Kept {
    /// Those that are encoded.
    groups: Vec<IdGroup>,
    /// Those that follow and are too few for a row group, with the number of the first record of each part.
    loose: Vec<(u64, StringArray)>,
    loose_rows: usize,
    bytes: usize,
    last: Option<String>,
}

/// Ids of a row group, and the numbers of their records.
#[derive(Debug)]
struct IdGroup {
    ids: Chunk,
    records: Vec<Progression>,
}

impl Default for Ids {
    fn default() -> Self {
        Self::Ascend(Kept::default())
    }
}

impl Ids {
    /// Adds ids; returns false if they do not follow those before. `first` is the number of their first record, and `is_first` whether no pairs are
    /// before them.
    fn push(&mut self, ids: Option<&Ascending>, first: u64, is_first: bool) -> Result<bool> {
        let (Self::Ascend(kept), Some(ids)) = (self, ids) else { return Ok(false) };
        let follows = kept.last.as_deref().map_or(is_first, |last| last <= ids.first());
        if follows {
            kept.push(ids, first)?;
        }
        Ok(follows)
    }
}

impl Kept {
    fn push(&mut self, ids: &Ascending, first: u64) -> Result<()> {
        self.last = Some(ids.last().to_owned());
        self.bytes += ids.bytes();
        match ids.form() {
            Form::Texts(texts) => {
                self.loose.push((first, texts.clone()));
                self.loose_rows += texts.len();
                if self.loose_rows < LEAST_GROUP_ROWS { Ok(()) } else { self.pack() }
            }
            Form::Encoded(chunks) => {
                self.pack()?;
                let mut first = first;
                for ids in chunks {
                    let count = ids.rows();
                    self.groups
                        .push(IdGroup { ids: ids.clone(), records: vec![Progression { first, step: 1, count }] });
                    first += count as u64;
                }
                Ok(())
            }
        }
    }

    /// Encodes what is loose.
    fn pack(&mut self) -> Result<()> {
        let (loose, _) = (std::mem::take(&mut self.loose), std::mem::take(&mut self.loose_rows));
        if loose.is_empty() {
            return Ok(());
        }
        let progression =
            |(first, texts): &(u64, StringArray)| Progression { first: *first, step: 1, count: texts.len() };
        let records = loose.iter().map(progression).collect();
        self.bytes -= loose.iter().map(|(_, texts)| text_bytes(texts)).sum::<usize>();
        let texts: Vec<&dyn Array> = loose.iter().map(|(_, texts)| texts as &dyn Array).collect();
        let ids = ascending::encode(concat(&texts)?.as_string())?;
        self.bytes += ids.bytes.len();
        self.groups.push(IdGroup { ids, records });
        Ok(())
    }

    /// Returns the row groups if they are of so many pairs, and take less than hashes.
    fn finish(mut self, pairs: usize) -> Result<Option<Vec<IdGroup>>> {
        self.pack()?;
        let rows: usize = self.groups.iter().map(|group| group.ids.rows()).sum();
        Ok((rows == pairs && self.bytes <= pairs * HASH_BYTES + HEADER_BYTES).then_some(self.groups))
    }
}

/// Writes the only bucket of a segment whose ids ascend.
fn write_ordered(store: &dyn Store, segment: &SegmentRef, groups: &[IdGroup], pairs: &Pairs) -> Result<WrittenBucket> {
    let mut writer = OrderedWriter::create(store, segment)?;
    groups.iter().try_for_each(|group| writer.append(&group.ids, &group.records))?;
    let mut sum = PairSum::default();
    let all: Vec<usize> = (0..PARTS).collect();
    for some in all.chunks(PARTS_AT_ONCE) {
        let sorted: Vec<Vec<(u64, u64)>> = some.par_iter().map(|part| pairs.part(*part)).collect();
        sorted.iter().for_each(|pairs| sum.add(pairs));
    }
    writer.finish(&sum)
}

fn write_bucket(store: &dyn Store, segment: &SegmentRef, bucket: u64, pairs: &Pairs) -> Result<WrittenBucket> {
    let mut writer = BucketWriter::create(store, segment, bucket)?;
    let parts = PARTS as u64 / segment.buckets;
    for part in bucket * parts..(bucket + 1) * parts {
        writer.push_all(&pairs.part(usize::try_from(part).unwrap_or(0)))?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_sorted_however_far_they_are_from_their_place() {
        let noise = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (len, step) in [(0, 1), (1, 1), (2, 1), (1_000, 1), (1_000, 7), (1_000, 400), (5_000, 1_u64 << 40)] {
            // Ascends but for noise of `step`.
            let mut pairs: Vec<(u64, u64)> = (0..len).map(|n| (10 * n + noise(n) % (10 * step), n % 3)).collect();
            let mut expected = pairs.clone();
            expected.sort_unstable();
            sort_nearly_sorted(&mut pairs);
            assert!(pairs == expected, "{len} {step}");
        }
        let mut same: Vec<(u64, u64)> = (0..100_000).map(|n| (7, n)).collect();
        let expected = same.clone();
        sort_nearly_sorted(&mut same);
        assert_eq!(same, expected);
    }
}
