//! Brings batches of shards written earlier to the schema that the dataset has now.
//!
//! The new schema was made by uniting, so each column is in it under its name with the same type or a wider one.
//! Nothing is dropped and no value changes on the way; where that cannot be, it is an error.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions, StructArray, new_null_array},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, Fields, Float64Type, Int64Type, SchemaRef},
};

use crate::error::{Error, Result};

/// The same rows with the columns of `schema`, matched by name; columns that the batch lacks are null.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when the batch has a column that `schema` lacks or cannot hold, and
/// [`Kind::Input`](crate::error::Kind::Input) when a value has no equal in the wider type.
pub fn cast_to(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let columns = cast_fields(batch.schema_ref().fields(), batch.columns(), schema.fields(), batch.num_rows())?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)?)
}

fn cast_fields(from: &Fields, columns: &[ArrayRef], to: &Fields, rows: usize) -> Result<Vec<ArrayRef>> {
    if let Some(lost) = from.iter().find(|field| to.find(field.name()).is_none()) {
        return Err(
            Error::internal("expected a column of the wider schema, found one more").column(lost.name().as_str())
        );
    }
    to.iter()
        .map(|field| match from.find(field.name()) {
            Some((at, _)) => cast_array(&columns[at], field),
            None => Ok(new_null_array(field.data_type(), rows)),
        })
        .collect()
}

fn cast_array(array: &ArrayRef, to: &Field) -> Result<ArrayRef> {
    match (array.data_type(), to.data_type()) {
        (from, to) if from == to => Ok(Arc::clone(array)),
        (DataType::Struct(from), DataType::Struct(fields)) => {
            let source = array.as_struct();
            let columns = cast_fields(from, source.columns(), fields, source.len())?;
            let cast =
                StructArray::try_new_with_length(fields.clone(), columns, source.nulls().cloned(), source.len())?;
            Ok(Arc::new(cast))
        }
        (DataType::List(_), DataType::List(inner)) => {
            let source = array.as_list::<i32>();
            let values = cast_array(source.values(), inner)?;
            let cast =
                ListArray::try_new(Arc::clone(inner), source.offsets().clone(), values, source.nulls().cloned())?;
            Ok(Arc::new(cast))
        }
        (from, target) => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let cast = cast_with_options(array, target, &options).map_err(|error| {
                Error::internal(format!("expected {from} to widen to {target}")).column(to.name().as_str()).cause(error)
            })?;
            check_integers(array, &cast, to)?;
            Ok(cast)
        }
    }
}

/// Floats hold every integer up to 2^53 and only some beyond.
fn check_integers(from: &ArrayRef, to: &ArrayRef, field: &Field) -> Result<()> {
    let (Some(integers), Some(floats)) = (from.as_primitive_opt::<Int64Type>(), to.as_primitive_opt::<Float64Type>())
    else {
        return Ok(());
    };
    #[expect(clippy::cast_possible_truncation, reason = "i128 holds every float that an i64 rounds to")]
    let changed = integers.iter().zip(floats).find_map(|pair| match pair {
        (Some(integer), Some(float)) if float as i128 != i128::from(integer) => Some(integer),
        _ => None,
    });
    match changed {
        None => Ok(()),
        Some(integer) => Err(Error::input(format!("expected integers that a 64-bit float can hold, found {integer}"))
            .column(field.name().as_str())
            .hint("convert the column as text: --type COLUMN=text")),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Float64Array, Int64Array, StringArray},
        datatypes::Schema,
    };

    use super::*;
    use crate::error::Kind;

    fn nullable(name: &str, data_type: DataType) -> Field {
        Field::new(name, data_type, true)
    }

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn columns_move_widen_and_appear() {
        let from = batch(vec![
            ("b", Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef),
            ("a", Arc::new(StringArray::from(vec!["x", "y"])) as ArrayRef),
        ]);
        let schema = Arc::new(Schema::new(vec![
            nullable("a", DataType::Utf8),
            nullable("b", DataType::Float64),
            nullable("c", DataType::Date32),
        ]));
        let cast = cast_to(&from, &schema).unwrap();
        assert_eq!(cast.schema(), schema);
        assert_eq!(cast.column(0).as_string::<i32>().value(1), "y");
        assert_eq!(cast.column(1).as_primitive::<Float64Type>(), &Float64Array::from(vec![Some(1.0), None]));
        assert_eq!(cast.column(2).null_count(), 2);
    }

    #[test]
    fn structs_and_lists_widen_inside() {
        let inner: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let narrow = StructArray::from(vec![(Arc::new(nullable("x", DataType::Int64)), inner)]);
        let from = batch(vec![("s", Arc::new(narrow) as ArrayRef)]);
        let wide = DataType::Struct(vec![nullable("w", DataType::Utf8), nullable("x", DataType::Float64)].into());
        let cast = cast_to(&from, &Arc::new(Schema::new(vec![nullable("s", wide)]))).unwrap();
        let columns = cast.column(0).as_struct().columns();
        assert_eq!((columns[0].null_count(), columns[1].as_primitive::<Float64Type>().value(1)), (2, 2.0));
    }

    #[test]
    fn what_would_change_or_vanish_is_an_error() {
        let from = batch(vec![("a", Arc::new(Int64Array::from(vec![(1 << 53) + 1])) as ArrayRef)]);
        let to = |name: &str, data_type| Arc::new(Schema::new(vec![nullable(name, data_type)]));
        assert_eq!(cast_to(&from, &to("a", DataType::Float64)).unwrap_err().kind(), Kind::Input);
        assert_eq!(cast_to(&from, &to("b", DataType::Int64)).unwrap_err().kind(), Kind::Internal);
        let list = DataType::List(Arc::new(nullable("item", DataType::Date32)));
        assert_eq!(cast_to(&from, &to("a", list)).unwrap_err().kind(), Kind::Internal);
    }

    #[test]
    fn rows_survive_without_columns() {
        let rows = RecordBatchOptions::new().with_row_count(Some(3));
        let empty = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &rows).unwrap();
        let schema = Arc::new(Schema::new(vec![nullable("a", DataType::Utf8)]));
        assert_eq!(cast_to(&empty, &schema).unwrap().column(0).null_count(), 3);
    }
}
