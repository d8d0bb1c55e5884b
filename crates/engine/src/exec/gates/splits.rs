//! Divides the records of a block among the splits of a dataset, where they are parsed.
//!
//! ```text
//! block t v t t s t  ->  t t t t | v | s      the order within a split is that of the input
//! ```
//!
//! The records of a split are copied, so that a split which fills its units slowly keeps nothing of the others in
//! memory.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::{
    array::{Array, StringArray, UInt32Array},
    compute::take_record_batch,
};

use super::{Gate, GatedBlock, SplitRecords};
use crate::{
    codec::checksum::xxh3_64,
    dataset::{IdKind, Pseudonymizer, token_of},
    error::{Error, Result},
    exec::source::SourceFacts,
    record::{
        Payload, RecordBlock, Sample, id_column,
        path::field_at,
        split::{Split, SplitBy, Splits},
    },
};

/// Gate behind the parser that gives each record its split.
#[derive(Debug)]
pub struct SplitGate<'a> {
    /// The splits.
    pub splits: &'a Splits,
    /// Pseudonymizes ids: the split of a private id follows from what is stored of it.
    pub pseudonymizer: Option<&'a Pseudonymizer>,
    /// The groups so far.
    pub groups: Groups,
}

/// Maximum number of groups that are counted: with more, shares are as asked for unless the groups are of very
/// different sizes.
const MOST_GROUPS: usize = 1_000;

/// Counts groups, as long as they are few.
#[derive(Debug, Default)]
pub struct Groups {
    known: Mutex<HashSet<u64>>,
    are_many: AtomicBool,
}

impl Groups {
    /// Returns the number of groups; `None` if they are more than are counted.
    pub fn group_count(&self) -> Option<usize> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).len();
        (!self.are_many.load(Ordering::Relaxed)).then_some(known)
    }

    /// Adds the groups of a block, given the hash of each record's.
    fn add_hashes(&self, hashes: impl Iterator<Item = u64>) {
        if self.are_many.load(Ordering::Relaxed) {
            return;
        }
        // Few groups repeat often: those that were seen a moment ago need no search, and none of a block needs the
        // lock.
        let (mut own, mut recent) = (HashSet::new(), std::array::from_fn::<u64, 256, _>(|place| !(place as u64)));
        for hash in hashes {
            let place = &mut recent[usize::from(hash.to_le_bytes()[0])];
            if std::mem::replace(place, hash) != hash {
                own.insert(hash);
            }
            if own.len() > MOST_GROUPS {
                break;
            }
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(own);
        if known.len() > MOST_GROUPS {
            self.are_many.store(true, Ordering::Relaxed);
            *known = HashSet::new();
        }
    }
}

impl Gate for SplitGate<'_> {
    /// Takes the records out of a block, and puts those of each split that has some beside it.
    fn pass_block(&self, gated: &mut GatedBlock, source: &SourceFacts) -> Result<()> {
        gated.block.expand_numbers();
        let splits = self.splits_of(gated, source.name.subject.as_deref())?;
        let block = &mut gated.block;
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); self.splits.split_count()];
        for (row, split) in (0..).zip(&splits) {
            if let Some(rows) = rows_of.get_mut(usize::from(*split)) {
                rows.push(row);
            }
        }
        let whole = std::mem::replace(&mut block.payload, Payload::Samples(Vec::new()));
        let (rows, hashes) = (std::mem::take(&mut block.rows), std::mem::take(&mut block.hashes));
        let fingerprints = std::mem::take(&mut block.fingerprints);
        let payloads = divide_payload(whole, &splits, &rows_of)?;
        let of_split = |(split, (payload, order)): (Split, (Payload, &Vec<u32>))| {
            let at = |row: &u32| *row as usize;
            let records = RecordBlock {
                payload,
                lacking: Arc::clone(&block.lacking),
                rows: order.iter().filter_map(|row| rows.get(at(row)).copied()).collect(),
                hashes: order.iter().filter_map(|row| hashes.get(at(row)).copied()).collect(),
                fingerprints: order.iter().filter_map(|row| fingerprints.get(at(row)).copied()).collect(),
                ..RecordBlock::empty()
            };
            SplitRecords { split, records }
        };
        let all = (0..).zip(payloads.into_iter().zip(&rows_of)).map(of_split);
        gated.splits = all.filter(|part| !part.records.payload.is_empty()).collect();
        Ok(())
    }

    fn needs_hashes(&self, _source: &SourceFacts) -> bool {
        true
    }
}

