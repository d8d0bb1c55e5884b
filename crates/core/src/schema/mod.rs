//! Column types: unites types from different parts of the input.
//!
//! Widening never changes a value. `Null` is the type of a column without values so far. Two types whose only common
//! type is text become text for delimited input, where every value was text originally. For JSON, the reader keeps as
//! much as possible: scalars become text, anything with structure JSON text.

pub mod bound;
mod by_name;
pub mod file;
mod logical;
mod names;
mod plain;
mod tensor;
mod unite;
pub mod wire;

use std::sync::Arc;

pub use by_name::ByName;
pub use logical::{Logical, map_fields, mark_stated, published_fields, with_open_intervals};
pub use names::{hint_columns, is_id, is_subject, names_any, nearest_name};
pub use plain::{map_of, plain_fields, view_fields};
pub use tensor::{
    EXTENSION_METADATA, TENSOR_EXTENSION, VARIABLE_TENSOR_EXTENSION, may_miss_values, tensor_dims, tensor_field,
    tensor_item, tensor_shape, variable_rank, with_tensor_item,
};
pub use unite::{print_dims, unite_conflict, unite_fields};

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

/// Type of timestamps without a zone.
pub const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Returns the type of timestamps that are instants.
pub fn instant_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Field metadata key that marks a text column whose values are JSON documents (Arrow's canonical extension).
pub const EXTENSION_NAME: &str = "ARROW:extension:name";

/// Value of [`EXTENSION_NAME`] for JSON text.
pub const JSON_EXTENSION: &str = "arrow.json";

/// Whether values of this field are JSON documents kept as text.
pub fn is_json(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        && field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == JSON_EXTENSION)
}

/// Creates a nullable text field whose values are JSON documents.
pub fn json_field(name: &str) -> Field {
    let metadata = std::collections::HashMap::from([(EXTENSION_NAME.to_owned(), JSON_EXTENSION.to_owned())]);
    Field::new(name, DataType::Utf8, true).with_metadata(metadata)
}

/// Field metadata key that marks integers that a float cannot represent, so that they do not become floats. It exists
/// only while types are united; [`settle_fields`] removes it.
const WIDE: &str = "shardify:wide";

/// Creates a nullable field of integers that a float cannot represent exactly.
pub fn wide_field(name: &str) -> Field {
    let metadata = std::collections::HashMap::from([(WIDE.to_owned(), String::new())]);
    Field::new(name, DataType::Int64, true).with_metadata(metadata)
}

/// Field metadata key of columns in which a single value may represent a list of one. It exists only while types are
/// united; [`settle_fields`] removes it.
const REPEATED: &str = "shardify:repeated";

/// Marks a column of a format in which every value is a list, usually of one item: a plain type and a list of it unite
/// to the list.
#[must_use]
pub fn mark_repeated(field: Field) -> Field {
    let metadata = std::collections::HashMap::from([(REPEATED.to_owned(), String::new())]);
    field.with_metadata(metadata)
}

/// Type of Parquet's intervals, which a field's mark tells from other bytes ([`Logical::Interval`]).
pub const INTERVAL: DataType = DataType::FixedSizeBinary(12);

/// Field metadata key of timestamps in nanoseconds that microseconds could hold as well. It exists only while types are
/// united; [`settle_fields`] removes it.
const WHOLE_MICROS: &str = "shardify:micros";

/// Marks a column of timestamps in nanoseconds whose values are whole microseconds. Its source does not state a unit,
/// so that coarser timestamps with a wider range decide it.
#[must_use]
pub fn whole_micros(field: Field) -> Field {
    let metadata = field.metadata().clone().with(WHOLE_MICROS, "");
    field.with_metadata(metadata)
}

/// Whether a type is a plain value rather than a list or struct.
pub fn is_scalar(data_type: &DataType) -> bool {
    !data_type.is_nested()
}

