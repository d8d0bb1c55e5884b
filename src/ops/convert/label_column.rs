//! `--label-column`: a column of the labels becomes the part `cls` of the samples, which loaders decode to a whole
//! number.
//!
//! ```text
//! labels.csv   file_name,label,note      cat.jpg   FF D8 ..
//!              cat.jpg,7,sharp     ->    cat.json  {"label":7,"note":"sharp"}
//!                                        cat.cls   7
//! ```
//!
//! Whole numbers are taken as they are. Texts are names of classes, which get numbers as those of folders do: the
//! dataset keeps them (see [`classes`](super::classes)).

use std::{
    collections::{BTreeSet, HashMap},
    io::Write as _,
};

use serde_json::Value;

use super::{classes, job::ConvertJob};
use crate::{
    dataset::Settings,
    error::{Error, Result},
    format::files::{GivenPart, PartContents, Samples},
    schema::hint_columns,
};

/// Name of the option.
pub(super) const OPTION: &str = "--label-column";

/// A class as a row states it.
enum Class {
    Number(String),
    Name(String),
}

/// Adds the classes that labels name to the settings of a dataset, and returns the classes of the samples as parts of
/// theirs; `None` without a column of classes.
///
/// # Errors
/// When a value is neither a whole number nor a text, or the names must not be stored.
pub(super) fn of_samples(
    job: &ConvertJob<'_>,
    settings: &mut Settings,
    samples: &Samples,
    label: Option<&GivenPart>,
) -> Result<Option<GivenPart>> {
    let Some(column) = settings.label_column.clone() else { return Ok(None) };
    let Some(label) = label else {
        return match job.options.label_column {
            None => Ok(None),
            Some(_) => Err(Error::usage(format!("{OPTION} needs a table of labels, and there is none"))
                .with_hint("name it with --labels FILE")),
        };
    };
    let columns: Vec<&String> = settings.label_types.iter().flatten().map(|field| field.name()).collect();
    if !columns.contains(&&column) {
        let error = Error::usage(format!("the labels have no such column for {OPTION}")).in_column(column.as_str());
        return Err(hint_columns(error, &column, &columns));
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for sample in 0..samples.len() {
        if let Some(Class::Name(name)) = class_of(label, sample, &column)? {
            names.insert(name);
        }
    }
    if !names.is_empty() {
        classes::add_classes(job, settings, &names.iter().map(String::as_str).collect(), OPTION)?;
    }
    of_known(settings, samples, Some(label))
}

/// Returns the classes of samples as parts of theirs, given settings that have all of these classes; `None` without a
/// column of classes.
///
/// # Errors
/// When a sample has another class.
pub(super) fn of_known(settings: &Settings, samples: &Samples, label: Option<&GivenPart>) -> Result<Option<GivenPart>> {
    let (Some(column), Some(label)) = (&settings.label_column, label) else { return Ok(None) };
    let classes = settings.classes.iter().flatten().map(String::as_str).zip(0_u32..);
    let numbers: HashMap<&str, u32> = classes.collect();
    let (mut texts, mut ends, mut of_sample) = (Vec::new(), Vec::new(), Vec::with_capacity(samples.len()));
    let mut known: HashMap<String, u32> = HashMap::new();
    for sample in 0..samples.len() {
        let text = match class_of(label, sample, column)? {
            None => None,
            Some(Class::Number(number)) => Some(number),
            Some(Class::Name(name)) => {
                let number = numbers.get(name.as_str());
                let unknown = || Error::internal("a sample is of no class of the plan");
                Some(number.ok_or_else(unknown)?.to_string())
            }
        };
        of_sample.push(text.map(|text| {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry(text).or_insert_with_key(|text| {
                // Writing into memory cannot fail.
                let _ = texts.write_all(text.as_bytes());
                ends.push(texts.len());
                next
            })
        }));
    }
    Ok(Some(GivenPart::new(classes::EXTENSION, PartContents::new(texts, ends), of_sample.into_iter())))
}

/// Returns the class of a sample; `None` if it has no label, or none in this column.
fn class_of(label: &GivenPart, sample: usize, column: &str) -> Result<Option<Class>> {
    let Some(row) = label.content(sample) else { return Ok(None) };
    let row: Value = serde_json::from_slice(&row).map_err(|e| Error::internal("labels are no JSON").with_cause(e))?;
    let wrong = |found: &Value| {
        Error::input(format!("expected a whole number or the name of a class for {OPTION}, found {found}"))
            .in_column(column)
            .with_hint("set the type of the column in the table of labels, or name another column")
    };
    match row.get(column) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => {
            Ok(Some(Class::Number(number.to_string())))
        }
        Some(Value::String(name)) => Ok(Some(Class::Name(name.clone()))),
        Some(other) => Err(wrong(other)),
    }
}
