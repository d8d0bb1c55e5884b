//! Objects that no retained version needs, which `vacuum` may delete, and the log entry that precedes their deletion.
//!
//! ```text
//! versions    1    2    3 | 4    5          retained: current at some time since the cutoff, leased, or tagged
//!             expired     | retained        an object stays while one of these refers to it
//! ```
//!
//! An object is deleted only if a log entry named it and no retained version does, or if the run that wrote it can
//! never commit. For that, an entry is committed before the first deletion. It states which versions expire, and which
//! runs are *abandoned*: before it commits, a run checks that no entry since its start has abandoned it. So correctness
//! depends on neither clocks nor locks; they only suggest what is worth deleting. After the entry, the log is read
//! again for commits made in the meantime.
//!
//! | object | written by |
//! |---|---|
//! | named by the lists of a version that expires, or has expired | that version |
//! | its path is in an intent, or below `_shardify/` and contains a tag or transaction | that run |
//! | in `_shardify/staging/` | a run that can no longer commit it |
//! | anything else | the user: it is reported and kept |

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;

use super::sign;
use crate::{
    dataset::{
        erasure::unfinished::leftovers_among,
        index::places::PlaceRef,
        log::{
            commit::{Next, entry_after, until_created},
            entry::{self, Entry},
            erased::Replacements,
            operation::Operation,
            past,
            publication::Intent,
            runs::{self, Run, RunTable},
            shards::{self, ShardMeta},
            snapshot::{Dataset, Snapshot},
        },
        table::{
            self, growth,
            list::ListRef,
            paths::{
                self, describes_folder, folder_prefix, index_stem, is_own_folder, shard_stem, system_path, table_path,
            },
            sealed::Sealed,
        },
    },
    error::{Error, Result},
    format::index::IndexKind,
    id::{TransactionId, Version, run_of_folder, run_of_name},
    record::clutter::is_sign,
    storage::{ObjectFacts, SMALL, SYSTEM_FOLDER, for_each_waiting},
};

/// The role of an object in a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// A shard.
    Shard,
    /// An index beside a shard, for training tools.
    ShardIndex,
    /// A sidecar.
    Sidecar,
    /// Written by a run that never published it.
    Staging,
    /// Rejected records of a run.
    Rejects,
    /// A bucket of the id index.
    IdIndex,
    /// A list. An interrupted vacuum finds the shards through lists, so lists are deleted after shards.
    List,
    /// A plan, or the outcome of one of its tasks.
    Plan,
    /// An intent or a lease of a run. It is deleted after all objects that it names.
    Intent,
    /// The entry of a version whose objects are deleted: the last that is left of it, but for a row of the history.
    Entry,
}

impl ObjectKind {
    /// Returns the kind's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::ShardIndex => "shard-index",
            Self::Sidecar => "sidecar",
            Self::Staging => "staging",
            Self::Rejects => "rejects",
            Self::IdIndex => "id-index",
            Self::List => "list",
            Self::Plan => "plan",
            Self::Intent => "intent",
            Self::Entry => "entry",
        }
    }
}

/// What to keep.
#[derive(Debug, Clone, Default)]
pub struct Retention {
    /// Versions that were current at or after this instant are kept, and so are objects written since.
    pub cutoff: Timestamp,
    /// Tags of runs that are known to be active.
    pub active: HashSet<String>,
    /// Whether a command may be active whose lock names no run, so that staged objects may be its own.
    pub unknown_active: bool,
    /// Oldest version that a run has leased.
    pub leased: Option<Version>,
}

/// An object that no retained version needs.
#[derive(Debug, Clone)]
pub struct DeletableObject {
    /// The object as it was listed.
    pub facts: ObjectFacts,
    /// Its kind.
    pub kind: ObjectKind,
    /// Whether a committed version referred to it; if not, it belongs to a run that did not finish, or not yet.
    pub committed: bool,
    /// Tag of the run that wrote it, if its path or an intent reveals it.
    pub run: Option<String>,
    /// BLAKE3 that its bytes must have: the file is at a user's path and may have been replaced.
    pub checksum: Option<[u8; 32]>,
}

