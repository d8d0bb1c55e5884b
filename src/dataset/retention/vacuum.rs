//! What no retained version needs: the objects that `vacuum` may delete, and the entry that says so.
//!
//! ```text
//! versions    1    2    3 | 4    5          retained: current at some time since the cutoff, leased, or with a name
//!             expired     | retained        an object stays while one of these refers to it
//! ```
//!
//! An object is deleted only if an entry of the log named it and no retained version does, or if the run that wrote it
//! can never commit. For that, an entry is committed before the first object goes. It says which versions expire, and
//! which runs are *abandoned*: a run checks before it commits that no entry since its start has abandoned it. So neither
//! clocks nor locks make anything safe; they only tell what is worth deleting. After the entry the log is read anew, for
//! what was committed in the meantime.
//!
//! | object | who wrote it |
//! |---|---|
//! | named by the lists of a version that expires, or has expired | that version |
//! | its path is in an intent, or below `_shardify/` and holds a tag or transaction | that run |
//! | below `_shardify/` without either: staged, or of an older release | nobody who can still commit it |
//! | anything else | the user: it is reported, and stays |

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;

use crate::{
    dataset::{
        erasure::unfinished::leftovers_among,
        index::places::PlaceRef,
        log::{
            commit::{Next, after, until_created},
            draft::FAN_OUT,
            entry::{Entry, FORMAT_VERSION},
            erased::StandIns,
            publication::Intent,
            runs::{self, Run, RunTable},
            shards::{self, ShardMeta},
            snapshot::{Dataset, Snapshot},
        },
        table::{
            self,
            list::ListRef,
            paths::{OF_FOLDER, describes_folder, folder_prefix, index_stem, is_own_folder, stem, system_path},
            sealed::Sealed,
        },
    },
    error::{Error, Result},
    format::index::IndexKind,
    id::{TransactionId, Version, run_of_folder, run_of_name},
    storage::{ObjectFacts, SYSTEM_FOLDER},
};

/// What an object is to a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// A shard.
    Shard,
    /// An index beside a shard, for training tools.
    ShardIndex,
    /// A sidecar.
    Sidecar,
    /// Written by a run that never gave it a name.
    Staging,
    /// Rejected records of a run.
    Rejects,
    /// A bucket of the id index.
    IdIndex,
    /// A list. A vacuum that was cut short learns from lists which shards there were, so they go after those.
    List,
    /// What a run says of itself: what it was about to publish, or still reads. It goes after all that it names.
    Intent,
}

impl ObjectKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::ShardIndex => "shard-index",
            Self::Sidecar => "sidecar",
            Self::Staging => "staging",
            Self::Rejects => "rejects",
            Self::IdIndex => "id-index",
            Self::List => "list",
            Self::Intent => "intent",
        }
    }
}

/// What is kept.
#[derive(Debug, Clone, Default)]
pub struct Retention {
    /// Versions that were current at or after this instant are kept, and so is what was written since.
    pub cutoff: Timestamp,
    /// Tags of runs that are seen to be active.
    pub active: HashSet<String>,
    /// Whether a run of an older release may be active, whose objects do not tell their run.
    pub unknown_active: bool,
    /// Oldest version that a run has leased.
    pub leased: Option<Version>,
}

/// An object that nobody needs.
#[derive(Debug, Clone)]
pub struct Unneeded {
    /// The object as it was listed.
    pub facts: ObjectFacts,
    /// What it is.
    pub kind: ObjectKind,
    /// Whether a version was committed that refers to it; if not, it is of a run that did not finish, or not yet.
    pub committed: bool,
    /// Tag of the run that wrote it, where its path or an intent tells.
    pub run: Option<String>,
    /// BLAKE3 that its bytes must have: the file lies where a user put it, and may be another by now.
    pub checksum: Option<[u8; 32]>,
}

