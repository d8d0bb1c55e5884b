//! `erase`: removes records, or all records about a subject, from the newest version or from all versions.
//!
//! Steps: look up the ids, rewrite the affected shards, read them back, remove the ids from the index, commit, and then
//! delete the objects that the commit replaced. A run that is killed before the commit leaves the dataset unchanged;
//! one that is killed after it leaves objects that are not read any more, and an order that states the remaining work,
//! which the next command that writes to the dataset does ([`finish_cut_short`]).

mod blocked;
mod finish;
mod footers;
mod kinds;
mod options;
mod receipt;
mod rejects;
mod report;
mod work;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::{Duration, Instant},
};

use self::{
    kinds::is_origin,
    receipt::{Receipt, ShardReceipt},
    rejects::Words,
    work::{ErasureWork, RewriteTargets, is_overtaken},
};
pub use self::{
    kinds::{EraseId, NameKind},
    options::EraseOptions,
    report::{EraseReport, IdReport},
};
use super::{Context, rewrite, training::runs_that_saw};
use crate::{
    dataset::{
        Attempts, ContentHashes, Counts, Dataset, Erasure, ErasureOrder, GoneRows, HashedText, Hit, IdKind, IdQuery,
        LeftOut, NumberSet, Operation, Pseudonymizer, Reindexed, Rewrite, Salt, ShardMeta, Snapshot, SuppressList,
        TaggedVersions, Unfinished, attempts, commit_erasure, delete_void_plans, each_left_out, find_leftovers,
        folder_of, indexes_to_search, leases, leases::Lease, lookup_hits, pseudonymizer_of, read_tombstones,
        receipt_path, replaced_objects, rewrite_segment, rewrite_source_list, shards_of, stored_hash, token_of,
    },
    error::{Effect, Error, Kind, Result},
    events::Event,
    exec::erase::{AffectedShard, Eraser},
    id::{IdHash, TransactionId, Version},
    indexes::version::{PreparedIndexes, refresh_indexes},
    storage::{Location, Lock},
};

/// Maximum number of times an erasure is planned again because other runs committed; each attempt writes only what is
/// new.
const REPLANS: usize = 40;

/// Number of attempts after which other runs are asked to hold back their commits for a while.
const PATIENT_ATTEMPTS: usize = 2;

/// An attempt that took as long asks others to hold back theirs before its commit, since another one would take as long
/// and lose to them again.
const LONG_ATTEMPT: Duration = Duration::from_secs(5);

/// Maximum time to wait for another erasure on the same machine.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Finishes erasures that were killed between their commit and their receipt; every command that writes does this
/// first.
///
/// # Errors
/// When the remaining work cannot be read or done.
pub(super) fn finish_cut_short(context: &Context<'_>, newest: Option<&Snapshot>) -> Result<()> {
    let Some(newest) = newest else { return Ok(()) };
    if newest.entry().erasures.as_ref().is_some_and(|erasures| !erasures.unfinished.is_empty()) {
        // Readers of the Delta log must not find objects in it that are deleted below.
        refresh_indexes(newest, PreparedIndexes::default(), context.observer)?;
    }
    finish::finish_all(context, newest)?;
    if newest.entry().erasures.is_some() {
        // Tasks of plans that were made before an erasure may have written the erased records.
        delete_void_plans(newest.dataset())?;
    }
    Ok(())
}

