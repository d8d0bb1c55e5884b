//! Tags: permanent names of versions.
//!
//! A tagged version stays readable: `vacuum` deletes nothing that it needs, whatever its age. A tag is stored in a log
//! entry that changes nothing else, and every later entry repeats it.
//!
//! ```text
//! versions   1   2   3 | 4   5        vacuum retains 4 and 5, and 2 with everything that it refers to
//!                ^ train-2026-11
//! ```

use std::collections::BTreeMap;

use crate::{
    dataset::log::{
        commit::{Next, entry_after, until_created},
        entry::Entry,
        operation::Operation,
        snapshot::{Dataset, Snapshot},
    },
    error::{Error, Result},
    id::{TransactionId, Version},
};

/// Tags a version. Returns the newest snapshot afterwards; nothing is committed if the version already has this tag.
///
/// # Errors
/// If another version has the tag, or the version does not exist or can no longer be read.
pub fn add_tag(dataset: &Dataset, name: &str, version: Version) -> Result<Snapshot> {
    let arguments = [("tag", name.to_owned()), ("version", version.to_string())];
    commit_tags(dataset, Operation::Tag, &arguments, &mut |parent| {
        let place = || dataset.store().location().to_string();
        match parent.tags().get(name) {
            Some(known) if *known == version => return Ok(None),
            Some(known) => {
                return Err(Error::usage(format!("the tag `{name}` names {known}, not {version}"))
                    .at_location(place())
                    .with_hint(format!("choose another name, or give it up first with --untag {name}")));
            }
            None => {}
        }
        if !parent.can_read(version) {
            return Err(Error::usage(format!("{version} was vacuumed: a tag does not restore it"))
                .at_location(place())
                .with_hint(format!("the oldest version that can be read is {}", parent.readable_from())));
        }
        let mut tags = parent.tags().clone();
        tags.insert(name.to_owned(), version);
        Ok(Some(tags))
    })
}

/// Removes a tag. Returns the newest snapshot afterwards, and the version that had it.
///
/// # Errors
/// If there is no such tag.
pub fn remove_tag(dataset: &Dataset, name: &str) -> Result<(Snapshot, Version)> {
    let mut named = Version(0);
    let arguments = [("tag", name.to_owned())];
    let snapshot = commit_tags(dataset, Operation::Untag, &arguments, &mut |parent| {
        let mut tags = parent.tags().clone();
        named = tags.remove(name).ok_or_else(|| unknown_tag_error(dataset, parent.tags(), name))?;
        Ok(Some(tags))
    })?;
    Ok((snapshot, named))
}

/// Returns the error for an unknown tag.
pub(in crate::dataset) fn unknown_tag_error(dataset: &Dataset, tags: &BTreeMap<String, Version>, name: &str) -> Error {
    let names: Vec<&str> = tags.keys().map(String::as_str).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Error::usage(format!("no version has the tag `{name}`"))
        .at_location(dataset.store().location().to_string())
        .with_hint(format!("tags: {known}"))
}

/// Tags with their versions.
type Tags = BTreeMap<String, Version>;

/// Commits changed tags on the newest version; `None` if there is nothing to change.
fn commit_tags(
    dataset: &Dataset,
    operation: Operation,
    arguments: &[(&str, String)],
    change: &mut dyn FnMut(&Snapshot) -> Result<Option<Tags>>,
) -> Result<Snapshot> {
    dataset.test_store()?;
    let transaction = TransactionId::fresh();
    let arguments: BTreeMap<String, String> =
        arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let newest = dataset.open_newest()?.version();
    until_created(dataset, &transaction, newest, "committed", |_| {
        let parent = dataset.open_newest()?;
        let Some(tags) = change(&parent)? else { return Ok(Next::Nothing(Box::new(parent))) };
        Ok(Next::Entry(Box::new(Entry { tags, ..entry_after(&parent, &transaction, operation, arguments.clone())? })))
    })
}
