//! Copies of a version of another dataset, called *upstream*: which objects they need, and their own log.
//!
//! A copy has upstream's objects under the same paths, and a log of its own, in which every pull is a version:
//!
//! ```text
//! upstream   v1   v2   v3   v4   v5        lists, runs, sources as the upstream dataset has them
//! copy               v1        v2        new lists: live shards and runs, versions counted as the copy counts them
//! ```
//!
//! Record numbers are those of upstream, so the id index is copied as it is. What the copy cannot know without
//! upstream's history is in the arguments of the entry: where it was pulled from, and which columns older ids came
//! from.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array},
    compute::{filter_record_batch, kernels::arity::unary},
};
use serde::{Deserialize, Serialize};

use crate::{
    codec::hex::to_hex,
    dataset::{
        index::places::PlaceRef,
        log::{
            clock,
            commit::{Next, until_created},
            committed::{self, committed_shards},
            draft::{Draft, ListWriter},
            entry::{Counts, Entry, FORMAT_VERSION},
            erased::read_tombstones,
            erasures::Erasures,
            operation::Operation,
            part::Part,
            runs::{self, Run},
            shards::{self, ShardMeta},
            snapshot::{Dataset, Snapshot},
            sources::{self, OptionalColumns, SourceRow},
            transaction::Transaction,
        },
        table::{self, list::ListRef, sealed::Sealed, typed_column},
    },
    error::{Error, Result},
    id::{TransactionId, Version},
    record::split::split_of_path,
};

/// Columns of the record id, column of the subject id, and whether subject ids have no column.
pub type IdColumns = (Vec<String>, Option<String>, bool);

/// Name of the argument that holds the [`IdColumns`] of upstream's older versions.
const ID_COLUMNS: &str = "upstream_id_columns";

/// What a version of a copy was pulled from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// Location without secrets.
    pub place: String,
    /// Transaction of its first version, which identifies the dataset wherever it is.
    pub id: TransactionId,
    /// The version.
    pub version: Version,
    /// Transaction of the version.
    pub transaction: TransactionId,
}

impl Upstream {
    /// Returns the upstream dataset of a snapshot's copies.
    ///
    /// # Errors
    /// When the first log entry cannot be read.
    pub fn from_snapshot(snapshot: &Snapshot) -> Result<Self> {
        Ok(Self {
            place: snapshot.dataset().store().location().to_string(),
            id: snapshot.dataset().transaction_of(Version(1))?,
            version: snapshot.version(),
            transaction: snapshot.entry().transaction.clone(),
        })
    }

    /// Returns the upstream dataset of an entry that a pull has made.
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        let argument = |name: &str| entry.arguments.get(name);
        (entry.operation == Operation::Pull).then_some(())?;
        Some(Self {
            place: argument("upstream")?.clone(),
            id: TransactionId(argument("upstream_id")?.clone()),
            version: Version(argument("upstream_version")?.trim_start_matches('v').parse().ok()?),
            transaction: TransactionId(argument("upstream_transaction")?.clone()),
        })
    }

    fn to_arguments(&self, snapshot: &Snapshot) -> Result<BTreeMap<String, String>> {
        let pairs = [
            ("upstream", self.place.clone()),
            ("upstream_id", self.id.0.clone()),
            ("upstream_version", self.version.to_string()),
            ("upstream_transaction", self.transaction.0.clone()),
        ];
        let mut out: BTreeMap<String, String> =
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if let Some(root) = &snapshot.entry().root {
            out.insert("upstream_root".to_owned(), to_hex(root));
        }
        with_id_columns(out, snapshot)
    }
}

/// Adds the [`IdColumns`] of a snapshot's log, if they differ, to the arguments of an entry in another dataset.
pub(super) fn with_id_columns(
    mut arguments: BTreeMap<String, String>,
    snapshot: &Snapshot,
) -> Result<BTreeMap<String, String>> {
    let columns = id_columns(&snapshot.dataset().entries_up_to(snapshot.version())?);
    if columns.len() > 1 {
        let text = serde_json::to_string(&columns);
        let text = text.map_err(|e| Error::internal("encoding columns failed").with_cause(e))?;
        arguments.insert(ID_COLUMNS.to_owned(), text);
    }
    Ok(arguments)
}

/// Returns the id columns of some entries, without repetition; of datasets made of others, also those that these had
/// before.
pub fn id_columns(entries: &[Entry]) -> Vec<IdColumns> {
    let mut columns: Vec<IdColumns> = Vec::new();
    for entry in entries {
        let settings = &entry.settings;
        let own = (settings.id.clone(), settings.subject.clone(), settings.subjects_from.is_some());
        let earlier =
            entry.arguments.get(ID_COLUMNS).filter(|_| matches!(entry.operation, Operation::Pull | Operation::Reshard));
        let earlier: Vec<IdColumns> = earlier.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        for one in earlier.into_iter().chain([own]) {
            if !columns.contains(&one) {
                columns.push(one);
            }
        }
    }
    columns
}