/// The objects to delete.
#[derive(Debug)]
pub struct Unreferenced {
    /// The newest version looked at.
    pub version: Version,
    /// The oldest version that is retained.
    pub oldest_retained: Version,
    /// Versions past the retention that are kept because they are tagged.
    pub tagged: Vec<Version>,
    /// Number of versions that become unreadable.
    pub versions_expired: u64,
    /// Tags of runs that must be abandoned before anything is deleted.
    pub abandoned: BTreeSet<String>,
    /// Objects that may be deleted, in the order of deletion.
    pub objects: Vec<DeletableObject>,
    /// Number of unreferenced objects younger than the cutoff.
    pub young: u64,
    /// Number of unreferenced objects that an active run may need.
    pub in_use: u64,
    /// Files that shardify did not write.
    pub foreign: Vec<String>,
    /// Places that cannot be listed: unreadable folders, names that are not UTF-8. They are left alone.
    pub unlisted: Vec<String>,
    /// Whether versions that expire now would lose objects.
    loses: bool,
    /// Lists of the history that only versions which expire now name. They are no reason for these to expire, or each
    /// vacuum would be one for the next.
    histories: Vec<DeletableObject>,
}

impl Unreferenced {
    /// Whether an entry must be committed before anything is deleted.
    pub fn needs_entry(&self) -> bool {
        self.versions_expired > 0 || !self.abandoned.is_empty()
    }
}

/// Finds everything that no retained version refers to.
///
/// # Errors
/// When the log or a list cannot be read; then nothing may be deleted.
pub fn find_unreferenced(dataset: &Dataset, retention: &Retention) -> Result<Unreferenced> {
    let (listing, unlisted) = dataset.list_objects()?;
    let snapshot = dataset.open_newest()?;
    let newest = snapshot.entry();
    let readable = Version(newest.readable_from.0.max(1));
    let (gone, entries) = entries_left(&snapshot, readable, &listing)?;
    let expired = oldest_retained(&snapshot, &entries, retention);
    let (now, retained) = entries.split_at(entries.partition_point(|entry| entry.version < expired));
    let mut tagged: Vec<Version> = snapshot.tags().values().copied().filter(|v| *v < expired).collect();
    tagged.sort_unstable();
    tagged.dedup();
    let mut retained = retained.to_vec();
    for version in &tagged {
        retained.push(dataset.read_entry(*version)?);
    }
    let untagged = |entry: &&Entry| !tagged.contains(&entry.version);
    let now: Vec<Entry> = now.iter().filter(untagged).cloned().collect();
    let before: Vec<Entry> = gone.iter().filter(untagged).cloned().collect();
    let replacements = Replacements::from_entry(dataset.store().as_ref(), newest)?;
    let must_go = leftovers_among(&snapshot, listing.iter().map(|facts| facts.path.as_str()))?;
    let must_go: HashMap<String, Option<[u8; 32]>> =
        must_go.into_iter().map(|object| (object.path, object.blake3)).collect();
    let kept = References::from_entries(dataset, &retained)?.with_replacements(&replacements);
    let there: HashSet<&str> = listing.iter().map(|facts| facts.path.as_str()).collect();
    // Objects that erasures wrote for versions that have expired since are named only by the newest entry.
    let expired_before = References::from_expired(dataset, &before, Some(&there))?.with_all_replacements(&replacements);
    let expiring = References::from_entries(dataset, &now)?.with_replacements(&replacements);
    let intents = Intents::read(dataset, &listing)?;
    let mut out = Unreferenced {
        histories: Vec::new(),
        version: snapshot.version(),
        oldest_retained: expired,
        tagged,
        versions_expired: now.len() as u64,
        abandoned: BTreeSet::new(),
        objects: Vec::new(),
        young: 0,
        in_use: 0,
        foreign: Vec::new(),
        unlisted,
        loses: false,
    };
    let past = dataset.past_entries(newest, Version(1))?;
    let all = past.values().chain(&gone).chain(&entries);
    let committed = all.map(|entry| entry.transaction.short_tag().to_owned()).collect();
    let known = KnownReferences { kept, expired_before, expiring, must_go, intents, committed };
    let (logged, listing): (Vec<ObjectFacts>, Vec<ObjectFacts>) =
        listing.into_iter().partition(|facts| entry::version_of(&facts.path).is_some());
    out.add_signs(&snapshot, &listing, &known)?;
    listing.into_iter().for_each(|facts| out.add_object(facts, &known, retention));
    if out.loses {
        out.objects.append(&mut out.histories);
    } else {
        out.versions_expired = 0;
    }
    // Of these the log keeps a row, or will before anything is deleted.
    let kept: u64 = newest.history.iter().map(|list| list.rows).sum();
    let oldest = if out.versions_expired > 0 { expired } else { readable.min(Version(kept + 1)) };
    out.add_entries(logged, oldest);
    out.objects.sort_by(|a, b| (a.kind, &a.facts.path).cmp(&(b.kind, &b.facts.path)));
    Ok(out)
}

