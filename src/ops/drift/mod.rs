//! `manifest --drift`: compares the distributions of values in two versions.
//!
//! The bins of each column are made from a sample of the older version, the rows that `report` describes, and the
//! values of both versions are counted exactly: every shard of either is read once.
//! Records of tar and TFRecord have no columns that could be read without all of their bytes, so the sizes of records
//! are compared instead.
//!
//! ```text
//! older shards -> sample of rows -> bins of each column -> shards of both, counted -> index, share of nulls
//! ```

mod profile;

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use rayon::prelude::*;
use serde::Serialize;

use self::profile::{Bins, Counted, DriftColumn, Sampled, columns_of};
use super::{
    Context,
    columns::{ColumnSample, Facts, Roots, Table, each_live_length, row_count, sampled_ranges, shard_tables},
};
use crate::{
    dataset::{ShardMeta, Snapshot},
    error::{Error, Result},
    events::Event,
    id::Version,
    plan::drift::population_stability,
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
    /// Share of nulls in the older version; NaN is a value.
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
pub fn measure_drift(
    context: &Context<'_>,
    older: &Snapshot,
    newer: &Snapshot,
    thresholds: Thresholds,
) -> Result<DriftReport> {
    let comparison = Comparison { context, older, newer };
    super::or_overtaken([older, newer], comparison.build_report(thresholds))
}

/// The two sides of a column: older and newer.
type Sides = [Counted; 2];

fn judge_column(
    column: DriftColumn,
    bins: &BTreeMap<DriftColumn, Bins>,
    sides: &Sides,
    records: [u64; 2],
    thresholds: Thresholds,
) -> ColumnDrift {
    let none = Bins::default();
    let bins = bins.get(&column).unwrap_or(&none);
    let nulls = |side: usize| match records[side] {
        0 => 0.0,
        all => all.saturating_sub(sides[side].values) as f64 / all as f64,
    };
    let psi = population_stability(&sides[0].bins, &sides[1].bins);
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
        let (up_to, value) = bins.bin_label(i);
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
fn of_another_kind(counted: &BTreeMap<DriftColumn, Sides>) -> HashSet<(String, &'static str)> {
    let had_others = |column: &DriftColumn| {
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
    fn build_report(&self, thresholds: Thresholds) -> Result<DriftReport> {
        let (before, after) = (self.older.entry().totals.records, self.newer.entry().totals.records);
        let (sample, rows) = self.sample_columns()?;
        let bins: BTreeMap<DriftColumn, Bins> =
            sample.into_iter().map(|(column, sample)| (column, sample.into_bins())).collect();
        let counted = self.count_bins(&bins)?;
        let changed = of_another_kind(&counted);
        let mut columns: Vec<ColumnDrift> = counted
            .into_iter()
            .map(|(column, sides)| judge_column(column, &bins, &sides, [before, after], thresholds))
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
        let tables = self.older.entry().settings.shard_format.is_columnar();
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
    fn sample_columns(&self) -> Result<(BTreeMap<DriftColumn, Sampled>, u64)> {
        self.context.observer.event(Event::Phase { name: "sampling", bytes: None });
        let shards = self.older.live_shards()?;
        let tables = shard_tables(self.older, shards)?;
        let add = |batch: &RecordBatch, own: &mut BTreeMap<DriftColumn, Sampled>| {
            for values in columns_of(batch)? {
                own.entry(values.column.clone()).or_default().add_values(&values);
            }
            Ok(())
        };
        let mut all = BTreeMap::<DriftColumn, Sampled>::new();
        let mut merge = |own: BTreeMap<DriftColumn, Sampled>| {
            own.into_iter().for_each(|(column, sampled)| all.entry(column).or_default().merge(sampled));
        };
        if self.older.entry().settings.shard_format.is_columnar() {
            let facts = Facts::read(self.context, &tables)?;
            let sample = ColumnSample::new(self.context, &tables, &facts);
            sample.read(Roots::Small, add, &mut merge)?;
            sample.read(Roots::Large, add, &mut merge)?;
            return Ok((all, sample.rows_to_read(false)));
        }
        let live: Vec<Vec<Range<u64>>> =
            shards.iter().zip(&tables).map(|(shard, table)| table.live_rows(shard.records)).collect();
        let read = sampled_ranges(&live, u64::MAX).into_par_iter().map(|(shard, ranges)| {
            self.context.cancel.check()?;
            let mut own = BTreeMap::new();
            let store = self.older.dataset().store();
            each_live_length(store, &shards[shard], &ranges, &mut |lengths| add(&sizes_of(lengths)?, &mut own))?;
            Ok((own, row_count(&ranges)))
        });
        let read = read.collect::<Result<Vec<_>>>()?;
        let rows = read.iter().map(|(_, rows)| rows).sum();
        read.into_iter().for_each(|(own, _)| merge(own));
        Ok((all, rows))
    }

    /// Counts the values of both versions in bins; a shard that both have is read once.
    fn count_bins(&self, bins: &BTreeMap<DriftColumn, Bins>) -> Result<BTreeMap<DriftColumn, Sides>> {
        let of = |snapshot: &Snapshot| -> Result<BTreeMap<String, (ShardMeta, Table)>> {
            let shards = snapshot.live_shards()?;
            let tables = shard_tables(snapshot, shards)?;
            Ok(shards.iter().zip(tables).map(|(shard, table)| (shard.path.clone(), (shard.clone(), table))).collect())
        };
        let (before, after) = (of(self.older)?, of(self.newer)?);
        let names: HashSet<&String> = before.keys().chain(after.keys()).collect();
        let mut jobs: Vec<(&Snapshot, &ShardMeta, &Table, [bool; 2])> = Vec::new();
        for name in names {
            match (before.get(name), after.get(name)) {
                (Some((_, same)), Some((shard, table))) if same.live == table.live => {
                    jobs.push((self.newer, shard, table, [true, true]));
                }
                (one, other) => {
                    jobs.extend(one.map(|(shard, table)| (self.older, shard, table, [true, false])));
                    jobs.extend(other.map(|(shard, table)| (self.newer, shard, table, [false, true])));
                }
            }
        }
        let bytes = jobs.iter().map(|(_, shard, ..)| shard.bytes).sum();
        self.context.observer.event(Event::Phase { name: "comparing", bytes: Some(bytes) });
        let counted = std::sync::Mutex::new(BTreeMap::<DriftColumn, Sides>::new());
        let lock = || counted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let none = Bins::default();
        jobs.into_par_iter().try_for_each(|(snapshot, shard, table, on)| {
            let mut own: BTreeMap<DriftColumn, Counted> = BTreeMap::new();
            self.visit_batches(snapshot, shard, table, &mut |batch| {
                for values in columns_of(batch)? {
                    let bins = bins.get(&values.column).unwrap_or(&none);
                    own.entry(values.column.clone()).or_insert_with(|| Counted::new(bins)).count_values(bins, &values);
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

    /// Reads the live records of a shard, or their sizes for tar and TFRecord.
    fn visit_batches(
        &self,
        snapshot: &Snapshot,
        shard: &ShardMeta,
        table: &Table,
        visit: &mut dyn FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let live = table.live_rows(shard.records);
        let mut visit = |batch: &RecordBatch| {
            self.context.cancel.check()?;
            let records = batch.num_rows() as u64;
            let bytes = shard.bytes * records / row_count(&live).max(1);
            self.context.observer.event(Event::Read { bytes, records });
            visit(batch)
        };
        if !snapshot.entry().settings.shard_format.is_columnar() {
            let store = snapshot.dataset().store();
            return each_live_length(store, shard, &live, &mut |lengths| visit(&sizes_of(lengths)?));
        }
        table.open_parquet()?.with_rows(&live).into_batches(BATCH_ROWS).try_for_each(|batch| visit(&batch?))
    }
}

/// Returns sizes of records as a column.
fn sizes_of(lengths: &[u64]) -> Result<RecordBatch> {
    let lengths: ArrayRef = Arc::new(UInt64Array::from(lengths.to_vec()));
    Ok(RecordBatch::try_from_iter([(profile::RECORD_BYTES, lengths)])?)
}