/// What there is to delete.
#[derive(Debug)]
pub struct Unreferenced {
    /// The newest version looked at.
    pub version: Version,
    /// The oldest version that is retained.
    pub oldest_retained: Version,
    /// Versions that are kept because they have a name, though the retention is over.
    pub tagged: Vec<Version>,
    /// Versions that can be read now and could not any more.
    pub versions_expired: u64,
    /// First of the expired versions of which objects are left.
    pub expired_from: Version,
    /// Tags of runs that have to be abandoned before anything is deleted.
    pub abandoned: BTreeSet<String>,
    /// What may be deleted, in the order of deletion.
    pub objects: Vec<Unneeded>,
    /// Objects without a reference that are younger than the cutoff.
    pub young: u64,
    /// Objects without a reference that an active run may need.
    pub in_use: u64,
    /// Files that shardify did not write.
    pub foreign: Vec<String>,
    /// Places that cannot be listed: folders that cannot be read, names that are not UTF-8. They are left alone.
    pub unlisted: Vec<String>,
    /// Whether objects would go that only the format of the log keeps from being committed by an older release.
    needs_format: bool,
    /// Whether versions that expire now would lose something.
    loses: bool,
}

impl Unreferenced {
    /// Whether an entry has to be committed before anything is deleted.
    pub fn needs_entry(&self) -> bool {
        self.versions_expired > 0 || !self.abandoned.is_empty() || self.needs_format
    }
}

/// Finds everything that no retained version refers to.
///
/// # Errors
/// When the log or a list cannot be read; then nothing may be deleted.
pub fn unreferenced(dataset: &Dataset, retention: &Retention) -> Result<Unreferenced> {
    let (listing, unlisted) = dataset.listing()?;
    let snapshot = dataset.open()?;
    let newest = snapshot.entry();
    let readable = Version(newest.readable_from.0.max(1));
    let first = Version(newest.expired_from.0.max(1)).min(readable);
    let entries = dataset.entries(first, snapshot.version())?;
    let position = |version: Version| usize::try_from(version.0.saturating_sub(first.0)).unwrap_or(usize::MAX);
    let expired = oldest_retained(&snapshot, &entries[position(readable)..], retention);
    let (old, retained) = entries.split_at(position(expired));
    let mut tagged: Vec<Version> = snapshot.tags().values().copied().filter(|v| *v < expired).collect();
    tagged.sort_unstable();
    tagged.dedup();
    let mut retained = retained.to_vec();
    for version in &tagged {
        retained.push(dataset.entry(*version)?);
    }
    let lost: Vec<Entry> = old.iter().filter(|entry| !tagged.contains(&entry.version)).cloned().collect();
    let (before, now): (Vec<Entry>, Vec<Entry>) = lost.into_iter().partition(|entry| entry.version < readable);
    let stand_ins = StandIns::of(dataset.store().as_ref(), newest)?;
    let must_go = leftovers_among(&snapshot, listing.iter().map(|facts| facts.path.as_str()))?;
    let must_go: HashMap<String, Option<[u8; 32]>> =
        must_go.into_iter().map(|object| (object.path, object.blake3)).collect();
    let kept = References::of(dataset, &retained)?.led_by(&stand_ins);
    let there: HashSet<&str> = listing.iter().map(|facts| facts.path.as_str()).collect();
    // What erasures wrote for versions that have expired since is named by the newest entry alone.
    let gone_before = References::of_left(dataset, &before, Some(&there))?.with_made(&stand_ins);
    let gone_now = References::of(dataset, &now)?.led_by(&stand_ins);
    let intents = Intents::read(dataset, &listing)?;
    let mut out = Unreferenced {
        version: snapshot.version(),
        oldest_retained: expired,
        tagged,
        versions_expired: now.len() as u64,
        expired_from: readable,
        abandoned: BTreeSet::new(),
        objects: Vec::new(),
        young: 0,
        in_use: 0,
        foreign: Vec::new(),
        unlisted,
        needs_format: false,
        loses: false,
    };
    let known = Known { kept, gone_before, gone_now, must_go, intents, first, format: newest.format };
    listing.into_iter().for_each(|facts| out.add(facts, &known, retention));
    if !out.loses {
        out.versions_expired = 0;
    }
    out.objects.sort_by(|a, b| (a.kind, &a.facts.path).cmp(&(b.kind, &b.facts.path)));
    Ok(out)
}

