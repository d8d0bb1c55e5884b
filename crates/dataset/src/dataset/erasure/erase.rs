//! Erasure of records: lookup of an id's records in any version, and the commit that removes them.
//!
//! ```text
//! rewritten shards, segments (durable) -> lists (durable) -> entry, created if absent -> old objects deleted
//! ```
//!
//! The commit is decisive. In an erasure from the current version alone, records leave as in a compaction that loses
//! them: their runs end, and older versions keep them until they are vacuumed. In an erasure from all versions, the
//! runs of rewritten shards are mapped to the replacements with the erased numbers omitted, and older versions are read
//! through the lists of `log::erased`. Commits of other runs are kept: the erasure is applied again on top
//! of them, unless another run replaced a shard that it rewrote or added records that have the id.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map},
    sync::Arc,
};

use rayon::prelude::*;

use crate::{
    dataset::{
        erasure::{
            reindex::Reindexed,
            suppress::{self, Suppressed},
        },
        ids::{IdKind, Wanted, private::IdQuery, salt::Salt},
        index::{self, SegmentRef, places::PlaceRef},
        log::{
            clock,
            commit::{Next, created_within},
            draft::{Draft, ListWriter},
            entry::{Counts, Entry, FORMAT_VERSION},
            erased::{self, Replacements, Rewritten, Tombstone, rewritten_batch, tombstone_batch},
            erasures::{Erasures, Unfinished},
            gone::GoneRows,
            operation::Operation,
            runs::{self, Run, RunTable},
            shards::{NewShard, ShardMeta},
            snapshot::{Dataset, Snapshot},
            transaction::Transaction,
        },
        lookup::find::{self, Hit, PlaceState},
        table::list::ListRef,
    },
    error::{Error, Result},
    id::{IdHash, TransactionId, Version},
};

/// Returns the distinct segments of the id index in any readable version, and the distinct lists of sources; those of
/// the newest version alone unless `all_versions`.
///
/// # Errors
/// When the log cannot be read.
pub fn indexes_to_search(newest: &Snapshot, all_versions: bool) -> Result<(Vec<SegmentRef>, Vec<ListRef>)> {
    let dataset = newest.dataset();
    let entry = newest.entry();
    let (mut segments, mut sources) = (entry.segments.clone(), entry.sources.clone());
    if all_versions {
        let replacements = Replacements::from_entry(dataset.store().as_ref(), entry)?;
        let before = entry.erasures.as_ref().map_or(Version(0), |erasures| erasures.rewrote_before);
        let mut readable = dataset.entries_between(Version(entry.readable_from.0.max(1)), newest.version())?;
        for version in tagged_only(newest) {
            readable.push(dataset.read_entry(version)?);
        }
        for old in readable {
            let mapped = old.version < before;
            segments.extend(if mapped { replacements.current_segments(&old.segments) } else { old.segments });
            sources.extend(if mapped { replacements.current_lists(&old.sources)? } else { old.sources });
        }
    }
    let mut seen = HashSet::new();
    segments.retain(|segment| seen.insert(segment.path.clone()));
    sources.retain(|list| seen.insert(list.path.clone()));
    Ok((segments, sources))
}

/// Returns versions that only their tags keep, while their neighbours were vacuumed: their runs are not in the run
/// table of the newest version.
fn tagged_only(newest: &Snapshot) -> BTreeSet<Version> {
    newest.tags().values().copied().filter(|version| *version < newest.readable_from()).collect()
}

/// Opened versions that only their tags keep, with what only they know.
#[derive(Debug)]
pub struct TaggedVersions {
    snapshots: Vec<Snapshot>,
    /// Shards that are not in the run table of the newest version, each with a version that has it.
    shards: BTreeMap<String, Version>,
    /// All runs: those of the newest version's table, and those of these shards.
    runs: RunTable,
}

