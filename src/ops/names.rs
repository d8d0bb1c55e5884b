//! Names and parts of samples made of files: all are checked before anything is written.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use rayon::prelude::*;

use crate::{
    dataset::Settings,
    error::Result,
    events::{Event, Observer},
    exec::gates::names::{NameGate, PartsGate, incomplete_error, missing_parts, refused_names_error, reject_reason},
    format::{
        OutputFormat,
        files::{SampleFiles, Samples, TreeFile},
        index::IndexKind,
    },
    indexes::names::{MemberName, Renaming, Rule},
    plan::names::{NameRules, OnMissing, OnName},
    record::key_rule::part_of,
    scan::SourceFile,
};

/// The user's choices for names and parts.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Choices {
    /// What to do with names that a reader cannot handle; `None` stops the run only for names that an index cannot
    /// store.
    pub on_name: Option<OnName>,
    /// What to do with samples that lack a part which others have.
    pub missing: OnMissing,
    /// Whether the indexes were requested explicitly or are those of the dataset; other indexes are omitted if they
    /// cannot store the names.
    pub asked: bool,
}

/// Result of checking the samples.
#[derive(Debug, Default)]
pub struct Checked {
    /// Samples to be rejected, by number, with the reason.
    pub rejected: BTreeMap<usize, String>,
    /// Number of samples whose names are changed.
    pub renamed: u64,
    /// Number of samples that lack a part which others have, and are kept.
    pub incomplete: u64,
}

/// How a run handles names.
#[derive(Debug, Default)]
pub struct Naming {
    /// Result for samples made of files.
    pub checked: Checked,
    /// Validates record names while reading; `None` if every name is acceptable.
    pub gate: Option<NameGate>,
    /// Validates the parts of samples while reading; `None` if nothing has to be validated.
    pub parts: Option<PartsGate>,
    /// How the encoder changes names.
    pub renaming: Renaming,
}

impl Naming {
    /// Checks the names of samples made of files, or returns how to check those of records, which are made from ids.
    /// Indexes that were not requested and cannot store the names of files are removed from the settings.
    ///
    /// # Errors
    /// As [`check_names`].
    pub fn plan(
        files: Option<(&Samples, &[SourceFile])>,
        settings: &mut Settings,
        choices: Choices,
        observer: &dyn Observer,
    ) -> Result<Self> {
        let format = settings.shard_format;
        let Some((samples, files)) = files else {
            return Ok(Self::of_records(settings, choices));
        };
        if !choices.asked && choices.on_name.is_none() {
            let (fit, notes) = fitting_kinds(&settings.indexes, format, samples, files);
            settings.indexes = fit;
            notes.into_iter().for_each(|note| observer.event(Event::Note(note)));
        }
        let checked = check_names(samples, files, format, &settings.indexes, choices)?;
        let rules = NameRules::new(format, &settings.indexes, false);
        let rename = choices.on_name == Some(OnName::Rename);
        let renaming = if rename { rules.required_renaming() } else { Renaming::default() };
        Ok(Self { checked, renaming, ..Self::default() })
    }

    /// Returns how a part of a run handles names, given what was decided for the whole run: the samples to reject, and
    /// the parts that all samples should have.
    pub fn of_part(
        settings: &Settings,
        choices: Choices,
        rejected: Option<BTreeMap<usize, String>>,
        parts: Option<PartsGate>,
    ) -> Self {
        let Some(rejected) = rejected else { return Self { parts, ..Self::of_records(settings, choices) } };
        let rules = NameRules::new(settings.shard_format, &settings.indexes, false);
        let rename = choices.on_name == Some(OnName::Rename);
        let renaming = if rename { rules.required_renaming() } else { Renaming::default() };
        Self { checked: Checked { rejected, ..Checked::default() }, renaming, parts, gate: None }
    }

