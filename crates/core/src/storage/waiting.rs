//! Threads that wait for a remote store.
//!
//! Parallel work runs on as many threads as `--jobs` says, which suits processors and disks. A request to an object
//! store takes tens of milliseconds, whatever it asks for, so work that is made of requests has many in flight.

use rayon::prelude::*;

use super::Store;
use crate::error::{Error, Result};

/// Requests in flight to a remote store.
pub const REMOTE_REQUESTS: usize = 64;

/// Memory that bounds how many objects are asked for at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestMemory {
    /// Bytes of one object.
    pub object_bytes: u64,
    /// Bytes of all objects that are asked for at a time.
    pub total_bytes: u64,
}

impl RequestMemory {
    /// Returns the bound that lets at most `most` objects be asked for at a time, however large they are.
    pub const fn for_count(most: u64) -> Self {
        Self { object_bytes: 1, total_bytes: most }
    }
}

/// Memory of entries, lists and other small objects.
pub const SMALL: RequestMemory = RequestMemory { object_bytes: 1 << 20, total_bytes: 64 << 20 };

/// Runs parallel work that asks for many objects: of a remote store on threads of its own, as many as objects fit
/// into `memory`.
pub fn run_waiting<T: Send>(store: &dyn Store, memory: RequestMemory, work: impl FnOnce() -> T + Send) -> T {
    waiting_for(REMOTE_REQUESTS, store, memory, work)
}

fn waiting_for<T: Send>(
    requests: usize,
    store: &dyn Store,
    memory: RequestMemory,
    work: impl FnOnce() -> T + Send,
) -> T {
    let fit = usize::try_from(memory.total_bytes / memory.object_bytes.max(1)).unwrap_or(usize::MAX).min(requests);
    if store.location().local_path().is_some() || fit <= rayon::current_num_threads() {
        return work();
    }
    match rayon::ThreadPoolBuilder::new().num_threads(fit).build() {
        Ok(pool) => pool.install(work),
        // Slower, but right.
        Err(_) => work(),
    }
}

/// Runs one function for each of some objects, as [`run_waiting`] does, and returns what it returned in their order.
///
/// # Errors
/// The first error of one of them.
pub fn for_each_waiting<T: Sync, R: Send>(
    store: &dyn Store,
    memory: RequestMemory,
    all: &[T],
    run: impl Fn(&T) -> Result<R> + Sync + Send,
) -> Result<Vec<R>> {
    // Threads for two objects would take longer than their requests.
    waiting_for(all.len().min(REMOTE_REQUESTS), store, memory, || all.par_iter().map(run).collect())
}

/// Files on a local disk whose heads are read at a time.
const LOCAL_OPENING: usize = 16;

/// Runs parallel work that opens many files in a thread pool large enough for it.
///
/// # Errors
/// Fails if threads cannot be started.
pub fn with_io_threads<T: Send>(files: usize, remote: bool, work: impl FnOnce() -> T + Send) -> Result<T> {
    let requests = if remote { REMOTE_REQUESTS } else { LOCAL_OPENING };
    if files <= rayon::current_num_threads() {
        return Ok(work());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(requests.min(files)).build();
    Ok(pool.map_err(|e| Error::internal("starting threads failed").with_cause(e))?.install(work))
}
