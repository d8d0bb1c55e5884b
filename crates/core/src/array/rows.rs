//! Converts hyperslabs to rows: the only place where values of variables become columns of records.
//!
//! ```text
//! read [t0:t1, :, :] --(records to the front)--> one row after the other --decode--> FixedSizeList
//! patches: the bounding box of the rows' patches is read once, and each patch is copied from it
//! cells:   see `cells`
//! ```
//!
//! If the consumer accepts keys, packed numbers are [coded](crate::record::coded): lists of keys into their decoded
//! values.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, DictionaryArray, FixedSizeListArray, ListArray, PrimitiveArray, RecordBatch,
        new_empty_array,
    },
    buffer::{Buffer, OffsetBuffer},
    compute::cast,
    datatypes::{ArrowPrimitiveType, DataType, Field, Fields, Float16Type, Float32Type, Float64Type, UInt16Type},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::{
    Arrays, Slab, Values,
    cells::{packed_column, read_cells},
    dtype::Half,
    records::{Axis, Plan, PlanColumn},
    slab::{BufferExtent, copy_box, permute_axes},
};
use crate::{
    error::{Error, Result},
    record::{
        coded::{as_coded, batch_of, is_coded, plain_batch, value_type},
        hash::row_hashes,
    },
};

/// Returns the fields of the rows.
pub fn row_fields(plan: &Plan) -> Fields {
    let index = |dim: &String| Arc::new(Field::new(dim, DataType::Int64, true));
    let own = plan.columns.iter().map(|column| Arc::new(column.field.clone()));
    missing_coordinates(plan).into_iter().map(index).chain(own).collect()
}

/// Returns the dimensions of cells without a coordinate variable; the cells' indices are used instead.
pub(super) fn missing_coordinates(plan: &Plan) -> Vec<&String> {
    let Some(cells) = &plan.cells else { return Vec::new() };
    let dims = plan.dim.iter().chain(cells.iter().map(|(dim, _)| dim));
    dims.filter(|dim| plan.columns.iter().all(|column| column.field.name() != *dim)).collect()
}

/// Reads `count` rows of a source from number `first` on.
///
/// # Errors
/// When the source cannot be read, or a value does not fit into its column; the error names the variable.
pub fn read_rows(source: &dyn Arrays, plan: &Plan, first: u64, count: u64) -> Result<RecordBatch> {
    if plan.cells.is_some() {
        return plain_batch(&read_cells(source, plan, first, count, false)?.batch);
    }
    read(source, plan, first, count, false)
}

/// Reads records of a source that are not cells; their tensors may be coded.
///
/// # Errors
/// As [`read_rows`].
pub fn coded_rows(source: &dyn Arrays, plan: &Plan, first: u64, count: u64) -> Result<RecordBatch> {
    read(source, plan, first, count, true)
}

fn read(source: &dyn Arrays, plan: &Plan, first: u64, count: u64, keys: bool) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(plan.columns.len());
    for column in &plan.columns {
        let read = record_column(source, plan, column, first..first + count, keys);
        columns.push(
            read.map_err(|e| if e.place().column.is_some() { e } else { e.in_column(column.field.name().as_str()) })?,
        );
    }
    let rows = usize::try_from(count).map_err(|_| Error::internal("more records than memory has bytes"))?;
    batch_of(&row_fields(plan), columns, rows)
}

/// Returns the hyperslabs that `count` rows from number `first` on need.
pub fn needed_slabs(plan: &Plan, first: u64, count: u64) -> Vec<(usize, Slab)> {
    let per_record = if plan.cells.is_some() { plan.rows_per_record() } else { plan.patches_per_record() }.max(1);
    let records = first / per_record..(first + count).div_ceil(per_record);
    let rows = if plan.patches.is_empty() { Vec::new() } else { patch_starts(plan, first, count) };
    let slab =
        |column: &PlanColumn| (column.variable, with_characters(column, bounding_slab(plan, column, &records, &rows)));
    plan.columns.iter().map(slab).collect()
}

/// Extends a column's slab by all characters of its texts.
fn with_characters(column: &PlanColumn, mut slab: Slab) -> Slab {
    if let Some(length) = column.characters {
        slab.start.push(0);
        slab.count.push(length);
    }
    slab
}

/// Elements in a uniform form: those of any length are represented by indices into a list.
pub(super) struct Elements {
    pub(super) bytes: Vec<u8>,
    pub(super) width: usize,
    pub(super) varied: Option<Vec<Vec<u8>>>,
}

