//! Types of Delta tables: which columns a table can have, and which columns fit a table that exists.
//!
//! | Arrow | Delta |
//! |---|---|
//! | bool, int8 to int64, float32, float64 | boolean, byte, short, integer, long, float, double |
//! | text of any kind, JSON; binary of any kind, uuid | string; binary |
//! | date; decimals up to 38 digits | date; decimal(p,s) |
//! | timestamps with and without a zone, s to µs | timestamp, timestamp_ntz |
//! | lists of any kind; struct; map | array; struct; map |
//!
//! Everything else is refused, because readers differ in what they make of it. A table has one schema: a column never
//! changes its type, and new columns may come.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    delta::{
        arrow_type,
        types::{StructField, StructType, name_of_arrow},
    },
    error::{Error, Result},
    id::Version,
    schema::{Logical, file::print_type, unite_fields},
};

/// Characters that Spark rejects in names of columns.
const BAD_CHARACTERS: &[char] = &[' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// Key in the metadata of a column: the version of the dataset that brought it.
const SINCE: &str = "shardify.version";

/// Columns of a Delta table, as its log states them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct LoggedSchema(StructType);

/// Returns a column of a table that version `since` brings.
fn column_since(name: &str, data_type: Value, since: Version) -> StructField {
    let metadata = [(SINCE.to_owned(), since.0.into())].into_iter().collect();
    StructField { name: name.to_owned(), data_type, nullable: true, metadata }
}

/// Returns where a column comes from, for messages.
fn origin_note(column: &StructField) -> String {
    let since = column.metadata.get(SINCE).and_then(Value::as_u64);
    since.map_or_else(String::new, |version| format!(" since {}", Version(version)))
}

impl LoggedSchema {
    /// Returns whether the table has no columns yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.fields.is_empty()
    }

    /// Returns the column with this name.
    pub(super) fn find_column(&self, name: &str) -> Option<&StructField> {
        self.0.fields.iter().find(|column| column.name == name)
    }

    /// Whether a column, or a part of one, has timestamps without a zone, which need a newer protocol.
    pub(super) fn has_local_times(&self) -> bool {
        self.0.fields.iter().any(|column| column.data_type.to_string().contains("\"timestamp_ntz\""))
    }

    /// Adds the columns of shards that version `since` brings.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for a column that the table has with another type,
    /// [`Kind::Usage`](crate::error::Kind::Usage) for one that no Delta table can have.
    pub(super) fn add_columns(&mut self, fields: &Fields, since: Version) -> Result<()> {
        for field in fields {
            let found = delta_type(field, true)?;
            match self.find_column(field.name()) {
                Some(known) if known.data_type == found => {}
                Some(known) => return Err(other_type(known, field)),
                None => {
                    self.check_case(field.name())?;
                    self.0.fields.push(column_since(field.name(), found, since));
                }
            }
        }
        Ok(())
    }

    /// Adds the column of a partition. Its values are in the names of folders, so no shard may have it too.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if a shard has such a column.
    pub(super) fn add_partition(&mut self, name: &str, since: Version) -> Result<()> {
        if self.find_column(name).is_some() {
            return Err(Error::usage(format!(
                "expected the column `{name}` either in the shards or in the names of their folders, found both"
            ))
            .in_column(name)
            .with_hint("leave delta out of --index: in a Delta table the values would come from the folders"));
        }
        check_name(name)?;
        self.check_case(name)?;
        self.0.fields.push(column_since(name, "string".into(), since));
        Ok(())
    }

    /// Spark does not distinguish case.
    fn check_case(&self, name: &str) -> Result<()> {
        let lower = name.to_lowercase();
        let Some(other) = self.0.fields.iter().find(|column| column.name.to_lowercase() == lower) else {
            return Ok(());
        };
        Err(Error::usage(format!(
            "expected names that differ in more than case, as columns of a Delta table do, found `{}` and `{name}`",
            other.name
        ))
        .in_column(name)
        .with_hint("rename one of them in the sources, or leave delta out of --index"))
    }

    /// Returns inferred columns with the types that the table has, where these hold all values without loss. `given`
    /// tells which types must not change.
    ///
    /// # Errors
    /// As [`add_columns`](Self::add_columns).
    pub(super) fn fit_fields(&self, fields: &Fields, given: &dyn Fn(&str) -> bool) -> Result<Fields> {
        let fitted = |field: &Arc<Field>| {
            let Some(known) = self.find_column(field.name()) else {
                if field.data_type() != &DataType::Null {
                    delta_type(field, true)?;
                }
                return Ok(Arc::clone(field));
            };
            if delta_type(field, true).is_ok_and(|found| found == known.data_type) {
                return Ok(Arc::clone(field));
            }
            let Some(known_type) = arrow_type(&known.data_type).ok().filter(|_| !given(field.name())) else {
                return Err(other_type(known, field));
            };
            let as_known = Field::new(field.name(), known_type, true);
            let united = unite_fields(&as_known, field);
            match delta_type(&united, true) {
                Ok(found) if found == known.data_type => Ok(Arc::new(united)),
                _ => Err(other_type(known, field)),
            }
        };
        fields.iter().map(fitted).collect()
    }
}

