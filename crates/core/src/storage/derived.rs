//! What follows from the primitives of a [`Store`]: written once, so that all stores and their wrappers have it.

use std::{
    io::{BufRead, BufReader, Read},
    ops::{ControlFlow, Range},
};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    location::Location,
    pin::Pin,
    store::{
        Existing, Listed, Lock, ObjectFacts, PIECE, PutOutcome, Reading, Staged, Store, missing_object, require_object,
    },
    waiting::{SMALL, for_each_waiting},
};
use crate::error::{Error, Result};

impl dyn Store + '_ {
    /// Reads a whole object; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Kind::Storage`](crate::error::Kind::Storage) when the store fails.
    pub fn get(&self, path: &str) -> Result<Option<Bytes>> {
        let mut whole = Vec::new();
        Ok(self.read_into(path, None, &mut whole)?.then(|| whole.into()))
    }

    /// Appends a whole object, which had `bytes` bytes when it was listed, to `into`.
    ///
    /// # Errors
    /// When the object is missing or has another size; then `into` may contain a part of it.
    pub fn read_whole(&self, path: &str, bytes: u64, into: &mut Vec<u8>) -> Result<()> {
        if self.read_into(path, Some(bytes), into)? { Ok(()) } else { Err(missing_object(self.location(), path)) }
    }

    /// Reads a byte range of an object.
    ///
    /// # Errors
    /// As [`Store::get_ranges`].
    pub fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        self.range_of(path, range, &Pin::default())
    }

    /// As `get_range`, of the version of the object that `pin` names.
    ///
    /// # Errors
    /// As [`Store::get_ranges`].
    pub fn range_of(&self, path: &str, range: Range<u64>, pin: &Pin) -> Result<Bytes> {
        let found = self.get_ranges(path, &[range], pin)?.pop();
        found.ok_or_else(|| Error::internal("a range has no answer"))
    }

    /// Opens an object for reading from its first byte.
    ///
    /// # Errors
    /// When the object is missing or the store fails.
    pub fn read(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        self.open_reader(path, Reading::Whole(&Pin::default()))
    }

    /// As `read`, for an object that was just written and is read once.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_back(&self, path: &str) -> Result<Box<dyn BufRead + Send>> {
        Ok(Box::new(BufReader::with_capacity(PIECE, self.open_reader(path, Reading::Back)?)))
    }

    /// Checks that objects exist and have the given sizes.
    ///
    /// # Errors
    /// When one of them is missing or has another size, which the error names, or the store fails.
    pub fn check_present(&self, objects: &[(&str, Option<u64>)]) -> Result<()> {
        let check =
            |(path, bytes): &(&str, Option<u64>)| require_object(self.location(), path, *bytes, self.head(path)?);
        for_each_waiting(self, SMALL, objects, check).map(drop)
    }

    /// Calls `visit` for every object below a folder (`""` is the root), in any order, with few of them in memory at a
    /// time.
    ///
    /// # Errors
    /// As [`Store::visit`].
    pub fn walk_folder(&self, folder: &str, visit: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.visit(folder, &mut |listed| visit(listed).map(ControlFlow::Continue))
    }

    /// Lists every object below a folder, sorted by path.
    ///
    /// # Errors
    /// When the store fails; a missing folder is empty.
    pub fn list_folder(&self, folder: &str) -> Result<Vec<ObjectFacts>> {
        let mut out = Vec::new();
        self.walk_folder(folder, &mut |listed| {
            match listed {
                Listed::Object(facts) => out.push(facts),
                Listed::FolderLink(_) => {}
                Listed::Fault(e) => return Err(e),
            }
            Ok(())
        })?;
        out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(out)
    }

    /// Returns the path of the first object below a folder, by name, for which `wanted` returns true.
    ///
    /// # Errors
    /// When the store fails.
    pub fn find_first(&self, folder: &str, wanted: &dyn Fn(&str) -> bool) -> Result<Option<String>> {
        if !self.location().lists_in_order() {
            return Ok(self.list_folder(folder)?.into_iter().map(|o| o.path).find(|path| wanted(path)));
        }
        let mut first = None;
        self.visit(folder, &mut |listed| {
            if wanted(listed.path()) {
                first = Some(listed.path().to_owned());
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(first)
    }

    /// Writes a whole object and replaces an existing one.
    ///
    /// # Errors
    /// When the store fails; then the old object, if any, is still there.
    pub fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.write(path, bytes, Existing::Replace).map(drop)
    }

    /// Writes an object only if none of this name exists.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        self.write(path, bytes, Existing::Keep)
    }

    /// Deletes an object; a missing one is not an error.
    ///
    /// # Errors
    /// When the store fails.
    pub fn delete(&self, path: &str) -> Result<()> {
        self.delete_all(&[path.to_owned()])
    }

    /// Waits until the deletions of these objects are durable, so that a power cut cannot restore them.
    ///
    /// # Errors
    /// When the store fails.
    pub fn settle_deletions(&self, paths: &[String]) -> Result<()> {
        self.as_local().map_or(Ok(()), |local| local.settle_deletions(paths))
    }

    /// Names staged objects, as [`Store::name_staged`] does, and replaces nothing.
    ///
    /// # Errors
    /// As [`Store::name_staged`].
    pub fn publish_staged(&self, staged: Vec<Staged>) -> Result<()> {
        self.name_staged(staged, Existing::Keep)
    }

    /// As `publish`, but replaces existing objects: for the few objects that are not part of a version.
    ///
    /// # Errors
    /// As [`Store::name_staged`].
    pub fn replace_staged(&self, staged: Vec<Staged>) -> Result<()> {
        self.name_staged(staged, Existing::Replace)
    }

    /// Creates an object from the bytes at another location without copying them; `None` if the store cannot do that:
    /// remote stores, and other file systems.
    ///
    /// # Errors
    /// When the store fails.
    pub fn link_object(&self, source: &Location, path: &str) -> Result<Option<Staged>> {
        self.as_local().map_or(Ok(None), |local| local.link_object(source, path))
    }

    /// Acquires a lock that ends with the process, so that two runs of one command do not write the same names.
    ///
    /// # Errors
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) when another process holds it. Stores without locks succeed.
    pub fn acquire_lock(&self, name: &str) -> Result<Lock> {
        self.as_local().map_or(Ok(Lock { _file: None }), |local| local.acquire_lock(name))
    }

    /// Whether a process holds a lock; `None` if that cannot be determined. Writes nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub fn is_locked(&self, name: &str) -> Result<Option<bool>> {
        self.as_local().map_or(Ok(None), |local| local.is_locked(name))
    }

    /// Removes what killed runs have left in a folder that is no dataset, which has no `vacuum`.
    pub fn remove_leftovers(&self) {
        if let Some(local) = self.as_local() {
            local.remove_leftovers();
        }
    }

    /// Returns the time by the clock that dates the objects of this store; a remote store has to write the object
    /// `probe` to learn it.
    ///
    /// # Errors
    /// When the store fails.
    pub fn current_time(&self, probe: &str) -> Result<Timestamp> {
        if let Some(local) = self.as_local() {
            return Ok(local.current_time());
        }
        self.put(probe, Bytes::from_static(b"the time of this object is that of the store\n"))?;
        self.head(probe)?.map(|facts| facts.modified).ok_or_else(|| missing_object(self.location(), probe))
    }
}
