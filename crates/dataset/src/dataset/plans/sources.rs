//! The sources of a plan: one row each, in the order of the tasks.

use std::{
    ops::Range,
    sync::{Arc, mpsc::sync_channel},
};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array},
    datatypes::{DataType, Field, Schema},
};

use crate::{
    dataset::table::{
        self, BATCH_ROWS, TableWriter, catch_panics, damage_error, list::ListRef, parquet_error, typed_column,
    },
    error::{Error, Result},
    storage::{Staged, Store},
};

/// A source as a plan records it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedSource {
    /// Location below which it was found, without secrets.
    pub root: Arc<str>,
    /// What its name has before the path below the root.
    pub prefix: Arc<str>,
    /// Path below the root.
    pub path: String,
    /// Whether it is a folder that is one source.
    pub is_store: bool,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last modification, in microseconds since 1970.
    pub modified: i64,
    /// Entity tag, if the store provides one.
    pub etag: Option<String>,
    /// Start of the record ids of its rows; empty for files of samples.
    pub key: String,
    /// Why the sample that begins with this file is rejected without being read.
    pub reject: Option<String>,
    /// Number of the row of the labels that belongs to the sample that begins with this file.
    pub label: Option<u32>,
    /// The part of the source that belongs to this row, as JSON; `None` for the whole source.
    pub part: Option<String>,
}

fn source_schema() -> Schema {
    let text = |name: &str, null| Field::new(name, DataType::Utf8, null);
    Schema::new(vec![
        text("root", false),
        text("prefix", false),
        text("path", false),
        Field::new("is_store", DataType::Boolean, false),
        Field::new("bytes", DataType::UInt64, false),
        Field::new("modified", DataType::Int64, false),
        text("etag", true),
        text("key", false),
        text("reject", true),
        text("part", true),
        Field::new("label", DataType::UInt32, true),
    ])
}

/// Writer of the table.
pub(super) struct Rows;

impl Rows {
    /// Writes the table; it has no name until it is published. This thread makes the rows while another one encodes
    /// those before them: there may be millions.
    pub(super) fn write(
        store: &dyn Store,
        path: &str,
        mut sources: impl Iterator<Item = PlannedSource>,
    ) -> Result<(Staged, u64)> {
        let (give, take) = sync_channel::<Vec<PlannedSource>>(1);
        std::thread::scope(|scope| {
            let encoder = scope.spawn(move || {
                let mut writer = TableWriter::without_statistics(store, path);
                for rows in take {
                    writer.add_rows(&to_batch(&rows)?)?;
                }
                writer.finish()?.ok_or_else(|| Error::internal("a plan has no sources"))
            });
            loop {
                let rows: Vec<PlannedSource> = sources.by_ref().take(BATCH_ROWS).collect();
                // Nobody takes them once the store has failed, which the encoder reports.
                if rows.is_empty() || give.send(rows).is_err() {
                    break;
                }
            }
            drop(give);
            encoder.join().map_err(|_| Error::internal("the thread that encodes a plan panicked"))?
        })
    }
}

fn to_batch(rows: &[PlannedSource]) -> Result<RecordBatch> {
    let text =
        |of: fn(&PlannedSource) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(rows.iter().map(of))) };
    let optional =
        |of: fn(&PlannedSource) -> Option<&str>| -> ArrayRef { Arc::new(rows.iter().map(of).collect::<StringArray>()) };
    let columns: Vec<ArrayRef> = vec![
        text(|row| &row.root),
        text(|row| &row.prefix),
        text(|row| &row.path),
        Arc::new(rows.iter().map(|row| Some(row.is_store)).collect::<BooleanArray>()),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.bytes))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.modified))),
        optional(|row| row.etag.as_deref()),
        text(|row| &row.key),
        optional(|row| row.reject.as_deref()),
        optional(|row| row.part.as_deref()),
        Arc::new(rows.iter().map(|row| row.label).collect::<UInt32Array>()),
    ];
    Ok(RecordBatch::try_new(Arc::new(source_schema()), columns)?)
}

