//! A read-only store of a few files in memory.

use std::{collections::BTreeMap, io::Read, ops::Range, sync::Arc};

use bytes::{Buf, Bytes};
use jiff::Timestamp;

use crate::{
    error::{Error, Result},
    storage::{Existing, Listed, Location, ObjectFacts, Pin, PutOutcome, Reading, Sink, Staged, Store, Visit},
};

/// Files by path.
#[derive(Debug)]
pub(super) struct MemoryFiles {
    location: Location,
    files: BTreeMap<String, Bytes>,
}

impl MemoryFiles {
    /// Creates a store of these files.
    ///
    /// # Errors
    /// Never fails in practice.
    pub(super) fn new_store(files: impl Iterator<Item = (String, Bytes)>) -> Result<Arc<dyn Store>> {
        // The location is a local folder, because remote data would be cached in memory.
        Ok(Arc::new(Self {
            location: Location::from_local_path(std::path::Path::new("/fuzz"))?,
            files: files.collect(),
        }))
    }

    fn find_file(&self, path: &str) -> Result<&Bytes> {
        // A dataset that lacks a file is damaged; the store is not at fault.
        self.files.get(path).ok_or_else(|| Error::integrity("expected an object, found none").at_location(path))
    }

    fn read_range(&self, path: &str, range: &Range<u64>) -> Result<Bytes> {
        let bytes = self.find_file(path)?;
        let place = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let place = place.filter(|(start, end)| start <= end && *end <= bytes.len());
        let (start, end) =
            place.ok_or_else(|| Error::internal("a range beyond the end of a file was requested").at_location(path))?;
        Ok(bytes.slice(start..end))
    }

    fn object_facts(path: &str, bytes: &Bytes) -> ObjectFacts {
        ObjectFacts { path: path.to_owned(), bytes: bytes.len() as u64, modified: Timestamp::UNIX_EPOCH, etag: None }
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::internal("readers do not write"))
}

impl Store for MemoryFiles {
    fn location(&self) -> &Location {
        &self.location
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        Ok(self.files.get(path).map(|bytes| Self::object_facts(path, bytes)))
    }

    fn read_into(&self, path: &str, _: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        let file = self.files.get(path);
        into.extend_from_slice(file.map_or(&[], |bytes| bytes));
        Ok(file.is_some())
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], _: &Pin) -> Result<Vec<Bytes>> {
        ranges.iter().map(|range| self.read_range(path, range)).collect()
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let tail = |file: &Bytes| {
            let start = file.len().saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
            (file.slice(start..), file.len() as u64)
        };
        Ok(self.files.get(path).map(tail))
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        let file = self.find_file(path)?.clone();
        Ok(match reading {
            Reading::Range(range, _) => Box::new(self.read_range(path, &range)?.reader()),
            Reading::Whole(_) | Reading::Start(_) | Reading::Back => Box::new(file.reader()),
        })
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        let below =
            |path: &str| folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let found = self.files.iter().filter(|(path, _)| below(path));
        for (path, bytes) in found {
            if visit(Listed::Object(Self::object_facts(path, bytes)))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, _: &str, _: Bytes, _: Existing) -> Result<PutOutcome> {
        read_only()
    }

    fn delete_all(&self, _: &[String]) -> Result<()> {
        read_only()
    }

    fn create_sink(&self, _: &str) -> Result<Box<dyn Sink>> {
        read_only()
    }

    fn name_staged(&self, _: Vec<Staged>, _: Existing) -> Result<()> {
        read_only()
    }
}