/// What is known of the objects of a dataset.
struct Known {
    /// What retained versions refer to.
    kept: References,
    /// What versions that have expired before refer to, and what erasures wrote.
    gone_before: References,
    /// What versions that expire now refer to.
    gone_now: References,
    /// What erasures that were cut short have left to delete, with the checksums that files of users must have.
    must_go: HashMap<String, Option<[u8; 32]>>,
    intents: Intents,
    /// First of the versions that have expired before and of which objects may be left.
    first: Version,
    /// Format of the newest entry.
    format: u32,
}

impl Unreferenced {
    /// Counts an object in, unless a retained version needs it.
    fn add(&mut self, facts: ObjectFacts, known: &Known, retention: &Retention) {
        let path = facts.path.as_str();
        // What an erasure put another object in the place of is named by old entries, but by no version.
        let erased = known.must_go.get(path).map(|checksum| (ObjectKind::Shard, *checksum));
        if erased.is_none() && known.kept.needs(path) {
            return;
        }
        let place = kind_of(path);
        let (before, now) = (known.gone_before.names(path), known.gone_now.names(path));
        if before.is_some() {
            self.expired_from = known.first;
        }
        self.loses |= now.is_some() && place != Place::System(ObjectKind::Rejects);
        let Some(named) = before.or(now).or(erased) else {
            return self.add_uncommitted(facts, place, known, retention);
        };
        let (kind, checksum) = if let Place::System(kind) = place { (kind, None) } else { named };
        self.objects.push(Unneeded { facts, kind, committed: true, run: None, checksum });
    }

    /// Counts an object in that no entry names.
    fn add_uncommitted(&mut self, facts: ObjectFacts, place: Place, known: &Known, retention: &Retention) {
        let intended = known.intents.of(&facts.path);
        let (kind, run) = match (place, intended) {
            (Place::Permanent, _) => return,
            (Place::Outside, None) => return self.foreign.push(facts.path),
            (Place::Outside, Some(run)) => (kind_outside(&facts.path), Some(run.to_owned())),
            (Place::System(kind), run) => (kind, run.or_else(|| run_of(&facts.path)).map(str::to_owned)),
        };
        let is_active = match &run {
            Some(run) => retention.active.contains(run),
            None => retention.unknown_active || (kind == ObjectKind::Staging && !retention.active.is_empty()),
        };
        if is_active {
            self.in_use += 1;
        } else if facts.modified >= retention.cutoff {
            self.young += 1;
        } else {
            self.needs_format |= run.is_none() && kind != ObjectKind::Staging && known.format < FORMAT_VERSION;
            self.abandoned.extend(run.clone());
            self.objects.push(Unneeded { facts, kind, committed: false, run, checksum: None });
        }
    }
}

/// The oldest of the versions that can be read now, whose entries are given, that is retained.
fn oldest_retained(snapshot: &Snapshot, readable: &[Entry], retention: &Retention) -> Version {
    let time = |entry: &Entry| snapshot.committed_at(entry.version, entry.committed_at);
    let current = readable.iter().rev().find(|entry| time(entry) <= retention.cutoff).or(readable.first());
    let current = current.map_or(snapshot.version(), |entry| entry.version);
    let oldest = readable.first().map_or(current, |entry| entry.version);
    retention.leased.map_or(current, |leased| current.min(leased.max(oldest)))
}

/// Those of the objects found that may still be deleted, by what the log says now: what was committed since is kept.
///
/// # Errors
/// When the log or a list cannot be read; then nothing may be deleted.
pub fn still_unneeded(dataset: &Dataset, found: &mut Unreferenced) -> Result<()> {
    let newest = dataset.open()?;
    if newest.version() == found.version {
        return Ok(());
    }
    let entries = dataset.entries(found.version.next(), newest.version())?;
    // Of versions that have expired since, other vacuums may have deleted the lists.
    let readable: Vec<Entry> = entries.iter().filter(|entry| newest.can_read(entry.version)).cloned().collect();
    let needed = References::of(dataset, &readable)?;
    let committed: HashSet<&str> = entries.iter().map(|entry| entry.transaction.tag()).collect();
    let names = |object: &Unneeded| object.run.as_deref().is_some_and(|run| committed.contains(run));
    found.objects.retain(|object| !needed.needs(&object.facts.path) && !names(object));
    Ok(())
}

