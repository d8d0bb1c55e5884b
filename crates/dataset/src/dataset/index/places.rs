//! Places of sorted records: tables from record numbers to rows.
//!
//! Shards that were sorted together are a *set*. Its places are tables of (record, shard, ordinal), ordered by record,
//! which later compactions never rewrite: the run of a shard says whether it is live. A table has up to 4 Mi rows, and
//! the log entry stores its minimum and maximum record, so a lookup opens one table and reads one row group.
//!
//! ```text
//! record   0      1      2      3   ...        `shard` is the shard's number in the set; the run with
//! shard    1      0      0      1              that number has the shard's path and versions
//! ordinal  731    12     90     5
//! ```

use std::{ops::Range, sync::Arc};

use arrow::{
    array::UInt64Array,
    datatypes::{DataType, Field, Schema},
};
use parquet::{file::statistics::Statistics, schema::types::SchemaDescriptor};
use serde::{Deserialize, Serialize};

use crate::{
    codec::seal::Seal,
    dataset::table::{
        self, Group, GroupWriter,
        chunks::{self, Values},
        fetch::{Parts, group_range},
        paths::table_path,
        sealed::{Sealed, seal_of},
        typed_column,
    },
    error::{Error, Result},
    storage::{Staged, Store},
};

/// Rows per row group, which is what a lookup decodes.
const GROUP_ROWS: usize = 16_384;

/// Rows per table.
const TABLE_ROWS: u64 = 4 << 20;

/// A table of places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRef {
    /// Path relative to the dataset.
    pub path: String,
    /// Name of its set.
    pub set: String,
    /// Lowest record in it.
    pub first: u64,
    /// Highest record in it.
    pub last: u64,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of the rows, without the footer, from which the position of a record is estimated.
    pub bytes: u64,
    /// Record number that the numbers in the table count from, if the records were new when it was made; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// Seal of the table.
    pub seal: Seal,
}

impl PlaceRef {
    /// Returns the table as a sealed object.
    pub fn as_sealed(&self) -> Sealed {
        Sealed::new(self.path.as_str(), self.seal)
    }

    /// Returns the same with `shift` added to the numbers of new records.
    #[must_use]
    pub fn shifted_by(self, shift: u64) -> Self {
        let Some(base) = self.base else { return self };
        Self { base: Some(base + shift), first: self.first + shift, last: self.last + shift, ..self }
    }

    fn base_or_zero(&self) -> u64 {
        self.base.unwrap_or_default()
    }
}

/// A table that is being written.
struct OpenTable {
    writer: GroupWriter,
    path: String,
    first: u64,
    last: u64,
    rows: u64,
}

/// Writes the places of a set.
pub struct PlacesWriter<'a> {
    store: &'a dyn Store,
    set: String,
    columns: SchemaDescriptor,
    /// Record, shard, ordinal.
    pending: [Vec<u64>; 3],
    open: Option<OpenTable>,
    base: Option<u64>,
    done: Vec<(PlaceRef, Staged)>,
}

impl std::fmt::Debug for PlacesWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlacesWriter").field("set", &self.set).finish_non_exhaustive()
    }
}

impl<'a> PlacesWriter<'a> {
    /// Starts the places of a set.
    ///
    /// # Errors
    /// If the columns cannot be described.
    pub fn new(store: &'a dyn Store, set: &str) -> Result<Self> {
        let (columns, pending) = (table::parquet_schema(&place_schema())?, Default::default());
        Ok(Self { store, set: set.to_owned(), columns, pending, open: None, base: None, done: Vec::new() })
    }

    /// States that the records are new: their numbers count from 0 and are shifted at commit.
    #[must_use]
    pub fn of_new_records(self) -> Self {
        Self { base: Some(0), ..self }
    }

    /// Adds the place of a record; records must ascend.
    ///
    /// # Errors
    /// If the store fails.
    pub fn push(&mut self, record: u64, shard: u64, ordinal: u64) -> Result<()> {
        for (column, value) in self.pending.iter_mut().zip([record, shard, ordinal]) {
            column.push(value);
        }
        if self.pending[0].len() == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let (Some(first), Some(last)) = (self.pending[0].first().copied(), self.pending[0].last().copied()) else {
            return Ok(());
        };
        let rows = self.pending[0].len();
        if self.open.is_none() {
            let path = table_path(&format!("index/place/{}/{:06}", self.set, self.done.len()));
            let writer = GroupWriter::create(self.store, &path, &self.columns)?;
            self.open = Some(OpenTable { writer, path, first, last, rows: 0 });
        }
        let columns = &self.columns;
        let chunk = |(i, values): (usize, &mut Vec<u64>)| {
            let array = UInt64Array::from(std::mem::take(values));
            chunks::encode_chunk(&columns.column(i), rows, &Values::Packed(&array))
        };
        let chunks = self.pending.iter_mut().enumerate().map(chunk).collect::<Result<_>>()?;
        if let Some(table) = &mut self.open {
            table.writer.append_group(Group { chunks, rows: rows as u64 })?;
            table.rows += rows as u64;
            table.last = last;
            if table.rows >= TABLE_ROWS {
                return self.close_table();
            }
        }
        Ok(())
    }