impl TaggedVersions {
    /// Opens the versions that an erasure must search: all tagged ones for an erasure from all versions, else none.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn for_erasure(newest: &Snapshot, all_versions: bool) -> Result<Self> {
        let versions = if all_versions { tagged_only(newest) } else { BTreeSet::new() };
        let snapshots: Vec<Snapshot> =
            versions.into_iter().map(|version| newest.dataset().open_version(version)).collect::<Result<_>>()?;
        let known: HashSet<&str> = newest.run_table()?.as_slice().iter().map(|run| run.shard.as_str()).collect();
        let (mut shards, mut runs) = (BTreeMap::new(), newest.run_table()?.as_slice().to_vec());
        for snapshot in &snapshots {
            let version = snapshot.version();
            let mut alone: Vec<Run> = snapshot.run_table()?.as_slice().to_vec();
            alone.retain(|run| run.is_in_version(version) && !known.contains(run.shard.as_str()));
            alone.retain(|run| shards.get(&run.shard).is_none_or(|first| *first == version));
            for run in alone {
                shards.insert(run.shard.clone(), version);
                // No later readable version contains them, or its run table would.
                runs.push(Run { until: Some(version.next()), ..run });
            }
        }
        Ok(Self { snapshots, shards, runs: RunTable::new(runs) })
    }

    /// Returns all runs of readable versions.
    pub fn run_table(&self) -> &RunTable {
        &self.runs
    }

    /// Returns a tagged version that has a shard, if no other readable version has it.
    pub fn version_of(&self, shard: &str) -> Option<Version> {
        self.shards.get(shard).copied()
    }
}

