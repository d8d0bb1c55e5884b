//! Writers of single shards: the bytes, and beside them the sidecar and the indexes.

use std::{
    io::{BufRead, Read, Write},
    sync::Arc,
};

use arrow::array::RecordBatch;
use jiff::Timestamp;

use super::{
    finished::{FinishedShard, ShardNaming},
    sums::{Hashed, HashingSink},
};
use crate::{
    codec::{
        Codec,
        stream::{Frames, Tail},
    },
    dataset::{
        FrameTable, NewShard, Sealed, ShardMeta, SidecarColumns, SidecarGroups, SidecarPart, SidecarWriter,
        sidecar_path,
    },
    error::{Error, Result},
    exec::encode::Piece,
    format::{
        Framing,
        parquet::{GroupNote, ParquetEncoder, ParquetShard, RowGroup},
    },
    id::Version,
    indexes::{kind::StartedShard, shard::ShardIndexes},
    storage::Store,
};

/// Sidecar and indexes of an open shard.
struct SidecarAndIndexes {
    path: String,
    codec: Codec,
    sidecar: SidecarWriter,
    indexes: Option<ShardIndexes>,
}

impl SidecarAndIndexes {
    fn create(store: &dyn Store, path: String, codec: Codec, naming: &ShardNaming) -> Result<Self> {
        let sidecar = SidecarWriter::create(store, &path, naming.fingerprints)?;
        let indexes = if naming.indexes.is_empty() {
            None
        } else {
            let shard = StartedShard { store, path: &path, sidecar: &sidecar_path(&path), format: naming.format };
            Some(ShardIndexes::create(&shard, &naming.indexes)?)
        };
        Ok(Self { path, codec, sidecar, indexes })
    }

    fn append_sidecar(&mut self, batch: &RecordBatch, shift: i128) -> Result<()> {
        let Some(indexes) = &mut self.indexes else { return self.sidecar.append_moved(batch, shift) };
        self.sidecar.append_moved_with(batch, shift, &mut |offset, length| indexes.add_record(offset, length))
    }

    /// Finishes the sidecar and the indexes of a shard whose bytes are complete.
    fn finish(mut self, ended: Ended, runs: &[(u64, Option<u64>)]) -> Result<FinishedShard> {
        let records = self.sidecar.row_count();
        if let Some(frames) = &ended.frames {
            self.sidecar.set_frames(frames)?;
        }
        let sidecar = self.sidecar.finish()?;
        let beside = Arc::new(crate::dataset::Beside::new(Sealed::from_staged(&sidecar)?));
        let mut staged = vec![sidecar];
        if let Some(indexes) = self.indexes {
            staged.extend(indexes.finish(records, ended.body_offset + ended.body_bytes)?);
        }
        staged.push(ended.sums.staged);
        let mut ordinal = 0;
        let mut placed = Vec::with_capacity(runs.len());
        for (first, length) in runs {
            let length = length.unwrap_or_else(|| records.saturating_sub(ordinal));
            placed.push((*first, length, ordinal));
            ordinal = ordinal.saturating_add(length);
        }
        if ordinal != records {
            // The numbers of records that are written again are those that the log has.
            return Err(Error::integrity(format!("expected numbers of {records} records in the log, found {ordinal}"))
                .at_location(self.path)
                .with_hint("`shardify verify` names what is damaged"));
        }
        let meta = ShardMeta {
            path: self.path,
            records,
            bytes: ended.sums.bytes,
            codec: self.codec,
            raw_bytes: ended.raw_bytes,
            checksum: ended.sums.checksum,
            body_offset: ended.body_offset,
            body_bytes: ended.body_bytes,
            body_crc32: ended.body_crc32,
            compacted_for: 0,
            first_record: runs.iter().map(|r| r.0).min().unwrap_or_default(),
            version: Version(0),
            committed_at: Timestamp::UNIX_EPOCH,
            order: None,
            beside,
        };
        let shard = NewShard { meta, runs: placed, since: Vec::new(), scattered: None };
        Ok(FinishedShard { staged, shard, md5: ended.sums.md5 })
    }
}

