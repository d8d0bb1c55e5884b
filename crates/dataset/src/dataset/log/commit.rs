//! Commits: how a transaction becomes the next version, or fails.
//!
//! A [`Transaction`] lists the shards to add and remove. [`commit_transaction`] writes the lists of the new version,
//! then creates the log entry only if no other run has created that version first. If one has, the transaction is
//! rebased: record numbers and versions are assigned again on top of the winner, which is always possible for added
//! shards, and possible for replaced ones while all of them are still live.
//!
//! ```text
//! shards, sidecars, segments (durable) -> lists (durable) -> entry, created if absent -> visible
//! ```
//!
//! A lost reply leaves the outcome unknown. The entry is then read back: it has the transaction id, so a run recognises
//! its own success. While the outcome is unknown, no object is deleted.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
};

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    dataset::{
        index::SegmentRef,
        log::{
            attempts::{self, Attempts},
            clock,
            draft::Draft,
            entry::{self, Counts, Entry, FORMAT_VERSION, Settings},
            erased,
            leases::CommitDelay,
            operation::Operation,
            root,
            snapshot::{Dataset, Newest, Snapshot},
            transaction::{Numbers, Transaction},
        },
    },
    error::{Effect, Error, Kind, Result},
    format::index::IndexKind,
    id::{TransactionId, Version, run_of_folder},
    schema::bound,
    storage::{NewEntry, Store},
};

/// Makes the next version of the dataset. `planned_on` is the version that the run looked at when it started.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another run converted the same sources or replaced the same
/// shards; then nothing was committed. [`Kind::Storage`](crate::error::Kind::Storage) if the store fails.
pub fn commit_transaction(dataset: &Dataset, transaction: &Transaction<'_>, planned_on: Version) -> Result<Snapshot> {
    transaction.counts.reconcile()?;
    dataset.test_store()?;
    let committed = until_created(dataset, &transaction.id, planned_on, "committed", |attempt| {
        let parent = dataset.newest_snapshot()?;
        if let Some(parent) = &parent {
            check_conflicts(parent, transaction, planned_on)?;
            check_paths(parent, transaction)?;
        }
        let draft = Draft::new(dataset, transaction, transaction.calls * attempts::MOST, attempt);
        let entry = draft.build_entry(parent.as_ref())?;
        draft.publish_staged()?;
        check_added(dataset.store().as_ref(), transaction)?;
        Ok(Next::Entry(Box::new(entry)))
    })?;
    drop_merged(dataset.store().as_ref(), transaction, committed.entry());
    Ok(committed)
}

/// Deletes the segments of a run that its own entry has in others: no entry names them. What stays here is found by
/// `vacuum`.
fn drop_merged(store: &dyn Store, transaction: &Transaction<'_>, entry: &Entry) {
    let named: HashSet<&str> = entry.segments.iter().map(|segment| segment.path.as_str()).collect();
    let gone = transaction.segments.iter().filter(|segment| !named.contains(segment.path.as_str()));
    let gone: Vec<String> = gone.flat_map(SegmentRef::bucket_paths).collect();
    let _ = store.delete_all(&gone);
}

