//! Plans sorts: decides which shards to sort together, and defines Z-order keys.
//!
//! The range of values of each shard is known. Shards whose ranges overlap are sorted together, and so are shards that
//! are not in the wanted order. A sorted shard that overlaps no other is kept, unless it is small and adjacent to
//! shards that are rewritten anyway, or to enough other small ones. A second run has nothing to do: the shards that a
//! sort makes are large and do not overlap, except for one remainder, whose neighbours are large.
//!
//! ```text
//! values   |--- s1 ---|--- s2 ---|--- s3 ---|--- s4 ---|          sorted
//!                           |-- new --|                           not sorted
//!             keep    |      sort together  |   keep
//! ```
//!
//! Z-order interleaves the bits of one rank per column, so that neighbours in the file are close in every column:
//!
//! ```text
//! rank of a   a2 a1 a0        a rank is a value's position among the quantiles of a sample, so columns of any type and
//! rank of b   b2 b1 b0        distribution have the same weight; nulls have the lowest rank
//! key         a2 b2 a1 b1 a0 b0
//! ```

use std::collections::BTreeMap;

use super::compact::SMALL;
use crate::{
    dataset::{Arrangement, Order, ShardOrder},
    units::Size,
};

/// Bits of a column's rank in a Z-order: enough to distinguish pages, not values.
pub const RANK_BITS: u32 = 12;

/// Maximum number of columns of a Z-order: more would leave too few bits of each to be useful.
pub const MAX_ZORDER_COLUMNS: usize = 5;

/// Minimum and maximum value, as bytes that compare like the values.
pub type Range = (Vec<u8>, Vec<u8>);

/// Planner's view of a shard; candidates are given in record order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortCandidate {
    /// Bytes on disk.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Whether the user selected it.
    pub in_window: bool,
    /// Partition values from its folders; only shards of one partition are sorted together.
    pub partition: String,
    /// Order of its records; `None` if they are not sorted.
    pub order: Option<ShardOrder>,
    /// Its minimum and maximum value in the wanted order; only needed for the candidates that [`undecided_shards`]
    /// returns.
    pub range: Option<Range>,
}

/// Decision for a shard, and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortChoice {
    /// Its records are sorted and merged with those of the group with this number.
    Sort(usize),
    /// It is in the wanted order; its records are merged with those of the group without sorting.
    Stream(usize),
    /// It was not committed between `since` and `until`.
    OutsideWindow,
    /// It is in the wanted order and overlaps no other.
    Sorted,
}

impl SortChoice {
    /// Describes the reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Sort(_) => "not in this order: sorted and encoded again",
            Self::Stream(_) => "in this order already: merged with the others without sorting and encoded again",
            Self::OutsideWindow => "committed outside the window",
            Self::Sorted => "in this order already, and overlaps no other",
        }
    }

    /// Returns the group in which it is sorted, if any.
    pub fn group_number(self) -> Option<usize> {
        match self {
            Self::Sort(group) | Self::Stream(group) => Some(group),
            Self::OutsideWindow | Self::Sorted => None,
        }
    }
}

/// Shards that are sorted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortGroup {
    /// Their common folders, `key=value/`.
    pub partition: String,
    /// Indexes of the shards that must be sorted, in record order.
    pub unsorted: Vec<usize>,
    /// Indexes of the shards that are sorted already, grouped by set, each group in the order of its set.
    pub sets: Vec<Vec<usize>>,
    /// Total bytes.
    pub bytes: u64,
    /// Total records.
    pub records: u64,
}

impl SortGroup {
    /// Iterates over the indexes of all shards of the group.
    pub fn all_inputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.unsorted.iter().chain(self.sets.iter().flatten()).copied()
    }
}

/// Result of planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPlan {
    /// Decision for each candidate.
    pub choices: Vec<SortChoice>,
    /// The sorts.
    pub groups: Vec<SortGroup>,
}

