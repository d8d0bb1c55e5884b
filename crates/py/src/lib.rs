//! `shardify._native`: the loader of the Python package. It reads, and never writes.
//!
#![doc = include_str!("../README.md")]

mod python;

use pyo3::{Bound, PyResult, pymodule, types::PyModule};

/// The extension module; `python/shardify/loader.py` is what users call.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    python::add_classes(module)
}
