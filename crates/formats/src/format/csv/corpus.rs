//! Reads real files of many origins and compares the result with that of Python's `csv` module.
//!
//! The files are not part of the repository (`format/corpus.rs`). `ORACLE.tsv` beside them has the number of records
//! that Python finds, header and blank lines included. If `python3` is installed, all records and fields are compared
//! with its output.

use std::{collections::HashMap, fs, path::Path, process::Command, sync::Arc};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    compute::concat_batches,
    datatypes::SchemaRef,
};

use super::{CsvOptions, CsvSource, sniff, tokenize::oracle};
use crate::{
    format::{Parsed, RecordReader, corpus},
    record::{Payload, Reject, SourceRange},
    schema::{schema_of, unite_fields, unite_lists},
};

/// Number of bytes by which a source is recognised.
const HEAD: usize = 256 << 10;

/// The result of reading a source.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) batch: RecordBatch,
    pub(super) hashes: Vec<u64>,
    /// Byte, line, reason, raw bytes.
    pub(super) rejects: Vec<(u64, u64, String, Vec<u8>)>,
    pub(super) records: u64,
    pub(super) blank: u64,
    pub(super) lines: u64,
    pub(super) padded: u64,
    /// Line, count and reason.
    pub(super) remarks: Vec<(u64, u64, &'static str)>,
}

impl Outcome {
    /// Whether anything was read differently from Python.
    fn is_odd(&self) -> bool {
        const OTHERWISE: [&str; 4] = ["closing quote", "have the column's type", "like a note", "text in every column"];
        let otherwise = |reason: &str| OTHERWISE.iter().any(|part| reason.contains(part));
        !self.remarks.is_empty() || self.rejects.iter().any(|(_, _, reason, _)| otherwise(reason))
    }
}

/// Reads a whole source as a caller would: infers, parses, and widens types until all values fit.
pub(super) fn read(source: &CsvSource, bytes: &[u8], range_bytes: usize) -> Outcome {
    let ranges: Vec<SourceRange> =
        source.ranges(Box::new(bytes), range_bytes, 1 << 29).collect::<Result<_, _>>().unwrap();
    let start = usize::try_from(source.data_offset).unwrap();
    assert_eq!(ranges.iter().map(|s| s.content_bytes().len()).sum::<usize>(), bytes.len() - start);
    let mut source = source.clone();
    let mut fields = source.infer(&SourceRange::of_bytes(0, bytes::Bytes::new()));
    for range in &ranges {
        fields = unite_lists(&fields, &source.infer(range));
    }
    for _ in 0..=2 * source.column_names().len() {
        let schema = schema_of(&fields);
        match parse_all(&source, &ranges, &schema) {
            Ok(outcome) => return outcome,
            Err((column, _)) if column.is_empty() => {
                CsvSource::settle_quoting(&source, Box::new(bytes)).unwrap();
                return read(&source, bytes, range_bytes);
            }
            Err((column, range)) => {
                let said = source.infer(range);
                let (at, field) = fields.find(&column).unwrap();
                let (_, other) = said.find(&column).unwrap();
                if unite_fields(field, other).data_type() == field.data_type() {
                    source.force_text(&column);
                }
                assert!(at < fields.len());
                fields = unite_lists(&fields, &source.infer(range));
            }
        }
    }
    panic!("types never settle");
}