/// Fails unless the objects that the transaction adds to a remote store exist: an upload may have taken longer than
/// unreferenced objects are kept.
pub(super) fn check_added(store: &dyn Store, transaction: &Transaction<'_>) -> Result<()> {
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

/// An attempt to make the next version.
pub(in crate::dataset) struct Attempt {
    /// How many there were before it.
    pub(in crate::dataset) number: usize,
    /// The tables that were published for it, under names that no other attempt uses.
    pub(in crate::dataset) published: RefCell<Vec<String>>,
}

impl Attempt {
    /// Deletes what was published, because it is certain that no entry names it. `vacuum` deletes it if this fails.
    fn discard_published(self, dataset: &Dataset) {
        let _ = dataset.store().delete_all(&self.published.take());
    }
}

/// Prepares entries, each on top of the newest version, until one is created or there is nothing to create. `run` is
/// the run's id, and `planned_on` the version that it was based on before it wrote anything. `done` completes the error
/// message if other runs are faster each time.
///
/// No attempt is made on top of an entry that declares the run abandoned: its objects may be deleted by now. Attempts
/// are delayed for an erasure that asks for it.
pub(in crate::dataset) fn until_created(
    dataset: &Dataset,
    run: &TransactionId,
    planned_on: Version,
    done: &str,
    mut make: impl FnMut(&Attempt) -> Result<Next>,
) -> Result<Snapshot> {
    let mut delay = CommitDelay::new(dataset, run);
    created_within(attempts::MOST, dataset, run, planned_on, done, |attempt| {
        delay.wait_for_erasures()?;
        make(attempt)
    })
}

/// Like [`until_created`], with another number of attempts, and without delay.
pub(in crate::dataset) fn created_within(
    most: usize,
    dataset: &Dataset,
    run: &TransactionId,
    planned_on: Version,
    done: &str,
    mut make: impl FnMut(&Attempt) -> Result<Next>,
) -> Result<Snapshot> {
    let (mut seen, mut failed_on, mut made) = (planned_on, None, 0);
    for attempt in Attempts::at_most(most) {
        made += 1;
        let attempt = Attempt { number: attempt, published: RefCell::default() };
        let next = match make(&attempt) {
            Err(error) => {
                attempt.discard_published(dataset);
                check_overtaken(dataset, error, seen, &mut failed_on)?;
                continue;
            }
            Ok(next) => next,
        };
        match next {
            Next::Nothing(newest) => return Ok(*newest),
            Next::Entry(mut entry) => {
                if let Err(error) = complete_entry(dataset, run, seen, &mut entry) {
                    attempt.discard_published(dataset);
                    return Err(error);
                }
                seen = Version(entry.version.0.saturating_sub(1)).max(seen);
                if create_entry(dataset, &entry)? {
                    // The version may already be old and its lists vacuumed: what was committed stays committed.
                    let newest = Newest::from_entry(&entry);
                    return Ok(dataset.snapshot_of(*entry, newest));
                }
                attempt.discard_published(dataset);
            }
        }
    }
    Err(Error::conflict(format!("other runs committed {made} times in between"))
        .at_location(dataset.store().location().to_string())
        .with_hint(format!("nothing was {done}; try again when there is less traffic")))
}

/// Checks that an entry may be created, and adds what follows from it.
fn complete_entry(dataset: &Dataset, run: &TransactionId, seen: Version, entry: &mut Entry) -> Result<()> {
    IndexKind::check_built(&entry.settings.indexes)?;
    check_fences(dataset, run, seen, Version(entry.version.0.saturating_sub(1)))?;
    if let Some(erasures) = &mut entry.erasures {
        erasures.drop_finished(dataset.store().as_ref(), entry.version)?;
    }
    entry.root = Some(root::of_entry(dataset, entry)?);
    Ok(())
}

/// Returns the error of an attempt unless other runs have committed since `seen`: then `vacuum` may have deleted what
/// the attempt read, and the next attempt uses the newest version. A version on which attempts fail twice is damaged.
fn check_overtaken(dataset: &Dataset, error: Error, seen: Version, failed_on: &mut Option<Version>) -> Result<()> {
    if !matches!(error.kind(), Kind::Storage | Kind::Integrity) {
        return Err(error);
    }
    match dataset.newest_snapshot() {
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
pub(in crate::dataset) fn entry_after(
    parent: &Snapshot,
    transaction: &TransactionId,
    operation: Operation,
    arguments: BTreeMap<String, String>,
) -> Result<Entry> {
    let moment = clock::commit_moment(parent.dataset(), Some(parent.entry()))?;
    let parent = parent.entry();
    Ok(Entry {
        format: FORMAT_VERSION,
        version: parent.version.next(),
        transaction: transaction.clone(),
        committed_at: moment.committed_at,
        corrections: moment.corrections,
        abandoned: Vec::new(),
        operation,
        tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
        arguments,
        revisions: Vec::new(),
        counts: Counts::default(),
        ..parent.clone()
    })
}

/// Creates the entry; returns false if another run's entry exists.
fn create_entry(dataset: &Dataset, entry: &Entry) -> Result<bool> {
    let new = NewEntry {
        path: &entry::entry_path(entry.version),
        version: &entry.version,
        name: "log entry",
        unsure: "nothing was deleted; check the disk, then run `shardify verify` to see which version is the newest",
    };
    let is_own = || Ok(dataset.find_entry(entry.version)?.map(|found| found.transaction == entry.transaction));
    let created = new.create(dataset.store().as_ref(), entry::encode_entry(entry)?.into(), is_own)?;
    Ok(created && !is_taken_again(dataset, entry)?)
}

/// Whether the name of an entry that was just created had been another's: a vacuum deletes the entries of versions that
/// nobody reads any longer, and a run may have been paused for so long. What was created is deleted then.
fn is_taken_again(dataset: &Dataset, entry: &Entry) -> Result<bool> {
    let unsure = |error: Error| error.with_effect(Effect::Possible);
    if entry::newest_version(dataset.store().as_ref()).map_err(unsure)? <= Some(entry.version) {
        return Ok(false);
    }
    let Some(newest) = dataset.newest_snapshot().map_err(unsure)? else { return Ok(false) };
    if newest.version() <= entry.version || newest.readable_from() <= entry.version {
        return Ok(false);
    }
    // What is tagged has an entry of its own, whose name was never free.
    let past = dataset.past_entries(newest.entry(), entry.version).map_err(unsure)?;
    if past.get(&entry.version).is_none_or(|known| known.transaction == entry.transaction) {
        return Ok(false);
    }
    dataset.store().delete(&entry::entry_path(entry.version)).map_err(unsure)?;
    Ok(true)
}

fn check_conflicts(parent: &Snapshot, transaction: &Transaction<'_>, planned_on: Version) -> Result<()> {
    transaction.retraction.check_conflicts(parent, planned_on)?;
    if parent.version() == planned_on {
        return Ok(());
    }
    if let (Some(mine), Some(theirs)) = (&transaction.settings.classes, &parent.entry().settings.classes)
        && !mine.starts_with(theirs)
        && !theirs.starts_with(mine)
    {
        return Err(Error::conflict("another run gave the numbers of new classes to other folders meanwhile")
            .with_hint("nothing was committed; run the command again, it gives its classes the next numbers"));
    }
    check_types(parent, transaction, planned_on)?;
    check_units(parent, transaction, planned_on)?;
    if transaction.settings.hashes != parent.entry().settings.hashes && !transaction.segments.is_empty() {
        return Err(Error::conflict("another run made the dataset meanwhile, with other hashes in its id index")
            .with_hint("nothing was committed; run the command again, it makes the hashes that the dataset has"));
    }
    if !transaction.removes.is_empty() {
        let live: HashSet<&str> = parent.live_shards()?.iter().map(|s| s.path.as_str()).collect();
        if let Some(gone) = transaction.removes.iter().find(|path| !live.contains(path.as_str())) {
            return Err(Error::conflict(format!("another run replaced the shard `{gone}` meanwhile"))
                .with_hint("nothing was committed; run the command again"));
        }
    }
    if let (Numbers::Fresh(_), Some(now)) = (transaction.numbers, &parent.entry().erasures)
        && parent.version() != planned_on
    {
        // Records of ids that were erased since may be among the new ones.
        let then = parent.dataset().find_entry(planned_on)?.and_then(|entry| entry.erasures);
        if then.map_or(0, |then| then.count) != now.count {
            return Err(Error::conflict("somebody was erased from the dataset meanwhile")
                .with_hint("nothing was committed; run the command again, it omits who was erased"));
        }
    }
    check_duplicates(parent, transaction, planned_on)?;
    let hash = |uri: &str| xxh3_64(uri.as_bytes());
    let mut mine: HashSet<u64> = HashSet::new();
    transaction.sources.each_row(&mut |source| {
        mine.insert(hash(&source.uri));
        Ok(())
    })?;
    if mine.is_empty() {
        return Ok(());
    }
    parent.each_source(&mut |theirs| {
        let both = theirs.version > planned_on
            && theirs.removed.is_none()
            && mine.contains(&hash(&theirs.uri))
            && has_source(transaction, &theirs.uri)?;
        if !both {
            return Ok(());
        }
        Err(Error::conflict(format!("another run converted the same source in version {}", theirs.version))
            .at_location(theirs.uri)
            .with_hint("nothing was committed; run the command again, it skips what is there"))
    })?;
    Ok(())
}

/// Fails if another run has given a column a type since that does not hold what this run has written, or the other way
/// round.
fn check_types(parent: &Snapshot, transaction: &Transaction<'_>, planned_on: Version) -> Result<()> {
    let (mine, theirs) = (&transaction.settings, &parent.entry().settings);
    if transaction.operation != Operation::Convert || (&mine.types, &mine.label_types) == (&None, &None) {
        return Ok(());
    }
    let then = parent.dataset().find_entry(planned_on)?.map(|entry| entry.settings);
    let differs =
        [|of: &Settings| of.types.clone(), |of: &Settings| of.label_types.clone()].into_iter().find_map(|of| {
            let (mine, theirs) = (of(mine)?, of(theirs)?);
            let is_as_planned = then.as_ref().and_then(of).as_ref() == Some(&theirs);
            let differs = || bound::type_conflict(&theirs, &mine).or_else(|| bound::type_conflict(&mine, &theirs));
            if is_as_planned { None } else { differs() }
        });
    differs.map_or(Ok(()), |(column, one, other)| {
        Err(Error::conflict(format!("another run gave a column another type meanwhile, {one} beside {other}"))
            .in_column(column)
            .with_hint("nothing was committed; run the command again, it compares with the types that the dataset has"))
    })
}

/// Fails if another run has stated another unit of a column since.
fn check_units(parent: &Snapshot, transaction: &Transaction<'_>, planned_on: Version) -> Result<()> {
    let (mine, theirs) = (&transaction.settings.units, &parent.entry().settings.units);
    let differs = |(column, unit): &(&String, &String)| theirs.get(*column).is_some_and(|other| other != *unit);
    let Some((column, unit)) = mine.iter().find(differs).filter(|_| transaction.operation == Operation::Convert) else {
        return Ok(());
    };
    let then = parent.dataset().find_entry(planned_on)?.map(|entry| entry.settings.units).unwrap_or_default();
    if then.get(column) == theirs.get(column) {
        return Ok(());
    }
    Err(Error::conflict(format!("another run gave a column another unit meanwhile, not `{unit}`"))
        .in_column(column.clone())
        .with_hint("nothing was committed; run the command again, it compares with the units that the dataset has"))
}

/// Fails if records were added since the run looked for duplicates of those that the dataset held, or if records were
/// taken out of which it may have omitted duplicates.
fn check_duplicates(parent: &Snapshot, transaction: &Transaction<'_>, planned_on: Version) -> Result<()> {
    if transaction.operation != Operation::Convert {
        return Ok(());
    }
    let again = |what: &str| {
        Err(Error::conflict(what)
            .with_hint("nothing was committed; run the command again, it compares with these records"))
    };
    let (mine, theirs) = (&transaction.settings.dedup, &parent.entry().settings.dedup);
    if theirs.is_some() && mine != theirs {
        return again("another run began to omit duplicates meanwhile");
    }
    if mine.is_none() || transaction.arguments.get("dedup").is_some_and(|text| text == "none") {
        return Ok(());
    }
    let omits = transaction.counts.records_deduplicated > 0;
    for version in planned_on.0 + 1..=parent.version().0 {
        let entry = parent.dataset().find_entry(Version(version))?;
        let adds = |entry: Entry| {
            if entry.operation.imports_sources() {
                entry.counts.records_out > 0
            } else {
                entry.counts.records_restored > 0
            }
        };
        let removes = |entry: &Entry| entry.operation == Operation::Erase || entry.counts.records_removed > 0;
        if omits && entry.as_ref().is_some_and(removes) {
            return again("another run removed records meanwhile, of which this one may have omitted duplicates");
        }
        if entry.is_none_or(adds) {
            return again("another run added records meanwhile, which may be the same as those of this one");
        }
    }
    Ok(())
}

/// Whether a transaction adds a source.
fn has_source(transaction: &Transaction<'_>, uri: &str) -> Result<bool> {
    let mut found = false;
    transaction.sources.each_row(&mut |source| {
        found |= source.uri == uri;
        Ok(())
    })?;
    Ok(found)
}

/// Fails if an entry newer than `seen`, up to `parent`, abandons the run.
fn check_fences(dataset: &Dataset, run: &TransactionId, seen: Version, parent: Version) -> Result<()> {
    match dataset.abandoned_by(run, seen, parent)? {
        None => Ok(()),
        Some(entry) => Err(Error::conflict(format!(
            "the {} of version {} took this run for abandoned and deletes what it wrote",
            entry.operation, entry.version
        ))
        .at_location(dataset.store().location().to_string())
        .with_hint("nothing was committed; run the command again, and let `vacuum` retain more than a run takes")),
    }
}

/// Fails on paths of shards that another version has, or whose bytes an erasure has replaced. Paths with the tag of the
/// run belong to no other run; the others are those of files adopted in place.
fn check_paths(parent: &Snapshot, transaction: &Transaction<'_>) -> Result<()> {
    let own = transaction.id.short_tag();
    let is_own = |path: &str| path.split('/').next().and_then(run_of_folder) == Some(own);
    let foreign: Vec<&str> =
        transaction.adds.iter().map(|shard| shard.meta.path.as_str()).filter(|path| !is_own(path)).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    let refused = |path: &str, why: &str| {
        Err(Error::conflict(format!("the path of this shard is that of {why}"))
            .at_location(parent.dataset().store().location().join(path).to_string())
            .with_hint(
                "nothing was committed; give the file another name, or adopt it into another dataset with --out",
            ))
    };
    let used = parent.paths_in_use()?;
    let replacements = erased::Replacements::from_entry(parent.dataset().store().as_ref(), parent.entry())?;
    for path in foreign {
        if used.contains(path) {
            return refused(path, "a shard of a version that can be read");
        }
        if replacements.has_shard(path) {
            return refused(path, "a shard from which somebody was erased");
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::{
        codec::Codec,
        codec::seal::Seal,
        dataset::{
            ids::{IdKind, width::HashWidth},
            index::{SegmentRef, places::PlaceRef},
            log::{
                entry::{Settings, Totals},
                order::{Arrangement, Order, ShardOrder},
                past,
                retraction::Retraction,
                root::VersionTree,
                runs::{Run, RunTable, Scattered},
                shards::{NewShard, ShardMeta},
                tags::add_tag,
                transaction::SegmentMerge,
            },
            table::{beside::Beside, sealed::Sealed},
        },
        error::Kind,
        format::OutputFormat,
        record::dedup::DedupBy,
        storage::RemoteStore,
        units::Size,
    };

    /// Returns where the sidecar of a shard of these tests is.
    fn sidecar_at(shard: &str) -> String {
        format!("_shardify/sidecar/{shard}.table")
    }

    fn dataset() -> Dataset {
        Dataset::new(Arc::new(RemoteStore::in_memory().unwrap()))
    }

    /// Commits a transaction whose shards were published.
    fn commit(dataset: &Dataset, transaction: &Transaction<'_>, planned_on: Version) -> Result<Snapshot> {
        for shard in &transaction.adds {
            let bytes = vec![0; usize::try_from(shard.meta.bytes).unwrap()];
            dataset.store().put(&shard.meta.path, bytes.into()).unwrap();
            dataset.store().put(&sidecar_at(&shard.meta.path), "".into()).unwrap();
        }
        super::commit_transaction(dataset, transaction, planned_on)
    }

    /// A version would have indexes of an older one.
    #[cfg(not(feature = "energon"))]
    #[test]
    fn versions_with_an_index_that_the_program_lacks_are_refused() {
        let dataset = dataset();
        let mut transaction = transaction(Vec::new(), &[], Numbers::Fresh(0));
        transaction.settings.indexes = vec![IndexKind::Energon];
        let refused = commit(&dataset, &transaction, Version(0)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Usage, "{refused}");
        assert!(refused.message().contains("the feature `energon`") && dataset.newest_snapshot().unwrap().is_none());
    }

    /// A run is paused before it creates its entry; others commit this version, and a vacuum deletes their entry.
    #[test]
    fn names_of_vacuumed_entries_are_not_taken_again() {
        let dataset = dataset();
        let shards = ["a/000000.tar", "b/000000.tar", "c/000000.tar"];
        for path in shards {
            let newest = dataset.newest_snapshot().unwrap().map_or(Version(0), |newest| newest.version());
            let added = transaction(vec![shard(path, 0, 10)], &[], Numbers::Fresh(10));
            commit(&dataset, &added, newest).unwrap();
        }
        let entries = dataset.entries_up_to(Version(3)).unwrap();
        let store = dataset.store();
        let history = past::extend_lists(store, Vec::new(), &entries, "_shardify/history/x".to_owned()).unwrap();
        let newest = |version, tags| Entry {
            version: Version(version),
            readable_from: Version(4),
            history: history.clone(),
            tags,
            ..entries[2].clone()
        };
        let put = |entry: &Entry| {
            store.put(&entry::entry_path(entry.version), entry::encode_entry(entry).unwrap().into()).unwrap()
        };
        put(&newest(4, BTreeMap::new()));
        let name = entry::entry_path(Version(2));
        let free = || store.delete(&name).unwrap();
        // A new program, which has read nothing yet.
        let paused = || Dataset::new(Arc::clone(store));
        let other = Entry { transaction: TransactionId::fresh(), ..entries[1].clone() };
        free();
        assert!(!create_entry(&paused(), &other).unwrap());
        assert!(store.get(&name).unwrap().is_none(), "it is withdrawn");
        assert!(create_entry(&paused(), &entries[1]).unwrap(), "a commit that others have vacuumed since was one");
        free();
        put(&newest(5, BTreeMap::from([("kept".to_owned(), Version(2))])));
        assert!(create_entry(&paused(), &other).unwrap(), "what is tagged is never deleted");
        assert!(store.get(&name).unwrap().is_some());
    }

    #[test]
    fn missing_objects_are_not_committed() {
        let dataset = dataset();
        let transaction = || transaction(vec![shard("tag/000000.tar", 0, 10)], &[], Numbers::Fresh(10));
        let store = dataset.store();
        let refused = || super::commit_transaction(&dataset, &transaction(), Version(0)).unwrap_err();
        // One is missing at a time: of two that are looked for side by side, either may be named.
        store.put(&sidecar_at("tag/000000.tar"), "".into()).unwrap();
        assert!(refused().to_string().contains("tag/000000.tar"));
        store.put("tag/000000.tar", vec![0; 99].into()).unwrap();
        assert!(refused().message().contains("100 bytes"));
        store.put("tag/000000.tar", vec![0; 100].into()).unwrap();
        store.delete_all(&[sidecar_at("tag/000000.tar")]).unwrap();
        assert!(refused().to_string().contains("/sidecar/"));
        assert!(dataset.newest_snapshot().unwrap().is_none());
        store.put(&sidecar_at("tag/000000.tar"), "".into()).unwrap();
        super::commit_transaction(&dataset, &transaction(), Version(0)).unwrap();
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
            beside: Arc::new(Beside::new(Sealed::new(sidecar_at(path), Seal::for_bytes(&[])))),
        };
        NewShard { meta, runs: vec![(first, records, 0)], since: Vec::new(), scattered: None }
    }

    fn transaction(adds: Vec<NewShard>, removes: &[&str], numbers: Numbers) -> Transaction<'static> {
        Transaction {
            id: TransactionId::fresh(),
            operation: Operation::Convert,
            arguments: BTreeMap::new(),
            revisions: Vec::new(),
            counts: Counts::default(),
            settings: Settings {
                shard_format: OutputFormat::Tar,
                codec: Codec::None,
                target_shard: Size::from_mib(128),
                row_group: Size::from_mib(64),
                id: Vec::new(),
                subject: None,
                subjects_from: None,
                keys: crate::record::key_rule::KeyRule::FirstDot,
                labels: None,
                label_types: None,
                units: std::collections::BTreeMap::new(),
                label_column: None,
                classes: None,
                indexes: Vec::new(),
                columns: Vec::new(),
                types: None,
                retyped: std::collections::BTreeSet::new(),
                split: None,
                dedup: None,
                limit: None,
                shuffle: None,
                hash_records: false,
                hashes: HashWidth::Eight,
                private: None,
            },
            adds,
            removes: removes.iter().map(|s| (*s).to_owned()).collect(),
            segments: Vec::new(),
            merges: Vec::new(),
            places: Vec::new(),
            retraction: Retraction::default(),
            duplicates: None,
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
        let runs = snapshot.run_table().unwrap();
        let places: Vec<_> = runs.of_record(13).iter().map(|r| (r.shard.as_str(), r.from.0, r.until)).collect();
        assert_eq!(places, [("b", 2, Some(Version(3))), ("c", 3, None)]);
        // The old version is unchanged.
        assert_eq!(dataset.open_version(Version(2)).unwrap().live_shards().unwrap().len(), 2);
    }

    #[test]
    fn an_attempt_that_is_lost_leaves_no_lists() {
        let dataset = dataset();
        let own = transaction(vec![shard("own", 0, 10)], &[], Numbers::Fresh(10));
        let other = |name| transaction(vec![shard(name, 0, 10)], &[], Numbers::Fresh(10));
        let listed = || -> Vec<String> {
            let objects = dataset.store().list_folder("_shardify/lists").unwrap();
            objects.into_iter().map(|facts| facts.path).filter(|path| path.contains(own.id.short_tag())).collect()
        };
        let attempt = |attempt: &Attempt| -> Result<Next> {
            let parent = dataset.newest_snapshot()?;
            let draft = Draft::new(&dataset, &own, 0, attempt);
            let entry = draft.build_entry(parent.as_ref())?;
            draft.publish_staged()?;
            Ok(Next::Entry(Box::new(entry)))
        };
        let mut names = ["one", "two"].into_iter();
        let committed = until_created(&dataset, &own.id, Version(0), "committed", |number| {
            let entry = attempt(number)?;
            assert!(!listed().is_empty());
            names.next().map(|name| commit(&dataset, &other(name), Version(0))).transpose()?;
            Ok(entry)
        });
        assert_eq!(committed.unwrap().version(), Version(3));
        let named = dataset.newest_snapshot().unwrap().unwrap();
        let named = [&named.entry().shards, &named.entry().runs].into_iter().flatten();
        let mut named: Vec<String> =
            named.map(|list| list.path.clone()).filter(|p| p.contains(own.id.short_tag())).collect();
        named.sort();
        assert!(named.len() == 2 && listed() == named, "{named:?} {:?}", listed());
        let failed = until_created(&dataset, &own.id, Version(3), "committed", |number| {
            attempt(number)?;
            Err(Error::conflict("somebody was faster"))
        });
        assert_eq!(failed.unwrap_err().kind(), Kind::Conflict);
        assert_eq!(listed(), named);
    }

    fn segment(path: &str, record_base: u64) -> SegmentRef {
        SegmentRef {
            kind: IdKind::Record,
            path: path.into(),
            record_base,
            split: None,
            ordered: false,
            hashes: HashWidth::Eight,
            // What holds nothing is merged with nothing.
            pairs: 0,
            buckets: 1,
            bytes: 0,
            root: Some([0; 32]),
            seals: vec![Seal::for_bytes(&[])],
        }
    }

    #[test]
    fn segments_that_were_merged_are_replaced_once_and_only_while_all_of_them_are_there() {
        let dataset = dataset();
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
    fn duplicates_of_records_that_were_added_meanwhile_are_a_conflict() {
        let dataset = dataset();
        let convert = |name: &str, dedup: Option<DedupBy>, stated: Option<&str>| {
            let mut convert = transaction(vec![shard(name, 0, 10)], &[], Numbers::Fresh(10));
            convert.counts = Counts { records_in: 10, records_out: 10, ..Counts::default() };
            convert.settings.dedup = dedup;
            convert.arguments.extend(stated.map(|text| ("dedup".to_owned(), text.to_owned())));
            convert
        };
        let by = |by: &DedupBy| convert(&by.to_string(), Some(by.clone()), Some(&by.to_string()));
        commit(&dataset, &by(&DedupBy::Id), Version(0)).unwrap();
        let conflict = |result: Result<Snapshot>| assert_eq!(result.unwrap_err().kind(), Kind::Conflict);
        conflict(commit(&dataset, &by(&DedupBy::Id), Version(0)));
        conflict(commit(&dataset, &by(&DedupBy::Content), Version(0)));
        conflict(commit(&dataset, &convert("other", None, None), Version(0)));
        // Who keeps all records compares with none, and a merge adds none.
        let mut merge = transaction(vec![shard("merged", 0, 10)], &[], Numbers::Kept);
        merge.operation = Operation::Compact;
        commit(&dataset, &merge, Version(1)).unwrap();
        commit(&dataset, &convert("b", Some(DedupBy::Id), Some("id")), Version(1)).unwrap();
        commit(&dataset, &convert("c", Some(DedupBy::Id), Some("none")), Version(1)).unwrap();
        // A run that was planned before the setting was made does not undo it.
        assert_eq!(dataset.open_newest().unwrap().entry().settings.dedup, Some(DedupBy::Id));
        // What a run omitted may have been a duplicate of what another one removes.
        let mut remove = transaction(Vec::new(), &[], Numbers::Kept);
        remove.operation = Operation::Remove;
        remove.counts = Counts { records_removed: 1, ..Counts::default() };
        let before = commit(&dataset, &remove, Version(4)).unwrap().version();
        let mut omits = convert("d", Some(DedupBy::Id), Some("id"));
        omits.counts = Counts { records_in: 11, records_deduplicated: 1, ..omits.counts };
        conflict(commit(&dataset, &omits, Version(before.0 - 1)));
        commit(&dataset, &convert("e", Some(DedupBy::Id), Some("id")), Version(before.0 - 1)).unwrap();
    }

    #[test]
    fn a_run_that_made_other_hashes_than_the_dataset_has_is_refused() {
        let dataset = dataset();
        let of_width = |hashes: HashWidth, name: &str| {
            let segment = SegmentRef { hashes, root: hashes.has_proofs().then_some([0; 32]), ..segment(name, 0) };
            let transaction = transaction(vec![shard(name, 0, 1)], &[], Numbers::Fresh(1));
            let settings = Settings { hashes, ..transaction.settings.clone() };
            Transaction { settings, segments: vec![segment], ..transaction }
        };
        let first = commit(&dataset, &of_width(HashWidth::Five, "a"), Version(0)).unwrap();
        assert_eq!(first.entry().format, FORMAT_VERSION);
        let refused = commit(&dataset, &of_width(HashWidth::Eight, "b"), Version(0)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Conflict);
        commit(&dataset, &of_width(HashWidth::Five, "c"), Version(0)).unwrap();
        assert_eq!(dataset.open_newest().unwrap().version(), Version(2));
    }

    #[test]
    fn each_version_has_the_root_of_what_it_refers_to() {
        let dataset = dataset();
        let root = |snapshot: &Snapshot| VersionTree::new(snapshot, None).unwrap().merkle_root();
        let mut roots = Vec::new();
        for i in 0..20 {
            let add = shard(&format!("s{i}"), 0, 1);
            commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(1)), Version(i)).unwrap();
            let snapshot = dataset.open_newest().unwrap();
            root::check_root(&snapshot).unwrap();
            assert_eq!(snapshot.entry().root, Some(root(&snapshot)), "{i}");
            roots.extend(snapshot.entry().root);
        }
        // An entry that changes nothing but its number has another root; each version keeps its own.
        let tagged = add_tag(&dataset, "gold", Version(5)).unwrap();
        assert!(tagged.entry().root.is_some_and(|root| !roots.contains(&root)));
        roots.sort_unstable();
        roots.dedup();
        assert_eq!(roots.len(), 20);
        // An entry without a root, or with a list of shards without one, is damaged.
        let without = |change: fn(&mut Entry)| {
            let mut entry = tagged.entry().clone();
            entry.version = entry.version.next();
            change(&mut entry);
            dataset
                .store()
                .put(&entry::entry_path(entry.version), entry::encode_entry(&entry).unwrap().into())
                .unwrap();
            Dataset::new(Arc::clone(dataset.store())).open_newest().unwrap_err().kind()
        };
        assert_eq!(without(|entry| entry.root = None), Kind::Integrity);
        assert_eq!(without(|entry| entry.shards[0].root = None), Kind::Integrity);
        // So is one whose numbers no dataset has: lists without end, a first version after the last.
        assert_eq!(
            without(|entry| entry.sources.iter_mut().chain(&mut entry.runs).for_each(|list| list.rows = 1 << 48)),
            Kind::Integrity
        );
        assert_eq!(without(|entry| entry.readable_from = entry.version.next()), Kind::Integrity);
    }

    #[test]
    fn totals_that_the_lists_do_not_have_are_damage_and_no_number() {
        let dataset = dataset();
        let add = vec![shard("a", 0, 10), shard("b", 10, 10)];
        let first = commit(&dataset, &transaction(add, &[], Numbers::Fresh(20)), Version(0)).unwrap();
        for (what, totals) in [
            ("records", Totals { records: 3, ..first.entry().totals }),
            ("bytes", Totals { bytes: 0, ..first.entry().totals }),
        ] {
            let mut entry = first.entry().clone();
            entry.totals = totals;
            dataset
                .store()
                .put(&entry::entry_path(entry.version), entry::encode_entry(&entry).unwrap().into())
                .unwrap();
            let damaged = Dataset::new(Arc::clone(dataset.store()));
            assert_eq!(damaged.open_newest().unwrap().live_shards().unwrap_err().kind(), Kind::Integrity, "{what}");
            let replaced = transaction(vec![shard("c", 0, 10)], &["a"], Numbers::Kept);
            assert_eq!(commit(&damaged, &replaced, Version(1)).unwrap_err().kind(), Kind::Integrity, "{what}");
        }
        assert_eq!(first.entry().totals.records_without(21).unwrap_err().kind(), Kind::Integrity);
    }

    #[test]
    fn runs_that_are_not_the_records_of_their_shard_are_damage() {
        let dataset = dataset();
        let snapshot =
            commit(&dataset, &transaction(vec![shard("a", 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        let [run] = snapshot.run_table().unwrap().as_slice() else { panic!("a run for the shard") };
        assert_eq!(snapshot.runs_by_shard().unwrap().len(), 1);
        for records in [9, 11, 1 << 40, u64::MAX] {
            let other = Run { records, ..run.clone() };
            let changed = snapshot.clone().with_runs(RunTable::new(vec![other]));
            assert_eq!(changed.runs_by_shard().unwrap_err().kind(), Kind::Integrity, "{records}");
        }
        let nothing = snapshot.clone().with_runs(RunTable::new(Vec::new()));
        assert_eq!(nothing.runs_by_shard().unwrap_err().kind(), Kind::Integrity);
    }

    #[test]
    fn a_changed_list_or_entry_is_detected() {
        let dataset = dataset();
        for (version, shards) in [20, 1].into_iter().enumerate() {
            let adds = (0..shards).map(|i| shard(&format!("s{version}-{i}"), i, 1)).collect();
            commit(&dataset, &transaction(adds, &[], Numbers::Fresh(shards)), Version(version as u64)).unwrap();
        }
        let entry = dataset.open_newest().unwrap().entry().clone();
        let mut changed = entry.clone();
        changed.version = Version(3);
        assert!(create_entry(&dataset, &changed).unwrap());
        // A dataset that is open keeps the lists that it has read.
        let reopened = || Dataset::new(Arc::clone(dataset.store())).open_newest().unwrap();
        let problem = || root::check_root(&reopened()).unwrap_err().to_string();
        assert!(problem().contains("does not follow"), "another version has another root");
        let mut flipped = dataset.store().get(&entry.shards[0].path).unwrap().unwrap().to_vec();
        flipped[0] ^= 1;
        dataset.store().put(&entry.shards[0].path, flipped.into()).unwrap();
        let error = root::check_root(&reopened()).unwrap_err();
        assert_eq!((error.kind(), error.place().byte), (Kind::Integrity, Some(0)), "{error}");
        // Even if somebody changes the seal as well, the root tells.
        let other = dataset.store().get(&entry.shards[1].path).unwrap().unwrap();
        dataset.store().put(&entry.shards[0].path, other).unwrap();
        let mut sealed = entry.clone();
        sealed.version = Version(4);
        sealed.shards[0].seal = entry.shards[1].seal;
        assert!(create_entry(&dataset, &sealed).unwrap());
        assert!(problem().contains("found another"));
    }

    #[test]
    fn replacing_a_shard_twice_is_a_conflict_and_commits_nothing() {
        let dataset = dataset();
        commit(&dataset, &transaction(vec![shard("a", 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        commit(&dataset, &transaction(vec![shard("b", 0, 10)], &["a"], Numbers::Kept), Version(1)).unwrap();
        let late = commit(&dataset, &transaction(vec![shard("c", 0, 10)], &["a"], Numbers::Kept), Version(1));
        assert_eq!(late.unwrap_err().kind(), crate::error::Kind::Conflict);
        assert_eq!(dataset.newest_snapshot().unwrap().unwrap().version(), Version(2));
    }

    #[test]
    fn an_entry_holds_few_lists_after_many_commits() {
        let dataset = dataset();
        for i in 0..100 {
            let add = shard(&format!("s{i}"), 0, 1);
            commit(&dataset, &transaction(vec![add], &[], Numbers::Fresh(1)), Version(i)).unwrap();
        }
        let snapshot = dataset.open_newest().unwrap();
        assert!(snapshot.entry().shards.len() < 6, "{}", snapshot.entry().shards.len());
        assert_eq!(snapshot.live_shards().unwrap().len(), 100);
        assert_eq!(snapshot.live_shards().unwrap()[57].path, "s57");
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
        let scattered = Scattered { span: 4, set: "set".into(), shard: 0, base: None };
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
            base: None,
            seal: Seal::for_bytes(&[]),
        };
        let mut sort = transaction(vec![sorted], &["s0", "s1"], Numbers::Kept);
        sort.places = vec![place.clone()];
        commit(&dataset, &sort, Version(10)).unwrap();
        (11..40).for_each(|i| assert_eq!(append(i).version(), Version(i + 1)));
        let snapshot = dataset.open_newest().unwrap();
        assert_eq!(snapshot.entry().places, [place]);
        let orders: Vec<_> = snapshot.live_shards().unwrap().iter().filter_map(|s| s.order.clone()).collect();
        assert_eq!(orders, [order]);
        let runs = snapshot.run_table().unwrap();
        assert_eq!(runs.of_record(2).into_iter().filter_map(|r| r.scattered.clone()).collect::<Vec<_>>(), [scattered]);
        assert_eq!(runs.as_slice().len(), 40);
    }

    #[test]
    fn shuffled_records_get_their_numbers_at_commit() {
        let dataset = dataset();
        commit(&dataset, &transaction(vec![shard("a", 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        let scattered = Scattered { span: 4, set: "set".into(), shard: 0, base: Some(0) };
        let mut mixed = shard("mixed", 0, 4);
        mixed.scattered = Some(scattered.clone());
        let places = |base| PlaceRef {
            path: "_shardify/index/place/set/000000.parquet".into(),
            set: "set".into(),
            first: base,
            last: base + 3,
            rows: 4,
            bytes: 0,
            base: Some(base),
            seal: Seal::for_bytes(&[]),
        };
        let mut convert = transaction(vec![mixed], &[], Numbers::Fresh(4));
        convert.places = vec![places(0)];
        // Another run comes first.
        commit(&dataset, &transaction(vec![shard("b", 0, 5)], &[], Numbers::Fresh(5)), Version(1)).unwrap();
        commit(&dataset, &convert, Version(1)).unwrap();
        let snapshot = dataset.open_newest().unwrap();
        assert_eq!(snapshot.entry().places, [places(15)]);
        let runs = snapshot.run_table().unwrap();
        let run = runs.of_record(17).pop().unwrap().clone();
        assert_eq!((run.first, run.end_record(), run.scattered), (15, 19, Some(scattered.shifted_by(15))));
        assert_eq!(snapshot.entry().next_record, 19);
    }

    #[test]
    fn a_run_that_was_abandoned_commits_nothing() {
        let dataset = dataset();
        commit(&dataset, &transaction(vec![shard("a", 0, 10)], &[], Numbers::Fresh(10)), Version(0)).unwrap();
        let late = transaction(vec![shard("b", 0, 10)], &[], Numbers::Fresh(10));
        let parent = dataset.open_newest().unwrap();
        let mut entry = entry_after(&parent, &TransactionId::fresh(), Operation::Vacuum, BTreeMap::new()).unwrap();
        entry.abandoned = vec![late.id.short_tag().to_owned()];
        assert!(create_entry(&dataset, &entry).unwrap());
        // However many versions come in between.
        let other = transaction(vec![shard("c", 0, 10)], &[], Numbers::Fresh(10));
        commit(&dataset, &other, Version(1)).unwrap();
        let error = commit(&dataset, &late, Version(1)).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Conflict);
        assert_eq!(dataset.newest_snapshot().unwrap().unwrap().version(), Version(3));
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
        assert_eq!(dataset.newest_snapshot().unwrap().unwrap().version(), Version(2));
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
        let snapshot = dataset.open_newest().unwrap();
        assert_eq!(snapshot.version(), Version(40));
        assert_eq!(snapshot.entry().totals.records, 120);
        let mut firsts: Vec<u64> = snapshot.live_shards().unwrap().iter().map(|s| s.first_record).collect();
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
        let third = dataset.open_version(Version(3)).unwrap().entry().committed_at;
        assert_eq!(dataset.version_at(third).unwrap(), Some(Version(3)));
        assert_eq!(dataset.version_at(Timestamp::UNIX_EPOCH).unwrap(), None);
        assert_eq!(dataset.version_at(Timestamp::now()).unwrap(), Some(Version(5)));
    }
}
