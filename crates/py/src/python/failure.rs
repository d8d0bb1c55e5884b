//! Errors as exceptions of the package.

use pyo3::{
    Bound, PyErr, PyResult, Python,
    exceptions::PyKeyboardInterrupt,
    types::{PyAnyMethods, PyDict, PyDictMethods},
};
use shardify_core::error::{Error, Kind};

/// Returns the exception of the package for an error, with the same fields as for a failure of the program.
pub(super) fn to_exception(py: Python<'_>, error: &Error) -> PyErr {
    if error.kind() == Kind::Interrupted {
        return PyKeyboardInterrupt::new_err(error.to_string());
    }
    error_fields(py, error).and_then(|said| class_of(py, error.kind(), &said)).unwrap_or_else(|failed| failed)
}

/// Exit code of the program for a kind of failure, which is what decides the class.
fn exit_code(kind: Kind) -> u8 {
    match kind {
        Kind::Usage => 2,
        Kind::Conflict => 4,
        Kind::Storage | Kind::Integrity => 5,
        Kind::Input => 6,
        Kind::Changed => 8,
        _ => 70,
    }
}

fn error_fields<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyDict>> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let place = error.place();
    let said = PyDict::new(py);
    said.set_item("message", error.message())?;
    said.set_item("source", place.source.as_deref())?;
    said.set_item("line", place.line)?;
    said.set_item("byte", place.byte)?;
    said.set_item("column", place.column.as_deref())?;
    said.set_item("causes", causes.map(ToString::to_string).collect::<Vec<_>>())?;
    said.set_item("hints", error.hints().to_vec())?;
    Ok(said)
}

fn class_of(py: Python<'_>, kind: Kind, said: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let errors = py.import("shardify.errors")?;
    Ok(PyErr::from_value(errors.call_method1("of_code", (exit_code(kind), said, ""))?))
}
