//! Entries of a log that several writers may create at once, of which exactly one wins: those of datasets and of Delta
//! tables.

use std::fmt::Display;

use bytes::Bytes;

use super::store::{PutOutcome, Store};
use crate::error::{Effect, Error, Result};

/// An entry that is to be created.
pub struct NewEntry<'a> {
    /// Its path.
    pub path: &'a str,
    /// Its version, as messages name it.
    pub version: &'a dyn Display,
    /// What it is called in messages.
    pub name: &'a str,
    /// What to do where it was written, but may not survive a power cut.
    pub unsure: &'static str,
}

impl NewEntry<'_> {
    /// Creates the entry; returns false if another writer's exists. `is_own` reads the entry of this version back, and
    /// tells whether it is this one; `None` if there is none.
    ///
    /// # Errors
    /// When the store fails; [`Error::effect`] says whether the entry may exist.
    pub fn create(
        self,
        store: &dyn Store,
        bytes: Bytes,
        is_own: impl FnOnce() -> Result<Option<bool>>,
    ) -> Result<bool> {
        let outcome = store.put_if_absent(self.path, bytes);
        if matches!(outcome, Ok(PutOutcome::Created)) {
            return Ok(true);
        }
        let place = || store.location().join(self.path).to_string();
        if let Err(e) = &outcome
            && e.effect() == Effect::Certain
        {
            // Reading back would find the entry in memory, which proves nothing about the disk.
            let message = format!("version {} was written, but it may not survive a power cut", self.version);
            let error = Error::storage(message).at_location(place()).with_effect(Effect::Certain);
            return Err(error.with_cause(e.to_string()).with_hint(self.unsure));
        }
        // Either this version exists, possibly created by a request of this run whose reply was lost, or the store
        // failed before or after it wrote.
        match (is_own(), outcome) {
            (Ok(Some(is_own)), _) => Ok(is_own),
            (Ok(None), Err(e)) => Err(e),
            (Ok(None), Ok(_)) => {
                let message = format!("the store says that the {} exists but does not return it", self.name);
                Err(Error::storage(message)
                    .at_location(place())
                    .with_effect(Effect::Possible)
                    .with_hint("nothing was deleted; run the command again once the store is consistent"))
            }
            (Err(e), _) => Err(e.with_effect(Effect::Possible)),
        }
    }
}
