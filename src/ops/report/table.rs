//! Parquet files: facts of all rows from the footers, and a sample of rows that is spread over all files.
//!
//! The sample is a number of blocks of consecutive rows at even distances, so that it depends on nothing but the files.
//! Columns of large values, such as pictures, are read in fewer rows.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    compute::cast,
    datatypes::{DataType, FieldRef, Fields},
};
use rayon::prelude::*;

use super::{
    MAX_COLUMNS, Report, is_hidden,
    profile::{Profile, Stated, united_ranges},
};
use crate::{
    error::Result,
    events::Event,
    format::parquet::{self, ColumnFacts, ParquetFile},
    ops::{Context, columns::flat_columns, head::Hidden, sizes::Sizes},
    record::size::logical_bytes,
    scan::SourceFile,
    schema::unite_lists,
    storage::Object,
    units::grouped,
};

/// Maximum number of rows that are read.
const MAX_ROWS: u64 = 65_536;
/// Maximum number of blocks that these rows are in.
const BLOCKS: u64 = 128;
/// Maximum number of bytes, before compression, that are read.
const MAX_BYTES: u64 = 64 << 20;
/// Memory of a value in the sample, in bytes.
const VALUE_BYTES: u64 = 128;
/// Columns with larger values on average, in bytes, are large.
const LARGE_VALUE: u64 = 4 << 10;
/// Bytes of a batch.
const BATCH_BYTES: u64 = 4 << 20;
/// Rows of a batch.
const BATCH_ROWS: u64 = 1_024;
/// Files whose footers are held at once.
const FILES_AT_ONCE: usize = 256;
/// Blocks that are read one after the other.
const BLOCKS_A_JOB: usize = 8;

/// Where a file is.
pub(in crate::ops) enum Source {
    /// In a dataset.
    Stored(Object),
    /// Anywhere else; it may be damaged.
    Found(SourceFile),
}

/// A Parquet file.
pub(in crate::ops) struct Table {
    pub(in crate::ops) object: Source,
    /// Its name in errors.
    pub(in crate::ops) place: String,
    /// Its live rows; `None` for all.
    pub(in crate::ops) live: Option<Vec<Range<u64>>>,
}

impl Table {
    /// Reads the footer.
    pub(in crate::ops) fn open(&self) -> Result<ParquetFile<Object>> {
        let object = match &self.object {
            Source::Stored(object) => object.clone(),
            Source::Found(file) => file.object(),
        };
        parquet::open(object, &self.place)
    }
}

/// Joins ranges that touch; they are in order.
pub(super) fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match out.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => out.push(range),
        }
    }
    out
}

/// A column of all files.
struct Column {
    name: String,
    field: FieldRef,
    /// Name of the column of the files that holds it.
    root: String,
    /// Live rows of files that have it.
    rows: u64,
    nulls: Option<u64>,
    range: Option<super::profile::Range>,
    stored_bytes: u64,
    raw_bytes: u64,
}

/// Facts of all files.
#[derive(Default)]
struct Facts {
    columns: Vec<Column>,
    known: HashMap<String, usize>,
    /// Live rows of each file; none of a damaged one.
    rows: Vec<Vec<Range<u64>>>,
    /// Rows of files, dead ones included.
    all_rows: u64,
}

