//! Outcomes of tasks: what an attempt published, with numbers that count from the first record of the task.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    codec::{
        Codec,
        hex::{from_hex, to_hex},
        seal::Seal,
    },
    dataset::{
        index::SegmentRef,
        log::{
            entry::Counts,
            shards::{NewShard, ShardMeta},
            snapshot::Dataset,
            sources::{self, SourceRow},
        },
        table::{
            BATCH_ROWS, TableWriter,
            beside::Beside,
            closed,
            fetch::in_parallel,
            list::ListRef,
            paths::{is_adopted_sidecar, system_path, table_path},
            sealed::{Sealed, seal_of},
        },
    },
    error::{Error, Result},
    id::{TransactionId, Version, Writer, run_of_folder, run_of_name},
    storage::{PutOutcome, Staged, Store, checked_path},
};

/// A shard of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeShard {
    path: String,
    /// Size and BLAKE3 of the whole object.
    seal: Seal,
    records: u64,
    codec: Codec,
    raw_bytes: u64,
    body_offset: u64,
    body_bytes: u64,
    body_crc32: u32,
    first_record: u64,
    runs: Vec<(u64, u64, u64)>,
    beside: Beside,
    /// Number of the group of a compaction whose records it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<u64>,
    /// Target of the compaction.
    #[serde(default, skip_serializing_if = "is_zero")]
    compacted_for: u64,
    /// MD5 of the object, in hexadecimal digits, if an index of a compaction needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl OutcomeShard {
    /// Returns the shard as a task records it.
    pub fn from_shard(shard: &NewShard) -> Self {
        let meta = &shard.meta;
        Self {
            path: meta.path.clone(),
            seal: Seal::from_hash(meta.bytes, meta.checksum),
            records: meta.records,
            codec: meta.codec,
            raw_bytes: meta.raw_bytes,
            body_offset: meta.body_offset,
            body_bytes: meta.body_bytes,
            body_crc32: meta.body_crc32,
            first_record: meta.first_record,
            runs: shard.runs.clone(),
            beside: Beside::clone(&meta.beside),
            group: None,
            compacted_for: meta.compacted_for,
            md5: None,
        }
    }

    /// Returns the shard that a task of a compaction made of a group.
    pub fn from_grouped_shard(shard: &NewShard, group: u64, md5: Option<[u8; 16]>) -> Self {
        Self { group: Some(group), md5: md5.map(|md5| to_hex(&md5)), ..Self::from_shard(shard) }
    }

    /// Returns the shard of a compaction, its group and its MD5.
    pub fn with_group(&self) -> (NewShard, Option<u64>, Option<[u8; 16]>) {
        let md5 = self.md5.as_deref().and_then(|text| from_hex(text)?.try_into().ok());
        (self.clone().into_new_shard(0), self.group, md5)
    }

    /// Returns the shard as a transaction adds it, with `base` added to its record numbers.
    pub fn into_new_shard(self, base: u64) -> NewShard {
        let meta = ShardMeta {
            path: self.path,
            records: self.records,
            bytes: self.seal.bytes,
            codec: self.codec,
            raw_bytes: self.raw_bytes,
            checksum: self.seal.hash,
            body_offset: self.body_offset,
            body_bytes: self.body_bytes,
            body_crc32: self.body_crc32,
            compacted_for: self.compacted_for,
            first_record: self.first_record,
            version: Version(0),
            committed_at: Timestamp::UNIX_EPOCH,
            order: None,
            beside: Arc::new(self.beside),
        };
        NewShard { meta, runs: self.runs, since: Vec::new(), scattered: None }.shifted_by(base)
    }

    /// Returns the path, relative to the dataset.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the size in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.seal.bytes
    }

    /// Returns all numbers of the shard but those of its runs.
    pub(super) fn all_numbers(&self) -> [u64; 6] {
        [self.records, self.seal.bytes, self.raw_bytes, self.body_offset, self.body_bytes, self.first_record]
    }

    /// Returns the number of records.
    pub(super) fn record_count(&self) -> u64 {
        self.records
    }

    /// Returns the runs of record numbers: first number, count, and row of the first.
    pub(super) fn record_runs(&self) -> &[(u64, u64, u64)] {
        &self.runs
    }

    /// Returns the path of its sidecar.
    pub(super) fn sidecar_path(&self) -> &str {
        &self.beside.at
    }

    /// Returns what must be equal in two attempts of one task: everything but names.
    fn content_key(&self) -> (u64, Seal) {
        (self.records, self.seal)
    }
}

