//! Remote stores (S3, Google Cloud, Azure, HTTP, memory) through the `object_store` crate.
//!
//! The crate is asynchronous; the rest of shardify is not. Calls block on a small runtime of their own, so they must
//! not be made from within another runtime. A large object is a multi-part upload that is completed only by
//! `publish`, so nothing is visible before and nothing needs to be renamed.

use std::{
    io::{self, Read, Write},
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use futures::StreamExt;
use jiff::Timestamp;
use object_store::{
    Error as StoreError, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    path::Path as ObjectPath,
};
use tokio::runtime::Runtime;

use super::{
    Listed, Location, Lock, ObjectFacts, PutOutcome, Sink, Staged, StagedInner, Store, StoreSettings, missing,
};
use crate::error::{Error, Result};

/// Size of the parts of an upload: stores ask for at least 5 MiB and allow 10,000 of them.
const PART_BYTES: usize = 16 << 20;

/// Bytes fetched ahead by a sequential reader.
const READ_BYTES: u64 = 8 << 20;

/// A store rooted at a prefix of an object store.
#[derive(Debug)]
pub struct RemoteStore {
    inner: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    location: Location,
}

impl RemoteStore {
    /// Opens the store of a URL; credentials and endpoints come from `settings`.
    ///
    /// # Errors
    /// When the URL or the settings do not name a store.
    pub fn open(location: &Location, settings: &StoreSettings) -> Result<Self> {
        let options = settings.iter().map(|(k, v)| (k.to_ascii_lowercase(), v.clone()));
        let (inner, prefix) = object_store::parse_url_opts(location.url(), options).map_err(|e| {
            Error::usage("this store cannot be opened")
                .at(location.to_string())
                .cause(e)
                .hint("credentials come from the usual environment variables, e.g. AWS_ACCESS_KEY_ID, AWS_REGION, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME")
        })?;
        Ok(Self { inner: Arc::from(inner), prefix, location: location.clone() })
    }

    /// A store in memory, for tests.
    ///
    /// # Errors
    /// Never in practice.
    pub fn memory() -> Result<Self> {
        let location = Location::parse("memory:///", std::path::Path::new("/"))?;
        let inner: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        Ok(Self { inner, prefix: ObjectPath::default(), location })
    }

    fn at(&self, path: &str) -> Result<ObjectPath> {
        let mut full = self.prefix.clone();
        for part in path.split('/').filter(|p| !p.is_empty()) {
            full = full.join(object_store::path::PathPart::parse(part).map_err(|e| {
                Error::storage("this name cannot be stored").at(self.location.join(path).to_string()).cause(e)
            })?);
        }
        Ok(full)
    }

    fn failed(&self, path: &str, doing: &str, cause: StoreError) -> Error {
        Error::storage(format!("{doing} failed")).at(self.location.join(path).to_string()).cause(cause)
    }

    fn relative(&self, path: &ObjectPath) -> String {
        match path.prefix_match(&self.prefix) {
            Some(parts) => parts.map(|p| p.as_ref().to_owned()).collect::<Vec<_>>().join("/"),
            None => path.to_string(),
        }
    }

    fn facts(&self, meta: &object_store::ObjectMeta) -> ObjectFacts {
        let modified = Timestamp::from_microsecond(meta.last_modified.timestamp_micros()).unwrap_or_default();
        ObjectFacts { path: self.relative(&meta.location), bytes: meta.size, modified, etag: meta.e_tag.clone() }
    }
}

impl Store for RemoteStore {
    fn location(&self) -> &Location {
        &self.location
    }

    fn get(&self, path: &str) -> Result<Option<Bytes>> {
        let at = self.at(path)?;
        let fetch = async { self.inner.get(&at).await?.bytes().await };
        match runtime()?.block_on(fetch) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(path, "reading", e)),
        }
    }

    fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let at = self.at(path)?;
        let expected = range.end.saturating_sub(range.start);
        if expected == 0 {
            return Ok(Bytes::new());
        }
        match runtime()?.block_on(self.inner.get_range(&at, range.clone())) {
            Ok(bytes) if bytes.len() as u64 == expected => Ok(bytes),
            Ok(bytes) => Err(Error::storage(format!("expected {expected} bytes, found {}", bytes.len()))
                .at(self.location.join(path).to_string())
                .byte(range.start)),
            Err(StoreError::NotFound { .. }) => Err(missing(&self.location, path)),
            Err(e) => Err(self.failed(path, "reading", e).byte(range.start)),
        }
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        let at = self.at(path)?;
        match runtime()?.block_on(self.inner.head(&at)) {
            Ok(meta) => Ok(Some(self.facts(&meta))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(path, "looking up", e)),
        }
    }

    fn read(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        let facts = self.head(path)?.ok_or_else(|| missing(&self.location, path))?;
        Ok(Box::new(RemoteReader {
            inner: Arc::clone(&self.inner),
            path: self.at(path)?,
            name: self.location.join(path).to_string(),
            at: 0,
            end: facts.bytes,
            ahead: Bytes::new(),
        }))
    }

    fn walk(&self, folder: &str, visit: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let at = self.at(folder)?;
        let mut listing = self.inner.list((!at.as_ref().is_empty()).then_some(&at));
        let runtime = runtime()?;
        while let Some(meta) = runtime.block_on(listing.next()) {
            let meta = meta.map_err(|e| self.failed(folder, "listing", e))?;
            visit(Listed::Object(self.facts(&meta)))?;
        }
        Ok(())
    }

    fn first(&self, folder: &str) -> Result<Option<String>> {
        // Local and in-memory listings have no order; the cloud stores list by name, a page at a time.
        if self.location.url().scheme() == "memory" || self.location.url().scheme().starts_with("http") {
            return Ok(self.list(folder)?.into_iter().next().map(|o| o.path));
        }
        let at = self.at(folder)?;
        let next = runtime()?.block_on(async { self.inner.list(Some(&at)).next().await });
        match next {
            None => Ok(None),
            Some(Ok(meta)) => Ok(Some(self.relative(&meta.location))),
            Some(Err(e)) => Err(self.failed(folder, "listing", e)),
        }
    }

    fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        let at = self.at(path)?;
        runtime()?.block_on(self.inner.put(&at, bytes.into())).map_err(|e| self.failed(path, "writing", e))?;
        Ok(())
    }

    fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        let at = self.at(path)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match runtime()?.block_on(self.inner.put_opts(&at, bytes.into(), options)) {
            Ok(_) => Ok(PutOutcome::Created),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(PutOutcome::Exists),
            Err(e @ (StoreError::NotImplemented { .. } | StoreError::NotSupported { .. })) => {
                Err(self.failed(path, "a conditional create", e).hint(
                    "this store cannot hold a dataset: it has no create-if-absent, without which concurrent commits lose records",
                ))
            }
            Err(e) => Err(self.failed(path, "creating", e)),
        }
    }

    fn delete(&self, path: &str) -> Result<()> {
        let at = self.at(path)?;
        match runtime()?.block_on(self.inner.delete(&at)) {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed(path, "deleting", e)),
        }
    }

    fn create(&self, path: &str) -> Result<Box<dyn Sink>> {
        let at = self.at(path)?;
        let upload =
            runtime()?.block_on(self.inner.put_multipart(&at)).map_err(|e| self.failed(path, "creating", e))?;
        let staged = StagedUpload { upload: Some(upload), name: self.location.join(path).to_string() };
        Ok(Box::new(RemoteSink { path: path.to_owned(), staged, buffer: Vec::with_capacity(PART_BYTES) }))
    }

    fn publish(&self, staged: Vec<Staged>) -> Result<()> {
        for object in staged {
            let StagedInner::Upload(mut upload) = object.inner else {
                return Err(Error::internal("a file was given to a remote store"));
            };
            if let Some(mut pending) = upload.upload.take() {
                runtime()?
                    .block_on(pending.complete())
                    .map_err(|e| self.failed(&object.path, "completing the upload", e))?;
            }
        }
        Ok(())
    }

    fn lock(&self, _name: &str) -> Result<Lock> {
        Ok(Lock { _file: None })
    }
}