/// Returns the objects that a copy of a part of a snapshot has in common with it: shards, what is beside them, the id
/// index and tables of places.
///
/// # Errors
/// When a list cannot be read.
pub fn objects_of(snapshot: &Snapshot, part: &Part) -> Result<Vec<Sealed>> {
    let mut objects = data_of(snapshot, part)?;
    for segment in part.segments_in(snapshot) {
        let buckets: Vec<Sealed> =
            (0..segment.buckets).map(|bucket| segment.sealed_bucket(bucket)).collect::<Result<_>>()?;
        objects.extend(buckets);
    }
    objects.extend(part.places_in(snapshot)?.into_iter().map(|place| place.as_sealed()));
    Ok(objects)
}

/// Returns the shards of a part of a snapshot, and the objects beside them.
///
/// # Errors
/// When a list cannot be read.
pub fn data_of(snapshot: &Snapshot, part: &Part) -> Result<Vec<Sealed>> {
    let mut objects: BTreeMap<String, Sealed> = BTreeMap::new();
    let mut add = |object: Sealed| objects.insert(object.path.clone(), object);
    for shard in part.shards_in(snapshot)? {
        add(shard.as_sealed());
        shard.all_beside().into_iter().for_each(|object| drop(add(object)));
    }
    Ok(objects.into_values().collect())
}

/// Returns the paths of the lists that an entry names, which belong to one dataset alone.
pub fn lists_of(entry: &Entry) -> Vec<String> {
    entry.own_lists().map(|list| list.path.clone()).collect()
}

/// A version of a copy that is to be committed.
#[derive(Debug)]
pub struct NewCopy<'a> {
    /// The snapshot of the upstream dataset. Its objects are in the copy already.
    pub of: &'a Snapshot,
    /// The part of it that the copy has.
    pub part: &'a Part,
    /// What it is.
    pub upstream: &'a Upstream,
    /// The newest entry of the upstream dataset, which knows of all erasures.
    pub newest: &'a Entry,
    /// Whether the older versions of the copy cannot be read any longer.
    pub expires: bool,
    /// The version of the copy that the pull looked at when it started; 0: none.
    pub planned_on: Version,
}

/// Commits a version of a copy.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if another command has committed since the pull started; when a
/// store fails.
pub fn commit_copy(copy: &Dataset, new: &NewCopy<'_>) -> Result<Snapshot> {
    copy.test_store()?;
    let parent = copy.newest_snapshot()?;
    let pulls = match &parent {
        Some(parent) => pulls_of(&copy.entries_up_to(parent.version())?),
        None => Vec::new(),
    };
    let mut arguments = new.upstream.to_arguments(new.of)?;
    arguments.extend(new.part.to_argument());
    let transaction = Transaction {
        arguments,
        counts: count_shards(parent.as_ref(), new)?,
        ..Transaction::new(TransactionId::fresh(), Operation::Pull, new.of.entry().settings.clone())
    };
    transaction.counts.reconcile()?;
    until_created(copy, &transaction.id, new.planned_on, "committed", |attempt| {
        let parent = copy.newest_snapshot()?;
        if parent.as_ref().map_or(Version(0), Snapshot::version) != new.planned_on {
            return Err(Error::conflict("another command changed the copy during the pull")
                .at_location(copy.store().location().to_string())
                .with_hint("nothing was committed; run the pull again, it keeps what it has fetched"));
        }
        let draft = Draft::new(copy, &transaction, 0, attempt);
        let lists = Lists { draft: &draft, new, parent: parent.as_ref(), pulls: &pulls };
        let entry = lists.build_entry()?;
        draft.publish_staged()?;
        Ok(Next::Entry(Box::new(entry)))
    })
}

/// Returns the versions of the upstream dataset that a copy has pulled, with its own versions.
fn pulls_of(history: &[Entry]) -> Vec<(Version, Version)> {
    history.iter().filter_map(|entry| Some((Upstream::from_entry(entry)?.version, entry.version))).collect()
}

