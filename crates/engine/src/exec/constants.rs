//! The file of constants beside shards, `<tag>/_constants.arrow`: array values that are the same for all records of a
//! folder, as one row of Arrow IPC.
//!
//! Only shards with equal constants are merged, so the file can be copied to the folder of the merged shards.

use std::{
    collections::{BTreeSet, HashMap},
    io::Cursor,
};

use arrow::{
    array::RecordBatch,
    datatypes::FieldRef,
    ipc::{reader::FileReader, writer::FileWriter},
};
use bytes::Bytes;

use super::types::{TypeKinds, copy_small};
use crate::{
    array::CONSTANTS_FILE,
    dataset::{ShardMeta, folder_of, is_shard_name, stage_small},
    error::{Error, Result},
    format::RecordReader,
    storage::{SMALL, Staged, Store, for_each_waiting},
};

/// Returns the constants of all sources, which are named for errors; `None` if there are none.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if two sources disagree or a source cannot be read.
pub fn of_sources<'a>(sources: impl Iterator<Item = (String, &'a dyn RecordReader)>) -> Result<Option<RecordBatch>> {
    let mut all: Option<(String, RecordBatch)> = None;
    for (name, reader) in sources {
        let Some(found) = reader.arrays().map(|arrays| arrays.read_constants()).transpose()?.flatten() else {
            continue;
        };
        let Some((first, known)) = &all else {
            all = Some((name, found));
            continue;
        };
        if let Some(column) = differing_constant(known, &found) {
            return Err(Error::input(
                "expected variables without the record dimension to have the same values in all sources, found a \
                 difference",
            )
            .at_location(name)
            .in_column(column)
            .with_hint(format!("{first} has another value; convert such sources into separate datasets"))
            .with_hint("or choose variables that agree with --read var"));
        }
    }
    Ok(all.map(|(_, batch)| batch))
}

/// Returns a constant that differs. One that only one of two sources has is not the same for all records.
fn differing_constant(known: &RecordBatch, found: &RecordBatch) -> Option<String> {
    let differs = |column: &&FieldRef| known.column_by_name(column.name()) != found.column_by_name(column.name());
    let mut columns = [known, found].into_iter().flat_map(|batch| batch.schema_ref().fields());
    columns.find(differs).map(|column| column.name().clone())
}

/// Returns the name of a constant that differs between two contents of the file.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if one of them is damaged.
pub fn difference_of(known: &Bytes, found: &Bytes) -> Result<Option<String>> {
    let decoded = |content: &Bytes| -> Result<RecordBatch> {
        let damaged = || Error::integrity("expected constants as a file of Arrow IPC, found something else");
        let mut reader =
            FileReader::try_new(Cursor::new(content.clone()), None).map_err(|e| damaged().with_cause(e))?;
        Ok(reader.next().ok_or_else(damaged)??)
    };
    if known == found {
        return Ok(None);
    }
    Ok(differing_constant(&decoded(known)?, &decoded(found)?))
}

/// Encodes the constants as the content of the file.
///
/// # Errors
/// Fails if a value cannot be written.
pub fn encode_constants(constants: &RecordBatch) -> Result<Bytes> {
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, constants.schema_ref())?;
    writer.write(constants)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes.into())
}

/// Stages the file of a folder.
///
/// # Errors
/// When the store fails.
pub fn stage_constants(store: &dyn Store, folder: &str, content: &[u8]) -> Result<Staged> {
    stage_small(store, &constants_path(folder), content)
}

/// Reads the file of a folder; `None` if there is no such file.
///
/// # Errors
/// When the store fails.
pub fn read(store: &dyn Store, folder: &str) -> Result<Option<Bytes>> {
    store.get(&constants_path(folder))
}

/// Stages a copy of one folder's file for another folder; `None` if there is no such file.
///
/// # Errors
/// When the store fails.
pub fn copy_constants(store: &dyn Store, from: &str, to: &str) -> Result<Option<Staged>> {
    copy_small(store, &constants_path(from), &constants_path(to))
}

fn constants_path(folder: &str) -> String {
    if folder.is_empty() { CONSTANTS_FILE.to_owned() } else { format!("{folder}/{CONSTANTS_FILE}") }
}

/// Groups folders of shards by equal constants. Shards with different constants must not be in one folder.
#[derive(Debug, Default)]
pub struct ConstantSets {
    /// Index into `sets` of each folder.
    folders: HashMap<String, usize>,
    /// Distinct contents, each with the first folder that has it; the content is `None` for folders without a file.
    sets: Vec<(String, Option<Bytes>)>,
    /// Kinds of types of the shards.
    types: TypeKinds,
}

