//! Mirrors the versions of a dataset as versions of a Delta table, so that readers of Delta tables see exactly the live
//! shards.
//!
//! ```text
//! version of the dataset    v1                     v2          v3            v4
//! Delta version             0                      1           2             3
//! actions                   protocol, metaData,    txn, add    txn, remove,  txn
//!                           txn, add                           add
//! ```
//!
//! A commit of the log is the difference between what the log lists and the live shards of the version, so that a run
//! that was killed is caught up with by the next one. It is created only if absent, and says in `txn` what it mirrors.
//! If another program has written to the log, the mirror ends there: nothing is ever overwritten.
//!
//! Versions that the dataset cannot read any more (`vacuum`), or whose shards an erasure has deleted, are taken out of
//! the log as well: a checkpoint is written, and older files are deleted.

mod checkpoint;
mod log;
mod schema;
mod stats;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter,
};

use arrow::datatypes::Fields;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::{
    log::{LAST_CHECKPOINT, Log, TableState, delta_version},
    schema::LoggedSchema,
    stats::Footer,
};
use super::kind::{About, Difference, Index, OfVersion};
use crate::{
    dataset::{Dataset, NewShard, Operation, Settings, ShardMeta, Snapshot},
    delta::{
        actions::{Action, Add, CommitInfo, FileFormat, Metadata, Protocol, Remove, Txn, Values, encode_commit},
        log::{FOLDER, LogFiles, checkpoint_path, commit_path, version_of},
    },
    error::{Error, Result},
    format::OutputFormat,
    id::Version,
    scan::folders_in,
    storage::PutOutcome,
};

/// Commits between checkpoints.
const CHECKPOINT_INTERVAL: u64 = 10;

/// How long checkpoints keep removed files, as Delta does by default.
const TOMBSTONE_MILLIS: i64 = 7 * 24 * 3600 * 1000;

/// Feature of tables that have timestamps without a zone.
const LOCAL_TIMES: &str = "timestampNtz";

/// Features that writer version 2 implies.
const LEGACY_FEATURES: [&str; 2] = ["appendOnly", "invariants"];

/// Maximum times that another process may write the next commit first, without being seen to.
const RACES: usize = 100;

/// The index for readers of Delta tables.
pub(super) struct Delta;

impl Index for Delta {
    fn about(&self) -> &'static About {
        &About {
            help: "For readers of Delta tables: a log of the live shards",
            formats: &[OutputFormat::Parquet],
            ..About::NONE
        }
    }

    fn of_version(&self) -> Option<Box<dyn OfVersion>> {
        Some(Box::new(ShardFooters::default()))
    }
}

/// Footers of shards that were read before the commit, by path.
#[derive(Debug, Default)]
struct ShardFooters(HashMap<String, Footer>);

impl OfVersion for ShardFooters {
    fn fit_fields(
        &self,
        dataset: &Dataset,
        snapshot: Option<&Snapshot>,
        fields: Fields,
        is_given: &dyn Fn(&str) -> bool,
    ) -> Result<Fields> {
        let state = newest_state(dataset, snapshot)?;
        match &state.foreign {
            Some(_) => Ok(fields),
            None => {
                refuse_partition_columns(&state, &fields)?;
                state.read_schema()?.fit_fields(&fields, is_given)
            }
        }
    }

    fn prepare_commit(
        &mut self,
        dataset: &Dataset,
        snapshot: Option<&Snapshot>,
        adds: &[NewShard],
        _shards: &[&ShardMeta],
    ) -> Result<()> {
        if let Some(snapshot) = snapshot {
            // A run that was killed after its commit left the log behind.
            self.write(snapshot)?;
        }
        let read = |shard: &NewShard| Ok((shard.meta.path.clone(), Footer::read(dataset, &shard.meta)?));
        self.0 = adds.par_iter().map(read).collect::<Result<_>>()?;
        let state = newest_state(dataset, snapshot)?;
        if state.foreign.is_none() {
            let shards: Vec<&ShardMeta> = adds.iter().map(|shard| &shard.meta).collect();
            let version = snapshot.map_or(Version(1), |snapshot| snapshot.version().next());
            TableColumns::from_state(&state)?.add_shards(&shards, &self.get_or_read(dataset, &shards)?, version)?;
        }
        Ok(())
    }

