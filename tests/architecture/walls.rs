//! The walls between crates: what an edit of a crate compiles, and that no crate is in the way of another.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::{CRATES, root};

/// For each crate, the crates that are compiled after an edit of it, itself included.
const COMPILED_AFTER_AN_EDIT: &[(&str, &[&str])] = &[
    (
        "shardify-order",
        &["shardify", "shardify-dataset", "shardify-engine", "shardify-load", "shardify-order", "shardify-py"],
    ),
    (
        "shardify-core",
        &[
            "shardify",
            "shardify-core",
            "shardify-dataset",
            "shardify-engine",
            "shardify-formats",
            "shardify-load",
            "shardify-py",
        ],
    ),
    (
        "shardify-formats",
        &["shardify", "shardify-dataset", "shardify-engine", "shardify-formats", "shardify-load", "shardify-py"],
    ),
    ("shardify-dataset", &["shardify", "shardify-dataset", "shardify-engine", "shardify-load", "shardify-py"]),
    ("shardify-load", &["shardify-load", "shardify-py"]),
    ("shardify-engine", &["shardify", "shardify-engine"]),
    ("shardify", &["shardify"]),
    ("shardify-py", &["shardify-py"]),
];

/// Returns name and crates of this workspace that a manifest's section `[dependencies]` has.
fn manifest(folder: &str) -> (String, BTreeSet<String>) {
    let text = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let section = |name: &str| {
        let after = text.split(&format!("\n[{name}]\n")).nth(1).unwrap_or_default();
        after.split("\n[").next().unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let of_package =
        if text.starts_with("[package]\n") { text.lines().map(str::to_owned).collect() } else { section("package") };
    let name = of_package.iter().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"').map(str::to_owned));
    let is_ours =
        |line: &String| line.starts_with("shardify-").then(|| line.split(['.', ' ']).next().unwrap().to_owned());
    (name.unwrap(), section("dependencies").iter().filter_map(is_ours).collect())
}

#[test]
fn an_edit_compiles_only_the_crates_above() {
    let needs: BTreeMap<String, BTreeSet<String>> = CRATES.iter().map(|folder| manifest(folder)).collect();
    assert_eq!(needs.len(), CRATES.len());
    let mut compiled: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for edited in needs.keys() {
        let mut after = BTreeSet::from([edited.as_str()]);
        while let Some((above, _)) = needs.iter().find(|(name, needs)| {
            !after.contains(name.as_str()) && needs.iter().any(|needed| after.contains(needed.as_str()))
        }) {
            after.insert(above);
        }
        compiled.insert(edited, after);
    }
    let expected = COMPILED_AFTER_AN_EDIT.iter().map(|(name, after)| (*name, after.iter().copied().collect()));
    assert_eq!(compiled, expected.collect());
}
