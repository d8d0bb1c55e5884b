//! Rewrites a shard without some of its records.
//!
//! ```text
//! shard      | record 0 | record 1 | record 2 | ...     every record is compared with the sidecar
//!                 |          x          |
//! new shard  | record 0 | record 2 | ...                then read back and compared byte by byte
//! ```
//!
//! Records of tar and TFRecord are copied as stored. For compressed shards, whole units are copied, and only units that
//! held an erased record are compressed again. Parquet is decoded and encoded: no page, dictionary or statistic that an
//! erased value was part of is kept. Sidecar rows (with their offsets moved), record numbers and first versions are
//! carried over.

use std::io::Read;

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::Fields,
};
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    compact::RowGroups,
    copy::{Records, twice_in_a_row},
    encode::{parquet_encoder, sorted_parquet_encoder},
    rewrite::Rewriter,
    shard::{FinishedShard, ParquetShardWriter, ShardNaming, StreamShardWriter},
};
use crate::{
    codec::{Codec, stream},
    dataset::{
        ContentHashes, FrameTable, NewShard, NumbersWriter, PlaceRef, PlacesWriter, RecordExtents, Run, RunTable,
        Scattered, ShardMeta, ShardOrder, SidecarRow, numbered_rows, read_frames, read_sidecar, read_sidecar_rows,
        sidecar_batches, token_of,
    },
    error::{Error, Result},
    events::Event,
    format::{Framing, parquet::cast_to},
    record::{BATCH_ROWS, hash::row_hashes},
    schema::{schema_of, unite_lists},
    storage::Staged,
};

/// Bytes to read at a time if they are not copied.
const READ_BYTES: usize = 256 << 10;

/// Raw bytes of a unit if the units of the old shard are not known.
const UNIT_BYTES: usize = 4 << 20;

/// Maximum bytes between two records that are kept if they contain no erased id; more are removed unchecked.
const MAX_GAP_BYTES: u64 = 16 << 20;

/// A shard with records to be erased.
#[derive(Debug, Clone)]
pub struct AffectedShard {
    /// Metadata of the shard.
    pub shard: ShardMeta,
    /// Its runs, in row order.
    pub runs: Vec<Run>,
    /// Rows of the records, ascending.
    pub ordinals: Vec<u64>,
    /// Folder, format and indexes of the new shard.
    pub naming: ShardNaming,
    /// Number of the new shard.
    pub number: usize,
}

/// Settings for rewriting shards.
pub struct Eraser<'a> {
    /// The dataset whose shards are rewritten.
    pub rewriter: Rewriter<'a>,
    /// Current and former places of record numbers.
    pub runs: &'a RunTable,
    /// How content hashes are compared.
    pub hashes: ContentHashes,
    /// The erased ids; bytes between records that contain one are removed.
    pub erased_ids: &'a [String],
}

/// A rewritten shard, without the erased records.
#[derive(Debug)]
pub struct RewrittenShard {
    /// The new shard; `None` if no record was left.
    pub finished: Option<FinishedShard>,
    /// Tables of places of its records, if the shard was sorted.
    pub places: Vec<PlaceRef>,
    /// The staged tables of places.
    pub staged: Vec<Staged>,
    /// Bytes copied as stored.
    pub bytes_copied: u64,
    /// Bytes encoded again.
    pub bytes_reencoded: u64,
    /// Chained hash of its rows; only for Parquet.
    rows: Option<u64>,
}

/// Expected content of a new shard.
#[derive(Debug)]
pub struct ExpectedShard {
    shard: ShardMeta,
    rows: Option<u64>,
}

impl RewrittenShard {
    /// Returns the expected content of the new shard; `None` if there is none.
    pub fn expected_shard(&self) -> Option<ExpectedShard> {
        let finished = self.finished.as_ref()?;
        Some(ExpectedShard { shard: finished.shard.meta.clone(), rows: self.rows })
    }
}