    /// Writes a commit for each version that the log does not have yet, and deletes files that no reader may use any
    /// more. Users are told if a commit of another program has ended the mirror.
    fn write(&mut self, snapshot: &Snapshot) -> Result<Option<String>> {
        catch_up(snapshot, self)
    }

    /// Compares the log with the newest version. It may lag behind by versions that change no shards, such as tags: the
    /// next version brings their commits.
    fn find_differences(&self, snapshot: &Snapshot) -> Result<Vec<Difference>> {
        let mirror = Mirror::for_snapshot(snapshot)?;
        let state = mirror.log.read(None)?;
        let goal = delta_version(snapshot.version());
        let differs = |object: String, what: &str| (object, what.to_owned());
        if let Some(object) = state.foreign {
            let ended = "expected a commit of this dataset's Delta log, found one of another program, where the mirror \
                         has ended; delete that commit and later ones if their changes are not wanted; shardify never \
                         does";
            let kept = "expected no bounds of values of versions that cannot be read any more, found some; delete \
                        `_delta_log` if its changes are not wanted: the next version writes it anew";
            let kept = mirror.older_files()?.into_iter().map(|object| differs(object, kept));
            return Ok(std::iter::once(differs(object, ended)).chain(kept).collect());
        }
        let is_right = lists_live_shards(&state, snapshot)?;
        let what = match state.version {
            _ if is_right => None,
            Some(version) if version > goal => None,
            Some(version) if version == goal => {
                Some("expected the live shards in the Delta log, found others; the next version corrects it")
            }
            _ => Some(
                "expected a Delta commit for the newest version, found none; `shardify compact` or `convert` writes it",
            ),
        };
        let older = "expected no Delta versions that cannot be read any more, found one; `shardify compact` or \
                     `convert` deletes it";
        let older = mirror.older_files()?.into_iter().map(|object| differs(object, older));
        Ok(what.map(|what| differs(commit_path(goal), what)).into_iter().chain(older).collect())
    }
}

fn catch_up(snapshot: &Snapshot, footers: &ShardFooters) -> Result<Option<String>> {
    let mirror = Mirror::for_snapshot(snapshot)?;
    let mut state = mirror.log.read(None)?;
    let goal = delta_version(snapshot.version());
    let mut races = 0;
    while state.foreign.is_none() {
        let next = state.version.map_or(0, |version| version + 1);
        if next > goal {
            break;
        }
        let actions = mirror.commit_actions(&state, next, footers)?;
        match mirror.put_commit(next, &actions)? {
            PutOutcome::Created => {
                state.apply_actions(actions)?;
                state.version = Some(next);
                if next > 0 && next.is_multiple_of(CHECKPOINT_INTERVAL) {
                    mirror.write_checkpoint(&state, true)?;
                }
            }
            PutOutcome::Exists => {
                races += 1;
                if races > RACES {
                    return Err(Error::conflict("other processes keep writing to the Delta log")
                        .at_location(mirror.object_location(&commit_path(next)))
                        .with_hint("run the command again"));
                }
                state = mirror.log.read(None)?;
            }
        }
    }
    let Some(commit) = state.foreign else { return mirror.trim_log().map(|()| None) };
    // The other program's table needs these files, and may have rows of its own.
    let kept = if mirror.older_files()?.is_empty() {
        ""
    } else {
        ", and still has bounds of values of versions that cannot be read any more"
    };
    Ok(Some(format!(
        "{commit} was written by another program: the Delta log is not continued{kept}, see `shardify verify`"
    )))
}

