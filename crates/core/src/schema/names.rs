//! Names of columns: what they suggest, and in errors those that there are, and the one that was probably meant.

use crate::error::Error;

/// Returns the name that is spelt most like the wanted one, if one is spelt like it.
pub fn nearest_name<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |name: &str| strsim::jaro_winkler(&wanted.to_lowercase(), &name.to_lowercase());
    let nearest = names.max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    nearest.filter(|name| similarity(name) >= SIMILAR)
}

/// Columns that an error lists, at most.
const SOME_COLUMNS: usize = 30;

/// Similarity (Jaro-Winkler) from which a name counts as a misspelt one.
const SIMILAR: f64 = 0.8;

/// Adds hints to the error for a column that does not exist: the one that was probably meant, and those that there are.
pub fn hint_columns(error: Error, wanted: &str, columns: &[impl AsRef<str>]) -> Error {
    let columns: Vec<&str> = columns.iter().map(AsRef::as_ref).collect();
    let error = match nearest_name(wanted, columns.iter().copied()) {
        Some(nearest) => error.with_hint(format!("there is a column `{nearest}`")),
        None => error,
    };
    let shown = columns.iter().take(SOME_COLUMNS).copied().collect::<Vec<_>>().join(", ");
    match columns.len() {
        0 => error,
        n if n > SOME_COLUMNS => error.with_hint(format!("the columns are {shown} and {} more", n - SOME_COLUMNS)),
        _ => error.with_hint(format!("the columns are {shown}")),
    }
}

/// Returns whether a column's name suggests a subject id.
pub fn is_subject(name: &str) -> bool {
    let whom = ["patient", "subject", "person", "participant", "user", "customer", "member"];
    names_any(name, &whom) || name.eq_ignore_ascii_case("mrn")
}

/// Returns whether a column's name is one of some words, or its id, however it is written.
pub fn names_any(name: &str, words: &[&str]) -> bool {
    let plain: String = name.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    words.iter().any(|word| plain == *word || plain.strip_suffix("id") == Some(*word))
}

/// Returns whether a column's name suggests a record id.
pub fn is_id(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let whole = ["id", "uuid", "guid", "key", "__key__", "uid", "accession"];
    whole.contains(&lower.as_str())
        || ["_id", "_uuid", "_key", "-id"].iter().any(|end| lower.ends_with(end))
        || name.ends_with("Id")
}
