//! Remote stores (S3, Google Cloud, Azure, HTTP, memory) through the `object_store` crate.
//!
//! The crate is asynchronous; the rest of shardify is not. Calls block on a dedicated runtime, so they must not be made
//! from within another runtime. [`upload`](super::upload) describes how objects are written.

use std::{
    io::{self, Read},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    path::{Path as ObjectPath, PathPart},
};
use tokio::{runtime::Runtime, task::JoinHandle};

use super::{
    beneath::stays_below,
    connect,
    credentials::Credentials,
    listing::Listing,
    location::Location,
    pin::Pin,
    secrets::Secrets,
    settings::StoreSettings,
    store::{
        Existing, Listed, ObjectFacts, PutOutcome, Reading, Sink, Staged, Store, Visit, beyond_end, changed_object,
        missing_object,
    },
    upload::Uploads,
};
use crate::error::{Effect, Error, Kind, Result};

/// Maximum concurrent range requests.
const RANGES_IN_FLIGHT: usize = 16;

/// Bytes that are reserved for an object because its server says that it has as many.
const MOST_RESERVED: usize = 64 << 20;

/// Request timeout; long enough to send one part over a slow line.
const TIMEOUT: &str = "120 seconds";

/// Bytes of a sequential reader's first request: enough for a caller that reads only the beginning of an object.
const FIRST_BYTES: u64 = 1 << 20;

/// Bytes of each later request.
const READ_BYTES: u64 = 8 << 20;

/// Request timeout for web servers, which send a whole file as one response.
const WEB_TIMEOUT: &str = "1 day";

/// Maximum end of a range for which everything before it is read, too, from a web server that has no ranges.
const WEB_START: u64 = 16 << 20;

/// A store rooted at a prefix of an object store.
#[derive(Debug)]
pub struct RemoteStore {
    inner: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    location: Location,
    secrets: Secrets,
    uploads: Uploads,
    endpoint: Option<String>,
    /// What may be missing if requests are refused: no credentials were given.
    lacking: Option<Credentials>,
}

/// Environment variables of the server's address, without the cloud's prefix.
const ENDPOINTS: [&str; 5] = ["ENDPOINT_URL_S3", "ENDPOINT_URL", "ENDPOINT", "STORAGE_ENDPOINT", "BASE_URL"];

/// Prefixes of the clouds' environment variables.
const CLOUDS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// Returns scheme, host and port of a server that is not the cloud's own.
fn endpoint_of(settings: &StoreSettings) -> Option<String> {
    let named = |wanted: &str| {
        let is_it = |name: &str| {
            let name = name.to_ascii_uppercase();
            CLOUDS.iter().any(|cloud| name.strip_prefix(cloud) == Some(wanted)) || name == wanted
        };
        settings.iter().find(|(name, value)| is_it(name) && !value.is_empty()).map(|(_, value)| value)
    };
    let url = url::Url::parse(ENDPOINTS.iter().find_map(|name| named(name))?).ok()?;
    Some(url.origin().ascii_serialization())
}

