//! Blocks the re-import of erased records: records whose record id or subject id is on the dataset's suppression list
//! are removed from their block.
//!
//! They count as rejected, so that in = out + rejected holds, but nothing of them is kept: a line in a rejects file
//! would store them again.

use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering},
};

use arrow::array::{BooleanArray, StringArray};

use super::{BlockPlace, Gate, GatedBlock};
use crate::{
    dataset::{IdKind, SuppressList},
    error::Result,
    exec::source::SourceFacts,
};

/// Filter behind the parser that removes erased records.
#[derive(Debug)]
pub struct SuppressGate<'a> {
    /// Ids of erased records and subjects.
    pub list: &'a SuppressList,
    /// Whether records whose ids are other spellings of erased ones are removed, too.
    pub normalize: bool,
    /// Number of accepted records with such ids.
    pub similar: AtomicU64,
}

impl Gate for SuppressGate<'_> {
    fn pass_block(&self, gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        let records = gated.block.payload.len();
        let (mut erased, mut similar) = (vec![false; records], vec![false; records]);
        for kind in [IdKind::Record, IdKind::Subject] {
            if let Some(ids) = gated.ids_of_kind(kind)? {
                self.mark_erased(kind, &ids, &mut erased, &mut similar);
            }
        }
        self.count_similar(&mut erased, &similar);
        gated.effects.erased += gated.retain_records(&erased.iter().map(|erased| Some(!erased)).collect())?;
        Ok(())
    }

    /// Records without ids are known by their origins, which follow from their numbers in the source.
    fn pass_in_order(&self, gated: &mut GatedBlock, place: &BlockPlace<'_>) -> Result<()> {
        let Some(SourceFacts { name, hashes_bytes, .. }) = place.source_facts() else { return Ok(()) };
        if !self.list.has_origins_in(&name.name) {
            return Ok(());
        }
        let mut erased = 0;
        for block in gated.blocks_mut() {
            block.expand_numbers();
            let is_kept = |(at, row): (usize, &u32)| {
                let content = block.hashes.get(at).copied().filter(|_| *hashes_bytes).and_then(NonZeroU64::new);
                Some(!self.list.has_origin(&format!("{}#{}", name.name, place.base + u64::from(*row) + 1), content))
            };
            let keep: BooleanArray = block.rows.iter().enumerate().map(is_kept).collect();
            erased += block.retain(&keep)?;
        }
        gated.effects.erased += erased;
        Ok(())
    }

    fn needs_hashes(&self, source: &SourceFacts) -> bool {
        source.hashes_bytes && self.list.has_origins_in(&source.name.name)
    }
}

impl SuppressGate<'_> {
    /// Counts records whose ids are other spellings of erased ones, or marks them as erased.
    fn count_similar(&self, erased: &mut [bool], similar: &[bool]) {
        let similar = similar.iter().zip(erased.iter_mut()).filter(|(similar, erased)| **similar && !**erased);
        if self.normalize {
            similar.for_each(|(_, erased)| *erased = true);
        } else {
            self.similar.fetch_add(similar.count() as u64, Ordering::Relaxed);
        }
    }

    fn mark_erased(&self, kind: IdKind, ids: &StringArray, erased: &mut [bool], similar: &mut [bool]) {
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