/// What runs were about to publish.
#[derive(Debug, Default)]
struct Intents {
    /// Tags of runs by the paths that they were about to publish.
    runs: HashMap<String, String>,
}

impl Intents {
    fn read(dataset: &Dataset, listing: &[ObjectFacts]) -> Result<Self> {
        let folder = system_path("intents/");
        let paths: Vec<&str> = listing.iter().map(|f| f.path.as_str()).filter(|p| p.starts_with(&folder)).collect();
        let read = |path: &&str| -> Result<Option<Intent>> {
            let Some(bytes) = dataset.store().get(path)? else { return Ok(None) };
            let intent: Intent = serde_json::from_slice(&bytes).map_err(|e| {
                Error::integrity("the intent of a run is damaged")
                    .at(dataset.store().location().join(path).to_string())
                    .cause(e)
                    .hint("nothing was deleted; delete this file when no other command runs on this dataset")
            })?;
            Ok(Some(intent))
        };
        let intents: Vec<Option<Intent>> = paths.par_iter().map(read).collect::<Result<_>>()?;
        let mut out = Self::default();
        for intent in intents.into_iter().flatten() {
            let tag = intent.transaction.tag().to_owned();
            out.runs.extend(intent.paths.into_iter().map(|path| (path, tag.clone())));
        }
        Ok(out)
    }

    /// The run that was about to publish an object.
    fn of(&self, path: &str) -> Option<&str> {
        self.runs.get(path).map(String::as_str)
    }
}

/// Objects that some entries refer to.
#[derive(Debug, Default)]
struct References {
    /// Lists, segments, sidecars and others below `_shardify/`.
    objects: HashSet<String>,
    /// Shards, with the BLAKE3 of those that lie where a user put them.
    shards: HashMap<String, Option<[u8; 32]>>,
    /// Objects that describe shards and lie beside them, as far as shardify writes them.
    beside: HashSet<String>,
    /// Shards without what their names end in; indexes beside them share it.
    stems: HashSet<String>,
    /// Folders of shards, with the slash.
    folders: HashSet<String>,
}

impl References {
    fn of(dataset: &Dataset, entries: &[Entry]) -> Result<Self> {
        Self::of_left(dataset, entries, None)
    }

    /// The same of versions that have expired, given what was there: another vacuum may have deleted a list, and before it all
    /// that it named, or may delete it right now.
    fn of_left(dataset: &Dataset, entries: &[Entry], there: Option<&HashSet<&str>>) -> Result<Self> {
        let mut out = Self::default();
        let mut lists: BTreeMap<&str, (Sealed, &[IndexKind])> = BTreeMap::new();
        for entry in entries {
            let own = |list: &'_ ListRef| (list.sealed(), entry.settings.indexes.as_slice());
            lists.extend(entry.shards.iter().map(|list| (list.path.as_str(), own(list))));
            for list in [&entry.shards, &entry.runs, &entry.lineage, &entry.sources] {
                out.objects.extend(list.iter().map(|l| l.path.clone()));
            }
            out.objects.extend(entry.erasures.iter().flat_map(|e| e.lists()).map(|l| l.path.clone()));
            out.objects.extend(entry.places.iter().map(|p| p.path.clone()));
            out.objects.extend(entry.segments.iter().flat_map(|s| s.bucket_paths().collect::<Vec<_>>()));
            out.objects.insert(system_path(&format!("rejects/{}.jsonl", entry.transaction)));
        }
        lists.retain(|path, _| there.is_none_or(|there| there.contains(path)));
        let store = dataset.store().as_ref();
        let lists: Vec<(Sealed, &[IndexKind])> = lists.into_values().collect();
        let read = |list: &Sealed| match shards::read(store, list) {
            Err(_) if there.is_some() && store.head(&list.path)?.is_none() => Ok(Vec::new()),
            read => read,
        };
        let found: Vec<_> = lists.par_iter().map(|(list, _)| read(list)).collect::<Result<_>>()?;
        for ((_, indexes), shards) in lists.iter().zip(found) {
            shards.iter().for_each(|shard| out.add_shard(shard, indexes));
        }
        Ok(out)
    }

