//! Datasets, and the state of a dataset at a version.
//!
//! A snapshot is immutable. Opening it takes one listing and one read; lists are read when they are first needed. Facts
//! that only the newest entry has, such as which versions can be read and the tags, are part of each snapshot.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;

use super::{
    cache::LogCache,
    entry::{self, Entry, Totals, corrected_time},
    erased::{self, Replacements},
    past::{self, Past},
    runs::{self, Run, RunTable},
    shards::{self, ShardMeta},
    sources::{self, SourceRow},
    store_test,
};
use crate::{
    codec::merkle::Hash,
    dataset::{
        ids::private::IdKey,
        table::{fetch, list::ListRef, paths::system_path, sealed::Sealed},
    },
    error::{Error, Result},
    id::{TransactionId, Version},
    storage::{Listed, Object, ObjectFacts, SMALL, SYSTEM_FOLDER, Store, for_each_waiting},
};

/// Entries read at a time while searching for one.
const PROBES: u64 = 16;

/// A dataset at some location; it need not exist yet.
#[derive(Debug, Clone)]
pub struct Dataset {
    cache: Arc<LogCache>,
    key: Option<Arc<IdKey>>,
}

impl Dataset {
    /// Returns the dataset in `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { cache: Arc::new(LogCache::new(store)), key: None }
    }

    /// Sets the key of its ids, used if they are private.
    #[must_use]
    pub fn with_key(self, key: Option<Arc<IdKey>>) -> Self {
        Self { key, ..self }
    }

    /// Returns the given key of private ids, which may be wrong.
    pub fn id_key(&self) -> Option<&Arc<IdKey>> {
        self.key.as_ref()
    }

    /// Returns the store that holds it.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.cache.store()
    }

    /// Returns the store and the cache of its log entries and lists.
    pub(in crate::dataset) fn log_cache(&self) -> &LogCache {
        &self.cache
    }

    /// Returns the newest snapshot; `None` if nothing was ever committed.
    ///
    /// # Errors
    /// When the log cannot be read or was written by a newer format version.
    pub fn newest_snapshot(&self) -> Result<Option<Snapshot>> {
        Ok(entry::newest_entry(&self.cache)?.map(|entry| {
            let newest = Newest::from_entry(&entry);
            self.snapshot_of(entry, newest)
        }))
    }

    /// Returns the newest snapshot, or an error if there is none.
    ///
    /// # Errors
    /// When nothing was ever committed here, or the log cannot be read.
    pub fn open_newest(&self) -> Result<Snapshot> {
        self.newest_snapshot()?.ok_or_else(|| {
            let place = self.store().location().to_string();
            Error::usage("there is no shardify dataset here")
                .with_hint("make one with `shardify convert SOURCE --out DATASET`, or name the right folder")
                .with_hint(format!("shards that other tools wrote become one with `shardify adopt {place}`"))
                .at_location(place)
        })
    }

    /// Returns the snapshot of a version.
    ///
    /// # Errors
    /// When there is no such version, or it was vacuumed.
    pub fn open_version(&self, version: Version) -> Result<Snapshot> {
        // Only the newest entry knows which versions can still be read.
        let latest = entry::newest_entry(&self.cache)?;
        let newest = latest.as_ref().map(Newest::from_entry).unwrap_or_default();
        let entry = match &latest {
            Some(latest) if latest.version == version => Some(latest.clone()),
            _ => self.find_entry(version)?,
        };
        match entry {
            _ if version.0 > 0 && version < newest.version && !newest.can_read(version) => {
                Err(Error::usage(format!("{version} was vacuumed: some of its shards are deleted"))
                    .at_location(self.store().location().to_string())
                    .with_hint(format!("the oldest version that can be read is {}", newest.readable_from))
                    .with_hint(
                        "`shardify manifest --history` lists the versions; `vacuum --retain` keeps them longer, \
                     `manifest --tag` for good",
                    ))
            }
            Some(entry) => match latest {
                Some(latest) if latest.erasures.as_ref().is_some_and(|e| version < e.rewrote_before) => {
                    self.through_erasures(entry, latest)
                }
                _ => Ok(self.snapshot_of(entry, newest)),
            },
            None => Err(Error::usage(format!("there is no version {version}"))
                .at_location(self.store().location().to_string())
                .with_hint("`shardify manifest --history` lists the versions")),
        }
    }

    /// Returns the last version committed at or before an instant; `None` if the dataset is younger.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn version_at(&self, instant: Timestamp) -> Result<Option<Version>> {
        let Some(latest) = self.newest_snapshot()? else { return Ok(None) };
        let (mut low, mut high) = (0, latest.version().0);
        let past = self.past_entries(latest.entry(), Version(1))?;
        // Corrected commit times increase with versions, so a search by division finds the boundary; several entries
        // are requested at a time, because a round takes as long as one response.
        while low < high {
            let step = (high - low).div_ceil(PROBES);
            let probes: Vec<u64> = (1..=PROBES).map(|i| low + i * step).filter(|probe| *probe <= high).collect();
            let times = fetch::in_parallel(&probes, &|probe: &u64| {
                let known = past.get(&Version(*probe)).cloned();
                let entry = known.map_or_else(|| self.read_entry(Version(*probe)), Ok)?;
                Ok::<_, Error>(latest.committed_at(entry.version, entry.committed_at))
            });
            for (probe, time) in probes.into_iter().zip(times) {
                if time? > instant {
                    high = probe - 1;
                    break;
                }
                low = probe;
            }
            if step == 1 {
                break;
            }
        }
        Ok((low > 0).then_some(Version(low)))
    }

    /// Returns all entries of the log up to `newest`, oldest first.
    ///
    /// # Errors
    /// When an entry is missing or cannot be read.
    pub fn entries_up_to(&self, newest: Version) -> Result<Vec<Entry>> {
        self.entries_between(Version(1), newest)
    }

    /// Returns the entries of the log from `oldest` to `newest`, both included, oldest first.
    pub(in crate::dataset) fn entries_between(&self, oldest: Version, newest: Version) -> Result<Vec<Entry>> {
        if oldest > newest {
            return Ok(Vec::new());
        }
        let past = self.past_entries(&self.read_entry(newest)?, oldest)?;
        let versions: Vec<Version> = (oldest.0..=newest.0).map(Version).collect();
        let read = |version: &Version| past.get(version).cloned().map_or_else(|| self.read_entry(*version), Ok);
        for_each_waiting(self.store().as_ref(), SMALL, &versions, read)
    }

    /// Returns what the log keeps of versions from `oldest` on that have no entry any more, as a later entry says.
    pub(in crate::dataset) fn past_entries(&self, entry: &Entry, oldest: Version) -> Result<Past> {
        if oldest >= entry.readable_from {
            return Ok(Past::new());
        }
        let mut past = past::read(self.store(), &entry.history, oldest)?;
        entry.tags.values().for_each(|tagged| drop(past.remove(tagged)));
        Ok(past)
    }

    /// Returns the log entry of a version; of one that was vacuumed, what the log keeps of it.
    ///
    /// # Errors
    /// When it is missing or damaged, or the store fails.
    pub fn read_entry(&self, version: Version) -> Result<Entry> {
        self.find_entry(version)?.ok_or_else(|| {
            Error::integrity(format!("the log entry of version {version} is missing"))
                .at_location(self.store().location().join(&entry::entry_path(version)).to_string())
        })
    }

    /// Returns the log entry of a version, if there is one.
    ///
    /// # Errors
    /// When it is damaged, or the store fails.
    pub(in crate::dataset) fn find_entry(&self, version: Version) -> Result<Option<Entry>> {
        if let Some(entry) = entry::read(&self.cache, version)? {
            return Ok(Some(entry));
        }
        // A vacuum may have deleted it since whoever asks has seen it.
        match entry::newest_entry(&self.cache)? {
            Some(newest) if version.0 > 0 => Ok(self.past_entries(&newest, version)?.remove(&version)),
            _ => Ok(None),
        }
    }

    /// Returns the root in the log entry of a version, if it has one.
    ///
    /// # Errors
    /// When the entry cannot be read.
    pub fn root_of(&self, version: Version) -> Result<Option<Hash>> {
        Ok(self.find_entry(version)?.and_then(|entry| entry.root))
    }

    /// Whether a version after `since` abandons a run, because what it wrote may be deleted.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn is_abandoned(&self, run: &TransactionId, since: Version) -> Result<bool> {
        Ok(self.abandoned_by(run, since, self.open_newest()?.version())?.is_some())
    }

    /// Whether data that a run could read when it began with the snapshot `seen` has been taken away since: a vacuum
    /// expired versions or runs, an erasure from all versions removed records, or a version lost its tag.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn has_lost_data(&self, seen: Option<&Snapshot>) -> Result<bool> {
        let Some(now) = self.newest_snapshot()? else { return Ok(false) };
        let (then, since) = match seen {
            Some(seen) => (seen.newest.clone(), seen.newest.version),
            None => (Newest::default(), Version(0)),
        };
        let lost = now.newest.readable_from > then.readable_from.max(Version(1))
            || now.newest.rewrote_before > then.rewrote_before
            || then.tags.values().any(|tagged| !now.can_read(*tagged));
        Ok(lost || self.entries_between(since.next(), now.version())?.iter().any(|entry| !entry.abandoned.is_empty()))
    }

    /// Returns the last version that erased from all versions, if one has deleted or replaced this shard.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn erased_in(&self, shard: &str) -> Result<Option<Version>> {
        let Some(newest) = entry::newest_entry(&self.cache)? else { return Ok(None) };
        let replacements = Replacements::from_entry(self.store().as_ref(), &newest)?;
        let before = newest.erasures.as_ref().map(|erasures| erasures.rewrote_before);
        Ok(before.filter(|_| replacements.has_shard(shard)))
    }

    /// Returns the entry after `since`, up to `until`, that abandons a run.
    pub(in crate::dataset) fn abandoned_by(
        &self,
        run: &TransactionId,
        since: Version,
        until: Version,
    ) -> Result<Option<Entry>> {
        Ok(self.entries_between(since.next(), until)?.into_iter().find(|entry| entry.abandons(run)))
    }

    /// Returns the run that created a version.
    ///
    /// # Errors
    /// When the entry cannot be read.
    pub fn transaction_of(&self, version: Version) -> Result<TransactionId> {
        Ok(self.read_entry(version)?.transaction)
    }

    /// Ensures, once for each dataset, that its store is suitable: exactly one of several creators of an object must
    /// win.
    ///
    /// # Errors
    /// [`Kind::Storage`](crate::error::Kind::Storage) naming a store where several win.
    pub fn test_store(&self) -> Result<()> {
        store_test::test_conditional_create(self.store().as_ref())
    }

    /// Returns every object in the dataset's folder, sorted by path, and the places that cannot be listed: unreadable
    /// folders and names that are not UTF-8, which are never objects of a dataset.
    ///
    /// # Errors
    /// When the store fails.
    pub fn list_objects(&self) -> Result<(Vec<ObjectFacts>, Vec<String>)> {
        let (mut objects, mut unlisted) = (Vec::new(), Vec::new());
        self.store().walk_folder("", &mut |listed| {
            match listed {
                Listed::Object(facts) => objects.push(facts),
                Listed::FolderLink(_) => {}
                Listed::Fault(e) if is_below_system_folder(&e) => return Err(e),
                Listed::Fault(e) => unlisted.push(e.place().source.clone().unwrap_or_default()),
            }
            Ok(())
        })?;
        objects.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((objects, unlisted))
    }

    /// Returns the time, by the clock that dates the versions of this dataset.
    ///
    /// # Errors
    /// When the store fails.
    pub fn store_time(&self) -> Result<Timestamp> {
        self.store().current_time(&system_path("clock"))
    }

    /// Returns an object of the dataset.
    pub fn object_at(&self, path: &str, bytes: u64) -> Object {
        Object::new(Arc::clone(self.store()), path, bytes)
    }

    /// Returns an older version without what was erased from it since.
    fn through_erasures(&self, entry: Entry, latest: Entry) -> Result<Snapshot> {
        let newest = Newest::from_entry(&latest);
        let then = self.snapshot_of(entry, newest.clone());
        let latest = self.snapshot_of(latest, newest.clone());
        let view = erased::mapped_view(&then, &latest)?;
        let (shards, runs) = (OnceLock::from(view.shards), OnceLock::from(view.runs));
        let before = Some(Arc::new(BeforeErasures { then, replacements: view.replacements }));
        Ok(Snapshot { dataset: self.clone(), entry: view.entry, newest, shards, runs, before })
    }

    pub(in crate::dataset) fn snapshot_of(&self, entry: Entry, newest: Newest) -> Snapshot {
        Snapshot { dataset: self.clone(), entry, newest, shards: OnceLock::new(), runs: OnceLock::new(), before: None }
    }
}