    /// Returns how names of records are handled. They are not the user's file names, so they are changed if an index
    /// could not store them, unless that index was requested.
    fn of_records(settings: &Settings, choices: Choices) -> Self {
        let rules = NameRules::new(settings.shard_format, &settings.indexes, false);
        match choices.on_name.unwrap_or(if choices.asked { OnName::Fail } else { OnName::Rename }) {
            OnName::Rename => Self { renaming: rules.required_renaming(), ..Self::default() },
            _ if !settings.shard_format.has_keys() => Self::default(),
            on_name => {
                let gate = NameGate { rules, skip: on_name == OnName::Skip };
                Self { gate: Some(gate), ..Self::default() }
            }
        }
    }
}

/// Returns the default kinds that can store the names of all samples, and notes about the kinds that cannot.
pub fn fitting_kinds<F: TreeFile + Sync>(
    kinds: &[IndexKind],
    format: OutputFormat,
    samples: &Samples,
    files: &[F],
) -> (Vec<IndexKind>, Vec<String>) {
    let mut notes = Vec::new();
    let fit = kinds.iter().copied().filter(|kind| {
        let rules = NameRules::new(format, &[*kind], false);
        let broken: Vec<_> = (0..samples.len())
            .into_par_iter()
            .filter_map(|i| first_violation(samples.get(i, files), &rules).filter(|(_, rule)| rule.index.is_some()))
            .collect();
        let (count, Some((name, rule))) = (broken.len(), broken.first()) else { return true };
        notes.push(format!(
            "the index {kind} is omitted: it cannot store {count} names, first `{name}` ({}); --on-name rename \
             escapes them",
            rule.fault
        ));
        false
    });
    (fit.collect(), notes)
}

/// Checks all names and parts.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) with the number of names and examples, or the first incomplete sample.
pub fn check_names<F: TreeFile + Sync>(
    samples: &Samples,
    files: &[F],
    format: OutputFormat,
    kinds: &[IndexKind],
    choices: Choices,
) -> Result<Checked> {
    let mut checked = Checked::default();
    let strict = matches!(choices.on_name, Some(OnName::Fail | OnName::Skip));
    let rules = NameRules::new(format, kinds, strict);
    let found: Vec<(usize, Cow<'_, str>, &Rule)> = (0..samples.len())
        .into_par_iter()
        .filter_map(|i| first_violation(samples.get(i, files), &rules).map(|(name, rule)| (i, name, rule)))
        .collect();
    match choices.on_name.unwrap_or(OnName::Fail) {
        OnName::Fail if !found.is_empty() => {
            return Err(refused_names_error(found.len(), found.iter().map(|(_, name, rule)| (name.as_ref(), *rule))));
        }
        OnName::Fail => {}
        OnName::Rename => checked.renamed = found.len() as u64,
        OnName::Skip => checked.rejected.extend(found.iter().map(|(i, name, rule)| (*i, reject_reason(name, rule)))),
    }
    find_missing_parts(samples, files, choices.missing, &mut checked)?;
    Ok(checked)
}

/// Returns the first part of a sample whose name breaks a rule.
fn first_violation<'a, F: TreeFile>(
    sample: SampleFiles<'a, F>,
    rules: &NameRules,
) -> Option<(Cow<'a, str>, &'static Rule)> {
    let file = sample.files().find_map(|file| {
        let (key, extension) = (file.key(), part_of(file.part_suffix()));
        rules.broken_rule(MemberName { key, extension }).map(|rule| (Cow::Borrowed(file.path()), rule))
    });
    file.or_else(|| {
        let key = sample.key();
        sample.given_contents().find_map(|(extension, _)| {
            let rule = rules.broken_rule(MemberName { key, extension })?;
            Some((Cow::Owned(format!("{key}.{extension}")), rule))
        })
    })
}

