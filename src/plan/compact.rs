//! What to merge, as a value with reasons.
//!
//! Shards are looked at in record order. Those within 75 % to 180 % of the target are left alone, which is what makes
//! a second run find nothing to do: what a merge makes is in that range, or is a remainder. Small shards are packed into
//! bins in record order, over large ones in between, so that records keep their order within a bin and nobody's place in
//! the middle of a dataset blocks a merge.
//!
//! ```text
//! record order   s1 s2 BIG s3 s4 s5 OK s6 ...
//! bins           [s1 s2     s3 s4]  [s5    s6 ...   closed where the sum is nearest to the target
//! ```
//!
//! A remainder of an earlier compaction waits until enough new small shards have come, and is merged only if the bin is
//! full then, or if it is at most as large as the rest of the bin. A shard that is written again has then at least doubled, so that a record
//! is written a logarithmic number of times however small the portions in which records come.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{id::Version, units::Size};

/// Shards smaller than this part of the target are merged.
pub(super) const SMALL: f64 = 0.75;

/// Shards larger than this part of the target would be worth splitting.
const LARGE: f64 = 1.80;

/// Bins of this part of the target up to that one are as good as the target itself, where it leaves no remainder.
const EVEN_LEAST: f64 = 0.9;
const EVEN_MOST: f64 = 1.1;

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
    /// Whether a compaction for this target or a larger one made it.
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
    /// Most bytes to rewrite in this run.
    pub max_bytes: Option<Size>,
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
    /// It is the remainder of a compaction, and there is not enough that is new to merge it with.
    Settled,
    /// Its records are sorted, and would not be after a merge.
    Sorted,
    /// It is small, but too few others are there to merge it with.
    TooFew,
    /// There is a merge for it, but not in this run.
    Deferred,
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
            Self::Settled => "remainder of a compaction; waits for more new shards",
            Self::Sorted => "sorted; --sort-by or --zorder merges it with others and keeps the order",
            Self::TooFew => "small, but there are too few (new) shards to merge it with",
            Self::Deferred => "smaller than 75% of the target; left to another run by --max-bytes",
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
    for (i, shard) in candidates.iter().enumerate() {
        if matches!(choices[i], Choice::TooFew | Choice::Settled) {
            let item =
                Item { inputs: vec![i], bytes: shard.bytes, settled: shard.settled, new: usize::from(!shard.settled) };
            partitions.entry(&shard.partition).or_default().push(item);
        }
    }
    for items in partitions.values_mut() {
        while merge_bins(items, options) {}
    }
    let mut items: Vec<Item> = partitions.into_values().flatten().filter(|item| item.inputs.len() > 1).collect();
    items.sort_by_key(|item| item.inputs[0]);
    let mut groups = Vec::new();
    let mut left = options.max_bytes.map_or(u64::MAX, |size| size.0);
    for Item { inputs, bytes, .. } in items {
        let choice = if bytes <= left { Choice::Merge(groups.len()) } else { Choice::Deferred };
        inputs.iter().for_each(|i| choices[*i] = choice);
        if choice != Choice::Deferred {
            left -= bytes;
            let records = inputs.iter().map(|i| candidates[*i].records).sum();
            groups.push(Group { inputs, bytes, records });
        }
    }
    CompactPlan { choices, groups }
}

/// A small shard, or what a merge will make of some.
#[derive(Debug, Default)]
struct Item {
    inputs: Vec<usize>,
    bytes: u64,
    /// Whether it is what a merge made, or would be for another run.
    settled: bool,
    /// How many of the inputs are not.
    new: usize,
}

