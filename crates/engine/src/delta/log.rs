//! The files of a Delta log, and the lines of its commits.
//!
//! ```text
//! _delta_log/00000000000000000012.json                               commit: one action a line
//!            00000000000000000010.checkpoint.parquet                 checkpoint V1
//!            00000000000000000010.checkpoint.0000000001.0000000002.parquet     part 1 of 2
//!            00000000000000000010.checkpoint.<uuid>.json | .parquet  checkpoint V2; more in _sidecars/
//! ```
//!
//! `_last_checkpoint` is a hint for those that do not list the log, and is not needed to read it.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    ops::RangeInclusive,
};

use rayon::prelude::*;

use super::actions::Action;
use crate::{
    error::{Error, Kind, Result},
    storage::{Listed, Store},
};

/// Folder of the log.
pub const FOLDER: &str = "_delta_log";

/// Maximum bytes of an action.
const MAX_LINE: u64 = 64 << 20;

/// Commits that are read at once: each is a request of its own, and mostly waits.
const READS_AT_ONCE: usize = 16;

/// Bytes of commits that are read at once; a larger one is read alone, line by line.
const BYTES_AT_ONCE: u64 = 8 << 20;

/// Digits of a version in file names.
const DIGITS: usize = 20;

/// What a file of the log is.
#[derive(Debug, PartialEq, Eq)]
enum LogFileName {
    Commit(u64),
    Checkpoint(u64),
    /// Version, number of the part, number of parts.
    Part(u64, u32, u32),
}

/// The file of a commit.
#[derive(Debug, Clone, Copy)]
struct CommitFile {
    /// Its time in milliseconds since 1970.
    modified: i64,
    bytes: u64,
}

/// Files of a log.
#[derive(Debug, Default)]
pub struct LogFiles {
    commits: BTreeMap<u64, CommitFile>,
    /// For each complete checkpoint, its files.
    checkpoints: BTreeMap<u64, Vec<String>>,
}

impl LogFiles {
    /// Lists the log.
    ///
    /// # Errors
    /// If the store fails.
    pub fn list(store: &dyn Store) -> Result<Self> {
        let mut out = Self::default();
        let mut parts: BTreeMap<(u64, u32), BTreeMap<u32, String>> = BTreeMap::new();
        store.walk_folder(FOLDER, &mut |listed| {
            let facts = match listed {
                Listed::Object(facts) => facts,
                Listed::FolderLink(_) => return Ok(()),
                Listed::Fault(error) => return Err(error),
            };
            match facts.path.strip_prefix(FOLDER).and_then(|path| name_of(path.trim_start_matches('/'))) {
                Some(LogFileName::Commit(version)) => {
                    let modified = facts.modified.as_millisecond();
                    out.commits.insert(version, CommitFile { modified, bytes: facts.bytes });
                }
                Some(LogFileName::Checkpoint(version)) => {
                    // Checkpoints of one version have the same content.
                    out.checkpoints.insert(version, vec![facts.path]);
                }
                Some(LogFileName::Part(version, part, of)) => {
                    parts.entry((version, of)).or_default().insert(part, facts.path);
                }
                None => {}
            }
            Ok(())
        })?;
        for ((version, of), parts) in parts {
            if parts.len() == of as usize {
                out.checkpoints.entry(version).or_insert_with(|| parts.into_values().collect());
            }
        }
        Ok(out)
    }

    /// Returns the newest version; `None` if the log has none.
    pub fn newest_version(&self) -> Option<u64> {
        self.commits.keys().chain(self.checkpoints.keys()).max().copied()
    }

    /// Returns the newest complete checkpoint of at most a version, and its files.
    pub fn newest_checkpoint(&self, version: u64) -> Option<(u64, &[String])> {
        self.checkpoints.range(..=version).next_back().map(|(version, files)| (*version, files.as_slice()))
    }

