//! Tensors in formats without a tensor type: members of samples, and features.
//!
//! ```text
//! tar        key.t2m.npy  key.mask.npy of nulls where numbers have no NaN   key.json: all other columns
//! tfrecord   t2m: bytes   t2m/shape: int64 list   t2m/dtype: "<f4"   t2m/mask: bytes, 1 where a value is missing
//! ```
//!
//! A missing float is NaN, and a missing time is numpy's NaT. For other types a missing value is 0 and marked in a
//! mask. A column that may have nulls always has its mask, so that all records have the same parts. Tensors with
//! individual shapes are stored in the same way, because each states its shape.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    },
    buffer::{Buffer, NullBuffer, OffsetBuffer},
    datatypes::{DataType, Field, Fields, Int32Type, Schema, TimeUnit},
};
use bytes::Bytes;

use super::npy;
use crate::{
    error::{Error, Result},
    record::{Part, Sample, json::RowJson},
    schema::{may_miss_values, tensor_dims, tensor_item, tensor_shape},
};

/// Extension of the member with the columns that are not tensors.
const JSON: &str = "json";

/// Whether a table has tensor columns.
pub fn has_tensors(fields: &Fields) -> bool {
    fields.iter().any(|field| tensor_dims(field).is_some())
}

/// Returns numpy's name and the width of a tensor's item type; `None` if numpy has no such type.
fn numpy_item(data_type: &DataType) -> Option<(String, usize)> {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    let width = data_type.primitive_width().unwrap_or(1);
    let order = if width == 1 { '|' } else { '<' };
    Some(match data_type {
        DataType::Boolean => ("|b1".to_owned(), 1),
        DataType::Timestamp(u, _) => (format!("<M8[{}]", unit(u)), 8),
        DataType::Duration(u) => (format!("<m8[{}]", unit(u)), 8),
        t if t.is_unsigned_integer() => (format!("{order}u{width}"), width),
        t if t.is_signed_integer() => (format!("{order}i{width}"), width),
        t if t.is_floating() => (format!("<f{width}"), width),
        _ => return None,
    })
}

/// The rows of a tensor column as bytes.
struct Dense<'a> {
    column: &'a ArrayRef,
    descr: String,
    /// All rows in little-endian order.
    bytes: Buffer,
    /// Bytes per value.
    width: usize,
    /// One byte per value, 1 if it is missing; `None` if the column has no mask ([`has_mask`]).
    mask: Option<Vec<u8>>,
    rows: Rows,
}

/// Positions of the rows' values.
enum Rows {
    /// All rows have this number of values and this shape.
    Alike(usize, Vec<u64>),
    /// Each row has its own number of values and shape.
    Each(Vec<usize>, Vec<Vec<u64>>),
}

/// Returns all values of a tensor column, and the positions of the rows' values.
fn values_of(field: &Field, column: &ArrayRef) -> Option<(ArrayRef, Rows)> {
    if let Some(shape) = tensor_shape(field) {
        let list = column.as_fixed_size_list_opt()?;
        let shape = shape.iter().map(|length| *length as u64).collect();
        return Some((Arc::clone(list.values()), Rows::Alike(usize::try_from(list.value_length()).ok()?, shape)));
    }
    let parts = column.as_struct_opt()?;
    let (data, shapes) = (parts.column(0).as_list_opt::<i32>()?, parts.column(1).as_fixed_size_list_opt()?);
    let index = |offset: &i32| usize::try_from(*offset).unwrap_or(0);
    let offsets: Vec<usize> = data.value_offsets().iter().map(index).collect();
    let (first, last) = (*offsets.first()?, *offsets.last()?);
    let offsets = offsets.into_iter().map(|offset| offset - first).collect();
    let rank = usize::try_from(shapes.value_length()).ok()?;
    let lengths = shapes.values().as_primitive_opt::<Int32Type>()?.values();
    let shape =
        |row: usize| lengths[row * rank..][..rank].iter().map(|length| u64::try_from(*length).unwrap_or(0)).collect();
    Some((data.values().slice(first, last - first), Rows::Each(offsets, (0..shapes.len()).map(shape).collect())))
}

