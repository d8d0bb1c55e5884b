//! The general path: appends any valid record to its columns, and reports exactly what is wrong with others.
//!
//! `serde_json` walks the record, and every value arrives as its text. This path handles records that
//! [`fast`](super::fast) gives up on, and that path is tested against it.

use std::{borrow::Cow, fmt};

use arrow::datatypes::{DataType, Field};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    bare,
    columns::{JsonColumn, JsonValues, MemberColumns, TextStyle, to_offset},
    fault::Trail,
    names::{Key, KeySeed},
    token::{self, Number},
};
use crate::{
    format::TypeMismatch,
    record::typed::{self, Form},
};

/// Why a record with a word within a value that is kept as JSON is refused.
const WORD_IN_JSON: &str = "expected JSON in a column that is kept as JSON, found NaN or Infinity";

impl JsonColumn {
    /// Appends a value that is not a list or struct, given as its text.
    fn push_raw<E: serde::de::Error>(&mut self, raw: &str, trail: &mut Trail<'_>, depth: usize) -> Result<(), E> {
        if let Some(source) = trail.masked_source(raw) {
            return self.push_word(raw, source, trail);
        }
        let first = raw.as_bytes().first().copied().unwrap_or(b'n');
        if first == b'n' {
            self.push_null();
            return Ok(());
        }
        let numeric = first == b'-' || first.is_ascii_digit();
        if let Some(form) = self.other_form(raw, first, trail)? {
            return if self.push_scalar(form) { Ok(()) } else { Err(self.type_mismatch(raw, trail)) };
        }
        match &mut self.values {
            JsonValues::Integers(values) if numeric => match token::parse_number(raw) {
                Number::Int(value) => values.push(value),
                _ => return Err(self.type_mismatch(raw, trail)),
            },
            JsonValues::Floats(values) if numeric => {
                let float = match token::parse_number(raw) {
                    Number::Float(value) => Some(value),
                    Number::Int(value) => token::exact_float(value),
                    Number::Exact => None,
                };
                match float {
                    Some(value) => values.push(value),
                    None => return Err(self.type_mismatch(raw, trail)),
                }
            }
            JsonValues::Booleans(values) if matches!(first, b't' | b'f') => values.push(first == b't'),
            JsonValues::Text { offsets, bytes, style } => {
                if matches!(first, b'[' | b'{') {
                    if *style == TextStyle::Scalars {
                        return Err(self.type_mismatch(raw, trail));
                    }
                    if depth + token::nesting_depth(raw) > token::MAX_DEPTH {
                        return Err(trail.too_deep(raw));
                    }
                }
                if first == b'"' && *style != TextStyle::Json {
                    let content = token::unquote_string(raw).map_err(|e| trail.stop_malformed(raw, &e))?;
                    bytes.extend_from_slice(content.as_bytes());
                } else {
                    bytes.extend_from_slice(raw.as_bytes());
                }
                offsets.push(to_offset(bytes.len()));
            }
            _ => return Err(self.type_mismatch(raw, trail)),
        }
        self.nulls.push_valid();
        Ok(())
    }

    /// Appends `NaN`, `Infinity` or `-Infinity`, or refuses a value that holds one and would be kept as JSON.
    fn push_word<E: serde::de::Error>(&mut self, raw: &str, source: &str, trail: &mut Trail<'_>) -> Result<(), E> {
        let Some(float) = bare::parse_word(source) else { return Err(trail.stop_broken(raw, WORD_IN_JSON)) };
        if matches!(self.values, JsonValues::Typed(_)) && self.push_scalar(Scalar::Text(Cow::Borrowed(source))) {
            return Ok(());
        }
        match &mut self.values {
            JsonValues::Floats(values) => values.push(float),
            JsonValues::Text { style: TextStyle::Json, .. } => return Err(trail.stop_broken(raw, WORD_IN_JSON)),
            JsonValues::Text { offsets, bytes, .. } => {
                bytes.extend_from_slice(source.as_bytes());
                offsets.push(to_offset(bytes.len()));
            }
            _ => return Err(self.type_mismatch(source, trail)),
        }
        self.nulls.push_valid();
        Ok(())
    }

