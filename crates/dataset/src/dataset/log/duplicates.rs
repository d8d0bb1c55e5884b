//! Records that runs omitted as duplicates, a table for each run, and what each is a duplicate of.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `record_id`, `subject_id` | text, null | ids of the duplicate as stored; null: its origin, or none |
//! | `source`, `row` | text, u64 or null | its origin, as in a sidecar |
//! | `first_record` | u64, null | number of the record that it repeats, if the dataset held that before the run |
//! | `first_id` | text, null | else the record id of that record as stored, if the record is a sample of files |
//! | `first_source`, `first_row` | text, u64, both null | else its origin; all null if it was erased |
//!
//! Ids of duplicates may be those of a person, so an erasure from all versions removes rows. That is why log entries do
//! not have the seals of these tables: the metadata of each, under `shardify.rows`, has the BLAKE3 of its rows instead.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use parquet::{arrow::ArrowWriter, file::metadata::KeyValue};
use serde::{Deserialize, Serialize};

use crate::{
    dataset::table::{
        self,
        paths::{system_path, table_path},
        sealed::SealingSink,
        typed_column,
    },
    error::{Error, Kind, Result},
    id::{Version, Writer},
    record::BATCH_ROWS,
    storage::{Staged, Store},
};

/// Folder of the tables.
const FOLDER: &str = "duplicates";

/// The table of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicatesRef {
    /// Path relative to the dataset.
    pub path: String,
    /// Number of its rows when it was written.
    pub rows: u64,
    /// Version that the run made.
    pub version: Version,
}

/// A record that was omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateRow {
    /// Its record id as stored; `None` when it is its origin.
    pub record_id: Option<String>,
    /// Its subject id as stored.
    pub subject_id: Option<String>,
    /// Name of its source as stored.
    pub source: String,
    /// Row in the source, from 1.
    pub row: Option<u64>,
    /// The record that it repeats.
    pub first: FirstOccurrence,
}

/// A record that others repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstOccurrence {
    /// It has this number.
    Record(u64),
    /// It has this record id as stored.
    Id(String),
    /// It has this origin as stored: source, and row from 1.
    Origin(String, u64),
    /// It was erased, and its name with it.
    Unknown,
}

/// Writes the table of a run.
pub struct DuplicatesWriter {
    writer: ArrowWriter<SealingSink>,
    path: String,
    pending: Vec<DuplicateRow>,
    digest: RowDigest,
    rows: u64,
}

/// Key of the hash of all rows in the metadata of a table.
const ROWS_KEY: &str = "shardify.rows";

/// The hash of rows, one after the other.
#[derive(Default)]
struct RowDigest(blake3::Hasher);

impl RowDigest {
    fn add_row(&mut self, row: &DuplicateRow) {
        let (first_text, first_number) = match &row.first {
            FirstOccurrence::Record(record) => (None, Some(*record)),
            FirstOccurrence::Id(id) => (Some(id.as_str()), None),
            FirstOccurrence::Origin(source, number) => (Some(source.as_str()), Some(*number)),
            FirstOccurrence::Unknown => (None, None),
        };
        for text in [row.record_id.as_deref(), row.subject_id.as_deref(), Some(row.source.as_str()), first_text] {
            self.0.update(&text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
            self.0.update(text.unwrap_or_default().as_bytes());
        }
        for number in [row.row, first_number] {
            self.0.update(&[u8::from(number.is_some())]);
            self.0.update(&number.unwrap_or_default().to_le_bytes());
        }
    }

    fn to_hex(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }

    /// Returns it as an entry of the metadata of a table.
    fn to_key_value(&self) -> KeyValue {
        KeyValue::new(ROWS_KEY.to_owned(), self.to_hex())
    }
}

impl std::fmt::Debug for DuplicatesWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DuplicatesWriter").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl DuplicatesWriter {
    /// Starts the table of a run.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create(store: &dyn Store, writer: &Writer) -> Result<Self> {
        let path = table_path(&format!("{FOLDER}/{writer}"));
        let sink = SealingSink::in_blocks(store, &path)?;
        let properties = table::list_properties(&duplicate_schema());
        let writer = ArrowWriter::try_new(sink, duplicate_schema(), Some(properties)).map_err(table::parquet_error)?;
        Ok(Self { writer, path, pending: Vec::new(), digest: RowDigest::default(), rows: 0 })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the store fails.
    pub fn push(&mut self, row: DuplicateRow) -> Result<()> {
        self.rows += 1;
        self.digest.add_row(&row);
        self.pending.push(row);
        if self.pending.len() >= BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.pending);
        if rows.is_empty() { Ok(()) } else { self.writer.write(&to_batch(&rows)?).map_err(table::parquet_error) }
    }

    /// Finishes the table, which has no name until it is published; `None` if it has no rows.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish(mut self) -> Result<Option<(Staged, DuplicatesRef)>> {
        if self.rows == 0 {
            return Ok(None);
        }
        self.flush()?;
        self.writer.append_key_value_metadata(self.digest.to_key_value());
        let made = DuplicatesRef { path: self.path, rows: self.rows, version: Version(0) };
        Ok(Some((table::finish_table(self.writer)?, made)))
    }
}

