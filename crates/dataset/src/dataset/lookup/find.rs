//! Lookup by id: maps an id to every current and former place of its records.
//!
//! id -> hash -> record numbers (id index) -> runs (run table) -> rows (sidecars), where the text is compared, so that
//! two ids with one hash are distinguished. A record id that is an origin, `source#row`, is not in the index: the list
//! of sources gives the record numbers that may have it ([`origin_candidates`](super::origins)).
//!
//! ```text
//! listing of the log -> entry -> bucket: footer and, guessed, row group -> sidecar: footer and pages    in sequence
//!                                run table                                                              in parallel
//!                                sources
//! ```
//!
//! Many ids are looked up together: each bucket, table and sidecar is opened once for some ten thousand hits, and hits
//! are passed on as they are found, so only the record numbers of all hits are held in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
    sync::Arc,
};

use rayon::prelude::*;
use serde::Serialize;

use crate::{
    array::origin::{Hyperslab, Layout},
    dataset::{
        ids::{IdKind, Wanted, private::IdQuery},
        index::{self, SegmentRef},
        log::{
            operation::Operation,
            private::pseudonymizer_of,
            runs::{Run, RunTable},
            snapshot::Snapshot,
            sources::Catalog,
        },
        lookup::{origins::by_origin, placed::places_of},
        sidecar::{self, SidecarRow, frames::Frame, numbers},
        table::fetch::in_parallel,
    },
    error::{Error, Result},
    id::{IdHash, Version},
    storage::{RequestMemory, Store, for_each_waiting},
};

/// A record that has the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Kind of id that matched.
    pub kind: IdKind,
    /// Record id.
    pub record_id: String,
    /// Subject id.
    pub subject_id: Option<String>,
    /// Record number.
    pub record: u64,
    /// Name of its source.
    pub source: String,
    /// URL or path of its source, if the lists of sources have it.
    pub uri: Option<String>,
    /// Its position in the arrays of its source, if that holds arrays.
    pub hyperslab: Option<Hyperslab>,
    /// Row in its source, from 1; `None` if the source is the record.
    pub row: Option<u64>,
    /// Content hash; `None` if none was computed.
    pub hash: Option<NonZeroU64>,
    /// First version that had it.
    pub since: Version,
    /// Its current and former places, oldest first.
    pub places: Vec<Place>,
}

impl Hit {
    /// Whether the snapshot's version holds the record.
    pub fn is_live(&self) -> bool {
        self.places.iter().any(|p| p.state == PlaceState::Live)
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
    /// The compressed unit that holds it, if the shard is compressed as a whole and its units are known.
    pub frame: Option<Frame>,
    /// First version that has it here.
    pub from: Version,
    /// First version that no longer has it here.
    pub until: Option<Version>,
    /// State of the place at the snapshot's version.
    pub state: PlaceState,
}

/// State of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlaceState {
    /// The snapshot reads the record here.
    Live,
    /// The record moved on to another shard; older versions read it here.
    Compacted,
    /// The record was here in a version that was vacuumed, and the bytes are gone.
    Vacuumed,
    /// The record is no longer in the dataset; older versions read it here.
    Removed,
    /// The record was erased.
    Erased,
}

impl PlaceState {
    /// Returns the state's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Compacted => "compacted",
            Self::Vacuumed => "vacuumed",
            Self::Removed => "removed",
            Self::Erased => "erased",
        }
    }

    /// Whether the bytes still exist in a readable version.
    pub fn is_stored(self) -> bool {
        matches!(self, Self::Live | Self::Compacted | Self::Removed)
    }
}

/// Maximum number of hashes that are looked up one by one, each with a guess of its position, rather than bucket by
/// bucket.
const MAX_SINGLE_LOOKUPS: usize = 16;

/// Candidates that are resolved together.
const CANDIDATE_BATCH: usize = 1 << 16;

/// Returns every record of the snapshot that has the id as its record id or subject id, in record order.
///
/// # Errors
/// If the index, the run table or a sidecar cannot be read; an error never becomes an empty result.
pub fn find_hits(snapshot: &Snapshot, id: &str) -> Result<Vec<Hit>> {
    let mut hits = Vec::new();
    find_each(snapshot, &[id], &mut |_, hit| {
        hits.push(hit);
        Ok(())
    })?;
    Ok(hits)
}

