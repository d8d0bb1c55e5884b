//! `manifest --drift`: compares the distributions of values in two versions.
//!
//! Every shard of either version is read; shards of both are read once per pass. The first pass samples the rows of the
//! older version, and the bins of each column are made from the sample; the second pass counts both versions exactly.
//! Records of tar and TFRecord have no columns that could be read without all of their bytes, so the sizes of records
//! are compared instead.
//!
//! ```text
//! older shards -> sample of rows -> bins of each column -> shards of both, counted -> index, share of nulls
//! ```

mod profile;

use std::collections::{BTreeMap, HashSet};

use arrow::{
    array::{BooleanArray, BooleanBufferBuilder, RecordBatch},
    compute::filter_record_batch,
};
use rayon::prelude::*;
use serde::Serialize;

use self::profile::{Bins, Column, Counted, Sample, columns_of};
use super::Context;
use crate::{
    dataset::{Run, ShardMeta, Snapshot, sidecar_batches},
    error::{Error, Result},
    events::Event,
    format::{OutputFormat, parquet},
    id::Version,
    plan::drift::psi,
    record::BATCH_ROWS,
};

/// Limits beyond which a change counts as drift.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Thresholds {
    /// Population stability index of a column.
    pub psi: f64,
    /// Difference between the shares of nulls.
    pub null_share: f64,
    /// Relative change of the number of records.
    pub volume: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { psi: 0.2, null_share: 0.1, volume: 0.5 }
    }
}

/// Drift of a column.
#[derive(Debug, Clone, Serialize)]
pub struct ColumnDrift {
    /// Its name; a path for nested columns.
    pub column: String,
    /// `number`, `category`, `list` (its lengths) or `size` (bytes of records).
    pub kind: &'static str,
    /// Population stability index; absent if a version has no values.
    pub psi: Option<f64>,
    /// Share of nulls in the older version; NaN counts as null.
    pub nulls_before: f64,
    /// Share of nulls in the newer version.
    pub nulls_after: f64,
    /// Exceeded thresholds: `psi`, `nulls`; `gone` if the column is missing; `type` if its values are of another kind
    /// than before.
    pub beyond: Vec<&'static str>,
    /// Counts of the bins.
    pub bins: Vec<BinDrift>,
}

/// Counts of a bin.
#[derive(Debug, Clone, Serialize)]
pub struct BinDrift {
    /// Upper bound, inclusive; absent for the last bin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<f64>,
    /// The bin's only value; absent for the bin of all other values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Number of its values in the older version.
    pub before: u64,
    /// Number of its values in the newer version.
    pub after: u64,
}

/// Drift of a version.
#[derive(Debug, Clone, Serialize)]
pub struct DriftReport {
    /// The dataset.
    pub dataset: String,
    /// The older version, whose bins are used.
    pub from: Version,
    /// The newer version.
    pub to: Version,
    /// Records in the older version.
    pub records_before: u64,
    /// Records in the newer version.
    pub records_after: u64,
    /// Relative change of the number of records.
    pub volume_change: f64,
    /// Whether that exceeds its threshold.
    pub volume_beyond: bool,
    /// Thresholds that were applied.
    pub thresholds: Thresholds,
    /// Columns compared.
    pub columns_compared: u64,
    /// Columns that exceed a threshold.
    pub columns_beyond: u64,
    /// Whether any threshold is exceeded.
    pub drifted: bool,
    /// Number of rows from which the bins are made.
    pub sampled_rows: u64,
    /// What was not compared, and why.
    pub not_compared: Option<&'static str>,
    /// The columns, ordered by decreasing drift.
    #[serde(skip)]
    pub columns: Vec<ColumnDrift>,
}

/// Compares the values of two versions.
///
/// # Errors
/// When a shard cannot be read.
pub fn drift(context: &Context<'_>, older: &Snapshot, newer: &Snapshot, thresholds: Thresholds) -> Result<DriftReport> {
    let comparison = Comparison { context, older, newer };
    super::or_overtaken([older, newer], comparison.report(thresholds))
}

/// The two sides of a column: older and newer.
type Sides = [Counted; 2];

