//! Type inference of columns, in one walk over each record and without a document tree.
//!
//! A [`SeenType`] widens from `Nothing` towards `Json` and never narrows:
//!
//! ```text
//! Nothing -> Boolean | Integer -> Float | ... -> Text      different scalars become text
//! Nothing -> List(Seen) | Object(name -> Seen)             their contents widen in the same way
//! anything with structure + anything else -> Json          kept as written in the source
//! ```
//!
//! A walk that meets a fault has already been affected by the faulty record; the caller starts over with records that
//! it has checked (see [`Shape::observe_record`]).

use std::{fmt, sync::Arc};

use arrow::datatypes::{DataType, Field, Fields};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    fault::{self, RecordFault, Trail},
    names::{Key, KeySeed, Names},
    token::{self, Number},
};
use crate::schema;

/// Containers below this depth become JSON text instead of deeper types.
const TYPED_DEPTH: usize = 100;

/// Objects with more distinct keys become JSON text; their keys are data, not columns.
const MAX_FIELDS: usize = 10_000;

/// From this many distinct keys on, objects that each have only a [`SPARSE_FRACTION`]th of them become JSON text too,
/// because as columns they would take far more memory than the input.
const SPARSE_FIELDS: u64 = 256;
const SPARSE_FRACTION: u64 = 32;

/// Types of the columns of all records seen so far.
#[derive(Debug)]
pub(super) struct Shape<'o> {
    members: MemberTypes,
    text: &'o [String],
    /// Columns that are looked at; `None` for all.
    taken: Option<&'o [String]>,
}

impl<'o> Shape<'o> {
    /// Returns a shape of which nothing was seen; columns named in `text` are text whatever they hold.
    pub(super) fn new(text: &'o [String]) -> Self {
        Self { members: MemberTypes::default(), text, taken: None }
    }

    /// Looks only at these columns, if there are any.
    #[must_use]
    pub(super) fn with_projection(self, taken: Option<&'o [String]>) -> Self {
        Self { taken, ..self }
    }

    /// Widens the types so that they accept this record.
    ///
    /// # Errors
    /// If no schema can accept the record; the types may then be wider than the valid records need.
    pub(super) fn observe_record(&mut self, record: &str) -> Result<(), RecordFault> {
        fault::walk_record(record, |deserializer, trail| {
            let (text, taken) = (self.text, self.taken);
            let visitor = MemberTypesVisitor { members: &mut self.members, trail, depth: 1, text, taken };
            deserializer.deserialize_map(visitor)
        })
    }

    /// Returns the columns in order of first appearance.
    pub(super) fn to_fields(&self) -> Fields {
        let forced = |name: &str| self.text.iter().any(|t| t == name);
        self.members
            .to_fields()
            .into_iter()
            .map(|f| if forced(f.name()) { Field::new(f.name(), DataType::Utf8, true) } else { f })
            .collect()
    }
}

/// The type of all values seen in one position.
#[derive(Debug, Default)]
enum SeenType {
    /// Only nulls.
    #[default]
    Nothing,
    Boolean,
    /// Integers; `wide` if a float cannot hold some of them.
    Integer {
        wide: bool,
    },
    Float,
    Text,
    List(Box<Self>),
    Object(Box<MemberTypes>),
    /// Values that only JSON text can represent together.
    Json,
    /// Values that are skipped.
    Passed,
}

impl SeenType {
    fn add_scalar(&mut self, scalar: Self) {
        *self = match (std::mem::take(self), scalar) {
            (Self::Nothing, scalar) => scalar,
            (Self::List(_) | Self::Object(_) | Self::Json, _) => Self::Json,
            (Self::Boolean, Self::Boolean) => Self::Boolean,
            (Self::Integer { wide: a }, Self::Integer { wide: b }) => Self::Integer { wide: a || b },
            (Self::Integer { wide: false } | Self::Float, Self::Float)
            | (Self::Float, Self::Integer { wide: false }) => Self::Float,
            _ => Self::Text,
        };
    }

