//! The run table: the current and former positions of each record number.
//!
//! A run says that records `first .. first + records` are the rows `ordinal ..` of one shard, in versions
//! `from .. until`. A record number is in exactly one live run at any version that contains it. Compaction closes the
//! runs of the shards it replaces and adds new ones for the same numbers; the id index, which knows only numbers,
//! stays as it is.
//!
//! ```text
//! number   0        100       250            shard      ordinal  from  until
//!          |-- a ---|---- b ---|             a             0      1     3
//!          |------- c ---------|             b             0      2     3
//!                                            c             0      3     -
//! ```
//!
//! Sorting by a column may separate all neighbours, and a run for each record would be as large as the data. Such a
//! shard has one *scattered* run: its numbers lie between two bounds; the row-to-number mapping is in the shard's
//! numbers, and the reverse mapping in the places of its set.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray, StringBuilder, UInt64Array},
    datatypes::{DataType, Field, Schema},
};

use crate::{
    dataset::{
        log::{bounds::check_number, cache::LogCache},
        table::{self, beside::Beside, sealed::Sealed, typed_column},
    },
    error::Result,
    id::Version,
    storage::checked_path,
};

/// Consecutive records in consecutive rows of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// First record number.
    pub first: u64,
    /// How many records.
    pub records: u64,
    /// Path of the shard.
    pub shard: String,
    /// Row of the first record within the shard, from 0.
    pub ordinal: u64,
    /// First version that contains the run.
    pub from: Version,
    /// First version that no longer does; `None` while it is live.
    pub until: Option<Version>,
    /// First version that had these records, if earlier runs of them were vacuumed from the table.
    pub since: Option<Version>,
    /// Set and span of the run if its numbers are not consecutive.
    pub scattered: Option<Scattered>,
    /// Path and seal of the shard's sidecar, and of its table of record numbers.
    pub beside: Arc<Beside>,
}

/// Records of a shard whose numbers are not in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scattered {
    /// Distance from the first number to the one after the last; other shards may have numbers in between.
    pub span: u64,
    /// The set of places that maps numbers to rows.
    pub set: String,
    /// Number of the shard within the set.
    pub shard: u64,
    /// Record number that the shard's table of numbers counts from, if its records were new when it was made: their
    /// numbers and their version are only known at commit, so the table states neither.
    pub base: Option<u64>,
}

impl Scattered {
    /// Returns the same with `shift` added to the numbers of new records.
    #[must_use]
    pub fn shifted_by(self, shift: u64) -> Self {
        Self { base: self.base.map(|base| base + shift), ..self }
    }
}

impl Run {
    /// Whether a version contains the run.
    pub fn is_in_version(&self, version: Version) -> bool {
        self.from <= version && self.until.is_none_or(|until| version < until)
    }

    /// Returns the number after its last one.
    pub fn end_record(&self) -> u64 {
        self.first.saturating_add(self.scattered.as_ref().map_or(self.records, |scattered| scattered.span))
    }

    /// Returns the sidecar of its shard.
    pub fn sidecar(&self) -> Sealed {
        self.beside.sidecar()
    }

    /// Returns the table of record numbers of its shard.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the run table does not name it; every shard with a
    /// scattered run has one.
    pub fn numbers_table(&self) -> Result<Sealed> {
        self.beside.numbers_table()
    }

    /// Whether `oldest` or a newer version contains the run.
    pub(in crate::dataset) fn is_readable_from(&self, oldest: Version) -> bool {
        self.until.is_none_or(|until| until > oldest)
    }
}

/// All runs, ordered by record number.
#[derive(Debug, Clone)]
pub struct RunTable {
    runs: Vec<Run>,
    /// For each run, the maximum end of any plain run up to it, so that a backward search knows when to stop.
    reach: Vec<u64>,
    /// Indexes of scattered runs: each may hold almost any record, so each search would have to go back to the first
    /// run.
    scattered: Vec<usize>,
}

