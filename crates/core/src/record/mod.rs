//! The units of data between a reader and a shard.
//!
//! Readers turn a [`SourceRange`] of a source into a [`RecordBlock`]: records in input order, each with its row number
//! within the range, a hash of its source bytes, and the rejects between them. Nothing is lost: `records + rejects` of
//! a block is the number of records of the range.

pub mod buffer_pool;
pub mod civil;
pub mod clutter;
pub mod coded;
pub mod dedup;
pub mod duration;
pub mod extreme;
pub mod filter;
pub mod fingerprint;
pub mod hash;
mod id_column;
pub mod interval;
pub mod json;
pub mod key;
pub mod key_rule;
pub mod media;
pub mod numbers;
pub mod parts;
pub mod path;
pub mod shuffle;
pub mod size;
pub mod source_part;
pub mod sparse;
pub mod spelling;
pub mod split;
pub mod stream_tag;
pub mod subject;
pub mod table_hash;
pub mod time;
pub mod typed;
pub mod widen;

use std::sync::Arc;

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};
use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

pub use self::id_column::id_column;
pub use self::source_part::{PartExtent, PartSizes, SourcePart};
use self::{fingerprint::Fingerprint, numbers::Numbers};
use crate::error::Result;

/// Rows that are decoded or held at a time, unless they are large: enough for kernels over columns, few enough for the
/// caches.
pub const BATCH_ROWS: usize = 8_192;

/// A piece of one source that holds whole records and can be read without its neighbours.
#[derive(Debug, Clone)]
pub struct SourceRange {
    /// Offset of the first byte in the (decompressed) source; for formats that are read by row, number of the first
    /// row.
    pub offset: u64,
    /// Content to be read.
    pub content: Content,
    /// Whether the content hashes of its records are needed; otherwise they are 0.
    pub hashed: bool,
    /// For each link among its entries, the content to which it leads, which is elsewhere in the source, or why there
    /// is none.
    pub linked: Vec<Result<Bytes, String>>,
    /// What its blocks state, if its records lie in blocks that are compressed one by one.
    pub blocks: Option<StatedBlocks>,
}

/// What blocks of records state before they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatedBlocks {
    /// Number of their records.
    pub records: u64,
    /// About how many bytes of memory their records take.
    pub unpacked_bytes: u64,
}

/// Content of a range.
#[derive(Debug, Clone)]
pub enum Content {
    /// Whole records, each with its terminator (the last record of a source may lack it).
    Bytes(Bytes),
    /// A range of rows of a source that its reader opens itself, with their share of the source's bytes.
    Rows {
        /// Number of rows.
        rows: u64,
        /// Bytes of input that these rows account for.
        bytes: u64,
    },
    /// Rows that were decoded while the source was split, with their share of the source's bytes.
    Batch {
        /// The rows.
        batch: RecordBatch,
        /// Bytes of input that these rows account for.
        bytes: u64,
    },
}

impl SourceRange {
    /// Creates a range whose records are hashed.
    pub fn new(offset: u64, content: Content) -> Self {
        Self { offset, content, hashed: true, linked: Vec::new(), blocks: None }
    }

    /// Creates a range of bytes.
    pub fn of_bytes(offset: u64, bytes: Bytes) -> Self {
        Self::new(offset, Content::Bytes(bytes))
    }

    /// Returns the content hashes of `records` records, which are computed only if they are needed.
    pub fn hashes_if_needed(&self, records: usize, compute: impl FnOnce() -> Vec<u64>) -> Vec<u64> {
        if self.hashed { compute() } else { vec![0; records] }
    }

    /// Returns the bytes to be read; empty if the range holds rows.
    pub fn content_bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes,
            Content::Rows { .. } | Content::Batch { .. } => &[],
        }
    }

    /// Returns the bytes of memory that the content of its links takes.
    pub fn linked_bytes(&self) -> u64 {
        self.linked.iter().flatten().map(|content| content.len() as u64).sum()
    }

    /// Returns the number of records if it is known before they are read.
    pub fn row_count(&self) -> Option<u64> {
        match &self.content {
            Content::Bytes(_) => self.blocks.map(|blocks| blocks.records),
            Content::Rows { rows, .. } => Some(*rows),
            Content::Batch { batch, .. } => Some(batch.num_rows() as u64),
        }
    }

    /// Returns the bytes of input that the range accounts for.
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
    /// Origin if each file is a source: its path, or `dir/key.{jpg,json}` if it has several. Empty if the sample is a
    /// record of a larger source.
    pub origin: String,
    /// Subject id from its path or from a table.
    pub subject: Option<String>,
    /// Members sorted by extension; extensions are unique within the sample.
    pub parts: Vec<Part>,
}

impl Sample {
    /// Returns the bytes of all parts.
    pub fn byte_count(&self) -> u64 {
        self.parts.iter().map(|p| p.bytes.len() as u64).sum()
    }

    /// Returns the XXH3-64 over extension, length (8 bytes, little endian) and content of every part.
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

/// Records in one of the two forms of input.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Rows of a table, whose columns may be [coded].
    Rows(RecordBatch),
    /// Samples made of files.
    Samples(Vec<Sample>),
}

