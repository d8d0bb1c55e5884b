//! Metadata of Zarr arrays, in version 2 (`.zarray`, `.zattrs`) and 3 (`zarr.json`).

use serde_json::{Map, Value};

use super::{check_version, codecs::Codecs};
use crate::{
    array::{Attribute, DType, Variable, dtype::Padding, npy},
    codec::base64::from_base64,
    error::{Error, Result},
};

/// An array and the naming of its chunks.
#[derive(Debug)]
pub(super) struct ArrayMetadata {
    pub(super) variable: Variable,
    /// Folder of the array, below the store.
    pub(super) path: String,
    pub(super) chunks: Vec<u64>,
    pub(super) codecs: Codecs,
    /// Fill value, in native order.
    pub(super) fill: Vec<u8>,
    /// Prefix and separator of the numbers in a chunk's name.
    key: (String, String),
}

impl ArrayMetadata {
    /// Returns the name of a chunk.
    pub(super) fn chunk_name(&self, at: &[u64]) -> String {
        let (prefix, separator) = &self.key;
        let numbers: Vec<String> = at.iter().map(ToString::to_string).collect();
        let name = match (numbers.is_empty(), prefix.as_str()) {
            (true, "") => "0".to_owned(),
            (true, _) => "c".to_owned(),
            (false, _) => format!("{prefix}{}", numbers.join(separator)),
        };
        if self.path.is_empty() { name } else { format!("{}/{name}", self.path) }
    }
}

fn require_lengths(metadata: &Value, key: &str) -> Result<Vec<u64>> {
    let found = metadata.get(key).and_then(Value::as_array);
    let lengths: Option<Vec<u64>> = found.and_then(|list| list.iter().map(Value::as_u64).collect());
    lengths.ok_or_else(|| Error::input(format!("expected a list of lengths as `{key}`")))
}

/// Returns the separator between the numbers in a chunk's name.
fn parse_separator(given: Option<&Value>, default: &str) -> Result<String> {
    match given.and_then(Value::as_str) {
        None => Ok(default.to_owned()),
        Some(one @ ("." | "/")) => Ok(one.to_owned()),
        Some(other) => Err(Error::input(format!("expected `.` or `/` as separator of chunk numbers, found `{other}`"))),
    }
}

fn check_chunks(shape: &[u64], chunks: &[u64]) -> Result<()> {
    let fits = chunks.len() == shape.len() && chunks.iter().all(|length| *length > 0) && shape.len() <= 64;
    if fits { Ok(()) } else { Err(Error::input(format!("expected chunks of {shape:?}, found {chunks:?}"))) }
}

/// Parses `.zarray` and the attributes beside it.
pub(super) fn of_v2(path: &str, metadata: &Value, attributes: &Value) -> Result<ArrayMetadata> {
    check_version(metadata, 2)?;
    let (shape, chunks) = (require_lengths(metadata, "shape")?, require_lengths(metadata, "chunks")?);
    check_chunks(&shape, &chunks)?;
    let descr = metadata.get("dtype").ok_or_else(|| Error::input("expected a `dtype`"))?;
    let (mut dtype, swapped) = match descr {
        Value::String(text) => npy::parse_type_string(text)?,
        other => npy::parse_descr(&other.to_string())?,
    };
    let codecs = Codecs::of_v2(metadata, shape.len(), swapped)?;
    let filters = metadata.get("filters").map(Value::to_string).unwrap_or_default();
    if dtype.byte_width().is_none() && descr.as_str().is_some_and(|text| text.ends_with('O')) && codecs.is_varied() {
        dtype = if filters.contains("vlen-utf8") { DType::AnyText } else { DType::AnyBytes };
    }
    check_codecs(&codecs, &dtype)?;
    let mut attributes = attributes.as_object().cloned().unwrap_or_default();
    let dims = take_names(attributes.remove("_ARRAY_DIMENSIONS"), shape.len());
    let given = metadata.get("fill_value").unwrap_or(&Value::Null);
    let fill = parse_fill(given, &dtype)?;
    let mut attributes = attributes_of(&attributes, &dtype);
    // xarray stores the missing value of a variable here. Zarr's own default, 0, is what was never written, and no more
    // missing than any other 0.
    let is_number = matches!(dtype, DType::Int(_) | DType::UInt(_) | DType::Float(_));
    let is_default = given.is_null() || given.as_f64() == Some(0.0);
    if !dims.is_empty() && is_number && !is_default && attributes.iter().all(|(name, _)| name != "_FillValue") {
        attributes.push(("_FillValue".to_owned(), Attribute::Numbers(dtype.clone(), fill.clone())));
    }
    let separator = parse_separator(metadata.get("dimension_separator"), ".")?;
    let variable = build_variable(path, dtype, shape, dims, &chunks, &codecs, attributes);
    Ok(ArrayMetadata { variable, path: path.to_owned(), chunks, codecs, fill, key: (String::new(), separator) })
}

