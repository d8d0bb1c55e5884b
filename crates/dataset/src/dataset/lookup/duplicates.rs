//! Lookup of records that runs omitted as duplicates, in the tables of these runs: by id, subject or origin, and those
//! whose first record has left the dataset.
//!
//! The tables are read in full, one after the other, so this is for ids that no record of the dataset has.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use xxhash_rust::xxh3::xxh3_64_with_seed;

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
            duplicates::{DuplicateRow, FirstOccurrence, each_duplicate},
            private::{pseudonymizer_of, stored_hash},
            snapshot::Snapshot,
        },
    },
    error::{Error, Kind, Result},
    id::{IdHash, Version},
};

/// A record that was omitted.
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

/// Returns the records with some ids, subjects or origins that runs up to a version omitted, in the order of runs and
/// rows.
///
/// # Errors
/// When a table, the index or a sidecar cannot be read, or the key of private ids is not known.
pub fn find_duplicates(snapshot: &Snapshot, ids: &[String], at: Version) -> Result<Vec<Duplicate>> {
    let pseudonymizer = pseudonymizer_of(snapshot)?;
    let queries: Vec<IdQuery<'_>> = ids.iter().map(|id| IdQuery::new(pseudonymizer.as_ref(), id)).collect();
    let mut found: Vec<Duplicate> = Vec::new();
    let damaged = each_left_out(snapshot, &queries, at, &mut |left_out| {
        let LeftOut { id, version, row, .. } = left_out;
        // The subject of a record may be its id.
        if found.last().is_none_or(|last| (last.id, last.version, &last.row) != (id, version, &row)) {
            found.push(Duplicate { id, version, row, first: None });
        }
    })?;
    if let Some(path) = damaged.first() {
        return Err(Error::integrity("the table of duplicates is damaged, so who was omitted is not known")
            .at_location(snapshot.dataset().store().location().join(path).to_string()));
    }
    resolve_duplicates(snapshot, &mut found)?;
    Ok(found)
}

/// A record that was omitted and has one of some ids.
#[derive(Debug, Clone)]
pub struct LeftOut {
    /// Index of the id.
    pub id: usize,
    /// What the id is of the record; `None` for its origin.
    pub kind: Option<IdKind>,
    /// Version of the run that left it out.
    pub version: Version,
    /// The record.
    pub row: DuplicateRow,
}

/// Passes the records with some ids, subjects or origins that runs up to a version omitted to `visit`: one that has an
/// id in two ways twice, one after the other. Returns the paths of damaged tables, of which not all rows are passed.
///
/// # Errors
/// When the store fails.
pub fn each_left_out(
    snapshot: &Snapshot,
    queries: &[IdQuery<'_>],
    at: Version,
    visit: &mut dyn FnMut(LeftOut),
) -> Result<Vec<String>> {
    let mut damaged = Vec::new();
    let tables = snapshot.entry().duplicates.iter().filter(|table| table.version <= at);
    let is_private = snapshot.entry().settings.private.is_some();
    let mut ids: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut origins: HashMap<String, Vec<usize>> = HashMap::new();
    for (number, query) in queries.iter().enumerate() {
        ids.entry(query.hashed_text()).or_default().push(number);
        query.stored_origin().into_iter().for_each(|origin| origins.entry(origin).or_default().push(number));
    }
    for table in tables.filter(|_| !queries.is_empty()) {
        let read = each_duplicate(snapshot.dataset().store(), &table.path, &mut |row| {
            let known = |stored: &Option<String>| {
                let text = stored.as_deref().map(|stored| if is_private { token_of(stored) } else { stored });
                text.and_then(|text| ids.get(text)).map_or(&[][..], Vec::as_slice)
            };
            let by_origin = row.row.and_then(|number| origins.get(&format!("{}#{number}", row.source)));
            let matches = (known(&row.record_id).iter().map(|id| (*id, Some(IdKind::Record))))
                .chain(known(&row.subject_id).iter().map(|id| (*id, Some(IdKind::Subject))))
                .chain(by_origin.into_iter().flatten().map(|id| (*id, None)));
            let mut matches: Vec<(usize, Option<IdKind>)> = matches.collect();
            matches.sort_unstable();
            for (id, kind) in matches {
                visit(LeftOut { id, kind, version: table.version, row: row.clone() });
            }
            Ok(())
        });
        match read {
            Err(error) if error.kind() == Kind::Integrity => damaged.push(table.path.clone()),
            read => read?,
        }
    }
    Ok(damaged)
}

/// Rows of tables that are looked up together.
const CHUNK_ROWS: usize = 1 << 14;

/// What a record that was omitted came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CameFrom {
    /// A row of a source: its name as stored.
    Source(String),
    /// The files of a sample: its key as stored, without the sealed part.
    Sample(String),
}

