//! The types of a dataset, which bind the columns of every later run.
//!
//! A column without any value fits every type, and a dataset's column that has had no value yet takes the type of the
//! first run that has values. Both are `null` here, and are stored as text.
//!
//! ```text
//! dataset   run            result
//! T         null, T        T
//! T         narrower       T: what one run would unite to T
//! null      T              T, and older shards are retyped when they are rewritten
//! struct    more members   the struct with these members, as with new columns
//! T         anything else  a conflict
//! ```

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields};

use super::{
    REPEATED, WIDE,
    file::print_type,
    is_json,
    logical::{self, STATED, as_stated, is_stated},
    settle_empty, settle_fields, tensor_dims, tensor_item, unite_fields,
};

/// What becomes of a column of a run, given the type that the dataset has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnBinding {
    /// The dataset's type holds all values.
    Fits(Field),
    /// The dataset's type gains parts that had no values before.
    Extends(Field),
    /// The dataset's type does not hold all values; the type that would.
    Conflict(Field),
}

/// Binds a column of a run to the type that the dataset has for it.
pub fn bind_column(known: &Field, found: &Field) -> ColumnBinding {
    if print_type(known) == print_type(found) {
        return ColumnBinding::Fits(found.clone());
    }
    if let (Some(item), DataType::FixedSizeList(known_item, length)) = (tensor_item(found), known.data_type())
        && let DataType::FixedSizeList(_, found_length) = found.data_type()
        && length == found_length
    {
        let of = |item| found.clone().with_data_type(DataType::FixedSizeList(Arc::new(item), *length));
        return match bind_column(known_item, item) {
            ColumnBinding::Fits(item) | ColumnBinding::Extends(item) => ColumnBinding::Fits(of(item)),
            ColumnBinding::Conflict(item) => ColumnBinding::Conflict(of(item)),
        };
    }
    // Shapes are compared where tensors are adapted to the dataset.
    if tensor_dims(found).is_some() {
        return ColumnBinding::Fits(found.clone());
    }
    // Parquet has dates in days alone, and dates in milliseconds are whole days.
    if (known.data_type(), found.data_type()) == (&DataType::Date32, &DataType::Date64) {
        return ColumnBinding::Fits(found.clone().with_data_type(DataType::Date32));
    }
    let united = unite_fields(&with_source_marks(known, found), found);
    if print_type(&united) == print_type(known) {
        ColumnBinding::Fits(united)
    } else if extends_type(known, &united) {
        ColumnBinding::Extends(united)
    } else {
        ColumnBinding::Conflict(united)
    }
}

/// Returns the dataset's column with the marks that a source of this kind gives its columns while types are united.
fn with_source_marks(known: &Field, found: &Field) -> Field {
    let known = if is_stated(found) { as_stated(known.clone()) } else { known.clone() };
    match found.metadata().contains_key(REPEATED) {
        true => super::mark_repeated(known),
        false => known,
    }
}

/// Whether a type differs from another only by parts that had no values, or were not there.
fn extends_type(known: &Field, united: &Field) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Map, Null, Struct};
    match (known.data_type(), united.data_type()) {
        (Null, _) => true,
        (Struct(known), Struct(united)) => {
            known.iter().all(|field| united.find(field.name()).is_some_and(|(_, other)| extends_type(field, other)))
        }
        (List(known), List(united)) | (LargeList(known), LargeList(united)) => extends_type(known, united),
        (FixedSizeList(known, x), FixedSizeList(united, y)) if x == y => extends_type(known, united),
        (Map(known, _), Map(united, _)) => extends_type(known, united),
        _ => print_type(known) == print_type(united),
    }
}

/// Whether a column can have no other type, not even with more parts.
pub fn is_fixed(known: &Field) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Map, Null, Struct};
    match known.data_type() {
        Null | Struct(_) | Map(..) => false,
        List(item) | LargeList(item) | FixedSizeList(item, _) => is_fixed(item),
        _ => true,
    }
}