impl<'a> Dense<'a> {
    fn new(field: &Field, column: &'a ArrayRef) -> Result<Self> {
        let not_tensors =
            || Error::internal("expected a column of tensors, found another type").in_column(field.name());
        let (values, rows) = values_of(field, column).ok_or_else(not_tensors)?;
        let item = values.data_type().clone();
        let (descr, width) = numpy_item(&item)
            .ok_or_else(|| Error::internal(format!("{item} is not a tensor item type")).in_column(field.name()))?;
        let mut bytes = if item == DataType::Boolean {
            Buffer::from_vec(values.as_boolean().values().iter().map(u8::from).collect::<Vec<u8>>())
        } else {
            let data = values.to_data();
            let buffer = data.buffers().first().cloned().unwrap_or_default();
            buffer.slice_with_length(data.offset() * width, values.len() * width)
        };
        let none: Option<Vec<u8>> = match (&item, width) {
            (DataType::Timestamp(..) | DataType::Duration(_), _) => Some(i64::MIN.to_le_bytes().to_vec()),
            (t, 2) if t.is_floating() => Some(0x7e00_u16.to_le_bytes().to_vec()),
            (t, 4) if t.is_floating() => Some(f32::NAN.to_le_bytes().to_vec()),
            (t, _) if t.is_floating() => Some(f64::NAN.to_le_bytes().to_vec()),
            _ => None,
        };
        let nulls = values.logical_nulls();
        let missing = |nulls: &NullBuffer| (0..nulls.len()).filter(|i| nulls.is_null(*i)).collect::<Vec<_>>();
        let missing = nulls.as_ref().filter(|nulls| nulls.null_count() > 0).map(missing).unwrap_or_default();
        // The column's buffer is used directly, unless some values have to be changed.
        if !missing.is_empty() || cfg!(target_endian = "big") {
            let mut changed = bytes.to_vec();
            if cfg!(target_endian = "big") {
                changed.chunks_exact_mut(width).for_each(<[u8]>::reverse);
            }
            for i in &missing {
                let value = &mut changed[i * width..][..width];
                match &none {
                    Some(none) => value.copy_from_slice(none),
                    None => value.fill(0),
                }
            }
            bytes = Buffer::from_vec(changed);
        }
        let mask = has_mask(field).then(|| {
            let mut mask = vec![0; values.len()];
            missing.iter().for_each(|i| mask[*i] = 1);
            mask
        });
        let dense = Self { column, descr, bytes, width, mask, rows };
        let differs = |row: &usize| {
            let values = dense.row_shape(*row).iter().fold(1_u64, |all, length| all.saturating_mul(*length));
            dense.column.is_valid(*row) && dense.value_range(*row).len() as u64 != values
        };
        match (0..column.len()).find(differs) {
            // Such a column may come from another program.
            Some(row) => Err(Error::input(format!(
                "expected the number of values of shape {:?}, found {}",
                dense.row_shape(row),
                dense.value_range(row).len()
            ))
            .in_column(field.name())),
            None => Ok(dense),
        }
    }

    fn value_range(&self, row: usize) -> Range<usize> {
        match &self.rows {
            Rows::Alike(values, _) => row * values..(row + 1) * values,
            Rows::Each(offsets, _) => offsets[row]..offsets[row + 1],
        }
    }

    fn row_shape(&self, row: usize) -> &[u64] {
        match &self.rows {
            Rows::Alike(_, shape) => shape,
            Rows::Each(_, shapes) => &shapes[row],
        }
    }

    fn row_bytes(&self, row: usize) -> &[u8] {
        let values = self.value_range(row);
        &self.bytes[values.start * self.width..values.end * self.width]
    }

    fn mask_row(&self, row: usize) -> Option<&[u8]> {
        self.mask.as_ref().map(|mask| &mask[self.value_range(row)])
    }
}

/// Converts rows with tensors to samples; `keys` has one key per row.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when two columns would become the same member, or a name is not valid as
/// an extension.
pub fn tensor_samples(batch: &RecordBatch, keys: &[String]) -> Result<Vec<Sample>> {
    let fields = batch.schema_ref().fields();
    let mut parts: Vec<Vec<Part>> = vec![Vec::new(); batch.num_rows()];
    let mut others = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        if tensor_dims(field).is_none() {
            others.push(at);
            continue;
        }
        let name = member_extension(field)?;
        let dense = Dense::new(field, batch.column(at))?;
        let descr = format!("'{}'", dense.descr);
        let mut headers: Option<(&[u64], Vec<u8>, Vec<u8>)> = None;
        let member = |name: String, header: &[u8], bytes: &[u8]| Part {
            extension: name,
            bytes: Bytes::from([header, bytes].concat()),
        };
        for (row, parts) in parts.iter_mut().enumerate().filter(|(row, _)| dense.column.is_valid(*row)) {
            let shape = dense.row_shape(row);
            let (_, header, mask_header) = match headers.take() {
                Some(known) if known.0 == shape => headers.insert(known),
                _ => headers.insert((shape, npy::encode_header(&descr, shape), npy::encode_header("'|b1'", shape))),
            };
            parts.push(member(format!("{name}.npy"), header, dense.row_bytes(row)));
            if let Some(mask) = dense.mask_row(row) {
                parts.push(member(format!("{name}.mask.npy"), mask_header, mask));
            }
        }
    }
    if !others.is_empty() || parts.iter().any(Vec::is_empty) {
        let rest = batch.project(&others)?;
        let json = RowJson::new(&rest);
        for (row, parts) in parts.iter_mut().enumerate() {
            let mut text = Vec::new();
            json.write_row(row, &mut text);
            parts.push(Part { extension: JSON.to_owned(), bytes: text.into() });
        }
    }
    let mut samples = Vec::with_capacity(parts.len());
    for (key, mut parts) in keys.iter().zip(parts) {
        parts.sort_by(|a, b| a.extension.cmp(&b.extension));
        if let Some(pair) = parts.windows(2).find(|pair| pair[0].extension == pair[1].extension) {
            return Err(Error::input(format!("expected distinct variable names, found `{}` twice", pair[0].extension))
                .with_hint("WebDataset readers ignore case; choose variables with --read var"));
        }
        samples.push(Sample { key: key.clone(), origin: String::new(), subject: None, parts });
    }
    Ok(samples)
}

