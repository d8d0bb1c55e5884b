//! The interface of all stores, and its types.

use std::{
    any::Any,
    io::{BufRead, Read, Write},
    ops::{ControlFlow, Range},
    path::Path,
};

use bytes::Bytes;
use jiff::Timestamp;

use super::{beneath::stays_below, location::Location, pin::Pin};
use crate::{
    codec::seal::Seal,
    error::{Error, Kind, Result},
};

/// Folder of a dataset, relative to its root, that holds everything but the shards.
pub const SYSTEM_FOLDER: &str = "_shardify";

/// Metadata of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Path relative to the store's root.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last modification.
    pub modified: Timestamp,
    /// Entity tag, if the store has one.
    pub etag: Option<String>,
}

/// An item of a listing.
#[derive(Debug)]
pub enum Listed {
    /// An object.
    Object(ObjectFacts),
    /// Path of a link to a folder. Its content is not listed, so that a listing cannot loop.
    FolderLink(String),
    /// An item that cannot be listed: a folder that cannot be read, a name that is not UTF-8.
    Fault(Error),
}

impl Listed {
    /// Returns the path of an item that can be listed.
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Object(facts) => &facts.path,
            Self::FolderLink(path) => path,
            Self::Fault(_) => "",
        }
    }
}

/// Outcome of a conditional create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object was created by this call.
    Created,
    /// An object of this name already exists; nothing was written.
    Exists,
}

/// How an object is opened for reading.
#[derive(Debug, Clone)]
pub enum Reading<'a> {
    /// From its first byte, in the version that the pin names; the first response sets an unknown version.
    Whole(&'a Pin),
    /// A range, in the version that the pin names. The stream may end early if the object does.
    Range(Range<u64>, &'a Pin),
    /// From its first byte, for a caller that reads only about so many bytes.
    Start(u64),
    /// From its first byte, for an object that was just written and is read once: bypasses caches where possible.
    Back,
}

/// What is called for each object of a listing; a break ends the listing.
pub type Visit<'a> = &'a mut dyn FnMut(Listed) -> Result<ControlFlow<()>>;

/// What happens to an object whose name is given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The new one takes its place.
    Replace,
    /// It stays as it is.
    Keep,
}

/// Rooted storage of objects: what each store has to be able to do. What follows from it is in
/// `derived.rs`, so that neither a store nor a wrapper of one can forget a part of it.
///
/// All calls block; implementations can be shared between threads.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Returns the root.
    fn location(&self) -> &Location;

    /// Returns scheme, host and port of the server if it is not the one that the location implies.
    fn endpoint(&self) -> Option<String> {
        None
    }

    /// Returns what only local folders can do; `None` for other stores.
    fn as_local(&self) -> Option<&dyn Local> {
        None
    }

    /// Whether the start of an object is in memory, so that reading it waits for nothing; false if that is unknown.
    fn is_cached(&self, path: &str) -> bool {
        self.as_local().is_some_and(|local| local.is_cached(path))
    }

    /// Returns the metadata of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// When the store fails.
    fn head(&self, path: &str) -> Result<Option<ObjectFacts>>;

    /// Appends a whole object to `into`; returns whether it exists. If it fails, `into` may contain a part of it.
    ///
    /// # Errors
    /// When the object does not have `bytes` bytes, as it had when it was listed, or the store fails.
    fn read_into(&self, path: &str, bytes: Option<u64>, into: &mut Vec<u8>) -> Result<bool>;

    /// Reads ranges of the version of an object that `pin` names, side by side; the first response sets an unknown
    /// version.
    ///
    /// # Errors
    /// When the object is missing, its version has changed or the store fails; of kind
    /// [`Kind::Input`](crate::error::Kind::Input) when it ends before a range does.
    fn get_ranges(&self, path: &str, ranges: &[Range<u64>], pin: &Pin) -> Result<Vec<Bytes>>;

    /// Returns the last bytes of an object, at most `bytes`, and its size; `None` if it does not exist.
    ///
    /// # Errors
    /// When the store fails.
    fn read_tail(&self, path: &str, bytes: u64) -> Result<Option<(Bytes, u64)>>;

    /// Opens an object for sequential reading.
    ///
    /// # Errors
    /// When the object is missing or the store fails; reading fails when the version of the object has changed.
    fn open_reader(&self, path: &str, reading: Reading<'_>) -> Result<Box<dyn Read + Send>>;

    /// Calls `visit` for the objects below a folder (`""` is the root) until it breaks, with few of them in memory at
    /// a time; in the order of their names where [`Location::lists_in_order`].
    ///
    /// # Errors
    /// When the store fails, or whatever `visit` fails with; a missing folder is empty.
    fn visit(&self, folder: &str, visit: Visit<'_>) -> Result<()>;

    /// Writes a whole object.
    ///
    /// # Errors
    /// When the store fails; then the old object, if any, is still there. [`Error::effect`] says whether a new one may
    /// have been created: if that is possible, the object has to be read back; if it is certain, the object exists but
    /// may not survive a power cut.
    fn write(&self, path: &str, bytes: Bytes, existing: Existing) -> Result<PutOutcome>;

    /// Deletes objects; missing ones are no error. Some may be deleted if it fails.
    ///
    /// # Errors
    /// When the store fails.
    fn delete_all(&self, paths: &[String]) -> Result<()>;

    /// Starts to write a large object, which [`Store::name_staged`] will name `path`.
    ///
    /// # Errors
    /// When the store fails.
    fn create_sink(&self, path: &str) -> Result<Box<dyn Sink>>;

    /// Waits until the bytes of all staged objects are durable, then gives them their names durably and in order.
    ///
    /// # Errors
    /// When the store fails. If existing objects are kept, it is of kind
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) when one of the names exists, which the error states, and names
    /// that this call has given are removed again; if that fails too, or the response of a store was lost, objects are
    /// left that no log entry refers to. If they are replaced, some of the objects may already have their names.
    fn name_staged(&self, staged: Vec<Staged>, existing: Existing) -> Result<()>;
}

