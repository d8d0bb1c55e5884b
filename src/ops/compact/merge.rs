//! Merges groups of shards and divides large ones: the work of a compaction, whether it is cut into tasks or not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::options::{Options, ProofLevel};
use crate::{
    dataset::{ContentHashes, Dataset, NewShard, Run, Settings, ShardMeta, Snapshot},
    error::{Error, Kind, Result},
    events::Event,
    exec::{
        budget::Budget,
        compact::{Merge, MergedShard, Merger},
        ordered::run_ordered,
        rewrite::Rewriter,
        shard::{FinishedShard, ShardNaming},
        types,
    },
    format::parquet::Tally,
    id::Version,
    ops::Context,
    plan::{compact::piece_count, memory::MemoryPlan},
    storage::Staged,
    units::Size,
};

/// Maximum number of merges that write the end of their shard and read it back, while other merges use the processor.
const ENDING_AT_ONCE: usize = 2;

/// Shards that become one, or a single one that becomes several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergeGroup {
    /// Paths of the shards, in record order.
    pub(super) inputs: Vec<String>,
    /// Their stored bytes.
    pub(super) bytes: u64,
    /// Path of the new shard's folder below that of the run.
    pub(super) partition: String,
}

/// A new shard that holds the records of a group.
pub(super) struct Product {
    /// Number of the group.
    pub(super) group: usize,
    /// The shard.
    pub(super) shard: NewShard,
    /// MD5 of its bytes, if an index needs it.
    pub(super) md5: Option<[u8; 16]>,
    /// How its bytes were made.
    pub(super) tally: Tally,
}

/// Merges shards of a snapshot.
pub(super) struct Merging<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) snapshot: &'a Snapshot,
    /// Settings of the new shards.
    pub(super) settings: &'a Settings,
    /// The memory limit that the sizes of row groups follow from.
    pub(super) memory: Size,
    pub(super) no_check: bool,
    pub(super) proof: ProofLevel,
}

/// Merges of some groups.
pub(super) struct Merges {
    /// New shards with their objects, which have no names yet.
    pub(super) products: Vec<(Product, Vec<Staged>)>,
    /// Errors of groups that were omitted, because a shard is damaged.
    pub(super) damaged: Vec<Error>,
}

impl<'a> Merging<'a> {
    /// Returns the work of a compaction of a snapshot.
    pub(super) fn new(
        context: &'a Context<'a>,
        snapshot: &'a Snapshot,
        settings: &'a Settings,
        options: &Options,
    ) -> Self {
        Self { context, snapshot, settings, memory: context.memory, no_check: options.no_check, proof: options.proof }
    }

    /// Merges every group. A group whose inputs another run has replaced is skipped; a group with a damaged input is
    /// skipped and reported. Whatever was written for skipped groups is deleted.
    ///
    /// # Errors
    /// When the store fails, or the run is interrupted.
    pub(super) fn merge_all(&self, naming: &ShardNaming, groups: &[MergeGroup]) -> Result<Merges> {
        let context = self.context;
        let total = groups.iter().map(|group| group.bytes).sum();
        context.observer.event(Event::Phase { name: "compacting", bytes: Some(total) });
        let memory = |limit| MemoryPlan::for_settings(limit, context.jobs, self.settings);
        // While one merge of Parquet waits for its input, another one uses the processor.
        let max = context.jobs + usize::from(naming.format.is_columnar());
        let concurrent = memory(context.memory).concurrent_rewrites(naming.format, max);
        let merger = Merger {
            rewriter: Rewriter {
                dataset: self.snapshot.dataset(),
                row_group: memory(self.memory).unit_bytes,
                observer: context.observer,
                cancel: &context.cancel,
            },
            naming,
            concurrent_merges: Budget::new(concurrent as u64),
            check_crc: !self.no_check,
            hashes: ContentHashes::from_snapshot(self.snapshot),
            compare: self.proof == ProofLevel::Full,
            runs: self.snapshot.run_table()?,
            target: self.settings.target_shard.0,
            types: types::retyped_fields(&self.snapshot.entry().settings),
        };
        let (merger, merges) = (&merger, self.build_merges(groups)?);
        std::thread::scope(|scope| {
            let input = merges.into_iter().map(Ok);
            let window = concurrent + ENDING_AT_ONCE;
            let results =
                run_ordered(scope, input, window, window, &context.cancel, move |merge| merger.merge_or_divide(&merge));
            let mut out = Merges { products: Vec::new(), damaged: Vec::new() };
            for (group, result) in results.enumerate() {
                match result {
                    Ok(made) => out.products.extend(made.into_iter().map(|merged| self.build_product(group, merged))),
                    Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                    Err(_) if self.is_gone(&groups[group])? => {}
                    Err(error) if matches!(error.kind(), Kind::Integrity | Kind::Input) => out.damaged.push(error),
                    Err(error) => return Err(error),
                }
            }
            Ok(out)
        })
    }

