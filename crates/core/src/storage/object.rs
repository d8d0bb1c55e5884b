//! An object of a store, read in ranges. Fetched bytes of a remote object are cached; sealed objects are verified block
//! by block.

use std::{
    io::{BufRead, Read},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::{
    checks::Checks,
    pin::Pin,
    ranges::{Fetched, Prefetched, covering_requests as requests_of, slice_range},
    store::{Reading, Store, beyond_end, changed_object},
    watch,
};
use crate::{
    codec::seal::BlockHashes,
    error::{Error, Kind, Result},
};

/// A readable object of known size.
#[derive(Debug, Clone)]
pub struct Object {
    pub(super) store: Arc<dyn Store>,
    path: String,
    bytes: u64,
    /// Cached bytes of a remote object; `None` for a local one.
    remote: Option<Arc<Remote>>,
    /// Expected content; `None` if unknown.
    checks: Option<Arc<Checks>>,
}

/// Minimum bytes per request to a remote store, unless an exact range is requested.
const WINDOW: u64 = 1 << 20;

/// Cached state of a remote object.
#[derive(Debug, Default)]
struct Remote {
    /// The range fetched last: small reads are often adjacent, and each would be a request.
    window: Mutex<(u64, Bytes)>,
    /// Ranges fetched ahead.
    fetched: Arc<Fetched>,
    /// The version that all reads must match.
    pin: Pin,
}

impl Object {
    /// Creates a handle for an object of a store; `bytes` is its size.
    pub fn new(store: Arc<dyn Store>, path: impl Into<String>, bytes: u64) -> Self {
        let remote = store.location().local_path().is_none().then(Arc::default);
        Self { store, path: path.into(), bytes, remote, checks: None }
    }

    /// Returns the object with ranges verified block by block as they are read. `tail` holds the bytes after the
    /// blocks, already verified.
    #[must_use]
    pub fn with_checks(self, blocks: BlockHashes, tail: Bytes) -> Self {
        Self { checks: Some(Arc::new(Checks { blocks, tail })), ..self }
    }

    /// Returns the object restricted to the version with this entity tag.
    #[must_use]
    pub fn of_version(mut self, etag: Option<&str>) -> Self {
        if self.remote.is_some() {
            self.remote = Some(Arc::new(Remote { pin: Pin::new(etag), ..Remote::default() }));
        }
        self
    }

    /// Returns the size in bytes.
    pub fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// Returns the path within the store.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether reads are network requests.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Reads another whole object of the same folder; `None` if it does not exist.
    ///
    /// # Errors
    /// When the store fails.
    pub fn read_sibling(&self, name: &str) -> Result<Option<Bytes>> {
        let folder = self.path.rfind('/').map_or("", |slash| &self.path[..=slash]);
        self.store.get(&format!("{folder}{name}"))
    }

    /// Reads a range. For a remote object, a small range is extended, and the bytes around it are cached.
    ///
    /// # Errors
    /// When the object is missing or shorter than the range.
    pub fn get_range(&self, range: Range<u64>) -> Result<Bytes> {
        match &self.checks {
            Some(checks) => checks.get_verified(self, &range),
            None => self.get_unverified(range),
        }
    }

    pub(super) fn get_unverified(&self, range: Range<u64>) -> Result<Bytes> {
        let length = range.end.saturating_sub(range.start);
        let Some(remote) = &self.remote else { return self.fetch_range(range) };
        if let Some(found) = remote.fetched.get(&range) {
            return Ok(found);
        }
        if length >= WINDOW || range.end > self.bytes {
            return self.fetch_range(range);
        }
        let mut window = remote.window.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = slice_range(window.0, &window.1, &range) {
            return Ok(found);
        }
        // Parquet readers begin at the end and proceed backwards.
        let start =
            if range.end == self.bytes { range.start.min(self.bytes.saturating_sub(WINDOW)) } else { range.start };
        let end = (start + WINDOW).clamp(range.end, self.bytes.max(range.end));
        let bytes = self.fetch_range(start..end)?;
        *window = (start, bytes);
        slice_range(window.0, &window.1, &range)
            .ok_or_else(|| Error::internal("a range is not in what was fetched for it"))
    }

    /// Returns a range of a remote object if it is already in memory.
    pub fn cached_range(&self, range: &Range<u64>) -> Option<Bytes> {
        // Verified objects are read in blocks.
        let remote = self.remote.as_ref().filter(|_| self.checks.is_none())?;
        remote.fetched.get(range).or_else(|| {
            let window = remote.window.lock().unwrap_or_else(PoisonError::into_inner);
            slice_range(window.0, &window.1, range)
        })
    }

    /// Reads exactly a range, without caching neighbouring bytes. For isolated ranges.
    ///
    /// # Errors
    /// As [`get_range`](Self::get_range).
    pub fn exact_range(&self, range: Range<u64>) -> Result<Bytes> {
        if self.checks.is_some() {
            return self.get_range(range);
        }
        match self.cached_range(&range) {
            Some(found) => Ok(found),
            None => self.fetch_range(range),
        }
    }

    /// Reads a range from the store.
    pub(super) fn fetch_range(&self, range: Range<u64>) -> Result<Bytes> {
        if range.end > self.bytes {
            return Err(beyond_end(self.store.location(), &self.path, &range, self.bytes));
        }
        let found = match &self.remote {
            Some(remote) => self.store.range_of(&self.path, range, &remote.pin),
            None => self.store.get_range(&self.path, range),
        };
        // The object had these bytes when it was listed.
        let found = found.map_err(|e| match e.kind() {
            Kind::Input if self.has_other_size() => {
                changed_object(self.store.location(), &self.path, self.bytes, "fewer").with_cause(e)
            }
            _ => e,
        });
        found.inspect_err(watch::report_fault)
    }

    fn has_other_size(&self) -> bool {
        !matches!(self.store.head(&self.path), Ok(Some(facts)) if facts.bytes == self.bytes)
    }

    /// Fetches ranges before they are read, several at a time and neighbours together. They stay in memory as long as
    /// the returned guard lives. `None` if prefetching brings no benefit. Ranges beyond the end are skipped; reading
    /// them is an error later.
    ///
    /// # Errors
    /// When the store fails.
    pub fn prefetch_ranges(&self, mut wanted: Vec<Range<u64>>) -> Result<Option<Prefetched>> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let window = {
            let window = remote.window.lock().unwrap_or_else(PoisonError::into_inner);
            window.0..window.0 + window.1.len() as u64
        };
        wanted.retain(|range| range.end <= self.bytes && !(window.start <= range.start && range.end <= window.end));
        let requests = requests_of(wanted);
        if requests.is_empty() {
            return Ok(None);
        }
        let found = self.store.get_ranges(&self.path, &requests, &remote.pin).inspect_err(watch::report_fault)?;
        Ok(Some(remote.fetched.hold_spans(requests.iter().map(|range| range.start).zip(found))))
    }

    /// Opens the object from its first byte.
    ///
    /// # Errors
    /// When the object is missing.
    pub fn read(&self) -> Result<Box<dyn Read + Send>> {
        let opened = match &self.remote {
            Some(remote) => self.store.open_reader(&self.path, Reading::Whole(&remote.pin)),
            None => self.store.read(&self.path),
        };
        let place = self.store.location().join(&self.path).to_string();
        Ok(Box::new(watch::ReportingReader(opened.inspect_err(watch::report_fault)?, place)))
    }

    /// Opens a range of the object for sequential reading. Reading fails if the object ends before the range does.
    ///
    /// # Errors
    /// When the object is missing.
    pub fn read_range(&self, range: Range<u64>) -> Result<Box<dyn Read + Send>> {
        let left = range.end.saturating_sub(range.start);
        let unpinned = Pin::default();
        let pin = self.remote.as_ref().map_or(&unpinned, |remote| &remote.pin);
        let inner = self.store.open_reader(&self.path, Reading::Range(range, pin)).inspect_err(watch::report_fault)?;
        let place = self.store.location().join(&self.path).to_string();
        let whole = WholeRange { inner, left, object: self.clone() };
        Ok(Box::new(watch::ReportingReader(Box::new(whole), place)))
    }

    /// Opens the object for reading only about so many bytes of its beginning.
    ///
    /// # Errors
    /// When the object is missing.
    pub fn read_start(&self, bytes: u64) -> Result<Box<dyn Read + Send>> {
        self.store.open_reader(&self.path, Reading::Start(bytes))
    }

    /// Opens the object from its first byte, for it was just written and is read once.
    ///
    /// # Errors
    /// When the object is missing.
    pub fn read_back(&self) -> Result<Box<dyn BufRead + Send>> {
        self.store.read_back(&self.path)
    }
}