    fn to_field(&self, name: &str) -> Field {
        let data_type = match self {
            Self::Nothing | Self::Passed => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::Integer { wide: true } => return schema::wide_field(name),
            Self::Integer { wide: false } => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::List(item) => DataType::List(Arc::new(item.to_field("item"))),
            Self::Object(members) if members.is_map() => return schema::json_field(name),
            Self::Object(members) => DataType::Struct(members.to_fields().into()),
            Self::Json => return schema::json_field(name),
        };
        Field::new(name, data_type, true)
    }
}

/// Fields of all objects seen in one position.
#[derive(Debug, Default)]
struct MemberTypes {
    names: Names,
    seen: Vec<SeenType>,
    /// For each field, the number of the last object that had it.
    last: Vec<u64>,
    objects: u64,
    filled: u64,
    overflow: bool,
}

impl MemberTypes {
    fn to_fields(&self) -> Vec<Field> {
        self.seen.iter().enumerate().map(|(i, seen)| seen.to_field(self.names.get(i))).collect()
    }

    fn push_member(&mut self, name: String, seen: SeenType) -> usize {
        self.seen.push(seen);
        self.last.push(0);
        self.names.push(name)
    }

    /// Whether the keys are data rather than names of columns.
    fn is_map(&self) -> bool {
        let fields = self.names.len() as u64;
        let sparse = self.filled.saturating_mul(SPARSE_FRACTION) < fields.saturating_mul(self.objects);
        self.overflow || (fields > SPARSE_FIELDS && sparse)
    }
}

/// Adds one object to the types.
struct MemberTypesVisitor<'a, 't> {
    members: &'a mut MemberTypes,
    trail: &'a mut Trail<'t>,
    /// Number of open containers, this object included.
    depth: usize,
    /// Columns that are text whatever they hold.
    text: &'a [String],
    /// Members that are looked at; `None` for all.
    taken: Option<&'a [String]>,
}

impl<'de> Visitor<'de> for MemberTypesVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { members, trail, depth, text, taken } = self;
        members.objects += 1;
        let object = members.objects;
        let mut guess = 0;
        while let Some(key) = map.next_key_seed(KeySeed { names: &members.names, guess })? {
            let at = match key {
                Key::Known(at) if matches!(members.seen[at], SeenType::Passed) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Key::Known(at) if members.last[at] == object => {
                    return Err(trail.stop_repeated(map.next_value::<&RawValue>()?.get(), members.names.get(at)));
                }
                Key::Known(at) => at,
                Key::New(_) if depth > 1 && members.names.len() >= MAX_FIELDS => {
                    members.overflow = true;
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Key::New(name) if taken.is_some_and(|taken| !taken.contains(&name)) => {
                    members.push_member(name, SeenType::Passed);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Key::New(name) => {
                    let forced = text.contains(&name);
                    members.push_member(name, if forced { SeenType::Json } else { SeenType::Nothing })
                }
            };
            members.last[at] = object;
            members.filled += 1;
            guess = at + 1;
            let seed = SeenSeed { seen: &mut members.seen[at], trail: &mut *trail, depth };
            if let Err(error) = map.next_value_seed(seed) {
                return Err(trail.add_name(members.names.get(at), error));
            }
        }
        Ok(())
    }
}

/// Adds one value to the types.
struct SeenSeed<'a, 't> {
    seen: &'a mut SeenType,
    trail: &'a mut Trail<'t>,
    /// Number of open containers around the value.
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for SeenSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // If containers were seen here, another one is expected and walked at once; otherwise the text of the value
        // decides, which scalars require anyway.
        if matches!(self.seen, SeenType::List(_) | SeenType::Object(_)) && !self.trail.is_careful() {
            return deserializer.deserialize_any(self);
        }
        self.add_value(<&RawValue>::deserialize(deserializer)?.get())
    }
}