    /// Returns the first version of the range whose commit is missing.
    pub fn missing_commit(&self, mut versions: RangeInclusive<u64>) -> Option<u64> {
        versions.find(|version| !self.commits.contains_key(version))
    }

    /// Returns the oldest version that can be read.
    pub(super) fn oldest_version(&self) -> Option<u64> {
        let checkpoint = self.checkpoints.keys().next().copied();
        if self.commits.contains_key(&0) { Some(0) } else { checkpoint }
    }

    /// Returns the commits in ascending order, each with the time of its file in milliseconds since 1970.
    pub(super) fn commit_times(&self) -> impl DoubleEndedIterator<Item = (u64, i64)> + '_ {
        self.commits.iter().map(|(version, file)| (*version, file.modified))
    }

    /// Calls `visit` with each action of some commits, in order. Commits are read ahead, within bounds.
    ///
    /// # Errors
    /// As [`each_action`]; of several errors, the first in the log.
    pub(super) fn each_action(
        &self,
        store: &dyn Store,
        versions: RangeInclusive<u64>,
        visit: &mut dyn FnMut(Action) -> Result<()>,
    ) -> Result<()> {
        let batches = self.read_batches(versions);
        let pool = if batches.iter().any(|batch| batch.len() > 1) { Some(request_pool()?) } else { None };
        for batch in batches {
            let (Some(pool), [_, _, ..]) = (&pool, batch.as_slice()) else {
                for version in batch {
                    each_action(store, &commit_path(version), visit)?;
                }
                continue;
            };
            let read: Vec<Result<Vec<(u64, Action)>>> = pool
                .install(|| batch.par_iter().map(|version| numbered_actions(store, &commit_path(*version))).collect());
            for (version, actions) in batch.into_iter().zip(read) {
                for (line, action) in actions? {
                    visit(action).map_err(|e| at_line(e, store, &commit_path(version), line))?;
                }
            }
        }
        Ok(())
    }

    /// Returns versions in groups that are read at once.
    fn read_batches(&self, versions: RangeInclusive<u64>) -> Vec<Vec<u64>> {
        let (mut out, mut bytes): (Vec<Vec<u64>>, u64) = (Vec::new(), 0);
        for version in versions {
            let more = self.commits.get(&version).map_or(0, |file| file.bytes);
            bytes = bytes.saturating_add(more);
            match out.last_mut() {
                Some(batch) if bytes <= BYTES_AT_ONCE && batch.len() < READS_AT_ONCE => batch.push(version),
                _ => {
                    out.push(vec![version]);
                    bytes = more;
                }
            }
        }
        out
    }
}

/// Returns what a file name in the log means; `None` if it is of no use here.
fn name_of(name: &str) -> Option<LogFileName> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (digits, rest) = name.split_once('.').filter(|(digits, _)| digits.len() == DIGITS)?;
    let version = number(digits)?;
    let parts: Vec<&str> = rest.split('.').collect();
    Some(match parts.as_slice() {
        ["json"] => LogFileName::Commit(version),
        ["checkpoint", "parquet"] => LogFileName::Checkpoint(version),
        ["checkpoint", part, of, "parquet"] => {
            let (part, of) = (u32::try_from(number(part)?).ok()?, u32::try_from(number(of)?).ok()?);
            (1..=of).contains(&part).then_some(LogFileName::Part(version, part, of))?
        }
        ["checkpoint", id, "parquet" | "json"] if id.len() == 36 => LogFileName::Checkpoint(version),
        _ => return None,
    })
}

/// Returns the path of a commit.
pub fn commit_path(version: u64) -> String {
    format!("{FOLDER}/{version:0DIGITS$}.json")
}

/// Returns the path of a checkpoint of one file.
pub fn checkpoint_path(version: u64) -> String {
    format!("{FOLDER}/{version:0DIGITS$}.checkpoint.parquet")
}

