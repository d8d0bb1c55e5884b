//! The plain form of Arrow types: the content of a column, independent of the writer's packing.
//!
//! Dictionaries, run ends and views are forms of packing; names of list items, field metadata and nullability differ
//! between writers of the same table. In the plain form, equal columns have equal types.
//!
//! | given | plain |
//! |---|---|
//! | dictionary or run-end encoded T | T |
//! | text or binary view | text or binary |
//! | list view | list |
//! | map | map of `entries` with `key` and `value`, unsorted |
//! | JSON in any text | text |
//! | decimal of a negative scale, which no output states | decimal with the digits in full |
//! | anything | nullable; of metadata only logical types and extensions; list items are named `item` |

use std::{collections::HashSet, sync::Arc};

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, Fields};

use super::{is_json, json_field, logical, tensor_dims};
use crate::error::{Error, Result};

/// Maximum nesting depth of types: far more than real tables have, and safe for recursion.
const MAX_DEPTH: usize = 64;

/// Returns the fields in their plain form.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when a struct has two fields of one name, when types are nested too
/// deeply, or for unions, which no output supports.
pub fn plain_fields(fields: &Fields) -> Result<Fields> {
    fields.iter().map(|field| plain_field(field, MAX_DEPTH).map_err(|e| e.in_column(field.name().as_str()))).collect()
}

fn plain_field(field: &Field, depth: usize) -> Result<FieldRef> {
    if is_json(field) {
        let plain = json_field(field.name());
        return Ok(Arc::new(if logical::is_stated(field) { logical::as_stated(plain) } else { plain }));
    }
    let plain = Field::new(field.name(), plain_type(field.data_type(), depth)?, true);
    // A tensor needs the metadata with its shape.
    let marks = match tensor_dims(field) {
        Some(_) => field.metadata().clone(),
        None => logical::kept_marks(field, plain.data_type()),
    };
    Ok(Arc::new(plain.with_metadata(marks)))
}

fn plain_type(data_type: &DataType, depth: usize) -> Result<DataType> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Error::input(format!("expected at most {MAX_DEPTH} levels of nested types, found more")));
    };
    let named = |field: &Field, name: &str| Ok::<_, Error>(plain_field(field, depth)?.as_ref().clone().with_name(name));
    let item = |field: &Field| Ok::<_, Error>(Arc::new(named(field, "item")?));
    Ok(match data_type {
        DataType::Dictionary(_, value) => plain_type(value, depth)?,
        DataType::RunEndEncoded(_, value) => plain_type(value.data_type(), depth)?,
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(field) | DataType::ListView(field) => DataType::List(item(field)?),
        DataType::LargeList(field) | DataType::LargeListView(field) => DataType::LargeList(item(field)?),
        DataType::FixedSizeList(field, width) => DataType::FixedSizeList(item(field)?, *width),
        DataType::Struct(fields) => {
            let mut names = HashSet::new();
            if let Some(twice) = fields.iter().find(|field| !names.insert(field.name())) {
                let message = format!("expected distinct field names, found `{}` twice", twice.name());
                return Err(Error::input(message));
            }
            DataType::Struct(fields.iter().map(|field| plain_field(field, depth)).collect::<Result<_>>()?)
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                map_of_fields(named(&pair[0], "key")?, named(&pair[1], "value")?)
            }
            other => return Err(Error::input(format!("expected a map of keys and values, found one of {other}"))),
        },
        DataType::Union(..) => {
            return Err(Error::input("expected a column of one type, found a union")
                .with_hint("no shard format supports unions; convert the column to a struct with one field per type"));
        }
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *scale < 0 =>
        {
            whole_decimal(*precision, scale.unsigned_abs())?
        }
        other => other.clone(),
    })
}

/// Returns the type of whole numbers of so many digits, followed by so many zeros.
fn whole_decimal(digits: u8, zeros: u8) -> Result<DataType> {
    match digits.saturating_add(zeros) {
        all @ ..=DECIMAL128_MAX_PRECISION => Ok(DataType::Decimal128(all, 0)),
        all @ ..=DECIMAL256_MAX_PRECISION => Ok(DataType::Decimal256(all, 0)),
        all => Err(Error::input(format!(
            "expected decimals of at most {DECIMAL256_MAX_PRECISION} digits, found {digits} and {zeros} zeros, {all} \
             in all"
        ))),
    }
}

/// Returns the plain map type for a key and a value type.
pub fn map_of(key: DataType, value: DataType) -> DataType {
    map_of_fields(Field::new("key", key, false), Field::new("value", value, true))
}

/// Returns the plain map type for a key and a value field.
pub(super) fn map_of_fields(key: Field, value: Field) -> DataType {
    let pair = vec![key.with_name("key").with_nullable(false), value.with_name("value").with_nullable(true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair.into()), false)), false)
}

/// Returns the fields with text and binary as views and without dictionaries, for decoding without copies.
pub fn view_fields(fields: &Fields) -> Fields {
    fields.iter().map(view_field).collect()
}

fn view_field(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(view_type(field.data_type())))
}

fn view_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, value) => view_type(value),
        DataType::List(field) => DataType::List(view_field(field)),
        DataType::LargeList(field) => DataType::LargeList(view_field(field)),
        DataType::FixedSizeList(field, width) => DataType::FixedSizeList(view_field(field), *width),
        DataType::Struct(fields) => DataType::Struct(view_fields(fields)),
        DataType::Map(entries, sorted) => DataType::Map(view_field(entries), *sorted),
        other => other.clone(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn decimals_of_a_negative_scale_are_written_in_full() {
        let plain = |given: DataType| {
            let fields = vec![Field::new("x", given, true)].into();
            plain_fields(&fields).map(|fields| fields[0].data_type().clone())
        };
        assert_eq!(plain(DataType::Decimal128(7, -3)).unwrap(), DataType::Decimal128(10, 0));
        assert_eq!(plain(DataType::Decimal32(9, -29)).unwrap(), DataType::Decimal128(38, 0));
        assert_eq!(plain(DataType::Decimal128(38, -1)).unwrap(), DataType::Decimal256(39, 0));
        assert_eq!(plain(DataType::Decimal256(70, 3)).unwrap(), DataType::Decimal256(70, 3));
        let error = plain(DataType::Decimal256(76, -1)).unwrap_err();
        assert!(error.to_string().contains("77 in all"), "{error}");
    }
}