/// Counts of a task that the log does not keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutcomeCounts {
    /// Empty lines.
    pub blank_lines: u64,
    /// Records with missing fields.
    pub padded: u64,
    /// Damaged records that were repaired.
    pub repaired: u64,
    /// Lines that hold no record and were skipped.
    pub skipped_lines: u64,
    /// Archive entries that are not files.
    pub ignored_entries: u64,
    /// Accepted records whose ids are other spellings of erased ones.
    pub similar: u64,
    /// Records whose id occurred before in the task.
    pub repeated: u64,
    /// Bytes that a compaction copied as stored.
    pub bytes_copied: u64,
    /// Bytes that a compaction spliced from pages without decoding.
    pub bytes_spliced: u64,
    /// Bytes that a compaction decoded and encoded again.
    pub bytes_reencoded: u64,
    /// Adopted records with an explicit id.
    pub with_id: u64,
    /// Adopted records with a subject id.
    pub with_subject: u64,
    /// Adopted files that were copied because they could not be linked.
    pub files_copied: u64,
}

impl std::ops::AddAssign for OutcomeCounts {
    fn add_assign(&mut self, other: Self) {
        self.blank_lines += other.blank_lines;
        self.padded += other.padded;
        self.repaired += other.repaired;
        self.skipped_lines += other.skipped_lines;
        self.ignored_entries += other.ignored_entries;
        self.similar += other.similar;
        self.repeated += other.repeated;
        self.bytes_copied += other.bytes_copied;
        self.bytes_spliced += other.bytes_spliced;
        self.bytes_reencoded += other.bytes_reencoded;
        self.with_id += other.with_id;
        self.with_subject += other.with_subject;
        self.files_copied += other.files_copied;
    }
}

/// A value that fits no column of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMismatch {
    /// Name of its source.
    pub source: String,
    /// The column.
    pub column: String,
    /// The type of the column.
    pub expected: String,
    /// The value.
    pub value: String,
    /// Types that all sources of the task need: see [`schema::wire`](crate::schema::wire); `None` for parts of samples.
    pub fields: Option<String>,
}

/// Why a merge or a file was omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The shard or file.
    pub place: String,
    /// What was expected and what was found.
    pub problem: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// What a task wrote.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The plan.
    pub plan: TransactionId,
    /// Number of the task.
    pub task: u64,
    /// Number of the attempt whose objects these are.
    pub writer: u64,
    /// Number of records written.
    pub records: u64,
    /// The shards.
    pub shards: Vec<OutcomeShard>,
    /// Segments of the id index.
    pub segments: Vec<SegmentRef>,
    /// Counts for the log.
    pub counts: Counts,
    /// Other counts.
    pub others: OutcomeCounts,
    /// The table of sources.
    pub sources: Option<ListRef>,
    /// Whether some sources hold arrays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arrays: bool,
    /// Whether some sources are parts of samples with known hashes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part_hashes: bool,
    /// The file of rejected records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejects: Option<Sealed>,
    /// Set if a value did not fit; then the task wrote nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<TaskMismatch>,
    /// Merges of a compaction, or files of an adoption, that were omitted because of damage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damage>,
    /// Columns of ids that no record of an adoption has; `None` if it has no records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Vec<String>>,
}

/// Result of recording an outcome.
#[derive(Debug)]
pub enum Recorded {
    /// It is the outcome of its task.
    Created,
    /// Another attempt was first; it wrote the same.
    Already,
}

impl Outcome {
    pub(super) fn path_for(plan: &TransactionId, task: u64) -> String {
        system_path(&format!("outcomes/{plan}-{task}.json"))
    }

