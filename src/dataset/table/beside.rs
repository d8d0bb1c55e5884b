//! Objects that belong to one shard: its sidecar, tables and indexes, and the files that describe its folder, each with
//! its seal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    paths::{OF_FOLDER, folder_prefix, index_stem, new_sidecar_path, numbers_beside, parts_beside, sidecar_path, stem},
    sealed::Sealed,
};
use crate::{
    array::CONSTANTS_FILE,
    codec::seal::Seal,
    error::{Error, Result},
    schema,
};

/// Objects beside a shard that belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// Path of the sidecar; absent if it follows from the shard's path, as in older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Seals of the objects, by name: `sidecar`, `parts`, `records`, the extension of an index (`.idx`, `.tar.idx`), or
    /// the file name of an object that describes the folder (`schema.json`).
    #[serde(default, skip_serializing_if = "Seals::is_empty")]
    pub seals: Seals,
}

/// A few seals, sorted by name. A slice rather than a map: a dataset may have a hundred thousand shards, and a map
/// would cost a kilobyte for each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Seal>", into = "BTreeMap<String, Seal>")]
pub struct Seals(Box<[(Box<str>, Seal)]>);

impl Seals {
    /// Whether there are no seals.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

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
    /// Returns what is known of a shard that is just being written: where its sidecar will be.
    pub fn at_new(shard: &str) -> Self {
        Self { at: Some(new_sidecar_path(shard)), seals: Seals::default() }
    }

    /// Returns the JSON text that is stored in a list.
    pub(in crate::dataset) fn encode(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::internal("encoding the list of objects beside a shard failed").cause(e))
    }

    /// Parses the text made by [`encode`](Self::encode).
    pub(in crate::dataset) fn decode(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|e| Error::integrity("expected a list of objects beside a shard").cause(e))
    }

    /// Returns the part that runs of the shard need.
    pub(in crate::dataset) fn of_runs(&self) -> Self {
        let of_runs = self.seals.0.iter().filter(|(name, _)| [SIDECAR, NUMBERS].contains(&&**name));
        Self { at: self.at.clone(), seals: Seals(of_runs.cloned().collect()) }
    }
}

impl Beside {
    /// Adds the seals of objects staged beside a shard, by path, to those already known. Returns `None` if there are
    /// none.
    pub(in crate::dataset) fn with_staged(
        shard: &str,
        before: Option<&Self>,
        seals: &BTreeMap<&str, Seal>,
    ) -> Option<Self> {
        let at = before.and_then(|before| before.at.clone());
        let mut known: BTreeMap<String, Seal> = before.map(|before| before.seals.clone()).unwrap_or_default().into();
        let mut note = |name: &str, path: &str| {
            if let Some(seal) = seals.get(path) {
                known.insert(name.to_owned(), *seal);
            }
        };
        for name in [SIDECAR, PARTS, NUMBERS] {
            note(name, &beside_sidecar(shard, before, name).path);
        }
        let (folder, stem) = (folder_prefix(shard), stem(shard));
        for name in OF_FOLDER {
            note(name, &format!("{folder}{name}"));
        }
        for (path, _) in seals.range(stem..).take_while(|(path, _)| path.starts_with(stem)) {
            if index_stem(path) == Some(stem) {
                note(&path[stem.len()..], path);
            }
        }
        (!known.is_empty() || at.is_some()).then(|| Self { at, seals: known.into() })
    }
}

/// Returns the sidecar of a shard.
pub(in crate::dataset) fn sidecar_of(shard: &str, beside: Option<&Beside>) -> Sealed {
    beside_sidecar(shard, beside, SIDECAR)
}

/// Returns the table of record numbers of a shard.
pub(in crate::dataset) fn numbers_of(shard: &str, beside: Option<&Beside>) -> Sealed {
    beside_sidecar(shard, beside, NUMBERS)
}

/// Returns the table of tar members of a shard.
pub(in crate::dataset) fn parts_of(shard: &str, beside: Option<&Beside>) -> Sealed {
    beside_sidecar(shard, beside, PARTS)
}

fn beside_sidecar(shard: &str, beside: Option<&Beside>, name: &str) -> Sealed {
    let sidecar = beside.and_then(|beside| beside.at.clone()).unwrap_or_else(|| sidecar_path(shard));
    let path = match name {
        PARTS => parts_beside(&sidecar),
        NUMBERS => numbers_beside(&sidecar),
        _ => sidecar,
    };
    Sealed::new(path, beside.and_then(|beside| beside.seals.get(name).copied()))
}

/// Returns all sealed objects that belong to a shard, with their paths.
pub(in crate::dataset) fn all_of(shard: &str, beside: &Beside) -> Vec<Sealed> {
    let (folder, stem) = (folder_prefix(shard), stem(shard));
    let object = |(name, seal): (&str, &Seal)| match name {
        SIDECAR | PARTS | NUMBERS => beside_sidecar(shard, Some(beside), name),
        name if OF_FOLDER.contains(&name) => Sealed::new(format!("{folder}{name}"), Some(*seal)),
        ending => Sealed::new(format!("{stem}{ending}"), Some(*seal)),
    };
    beside.seals.iter().map(object).collect()
}

/// Returns the sealed objects that describe the folder of a shard and so change the meaning of its data.
pub(in crate::dataset) fn of_folder(shard: &str, beside: &Beside) -> Vec<Sealed> {
    let names = [schema::file::NAME, CONSTANTS_FILE].into_iter();
    let object =
        |name: &str| Some(Sealed::new(format!("{}{name}", folder_prefix(shard)), Some(*beside.seals.get(name)?)));
    names.filter_map(object).collect()
}