/// Erases records.
///
/// # Errors
/// When there is no dataset, an id is ambiguous, an affected shard is damaged, other runs keep committing, or the store
/// fails.
pub fn erase_records(context: &Context<'_>, location: &Location, options: &EraseOptions) -> Result<EraseReport> {
    let started = Instant::now();
    let mut ids: Vec<EraseId> = Vec::new();
    let mut seen = HashSet::new();
    ids.extend(options.ids.iter().filter(|id| seen.insert(*id)).cloned());
    if ids.is_empty() || ids.iter().any(|id| id.id.is_empty()) {
        return Err(
            Error::usage("expected ids to erase, found none").with_hint("name them, or a file of them with --ids")
        );
    }
    let dataset = context.open_dataset(location)?;
    let newest = dataset.open_newest()?;
    let mut report = if options.dry_run {
        ErasureAttempt::new(context, &dataset, &ids, options, newest)?.plan_report()?
    } else {
        let _lock = acquire_lock(context, &dataset)?;
        finish_cut_short(context, Some(&newest))?;
        ErasureSession { context, dataset: &dataset, ids: &ids, options }.run()?
    };
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Waits until no other erasure runs on this machine: two at a time would only delay each other.
fn acquire_lock(context: &Context<'_>, dataset: &Dataset) -> Result<Lock> {
    let begun = Instant::now();
    loop {
        match dataset.store().acquire_lock("erase") {
            Err(e) if e.kind() == Kind::Conflict && begun.elapsed() < LOCK_TIMEOUT => {
                attempts::pause_before(PATIENT_ATTEMPTS);
                context.cancel.check()?;
            }
            taken => return taken,
        }
    }
}

/// Converts an error that occurred after the commit: it is no conflict, because a conflict means that nothing has
/// changed.
fn after_commit(error: Error) -> Error {
    let error = match error.kind() {
        Kind::Conflict => Error::storage("the erasure is committed, but the objects it replaced are not deleted yet")
            .with_cause(error)
            .with_hint("the next command that writes to the dataset deletes it and writes the receipt"),
        _ => error,
    };
    error.with_effect(Effect::Certain)
}

/// An erasure with all its attempts.
struct ErasureSession<'a> {
    context: &'a Context<'a>,
    dataset: &'a Dataset,
    ids: &'a [EraseId],
    options: &'a EraseOptions,
}

impl ErasureSession<'_> {
    fn run(&self) -> Result<EraseReport> {
        loop {
            let transaction = TransactionId::fresh();
            let newest = self.dataset.open_newest()?;
            let begun_on = newest.version();
            let lease = Lease::acquire(
                self.dataset,
                &transaction,
                Operation::Erase,
                self.oldest_searched(&newest),
                leases::LEASE,
            )?;
            match self.until_committed(&transaction, &lease) {
                // The objects it wrote may be deleted by now: it has to start afresh, under another transaction id.
                Err(e) if e.kind() == Kind::Conflict && self.dataset.is_abandoned(&transaction, begun_on)? => {
                    self.context.observer.event(Event::Note(format!("starting again: {e}")));
                }
                result => return result,
            }
            attempts::pause_before(PATIENT_ATTEMPTS);
            self.context.cancel.check()?;
        }
    }

    /// Returns the oldest version that is searched.
    fn oldest_searched(&self, newest: &Snapshot) -> Version {
        if self.options.all_versions { newest.readable_from().max(Version(1)) } else { newest.version() }
    }

    fn until_committed(&self, transaction: &TransactionId, lease: &Lease) -> Result<EraseReport> {
        let mut work: Option<ErasureWork<'_>> = None;
        let mut last = Error::internal("an erasure was never attempted");
        for attempt in Attempts::at_most(REPLANS) {
            self.context.cancel.check()?;
            let newest = self.dataset.open_newest()?;
            let seen = finish::Readable::from_snapshot(&newest);
            let begun = Instant::now();
            let (oldest, lost) = (self.oldest_searched(&newest), (attempt + 1).saturating_sub(PATIENT_ATTEMPTS));
            lease.renew(oldest, lost)?;
            let ask_for_delay = || match lost == 0 && begun.elapsed() >= LONG_ATTEMPT {
                true => lease.renew(oldest, 1),
                false => Ok(()),
            };
            let done = ErasureAttempt::new(self.context, self.dataset, self.ids, self.options, newest)
                .and_then(|run| run.run(transaction, &mut work, &ask_for_delay));
            match done {
                Err(e) if is_overtaken(self.dataset, &e, &seen) => {
                    if work.as_ref().is_some_and(|work| work.is_abandoned()) {
                        work.into_iter().for_each(|work| work.give_up());
                        // Whatever the cause of the error, the run has to start afresh.
                        return Err(super::overtaken_error(self.dataset).with_cause(e));
                    }
                    let attempt = attempt + 1;
                    let note = format!("other runs were faster than attempt {attempt} of {REPLANS} to erase: {e}");
                    self.context.observer.event(Event::Note(note));
                    last = e;
                }
                Err(e) => {
                    work.into_iter().for_each(|work| work.give_up());
                    return Err(e);
                }
                Ok(report) => {
                    // The remaining objects are not needed: another run has erased the same records.
                    work.into_iter().for_each(|work| work.give_up());
                    return Ok(report);
                }
            }
        }
        work.into_iter().for_each(|work| work.give_up());
        Err(last)
    }
}

