//! Commits: how a transaction becomes the next version, or fails.
//!
//! A [`Transaction`] lists the shards to add and remove. [`commit`] writes the lists of the new version, then creates
//! the log entry only if no other run has created that version first. If one has, the transaction is rebased: record
//! numbers and versions are assigned again on top of the winner, which is always possible for added shards, and
//! possible for replaced ones while all of them are still live.
//!
//! ```text
//! shards, sidecars, segments (durable) -> lists (durable) -> entry, created if absent -> visible
//! ```
//!
//! A lost reply leaves the outcome unknown. The entry is then read back: it has the transaction id, so a run recognises
//! its own success. No object is deleted here, least of all when the outcome is unknown.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet, hash_map::RandomState},
    hash::BuildHasher,
    sync::Arc,
    time::Duration,
};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};
use jiff::Timestamp;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    codec::merkle,
    dataset::{
        index::{SegmentRef, places::PlaceRef},
        log::{
            clock,
            entry::{self, Counts, Entry, FORMAT_VERSION, Revision, Settings, Totals},
            erased, leases,
            retraction::{RemovedBy, Retraction, runs_of},
            root,
            runs::{self, Run},
            shards::{self, NewShard, ShardMeta},
            snapshot::{Dataset, Newest, Snapshot},
            sources::{self, NewSources, Optional, SourceRow},
        },
        table::{self, TableWriter, list::ListRef, paths::system_path},
    },
    error::{Effect, Error, Kind, Result},
    id::{TransactionId, Version, run_of_folder},
    storage::{PutOutcome, Staged, Store},
};

/// Lists of one level are merged when there are this many.
pub(in crate::dataset) const FAN_OUT: usize = 8;

/// Rows of a list that a small commit makes of others at most, 60 bytes each.
const MOST_MERGED_ROWS: u64 = 12_288;

/// Attempts to commit before giving up; each failed one means that somebody else succeeded.
const ATTEMPTS: usize = 100;

/// Maximum wait before the second attempt.
const FIRST_WAIT: Duration = Duration::from_millis(5);

/// The longest wait before any attempt.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What a run wants to commit.
pub struct Transaction<'a> {
    /// Names the run.
    pub id: TransactionId,
    /// `convert`, `compact`, ...
    pub operation: &'static str,
    /// Options that decided the output.
    pub arguments: BTreeMap<String, String>,
    /// Revisions of repositories that the sources lie in.
    pub revisions: Vec<Revision>,
    /// What was done.
    pub counts: Counts,
    /// What the dataset is from now on.
    pub settings: Settings,
    /// New shards.
    pub adds: Vec<NewShard>,
    /// Paths of shards that stop being live.
    pub removes: Vec<String>,
    /// New segments, with record numbers relative to the first new record.
    pub segments: Vec<SegmentRef>,
    /// Segments that become one.
    pub merges: Vec<SegmentMerge>,
    /// New sets of places of records that were sorted.
    pub places: Vec<PlaceRef>,
    /// What happens to records that the dataset has or had.
    pub retraction: Retraction<'a>,
    /// New sources, with record numbers relative to the first new record.
    pub sources: &'a dyn NewSources,
    /// Where the records of the new shards get their numbers.
    pub numbers: Numbers,
    /// How often [`commit`] was called for this run before: lists of these calls may have their names already.
    pub calls: usize,
}

/// Segments of the id index, by their paths, and the one that holds the pairs of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentMerge {
    /// Paths of those that it replaces.
    pub replaces: Vec<String>,
    /// The segment.
    pub by: SegmentRef,
}

impl Transaction<'static> {
    /// Replaces shards by others that hold the same records.
    pub fn compaction(
        parent: &Snapshot,
        arguments: BTreeMap<String, String>,
        counts: Counts,
        adds: Vec<NewShard>,
        removes: Vec<String>,
    ) -> Self {
        Self {
            id: TransactionId::fresh(),
            operation: "compact",
            arguments,
            revisions: Vec::new(),
            counts,
            // A target for one compaction is not the dataset's from then on.
            settings: parent.entry().settings.clone(),
            adds,
            removes,
            segments: Vec::new(),
            merges: Vec::new(),
            places: Vec::new(),
            retraction: Retraction::default(),
            sources: &(),
            numbers: Numbers::Kept,
            calls: 0,
        }
    }
}

/// Where record numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// These records are new: numbers in the transaction count from 0 and are shifted at commit.
    Fresh(u64),
    /// These records keep the numbers they have.
    Kept,
}

/// Makes the next version of the dataset. `planned_on` is the version that the run looked at when it started.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another run converted the same sources or replaced the same
/// shards; then nothing was committed. [`Kind::Storage`](crate::error::Kind::Storage) if the store fails.
pub fn commit(dataset: &Dataset, transaction: &Transaction<'_>, planned_on: Version) -> Result<Snapshot> {
    transaction.counts.reconcile()?;
    dataset.prove_store()?;
    leases::give_way(dataset, &transaction.id)?;
    until_created(dataset, (&transaction.id, planned_on), "committed", |attempt| {
        let parent = dataset.latest()?;
        if let Some(parent) = &parent {
            check_conflicts(parent, transaction, planned_on)?;
            check_paths(parent, transaction)?;
        }
        let attempt = transaction.calls * ATTEMPTS + attempt;
        let draft = Draft { dataset, transaction, attempt, staged: RefCell::default() };
        let entry = draft.entry(parent.as_ref())?;
        draft.publish()?;
        check_added(dataset.store().as_ref(), transaction)?;
        Ok(Next::Entry(Box::new(entry)))
    })
}

