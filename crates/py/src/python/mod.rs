//! Classes of the extension module.
//!
//! ```text
//! NativeLoader --start--> NativeBatches --next--> NativeBatch --column--> NativeBuffer (__array_interface__)
//! NativeRecords --take---------------------------------->  |----------------> Arrow C data (__arrow_c_array__)
//! ```

mod batch;
mod batches;
mod buffer;
mod column;
mod failure;
mod loader;
mod process;
mod records;
mod shared;

use pyo3::{
    Bound, PyResult,
    types::{PyModule, PyModuleMethods},
};

/// Adds the classes to the module.
pub(crate) fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<loader::NativeLoader>()?;
    module.add_class::<records::NativeRecords>()?;
    module.add_class::<batches::NativeBatches>()?;
    module.add_class::<batch::NativeBatch>()?;
    module.add_class::<buffer::NativeBuffer>()
}
