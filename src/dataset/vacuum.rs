//! What no retained version needs: the objects that `vacuum` may delete, and the version that says so.
//!
//! ```text
//! versions    1    2    3 | 4    5          retained: current at some time since the cutoff
//!             expired     | retained        a object stays while one of these refers to it
//! ```
//!
//! An object is deleted only if it lies where shardify writes, no retained version refers to it, and it was written
//! before the cutoff: what a running command has staged or published is younger. The listing is taken before the log is
//! read, so an object that was committed in between is found to be referred to. When an expired version loses
//! something, an entry that raises `readable_from` is committed before the first object goes.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;

use super::{
    Dataset, Snapshot,
    commit::{FAN_OUT, Next, after, until_created},
    erased::StandIns,
    log::{Entry, ListRef},
    places::PlaceRef,
    runs::{self, Run, RunTable},
    sealed::Sealed,
    shards::{self, ShardMeta},
    system_path, table,
};
use crate::{
    array::CONSTANTS_FILE,
    error::{Error, Result},
    id::{TransactionId, Version},
    schema,
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
    /// A list. Lists go last: a vacuum that was cut short learns from them which shards there were.
    List,
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
        }
    }
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
    /// What may be deleted, in the order of deletion.
    pub objects: Vec<Unneeded>,
    /// Objects without a reference that are younger than the cutoff.
    pub young: u64,
    /// Files that shardify did not write.
    pub foreign: Vec<String>,
}

/// Finds everything that no version current at or after `cutoff` refers to.
///
/// # Errors
/// When the log or a list cannot be read; then nothing may be deleted.
pub fn unreferenced(dataset: &Dataset, cutoff: Timestamp) -> Result<Unreferenced> {
    let listing = dataset.store().list("")?;
    let snapshot = dataset.open()?;
    let oldest = Version(snapshot.entry().readable_from.0.max(1));
    let entries = dataset.entries(oldest, snapshot.version())?;
    let expired = entries.iter().rposition(|entry| entry.committed_at <= cutoff).unwrap_or(0);
    let oldest_retained = entries[expired].version;
    let mut tagged: Vec<Version> = snapshot.tags().values().copied().filter(|v| *v < oldest_retained).collect();
    tagged.sort_unstable();
    tagged.dedup();
    let mut retained = entries[expired..].to_vec();
    for version in &tagged {
        retained.push(dataset.entry(*version)?);
    }
    let lost: Vec<Entry> = entries[..expired].iter().filter(|e| !tagged.contains(&e.version)).cloned().collect();
    let stand_ins = StandIns::of(dataset.store().as_ref(), snapshot.entry())?;
    let must_go = stand_ins.gone();
    let kept = References::of(dataset, &retained)?.led_by(&stand_ins);
    let gone = References::of(dataset, &lost)?.led_by(&stand_ins);
    // Lists that nobody refers to still tell which files are shards.
    let known = References::of_lists(dataset, listing.iter().map(|o| o.path.as_str()).filter(|p| !kept.has(p)))?;
    let mut out = Unreferenced {
        version: snapshot.version(),
        oldest_retained,
        tagged,
        versions_expired: lost.len() as u64,
        objects: Vec::new(),
        young: 0,
        foreign: Vec::new(),
    };
    for facts in listing {
        // What an erasure put another object in the place of is named by old entries, but by no version.
        let erased = stand_ins.is_gone(&must_go, &facts.path);
        if kept.needs(&facts.path) && !erased {
            continue;
        }
        match kind_of(&facts.path, &|path| erased || gone.needs(path) || known.needs(path)) {
            Known::Permanent => {}
            Known::Foreign => out.foreign.push(facts.path),
            Known::Object(_) if facts.modified >= cutoff => out.young += 1,
            Known::Object(kind) => {
                let committed = erased || gone.needs(&facts.path);
                out.objects.push(Unneeded { facts, kind, committed });
            }
        }
    }
    if !out.objects.iter().any(|o| o.committed && o.kind != ObjectKind::Rejects) {
        out.versions_expired = 0;
    }
    out.objects.sort_by(|a, b| (a.kind, &a.facts.path).cmp(&(b.kind, &b.facts.path)));
    Ok(out)
}

/// Objects that some entries refer to.
#[derive(Debug, Default)]
struct References {
    objects: HashSet<String>,
    /// Shards without what their names end in; indexes beside them share it.
    stems: HashSet<String>,
    /// Folders of shards, with the slash.
    folders: HashSet<String>,
}

