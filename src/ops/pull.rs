//! `pull`: a checked copy of one version of a dataset in a local folder.
//!
//! ```text
//! _shardify/pull.json   the upstream dataset, and every file that no version of the copy refers to yet: written first
//! objects               each gets its name when it has arrived whole and matches upstream's checksum
//! lists, log entry      the commit: the copy has a new version
//! deletion              files of pull.json that no version refers to; then pull.json is cleared
//! ```
//!
//! A pull that is stopped anywhere leaves the version before, and whole files that the next pull keeps. As every file
//! is in `pull.json` before it is written, none is left that nobody knows: records that were erased upstream meanwhile
//! go with the files that hold them.

use std::{
    collections::{BTreeSet, HashSet},
    time::Instant,
};

use jiff::{SignedDuration, Timestamp};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Context, manifest};
use crate::{
    codec::seal::json_is_whole,
    dataset::{
        Dataset, Entry, Erasures, NewCopy, Part, Sealed, Snapshot, Totals, Upstream, commit_copy, copy_runs, data_of,
        encode_closed, lists_of, objects_of,
    },
    error::{Error, Result},
    events::Event,
    exec::fetch::{BYTES_OF_THREAD, Fetcher, Wanted},
    id::{TransactionId, Version},
    indexes::version::{PreparedIndexes, refresh_indexes, stale_indexes},
    storage::{Listed, Location, SYSTEM_FOLDER, checked_path},
};

/// Name of the lock of a copy, and of the object that says where it comes from.
const LOCK: &str = "pull";
const MARKER: &str = "_shardify/pull.json";
/// Version of the marker's format.
const MARKER_FORMAT: u32 = 1;
/// Objects in flight at most, from a remote store and from a local folder.
const REMOTE_THREADS: usize = 16;
const LOCAL_THREADS: usize = 4;
/// Time after which a staged file belongs to a command that was killed.
const STAGED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// What to pull.
#[derive(Debug, Clone, Default)]
pub struct PullOptions {
    /// The version; the newest by default.
    pub at: Option<String>,
    /// The splits of a divided dataset; empty for all.
    pub split: Vec<String>,
    /// Whether only shards and what readers need of them is copied.
    pub data_only: bool,
    /// Whether older versions of the copy are deleted.
    pub prune: bool,
}

/// Report of `pull`.
#[derive(Debug, Clone, Serialize)]
pub struct PullReport {
    /// The upstream dataset.
    pub upstream: String,
    /// The version of the upstream dataset.
    pub upstream_version: Version,
    /// The splits that were pulled; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<String>,
    /// The copy.
    pub copy: String,
    /// The version of the copy; absent with `--data-only`.
    pub version: Option<Version>,
    /// Whether the copy had this version of the upstream dataset already.
    pub unchanged: bool,
    /// Live shards.
    pub shards: u64,
    /// Live records.
    pub records: u64,
    /// Files of the copy's version, without its own lists and log.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were fetched.
    pub files_fetched: u64,
    /// Their bytes.
    pub bytes_fetched: u64,
    /// Files that were there already.
    pub files_kept: u64,
    /// Their bytes.
    pub bytes_kept: u64,
    /// Files deleted because no version of the copy needs them.
    pub files_deleted: u64,
    /// Files of older versions, shards above all, that stay beside those of the pulled version.
    pub files_older: u64,
    /// Erasures of the upstream dataset since the last pull.
    pub erasures: u64,
    /// Whether older versions of the copy were deleted.
    pub pruned: bool,
    /// Time taken.
    pub seconds: f64,
}

/// What a folder is a copy of, and what a pull has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    format: u32,
    /// Location of the upstream dataset without secrets.
    upstream: String,
    /// Transaction of its first version.
    upstream_id: TransactionId,
    data_only: bool,
    /// Version of the upstream dataset that the folder has, if it holds data only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
    /// Files that pulls have written or are about to write, and that no version of the copy refers to yet. With data
    /// only: all files.
    files: BTreeSet<String>,
}

