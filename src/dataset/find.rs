//! Finding records by id: from the text of an id to every place that holds or held the record.
//!
//! id -> hash -> record numbers (id index) -> runs (run table) -> rows (sidecars), where the text is compared, so that
//! two ids with one hash are told apart. A record id that is an origin, `source#row`, is not in the index: the list
//! of sources says which record numbers can carry it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    Snapshot,
    frames::Frame,
    index::{self, SegmentRef},
    numbers,
    places::places_of,
    runs::{Run, RunTable},
    sidecar::{self, SidecarRow},
};
use crate::{
    error::{Error, Result},
    id::{IdHash, Version},
    storage::Store,
};

/// The two kinds of id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// Names one record.
    Record,
    /// Whom records are about.
    Subject,
}

impl IdKind {
    /// `record` or `subject`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Subject => "subject",
        }
    }
}

/// A record that carries the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// What kind of id matched.
    pub kind: IdKind,
    /// Record id.
    pub record_id: String,
    /// Subject id.
    pub subject_id: Option<String>,
    /// Record number.
    pub record: u64,
    /// Name of its source.
    pub source: String,
    /// Row in its source, from 1; `None` when the source is the record.
    pub row: Option<u64>,
    /// Content hash.
    pub hash: u64,
    /// First version that had it.
    pub since: Version,
    /// Where it is and was in versions that can be read, oldest first.
    pub places: Vec<Place>,
}

impl Hit {
    /// Whether the snapshot's version holds the record.
    pub fn is_live(&self) -> bool {
        self.places.iter().any(|p| p.state == State::Live)
    }
}

/// A place that holds or held a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Path of the shard.
    pub shard: String,
    /// Row within the shard, from 0.
    pub ordinal: u64,
    /// Offset in the uncompressed shard; `None` in Parquet.
    pub offset: Option<u64>,
    /// Length in bytes.
    pub length: Option<u64>,
    /// The compressed unit that holds it, where the shard is compressed as a whole and its units are known.
    pub frame: Option<Frame>,
    /// First version that has it here.
    pub from: Version,
    /// First version that no longer has it here.
    pub until: Option<Version>,
    /// What the place is at the snapshot's version.
    pub state: State,
}

/// State of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The snapshot reads the record here.
    Live,
    /// The record moved on to another shard; older versions read it here.
    Compacted,
    /// The record was here in a version that was vacuumed, and the bytes are gone.
    Vacuumed,
}

/// Every record of the snapshot that carries the id as its record id or subject id, in record order.
///
/// # Errors
/// When the index, the run table or a sidecar cannot be read; never an empty answer instead.
pub fn find(snapshot: &Snapshot, id: &str) -> Result<Vec<Hit>> {
    let mut candidates: BTreeSet<(u64, IdKind)> = BTreeSet::new();
    let hash = IdHash::of(id);
    let store = snapshot.dataset().store();
    let segments: &[SegmentRef] = &snapshot.entry().segments;
    let found: Vec<Vec<(u64, IdKind)>> = segments
        .par_iter()
        .map(|s| Ok(index::lookup_one(store, s, hash)?.into_iter().map(|record| (record, s.kind)).collect()))
        .collect::<Result<_>>()?;
    candidates.extend(found.into_iter().flatten());
    candidates.extend(by_origin(snapshot, id)?.into_iter().map(|record| (record, IdKind::Record)));
    let mut hits = resolve(snapshot, &candidates)?;
    hits.retain(|hit| match hit.kind {
        IdKind::Record => hit.record_id == id,
        IdKind::Subject => hit.subject_id.as_deref() == Some(id),
    });
    Ok(hits)
}

