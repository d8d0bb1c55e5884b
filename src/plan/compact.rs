//! What to merge, as a value with reasons.
//!
//! Shards are looked at in record order. Those within 75 % to 180 % of the target are left alone, which is what makes
//! a second run find nothing to do: what a merge makes is in that range, or is a remainder too small to be worth it.
//! Small shards are packed into bins in record order, over large ones in between, so that records keep their order
//! within a bin and nobody's place in the middle of a dataset blocks a merge.
//!
//! ```text
//! record order   s1 s2 BIG s3 s4 s5 OK s6 ...
//! bins           [s1 s2     s3 s4]  [s5    s6 ...   closed where the sum is nearest to the target
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{id::Version, units::Size};

/// Shards smaller than this part of the target are merged.
pub(super) const SMALL: f64 = 0.75;

/// Shards larger than this part of the target would be worth splitting.
const LARGE: f64 = 1.80;

/// What the planner sees of a shard; given in record order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Path.
    pub path: String,
    /// Size on disk.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Version that added it.
    pub version: Version,
    /// When that was committed.
    pub committed_at: Timestamp,
    /// Whether it can be joined with the others: shards that are copied must be compressed alike.
    pub joins: bool,
    /// What its folders say about its records; only shards of which they say the same are merged.
    pub partition: String,
    /// Whether a compaction for this target or a larger one made it. Encoding anew may shrink shards below what was
    /// planned; merging them again and again would never end.
    pub settled: bool,
    /// Whether its records were sorted: joined with others in record order they would not be any more.
    pub sorted: bool,
}

/// A point in a dataset's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// A version.
    Version(Version),
    /// An instant.
    Instant(Timestamp),
}

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactOptions {
    /// Size that shards should have.
    pub target: Size,
    /// Smallest group worth rewriting, unless fewer fill a shard.
    pub min_inputs: usize,
    /// Only shards committed at this point or later.
    pub since: Option<When>,
    /// Only shards committed at this point or earlier.
    pub until: Option<When>,
}

/// What happens to a shard, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It goes into the group with this number.
    Merge(usize),
    /// It was not committed between `since` and `until`.
    OutsideWindow,
    /// Its size is right.
    RightSize,
    /// It is larger than it should be; shards are not split.
    Oversized,
    /// It is compressed in another way than the dataset now is, and would have to be decoded.
    OtherCodec,
    /// A compaction for this target made it, and it stays as it is.
    Settled,
    /// Its records are sorted, and would not be after a merge.
    Sorted,
    /// It is small, but too few others are there to merge it with.
    TooFew,
}

impl Choice {
    /// The reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Merge(_) => "smaller than 75% of the target",
            Self::OutsideWindow => "committed outside the window",
            Self::RightSize => "within 75% to 180% of the target",
            Self::Oversized => "larger than 180% of the target; shards are not split",
            Self::OtherCodec => {
                "compressed with another codec, or adopted as one stream; shards are copied, not decoded"
            }
            Self::Settled => "made by a compaction for this target",
            Self::Sorted => "sorted; --sort-by or --zorder merges it with others and keeps the order",
            Self::TooFew => "small, but there are too few (new) shards to merge it with",
        }
    }
}

/// Shards to be merged into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Indexes of the candidates, in record order.
    pub inputs: Vec<usize>,
    /// Their bytes.
    pub bytes: u64,
    /// Their records.
    pub records: u64,
}

/// What to merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactPlan {
    /// For each candidate what happens to it.
    pub choices: Vec<Choice>,
    /// The merges.
    pub groups: Vec<Group>,
}

/// Decides what to merge.
pub fn plan(candidates: &[Candidate], options: &CompactOptions) -> CompactPlan {
    let target = options.target.0 as f64;
    let mut choices: Vec<Choice> = candidates
        .iter()
        .map(|shard| match shard.bytes as f64 / target {
            _ if !in_window(shard.version, shard.committed_at, options) => Choice::OutsideWindow,
            _ if !shard.joins => Choice::OtherCodec,
            part if part > LARGE => Choice::Oversized,
            part if part >= SMALL => Choice::RightSize,
            _ if shard.sorted => Choice::Sorted,
            _ if shard.settled => Choice::Settled,
            _ => Choice::TooFew,
        })
        .collect();
    let mut partitions: BTreeMap<&str, Vec<Item>> = BTreeMap::new();
    for i in (0..candidates.len()).filter(|i| choices[*i] == Choice::TooFew) {
        let item = Item { inputs: vec![i], bytes: candidates[i].bytes, settled: candidates[i].settled };
        partitions.entry(&candidates[i].partition).or_default().push(item);
    }
    for items in partitions.values_mut() {
        while merge_bins(items, options) {}
    }
    let mut items: Vec<Item> = partitions.into_values().flatten().collect();
    items.sort_by_key(|item| item.inputs[0]);
    let mut groups = Vec::new();
    for item in items.into_iter().filter(|item| item.inputs.len() > 1) {
        for i in &item.inputs {
            choices[*i] = Choice::Merge(groups.len());
        }
        let records = item.inputs.iter().map(|i| candidates[*i].records).sum();
        groups.push(Group { inputs: item.inputs, bytes: item.bytes, records });
    }
    CompactPlan { choices, groups }
}

/// A small shard, or what a merge will make of some.
#[derive(Debug)]
struct Item {
    inputs: Vec<usize>,
    bytes: u64,
    settled: bool,
}

