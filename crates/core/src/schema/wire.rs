//! Columns as text: an Arrow IPC schema in base64, which keeps every type and all metadata.

use arrow::{
    datatypes::{Field, Fields, Schema},
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use serde::{Deserialize, Deserializer, Serializer, de::Error as _, ser::Error as _};

use crate::{
    codec::base64::{from_base64, to_base64},
    error::{Error, Result},
};

/// Returns columns as text.
///
/// # Errors
/// If IPC cannot represent a column.
pub fn encode_fields(fields: &Fields) -> Result<String> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, &Schema::new(fields.clone()))?.finish()?;
    Ok(to_base64(&bytes))
}

/// Returns the columns of a text.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if [`encode_fields`] did not make it.
pub fn decode_fields(text: &str) -> Result<Fields> {
    let damaged = || Error::integrity("expected a schema of Arrow IPC in base64, found something else");
    let bytes = from_base64(text).ok_or_else(damaged)?;
    let reader = StreamReader::try_new(bytes.as_slice(), None).map_err(|e| damaged().with_cause(e))?;
    Ok(reader.schema().fields().clone())
}

/// Serializes columns, for `#[serde(with)]`.
///
/// # Errors
/// As [`encode_fields`].
pub fn serialize<S: Serializer>(fields: &Fields, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode_fields(fields).map_err(S::Error::custom)?)
}

/// Deserializes columns, for `#[serde(with)]`.
///
/// # Errors
/// As [`decode_fields`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
    decode_fields(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Serializes single columns, for `#[serde(with)]`.
pub mod list {
    use super::{Deserializer, Field, Fields, Serializer};

    /// Serializes columns.
    ///
    /// # Errors
    /// As [`encode_fields`](super::encode_fields).
    pub fn serialize<S: Serializer>(fields: &[Field], serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize(&Fields::from(fields.to_vec()), serializer)
    }

    /// Deserializes columns.
    ///
    /// # Errors
    /// As [`decode_fields`](super::decode_fields).
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Field>, D::Error> {
        Ok(super::deserialize(deserializer)?.iter().map(|field| field.as_ref().clone()).collect())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::datatypes::{DataType, TimeUnit};

    use super::*;

    #[test]
    fn every_type_and_all_metadata_come_back() {
        let tagged = Field::new("b", DataType::Decimal128(7, 2), false)
            .with_metadata(std::collections::HashMap::from([("unit".to_owned(), "mm".to_owned())]));
        let fields = Fields::from(vec![
            Field::new("a", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true),
            tagged,
            Field::new_list("c", Field::new_list_field(DataType::Utf8, true), true),
        ]);
        assert_eq!(decode_fields(&encode_fields(&fields).unwrap()).unwrap(), fields);
        assert_eq!(decode_fields(&encode_fields(&Fields::empty()).unwrap()).unwrap(), Fields::empty());
    }

    #[test]
    fn damaged_text_is_an_error() {
        let text = encode_fields(&Fields::from(vec![Field::new("a", DataType::Int64, true)])).unwrap();
        for damaged in ["", "AAAA", "?", &text[..40]] {
            assert!(decode_fields(damaged).is_err(), "{damaged}");
        }
    }
}
