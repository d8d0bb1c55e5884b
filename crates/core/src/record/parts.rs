//! Rows as samples and back: one part per column turns a table row into a WebDataset sample.
//!
//! ```text
//! __key__   cls   jpg     meta                     scan-1.cls   7
//! scan-1    7     FF D8   {"age": 41}      <->     scan-1.jpg   FF D8
//!                                                  scan-1.meta.json   {"age":41}
//! ```
//!
//! Text and binary are stored unchanged, other scalars as their JSON text, lists and structs as JSON with `.json` after
//! the column's name. Null is an absent part. A struct of `bytes` and `path`, in which Hugging Face stores media, is
//! represented by its bytes.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    buffer::NullBuffer,
    compute::cast,
    datatypes::{DataType, Field, Fields},
};
use bytes::Bytes;

use super::{Part, Sample, json::text_of, path::struct_member};
use crate::{
    error::{Error, Result},
    schema,
};

/// Name of the column that holds the key of a sample.
pub const KEY_COLUMN: &str = "__key__";

/// Last components of extensions of images and recordings that Hugging Face decodes.
const IMAGES: &[&str] = &["bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp"];
const SOUNDS: &[&str] = &["aac", "flac", "m4a", "mp3", "ogg", "opus", "wav"];

/// Returns Hugging Face's feature for parts with this extension: `Image` or `Audio`.
pub fn media_feature(extension: &str) -> Option<&'static str> {
    let last = extension.rsplit('.').next().unwrap_or_default();
    match last {
        _ if IMAGES.contains(&last) => Some("Image"),
        _ if SOUNDS.contains(&last) => Some("Audio"),
        _ => None,
    }
}

/// Returns the type in which Hugging Face stores an image or a recording.
pub fn media_type() -> DataType {
    let fields = vec![Field::new("bytes", DataType::Binary, true), Field::new("path", DataType::Utf8, true)];
    DataType::Struct(fields.into())
}

/// Whether a table holds samples: a key, and apart from it only parts.
pub fn is_table_of_samples(fields: &Fields) -> bool {
    let key = fields.find(KEY_COLUMN).is_some_and(|(_, f)| is_text(f.data_type()));
    key && fields.iter().all(|f| f.name() == KEY_COLUMN || is_content(f.data_type()) || is_media(f.data_type()))
}

/// Whether a struct is of the type in which Hugging Face stores an image or a recording: `{bytes, path}`.
pub fn is_media(data_type: &DataType) -> bool {
    let DataType::Struct(fields) = data_type else { return false };
    let bytes = fields.find("bytes").is_some_and(|(_, f)| is_binary(f.data_type()));
    fields.len() == 2 && bytes && fields.find("path").is_some_and(|(_, f)| is_text(f.data_type()))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

fn is_content(data_type: &DataType) -> bool {
    is_text(data_type) || is_binary(data_type)
}

/// Converts rows to samples; `keys` has one key per row. A row of nulls is a sample without parts.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when two columns would become the same part, or a column name is not
/// valid as an extension.
pub fn samples_of_rows(batch: &RecordBatch, keys: &[String]) -> Result<Vec<Sample>> {
    let columns: Vec<PartColumn> = parts_of(batch.schema_ref().fields())?
        .into_iter()
        .map(|(extension, at)| PartColumn::new(extension, batch.column(at)))
        .collect::<Result<_>>()?;
    let sample = |(row, key): (usize, &String)| Sample {
        key: key.clone(),
        origin: String::new(),
        subject: None,
        parts: columns.iter().filter_map(|column| column.row_part(row)).collect(),
    };
    Ok(keys.iter().enumerate().map(sample).collect())
}

/// Returns the samples of rows without their keys.
///
/// # Errors
/// Those of [`samples_of_rows`].
pub fn unnamed_samples(batch: &RecordBatch) -> Result<Vec<Sample>> {
    samples_of_rows(batch, &vec![String::new(); batch.num_rows()])
}

/// Returns the extensions of the parts with the columns that they are made of, sorted by extension.
fn parts_of(fields: &Fields) -> Result<Vec<(String, usize)>> {
    let mut parts: Vec<(String, usize)> = Vec::with_capacity(fields.len());
    for (at, field) in fields.iter().enumerate().filter(|(_, f)| f.name() != KEY_COLUMN) {
        parts.push((extension_of(field)?, at));
    }
    parts.sort();
    if let Some(pair) = parts.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (one, other) = (fields[pair[0].1].name(), fields[pair[1].1].name());
        return Err(Error::input(format!(
            "expected column names that are distinct extensions, found `{one}` and `{other}`"
        ))
        .with_hint("WebDataset readers ignore case; rename one of the two, or use --write rows=json"));
    }
    Ok(parts)
}

