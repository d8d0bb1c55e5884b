//! Erasing records: who carries an id in any version, and the commit that takes them out.
//!
//! ```text
//! rewritten shards, segments (durable) -> lists (durable) -> entry, created if absent -> old objects deleted
//! ```
//!
//! The commit is what counts. From the current version alone, records leave as they would with a compaction that loses
//! them: their runs end, and older versions keep them until they are vacuumed. From all versions, the runs of rewritten
//! shards are led over to what stands for them, holes left out, and older versions are read through the lists of
//! [`erased`](super::erased). Whatever other runs commit meanwhile stays: an erasure is made again on top of it, unless
//! somebody replaced a shard that it rewrote or added records that carry the id.

use std::{
    cell::RefCell,
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
        ids::{IdKind, private::Asked, salt::Salt},
        index::{self, SegmentRef, places::PlaceRef},
        log::{
            clock,
            commit::{Next, created_within},
            draft::{Draft, ListWriter},
            entry::{Counts, Entry, FORMAT_VERSION},
            erased::{self, Rewritten, StandIns, Tombstone, rewritten_batch, tombstone_batch},
            erasures::{Erasures, Unfinished},
            retraction::Retraction,
            runs::{self, Run, RunTable},
            shards::{NewShard, ShardMeta},
            snapshot::{Dataset, Snapshot},
            transaction::{Numbers, Transaction},
        },
        lookup::find::{self, Hit, State},
        table::list::ListRef,
    },
    error::{Error, Result},
    id::{IdHash, TransactionId, Version},
};

/// Segments of the id index in any version that can be read, without repetition, and lists of sources likewise; those of
/// the newest version alone unless `all_versions`.
///
/// # Errors
/// When the log cannot be read.
pub fn indexes(newest: &Snapshot, all_versions: bool) -> Result<(Vec<SegmentRef>, Vec<ListRef>)> {
    let dataset = newest.dataset();
    let entry = newest.entry();
    let (mut segments, mut sources) = (entry.segments.clone(), entry.sources.clone());
    if all_versions {
        let stand_ins = StandIns::of(dataset.store().as_ref(), entry)?;
        let before = entry.erasures.as_ref().map_or(Version(0), |erasures| erasures.rewrote_before);
        let mut readable = dataset.entries(Version(entry.readable_from.0.max(1)), newest.version())?;
        for version in named_alone(newest) {
            readable.push(dataset.entry(version)?);
        }
        for old in readable {
            let led = old.version < before;
            segments.extend(if led { stand_ins.segments(&old.segments) } else { old.segments });
            sources.extend(if led { stand_ins.lists(&old.sources) } else { old.sources });
        }
    }
    let mut seen = HashSet::new();
    segments.retain(|segment| seen.insert(segment.path.clone()));
    sources.retain(|list| seen.insert(list.path.clone()));
    Ok((segments, sources))
}

/// Versions that only their names keep, though others of their time were vacuumed: the run table of the newest version does
/// not have their runs.
fn named_alone(newest: &Snapshot) -> BTreeSet<Version> {
    newest.tags().values().copied().filter(|version| *version < newest.readable_from()).collect()
}

/// Versions that only their names keep, opened, with what they alone know.
#[derive(Debug)]
pub struct Named {
    snapshots: Vec<Snapshot>,
    /// Shards that the run table of the newest version does not have, each with a version that does.
    shards: BTreeMap<String, Version>,
    /// All runs: those of the newest version's table, and of these shards.
    runs: RunTable,
}

impl Named {
    /// Opens those that an erasure has to look into: all of them if it is one from all versions, else none.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn of(newest: &Snapshot, all_versions: bool) -> Result<Self> {
        let versions = if all_versions { named_alone(newest) } else { BTreeSet::new() };
        let snapshots: Vec<Snapshot> =
            versions.into_iter().map(|version| newest.dataset().at(version)).collect::<Result<_>>()?;
        let known: HashSet<&str> = newest.runs()?.all().iter().map(|run| run.shard.as_str()).collect();
        let (mut shards, mut runs) = (BTreeMap::new(), newest.runs()?.all().to_vec());
        for snapshot in &snapshots {
            let version = snapshot.version();
            let mut alone: Vec<Run> = snapshot.runs()?.all().to_vec();
            alone.retain(|run| run.contains(version) && !known.contains(run.shard.as_str()));
            alone.retain(|run| shards.get(&run.shard).is_none_or(|first| *first == version));
            for run in alone {
                shards.insert(run.shard.clone(), version);
                // They are in no version after it that can be read, or else it would know them.
                runs.push(Run { until: Some(version.next()), ..run });
            }
        }
        Ok(Self { snapshots, shards, runs: RunTable::new(runs) })
    }

    /// All runs of versions that can be read.
    pub fn runs(&self) -> &RunTable {
        &self.runs
    }

    /// A version of those kept by names that has a shard, if no other version that can be read has it.
    pub fn version_of(&self, shard: &str) -> Option<Version> {
        self.shards.get(shard).copied()
    }
}

