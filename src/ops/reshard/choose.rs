//! Chooses the records of a new dataset: by their ids, by a condition on their values, and as a sample.
//!
//! Each choice makes a bitmap of the rows of each shard; a record is kept if all of them have it. Of those that are
//! kept, duplicates are omitted last.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::{
    array::{Array, BooleanBufferBuilder, RecordBatch, StringArray, UInt64Array},
    buffer::BooleanBuffer,
};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{RecordSample, ReshardOptions, dedup::omit_duplicates};
use crate::{
    dataset::{NumberSet, Part, Renumbering, Run, ShardMeta, Snapshot, find_each, numbered_rows, sidecar_batches},
    error::{Error, Result},
    exec::{
        reshard::{Stock, filter::Condition},
        rewrite::Rewriter,
    },
    ops::{Context, rewrite},
    record::BATCH_ROWS,
    storage::Store,
};

/// Number of ids up to which they are looked up in the id index rather than compared with those of all records.
const MAX_LOOKUPS: usize = 1_000;

/// The chosen records.
pub(super) struct Chosen {
    /// The parent's shards with at least one of them, in record order.
    pub(super) stocks: Vec<Stock>,
    /// Their numbers in the new dataset.
    pub(super) numbering: Renumbering,
    /// Ids that no record has.
    pub(super) missing: Vec<String>,
    /// Records that were not chosen.
    pub(super) filtered: u64,
    /// Records that were omitted as duplicates.
    pub(super) deduplicated: u64,
}

/// The records that some ids stand for.
enum ByIds<'a> {
    /// Their numbers.
    Numbers(NumberSet),
    /// The ids themselves, each with its place in the list.
    Texts(HashMap<&'a str, usize>),
}

/// What decides whether a record is kept.
struct RecordChoice<'a> {
    snapshot: &'a Snapshot,
    rewriter: Rewriter<'a>,
    ids: Option<ByIds<'a>>,
    /// Whether each id was found.
    found: Vec<AtomicBool>,
    condition: Option<Condition>,
    sample: Option<RecordSample>,
}

/// Chooses the records of a snapshot.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if a choice does not suit the dataset; when it cannot be read.
pub(super) fn choose_records(context: &Context<'_>, snapshot: &Snapshot, options: &ReshardOptions) -> Result<Chosen> {
    let rewriter = rewrite::new_rewriter(context, snapshot);
    let format = snapshot.entry().settings.shard_format;
    if options.filter.is_some() && !format.is_columnar() {
        return Err(Error::usage(format!(
            "--where needs a dataset with Parquet shards; this one has {}",
            format.title()
        ))
        .with_hint("choose the records with --ids instead"));
    }
    let mut choice = RecordChoice {
        snapshot,
        rewriter,
        ids: None,
        found: options.ids.iter().flatten().map(|_| AtomicBool::new(false)).collect(),
        condition: None,
        sample: options.sample,
    };
    if let Some(filter) = &options.filter {
        choice.condition = Some(Condition::bind_to_shards(&rewriter, filter, snapshot.live_shards()?.iter())?);
    }
    if let Some(ids) = &options.ids {
        choice.ids = Some(choice.of_ids(ids)?);
    }
    let runs = snapshot.runs_by_shard()?;
    let stock = |shard: &ShardMeta| {
        rewriter.cancel.check()?;
        choice.select_from_shard(shard, runs.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice))
    };
    let part = Part::from_names(snapshot, &options.split)?;
    let shards: Vec<&ShardMeta> = part.shards_in(snapshot)?.collect();
    let mut stocks: Vec<Stock> = shards.into_par_iter().map(stock).collect::<Result<_>>()?;
    let chosen = records_of(&stocks);
    if let Some(by) = &options.dedup {
        stocks = omit_duplicates(context, snapshot, by, stocks)?;
    }
    let kept = records_of(&stocks);
    let entry = snapshot.entry();
    let numbering = if kept == entry.totals.records && kept == entry.next_record {
        Renumbering::identity(kept)
    } else {
        renumber_kept(snapshot, &stocks)?
    };
    if numbering.record_count() != kept {
        let message = format!("expected {kept} records with different numbers, found {}", numbering.record_count());
        return Err(Error::integrity(message).at_location(snapshot.dataset().store().location().to_string()));
    }
    let ids = options.ids.iter().flatten().zip(&choice.found);
    let missing = ids.filter(|(_, found)| !found.load(Ordering::Relaxed)).map(|(id, _)| id.clone()).collect();
    let stocks = stocks.into_iter().filter(|stock| stock.share.records > 0).collect();
    let filtered = entry.totals.records_without(chosen)?;
    Ok(Chosen { stocks, numbering, missing, filtered, deduplicated: chosen - kept })
}

