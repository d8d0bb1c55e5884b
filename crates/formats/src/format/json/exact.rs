//! The general path: appends any valid record to its columns, and reports exactly what is wrong with others.
//!
//! `serde_json` walks the record, and every value arrives as its text. This path handles records that
//! [`fast`](super::fast) gives up on, and that path is tested against it.

use std::{borrow::Cow, fmt};

use arrow::datatypes::{DataType, Field};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    columns::{Column, Members, Style, Values, offset},
    fault::Trail,
    names::{Key, KeySeed},
    token::{self, Number},
};
use crate::{
    format::TypeMismatch,
    record::typed::{self, Form},
};

impl Column {
    /// Appends a value that is not a list or struct, given as its text.
    fn push_raw<E: serde::de::Error>(&mut self, raw: &str, trail: &mut Trail<'_>, depth: usize) -> Result<(), E> {
        let first = raw.as_bytes().first().copied().unwrap_or(b'n');
        if first == b'n' {
            self.push_null();
            return Ok(());
        }
        let numeric = first == b'-' || first.is_ascii_digit();
        if let Some(form) = self.other_form(raw, first, trail)? {
            return if self.take(form) { Ok(()) } else { Err(self.mismatch(raw, trail)) };
        }
        match &mut self.values {
            Values::Integers(values) if numeric => match token::number(raw) {
                Number::Int(value) => values.push(value),
                _ => return Err(self.mismatch(raw, trail)),
            },
            Values::Floats(values) if numeric => {
                let float = match token::number(raw) {
                    Number::Float(value) => Some(value),
                    Number::Int(value) => token::exact_float(value),
                    Number::Exact => None,
                };
                match float {
                    Some(value) => values.push(value),
                    None => return Err(self.mismatch(raw, trail)),
                }
            }
            Values::Booleans(values) if matches!(first, b't' | b'f') => values.push(first == b't'),
            Values::Text { offsets, bytes, style } => {
                if matches!(first, b'[' | b'{') {
                    if *style == Style::Scalars {
                        return Err(self.mismatch(raw, trail));
                    }
                    if depth + token::nesting(raw) > token::MAX_DEPTH {
                        return Err(trail.too_deep(raw));
                    }
                }
                if first == b'"' && *style != Style::Json {
                    let content = token::unquote(raw).map_err(|e| trail.malformed(raw, &e))?;
                    bytes.extend_from_slice(content.as_bytes());
                } else {
                    bytes.extend_from_slice(raw.as_bytes());
                }
                offsets.push(offset(bytes.len()));
            }
            _ => return Err(self.mismatch(raw, trail)),
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
        let typed = matches!(self.values, Values::Typed(_));
        let plain = matches!(self.values, Values::Integers(_) | Values::Floats(_) | Values::Booleans(_));
        Ok(match first {
            b'"' if typed || self.pinned && plain => {
                Some(Scalar::Text(token::unquote(raw).map_err(|e| trail.malformed(raw, &e))?))
            }
            b't' | b'f' if typed => Some(Scalar::Boolean(first == b't')),
            b'-' | b'0'..=b'9' if typed => Some(Scalar::Number(raw)),
            // `3.0` is a whole number.
            b'-' | b'0'..=b'9' if self.pinned && matches!(self.values, Values::Integers(_)) => {
                Some(Scalar::Number(raw))
            }
            _ => None,
        })
    }

    /// Appends a scalar if the column's type holds it.
    fn take(&mut self, scalar: Scalar<'_>) -> bool {
        let form = match &scalar {
            Scalar::Text(text) => Form::Text(text),
            Scalar::Number(text) => Form::Number(text),
            Scalar::Boolean(value) => Form::Boolean(*value),
        };
        let taken = match (&mut self.values, form) {
            // In binary columns of other sources, text is not base64.
            (Values::Typed(_), _) if !self.pinned && self.data_type.is_binary() => false,
            (Values::Typed(values), form) => values.push(form),
            (Values::Integers(values), Form::Text(text) | Form::Number(text)) => {
                typed::integer(text).map(|value| values.push(value)).is_some()
            }
            (Values::Floats(values), Form::Text(text)) => typed::float(text).map(|value| values.push(value)).is_some(),
            (Values::Booleans(values), Form::Text(text)) => {
                typed::boolean(text).map(|value| values.push(value)).is_some()
            }
            _ => false,
        };
        if taken {
            self.nulls.push_valid();
        }
        taken
    }

    fn mismatch<E: serde::de::Error>(&self, value: &str, trail: &mut Trail<'_>) -> E {
        if self.pinned {
            return trail.mismatch(value, typed::name(&Field::new("", self.data_type.clone(), true)));
        }
        match &self.data_type {
            DataType::List(_) => trail.mismatch(value, "List"),
            DataType::Struct(_) => trail.mismatch(value, "Struct"),
            other => trail.mismatch(value, other),
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
pub(super) struct MembersVisitor<'a, 't> {
    pub(super) members: &'a mut Members,
    pub(super) len: usize,
    pub(super) trail: &'a mut Trail<'t>,
    /// Number of open containers, this object included.
    pub(super) depth: usize,
}

impl<'de> Visitor<'de> for MembersVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { members, len, trail, depth } = self;
        let Members { names, columns, passed, .. } = members;
        let (mut guess, mut filled) = (0, 0);
        while let Some(key) = map.next_key_seed(KeySeed { names, guess })? {
            let at = match key {
                Key::Known(at) => at,
                Key::New(name) if passed.as_ref().is_some_and(|passed| passed.passes(&name)) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Key::New(name) => {
                    let error = trail.mismatch(map.next_value::<&RawValue>()?.get(), TypeMismatch::NO_COLUMN);
                    return Err(trail.within(&name, error));
                }
            };
            let column = &mut columns[at];
            if column.len() > len {
                return Err(trail.twice(map.next_value::<&RawValue>()?.get(), names.get(at)));
            }
            if let Err(error) = map.next_value_seed(ColumnSeed { column, trail: &mut *trail, depth }) {
                return Err(trail.within(names.get(at), error));
            }
            filled += 1;
            guess = at + 1;
        }
        if filled < columns.len() {
            columns.iter_mut().filter(|c| c.len() == len).for_each(Column::pad);
        }
        Ok(())
    }
}

/// Appends one value to a column.
struct ColumnSeed<'a, 't> {
    column: &'a mut Column,
    trail: &'a mut Trail<'t>,
    /// Number of open containers around the value.
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for ColumnSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let nested = matches!(self.column.values, Values::List { .. } | Values::Struct { .. });
        if nested && !self.trail.careful() {
            return deserializer.deserialize_any(self);
        }
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let Self { column, trail, depth } = self;
        if nested && raw.starts_with(['[', '{']) {
            let seed = ColumnSeed { column, trail: &mut *trail, depth };
            let result = serde_json::Deserializer::from_str(raw).deserialize_any(seed);
            return result.map_err(|error| trail.malformed(raw, &error));
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
        Err(self.column.mismatch(&value.to_string(), self.trail))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        Err(self.column.mismatch(&value.to_string(), self.trail))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        Err(self.column.mismatch(&value.to_string(), self.trail))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        Err(self.column.mismatch(&value.to_string(), self.trail))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        Err(self.column.mismatch(value, self.trail))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { column, trail, depth } = self;
        let Values::List { offsets, item, width, .. } = &mut column.values else {
            return Err(column.mismatch("[…]", trail));
        };
        let before = item.len();
        let mut next = || {
            let seed = ColumnSeed { column: &mut *item, trail: &mut *trail, depth: depth + 1 };
            seq.next_element_seed(seed).map(|found| found.is_some())
        };
        while next()? {}
        let found = item.len() - before;
        if let Some(width) = width.filter(|width| *width != found) {
            return Err(trail.mismatch(&format!("{found} items"), format!("a list of {width} items")));
        }
        offsets.push(offset(item.len()));
        column.nulls.push_valid();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Self { column, trail, depth } = self;
        let len = column.len();
        let Values::Struct { members, .. } = &mut column.values else {
            return Err(column.mismatch("{…}", trail));
        };
        MembersVisitor { members, len, trail, depth: depth + 1 }.visit_map(map)?;
        column.nulls.push_valid();
        Ok(())
    }
}
