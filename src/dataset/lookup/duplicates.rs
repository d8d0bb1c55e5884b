//! Lookup of records that runs left out as duplicates: by record id or origin, in the tables of these runs.
//!
//! The tables are read in full, one after the other, so this is for ids that no record of the dataset has.

use std::collections::HashMap;

use super::{
    find::{Hit, Resolver},
    origins::by_origin,
};
use crate::{
    dataset::{
        ids::{
            IdKind, Wanted,
            private::{IdQuery, token_of},
        },
        index,
        log::{
            duplicates::{DuplicateRow, First, each_duplicate},
            private::{pseudonymizer_of, stored_hash},
            snapshot::Snapshot,
        },
    },
    error::Result,
    id::{IdHash, Version},
};

/// A record that was left out.
#[derive(Debug, Clone)]
pub struct Duplicate {
    /// Index of the requested id.
    pub id: usize,
    /// Version of the run that left it out.
    pub version: Version,
    /// The record.
    pub row: DuplicateRow,
    /// The record that it repeats, with its places; `None` if that is not known any longer.
    pub first: Option<Hit>,
}

/// Returns the records with some ids or origins that runs up to a version left out, in the order of runs and rows.
///
/// # Errors
/// When a table, the index or a sidecar cannot be read, or the key of private ids is not known.
pub fn find_duplicates(snapshot: &Snapshot, ids: &[String], at: Version) -> Result<Vec<Duplicate>> {
    let tables: Vec<_> = snapshot.entry().duplicates.iter().filter(|table| table.version <= at).collect();
    if tables.is_empty() || ids.is_empty() {
        return Ok(Vec::new());
    }
    let pseudonymizer = pseudonymizer_of(snapshot)?;
    let queries: Vec<IdQuery<'_>> = ids.iter().map(|id| IdQuery::new(pseudonymizer.as_ref(), id)).collect();
    let mut wanted: HashMap<String, Vec<usize>> = HashMap::new();
    for (number, query) in queries.iter().enumerate() {
        wanted.entry(query.text().to_owned()).or_default().push(number);
        let origin = query.origin().filter(|origin| origin != query.text());
        origin.into_iter().for_each(|origin| wanted.entry(origin).or_default().push(number));
    }
    let mut found = Vec::new();
    for table in tables {
        each_duplicate(snapshot.dataset().store(), &table.path, &mut |row| {
            let id = row.record_id.as_deref().map(|stored| match pseudonymizer {
                Some(_) => token_of(stored),
                None => stored,
            });
            let by_id = id.and_then(|id| wanted.get(id));
            let by_origin = row.row.and_then(|number| wanted.get(&format!("{}#{number}", row.source)));
            for number in by_id.into_iter().chain(by_origin).flatten() {
                found.push(Duplicate { id: *number, version: table.version, row: row.clone(), first: None });
            }
            Ok(())
        })?;
    }
    resolve(snapshot, &mut found)?;
    Ok(found)
}

/// Finds the records that are repeated.
fn resolve(snapshot: &Snapshot, found: &mut [Duplicate]) -> Result<()> {
    let mut numbers: Vec<Vec<u64>> = vec![Vec::new(); found.len()];
    let mut origins: Vec<String> = Vec::with_capacity(found.len());
    let mut ids: Vec<(IdHash, String, usize)> = Vec::new();
    let settings = &snapshot.entry().settings;
    let known = |stored: &'_ str| -> String {
        if settings.private.is_some() { token_of(stored).to_owned() } else { stored.to_owned() }
    };
    for (number, duplicate) in found.iter().enumerate() {
        let mut origin = String::new();
        match &duplicate.row.first {
            First::Record(record) => numbers[number].push(*record),
            First::Id(stored) => {
                let id = known(stored);
                ids.push((stored_hash(settings, &id), id, number));
            }
            First::Origin(source, row) => origin = format!("{source}#{row}"),
        }
        origins.push(origin);
    }
    for (duplicate, record) in by_origin(snapshot, &origins)? {
        numbers[duplicate].push(record);
    }
    with_ids(snapshot, ids, &mut |duplicate, record| numbers[duplicate].push(record))?;
    let candidates = numbers.iter().flatten().map(|record| (*record, IdKind::Record)).collect();
    let hits = Resolver::new(snapshot).resolve(&candidates)?;
    for (duplicate, numbers) in found.iter_mut().zip(numbers) {
        let is_first = |hit: &&Hit| match &duplicate.row.first {
            First::Record(_) => true,
            First::Id(stored) => known(&hit.record_id) == known(stored),
            First::Origin(source, row) => hit.source == *source && hit.row == Some(*row),
        };
        let hit = numbers.iter().filter_map(|record| hits.get(&(*record, IdKind::Record))).rfind(is_first);
        duplicate.first = match hit.cloned() {
            Some(hit) => Some(Hit { record_id: snapshot.shown_id(hit.record_id.clone())?, ..hit }),
            None => None,
        };
    }
    Ok(())
}

/// Passes the numbers that the id index has for record ids, or others with their hashes, to `visit`, each with what its id is given with.
fn with_ids(
    snapshot: &Snapshot,
    mut ids: Vec<(IdHash, String, usize)>,
    visit: &mut dyn FnMut(usize, u64),
) -> Result<()> {
    ids.sort_unstable();
    let mut wanted: Vec<Wanted<'_>> = ids.iter().map(|(hash, id, _)| Wanted { hash: *hash, id }).collect();
    wanted.dedup();
    let segments = snapshot.entry().segments.iter().filter(|segment| segment.kind == IdKind::Record);
    for segment in segments.filter(|_| !wanted.is_empty()) {
        for (hash, record) in index::lookup(snapshot.dataset().store(), segment, &wanted)? {
            let same = ids.partition_point(|(other, _, _)| *other < hash);
            ids[same..].iter().take_while(|(other, _, _)| *other == hash).for_each(|(_, _, of)| visit(*of, record));
        }
    }
    Ok(())
}
