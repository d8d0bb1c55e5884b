//! Columns by name or by path: `subject.reference` is a column of that name, or the member `reference` of the struct
//! `subject`, as in JSON.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StructArray},
    compute::nullif,
    datatypes::{DataType, Field, Fields},
};

use crate::error::Result;

/// Returns the field at a path; a name that contains dots takes precedence over a path.
pub fn field_at<'a>(fields: &'a Fields, path: &str) -> Option<&'a Field> {
    if let Some((_, field)) = fields.find(path) {
        return Some(field);
    }
    dotted_prefixes(path).find_map(|(name, rest)| match fields.find(name)?.1.data_type() {
        DataType::Struct(members) => field_at(members, rest),
        _ => None,
    })
}

/// Returns the values at a path, null where any struct on the path is null; `None` if there is no such column.
///
/// # Errors
/// When Arrow fails.
pub fn column_at(batch: &RecordBatch, path: &str) -> Result<Option<ArrayRef>> {
    if let Some(column) = batch.column_by_name(path) {
        return Ok(Some(Arc::clone(column)));
    }
    for (name, rest) in dotted_prefixes(path) {
        if let Some(column) = batch.column_by_name(name)
            && let Some(found) = member_at(column, rest)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn member_at(column: &ArrayRef, path: &str) -> Result<Option<ArrayRef>> {
    let Some(members) = column.as_struct_opt() else { return Ok(None) };
    if members.column_by_name(path).is_some() {
        return struct_member(members, path);
    }
    for (name, rest) in dotted_prefixes(path) {
        if let Some(inner) = struct_member(members, name)?
            && let Some(found) = member_at(&inner, rest)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns a member of a struct, null where the struct is null.
///
/// # Errors
/// When Arrow fails.
pub fn struct_member(members: &StructArray, name: &str) -> Result<Option<ArrayRef>> {
    let Some(column) = members.column_by_name(name) else { return Ok(None) };
    let Some(nulls) = members.nulls() else { return Ok(Some(Arc::clone(column))) };
    let absent = BooleanArray::new(!nulls.inner(), None);
    Ok(Some(nullif(column, &absent)?))
}

/// Iterates over all ways to split a path at a dot.
fn dotted_prefixes(path: &str) -> impl Iterator<Item = (&str, &str)> {
    path.match_indices('.').map(|(at, _)| (&path[..at], &path[at + 1..]))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn batch() -> RecordBatch {
        let inner: Fields = vec![Field::new("ref.id", DataType::Utf8, true)].into();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("P-1"), Some("hidden"), None]));
        let inner_array: ArrayRef = Arc::new(StructArray::new(inner.clone(), vec![texts], None));
        let outer: Fields = vec![Field::new("subject", DataType::Struct(inner), true)].into();
        let outer_array: ArrayRef =
            Arc::new(StructArray::new(outer, vec![inner_array], Some(vec![true, false, true].into())));
        let dotted: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        RecordBatch::try_from_iter(vec![("a", outer_array), ("b.c", dotted)]).unwrap()
    }

    #[test]
    fn paths_resolve_into_structs_and_null_structs_give_null() {
        let batch = batch();
        let found = column_at(&batch, "a.subject.ref.id").unwrap().unwrap();
        let texts: Vec<Option<&str>> = found.as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("P-1"), None, None]);
        assert_eq!(column_at(&batch, "b.c").unwrap().unwrap().len(), 3);
        for path in ["a.nothing", "b", "b.c.d", "", ".", "a.subject.ref.id.x"] {
            assert!(column_at(&batch, path).unwrap().is_none(), "{path}");
            assert!(field_at(batch.schema_ref().fields(), path).is_none(), "{path}");
        }
        assert_eq!(field_at(batch.schema_ref().fields(), "a.subject.ref.id").unwrap().data_type(), &DataType::Utf8);
    }
}