impl RunTable {
    /// Sorts runs for searching.
    pub fn new(mut runs: Vec<Run>) -> Self {
        runs.sort_by(|a, b| (a.first, a.from, &a.shard, a.ordinal).cmp(&(b.first, b.from, &b.shard, b.ordinal)));
        let mut reach = Vec::with_capacity(runs.len());
        let mut furthest = 0;
        for run in &runs {
            furthest = if run.scattered.is_some() { furthest } else { furthest.max(run.end_record()) };
            reach.push(furthest);
        }
        let scattered = (0..runs.len()).filter(|i| runs[*i].scattered.is_some()).collect();
        Self { runs, reach, scattered }
    }

    /// Returns every run, live or closed.
    pub fn as_slice(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the runs that hold a record number in any version, oldest version first; scattered runs only may hold
    /// it.
    pub fn of_record(&self, record: u64) -> Vec<&Run> {
        let end = self.runs.partition_point(|run| run.first <= record);
        let mut found: Vec<&Run> = self.runs[..end]
            .iter()
            .zip(&self.reach[..end])
            .rev()
            .take_while(|(_, reach)| **reach > record)
            .map(|(run, _)| run)
            .filter(|run| run.scattered.is_none() && record < run.end_record())
            .collect();
        let scattered = self.scattered.iter().map(|i| &self.runs[*i]);
        found.extend(scattered.filter(|run| run.first <= record && record < run.end_record()));
        found.sort_by_key(|run| run.from);
        found
    }

    /// Returns the greatest number below `record` that any run holds or may hold.
    pub(in crate::dataset) fn last_before(&self, record: u64) -> Option<u64> {
        let end = self.runs.partition_point(|run| run.first < record);
        let last = |run: &Run| run.end_record().min(record).checked_sub(1);
        let plain = self.reach[..end].last().and_then(|reach| (*reach).min(record).checked_sub(1));
        let scattered = self.scattered.iter().map(|i| &self.runs[*i]).filter(|run| run.first < record);
        scattered.filter_map(last).chain(plain.filter(|_| end > 0)).max()
    }

    /// Returns the table without runs that only versions before `oldest` contain; the remaining runs keep the first
    /// version of their records.
    #[must_use]
    pub(in crate::dataset) fn without_expired(&self, oldest: Version) -> Self {
        // A compaction makes one run of each run that it replaces, so both begin with the same record. Each scattered
        // record has its own first version, stored beside its number.
        let since = |run: &Run| {
            let first = if run.scattered.is_none() { self.first_version(run.first)? } else { return run.since };
            Some(first).filter(|first| *first < run.from)
        };
        Self::new(
            self.runs
                .iter()
                .filter(|run| run.is_readable_from(oldest))
                .map(|run| Run { since: since(run), ..run.clone() })
                .collect(),
        )
    }

    /// Returns the first version that had a record, as far as this table knows; for scattered runs, the table of
    /// numbers takes precedence.
    pub fn first_version(&self, record: u64) -> Option<Version> {
        self.of_record(record).iter().map(|run| run.since.unwrap_or(run.from)).min()
    }

    /// Returns the runs of a version by shard, each in row order.
    pub fn by_shard(&self, version: Version) -> BTreeMap<&str, Vec<&Run>> {
        let mut shards: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.is_in_version(version)) {
            shards.entry(&run.shard).or_default().push(run);
        }
        shards.values_mut().for_each(|runs| runs.sort_by_key(|run| run.ordinal));
        shards
    }

    /// Returns the runs of a shard in a version, in row order.
    pub fn of_shard(&self, shard: &str, version: Version) -> Vec<&Run> {
        let mut found: Vec<&Run> = self.runs.iter().filter(|r| r.shard == shard && r.is_in_version(version)).collect();
        found.sort_by_key(|run| run.ordinal);
        found
    }
}

/// Returns the columns of a list; nullable ones at its end are omitted if they would be empty.
pub(in crate::dataset) fn run_schema() -> Schema {
    let field = |name: &str, nullable| Field::new(name, DataType::UInt64, nullable);
    let mut fields = vec![
        field("first", false),
        field("records", false),
        Field::new("shard", DataType::Utf8, false),
        field("ordinal", false),
        field("from_version", false),
        field("until_version", true),
        field("since_version", true),
    ];
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    fields.extend([field("span", true), text("set"), field("set_shard", true), field(BASE, true), text(BESIDE)]);
    Schema::new(fields)
}