impl CameFrom {
    /// Returns the text.
    pub fn source_name(&self) -> &str {
        match self {
            Self::Source(name) | Self::Sample(name) => name,
        }
    }

    fn from_row(row: &DuplicateRow, is_private: bool) -> Self {
        match (&row.record_id, row.row) {
            (Some(key), None) if is_private => Self::Sample(token_of(key).to_owned()),
            (Some(key), None) => Self::Sample(key.clone()),
            _ => Self::Source(row.source.clone()),
        }
    }
}

/// What a run is about to replace.
#[derive(Debug, Default)]
pub struct ReplacedSources {
    /// URIs of sources, as stored.
    pub uris: HashSet<String>,
    /// Keys of samples whose files are among them, as stored, without the sealed part.
    pub samples: HashSet<String>,
}

impl ReplacedSources {
    fn has_hit(&self, hit: &Hit, is_private: bool) -> bool {
        let key = if is_private { token_of(&hit.record_id) } else { &hit.record_id };
        let is_uri = hit.uri.as_ref().is_some_and(|uri| self.uris.contains(uri));
        is_uri || hit.row.is_none() && self.samples.contains(key)
    }
}

/// Returns what records came from that were omitted as duplicates of records which the newest version does not have
/// any longer, or will not have without those that are `replaced`; with the version that left them out, and their
/// number. Read again, a source has these records, unless others repeat them.
///
/// # Errors
/// When a table, the list of sources, the index or a sidecar cannot be read.
pub fn find_orphaned(snapshot: &Snapshot, replaced: &ReplacedSources) -> Result<BTreeMap<(CameFrom, Version), u64>> {
    let entry = snapshot.entry();
    let mut orphans: BTreeMap<(CameFrom, Version), u64> = BTreeMap::new();
    // As long as all records that ever came are there, none is missing.
    if entry.duplicates.is_empty() || entry.totals.records == entry.next_record && replaced.uris.is_empty() {
        return Ok(orphans);
    }
    let (is_private, current) = (entry.settings.private.is_some(), current_origins(snapshot)?);
    let mut pending: Vec<Duplicate> = Vec::new();
    let mut look = |pending: &mut Vec<Duplicate>| -> Result<()> {
        resolve_duplicates(snapshot, pending)?;
        let has = |hit: &Hit| hit.is_live() && !replaced.has_hit(hit, is_private);
        for orphan in pending.drain(..).filter(|duplicate| !duplicate.first.as_ref().is_some_and(has)) {
            *orphans.entry((CameFrom::from_row(&orphan.row, is_private), orphan.version)).or_default() += 1;
        }
        Ok(())
    };
    for table in &entry.duplicates {
        each_duplicate(snapshot.dataset().store(), &table.path, &mut |row| {
            if current.contains(&(hash_of(&CameFrom::from_row(&row, is_private)), table.version)) {
                pending.push(Duplicate { id: 0, version: table.version, row, first: None });
            }
            if pending.len() < CHUNK_ROWS { Ok(()) } else { look(&mut pending) }
        })?;
    }
    look(&mut pending)?;
    Ok(orphans)
}

