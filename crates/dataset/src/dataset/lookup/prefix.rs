//! Lookup by prefix of an id.
//!
//! The id index has only hashes, so a prefix lookup scans the sidecars of the live shards, a few at a time. Row groups
//! whose minimum and maximum ids exclude a match are skipped. Once there are enough records to show, further matches
//! are only counted.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use arrow::array::{Array, RecordBatch, StringArray, UInt64Array};
use parquet::{
    arrow::ProjectionMask,
    file::{
        metadata::{ParquetMetaData, RowGroupMetaData},
        statistics::Statistics,
    },
};
use rayon::prelude::*;

use crate::{
    dataset::{
        ids::IdKind,
        log::{runs::Run, shards::ShardMeta, snapshot::Snapshot},
        lookup::find::{Hit, Resolver},
        sidecar::numbers,
        table::{self, fetch::Parts, sealed::Sealed, typed_column},
    },
    error::{Error, Result},
    events::Cancel,
    storage::Store,
};

/// Shards scanned together.
const SHARD_BATCH: usize = 32;

/// Records resolved together.
const RECORD_BATCH: usize = 1 << 14;

/// Bytes at the end of a sidecar that are read first.
const TAIL: u64 = 64 << 10;

/// Columns that are read: ids, and the parts of the origins that replace missing ids.
const COLUMNS: [&str; 4] = ["record_id", "subject_id", "source", "row"];

/// Passes live records whose record id or subject id begins with `prefix` to `visit`, in record order and at most
/// `limit` of them. Returns the total number of matches.
///
/// # Errors
/// When a sidecar cannot be read, the run was cancelled, or `visit` fails.
pub fn find_prefix(
    snapshot: &Snapshot,
    prefix: &str,
    limit: u64,
    cancel: &Cancel,
    visit: &mut dyn FnMut(Hit) -> Result<()>,
) -> Result<u64> {
    let store = snapshot.dataset().store();
    let mut resolver = Resolver::new(snapshot);
    resolver.load_lists_during(|| snapshot.live_shards().map(|_| ()))?;
    let runs = snapshot.run_table()?.by_shard(snapshot.version());
    let (mut total, mut left) = (0, limit);
    for shards in snapshot.live_shards()?.chunks(SHARD_BATCH) {
        cancel.check()?;
        let scan = |shard: &ShardMeta| {
            let runs = runs.get(shard.path.as_str()).map_or(&[][..], Vec::as_slice);
            ShardScan { store, sidecar: shard.sidecar(), prefix, limit: left, runs }.scan()
        };
        let found: Vec<(u64, Vec<(u64, IdKind)>)> = shards.par_iter().map(scan).collect::<Result<_>>()?;
        for (count, records) in found {
            total += count;
            let shown = usize::try_from(left).unwrap_or(usize::MAX).min(records.len());
            left -= shown as u64;
            for records in records[..shown].chunks(RECORD_BATCH) {
                let wanted: BTreeSet<(u64, IdKind)> = records.iter().copied().collect();
                let mut hits = resolver.resolve_hits(&wanted)?;
                records.iter().filter_map(|wanted| hits.remove(wanted)).try_for_each(&mut *visit)?;
            }
        }
    }
    Ok(total)
}

/// A shard to be scanned.
struct ShardScan<'a> {
    store: &'a Arc<dyn Store>,
    sidecar: Sealed,
    prefix: &'a str,
    /// Number of matching records that are returned rather than only counted.
    limit: u64,
    runs: &'a [&'a Run],
}

