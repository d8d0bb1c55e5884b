//! Files that a table does not need any more: those that its log has removed, and no retained version has.
//!
//! ```text
//! version      7        8         9          10         retained: current at some time since the cutoff
//!                  removes a   removes b                a file stays while a retained version has it
//! cutoff             |------ since ------>              a is expired, b is not
//! ```
//!
//! Only what the log names is ever deleted: data files and deletion vectors that a `remove` names, in a commit or in
//! the checkpoint, and files of changes, which commits name. A file counts as removed at the latest of all times that
//! are known of its removal: the one that the writer has stated, and that of the commit. So the clock of one writer
//! that is behind makes nothing expire early, and one that is ahead keeps files for longer.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    LiveTable, Table,
    actions::{Action, Add, data_path},
    checkpoint::{self, Columns},
    head::{RACES, Remarks, TableHead},
    log::{FOLDER, commit_path, each_action, request_pool},
    protocol, vectors,
};
use crate::{
    error::{Error, Result},
    id::run_uuid,
    storage::SYSTEM_FOLDER,
    units::parse_duration,
};

/// Property of a table: the time for which removed files are kept.
const RETENTION_PROPERTY: &str = "delta.deletedFileRetentionDuration";

/// That time, if the table states none.
const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 86_400);

/// Folder of the files of changes.
const CHANGES_FOLDER: &str = "_change_data/";

/// What a checkpoint says of removed files.
const TOMBSTONES: Columns =
    &[("remove", &["path", "deletionTimestamp", "dataChange", "deletionVector"]), ("sidecar", &["path"])];

/// What a file of a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileRole {
    /// Rows.
    Data,
    /// Deletion vectors.
    DeletionVector,
    /// Rows that a commit has changed, for readers of the change data feed.
    ChangeData,
}

impl FileRole {
    /// Returns the role's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::DeletionVector => "deletion-vector",
            Self::ChangeData => "change-data",
        }
    }
}

/// A file that the log has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// What it is.
    pub role: FileRole,
    /// The latest time that is known of its removal, in milliseconds since 1970.
    pub at: i64,
}

/// What the log says of files that are not live.
#[derive(Debug, Default)]
pub struct Removals {
    files: HashMap<String, Removed>,
    /// Files of the newest version.
    needed: HashSet<String>,
    /// Versions that the log has a commit of, with their times, in ascending order.
    versions: Vec<(u64, i64)>,
    /// The oldest version that can be read.
    oldest: u64,
}

/// What one commit removes, and its time.
struct OfCommit {
    removed: Vec<(String, Removed)>,
    stated_time: Option<i64>,
}

impl Table {
    /// Reads which files the log has removed; `live` is its newest version.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if the log is damaged or names files outside of the table; if the
    /// store fails.
    pub fn read_removals(&self, live: &LiveTable) -> Result<Removals> {
        let mut out = Removals { oldest: self.files.oldest_version().unwrap_or_default(), ..Removals::default() };
        for file in live.files() {
            out.needed.extend(named_by(&file.add)?);
        }
        let commits: Vec<(u64, i64)> =
            self.files.commit_times().filter(|(version, _)| *version <= live.version()).collect();
        let read: Vec<OfCommit> = request_pool()?
            .install(|| commits.par_iter().map(|(version, _)| self.of_commit(*version)).collect::<Result<_>>())?;
        let mut last = i64::MIN;
        for ((version, modified), commit) in commits.into_iter().zip(read) {
            // Times of files may run backwards; those of versions do not.
            last = modified.max(commit.stated_time.unwrap_or(i64::MIN)).max(last.saturating_add(1));
            out.versions.push((version, last));
            for (path, removed) in commit.removed {
                out.add_file(path, Removed { at: removed.at.max(last), ..removed });
            }
        }
        if let Some((version, files)) = self.files.newest_checkpoint(live.version()) {
            let latest = out.versions.iter().find(|(of, _)| *of >= version).map_or(i64::MAX, |(_, time)| *time);
            checkpoint::each_checkpoint_action(&self.store, files, TOMBSTONES, &mut |action| {
                removed_by(&action, latest)?.into_iter().for_each(|(path, removed)| out.add_file(path, removed));
                Ok(())
            })?;
        }
        Ok(out)
    }

