//! Reads real files of many origins and compares with what Python's `csv` module makes of them.
//!
//! The files are not part of the repository: they are looked for in the folder that `SHARDIFY_CORPUS` names, or in
//! `../shared/corpus`. `ORACLE.tsv` there says how many records, header and blank lines included, Python finds.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{array::RecordBatch, compute::concat_batches, datatypes::SchemaRef};

use super::{CsvOptions, CsvSource, sniff};
use crate::{
    format::{Parsed, RecordReader},
    record::{Payload, Reject, Split},
    schema::{schema_of, unite_fields, unite_lists},
};

/// Bytes that a source is recognised by.
const HEAD: usize = 256 << 10;

/// All that reading a source gives.
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
}

/// Reads a whole source as a caller would: infer, parse, widen what does not fit, until all fits.
pub(super) fn read(source: &CsvSource, bytes: &[u8], split_bytes: usize) -> Outcome {
    let splits: Vec<Split> = source.splits(Box::new(bytes), split_bytes, 1 << 29).collect::<Result<_, _>>().unwrap();
    let start = usize::try_from(source.data_offset).unwrap();
    assert_eq!(splits.iter().map(|s| s.bytes().len()).sum::<usize>(), bytes.len() - start);
    let mut source = source.clone();
    let mut fields = source.infer(&Split::of_bytes(0, bytes::Bytes::new()));
    for split in &splits {
        fields = unite_lists(&fields, &source.infer(split));
    }
    for _ in 0..=2 * source.columns.len() {
        let schema = schema_of(&fields);
        match parse_all(&source, &splits, &schema) {
            Ok(outcome) => return outcome,
            Err((column, split)) => {
                let said = source.infer(&split);
                let (at, field) = fields.find(&column).unwrap();
                let (_, other) = said.find(&column).unwrap();
                if unite_fields(field, other).data_type() == field.data_type() {
                    source.force_text(&column);
                }
                assert!(at < fields.len());
                fields = unite_lists(&fields, &source.infer(&split));
            }
        }
    }
    panic!("types never settle");
}

fn parse_all(source: &CsvSource, splits: &[Split], schema: &SchemaRef) -> Result<Outcome, (String, Split)> {
    let mut batches = Vec::new();
    let mut out = Outcome {
        batch: RecordBatch::new_empty(Arc::clone(schema)),
        hashes: Vec::new(),
        rejects: Vec::new(),
        records: 0,
        blank: 0,
        lines: 0,
        padded: 0,
    };
    for split in splits {
        let block = match source.parse(split, schema).unwrap() {
            Parsed::Block(block) => block,
            Parsed::Misfit(misfit) => return Err((misfit.column, split.clone())),
        };
        check_numbers(&block.rows, &block.rejects);
        assert_eq!(block.rows.len(), block.hashes.len());
        assert_eq!(block.bytes_in, split.bytes_in());
        out.records += block.records_in();
        out.blank += block.blank_lines;
        out.padded += block.padded;
        let rejects = block.rejects.into_iter().map(|r| (r.byte, out.lines + r.line, r.reason, r.raw.to_vec()));
        out.rejects.extend(rejects);
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

/// Rows and rejects share one numbering without gaps.
fn check_numbers(rows: &[u32], rejects: &[Reject]) {
    assert!(rows.is_sorted() && rejects.is_sorted_by_key(|r| r.row));
    let mut all: Vec<u32> = rows.iter().copied().chain(rejects.iter().map(|r| r.row)).collect();
    all.sort_unstable();
    assert!(all.iter().zip(0..).all(|(&number, i)| number == i));
}

fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("SHARDIFY_CORPUS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"),
    };
    folder.is_dir().then_some(folder)
}

/// Checks one file with one dialect; true if Python's count was compared.
fn check(name: &str, bytes: &[u8], options: &CsvOptions, oracle: Option<u64>) -> bool {
    let head = &bytes[..bytes.len().min(HEAD)];
    let Some(source) = sniff(head, head.len() == bytes.len(), options) else { return false };
    // Tiny splits of large files would only take long.
    let fine = read(&source, bytes, if bytes.len() < 100_000 { 64 } else { 4096 });
    let coarse = read(&source, bytes, 1 << 20);
    assert!(fine == coarse, "{name}: results differ between sizes of splits");
    let header = u64::from(options.has_header && !source.columns.is_empty());
    let Some(count) = oracle.filter(|_| source.delimiter == b',') else { return false };
    assert_eq!(fine.records + fine.blank + source.header_blank_lines + header, count, "{name}");
    true
}

#[test]
#[expect(clippy::print_stderr, reason = "tells why nothing was tested")]
fn real_files_agree_with_python() {
    let Some(folder) = folder() else {
        eprintln!("corpus absent: name its folder in SHARDIFY_CORPUS to compare with Python");
        return;
    };
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