impl RemoteStore {
    /// Opens the store of a URL; `settings` provide credentials and endpoints.
    ///
    /// # Errors
    /// When the URL or the settings do not name a store.
    pub fn open(location: &Location, settings: &StoreSettings) -> Result<Self> {
        let secrets = Secrets::new(location, settings);
        if location.is_web() && location.url().query().is_some() {
            return Err(Error::usage("expected a URL without a query")
                .at_location(location.to_string())
                .with_hint("download the file, or use an s3:, gs: or az: URL with credentials in the environment"));
        }
        // Characters that are not allowed in a header would cause a panic inside the library.
        let of_headers = |name: &str| name.starts_with("AWS_") || name.starts_with("AZURE_");
        let broken = |(name, value): &&(String, String)| of_headers(name) && value.contains(char::is_control);
        if let Some((name, _)) = settings.iter().find(broken) {
            return Err(Error::usage(format!("expected a setting of one line, found a control character in {name}"))
                .at_location(location.to_string())
                .with_hint("a line feed at the end often comes from reading the value from a file"));
        }
        let lacking = Credentials::find_lacking(location, settings);
        if let Some(lacking) = lacking {
            lacking.check_metadata_service(location)?;
        }
        connect::check_servers(location, settings)?;
        connect::check_files(settings)?;
        let timeout = if location.is_web() { WEB_TIMEOUT } else { TIMEOUT };
        let mut options = vec![("timeout".to_owned(), timeout.to_owned())];
        if location.url().scheme() == "http" {
            options.push(("allow_http".to_owned(), "true".to_owned()));
        }
        // As for other programs, an empty setting is none.
        let given = settings.iter().filter(|(_, value)| !value.is_empty());
        options.extend(given.map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        let (inner, prefix) = connect::open_client(location.url(), &options).map_err(|e| {
            Error::usage("opening the store failed")
                .at_location(location.to_string())
                .with_cause(secrets.redact_error(&e))
                .with_hint(
                    "credentials come from the usual environment variables, e.g. AWS_ACCESS_KEY_ID, AWS_REGION, \
                 GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME",
                )
        })?;
        let store = Self::from_parts(inner, prefix, location.clone(), secrets);
        Ok(Self { endpoint: endpoint_of(settings), lacking, ..store })
    }

    /// Creates a store in memory, which nobody else sees and nothing is left of.
    ///
    /// # Errors
    /// Never in practice.
    pub fn in_memory() -> Result<Self> {
        let location = Location::parse("memory:///", std::path::Path::new("/"))?;
        let inner: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        Ok(Self::from_parts(inner, ObjectPath::default(), location, Secrets::default()))
    }

    fn from_parts(inner: Arc<dyn ObjectStore>, prefix: ObjectPath, location: Location, secrets: Secrets) -> Self {
        let uploads = Uploads::new(Arc::clone(&inner), secrets.clone());
        Self { inner, prefix, location, secrets, uploads, endpoint: None, lacking: None }
    }

    /// Returns the same objects, relative to another location of the same store.
    ///
    /// # Errors
    /// When the location's path is not valid for an object store.
    pub fn rooted_at(&self, location: &Location) -> Result<Self> {
        let prefix = ObjectPath::from_url_path(location.url().path()).map_err(|e| {
            Error::usage("opening the store failed")
                .at_location(location.to_string())
                .with_cause(self.secrets.redact_error(&e))
        })?;
        let store = Self::from_parts(Arc::clone(&self.inner), prefix, location.clone(), self.secrets.clone());
        Ok(Self { lacking: self.lacking, ..store })
    }

    fn object_path(&self, path: &str) -> Result<ObjectPath> {
        let refused = || {
            Error::storage("the store does not accept this name").at_location(format!("{}, {path:?}", self.location))
        };
        let mut full = self.prefix.clone();
        // A folder may be named with a slash at its end.
        let named = path.strip_suffix('/').unwrap_or(path);
        if !named.is_empty() && !stays_below(named) {
            return Err(refused().with_hint("nothing is read, written or deleted outside of the folder"));
        }
        for part in named.split('/').filter(|part| !part.is_empty()) {
            full = full.join(PathPart::parse(part).map_err(|e| refused().with_cause(e))?);
        }
        Ok(full)
    }

    fn operation_error(&self, path: &str, doing: &str, cause: &StoreError) -> Error {
        let error = self.secrets.operation_error(doing, cause).at_location(self.location.join(path).to_string());
        match self.lacking {
            Some(lacking) => lacking.add_hints(error),
            None => error,
        }
    }

    /// Reads a file of a plain web server as one response; such a server need not support ranges.
    fn read_web(&self, path: &str, at: &ObjectPath) -> Result<Box<dyn Read + Send>> {
        match shared_runtime()?.block_on(self.inner.get(at)) {
            Ok(result) => Ok(Box::new(WebReader {
                body: result.into_stream(),
                name: self.location.join(path).to_string(),
                secrets: self.secrets.clone(),
                ahead: Bytes::new(),
                at: 0,
            })),
            Err(StoreError::NotFound { .. }) => Err(missing_object(&self.location, path)),
            Err(e) => Err(self.operation_error(path, "reading", &e)),
        }
    }

    /// Reads an object range by range, all ranges from one version. Of `start` only about so many bytes are read.
    fn read_ranges(&self, path: &str, at: ObjectPath, pin: &Pin, start: Option<u64>) -> Result<Box<dyn Read + Send>> {
        let first = async {
            match self.range_of(path, &at, 0..start.unwrap_or(FIRST_BYTES), pin).await {
                Ok(first) => Ok(Some(first)),
                Err(Failed::Version(e)) => Err(e),
                Err(Failed::Store(StoreError::NotFound { .. })) => Err(missing_object(&self.location, path)),
                // An empty object has no valid range.
                Err(Failed::Store(e)) => match self.inner.head(&at).await {
                    Ok(meta) if meta.size == 0 => Ok(None),
                    _ => Err(self.operation_error(path, "reading", &e)),
                },
            }
        };
        let (ahead, end) = shared_runtime()?.block_on(first)?.unwrap_or_default();
        Ok(Box::new(RemoteReader {
            store: self.reader_handle(),
            at_path: at,
            path: path.to_owned(),
            pin: pin.clone(),
            at: ahead.len() as u64,
            end,
            ahead,
            next: None,
            is_start: start.is_some(),
        }))
    }

    /// Returns a handle with the state that reading tasks need.
    fn reader_handle(&self) -> Arc<Self> {
        let (inner, prefix) = (Arc::clone(&self.inner), self.prefix.clone());
        let store = Self::from_parts(inner, prefix, self.location.clone(), self.secrets.clone());
        Arc::new(Self { lacking: self.lacking, ..store })
    }

    /// Reads a range of the version that `pin` names; returns it with the size of the object.
    async fn range_of(
        &self,
        path: &str,
        at: &ObjectPath,
        range: Range<u64>,
        pin: &Pin,
    ) -> std::result::Result<(Bytes, u64), Failed> {
        let range = Some(GetRange::Bounded(range));
        let options = GetOptions { range, if_match: pin.if_match_tag(), ..GetOptions::default() };
        let answer = match self.inner.get_opts(at, options).await {
            Err(StoreError::Precondition { .. }) => {
                return Err(Failed::Version(pin.version_changed("another one", &self.location, path)));
            }
            answer => answer.map_err(Failed::Store)?,
        };
        pin.check_etag(answer.meta.e_tag.as_deref(), &self.location, path).map_err(Failed::Version)?;
        let size = answer.meta.size;
        Ok((answer.bytes().await.map_err(Failed::Store)?, size))
    }

    /// Reads a range that must exist completely.
    async fn whole_range(&self, path: &str, at: &ObjectPath, range: Range<u64>, pin: &Pin) -> Result<Bytes> {
        let expected = range.end.saturating_sub(range.start);
        if expected == 0 {
            return Ok(Bytes::new());
        }
        match self.range_of(path, at, range.clone(), pin).await {
            Ok((bytes, _)) if bytes.len() as u64 == expected => Ok(bytes),
            Ok((_, size)) if size < range.end => Err(beyond_end(&self.location, path, &range, size)),
            Ok((bytes, _)) => Err(Error::storage(format!("expected {expected} bytes, found {}", bytes.len()))
                .at_location(self.location.join(path).to_string())
                .at_byte(range.start)),
            Err(Failed::Version(e)) => Err(e),
            Err(Failed::Store(StoreError::NotFound { .. })) => Err(missing_object(&self.location, path)),
            Err(Failed::Store(e @ StoreError::NotSupported { .. })) if self.location.is_web() => {
                if range.end > WEB_START {
                    return Err(self
                        .operation_error(path, "reading", &e)
                        .at_byte(range.start)
                        .with_hint("the server sends whole files alone: download the file and pass its path"));
                }
                self.range_of_whole(path, at, range).await
            }
            Err(Failed::Store(e)) => match self.inner.head(at).await {
                // Servers reject ranges that begin after the end.
                Ok(meta) if meta.size < range.end => Err(beyond_end(&self.location, path, &range, meta.size)),
                _ => Err(self.operation_error(path, "reading", &e).at_byte(range.start)),
            },
        }
    }

    /// Reads a range of what a web server sends from the start on.
    async fn range_of_whole(&self, path: &str, at: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        let failed = |e: StoreError| self.operation_error(path, "reading", &e).at_byte(range.start);
        let mut body = self.inner.get(at).await.map_err(failed)?.into_stream();
        let mut start = BytesMut::new();
        while (start.len() as u64) < range.end
            && let Some(piece) = body.next().await
        {
            start.extend_from_slice(&piece.map_err(failed)?);
        }
        let within = |at: u64| usize::try_from(at).ok().filter(|at| *at <= start.len());
        match within(range.start).zip(within(range.end)) {
            Some((first, end)) => Ok(start.freeze().slice(first..end)),
            None => Err(beyond_end(&self.location, path, &range, start.len() as u64)),
        }
    }

    /// Fails for plain web servers, which cannot list.
    fn check_lists(&self, folder: &str) -> Result<()> {
        if !self.location.is_web() {
            return Ok(());
        }
        Err(Error::usage("expected the URL of a file, found none at this URL")
            .at_location(self.location.join(folder).to_string())
            .with_hint("web servers cannot list folders: pass the URLs of single files"))
    }

    fn relative_path(&self, path: &ObjectPath) -> String {
        match path.prefix_match(&self.prefix) {
            Some(parts) => parts.map(|p| p.as_ref().to_owned()).collect::<Vec<_>>().join("/"),
            None => path.to_string(),
        }
    }

    fn object_facts(&self, meta: &object_store::ObjectMeta) -> ObjectFacts {
        let modified = Timestamp::from_microsecond(meta.last_modified.timestamp_micros()).unwrap_or_default();
        ObjectFacts { path: self.relative_path(&meta.location), bytes: meta.size, modified, etag: meta.e_tag.clone() }
    }

    /// Opens a range of an object.
    fn range_reader(&self, path: &str, at_path: ObjectPath, range: Range<u64>, pin: &Pin) -> RemoteReader {
        RemoteReader {
            store: self.reader_handle(),
            at_path,
            path: path.to_owned(),
            pin: pin.clone(),
            at: range.start,
            end: range.end,
            ahead: Bytes::new(),
            next: None,
            is_start: false,
        }
    }

    fn delete_one(&self, path: &str) -> Result<()> {
        let at = self.object_path(path)?;
        match shared_runtime()?.block_on(self.inner.delete(&at)) {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.operation_error(path, "deleting", &e)),
        }
    }
}

