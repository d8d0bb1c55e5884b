//! Where bytes live: local folders and object stores behind one small, blocking interface.
//!
//! Internally every path is a URL ([`Location`]). A [`Store`] is rooted at one location and accepts paths relative to
//! it, separated by `/`. Only this module opens files for writing. It guarantees:
//!
//! - `put` is atomic and durable: after it returns, the whole object exists; before that, nothing of it exists;
//! - `put_if_absent` lets exactly one of several writers win;
//! - a [`Sink`] writes to a staging location that no listing of shards shows; [`Store::name_staged`] gives all staged
//!   objects their names durably: file contents are synced before the renames, folders after them;
//! - `publish` never replaces an object: an existing name is a conflict, and names that the call has already given are
//!   removed again. The few objects that are replaced go through `put` and `replace`;
//! - a staged object that is dropped is removed; after a crash it stays in the staging folder, never under its name.
//!
//! Local folders have their own implementation because `object_store` neither syncs by default nor writes large files
//! without copying them through small buffers. All other locations use the `object_store` crate.

mod back;
mod beneath;
mod cache;
mod checks;
mod connect;
mod credentials;
mod deliver;
mod derived;
mod durable;
mod entry;
mod folder;
mod full;
mod given;
mod listing;
mod local;
mod location;
mod naming;
mod object;
mod pin;
mod ranges;
mod remote;
mod save;
mod scratch;
mod secrets;
mod settings;
mod sink;
mod spill;
mod spool;
mod store;
pub mod sys;
mod unpacked;
mod upload;
mod waiting;
mod walk;
mod watch;
mod zipped;

use std::sync::Arc;

use bytes::Bytes;

pub use cache::{bytes_from_disks, drop_cached, write_dirty_pages};
pub use checks::{BLOCK_MISMATCH, RESTORE_HINT};
pub use deliver::{append_line, post_json};
pub use entry::NewEntry;
pub use folder::Folder;
pub use full::{explain_error, is_full};
pub use given::SmallFile;
pub use local::LocalStore;
pub use location::{Location, plain_argument, plain_urls};
pub use object::{Object, RangeReader};
pub use pin::Pin;
pub use ranges::Prefetched;
pub use remote::RemoteStore;
pub use scratch::{Scratch, ScratchPath};
pub use settings::{Opener, StoreSettings};
pub use spill::Spill;
pub use spool::Spool;
pub use store::{
    Existing, Listed, Local, Lock, ObjectFacts, PutOutcome, Reading, SYSTEM_FOLDER, Sink, Staged, Store, Visit,
    checked_path, is_missing,
};
pub use waiting::{REMOTE_REQUESTS, RequestMemory, SMALL, for_each_waiting, run_waiting, with_io_threads};
pub use watch::{Watch, capture_fault, watch_store};
pub use zipped::ZipStore;

use crate::error::{Error, Result};

/// Opens the store rooted at a location.
///
/// # Errors
/// When the scheme is unknown or the settings are incomplete.
pub fn open_store(location: &Location, settings: &StoreSettings) -> Result<Arc<dyn Store>> {
    if let Some(opener) = settings.opener() {
        return opener(location);
    }
    match location.local_path() {
        Some(path) => Ok(Arc::new(LocalStore::new(path.to_owned()))),
        None => Ok(Arc::new(RemoteStore::open(location, settings)?)),
    }
}

/// Reads a small file that the user names, at any location; `None` if there is none.
///
/// # Errors
/// As [`SmallFile::read`], and when the store fails.
pub fn read_small(file: SmallFile, location: &Location, settings: &StoreSettings) -> Result<Option<Bytes>> {
    if let Some(path) = location.local_path() {
        return Ok(file.read(path)?.map(Bytes::from));
    }
    let Some((folder, name)) = location.split_name() else { return Ok(None) };
    let store = open_store(&folder, settings)?;
    match store.head(&name)? {
        Some(facts) if facts.bytes > file.max => {
            Err(file.too_large(&crate::units::Size(facts.bytes).to_string()).at_location(location.to_string()))
        }
        Some(_) => store.get(&name),
        None => Ok(None),
    }
}

/// Writes a file for the user at any location and replaces an existing one.
///
/// # Errors
/// When the location names no file, or the store fails.
pub fn save_file(location: &Location, settings: &StoreSettings, bytes: Bytes) -> Result<()> {
    let failed = || Error::storage("writing the file failed").at_location(location.to_string());
    if let Some(path) = location.local_path() {
        return save::save_local(path, &bytes).map_err(|e| failed().with_cause(e));
    }
    let (folder, name) = location.split_name().ok_or_else(failed)?;
    open_store(&folder, settings)?.put(&name, bytes)
}

/// Creates a temporary local file, near the dataset if that is local, for records that do not fit into memory.
///
/// # Errors
/// When the file cannot be created.
pub fn create_scratch(location: &Location) -> Result<Scratch> {
    Scratch::new(location)
}

/// Creates the path of a temporary local file, near the dataset if that is local, for a library that opens files by
/// itself.
///
/// # Errors
/// When the file cannot be created.
pub fn scratch_path(location: &Location) -> Result<ScratchPath> {
    ScratchPath::new(location)
}