/// One attempt.
struct ErasureAttempt<'a> {
    context: &'a Context<'a>,
    dataset: &'a Dataset,
    newest: Snapshot,
    /// Versions that only their tags keep.
    tagged: TaggedVersions,
    ids: &'a [EraseId],
    /// How ids are stored, if they are private.
    pseudonymizer: Option<Pseudonymizer>,
    options: &'a EraseOptions,
    salt: Salt,
    segments: Vec<crate::dataset::SegmentRef>,
    sources: Vec<crate::dataset::ListRef>,
    /// Matching records of each id.
    hits: Vec<Vec<Hit>>,
    /// Records that were omitted as duplicates, by the ids that they have.
    left_out: Vec<LeftOut>,
    /// Damaged tables of such records.
    not_searched: Vec<String>,
    /// Earlier erasure of each id: version and number of records.
    before: Vec<Option<(Version, u64)>>,
}

impl<'a> ErasureAttempt<'a> {
    fn new(
        context: &'a Context<'a>,
        dataset: &'a Dataset,
        ids: &'a [EraseId],
        options: &'a EraseOptions,
        newest: Snapshot,
    ) -> Result<Self> {
        let pseudonymizer = pseudonymizer_of(&newest)?;
        let suppressed = SuppressList::from_snapshot(&newest)?;
        let before = ids.iter().map(|id| suppressed.as_ref().and_then(|list| id.erased_before(list))).collect();
        let salt = match &newest.entry().erasures {
            Some(erasures) => erasures.parse_salt()?,
            None => Salt::fresh(),
        };
        let (segments, sources) = indexes_to_search(&newest, options.all_versions)?;
        let tagged = TaggedVersions::for_erasure(&newest, options.all_versions)?;
        let queries = queries_for_ids(ids, pseudonymizer.as_ref());
        let mut hits = lookup_hits(&newest, &tagged, &segments, &queries, options.all_versions)?;
        ids.iter().zip(&mut hits).try_for_each(|(id, hits)| id.disambiguate_hits(hits))?;
        let mut left_out = Vec::new();
        let not_searched = each_left_out(&newest, &queries, newest.version(), &mut |found| {
            if ids[found.id].kind.is_none_or(|kind| kind == NameKind::of_left_out(&found)) {
                left_out.push(found);
            }
        })?;
        Ok(Self {
            context,
            dataset,
            newest,
            tagged,
            ids,
            pseudonymizer,
            options,
            salt,
            segments,
            sources,
            hits,
            left_out,
            not_searched,
            before,
        })
    }

    /// Whether a duplicate that was omitted has an id that is not blocked yet.
    fn has_new_left_out(&self) -> bool {
        self.left_out.iter().any(|left_out| self.before[left_out.id].is_none())
    }

