//! Gates stand between the parser and the shards: each takes records out of a block, or adds what it found to them.
//!
//! ```text
//! parser -> open types -> select -> subjects -> suppress -> names, parts -> fit -> dedup -> splits -> gather
//!           types         filtered              erased      rejected        types  marks    divide   in order of the
//!                                                                                input: erased, duplicates, the limit
//! ```
//!
//! A run has one list of them, for rows and for samples. Nothing is taken out of a block without being counted among
//! its [`Effects`], so that in = out + rejected + deduplicated + filtered.

pub mod dedup;
pub mod fit;
pub mod limit;
pub mod names;
pub mod select;
pub mod splits;
pub mod subjects;
pub mod suppress;

use std::sync::Arc;

use arrow::{
    array::{Array as _, BooleanArray, StringArray},
    compute::filter,
};
use bytes::Bytes;

use super::source::SourceFacts;
use crate::{
    dataset::IdKind,
    error::Result,
    format::{RecordReader, TypeMismatch},
    record::{Payload, RecordBlock, Reject, SourceRange, id_column, split::Split},
};

/// Takes records out of blocks, or adds to them.
pub trait Gate: Send + Sync {
    /// Treats a parsed block: on any thread, whatever other blocks of the run hold.
    ///
    /// # Errors
    /// When the run cannot go on because of a record.
    fn pass_block(&self, _gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        Ok(())
    }

    /// Treats a block for which it matters what came before: blocks arrive in the order of the input, behind all gates.
    ///
    /// # Errors
    /// When the run cannot go on because of a record, or a store fails.
    fn pass_in_order(&self, _gated: &mut GatedBlock, _place: &BlockPlace<'_>) -> Result<()> {
        Ok(())
    }

    /// Returns an empty block in place of a range of which the gate would let no record through; `None` if the range
    /// has to be read. Gates before one that does so take no record out of a block.
    fn prune_range(&self, _reader: &dyn RecordReader, _range: &SourceRange) -> Option<RecordBlock> {
        None
    }

    /// Whether it lets no record of later blocks through, so that they need not be read.
    fn ends_run(&self) -> bool {
        false
    }

    /// Whether it needs the content hashes of the records of a source.
    fn needs_hashes(&self, _source: &SourceFacts) -> bool {
        false
    }
}

/// The gates of a run, and the columns of ids that they look at.
#[derive(Clone, Copy)]
pub struct Gates<'a> {
    /// The gates, in their order.
    pub list: &'a [&'a dyn Gate],
    /// Columns that have the ids of rows.
    pub ids: &'a Arc<IdColumns>,
}

impl Gates<'_> {
    /// Passes a block through all gates; the last effect may be a value that does not fit its column.
    ///
    /// # Errors
    /// As [`Gate::pass_block`].
    pub fn pass_through(&self, block: RecordBlock, source: &SourceFacts) -> Result<GatedBlock> {
        let mut gated = GatedBlock::new(block, Arc::clone(self.ids));
        for gate in self.list {
            gate.pass_block(&mut gated, source).map_err(|error| source.locate_error(error))?;
            if gated.effects.mismatch.is_some() {
                break;
            }
        }
        Ok(gated)
    }
}

/// Columns that have the ids of rows.
#[derive(Debug, Clone, Default)]
pub struct IdColumns {
    /// Those that make the record id; empty if ids are origins.
    pub record: Vec<String>,
    /// That of the subject id, if one has it.
    pub subject: Option<String>,
}

impl IdColumns {
    /// Returns the columns that make an id.
    pub fn columns_of_kind(&self, kind: IdKind) -> &[String] {
        match kind {
            IdKind::Record => &self.record,
            IdKind::Subject => self.subject.as_slice(),
        }
    }
}

/// What gates did to a block.
#[derive(Debug, Default)]
pub struct Effects {
    /// Records that were not accepted.
    pub rejected: Vec<Reject>,
    /// Number of records that were erased before, of which nothing is kept.
    pub erased: u64,
    /// Number of records that do not satisfy the condition of the run.
    pub filtered: u64,
    /// Number of records that are duplicates of others.
    pub deduplicated: u64,
    /// A value that does not fit its column: the run starts again with wider types.
    pub mismatch: Option<TypeMismatch>,
}

/// Records of a block that belong to one split of a dataset.
#[derive(Debug)]
pub struct SplitRecords {
    /// The split.
    pub split: Split,
    /// The records; everything else of the block is empty.
    pub records: RecordBlock,
}