/// Every record that carries the id and was there in a version before the oldest that can be read, with the place it had then
/// alone, and the one that `newest` has it in.
///
/// # Errors
/// Those of [`find`], and when the lineage of that version was not kept.
pub fn find_vacuumed(newest: &Snapshot, version: Version, id: &str) -> Result<Vec<(Hit, Place)>> {
    let mut hits = find(newest, id)?;
    hits.retain(|hit| hit.since <= version);
    if hits.is_empty() {
        return Ok(Vec::new());
    }
    let lineage = newest.lineage()?;
    let mut found = Vec::with_capacity(hits.len());
    for mut hit in hits {
        let kept = hit.places.iter().find(|p| p.from <= version && p.until.is_none_or(|until| version < until));
        let then = match kept {
            Some(place) => place.clone(),
            None => vacuumed_place(newest, &lineage, hit.record, version)?,
        };
        if let Some(now) = std::mem::replace(&mut hit.places, vec![then]).pop() {
            found.push((hit, now));
        }
    }
    Ok(found)
}

/// Where a record was in a version that no run that holds it now is of.
fn vacuumed_place(newest: &Snapshot, lineage: &RunTable, record: u64, version: Version) -> Result<Place> {
    // Of scattered runs it takes the places to know what they hold, and those that are left were looked into before.
    let mut runs = lineage.of_record(record).into_iter();
    let run = runs.find(|run| run.scattered.is_none() && run.contains(version)).ok_or_else(|| {
        Error::usage(format!("{version} was vacuumed, and where its records were is not on record"))
            .at(newest.dataset().store().location().to_string())
            .hint(
                "releases that keep it do so for versions that they vacuum themselves; of sorted shards it is not kept",
            )
    })?;
    Ok(Place {
        shard: run.shard.clone(),
        ordinal: run.ordinal + (record - run.first),
        offset: None,
        length: None,
        frame: None,
        from: run.from,
        until: run.until,
        state: State::Vacuumed,
    })
}

/// Record numbers that may have the origin `source#row`.
fn by_origin(snapshot: &Snapshot, id: &str) -> Result<Vec<u64>> {
    let Some((name, row)) = id.rsplit_once('#') else { return Ok(Vec::new()) };
    let Ok(row) = row.parse::<u64>() else { return Ok(Vec::new()) };
    let mut sources = Vec::new();
    snapshot.each_source(&mut |source| {
        if source.name == name && 0 < row && row <= source.records {
            sources.push(source);
        }
        Ok(())
    })?;
    let mut out = Vec::new();
    for source in sources {
        // Rejected records have a row but no number, so the number is at most `row - 1` after the first one.
        let last = source.first_record + row - 1;
        out.extend(search_row(snapshot, name, source.first_record, last, row)?);
    }
    Ok(out)
}

/// The number in `first..=last` whose row is `row`: rows ascend with numbers, and no faster than 1 a record.
fn search_row(snapshot: &Snapshot, name: &str, first: u64, last: u64, row: u64) -> Result<Option<u64>> {
    let (mut low, mut high) = (first, last);
    // Without rejects the very first guess is right.
    let mut guess = last;
    while low <= high {
        let rows = match row_of(snapshot, guess)? {
            Some((source, rows)) if source == name => rows,
            // Past the end of this source: its last records were rejected.
            _ => u64::MAX,
        };
        match rows.cmp(&row) {
            std::cmp::Ordering::Equal => return Ok(Some(guess)),
            std::cmp::Ordering::Less => low = guess + 1,
            std::cmp::Ordering::Greater => match guess.checked_sub(1) {
                Some(below) => high = below,
                None => break,
            },
        }
        if low <= high {
            guess = low + (high - low) / 2;
        }
    }
    Ok(None)
}

fn row_of(snapshot: &Snapshot, record: u64) -> Result<Option<(String, u64)>> {
    let places = places_of(snapshot, &[record])?.remove(&record).unwrap_or_default();
    let Some((run, ordinal)) = places.into_iter().rfind(|(r, _)| r.from <= snapshot.version()) else {
        return Ok(None);
    };
    let rows = sidecar::read_rows(snapshot.dataset().store(), &run.shard, &[ordinal])?;
    Ok(rows.into_iter().next().and_then(|r| Some((r.source, r.row?))))
}

/// A candidate, and the run that leads from it to a row.
type Asker<'a> = (u64, IdKind, &'a Run);

/// A candidate, its place, its row, and the first version that had it, where that stands beside the row.
type Found = (u64, IdKind, Place, SidecarRow, Option<Version>);