    fn of_commit(&self, version: u64) -> Result<OfCommit> {
        let mut out = OfCommit { removed: Vec::new(), stated_time: None };
        each_action(self.store.as_ref(), &commit_path(version), &mut |action| {
            out.removed.extend(removed_by(&action, i64::MIN)?);
            out.stated_time = action.commit_info.and_then(|info| info.in_commit_timestamp).or(out.stated_time);
            Ok(())
        })?;
        Ok(out)
    }
}

/// Returns the names of the files that an added file needs.
fn named_by(add: &Add) -> Result<impl Iterator<Item = String>> {
    let vector = add.deletion_vector.as_ref().map(vectors::file_of).transpose()?.flatten();
    // A writer that does not encode paths, although it should, means the name as it is written.
    Ok([data_path(&add.path)?, add.path.clone()].into_iter().chain(vector))
}

/// Returns the files that an action removes; `latest` is the latest time at which it may have done so, if it states
/// none. Files of changes are of use for the time after their commit alone.
fn removed_by(action: &Action, latest: i64) -> Result<Vec<(String, Removed)>> {
    let mut out = Vec::new();
    if let Some(remove) = &action.remove {
        let at = remove.deletion_timestamp.filter(|at| *at > 0).unwrap_or(latest);
        out.push((data_path(&remove.path)?, Removed { role: FileRole::Data, at }));
        let vector = remove.deletion_vector.as_ref().map(vectors::file_of).transpose()?.flatten();
        out.extend(vector.map(|path| (path, Removed { role: FileRole::DeletionVector, at })));
    }
    if let Some(changes) = &action.cdc {
        out.push((data_path(&changes.path)?, Removed { role: FileRole::ChangeData, at: i64::MIN }));
    }
    Ok(out)
}

impl Removals {
    fn add_file(&mut self, path: String, removed: Removed) {
        let known = self.files.entry(path).or_insert(removed);
        known.at = known.at.max(removed.at);
    }

    /// Returns what a file is if no version needs it that was current after `cutoff`, in milliseconds since 1970.
    pub fn expired_role(&self, path: &str, cutoff: i64) -> Option<FileRole> {
        let removed = self.files.get(path).filter(|removed| removed.at <= cutoff && !self.needed.contains(path))?;
        is_deletable(path, removed.role).then_some(removed.role)
    }

    /// Whether the newest version has a file.
    pub fn is_live(&self, path: &str) -> bool {
        self.needed.contains(path)
    }

    /// Whether the log has removed a file.
    pub fn is_removed(&self, path: &str) -> bool {
        !self.is_live(path) && self.files.contains_key(path)
    }

    /// Returns the oldest version whose files all stay, given the cutoff: the newest one that was current then.
    pub fn retained_from(&self, cutoff: i64) -> u64 {
        let at = self.versions.partition_point(|(_, time)| *time <= cutoff);
        let current = at.checked_sub(1).and_then(|at| self.versions.get(at)).map(|(version, _)| *version);
        current.unwrap_or(self.oldest).max(self.oldest)
    }

    /// Returns the newest version that the log has a commit of, and its time.
    pub fn newest_commit(&self) -> Option<(u64, Timestamp)> {
        let (version, time) = self.versions.last()?;
        Some((*version, Timestamp::from_millisecond(*time).unwrap_or(Timestamp::MAX)))
    }

    /// Returns how many files are removed at a time after `now`, in milliseconds since 1970.
    pub fn dated_after(&self, now: i64) -> u64 {
        self.files.values().filter(|removed| removed.at > now).count() as u64
    }
}

/// Whether a name belongs to other programs, as those that begin with `_` or `.` do; folders of partition values may.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with(['_', '.']) && !part.contains('='))
}

/// Whether a file of this role may have this path. A log that is hostile may name any.
fn is_deletable(path: &str, role: FileRole) -> bool {
    let is_own = [FOLDER, SYSTEM_FOLDER].iter().any(|own| path.split('/').next() == Some(*own));
    match role {
        FileRole::ChangeData => path.strip_prefix(CHANGES_FOLDER).is_some_and(|rest| !is_hidden(rest)),
        FileRole::Data | FileRole::DeletionVector => !is_own && !is_hidden(path),
    }
}

/// Whether an object of a table's folder belongs to other programs, or to the log.
pub fn is_left_alone(path: &str) -> bool {
    path.strip_prefix(CHANGES_FOLDER).map_or_else(|| is_hidden(path), is_hidden)
}

