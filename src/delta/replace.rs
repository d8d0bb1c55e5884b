//! Commits that replace live files by others with the same rows: Delta's OPTIMIZE.
//!
//! ```text
//! commitInfo OPTIMIZE | remove old files | add new files        none changes data
//! ```
//!
//! A commit is created only if absent. If another program was faster, its commit is read: replacements whose old files
//! it has removed, or given a deletion vector, are dropped, and the others are tried as the next version. If it changed
//! the schema or the protocol, nothing is committed. So a lost race never loses, doubles or brings back a row.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    LiveTable,
    actions::{Action, Add, CommitInfo, Remove, data_path, encode},
    log::{LogFiles, commit_path, each_action},
};
use crate::{
    error::{Error, Result},
    id::run_uuid,
    storage::{NewEntry, Store},
};

/// Maximum times that other programs may write the next commit first.
const RACES: usize = 100;

/// Live files, and the new ones that have their rows.
#[derive(Debug)]
pub struct Replacement {
    /// The old files.
    pub removes: Vec<Add>,
    /// The new file; `None` if all rows of the old ones are deleted.
    pub add: Option<Add>,
}

/// What was committed.
#[derive(Debug)]
pub struct Replaced {
    /// The new version.
    pub version: u64,
    /// Numbers of the replacements that were committed.
    pub replacements: BTreeSet<usize>,
}

/// Commits replacements of files of a table. `now` is in milliseconds since 1970.
///
/// # Errors
/// [`Kind::Conflict`](crate::error::Kind::Conflict) if none of the old files is live, or the table has changed in other
/// ways; when the store fails. If [`Error::effect`] is not none, the new files may be live.
pub fn replace(table: &LiveTable, replacements: &[Replacement], now: i64) -> Result<Replaced> {
    let mut race = Race::new(table, replacements)?;
    for _ in 0..RACES {
        if race.left.is_empty() {
            return Err(conflict("other programs have removed or changed the same files meanwhile").at(race.place()));
        }
        let next = race.version + 1;
        let bytes = encode(&race.actions(replacements, now)?)?;
        if create(table.store().as_ref(), next, bytes.into())? {
            return Ok(Replaced { version: next, replacements: race.left });
        }
        race.read_winners()?;
    }
    Err(conflict("other programs keep writing to the table").at(race.place()))
}

/// Returns the live files of a table that other programs have removed or changed since it was read.
///
/// # Errors
/// When the log is damaged, or the store fails.
pub fn gone(table: &LiveTable) -> Result<BTreeSet<String>> {
    let newest = table.info.store.as_ref();
    let mut out = BTreeSet::new();
    let files = LogFiles::list(newest)?;
    for version in table.version() + 1..=files.newest().unwrap_or_default() {
        each_action(newest, &commit_path(version), &mut |action| {
            out.extend(touched(&action)?);
            Ok(())
        })?;
    }
    Ok(out)
}

fn conflict(message: &str) -> Error {
    Error::conflict(message).hint("nothing was committed; run the command again")
}

/// Returns the path of the file that an action concerns.
fn touched(action: &Action) -> Result<Option<String>> {
    let removed = action.remove.as_ref().map(|remove| &remove.path);
    removed.or(action.add.as_ref().map(|add| &add.path)).map(|path| data_path(path)).transpose()
}

/// An attempt to write the next commit.
struct Race<'a> {
    table: &'a LiveTable,
    /// The newest version that is known.
    version: u64,
    /// The time that the newest commit states.
    stated_time: Option<i64>,
    /// For each old file, the number of its replacement.
    inputs: BTreeMap<String, usize>,
    /// Replacements whose old files are live.
    left: BTreeSet<usize>,
    id: String,
}

impl<'a> Race<'a> {
    fn new(table: &'a LiveTable, replacements: &[Replacement]) -> Result<Self> {
        let mut inputs = BTreeMap::new();
        for (number, replacement) in replacements.iter().enumerate() {
            for add in &replacement.removes {
                inputs.insert(data_path(&add.path)?, number);
            }
        }
        Ok(Self {
            table,
            version: table.version(),
            stated_time: table.stated_time,
            inputs,
            left: (0..replacements.len()).collect(),
            id: run_uuid(),
        })
    }

    fn place(&self) -> String {
        self.table.store().location().join(&commit_path(self.version + 1)).to_string()
    }