/// Returns the extension of a column's member, without that of its format.
fn member_extension(field: &Field) -> Result<String> {
    let name = field.name().to_lowercase();
    let unfit = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    if name.is_empty() || name.contains(unfit) || name.starts_with('.') {
        return Err(Error::input(format!("expected a name that can be an extension, found `{}`", field.name()))
            .in_column(field.name())
            .with_hint("choose variables with --read var, or use --to parquet or --to tfrecord"));
    }
    Ok(name)
}

/// Returns the columns with tensors as features: bytes, shape, type and mask.
pub fn feature_fields(fields: &Fields) -> Fields {
    let mut out = Vec::with_capacity(fields.len());
    for field in fields {
        if tensor_dims(field).is_none() {
            out.push(Arc::clone(field));
            continue;
        }
        let name = field.name();
        let shape = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        out.push(Arc::new(Field::new(name, DataType::Binary, true)));
        out.push(Arc::new(Field::new(format!("{name}/shape"), shape, true)));
        out.push(Arc::new(Field::new(format!("{name}/dtype"), DataType::Utf8, true)));
        if has_mask(field) {
            out.push(Arc::new(Field::new(format!("{name}/mask"), DataType::Binary, true)));
        }
    }
    out.into()
}

fn has_mask(field: &Field) -> bool {
    let Some(item) = tensor_item(field) else { return false };
    let named = matches!(item.data_type(), DataType::Timestamp(..) | DataType::Duration(_));
    may_miss_values(field) && !named && !item.data_type().is_floating()
}