impl Eraser<'_> {
    /// Rewrites a shard.
    ///
    /// # Errors
    /// Fails if the shard is damaged or the store fails.
    pub fn rewrite_shard(&self, affected: &AffectedShard) -> Result<RewrittenShard> {
        self.rewriter.cancel.check()?;
        let mut rewritten = RewrittenShard {
            finished: None,
            places: Vec::new(),
            staged: Vec::new(),
            bytes_copied: 0,
            bytes_reencoded: 0,
            rows: None,
        };
        if affected.ordinals.len() as u64 == affected.shard.records {
            return Ok(rewritten);
        }
        self.rewriter.verify_checksum(&affected.shard)?;
        let mut finished = match affected.naming.format.facts().framing {
            None => self.rewrite_rows(affected, &mut rewritten)?,
            Some(framing) => {
                let copied = self.rewrite_stream(affected, framing, &mut rewritten);
                copied.map_err(|e| self.locate_error(e, &affected.shard))?
            }
        };
        let shard = &mut finished.shard;
        let wanted = affected.shard.records - affected.ordinals.len() as u64;
        if shard.meta.records != wanted {
            return Err(Error::inconsistent_output(format!("expected {wanted} records, found {}", shard.meta.records)));
        }
        shard.meta.compacted_for = affected.shard.compacted_for;
        shard.meta.first_record = affected.shard.first_record;
        if let Some(order) = &affected.shard.order {
            let set = format!("{}-{}", affected.naming.tag.replace('/', "-"), affected.number);
            shard.meta.order = Some(ShardOrder { order: order.order.clone(), set: set.clone() });
            if affected.runs.iter().any(|run| run.scattered.is_some()) {
                let numbers = self.write_number_tables(affected, &set, shard, &mut rewritten)?;
                finished.staged.insert(0, numbers);
            }
        }
        self.rewriter.observer.event(Event::Read { bytes: affected.shard.bytes, records: affected.shard.records });
        rewritten.finished = Some(finished);
        Ok(rewritten)
    }

    /// Reads a new shard, which is published by now, and compares it with the kept records.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the shard has any other content.
    pub fn verify_rewritten(&self, expected: &ExpectedShard) -> Result<()> {
        let ExpectedShard { shard, rows } = expected;
        self.rewriter.verify_checksum(shard)?;
        let differs = |what: &str| {
            Err(Error::inconsistent_output(format!("expected only the kept records in the new shard, found {what}"))
                .at_location(self.rewriter.location_of(shard)))
        };
        if let Some(expected) = rows {
            let file = self.rewriter.open_shard(shard)?;
            let mut rows = Xxh3Default::new();
            for batch in file.into_batches(BATCH_ROWS) {
                chain_hashes(&mut rows, &batch?);
            }
            return if rows.digest() == *expected { Ok(()) } else { differs("other rows") };
        }
        let rows = read_sidecar(self.rewriter.store(), &shard.sidecar())?;
        let extents: Vec<RecordExtents> = rows.iter().map(RecordExtents::from_batch).collect::<Result<_>>()?;
        let last =
            extents.iter().rev().find_map(|batch| batch.offsets.values().last().zip(batch.lengths.values().last()));
        let body = last.map_or(0, |(offset, length)| offset + length);
        let mut proof = Records::new(extents, body, false, self.hashes.clone())?;
        let mut source = stream::open_shard_decoder(shard.codec, self.rewriter.store().read(&shard.path)?)?;
        let mut left = source.by_ref().take(body);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let n = left.read(&mut buffer).map_err(|e| Error::from(e).at_location(self.rewriter.location_of(shard)))?;
            if n == 0 {
                break;
            }
            proof.update(&buffer[..n])?;
        }
        proof.finish()
    }

    /// Decodes a Parquet shard and encodes the rows that are kept.
    fn rewrite_rows(&self, affected: &AffectedShard, rewritten: &mut RewrittenShard) -> Result<FinishedShard> {
        let shard = &affected.shard;
        let file = self.rewriter.open_shard(shard)?;
        let schema = schema_of(&unite_lists(&Fields::empty(), file.schema().fields()));
        let parquet = match &shard.order {
            Some(order) => sorted_parquet_encoder(shard.codec, &schema, &order.order, Vec::new())?,
            None => parquet_encoder(shard.codec, &schema)?,
        };
        let mut out = ParquetShardWriter::create(self.rewriter.store(), &parquet, &affected.naming, affected.number)?;
        let mut rows = Xxh3Default::new();
        let mut pending = RowGroups::new(&parquet, self.rewriter.row_group);
        let mut filter = RowFilter::new(&affected.ordinals);
        for batch in file.into_batches(BATCH_ROWS) {
            self.rewriter.cancel.check()?;
            let batch = cast_to(&filter.filter_batch(&batch?)?, &schema)?;
            chain_hashes(&mut rows, &batch);
            pending.push(batch, &mut out)?;
        }
        filter.finish(shard)?;
        pending.finish(&mut out)?;
        let mut filter = RowFilter::new(&affected.ordinals);
        for batch in sidecar_batches(self.rewriter.dataset.store(), &shard.sidecar(), BATCH_ROWS)? {
            out.append_sidecar(&filter.filter_batch(&batch?)?)?;
        }
        filter.finish(shard)?;
        rewritten.rows = Some(rows.digest());
        rewritten.bytes_reencoded = shard.bytes;
        out.finish(&kept_runs(affected))
    }

    /// Copies the records that are kept.
    fn rewrite_stream(
        &self,
        affected: &AffectedShard,
        framing: &dyn Framing,
        rewritten: &mut RewrittenShard,
    ) -> Result<FinishedShard> {
        let shard = &affected.shard;
        let sidecar = read_sidecar(self.rewriter.store(), &shard.sidecar())?;
        if framing.has_keys() {
            self.check_seams(affected)?;
        }
        let mut out = StreamShardWriter::create(self.rewriter.store(), framing, &affected.naming, affected.number)?;
        let extents: Vec<RecordExtents> = sidecar.iter().map(RecordExtents::from_batch).collect::<Result<_>>()?;
        let plain = shard.codec == Codec::None;
        let pieces = plan_pieces(&extents, &affected.ordinals, if plain { shard.body_bytes } else { 0 });
        let body = pieces.last().map_or(0, |piece| piece.end);
        let mut copying = ErasingCopy {
            eraser: self,
            shard,
            out: &mut out,
            proof: Records::new(extents, body, false, self.hashes.clone())?,
            pieces: &pieces,
            removed: Vec::new(),
            copied: 0,
            reencoded: 0,
        };
        let frames = if plain { None } else { read_frames(self.rewriter.dataset.store(), &shard.sidecar())? };
        match frames {
            _ if plain => copying.copy_uncompressed()?,
            Some(frames) => copying.copy_units(&frames)?,
            None => copying.copy_recompressed()?,
        }
        let ErasingCopy { proof, removed, copied, reencoded, .. } = copying;
        proof.finish()?;
        (rewritten.bytes_copied, rewritten.bytes_reencoded) = (copied, reencoded);
        let mut filter = RowFilter::new(&affected.ordinals);
        for batch in &sidecar {
            let kept = filter.filter_batch(batch)?;
            let extents = RecordExtents::from_batch(&kept)?;
            for (rows, shift) in row_shifts(extents.offsets.values(), &removed) {
                out.append_sidecar(&kept.slice(rows.start, rows.len()), -i128::from(shift))?;
            }
        }
        filter.finish(shard)?;
        out.finish(&kept_runs(affected))
    }

    /// Refuses to put two records with one key next to each other, because readers would merge them into one.
    fn check_seams(&self, affected: &AffectedShard) -> Result<()> {
        let mut ends: Vec<u64> = Vec::new();
        for hole in affected.ordinals.chunk_by(|a, b| a + 1 == *b) {
            let (Some(first), Some(last)) = (hole.first(), hole.last()) else { continue };
            if *first > 0 && last + 1 < affected.shard.records {
                ends.extend([first - 1, last + 1]);
            }
        }
        let mut rows = ends.clone();
        rows.dedup();
        let found = read_sidecar_rows(self.rewriter.dataset.store(), &affected.shard.sidecar(), &rows)?;
        let id = |row: &u64| rows.binary_search(row).ok().and_then(|at| found.get(at)).map(SidecarRow::id_or_origin);
        match ends.chunks_exact(2).find(|pair| id(&pair[0]) == id(&pair[1])) {
            None => Ok(()),
            Some(pair) => Err(twice_in_a_row(token_of(&id(&pair[0]).unwrap_or_default()))
                .with_hint("erase that record, too, or convert the sources again with a unique --id")),
        }
    }

    /// Writes the tables of numbers and places of a sorted shard.
    fn write_number_tables(
        &self,
        affected: &AffectedShard,
        set: &str,
        shard: &mut NewShard,
        rewritten: &mut RewrittenShard,
    ) -> Result<Staged> {
        let store = self.rewriter.dataset.store();
        let live: Vec<&Run> = affected.runs.iter().collect();
        let mut numbers = NumbersWriter::create(store.as_ref(), &shard.meta.path)?;
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        let mut holes = affected.ordinals.iter().peekable();
        for (ordinal, known) in (0_u64..).zip(numbered_rows(store, &live, self.runs)?) {
            let known = known?.ok_or_else(|| Error::integrity(format!("row {ordinal} has no record number")))?;
            if holes.next_if_eq(&&ordinal).is_some() {
                continue;
            }
            numbers.push(known.record, known.first_version)?;
            pairs.push((known.record, pairs.len() as u64));
        }
        pairs.sort_unstable();
        let mut places = PlacesWriter::new(store.as_ref(), set)?;
        pairs.iter().try_for_each(|(record, ordinal)| places.push(*record, 0, *ordinal))?;
        (rewritten.places, rewritten.staged) = places.finish()?.into_iter().unzip();
        let (first, last) = (pairs.first().map_or(0, |pair| pair.0), pairs.last().map_or(0, |pair| pair.0));
        shard.scattered = Some(Scattered { span: last - first + 1, set: set.to_owned(), shard: 0, base: None });
        shard.runs = vec![(first, pairs.len() as u64, 0)];
        numbers.finish()
    }

    fn locate_error(&self, error: Error, shard: &ShardMeta) -> Error {
        if error.place().source.is_none() { error.at_location(self.rewriter.location_of(shard)) } else { error }
    }
}