    /// Reads the outcome of a task; `None` if it has none yet.
    ///
    /// # Errors
    /// When it is damaged; if the store fails.
    pub fn read(dataset: &Dataset, plan: &TransactionId, task: u64) -> Result<Option<Self>> {
        let (store, path) = (dataset.store().as_ref(), Self::path_for(plan, task));
        let Some(bytes) = store.get(&path)? else { return Ok(None) };
        let outcome: Self = closed::decode_json(store, &path, &bytes, "the outcome of a task")?;
        if outcome.plan != *plan || outcome.task != task {
            return Err(Error::integrity(format!(
                "expected the outcome of task {task}, found that of {}",
                outcome.task
            ))
            .at_location(store.location().join(&path).to_string()));
        }
        outcome.check_paths().map_err(|error| error.at_location(store.location().join(&path).to_string()))?;
        Ok(Some(outcome))
    }

    /// Fails if it names an object that no attempt of a task of this plan can have written.
    fn check_paths(&self) -> Result<()> {
        let tag = Some(self.plan.short_tag());
        let is_own_shard = |path: &str| path.split('/').next().and_then(run_of_folder) == tag;
        let below_system = |path: &str| path.rsplit('/').next().and_then(run_of_name) == tag;
        // The sidecar of a shard that stays in place belongs to the attempt; its path is compared with the plan.
        let is_own = |shard: &OutcomeShard| {
            let at = shard.sidecar_path();
            let own_sidecar = checked_path(at).is_ok() && super::is_of(at, &self.plan);
            own_sidecar && (is_own_shard(shard.path()) || is_adopted_sidecar(at))
        };
        let shards = self.shards.iter().map(|shard| (shard.path(), is_own(shard)));
        let segments = self.segments.iter().map(|segment| (segment.path.as_str(), below_system(&segment.path)));
        let tables = self.sources.iter().map(|list| list.path.as_str());
        let others = tables.chain(self.rejects.iter().map(|rejects| rejects.path.as_str()));
        let others = others.map(|path| (path, below_system(path)));
        for (path, is_own) in shards.chain(segments).chain(others) {
            checked_path(path)?;
            if !is_own {
                return Err(Error::integrity(format!("expected objects of this plan, found `{path}`")));
            }
        }
        Ok(())
    }

    /// Reads the outcomes of all tasks of a plan, several at a time.
    ///
    /// # Errors
    /// When one is damaged; if the store fails.
    pub fn read_all(dataset: &Dataset, plan: &TransactionId, tasks: usize) -> Result<Vec<Option<Self>>> {
        let tasks: Vec<u64> = (0..tasks as u64).collect();
        in_parallel(&tasks, &|task: &u64| Self::read(dataset, plan, *task)).into_iter().collect()
    }

    /// Deletes the outcome of a task, because what it names is gone.
    ///
    /// # Errors
    /// If the store fails.
    pub fn delete(dataset: &Dataset, plan: &TransactionId, task: u64) -> Result<()> {
        dataset.store().delete(&Self::path_for(plan, task))
    }

    /// Returns which tasks of a plan have an outcome.
    ///
    /// # Errors
    /// If the store fails.
    pub fn list_existing(dataset: &Dataset, plan: &TransactionId, tasks: usize) -> Result<Vec<bool>> {
        let mut done = vec![false; tasks];
        let names: BTreeMap<String, usize> = (0..tasks).map(|task| (Self::path_for(plan, task as u64), task)).collect();
        for facts in dataset.store().list_folder(system_path("outcomes").as_str())? {
            if let Some(task) = names.get(&facts.path) {
                done[*task] = true;
            }
        }
        Ok(done)
    }

