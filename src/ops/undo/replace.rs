//! `--on-changed replace`: removes the old records of changed sources in the version that adds the new ones.
//!
//! The shards that hold the old records are looked up right before the commit, and again whenever another run has
//! replaced some of these shards: the converted shards stay, only the removal is planned again.

use std::collections::HashSet;

use super::SourceSelection;
use crate::{
    dataset::{
        Attempts, Dataset, Pseudonymizer, Publication, Retraction, Snapshot, SourceRow, Transaction, commit_transaction,
    },
    error::{Error, Kind, Result},
    id::Version,
    ops::{Context, REPLANS, rewrite},
};

/// Sources whose old records are replaced.
pub(in crate::ops) struct SourceReplacement<'a> {
    pub(in crate::ops) context: &'a Context<'a>,
    pub(in crate::ops) dataset: &'a Dataset,
    pub(in crate::ops) pseudonymizer: Option<&'a Pseudonymizer>,
    /// The version that the run was planned on: records of later ones stay.
    pub(in crate::ops) base: Version,
    /// URIs of the sources.
    pub(in crate::ops) replaced: &'a HashSet<String>,
}

impl SourceReplacement<'_> {
    /// Commits the new records of the sources, and removes their old ones.
    ///
    /// # Errors
    /// Those of a commit; when a shard that holds old records is damaged.
    pub(in crate::ops) fn commit_replacement(
        &self,
        transaction: Transaction<'_>,
        mut publication: Publication<'_>,
    ) -> Result<Snapshot> {
        // The first folder contains the converted shards.
        let mut folders = 1;
        let mut lost = Error::internal("a replacement was never attempted");
        for attempt in Attempts::at_most(REPLANS) {
            let newest = self.dataset.open_newest()?;
            let old = |row: &SourceRow| row.version <= self.base && self.replaced.contains(&row.uri);
            let selection = SourceSelection::select_sources(&newest, self.pseudonymizer, &mut { old })?;
            let affected_shards = selection.affected_shards(&newest)?;
            let rewritten =
                rewrite::rewrite_and_publish(self.context, &newest, affected_shards, &mut publication, &mut folders)?;
            let removed_by = |row: &SourceRow, version| selection.removed_by(row, version);
            let mut counts = transaction.counts;
            counts.records_removed = rewritten.records;
            counts.shards_added += rewritten.shards.len() as u64;
            counts.bytes_out += rewritten.bytes;
            counts.shards_removed = rewritten.removes.len() as u64;
            let removes: HashSet<&str> = rewritten.removes.iter().map(String::as_str).collect();
            let attempted = Transaction {
                id: transaction.id.clone(),
                arguments: transaction.arguments.clone(),
                revisions: transaction.revisions.clone(),
                settings: transaction.settings.clone(),
                adds: transaction.adds.clone(),
                segments: transaction.segments.clone(),
                counts,
                removes: rewritten.removes.clone(),
                places: [transaction.places.clone(), rewritten.places].concat(),
                duplicates: transaction.duplicates.clone(),
                retraction: Retraction {
                    rewritten: rewritten.shards,
                    sources: Some(&removed_by),
                    ..Retraction::default()
                },
                merges: Vec::new(),
                calls: attempt,
                ..transaction
            };
            match publication.attempt_commit(|| commit_transaction(self.dataset, &attempted, self.base)) {
                Err(error) if error.kind() == Kind::Conflict => {
                    let now = self.dataset.open_newest()?;
                    let live: HashSet<&str> = now.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
                    if removes.iter().all(|path| live.contains(path)) {
                        return Err(error);
                    }
                    publication.withdraw_objects(&rewritten.paths)?;
                    lost = error;
                }
                result => return result,
            }
        }
        Err(lost)
    }
}