fn lists_live_shards(state: &TableState, snapshot: &Snapshot) -> Result<bool> {
    let shards = snapshot.live_shards()?;
    let is_listed = |shard: &ShardMeta| {
        let add = state.adds.get(&shard.path);
        add.is_some_and(|add| {
            add.size.and_then(|size| u64::try_from(size).ok()) == Some(shard.bytes)
                && add.stats.as_deref().and_then(stats::stated_records) == Some(shard.records)
        })
    };
    Ok(shards.len() == state.adds.len() && shards.iter().all(is_listed))
}

/// Returns the newest state of the log; of a dataset without a version, there must be none.
fn newest_state(dataset: &Dataset, snapshot: Option<&Snapshot>) -> Result<TableState> {
    if let Some(snapshot) = snapshot {
        return Mirror::for_snapshot(snapshot)?.log.read(None);
    }
    if LogFiles::list(dataset.store().as_ref())?.newest_version().is_some() {
        return Err(Error::usage("expected a folder without a Delta log, found the log of another table")
            .at_location(dataset.store().location().join(FOLDER).to_string())
            .with_hint("name another dataset with --out, or leave delta out of --index"));
    }
    Ok(TableState::default())
}

impl ShardFooters {
    /// Returns the footers of shards, in their order; those that are not known are read.
    fn get_or_read(&self, dataset: &Dataset, shards: &[&ShardMeta]) -> Result<Vec<Footer>> {
        let get = |shard: &&ShardMeta| match self.0.get(&shard.path) {
            Some(footer) => Ok(footer.clone()),
            None => Footer::read(dataset, shard),
        };
        shards.par_iter().map(get).collect()
    }
}

fn refuse_partition_columns(state: &TableState, fields: &Fields) -> Result<()> {
    let partitions = state.table.as_ref().map(|table| table.partition_columns.as_slice()).unwrap_or_default();
    match fields.iter().find(|field| partitions.contains(field.name())) {
        None => Ok(()),
        Some(field) => Err(Error::input(format!(
            "expected the values of `{}` in the names of folders, as the Delta log of this dataset has them, found a \
             column",
            field.name()
        ))
        .in_column(field.name().as_str())
        .with_hint("name another dataset with --out")),
    }
}

/// Columns of the table while shards are added.
struct TableColumns {
    schema: LoggedSchema,
    partitions: Vec<String>,
    /// Whether the partition columns may still be chosen.
    is_new: bool,
}

impl TableColumns {
    fn from_state(state: &TableState) -> Result<Self> {
        let schema = state.read_schema()?;
        let partitions = state.table.as_ref().map(|table| table.partition_columns.clone()).unwrap_or_default();
        Ok(Self { is_new: schema.is_empty(), schema, partitions })
    }

    /// Adds the columns of shards, and of their folders.
    fn add_shards(&mut self, shards: &[&ShardMeta], footers: &[Footer], version: Version) -> Result<()> {
        let mut keys: BTreeSet<String> = BTreeSet::new();
        for (shard, footer) in shards.iter().zip(footers) {
            self.schema.add_columns(&footer.fields, version).map_err(|e| e.at_location(shard.path.as_str()))?;
            keys.extend(folders_in(&shard.path).into_iter().map(|(key, _)| key));
            let unknown = keys.iter().find(|key| !self.is_new && !self.partitions.contains(key));
            if let Some(key) = unknown {
                return Err(Error::input(format!(
                    "expected shards in folders of the partition columns that the Delta log has ({}), found `{key}=`",
                    if self.partitions.is_empty() { "none".to_owned() } else { self.partitions.join(", ") }
                ))
                .at_location(shard.path.as_str())
                .with_hint("the partition columns of a Delta table never change: name another dataset with --out"));
            }
            let clash = footer.fields.iter().find(|field| !self.is_new && self.partitions.contains(field.name()));
            if let Some(field) = clash {
                return Err(Error::input(format!(
                    "expected `{}` in the names of folders, found a column",
                    field.name()
                ))
                .at_location(shard.path.as_str())
                .in_column(field.name().as_str()));
            }
        }
        if self.is_new && !shards.is_empty() {
            keys.iter().try_for_each(|key| self.schema.add_partition(key, version))?;
            self.partitions = keys.into_iter().collect();
        }
        Ok(())
    }
}

