//! The columns of a schema: the Arrow type of each Avro type, or why there is none.
//!
//! | Avro | Arrow |
//! |---|---|
//! | int, long, float, double, boolean, bytes, string | the same |
//! | enum | text |
//! | fixed | bytes of this size |
//! | `[null, T]`, `[T, null]`, `[T]` | T |
//! | array, map, record | list, map, struct |
//! | decimal | of 128 bits up to 38 digits, else of 256 |
//! | uuid of 16 bytes, duration | 16 bytes marked as such, Parquet's interval |
//! | date, time, timestamp | in the unit that is stated; instants are in UTC |

use std::sync::Arc;

use arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType, Field, TimeUnit};

use super::schema::{AvroSchema, Meaning, SchemaMember, Stored, Type, is_small};
use crate::{
    error::Error,
    schema::{INTERVAL, Logical, instant_type, map_of},
};

/// Name of the only column of a file whose records are no Avro records.
pub(super) const VALUE: &str = "value";

/// Maximum number of types in a column.
const MAX_TYPES: usize = 100_000;

/// What to do about a column that cannot be read.
const LEAVE_OUT: &str = "name the columns to convert with --columns, without this one";

/// A column of a file.
#[derive(Debug)]
pub(super) struct FileColumn {
    pub(super) name: String,
    pub(super) of: Type,
    /// Its type; the error says why it has none.
    pub(super) field: Result<Field, RefusedColumn>,
}

/// Why a type cannot be a column.
#[derive(Debug, Clone)]
pub(super) struct RefusedColumn {
    path: String,
    message: String,
    hint: &'static str,
}

impl RefusedColumn {
    pub(super) fn error(&self) -> Error {
        let error = Error::input(self.message.clone()).in_column(self.path.clone()).with_hint(self.hint);
        if self.hint == LEAVE_OUT { error } else { error.with_hint(LEAVE_OUT) }
    }
}

/// Returns the columns of a schema, in its order.
pub(super) fn columns_of(schema: &AvroSchema) -> Vec<FileColumn> {
    let column = |name: &str, of: &Type| {
        let mut types = MAX_TYPES;
        let field = field_of(name, of, name, &mut types);
        FileColumn { name: name.to_owned(), of: of.clone(), field }
    };
    match &schema.root.stored {
        Stored::Record(members) => members.iter().map(|SchemaMember { name, of }| column(name, of)).collect(),
        _ => vec![column(VALUE, &schema.root)],
    }
}

/// A union as a column has it.
pub(super) enum Branches<'a> {
    /// No union.
    None(&'a Type),
    /// Of one type and, at a place, null; `None` if it has one type only.
    Of(&'a Type, Option<i64>),
}

/// Returns what a type is beside null; `None` for a union of several others.
pub(super) fn branches_of(of: &Type) -> Option<Branches<'_>> {
    let Stored::Union(branches) = &of.stored else { return Some(Branches::None(of)) };
    let is_null = |branch: &Type| matches!(branch.stored, Stored::Null);
    match &**branches {
        [one] => Some(Branches::Of(one, None)),
        [null, one] if is_null(null) => Some(Branches::Of(one, Some(0))),
        [one, null] if is_null(null) => Some(Branches::Of(one, Some(1))),
        _ => None,
    }
}