/// Packs what is small into bins, and merges each bin that is worth it; false when none is. Repeated until then,
/// because what is left over may fit together once the rest is merged, and a second run would find that.
fn merge_bins(items: &mut Vec<Item>, options: &CompactOptions) -> bool {
    let min_inputs = options.min_inputs.max(2);
    for item in items.iter_mut().filter(|item| item.inputs.len() > 1) {
        (item.settled, item.new) = (true, 0);
    }
    let fresh = merge_some(
        items,
        options,
        |item| !item.settled,
        |items, bin| full(bin.iter().map(|i| items[*i].bytes).sum(), options) || bin.len() >= min_inputs,
    );
    let enough = |new: usize| new >= min_inputs;
    let enough_in_all = enough(items.iter().map(|item| item.new).sum());
    let settled = merge_some(
        items,
        options,
        |_| true,
        |items, bin| {
            // What is full is written for the last time.
            if enough_in_all && full(bin.iter().map(|i| items[*i].bytes).sum(), options) {
                return true;
            }
            keep_doubling(items, bin);
            bin.iter().any(|i| items[*i].settled) && enough(bin.iter().map(|i| items[*i].new).sum())
        },
    );
    fresh || settled
}

/// Merges the bins of those of the small items that take part. `worth` says whether a bin is worth it, and may take items
/// out of it before.
fn merge_some(
    items: &mut Vec<Item>,
    options: &CompactOptions,
    takes_part: impl Fn(&Item) -> bool,
    worth: impl Fn(&[Item], &mut Vec<usize>) -> bool,
) -> bool {
    let packed: Vec<usize> =
        (0..items.len()).filter(|i| !full(items[*i].bytes, options) && takes_part(&items[*i])).collect();
    let mut merged = false;
    for mut bin in bins(items, &packed, options.target.0) {
        if !worth(items, &mut bin) || bin.len() < 2 {
            continue;
        }
        merged = true;
        let rest: Vec<Item> = bin[1..].iter().map(|i| std::mem::take(&mut items[*i])).collect();
        let first = &mut items[bin[0]];
        for item in rest {
            first.inputs.extend(item.inputs);
            first.bytes += item.bytes;
            first.new += item.new;
            first.settled |= item.settled;
        }
        first.inputs.sort_unstable();
    }
    items.retain(|item| !item.inputs.is_empty());
    items.sort_by_key(|item| item.inputs[0]);
    merged
}

/// Takes out of a bin what was merged before and would not at least double now.
fn keep_doubling(items: &[Item], bin: &mut Vec<usize>) {
    let mut bytes: u64 = bin.iter().map(|i| items[*i].bytes).sum();
    while let Some(at) = (0..bin.len()).filter(|at| items[bin[*at]].settled).max_by_key(|at| items[bin[*at]].bytes)
        && items[bin[at]].bytes > bytes - items[bin[at]].bytes
    {
        bytes -= items[bin.remove(at)].bytes;
    }
}

