//! Text form of schemas: a file that lists columns, and names of types.
//!
//! ```text
//! {"columns": [{"name": "age", "type": "int64"}, {"name": "tags", "type": "list<text>"}]}
//!
//! type    null bool int8 .. int64 uint8 .. uint64 float16 float32 float64 date date_ms instant json
//!         text large_text binary large_binary fixed_binary(bytes)
//!         decimal(digits, digits after the point)      decimal32, decimal64, decimal256 for that width
//!         uuid enum bson variant<metadata: binary, value: binary>
//!         geometry geometry(system) geography geography(system) geography(system, edges)
//!         time(unit) time(unit, UTC) duration(unit)       interval is months, days and milliseconds, as in Parquet
//!         interval interval(year_month | day_time | month_day_nano)
//!         timestamp(unit) timestamp(unit, zone)        timestamp and instant are in us, instant is in UTC
//!         list<type> large_list<type> fixed_list<type, items> struct<name: type, ...> map<type, type>
//! unit    s ms us ns
//! system  a coordinate reference system as a JSON string, or null for longitude and latitude
//! edges   a JSON string: spherical, vincenty, thomas, andoyer, karney
//! name    letters, digits and _, or a JSON string
//! ```
//!
//! Printing produces text that parsing accepts. Types are in their plain form ([`plain_fields`](super::plain_fields)).

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit,
};
use serde::{Deserialize, Serialize};

use super::{
    INTERVAL, Logical, TIMESTAMP, instant_type, is_json, json_field, logical::as_stated, plain::map_of_fields,
};
use crate::error::{Error, Result};

/// Maximum nesting depth of types.
const MAX_DEPTH: usize = 64;

/// Types without parameters; the first name is printed, the others are aliases.
const SIMPLE: &[(&str, DataType)] = &[
    ("null", DataType::Null),
    ("bool", DataType::Boolean),
    ("int8", DataType::Int8),
    ("int16", DataType::Int16),
    ("int32", DataType::Int32),
    ("int64", DataType::Int64),
    ("int", DataType::Int64),
    ("uint8", DataType::UInt8),
    ("uint16", DataType::UInt16),
    ("uint32", DataType::UInt32),
    ("uint64", DataType::UInt64),
    ("float16", DataType::Float16),
    ("float32", DataType::Float32),
    ("float64", DataType::Float64),
    ("float", DataType::Float64),
    ("date", DataType::Date32),
    ("date_ms", DataType::Date64),
    ("text", DataType::Utf8),
    ("string", DataType::Utf8),
    ("large_text", DataType::LargeUtf8),
    ("binary", DataType::Binary),
    ("large_binary", DataType::LargeBinary),
    ("timestamp", TIMESTAMP),
];

/// Names that other tools have for types. They are read, and never written.
const OTHER_NAMES: &[(&str, DataType)] = &[
    ("str", DataType::Utf8),
    ("utf8", DataType::Utf8),
    ("varchar", DataType::Utf8),
    ("object", DataType::Utf8),
    ("integer", DataType::Int64),
    ("long", DataType::Int64),
    ("bigint", DataType::Int64),
    ("double", DataType::Float64),
    ("boolean", DataType::Boolean),
    ("bytes", DataType::Binary),
    ("blob", DataType::Binary),
    ("datetime", TIMESTAMP),
];

/// Name of the file beside shards whose format does not store the types of their rows.
pub const NAME: &str = "schema.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    columns: Vec<ColumnEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnEntry {
    name: String,
    #[serde(rename = "type")]
    data_type: String,
}