/// Fails unless the objects that the transaction adds to a remote store exist: an upload may have taken longer than
/// unreferenced objects are kept.
fn check_added(store: &dyn Store, transaction: &Transaction<'_>) -> Result<()> {
    if store.location().local_path().is_some() {
        return Ok(());
    }
    let adds = || transaction.adds.iter().chain(&transaction.retraction.rewritten);
    let sidecars: Vec<String> = adds().map(|shard| shard.meta.sidecar().path).collect();
    let shards = adds().map(|shard| (shard.meta.path.as_str(), Some(shard.meta.bytes)));
    let added: Vec<(&str, Option<u64>)> = shards.chain(sidecars.iter().map(|path| (path.as_str(), None))).collect();
    store.check_present(&added)
}

/// Result of preparing an attempt to commit.
pub(in crate::dataset) enum Next {
    /// The entry to be created.
    Entry(Box<Entry>),
    /// There is nothing to commit on this snapshot, which is the newest.
    Nothing(Box<Snapshot>),
}

/// Prepares entries, each on top of the newest version, until one is created or there is nothing to create. `run` is
/// the run's id and the version that it was based on before it wrote anything. `done` completes the error message if
/// other runs are faster each time.
///
/// No attempt is made on top of an entry that declares the run abandoned: its objects may be deleted by now.
pub(in crate::dataset) fn until_created(
    dataset: &Dataset,
    run: (&TransactionId, Version),
    done: &str,
    make: impl FnMut(usize) -> Result<Next>,
) -> Result<Snapshot> {
    created_within(ATTEMPTS, dataset, run, done, make)
}

/// Like [`until_created`], with another number of attempts.
pub(in crate::dataset) fn created_within(
    attempts: usize,
    dataset: &Dataset,
    (run, mut seen): (&TransactionId, Version),
    done: &str,
    mut make: impl FnMut(usize) -> Result<Next>,
) -> Result<Snapshot> {
    let mut failed_on = None;
    for attempt in 0..attempts {
        wait(attempt);
        let next = match make(attempt) {
            Err(error) => {
                check_overtaken(dataset, error, seen, &mut failed_on)?;
                continue;
            }
            Ok(next) => next,
        };
        match next {
            Next::Nothing(newest) => return Ok(*newest),
            Next::Entry(mut entry) => {
                let parent = Version(entry.version.0.saturating_sub(1));
                check_fences(dataset, run, seen, parent)?;
                seen = parent.max(seen);
                let version = entry.version;
                if let Some(erasures) = &mut entry.erasures {
                    erasures.drop_finished(dataset.store().as_ref(), version)?;
                }
                entry.root = root::of_entry(dataset, &entry)?;
                if create(dataset.store().as_ref(), &entry)? {
                    // The version may already be old and its lists vacuumed: what was committed stays committed.
                    let newest = Newest::of(&entry);
                    return Ok(dataset.snapshot_of(*entry, newest));
                }
            }
        }
    }
    Err(Error::conflict(format!("other runs committed {attempts} times in between"))
        .at(dataset.store().location().to_string())
        .hint(format!("nothing was {done}; try again when there is less traffic")))
}

/// Waits before an attempt to commit, for a random time that grows with the number of attempts: writers that wait
/// equally long would keep colliding.
fn wait(attempt: usize) {
    let Some(most) = longest_wait(attempt) else { return };
    let random = RandomState::new().hash_one(attempt) % u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
    std::thread::sleep(Duration::from_micros(random));
}

/// Returns the maximum wait before an attempt; `None` for the first.
fn longest_wait(attempt: usize) -> Option<Duration> {
    let doublings = u32::try_from(attempt.checked_sub(1)?).unwrap_or(u32::MAX);
    Some(FIRST_WAIT.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(LONGEST_WAIT))
}

/// Returns the error of an attempt unless other runs have committed since `seen`: then `vacuum` may have deleted what
/// the attempt read, and the next attempt uses the newest version. A version on which attempts fail twice is damaged.
fn check_overtaken(dataset: &Dataset, error: Error, seen: Version, failed_on: &mut Option<Version>) -> Result<()> {
    if !matches!(error.kind(), Kind::Storage | Kind::Integrity) {
        return Err(error);
    }
    match dataset.latest() {
        Ok(Some(newest)) if newest.version() > seen && *failed_on != Some(newest.version()) => {
            *failed_on = Some(newest.version());
            Ok(())
        }
        _ => Err(error),
    }
}

/// Returns the entry of a run that changes no record: it repeats its parent's state.
///
/// # Errors
/// If the store cannot tell the time.
pub(in crate::dataset) fn after(
    parent: &Snapshot,
    transaction: &TransactionId,
    operation: &str,
    arguments: BTreeMap<String, String>,
) -> Result<Entry> {
    let moment = clock::moment(parent.dataset(), Some(parent.entry()))?;
    let parent = parent.entry();
    Ok(Entry {
        format: FORMAT_VERSION,
        version: parent.version.next(),
        transaction: transaction.clone(),
        committed_at: moment.committed_at,
        corrections: moment.corrections,
        abandoned: Vec::new(),
        operation: operation.to_owned(),
        tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
        arguments,
        revisions: Vec::new(),
        counts: Counts::default(),
        ..parent.clone()
    })
}

