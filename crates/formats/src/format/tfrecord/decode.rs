//! Decoder of `tf.train.Example` from protobuf's wire format, written by any program.
//!
//! Fields may be in any order, lists packed or not, and unknown fields are skipped, as in protobuf. Two things that
//! protobuf accepts are refused, because data would be lost silently: a repeated feature, and a message without
//! features that has other fields. `example` documents the layout.

use std::borrow::Cow;

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;
/// Number of the Example field with exact values of some features.
const EXACT: u64 = 1000;

/// The features of one record.
#[derive(Debug, Default)]
pub(super) struct Example<'a> {
    pub(super) features: Vec<(&'a str, Feature<'a>)>,
    exact: Vec<Exact<'a>>,
}

/// The value of one feature.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) enum Feature<'a> {
    /// No list: null.
    #[default]
    None,
    Bytes(Vec<&'a [u8]>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

/// The exact value of a feature, stored beside it so that it round-trips.
#[derive(Debug, Default)]
pub(super) struct Exact<'a> {
    name: &'a [u8],
    /// Little-endian doubles.
    pub(super) doubles: &'a [u8],
    /// Whether the only value is the JSON text of a list.
    pub(super) json: bool,
}

impl<'a> Example<'a> {
    /// Decodes a record. The error states what was expected and found.
    pub(super) fn read(record: &'a [u8]) -> Result<Self, String> {
        Self::read_some(record, &|_| true)
    }

    /// Decodes a record, but only the requested features; the others are returned without values.
    pub(super) fn read_some(record: &'a [u8], wanted: &dyn Fn(&str) -> bool) -> Result<Self, String> {
        let mut example = Self::default();
        let mut message = Message { rest: record };
        let mut found = None;
        while let Some(field) = message.next().map_err(|problem| not_an_example(problem, record, &message))? {
            match field {
                WireField { number: 1, content: WireValue::Bytes(features) } => {
                    example
                        .read_features(features, wanted)
                        .map_err(|problem| format!("expected a tf.train.Example, {problem}"))?;
                    found = Some(1);
                }
                WireField { number: 2, content: WireValue::Bytes(_) } => {
                    return Err("expected a tf.train.Example, found a tf.train.SequenceExample".to_owned());
                }
                WireField { number: EXACT, content: WireValue::Bytes(exact) } => {
                    // Another writer may use this field number differently.
                    example.exact.extend(Exact::read(exact).ok());
                    found = found.or(Some(EXACT));
                }
                WireField { number, .. } => found = found.or(Some(number)),
            }
        }
        match found {
            Some(number) if number != 1 => {
                Err(format!("expected a tf.train.Example, found a message with field {number} and no features"))
            }
            _ => {
                example.features.sort_by_key(|(name, _)| *name);
                match example.features.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    Some(pair) => Err(format!("expected a feature per name, found `{}` twice", pair[0].0)),
                    None => Ok(example),
                }
            }
        }
    }

    /// Returns the exact value of the feature of this name.
    pub(super) fn find_exact(&self, name: &str) -> Option<&Exact<'a>> {
        self.exact.iter().find(|exact| exact.name == name.as_bytes())
    }

    fn read_features(&mut self, features: &'a [u8], wanted: &dyn Fn(&str) -> bool) -> Result<(), Cow<'static, str>> {
        let mut message = Message { rest: features };
        while let Some(field) = message.next()? {
            if let WireField { number: 1, content: WireValue::Bytes(entry) } = field {
                self.features.push(read_entry(entry, wanted)?);
            }
        }
        Ok(())
    }
}

impl<'a> Exact<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let mut exact = Self::default();
        let mut message = Message { rest: bytes };
        while let Some(field) = message.next()? {
            match field {
                WireField { number: 1, content: WireValue::Bytes(name) } => exact.name = name,
                WireField { number: 2, content: WireValue::Bytes(doubles) } => exact.doubles = doubles,
                WireField { number: 3, content: WireValue::Number(json) } => exact.json = json != 0,
                _ => {}
            }
        }
        Ok(exact)
    }

    /// Returns the doubles, if there are exactly `count`.
    pub(super) fn exact_doubles(&self, count: usize) -> Option<impl Iterator<Item = f64> + use<'a>> {
        let (doubles, rest) = self.doubles.as_chunks::<8>();
        (doubles.len() == count && rest.is_empty()).then(|| doubles.iter().map(|bytes| f64::from_le_bytes(*bytes)))
    }
}

fn not_an_example(problem: &str, record: &[u8], message: &Message<'_>) -> String {
    let at = record.len() - message.rest.len();
    format!("expected a tf.train.Example, {problem} at byte {at} of the record")
}

