//! The list of sources of a new dataset: those that a record came from, under the new record numbers. The name of a
//! file may be an id, so files of records that were omitted are not listed.

use arrow::array::{Array, StringArray};
use rayon::prelude::*;

use super::choose::{Chosen, of_type};
use crate::{
    dataset::{
        IdQuery, NewSources, OptionalColumns, Pseudonymizer, Renumbering, Snapshot, SourceRow, sidecar_batches,
        stored_hash,
    },
    error::Result,
    events::Cancel,
    id::IdHash,
    record::BATCH_ROWS,
};

/// Sources of a snapshot that the new dataset has records of.
pub(super) struct KeptSources<'a> {
    snapshot: &'a Snapshot,
    numbering: &'a Renumbering,
    /// Hashes of the record ids that are kept, ascending; empty if no source is a part of a sample.
    hashes: Vec<IdHash>,
    /// Numbers that sources begin with, ascending, each with the place in the lists of the last source that does.
    firsts: Vec<(u64, usize)>,
    pseudonymizer: Option<Pseudonymizer>,
    /// Columns that the list needs.
    optional: OptionalColumns,
}

impl<'a> KeptSources<'a> {
    /// Reads the lists of sources.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) fn from_snapshot(snapshot: &'a Snapshot, chosen: &'a Chosen, cancel: &Cancel) -> Result<Self> {
        let numbering = &chosen.numbering;
        // Without the key, it is not known to which record a file belongs.
        let pseudonymizer = crate::dataset::pseudonymizer_of(snapshot).ok().flatten();
        let (mut firsts, mut place, mut parts) = (Vec::new(), 0, false);
        let mut optional = OptionalColumns::default();
        snapshot.each_source(&mut |row| {
            parts |= row.is_part_of_sample();
            if !row.is_part_of_sample() {
                firsts.extend(row.first_records().map(|first| (first, place)));
            }
            optional.arrays |= row.arrays.is_some();
            optional.part_hashes |= row.part_hash.is_some();
            optional.other_firsts |= !row.other_firsts.is_empty();
            place += 1;
            Ok(())
        })?;
        firsts.sort_unstable();
        firsts.dedup_by(|next, last| {
            let same = next.0 == last.0;
            if same {
                last.1 = last.1.max(next.1);
            }
            same
        });
        let hashes =
            if parts && !numbering.is_identity() { kept_hashes(snapshot, chosen, cancel)? } else { Vec::new() };
        Ok(Self { snapshot, numbering, hashes, firsts, pseudonymizer, optional })
    }

    /// Returns the row of a source for the new dataset; `None` if that has no record of it.
    fn kept_row(&self, row: SourceRow, place: usize) -> Option<SourceRow> {
        if row.removed.is_some() {
            return None;
        }
        if row.is_part_of_sample() && !self.numbering.is_identity() {
            let is_private = self.snapshot.entry().settings.private.is_some();
            let key = self.snapshot.entry().settings.keys.path_key(&row.name);
            let hash = IdQuery::new(self.pseudonymizer.as_ref(), &key).hash;
            let is_kept = is_private == self.pseudonymizer.is_some() && self.hashes.binary_search(&hash).is_ok();
            return is_kept.then(|| SourceRow { first_record: self.numbering.kept_before(row.first_record), ..row });
        }
        if self.numbering.is_identity() {
            return Some(row);
        }
        let mut firsts = row
            .first_records()
            .filter(|first| self.has_records(*first, place))
            .map(|first| self.numbering.kept_before(first));
        let first_record = firsts.next()?;
        let other_firsts = firsts.collect();
        Some(SourceRow { first_record, other_firsts, ..row })
    }

    /// Whether the new dataset has a record of the run of a source that begins with this number.
    fn has_records(&self, first: u64, place: usize) -> bool {
        let at = self.firsts.partition_point(|(other, _)| *other < first);
        let end = self.firsts.get(at + 1).map_or(self.snapshot.entry().next_record, |(next, _)| *next);
        let is_owner = self.firsts.get(at).is_some_and(|(_, last)| *last == place);
        is_owner && self.numbering.kept_before(end) > self.numbering.kept_before(first)
    }
}

/// Returns the hashes of the stored record ids that are kept, ascending. Those of the index may be cut, and would name
/// files of others.
fn kept_hashes(snapshot: &Snapshot, chosen: &Chosen, cancel: &Cancel) -> Result<Vec<IdHash>> {
    let settings = &snapshot.entry().settings;
    let mut hashes = Vec::new();
    for stock in &chosen.stocks {
        let mut first = 0;
        for batch in sidecar_batches(snapshot.dataset().store(), &stock.shard.sidecar(), BATCH_ROWS)? {
            cancel.check()?;
            let batch = batch?;
            let ids: &StringArray = of_type(&batch, "record_id")?;
            let is_kept = |row: &usize| {
                stock.kept.as_ref().is_none_or(|kept| first + row < kept.len() && kept.value(first + row))
            };
            let rows = (0..ids.len()).filter(|row| ids.is_valid(*row) && is_kept(row));
            hashes.extend(rows.map(|row| stored_hash(settings, ids.value(row))));
            first += ids.len();
        }
    }
    hashes.par_sort_unstable();
    Ok(hashes)
}

impl NewSources for KeptSources<'_> {
    fn each_row(&self, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
        let mut place = 0;
        self.snapshot.each_source(&mut |row| {
            place += 1;
            self.kept_row(row, place - 1).map_or(Ok(()), &mut *visit)
        })
    }

    fn optional_columns(&self) -> OptionalColumns {
        self.optional
    }
}