impl Elements {
    /// Reads a slab of a column's variable.
    pub(super) fn read(source: &dyn Arrays, column: &PlanColumn, slab: Slab) -> Result<Self> {
        let slab = with_characters(column, slab);
        let elements = slab.element_count() / column.characters.unwrap_or(1).max(1);
        Ok(match source.read(column.variable, &slab)? {
            Values::Fixed(bytes) => {
                let width =
                    column.dtype.byte_width().ok_or_else(|| Error::internal("expected values of any length"))?;
                if bytes.len() as u64 != elements.saturating_mul(width as u64) {
                    let place = slab.describe();
                    return Err(Error::internal(format!("expected {elements} elements at {place}, found others")));
                }
                Self { bytes, width, varied: None }
            }
            Values::Varied(values) => {
                let bytes = (0..values.len()).flat_map(usize::to_ne_bytes).collect();
                Self { bytes, width: size_of::<usize>(), varied: Some(values) }
            }
        })
    }

    fn into_values(self, bytes: Vec<u8>) -> Values {
        let Some(mut varied) = self.varied else { return Values::Fixed(bytes) };
        let numbers = bytes.as_chunks::<{ size_of::<usize>() }>().0.iter().map(|bytes| usize::from_ne_bytes(*bytes));
        if bytes == self.bytes {
            return Values::Varied(varied);
        }
        Values::Varied(numbers.map(|number| varied.get_mut(number).cloned().unwrap_or_default()).collect())
    }
}

/// Converts values to a flat column. Missing floats of tensors are NaN, because readers take the values of a tensor
/// without asking which of them are null.
pub(super) fn decode_flat(column: &PlanColumn, plan: &Plan, values: Values) -> Result<ArrayRef> {
    let decoded = match values {
        Values::Fixed(bytes) if !column.decode.is_plain() => column.decode.decode_column(&column.dtype, &bytes)?,
        values => column.dtype.decode_column(values, plan.raw)?,
    };
    let rounded = match &column.rounded {
        Some(float) => cast(&decoded, float)?,
        None => decoded,
    };
    match column.field.data_type() {
        DataType::FixedSizeList(..) if rounded.null_count() > 0 => Ok(match rounded.data_type() {
            DataType::Float16 => with_nan::<Float16Type>(&rounded, Half::NAN)?,
            DataType::Float32 => with_nan::<Float32Type>(&rounded, f32::NAN)?,
            DataType::Float64 => with_nan::<Float64Type>(&rounded, f64::NAN)?,
            _ => rounded,
        }),
        _ => Ok(rounded),
    }
}

/// Replaces nulls by NaN.
fn with_nan<T: ArrowPrimitiveType>(array: &ArrayRef, nan: T::Native) -> Result<ArrayRef> {
    let array = array.as_primitive::<T>();
    let mut values = array.values().to_vec();
    for (value, valid) in values.iter_mut().zip(array.nulls().into_iter().flatten()) {
        if !valid {
            *value = nan;
        }
    }
    Ok(Arc::new(PrimitiveArray::<T>::try_new(values.into(), None)?))
}

/// Wraps a flat column so that each row has the shape of the field.
fn wrap_shape(field: &Field, flat: ArrayRef) -> Result<ArrayRef> {
    if *field.data_type() == *value_type(flat.data_type()) {
        return Ok(flat);
    }
    let DataType::FixedSizeList(item, length) = field.data_type() else {
        let message = format!("expected values of {}, found {}", field.data_type(), flat.data_type());
        return Err(Error::internal(message));
    };
    let inner = wrap_shape(item, flat)?;
    let item = match is_coded(inner.data_type()) {
        true => Arc::new(item.as_ref().clone().with_data_type(inner.data_type().clone())),
        false => Arc::clone(item),
    };
    Ok(Arc::new(FixedSizeListArray::try_new(item, *length, inner, None)?))
}

