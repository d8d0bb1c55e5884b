//! Avro schemas: JSON that says how the bytes of values follow each other, and what they mean.
//!
//! ```text
//! {"type": "record", "name": "visit", "namespace": "org.example", "fields": [
//!    {"name": "id",   "type": "long"},
//!    {"name": "at",   "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
//!    {"name": "next", "type": ["null", "visit"]}]}                          the record itself, by its name
//! ```
//!
//! A type that has a name is stated once and referred to afterwards, so references share it. A reference to a type
//! that is being stated makes that type recursive: its values can be skipped, but no column can hold them. A logical
//! type that is unknown, or that its type cannot have, means nothing, as the specification requires.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, TimeUnit};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Maximum nesting depth of a schema, which is that of the types of columns.
const MAX_DEPTH: usize = 64;

/// Maximum number of types in a schema.
const MAX_TYPES: usize = 1 << 20;

/// Maximum bytes of a value of fixed size.
const MAX_FIXED: u64 = 1 << 28;

/// What to do about a schema that is no Avro schema.
const DAMAGED: &str = "the file is damaged or was written by a faulty program; get it again from its source";

/// A type of values.
#[derive(Debug, Clone)]
pub(super) struct Type {
    /// How values are stored.
    pub(super) stored: Stored,
    /// What they mean, if that is more than how they are stored.
    pub(super) meaning: Option<Meaning>,
    /// Fewest bytes of a value. If it is 0, no value has any bytes.
    pub(super) least: u64,
}

/// How values are stored.
#[derive(Debug, Clone)]
pub(super) enum Stored {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    /// As many bytes.
    Fixed(usize),
    /// The number of a symbol.
    Enum(Arc<[String]>),
    Array(Arc<Type>),
    Map(Arc<Type>),
    Record(Arc<[SchemaMember]>),
    /// The number of a type, and a value of it.
    Union(Arc<[Type]>),
    /// A type around this one, by its full name.
    Again(Arc<str>),
}

/// A field of a record.
#[derive(Debug)]
pub(super) struct SchemaMember {
    pub(super) name: String,
    pub(super) of: Type,
}

/// Logical types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Decimal {
        digits: u32,
        scale: u32,
    },
    Uuid,
    Date,
    Time(TimeUnit),
    /// An instant, or a time without a zone.
    Timestamp(TimeUnit, bool),
    Duration,
}

/// The schema of a file.
#[derive(Debug)]
pub(super) struct AvroSchema {
    /// Type of its records.
    pub(super) root: Type,
    /// Recursive types by full name.
    pub(super) named: HashMap<String, Type>,
    /// Paths of values with a logical type that no column can have, and its name.
    pub(super) unknown: Vec<(String, String)>,
}

impl AvroSchema {
    /// Parses the JSON of a schema.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is no schema.
    pub(super) fn parse(json: &[u8]) -> Result<Self> {
        let value: Value = match serde_json::from_slice(json) {
            Ok(value) => value,
            // Some writers state the name of a type as it is.
            Err(_) if json.iter().all(u8::is_ascii_lowercase) && !json.is_empty() => {
                Value::String(String::from_utf8_lossy(json).into_owned())
            }
            Err(error) => {
                let message = "expected the schema of an Avro file as JSON, found something else";
                return Err(Error::input(message).with_hint(DAMAGED).with_cause(error));
            }
        };
        let mut parser = SchemaParser::default();
        let root = parser.parse_type(&value, "", "", MAX_DEPTH)?;
        let named = parser.named.into_iter().filter_map(|(name, found)| Some((name, found?))).collect();
        Ok(Self { root, named, unknown: parser.unknown })
    }
}

impl Type {
    fn new(stored: Stored) -> Self {
        let least = match &stored {
            Stored::Null => 0,
            Stored::Float => 4,
            Stored::Double => 8,
            Stored::Fixed(bytes) => *bytes as u64,
            Stored::Record(members) => members.iter().map(|member| member.of.least).fold(0, u64::saturating_add),
            Stored::Union(branches) => 1 + branches.iter().map(|branch| branch.least).min().unwrap_or(0),
            // The end of a recursion takes a union, an array or a map.
            _ => 1,
        };
        Self { stored, meaning: None, least }
    }
}

#[derive(Default)]
struct SchemaParser {
    /// Types that have a name; `None` while one is being stated.
    named: HashMap<String, Option<Type>>,
    unknown: Vec<(String, String)>,
    types: usize,
}

