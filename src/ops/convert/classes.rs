//! Classes of samples: `--label-from-folder` gives each sample the number of the folder directly above its files, as
//! its part `cls`.
//!
//! ```text
//! photos/cat/1.jpg   -> photos/cat/1.cls   0
//! photos/dog/1.jpg   -> photos/dog/1.cls   1
//! ```
//!
//! A dataset keeps the names of its classes in the order of their numbers, so that a class keeps its number in later
//! runs, and new ones get the next numbers.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::job::ConvertJob;
use crate::{
    dataset::Settings,
    error::{Error, Result},
    events::Event,
    exec::gates::subjects::SubjectResolver,
    format::files::{GivenPart, PartContents, SampleFiles, Samples, TreeFile as _},
    scan::SourceFile,
};

/// Extension of the part, which webdataset decodes to a whole number.
pub(super) const EXTENSION: &str = "cls";
/// Name of the option.
pub(super) const OPTION: &str = "--label-from-folder";
/// Maximum number of classes: each entry of the log states their names.
const MAX_CLASSES: usize = 100_000;
/// Maximum number of new classes that a note names.
const SHOWN: usize = 8;

/// Adds the classes of new samples to the settings of a dataset, and returns the numbers of the samples' classes as
/// parts of theirs; `None` if samples have no classes.
///
/// # Errors
/// When a file is in no folder, a sample has a part of this extension already, there are too many classes, or their
/// names must not be stored.
pub(super) fn of_samples(
    job: &ConvertJob<'_>,
    settings: &mut Settings,
    files: &[SourceFile],
    samples: &Samples,
    subjects: Option<&SubjectResolver>,
) -> Result<Option<GivenPart>> {
    let Some(known) = &settings.classes else { return Ok(None) };
    if settings.label_column.is_some() {
        return Ok(None);
    }
    if settings.private.as_ref().is_some_and(|private| private.redacted_sources) {
        return Err(Error::usage(format!("expected no {OPTION} beside --redact-source-paths, found both")).with_hint(
            "the log states the names of classes, which are names of folders: label samples with --labels",
        ));
    }
    let known: HashSet<&str> = known.iter().map(String::as_str).collect();
    let mut new: BTreeSet<&str> = BTreeSet::new();
    for sample in samples.iter_range(0..samples.len(), files) {
        let folder = checked_folder(sample, subjects)?;
        if !known.contains(folder) {
            new.insert(folder);
        }
    }
    add_classes(job, settings, &new, OPTION)?;
    of_known(settings, files, samples)
}

/// Gives classes that a dataset does not have the next numbers, in their order.
///
/// # Errors
/// When there are too many.
pub(super) fn add_classes(
    job: &ConvertJob<'_>,
    settings: &mut Settings,
    found: &BTreeSet<&str>,
    option: &str,
) -> Result<()> {
    let known: Vec<String> = settings.classes.take().unwrap_or_default();
    let has: HashSet<&str> = known.iter().map(String::as_str).collect();
    let new: BTreeSet<&str> = found.iter().copied().filter(|name| !has.contains(name)).collect();
    if known.len() + new.len() > MAX_CLASSES {
        return Err(Error::input(format!(
            "expected at most {MAX_CLASSES} classes for {option}, found {}",
            known.len() + new.len()
        ))
        .with_hint("the log states the names of classes; label other samples with --labels alone"));
    }
    tell_numbers(job, known.len(), &new);
    settings.classes = Some(known.iter().cloned().chain(new.into_iter().map(str::to_owned)).collect());
    Ok(())
}

/// Returns the numbers of samples' classes as parts of theirs, given settings that have all of these classes; `None` if
/// samples have no classes.
///
/// # Errors
/// When a sample has another class.
pub(super) fn of_known(settings: &Settings, files: &[SourceFile], samples: &Samples) -> Result<Option<GivenPart>> {
    let Some(classes) = settings.classes.as_ref().filter(|_| settings.label_column.is_none()) else { return Ok(None) };
    let numbers: HashMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let number = |sample: SampleFiles<'_, SourceFile>| -> Result<Option<u32>> {
        let folder = folder_of(sample.key()).and_then(|folder| numbers.get(folder));
        folder.map(|number| Some(*number)).ok_or_else(|| Error::internal("a sample is of no class of the plan"))
    };
    let numbers = samples.iter_range(0..samples.len(), files).map(number).collect::<Result<Vec<_>>>()?;
    let (mut texts, mut ends) = (Vec::new(), Vec::with_capacity(classes.len()));
    for number in 0..classes.len() {
        texts.extend_from_slice(number.to_string().as_bytes());
        ends.push(texts.len());
    }
    Ok(Some(GivenPart::new(EXTENSION, PartContents::new(texts, ends), numbers.into_iter())))
}

/// Returns the last folder of a sample's key.
fn folder_of(key: &str) -> Option<&str> {
    key.rsplit('/').nth(1)
}

/// Returns the class of a sample that can have one.
fn checked_folder<'a>(sample: SampleFiles<'a, SourceFile>, subjects: Option<&SubjectResolver>) -> Result<&'a str> {
    let uri = || sample.files().next().map_or_else(String::new, SourceFile::uri);
    let folder = folder_of(sample.key()).ok_or_else(|| {
        Error::input(format!(
            "expected files in folders of classes for {OPTION}, found the sample `{}` in no folder",
            sample.key()
        ))
        .at_location(uri())
        .with_hint("name the folder above the folders of classes as the source, and skip other files with --exclude")
    })?;
    if let Some(file) = sample.files().find(|file| file.extension() == EXTENSION) {
        return Err(Error::input(format!(
            "expected samples without a part `{EXTENSION}`, because {OPTION} adds this part, found a file"
        ))
        .at_location(file.uri())
        .with_hint(format!("leave such files out with --exclude '*.{EXTENSION}', or leave {OPTION} out")));
    }
    if subjects.and_then(|subjects| subjects.of_sample(sample)).is_some_and(|subject| subject == folder) {
        return Err(Error::input(format!("expected folders of classes for {OPTION}, found a folder of a subject"))
            .at_location(uri())
            .with_hint("the log would state the subject id as the name of a class, which no erasure removes"));
    }
    Ok(folder)
}

/// Notes which numbers new classes get.
fn tell_numbers(job: &ConvertJob<'_>, known: usize, new: &BTreeSet<&str>) {
    if new.is_empty() {
        return;
    }
    let shown: Vec<String> = new.iter().zip(known..).take(SHOWN).map(|(name, at)| format!("{name} = {at}")).collect();
    let more = if new.len() > SHOWN { format!(" and {} more", new.len() - SHOWN) } else { String::new() };
    let what = if known == 0 { "classes" } else { "new classes" };
    job.context.observer.event(Event::Note(format!("{what}: {}{more}", shown.join(", "))));
}
