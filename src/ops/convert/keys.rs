//! Keys of samples of files: `--key` chooses where they end, and a rule that does not suit the names is told.

use crate::{
    dataset::Snapshot,
    error::{Error, Result},
    events::{Event, Observer},
    format::files::{Samples, TreeFile as _},
    record::key_rule::KeyRule,
    scan::SourceFile,
};

/// Number of files of one sample from which on the rule is doubted.
const MANY_PARTS: usize = 16;

/// Returns the rule for keys: that of the dataset, if it exists.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the user chooses another one than the dataset has.
pub(super) fn chosen(snapshot: Option<&Snapshot>, choice: Option<&KeyRule>) -> Result<KeyRule> {
    let Some(snapshot) = snapshot else { return Ok(choice.cloned().unwrap_or_default()) };
    let known = &snapshot.entry().settings.keys;
    match choice.filter(|choice| *choice != known) {
        None => Ok(known.clone()),
        Some(other) => Err(Error::usage(format!("expected --key '{known}', as this dataset has, found '{other}'"))
            .at(snapshot.dataset().store().location().to_string())
            .hint("a dataset has one rule for keys; name another dataset with --out")),
    }
}

/// Returns the error for `--key` if the sources are not files that become samples.
pub(super) fn refusal() -> Error {
    Error::usage("expected files for --key, found records")
        .hint("leave --key out: --id names the columns of record ids, and members of archives are grouped by WebDataset's rule")
}

/// Checks that every file has a key, and notes that many files become one sample, if they do.
///
/// # Errors
/// When the path of a file has no key.
pub(super) fn check(observer: &dyn Observer, keys: &KeyRule, files: &[SourceFile], samples: &Samples) -> Result<()> {
    if !keys.is_first_dot() {
        files.iter().try_for_each(|file| keys.length(file.name()).map(drop).map_err(|error| error.at(file.uri())))?;
    }
    if let Some(note) = collapsed(keys, files, samples) {
        observer.event(Event::Note(note));
    }
    Ok(())
}

/// Returns a note that many files become one sample, if they do.
pub(in crate::ops) fn collapsed(keys: &KeyRule, files: &[SourceFile], samples: &Samples) -> Option<String> {
    let largest = samples.range(0..samples.len(), files).max_by_key(|sample| sample.numbers().count())?;
    let parts = largest.numbers().count();
    if parts < MANY_PARTS {
        return None;
    }
    let first = largest.files().next().map_or("", |file| file.path());
    let what = match keys {
        KeyRule::FirstDot => "the name up to its first dot".to_owned(),
        other => format!("what --key '{other}' says"),
    };
    Some(format!(
        "{parts} files, such as `{first}`, become one sample, `{}`, because the key is {what}; if they are samples of their own, choose \
         another rule with --key, such as last-dot",
        largest.key()
    ))
}
