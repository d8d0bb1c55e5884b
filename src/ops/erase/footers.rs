//! What adopted files say of an erased person outside of their records, and what is reported instead of changed:
//! - notes in the footers of Parquet files: other programs may write anything there, and a shard that holds none of the
//!   person's records is not rewritten;
//! - names of folders, `patient=7`: lists of shards and receipts have them for good, and the empty folder stays.

use std::collections::{BTreeSet, HashSet};

use rayon::prelude::*;

use super::{ErasureAttempt, rejects, report::EraseReport};
use crate::{
    codec::base64::from_any_base64,
    dataset::{Operation, Rewrite, ShardMeta},
    error::Result,
    format::parquet,
};

impl ErasureAttempt<'_> {
    /// Reports folders of shards, and footers of live shards other than rewritten ones, that name an erased id.
    pub(super) fn adopted_that_name(&self, rewrites: &[Rewrite], report: &mut EraseReport) -> Result<()> {
        // Shards that shardify converted have no notes, nor folders with names from elsewhere.
        if !self.options.all_versions {
            return Ok(());
        }
        let history = self.dataset.entries_up_to(self.newest.version())?;
        if history.iter().all(|entry| entry.operation != Operation::Adopt) {
            return Ok(());
        }
        let erased_ids = self.erased_ids()?;
        let paths =
            rewrites.iter().map(|rewrite| &rewrite.was.path).chain(self.newest.live_shards()?.iter().map(|s| &s.path));
        let folders: BTreeSet<&str> = paths.filter_map(|path| Some(path.rsplit_once('/')?.0)).collect();
        let named = folders.into_iter().filter(|folder| erased_ids.iter().any(|id| rejects::has_word(folder, id)));
        report.names_kept.extend(named.map(|folder| format!("the folder {folder}")));
        if self.newest.entry().settings.shard_format.is_columnar() {
            self.footers_that_name(&erased_ids, rewrites, report)?;
        }
        Ok(())
    }

    fn footers_that_name(&self, erased_ids: &[String], rewrites: &[Rewrite], report: &mut EraseReport) -> Result<()> {
        let rewritten: HashSet<&str> = rewrites.iter().map(|rewrite| rewrite.was.path.as_str()).collect();
        let names = |shard: &&ShardMeta| -> Result<bool> {
            let place = self.dataset.store().location().join(&shard.path).to_string();
            let file = parquet::open(self.dataset.object_at(&shard.path, shard.bytes), &place)?;
            let notes = file.key_value_metadata();
            Ok(notes.iter().any(|(key, value)| erased_ids.iter().any(|id| is_named(key, value, id))))
        };
        let others: Vec<&ShardMeta> =
            self.newest.live_shards()?.iter().filter(|shard| !rewritten.contains(shard.path.as_str())).collect();
        let found: Vec<bool> = others.par_iter().map(names).collect::<Result<_>>()?;
        let named = others.iter().zip(found).filter(|(_, named)| *named);
        report.names_kept.extend(named.map(|(shard, _)| format!("the footer of {}", shard.path)));
        Ok(())
    }
}

fn is_named(key: &str, value: &str, id: &str) -> bool {
    if rejects::has_word(key, id) || rejects::has_word(value, id) {
        return true;
    }
    // The Arrow schema is a message in base64, and may contain notes itself.
    let message = if key == parquet::ARROW_SCHEMA { from_any_base64(value) } else { None };
    message.is_some_and(|message| rejects::has_word(&String::from_utf8_lossy(&message), id))
}
