//! The header of a safetensors file: JSON in which every name, type and offset is checked before a tensor is read.
//!
//! ```text
//! {"__metadata__":{"KEY":"TEXT"}, "NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...}
//! ```
//!
//! The tensors lie one after the other, without gaps, from the end of the header to the end of the file. So a header
//! that is damaged, or made to mislead, contradicts the size of the file, and is refused.

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};

use crate::{
    array::DType,
    error::{Error, Result},
};

/// Bytes of the number before the header.
pub(super) const SIZE_BYTES: u64 = 8;

/// Maximum bytes of a header; the format's own library has the same.
pub(super) const MAX_HEADER: u64 = 100_000_000;

/// Maximum number of tensors, which bounds the time and memory of planning.
const MAX_TENSORS: usize = 1 << 16;

/// Maximum number of dimensions, as in NumPy.
const MAX_RANK: usize = 64;

/// Key of the texts that are no tensor.
const METADATA: &str = "__metadata__";

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<u64>,
    /// Offset of its first byte in the file.
    pub(super) begin: u64,
}

/// What a header states.
#[derive(Debug, Default)]
pub(super) struct Stated {
    pub(super) tensors: Vec<Tensor>,
    pub(super) metadata: Vec<(String, String)>,
}

/// A type of elements.
struct Element {
    bits: u64,
    dtype: DType,
    /// Type of the bits of a number that has no column type; packed numbers are stored in bytes.
    bits_as: Option<DType>,
}

impl Element {
    fn parse(name: &str) -> Option<Self> {
        let plain = |bits, dtype| Some(Self { bits, dtype, bits_as: None });
        let only_bits = |bits: u64, width| {
            let stored = DType::UInt(width);
            let reason =
                format!("{name}, which has no column type; --read raw=yes keeps its bits as {}", stored.name());
            Some(Self { bits, dtype: DType::Refused(reason), bits_as: Some(stored) })
        };
        match name {
            "BOOL" => plain(8, DType::Bool),
            "U8" => plain(8, DType::UInt(1)),
            "U16" => plain(16, DType::UInt(2)),
            "U32" => plain(32, DType::UInt(4)),
            "U64" => plain(64, DType::UInt(8)),
            "I8" => plain(8, DType::Int(1)),
            "I16" => plain(16, DType::Int(2)),
            "I32" => plain(32, DType::Int(4)),
            "I64" => plain(64, DType::Int(8)),
            "F16" => plain(16, DType::Float(2)),
            "F32" => plain(32, DType::Float(4)),
            "F64" => plain(64, DType::Float(8)),
            "C64" => plain(64, DType::Complex(4)),
            "BF16" => only_bits(16, 2),
            "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => only_bits(8, 1),
            "F6_E2M3" | "F6_E3M2" => only_bits(6, 1),
            "F4" => only_bits(4, 1),
            _ => None,
        }
    }
}

/// Parses a header. `raw` keeps numbers without a column type as their bits; `total` is the size of the file.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input), naming the tensor and the byte.
pub(super) fn parse(header: &[u8], raw: bool, total: u64) -> Result<Stated> {
    let mut json = serde_json::Deserializer::from_slice(header);
    let parsed = HeaderSeed.deserialize(&mut json).and_then(|parsed| json.end().map(|()| parsed));
    let Parsed { entries, metadata } = parsed.map_err(|e| not_a_header(header, &e))?;
    let data = SIZE_BYTES + header.len() as u64;
    check_places(&entries, data, total)?;
    let tensors = entries.into_iter().map(|(name, entry)| entry.into_tensor(name, raw, data)).collect::<Result<_>>()?;
    Ok(Stated { tensors, metadata })
}

/// Returns the error for JSON that is not a header, with the byte in the file.
fn not_a_header(header: &[u8], error: &serde_json::Error) -> Error {
    let line_start = match error.line().checked_sub(2) {
        Some(lines) => memchr::memchr_iter(b'\n', header).nth(lines).map_or(0, |at| at + 1),
        None => 0,
    };
    let place = format!(" at line {} column {}", error.line(), error.column());
    let found = error.to_string();
    let found = found.strip_suffix(&place).unwrap_or(&found);
    let at = SIZE_BYTES + (line_start + error.column()) as u64;
    Error::input(format!("expected the header of a safetensors file, found {found}"))
        .at_byte(at.saturating_sub(1).max(SIZE_BYTES))
        .with_hint("the file is damaged, or not safetensors: download or write it again")
}

