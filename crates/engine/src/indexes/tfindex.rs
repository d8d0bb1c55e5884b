//! The index of a TFRecord: one text format for the `tfrecord` package and for NVIDIA DALI (`tfrecord2idx`).
//!
//! ```text
//! <offset of the record> <its length, framing included>\n        one line per record, nothing before or after
//! ```

use std::io::Write as _;

use super::kind::{About, FileBeside, Index, StartedShard, TEXT_BYTES};
use crate::{
    dataset::SealingSink,
    error::Result,
    format::{OutputFormat, index::IndexKind},
    storage::Staged,
};

/// The index for the `tfrecord` package.
pub(super) struct TfIndex;

impl Index for TfIndex {
    fn about(&self) -> &'static About {
        &About {
            help: "For the Python package tfrecord",
            formats: &[OutputFormat::TfRecord],
            is_default: true,
            ..About::NONE
        }
    }

    fn start_beside(&self, shard: &StartedShard<'_>) -> Result<Option<Box<dyn FileBeside>>> {
        Ok(Some(Box::new(RecordLines::new(shard.create_sink(IndexKind::TfIndex)?))))
    }

    fn matches_records(&self, bytes: &[u8], records: &[(u64, u64)], _format: OutputFormat) -> bool {
        lines_match_records(bytes, records)
    }
}

/// The lines of a shard's records.
pub(super) struct RecordLines {
    sink: SealingSink,
    text: Vec<u8>,
}

impl RecordLines {
    pub(super) fn new(sink: SealingSink) -> Self {
        Self { sink, text: Vec::new() }
    }
}

impl FileBeside for RecordLines {
    fn add_record(&mut self, offset: u64, length: u64) -> Result<()> {
        push_record(&mut self.text, offset, length);
        if self.text.len() >= TEXT_BYTES {
            self.sink.write_all(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _records: u64, _end: u64) -> Result<Vec<Staged>> {
        self.sink.write_all(&self.text)?;
        Ok(vec![self.sink.finish()?])
    }
}

/// Whether the lines are those of the records.
pub(super) fn lines_match_records(bytes: &[u8], records: &[(u64, u64)]) -> bool {
    let mut expected = Vec::new();
    records.iter().for_each(|(offset, length)| push_record(&mut expected, *offset, *length));
    bytes == expected
}

/// Appends the line of a record.
fn push_record(out: &mut Vec<u8>, offset: u64, length: u64) {
    push_number(out, offset);
    out.push(b' ');
    push_number(out, length);
    out.push(b'\n');
}

/// Appends a number in decimal, for each record several times as fast as a formatter.
fn push_number(out: &mut Vec<u8>, number: u64) {
    let (mut digits, mut from, mut rest) = ([0; 20], 20, number);
    loop {
        from -= 1;
        digits[from] = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line() {
        let mut out = Vec::new();
        push_record(&mut out, 0, 80);
        push_record(&mut out, 80, u64::MAX);
        assert_eq!(out, b"0 80\n80 18446744073709551615\n");
        assert!(lines_match_records(b"0 80\n80 9\n", &[(0, 80), (80, 9)]));
        assert!(!lines_match_records(b"0 80\n80 9", &[(0, 80), (80, 9)]));
    }
}