impl LiveTable {
    /// Checks that files may be deleted.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage), naming the features of the table that prevent it.
    pub fn check_vacuum(&self) -> Result<()> {
        protocol::check_vacuum(&self.protocol, &self.metadata)
            .map_err(|e| e.at_location(self.store().location().to_string()))
    }

    /// Returns the time for which removed files are kept.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if the table states it in a way that is not known.
    pub fn retention_period(&self) -> Result<Duration> {
        let Some(text) = self.property(RETENTION_PROPERTY) else { return Ok(DEFAULT_RETENTION) };
        parse_interval(text).ok_or_else(|| {
            let message =
                format!("expected a duration such as `interval 7 days` in {RETENTION_PROPERTY}, found `{text}`");
            Error::usage(message).at_location(self.store().location().to_string())
        })
    }
}

/// Reads an interval as properties of tables have it: `interval 1 week`, `interval 2 days 12 hours`.
fn parse_interval(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let words: Vec<&str> = text.strip_prefix("interval").unwrap_or(&text).split_whitespace().collect();
    let mut sum = Duration::ZERO;
    for pair in words.chunks(2) {
        let [number, unit] = pair else { return None };
        let number = number.trim_matches('\'');
        let unit = match unit.trim_end_matches('s') {
            "week" => "w",
            "day" => "d",
            "hour" => "h",
            "minute" => "m",
            "second" => "s",
            "millisecond" => {
                sum = sum.checked_add(Duration::from_millis(number.parse().ok()?))?;
                continue;
            }
            _ => return None,
        };
        sum = sum.checked_add(parse_duration(&format!("{number}{unit}")).ok()?)?;
    }
    (!words.is_empty()).then_some(sum)
}

/// How long files are kept, for the remarks in the log.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The time for which removed files are kept.
    pub retain: Duration,
    /// The time that the table states.
    pub stated: Duration,
    /// Whether the first may not be shorter than the second.
    pub is_checked: bool,
}

/// Deletions of files of a table, which the log tells of before and after.
pub struct Vacuuming<'a> {
    head: TableHead<'a>,
    id: String,
    /// Files that other programs have added since the table was read.
    added: BTreeSet<String>,
}

