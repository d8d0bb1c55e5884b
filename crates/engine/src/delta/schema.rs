//! The schema of a Delta table as Arrow's, and the values of its partition columns.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, BinaryArray, StringArray, new_null_array},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, Fields},
};
use serde_json::Value;

use super::{
    actions::Metadata,
    protocol::{EXPORT, Mapping},
    types::{StructField, StructType, arrow_of_name},
};
use crate::{
    error::{Error, Result},
    schema::{map_of, plain_fields},
};

/// Key of a field id in the metadata of Arrow's fields.
pub(super) const FIELD_ID: &str = "PARQUET:field_id";

/// Columns of a table.
#[derive(Debug, Clone)]
pub(super) struct TableSchema {
    /// The columns, in their order.
    pub(super) columns: Vec<Column>,
    /// For each column, whether files do not contain it, because all their rows have one value.
    pub(super) is_partition: Vec<bool>,
    /// The columns as Arrow's.
    pub(super) fields: Fields,
    pub(super) mapping: Mapping,
}

/// A column, or a field of a struct.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    /// Name in data files.
    pub(super) physical: String,
    /// Field id in data files.
    pub(super) id: Option<i64>,
    pub(super) shape: Shape,
}

/// Type of a column.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Leaf(DataType),
    Struct(Vec<Column>),
    List(Box<Self>),
    Map(Box<Self>, Box<Self>),
}

impl TableSchema {
    /// Reads the schema of a table.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is damaged, [`Kind::Usage`](crate::error::Kind::Usage) if it
    /// has a type that cannot be read.
    pub(super) fn read(metadata: &Metadata, mapping: Mapping) -> Result<Self> {
        let damaged =
            |e: serde_json::Error| Error::input("expected the schema of a Delta table, found other JSON").with_cause(e);
        let text = metadata.schema_string.as_deref().ok_or_else(|| {
            Error::input("expected a version of the Delta table that has a schema, found one without")
        })?;
        let root: StructType = serde_json::from_str(text).map_err(damaged)?;
        let columns = columns_of(root, mapping)?;
        let fields: Fields = columns.iter().map(Column::to_field).collect();
        let mut names = HashSet::new();
        if let Some(twice) = columns.iter().find(|column| !names.insert(column.name.as_str())) {
            return Err(Error::input(format!("expected distinct columns, found `{}` twice", twice.name)));
        }
        let fields = plain_fields(&fields)?;
        for name in &metadata.partition_columns {
            let column = columns.iter().find(|column| column.name == *name);
            if !column.is_some_and(|column| matches!(column.shape, Shape::Leaf(_))) {
                return Err(Error::input("expected partition columns that the schema has, found another")
                    .in_column(name.clone()));
            }
        }
        let is_partition = columns.iter().map(|column| metadata.partition_columns.contains(&column.name)).collect();
        Ok(Self { columns, is_partition, fields, mapping })
    }

    /// Returns the columns of data files: by their physical names, with their field ids if columns are mapped.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) for a nested field without a known type, which no file can have.
    pub(super) fn file_fields(&self) -> Result<Fields> {
        self.stored_columns().map(|column| file_field(column, self.mapping)).collect()
    }

    /// Returns the same fields by their logical names.
    ///
    /// # Errors
    /// As [`Self::file_fields`].
    pub(super) fn named_file_fields(&self) -> Result<Fields> {
        self.stored_columns().map(|column| Ok(file_field(column, self.mapping)?.with_name(&column.name))).collect()
    }

    /// Returns the columns of data files.
    fn stored_columns(&self) -> impl Iterator<Item = &Column> {
        let is_void = |column: &Column| matches!(column.shape, Shape::Leaf(DataType::Null));
        let columns = self.columns.iter().zip(&self.is_partition);
        columns.filter(move |(column, is_partition)| !**is_partition && !is_void(column)).map(|(column, _)| column)
    }

    /// Returns the physical paths of the columns, and of those within structs, that statistics are kept of: those of
    /// these names, or the first ones.
    pub(super) fn stats_columns(&self, names: Option<&[String]>, first: usize) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for column in self.stored_columns() {
            leaf_paths(column, &mut Vec::new(), &mut Vec::new(), &mut all);
        }
        let is_within = |logical: &str, name: &String| {
            logical.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let is_wanted = |logical: &str| names.is_none_or(|names| names.iter().any(|name| is_within(logical, name)));
        let count = if names.is_some() { usize::MAX } else { first };
        all.into_iter()
            .filter(|(logical, _)| is_wanted(&logical.join(".")))
            .map(|(_, physical)| physical)
            .take(count)
            .collect()
    }

    /// Returns the types of the columns of data files that statistics may have: those within structs have the names of
    /// all levels.
    pub(super) fn leaf_types(&self) -> HashMap<Vec<String>, DataType> {
        let mut out = HashMap::new();
        leaf_types(&self.columns, &mut Vec::new(), &mut out);
        out
    }