    fn close_table(&mut self) -> Result<()> {
        if let Some(OpenTable { writer, path, first, last, rows }) = self.open.take() {
            let bytes = writer.bytes_written();
            let staged = writer.finish()?;
            let seal = seal_of(&staged)?;
            let place = PlaceRef { path, set: self.set.clone(), first, last, rows, bytes, base: self.base, seal };
            self.done.push((place, staged));
        }
        Ok(())
    }

    /// Finishes the last table; the tables have no names until they are published.
    ///
    /// # Errors
    /// If the store fails.
    pub fn finish(mut self) -> Result<Vec<(PlaceRef, Staged)>> {
        self.flush()?;
        self.close_table()?;
        Ok(self.done)
    }
}

/// Passes every place of a table to `visit`: record, shard, ordinal.
///
/// # Errors
/// If it is missing, damaged or not sorted.
pub fn read_places(
    store: &Arc<dyn Store>,
    table: &PlaceRef,
    visit: &mut dyn FnMut(u64, u64, u64) -> Result<()>,
) -> Result<()> {
    let place = || store.location().join(&table.path).to_string();
    let damaged = |e: Error| table::damage_error(e, "the places of records are damaged", place());
    let builder = table::open_table(store, &table.as_sealed())?.with_batch_size(GROUP_ROWS);
    let mut reader = table::catch_panics(|| builder.build().map_err(table::parquet_error)).map_err(damaged)?;
    let (mut rows, mut next) = (0, 0);
    while let Some(batch) = table::catch_panics(|| Ok(reader.next().transpose()?)).map_err(damaged)? {
        let number = |name| typed_column::<UInt64Array>(&batch, name);
        let (records, shards, ordinals) = (number("record")?, number("shard")?, number("ordinal")?);
        for i in 0..batch.num_rows() {
            let record = records.value(i).saturating_add(table.base_or_zero());
            if record < next || record > table.last {
                return Err(Error::integrity("the places of records are not in order").at_location(place()));
            }
            next = record + 1;
            visit(record, shards.value(i), ordinals.value(i))?;
        }
        rows += batch.num_rows() as u64;
    }
    if rows == table.rows && table.last.checked_add(1) == Some(next) {
        return Ok(());
    }
    Err(Error::integrity(format!("expected {} places up to record {}, found {rows}", table.rows, table.last))
        .at_location(place()))
}

/// Returns the shard and ordinal of each of `records` (ascending) that the table has.
pub(in crate::dataset) fn lookup_places(
    store: &Arc<dyn Store>,
    table: &PlaceRef,
    records: &[u64],
) -> Result<Vec<(u64, (u64, u64))>> {
    let place = || store.location().join(&table.path).to_string();
    let (tail, guess) = guess_position(table, records);
    let base = table.base_or_zero();
    let records: Vec<u64> = records.iter().filter_map(|record| record.checked_sub(base)).collect();
    let mut parts = Parts::open(store, &table.as_sealed(), tail, guess)?;
    table::catch_panics(|| {
        let metadata = parts.read_metadata(false)?;
        let footer = Arc::clone(metadata.metadata());
        let groups: Vec<usize> = (0..footer.num_row_groups())
            .filter(|i| may_hold(footer.row_group(*i).column(0).statistics(), &records))
            .collect();
        if groups.len() <= MAX_GROUPS_IN_MEMORY {
            parts.fetch_ranges(&groups.iter().map(|group| group_range(&footer, *group)).collect::<Vec<_>>())?;
        }
        let reader = parts.into_reader(metadata).with_row_groups(groups);
        let reader = reader.with_batch_size(GROUP_ROWS).build().map_err(table::parquet_error)?;
        let mut found = Vec::new();
        for batch in reader {
            let batch = batch?;
            let number = |name| typed_column::<UInt64Array>(&batch, name);
            let (known, shards, ordinals) = (number("record")?, number("shard")?, number("ordinal")?);
            let (Some(first), Some(last)) = (known.values().first(), known.values().last()) else { continue };
            let start = records.partition_point(|record| record < first);
            for record in records[start..].iter().take_while(|record| *record <= last) {
                if let Ok(row) = known.values().binary_search(record) {
                    found.push((*record + base, (shards.value(row), ordinals.value(row))));
                }
            }
        }
        Ok(found)
    })
    .map_err(|e| table::damage_error(e, "the places of records are damaged", place()))
}