    /// Returns the scalar if the column has a type given by the user and the value uses another notation.
    fn other_form<'r, E: serde::de::Error>(
        &self,
        raw: &'r str,
        first: u8,
        trail: &mut Trail<'_>,
    ) -> Result<Option<Scalar<'r>>, E> {
        let typed = matches!(self.values, JsonValues::Typed(_));
        let plain = matches!(self.values, JsonValues::Integers(_) | JsonValues::Floats(_) | JsonValues::Booleans(_));
        Ok(match first {
            b'"' if typed || self.pinned && plain => {
                Some(Scalar::Text(token::unquote_string(raw).map_err(|e| trail.stop_malformed(raw, &e))?))
            }
            b't' | b'f' if typed => Some(Scalar::Boolean(first == b't')),
            b'-' | b'0'..=b'9' if typed => Some(Scalar::Number(raw)),
            // `3.0` is a whole number.
            b'-' | b'0'..=b'9' if self.pinned && matches!(self.values, JsonValues::Integers(_)) => {
                Some(Scalar::Number(raw))
            }
            _ => None,
        })
    }

    /// Appends a scalar if the column's type holds it.
    fn push_scalar(&mut self, scalar: Scalar<'_>) -> bool {
        let form = match &scalar {
            Scalar::Text(text) => Form::Text(text),
            Scalar::Number(text) => Form::Number(text),
            Scalar::Boolean(value) => Form::Boolean(*value),
        };
        let taken = match (&mut self.values, form) {
            // In binary columns of other sources, text is not base64.
            (JsonValues::Typed(_), _) if !self.pinned && self.data_type.is_binary() => false,
            (JsonValues::Typed(values), form) => values.push(form),
            (JsonValues::Integers(values), Form::Text(text) | Form::Number(text)) => {
                typed::parse_integer(text).map(|value| values.push(value)).is_some()
            }
            (JsonValues::Floats(values), Form::Text(text)) => {
                typed::parse_float(text).map(|value| values.push(value)).is_some()
            }
            (JsonValues::Booleans(values), Form::Text(text)) => {
                typed::parse_boolean(text).map(|value| values.push(value)).is_some()
            }
            _ => false,
        };
        if taken {
            self.nulls.push_valid();
        }
        taken
    }

    fn type_mismatch<E: serde::de::Error>(&self, value: &str, trail: &mut Trail<'_>) -> E {
        if self.pinned {
            return trail.stop_mismatch(value, typed::describe_type(&Field::new("", self.data_type.clone(), true)));
        }
        match &self.data_type {
            DataType::List(_) => trail.stop_mismatch(value, "List"),
            DataType::Struct(_) => trail.stop_mismatch(value, "Struct"),
            other => trail.stop_mismatch(value, other),
        }
    }
}

/// A scalar without quotes and escapes.
enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(&'a str),
    Boolean(bool),
}

/// Appends one object to columns that all have length `len`.
pub(super) struct MemberColumnsVisitor<'a, 't> {
    pub(super) members: &'a mut MemberColumns,
    pub(super) len: usize,
    pub(super) trail: &'a mut Trail<'t>,
    /// Number of open containers, this object included.
    pub(super) depth: usize,
}

impl<'de> Visitor<'de> for MemberColumnsVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { members, len, trail, depth } = self;
        let MemberColumns { names, columns, passed, .. } = members;
        let (mut guess, mut filled) = (0, 0);
        while let Some(key) = map.next_key_seed(KeySeed { names, guess })? {
            let at = match key {
                Key::Known(at) => at,
                Key::New(name) if passed.as_ref().is_some_and(|passed| passed.passes_over(&name)) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Key::New(name) => {
                    let error = trail.stop_mismatch(map.next_value::<&RawValue>()?.get(), TypeMismatch::NO_COLUMN);
                    return Err(trail.add_name(&name, error));
                }
            };
            let column = &mut columns[at];
            if column.len() > len {
                return Err(trail.stop_repeated(map.next_value::<&RawValue>()?.get(), names.get(at)));
            }
            if let Err(error) = map.next_value_seed(ColumnSeed { column, trail: &mut *trail, depth }) {
                return Err(trail.add_name(names.get(at), error));
            }
            filled += 1;
            guess = at + 1;
        }
        if filled < columns.len() {
            columns.iter_mut().filter(|c| c.len() == len).for_each(JsonColumn::push_missing);
        }
        Ok(())
    }
}

/// Appends one value to a column.
struct ColumnSeed<'a, 't> {
    column: &'a mut JsonColumn,
    trail: &'a mut Trail<'t>,
    /// Number of open containers around the value.
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for ColumnSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let nested = matches!(self.column.values, JsonValues::List { .. } | JsonValues::Struct { .. });
        if nested && !self.trail.is_careful() {
            return deserializer.deserialize_any(self);
        }
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let Self { column, trail, depth } = self;
        if nested && raw.starts_with(['[', '{']) {
            let seed = ColumnSeed { column, trail: &mut *trail, depth };
            let result = serde_json::Deserializer::from_str(raw).deserialize_any(seed);
            return result.map_err(|error| trail.stop_malformed(raw, &error));
        }
        column.push_raw(raw, trail, depth)
    }
}

/// Values of lists and structs.
impl<'de> Visitor<'de> for ColumnSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.column.push_null();
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        Err(self.column.type_mismatch(&value.to_string(), self.trail))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        Err(self.column.type_mismatch(&value.to_string(), self.trail))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        Err(self.column.type_mismatch(&value.to_string(), self.trail))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        Err(self.column.type_mismatch(&value.to_string(), self.trail))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        Err(self.column.type_mismatch(value, self.trail))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { column, trail, depth } = self;
        let JsonValues::List { offsets, item, width, .. } = &mut column.values else {
            return Err(column.type_mismatch("[…]", trail));
        };
        let before = item.len();
        let mut next = || {
            let seed = ColumnSeed { column: &mut *item, trail: &mut *trail, depth: depth + 1 };
            seq.next_element_seed(seed).map(|found| found.is_some())
        };
        while next()? {}
        let found = item.len() - before;
        if let Some(width) = width.filter(|width| *width != found) {
            return Err(trail.stop_mismatch(&format!("{found} items"), format!("a list of {width} items")));
        }
        offsets.push(to_offset(item.len()));
        column.nulls.push_valid();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Self { column, trail, depth } = self;
        let len = column.len();
        let JsonValues::Struct { members, .. } = &mut column.values else {
            return Err(column.type_mismatch("{…}", trail));
        };
        MemberColumnsVisitor { members, len, trail, depth: depth + 1 }.visit_map(map)?;
        column.nulls.push_valid();
        Ok(())
    }
}