/// Returns, for each id, the records that have it as their record id or subject id, with ids as stored: in the newest
/// version, or in any readable one. `segments` are those of [`indexes_to_search`]; `tagged` has the versions that only
/// tags keep.
///
/// # Errors
/// When the index, the run table or a sidecar cannot be read.
pub fn lookup_hits(
    newest: &Snapshot,
    tagged: &TaggedVersions,
    segments: &[SegmentRef],
    ids: &[IdQuery<'_>],
    all_versions: bool,
) -> Result<Vec<Vec<Hit>>> {
    let store = newest.dataset().store();
    let mut hits: Vec<BTreeMap<(u64, IdKind), Hit>> = ids.iter().map(|_| BTreeMap::new()).collect();
    let mut indexed: Vec<BTreeSet<(u64, IdKind)>> = vec![BTreeSet::new(); ids.len()];
    for (id, record, kind) in find::index_candidates(store, segments, ids)? {
        indexed[id].insert((record, kind));
    }
    for snapshot in std::iter::once(newest).chain(&tagged.snapshots) {
        let origins = find::origin_candidates(snapshot, ids)?;
        let look = |at: usize| {
            let (query, origins) = (&ids[at], &origins[at]);
            let mut candidates = indexed[at].clone();
            candidates.extend(origins.iter().map(|record| (*record, IdKind::Record)));
            let mut hits = find::Resolver::new(snapshot).resolve_hits(&candidates)?;
            hits.retain(|_, hit| match hit.kind {
                IdKind::Record => query.matches_stored(&hit.record_id),
                IdKind::Subject => hit.subject_id.as_deref().is_some_and(|stored| query.matches_stored(stored)),
            });
            // Vacuumed places are deleted already.
            hits.values_mut().for_each(|hit| hit.places.retain(|place| place.state != PlaceState::Vacuumed));
            if !all_versions {
                hits.retain(|_, hit| hit.is_live());
                hits.values_mut().for_each(|hit| hit.places.retain(|place| place.state == PlaceState::Live));
            }
            Ok(hits)
        };
        let found: Vec<BTreeMap<_, Hit>> = (0..ids.len()).into_par_iter().map(look).collect::<Result<_>>()?;
        for (known, found) in hits.iter_mut().zip(found) {
            found.into_iter().for_each(|(key, hit)| add_places(known.entry(key), hit));
        }
    }
    Ok(hits.into_iter().map(|hits| hits.into_values().collect()).collect())
}

/// Adds a hit of another version; places that are known already are identical there.
fn add_places<K: Ord>(known: btree_map::Entry<'_, K, Hit>, hit: Hit) {
    match known {
        btree_map::Entry::Vacant(unknown) => {
            unknown.insert(hit);
        }
        btree_map::Entry::Occupied(mut known) => {
            let known = known.get_mut();
            known.since = known.since.min(hit.since);
            for place in hit.places {
                if !known.places.iter().any(|other| other.shard == place.shard && other.ordinal == place.ordinal) {
                    known.places.push(place);
                }
            }
        }
    }
}

/// Returns the facts of shards, given a version that has each.
///
/// # Errors
/// When a list cannot be read, or does not have the shard.
pub fn shards_of(newest: &Snapshot, paths: &BTreeMap<String, Version>) -> Result<BTreeMap<String, ShardMeta>> {
    let mut found: BTreeMap<String, ShardMeta> = BTreeMap::new();
    let mut take = |shards: &[ShardMeta]| {
        let wanted = shards.iter().filter(|shard| paths.contains_key(&shard.path));
        found.extend(wanted.map(|shard| (shard.path.clone(), shard.clone())));
    };
    take(newest.live_shards()?);
    let live: HashSet<&str> = newest.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
    let versions: BTreeSet<Version> =
        paths.iter().filter(|(path, _)| !live.contains(path.as_str())).map(|(_, version)| *version).collect();
    for version in versions {
        take(newest.dataset().open_version(version)?.live_shards()?);
    }
    match paths.iter().find(|(path, _)| !found.contains_key(*path)) {
        None => Ok(found),
        Some((path, version)) => Err(Error::integrity(format!("expected the shard in {version}, found none"))
            .at_location(newest.dataset().store().location().join(path).to_string())),
    }
}

/// Attempts to commit before an erasure is planned again, at which point it asks other runs to delay theirs for longer:
/// each attempt takes longer than a small conversion, so without this it could lose for ever. Runs that were asked
/// already may still finish the attempts that they are in.
const ATTEMPTS: usize = 12;

/// The result of rewriting a shard.
#[derive(Debug)]
pub struct Rewrite {
    /// The old shard.
    pub was: ShardMeta,
    /// Whether the newest version has it.
    pub live: bool,
    /// The shard without the records, its runs with their own numbers; `None` if none was left.
    pub now: Option<NewShard>,
    /// Rows of the old shard that the new one lacks.
    pub gone: GoneRows,
}

/// An erasure to be committed.
#[derive(Debug)]
pub struct Erasure {
    /// Id of the run.
    pub id: TransactionId,
    /// The version that its first attempt was based on; its objects may exist since then.
    pub begun_on: Version,
    /// Earlier attempts to commit, whose lists are already published.
    pub attempts: usize,
    /// Options of the run; they contain no erased ids.
    pub arguments: BTreeMap<String, String>,
    /// Counts of the run.
    pub counts: Counts,
    /// Whether the records are erased from older versions as well.
    pub all_versions: bool,
    /// Reason given by the user.
    pub reason: Option<String>,
    /// The touched shards.
    pub rewrites: Vec<Rewrite>,
    /// Places of sorted records in the new shards.
    pub places: Vec<PlaceRef>,
    /// Rewritten segments and lists of sources.
    pub reindexed: Vec<Reindexed>,
    /// Paths of the segments that were searched.
    pub known: HashSet<String>,
    /// The erased ids as they are stored, and their hashes.
    pub ids: Vec<(IdHash, String)>,
    /// Stored names of sources in which some of the ids may be origins.
    pub origins: HashSet<String>,
    /// Numbers of the erased records: first and count.
    pub numbers: Vec<(u64, u64)>,
    /// Salt of the hashes below.
    pub salt: Salt,
    /// Ids to block; versions are filled in.
    pub suppressed: Vec<Suppressed>,
    /// Work left after the commit; the version is filled in.
    pub unfinished: Unfinished,
}

/// Commits the version without the records. `planned_on` is the version that the run was based on.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another run replaced a shard, or added records that have an id;
/// then nothing was committed, and the run can be repeated. If the store fails.
pub fn commit_erasure(dataset: &Dataset, erasure: &Erasure, planned_on: Version) -> Result<Snapshot> {
    erasure.counts.reconcile()?;
    dataset.test_store()?;
    created_within(ATTEMPTS, dataset, &erasure.id, erasure.begun_on, "erased", |attempt| {
        let parent = dataset.open_newest()?;
        erasure.check_conflicts(&parent, planned_on)?;
        let transaction = erasure.to_transaction(&parent);
        let draft = Draft::new(dataset, &transaction, erasure.attempts, attempt);
        let entry = erasure.build_entry(&draft, &parent)?;
        draft.publish_staged()?;
        Ok(Next::Entry(Box::new(entry)))
    })
}

impl Erasure {
    /// Fails if other runs have committed changes that this run has not seen.
    fn check_conflicts(&self, parent: &Snapshot, planned_on: Version) -> Result<()> {
        if parent.version() == planned_on {
            return Ok(());
        }
        let conflict =
            |message: String| Err(Error::conflict(message).with_hint("nothing was erased; run the command again"));
        let live: HashSet<&str> = parent.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
        if let Some(gone) = self.rewrites.iter().find(|rewrite| rewrite.live && !live.contains(&*rewrite.was.path)) {
            return conflict(format!("another run replaced the shard `{}` meanwhile", gone.was.path));
        }
        // What came back was not there to be erased.
        let since = parent.dataset().entries_between(planned_on.next(), parent.version())?;
        if let Some(revert) = since.iter().find(|entry| entry.operation == Operation::Revert) {
            return conflict(format!(
                "another run brought records of an older version back in {} meanwhile",
                revert.version
            ));
        }
        let salts = parent.entry().erasures.as_ref().map(Erasures::parse_salt).transpose()?;
        if salts.is_some_and(|salt| salt != self.salt) {
            return conflict("somebody else was erased meanwhile".to_owned());
        }
        if !self.origins.is_empty() {
            parent.each_source(&mut |source| match source.version > planned_on
                && source.records > 0
                && self.origins.contains(&source.name)
            {
                true => conflict("another run converted a source of the same name meanwhile".to_owned()),
                false => Ok(()),
            })?;
        }
        let store = parent.dataset().store();
        for segment in parent.entry().segments.iter().filter(|segment| !self.known.contains(&segment.path)) {
            for (hash, id) in &self.ids {
                if !index::lookup_one(store, segment, Wanted { hash: *hash, id })?.is_empty() {
                    return conflict("another run wrote about the same ids meanwhile".to_owned());
                }
            }
        }
        Ok(())
    }

    fn to_transaction(&self, parent: &Snapshot) -> Transaction<'static> {
        let live = || self.rewrites.iter().filter(|rewrite| rewrite.live);
        Transaction {
            arguments: self.arguments.clone(),
            counts: self.counts,
            adds: live().filter_map(|rewrite| rewrite.now.clone()).collect(),
            removes: live().map(|rewrite| rewrite.was.path.clone()).collect(),
            ..Transaction::new(self.id.clone(), Operation::Erase, parent.entry().settings.clone())
        }
    }

    fn build_entry(&self, draft: &Draft<'_>, parent: &Snapshot) -> Result<Entry> {
        let old = parent.entry();
        let version = old.version.next();
        let moment = clock::commit_moment(draft.dataset, Some(old))?;
        let committed_at = moment.committed_at;
        let removed: HashSet<&str> = draft.transaction.removes.iter().map(String::as_str).collect();
        let meta = |rewrite: &Rewrite| {
            let now = rewrite.now.as_ref()?;
            // The log must not reveal that older versions ever had other shards.
            let (version, committed_at) = if self.all_versions {
                (rewrite.was.version, rewrite.was.committed_at)
            } else {
                (version, committed_at)
            };
            Some(ShardMeta { version, committed_at, ..now.meta.clone() })
        };
        let adds: Vec<ShardMeta> = self.rewrites.iter().filter(|rewrite| rewrite.live).filter_map(meta).collect();
        let (shards, totals) = draft.shard_lists(Some(parent), &adds, &removed)?;
        let runs = if self.all_versions {
            self.mapped_runs(draft, parent)?
        } else {
            draft.run_lists(Some(parent), &removed, 0, version)?
        };
        let replacements = Replacements::from_replaced(self.reindexed.iter().map(|one| &one.replaced));
        Ok(Entry {
            format: FORMAT_VERSION,
            version,
            transaction: self.id.clone(),
            committed_at,
            corrections: moment.corrections,
            abandoned: Vec::new(),
            operation: draft.transaction.operation,
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
            arguments: self.arguments.clone(),
            revisions: Vec::new(),
            counts: self.counts,
            totals,
            shards,
            runs,
            sources: replacements.current_lists(&old.sources)?,
            segments: replacements.current_segments(&old.segments),
            places: old.places.iter().chain(&self.places).cloned().collect(),
            erasures: Some(self.updated_erasures(draft, old, version)?),
            basis: Vec::new(),
            root: None,
            ..old.clone()
        })
    }

    /// Writes the run table, with the runs of rewritten shards mapped to their replacements.
    fn mapped_runs(&self, draft: &Draft<'_>, parent: &Snapshot) -> Result<Vec<ListRef>> {
        let rewrites: HashMap<&str, &Rewrite> =
            self.rewrites.iter().map(|rewrite| (rewrite.was.path.as_str(), rewrite)).collect();
        let mut old: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        let mut rows: Vec<Run> = Vec::new();
        for run in parent.run_table()?.as_slice() {
            match rewrites.contains_key(run.shard.as_str()) {
                true => old.entry(&run.shard).or_default().push(run),
                false => rows.push(run.clone()),
            }
        }
        for (shard, old) in old {
            let Some(now) = rewrites.get(shard).and_then(|rewrite| rewrite.now.as_ref()) else { continue };
            rows.extend(replacement_runs(now, &old));
        }
        let mut lists = ListWriter::new(draft, "runs");
        lists.add_rows(&runs::to_batch(&rows)?)?;
        lists.into_merged(u64::MAX)
    }

    fn updated_erasures(&self, draft: &Draft<'_>, old: &Entry, version: Version) -> Result<Erasures> {
        let mut erasures = old.erasures.clone().unwrap_or_else(|| Erasures::new(self.salt));
        erasures.count += 1;
        erasures.unfinished.push(self.unfinished.of_version(version));
        let suppressed: Vec<Suppressed> =
            self.suppressed.iter().map(|row| Suppressed { version, ..row.clone() }).collect();
        let tombstones: Vec<Tombstone> = self
            .numbers
            .iter()
            .map(|(first, records)| Tombstone {
                first: *first,
                records: *records,
                version,
                all_versions: self.all_versions,
                reason: self.reason.clone(),
            })
            .collect();
        let with = |kind, lists: Vec<ListRef>, rows| -> Result<Vec<ListRef>> {
            let mut writer = ListWriter::new(draft, kind);
            lists.into_iter().for_each(|list| writer.keep_list(list));
            writer.add_rows(&rows)?;
            writer.into_merged(u64::MAX)
        };
        erasures.suppressed = with("suppressed", erasures.suppressed, suppress::to_batch(&suppressed)?)?;
        erasures.tombstones = with("tombstones", erasures.tombstones, tombstone_batch(&tombstones)?)?;
        if self.all_versions {
            let row = |rewrite: &Rewrite| Rewritten {
                was: rewrite.was.path.clone(),
                was_sidecar: rewrite.was.beside.at.clone(),
                now: rewrite.now.as_ref().map(|now| ShardMeta {
                    version: rewrite.was.version,
                    committed_at: rewrite.was.committed_at,
                    ..now.meta.clone()
                }),
                gone: rewrite.now.as_ref().map(|_| rewrite.gone.clone()),
            };
            let rewritten: Vec<Rewritten> = self.rewrites.iter().map(row).collect();
            let replaced: Vec<_> = self.reindexed.iter().map(|one| one.replaced.clone()).collect();
            erasures.rewritten = with("rewritten", erasures.rewritten, rewritten_batch(&rewritten)?)?;
            erasures.replaced = with("replaced", erasures.replaced, erased::replaced_batch(&replaced)?)?;
            erasures.rewrote_before = version;
        }
        Ok(erasures)
    }
}

/// Returns the runs of a shard's replacement, in the versions that had the shard; a restored shard has several runs of
/// one record.
fn replacement_runs<'a>(now: &'a NewShard, old: &'a [&Run]) -> impl Iterator<Item = Run> + 'a {
    now.runs.iter().flat_map(move |(first, records, ordinal)| {
        let holds = move |run: &&&Run| now.scattered.is_some() || (run.first <= *first && *first < run.end_record());
        old.iter().filter(holds).map(move |was| Run {
            first: *first,
            records: *records,
            shard: now.meta.path.clone(),
            ordinal: *ordinal,
            from: was.from,
            until: was.until,
            since: was.since,
            scattered: now.scattered.clone(),
            beside: Arc::new(now.meta.beside.of_runs()),
        })
    })
}
