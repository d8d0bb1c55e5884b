//! The unit of data on its way from a reader to a shard.
//!
//! Readers turn a [`Split`] of a source into a [`RecordBlock`]: records in input order, each with its row number within
//! the split, a hash of its source bytes, and the rejects that were found in between. Nothing is lost on the way:
//! `records + rejects` of a block is the number of records that the split holds.

pub mod coded;
pub mod duration;
pub mod hash;
pub mod json;
pub mod key;
pub mod numbers;
pub mod parts;
pub mod path;
pub mod size;
pub mod spare;
pub mod spelling;
pub mod subject;
pub mod time;
pub mod typed;
pub mod widen;

use arrow::array::RecordBatch;
use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use self::numbers::Numbers;

/// A piece of one source that holds whole records and can be read without its neighbours.
#[derive(Debug, Clone)]
pub struct Split {
    /// Offset of the first byte in the (decompressed) source; in formats that are read by row, number of the first row.
    pub offset: u64,
    /// What there is to read.
    pub content: Content,
}

/// What a split holds.
#[derive(Debug, Clone)]
pub enum Content {
    /// Whole records, each with its terminator (the last record of a source may lack it).
    Bytes(Bytes),
    /// So many rows of a source that its reader opens by itself, with their share of the bytes of the source.
    Rows {
        /// Number of rows.
        rows: u64,
        /// Bytes of input that they stand for.
        bytes: u64,
    },
    /// Rows that were decoded while the source was cut, with their share of the bytes of the source.
    Batch {
        /// The rows.
        batch: RecordBatch,
        /// Bytes of input that they stand for.
        bytes: u64,
    },
}

impl Split {
    /// A split of bytes.
    pub fn of_bytes(offset: u64, bytes: Bytes) -> Self {
        Self { offset, content: Content::Bytes(bytes) }
    }

    /// The bytes to be read; empty when the split holds rows.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes,
            Content::Rows { .. } | Content::Batch { .. } => &[],
        }
    }

    /// Number of records, where that is known before they are read.
    pub fn rows(&self) -> Option<u64> {
        match &self.content {
            Content::Bytes(_) => None,
            Content::Rows { rows, .. } => Some(*rows),
            Content::Batch { batch, .. } => Some(batch.num_rows() as u64),
        }
    }

    /// Bytes of input that the split stands for.
    pub fn bytes_in(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Rows { bytes, .. } | Content::Batch { bytes, .. } => *bytes,
        }
    }
}

/// One member of a sample: the content of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Extension in lower case, without the leading dot: `jpg`, `seg.png`.
    pub extension: String,
    /// The content.
    pub bytes: Bytes,
}

/// A WebDataset sample: all files that share a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Path relative to the source root up to the first dot of the file name.
    pub key: String,
    /// Where it came from, when each file is a source: its path, or `dir/key.{jpg,json}` when it has several. Empty when
    /// the sample is a record of a larger source.
    pub origin: String,
    /// Subject id from its path or from a table.
    pub subject: Option<String>,
    /// Members sorted by extension; extensions are unique within the sample.
    pub parts: Vec<Part>,
}

impl Sample {
    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.bytes.len() as u64).sum()
    }

    /// XXH3-64 over extension, length (8 bytes, little endian) and content of every part.
    pub fn hash(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for part in &self.parts {
            hasher.update(part.extension.as_bytes());
            hasher.update(&(part.bytes.len() as u64).to_le_bytes());
            hasher.update(&part.bytes);
        }
        hasher.digest()
    }
}

/// Records in one of the two shapes that inputs come in.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Rows of a table, whose columns may be [coded].
    Rows(RecordBatch),
    /// Samples made of files.
    Samples(Vec<Sample>),
}

impl Payload {
    /// Number of records.
    pub fn len(&self) -> usize {
        match self {
            Self::Rows(batch) => batch.num_rows(),
            Self::Samples(samples) => samples.len(),
        }
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A record that could not be taken, with everything needed to find and repair it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Number of the record among the records of its split, from 0.
    pub row: u32,
    /// Number of the line within the split, from 0.
    pub line: u64,
    /// Byte offset in the (decompressed) source.
    pub byte: u64,
    /// Column, where one is to blame.
    pub column: Option<String>,
    /// What was expected and what was found.
    pub reason: String,
    /// The record as it stands in the source, without its line terminator.
    pub raw: Bytes,
}

/// What was done about an unusual line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// It was taken as it stands, and looks wrong.
    Doubtful,
    /// It was taken as a record in another reading than that of its neighbours.
    Repaired,
    /// It is no record and was left out.
    Skipped,
}

/// Lines of a split that are unusual for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remark {
    /// The first of them, counted from 0 within the split.
    pub line: u64,
    /// How many there are.
    pub count: u64,
    /// What was done about them.
    pub oddity: Oddity,
    /// The reason.
    pub why: &'static str,
}

/// Records read from one split, in input order.
#[derive(Debug, Clone)]
pub struct RecordBlock {
    /// The records.
    pub payload: Payload,
    /// For each record its number among the records of its split, from 0 and ascending; rejects leave gaps. Empty where
    /// the split has no other records, and nobody needs the list.
    pub rows: Vec<u32>,
    /// For each record the XXH3-64 of its source bytes (without line terminator), or of its parts.
    pub hashes: Vec<u64>,
    /// Consecutive records that share a hash: one, or the cells of a record.
    pub sharing: usize,
    /// Records that were not taken, in input order.
    pub rejects: Vec<Reject>,
    /// Line terminators within the split, so that line numbers can be summed over splits.
    pub lines: u64,
    /// Empty lines, which are not records.
    pub blank_lines: u64,
    /// Records with fewer fields than the header, whose missing fields became null.
    pub padded: u64,
    /// What is unusual about lines of the split.
    pub remarks: Vec<Remark>,
    /// Entries of an archive that are no files (folders, links, devices) and so no records.
    pub passed_over: u64,
    /// Bytes of input that this block stands for.
    pub bytes_in: u64,
}

impl RecordBlock {
    /// A block of nothing.
    pub fn empty() -> Self {
        Self {
            payload: Payload::Samples(Vec::new()),
            rows: Vec::new(),
            hashes: Vec::new(),
            sharing: 1,
            rejects: Vec::new(),
            lines: 0,
            blank_lines: 0,
            padded: 0,
            remarks: Vec::new(),
            passed_over: 0,
            bytes_in: 0,
        }
    }

    /// Gives each record a number and a hash of its own, so that some can be left out.
    pub fn list_each(&mut self) {
        if self.rows.is_empty() {
            self.rows = (0..).take(self.payload.len()).collect();
        }
        if self.sharing != 1 {
            self.hashes = Numbers::shared(std::mem::take(&mut self.hashes), self.sharing).iter().collect();
            self.sharing = 1;
        }
    }

    /// Records of the split, taken or rejected.
    pub fn records_in(&self) -> u64 {
        (self.payload.len() + self.rejects.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_tell_parts_apart() {
        let sample = |parts: &[(&str, &'static str)]| Sample {
            key: "k".into(),
            origin: "o".into(),
            subject: None,
            parts: parts.iter().map(|(e, b)| Part { extension: (*e).into(), bytes: Bytes::from(*b) }).collect(),
        };
        let all = [
            sample(&[("a", "x")]),
            sample(&[("b", "x")]),
            sample(&[("a", "x"), ("b", "")]),
            sample(&[("a", ""), ("b", "x")]),
            sample(&[]),
        ];
        let hashes: std::collections::BTreeSet<u64> = all.iter().map(Sample::hash).collect();
        assert_eq!(hashes.len(), all.len());
    }
}
