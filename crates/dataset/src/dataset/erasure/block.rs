//! Blocked ids, apart from erasures: ids are blocked before any record with them arrives, and unblocked again. Both
//! create versions of their own, so that the log records when and why.

use std::collections::{BTreeMap, HashSet};

use crate::{
    dataset::{
        erasure::suppress::{self, Suppressed, SuppressedKind},
        ids::salt::{KeyedHash, Salt},
        log::{
            commit::{Next, entry_after, until_created},
            draft::{Draft, ListWriter},
            entry::{Counts, Entry},
            erasures::Erasures,
            operation::Operation,
            snapshot::{Dataset, Snapshot},
            transaction::Transaction,
        },
    },
    error::Result,
    id::{TransactionId, Version},
};

/// A change to the list.
#[derive(Debug)]
pub enum BlockChange {
    /// Blocks these texts from now on; versions are filled in.
    Add(Vec<Suppressed>),
    /// Unblocks these.
    Remove(HashSet<(KeyedHash, SuppressedKind)>),
}

/// Commits a change to the list on top of the newest version. `change` computes it from the newest snapshot and the
/// salt of the hashes; `None` if nothing changes. Returns the newest snapshot afterwards.
///
/// # Errors
/// Those of `change`; if other runs keep committing, or the store fails.
pub fn change_blocked(
    dataset: &Dataset,
    operation: Operation,
    arguments: &BTreeMap<String, String>,
    change: &mut dyn FnMut(&Snapshot, &Salt) -> Result<Option<BlockChange>>,
) -> Result<Snapshot> {
    dataset.test_store()?;
    let id = TransactionId::fresh();
    let newest = dataset.open_newest()?.version();
    let fresh = Salt::fresh();
    until_created(dataset, &id, newest, "changed", |attempt| {
        let parent = dataset.open_newest()?;
        let old = parent.entry().erasures.clone();
        let salt = old.as_ref().map_or(Ok(fresh), Erasures::parse_salt)?;
        let Some(change) = change(&parent, &salt)? else { return Ok(Next::Nothing(Box::new(parent))) };
        let transaction = Transaction {
            id: id.clone(),
            operation,
            ..Transaction::for_compaction(&parent, arguments.clone(), Counts::default(), Vec::new(), Vec::new())
        };
        let draft = Draft::new(dataset, &transaction, 0, attempt);
        let mut erasures = old.unwrap_or_else(|| Erasures::new(salt));
        let version = parent.version().next();
        change.apply(&draft, &mut erasures, version)?;
        let entry = entry_after(&parent, &id, operation, arguments.clone())?;
        draft.publish_staged()?;
        Ok(Next::Entry(Box::new(Entry { erasures: Some(erasures), ..entry })))
    })
}

impl BlockChange {
    fn apply(self, draft: &Draft<'_>, erasures: &mut Erasures, version: Version) -> Result<()> {
        let mut lists = ListWriter::new(draft, "suppressed");
        match self {
            Self::Add(rows) => {
                let rows: Vec<Suppressed> = rows.into_iter().map(|row| Suppressed { version, ..row }).collect();
                std::mem::take(&mut erasures.suppressed).into_iter().for_each(|list| lists.keep_list(list));
                lists.add_rows(&suppress::to_batch(&rows)?)?;
                // Runs in progress have not excluded these ids: they must not commit.
                erasures.count += 1;
            }
            Self::Remove(gone) => {
                for list in std::mem::take(&mut erasures.suppressed) {
                    let mut rows = suppress::read(draft.dataset.store().as_ref(), &list.as_sealed())?;
                    let before = rows.len();
                    rows.retain(|row| !gone.contains(&(row.hash, row.kind)));
                    if rows.len() == before {
                        lists.keep_list(list);
                    } else {
                        lists.add_rows(&suppress::to_batch(&rows)?)?;
                    }
                }
            }
        }
        erasures.suppressed = lists.into_merged(u64::MAX)?;
        Ok(())
    }
}
