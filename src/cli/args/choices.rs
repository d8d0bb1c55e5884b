//! Names and explanations of the values that options take, for enums of the library.
//!
//! An enum is listed once; a value that is not listed cannot be chosen on the command line.

use std::{ffi::OsStr, marker::PhantomData};

use clap::{
    Arg, Command,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use crate::{
    dataset::IdMode,
    exec::gather::OnError,
    format::OutputFormat,
    ops::{
        convert::{Accept, OnSchema},
        erase::NameKind,
        inputs::{Identity, OnChanged},
    },
    plan::names::{OnMissing, OnName},
    scan::InputFormat,
    settings::{Given, Setting, SettingValues, Table},
};

/// Parses a setting of a format; help and completion list all of them.
#[derive(Debug, Clone, Default)]
pub(super) struct SettingParser<T>(PhantomData<T>);

impl<T: Table> TypedValueParser for SettingParser<T> {
    type Value = Given<T>;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Given<T>, clap::Error> {
        let parse = |text: &str| text.parse::<Given<T>>().map_err(|e| super::one_line(&e));
        parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let all = T::SETTINGS.iter().flat_map(|Setting { key, values }| -> Vec<PossibleValue> {
            match values {
                SettingValues::Text { name, help, .. } | SettingValues::List { name, help } => {
                    vec![PossibleValue::new(format!("{key}={name}")).help(*help)]
                }
                SettingValues::Words(words) => {
                    words.iter().map(|(word, help)| PossibleValue::new(format!("{key}={word}")).help(*help)).collect()
                }
            }
        });
        Some(Box::new(all))
    }
}

/// A type of the library whose values are words of the command line, with their help.
pub(super) trait Choice: Clone + Send + Sync + 'static {
    /// Returns all values that can be chosen.
    fn all() -> Vec<(Self, PossibleValue)>;
}

/// Returns the parser of an option that takes one of some words.
pub(super) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let words = PossibleValuesParser::new(T::all().into_iter().map(|(_, word)| word));
    words.try_map(|text| {
        let chosen = T::all().into_iter().find(|(_, word)| word.matches(&text, false));
        chosen.map(|(value, _)| value).ok_or("expected one of the words")
    })
}

/// Names that other tools have for formats, which are understood too.
const OTHER_NAMES: &[(&str, &[&str])] = &[
    ("tar", &["webdataset", "wds", "tars"]),
    ("tfrecord", &["tfrecords", "tfds"]),
    ("parquet", &["pq"]),
    ("jsonl", &["ndjson", "jsonlines"]),
    ("arrow", &["feather", "ipc"]),
    ("files", &["folder", "imagefolder"]),
    ("netcdf", &["nc", "netcdf4"]),
    ("hdf5", &["h5"]),
    ("npy", &["numpy", "npz"]),
    ("nifti", &["nii"]),
];

fn with_other_names(value: PossibleValue) -> PossibleValue {
    let others = OTHER_NAMES.iter().find(|(name, _)| *name == value.get_name()).map_or(&[][..], |(_, others)| others);
    value.aliases(others)
}

macro_rules! choices {
    ($($choice:ty { $($variant:ident = $name:literal: $help:literal),+ $(,)? })+) => {
        $(impl Choice for $choice {
            fn all() -> Vec<(Self, PossibleValue)> {
                let values = vec![$((Self::$variant, PossibleValue::new($name).help($help))),+];
                values.into_iter().map(|(choice, value)| (choice, with_other_names(value))).collect()
            }
        })+
    };
}

impl Choice for InputFormat {
    fn all() -> Vec<(Self, PossibleValue)> {
        let value = |format: &Self| with_other_names(PossibleValue::new(format.name()).help(format.help()));
        Self::ALL.iter().map(|format| (*format, value(format))).collect()
    }
}

impl Choice for OutputFormat {
    fn all() -> Vec<(Self, PossibleValue)> {
        let value = |format: Self| with_other_names(PossibleValue::new(format.name()).help(format.facts().help));
        Self::ALL.into_iter().map(|format| (format, value(format))).collect()
    }
}

choices! {
    OnSchema {
        Keep = "keep": "Unite columns by name, and keep the types of the dataset",
        Union = "union": "Unite columns by name, and widen the types of the dataset",
        Fail = "fail": "Stop with an error",
    }
    OnError {
        Fail = "fail": "Stop; nothing is committed",
        Skip = "skip": "Skip and count it",
        Quarantine = "quarantine": "Skip and count it, and write it to a rejects file",
    }
    OnName {
        Fail = "fail": "Stop before anything is written (names of files)",
        Rename = "rename": "Escape it as %XX, or shorten it and append a hash",
        Skip = "skip": "Reject the record",
    }
    OnMissing {
        Fail = "fail": "Stop and name the sample",
        Skip = "skip": "Reject the sample",
        Keep = "keep": "Keep the sample and count it",
    }
    OnChanged {
        Fail = "fail": "Stop and name the input",
        Append = "append": "Convert it again and keep its old records",
        Replace = "replace": "Convert it again and remove its old records in the same version",
        Skip = "skip": "Skip it",
    }
    Identity {
        Path = "path": "By its path or URL",
        Content = "content": "By its path, URL or content, so that moved and renamed inputs are skipped",
    }
    Accept {
        Kind = "kind": "Samples in a dataset of rows, or rows in a dataset of samples",
        Columns = "columns": "Rows that share no column with the dataset",
        Settings = "settings": "Ids from other columns, or a different split, than before",
        Subjects = "subjects": "Samples or inputs without a subject id",
        Labels = "labels": "Samples without a row in the labels",
        Constants = "constants": "Arrays with other constants than the dataset's",
        Units = "units": "Variables with other units than before",
    }
    IdMode {
        Plain = "plain": "Unchanged",
        Hmac = "hmac": "As tokens (HMAC-SHA-256), which only the key can produce and nothing can reverse",
        Sealed = "sealed": "As tokens, and encrypted beside them so that the key can decrypt them",
    }
    NameKind {
        Subject = "subject": "Subject ids",
        Record = "record": "Record ids",
        Source = "source": "Origins, SOURCE#ROW",
    }
}