/// Returns the entries that are left of versions before `readable`, and those of the others. Where something is left of
/// an expired version, because a vacuum was interrupted or the version had a tag, its entry is there and names it.
fn entries_left(snapshot: &Snapshot, readable: Version, listing: &[ObjectFacts]) -> Result<(Vec<Entry>, Vec<Entry>)> {
    let dataset = snapshot.dataset();
    let logged = listing.iter().filter_map(|facts| entry::version_of(&facts.path));
    let mut gone: Vec<Version> = logged.filter(|version| *version < readable).collect();
    gone.sort_unstable();
    let read = |version: &Version| dataset.read_entry(*version);
    let gone = for_each_waiting(dataset.store().as_ref(), SMALL, &gone, read)?;
    Ok((gone, dataset.entries_between(readable, snapshot.version())?))
}

/// References to the objects of a dataset.
struct KnownReferences {
    /// Objects that retained versions refer to.
    kept: References,
    /// Objects that earlier expired versions refer to, and those that erasures wrote.
    expired_before: References,
    /// Objects that versions expiring now refer to.
    expiring: References,
    /// Objects that interrupted erasures have left to delete, with the checksums that users' files must have.
    must_go: HashMap<String, Option<[u8; 32]>>,
    intents: Intents,
    /// Tags of runs that have committed, among those whose entries are read.
    committed: HashSet<String>,
}

impl Unreferenced {
    /// Adds an object, unless a retained version needs it.
    fn add_object(&mut self, facts: ObjectFacts, known: &KnownReferences, retention: &Retention) {
        let path = facts.path.as_str();
        // An object that an erasure replaced is named by old entries, but no longer used by any version.
        let erased = known.must_go.get(path).map(|checksum| (ObjectKind::Shard, *checksum));
        if erased.is_none() && known.kept.may_need(path) {
            return;
        }
        let place = kind_of(path);
        let (before, now) = (known.expired_before.named_kind(path), known.expiring.named_kind(path));
        let is_history = before.is_none() && now.is_some() && is_history(path);
        self.loses |= now.is_some() && place != PathClass::System(ObjectKind::Rejects) && !is_history;
        let Some(named) = before.or(now).or(erased) else {
            return self.add_uncommitted(facts, place, known, retention);
        };
        let (kind, checksum) = if let PathClass::System(kind) = place { (kind, None) } else { named };
        let found = if is_history { &mut self.histories } else { &mut self.objects };
        found.push(DeletableObject { facts, kind, committed: true, run: None, checksum });
    }

    /// Adds the entries of versions before `oldest` that have no tag.
    fn add_entries(&mut self, entries: Vec<ObjectFacts>, oldest: Version) {
        let past = entries.into_iter().filter(|facts| {
            entry::version_of(&facts.path).is_some_and(|version| version < oldest && !self.tagged.contains(&version))
        });
        let deletable =
            |facts| DeletableObject { facts, kind: ObjectKind::Entry, committed: true, run: None, checksum: None };
        self.objects.extend(past.map(deletable).collect::<Vec<_>>());
    }

