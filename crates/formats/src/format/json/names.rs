//! Lookup of the field that a key names. Records usually repeat their keys in the same order, so the field after the
//! last one is tried before any hashing, and keys are compared in place, without a copy.

use std::{collections::HashMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, Visitor};

/// Names compared before hashing: if rows lack some of their keys, the next one is near.
const NEAR: usize = 8;

/// Names of fields in order, with an index.
#[derive(Debug, Default)]
pub(super) struct Names {
    list: Vec<String>,
    index: HashMap<String, usize>,
}

impl Names {
    /// Returns the position of the field `key`; `guess` and some that follow are tried first.
    pub(super) fn find_key(&self, key: &str, guess: usize) -> Option<usize> {
        let near = self.list.iter().skip(guess).take(NEAR).position(|name| name == key);
        near.map(|ahead| guess + ahead).or_else(|| self.index.get(key).copied())
    }

    /// Adds a new field and returns its position.
    pub(super) fn push(&mut self, name: String) -> usize {
        let at = self.list.len();
        self.list.push(name.clone());
        self.index.insert(name, at);
        at
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&self, at: usize) -> &str {
        self.list.get(at).map_or("", String::as_str)
    }
}

/// A key of an object.
pub(super) enum Key {
    /// Position of the field.
    Known(usize),
    /// A name that is not among the fields.
    New(String),
}

/// Reads a key and looks it up.
pub(super) struct KeySeed<'n> {
    pub(super) names: &'n Names,
    pub(super) guess: usize,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Key, E> {
        Ok(self.names.find_key(key, self.guess).map_or_else(|| Key::New(key.to_owned()), Key::Known))
    }
}
