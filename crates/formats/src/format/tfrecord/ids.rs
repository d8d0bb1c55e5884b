//! Ids of records: the text of a few features of an Example; the other features are not decoded.
//!
//! An id depends only on its own record, so it is the same wherever the record is stored and whatever other records
//! hold: numbers as in JSON, text unchanged.

use super::{
    columns::{Item, visit_items},
    decode::{Example, Feature},
    double::widen_float,
};
use crate::{
    codec::base64::to_base64,
    error::{Error, Result},
    record::{key::escape_key, parts::KEY_COLUMN},
};

/// Names of the features that form ids.
#[derive(Debug, Clone, Default)]
pub struct IdFeatures {
    record: Vec<String>,
    subject: Vec<String>,
}

/// The ids of one record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ids {
    /// Record id, unless it is the origin.
    pub record: Option<String>,
    /// Subject id, if the record has one.
    pub subject: Option<String>,
}

impl IdFeatures {
    /// Creates ids from the features `record`, joined with `,`, and `subject`. If `record` is empty, `__key__` is the
    /// record id wherever it is one text.
    pub fn new(record: &[String], subject: Option<&String>) -> Self {
        Self { record: record.to_vec(), subject: subject.into_iter().cloned().collect() }
    }

    /// Returns the requested features, in order.
    pub fn requested_features(&self) -> impl Iterator<Item = &String> {
        self.record.iter().chain(&self.subject)
    }

    /// Returns the ids of a record. A record that lacks one of an id's features has no such id. `seen` receives the
    /// position of each requested feature that is present.
    ///
    /// # Errors
    /// If features were requested, and the record is not an Example or one of them does not have exactly one value with
    /// a text.
    pub fn read(&self, data: &[u8], mut seen: impl FnMut(usize)) -> Result<Ids> {
        let example = match self.read_example(data) {
            Ok(example) => example,
            Err(_) if self.requested_features().next().is_none() => return Ok(Ids::default()),
            Err(problem) => {
                return Err(
                    Error::input(problem).with_hint("without --id and --subject the id of a record is its origin")
                );
            }
        };
        let at_key = || key_text(&example).map(str::to_owned);
        let ids = Ids {
            record: if self.record.is_empty() { at_key() } else { joined_text(&example, &self.record)? },
            subject: if self.subject.is_empty() { None } else { joined_text(&example, &self.subject)? },
        };
        self.requested_features()
            .enumerate()
            .filter(|(_, name)| find_feature(&example, name).is_some())
            .for_each(|(at, _)| seen(at));
        Ok(ids)
    }

    /// Whether a record may have these ids. A table written as TFRecord had more types than TFRecord, so `true` matches
    /// 1, and a key may be escaped. An id that is the origin does not depend on the record.
    pub fn may_have_ids(&self, data: &[u8], record: Option<&str>, subject: Option<&str>) -> bool {
        let Ok(example) = self.read_example(data) else { return record.is_none() && subject.is_none() };
        let is_key = |id: &str| key_text(&example).is_some_and(|key| key == id || key == escape_key(id));
        let is_made_of = |id: &str, columns: &[String]| !columns.is_empty() && can_form_id(&example, columns, id);
        record.is_none_or(|id| is_made_of(id, &self.record) || is_key(id))
            && subject.is_none_or(|id| is_made_of(id, &self.subject))
    }

    /// Like [`may_have_ids`](Self::may_have_ids) for ids stored in another form; `is` compares a stored id with a text.
    pub fn agree_with(
        &self,
        data: &[u8],
        record: Option<&str>,
        subject: Option<&str>,
        is: &dyn Fn(&str, &str) -> bool,
    ) -> bool {
        let Ok(example) = self.read_example(data) else { return record.is_none() && subject.is_none() };
        let made = |columns: &[String]| if columns.is_empty() { Vec::new() } else { joined_texts(&example, columns) };
        let keys = key_text(&example).map(|key| [key.to_owned(), unescape_key(key)]).into_iter().flatten();
        record.is_none_or(|stored| made(&self.record).into_iter().chain(keys).any(|id| is(stored, &id)))
            && subject.is_none_or(|stored| made(&self.subject).iter().any(|id| is(stored, id)))
    }

    fn read_example<'a>(&self, data: &'a [u8]) -> Result<Example<'a>, String> {
        Example::read_some(data, &|name| name == KEY_COLUMN || self.requested_features().any(|wanted| wanted == name))
    }
}

/// Returns the names of the features of a record, sorted; empty if it is not an Example.
pub fn feature_names(data: &[u8]) -> Vec<String> {
    let example = Example::read_some(data, &|_| false).unwrap_or_default();
    example.features.iter().map(|(name, _)| (*name).to_owned()).collect()
}

