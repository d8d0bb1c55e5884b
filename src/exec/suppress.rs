//! Blocks the re-import of erased records: records whose record id or subject id is on the dataset's suppression list
//! are removed from their block.
//!
//! They count as rejected, so that in = out + rejected holds, but nothing of them is kept: a line in a rejects file
//! would store them again.

use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering},
};

use arrow::array::StringArray;

use super::{encode::id_column, names::reject_records};
use crate::{
    dataset::{IdKind, SuppressList},
    error::Result,
    record::{Payload, RecordBlock, path::field_at},
};

/// Filter behind the parser that removes erased records.
#[derive(Debug)]
pub struct SuppressGate<'a> {
    /// Ids of erased records and subjects.
    pub list: &'a SuppressList,
    /// Columns that make the record id.
    pub id: Vec<String>,
    /// Column of the subject id.
    pub subject: Option<String>,
    /// Whether records whose ids are other spellings of erased ones are removed, too.
    pub normalize: bool,
    /// Number of accepted records with such ids.
    pub similar: AtomicU64,
}

impl SuppressGate<'_> {
    /// Returns the block without erased records, and how many were removed.
    ///
    /// # Errors
    /// Fails if the block lacks an id column.
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
                    let present = columns.iter().all(|column| field_at(batch.schema_ref().fields(), column).is_some());
                    if !columns.is_empty() && present {
                        self.mark(kind, &id_column(batch, columns)?, &mut erased, &mut similar);
                    }
                }
                self.count(&mut erased, &similar);
                erased
            }
        };
        without(block, &erased)
    }

    /// Counts records whose ids are other spellings of erased ones, or marks them as erased.
    fn count(&self, erased: &mut [bool], similar: &[bool]) {
        let similar = similar.iter().zip(erased.iter_mut()).filter(|(similar, erased)| **similar && !**erased);
        if self.normalize {
            similar.for_each(|(_, erased)| *erased = true);
        } else {
            self.similar.fetch_add(similar.count() as u64, Ordering::Relaxed);
        }
    }

    fn mark(&self, kind: IdKind, ids: &StringArray, erased: &mut [bool], similar: &mut [bool]) {
        // Neighbouring records often have the same subject.
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

/// Returns the block without records whose origins were erased, and how many were removed. `base` is the number of the
/// source's records before the block; `hashes_bytes` states whether content hashes are hashes of the records' bytes.
///
/// # Errors
/// Fails if the rows cannot be removed.
pub fn without_origins(
    list: &SuppressList,
    source: &str,
    base: u64,
    hashes_bytes: bool,
    mut block: RecordBlock,
) -> Result<(RecordBlock, u64)> {
    block.expand();
    let is_erased = |(at, row): (usize, &u32)| {
        let content = block.hashes.get(at).copied().filter(|_| hashes_bytes).and_then(NonZeroU64::new);
        list.has_origin(&format!("{source}#{}", base + u64::from(*row) + 1), content)
    };
    let erased: Vec<bool> = block.rows.iter().enumerate().map(is_erased).collect();
    without(block, &erased)
}

/// Returns the block without the marked records, and how many were removed.
///
/// # Errors
/// Fails if the rows cannot be removed.
pub(super) fn without(block: RecordBlock, erased: &[bool]) -> Result<(RecordBlock, u64)> {
    let count = erased.iter().filter(|erased| **erased).count() as u64;
    if count == 0 {
        return Ok((block, 0));
    }
    let reasons = erased.iter().map(|erased| erased.then(String::new)).collect();
    Ok((reject_records(block, reasons)?.0, count))
}
