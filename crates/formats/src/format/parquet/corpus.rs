//! Runs the reader on a corpus of real-world files, if one is available.
//!
//! Without a corpus, these tests report that they were not run (`format/corpus.rs`).

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::path::PathBuf;

use arrow::array::RecordBatch;
use bytes::Bytes;

use super::{ParquetEncoder, ParquetReader};
use crate::{
    codec::Codec,
    error::{Kind, Result},
    format::{Framed, Framing, Keyed, Parsed, RecordReader, corpus, ranged::RangedInput, tfrecord::TfRecordFraming},
    record::{Content, Payload, json::RowJson},
    schema,
};

/// Files on which pyarrow and this reader disagree: the number of rows found here, or `None` if the file is rejected.
const DISAGREEMENTS: &[(&str, Option<u64>)] = &[
    // A decimal of 45 digits in 6 bytes.
    ("clusterfuzz-testcase-minimized-parquet-arrow-fuzz-5068991573000192", None),
    // The dictionary page is truncated.
    ("nation.dict-malformed.parquet", None),
    // The footer states 0 rows, its row group 6.
    ("repeated_no_annotation.parquet", None),
    // Decimals without bytes are read as zero.
    ("byte_array_decimal_empty_value.parquet", Some(24)),
    // A page does not match its checksum, which pyarrow verifies only on request.
    ("datapage_v1-corrupt-checksum.parquet", None),
    // Text that is not UTF-8.
    ("invalid_utf8_dictionary.parquet", None),
];

/// Returns each file with the number of rows that should be read: pyarrow's, unless the two disagree; `None` if it is
/// rejected.
pub(super) fn oracle() -> Vec<(PathBuf, Option<u64>)> {
    let Some(root) = corpus::folder() else { return Vec::new() };
    let oracle = std::fs::read_to_string(root.join("ORACLE.tsv")).unwrap();
    let mut found = Vec::new();
    for line in oracle.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, kind, status, what, rows, ..] = fields[..] else { continue };
        let is_parquet = what.starts_with("parquet") || kind.starts_with("parquet") || file.ends_with(".parquet");
        if is_parquet && what != "not-parquet" {
            let expected = (status == "ok").then(|| rows.parse().unwrap());
            let ours = DISAGREEMENTS.iter().find(|(name, _)| file.ends_with(name));
            found.push((root.join(file), ours.map_or(expected, |(_, ours)| *ours)));
        }
    }
    found
}

/// Reads all rows of a file in small ranges.
pub(super) fn read(bytes: Bytes) -> Result<Vec<RecordBatch>> {
    let length = bytes.len() as u64;
    let reader = ParquetReader::open(RangedInput::Bytes(bytes), "test")?;
    let mut batches = Vec::new();
    let (mut row, mut stands_for) = (0, 0);
    let ranges: Vec<_> = reader.ranges(Box::new(std::io::empty()), 64 << 10, 64 << 20).collect();
    for range in ranges {
        let range = range?;
        let schema = schema::schema_of(&reader.infer(&range));
        let Content::Rows { rows, bytes } = range.content else { panic!("{range:?}") };
        assert_eq!(range.offset, row);
        (row, stands_for) = (row + rows, stands_for + bytes);
        let Parsed::Block(block) = reader.parse(&range, &schema)? else { panic!("a type mismatch") };
        let lengths = [block.payload.len(), block.rows.len(), block.hashes.len()];
        assert_eq!(lengths.map(|length| length as u64), [rows; 3]);
        let Payload::Rows(batch) = block.payload else { panic!("samples") };
        batches.push(batch);
    }
    assert!(row == 0 || stands_for == length, "{stands_for} of {length}");
    Ok(batches)
}

#[test]
fn files_agree_with_the_oracle() {
    let mut surprises = Vec::new();
    for (path, expected) in oracle() {
        let found = read(std::fs::read(&path).unwrap().into());
        let rows = found.as_ref().ok().map(|batches| batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>());
        if rows != expected {
            surprises.push(format!(
                "{}: oracle {expected:?}, found {rows:?} {:?}",
                path.display(),
                found.as_ref().err()
            ));
        }
        if let Err(error) = found {
            assert!(matches!(error.kind(), Kind::Input | Kind::Integrity), "{}: {error}", path.display());
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

/// All shard formats accept the rows of every file or reject them with a reason, and Parquet round-trips them.
#[test]
fn every_output_takes_the_rows_of_every_file() {
    let mut refused = std::collections::BTreeSet::new();
    for (path, _) in oracle() {
        let Ok(batches) = read(std::fs::read(&path).unwrap().into()) else { continue };
        for batch in batches.into_iter().take(3) {
            let json = RowJson::new(&batch);
            for row in 0..batch.num_rows().min(100) {
                let mut text = Vec::new();
                json.write_row(row, &mut text);
                serde_json::from_slice::<serde::de::IgnoredAny>(&text)
                    .unwrap_or_else(|e| panic!("{} {e}: {}", path.display(), String::from_utf8_lossy(&text)));
            }
            let keys: Vec<String> = (0..batch.num_rows()).map(|row| row.to_string()).collect();
            let (payload, mut framed) = (Payload::Rows(batch.clone()), Framed::default());
            TfRecordFraming.frame(Keyed::new(&payload, &keys), &mut framed).unwrap();
            assert_eq!(framed.lengths.len(), batch.num_rows());
            let encoder = match ParquetEncoder::new(&batch.schema(), Codec::Zstd(1), &[]) {
                Ok(encoder) => encoder,
                Err(error) => {
                    refused.insert(format!("{}: {error}", path.display()));
                    continue;
                }
            };
            let mut shard = encoder.start_shard(Vec::new()).unwrap();
            shard.append(encoder.encode(std::slice::from_ref(&batch)).unwrap()).unwrap();
            let back = read(shard.finish().unwrap().into()).unwrap();
            let back = arrow::compute::concat_batches(&batch.schema(), &back).unwrap();
            assert_eq!(back.columns(), batch.columns(), "{}", path.display());
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}