fn records_of(stocks: &[Stock]) -> u64 {
    stocks.iter().map(|stock| stock.share.records).sum()
}

/// Returns the numbering of the records that are kept of some shards.
fn renumber_kept(snapshot: &Snapshot, stocks: &[Stock]) -> Result<Renumbering> {
    let mut numbers = NumberSet::default();
    for stock in stocks.iter().filter(|stock| stock.share.records > 0) {
        let is_kept = |row: u64| match &stock.kept {
            Some(kept) => usize::try_from(row).is_ok_and(|row| row < kept.len() && kept.value(row)),
            None => true,
        };
        if stock.kept.is_none() && stock.runs.iter().all(|run| run.scattered.is_none()) {
            stock.runs.iter().for_each(|run| numbers.insert_range(run.first, run.records));
            continue;
        }
        each_number(snapshot, &stock.runs.iter().collect::<Vec<_>>(), &mut |row, number| {
            if let Some(number) = number.filter(|_| is_kept(row)) {
                numbers.insert(number);
            }
        })?;
    }
    Ok(Renumbering::from_kept(numbers))
}

/// Passes each row of a shard with its record number to `visit`; `None` if it has none.
fn each_number(snapshot: &Snapshot, runs: &[&Run], visit: &mut dyn FnMut(u64, Option<u64>)) -> Result<()> {
    for (row, known) in (0..).zip(numbered_rows(snapshot.dataset().store(), runs, snapshot.run_table()?)?) {
        visit(row, known?.map(|known| known.record));
    }
    Ok(())
}