impl parquet::file::reader::Length for Object {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl parquet::file::reader::ChunkReader for Object {
    type T = std::io::BufReader<RangeReader>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(std::io::BufReader::with_capacity(64 << 10, RangeReader { object: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.get_range(start..start + length as u64)
            .map_err(|e| parquet::errors::ParquetError::External(Box::new(std::io::Error::from(e))))
    }
}

/// Reads a range of an object, and fails if it ends early.
struct WholeRange {
    inner: Box<dyn Read + Send>,
    /// Bytes not read yet.
    left: u64,
    object: Object,
}

impl Read for WholeRange {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            let Object { store, path, bytes, .. } = &self.object;
            return Err(changed_object(store.location(), path, *bytes, "fewer").into());
        }
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

/// Reads an object sequentially from an offset, one request per call.
#[derive(Debug)]
pub struct RangeReader {
    object: Object,
    at: u64,
}

impl Read for RangeReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let end = (self.at + buffer.len() as u64).min(self.object.bytes);
        if end <= self.at {
            return Ok(0);
        }
        let bytes = self.object.get_range(self.at..end)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::{LocalStore, RemoteStore};

    #[test]
    fn ranges_are_read_as_streams_and_never_end_early() {
        let folder = tempfile::tempdir().unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path().to_owned()));
        let remote: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let bytes: Vec<u8> = (0..20_u32 << 20).map(|i| i.to_le_bytes()[usize::from(i % 3 == 0)]).collect();
        for store in [local, remote] {
            store.put("a", bytes.clone().into()).unwrap();
            let object = Object::new(Arc::clone(&store), "a", bytes.len() as u64);
            for (start, end) in [(0, 10), (5, 5), (7, 9 << 20), (1 << 20, 20 << 20)] {
                let mut found = Vec::new();
                object.read_range(start as u64..end as u64).unwrap().read_to_end(&mut found).unwrap();
                assert!(found == bytes[start..end], "{start} to {end}");
            }
            let mut found = Vec::new();
            let longer = Object::new(store, "a", 21 << 20).read_range((19 << 20)..(21 << 20));
            let error = Error::from(longer.unwrap().read_to_end(&mut found).unwrap_err());
            assert_eq!(error.kind(), Kind::Storage, "{error}");
        }
    }
}