/// For each id the records that carry it as their record id or subject id, with ids as they are stored: in the newest
/// version, or in any that can be read. `segments` are those of [`indexes`], `named` versions that only they know of.
///
/// # Errors
/// When the index, the run table or a sidecar cannot be read.
pub fn lookup(
    newest: &Snapshot,
    named: &Named,
    segments: &[SegmentRef],
    ids: &[Asked<'_>],
    all_versions: bool,
) -> Result<Vec<Vec<Hit>>> {
    let store = newest.dataset().store();
    let mut hits: Vec<BTreeMap<(u64, IdKind), Hit>> = ids.iter().map(|_| BTreeMap::new()).collect();
    for snapshot in std::iter::once(newest).chain(&named.snapshots) {
        let origins = find::origins(snapshot, ids)?;
        let look = |(asked, origins): (&Asked<'_>, &Vec<u64>)| {
            let mut candidates: BTreeSet<(u64, IdKind)> = BTreeSet::new();
            for segment in segments {
                let records = index::lookup_one(store, segment, asked.hash)?;
                candidates.extend(records.into_iter().map(|record| (record, segment.kind)));
            }
            candidates.extend(origins.iter().map(|record| (*record, IdKind::Record)));
            let mut hits = find::Resolver::new(snapshot).resolve(&candidates)?;
            hits.retain(|_, hit| match hit.kind {
                IdKind::Record => asked.is(&hit.record_id),
                IdKind::Subject => hit.subject_id.as_deref().is_some_and(|stored| asked.is(stored)),
            });
            // What was vacuumed is deleted already.
            hits.values_mut().for_each(|hit| hit.places.retain(|place| place.state != State::Vacuumed));
            if !all_versions {
                hits.retain(|_, hit| hit.is_live());
                hits.values_mut().for_each(|hit| hit.places.retain(|place| place.state == State::Live));
            }
            Ok(hits)
        };
        let found: Vec<BTreeMap<_, Hit>> = ids.par_iter().zip(&origins).map(look).collect::<Result<_>>()?;
        for (known, found) in hits.iter_mut().zip(found) {
            found.into_iter().for_each(|(key, hit)| add_places(known.entry(key), hit));
        }
    }
    Ok(hits.into_iter().map(|hits| hits.into_values().collect()).collect())
}

/// Adds a hit of another version: places that are known already are the same there.
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

/// Facts of shards, given a version that has each.
///
/// # Errors
/// When a list cannot be read, or does not have the shard.
pub fn shards_of(newest: &Snapshot, paths: &BTreeMap<String, Version>) -> Result<BTreeMap<String, ShardMeta>> {
    let mut found: BTreeMap<String, ShardMeta> = BTreeMap::new();
    let mut take = |shards: &[ShardMeta]| {
        let wanted = shards.iter().filter(|shard| paths.contains_key(&shard.path));
        found.extend(wanted.map(|shard| (shard.path.clone(), shard.clone())));
    };
    take(newest.shards()?);
    let live: HashSet<&str> = newest.shards()?.iter().map(|shard| shard.path.as_str()).collect();
    let versions: BTreeSet<Version> =
        paths.iter().filter(|(path, _)| !live.contains(path.as_str())).map(|(_, version)| *version).collect();
    for version in versions {
        take(newest.dataset().at(version)?.shards()?);
    }
    match paths.iter().find(|(path, _)| !found.contains_key(*path)) {
        None => Ok(found),
        Some((path, version)) => Err(Error::integrity(format!("expected the shard in {version}, found none"))
            .at(newest.dataset().store().location().join(path).to_string())),
    }
}

/// The operation whose entries list shards again that were no longer live.
pub const REVERT: &str = "revert";

/// Attempts to commit before an erasure is planned anew, where it can ask others to hold back: each takes it longer than a
/// small conversion takes, so by itself it might lose for ever.
const ATTEMPTS: usize = 3;

/// What became of a shard.
#[derive(Debug)]
pub struct Rewrite {
    /// The old shard.
    pub was: ShardMeta,
    /// Whether the newest version has it.
    pub live: bool,
    /// The shard without the records, its runs with their own numbers; `None` when none was left.
    pub now: Option<NewShard>,
}

/// What an erasure wants to commit.
#[derive(Debug)]
pub struct Erasure {
    /// Names the run.
    pub id: TransactionId,
    /// The version that its first attempt looked at, since when objects of it may lie there.
    pub begun_on: Version,
    /// Attempts to commit that were made before, whose lists have names already.
    pub attempts: usize,
    /// Options of the run; none of them names anybody.
    pub arguments: BTreeMap<String, String>,
    /// What was done.
    pub counts: Counts,
    /// Whether older versions lose the records as well.
    pub all_versions: bool,
    /// What the user gave as the reason.
    pub reason: Option<String>,
    /// The touched shards.
    pub rewrites: Vec<Rewrite>,
    /// Where records are that were sorted, of the new shards.
    pub places: Vec<PlaceRef>,
    /// Segments and lists of sources that were written anew.
    pub reindexed: Vec<Reindexed>,
    /// Paths of the segments that were looked into.
    pub known: HashSet<String>,
    /// Hashes of the erased ids.
    pub hashes: Vec<IdHash>,
    /// Names of sources that some of the ids may be origins in, as they are stored.
    pub origins: HashSet<String>,
    /// Numbers of the erased records: first and how many.
    pub numbers: Vec<(u64, u64)>,
    /// Salt of the hashes below.
    pub salt: Salt,
    /// Who is not to come back; versions are filled in.
    pub suppressed: Vec<Suppressed>,
    /// What is left to do after the commit; the version is filled in.
    pub unfinished: Unfinished,
}

/// Makes the version that has the records no more. `planned_on` is the version that the run looked at.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) when another run replaced a shard, or added records that carry an id;
/// then nothing was committed, and the run can be made again. When the store fails.
pub fn commit_erasure(dataset: &Dataset, erasure: &Erasure, planned_on: Version) -> Result<Snapshot> {
    erasure.counts.reconcile()?;
    dataset.prove_store()?;
    created_within(ATTEMPTS, dataset, (&erasure.id, erasure.begun_on), "erased", |attempt| {
        let parent = dataset.open()?;
        erasure.check(&parent, planned_on)?;
        let transaction = erasure.transaction(&parent);
        let attempt = erasure.attempts + attempt;
        let draft = Draft { dataset, transaction: &transaction, attempt, staged: RefCell::default() };
        let entry = erasure.entry(&draft, &parent)?;
        draft.publish()?;
        Ok(Next::Entry(Box::new(entry)))
    })
}

impl Erasure {
    /// Refuses to go on when others have committed what this run has not seen.
    fn check(&self, parent: &Snapshot, planned_on: Version) -> Result<()> {
        if parent.version() == planned_on {
            return Ok(());
        }
        let conflict =
            |message: String| Err(Error::conflict(message).hint("nothing was erased; run the command again"));
        let live: HashSet<&str> = parent.shards()?.iter().map(|shard| shard.path.as_str()).collect();
        if let Some(gone) = self.rewrites.iter().find(|rewrite| rewrite.live && !live.contains(&*rewrite.was.path)) {
            return conflict(format!("another run replaced the shard `{}` meanwhile", gone.was.path));
        }
        // What came back was not there to be erased.
        let since = parent.dataset().entries(planned_on.next(), parent.version())?;
        if let Some(revert) = since.iter().find(|entry| entry.operation == REVERT) {
            return conflict(format!(
                "another run brought records of an older version back in {} meanwhile",
                revert.version
            ));
        }
        let salts = parent.entry().erasures.as_ref().map(Erasures::salt).transpose()?;
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
            for hash in &self.hashes {
                if !index::lookup_one(store, segment, *hash)?.is_empty() {
                    return conflict("another run wrote about the same ids meanwhile".to_owned());
                }
            }
        }
        Ok(())
    }

    fn transaction(&self, parent: &Snapshot) -> Transaction<'static> {
        let live = || self.rewrites.iter().filter(|rewrite| rewrite.live);
        Transaction {
            id: self.id.clone(),
            operation: "erase",
            arguments: self.arguments.clone(),
            revisions: Vec::new(),
            merges: Vec::new(),
            counts: self.counts,
            settings: parent.entry().settings.clone(),
            adds: live().filter_map(|rewrite| rewrite.now.clone()).collect(),
            removes: live().map(|rewrite| rewrite.was.path.clone()).collect(),
            segments: Vec::new(),
            places: Vec::new(),
            retraction: Retraction::default(),
            sources: &(),
            numbers: Numbers::Kept,
            calls: 0,
        }
    }

    fn entry(&self, draft: &Draft<'_>, parent: &Snapshot) -> Result<Entry> {
        let old = parent.entry();
        let version = old.version.next();
        let moment = clock::moment(draft.dataset, Some(old))?;
        let committed_at = moment.committed_at;
        let removed: HashSet<&str> = draft.transaction.removes.iter().map(String::as_str).collect();
        let meta = |rewrite: &Rewrite| {
            let now = rewrite.now.as_ref()?;
            // Nobody can tell from the log that older versions ever had other shards.
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
            self.led_runs(draft, parent)?
        } else {
            draft.run_lists(Some(parent), &removed, 0, version)?
        };
        let stand_ins = StandIns::of_replaced(self.reindexed.iter().map(|one| &one.replaced));
        Ok(Entry {
            format: FORMAT_VERSION,
            version,
            transaction: self.id.clone(),
            committed_at,
            corrections: moment.corrections,
            abandoned: Vec::new(),
            operation: draft.transaction.operation.to_owned(),
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
            arguments: self.arguments.clone(),
            revisions: Vec::new(),
            counts: self.counts,
            totals,
            shards,
            runs,
            sources: stand_ins.lists(&old.sources),
            segments: stand_ins.segments(&old.segments),
            places: old.places.iter().chain(&self.places).cloned().collect(),
            erasures: Some(self.erasures(draft, old, version)?),
            root: None,
            ..old.clone()
        })
    }

    /// The run table, with the runs of rewritten shards led over to what stands for them.
    fn led_runs(&self, draft: &Draft<'_>, parent: &Snapshot) -> Result<Vec<ListRef>> {
        let rewrites: HashMap<&str, &Rewrite> =
            self.rewrites.iter().map(|rewrite| (rewrite.was.path.as_str(), rewrite)).collect();
        let mut old: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        let mut rows: Vec<Run> = Vec::new();
        for run in parent.runs()?.all() {
            match rewrites.contains_key(run.shard.as_str()) {
                true => old.entry(&run.shard).or_default().push(run),
                false => rows.push(run.clone()),
            }
        }
        for (shard, old) in old {
            let Some(now) = rewrites.get(shard).and_then(|rewrite| rewrite.now.as_ref()) else { continue };
            rows.extend(led(now, &old));
        }
        let level = parent.entry().runs.iter().map(|list| list.level).max().unwrap_or_default();
        let mut lists = ListWriter::new(draft, "runs");
        lists.add(&runs::batch(&rows)?, level)?;
        lists.merged(u64::MAX)
    }

    fn erasures(&self, draft: &Draft<'_>, old: &Entry, version: Version) -> Result<Erasures> {
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
            lists.into_iter().for_each(|list| writer.keep(list));
            writer.add(&rows, 0)?;
            writer.merged(u64::MAX)
        };
        erasures.suppressed = with("suppressed", erasures.suppressed, suppress::batch(&suppressed)?)?;
        erasures.tombstones = with("tombstones", erasures.tombstones, tombstone_batch(&tombstones)?)?;
        if self.all_versions {
            let row = |rewrite: &Rewrite| Rewritten {
                was: rewrite.was.path.clone(),
                was_sidecar: rewrite.was.beside.as_ref().and_then(|beside| beside.at.clone()),
                now: rewrite.now.as_ref().map(|now| ShardMeta {
                    version: rewrite.was.version,
                    committed_at: rewrite.was.committed_at,
                    ..now.meta.clone()
                }),
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

/// Runs of what stands for a shard, in the versions that had it; a shard that was restored has several runs of one record.
fn led<'a>(now: &'a NewShard, old: &'a [&Run]) -> impl Iterator<Item = Run> + 'a {
    now.runs.iter().flat_map(move |(first, records, ordinal)| {
        let holds = move |run: &&&Run| now.scattered.is_some() || (run.first <= *first && *first < run.end());
        old.iter().filter(holds).map(move |was| Run {
            first: *first,
            records: *records,
            shard: now.meta.path.clone(),
            ordinal: *ordinal,
            from: was.from,
            until: was.until,
            since: was.since,
            scattered: now.scattered.clone(),
            beside: now.meta.beside.as_ref().map(|beside| Arc::new(beside.of_runs())),
        })
    })
}
