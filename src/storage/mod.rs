//! Where bytes live: local folders and object stores behind one small, blocking interface.
//!
//! Every path is a URL inside ([`Location`]); a [`Store`] is rooted at one location and takes paths relative to it,
//! separated by `/`. Only this module opens files for writing, and it promises:
//!
//! - `put` is atomic and durable: after it returns the object is there whole, before that it is not there at all;
//! - `put_if_absent` lets exactly one of several writers win;
//! - a [`Sink`] writes to a staging place that no listing of shards shows; [`Store::publish`] gives all staged objects
//!   their names, and durably so: file contents are synced before, folders after the renames;
//! - [`Store::publish`] never replaces an object: a name that is taken is a conflict, and names that the call has given
//!   before are taken back. The few objects that are replaced go through [`Store::put`] and [`Store::replace`];
//! - a staged object that is dropped is removed; after a crash it stays in the staging folder, never under its name.
//!
//! Local folders have their own implementation because a general object store neither syncs by default nor writes a
//! large file without copying it through small buffers; everything else goes through the `object_store` crate.

mod back;
mod checks;
mod deliver;
mod durable;
mod folder;
mod listing;
mod local;
mod location;
mod naming;
mod object;
mod pin;
mod ranges;
mod save;
mod scratch;
mod secrets;
mod settings;
mod sink;
mod spill;
mod spool;
pub mod sys;
mod upload;
mod walk;
mod watch;

use std::{
    io::{Read, Write},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use jiff::Timestamp;

pub use checks::{DAMAGED_BLOCK, RESTORE};
pub use deliver::{append_line, post_json};
pub use folder::Folder;
pub use local::LocalStore;
pub use location::Location;
pub use object::RemoteStore;
pub use pin::Pin;
pub use ranges::Ahead;
pub use scratch::{Scratch, ScratchPath};
pub use secrets::plain_urls;
pub use settings::{Opener, StoreSettings};
pub use spill::Spill;
pub use spool::Spool;
pub use watch::{Watch, listening, watched};

use self::{
    checks::Checks,
    ranges::{Fetched, part},
};
use crate::{
    codec::seal::{Blocks, Seal},
    error::{Error, Kind, Result},
};

/// Folder of a dataset, relative to its root, that holds everything but the shards.
pub const SYSTEM_FOLDER: &str = "_shardify";

/// Facts about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Path relative to the store's root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// When it was last written.
    pub modified: Timestamp,
    /// Entity tag, where the store has one.
    pub etag: Option<String>,
}

/// What a listing comes across.
#[derive(Debug)]
pub enum Listed {
    /// An object.
    Object(ObjectFacts),
    /// Path of a link to a folder; what is behind it is not listed, so that no listing goes round in circles.
    FolderLink(String),
    /// Something that cannot be listed: a folder that cannot be read, a name that is not UTF-8.
    Fault(Error),
}

impl Listed {
    /// Path of what can be listed.
    fn path(&self) -> &str {
        match self {
            Self::Object(facts) => &facts.path,
            Self::FolderLink(path) => path,
            Self::Fault(_) => "",
        }
    }
}

/// What became of a conditional create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object was created by this call.
    Created,
    /// Somebody's object is already there; nothing was written.
    Exists,
}

