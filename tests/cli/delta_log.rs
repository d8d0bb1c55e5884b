//! What tests of Delta tables share: a folder's `table`, and the commits of its log.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::Folder;

/// The path of a commit.
pub(crate) fn commit_path(version: u64) -> String {
    format!("table/_delta_log/{version:020}.json")
}

/// The actions of a commit.
pub(crate) fn actions(folder: &Folder, version: u64) -> Vec<Value> {
    let text = fs::read_to_string(folder.path().join(commit_path(version))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Writes a commit, as another program would.
pub(crate) fn commit(folder: &Folder, version: u64, actions: &[Value]) {
    let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
    folder.write(&commit_path(version), lines);
}

/// Everything below a folder.
pub(crate) fn tree(folder: &Path) -> BTreeSet<PathBuf> {
    let mut out = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { out.extend(tree(&entry)) } else { _ = out.insert(entry) }
    }
    out
}
