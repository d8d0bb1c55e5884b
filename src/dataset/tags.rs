//! Tags: names that versions are given for good.
//!
//! A version with a name stays readable: `vacuum` deletes nothing that it needs, however old it is. Names stand in the
//! log, in an entry that changes nothing else, and every later entry repeats them.
//!
//! ```text
//! versions   1   2   3 | 4   5        vacuum retains 4 and 5, and 2 with all that it refers to
//!                ^ train-2026-11
//! ```

use std::collections::BTreeMap;

use super::{
    Dataset, Snapshot,
    commit::{ATTEMPTS, create, now_after},
    log::{Counts, Entry, FORMAT_VERSION},
};
use crate::{
    error::{Error, Result},
    id::{TransactionId, Version},
};

/// Gives a version a name. Returns the newest snapshot afterwards; a version that has the name already keeps it, and
/// nothing is committed.
///
/// # Errors
/// When another version has the name, or the version does not exist or cannot be read any more.
pub fn tag(dataset: &Dataset, name: &str, version: Version) -> Result<Snapshot> {
    let arguments = [("tag", name.to_owned()), ("version", version.to_string())];
    commit(dataset, "tag", &arguments, &|parent| {
        let place = || dataset.store().location().to_string();
        match parent.tags.get(name) {
            Some(known) if *known == version => return Ok(None),
            Some(known) => {
                return Err(Error::usage(format!("the tag `{name}` names {known}, not {version}"))
                    .at(place())
                    .hint(format!("choose another name, or give it up first with --untag {name}")));
            }
            None => {}
        }
        if !parent.can_read(version) {
            return Err(Error::usage(format!("{version} was vacuumed: a name does not bring it back"))
                .at(place())
                .hint(format!("the oldest version that can be read is {}", parent.readable_from)));
        }
        let mut tags = parent.tags.clone();
        tags.insert(name.to_owned(), version);
        Ok(Some(tags))
    })
}

/// Takes a name away. Returns the newest snapshot afterwards, and the version that had it.
///
/// # Errors
/// When there is no such name.
pub fn untag(dataset: &Dataset, name: &str) -> Result<(Snapshot, Version)> {
    let mut named = Version(0);
    let arguments = [("tag", name.to_owned())];
    let snapshot = commit(dataset, "untag", &arguments, &|parent| {
        let mut tags = parent.tags.clone();
        tags.remove(name).map(|_| Some(tags)).ok_or_else(|| unknown(dataset, &parent.tags, name))
    })?;
    // The parent of what was just committed has it still.
    if let Some(parent) = dataset.entry(Version(snapshot.version().0 - 1))?.tags.get(name) {
        named = *parent;
    }
    Ok((snapshot, named))
}

/// The error of a name that no version has.
pub(super) fn unknown(dataset: &Dataset, tags: &BTreeMap<String, Version>, name: &str) -> Error {
    let names: Vec<&str> = tags.keys().map(String::as_str).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Error::usage(format!("no version has the tag `{name}`"))
        .at(dataset.store().location().to_string())
        .hint(format!("tags: {known}"))
}

/// Names with their versions.
type Tags = BTreeMap<String, Version>;

/// Commits other tags on the newest version; `None` when there is nothing to change.
fn commit(
    dataset: &Dataset,
    operation: &str,
    arguments: &[(&str, String)],
    change: &dyn Fn(&Entry) -> Result<Option<Tags>>,
) -> Result<Snapshot> {
    dataset.prove_store()?;
    let transaction = TransactionId::fresh();
    for _ in 0..ATTEMPTS {
        let parent = dataset.open()?;
        let Some(tags) = change(parent.entry())? else { return Ok(parent) };
        let entry = Entry {
            // Releases that know nothing of tags would not repeat them, and delete what they keep.
            format: FORMAT_VERSION,
            version: parent.version().next(),
            transaction: transaction.clone(),
            committed_at: now_after(Some(parent.entry().committed_at)),
            operation: operation.to_owned(),
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
            arguments: arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            revisions: Vec::new(),
            counts: Counts::default(),
            tags,
            ..parent.entry().clone()
        };
        if create(dataset.store().as_ref(), &entry)? {
            return dataset.at(entry.version);
        }
    }
    Err(Error::conflict(format!("other runs committed {ATTEMPTS} times in between"))
        .at(dataset.store().location().to_string())
        .hint("nothing was committed; try again when there is less traffic"))
}