impl ConstantSets {
    /// Reads the files of these shards' folders; the content of the first folder gets number 0.
    ///
    /// # Errors
    /// When the store fails.
    pub fn of_shards<'a>(store: &dyn Store, shards: impl Iterator<Item = &'a str>) -> Result<Self> {
        Self::of_folders(store, shards.map(|shard| (folder_of(shard), true)))
    }

    /// Like [`of_shards`](Self::of_shards), without a request for the folders of runs whose shards name no such file.
    ///
    /// # Errors
    /// When the store fails.
    pub fn of_live<'a>(store: &dyn Store, shards: impl Iterator<Item = &'a ShardMeta>) -> Result<Self> {
        let may_have = |shard: &ShardMeta| {
            let named = shard.of_folder().iter().any(|object| object.path.ends_with(CONSTANTS_FILE));
            named || !is_shard_name(&shard.path)
        };
        Self::of_folders(store, shards.map(|shard| (folder_of(&shard.path), may_have(shard))))
    }

    fn of_folders<'a>(store: &dyn Store, folders: impl Iterator<Item = (&'a str, bool)>) -> Result<Self> {
        let mut seen = BTreeSet::new();
        let folders: Vec<(&str, bool)> = folders.filter(|(folder, _)| seen.insert(*folder)).collect();
        let read =
            |(folder, may_have): &(&str, bool)| if *may_have { store.get(&constants_path(folder)) } else { Ok(None) };
        let found = for_each_waiting(store, SMALL, &folders, read)?;
        let mut out = Self::default();
        for ((folder, _), content) in folders.into_iter().zip(found) {
            let known = out.sets.iter().position(|(_, known)| *known == content);
            let number = known.unwrap_or(out.sets.len());
            if known.is_none() {
                out.sets.push((folder.to_owned(), content));
            }
            out.folders.insert(folder.to_owned(), number);
        }
        Ok(out)
    }

    /// Returns whether any folder has constants.
    pub fn has_constants(&self) -> bool {
        self.sets.iter().any(|(_, content)| content.is_some())
    }

    /// Returns the number of a shard's content; 0 for a shard whose folder was not read.
    pub fn content_number(&self, shard: &str) -> usize {
        self.folders.get(folder_of(shard)).copied().unwrap_or(0)
    }

    /// Also separates shards by their types.
    #[must_use]
    pub fn with_types(self, types: TypeKinds) -> Self {
        Self { types, ..self }
    }

    /// Returns the number of the kind of a shard: only shards with equal constants and types that go together have one.
    pub fn kind_number(&self, shard: &str) -> usize {
        self.types.kind_of(shard) * self.sets.len().max(1) + self.content_number(shard)
    }

    /// Whether a shard has a column that would get a wider type if it were written anew.
    pub fn is_outdated(&self, shard: &str) -> bool {
        self.types.is_outdated(shard)
    }

    /// Returns the constants that all of these shards have in common.
    ///
    /// # Errors
    /// Returns the folders of two shards whose constants differ.
    pub fn common_constants<'a>(
        &self,
        shards: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Bytes>, (String, String)> {
        let mut first: Option<&str> = None;
        for shard in shards {
            match first {
                Some(first) if self.content_number(first) != self.content_number(shard) => {
                    return Err((folder_of(first).to_owned(), folder_of(shard).to_owned()));
                }
                _ => first = Some(shard),
            }
        }
        Ok(first.and_then(|first| self.sets.get(self.content_number(first))?.1.clone()))
    }

    /// Stages a shard's constants for another folder; `None` if it has none.
    ///
    /// # Errors
    /// When the store fails.
    pub fn stage_for_folder(&self, store: &dyn Store, shard: &str, folder: &str) -> Result<Option<Staged>> {
        let content = self.sets.get(self.content_number(shard)).and_then(|(_, content)| content.as_ref());
        content.map(|content| stage_constants(store, folder, content)).transpose()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn shards_are_grouped_by_their_constants() {
        let store: &dyn Store = &RemoteStore::in_memory().unwrap();
        let put = |folder: &str, content: &[u8]| {
            store.publish_staged(vec![stage_constants(store, folder, content).unwrap()]).unwrap()
        };
        put("a", b"one");
        put("b", b"one");
        put("c", b"two");
        let all = ["d/000000.tar", "a/000000.tar", "a/000001.tar", "c/000000.tar", "b/000000.tar"];
        let sets = ConstantSets::of_shards(store, all.into_iter()).unwrap();
        assert_eq!(all.map(|shard| sets.content_number(shard)), [0, 1, 1, 2, 1]);
        assert!(
            sets.has_constants()
                && !ConstantSets::of_shards(store, ["d/000000.tar"].into_iter()).unwrap().has_constants()
        );
        assert_eq!(sets.common_constants([all[1], all[4]].into_iter()), Ok(Some(Bytes::from_static(b"one"))));
        assert_eq!(sets.common_constants([all[1], all[3]].into_iter()), Err(("a".to_owned(), "c".to_owned())));
        assert_eq!(sets.common_constants([all[0], all[1]].into_iter()), Err(("d".to_owned(), "a".to_owned())));
        store.publish_staged(vec![sets.stage_for_folder(store, all[3], "e").unwrap().unwrap()]).unwrap();
        assert_eq!(store.get("e/_constants.arrow").unwrap().unwrap(), &b"two"[..]);
        assert!(sets.stage_for_folder(store, all[0], "f").unwrap().is_none());
    }
}