    /// Records the outcome of a task, unless another attempt has.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the other attempt wrote other bytes; if the store fails.
    pub fn try_record(&self, dataset: &Dataset) -> Result<Recorded> {
        let (store, path) = (dataset.store().as_ref(), Self::path_for(&self.plan, self.task));
        let put = store.put_if_absent(&path, closed::encode_json(self, "the outcome of a task")?.into());
        if matches!(put, Ok(PutOutcome::Created)) {
            return Ok(Recorded::Created);
        }
        // Either another attempt has created it, or the reply of the store was lost.
        let Some(found) = Self::read(dataset, &self.plan, self.task)? else {
            return match put {
                Err(error) => Err(error),
                Ok(_) => Err(Error::storage("the store says that an outcome exists but does not return it")
                    .at_location(store.location().join(&path).to_string())),
            };
        };
        if found.writer == self.writer {
            return put.map(|_| Recorded::Created);
        }
        if found.is_same(self) {
            return Ok(Recorded::Already);
        }
        Err(Error::integrity(format!("two attempts of task {} wrote different bytes", self.task))
            .at_location(store.location().join(&path).to_string())
            .with_hint("a source has changed since the plan was made, or two releases ran the task: plan again"))
    }

    /// Whether another attempt wrote the same. An attempt of a compaction leaves groups out whose shards were replaced
    /// since, so only groups that both have are compared.
    fn is_same(&self, other: &Self) -> bool {
        let groups = |outcome: &Self| -> BTreeMap<u64, (u64, Seal)> {
            outcome.shards.iter().filter_map(|shard| Some((shard.group?, shard.content_key()))).collect()
        };
        let (mine, theirs) = (groups(self), groups(other));
        if !mine.is_empty() || !theirs.is_empty() {
            return mine.iter().all(|(group, content)| theirs.get(group).is_none_or(|other| other == content));
        }
        let contents = |outcome: &Self| outcome.shards.iter().map(OutcomeShard::content_key).collect::<Vec<_>>();
        let columns = |outcome: &Self| outcome.mismatch.as_ref().map(|mismatch| mismatch.column.clone());
        self.counts == other.counts
            && self.others == other.others
            && contents(self) == contents(other)
            && columns(self) == columns(other)
    }
}

/// Reserves the names of the next attempt of a task.
///
/// # Errors
/// When the store fails.
pub fn claim_attempt(dataset: &Dataset, plan: &TransactionId, task: usize, tasks: usize) -> Result<Writer> {
    for attempt in 0.. {
        let writer = Writer { run: plan.clone(), serial: Some(task + attempt * tasks) };
        let path = system_path(&format!("outcomes/{writer}.claim"));
        // A claim whose reply was lost is left unused.
        match dataset.store().put_if_absent(&path, "{}\n".into()) {
            Ok(PutOutcome::Created) => return Ok(writer),
            Ok(PutOutcome::Exists) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::internal("a task has too many attempts"))
}

/// Writes the table of the sources of a task; `None` if there are none. It has no name until it is published.
///
/// # Errors
/// When the store fails.
pub fn stage_sources(
    store: &dyn Store,
    writer: &Writer,
    mut rows: impl Iterator<Item = SourceRow>,
) -> Result<Option<(Staged, ListRef)>> {
    let path = table_path(&format!("outcomes/{writer}"));
    let mut table = TableWriter::new(store, &path);
    loop {
        let batch: Vec<SourceRow> = rows.by_ref().take(BATCH_ROWS).collect();
        if batch.is_empty() {
            break;
        }
        let optional = sources::OptionalColumns { arrays: true, part_hashes: true, other_firsts: true, removed: false };
        table.add_rows(&sources::to_batch(&batch, optional)?)?;
    }
    let Some((staged, rows)) = table.finish()? else { return Ok(None) };
    let list = ListRef { path: path.clone(), rows, root: None, seal: seal_of(&staged)? };
    Ok(Some((staged, list)))
}

/// Passes the sources of a task to `visit`, with `base` added to their first records.
///
/// # Errors
/// When the table is damaged; if the store fails.
pub fn each_source(
    store: &Arc<dyn Store>,
    list: &ListRef,
    base: u64,
    visit: &mut dyn FnMut(SourceRow) -> Result<()>,
) -> Result<()> {
    sources::read(store, list, &mut |row| visit(row.shifted_by(base)))
}