    /// Adds the signs beside older shards, if a vacuum leaves none of these.
    fn add_signs(&mut self, snapshot: &Snapshot, listing: &[ObjectFacts], known: &KnownReferences) -> Result<()> {
        let signs: Vec<&ObjectFacts> = listing.iter().filter(|facts| is_sign(&facts.path)).collect();
        if signs.is_empty() {
            return Ok(());
        }
        let live: HashSet<&str> = snapshot.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
        // What erasures wrote for older versions is kept as an object.
        let is_table = |path: &str| path.ends_with(".parquet") && !path.starts_with(SYSTEM_FOLDER) && !is_sign(path);
        let is_older = |path: &str| is_table(path) && known.kept.may_need(path) && !live.contains(path);
        if !listing.iter().any(|facts| is_older(&facts.path)) {
            for facts in signs {
                let checksum = Some(*blake3::hash(&sign::content_of(&facts.path)?).as_bytes());
                let (facts, kind) = (facts.clone(), ObjectKind::ShardIndex);
                self.objects.push(DeletableObject { facts, kind, committed: false, run: None, checksum });
            }
        }
        Ok(())
    }

    /// Adds an object that no entry names.
    fn add_uncommitted(
        &mut self,
        facts: ObjectFacts,
        place: PathClass,
        known: &KnownReferences,
        retention: &Retention,
    ) {
        let intended = known.intents.intending_run(&facts.path);
        let (kind, run) = match (place, intended) {
            (PathClass::Permanent, _) => return,
            (PathClass::Outside, None) => return self.foreign.push(facts.path),
            (PathClass::Outside, Some(run)) => (kind_outside(&facts.path), Some(run.to_owned())),
            (PathClass::System(kind), None) if kind != ObjectKind::Staging && run_of(&facts.path).is_none() => {
                return self.foreign.push(facts.path);
            }
            (PathClass::System(kind), run) => (kind, run.or_else(|| run_of(&facts.path)).map(str::to_owned)),
        };
        let is_active = match &run {
            Some(run) => retention.active.contains(run),
            None => retention.unknown_active || !retention.active.is_empty(),
        };
        if is_active {
            self.in_use += 1;
        } else if facts.modified >= retention.cutoff {
            self.young += 1;
        } else {
            // What a run has left beside what it has committed is no reason to void it.
            self.abandoned.extend(run.clone().filter(|run| !known.committed.contains(run)));
            self.objects.push(DeletableObject { facts, kind, committed: false, run, checksum: None });
        }
    }
}

/// Returns the oldest retained version among the readable versions, whose entries are given.
fn oldest_retained(snapshot: &Snapshot, readable: &[Entry], retention: &Retention) -> Version {
    let time = |entry: &Entry| snapshot.committed_at(entry.version, entry.committed_at);
    let current = readable.iter().rev().find(|entry| time(entry) <= retention.cutoff).or(readable.first());
    let current = current.map_or(snapshot.version(), |entry| entry.version);
    let oldest = readable.first().map_or(current, |entry| entry.version);
    retention.leased.map_or(current, |leased| current.min(leased.max(oldest)))
}

/// Removes objects that, according to the current log, must not be deleted: those of versions committed since.
///
/// # Errors
/// When the log or a list cannot be read; then nothing may be deleted.
pub fn retain_deletable(dataset: &Dataset, found: &mut Unreferenced) -> Result<()> {
    let newest = dataset.open_newest()?;
    if newest.version() == found.version {
        return Ok(());
    }
    let entries = dataset.entries_between(found.version.next(), newest.version())?;
    // Other vacuums may have deleted the lists of versions that have expired since.
    let readable: Vec<Entry> = entries.iter().filter(|entry| newest.can_read(entry.version)).cloned().collect();
    let needed = References::from_entries(dataset, &readable)?;
    let committed: HashSet<&str> = entries.iter().map(|entry| entry.transaction.short_tag()).collect();
    let names = |object: &DeletableObject| object.run.as_deref().is_some_and(|run| committed.contains(run));
    found.objects.retain(|object| !needed.may_need(&object.facts.path) && !names(object));
    Ok(())
}

/// Paths that runs were about to publish.
#[derive(Debug, Default)]
struct Intents {
    /// Tags of runs by path.
    runs: HashMap<String, String>,
}