/// A rooted place for objects. All calls block; implementations are safe to share between threads.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The root.
    fn location(&self) -> &Location;

    /// Scheme, host and port of the server, where it is not the one that the location implies.
    fn endpoint(&self) -> Option<String> {
        None
    }

    /// Reads a whole object; `None` when there is none.
    ///
    /// # Errors
    /// [`Kind::Storage`](crate::error::Kind::Storage) when the store fails.
    fn get(&self, path: &str) -> Result<Option<Bytes>>;

    /// Reads a byte range of an object.
    ///
    /// # Errors
    /// When the object is missing or the store fails; of kind [`Kind::Input`](crate::error::Kind::Input) when it ends before
    /// the range does.
    fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes>;

    /// Reads several ranges of an object, several at a time where each is a request.
    ///
    /// # Errors
    /// As [`Self::get_range`].
    fn get_ranges(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        ranges.iter().map(|range| self.get_range(path, range.clone())).collect()
    }

    /// As [`Self::get_ranges`], of the version of the object that `pin` names; the first answer sets what it does not know.
    ///
    /// # Errors
    /// As [`Self::get_ranges`], and when the object is another one by now.
    fn get_ranges_of(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>> {
        let _ = pin;
        self.get_ranges(path, ranges)
    }

    /// The last bytes of an object, as many as there are up to `bytes`, and its size; `None` when there is none.
    ///
    /// # Errors
    /// When the store fails.
    fn tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>> {
        let Some(facts) = self.head(path)? else { return Ok(None) };
        let start = facts.bytes.saturating_sub(bytes);
        let end = if start < facts.bytes { self.get_range(path, start..facts.bytes)? } else { Bytes::new() };
        Ok(Some((end, facts.bytes)))
    }

    /// Facts of an object; `None` when there is none.
    ///
    /// # Errors
    /// When the store fails.
    fn head(&self, path: &str) -> Result<Option<ObjectFacts>>;

    /// Looks that objects are there, and of the size that is given.
    ///
    /// # Errors
    /// When one of them is missing or has another size, which the error names, or the store fails.
    fn check_present(&self, objects: &[(&str, Option<u64>)]) -> Result<()> {
        objects.iter().try_for_each(|(path, bytes)| present(self.location(), path, *bytes, self.head(path)?))
    }

    /// Opens an object for reading from its first byte.
    ///
    /// # Errors
    /// When the object is missing or the store fails.
    fn read(&self, path: &str) -> Result<Box<dyn Read + Send>>;

    /// As [`Self::read`], of the version of the object that `pin` names; the first answer sets what it does not know.
    ///
    /// # Errors
    /// As [`Self::read`], and reading fails when the object is another one by now.
    fn read_of(&self, path: &str, pin: &Pin) -> Result<Box<dyn Read + Send>> {
        let _ = pin;
        self.read(path)
    }

    /// As [`Self::read`], for who looks only at how an object begins.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn begin(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        self.read(path)
    }

    /// As [`Self::read`], for an object that was just written and is read once: from where it is kept, if there is a way.
    ///
    /// # Errors
    /// When the object is missing or the store fails.
    fn read_back(&self, path: &str) -> Result<Box<dyn Read + Send>> {
        self.read(path)
    }

    /// Appends a whole object that had `bytes` bytes when it was listed to `into`; when it fails, part of it.
    ///
    /// # Errors
    /// When the object is missing or has another size.
    fn read_whole(&self, path: &str, bytes: u64, into: &mut Vec<u8>) -> Result<()>;

    /// Shows every object below a folder (`""` is the root) to `visit`, in any order, holding few of them at a time.
    ///
    /// # Errors
    /// When the store fails, or whatever `visit` fails with; a missing folder is empty.
    fn walk(&self, folder: &str, visit: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()>;

    /// Every object below a folder, sorted by path.
    ///
    /// # Errors
    /// When the store fails; a missing folder is empty.
    fn list(&self, folder: &str) -> Result<Vec<ObjectFacts>> {
        let mut out = Vec::new();
        self.walk(folder, &mut |listed| {
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

    /// Path of the first object below a folder, by name, whose path is `wanted`.
    ///
    /// # Errors
    /// When the store fails.
    fn first(&self, folder: &str, wanted: &dyn Fn(&str) -> bool) -> Result<Option<String>> {
        Ok(self.list(folder)?.into_iter().map(|o| o.path).find(|path| wanted(path)))
    }

    /// Writes an object whole, replacing any.
    ///
    /// # Errors
    /// When the store fails; then the old object, if any, is still there.
    fn put(&self, path: &str, bytes: Bytes) -> Result<()>;

    /// Writes an object only if there is none.
    ///
    /// # Errors
    /// When the store fails. [`Error::effect`] tells whether the object may have been created: where that is possible it has
    /// to be read back, where it is certain the object is there but may not survive a power cut.
    fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome>;

    /// Deletes an object; a missing one is no error.
    ///
    /// # Errors
    /// When the store fails.
    fn delete(&self, path: &str) -> Result<()>;

    /// Waits until the deletions of these objects are durable, so that no loss of power brings them back.
    ///
    /// # Errors
    /// When the store fails.
    fn settle_deletions(&self, paths: &[String]) -> Result<()> {
        let _ = paths;
        Ok(())
    }

    /// Starts to write a large object that [`Store::publish`] will give the name `path`.
    ///
    /// # Errors
    /// When the store fails.
    fn create(&self, path: &str) -> Result<Box<dyn Sink>>;

    /// Makes an object of the bytes at another location without copying them; [`Store::publish`] will give it the name
    /// `path`. `None` where that cannot be done: remote stores, and other file systems.
    ///
    /// # Errors
    /// When the store fails.
    fn link(&self, source: &Location, path: &str) -> Result<Option<Staged>> {
        let _ = (source, path);
        Ok(None)
    }

    /// Waits until the bytes of all staged objects are durable, then gives them their names, in order, and durably so.
    /// Nothing is replaced.
    ///
    /// # Errors
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) when one of the names is taken, which the error names, and whatever
    /// the store fails with. Names that this call has given are taken back; where that fails too, or where the answer of a
    /// store was lost, objects are left that no entry of the log refers to.
    fn publish(&self, staged: Vec<Staged>) -> Result<()>;

    /// As [`Self::publish`], but replaces what has the names already: for the few objects that are no part of a version.
    ///
    /// # Errors
    /// When the store fails; some of them may have got their names.
    fn replace(&self, staged: Vec<Staged>) -> Result<()>;

    /// The time by the clock that dates the objects of this store; one that is shared has to write the object `probe` to
    /// learn it.
    ///
    /// # Errors
    /// When the store fails.
    fn now(&self, probe: &str) -> Result<Timestamp> {
        let _ = probe;
        Ok(Timestamp::now())
    }

    /// Whether a process holds a lock; `None` where that cannot be known. Writes nothing.
    ///
    /// # Errors
    /// When the store fails.
    fn is_locked(&self, name: &str) -> Result<Option<bool>> {
        let _ = name;
        Ok(None)
    }

    /// Takes a lock that ends with the process, so that two runs of one command do not write the same names.
    ///
    /// # Errors
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) when another process holds it. Stores without locks succeed.
    fn lock(&self, name: &str) -> Result<Lock>;
}

/// An object being written.
pub trait Sink: Write + Send {
    /// Appends up to `bytes` bytes of `source` and shows them to `look` in pieces as they pass; returns how many there
    /// were, which are fewer only where the source ends.
    ///
    /// Copying within the kernel would be no faster: whoever copies also wants to know what was copied, so the bytes have
    /// to come by once, and where they end up they are seldom aligned as a file system that shares blocks needs it.
    ///
    /// # Errors
    /// When the source or the store fails, or whatever `look` fails with.
    fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut buffer = vec![0; PIECE];
        let mut taken = 0;
        while taken < bytes {
            let want = usize::try_from(bytes - taken).unwrap_or(PIECE).min(PIECE);
            let n = read_some(source, &mut buffer[..want])?;
            if n == 0 {
                break;
            }
            look(&buffer[..n])?;
            self.write_all(&buffer[..n])?;
            taken += n as u64;
        }
        Ok(taken)
    }

    /// Ends the object; it has no name yet. Its bytes are on their way to the disk: [`Store::publish`] waits for them.
    ///
    /// # Errors
    /// When the store fails.
    fn finish(self: Box<Self>) -> Result<Staged>;
}

