//! The file beside shards with what is the same for all their records: `<tag>/_constants.arrow`, one row of Arrow IPC.
//!
//! Its name begins with `_`, so that readers of a folder of shards pass it over.

use std::io::Write;

use arrow::{array::RecordBatch, ipc::writer::FileWriter};

use super::types::copy_small;
use crate::{
    error::{Error, Result},
    format::RecordReader,
    storage::{Staged, Store},
};

/// Name of the file.
const NAME: &str = "_constants.arrow";

/// What is the same for all records of all sources, which are named for errors; `None` when there is nothing.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when two sources disagree, or one cannot be read.
pub fn of_sources<'a>(sources: impl Iterator<Item = (String, &'a dyn RecordReader)>) -> Result<Option<RecordBatch>> {
    let mut all: Option<(String, RecordBatch)> = None;
    for (name, reader) in sources {
        let Some(found) = reader.constants()? else { continue };
        let Some((first, known)) = &all else {
            all = Some((name, found));
            continue;
        };
        let differs = |column: &&std::sync::Arc<arrow::datatypes::Field>| {
            known.column_by_name(column.name()) != found.column_by_name(column.name())
        };
        // One that only one of them has is not the same for all, whichever comes first.
        let mut columns = [known, &found].into_iter().flat_map(|batch| batch.schema_ref().fields());
        if let Some(column) = columns.find(differs) {
            return Err(Error::input(
                "expected what has not the dimension of the records to be the same in all sources",
            )
            .at(name)
            .column(column.name())
            .hint(format!("another value is in {first}; convert such sources one by one into datasets of their own"))
            .hint("choose variables with --var"));
        }
    }
    Ok(all.map(|(_, batch)| batch))
}

/// Writes the file of a folder, under a name that nobody sees yet.
///
/// # Errors
/// When the store fails.
pub fn stage(store: &dyn Store, folder: &str, constants: &RecordBatch) -> Result<Staged> {
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, constants.schema_ref())?;
    writer.write(constants)?;
    writer.finish()?;
    drop(writer);
    let mut sink = store.create(&format!("{folder}/{NAME}"))?;
    sink.write_all(&bytes)?;
    sink.finish()
}

/// Stages the file of one folder for another; `None` when it has none.
///
/// # Errors
/// When the store fails.
pub fn copy(store: &dyn Store, from: &str, to: &str) -> Result<Option<Staged>> {
    let from = if from.is_empty() { NAME.to_owned() } else { format!("{from}/{NAME}") };
    copy_small(store, &from, &format!("{to}/{NAME}"))
}
