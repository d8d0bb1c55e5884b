//! The record numbers of a shard, one per row, if they are not consecutive because the shard was sorted.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `record` | u64 | record number |
//! | `first_version` | u64 | first version that had the record |
//!
//! The table is beside the sidecar and has as many rows. `index::places` map the other way, from numbers to
//! rows. First versions are stored here because the runs that knew them may be vacuumed, and neighbours may differ.
//!
//! A conversion that shuffles writes the table before its records have numbers: they count from 0 there, every first
//! version is 0, and the run states what both are (`set_base`).

use std::{ops::Range, sync::Arc};

use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema},
};
use parquet::schema::types::SchemaDescriptor;

use crate::{
    dataset::{
        log::runs::{Run, RunTable, Scattered},
        table::{
            self, Group, GroupWriter,
            chunks::{self, Values},
            fetch::{Parts, pages_of},
            partial::PartialTable,
            paths::{numbers_beside, sidecar_path},
            sealed::Sealed,
            typed_column,
        },
    },
    error::{Error, Result},
    id::Version,
    storage::{Staged, Store},
};

/// Rows per row group.
const GROUP_ROWS: usize = 1 << 16;

/// Writes the numbers of a shard as it grows.
pub struct NumbersWriter {
    writer: GroupWriter,
    columns: SchemaDescriptor,
    records: Vec<u64>,
    versions: Vec<u64>,
}

impl std::fmt::Debug for NumbersWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NumbersWriter").field("rows", &self.writer.row_count()).finish_non_exhaustive()
    }
}

impl NumbersWriter {
    /// Starts the numbers of a new shard.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create(store: &dyn Store, shard: &str) -> Result<Self> {
        let columns = table::parquet_schema(&numbers_schema())?;
        let writer = GroupWriter::create(store, &numbers_beside(&sidecar_path(shard)), &columns)?;
        Ok(Self { writer, columns, records: Vec::new(), versions: Vec::new() })
    }

    /// Adds the number of the next row, and the first version that had the record. Numbers of new records count from 0,
    /// and their version is not known yet and written as 0.
    ///
    /// # Errors
    /// When the store fails.
    pub fn push(&mut self, record: u64, first_version: Version) -> Result<()> {
        self.records.push(record);
        self.versions.push(first_version.0);
        if self.records.len() == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let rows = self.records.len();
        let chunk = |column, values: &mut Vec<u64>| {
            let array = UInt64Array::from(std::mem::take(values));
            chunks::encode_chunk(&self.columns.column(column), rows, &Values::Packed(&array))
        };
        let chunks = vec![chunk(0, &mut self.records)?, chunk(1, &mut self.versions)?];
        self.writer.append_group(Group { chunks, rows: rows as u64 })
    }

    /// Finishes the table, which has no name until it is published.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish(mut self) -> Result<Staged> {
        self.flush()?;
        self.writer.finish()
    }
}

/// Identity of a row of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// Record number.
    pub record: u64,
    /// First version that had the record.
    pub first_version: Version,
    /// First version that had it in this shard.
    pub from: Version,
}

