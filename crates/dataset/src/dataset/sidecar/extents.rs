//! Where the records of a framed shard lie, read block by block: the footer of the sidecar is read once.

use std::{ops::Range, sync::Arc};

use super::{
    RecordExtents,
    frames::{FrameTable, METADATA_KEY},
};
use crate::{
    dataset::{log::shards::ShardMeta, table::partial::PartialTable},
    error::Result,
    storage::Store,
};

/// The places of the records of a framed shard.
#[derive(Debug)]
pub struct ShardExtents {
    table: PartialTable,
    frames: Option<FrameTable>,
}

impl ShardExtents {
    /// Reads the footer of the sidecar of a shard.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn open(store: &Arc<dyn Store>, shard: &ShardMeta) -> Result<Self> {
        let table = PartialTable::open(store, &shard.sidecar(), "the sidecar is damaged")?;
        let frames = table.metadata_value(METADATA_KEY).map(FrameTable::from_json).transpose();
        let frames = frames.map_err(|e| table.damage_error(e))?;
        Ok(Self { table, frames })
    }

    /// Returns the units of a compressed shard; `None` if it is not compressed, or they are not known.
    pub fn frames(&self) -> Option<&FrameTable> {
        self.frames.as_ref()
    }

    /// Returns the number of records.
    pub fn row_count(&self) -> u64 {
        self.table.row_count()
    }

    /// Returns the places of consecutive records, and the hashes of their bytes.
    ///
    /// # Errors
    /// When the sidecar is damaged or shorter, or that of a Parquet shard.
    pub fn read_rows(&self, rows: Range<u64>) -> Result<RecordExtents> {
        let batch = self.table.read_rows(&["offset", "length", "hash"], rows)?;
        RecordExtents::from_batch(&batch).map_err(|e| self.table.damage_error(e))
    }
}