/// Passes every record that has one of some ids to `visit`, with the index of the id: in the order of the ids, then of
/// the records.
///
/// # Errors
/// Those of [`find_hits`], and errors of `visit`.
pub fn find_each<T: AsRef<str> + Sync>(
    snapshot: &Snapshot,
    ids: &[T],
    visit: &mut dyn FnMut(usize, Hit) -> Result<()>,
) -> Result<()> {
    let pseudonymizer = pseudonymizer_of(snapshot)?;
    let queries: Vec<IdQuery<'_>> =
        ids.par_iter().map(|id| IdQuery::new(pseudonymizer.as_ref(), id.as_ref())).collect();
    let mut resolver = Resolver::new(snapshot);
    let index = || index_candidates(snapshot.dataset().store(), &snapshot.entry().segments, &queries);
    let mut candidates = resolver.load_lists_during(index)?;
    let origins: Vec<String> = queries.iter().map(|query| query.stored_origin().unwrap_or_default()).collect();
    candidates.extend(by_origin(snapshot, &origins)?.into_iter().map(|(id, record)| (id, record, IdKind::Record)));
    candidates.sort_unstable();
    candidates.dedup();
    for candidates in candidates.chunks(CANDIDATE_BATCH) {
        let hits = resolver.resolve_hits(&candidates.iter().map(|(_, record, kind)| (*record, *kind)).collect())?;
        for (number, record, kind) in candidates {
            let Some(hit) = hits.get(&(*record, *kind)) else { continue };
            let query = &queries[*number];
            let carries = match kind {
                IdKind::Record => query.matches_stored(&hit.record_id),
                IdKind::Subject => hit.subject_id.as_deref().is_some_and(|stored| query.matches_stored(stored)),
            };
            if carries {
                visit(*number, displayed_hit(snapshot, hit.clone(), ids[*number].as_ref())?)?;
            }
        }
    }
    Ok(())
}

/// Prepares a hit for display: the requested id is shown as it was given.
fn displayed_hit(snapshot: &Snapshot, hit: Hit, id: &str) -> Result<Hit> {
    let (record_id, subject_id) = match hit.kind {
        IdKind::Record => (id.to_owned(), hit.subject_id.map(|stored| snapshot.shown_id(stored)).transpose()?),
        IdKind::Subject => (snapshot.shown_id(hit.record_id)?, Some(id.to_owned())),
    };
    Ok(Hit { record_id, subject_id, ..hit })
}

/// Whether an id is the origin `source#row` of a record, which the index does not have.
///
/// # Errors
/// When the list of sources or a sidecar cannot be read, or the key of private ids is not known.
pub fn has_origin(snapshot: &Snapshot, id: &str) -> Result<bool> {
    let pseudonymizer = pseudonymizer_of(snapshot)?;
    let origin = IdQuery::new(pseudonymizer.as_ref(), id).stored_origin().unwrap_or_default();
    Ok(!by_origin(snapshot, &[origin])?.is_empty())
}