    /// Returns the value of a partition column as an array of one.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if the text is no value of the column's type.
    pub(super) fn partition_value(&self, column: usize, text: Option<&str>) -> Result<ArrayRef> {
        let (field, column) = (&self.fields[column], &self.columns[column]);
        // Writers state a missing value as an empty text, too.
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(new_null_array(field.data_type(), 1)) };
        let wrong = || {
            Error::input(format!("expected a partition value of type {}, found `{text}`", field.data_type()))
                .in_column(column.name.clone())
        };
        let texts = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
        let value = match field.data_type() {
            DataType::Utf8 => return Ok(texts(text)),
            DataType::Binary => return Ok(Arc::new(BinaryArray::from(vec![text.as_bytes()]))),
            _ => texts(text),
        };
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let cast =
            |value: &ArrayRef, to: &DataType| cast_with_options(value, to, &options).map_err(|e| wrong().with_cause(e));
        match field.data_type() {
            // Without a zone in the text, it is in UTC. The cast of text knows zones only as offsets.
            DataType::Timestamp(unit, Some(_)) => {
                cast(&cast(&value, &DataType::Timestamp(*unit, Some("+00:00".into())))?, field.data_type())
            }
            to => cast(&value, to),
        }
    }
}

fn file_field(column: &Column, mapping: Mapping) -> Result<Field> {
    let data_type = file_type(&column.shape, mapping).map_err(|e| e.in_column(column.name.clone()))?;
    let field = Field::new(&column.physical, data_type, true);
    Ok(match column.id.filter(|_| mapping != Mapping::None) {
        Some(id) => field.with_metadata(HashMap::from([(FIELD_ID.to_owned(), id.to_string())])),
        None => field,
    })
}

fn file_type(shape: &Shape, mapping: Mapping) -> Result<DataType> {
    Ok(match shape {
        Shape::Leaf(DataType::Null) => return Err(unsupported_type_error("void")),
        Shape::Leaf(data_type) => data_type.clone(),
        Shape::Struct(columns) => {
            DataType::Struct(columns.iter().map(|column| file_field(column, mapping)).collect::<Result<_>>()?)
        }
        Shape::List(item) => DataType::List(Arc::new(Field::new("element", file_type(item, mapping)?, true))),
        Shape::Map(key, value) => map_of(file_type(key, mapping)?, file_type(value, mapping)?),
    })
}

fn leaf_types(columns: &[Column], above: &mut Vec<String>, out: &mut HashMap<Vec<String>, DataType>) {
    for column in columns {
        above.push(column.physical.clone());
        match &column.shape {
            Shape::Leaf(data_type) => _ = out.insert(above.clone(), data_type.clone()),
            Shape::Struct(columns) => leaf_types(columns, above, out),
            // Their elements have no statistics, but those of nulls.
            shape => _ = out.insert(above.clone(), shape.data_type()),
        }
        above.pop();
    }
}

/// Collects the logical and the physical path of a column, or of those within it.
fn leaf_paths(
    column: &Column,
    logical: &mut Vec<String>,
    physical: &mut Vec<String>,
    out: &mut Vec<(Vec<String>, Vec<String>)>,
) {
    logical.push(column.name.clone());
    physical.push(column.physical.clone());
    match &column.shape {
        Shape::Struct(columns) => columns.iter().for_each(|column| leaf_paths(column, logical, physical, out)),
        _ => out.push((logical.clone(), physical.clone())),
    }
    logical.pop();
    physical.pop();
}

fn columns_of(root: StructType, mapping: Mapping) -> Result<Vec<Column>> {
    let column = |field: StructField| {
        let StructField { name, data_type, metadata, .. } = field;
        let shape = shape_of(data_type, mapping)
            .map_err(|e| if e.place().column.is_some() { e } else { e.in_column(name.clone()) })?;
        let id = metadata.get("delta.columnMapping.id").and_then(Value::as_i64);
        let physical = metadata.get("delta.columnMapping.physicalName").and_then(Value::as_str);
        let physical = match (mapping, physical) {
            (Mapping::None, _) => name.clone(),
            (_, Some(physical)) => physical.to_owned(),
            (_, None) => {
                return Err(Error::input("expected the physical name of a mapped column, found none").in_column(name));
            }
        };
        Ok(Column { name, physical, id, shape })
    };
    root.fields.into_iter().map(column).collect()
}

