//! What is opened when it is first needed, once in each process.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
};

use pyo3::{PyResult, Python};
use shardify_core::{
    environment,
    error::{Error, Result},
    id::Version,
    storage::{self, Location},
};
use shardify_dataset::dataset::{Dataset, Snapshot};

use super::{
    failure::to_exception,
    process::{OfProcess, PATIENCE},
};

/// What to open; a child of the process opens it anew.
pub(super) trait Request: Clone + Send + 'static {
    /// What is opened.
    type Opened: Send + Sync + 'static;

    /// Opens it. The threads that read lists end soon after this returns.
    fn open(&self) -> Result<Self::Opened>;
}

/// Opens a version, and passes it to `open` on a pool of this call.
pub(super) fn open_snapshot<T: Send>(
    location: &str,
    version: u64,
    open: impl FnOnce(&Snapshot) -> Result<T> + Send,
) -> Result<T> {
    let location = Location::parse(location, &environment::current_folder()?)?;
    let store = storage::open_store(&location, &environment::store_settings(Vec::new()))?;
    // The global pool of rayon would be one for all children, in which its threads do not run.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().map_err(|e| {
        Error::storage("the system refused to start threads").with_cause(e).with_hint("`ulimit -u` shows the limit")
    })?;
    pool.install(|| open(&Dataset::new(store).open_version(Version(version))?))
}

/// Something that is opened once in each process.
pub(super) struct Shared<R: Request> {
    request: R,
    opened: Mutex<Option<OfProcess<Arc<R::Opened>>>>,
}

impl<R: Request> Shared<R> {
    pub(super) fn new(request: R) -> Self {
        Self { request, opened: Mutex::new(None) }
    }

    /// Returns what this process has opened. Signals are looked at while it is opened.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn of_this_process(&self, py: Python<'_>) -> PyResult<Arc<R::Opened>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = opened.as_mut().and_then(OfProcess::get_mut) {
            return Ok(Arc::clone(found));
        }
        drop(opened);
        let request = self.request.clone();
        let found = Arc::new(run_beside(py, "load-open", move || request.open())?);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        *opened = Some(OfProcess::new(Arc::clone(&found)));
        Ok(found)
    }
}

/// Runs something on a thread of its own, while this one looks at signals.
///
/// # Errors
/// Its error, or that of a signal, after which nobody waits for the thread.
pub(super) fn run_beside<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = sync_channel(1);
    let refused = |e| Error::storage("the system refused to start a thread").with_cause(e);
    // If nobody waits any more, nobody misses the result.
    let running = thread::Builder::new().name(name.to_owned()).spawn(move || drop(sender.send(work())));
    let running = running.map_err(|e| to_exception(py, &refused(e)))?;
    loop {
        let (found, again) = py.detach(move || (receiver.recv_timeout(PATIENCE), receiver));
        receiver = again;
        match found {
            Ok(done) => return done.map_err(|error| to_exception(py, &error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let panicked = running.join().err();
    let error = panicked.map(|panic| Error::of_panic(panic.as_ref()));
    Err(to_exception(py, &error.unwrap_or_else(|| Error::internal("expected a result of a thread, found none"))))
}
