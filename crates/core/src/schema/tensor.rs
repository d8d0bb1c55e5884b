//! Tensors as columns: Arrow's canonical extension `arrow.fixed_shape_tensor`, a fixed-size list whose field states the
//! shape.
//!
//! ```text
//! t2m: FixedSizeList<float32, 6>   ARROW:extension:name      arrow.fixed_shape_tensor
//!                                  ARROW:extension:metadata  {"shape":[2,3],"dim_names":["lat","lon"]}
//! ```
//!
//! If sources differ in the shape, but not in the number of dimensions, the column is `arrow.variable_shape_tensor`:
//!
//! ```text
//! t2m: Struct<data: List<float32>, shape: FixedSizeList<int32, 2>>
//!      {"dim_names":["lat","lon"],"uniform_shape":[2,null]}
//! ```

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType, Field};
use serde::{Deserialize, Serialize};

use super::EXTENSION_NAME;
use crate::error::{Error, Result};

/// Value of [`EXTENSION_NAME`] for tensors with the same shape in all rows.
pub const TENSOR_EXTENSION: &str = "arrow.fixed_shape_tensor";

/// Value of [`EXTENSION_NAME`] for tensors with individual shapes.
pub const VARIABLE_TENSOR_EXTENSION: &str = "arrow.variable_shape_tensor";

/// Field metadata key with the parameters of an extension.
pub const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