fn parse_all<'a>(
    source: &CsvSource,
    ranges: &'a [SourceRange],
    schema: &SchemaRef,
) -> Result<Outcome, (String, &'a SourceRange)> {
    let mut batches = Vec::new();
    let mut out = Outcome {
        batch: RecordBatch::new_empty(Arc::clone(schema)),
        hashes: Vec::new(),
        rejects: Vec::new(),
        records: 0,
        blank: 0,
        lines: 0,
        padded: 0,
        remarks: Vec::new(),
    };
    for range in ranges {
        let block = match source.parse(range, schema).unwrap() {
            Parsed::Block(block) => block,
            Parsed::Mismatch(mismatch) => return Err((mismatch.column, range)),
        };
        check_numbers(&block.rows, &block.rejects);
        assert_eq!(block.rows.len(), block.hashes.len());
        assert_eq!(block.bytes_in, range.bytes_in());
        out.records += block.records_in();
        out.blank += block.blank_lines;
        out.padded += block.padded;
        let rejects = block.rejects.into_iter().map(|r| (r.byte, out.lines + r.line, r.reason, r.raw.to_vec()));
        out.rejects.extend(rejects);
        for remark in &block.remarks {
            match out.remarks.iter_mut().find(|(_, _, why)| *why == remark.why) {
                Some((_, count, _)) => *count += remark.count,
                None => out.remarks.push((out.lines + remark.line, remark.count, remark.why)),
            }
        }
        out.lines += block.lines;
        out.hashes.extend(block.hashes);
        let Payload::Rows(batch) = block.payload else { panic!("rows expected") };
        assert_eq!(batch.num_rows(), block.rows.len());
        batches.push(batch);
    }
    if !schema.fields().is_empty() {
        out.batch = concat_batches(schema, &batches).unwrap();
    }
    Ok(out)
}

/// Asserts that rows and rejects share one numbering without gaps.
fn check_numbers(rows: &[u32], rejects: &[Reject]) {
    assert!(rows.is_sorted() && rejects.is_sorted_by_key(|r| r.row));
    let mut all: Vec<u32> = rows.iter().copied().chain(rejects.iter().map(|r| r.row)).collect();
    all.sort_unstable();
    assert!(all.iter().zip(0..).all(|(&number, i)| number == i));
}

/// Checks one file with one dialect; returns whether Python's count was compared.
fn check(name: &str, bytes: &[u8], options: &CsvOptions, oracle: Option<u64>) -> bool {
    let head = &bytes[..bytes.len().min(HEAD)];
    let Some(source) = sniff(head, head.len() == bytes.len(), options) else { return false };
    // Tiny ranges of large files would take too long.
    let fine = read(&source, bytes, if bytes.len() < 100_000 { 64 } else { 4096 });
    let coarse = read(&source, bytes, 1 << 20);
    assert!(fine == coarse, "{name}: results differ between sizes of ranges");
    if fine.is_odd() || source.is_unusual(bytes) || !source.facts.notes.is_empty() {
        return false;
    }
    let header = u64::from(options.has_header && !source.column_names().is_empty());
    let Some(count) = oracle.filter(|_| source.delimiter == b',') else { return false };
    assert_eq!(fine.records + fine.blank + source.facts.blank_lines_before + header, count, "{name}");
    true
}

#[test]
#[expect(clippy::print_stderr, reason = "tells what was tested")]
fn real_files_agree_with_python() {
    let Some(folder) = corpus::folder() else { return };
    let oracle = fs::read_to_string(folder.join("ORACLE.tsv")).unwrap();
    let mut compared: HashMap<bool, usize> = HashMap::new();
    for line in oracle.lines().skip(1) {
        let cells: Vec<&str> = line.split('\t').collect();
        let (name, kind, status, what, count) = (cells[0], cells[1], cells[2], cells[3], cells[4]);
        if !matches!(kind, "csv-edge" | "csv-real" | "patients") || !what.starts_with("csv-rows") {
            continue;
        }
        let count = count.parse().ok().filter(|_| status == "ok" && !name.ends_with(".gz"));
        let bytes = fs::read(folder.join(name)).unwrap();
        let comma = CsvOptions { delimiter: Some(b','), ..CsvOptions::default() };
        let headless = CsvOptions { has_header: false, ..comma.clone() };
        check(name, &bytes, &CsvOptions::default(), count);
        check(name, &bytes, &headless, count);
        *compared.entry(check(name, &bytes, &comma, count)).or_default() += 1;
    }
    let (yes, no) = (compared.get(&true).copied().unwrap_or(0), compared.get(&false).copied().unwrap_or(0));
    eprintln!("{yes} files compared with Python, {no} not recognised or packed");
    assert!(yes > no);
}

