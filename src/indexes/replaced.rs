//! Objects that an index replaces with each version: how they differ from what they should be, and whose they are.

use super::kind::Difference;
use crate::{
    dataset::{Dataset, Snapshot},
    error::{Error, Result},
    format::index::IndexKind,
    storage::Store,
};

/// Compares objects with the bytes that they should have.
pub(super) fn differences(store: &dyn Store, expected: &[(&str, &[u8])]) -> Result<Vec<Difference>> {
    let mut out = Vec::new();
    for (path, bytes) in expected {
        match store.get(path)? {
            None => out.push(missing(path)),
            Some(found) if found != *bytes => out.push((
                (*path).to_owned(),
                "the index belongs to another version; `shardify compact` or `convert` rewrites it".to_owned(),
            )),
            Some(_) => {}
        }
    }
    Ok(out)
}

/// Returns the difference of an object that does not exist.
pub(super) fn missing(path: &str) -> Difference {
    let what = "expected an index of the live shards, found none; `shardify compact` or `convert` rewrites it";
    (path.to_owned(), what.to_owned())
}

/// Checks that a new dataset would replace no file of somebody else.
pub(super) fn refuse_to_replace(
    dataset: &Dataset,
    snapshot: Option<&Snapshot>,
    kind: IndexKind,
    paths: &[&str],
) -> Result<()> {
    if snapshot.is_some() {
        return Ok(());
    }
    let store = dataset.store();
    for path in paths {
        // Another run may have made the dataset meanwhile.
        if store.head(path)?.is_some() && dataset.latest()?.is_none() {
            return Err(Error::usage(format!("expected no {path}, which the index {kind} would replace, found one"))
                .at(store.location().join(path).to_string())
                .hint(format!("move it away, name another dataset with --out, or leave {kind} out of --index")));
        }
    }
    Ok(())
}
