//! Drafts: the entry and the lists of the next version, on top of the newest one.
//!
//! Numbers and versions are given here. Where another run commits first, the next draft gives them anew on top of it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};
use jiff::Timestamp;

use crate::{
    codec::merkle,
    dataset::{
        index::{self, SegmentRef, places::PlaceRef},
        log::{
            clock,
            commit::Attempt,
            duplicates::DuplicatesRef,
            entry::{Entry, FORMAT_VERSION, Totals},
            erased,
            retraction::{RemovedBy, runs_of},
            root,
            runs::{self, Run},
            shards::{self, NewShard, ShardMeta},
            snapshot::{Dataset, Snapshot},
            sources::{self, OptionalColumns, SourceRow},
            transaction::{Numbers, Transaction},
        },
        table::{
            self, TableWriter, growth,
            list::ListRef,
            paths::{system_path, table_path},
            sealed::seal_of,
        },
    },
    error::{Error, Result},
    id::Version,
    storage::{Staged, Store},
};

/// Rows up to which a list always becomes one with others, some hundred bytes each.
const LEAST_ROWS: u64 = 16;

/// Rows of a list that a small commit makes of others at most.
const MAX_MERGED_ROWS: u64 = 12_288;

/// How many times the rows that a commit adds it may write again at least.
const REWRITTEN: u64 = 4;

/// One attempt to build the next version.
pub(in crate::dataset) struct Draft<'a> {
    pub(in crate::dataset) dataset: &'a Dataset,
    pub(in crate::dataset) transaction: &'a Transaction<'a>,
    attempt: &'a Attempt,
    /// What its names have in common with those of no other attempt.
    name: String,
    /// Tables that have no names yet: all are published at once.
    staged: RefCell<Vec<Staged>>,
}

impl<'a> Draft<'a> {
    /// `before` is the number of attempts in earlier calls, whose tables may have their names already.
    pub(in crate::dataset) fn new(
        dataset: &'a Dataset,
        transaction: &'a Transaction<'a>,
        before: usize,
        attempt: &'a Attempt,
    ) -> Self {
        let name = format!("{}-{}", transaction.id, before + attempt.number);
        Self { dataset, transaction, attempt, name, staged: RefCell::default() }
    }

    pub(in crate::dataset) fn publish_staged(&self) -> Result<()> {
        let staged = self.staged.take();
        if staged.is_empty() {
            return Ok(());
        }
        let paths: Vec<String> = staged.iter().map(|staged| staged.path.clone()).collect();
        self.dataset.store().publish_staged(staged)?;
        self.attempt.published.borrow_mut().extend(paths);
        Ok(())
    }

    pub(in crate::dataset) fn build_entry(&self, parent: Option<&Snapshot>) -> Result<Entry> {
        let old = parent.map(Snapshot::entry);
        let version = old.map_or(Version(0), |e| e.version).next();
        let base = old.map_or(0, |e| e.next_record);
        let (shift, fresh) = match self.transaction.numbers {
            Numbers::Fresh(records) => (base, records),
            Numbers::Kept => (0, 0),
        };
        let moment = clock::commit_moment(self.dataset, old)?;
        let committed_at = moment.committed_at;
        let adds = self.numbered_shards(shift, version, committed_at);
        let removed: HashSet<&str> = self.transaction.removes.iter().map(String::as_str).collect();
        let (shards, totals) = self.shard_lists(parent, &adds, &removed)?;
        let settings = self.transaction.settings_on(old.map(|e| &e.settings));
        Ok(Entry {
            format: FORMAT_VERSION,
            version,
            transaction: self.transaction.id.clone(),
            committed_at,
            operation: self.transaction.operation,
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
            arguments: self.transaction.arguments.clone(),
            revisions: self.transaction.revisions.clone(),
            counts: self.transaction.counts,
            settings,
            totals,
            next_record: base + fresh,
            readable_from: old.map_or(Version(0), |e| e.readable_from),
            abandoned: Vec::new(),
            corrections: moment.corrections,
            tags: old.map_or_else(BTreeMap::new, |e| e.tags.clone()),
            shards,
            runs: self.run_lists(parent, &removed, shift, version)?,
            lineage: old.map_or_else(Vec::new, |e| e.lineage.clone()),
            sources: self.source_lists(old, shift, version)?,
            history: old.map_or_else(Vec::new, |e| e.history.clone()),
            segments: self.segment_refs(old, shift)?,
            places: self.place_refs(old, shift),
            duplicates: self.duplicate_refs(old, version),
            erasures: old.and_then(|e| e.erasures.clone()),
            basis: Vec::new(),
            root: None,
        })
    }