    fn add_shard(&mut self, shard: &ShardMeta, indexes: &[IndexKind]) {
        let path = shard.path.as_str();
        self.objects.extend([shard.sidecar(), shard.parts(), shard.numbers()].map(|object| object.path));
        let is_own = is_own_folder(path);
        if is_own {
            self.beside.extend(indexes.iter().filter_map(|kind| kind.beside(path)));
            self.beside.extend(OF_FOLDER.iter().map(|name| format!("{}{name}", folder_prefix(path))));
        }
        self.folders.insert(folder_prefix(path).to_owned());
        self.stems.insert(stem(path).to_owned());
        self.shards.insert(path.to_owned(), (!is_own).then_some(shard.checksum));
    }

    /// With what stands for those of them that were rewritten.
    fn led_by(self, stand_ins: &StandIns) -> Self {
        let found = stand_ins.needed_for(|path| self.objects.contains(path) || self.shards.contains_key(path));
        self.with(found)
    }

    /// With all that erasures have put in the place of other objects.
    fn with_made(self, stand_ins: &StandIns) -> Self {
        self.with(stand_ins.needed_for(|_| true))
    }

    fn with(mut self, (shards, others): (Vec<&ShardMeta>, Vec<String>)) -> Self {
        shards.into_iter().for_each(|shard| self.add_shard(shard, &IndexKind::ALL));
        self.objects.extend(others);
        self
    }

    /// Whether a retained version may need the object: it is named, it may be an index of a shard that is, or it
    /// describes the folder of such shards.
    fn needs(&self, path: &str) -> bool {
        self.objects.contains(path)
            || self.shards.contains_key(path)
            || index_stem(path).is_some_and(|stem| self.stems.contains(stem))
            || (describes_folder(path) && self.folders.contains(folder_prefix(path)))
    }

    /// What the object is, if it is named: its kind, and the checksum it must have to be the one that was named.
    fn names(&self, path: &str) -> Option<(ObjectKind, Option<[u8; 32]>)> {
        if let Some(checksum) = self.shards.get(path) {
            return Some((ObjectKind::Shard, *checksum));
        }
        if self.beside.contains(path) {
            return Some((ObjectKind::ShardIndex, None));
        }
        self.objects.contains(path).then_some((ObjectKind::List, None))
    }
}

/// Where an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the system folder, where runs write.
    System(ObjectKind),
    /// Kept for ever.
    Permanent,
    /// Outside of the system folder.
    Outside,
}

fn kind_of(path: &str) -> Place {
    let Some(below) = path.strip_prefix(SYSTEM_FOLDER).and_then(|rest| rest.strip_prefix('/')) else {
        let live = LIVE_OBJECTS.contains(&path) || LIVE_FOLDERS.iter().any(|folder| path.starts_with(folder));
        return if live { Place::Permanent } else { Place::Outside };
    };
    Place::System(match below.split_once('/').map(|(folder, _)| folder) {
        Some("lists") => ObjectKind::List,
        Some("sidecar") => ObjectKind::Sidecar,
        Some("index") => ObjectKind::IdIndex,
        Some("rejects") => ObjectKind::Rejects,
        Some("staging" | "proof") => ObjectKind::Staging,
        Some("intents" | "leases") => ObjectKind::Intent,
        Some("log" | "locks" | "receipts" | "erasures") => return Place::Permanent,
        None if matches!(below, "store.json" | "clock") => return Place::Permanent,
        _ => return Place::Outside,
    })
}

/// What an object outside of the system folder is, which an intent names.
fn kind_outside(path: &str) -> ObjectKind {
    if describes_folder(path) || index_stem(path).is_some() { ObjectKind::ShardIndex } else { ObjectKind::Shard }
}

/// Tag of the run that wrote an object below the system folder, as its path tells.
fn run_of(path: &str) -> Option<&str> {
    path.split('/').skip(2).find_map(|part| run_of_folder(part).or_else(|| run_of_name(part)))
}

/// Objects that describe the newest version and are replaced with it.
const LIVE_OBJECTS: [&str; 1] = ["shardindex.json"];
const LIVE_FOLDERS: [&str; 1] = [".nv-meta/"];