    /// Reads the commits of other programs since the newest known version.
    fn read_winners(&mut self) -> Result<()> {
        let store = self.table.store().as_ref();
        let files = LogFiles::list(store)?;
        // A listing of some stores is older than what was just created.
        let newest = files.newest().unwrap_or_default().max(self.version + 1);
        for version in self.version + 1..=newest {
            let path = commit_path(version);
            let mut changes = None;
            each_action(store, &path, &mut |action| {
                if action.protocol.is_some() {
                    changes = Some("its protocol");
                } else if action.meta_data.is_some() {
                    changes = Some("its schema or properties");
                }
                if let Some(number) = touched(&action)?.and_then(|path| self.inputs.get(&path)) {
                    self.left.remove(number);
                }
                if let Some(time) = action.commit_info.and_then(|info| info.in_commit_timestamp) {
                    self.stated_time = self.stated_time.map(|known| known.max(time));
                }
                Ok(())
            })?;
            if let Some(what) = changes {
                let message = format!("another program changed the table meanwhile: {what}");
                return Err(conflict(&message).at(store.location().join(&path).to_string()));
            }
            self.version = version;
        }
        Ok(())
    }

    /// Returns the actions of the next commit.
    fn actions(&self, replacements: &[Replacement], now: i64) -> Result<Vec<Action>> {
        let left: Vec<&Replacement> = self.left.iter().filter_map(|number| replacements.get(*number)).collect();
        let in_commit_timestamp = self.stated_time.map(|last| now.max(last.saturating_add(1)));
        let now = in_commit_timestamp.unwrap_or(now);
        let info = CommitInfo {
            in_commit_timestamp,
            timestamp: now,
            operation: "OPTIMIZE".to_owned(),
            operation_parameters: json!({"predicate": "[]", "auto": "false", "clusterBy": "[]", "zOrderBy": "[]"}),
            engine_info: concat!("shardify/", env!("CARGO_PKG_VERSION")).to_owned(),
            read_version: Some(self.version),
            isolation_level: Some("SnapshotIsolation".to_owned()),
            is_blind_append: Some(false),
            operation_metrics: Some(metrics(&left)),
            txn_id: Some(self.id.clone()),
        };
        // The time of a commit must be in its first action.
        let mut out = vec![Action { commit_info: Some(info), ..Action::default() }];
        for replacement in left {
            let removes = replacement.removes.iter().map(|add| Remove::of(add, now, false));
            out.extend(removes.map(|remove| Action { remove: Some(remove), ..Action::default() }));
            out.extend(replacement.add.iter().map(|add| {
                let add = Add { data_change: false, ..add.clone() };
                Action { add: Some(add), ..Action::default() }
            }));
        }
        Ok(out)
    }
}

/// Returns the counts that Spark states for an OPTIMIZE.
fn metrics(replacements: &[&Replacement]) -> Value {
    let size = |add: &Add| add.size.unwrap_or_default();
    let mut added: Vec<i64> = replacements.iter().filter_map(|one| one.add.as_ref()).map(size).collect();
    added.sort_unstable();
    let removed = || replacements.iter().flat_map(|one| &one.removes);
    let part = |quarters: usize| added.get((added.len() * quarters / 4).min(added.len().saturating_sub(1)));
    let text = |number: Option<&i64>| number.copied().unwrap_or_default().to_string();
    json!({
        "numRemovedFiles": removed().count().to_string(),
        "numRemovedBytes": removed().map(size).sum::<i64>().to_string(),
        "numAddedFiles": added.len().to_string(),
        "numAddedBytes": added.iter().sum::<i64>().to_string(),
        "numDeletionVectorsRemoved": removed().filter(|add| add.deletion_vector.is_some()).count().to_string(),
        "minFileSize": text(added.first()),
        "p25FileSize": text(part(1)),
        "p50FileSize": text(part(2)),
        "p75FileSize": text(part(3)),
        "maxFileSize": text(added.last()),
    })
}

