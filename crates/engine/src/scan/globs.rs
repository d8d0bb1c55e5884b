//! Patterns that select inputs.

use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::error::{Error, Result};

/// Returns a set of patterns; `None` if there are none.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for a malformed pattern.
pub(super) fn compile_globs(patterns: &[String]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let bad = |e: globset::Error| Error::usage("expected a glob such as `**/*.csv`").with_cause(e);
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(bad)?);
    }
    set.build().map(Some).map_err(bad)
}

/// Splits `data/2026/**/*.csv` into the folder before the first pattern and the pattern.
pub(super) fn split_glob(text: &str) -> Option<(&str, &str)> {
    // An existing path may contain these characters, and a query string has a question mark.
    let first = text.find(['*', '?', '[', '{'])?;
    if Path::new(text).exists() || (text.contains("://") && !text.contains('*')) {
        return None;
    }
    match text[..first].rfind('/') {
        Some(slash) => Some((&text[..=slash], &text[slash + 1..])),
        None => Some(("", text)),
    }
}

/// Returns whether a pattern matches the whole name, or the file name alone.
pub(super) fn matches_name(set: &GlobSet, name: &str) -> bool {
    set.is_match(name) || name.rsplit('/').next().is_some_and(|last| set.is_match(last))
}
