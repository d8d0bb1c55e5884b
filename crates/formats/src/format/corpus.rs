//! Location of the corpus of real files, for tests that use all of it.
//!
//! `SHARDIFY_CORPUS` names its folder (default `../shared/corpus`). A test without it reports that on standard error,
//! bypassing the test harness, which hides the output of passing tests: a skipped test must be visible.

use std::{
    env,
    io::{self, Write as _},
    path::{Path, PathBuf},
    thread,
};

/// Returns the folder of the corpus; `None` if there is none, after reporting that the calling test was not run.
pub(crate) fn folder() -> Option<PathBuf> {
    let is_there = |folder: &PathBuf| folder.join("ORACLE.tsv").is_file();
    let found = match env::var_os("SHARDIFY_CORPUS") {
        Some(named) if named == "none" => None,
        Some(named) => {
            let named = PathBuf::from(named);
            assert!(is_there(&named), "SHARDIFY_CORPUS names {}, where no corpus is", named.display());
            Some(named)
        }
        // Tests of a crate below `crates/` and of the program have it.
        None => {
            let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().take(3);
            above.find_map(|folder| Some(folder.join("../shared/corpus")).filter(is_there))
        }
    };
    if found.is_none() {
        not_run("there is no corpus; name its folder in SHARDIFY_CORPUS");
    }
    found
}

/// Reports on standard error that the calling test was not run.
pub(crate) fn not_run(why: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    // Ignores errors: standard error may be closed.
    let _ = writeln!(io::stderr(), "NOT RUN: {test}: {why}");
}