/// Sizes and checksums of a shard whose bytes are complete.
struct Ended {
    sums: Hashed,
    frames: Option<FrameTable>,
    raw_bytes: u64,
    body_offset: u64,
    body_bytes: u64,
    body_crc32: u32,
}

/// A Parquet shard that is being written.
pub struct ParquetShardWriter {
    beside: SidecarAndIndexes,
    shard: Box<ParquetShard<HashingSink>>,
    raw_bytes: u64,
}

impl ParquetShardWriter {
    /// Starts a shard.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn create(store: &dyn Store, parquet: &ParquetEncoder, naming: &ShardNaming, number: usize) -> Result<Self> {
        let path = naming.shard_path(number);
        let shard = Box::new(parquet.start_shard(HashingSink::create(store, &path, naming)?)?);
        let beside = SidecarAndIndexes::create(store, path, parquet.codec(), naming)?;
        Ok(Self { beside, shard, raw_bytes: 0 })
    }

    /// Returns the bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.shard.bytes_written()
    }

    /// Appends a row group.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_row_group(&mut self, group: RowGroup, rows: SidecarGroups) -> Result<()> {
        self.append_known_rows(group)?;
        self.beside.sidecar.append_groups(rows)
    }

    /// Appends a row group whose sidecar rows are appended separately, from existing sidecars, and returns the note
    /// with which the shard is compared.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_known_rows(&mut self, group: RowGroup) -> Result<Option<GroupNote>> {
        self.raw_bytes += group.raw_bytes;
        self.shard.append(group)
    }

    /// Opens the unfinished shard, if that is possible; see [`Sink::follow`](crate::storage::Sink::read_following).
    pub(in super::super) fn follow(&self) -> Option<Box<dyn BufRead + Send>> {
        self.shard.sink()?.follow()
    }

    /// Appends rows of another sidecar.
    ///
    /// # Errors
    /// Fails if the batch has another schema.
    pub fn append_sidecar(&mut self, batch: &RecordBatch) -> Result<()> {
        self.beside.append_sidecar(batch, 0)
    }

    /// Appends a whole sidecar unchanged.
    ///
    /// # Errors
    /// Fails if the sidecar is damaged or the store fails.
    pub fn append_sidecar_part(&mut self, part: &SidecarPart) -> Result<()> {
        self.beside.sidecar.append_part(part)
    }

    /// Finishes the shard and its sidecar. `runs` gives for each run its first record number and its length; the last
    /// one may omit the length.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(self, runs: &[(u64, Option<u64>)]) -> Result<FinishedShard> {
        let Self { beside, shard, raw_bytes } = self;
        let sums = shard.finish()?.finish()?;
        let ended = Ended { sums, frames: None, raw_bytes, body_offset: 0, body_bytes: 0, body_crc32: 0 };
        beside.finish(ended, runs)
    }
}

/// A shard of framed records that is being written.
pub struct StreamShardWriter {
    beside: SidecarAndIndexes,
    sink: HashingSink,
    header_bytes: u64,
    tail: Tail,
    trailer: &'static [u8],
}