/// Returns, for each id, the records that may have it as origin.
pub(in crate::dataset) fn origin_candidates(snapshot: &Snapshot, ids: &[IdQuery<'_>]) -> Result<Vec<Vec<u64>>> {
    let mut records = vec![Vec::new(); ids.len()];
    let origins: Vec<String> = ids.iter().map(|query| query.stored_origin().unwrap_or_default()).collect();
    by_origin(snapshot, &origins)?.into_iter().for_each(|(id, record)| records[id].push(record));
    Ok(records)
}

/// Index of a requested id, a record that may have it, and the kind of id.
type Candidate = (usize, u64, IdKind);

/// Memory of a lookup of many ids in a segment, and of all that are made at a time.
const LOOKUPS: RequestMemory = RequestMemory { object_bytes: 8 << 20, total_bytes: 256 << 20 };

/// Returns what segments have for the hashes of the ids.
pub(in crate::dataset) fn index_candidates(
    store: &Arc<dyn Store>,
    segments: &[SegmentRef],
    queries: &[IdQuery<'_>],
) -> Result<Vec<Candidate>> {
    let mut wanted: Vec<(IdHash, usize)> =
        queries.iter().enumerate().map(|(number, query)| (query.hash, number)).collect();
    wanted.par_sort_unstable();
    let mut ids: Vec<Wanted<'_>> = wanted.iter().map(|(_, number)| queries[*number].as_wanted()).collect();
    ids.dedup();
    let mut found: Vec<(IdHash, u64, IdKind)> = Vec::new();
    if ids.len() <= MAX_SINGLE_LOOKUPS {
        let tasks: Vec<_> = segments.iter().flat_map(|segment| ids.iter().map(move |id| (segment, *id))).collect();
        let records = in_parallel(&tasks, &|(segment, id)| index::lookup_one(store, segment, *id));
        for ((segment, id), records) in tasks.into_iter().zip(records) {
            found.extend(records?.into_iter().map(|record| (id.hash, record, segment.kind)));
        }
    } else {
        let records = for_each_waiting(store.as_ref(), LOOKUPS, segments, |one| index::lookup_many(store, one, &ids))?;
        for (segment, records) in segments.iter().zip(records) {
            found.extend(records.into_iter().map(|(hash, record)| (hash, record, segment.kind)));
        }
    }
    let of = |(hash, record, kind): (IdHash, u64, IdKind)| {
        let start = wanted.partition_point(|(other, _)| *other < hash);
        let same = wanted[start..].iter().take_while(move |(other, _)| *other == hash);
        same.map(move |(_, number)| (*number, record, kind))
    };
    Ok(found.into_iter().flat_map(of).collect())
}

/// Returns every record that has the id and was in a version before the oldest readable one, with its place in that
/// version alone, and its place in `newest`.
///
/// # Errors
/// Those of [`find_hits`], and if the lineage of that version was not kept.
pub fn find_vacuumed(newest: &Snapshot, version: Version, id: &str) -> Result<Vec<(Hit, Place)>> {
    let mut hits = find_hits(newest, id)?;
    hits.retain(|hit| hit.since <= version);
    if hits.is_empty() {
        return Ok(Vec::new());
    }
    let lineage = newest.full_run_table()?;
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

/// Returns the place of a record in a version that none of its current runs covers.
fn vacuumed_place(newest: &Snapshot, lineage: &RunTable, record: u64, version: Version) -> Result<Place> {
    // Resolving scattered runs takes the places, and the remaining ones were already searched.
    let mut runs = lineage.of_record(record).into_iter();
    let run = runs.find(|run| run.scattered.is_none() && run.is_in_version(version)).ok_or_else(|| {
        Error::usage(format!("{version} was vacuumed, and the positions of its records were not kept"))
            .at_location(newest.dataset().store().location().to_string())
            .with_hint(
                "releases that keep it do so for versions that they vacuum themselves; of sorted shards it is not kept",
            )
    })?;
    Ok(deleted_place(run, record))
}

/// A candidate, and the run that maps it to a row.
type Asker<'a> = (u64, IdKind, &'a Run);

/// A candidate, its place, its row, and the first version that had it, if that is stored beside the row.
type Found = (u64, IdKind, Place, SidecarRow, Option<Version>);

/// Returns the first versions of rows of a sorted shard, after checking that the rows have the requested numbers.
fn first_versions(
    store: &Arc<dyn Store>,
    rows: &BTreeMap<u64, Vec<Asker<'_>>>,
    ordinals: &[u64],
    known: u64,
) -> Result<Vec<Version>> {
    let Some((_, _, run)) = rows.values().flatten().next() else { return Ok(Vec::new()) };
    let numbers = numbers::read_rows(store, run, ordinals, known)?;
    let check = |((ordinal, askers), (number, version)): ((&u64, &Vec<Asker<'_>>), (u64, Version))| match askers
        .iter()
        .find(|(record, _, _)| *record != number)
    {
        None => Ok(version),
        Some((record, _, _)) => {
            Err(Error::integrity(format!("expected record {record} in row {ordinal}, found record {number}"))
                .at_location(store.location().join(&run.shard).to_string()))
        }
    };
    rows.iter().zip(numbers).map(check).collect()
}

/// Resolves record numbers to hits.
pub(in crate::dataset) struct Resolver<'a> {
    snapshot: &'a Snapshot,
    sources: Option<Catalog>,
    /// Runs of vacuumed versions, once they are needed.
    lineage: Option<RunTable>,
    /// Operations of the versions in which records left.
    operations: BTreeMap<Version, Operation>,
}

impl<'a> Resolver<'a> {
    pub(in crate::dataset) fn new(snapshot: &'a Snapshot) -> Self {
        Self { snapshot, sources: None, lineage: None, operations: BTreeMap::new() }
    }

    /// Reads the lists that every answer needs while `work` is done, which does not depend on them.
    pub(in crate::dataset) fn load_lists_during<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let snapshot = self.snapshot;
        let failed = || Error::internal("reading lists of the dataset failed");
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| snapshot.run_table().map(|_| ()));
            let sources = scope.spawn(|| Catalog::open(snapshot.dataset().store(), &snapshot.entry().sources));
            let done = work();
            runs.join().map_err(|_| failed())??;
            self.sources = Some(sources.join().map_err(|_| failed())??);
            done
        })
    }

    /// Returns a hit for each of some records, by reading the sidecar of every place.
    pub(in crate::dataset) fn resolve_hits(
        &mut self,
        candidates: &BTreeSet<(u64, IdKind)>,
    ) -> Result<BTreeMap<(u64, IdKind), Hit>> {
        let table = self.snapshot.run_table()?;
        let mut hits: BTreeMap<(u64, IdKind), Hit> = BTreeMap::new();
        for (record, kind, place, row, since) in rows_of(self.snapshot, candidates)? {
            let hit = hits.entry((record, kind)).or_insert_with(|| Hit {
                kind,
                record_id: row.id_or_origin(),
                subject_id: row.subject_id,
                record,
                source: row.source,
                uri: None,
                hyperslab: None,
                row: row.row,
                hash: row.hash,
                since: table.first_version(record).unwrap_or(place.from),
                places: Vec::new(),
            });
            hit.since = hit.since.min(since.unwrap_or(hit.since));
            hit.places.push(place);
        }
        for hit in hits.values_mut() {
            hit.places.sort_by_key(|place| place.from);
            self.set_final_state(hit)?;
            self.add_vacuumed_places(hit)?;
        }
        let sources = match self.sources.take() {
            Some(sources) => sources,
            None => Catalog::open(self.snapshot.dataset().store(), &self.snapshot.entry().sources)?,
        };
        let wanted: Vec<(u64, &str)> = hits.values().map(|hit| (hit.record, hit.source.as_str())).collect();
        let origins = sources.find_origins(&wanted)?;
        for (hit, origin) in hits.values_mut().zip(origins) {
            let Some(origin) = origin else { continue };
            hit.hyperslab = hit.row.zip(origin.arrays).and_then(|(row, arrays)| {
                // A layout written by a newer release may be unreadable.
                serde_json::from_str::<Layout>(&arrays).ok()?.row_hyperslab(row)
            });
            hit.uri = Some(origin.uri);
        }
        self.sources = Some(sources);
        Ok(hits)
    }

    /// Sets the state of the last place if the record is no longer in the dataset.
    fn set_final_state(&mut self, hit: &mut Hit) -> Result<()> {
        let Some(last) = hit.places.last_mut() else { return Ok(()) };
        let Some(until) = last.until.filter(|_| last.state == PlaceState::Compacted) else { return Ok(()) };
        if let std::collections::btree_map::Entry::Vacant(unknown) = self.operations.entry(until) {
            unknown.insert(self.snapshot.dataset().read_entry(until)?.operation);
        }
        let erased = self.operations.get(&until) == Some(&Operation::Erase);
        last.state = if erased { PlaceState::Erased } else { PlaceState::Removed };
        Ok(())
    }

    /// Inserts the places of vacuumed versions before the others.
    fn add_vacuumed_places(&mut self, hit: &mut Hit) -> Result<()> {
        let snapshot = self.snapshot;
        let earlier = hit.places.first().is_some_and(|first| hit.since < first.from);
        if !earlier || snapshot.entry().lineage.is_empty() {
            return Ok(());
        }
        let lineage = match self.lineage.take() {
            Some(lineage) => lineage,
            None => snapshot.full_run_table()?,
        };
        let gone = lineage.of_record(hit.record).into_iter().filter(|run| {
            // Places of scattered runs are discarded with their shards.
            run.scattered.is_none() && !run.is_readable_from(snapshot.readable_from()) && run.from <= snapshot.version()
        });
        let mut places: Vec<Place> = gone.map(|run| deleted_place(run, hit.record)).collect();
        places.append(&mut hit.places);
        hit.places = places;
        self.lineage = Some(lineage);
        Ok(())
    }
}