/// Returns hashes of what the records of the newest version came from, with the versions that converted it.
fn current_origins(snapshot: &Snapshot) -> Result<HashSet<(u64, Version)>> {
    let pseudonymizer = pseudonymizer_of(snapshot)?;
    let rule = &snapshot.entry().settings.keys;
    let mut current = HashSet::new();
    snapshot.each_source(&mut |row| {
        let came_from = match row.is_part_of_sample() {
            true => {
                let key = rule.path_key(&row.name);
                CameFrom::Sample(IdQuery::new(pseudonymizer.as_ref(), &key).hashed_text().to_owned())
            }
            false => CameFrom::Source(row.name),
        };
        if row.removed.is_none() {
            current.insert((hash_of(&came_from), row.version));
        }
        Ok(())
    })?;
    Ok(current)
}

fn hash_of(came_from: &CameFrom) -> u64 {
    xxh3_64_with_seed(came_from.source_name().as_bytes(), u64::from(matches!(came_from, CameFrom::Sample(_))))
}

/// Finds the records that are repeated.
fn resolve_duplicates(snapshot: &Snapshot, found: &mut [Duplicate]) -> Result<()> {
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
            FirstOccurrence::Record(record) => numbers[number].push(*record),
            FirstOccurrence::Id(stored) => {
                let id = known(stored);
                ids.push((stored_hash(settings, &id), id, number));
            }
            FirstOccurrence::Origin(source, row) => origin = format!("{source}#{row}"),
            FirstOccurrence::Unknown => {}
        }
        origins.push(origin);
    }
    for (duplicate, record) in by_origin(snapshot, &origins)? {
        numbers[duplicate].push(record);
    }
    with_ids(snapshot, ids, &mut |duplicate, record| numbers[duplicate].push(record))?;
    let runs = runs_of(snapshot, found)?;
    for (duplicate, numbers) in found.iter().zip(&mut numbers) {
        // A later record may have the same name.
        if let (false, Some(run)) =
            (matches!(duplicate.row.first, FirstOccurrence::Record(_)), runs.get(&duplicate.version))
        {
            numbers.retain(|number| run.contains(number));
        }
    }
    let candidates = numbers.iter().flatten().map(|record| (*record, IdKind::Record)).collect();
    let hits = Resolver::new(snapshot).resolve_hits(&candidates)?;
    for (duplicate, numbers) in found.iter_mut().zip(numbers) {
        let is_first = |hit: &&Hit| match &duplicate.row.first {
            FirstOccurrence::Record(_) => true,
            FirstOccurrence::Id(stored) => known(&hit.record_id) == known(stored),
            FirstOccurrence::Origin(source, row) => hit.source == *source && hit.row == Some(*row),
            FirstOccurrence::Unknown => false,
        };
        let hit = numbers.iter().filter_map(|record| hits.get(&(*record, IdKind::Record))).rfind(is_first);
        duplicate.first = match hit.cloned() {
            Some(hit) => Some(Hit { record_id: snapshot.shown_id(hit.record_id.clone())?, ..hit }),
            None => None,
        };
    }
    Ok(())
}

/// Returns the numbers that the records of the runs have which left records out.
fn runs_of(snapshot: &Snapshot, found: &[Duplicate]) -> Result<HashMap<Version, Range<u64>>> {
    let versions: BTreeSet<Version> = found.iter().map(|duplicate| duplicate.version).collect();
    let next_record = |version: Version| -> Result<u64> {
        match version.0 {
            0 => Ok(0),
            _ => Ok(snapshot.dataset().read_entry(version)?.next_record),
        }
    };
    let run = |version: Version| Ok((version, next_record(Version(version.0 - 1))?..next_record(version)?));
    versions.into_iter().filter(|version| version.0 > 0).map(run).collect()
}

/// Passes the numbers that the id index has for record ids, or others with their hashes, to `visit`, each with what its
/// id is given with.
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
        for (hash, record) in index::lookup_many(snapshot.dataset().store(), segment, &wanted)? {
            let same = ids.partition_point(|(other, _, _)| *other < hash);
            ids[same..].iter().take_while(|(other, _, _)| *other == hash).for_each(|(_, _, of)| visit(*of, record));
        }
    }
    Ok(())
}