/// Creates a commit; returns false if another program's exists.
fn create(store: &dyn Store, version: u64, bytes: Bytes) -> Result<bool> {
    let path = commit_path(version);
    let new = NewEntry {
        path: &path,
        version: &version,
        name: "commit",
        unsure: "nothing was deleted; check the disk, and whether the newest version of the table is there",
    };
    new.create(store, bytes.clone(), || Ok(store.get(&path)?.map(|found| found == bytes)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        delta::Table,
        error::{Effect, Kind},
        storage::RemoteStore,
    };

    const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;
    const SCHEMA: &str =
        r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"#;

    fn metadata(properties: &str) -> String {
        format!(
            r#"{{"metaData":{{"id":"i","schemaString":"{SCHEMA}","partitionColumns":[],"configuration":{{{properties}}}}}}}"#
        )
    }

    fn add(path: &str) -> String {
        format!(
            r#"{{"add":{{"path":"{path}","partitionValues":{{}},"size":10,"modificationTime":1,"dataChange":true}}}}"#
        )
    }

    fn store() -> Arc<dyn Store> {
        Arc::new(RemoteStore::memory().unwrap())
    }

    fn put(store: &Arc<dyn Store>, version: u64, lines: &[String]) {
        store.put(&commit_path(version), lines.join("\n").into()).unwrap();
    }

    /// A table of four files, and the replacement of the first two and of the last two.
    fn table(store: &Arc<dyn Store>, properties: &str) -> (LiveTable, Vec<Replacement>) {
        let info = r#"{"commitInfo":{"inCommitTimestamp":5000}}"#.to_owned();
        let mut lines = vec![info, PROTOCOL.to_owned(), metadata(properties)];
        lines.extend(["a", "b", "c", "d%20e"].map(add));
        put(store, 0, &lines);
        let live = Table::open(Arc::clone(store)).unwrap().live(u64::MAX).unwrap();
        live.check_rewritable().unwrap();
        let adds: Vec<Add> = live.files().iter().map(|file| file.add.clone()).collect();
        let replacement = |at: usize| Replacement {
            removes: adds[at..at + 2].to_vec(),
            add: Some(Add::new(&format!("new {at}"), 20, 7)),
        };
        (live, vec![replacement(0), replacement(2)])
    }

    fn live_paths(store: &Arc<dyn Store>) -> Vec<String> {
        let live = Table::open(Arc::clone(store)).unwrap().live(0).unwrap();
        live.files().iter().map(|file| file.path.clone()).collect()
    }

    #[test]
    fn files_are_replaced_without_a_change_of_data() {
        let store = store();
        let (live, replacements) = table(&store, "");
        let done = replace(&live, &replacements, 1000).unwrap();
        assert_eq!((done.version, done.replacements.len()), (1, 2));
        assert_eq!(live_paths(&store), ["new 0", "new 2"]);
        let text = String::from_utf8(store.get(&commit_path(1)).unwrap().unwrap().to_vec()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let info = &lines[0]["commitInfo"];
        assert_eq!((&info["operation"], &info["readVersion"]), (&"OPTIMIZE".into(), &0.into()));
        assert_eq!(info["operationMetrics"]["numRemovedFiles"], "4");
        assert_eq!(info["operationMetrics"]["numAddedBytes"], "40");
        assert!(info.get("inCommitTimestamp").is_none());
        let removed: Vec<&Value> = lines.iter().filter_map(|line| line.get("remove")).collect();
        assert_eq!(
            removed.iter().map(|remove| remove["path"].as_str().unwrap()).collect::<Vec<_>>(),
            ["a", "b", "c", "d%20e"]
        );
        assert!(removed.iter().all(|remove| remove["dataChange"] == false && remove["size"] == 10));
    }

    #[test]
    fn what_winners_have_changed_is_dropped() {
        let store = store();
        let (live, replacements) = table(&store, "");
        put(&store, 1, &[add("later")]);
        put(&store, 2, &[r#"{"remove":{"path":"d%20e","dataChange":true}}"#.to_owned()]);
        assert_eq!(gone(&live).unwrap().len(), 2);
        let done = replace(&live, &replacements, 1000).unwrap();
        assert_eq!((done.version, done.replacements.into_iter().collect::<Vec<_>>()), (3, vec![0]));
        assert_eq!(live_paths(&store), ["c", "later", "new 0"]);
        // The same once more: now all files are gone.
        let error = replace(&live, &replacements, 1000).unwrap_err();
        assert_eq!((error.kind(), error.effect()), (Kind::Conflict, Effect::None));
    }

    #[test]
    fn another_schema_protocol_or_damage_ends_it() {
        for (winner, kind) in [
            (metadata(""), Kind::Conflict),
            (PROTOCOL.to_owned(), Kind::Conflict),
            (r#"{"add":{"path":"to"#.to_owned(), Kind::Input),
        ] {
            let store = store();
            let (live, replacements) = table(&store, "");
            put(&store, 1, &[winner]);
            let error = replace(&live, &replacements, 1000).unwrap_err();
            assert_eq!((error.kind(), error.effect()), (kind, Effect::None), "{error}");
            assert!(store.get(&commit_path(2)).unwrap().is_none());
        }
    }

    #[test]
    fn stated_times_increase() {
        let store = store();
        let (live, replacements) = table(&store, r#""delta.enableInCommitTimestamps":"true""#);
        put(&store, 1, &[r#"{"commitInfo":{"inCommitTimestamp":9000}}"#.to_owned()]);
        assert_eq!(replace(&live, &replacements, 1000).unwrap().version, 2);
        let text = store.get(&commit_path(2)).unwrap().unwrap();
        let first: Value = serde_json::from_slice(text.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert_eq!(first["commitInfo"]["inCommitTimestamp"], 9001);
    }

    #[test]
    fn exactly_one_of_two_replacements_of_the_same_files_wins() {
        let store = store();
        let (live, replacements) = table(&store, "");
        let won = std::thread::scope(|scope| {
            let racing: Vec<_> = (0..2).map(|_| scope.spawn(|| replace(&live, &replacements, 1000).is_ok())).collect();
            racing.into_iter().filter_map(|one| one.join().ok()).filter(|won| *won).count()
        });
        assert_eq!((won, live_paths(&store).len()), (1, 2));
    }
}