impl SchemaParser {
    /// Parses a type at a path of fields, in the namespace of what is around it.
    fn parse_type(&mut self, value: &Value, space: &str, path: &str, depth: usize) -> Result<Type> {
        self.types += 1;
        let Some(depth) = depth.checked_sub(1).filter(|_| self.types <= MAX_TYPES) else {
            let message = format!("expected a schema of at most {MAX_DEPTH} levels and {MAX_TYPES} types, found more");
            return Err(faulty(path, message));
        };
        match value {
            Value::String(name) => self.find_type(name, space, path),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.parse_type(branch, space, path, depth));
                let branches: Vec<Type> = branches.collect::<Result<_>>()?;
                match branches.iter().any(|branch| matches!(branch.stored, Stored::Union(_))) {
                    false if !branches.is_empty() => Ok(Type::new(Stored::Union(branches.into()))),
                    _ => Err(faulty(path, "expected a union of some types, found one of none or of unions".to_owned())),
                }
            }
            Value::Object(object) => match object.get("type") {
                Some(Value::String(kind)) => {
                    let found = self.parse_object(kind, object, space, path, depth)?;
                    Ok(self.with_meaning(found, object, path))
                }
                Some(inner @ (Value::Object(_) | Value::Array(_))) => self.parse_type(inner, space, path, depth),
                _ => Err(faulty(path, "expected an object with a type, found one without".to_owned())),
            },
            _ => Err(faulty(path, format!("expected a type, found `{}`", shortened(&value.to_string())))),
        }
    }

    /// Returns the type that a name means.
    fn find_type(&self, name: &str, space: &str, path: &str) -> Result<Type> {
        if let Some(stored) = primitive(name) {
            return Ok(Type::new(stored));
        }
        let of = |full: &str| match self.named.get(full)? {
            Some(found) => Some(found.clone()),
            None => Some(Type::new(Stored::Again(full.into()))),
        };
        let found = of(&full_name(name, space)).or_else(|| of(name));
        found.ok_or_else(|| faulty(path, format!("expected a type, found the unknown name `{}`", shortened(name))))
    }

    fn parse_object(
        &mut self,
        kind: &str,
        object: &Map<String, Value>,
        space: &str,
        path: &str,
        depth: usize,
    ) -> Result<Type> {
        let part = |key: &str| {
            object.get(key).ok_or_else(|| faulty(path, format!("expected `{key}` in the type {kind}, found none")))
        };
        Ok(Type::new(match kind {
            "array" => Stored::Array(Arc::new(self.parse_type(part("items")?, space, &format!("{path}[]"), depth)?)),
            "map" => Stored::Map(Arc::new(self.parse_type(part("values")?, space, &format!("{path}{{}}"), depth)?)),
            "record" | "error" => {
                let full = self.start_naming(object, space, path)?;
                let inner = full.rsplit_once('.').map_or("", |(space, _)| space);
                let members = self.parse_members(part("fields")?, inner, path, depth)?;
                return Ok(self.end_naming(full, Type::new(Stored::Record(members))));
            }
            "enum" => {
                let full = self.start_naming(object, space, path)?;
                let symbols = part("symbols")?.as_array().and_then(|symbols| {
                    symbols.iter().map(|symbol| symbol.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
                });
                let symbols = symbols
                    .ok_or_else(|| faulty(path, "expected a list of texts as symbols, found something else".into()))?;
                return Ok(self.end_naming(full, Type::new(Stored::Enum(symbols.into()))));
            }
            "fixed" => {
                let full = self.start_naming(object, space, path)?;
                let size = part("size")?.as_u64().filter(|size| *size <= MAX_FIXED);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let size =
                    size.ok_or_else(|| faulty(path, format!("expected a size of 0 to {MAX_FIXED}, found another")))?;
                return Ok(self.end_naming(full, Type::new(Stored::Fixed(size))));
            }
            _ => return self.find_type(kind, space, path),
        }))
    }

    fn parse_members(&mut self, fields: &Value, space: &str, path: &str, depth: usize) -> Result<Arc<[SchemaMember]>> {
        let fields = fields.as_array();
        let fields =
            fields.ok_or_else(|| faulty(path, "expected a list of fields, found something else".to_owned()))?;
        let member = |field: &Value| {
            let (name, of) = (field.get("name").and_then(Value::as_str), field.get("type"));
            let (Some(name), Some(of)) = (name, of) else {
                return Err(faulty(path, "expected a field with a name and a type, found one without".to_owned()));
            };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            Ok(SchemaMember { name: name.to_owned(), of: self.parse_type(of, space, &path, depth)? })
        };
        fields.iter().map(member).collect()
    }

    /// Notes the full name of a type that is stated here, and returns it.
    fn start_naming(&mut self, object: &Map<String, Value>, space: &str, path: &str) -> Result<String> {
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let name =
            text("name").ok_or_else(|| faulty(path, "expected a type with a name, found one without".to_owned()))?;
        let full = full_name(name, text("namespace").unwrap_or(space));
        match self.named.insert(full.clone(), None) {
            None => Ok(full),
            Some(_) => Err(faulty(path, format!("expected one type named `{}`, found two", shortened(&full)))),
        }
    }

    fn end_naming(&mut self, full: String, of: Type) -> Type {
        self.named.insert(full, Some(of.clone()));
        of
    }

    /// Adds the logical type that an object states.
    fn with_meaning(&mut self, mut of: Type, object: &Map<String, Value>, path: &str) -> Type {
        let Some(name) = object.get("logicalType").and_then(Value::as_str) else { return of };
        let number = |key: &str| object.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let found = match (name, &of.stored) {
            ("decimal", Stored::Bytes | Stored::Fixed(_)) => {
                let scale = if object.contains_key("scale") { number("scale") } else { Some(0) };
                decimal(&of.stored, number("precision"), scale)
            }
            // A text that is one stays as it is, so that it can be found as it is written.
            ("uuid", Stored::Fixed(16)) => Some(Meaning::Uuid),
            ("date", Stored::Int) => Some(Meaning::Date),
            ("time-millis", Stored::Int) => Some(Meaning::Time(TimeUnit::Millisecond)),
            ("time-micros", Stored::Long) => Some(Meaning::Time(TimeUnit::Microsecond)),
            ("duration", Stored::Fixed(12)) => Some(Meaning::Duration),
            (name, Stored::Long) => timestamp(name),
            _ => None,
        };
        if name == "big-decimal" {
            self.unknown.push((path.to_owned(), name.to_owned()));
        }
        of.meaning = found;
        of
    }
}

