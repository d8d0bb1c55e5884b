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

use serde_json::{Value, json};

use super::{
    LiveTable,
    actions::{Action, Add, Remove, data_path},
    head::{RACES, Remarks, TableHead},
    log::{LogFiles, commit_path, each_action},
};
use crate::{
    error::{Error, Result},
    id::run_uuid,
};

/// Live files, and the new ones that have their rows.
#[derive(Debug)]
pub struct Replacement {
    /// The old files.
    pub removes: Vec<Add>,
    /// The new files; none if all rows of the old ones are deleted.
    pub adds: Vec<Add>,
}

/// What the commit says of the operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arranged<'a> {
    /// Columns by which rows are sorted.
    pub sort_by: &'a [String],
    /// Columns of the Z-order that rows are in.
    pub zorder_by: &'a [String],
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
pub fn commit_replacements(
    table: &LiveTable,
    replacements: &[Replacement],
    arranged: Arranged<'_>,
    now: i64,
) -> Result<Replaced> {
    let mut race = Race::new(table, replacements)?;
    for _ in 0..RACES {
        if race.left.is_empty() {
            let error = race.head.conflict_error("other programs have removed or changed the same files meanwhile");
            return Err(error.at_location(race.head.next_commit_location()));
        }
        let actions = race.commit_actions(replacements, arranged, now)?;
        if race.head.create_commit(&actions)? {
            return Ok(Replaced { version: race.head.version, replacements: race.left });
        }
        race.read_winners()?;
    }
    Err(race
        .head
        .conflict_error("other programs keep writing to the table")
        .at_location(race.head.next_commit_location()))
}

/// Returns the live files of a table that other programs have removed or changed since it was read.
///
/// # Errors
/// When the log is damaged, or the store fails.
pub fn changed_files(table: &LiveTable) -> Result<BTreeSet<String>> {
    let newest = table.info.store.as_ref();
    let mut out = BTreeSet::new();
    let files = LogFiles::list(newest)?;
    for version in table.version() + 1..=files.newest_version().unwrap_or_default() {
        each_action(newest, &commit_path(version), &mut |action| {
            out.extend(touched_path(&action)?);
            Ok(())
        })?;
    }
    Ok(out)
}

/// Returns the path of the file that an action concerns.
fn touched_path(action: &Action) -> Result<Option<String>> {
    let removed = action.remove.as_ref().map(|remove| &remove.path);
    removed.or(action.add.as_ref().map(|add| &add.path)).map(|path| data_path(path)).transpose()
}

/// An attempt to write the next commit.
struct Race<'a> {
    head: TableHead<'a>,
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
        let left = (0..replacements.len()).collect();
        let head = TableHead::new(table, "nothing was committed; run the command again");
        Ok(Self { head, inputs, left, id: run_uuid() })
    }

    /// Reads the commits of other programs since the newest known version.
    fn read_winners(&mut self) -> Result<()> {
        let (inputs, left) = (&self.inputs, &mut self.left);
        self.head.read_winners(self.head.version + 1, &mut |action| {
            if let Some(number) = touched_path(action)?.and_then(|path| inputs.get(&path)) {
                left.remove(number);
            }
            Ok(())
        })
    }

    /// Returns the actions of the next commit.
    fn commit_actions(&self, replacements: &[Replacement], arranged: Arranged<'_>, now: i64) -> Result<Vec<Action>> {
        let left: Vec<&Replacement> = self.left.iter().filter_map(|number| replacements.get(*number)).collect();
        let list = |columns: &[String]| {
            serde_json::to_string(columns)
                .map_err(|e| Error::internal("encoding the names of columns failed").with_cause(e))
        };
        let zorder_by = list(arranged.zorder_by)?;
        let mut parameters = json!({"predicate": "[]", "auto": "false", "clusterBy": "[]", "zOrderBy": zorder_by});
        if !arranged.sort_by.is_empty() {
            parameters["sortBy"] = list(arranged.sort_by)?.into();
        }
        let remarks = Remarks {
            operation: "OPTIMIZE",
            parameters,
            metrics: optimize_metrics(&left),
            isolation: "SnapshotIsolation",
            id: &self.id,
        };
        // The time of a commit must be in its first action.
        let (info, now) = self.head.commit_info(remarks, now);
        let mut out = vec![info];
        for replacement in left {
            let removes = replacement.removes.iter().map(|add| Remove::for_add(add, now, false));
            out.extend(removes.map(|remove| Action { remove: Some(remove), ..Action::default() }));
            out.extend(replacement.adds.iter().map(|add| {
                let add = Add { data_change: false, ..add.clone() };
                Action { add: Some(add), ..Action::default() }
            }));
        }
        Ok(out)
    }
}