/// Whether a merge may give both columns one type: that of either, or a wider one in which every reader sees the same
/// values.
/// Text and documents that stand for other values are not.
pub fn can_merge(a: &Field, b: &Field) -> bool {
    use DataType::{FixedSizeList, Int64, LargeList, List, Map, Null, Struct, UInt64};
    match (a.data_type(), b.data_type()) {
        (Null, _) | (_, Null) => true,
        _ if print_type(a) == print_type(b) => true,
        (Struct(x), Struct(y)) => {
            x.iter().all(|field| y.find(field.name()).is_none_or(|(_, other)| can_merge(field, other)))
        }
        (List(x) | LargeList(x) | FixedSizeList(x, _), List(y) | LargeList(y) | FixedSizeList(y, _)) => can_merge(x, y),
        (Map(x, _), Map(y, _)) => can_merge(x, y),
        (Int64 | UInt64, other) | (other, Int64 | UInt64) if !other.is_integer() => false,
        _ => {
            let united = unite_fields(a, b);
            let is_text = |field: &Field| field.data_type().is_string() || field.data_type().is_binary();
            !is_json(&united)
                && (!is_text(&united) || is_text(a) == is_text(b) && is_json(a) == is_json(b))
                && (a.data_type().is_binary() == b.data_type().is_binary())
        }
    }
}

/// Returns columns with the types of `types`, where a merge may give them.
pub fn merge_fields(fields: &Fields, types: &Fields) -> Fields {
    let one = |field: &FieldRef| match types.find(field.name()) {
        Some((_, now)) if can_merge(field, now) => Arc::new(unite_fields(field, now)),
        _ => Arc::clone(field),
    };
    fields.iter().map(one).collect()
}

/// Returns the columns of a shard, in which text is open where the dataset has another type: only a column without
/// values was stored as text there.
pub fn open_text_fields(stored: &Fields, types: &Fields) -> Fields {
    let open = |field: &FieldRef| match types.find(field.name()) {
        Some((_, now)) => open_field(field, now),
        None => Arc::clone(field),
    };
    stored.iter().map(open).collect()
}

fn open_field(stored: &FieldRef, now: &Field) -> FieldRef {
    use DataType::{LargeList, List, Struct, Utf8};
    let data_type = match (stored.data_type(), now.data_type()) {
        (Utf8, now) if !is_json(stored) && !now.is_string() && !now.is_binary() => DataType::Null,
        (List(item), List(now)) => List(open_field(item, now)),
        (LargeList(item), LargeList(now)) => LargeList(open_field(item, now)),
        (Struct(parts), Struct(now)) => Struct(open_text_fields(parts, now)),
        _ => return Arc::clone(stored),
    };
    Arc::new(stored.as_ref().clone().with_data_type(data_type))
}

/// Returns the types of a dataset after a run with these columns; columns that the run lacks keep theirs.
pub fn types_after_run(known: &Fields, found: &Fields) -> Fields {
    let of_known = |field: &FieldRef| match found.find(field.name()).map(|(_, found)| bind_column(field, found)) {
        Some(ColumnBinding::Extends(united) | ColumnBinding::Conflict(united)) => Arc::new(united),
        Some(ColumnBinding::Fits(_)) | None => Arc::clone(field),
    };
    let new = found.iter().filter(|field| known.find(field.name()).is_none()).cloned();
    stored_types(&known.iter().map(of_known).chain(new).collect())
}

/// Returns the name of a column whose type in a dataset does not hold what a run has written, and both types.
pub fn type_conflict(known: &Fields, found: &Fields) -> Option<(String, String, String)> {
    found.iter().find_map(|field| {
        let (_, known) = known.find(field.name())?;
        let differs = matches!(bind_column(known, field), ColumnBinding::Conflict(_));
        differs.then(|| (field.name().clone(), print_type(known), print_type(field)))
    })
}