impl References {
    fn of(dataset: &Dataset, entries: &[Entry]) -> Result<Self> {
        let mut out = Self::default();
        let mut lists: BTreeMap<&str, Sealed> = BTreeMap::new();
        for entry in entries {
            lists.extend(entry.shards.iter().map(|list| (list.path.as_str(), list.sealed())));
            for list in [&entry.shards, &entry.runs, &entry.lineage, &entry.sources] {
                out.objects.extend(list.iter().map(|l| l.path.clone()));
            }
            out.objects.extend(entry.erasures.iter().flat_map(|e| e.lists()).map(|l| l.path.clone()));
            out.objects.extend(entry.places.iter().map(|p| p.path.clone()));
            out.objects.extend(entry.segments.iter().flat_map(|s| s.bucket_paths().collect::<Vec<_>>()));
            out.objects.insert(system_path(&format!("rejects/{}.jsonl", entry.transaction)));
        }
        out.add_shards(dataset, &lists.into_values().collect::<Vec<_>>())?;
        Ok(out)
    }

    /// The shards that lists of shards name.
    fn of_lists<'a>(dataset: &Dataset, paths: impl Iterator<Item = &'a str>) -> Result<Self> {
        let folder = system_path("lists/");
        let lists: Vec<Sealed> =
            paths.filter(|p| p.starts_with(&folder) && p.contains("-shards-")).map(Sealed::unknown).collect();
        let mut out = Self::default();
        out.add_shards(dataset, &lists)?;
        Ok(out)
    }

    fn add_shards(&mut self, dataset: &Dataset, lists: &[Sealed]) -> Result<()> {
        let store = dataset.store().as_ref();
        let found: Vec<_> = lists.par_iter().map(|list| shards::read(store, list)).collect::<Result<_>>()?;
        found.into_iter().flatten().for_each(|shard| self.add_shard(&shard));
        Ok(())
    }

    fn add_shard(&mut self, shard: &ShardMeta) {
        self.objects.extend([shard.sidecar(), shard.parts(), shard.numbers()].map(|object| object.path));
        self.folders.insert(folder_of(&shard.path).to_owned());
        self.stems.insert(stem(&shard.path).to_owned());
        self.objects.insert(shard.path.clone());
    }

    /// With what stands for objects that were rewritten.
    fn led_by(mut self, stand_ins: &StandIns) -> Self {
        let (shards, others) = stand_ins.needed_for(|path| self.objects.contains(path));
        shards.into_iter().for_each(|shard| self.add_shard(shard));
        self.objects.extend(others);
        self
    }

    fn has(&self, path: &str) -> bool {
        self.objects.contains(path)
    }

    /// Whether the object, or the shard that it is an index of, is among them, or it describes a folder of such shards.
    fn needs(&self, path: &str) -> bool {
        self.has(path)
            || index_stem(path).is_some_and(|stem| self.stems.contains(stem))
            || (describes_folder(path) && self.folders.contains(folder_of(path)))
    }
}

enum Known {
    Object(ObjectKind),
    /// Kept for ever.
    Permanent,
    /// Not ours.
    Foreign,
}

/// What an object is by its name. `known` says whether a path is that of a shard, or of an index beside one.
fn kind_of(path: &str, known: &dyn Fn(&str) -> bool) -> Known {
    let Some(below) = path.strip_prefix(SYSTEM_FOLDER).and_then(|rest| rest.strip_prefix('/')) else {
        let live = LIVE_OBJECTS.contains(&path) || LIVE_FOLDERS.iter().any(|folder| path.starts_with(folder));
        return match index_stem(path) {
            _ if live => Known::Permanent,
            _ if describes_folder(path) && (known(path) || is_tag(folder_of(path).trim_end_matches('/'))) => {
                Known::Object(ObjectKind::ShardIndex)
            }
            Some(stem) if known(path) || is_own_name(stem, true) => Known::Object(ObjectKind::ShardIndex),
            None if known(path) || is_own_name(path, false) => Known::Object(ObjectKind::Shard),
            _ => Known::Foreign,
        };
    };
    let kind = match below.split_once('/').map(|(folder, _)| folder) {
        Some("log" | "locks" | "receipts") => return Known::Permanent,
        None if below == "store.json" => return Known::Permanent,
        Some("lists") => ObjectKind::List,
        Some("sidecar") => ObjectKind::Sidecar,
        Some("index") => ObjectKind::IdIndex,
        Some("rejects") => ObjectKind::Rejects,
        Some("staging") => ObjectKind::Staging,
        _ => return Known::Foreign,
    };
    Known::Object(kind)
}

/// Objects that describe the newest version and are replaced with it.
const LIVE_OBJECTS: [&str; 1] = ["shardindex.json"];
const LIVE_FOLDERS: [&str; 1] = [".nv-meta/"];

/// Objects that describe all shards of their folder.
const FOLDER_OBJECTS: [&str; 3] = ["shardindex.json", schema::file::NAME, CONSTANTS_FILE];

/// Folder of a path, with the slash.
fn folder_of(path: &str) -> &str {
    &path[..path.rfind('/').map_or(0, |slash| slash + 1)]
}