fn duplicate_schema() -> SchemaRef {
    let text = |name: &str, null: bool| Field::new(name, DataType::Utf8, null);
    let number = |name: &str| Field::new(name, DataType::UInt64, true);
    Arc::new(Schema::new(vec![
        text("record_id", true),
        text("subject_id", true),
        text("source", false),
        number("row"),
        number("first_record"),
        text("first_id", true),
        text("first_source", true),
        number("first_row"),
    ]))
}

fn to_batch(rows: &[DuplicateRow]) -> Result<RecordBatch> {
    let texts = |of: &dyn Fn(&DuplicateRow) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringArray>())
    };
    let numbers = |of: &dyn Fn(&DuplicateRow) -> Option<u64>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<UInt64Array>())
    };
    let columns: Vec<ArrayRef> = vec![
        texts(&|row| row.record_id.clone()),
        texts(&|row| row.subject_id.clone()),
        texts(&|row| Some(row.source.clone())),
        numbers(&|row| row.row),
        numbers(&|row| if let FirstOccurrence::Record(record) = row.first { Some(record) } else { None }),
        texts(&|row| if let FirstOccurrence::Id(id) = &row.first { Some(id.clone()) } else { None }),
        texts(&|row| if let FirstOccurrence::Origin(source, _) = &row.first { Some(source.clone()) } else { None }),
        numbers(&|row| if let FirstOccurrence::Origin(_, number) = row.first { Some(number) } else { None }),
    ];
    Ok(RecordBatch::try_new(duplicate_schema(), columns)?)
}

/// Passes the records of a table to `visit`.
///
/// # Errors
/// When the table is missing or damaged; those of `visit`.
pub(in crate::dataset) fn each_duplicate(
    store: &Arc<dyn Store>,
    path: &str,
    visit: &mut dyn FnMut(DuplicateRow) -> Result<()>,
) -> Result<()> {
    // An erasure changes the table in place, so nothing has a seal of it: its metadata have a hash of its rows.
    let place = || store.location().join(path).to_string();
    let damaged = |e| table::damage_error(e, "the table of duplicates is damaged", place());
    let builder = table::open_unsealed(store, path)?.with_batch_size(BATCH_ROWS);
    let metadata = builder.metadata().file_metadata().key_value_metadata();
    let stated = metadata.and_then(|all| all.iter().find(|one| one.key == ROWS_KEY)?.value.clone());
    let mut digest = RowDigest::default();
    let mut reader = table::catch_panics(|| builder.build().map_err(table::parquet_error)).map_err(damaged)?;
    while let Some(batch) = table::catch_panics(|| Ok::<_, Error>(reader.next().transpose()?)).map_err(damaged)? {
        for row in decode_batch(&batch).map_err(damaged)? {
            digest.add_row(&row);
            visit(row)?;
        }
    }
    match stated {
        Some(stated) if stated == digest.to_hex() => Ok(()),
        _ => Err(damaged(Error::integrity("expected the rows that its metadata have the hash of, found others"))),
    }
}

/// Fails unless the table of a run is whole.
///
/// # Errors
/// When it is missing or damaged; if the store fails.
pub fn check_duplicates(store: &Arc<dyn Store>, table: &DuplicatesRef) -> Result<()> {
    each_duplicate(store, &table.path, &mut |_| Ok(()))
}

