//! The file beside shards that states the types of their rows if their format does not: `<tag>/schema.json`.
//!
//! With this file, rows in TFRecord, and rows in tar as JSON, are read back with their types.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use bytes::Bytes;
use rayon::prelude::*;

use super::rewrite;
use crate::{
    dataset::{Settings, ShardMeta, Snapshot, stage_small},
    error::{Error, Result},
    format::parquet::ParquetFile,
    schema::{self, bound, file::print_type},
    storage::{Object, Staged, Store},
};

/// Stages the file for the shards of a folder.
///
/// # Errors
/// Fails if the store fails.
pub fn stage_types(store: &dyn Store, folder: &str, fields: &Fields) -> Result<Staged> {
    stage_small(store, &types_path(folder), schema::file::print_file(&schema::settle_fields(fields)).as_bytes())
}

/// Reads the file of a folder; `None` if there is no such file.
///
/// # Errors
/// Fails if the store fails.
pub fn read(store: &dyn Store, folder: &str) -> Result<Option<Bytes>> {
    store.get(&types_path(folder))
}

/// Stages a file that was read from another folder.
///
/// # Errors
/// Fails if the store fails.
pub fn stage_as_read(store: &dyn Store, folder: &str, content: &[u8]) -> Result<Staged> {
    stage_small(store, &types_path(folder), content)
}

/// Stages a copy of one folder's file for another folder; `None` if there is no such file.
///
/// # Errors
/// Fails if the store fails.
pub fn copy_types(store: &dyn Store, from: &str, to: &str) -> Result<Option<Staged>> {
    copy_small(store, &types_path(from), &types_path(to))
}

/// Stages a copy of a small object; `None` if it does not exist.
pub(super) fn copy_small(store: &dyn Store, from: &str, to: &str) -> Result<Option<Staged>> {
    let Some(bytes) = store.get(from)? else { return Ok(None) };
    stage_small(store, to, &bytes).map(Some)
}

/// Returns the united columns of shards in several folders; `None` if a folder has no file. A column that has different
/// types in them gets that of the dataset, or the united one: only shards whose types agree otherwise are merged.
///
/// # Errors
/// Fails if the store fails or a file is damaged.
pub fn of_shards<'a>(
    store: &dyn Store,
    shards: impl Iterator<Item = &'a str>,
    types: Option<&Fields>,
) -> Result<Option<Fields>> {
    let of_dataset =
        |field: &Field| types.and_then(|types| types.find(field.name())).map(|(_, field)| Arc::clone(field));
    let folders: BTreeSet<&str> = shards.map(|path| path.rsplit_once('/').map_or("", |(folder, _)| folder)).collect();
    let mut all: Option<Fields> = None;
    for folder in folders {
        let Some(bytes) = store.get(&types_path(folder))? else { return Ok(None) };
        let text = std::str::from_utf8(&bytes).map_err(|e| {
            Error::integrity("expected a schema in UTF-8").at_location(types_path(folder)).with_cause(e)
        })?;
        let fields = schema::file::parse(text).map_err(|e| e.at_location(types_path(folder)))?;
        let united = match &all {
            None => fields,
            Some(known) => {
                let one = |field: &FieldRef| match fields.find(field.name()) {
                    Some((_, other)) if other != field => {
                        of_dataset(field).unwrap_or_else(|| Arc::new(schema::unite_fields(field, other)))
                    }
                    _ => Arc::clone(field),
                };
                let new = fields.iter().filter(|field| known.find(field.name()).is_none());
                known.iter().map(one).chain(new.cloned()).collect()
            }
        };
        all = Some(united);
    }
    Ok(all)
}

/// Groups shards by types: those of one kind have a common type for each column that changes no value, and only they
/// are merged.
#[derive(Debug, Clone, Default)]
pub struct TypeKinds {
    /// Numbers of the kinds of shards that are not of the first one.
    kinds: HashMap<String, usize>,
    /// Shards with a column that the dataset has with a wider type now.
    outdated: HashSet<String>,
}