/// Returns the identity of each row of a shard, in order; `None` for rows that no live run holds. `runs` are its live
/// runs in row order; `table` knows the first versions of their records.
///
/// # Errors
/// When the numbers of a scattered shard cannot be read.
pub fn numbered_rows<'a>(
    store: &Arc<dyn Store>,
    runs: &[&'a Run],
    table: &RunTable,
) -> Result<Box<dyn Iterator<Item = Result<Option<Numbered>>> + Send + 'a>> {
    if let [run] = runs
        && let Some(scattered) = &run.scattered
    {
        let (from, records, new) = (run.from, run.records, NewRecords::from_run(run, scattered));
        let known = move |(record, version)| {
            let (record, first_version) = new.resolve_row(record, version);
            Some(Numbered { record, first_version, from })
        };
        let rows = stream_rows(store, &run.numbers_table()?)?.map(move |row| row.map(known));
        return Ok(Box::new(Counted { rows, left: records }));
    }
    let known: Vec<(&Run, Version)> =
        runs.iter().map(|run| (*run, table.first_version(run.first).unwrap_or(run.from))).collect();
    let (mut at, mut ordinal) = (0, 0);
    Ok(Box::new(std::iter::from_fn(move || {
        while known.get(at).is_some_and(|(run, _)| run.ordinal + run.records <= ordinal) {
            at += 1;
        }
        let (run, first_version) = known.get(at)?;
        let row = (run.ordinal <= ordinal).then(|| Numbered {
            record: run.first + (ordinal - run.ordinal),
            first_version: *first_version,
            from: run.from,
        });
        ordinal += 1;
        Some(Ok(row))
    })))
}

/// What a table of new records omits.
#[derive(Debug, Clone, Copy)]
struct NewRecords {
    /// First record number, and the version that added the records; `None` if the table states both.
    known: Option<(u64, Version)>,
}

impl NewRecords {
    fn from_run(run: &Run, scattered: &Scattered) -> Self {
        Self { known: scattered.base.map(|base| (base, run.since.unwrap_or(run.from))) }
    }

    /// Returns the record number and first version of a row of the table.
    fn resolve_row(self, record: u64, version: Version) -> (u64, Version) {
        match self.known {
            None => (record, version),
            Some((base, version)) => (record.saturating_add(base), version),
        }
    }
}

/// Checks that an iterator yields as many rows as the run has.
struct Counted<I> {
    rows: I,
    left: u64,
}

impl<I: Iterator<Item = Result<Option<Numbered>>>> Iterator for Counted<I> {
    type Item = Result<Option<Numbered>>;

    fn next(&mut self) -> Option<Self::Item> {
        match (self.rows.next(), self.left) {
            (None, 0) => None,
            (Some(_), 0) => Some(Err(Error::integrity("expected as many record numbers as rows, found more"))),
            (None, left) => {
                self.left = 0;
                Some(Err(Error::integrity(format!("expected {left} more record numbers, found none"))))
            }
            (row, left) => {
                self.left = left - 1;
                row
            }
        }
    }
}

/// Streams all rows: record number and first version.
fn stream_rows(
    store: &Arc<dyn Store>,
    numbers: &Sealed,
) -> Result<impl Iterator<Item = Result<(u64, Version)>> + Send + use<>> {
    let place = numbers.display_location(store.as_ref());
    let damaged = move |e: Error| table::damage_error(e, "the record numbers are damaged", place.clone());
    let builder = table::open_table(store, numbers)?.with_batch_size(table::BATCH_ROWS);
    let mut reader = table::catch_panics(|| builder.build().map_err(table::parquet_error)).map_err(&damaged)?;
    let mut failed = false;
    let batches = std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let rows = table::catch_panics(|| {
            let Some(batch) = reader.next().transpose()? else { return Ok(None) };
            let (records, versions) = (typed_column::<UInt64Array>(&batch, "record")?, first_versions(&batch)?);
            Ok(Some(records.values().iter().copied().zip(versions).collect::<Vec<_>>()))
        });
        failed = rows.is_err();
        rows.map_err(&damaged).transpose()
    });
    Ok(batches.flat_map(|rows| match rows {
        Ok(rows) => rows.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(e) => vec![Err(e)],
    }))
}

fn first_versions(batch: &arrow::array::RecordBatch) -> Result<Vec<Version>> {
    Ok(typed_column::<UInt64Array>(batch, "first_version")?.values().iter().map(|version| Version(*version)).collect())
}

/// Typical bytes of a row and of a footer, and maximum bytes that are read before the footer is known.
const ROW_BYTES: u64 = 5;
const FOOTER_BYTES: u64 = 16 << 10;
const MAX_TAIL: u64 = 128 << 10;

