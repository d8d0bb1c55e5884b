//! Subject ids of samples and sources from a path pattern or a table, checked before anything is written.
//!
//! A lookup or an erasure by subject must not miss a record, so a missing or ambiguous subject id is an error.

use std::collections::{HashMap, HashSet};

use arrow::{
    array::{Array as _, RecordBatch},
    datatypes::Fields,
};

use super::{
    inputs::Inputs,
    job::ConvertJob,
    options::{Accept, SubjectSource},
    side_table::{self, SideTable},
};
use crate::{
    dataset::{IdKind, Settings},
    error::{Error, Result},
    events::Event,
    exec::gates::subjects::{SubjectResolver, is_erased},
    format::files::{Samples, TreeFile as _},
    ops::Context,
    record::{
        id_column,
        subject::{SubjectTable, Subjects, SubjectsFrom},
    },
    scan::{RecordSource, SourceFile},
    units::Size,
};

/// Columns of a table that may name files, in order of preference.
const PATHS: [&str; 7] = ["path", "file", "file_name", "filename", "key", "__key__", "sample"];
/// Columns of a table that may name subjects, in order of preference.
const SUBJECTS: [&str; 7] =
    ["subject", "subject_id", "patient", "patient_id", "person_id", "participant_id", "participant"];
/// Divisor of the memory limit: a table may use an eighth of it.
const SHARE: u64 = 8;
/// Memory of a row besides its texts, in bytes.
const ROW_BYTES: u64 = 96;

/// Counts of what is skipped or noted because of erased ids.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SkippedErased {
    /// Sources skipped because they, or their subject, were erased.
    pub(super) erased: u64,
    /// Samples that were kept although their keys are other spellings of erased ones.
    pub(super) similar: u64,
}

