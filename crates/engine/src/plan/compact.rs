//! Plans compactions: decides which shards to merge or to divide, with a reason for each shard.
//!
//! Shards are considered in record order. Shards of 75 % to 180 % of the target stay. Larger ones are divided, unless a
//! compaction for this target made them: they could not be divided further. Since the result of a merge is within that
//! range or is a remainder, a second run finds nothing to do. Small shards are packed into bins in
//! record order, across the large ones between them, so records keep their order within a bin and no shard in the
//! middle of a dataset blocks a merge.
//!
//! ```text
//! record order   s1 s2 BIG s3 s4 s5 OK s6 ...
//! bins           [s1 s2     s3 s4]  [s5    s6 ...   closed when the sum is nearest to the target
//! ```
//!
//! A remainder of an earlier compaction waits until enough new small shards were added. Then it is merged only if the
//! bin is full or if it is at most as large as the rest of the bin. So a shard at least doubles each time it is
//! rewritten, and a record is rewritten a logarithmic number of times, however few records each run adds.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{id::Version, units::Size};

/// Shards smaller than this fraction of the target are merged.
pub(super) const SMALL: f64 = 0.75;

/// Shards larger than this fraction of the target are divided.
const LARGE: f64 = 1.80;

/// Minimum size of a bin, as a fraction of the target, that is accepted to avoid a small remainder.
const EVEN_MIN: f64 = 0.9;
/// Maximum size of such a bin.
const EVEN_MAX: f64 = 1.1;

/// Planner's view of a shard; candidates are given in record order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactCandidate {
    /// Path.
    pub path: String,
    /// Size on disk.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Version that added it.
    pub version: Version,
    /// Commit time of that version.
    pub committed_at: Timestamp,
    /// Whether it can be merged with the others: shards that are copied must be compressed in the same way.
    pub mergeable: bool,
    /// Partition values from its folders; only shards of one partition are merged.
    pub partition: String,
    /// Whether it is the result of a compaction for this target or a larger one.
    pub settled: bool,
    /// Whether it is the result of a compaction for exactly this target.
    pub made_for_target: bool,
    /// Whether its records are sorted or shuffled: a merge in record order would destroy their order.
    pub sorted: bool,
    /// Whether a column would get a wider type, which the dataset has now, if it were written anew.
    pub outdated: bool,
}

/// A point in a dataset's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// A version.
    Version(Version),
    /// An instant.
    Instant(Timestamp),
}

/// Options of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactOptions {
    /// Target size of a shard.
    pub target: Size,
    /// Minimum number of shards of a merge that does not fill a shard.
    pub min_inputs: usize,
    /// Only shards committed at this point or later.
    pub since: Option<When>,
    /// Only shards committed at this point or earlier.
    pub until: Option<When>,
    /// Maximum bytes to rewrite in this run.
    pub max_bytes: Option<Size>,
}

/// Decision for a shard, and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It is merged in the group with this number.
    Merge(usize),
    /// It is divided, as the group with this number.
    Divide(usize),
    /// It is written anew, as the group with this number, because the dataset has a wider type for a column now.
    Retype(usize),
    /// It was not committed between `since` and `until`.
    OutsideWindow,
    /// Its size is within the accepted range.
    RightSize,
    /// It is larger than the accepted range and cannot be divided: it is sorted, has one record, or is what a
    /// compaction for this target made.
    Oversized,
    /// It is compressed differently than the dataset is now, so it would have to be decoded.
    OtherCodec,
    /// It is the remainder of a compaction, and there are not enough new shards to merge it with.
    Settled,
    /// Its records are sorted or shuffled, and a merge would destroy their order.
    Sorted,
    /// It is small, but there are too few others to merge it with.
    TooFew,
    /// It is part of a merge that is left to another run.
    Deferred,
    /// It is to be divided by another run.
    DeferredLarge,
}

