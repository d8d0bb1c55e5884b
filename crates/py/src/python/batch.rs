//! A batch: columns for NumPy, and the whole as Arrow C data.

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StructArray},
    buffer::Buffer,
    error::ArrowError,
    ffi::{FFI_ArrowSchema, to_ffi},
};
use pyo3::{
    Bound, PyErr, PyRef, PyResult, Python,
    exceptions::PyIndexError,
    pyclass, pymethods,
    types::{PyAny, PyCapsule, PyDict},
};
use shardify_load::{LoadedBatch, join_batches};

use super::{buffer::NativeBuffer, column::describe_column, failure::to_exception};

/// Records of a step, in the order in which a trainer takes them.
#[pyclass(frozen, module = "shardify._native")]
pub(super) struct NativeBatch {
    /// Number of the epoch, from 0.
    #[pyo3(get)]
    epoch: u64,
    /// Number of the step in the epoch, from 0.
    #[pyo3(get)]
    step: u64,
    /// Number of records that the step has unless some were erased.
    #[pyo3(get)]
    expected: u64,
    numbers: Buffer,
    positions: Buffer,
    columns: RecordBatch,
}

impl NativeBatch {
    pub(super) fn new(batch: LoadedBatch) -> Self {
        let LoadedBatch { epoch, step, expected, numbers, positions, columns } = batch;
        let (numbers, positions) = (Buffer::from_vec(numbers), Buffer::from_vec(positions));
        Self { epoch, step, expected, numbers, positions, columns }
    }

    fn to_loaded(&self) -> LoadedBatch {
        LoadedBatch {
            epoch: self.epoch,
            step: self.step,
            expected: self.expected,
            numbers: self.numbers.typed_data().to_vec(),
            positions: self.positions.typed_data().to_vec(),
            columns: self.columns.clone(),
        }
    }
}

#[pymethods]
impl NativeBatch {
    /// Joins batches of the same columns, one after the other, into memory of their own.
    #[staticmethod]
    #[pyo3(name = "join")]
    fn join_all(py: Python<'_>, batches: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let loaded: Vec<LoadedBatch> = batches.iter().map(|batch| batch.to_loaded()).collect();
        let joined = py.detach(|| join_batches(&loaded));
        joined.map(Self::new).map_err(|error| to_exception(py, &error))
    }

    fn __len__(&self) -> usize {
        self.columns.num_rows()
    }

    /// Record numbers.
    #[getter(records)]
    fn record_numbers(&self) -> NativeBuffer {
        NativeBuffer::read_only(self.numbers.clone(), "<u8", self.numbers.len() / size_of::<u64>())
    }

    /// Positions in the list of live records.
    #[getter(positions)]
    fn list_positions(&self) -> NativeBuffer {
        NativeBuffer::read_only(self.positions.clone(), "<u8", self.positions.len() / size_of::<u64>())
    }

    /// Bytes of the columns.
    #[getter(nbytes)]
    fn column_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size();
        let bytes = self.columns.columns().iter().map(bytes).sum::<Result<usize, ArrowError>>();
        bytes.map_err(|error| arrow_exception(py, error))
    }

    /// Names of the columns.
    #[getter(names)]
    fn column_names(&self) -> Vec<String> {
        self.columns.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Describes a column by a dictionary: `kind` is `array`, `text`, `binary`, `list` or `other`.
    #[pyo3(name = "column")]
    fn column_at<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
        let schema = self.columns.schema();
        match (schema.fields().get(index), self.columns.columns().get(index)) {
            (Some(field), Some(column)) => describe_column(py, field, &column.to_data()),
            _ => Err(PyIndexError::new_err(index)),
        }
    }

    /// The Arrow PyCapsule interface: the batch as an array of structs. Consumers cast to the schema that they request.
    #[pyo3(signature = (_requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        _requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let records = StructArray::from(self.columns.clone()).into_data();
        let (array, _) = to_ffi(&records).map_err(|error| arrow_exception(py, error))?;
        Ok((self.__arrow_c_schema__(py)?, PyCapsule::new_with_value(py, array, c"arrow_array")?))
    }

    /// The Arrow PyCapsule interface: the types of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.columns.schema().as_ref());
        PyCapsule::new_with_value(py, schema.map_err(|error| arrow_exception(py, error))?, c"arrow_schema")
    }
}

fn arrow_exception(py: Python<'_>, error: ArrowError) -> PyErr {
    to_exception(py, &error.into())
}
