//! Merging of segments: several of similar size become one, so that a lookup searches few.
//!
//! Sizes are divided into classes, each eight times the one before. Eight segments of one class are merged into one of
//! the next class or a higher one; smaller segments are included if that is cheaper than leaving them. So there are at
//! most seven segments per class, and a pair is rewritten at most once per class. Segments of different splits of a
//! divided dataset are never merged.
//!
//! Segments of ids in ascending order are merged by themselves, up to a size from which on they stay as they are. If
//! the ids of one begin where those of another end, so does the merged one; else it has hashes, like the rest of the
//! index, unless it is large: then the ids are merged.
//!
//! ```text
//! inputs    a sorted, b=00 b=01        b sorted, b=00            pairs up to the minimum of the inputs' last pairs in
//!             \ batch  \                 | batch                 memory are complete: they are collected, sorted
//!              +--------+------ sort ----+ -> output b=00 ...    and written, and then the inputs are read on
//! ```
//!
//! Each output bucket is made separately from the hash ranges of the inputs, one batch of each at a time, so memory
//! depends neither on the size of the index nor on how often an id repeats.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
};

use arrow::array::StringArray;
use rayon::prelude::*;

use super::{
    BUCKET_PAIRS, BucketWriter, SegmentRef, WrittenBucket,
    ordered::{self, HELD_PAIRS, IdStream, OrderedWriter},
    pairs::{PairSum, VisitPairs},
    read::PairStream,
    segment::seals_of,
    sum,
};
use crate::{
    dataset::{
        ids::IdKind,
        table::{growth, paths::segment_path},
    },
    error::{Error, Result},
    events::Cancel,
    id::TransactionId,
    storage::{Staged, Store},
};

/// Segments of one class that are merged.
const FAN_OUT: usize = 8;

/// Pairs below which a segment is in the lowest class: one bucket, which is quick to rewrite.
const LOWEST_CLASS: u64 = BUCKET_PAIRS;

/// Maximum segments merged at a time; each has a batch in memory and an open object.
const MAX_INPUTS: usize = 512;

/// Memory per input of one bucket: decoded and encoded pairs, and read-ahead of a remote object.
const INPUT_BYTES: u64 = 2 << 20;

/// Memory of a pair of an ordered input while it is sorted, and the least number of pairs that are.
const PAIR_MEMORY: u64 = 2 * 16;
const LEAST_HELD: u64 = 1 << 16;

/// A segment merged from several.
#[derive(Debug)]
pub struct MergedSegment {
    /// Segments that it replaces.
    pub inputs: Vec<SegmentRef>,
    /// The merged segment; its record numbers are absolute.
    pub output: SegmentRef,
    /// Its buckets, to be published before the commit.
    pub staged: Vec<Staged>,
}

/// Returns the size class of a segment; each class is eight times the one before.
fn class_of(pairs: u64) -> u32 {
    if pairs < LOWEST_CLASS { 0 } else { (pairs / LOWEST_CLASS).ilog(FAN_OUT as u64) + 1 }
}

/// Pairs up to which a segment always becomes one with others when a commit adds some.
const LEAST_GROWN: u64 = 256;

/// Pairs from which on a segment with ids becomes one with others of its form only, which take less.
const LEAST_ORDERED: u64 = 1 << 16;

/// Pairs that a commit makes one segment of at most, which takes some hundredths of a second.
const MOST_GROWN: u64 = 1 << 18;

/// Memory of a merge that a commit makes.
const GROWTH_MEMORY: u64 = 64 << 20;

/// Segments after a commit has added some, and the buckets of the new ones.
pub(in crate::dataset) type Grown = (Vec<SegmentRef>, Vec<Staged>);