/// Commits what has to be on record before the objects found are deleted: versions that cannot be read any more, and runs
/// that must not commit any more. Shards and records stay as they are; table entries that only expired versions contain leave
/// the run table for the lineage, which is kept for ever; scattered ones just leave. Versions that have a name stay readable.
/// Runs that committed in the meantime are not abandoned; [`still_unneeded`] takes off what they wrote.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) when others keep committing, or gave a name to a version that expires;
/// when the store fails. Nothing was deleted then.
pub fn expire(dataset: &Dataset, found: &mut Unreferenced, arguments: &BTreeMap<String, String>) -> Result<Snapshot> {
    let transaction = TransactionId::fresh();
    let planned_on = found.version;
    let readable_from = if found.versions_expired > 0 { found.oldest_retained } else { Version(0) };
    let mut seen = planned_on;
    until_created(dataset, (&transaction, planned_on), "deleted", |attempt| {
        let parent = dataset.open()?;
        for entry in dataset.entries(seen.next(), parent.version())? {
            found.abandoned.remove(entry.transaction.tag());
        }
        seen = parent.version();
        let expires = readable_from > parent.entry().readable_from;
        if !expires && found.abandoned.is_empty() && !found.needs_format {
            return Ok(Next::Nothing(Box::new(parent)));
        }
        let mut entry = after(&parent, &transaction, "vacuum", arguments.clone())?;
        entry.format = FORMAT_VERSION;
        entry.abandoned = found.abandoned.iter().cloned().collect();
        if expires {
            let mut tags = parent.tags().iter();
            if let Some((name, version)) = tags.find(|(_, v)| **v < readable_from && !found.tagged.contains(v)) {
                return Err(Error::conflict(format!("another run gave {version} the tag `{name}` meanwhile"))
                    .at(dataset.store().location().to_string())
                    .hint("nothing was deleted; run the command again"));
            }
            let (runs, lineage) = run_lists(&parent, readable_from, &format!("{transaction}-{attempt}"))?;
            entry.runs = runs;
            entry.lineage = lineage;
            entry.places = places(&parent, readable_from, &found.tagged)?;
            entry.expired_from = found.expired_from.min(Version(parent.entry().readable_from.0.max(1)));
            entry.readable_from = readable_from;
        }
        Ok(Next::Entry(Box::new(entry)))
    })
}

/// Tables of places that runs of readable versions need. Versions that are kept by their names have their own in their own
/// entries, but for those of shards that an erasure has put in the place of theirs.
fn places(parent: &Snapshot, oldest: Version, tagged: &[Version]) -> Result<Vec<PlaceRef>> {
    let left = parent.runs()?.readable(oldest);
    let set = |run: &Run| run.scattered.as_ref().map(|scattered| scattered.set.clone());
    let mut sets: HashSet<String> = left.all().iter().filter_map(set).collect();
    for version in tagged {
        let own: HashSet<String> =
            parent.dataset().entry(*version)?.places.into_iter().map(|place| place.set).collect();
        let then = parent.dataset().at(*version)?;
        let live = then.runs()?.all().iter().filter(|run| run.contains(*version));
        sets.extend(live.filter_map(set).filter(|set| !own.contains(set)));
    }
    Ok(parent.entry().places.iter().filter(|place| sets.contains(place.set.as_str())).cloned().collect())
}