impl StreamShardWriter {
    /// Starts a shard with the codec of its naming.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn create(store: &dyn Store, framing: &dyn Framing, naming: &ShardNaming, number: usize) -> Result<Self> {
        let (path, codec) = (naming.shard_path(number), naming.codec);
        let mut sink = HashingSink::create(store, &path, naming)?;
        sink.write_all(codec.stream_header())?;
        let header_bytes = sink.bytes;
        let beside = SidecarAndIndexes::create(store, path, codec, naming)?;
        Ok(Self { beside, sink, header_bytes, tail: Tail::new(codec), trailer: framing.trailer() })
    }

    /// Returns the bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.sink.bytes
    }

    /// Appends records.
    ///
    /// # Errors
    /// Fails if the store fails, or a name does not fit an index.
    pub(super) fn append(&mut self, piece: Piece) -> Result<()> {
        let Piece { bytes, raw_bytes, crc32, rows, lengths, members } = piece;
        let (stored, mut at) = (bytes.len() as u64, self.tail.combined_totals().0);
        self.sink.write_all(&bytes)?;
        match (&mut self.beside.indexes, members) {
            (Some(indexes), Some((members, start))) => indexes.add_members(&members, start..start + stored)?,
            (Some(indexes), None) => indexes.feed_bytes(&bytes)?,
            (None, _) => {}
        }
        self.tail.add_unit(stored, raw_bytes, crc32);
        let mut offsets = Vec::with_capacity(lengths.len());
        for length in &lengths {
            offsets.push(at);
            if let Some(indexes) = &mut self.beside.indexes {
                indexes.add_record(at, *length)?;
            }
            at += length;
        }
        let extents = Some((offsets.into(), lengths.into()));
        self.beside.sidecar.append_rows(SidecarColumns { extents, ..rows })
    }

    /// Appends stored bytes of records and returns their offset in the uncompressed shard. More bytes of the same part
    /// may follow; [`Self::end_bytes`] ends it.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_bytes(&mut self, bytes: &[u8]) -> Result<u64> {
        self.sink.write_all(bytes)?;
        if let Some(indexes) = &mut self.beside.indexes {
            indexes.feed_bytes(bytes)?;
        }
        Ok(self.tail.combined_totals().0)
    }

    /// Appends up to `bytes` stored bytes of records from a source and passes them to `look`; returns how many there
    /// were. Otherwise like [`Self::append_bytes`].
    ///
    /// # Errors
    /// Fails if the source, the store or `look` fails.
    pub fn append_from(
        &mut self,
        source: &mut dyn Read,
        bytes: u64,
        look: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let indexes = &mut self.beside.indexes;
        self.sink.append_from(source, bytes, &mut |piece| {
            if let Some(indexes) = indexes {
                indexes.feed_bytes(piece)?;
            }
            look(piece)
        })
    }

    /// Ends a part written with [`Self::append_bytes`], given its size and CRC-32 before compression, and its units.
    pub fn end_bytes(&mut self, raw_bytes: u64, crc32: u32, frames: &Frames) {
        self.tail.add_frames(raw_bytes, crc32, frames);
    }

    /// Compresses bytes of records as a unit and appends it; nothing if there are none.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn append_unit(&mut self, codec: Codec, raw: Vec<u8>) -> Result<()> {
        if raw.is_empty() {
            return Ok(());
        }
        let unit = codec.compress_unit(raw)?;
        let mut one = Frames::default();
        one.push(unit.bytes.len() as u64, unit.raw_bytes);
        self.append_bytes(&unit.bytes)?;
        self.end_bytes(unit.raw_bytes, unit.crc32, &one);
        Ok(())
    }

    /// Appends rows of another sidecar, with offsets moved by `shift` bytes.
    ///
    /// # Errors
    /// Fails if the batch has another schema.
    pub fn append_sidecar(&mut self, batch: &RecordBatch, shift: i128) -> Result<()> {
        self.beside.append_sidecar(batch, shift)
    }

    /// Finishes the shard and its sidecar. `runs` gives for each run its first record number and its length; the last
    /// one may omit the length.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn finish(self, runs: &[(u64, Option<u64>)]) -> Result<FinishedShard> {
        let Self { beside, mut sink, header_bytes: body_offset, mut tail, trailer } = self;
        let codec = beside.codec;
        let body_bytes = sink.bytes - body_offset;
        let (_, body_crc32) = tail.combined_totals();
        let packed = !codec.stream_extension().is_empty();
        let frames = if packed { FrameTable::new(body_offset, tail.frames()) } else { None };
        if !trailer.is_empty() {
            let unit = codec.compress_unit(trailer.to_vec())?;
            sink.write_all(&unit.bytes)?;
            tail.add_unit(unit.bytes.len() as u64, unit.raw_bytes, unit.crc32);
        }
        let (raw_bytes, _) = tail.combined_totals();
        sink.write_all(&tail.finish())?;
        let sums = sink.finish()?;
        beside.finish(Ended { sums, frames, raw_bytes, body_offset, body_bytes, body_crc32 }, runs)
    }
}