impl SeenSeed<'_, '_> {
    fn add_value<E: serde::de::Error>(self, raw: &str) -> Result<(), E> {
        let scalar = match raw.as_bytes().first() {
            Some(b'n') => return Ok(()),
            Some(b't' | b'f') => SeenType::Boolean,
            Some(b'"') => {
                token::unquote_string(raw).map_err(|e| self.trail.stop_malformed::<E>(raw, &e))?;
                SeenType::Text
            }
            Some(b'[' | b'{') => return self.add_container(raw),
            _ => match token::parse_number(raw) {
                Number::Int(value) => SeenType::Integer { wide: token::exact_float(value).is_none() },
                Number::Float(_) => SeenType::Float,
                Number::Exact => SeenType::Text,
            },
        };
        self.seen.add_scalar(scalar);
        Ok(())
    }

    fn add_container<E: serde::de::Error>(self, raw: &str) -> Result<(), E> {
        let Self { seen, trail, depth } = self;
        let list = raw.starts_with('[');
        let fits = match seen {
            SeenType::Nothing => depth < TYPED_DEPTH,
            SeenType::List(_) => list,
            SeenType::Object(_) => !list,
            _ => false,
        };
        if !fits {
            *seen = SeenType::Json;
            return if depth + token::nesting_depth(raw) > token::MAX_DEPTH {
                Err(trail.too_deep(raw))
            } else {
                Ok(())
            };
        }
        if matches!(seen, SeenType::Nothing) {
            *seen = if list { SeenType::List(Box::default()) } else { SeenType::Object(Box::default()) };
        }
        let seed = SeenSeed { seen, trail: &mut *trail, depth };
        let result = serde_json::Deserializer::from_str(raw).deserialize_any(seed);
        result.map_err(|error| trail.stop_malformed(raw, &error))
    }
}

