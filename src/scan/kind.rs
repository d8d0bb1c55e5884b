//! What inputs are: sources that hold records, or files to be grouped to samples.
//!
//! The content decides, a name only says where to look: a `.csv` that is not delimited text is not a table. Tables and
//! other files side by side (images and their `metadata.csv`) have no single reading, so they are an error that
//! names both, not a guess.

use rayon::prelude::*;

use super::SourceFile;
use crate::{
    error::{Error, Result},
    format::{RecordReader, csv, files, json},
    record::Split,
};

/// Bytes looked at to tell a format.
const HEAD_BYTES: usize = 256 << 10;

/// Input formats, as `--from` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InputFormat {
    /// Comma-separated or otherwise delimited text.
    Csv,
    /// Tab-separated text.
    Tsv,
    /// One JSON object per line.
    Jsonl,
    /// A JSON document: an object, or an array of objects.
    Json,
    /// Any files, grouped to samples by name.
    Files,
}

impl InputFormat {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Jsonl => "jsonl",
            Self::Json => "json",
            Self::Files => "files",
        }
    }
}

/// How to read text, where the content does not say.
#[derive(Debug, Clone, Default)]
pub struct SniffOptions {
    /// The format, when the user named it.
    pub from: Option<InputFormat>,
    /// Settings of delimited text.
    pub csv: csv::CsvOptions,
    /// Settings of JSON.
    pub json: json::JsonOptions,
}

/// A source that holds records.
#[derive(Debug)]
pub struct RecordSource {
    /// The file.
    pub file: SourceFile,
    /// Its format and dialect.
    pub format: InputFormat,
    /// Reads it.
    pub reader: Box<dyn RecordReader>,
    /// Its first bytes, for a first look at the types; whole records.
    pub sample: Option<Split>,
}

/// Inputs by what they are.
#[derive(Debug)]
pub enum Input {
    /// Sources that hold records.
    Records(Vec<RecordSource>),
    /// Files that make up samples.
    Files(Vec<SourceFile>),
}

/// Decides what the inputs are.
///
/// # Errors
/// When a file is not what `--from` says, or tables and other files are mixed.
pub fn classify(found: Vec<SourceFile>, options: &SniffOptions) -> Result<Input> {
    if options.from == Some(InputFormat::Files) {
        return Ok(Input::Files(found));
    }
    let alone = found.len() == 1;
    // Beside files that cannot be tables JSON documents are labels, which nobody needs to open to know.
    let mixed = options.from.is_none() && found.iter().any(|file| !is_table_name(file.name()));
    let may_be_table = |file: &SourceFile| {
        options.from.is_some() || alone || (is_table_name(file.name()) && !(mixed && is_document_name(file.name())))
    };
    if !found.iter().any(may_be_table) {
        return Ok(Input::Files(found));
    }
    let read: Vec<(SourceFile, Option<RecordSource>)> = found
        .into_par_iter()
        .map(|file| {
            let table = if may_be_table(&file) { table(&file, options)? } else { None };
            Ok((file, table))
        })
        .collect::<Result<_>>()?;
    if let [(file, None)] = read.as_slice()
        && options.from.is_none()
        && is_table_name(file.name())
    {
        return Err(Error::input("expected a table in UTF-8, as the name says, found something else")
            .at(file.uri())
            .hint("name its format with --from; --from files takes it as it is"));
    }
    if let (Some(from), Some((file, _))) = (options.from, read.iter().find(|(_, t)| t.is_none())) {
        return Err(Error::input(format!("expected {}, found something else", from.name()))
            .at(file.uri())
            .hint("name the right format with --from, or leave the file out with --exclude"));
    }
    if read.iter().all(|(_, table)| table.is_some()) {
        return Ok(Input::Records(read.into_iter().filter_map(|(_, table)| table).collect()));
    }
    // JSON documents next to other files are their labels or metadata; rows of a table next to them are not.
    let is_document = |t: &RecordSource| t.format == InputFormat::Json || is_document_name(t.file.name());
    let table = read.iter().find(|(_, t)| t.as_ref().is_some_and(|t| !is_document(t)));
    let other = read.iter().find(|(_, t)| t.is_none());
    match (table, other) {
        (Some((table, _)), Some((other, _))) => Err(Error::usage(format!(
            "expected either tables or files, found both: `{}` is a table, `{}` is not",
            table.name(),
            other.name()
        ))
        .hint("take the tables: --include '*.csv' (or *.jsonl ...)")
        .hint("take everything as files grouped to samples: --from files")),
        _ => Ok(Input::Files(read.into_iter().map(|(file, _)| file).collect())),
    }
}