fn record_column(
    source: &dyn Arrays,
    plan: &Plan,
    column: &PlanColumn,
    rows: Range<u64>,
    keys: bool,
) -> Result<ArrayRef> {
    if column.record_shape(&plan.patches).contains(&0) {
        return empty_lists(column, rows.end - rows.start);
    }
    let patches = plan.patches_per_record();
    let records = rows.start / patches..rows.end.div_ceil(patches);
    let rows = patch_starts(plan, rows.start, rows.end - rows.start);
    let slab = bounding_slab(plan, column, &records, &rows);
    let read = Elements::read(source, column, slab.clone())?;
    let along = column.axes.iter().position(|axis| *axis == Axis::Record);
    let moved = match along {
        // The record dimension is moved to the front.
        Some(along) if along > 0 => {
            let order: Vec<usize> =
                std::iter::once(along).chain((0..column.axes.len()).filter(|a| *a != along)).collect();
            Some(permute_axes(&read.bytes, read.width, &slab.count, &order))
        }
        _ => None,
    };
    let bytes = moved.as_ref().unwrap_or(&read.bytes);
    let bytes = if plan.patches.is_empty() && along.is_some() {
        match moved {
            Some(moved) => moved,
            None if read.varied.is_none() => {
                return decode_tensors(column, plan, Values::Fixed(read.bytes), keys);
            }
            None => read.bytes.clone(),
        }
    } else {
        copy_patches(plan, column, &slab, &rows, bytes, read.width)
    };
    decode_tensors(column, plan, read.into_values(bytes), keys)
}

/// Returns empty lists for rows whose shape has no elements.
fn empty_lists(column: &PlanColumn, rows: u64) -> Result<ArrayRef> {
    let DataType::List(item) = column.field.data_type() else {
        return Err(Error::internal("expected a column of lists for values without elements"));
    };
    let rows = usize::try_from(rows).map_err(|_| Error::internal("more records than memory has bytes"))?;
    let offsets = OffsetBuffer::new_zeroed(rows);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, new_empty_array(item.data_type()), None)?))
}

/// Converts the values of all rows, each in its shape.
fn decode_tensors(column: &PlanColumn, plan: &Plan, values: Values, keys: bool) -> Result<ArrayRef> {
    // Scalar columns may be ids, which need their values.
    if let Values::Fixed(bytes) = &values
        && let (true, DataType::FixedSizeList(..)) = (keys, column.field.data_type())
        && let Some(coded) = packed_column(plan, column, bytes)?
    {
        return wrap_shape(&column.field, coded);
    }
    wrap_shape(&column.field, decode_flat(column, plan, values)?)
}

/// Returns for each row its record and the start of its patch in each dimension that is cut.
fn patch_starts(plan: &Plan, first: u64, count: u64) -> Vec<(u64, Vec<u64>)> {
    if plan.patches.is_empty() {
        return (first..first + count).map(|record| (record, Vec::new())).collect();
    }
    let patches = plan.patches_per_record();
    (first..first + count)
        .map(|row| {
            let mut rest = row % patches;
            let mut starts = vec![0; plan.patches.len()];
            for (start, patch) in starts.iter_mut().zip(&plan.patches).rev() {
                let number = patch.starts.len() as u64;
                *start = patch.starts[usize::try_from(rest % number).unwrap_or(0)];
                rest /= number;
            }
            (row / patches, starts)
        })
        .collect()
}

/// Returns the bounding box of the parts of a variable that the rows need.
pub(super) fn bounding_slab(plan: &Plan, column: &PlanColumn, records: &Range<u64>, rows: &[(u64, Vec<u64>)]) -> Slab {
    let mut slab = Slab { start: Vec::new(), count: Vec::new() };
    for axis in &column.axes {
        let (start, end) = match axis {
            Axis::Record => (records.start, records.end),
            Axis::Whole(length) => (0, *length),
            Axis::Patch(number) => {
                let starts = || rows.iter().map(|(_, starts)| starts[*number]);
                let first = starts().min().unwrap_or(0);
                (first, starts().max().map_or(first, |last| last + plan.patches[*number].size))
            }
        };
        slab.start.push(start);
        slab.count.push(end - start);
    }
    slab
}

