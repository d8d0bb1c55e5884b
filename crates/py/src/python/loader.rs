//! A loader of a version of a dataset.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
};

use pyo3::{
    Bound, Py, PyResult, Python, pyclass, pymethods,
    types::{PyDict, PyDictMethods},
};
use shardify_core::{
    codec::hex::to_hex,
    environment,
    error::{Error, Result},
    id::Version,
    storage::{self, Location},
    units::Size,
};
use shardify_dataset::dataset::Dataset;
use shardify_load::{Loader, LoaderFacts, LoaderSettings};

use super::{PATIENCE, batches::NativeBatches, failure::to_exception, process::OfProcess};

/// What a loader is opened with, also in a child of the process.
#[derive(Debug, Clone)]
struct Request {
    location: String,
    version: u64,
    settings: LoaderSettings,
}

impl Request {
    /// Opens the version. The threads that read lists end soon after this returns.
    fn open_loader(&self) -> Result<Loader> {
        let location = Location::parse(&self.location, &environment::current_folder()?)?;
        let store = storage::open_store(&location, &environment::store_settings(Vec::new()))?;
        // The global pool of rayon would be one for all children, in which its threads do not run.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().map_err(|e| {
            Error::storage("the system refused to start threads").with_cause(e).with_hint("`ulimit -u` shows the limit")
        })?;
        pool.install(|| Loader::open(&Dataset::new(store).open_version(Version(self.version))?, self.settings.clone()))
    }
}

/// A loader that is opened when it is first needed, once in each process.
pub(super) struct SharedLoader {
    request: Request,
    opened: Mutex<Option<OfProcess<Arc<Loader>>>>,
}

impl SharedLoader {
    /// Returns the loader of this process. Signals are looked at while it is opened.
    ///
    /// # Errors
    /// When the dataset cannot be read, or settings do not fit it.
    pub(super) fn of_this_process(&self, py: Python<'_>) -> PyResult<Arc<Loader>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loader) = opened.as_mut().and_then(OfProcess::get_mut) {
            return Ok(Arc::clone(loader));
        }
        drop(opened);
        let loader = Arc::new(self.open_beside(py)?);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        *opened = Some(OfProcess::new(Arc::clone(&loader)));
        Ok(loader)
    }

    /// Opens the loader on a thread, while this one looks at signals.
    fn open_beside(&self, py: Python<'_>) -> PyResult<Loader> {
        let (sender, mut receiver) = sync_channel(1);
        let request = self.request.clone();
        // If nobody waits any more, nobody misses the loader.
        let open = move || drop(sender.send(request.open_loader()));
        let refused = |e| Error::storage("the system refused to start a thread").with_cause(e);
        let opening = thread::Builder::new().name("load-open".to_owned()).spawn(open);
        let opening = opening.map_err(|e| to_exception(py, &refused(e)))?;
        loop {
            let (found, again) = py.detach(move || (receiver.recv_timeout(PATIENCE), receiver));
            receiver = again;
            match found {
                Ok(loader) => return loader.map_err(|error| to_exception(py, &error)),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let panicked = opening.join().err();
        let error = panicked.map(|panic| Error::of_panic(panic.as_ref()));
        Err(to_exception(py, &error.unwrap_or_else(|| Error::internal("expected a loader, found none"))))
    }
}

/// Settings of a loader, and the loader once it is needed.
#[pyclass(frozen, module = "shardify._native")]
pub(super) struct NativeLoader {
    shared: Arc<SharedLoader>,
}

#[pymethods]
impl NativeLoader {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    #[pyo3(signature = (location, version, *, global_batch_size, seed, rank, world_size, memory, drop_last, shuffle,
        split=None, columns=None, block=None, lanes=None, window=None, threads=None))]
    fn new(
        py: Python<'_>,
        location: String,
        version: u64,
        global_batch_size: u64,
        seed: u64,
        rank: u64,
        world_size: u64,
        memory: &str,
        drop_last: bool,
        shuffle: bool,
        split: Option<String>,
        columns: Option<Vec<String>>,
        block: Option<u64>,
        lanes: Option<u64>,
        window: Option<u64>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let Size(memory) = memory.parse().map_err(|error: Error| to_exception(py, &error))?;
        let defaults = LoaderSettings::default();
        let threads = threads.unwrap_or(defaults.threads);
        let settings = LoaderSettings {
            split,
            columns,
            global_batch_size,
            seed,
            rank,
            world_size,
            block,
            lanes,
            window,
            memory,
            threads,
            drop_last,
            shuffle,
        };
        let request = Request { location, version, settings };
        Ok(Self { shared: Arc::new(SharedLoader { request, opened: Mutex::new(None) }) })
    }

    /// Opens the version and returns what is known of the loader.
    #[pyo3(name = "facts")]
    fn loader_facts(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        Ok(facts_dict(py, &self.shared.of_this_process(py)?.facts())?.unbind())
    }

    /// Returns the batches of an epoch from a step on; nothing is read before the first one is asked for.
    #[pyo3(name = "start")]
    fn start_epoch(&self, epoch: u64, first_step: u64) -> NativeBatches {
        NativeBatches::new(Arc::clone(&self.shared), epoch, first_step)
    }
}

fn facts_dict<'py>(py: Python<'py>, facts: &LoaderFacts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("records", facts.records)?;
    dict.set_item("steps_per_epoch", facts.steps_per_epoch)?;
    dict.set_item("dropped_per_epoch", facts.dropped_per_epoch)?;
    dict.set_item("basis", to_hex(&facts.basis))?;
    dict.set_item("root", facts.root.as_deref())?;
    dict.set_item("block", facts.block)?;
    dict.set_item("lanes", facts.lanes)?;
    dict.set_item("window", facts.window)?;
    dict.set_item("shards", facts.shards)?;
    Ok(dict)
}