impl Choice {
    /// Describes the reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Merge(_) => "smaller than 75% of the target",
            Self::Retype(_) => "a column has another type in the dataset now, which changes no value",
            Self::OutsideWindow => "committed outside the window",
            Self::RightSize => "within 75% to 180% of the target",
            Self::Divide(_) => "larger than 180% of the target",
            Self::Oversized => {
                "larger than 180% of the target, and cannot be divided: sorted, of one record, or made for this target"
            }
            Self::OtherCodec => {
                "compressed with another codec, or adopted as one stream; shards are copied, not decoded"
            }
            Self::Settled => "left over from the last compaction; will be merged once more data arrives",
            Self::Sorted => "sorted or shuffled; --sort-by or --zorder merges it with others in an order",
            Self::TooFew => "small; merging starts at --min-inputs such shards (default 5)",
            Self::Deferred => "smaller than 75% of the target; left to another run by --max-bytes",
            Self::DeferredLarge => "larger than 180% of the target; left to another run by --max-bytes",
        }
    }
}

/// Shards that are merged into one, or a shard that is divided into several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Indexes of the candidates, in record order.
    pub inputs: Vec<usize>,
    /// Total bytes.
    pub bytes: u64,
    /// Total records.
    pub records: u64,
    /// Number of shards that it becomes.
    pub shards: u64,
}

/// Returns the number of shards that a shard is divided into, by the nearest to the target; 1 if it stays whole.
pub fn piece_count(bytes: u64, records: u64, target: Size) -> u64 {
    if bytes as f64 / target.0 as f64 <= LARGE {
        return 1;
    }
    (bytes.saturating_add(target.0 / 2) / target.0.max(1)).min(records).max(1)
}

/// Result of planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactPlan {
    /// Decision for each candidate.
    pub choices: Vec<Choice>,
    /// The merges, and the shards to be divided.
    pub groups: Vec<Group>,
}