/// Footer bytes per row group, and fixed footer bytes; rounded up.
const FOOTER_GROUP_BYTES: u64 = 400;
const FOOTER_BYTES: u64 = 4 << 10;

/// Row groups held in memory at a time; if there are more, each is read as it is decoded.
const MAX_GROUPS_IN_MEMORY: usize = 16;

/// Estimates the number of bytes at the end of a table to read first, and the position of a single record: numbers are
/// dense, and row groups have nearly equal sizes. A wrong estimate costs a request.
fn guess_position(table: &PlaceRef, records: &[u64]) -> (u64, Option<Range<u64>>) {
    let groups = table.rows.div_ceil(GROUP_ROWS as u64).max(1);
    let tail = FOOTER_BYTES + groups * FOOTER_GROUP_BYTES;
    let [record] = records else { return (tail, None) };
    if table.bytes == 0 || table.last < table.first {
        return (tail, None);
    }
    let share = |part: u64, whole: u64, of: u64| {
        u64::try_from(u128::from(part) * u128::from(of) / u128::from(whole.max(1))).unwrap_or(of)
    };
    let rank = share(record.saturating_sub(table.first), table.last - table.first + 1, table.rows);
    let group = (rank / GROUP_ROWS as u64).min(groups - 1);
    let at = |group: u64| share(group * GROUP_ROWS as u64, table.rows, table.bytes).min(table.bytes);
    let margin = table.bytes / groups / 8;
    if group + 1 == groups {
        return (tail + table.bytes - at(group) + margin, None);
    }
    (tail, Some(at(group).saturating_sub(margin)..at(group + 1) + margin))
}

/// Whether a row group may hold one of some ascending records: true unless its statistics exclude it.
fn may_hold(statistics: Option<&Statistics>, records: &[u64]) -> bool {
    match statistics {
        // UINT64 is stored as INT64 but ordered as unsigned.
        Some(Statistics::Int64(s)) => match (s.min_opt(), s.max_opt()) {
            (Some(min), Some(max)) => {
                let next = records.get(records.partition_point(|record| *record < min.cast_unsigned()));
                next.is_some_and(|record| *record <= max.cast_unsigned())
            }
            _ => true,
        },
        _ => true,
    }
}

fn place_schema() -> Schema {
    let field = |name: &str| Field::new(name, DataType::UInt64, false);
    Schema::new(vec![field("record"), field("shard"), field("ordinal")])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::storage::RemoteStore;

    #[test]
    fn places_are_found_by_record() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let mut writer = PlacesWriter::new(store.as_ref(), "0123456789ab").unwrap();
        let expected: Vec<(u64, u64, u64)> = (0..50_000).map(|i| (i * 3, i % 5, i * 7919 % 10_000)).collect();
        expected.iter().for_each(|(record, shard, ordinal)| writer.push(*record, *shard, *ordinal).unwrap());
        let (places, staged): (Vec<_>, Vec<_>) = writer.finish().unwrap().into_iter().unzip();
        store.publish_staged(staged).unwrap();
        assert_eq!((places.len(), places[0].first, places[0].last, places[0].rows), (1, 0, 149_997, 50_000));
        let mut found = Vec::new();
        read_places(&store, &places[0], &mut |record, shard, ordinal| {
            found.push((record, shard, ordinal));
            Ok(())
        })
        .unwrap();
        assert!(found == expected);
        let records = [0, 1, 3, 60_000, 60_001, 149_997];
        let hits = lookup_places(&store, &places[0], &records).unwrap();
        assert_eq!(hits.iter().map(|(record, _)| *record).collect::<Vec<_>>(), [0, 3, 60_000, 149_997]);
        assert_eq!(hits[2].1, (0, 20_000 * 7919 % 10_000));
        let moved = PlaceRef { base: Some(0), ..places[0].clone() }.shifted_by(70);
        assert_eq!((moved.first, moved.last, moved.clone().shifted_by(0).base), (70, 150_067, Some(70)));
        assert_eq!(
            lookup_places(&store, &moved, &[3, 70, 72, 60_070]).unwrap(),
            [(70, hits[0].1), (60_070, hits[2].1)]
        );
        let mut records = Vec::new();
        read_places(&store, &moved, &mut |record, _, _| {
            records.push(record);
            Ok(())
        })
        .unwrap();
        assert!(records.iter().copied().eq((0..50_000).map(|i| i * 3 + 70)));
        assert_eq!(places[0].clone().shifted_by(70), places[0], "records that had numbers keep them");
        let short = PlaceRef { rows: 50_001, ..places[0].clone() };
        assert!(read_places(&store, &short, &mut |_, _, _| Ok(())).is_err());
    }
}
