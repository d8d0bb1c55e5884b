//! Reads the columns that rules are about, once: those of Parquet that footers do not decide, else all records.
//!
//! ```text
//! shard -> footer: nulls and range of a column decide its rules?  yes -> counted, not read
//!                                                                 no  -> its pages, in pieces of row groups
//! ```
//!
//! Shards and pieces are read side by side; a piece is held one batch at a time.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{ArrayRef, LargeBinaryArray, RecordBatch},
    datatypes::{DataType, Field, Fields},
};
use rayon::prelude::*;

use super::{
    columns::{ColumnCheck, Tally},
    leaks::{By, Leaks, SplitOf},
};
use crate::{
    dataset::{ShardMeta, Snapshot, sidecar_batches},
    error::Result,
    events::Event,
    format::parquet::RowGroupSize,
    ops::{
        Context,
        columns::{Table, filter_live, flat_columns, row_count, shard_tables},
        head::{HeadRecord, HeadSample, Hidden, first_records, shard_file},
    },
    record::{BATCH_ROWS, parts::KEY_COLUMN, split::split_of_path},
    schema::unite_lists,
};

/// Rows of a piece of a shard, at least, if it has as many.
const PIECE_ROWS: u64 = 1 << 19;
/// Bytes of a batch, before compression.
const BATCH_BYTES: u64 = 8 << 20;
/// Samples whose parts are counted together, and bytes of their parts.
const SAMPLES: usize = 1_024;
const SAMPLE_BYTES: usize = 4 << 20;

/// What was read.
pub(super) struct ScanResult {
    /// A tally for each column.
    pub(super) tallies: Vec<Tally>,
    /// The columns of the dataset, with united types; of samples, their parts.
    pub(super) fields: Fields,
    /// Bytes of columns that were read, as stored.
    pub(super) bytes_read: u64,
}