/// Returns some rows of a scattered run, given their ordinals in ascending order. `known` is a lower bound of the
/// shard's rows: a small table is read whole.
///
/// # Errors
/// When the table is missing, damaged or shorter.
pub(in crate::dataset) fn read_rows(
    store: &Arc<dyn Store>,
    run: &Run,
    ordinals: &[u64],
    known: u64,
) -> Result<Vec<(u64, Version)>> {
    let rows = read_table(store, &run.numbers_table()?, ordinals, known)?;
    Ok(match &run.scattered {
        None => rows,
        Some(scattered) => {
            let new = NewRecords::from_run(run, scattered);
            rows.into_iter().map(|(record, version)| new.resolve_row(record, version)).collect()
        }
    })
}

/// The record numbers of a scattered run, read block by block: the footer of their table is read once.
#[derive(Debug)]
pub struct ScatteredNumbers {
    table: PartialTable,
    base: u64,
}

impl ScatteredNumbers {
    /// Reads the footer of the table of a scattered run.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn open(store: &Arc<dyn Store>, run: &Run) -> Result<Self> {
        let table = PartialTable::open(store, &run.numbers_table()?, "the record numbers are damaged")?;
        Ok(Self { table, base: run.scattered.as_ref().and_then(|scattered| scattered.base).unwrap_or(0) })
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> u64 {
        self.table.row_count()
    }

    /// Appends the numbers of consecutive rows.
    ///
    /// # Errors
    /// When the table is damaged or shorter.
    pub fn read_rows(&self, rows: Range<u64>, out: &mut Vec<u64>) -> Result<()> {
        let batch = self.table.read_rows(&["record"], rows)?;
        let numbers: &UInt64Array = typed_column(&batch, "record").map_err(|e| self.table.damage_error(e))?;
        out.extend(numbers.values().iter().map(|number| number.saturating_add(self.base)));
        Ok(())
    }
}

fn read_table(store: &Arc<dyn Store>, numbers: &Sealed, ordinals: &[u64], known: u64) -> Result<Vec<(u64, Version)>> {
    let place = || numbers.display_location(store.as_ref());
    let selection = table::select_rows(ordinals)?;
    let whole = known.saturating_mul(ROW_BYTES).saturating_add(FOOTER_BYTES);
    let mut parts = Parts::open(store, numbers, if whole <= MAX_TAIL { whole } else { FOOTER_BYTES }, None)?;
    let rows = table::catch_panics(|| {
        let metadata = parts.read_metadata(true)?;
        parts.fetch_ranges(&pages_of(metadata.metadata(), ordinals))?;
        let reader = parts.into_reader(metadata).with_row_selection(selection).build().map_err(table::parquet_error)?;
        let mut rows = Vec::with_capacity(ordinals.len());
        for batch in reader {
            let batch = batch?;
            let records: &UInt64Array = typed_column(&batch, "record")?;
            rows.extend(records.values().iter().copied().zip(first_versions(&batch)?));
        }
        Ok(rows)
    })
    .map_err(|e| table::damage_error(e, "the record numbers are damaged", place()))?;
    if rows.len() != ordinals.len() {
        return Err(
            Error::integrity(format!("expected {} rows, found {}", ordinals.len(), rows.len())).at_location(place())
        );
    }
    Ok(rows)
}