/// What a folder of a local disk can do, and other stores cannot.
pub trait Local: Send + Sync {
    /// Whether the start of a file is in memory, so that reading it waits for nothing; false if that is unknown.
    fn is_cached(&self, path: &str) -> bool;

    /// Opens an object for reads at any offset.
    ///
    /// # Errors
    /// When it is missing or cannot be opened.
    fn open_file(&self, path: &str) -> Result<std::fs::File>;

    /// Creates an object from the bytes at another location without copying them; [`Store::name_staged`] will name it
    /// `path`. `None` if that cannot be done, as between file systems.
    ///
    /// # Errors
    /// When the store fails.
    fn link_object(&self, source: &Location, path: &str) -> Result<Option<Staged>>;

    /// Acquires a lock that ends with the process.
    ///
    /// # Errors
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) when another process holds it. File systems without locks
    /// succeed.
    fn acquire_lock(&self, name: &str) -> Result<Lock>;

    /// Whether a process holds a lock; `None` if that cannot be determined. Writes nothing.
    ///
    /// # Errors
    /// When the store fails.
    fn is_locked(&self, name: &str) -> Result<Option<bool>>;

    /// Waits until the deletions of these objects are durable, so that a power cut cannot restore them.
    ///
    /// # Errors
    /// When the store fails.
    fn settle_deletions(&self, paths: &[String]) -> Result<()>;

    /// Removes staged objects of a week ago, which killed runs have left, and folders of staged objects that are empty.
    fn remove_leftovers(&self);

    /// Returns the time by the clock that dates the objects of this store.
    fn current_time(&self) -> Timestamp;
}

/// An object being written.
pub trait Sink: Write + Send {
    /// Appends up to `bytes` bytes of `source` and passes them to `look` in pieces; returns the number of bytes, which
    /// is smaller only if the source ends.
    ///
    /// Copying within the kernel would be no faster: callers also inspect the bytes, so they have to pass through
    /// memory once, and their destination is seldom aligned as a file system that shares blocks requires.
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

    /// Opens the unfinished object from its first byte, as `read_back` does; reads wait for the bytes, and
    /// fail once the sink is dropped unfinished. `None` if it cannot be read before it is complete.
    fn read_following(&self) -> Option<Box<dyn BufRead + Send>> {
        None
    }

    /// Completes the object, which has no name yet. Its bytes may still be in flight: [`Store::name_staged`] waits for
    /// them.
    ///
    /// # Errors
    /// When the store fails.
    fn finish(self: Box<Self>) -> Result<Staged>;
}

/// Maximum bytes per piece, so that the bytes are still in the processor's cache when the next stage uses them.
pub(super) const PIECE: usize = 128 << 10;