/// Copies a version of a dataset into a local folder.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the folder holds something else;
/// [`Kind::Integrity`](crate::error::Kind::Integrity) naming an upstream object that does not match its checksum;
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another pull writes to the folder.
pub fn pull_version(
    context: &Context<'_>,
    upstream: &Location,
    dir: &Location,
    options: &PullOptions,
) -> Result<PullReport> {
    let started = Instant::now();
    if dir.local_path().is_none() {
        return Err(Error::usage("expected a local folder to pull into, found a URL").at_location(dir.to_string()));
    }
    if dir.relative_to(upstream).is_some() || upstream.relative_to(dir).is_some() {
        return Err(Error::usage("expected a folder outside of the dataset to pull into")
            .at_location(dir.to_string())
            .with_hint("name a new folder"));
    }
    let snapshot = manifest::open_snapshot(context, upstream, options.at.as_deref())?;
    let newest = snapshot.dataset().open_newest()?;
    let from = Upstream::from_snapshot(&snapshot)?;
    let part = Part::from_names(&snapshot, &options.split)?;
    let copy = context.open_dataset(dir)?;
    if let Err(error) = check_folder(&copy, &from, options) {
        // Another pull may have begun since the record was looked for; then the lock, and the check behind it, decide.
        if copy.store().get(MARKER)?.is_none() {
            return Err(error);
        }
    }
    let _lock = copy.store().acquire_lock(LOCK)?;
    let (marker, parent) = check_folder(&copy, &from, options)?;
    // Nothing but pulls writes to a folder without a log.
    delete_staged(&copy, if options.data_only { SignedDuration::ZERO } else { STAGED_FOR })?;
    let pull = Pull { context, snapshot: &snapshot, part, newest: &newest, from, copy: &copy, options };
    let report = super::or_overtaken(Some(&snapshot), pull.run(marker, parent.as_ref()))?;
    Ok(PullReport { seconds: started.elapsed().as_secs_f64(), ..report })
}

/// Returns what an earlier pull has left in the folder, and its newest version; fails if it holds anything but a copy
/// of the upstream dataset.
fn check_folder(copy: &Dataset, from: &Upstream, options: &PullOptions) -> Result<(Marker, Option<Snapshot>)> {
    let place = copy.store().location().to_string();
    let Some(bytes) = copy.store().get(MARKER)? else {
        if copy.newest_snapshot()?.is_some() {
            return Err(Error::usage("expected an empty folder or a copy, found a dataset that was not pulled")
                .at_location(place)
                .with_hint("pull into another folder"));
        }
        refuse_files(copy)?;
        let marker = Marker {
            format: MARKER_FORMAT,
            upstream: from.place.clone(),
            upstream_id: from.id.clone(),
            data_only: options.data_only,
            version: None,
            files: BTreeSet::new(),
        };
        return Ok((marker, None));
    };
    let damaged = || {
        Error::integrity("the file that says where the copy comes from is damaged")
            .at_location(format!("{place}/{MARKER}"))
    };
    if json_is_whole(&bytes) != Some(true) {
        return Err(damaged().with_hint("pull into another folder, and delete this one"));
    }
    let marker: Marker = serde_json::from_slice(&bytes)
        .map_err(|e| damaged().with_cause(e).with_hint("pull into another folder, and delete this one"))?;
    if marker.format > MARKER_FORMAT {
        return Err(Error::usage("the copy was made by a newer release")
            .at_location(place)
            .with_hint("use that release"));
    }
    if marker.upstream_id != from.id {
        return Err(Error::usage(format!("expected a copy of {}, found one of {}", from.place, marker.upstream))
            .at_location(place)
            .with_hint("pull into another folder"));
    }
    if marker.data_only != options.data_only {
        let (with, without) = if marker.data_only { ("with", "without") } else { ("without", "with") };
        return Err(Error::usage(format!("this folder was pulled {with} --data-only"))
            .at_location(place)
            .with_hint(format!("pull {without} --data-only into another folder")));
    }
    for path in &marker.files {
        // What the record names may be deleted.
        checked_path(path).map_err(|_| damaged())?;
    }
    let parent = copy.newest_snapshot()?;
    if let Some(parent) = &parent {
        let changed = copy.entries_up_to(parent.version())?.into_iter().find(|e| !e.operation.keeps_a_copy());
        if let Some(entry) = changed {
            return Err(Error::usage(format!(
                "the copy is a dataset of its own since {} ({})",
                entry.version, entry.operation
            ))
            .at_location(place)
            .with_hint("pull into another folder"));
        }
    }
    Ok((marker, parent))
}