/// The mirror of a dataset at a version.
struct Mirror<'a> {
    snapshot: &'a Snapshot,
    log: Log<'a>,
    /// Transaction id of the first version, which identifies the table.
    id: String,
}

impl<'a> Mirror<'a> {
    fn for_snapshot(snapshot: &'a Snapshot) -> Result<Self> {
        let dataset = snapshot.dataset();
        let id = match snapshot.version() {
            Version(1) => snapshot.entry().transaction.to_string(),
            _ => dataset.transaction_of(Version(1))?.to_string(),
        };
        Ok(Self { snapshot, log: Log::new(dataset.store(), format!("shardify-{id}")), id })
    }

    fn object_location(&self, path: &str) -> String {
        self.snapshot.dataset().store().location().join(path).to_string()
    }

    /// Returns the first Delta version that can be read: shards of earlier ones are deleted.
    fn first_readable(&self) -> u64 {
        let erasures = self.snapshot.entry().erasures.as_ref();
        let rewrote = erasures.map_or(Version(0), |erasures| erasures.rewrote_before);
        delta_version(self.snapshot.entry().readable_from.max(rewrote))
    }

    /// Returns the actions of the commit `next` on top of a state. Commits of versions that cannot be read any more
    /// change nothing, because the log has no gaps.
    fn commit_actions(&self, state: &TableState, next: u64, footers: &ShardFooters) -> Result<Vec<Action>> {
        let version = Version(next + 1);
        if next < self.first_readable() {
            let entry = self.snapshot.dataset().read_entry(version)?;
            let mut actions = self.leading_actions(version, "WRITE", "none", entry.committed_at.as_millisecond());
            actions.extend(self.table_actions(
                state,
                &TableColumns::from_state(state)?,
                entry.committed_at.as_millisecond(),
            )?);
            return Ok(actions);
        }
        if version == self.snapshot.version() {
            return self.change_actions(state, self.snapshot, footers);
        }
        self.change_actions(state, &self.snapshot.dataset().open_version(version)?, footers)
    }

    /// Returns the actions that lead from a state to a version.
    fn change_actions(&self, state: &TableState, at: &Snapshot, footers: &ShardFooters) -> Result<Vec<Action>> {
        let (entry, settings) = (at.entry(), &at.entry().settings);
        let millis = entry.committed_at.as_millisecond();
        let live: BTreeMap<&str, &ShardMeta> =
            at.live_shards()?.iter().map(|shard| (shard.path.as_str(), shard)).collect();
        let shards: Vec<&ShardMeta> =
            live.values().copied().filter(|shard| !state.adds.contains_key(&shard.path)).collect();
        let read = footers.get_or_read(at.dataset(), &shards)?;
        let mut table = TableColumns::from_state(state)?;
        table.add_shards(&shards, &read, entry.version)?;
        // Records are the same unless this commit stands for other versions, too.
        let data_change =
            entry.operation != Operation::Compact || delta_version(entry.version) == self.first_readable();
        let mut actions =
            self.leading_actions(entry.version, delta_name(entry.operation), entry.operation.name(), millis);
        actions.extend(self.table_actions(state, &table, millis)?);
        let gone = state.adds.iter().filter(|(path, _)| !live.contains_key(path.as_str()));
        actions.extend(gone.map(|(_, add)| {
            let remove = Remove::for_add(add, millis, data_change);
            Action { remove: Some(remove), ..Action::default() }
        }));
        for (shard, footer) in shards.into_iter().zip(&read) {
            let add = Add { data_change, ..add_for_shard(shard, footer, settings, &table.partitions)? };
            actions.push(Action { add: Some(add), ..Action::default() });
        }
        Ok(actions)
    }

