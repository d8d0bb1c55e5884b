//! A loader of a version of a dataset.

use std::sync::Arc;

use arrow::datatypes::Schema;
use pyo3::{
    Bound, Py, PyResult, Python, pyclass, pymethods,
    types::{PyDict, PyDictMethods},
};
use shardify_core::{
    codec::hex::to_hex,
    error::{Error, Result},
    units::Size,
};
use shardify_load::{Loader, LoaderFacts, LoaderSettings, Omitted};

use super::{
    batches::NativeBatches,
    failure::to_exception,
    shared::{Request, Shared, open_snapshot},
};

/// What a loader is opened with, also in a child of the process.
#[derive(Debug, Clone)]
pub(super) struct LoaderRequest {
    location: String,
    version: u64,
    settings: LoaderSettings,
}

impl Request for LoaderRequest {
    type Opened = Loader;

    fn open(&self) -> Result<Loader> {
        open_snapshot(&self.location, self.version, |snapshot| Loader::open(snapshot, self.settings.clone()))
    }
}

/// Settings of a loader, and the loader once it is needed.
#[pyclass(frozen, module = "shardify._native")]
pub(super) struct NativeLoader {
    shared: Arc<Shared<LoaderRequest>>,
}

#[pymethods]
impl NativeLoader {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of Python")]
    #[pyo3(signature = (location, version, *, global_batch_size, seed, rank, world_size, memory, drop_last, shuffle,
        split=None, columns=None, block=None, lanes=None, window=None, threads=None, sources=1,
        without=None))]
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
        sources: u64,
        without: Option<Vec<u64>>,
    ) -> PyResult<Self> {
        let Size(memory) = memory.parse().map_err(|error: Error| to_exception(py, &error))?;
        let threads = threads.unwrap_or(LoaderSettings::default().threads);
        // Several loaders share what they have together.
        let of_each = usize::try_from(sources).unwrap_or(usize::MAX).max(1);
        let (memory, threads) = (memory / sources.max(1), (threads / of_each).max(1));
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
            sources,
            without: Omitted { numbers: without.into_iter().flatten().collect(), ..Omitted::default() },
        };
        Ok(Self { shared: Arc::new(Shared::new(LoaderRequest { location, version, settings })) })
    }

    /// Opens the version and returns what is known of the loader.
    #[pyo3(name = "facts")]
    fn loader_facts(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        Ok(facts_dict(py, &self.shared.of_this_process(py)?.facts())?.unbind())
    }

    /// Returns the batches of every `stride`-th step of an epoch from one on; nothing is read before the first one is
    /// asked for.
    #[pyo3(name = "start", signature = (epoch, first_step, stride=1))]
    fn start_epoch(&self, epoch: u64, first_step: u64, stride: u64) -> NativeBatches {
        NativeBatches::new(Arc::clone(&self.shared), epoch, first_step, stride)
    }
}

fn facts_dict<'py>(py: Python<'py>, facts: &LoaderFacts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("records", facts.records)?;
    dict.set_item("steps_per_epoch", facts.steps_per_epoch)?;
    dict.set_item("dropped_per_epoch", facts.dropped_per_epoch)?;
    dict.set_item("basis", to_hex(&facts.basis))?;
    dict.set_item("root", facts.root.as_deref())?;
    dict.set_item("erased", facts.erased)?;
    dict.set_item("block", facts.block)?;
    dict.set_item("lanes", facts.lanes)?;
    dict.set_item("window", facts.window)?;
    dict.set_item("shards", facts.shards)?;
    dict.set_item("columns", columns_of(&facts.schema))?;
    Ok(dict)
}

/// Returns the names and types of columns.
pub(super) fn columns_of(schema: &Schema) -> Vec<(String, String)> {
    schema.fields().iter().map(|field| (field.name().clone(), field.data_type().to_string())).collect()
}