/// Facts about all versions that only the newest entry has.
#[derive(Debug, Clone, Default)]
pub(in crate::dataset) struct Newest {
    pub(in crate::dataset) version: Version,
    /// Oldest version that can be read without a tag.
    pub(in crate::dataset) readable_from: Version,
    pub(in crate::dataset) tags: BTreeMap<String, Version>,
    /// Versions before this one are read without the records erased from all versions.
    pub(in crate::dataset) rewrote_before: Version,
}

impl Newest {
    pub(in crate::dataset) fn from_entry(entry: &Entry) -> Self {
        Self {
            version: entry.version,
            readable_from: entry.readable_from,
            tags: entry.tags.clone(),
            rewrote_before: entry.erasures.as_ref().map_or(Version(0), |erasures| erasures.rewrote_before),
        }
    }

    pub(in crate::dataset) fn can_read(&self, version: Version) -> bool {
        version >= self.readable_from || self.tags.values().any(|tagged| *tagged == version)
    }
}

/// The immutable state of a dataset at one version. Lists are read when first needed.
#[derive(Debug, Clone)]
pub struct Snapshot {
    dataset: Dataset,
    entry: Entry,
    newest: Newest,
    shards: OnceLock<Vec<ShardMeta>>,
    runs: OnceLock<RunTable>,
    /// What it was before erasures from all versions that came later.
    before: Option<Arc<BeforeErasures>>,
}

