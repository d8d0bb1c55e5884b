//! What a sort has to do, and the keys that it compares.
//!
//! A sort takes all shards of a partition that the user selected and makes one *set* of shards of them, no two of which
//! overlap. Shards that are in the wanted order already are streamed into the merge; a partition that is one set in that
//! order is left alone, so a second run has nothing to do.
//!
//! Z-order interleaves the bits of one rank per column, so that neighbours in the file are near in every column:
//!
//! ```text
//! rank of a   a2 a1 a0        a rank says between which quantiles of a sample a value lies, so columns of any type and
//! rank of b   b2 b1 b0        any distribution count alike; nulls have the lowest
//! key         a2 b2 a1 b1 a0 b0
//! ```

use std::collections::BTreeMap;

use crate::{
    dataset::{Arrangement, Order, ShardOrder},
    units::Size,
};

/// Bits of the rank of a column in a Z-order: ranks are to tell pages apart, not values.
pub const RANK_BITS: u32 = 12;

/// Columns that a Z-order may have: more would leave too few bits of each to be of use.
pub const MOST_ZORDER_COLUMNS: usize = 5;

/// What the planner sees of a shard; given in record order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortCandidate {
    /// Bytes on disk.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Whether the user selected it.
    pub in_window: bool,
    /// What its folders say about its records; only shards of which they say the same are sorted together.
    pub partition: String,
    /// Its order.
    pub order: Option<ShardOrder>,
}

/// What happens to a shard, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortChoice {
    /// Its records are sorted and merged with those of the group.
    Sort(usize),
    /// It is in the wanted order, and its records are merged with those of the group as they come.
    Stream(usize),
    /// It was not committed between `since` and `until`.
    OutsideWindow,
    /// All selected shards were sorted together in the wanted order.
    Sorted,
}

impl SortChoice {
    /// The reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Sort(_) => "not in this order: sorted, and encoded anew",
            Self::Stream(_) => "in this order already: merged with the others without sorting, and encoded anew",
            Self::OutsideWindow => "committed outside the window",
            Self::Sorted => "sorted together with all others in this order already",
        }
    }

    /// The group that it goes into.
    pub fn group(self) -> Option<usize> {
        match self {
            Self::Sort(group) | Self::Stream(group) => Some(group),
            Self::OutsideWindow | Self::Sorted => None,
        }
    }
}

/// Shards that are sorted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortGroup {
    /// Folders `key=value/` that they share.
    pub partition: String,
    /// Indexes of those that have to be sorted, in record order.
    pub unsorted: Vec<usize>,
    /// Indexes of those that are sorted, by the set that they are of, each in the order of the set.
    pub sets: Vec<Vec<usize>>,
    /// Their bytes.
    pub bytes: u64,
    /// Their records.
    pub records: u64,
}

impl SortGroup {
    /// All indexes.
    pub fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.unsorted.iter().chain(self.sets.iter().flatten()).copied()
    }
}

/// What to sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPlan {
    /// For each candidate what happens to it.
    pub choices: Vec<SortChoice>,
    /// The sorts.
    pub groups: Vec<SortGroup>,
}

/// Decides what to sort.
pub fn plan(candidates: &[SortCandidate], wanted: &Order) -> SortPlan {
    let mut choices = vec![SortChoice::OutsideWindow; candidates.len()];
    let mut partitions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| candidate.in_window) {
        partitions.entry(&candidate.partition).or_default().push(i);
    }
    let mut groups = Vec::new();
    for (partition, inputs) in partitions {
        let mut unsorted = Vec::new();
        let mut sets: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for i in &inputs {
            match &candidates[*i].order {
                Some(order) if order.order == *wanted => sets.entry(&order.set).or_default().push(*i),
                _ => unsorted.push(*i),
            }
        }
        if unsorted.is_empty() && sets.len() == 1 {
            inputs.iter().for_each(|i| choices[*i] = SortChoice::Sorted);
            continue;
        }
        // Where the quantiles lie depends on the data, so what was ordered with others is in another order now.
        let streams = wanted.by == Arrangement::Sort;
        let group = groups.len();
        for i in &inputs {
            let sorted = streams && !unsorted.contains(i);
            choices[*i] = if sorted { SortChoice::Stream(group) } else { SortChoice::Sort(group) };
        }
        groups.push(SortGroup {
            partition: partition.to_owned(),
            bytes: inputs.iter().map(|i| candidates[*i].bytes).sum(),
            records: inputs.iter().map(|i| candidates[*i].records).sum(),
            sets: if streams { sets.into_values().collect() } else { Vec::new() },
            unsorted: if streams { unsorted } else { inputs },
        });
    }
    SortPlan { choices, groups }
}

/// Sizes that keep a sort within its memory.
///
/// ```text
/// sorting   [run] being filled, [run] x 2 being sorted and written to disk
/// merging   [batch] of each run, row groups being filled and encoded
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortMemory {
    /// Bytes of the records that are sorted at a time.
    pub run_bytes: u64,
    /// Bytes of records that are read at a time.
    pub batch_bytes: u64,
    /// Runs that are merged at a time.
    pub fan_in: usize,
}