impl SplitGate<'_> {
    /// Returns the split of each record. `subject` is that of all rows of the source, if it is in no column.
    fn splits_of(&self, gated: &mut GatedBlock, subject: Option<&str>) -> Result<Vec<Split>> {
        let groups = match (&gated.block.payload, &self.splits.by) {
            (Payload::Samples(_), _) | (_, SplitBy::Content) => None,
            (_, SplitBy::Subject) => gated.ids_of_kind(IdKind::Subject)?,
            (_, SplitBy::Id) => gated.ids_of_kind(IdKind::Record)?,
            (Payload::Rows(rows), SplitBy::Column(name)) => {
                if field_at(rows.schema_ref().fields(), name).is_none() {
                    return Err(Error::input(format!("expected the column `{name}` to split by, found none"))
                        .with_hint("choose another column with --split-by"));
                }
                Some(id_column(rows, std::slice::from_ref(name))?)
            }
        };
        let block = &gated.block;
        let contents = |row: usize| self.splits.of_content(block.hashes.get(row).copied().unwrap_or_default());
        Ok(match (&block.payload, &self.splits.by) {
            (Payload::Samples(samples), SplitBy::Subject) => {
                let split = |(row, subject): (usize, Option<&str>)| match subject {
                    Some(subject) => self.of_id(subject),
                    None => Ok(self.splits.split_of_group(&samples[row].key)),
                };
                let subjects = samples.iter().map(|sample| sample.subject.as_deref().or(subject));
                let groups = subjects.clone().zip(samples).map(|(subject, sample)| subject.unwrap_or(&sample.key));
                self.groups.add_hashes(groups.map(|group| xxh3_64(group.as_bytes())));
                subjects.enumerate().map(split).collect::<Result<_>>()?
            }
            (Payload::Samples(samples), _) => {
                self.groups.add_hashes(samples.iter().map(|sample| xxh3_64(sample.key.as_bytes())));
                samples.iter().map(|sample| self.of_id(&sample.key)).collect::<Result<_>>()?
            }
            (Payload::Rows(batch), by) => {
                let is_id = matches!(by, SplitBy::Subject | SplitBy::Id);
                let whole = subject.filter(|_| *by == SplitBy::Subject).map(|id| self.of_id(id)).transpose()?;
                let hash = |row: usize| block.hashes.get(row).copied().unwrap_or_default();
                match (&groups, subject.filter(|_| whole.is_some())) {
                    (Some(groups), _) => {
                        let group = |(row, group): (usize, Option<&str>)| {
                            group.map_or(hash(row), |group| xxh3_64(group.as_bytes()))
                        };
                        self.groups.add_hashes(groups.iter().enumerate().map(group));
                    }
                    (None, Some(subject)) => self.groups.add_hashes(std::iter::once(xxh3_64(subject.as_bytes()))),
                    (None, None) => self.groups.add_hashes((0..batch.num_rows()).map(hash)),
                }
                match (groups, whole) {
                    (Some(groups), _) => self.of_groups(&groups, is_id, contents)?,
                    (None, Some(split)) => vec![split; batch.num_rows()],
                    (None, None) => (0..batch.num_rows()).map(contents).collect(),
                }
            }
        })
    }

    fn of_groups(
        &self,
        groups: &StringArray,
        are_ids: bool,
        of_content: impl Fn(usize) -> Split,
    ) -> Result<Vec<Split>> {
        // Neighbouring records often belong to one group.
        let mut last: Option<(&str, Split)> = None;
        let mut out = Vec::with_capacity(groups.len());
        for (row, group) in groups.iter().enumerate() {
            out.push(match (group, last) {
                (None, _) => of_content(row),
                (Some(group), Some((known, split))) if known == group => split,
                (Some(group), _) => {
                    let split = if are_ids { self.of_id(group)? } else { self.splits.split_of_group(group) };
                    last = Some((group, split));
                    split
                }
            });
        }
        Ok(out)
    }

    fn of_id(&self, id: &str) -> Result<Split> {
        let Some(pseudonymizer) = self.pseudonymizer else { return Ok(self.splits.split_of_group(id)) };
        let mut stored = String::new();
        pseudonymizer.encode_id(id, &mut stored)?;
        Ok(self.splits.split_of_group(token_of(&stored)))
    }
}

/// Divides records: those of each split, in their order.
fn divide_payload(whole: Payload, splits: &[Split], rows_of: &[Vec<u32>]) -> Result<Vec<Payload>> {
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
            for (sample, split) in samples.into_iter().zip(splits) {
                if let Some(own) = out.get_mut(usize::from(*split)) {
                    own.push(sample);
                }
            }
            Ok(out.into_iter().map(Payload::Samples).collect())
        }
    }
}
