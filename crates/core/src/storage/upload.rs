//! Uploads to remote stores: objects are written now and get their names later, all together or not at all.
//!
//! ```text
//! up to 512 KiB   kept in memory                         publish: one PUT, only if absent
//! larger          parts of a multipart upload in flight  publish: check that no object exists, then complete
//! ```
//!
//! Nothing is visible before `publish`, and nothing has to be renamed. Every upload has a random mark in the metadata
//! of its object: if a response was lost, the mark of the existing object shows whether this upload created it.
//!
//! Most stores cannot complete a multipart upload conditionally. So the name is looked up first, which leaves a window
//! of one request. Names of uploads contain random transaction ids, so no other run has a reason to write there.

use std::{
    any::Any,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use object_store::{
    Attribute, Attributes, Error as StoreError, GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, path::Path as ObjectPath,
};
use tokio::task::JoinSet;

use super::{
    listing::retry_request,
    location::Location,
    remote::shared_runtime,
    secrets::Secrets,
    store::{Pending, Sink, Staged, occupied_name},
};
use crate::{
    error::{Effect, Error, Result},
    id::TransactionId,
};

/// Size of the first parts of an upload in bytes: stores require at least 5 MiB.
const PART_BYTES: usize = 8 << 20;

/// Number of parts of that size; later parts grow. Some stores require parts of one size, and few objects are larger.
const EQUAL_PARTS: usize = 1000;

/// Number of parts after which the size grows by another [`PART_BYTES`]: the 10,000 parts that stores allow hold 5.2
/// TiB.
const PARTS_PER_GROWTH: usize = 60;

/// Maximum parts of an upload in flight.
const PARTS_IN_FLIGHT: usize = 2;

/// Parts above this size are sent one at a time, because each is held in memory.
const LARGE_PART: usize = 64 << 20;

/// Maximum size of objects that are sent as one request; a multipart upload takes three.
const MAX_SINGLE_PUT: usize = 512 << 10;

/// Maximum bytes of small objects held in memory.
const MAX_KEPT: usize = 64 << 20;

/// Maximum uploads that are completed concurrently.
const COMPLETIONS: usize = 16;

/// Timeout for aborting an abandoned upload.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Metadata key of the mark; Azure requires an identifier.
const MARK: &str = "shardify_upload";

/// State shared by all uploads to one store.
#[derive(Debug, Clone)]
pub(super) struct Uploads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn ObjectStore>,
    secrets: Secrets,
    /// Bytes of small objects held in memory.
    kept: AtomicUsize,
    /// An upload could not be aborted in time, so no further aborts are tried: a run must be able to end.
    abort_failed: AtomicBool,
}

impl Uploads {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, secrets: Secrets) -> Self {
        Self(Arc::new(Shared { inner, secrets, kept: AtomicUsize::new(0), abort_failed: AtomicBool::new(false) }))
    }

    /// Starts to write an object.
    pub(super) fn create_sink(&self, path: &str, at: ObjectPath, location: Location) -> RemoteSink {
        let staged = StagedUpload {
            uploads: self.clone(),
            at,
            name: location.to_string(),
            mark: TransactionId::fresh().0,
            bytes: 0,
            state: UploadState::Empty,
        };
        RemoteSink { path: path.to_owned(), staged, buffer: Vec::new(), parts: 0 }
    }

    /// Gives all uploads their names; an existing object is a conflict, and objects that were already named are deleted
    /// again.
    pub(super) fn publish_staged(&self, staged: Vec<Staged>, location: &Location) -> Result<()> {
        let mut uploads = uploads_of(staged)?;
        let failed = AtomicBool::new(false);
        let named = uploads.iter_mut().map(|(path, upload)| {
            let failed = &failed;
            async move {
                // An upload that is being completed must finish, so nothing is cancelled; the others are not started.
                if failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let named = upload.publish_upload(|| occupied_name(location, path)).await;
                failed.fetch_or(named.is_err(), Ordering::Relaxed);
                named
            }
        });
        let named: Vec<_> = named.collect();
        let results =
            shared_runtime()?.block_on(stream::iter(named).buffered(COMPLETIONS).collect::<Vec<Result<()>>>());
        let Some(error) = results.into_iter().find_map(Result::err) else { return Ok(()) };
        self.take_back(&uploads, error)
    }

    /// Gives all uploads their names and replaces existing objects.
    pub(super) fn replace_staged(&self, staged: Vec<Staged>) -> Result<()> {
        let mut uploads = uploads_of(staged)?;
        shared_runtime()?.block_on(async {
            for (_, upload) in &mut uploads {
                upload.replace_existing().await?;
            }
            Ok(())
        })
    }

    /// Deletes the objects that a failed call has named and returns `error`.
    fn take_back(&self, uploads: &[(String, StagedUpload)], error: Error) -> Result<()> {
        let named = uploads.iter().filter(|(_, upload)| matches!(upload.state, UploadState::Named));
        let taken: Vec<_> = named.map(|(_, upload)| self.0.inner.delete(&upload.at)).collect();
        let taken = stream::iter(taken).buffered(COMPLETIONS).collect::<Vec<_>>();
        let taken = shared_runtime()?.block_on(async { tokio::time::timeout(ABORT_TIMEOUT, taken).await });
        let all = taken.is_ok_and(|taken| taken.iter().all(|taken| taken.is_ok()));
        Err(if all { error } else { error.with_effect(Effect::Possible) })
    }
}