impl<'a> Vacuuming<'a> {
    /// Commits that `files` of `bytes` in all will be deleted, and reads what other programs have committed before.
    /// `now` is in milliseconds since 1970.
    ///
    /// # Errors
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) if the schema, properties or protocol have changed; when the
    /// log is damaged, or the store fails.
    pub fn start(table: &'a LiveTable, terms: Terms, files: u64, bytes: u64, now: i64) -> Result<Self> {
        let head =
            TableHead::new(table, "files that were deleted are needed by no retained version; run the command again");
        let mut out = Self { head, id: run_uuid(), added: BTreeSet::new() };
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let parameters = json!({
            "retentionCheckEnabled": terms.is_checked,
            "defaultRetentionMillis": millis(terms.stated),
            "specifiedRetentionMillis": millis(terms.retain),
        });
        let metrics = json!({"numFilesToDelete": files, "sizeOfDataToDelete": bytes});
        out.commit_operation("VACUUM START", parameters, metrics, now)?;
        Ok(out)
    }

    /// Reads the commits of other programs, and returns the files that they have added.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn read_added_files(&mut self) -> Result<&BTreeSet<String>> {
        self.read_winners(0)?;
        Ok(&self.added)
    }

    /// Commits that files were deleted, and whether all were; returns the newest version, and the files that other
    /// programs have added meanwhile.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn end(mut self, deleted: u64, is_completed: bool, now: i64) -> Result<(u64, BTreeSet<String>)> {
        let parameters = json!({"status": if is_completed { "COMPLETED" } else { "FAILED" }});
        let metrics = json!({"numDeletedFiles": deleted, "numVacuumedDirectories": 0});
        self.commit_operation("VACUUM END", parameters, metrics, now)?;
        Ok((self.head.version, self.added))
    }

    fn commit_operation(&mut self, operation: &str, parameters: Value, metrics: Value, now: i64) -> Result<()> {
        for _ in 0..RACES {
            let (parameters, metrics) = (parameters.clone(), metrics.clone());
            let remarks = Remarks { operation, parameters, metrics, isolation: "SnapshotIsolation", id: &self.id };
            let (info, _) = self.head.commit_info(remarks, now);
            if self.head.create_commit(&[info])? {
                return Ok(());
            }
            self.read_winners(self.head.version + 1)?;
        }
        Err(self
            .head
            .conflict_error("other programs keep writing to the table")
            .at_location(self.head.next_commit_location()))
    }

    fn read_winners(&mut self, at_least: u64) -> Result<()> {
        let added = &mut self.added;
        self.head.read_winners(at_least, &mut |action| {
            if let Some(add) = &action.add {
                added.extend(named_by(add)?);
            }
            if let Some(changes) = &action.cdc {
                added.insert(data_path(&changes.path)?);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        error::Kind,
        storage::{RemoteStore, Store},
    };

    const DAY: i64 = 86_400_000;

    const FIRST: &str = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors","changeDataFeed"]}}
{"metaData":{"id":"i","schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":[],"configuration":{}}}
"#;

    fn put(store: &Arc<dyn Store>, version: u64, lines: &str) {
        store.put(&commit_path(version), lines.to_owned().into()).unwrap();
    }

    fn removals(store: &Arc<dyn Store>) -> Result<(LiveTable, Removals)> {
        let table = Table::open(Arc::clone(store))?;
        let live = table.live_table(0)?;
        live.check_vacuum()?;
        let removals = table.read_removals(&live)?;
        Ok((live, removals))
    }

    /// A table whose second version removes a file that the log dates a day ahead, and gives another a new vector.
    fn table() -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let vector = |id: &str| {
            format!(
                r#""deletionVector":{{"storageType":"u","pathOrInlineDv":"{id}","offset":1,"sizeInBytes":34,"cardinality":1}}"#
            )
        };
        let (old, new) = (vector("ab^-aqEH.-t@S}K{vb[*k^"), vector("cd^-aqEH.-t@S}K{vb[*k^"));
        put(
            &store,
            0,
            &format!(
                "{FIRST}{{\"add\":{{\"path\":\"a%20b\",\"size\":1,\"dataChange\":true}}}\
                     }\n{{\"add\":{{\"path\":\"c\",\"size\":1,\"dataChange\":true,{old}}}}}\n"
            ),
        );
        let ahead = Timestamp::now().as_millisecond() + DAY;
        put(
            &store,
            1,
            &format!(
                "{{\"remove\":{{\"path\":\"a%20b\",\"deletionTimestamp\":{ahead},\"dataChange\":true}}}}\n\
                 {{\"remove\":{{\"path\":\"c\",\"deletionTimestamp\":5,\"dataChange\":true,{old}}}}}\n\
                 {{\"add\":{{\"path\":\"c\",\"size\":1,\"dataChange\":true,{new}}}}}\n\
                 {{\"cdc\":{{\"path\":\"_change_data/x.parquet\",\"partitionValues\":{{}},\"size\":1,\"dataChange\":false}}}}\n"
            ),
        );
        store
    }

    #[test]
    fn files_expire_at_the_latest_time_that_is_known() {
        let store = table();
        let (_, removals) = removals(&store).unwrap();
        let now = Timestamp::now().as_millisecond() + 1000;
        let vector = "/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
        let all = |cutoff| {
            let paths = ["a b", "c", &format!("ab{vector}"), &format!("cd{vector}"), "_change_data/x.parquet", "other"];
            paths.map(|path| removals.expired_role(path, cutoff))
        };
        // The writer's time of the vector is in 1970; that of the commit counts.
        assert_eq!(all(now - 5000), [None; 6]);
        let of_commit = [None, None, Some(FileRole::DeletionVector), None, Some(FileRole::ChangeData), None];
        assert_eq!(all(now), of_commit);
        assert_eq!(removals.expired_role("a b", now + DAY), Some(FileRole::Data));
        assert_eq!((removals.dated_after(now), removals.retained_from(now), removals.retained_from(0)), (1, 1, 0));
    }

    #[test]
    fn checkpoints_that_state_no_time_of_a_removal_count_with_their_commit() {
        let store = table();
        let rows = format!("{FIRST}{{\"remove\":{{\"path\":\"old\",\"dataChange\":true}}}}\n");
        let checkpoint = format!("_delta_log/{:020}.checkpoint.d2c639aa-8816-431a-aaf6-d3fe2512ff61.json", 1);
        store.put(&checkpoint, rows.into()).unwrap();
        let now = Timestamp::now().as_millisecond() + 1000;
        let (_, found) = removals(&store).unwrap();
        assert_eq!(found.expired_role("old", now - 5000), None);
        assert_eq!(found.expired_role("old", now), Some(FileRole::Data));
        // Without that commit, nothing is known.
        store.delete(&commit_path(1)).unwrap();
        let (_, found) = removals(&store).unwrap();
        assert_eq!(found.expired_role("old", i64::MAX - 1), None);
    }

    #[test]
    fn names_that_are_not_encoded_are_needed() {
        let store = table();
        put(&store, 2, "{\"add\":{\"path\":\"x%20y\",\"size\":1,\"dataChange\":true}}\n");
        put(&store, 3, "{\"remove\":{\"path\":\"x%2520y\",\"deletionTimestamp\":5,\"dataChange\":true}}\n");
        let (_, found) = removals(&store).unwrap();
        assert_eq!(found.expired_role("x%20y", i64::MAX), None);
        assert!(found.is_live("x%20y") && found.is_live("x y"));
    }

    #[test]
    fn only_names_of_data_files_are_deleted() {
        for (path, role, expected) in [
            ("a/b.parquet", FileRole::Data, true),
            ("_day=1/b.parquet", FileRole::Data, true),
            ("_delta_log/00000000000000000000.json", FileRole::Data, false),
            ("_delta_log/_x=1/a", FileRole::Data, false),
            ("_shardify/log/1", FileRole::Data, false),
            ("_change_data/a", FileRole::Data, false),
            (".hidden/a", FileRole::Data, false),
            ("a/.b.parquet", FileRole::Data, false),
            ("_change_data/day=1/a", FileRole::ChangeData, true),
            ("_change_data/_a", FileRole::ChangeData, false),
            ("a", FileRole::ChangeData, false),
        ] {
            assert_eq!(is_deletable(path, role), expected, "{path}");
        }
    }

    #[test]
    fn paths_out_of_the_table_are_errors() {
        for path in ["../x", "/etc/passwd", "s3://b/x", "a/%2e%2e/x"] {
            let store = table();
            put(&store, 2, &format!("{{\"remove\":{{\"path\":\"{path}\",\"dataChange\":true}}}}\n"));
            assert_eq!(removals(&store).unwrap_err().kind(), Kind::Input, "{path}");
        }
    }

    #[test]
    fn the_log_tells_of_a_vacuum_and_what_others_add_is_known() {
        let store = table();
        let (live, _) = removals(&store).unwrap();
        let terms = Terms { retain: Duration::ZERO, stated: DEFAULT_RETENTION, is_checked: false };
        put(&store, 2, "{\"add\":{\"path\":\"a%20b\",\"size\":1,\"dataChange\":true}}\n");
        let mut vacuuming = Vacuuming::start(&live, terms, 3, 30, 1000).unwrap();
        assert_eq!(vacuuming.read_added_files().unwrap().iter().collect::<Vec<_>>(), ["a b", "a%20b"]);
        put(&store, 4, "{\"add\":{\"path\":\"later\",\"size\":1,\"dataChange\":true}}\n");
        let (version, added) = vacuuming.end(3, true, 2000).unwrap();
        assert_eq!((version, added.len()), (5, 3));
        let info = |version: u64| -> Value {
            serde_json::from_slice::<Value>(&store.get(&commit_path(version)).unwrap().unwrap()).unwrap()["commitInfo"]
                .clone()
        };
        assert_eq!((&info(3)["operation"], &info(5)["operation"]), (&"VACUUM START".into(), &"VACUUM END".into()));
        assert_eq!(info(3)["operationMetrics"], json!({"numFilesToDelete": 3, "sizeOfDataToDelete": 30}));
        assert_eq!(info(5)["operationParameters"]["status"], "COMPLETED");
        // Another schema ends it.
        put(&store, 6, FIRST.lines().nth(1).unwrap());
        let error = Vacuuming::start(&live, terms, 3, 30, 1000).err().unwrap();
        assert_eq!(error.kind(), Kind::Conflict);
    }

    #[test]
    fn intervals_of_properties() {
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3600));
        for (text, expected) in [
            ("interval 1 week", hours(168)),
            ("INTERVAL 2 days 12 hours", hours(60)),
            ("interval 90 minutes", Some(Duration::from_secs(5400))),
            ("interval '7' day", hours(168)),
            ("168 hours", hours(168)),
            ("interval 1 month", None),
            ("interval", None),
            ("interval 3", None),
            ("interval -1 days", None),
        ] {
            assert_eq!(parse_interval(text), expected, "{text}");
        }
    }
}