/// The run table of a snapshot without what versions before `oldest` contain, and the lineage with it, as lists.
fn run_lists(parent: &Snapshot, oldest: Version, name: &str) -> Result<(Vec<ListRef>, Vec<ListRef>)> {
    let table = parent.runs()?;
    let left = table.readable(oldest);
    let mut lineage = parent.entry().lineage.clone();
    if left.all() == table.all() {
        return Ok((parent.entry().runs.clone(), lineage));
    }
    let write = |kind: &str, runs: &[Run], level: u32| -> Result<ListRef> {
        let path = system_path(&format!("lists/{name}-{kind}-0.parquet"));
        let rows = runs::batch(runs)?;
        let store = parent.dataset().store().as_ref();
        let seal = table::write(store, &path, &rows, table::list_properties(&rows.schema()))?;
        Ok(ListRef { path, rows: runs.len() as u64, level, root: None, seal: Some(seal) })
    };
    // A scattered run says where a record was only together with its places, which go with the shards: there is one for
    // each record, and to keep them for ever would cost as much as the shards' ids.
    let leaves = |run: &&Run| !run.stays(oldest) && run.scattered.is_none();
    let mut gone: Vec<Run> = table.all().iter().filter(leaves).cloned().collect();
    // As few lists as a run table has, with each row written again a logarithmic number of times.
    let mut level = 0;
    while lineage.iter().filter(|list| list.level == level).count() + 1 >= FAN_OUT {
        let (crowd, others): (Vec<_>, Vec<_>) = lineage.into_iter().partition(|list| list.level == level);
        gone.extend(parent.read_lists(&crowd, runs::read)?);
        lineage = others;
        level += 1;
    }
    if !gone.is_empty() {
        lineage.push(write("lineage", RunTable::new(gone).all(), level)?);
    }
    let level = parent.entry().runs.iter().map(|l| l.level).max().unwrap_or_default();
    Ok((vec![write("runs", left.all(), level)?], lineage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_by_paths_below_the_system_folder() {
        let run = "0123456789abcdef";
        for own in [
            format!("_shardify/lists/{run}{run}-0-shards-0.parquet"),
            format!("_shardify/sidecar/{run}-2/000000.parquet"),
            format!("_shardify/sidecar/{run}/adopted/deep/a.parquet"),
            format!("_shardify/index/record/{run}{run}-0/b=0000.parquet"),
            format!("_shardify/index/place/{run}/000000.parquet"),
            format!("_shardify/rejects/{run}{run}.jsonl"),
            format!("_shardify/intents/{run}{run}-0.json"),
        ] {
            assert_eq!(run_of(&own), Some(run), "{own}");
            assert!(matches!(kind_of(&own), Place::System(_)), "{own}");
        }
        assert_eq!(run_of("_shardify/sidecar/0123456789ab/000000.parquet"), None);
    }

    #[test]
    fn what_lies_elsewhere_is_the_users_unless_an_entry_or_intent_names_it() {
        for path in ["notes.txt", "000000.tar", "0123456789abcdef/000000.tar", "_shardify/other/x"] {
            assert_eq!(kind_of(path), Place::Outside, "{path}");
        }
        for path in ["_shardify/log/1.json", "_shardify/locks/x", "_shardify/receipts/x", "shardindex.json"] {
            assert_eq!(kind_of(path), Place::Permanent, "{path}");
        }
    }

    #[test]
    #[expect(clippy::unwrap_used, reason = "tests fail loudly")]
    fn lists_that_another_vacuum_deletes_meanwhile_name_nothing() {
        let dataset = Dataset::new(std::sync::Arc::new(crate::storage::RemoteStore::memory().unwrap()));
        let list = "_shardify/lists/x-0-shards-0.parquet";
        let entry: Entry = serde_json::from_value(serde_json::json!({
            "format": 4, "version": 1, "transaction": "00", "committed_at": "2026-01-01T00:00:00Z",
            "operation": "convert", "tool": "t", "arguments": {},
            "counts": {"records_in": 0, "records_out": 0, "records_rejected": 0, "records_deduplicated": 0,
                "bytes_in": 0, "bytes_out": 0, "shards_added": 0, "shards_removed": 0},
            "settings": {"shard_format": "tar", "codec": "none", "target_shard": 1, "row_group": 1, "id": [], "subject": null},
            "totals": {"shards": 0, "records": 0, "bytes": 0}, "next_record": 0,
            "shards": [{"path": list, "rows": 1, "level": 0}], "runs": [], "sources": [], "segments": [],
        }))
        .unwrap();
        let entries = [entry];
        let was_there = HashSet::from([list]);
        let left = References::of_left(&dataset, &entries, Some(&was_there)).unwrap();
        assert!(left.shards.is_empty() && left.objects.contains(list));
        assert!(References::of(&dataset, &entries).is_err(), "a version that can be read needs it");
    }
}