/// Number of columns that every list has.
const ALWAYS: usize = 7;

/// Name of the column of numbers that tables of new, shuffled records count from.
const BASE: &str = "set_base";

/// Name of the column that describes the objects beside the shard.
const BESIDE: &str = "beside";

/// Encodes rows for [`table::write`].
pub(in crate::dataset) fn to_batch(runs: &[Run]) -> Result<RecordBatch> {
    let schema = run_schema();
    let numbers = |of: fn(&Run) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(runs.iter().map(of))) };
    let mut columns: Vec<ArrayRef> = vec![
        numbers(|r| r.first),
        numbers(|r| r.records),
        Arc::new(StringArray::from_iter_values(runs.iter().map(|r| r.shard.as_str()))),
        numbers(|r| r.ordinal),
        numbers(|r| r.from.0),
        Arc::new(runs.iter().map(|r| r.until.map(|v| v.0)).collect::<UInt64Array>()),
        Arc::new(runs.iter().map(|r| r.since.map(|v| v.0)).collect::<UInt64Array>()),
    ];
    let number = |of: fn(&Scattered) -> u64| -> ArrayRef {
        Arc::new(runs.iter().map(|r| r.scattered.as_ref().map(of)).collect::<UInt64Array>())
    };
    let sets: StringArray = runs.iter().map(|r| r.scattered.as_ref().map(|s| s.set.as_str())).collect();
    columns.extend([
        number(|s| s.span),
        Arc::new(sets) as ArrayRef,
        number(|s| s.shard),
        Arc::new(runs.iter().map(|r| r.scattered.as_ref().and_then(|s| s.base)).collect::<UInt64Array>()),
        Arc::new(beside_column(runs)?),
    ]);
    let full = RecordBatch::try_new(Arc::new(schema), columns)?;
    let used = (0..full.num_columns()).filter(|i| *i < ALWAYS || full.column(*i).null_count() < runs.len());
    Ok(full.project(&used.collect::<Vec<_>>())?)
}

/// Encodes the objects beside the runs' shards; neighbours mostly share them.
fn beside_column(runs: &[Run]) -> Result<StringArray> {
    let mut out = StringBuilder::new();
    let mut last: Option<(&Arc<Beside>, String)> = None;
    for run in runs {
        let beside = &run.beside;
        if last.as_ref().is_none_or(|(known, _)| *known != beside) {
            last = Some((beside, beside.to_json()?));
        }
        out.append_option(last.as_ref().map(|(_, text)| text));
    }
    Ok(out.finish())
}

/// Decodes the output of [`beside_column`]; equal texts share one value.
fn read_beside(texts: &StringArray) -> Result<Vec<Arc<Beside>>> {
    let mut known: HashMap<&str, Arc<Beside>> = HashMap::new();
    let mut read = |text| match known.get(text) {
        Some(beside) => Ok(Arc::clone(beside)),
        None => {
            let beside = Arc::new(Beside::from_json(text)?);
            known.insert(text, Arc::clone(&beside));
            Ok(beside)
        }
    };
    texts.iter().map(|text| read(text.unwrap_or_default())).collect()
}

/// Reads a list.
pub(in crate::dataset) fn read(cache: &LogCache, list: &Sealed) -> Result<Vec<Run>> {
    let damaged = |e| table::damage_error(e, "the table is damaged", list.display_location(cache.store().as_ref()));
    decode_batches(&cache.read_list(list)?).map_err(damaged)
}