/// Parses `zarr.json` of an array.
pub(super) fn of_v3(path: &str, metadata: &Value) -> Result<ArrayMetadata> {
    check_version(metadata, 3)?;
    let shape = require_lengths(metadata, "shape")?;
    let grid = metadata.get("chunk_grid").unwrap_or(&Value::Null);
    if grid.get("name").and_then(Value::as_str) != Some("regular") {
        return Err(Error::input(format!("expected a regular grid of chunks, found {}", grid["name"])));
    }
    let chunks = require_lengths(grid.get("configuration").unwrap_or(&Value::Null), "chunk_shape")?;
    check_chunks(&shape, &chunks)?;
    let dtype = dtype_of(metadata.get("data_type").unwrap_or(&Value::Null))?;
    let codecs = Codecs::of_v3(metadata.get("codecs"), &chunks, 2)?;
    check_codecs(&codecs, &dtype)?;
    if let Some(Value::Array(list)) = metadata.get("storage_transformers").filter(|value| !value.is_null())
        && !list.is_empty()
    {
        return Err(Error::input("expected no storage transformers, found some"));
    }
    let encoding = metadata.get("chunk_key_encoding").unwrap_or(&Value::Null);
    let given = encoding.get("configuration").and_then(|c| c.get("separator"));
    let key = match encoding.get("name").and_then(Value::as_str) {
        Some("v2") => (String::new(), parse_separator(given, ".")?),
        _ => {
            let separator = parse_separator(given, "/")?;
            (format!("c{separator}"), separator)
        }
    };
    let fill = parse_fill(metadata.get("fill_value").unwrap_or(&Value::Null), &dtype)?;
    let attributes = metadata.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default();
    let attributes = attributes_of(&attributes, &dtype);
    let dims = take_names(metadata.get("dimension_names").cloned(), shape.len());
    let variable = build_variable(path, dtype, shape, dims, &chunks, &codecs, attributes);
    Ok(ArrayMetadata { variable, path: path.to_owned(), chunks, codecs, fill, key })
}

/// Fails unless variable-length types, and only they, have variable-length codecs.
fn check_codecs(codecs: &Codecs, dtype: &DType) -> Result<()> {
    match dtype.byte_width() {
        Some(_) if codecs.is_varied() => {
            Err(Error::input(format!("expected a codec for {}, found one for values of variable length", dtype.name())))
        }
        _ => Ok(()),
    }
}

fn build_variable(
    path: &str,
    dtype: DType,
    shape: Vec<u64>,
    dims: Vec<String>,
    chunks: &[u64],
    codecs: &Codecs,
    attributes: Vec<(String, Attribute)>,
) -> Variable {
    Variable {
        name: if path.is_empty() { "array".to_owned() } else { path.replace('/', ".") },
        dtype,
        shape,
        dims,
        unnamed: false,
        chunks: Some(chunks.to_vec()),
        codecs: codecs.names.clone(),
        attributes,
        characters: false,
        fills: false,
    }
}

/// Returns the names of all dimensions; none if some are unnamed.
fn take_names(value: Option<Value>, rank: usize) -> Vec<String> {
    let Some(Value::Array(names)) = value else { return Vec::new() };
    let names: Option<Vec<String>> = names.iter().map(|name| name.as_str().map(str::to_owned)).collect();
    names.filter(|names| names.len() == rank).unwrap_or_default()
}

