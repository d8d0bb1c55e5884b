//! Text: delimited, or JSON. No first bytes tell these apart for certain, so they are weighed against each other, with
//! the name as a hint.

use std::io::{Cursor, Read};

use super::{
    super::{Head, SourceFile, foreign, source::RecordSource},
    format::{Class, Format, InputFormat},
    start::{SniffOptions, Start, whole_records},
};
use crate::{
    codec::encoding,
    error::{Error, Result},
    format::{RecordReader, csv, json},
};

const DELIMITED: &str = "delimited text";
const IN_JSON: &str = "JSON";

pub(super) static CSV: Format = Format {
    name: "csv",
    help: "Delimited text: commas, semicolons, pipes or another character",
    states: DELIMITED,
    endings: &["csv", "psv"],
    class: Class::Text,
    open: None,
    check_type: Some(csv::check_type),
};

pub(super) static TSV: Format = Format {
    name: "tsv",
    help: "Tab-separated text",
    states: DELIMITED,
    endings: &["tab", "tsv"],
    class: Class::Text,
    open: None,
    check_type: Some(csv::check_type),
};

pub(super) static JSONL: Format = Format {
    name: "jsonl",
    help: "JSON Lines: one object per line",
    states: IN_JSON,
    endings: &["geojsonl", "geojsons", "jsonl", "jsonlines", "ndjson"],
    class: Class::Text,
    open: None,
    check_type: Some(json::check_type),
};

pub(super) static JSON: Format = Format {
    name: "json",
    help: "JSON documents: an object, or an array of objects",
    states: IN_JSON,
    endings: &["geojson", "json"],
    class: Class::Text,
    open: None,
    check_type: Some(json::check_type),
};

type FoundReader = (InputFormat, Box<dyn RecordReader>);

/// Returns the records of text, in any encoding.
///
/// # Errors
/// When its header is not UTF-8.
pub(in crate::scan) fn open_text(start: Start<'_>) -> Result<Option<RecordSource>> {
    let Start { file, options, head: Head { bytes: head, complete, packed } } = start;
    let encoding = options.encoding.or_else(|| encoding::detect_encoding(&head));
    let head = match encoding {
        None => head,
        Some(encoding) => {
            let mut text = Vec::new();
            encoding::decode_to_utf8(encoding, Box::new(Cursor::new(head))).read_to_end(&mut text)?;
            // A character that the head cuts in two is no fault.
            if !complete && text.last() == Some(&encoding::MALFORMED) {
                text.pop();
            }
            text
        }
    };
    if options.from.is_none() && foreign::holds_no_records(&head) {
        return Ok(None);
    }
    let Some((format, reader)) = text_reader(file, &head, complete, options)? else { return Ok(None) };
    let sample = whole_records(reader.as_ref(), &head, complete);
    Ok(Some(RecordSource { packed, encoding, sample, ..RecordSource::new(file, format, reader.into()) }))
}

