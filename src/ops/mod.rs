//! Operations: one file per command. Each scans, plans, executes, commits, and returns a report; none prints.

pub mod adopt;
pub mod compact;
pub mod convert;
pub mod describe;
pub mod diff;
pub mod drift;
pub mod erase;
pub mod export;
pub mod indexes;
pub mod inputs;
pub mod inspect;
pub mod lineage;
pub mod manifest;
pub mod names;
pub mod prove;
mod revision;
mod segments;
mod sort;
pub mod tag;
pub mod vacuum;
pub mod verify;

use std::{io::Read, path::PathBuf, sync::Arc};

use crate::{
    dataset::{Dataset, IdKey},
    error::Result,
    events::{Cancel, Observer},
    storage::{self, Location, StoreSettings},
    units::Size,
};

/// What every operation is given.
pub struct Context<'a> {
    /// Folder that relative paths are taken from.
    pub folder: PathBuf,
    /// How stores are opened.
    pub settings: StoreSettings,
    /// Opens standard input.
    pub stdin: fn() -> Box<dyn Read + Send>,
    /// Threads to work with.
    pub jobs: usize,
    /// Memory to work in.
    pub memory: Size,
    /// The key of private ids, if one is given.
    pub id_key: Option<Arc<IdKey>>,
    /// Is told what happens.
    pub observer: &'a dyn Observer,
    /// Stops the run.
    pub cancel: Cancel,
}

impl Context<'_> {
    /// The dataset at a location.
    ///
    /// # Errors
    /// When its store cannot be opened.
    pub fn dataset(&self, location: &Location) -> Result<Dataset> {
        Ok(Dataset::new(storage::open(location, &self.settings)?).with_key(self.id_key.clone()))
    }

    /// Understands a path or URL.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn location(&self, text: &str) -> Result<Location> {
        Location::parse(text, &self.folder)
    }
}