/// Prints all records except blank lines: the number of fields, then the length and bytes of each. Bytes are read as
/// Latin-1, and the significant characters are ASCII, so text in any encoding passes unchanged.
const SCRIPT: &str = r#"
import csv, struct, sys
csv.field_size_limit(1 << 30)
with open(sys.argv[1], encoding="latin-1", newline="") as file:
    if file.read(3) != "\xef\xbb\xbf":
        file.seek(0)
    for record in csv.reader(file):
        if record:
            sys.stdout.buffer.write(struct.pack("<I", len(record)))
            for field in record:
                sys.stdout.buffer.write(struct.pack("<I", len(field)) + field.encode("latin-1"))
"#;

type Fields = Vec<Vec<u8>>;

/// Returns uncompressed files of delimited text.
fn tables(folder: &Path) -> Vec<String> {
    let oracle = fs::read_to_string(folder.join("ORACLE.tsv")).unwrap();
    let cells = oracle.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let tables = cells.filter(|cells| matches!(cells[1], "csv-edge" | "csv-real" | "patients"));
    let tables = tables.filter(|cells| cells[3].starts_with("csv-rows") && !cells[0].ends_with(".gz"));
    tables.map(|cells| cells[0].to_owned()).collect()
}

/// Returns the records that Python reads; `None` if it fails.
fn python(file: &Path) -> Option<Vec<Fields>> {
    let output = Command::new("python3").arg("-c").arg(SCRIPT).arg(file).output().ok()?;
    output.status.success().then(|| {
        let mut rest = &output.stdout[..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let fields = length(&mut rest);
            records.push((0..fields).map(|_| take(&mut rest)).collect());
        }
        records
    })
}

fn length(rest: &mut &[u8]) -> usize {
    let (length, other) = rest.split_first_chunk().unwrap();
    *rest = other;
    u32::from_le_bytes(*length) as usize
}

fn take(rest: &mut &[u8]) -> Vec<u8> {
    let length = length(rest);
    let (field, other) = rest.split_at(length);
    *rest = other;
    field.to_vec()
}

/// Reads all columns as text and compares every value with Python's.
fn check_values(name: &str, bytes: &[u8], python: &[Fields]) -> bool {
    let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let records: Vec<_> = oracle::records(text, b',').into_iter().filter(|r| r.start < r.end).collect();
    assert_eq!(records.len(), python.len(), "{name}");
    for (record, fields) in records.iter().zip(python) {
        assert!(record.fields == *fields, "{name}: byte {}", record.start);
    }
    let options = CsvOptions { has_header: false, delimiter: Some(b','), ..CsvOptions::default() };
    let Some(mut source) = sniff(&bytes[..bytes.len().min(HEAD)], bytes.len() <= HEAD, &options) else { return false };
    source.column_names().to_vec().iter().for_each(|column| source.force_text(column));
    let width = source.column_names().len();
    let out = read(&source, bytes, 64 << 10);
    if out.is_odd() || source.is_unusual(bytes) {
        return false;
    }
    let mut row = 0;
    for record in &records {
        let is_text = std::str::from_utf8(&text[record.start..record.end]).is_ok();
        if !is_text || !record.closed || record.fields.len() > width {
            continue;
        }
        for column in 0..width {
            let array = out.batch.column(column).as_string::<i32>();
            let got = if array.is_valid(row) { array.value(row).as_bytes() } else { &[] };
            assert!(got == record.fields.get(column).map_or(&b""[..], Vec::as_slice), "{name}: byte {}", record.start);
        }
        row += 1;
    }
    assert_eq!((out.batch.num_rows(), out.rejects.len()), (row, records.len() - row), "{name}");
    true
}

#[test]
#[expect(clippy::print_stderr, reason = "tells what was tested")]
fn every_field_of_real_files_is_that_of_python() {
    let Some(folder) = corpus::folder() else { return };
    let (mut files, mut compared, mut values) = (0, 0, 0);
    for name in tables(&folder) {
        let path = folder.join(&name);
        files += 1;
        let Some(records) = python(&path) else { continue };
        if check_values(&name, &fs::read(&path).unwrap(), &records) {
            compared += 1;
            values += records.iter().map(Vec::len).sum::<usize>();
        }
    }
    eprintln!("{values} values of {compared} files are those of Python, of {files} files in all");
}
