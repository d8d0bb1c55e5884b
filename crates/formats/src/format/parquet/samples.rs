//! Samples as rows: the key, and one column per extension.
//!
//! ```text
//! __key__   cls     jpg
//! a/0001    "7"     FF D8 FF ...                              text where all parts of that extension are UTF-8
//! a/0002    null    FF D8 FF ...                              null where a sample has no such part
//!
//! __key__   cls     jpg: {bytes, path}                        as Hugging Face stores media
//! a/0001    "7"     {FF D8 FF ..., "a/0001.jpg"}
//! ```

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BinaryArray, BinaryBuilder, RecordBatch, StringArray, StructArray},
    buffer::NullBuffer,
    datatypes::{DataType, Field, Fields, Schema, SchemaRef},
};
use serde_json::{Map, Value, json};

use crate::{
    error::{Error, Result},
    record::{
        Sample,
        parts::{KEY_COLUMN, is_media, is_table_of_samples, media_feature, media_type},
    },
};

/// Returns the schema of samples whose parts have these types, in any order; a field `__key__` among them is ignored.
/// With `media`, images and audio are stored as Hugging Face does.
///
/// Every column is nullable, including the key, so that schemas united from several conversions equal their parts.
pub fn schema_of_samples(parts: &Fields, media: bool) -> SchemaRef {
    let mut parts: Vec<&Arc<Field>> = parts.iter().filter(|f| f.name() != KEY_COLUMN).collect();
    parts.sort_by_key(|f| f.name());
    parts.dedup_by_key(|f| f.name());
    let key = Field::new(KEY_COLUMN, DataType::Utf8, true);
    let part = |field: &Arc<Field>| match media_feature(field.name()) {
        Some(_) if media => Field::new(field.name(), media_type(), true),
        _ => Field::new(field.name(), field.data_type().clone(), true),
    };
    Arc::new(Schema::new(std::iter::once(key).chain(parts.into_iter().map(part)).collect::<Vec<_>>()))
}

/// Returns the footer metadata that makes Hugging Face decode media: key and value; `None` if there are no media
/// columns.
pub fn media_metadata(schema: &SchemaRef) -> Option<(String, String)> {
    let media = schema.fields().iter().any(|f| is_media(f.data_type()));
    if !media || !is_table_of_samples(schema.fields()) {
        return None;
    }
    let value = |data_type: &DataType| if *data_type == DataType::Binary { "binary" } else { "string" };
    let feature = |field: &Arc<Field>| match media_feature(field.name()) {
        Some(kind) if is_media(field.data_type()) => json!({ "_type": kind }),
        _ => json!({ "dtype": value(field.data_type()), "_type": "Value" }),
    };
    let features: Map<String, Value> = schema.fields().iter().map(|f| (f.name().clone(), feature(f))).collect();
    Some(("huggingface".to_owned(), json!({ "info": { "features": features } }).to_string()))
}