/// Parses a schema file.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming line or column, when it is not such JSON, a type is invalid, or a
/// name occurs twice.
pub fn parse(text: &str) -> Result<Fields> {
    let file: File = serde_json::from_str(text).map_err(|error| {
        Error::usage("expected a schema file, found something else")
            .at_line(error.line() as u64)
            .with_hint(r#"a schema looks like {"columns": [{"name": "age", "type": "int64"}]}"#)
            .with_cause(error)
    })?;
    fields_of(file.columns)
}

fn fields_of(columns: Vec<ColumnEntry>) -> Result<Fields> {
    let mut names = std::collections::HashSet::new();
    let mut fields: Vec<FieldRef> = Vec::with_capacity(columns.len());
    for ColumnEntry { name, data_type } in columns {
        let field = parse_type(&data_type).map_err(|e| e.in_column(name.as_str()))?;
        if !names.insert(name.clone()) {
            return Err(Error::usage("expected each column once, found it twice").in_column(name));
        }
        fields.push(Arc::new(field.with_name(name)));
    }
    Ok(fields.into())
}

/// Prints a schema file.
pub fn print_file(fields: &Fields) -> String {
    // Serializing two texts per column as JSON cannot fail.
    serde_json::to_string_pretty(&File { columns: columns_of(fields) }).unwrap_or_default()
}

fn columns_of(fields: &Fields) -> Vec<ColumnEntry> {
    fields.iter().map(|field| ColumnEntry { name: field.name().clone(), data_type: print_type(field) }).collect()
}

/// Columns of a log entry, for `#[serde(with)]`: the list of a schema file. A column without a type is `null`.
pub mod listed {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use super::{ColumnEntry, Fields, columns_of, fields_of};
    use crate::schema::bound::stored_types;

    /// Serializes columns.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(fields: &Option<Fields>, serializer: S) -> Result<S::Ok, S::Error> {
        fields.as_ref().map(columns_of).serialize(serializer)
    }

    /// Deserializes columns.
    ///
    /// # Errors
    /// If a type is invalid, or a name occurs twice.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Fields>, D::Error> {
        let columns = Option::<Vec<ColumnEntry>>::deserialize(deserializer)?;
        let fields = columns.map(fields_of).transpose().map_err(D::Error::custom)?;
        Ok(fields.map(|fields| stored_types(&fields)))
    }
}

/// Parses a type. Returns a nullable field without a name, because JSON text is a type with a metadata mark.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) with the position in the text, counted in characters from 1.
pub fn parse_type(text: &str) -> Result<Field> {
    let mut parser = TypeParser { text, at: 0 };
    let field = parser.field("", MAX_DEPTH)?;
    parser.skip_spaces();
    if parser.at < text.len() { Err(parser.expected_error("the end of the type")) } else { Ok(field) }
}

/// Prints the type of a field.
pub fn print_type(field: &Field) -> String {
    if is_json(field) {
        return "json".to_owned();
    }
    let data_type = field.data_type();
    if let Some(text) = print_logical(field) {
        return text;
    }
    if let Some((name, _)) = SIMPLE.iter().find(|(name, simple)| simple == data_type && *name != "timestamp") {
        return (*name).to_owned();
    }
    match data_type {
        DataType::Utf8View => "text".to_owned(),
        DataType::BinaryView => "binary".to_owned(),
        DataType::FixedSizeBinary(width) => format!("fixed_binary({width})"),
        DataType::Decimal32(p, s) => format!("decimal32({p}, {s})"),
        DataType::Decimal64(p, s) => format!("decimal64({p}, {s})"),
        DataType::Decimal128(p, s) => format!("decimal({p}, {s})"),
        DataType::Decimal256(p, s) if *p > DECIMAL128_MAX_PRECISION => format!("decimal({p}, {s})"),
        DataType::Decimal256(p, s) => format!("decimal256({p}, {s})"),
        DataType::Time32(unit) | DataType::Time64(unit) => format!("time({})", unit_name(*unit)),
        DataType::Duration(unit) => format!("duration({})", unit_name(*unit)),
        DataType::Interval(IntervalUnit::YearMonth) => "interval(year_month)".to_owned(),
        DataType::Interval(IntervalUnit::DayTime) => "interval(day_time)".to_owned(),
        DataType::Interval(IntervalUnit::MonthDayNano) => "interval(month_day_nano)".to_owned(),
        DataType::Timestamp(..) if *data_type == instant_type() => "instant".to_owned(),
        DataType::Timestamp(unit, None) => format!("timestamp({})", unit_name(*unit)),
        DataType::Timestamp(unit, Some(zone)) => format!("timestamp({}, {})", unit_name(*unit), printed_name(zone)),
        DataType::List(item) | DataType::ListView(item) => format!("list<{}>", print_type(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => format!("large_list<{}>", print_type(item)),
        DataType::FixedSizeList(item, width) => format!("fixed_list<{}, {width}>", print_type(item)),
        DataType::Struct(fields) => format!("struct<{}>", print_fields(fields)),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                format!("map<{}, {}>", print_type(&pair[0]), print_type(&pair[1]))
            }
            other => other.to_string(),
        },
        DataType::Dictionary(_, value) => print_type(&Field::new("", value.as_ref().clone(), true)),
        DataType::RunEndEncoded(_, value) => print_type(value),
        other => other.to_string(),
    }
}

