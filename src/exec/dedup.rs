//! Leaves out duplicates: the first record in the order of the input stays.
//!
//! ```text
//! workers      fingerprint each record, behind all other gates
//! one thread   in order, as records are gathered: seen before?  -> left out
//! ```
//!
//! Records that are rejected, filtered out or erased have no fingerprints, so they are nobody's first.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch};

use super::{encode::id_column, seen::Seen};
use crate::{
    dataset::{Pseudonymizer, token_of},
    error::{Error, Result},
    record::{
        Payload, RecordBlock,
        dedup::DedupBy,
        fingerprint::{Fingerprint, Fingerprinter},
        parts::{is_table_of_samples, samples_of_rows},
        path::column_at,
    },
};

/// Marks the number of a record that the dataset held before, in place of the position of one of the run.
pub const EARLIER: u64 = 1 << 63;

/// Gate behind the parser that takes the fingerprints of records, and what was seen of them.
#[derive(Debug)]
pub struct DedupGate<'a> {
    /// What duplicates have in common.
    pub by: &'a DedupBy,
    /// Columns that make the record id.
    pub id: Vec<String>,
    /// Number of the columns of rows that are stored; the others are behind them.
    pub stored: usize,
    /// Takes the fingerprints.
    pub fingerprinter: Fingerprinter,
    /// Pseudonymizes ids: those of earlier records are known only as they are stored.
    pub pseudonymizer: Option<&'a Pseudonymizer>,
    /// Fingerprints of the records before; `None` if the run leaves no duplicates out.
    pub seen: Option<Mutex<Seen>>,
}

impl DedupGate<'_> {
    /// Adds the fingerprints of its records to a block.
    ///
    /// # Errors
    /// When the rows lack a column.
    pub fn pass(&self, block: &mut RecordBlock) -> Result<()> {
        block.fingerprints = match &block.payload {
            Payload::Samples(samples) => match self.by {
                DedupBy::Id => samples.iter().map(|sample| self.of_id(&sample.key).map(Some)).collect::<Result<_>>()?,
                _ => samples.iter().map(|sample| Some(self.fingerprinter.of_sample(sample))).collect(),
            },
            Payload::Rows(rows) => self.of_rows(rows)?,
        };
        Ok(())
    }

    fn of_rows(&self, rows: &RecordBatch) -> Result<Vec<Option<Fingerprint>>> {
        let of_columns = |columns: &[(&str, ArrayRef)]| -> Result<Vec<Option<Fingerprint>>> {
            Ok(self.fingerprinter.of_rows(columns, rows.num_rows())?.into_iter().map(Some).collect())
        };
        match self.by {
            DedupBy::Id if self.id.is_empty() => Err(Error::internal("record ids have no columns")),
            DedupBy::Id => {
                id_column(rows, &self.id)?.iter().map(|id| id.map(|id| self.of_id(id)).transpose()).collect()
            }
            DedupBy::Columns(names) => {
                let column = |name: &String| -> Result<(String, ArrayRef)> {
                    let column = column_at(rows, name)?.ok_or_else(|| {
                        Error::input("expected the column that duplicates are found by, found none")
                            .column(name.clone())
                    })?;
                    Ok((name.clone(), column))
                };
                let columns: Vec<(String, ArrayRef)> = names.iter().map(column).collect::<Result<_>>()?;
                let named = columns.iter().map(|(name, column)| (name.as_str(), Arc::clone(column)));
                of_columns(&named.collect::<Vec<_>>())
            }
            DedupBy::Content => {
                let stored = rows.project(&(0..rows.num_columns().min(self.stored)).collect::<Vec<_>>())?;
                let schema = stored.schema();
                if is_table_of_samples(schema.fields()) {
                    // The key names a sample and is not a part of it.
                    let samples = samples_of_rows(&stored, &vec![String::new(); stored.num_rows()])?;
                    return Ok(samples.iter().map(|sample| Some(self.fingerprinter.of_sample(sample))).collect());
                }
                let names = schema.fields().iter().map(|field| field.name().as_str());
                of_columns(&names.zip(stored.columns().iter().cloned()).collect::<Vec<_>>())
            }
        }
    }

    fn of_id(&self, id: &str) -> Result<Fingerprint> {
        let Some(pseudonymizer) = self.pseudonymizer else { return Ok(self.fingerprinter.of_id(id)) };
        let mut stored = String::new();
        pseudonymizer.id(id, &mut stored)?;
        Ok(self.fingerprinter.of_id(token_of(&stored)))
    }

    /// Whether the fingerprints are stored with the records.
    pub fn stores(&self) -> bool {
        self.by.needs_fingerprints()
    }

    /// Returns which records of some blocks are duplicates, block by block. The records of the blocks are considered together, in the
    /// order of their rows; `base` is the position of row 0 among all records of the run.
    ///
    /// # Errors
    /// When fingerprints that do not fit into memory cannot be written or read.
    pub fn duplicates<'b>(
        &self,
        blocks: impl Iterator<Item = &'b RecordBlock>,
        base: u64,
    ) -> Result<Option<Vec<Vec<bool>>>> {
        let Some(seen) = &self.seen else { return Ok(None) };
        let blocks: Vec<&RecordBlock> = blocks.collect();
        let mut duplicates: Vec<Vec<bool>> = blocks.iter().map(|block| vec![false; block.payload.len()]).collect();
        let mut order: Vec<(u32, usize, usize)> = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            let rows = (0_u32..).zip(0..block.payload.len());
            order.extend(rows.map(|(row, at)| (block.rows.get(at).copied().unwrap_or(row), number, at)));
        }
        order.sort_unstable();
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut any = false;
        for (row, number, at) in order {
            let Some(Some(fingerprint)) = blocks[number].fingerprints.get(at) else { continue };
            let first = seen.first(fingerprint, base + u64::from(row))?;
            duplicates[number][at] = first.is_some();
            any |= first.is_some();
        }
        Ok(any.then_some(duplicates))
    }
}