fn judge(
    column: Column,
    bins: &BTreeMap<Column, Bins>,
    sides: &Sides,
    records: [u64; 2],
    thresholds: Thresholds,
) -> ColumnDrift {
    let none = Bins::default();
    let bins = bins.get(&column).unwrap_or(&none);
    let nulls = |side: usize| match records[side] {
        0 => 0.0,
        all => 1.0 - sides[side].values as f64 / all as f64,
    };
    let psi = psi(&sides[0].bins, &sides[1].bins);
    let (before, after) = (nulls(0), nulls(1));
    let gone = sides[0].values > 0 && sides[1].values == 0 && records[1] > 0;
    let mut beyond = Vec::new();
    if psi.is_some_and(|psi| psi > thresholds.psi) {
        beyond.push("psi");
    }
    // A new column has no older values to compare with.
    if (after - before).abs() > thresholds.null_share && sides[0].values > 0 {
        beyond.push("nulls");
    }
    if gone {
        beyond.push("gone");
    }
    let counts = sides[0].bins.iter().zip(&sides[1].bins).enumerate();
    let bins = counts.map(|(i, (before, after))| {
        let (up_to, value) = bins.label(i);
        BinDrift { up_to, value, before: *before, after: *after }
    });
    ColumnDrift {
        kind: column.kind.name(),
        psi,
        nulls_before: before,
        nulls_after: after,
        beyond,
        bins: bins.collect(),
        column: column.name,
    }
}

/// Returns the columns that now have values of a kind of which they had none before, while they had values of another
/// kind.
fn of_another_kind(counted: &BTreeMap<Column, Sides>) -> HashSet<(String, &'static str)> {
    let had_others = |column: &Column| {
        let mut others = counted.iter().filter(|(other, _)| other.name == column.name && other.kind != column.kind);
        others.any(|(_, sides)| sides[0].values > 0)
    };
    let is_new = |sides: &Sides| sides[0].values == 0 && sides[1].values > 0;
    let new = counted.iter().filter(|(column, sides)| is_new(sides) && had_others(column));
    new.map(|(column, _)| (column.name.clone(), column.kind.name())).collect()
}

struct Comparison<'a> {
    context: &'a Context<'a>,
    older: &'a Snapshot,
    newer: &'a Snapshot,
}