/// Returns columns as a dataset keeps their types: a column without values stays open.
pub fn stored_types(fields: &Fields) -> Fields {
    logical::map_fields(&settle_empty(fields), &|field| {
        let mut marks = field.metadata().clone();
        marks.retain(|key, _| key != STATED && key != REPEATED && key != WIDE);
        field.with_metadata(marks)
    })
}

/// Returns the names of the columns that shards with the types `known` store with another type than `now`.
pub fn retyped_columns<'a>(known: &'a Fields, now: &Fields) -> impl Iterator<Item = &'a str> {
    let (then, now) = (settle_fields(known), settle_fields(now));
    let differs = move |field: &&FieldRef| {
        let of = |fields: &Fields| fields.find(field.name()).map(|(_, field)| print_type(field));
        of(&now).is_some_and(|now| Some(now) != of(&then))
    };
    known.iter().filter(differs).map(|field| field.name().as_str())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::{super::file, *};

    fn field(text: &str) -> Field {
        stored_types(&[Arc::new(file::parse_type(text).unwrap().with_name("c"))].into_iter().collect())[0]
            .as_ref()
            .clone()
    }

    #[test]
    fn the_dataset_decides_unless_a_value_does_not_fit() {
        for (known, found, expected) in [
            ("int64", "null", "fits int64"),
            ("float64", "int64", "fits float64"),
            ("text", "int64", "fits text"),
            ("json", "int64", "fits json"),
            ("list<int64>", "list<null>", "fits list<int64>"),
            ("date", "date_ms", "fits date"),
            ("struct<a: int64>", "struct<>", "fits struct<a: int64>"),
            ("int64", "float64", "conflict float64"),
            ("int64", "text", "conflict text"),
            ("date", "timestamp(us)", "conflict text"),
            ("text", "struct<a: int64>", "conflict json"),
            ("struct<a: int64>", "struct<a: text>", "conflict struct<a: text>"),
            ("null", "date", "extends date"),
            ("list<null>", "list<struct<b: int64>>", "extends list<struct<b: int64>>"),
            ("struct<a: int64>", "struct<b: date>", "extends struct<a: int64, b: date>"),
        ] {
            let found_field = file::parse_type(found).unwrap().with_name("c");
            let bound = match bind_column(&field(known), &found_field) {
                ColumnBinding::Fits(field) => format!("fits {}", print_type(&field)),
                ColumnBinding::Extends(field) => format!("extends {}", print_type(&field)),
                ColumnBinding::Conflict(field) => format!("conflict {}", print_type(&field)),
            };
            assert_eq!(bound, expected, "{known} and {found}");
        }
    }

    #[test]
    fn merges_give_no_value_another_type() {
        for (a, b, expected) in [
            ("int32", "float64", true),
            ("int8", "int64", true),
            ("float32", "float64", true),
            ("null", "struct<a: int64>", true),
            ("struct<a: int64>", "struct<b: date>", true),
            ("int64", "float64", false),
            ("int64", "text", false),
            ("date", "text", false),
            ("text", "json", false),
            ("text", "binary", false),
            ("list<int64>", "list<text>", false),
            ("struct<a: int64>", "struct<a: text>", false),
        ] {
            assert_eq!(
                (can_merge(&field(a), &field(b)), can_merge(&field(b), &field(a))),
                (expected, expected),
                "{a} {b}"
            );
        }
    }

    #[test]
    fn columns_keep_what_they_have() {
        let fields = |types: &[(&str, &str)]| -> Fields {
            types.iter().map(|(name, text)| Arc::new(field(text).with_name(*name))).collect()
        };
        let known = fields(&[("a", "null"), ("b", "float64"), ("c", "date")]);
        let now = types_after_run(&known, &fields(&[("b", "int64"), ("a", "int64"), ("d", "text")]));
        assert_eq!(now, fields(&[("a", "int64"), ("b", "float64"), ("c", "date"), ("d", "text")]));
        assert_eq!(retyped_columns(&known, &now).collect::<Vec<_>>(), ["a"]);
        assert_eq!(type_conflict(&known, &fields(&[("a", "text"), ("b", "text")])).unwrap().0, "b");
    }
}
