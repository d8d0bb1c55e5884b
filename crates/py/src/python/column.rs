//! What Python is told of a column: buffers, and how they are read.

use arrow::{
    array::ArrayData,
    buffer::Buffer,
    datatypes::{DataType, Field},
};
use pyo3::{
    Bound, PyResult, Python,
    types::{PyDict, PyDictMethods},
};

use super::buffer::NativeBuffer;

/// Keys of a field's metadata with the name of an extension type, and with its parameters.
const EXTENSION: [&str; 2] = ["ARROW:extension:name", "ARROW:extension:metadata"];

/// References to the memory of a batch by which nothing but the batch and its description refer to it.
const OWN_REFERENCES: usize = 2;

/// Describes a column by a dictionary whose `kind` says what else is in it.
///
/// | kind | keys |
/// |---|---|
/// | `array` | `values`, and `missing_items` if values of tensors are null |
/// | `text`, `binary` | `values` (bytes) and `offsets` |
/// | `list` | `offsets`, and `items`, which is the description of the column of all items |
/// | `other` | none: Arrow readers take the column |
///
/// All have `type`, `missing` if records are null, and the `extension` and its `parameters` if there is one.
pub(super) fn describe_column<'py>(py: Python<'py>, field: &Field, column: &ArrayData) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    let kind = match column.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => add_bytes(&described, column, "text")?,
        DataType::Binary | DataType::LargeBinary => add_bytes(&described, column, "binary")?,
        DataType::FixedSizeBinary(width) => add_fixed_bytes(&described, column, to_usize(*width))?,
        DataType::List(items) | DataType::LargeList(items) => add_items(py, &described, column, items)?,
        _ => add_array(&described, column)?,
    };
    described.set_item("kind", kind)?;
    described.set_item("type", column.data_type().to_string())?;
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        described.set_item("missing", NativeBuffer::of_bits(&!nulls.inner(), vec![nulls.len()]))?;
    }
    for (key, of_field) in ["extension", "parameters"].into_iter().zip(EXTENSION) {
        described.set_item(key, field.metadata().get(of_field))?;
    }
    Ok(described)
}

/// Adds numbers, or lists of fixed size of numbers, as an array whose first dimension is the records.
fn add_array(described: &Bound<'_, PyDict>, column: &ArrayData) -> PyResult<&'static str> {
    let (mut items, mut shape) = (column.clone(), vec![column.len()]);
    let mut has_gaps = false;
    while let DataType::FixedSizeList(_, size) = *items.data_type() {
        let size = to_usize(size);
        // A list that is null within a list has no place in the array.
        has_gaps |= shape.len() > 1 && items.null_count() > 0;
        let Some(child) = items.child_data().first() else { return Ok("other") };
        let of_records = child.slice(items.offset() * size, items.len() * size);
        shape.push(size);
        items = of_records;
    }
    let owners = items.buffers().first().map_or(0, Buffer::strong_count);
    // The walk down to the items of lists has made a reference more.
    let is_ours = owners <= OWN_REFERENCES + 1;
    let Some(values) = NativeBuffer::of_items(&items, shape.clone(), is_ours).filter(|_| !has_gaps) else {
        return Ok("other");
    };
    described.set_item("values", values)?;
    if let Some(nulls) = items.nulls().filter(|nulls| shape.len() > 1 && nulls.null_count() > 0) {
        described.set_item("missing_items", NativeBuffer::of_bits(&!nulls.inner(), shape))?;
    }
    Ok("array")
}

/// Adds texts or bytes as one buffer and the places where each begins and ends.
fn add_bytes(described: &Bound<'_, PyDict>, column: &ArrayData, kind: &'static str) -> PyResult<&'static str> {
    let [_, values] = column.buffers() else { return Ok("other") };
    add_offsets(described, column)?;
    described.set_item("values", NativeBuffer::read_only(values.clone(), "|u1", values.len()))?;
    Ok(kind)
}

/// Adds bytes that are equally long.
fn add_fixed_bytes(described: &Bound<'_, PyDict>, column: &ArrayData, width: usize) -> PyResult<&'static str> {
    let [values] = column.buffers() else { return Ok("other") };
    let values = values.slice_with_length(column.offset() * width, column.len() * width);
    let ends: Vec<u64> = (0..=column.len()).map(|record| (record * width) as u64).collect();
    described.set_item("offsets", NativeBuffer::read_only(Buffer::from_vec(ends), "<u8", column.len() + 1))?;
    described.set_item("values", NativeBuffer::read_only(values.clone(), "|u1", values.len()))?;
    Ok("binary")
}

/// Adds lists as the column of their items, and the places where each begins and ends.
fn add_items(
    py: Python<'_>,
    described: &Bound<'_, PyDict>,
    column: &ArrayData,
    field: &Field,
) -> PyResult<&'static str> {
    let Some(items) = column.child_data().first() else { return Ok("other") };
    add_offsets(described, column)?;
    described.set_item("items", describe_column(py, field, items)?)?;
    Ok("list")
}

fn add_offsets(described: &Bound<'_, PyDict>, column: &ArrayData) -> PyResult<()> {
    let is_large = matches!(column.data_type(), DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_));
    let (item, width) = if is_large { ("<i8", 8) } else { ("<i4", 4) };
    let count = column.len() + 1;
    let offsets = match column.buffers().first() {
        Some(offsets) if !offsets.is_empty() => offsets.slice_with_length(column.offset() * width, count * width),
        // A column without records may lack its only offset.
        _ => Buffer::from(vec![0; width]),
    };
    described.set_item("offsets", NativeBuffer::read_only(offsets, item, count))
}

/// Returns a size of a list or value, which is never negative.
fn to_usize(size: i32) -> usize {
    usize::try_from(size).unwrap_or(0)
}