    fn numbered_shards(&self, shift: u64, version: Version, committed_at: Timestamp) -> Vec<ShardMeta> {
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

    fn place_refs(&self, old: Option<&Entry>, shift: u64) -> Vec<PlaceRef> {
        let new = self.transaction.places.iter().map(|places| places.clone().shifted_by(shift));
        old.into_iter().flat_map(|e| &e.places).cloned().chain(new).collect()
    }

    fn duplicate_refs(&self, old: Option<&Entry>, version: Version) -> Vec<DuplicatesRef> {
        let fresh = self.transaction.duplicates.iter().map(|table| DuplicatesRef { version, ..table.clone() });
        old.into_iter().flat_map(|entry| entry.duplicates.iter().cloned()).chain(fresh).collect()
    }

    fn segment_refs(&self, old: Option<&Entry>, shift: u64) -> Result<Vec<SegmentRef>> {
        let mut segments: Vec<SegmentRef> = old.into_iter().flat_map(|e| e.segments.iter().cloned()).collect();
        for merge in &self.transaction.merges {
            let replaced = |segment: &SegmentRef| merge.replaces.contains(&segment.path);
            // Where another run has merged some of them meanwhile, what it made has their pairs and stays.
            if segments.iter().filter(|segment| replaced(segment)).count() == merge.replaces.len() {
                segments.retain(|segment| !replaced(segment));
                segments.push(merge.by.clone());
            }
        }
        let rebased = self.transaction.segments.iter().map(|segment| segment.clone().shifted_by(shift));
        let rebased: Vec<SegmentRef> = rebased.collect();
        let (segments, staged) = index::grow_segments(self.dataset.store(), segments, &rebased, &self.name)?;
        self.staged.borrow_mut().extend(staged);
        Ok(segments)
    }

    /// Rows of lists that a commit may write again which adds so many: one shard more must not cost megabytes.
    fn most_rows(&self, added: u64) -> u64 {
        match self.transaction.numbers {
            Numbers::Fresh(_) => MAX_MERGED_ROWS.max(REWRITTEN * added),
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
                lists.keep_list(list.clone());
                continue;
            }
            let rows = shards::read(self.dataset.log_cache(), &list.as_sealed())?;
            let (gone, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(|s| removed.contains(s.path.as_str()));
            if gone.is_empty() {
                lists.keep_list(list.clone());
            } else {
                lists.add_rows(&shards::to_batch(&rest)?)?;
            }
            gone.iter().try_for_each(|shard| totals.subtract_shard(shard.records, shard.bytes))?;
        }
        lists.add_rows(&shards::to_batch(adds)?)?;
        for shard in adds {
            totals.shards += 1;
            totals.records += shard.records;
            totals.bytes += shard.bytes;
        }
        Ok((lists.into_merged(self.most_rows(adds.len() as u64))?, totals))
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
                lists.keep_list(list.clone());
                continue;
            }
            let mut rows = runs::read(self.dataset.log_cache(), &list.as_sealed())?;
            let mut changed = false;
            for run in rows.iter_mut().filter(|r| r.until.is_none() && removed.contains(r.shard.as_str())) {
                run.until = Some(version);
                changed = true;
            }
            if changed { lists.add_rows(&runs::to_batch(&rows)?)? } else { lists.keep_list(list.clone()) }
        }
        let retraction = &self.transaction.retraction;
        let adds = self.transaction.adds.iter().flat_map(|shard| runs_of(shard, shift, version));
        let rewritten = retraction.rewritten.iter().flat_map(|shard| runs_of(shard, 0, version));
        let fresh: Vec<Run> = adds.chain(rewritten).chain(retraction.restored_runs(version)).collect();
        lists.add_rows(&runs::to_batch(&fresh)?)?;
        lists.into_merged(self.most_rows(fresh.len() as u64))
    }

    fn source_lists(&self, old: Option<&Entry>, shift: u64, version: Version) -> Result<Vec<ListRef>> {
        let mut lists = ListWriter::new(self, "sources");
        for list in old.map_or(&[][..], |e| &e.sources) {
            match self.transaction.retraction.sources {
                Some(removed_by) => self.mark_sources(&mut lists, list, version, removed_by)?,
                None => lists.keep_list(list.clone()),
            }
        }
        let sources = self.transaction.sources;
        let optional = sources.optional_columns();
        let batches = |give: &mut Give<'_>| {
            let rows = |visit: &mut dyn FnMut(SourceRow) -> Result<()>| {
                sources.each_row(&mut |source| visit(SourceRow { version, ..source.shifted_by(shift) }))
            };
            sources::in_batches(optional, rows, give)
        };
        lists.write(&mut |add| made_ahead(batches, add))?;
        let most = self.most_rows(lists.own_rows());
        lists.into_merged(most)
    }
}