    /// Returns the actions that begin each commit.
    fn leading_actions(&self, version: Version, operation: &str, own: &str, millis: i64) -> Vec<Action> {
        let info = CommitInfo {
            timestamp: millis,
            operation: operation.to_owned(),
            operation_parameters: json!({"shardifyVersion": version.0.to_string(), "shardifyOperation": own}),
            engine_info: concat!("shardify/", env!("CARGO_PKG_VERSION")).to_owned(),
            ..CommitInfo::default()
        };
        let txn = Txn {
            app_id: self.log.app_id().to_owned(),
            version: i64::try_from(version.0).unwrap_or(i64::MAX),
            last_updated: Some(millis),
        };
        vec![Action { commit_info: Some(info), ..Action::default() }, Action { txn: Some(txn), ..Action::default() }]
    }

    /// Returns the actions that describe the table, where they differ from those of the state.
    fn table_actions(&self, state: &TableState, table: &TableColumns, millis: i64) -> Result<Vec<Action>> {
        let mut out = Vec::new();
        let protocol = minimal_protocol(&table.schema);
        if state.protocol.as_ref() != Some(&protocol) {
            out.push(Action { protocol: Some(protocol), ..Action::default() });
        }
        let schema_string = serde_json::to_string(&table.schema)
            .map_err(|e| Error::internal("encoding the schema of a Delta table failed").with_cause(e))?;
        let created_time = state.table.as_ref().map_or(Some(millis), |table| table.created_time);
        let meta_data = Metadata {
            id: format_uuid(&self.id),
            format: FileFormat::default(),
            schema_string: Some(schema_string),
            partition_columns: table.partitions.clone(),
            configuration: Values::new(),
            created_time,
        };
        if state.table.as_ref() != Some(&meta_data) {
            out.push(Action { meta_data: Some(meta_data), ..Action::default() });
        }
        Ok(out)
    }

    fn put_commit(&self, version: u64, actions: &[Action]) -> Result<PutOutcome> {
        self.snapshot.dataset().store().put_if_absent(&commit_path(version), encode_commit(actions)?.into())
    }

    /// Writes the checkpoint of a state; `is_newest` tells readers to begin with it.
    fn write_checkpoint(&self, state: &TableState, is_newest: bool) -> Result<()> {
        let (Some(version), Some(protocol), Some(table)) = (state.version, &state.protocol, &state.table) else {
            return Ok(());
        };
        let mirrored =
            self.leading_actions(Version(version + 1), "", "", 0).into_iter().filter(|action| action.txn.is_some());
        let last = state.removes.values().filter_map(|remove| remove.deletion_timestamp).max().unwrap_or_default();
        let is_recent =
            |remove: &&Remove| remove.deletion_timestamp.is_some_and(|deleted| deleted > last - TOMBSTONE_MILLIS);
        let mut rows = vec![
            Action { protocol: Some(protocol.clone()), ..Action::default() },
            Action { meta_data: Some(table.clone()), ..Action::default() },
        ];
        rows.extend(mirrored);
        rows.extend(state.removes.values().filter(is_recent).map(|remove| {
            let remove = Remove { data_change: false, ..remove.clone() };
            Action { remove: Some(remove), ..Action::default() }
        }));
        rows.extend(state.adds.values().map(|add| {
            let add = Add { data_change: false, ..add.clone() };
            Action { add: Some(add), ..Action::default() }
        }));
        let store = self.snapshot.dataset().store();
        store.put(&checkpoint_path(version), checkpoint::encode_checkpoint(&rows)?.into())?;
        if !is_newest {
            return Ok(());
        }
        let newest = serde_json::to_vec(&LastCheckpoint { version, size: rows.len() })
            .map_err(|e| Error::internal("encoding the name of a checkpoint failed").with_cause(e))?;
        store.put(LAST_CHECKPOINT, newest.into())
    }