/// Creates the entry; returns false if another run's entry exists.
fn create(store: &dyn Store, entry: &Entry) -> Result<bool> {
    let path = entry::path(entry.version);
    let outcome = store.put_if_absent(&path, entry::encode(entry)?.into());
    if matches!(outcome, Ok(PutOutcome::Created)) {
        return Ok(true);
    }
    if let Err(e) = &outcome
        && e.effect() == Effect::Certain
    {
        // Reading back would find the entry in memory, which proves nothing about the disk.
        let message = format!("version {} was written, but it may not survive a power cut", entry.version);
        let error = Error::storage(message).at(store.location().join(&path).to_string()).effect_is(Effect::Certain);
        return Err(error.cause(e.to_string()).hint(
            "nothing was deleted; check the disk, then run `shardify verify` to see which version is the newest",
        ));
    }
    // Either this version exists, possibly created by a request of this run whose reply was lost, or the store failed
    // before or after it wrote.
    match (entry::read(store, entry.version), outcome) {
        (Ok(Some(found)), _) => Ok(found.transaction == entry.transaction),
        (Ok(None), Err(e)) => Err(e),
        (Ok(None), Ok(_)) => Err(Error::storage("the store says that the log entry exists but does not return it")
            .at(store.location().join(&path).to_string())
            .effect_is(Effect::Possible)
            .hint("nothing was deleted; run the command again once the store is consistent")),
        (Err(e), _) => Err(e.effect_is(Effect::Possible)),
    }
}

fn check_conflicts(parent: &Snapshot, transaction: &Transaction<'_>, planned_on: Version) -> Result<()> {
    transaction.retraction.check(parent, planned_on)?;
    if parent.version() == planned_on {
        return Ok(());
    }
    if !transaction.removes.is_empty() {
        let live: HashSet<&str> = parent.shards()?.iter().map(|s| s.path.as_str()).collect();
        if let Some(gone) = transaction.removes.iter().find(|path| !live.contains(path.as_str())) {
            return Err(Error::conflict(format!("another run replaced the shard `{gone}` meanwhile"))
                .hint("nothing was committed; run the command again"));
        }
    }
    if let (Numbers::Fresh(_), Some(now)) = (transaction.numbers, &parent.entry().erasures)
        && parent.version() != planned_on
    {
        // Records of ids that were erased since may be among the new ones.
        let then = entry::read(parent.dataset().store().as_ref(), planned_on)?.and_then(|entry| entry.erasures);
        if then.map_or(0, |then| then.count) != now.count {
            return Err(Error::conflict("somebody was erased from the dataset meanwhile")
                .hint("nothing was committed; run the command again, it leaves out who was erased"));
        }
    }
    let hash = |uri: &str| xxh3_64(uri.as_bytes());
    let mine: HashSet<u64> = transaction.sources.rows().map(|source| hash(&source.uri)).collect();
    if mine.is_empty() {
        return Ok(());
    }
    parent.each_source(&mut |theirs| {
        let both = theirs.version > planned_on
            && theirs.removed.is_none()
            && mine.contains(&hash(&theirs.uri))
            && transaction.sources.rows().any(|source| source.uri == theirs.uri);
        if !both {
            return Ok(());
        }
        Err(Error::conflict(format!("another run converted the same source in version {}", theirs.version))
            .at(theirs.uri)
            .hint("nothing was committed; run the command again, it skips what is there"))
    })?;
    Ok(())
}

/// Fails if an entry newer than `seen`, up to `parent`, abandons the run.
fn check_fences(dataset: &Dataset, run: &TransactionId, seen: Version, parent: Version) -> Result<()> {
    match dataset.abandoned_by(run, seen, parent)? {
        None => Ok(()),
        Some(entry) => Err(Error::conflict(format!(
            "the {} of version {} took this run for abandoned and deletes what it wrote",
            entry.operation, entry.version
        ))
        .at(dataset.store().location().to_string())
        .hint("nothing was committed; run the command again, and let `vacuum` retain more than a run takes")),
    }
}

/// Fails on paths of shards that another version has, or whose bytes an erasure has replaced. Paths with the tag of the
/// run belong to no other run; the others are those of files adopted in place.
fn check_paths(parent: &Snapshot, transaction: &Transaction<'_>) -> Result<()> {
    let own = transaction.id.tag();
    let is_own = |path: &str| path.split('/').next().and_then(run_of_folder) == Some(own);
    let foreign: Vec<&str> =
        transaction.adds.iter().map(|shard| shard.meta.path.as_str()).filter(|path| !is_own(path)).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    let refused = |path: &str, why: &str| {
        Err(Error::conflict(format!("the path of this shard is that of {why}"))
            .at(parent.dataset().store().location().join(path).to_string())
            .hint("nothing was committed; give the file another name, or adopt it into another dataset with --out"))
    };
    let used = parent.paths_in_use()?;
    let stand_ins = erased::StandIns::of(parent.dataset().store().as_ref(), parent.entry())?;
    for path in foreign {
        if used.contains(path) {
            return refused(path, "a shard of a version that can be read");
        }
        if stand_ins.has_shard(path) {
            return refused(path, "a shard from which somebody was erased");
        }
    }
    Ok(())
}

/// One attempt to build the next version.
pub(in crate::dataset) struct Draft<'a> {
    pub(in crate::dataset) dataset: &'a Dataset,
    pub(in crate::dataset) transaction: &'a Transaction<'a>,
    pub(in crate::dataset) attempt: usize,
    /// Lists that have no names yet: all are published at once.
    pub(in crate::dataset) staged: RefCell<Vec<Staged>>,
}

