//! Writer of sidecars: rows are collected until they fill a row group; those from other sidecars of Parquet shards are
//! spliced in encoded form.
//!
//! ```text
//! rows of new records ----------> row groups
//! sidecars of merged shards ----> their row groups, spliced    (small ones are decoded and handled as rows)
//! ```

use std::sync::Arc;

use arrow::array::RecordBatch;
use parquet::schema::types::SchemaDescriptor;

use super::{GROUP_ROWS, HASHES_KEY, OF_VALUES, SidecarColumns, SidecarGroups, check_columns, sidecar_schema};
use crate::{
    dataset::{
        sidecar::frames::{FrameTable, METADATA_KEY},
        table::{
            self, GroupWriter,
            paths::sidecar_path,
            sealed::{self, Sealed},
        },
    },
    error::{Error, Result},
    format::{
        parquet::{GroupPart, Source, splice_table},
        ranged::RangedInput,
    },
    storage::{Staged, Store},
};

/// Rows of sidecars that form a row group together.
const PARTS_ROWS: u64 = 1 << 17;

/// Sidecars with at most this many rows are read whole.
const MAX_WHOLE_ROWS: u64 = 1 << 17;

/// Below this number of rows, the pages of a part are so small that the rows are encoded again.
const MIN_SPLICED_ROWS: u64 = 1024;

/// A sidecar that becomes a part of another one.
#[derive(Debug)]
pub struct SidecarPart {
    source: Arc<Source>,
}

impl SidecarPart {
    /// Opens the sidecar of a shard with `records` records, and reads it whole unless there are many.
    ///
    /// # Errors
    /// When it is missing or damaged.
    pub fn open(store: &Arc<dyn Store>, sidecar: &Sealed, records: u64) -> Result<Self> {
        let place = sidecar.display_location(store.as_ref());
        let input = if records <= MAX_WHOLE_ROWS {
            RangedInput::Bytes(sealed::get_sealed(store.as_ref(), sidecar)?)
        } else {
            RangedInput::Object(sealed::open_sealed(store, sidecar)?)
        };
        let damaged = |e: Error| table::damage_error(e, "the sidecar is damaged", place.clone());
        Ok(Self { source: Arc::new(Source::open(input, &place).map_err(damaged)?) })
    }

    /// Number of rows.
    pub fn row_count(&self) -> u64 {
        self.source.row_count()
    }
}

/// Writes a sidecar as its shard grows.
pub struct SidecarWriter {
    writer: GroupWriter,
    columns: SchemaDescriptor,
    /// Whether there is a column of fingerprints.
    fingerprints: bool,
    /// Rows that do not fill a row group yet.
    pending: Vec<SidecarColumns>,
    pending_rows: usize,
    /// Row groups of other sidecars that do not fill a row group yet; never together with rows.
    parts: Vec<GroupPart>,
    parts_rows: u64,
}

impl std::fmt::Debug for SidecarWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SidecarWriter").field("rows", &self.row_count()).finish_non_exhaustive()
    }
}

