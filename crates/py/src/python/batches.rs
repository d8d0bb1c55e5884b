//! The batches of an epoch. Python's other threads run while a batch is awaited.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pyo3::{PyRef, PyResult, Python, pyclass, pymethods};
use shardify_core::error::Result;

use super::{batch::NativeBatch, failure::to_exception, loader::SharedLoader, process::OfProcess};
use crate::load::{Batches, LoadedBatch};

/// How long signals wait to be looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// An iterator over the batches of an epoch.
#[pyclass(module = "shardify._native")]
pub(super) struct NativeBatches {
    shared: Arc<SharedLoader>,
    epoch: u64,
    next_step: u64,
    /// Never locked, for whoever calls has the iterator alone.
    running: Mutex<Option<OfProcess<Batches>>>,
    is_done: bool,
}

/// What came of waiting for a batch.
enum Awaited {
    Batch(Box<LoadedBatch>),
    End,
    Nothing,
}

impl NativeBatches {
    pub(super) fn new(shared: Arc<SharedLoader>, epoch: u64, next_step: u64) -> Self {
        Self { shared, epoch, next_step, running: Mutex::new(None), is_done: false }
    }

    /// Waits for a batch, and starts the loader in a process that has not done so: here, or in a forked child.
    fn await_batch(&mut self) -> Result<Awaited> {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(batches) = running.as_mut().and_then(OfProcess::get_mut) else {
            *running = Some(OfProcess::new(self.shared.of_this_process()?.start(self.epoch, self.next_step)?));
            return Ok(Awaited::Nothing);
        };
        match batches.next_within(PATIENCE) {
            Err(()) => Ok(Awaited::Nothing),
            Ok(None) => Ok(Awaited::End),
            Ok(Some(batch)) => batch.map(|batch| Awaited::Batch(Box::new(batch))),
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
            match py.detach(|| self.await_batch()) {
                Ok(Awaited::Nothing) => py.check_signals()?,
                Ok(Awaited::Batch(batch)) => {
                    self.next_step = batch.step + 1;
                    return Ok(Some(NativeBatch::new(*batch)));
                }
                Ok(Awaited::End) => self.end_threads(py),
                Err(error) => {
                    self.end_threads(py);
                    return Err(to_exception(py, &error));
                }
            }
        }
        Ok(None)
    }

    /// Ends the threads; there are no batches any more.
    #[pyo3(name = "close")]
    fn end_threads(&mut self, py: Python<'_>) {
        self.is_done = true;
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(running));
    }
}