/// Adds the hashes of rows to a chain.
fn chain_hashes(rows: &mut Xxh3Default, batch: &RecordBatch) {
    row_hashes(batch).iter().for_each(|hash| rows.update(&hash.to_le_bytes()));
}

/// Returns the first record number and length of each run of the new shard; sorted shards get theirs from `scatter`.
fn kept_runs(affected: &AffectedShard) -> Vec<(u64, Option<u64>)> {
    if affected.runs.iter().any(|run| run.scattered.is_some()) {
        return vec![(affected.shard.first_record, None)];
    }
    let mut out = Vec::new();
    let mut holes = affected.ordinals.iter().copied().peekable();
    for run in &affected.runs {
        let (mut at, end) = (run.ordinal, run.ordinal + run.records);
        while at < end {
            let hole = holes.next_if(|hole| *hole < end).unwrap_or(end);
            if hole > at {
                out.push((run.first + (at - run.ordinal), Some(hole - at)));
            }
            at = hole + 1;
        }
    }
    out
}

/// Removes rows from consecutive batches.
struct RowFilter<'a> {
    holes: &'a [u64],
    at: u64,
}

impl<'a> RowFilter<'a> {
    fn new(holes: &'a [u64]) -> Self {
        Self { holes, at: 0 }
    }

    fn filter_batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let end = self.at + batch.num_rows() as u64;
        let count = self.holes.partition_point(|hole| *hole < end);
        let (now, rest) = self.holes.split_at(count);
        let mut keep = vec![true; batch.num_rows()];
        for hole in now {
            if let Some(row) = usize::try_from(hole - self.at).ok().and_then(|row| keep.get_mut(row)) {
                *row = false;
            }
        }
        (self.holes, self.at) = (rest, end);
        if now.is_empty() { Ok(batch.clone()) } else { Ok(filter_record_batch(batch, &BooleanArray::from(keep))?) }
    }

    /// Fails unless all rows of the shard were seen.
    fn finish(self, shard: &ShardMeta) -> Result<()> {
        if self.at == shard.records {
            return Ok(());
        }
        Err(Error::integrity(format!("expected {} records, found {}", shard.records, self.at))
            .at_location(shard.path.clone()))
    }
}