/// A version as it was committed, and what erasures have replaced since.
#[derive(Debug)]
pub(in crate::dataset) struct BeforeErasures {
    /// What the version's own lists say; the objects that they name may be gone.
    pub(in crate::dataset) then: Snapshot,
    pub(in crate::dataset) replacements: Replacements,
}

impl Snapshot {
    /// Returns the snapshot with other runs.
    #[cfg(test)]
    pub(in crate::dataset) fn with_runs(mut self, runs: RunTable) -> Self {
        self.runs = OnceLock::from(runs);
        self
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.entry.version
    }

    /// Returns the log entry.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns what the version was before erasures from all versions that came later.
    pub(in crate::dataset) fn before_erasures(&self) -> Option<&BeforeErasures> {
        self.before.as_deref()
    }

    /// Returns the root with which the version was committed, if it has one, also of one that an erasure has changed.
    pub fn committed_root(&self) -> Option<Hash> {
        self.before.as_ref().map_or(self.entry.root, |before| before.then.entry.root)
    }

    /// Returns the oldest version that can still be read without a tag, according to the newest version.
    pub fn readable_from(&self) -> Version {
        self.newest.readable_from
    }

    /// Returns the tagged versions, according to the newest version.
    pub fn tags(&self) -> &BTreeMap<String, Version> {
        &self.newest.tags
    }