impl Store for RemoteStore {
    fn location(&self) -> &Location {
        &self.location
    }

    fn endpoint(&self) -> Option<String> {
        self.endpoint.clone()
    }

    fn head(&self, path: &str) -> Result<Option<ObjectFacts>> {
        let at = self.object_path(path)?;
        match shared_runtime()?.block_on(self.inner.head(&at)) {
            Ok(meta) => Ok(Some(self.object_facts(&meta))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.operation_error(path, "accessing the object", &e)),
        }
    }

    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool> {
        let at = self.object_path(path)?;
        let start = into.len();
        let fetch = async {
            let result = self.inner.get(&at).await?;
            let found = result.meta.size;
            if bytes.is_none_or(|bytes| bytes == found) {
                into.reserve(usize::try_from(found).unwrap_or(0).min(MOST_RESERVED));
                let mut body = result.into_stream();
                while let Some(piece) = body.next().await {
                    into.extend_from_slice(&piece?);
                }
            }
            Ok(found)
        };
        match shared_runtime()?.block_on(fetch) {
            Ok(found) if bytes.is_some_and(|bytes| bytes != found || (into.len() - start) as u64 != bytes) => {
                Err(changed_object(&self.location, path, bytes.unwrap_or_default(), &found.to_string()))
            }
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(e) => Err(self.operation_error(path, "reading", &e)),
        }
    }

    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>> {
        let at = self.object_path(path)?;
        let fetched: Vec<_> = ranges.iter().map(|range| self.whole_range(path, &at, range.clone(), pin)).collect();
        shared_runtime()?.block_on(stream::iter(fetched).buffered(RANGES_IN_FLIGHT).try_collect())
    }

    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let at = self.object_path(path)?;
        let options = GetOptions { range: Some(GetRange::Suffix(bytes)), ..GetOptions::default() };
        let fetch = async {
            let result = self.inner.get_opts(&at, options).await?;
            let size = result.meta.size;
            Ok((result.bytes().await?, size))
        };
        match shared_runtime()?.block_on(fetch) {
            Ok((end, size)) if end.len() as u64 == bytes.min(size) => Ok(Some((end, size))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            // Not every store supports suffix ranges, and none of them for an empty or missing object.
            Ok(_) | Err(_) => {
                let Some(facts) = self.head(path)? else { return Ok(None) };
                let start = facts.bytes.saturating_sub(bytes);
                let end =
                    shared_runtime()?.block_on(self.whole_range(path, &at, start..facts.bytes, &Pin::default()))?;
                Ok(Some((end, facts.bytes)))
            }
        }
    }

    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>> {
        let at = self.object_path(path)?;
        let web = self.location.is_web();
        match reading {
            // A single response of a web server is always of one version.
            Reading::Whole(_) | Reading::Back if web => self.read_web(path, &at),
            Reading::Whole(pin) => self.read_ranges(path, at, pin, None),
            Reading::Back => self.read_ranges(path, at, &Pin::default(), None),
            Reading::Range(range, pin) => Ok(Box::new(self.range_reader(path, at, range, pin))),
            Reading::Start(bytes) => match self.read_ranges(path, at.clone(), &Pin::default(), Some(bytes)) {
                // A plain web server need not support ranges.
                Err(_) if web => self.read_web(path, &at),
                begun => begun,
            },
        }
    }

    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()> {
        self.check_lists(folder)?;
        let at = self.object_path(folder)?;
        let mut listing = Listing::new(&self.inner, (!at.as_ref().is_empty()).then_some(at));
        let runtime = shared_runtime()?;
        while let Some(meta) = runtime.block_on(listing.next()) {
            let meta = meta.map_err(|e| self.operation_error(folder, "listing", &e))?;
            if visit(Listed::Object(self.object_facts(&meta)))?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, path: &str, bytes: Bytes, existing: Existing) -> Result<PutOutcome> {
        let at = self.object_path(path)?;
        if existing == Existing::Replace {
            let put = shared_runtime()?.block_on(self.inner.put(&at, bytes.into()));
            return put.map(|_| PutOutcome::Created).map_err(|e| self.operation_error(path, "writing", &e));
        }
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match shared_runtime()?.block_on(self.inner.put_opts(&at, bytes.into(), options)) {
            Ok(_) => Ok(PutOutcome::Created),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(PutOutcome::Exists),
            Err(e @ (StoreError::NotImplemented { .. } | StoreError::NotSupported { .. })) => {
                Err(self.operation_error(path, "a conditional create", &e).with_hint(
                    "this store cannot hold a dataset: it does not support create-if-absent, without which concurrent \
                     commits lose records",
                ))
            }
            Err(e) => Err(self.operation_error(path, "creating", &e).with_effect(Effect::Possible)),
        }
    }

    fn delete_all(&self, paths: &[String]) -> Result<()> {
        if let [path] = paths {
            return self.delete_one(path);
        }
        let all = paths.iter().map(|path| self.object_path(path)).collect::<Result<Vec<_>>>()?;
        let deleted = async {
            // In as few requests as the store takes.
            let mut deleted = self.inner.delete_stream(stream::iter(all).map(Ok).boxed());
            while let Some(one) = deleted.next().await {
                match one {
                    Ok(_) | Err(StoreError::NotFound { .. }) => {}
                    Err(e) => return Err(self.operation_error("", "deleting", &e)),
                }
            }
            Ok(())
        };
        shared_runtime()?.block_on(deleted)
    }

    fn create_sink(&self, path: &str) -> Result<Box<dyn Sink>> {
        Ok(Box::new(self.uploads.create_sink(path, self.object_path(path)?, self.location.join(path))))
    }

    fn name_staged(&self, staged: Vec<Staged>, existing: Existing) -> Result<()> {
        match existing {
            Existing::Replace => self.uploads.replace_staged(staged),
            Existing::Keep => self.uploads.publish_staged(staged, &self.location),
        }
    }
}

/// Reason why a range request failed.
enum Failed {
    Store(StoreError),
    /// The version of the object has changed.
    Version(Error),
}

/// Reads an object sequentially with large range requests; the next range is fetched while the current one is consumed.
struct RemoteReader {
    store: Arc<RemoteStore>,
    at_path: ObjectPath,
    path: String,
    pin: Pin,
    /// Offset of the next request.
    at: u64,
    end: u64,
    ahead: Bytes,
    next: Option<JoinHandle<Result<Bytes>>>,
    /// Whether the caller reads only the beginning, so that nothing is fetched before it is asked for.
    is_start: bool,
}

impl RemoteReader {
    /// Starts the request for the next range.
    fn request_next(&mut self) -> Result<()> {
        let bytes = if self.is_start { FIRST_BYTES } else { READ_BYTES };
        let range = self.at..(self.at + bytes).min(self.end);
        if range.is_empty() {
            return Ok(());
        }
        self.at = range.end;
        let (store, pin) = (Arc::clone(&self.store), self.pin.clone());
        let (path, at) = (self.path.clone(), self.at_path.clone());
        let fetch = async move { store.whole_range(&path, &at, range, &pin).await };
        self.next = Some(shared_runtime()?.spawn(fetch));
        Ok(())
    }