/// Options of a sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortOptions {
    /// Order of the records.
    pub order: Order,
    /// Target size of a shard.
    pub target: Size,
    /// Minimum number of small sorted shards of a merge that does not fill a shard.
    pub min_inputs: usize,
}

/// Returns the selected shards by partition, in record order.
fn inputs_by_partition(candidates: &[SortCandidate]) -> BTreeMap<&str, Vec<usize>> {
    let mut partitions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| candidate.in_window) {
        partitions.entry(&candidate.partition).or_default().push(i);
    }
    partitions
}

fn set_of<'a>(candidate: &'a SortCandidate, wanted: &Order) -> Option<&'a str> {
    candidate.order.as_ref().filter(|order| order.order == *wanted).map(|order| order.set.as_str())
}

/// Returns whether all shards belong to one set.
fn are_one_set(candidates: &[SortCandidate], inputs: &[usize], wanted: &Order) -> bool {
    let mut sets = inputs.iter().map(|i| set_of(&candidates[*i], wanted));
    let first = sets.next().flatten();
    first.is_some() && sets.all(|set| set == first)
}

/// Returns the shards whose ranges are needed to decide, by partition.
pub fn undecided_shards(candidates: &[SortCandidate], wanted: &Order) -> Vec<Vec<usize>> {
    // Quantiles depend on the data, so shards that were Z-ordered with other data are in another order.
    if wanted.by == Arrangement::ZOrder {
        return Vec::new();
    }
    let decides = |inputs: &Vec<usize>| {
        !are_one_set(candidates, inputs, wanted) && inputs.iter().any(|i| set_of(&candidates[*i], wanted).is_some())
    };
    inputs_by_partition(candidates).into_values().filter(decides).collect()
}

/// Plans the sorts.
pub fn plan_sorts(candidates: &[SortCandidate], options: &SortOptions) -> SortPlan {
    let wanted = &options.order;
    let mut choices = vec![SortChoice::OutsideWindow; candidates.len()];
    let mut groups = Vec::new();
    for (partition, inputs) in inputs_by_partition(candidates) {
        let together = if are_one_set(candidates, &inputs, wanted) {
            Vec::new()
        } else if wanted.by == Arrangement::ZOrder {
            vec![inputs.clone()]
        } else {
            overlapping_groups(candidates, &inputs, options)
        };
        inputs.iter().for_each(|i| choices[*i] = SortChoice::Sorted);
        for inputs in together {
            let (mut unsorted, mut sets): (Vec<usize>, BTreeMap<&str, Vec<usize>>) = Default::default();
            for i in &inputs {
                match set_of(&candidates[*i], wanted).filter(|_| wanted.by == Arrangement::Sort) {
                    Some(set) => {
                        choices[*i] = SortChoice::Stream(groups.len());
                        sets.entry(set).or_default().push(*i);
                    }
                    None => {
                        choices[*i] = SortChoice::Sort(groups.len());
                        unsorted.push(*i);
                    }
                }
            }
            groups.push(SortGroup {
                partition: partition.to_owned(),
                bytes: inputs.iter().map(|i| candidates[*i].bytes).sum(),
                records: inputs.iter().map(|i| candidates[*i].records).sum(),
                unsorted,
                sets: sets.into_values().collect(),
            });
        }
    }
    SortPlan { choices, groups }
}

/// Shards with overlapping ranges.
#[derive(Debug)]
struct OverlapGroup {
    inputs: Vec<usize>,
    bytes: u64,
    /// Whether they must be rewritten.
    rewritten: bool,
}