fn full(bytes: u64, options: &CompactOptions) -> bool {
    bytes as f64 >= SMALL * options.target.0 as f64
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
fn bins(items: &[Item], packed: &[usize], target: u64) -> Vec<Vec<usize>> {
    let mut left = packed.iter().map(|i| items[*i].bytes).sum();
    let mut bins = Vec::new();
    let mut bin = Vec::new();
    let mut size = 0;
    for i in packed {
        if super::roll::rolls_before(size, items[*i].bytes, even_target(left, target)) {
            bins.push(std::mem::take(&mut bin));
            left -= size;
            size = 0;
        }
        size += items[*i].bytes;
        bin.push(*i);
    }
    bins.push(bin);
    bins
}

/// The size of bins that leaves no small remainder, where it is about the target.
fn even_target(bytes: u64, target: u64) -> u64 {
    let fewer = bytes / target.max(1);
    let part = |size: u64| size as f64 / target as f64;
    [fewer, fewer + 1]
        .into_iter()
        .filter_map(|bins| bytes.checked_div(bins))
        .filter(|size| (EVEN_LEAST..=EVEN_MOST).contains(&part(*size)))
        .min_by(|a, b| (part(*a) - 1.0).abs().total_cmp(&(part(*b) - 1.0).abs()))
        .unwrap_or(target)
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
        CompactOptions { target: Size(target), min_inputs: 5, since: None, until: None, max_bytes: None }
    }

    /// What a second run would see.
    fn after(shards: &[Candidate], plan: &CompactPlan) -> Vec<Candidate> {
        let mut after = Vec::new();
        for (shard, choice) in shards.iter().zip(&plan.choices) {
            match choice {
                Choice::Merge(g) if shards[plan.groups[*g].inputs[0]].path == shard.path => {
                    after.push(Candidate { bytes: plan.groups[*g].bytes, settled: true, ..shard.clone() });
                }
                Choice::Merge(_) => {}
                _ => after.push(shard.clone()),
            }
        }
        after
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

    #[test]
    fn remainders_are_merged_again_once_enough_new_shards_have_come() {
        let mut all = Vec::new();
        let (mut rewritten, mut most) = (0, 0);
        for day in 0..2_000 {
            for _ in 0..5 {
                all.extend(shards(&[1]));
                all.iter_mut().enumerate().for_each(|(i, shard)| shard.path = i.to_string());
            }
            let plan = plan(&all, &options(1_000));
            rewritten += plan.groups.iter().map(|g| g.bytes).sum::<u64>();
            all = after(&all, &plan);
            most = most.max(all.iter().filter(|shard| shard.bytes < 750).count());
            assert_eq!(all.iter().map(|s| s.bytes).sum::<u64>(), 5 * (day + 1));
        }
        // Each record is written once per doubling of its shard, from 1 to 1,000, and few small shards are left.
        assert!(rewritten <= 11 * 10_000, "{rewritten}");
        assert!(most <= 16, "{most}");
    }

    #[test]
    fn small_remainders_are_spread_over_the_bins() {
        let sizes =
            |sizes: &[u64]| plan(&shards(sizes), &options(100)).groups.iter().map(|g| g.bytes).collect::<Vec<_>>();
        assert_eq!(sizes(&[1; 205]), [102, 103]);
        assert_eq!(sizes(&[1; 290]), [96, 97, 97]);
        // Too much to spread: it stays a remainder, for others to come.
        assert_eq!(sizes(&[1; 140]), [100, 40]);
        assert_eq!(even_target(0, 0), 0);
    }

    #[test]
    fn a_bounded_run_takes_what_fits() {
        let mut bounded = options(100);
        bounded.max_bytes = Some(Size(150));
        let plan = plan(&shards(&[50, 50, 50, 50, 20, 30]), &bounded);
        assert_eq!(plan.groups.len(), 1);
        assert_eq!(plan.choices[..4], [Choice::Merge(0), Choice::Merge(0), Choice::Deferred, Choice::Deferred]);
        bounded.max_bytes = Some(Size(99));
        assert!(super::plan(&shards(&[50; 6]), &bounded).groups.is_empty());
    }

    proptest! {
        #[test]
        fn a_second_run_finds_nothing_to_do(sizes in prop::collection::vec((1_u64..300, any::<bool>()), 0..80)) {
            let options = options(100);
            let mut before = shards(&sizes.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>());
            before.iter_mut().zip(&sizes).for_each(|(shard, (_, settled))| shard.settled = *settled);
            let first = plan(&before, &options);
            let after = after(&before, &first);
            let total = |shards: &[Candidate]| shards.iter().map(|s| s.bytes).sum::<u64>();
            prop_assert_eq!(total(&after), total(&before));
            let second = plan(&after, &options);
            prop_assert!(second.groups.is_empty(), "{:?} -> {:?} -> {:?}", sizes, after, second.groups);
        }

        #[test]
        fn bounded_runs_come_to_the_same_end(sizes in prop::collection::vec(1_u64..300, 0..80)) {
            let mut bounded = options(100);
            bounded.max_bytes = Some(Size(200));
            let mut left = shards(&sizes);
            for _ in 0..sizes.len() + 1 {
                let plan = plan(&left, &bounded);
                prop_assert!(plan.groups.iter().map(|g| g.bytes).sum::<u64>() <= 200);
                if plan.groups.is_empty() {
                    break;
                }
                left = after(&left, &plan);
            }
            prop_assert!(plan(&left, &options(100)).groups.is_empty());
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