/// Counts the shards that are new to the copy, and those that it no longer has.
fn count_shards(parent: Option<&Snapshot>, new: &NewCopy<'_>) -> Result<Counts> {
    let had = parent.map(Snapshot::live_shards).transpose()?.unwrap_or_default();
    let had: HashSet<&str> = had.iter().map(|shard| shard.path.as_str()).collect();
    let has: HashSet<&str> = new.part.shards_in(new.of)?.map(|shard| shard.path.as_str()).collect();
    let mut counts = Counts { shards_removed: had.difference(&has).count() as u64, ..Counts::default() };
    for shard in new.part.shards_in(new.of)?.filter(|shard| !had.contains(shard.path.as_str())) {
        counts.shards_added += 1;
        counts.records_in += shard.records;
        counts.records_out += shard.records;
        counts.bytes_in += shard.bytes;
        counts.bytes_out += shard.bytes;
    }
    Ok(counts)
}

/// Makes the lists of a version of a copy.
struct Lists<'a> {
    draft: &'a Draft<'a>,
    new: &'a NewCopy<'a>,
    parent: Option<&'a Snapshot>,
    /// Versions of the upstream dataset, with those of the copy that have them.
    pulls: &'a [(Version, Version)],
}

impl Lists<'_> {
    fn next_version(&self) -> Version {
        self.new.planned_on.next()
    }

    /// Returns the first version of the copy that has what a version of the upstream dataset added.
    fn local_version(&self, version: Version) -> Version {
        let first = self.pulls.iter().filter(|(upstream, _)| *upstream >= version).map(|(_, here)| *here).min();
        first.unwrap_or_else(|| self.next_version())
    }

    fn build_entry(&self) -> Result<Entry> {
        let (of, old) = (self.new.of.entry(), self.parent.map(Snapshot::entry));
        let moment = clock::commit_moment(self.draft.dataset, old)?;
        let version = self.next_version();
        let mut tags = old.filter(|_| !self.new.expires).map_or_else(BTreeMap::new, |entry| entry.tags.clone());
        let named = self.new.of.tags().iter().filter(|(_, tagged)| **tagged == of.version);
        tags.extend(named.map(|(name, _)| (name.clone(), version)));
        let readable_from = old.map_or(Version(0), |entry| entry.readable_from);
        Ok(Entry {
            format: FORMAT_VERSION,
            version,
            transaction: self.draft.transaction.id.clone(),
            committed_at: moment.committed_at,
            operation: Operation::Pull,
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
            arguments: self.draft.transaction.arguments.clone(),
            revisions: of.revisions.clone(),
            counts: self.draft.transaction.counts,
            settings: of.settings.clone(),
            totals: self.new.part.totals_in(self.new.of)?,
            next_record: old.map_or(0, |entry| entry.next_record).max(of.next_record),
            readable_from: if self.new.expires { version } else { readable_from },
            abandoned: Vec::new(),
            corrections: moment.corrections,
            tags,
            shards: self.shard_lists(moment.committed_at)?,
            runs: self.run_lists()?,
            lineage: old.map_or_else(Vec::new, |entry| entry.lineage.clone()),
            sources: self.source_lists()?,
            history: old.map_or_else(Vec::new, |entry| entry.history.clone()),
            segments: self.new.part.segments_in(self.new.of).into_iter().cloned().collect(),
            places: self.place_refs()?,
            duplicates: Vec::new(),
            erasures: self.copied_erasures()?,
            basis: self.basis_lists()?,
            root: None,
        })
    }

    fn shard_lists(&self, now: jiff::Timestamp) -> Result<Vec<ListRef>> {
        let had = self.parent.map(Snapshot::live_shards).transpose()?.unwrap_or_default();
        let had: HashMap<&str, &ShardMeta> = had.iter().map(|shard| (shard.path.as_str(), shard)).collect();
        let rows = self.new.part.shards_in(self.new.of)?.map(|shard| match had.get(shard.path.as_str()) {
            Some(old) => ShardMeta { version: old.version, committed_at: old.committed_at, ..shard.clone() },
            None => ShardMeta { version: self.next_version(), committed_at: now, ..shard.clone() },
        });
        let mut lists = ListWriter::new(self.draft, "shards");
        lists.add_rows(&shards::to_batch(&rows.collect::<Vec<_>>())?)?;
        lists.into_merged(u64::MAX)
    }

    /// Returns what the version was before erasures whose replacements are copied.
    fn basis_lists(&self) -> Result<Vec<ListRef>> {
        let mut rows = committed_shards(self.new.of)?;
        rows.retain(|shard| !shard.is_whole() && self.new.part.has_split(split_of_path(&shard.path)));
        let mut lists = ListWriter::new(self.draft, "basis");
        lists.add_rows(&committed::to_batch(&rows)?)?;
        lists.into_merged(u64::MAX)
    }

    /// Makes the run table: the live runs of the snapshot, and those of older versions of the copy.
    fn run_lists(&self) -> Result<Vec<ListRef>> {
        let mut live: HashMap<(&str, u64, u64, u64), &Run> = HashMap::new();
        for run in self.new.part.runs_in(self.new.of)? {
            live.insert((&run.shard, run.first, run.records, run.ordinal), run);
        }
        let mut rows = Vec::new();
        for run in self.parent.map(Snapshot::run_table).transpose()?.into_iter().flat_map(|runs| runs.as_slice()) {
            let stays = run.until.is_none()
                && live.remove(&(run.shard.as_str(), run.first, run.records, run.ordinal)).is_some();
            if stays {
                rows.push(run.clone());
            } else if !self.new.expires {
                rows.push(Run { until: run.until.or(Some(self.next_version())), ..run.clone() });
            }
        }
        rows.extend(live.into_values().map(|run| Run {
            from: self.next_version(),
            until: None,
            since: None,
            ..run.clone()
        }));
        rows.sort_by(|a, b| (a.first, a.from, &a.shard, a.ordinal).cmp(&(b.first, b.from, &b.shard, b.ordinal)));
        let mut lists = ListWriter::new(self.draft, "runs");
        lists.add_rows(&runs::to_batch(&rows)?)?;
        lists.into_merged(u64::MAX)
    }

    fn source_lists(&self) -> Result<Vec<ListRef>> {
        let store = self.new.of.dataset().store();
        let mut lists = ListWriter::new(self.draft, "sources");
        for list in &self.new.of.entry().sources {
            let optional = OptionalColumns::from_columns(&table::columns_of(store, list)?);
            lists.write(&mut |add| {
                let rows = |visit: &mut dyn FnMut(SourceRow) -> Result<()>| {
                    sources::read(store, list, &mut |row| {
                        let removed = row.removed.map(|version| self.local_version(version));
                        visit(SourceRow { version: self.local_version(row.version), removed, ..row })
                    })
                };
                sources::in_batches(optional, rows, &mut |batch| add(&batch))
            })?;
        }
        lists.into_merged(u64::MAX)
    }

    /// Returns the tables of places of the snapshot, and those of older versions of the copy.
    fn place_refs(&self) -> Result<Vec<PlaceRef>> {
        let mut places: Vec<PlaceRef> = self.new.part.places_in(self.new.of)?.into_iter().cloned().collect();
        let old = self.parent.filter(|_| !self.new.expires).map_or(&[][..], |parent| &parent.entry().places);
        places.extend(
            old.iter().filter(|old| places.iter().all(|place| place.path != old.path)).cloned().collect::<Vec<_>>(),
        );
        Ok(places)
    }

    /// Returns what was erased. Nothing of it is in the objects of the copy, so nothing has to be read through
    /// replacements.
    fn copied_erasures(&self) -> Result<Option<Erasures>> {
        let Some(erasures) = &self.new.newest.erasures else { return Ok(None) };
        // What was erased later from the newest version alone is in the snapshot, and must not be taken for erased.
        let stones = read_tombstones(self.new.of.dataset(), self.new.newest)?;
        let everywhere: HashSet<u64> = stones.iter().filter(|s| s.all_versions).map(|s| s.version.0).collect();
        let applies = |version: u64| version <= self.new.of.version().0 || everywhere.contains(&version);
        Ok(Some(Erasures {
            rewrote_before: Version(0),
            suppressed: self.with_versions(&erasures.suppressed, "suppressed", &applies)?,
            tombstones: self.with_versions(&erasures.tombstones, "tombstones", &applies)?,
            rewritten: Vec::new(),
            replaced: Vec::new(),
            unfinished: Vec::new(),
            ..erasures.clone()
        }))
    }

    /// Writes the rows of the upstream dataset whose versions apply, with the versions of the copy.
    fn with_versions(&self, of: &[ListRef], kind: &'static str, applies: &dyn Fn(u64) -> bool) -> Result<Vec<ListRef>> {
        let store = self.new.of.dataset().store();
        let mut lists = ListWriter::new(self.draft, kind);
        for list in of {
            lists.write(&mut |add| {
                table::read_batches(store, list, &mut |batch| add(&self.with_version(batch, applies)?))
            })?;
        }
        lists.into_merged(u64::MAX)
    }

    fn with_version(&self, batch: &RecordBatch, applies: &dyn Fn(u64) -> bool) -> Result<RecordBatch> {
        let kept: BooleanArray =
            typed_column::<UInt64Array>(batch, "version")?.values().iter().map(|v| Some(applies(*v))).collect();
        let batch = &filter_record_batch(batch, &kept)?;
        let versions: UInt64Array =
            unary(typed_column::<UInt64Array>(batch, "version")?, |v| self.local_version(Version(v)).0);
        let columns = batch.schema_ref().fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, column)| match field.name().as_str() {
            "version" => Arc::new(versions.clone()) as ArrayRef,
            _ => Arc::clone(column),
        });
        Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
    }
}
