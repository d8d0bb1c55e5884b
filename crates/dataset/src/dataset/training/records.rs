//! The records at some positions of a version: their numbers, ids, origins and places.

use std::collections::BTreeMap;

use crate::{
    dataset::{
        basis::{PositionedShard, Positions},
        log::snapshot::Snapshot,
        sidecar,
    },
    error::{Error, Result},
};

/// The record at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedRecord {
    /// The position.
    pub position: u64,
    /// Its record number.
    pub number: u64,
    /// Its record id, as it is stored.
    pub record_id: String,
    /// Its subject id, as it is stored.
    pub subject_id: Option<String>,
    /// Path of the shard.
    pub shard: String,
    /// Row in the shard, from 0.
    pub row: u64,
    /// Name of its source.
    pub source: String,
    /// Row in its source, from 1; `None` if the source is the record.
    pub source_row: Option<u64>,
}

/// Returns the records at some positions, each once, in the order of the positions; those that were erased are missing.
///
/// # Errors
/// When a sidecar or a table of record numbers cannot be read.
pub fn records_at(snapshot: &Snapshot, positions: &Positions, wanted: &[u64]) -> Result<Vec<PositionedRecord>> {
    let mut sorted = wanted.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    // Rows by shard; rows ascend with positions.
    let mut rows: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
    for position in sorted {
        // A hole has no row.
        for found in positions.rows_at(position..position + 1).into_iter().filter(|found| !found.rows.is_empty()) {
            rows.entry(found.shard).or_default().push((position, found.rows.start));
        }
    }
    let mut out = Vec::new();
    for (shard, rows) in rows {
        let shard = positions.shards().get(shard).ok_or_else(|| Error::internal("a position has no shard"))?;
        out.extend(records_of_shard(snapshot, shard, &rows)?);
    }
    Ok(out)
}

fn records_of_shard(
    snapshot: &Snapshot,
    shard: &PositionedShard,
    rows: &[(u64, u64)],
) -> Result<Vec<PositionedRecord>> {
    let store = snapshot.dataset().store();
    let meta = shard.meta().ok_or_else(|| Error::internal("a row has no shard"))?;
    let ordinals: Vec<u64> = rows.iter().map(|(_, row)| *row).collect();
    let stored = sidecar::read_rows(store, &meta.sidecar(), &ordinals)?;
    let scattered = shard.open_numbers(store)?;
    let mut numbers = Vec::with_capacity(rows.len());
    for row in ordinals {
        match &scattered {
            Some(table) => table.read_rows(row..row + 1, &mut numbers)?,
            None => shard.push_numbers(row..row + 1, &mut numbers),
        }
    }
    if stored.len() != rows.len() || numbers.len() != rows.len() {
        return Err(Error::integrity(format!("expected {} rows, found fewer", rows.len()))
            .at_location(store.location().join(&meta.path).to_string()));
    }
    let records = rows.iter().zip(stored).zip(numbers).map(|((&(position, row), of), number)| PositionedRecord {
        position,
        number,
        record_id: of.id_or_origin(),
        subject_id: of.subject_id,
        shard: meta.path.clone(),
        row,
        source: of.source,
        source_row: of.row,
    });
    Ok(records.collect())
}