/// Returns the meaning of a decimal, unless the specification says that it is to be ignored.
fn decimal(stored: &Stored, digits: Option<u32>, scale: Option<u32>) -> Option<Meaning> {
    let (digits, scale) = (digits.filter(|digits| *digits > 0)?, scale?);
    let fits = match stored {
        // The most digits that so many bytes can always hold.
        Stored::Fixed(bytes) => f64::from(digits) <= (((*bytes * 8).saturating_sub(1)) as f64 * 2_f64.log10()).floor(),
        _ => true,
    };
    (scale <= digits && fits).then_some(Meaning::Decimal { digits, scale })
}

fn timestamp(name: &str) -> Option<Meaning> {
    let (local, unit) = match name.strip_prefix("local-") {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let unit = match unit {
        "timestamp-millis" => TimeUnit::Millisecond,
        "timestamp-micros" => TimeUnit::Microsecond,
        "timestamp-nanos" => TimeUnit::Nanosecond,
        _ => return None,
    };
    Some(Meaning::Timestamp(unit, !local))
}

fn primitive(name: &str) -> Option<Stored> {
    Some(match name {
        "null" => Stored::Null,
        "boolean" => Stored::Boolean,
        "int" => Stored::Int,
        "long" => Stored::Long,
        "float" => Stored::Float,
        "double" => Stored::Double,
        "bytes" => Stored::Bytes,
        "string" => Stored::Text,
        _ => return None,
    })
}

/// Returns a name with its namespace, unless it has one itself.
fn full_name(name: &str, space: &str) -> String {
    if name.contains('.') || space.is_empty() { name.to_owned() } else { format!("{space}.{name}") }
}

fn faulty(path: &str, message: String) -> Error {
    let error = Error::input(message).with_hint(DAMAGED);
    if path.is_empty() { error } else { error.in_column(path) }
}

/// Returns a text as messages show it.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Whether a decimal fits Arrow's type of 128 bits.
pub(super) fn is_small(digits: u32) -> bool {
    digits <= u32::from(DECIMAL128_MAX_PRECISION)
}