fn numbers_schema() -> Schema {
    let field = |name: &str| Field::new(name, DataType::UInt64, false);
    Schema::new(vec![field("record"), field("first_version")])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::{
        codec::seal::Seal,
        dataset::table::{beside::Beside, sealed::Sealed},
        storage::RemoteStore,
    };

    fn run(first: u64, records: u64, ordinal: u64, scattered: Option<Scattered>, table: (&str, Seal)) -> Run {
        let shard = "0123456789ab/000001.parquet";
        let sidecar = Sealed::new(sidecar_path(shard), Seal::for_bytes(&[]));
        Run {
            first,
            records,
            shard: shard.into(),
            ordinal,
            from: Version(4),
            until: None,
            since: None,
            scattered,
            beside: Arc::new(Beside::new(sidecar).with_staged(shard, &BTreeMap::from([table]))),
        }
    }

    #[test]
    fn numbers_are_read_back_in_order_and_by_row() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let shard = "0123456789ab/000001.parquet";
        let mut writer = NumbersWriter::create(store.as_ref(), shard).unwrap();
        let expected: Vec<(u64, Version)> =
            (0..150_000_u64).map(|i| (i * 7919 % 150_000, Version(1 + i % 3))).collect();
        expected.iter().for_each(|(record, version)| writer.push(*record, *version).unwrap());
        let table = writer.finish().unwrap();
        assert_eq!(table.path, "_shardify/sidecar/0123456789ab/000001.records.table");
        let (path, seal) = (table.path.clone(), table.seal().unwrap());
        store.publish_staged(vec![table]).unwrap();
        let scattered = Some(Scattered { span: 150_000, set: "x".into(), shard: 0, base: None });
        let one = run(0, 150_000, 0, scattered.clone(), (&path, seal));
        let table = RunTable::new(vec![one.clone()]);
        let found: Vec<_> = numbered_rows(&store, &[&one], &table).unwrap().map(|n| n.unwrap().unwrap()).collect();
        assert!(found.iter().map(|n| (n.record, n.first_version)).eq(expected.iter().copied()));
        assert!(found.iter().all(|n| n.from == Version(4)));
        for known in [1, 10_000, 150_000, u64::MAX] {
            assert_eq!(read_rows(&store, &one, &[0, 70_000], known).unwrap(), [expected[0], expected[70_000]]);
        }
        let longer = run(0, 150_001, 0, scattered, (&path, seal));
        assert!(numbered_rows(&store, &[&longer], &table).unwrap().any(|n| n.is_err()));
    }

    /// A table of new records states neither their numbers nor their version; the run does.
    #[test]
    fn numbers_of_new_records_follow_from_their_run() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer = NumbersWriter::create(store.as_ref(), "0123456789ab/000001.parquet").unwrap();
        [2, 0, 1].into_iter().for_each(|record| writer.push(record, Version(0)).unwrap());
        let table = writer.finish().unwrap();
        let (path, seal) = (table.path.clone(), table.seal().unwrap());
        store.publish_staged(vec![table]).unwrap();
        let scattered = Some(Scattered { span: 3, set: "x".into(), shard: 0, base: Some(1000) });
        let one = run(1000, 3, 0, scattered, (&path, seal));
        let restored = Run { from: Version(9), since: Some(Version(4)), ..one.clone() };
        for run in [&one, &restored] {
            let table = RunTable::new(vec![run.clone()]);
            let found: Vec<_> = numbered_rows(&store, &[run], &table).unwrap().map(|n| n.unwrap().unwrap()).collect();
            let known = |record| Numbered { record, first_version: Version(4), from: run.from };
            assert_eq!(found, [1002, 1000, 1001].map(known));
            assert_eq!(read_rows(&store, run, &[0, 2], 3).unwrap(), [(1002, Version(4)), (1001, Version(4))]);
        }
    }

    #[test]
    fn rows_between_runs_belong_to_no_record() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let runs = [(10, 2, 0), (50, 1, 3)]
            .map(|(first, records, at)| run(first, records, at, None, ("", Seal::for_bytes(&[]))));
        let table = RunTable::new(runs.to_vec());
        let found: Vec<_> = numbered_rows(&store, &[&runs[0], &runs[1]], &table).unwrap().map(|n| n.unwrap()).collect();
        assert_eq!(found.iter().map(|n| n.map(|n| n.record)).collect::<Vec<_>>(), [Some(10), Some(11), None, Some(50)]);
    }
}