impl Draft<'_> {
    pub(in crate::dataset) fn publish(&self) -> Result<()> {
        let staged = self.staged.take();
        if staged.is_empty() { Ok(()) } else { self.dataset.store().publish(staged) }
    }

    fn entry(&self, parent: Option<&Snapshot>) -> Result<Entry> {
        let old = parent.map(Snapshot::entry);
        let version = old.map_or(Version(0), |e| e.version).next();
        let base = old.map_or(0, |e| e.next_record);
        let (shift, fresh) = match self.transaction.numbers {
            Numbers::Fresh(records) => (base, records),
            Numbers::Kept => (0, 0),
        };
        let moment = clock::moment(self.dataset, old)?;
        let committed_at = moment.committed_at;
        let adds = self.numbered(shift, version, committed_at);
        let removed: HashSet<&str> = self.transaction.removes.iter().map(String::as_str).collect();
        let (shards, totals) = self.shard_lists(parent, &adds, &removed)?;
        Ok(Entry {
            format: FORMAT_VERSION,
            version,
            transaction: self.transaction.id.clone(),
            committed_at,
            operation: self.transaction.operation.to_owned(),
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
            arguments: self.transaction.arguments.clone(),
            revisions: self.transaction.revisions.clone(),
            counts: self.transaction.counts,
            settings: self.transaction.settings.clone(),
            totals,
            next_record: base + fresh,
            readable_from: old.map_or(Version(0), |e| e.readable_from),
            expired_from: old.map_or(Version(0), |e| e.expired_from),
            abandoned: Vec::new(),
            corrections: moment.corrections,
            tags: old.map_or_else(BTreeMap::new, |e| e.tags.clone()),
            shards,
            runs: self.run_lists(parent, &removed, shift, version)?,
            lineage: old.map_or_else(Vec::new, |e| e.lineage.clone()),
            sources: self.source_lists(old, shift, version)?,
            segments: self.segments(old, shift),
            places: old.into_iter().flat_map(|e| &e.places).chain(&self.transaction.places).cloned().collect(),
            erasures: old.and_then(|e| e.erasures.clone()),
            root: None,
        })
    }

    fn numbered(&self, shift: u64, version: Version, committed_at: Timestamp) -> Vec<ShardMeta> {
        let number = |shard: &NewShard, shift| ShardMeta {
            first_record: shard.meta.first_record + shift,
            version,
            committed_at,
            ..shard.meta.clone()
        };
        let retraction = &self.transaction.retraction;
        let adds = self.transaction.adds.iter().map(|shard| number(shard, shift));
        let rewritten = retraction.rewritten.iter().map(|shard| number(shard, 0));
        adds.chain(rewritten).chain(retraction.restored.iter().map(|one| one.shard.clone())).collect()
    }

    fn segments(&self, old: Option<&Entry>, shift: u64) -> Vec<SegmentRef> {
        let rebased =
            self.transaction.segments.iter().map(|s| SegmentRef { record_base: s.record_base + shift, ..s.clone() });
        let mut segments: Vec<SegmentRef> = old.into_iter().flat_map(|e| e.segments.iter().cloned()).collect();
        for merge in &self.transaction.merges {
            let replaced = |segment: &SegmentRef| merge.replaces.contains(&segment.path);
            // Where another run has merged some of them meanwhile, what it made has their pairs and stays.
            if segments.iter().filter(|segment| replaced(segment)).count() == merge.replaces.len() {
                segments.retain(|segment| !replaced(segment));
                segments.push(merge.by.clone());
            }
        }
        segments.extend(rebased);
        segments
    }

    /// Rows of lists that a commit may write again which adds so many: one shard more must not cost megabytes.
    fn most_rows(&self, added: usize) -> u64 {
        match self.transaction.numbers {
            Numbers::Fresh(_) => MOST_MERGED_ROWS.max(FAN_OUT as u64 * added as u64),
            Numbers::Kept => u64::MAX,
        }
    }

    pub(in crate::dataset) fn shard_lists(
        &self,
        parent: Option<&Snapshot>,
        adds: &[ShardMeta],
        removed: &HashSet<&str>,
    ) -> Result<(Vec<ListRef>, Totals)> {
        let mut lists = ListWriter::new(self, SHARDS);
        let mut totals = parent.map_or_else(Totals::default, |p| p.entry().totals);
        for list in parent.map_or(&[][..], |p| &p.entry().shards) {
            if removed.is_empty() {
                lists.keep(list.clone());
                continue;
            }
            let rows = shards::read(lists.store().as_ref(), &list.sealed())?;
            let (gone, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(|s| removed.contains(s.path.as_str()));
            if gone.is_empty() {
                lists.keep(list.clone());
            } else {
                lists.add(&shards::batch(&rest)?, list.level)?;
            }
            for shard in gone {
                totals.shards -= 1;
                totals.records -= shard.records;
                totals.bytes -= shard.bytes;
            }
        }
        lists.add(&shards::batch(adds)?, 0)?;
        for shard in adds {
            totals.shards += 1;
            totals.records += shard.records;
            totals.bytes += shard.bytes;
        }
        Ok((lists.merged(self.most_rows(adds.len()))?, totals))
    }

    pub(in crate::dataset) fn run_lists(
        &self,
        parent: Option<&Snapshot>,
        removed: &HashSet<&str>,
        shift: u64,
        version: Version,
    ) -> Result<Vec<ListRef>> {
        let mut lists = ListWriter::new(self, "runs");
        for list in parent.map_or(&[][..], |p| &p.entry().runs) {
            if removed.is_empty() {
                lists.keep(list.clone());
                continue;
            }
            let mut rows = runs::read(lists.store().as_ref(), &list.sealed())?;
            let mut changed = false;
            for run in rows.iter_mut().filter(|r| r.until.is_none() && removed.contains(r.shard.as_str())) {
                run.until = Some(version);
                changed = true;
            }
            if changed { lists.add(&runs::batch(&rows)?, list.level)? } else { lists.keep(list.clone()) }
        }
        let retraction = &self.transaction.retraction;
        let adds = self.transaction.adds.iter().flat_map(|shard| runs_of(shard, shift, version));
        let rewritten = retraction.rewritten.iter().flat_map(|shard| runs_of(shard, 0, version));
        let fresh: Vec<Run> = adds.chain(rewritten).chain(retraction.restored_runs(version)).collect();
        lists.add(&runs::batch(&fresh)?, 0)?;
        lists.merged(self.most_rows(fresh.len()))
    }

    fn source_lists(&self, old: Option<&Entry>, shift: u64, version: Version) -> Result<Vec<ListRef>> {
        let mut lists = ListWriter::new(self, "sources");
        for list in old.map_or(&[][..], |e| &e.sources) {
            match self.transaction.retraction.sources {
                Some(removed_by) => self.mark_sources(&mut lists, list, version, removed_by)?,
                None => lists.keep(list.clone()),
            }
        }
        let sources = self.transaction.sources;
        let (arrays, part_hashes) = (sources.have_arrays(), sources.have_part_hashes());
        let optional = Optional { arrays, part_hashes, removed: false };
        lists.write(0, &mut |add| {
            let mut fresh = self.transaction.sources.rows().map(|source| SourceRow {
                first_record: source.first_record + shift,
                version,
                ..source
            });
            loop {
                let rows: Vec<SourceRow> = fresh.by_ref().take(table::BATCH_ROWS).collect();
                if rows.is_empty() {
                    return Ok(());
                }
                add(&sources::batch(&rows, optional)?)?;
            }
        })?;
        lists.merged(u64::MAX)
    }
}