fn shape_of(data_type: Value, mapping: Mapping) -> Result<Shape> {
    let mut object = match data_type {
        Value::String(name) => {
            return arrow_of_name(&name).map(Shape::Leaf).ok_or_else(|| unsupported_type_error(&name));
        }
        Value::Object(object) => object,
        other => return Err(Error::input(format!("expected a type, found {other}"))),
    };
    let mut part = |name: &str| object.remove(name).unwrap_or(Value::Null);
    match part("type").as_str() {
        Some("struct") => {
            let fields = serde_json::from_value(part("fields"))
                .map_err(|e| Error::input("expected the fields of a struct, found other JSON").with_cause(e))?;
            Ok(Shape::Struct(columns_of(StructType::new(fields), mapping)?))
        }
        Some("array") => Ok(Shape::List(Box::new(shape_of(part("elementType"), mapping)?))),
        Some("map") => {
            let (key, value) = (shape_of(part("keyType"), mapping)?, shape_of(part("valueType"), mapping)?);
            Ok(Shape::Map(Box::new(key), Box::new(value)))
        }
        other => Err(unsupported_type_error(other.unwrap_or("none"))),
    }
}

fn unsupported_type_error(name: &str) -> Error {
    Error::usage(format!("expected a column of a supported type, found `{name}`")).with_hint(EXPORT)
}

/// Returns the Arrow type of values of a type.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if the JSON is no type, [`Kind::Usage`](crate::error::Kind::Usage) for a
/// type that cannot be read.
pub fn arrow_type(data_type: &Value) -> Result<DataType> {
    shape_of(data_type.clone(), Mapping::None).map(|shape| shape.data_type())
}

impl Column {
    fn to_field(&self) -> Field {
        Field::new(&self.name, self.shape.data_type(), true)
    }
}

impl Shape {
    fn data_type(&self) -> DataType {
        match self {
            Self::Leaf(data_type) => data_type.clone(),
            Self::Struct(columns) => DataType::Struct(columns.iter().map(Column::to_field).collect()),
            Self::List(item) => DataType::List(Arc::new(Field::new("item", item.data_type(), true))),
            Self::Map(key, value) => map_of(key.data_type(), value.data_type()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{delta::actions::FileFormat, record::json::text_of, schema};

    fn schema_of(types: &[&str], partition: &[&str]) -> Result<TableSchema> {
        let fields: Vec<String> =
            types.iter().enumerate().map(|(i, t)| format!(r#"{{"name":"c{i}","type":{t},"metadata":{{}}}}"#)).collect();
        let metadata = Metadata {
            id: String::new(),
            schema_string: Some(format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","))),
            partition_columns: partition.iter().map(|name| (*name).to_owned()).collect(),
            format: FileFormat::default(),
            configuration: std::collections::BTreeMap::new(),
            created_time: None,
        };
        TableSchema::read(&metadata, Mapping::None)
    }

    #[test]
    fn types_are_those_of_arrow() {
        let list = r#"{"type":"array","elementType":{"type":"struct","fields":[{"name":"x","type":"byte"}]},"containsNull":true}"#;
        let map = r#"{"type":"map","keyType":"string","valueType":"decimal(7,2)","valueContainsNull":false}"#;
        let schema = schema_of(&["\"long\"", "\"timestamp\"", list, map, "\"void\""], &[]).unwrap();
        let types: Vec<String> = schema.fields.iter().map(|f| schema::file::print_type(f)).collect();
        assert_eq!(types[..2], ["int64", "instant"]);
        assert_eq!(types[2], "list<struct<x: int8>>");
        assert_eq!(types[3], "map<text, decimal(7, 2)>");
        for bad in ["\"variant\"", "\"geometry(4326)\"", "\"interval\"", "\"decimal(77,1)\"", "7", "{\"type\":\"udt\"}"]
        {
            let error = schema_of(&[bad], &[]).err().unwrap();
            assert_eq!(error.place().column.as_deref(), Some("c0"), "{bad}");
        }
        assert!(schema_of(&["\"long\""], &["other"]).is_err());
    }

    #[test]
    fn partition_values_have_the_type_of_their_column() {
        for (data_type, text, expected) in [
            ("\"integer\"", "-7", "-7"),
            ("\"boolean\"", "true", "true"),
            ("\"date\"", "2026-01-02", "2026-01-02"),
            ("\"timestamp\"", "2026-01-02 03:04:05.000006", "2026-01-02T03:04:05.000006Z"),
            ("\"timestamp\"", "2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:05.000006Z"),
            ("\"timestamp\"", "2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z"),
            ("\"timestamp_ntz\"", "2026-01-02 03:04:05.5", "2026-01-02T03:04:05.500"),
            ("\"decimal(5,2)\"", "1.50", "1.50"),
            ("\"string\"", "a/b", "a/b"),
            ("\"binary\"", "a", "YQ=="),
        ] {
            let schema = schema_of(&[data_type], &["c0"]).unwrap();
            let value = schema.partition_value(0, Some(text)).unwrap();
            assert_eq!(
                text_of(&value, 0).as_deref().map(|t| t.trim_end_matches('0')),
                Some(expected.trim_end_matches('0')),
                "{data_type}"
            );
            assert!(schema.partition_value(0, None).unwrap().is_null(0));
        }
        let schema = schema_of(&["\"integer\""], &["c0"]).unwrap();
        assert!(schema.partition_value(0, Some("many")).is_err());
    }
}