/// Returns the shards of a partition that are sorted together; each group in record order.
fn overlapping_groups(candidates: &[SortCandidate], inputs: &[usize], options: &SortOptions) -> Vec<Vec<usize>> {
    let all = (Vec::new(), vec![u8::MAX; 64]);
    let range = |i: usize| candidates[i].range.as_ref().unwrap_or(&all);
    let mut by_value = inputs.to_vec();
    by_value.sort_by_key(|i| range(*i));
    let mut overlap_groups: Vec<OverlapGroup> = Vec::new();
    let mut end: &[u8] = &[];
    for i in by_value {
        let (first, last) = range(i);
        let sorted = set_of(&candidates[i], &options.order).is_some();
        match overlap_groups.last_mut() {
            // A single common value of two ranges is not an overlap.
            Some(group) if first.as_slice() < end => {
                group.inputs.push(i);
                group.bytes += candidates[i].bytes;
                group.rewritten = true;
            }
            _ => overlap_groups.push(OverlapGroup { inputs: vec![i], bytes: candidates[i].bytes, rewritten: !sorted }),
        }
        end = end.max(last.as_slice());
    }
    let full = |bytes: u64| bytes as f64 >= SMALL * options.target.0 as f64;
    let moves = |group: &OverlapGroup| group.rewritten || !full(group.bytes);
    let mut groups = Vec::new();
    for block in overlap_groups.chunk_by(|a, b| moves(a) && moves(b)) {
        let bytes = block.iter().map(|group| group.bytes).sum();
        let worth = block.len() > 1 && (full(bytes) || block.len() >= options.min_inputs.max(2));
        if block.iter().any(|group| group.rewritten) || worth {
            let mut group: Vec<usize> = block.iter().flat_map(|group| group.inputs.iter().copied()).collect();
            group.sort_unstable();
            groups.push(group);
        }
    }
    groups
}

/// Sizes that keep a sort within its memory limit.
///
/// ```text
/// sorting   [run] being filled, [run] x 2 being sorted and written to disk
/// merging   [batch] of each run, row groups being collected and encoded
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortMemory {
    /// Bytes of records that are sorted at a time.
    pub run_bytes: u64,
    /// Bytes of records that are read at a time.
    pub batch_bytes: u64,
    /// Number of runs that are merged at a time.
    pub fan_in: usize,
}

impl SortMemory {
    /// Maximum number of files that a merge has open.
    const MAX_FILES: u64 = 48;

    /// Divides `memory` among the stages.
    pub fn new(memory: Size) -> Self {
        let run_bytes = (memory.0 / 9).max(1 << 20);
        let batch_bytes = (run_bytes / 64).clamp(64 << 10, 1 << 20);
        let fan_in = (memory.0 / 4 / (3 * batch_bytes)).clamp(4, Self::MAX_FILES);
        Self { run_bytes, batch_bytes, fan_in: usize::try_from(fan_in).unwrap_or(4) }
    }
}

/// Interleaves the bits of ranks of [`RANK_BITS`] bits, starting with the first rank.
pub fn interleave_bits(ranks: &[u64]) -> u64 {
    let mut key = 0;
    for bit in (0..RANK_BITS).rev() {
        for rank in ranks {
            key = (key << 1) | ((rank >> bit) & 1);
        }
    }
    key
}