/// Copies the patch of each row from the box, in which the record dimension is first.
fn copy_patches(
    plan: &Plan,
    column: &PlanColumn,
    slab: &Slab,
    rows: &[(u64, Vec<u64>)],
    bytes: &[u8],
    width: usize,
) -> Vec<u8> {
    let within: Vec<usize> = (0..column.axes.len()).filter(|axis| column.axes[*axis] != Axis::Record).collect();
    let start: Vec<u64> = within.iter().map(|axis| slab.start[*axis]).collect();
    let shape: Vec<u64> = within.iter().map(|axis| slab.count[*axis]).collect();
    let record_bytes = width * shape.iter().map(|length| usize::try_from(*length).unwrap_or(0)).product::<usize>();
    let sliced = within.len() < column.axes.len();
    let first = rows.first().map_or(0, |(record, _)| *record);
    let count = column.record_shape(&plan.patches);
    let row_bytes = width * count.iter().map(|length| usize::try_from(*length).unwrap_or(0)).product::<usize>();
    let mut out = vec![0; row_bytes * rows.len()];
    for ((record, starts), target) in rows.iter().zip(out.chunks_exact_mut(row_bytes.max(1))) {
        let at = |axis: &usize| match column.axes[*axis] {
            Axis::Patch(number) => starts[number],
            _ => 0,
        };
        let patch = Slab { start: within.iter().map(at).collect(), count: count.clone() };
        let number = if sliced { usize::try_from(record - first).unwrap_or(0) } else { 0 };
        let source = &bytes[number * record_bytes..][..record_bytes];
        let to = BufferExtent { start: &patch.start, shape: &count };
        copy_box(&patch, width, BufferExtent { start: &start, shape: &shape }, source, to, target);
    }
    out
}

/// Returns a hash of each row: over the bytes of its tensors, seeded with the hash of its other columns.
///
/// # Errors
/// When the batch is inconsistent.
pub fn tensor_row_hashes(batch: &RecordBatch) -> Result<Vec<u64>> {
    let is_tensor = |column: &&ArrayRef| match column.data_type() {
        DataType::FixedSizeList(item, _) => value_type(item.data_type()).primitive_width().is_some(),
        _ => false,
    };
    let others: Vec<usize> = (0..batch.num_columns()).filter(|i| !is_tensor(&batch.column(*i))).collect();
    let mut hashes = row_hashes(&batch.project(&others)?);
    for column in batch.columns().iter().filter(is_tensor) {
        let list = column.as_fixed_size_list();
        let row = usize::try_from(list.value_length()).unwrap_or(0);
        match as_coded(list.values()) {
            Some(coded) => chain_coded(coded, row, &mut hashes),
            None => {
                let Some((bytes, width)) = bytes_of(list.values()) else { continue };
                for (hash, value) in hashes.iter_mut().zip(bytes.chunks_exact((row * width).max(1))) {
                    *hash = xxh3_64_with_seed(value, *hash);
                }
            }
        }
    }
    Ok(hashes)
}

/// Returns the bytes of numbers, nulls included, and the bytes per number.
fn bytes_of(values: &dyn Array) -> Option<(Buffer, usize)> {
    let (data, width) = (values.to_data(), values.data_type().primitive_width()?);
    let bytes = data.buffers().first()?;
    Some((bytes.slice_with_length(data.offset() * width, data.len() * width), width))
}

/// Number of keys whose values are hashed together: the values fit into the L1 cache.
const HASH_BATCH: usize = 512;

/// Chains tensors of `row` items each as if they were not coded.
fn chain_coded(coded: &DictionaryArray<UInt16Type>, row: usize, hashes: &mut [u64]) {
    let Some((table, width)) = bytes_of(coded.values()) else { return };
    match width {
        2 => chain_keys::<2>(coded.keys().values(), &table, row, hashes),
        4 => chain_keys::<4>(coded.keys().values(), &table, row, hashes),
        8 => chain_keys::<8>(coded.keys().values(), &table, row, hashes),
        _ => chain_keys::<1>(coded.keys().values(), &table, row, hashes),
    }
}