#[derive(Serialize, Deserialize)]
struct Metadata {
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dim_names: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct VariableMetadata {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dim_names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uniform_shape: Option<Vec<Option<usize>>>,
}

/// Field metadata key that marks tensors with possibly missing values.
const MISSING: &str = "shardify:missing";

/// Creates a nullable field of tensors of one shape, in C order; `missing` says whether some values may be missing.
/// Items are always nullable, because pyarrow supports no other tensors.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when a tensor has more elements than Arrow supports.
pub fn tensor_field(name: &str, item: DataType, missing: bool, shape: &[usize], dim_names: &[String]) -> Result<Field> {
    let elements = shape.iter().try_fold(1_usize, |all, length| all.checked_mul(*length));
    let elements = elements.and_then(|elements| i32::try_from(elements).ok());
    let Some(elements) = elements else {
        return Err(Error::input(format!(
            "expected records of at most 2147483647 elements, found the shape {shape:?}"
        ))
        .in_column(name)
        .with_hint("cut smaller records with --read patch, or slice another dimension with --read record-dim"));
    };
    let metadata = Metadata { shape: shape.to_vec(), dim_names: dim_names.to_vec() };
    let metadata =
        serde_json::to_string(&metadata).map_err(|e| Error::internal("serializing a shape failed").with_cause(e))?;
    let marks = [(EXTENSION_NAME, TENSOR_EXTENSION.to_owned()), (EXTENSION_METADATA, metadata)];
    let mut marks: HashMap<String, String> = marks.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    if missing {
        marks.insert(MISSING.to_owned(), String::new());
    }
    let item = Arc::new(Field::new("item", item, true));
    Ok(Field::new(name, DataType::FixedSizeList(item, elements), true).with_metadata(marks))
}

/// Whether some values of these tensors may be missing.
pub fn may_miss_values(field: &Field) -> bool {
    field.metadata().contains_key(MISSING)
}

/// Returns the united field of tensors with items of type `item`; values may be missing if they may be missing in
/// either.
pub(super) fn unite_tensors(a: &Field, b: &Field, item: Field) -> Option<Field> {
    let DataType::FixedSizeList(_, length) = a.data_type() else { return None };
    let marked = if may_miss_values(b) { b } else { a };
    let list = DataType::FixedSizeList(Arc::new(item), *length);
    Some(a.clone().with_data_type(list).with_nullable(true).with_metadata(marked.metadata().clone()))
}

/// Returns the shape of a column of tensors; `None` for other columns, and if the shape contradicts the type.
pub fn tensor_shape(field: &Field) -> Option<Vec<usize>> {
    let DataType::FixedSizeList(_, elements) = field.data_type() else { return None };
    if field.metadata().get(EXTENSION_NAME).is_none_or(|name| name != TENSOR_EXTENSION) {
        return None;
    }
    let metadata: Metadata = serde_json::from_str(field.metadata().get(EXTENSION_METADATA)?).ok()?;
    let found = metadata.shape.iter().try_fold(1_usize, |all, length| all.checked_mul(*length))?;
    (usize::try_from(*elements) == Ok(found)).then_some(metadata.shape)
}

/// Returns the known dimensions of a column of tensors: for each its length, or `None` if tensors differ in it.
pub fn tensor_dims(field: &Field) -> Option<Vec<Option<usize>>> {
    if let Some(shape) = tensor_shape(field) {
        return Some(shape.into_iter().map(Some).collect());
    }
    let rank = variable_rank(field)?;
    let uniform = variable_metadata(field).uniform_shape.filter(|shape| shape.len() == rank);
    Some(uniform.unwrap_or_else(|| vec![None; rank]))
}

/// Returns the number of dimensions of a column of tensors with individual shapes; `None` for other columns.
pub fn variable_rank(field: &Field) -> Option<usize> {
    let DataType::Struct(parts) = field.data_type() else { return None };
    if field.metadata().get(EXTENSION_NAME).is_none_or(|name| name != VARIABLE_TENSOR_EXTENSION) {
        return None;
    }
    match &parts[..] {
        [data, shape] if data.name() == DATA && shape.name() == SHAPE => match (data.data_type(), shape.data_type()) {
            (DataType::List(_), DataType::FixedSizeList(length, rank)) if length.data_type() == &DataType::Int32 => {
                usize::try_from(*rank).ok()
            }
            _ => None,
        },
        _ => None,
    }
}

/// Names of the struct members of a tensor with an individual shape.
const DATA: &str = "data";
const SHAPE: &str = "shape";

fn variable_metadata(field: &Field) -> VariableMetadata {
    let text = field.metadata().get(EXTENSION_METADATA);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns the item field of a column of tensors.
pub fn tensor_item(field: &Field) -> Option<&Field> {
    match field.data_type() {
        DataType::FixedSizeList(item, _) => Some(item),
        DataType::Struct(parts) => match parts.first()?.data_type() {
            DataType::List(item) => Some(item),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a field of tensors whose items have the type of `given`; `None` unless both are numbers.
pub fn with_tensor_item(field: &Field, given: &Field) -> Option<Field> {
    tensor_dims(field)?;
    let item = tensor_item(field)?;
    if !(item.data_type().is_numeric() && given.data_type().is_numeric()) {
        return None;
    }
    let item = Arc::new(item.clone().with_data_type(given.data_type().clone()));
    let data_type = match field.data_type() {
        DataType::FixedSizeList(_, length) => DataType::FixedSizeList(item, *length),
        DataType::Struct(parts) => {
            let data = parts.first()?.as_ref().clone().with_data_type(DataType::List(item));
            DataType::Struct([Arc::new(data)].into_iter().chain(parts.iter().skip(1).cloned()).collect())
        }
        _ => return None,
    };
    let mut metadata = field.metadata().clone();
    if given.data_type().is_floating() {
        metadata.remove(MISSING);
    }
    Some(field.clone().with_data_type(data_type).with_metadata(metadata))
}

/// Returns the united field of tensors with individual shapes and items of type `item`; `None` if the two differ in the
/// number of dimensions, or one does not hold tensors.
pub(super) fn united_shapes(a: &Field, b: &Field, item: Field) -> Option<Field> {
    let (one, other) = (tensor_dims(a)?, tensor_dims(b)?);
    if one.len() != other.len() {
        return None;
    }
    let uniform: Vec<Option<usize>> =
        one.into_iter().zip(other).map(|(one, other)| one.filter(|_| one == other)).collect();
    let names = |field: &Field| match field.metadata().get(EXTENSION_METADATA).map(|text| serde_json::from_str(text)) {
        Some(Ok(Metadata { dim_names, .. })) => dim_names,
        _ => variable_metadata(field).dim_names,
    };
    let (dim_names, others) = (names(a), names(b));
    let rank = i32::try_from(uniform.len()).ok()?;
    let metadata = VariableMetadata {
        dim_names: if dim_names == others { dim_names } else { Vec::new() },
        uniform_shape: uniform.iter().any(Option::is_some).then_some(uniform),
    };
    let mut marks = HashMap::from([
        (EXTENSION_NAME.to_owned(), VARIABLE_TENSOR_EXTENSION.to_owned()),
        (EXTENSION_METADATA.to_owned(), serde_json::to_string(&metadata).ok()?),
    ]);
    if may_miss_values(a) || may_miss_values(b) {
        marks.insert(MISSING.to_owned(), String::new());
    }
    let length = Field::new("item", DataType::Int32, true);
    let parts = vec![
        Field::new(DATA, DataType::List(Arc::new(item.with_name("item").with_nullable(true))), true),
        Field::new(SHAPE, DataType::FixedSizeList(Arc::new(length), rank), true),
    ];
    Some(Field::new(a.name(), DataType::Struct(parts.into()), true).with_metadata(marks))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn shapes_round_trip() {
        let item = || Field::new("item", DataType::Float32, true);
        let field = tensor_field("x", DataType::Float32, false, &[2, 3], &["lat".into(), "lon".into()]).unwrap();
        assert_eq!(tensor_shape(&field), Some(vec![2, 3]));
        assert_eq!(field.metadata()[EXTENSION_METADATA], r#"{"shape":[2,3],"dim_names":["lat","lon"]}"#);
        let other = field.clone().with_data_type(DataType::FixedSizeList(Arc::new(item()), 7));
        assert_eq!((tensor_shape(&other), tensor_shape(&item())), (None, None));
        assert!(tensor_field("x", DataType::Float32, true, &[1 << 20, 1 << 20], &[]).is_err());
        let missing = tensor_field("x", DataType::Float32, true, &[2, 3], &[]).unwrap();
        let wider = tensor_field("x", DataType::Float32, true, &[2, 5], &["lat".into(), "lon".into()]).unwrap();
        let both = united_shapes(&field, &wider, item()).unwrap();
        assert_eq!((variable_rank(&both), tensor_dims(&both)), (Some(2), Some(vec![Some(2), None])));
        assert_eq!(both.metadata()[EXTENSION_METADATA], r#"{"dim_names":["lat","lon"],"uniform_shape":[2,null]}"#);
        assert!(may_miss_values(&both) && tensor_shape(&both).is_none());
        assert_eq!(united_shapes(&both, &field, item()), Some(both));
        let flat = tensor_field("x", DataType::Float32, true, &[6], &[]).unwrap();
        assert_eq!(united_shapes(&field, &flat, item()), None);
        assert!(may_miss_values(&unite_tensors(&field, &missing, item()).unwrap()) && !may_miss_values(&field));
    }
}