    fn await_bytes(&mut self, next: JoinHandle<Result<Bytes>>) -> Result<Bytes> {
        let (location, size) = (&self.store.location, self.end);
        match shared_runtime()?.block_on(next) {
            // The object had these bytes when the first ones were read.
            Ok(Err(e)) if e.kind() == Kind::Input => {
                Err(changed_object(location, &self.path, size, "fewer").with_cause(e))
            }
            Ok(taken) => taken,
            Err(e) => {
                let error = Error::storage("reading failed").at_location(location.join(&self.path).to_string());
                Err(error.with_cause(self.store.secrets.redact_error(&e)))
            }
        }
    }
}

impl Read for RemoteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let low = if self.is_start { 1 } else { FIRST_BYTES / 2 };
        if self.next.is_none() && (self.ahead.len() as u64) < low {
            self.request_next()?;
        }
        if self.ahead.is_empty()
            && let Some(next) = self.next.take()
        {
            self.ahead = self.await_bytes(next)?;
        }
        let taken = self.ahead.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&self.ahead.split_to(taken));
        Ok(taken)
    }
}

impl Drop for RemoteReader {
    fn drop(&mut self) {
        if let Some(next) = &self.next {
            next.abort();
        }
    }
}

/// Reads the response of a web server.
struct WebReader {
    body: BoxStream<'static, object_store::Result<Bytes>>,
    name: String,
    secrets: Secrets,
    ahead: Bytes,
    at: u64,
}