    /// Returns the ids as the dataset stores them.
    fn id_queries(&self) -> Vec<IdQuery<'_>> {
        queries_for_ids(self.ids, self.pseudonymizer.as_ref())
    }

    fn all_hits(&self) -> impl Iterator<Item = &Hit> {
        self.hits.iter().flatten()
    }

    /// Returns the report of a plan.
    fn plan_report(&self) -> Result<EraseReport> {
        let mut report = self.build_report()?;
        let affected_shards = self.affected_shards()?;
        report.shards_rewritten = affected_shards.len() as u64;
        self.sources_to_drop(&mut report)?;
        report.shards =
            affected_shards.iter().map(|(affected, live)| ShardReceipt::from_affected(affected, *live)).collect();
        Ok(report)
    }

    /// Makes one attempt; what it writes is kept in `work` for the next attempt in case of a conflict. `ask_for_delay`
    /// is called right before the commit.
    fn run(
        &self,
        transaction: &TransactionId,
        work: &mut Option<ErasureWork<'a>>,
        ask_for_delay: &dyn Fn() -> Result<()>,
    ) -> Result<EraseReport> {
        let mut report = self.build_report()?;
        let affected_shards = self.affected_shards()?;
        report.shards_rewritten = affected_shards.len() as u64;
        let gone = self.sources_to_drop(&mut report)?;
        if affected_shards.is_empty() && !self.has_new_left_out() {
            let known = report.ids.iter().any(|id| id.erased_in.is_some());
            if known {
                refresh_indexes(&self.newest, PreparedIndexes::default(), self.context.observer)?;
            }
            // Tables of duplicates may name ids in other ways, such as within names of sources.
            if known || (self.options.all_versions && !self.newest.entry().duplicates.is_empty()) {
                self.clean_again(&mut report)?;
            }
            return Ok(report);
        }
        self.dataset.test_store()?;
        let mut writing = match work.take() {
            Some(work) => work,
            None => ErasureWork::begin(self.dataset, transaction, self.newest.version())?,
        };
        let done = self.write(&affected_shards, &gone, &mut report, &mut writing).and_then(|(erasure, order)| {
            self.context.cancel.check()?;
            ask_for_delay()?;
            let attempt = || commit_erasure(self.dataset, &erasure, self.newest.version());
            Ok((writing.attempt_commit(attempt)?, erasure.unfinished, order))
        });
        let (snapshot, unfinished, order) = match done {
            Ok(done) => done,
            Err(e) => {
                *work = Some(writing);
                return Err(e);
            }
        };
        report.version = snapshot.version();
        refresh_indexes(&snapshot, PreparedIndexes::default(), self.context.observer)?;
        // The commit records the remaining work: another attempt would find nothing to erase.
        self.finish_erasure(&unfinished.of_version(snapshot.version()), order, &mut report)
            .and_then(|()| super::inputs::tell_left_out(self.context, &snapshot))
            .map_err(after_commit)?;
        Ok(report)
    }

    fn build_report(&self) -> Result<EraseReport> {
        let numbers: BTreeSet<u64> = self.all_hits().map(|hit| hit.record).collect();
        let mut left_out: HashMap<usize, HashSet<_>> = HashMap::new();
        for LeftOut { id, version, row, .. } in &self.left_out {
            left_out.entry(*id).or_default().insert((*version, &row.source, row.row));
        }
        let ids: Vec<IdReport> = self
            .ids
            .iter()
            .zip(&self.hits)
            .zip(&self.before)
            .enumerate()
            .map(|(at, ((id, hits), before))| {
                let records: HashSet<u64> = hits.iter().map(|hit| hit.record).collect();
                let erased_in = before.map(|(version, _)| version);
                IdReport {
                    id: id.id.clone(),
                    records: records.len() as u64,
                    carried_as: kinds::count_by_kind(hits),
                    left_out: left_out.get(&at).map_or(0, |rows| rows.len() as u64),
                    erased_in,
                }
            })
            .collect();
        let oldest = self.all_hits().map(|hit| hit.since).min().map(|since| since.max(self.newest.readable_from()));
        let kept_in = oldest
            .filter(|oldest| !self.options.all_versions && *oldest <= self.newest.version())
            .map(|oldest| (oldest, self.newest.version()));
        let training_runs = match numbers.is_empty() {
            true => Vec::new(),
            false => runs_that_saw(&self.newest, &numbers.iter().copied().collect::<Vec<_>>())?,
        };
        Ok(EraseReport {
            dataset: self.dataset.store().location().to_string(),
            version: self.newest.version(),
            dry_run: self.options.dry_run,
            all_versions: self.options.all_versions,
            records_erased: numbers.len() as u64,
            left_out: ids.iter().filter(|id| id.erased_in.is_none()).map(|id| id.left_out).sum(),
            kept_in,
            kept_by: self
                .newest
                .tags()
                .iter()
                .filter(|(_, v)| kept_in.is_some_and(|(from, _)| from <= **v))
                .map(|(t, _)| t.clone())
                .collect(),
            training_runs,
            counts: Counts::default(),
            shards_rewritten: 0,
            bytes_copied: 0,
            bytes_reencoded: 0,
            objects_deleted: 0,
            rejects_erased: 0,
            not_searched: self.not_searched.clone(),
            sources_erased: 0,
            names_kept: Vec::new(),
            objects_unreferenced: 0,
            receipt: None,
            missing: ids.iter().filter(|id| id.is_missing()).map(|id| id.id.clone()).collect(),
            seconds: 0.0,
            ids,
            shards: Vec::new(),
        })
    }

    /// Returns the shards that hold the records, and whether the newest version has them; grouped by folder, and
    /// numbered in it.
    fn affected_shards(&self) -> Result<Vec<(AffectedShard, bool)>> {
        let mut ordinals: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        let mut versions: BTreeMap<String, Version> = BTreeMap::new();
        for place in self.all_hits().flat_map(|hit| &hit.places) {
            ordinals.entry(place.shard.clone()).or_default().insert(place.ordinal);
            // A readable version that contains the shard.
            let oldest = || place.from.max(Version(self.newest.readable_from().0.max(1)));
            versions.insert(place.shard.clone(), self.tagged.version_of(&place.shard).unwrap_or_else(oldest));
        }
        let facts = shards_of(&self.newest, &versions)?;
        let live: HashSet<&str> = self.newest.live_shards()?.iter().map(|shard| shard.path.as_str()).collect();
        let mut folders: BTreeMap<String, Vec<(ShardMeta, Vec<u64>)>> = BTreeMap::new();
        for (path, shard) in facts {
            let rows = ordinals.remove(&path).unwrap_or_default().into_iter().collect();
            folders.entry(folder_of(&path).to_owned()).or_default().push((shard, rows));
        }
        let runs = self.tagged.run_table();
        let mut out = Vec::new();
        for (_, shards) in folders {
            for (shard, ordinals) in shards {
                let version = versions.get(&shard.path).copied().unwrap_or_default();
                let is_live = live.contains(shard.path.as_str());
                let runs = runs.of_shard(&shard.path, version);
                out.push((rewrite::affected_shard(&self.newest, &shard, &runs, ordinals), is_live));
            }
        }
        Ok(out)
    }

    /// Writes and publishes everything that the new version needs.
    fn write(
        &self,
        affected_shards: &[(AffectedShard, bool)],
        gone: &HashSet<String>,
        report: &mut EraseReport,
        work: &mut ErasureWork<'_>,
    ) -> Result<(Erasure, ErasureOrder)> {
        self.discard_outdated(affected_shards, gone, work)?;
        let fresh = work.name_shards(affected_shards);
        let erased_ids: Vec<String> = self.erased_ids()?;
        let settings = &self.newest.entry().settings;
        let eraser = Eraser {
            rewriter: rewrite::new_rewriter(self.context, &self.newest),
            runs: self.tagged.run_table(),
            hashes: ContentHashes::from_snapshot(&self.newest),
            erased_ids: &erased_ids,
        };
        let total = fresh.iter().map(|affected| affected.shard.bytes).sum();
        self.context.observer.event(Event::Phase { name: "erasing", bytes: Some(total) });
        let rewritten = rewrite::write(self.context, self.dataset, settings, &eraser, &fresh)?;
        work.publish_shards(&fresh, rewritten)?;
        work.verify_rewritten(&eraser)?;
        let (mut rewrites, mut places) = (Vec::new(), Vec::new());
        for (affected, live) in affected_shards {
            let done = work.of_shard(&affected.shard.path)?;
            report.bytes_copied += done.bytes_copied;
            report.bytes_reencoded += done.bytes_reencoded;
            places.extend(done.places.iter().cloned());
            let gone = GoneRows::new(affected.ordinals.clone());
            rewrites.push(Rewrite { was: affected.shard.clone(), live: *live, now: done.now.clone(), gone });
        }
        report.shards = rewrites.iter().map(ShardReceipt::from_rewrite).collect();
        self.adopted_that_name(&rewrites, report)?;
        let counts = newest_counts(&rewrites)?;
        // The report counts erased records itself, including those of older versions.
        report.counts = Counts { records_erased: 0, ..counts };
        let reindexed = self.reindex(gone, work)?;
        report.sources_erased = gone.len() as u64;
        let mut numbers = NumberSet::default();
        self.all_hits().for_each(|hit| {
            numbers.insert(hit.record);
        });
        let mut numbers = numbers.to_ranges();
        if numbers.is_empty() {
            // Records that were omitted have no numbers; the reason and the version are on record.
            numbers.push((self.newest.entry().next_record, 0));
        }
        let order = self.remaining_work(&rewrites, &reindexed, erased_ids, report)?;
        let unfinished = work.keep_order(&order)?;
        let erasure = Erasure {
            id: work.transaction_id().clone(),
            begun_on: work.begun_on,
            attempts: work.attempts_to_commit(),
            arguments: self.entry_arguments(),
            counts,
            all_versions: self.options.all_versions,
            reason: self.options.reason.clone(),
            rewrites,
            places,
            reindexed,
            known: self.segments.iter().map(|segment| segment.path.clone()).collect(),
            ids: self.id_queries().iter().map(|query| (query.hash, query.hashed_text().to_owned())).collect(),
            origins: self.id_queries().iter().filter_map(|query| query.source_of_origin()).collect(),
            numbers,
            salt: self.salt,
            suppressed: self.entries_to_block(gone),
            unfinished,
        };
        Ok((erasure, order))
    }

    /// Returns the work to be done after the commit. For an erasure from the newest version alone nothing is deleted,
    /// because older versions need the objects.
    fn remaining_work(
        &self,
        rewrites: &[Rewrite],
        reindexed: &[Reindexed],
        erased_ids: Vec<String>,
        report: &EraseReport,
    ) -> Result<ErasureOrder> {
        let receipt =
            Receipt::new(&self.id_queries(), &self.salt, report, self.newest.entry(), self.options).to_value()?;
        if !self.options.all_versions {
            return Ok(ErasureOrder { delete: Vec::new(), words: Vec::new(), receipt });
        }
        let shards = rewrites.iter().map(|rewrite| &rewrite.was);
        let delete = replaced_objects(
            self.dataset,
            shards,
            reindexed.iter().map(|one| (one.replaced_path(), one.was_buckets())),
        )?;
        let words = erased_ids.iter().map(|id| HashedText::from_text(&self.salt, id)).collect();
        Ok(ErasureOrder { delete, words, receipt })
    }

    /// Returns texts that must not remain anywhere: the ids, and other names of the records, as far as they can be
    /// known.
    fn erased_ids(&self) -> Result<Vec<String>> {
        let mut all: BTreeSet<String> = self.ids.iter().map(|id| id.id.clone()).collect();
        all.extend(self.id_queries().iter().map(|query| query.hashed_text().to_owned()));
        for hit in self.all_hits().filter(|hit| !is_origin(hit)) {
            all.insert(self.newest.shown_id(hit.record_id.clone())?);
            all.insert(self.hashed_part(&hit.record_id).to_owned());
        }
        for stored in self.left_out.iter().filter_map(|left_out| left_out.row.record_id.as_ref()) {
            all.insert(self.newest.shown_id(stored.clone())?);
            all.insert(self.hashed_part(stored).to_owned());
        }
        Ok(all.into_iter().collect())
    }

    /// Returns the part of a stored id that is hashed.
    fn hashed_part<'t>(&self, stored: &'t str) -> &'t str {
        if self.pseudonymizer.is_some() { token_of(stored) } else { stored }
    }

    fn entry_arguments(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        if self.options.all_versions {
            out.insert("all-versions".to_owned(), "true".to_owned());
        }
        if let Some(reason) = &self.options.reason {
            out.insert("reason".to_owned(), reason.clone());
        }
        out
    }

    /// Deletes what earlier attempts wrote and this one does not need.
    fn discard_outdated(
        &self,
        affected_shards: &[(AffectedShard, bool)],
        gone: &HashSet<String>,
        work: &mut ErasureWork<'_>,
    ) -> Result<()> {
        let segments = self.segments.iter().map(|segment| segment.path.as_str());
        let lists = self.sources.iter().map(|list| list.path.as_str()).filter(|_| !gone.is_empty());
        let wanted = RewriteTargets {
            records: self.all_hits().map(|hit| hit.record).collect(),
            next_record: self.newest.entry().next_record,
            sources: gone.clone(),
        };
        let listed = self.newest.entry().settings.indexes.iter().any(|kind| kind.files().of_folder.is_some());
        work.discard_outdated(affected_shards, &segments.chain(lists).collect(), wanted, listed)
    }

    /// Rewrites segments and lists of sources that name erased records.
    fn reindex(&self, gone: &HashSet<String>, work: &mut ErasureWork<'_>) -> Result<Vec<Reindexed>> {
        let erased: HashSet<u64> = self.all_hits().map(|hit| hit.record).collect();
        let settings = &self.newest.entry().settings;
        let hashes = |kind: IdKind| -> Vec<IdHash> {
            let id = |hit: &Hit| match kind {
                IdKind::Record => Some(stored_hash(settings, &hit.record_id)),
                IdKind::Subject => hit.subject_id.as_deref().map(|stored| stored_hash(settings, stored)),
            };
            self.all_hits().filter_map(id).collect()
        };
        let (records, subjects) = (hashes(IdKind::Record), hashes(IdKind::Subject));
        let transaction = work.transaction_id().clone();
        let mut out = work.reindex_objects(
            &self.segments,
            |segment| segment.path.as_str(),
            |segment, number| {
                let hashes = if segment.kind == IdKind::Record { &records } else { &subjects };
                rewrite_segment(self.dataset, segment, &erased, hashes, &transaction, number)
            },
        )?;
        if !gone.is_empty() {
            out.extend(work.reindex_objects(
                &self.sources,
                |list| list.path.as_str(),
                |list, number| rewrite_source_list(self.dataset, list, gone, &transaction, number),
            )?);
        }
        Ok(out)
    }

    /// Returns the URIs of sources that belong to the subject: files of erased samples, and sources without remaining
    /// records whose name contains an erased id.
    fn sources_to_drop(&self, report: &mut EraseReport) -> Result<HashSet<String>> {
        let mut gone = HashSet::new();
        if report.records_erased == 0 && self.left_out.is_empty() {
            return Ok(gone);
        }
        let stored = self.all_hits().filter(|hit| !is_origin(hit)).map(|hit| self.hashed_part(&hit.record_id));
        let left_out = self.left_out.iter().filter_map(|left_out| left_out.row.record_id.as_deref());
        let keys: HashSet<&str> = stored.chain(left_out.map(|stored| self.hashed_part(stored))).collect();
        let is_erased = |key: &str| keys.contains(IdQuery::new(self.pseudonymizer.as_ref(), key).hashed_text());
        let erased_ids = self.erased_ids()?;
        let rule = &self.newest.entry().settings.keys;
        let (mut named, mut firsts): (Vec<(String, Vec<u64>)>, BTreeSet<u64>) = (Vec::new(), BTreeSet::new());
        self.newest.each_source(&mut |source| {
            let is_part = source.is_part_of_sample();
            if is_part && is_erased(&rule.path_key(&source.name)) {
                gone.insert(source.uri);
            } else if !is_part {
                firsts.extend(source.first_records());
                let names = |text: &str| erased_ids.iter().any(|id| rejects::has_word(text, id));
                if names(&source.name) || names(&source.uri) {
                    let own = source.first_records().collect();
                    named.push((source.uri, own));
                }
            }
            Ok(())
        })?;
        self.entries_that_name(&erased_ids, report)?;
        if named.is_empty() {
            return Ok(gone);
        }
        let mut erased = NumberSet::default();
        let mut count = |numbers: std::ops::Range<u64>| numbers.filter(|number| erased.insert(*number)).count();
        self.all_hits().for_each(|hit| {
            count(hit.record..hit.record + 1);
        });
        for stone in read_tombstones(self.dataset, self.newest.entry())? {
            count(stone.first..stone.first + stone.records);
        }
        let ranges = erased.to_ranges();
        let left = |from: u64, to: u64| {
            let inside = |(first, records): &(u64, u64)| (first + records).min(to).saturating_sub((*first).max(from));
            (to - from) - ranges.iter().map(inside).sum::<u64>()
        };
        for (uri, own) in named {
            let end = |first| firsts.range(first + 1..).next().copied().unwrap_or(self.newest.entry().next_record);
            if own.into_iter().all(|first| left(first, end(first)) == 0) {
                gone.insert(uri);
            } else {
                report.names_kept.push(uri);
            }
        }
        Ok(gone)
    }

    /// Reports log entries whose reasons, options or revisions contain an erased id; entries are never changed.
    fn entries_that_name(&self, erased_ids: &[String], report: &mut EraseReport) -> Result<()> {
        if !self.options.all_versions {
            return Ok(());
        }
        let names = |text: &str| erased_ids.iter().any(|id| rejects::has_word(text, id));
        for entry in self.dataset.entries_up_to(self.newest.version())? {
            let arguments = entry.arguments.iter().filter(|(_, text)| names(text)).map(|(name, _)| name.as_str());
            let revisions = entry.revisions.iter().filter(|revision| {
                let texts = [Some(&revision.source), revision.reference.as_ref(), revision.root.as_ref()];
                texts.into_iter().flatten().any(|text| names(text))
            });
            let places: Vec<&str> = arguments.chain(revisions.map(|_| "revisions")).collect();
            if !places.is_empty() {
                report.names_kept.push(format!("the log entry of {} ({})", entry.version, places.join(", ")));
            }
        }
        Ok(())
    }

    /// Deletes the objects that the commit replaced, and writes the receipt.
    fn finish_erasure(&self, unfinished: &Unfinished, order: ErasureOrder, report: &mut EraseReport) -> Result<()> {
        let erased_ids = if self.options.all_versions { self.erased_ids()? } else { Vec::new() };
        delete_void_plans(self.dataset)?;
        let done = finish::finish_one(self.context, self.dataset, unfinished, order, &Words::Known(&erased_ids))?;
        report.objects_deleted = done.receipt.objects_deleted.len() as u64;
        report.rejects_erased = done.receipt.rejects_erased;
        report.add_not_searched(done.receipt.not_searched);
        report.objects_unreferenced = done.receipt.objects_unreferenced.unwrap_or_default();
        self.hand_over(done.path, report)
    }

    /// Copies the receipt to the user's destination, if one is given.
    fn hand_over(&self, path: String, report: &mut EraseReport) -> Result<()> {
        if let Some(location) = &self.options.receipt {
            receipt::copy_receipt(self.dataset.store().as_ref(), &path, location, &self.context.settings)?;
        }
        report.receipt = Some(path);
        Ok(())
    }

    /// Repeats the cleaning of an earlier erasure of the same ids: objects that were put back, objects left by a
    /// release that kept no record of them, and lines of rejects.
    fn clean_again(&self, report: &mut EraseReport) -> Result<()> {
        let store = self.dataset.store();
        let mut deleted = Vec::new();
        for object in find_leftovers(&self.newest)? {
            self.context.cancel.check()?;
            if object.delete(self.dataset)? {
                deleted.push(object.path);
            }
        }
        report.objects_deleted = deleted.len() as u64;
        if self.options.all_versions {
            let searched = rejects::erase_all(store, &Words::Known(&self.erased_ids()?))?;
            report.rejects_erased = searched.removed;
            report.add_not_searched(searched.damaged);
            report.objects_unreferenced = finish::count_unreferenced(self.context, self.dataset).unwrap_or_default();
        }
        if !deleted.is_empty() || report.rejects_erased > 0 {
            let mut receipt = Receipt::new(&self.id_queries(), &self.salt, report, self.newest.entry(), self.options);
            receipt.objects_deleted = deleted;
            receipt.rejects_erased = report.rejects_erased;
            receipt.not_searched.clone_from(&report.not_searched);
            receipt.objects_unreferenced = Some(report.objects_unreferenced);
            return self.hand_over(receipt.write(store.as_ref(), &TransactionId::fresh())?, report);
        }
        // Nothing was left to erase, so the receipt is that of the earlier erasure.
        let Some(version) = report.ids.iter().filter_map(|id| id.erased_in).max() else { return Ok(()) };
        let path = receipt_path(&self.dataset.transaction_of(version)?);
        if store.head(&path)?.is_some() { self.hand_over(path, report) } else { Ok(()) }
    }
}