fn length(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Describes the files.
pub(super) fn describe(context: &Context<'_>, tables: &[Table], hidden: &Hidden, report: &mut Report) -> Result<()> {
    context.observer.event(Event::Phase { name: "reading footers", bytes: None });
    let mut facts = Facts::default();
    for tables in tables.chunks(FILES_AT_ONCE) {
        context.cancel.check()?;
        let read: Vec<_> = tables.par_iter().map(|table| (table, facts_of(table))).collect();
        for (table, found) in read {
            match (found, &table.object) {
                (Ok((rows, columns)), _) => facts.add(table, rows, columns),
                (Err(_), Source::Found(_)) => facts.rows.push(Vec::new()),
                (Err(error), Source::Stored(_)) => return Err(error),
            }
        }
    }
    facts.columns.retain(|column| !is_hidden(hidden, &column.name));
    report.columns = facts.columns.len() as u64;
    facts.columns.truncate(MAX_COLUMNS);
    let sample = Sample::new(context, tables, &facts);
    sample.report(report)
}

fn facts_of(table: &Table) -> Result<(u64, Vec<ColumnFacts>)> {
    let file = table.open()?;
    Ok((file.rows(), file.facts()?))
}

impl Facts {
    fn add(&mut self, table: &Table, rows: u64, columns: Vec<ColumnFacts>) {
        let live = table.live.clone().unwrap_or_else(|| joined(std::iter::once(0..rows)));
        let live_rows = length(&live);
        // Footers speak of all rows, dead ones included.
        let is_whole = live_rows == rows;
        self.all_rows += rows;
        self.rows.push(live);
        let mut seen = HashSet::new();
        for found in columns {
            // Of columns of one name, the first is described.
            if !seen.insert(found.name.clone()) {
                continue;
            }
            let at = *self.known.entry(found.name.clone()).or_insert_with(|| {
                self.columns.push(Column {
                    root: found.root.clone(),
                    name: found.name.clone(),
                    field: Arc::clone(&found.field),
                    rows: 0,
                    nulls: Some(0),
                    range: None,
                    stored_bytes: 0,
                    raw_bytes: 0,
                });
                self.columns.len() - 1
            });
            if let Some(column) = self.columns.get_mut(at) {
                column.add(found, live_rows, is_whole);
            }
        }
    }

    fn live_rows(&self) -> u64 {
        self.rows.iter().map(|rows| length(rows)).sum()
    }
}

impl Column {
    fn add(&mut self, found: ColumnFacts, live_rows: u64, is_whole: bool) {
        let is_first = self.rows == 0;
        self.rows += live_rows;
        self.stored_bytes = self.stored_bytes.saturating_add(found.encoded_bytes);
        self.raw_bytes = self.raw_bytes.saturating_add(found.raw_bytes);
        if live_rows == 0 {
            return;
        }
        let known = if is_whole { found.nulls } else { None };
        self.nulls = self.nulls.zip(known).map(|(all, nulls)| all + nulls);
        let range = found.range.filter(|_| is_whole);
        if found.field.data_type() == self.field.data_type() {
            self.range = match (&self.range, range) {
                (None, range) if is_first => range,
                (Some(own), Some(range)) => united_ranges(own, &range),
                _ => None,
            };
            return;
        }
        let united = unite_lists(
            &Fields::from(vec![Arc::clone(&self.field)]),
            &Fields::from(vec![Arc::new(found.field.as_ref().clone().with_name(self.field.name()))]),
        );
        let Some(united) = united.first() else { return };
        let plain = |data_type: &DataType| data_type.is_integer() || data_type.is_floating();
        // Wider numbers have the same order; other types may not.
        let same_order = [self.field.data_type(), found.field.data_type(), united.data_type()].into_iter().all(plain);
        let wider = |(least, greatest): &super::profile::Range| {
            Some((cast(least, united.data_type()).ok()?, cast(greatest, united.data_type()).ok()?))
        };
        self.range = match (self.range.as_ref().and_then(wider), range.as_ref().and_then(wider)) {
            (None, range) if is_first => range,
            (Some(own), Some(range)) if same_order => united_ranges(&own, &range),
            _ => None,
        };
        self.field = Arc::clone(united);
    }

    fn bytes_each(&self, rows: u64) -> u64 {
        self.raw_bytes / rows.max(1)
    }
}

/// Which rows are read of which columns.
struct Sample<'a> {
    context: &'a Context<'a>,
    tables: &'a [Table],
    facts: &'a Facts,
    large: Vec<&'a str>,
    /// Number of rows of columns that are not large, and of all.
    rows: [u64; 2],
}