/// What is done with consecutive raw bytes of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceAction {
    Keep,
    Drop,
    /// Bytes between records: kept unless they contain an erased id.
    Gap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RawPiece {
    end: u64,
    action: PieceAction,
}

/// Divides the raw bytes of a shard up to its last record, or to `body` if that is larger.
fn plan_pieces(extents: &[RecordExtents], holes: &[u64], body: u64) -> Vec<RawPiece> {
    let mut out: Vec<RawPiece> = Vec::new();
    let mut push = |end: u64, action: PieceAction| match out.last_mut() {
        Some(last) if last.action == action && action != PieceAction::Gap => last.end = end,
        _ => out.push(RawPiece { end, action }),
    };
    let (mut at, mut ordinal) = (0, 0);
    let mut holes = holes.iter().peekable();
    for batch in extents {
        for (offset, length) in batch.offsets.values().iter().zip(batch.lengths.values()) {
            if *offset > at {
                push(*offset, PieceAction::Gap);
            }
            at = offset.saturating_add(*length);
            push(at, if holes.next_if_eq(&&ordinal).is_some() { PieceAction::Drop } else { PieceAction::Keep });
            ordinal += 1;
        }
    }
    if body > at {
        push(body, PieceAction::Gap);
    }
    out
}

/// Groups rows whose records move by the same number of bytes, given their offsets and the removed ranges (offset,
/// bytes).
fn row_shifts(offsets: &[u64], removed: &[(u64, u64)]) -> Vec<(std::ops::Range<usize>, u64)> {
    let mut out: Vec<(std::ops::Range<usize>, u64)> = Vec::new();
    let (mut before, mut shift) = (0, 0);
    for (row, offset) in offsets.iter().enumerate() {
        while let Some((_, bytes)) = removed.get(before).filter(|(at, _)| at < offset) {
            shift += bytes;
            before += 1;
        }
        match out.last_mut() {
            Some((rows, last)) if *last == shift => rows.end = row + 1,
            _ => out.push((row..row + 1, shift)),
        }
    }
    out
}

