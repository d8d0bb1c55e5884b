//! `manifest --tag` and `--untag`: tags that name versions and keep them readable permanently.
//!
//! A tag differs from everything else that `--at` accepts, so that a text is never ambiguous.

use serde::Serialize;

use super::{Context, manifest::parse_when};
use crate::{
    dataset,
    error::{Error, Result},
    id::Version,
    storage::Location,
};

/// Maximum length of a tag in bytes.
const MAX_BYTES: usize = 128;

/// Report of a change of tags.
#[derive(Debug, Clone, Serialize)]
pub struct TagReport {
    /// The dataset.
    pub dataset: String,
    /// The newest version after the command; a new one if the command changed something.
    pub version: Version,
    /// The tag.
    pub tag: String,
    /// The version that it names, or named.
    pub tagged: Version,
    /// Whether the tag was removed.
    pub removed: bool,
    /// Whether anything was changed.
    pub changed: bool,
    /// Whether the tagged version is readable after the command.
    pub readable: bool,
}

/// Tags the version that was current at some time.
///
/// # Errors
/// When the name is not valid, another version has it, or there is no such version.
pub fn tag_version(context: &Context<'_>, location: &Location, name: &str, at: Option<&str>) -> Result<TagReport> {
    check_tag_name(name)?;
    let snapshot = super::manifest::open_snapshot(context, location, at)?;
    let (dataset, tagged) = (snapshot.dataset(), snapshot.version());
    super::erase::finish_cut_short(context, Some(&dataset.open_newest()?))?;
    let changed = snapshot.tags().get(name) != Some(&tagged);
    let newest = dataset::add_tag(dataset, name, tagged)?;
    Ok(TagReport {
        dataset: location.to_string(),
        version: newest.version(),
        tag: name.to_owned(),
        tagged,
        removed: false,
        changed,
        readable: newest.can_read(tagged),
    })
}

/// Removes a tag.
///
/// # Errors
/// When no version has the tag.
pub fn remove_tag(context: &Context<'_>, location: &Location, name: &str) -> Result<TagReport> {
    let dataset = context.open_dataset(location)?;
    super::erase::finish_cut_short(context, dataset.newest_snapshot()?.as_ref())?;
    let (newest, tagged) = dataset::remove_tag(&dataset, name)?;
    Ok(TagReport {
        dataset: location.to_string(),
        version: newest.version(),
        tag: name.to_owned(),
        tagged,
        removed: true,
        changed: true,
        readable: newest.can_read(tagged),
    })
}

/// Returns an error unless the text is a valid tag that cannot be mistaken for another way to name a version.
fn check_tag_name(name: &str) -> Result<()> {
    let bad = |found: &str| {
        Error::usage(format!("expected a name for --tag, found {found}")).with_hint(
            "names consist of letters, digits and . _ - + /, begin with a letter, and are not versions such as v42",
        )
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '/');
    if name.is_empty() {
        return Err(bad("nothing"));
    }
    if name.len() > MAX_BYTES {
        return Err(bad(&format!("{} bytes, more than {MAX_BYTES}", name.len())));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(allowed) {
        return Err(bad(&format!("`{name}`")));
    }
    let number = name.strip_prefix(['v', 'V']).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if number || parse_when(Some(name)).is_ok() {
        return Err(bad(&format!("`{name}`, which means a version or a point in time")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_mean_anything_else_are_refused() {
        for good in ["train-2026-11", "validation", "release/1.0", "v2-final", "a"] {
            assert!(check_tag_name(good).is_ok(), "{good}");
        }
        let long = "x".repeat(MAX_BYTES + 1);
        for bad in ["", "v42", "V7", "v99999999999999999999999", "7d", "2026-11-21", "-x", "a b", "é", &long, "a\nb"] {
            assert!(check_tag_name(bad).is_err(), "{bad}");
        }
    }
}