impl Draft<'_> {
    /// Keeps a list of sources, or writes it anew where sources were removed or restored.
    fn mark_sources(
        &self,
        lists: &mut ListWriter<'_>,
        list: &ListRef,
        version: Version,
        removed_by: &RemovedBy<'_>,
    ) -> Result<()> {
        let mut changed = false;
        sources::read(lists.store(), list, &mut |row| {
            changed |= removed_by(&row, version) != row.removed;
            Ok(())
        })?;
        if !changed {
            lists.keep(list.clone());
            return Ok(());
        }
        let optional = Optional { removed: true, ..Optional::of(&table::columns_of(lists.store(), list)?) };
        let store = lists.store();
        lists.write(list.level, &mut |add| {
            let mut pending = Vec::new();
            sources::read(store, list, &mut |row| {
                pending.push(SourceRow { removed: removed_by(&row, version), ..row });
                if pending.len() < table::BATCH_ROWS {
                    return Ok(());
                }
                add(&sources::batch(&std::mem::take(&mut pending), optional)?)
            })?;
            if pending.is_empty() { Ok(()) } else { add(&sources::batch(&pending, optional)?) }
        })
    }
}

/// The kind of lists of shards, whose rows are hashed.
const SHARDS: &str = "shards";

/// Takes rows of a list.
type Add<'a> = dyn FnMut(&RecordBatch) -> Result<()> + 'a;

/// Collects the lists of one kind for the next version, writing those that changed.
pub(in crate::dataset) struct ListWriter<'a> {
    draft: &'a Draft<'a>,
    kind: &'static str,
    lists: Vec<ListRef>,
    written: usize,
}

impl<'a> ListWriter<'a> {
    pub(in crate::dataset) fn new(draft: &'a Draft<'a>, kind: &'static str) -> Self {
        Self { draft, kind, lists: Vec::new(), written: 0 }
    }