fn describes_folder(path: &str) -> bool {
    let folder = folder_of(path);
    !folder.is_empty() && FOLDER_OBJECTS.contains(&&path[folder.len()..])
}

/// Whether shardify names shards like this: `<tag>/[key=value/]000017.tar.gz`.
pub fn is_shard_name(path: &str) -> bool {
    is_own_name(path, false)
}

/// Whether this is the name of a shard of our own, with its ending or without it.
fn is_own_name(path: &str, bare: bool) -> bool {
    let mut parts: Vec<&str> = path.split('/').collect();
    let Some(file) = parts.pop() else { return false };
    let stem = stem(file);
    let ending = bare == (stem.len() == file.len());
    let tag = parts.first().is_some_and(|tag| is_tag(tag));
    tag && ending
        && stem.len() >= 6
        && stem.bytes().all(|b| b.is_ascii_digit())
        && parts[1..].iter().all(|part| part.contains('='))
}

/// Whether this is the name of the folder of one commit: 12 hexadecimal digits, perhaps `-2`.
fn is_tag(folder: &str) -> bool {
    let (hash, serial) = folder.split_once('-').unwrap_or((folder, "2"));
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    hash.len() == 12 && hash.bytes().all(hex) && !serial.is_empty() && serial.bytes().all(|b| b.is_ascii_digit())
}

/// The path of a shard without its compression and format: `t/000017` of `t/000017.tar.gz`.
pub(super) fn stem(path: &str) -> &str {
    let plain = [".gz", ".zst"].iter().find_map(|e| path.strip_suffix(e)).unwrap_or(path);
    [".parquet", ".tar", ".tfrecord", ".tfrecords"].iter().find_map(|e| plain.strip_suffix(e)).unwrap_or(path)
}

/// The stem of the shard that a file would be an index of; `None` for other files.
pub(super) fn index_stem(path: &str) -> Option<&str> {
    [".idx", ".tfindex"].iter().find_map(|e| path.strip_suffix(e)).map(stem)
}

/// Commits that versions before `readable_from` cannot be read any more. Shards and records stay as they are; runs that
/// only those versions contain leave the run table for the lineage, which is kept for ever; scattered ones just leave.
/// Versions that have a name stay readable: `tagged` are those whose objects are kept.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) when others keep committing, and when the store fails.
pub fn expire(
    dataset: &Dataset,
    readable_from: Version,
    tagged: &[Version],
    arguments: BTreeMap<String, String>,
) -> Result<Snapshot> {
    let transaction = TransactionId::fresh();
    until_created(dataset, "deleted", |attempt| {
        let parent = dataset.open()?;
        if parent.entry().readable_from >= readable_from {
            return Ok(Next::Nothing(Box::new(parent)));
        }
        let mut tags = parent.tags().iter();
        if let Some((name, version)) = tags.find(|(_, v)| **v < readable_from && !tagged.contains(v)) {
            return Err(Error::conflict(format!("another run gave {version} the tag `{name}` meanwhile"))
                .at(dataset.store().location().to_string())
                .hint("nothing was deleted; run the command again"));
        }
        let (runs, lineage) = run_lists(&parent, readable_from, &format!("{transaction}-{attempt}"))?;
        Ok(Next::Entry(Box::new(Entry {
            runs,
            lineage,
            places: places(&parent, readable_from, tagged)?,
            readable_from,
            ..after(parent.entry(), &transaction, "vacuum", arguments.clone())
        })))
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

    fn kind(path: &str) -> Option<ObjectKind> {
        match kind_of(path, &|path| path.starts_with("adopted/a.")) {
            Known::Object(kind) => Some(kind),
            Known::Permanent | Known::Foreign => None,
        }
    }

    #[test]
    fn only_what_lies_where_shardify_writes_is_ours() {
        for own in ["0123456789ab/000000.tar.gz", "0123456789ab-12/000001.parquet", "0123456789ab/y=1/000000.parquet"] {
            assert_eq!(kind(own), Some(ObjectKind::Shard), "{own}");
        }
        for index in ["0123456789ab/000000.idx", "0123456789ab/000000.tar.idx", "adopted/a.idx"] {
            assert_eq!(kind(index), Some(ObjectKind::ShardIndex), "{index}");
        }
        assert_eq!(kind("adopted/a.tar"), Some(ObjectKind::Shard));
        assert_eq!(kind("_shardify/sidecar/x/000000.parquet"), Some(ObjectKind::Sidecar));
        for foreign in [
            "notes.txt",
            "000000.tar",
            "0123456789ab/notes.txt",
            "0123456789ab/000000",
            "0123456789AB/000000.tar",
            "0123456789ab/deep/000000.tar",
            "my.idx",
            "_shardify/other/x",
            "_shardify/log/1.json",
            "_shardify/locks/x",
        ] {
            assert_eq!(kind(foreign), None, "{foreign}");
        }
    }
}