impl<'a> Sample<'a> {
    fn new(context: &'a Context<'a>, tables: &'a [Table], facts: &'a Facts) -> Self {
        let mut roots: HashMap<&str, u64> = HashMap::new();
        for column in &facts.columns {
            *roots.entry(&column.root).or_default() += column.bytes_each(facts.all_rows);
        }
        let mut large: Vec<&str> =
            roots.iter().filter(|(_, bytes)| **bytes > LARGE_VALUE).map(|(root, _)| *root).collect();
        large.sort_unstable();
        let small_bytes: u64 = roots.iter().filter(|(root, _)| !large.contains(root)).map(|(_, bytes)| bytes).sum();
        let all_bytes: u64 = roots.values().sum();
        let by_memory = context.memory.0 / 4 / VALUE_BYTES / (facts.columns.len() as u64).max(1);
        let rows = |bytes: u64| (MAX_BYTES / bytes.max(1)).min(by_memory).clamp(1, MAX_ROWS).min(facts.live_rows());
        let rows = [rows(small_bytes), rows(all_bytes)];
        Self { context, tables, facts, large, rows }
    }

    fn report(&self, report: &mut Report) -> Result<()> {
        let live = self.facts.live_rows();
        self.context.observer.event(Event::Phase { name: "sampling", bytes: None });
        let has_large = !self.large.is_empty();
        let (mut profiles, mut sizes) = self.read(self.rows[0], !has_large, false)?;
        if has_large {
            let (more, all_sizes) = self.read(self.rows[1], true, true)?;
            profiles.extend(more);
            sizes = all_sizes;
        }
        report.sampled_records = self.rows[0];
        report.sample_is_all = self.rows[0] == live && report.damaged == 0;
        report.sample = self.basis(self.rows[0]);
        report.record_sizes = sizes.bins();
        report.record_sizes_from = format!("{}, in memory", self.basis(self.rows[usize::from(has_large)]));
        for column in &self.facts.columns {
            let rows = self.rows[usize::from(self.large.contains(&column.root.as_str()))];
            let mut profile =
                profiles.remove(&column.name).unwrap_or_else(|| Profile::new(&column.name, &column.field));
            profile.add_absent(rows.saturating_sub(profile.rows()));
            let stated = Stated {
                nulls: column.nulls.map(|nulls| nulls + (live - column.rows.min(live))),
                range: column.range.clone(),
                stored_bytes: Some(column.stored_bytes),
                records: live,
            };
            report.column_list.push(profile.report_with(&stated, rows == live));
        }
        Ok(())
    }

    /// Says which rows are read.
    fn basis(&self, rows: u64) -> String {
        let live = self.facts.live_rows();
        if rows == live {
            return "all records".to_owned();
        }
        let large = match self.large.len() {
            0 => String::new(),
            _ => format!(", {} of columns with large values", grouped(self.rows[1])),
        };
        let blocks = blocks(live, rows).len() as u64;
        format!("{} of {} records, in {} evenly spread blocks{large}", grouped(rows), grouped(live), grouped(blocks))
    }

    /// Reads rows of all columns, or only of those that are not large, and profiles the large ones or the others.
    fn read(&self, rows: u64, all: bool, profile_large: bool) -> Result<(HashMap<String, Profile>, Sizes)> {
        let jobs = self.jobs(rows);
        let (mut profiles, mut sizes) = (HashMap::new(), Sizes::default());
        let wanted = |root: &str| all || !self.large.contains(&root);
        let mut roots: Vec<&str> = self.facts.columns.iter().map(|column| column.root.as_str()).collect();
        roots.retain(|root| wanted(root));
        roots.dedup();
        let bytes: u64 = self
            .facts
            .columns
            .iter()
            .filter(|column| wanted(&column.root))
            .map(|c| c.bytes_each(self.facts.all_rows))
            .sum();
        let batch_rows = usize::try_from((BATCH_BYTES / bytes.max(1)).clamp(1, BATCH_ROWS)).unwrap_or(1);
        for jobs in jobs.chunks(FILES_AT_ONCE) {
            let read: Vec<(HashMap<String, Profile>, Sizes)> = jobs
                .par_iter()
                .map(|(table, ranges)| {
                    let mut own = (HashMap::new(), Sizes::default());
                    let file = self.tables[*table].open()?.with_columns(&roots).with_rows(ranges);
                    for batch in file.batches(batch_rows) {
                        self.context.cancel.check()?;
                        self.add(&batch?, profile_large, &mut own)?;
                    }
                    Ok(own)
                })
                .collect::<Result<_>>()?;
            for (found, found_sizes) in read {
                sizes.merge(&found_sizes);
                for (name, profile) in found {
                    merge(&mut profiles, name, profile);
                }
            }
        }
        Ok((profiles, sizes))
    }

