//! Omits duplicates: the first record in the order of the input stays.
//!
//! ```text
//! workers      fingerprint each record, behind all other gates
//! one thread   in order, as records are gathered: seen before?  -> omitted
//! ```
//!
//! Records that are rejected, filtered out or erased have no fingerprints, so they are nobody's first.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array},
    compute::take,
};

use super::{BlockPlace, Gate, GatedBlock, IdColumns};
use crate::{
    dataset::{DuplicateRow, DuplicatesWriter, FirstOccurrence, IdKind, Pseudonymizer, token_of},
    error::{Error, Result},
    exec::{seen::Seen, source::SourceFacts},
    format::files::Samples,
    record::{
        Payload, RecordBlock, Sample,
        dedup::DedupBy,
        fingerprint::{Fingerprint, Fingerprinter},
        id_column,
        path::column_at,
    },
    scan::SourceFile,
};

/// Marks the number of a record that the dataset held before, in place of the position of one of the run.
pub const EARLIER: u64 = 1 << 63;

/// Gate behind the parser that takes the fingerprints of records, and what was seen of them.
#[derive(Debug)]
pub struct DedupGate<'a> {
    /// What duplicates have in common.
    pub by: &'a DedupBy,
    /// Number of the columns of rows that are stored; the others are behind them.
    pub stored: usize,
    /// Takes the fingerprints.
    pub fingerprinter: Fingerprinter,
    /// Pseudonymizes ids: those of earlier records are known only as they are stored.
    pub pseudonymizer: Option<&'a Pseudonymizer>,
    /// The samples, if they are made of files: positions of the run are their numbers.
    pub samples: Option<(&'a Samples, &'a [SourceFile])>,
    /// Receives the records that are omitted; `None` if none are.
    pub table: Option<Mutex<DuplicatesWriter>>,
    /// Fingerprints of the records before; `None` if the run leaves no duplicates out.
    pub seen: Option<Mutex<Seen>>,
}

impl Gate for DedupGate<'_> {
    /// Adds the fingerprints of its records to a block.
    fn pass_block(&self, gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        let fingerprints = match (self.by, &gated.block.payload) {
            (DedupBy::Id, _) => match gated.ids_of_kind(IdKind::Record)? {
                None if !gated.block.payload.is_empty() => {
                    return Err(Error::internal("record ids have no columns"));
                }
                None => Vec::new(),
                Some(ids) => ids.iter().map(|id| id.map(|id| self.of_id(id)).transpose()).collect::<Result<_>>()?,
            },
            (by, payload) => {
                let taken = self.fingerprinter.of_payload(payload, by.columns(), self.stored)?;
                taken.into_iter().map(Some).collect()
            }
        };
        gated.block.fingerprints = fingerprints;
        Ok(())
    }

    /// Takes out the duplicates, counts them and puts them on record.
    fn pass_in_order(&self, gated: &mut GatedBlock, place: &BlockPlace<'_>) -> Result<()> {
        let Some(firsts) = self.find_duplicates(gated.record_blocks(), place.before + place.base)? else {
            return Ok(());
        };
        let (mut count, columns) = (0, Arc::clone(&gated.columns));
        for (records, firsts) in gated.blocks_mut().zip(&firsts) {
            self.record_duplicates(records, firsts, &columns, place)?;
            let keep: BooleanArray = firsts.iter().map(|first| Some(first.is_none())).collect();
            count += records.retain(&keep)?;
        }
        gated.effects.deduplicated += count;
        Ok(())
    }
}