impl Intents {
    fn read(dataset: &Dataset, listing: &[ObjectFacts]) -> Result<Self> {
        let folder = system_path("intents/");
        let paths: Vec<&str> = listing.iter().map(|f| f.path.as_str()).filter(|p| p.starts_with(&folder)).collect();
        let store = dataset.store().as_ref();
        let read = |path: &&str| Intent::read(store, path).map_err(|e| e.with_hint("nothing was deleted"));
        let intents = for_each_waiting(store, SMALL, &paths, read)?;
        let mut out = Self::default();
        for intent in intents.into_iter().flatten() {
            let tag = intent.transaction.short_tag().to_owned();
            out.runs.extend(intent.paths.into_iter().map(|path| (path, tag.clone())));
        }
        Ok(out)
    }

    /// Returns the run that was about to publish an object.
    fn intending_run(&self, path: &str) -> Option<&str> {
        self.runs.get(path).map(String::as_str)
    }
}

/// Objects that some entries refer to.
#[derive(Debug, Default)]
struct References {
    /// Lists, segments, sidecars and others below `_shardify/`.
    objects: HashSet<String>,
    /// Shards, with the BLAKE3 of those at users' paths.
    shards: HashMap<String, Option<[u8; 32]>>,
    /// Objects beside shards that describe them, as far as shardify writes them.
    beside: HashSet<String>,
    /// Paths of shards without their extensions, which indexes beside them share.
    stems: HashSet<String>,
    /// Folders of shards, with a trailing slash.
    folders: HashSet<String>,
}

impl References {
    fn from_entries(dataset: &Dataset, entries: &[Entry]) -> Result<Self> {
        Self::from_expired(dataset, entries, None)
    }

    /// Like `of` for expired versions, given the existing objects: another vacuum may have deleted a list, and before
    /// it everything that it named, or may be deleting it now.
    fn from_expired(dataset: &Dataset, entries: &[Entry], there: Option<&HashSet<&str>>) -> Result<Self> {
        let mut out = Self::default();
        let mut lists: BTreeMap<&str, (Sealed, &[IndexKind])> = BTreeMap::new();
        for entry in entries {
            let own = |list: &'_ ListRef| (list.as_sealed(), entry.settings.indexes.as_slice());
            lists.extend(entry.shards.iter().map(|list| (list.path.as_str(), own(list))));
            out.objects.extend(entry.own_lists().map(|list| list.path.clone()));
            out.objects.extend(entry.duplicates.iter().map(|table| table.path.clone()));
            out.objects.extend(entry.places.iter().map(|p| p.path.clone()));
            out.objects.extend(entry.segments.iter().flat_map(|s| s.bucket_paths().collect::<Vec<_>>()));
            out.objects.insert(system_path(&format!("rejects/{}.jsonl", entry.transaction)));
        }
        lists.retain(|path, _| there.is_none_or(|there| there.contains(path)));
        let lists: Vec<(&[IndexKind], Sealed)> = lists.into_values().map(|(list, indexes)| (indexes, list)).collect();
        shards::each_list(dataset.log_cache(), &lists, &mut |(indexes, list), found| {
            let found = match found {
                Err(_) if there.is_some() && dataset.store().head(&list.path)?.is_none() => Vec::new(),
                found => found?,
            };
            found.iter().for_each(|shard| out.add_shard(shard, indexes));
            Ok(())
        })?;
        Ok(out)
    }

    fn add_shard(&mut self, shard: &ShardMeta, indexes: &[IndexKind]) {
        let path = shard.path.as_str();
        self.objects.extend(shard.beside.sidecar_paths());
        let is_own = is_own_folder(path);
        if is_own {
            self.beside.extend(indexes.iter().filter_map(|kind| kind.sidecar_path(path)));
            self.beside.extend(paths::of_folder().map(|name| format!("{}{name}", folder_prefix(path))));
        }
        self.folders.insert(folder_prefix(path).to_owned());
        self.stems.insert(shard_stem(path).to_owned());
        self.shards.insert(path.to_owned(), (!is_own).then_some(shard.checksum));
    }

