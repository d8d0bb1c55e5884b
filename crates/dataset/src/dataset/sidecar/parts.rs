//! The members of a tar shard, stored beside its sidecar for indexes that span the whole dataset.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `record` | u64 | row of the record in the shard, from 0 |
//! | `name` | text | full name of the member |
//! | `offset`, `size` | u64 | its content in the shard |

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use parquet::arrow::ArrowWriter;

use crate::{
    dataset::table::{
        self,
        paths::parts_beside,
        sealed::{Sealed, SealingSink},
        typed_column,
    },
    error::Result,
    storage::{Staged, Store},
};

/// Rows collected before they are encoded.
const BATCH: usize = 8_192;

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRow {
    /// Row of the record in the shard.
    pub record: u64,
    /// Full name.
    pub name: String,
    /// Offset of the content in the shard.
    pub offset: u64,
    /// Bytes of content.
    pub size: u64,
}

/// Writes the members of a shard as it grows.
pub struct PartsWriter {
    writer: ArrowWriter<SealingSink>,
    rows: Vec<PartRow>,
}

impl std::fmt::Debug for PartsWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartsWriter").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}

impl PartsWriter {
    /// Starts the list of the shard with this sidecar.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create(store: &dyn Store, sidecar: &str) -> Result<Self> {
        let properties = ["record", "offset"].into_iter().fold(table::writer_properties(), table::with_delta_encoding);
        let properties = properties.set_column_dictionary_enabled("name".into(), false).build();
        let sink = SealingSink::in_blocks(store, &parts_beside(sidecar))?;
        let writer = ArrowWriter::try_new(sink, parts_schema(), Some(properties)).map_err(table::parquet_error)?;
        Ok(Self { writer, rows: Vec::new() })
    }

    /// Adds a member.
    ///
    /// # Errors
    /// When the store fails.
    pub fn push(&mut self, row: PartRow) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Finishes the list, which has no name until it is published.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish(mut self) -> Result<Staged> {
        self.flush()?;
        table::finish_table(self.writer)
    }

    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let numbers =
            |of: fn(&PartRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(of))) };
        let names = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.name.as_str())));
        let columns: Vec<ArrayRef> = vec![numbers(|r| r.record), names, numbers(|r| r.offset), numbers(|r| r.size)];
        self.writer.write(&RecordBatch::try_new(parts_schema(), columns)?).map_err(table::parquet_error)
    }
}

/// The members of a shard, in order.
///
/// # Errors
/// When the list is missing or damaged.
pub fn read(store: &dyn Store, parts: &Sealed) -> Result<Vec<PartRow>> {
    let mut out = Vec::new();
    for batch in table::read(store, parts)? {
        let names: &StringArray = typed_column(&batch, "name")?;
        let number = |name| typed_column::<UInt64Array>(&batch, name);
        let (records, offsets, sizes) = (number("record")?, number("offset")?, number("size")?);
        out.extend((0..batch.num_rows()).map(|i| PartRow {
            record: records.value(i),
            name: names.value(i).to_owned(),
            offset: offsets.value(i),
            size: sizes.value(i),
        }));
    }
    Ok(out)
}

fn parts_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("record", DataType::UInt64, false),
        Field::new("name", DataType::Utf8, false),
        Field::new("offset", DataType::UInt64, false),
        Field::new("size", DataType::UInt64, false),
    ]))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn members_are_read_back() {
        let store: &dyn Store = &RemoteStore::in_memory().unwrap();
        let mut writer = PartsWriter::create(store, "_shardify/sidecar/0123456789ab/000001.table").unwrap();
        let rows: Vec<PartRow> = (0..20_000)
            .map(|i| PartRow { record: i / 2, name: format!("k{i}.jpg"), offset: i * 1024, size: i })
            .collect();
        rows.iter().for_each(|row| writer.push(row.clone()).unwrap());
        let staged = writer.finish().unwrap();
        let parts = Sealed::from_staged(&staged).unwrap();
        store.publish_staged(vec![staged]).unwrap();
        assert_eq!(parts.path, "_shardify/sidecar/0123456789ab/000001.parts.table");
        assert_eq!(read(store, &parts).unwrap(), rows);
    }
}