/// Reads a dataset.
pub(super) struct Scan<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) checks: &'a [ColumnCheck<'a>],
    pub(super) leaks: Option<&'a Leaks>,
    found: Mutex<ScanResult>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        snapshot: &'a Snapshot,
        checks: &'a [ColumnCheck<'a>],
        leaks: Option<&'a Leaks>,
    ) -> Self {
        let found =
            ScanResult { tallies: vec![Tally::default(); checks.len()], fields: Fields::empty(), bytes_read: 0 };
        Self { context, snapshot, checks, leaks, found: Mutex::new(found) }
    }

    /// Reads all shards; `values` says that columns or their types are wanted.
    pub(super) fn run(self, values: bool) -> Result<ScanResult> {
        let shards = self.snapshot.live_shards()?;
        let bytes = shards.iter().map(|shard| shard.bytes).sum();
        self.context.observer.event(Event::Phase { name: "checking", bytes: Some(bytes) });
        if self.leaks.is_some_and(|leaks| !matches!(leaks.by, By::Column(_))) {
            self.read_sidecars()?;
        }
        if values {
            let tables = shard_tables(self.snapshot, shards)?;
            shards.par_iter().zip(&tables).try_for_each(|(shard, table)| {
                if self.snapshot.entry().settings.shard_format.is_columnar() {
                    self.read_parquet(shard, table)
                } else {
                    self.read_records(shard, table)
                }
            })?;
        }
        Ok(self.found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn merge_tallies(&self, tallies: Vec<Tally>, fields: &Fields, bytes: u64) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (own, other) in found.tallies.iter_mut().zip(tallies) {
            own.merge(other);
        }
        if !fields.is_empty() {
            found.fields = unite_lists(&found.fields, fields);
        }
        found.bytes_read += bytes;
    }

    /// Reads the ids of all live records.
    fn read_sidecars(&self) -> Result<()> {
        let Some(leaks) = self.leaks else { return Ok(()) };
        let shards = self.snapshot.live_shards()?;
        let tables = shard_tables(self.snapshot, shards)?;
        shards.par_iter().zip(&tables).try_for_each(|(shard, table)| {
            let Some(split) = split_of_path(&shard.path) else { return Ok(()) };
            let mut first = 0;
            for batch in sidecar_batches(self.snapshot.dataset().store(), &shard.sidecar(), BATCH_ROWS)? {
                self.context.cancel.check()?;
                let batch = batch?;
                let rows = batch.num_rows() as u64;
                let live: Vec<bool> = (first..first + rows).map(|row| table.is_live(row)).collect();
                leaks.add_ids(&filter_live(batch, &live)?, split)?;
                first += rows;
            }
            Ok(())
        })
    }

    fn read_parquet(&self, shard: &ShardMeta, table: &Table) -> Result<()> {
        self.context.cancel.check()?;
        let file = table.open_parquet()?;
        let rows = file.row_count();
        let live = table.live_rows(rows);
        let live_rows = row_count(&live);
        let facts = file.column_facts()?;
        let mut tallies = vec![Tally::default(); self.checks.len()];
        let (mut roots, mut names) = (BTreeSet::new(), HashSet::new());
        let of_leaks = || self.leaks.iter().flat_map(|leaks| leaks.needed_columns());
        for (check, tally) in self.checks.iter().zip(&mut tallies) {
            match facts.iter().find(|facts| facts.name == check.name) {
                None => tally.add_absent(live_rows),
                // Footers speak of all rows, dead ones included.
                Some(facts) if live_rows == rows && check.tally_footer(facts, rows, tally) => {}
                Some(facts) => {
                    roots.insert(facts.root.clone());
                    names.insert(check.name);
                }
            }
        }
        roots.extend(facts.iter().filter(|f| of_leaks().any(|name| name == f.name)).map(|f| f.root.clone()));
        let of_roots = |of: fn(&crate::format::parquet::ColumnFacts) -> u64| -> u64 {
            facts.iter().filter(|facts| roots.contains(&facts.root)).map(of).sum()
        };
        let bytes = of_roots(|facts| facts.encoded_bytes);
        self.merge_tallies(tallies, file.schema().fields(), bytes);
        if roots.is_empty() {
            self.context.observer.event(Event::Read { bytes: shard.bytes, records: live_rows });
            return Ok(());
        }
        let batch_rows = BATCH_BYTES / (of_roots(|facts| facts.raw_bytes) / rows.max(1)).max(1);
        let batch_rows = usize::try_from(batch_rows).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
        let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
        cut_pieces(file.row_groups(), &live).into_par_iter().try_for_each(|ranges| {
            let mut own = vec![Tally::default(); self.checks.len()];
            for batch in table.open_parquet()?.with_columns(&roots).with_rows(&ranges).into_batches(batch_rows) {
                self.context.cancel.check()?;
                let batch = batch?;
                let records = batch.num_rows() as u64;
                self.tally_batch(&batch, &shard.path, Some(&names), &mut own)?;
                self.context.observer.event(Event::Read { bytes: shard.bytes * records / rows.max(1), records });
            }
            self.merge_tallies(own, &Fields::empty(), 0);
            Ok(())
        })
    }

    /// Counts the values of a batch; `names` are the columns to count, all by default.
    fn tally_batch(
        &self,
        batch: &RecordBatch,
        path: &str,
        names: Option<&HashSet<&str>>,
        tallies: &mut [Tally],
    ) -> Result<()> {
        let flat = flat_columns(batch)?;
        let find = |name: &str| flat.iter().find(|column| column.name == name).map(|column| &column.values);
        for (check, tally) in self.checks.iter().zip(tallies) {
            if names.is_some_and(|names| !names.contains(check.name)) {
                continue;
            }
            match find(check.name) {
                Some(values) => check.tally_values(values, tally)?,
                None => tally.add_absent(batch.num_rows() as u64),
            }
        }
        let Some(leaks) = self.leaks else { return Ok(()) };
        let By::Column(group) = &leaks.by else { return Ok(()) };
        let Some(groups) = find(group) else { return Ok(()) };
        match &leaks.column {
            Some(column) => find(column).map_or(Ok(()), |splits| leaks.add_records(groups, SplitOf::Column(splits))),
            None => split_of_path(path).map_or(Ok(()), |split| leaks.add_records(groups, SplitOf::One(split))),
        }
    }

    /// Reads all records of a shard of tar or TFRecord.
    fn read_records(&self, shard: &ShardMeta, table: &Table) -> Result<()> {
        let file = shard_file(self.snapshot.dataset(), &shard.path)?;
        let mut reader = Records {
            scan: self,
            shard,
            table,
            tallies: vec![Tally::default(); self.checks.len()],
            fields: Fields::empty(),
            live: Vec::new(),
            samples: Vec::new(),
            bytes: 0,
        };
        let needs_values = self.checks.iter().any(ColumnCheck::needs_values) || self.leaks.is_some();
        let part_bytes = if needs_values { u64::MAX } else { 0 };
        // Nothing of what is read is shown unless it may be.
        let hidden = Hidden::default();
        let mut add = |record: HeadRecord<'_>| reader.add_record(record);
        first_records(self.context, vec![file], &hidden, None, u64::MAX, part_bytes, &mut add)?;
        reader.flush()?;
        self.merge_tallies(reader.tallies, &reader.fields, shard.bytes);
        Ok(())
    }
}

/// Reads the records of a shard.
struct Records<'a> {
    scan: &'a Scan<'a>,
    shard: &'a ShardMeta,
    table: &'a Table,
    tallies: Vec<Tally>,
    fields: Fields,
    /// Which rows of the batch so far are live.
    live: Vec<bool>,
    samples: Vec<HeadSample>,
    /// Bytes of the parts of these samples.
    bytes: usize,
}