fn find_feature<'e, 'a>(example: &'e Example<'a>, name: &str) -> Option<&'e Feature<'a>> {
    example.features.iter().find(|(found, _)| *found == name).map(|(_, feature)| feature)
}

fn key_text<'a>(example: &Example<'a>) -> Option<&'a str> {
    match find_feature(example, KEY_COLUMN)? {
        Feature::Bytes(values) => match values[..] {
            [bytes] => str::from_utf8(bytes).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the joined texts of features; `None` if one of them is absent.
fn joined_text(example: &Example<'_>, columns: &[String]) -> Result<Option<String>> {
    let mut parts = Vec::with_capacity(columns.len());
    for column in columns {
        let values = feature_values(example, column);
        match values[..] {
            [] if matches!(find_feature(example, column), None | Some(Feature::None)) => return Ok(None),
            [value] => match value.to_text() {
                Some(text) => parts.push(text),
                None => {
                    return Err(Error::input("expected text or a number, found bytes that are not UTF-8")
                        .in_column(column.clone()));
                }
            },
            _ => {
                return Err(
                    Error::input(format!("expected one value, found {}", values.len())).in_column(column.clone())
                );
            }
        }
    }
    Ok(Some(parts.join(",")))
}

/// Returns the values of a feature; empty if it is absent.
fn feature_values<'a>(example: &Example<'a>, column: &str) -> Vec<Item<'a>> {
    let mut values = Vec::new();
    if let Some(feature) = find_feature(example, column) {
        visit_items(feature, example.find_exact(column), |value| {
            values.push(value);
            Some(())
        });
    }
    values
}

/// Whether texts of the features, joined, may form this id.
fn can_form_id(example: &Example<'_>, columns: &[String], id: &str) -> bool {
    let Some((column, others)) = columns.split_first() else { return id.is_empty() };
    let [value] = feature_values(example, column)[..] else { return false };
    possible_texts(value).iter().any(|text| match id.strip_prefix(text.as_str()) {
        Some("") => others.is_empty(),
        Some(rest) => {
            !others.is_empty() && rest.strip_prefix(',').is_some_and(|rest| can_form_id(example, others, rest))
        }
        None => false,
    })
}

/// Returns every id that the features may form.
fn joined_texts(example: &Example<'_>, columns: &[String]) -> Vec<String> {
    let mut made = vec![String::new()];
    for (number, column) in columns.iter().enumerate() {
        let [value] = feature_values(example, column)[..] else { return Vec::new() };
        let texts = possible_texts(value);
        let comma = if number == 0 { "" } else { "," };
        let longer = |begin: &String| texts.iter().map(|text| format!("{begin}{comma}{text}")).collect::<Vec<_>>();
        made = made.iter().flat_map(longer).collect();
    }
    made
}

