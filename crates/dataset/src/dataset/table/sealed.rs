//! Objects that an entry refers to, with their seals: no content is trusted before it was checked.
//!
//! ```text
//! log entry (its own checksum) -- lists, segments, places: seals
//!                                 '- list of shards, run table: seals of the objects beside a shard
//! ```
//!
//! [`SealingSink`] computes a seal while an object is written. [`get_sealed`] reads and checks a whole object,
//! [`open_sealed`] returns an object whose ranges are checked as they are read, and [`Parts`](super::fetch::Parts) does
//! so for lookups. Every reference has a seal.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use bytes::Bytes;
use parquet::file::metadata::{FooterTail, ParquetMetaDataReader};
use serde::{Deserialize, Serialize};

use super::fault::{catch_panics, damage_error, parquet_error};
use crate::{
    codec::seal::{BlockHashes, Seal, Sealer},
    error::{Error, Result},
    storage::{BLOCK_MISMATCH, Object, RESTORE_HINT, Sink, Staged, Store},
};

/// Footer metadata key of a table's block hashes.
pub(in crate::dataset) const KEY: &str = "shardify.blocks";

/// Bytes of an object read at a time while it is checked.
const PIECE: u64 = 4 << 20;

/// Bytes up to which an object is read at once to be checked.
const SMALL_BYTES: u64 = 1 << 20;

/// An object and its seal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Path relative to the dataset.
    pub path: String,
    /// The expected seal.
    pub seal: Seal,
}

impl Sealed {
    /// Returns an object with this path and seal.
    pub fn new(path: impl Into<String>, seal: Seal) -> Self {
        Self { path: path.into(), seal }
    }

    /// Returns a staged object.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) if it was written without a seal.
    pub fn from_staged(staged: &Staged) -> Result<Self> {
        Ok(Self::new(staged.path.as_str(), seal_of(staged)?))
    }

    /// Returns the object's location, for messages.
    pub fn display_location(&self, store: &dyn Store) -> String {
        store.location().join(&self.path).to_string()
    }

    /// Returns the error for an object that is not there.
    pub(in crate::dataset) fn missing_error(&self, store: &dyn Store) -> Error {
        Error::integrity("expected an object that the log refers to, found none")
            .at_location(self.display_location(store))
            .with_hint(RESTORE_HINT)
    }

    fn damage_error(&self, store: &dyn Store, byte: u64) -> Error {
        Error::integrity(BLOCK_MISMATCH).at_location(self.display_location(store)).at_byte(byte).with_hint(RESTORE_HINT)
    }

    fn wrong_size(&self, store: &dyn Store, expected: u64, found: u64) -> Error {
        Error::integrity(format!("expected {expected} bytes, found {found}"))
            .at_location(self.display_location(store))
            .with_hint(RESTORE_HINT)
    }
}

/// Returns the seal of a staged object that others refer to.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) if it was written without one.
pub(in crate::dataset) fn seal_of(staged: &Staged) -> Result<Seal> {
    staged.seal().ok_or_else(|| Error::internal(format!("expected a seal of `{}`, found none", staged.path)))
}

/// Reads and checks a whole object.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if it is missing or does not match its seal; if the store fails.
pub fn get_sealed(store: &dyn Store, object: &Sealed) -> Result<Bytes> {
    checked_bytes(store, object, store.get(&object.path)?.ok_or_else(|| object.missing_error(store))?)
}

/// Checks a whole object that was read.
///
/// # Errors
/// Like [`get_sealed`].
pub(in crate::dataset) fn checked_bytes(store: &dyn Store, object: &Sealed, bytes: Bytes) -> Result<Bytes> {
    let seal = &object.seal;
    let body = usize::try_from(seal.body_bytes()).unwrap_or(usize::MAX);
    let blocks = checked_tail(store, object, seal, bytes.len() as u64, &bytes.slice(body.min(bytes.len())..))?;
    match blocks.find_damage(0, &bytes[..body]) {
        Some(at) => Err(object.damage_error(store, at)),
        None => Ok(bytes),
    }
}

/// Opens an object whose ranges are checked as they are read.
///
/// # Errors
/// Like [`get_sealed`], for the object's tail.
pub(in crate::dataset) fn open_sealed(store: &Arc<dyn Store>, object: &Sealed) -> Result<Object> {
    let opened = |bytes| Object::new(Arc::clone(store), object.path.as_str(), bytes);
    let seal = &object.seal;
    let (tail, bytes) =
        store.read_tail(&object.path, seal.tail)?.ok_or_else(|| object.missing_error(store.as_ref()))?;
    let blocks = checked_tail(store.as_ref(), object, seal, bytes, &tail)?;
    Ok(opened(bytes).with_checks(blocks, tail))
}

/// Reads and checks a whole object in bounded memory.
///
/// # Errors
/// Like [`get_sealed`].
pub fn check_sealed(store: &Arc<dyn Store>, object: &Sealed) -> Result<()> {
    let seal = &object.seal;
    if (1..=SMALL_BYTES).contains(&seal.bytes) {
        // One request, which also tells the size.
        let found = store.read_tail(&object.path, seal.bytes)?;
        let (bytes, size) = found.ok_or_else(|| object.missing_error(store.as_ref()))?;
        if size != seal.bytes {
            return Err(object.wrong_size(store.as_ref(), seal.bytes, size));
        }
        return checked_bytes(store.as_ref(), object, bytes).map(drop);
    }
    if seal.is_whole() {
        return check_whole(store.as_ref(), object, seal);
    }
    let opened = open_sealed(store, object)?;
    let mut at = 0;
    while at < seal.body_bytes() {
        let end = (at + PIECE).min(seal.body_bytes());
        opened.get_range(at..end)?;
        at = end;
    }
    Ok(())
}