/// Deletes what pulls that were killed have left half-written and nobody has touched for so long.
fn delete_staged(copy: &Dataset, since: SignedDuration) -> Result<()> {
    let old = copy.store_time()?.checked_sub(since).unwrap_or(Timestamp::MIN);
    let staged = copy.store().list_folder(&format!("{SYSTEM_FOLDER}/staging"))?;
    staged.iter().filter(|facts| facts.modified <= old).try_for_each(|facts| copy.store().delete(&facts.path))
}

/// Fails if the folder of a first pull has files.
fn refuse_files(copy: &Dataset) -> Result<()> {
    let own = ["locks/", "staging/"].map(|folder| format!("{SYSTEM_FOLDER}/{folder}"));
    copy.store().walk_folder("", &mut |listed| match listed {
        // Left by a pull that was killed before it wrote anything.
        Listed::Object(facts) if own.iter().any(|folder| facts.path.starts_with(folder)) => Ok(()),
        Listed::Object(facts) => {
            Err(Error::usage(format!("expected an empty folder to pull into, found the file `{}`", facts.path))
                .at_location(copy.store().location().to_string())
                .with_hint("pull into another folder"))
        }
        Listed::FolderLink(path) => {
            Err(Error::usage(format!("expected an empty folder to pull into, found the link `{path}`"))
                .at_location(copy.store().location().to_string()))
        }
        Listed::Fault(error) => Err(error),
    })
}

struct Pull<'a> {
    context: &'a Context<'a>,
    snapshot: &'a Snapshot,
    /// The part of it that is copied.
    part: Part,
    /// The newest snapshot of the upstream dataset, which knows all erasures.
    newest: &'a Snapshot,
    from: Upstream,
    copy: &'a Dataset,
    options: &'a PullOptions,
}

/// Files of a version, by what has to be done.
#[derive(Default)]
struct PullFiles {
    paths: BTreeSet<String>,
    bytes: u64,
    missing: Vec<Wanted>,
    kept: u64,
    bytes_kept: u64,
}