impl Payload {
    /// Returns the number of records.
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

/// A rejected record, with everything needed to find and repair it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Number of the record among the records of its range, from 0.
    pub row: u32,
    /// Number of the line within the range, from 0.
    pub line: u64,
    /// Byte offset in the (decompressed) source.
    pub byte: u64,
    /// Column that caused the rejection, if known.
    pub column: Option<String>,
    /// What was expected and what was found.
    pub reason: String,
    /// The record as it is in the source, without its line terminator.
    pub raw: Bytes,
}

/// What was done with an unusual line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// It was accepted unchanged although it looks wrong.
    Doubtful,
    /// It is a damaged record that was repaired.
    Repaired,
}

/// A group of lines of a range that are unusual for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remark {
    /// The first of these lines, counted from 0 within the range.
    pub line: u64,
    /// Number of these lines.
    pub count: u64,
    /// What was done with them.
    pub oddity: Oddity,
    /// The reason, as notes state it.
    pub why: &'static str,
}

/// Number of ignored entries that are named.
pub const IGNORED_NAMES: usize = 5;

/// Returns the first of ignored entries as a list for messages; `more` of them are not named.
pub fn list_names(names: &[String], more: u64) -> String {
    let list = names.iter().map(|name| format!("`{}`", name.escape_debug())).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{list} and {more} more") } else { list }
}

/// Records read from one range, in input order.
#[derive(Debug, Clone)]
pub struct RecordBlock {
    /// The records.
    pub payload: Payload,
    /// Columns that some records do not have, so that a null there is no value, or whose objects lack members.
    pub lacking: Arc<[String]>,
    /// For each record, its number among the records of its range, ascending from 0; rejects and deleted rows leave
    /// gaps. Empty if the range has no other records and the list is not needed.
    pub rows: Vec<u32>,
    /// For each record, the XXH3-64 of its source bytes (without line terminator), or of its parts.
    pub hashes: Vec<u64>,
    /// Number of consecutive records that share a hash: one, or the cells of a record.
    pub sharing: usize,
    /// For each record, the fingerprint by which it is a duplicate of others; `None` if it is of none. Empty if
    /// duplicates are kept.
    pub fingerprints: Vec<Option<Fingerprint>>,
    /// Rejected records, in input order.
    pub rejects: Vec<Reject>,
    /// Line terminators within the range, for summing line numbers over ranges.
    pub lines: u64,
    /// Empty lines, which are not records.
    pub blank_lines: u64,
    /// Lines that are no records and not blank, such as comments.
    pub skipped_lines: u64,
    /// Records with fewer fields than the header, whose missing fields became null.
    pub padded: u64,
    /// Unusual lines of the range.
    pub remarks: Vec<Remark>,
    /// Entries of an archive that are no part of a record: folders, devices, leftovers of systems.
    pub ignored: u64,
    /// Names of those entries that hold data, at most one more than [`IGNORED_NAMES`].
    pub ignored_names: Vec<String>,
    /// Rows that the log of the source's table declares deleted: they are numbered, but are no records.
    pub deleted: u64,
    /// Bytes of input that this block accounts for.
    pub bytes_in: u64,
}

impl RecordBlock {
    /// Creates an empty block.
    pub fn empty() -> Self {
        Self {
            payload: Payload::Samples(Vec::new()),
            lacking: Arc::default(),
            rows: Vec::new(),
            hashes: Vec::new(),
            sharing: 1,
            fingerprints: Vec::new(),
            rejects: Vec::new(),
            lines: 0,
            blank_lines: 0,
            skipped_lines: 0,
            padded: 0,
            remarks: Vec::new(),
            ignored: 0,
            ignored_names: Vec::new(),
            deleted: 0,
            bytes_in: 0,
        }
    }

    /// Gives each record its own number and hash, so that single records can be removed.
    pub fn expand_numbers(&mut self) {
        if self.rows.is_empty() {
            self.rows = (0..).take(self.payload.len()).collect();
        }
        if self.sharing != 1 {
            self.hashes = Numbers::shared_by(std::mem::take(&mut self.hashes), self.sharing).iter().collect();
            self.sharing = 1;
        }
    }

    /// Removes the records that are not marked; returns how many they were.
    ///
    /// # Errors
    /// When the rows cannot be removed.
    pub fn retain(&mut self, keep: &BooleanArray) -> Result<u64> {
        let removed = keep.len() - keep.true_count();
        if removed == 0 {
            return Ok(0);
        }
        self.expand_numbers();
        retain_marked(&mut self.rows, keep);
        retain_marked(&mut self.hashes, keep);
        retain_marked(&mut self.fingerprints, keep);
        match &mut self.payload {
            Payload::Rows(rows) => *rows = filter_record_batch(rows, keep)?,
            Payload::Samples(samples) => retain_marked(samples, keep),
        }
        Ok(removed as u64)
    }

    /// Returns the number of records of the range, accepted or rejected.
    pub fn records_in(&self) -> u64 {
        (self.payload.len() + self.rejects.len()) as u64
    }
}

fn retain_marked<T>(values: &mut Vec<T>, keep: &BooleanArray) {
    let mut flags = keep.values().iter();
    values.retain(|_| flags.next().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_distinguish_parts() {
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