/// Finds samples that lack a part which another sample has.
fn find_missing_parts<F: TreeFile + Sync>(
    samples: &Samples,
    files: &[F],
    on: OnMissing,
    checked: &mut Checked,
) -> Result<()> {
    let all = samples.column_names(files);
    for (i, sample) in samples.iter_range(0..samples.len(), files).enumerate() {
        if sample.files().count() + sample.given_contents().count() >= all.len() || checked.rejected.contains_key(&i) {
            continue;
        }
        let given = sample.given_contents().map(|(extension, _)| extension.to_owned());
        let own: BTreeSet<String> = sample.files().map(TreeFile::extension).chain(given).collect();
        let lacking: Vec<&str> = all.iter().filter(|e| !own.contains(*e)).map(String::as_str).collect();
        let problem = || format!("{}: {}", sample.key(), missing_parts(&all, &lacking));
        match on {
            OnMissing::Keep => checked.incomplete += 1,
            OnMissing::Skip => {
                checked.rejected.insert(i, problem());
            }
            OnMissing::Fail => return Err(incomplete_error(problem())),
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::format::files;

    struct File(&'static str);

    impl TreeFile for File {
        fn path(&self) -> &str {
            self.0
        }

        fn byte_count(&self) -> u64 {
            1
        }
    }

    fn tree(paths: &[&'static str]) -> (Vec<File>, Samples) {
        let mut paths = paths.to_vec();
        paths.sort_unstable();
        let files: Vec<File> = paths.into_iter().map(File).collect();
        let samples = files::group_samples(&files);
        (files, samples)
    }

    fn checked(
        paths: &[&'static str],
        kinds: &[IndexKind],
        on_name: Option<OnName>,
        missing: OnMissing,
    ) -> Result<Checked> {
        let (files, samples) = tree(paths);
        check_names(&samples, &files, OutputFormat::Tar, kinds, Choices { on_name, missing, asked: true })
    }

    #[test]
    fn names_are_refused_renamed_or_skipped() {
        let paths = ["a b.jpg", "a b.txt", "c.jpg", "d e.jpg", "README"];
        let dali = [IndexKind::Dali];
        let error = checked(&paths, &dali, None, OnMissing::Keep).unwrap_err();
        assert!(
            error.message().contains("found 2 that some reader cannot accept: `a b.jpg` (dali: blanks), `d e.jpg`"),
            "{error}"
        );
        assert!(error.hints()[0].contains("--on-name rename"));
        assert_eq!(checked(&paths, &dali, Some(OnName::Rename), OnMissing::Keep).unwrap().renamed, 2);
        let left = checked(&paths, &dali, Some(OnName::Skip), OnMissing::Keep).unwrap().rejected;
        assert_eq!(left.keys().copied().collect::<Vec<_>>(), [0, 1, 3], "README has no extension");
        assert_eq!(checked(&paths, &[], None, OnMissing::Keep).unwrap().renamed, 0);
    }

    #[test]
    fn default_indexes_are_dropped_for_names_that_they_cannot_store() {
        let (files, samples) = tree(&["a b.jpg", "c.jpg"]);
        let (fit, notes) = fitting_kinds(&[IndexKind::Dali, IndexKind::Wids], OutputFormat::Tar, &samples, &files);
        assert_eq!((fit, notes.len()), (vec![IndexKind::Wids], 1));
        assert!(notes[0].contains("it cannot store 1 names, first `a b.jpg`"), "{notes:?}");
    }

    #[test]
    fn incomplete_samples_are_counted_named_or_skipped() {
        let paths = ["a.jpg", "a.txt", "b.jpg", "c.txt", "d.jpg", "d.txt"];
        assert_eq!(checked(&paths, &[], None, OnMissing::Keep).unwrap().incomplete, 2);
        let left = checked(&paths, &[], None, OnMissing::Skip).unwrap().rejected;
        assert_eq!(
            left.values().collect::<Vec<_>>(),
            ["b: expected the parts jpg, txt, found no txt", "c: expected the parts jpg, txt, found no jpg"]
        );
        let error = checked(&paths, &[], None, OnMissing::Fail).unwrap_err();
        assert_eq!(error.to_string(), "b: expected the parts jpg, txt, found no txt");
        assert_eq!(checked(&["a.jpg", "b.jpg"], &[], None, OnMissing::Fail).unwrap().incomplete, 0);
    }
}