/// Returns a key without its escapes.
fn unescape_key(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'%').then(|| after.get(..2)).flatten().and_then(|code| str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

/// Returns every text that a value may have as a value of some type.
fn possible_texts(value: Item<'_>) -> Vec<String> {
    let mut texts: Vec<String> = value.to_text().map(Into::into).into_iter().collect();
    match value {
        Item::Int(0) => texts.push("false".to_owned()),
        Item::Int(1) => texts.push("true".to_owned()),
        Item::Float(float) => texts.extend(Item::Double(widen_float(float, &mut Vec::new())).to_text().map(Into::into)),
        Item::Bytes(bytes) => texts.push(to_base64(bytes)),
        _ => {}
    }
    texts
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DurationSecondArray, Float32Array,
        Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, TimestampNanosecondArray,
        UInt64Array,
    };

    use super::*;
    use crate::{
        format::{
            Framed, Framing, Keyed,
            tfrecord::{TfRecordFraming, scan_with},
        },
        record::{Payload, json::text_of},
    };

    /// Returns the data of each row as a record.
    fn records(batch: &RecordBatch) -> Vec<Vec<u8>> {
        let mut framed = Framed::default();
        let payload = Payload::Rows(batch.clone());
        TfRecordFraming.frame(Keyed::new(&payload, &[]), &mut framed).unwrap();
        let mut out = Vec::new();
        let keep = |data: Option<&[u8]>| out.extend(data.map(<[u8]>::to_vec));
        scan_with(&mut &framed.bytes[..], 1 << 20, keep, |_, ()| Ok(())).unwrap();
        out
    }

    #[test]
    fn escapes_of_keys_are_undone() {
        for key in ["", "scan 1.5mm", "../x", "/abs", "__init__", "100%", "100%25", "é/漢.x", "a%zz", "%2"] {
            assert_eq!(unescape_key(&escape_key(key)), if key.is_empty() { "%" } else { key });
        }
    }

    fn names(columns: &[&str]) -> Vec<String> {
        columns.iter().map(|c| (*c).to_owned()).collect()
    }

    fn batch() -> RecordBatch {
        let columns: [(&str, ArrayRef); 6] = [
            ("id", Arc::new(StringArray::from(vec![Some("a,b"), Some(""), None]))),
            ("n", Arc::new(Int64Array::from(vec![7, -1, 0]))),
            ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
            ("f", Arc::new(Float64Array::from(vec![1e15, 129.16, 0.1 + 0.2]))),
            ("raw", Arc::new(BinaryArray::from(vec![&b"\xff\xfe"[..], b"text", b"\x80"]))),
            ("__key__", Arc::new(StringArray::from(vec!["k1", "k 2", "k3"]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn ids_are_the_texts_of_their_features() {
        let records = records(&batch());
        let ids = IdFeatures::new(&names(&["id", "n"]), Some(&"n".to_owned()));
        let found: Vec<Ids> = records.iter().map(|data| ids.read(data, |_| {}).unwrap()).collect();
        let expected = [Some("a,b,7"), Some(",-1"), None];
        assert_eq!(found.iter().map(|ids| ids.record.as_deref()).collect::<Vec<_>>(), expected);
        assert_eq!(found.iter().map(|ids| ids.subject.as_deref().unwrap()).collect::<Vec<_>>(), ["7", "-1", "0"]);
        let key = IdFeatures::new(&[], None);
        assert_eq!(key.read(&records[1], |_| {}).unwrap().record.as_deref(), Some("k 2"));
        assert_eq!(key.read(b"no Example", |_| {}).unwrap(), Ids::default());
        let mut seen = Vec::new();
        ids.read(&records[2], |at| seen.push(at)).unwrap();
        assert_eq!(seen, [1, 2], "a null is a feature that is absent");
        assert_eq!(feature_names(&records[2]), ["__key__", "b", "f", "n", "raw"]);
    }

    #[test]
    fn features_without_text_are_errors() {
        let data = &records(&batch())[0];
        let read = |columns: &[&str], data: &[u8]| IdFeatures::new(&names(columns), None).read(data, |_| {});
        assert!(read(&["raw"], data).unwrap_err().message().contains("not UTF-8"));
        assert!(read(&["id"], b"\x12\x00").unwrap_err().message().contains("SequenceExample"));
    }

    /// The id that a conversion stores for a row must never be reported as damage of the record made from it.
    #[test]
    fn ids_of_every_type_agree_with_the_records_made_of_them() {
        let more: [(&str, ArrayRef); 7] = [
            ("date", Arc::new(Date32Array::from(vec![0, 19_000, -1]))),
            ("at", Arc::new(TimestampMicrosecondArray::from(vec![0, 1_500_000, -1]).with_timezone("UTC"))),
            ("ns", Arc::new(TimestampNanosecondArray::from(vec![0, 1_000_000_007, -1]))),
            ("dec", Arc::new(Decimal128Array::from(vec![150, 0, -7]).with_precision_and_scale(9, 2).unwrap())),
            ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1]))),
            ("f32", Arc::new(Float32Array::from(vec![1e15, 129.16, f32::NAN]))),
            ("took", Arc::new(DurationSecondArray::from(vec![1, 90, -1]))),
        ];
        let batch = batch();
        let first =
            batch.schema().fields().iter().map(|f| f.name().clone()).zip(batch.columns().to_vec()).collect::<Vec<_>>();
        let batch =
            RecordBatch::try_from_iter(first.into_iter().chain(more.map(|(name, column)| (name.to_owned(), column))))
                .unwrap();
        for (row, data) in records(&batch).iter().enumerate() {
            for (at, field) in batch.schema().fields().iter().enumerate() {
                let Some(id) = text_of(batch.column(at).as_ref(), row) else { continue };
                let ids = IdFeatures::new(&names(&[field.name(), "n"]), Some(field.name()));
                let n = text_of(batch.column(1).as_ref(), row).unwrap();
                assert!(ids.may_have_ids(data, Some(&format!("{id},{n}")), Some(&id)), "{field:?} {id}");
                assert!(!ids.may_have_ids(data, Some(&format!("{id}x,{n}")), None), "{field:?} {id}");
                assert!(!ids.may_have_ids(data, None, Some("x")));
                let equal = |stored: &str, id: &str| stored == id;
                assert!(ids.agree_with(data, Some(&format!("{id},{n}")), Some(&id), &equal), "{field:?} {id}");
                assert!(!ids.agree_with(data, Some(&format!("{id}x,{n}")), None, &equal), "{field:?} {id}");
                assert!(!ids.agree_with(data, None, Some("x"), &equal));
            }
            assert!(IdFeatures::default().may_have_ids(data, key_text(&Example::read(data).unwrap()), None));
        }
    }
}