impl Read for WebReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ahead.is_empty() {
            match shared_runtime()?.block_on(self.body.next()) {
                None => return Ok(0),
                Some(Ok(bytes)) => self.ahead = bytes,
                Some(Err(e)) => {
                    let error = Error::storage("reading failed").at_location(self.name.clone()).at_byte(self.at);
                    return Err(error.with_cause(self.secrets.redact_error(&e)).into());
                }
            }
        }
        let taken = self.ahead.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&self.ahead.split_to(taken));
        self.at += taken as u64;
        Ok(taken)
    }
}

/// Returns the runtime that all remote stores of this process share; the first remote call creates it.
///
/// A forked child has the memory of its parent without the threads, so it makes a runtime of its own.
pub(super) fn shared_runtime() -> Result<&'static Runtime> {
    static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
    let mut shared = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((owner, runtime)) = *shared
        && owner == process
    {
        return Ok(runtime);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Error::storage("starting the network runtime failed").with_cause(e))?;
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    *shared = Some((process, runtime));
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_reported_without_secrets() {
        let endpoint = |name: &str, value: &str| {
            endpoint_of(&StoreSettings::new(vec![("AWS_REGION".into(), "x".into()), (name.into(), value.into())]))
        };
        let minio = Some("http://minio:9000".to_owned());
        assert_eq!(endpoint("AWS_ENDPOINT_URL", "http://me:secret@minio:9000/path?x"), minio);
        assert_eq!(endpoint("aws_endpoint", "http://minio:9000"), minio);
        assert_eq!(endpoint("AZURE_STORAGE_ENDPOINT", "http://minio:9000"), minio);
        assert_eq!(endpoint("AWS_ENDPOINT", ""), None);
        assert_eq!(endpoint("MY_ENDPOINT", "http://minio:9000"), None);
    }
}
