//! Records of a version of a dataset by their positions.

use std::sync::Arc;

use pyo3::{
    Bound, Py, PyResult, Python, pyclass, pymethods,
    types::{PyDict, PyDictMethods},
};
use shardify_core::{codec::hex::to_hex, error::Result};
use shardify_load::{LoaderSettings, Records};

use super::{
    batch::NativeBatch,
    failure::to_exception,
    loader::columns_of,
    shared::{Request, Shared, open_snapshot, run_beside},
};

/// What records are opened with, also in a child of the process.
#[derive(Debug, Clone)]
pub(super) struct RecordsRequest {
    location: String,
    version: u64,
    split: Option<String>,
    columns: Option<Vec<String>>,
    threads: usize,
}

impl Request for RecordsRequest {
    type Opened = Records;

    fn open(&self) -> Result<Records> {
        let Self { location, version, split, columns, threads } = self;
        open_snapshot(location, *version, |snapshot| {
            Records::open(snapshot, split.as_deref(), columns.as_deref(), *threads)
        })
    }
}

/// Records by position; they are opened when they are first needed.
#[pyclass(frozen, module = "shardify._native")]
pub(super) struct NativeRecords {
    shared: Arc<Shared<RecordsRequest>>,
}

#[pymethods]
impl NativeRecords {
    #[new]
    #[pyo3(signature = (location, version, *, split=None, columns=None, threads=None))]
    fn new(
        location: String,
        version: u64,
        split: Option<String>,
        columns: Option<Vec<String>>,
        threads: Option<usize>,
    ) -> Self {
        let threads = threads.unwrap_or_else(|| LoaderSettings::default().threads);
        Self { shared: Arc::new(Shared::new(RecordsRequest { location, version, split, columns, threads })) }
    }

    /// Opens the version and returns what is known of its records.
    #[pyo3(name = "facts")]
    fn records_facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let records = self.shared.of_this_process(py)?;
        let dict = PyDict::new(py);
        dict.set_item("records", records.record_count())?;
        dict.set_item("basis", to_hex(&records.basis()))?;
        dict.set_item("columns", columns_of(records.schema()))?;
        Ok(dict)
    }

    /// Reads the records at some positions. Python's other threads run meanwhile, and signals are looked at while a
    /// store is waited for.
    fn take(&self, py: Python<'_>, positions: Vec<u64>) -> PyResult<Py<NativeBatch>> {
        let records = self.shared.of_this_process(py)?;
        let taken = if records.is_local() {
            py.detach(|| records.take(&positions)).map_err(|error| to_exception(py, &error))?
        } else {
            run_beside(py, "load-take", move || records.take(&positions))?
        };
        Py::new(py, NativeBatch::new(taken))
    }
}