/// Plans the merges and divisions.
pub fn plan_compaction(candidates: &[CompactCandidate], options: &CompactOptions) -> CompactPlan {
    let target = options.target.0 as f64;
    let mut choices: Vec<Choice> = candidates
        .iter()
        .map(|shard| match shard.bytes as f64 / target {
            _ if !in_window(shard.version, shard.committed_at, options) => Choice::OutsideWindow,
            _ if !shard.mergeable => Choice::OtherCodec,
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
    for (i, shard) in candidates.iter().enumerate().filter(|(i, _)| choices[*i] == Choice::Oversized) {
        let stays = shard.sorted || shard.made_for_target;
        if !stays && piece_count(shard.bytes, shard.records, options.target) > 1 {
            items.push(Item { inputs: vec![i], bytes: shard.bytes, ..Item::default() });
        }
    }
    let taken: BTreeSet<usize> = items.iter().flat_map(|item| item.inputs.iter().copied()).collect();
    for (i, shard) in candidates.iter().enumerate().filter(|(i, shard)| shard.outdated && !taken.contains(i)) {
        if matches!(choices[i], Choice::TooFew | Choice::Settled | Choice::RightSize) && !shard.sorted {
            items.push(Item { inputs: vec![i], bytes: shard.bytes, ..Item::default() });
        }
    }
    items.sort_by_key(|item| item.inputs[0]);
    let mut groups = Vec::new();
    let mut left = options.max_bytes.map_or(u64::MAX, |size| size.0);
    for Item { inputs, bytes, .. } in items {
        let choice = match (inputs.len(), bytes <= left) {
            (1, true) if candidates[inputs[0]].outdated => Choice::Retype(groups.len()),
            (1, true) => Choice::Divide(groups.len()),
            (1, false) => Choice::DeferredLarge,
            (_, true) => Choice::Merge(groups.len()),
            (_, false) => Choice::Deferred,
        };
        inputs.iter().for_each(|i| choices[*i] = choice);
        if bytes <= left {
            left -= bytes;
            let records = inputs.iter().map(|i| candidates[*i].records).sum();
            let shards = if inputs.len() == 1 { piece_count(bytes, records, options.target) } else { 1 };
            groups.push(Group { inputs, bytes, records, shards });
        }
    }
    CompactPlan { choices, groups }
}

/// A small shard, or a planned merge of small shards.
#[derive(Debug, Default)]
struct Item {
    inputs: Vec<usize>,
    bytes: u64,
    /// Whether it is a result of a compaction, or would be for the next run.
    settled: bool,
    /// Number of inputs that are not results of a compaction.
    new: usize,
}

/// Packs small items into bins and merges each bin that is worth it; returns false if there is none. It is repeated
/// until then, because the remaining items may fit together after the others are merged, and a second run would find
/// that.
fn merge_bins(items: &mut Vec<Item>, options: &CompactOptions) -> bool {
    let min_inputs = options.min_inputs.max(2);
    for item in items.iter_mut().filter(|item| item.inputs.len() > 1) {
        (item.settled, item.new) = (true, 0);
    }
    let fresh = merge_some(
        items,
        options,
        |item| !item.settled,
        |items, bin| is_full(bin.iter().map(|i| items[*i].bytes).sum(), options) || bin.len() >= min_inputs,
    );
    let enough = |new: usize| new >= min_inputs;
    let enough_in_all = enough(items.iter().map(|item| item.new).sum());
    let settled = merge_some(
        items,
        options,
        |_| true,
        |items, bin| {
            // A full shard is not rewritten again.
            if enough_in_all && is_full(bin.iter().map(|i| items[*i].bytes).sum(), options) {
                return true;
            }
            keep_doubling(items, bin);
            bin.iter().any(|i| items[*i].settled) && enough(bin.iter().map(|i| items[*i].new).sum())
        },
    );
    fresh || settled
}

/// Packs the small items for which `takes_part` is true and merges the bins for which `worth` is true; `worth` may
/// remove items from a bin first.
fn merge_some(
    items: &mut Vec<Item>,
    options: &CompactOptions,
    takes_part: impl Fn(&Item) -> bool,
    worth: impl Fn(&[Item], &mut Vec<usize>) -> bool,
) -> bool {
    let packed: Vec<usize> =
        (0..items.len()).filter(|i| !is_full(items[*i].bytes, options) && takes_part(&items[*i])).collect();
    let mut merged = false;
    for mut bin in pack_bins(items, &packed, options.target.0) {
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

/// Removes earlier merge results that would not at least double from a bin.
fn keep_doubling(items: &[Item], bin: &mut Vec<usize>) {
    let mut bytes: u64 = bin.iter().map(|i| items[*i].bytes).sum();
    while let Some(at) = (0..bin.len()).filter(|at| items[bin[*at]].settled).max_by_key(|at| items[bin[*at]].bytes)
        && items[bin[at]].bytes > bytes - items[bin[at]].bytes
    {
        bytes -= items[bin.remove(at)].bytes;
    }
}

fn is_full(bytes: u64, options: &CompactOptions) -> bool {
    bytes as f64 >= SMALL * options.target.0 as f64
}

/// Returns whether a shard of that version was committed in the window.
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

/// Packs next-fit in record order: a bin is closed when its size is nearest to the target.
fn pack_bins(items: &[Item], packed: &[usize], target: u64) -> Vec<Vec<usize>> {
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

/// Returns the bin size that leaves no small remainder if it is close to the target, else the target.
fn even_target(bytes: u64, target: u64) -> u64 {
    let fewer = bytes / target.max(1);
    let part = |size: u64| size as f64 / target as f64;
    [fewer, fewer + 1]
        .into_iter()
        .filter_map(|bins| bytes.checked_div(bins))
        .filter(|size| (EVEN_MIN..=EVEN_MAX).contains(&part(*size)))
        .min_by(|a, b| (part(*a) - 1.0).abs().total_cmp(&(part(*b) - 1.0).abs()))
        .unwrap_or(target)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shards(sizes: &[u64]) -> Vec<CompactCandidate> {
        sizes
            .iter()
            .enumerate()
            .map(|(i, bytes)| CompactCandidate {
                path: format!("{i}"),
                bytes: *bytes,
                records: *bytes,
                version: Version(i as u64 + 1),
                committed_at: Timestamp::from_second(i64::try_from(i).unwrap() * 86_400).unwrap(),
                mergeable: true,
                partition: String::new(),
                settled: false,
                made_for_target: false,
                sorted: false,
                outdated: false,
            })
            .collect()
    }

    fn options(target: u64) -> CompactOptions {
        CompactOptions { target: Size(target), min_inputs: 5, since: None, until: None, max_bytes: None }
    }

    /// Returns the candidates that a second run would see.
    fn after(shards: &[CompactCandidate], plan: &CompactPlan) -> Vec<CompactCandidate> {
        let mut after = Vec::new();
        for (shard, choice) in shards.iter().zip(&plan.choices) {
            match choice {
                Choice::Merge(g) if shards[plan.groups[*g].inputs[0]].path == shard.path => {
                    after.push(CompactCandidate { bytes: plan.groups[*g].bytes, settled: true, ..shard.clone() });
                }
                Choice::Merge(_) => {}
                Choice::Divide(g) => {
                    let shards = plan.groups[*g].shards;
                    let piece =
                        |bytes| CompactCandidate { bytes, settled: true, made_for_target: true, ..shard.clone() };
                    let rest = shard.bytes - shard.bytes / shards * (shards - 1);
                    after.extend((1..shards).map(|_| piece(shard.bytes / shards)).chain([piece(rest)]));
                }
                _ => after.push(shard.clone()),
            }
        }
        after
    }

    #[test]
    fn small_shards_are_packed_over_large_ones_in_order() {
        let plan = plan_compaction(&shards(&[30, 30, 200, 30, 10, 100, 40, 40, 30]), &options(100));
        assert_eq!(plan.groups[0].inputs, [0, 1, 3, 4]);
        assert_eq!((plan.groups[1].inputs.as_slice(), plan.groups[1].shards), (&[2][..], 2));
        assert_eq!(plan.groups[2].inputs, [6, 7, 8]);
        assert_eq!(plan.choices[2], Choice::Divide(1));
        assert_eq!(plan.choices[5], Choice::RightSize);
    }

    #[test]
    fn large_shards_are_divided_unless_that_has_no_effect() {
        let choices = |change: fn(&mut CompactCandidate)| {
            let mut all = shards(&[180, 181, 250, 251, 10_000]);
            all.iter_mut().for_each(change);
            let plan = plan_compaction(&all, &options(100));
            (plan.choices, plan.groups.iter().map(|group| group.shards).collect::<Vec<_>>())
        };
        let divided = [Choice::RightSize, Choice::Divide(0), Choice::Divide(1), Choice::Divide(2), Choice::Divide(3)];
        assert_eq!(choices(|_| {}), (divided.to_vec(), vec![2, 3, 3, 100]));
        assert_eq!(
            choices(|shard| shard.settled = true),
            (divided.to_vec(), vec![2, 3, 3, 100]),
            "made for a larger target"
        );
        assert_eq!(choices(|shard| shard.records = 2).1, [2, 2, 2, 2]);
        let stays: [fn(&mut CompactCandidate); 3] =
            [|shard| shard.records = 1, |shard| shard.sorted = true, |shard| shard.made_for_target = true];
        for change in stays {
            let (choices, groups) = choices(change);
            assert!(groups.is_empty());
            assert_eq!(choices[1..], [Choice::Oversized; 4]);
        }
    }

    #[test]
    fn a_few_small_shards_wait_until_more_arrive() {
        assert!(plan_compaction(&shards(&[1, 1, 1, 1]), &options(100)).groups.is_empty());
        assert_eq!(plan_compaction(&shards(&[1, 1, 1, 1, 1]), &options(100)).groups.len(), 1);
        assert!(plan_compaction(&shards(&[10]), &options(100)).groups.is_empty());
        assert!(plan_compaction(&[], &options(100)).groups.is_empty());
    }

    #[test]
    fn the_window_is_by_version_or_time() {
        let mut o = options(100);
        o.since = Some(When::Version(Version(3)));
        let plan_versions = plan_compaction(&shards(&[40; 6]), &o);
        assert_eq!(plan_versions.choices[1], Choice::OutsideWindow);
        assert_eq!(plan_versions.groups[0].inputs, [2, 3]);
        o.since = None;
        o.until = Some(When::Instant(Timestamp::from_second(2 * 86_400).unwrap()));
        assert_eq!(plan_compaction(&shards(&[40; 6]), &o).choices[3], Choice::OutsideWindow);
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
            let plan = plan_compaction(&all, &options(1_000));
            rewritten += plan.groups.iter().map(|g| g.bytes).sum::<u64>();
            all = after(&all, &plan);
            most = most.max(all.iter().filter(|shard| shard.bytes < 750).count());
            assert_eq!(all.iter().map(|s| s.bytes).sum::<u64>(), 5 * (day + 1));
        }
        // Each record is rewritten once per doubling of its shard, from 1 to 1,000, and few small shards remain.
        assert!(rewritten <= 11 * 10_000, "{rewritten}");
        assert!(most <= 16, "{most}");
    }

    #[test]
    fn small_remainders_are_spread_over_the_bins() {
        let sizes = |sizes: &[u64]| {
            plan_compaction(&shards(sizes), &options(100)).groups.iter().map(|g| g.bytes).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[1; 205]), [102, 103]);
        assert_eq!(sizes(&[1; 290]), [96, 97, 97]);
        // Too much to spread: it remains, to be merged with later shards.
        assert_eq!(sizes(&[1; 140]), [100, 40]);
        assert_eq!(even_target(0, 0), 0);
    }

    #[test]
    fn a_bounded_run_merges_what_fits() {
        let mut bounded = options(100);
        bounded.max_bytes = Some(Size(150));
        let plan = plan_compaction(&shards(&[50, 50, 50, 50, 20, 30]), &bounded);
        assert_eq!(plan.groups.len(), 1);
        assert_eq!(plan.choices[..4], [Choice::Merge(0), Choice::Merge(0), Choice::Deferred, Choice::Deferred]);
        bounded.max_bytes = Some(Size(99));
        assert!(super::plan_compaction(&shards(&[50; 6]), &bounded).groups.is_empty());
    }

    proptest! {
        #[test]
        fn a_second_run_finds_nothing_to_do(sizes in prop::collection::vec((1_u64..300, any::<bool>()), 0..80)) {
            let options = options(100);
            let mut before = shards(&sizes.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>());
            before.iter_mut().zip(&sizes).for_each(|(shard, (_, settled))| shard.settled = *settled);
            let first = plan_compaction(&before, &options);
            let after = after(&before, &first);
            let total = |shards: &[CompactCandidate]| shards.iter().map(|s| s.bytes).sum::<u64>();
            prop_assert_eq!(total(&after), total(&before));
            let second = plan_compaction(&after, &options);
            prop_assert!(second.groups.is_empty(), "{:?} -> {:?} -> {:?}", sizes, after, second.groups);
        }

        #[test]
        fn bounded_runs_end_in_the_same_state(sizes in prop::collection::vec(1_u64..300, 0..80)) {
            let mut bounded = options(100);
            bounded.max_bytes = Some(Size(300));
            let mut left = shards(&sizes);
            for _ in 0..sizes.len() + 1 {
                let plan = plan_compaction(&left, &bounded);
                prop_assert!(plan.groups.iter().map(|g| g.bytes).sum::<u64>() <= 300);
                if plan.groups.is_empty() {
                    break;
                }
                left = after(&left, &plan);
            }
            prop_assert!(plan_compaction(&left, &options(100)).groups.is_empty());
        }

        #[test]
        fn groups_keep_order_and_hold_each_shard_once(sizes in prop::collection::vec(1_u64..300, 0..80)) {
            let plan = plan_compaction(&shards(&sizes), &options(100));
            let all: Vec<usize> = plan.groups.iter().flat_map(|g| g.inputs.clone()).collect();
            let distinct: std::collections::BTreeSet<usize> = all.iter().copied().collect();
            prop_assert_eq!(distinct.len(), all.len());
            for group in &plan.groups {
                prop_assert!(group.inputs.is_sorted_by(|a, b| a < b));
                prop_assert!((group.bytes < 180) == (group.inputs.len() > 1)
                    && (group.shards > 1) == (group.inputs.len() == 1));
            }
        }
    }
}