/// Packs what is small into bins, and merges each bin that is worth it; false when none is. Repeated until then,
/// because what is left over may fit together once the rest is merged, and a second run would find that.
fn merge_bins(items: &mut Vec<Item>, options: &CompactOptions) -> bool {
    let full = |bytes: u64| bytes as f64 >= SMALL * options.target.0 as f64;
    let mut merged = false;
    let mut done: Vec<Item> = Vec::with_capacity(items.len());
    let (small, large): (Vec<Item>, Vec<Item>) = items.drain(..).partition(|item| !full(item.bytes) && !item.settled);
    done.extend(large);
    for bin in bins(small, options.target.0) {
        let bytes: u64 = bin.iter().map(|item| item.bytes).sum();
        let worth = bin.len() > 1 && (full(bytes) || bin.len() >= options.min_inputs.max(2));
        if !worth {
            done.extend(bin);
            continue;
        }
        merged = true;
        let mut inputs: Vec<usize> = bin.into_iter().flat_map(|item| item.inputs).collect();
        inputs.sort_unstable();
        done.push(Item { inputs, bytes, settled: true });
    }
    done.sort_by_key(|item| item.inputs[0]);
    *items = done;
    merged
}

/// Whether a shard of that version was committed in the window.
pub fn in_window(version: Version, committed_at: Timestamp, options: &CompactOptions) -> bool {
    let since = match options.since {
        None => true,
        Some(When::Version(since)) => version >= since,
        Some(When::Instant(instant)) => committed_at >= instant,
    };
    let until = match options.until {
        None => true,
        Some(When::Version(until)) => version <= until,
        Some(When::Instant(instant)) => committed_at <= instant,
    };
    since && until
}

/// Next-fit in record order: a bin is closed where its size is nearest to the target.
fn bins(items: Vec<Item>, target: u64) -> Vec<Vec<Item>> {
    let mut bins = Vec::new();
    let mut bin = Vec::new();
    let mut size = 0;
    for item in items {
        if super::roll::rolls_before(size, item.bytes, target) {
            bins.push(std::mem::take(&mut bin));
            size = 0;
        }
        size += item.bytes;
        bin.push(item);
    }
    bins.push(bin);
    bins
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shards(sizes: &[u64]) -> Vec<Candidate> {
        sizes
            .iter()
            .enumerate()
            .map(|(i, bytes)| Candidate {
                path: format!("{i}"),
                bytes: *bytes,
                records: *bytes,
                version: Version(i as u64 + 1),
                committed_at: Timestamp::from_second(i64::try_from(i).unwrap() * 86_400).unwrap(),
                joins: true,
                partition: String::new(),
                settled: false,
                sorted: false,
            })
            .collect()
    }

    fn options(target: u64) -> CompactOptions {
        CompactOptions { target: Size(target), min_inputs: 5, since: None, until: None }
    }

    #[test]
    fn small_shards_are_packed_over_large_ones_in_order() {
        let plan = plan(&shards(&[30, 30, 200, 30, 10, 100, 40, 40, 30]), &options(100));
        assert_eq!(plan.groups[0].inputs, [0, 1, 3, 4]);
        assert_eq!(plan.groups[1].inputs, [6, 7, 8]);
        assert_eq!(plan.choices[2], Choice::Oversized);
        assert_eq!(plan.choices[5], Choice::RightSize);
    }

    #[test]
    fn a_few_small_shards_are_left_until_more_arrive() {
        assert!(plan(&shards(&[1, 1, 1, 1]), &options(100)).groups.is_empty());
        assert_eq!(plan(&shards(&[1, 1, 1, 1, 1]), &options(100)).groups.len(), 1);
        assert!(plan(&shards(&[10]), &options(100)).groups.is_empty());
        assert!(plan(&[], &options(100)).groups.is_empty());
    }

    #[test]
    fn the_window_is_by_version_or_time() {
        let mut o = options(100);
        o.since = Some(When::Version(Version(3)));
        let plan_versions = plan(&shards(&[40; 6]), &o);
        assert_eq!(plan_versions.choices[1], Choice::OutsideWindow);
        assert_eq!(plan_versions.groups[0].inputs, [2, 3]);
        o.since = None;
        o.until = Some(When::Instant(Timestamp::from_second(2 * 86_400).unwrap()));
        assert_eq!(plan(&shards(&[40; 6]), &o).choices[3], Choice::OutsideWindow);
    }

    proptest! {
        #[test]
        fn a_second_run_finds_nothing_to_do(sizes in prop::collection::vec(1_u64..300, 0..80)) {
            let options = options(100);
            let first = plan(&shards(&sizes), &options);
            // What is left, with each group replaced by its sum at the place of its first input.
            let mut after = Vec::new();
            for (i, choice) in first.choices.iter().enumerate() {
                match choice {
                    Choice::Merge(g) if first.groups[*g].inputs[0] == i => after.push((first.groups[*g].bytes, true)),
                    Choice::Merge(_) => {}
                    _ => after.push((sizes[i], false)),
                }
            }
            prop_assert_eq!(after.iter().map(|(bytes, _)| bytes).sum::<u64>(), sizes.iter().sum::<u64>());
            let mut candidates = shards(&after.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>());
            for (candidate, (_, settled)) in candidates.iter_mut().zip(&after) {
                candidate.settled = *settled;
            }
            let second = plan(&candidates, &options);
            prop_assert!(second.groups.is_empty(), "{:?} -> {:?} -> {:?}", sizes, after, second.groups);
        }

        #[test]
        fn groups_keep_order_and_hold_each_shard_once(sizes in prop::collection::vec(1_u64..300, 0..80)) {
            let plan = plan(&shards(&sizes), &options(100));
            let all: Vec<usize> = plan.groups.iter().flat_map(|g| g.inputs.clone()).collect();
            let distinct: std::collections::BTreeSet<usize> = all.iter().copied().collect();
            prop_assert_eq!(distinct.len(), all.len());
            for group in &plan.groups {
                prop_assert!(group.inputs.is_sorted_by(|a, b| a < b));
                prop_assert!(group.bytes < 180);
            }
        }
    }
}