    /// Deletes the files of Delta versions that cannot be read any more.
    fn trim_log(&self) -> Result<()> {
        let first = self.first_readable();
        if first == 0 {
            return Ok(());
        }
        let older = self.older_files()?;
        if older.is_empty() {
            return Ok(());
        }
        let store = self.snapshot.dataset().store();
        let files = LogFiles::list(store.as_ref())?;
        let checkpoint =
            |version| files.newest_checkpoint(version).map(|(version, _)| version).filter(|found| *found >= first);
        let newest = files.newest_version().and_then(checkpoint);
        if checkpoint(first).is_none() {
            let state = self.log.read(Some(first))?;
            if state.version != Some(first) {
                return Ok(());
            }
            self.write_checkpoint(&state, newest.is_none())?;
        }
        // Another process may have named a checkpoint that is deleted below, after this one had named a newer one.
        let named = store.get(LAST_CHECKPOINT)?.and_then(|text| serde_json::from_slice::<LastCheckpoint>(&text).ok());
        if named.is_none_or(|named| named.version < first) {
            self.write_checkpoint(&self.log.read(Some(newest.unwrap_or(first)))?, true)?;
        }
        older.iter().try_for_each(|path| store.delete(path))?;
        store.settle_deletions(&older)
    }

    /// Returns the files of Delta versions that cannot be read any more.
    fn older_files(&self) -> Result<Vec<String>> {
        let first = self.first_readable();
        if first == 0 {
            return Ok(Vec::new());
        }
        let listed = self.snapshot.dataset().store().list_folder(FOLDER)?.into_iter().map(|facts| facts.path);
        Ok(listed.filter(|path| version_of(path).is_some_and(|version| version < first)).collect())
    }
}

/// Content of `_last_checkpoint`.
#[derive(Debug, Serialize, Deserialize)]
struct LastCheckpoint {
    version: u64,
    size: usize,
}

/// Returns the action that adds a shard.
fn add_for_shard(shard: &ShardMeta, footer: &Footer, settings: &Settings, partitions: &[String]) -> Result<Add> {
    let folders: HashMap<String, Option<String>> = folders_in(&shard.path).into_iter().collect();
    let value = |key: &String| (key.clone(), folders.get(key).cloned().flatten());
    let size = i64::try_from(shard.bytes)
        .map_err(|_| Error::integrity("a shard is too large").at_location(shard.path.as_str()))?;
    Ok(Add {
        partition_values: partitions.iter().map(value).collect(),
        stats: Some(footer.stats_json(shard.records, settings)),
        ..Add::new(&shard.path, size, shard.committed_at.as_millisecond())
    })
}

/// Returns the oldest protocol that a table with these columns can have.
fn minimal_protocol(schema: &LoggedSchema) -> Protocol {
    if !schema.has_local_times() {
        return Protocol { min_reader_version: 1, min_writer_version: 2, ..Protocol::default() };
    }
    let writer = iter::once(LOCAL_TIMES).chain(LEGACY_FEATURES).map(str::to_owned).collect();
    Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(vec![LOCAL_TIMES.to_owned()]),
        writer_features: Some(writer),
    }
}

/// Returns the name that Delta has for an operation of a dataset.
fn delta_name(own: Operation) -> &'static str {
    match own {
        Operation::Compact => "OPTIMIZE",
        Operation::Erase | Operation::Remove => "DELETE",
        Operation::Revert => "RESTORE",
        _ => "WRITE",
    }
}

/// Returns a UUID made of the 32 digits of a transaction id.
fn format_uuid(id: &str) -> String {
    match (id.get(..8), id.get(8..12), id.get(12..16), id.get(16..20), id.get(20..)) {
        (Some(a), Some(b), Some(c), Some(d), Some(e)) => format!("{a}-{b}-{c}-{d}-{e}"),
        _ => id.to_owned(),
    }
}