impl Pull<'_> {
    fn run(&self, mut marker: Marker, parent: Option<&Snapshot>) -> Result<PullReport> {
        let count = |erasures: &Option<Erasures>| erasures.as_ref().map_or(0, |erasures| erasures.count);
        let known = parent.map_or(0, |parent| count(&parent.entry().erasures));
        let erased = if parent.is_some() { count(&self.newest.entry().erasures).saturating_sub(known) } else { 0 };
        if erased > 0 {
            // Half-written files may hold the erased records. Whoever still writes one, such as a tag, has to begin
            // again.
            delete_staged(self.copy, SignedDuration::ZERO)?;
        }
        let named = parent.map(|parent| self.files_of_versions(parent)).transpose()?.unwrap_or_default();
        let files = self.compare_files(&marker, &named)?;
        let is_same = parent.is_some_and(|parent| {
            let last = self.last_pull(parent).ok().flatten();
            let mut tags = self.snapshot.tags().iter().filter(|(_, tagged)| **tagged == self.from.version);
            last.is_some_and(|(last, part)| last.transaction == self.from.transaction && part == self.part)
                && tags.all(|(name, _)| parent.tags().contains_key(name))
        });
        let expires = parent.is_some_and(|parent| {
            let first = parent.readable_from().0.max(1);
            let has_older = parent.version().0 > first || parent.tags().values().any(|tagged| tagged.0 < first);
            erased > 0 || self.options.prune && (has_older || !is_same)
        });
        let commits = !self.options.data_only && (!is_same || expires);
        // Everything that may have to be deleted later is on record before anything changes.
        let before = marker.clone();
        marker.files.extend(files.missing.iter().map(|wanted| wanted.object.path.clone()));
        if commits || self.options.data_only {
            marker.files.extend(files.paths.iter().cloned());
        }
        if expires {
            marker.files.extend(named.iter().cloned());
        }
        if marker != before || self.copy.store().head(MARKER)?.is_none() {
            self.write(&marker)?;
        }
        let is_older = |path: &&String| !files.paths.contains(*path) && !path.starts_with(SYSTEM_FOLDER);
        let older = if expires { 0 } else { named.iter().filter(is_older).count() as u64 };
        let (fetched, bytes_fetched) = (files.missing.len() as u64, files.missing.iter().map(|w| w.bytes).sum());
        self.fetch_files(files.missing)?;
        let version = if commits { Some(self.commit_pull(parent, expires)?) } else { parent.cloned() };
        if let Some(version) = &version {
            self.complete_version(version, commits)?;
        }
        let deleted = self.delete_unneeded(&mut marker, &files.paths, version.as_ref())?;
        let Totals { shards, records, .. } = self.part.totals_in(self.snapshot)?;
        Ok(PullReport {
            upstream: self.from.place.clone(),
            upstream_version: self.from.version,
            split: self.part.split_names(),
            copy: self.copy.store().location().to_string(),
            version: version.as_ref().map(Snapshot::version),
            unchanged: fetched == 0 && !commits && deleted == 0,
            shards,
            records,
            files: files.paths.len() as u64,
            bytes: files.bytes,
            files_fetched: fetched,
            bytes_fetched,
            files_kept: files.kept,
            bytes_kept: files.bytes_kept,
            files_deleted: deleted,
            files_older: older,
            erasures: erased,
            pruned: expires,
            seconds: 0.0,
        })
    }

    /// Brings what belongs to a version of the copy, but is in no entry: indexes for training tools and training runs.
    fn complete_version(&self, version: &Snapshot, is_new: bool) -> Result<()> {
        if is_new || !stale_indexes(version)?.is_empty() {
            refresh_indexes(version, PreparedIndexes::default(), self.context.observer)?;
        }
        if self.options.data_only {
            return Ok(());
        }
        copy_runs(self.snapshot.dataset(), version, &self.part.split_names())
    }

    /// Returns where the newest version of the copy was pulled from, and the part.
    fn last_pull(&self, parent: &Snapshot) -> Result<Option<(Upstream, Part)>> {
        let history = self.copy.entries_up_to(parent.version())?;
        let pulled = |entry: &Entry| Some((Upstream::from_entry(entry)?, Part::from_entry(entry)));
        Ok(history.iter().rev().find_map(pulled))
    }

    /// Compares the files of the version with those of the copy, whose versions name some.
    fn compare_files(&self, marker: &Marker, named: &HashSet<String>) -> Result<PullFiles> {
        let store = self.copy.store();
        let objects = self.objects_to_copy()?;
        let look = |object: Sealed| -> Result<(Wanted, bool)> {
            self.context.cancel.check()?;
            let bytes = object.seal.bytes;
            let found = store.head(&object.path)?;
            if found.is_some() && !marker.files.contains(&object.path) && !named.contains(&object.path) {
                return Err(Error::usage(
                    "expected no file of this name in the copy, found one that no pull has written",
                )
                .at_location(store.location().join(&object.path).to_string())
                .with_hint("move it away, and pull again"));
            }
            let is_there = found.as_ref().is_some_and(|facts| facts.bytes == bytes);
            Ok((Wanted { object, bytes, replaces: found.is_some() }, is_there))
        };
        let looked: Vec<(Wanted, bool)> = objects.into_par_iter().map(look).collect::<Result<_>>()?;
        let mut files = PullFiles::default();
        for (wanted, is_there) in looked {
            files.paths.insert(wanted.object.path.clone());
            files.bytes += wanted.bytes;
            if is_there {
                files.kept += 1;
                files.bytes_kept += wanted.bytes;
            } else {
                files.missing.push(wanted);
            }
        }
        Ok(files)
    }

    /// Returns the objects to be copied.
    fn objects_to_copy(&self) -> Result<Vec<Sealed>> {
        let data_only = self.options.data_only;
        let of = if data_only { data_of } else { objects_of };
        let mut objects = of(self.snapshot, &self.part)?;
        let system = format!("{SYSTEM_FOLDER}/");
        let copied = ["sidecar/", "index/"].map(|folder| format!("{system}{folder}"));
        let other = |path: &str| path.starts_with(&system) && !copied.iter().any(|folder| path.starts_with(folder));
        if let Some(object) = objects.iter().find(|object| other(&object.path)) {
            // A copy must not take a log, a lock or a list from elsewhere.
            return Err(Error::integrity(
                "expected a shard, a sidecar or a part of the id index, found another object",
            )
            .at_location(self.snapshot.dataset().store().location().join(&object.path).to_string()));
        }
        if data_only {
            objects.retain(|object| !object.path.starts_with(&system));
        }
        Ok(objects)
    }

    fn fetch_files(&self, missing: Vec<Wanted>) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let from = self.snapshot.dataset().store();
        let most = if from.location().local_path().is_some() { LOCAL_THREADS } else { REMOTE_THREADS };
        let fit = usize::try_from(self.context.memory.0 / BYTES_OF_THREAD).unwrap_or(most);
        let bytes = missing.iter().map(|wanted| wanted.bytes).sum();
        self.context.observer.event(Event::Phase { name: "pulling", bytes: Some(bytes) });
        let fetcher = Fetcher {
            from,
            to: self.copy.store(),
            threads: most.min(fit).min(missing.len()).max(1),
            observer: self.context.observer,
            cancel: &self.context.cancel,
        };
        fetcher.fetch_objects(missing)
    }

    fn commit_pull(&self, parent: Option<&Snapshot>, expires: bool) -> Result<Snapshot> {
        self.context.cancel.check()?;
        let new = NewCopy {
            of: self.snapshot,
            part: &self.part,
            upstream: &self.from,
            newest: self.newest.entry(),
            expires,
            planned_on: parent.map_or(Version(0), Snapshot::version),
        };
        commit_copy(self.copy, &new)
    }

    /// Returns the files of all readable versions of the copy, their lists included.
    fn files_of_versions(&self, newest: &Snapshot) -> Result<HashSet<String>> {
        let mut out = HashSet::new();
        let first = newest.readable_from().0.max(1);
        let tagged = newest.tags().values().copied().filter(|version| version.0 < first);
        for version in (first..=newest.version().0).map(Version).chain(tagged) {
            let snapshot = self.copy.open_version(version)?;
            out.extend(objects_of(&snapshot, &Part::default())?.into_iter().map(|object| object.path));
            out.extend(lists_of(snapshot.entry()));
        }
        Ok(out)
    }

    /// Deletes the files on record that no version needs, and clears the record.
    fn delete_unneeded(
        &self,
        marker: &mut Marker,
        needed: &BTreeSet<String>,
        version: Option<&Snapshot>,
    ) -> Result<u64> {
        let before = marker.clone();
        let mut unneeded: Vec<String> = marker.files.difference(needed).cloned().collect();
        if let (Some(version), false) = (version, unneeded.is_empty()) {
            let named = self.files_of_versions(version)?;
            unneeded.retain(|path| !named.contains(path));
        }
        let store = self.copy.store();
        let mut deleted = Vec::new();
        for path in unneeded {
            if store.head(&path)?.is_some() {
                store.delete(&path)?;
                deleted.push(path);
            }
        }
        store.settle_deletions(&deleted)?;
        marker.files = if self.options.data_only { needed.clone() } else { BTreeSet::new() };
        marker.version = self.options.data_only.then_some(self.from.version);
        marker.upstream.clone_from(&self.from.place);
        if *marker != before {
            self.write(marker)?;
        }
        Ok(deleted.len() as u64)
    }

    fn write(&self, marker: &Marker) -> Result<()> {
        self.copy.store().put(MARKER, encode_closed(marker, "the record of a pull")?.into())
    }
}