/// Checks that tensors lie one after the other and fill the file.
fn check_places(entries: &[(String, Entry)], data: u64, total: u64) -> Result<()> {
    let mut order: Vec<&(String, Entry)> = entries.iter().collect();
    order.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut end = 0;
    for (name, entry) in order {
        let [from, to] = entry.data_offsets;
        if from != end || to < from {
            let found = if from < end { "an overlap" } else { "a gap" };
            let found = if to < from { "an end before the begin" } else { found };
            return Err(Error::input(format!(
                "expected tensors one after the other, this one from offset {end} on, found {found}: {from} to {to}"
            ))
            .in_column(name.as_str())
            .at_byte(data.saturating_add(from)));
        }
        end = to;
    }
    let stated = data.checked_add(end);
    if stated != Some(total) {
        let stated = stated.map_or_else(|| "more than 2^64".to_owned(), |stated| stated.to_string());
        return Err(Error::input(format!("expected a file of {stated} bytes, as its tensors state, found {total}"))
            .at_byte(data)
            .with_hint("the file may have been cut short while it was copied or written"));
    }
    Ok(())
}

/// What the header states of a tensor.
#[derive(Debug, Deserialize)]
struct Entry {
    dtype: String,
    #[serde(deserialize_with = "read_shape")]
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl Entry {
    fn into_tensor(self, name: String, raw: bool, data: u64) -> Result<Tensor> {
        let [from, to] = self.data_offsets;
        let begin = data + from;
        let fault = |message: String| Error::input(message).in_column(name.as_str()).at_byte(begin);
        let Some(element) = Element::parse(&self.dtype) else {
            return Err(fault(format!("expected a type of safetensors, found `{}`", shorten(&self.dtype))));
        };
        let bits = self.shape.iter().try_fold(element.bits, |all, length| all.checked_mul(*length));
        if bits != Some((to - from).saturating_mul(8)) {
            let of = format!("{} of the shape {:?}", self.dtype, self.shape);
            return Err(fault(match bits {
                Some(bits) if bits % 8 == 0 => {
                    format!("expected {} bytes for {of}, found {}", bits / 8, to - from)
                }
                Some(bits) => format!("expected whole bytes for {of}, found {bits} bits"),
                None => format!("expected a tensor that fits into a file, found {of}"),
            }));
        }
        let Some(stored) = element.bits_as.filter(|_| raw) else {
            return Ok(Tensor { name, dtype: element.dtype, shape: self.shape, begin });
        };
        let mut shape = self.shape;
        if element.bits < 8 {
            // The last dimension counts bytes.
            let packed = shape.last().map(|last| last.saturating_mul(element.bits));
            match (packed, shape.last_mut()) {
                (Some(packed), Some(last)) if packed % 8 == 0 => *last = packed / 8,
                _ => {
                    let found = format!("{} of the shape {shape:?}", self.dtype);
                    return Err(fault(format!("expected whole bytes in the last dimension, found {found}")));
                }
            }
        }
        Ok(Tensor { name, dtype: stored, shape, begin })
    }
}

/// Shortens a text that goes into a message.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 40;
    if text.chars().count() <= SHOWN { text.to_owned() } else { text.chars().take(SHOWN).chain(['…']).collect() }
}

/// Reads the lengths of dimensions, of which there are few.
fn read_shape<'de, D: Deserializer<'de>>(input: D) -> std::result::Result<Vec<u64>, D::Error> {
    struct Shape;

    impl<'de> Visitor<'de> for Shape {
        type Value = Vec<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the lengths of dimensions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Self::Value, A::Error> {
            let mut shape = Vec::new();
            while let Some(length) = seq.next_element()? {
                if shape.len() == MAX_RANK {
                    return Err(serde::de::Error::custom(format_args!("more than {MAX_RANK} dimensions of a tensor")));
                }
                shape.push(length);
            }
            Ok(shape)
        }
    }

    input.deserialize_seq(Shape)
}

/// The header as it is written.
#[derive(Debug, Default)]
struct Parsed {
    entries: Vec<(String, Entry)>,
    metadata: Vec<(String, String)>,
}

/// Reads the header, in which no key may occur twice: readers differ in which one counts.
struct HeaderSeed;

impl<'de> DeserializeSeed<'de> for HeaderSeed {
    type Value = Parsed;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> std::result::Result<Parsed, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a member per tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Parsed, A::Error> {
        let (mut parsed, mut names) = (Parsed::default(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(repeated_key(&name));
            }
            if name == METADATA {
                parsed.metadata = map.next_value::<Texts>()?.0;
                continue;
            }
            if parsed.entries.len() == MAX_TENSORS {
                return Err(serde::de::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
            }
            let entry = map.next_value()?;
            parsed.entries.push((name, entry));
        }
        Ok(parsed)
    }
}

fn repeated_key<E: serde::de::Error>(key: &str) -> E {
    E::custom(format_args!("the key `{}` twice", shorten(key)))
}

/// Texts by key, in their order.
struct Texts(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Texts, A::Error> {
                let (mut texts, mut keys) = (Vec::new(), HashSet::new());
                while let Some((key, text)) = map.next_entry::<String, String>()? {
                    if !keys.insert(key.clone()) {
                        return Err(repeated_key(&key));
                    }
                    texts.push((key, text));
                }
                Ok(Texts(texts))
            }
        }

        input.deserialize_map(Pairs)
    }
}