/// State of copying a shard of framed records.
struct ErasingCopy<'a> {
    eraser: &'a Eraser<'a>,
    shard: &'a ShardMeta,
    out: &'a mut StreamShardWriter,
    proof: Records,
    pieces: &'a [RawPiece],
    /// Offset and length of each removed range.
    removed: Vec<(u64, u64)>,
    copied: u64,
    reencoded: u64,
}

impl ErasingCopy<'_> {
    /// Copies an uncompressed shard from file to file.
    fn copy_uncompressed(&mut self) -> Result<()> {
        let mut source = self.eraser.rewriter.store().read(&self.shard.path)?;
        let mut at = 0;
        for (number, piece) in self.pieces.iter().enumerate() {
            self.eraser.rewriter.cancel.check()?;
            let bytes = piece.end - at;
            match piece.action {
                PieceAction::Keep => {
                    let proof = &mut self.proof;
                    let taken = self.out.append_from(&mut source, bytes, &mut |piece| proof.update(piece))?;
                    self.out.end_bytes(taken, 0, &stream::Frames::default());
                    self.copied += taken;
                }
                PieceAction::Gap if bytes <= MAX_GAP_BYTES => {
                    let mut gap = Vec::new();
                    source.by_ref().take(bytes).read_to_end(&mut gap)?;
                    self.proof.update(&gap)?;
                    // A tar member of a folder precedes its files, and its name may be an erased one.
                    let before = self.pieces.get(number + 1).is_some_and(|next| next.action == PieceAction::Drop);
                    if (before && !is_global(&gap)) || self.contains_erased_id(&gap) {
                        self.removed.push((at, bytes));
                    } else {
                        self.out.append_bytes(&gap)?;
                        self.out.end_bytes(bytes, 0, &stream::Frames::default());
                        self.copied += bytes;
                    }
                }
                PieceAction::Drop | PieceAction::Gap => {
                    self.skip_bytes(&mut source, bytes)?;
                    self.removed.push((at, bytes));
                }
            }
            at = piece.end;
        }
        Ok(())
    }

    /// Copies a shard unit by unit; units without removed bytes are copied as stored.
    fn copy_units(&mut self, frames: &FrameTable) -> Result<()> {
        let mut source = self.eraser.rewriter.store().read(&self.shard.path)?;
        std::io::copy(&mut source.by_ref().take(frames.stored_range().0), &mut std::io::sink())?;
        let units = frames.to_frames();
        let mut at = 0;
        for (stored_bytes, raw_bytes) in units.units().unwrap_or_default() {
            self.eraser.rewriter.cancel.check()?;
            let mut stored = Vec::new();
            source.by_ref().take(u64::from(*stored_bytes)).read_to_end(&mut stored)?;
            let raw = self.shard.codec.decompress_unit(&stored, u64::from(*raw_bytes))?;
            self.proof.update(&raw)?;
            let kept = self.kept_bytes(&raw, at);
            let mut one = stream::Frames::default();
            match kept {
                None => {
                    let crc = if matches!(self.shard.codec, Codec::Gzip(_)) { crc32fast::hash(&raw) } else { 0 };
                    one.push(stored.len() as u64, raw.len() as u64);
                    self.out.append_bytes(&stored)?;
                    self.out.end_bytes(raw.len() as u64, crc, &one);
                    self.copied += stored.len() as u64;
                }
                Some(kept) => {
                    self.reencoded += stored.len() as u64;
                    self.out.append_unit(self.shard.codec, kept)?;
                }
            }
            at += u64::from(*raw_bytes);
        }
        Ok(())
    }

    /// Rewrites a shard that another program compressed as one stream: everything is compressed again, in units.
    fn copy_recompressed(&mut self) -> Result<()> {
        let mut source =
            stream::open_shard_decoder(self.shard.codec, self.eraser.rewriter.store().read(&self.shard.path)?)?;
        let (mut at, mut kept) = (0, Vec::new());
        for piece in self.pieces {
            self.eraser.rewriter.cancel.check()?;
            let mut left = piece.end - at;
            if piece.action != PieceAction::Keep {
                self.skip_bytes(&mut source, left)?;
                self.removed.push((at, left));
                left = 0;
            }
            while left > 0 {
                let from = kept.len();
                let room = (UNIT_BYTES.saturating_sub(from)).max(1) as u64;
                let taken = source.by_ref().take(left.min(room)).read_to_end(&mut kept)?;
                if taken == 0 {
                    return Err(Error::integrity(format!("expected {left} more bytes, found the end of the shard")));
                }
                self.proof.update(&kept[from..])?;
                left -= taken as u64;
                if kept.len() >= UNIT_BYTES {
                    self.out.append_unit(self.shard.codec, std::mem::take(&mut kept))?;
                }
            }
            at = piece.end;
        }
        self.reencoded = self.shard.bytes;
        self.out.append_unit(self.shard.codec, kept)
    }

    /// Returns the kept raw bytes of a unit; `None` if all are kept.
    fn kept_bytes(&mut self, raw: &[u8], start: u64) -> Option<Vec<u8>> {
        let end = start + raw.len() as u64;
        let first = self.pieces.partition_point(|piece| piece.end <= start);
        let mut kept = Vec::new();
        let (mut at, mut all) = (start, true);
        for piece in &self.pieces[first..] {
            if at >= end {
                break;
            }
            let to = piece.end.min(end);
            let range = usize::try_from(at - start).ok()?..usize::try_from(to - start).ok()?;
            if piece.action == PieceAction::Keep {
                kept.extend_from_slice(&raw[range]);
            } else {
                all = false;
                self.removed.push((at, to - at));
            }
            at = to;
        }
        (!all).then_some(kept)
    }

    /// Reads and verifies bytes without copying them.
    fn skip_bytes(&mut self, source: &mut dyn Read, bytes: u64) -> Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut left = source.take(bytes);
        loop {
            let n = left.read(&mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            self.proof.update(&buffer[..n])?;
        }
    }

    fn contains_erased_id(&self, bytes: &[u8]) -> bool {
        self.eraser.erased_ids.iter().any(|id| memchr::memmem::find(bytes, id.as_bytes()).is_some())
    }
}