/// Receives batches that a thread of its own makes.
type Give<'a> = dyn FnMut(RecordBatch) -> Result<()> + 'a;

/// Batches that wait to be written.
const AHEAD: usize = 2;

/// Makes batches on a thread of its own while those before them are written.
fn made_ahead(make: impl FnOnce(&mut Give<'_>) -> Result<()> + Send, add: &mut Add<'_>) -> Result<()> {
    let (give, made) = crossbeam_channel::bounded(AHEAD);
    std::thread::scope(|scope| {
        // Nobody receives any more if writing failed, which is then the error.
        let work = move || make(&mut |batch| give.send(batch).map_err(|_| Error::internal("a list was not written")));
        let thread = std::thread::Builder::new().name("sources".to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| Error::internal("starting a thread failed").with_cause(e))?;
        let written = made.iter().try_for_each(|batch| add(&batch));
        drop(made);
        let made = thread.join().unwrap_or_else(|panic| Err(Error::of_panic(panic.as_ref())));
        written.and(made)
    })
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
            lists.keep_list(list.clone());
            return Ok(());
        }
        let optional = OptionalColumns {
            removed: true,
            ..OptionalColumns::from_columns(&table::columns_of(lists.store(), list)?)
        };
        let store = lists.store();
        lists.write(&mut |add| {
            let rows = |visit: &mut dyn FnMut(SourceRow) -> Result<()>| {
                sources::read(store, list, &mut |row| visit(SourceRow { removed: removed_by(&row, version), ..row }))
            };
            sources::in_batches(optional, rows, &mut |batch| add(&batch))
        })
    }
}

/// The kind of lists of shards, whose rows are hashed.
const SHARDS: &str = "shards";

/// Takes rows of a list.
pub(in crate::dataset) type Add<'a> = dyn FnMut(&RecordBatch) -> Result<()> + 'a;

/// Rows that are held in memory until it is known with which lists they become one.
const HELD_ROWS: usize = 8_192;

/// Lists below this size are read as a whole when they are merged.
const WHOLE_LIST: u64 = 1 << 20;

/// Collects the lists of one kind for the next version, writing those that changed.
pub(in crate::dataset) struct ListWriter<'a> {
    draft: &'a Draft<'a>,
    kind: &'static str,
    lists: Vec<ListRef>,
    /// Rows that are in no list yet, fewer than [`HELD_ROWS`] for each that was written.
    held: Vec<RecordBatch>,
    written: usize,
}

impl<'a> ListWriter<'a> {
    pub(in crate::dataset) fn new(draft: &'a Draft<'a>, kind: &'static str) -> Self {
        Self { draft, kind, lists: Vec::new(), held: Vec::new(), written: 0 }
    }