/// Adds the published segments of a commit to those of its parent: the smallest of each kind and split become one, as
/// [`growth`] says. Large ones are left to `compact`. The new ones are named `<name>-<number>`.
///
/// # Errors
/// When one of them is damaged, or the store fails.
pub(in crate::dataset) fn grow_segments(
    store: &Arc<dyn Store>,
    segments: Vec<SegmentRef>,
    added: &[SegmentRef],
    name: &str,
) -> Result<Grown> {
    if added.is_empty() {
        return Ok((segments, Vec::new()));
    }
    let group = |segment: &SegmentRef| {
        let keeps_ids = segment.ordered && segment.pairs >= LEAST_ORDERED;
        (segment.kind, segment.split.clone(), segment.hashes, keeps_ids)
    };
    let mut groups: BTreeMap<_, Vec<SegmentRef>> = BTreeMap::new();
    for segment in segments.into_iter().chain(added.iter().cloned()) {
        groups.entry(group(&segment)).or_default().push(segment);
    }
    let (mut left, mut staged) = (Vec::new(), Vec::new());
    for (form, mut segments) in groups {
        segments.sort_by(|a, b| (a.pairs, &a.path).cmp(&(b.pairs, &b.path)));
        let sizes: Vec<u64> = segments.iter().map(|segment| segment.pairs).take(MAX_INPUTS).collect();
        let is_added = added.iter().any(|one| one.pairs > 0 && group(one) == form);
        let crowd = if is_added { growth::crowd_size(&sizes, LEAST_GROWN, MOST_GROWN) } else { 0 };
        let rest = segments.split_off(crowd);
        if !segments.is_empty() {
            let path = segment_path(&format!("{}/{name}-{}", form.0.name(), left.len()));
            let merged = merge_as(store, segments, path, GROWTH_MEMORY, &Cancel::default())?;
            left.push(merged.output);
            staged.extend(merged.staged);
        }
        left.extend(rest);
    }
    Ok((left, staged))
}

/// Returns the segments to merge, one group for each kind of id, in each split, in each form, with too many.
pub fn segments_to_merge(segments: &[SegmentRef]) -> Vec<Vec<SegmentRef>> {
    let group = |segment: &&SegmentRef| (segment.kind, segment.split.clone(), segment.ordered, segment.hashes);
    let groups: BTreeSet<_> = segments.iter().map(|segment| group(&segment)).collect();
    let of = |wanted| segments_to_merge_of(segments.iter().filter(|segment| group(segment) == wanted).collect());
    groups.into_iter().filter_map(of).collect()
}

fn segments_to_merge_of(mut left: Vec<&SegmentRef>) -> Option<Vec<SegmentRef>> {
    // Those that could not be merged with one of their size stay.
    left.retain(|segment| !segment.ordered || segment.pairs <= ordered::most_pairs(segment.hashes) / 2);
    left.sort_by(|a, b| (a.pairs, &a.path).cmp(&(b.pairs, &b.path)));
    // Segments chosen so far; their total determines a class as well.
    let (mut chosen, mut pairs) = (0, 0);
    for class in 0..=class_of(left.last()?.pairs) {
        let end = left.partition_point(|segment| class_of(segment.pairs) <= class);
        let own = left.iter().filter(|segment| class_of(segment.pairs) == class).count();
        let merged = usize::from(chosen > 0 && class_of(pairs) == class);
        if own + merged >= FAN_OUT {
            chosen = end;
            pairs = left[..end].iter().map(|segment| segment.pairs).sum();
        }
    }
    chosen = chosen.min(MAX_INPUTS);
    let most = left.first().filter(|segment| segment.ordered).map_or(u64::MAX, |one| ordered::most_pairs(one.hashes));
    while left[..chosen].iter().map(|segment| segment.pairs).sum::<u64>() > most {
        chosen -= 1;
    }
    (chosen > 0).then(|| left[..chosen].iter().map(|segment| (*segment).clone()).collect())
}

/// Merges segments of one kind into one, in at most `memory` bytes where possible.
///
/// # Errors
/// If an input is missing, damaged or not sorted, the store fails, or `cancel` is set.
pub fn merge_into_one(
    store: &Arc<dyn Store>,
    inputs: Vec<SegmentRef>,
    memory: u64,
    cancel: &Cancel,
) -> Result<MergedSegment> {
    let kind = inputs.first().map_or(IdKind::Record, |segment| segment.kind);
    merge_as(store, inputs, segment_path(&format!("{}/{}-0", kind.name(), TransactionId::fresh())), memory, cancel)
}

