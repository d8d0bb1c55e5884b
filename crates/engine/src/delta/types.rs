//! The JSON of schemas, and the names of types, in both directions.
//!
//! ```text
//! {"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{...}},...]}
//! type: "long" ... | {"type":"struct",...} | {"type":"array","elementType":...} | {"type":"map","keyType":...,...}
//! ```

use arrow::datatypes::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema::{TIMESTAMP, instant_type};

/// Maximum digits of a decimal.
const MAX_PRECISION: u8 = 38;

/// A struct: the columns of a table, or the fields of a nested column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StructType {
    #[serde(rename = "type", default)]
    kind: Struct,
    /// The columns, in order.
    pub fields: Vec<StructField>,
}

/// The word `struct`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Struct {
    #[default]
    #[serde(rename = "struct")]
    Struct,
}

/// A column of a table, or a field of a nested column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructField {
    /// Its name.
    pub name: String,
    /// Its type: a name, or an object for nested types.
    #[serde(rename = "type")]
    pub data_type: Value,
    /// Whether values may be missing.
    #[serde(default = "yes")]
    pub nullable: bool,
    /// What writers have stated about it.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

fn yes() -> bool {
    true
}

impl StructType {
    /// Creates the struct of these fields.
    pub fn new(fields: Vec<StructField>) -> Self {
        Self { kind: Struct::Struct, fields }
    }
}

/// Returns the Arrow type that values of a type with a plain name have; `None` for a name that is not known.
pub fn arrow_of_name(name: &str) -> Option<DataType> {
    Some(match name {
        "string" => DataType::Utf8,
        "long" => DataType::Int64,
        "integer" => DataType::Int32,
        "short" => DataType::Int16,
        "byte" => DataType::Int8,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "boolean" => DataType::Boolean,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        "timestamp" => instant_type(),
        "timestamp_ntz" => TIMESTAMP,
        // A column of which nothing but nulls is known; data files do not contain it.
        "void" => DataType::Null,
        // The default of both numbers is that of Hive.
        "decimal" => DataType::Decimal128(10, 0),
        _ => return parse_decimal_type(name),
    })
}

fn parse_decimal_type(name: &str) -> Option<DataType> {
    let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, scale): (u8, i8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    (1..=MAX_PRECISION).contains(&precision).then_some(())?;
    (0..=38).contains(&scale).then_some(DataType::Decimal128(precision, scale))
}

/// Returns the name of the type whose values a flat Arrow type holds; `None` if a table cannot have them.
pub fn name_of_arrow(data_type: &DataType) -> Option<String> {
    let name = match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 => "byte",
        DataType::Int16 => "short",
        DataType::Int32 => "integer",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Nanosecond, _) => return None,
        DataType::Timestamp(_, Some(_)) => "timestamp",
        DataType::Timestamp(_, None) => "timestamp_ntz",
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => {
            let scale = u8::try_from(*s).ok().filter(|scale| scale <= p && *p <= MAX_PRECISION)?;
            return Some(format!("decimal({p},{scale})"));
        }
        _ => return None,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_types() {
        for name in [
            "string",
            "long",
            "integer",
            "short",
            "byte",
            "float",
            "double",
            "boolean",
            "binary",
            "date",
            "timestamp",
            "timestamp_ntz",
            "decimal(7,2)",
            "decimal(38,38)",
        ] {
            let found = arrow_of_name(name).and_then(|data_type| name_of_arrow(&data_type));
            assert_eq!(found.as_deref(), Some(name));
        }
        assert_eq!(arrow_of_name("void").and_then(|data_type| name_of_arrow(&data_type)), None);
        for bad in ["decimal(39,2)", "decimal(0,0)", "variant", "interval"] {
            assert_eq!(arrow_of_name(bad), None, "{bad}");
        }
    }
}
