//! Transactions: what a run wants the next version to be.

use std::collections::BTreeMap;

use crate::{
    dataset::{
        index::{SegmentRef, places::PlaceRef},
        log::{
            duplicates::DuplicatesRef,
            entry::{Counts, Revision, Settings},
            operation::Operation,
            retraction::Retraction,
            shards::NewShard,
            snapshot::Snapshot,
            sources::NewSources,
        },
    },
    id::TransactionId,
    schema::bound,
    units::Size,
};

/// What a run wants to commit.
pub struct Transaction<'a> {
    /// Names the run.
    pub id: TransactionId,
    /// What the run does.
    pub operation: Operation,
    /// Options that decided the output.
    pub arguments: BTreeMap<String, String>,
    /// Revisions of repositories that the sources lie in.
    pub revisions: Vec<Revision>,
    /// What was done.
    pub counts: Counts,
    /// What the dataset is from now on.
    pub settings: Settings,
    /// New shards.
    pub adds: Vec<NewShard>,
    /// Paths of shards that stop being live.
    pub removes: Vec<String>,
    /// New segments, with record numbers relative to the first new record.
    pub segments: Vec<SegmentRef>,
    /// Segments that become one.
    pub merges: Vec<SegmentMerge>,
    /// New sets of places of records that were sorted.
    pub places: Vec<PlaceRef>,
    /// What happens to records that the dataset has or had.
    pub retraction: Retraction<'a>,
    /// New sources, with record numbers relative to the first new record.
    pub sources: &'a dyn NewSources,
    /// Records that were omitted as duplicates; `None` if there are none.
    pub duplicates: Option<DuplicatesRef>,
    /// Where the records of the new shards get their numbers.
    pub numbers: Numbers,
    /// How often `commit` was called for this run before: lists of these calls may have their names already.
    pub calls: usize,
}

/// Segments of the id index, by their paths, and the one that holds the pairs of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentMerge {
    /// Paths of those that it replaces.
    pub replaces: Vec<String>,
    /// The segment.
    pub by: SegmentRef,
}

impl Transaction<'static> {
    /// Returns a transaction that changes nothing.
    pub fn new(id: TransactionId, operation: Operation, settings: Settings) -> Self {
        Self {
            id,
            operation,
            arguments: BTreeMap::new(),
            revisions: Vec::new(),
            counts: Counts::default(),
            settings,
            adds: Vec::new(),
            removes: Vec::new(),
            segments: Vec::new(),
            merges: Vec::new(),
            places: Vec::new(),
            retraction: Retraction::default(),
            sources: &(),
            duplicates: None,
            numbers: Numbers::Kept,
            calls: 0,
        }
    }

    /// Replaces shards by others that hold the same records.
    pub fn for_compaction(
        parent: &Snapshot,
        arguments: BTreeMap<String, String>,
        counts: Counts,
        adds: Vec<NewShard>,
        removes: Vec<String>,
    ) -> Self {
        let settings = parent.entry().settings.clone();
        Self { arguments, counts, adds, removes, ..Self::new(TransactionId::fresh(), Operation::Compact, settings) }
    }

    /// Makes a target size the dataset's.
    #[must_use]
    pub fn with_target(self, target_shard: Size) -> Self {
        Self { settings: Settings { target_shard, ..self.settings }, ..self }
    }
}

impl Transaction<'_> {
    /// Returns the settings of the version that follows one with the settings `parent`: those of the transaction, and
    /// what other runs have recorded about labels and duplicates since it was planned.
    pub fn settings_on(&self, parent: Option<&Settings>) -> Settings {
        let mut settings = self.settings.clone();
        // A revert is never based on a version that it was not planned on, and restores all settings.
        let Some(parent) = parent.filter(|_| !self.retraction.only_as_planned) else { return settings };
        let count = |classes: &Option<Vec<String>>| classes.as_ref().map(Vec::len);
        if count(&parent.classes) > count(&settings.classes) {
            settings.classes.clone_from(&parent.classes);
        }
        match (&parent.types, &settings.types) {
            (Some(theirs), Some(mine)) if self.operation == Operation::Convert => {
                let types = bound::types_after_run(theirs, mine);
                let older = bound::retyped_columns(theirs, &types)
                    .chain(bound::retyped_columns(mine, &types))
                    .map(str::to_owned);
                settings.retyped.extend(older);
                settings.types = Some(types);
            }
            (Some(theirs), _) => settings.types = Some(theirs.clone()),
            (None, _) => {}
        }
        settings.retyped.extend(parent.retyped.iter().cloned());
        if let (Some(theirs), Some(mine)) = (&parent.label_types, &settings.label_types) {
            settings.label_types = Some(bound::types_after_run(theirs, mine));
        }
        let own = std::mem::replace(&mut settings.units, parent.units.clone());
        for (column, unit) in own {
            settings.units.entry(column).or_insert(unit);
        }
        if self.operation != Operation::Convert {
            settings.labels.clone_from(&parent.labels);
            settings.label_types.clone_from(&parent.label_types);
            settings.dedup.clone_from(&parent.dedup);
        }
        settings
    }
}

/// Where record numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// These records are new: numbers in the transaction count from 0 and are shifted at commit.
    Fresh(u64),
    /// These records keep the numbers they have.
    Kept,
}
