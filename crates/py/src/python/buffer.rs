//! Memory of a batch that NumPy reads and writes in place.

use arrow::{
    array::ArrayData,
    buffer::{BooleanBuffer, Buffer},
    datatypes::DataType,
};
use pyo3::{
    Bound, PyResult, Python, pyclass, pymethods,
    types::{PyDict, PyDictMethods, PyTuple},
};

/// An array of numbers, which NumPy wraps by `__array_interface__` and keeps alive.
///
/// It holds its own memory, not that of the other columns of the batch.
#[pyclass(frozen, module = "shardify._native")]
pub(super) struct NativeBuffer {
    buffer: Buffer,
    /// Type of an item in the notation of NumPy.
    item: &'static str,
    shape: Vec<usize>,
    writable: bool,
}

impl NativeBuffer {
    /// Returns items that nothing else refers to.
    pub(super) fn from_owned(buffer: Buffer, item: &'static str, shape: Vec<usize>) -> Self {
        Self { buffer, item, shape, writable: true }
    }

    /// Returns the items of a column without nulls taken into account; `None` if NumPy has no type for them.
    pub(super) fn of_items(items: &ArrayData, shape: Vec<usize>, writable: bool) -> Option<Self> {
        if *items.data_type() == DataType::Boolean {
            let bits = BooleanBuffer::new(items.buffers().first()?.clone(), items.offset(), items.len());
            return Some(Self::of_bits(&bits, shape));
        }
        let (item, width) = numpy_type(items.data_type())?;
        let (start, bytes) = (items.offset() * width, items.len() * width);
        let buffer = items.buffers().first()?.slice_with_length(start, bytes);
        Some(Self { buffer, item, shape, writable })
    }

    /// Returns booleans of one byte each.
    pub(super) fn of_bits(bits: &BooleanBuffer, shape: Vec<usize>) -> Self {
        let bytes: Vec<u8> = bits.iter().map(u8::from).collect();
        Self::from_owned(Buffer::from_vec(bytes), "|b1", shape)
    }

    /// Returns a part of a buffer of bytes or offsets.
    pub(super) fn read_only(buffer: Buffer, item: &'static str, items: usize) -> Self {
        Self { buffer, item, shape: vec![items], writable: false }
    }
}

#[pymethods]
impl NativeBuffer {
    /// The protocol by which NumPy takes memory without a copy.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.item)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.buffer.as_ptr().addr(), !self.writable))?;
        Ok(interface)
    }
}

/// Returns the type of NumPy for items of a type, and their width in bytes. Dates and times are counts of their unit.
fn numpy_type(kind: &DataType) -> Option<(&'static str, usize)> {
    Some(match kind {
        DataType::Int8 => ("|i1", 1),
        DataType::UInt8 => ("|u1", 1),
        DataType::Int16 => ("<i2", 2),
        DataType::UInt16 => ("<u2", 2),
        DataType::Float16 => ("<f2", 2),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => ("<i4", 4),
        DataType::UInt32 => ("<u4", 4),
        DataType::Float32 => ("<f4", 4),
        DataType::Int64 | DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
            ("<i8", 8)
        }
        DataType::UInt64 => ("<u8", 8),
        DataType::Float64 => ("<f8", 8),
        _ => return None,
    })
}