/// The first versions of rows of a sorted shard, whose numbers have to be those that were asked for.
fn first_versions(
    store: &Arc<dyn Store>,
    shard: &str,
    rows: &BTreeMap<u64, Vec<Asker<'_>>>,
    ordinals: &[u64],
) -> Result<Vec<Version>> {
    let numbers = numbers::read_rows(store, shard, ordinals)?;
    let check = |((ordinal, askers), (number, version)): ((&u64, &Vec<Asker<'_>>), (u64, Version))| match askers
        .iter()
        .find(|(record, _, _)| *record != number)
    {
        None => Ok(version),
        Some((record, _, _)) => {
            Err(Error::integrity(format!("expected record {record} in row {ordinal}, found record {number}"))
                .at(store.location().join(shard).to_string()))
        }
    };
    rows.iter().zip(numbers).map(check).collect()
}

/// Turns record numbers to hits by reading the sidecar of every place.
fn resolve(snapshot: &Snapshot, candidates: &BTreeSet<(u64, IdKind)>) -> Result<Vec<Hit>> {
    let table = snapshot.runs()?;
    let version = snapshot.version();
    // Rows wanted of each shard, each with the candidates and the run that asked for it.
    let mut wanted: BTreeMap<&str, BTreeMap<u64, Vec<Asker<'_>>>> = BTreeMap::new();
    let mut records: Vec<u64> = candidates.iter().map(|(record, _)| *record).collect();
    records.dedup();
    let places = places_of(snapshot, &records)?;
    for (record, kind) in candidates {
        for (run, ordinal) in places.get(record).into_iter().flatten().filter(|(run, _)| run.from <= version) {
            wanted.entry(&run.shard).or_default().entry(*ordinal).or_default().push((*record, *kind, *run));
        }
    }
    let store = snapshot.dataset().store();
    let read: Vec<Vec<Found>> = wanted
        .into_par_iter()
        .map(|(shard, rows)| {
            let ordinals: Vec<u64> = rows.keys().copied().collect();
            let sidecar = sidecar::read_rows(store, shard, &ordinals)?;
            let packed = [".gz", ".zst"].iter().any(|extension| shard.ends_with(extension));
            let frames = if packed { sidecar::read_frames(store, shard)? } else { None };
            let frame = |row: &SidecarRow| frames.as_ref()?.frame_of(row.offset?);
            let scattered = rows.values().flatten().any(|(_, _, run)| run.scattered.is_some());
            let since: Vec<Option<Version>> = if scattered {
                first_versions(store, shard, &rows, &ordinals)?.into_iter().map(Some).collect()
            } else {
                vec![None; ordinals.len()]
            };
            let places = rows.into_iter().zip(sidecar).zip(since).flat_map(|(((ordinal, askers), row), since)| {
                let frame = frame(&row);
                let place = move |run, row: &SidecarRow| Place { frame, ..place(run, ordinal, row, version) };
                askers.into_iter().map(move |(record, kind, run)| (record, kind, place(run, &row), row.clone(), since))
            });
            Ok(places.collect())
        })
        .collect::<Result<_>>()?;
    let mut hits: BTreeMap<(u64, IdKind), Hit> = BTreeMap::new();
    for (record, kind, place, row, since) in read.into_iter().flatten() {
        let hit = hits.entry((record, kind)).or_insert_with(|| Hit {
            kind,
            record_id: row.id(),
            subject_id: row.subject_id,
            record,
            source: row.source,
            row: row.row,
            hash: row.hash,
            since: table.first_version(record).unwrap_or(place.from),
            places: Vec::new(),
        });
        hit.since = hit.since.min(since.unwrap_or(hit.since));
        hit.places.push(place);
    }
    let mut hits: Vec<Hit> = hits.into_values().collect();
    for hit in &mut hits {
        hit.places.sort_by_key(|p| p.from);
    }
    Ok(hits)
}

fn place(run: &Run, ordinal: u64, row: &SidecarRow, version: Version) -> Place {
    Place {
        shard: run.shard.clone(),
        ordinal,
        offset: row.offset,
        length: row.length,
        frame: None,
        from: run.from,
        until: run.until.filter(|until| *until <= version),
        state: if run.contains(version) { State::Live } else { State::Compacted },
    }
}