fn dtype_of(value: &Value) -> Result<DType> {
    let name = value.as_str().or_else(|| value.get("name").and_then(Value::as_str)).unwrap_or_default();
    let configuration = value.get("configuration").unwrap_or(&Value::Null);
    let bytes = || configuration.get("length_bytes").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let numbered = |prefix: &str| name.strip_prefix(prefix).and_then(|bits| bits.parse::<usize>().ok());
    Ok(match name {
        "bool" => DType::Bool,
        "string" | "variable_length_utf8" => DType::AnyText,
        "bytes" | "variable_length_bytes" => DType::AnyBytes,
        "fixed_length_utf32" => DType::Wide(bytes().unwrap_or(0) / 4),
        "null_terminated_bytes" => DType::Text(bytes().unwrap_or(0), Padding::Nul),
        "raw_bytes" => DType::Opaque(bytes().unwrap_or(0)),
        "numpy.datetime64" | "numpy.timedelta64" => {
            let unit = configuration.get("unit").and_then(Value::as_str).unwrap_or("generic");
            let scale = configuration.get("scale_factor").and_then(Value::as_u64).unwrap_or(1);
            let kind = if name == "numpy.datetime64" { "M8" } else { "m8" };
            npy::parse_type_string(&format!("<{kind}[{scale}{unit}]"))?.0
        }
        _ => match (numbered("int"), numbered("uint"), numbered("float"), numbered("complex"), numbered("r")) {
            (Some(bits @ (8 | 16 | 32 | 64)), ..) => DType::Int(bits / 8),
            (_, Some(bits @ (8 | 16 | 32 | 64)), ..) => DType::UInt(bits / 8),
            (_, _, Some(bits @ (16 | 32 | 64)), ..) => DType::Float(bits / 8),
            (_, _, _, Some(bits @ (64 | 128)), _) => DType::Complex(bits / 16),
            (.., Some(bits)) if bits % 8 == 0 => DType::Opaque(bits / 8),
            _ => DType::Refused(format!("the data type `{}`", if name.is_empty() { "?" } else { name })),
        },
    })
}

/// Parses a JSON fill value to native order; zeros if there is none.
fn parse_fill(value: &Value, dtype: &DType) -> Result<Vec<u8>> {
    let Some(width) = dtype.byte_width() else {
        return Ok(value.as_str().map(|text| text.as_bytes().to_vec()).unwrap_or_default());
    };
    let bad = || Error::input(format!("expected a fill value of {}, found {value}", dtype.name()));
    let mut out = vec![0; width];
    match (dtype, value) {
        (_, Value::Null) => {}
        (DType::Complex(part), Value::Array(parts)) if parts.len() == 2 => {
            let part = DType::Float(*part);
            out = [parse_fill(&parts[0], &part)?, parse_fill(&parts[1], &part)?].concat();
        }
        (DType::Float(width), value) => {
            let number = match value {
                Value::String(text) if text.starts_with("0x") => {
                    let bits = u64::from_str_radix(&text[2..], 16).map_err(|_| bad())?;
                    return Ok(number_bytes(bits, *width));
                }
                Value::String(text) => float_word(text).ok_or_else(bad)?,
                other => other.as_f64().ok_or_else(bad)?,
            };
            #[expect(clippy::cast_possible_truncation, reason = "the number is one of the narrow type")]
            let bits = match width {
                2 => u64::from(arrow_half(number)),
                4 => u64::from((number as f32).to_bits()),
                _ => number.to_bits(),
            };
            out = number_bytes(bits, *width);
        }
        (DType::Int(width) | DType::UInt(width), value) => {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number, checked to be one")]
            let number = match (value.as_i64(), value.as_u64(), value.as_f64()) {
                (Some(number), ..) => number.cast_unsigned(),
                (_, Some(number), _) => number,
                (.., Some(number)) if number.fract() == 0.0 => (number as i64).cast_unsigned(),
                _ => return Err(bad()),
            };
            out = number_bytes(number, *width);
        }
        (DType::Instant(..) | DType::Span(..), value) => {
            let number = if value.as_str() == Some("NaT") { i64::MIN } else { value.as_i64().ok_or_else(bad)? };
            out = number.to_ne_bytes().to_vec();
        }
        (DType::Bool, value) => {
            out[0] = u8::from(value.as_bool().or_else(|| value.as_i64().map(|n| n != 0)).ok_or_else(bad)?);
        }
        (DType::Wide(_), Value::String(text)) => {
            for (target, character) in out.chunks_exact_mut(4).zip(text.chars()) {
                target.copy_from_slice(&u32::from(character).to_ne_bytes());
            }
        }
        (_, Value::String(text)) => {
            let bytes = from_base64(text).unwrap_or_else(|| text.as_bytes().to_vec());
            let length = bytes.len().min(width);
            out[..length].copy_from_slice(&bytes[..length]);
        }
        (_, Value::Number(number)) if number.as_f64() == Some(0.0) => {}
        (DType::Opaque(_), Value::Array(bytes)) => {
            for (target, byte) in out.iter_mut().zip(bytes) {
                *target = byte.as_u64().and_then(|byte| u8::try_from(byte).ok()).ok_or_else(bad)?;
            }
        }
        _ => return Err(bad()),
    }
    Ok(out)
}