    /// Adds the replacements of those that were rewritten.
    fn with_replacements(self, replacements: &Replacements) -> Self {
        let needed = |path: &str| self.objects.contains(path) || self.shards.contains_key(path);
        let (shards, others) = replacements.needed_for(needed);
        self.with_objects(shards, others)
    }

    /// Adds all objects that erasures wrote as replacements.
    fn with_all_replacements(self, replacements: &Replacements) -> Self {
        let (shards, others) = replacements.needed_for(|_| true);
        self.with_objects(shards, others)
    }

    fn with_objects(mut self, shards: Vec<&ShardMeta>, others: Vec<String>) -> Self {
        shards.into_iter().for_each(|shard| self.add_shard(shard, IndexKind::ALL));
        self.objects.extend(others);
        self
    }

    /// Whether a retained version may need the object: it is named, it may be an index of a named shard, or it
    /// describes the folder of such shards.
    fn may_need(&self, path: &str) -> bool {
        self.objects.contains(path)
            || self.shards.contains_key(path)
            || index_stem(path).is_some_and(|stem| self.stems.contains(stem))
            || (describes_folder(path) && self.folders.contains(folder_prefix(path)))
    }

    /// Returns the kind of a named object, and the checksum that identifies it.
    fn named_kind(&self, path: &str) -> Option<(ObjectKind, Option<[u8; 32]>)> {
        if let Some(checksum) = self.shards.get(path) {
            return Some((ObjectKind::Shard, *checksum));
        }
        if self.beside.contains(path) {
            return Some((ObjectKind::ShardIndex, None));
        }
        self.objects.contains(path).then_some((ObjectKind::List, None))
    }
}

/// Location class of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathClass {
    /// In the system folder, where runs write.
    System(ObjectKind),
    /// Kept for ever.
    Permanent,
    /// Outside of the system folder.
    Outside,
}

fn kind_of(path: &str) -> PathClass {
    let Some(below) = path.strip_prefix(SYSTEM_FOLDER).and_then(|rest| rest.strip_prefix('/')) else {
        // Indexes describe the newest version and are replaced with it.
        let live = IndexKind::ALL.iter().any(|kind| kind.has_of_version(path)) || is_sign(path);
        return if live { PathClass::Permanent } else { PathClass::Outside };
    };
    PathClass::System(match below.split_once('/').map(|(folder, _)| folder) {
        Some("lists" | "duplicates") => ObjectKind::List,
        Some("sidecar") => ObjectKind::Sidecar,
        Some("index") => ObjectKind::IdIndex,
        Some("rejects") => ObjectKind::Rejects,
        Some("staging" | "proof") => ObjectKind::Staging,
        Some("plans" | "outcomes") => ObjectKind::Plan,
        Some("intents" | "leases") => ObjectKind::Intent,
        Some("log" | "locks" | "receipts" | "erasures") => return PathClass::Permanent,
        None if matches!(below, "store.json" | "clock" | "pull.json") => return PathClass::Permanent,
        _ => return PathClass::Outside,
    })
}

/// Returns the kind of an object outside of the system folder that an intent names.
fn kind_outside(path: &str) -> ObjectKind {
    if describes_folder(path) || index_stem(path).is_some() { ObjectKind::ShardIndex } else { ObjectKind::Shard }
}

/// Returns the tag of the run that wrote an object below the system folder, from its path.
fn run_of(path: &str) -> Option<&str> {
    path.split('/').skip(2).find_map(|part| run_of_folder(part).or_else(|| run_of_name(part)))
}