fn uploads_of(staged: Vec<Staged>) -> Result<Vec<(String, StagedUpload)>> {
    staged.into_iter().map(Staged::into_parts).collect()
}

/// An object without a name; aborted when dropped before it has one.
pub(super) struct StagedUpload {
    uploads: Uploads,
    at: ObjectPath,
    /// Name of the object in messages.
    name: String,
    /// Distinguishes this upload from all others.
    mark: String,
    /// Bytes written so far.
    bytes: u64,
    state: UploadState,
}

impl Pending for StagedUpload {
    fn path_below(&self, _root: &Path) -> Option<String> {
        None
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

enum UploadState {
    /// Nothing has been sent.
    Empty,
    /// The complete object, held in memory.
    Kept(Bytes),
    /// A multipart upload and its parts in flight.
    Parts(Box<dyn MultipartUpload>, JoinSet<object_store::Result<()>>),
    /// The object has its name.
    Named,
}

impl StagedUpload {
    fn operation_error(&self, doing: &str, cause: &StoreError) -> Error {
        self.uploads.0.secrets.operation_error(doing, cause).at_location(self.name.clone())
    }

    fn mark_attributes(&self) -> Attributes {
        [(Attribute::Metadata(MARK.into()), self.mark.clone())].into_iter().collect()
    }

    /// Sends a part as soon as few enough are in flight.
    fn send_part(&mut self, part: Vec<u8>) -> Result<()> {
        if matches!(self.state, UploadState::Empty) {
            let options = PutMultipartOptions { attributes: self.mark_attributes(), ..PutMultipartOptions::default() };
            let begin = || self.uploads.0.inner.put_multipart_opts(&self.at, options.clone());
            let begun = shared_runtime()?.block_on(retry_request(begin));
            self.state =
                UploadState::Parts(begun.map_err(|e| self.operation_error("starting the upload", &e))?, JoinSet::new());
        }
        let most = if part.len() > LARGE_PART { 1 } else { PARTS_IN_FLIGHT };
        self.wait_for_parts(most - 1)?;
        let UploadState::Parts(upload, parts) = &mut self.state else {
            return Err(Error::internal("the upload has ended"));
        };
        self.bytes += part.len() as u64;
        let sent = upload.put_part(PutPayload::from(part));
        parts.spawn_on(sent, shared_runtime()?.handle());
        Ok(())
    }

    /// Waits until at most `most` parts are in flight.
    fn wait_for_parts(&mut self, most: usize) -> Result<()> {
        let UploadState::Parts(_, parts) = &mut self.state else { return Ok(()) };
        let secrets = &self.uploads.0.secrets;
        while parts.len() > most {
            let sent = match shared_runtime()?.block_on(parts.join_next()) {
                Some(Ok(sent)) => sent.map_err(|e| secrets.operation_error("uploading", &e)),
                Some(Err(e)) => Err(secrets.operation_error("uploading", &e)),
                None => Ok(()),
            };
            sent.map_err(|e| e.at_location(self.name.clone()))?;
        }
        Ok(())
    }

    /// Holds a small object in memory, or sends it if too many bytes are held already.
    fn hold_in_memory(&mut self, bytes: Vec<u8>) -> Result<()> {
        let kept = self.uploads.0.kept.fetch_add(bytes.len(), Ordering::Relaxed);
        if kept + bytes.len() > MAX_KEPT {
            self.uploads.0.kept.fetch_sub(bytes.len(), Ordering::Relaxed);
            return self.send_part(bytes);
        }
        self.bytes = bytes.len() as u64;
        self.state = UploadState::Kept(bytes.into_boxed_slice().into());
        Ok(())
    }

    /// Marks the upload as named and releases its resources.
    fn finish_naming(&mut self) {
        self.release_held();
        self.state = UploadState::Named;
    }

    /// Subtracts a small object from the bytes held in memory.
    fn release_held(&mut self) {
        if let UploadState::Kept(bytes) = &self.state {
            self.uploads.0.kept.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
    }

    /// Gives the object its name, unless an object of that name exists.
    async fn publish_upload(&mut self, occupied: impl Fn() -> Error) -> Result<()> {
        let options = PutOptions { mode: PutMode::Create, attributes: self.mark_attributes(), ..PutOptions::default() };
        let inner = Arc::clone(&self.uploads.0.inner);
        let done = match &mut self.state {
            UploadState::Named => return Ok(()),
            UploadState::Empty => return Err(Error::internal("an upload that was not finished cannot be named")),
            UploadState::Kept(bytes) => inner.put_opts(&self.at, bytes.clone().into(), options).await.map(drop),
            UploadState::Parts(upload, _) => match inner.head(&self.at).await {
                Ok(_) => return Err(occupied()),
                Err(StoreError::NotFound { .. }) => upload.complete().await.map(drop),
                Err(e) => return Err(self.operation_error("looking up the name of an upload", &e)),
            },
        };
        let Err(error) = done else {
            self.finish_naming();
            return Ok(());
        };
        match self.is_present().await {
            // Only the response was lost.
            Ok(true) => {
                self.finish_naming();
                Ok(())
            }
            Ok(false) if matches!(error, StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                Err(occupied())
            }
            Ok(false) | Err(_) => {
                Err(self.operation_error("completing the upload", &error).with_effect(Effect::Possible))
            }
        }
    }

    /// Gives the object its name and replaces an existing one.
    async fn replace_existing(&mut self) -> Result<()> {
        let options = PutOptions { attributes: self.mark_attributes(), ..PutOptions::default() };
        let inner = Arc::clone(&self.uploads.0.inner);
        let done = match &mut self.state {
            UploadState::Named => Ok(()),
            UploadState::Empty => return Err(Error::internal("an upload that was not finished cannot be named")),
            UploadState::Kept(bytes) => inner.put_opts(&self.at, bytes.clone().into(), options).await.map(drop),
            UploadState::Parts(upload, _) => upload.complete().await.map(drop),
        };
        if let Err(error) = done
            && !matches!(self.is_present().await, Ok(true))
        {
            return Err(self.operation_error("completing the upload", &error).with_effect(Effect::Possible));
        }
        self.finish_naming();
        Ok(())
    }

    /// Whether this upload created the object of this name.
    async fn is_present(&self) -> object_store::Result<bool> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.uploads.0.inner.get_opts(&self.at, options).await {
            Ok(found) => {
                let mark = found.attributes.get(&Attribute::Metadata(MARK.into()));
                Ok(found.meta.size == self.bytes && mark.is_some_and(|mark| mark.as_ref() == self.mark))
            }
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl std::fmt::Debug for StagedUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StagedUpload").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for StagedUpload {
    fn drop(&mut self) {
        self.release_held();
        if let (UploadState::Parts(upload, parts), Ok(runtime)) = (&mut self.state, shared_runtime()) {
            let aborted = runtime.block_on(async {
                // A part that arrives after the abort would stay.
                parts.shutdown().await;
                if self.uploads.0.abort_failed.load(Ordering::Relaxed) {
                    return Ok(Ok(()));
                }
                tokio::time::timeout(ABORT_TIMEOUT, upload.abort()).await
            });
            // An upload that cannot be aborted costs storage until the bucket's lifecycle rule clears it.
            self.uploads.0.abort_failed.fetch_or(aborted.is_err(), Ordering::Relaxed);
        }
    }
}

/// Writes an upload.
pub(super) struct RemoteSink {
    path: String,
    staged: StagedUpload,
    buffer: Vec<u8>,
    /// Number of parts that were sent.
    parts: usize,
}

/// Returns the size of a part, which grows so that an object of any size fits into the number of parts that stores
/// allow.
fn part_bytes(number: usize) -> usize {
    PART_BYTES * (1 + (number + PARTS_PER_GROWTH).saturating_sub(EQUAL_PARTS) / PARTS_PER_GROWTH)
}

impl Write for RemoteSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = part_bytes(self.parts);
        let taken = (size - self.buffer.len()).min(bytes.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == size {
            self.parts += 1;
            let part = std::mem::replace(&mut self.buffer, Vec::with_capacity(part_bytes(self.parts)));
            self.staged.send_part(part)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for RemoteSink {
    fn finish(self: Box<Self>) -> Result<Staged> {
        let Self { path, mut staged, buffer, parts } = *self;
        if parts == 0 && buffer.len() <= MAX_SINGLE_PUT {
            staged.hold_in_memory(buffer)?;
        } else if !buffer.is_empty() {
            staged.send_part(buffer)?;
        }
        staged.wait_for_parts(0)?;
        Ok(Staged::new(path, staged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_so_that_five_tebibytes_fit() {
        assert!((0..EQUAL_PARTS).all(|number| part_bytes(number) == PART_BYTES));
        assert!((0..9_999).all(|number| part_bytes(number) <= part_bytes(number + 1)));
        let all: u64 = (0..10_000).map(|number| part_bytes(number) as u64).sum();
        assert!(all >= 5 << 40, "{all}");
        assert!(part_bytes(9_999) < 5 << 30, "no part may be larger than stores take");
    }
}