/// A block on its way through the gates.
#[derive(Debug)]
pub struct GatedBlock {
    /// The records, and what the parser counted.
    pub block: RecordBlock,
    /// Records of each split, taken out of the block; empty if the dataset is not divided.
    pub splits: Vec<SplitRecords>,
    /// What was done so far.
    pub effects: Effects,
    columns: Arc<IdColumns>,
    /// Ids of the records, once a gate has asked for them.
    ids: [Option<StringArray>; 2],
}

impl GatedBlock {
    /// Creates what the gates get.
    pub fn new(block: RecordBlock, columns: Arc<IdColumns>) -> Self {
        Self { block, splits: Vec::new(), effects: Effects::default(), columns, ids: [None, None] }
    }

    /// Returns the ids of the records: of rows, those in the columns; of samples, their keys and subjects. `None` if no
    /// column has them.
    ///
    /// # Errors
    /// When the rows lack a column.
    pub fn ids_of_kind(&mut self, kind: IdKind) -> Result<Option<StringArray>> {
        let known = &mut self.ids[usize::from(kind == IdKind::Subject)];
        if let Some(ids) = known {
            return Ok(Some(ids.clone()));
        }
        let ids = match (&self.block.payload, kind) {
            (Payload::Samples(samples), IdKind::Record) => {
                StringArray::from_iter_values(samples.iter().map(|sample| sample.key.as_str()))
            }
            (Payload::Samples(samples), IdKind::Subject) => {
                samples.iter().map(|sample| sample.subject.as_deref()).collect()
            }
            (Payload::Rows(rows), _) if self.columns.columns_of_kind(kind).is_empty() || rows.num_rows() == 0 => {
                return Ok(None);
            }
            (Payload::Rows(rows), _) => id_column(rows, self.columns.columns_of_kind(kind))?,
        };
        *known = Some(ids.clone());
        Ok(Some(ids))
    }

    /// Removes the records that are not marked. Returns how many they were; the caller adds them to an effect.
    ///
    /// # Errors
    /// When the rows cannot be removed.
    pub fn retain_records(&mut self, keep: &BooleanArray) -> Result<u64> {
        let removed = self.block.retain(keep)?;
        if removed > 0 {
            for ids in self.ids.iter_mut().flatten() {
                *ids = StringArray::from(filter(ids, keep)?.to_data());
            }
        }
        Ok(removed)
    }

    /// Rejects the records that have a reason.
    ///
    /// # Errors
    /// As [`retain_records`](Self::retain_records).
    pub fn reject_records(&mut self, reasons: Vec<Option<String>>) -> Result<()> {
        let keep: BooleanArray = reasons.iter().map(|reason| Some(reason.is_none())).collect();
        if keep.true_count() == keep.len() {
            return Ok(());
        }
        self.block.expand_numbers();
        let reject = |(row, reason): (&u32, Option<String>)| {
            Some(Reject { row: *row, line: 0, byte: 0, column: None, reason: reason?, raw: Bytes::new() })
        };
        self.effects.rejected.extend(self.block.rows.iter().zip(reasons).filter_map(reject));
        self.retain_records(&keep).map(drop)
    }

    /// Returns the number of records of the range, whatever became of them.
    pub fn records_in(&self) -> u64 {
        let Effects { rejected, erased, filtered, deduplicated, .. } = &self.effects;
        let accepted: usize = self.splits.iter().map(|part| part.records.payload.len()).sum();
        self.block.records_in() + (accepted + rejected.len()) as u64 + erased + filtered + deduplicated
    }

    /// Returns the blocks that hold records: the block itself, and those of splits.
    pub fn record_blocks(&self) -> impl Iterator<Item = &RecordBlock> {
        std::iter::once(&self.block).chain(self.splits.iter().map(|part| &part.records))
    }

    /// Returns the blocks that hold records, to be changed.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut RecordBlock> {
        std::iter::once(&mut self.block).chain(self.splits.iter_mut().map(|part| &mut part.records))
    }
}

/// Where the records of a block are in the run.
#[derive(Debug, Clone, Copy)]
pub struct BlockPlace<'a> {
    /// All sources.
    pub sources: &'a [SourceFacts],
    /// Position in the run of the first record of each source so far, and the source.
    pub starts: &'a [(u64, usize)],
    /// Source of the block.
    pub source: usize,
    /// Number of records of the source before the block.
    pub base: u64,
    /// Number of records of the sources before.
    pub before: u64,
}

impl BlockPlace<'_> {
    /// Returns the source of the block.
    pub fn source_facts(&self) -> Option<&SourceFacts> {
        self.sources.get(self.source)
    }
}
