//! A folder of a store that is one source: a Zarr store, whose files are read by name.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::{
    store::{Listed, Store},
    watch,
};
use crate::error::Result;

/// A folder of a store that is read as a whole, by relative object names.
#[derive(Debug, Clone)]
pub struct Folder {
    store: Arc<dyn Store>,
    path: String,
}

impl Folder {
    /// Creates a handle for a folder of a store; `""` is the root.
    pub fn new(store: Arc<dyn Store>, path: impl Into<String>) -> Self {
        Self { store, path: path.into() }
    }

    fn object_path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }

    /// Reads a whole object; `None` if it does not exist.
    ///
    /// # Errors
    /// When the store fails.
    pub fn get(&self, name: &str) -> Result<Option<Bytes>> {
        self.store.get(&self.object_path(name)).inspect_err(watch::report_fault)
    }

    /// Returns the size of an object in bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// When the store fails.
    pub fn object_bytes(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.store.head(&self.object_path(name))?.map(|facts| facts.bytes))
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// When the object is missing or shorter than the range.
    pub fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.store.get_range(&self.object_path(name), range).inspect_err(watch::report_fault)
    }

    /// Calls `visit` with the name of every object below the folder.
    ///
    /// # Errors
    /// When the store fails.
    pub fn walk_names(&self, visit: &mut dyn FnMut(&str)) -> Result<()> {
        let prefix = self.object_path("");
        self.store.walk_folder(&self.path, &mut |listed| {
            match listed {
                Listed::Object(facts) => visit(facts.path.strip_prefix(&prefix).unwrap_or(&facts.path)),
                Listed::FolderLink(_) => {}
                Listed::Fault(e) => return Err(e),
            }
            Ok(())
        })
    }
}
