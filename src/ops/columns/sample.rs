//! A sample of live rows: a number of blocks of consecutive rows at even distances, so that it depends on nothing but
//! the files. Columns of large values, such as pictures, are read in fewer rows.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::{FieldRef, Fields},
};
use rayon::prelude::*;

use super::{Extremes, Source, Table, row_count};
use crate::{error::Result, format::parquet::ColumnFacts, ops::Context, schema::unite_lists, units::group_digits};

/// Maximum number of rows of a sample: it gives the share of a value to about half a percent.
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

/// What the footers of all files state of a column.
pub(in crate::ops) struct StatedColumn {
    pub(in crate::ops) name: String,
    pub(in crate::ops) field: FieldRef,
    /// Name of the column of the files that holds it.
    pub(in crate::ops) root: String,
    /// Live rows of files that have it.
    pub(in crate::ops) rows: u64,
    pub(in crate::ops) nulls: Option<u64>,
    pub(in crate::ops) range: Extremes,
    pub(in crate::ops) stored_bytes: u64,
    raw_bytes: u64,
}

/// Facts of all files.
#[derive(Default)]
pub(in crate::ops) struct Facts {
    pub(in crate::ops) columns: Vec<StatedColumn>,
    known: HashMap<String, usize>,
    /// Live rows of each file; none of a damaged one.
    rows: Vec<Vec<Range<u64>>>,
    /// Rows of files, dead ones included.
    all_rows: u64,
}

impl Facts {
    /// Reads the footers of Parquet files.
    pub(in crate::ops) fn read(context: &Context<'_>, tables: &[Table]) -> Result<Self> {
        let facts_of = |table: &Table| -> Result<(u64, Vec<ColumnFacts>)> {
            let file = table.open_parquet()?;
            Ok((file.row_count(), file.column_facts()?))
        };
        let mut facts = Self::default();
        for tables in tables.chunks(FILES_AT_ONCE) {
            context.cancel.check()?;
            let read: Vec<_> = tables.par_iter().map(|table| (table, facts_of(table))).collect();
            for (table, found) in read {
                match (found, &table.object) {
                    (Ok((rows, columns)), _) => facts.add_table(table, rows, columns),
                    (Err(_), Source::Found(_)) => facts.rows.push(Vec::new()),
                    (Err(error), Source::Stored(_)) => return Err(error),
                }
            }
        }
        Ok(facts)
    }

    fn add_table(&mut self, table: &Table, rows: u64, columns: Vec<ColumnFacts>) {
        let live = table.live_rows(rows);
        let live_rows = row_count(&live);
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
                self.columns.push(StatedColumn {
                    root: found.root.clone(),
                    name: found.name.clone(),
                    field: Arc::clone(&found.field),
                    rows: 0,
                    nulls: Some(0),
                    range: Extremes::default(),
                    stored_bytes: 0,
                    raw_bytes: 0,
                });
                self.columns.len() - 1
            });
            if let Some(column) = self.columns.get_mut(at) {
                column.add_facts(found, live_rows, is_whole);
            }
        }
    }

    /// Returns the number of live rows.
    pub(in crate::ops) fn live_rows(&self) -> u64 {
        self.rows.iter().map(|rows| row_count(rows)).sum()
    }
}

impl StatedColumn {
    fn add_facts(&mut self, found: ColumnFacts, live_rows: u64, is_whole: bool) {
        self.rows += live_rows;
        self.stored_bytes = self.stored_bytes.saturating_add(found.encoded_bytes);
        self.raw_bytes = self.raw_bytes.saturating_add(found.raw_bytes);
        if live_rows == 0 {
            return;
        }
        let known = if is_whole { found.nulls } else { None };
        self.nulls = self.nulls.zip(known).map(|(all, nulls)| all + nulls);
        self.range.add_range(found.range.filter(|_| is_whole).as_ref());
        if found.field.data_type() != self.field.data_type() {
            let other = Arc::new(found.field.as_ref().clone().with_name(self.field.name()));
            let united = unite_lists(&Fields::from(vec![Arc::clone(&self.field)]), &Fields::from(vec![other]));
            if let Some(united) = united.first() {
                self.field = Arc::clone(united);
            }
        }
        self.range.convert_type(self.field.data_type());
    }

    fn bytes_each(&self, rows: u64) -> u64 {
        self.raw_bytes / rows.max(1)
    }
}

/// Columns that are read together, by their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Roots {
    /// Those without large values.
    Small,
    /// Those with large values, in fewer rows.
    Large,
    /// All columns, in as many rows as those with large values.
    All,
}

