//! Coded columns: 16-bit keys into a few values, in place of plain columns of the same type.
//!
//! ```text
//! cells of a grid   lat  -90 -90 -90 ... -89 -89 ...       keys 0 0 0 ... 1 1 ...    values -90 -89 ...
//!                   t2m  packed 273 271 273 ...            keys 2 0 2 ...            values of 271, 272, 273
//! ```
//!
//! Arrays have many rows with few different values. Until the values are needed, they travel as keys, and Parquet
//! builds its dictionary from the keys without reading any value. All other code expands coded columns to [plain_batch]
//! ones first. The same holds for tensors of packed numbers, which are lists with coded items.

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, DictionaryArray, PrimitiveArray, RecordBatch, RecordBatchOptions},
    compute::cast,
    datatypes::{DataType, Field, Fields, Schema, UInt16Type},
};

use crate::error::Result;

/// Maximum number of values that keys can distinguish.
pub const MAX_VALUES: usize = 1 << 16;

/// Creates a coded column; each row has the value of its key.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when a key has no value.
pub fn coded_column(keys: Vec<u16>, values: ArrayRef) -> Result<ArrayRef> {
    let keys = PrimitiveArray::<UInt16Type>::new(keys.into(), None);
    Ok(Arc::new(DictionaryArray::try_new(keys, values)?))
}

/// Returns the column as a dictionary array if it is coded.
pub fn as_coded(column: &dyn Array) -> Option<&DictionaryArray<UInt16Type>> {
    column.as_dictionary_opt::<UInt16Type>().filter(|column| column.keys().null_count() == 0)
}

/// Returns the type of the values, coded or not; for fixed-size lists, that of their items.
pub fn value_type(of: &DataType) -> Cow<'_, DataType> {
    match of {
        DataType::Dictionary(key, value) if **key == DataType::UInt16 => Cow::Borrowed(value),
        DataType::FixedSizeList(item, length) => match value_type(item.data_type()) {
            Cow::Borrowed(same) if same == item.data_type() => Cow::Borrowed(of),
            plain => {
                let item = item.as_ref().clone().with_data_type(plain.into_owned());
                Cow::Owned(DataType::FixedSizeList(Arc::new(item), *length))
            }
        },
        plain => Cow::Borrowed(plain),
    }
}

/// Whether a type has keys instead of values.
pub fn is_coded(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(key, _) => **key == DataType::UInt16,
        DataType::FixedSizeList(item, _) => is_coded(item.data_type()),
        _ => false,
    }
}

/// Expands a column to one value per row.
///
/// # Errors
/// When there is not enough memory.
pub fn plain_column(column: &ArrayRef) -> Result<ArrayRef> {
    match column.data_type() {
        of if !is_coded(of) => Ok(Arc::clone(column)),
        of => Ok(cast(column, &value_type(of))?),
    }
}

/// Expands all columns of the rows.
///
/// # Errors
/// As [`plain_column`].
pub fn plain_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema_ref();
    if !schema.fields().iter().any(|field| is_coded(field.data_type())) {
        return Ok(batch.clone());
    }
    let field = |field: &Arc<Field>| field.as_ref().clone().with_data_type(value_type(field.data_type()).into_owned());
    let fields: Fields = schema.fields().iter().map(field).collect();
    let columns = batch.columns().iter().map(plain_column).collect::<Result<_>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
}

/// Builds rows with `fields`, whose types are those of the values, from columns that may be coded.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when types or lengths differ.
pub fn batch_of(fields: &Fields, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let field = |(field, column): (&Arc<Field>, &ArrayRef)| match is_coded(column.data_type()) {
        false => Arc::clone(field),
        true => Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone())),
    };
    let schema = Arc::new(Schema::new(fields.iter().zip(&columns).map(field).collect::<Fields>()));
    let rows = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::Float32Array;

    use super::*;

    #[test]
    fn values_round_trip() {
        let values: ArrayRef = Arc::new(Float32Array::from(vec![Some(1.5), None, Some(3.0)]));
        let column = coded_column(vec![2, 0, 1, 2], values).unwrap();
        let fields = Fields::from(vec![Field::new("x", DataType::Float32, true)]);
        let batch = batch_of(&fields, vec![column], 4).unwrap();
        assert!(as_coded(batch.column(0)).is_some());
        let plain = plain_batch(&batch).unwrap();
        assert_eq!(plain.schema().fields(), &fields);
        let expected = Float32Array::from(vec![Some(3.0), Some(1.5), None, Some(3.0)]);
        assert_eq!(plain.column(0).as_ref(), &expected as &dyn Array);
        assert!(coded_column(vec![3], Arc::new(Float32Array::from(vec![0.0; 3]))).is_err());
    }
}