    fn add(&self, batch: &RecordBatch, large: bool, own: &mut (HashMap<String, Profile>, Sizes)) -> Result<()> {
        (0..batch.num_rows()).for_each(|row| own.1.add(logical_bytes(&batch.slice(row, 1))));
        let mut seen = HashSet::new();
        for column in flat_columns(batch)?.into_iter().filter(|column| seen.insert(column.name.clone())) {
            let Some(known) = self.facts.columns.iter().find(|known| known.name == column.name) else { continue };
            if self.large.contains(&known.root.as_str()) == large {
                let empty = || Profile::new(&known.name, &known.field);
                own.0.entry(column.name).or_insert_with(empty).add(&column.values)?;
            }
        }
        Ok(())
    }

    /// Returns the files with the rows that are read of them, in pieces.
    fn jobs(&self, rows: u64) -> Vec<(usize, Vec<Range<u64>>)> {
        let blocks = blocks(self.facts.live_rows(), rows);
        let (mut out, mut first) = (Vec::new(), 0);
        let mut next = 0;
        for (table, live) in self.facts.rows.iter().enumerate() {
            let end = first + length(live);
            let mut own = Vec::new();
            while let Some(block) = blocks.get(next).filter(|block| block.start < end) {
                let within = block.start.max(first) - first..block.end.min(end) - first;
                own.extend(stored_rows(live, within));
                if block.end > end {
                    break;
                }
                next += 1;
            }
            out.extend(own.chunks(BLOCKS_A_JOB).map(|ranges| (table, ranges.to_vec())));
            first = end;
        }
        out
    }
}

fn merge(all: &mut HashMap<String, Profile>, name: String, profile: Profile) {
    match all.get_mut(&name) {
        Some(own) => own.merge(profile),
        None => {
            all.insert(name, profile);
        }
    }
}

/// Returns blocks at even distances that hold `wanted` of `all` rows.
fn blocks(all: u64, wanted: u64) -> Vec<Range<u64>> {
    if wanted >= all {
        return joined(std::iter::once(0..all));
    }
    let count = BLOCKS.min(wanted);
    let even =
        |part: u64, of: u64| u64::try_from(u128::from(part) * u128::from(of) / u128::from(count.max(1))).unwrap_or(of);
    let block = |number: u64| {
        let rows = even(number + 1, wanted) - even(number, wanted);
        let start = even(number, all - wanted) + even(number, wanted);
        start..start + rows
    };
    (0..count).map(block).collect()
}

/// Returns the rows of a file that are the given ones of its live rows.
fn stored_rows(live: &[Range<u64>], wanted: Range<u64>) -> Vec<Range<u64>> {
    let mut first = 0;
    let mut out = Vec::new();
    for range in live {
        let end = first + (range.end - range.start);
        let (from, to) = (wanted.start.max(first), wanted.end.min(end));
        if from < to {
            out.push(range.start + (from - first)..range.start + (to - first));
        }
        first = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_and_hold_what_is_wanted() {
        for (all, wanted) in [(0, 0), (1, 1), (10, 3), (1_000, 999), (6_500_000, 65_536), (u64::MAX / 2, 65_536)] {
            let blocks = blocks(all, wanted);
            assert_eq!(length(&blocks), wanted, "{all} {wanted}");
            assert!(blocks.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all} {wanted}");
            assert!(blocks.last().is_none_or(|last| last.end <= all));
        }
    }

    #[test]
    fn live_rows_are_found_in_the_file() {
        assert_eq!(stored_rows(&[2..5, 9..10, 20..30], 1..6), [3..5, 9..10, 20..22]);
        assert_eq!(joined([0..0, 1..3, 3..4, 6..7].into_iter()), [1..4, 6..7]);
    }
}