/// Returns ids as a dataset stores them.
fn queries_for_ids<'a>(ids: &'a [EraseId], pseudonymizer: Option<&'a Pseudonymizer>) -> Vec<IdQuery<'a>> {
    ids.iter().map(|id| IdQuery::new(pseudonymizer, &id.id)).collect()
}

/// Returns the counts for the newest version: erased records count as rejected, too.
fn newest_counts(rewrites: &[Rewrite]) -> Result<Counts> {
    let live = || rewrites.iter().filter(|rewrite| rewrite.live);
    let adds = || live().filter_map(|rewrite| rewrite.now.as_ref());
    let (records_in, records_out): (u64, u64) =
        (live().map(|rewrite| rewrite.was.records).sum(), adds().map(|shard| shard.meta.records).sum());
    let erased = records_in
        .checked_sub(records_out)
        .ok_or_else(|| Error::inconsistent_output("expected fewer records, found more"))?;
    let counts = Counts {
        records_in,
        records_out,
        records_rejected: erased,
        records_erased: erased,
        bytes_in: live().map(|rewrite| rewrite.was.bytes).sum(),
        bytes_out: adds().map(|shard| shard.meta.bytes).sum(),
        shards_added: adds().count() as u64,
        shards_removed: live().count() as u64,
        ..Counts::default()
    };
    counts.reconcile()?;
    Ok(counts)
}
