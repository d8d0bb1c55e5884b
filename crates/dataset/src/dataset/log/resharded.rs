//! The first version of a dataset that was cut from a version of another one, its *parent*.
//!
//! ```text
//! parent   v1   v2   v3        numbers   0  1  2  3  4  5  6
//!                     \-> child v1     0     1  2        3      records that were omitted have no number
//! ```
//!
//! The child is a dataset of its own: its numbers count from 0 in the order of the parent's, so runs stay few and the
//! rules for sources hold. Which version it was cut from is in the arguments of its first entry. Of the parent's
//! erasures it has the hashes of the ids, so that they stay blocked.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array},
    compute::filter_record_batch,
};

use crate::{
    codec::hex::to_hex,
    dataset::{
        log::{
            commit::{Next, check_added, until_created},
            draft::{Draft, ListWriter},
            entry::Entry,
            erased::read_tombstones,
            erasures::Erasures,
            operation::Operation,
            pulled::{Upstream, with_id_columns},
            snapshot::{Dataset, Snapshot},
            transaction::Transaction,
        },
        table::{self, typed_column},
    },
    error::{Error, Result},
    id::{TransactionId, Version},
};

/// Arguments that name the parent.
const PLACE: &str = "parent";
const ID: &str = "parent_id";
const VERSION: &str = "parent_version";
const TRANSACTION: &str = "parent_transaction";
const ROOT: &str = "parent_root";
const ERASURES: &str = "parent_erasures";

/// The version of another dataset that a dataset was cut from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The dataset and the version.
    pub origin: Upstream,
    /// Root of the version in hexadecimal, if it had one.
    pub root: Option<String>,
    /// Erasures of the parent when the dataset was cut from it.
    pub erasures: u64,
}

impl Parent {
    /// Returns the parent of what is cut from a snapshot; `newest` is the newest snapshot of the same dataset.
    ///
    /// # Errors
    /// When the first log entry cannot be read.
    pub fn from_snapshot(snapshot: &Snapshot, newest: &Snapshot) -> Result<Self> {
        Ok(Self {
            origin: Upstream::from_snapshot(snapshot)?,
            root: snapshot.entry().root.as_ref().map(|root| to_hex(root)),
            erasures: erasure_count(newest.entry()),
        })
    }

    /// Returns the parent that an entry names; `None` if it was not made by cutting a dataset.
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        let argument = |name: &str| entry.arguments.get(name).cloned();
        (entry.operation == Operation::Reshard).then_some(())?;
        Some(Self {
            origin: Upstream {
                place: argument(PLACE)?,
                id: TransactionId(argument(ID)?),
                version: Version(argument(VERSION)?.trim_start_matches('v').parse().ok()?),
                transaction: TransactionId(argument(TRANSACTION)?),
            },
            root: argument(ROOT),
            erasures: argument(ERASURES)?.parse().ok()?,
        })
    }

    /// Returns the arguments of the entry of what is cut from a snapshot.
    ///
    /// # Errors
    /// When the log of the parent cannot be read.
    pub fn to_arguments(&self, snapshot: &Snapshot) -> Result<BTreeMap<String, String>> {
        let pairs = [
            (PLACE, Some(self.origin.place.clone())),
            (ID, Some(self.origin.id.0.clone())),
            (VERSION, Some(self.origin.version.to_string())),
            (TRANSACTION, Some(self.origin.transaction.0.clone())),
            (ROOT, self.root.clone()),
            (ERASURES, Some(self.erasures.to_string())),
        ];
        let named = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        with_id_columns(named.collect(), snapshot)
    }
}

fn erasure_count(entry: &Entry) -> u64 {
    entry.erasures.as_ref().map_or(0, |erasures| erasures.count)
}

/// Commits the first version of a dataset that is cut from a snapshot. The transaction has the new shards and their
/// numbers.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another command has made the dataset, or somebody was erased
/// from the parent, since the run began; when a store fails.
pub fn commit_reshard(
    child: &Dataset,
    snapshot: &Snapshot,
    parent: &Parent,
    transaction: &Transaction<'_>,
) -> Result<Snapshot> {
    transaction.counts.reconcile()?;
    child.test_store()?;
    until_created(child, &transaction.id, Version(0), "committed", |attempt| {
        if child.newest_snapshot()?.is_some() {
            return Err(Error::conflict("another command has made the dataset meanwhile")
                .at_location(child.store().location().to_string())
                .with_hint("nothing was committed; name another --out"));
        }
        let newest = snapshot.dataset().open_newest()?;
        if erasure_count(newest.entry()) != parent.erasures {
            return Err(Error::conflict("somebody was erased from the parent meanwhile")
                .at_location(parent.origin.place.clone())
                .with_hint("nothing was committed; run the command again"));
        }
        let draft = Draft::new(child, transaction, 0, attempt);
        let mut entry = draft.build_entry(None)?;
        entry.erasures = inherited_erasures(&draft, snapshot, &newest)?;
        draft.publish_staged()?;
        check_added(child.store().as_ref(), transaction)?;
        Ok(Next::Entry(Box::new(entry)))
    })
}

/// Returns the erasures of the new entry: the ids that the parent blocks. Numbers of erased records mean nothing here,
/// and no object has to be read through a replacement.
fn inherited_erasures(draft: &Draft<'_>, snapshot: &Snapshot, newest: &Snapshot) -> Result<Option<Erasures>> {
    let Some(erasures) = &newest.entry().erasures else { return Ok(None) };
    // What was erased later from the newest version alone may be among the records.
    let stones = read_tombstones(snapshot.dataset(), newest.entry())?;
    let everywhere: Vec<u64> = stones.iter().filter(|stone| stone.all_versions).map(|s| s.version.0).collect();
    let applies = |version: u64| version <= snapshot.version().0 || everywhere.contains(&version);
    let mut lists = ListWriter::new(draft, "suppressed");
    for list in &erasures.suppressed {
        lists.write(&mut |add| {
            table::read_batches(snapshot.dataset().store(), list, &mut |batch| add(&of_first_version(batch, &applies)?))
        })?;
    }
    Ok(Some(Erasures {
        rewrote_before: Version(0),
        suppressed: lists.into_merged(u64::MAX)?,
        tombstones: Vec::new(),
        rewritten: Vec::new(),
        replaced: Vec::new(),
        unfinished: Vec::new(),
        ..erasures.clone()
    }))
}

/// Returns the rows whose versions apply, as rows of version 1.
fn of_first_version(batch: &RecordBatch, applies: &dyn Fn(u64) -> bool) -> Result<RecordBatch> {
    let versions = typed_column::<UInt64Array>(batch, "version")?;
    let kept: BooleanArray = versions.values().iter().map(|version| Some(applies(*version))).collect();
    let batch = filter_record_batch(batch, &kept)?;
    let first: ArrayRef = Arc::new(UInt64Array::from(vec![1; batch.num_rows()]));
    let columns = batch.schema_ref().fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| if field.name() == "version" { &first } else { column });
    Ok(RecordBatch::try_new(batch.schema(), columns.cloned().collect())?)
}
