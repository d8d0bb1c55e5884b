//! Lookup by origin, `source#row`; origins are not in the id index.
//!
//! The list of sources gives the record number at which a source begins. Rejected records have a row but no number, so
//! the number of a row is searched: rows ascend with numbers, by at least one per record. A source ends where the next
//! one begins; without that bound, a search could continue into another source of the same name and return its rows.
//! Many ids are searched together, one guess of each at a time, so that a sidecar is opened once for all rows needed of
//! it.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use crate::{
    dataset::{log::snapshot::Snapshot, lookup::placed::places_of, sidecar, table::sealed::Sealed},
    error::Result,
};

/// Maximum number of searches that run together.
const MAX_SEARCHES: usize = 1 << 16;

/// A search for the number of a row.
struct Search<'a> {
    /// Index of the id among the requested ones.
    id: usize,
    name: &'a str,
    row: u64,
    low: u64,
    high: u64,
    guess: u64,
}

/// Returns the records that may have some of the ids as origin: index of the id, and record number.
pub(in crate::dataset) fn by_origin<T: AsRef<str>>(snapshot: &Snapshot, ids: &[T]) -> Result<Vec<(usize, u64)>> {
    let mut asked: HashMap<&str, Vec<(u64, usize)>> = HashMap::new();
    for (number, id) in ids.iter().enumerate() {
        let Some((name, row)) = id.as_ref().rsplit_once('#') else { continue };
        let Ok(row) = row.parse::<u64>() else { continue };
        if row > 0 {
            asked.entry(name).or_default().push((row, number));
        }
    }
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let mut searches = Vec::new();
    let mut firsts: Vec<u64> = Vec::new();
    snapshot.each_source(&mut |source| {
        firsts.extend(source.first_records());
        let Some((name, rows)) = asked.get_key_value(source.name.as_str()) else { return Ok(()) };
        for (row, id) in rows.iter().filter(|(row, _)| *row <= source.records) {
            for first in source.first_records() {
                // Rejects before it make the number smaller; without rejects this guess is exact.
                let last = first.saturating_add(row - 1);
                searches.push(Search { id: *id, name, row: *row, low: first, high: last, guess: last });
            }
        }
        Ok(())
    })?;
    bound_searches(&mut searches, firsts, snapshot.entry().next_record);
    let mut found = Vec::new();
    while !searches.is_empty() {
        let rest = searches.split_off(searches.len().min(MAX_SEARCHES));
        run_searches(snapshot, searches, &mut found)?;
        searches = rest;
    }
    Ok(found)
}

/// Ends each search where the next source begins, and drops those of sources without a record. `firsts` are the first
/// numbers of all sources.
fn bound_searches(searches: &mut Vec<Search<'_>>, mut firsts: Vec<u64>, next_record: u64) {
    firsts.sort_unstable();
    searches.retain_mut(|search| {
        let next = firsts.partition_point(|first| *first <= search.low);
        let end = firsts.get(next).copied().unwrap_or(next_record);
        search.high = search.high.min(end.saturating_sub(1));
        search.guess = search.high;
        search.low < end
    });
}

fn run_searches(snapshot: &Snapshot, mut searches: Vec<Search<'_>>, found: &mut Vec<(usize, u64)>) -> Result<()> {
    while !searches.is_empty() {
        let mut guesses: Vec<u64> = searches.iter().map(|search| search.guess).collect();
        guesses.sort_unstable();
        guesses.dedup();
        let rows = rows_of(snapshot, &guesses)?;
        let mut failed = None;
        searches.retain_mut(|search| {
            let (at, row) = match reached_record(snapshot, &rows, search) {
                Ok(known) => known,
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            };
            match row.cmp(&search.row) {
                std::cmp::Ordering::Equal => {
                    found.push((search.id, at));
                    return false;
                }
                std::cmp::Ordering::Less => search.low = search.guess + 1,
                std::cmp::Ordering::Greater => match at.checked_sub(1) {
                    Some(below) => search.high = below,
                    None => return false,
                },
            }
            search.guess = search.low + search.high.saturating_sub(search.low) / 2;
            search.low <= search.high
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the record that a search has reached, and its row. Erased numbers have no record; the preceding one serves
/// as well.
fn reached_record(snapshot: &Snapshot, rows: &HashMap<u64, (String, u64)>, search: &Search<'_>) -> Result<(u64, u64)> {
    let mut at = search.guess;
    let mut found = rows.get(&at).cloned();
    while found.is_none() && at > search.low {
        at = snapshot.run_table()?.last_before(at).unwrap_or(search.low).max(search.low);
        found = rows_of(snapshot, &[at])?.remove(&at);
    }
    Ok(match found {
        Some((source, row)) if source == search.name => (at, row),
        // Past the end of this source: its last records were rejected.
        Some(_) => (at, u64::MAX),
        // All records from here to the guess are erased.
        None => (at, 0),
    })
}

/// Returns the source and row of some records, given in ascending order.
fn rows_of(snapshot: &Snapshot, records: &[u64]) -> Result<HashMap<u64, (String, u64)>> {
    let mut wanted: BTreeMap<&str, (Sealed, BTreeMap<u64, u64>)> = BTreeMap::new();
    for (record, places) in places_of(snapshot, records)? {
        if let Some((run, ordinal)) = places.into_iter().rfind(|(run, _)| run.from <= snapshot.version()) {
            wanted.entry(&run.shard).or_insert_with(|| (run.sidecar(), BTreeMap::new())).1.insert(ordinal, record);
        }
    }
    let store = snapshot.dataset().store();
    let read: Vec<Vec<(u64, (String, u64))>> = wanted
        .into_par_iter()
        .map(|(_, (sidecar, rows))| {
            let ordinals: Vec<u64> = rows.keys().copied().collect();
            let sidecar = sidecar::read_rows(store, &sidecar, &ordinals)?;
            let row = |(record, row): (u64, sidecar::SidecarRow)| Some((record, (row.source, row.row?)));
            Ok(rows.into_values().zip(sidecar).filter_map(row).collect())
        })
        .collect::<Result<_>>()?;
    Ok(read.into_iter().flatten().collect())
}