/// Returns the place of a record in a run whose shard is deleted.
fn deleted_place(run: &Run, record: u64) -> Place {
    Place {
        shard: run.shard.clone(),
        ordinal: run.ordinal + (record - run.first),
        offset: None,
        length: None,
        frame: None,
        from: run.from,
        until: run.until,
        state: PlaceState::Vacuumed,
    }
}

/// Returns the sidecar row of every place of some records.
fn rows_of(snapshot: &Snapshot, candidates: &BTreeSet<(u64, IdKind)>) -> Result<Vec<Found>> {
    let version = snapshot.version();
    // Requested rows of each shard, each with the requesting candidates and run.
    let mut wanted: BTreeMap<&str, BTreeMap<u64, Vec<Asker<'_>>>> = BTreeMap::new();
    let mut records: Vec<u64> = candidates.iter().map(|(record, _)| *record).collect();
    records.dedup();
    let places = places_of(snapshot, &records)?;
    for (record, kind) in candidates {
        for (run, ordinal) in places.get(record).into_iter().flatten().filter(|(run, _)| run.from <= version) {
            wanted.entry(&run.shard).or_default().entry(*ordinal).or_default().push((*record, *kind, *run));
        }
    }
    let (store, table, few) = (snapshot.dataset().store(), snapshot.run_table()?, wanted.len() <= MAX_SINGLE_LOOKUPS);
    let read = |(shard, rows): &(&str, BTreeMap<u64, Vec<Asker<'_>>>)| -> Result<Vec<Found>> {
        let ordinals: Vec<u64> = rows.keys().copied().collect();
        let packed = [".gz", ".zst"].iter().any(|extension| shard.ends_with(extension));
        // For few shards it pays off to look up their lengths.
        let runs = match (few, rows.values().flatten().next()) {
            (true, Some((_, _, run))) => table.of_shard(shard, run.from),
            _ => rows.values().flatten().map(|(_, _, run)| *run).collect(),
        };
        let known = runs.iter().map(|run| run.ordinal.saturating_add(run.records)).max().unwrap_or(0);
        let mut askers = rows.values().flatten().map(|(_, _, run)| *run);
        let scattered = askers.clone().any(|run| run.scattered.is_some());
        let Some(sidecar) = askers.next().map(Run::sidecar) else { return Ok(Vec::new()) };
        let since = || -> Result<Vec<Option<Version>>> {
            if !scattered {
                return Ok(vec![None; ordinals.len()]);
            }
            Ok(first_versions(store, rows, &ordinals, known)?.into_iter().map(Some).collect())
        };
        let sidecar = || sidecar::read_rows_near(store, &sidecar, &ordinals, packed);
        let (read, since) = if scattered && few {
            // These two reads are independent.
            std::thread::scope(|scope| {
                let since = scope.spawn(since);
                (sidecar(), since.join().map_err(|_| Error::internal("reading record numbers failed")).flatten())
            })
        } else {
            (sidecar(), since())
        };
        let ((sidecar, frames), since) = (read?, since?);
        let mut found = Vec::with_capacity(ordinals.len());
        for (((ordinal, askers), row), since) in rows.iter().zip(sidecar).zip(since) {
            let frame = frames.as_ref().zip(row.offset).and_then(|(frames, offset)| frames.frame_of(offset));
            found.extend(askers.iter().map(|(record, kind, run)| {
                (*record, *kind, Place { frame, ..stored_place(run, *ordinal, &row, version) }, row.clone(), since)
            }));
        }
        Ok(found)
    };
    let wanted: Vec<_> = wanted.into_iter().collect();
    let read: Vec<Result<Vec<Found>>> =
        if few { in_parallel(&wanted, &read) } else { wanted.par_iter().map(read).collect() };
    Ok(read.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn stored_place(run: &Run, ordinal: u64, row: &SidecarRow, version: Version) -> Place {
    Place {
        shard: run.shard.clone(),
        ordinal,
        offset: row.offset,
        length: row.length,
        frame: None,
        from: run.from,
        until: run.until.filter(|until| *until <= version),
        state: if run.is_in_version(version) { PlaceState::Live } else { PlaceState::Compacted },
    }
}