/// Most bytes that pass at a time, so that who goes on with them finds them in the processor's cache.
const PIECE: usize = 128 << 10;

/// Reads what is there, once.
fn read_some(source: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// A complete object without a name. Dropping it removes it.
#[derive(Debug)]
pub struct Staged {
    /// The name it will get.
    pub path: String,
    inner: StagedInner,
    seal: Option<Seal>,
}

#[derive(Debug)]
enum StagedInner {
    File(local::StagedFile),
    Upload(upload::StagedUpload),
}

impl Staged {
    fn new(path: impl Into<String>, inner: StagedInner) -> Self {
        Self { path: path.into(), inner, seal: None }
    }

    /// The same with what its bytes have to be.
    #[must_use]
    pub fn sealed(self, seal: Option<Seal>) -> Self {
        Self { seal, ..self }
    }

    /// What its bytes have to be, where whoever wrote it has said so.
    pub fn seal(&self) -> Option<Seal> {
        self.seal
    }

    /// Path in its store at which it can be read before it has its name; `None` where nothing can be read before that.
    pub fn readable_at(&self, store: &dyn Store) -> Option<String> {
        match &self.inner {
            StagedInner::File(file) => file.path_below(store.location().local_path()?),
            StagedInner::Upload(_) => None,
        }
    }
}

/// Held while a run writes; see [`Store::lock`].
#[derive(Debug)]
pub struct Lock {
    _file: Option<std::fs::File>,
}

/// One readable object of known size.
#[derive(Debug, Clone)]
pub struct Object {
    store: Arc<dyn Store>,
    path: String,
    bytes: u64,
    /// What was fetched of a remote object.
    remote: Option<Arc<Remote>>,
    /// What its bytes have to be, where that is known.
    checks: Option<Arc<Checks>>,
}

/// Bytes that a request to a remote store asks for at least, unless just these are wanted.
const WINDOW: u64 = 1 << 20;

/// What is held of a remote object.
#[derive(Debug, Default)]
struct Remote {
    /// What was fetched last: small ranges lie side by side, and each would be a request.
    window: Mutex<(u64, Bytes)>,
    /// What was asked for ahead.
    fetched: Arc<Fetched>,
    /// The version that all reads must be of.
    pin: Pin,
}

impl Object {
    /// Names an object of a store; `bytes` is its size.
    pub fn new(store: Arc<dyn Store>, path: impl Into<String>, bytes: u64) -> Self {
        let remote = store.location().local_path().is_none().then(Arc::default);
        Self { store, path: path.into(), bytes, remote, checks: None }
    }

    /// The same, whose ranges are checked block by block as they are read. `tail` is what follows the blocks, checked
    /// already.
    #[must_use]
    pub fn checked(self, blocks: Blocks, tail: Bytes) -> Self {
        Self { checks: Some(Arc::new(Checks { blocks, tail })), ..self }
    }

    /// The same, of the version that has this entity tag.
    #[must_use]
    pub fn of_version(mut self, etag: Option<&str>) -> Self {
        if self.remote.is_some() {
            self.remote = Some(Arc::new(Remote { pin: Pin::new(etag), ..Remote::default() }));
        }
        self
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Path within its store.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether reading it takes requests over a network.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Reads another object of the same folder whole; `None` when there is none.
    ///
    /// # Errors
    /// When the store fails.
    pub fn sibling(&self, name: &str) -> Result<Option<Bytes>> {
        let folder = self.path.rfind('/').map_or("", |slash| &self.path[..=slash]);
        self.store.get(&format!("{folder}{name}"))
    }

    /// Reads a range; of a remote object, what follows a small one too.
    ///
    /// # Errors
    /// When the object is missing or shorter than the range.
    pub fn range(&self, range: Range<u64>) -> Result<Bytes> {
        match &self.checks {
            Some(checks) => checks.range(self, &range),
            None => self.fetched(range),
        }
    }

    fn fetched(&self, range: Range<u64>) -> Result<Bytes> {
        let length = range.end.saturating_sub(range.start);
        let Some(remote) = &self.remote else { return self.fetch(range) };
        if let Some(found) = remote.fetched.get(&range) {
            return Ok(found);
        }
        if length >= WINDOW || range.end > self.bytes {
            return self.fetch(range);
        }
        let mut window = remote.window.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = part(window.0, &window.1, &range) {
            return Ok(found);
        }
        // Readers of Parquet begin at the end and go backwards from there.
        let start =
            if range.end == self.bytes { range.start.min(self.bytes.saturating_sub(WINDOW)) } else { range.start };
        let end = (start + WINDOW).clamp(range.end, self.bytes.max(range.end));
        let bytes = self.fetch(start..end)?;
        *window = (start, bytes);
        part(window.0, &window.1, &range).ok_or_else(|| Error::internal("a range is not in what was fetched for it"))
    }

    /// A range of a remote object that is in memory already.
    pub fn known(&self, range: &Range<u64>) -> Option<Bytes> {
        // What is checked is read in blocks.
        let remote = self.remote.as_ref().filter(|_| self.checks.is_none())?;
        remote.fetched.get(range).or_else(|| {
            let window = remote.window.lock().unwrap_or_else(PoisonError::into_inner);
            part(window.0, &window.1, range)
        })
    }

    /// Reads a range and nothing else, for who knows that it lies alone.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn piece(&self, range: Range<u64>) -> Result<Bytes> {
        if self.checks.is_some() {
            return self.range(range);
        }
        match self.known(&range) {
            Some(found) => Ok(found),
            None => self.fetch(range),
        }
    }

    /// Reads a range from the store.
    fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        if range.end > self.bytes {
            return Err(beyond(self.store.location(), &self.path, &range, self.bytes));
        }
        let found = match &self.remote {
            Some(remote) => self
                .store
                .get_ranges_of(&self.path, std::slice::from_ref(&range), &remote.pin)
                .and_then(|found| found.into_iter().next().ok_or_else(|| Error::internal("a range has no answer"))),
            None => self.store.get_range(&self.path, range),
        };
        // It had these bytes when it was listed.
        let found = found.map_err(|e| match e.kind() {
            Kind::Input => changed(self.store.location(), &self.path, self.bytes, "fewer").cause(e),
            _ => e,
        });
        found.inspect_err(watch::tell)
    }

    /// Asks for ranges before they are read, several at a time, neighbours together; as long as what is returned lives they
    /// are in memory. `None` where nothing would be gained. Ranges beyond the end are left to who reads them.
    ///
    /// # Errors
    /// When the store fails.
    pub fn ahead(&self, mut wanted: Vec<Range<u64>>) -> Result<Option<Ahead>> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let window = {
            let window = remote.window.lock().unwrap_or_else(PoisonError::into_inner);
            window.0..window.0 + window.1.len() as u64
        };
        wanted.retain(|range| range.end <= self.bytes && !(window.start <= range.start && range.end <= window.end));
        let requests = ranges::requests(wanted);
        if requests.is_empty() {
            return Ok(None);
        }
        let found = self.store.get_ranges_of(&self.path, &requests, &remote.pin).inspect_err(watch::tell)?;
        Ok(Some(remote.fetched.hold(requests.iter().map(|range| range.start).zip(found))))
    }

    /// Opens it from its first byte.
    ///
    /// # Errors
    /// When the object is missing.
    pub fn read(&self) -> Result<Box<dyn Read + Send>> {
        let opened = match &self.remote {
            Some(remote) => self.store.read_of(&self.path, &remote.pin),
            None => self.store.read(&self.path),
        };
        let place = self.store.location().join(&self.path).to_string();
        Ok(Box::new(watch::TellingReader(opened.inspect_err(watch::tell)?, place)))
    }

    /// Opens it for who looks only at how it begins.
    ///
    /// # Errors
    /// When the object is missing.
    pub fn begin(&self) -> Result<Box<dyn Read + Send>> {
        self.store.begin(&self.path)
    }

    /// Opens it from its first byte, as [`Store::read_back`] does.
    ///
    /// # Errors
    /// When the object is missing.
    pub fn read_back(&self) -> Result<Box<dyn Read + Send>> {
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
        self.range(start..start + length as u64)
            .map_err(|e| parquet::errors::ParquetError::External(Box::new(std::io::Error::from(e))))
    }
}