impl ShardScan<'_> {
    /// Returns the number of matching records, and the first of them.
    fn scan(&self) -> Result<(u64, Vec<(u64, IdKind)>)> {
        let parts = Parts::open(self.store, &self.sidecar, TAIL, None)?;
        let place = || self.sidecar.display_location(self.store.as_ref());
        let damaged = |e: Error| table::damage_error(e, "the sidecar is damaged", place());
        let (mut count, mut rows) = (0, Vec::new());
        table::catch_panics(|| self.find_rows(parts, &mut count, &mut rows)).map_err(damaged)?;
        Ok((count, self.records_in_rows(&rows)?))
    }

    fn find_rows(&self, mut parts: Parts, count: &mut u64, found: &mut Vec<(u64, IdKind)>) -> Result<()> {
        let metadata = parts.read_metadata(false)?;
        let footer = Arc::clone(metadata.metadata());
        let mask = ProjectionMask::columns(footer.file_metadata().schema_descr(), COLUMNS);
        let mut first = 0;
        for group in 0..footer.num_row_groups() {
            let begin = first;
            first += u64::try_from(footer.row_group(group).num_rows()).unwrap_or(0);
            if !self.may_match(footer.row_group(group)) {
                continue;
            }
            parts.fetch_ranges(&ranges_of(&footer, group))?;
            let reader = parts.clone().into_reader(metadata.clone()).with_row_groups(vec![group]);
            let mut ordinal = begin;
            for batch in reader.with_projection(mask.clone()).build().map_err(table::parquet_error)? {
                let batch = batch?;
                self.visit_matches(&batch, &mut |row, kind| {
                    *count += 1;
                    if (found.len() as u64) < self.limit {
                        found.push((ordinal + row, kind));
                    }
                })?;
                ordinal += batch.num_rows() as u64;
            }
        }
        Ok(())
    }

    /// Whether a row group may have a match: true unless its statistics exclude it.
    fn may_match(&self, group: &RowGroupMetaData) -> bool {
        let prefix = self.prefix.as_bytes();
        let begins = |least: &[u8], greatest: &[u8]| {
            greatest >= prefix && least.get(..prefix.len().min(least.len())).is_some_and(|begin| begin <= prefix)
        };
        let Some(records) = Bounds::from_row_group(group, "record_id") else { return true };
        let Some(subjects) = Bounds::from_row_group(group, "subject_id") else { return true };
        let Some(sources) = Bounds::from_row_group(group, "source") else { return true };
        let named = self.prefix.rsplit_once('#').map(|(name, _)| name.as_bytes());
        let origin = records.nulls
            && (sources.range_matches(&begins)
                || named
                    .is_some_and(|name| sources.range_matches(&|least, greatest| least <= name && name <= greatest)));
        records.range_matches(&begins) || subjects.range_matches(&begins) || origin
    }

    fn visit_matches(&self, batch: &RecordBatch, visit: &mut dyn FnMut(u64, IdKind)) -> Result<()> {
        let text = |name| typed_column::<StringArray>(batch, name);
        let (records, subjects, sources) = (text("record_id")?, text("subject_id")?, text("source")?);
        let rows: &UInt64Array = typed_column(batch, "row")?;
        for (number, row) in (0..).zip(0..batch.num_rows()) {
            let named = if records.is_valid(row) {
                records.value(row).starts_with(self.prefix)
            } else {
                self.is_origin(sources.value(row), rows.is_valid(row).then(|| rows.value(row)))
            };
            if named {
                visit(number, IdKind::Record);
            }
            if subjects.is_valid(row) && subjects.value(row).starts_with(self.prefix) {
                visit(number, IdKind::Subject);
            }
        }
        Ok(())
    }

    /// Whether the id `source#row` begins with the prefix.
    fn is_origin(&self, source: &str, row: Option<u64>) -> bool {
        if source.starts_with(self.prefix) {
            return true;
        }
        let rest = self.prefix.strip_prefix(source).and_then(|rest| rest.strip_prefix('#'));
        rest.zip(row).is_some_and(|(rest, row)| row.to_string().starts_with(rest))
    }

    /// Returns the records in rows, which ascend; rows that no live run holds are omitted.
    fn records_in_rows(&self, rows: &[(u64, IdKind)]) -> Result<Vec<(u64, IdKind)>> {
        if let [run] = self.runs
            && run.scattered.is_some()
        {
            let mut ordinals: Vec<u64> = rows.iter().map(|(ordinal, _)| *ordinal).collect();
            ordinals.dedup();
            let known = numbers::read_rows(self.store, run, &ordinals, u64::MAX)?;
            let number = |(ordinal, kind): &(u64, IdKind)| {
                let at = ordinals.binary_search(ordinal).ok()?;
                Some((known.get(at)?.0, *kind))
            };
            return Ok(rows.iter().filter_map(number).collect());
        }
        let number = |(ordinal, kind): &(u64, IdKind)| {
            let run = self.runs[..self.runs.partition_point(|run| run.ordinal <= *ordinal)].last()?;
            (ordinal - run.ordinal < run.records).then(|| (run.first + (ordinal - run.ordinal), *kind))
        };
        Ok(rows.iter().filter_map(number).collect())
    }
}

/// Minimum and maximum text of a column chunk, or bounds of them, and whether some rows are null.
struct Bounds<'a> {
    range: Option<(&'a [u8], &'a [u8])>,
    nulls: bool,
}

impl<'a> Bounds<'a> {
    fn from_row_group(group: &'a RowGroupMetaData, name: &str) -> Option<Self> {
        let chunk = group.columns().iter().find(|chunk| chunk.column_path().string() == name)?;
        let Some(Statistics::ByteArray(known)) = chunk.statistics() else { return None };
        let nulls = known.null_count_opt()?;
        let range = known.min_bytes_opt().zip(known.max_bytes_opt());
        let all_null = i64::try_from(nulls).is_ok_and(|nulls| nulls == group.num_rows());
        (range.is_some() || all_null).then_some(Self { range, nulls: nulls > 0 })
    }

    fn range_matches(&self, meets: &dyn Fn(&[u8], &[u8]) -> bool) -> bool {
        self.range.is_some_and(|(least, greatest)| meets(least, greatest))
    }
}

/// Returns the byte ranges of the columns that are read.
fn ranges_of(footer: &ParquetMetaData, group: usize) -> Vec<Range<u64>> {
    let chunks = footer.row_group(group).columns().iter();
    let wanted = chunks.filter(|chunk| COLUMNS.contains(&chunk.column_path().string().as_str()));
    let mut ranges: Vec<Range<u64>> =
        wanted.map(|chunk| chunk.byte_range()).map(|(start, length)| start..start + length).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}
