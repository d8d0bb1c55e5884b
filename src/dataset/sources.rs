//! The list of sources: what was converted, so that a re-run finds nothing to do and a changed source is noticed.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array},
    datatypes::{DataType, Field, Schema, TimeUnit},
};
use jiff::Timestamp;

use super::{
    log::ListRef,
    table::{self, column},
};
use crate::{error::Result, id::Version, storage::Store};

/// One converted input object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// Its URL or absolute path.
    pub uri: String,
    /// Name under which origins refer to it.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// When it was last written.
    pub modified: Timestamp,
    /// Entity tag, where the store has one.
    pub etag: Option<String>,
    /// XXH3-64 of its bytes.
    pub hash: u64,
    /// Records read from it, rejected ones included; 0 for a file that is one part of a sample.
    pub records: u64,
    /// Number of its first record that was written, when its records are consecutive.
    pub first_record: u64,
    /// Version that took it in.
    pub version: Version,
}

/// Sources that a run adds, made on demand, because there may be millions.
pub trait NewSources {
    /// The rows, with record numbers relative to the first new record.
    fn rows(&self) -> Box<dyn Iterator<Item = SourceRow> + '_>;
}

/// No sources.
impl NewSources for () {
    fn rows(&self) -> Box<dyn Iterator<Item = SourceRow> + '_> {
        Box::new(std::iter::empty())
    }
}

/// Sources that are few.
impl NewSources for Vec<SourceRow> {
    fn rows(&self) -> Box<dyn Iterator<Item = SourceRow> + '_> {
        Box::new(self.iter().cloned())
    }
}

/// Encodes rows for a list.
pub(super) fn batch(sources: &[SourceRow]) -> Result<RecordBatch> {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, false);
    let schema = Schema::new(vec![
        field("uri", DataType::Utf8),
        field("name", DataType::Utf8),
        field("bytes", DataType::UInt64),
        field("modified", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        Field::new("etag", DataType::Utf8, true),
        field("hash", DataType::UInt64),
        field("records", DataType::UInt64),
        field("first_record", DataType::UInt64),
        field("version", DataType::UInt64),
    ]);
    let numbers =
        |of: fn(&SourceRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(sources.iter().map(of))) };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(sources.iter().map(|s| s.uri.as_str()))),
        Arc::new(StringArray::from_iter_values(sources.iter().map(|s| s.name.as_str()))),
        numbers(|s| s.bytes),
        Arc::new(
            TimestampMicrosecondArray::from_iter_values(sources.iter().map(|s| s.modified.as_microsecond()))
                .with_timezone("UTC"),
        ),
        Arc::new(sources.iter().map(|s| s.etag.as_deref()).collect::<StringArray>()),
        numbers(|s| s.hash),
        numbers(|s| s.records),
        numbers(|s| s.first_record),
        numbers(|s| s.version.0),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Shows the rows of a list to `visit`, holding few at a time.
pub(super) fn read(
    store: &Arc<dyn Store>,
    list: &ListRef,
    visit: &mut dyn FnMut(SourceRow) -> Result<()>,
) -> Result<()> {
    table::read_batches(store, list, &mut |batch| decode(batch, visit))
}

fn decode(batch: &RecordBatch, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
    let number = |name| column::<UInt64Array>(batch, name);
    let (bytes, hash, records) = (number("bytes")?, number("hash")?, number("records")?);
    let (first_record, version) = (number("first_record")?, number("version")?);
    let (uri, name): (&StringArray, &StringArray) = (column(batch, "uri")?, column(batch, "name")?);
    let etag: &StringArray = column(batch, "etag")?;
    let modified: &TimestampMicrosecondArray = column(batch, "modified")?;
    (0..batch.num_rows()).try_for_each(|i| {
        visit(SourceRow {
            uri: uri.value(i).to_owned(),
            name: name.value(i).to_owned(),
            bytes: bytes.value(i),
            modified: Timestamp::from_microsecond(modified.value(i)).unwrap_or_default(),
            etag: etag.is_valid(i).then(|| etag.value(i).to_owned()),
            hash: hash.value(i),
            records: records.value(i),
            first_record: first_record.value(i),
            version: Version(version.value(i)),
        })
    })
}