/// Returns the counts that Spark states for an OPTIMIZE.
fn optimize_metrics(replacements: &[&Replacement]) -> Value {
    let size = |add: &Add| add.size.unwrap_or_default();
    let mut added: Vec<i64> = replacements.iter().flat_map(|one| &one.adds).map(size).collect();
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        delta::Table,
        error::{Effect, Kind},
        storage::{RemoteStore, Store},
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
        Arc::new(RemoteStore::in_memory().unwrap())
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
        let live = Table::open(Arc::clone(store)).unwrap().live_table(u64::MAX).unwrap();
        live.check_rewritable().unwrap();
        let adds: Vec<Add> = live.files().iter().map(|file| file.add.clone()).collect();
        let replacement = |at: usize| Replacement {
            removes: adds[at..at + 2].to_vec(),
            adds: vec![Add::new(&format!("new {at}"), 20, 7)],
        };
        (live, vec![replacement(0), replacement(2)])
    }

    fn live_paths(store: &Arc<dyn Store>) -> Vec<String> {
        let live = Table::open(Arc::clone(store)).unwrap().live_table(0).unwrap();
        live.files().iter().map(|file| file.path.clone()).collect()
    }

    #[test]
    fn files_are_replaced_without_a_change_of_data() {
        let store = store();
        let (live, replacements) = table(&store, "");
        let done = commit_replacements(&live, &replacements, Arranged::default(), 1000).unwrap();
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
        assert_eq!(changed_files(&live).unwrap().len(), 2);
        let done = commit_replacements(&live, &replacements, Arranged::default(), 1000).unwrap();
        assert_eq!((done.version, done.replacements.into_iter().collect::<Vec<_>>()), (3, vec![0]));
        assert_eq!(live_paths(&store), ["c", "later", "new 0"]);
        // The same once more: now all files are gone.
        let error = commit_replacements(&live, &replacements, Arranged::default(), 1000).unwrap_err();
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
            let error = commit_replacements(&live, &replacements, Arranged::default(), 1000).unwrap_err();
            assert_eq!((error.kind(), error.effect()), (kind, Effect::None), "{error}");
            assert!(store.get(&commit_path(2)).unwrap().is_none());
        }
    }

    #[test]
    fn stated_times_increase() {
        let store = store();
        let (live, replacements) = table(&store, r#""delta.enableInCommitTimestamps":"true""#);
        put(&store, 1, &[r#"{"commitInfo":{"inCommitTimestamp":9000}}"#.to_owned()]);
        assert_eq!(commit_replacements(&live, &replacements, Arranged::default(), 1000).unwrap().version, 2);
        let text = store.get(&commit_path(2)).unwrap().unwrap();
        let first: Value = serde_json::from_slice(text.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert_eq!(first["commitInfo"]["inCommitTimestamp"], 9001);
    }

    #[test]
    fn exactly_one_of_two_replacements_of_the_same_files_wins() {
        let store = store();
        let (live, replacements) = table(&store, "");
        let won = std::thread::scope(|scope| {
            let racing: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| commit_replacements(&live, &replacements, Arranged::default(), 1000).is_ok()))
                .collect();
            racing.into_iter().filter_map(|one| one.join().ok()).filter(|won| *won).count()
        });
        assert_eq!((won, live_paths(&store).len()), (1, 2));
    }
}
