//! Divides the records of a block among the sides of a dataset, where they are parsed.
//!
//! ```text
//! block t v t t s t  ->  t t t t | v | s      the order within a side is that of the input
//! ```
//!
//! The records of a side are copied, so that a side which fills its units slowly keeps nothing of the others in memory.

use arrow::{
    array::{Array, StringArray, UInt32Array},
    compute::take_record_batch,
};

use super::encode::id_column;
use crate::{
    dataset::{Pseudonymizer, token_of},
    error::{Error, Result},
    record::{
        Payload, RecordBlock, Sample,
        path::field_at,
        side::{Side, SideBy, Sides},
    },
};

/// Gate behind the parser that gives each record its side.
#[derive(Debug)]
pub struct SideGate<'a> {
    /// The sides.
    pub sides: &'a Sides,
    /// Columns that make the record id; empty if ids are origins.
    pub id: Vec<String>,
    /// Column of the subject id, if one has it.
    pub subject: Option<String>,
    /// Pseudonymizes ids: the side of a private id follows from what is stored of it.
    pub pseudonymizer: Option<&'a Pseudonymizer>,
}

/// Records of a block that belong to one side.
#[derive(Debug)]
pub struct SideRecords {
    /// The side.
    pub side: Side,
    /// The records; everything else of the block is empty.
    pub records: RecordBlock,
}

impl SideGate<'_> {
    /// Takes the records out of a block, and returns those of each side that has some. `subject` is that of all rows of the source, if it
    /// is in no column.
    ///
    /// # Errors
    /// When the rows lack the column that the side follows from.
    pub fn pass(&self, block: &mut RecordBlock, subject: Option<&str>) -> Result<Vec<SideRecords>> {
        block.expand();
        let sides = self.sides_of(block, subject)?;
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); self.sides.count()];
        for (row, side) in (0..).zip(&sides) {
            if let Some(rows) = rows_of.get_mut(usize::from(*side)) {
                rows.push(row);
            }
        }
        let whole = std::mem::replace(&mut block.payload, Payload::Samples(Vec::new()));
        let (rows, hashes) = (std::mem::take(&mut block.rows), std::mem::take(&mut block.hashes));
        let fingerprints = std::mem::take(&mut block.fingerprints);
        let payloads = divided(whole, &sides, &rows_of)?;
        let of_side = |(side, (payload, order)): (Side, (Payload, &Vec<u32>))| {
            let at = |row: &u32| *row as usize;
            let records = RecordBlock {
                payload,
                rows: order.iter().filter_map(|row| rows.get(at(row)).copied()).collect(),
                hashes: order.iter().filter_map(|row| hashes.get(at(row)).copied()).collect(),
                fingerprints: order.iter().filter_map(|row| fingerprints.get(at(row)).copied()).collect(),
                ..RecordBlock::empty()
            };
            SideRecords { side, records }
        };
        let all = (0..).zip(payloads.into_iter().zip(&rows_of)).map(of_side);
        Ok(all.filter(|part| !part.records.payload.is_empty()).collect())
    }

    fn sides_of(&self, block: &RecordBlock, subject: Option<&str>) -> Result<Vec<Side>> {
        let contents = |row: usize| self.sides.of_content(block.hashes.get(row).copied().unwrap_or_default());
        Ok(match (&block.payload, &self.sides.by) {
            (Payload::Samples(samples), SideBy::Subject) => {
                let side = |(row, subject): (usize, Option<&str>)| match subject {
                    Some(subject) => self.of_id(subject),
                    None => Ok(self.sides.of(&samples[row].key)),
                };
                let subjects = samples.iter().map(|sample| sample.subject.as_deref().or(subject));
                subjects.enumerate().map(side).collect::<Result<_>>()?
            }
            (Payload::Samples(samples), _) => {
                samples.iter().map(|sample| self.of_id(&sample.key)).collect::<Result<_>>()?
            }
            (Payload::Rows(batch), by) => {
                let columns: &[String] = match by {
                    SideBy::Subject => self.subject.as_slice(),
                    SideBy::Id => &self.id,
                    SideBy::Column(name) => std::slice::from_ref(name),
                    SideBy::Content => &[],
                };
                let lacking = columns.iter().find(|name| field_at(batch.schema_ref().fields(), name).is_none());
                if let Some(name) = lacking {
                    return Err(Error::input(format!("expected the column `{name}` to split by, found none"))
                        .hint("choose another column with --split-by"));
                }
                let groups = if columns.is_empty() { None } else { Some(id_column(batch, columns)?) };
                let is_id = matches!(by, SideBy::Subject | SideBy::Id);
                let whole = subject.filter(|_| *by == SideBy::Subject).map(|id| self.of_id(id)).transpose()?;
                match (groups, whole) {
                    (Some(groups), _) => self.of_groups(&groups, is_id, contents)?,
                    (None, Some(side)) => vec![side; batch.num_rows()],
                    (None, None) => (0..batch.num_rows()).map(contents).collect(),
                }
            }
        })
    }

    fn of_groups(&self, groups: &StringArray, are_ids: bool, of_content: impl Fn(usize) -> Side) -> Result<Vec<Side>> {
        // Neighbouring records often belong to one group.
        let mut last: Option<(&str, Side)> = None;
        let mut out = Vec::with_capacity(groups.len());
        for (row, group) in groups.iter().enumerate() {
            out.push(match (group, last) {
                (None, _) => of_content(row),
                (Some(group), Some((known, side))) if known == group => side,
                (Some(group), _) => {
                    let side = if are_ids { self.of_id(group)? } else { self.sides.of(group) };
                    last = Some((group, side));
                    side
                }
            });
        }
        Ok(out)
    }

    fn of_id(&self, id: &str) -> Result<Side> {
        let Some(pseudonymizer) = self.pseudonymizer else { return Ok(self.sides.of(id)) };
        let mut stored = String::new();
        pseudonymizer.id(id, &mut stored)?;
        Ok(self.sides.of(token_of(&stored)))
    }
}

/// Returns the side of an id as it is stored.
pub fn side_of_stored(sides: &Sides, is_private: bool, stored: &str) -> Side {
    sides.of(if is_private { token_of(stored) } else { stored })
}

/// Divides records: those of each side, in their order.
fn divided(whole: Payload, sides: &[Side], rows_of: &[Vec<u32>]) -> Result<Vec<Payload>> {
    match whole {
        Payload::Rows(batch) => {
            let take = |rows: &Vec<u32>| -> Result<Payload> {
                if rows.len() == batch.num_rows() {
                    return Ok(Payload::Rows(batch.clone()));
                }
                let rows = UInt32Array::from_iter_values(rows.iter().copied());
                Ok(Payload::Rows(take_record_batch(&batch, &rows)?))
            };
            rows_of.iter().map(take).collect()
        }
        Payload::Samples(samples) => {
            let mut out: Vec<Vec<Sample>> = rows_of.iter().map(|rows| Vec::with_capacity(rows.len())).collect();
            for (sample, side) in samples.into_iter().zip(sides) {
                if let Some(own) = out.get_mut(usize::from(*side)) {
                    own.push(sample);
                }
            }
            Ok(out.into_iter().map(Payload::Samples).collect())
        }
    }
}