fn text_reader(file: &SourceFile, head: &[u8], complete: bool, options: &SniffOptions) -> Result<Option<FoundReader>> {
    let json_source = |mode| Box::new(json::JsonSource::new(mode).with_options(options.json.clone()));
    Ok(match options.from {
        Some(from) if from.is_delimited() => {
            let mut csv = csv::CsvOptions { certain: true, ..options.csv.clone() };
            if from == InputFormat(&TSV) {
                csv.delimiter.get_or_insert(b'\t');
            }
            let source = sniff_csv(file, head, complete, &csv)?;
            source.map(|source| (InputFormat(&CSV), Box::new(source) as Box<dyn RecordReader>))
        }
        Some(from) if from == InputFormat(&JSONL) => Some((InputFormat(&JSONL), json_source(json::Mode::Lines))),
        Some(from) if from == InputFormat(&JSON) => Some((InputFormat(&JSON), json_source(json::Mode::Document))),
        Some(_) => None,
        None => {
            let lower = file.name().to_ascii_lowercase();
            let is_csv_name = is_csv_name(&lower);
            let named = csv::CsvOptions { named: is_csv_name, ..options.csv.clone() };
            if !is_csv_name && let Some(source) = json::sniff(head, complete) {
                let lines = source.mode() == json::Mode::Lines;
                let format = if lines { InputFormat(&JSONL) } else { InputFormat(&JSON) };
                return Ok(Some((format, Box::new(source.with_options(options.json.clone())))));
            }
            // What is left of a document is no table, although commas are all over it.
            match json_name(&lower) {
                Some(json::Mode::Lines) if foreign::is_table(head, complete) => return Ok(None),
                Some(json::Mode::Lines) if !is_csv_name && !head.is_empty() => {
                    return Ok(Some((InputFormat(&JSONL), json_source(json::Mode::Lines))));
                }
                Some(json::Mode::Document) if !is_csv_name => {
                    let structured = matches!(head.trim_ascii_start().first(), Some(b'{' | b'['));
                    return Ok(structured.then(|| (InputFormat(&JSON), json_source(json::Mode::Document) as Box<_>)));
                }
                _ => {}
            }
            let source = match is_csv_name {
                true => match sniff_csv(file, head, complete, &named)? {
                    None if json::sniff(head, complete).is_none() => {
                        let certain = csv::CsvOptions { certain: true, ..named };
                        sniff_csv(file, head, complete, &certain)?.filter(csv::CsvSource::is_convincing)
                    }
                    found => found,
                },
                // Any text is a table of one column; only a name makes it worth reading as one.
                false => match csv::sniff(head, complete, &options.csv) {
                    None if is_damaged_text(head) => {
                        sniff_csv(file, head, complete, &options.csv)?.filter(csv::CsvSource::is_convincing)
                    }
                    found => found,
                }
                .filter(|source| source.column_names().len() > 1),
            };
            source.map(|source| (InputFormat(&CSV), Box::new(source) as Box<dyn RecordReader>))
        }
    })
}

/// Most bytes among a thousand that are not UTF-8 in damaged text.
const DAMAGED_PER_MILLE: usize = 10;

/// Whether bytes are text in UTF-8 apart from a few.
fn is_damaged_text(head: &[u8]) -> bool {
    let invalid: usize = head.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    invalid > 0 && invalid * 1000 <= head.len() * DAMAGED_PER_MILLE && memchr::memchr(0, head).is_none()
}

/// How records lie in a file whose name says that it is JSON.
fn json_name(lower: &str) -> Option<json::Mode> {
    if is_named(&JSONL, lower) {
        return Some(json::Mode::Lines);
    }
    is_named(&JSON, lower).then_some(json::Mode::Document)
}

/// Sniffs what is said to be delimited text: a few bytes that are not UTF-8 make bad records, not another format. In
/// the header they would make columns that nobody named.
fn sniff_csv(
    file: &SourceFile,
    head: &[u8],
    complete: bool,
    options: &csv::CsvOptions,
) -> Result<Option<csv::CsvSource>> {
    let valid = csv::sniff(head, complete, options);
    if valid.is_some() {
        return Ok(valid);
    }
    let mut text = head.to_vec();
    let mut at = 0;
    let mut first = None;
    while let Err(e) = std::str::from_utf8(&text[at..]) {
        at += e.valid_up_to();
        first.get_or_insert(at);
        text[at] = b'?';
    }
    let source = csv::sniff(&text, complete, options);
    match (&source, first) {
        (Some(csv), Some(at)) if (at as u64) < csv.data_offset => {
            Err(Error::input(format!("expected a header in UTF-8, found the byte 0x{:02X}", head[at]))
                .at_byte(at as u64)
                .at_location(file.name())
                .with_hint(encoding::encoding_hint(head)))
        }
        _ => Ok(source),
    }
}

/// Whether a name in lower case says that a file is delimited text.
pub(in crate::scan) fn is_csv_name(lower: &str) -> bool {
    is_named(&CSV, lower) || is_named(&TSV, lower)
}

/// Whether a name in lower case has an ending of a format, at its end or before another extension.
fn is_named(format: &Format, lower: &str) -> bool {
    let mut endings = format.endings.iter().map(|ending| format!(".{ending}"));
    endings.any(|ending| lower.ends_with(&ending) || lower.contains(&format!("{ending}.")))
}