fn rows_of(batch: &RecordBatch, out: &mut Vec<PlannedSource>) -> Result<()> {
    let text = |name: &str| typed_column::<StringArray>(batch, name);
    let (root, prefix, path, key) = (text("root")?, text("prefix")?, text("path")?, text("key")?);
    let (etag, reject, part) = (text("etag")?, text("reject")?, text("part")?);
    let (is_store, bytes): (&BooleanArray, &UInt64Array) =
        (typed_column(batch, "is_store")?, typed_column(batch, "bytes")?);
    let modified: &Int64Array = typed_column(batch, "modified")?;
    let label: &UInt32Array = typed_column(batch, "label")?;
    let optional = |column: &StringArray, i: usize| column.is_valid(i).then(|| column.value(i).to_owned());
    // Neighbours share their texts.
    let mut last: (Arc<str>, Arc<str>) = ("".into(), "".into());
    let shared = |text: &str, last: &mut Arc<str>| {
        if **last != *text {
            *last = text.into();
        }
        Arc::clone(last)
    };
    out.extend((0..batch.num_rows()).map(|i| PlannedSource {
        root: shared(root.value(i), &mut last.0),
        prefix: shared(prefix.value(i), &mut last.1),
        path: path.value(i).to_owned(),
        is_store: is_store.value(i),
        bytes: bytes.value(i),
        modified: modified.value(i),
        etag: optional(etag, i),
        key: key.value(i).to_owned(),
        reject: optional(reject, i),
        label: label.is_valid(i).then(|| label.value(i)),
        part: optional(part, i),
    }));
    Ok(())
}

/// Reads a range of rows; row groups outside of it are not read.
pub(super) fn read_range(store: &Arc<dyn Store>, list: &ListRef, range: Range<u64>) -> Result<Vec<PlannedSource>> {
    let place = || store.location().join(&list.path).to_string();
    let at = |e: Error| damage_error(e, "the table is damaged", place());
    let builder = table::open_table(store, &list.as_sealed())?;
    let (mut first, mut groups, mut skipped) = (0, Vec::new(), None);
    for (number, group) in builder.metadata().row_groups().iter().enumerate() {
        let end = first + u64::try_from(group.num_rows()).unwrap_or_default();
        if first < range.end && range.start < end {
            skipped.get_or_insert(first);
            groups.push(number);
        }
        first = end;
    }
    let skip = usize::try_from(range.start - skipped.unwrap_or(range.start)).unwrap_or(usize::MAX);
    let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let reader = catch_panics(|| {
        let builder = builder.with_row_groups(groups).with_offset(skip).with_limit(length);
        builder.with_batch_size(BATCH_ROWS).build().map_err(parquet_error)
    });
    let mut rows = Vec::new();
    for batch in reader.map_err(at)? {
        rows_of(&batch.map_err(Error::from).map_err(at)?, &mut rows)?;
    }
    if rows.len() != length {
        return Err(Error::integrity(format!("expected {length} rows, found {}", rows.len())).at_location(place()));
    }
    Ok(rows)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn any_range_of_rows_comes_back() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let row = |i: u64| PlannedSource {
            root: "/data".into(),
            path: format!("{i}.csv"),
            bytes: i,
            modified: -1,
            etag: i.is_multiple_of(2).then(|| format!("\"{i}\"")),
            reject: i.is_multiple_of(7).then(|| "too long".into()),
            ..PlannedSource::default()
        };
        let rows = 100_000;
        let (staged, count) = Rows::write(store.as_ref(), "sources.parquet", (0..rows).map(row)).unwrap();
        let list = ListRef { path: "sources.parquet".into(), rows: count, root: None, seal: staged.seal().unwrap() };
        store.publish_staged(vec![staged]).unwrap();
        for range in [0..1, 0..rows, 32_767..32_769, 99_999..rows, 40_000..90_000] {
            let expected: Vec<PlannedSource> = range.clone().map(row).collect();
            assert_eq!(read_range(&store, &list, range).unwrap(), expected);
        }
    }
}