    fn store(&self) -> &'a Arc<dyn Store> {
        self.draft.dataset.store()
    }

    pub(in crate::dataset) fn keep(&mut self, list: ListRef) {
        self.lists.push(list);
    }

    pub(in crate::dataset) fn add(&mut self, rows: &RecordBatch, level: u32) -> Result<()> {
        self.write(level, &mut |add| add(rows))
    }

    /// Writes a list; one without rows is left out.
    fn write(&mut self, level: u32, fill: &mut dyn FnMut(&mut Add<'_>) -> Result<()>) -> Result<()> {
        let name = format!(
            "lists/{}-{}-{}-{}.parquet",
            self.draft.transaction.id, self.draft.attempt, self.kind, self.written
        );
        let path = system_path(&name);
        let mut table = TableWriter::new(self.store().as_ref(), &path);
        let mut leaves = Vec::new();
        fill(&mut |rows| {
            if self.kind == SHARDS {
                leaves.extend(root::shard_leaves(rows)?);
            }
            table.add(rows)
        })?;
        if let Some((staged, rows)) = table.finish()? {
            let seal = staged.seal();
            self.draft.staged.borrow_mut().push(staged);
            self.written += 1;
            let root = (self.kind == SHARDS).then(|| merkle::root(&leaves));
            self.lists.push(ListRef { path, rows, level, root, seal });
        }
        Ok(())
    }

    /// Columns of several lists together; `None` for kinds that always have the same.
    fn schema_of(&self, lists: &[ListRef]) -> Result<Option<SchemaRef>> {
        let full = match self.kind {
            "runs" => runs::schema(),
            SHARDS => shards::schema(),
            "replaced" => erased::replaced_schema(),
            "rewritten" => erased::rewritten_schema(),
            "sources" => sources::schema(),
            _ => return Ok(None),
        };
        let mut known = HashSet::new();
        for list in lists {
            known.extend(table::columns_of(self.store(), list)?);
        }
        // Every list has those that cannot be null.
        let kept = full.fields().iter().filter(|field| !field.is_nullable() || known.contains(field.name().as_str()));
        Ok(Some(Arc::new(Schema::new(kept.cloned().collect::<Vec<_>>()))))
    }

    /// The lists, after merging each level that has become crowded into one list of the next level, where that is no more
    /// than `most` rows; all of them where the id index is merged, too, for then lookups are to be quick.
    pub(in crate::dataset) fn merged(mut self, most: u64) -> Result<Vec<ListRef>> {
        if !self.draft.transaction.merges.is_empty() && self.lists.len() > 1 {
            let level = self.lists.iter().map(|list| list.level).max().unwrap_or(0);
            let all = std::mem::take(&mut self.lists);
            self.merge(&all, level)?;
            return Ok(self.lists);
        }
        let mut level = 0;
        while self.lists.iter().any(|l| l.level >= level) {
            let (crowd, others): (Vec<_>, Vec<_>) = self.lists.iter().cloned().partition(|l| l.level == level);
            if crowd.len() >= FAN_OUT && crowd.iter().map(|list| list.rows).sum::<u64>() <= most {
                self.lists = others;
                self.merge(&crowd, level + 1)?;
            }
            level += 1;
        }
        Ok(self.lists)
    }

    /// Makes one list of several.
    fn merge(&mut self, lists: &[ListRef], level: u32) -> Result<()> {
        // One of them may be new.
        self.draft.publish()?;
        let store = self.store();
        let schema = self.schema_of(lists)?;
        self.write(level, &mut |add| {
            let add = &mut |rows: &RecordBatch| match &schema {
                Some(schema) => add(&table::completed(rows, schema)?),
                None => add(rows),
            };
            lists.iter().try_for_each(|list| table::read_batches(store, list, add))
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{
        codec::Codec,
        dataset::{
            ids::IdKind,
            log::{
                order::{Arrangement, Order, ShardOrder},
                root::VersionTree,
                runs::Scattered,
                tags::tag,
            },
            table::paths::sidecar_path,
        },
        error::Kind,
        format::OutputFormat,
        storage::RemoteStore,
        units::Size,
    };

    fn dataset() -> Dataset {
        Dataset::new(Arc::new(RemoteStore::memory().unwrap()))
    }

    /// Commits a transaction whose shards were published.
    fn commit(dataset: &Dataset, transaction: &Transaction<'_>, planned_on: Version) -> Result<Snapshot> {
        for shard in &transaction.adds {
            let bytes = vec![0; usize::try_from(shard.meta.bytes).unwrap()];
            dataset.store().put(&shard.meta.path, bytes.into()).unwrap();
            dataset.store().put(&sidecar_path(&shard.meta.path), "".into()).unwrap();
        }
        super::commit(dataset, transaction, planned_on)
    }

    #[test]
    fn waits_grow_and_end() {
        let waits: Vec<_> = (0..200).map(longest_wait).collect();
        assert_eq!(waits[..3], [None, Some(FIRST_WAIT), Some(2 * FIRST_WAIT)]);
        assert!(waits.is_sorted() && waits[199] == Some(LONGEST_WAIT));
    }

    #[test]
    fn what_is_not_there_is_not_committed() {
        let dataset = dataset();
        let transaction = || transaction(vec![shard("tag/000000.tar", 0, 10)], &[], Numbers::Fresh(10));
        let store = dataset.store();
        let refused = || super::commit(&dataset, &transaction(), Version(0)).unwrap_err();
        assert!(refused().to_string().contains("tag/000000.tar"));
        store.put("tag/000000.tar", vec![0; 99].into()).unwrap();
        assert!(refused().message().contains("100 bytes"));
        store.put("tag/000000.tar", vec![0; 100].into()).unwrap();
        assert!(refused().to_string().contains("/sidecar/"));
        assert!(dataset.latest().unwrap().is_none());
        store.put(&sidecar_path("tag/000000.tar"), "".into()).unwrap();
        super::commit(&dataset, &transaction(), Version(0)).unwrap();
    }

    fn shard(path: &str, first: u64, records: u64) -> NewShard {
        let meta = ShardMeta {
            path: path.into(),
            records,
            bytes: 10 * records,
            codec: Codec::None,
            raw_bytes: 10 * records,
            checksum: [0; 32],
            body_offset: 0,
            body_bytes: 0,
            body_crc32: 0,
            compacted_for: 0,
            first_record: first,
            version: Version(0),
            committed_at: Timestamp::UNIX_EPOCH,
            order: None,
            beside: None,
        };
        NewShard { meta, runs: vec![(first, records, 0)], scattered: None }
    }

    fn transaction(adds: Vec<NewShard>, removes: &[&str], numbers: Numbers) -> Transaction<'static> {
        Transaction {
            id: TransactionId::fresh(),
            operation: "convert",
            arguments: BTreeMap::new(),
            revisions: Vec::new(),
            counts: Counts::default(),
            settings: Settings {
                shard_format: OutputFormat::Tar,
                codec: Codec::None,
                target_shard: Size::mib(128),
                row_group: Size::mib(64),
                id: Vec::new(),
                subject: None,
                subjects_from: None,
                indexes: Vec::new(),
                private: None,
            },
            adds,
            removes: removes.iter().map(|s| (*s).to_owned()).collect(),
            segments: Vec::new(),
            merges: Vec::new(),
            places: Vec::new(),
            retraction: Retraction::default(),
            sources: &(),
            numbers,
            calls: 0,
        }
    }

    #[test]
    fn records_are_numbered_in_commit_order_and_compaction_keeps_the_numbers() {
        let dataset = dataset();
        for name in ["a", "b"] {
            commit(&dataset, &transaction(vec![shard(name, 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        }
        let mut merged = shard("c", 0, 20);
        merged.runs = vec![(0, 10, 0), (10, 10, 10)];
        let snapshot = commit(&dataset, &transaction(vec![merged], &["a", "b"], Numbers::Kept), Version(2)).unwrap();
        assert_eq!(snapshot.version(), Version(3));
        assert_eq!(snapshot.entry().totals, Totals { shards: 1, records: 20, bytes: 200 });
        assert_eq!(snapshot.entry().next_record, 20);
        let runs = snapshot.runs().unwrap();
        let places: Vec<_> = runs.of_record(13).iter().map(|r| (r.shard.as_str(), r.from.0, r.until)).collect();
        assert_eq!(places, [("b", 2, Some(Version(3))), ("c", 3, None)]);
        // The old version is unchanged.
        assert_eq!(dataset.at(Version(2)).unwrap().shards().unwrap().len(), 2);
    }

    #[test]
    fn segments_that_were_merged_are_replaced_once_and_only_while_all_of_them_are_there() {
        let dataset = dataset();
        let segment = |path: &str, record_base| SegmentRef {
            kind: IdKind::Record,
            path: path.into(),
            record_base,
            pairs: 10,
            buckets: 1,
            bytes: 0,
            root: None,
            seals: Vec::new(),
        };
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            let mut append = transaction(vec![shard(name, 0, 10)], &[], Numbers::Fresh(10));
            append.segments = vec![segment(name, 0)];
            commit(&dataset, &append, Version(i as u64)).unwrap();
        }
        let merge = |replaces: &[&str], by: &str| {
            let mut merge = transaction(Vec::new(), &[], Numbers::Kept);
            let replaces = replaces.iter().map(|path| (*path).to_owned()).collect();
            merge.merges = vec![SegmentMerge { replaces, by: segment(by, 0) }];
            let snapshot = commit(&dataset, &merge, Version(3)).unwrap();
            let paths: Vec<_> = snapshot.entry().segments.iter().map(|s| (s.path.clone(), s.record_base)).collect();
            paths
        };
        assert_eq!(merge(&["a", "b"], "ab"), [("c".into(), 20), ("ab".into(), 0)]);
        // Another run, planned on the same version, comes too late.
        assert_eq!(merge(&["a", "b", "c"], "abc"), [("c".into(), 20), ("ab".into(), 0)]);
        assert_eq!(merge(&["ab", "c"], "all"), [("all".into(), 0)]);
    }

    #[test]
    fn each_version_has_the_root_of_what_it_refers_to() {
        let dataset = dataset();
        let root = |snapshot: &Snapshot| VersionTree::new(snapshot, None).unwrap().root();
        let mut roots = Vec::new();
        for i in 0..20 {
            let add = shard(&format!("s{i}"), 0, 1);
            commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(1)), Version(i)).unwrap();
            let snapshot = dataset.open().unwrap();
            root::check_root(&snapshot).unwrap();
            assert_eq!(snapshot.entry().root, Some(root(&snapshot)), "{i}");
            roots.extend(snapshot.entry().root);
        }
        // An entry that changes nothing but its number has another root; each version keeps its own.
        let tagged = tag(&dataset, "gold", Version(5)).unwrap();
        assert!(tagged.entry().root.is_some_and(|root| !roots.contains(&root)));
        roots.sort_unstable();
        roots.dedup();
        assert_eq!(roots.len(), 20);
        // Without hashes in the log, as in older releases, the root is that of all shards; commits still work.
        let mut entry = dataset.open().unwrap().entry().clone();
        entry.version = entry.version.next();
        entry.root = None;
        entry.shards.iter_mut().for_each(|list| list.root = None);
        assert!(create(dataset.store().as_ref(), &entry).unwrap());
        let all = dataset.open().unwrap();
        assert_eq!(root::of_entry(&dataset, &entry).unwrap(), None);
        assert_ne!(root(&all), root(&tagged));
        let more = transaction(vec![shard("more", 0, 1)], &[], Numbers::Fresh(1));
        assert_eq!(commit(&dataset, &more, entry.version).unwrap().entry().root, None);
    }

    #[test]
    fn a_list_or_an_entry_that_was_changed_is_noticed() {
        let dataset = dataset();
        for i in 0..2 {
            let add = shard(&format!("s{i}"), 0, 1);
            commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(1)), Version(i)).unwrap();
        }
        let entry = dataset.open().unwrap().entry().clone();
        let mut changed = entry.clone();
        changed.version = Version(3);
        assert!(create(dataset.store().as_ref(), &changed).unwrap());
        let problem = |dataset: &Dataset| root::check_root(&dataset.open().unwrap()).unwrap_err().to_string();
        assert!(problem(&dataset).contains("does not follow"), "another version has another root");
        let other = dataset.store().get(&entry.shards[1].path).unwrap().unwrap();
        dataset.store().put(&entry.shards[0].path, other).unwrap();
        let error = root::check_root(&dataset.open().unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.place().byte), (Kind::Integrity, Some(0)), "{error}");
        // A list of an older release has no seal, but a root.
        let mut old = entry.clone();
        old.version = Version(4);
        old.shards.iter_mut().for_each(|list| list.seal = None);
        assert!(create(dataset.store().as_ref(), &old).unwrap());
        assert!(problem(&dataset).contains("found another"));
    }

    #[test]
    fn replacing_a_shard_twice_is_a_conflict_and_commits_nothing() {
        let dataset = dataset();
        commit(&dataset, &transaction(vec![shard("a", 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        commit(&dataset, &transaction(vec![shard("b", 0, 10)], &["a"], Numbers::Kept), Version(1)).unwrap();
        let late = commit(&dataset, &transaction(vec![shard("c", 0, 10)], &["a"], Numbers::Kept), Version(1));
        assert_eq!(late.unwrap_err().kind(), crate::error::Kind::Conflict);
        assert_eq!(dataset.latest().unwrap().unwrap().version(), Version(2));
    }

    #[test]
    fn an_entry_holds_few_lists_after_many_commits() {
        let dataset = dataset();
        for i in 0..100 {
            let add = shard(&format!("s{i}"), 0, 1);
            commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(1)), Version(i)).unwrap();
        }
        let snapshot = dataset.open().unwrap();
        assert!(snapshot.entry().shards.len() < 3 * FAN_OUT, "{}", snapshot.entry().shards.len());
        assert_eq!(snapshot.shards().unwrap().len(), 100);
        assert_eq!(snapshot.shards().unwrap()[57].path, "s57");
    }

    #[test]
    fn lists_with_and_without_orders_are_merged() {
        let dataset = dataset();
        let append = |i: u64| {
            let add = shard(&format!("s{i}"), 0, 2);
            commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(2)), Version(i)).unwrap()
        };
        (0..10).for_each(|i| assert_eq!(append(i).entry().format, FORMAT_VERSION));
        let mut sorted = shard("sorted", 0, 4);
        let scattered = Scattered { span: 4, set: "set".into(), shard: 0 };
        sorted.scattered = Some(scattered.clone());
        let order = Order { by: Arrangement::Sort, columns: vec!["x".into()] };
        let order = ShardOrder { order, set: "set".into() };
        sorted.meta.order = Some(order.clone());
        let place = PlaceRef {
            path: "_shardify/index/place/set/000000.parquet".into(),
            set: "set".into(),
            first: 0,
            last: 3,
            rows: 4,
            bytes: 0,
            seal: None,
        };
        let mut sort = transaction(vec![sorted], &["s0", "s1"], Numbers::Kept);
        sort.places = vec![place.clone()];
        commit(&dataset, &sort, Version(10)).unwrap();
        (11..40).for_each(|i| assert_eq!(append(i).version(), Version(i + 1)));
        let snapshot = dataset.open().unwrap();
        assert_eq!(snapshot.entry().places, [place]);
        let orders: Vec<_> = snapshot.shards().unwrap().iter().filter_map(|s| s.order.clone()).collect();
        assert_eq!(orders, [order]);
        let runs = snapshot.runs().unwrap();
        assert_eq!(runs.of_record(2).into_iter().filter_map(|r| r.scattered.clone()).collect::<Vec<_>>(), [scattered]);
        assert_eq!(runs.all().len(), 40);
    }

    #[test]
    fn a_run_that_was_abandoned_commits_nothing() {
        let dataset = dataset();
        commit(&dataset, &transaction(vec![shard("a", 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        let late = transaction(vec![shard("b", 0, 10)], &[], Numbers::Fresh(10));
        let parent = dataset.open().unwrap();
        let mut entry = after(&parent, &TransactionId::fresh(), "vacuum", BTreeMap::new()).unwrap();
        entry.abandoned = vec![late.id.tag().to_owned()];
        assert!(create(dataset.store().as_ref(), &entry).unwrap());
        // However many versions come in between.
        let other = transaction(vec![shard("c", 0, 10)], &[], Numbers::Fresh(10));
        commit(&dataset, &other, Version(1)).unwrap();
        let error = commit(&dataset, &late, Version(1)).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Conflict);
        assert_eq!(dataset.latest().unwrap().unwrap().version(), Version(3));
    }

    #[test]
    fn a_path_that_another_version_has_is_not_added_again() {
        let dataset = dataset();
        commit(&dataset, &transaction(vec![shard("a", 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        commit(&dataset, &transaction(vec![shard("b", 0, 10)], &["a"], Numbers::Kept), Version(1)).unwrap();
        for path in ["a", "b"] {
            let again = commit(&dataset, &transaction(vec![shard(path, 0, 1)], &[], Numbers::Fresh(1)), Version(2));
            assert_eq!(again.unwrap_err().kind(), crate::error::Kind::Conflict, "{path}");
        }
        assert_eq!(dataset.latest().unwrap().unwrap().version(), Version(2));
    }

    #[test]
    fn concurrent_appends_all_succeed_and_lose_nothing() {
        let dataset = dataset();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let dataset = dataset.clone();
                scope.spawn(move || {
                    for i in 0..10 {
                        let add = shard(&format!("t{thread}-{i}"), 0, 3);
                        commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(3)), Version(0)).unwrap();
                    }
                });
            }
        });
        let snapshot = dataset.open().unwrap();
        assert_eq!(snapshot.version(), Version(40));
        assert_eq!(snapshot.entry().totals.records, 120);
        let mut firsts: Vec<u64> = snapshot.shards().unwrap().iter().map(|s| s.first_record).collect();
        firsts.dedup();
        assert_eq!(firsts, (0..40).map(|i| i * 3).collect::<Vec<_>>());
    }

    #[test]
    fn a_version_is_found_by_instant() {
        let dataset = dataset();
        for i in 0..5 {
            let add = shard(&format!("s{i}"), 0, 1);
            commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(1)), Version(i)).unwrap();
        }
        let third = dataset.at(Version(3)).unwrap().entry().committed_at;
        assert_eq!(dataset.version_at(third).unwrap(), Some(Version(3)));
        assert_eq!(dataset.version_at(Timestamp::UNIX_EPOCH).unwrap(), None);
        assert_eq!(dataset.version_at(Timestamp::now()).unwrap(), Some(Version(5)));
    }
}
