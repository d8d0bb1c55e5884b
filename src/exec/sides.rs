//! Divides records among the sides of a dataset: where they are parsed, each gets its side, and the records of a block are ordered by
//! their sides; where they are gathered, the records of each side go their own way.
//!
//! ```text
//! block   t v t t s t      parsed, by workers
//!         t t t t | v | s  ordered by side: the order within a side is that of the input
//! ```

use arrow::{
    array::{Array, StringArray, UInt32Array},
    compute::take_record_batch,
};

use super::{encode::id_column, gather::Gathered};
use crate::{
    dataset::{Pseudonymizer, token_of},
    error::{Error, Result},
    record::{
        Payload, RecordBlock,
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

impl SideGate<'_> {
    /// Orders the records of a block by their sides, and notes these. `subject` is that of all rows of the source, if it is in no
    /// column.
    ///
    /// # Errors
    /// When the rows lack the column that the side follows from.
    pub fn pass(&self, mut block: RecordBlock, subject: Option<&str>) -> Result<RecordBlock> {
        block.expand();
        let sides = self.sides_of(&block, subject)?;
        if !sides.is_sorted() {
            let mut order: Vec<u32> = (0..).take(sides.len()).collect();
            order.sort_by_key(|row| sides[*row as usize]);
            block = reordered(block, &order)?;
        }
        block.sides = sides;
        block.sides.sort_unstable();
        Ok(block)
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
        let side = |(row, group): (usize, Option<&'_ str>)| -> Result<Side> {
            let Some(group) = group else { return Ok(of_content(row)) };
            Ok(if are_ids { self.of_id(group)? } else { self.sides.of(group) })
        };
        let mut out = Vec::with_capacity(groups.len());
        for (row, group) in groups.iter().enumerate() {
            let known = last.filter(|(text, _)| Some(*text) == group).map(|(_, side)| side);
            let found = known.map_or_else(|| side((row, group)), Ok)?;
            last = group.map(|group| (group, found));
            out.push(found);
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

fn reordered(mut block: RecordBlock, order: &[u32]) -> Result<RecordBlock> {
    block.hashes = order.iter().filter_map(|row| block.hashes.get(*row as usize).copied()).collect();
    block.rows = order.iter().filter_map(|row| block.rows.get(*row as usize).copied()).collect();
    block.payload = match block.payload {
        Payload::Rows(batch) => {
            Payload::Rows(take_record_batch(&batch, &UInt32Array::from_iter_values(order.iter().copied()))?)
        }
        Payload::Samples(samples) => {
            let mut samples: Vec<_> = samples.into_iter().map(Some).collect();
            let take = |row: &u32| samples.get_mut(*row as usize).and_then(Option::take);
            Payload::Samples(order.iter().filter_map(take).collect())
        }
    };
    Ok(block)
}

/// Divides gathered records by their sides; each part accounts for its share of the input.
pub fn divided(gathered: Gathered) -> Vec<(Side, Gathered)> {
    let Gathered { records, mut bytes_in, sides } = gathered;
    let mut out = Vec::new();
    let (mut rest, mut left) = (Some(records), sides.as_slice());
    while let Some(records) = rest.take() {
        let side = left.first().copied().unwrap_or_default();
        let (of_side, others) = left.split_at(left.partition_point(|other| *other == side));
        let (head, tail) = if others.is_empty() { (Some(records), None) } else { records.split_at(of_side.len()) };
        let share = u128::from(bytes_in) * of_side.len() as u128 / left.len().max(1) as u128;
        let share = if others.is_empty() { bytes_in } else { u64::try_from(share).unwrap_or(bytes_in) };
        bytes_in -= share;
        out.extend(head.map(|records| (side, Gathered { records, bytes_in: share, sides: Vec::new() })));
        (rest, left) = (tail, others);
    }
    out
}
