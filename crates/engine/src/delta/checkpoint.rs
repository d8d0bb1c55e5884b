//! Checkpoints: the state of the table at a version, as Parquet of either form or as JSON lines, with sidecars.
//!
//! ```text
//! row     add {path, partitionValues, deletionVector, ...} | metaData {...} | protocol {...} | sidecar {path} | ...
//! ```
//!
//! Each row is one action. Columns that are not wanted, such as statistics, which are most of the bytes, are
//! dropped before rows become actions.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch, StructArray},
    datatypes::{DataType, Fields},
};
use rayon::prelude::*;

use super::{
    actions::{Action, data_path},
    log::{FOLDER, each_action},
};
use crate::{
    error::{Error, Kind, Result},
    format::{parquet, ranged::RangedInput},
    record::json::write_value,
    storage::{Object, Store},
};

/// Columns of actions, and the fields of each that are read.
pub type Columns = &'static [(&'static str, &'static [&'static str])];

/// What reading the rows of a table needs.
pub(super) const READ: Columns = &[
    ("add", &["path", "partitionValues", "deletionVector"]),
    ("metaData", &["id", "schemaString", "partitionColumns", "configuration"]),
    ("protocol", &["minReaderVersion", "readerFeatures"]),
    ("sidecar", &["path"]),
];

/// What replacing files of a table needs.
pub(super) const REPLACING: Columns = &[
    (
        "add",
        &[
            "path",
            "partitionValues",
            "size",
            "modificationTime",
            "dataChange",
            "stats",
            "stats_parsed",
            "tags",
            "deletionVector",
        ],
    ),
    ("metaData", &["id", "schemaString", "partitionColumns", "configuration"]),
    ("protocol", &["minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"]),
    ("sidecar", &["path"]),
];

/// All that this crate writes.
pub const WRITTEN: Columns = &[
    ("txn", &["appId", "version", "lastUpdated"]),
    ("add", &["path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "deletionVector"]),
    (
        "remove",
        &[
            "path",
            "deletionTimestamp",
            "dataChange",
            "extendedFileMetadata",
            "partitionValues",
            "size",
            "deletionVector",
        ],
    ),
    ("metaData", &["id", "format", "schemaString", "partitionColumns", "configuration", "createdTime"]),
    ("protocol", &["minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"]),
    ("sidecar", &["path"]),
];

/// Rows that are decoded at once; statistics of a file may be large.
const BATCH_ROWS: usize = 1024;

/// Batches that are made into actions side by side.
const BATCHES_AT_ONCE: usize = 16;

/// Calls `visit` with each action of a checkpoint, given its files and the columns wanted.
///
/// # Errors
/// [`Kind::Input`] if a file is damaged or missing; those of `visit`; if the store fails.
pub fn each_checkpoint_action(
    store: &Arc<dyn Store>,
    files: &[String],
    columns: Columns,
    visit: &mut dyn FnMut(Action) -> Result<()>,
) -> Result<()> {
    let mut sidecars = Vec::new();
    for path in files {
        let mut look = |action: Action| match action.sidecar {
            Some(sidecar) => {
                sidecars.push(format!("{FOLDER}/_sidecars/{}", data_path(&sidecar.path)?));
                Ok(())
            }
            None => visit(action),
        };
        if path.ends_with(".json") {
            each_action(store.as_ref(), path, &mut look)?;
        } else {
            each_row(store, path, columns, &mut look)?;
        }
    }
    sidecars.iter().try_for_each(|path| each_row(store, path, columns, visit))
}

fn each_row(
    store: &Arc<dyn Store>,
    path: &str,
    columns: Columns,
    visit: &mut dyn FnMut(Action) -> Result<()>,
) -> Result<()> {
    let place = store.location().join(path).to_string();
    let at = |e: Error| {
        if e.kind() == Kind::Storage || e.place().source.is_some() { e } else { e.at_location(place.clone()) }
    };
    let facts = store.head(path)?.ok_or_else(|| {
        Error::input("expected a part of a checkpoint, found none")
            .at_location(place.clone())
            .with_hint("the log is damaged: restore the file from a copy")
    })?;
    let input = RangedInput::Object(Object::new(Arc::clone(store), path, facts.bytes));
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut batches = parquet::open(input, &place)?.with_columns(&names).into_batches(BATCH_ROWS);
    loop {
        let some: Vec<RecordBatch> = batches.by_ref().take(BATCHES_AT_ONCE).collect::<Result<_>>()?;
        if some.is_empty() {
            return Ok(());
        }
        let read: Vec<Vec<Action>> =
            some.par_iter().map(|batch| rows_of(batch, columns)).collect::<Result<_>>().map_err(at)?;
        read.into_iter().flatten().try_for_each(&mut *visit).map_err(at)?;
    }
}

fn rows_of(batch: &RecordBatch, columns: Columns) -> Result<Vec<Action>> {
    let damaged = || Error::input("expected actions in a checkpoint, found other values");
    let (mut text, mut out) = (Vec::new(), Vec::new());
    for (name, wanted) in columns {
        let Some(column) = batch.column_by_name(name) else { continue };
        let DataType::Struct(_) = column.data_type() else { return Err(damaged().in_column(*name)) };
        let column = select_fields(column.as_struct(), wanted)?;
        for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
            text.clear();
            text.extend_from_slice(format!("{{\"{name}\":").as_bytes());
            write_value(&column, row, &mut text);
            text.push(b'}');
            out.push(serde_json::from_slice(&text).map_err(|e| damaged().in_column(*name).with_cause(e))?);
        }
    }
    Ok(out)
}

/// Returns a struct with the wanted fields alone.
fn select_fields(array: &StructArray, wanted: &[&str]) -> Result<StructArray> {
    let kept: Vec<usize> =
        (0..array.num_columns()).filter(|at| wanted.contains(&array.fields()[*at].name().as_str())).collect();
    let fields: Fields = kept.iter().map(|at| Arc::clone(&array.fields()[*at])).collect();
    let columns = kept.iter().map(|at| Arc::clone(array.column(*at))).collect();
    Ok(StructArray::try_new_with_length(fields, columns, array.nulls().cloned(), array.len())?)
}