impl TypeKinds {
    /// Reads the types of shards, if the dataset may have several for a column.
    ///
    /// # Errors
    /// When the store fails.
    pub fn of_shards(snapshot: &Snapshot, shards: &[&ShardMeta]) -> Result<Self> {
        let Settings { types, retyped, shard_format, .. } = &snapshot.entry().settings;
        let is_parquet = shard_format.is_columnar();
        if types.as_ref().map_or(!is_parquet, |_| retyped.is_empty()) {
            return Ok(Self::default());
        }
        let is_unsure = |field: &&FieldRef| types.is_none() || retyped.contains(field.name());
        let read = |shard: &&ShardMeta| -> Result<(Fields, Fields)> {
            let dataset = snapshot.dataset();
            if is_parquet {
                let file = rewrite::open_parquet_shard(dataset, shard)?;
                return Ok((file.schema().fields().clone(), exact_in_floats(&file)));
            }
            let stored = of_shards(dataset.store().as_ref(), std::iter::once(shard.path.as_str()), None)?;
            let stored = stored.unwrap_or_default();
            let open = types.as_ref().map_or_else(|| stored.clone(), |types| bound::open_text_fields(&stored, types));
            Ok((stored, open))
        };
        let all: Vec<(Fields, Fields)> = shards.par_iter().map(read).collect::<Result<_>>()?;
        let mut out = Self::default();
        let mut known: Vec<Fields> = Vec::new();
        for (shard, (stored, open)) in shards.iter().zip(all) {
            let open: Fields = open.iter().filter(is_unsure).cloned().collect();
            let fits = |field: &FieldRef, of: &Fields| {
                of.find(field.name()).is_none_or(|(_, other)| bound::can_merge(field, other))
            };
            let kind = known.iter().position(|of| open.iter().all(|field| fits(field, of)));
            match kind {
                Some(kind) => known[kind] = schema::unite_lists(&known[kind], &open),
                None => known.push(open.clone()),
            }
            let kind = kind.unwrap_or(known.len() - 1);
            if kind > 0 {
                out.kinds.insert(shard.path.clone(), kind);
            }
            let is_outdated = |field: &FieldRef| {
                let now = types.as_ref().and_then(|types| types.find(field.name())).map(|(_, now)| now);
                let differs = |now: &FieldRef| {
                    let settled = schema::settle_fields(&[Arc::clone(now)].into_iter().collect());
                    let stored = stored.find(field.name()).map(|(_, field)| print_type(field));
                    stored != settled.first().map(|field| print_type(field)) && bound::can_merge(field, now)
                };
                now.is_some_and(differs)
            };
            if is_parquet && open.iter().any(is_outdated) {
                out.outdated.insert(shard.path.clone());
            }
        }
        Ok(out)
    }

    /// Returns the number of the kind of a shard.
    pub fn kind_of(&self, shard: &str) -> usize {
        self.kinds.get(shard).copied().unwrap_or(0)
    }

    /// Whether a shard has a column that would get a wider type if it were written anew.
    pub fn is_outdated(&self, shard: &str) -> bool {
        self.outdated.contains(shard)
    }

    /// Whether there are several kinds.
    pub fn are_several(&self) -> bool {
        !self.kinds.is_empty()
    }
}

/// Returns the types that rewritten shards get for columns whose type has changed.
pub fn retyped_fields(settings: &Settings) -> Fields {
    let types = settings.types.as_ref().filter(|_| !settings.retyped.is_empty());
    let retyped = |field: &&FieldRef| settings.retyped.contains(field.name());
    schema::settle_fields(&types.into_iter().flatten().filter(retyped).cloned().collect())
}

/// Returns the columns of a shard, in which texts without values have no type, and integers that every float holds
/// exactly the type of such integers.
fn exact_in_floats(file: &ParquetFile<Object>) -> Fields {
    let exact = |field: &FieldRef| match field.data_type() {
        DataType::Int64 if file.is_exact_in_floats(field.name()) => {
            Arc::new(Field::new(field.name(), DataType::Int32, true))
        }
        _ => Arc::clone(field),
    };
    file.open_fields().iter().map(exact).collect()
}

fn types_path(folder: &str) -> String {
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
        let store: &dyn Store = &RemoteStore::in_memory().unwrap();
        let fields = |columns: &[(&str, DataType)]| -> Fields {
            columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect()
        };
        let put = |folder: &str, fields: &Fields| {
            store.publish_staged(vec![stage_types(store, folder, fields).unwrap()]).unwrap()
        };
        put("a", &fields(&[("x", DataType::Int64)]));
        put("b", &fields(&[("x", DataType::Int64), ("y", DataType::Date32)]));
        put("c", &fields(&[("x", DataType::Utf8)]));
        let of = |shards: &[&str]| of_shards(store, shards.iter().copied(), None).unwrap();
        let both = fields(&[("x", DataType::Int64), ("y", DataType::Date32)]);
        assert_eq!(of(&["a/000000.tfrecord", "b/000000.tfrecord", "a/000001.tfrecord"]), Some(both));
        let dataset = fields(&[("x", DataType::Int64)]);
        let of_dataset = of_shards(store, ["a/0.tar", "c/0.tar"].into_iter(), Some(&dataset)).unwrap();
        assert_eq!(of_dataset, Some(dataset));
        assert_eq!(of(&["a/000000.tfrecord", "c/000000.tfrecord"]), Some(fields(&[("x", DataType::Utf8)])));
        assert_eq!(of(&["a/000000.tfrecord", "d/000000.tfrecord"]), None);
    }
}