fn arrow_half(number: f64) -> u16 {
    use arrow::datatypes::{ArrowPrimitiveType, Float16Type};
    <Float16Type as ArrowPrimitiveType>::Native::from_f64(number).to_bits()
}

/// Returns the low bytes of a number, in native order.
fn number_bytes(number: u64, width: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes()[..width].to_vec();
    if cfg!(target_endian = "big") {
        bytes.reverse();
    }
    bytes
}

/// Attributes of the CF conventions that are numbers, which JSON has no words for if they are not finite.
const NUMERIC: [&str; 6] = ["_FillValue", "missing_value", "valid_min", "valid_max", "scale_factor", "add_offset"];

/// Converts JSON attributes of an array of this type.
pub(super) fn attributes_of(attributes: &Map<String, Value>, dtype: &DType) -> Vec<(String, Attribute)> {
    let value = |name: &str, value: &Value| match value {
        // xarray writes floats that JSON cannot represent as their bytes.
        Value::String(text) if NUMERIC.contains(&name) && float_word(text).is_some() => {
            let number = float_word(text).unwrap_or_default();
            Attribute::Numbers(DType::Float(8), number.to_ne_bytes().to_vec())
        }
        Value::String(text) if name == "_FillValue" && matches!(dtype, DType::Float(_)) => {
            match from_base64(text).as_deref().and_then(|bytes| bytes.first_chunk::<8>()) {
                Some(bytes) => {
                    let number = f64::from_le_bytes(*bytes);
                    Attribute::Numbers(DType::Float(8), number.to_ne_bytes().to_vec())
                }
                None => Attribute::Text(text.clone()),
            }
        }
        Value::String(text) => Attribute::Text(text.clone()),
        Value::Number(_) => numeric_attribute(std::slice::from_ref(value)),
        Value::Array(values) if !values.is_empty() && values.iter().all(Value::is_number) => numeric_attribute(values),
        Value::Array(values) if !values.is_empty() && values.iter().all(Value::is_string) => {
            Attribute::Texts(values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect())
        }
        other => Attribute::Other(other.to_string()),
    };
    attributes.iter().map(|(name, given)| (name.clone(), value(name, given))).collect()
}

/// Parses Zarr's names of floats that JSON cannot represent.
fn float_word(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn numeric_attribute(values: &[Value]) -> Attribute {
    if values.iter().all(Value::is_i64) {
        let bytes = values.iter().filter_map(Value::as_i64).flat_map(i64::to_ne_bytes).collect();
        return Attribute::Numbers(DType::Int(8), bytes);
    }
    let bytes = values.iter().filter_map(Value::as_f64).flat_map(f64::to_ne_bytes).collect();
    Attribute::Numbers(DType::Float(8), bytes)
}