/// Like [`merge_into_one`], into a segment with this path.
fn merge_as(
    store: &Arc<dyn Store>,
    inputs: Vec<SegmentRef>,
    path: String,
    memory: u64,
    cancel: &Cancel,
) -> Result<MergedSegment> {
    let Some(first) = inputs.first() else { return Err(Error::internal("nothing to merge")) };
    let form = |segment: &SegmentRef| (segment.kind, segment.split.clone(), segment.hashes);
    if inputs.iter().any(|segment| form(segment) != form(first)) {
        return Err(Error::internal("segments of several kinds or splits are to be merged"));
    }
    let pairs: u64 = inputs.iter().map(|segment| segment.pairs).sum();
    let mut output = SegmentRef {
        kind: first.kind,
        path,
        record_base: 0,
        split: first.split.clone(),
        ordered: false,
        hashes: first.hashes,
        pairs,
        buckets: pairs.div_ceil(BUCKET_PAIRS).next_power_of_two(),
        bytes: 0,
        root: None,
        seals: Vec::new(),
    };
    let mut merge = Merge { store, inputs: &inputs, held: HELD_PAIRS, cancel };
    let mut at_once = usize::try_from(memory / (INPUT_BYTES * inputs.len() as u64)).unwrap_or(usize::MAX).max(1);
    let mut written: Vec<WrittenBucket> = Vec::new();
    if inputs.iter().any(|segment| segment.ordered) {
        merge.held = (memory / PAIR_MEMORY / inputs.len() as u64).clamp(LEAST_HELD, 4 * HELD_PAIRS);
        at_once = 1;
        let all = inputs.iter().all(|segment| segment.ordered);
        let in_order = if all { in_order(store, &inputs)? } else { None };
        if in_order.is_some() || (all && pairs > ordered::MOST_HASHED) {
            (output.ordered, output.buckets) = (true, 1);
            written.push(match in_order {
                Some(in_order) => merge.merge_ordered(&in_order, &output)?,
                None => merge.merge_interleaved(&output)?,
            });
        }
    }
    let buckets: Vec<u64> = (0..output.buckets).skip(written.len()).collect();
    for buckets in buckets.chunks(at_once) {
        let merged = buckets.par_iter().map(|bucket| merge.merge_bucket(&output, *bucket));
        written.extend(merged.collect::<Result<Vec<_>>>()?);
    }
    let found: u64 = written.iter().map(|bucket| bucket.pairs).sum();
    if found != pairs {
        return Err(Error::integrity(format!("expected {pairs} pairs in segments of the id index, found {found}"))
            .at_location(store.location().to_string()));
    }
    output.bytes = written.iter().map(|bucket| bucket.bytes).sum();
    output.root = sum::root_of_written(&written);
    output.seals = seals_of(&written)?;
    Ok(MergedSegment { inputs, output, staged: written.into_iter().map(|bucket| bucket.staged).collect() })
}

/// An input of a bucket, and its pairs in memory.
struct Input {
    stream: PairStream,
    pairs: Vec<(u64, u64)>,
    at: usize,
}

