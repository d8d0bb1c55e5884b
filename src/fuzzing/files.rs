//! A read-only store of a few files in memory.

use std::{collections::BTreeMap, io::Read, ops::Range, sync::Arc};

use bytes::{Buf, Bytes};
use jiff::Timestamp;

use crate::{
    error::{Error, Result},
    storage::{Listed, Location, Lock, ObjectFacts, PutOutcome, Sink, Staged, Store},
};

/// Files by path.
#[derive(Debug)]
pub(super) struct Files {
    location: Location,
    files: BTreeMap<String, Bytes>,
}

impl Files {
    /// Creates a store of these files.
    ///
    /// # Errors
    /// Never fails in practice.
    pub(super) fn store(files: impl Iterator<Item = (String, Bytes)>) -> Result<Arc<dyn Store>> {
        // The location is a local folder, because remote data would be cached in memory.
        Ok(Arc::new(Self { location: Location::local(std::path::Path::new("/fuzz"))?, files: files.collect() }))
    }

    fn file(&self, path: &str) -> Result<&Bytes> {
        // A dataset that lacks a file is damaged; the store is not at fault.
        self.files.get(path).ok_or_else(|| Error::integrity("expected an object, found none").at(path))
    }

    fn facts(path: &str, bytes: &Bytes) -> ObjectFacts {
        ObjectFacts { path: path.to_owned(), bytes: bytes.len() as u64, modified: Timestamp::UNIX_EPOCH, etag: None }
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::internal("readers do not write"))
}

impl Store for Files {
    fn location(&self) -> &Location {
        &self.location
    }

    fn get(&self, path: &str) -> Result<Option<Bytes>> {
        Ok(self.files.get(path).cloned())
    }

    fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.file(path)?;
        let place = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let place = place.filter(|(start, end)| start <= end && *end <= bytes.len());
        let (start, end) =
            place.ok_or_else(|| Error::internal("a range beyond the end of a file was requested").at(path))?;
        Ok(bytes.slice(start..end))
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        Ok(self.files.get(path).map(|bytes| Self::facts(path, bytes)))
    }

    fn read(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        Ok(Box::new(self.file(path)?.clone().reader()))
    }

    fn read_whole(&self, path: &str, _: u64, into: &mut Vec<u8>) -> Result<()> {
        into.extend_from_slice(self.file(path)?);
        Ok(())
    }

    fn walk(&self, folder: &str, visit: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let below =
            |path: &str| folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let found = self.files.iter().filter(|(path, _)| below(path));
        for (path, bytes) in found {
            visit(Listed::Object(Self::facts(path, bytes)))?;
        }
        Ok(())
    }

    fn put(&self, _: &str, _: Bytes) -> Result<()> {
        read_only()
    }

    fn replace(&self, _: Vec<Staged>) -> Result<()> {
        read_only()
    }

    fn put_if_absent(&self, _: &str, _: Bytes) -> Result<PutOutcome> {
        read_only()
    }

    fn delete(&self, _: &str) -> Result<()> {
        read_only()
    }

    fn create(&self, _: &str) -> Result<Box<dyn Sink>> {
        read_only()
    }

    fn publish(&self, _: Vec<Staged>) -> Result<()> {
        read_only()
    }

    fn lock(&self, _: &str) -> Result<Lock> {
        read_only()
    }
}