    /// Returns the commit time of a version up to this one after the corrections known to this one; `committed_at` is
    /// the time in its own entry or in a list.
    pub fn committed_at(&self, version: Version, committed_at: Timestamp) -> Timestamp {
        corrected_time(&self.entry.corrections, version, committed_at)
    }

    /// Returns the paths of all shards of all readable versions, including those kept only by a tag.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn paths_in_use(&self) -> Result<HashSet<String>> {
        let mut out: HashSet<String> = self.run_table()?.as_slice().iter().map(|run| run.shard.clone()).collect();
        out.extend(self.live_shards()?.iter().map(|shard| shard.path.clone()));
        let alone: BTreeSet<Version> =
            self.newest.tags.values().copied().filter(|version| *version < self.newest.readable_from).collect();
        for version in alone {
            out.extend(self.dataset.open_version(version)?.live_shards()?.iter().map(|shard| shard.path.clone()));
        }
        Ok(out)
    }

    /// Whether data that could be read when this snapshot was opened has been taken away; see
    /// [`Dataset::has_lost_data`].
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn has_lost_data(&self) -> Result<bool> {
        self.dataset.has_lost_data(Some(self))
    }

    /// Whether a version can still be read, according to the newest version.
    pub fn can_read(&self, version: Version) -> bool {
        self.newest.can_read(version)
    }

    /// Returns the dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Returns the live shards in record order.
    ///
    /// # Errors
    /// If a list cannot be read or does not match the entry.
    pub fn live_shards(&self) -> Result<&[ShardMeta]> {
        if let Some(shards) = self.shards.get() {
            return Ok(shards);
        }
        let mut shards = self.read_lists(&self.entry.shards, shards::read)?;
        shards.sort_by(|a, b| (a.first_record, &a.path).cmp(&(b.first_record, &b.path)));
        let found = shards.iter().fold(Totals::default(), |sums, shard| Totals {
            shards: sums.shards + 1,
            records: sums.records + shard.records,
            bytes: sums.bytes + shard.bytes,
        });
        // What an erasure has replaced in an old version has fewer records than its entry states.
        let stated = if self.entry.root.is_some() {
            self.entry.totals
        } else {
            Totals { shards: self.entry.totals.shards, ..found }
        };
        if found != stated {
            return Err(Error::integrity(format!("expected {stated} in version {}, found {found}", self.version()))
                .at_location(self.dataset.store().location().to_string()));
        }
        Ok(self.shards.get_or_init(|| shards))
    }

    /// Returns the run table: the current and former positions of each record number in versions that can still be
    /// read.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn run_table(&self) -> Result<&RunTable> {
        if let Some(runs) = self.runs.get() {
            return Ok(runs);
        }
        let all = RunTable::new(self.read_lists(&self.entry.runs, runs::read)?);
        let vacuumed = self.newest.readable_from > self.entry.readable_from;
        let runs = if vacuumed { all.without_expired(self.newest.readable_from) } else { all };
        Ok(self.runs.get_or_init(|| runs))
    }

    /// Returns the runs of this version by shard, each in row order.
    ///
    /// # Errors
    /// If a list cannot be read, or the runs of a shard are not as many records as it has.
    pub fn runs_by_shard(&self) -> Result<BTreeMap<&str, Vec<&Run>>> {
        let runs = self.run_table()?.by_shard(self.version());
        for shard in self.live_shards()? {
            let listed = runs.get(shard.path.as_str()).into_iter().flatten();
            let found = listed.fold(0_u64, |sum, run| sum.saturating_add(run.records));
            if found != shard.records {
                let expected = shard.records;
                let message = format!("the log is damaged: expected numbers of {expected} records, found {found}");
                return Err(Error::integrity(message)
                    .at_location(self.dataset.store().location().join(&shard.path).to_string()));
            }
        }
        Ok(runs)
    }

    /// Returns every run of all time, including those of vacuumed versions.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn full_run_table(&self) -> Result<RunTable> {
        let mut runs = self.read_lists(&self.entry.runs, runs::read)?;
        runs.extend(self.read_lists(&self.entry.lineage, runs::read)?);
        Ok(RunTable::new(runs))
    }

    /// Passes every source that was converted into this dataset to `visit`, in bounded memory.
    ///
    /// # Errors
    /// If a list cannot be read, or `visit` fails.
    pub fn each_source(&self, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
        self.entry.sources.iter().try_for_each(|list| sources::read(self.dataset.store(), list, visit))
    }

    pub(in crate::dataset) fn read_lists<T: Send>(
        &self,
        lists: &[ListRef],
        read: impl Fn(&LogCache, &Sealed) -> Result<Vec<T>> + Sync,
    ) -> Result<Vec<T>> {
        let parts: Vec<Vec<T>> = fetch::in_parallel(lists, &|list: &ListRef| {
            let rows = read(&self.dataset.cache, &list.as_sealed())?;
            if rows.len() as u64 == list.rows {
                Ok(rows)
            } else {
                Err(Error::integrity(format!("expected {} rows, found {}", list.rows, rows.len()))
                    .at_location(self.dataset.store().location().join(&list.path).to_string()))
            }
        })
        .into_iter()
        .collect::<Result<_>>()?;
        Ok(parts.into_iter().flatten().collect())
    }
}

/// Whether a part of a dataset's own folder cannot be listed.
fn is_below_system_folder(fault: &Error) -> bool {
    let place = fault.place().source.as_deref().unwrap_or_default();
    place.split('/').any(|part| part == SYSTEM_FOLDER)
}