/// Fails on a name that readers of Delta tables reject.
fn check_name(name: &str) -> Result<()> {
    let Some(bad) = name.chars().find(|c| BAD_CHARACTERS.contains(c)) else { return Ok(()) };
    Err(Error::usage(format!("expected a name of a column that Delta tables can have, found one with {bad:?}"))
        .in_column(name)
        .with_hint("rename it in the sources, or leave delta out of --index"))
}

fn other_type(known: &StructField, field: &Field) -> Error {
    Error::input(format!(
        "expected the type that the column `{}` has in the Delta log{}, {}, found {}",
        known.name,
        origin_note(known),
        print_delta(&known.data_type),
        print_type(field)
    ))
    .in_column(known.name.as_str())
    .with_hint(
        "a Delta table has one schema: give the column that type with --type if its values allow it, or name \
     another dataset with --out",
    )
}

fn print_delta(data_type: &Value) -> String {
    data_type.as_str().map_or_else(|| data_type.to_string(), str::to_owned)
}

/// Returns the Delta type of a field. `is_column` is false for parts of nested columns.
fn delta_type(field: &Field, is_column: bool) -> Result<Value> {
    check_name(field.name()).map_err(|e| if is_column { e } else { e.with_hint("it is a part of a nested column") })?;
    let none = || no_type(field, is_column);
    match Logical::from_field(field) {
        None | Some(Logical::Uuid | Logical::Json | Logical::Enum | Logical::Bson) => {}
        Some(
            Logical::Variant
            | Logical::UtcTime
            | Logical::Interval
            | Logical::Geometry { .. }
            | Logical::Geography { .. },
        ) => {
            return Err(none());
        }
    }
    let element = |item: &Field| delta_type(&item.clone().with_name("element"), false);
    Ok(match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            json!({"type": "array", "elementType": element(item)?, "containsNull": true})
        }
        DataType::Struct(parts) => {
            let part = |part: &Arc<Field>| {
                Ok(json!({"name": part.name(), "type": delta_type(part, false)?, "nullable": true, "metadata": {}}))
            };
            json!({"type": "struct", "fields": parts.iter().map(part).collect::<Result<Vec<Value>>>()?})
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => json!({
                "type": "map", "keyType": element(&pair[0])?, "valueType": element(&pair[1])?, "valueContainsNull": true
            }),
            _ => return Err(none()),
        },
        DataType::Dictionary(_, value) => {
            return delta_type(&field.clone().with_data_type((**value).clone()), is_column);
        }
        flat => match name_of_arrow(flat) {
            Some(name) => name.into(),
            None => return Err(none()),
        },
    })
}

/// Returns the error for a type that Delta tables do not have.
fn no_type(field: &Field, is_column: bool) -> Error {
    let error = Error::usage(format!("expected a type that Delta tables have, found {}", print_type(field)))
        .in_column(field.name().as_str());
    let error = match way_out(field.data_type()).filter(|_| is_column) {
        Some((other, condition)) => {
            error.with_hint(format!("give the column another type{condition}: --type '{}={other}'", field.name()))
        }
        None => error,
    };
    error.with_hint("or leave delta out of --index")
}

