//! The file beside shards with what is the same for all their records: `<tag>/_constants.arrow`, one row of Arrow IPC.
//!
//! Shards are only merged with others that have the same, so that it can lie beside what they become.

use std::collections::{BTreeSet, HashMap};

use arrow::{array::RecordBatch, ipc::writer::FileWriter};
use bytes::Bytes;
use rayon::prelude::*;

use super::types::copy_small;
use crate::{
    array::CONSTANTS_FILE,
    dataset::{folder_of, stage_small},
    error::{Error, Result},
    format::RecordReader,
    storage::{Staged, Store},
};

/// What is the same for all records of all sources, which are named for errors; `None` when there is nothing.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when two sources disagree, or one cannot be read.
pub fn of_sources<'a>(sources: impl Iterator<Item = (String, &'a dyn RecordReader)>) -> Result<Option<RecordBatch>> {
    let mut all: Option<(String, RecordBatch)> = None;
    for (name, reader) in sources {
        let Some(found) = reader.constants()? else { continue };
        let Some((first, known)) = &all else {
            all = Some((name, found));
            continue;
        };
        let differs = |column: &&std::sync::Arc<arrow::datatypes::Field>| {
            known.column_by_name(column.name()) != found.column_by_name(column.name())
        };
        // One that only one of them has is not the same for all, whichever comes first.
        let mut columns = [known, &found].into_iter().flat_map(|batch| batch.schema_ref().fields());
        if let Some(column) = columns.find(differs) {
            return Err(Error::input(
                "expected what has not the dimension of the records to be the same in all sources",
            )
            .at(name)
            .column(column.name())
            .hint(format!("another value is in {first}; convert such sources one by one into datasets of their own"))
            .hint("choose variables with --var"));
        }
    }
    Ok(all.map(|(_, batch)| batch))
}

/// What the file holds.
///
/// # Errors
/// When a value cannot be written.
pub fn encoded(constants: &RecordBatch) -> Result<Bytes> {
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, constants.schema_ref())?;
    writer.write(constants)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes.into())
}

/// Writes the file of a folder, under a name that nobody sees yet.
///
/// # Errors
/// When the store fails.
pub fn stage(store: &dyn Store, folder: &str, content: &[u8]) -> Result<Staged> {
    stage_small(store, &path(folder), content)
}

/// Stages the file of one folder for another; `None` when it has none.
///
/// # Errors
/// When the store fails.
pub fn copy(store: &dyn Store, from: &str, to: &str) -> Result<Option<Staged>> {
    copy_small(store, &path(from), &path(to))
}

fn path(folder: &str) -> String {
    if folder.is_empty() { CONSTANTS_FILE.to_owned() } else { format!("{folder}/{CONSTANTS_FILE}") }
}

/// Which shards have the same constants. Others must not come into one folder.
#[derive(Debug, Default)]
pub struct Kinds {
    /// By folder, numbers of what it has.
    folders: HashMap<String, usize>,
    /// What there is, each with the first folder that has it.
    kinds: Vec<(String, Option<Bytes>)>,
}

impl Kinds {
    /// Reads the files of the folders of these shards; what the first of them has is number 0.
    ///
    /// # Errors
    /// When the store fails.
    pub fn of_shards<'a>(store: &dyn Store, shards: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut seen = BTreeSet::new();
        let folders: Vec<&str> = shards.map(folder_of).filter(|folder| seen.insert(*folder)).collect();
        let found: Vec<Option<Bytes>> =
            folders.par_iter().map(|folder| store.get(&path(folder))).collect::<Result<_>>()?;
        let mut out = Self::default();
        for (folder, content) in folders.into_iter().zip(found) {
            let known = out.kinds.iter().position(|(_, known)| *known == content);
            let number = known.unwrap_or(out.kinds.len());
            if known.is_none() {
                out.kinds.push((folder.to_owned(), content));
            }
            out.folders.insert(folder.to_owned(), number);
        }
        Ok(out)
    }

    /// Whether one of them has some.
    pub fn any(&self) -> bool {
        self.kinds.iter().any(|(_, content)| content.is_some())
    }

    /// Number of what a shard has; 0 for one that was not asked about.
    pub fn of(&self, shard: &str) -> usize {
        self.folders.get(folder_of(shard)).copied().unwrap_or(0)
    }

    /// What all of these shards have.
    ///
    /// # Errors
    /// The folders of two shards that have not the same.
    pub fn common<'a>(&self, shards: impl Iterator<Item = &'a str>) -> Result<Option<Bytes>, (String, String)> {
        let mut first: Option<&str> = None;
        for shard in shards {
            match first {
                Some(first) if self.of(first) != self.of(shard) => {
                    return Err((folder_of(first).to_owned(), folder_of(shard).to_owned()));
                }
                _ => first = Some(shard),
            }
        }
        Ok(first.and_then(|first| self.kinds.get(self.of(first))?.1.clone()))
    }

    /// Stages what a shard has for another folder; `None` when it has none.
    ///
    /// # Errors
    /// When the store fails.
    pub fn stage(&self, store: &dyn Store, shard: &str, folder: &str) -> Result<Option<Staged>> {
        let content = self.kinds.get(self.of(shard)).and_then(|(_, content)| content.as_ref());
        content.map(|content| stage(store, folder, content)).transpose()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn shards_are_told_apart_by_what_lies_beside_them() {
        let store = RemoteStore::memory().unwrap();
        let put = |folder: &str, content: &[u8]| store.publish(vec![stage(&store, folder, content).unwrap()]).unwrap();
        put("a", b"one");
        put("b", b"one");
        put("c", b"two");
        let all = ["d/000000.tar", "a/000000.tar", "a/000001.tar", "c/000000.tar", "b/000000.tar"];
        let kinds = Kinds::of_shards(&store, all.into_iter()).unwrap();
        assert_eq!(all.map(|shard| kinds.of(shard)), [0, 1, 1, 2, 1]);
        assert!(kinds.any() && !Kinds::of_shards(&store, ["d/000000.tar"].into_iter()).unwrap().any());
        assert_eq!(kinds.common([all[1], all[4]].into_iter()), Ok(Some(Bytes::from_static(b"one"))));
        assert_eq!(kinds.common([all[1], all[3]].into_iter()), Err(("a".to_owned(), "c".to_owned())));
        assert_eq!(kinds.common([all[0], all[1]].into_iter()), Err(("d".to_owned(), "a".to_owned())));
        store.publish(vec![kinds.stage(&store, all[3], "e").unwrap().unwrap()]).unwrap();
        assert_eq!(store.get("e/_constants.arrow").unwrap().unwrap(), &b"two"[..]);
        assert!(kinds.stage(&store, all[0], "f").unwrap().is_none());
    }
}