impl Records<'_> {
    /// Returns whether a row is live, counted from 1.
    fn is_live(&self, row: u64) -> bool {
        self.table.is_live(row.saturating_sub(1))
    }

    fn add_record(&mut self, record: HeadRecord<'_>) -> Result<()> {
        match record {
            HeadRecord::Row { row, batch, index, .. } => {
                self.live.push(self.is_live(row));
                if index + 1 < batch.num_rows() {
                    return Ok(());
                }
                let live = std::mem::take(&mut self.live);
                if self.fields != *batch.schema_ref().fields() {
                    self.fields = unite_lists(&self.fields, batch.schema_ref().fields());
                }
                self.report_progress(batch.num_rows());
                let batch = filter_live(batch.clone(), &live)?;
                self.scan.tally_batch(&batch, &self.shard.path, None, &mut self.tallies)
            }
            HeadRecord::Sample(sample) => {
                if sample.row.is_some_and(|row| !self.is_live(row)) {
                    return Ok(());
                }
                self.bytes += sample.parts.iter().map(|part| part.start.len()).sum::<usize>();
                self.samples.push(sample);
                if self.samples.len() == SAMPLES || self.bytes > SAMPLE_BYTES { self.flush() } else { Ok(()) }
            }
        }
    }

    fn report_progress(&self, records: usize) {
        let bytes = self.shard.bytes * records as u64 / self.shard.records.max(1);
        self.scan.context.observer.event(Event::Read { bytes, records: records as u64 });
    }

    /// Counts samples as rows with a column of bytes for each part.
    fn flush(&mut self) -> Result<()> {
        let samples = std::mem::take(&mut self.samples);
        self.bytes = 0;
        if samples.is_empty() {
            return Ok(());
        }
        let mut names: BTreeSet<&str> = BTreeSet::from([KEY_COLUMN]);
        names.extend(samples.iter().flat_map(|sample| sample.parts.iter().map(|part| part.extension.as_str())));
        let column = |name: &str| -> ArrayRef {
            let value = |sample: &'_ HeadSample| -> Option<Vec<u8>> {
                if name == KEY_COLUMN {
                    return sample.key.as_ref().map(|key| key.as_bytes().to_vec());
                }
                sample.parts.iter().find(|part| part.extension == name).map(|part| part.start.clone())
            };
            Arc::new(samples.iter().map(value).collect::<LargeBinaryArray>())
        };
        let wanted = |name: &&str| {
            let leaks = self.scan.leaks.is_some_and(|leaks| leaks.needed_columns().any(|column| column == *name));
            leaks || self.scan.checks.iter().any(|check| check.name == *name)
        };
        let fields: Fields = names.iter().map(|name| Field::new(*name, DataType::Binary, true)).collect();
        self.fields = unite_lists(&self.fields, &fields);
        self.report_progress(samples.len());
        let columns: Vec<(&str, ArrayRef)> =
            names.into_iter().filter(wanted).map(|name| (name, column(name))).collect();
        if columns.is_empty() {
            self.tallies.iter_mut().for_each(|tally| tally.add_absent(samples.len() as u64));
            return Ok(());
        }
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, true)))?;
        self.scan.tally_batch(&batch, &self.shard.path, None, &mut self.tallies)
    }
}

/// Cuts live rows into pieces along row groups.
fn cut_pieces(groups: &[RowGroupSize], live: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let (mut out, mut piece): (Vec<Vec<Range<u64>>>, Range<u64>) = (Vec::new(), 0..0);
    let mut cut = |piece: &Range<u64>| {
        let within = live.iter().map(|range| range.start.max(piece.start)..range.end.min(piece.end));
        let within: Vec<Range<u64>> = within.filter(|range| range.start < range.end).collect();
        if !within.is_empty() {
            out.push(within);
        }
    };
    for group in groups {
        piece.end += group.rows;
        if piece.end - piece.start >= PIECE_ROWS {
            cut(&piece);
            piece.start = piece.end;
        }
    }
    cut(&piece);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_all_live_rows() {
        let groups = vec![RowGroupSize { rows: 300_000, ..RowGroupSize::default() }; 5];
        let live = [0..10, 299_999..700_000, 1_400_000..1_500_000];
        let found = cut_pieces(&groups, &live);
        let rows: Vec<Vec<(u64, u64)>> =
            found.iter().map(|piece| piece.iter().map(|range| (range.start, range.end)).collect()).collect();
        let expected = [vec![(0, 10), (299_999, 600_000)], vec![(600_000, 700_000)], vec![(1_400_000, 1_500_000)]];
        assert_eq!(rows, expected);
        assert!(cut_pieces(&groups, &[]).is_empty());
    }
}