/// Whether a name is that of a JSON document.
fn is_document_name(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".json")
}

/// Whether a name suggests looking for a table.
fn is_table_name(name: &str) -> bool {
    let (_, mut extension) = files::split_key(name);
    for packed in [".gz", ".zst", ".lz4"] {
        if let Some(inner) = extension.strip_suffix(packed) {
            extension = inner.to_owned();
        }
    }
    let last = extension.rsplit('.').next().unwrap_or_default();
    matches!(last, "csv" | "tsv" | "tab" | "psv" | "jsonl" | "ndjson" | "json")
}

fn table(file: &SourceFile, options: &SniffOptions) -> Result<Option<RecordSource>> {
    let (head, complete) = file.head(HEAD_BYTES)?;
    let named = |extensions: &[&str]| {
        let lower = file.name().to_ascii_lowercase();
        extensions.iter().any(|e| lower.ends_with(e) || lower.contains(&format!("{e}.")))
    };
    let from = options.from;
    let (format, reader): (InputFormat, Box<dyn RecordReader>) = match from {
        Some(InputFormat::Csv | InputFormat::Tsv) => {
            let mut csv = options.csv.clone();
            if from == Some(InputFormat::Tsv) {
                csv.delimiter.get_or_insert(b'\t');
            }
            match sniff_csv(&head, complete, &csv) {
                Some(source) => (InputFormat::Csv, Box::new(source)),
                None => return Ok(None),
            }
        }
        Some(InputFormat::Jsonl) => (InputFormat::Jsonl, Box::new(json_source(json::Mode::Lines, options))),
        Some(InputFormat::Json) => (InputFormat::Json, Box::new(json_source(json::Mode::Document, options))),
        Some(InputFormat::Files) => return Ok(None),
        None => match sniff(&head, complete, options, &named) {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let sample = sample(reader.as_ref(), head)?;
    Ok(Some(RecordSource { file: file.clone(), format, reader, sample }))
}

fn json_source(mode: json::Mode, options: &SniffOptions) -> json::JsonSource {
    json::JsonSource::new(mode).with_options(options.json.clone())
}

fn sniff(
    head: &[u8],
    complete: bool,
    options: &SniffOptions,
    named: &dyn Fn(&[&str]) -> bool,
) -> Option<(InputFormat, Box<dyn RecordReader>)> {
    let is_csv_name = named(&[".csv", ".tsv", ".tab", ".psv"]);
    if !is_csv_name && let Some(source) = json::sniff(head, complete) {
        let format = if source.mode() == json::Mode::Lines { InputFormat::Jsonl } else { InputFormat::Json };
        return Some((format, Box::new(source.with_options(options.json.clone()))));
    }
    let source =
        if is_csv_name { sniff_csv(head, complete, &options.csv)? } else { csv::sniff(head, complete, &options.csv)? };
    // Any text is a table of one column; only a name makes it worth reading as one.
    (is_csv_name || source.columns.len() > 1).then(|| (InputFormat::Csv, Box::new(source) as Box<dyn RecordReader>))
}

/// Sniffs what is said to be delimited text: a few bytes that are not UTF-8 make bad records, not another format.
fn sniff_csv(head: &[u8], complete: bool, options: &csv::CsvOptions) -> Option<csv::CsvSource> {
    csv::sniff(head, complete, options).or_else(|| {
        let mut text = head.to_vec();
        let mut at = 0;
        while let Err(e) = std::str::from_utf8(&text[at..]) {
            at += e.valid_up_to();
            text[at] = b'?';
        }
        csv::sniff(&text, complete, options)
    })
}

/// The first split of the head, as far as it holds whole records.
fn sample(reader: &dyn RecordReader, head: Vec<u8>) -> Result<Option<Split>> {
    let limit = HEAD_BYTES / 2;
    let mut splits = reader.splits(Box::new(std::io::Cursor::new(head)), limit, HEAD_BYTES * 2);
    match splits.next() {
        Some(Ok(split)) => Ok(Some(split)),
        // A record larger than the head says nothing yet.
        Some(Err(_)) | None => Ok(None),
    }
}