/// Which rows are read of which columns.
pub(in crate::ops) struct ColumnSample<'a> {
    context: &'a Context<'a>,
    tables: &'a [Table],
    facts: &'a Facts,
    large: Vec<&'a str>,
    /// Number of rows of columns that are not large, and of all.
    rows: [u64; 2],
}

impl<'a> ColumnSample<'a> {
    /// Chooses rows of Parquet files.
    pub(in crate::ops) fn new(context: &'a Context<'a>, tables: &'a [Table], facts: &'a Facts) -> Self {
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

    /// Returns whether some columns have large values.
    pub(in crate::ops) fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    /// Returns whether a column has large values.
    pub(in crate::ops) fn is_large(&self, column: &StatedColumn) -> bool {
        self.large.contains(&column.root.as_str())
    }

    /// Returns the number of rows that are read of columns with or without large values.
    pub(in crate::ops) fn rows_to_read(&self, large: bool) -> u64 {
        self.rows[usize::from(large)]
    }

    /// Says which rows are read.
    pub(in crate::ops) fn describe_basis(&self, rows: u64) -> String {
        let live = self.facts.live_rows();
        if rows == live {
            return "all records".to_owned();
        }
        let large = match self.large.len() {
            0 => String::new(),
            _ => format!(", {} of columns with large values", group_digits(self.rows[1])),
        };
        let blocks = even_blocks(live, rows).len() as u64;
        format!(
            "{} of {} records, in {} evenly spread blocks{large}",
            group_digits(rows),
            group_digits(live),
            group_digits(blocks)
        )
    }

    /// Reads some columns: adds batches of rows to values of their own, in parallel, and passes these to `merge` in the
    /// order of the rows.
    pub(in crate::ops) fn read<T: Default + Send>(
        &self,
        roots: Roots,
        add: impl Fn(&RecordBatch, &mut T) -> Result<()> + Sync,
        merge: &mut dyn FnMut(T),
    ) -> Result<()> {
        let wanted = |column: &&StatedColumn| match roots {
            Roots::All => true,
            Roots::Small | Roots::Large => self.is_large(column) == (roots == Roots::Large),
        };
        let columns = || self.facts.columns.iter().filter(wanted);
        let mut names: Vec<&str> = columns().map(|column| column.root.as_str()).collect();
        names.dedup();
        if names.is_empty() {
            return Ok(());
        }
        let bytes: u64 = columns().map(|column| column.bytes_each(self.facts.all_rows)).sum();
        let batch_rows = usize::try_from((BATCH_BYTES / bytes.max(1)).clamp(1, BATCH_ROWS)).unwrap_or(1);
        for jobs in sampled_ranges(&self.facts.rows, self.rows_to_read(roots != Roots::Small)).chunks(FILES_AT_ONCE) {
            let read = jobs.par_iter().map(|(table, ranges)| {
                let mut own = T::default();
                for batch in
                    self.tables[*table].open_parquet()?.with_columns(&names).with_rows(ranges).into_batches(batch_rows)
                {
                    self.context.cancel.check()?;
                    add(&batch?, &mut own)?;
                }
                Ok(own)
            });
            read.collect::<Result<Vec<T>>>()?.into_iter().for_each(&mut *merge);
        }
        Ok(())
    }
}

/// Returns the files, by their numbers, with the rows that are read of them, in pieces; `live` has the live rows of
/// each file.
pub(in crate::ops) fn sampled_ranges(live: &[Vec<Range<u64>>], rows: u64) -> Vec<(usize, Vec<Range<u64>>)> {
    let blocks = even_blocks(live.iter().map(|rows| row_count(rows)).sum(), rows.min(MAX_ROWS));
    let (mut out, mut first) = (Vec::new(), 0);
    let mut next = 0;
    for (table, live) in live.iter().enumerate() {
        let end = first + row_count(live);
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

/// Returns blocks at even distances that hold `wanted` of `all` rows.
fn even_blocks(all: u64, wanted: u64) -> Vec<Range<u64>> {
    if wanted >= all {
        return std::iter::once(0..all).filter(|rows| !rows.is_empty()).collect();
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
            let blocks = even_blocks(all, wanted);
            assert_eq!(row_count(&blocks), wanted, "{all} {wanted}");
            assert!(blocks.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all} {wanted}");
            assert!(blocks.last().is_none_or(|last| last.end <= all));
        }
    }

    #[test]
    fn live_rows_are_found_in_the_file() {
        assert_eq!(stored_rows(&[2..5, 9..10, 20..30], 1..6), [3..5, 9..10, 20..22]);
    }
}