impl Input {
    /// Ensures that a pair is in memory; returns false at the end.
    fn ensure_pair(&mut self) -> Result<bool> {
        while self.at == self.pairs.len() {
            self.at = 0;
            if !self.stream.next_batch(&mut self.pairs)? {
                self.pairs.clear();
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves all pairs in memory up to that of `hash` and `record` to `out`.
    fn drain_until(&mut self, hash: u64, record: u64, out: &mut Vec<(u64, u64)>) {
        let left = &self.pairs[self.at..];
        let count = left.partition_point(|pair| *pair <= (hash, record));
        out.extend_from_slice(&left[..count]);
        self.at += count;
    }
}

/// Returns segments of ids in ascending order in the order of their ids; `None` if the ids of some lie between those of
/// another.
fn in_order(store: &Arc<dyn Store>, segments: &[SegmentRef]) -> Result<Option<Vec<SegmentRef>>> {
    let mut bounds = Vec::with_capacity(segments.len());
    for segment in segments {
        bounds.extend(ordered::id_bounds(store, segment)?.map(|(first, last)| (first, last, segment)));
    }
    bounds.sort_by(|a, b| (&a.0, &a.1, a.2.record_base).cmp(&(&b.0, &b.1, b.2.record_base)));
    let follow = bounds.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    Ok(follow.then(|| bounds.into_iter().map(|(_, _, segment)| segment.clone()).collect()))
}

/// The ids of a segment in order, of which there is one in any case.
struct IdCursor {
    stream: IdStream,
    ids: StringArray,
    records: Vec<u64>,
    at: usize,
}

impl IdCursor {
    fn open(store: &Arc<dyn Store>, segment: &SegmentRef) -> Result<Option<Self>> {
        let stream = IdStream::open(store, segment)?;
        let mut all = Self { stream, ids: StringArray::new_null(0), records: Vec::new(), at: 0 };
        Ok(all.ensure_id()?.then_some(all))
    }

    /// Returns the next id and its record.
    fn peek_id(&self) -> (&str, u64) {
        (self.ids.value(self.at), self.records[self.at])
    }

    /// Passes over an id; returns false at the end.
    fn advance(&mut self) -> Result<bool> {
        self.at += 1;
        self.ensure_id()
    }

    fn ensure_id(&mut self) -> Result<bool> {
        while self.at == self.records.len() {
            let Some((ids, records)) = self.stream.next()? else { return Ok(false) };
            (self.ids, self.records, self.at) = (ids, records, 0);
        }
        Ok(true)
    }
}

/// A merge of segments, and how many pairs of an ordered input are in memory.
struct Merge<'a> {
    store: &'a Arc<dyn Store>,
    inputs: &'a [SegmentRef],
    held: u64,
    cancel: &'a Cancel,
}

impl Merge<'_> {
    fn merge_bucket(&self, output: &SegmentRef, bucket: u64) -> Result<WrittenBucket> {
        let mut writer = BucketWriter::create(self.store.as_ref(), output, bucket)?;
        self.visit_pairs(sum::hashes_of(bucket, output.buckets), &mut |pairs| writer.push_all(pairs))?;
        writer.finish()
    }

    /// Writes one segment of inputs whose ids follow each other.
    fn merge_ordered(&self, in_order: &[SegmentRef], output: &SegmentRef) -> Result<WrittenBucket> {
        let mut writer = OrderedWriter::create(self.store.as_ref(), output)?;
        for segment in in_order {
            self.cancel.check()?;
            IdStream::open(self.store, segment)?.each_id(&mut |id, record| writer.push(id, record))?;
        }
        if !output.hashes.has_proofs() {
            return writer.finish(None);
        }
        let mut sum = PairSum::new(output.hashes);
        self.visit_pairs(0..=u64::MAX, &mut |pairs| {
            sum.add_pairs(pairs);
            Ok(())
        })?;
        writer.finish(Some(&sum))
    }

    /// Writes one segment of inputs whose ids lie between each other. Only segments without roots are so large.
    fn merge_interleaved(&self, output: &SegmentRef) -> Result<WrittenBucket> {
        let mut writer = OrderedWriter::create(self.store.as_ref(), output)?;
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for segment in self.inputs {
            inputs.extend(IdCursor::open(self.store, segment)?);
        }
        // The one whose id is next is the last.
        inputs.sort_by(|a: &IdCursor, b| b.peek_id().cmp(&a.peek_id()));
        while let Some(mut next) = inputs.pop() {
            self.cancel.check()?;
            let more = loop {
                let (id, record) = next.peek_id();
                writer.push(id, record)?;
                if !next.advance()? {
                    break false;
                }
                if inputs.last().is_some_and(|other| other.peek_id() < next.peek_id()) {
                    break true;
                }
            };
            if more {
                let place = inputs.partition_point(|other| other.peek_id() > next.peek_id());
                inputs.insert(place, next);
            }
        }
        writer.finish(None)
    }

    /// Passes the pairs of all inputs with hashes of a range to `visit`, in order.
    fn visit_pairs(&self, hashes: RangeInclusive<u64>, visit: &mut VisitPairs<'_>) -> Result<()> {
        let open = |segment: &SegmentRef| Input {
            stream: PairStream::new(self.store, segment, hashes.clone(), self.held),
            pairs: Vec::new(),
            at: 0,
        };
        let mut inputs: Vec<Input> = self.inputs.iter().map(open).collect();
        let mut complete = Vec::new();
        loop {
            self.cancel.check()?;
            let mut left = Vec::with_capacity(inputs.len());
            for mut input in inputs {
                if input.ensure_pair()? {
                    left.push(input);
                }
            }
            inputs = left;
            // An input may continue with pairs after its last one in memory, but with none before it.
            let Some((hash, record)) = inputs.iter().filter_map(|input| input.pairs.last().copied()).min() else {
                return Ok(());
            };
            complete.clear();
            inputs.iter_mut().for_each(|input| input.drain_until(hash, record, &mut complete));
            // The pairs consist of sorted runs, which this sort merges efficiently.
            complete.sort();
            visit(&complete)?;
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::{
        super::{SegmentWriter, Segments, each_pair, lookup_one, read_segment},
        *,
    };
    use crate::{
        dataset::ids::{
            IdKind, Wanted,
            width::{HashPlan, HashWidth},
        },
        id::IdHash,
        storage::RemoteStore,
    };

    fn segment(pairs: u64, name: &str) -> SegmentRef {
        SegmentRef {
            kind: IdKind::Record,
            path: name.into(),
            record_base: 0,
            split: None,
            ordered: false,
            hashes: HashWidth::Eight,
            pairs,
            buckets: 1,
            bytes: 0,
            root: None,
            seals: Vec::new(),
        }
    }

    fn sizes(segments: &[u64]) -> Option<Vec<u64>> {
        let segments: Vec<_> = segments.iter().enumerate().map(|(i, n)| segment(*n, &i.to_string())).collect();
        let mut groups = segments_to_merge(&segments);
        assert!(groups.len() <= 1);
        groups.pop().map(|group| group.iter().map(|segment| segment.pairs).collect())
    }

    #[test]
    fn eight_of_one_class_are_merged_and_what_is_smaller_only_with_them() {
        const M: u64 = 1 << 20;
        assert_eq!((class_of(M - 1), class_of(M), class_of(8 * M - 1), class_of(8 * M)), (0, 1, 1, 2));
        assert_eq!(sizes(&[]), None);
        assert_eq!(sizes(&[10; 7]), None);
        assert_eq!(sizes(&[10; 8]), Some(vec![10; 8]));
        // A large segment is not rewritten for small ones.
        assert_eq!(sizes(&[10, 10, 10, 10, 10, 10, 10, 100 * M]), None);
        assert_eq!(sizes(&[&[10; 8][..], &[100 * M]].concat()), Some(vec![10; 8]));
        // The merge of eight small ones would be the eighth of the next class.
        assert_eq!(sizes(&[&[M - 1; 8][..], &[M; 7]].concat()), Some([&[M - 1; 8][..], &[M; 7]].concat()));
        assert_eq!(sizes(&[&[10; 3][..], &[M; 8]].concat()), Some([&[10; 3][..], &[M; 8]].concat()));
        // However many there are, one merge leaves few.
        assert_eq!(sizes(&[4 * M; 239]).map(|merged| merged.len()), Some(239));
    }

    #[test]
    fn segments_of_different_splits_are_never_merged() {
        let split = |i: usize| ["train", "test"].get(i % 3).map(|name| (*name).to_owned());
        let segments: Vec<SegmentRef> =
            (0..23).map(|i| SegmentRef { split: split(i), ..segment(10, &i.to_string()) }).collect();
        let groups = segments_to_merge(&segments);
        let splits: Vec<(Option<&str>, usize)> =
            groups.iter().map(|group| (group[0].split.as_deref(), group.len())).collect();
        assert_eq!(splits, [(Some("test"), 8), (Some("train"), 8)]);
        assert!(groups.iter().all(|group| group.iter().all(|segment| segment.split == group[0].split)));
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        assert!(merge_into_one(&store, segments, 1 << 20, &Cancel::default()).is_err());
    }

    #[test]
    fn merges_leave_few_segments_and_write_a_pair_seldom() {
        let mut segments = Vec::new();
        let (mut written, mut total) = (0, 0);
        for i in 0..5_000_u64 {
            let pairs = 1 + i * 7919 % 3_000_000;
            total += pairs;
            segments.push(segment(pairs, &i.to_string()));
            for group in segments_to_merge(&segments) {
                let merged: u64 = group.iter().map(|one| one.pairs).sum();
                written += merged;
                segments.retain(|one| !group.contains(one));
                segments.push(segment(merged, &format!("m{i}")));
            }
            assert!(segments.len() <= 7 * 6, "{}", segments.len());
        }
        assert!(written < 6 * total, "{written} of {total}");
    }

    #[test]
    fn segments_of_many_commits_become_few_with_all_pairs() {
        for width in [HashWidth::Five, HashWidth::Eight] {
            let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
            let plan = HashPlan::new(width);
            let (mut segments, mut expected): (Vec<SegmentRef>, Vec<(u64, IdHash)>) = (Vec::new(), Vec::new());
            for commit in 0..60_u64 {
                let rows = 1 + commit * 37 % 50;
                let base = expected.len() as u64;
                let mut writer = SegmentWriter::new(Arc::clone(&store), IdKind::Record, &plan, TransactionId::fresh());
                // Ids of a third of the commits ascend, and begin anew with each.
                let ids: Vec<String> = (0..rows)
                    .map(|row| if commit % 3 == 0 { format!("R{row:03}") } else { format!("{}", row * 7919 % 101) })
                    .collect();
                let column: StringArray = ids.iter().map(|id| Some(id.as_str())).collect();
                writer.push_all(crate::dataset::IdColumn::from(column).to_hashes(), 0).unwrap();
                let cut = |id: &String| width.truncate_hash(IdHash::from_id(id));
                expected.extend(ids.iter().enumerate().map(|(row, id)| (base + row as u64, cut(id))));
                let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
                store.publish_staged(staged).unwrap();
                let own: Vec<SegmentRef> = refs.into_iter().map(|segment| segment.shifted_by(base)).collect();
                let (now, staged) = grow_segments(&store, segments, &own, &format!("{commit:032}-0")).unwrap();
                store.publish_staged(staged).unwrap();
                assert!(now.len() <= 4, "{}", now.len());
                segments = now;
            }
            let mut found: Vec<(u64, IdHash)> = Vec::new();
            for segment in &segments {
                found.extend(read_segment(&store, segment).unwrap().into_iter().map(|(hash, record)| (record, hash)));
            }
            found.sort_unstable();
            assert!(found == expected, "{width:?}");
            // Without new pairs, nothing is merged, and what is large stays.
            let (same, staged) = grow_segments(&store, segments.clone(), &[], "none").unwrap();
            assert_eq!((same, staged.len()), (segments.clone(), 0));
            let large = SegmentRef { pairs: MOST_GROWN + 1, path: "large".into(), ..segments[0].clone() };
            let (with, _) =
                grow_segments(&store, vec![large.clone()], &segments[..1], &format!("{:032}-1", 0)).unwrap();
            assert!(with.contains(&large) && with.len() == 2);
        }
    }

    /// Returns the segments' pairs, written, merged and read back.
    fn merged(parts: &[Vec<(u64, u64)>], bases: &[u64]) -> (Arc<dyn Store>, MergedSegment) {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut segments = Vec::new();
        for (part, base) in parts.iter().zip(bases) {
            let mut writer =
                SegmentWriter::new(Arc::clone(&store), IdKind::Subject, &HashPlan::default(), TransactionId::fresh());
            part.iter().for_each(|(hash, record)| writer.push(IdHash(*hash), *record).unwrap());
            let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
            store.publish_staged(staged).unwrap();
            segments.extend(refs.into_iter().map(|one| SegmentRef { record_base: *base, ..one }));
        }
        let mut merged = merge_into_one(&store, segments, 64 << 20, &Cancel::default()).unwrap();
        store.publish_staged(std::mem::take(&mut merged.staged)).unwrap();
        (store, merged)
    }

    fn pairs_of(store: &Arc<dyn Store>, segment: &SegmentRef) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        each_pair(store, segment, &mut |hash, record| {
            found.push((hash.0, record));
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn a_merge_holds_every_pair_of_its_inputs_in_order() {
        let noise = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0x2545_f491_4f6c_dd1d);
        // Segments of several buckets beside small ones; one id that makes up a large part of all pairs; and the
        // extreme hashes.
        let large: Vec<(u64, u64)> = (0..1_500_000).map(|i| (noise(i), i)).collect();
        let skewed: Vec<(u64, u64)> = (0..100_000).map(|i| (if i % 3 > 0 { noise(7) } else { noise(i) }, i)).collect();
        let ends = vec![(0, 0), (u64::MAX, 1), (1 << 63, 2), ((1 << 63) - 1, 3)];
        let parts = [large, skewed.clone(), ends.clone(), ends, skewed, vec![(5, 0)]];
        let bases = [0, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 6_000_000];
        let (store, merged) = merged(&parts, &bases);
        let mut expected: Vec<(u64, u64)> = parts
            .iter()
            .zip(bases)
            .flat_map(|(part, base)| part.iter().map(move |(hash, record)| (*hash, base + record)))
            .collect();
        expected.sort_unstable();
        assert_eq!((merged.output.pairs, merged.output.buckets), (expected.len() as u64, 2));
        assert!(pairs_of(&store, &merged.output) == expected);
        assert!(merged.output.bytes / merged.output.pairs < 9, "{:?}", merged.output);
    }

    #[test]
    fn ids_that_lie_between_each_other_are_merged_in_their_order() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let plan = HashPlan::new(HashWidth::Five);
        // Ids of three segments in turn, runs of them, equal ones, and one that has all between two of another.
        let parts: [&dyn Fn(u64) -> u64; 4] = [&|n| 3 * n, &|n| 3 * n + n % 2, &|n| n / 4 * 40, &|n| 1_000_000 + n];
        let mut inputs = Vec::new();
        for (part, base) in parts.into_iter().zip([40_000, 0, 20_000, 60_000]) {
            let mut writer = SegmentWriter::new(Arc::clone(&store), IdKind::Record, &plan, TransactionId::fresh());
            let ids: StringArray = (0..20_000).map(|n| Some(format!("{:09}", part(n)))).collect();
            writer.push_all(plan.ids_for_index(IdKind::Record, Some(&ids.into())).into_encoded().unwrap(), 0).unwrap();
            let Segments { refs, staged, .. } = Segments::finish_all([writer]).unwrap();
            store.publish_staged(staged).unwrap();
            inputs.extend(refs.into_iter().map(|one| one.shifted_by(base)));
        }
        assert!(inputs.iter().all(|one| one.ordered) && in_order(&store, &inputs).unwrap().is_none());
        let mut output = SegmentRef { path: "_shardify/index/x.segment".into(), record_base: 0, ..inputs[0].clone() };
        output.pairs = 80_000;
        let merge = Merge { store: &store, inputs: &inputs, held: HELD_PAIRS, cancel: &Cancel::default() };
        let written = merge.merge_interleaved(&output).unwrap();
        (output.bytes, output.seals) = (written.bytes, seals_of(std::slice::from_ref(&written)).unwrap());
        store.publish_staged(vec![written.staged]).unwrap();
        let mut expected: Vec<_> = inputs.iter().flat_map(|one| read_segment(&store, one).unwrap()).collect();
        expected.sort_unstable();
        assert!(read_segment(&store, &output).unwrap() == expected);
        for id in ["000000000", "000000040", "000059997", "001019999"] {
            let find = |one| lookup_one(&store, one, Wanted { hash: IdHash::from_id(id), id }).unwrap();
            let mut all: Vec<u64> = inputs.iter().flat_map(find).collect();
            all.sort_unstable();
            assert_eq!(find(&output), all, "{id}");
        }
    }

    #[test]
    fn a_damaged_input_is_an_error_and_nothing_is_lost_silently() {
        let parts = vec![vec![(1, 0), (2, 1)]; 2];
        let (store, done) = merged(&parts, &[0, 2]);
        let mut inputs = done.inputs;
        inputs[1].pairs = 3;
        assert!(merge_into_one(&store, inputs.clone(), 1 << 20, &Cancel::default()).is_err());
        inputs[1].pairs = 2;
        store.delete(&inputs[0].bucket_path(0)).unwrap();
        assert!(merge_into_one(&store, inputs, 1 << 20, &Cancel::default()).is_err());
    }
}