impl DedupGate<'_> {
    fn of_id(&self, id: &str) -> Result<Fingerprint> {
        let Some(_) = self.pseudonymizer else { return Ok(self.fingerprinter.of_id(id)) };
        Ok(self.fingerprinter.of_id(token_of(&self.stored_id(id)?)))
    }

    /// Returns what records of some blocks are duplicates of, block by block: positions in the run, or numbers of
    /// records marked with [`EARLIER`]. The records of the blocks are considered together, in the order of their rows;
    /// `base` is the position of row 0 in the run. `None` if no record is a duplicate.
    fn find_duplicates<'b>(
        &self,
        blocks: impl Iterator<Item = &'b RecordBlock>,
        base: u64,
    ) -> Result<Option<Vec<Vec<Option<u64>>>>> {
        let Some(seen) = &self.seen else { return Ok(None) };
        let blocks: Vec<&RecordBlock> = blocks.collect();
        let mut firsts: Vec<Vec<Option<u64>>> = blocks.iter().map(|block| vec![None; block.payload.len()]).collect();
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
            firsts[number][at] = seen.find_or_insert(fingerprint, base + u64::from(row))?;
            any |= firsts[number][at].is_some();
        }
        Ok(any.then_some(firsts))
    }

    /// Puts the duplicates of a block on record.
    fn record_duplicates(
        &self,
        block: &RecordBlock,
        firsts: &[Option<u64>],
        columns: &IdColumns,
        place: &BlockPlace<'_>,
    ) -> Result<()> {
        let Some(table) = self.table.as_ref().filter(|_| firsts.iter().any(Option::is_some)) else { return Ok(()) };
        let rows: Vec<usize> = (0..firsts.len()).filter(|at| firsts[*at].is_some()).collect();
        let ids = ids_of(block, &rows, columns, place)?;
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, (record_id, subject_id)) in rows.into_iter().zip(ids) {
            let Some(first) = firsts[at] else { continue };
            let row = block.rows.get(at).map_or(at as u64, |row| u64::from(*row));
            let origin = match &block.payload {
                Payload::Samples(samples) => samples[at].origin.as_str(),
                Payload::Rows(_) => "",
            };
            let name = if origin.is_empty() {
                place.source_facts().map_or("", |facts| facts.name.name.as_str())
            } else {
                origin
            };
            table.push(DuplicateRow {
                record_id: record_id.map(|id| self.stored_id(&id)).transpose()?,
                subject_id: subject_id.map(|id| self.stored_id(&id)).transpose()?,
                source: self.stored_source(name),
                row: origin.is_empty().then_some(place.base + row + 1),
                first: self.first_occurrence(first, place)?,
            })?;
        }
        Ok(())
    }

    /// Returns how a table states the record that others repeat.
    fn first_occurrence(&self, first: u64, place: &BlockPlace<'_>) -> Result<FirstOccurrence> {
        if first & EARLIER > 0 {
            return Ok(FirstOccurrence::Record(first & !EARLIER));
        }
        if let Some((samples, files)) = self.samples {
            let number = usize::try_from(first).ok().filter(|number| *number < samples.len());
            let number = number.ok_or_else(|| Error::internal("a sample that others repeat does not exist"))?;
            return Ok(FirstOccurrence::Id(self.stored_id(samples.get(number, files).key())?));
        }
        let source = place.starts.partition_point(|(start, _)| *start <= first).checked_sub(1);
        let (start, source) = source.and_then(|at| place.starts.get(at)).copied().unwrap_or_default();
        let name = place.sources.get(source).map_or("", |facts| facts.name.name.as_str());
        Ok(FirstOccurrence::Origin(self.stored_source(name), first - start + 1))
    }

    fn stored_id(&self, id: &str) -> Result<String> {
        let Some(pseudonymizer) = self.pseudonymizer else { return Ok(id.to_owned()) };
        let mut stored = String::new();
        pseudonymizer.encode_id(id, &mut stored)?;
        Ok(stored)
    }

    fn stored_source(&self, name: &str) -> String {
        self.pseudonymizer
            .map_or_else(|| name.to_owned(), |pseudonymizer| pseudonymizer.stored_source(name).into_owned())
    }
}

/// Returns the record ids and subject ids of some records of a block.
fn ids_of(
    block: &RecordBlock,
    rows: &[usize],
    columns: &IdColumns,
    place: &BlockPlace<'_>,
) -> Result<Vec<(Option<String>, Option<String>)>> {
    let of_source = || place.source_facts().and_then(|facts| facts.name.subject.clone());
    match &block.payload {
        Payload::Samples(samples) => {
            let subject = |sample: &Sample| sample.subject.clone().or_else(of_source);
            Ok(rows.iter().map(|row| (Some(samples[*row].key.clone()), subject(&samples[*row]))).collect())
        }
        Payload::Rows(batch) => {
            let (records, subjects) = (
                id_texts(batch, rows, columns.columns_of_kind(IdKind::Record))?,
                id_texts(batch, rows, columns.columns_of_kind(IdKind::Subject))?,
            );
            Ok(records.into_iter().zip(subjects).map(|(id, subject)| (id, subject.or_else(of_source))).collect())
        }
    }
}

/// Returns the texts of ids of some rows, given their columns; `None` for all if there are no columns.
fn id_texts(batch: &RecordBatch, rows: &[usize], columns: &[String]) -> Result<Vec<Option<String>>> {
    let at = UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
    let mut taken: Vec<(&str, ArrayRef)> = Vec::with_capacity(columns.len());
    for name in columns {
        if let Some(column) = column_at(batch, name)? {
            taken.push((name.as_str(), take(&column, &at, None)?));
        }
    }
    if taken.is_empty() || taken.len() < columns.len() {
        return Ok(vec![None; rows.len()]);
    }
    let ids = id_column(&RecordBatch::try_from_iter(taken)?, columns)?;
    Ok(ids.iter().map(|id| id.map(str::to_owned)).collect())
}
