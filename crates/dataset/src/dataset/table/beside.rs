//! Objects that belong to one shard: its sidecar, tables and indexes, and the files that describe its folder, each with
//! its seal.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    paths::{self, folder_prefix, index_stem, numbers_beside, parts_beside, shard_stem},
    sealed::Sealed,
};
use crate::{
    array::CONSTANTS_FILE,
    codec::seal::Seal,
    error::{Error, Result},
    schema,
};

/// Objects beside a shard that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Beside {
    /// Path of the sidecar.
    pub at: String,
    sidecar: Seal,
    /// Seals of the other objects, by name.
    seals: Seals,
}

/// The form in lists: where the sidecar is, and the seals of all objects, by name: `sidecar`, `parts`, `records`, the
/// extension of an index (`.idx`, `.tar.idx`), or the file name of an object that describes the folder (`schema.json`).
#[derive(Serialize, Deserialize)]
struct Stored {
    at: String,
    seals: BTreeMap<String, Seal>,
}

impl TryFrom<Stored> for Beside {
    type Error = &'static str;

    fn try_from(mut stored: Stored) -> Result<Self, Self::Error> {
        let sidecar = stored.seals.remove(SIDECAR).ok_or("expected the seal of a sidecar, found none")?;
        Ok(Self { at: stored.at, sidecar, seals: stored.seals.into() })
    }
}

impl From<Beside> for Stored {
    fn from(beside: Beside) -> Self {
        let mut seals: BTreeMap<String, Seal> = beside.seals.into();
        seals.insert(SIDECAR.to_owned(), beside.sidecar);
        Self { at: beside.at, seals }
    }
}

/// A few seals, sorted by name. A slice rather than a map: a dataset may have a hundred thousand shards, and a map
/// would cost a kilobyte for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seals(Box<[(Box<str>, Seal)]>);

impl Seals {
    fn get(&self, name: &str) -> Option<&Seal> {
        self.iter().find_map(|(known, seal)| (known == name).then_some(seal))
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &Seal)> {
        self.0.iter().map(|(name, seal)| (&**name, seal))
    }
}

impl From<BTreeMap<String, Seal>> for Seals {
    fn from(seals: BTreeMap<String, Seal>) -> Self {
        Self(seals.into_iter().map(|(name, seal)| (name.into_boxed_str(), seal)).collect())
    }
}

impl From<Seals> for BTreeMap<String, Seal> {
    fn from(seals: Seals) -> Self {
        seals.0.into_iter().map(|(name, seal)| (name.into_string(), seal)).collect()
    }
}

const SIDECAR: &str = "sidecar";

const PARTS: &str = "parts";

const NUMBERS: &str = "records";

impl Beside {
    /// Returns what is beside a shard with this sidecar and nothing else.
    pub fn new(sidecar: Sealed) -> Self {
        Self { at: sidecar.path, sidecar: sidecar.seal, seals: Seals::default() }
    }

    /// Returns the placeholder where there is no shard; nothing has its seal.
    pub fn placeholder() -> Arc<Self> {
        Arc::new(Self::new(Sealed::new("", Seal::for_bytes(&[]))))
    }

    /// Returns the JSON text that is stored in a list.
    pub(in crate::dataset) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::internal("encoding the list of objects beside a shard failed").with_cause(e))
    }

    /// Parses the text made by [`to_json`](Self::to_json).
    pub(in crate::dataset) fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|e| Error::integrity("expected a list of objects beside a shard").with_cause(e))
    }

    /// Returns the part that runs of the shard need.
    pub(in crate::dataset) fn of_runs(&self) -> Self {
        let of_runs = self.seals.0.iter().filter(|(name, _)| &**name == NUMBERS);
        Self { at: self.at.clone(), sidecar: self.sidecar, seals: Seals(of_runs.cloned().collect()) }
    }
}

impl Beside {
    /// Returns the same with the seals of objects staged beside a shard, by path.
    #[must_use]
    pub(in crate::dataset) fn with_staged(&self, shard: &str, seals: &BTreeMap<&str, Seal>) -> Self {
        let mut known: BTreeMap<String, Seal> = self.seals.clone().into();
        let mut note = |name: &str, path: &str| {
            if let Some(seal) = seals.get(path) {
                known.insert(name.to_owned(), *seal);
            }
        };
        note(PARTS, &parts_beside(&self.at));
        note(NUMBERS, &numbers_beside(&self.at));
        let (folder, stem) = (folder_prefix(shard), shard_stem(shard));
        for name in paths::of_folder() {
            note(name, &format!("{folder}{name}"));
        }
        for (path, _) in seals.range(stem..).take_while(|(path, _)| path.starts_with(stem)) {
            if index_stem(path) == Some(stem) {
                note(&path[stem.len()..], path);
            }
        }
        let sidecar = seals.get(self.at.as_str()).copied().unwrap_or(self.sidecar);
        Self { at: self.at.clone(), sidecar, seals: known.into() }
    }

    /// Returns the sidecar.
    pub(in crate::dataset) fn sidecar(&self) -> Sealed {
        Sealed::new(self.at.as_str(), self.sidecar)
    }

    /// Returns the table of record numbers of a sorted shard.
    pub(in crate::dataset) fn numbers_table(&self) -> Result<Sealed> {
        self.sealed_table(numbers_beside(&self.at), NUMBERS)
    }

    /// Returns the table of tar members.
    pub(in crate::dataset) fn parts_table(&self) -> Result<Sealed> {
        self.sealed_table(parts_beside(&self.at), PARTS)
    }

    fn sealed_table(&self, path: String, name: &str) -> Result<Sealed> {
        match self.seals.get(name) {
            Some(seal) => Ok(Sealed::new(path, *seal)),
            None => {
                Err(Error::integrity("expected the seal of an object beside a shard, found none").at_location(path))
            }
        }
    }

    /// Returns the paths that a sidecar and the tables beside it have, whether or not the tables exist.
    pub(in crate::dataset) fn sidecar_paths(&self) -> [String; 3] {
        [self.at.clone(), parts_beside(&self.at), numbers_beside(&self.at)]
    }
}

/// Returns all sealed objects that belong to a shard, with their paths.
pub(in crate::dataset) fn all_of(shard: &str, beside: &Beside) -> Vec<Sealed> {
    let (folder, stem) = (folder_prefix(shard), shard_stem(shard));
    let path = |name: &str| match name {
        PARTS => parts_beside(&beside.at),
        NUMBERS => numbers_beside(&beside.at),
        name if paths::of_folder().any(|known| known == name) => format!("{folder}{name}"),
        ending => format!("{stem}{ending}"),
    };
    let others = beside.seals.iter().map(|(name, seal)| Sealed::new(path(name), *seal));
    std::iter::once(beside.sidecar()).chain(others).collect()
}

/// Returns the sealed objects that describe the folder of a shard and so change the meaning of its data.
pub(in crate::dataset) fn of_folder(shard: &str, beside: &Beside) -> Vec<Sealed> {
    let names = [schema::file::NAME, CONSTANTS_FILE].into_iter();
    let object = |name: &str| Some(Sealed::new(format!("{}{name}", folder_prefix(shard)), *beside.seals.get(name)?));
    names.filter_map(object).collect()
}