/// Returns the extension of the part that a column becomes.
fn extension_of(field: &Field) -> Result<String> {
    let name = field.name().to_lowercase();
    let unfit = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    if name.is_empty() || name.contains(unfit) || name.starts_with('.') {
        return Err(Error::input(format!("expected a column name that can be an extension, found `{}`", field.name()))
            .in_column(field.name())
            .with_hint("rename the column, or use --write rows=json"));
    }
    let nested = !schema::is_scalar(field.data_type()) && !is_media(field.data_type());
    Ok(if nested && !name.ends_with("json") { format!("{name}.json") } else { name })
}

/// A column prepared for conversion to parts.
struct PartColumn {
    extension: String,
    array: ArrayRef,
    nulls: Option<NullBuffer>,
    /// Whether values are stored unchanged; the array is then binary.
    content: bool,
}

impl PartColumn {
    fn new(extension: String, array: &ArrayRef) -> Result<Self> {
        let data_type = array.data_type();
        let array = if is_media(data_type) {
            struct_member(array.as_struct(), "bytes")?.ok_or_else(|| Error::internal("media without bytes"))?
        } else {
            Arc::clone(array)
        };
        let content = is_content(array.data_type());
        let array = if content { cast(&array, &DataType::LargeBinary)? } else { array };
        Ok(Self { extension, nulls: array.logical_nulls(), array, content })
    }

    fn row_part(&self, row: usize) -> Option<Part> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let bytes = if self.content {
            Bytes::copy_from_slice(self.array.as_binary::<i64>().value(row))
        } else {
            Bytes::from(text_of(self.array.as_ref(), row)?)
        };
        Some(Part { extension: self.extension.clone(), bytes })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {

    use arrow::array::{BinaryArray, Int64Array, ListArray, StringArray, StructArray};
    use arrow::datatypes::Int32Type;

    use super::*;
    use crate::error::Kind;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn texts(sample: &Sample) -> Vec<(String, String)> {
        sample.parts.iter().map(|p| (p.extension.clone(), String::from_utf8_lossy(&p.bytes).into_owned())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn every_value_is_a_part_and_null_is_not() {
        let tags = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
        let rows = batch(vec![
            ("__key__", Arc::new(StringArray::from(vec!["a", "b"]))),
            ("txt", Arc::new(StringArray::from(vec![Some("word"), Some("")]))),
            ("Age", Arc::new(Int64Array::from(vec![Some(41), None]))),
            ("jpg", Arc::new(BinaryArray::from_opt_vec(vec![Some(&b"\x7f"[..]), None]))),
            ("tags", Arc::new(tags)),
        ]);
        let samples = samples_of_rows(&rows, &["a".into(), "b".into()]).unwrap();
        assert_eq!(
            texts(&samples[0]),
            pairs(&[("age", "41"), ("jpg", "\u{7f}"), ("tags.json", "[1,null]"), ("txt", "word")])
        );
        assert_eq!((samples[1].key.as_str(), texts(&samples[1])), ("b", pairs(&[("txt", "")])));
    }

    #[test]
    fn hugging_face_media_are_their_bytes() {
        let bytes: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![Some(&b"x"[..]), None]));
        let path: ArrayRef = Arc::new(StringArray::from(vec![Some("a.jpg"), None]));
        let media = StructArray::try_from(vec![("bytes", bytes), ("path", path)]).unwrap();
        let rows =
            batch(vec![("__key__", Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef), ("jpg", Arc::new(media))]);
        assert!(is_table_of_samples(rows.schema_ref().fields()));
        let samples = samples_of_rows(&rows, &["a".into(), "b".into()]).unwrap();
        assert_eq!((texts(&samples[0]), samples[1].parts.len()), (pairs(&[("jpg", "x")]), 0));
    }

    #[test]
    fn names_that_cannot_be_extensions_are_refused() {
        let column = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
        for names in [&["a", "A"][..], &["a b"], &["a/b"], &[".a"], &[""]] {
            let rows = batch(names.iter().map(|name| (*name, column())).collect());
            assert_eq!(samples_of_rows(&rows, &["k".into()]).unwrap_err().kind(), Kind::Input, "{names:?}");
            assert!(!is_table_of_samples(rows.schema_ref().fields()));
        }
    }
}