fn decode_batch(batch: &RecordBatch) -> Result<Vec<DuplicateRow>> {
    let text = |name| typed_column::<StringArray>(batch, name);
    let number = |name| typed_column::<UInt64Array>(batch, name);
    let (ids, subjects, sources, rows) = (text("record_id")?, text("subject_id")?, text("source")?, number("row")?);
    let (first_ids, first_sources) = (text("first_id")?, text("first_source")?);
    let (first_records, first_rows) = (number("first_record")?, number("first_row")?);
    let text_at = |array: &StringArray, at| array.is_valid(at).then(|| array.value(at).to_owned());
    let number_at = |array: &UInt64Array, at| array.is_valid(at).then(|| array.value(at));
    let first = |at| match (number_at(first_records, at), text_at(first_ids, at)) {
        (Some(record), _) => FirstOccurrence::Record(record),
        (None, Some(id)) => FirstOccurrence::Id(id),
        (None, None) => match (text_at(first_sources, at), number_at(first_rows, at)) {
            (Some(source), Some(row)) => FirstOccurrence::Origin(source, row),
            _ => FirstOccurrence::Unknown,
        },
    };
    let row = |at| DuplicateRow {
        record_id: text_at(ids, at),
        subject_id: text_at(subjects, at),
        source: sources.value(at).to_owned(),
        row: number_at(rows, at),
        first: first(at),
    };
    Ok((0..batch.num_rows()).map(row).collect())
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFate {
    /// It stays as it is.
    Kept,
    /// It stays, without the name of the record that it repeats.
    WithoutFirst,
    /// It is removed.
    Removed,
}

/// Removes rows, or names in them, from all tables of a dataset; returns the number of removed rows, and the paths of
/// damaged tables, which stay as they are. Tables that no version names yet, or any longer, count, too.
///
/// # Errors
/// When the store fails.
pub fn erase_duplicates(store: &Arc<dyn Store>, fate: &dyn Fn(&DuplicateRow) -> RowFate) -> Result<(u64, Vec<String>)> {
    let (mut erased, mut damaged) = (0, Vec::new());
    for object in store.list_folder(&system_path(FOLDER))? {
        let properties = table::list_properties(&duplicate_schema());
        let mut kept =
            ArrowWriter::try_new(Vec::new(), duplicate_schema(), Some(properties)).map_err(table::parquet_error)?;
        let (mut pending, mut gone, mut changed, mut digest) = (Vec::new(), 0, false, RowDigest::default());
        let read = each_duplicate(store, &object.path, &mut |row| {
            let fate = fate(&row);
            changed |= fate != RowFate::Kept;
            let row = match fate {
                RowFate::Kept => row,
                RowFate::WithoutFirst => DuplicateRow { first: FirstOccurrence::Unknown, ..row },
                RowFate::Removed => {
                    gone += 1;
                    return Ok(());
                }
            };
            digest.add_row(&row);
            pending.push(row);
            if pending.len() < BATCH_ROWS {
                return Ok(());
            }
            kept.write(&to_batch(&std::mem::take(&mut pending))?).map_err(table::parquet_error)
        });
        match read {
            Err(error) if error.kind() == Kind::Integrity => {
                damaged.push(object.path);
                continue;
            }
            read => read?,
        }
        if changed {
            kept.write(&to_batch(&pending)?).map_err(table::parquet_error)?;
            kept.append_key_value_metadata(digest.to_key_value());
            store.put(&object.path, kept.into_inner().map_err(table::parquet_error)?.into())?;
            erased += gone;
        }
    }
    Ok((erased, damaged))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{id::TransactionId, storage::RemoteStore};

    #[test]
    fn rows_are_read_back_and_erased() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let writer = || DuplicatesWriter::create(store.as_ref(), &TransactionId::fresh().into()).unwrap();
        assert!(writer().finish().unwrap().is_none());
        let row = |number: u64| DuplicateRow {
            record_id: (!number.is_multiple_of(3)).then(|| format!("r{number}")),
            subject_id: (!number.is_multiple_of(2)).then(|| format!("s{}", number % 7)),
            source: "a.csv".into(),
            row: (!number.is_multiple_of(5)).then_some(number),
            first: match number % 3 {
                0 => FirstOccurrence::Record(number),
                1 => FirstOccurrence::Id(format!("r{}", number / 2)),
                _ => FirstOccurrence::Origin("b.csv".into(), number),
            },
        };
        let rows: Vec<DuplicateRow> = (0..20_000).map(row).collect();
        let mut table = writer();
        rows.iter().for_each(|row| table.push(row.clone()).unwrap());
        let (staged, made) = table.finish().unwrap().unwrap();
        store.publish_staged(vec![staged]).unwrap();
        let read = || {
            let mut out = Vec::new();
            each_duplicate(&store, &made.path, &mut |row| {
                out.push(row);
                Ok(())
            })
            .unwrap();
            out
        };
        assert_eq!((made.rows, read() == rows), (20_000, true));
        let fate = |row: &DuplicateRow| match (row.subject_id.as_deref(), &row.first) {
            (Some("s3"), _) => RowFate::Removed,
            (_, FirstOccurrence::Id(id)) if id == "r8" => RowFate::WithoutFirst,
            _ => RowFate::Kept,
        };
        let count = rows.iter().filter(|row| fate(row) == RowFate::Removed).count() as u64;
        assert_eq!(erase_duplicates(&store, &fate).unwrap(), (count, Vec::new()));
        let left = rows.into_iter().filter(|row| fate(row) != RowFate::Removed).map(|row| match fate(&row) {
            RowFate::WithoutFirst => DuplicateRow { first: FirstOccurrence::Unknown, ..row },
            _ => row,
        });
        assert_eq!(read(), left.collect::<Vec<_>>());
        assert_eq!(erase_duplicates(&store, &|_| RowFate::Removed).unwrap().0, 20_000 - count);
        assert_eq!((read(), erase_duplicates(&store, &|_| RowFate::Removed).unwrap().0), (Vec::new(), 0));
    }
}