fn read_entry<'a>(entry: &'a [u8], wanted: &dyn Fn(&str) -> bool) -> Result<(&'a str, Feature<'a>), Cow<'static, str>> {
    let (mut name, mut feature) = (&b""[..], Feature::None);
    let mut message = Message { rest: entry };
    while let Some(field) = message.next()? {
        if let WireField { number: 1, content: WireValue::Bytes(bytes) } = field {
            name = bytes;
        }
    }
    let name = str::from_utf8(name).map_err(|_| "found a feature whose name is not UTF-8")?;
    // The value may precede its name.
    let mut message = Message { rest: if wanted(name) { entry } else { &[] } };
    while let Some(field) = message.next()? {
        if let WireField { number: 2, content: WireValue::Bytes(bytes) } = field {
            read_feature(bytes, &mut feature)?;
        }
    }
    Ok((name, feature))
}

/// As in protobuf, the last of lists of different kinds counts, and lists of one kind are concatenated.
fn read_feature<'a>(bytes: &'a [u8], feature: &mut Feature<'a>) -> Result<(), &'static str> {
    let mut message = Message { rest: bytes };
    while let Some(field) = message.next()? {
        let WireValue::Bytes(list) = field.content else { continue };
        *feature = match (field.number, std::mem::take(feature)) {
            (1, Feature::Bytes(items)) => Feature::Bytes(read_list(list, items, push_bytes)?),
            (1, _) => Feature::Bytes(read_list(list, Vec::new(), push_bytes)?),
            (2, Feature::Floats(items)) => Feature::Floats(read_list(list, items, push_floats)?),
            (2, _) => Feature::Floats(read_list(list, Vec::new(), push_floats)?),
            (3, Feature::Ints(items)) => Feature::Ints(read_list(list, items, push_ints)?),
            (3, _) => Feature::Ints(read_list(list, Vec::new(), push_ints)?),
            (_, same) => same,
        };
    }
    Ok(())
}

/// Appends every occurrence of field 1 of a list; `push` returns `None` for a value that does not fit.
fn read_list<'a, T>(
    list: &'a [u8],
    mut items: Vec<T>,
    push: fn(WireValue<'a>, &mut Vec<T>) -> Option<()>,
) -> Result<Vec<T>, &'static str> {
    let mut message = Message { rest: list };
    while let Some(field) = message.next()? {
        if field.number == 1 {
            push(field.content, &mut items).ok_or("found a list with values of another kind")?;
        }
    }
    Ok(items)
}

fn push_bytes<'a>(content: WireValue<'a>, items: &mut Vec<&'a [u8]>) -> Option<()> {
    let WireValue::Bytes(item) = content else { return None };
    items.push(item);
    Some(())
}

fn push_floats(content: WireValue<'_>, items: &mut Vec<f32>) -> Option<()> {
    match content {
        WireValue::Fixed32(bytes) => items.push(f32::from_le_bytes(bytes)),
        WireValue::Bytes(packed) => {
            let (floats, rest) = packed.as_chunks::<4>();
            items.extend(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            return rest.is_empty().then_some(());
        }
        _ => return None,
    }
    Some(())
}

fn push_ints(content: WireValue<'_>, items: &mut Vec<i64>) -> Option<()> {
    match content {
        WireValue::Number(number) => items.push(number.cast_signed()),
        WireValue::Bytes(packed) => {
            let mut packed = Message { rest: packed };
            while !packed.rest.is_empty() {
                items.push(packed.read_varint().ok()?.cast_signed());
            }
        }
        _ => return None,
    }
    Some(())
}

/// The remaining fields of a message.
struct Message<'a> {
    rest: &'a [u8],
}

struct WireField<'a> {
    number: u64,
    content: WireValue<'a>,
}

enum WireValue<'a> {
    Number(u64),
    Fixed32([u8; 4]),
    Fixed64,
    Bytes(&'a [u8]),
}

impl<'a> Message<'a> {
    fn next(&mut self) -> Result<Option<WireField<'a>>, &'static str> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.read_varint()?;
        let content = match tag & 7 {
            VARINT => WireValue::Number(self.read_varint()?),
            FIXED64 => self.read_bytes(8).map(|_| WireValue::Fixed64)?,
            DELIMITED => {
                let length = self.read_varint()?;
                WireValue::Bytes(self.read_bytes(length)?)
            }
            FIXED32 => WireValue::Fixed32(self.read_bytes(4)?.first_chunk().copied().unwrap_or_default()),
            _ => return Err("found no protobuf message"),
        };
        match tag >> 3 {
            0 => Err("found no protobuf message"),
            number => Ok(Some(WireField { number, content })),
        }
    }

    fn read_bytes(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        let cut = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (bytes, rest) = cut.ok_or("found a protobuf message that is cut short")?;
        self.rest = rest;
        Ok(bytes)
    }

    fn read_varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return Err("found a protobuf message that is cut short");
            };
            self.rest = rest;
            // Bits beyond the 64th are dropped, as in protobuf.
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("found a number longer than ten bytes")
    }
}