/// Prints the type of a field whose values have a logical type.
fn print_logical(field: &Field) -> Option<String> {
    let text = |value: &Option<String>| serde_json::Value::from(value.clone()).to_string();
    Some(match (Logical::from_field(field)?, field.data_type()) {
        (Logical::Uuid, _) => "uuid".to_owned(),
        (Logical::Interval, _) => "interval".to_owned(),
        (Logical::Enum, _) => "enum".to_owned(),
        (Logical::Bson, _) => "bson".to_owned(),
        (Logical::Geometry { crs: None }, _) => "geometry".to_owned(),
        (Logical::Geometry { crs }, _) => format!("geometry({})", text(&crs)),
        (Logical::Geography { crs: None, edges: None }, _) => "geography".to_owned(),
        (Logical::Geography { crs, edges: None }, _) => format!("geography({})", text(&crs)),
        (Logical::Geography { crs, edges }, _) => format!("geography({}, {})", text(&crs), text(&edges)),
        (Logical::UtcTime, DataType::Time32(unit) | DataType::Time64(unit)) => {
            format!("time({}, UTC)", unit_name(*unit))
        }
        (Logical::Variant, DataType::Struct(parts)) => format!("variant<{}>", print_fields(parts)),
        _ => return None,
    })
}

fn print_fields(fields: &Fields) -> String {
    let fields = fields.iter().map(|field| format!("{}: {}", printed_name(field.name()), print_type(field)));
    fields.collect::<Vec<_>>().join(", ")
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn printed_name(name: &str) -> String {
    if !name.is_empty() && name.bytes().all(is_name) {
        return name.to_owned();
    }
    serde_json::Value::from(name).to_string()
}

struct TypeParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TypeParser<'a> {
    fn remaining_text(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.remaining_text().trim_start().len();
    }

    fn expected_error(&self, what: &str) -> Error {
        let found = self.remaining_text().chars().next().map_or("the end".to_owned(), |c| format!("`{c}`"));
        let place = self.text[..self.at].chars().count() + 1;
        Error::usage(format!("expected {what} at character {place} of type `{}`, found {found}", self.text)).with_hint(
            "examples of types: int64, text, timestamp(us), decimal(10, 2), list<text>, struct<a: int8, b: date>",
        )
    }

    fn require_symbol(&mut self, symbol: char) -> Result<()> {
        if self.accept_symbol(symbol) { Ok(()) } else { Err(self.expected_error(&format!("`{symbol}`"))) }
    }

    fn accept_symbol(&mut self, symbol: char) -> bool {
        self.skip_spaces();
        let found = self.remaining_text().starts_with(symbol);
        self.at += if found { symbol.len_utf8() } else { 0 };
        found
    }

    /// Parses a word of letters, digits and `_`; empty if there is none.
    fn parse_word(&mut self) -> &'a str {
        self.skip_spaces();
        let rest = self.remaining_text();
        let length = rest.bytes().take_while(|&byte| is_name(byte)).count();
        self.at += length;
        &rest[..length]
    }

    /// Parses a word, or any text as a JSON string.
    fn parse_name(&mut self) -> Result<String> {
        self.skip_spaces();
        if !self.remaining_text().starts_with('"') {
            let word = self.parse_word();
            return if word.is_empty() { Err(self.expected_error("a name")) } else { Ok(word.to_owned()) };
        }
        let mut values = serde_json::Deserializer::from_str(self.remaining_text()).into_iter::<String>();
        let Some(Ok(name)) = values.next() else { return Err(self.expected_error("a name as a JSON string")) };
        self.at += values.byte_offset();
        Ok(name)
    }

    fn number<N: std::str::FromStr>(&mut self, what: &str) -> Result<N> {
        self.skip_spaces();
        let start = self.at;
        self.at += usize::from(self.remaining_text().starts_with('-'));
        self.parse_word();
        let number = self.text[start..self.at].parse();
        number.map_err(|_| {
            self.at = start;
            self.expected_error(what)
        })
    }

    fn parse_unit(&mut self) -> Result<TimeUnit> {
        let start = self.at;
        Ok(match self.parse_word() {
            "s" => TimeUnit::Second,
            "ms" => TimeUnit::Millisecond,
            "us" => TimeUnit::Microsecond,
            "ns" => TimeUnit::Nanosecond,
            _ => {
                self.at = start;
                return Err(self.expected_error("one of s, ms, us, ns"));
            }
        })
    }

    fn field(&mut self, name: &str, depth: usize) -> Result<Field> {
        let Some(depth) = depth.checked_sub(1) else { return Err(self.expected_error("fewer levels of types")) };
        self.skip_spaces();
        let start = self.at;
        let word = self.parse_word();
        let data_type = match word {
            "json" => return Ok(json_field(name)),
            "null" => return Ok(as_stated(Field::new(name, DataType::Null, true))),
            "uuid" | "enum" | "bson" | "variant" | "geometry" | "geography" => {
                let (logical, stored) = self.logical(word, depth)?;
                return Ok(logical.mark_field(Field::new(name, stored, true)));
            }
            "timestamp" if self.accept_symbol('(') => self.parse_timestamp()?,
            "instant" => instant_type(),
            "interval" if !self.remaining_text().trim_start().starts_with('(') => {
                return Ok(Logical::Interval.mark_field(Field::new(name, INTERVAL, true)));
            }
            "fixed_binary" | "decimal" | "decimal32" | "decimal64" | "decimal256" | "time" | "duration"
            | "interval" => {
                self.require_symbol('(')?;
                let data_type = self.parameters(word)?;
                let in_utc = word == "time" && self.accept_symbol(',');
                if in_utc {
                    self.parse_utc()?;
                }
                self.require_symbol(')')?;
                if in_utc {
                    return Ok(Logical::UtcTime.mark_field(Field::new(name, data_type, true)));
                }
                data_type
            }
            "list" | "large_list" | "fixed_list" | "struct" | "map" => {
                self.require_symbol('<')?;
                let data_type = self.nested(word, depth)?;
                self.require_symbol('>')?;
                data_type
            }
            _ => match SIMPLE.iter().chain(OTHER_NAMES).find(|(name, _)| *name == word) {
                Some((_, simple)) => simple.clone(),
                None => {
                    self.at = start;
                    return Err(self.expected_error("a type"));
                }
            },
        };
        Ok(Field::new(name, data_type, true))
    }

    /// Parses the parameters of a logical type; returns it with its storage type.
    fn logical(&mut self, word: &str, depth: usize) -> Result<(Logical, DataType)> {
        Ok(match word {
            "uuid" => (Logical::Uuid, DataType::FixedSizeBinary(16)),
            "enum" => (Logical::Enum, DataType::Binary),
            "bson" => (Logical::Bson, DataType::Binary),
            "variant" => {
                self.require_symbol('<')?;
                let parts = DataType::Struct(self.fields(depth)?);
                if !Logical::Variant.fits_type(&parts) {
                    return Err(self.expected_error("a field `metadata` before the end"));
                }
                self.require_symbol('>')?;
                (Logical::Variant, parts)
            }
            _ => {
                let (mut crs, mut edges) = (None, None);
                if self.accept_symbol('(') {
                    crs = self.text_or_null()?;
                    edges = if word == "geography" && self.accept_symbol(',') { self.text_or_null()? } else { None };
                    self.require_symbol(')')?;
                }
                let shape =
                    if word == "geometry" { Logical::Geometry { crs } } else { Logical::Geography { crs, edges } };
                (shape, DataType::Binary)
            }
        })
    }

    fn text_or_null(&mut self) -> Result<Option<String>> {
        self.skip_spaces();
        if let Some(rest) = self.remaining_text().strip_prefix("null") {
            self.at = self.text.len() - rest.len();
            return Ok(None);
        }
        if self.remaining_text().starts_with('"') {
            self.parse_name().map(Some)
        } else {
            Err(self.expected_error("a JSON string or null"))
        }
    }

    fn parse_utc(&mut self) -> Result<()> {
        self.skip_spaces();
        let start = self.at;
        if self.parse_word() == "UTC" {
            return Ok(());
        }
        self.at = start;
        Err(self.expected_error("`UTC`"))
    }

    fn parse_timestamp(&mut self) -> Result<DataType> {
        let unit = self.parse_unit()?;
        let zone = if self.accept_symbol(',') { Some(self.parse_zone()?) } else { None };
        self.require_symbol(')')?;
        Ok(DataType::Timestamp(unit, zone.map(Into::into)))
    }

    /// Parses a time zone: a JSON string, or everything up to the bracket.
    fn parse_zone(&mut self) -> Result<String> {
        self.skip_spaces();
        if self.remaining_text().starts_with('"') {
            return self.parse_name();
        }
        let zone = self.remaining_text().split(')').next().unwrap_or_default();
        self.at += zone.len();
        if zone.trim().is_empty() { Err(self.expected_error("a time zone")) } else { Ok(zone.trim().to_owned()) }
    }

    fn parameters(&mut self, word: &str) -> Result<DataType> {
        Ok(match word {
            "fixed_binary" => {
                let width = self.number::<u32>("a number of bytes")?;
                DataType::FixedSizeBinary(
                    i32::try_from(width).map_err(|_| self.expected_error("a smaller number of bytes"))?,
                )
            }
            "time" => match self.parse_unit()? {
                unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
                unit => DataType::Time64(unit),
            },
            "duration" => DataType::Duration(self.parse_unit()?),
            "interval" => DataType::Interval(match self.parse_word() {
                "year_month" => IntervalUnit::YearMonth,
                "day_time" => IntervalUnit::DayTime,
                "month_day_nano" => IntervalUnit::MonthDayNano,
                _ => return Err(self.expected_error("one of year_month, day_time, month_day_nano")),
            }),
            _ => self.decimal(word)?,
        })
    }

    fn decimal(&mut self, word: &str) -> Result<DataType> {
        let precision = self.number::<u8>("a number of digits")?;
        self.require_symbol(',')?;
        let scale = self.number::<i8>("a number of digits after the point")?;
        let (most, make): (u8, fn(u8, i8) -> DataType) = match word {
            "decimal32" => (9, DataType::Decimal32),
            "decimal64" => (18, DataType::Decimal64),
            "decimal" if precision <= DECIMAL128_MAX_PRECISION => (DECIMAL128_MAX_PRECISION, DataType::Decimal128),
            _ => (DECIMAL256_MAX_PRECISION, DataType::Decimal256),
        };
        if precision == 0 || precision > most || i16::from(scale) > i16::from(precision) {
            return Err(self.expected_error(&format!("1 to {most} digits, and at most as many decimal places")));
        }
        Ok(make(precision, scale))
    }

    fn nested(&mut self, word: &str, depth: usize) -> Result<DataType> {
        Ok(match word {
            "list" => DataType::List(Arc::new(self.field("item", depth)?)),
            "large_list" => DataType::LargeList(Arc::new(self.field("item", depth)?)),
            "fixed_list" => {
                let item = self.field("item", depth)?;
                self.require_symbol(',')?;
                let items = self.number::<u32>("a number of items")?;
                let items = i32::try_from(items).map_err(|_| self.expected_error("a smaller number of items"))?;
                DataType::FixedSizeList(Arc::new(item), items)
            }
            "map" => {
                let key = self.field("key", depth)?;
                self.require_symbol(',')?;
                map_of_fields(key, self.field("value", depth)?)
            }
            _ => DataType::Struct(self.fields(depth)?),
        })
    }

    fn fields(&mut self, depth: usize) -> Result<Fields> {
        let mut fields: Vec<Field> = Vec::new();
        self.skip_spaces();
        while !self.remaining_text().starts_with('>') {
            if !fields.is_empty() {
                self.require_symbol(',')?;
            }
            let name = self.parse_name()?;
            if fields.iter().any(|field| field.name() == &name) {
                return Err(self.expected_error(&format!("distinct field names (`{name}` occurs twice)")));
            }
            self.require_symbol(':')?;
            fields.push(self.field(&name, depth)?);
            self.skip_spaces();
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Kind;

    #[test]
    fn printed_files_parse_to_the_same_schema() {
        let text = r#"{"columns": [{"name": "age", "type": "int"}, {"name": "tags", "type": "list < text >"},
            {"name": "at", "type": "timestamp(ns, Europe/Berlin)"}, {"name": "doc", "type": "json"}]}"#;
        let fields = parse(text).unwrap();
        assert_eq!(fields[0].data_type(), &DataType::Int64);
        assert_eq!(print_type(&fields[1]), "list<text>");
        assert!(is_json(&fields[3]));
        assert_eq!(parse(&print_file(&fields)).unwrap(), fields);
    }

    #[test]
    fn errors_state_column_and_position() {
        let error = parse(r#"{"columns": [{"name": "a", "type": "list<itn8>"}]}"#).unwrap_err();
        assert_eq!((error.kind(), error.place().column.as_deref()), (Kind::Usage, Some("a")));
        assert!(error.message().contains("a type at character 6 of type `list<itn8>`, found `i`"), "{error}");
        let twice = r#"{"columns": [{"name": "a", "type": "bool"}, {"name": "a", "type": "bool"}]}"#;
        assert!(parse(twice).unwrap_err().message().contains("twice"));
        assert_eq!(parse("{\n\"rows\": []}").unwrap_err().place().line, Some(2));
        for text in [
            "",
            "list",
            "list<",
            "list<text",
            "text x",
            "decimal(0, 0)",
            "decimal(5, 6)",
            "decimal(77, 0)",
            "decimal32(10, 0)",
            "fixed_binary(-1)",
            "time(m)",
            "time(ms, CET)",
            "geometry(x)",
            "variant<value: binary>",
            "struct<a: int8, a: int8>",
            "struct<a int8>",
            "map<text>",
            "\u{e9}",
        ] {
            assert_eq!(parse_type(text).unwrap_err().kind(), Kind::Usage, "{text}");
        }
        assert!(parse_type(&"list<".repeat(100_000)).is_err());
    }

    fn types() -> impl Strategy<Value = Field> {
        let unit = || {
            prop::sample::select(vec![
                TimeUnit::Second,
                TimeUnit::Millisecond,
                TimeUnit::Microsecond,
                TimeUnit::Nanosecond,
            ])
        };
        let plain = |data_type| Field::new("", data_type, true);
        let leaf = prop_oneof![
            prop::sample::select(SIMPLE).prop_map(move |(_, simple)| as_stated(plain(simple.clone()))),
            Just(json_field("")),
            prop::sample::select(vec![
                "uuid",
                "enum",
                "bson",
                "variant<metadata: binary, value: binary>",
                "time(us, UTC)",
                "geometry",
                "geometry(\"EPSG:3857\")",
                "geography(null, \"karney\")",
                "geography(\"{\\\"id\\\": 1}\")",
            ])
            .prop_map(|text| parse_type(text).unwrap()),
            (1..=76_u8, any::<bool>()).prop_map(move |(p, wide)| match p {
                39.. => plain(DataType::Decimal256(p, 3)),
                3.. if wide => plain(DataType::Decimal256(p, -3)),
                p => plain(DataType::Decimal128(p, 1)),
            }),
            (0..100_i32).prop_map(move |width| plain(DataType::FixedSizeBinary(width))),
            unit().prop_map(move |unit| plain(DataType::Duration(unit))),
            (unit(), prop::option::of("[A-Za-z/+0-9:\") ]{1,8}"))
                .prop_map(move |(unit, zone)| plain(DataType::Timestamp(unit, zone.map(Into::into)))),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            let item = inner.clone().prop_map(|field| Arc::new(field.with_name("item")));
            prop_oneof![
                item.clone().prop_map(move |item| plain(DataType::List(item))),
                (item, 0..9_i32).prop_map(move |(item, n)| plain(DataType::FixedSizeList(item, n))),
                prop::collection::btree_map(".{0,4}", inner.clone(), 0..4).prop_map(move |fields| {
                    let fields = fields.into_iter().map(|(name, field)| field.with_name(name));
                    plain(DataType::Struct(fields.collect()))
                }),
                inner.prop_map(move |value| plain(map_of_fields(plain(DataType::Utf8), value))),
            ]
        })
    }

    proptest! {
        #[test]
        fn printed_types_parse_to_the_same_type(field in types()) {
            let text = print_type(&field);
            prop_assert_eq!(parse_type(&text).unwrap(), field, "{}", text);
        }

        #[test]
        fn arbitrary_text_is_parsed_or_rejected(text in "[a-z0-9<>(),: \"_]{0,30}") {
            let _ = parse_type(&text);
        }
    }
}