/// An upload with all its parts sent; aborted when dropped before it was completed.
pub(super) struct StagedUpload {
    upload: Option<Box<dyn MultipartUpload>>,
    name: String,
}

impl std::fmt::Debug for StagedUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StagedUpload").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for StagedUpload {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) = (self.upload.take(), runtime()) {
            // An upload that cannot be aborted costs storage until the bucket's lifecycle rule clears it.
            let _ = runtime.block_on(upload.abort());
        }
    }
}

struct RemoteSink {
    path: String,
    staged: StagedUpload,
    buffer: Vec<u8>,
}

impl RemoteSink {
    fn send(&mut self) -> Result<()> {
        let part = PutPayload::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(PART_BYTES)));
        let upload = self.staged.upload.as_mut().ok_or_else(|| Error::internal("the upload has ended"))?;
        let sent = upload.put_part(part);
        runtime()?.block_on(sent).map_err(|e| Error::storage("uploading failed").at(self.staged.name.clone()).cause(e))
    }
}

impl Write for RemoteSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART_BYTES - self.buffer.len();
        let taken = room.min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == PART_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for RemoteSink {
    fn finish(mut self: Box<Self>) -> Result<Staged> {
        if !self.buffer.is_empty() {
            self.send()?;
        }
        let Self { path, staged, .. } = *self;
        Ok(Staged { path, inner: StagedInner::Upload(staged) })
    }
}

/// Reads an object in order, a large range per request.
struct RemoteReader {
    inner: Arc<dyn ObjectStore>,
    path: ObjectPath,
    name: String,
    at: u64,
    end: u64,
    ahead: Bytes,
}

impl Read for RemoteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            let end = (self.at + READ_BYTES).min(self.end);
            if end == self.at {
                return Ok(0);
            }
            self.ahead = runtime()?
                .block_on(self.inner.get_range(&self.path, self.at..end))
                .map_err(|e| Error::storage("reading failed").at(self.name.clone()).byte(self.at).cause(e))?;
            self.at += self.ahead.len() as u64;
        }
        let taken = self.ahead.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&self.ahead.split_to(taken));
        Ok(taken)
    }
}

/// The runtime that all remote stores share; made when the first remote call needs it.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build())
        .as_ref()
        .map_err(|e| {
            Error::internal("starting the network runtime failed").cause(io::Error::new(e.kind(), e.to_string()))
        })
}