impl SortMemory {
    /// Files that a merge has open at most.
    const MOST_FILES: u64 = 48;

    /// Divides `memory`.
    pub fn new(memory: Size) -> Self {
        let run_bytes = (memory.0 / 9).max(1 << 20);
        let batch_bytes = (run_bytes / 64).clamp(64 << 10, 1 << 20);
        let fan_in = (memory.0 / 4 / (3 * batch_bytes)).clamp(4, Self::MOST_FILES);
        Self { run_bytes, batch_bytes, fan_in: usize::try_from(fan_in).unwrap_or(4) }
    }
}

/// Interleaves the bits of ranks of [`RANK_BITS`] bits, the first one's first.
pub fn interleave(ranks: &[u64]) -> u64 {
    let mut key = 0;
    for bit in (0..RANK_BITS).rev() {
        for rank in ranks {
            key = (key << 1) | ((rank >> bit) & 1);
        }
    }
    key
}

/// Spreads a rank among `count` ranks over all that [`RANK_BITS`] bits can say, so that columns of few values count as
/// much as others.
pub fn spread(rank: usize, count: usize) -> u64 {
    let most = 1_u64 << RANK_BITS;
    (rank as u64 * most / (count.max(1) as u64)).min(most - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(by: Arrangement) -> Order {
        Order { by, columns: vec!["ts".into()] }
    }

    fn candidate(order: Option<(Order, &str)>) -> SortCandidate {
        SortCandidate {
            bytes: 10,
            records: 5,
            in_window: true,
            partition: String::new(),
            order: order.map(|(order, set)| ShardOrder { order, set: set.to_owned() }),
        }
    }

    #[test]
    fn what_is_one_set_in_the_wanted_order_is_left_alone() {
        let sort = order(Arrangement::Sort);
        let sorted = || candidate(Some((sort.clone(), "a")));
        assert!(plan(&[sorted(), sorted()], &sort).groups.is_empty());
        let found = plan(&[sorted(), candidate(None), sorted()], &sort);
        assert_eq!(found.choices, [SortChoice::Stream(0), SortChoice::Sort(0), SortChoice::Stream(0)]);
        assert_eq!((&found.groups[0].unsorted, &found.groups[0].sets), (&vec![1], &vec![vec![0, 2]]));
        // Two sets may overlap.
        let other = candidate(Some((sort.clone(), "b")));
        assert_eq!(plan(&[sorted(), other], &sort).groups[0].sets.len(), 2);
        assert_eq!(plan(&[sorted()], &order(Arrangement::ZOrder)).choices, [SortChoice::Sort(0)]);
    }

    #[test]
    fn z_order_is_sorted_again_when_something_is_new() {
        let z = order(Arrangement::ZOrder);
        let sorted = || candidate(Some((z.clone(), "a")));
        assert!(plan(&[sorted(), sorted()], &z).groups.is_empty());
        let found = plan(&[sorted(), candidate(None)], &z);
        assert_eq!(found.choices, [SortChoice::Sort(0), SortChoice::Sort(0)]);
        assert!(found.groups[0].sets.is_empty());
    }

    #[test]
    fn partitions_and_windows_are_kept_apart() {
        let sort = order(Arrangement::Sort);
        let one = SortCandidate { partition: "y=1/".into(), ..candidate(None) };
        let old = SortCandidate { in_window: false, ..candidate(None) };
        let found = plan(&[candidate(None), one, old], &sort);
        assert_eq!(found.choices, [SortChoice::Sort(0), SortChoice::Sort(1), SortChoice::OutsideWindow]);
        assert_eq!((found.groups[1].records, found.groups[1].bytes), (5, 10));
    }

    #[test]
    fn bits_are_interleaved() {
        assert_eq!(interleave(&[0b11, 0b00]), 0b1010);
        assert_eq!(interleave(&[0b01, 0b10]), 0b0110);
        assert_eq!(interleave(&[7]), 7);
        assert_eq!((spread(0, 3), spread(1, 3), spread(2, 3)), (0, 1365, 2730));
    }

    proptest! {
        #[test]
        fn a_key_grows_with_each_rank(ranks in prop::collection::vec(0..4_095_u64, 1..=MOST_ZORDER_COLUMNS), at in any::<prop::sample::Index>()) {
            let mut greater = ranks.clone();
            greater[at.index(ranks.len())] += 1;
            prop_assert!(interleave(&ranks) < interleave(&greater));
        }

        #[test]
        fn memory_is_divided(mib in 64..4_096_u64) {
            let memory = SortMemory::new(Size::mib(mib));
            prop_assert!(3 * memory.run_bytes + memory.run_bytes / 2 <= mib << 20);
            prop_assert!(3 * memory.batch_bytes * memory.fan_in as u64 <= (mib << 20) / 2);
        }
    }
}