impl SidecarWriter {
    /// Starts the sidecar of a new shard. Without a column of fingerprints, those of appended rows are dropped.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create(store: &dyn Store, shard: &str, fingerprints: bool) -> Result<Self> {
        Self::create_at(store, &sidecar_path(shard), fingerprints)
    }

    /// Starts a sidecar whose path does not follow from that of its shard.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create_at(store: &dyn Store, path: &str, fingerprints: bool) -> Result<Self> {
        let columns = table::parquet_schema(&sidecar_schema(fingerprints))?;
        let writer = GroupWriter::create(store, path, &columns)?;
        let (pending, parts) = (Vec::new(), Vec::new());
        Ok(Self { writer, columns, fingerprints, pending, pending_rows: 0, parts, parts_rows: 0 })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When the columns differ in length, or the store fails.
    pub fn append_rows(&mut self, columns: SidecarColumns) -> Result<()> {
        columns.check_lengths()?;
        self.flush_parts()?;
        self.pending_rows += columns.hashes.len();
        self.pending.push(columns);
        if self.pending_rows < GROUP_ROWS { Ok(()) } else { self.flush_rows() }
    }

    /// Appends encoded rows.
    ///
    /// # Errors
    /// When the store fails.
    pub fn append_groups(&mut self, groups: SidecarGroups) -> Result<()> {
        self.flush()?;
        self.write_groups(groups)
    }

    /// Appends the encoded rows of the sidecar of a shard whose records have no offsets.
    ///
    /// # Errors
    /// When it is no sidecar or damaged, or the store fails.
    pub fn append_part(&mut self, part: &SidecarPart) -> Result<()> {
        let alike = part.source.root_schema().get_fields() == self.columns.root_schema().get_fields();
        for (group, size) in part.source.row_groups().iter().enumerate().filter(|(_, size)| size.rows > 0) {
            let part = GroupPart::whole(&part.source, group);
            if !alike || size.rows < MIN_SPLICED_ROWS {
                self.append_decoded(&part)?;
                continue;
            }
            self.flush_rows()?;
            self.parts_rows += size.rows;
            self.parts.push(part);
            if self.parts_rows >= PARTS_ROWS {
                self.flush_parts()?;
            }
        }
        Ok(())
    }

    fn append_decoded(&mut self, part: &GroupPart) -> Result<()> {
        let batches = part.decode_rows()?;
        check_columns(&batches)?;
        batches.iter().try_for_each(|batch| self.append_moved(batch, 0))
    }

    /// Makes a row group from those of other sidecars, decoding only what cannot be spliced.
    fn flush_parts(&mut self) -> Result<()> {
        let parts = std::mem::take(&mut self.parts);
        let rows = std::mem::take(&mut self.parts_rows);
        if parts.is_empty() {
            return Ok(());
        }
        match splice_table(self.columns.columns(), &parts)? {
            Some(chunks) => self.writer.append_spliced(chunks, rows),
            None => parts.iter().try_for_each(|part| self.append_decoded(part)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.flush_parts()?;
        self.flush_rows()
    }

    fn flush_rows(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.pending_rows = 0;
        let columns = SidecarColumns::join_parts(std::mem::take(&mut self.pending))?;
        self.write_groups(SidecarGroups::encode_columns(&columns, self.fingerprints)?)
    }

    fn write_groups(&mut self, groups: SidecarGroups) -> Result<()> {
        groups.0.into_iter().try_for_each(|group| self.writer.append_group(group))
    }

    /// Appends rows of another sidecar whose records moved by `shift` bytes.
    ///
    /// # Errors
    /// When the batch is not one of a sidecar.
    pub fn append_moved(&mut self, batch: &RecordBatch, shift: i128) -> Result<()> {
        self.append_moved_with(batch, shift, &mut |_, _| Ok(()))
    }

    /// Like [`append_moved`](Self::append_moved), and passes the new offset and the length of each record that has them
    /// to `visit`.
    ///
    /// # Errors
    /// If the batch is not one of a sidecar, or `visit` fails.
    pub fn append_moved_with(
        &mut self,
        batch: &RecordBatch,
        shift: i128,
        visit: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let mut columns = SidecarColumns::from_batch(batch)?;
        if let Some((offsets, lengths)) = &mut columns.extents {
            *offsets = offsets
                .iter()
                .map(|offset| offset.map(|o| u64::try_from(i128::from(o) + shift)).transpose())
                .collect::<std::result::Result<_, _>>()
                .map_err(|_| Error::integrity("an offset in a sidecar is out of range"))?;
            for (offset, length) in offsets.iter().zip(&*lengths).filter_map(|(offset, length)| offset.zip(length)) {
                visit(offset, length)?;
            }
        }
        self.append_rows(columns)
    }

    /// Returns the number of rows so far.
    pub fn row_count(&self) -> u64 {
        self.writer.row_count() + self.pending_rows as u64 + self.parts_rows
    }

    /// Sets the frame table of the shard.
    ///
    /// # Errors
    /// When the table cannot be encoded.
    pub fn set_frames(&mut self, table: &FrameTable) -> Result<()> {
        self.writer.add_metadata(METADATA_KEY, table.to_json()?);
        Ok(())
    }

    /// States that the hashes cover the rows as they are in the shard, which is Parquet.
    pub fn set_hashes_cover_values(&mut self) {
        self.writer.add_metadata(HASHES_KEY, OF_VALUES.to_owned());
    }

    /// Finishes the sidecar, which has no name until it is published.
    ///
    /// # Errors
    /// When the store fails.
    pub fn finish(mut self) -> Result<Staged> {
        self.flush()?;
        self.writer.finish()
    }
}