    fn store(&self) -> &'a Arc<dyn Store> {
        self.draft.dataset.store()
    }

    pub(in crate::dataset) fn keep_list(&mut self, list: ListRef) {
        self.lists.push(list);
    }

    pub(in crate::dataset) fn add_rows(&mut self, rows: &RecordBatch) -> Result<()> {
        self.write(&mut |add| add(rows))
    }

    /// Adds rows: few are held, many are written as a list.
    pub(in crate::dataset) fn write(&mut self, fill: &mut dyn FnMut(&mut Add<'_>) -> Result<()>) -> Result<()> {
        let (mut held, mut rows): (Vec<RecordBatch>, usize) = (Vec::new(), 0);
        let mut list: Option<NewList<'a>> = None;
        fill(&mut |batch| {
            if let Some(list) = &mut list {
                return list.add_rows(batch);
            }
            rows += batch.num_rows();
            held.push(batch.clone());
            if rows < HELD_ROWS {
                return Ok(());
            }
            let begun = list.insert(self.begin_list());
            held.drain(..).try_for_each(|batch| begun.add_rows(&batch))
        })?;
        self.held.append(&mut held);
        list.map_or(Ok(()), |list| self.finish_list(list))
    }

    /// Returns the number of rows that were added, whether they are in a list or not.
    fn own_rows(&self) -> u64 {
        let own = system_path(&self.own_names());
        let listed = self.lists.iter().filter(|list| list.path.starts_with(&own)).map(|list| list.rows);
        listed.sum::<u64>() + rows_in(&self.held)
    }

    fn begin_list(&self) -> NewList<'a> {
        let path = table_path(&format!("{}{}", self.own_names(), self.written));
        let leaves = (self.kind == SHARDS).then(Vec::new);
        NewList { table: TableWriter::new(self.store().as_ref(), &path), path, leaves }
    }

    /// Finishes a list; one without rows is skipped.
    fn finish_list(&mut self, list: NewList<'a>) -> Result<()> {
        let Some((staged, rows)) = list.table.finish()? else { return Ok(()) };
        let seal = seal_of(&staged)?;
        self.draft.staged.borrow_mut().push(staged);
        self.written += 1;
        let root = list.leaves.map(|leaves| merkle::merkle_root(&leaves));
        self.lists.push(ListRef { path: list.path, rows, root, seal });
        Ok(())
    }

    /// Returns what the names of the lists of this kind begin with that this draft writes.
    fn own_names(&self) -> String {
        format!("lists/{}-{}-", self.draft.name, self.kind)
    }

    /// Returns the columns of lists with these columns together; `None` for kinds that always have the same.
    fn schema_with(&self, known: &HashSet<String>) -> Option<SchemaRef> {
        let full = match self.kind {
            "runs" => runs::run_schema(),
            SHARDS => shards::shard_schema(),
            "replaced" => erased::replaced_schema(),
            "rewritten" => erased::rewritten_schema(),
            "sources" => sources::source_schema(),
            _ => return None,
        };
        // Every list has those that cannot be null.
        let kept = full.fields().iter().filter(|field| !field.is_nullable() || known.contains(field.name().as_str()));
        Some(Arc::new(Schema::new(kept.cloned().collect::<Vec<_>>())))
    }

    /// The lists, after the smallest ones and the rows in no list have become one, where there are too many and that is
    /// no more than `most` rows; all of them where the id index is merged, too, for then lookups are to be quick.
    pub(in crate::dataset) fn into_merged(mut self, most: u64) -> Result<Vec<ListRef>> {
        let held = std::mem::take(&mut self.held);
        let rows = rows_in(&held);
        let all = !self.draft.transaction.merges.is_empty() && (self.lists.len() > 1 || rows > 0);
        let chosen = match all {
            true => std::mem::take(&mut self.lists),
            false => growth::take_crowd(&mut self.lists, rows, LEAST_ROWS, most),
        };
        self.join_lists(&chosen, held)?;
        Ok(self.lists)
    }

    /// Makes one list of several and of rows that are in none.
    fn join_lists(&mut self, lists: &[ListRef], held: Vec<RecordBatch>) -> Result<()> {
        let own = system_path(&self.own_names());
        let is_own = |list: &&ListRef| list.path.starts_with(&own);
        if lists.iter().any(|list| is_own(&list)) {
            self.draft.publish_staged()?;
        }
        let (small, large): (Vec<&ListRef>, Vec<&ListRef>) =
            lists.iter().partition(|list| list.seal.bytes < WHOLE_LIST);
        let (store, cache) = (self.store(), self.draft.dataset.log_cache());
        let mut rows = table::fetch::in_parallel(&small, &|list| cache.rows_of(list))
            .into_iter()
            .collect::<Result<Vec<_>>>()?
            .concat();
        rows.extend(held);
        let mut known: HashSet<String> = HashSet::new();
        for list in &large {
            known.extend(table::columns_of(store, list)?);
        }
        let names = rows.iter().flat_map(|batch| batch.schema_ref().fields().iter().map(|field| field.name().clone()));
        known.extend(names);
        let schema = self.schema_with(&known);
        let mut list = self.begin_list();
        let add = &mut |rows: &RecordBatch| match &schema {
            Some(schema) => list.add_rows(&table::with_all_columns(rows, schema)?),
            None => list.add_rows(rows),
        };
        large.iter().try_for_each(|list| table::read_batches(store, list, add))?;
        rows.iter().try_for_each(add)?;
        self.finish_list(list)?;
        // What was written on the way is part of no version. `vacuum` finds it if the store does not allow deletions
        // here.
        for list in lists.iter().filter(is_own) {
            let _ = store.delete(&list.path);
        }
        Ok(())
    }
}

fn rows_in(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}

/// A list that is being written.
struct NewList<'a> {
    path: String,
    table: TableWriter<'a>,
    /// Hashes of its rows, of a list of shards.
    leaves: Option<Vec<merkle::Hash>>,
}

impl NewList<'_> {
    fn add_rows(&mut self, rows: &RecordBatch) -> Result<()> {
        if let Some(leaves) = &mut self.leaves {
            leaves.extend(root::shard_leaves(rows)?);
        }
        self.table.add_rows(rows)
    }
}