/// Passes the bytes of an object to `write`, piece by piece in bounded memory, and checks them as they pass; returns
/// their number. Nothing that was passed is to be relied on before this returns.
///
/// # Errors
/// Like [`get_sealed`], and those of `write`.
pub fn copy_sealed(store: &Arc<dyn Store>, object: &Sealed, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    let seal = object.seal;
    if seal.is_whole() {
        return copy_whole(store.as_ref(), object, write);
    }
    let opened = open_sealed(store, object)?;
    let mut at = 0;
    while at < seal.bytes {
        let boundary = if at < seal.body_bytes() { seal.body_bytes() } else { seal.bytes };
        let end = (at + PIECE).min(boundary);
        write(&opened.get_range(at..end)?)?;
        at = end;
    }
    Ok(seal.bytes)
}

fn copy_whole(store: &dyn Store, object: &Sealed, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    let opened = store.read(&object.path);
    let mut input = match opened {
        Err(e) if store.head(&object.path)?.is_none() => return Err(object.missing_error(store).with_cause(e)),
        opened => opened?,
    };
    let (mut hasher, mut buffer, mut bytes) = (blake3::Hasher::new(), vec![0; 1 << 20], 0);
    let seal = object.seal;
    loop {
        let n = match input.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|e| Error::from(e).at_location(object.display_location(store)))?,
        };
        if n == 0 {
            break;
        }
        bytes += n as u64;
        if bytes > seal.bytes {
            return Err(object.wrong_size(store, seal.bytes, bytes));
        }
        hasher.update(&buffer[..n]);
        write(&buffer[..n])?;
    }
    if bytes != seal.bytes {
        return Err(object.wrong_size(store, seal.bytes, bytes));
    }
    if *hasher.finalize().as_bytes() == seal.hash { Ok(bytes) } else { Err(object.damage_error(store, 0)) }
}

fn check_whole(store: &dyn Store, object: &Sealed, seal: &Seal) -> Result<()> {
    let facts = store.head(&object.path)?.ok_or_else(|| object.missing_error(store))?;
    if facts.bytes != seal.bytes {
        return Err(object.wrong_size(store, seal.bytes, facts.bytes));
    }
    let mut hasher = blake3::Hasher::new();
    let (mut input, mut buffer) = (store.read(&object.path)?, vec![0; 1 << 20]);
    loop {
        match input.read(&mut buffer)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        };
    }
    if *hasher.finalize().as_bytes() == seal.hash { Ok(()) } else { Err(object.damage_error(store, 0)) }
}

/// Checks the tail of an object of the given size and returns the hashes of the blocks before it.
pub(in crate::dataset) fn checked_tail(
    store: &dyn Store,
    object: &Sealed,
    seal: &Seal,
    bytes: u64,
    tail: &[u8],
) -> Result<BlockHashes> {
    if bytes != seal.bytes {
        return Err(object.wrong_size(store, seal.bytes, bytes));
    }
    if !seal.is_tail(tail) {
        return Err(object.damage_error(store, seal.body_bytes()));
    }
    if seal.is_whole() {
        return Ok(BlockHashes::without_body());
    }
    catch_panics(|| {
        let size = tail.len().checked_sub(8);
        let last = size.and_then(|at| tail[at..].first_chunk::<8>());
        let footer = last.map(FooterTail::try_new).transpose().map_err(parquet_error)?;
        let length = footer.map_or(0, |footer| footer.metadata_length());
        let start = size.and_then(|end| end.checked_sub(length));
        let footer = start.zip(size).and_then(|(start, end)| tail.get(start..end)).unwrap_or_default();
        let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(parquet_error)?;
        let pairs = metadata.file_metadata().key_value_metadata();
        let text = pairs.into_iter().flatten().find(|pair| pair.key == KEY).and_then(|pair| pair.value.as_deref());
        text.and_then(|text| BlockHashes::parse(text, seal.body_bytes()))
            .ok_or_else(|| Error::integrity("expected hashes of the blocks of the table in its footer, found none"))
    })
    .map_err(|e| damage_error(e, "the table is damaged", object.display_location(store)))
}

/// Computes the seal of an object while it is written.
pub struct SealingSink {
    inner: Box<dyn Sink>,
    sealer: Sealer,
}

impl std::fmt::Debug for SealingSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealingSink").field("sealer", &self.sealer).finish_non_exhaustive()
    }
}

impl SealingSink {
    /// Starts an object that can only be checked as a whole.
    ///
    /// # Errors
    /// If the store fails.
    pub fn whole(store: &dyn Store, path: &str) -> Result<Self> {
        Ok(Self { inner: store.create_sink(path)?, sealer: Sealer::for_object() })
    }

    /// Starts a table whose blocks can be checked separately.
    pub(in crate::dataset) fn in_blocks(store: &dyn Store, path: &str) -> Result<Self> {
        Ok(Self { inner: store.create_sink(path)?, sealer: Sealer::in_blocks() })
    }

    /// Ends the part before the tail and returns the value that the tail must store under [`KEY`].
    pub(in crate::dataset) fn end_body(&mut self) -> Option<String> {
        self.sealer.end_body()
    }

    /// Finishes the object; it carries its seal and has no name until it is published.
    ///
    /// # Errors
    /// If the store fails.
    pub fn finish(self) -> Result<Staged> {
        Ok(self.inner.finish()?.with_seal(self.sealer.finish()))
    }
}

impl Write for SealingSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.sealer.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes a small object that stays invisible until it is published.
///
/// # Errors
/// If the store fails.
pub fn stage_small(store: &dyn Store, path: &str, content: &[u8]) -> Result<Staged> {
    let mut sink = SealingSink::whole(store, path)?;
    sink.write_all(content)?;
    sink.finish()
}