fn chain_keys<const N: usize>(keys: &[u16], table: &[u8], row: usize, hashes: &mut [u64]) {
    let table = table.as_chunks::<N>().0;
    let mut values = [[0; N]; HASH_BATCH];
    for (hash, row) in hashes.iter_mut().zip(keys.chunks_exact(row.max(1))) {
        let mut hasher = Xxh3::with_seed(*hash);
        for keys in row.chunks(HASH_BATCH) {
            for (value, key) in values.iter_mut().zip(keys) {
                *value = table.get(usize::from(*key)).copied().unwrap_or([0; N]);
            }
            hasher.update(values[..keys.len()].as_flattened());
        }
        *hash = hasher.digest();
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::UInt8Array;

    use super::*;
    use crate::{
        array::{Attribute, DType, Header, Variable, records::ArrayOptions},
        record::size::logical_bytes,
    };

    /// Arrays whose elements are numbered consecutively.
    #[derive(Debug)]
    struct Counting(Header);

    impl Arrays for Counting {
        fn header(&self) -> &Header {
            &self.0
        }

        fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
            let variable = &self.0.variables[variable];
            let all: Vec<u8> = (0..u8::try_from(variable.element_count()).unwrap()).collect();
            let mut out = vec![0; slab.byte_count(1)?];
            let whole = Slab::from_shape(&variable.shape);
            let from = BufferExtent { start: &whole.start, shape: &variable.shape };
            copy_box(slab, 1, from, &all, BufferExtent { start: &slab.start, shape: &slab.count }, &mut out);
            Ok(match variable.dtype {
                DType::AnyText => Values::Varied(out.iter().map(|number| number.to_string().into_bytes()).collect()),
                _ => Values::Fixed(out),
            })
        }
    }

    type Given<'a> = (&'a str, DType, &'a [(&'a str, u64)]);

    fn counting(variables: &[Given<'_>]) -> Counting {
        let variable = |(name, dtype, dims): &Given<'_>| Variable::with_dims(name, dtype.clone(), dims);
        Counting(Header { variables: variables.iter().map(variable).collect(), ..Header::default() })
    }

    fn table(source: &Counting, options: &ArrayOptions, first: u64, count: u64) -> RecordBatch {
        let plan = Plan::new(source.header(), options).unwrap();
        read_rows(source, &plan, first, count).unwrap()
    }

    fn row(batch: &RecordBatch, column: &str, row: usize) -> Vec<u8> {
        let column = batch.column_by_name(column).unwrap();
        let mut value = column.slice(row, 1);
        while let DataType::FixedSizeList(..) = value.data_type() {
            value = value.as_fixed_size_list().value(0);
        }
        value.as_any().downcast_ref::<UInt8Array>().unwrap().values().to_vec()
    }

    #[test]
    fn records_are_slices_wherever_their_dimension_is() {
        let source = counting(&[
            ("a", DType::UInt(1), &[("t", 3), ("x", 2)]),
            ("b", DType::UInt(1), &[("x", 2), ("t", 3)]),
            ("c", DType::AnyText, &[("x", 2), ("t", 3)]),
            ("t", DType::UInt(1), &[("t", 3)]),
        ]);
        let options = ArrayOptions { record_dim: Some("t".into()), ..ArrayOptions::default() };
        let batch = table(&source, &options, 1, 2);
        assert_eq!((row(&batch, "a", 0), row(&batch, "a", 1)), (vec![2, 3], vec![4, 5]));
        assert_eq!((row(&batch, "b", 0), row(&batch, "b", 1)), (vec![1, 4], vec![2, 5]));
        assert_eq!(row(&batch, "t", 1), [2]);
        let texts = batch.column_by_name("c").unwrap().as_fixed_size_list().value(1);
        assert_eq!(texts.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["2", "5"]);
        assert_eq!(tensor_row_hashes(&batch).unwrap().len(), 2);
        assert_ne!(tensor_row_hashes(&batch).unwrap()[0], tensor_row_hashes(&batch).unwrap()[1]);
    }

    #[test]
    fn patches_are_cut_out() {
        let source = counting(&[
            ("a", DType::UInt(1), &[("t", 2), ("y", 3), ("x", 4)]),
            ("y", DType::UInt(1), &[("y", 3)]),
            ("t", DType::UInt(1), &[("t", 2)]),
        ]);
        let patch = vec![("y".to_owned(), 2), ("x".to_owned(), 2)];
        let options = ArrayOptions { record_dim: Some("t".into()), patch, ..ArrayOptions::default() };
        // Two starts in y (0, 1) and two in x (0, 2): four patches per record.
        let batch = table(&source, &options, 3, 3);
        assert_eq!(row(&batch, "a", 0), [6, 7, 10, 11]);
        assert_eq!(row(&batch, "a", 1), [12, 13, 16, 17]);
        assert_eq!((row(&batch, "y", 0), row(&batch, "y", 1)), (vec![1, 2], vec![0, 1]));
        assert_eq!((row(&batch, "t", 0), row(&batch, "t", 1)), (vec![0], vec![1]));
    }

    #[test]
    fn shared_values_are_repeated_in_cells() {
        let source = counting(&[
            ("a", DType::UInt(1), &[("t", 2), ("y", 2), ("x", 2)]),
            ("b", DType::UInt(1), &[("x", 2), ("t", 2)]),
            ("x", DType::UInt(1), &[("x", 2)]),
            ("one", DType::UInt(1), &[]),
        ]);
        let options = ArrayOptions { record_dim: Some("t".into()), flatten: true, ..ArrayOptions::default() };
        let batch = table(&source, &options, 4, 4);
        let column = |name: &str| {
            let column = arrow::compute::cast(batch.column_by_name(name).unwrap(), &DataType::UInt8).unwrap();
            column.as_any().downcast_ref::<UInt8Array>().unwrap().values().to_vec()
        };
        assert_eq!(column("a"), [4, 5, 6, 7]);
        assert_eq!((column("t"), column("y"), column("x")), (vec![1; 4], vec![0, 0, 1, 1], vec![0, 1, 0, 1]));
        assert_eq!(column("one"), [0; 4]);
    }

    /// Arrays of packed numbers with few different values, some of them missing.
    #[derive(Debug)]
    struct Packed(Header);

    impl Arrays for Packed {
        fn header(&self) -> &Header {
            &self.0
        }

        fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
            let variable = &self.0.variables[variable];
            let number = |at: u64| i16::try_from(at * at % 23).unwrap() - 9;
            let all: Vec<u8> = (0..variable.element_count()).flat_map(|at| number(at).to_ne_bytes()).collect();
            let mut out = vec![0; slab.byte_count(2)?];
            let whole = Slab::from_shape(&variable.shape);
            let from = BufferExtent { start: &whole.start, shape: &variable.shape };
            copy_box(slab, 2, from, &all, BufferExtent { start: &slab.start, shape: &slab.count }, &mut out);
            Ok(Values::Fixed(out))
        }
    }

    #[test]
    fn coded_tensors_have_the_values_and_hashes_of_others() {
        let numbers = |dtype, bytes: &[u8]| Attribute::Numbers(dtype, bytes.to_vec());
        let dims: [(&str, u64); 3] = [("t", 6), ("y", 40), ("x", 30)];
        let fill = numbers(DType::Int(2), &(-3_i16).to_ne_bytes());
        let double = numbers(DType::Float(8), &0.3_f64.to_ne_bytes());
        let single = numbers(DType::Float(4), &0.25_f32.to_ne_bytes());
        let with = |name: &str, dims: &[(&str, u64)], scale: Option<&Attribute>| {
            let scale = scale.map(|scale| ("scale_factor".to_owned(), scale.clone()));
            let attributes = scale.into_iter().chain([("_FillValue".to_owned(), fill.clone())]).collect();
            Variable { attributes, ..Variable::with_dims(name, DType::Int(2), dims) }
        };
        let variables = vec![
            with("double", &dims, Some(&double)),
            with("single", &[dims[1], dims[0], dims[2]], Some(&single)),
            with("stored", &dims, None),
            with("t", &dims[..1], None),
        ];
        let source = Packed(Header { variables, ..Header::default() });
        let record_dim = Some("t".to_owned());
        for patch in [vec![], vec![("y".to_owned(), 16), ("x".to_owned(), 30)]] {
            let options = ArrayOptions { record_dim: record_dim.clone(), patch, ..ArrayOptions::default() };
            let plan = Plan::new(source.header(), &options).unwrap();
            let (expected, found) =
                (read_rows(&source, &plan, 1, 4).unwrap(), coded_rows(&source, &plan, 1, 4).unwrap());
            let of: Vec<bool> = found.columns().iter().map(|column| is_coded(column.data_type())).collect();
            assert_eq!(of, [true, true, true, false]);
            assert!(expected.column(2).as_fixed_size_list().values().null_count() > 0);
            let floats = expected.column(1).as_fixed_size_list().values();
            assert!(
                floats.null_count() == 0 && floats.as_primitive::<Float32Type>().values().iter().any(|v| v.is_nan())
            );
            let other = |v: &f32| v.is_nan() || (v / 0.25).fract() == 0.0;
            assert!(floats.as_primitive::<Float32Type>().values().iter().all(other));
            // NaN differs from itself, but not from its text.
            let same = |one: &RecordBatch, other: &RecordBatch| format!("{one:?}") == format!("{other:?}");
            assert!(same(&plain_batch(&found).unwrap(), &expected));
            assert_eq!(tensor_row_hashes(&found).unwrap(), tensor_row_hashes(&expected).unwrap());
            let (found, expected) = (found.slice(1, 2), expected.slice(1, 2));
            assert!(same(&plain_batch(&found).unwrap(), &expected));
            assert_eq!(tensor_row_hashes(&found).unwrap(), tensor_row_hashes(&expected).unwrap());
            assert_eq!(logical_bytes(&found), logical_bytes(&expected));
        }
    }
}
