//! The file beside shards that states the types of their rows if their format does not: `<tag>/schema.json`.
//!
//! With this file, rows in TFRecord, and rows in tar as JSON, are read back with their types.

use std::collections::BTreeSet;

use arrow::datatypes::Fields;
use bytes::Bytes;

use crate::{
    dataset::stage_small,
    error::{Error, Result},
    schema,
    storage::{Staged, Store},
};

/// Stages the file for the shards of a folder.
///
/// # Errors
/// Fails if the store fails.
pub fn stage(store: &dyn Store, folder: &str, fields: &Fields) -> Result<Staged> {
    stage_small(store, &path(folder), schema::file::print(&schema::settle(fields)).as_bytes())
}

/// Reads the file of a folder; `None` if there is no such file.
///
/// # Errors
/// Fails if the store fails.
pub fn read(store: &dyn Store, folder: &str) -> Result<Option<Bytes>> {
    store.get(&path(folder))
}

/// Stages a file that was read from another folder.
///
/// # Errors
/// Fails if the store fails.
pub fn stage_as_read(store: &dyn Store, folder: &str, content: &[u8]) -> Result<Staged> {
    stage_small(store, &path(folder), content)
}

/// Stages a copy of one folder's file for another folder; `None` if there is no such file.
///
/// # Errors
/// Fails if the store fails.
pub fn copy(store: &dyn Store, from: &str, to: &str) -> Result<Option<Staged>> {
    copy_small(store, &path(from), &path(to))
}

/// Stages a copy of a small object; `None` if it does not exist.
pub(super) fn copy_small(store: &dyn Store, from: &str, to: &str) -> Result<Option<Staged>> {
    let Some(bytes) = store.get(from)? else { return Ok(None) };
    stage_small(store, to, &bytes).map(Some)
}

/// Returns the united columns of shards in several folders; `None` if a folder has no file or a column has different
/// types in them, because rows of one folder would be read with the types of another.
///
/// # Errors
/// Fails if the store fails or a file is damaged.
pub fn of_shards<'a>(store: &dyn Store, shards: impl Iterator<Item = &'a str>) -> Result<Option<Fields>> {
    let folders: BTreeSet<&str> = shards.map(|path| path.rsplit_once('/').map_or("", |(folder, _)| folder)).collect();
    let mut all: Option<Fields> = None;
    for folder in folders {
        let Some(bytes) = store.get(&path(folder))? else { return Ok(None) };
        let text = std::str::from_utf8(&bytes)
            .map_err(|e| Error::integrity("expected a schema in UTF-8").at(path(folder)).cause(e))?;
        let fields = schema::file::parse(text).map_err(|e| e.at(path(folder)))?;
        let united = match &all {
            None => fields,
            Some(known) => {
                let differs = |f: &&std::sync::Arc<arrow::datatypes::Field>| {
                    known.find(f.name()).is_some_and(|(_, other)| other != *f)
                };
                if fields.iter().any(|f| differs(&f)) {
                    return Ok(None);
                }
                schema::unite_lists(known, &fields)
            }
        };
        all = Some(united);
    }
    Ok(all)
}

fn path(folder: &str) -> String {
    if folder.is_empty() { schema::file::NAME.to_owned() } else { format!("{folder}/{}", schema::file::NAME) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn types_of_several_folders_are_returned_only_if_they_agree() {
        let store = RemoteStore::memory().unwrap();
        let fields = |columns: &[(&str, DataType)]| -> Fields {
            columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect()
        };
        let put = |folder: &str, fields: &Fields| store.publish(vec![stage(&store, folder, fields).unwrap()]).unwrap();
        put("a", &fields(&[("x", DataType::Int64)]));
        put("b", &fields(&[("x", DataType::Int64), ("y", DataType::Date32)]));
        put("c", &fields(&[("x", DataType::Utf8)]));
        let of = |shards: &[&str]| of_shards(&store, shards.iter().copied()).unwrap();
        let both = fields(&[("x", DataType::Int64), ("y", DataType::Date32)]);
        assert_eq!(of(&["a/000000.tfrecord", "b/000000.tfrecord", "a/000001.tfrecord"]), Some(both));
        assert_eq!(of(&["a/000000.tfrecord", "c/000000.tfrecord"]), None);
        assert_eq!(of(&["a/000000.tfrecord", "d/000000.tfrecord"]), None);
    }
}
