//! Keys of samples of files: `--key` chooses where they end, and a rule that does not suit the names is told.

use std::{cmp::Reverse, collections::HashMap};

use rayon::prelude::*;

use super::side_by_side;
use crate::{
    dataset::Snapshot,
    error::{Error, Result},
    events::{Event, Observer},
    format::files::{SampleFiles, Samples, TreeFile},
    record::{key_rule::KeyRule, spelling::compose_nfc},
    scan::SourceFile,
};

/// Number of files of one sample from which on a pattern is doubted.
const MANY_PARTS: usize = 16;

/// Returns the rule for keys: that of the dataset, if it exists.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the user chooses another one than the dataset has.
pub(super) fn choose_key_rule(snapshot: Option<&Snapshot>, choice: Option<&KeyRule>) -> Result<KeyRule> {
    let Some(snapshot) = snapshot else { return Ok(choice.cloned().unwrap_or_default()) };
    let known = &snapshot.entry().settings.keys;
    match choice.filter(|choice| *choice != known) {
        None => Ok(known.clone()),
        Some(other) => {
            Err(Error::usage(format!("this dataset was created with --key '{known}'; you gave --key '{other}'"))
                .at_location(snapshot.dataset().store().location().to_string())
                .with_hint("a dataset has one rule for keys; name another dataset with --out"))
        }
    }
}

/// Returns the error for `--key` if the sources are not files that become samples.
pub(super) fn records_refusal() -> Error {
    Error::usage("expected files for --key, found records").with_hint(
        "leave --key out: --id names the columns of record ids, and members of archives are grouped by \
         WebDataset's rule",
    )
}

/// Checks that every file has a key, and notes names by which files may become one sample, or two, that nobody wants.
///
/// # Errors
/// When the path of a file has no key.
pub(super) fn check_keys(
    observer: &dyn Observer,
    keys: &KeyRule,
    files: &[SourceFile],
    samples: &Samples,
) -> Result<()> {
    if !keys.is_first_dot() {
        files.iter().try_for_each(|file| keys.check_key(file.name()).map_err(|error| error.at_location(file.uri())))?;
    }
    let apart = if keys.is_first_dot() { side_by_side::namesake_note(files) } else { None };
    let notes = [collapsed_note(keys, files, samples), apart, lookalike_note(files)];
    notes.into_iter().flatten().for_each(|note| observer.event(Event::Note(note)));
    Ok(())
}

/// Returns a note that files become one sample although they may be samples of their own, because parts of it have one
/// ending.
pub(in crate::ops) fn collapsed_note(keys: &KeyRule, files: &[SourceFile], samples: &Samples) -> Option<String> {
    // Who names the parts by a pattern wants several of one ending, but not very many.
    let is_pattern = matches!(keys, KeyRule::Pattern(_));
    let several = |at: &usize| {
        let sample = samples.get(*at, files);
        (!is_pattern || sample.file_indexes().count() >= MANY_PARTS) && same_extension_parts(sample).is_some()
    };
    let found: Vec<usize> = (0..samples.len()).into_par_iter().filter(several).collect();
    let largest = samples
        .get(*found.iter().max_by_key(|at| (samples.get(**at, files).file_indexes().count(), Reverse(**at)))?, files);
    let parts = largest.file_indexes().count();
    let (first, second) = same_extension_parts(largest)?;
    let what = match keys {
        KeyRule::FirstDot => "the name up to its first dot".to_owned(),
        other => format!("what --key '{other}' says"),
    };
    let others =
        if found.len() > 1 { format!(", and so do those of {} other samples", found.len() - 1) } else { String::new() };
    Some(format!(
        "{parts} files, such as `{first}` and `{second}`, become one sample, `{}`{others}, because the key is {what}; \
         if they are samples of their own, choose another rule with --key, such as last-dot",
        largest.key()
    ))
}

/// Returns the paths of two parts of a sample that have the same last extension, such as `01.jpg` and `02.jpg`.
fn same_extension_parts<'a>(sample: SampleFiles<'a, SourceFile>) -> Option<(&'a str, &'a str)> {
    let is_dotted = |file: &SourceFile| file.part_suffix().bytes().skip(1).any(|byte| byte == b'.');
    if sample.file_indexes().count() < 2 || !sample.files().any(is_dotted) {
        return None;
    }
    let last = |file: &'a SourceFile| Some((file.part_suffix().rsplit_once('.')?.1, file.path()));
    let mut parts: Vec<(&str, &str)> = sample.files().filter_map(last).collect();
    parts.sort_by_key(|(last, _)| *last);
    parts.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| (pair[0].1, pair[1].1))
}

/// Returns a note about files whose names differ only in the normal form of Unicode.
pub(in crate::ops) fn lookalike_note(files: &[SourceFile]) -> Option<String> {
    if files.par_iter().all(|file| file.name().is_ascii()) {
        return None;
    }
    let mut forms: HashMap<String, &str> = HashMap::new();
    let names = files.iter().map(SourceFile::name).filter(|name| !name.is_ascii());
    let mut pairs = names.filter_map(|name| Some((forms.insert(compose_nfc(name).into_owned(), name)?, name)));
    let (one, other) = pairs.next()?;
    let more = pairs.count();
    let others = if more > 0 { format!(", and {more} other names,") } else { String::new() };
    Some(format!(
        "`{}` and `{}`{others} differ only in the normal form of Unicode (NFC, NFD): they look the same, and are \
         different records; some file systems and programs take them for one",
        one.escape_default(),
        other.escape_default()
    ))
}