impl<'de> Visitor<'de> for SeenSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        *self.seen = SeenType::Json;
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        *self.seen = SeenType::Json;
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        *self.seen = SeenType::Json;
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        *self.seen = SeenType::Json;
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        *self.seen = SeenType::Json;
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { seen, trail, depth } = self;
        if let SeenType::List(item) = seen {
            while seq.next_element_seed(SeenSeed { seen: &mut *item, trail: &mut *trail, depth: depth + 1 })?.is_some()
            {
            }
        } else {
            *seen = SeenType::Json;
            while seq.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { seen, trail, depth } = self;
        if let SeenType::Object(members) = seen {
            return MemberTypesVisitor { members, trail, depth: depth + 1, text: &[], taken: None }.visit_map(map);
        }
        *seen = SeenType::Json;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn types(records: &[&str]) -> String {
        let mut shape = Shape::new(&[]);
        for record in records {
            shape.observe_record(record).unwrap();
        }
        let fields = schema::settle_fields(&shape.to_fields());
        fields.iter().map(|f| describe(f)).collect::<Vec<_>>().join(" ")
    }

    fn describe(field: &Field) -> String {
        let kind = match field.data_type() {
            _ if schema::is_json(field) => "json".to_owned(),
            DataType::List(item) => format!("[{}]", describe(item)),
            DataType::Struct(fields) => {
                format!("{{{}}}", fields.iter().map(|f| describe(f)).collect::<Vec<_>>().join(" "))
            }
            other => other.to_string(),
        };
        format!("{}:{kind}", field.name())
    }

    #[test]
    fn scalars_have_types() {
        assert_eq!(
            types(&[r#"{"a":1,"b":1.5,"c":true,"d":"x","e":null,"f":-0,"g":99999999999999999999,"h":1e400}"#]),
            "a:Int64 b:Float64 c:Boolean d:Utf8 e:Utf8 f:Float64 g:Utf8 h:Utf8"
        );
    }

    #[test]
    fn types_widen_without_loss() {
        for (values, expected) in [
            (&["1", "null", "2"][..], "Int64"),
            (&["1", "1.5"], "Float64"),
            (&["9007199254740993", "1"], "Int64"),
            (&["9007199254740993", "1.5"], "Utf8"),
            (&["1.5", "9007199254740993"], "Utf8"),
            (&["1", "\"x\""], "Utf8"),
            (&["true", "1"], "Utf8"),
            (&["1", "[1]"], "json"),
            (&["[1]", "\"x\""], "json"),
            (&["[1]", "{}"], "json"),
            (&["{}", "[1]", "5"], "json"),
            (&["[1]", "1e400"], "json"),
            (&["[[1],[1e400]]"], "[item:[item:Utf8]]"),
            (&["{}"], "json"),
            (&["[]"], "[item:Utf8]"),
            (&["[1,null]", "[]", "null", "[2.5]"], "[item:Float64]"),
            (&["[1,\"a\"]"], "[item:Utf8]"),
            (&["[[1],2]"], "[item:json]"),
            (&["[[1],[[2]]]"], "[item:[item:json]]"),
            (&["{\"x\":1}", "{\"y\":[{\"z\":true}]}"], "{x:Int64 y:[item:{z:Boolean}]}"),
        ] {
            let records: Vec<String> = values.iter().map(|v| format!("{{\"c\":{v}}}")).collect();
            let records: Vec<&str> = records.iter().map(String::as_str).collect();
            assert_eq!(types(&records), format!("c:{expected}"), "{values:?}");
        }
    }

    #[test]
    fn columns_come_in_order_of_appearance() {
        assert_eq!(types(&[r#"{"b":1,"a":2}"#, r#"{"c":1,"b":2}"#]), "b:Int64 a:Int64 c:Int64");
        assert_eq!(types(&["{\"\\u0061\":1}", r#"{"a":1.5,"":1}"#]), "a:Float64 :Int64");
    }

    #[test]
    fn text_columns_are_text() {
        let text = ["t".to_owned()];
        let mut shape = Shape::new(&text);
        shape.observe_record(r#"{"x":{"t":1},"t":{"a":[1]}}"#).unwrap();
        assert_eq!(shape.to_fields()[1].data_type(), &DataType::Utf8);
        assert!(!schema::is_json(&shape.to_fields()[1]));
        assert!(matches!(shape.to_fields()[0].data_type(), DataType::Struct(_)));
    }

    #[test]
    fn deep_and_wide_objects_become_json_text() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(120), "]".repeat(120));
        let described = types(&[&deep]);
        assert!(described.ends_with(&format!("json{}", "]".repeat(TYPED_DEPTH - 1))), "{described}");
        let keys: Vec<String> = (0..=MAX_FIELDS).map(|i| format!("\"k{i}\":1")).collect();
        let keys = keys.join(",");
        assert_eq!(types(&[&format!("{{\"a\":{{{keys}}}}}")]), "a:json");
        let sparse: Vec<String> = (0..300).map(|i| format!("{{\"a\":{{\"k{i}\":1}},\"b\":1}}")).collect();
        let sparse: Vec<&str> = sparse.iter().map(String::as_str).collect();
        assert_eq!(types(&sparse), "a:json b:Int64");
    }

    #[test]
    fn bad_records_are_faults() {
        for record in [
            "",
            "1",
            "[]",
            "{",
            r#"{"a":1"#,
            r#"{"a":1,}"#,
            r#"{"a":1}x"#,
            r#"{"a":1,"a":2}"#,
            r#"{"x":{"a":1,"a":2}}"#,
            r#"{"x":[{"a":1,"a":2}]}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":01}"#,
            r#"{"a":tru}"#,
            r#"{a:1}"#,
        ] {
            assert!(Shape::new(&[]).observe_record(record).is_err(), "{record}");
        }
        for depth in [127, 128, 100_000] {
            let bomb = format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
            assert!(Shape::new(&[]).observe_record(&bomb).is_err());
            assert!(Shape::new(&[]).observe_record(&"{\"a\":".repeat(depth)).is_err());
        }
    }
}
