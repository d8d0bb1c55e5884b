//! The interface that every store has, and what passes through it.

use std::{
    any::Any,
    io::{Read, Write},
    ops::Range,
    path::Path,
};

use bytes::Bytes;
use jiff::Timestamp;

use super::{location::Location, pin::Pin};
use crate::{
    codec::seal::Seal,
    error::{Error, Result},
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
    pub(super) fn path(&self) -> &str {
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
pub(super) const PIECE: usize = 128 << 10;

/// Reads what is there, once.
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
    /// The name it will get.
    pub path: String,
    pub(super) inner: Box<dyn Pending>,
    seal: Option<Seal>,
}

/// The bytes of a staged object, as its store keeps them. Dropping them removes them.
pub(super) trait Pending: Any + Send + std::fmt::Debug {
    /// Path below `root` at which they can be read; `None` where nothing can be read before it has its name.
    fn path_below(&self, root: &Path) -> Option<String>;

    /// For the store that made them.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl Staged {
    pub(super) fn new(path: impl Into<String>, inner: impl Pending) -> Self {
        Self { path: path.into(), inner: Box::new(inner), seal: None }
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
        self.inner.path_below(store.location().local_path()?)
    }

    /// Its name and its bytes, for the store that made it.
    pub(super) fn into_parts<T: Pending>(self) -> Result<(String, T)> {
        match self.inner.into_any().downcast::<T>() {
            Ok(inner) => Ok((self.path, *inner)),
            Err(_) => Err(Error::internal("a staged object was given to another store than its own")),
        }
    }
}

/// Held while a run writes; see [`Store::lock`].
#[derive(Debug)]
pub struct Lock {
    pub(super) _file: Option<std::fs::File>,
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
pub(super) fn missing(location: &Location, path: &str) -> Error {
    Error::storage("expected an object, found none").at(location.join(path).to_string())
}

/// The error of a name that is taken.
pub(super) fn occupied(location: &Location, path: &str) -> Error {
    Error::conflict("expected no object of this name, found one")
        .at(location.join(path).to_string())
        .hint("nothing was overwritten and nothing was committed; run the command again")
}

/// The error of a range that ends where an object of `found` bytes does not reach.
pub(super) fn beyond(location: &Location, path: &str, range: &Range<u64>, found: u64) -> Error {
    Error::input(format!("expected bytes {} to {}, found the end of the file at {found}", range.start, range.end))
        .at(location.join(path).to_string())
        .byte(range.start)
}

/// Checks what was found of an object that should be there.
pub(super) fn present(location: &Location, path: &str, bytes: Option<u64>, found: Option<ObjectFacts>) -> Result<()> {
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
pub(super) fn changed(location: &Location, path: &str, expected: u64, found: &str) -> Error {
    Error::storage(format!("expected {expected} bytes, found {found}"))
        .at(location.join(path).to_string())
        .hint("the file changed since it was listed; run the command again")
}
