//! Effects of a transaction on records that the dataset has or had, besides adding new ones.
//!
//! Removing records rewrites the shards that hold them. The remaining records keep their record numbers, and the
//! removed numbers stay in the id index, so that `--find` still shows where a record was. Restoring makes shards of an
//! older version live again: each gets a second run, which begins with the new version.
//!
//! ```text
//! version        1     2     3     4
//! shard a        |-----|           |-->     removed by 3, restored by 4: two runs of one shard
//! shard b        |-----|                    holds a removed record
//! shard b'             |---------->|        b without that record, same numbers; removed again by 4
//! ```

use std::{collections::HashSet, sync::Arc};

use crate::{
    dataset::{
        index::places::PlaceRef,
        log::{
            erased::Replacements,
            runs::Run,
            shards::{NewShard, ShardMeta},
            snapshot::Snapshot,
            sources::SourceRow,
        },
    },
    error::{Error, Result},
    id::Version,
};

/// Returns the version that removed a source, given its row and the version being committed; `None` if the dataset has
/// its records.
pub type RemovedBy<'a> = dyn Fn(&SourceRow, Version) -> Option<Version> + Sync + 'a;

/// Changes to records of earlier versions.
#[derive(Default)]
pub struct Retraction<'a> {
    /// Shards rewritten without removed records; the remaining records keep their numbers.
    pub rewritten: Vec<NewShard>,
    /// Shards of an older version that become live again.
    pub restored: Vec<Restored>,
    /// Decides which sources are removed from this version on; `None`: unchanged.
    pub sources: Option<&'a RemovedBy<'a>>,
    /// Whether any version committed since the plan makes the transaction a conflict.
    pub only_as_planned: bool,
}

impl std::fmt::Debug for Retraction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retraction")
            .field("rewritten", &self.rewritten)
            .field("restored", &self.restored)
            .field("only_as_planned", &self.only_as_planned)
            .finish_non_exhaustive()
    }
}

/// A shard that becomes live again.
#[derive(Debug, Clone)]
pub struct Restored {
    /// Its facts, unchanged.
    pub shard: ShardMeta,
    /// Its runs in the version that it is restored from.
    pub runs: Vec<Run>,
    /// First version that had the first record of each run.
    pub since: Vec<Version>,
}

impl Restored {
    /// Returns the shards of `then` at these paths, with their runs and the position tables of sorted ones.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn from_snapshot(then: &Snapshot, wanted: &HashSet<&str>) -> Result<(Vec<Self>, Vec<PlaceRef>)> {
        let table = then.run_table()?;
        let by_shard = table.by_shard(then.version());
        let mut sets: HashSet<&str> = HashSet::new();
        let mut restored = Vec::new();
        for shard in then.live_shards()?.iter().filter(|shard| wanted.contains(shard.path.as_str())) {
            let runs = by_shard.get(shard.path.as_str()).cloned().unwrap_or_default();
            sets.extend(runs.iter().filter_map(|run| run.scattered.as_ref()).map(|scattered| scattered.set.as_str()));
            let since = runs.iter().map(|run| table.first_version(run.first).unwrap_or(run.from)).collect();
            restored.push(Self { shard: shard.clone(), runs: runs.into_iter().cloned().collect(), since });
        }
        let places = then.entry().places.iter().filter(|place| sets.contains(place.set.as_str())).cloned().collect();
        Ok((restored, places))
    }

    /// Returns its runs from a version on.
    fn runs_from(&self, version: Version) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().zip(&self.since).map(move |(run, since)| Run {
            from: version,
            until: None,
            // Rows of scattered runs store their first versions beside their numbers.
            since: match &run.scattered {
                None => Some(*since),
                Some(scattered) => scattered.base.map(|_| run.since.unwrap_or(run.from)),
            },
            ..run.clone()
        })
    }
}

impl Retraction<'_> {
    /// Returns the runs of restored shards from a version on.
    pub(in crate::dataset) fn restored_runs(&self, version: Version) -> impl Iterator<Item = Run> + '_ {
        self.restored.iter().flat_map(move |restored| restored.runs_from(version))
    }

    /// Fails if the parent is a version that the plan did not see, or if a shard to be restored is no longer stored.
    pub(in crate::dataset) fn check_conflicts(&self, parent: &Snapshot, planned_on: Version) -> Result<()> {
        let conflict =
            |message: String| Err(Error::conflict(message).with_hint("nothing was committed; run the command again"));
        if self.only_as_planned && parent.version() != planned_on {
            return conflict(format!("another run committed {} meanwhile", parent.version()));
        }
        if self.restored.is_empty() {
            return Ok(());
        }
        let used = parent.paths_in_use()?;
        let replacements = Replacements::from_entry(parent.dataset().store().as_ref(), parent.entry())?;
        let gone = |restored: &&Restored| {
            let path = restored.shard.path.as_str();
            !used.contains(path) || replacements.has_shard(path)
        };
        match self.restored.iter().find(gone) {
            None => Ok(()),
            Some(gone) => conflict(format!("the shard `{}` was vacuumed or erased from meanwhile", gone.shard.path)),
        }
    }
}

/// Returns the runs of a new shard, with numbers shifted by `shift`.
pub(in crate::dataset) fn runs_of(shard: &NewShard, shift: u64, version: Version) -> impl Iterator<Item = Run> + '_ {
    shard.runs.iter().enumerate().map(move |(number, (first, records, ordinal))| Run {
        first: first + shift,
        records: *records,
        shard: shard.meta.path.clone(),
        ordinal: *ordinal,
        from: version,
        until: None,
        since: shard.since.get(number).copied(),
        scattered: shard.scattered.clone().map(|scattered| scattered.shifted_by(shift)),
        beside: Arc::new(shard.meta.beside.of_runs()),
    })
}