/// Commits the entry that must precede the deletion of the objects found: which versions can no longer be read, and
/// which runs must no longer commit. Shards and records do not change; runs that only expired versions contain move
/// from the run table to the lineage, which is kept for ever; scattered ones are dropped. Tagged versions stay
/// readable. Runs that committed in the meantime are not abandoned; [`retain_deletable`] removes what they wrote.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if other runs keep committing, or tagged a version that expires; if
/// the store fails. Nothing was deleted then.
pub fn expire_versions(
    dataset: &Dataset,
    found: &mut Unreferenced,
    arguments: &BTreeMap<String, String>,
) -> Result<Snapshot> {
    let transaction = TransactionId::fresh();
    let planned_on = found.version;
    let readable_from = if found.versions_expired > 0 { found.oldest_retained } else { Version(0) };
    let mut seen = planned_on;
    until_created(dataset, &transaction, planned_on, "deleted", |attempt| {
        let parent = dataset.open_newest()?;
        for entry in dataset.entries_between(seen.next(), parent.version())? {
            found.abandoned.remove(entry.transaction.short_tag());
        }
        seen = parent.version();
        let expires = readable_from > parent.entry().readable_from;
        if !expires && found.abandoned.is_empty() {
            return Ok(Next::Nothing(Box::new(parent)));
        }
        let mut entry = entry_after(&parent, &transaction, Operation::Vacuum, arguments.clone())?;
        entry.abandoned = found.abandoned.iter().cloned().collect();
        if expires {
            let mut tags = parent.tags().iter();
            if let Some((name, version)) = tags.find(|(_, v)| **v < readable_from && !found.tagged.contains(v)) {
                return Err(Error::conflict(format!("another run gave {version} the tag `{name}` meanwhile"))
                    .at_location(dataset.store().location().to_string())
                    .with_hint("nothing was deleted; run the command again"));
            }
            let name = format!("{transaction}-{}", attempt.number);
            let (runs, lineage) = run_lists(&parent, readable_from, &name)?;
            entry.runs = runs;
            entry.lineage = lineage;
            entry.history = extended_history(&parent, readable_from, &name)?;
            entry.places = needed_places(&parent, readable_from, &found.tagged)?;
            entry.readable_from = readable_from;
        }
        Ok(Next::Entry(Box::new(entry)))
    })
}

/// Whether a path is that of a list which [`extended_history`] has written.
fn is_history(path: &str) -> bool {
    path.strip_prefix(&system_path("lists/")).is_some_and(|name| run_of_name(name).is_some() && name.contains(HISTORY))
}

/// Kind of these lists, in their names.
const HISTORY: &str = "-history-";

/// Returns the history of a snapshot with all versions before `oldest`, those with tags included: once these have none,
/// their entries are deleted, too.
fn extended_history(parent: &Snapshot, oldest: Version, name: &str) -> Result<Vec<ListRef>> {
    let lists = parent.entry().history.clone();
    let known: u64 = lists.iter().map(|list| list.rows).sum();
    let more = parent.dataset().entries_between(Version(known + 1), Version(oldest.0.saturating_sub(1)))?;
    past::extend_lists(parent.dataset().store(), lists, &more, table_path(&format!("lists/{name}{HISTORY}0")))
}

/// Returns the tables of places that runs of readable versions need. Versions kept by their tags have theirs in their
/// own entries, except those of shards that an erasure wrote as replacements.
fn needed_places(parent: &Snapshot, oldest: Version, tagged: &[Version]) -> Result<Vec<PlaceRef>> {
    let left = parent.run_table()?.without_expired(oldest);
    let set = |run: &Run| run.scattered.as_ref().map(|scattered| scattered.set.clone());
    let mut sets: HashSet<String> = left.as_slice().iter().filter_map(set).collect();
    for version in tagged {
        let own: HashSet<String> =
            parent.dataset().read_entry(*version)?.places.into_iter().map(|place| place.set).collect();
        let then = parent.dataset().open_version(*version)?;
        let live = then.run_table()?.as_slice().iter().filter(|run| run.is_in_version(*version));
        sets.extend(live.filter_map(set).filter(|set| !own.contains(set)));
    }
    Ok(parent.entry().places.iter().filter(|place| sets.contains(place.set.as_str())).cloned().collect())
}