/// Returns the version that the name of an object in the log begins with, whatever the object is.
pub fn version_of(path: &str) -> Option<u64> {
    let name = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
    let digits = name.get(..DIGITS).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

/// Returns threads that wait for requests.
pub(super) fn request_pool() -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(READS_AT_ONCE)
        .build()
        .map_err(|e| Error::internal("starting threads failed").with_cause(e))
}

/// Returns an error with its place, unless it has one or the store failed.
fn at_line(error: Error, store: &dyn Store, path: &str, line: u64) -> Error {
    if error.kind() == Kind::Storage || error.place().line.is_some() {
        return error;
    }
    error.at_location(store.location().join(path).to_string()).at_line(line)
}

/// Returns the actions of a file of JSON lines, with the numbers of their lines.
fn numbered_actions(store: &dyn Store, path: &str) -> Result<Vec<(u64, Action)>> {
    let mut out = Vec::new();
    each_line(store, path, &mut |number, action| {
        out.push((number, action));
        Ok(())
    })?;
    Ok(out)
}

/// Calls `visit` with each action of a file of JSON lines.
///
/// # Errors
/// [`Kind::Input`] with the line that is damaged; those of `visit`; if the store fails.
pub fn each_action(store: &dyn Store, path: &str, visit: &mut dyn FnMut(Action) -> Result<()>) -> Result<()> {
    each_line(store, path, &mut |_, action| visit(action))
}

fn each_line(store: &dyn Store, path: &str, visit: &mut dyn FnMut(u64, Action) -> Result<()>) -> Result<()> {
    let place = || store.location().join(path).to_string();
    let mut input = BufReader::new(store.read(path)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = input
            .by_ref()
            .take(MAX_LINE + 1)
            .read_until(b'\n', &mut line)
            .map_err(|e| Error::from(e).at_location(place()))?;
        if read == 0 {
            break;
        }
        let at = |e: Error| at_line(e, store, path, number);
        if read as u64 > MAX_LINE {
            return Err(at(Error::input(format!(
                "expected an action of at most {MAX_LINE} bytes, found a longer line"
            ))));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let action = serde_json::from_slice(&line).map_err(|e| {
            Error::input("expected an action of a Delta log, found other or incomplete JSON").with_cause(e).with_hint(
                "the log is damaged: restore the file from a copy, or convert an older version with --read as-of",
            )
        });
        action.and_then(|action| visit(number, action)).map_err(at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_read_at_once_within_bounds() {
        let file = |bytes| CommitFile { modified: 0, bytes };
        let files = |sizes: &[u64]| LogFiles {
            commits: (0..).zip(sizes.iter().map(|bytes| file(*bytes))).collect(),
            ..LogFiles::default()
        };
        let mib = |mib: u64| mib << 20;
        assert_eq!(
            files(&[mib(3), mib(5), mib(1), mib(90), 1]).read_batches(0..=4),
            [vec![0, 1], vec![2], vec![3], vec![4]]
        );
        let many = files(&[1; 40]).read_batches(3..=39);
        assert_eq!(many.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 5]);
        assert_eq!((many[0][0], many[2][4]), (3, 39));
    }

    #[test]
    fn names_of_logs() {
        let zeros = "0".repeat(18);
        for (name, expected) in [
            (".json", Some(LogFileName::Commit(12))),
            (".checkpoint.parquet", Some(LogFileName::Checkpoint(12))),
            (".checkpoint.0000000002.0000000003.parquet", Some(LogFileName::Part(12, 2, 3))),
            (".checkpoint.0000000004.0000000003.parquet", None),
            (".checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", Some(LogFileName::Checkpoint(12))),
            (".checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", Some(LogFileName::Checkpoint(12))),
            (".crc", None),
            (".json.tmp", None),
            (".00000000000000000013.compacted.json", None),
        ] {
            assert_eq!(name_of(&format!("{zeros}12{name}")), expected, "{name}");
        }
        assert_eq!(name_of("_last_checkpoint"), None);
        assert_eq!(name_of("12.json"), None);
        assert_eq!(name_of("_staged_commits/00000000000000000012.x.json"), None);
    }
}