impl<'a> RecordChoice<'a> {
    fn of_ids(&self, ids: &'a [String]) -> Result<ByIds<'a>> {
        if self.snapshot.entry().settings.private.is_none() && ids.len() > MAX_LOOKUPS {
            // Of equal ids the last one is looked for, and the others count as found.
            let places: HashMap<&str, usize> = ids.iter().enumerate().map(|(place, id)| (id.as_str(), place)).collect();
            let repeated = ids.iter().enumerate().filter(|(place, id)| places.get(id.as_str()) != Some(place));
            repeated.for_each(|(place, _)| self.found[place].store(true, Ordering::Relaxed));
            return Ok(ByIds::Texts(places));
        }
        let mut numbers = NumberSet::default();
        find_each(self.snapshot, ids, &mut |place, hit| {
            if hit.is_live() {
                self.found[place].store(true, Ordering::Relaxed);
                numbers.insert(hit.record);
            }
            Ok(())
        })?;
        Ok(ByIds::Numbers(numbers))
    }

    /// Returns a shard with the records that are kept of it.
    fn select_from_shard(&self, shard: &ShardMeta, runs: &[&Run]) -> Result<Stock> {
        let mut kept: Option<BooleanBuffer> = None;
        let mut keep =
            |more: BooleanBuffer| kept = Some(kept.take().map_or_else(|| more.clone(), |kept| &kept & &more));
        if let Some(ByIds::Texts(places)) = &self.ids {
            keep(self.with_ids(shard, places)?);
        }
        let by_number = matches!(self.ids, Some(ByIds::Numbers(_))) || self.sample.is_some();
        if by_number || runs.iter().map(|run| run.records).sum::<u64>() != shard.records {
            let mut rows = BooleanBufferBuilder::new(usize::try_from(shard.records).unwrap_or(0));
            each_number(self.snapshot, runs, &mut |_, number| {
                rows.append(number.is_some_and(|number| self.has_number(number)));
            })?;
            // Rows behind the last run are no records any more.
            let missing = usize::try_from(shard.records).unwrap_or(0).saturating_sub(rows.len());
            rows.append_n(missing, false);
            keep(rows.finish());
        }
        if let Some(condition) = &self.condition {
            keep(condition.matching_rows(&self.rewriter, shard)?);
        }
        Ok(Stock::new(shard.clone(), runs.iter().map(|run| (*run).clone()).collect(), kept))
    }

    fn has_number(&self, number: u64) -> bool {
        let by_id = match &self.ids {
            Some(ByIds::Numbers(numbers)) => numbers.contains(number),
            _ => true,
        };
        by_id && self.sample.is_none_or(|sample| sample.contains_record(number))
    }

    /// Returns for each record of a shard whether it has one of the ids.
    fn with_ids(&self, shard: &ShardMeta, places: &HashMap<&str, usize>) -> Result<BooleanBuffer> {
        let store: &Arc<dyn Store> = self.snapshot.dataset().store();
        let origins = places.keys().any(|id| id.contains('#'));
        let mut rows = BooleanBufferBuilder::new(usize::try_from(shard.records).unwrap_or(0));
        for batch in sidecar_batches(store, &shard.sidecar(), BATCH_ROWS)? {
            self.rewriter.cancel.check()?;
            let (batch, mut origin) = (batch?, String::new());
            let columns = IdColumns::from_batch(&batch)?;
            for row in 0..batch.num_rows() {
                let mut has = false;
                let mut is = |id: &str| {
                    if let Some(place) = places.get(id) {
                        self.found[*place].store(true, Ordering::Relaxed);
                        has = true;
                    }
                };
                if columns.record.is_valid(row) {
                    is(columns.record.value(row));
                } else if origins && columns.rows.is_valid(row) {
                    origin.clear();
                    origin.push_str(columns.source.value(row));
                    origin.push('#');
                    origin.push_str(&columns.rows.value(row).to_string());
                    is(&origin);
                }
                if columns.subject.is_valid(row) {
                    is(columns.subject.value(row));
                }
                rows.append(has);
            }
        }
        Ok(rows.finish())
    }
}

/// Columns of a sidecar that ids are made of.
struct IdColumns<'a> {
    record: &'a StringArray,
    subject: &'a StringArray,
    source: &'a StringArray,
    rows: &'a UInt64Array,
}

impl<'a> IdColumns<'a> {
    fn from_batch(batch: &'a RecordBatch) -> Result<Self> {
        let texts = |name| of_type::<StringArray>(batch, name);
        Ok(Self {
            record: texts("record_id")?,
            subject: texts("subject_id")?,
            source: texts("source")?,
            rows: of_type(batch, "row")?,
        })
    }
}

pub(super) fn of_type<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A> {
    let column = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<A>());
    column.ok_or_else(|| Error::integrity(format!("expected a column `{name}` in a sidecar, found none")))
}

impl RecordSample {
    /// Whether the record with this number is in the sample.
    fn contains_record(self, number: u64) -> bool {
        self.share >= 1.0 || (xxh3_64_with_seed(&number.to_le_bytes(), self.seed) as f64) < self.share * 2_f64.powi(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_about_its_share_and_grows_with_it() {
        for seed in [0, 7] {
            let of =
                |share| (0..100_000).filter(|n| RecordSample { share, seed }.contains_record(*n)).collect::<Vec<u64>>();
            let (small, large) = (of(0.1), of(0.3));
            assert!((9_500..10_500).contains(&small.len()), "{}", small.len());
            assert!(small.iter().all(|number| large.binary_search(number).is_ok()));
            assert_eq!(of(1.0).len(), 100_000);
        }
        assert_ne!(
            (0..100).map(|n| RecordSample { share: 0.5, seed: 1 }.contains_record(n)).collect::<Vec<_>>(),
            (0..100).map(|n| RecordSample { share: 0.5, seed: 2 }.contains_record(n)).collect::<Vec<_>>()
        );
    }
}