/// Returns a type that holds the values, and when it does.
fn way_out(data_type: &DataType) -> Option<(&'static str, &'static str)> {
    Some(match data_type {
        DataType::UInt8 => ("int16", ""),
        DataType::UInt16 => ("int32", ""),
        DataType::UInt32 => ("int64", ""),
        DataType::UInt64 => ("int64", " if its values allow it"),
        DataType::Float16 => ("float32", ""),
        DataType::Date64 => ("date", ""),
        DataType::Timestamp(_, None) => ("timestamp(us)", " if no value is finer"),
        DataType::Timestamp(_, Some(_)) => ("instant", " if no value is finer"),
        DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) | DataType::Null => ("text", ""),
        _ => return None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;
    use crate::{error::Kind, schema::json_field};

    fn fields(of: &[(&str, DataType)]) -> Fields {
        of.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect()
    }

    fn table(of: &[(&str, DataType)]) -> LoggedSchema {
        let mut table = LoggedSchema::default();
        table.add_columns(&fields(of), Version(3)).unwrap();
        table
    }

    #[test]
    fn schemas_are_written_as_delta_writes_them() {
        let list = DataType::new_list(DataType::Float32, true);
        let table = table(&[("a", DataType::Int64), ("l", list), ("t", crate::schema::TIMESTAMP)]);
        let text = serde_json::to_string(&table).unwrap();
        let expected = json!({"type": "struct", "fields": [
            {"name": "a", "type": "long", "nullable": true, "metadata": {"shardify.version": 3}},
            {"name": "l", "type": {"type": "array", "elementType": "float", "containsNull": true}, "nullable": true,
             "metadata": {"shardify.version": 3}},
            {"name": "t", "type": "timestamp_ntz", "nullable": true, "metadata": {"shardify.version": 3}},
        ]});
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!(serde_json::from_str::<LoggedSchema>(&text).unwrap(), table);
        assert!(table.has_local_times());
    }

    #[test]
    fn every_refused_type_has_its_way_out() {
        let way = |data_type| {
            let error = LoggedSchema::default().add_columns(&fields(&[("c", data_type)]), Version(1)).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            error.hints()[0].clone()
        };
        assert_eq!(way(DataType::UInt8), "give the column another type: --type 'c=int16'");
        assert_eq!(
            way(DataType::Timestamp(TimeUnit::Nanosecond, None)),
            "give the column another type if no value is finer: --type 'c=timestamp(us)'"
        );
        for refused in
            [DataType::Float16, DataType::Time64(TimeUnit::Microsecond), DataType::Duration(TimeUnit::Second)]
        {
            assert!(way(refused.clone()).contains("--type"), "{refused}");
        }
        assert_eq!(way(DataType::new_list(DataType::UInt8, true)), "or leave delta out of --index");
        assert_eq!(way(DataType::Decimal256(60, 2)), "or leave delta out of --index");
        for (_, name) in [("c", "int16"), ("c", "text"), ("c", "timestamp(us)"), ("c", "instant")] {
            assert!(crate::schema::file::parse_type(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_are_checked_at_every_depth() {
        let nested = DataType::Struct(fields(&[("a b", DataType::Int64)]));
        for bad in [("x=y", DataType::Int64), ("s", nested)] {
            let error = LoggedSchema::default().add_columns(&fields(&[bad]), Version(1)).unwrap_err();
            assert!(error.message().contains("name of a column that Delta"), "{error}");
        }
        let error =
            table(&[("a", DataType::Int64)]).add_columns(&fields(&[("A", DataType::Int64)]), Version(2)).unwrap_err();
        assert!(error.message().contains("differ in more than case"), "{error}");
    }

    #[test]
    fn columns_fit_a_table_or_are_refused() {
        let known = table(&[("f", DataType::Float64), ("i", DataType::Int64), ("t", DataType::Utf8)]);
        let fit = |of: &[(&str, DataType)], given: bool| known.fit_fields(&fields(of), &|_| given);
        let fitted =
            fit(&[("f", DataType::Int64), ("i", DataType::Null), ("t", DataType::Int64), ("n", DataType::Null)], false);
        let types: Vec<DataType> = fitted.unwrap().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Float64, DataType::Int64, DataType::Utf8, DataType::Null]);
        let error = fit(&[("i", DataType::Utf8)], false).unwrap_err();
        assert_eq!(
            error.message(),
            "expected the type that the column `i` has in the Delta log since v3, long, found text"
        );
        assert!(fit(&[("f", DataType::Int64)], true).is_err(), "given types are not changed");
        let json: Fields = vec![json_field("t")].into();
        assert!(known.fit_fields(&json, &|_| false).is_ok(), "JSON is text");
    }
}