/// Maps one of `count` ranks to the full range of [`RANK_BITS`] bits, so that columns of few values have the same
/// weight as others.
pub fn scale_rank(rank: usize, count: usize) -> u64 {
    let most = 1_u64 << RANK_BITS;
    (rank as u64 * most / (count.max(1) as u64)).min(most - 1)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(by: Arrangement) -> SortOptions {
        let order = Order { by, columns: vec!["ts".into()] };
        SortOptions { order, target: Size(100), min_inputs: 3 }
    }

    fn candidate(bytes: u64, range: [u8; 2], set: Option<(Arrangement, &str)>) -> SortCandidate {
        let order = |(by, set): (Arrangement, &str)| ShardOrder { order: options(by).order, set: set.to_owned() };
        let range = Some((vec![range[0]], vec![range[1]]));
        SortCandidate { bytes, records: 5, in_window: true, partition: String::new(), order: set.map(order), range }
    }

    #[test]
    fn a_set_already_in_the_requested_order_is_not_sorted_again() {
        for by in [Arrangement::Sort, Arrangement::ZOrder] {
            let sorted = || candidate(10, [1, 9], Some((by, "a")));
            assert!(plan_sorts(&[sorted(), sorted()], &options(by)).groups.is_empty());
            assert!(undecided_shards(&[sorted(), sorted()], &options(by).order).is_empty());
        }
        let sorted = candidate(10, [1, 9], Some((Arrangement::Sort, "a")));
        assert_eq!(plan_sorts(&[sorted], &options(Arrangement::ZOrder)).choices, [SortChoice::Sort(0)]);
    }

    #[test]
    fn only_overlapping_shards_are_sorted_again() {
        let set = |range| candidate(100, range, Some((Arrangement::Sort, "a")));
        let all = [set([0, 3]), set([3, 5]), set([5, 8]), set([8, 9]), candidate(10, [4, 6], None)];
        assert_eq!(undecided_shards(&all, &options(Arrangement::Sort).order), [[0, 1, 2, 3, 4]]);
        let found = plan_sorts(&all, &options(Arrangement::Sort));
        let (keep, stream) = (SortChoice::Sorted, SortChoice::Stream(0));
        assert_eq!(found.choices, [keep, stream, stream, keep, SortChoice::Sort(0)]);
        assert_eq!((&found.groups[0].unsorted, &found.groups[0].sets), (&vec![4], &vec![vec![1, 2]]));
        // Records that come after all others are sorted on their own.
        let later = [set([0, 3]), set([3, 5]), candidate(100, [5, 8], None)];
        assert_eq!(plan_sorts(&later, &options(Arrangement::Sort)).choices, [keep, keep, SortChoice::Sort(0)]);
        // Sets that do not overlap are in order already.
        let other = candidate(100, [5, 6], Some((Arrangement::Sort, "b")));
        assert!(plan_sorts(&[set([0, 3]), set([3, 5]), other], &options(Arrangement::Sort)).groups.is_empty());
        let other = candidate(100, [2, 4], Some((Arrangement::Sort, "b")));
        assert_eq!(plan_sorts(&[set([0, 3]), set([3, 5]), other], &options(Arrangement::Sort)).groups[0].sets.len(), 2);
    }

    #[test]
    fn small_sorted_shards_are_merged_when_they_are_many_or_lie_beside_others() {
        let set = |bytes, range, set| candidate(bytes, range, Some((Arrangement::Sort, set)));
        let small = |from: u8, name| set(10, [from, from + 1], name);
        let sort = options(Arrangement::Sort);
        assert!(plan_sorts(&[small(1, "a"), small(2, "b")], &sort).groups.is_empty());
        assert_eq!(plan_sorts(&[small(1, "a"), small(2, "b"), small(3, "c")], &sort).groups[0].sets.len(), 3);
        assert_eq!(plan_sorts(&[set(50, [1, 2], "a"), set(30, [2, 3], "b")], &sort).groups.len(), 1);
        let beside = [set(100, [0, 1], "a"), small(1, "a"), candidate(10, [2, 3], None)];
        let found = plan_sorts(&beside, &sort);
        assert_eq!(found.choices, [SortChoice::Sorted, SortChoice::Stream(0), SortChoice::Sort(0)]);
    }

    #[test]
    fn z_order_is_sorted_again_when_something_is_new() {
        let sorted = candidate(100, [0, 1], Some((Arrangement::ZOrder, "a")));
        let found = plan_sorts(&[sorted, candidate(100, [5, 6], None)], &options(Arrangement::ZOrder));
        assert_eq!(found.choices, [SortChoice::Sort(0), SortChoice::Sort(0)]);
        assert!(found.groups[0].sets.is_empty());
    }

    #[test]
    fn partitions_and_windows_are_kept_apart() {
        let new = || candidate(10, [0, 9], None);
        let one = SortCandidate { partition: "y=1/".into(), ..new() };
        let old = SortCandidate { in_window: false, ..new() };
        let found = plan_sorts(&[new(), one, old], &options(Arrangement::Sort));
        assert_eq!(found.choices, [SortChoice::Sort(0), SortChoice::Sort(1), SortChoice::OutsideWindow]);
        assert_eq!((found.groups[1].records, found.groups[1].bytes), (5, 10));
    }

    #[test]
    fn bits_are_interleaved() {
        assert_eq!(interleave_bits(&[0b11, 0b00]), 0b1010);
        assert_eq!(interleave_bits(&[0b01, 0b10]), 0b0110);
        assert_eq!(interleave_bits(&[7]), 7);
        assert_eq!((scale_rank(0, 3), scale_rank(1, 3), scale_rank(2, 3)), (0, 1365, 2730));
    }

    proptest! {
        #[test]
        fn a_key_grows_with_each_rank(ranks in prop::collection::vec(0..4_095_u64, 1..=MAX_ZORDER_COLUMNS),
            at in any::<prop::sample::Index>()) {
            let mut greater = ranks.clone();
            greater[at.index(ranks.len())] += 1;
            prop_assert!(interleave_bits(&ranks) < interleave_bits(&greater));
        }

        /// Executing the plan, into shards of the target size and a remainder, leaves nothing to sort.
        #[test]
        fn a_second_run_finds_nothing_to_do(
            shards in prop::collection::vec((1..150_u64, 0..60_u8, 0..20_u8, prop::option::of(0..2_usize)), 0..30),
        ) {
            let sort = options(Arrangement::Sort);
            let mut all: Vec<SortCandidate> = Vec::new();
            let mut ends = [0_u8; 2];
            for (bytes, first, length, set) in shards {
                // Shards of one set do not overlap.
                let (first, set) = match set {
                    Some(set) => (ends[set], Some((Arrangement::Sort, ["a", "b"][set]))),
                    None => (first, None),
                };
                if let Some((_, name)) = set {
                    ends[usize::from(name == "b")] = first + length / 4;
                    all.push(candidate(bytes, [first, first + length / 4], set));
                } else {
                    all.push(candidate(bytes, [first, first + length], set));
                }
            }
            let first = plan_sorts(&all, &sort);
            let mut after: Vec<SortCandidate> = all
                .iter()
                .zip(&first.choices)
                .filter(|(_, choice)| choice.group_number().is_none())
                .map(|(shard, _)| shard.clone())
                .collect();
            for (number, group) in first.groups.iter().enumerate() {
                let set = format!("new {number}");
                let ranges = || group.all_inputs().filter_map(|i| all[i].range.as_ref());
                let least = ranges().map(|range| range.0[0]).min().unwrap();
                let most = ranges().map(|range| range.1[0]).max().unwrap();
                let (whole, rest) = (group.bytes / 100, group.bytes % 100);
                let pieces = whole + u64::from(rest > 0);
                for piece in 0..pieces {
                    // Values are spread evenly, except for rounding.
                    let at = |n: u64| least + u8::try_from(u64::from(most - least) * n / pieces).unwrap();
                    let bytes = if piece < whole { 100 } else { rest };
                    after.push(candidate(bytes, [at(piece), at(piece + 1)], Some((Arrangement::Sort, &set))));
                }
            }
            let second = plan_sorts(&after, &sort);
            prop_assert!(second.groups.is_empty(), "{:?} -> {:?}", all, second);
        }

        #[test]
        fn memory_is_divided(mib in 64..4_096_u64) {
            let memory = SortMemory::new(Size::from_mib(mib));
            prop_assert!(3 * memory.run_bytes + memory.run_bytes / 2 <= mib << 20);
            prop_assert!(3 * memory.batch_bytes * memory.fan_in as u64 <= (mib << 20) / 2);
        }
    }
}