impl Comparison<'_> {
    fn report(&self, thresholds: Thresholds) -> Result<DriftReport> {
        let (before, after) = (self.older.entry().totals.records, self.newer.entry().totals.records);
        let (sample, rows) = self.sample()?;
        let bins: BTreeMap<Column, Bins> = sample.into_iter().map(|(column, sample)| (column, sample.bins())).collect();
        let counted = self.count(&bins)?;
        let changed = of_another_kind(&counted);
        let mut columns: Vec<ColumnDrift> = counted
            .into_iter()
            .map(|(column, sides)| judge(column, &bins, &sides, [before, after], thresholds))
            .collect();
        for column in columns.iter_mut().filter(|column| changed.contains(&(column.column.clone(), column.kind))) {
            column.beyond.push("type");
        }
        columns.sort_by(|a, b| {
            let rank = |c: &ColumnDrift| (c.beyond.is_empty(), -c.psi.unwrap_or(0.0));
            rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal).then_with(|| a.column.cmp(&b.column))
        });
        let volume_change = if before == 0 { 0.0 } else { after as f64 / before as f64 - 1.0 };
        let volume_beyond = volume_change.abs() > thresholds.volume || (before == 0) != (after == 0);
        let columns_beyond = columns.iter().filter(|c| !c.beyond.is_empty()).count() as u64;
        let tables = self.older.entry().settings.shard_format == OutputFormat::Parquet;
        Ok(DriftReport {
            dataset: self.older.dataset().store().location().to_string(),
            from: self.older.version(),
            to: self.newer.version(),
            records_before: before,
            records_after: after,
            volume_change,
            volume_beyond,
            thresholds,
            columns_compared: columns.len() as u64,
            columns_beyond,
            drifted: volume_beyond || columns_beyond > 0,
            sampled_rows: rows,
            not_compared: (!tables).then_some(
                "values inside records: for tar and TFRecord, only the number and the sizes of records are compared",
            ),
            columns,
        })
    }

    /// Samples the columns of the older version; also returns the number of sampled rows.
    fn sample(&self) -> Result<(BTreeMap<Column, Sample>, u64)> {
        let shards = self.older.shards()?;
        let bytes = shards.iter().map(|s| s.bytes).sum();
        self.context.observer.event(Event::Phase { name: "sampling", bytes: Some(bytes) });
        let sampled = std::sync::Mutex::new(BTreeMap::<Column, Sample>::new());
        let lock = || sampled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let runs = self.older.runs()?.by_shard(self.older.version());
        let budget = self.context.memory.0 / 8 / (self.context.jobs as u64 + 1);
        (0_u64..).zip(shards).collect::<Vec<_>>().into_par_iter().try_for_each(|(number, shard)| {
            let mut own: BTreeMap<Column, Sample> = BTreeMap::new();
            let runs = runs.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice);
            let mut row = 0;
            self.batches(self.older, shard, runs, &mut |batch| {
                let ranks = profile::ranks(number, row, batch.num_rows());
                row += batch.num_rows() as u64;
                let columns = columns_of(batch)?;
                let limit = profile::sample_rows(budget, columns.len());
                for (column, values) in columns {
                    own.entry(column).or_insert_with(|| Sample::new(limit)).add(&ranks, &values);
                }
                Ok(())
            })?;
            let mut all = lock();
            for (column, sample) in own {
                all.entry(column).or_insert_with(|| Sample::new(sample.limit())).merge(sample);
            }
            Ok::<(), Error>(())
        })?;
        let sampled = std::mem::take(&mut *lock());
        let rows = sampled.values().map(|sample| sample.rows() as u64).max().unwrap_or(0);
        Ok((sampled, rows))
    }

    /// Counts the values of both versions in bins; a shard that both have is read once.
    fn count(&self, bins: &BTreeMap<Column, Bins>) -> Result<BTreeMap<Column, Sides>> {
        let of = |snapshot: &Snapshot| -> Result<BTreeMap<String, (ShardMeta, Vec<Run>)>> {
            let runs = snapshot.runs()?.by_shard(snapshot.version());
            let runs_of = |path: &str| runs.get(path).into_iter().flatten().map(|run| (*run).clone()).collect();
            Ok(snapshot.shards()?.iter().map(|s| (s.path.clone(), (s.clone(), runs_of(&s.path)))).collect())
        };
        let (before, after) = (of(self.older)?, of(self.newer)?);
        let names: HashSet<&String> = before.keys().chain(after.keys()).collect();
        let mut jobs: Vec<(&Snapshot, &ShardMeta, &[Run], [bool; 2])> = Vec::new();
        for name in names {
            match (before.get(name), after.get(name)) {
                (Some((shard, runs)), Some((_, others))) if same_rows(runs, others) => {
                    jobs.push((self.newer, shard, runs, [true, true]));
                }
                (one, other) => {
                    jobs.extend(one.map(|(shard, runs)| (self.older, shard, runs.as_slice(), [true, false])));
                    jobs.extend(other.map(|(shard, runs)| (self.newer, shard, runs.as_slice(), [false, true])));
                }
            }
        }
        let bytes = jobs.iter().map(|(_, shard, ..)| shard.bytes).sum();
        self.context.observer.event(Event::Phase { name: "comparing", bytes: Some(bytes) });
        let counted = std::sync::Mutex::new(BTreeMap::<Column, Sides>::new());
        let lock = || counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let none = Bins::default();
        jobs.into_par_iter().try_for_each(|(snapshot, shard, runs, on)| {
            let mut own: BTreeMap<Column, Counted> = BTreeMap::new();
            let runs: Vec<&Run> = runs.iter().collect();
            self.batches(snapshot, shard, &runs, &mut |batch| {
                for (column, values) in columns_of(batch)? {
                    let bins = bins.get(&column).unwrap_or(&none);
                    own.entry(column).or_insert_with(|| Counted::new(bins)).add(bins, &values);
                }
                Ok(())
            })?;
            let mut all = lock();
            for (column, counted) in own {
                let empty = || Counted::new(bins.get(&column).unwrap_or(&none));
                let sides = all.entry(column.clone()).or_insert_with(|| [empty(), empty()]);
                for (side, _) in sides.iter_mut().zip(on).filter(|(_, on)| *on) {
                    side.merge(&counted);
                }
            }
            Ok::<(), Error>(())
        })?;
        let counted = std::mem::take(&mut *lock());
        Ok(counted)
    }

    /// Reads the records of a shard, or their sizes for tar and TFRecord.
    fn batches(
        &self,
        snapshot: &Snapshot,
        shard: &ShardMeta,
        runs: &[&Run],
        visit: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let dataset = snapshot.dataset();
        let mut batches: Box<dyn Iterator<Item = Result<RecordBatch>>> = if snapshot.entry().settings.shard_format
            == OutputFormat::Parquet
        {
            let place = dataset.store().location().join(&shard.path).to_string();
            Box::new(parquet::open(dataset.object(&shard.path, shard.bytes), &place)?.batches(BATCH_ROWS))
        } else {
            Box::new(sidecar_batches(dataset.store(), &shard.sidecar(), BATCH_ROWS)?.map(|batch| {
                let batch = batch?;
                let lengths = batch.column_by_name("length").cloned();
                let lengths = lengths.ok_or_else(|| Error::integrity("expected lengths in a sidecar, found none"))?;
                Ok(RecordBatch::try_from_iter([(profile::RECORD_BYTES, lengths)])?)
            }))
        };
        // A row that is in no run is not a record any more.
        let whole = runs.iter().map(|run| run.records).sum::<u64>() == shard.records;
        let mut live = LiveRows { runs, ordinal: 0 };
        batches.try_for_each(|batch| {
            self.context.cancel.check()?;
            let mut batch = batch?;
            let rows = batch.num_rows() as u64;
            if !whole {
                batch = filter_record_batch(&batch, &live.next(batch.num_rows()))?;
            }
            self.context
                .observer
                .event(Event::Read { bytes: shard.bytes * rows / shard.records.max(1), records: rows });
            visit(&batch)
        })
    }
}