fn decode_batches(batches: &[RecordBatch]) -> Result<Vec<Run>> {
    let mut out = Vec::new();
    for batch in batches {
        let number = |name| typed_column::<UInt64Array>(batch, name);
        let (first, records, ordinal) = (number("first")?, number("records")?, number("ordinal")?);
        let (from, until) = (number("from_version")?, number("until_version")?);
        let shard: &StringArray = typed_column(batch, "shard")?;
        // Lists of datasets that were never vacuumed may lack it.
        let since = batch.column_by_name("since_version").map(|_| number("since_version")).transpose()?;
        let some = |array: &UInt64Array, i: usize| array.is_valid(i).then(|| Version(array.value(i)));
        // Only lists of sorted datasets have these columns.
        let scattered = match batch.column_by_name("set") {
            None => None,
            Some(_) => Some((number("span")?, typed_column::<StringArray>(batch, "set")?, number("set_shard")?)),
        };
        let bases = batch.column_by_name(BASE).map(|_| number(BASE)).transpose()?;
        let scattered = |i: usize| {
            let base = bases.filter(|bases| bases.is_valid(i)).map(|bases| bases.value(i));
            let (spans, sets, shards) = scattered.filter(|(_, sets, _)| sets.is_valid(i))?;
            Some(Scattered { span: spans.value(i), set: sets.value(i).to_owned(), shard: shards.value(i), base })
        };
        (0..batch.num_rows()).try_for_each(|i| checked_path(shard.value(i)).map(drop))?;
        for numbers in [first, records, ordinal] {
            numbers.iter().flatten().try_for_each(|number| check_number("numbers of a run", number).map(drop))?;
        }
        let beside = read_beside(typed_column(batch, BESIDE)?)?;
        out.extend(beside.into_iter().enumerate().map(|(i, beside)| Run {
            first: first.value(i),
            records: records.value(i),
            shard: shard.value(i).to_owned(),
            ordinal: ordinal.value(i),
            from: Version(from.value(i)),
            until: some(until, i),
            since: since.and_then(|since| some(since, i)),
            scattered: scattered(i),
            beside,
        }));
    }
    Ok(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn run(first: u64, records: u64, shard: &str, from: u64, until: Option<u64>) -> Run {
        Run {
            first,
            records,
            shard: shard.into(),
            ordinal: 0,
            from: Version(from),
            until: until.map(Version),
            since: None,
            scattered: None,
            beside: Beside::placeholder(),
        }
    }

    #[test]
    fn a_record_is_found_in_every_shard_that_ever_held_it() {
        let table = RunTable::new(vec![
            run(0, 250, "c", 3, None),
            run(100, 150, "b", 2, Some(3)),
            run(0, 100, "a", 1, Some(3)),
            run(250, 10, "d", 4, None),
        ]);
        let shards = |record| table.of_record(record).iter().map(|r| r.shard.as_str()).collect::<Vec<_>>();
        assert_eq!(shards(0), ["a", "c"]);
        assert_eq!(shards(99), ["a", "c"]);
        assert_eq!(shards(100), ["b", "c"]);
        assert_eq!(shards(249), ["b", "c"]);
        assert_eq!(shards(250), ["d"]);
        assert!(shards(260).is_empty());
    }

    #[test]
    fn the_number_before_a_hole_is_found() {
        let table = RunTable::new(vec![run(0, 10, "a", 1, None), run(20, 5, "a", 1, None)]);
        let before = |record| table.last_before(record);
        assert_eq!(
            [before(0), before(5), before(15), before(20), before(22), before(99)].map(|b| b.unwrap_or(100)),
            [100, 4, 9, 9, 21, 24]
        );
    }

    #[test]
    fn scattered_runs_may_hold_what_lies_between_their_bounds() {
        let sorted = |shard, first, span| {
            let scattered = Some(Scattered { span, set: "set".into(), shard: 0, base: None });
            Run { scattered, ..run(first, 50, shard, 2, None) }
        };
        let table = RunTable::new(vec![
            run(0, 100, "a", 1, Some(2)),
            sorted("b", 0, 98),
            sorted("c", 3, 97),
            run(100, 10, "d", 3, None),
        ]);
        let shards = |record| table.of_record(record).iter().map(|r| r.shard.as_str()).collect::<Vec<_>>();
        assert_eq!(shards(0), ["a", "b"]);
        assert_eq!(shards(50), ["a", "b", "c"]);
        assert_eq!(shards(99), ["a", "c"]);
        assert_eq!(shards(100), ["d"]);
        let batch = to_batch(table.as_slice()).unwrap();
        assert_eq!(batch.schema_ref().fields().len(), 11);
        assert_eq!(super::to_batch(&table.as_slice()[..1]).unwrap().num_columns(), 8);
    }
}
