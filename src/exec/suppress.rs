//! Keeping out who was erased: records whose id or subject id the dataset has on its list leave their block unseen.
//!
//! They count as rejected, for that is what in = out + rejected needs, but nothing of them is kept: a line in a file of
//! rejects would bring them back.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::StringArray;

use super::{encode::id_column, names::leave_out};
use crate::{
    dataset::{IdKind, SuppressList},
    error::Result,
    record::{Payload, RecordBlock, path::field_at},
};

/// What stands between the parser and everything behind it.
#[derive(Debug)]
pub struct SuppressGate<'a> {
    /// Who is not to come back.
    pub list: &'a SuppressList,
    /// Columns that make the record id.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Whether records stay out whose ids are other spellings of erased ones.
    pub normalize: bool,
    /// Counts records that came in with such ids.
    pub similar: AtomicU64,
}

impl SuppressGate<'_> {
    /// The block without records of those who were erased, and how many these were.
    ///
    /// # Errors
    /// When the block lacks a column of ids.
    pub fn pass(&self, block: RecordBlock) -> Result<(RecordBlock, u64)> {
        let erased: Vec<bool> = match &block.payload {
            Payload::Samples(samples) => {
                let keys = StringArray::from_iter_values(samples.iter().map(|sample| sample.key.as_str()));
                let (mut erased, mut similar) = (vec![false; samples.len()], vec![false; samples.len()]);
                self.mark(IdKind::Record, &keys, &mut erased, &mut similar);
                let subjects: StringArray = samples.iter().map(|sample| sample.subject.as_deref()).collect();
                self.mark(IdKind::Subject, &subjects, &mut erased, &mut similar);
                self.count(&mut erased, &similar);
                erased
            }
            Payload::Rows(batch) => {
                let (mut erased, mut similar) = (vec![false; batch.num_rows()], vec![false; batch.num_rows()]);
                for (kind, columns) in
                    [(IdKind::Record, self.id.as_slice()), (IdKind::Subject, self.subject.as_slice())]
                {
                    let there = columns.iter().all(|column| field_at(batch.schema_ref().fields(), column).is_some());
                    if !columns.is_empty() && there {
                        self.mark(kind, &id_column(batch, columns)?, &mut erased, &mut similar);
                    }
                }
                self.count(&mut erased, &similar);
                erased
            }
        };
        without(block, &erased)
    }

    /// Counts records whose ids are other spellings of erased ones, or takes them for erased.
    fn count(&self, erased: &mut [bool], similar: &[bool]) {
        let similar = similar.iter().zip(erased.iter_mut()).filter(|(similar, erased)| **similar && !**erased);
        if self.normalize {
            similar.for_each(|(_, erased)| *erased = true);
        } else {
            self.similar.fetch_add(similar.count() as u64, Ordering::Relaxed);
        }
    }

    fn mark(&self, kind: IdKind, ids: &StringArray, erased: &mut [bool], similar: &mut [bool]) {
        // Neighbours are often about the same subject.
        let mut last: Option<(&str, (bool, bool))> = None;
        for ((id, erased), similar) in ids.iter().zip(erased).zip(similar) {
            let Some(id) = id else { continue };
            let known = last.filter(|(text, _)| *text == id).map(|(_, known)| known);
            let found = known.unwrap_or_else(|| (self.list.has_id(kind, id), self.list.has_similar(kind, id)));
            last = Some((id, found));
            *erased |= found.0;
            *similar |= found.1;
        }
    }
}

/// The block without records whose origins were erased, given the number of its source's records before it, and whether content
/// hashes are those of the records' bytes.
///
/// # Errors
/// When the rows cannot be taken out.
pub fn without_origins(
    list: &SuppressList,
    source: &str,
    base: u64,
    hashes_bytes: bool,
    mut block: RecordBlock,
) -> Result<(RecordBlock, u64)> {
    block.list_each();
    let is_erased = |(at, row): (usize, &u32)| {
        let content = block.hashes.get(at).copied().filter(|_| hashes_bytes);
        list.has_origin(&format!("{source}#{}", base + u64::from(*row) + 1), content)
    };
    let erased: Vec<bool> = block.rows.iter().enumerate().map(is_erased).collect();
    without(block, &erased)
}

fn without(block: RecordBlock, erased: &[bool]) -> Result<(RecordBlock, u64)> {
    let count = erased.iter().filter(|erased| **erased).count() as u64;
    if count == 0 {
        return Ok((block, 0));
    }
    let reasons = erased.iter().map(|erased| erased.then(String::new)).collect();
    Ok((leave_out(block, reasons)?.0, count))
}