/// Converts tensors of the rows to features.
///
/// # Errors
/// When a batch is too large for Arrow.
pub fn tensor_features(batch: &RecordBatch) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if tensor_dims(field).is_none() {
            columns.push(Arc::clone(column));
            continue;
        }
        let dense = Dense::new(field, column)?;
        let valid = dense.column.nulls().cloned();
        let binary = |bytes: Buffer, width: usize| -> Result<ArrayRef> {
            let too_large = || Error::input("expected tensors of less than 2 GiB together").in_column(field.name());
            i32::try_from(bytes.len()).map_err(|_| too_large())?;
            let lengths = (0..batch.num_rows()).map(|row| dense.value_range(row).len() * width);
            Ok(Arc::new(BinaryArray::try_new(OffsetBuffer::from_lengths(lengths), bytes, valid.clone())?))
        };
        columns.push(binary(dense.bytes.clone(), dense.width)?);
        let length = |length: &u64| i64::try_from(*length).unwrap_or(i64::MAX);
        let shapes = (0..batch.num_rows()).flat_map(|row| dense.row_shape(row).iter().map(length));
        let repeated = Int64Array::from_iter_values(shapes);
        let offsets = OffsetBuffer::from_lengths((0..batch.num_rows()).map(|row| dense.row_shape(row).len()));
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        columns.push(Arc::new(ListArray::try_new(item, offsets, Arc::new(repeated), valid.clone())?));
        let names: StringArray =
            (0..batch.num_rows()).map(|row| dense.column.is_valid(row).then_some(dense.descr.as_str())).collect();
        columns.push(Arc::new(names));
        if let Some(mask) = &dense.mask {
            columns.push(binary(Buffer::from_vec(mask.clone()), 1)?);
        }
    }
    let schema = Arc::new(Schema::new(feature_fields(batch.schema_ref().fields())));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{FixedSizeListArray, Float32Array, Int16Array},
        compute::concat_batches,
    };

    use super::*;
    use crate::{
        record::widen::cast_to,
        schema::{tensor_field, unite_fields, variable_rank},
    };

    fn batch() -> RecordBatch {
        let tensor = |name: &str, values: ArrayRef, nullable| {
            let item = Field::new("item", values.data_type().clone(), true);
            let field = tensor_field(name, values.data_type().clone(), nullable, &[2, 1], &[]).unwrap();
            let list = FixedSizeListArray::try_new(Arc::new(item), 2, values, None).unwrap();
            (field, Arc::new(list) as ArrayRef)
        };
        let columns = [
            tensor("T", Arc::new(Float32Array::from(vec![Some(1.5), None, Some(2.0), Some(3.0)])), true),
            tensor("n", Arc::new(Int16Array::from(vec![Some(7), Some(8), None, Some(9)])), true),
            (Field::new("time", DataType::Int64, true), Arc::new(Int64Array::from(vec![10, 20])) as ArrayRef),
        ];
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
    }

    #[test]
    fn tensors_are_members_that_numpy_reads() {
        let samples = tensor_samples(&batch(), &["a".into(), "b".into()]).unwrap();
        let names: Vec<&str> = samples[0].parts.iter().map(|part| part.extension.as_str()).collect();
        assert_eq!(names, ["json", "n.mask.npy", "n.npy", "t.npy"]);
        assert_eq!(&samples[1].parts[0].bytes[..], br#"{"time":20}"#);
        let header = npy::parse(&samples[0].parts[3].bytes).unwrap();
        assert_eq!((header.shape.as_slice(), header.dtype.name().as_str()), (&[2, 1][..], "float32"));
        let values = &samples[0].parts[3].bytes[header.offset..];
        assert_eq!(values[..4], 1.5_f32.to_le_bytes());
        assert!(f32::from_le_bytes(values[4..].try_into().unwrap()).is_nan());
        assert_eq!(samples[1].parts[1].bytes[64 * 2..], [1, 0]);
        assert_eq!(samples[1].parts[2].bytes[64 * 2..], [0, 0, 9, 0]);
    }

    #[test]
    fn tensors_with_individual_shapes_state_them() {
        let narrow = batch().slice(1, 1);
        let item = || Field::new("item", DataType::Int16, true);
        let wide = tensor_field("n", DataType::Int16, true, &[3, 1], &[]).unwrap();
        let fields: Vec<Field> = narrow
            .schema_ref()
            .fields()
            .iter()
            .map(|field| if field.name() == "n" { unite_fields(field, &wide) } else { field.as_ref().clone() })
            .collect();
        let schema = Arc::new(Schema::new(fields));
        assert_eq!(variable_rank(schema.field(1)), Some(2));
        let values: ArrayRef = Arc::new(Int16Array::from(vec![Some(1), None, Some(3)]));
        let list: ArrayRef = Arc::new(FixedSizeListArray::try_new(Arc::new(item()), 3, values, None).unwrap());
        let wide = RecordBatch::try_new(Arc::new(Schema::new(vec![wide])), vec![list]).unwrap();
        let both = [cast_to(&narrow, &schema).unwrap(), cast_to(&wide, &schema).unwrap()];
        let both = concat_batches(&schema, &both).unwrap();
        for (both, keys) in
            [(both.clone(), vec!["a".to_owned(), "b".to_owned()]), (both.slice(1, 1), vec!["b".to_owned()])]
        {
            let samples = tensor_samples(&both, &keys).unwrap();
            let last = samples.last().unwrap();
            let part = |name: &str| &last.parts.iter().find(|part| part.extension == name).unwrap().bytes;
            assert_eq!(npy::parse(part("n.npy")).unwrap().shape, [3, 1]);
            assert_eq!((&part("n.npy")[128..], &part("n.mask.npy")[128..]), (&[1, 0, 0, 0, 3, 0][..], &[0, 1, 0][..]));
            let features = tensor_features(&both).unwrap();
            let shape = features.column_by_name("n/shape").unwrap().as_list::<i32>().value(both.num_rows() - 1);
            assert_eq!(shape.as_ref(), &Int64Array::from(vec![3, 1]) as &dyn Array);
            let bytes = features.column_by_name("n").unwrap().as_binary::<i32>().value(both.num_rows() - 1).to_vec();
            assert_eq!(bytes, [1, 0, 0, 0, 3, 0]);
        }
        assert_eq!(
            npy::parse(&tensor_samples(&narrow, &["a".into()]).unwrap()[0].parts[2].bytes).unwrap().shape,
            [2, 1]
        );
    }

    #[test]
    fn tensors_are_features() {
        let features = tensor_features(&batch()).unwrap();
        let names: Vec<&String> = features.schema_ref().fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["T", "T/shape", "T/dtype", "n", "n/shape", "n/dtype", "n/mask", "time"]);
        let column = |name: &str| features.column_by_name(name).unwrap();
        assert_eq!(column("n").as_binary::<i32>().value(1), [0, 0, 9, 0]);
        assert_eq!(column("n/mask").as_binary::<i32>().value(1), [1, 0]);
        assert_eq!(column("n/dtype").as_string::<i32>().value(0), "<i2");
        assert_eq!(column("T/shape").as_list::<i32>().value(1).as_ref(), &Int64Array::from(vec![2, 1]) as &dyn Array);
    }
}