    fn build_product(&self, group: usize, merged: MergedShard) -> (Product, Vec<Staged>) {
        let FinishedShard { staged, mut shard, md5 } = merged.finished;
        shard.meta.compacted_for = self.settings.target_shard.0;
        (Product { group, shard, md5, tally: merged.tally }, staged)
    }

    fn is_gone(&self, group: &MergeGroup) -> Result<bool> {
        let live = LiveShards::read_newest(self.snapshot.dataset(), self.snapshot.version())?;
        Ok(!live.has_group(group))
    }

    /// Returns the merges, numbered within their folders.
    fn build_merges(&self, groups: &[MergeGroup]) -> Result<Vec<Merge>> {
        let wanted: HashSet<&str> = groups.iter().flat_map(|group| &group.inputs).map(String::as_str).collect();
        let shards = self.snapshot.live_shards()?.iter().filter(|shard| wanted.contains(shard.path.as_str()));
        let shards: HashMap<&str, &ShardMeta> = shards.map(|shard| (shard.path.as_str(), shard)).collect();
        let runs = self.snapshot.runs_by_shard()?;
        let input = |path: &String| -> Result<(ShardMeta, Vec<Run>)> {
            let shard = shards.get(path.as_str()).ok_or_else(|| {
                Error::integrity("expected a live shard of the version that the plan was made on, found none")
                    .at_location(path.clone())
            })?;
            let runs = runs.get(path.as_str()).into_iter().flatten().map(|run| (*run).clone()).collect();
            Ok(((*shard).clone(), runs))
        };
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let merge = |group: &'_ MergeGroup| -> Result<Merge> {
            let inputs: Vec<(ShardMeta, Vec<Run>)> = group.inputs.iter().map(input).collect::<Result<_>>()?;
            let shards = match inputs.as_slice() {
                [(shard, _)] => piece_count(shard.bytes, shard.records, self.settings.target_shard),
                _ => 1,
            };
            Ok(Merge { inputs, partition: group.partition.clone(), number: 0, shards })
        };
        let mut merges = groups.iter().map(merge).collect::<Result<Vec<_>>>()?;
        for (merge, group) in merges.iter_mut().zip(groups) {
            let number = numbers.entry(&group.partition).or_default();
            merge.number = *number;
            *number += usize::try_from(merge.shards).unwrap_or(usize::MAX);
        }
        Ok(merges)
    }
}

/// The shards that are live in the newest version; `None` if that is the version that groups were made on.
pub(super) struct LiveShards(Option<BTreeSet<String>>);

impl LiveShards {
    /// Reads the newest version.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(super) fn read_newest(dataset: &Dataset, base: Version) -> Result<Self> {
        let newest = dataset.open_newest()?;
        if newest.version() == base {
            return Ok(Self(None));
        }
        Ok(Self(Some(newest.live_shards()?.iter().map(|shard| shard.path.clone()).collect())))
    }

    /// Returns whether all shards of a group are live.
    pub(super) fn has_group(&self, group: &MergeGroup) -> bool {
        self.0.as_ref().is_none_or(|live| group.inputs.iter().all(|path| live.contains(path)))
    }
}