/// Returns whether blocks of a tar contain an extended header that applies to all following members.
fn is_global(gap: &[u8]) -> bool {
    gap.chunks(512).any(|block| block.get(156) == Some(&b'g') && block.get(257..262) == Some(b"ustar"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::UInt64Array;

    use super::*;
    use crate::{format::OutputFormat, id::Version};

    fn extents(records: &[(u64, u64)]) -> RecordExtents {
        RecordExtents {
            offsets: records.iter().map(|record| record.0).collect::<Vec<_>>().into(),
            lengths: records.iter().map(|record| record.1).collect::<Vec<_>>().into(),
            hashes: UInt64Array::from(vec![0; records.len()]),
        }
    }

    #[test]
    fn pieces_cover_every_byte_and_join_neighbours() {
        let batches = [extents(&[(0, 10), (10, 5), (15, 5)]), extents(&[(24, 6), (30, 10)])];
        let fates = |holes: &[u64], body| -> Vec<(u64, PieceAction)> {
            plan_pieces(&batches, holes, body).iter().map(|piece| (piece.end, piece.action)).collect()
        };
        use PieceAction::{Drop, Gap, Keep};
        assert_eq!(fates(&[], 40), [(20, Keep), (24, Gap), (40, Keep)]);
        assert_eq!(
            fates(&[1, 4], 44),
            [(10, Keep), (15, Drop), (20, Keep), (24, Gap), (30, Keep), (40, Drop), (44, Gap)]
        );
        assert_eq!(fates(&[0, 1, 2, 3, 4], 0), [(20, Drop), (24, Gap), (40, Drop)]);
    }

    #[test]
    fn rows_move_by_what_was_removed_before_them() {
        assert_eq!(row_shifts(&[0, 15, 24], &[(10, 5), (20, 4)]), [(0..1, 0), (1..2, 5), (2..3, 9)]);
        assert_eq!(row_shifts(&[0, 10], &[]), [(0..2, 0)]);
        assert!(row_shifts(&[], &[(0, 1)]).is_empty());
    }

    #[test]
    fn runs_split_around_holes() {
        let run = |first, records, ordinal| Run {
            first,
            records,
            shard: "s".into(),
            ordinal,
            from: Version(1),
            until: None,
            since: None,
            scattered: None,
            beside: crate::dataset::Beside::placeholder(),
        };
        let naming = ShardNaming {
            tag: "t".into(),
            format: OutputFormat::Tar,
            codec: Codec::None,
            indexes: Vec::new(),
            fingerprints: false,
        };
        let affected = |ordinals: &[u64]| AffectedShard {
            shard: ShardMeta { path: "s".into(), records: 15, version: Version(1), ..ShardMeta::placeholder() },
            runs: vec![run(100, 10, 0), run(50, 5, 10)],
            ordinals: ordinals.to_vec(),
            naming: naming.clone(),
            number: 0,
        };
        let runs = |ordinals: &[u64]| -> Vec<(u64, u64)> {
            kept_runs(&affected(ordinals)).into_iter().map(|(first, records)| (first, records.unwrap())).collect()
        };
        assert_eq!(runs(&[]), [(100, 10), (50, 5)]);
        assert_eq!(runs(&[0, 4, 5, 9, 10, 14]), [(101, 3), (106, 3), (51, 3)]);
        assert_eq!(runs(&(0..10).collect::<Vec<_>>()), [(50, 5)]);
    }
}