/// Masks of the live rows of a shard, batch by batch. Runs are in row order.
struct LiveRows<'a> {
    runs: &'a [&'a Run],
    ordinal: u64,
}

impl LiveRows<'_> {
    fn next(&mut self, rows: usize) -> BooleanArray {
        let end = self.ordinal + rows as u64;
        let mut live = BooleanBufferBuilder::new(rows);
        while let Some(run) = self.runs.first().filter(|run| run.ordinal < end) {
            let (from, to) = (run.ordinal.max(self.ordinal), (run.ordinal + run.records).min(end));
            let till = |ordinal: u64| usize::try_from(ordinal - (end - rows as u64)).unwrap_or(rows);
            live.append_n(till(from).saturating_sub(live.len()), false);
            live.append_n(till(to.max(from)).saturating_sub(live.len()), true);
            self.ordinal = self.ordinal.max(to);
            if run.ordinal + run.records > end {
                break;
            }
            self.runs = &self.runs[1..];
        }
        live.append_n(rows - live.len(), false);
        self.ordinal = end;
        BooleanArray::new(live.finish(), None)
    }
}

/// Returns whether two versions have the same rows of a shard.
fn same_rows(one: &[Run], other: &[Run]) -> bool {
    let rows = |runs: &[Run]| runs.iter().map(|run| (run.ordinal, run.records)).collect::<Vec<_>>();
    rows(one) == rows(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_outside_all_runs_are_skipped() {
        let run = |ordinal, records| Run {
            first: 0,
            records,
            shard: "s".into(),
            ordinal,
            from: Version(1),
            until: None,
            since: None,
            scattered: None,
            beside: crate::dataset::Beside::nothing(),
        };
        let runs = [run(0, 3), run(3, 1), run(5, 12), run(18, 0), run(20, 2), run(30, 40)];
        let runs: Vec<&Run> = runs.iter().collect();
        let is_live = |row: u64| runs.iter().any(|run| run.ordinal <= row && row < run.ordinal + run.records);
        for size in [1, 2, 4, 7, 16, 100] {
            let mut live = LiveRows { runs: &runs, ordinal: 0 };
            let found: Vec<bool> = (0..100_u64.div_ceil(size))
                .flat_map(|_| live.next(usize::try_from(size).unwrap_or(0)).values().iter().collect::<Vec<_>>())
                .collect();
            let expected: Vec<bool> = (0..100_u64.div_ceil(size) * size).map(is_live).collect();
            assert_eq!(found, expected, "{size}");
        }
    }
}