/// Reads once and returns the number of bytes, which may be fewer than requested.
pub(super) fn read_some(source: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
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
    /// The name it gets when it is published.
    pub path: String,
    pub(super) inner: Box<dyn Pending>,
    seal: Option<Seal>,
}

/// The bytes of a staged object, as its store keeps them. Dropping them removes them.
pub(super) trait Pending: Any + Send + std::fmt::Debug {
    /// Returns the path below `root` at which the bytes can be read; `None` if they are unreadable before they have a
    /// name.
    fn path_below(&self, root: &Path) -> Option<String>;

    /// Converts the value for a downcast by the store that created it.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl Staged {
    pub(super) fn new(path: impl Into<String>, inner: impl Pending) -> Self {
        Self { path: path.into(), inner: Box::new(inner), seal: None }
    }

    /// Returns the object with its expected size and hash.
    #[must_use]
    pub fn with_seal(self, seal: Option<Seal>) -> Self {
        Self { seal, ..self }
    }

    /// Returns the expected size and hash, if the writer provided them.
    pub fn seal(&self) -> Option<Seal> {
        self.seal
    }

    /// Returns the path in its store at which it can be read before it has its name; `None` if it is unreadable until
    /// then.
    pub fn readable_at(&self, store: &dyn Store) -> Option<String> {
        self.inner.path_below(store.location().local_path()?)
    }

    /// Returns the name and the bytes, for the store that created them.
    pub(super) fn into_parts<T: Pending>(self) -> Result<(String, T)> {
        match self.inner.into_any().downcast::<T>() {
            Ok(inner) => Ok((self.path, *inner)),
            Err(_) => Err(Error::internal("a staged object was passed to a store that did not create it")),
        }
    }
}

/// Guard of a lock that is held while a run writes; see [`Local::acquire_lock`].
#[derive(Debug)]
pub struct Lock {
    pub(super) _file: Option<std::fs::File>,
}

/// Checks that a path from a log entry or a list stays below the root of its store: a damaged or foreign entry must not
/// lead elsewhere.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) when it is empty, absolute, contains NUL, or has a component that
/// is empty, `.` or `..`.
pub fn checked_path(path: &str) -> Result<&str> {
    if !stays_below(path) {
        let message = format!("expected a path below the dataset, found {path:?}");
        return Err(
            Error::integrity(message).with_hint("nothing was read or deleted there; restore the log from a copy")
        );
    }
    Ok(path)
}

/// Message of the error for an object that should exist.
const MISSING: &str = "expected an object, found none";

/// Returns the error for an object that should exist.
pub(super) fn missing_object(location: &Location, path: &str) -> Error {
    Error::storage(MISSING).at_location(location.join(path).to_string())
}

/// Returns whether the error states that an object does not exist.
pub fn is_missing(error: &Error) -> bool {
    error.kind() == Kind::Storage && error.message() == MISSING
}

/// Returns the error for a name that already exists.
pub(super) fn occupied_name(location: &Location, path: &str) -> Error {
    Error::conflict("expected no object of this name, found one")
        .at_location(location.join(path).to_string())
        .with_hint("nothing was overwritten and nothing was committed; run the command again")
}

/// Returns the error for a range that ends after the end of an object of `found` bytes.
pub(super) fn beyond_end(location: &Location, path: &str, range: &Range<u64>, found: u64) -> Error {
    Error::input(format!("expected bytes {} to {}, found the end of the file at {found}", range.start, range.end))
        .at_location(location.join(path).to_string())
        .at_byte(range.start)
}

/// Checks the metadata of an object that should exist.
pub(super) fn require_object(
    location: &Location,
    path: &str,
    bytes: Option<u64>,
    found: Option<ObjectFacts>,
) -> Result<()> {
    let found = found.ok_or_else(|| missing_object(location, path))?;
    match bytes {
        Some(expected) if expected != found.bytes => {
            let message = format!("expected an object of {expected} bytes, found {}", found.bytes);
            Err(Error::storage(message).at_location(location.join(path).to_string()))
        }
        _ => Ok(()),
    }
}

/// Returns the error for an object that differs from its listing.
pub(super) fn changed_object(location: &Location, path: &str, expected: u64, found: &str) -> Error {
    Error::storage(format!("expected {expected} bytes, found {found}"))
        .at_location(location.join(path).to_string())
        .with_hint("the file changed since it was listed; run the command again")
}
