//! Contents of records whose hashes are not stored: the rows are read and compared by their fingerprints.
//!
//! Fingerprints are of values, not of bytes, so rows are equal whatever shards, types and encodings they are stored
//! with. They are compared with each other alone, never with stored hashes.

use std::{collections::HashMap, ops::Range, sync::Arc};

use crate::{
    dataset::{NumberSet, Snapshot},
    error::Result,
    format::parquet,
    record::{BATCH_ROWS, fingerprint::Fingerprinter},
};

/// Uncompressed bytes of rows that are decoded at once.
const BATCH_BYTES: u64 = 16 << 20;

/// Rows of shards whose contents are to be read.
#[derive(Debug, Default)]
pub(super) struct WantedRows(HashMap<Arc<str>, NumberSet>);

impl WantedRows {
    /// Adds a row of a shard.
    pub(super) fn add_row(&mut self, shard: &Arc<str>, ordinal: u64) {
        match self.0.get_mut(shard) {
            Some(rows) => rows.insert(ordinal),
            None => self.0.entry(Arc::clone(shard)).or_default().insert(ordinal),
        };
    }

    /// Returns the contents of the wanted rows of a shard, in their order.
    ///
    /// # Errors
    /// When the shard cannot be opened.
    pub(super) fn open_contents(&self, snapshot: &Snapshot, shard: &str) -> Result<Contents> {
        let Some(rows) = self.0.get(shard) else { return Ok(Contents(Box::new(std::iter::empty()), None)) };
        let ranges: Vec<Range<u64>> = rows.to_ranges().into_iter().map(|(first, count)| first..first + count).collect();
        let dataset = snapshot.dataset();
        let bytes = snapshot.live_shards()?.iter().find(|known| known.path == shard).map_or(0, |known| known.bytes);
        let place = dataset.store().location().join(shard).to_string();
        let file = parquet::open(dataset.object_at(shard, bytes), &place)?.with_rows(&ranges);
        let all = file.row_groups();
        let (raw, rows) = all.iter().fold((0, 0), |sum, group| (sum.0 + group.uncompressed_bytes, sum.1 + group.rows));
        let row_bytes = (raw / rows.max(1)).max(1);
        let batch_rows = usize::try_from(BATCH_BYTES / row_bytes).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
        let mut ordinals = ranges.into_iter().flatten();
        let contents = file.into_batches(batch_rows).flat_map(move |batch| {
            let taken = batch.and_then(|batch| {
                let schema = batch.schema();
                let names = schema.fields().iter().map(|field| field.name().as_str());
                let columns: Vec<_> = names.zip(batch.columns().iter().cloned()).collect();
                Fingerprinter::default().of_rows(&columns, batch.num_rows())
            });
            match taken {
                Ok(taken) => {
                    let rows = taken.into_iter().zip(ordinals.by_ref());
                    rows.map(|(taken, ordinal)| Ok((ordinal, u128::from_le_bytes(taken)))).collect::<Vec<_>>()
                }
                Err(error) => vec![Err(error)],
            }
        });
        Ok(Contents(Box::new(contents), None))
    }
}

/// Contents of some rows of a shard, with their ordinals.
pub(super) struct Contents(Box<dyn Iterator<Item = Result<(u64, u128)>>>, Option<(u64, u128)>);

impl Contents {
    /// Returns the content of a row, given the ordinals in ascending order; `None` if the row is not wanted.
    ///
    /// # Errors
    /// When the row cannot be read.
    pub(super) fn content_at(&mut self, ordinal: u64) -> Result<Option<u128>> {
        if self.1.is_none() {
            self.1 = self.0.next().transpose()?;
        }
        Ok(self.1.take_if(|(next, _)| *next == ordinal).map(|(_, content)| content))
    }
}