/// Returns the resolver of subject ids; `None` if a column has them, or if there are none.
///
/// # Errors
/// When a table cannot be read, or the dataset's subjects come from one and none is given.
pub(super) fn subject_resolver(job: &ConvertJob<'_>, settings: &Settings) -> Result<Option<SubjectResolver>> {
    let required = !job.options.accept.contains(&Accept::Subjects);
    let subjects = match (&job.options.subjects, &settings.subjects_from) {
        (Some(SubjectSource::Path(pattern)), _) | (None, Some(SubjectsFrom::Path(pattern))) => {
            Subjects::Path(pattern.clone())
        }
        (Some(SubjectSource::Table { place, column }), _) => {
            Subjects::Table(read_table(job.context, place, column.as_ref())?)
        }
        (None, Some(SubjectsFrom::Table)) => {
            job.require_accepted(Accept::Subjects, "subjects", || {
                "expected --subject-table, because subjects of this dataset come from a table, found none".to_owned()
            })?;
            return Ok(None);
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(SubjectResolver { subjects, required }))
}

/// Skips all files of samples that were erased, or whose subjects were.
pub(super) fn without_erased_files(
    job: &ConvertJob<'_>,
    resolver: Option<&SubjectResolver>,
    mut files: Vec<SourceFile>,
) -> (Vec<SourceFile>, SkippedErased) {
    let Some(list) = &job.suppress else { return (files, SkippedErased::default()) };
    let normalize = job.options.id_normalize;
    let (mut erased, mut similar) = (HashSet::new(), HashSet::new());
    for file in files.iter() {
        let key = file.key();
        let mut found = is_erased(list, IdKind::Record, key, normalize);
        if let Some(resolver) = resolver {
            let matched = resolver.of_file(file, |matched| {
                matched.map(|matched| is_erased(list, IdKind::Subject, matched.subject, normalize)).unwrap_or_default()
            });
            found = (found.0 || matched.0, found.1 || matched.1);
        }
        match found {
            (true, _) => drop(erased.insert(key.to_owned())),
            (false, true) => drop(similar.insert(key.to_owned())),
            (false, false) => {}
        }
    }
    let before = files.len();
    files.retain(|file| !erased.contains(file.key()));
    let similar = similar.difference(&erased).count() as u64;
    let erased = (before - files.len()) as u64;
    (files, SkippedErased { erased, similar })
}

/// Skips sources whose subjects were erased; also returns their number.
pub(super) fn without_erased_sources(
    job: &ConvertJob<'_>,
    resolver: Option<&SubjectResolver>,
    mut sources: Vec<RecordSource>,
) -> (Vec<RecordSource>, u64) {
    let (Some(resolver), Some(list)) = (resolver, &job.suppress) else { return (sources, 0) };
    let normalize = job.options.id_normalize;
    let before = sources.len();
    sources.retain(|source| {
        !resolver.of_file(&source.file, |matched| {
            matched.is_some_and(|matched| is_erased(list, IdKind::Subject, matched.subject, normalize).0)
        })
    });
    let erased = (before - sources.len()) as u64;
    (sources, erased)
}

/// Checks that each sample and source has exactly one subject id.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) for the first that has none or several.
pub(super) fn check_subjects(job: &ConvertJob<'_>, resolver: &SubjectResolver, inputs: &Inputs) -> Result<()> {
    match inputs {
        Inputs::Samples { files, samples } => check_samples(job, resolver, files, samples),
        Inputs::Records(sources) => {
            let mut rows = PartialKeys::default();
            for source in sources {
                let file = &source.file;
                let known = resolver.of_file(file, |matched| match matched {
                    Some(matched) => rows.note_row(matched.partial_key, file.name(), file).map(|()| true),
                    None => Ok(false),
                })?;
                // For an archive, the names of its samples may give the subject id.
                if !known && resolver.required && !source.yields_samples() {
                    return Err(resolver.missing_error("the records of this source").at_location(file.uri()));
                }
            }
            Ok(())
        }
    }
}

fn check_samples(
    job: &ConvertJob<'_>,
    resolver: &SubjectResolver,
    files: &[SourceFile],
    samples: &Samples,
) -> Result<()> {
    let mut rows = PartialKeys::default();
    let (mut without, mut example) = (0_u64, None);
    for sample in samples.iter_range(0..samples.len(), files) {
        let mut known: Option<(String, &SourceFile)> = None;
        for file in sample.files() {
            resolver.of_file(file, |matched| {
                let Some(matched) = matched else { return Ok(()) };
                rows.note_row(matched.partial_key, sample.key(), file)?;
                match &known {
                    Some((subject, other)) if subject != matched.subject => Err(Error::input(format!(
                        "expected one subject of the sample `{}`, found `{subject}` of {} and `{}`",
                        sample.key(),
                        other.name(),
                        matched.subject
                    ))
                    .at_location(file.uri())),
                    Some(_) => Ok(()),
                    None => {
                        known = Some((matched.subject.to_owned(), file));
                        Ok(())
                    }
                }
            })?;
        }
        match known {
            Some((subject, file)) => drop(example.get_or_insert((subject, file))),
            None if resolver.required => {
                let place = sample.files().next().map_or_else(String::new, SourceFile::uri);
                return Err(resolver.missing_error(&format!("the sample `{}`", sample.key())).at_location(place));
            }
            None => without += 1,
        }
    }
    if let Some((subject, file)) = example {
        let whom =
            if job.pseudonymizer.is_some() { String::new() } else { format!(", `{subject}` of {}", file.name()) };
        let few = if without > 0 { format!("; {without} have none") } else { String::new() };
        let found = samples.len() as u64 - without;
        job.context.observer.event(Event::Note(format!("found subject ids for {found} samples{whom}{few}")));
    }
    Ok(())
}

/// Rows of a table that match only the end of a path, with the sample or source that each matched.
#[derive(Default)]
struct PartialKeys {
    seen: HashMap<String, String>,
}

impl PartialKeys {
    fn note_row(&mut self, row: Option<&str>, key: &str, file: &SourceFile) -> Result<()> {
        let Some(row) = row else { return Ok(()) };
        match self.seen.get(row) {
            Some(other) if other != key => Err(Error::input(format!(
                "expected rows of --subject-table that match one path, found `{row}`, which matches `{other}` and \
                 `{key}`"
            ))
            .at_location(file.uri())
            .with_hint("write more of the path into the table")),
            Some(_) => Ok(()),
            None => {
                self.seen.insert(row.to_owned(), key.to_owned());
                Ok(())
            }
        }
    }
}

/// Name of the option that names the table.
pub(super) const TABLE: &str = "--subject-table";

fn read_table(context: &Context<'_>, place: &str, column: Option<&String>) -> Result<SubjectTable> {
    let split = SideTable::open(side_table::locate_table(context, place, TABLE)?, TABLE)?;
    let uri = split.uri();
    let at = |e: Error| if e.place().source.is_none() { e.at_location(uri.clone()) } else { e };
    let (path, subject) = columns_of(&split.fields, column).map_err(at)?;
    let mut table = SubjectTable::default();
    let (mut room, names) = (context.memory.0 / SHARE, [path, subject]);
    split.each_batch(|_| true, &mut |batch| add_rows(&mut table, &mut room, batch, &names))?;
    if table.is_empty() {
        return Err(Error::input("expected rows in --subject-table, found none").at_location(uri));
    }
    Ok(table)
}

/// Adds rows to a table, within `room` bytes.
fn add_rows(table: &mut SubjectTable, room: &mut u64, batch: &RecordBatch, names: &[String; 2]) -> Result<()> {
    let [path, subject] = names;
    let (paths, subjects) =
        (id_column(batch, std::slice::from_ref(path))?, id_column(batch, std::slice::from_ref(subject))?);
    for row in (0..batch.num_rows()).filter(|row| paths.is_valid(*row) && subjects.is_valid(*row)) {
        let (path, subject) = (paths.value(row), subjects.value(row));
        if path.is_empty() || subject.is_empty() {
            continue;
        }
        *room = room.checked_sub(ROW_BYTES + (path.len() + subject.len()) as u64).ok_or_else(|| {
            Error::input(format!(
                "expected a --subject-table that fits an eighth of the memory, found more than {} rows",
                table.len()
            ))
            .with_hint(format!("raise --memory, or take fewer sources at a time; {} a row", Size(ROW_BYTES)))
        })?;
        table.insert(path, subject)?;
    }
    Ok(())
}

/// Returns the columns of a table that name files and subjects.
fn columns_of(fields: &Fields, column: Option<&String>) -> Result<(String, String)> {
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    let all = names.join(", ");
    let best = |known: &[&str], not: Option<&str>| {
        let fits =
            |wanted: &&str| names.iter().find(|name| name.eq_ignore_ascii_case(wanted) && Some(**name) != not).copied();
        known.iter().find_map(fits)
    };
    let subject = match column {
        Some(column) => names.iter().find(|name| *name == column).copied().ok_or_else(|| {
            Error::usage("the table of --subject-table has no such column")
                .in_column(column.clone())
                .with_hint(format!("its columns are {all}"))
        })?,
        None => best(&SUBJECTS, None)
            .or_else(|| if names.len() == 2 { names.last().copied() } else { None })
            .ok_or_else(|| {
                Error::usage(format!("expected a column `subject` in --subject-table, found {all}"))
                    .with_hint("name the column with --subject")
            })?,
    };
    let path = best(&PATHS, Some(subject)).or_else(|| names.iter().find(|name| **name != subject).copied());
    let path = path.ok_or_else(|| Error::usage(format!("expected a column `path` in --subject-table, found {all}")))?;
    Ok((path.to_owned(), subject.to_owned()))
}
