//! The batches of an epoch. Python's other threads run while a batch is awaited.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use pyo3::{
    Bound, PyRef, PyResult, Python, pyclass, pymethods,
    types::{PyDict, PyDictMethods},
};
use shardify_core::error::Result;
use shardify_load::{Batches, LoadStats, LoadedBatch};

use super::{
    batch::NativeBatch,
    failure::to_exception,
    loader::LoaderRequest,
    process::{OfProcess, PATIENCE},
    shared::Shared,
};

/// An iterator over the batches of an epoch.
#[pyclass(module = "shardify._native")]
pub(super) struct NativeBatches {
    shared: Arc<Shared<LoaderRequest>>,
    epoch: u64,
    next_step: u64,
    /// Distance between two steps that are delivered.
    stride: u64,
    /// Never locked, for whoever calls has the iterator alone.
    running: Mutex<Option<OfProcess<Batches>>>,
    is_done: bool,
    /// Measurements of batches that have ended.
    last_stats: Option<LoadStats>,
}

/// What came of waiting for a batch.
enum Awaited {
    Batch(Box<LoadedBatch>),
    End,
    Nothing,
}

impl NativeBatches {
    pub(super) fn new(shared: Arc<Shared<LoaderRequest>>, epoch: u64, next_step: u64, stride: u64) -> Self {
        Self { shared, epoch, next_step, stride, running: Mutex::new(None), is_done: false, last_stats: None }
    }

    /// Starts the loader in a process that has not done so: here, or in a forked child.
    fn start_threads(&mut self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        if running.as_mut().and_then(OfProcess::get_mut).is_none() {
            let loader = self.shared.of_this_process(py)?;
            let batches = py.detach(|| loader.start_every(self.epoch, self.next_step, self.stride));
            *running = Some(OfProcess::new(batches.map_err(|error| to_exception(py, &error))?));
        }
        Ok(())
    }

    /// Waits for a batch.
    fn await_batch(&mut self) -> Result<Awaited> {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(batches) = running.as_mut().and_then(OfProcess::get_mut) else { return Ok(Awaited::End) };
        match batches.next_within(PATIENCE) {
            None => Ok(Awaited::Nothing),
            Some(None) => Ok(Awaited::End),
            Some(Some(batch)) => batch.map(|batch| Awaited::Batch(Box::new(batch))),
        }
    }
}

#[pymethods]
impl NativeBatches {
    fn __iter__(batches: PyRef<'_, Self>) -> PyRef<'_, Self> {
        batches
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<NativeBatch>> {
        while !self.is_done {
            self.start_threads(py)?;
            match py.detach(|| self.await_batch()) {
                Ok(Awaited::Nothing) => py.check_signals()?,
                Ok(Awaited::Batch(batch)) => {
                    self.next_step = batch.step + self.stride;
                    return Ok(Some(NativeBatch::new(*batch)));
                }
                Ok(Awaited::End) => self.end_threads(),
                Err(error) => {
                    self.end_threads();
                    return Err(to_exception(py, &error));
                }
            }
        }
        Ok(None)
    }

    /// Starts to read, if that has not begun: several datasets are then read at once.
    #[pyo3(name = "begin")]
    fn begin_reading(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.is_done { Ok(()) } else { self.start_threads(py) }
    }

    /// Ends the threads; there are no batches any more.
    #[pyo3(name = "close")]
    fn end_threads(&mut self) {
        self.is_done = true;
        if let Some(mut running) = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.last_stats = running.get_mut().map(|batches| batches.stats()).or(self.last_stats);
            end_beside(running);
        }
    }

    /// Returns what was read and delivered by this process.
    #[pyo3(name = "stats")]
    fn load_stats<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        let now = running.as_mut().and_then(OfProcess::get_mut).map(|batches| batches.stats());
        stats_dict(py, &now.or(self.last_stats).unwrap_or_default())
    }
}

impl Drop for NativeBatches {
    fn drop(&mut self) {
        if let Some(running) = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            end_beside(running);
        }
    }
}

/// Ends threads of a loader. Each ends after the block that it reads, for which nobody waits: a store may not answer.
fn end_beside(mut running: OfProcess<Batches>) {
    if running.get_mut().is_some() {
        // Where no thread can be started, the threads are waited for here.
        drop(thread::Builder::new().name("load-end".to_owned()).spawn(move || drop(running)));
    }
}

fn stats_dict<'py>(py: Python<'py>, stats: &LoadStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let counts = [
        ("samples", stats.samples),
        ("steps", stats.steps),
        ("requests", stats.requests),
        ("bytes_read", stats.bytes_read),
        ("bytes_delivered", stats.bytes_delivered),
        ("memory_now", stats.memory_now),
        ("memory_peak", stats.memory_peak),
    ];
    let seconds = [
        ("seconds_waited", stats.seconds_waited),
        ("seconds_read", stats.seconds_read),
        ("seconds_decoded", stats.seconds_decoded),
        ("seconds_gathered", stats.seconds_gathered),
    ];
    counts.into_iter().try_for_each(|(name, count)| dict.set_item(name, count))?;
    seconds.into_iter().try_for_each(|(name, time)| dict.set_item(name, time))?;
    Ok(dict)
}