/// Returns a batch with one row per sample, in order, with the columns of a schema made by [`schema_of_samples`].
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) if a part's extension is not in the schema or a part of a text
/// column is not text, and [`Kind::Input`](crate::error::Kind::Input) if the parts of one column exceed the 2 GiB that
/// a batch can hold.
pub fn batch_of_samples(samples: &[Sample], schema: &SchemaRef) -> Result<RecordBatch> {
    let Some((_, fields)) = schema.fields().split_first().filter(|(key, _)| key.name() == KEY_COLUMN) else {
        return Err(Error::internal("expected the key of the sample to be the first column"));
    };
    let fits = |sample: &Sample| sample.parts.iter().all(|part| fields.iter().any(|f| *f.name() == part.extension));
    if let Some(sample) = samples.iter().find(|sample| !fits(sample)) {
        return Err(Error::internal("a part has an extension that the schema lacks").at_location(sample_place(sample)));
    }
    let keys: StringArray = samples.iter().map(|sample| Some(sample.key.as_str())).collect();
    let mut columns: Vec<ArrayRef> = vec![Arc::new(keys)];
    for field in fields {
        columns.push(build_column(samples, field)?);
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn sample_place(sample: &Sample) -> &str {
    if sample.origin.is_empty() { &sample.key } else { &sample.origin }
}

fn build_column(samples: &[Sample], field: &Field) -> Result<ArrayRef> {
    let bytes = part_contents(samples, field.name())?;
    Ok(match field.data_type() {
        DataType::Utf8 => Arc::new(StringArray::try_from_binary(bytes).map_err(|e| {
            Error::internal("a part of a text column is not UTF-8").in_column(field.name()).with_cause(e)
        })?),
        DataType::Struct(fields) => {
            let path = |(row, sample): (usize, &Sample)| {
                bytes.is_valid(row).then(|| format!("{}.{}", sample.key, field.name()))
            };
            let paths: StringArray = samples.iter().enumerate().map(path).collect();
            let nulls: Option<NullBuffer> = bytes.nulls().cloned();
            Arc::new(StructArray::try_new(fields.clone(), vec![Arc::new(bytes), Arc::new(paths)], nulls)?)
        }
        _ => Arc::new(bytes),
    })
}

/// Returns the parts of one extension.
fn part_contents(samples: &[Sample], extension: &str) -> Result<BinaryArray> {
    let part = |sample: &'_ Sample| sample.parts.iter().position(|part| part.extension == extension);
    let mut bytes = 0_usize;
    for sample in samples {
        bytes += part(sample).map_or(0, |at| sample.parts[at].bytes.len());
        if i32::try_from(bytes).is_err() {
            return Err(Error::input(format!("expected at most 2 GiB of `.{extension}` in a row group, found more"))
                .at_location(sample_place(sample))
                .with_hint("use --to tar, which has no such limit, or a smaller --write row-group"));
        }
    }
    let mut builder = BinaryBuilder::with_capacity(samples.len(), bytes);
    for sample in samples {
        builder.append_option(part(sample).map(|at| &sample.parts[at].bytes));
    }
    Ok(builder.finish())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::AsArray;

    use super::*;
    use crate::{
        error::Kind,
        record::{Part, key::part_type},
    };

    fn sample(key: &str, parts: &[(&str, &'static [u8])]) -> Sample {
        Sample {
            key: key.into(),
            origin: format!("{key}.*"),
            subject: None,
            parts: parts
                .iter()
                .map(|(extension, bytes)| Part {
                    extension: (*extension).into(),
                    bytes: bytes::Bytes::from_static(bytes),
                })
                .collect(),
        }
    }

    fn parts(names: &[&str]) -> Fields {
        names.iter().map(|name| Field::new(*name, part_type(name, b""), true)).collect()
    }

    #[test]
    fn schema_is_sorted_and_unique() {
        let schema = schema_of_samples(&parts(&["png", "cls", "__key__", "png", "seg.png"]), false);
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["__key__", "cls", "png", "seg.png"]);
        assert_eq!((schema.field(1).data_type(), schema.field(2).data_type()), (&DataType::Utf8, &DataType::Binary));
    }

    #[test]
    fn missing_parts_are_null_and_empty_parts_are_not() {
        let schema = schema_of_samples(&parts(&["cls", "jpg"]), false);
        let samples = [sample("a/1", &[("cls", b"7"), ("jpg", b"\xff\xd8")]), sample("a/2", &[("cls", b"")])];
        let batch = batch_of_samples(&samples, &schema).unwrap();
        assert_eq!(batch.column(0).as_string::<i32>().value(1), "a/2");
        let classes = batch.column(1).as_string::<i32>();
        assert_eq!((classes.value(0), classes.value(1), classes.null_count()), ("7", "", 0));
        let images = batch.column(2).as_binary::<i32>();
        assert_eq!((images.value(0), images.is_null(1)), (&b"\xff\xd8"[..], true));
    }

    #[test]
    fn media_are_what_hugging_face_expects() {
        let schema = schema_of_samples(&parts(&["cls", "jpg"]), true);
        let samples = [sample("a/1", &[("cls", b"7"), ("jpg", b"\xff\xd8")]), sample("a/2", &[("cls", b"1")])];
        let batch = batch_of_samples(&samples, &schema).unwrap();
        let media = batch.column(2).as_struct();
        assert_eq!((media.is_null(0), media.is_null(1)), (false, true));
        assert_eq!(media.column(1).as_string::<i32>().value(0), "a/1.jpg");
        let (key, text) = media_metadata(&schema).unwrap();
        assert_eq!(key, "huggingface");
        assert!(text.contains(r#""jpg":{"_type":"Image"}"#), "{text}");
        assert!(media_metadata(&schema_of_samples(&parts(&["jpg"]), false)).is_none());
    }

    #[test]
    fn parts_without_a_valid_column_are_errors() {
        let schema = schema_of_samples(&parts(&["cls"]), false);
        let error = batch_of_samples(&[sample("a", &[("jpg", b"x")])], &schema).unwrap_err();
        assert_eq!(error.kind(), Kind::Internal);
        let no_text = batch_of_samples(&[sample("a", &[("cls", b"\xff")])], &schema).unwrap_err();
        assert_eq!(no_text.kind(), Kind::Internal);
        let no_key = Arc::new(Schema::new(vec![Field::new("cls", DataType::Binary, true)]));
        assert_eq!(batch_of_samples(&[], &no_key).unwrap_err().kind(), Kind::Internal);
    }
}