/// Returns the number of plain values that a type has places for, which is that of its columns in Parquet.
pub fn leaf_count(field: &Field) -> u64 {
    match field.data_type() {
        DataType::Struct(parts) => parts.iter().map(|part| leaf_count(part)).sum(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => leaf_count(item),
        _ => 1,
    }
}

/// Unites the fields of both lists by name: those of `a` first, in order, then those only in `b`.
pub fn unite_lists(a: &Fields, b: &Fields) -> Fields {
    let (left, right) = (ByName::new(a), ByName::new(b));
    let mut out: Vec<Arc<Field>> = a
        .iter()
        .map(|field| match right.find(field.name()) {
            Some((_, other)) => Arc::new(unite_fields(field, other)),
            None => Arc::new(field.as_ref().clone().with_nullable(true)),
        })
        .collect();
    out.extend(
        b.iter().filter(|f| left.find(f.name()).is_none()).map(|f| Arc::new(f.as_ref().clone().with_nullable(true))),
    );
    out.into()
}

/// Replaces the types of columns without any value by text, so that every format can store them, unless a source states
/// that they have no values.
#[must_use]
pub fn settle_fields(fields: &Fields) -> Fields {
    fields.iter().map(|f| Arc::new(settle_field(f))).collect()
}

/// Whether a type, or a part of it, says only that there was no value so far; [`settle_fields`] makes that text.
pub fn is_open(field: &Field) -> bool {
    match field.data_type() {
        DataType::Null => !logical::is_stated(field),
        DataType::Struct(parts) => parts.is_empty() || parts.iter().any(|part| is_open(part)),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => is_open(item),
        _ => false,
    }
}

/// As [`settle_fields`], but columns without any value stay so.
fn settle_empty(fields: &Fields) -> Fields {
    fields.iter().map(|f| Arc::new(settle_part(f, true))).collect()
}

fn settle_field(field: &Field) -> Field {
    settle_part(field, false)
}

fn settle_part(field: &Field, keeps_null: bool) -> Field {
    let settle_field = |field: &Field| settle_part(field, keeps_null);
    let data_type = match field.data_type() {
        DataType::Int64 if field.metadata().contains_key(WIDE) => {
            return Field::new(field.name(), DataType::Int64, field.is_nullable());
        }
        DataType::Null if !keeps_null && !logical::is_stated(field) => DataType::Utf8,
        DataType::List(inner) => DataType::List(Arc::new(settle_field(inner))),
        DataType::LargeList(inner) => DataType::LargeList(Arc::new(settle_field(inner))),
        DataType::FixedSizeList(inner, width) => DataType::FixedSizeList(Arc::new(settle_field(inner)), *width),
        DataType::Map(entries, sorted) => DataType::Map(Arc::new(settle_field(entries)), *sorted),
        // Parquet does not support groups without fields.
        DataType::Struct(inner) if inner.is_empty() => return json_field(field.name()),
        DataType::Struct(inner) => DataType::Struct(inner.iter().map(|part| Arc::new(settle_field(part))).collect()),
        other => other.clone(),
    };
    let mut metadata = field.metadata().clone();
    metadata.remove(REPEATED);
    metadata.remove(WHOLE_MICROS);
    if data_type != DataType::Null {
        metadata.remove(logical::STATED);
    }
    field.clone().with_data_type(data_type).with_metadata(metadata)
}

/// Creates a schema of settled fields.
pub fn schema_of(fields: &Fields) -> SchemaRef {
    Arc::new(Schema::new(settle_fields(fields)))
}

/// Fills in missing names (`column_3`) and makes equal names distinct (`name_2`).
pub fn distinct_names(mut names: Vec<String>) -> Vec<String> {
    for (i, name) in names.iter_mut().enumerate() {
        if name.is_empty() {
            *name = format!("column_{}", i + 1);
        }
    }
    let given: std::collections::HashSet<String> = names.iter().cloned().collect();
    let mut used = std::collections::HashSet::with_capacity(names.len());
    // Next number to try, so that many equal names do not take quadratic time.
    let mut next = std::collections::HashMap::new();
    for name in &mut names {
        if used.insert(name.clone()) {
            continue;
        }
        let count: &mut u64 = next.entry(name.clone()).or_insert(2);
        *name = loop {
            let candidate = format!("{name}_{count}");
            *count += 1;
            if !given.contains(&candidate) && used.insert(candidate.clone()) {
                break candidate;
            }
        };
    }
    names
}

/// Changes the type of a column that a value did not fit to text, or to JSON text if it has structure.
pub fn force_text(fields: &Fields, column: &str) -> Fields {
    let top = |field: &Field| {
        field.name() == column || column.strip_prefix(field.name().as_str()).is_some_and(|rest| rest.starts_with('.'))
    };
    fields
        .iter()
        .map(|field| {
            if !top(field) {
                return Arc::clone(field);
            }
            Arc::new(if is_scalar(field.data_type()) && field.data_type() != &DataType::Utf8 {
                Field::new(field.name(), DataType::Utf8, true)
            } else {
                json_field(field.name())
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unite(a: DataType, b: DataType) -> Field {
        unite_fields(&Field::new("c", a, true), &Field::new("c", b, true))
    }

    #[test]
    fn scalars_widen_without_loss() {
        assert_eq!(unite(DataType::Null, DataType::Int64).data_type(), &DataType::Int64);
        assert_eq!(unite(DataType::Int64, DataType::Float64).data_type(), &DataType::Float64);
        assert_eq!(unite(DataType::Boolean, DataType::Int64).data_type(), &DataType::Utf8);
        assert_eq!(unite(DataType::Date32, TIMESTAMP).data_type(), &DataType::Utf8);
        assert_eq!(unite(TIMESTAMP, instant_type()).data_type(), &DataType::Utf8);
        assert_eq!(unite(DataType::Utf8, DataType::Binary).data_type(), &DataType::Binary);
        assert_eq!(unite(DataType::Binary, DataType::Utf8).data_type(), &DataType::Binary);
    }

    #[test]
    fn integers_that_floats_cannot_hold_become_text_beside_floats() {
        let int = |name| Field::new(name, DataType::Int64, true);
        let float = Field::new("c", DataType::Float64, true);
        let both = unite_fields(&wide_field("c"), &int("c"));
        assert_eq!(both.data_type(), &DataType::Int64);
        assert_eq!(unite_fields(&float, &both).data_type(), &DataType::Utf8);
        assert_eq!(unite_fields(&both, &float).data_type(), &DataType::Utf8);
        assert_eq!(settle_fields(&vec![both].into())[0].as_ref(), &int("c"));
    }

    #[test]
    fn repeated_values_become_lists_where_there_are_lists() {
        let field = |data_type| mark_repeated(Field::new("c", data_type, true));
        let list = |data_type| DataType::new_list(data_type, true);
        for (a, b, expected) in [
            (DataType::Int64, list(DataType::Int64), list(DataType::Int64)),
            (list(DataType::Int64), DataType::Float32, list(DataType::Float64)),
            (DataType::Binary, DataType::Utf8, DataType::Binary),
            (DataType::Binary, list(DataType::Int64), list(DataType::Binary)),
            (DataType::Null, list(DataType::Utf8), list(DataType::Utf8)),
        ] {
            for both in [unite_fields(&field(a.clone()), &field(b.clone())), unite_fields(&field(b), &field(a))] {
                let settled = settle_fields(&vec![both].into());
                assert_eq!((settled[0].data_type(), settled[0].metadata().len()), (&expected, 0));
            }
        }
        let mixed = unite_fields(&field(DataType::Int64), &Field::new("c", DataType::Int64, true));
        assert_eq!(mixed, Field::new("c", DataType::Int64, true));
    }

    #[test]
    fn structs_unite_by_name_and_conflicts_become_json() {
        let a = DataType::Struct(vec![Field::new("x", DataType::Int64, true)].into());
        let b = DataType::Struct(vec![Field::new("y", DataType::Utf8, true)].into());
        let both = unite(a.clone(), b);
        let DataType::Struct(fields) = both.data_type() else { panic!("{both}") };
        assert_eq!(fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["x", "y"]);
        assert!(is_json(&unite(a, DataType::Int64)));
    }

    #[test]
    fn columns_without_values_settle_to_text() {
        let fields: Fields =
            vec![Field::new("a", DataType::Null, true), Field::new("b", DataType::Struct(Fields::empty()), true)]
                .into();
        let settled = settle_fields(&fields);
        assert_eq!(settled[0].data_type(), &DataType::Utf8);
        assert!(is_json(&settled[1]));
    }
}