/// Writes the run table of a snapshot without runs that only versions before `oldest` contain, and its lineage with
/// them, as lists.
fn run_lists(parent: &Snapshot, oldest: Version, name: &str) -> Result<(Vec<ListRef>, Vec<ListRef>)> {
    let table = parent.run_table()?;
    let left = table.without_expired(oldest);
    let mut lineage = parent.entry().lineage.clone();
    if left.as_slice() == table.as_slice() {
        return Ok((parent.entry().runs.clone(), lineage));
    }
    let write = |kind: &str, runs: &[Run]| -> Result<ListRef> {
        let path = table_path(&format!("lists/{name}-{kind}-0"));
        let rows = runs::to_batch(runs)?;
        let store = parent.dataset().store().as_ref();
        let seal = table::write(store, &path, &rows, table::list_properties(&rows.schema()))?;
        Ok(ListRef { path, rows: runs.len() as u64, root: None, seal })
    };
    // A scattered run locates a record only together with its places, which are deleted with the shards: there is one
    // place per record, and keeping them for ever would cost as much as the shards' ids.
    let leaves = |run: &&Run| !run.is_readable_from(oldest) && run.scattered.is_none();
    let mut gone: Vec<Run> = table.as_slice().iter().filter(leaves).cloned().collect();
    if !gone.is_empty() {
        let joined = growth::take_crowd(&mut lineage, gone.len() as u64, 0, u64::MAX);
        gone.extend(parent.read_lists(&joined, runs::read)?);
        lineage.push(write("lineage", RunTable::new(gone).as_slice())?);
    }
    Ok((vec![write("runs", left.as_slice())?], lineage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_recognised_by_paths_below_the_system_folder() {
        let run = "0123456789abcdef";
        for own in [
            format!("_shardify/lists/{run}{run}-0-shards-0.table"),
            format!("_shardify/sidecar/{run}-2/000000.table"),
            format!("_shardify/sidecar/{run}/adopted/deep/a.table"),
            format!("_shardify/index/record/{run}{run}-0/b=0000.table"),
            format!("_shardify/index/place/{run}/000000.table"),
            format!("_shardify/rejects/{run}{run}.jsonl"),
            format!("_shardify/intents/{run}{run}-0.json"),
        ] {
            assert_eq!(run_of(&own), Some(run), "{own}");
            assert!(matches!(kind_of(&own), PathClass::System(_)), "{own}");
        }
        assert_eq!(run_of("_shardify/sidecar/0123456789ab/000000.table"), None);
    }

    #[test]
    fn unknown_paths_are_the_users_unless_an_entry_or_intent_names_them() {
        for path in ["notes.txt", "000000.tar", "0123456789abcdef/000000.tar", "_shardify/other/x"] {
            assert_eq!(kind_of(path), PathClass::Outside, "{path}");
        }
        for path in ["_shardify/log/1.json", "_shardify/locks/x", "_shardify/receipts/x", "shardindex.json"] {
            assert_eq!(kind_of(path), PathClass::Permanent, "{path}");
        }
    }

    #[test]
    #[expect(clippy::unwrap_used, reason = "tests fail loudly")]
    fn lists_deleted_by_another_vacuum_are_ignored() {
        let dataset = Dataset::new(std::sync::Arc::new(crate::storage::RemoteStore::in_memory().unwrap()));
        let list = "_shardify/lists/x-0-shards-0.table";
        let seal = crate::codec::seal::Seal::for_bytes(b"");
        let entry: Entry = serde_json::from_value(serde_json::json!({
            "format": 1, "version": 1, "transaction": "00", "committed_at": "2026-01-01T00:00:00Z",
            "operation": "convert", "tool": "t", "arguments": {},
            "counts": {"records_in": 0, "records_out": 0, "records_rejected": 0, "records_deduplicated": 0,
                "records_filtered": 0, "bytes_in": 0, "bytes_out": 0, "shards_added": 0, "shards_removed": 0},
            "settings": {"shard_format": "tar", "codec": "none", "target_shard": 1, "row_group": 1, "id": [],
                "subject": null},
            "totals": {"shards": 0, "records": 0, "bytes": 0}, "next_record": 0,
            "shards": [{"path": list, "rows": 1, "root": "00".repeat(32), "seal": seal}],
            "runs": [], "sources": [], "segments": [], "root": "00".repeat(32),
        }))
        .unwrap();
        let entries = [entry];
        let was_there = HashSet::from([list]);
        let left = References::from_expired(&dataset, &entries, Some(&was_there)).unwrap();
        assert!(left.shards.is_empty() && left.objects.contains(list));
        assert!(References::from_entries(&dataset, &entries).is_err(), "a version that can be read needs it");
    }
}