/// Reads an object onwards from an offset, a request per call.
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
        let bytes = self.object.range(self.at..end)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }
}

/// Opens the store rooted at a location.
///
/// # Errors
/// When the scheme is unknown or the settings are incomplete.
pub fn open(location: &Location, settings: &StoreSettings) -> Result<Arc<dyn Store>> {
    if let Some(opener) = settings.opener() {
        return opener(location);
    }
    match location.local_path() {
        Some(path) => Ok(Arc::new(LocalStore::new(path.to_owned()))),
        None => Ok(Arc::new(RemoteStore::open(location, settings)?)),
    }
}

/// Writes a file for the user, anywhere; replaces any.
///
/// # Errors
/// When the location names no file, or the store fails.
pub fn save(location: &Location, settings: &StoreSettings, bytes: Bytes) -> Result<()> {
    let failed = || Error::storage("writing the file failed").at(location.to_string());
    if let Some(path) = location.local_path() {
        return save::save(path, &bytes).map_err(|e| failed().cause(e));
    }
    let (folder, name) = location.split_name().ok_or_else(failed)?;
    open(&folder, settings)?.put(&name, bytes)
}

/// A local file, near the dataset if that is local, for records that do not fit into memory.
///
/// # Errors
/// When there is no place for it.
pub fn scratch(location: &Location) -> Result<Scratch> {
    Scratch::new(location)
}

