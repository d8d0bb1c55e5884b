//! Samples as rows: the key, and one column of bytes per extension.
//!
//! ```text
//! __key__   cls     jpg
//! a/0001    "7"     FF D8 FF ...
//! a/0002    null    FF D8 FF ...      a sample without a part of that extension
//! ```

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BinaryBuilder, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
};

use crate::{
    error::{Error, Result},
    record::Sample,
};

/// Name of the column that holds the key of a sample.
pub const KEY_COLUMN: &str = "__key__";

/// Schema of samples whose parts have these extensions, in any order and any number of times.
///
/// Every column is nullable, the key too, so that schemas united from several conversions stay equal to their parts.
pub fn schema_of_samples(extensions: &[String]) -> SchemaRef {
    let mut extensions: Vec<&str> = extensions.iter().map(String::as_str).collect();
    extensions.sort_unstable();
    extensions.dedup();
    let key = Field::new(KEY_COLUMN, DataType::Utf8, true);
    let parts = extensions.into_iter().map(|extension| Field::new(extension, DataType::Binary, true));
    Arc::new(Schema::new(std::iter::once(key).chain(parts).collect::<Vec<_>>()))
}

/// One row per sample, in order, with the columns of a schema made by [`schema_of_samples`].
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when a part's extension is not in the schema, and
/// [`Kind::Input`](crate::error::Kind::Input) when the parts of one column exceed the 2 GiB that a batch can hold.
pub fn batch_of_samples(samples: &[Sample], schema: &SchemaRef) -> Result<RecordBatch> {
    let Some((_, fields)) = schema.fields().split_first().filter(|(key, _)| key.name() == KEY_COLUMN) else {
        return Err(Error::internal("expected the key of the sample to be the first column"));
    };
    let fits = |sample: &Sample| sample.parts.iter().all(|part| fields.iter().any(|f| *f.name() == part.extension));
    if let Some(sample) = samples.iter().find(|sample| !fits(sample)) {
        return Err(Error::internal("a part has an extension that the schema lacks").at(sample.origin.as_str()));
    }
    let keys: StringArray = samples.iter().map(|sample| Some(sample.key.as_str())).collect();
    let mut columns: Vec<ArrayRef> = vec![Arc::new(keys)];
    for field in fields {
        columns.push(Arc::new(column(samples, field.name())?.finish()));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn column(samples: &[Sample], extension: &str) -> Result<BinaryBuilder> {
    let part = |sample: &'_ Sample| sample.parts.iter().position(|part| part.extension == extension);
    let mut bytes = 0_usize;
    for sample in samples {
        bytes += part(sample).map_or(0, |at| sample.parts[at].bytes.len());
        if i32::try_from(bytes).is_err() {
            return Err(Error::input(format!("expected at most 2 GiB of `.{extension}` in a row group, found more"))
                .at(sample.origin.as_str())
                .hint("use --to tar, which has no such limit, or a smaller --row-group"));
        }
    }
    let mut builder = BinaryBuilder::with_capacity(samples.len(), bytes);
    for sample in samples {
        builder.append_option(part(sample).map(|at| &sample.parts[at].bytes));
    }
    Ok(builder)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::{Array, AsArray};

    use super::*;
    use crate::{error::Kind, record::Part};

    fn sample(key: &str, parts: &[(&str, &'static [u8])]) -> Sample {
        Sample {
            key: key.into(),
            origin: format!("{key}.*"),
            parts: parts
                .iter()
                .map(|(extension, bytes)| Part {
                    extension: (*extension).into(),
                    bytes: bytes::Bytes::from_static(bytes),
                })
                .collect(),
        }
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn schema_is_sorted_and_unique() {
        let schema = schema_of_samples(&strings(&["png", "cls", "png", "seg.png"]));
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["__key__", "cls", "png", "seg.png"]);
    }

    #[test]
    fn missing_parts_are_null_and_empty_parts_are_not() {
        let schema = schema_of_samples(&strings(&["cls", "jpg"]));
        let samples = [sample("a/1", &[("cls", b"7"), ("jpg", b"\xff\xd8")]), sample("a/2", &[("cls", b"")])];
        let batch = batch_of_samples(&samples, &schema).unwrap();
        assert_eq!(batch.column(0).as_string::<i32>().value(1), "a/2");
        let classes = batch.column(1).as_binary::<i32>();
        assert_eq!((classes.value(0), classes.value(1), classes.null_count()), (&b"7"[..], &b""[..], 0));
        let images = batch.column(2).as_binary::<i32>();
        assert_eq!((images.value(0), images.is_null(1)), (&b"\xff\xd8"[..], true));
    }

    #[test]
    fn no_part_is_dropped_silently() {
        let schema = schema_of_samples(&strings(&["cls"]));
        let error = batch_of_samples(&[sample("a", &[("jpg", b"x")])], &schema).unwrap_err();
        assert_eq!(error.kind(), Kind::Internal);
        let no_key = Arc::new(Schema::new(vec![Field::new("cls", DataType::Binary, true)]));
        assert_eq!(batch_of_samples(&[], &no_key).unwrap_err().kind(), Kind::Internal);
    }
}