fn field_of(name: &str, of: &Type, path: &str, types: &mut usize) -> Result<Field, RefusedColumn> {
    let refused = |message: String, hint| RefusedColumn { path: path.to_owned(), message, hint };
    let Some(left) = types.checked_sub(1) else {
        return Err(refused(format!("expected at most {MAX_TYPES} types in a column, found more"), LEAVE_OUT));
    };
    *types = left;
    let Some(Branches::None(of) | Branches::Of(of, _)) = branches_of(of) else {
        let message = "expected a type, or a union of one type and null, found a union of several types".to_owned();
        return Err(refused(message, "write each of its types to a field of its own, which may be null"));
    };
    if let Some(meaning) = of.meaning {
        return meaning_field(name, meaning).map_err(|message| refused(message, LEAVE_OUT));
    }
    let data_type = match &of.stored {
        Stored::Null => DataType::Null,
        Stored::Boolean => DataType::Boolean,
        Stored::Int => DataType::Int32,
        Stored::Long => DataType::Int64,
        Stored::Float => DataType::Float32,
        Stored::Double => DataType::Float64,
        Stored::Bytes | Stored::Fixed(0) => DataType::Binary,
        Stored::Text | Stored::Enum(_) => DataType::Utf8,
        Stored::Fixed(bytes) => DataType::FixedSizeBinary(i32::try_from(*bytes).unwrap_or(i32::MAX)),
        Stored::Array(item) => DataType::List(Arc::new(field_of("item", item, &format!("{path}[]"), types)?)),
        Stored::Map(value) => {
            let value = field_of("value", value, &format!("{path}{{}}"), types)?;
            match map_of(DataType::Utf8, value.data_type().clone()) {
                DataType::Map(entries, sorted) => DataType::Map(with_value(&entries, value), sorted),
                other => other,
            }
        }
        Stored::Record(members) => {
            let part = |SchemaMember { name, of }: &SchemaMember| {
                field_of(name, of, &format!("{path}.{name}"), types).map(Arc::new)
            };
            DataType::Struct(members.iter().map(part).collect::<Result<_, _>>()?)
        }
        Stored::Union(_) => return Err(refused("expected a type, found a union within a union".to_owned(), LEAVE_OUT)),
        Stored::Again(record) => {
            let message = format!("expected a type that does not contain itself, found the recursive type `{record}`");
            return Err(refused(message, LEAVE_OUT));
        }
    };
    Ok(Field::new(name, data_type, true))
}

/// Returns the entries of a map with this field as that of the values.
fn with_value(entries: &Field, value: Field) -> Arc<Field> {
    let DataType::Struct(pair) = entries.data_type() else { return Arc::new(entries.clone()) };
    let pair = pair.iter().take(1).cloned().chain([Arc::new(value)]).collect();
    Arc::new(entries.clone().with_data_type(DataType::Struct(pair)))
}

fn meaning_field(name: &str, meaning: Meaning) -> Result<Field, String> {
    let field = |data_type| Field::new(name, data_type, true);
    Ok(match meaning {
        Meaning::Uuid => Logical::Uuid.mark_field(field(DataType::FixedSizeBinary(16))),
        Meaning::Duration => Logical::Interval.mark_field(field(INTERVAL)),
        Meaning::Date => field(DataType::Date32),
        Meaning::Time(TimeUnit::Millisecond) => field(DataType::Time32(TimeUnit::Millisecond)),
        Meaning::Time(unit) => field(DataType::Time64(unit)),
        Meaning::Timestamp(unit, instant) => {
            let zone = match instant_type() {
                DataType::Timestamp(_, zone) if instant => zone,
                _ => None,
            };
            field(DataType::Timestamp(unit, zone))
        }
        Meaning::Decimal { digits, scale } => {
            let of =
                |most: u8| u8::try_from(digits).ok().filter(|digits| *digits <= most).zip(i8::try_from(scale).ok());
            let (precision, scale) = of(DECIMAL256_MAX_PRECISION).ok_or_else(|| {
                format!("expected decimals of at most {DECIMAL256_MAX_PRECISION} digits, found {digits}")
            })?;
            match is_small(digits) {
                true => field(DataType::Decimal128(precision, scale)),
                false => field(DataType::Decimal256(precision, scale)),
            }
        }
    })
}

impl FileColumn {
    /// Reads texts as bytes, so that any bytes will do.
    pub(super) fn read_as_bytes(&mut self) {
        if self.field.as_ref().is_ok_and(|field| *field.data_type() == DataType::Utf8) && as_bytes(&mut self.of) {
            self.field = Ok(Field::new(&self.name, DataType::Binary, true));
        }
    }
}

/// Makes bytes of text, also beside null; returns whether it was text.
fn as_bytes(of: &mut Type) -> bool {
    match &mut of.stored {
        Stored::Text => of.stored = Stored::Bytes,
        Stored::Union(branches) => {
            let mut owned: Vec<Type> = branches.to_vec();
            if !owned.iter_mut().any(as_bytes) {
                return false;
            }
            *branches = owned.into();
        }
        _ => return false,
    }
    true
}