/// A local file, near the dataset if that is local, for a library that opens files by itself.
///
/// # Errors
/// When there is no place for it.
pub fn scratch_path(location: &Location) -> Result<ScratchPath> {
    ScratchPath::new(location)
}

/// Fails unless a path that a log entry or a list holds lies below the root of its store: what is damaged or made by somebody
/// else must not lead elsewhere.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) when it is empty, absolute, holds NUL, or has a part that is empty, `.` or
/// `..`.
pub fn checked_path(path: &str) -> Result<&str> {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    if path.split('/').any(bad) || path.contains('\0') {
        let message = format!("expected a path below the dataset, found {path:?}");
        return Err(Error::integrity(message).hint("nothing was read or deleted there; restore the log from a copy"));
    }
    Ok(path)
}

/// The error of an object that should be there.
fn missing(location: &Location, path: &str) -> Error {
    Error::storage("expected an object, found none").at(location.join(path).to_string())
}

/// The error of a name that is taken.
fn occupied(location: &Location, path: &str) -> Error {
    Error::conflict("expected no object of this name, found one")
        .at(location.join(path).to_string())
        .hint("nothing was overwritten and nothing was committed; run the command again")
}

/// The error of a range that ends where an object of `found` bytes does not reach.
fn beyond(location: &Location, path: &str, range: &Range<u64>, found: u64) -> Error {
    Error::input(format!("expected bytes {} to {}, found the end of the file at {found}", range.start, range.end))
        .at(location.join(path).to_string())
        .byte(range.start)
}

/// Checks what was found of an object that should be there.
fn present(location: &Location, path: &str, bytes: Option<u64>, found: Option<ObjectFacts>) -> Result<()> {
    let found = found.ok_or_else(|| missing(location, path))?;
    match bytes {
        Some(expected) if expected != found.bytes => {
            let message = format!("expected an object of {expected} bytes, found {}", found.bytes);
            Err(Error::storage(message).at(location.join(path).to_string()))
        }
        _ => Ok(()),
    }
}

/// The error of an object that is not what the listing said.
fn changed(location: &Location, path: &str, expected: u64, found: &str) -> Error {
    Error::storage(format!("expected {expected} bytes, found {found}"))
        .at(location.join(path).to_string())
        .hint("the file changed since it was listed; run the command again")
}
