//! Names of columns in errors: those that there are, and the one that was probably meant.

use crate::error::Error;

/// Columns that an error lists, at most.
const SOME_COLUMNS: usize = 30;

/// Similarity (Jaro-Winkler) from which a name counts as a misspelt one.
const SIMILAR: f64 = 0.8;

/// Adds hints to the error for a column that does not exist: the one that was probably meant, and those that there are.
pub fn hint_columns(error: Error, wanted: &str, columns: &[impl AsRef<str>]) -> Error {
    let columns: Vec<&str> = columns.iter().map(AsRef::as_ref).collect();
    let similarity = |name: &str| strsim::jaro_winkler(&wanted.to_lowercase(), &name.to_lowercase());
    let nearest = columns.iter().copied().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let error = match nearest.filter(|name| similarity(name) >= SIMILAR) {
        Some(nearest) => error.hint(format!("there is a column `{nearest}`")),
        None => error,
    };
    let shown = columns.iter().take(SOME_COLUMNS).copied().collect::<Vec<_>>().join(", ");
    match columns.len() {
        0 => error,
        n if n > SOME_COLUMNS => error.hint(format!("the columns are {shown} and {} more", n - SOME_COLUMNS)),
        _ => error.hint(format!("the columns are {shown}")),
    }
}
