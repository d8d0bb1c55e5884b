//! Copies records of tar and TFRecord shards as they are stored.
//!
//! ```text
//! uncompressed   | record | record | gap | record |     ranges of bytes, compared with the hashes of the sidecar
//! compressed     | unit             | unit        |     whole units as stored; else records, compressed again
//! ```
//!
//! Bytes between the records of a foreign tar (folders, global headers) are not copied: they may name records that are
//! omitted.

use std::io::Read;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, UInt64Array};

use super::{NewCut, Resharder, StockPart};
use crate::{
    codec::{Codec, stream},
    dataset::{FrameTable, RecordExtents, ShardMeta, read_frames, token_of},
    error::{Error, Result},
    exec::{
        copy::{Records, twice_in_a_row},
        shard::{FinishedShard, StreamShardWriter},
    },
    format::{Framing, parquet::Tally},
    storage::{Pin, Reading},
};

/// Raw bytes of a unit that is compressed again.
const UNIT_BYTES: usize = 4 << 20;

/// Bytes that are read and dropped rather than skipped by another request, of local and of remote shards.
const LOCAL_GAP: u64 = 16 << 10;
const REMOTE_GAP: u64 = 1 << 20;

/// Bytes to read at a time if they are not copied.
const READ_BYTES: usize = 256 << 10;

/// Ranges of raw bytes of a shard: first byte, and the byte after the last.
type Ranges = Vec<(u64, u64)>;

impl Resharder<'_> {
    pub(super) fn write_stream(&self, new: &NewCut<'_>, framing: &dyn Framing) -> Result<(FinishedShard, Tally)> {
        let mut out = StreamShardWriter::create(self.child.store().as_ref(), framing, &new.naming, new.number)?;
        let mut seams = framing.has_keys().then(Seams::default);
        let mut tally = Tally::default();
        for part in &new.parts {
            let copied = self.copy_part(part, &mut out, seams.as_mut());
            tally += copied.map_err(|e| self.locate_error(e, &part.stock.shard))?;
        }
        Ok((out.finish(&self.new_runs(new)?)?, tally))
    }

    fn copy_part(&self, part: &StockPart<'_>, out: &mut StreamShardWriter, seams: Option<&mut Seams>) -> Result<Tally> {
        let (stock, shard) = (part.stock, &part.stock.shard);
        let sidecar = self.sidecar_rows(stock, &stock.row_ranges(&part.kept))?;
        if let Some(seams) = seams {
            sidecar.iter().try_for_each(|batch| seams.check_batch(batch))?;
        }
        let base = out.append_bytes(&[])?;
        let (ranges, extents, moved) = move_records(&sidecar, shard, base)?;
        let body = ranges.iter().map(|(start, end)| end - start).sum();
        let proof = Records::new(extents, body, false, self.hashes.clone())?;
        if !proof.contiguous {
            // Some records have no known hash.
            self.verify_once(stock)?;
        }
        let mut copying = PartCopy { resharder: self, shard, out, proof, pending: Vec::new(), tally: Tally::default() };
        if shard.codec == Codec::None {
            copying.copy_uncompressed(&ranges)?;
            copying.out.end_bytes(body, 0, &stream::Frames::default());
        } else {
            match read_frames(self.rewriter.dataset.store(), &shard.sidecar())? {
                Some(frames) => copying.copy_units(&ranges, &frames)?,
                None => copying.copy_recompressed(&ranges)?,
            }
        }
        let PartCopy { proof, tally, .. } = copying;
        proof.finish()?;
        moved.iter().try_for_each(|batch| out.append_sidecar(batch, 0))?;
        Ok(tally)
    }
}

/// Refuses neighbours with one key, because readers would merge them into one sample.
#[derive(Default)]
struct Seams {
    last: Option<String>,
}

impl Seams {
    fn check_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let Some(ids) = batch.column_by_name("record_id").and_then(|ids| ids.as_any().downcast_ref::<StringArray>())
        else {
            return Err(Error::integrity("expected record ids in a sidecar, found none"));
        };
        let mut last = self.last.as_deref();
        for id in ids {
            if id.is_some() && id == last {
                return Err(twice_in_a_row(token_of(id.unwrap_or_default())).with_hint(
                    "leave one of them out with --where or --ids, or convert the sources again with a unique --id",
                ));
            }
            last = id;
        }
        self.last = last.map(str::to_owned);
        Ok(())
    }
}

/// Returns the raw bytes of some records in their shard, their extents counted from 0, and their sidecar rows with
/// offsets counted from `base`.
fn move_records(
    sidecar: &[RecordBatch],
    shard: &ShardMeta,
    base: u64,
) -> Result<(Ranges, Vec<RecordExtents>, Vec<RecordBatch>)> {
    let (mut ranges, mut extents, mut moved): (Ranges, Vec<RecordExtents>, Vec<RecordBatch>) = Default::default();
    let mut at = 0;
    let most = if shard.codec == Codec::None { shard.bytes } else { shard.raw_bytes };
    for batch in sidecar {
        let known = RecordExtents::from_batch(batch)?;
        let mut offsets = Vec::with_capacity(batch.num_rows());
        for (offset, length) in known.offsets.values().iter().zip(known.lengths.values()) {
            let end = offset.checked_add(*length).filter(|end| *end <= most && *length > 0);
            let (last, end) = (ranges.last().map_or(0, |(_, end)| *end), end.unwrap_or(0));
            if *offset < last || end == 0 {
                return Err(Error::integrity(format!(
                    "expected a record after byte {last}, found one at another offset"
                ))
                .at_byte(*offset)
                .with_hint("the sidecar is damaged; convert the sources again into a new dataset"));
            }
            match ranges.last_mut().filter(|(_, last)| last == offset) {
                Some((_, last)) => *last = end,
                None => ranges.push((*offset, end)),
            }
            offsets.push(at);
            at += length;
        }
        let shifted: ArrayRef = Arc::new(UInt64Array::from_iter_values(offsets.iter().map(|offset| offset + base)));
        let fields = batch.schema_ref().fields().iter().zip(batch.columns());
        let columns = fields.map(|(field, column)| if field.name() == "offset" { &shifted } else { column });
        moved.push(RecordBatch::try_new(batch.schema(), columns.cloned().collect())?);
        extents.push(RecordExtents { offsets: offsets.into(), ..known });
    }
    Ok((ranges, extents, moved))
}

/// State of copying a part.
struct PartCopy<'a> {
    resharder: &'a Resharder<'a>,
    shard: &'a ShardMeta,
    out: &'a mut StreamShardWriter,
    proof: Records,
    /// Raw bytes of records that are compressed again.
    pending: Vec<u8>,
    tally: Tally,
}

impl PartCopy<'_> {
    /// Copies ranges of an uncompressed shard.
    fn copy_uncompressed(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        let store = self.resharder.rewriter.dataset.store();
        let gap = if store.location().local_path().is_some() { LOCAL_GAP } else { REMOTE_GAP };
        let last = ranges.last().map_or(0, |(_, end)| *end);
        let mut open: Option<(Box<dyn Read + Send>, u64)> = None;
        for (start, end) in ranges {
            self.resharder.rewriter.cancel.check()?;
            let mut source = match open.take().filter(|(_, at)| start - at <= gap) {
                Some((mut source, at)) => {
                    std::io::copy(&mut source.by_ref().take(start - at), &mut std::io::sink())?;
                    source
                }
                None => store.open_reader(&self.shard.path, Reading::Range(*start..last, &Pin::default()))?,
            };
            let proof = &mut self.proof;
            let taken = self.out.append_from(&mut source, end - start, &mut |piece| proof.update(piece))?;
            if taken < end - start {
                return Err(unexpected_end(end - start - taken));
            }
            self.tally.copied += taken;
            open = Some((source, *end));
        }
        Ok(())
    }

    /// Copies records of a compressed shard whose units are known.
    fn copy_units(&mut self, mut ranges: &[(u64, u64)], frames: &FrameTable) -> Result<()> {
        let store = self.resharder.rewriter.dataset.store();
        let (mut stored_at, mut raw_at) = (frames.stored_range().0, 0);
        for (stored_bytes, raw_bytes) in frames.to_frames().units().unwrap_or_default() {
            let (unit, end) = (raw_at, raw_at + u64::from(*raw_bytes));
            let stored = stored_at..stored_at + u64::from(*stored_bytes);
            (stored_at, raw_at) = (stored.end, end);
            while ranges.first().is_some_and(|(_, last)| *last <= unit) {
                ranges = &ranges[1..];
            }
            let Some((first, last)) = ranges.first().copied().filter(|(first, _)| *first < end) else { continue };
            self.resharder.rewriter.cancel.check()?;
            let bytes = store.get_range(&self.shard.path, stored)?;
            let raw = self.shard.codec.decompress_unit(&bytes, u64::from(*raw_bytes))?;
            if first <= unit && end <= last {
                self.flush()?;
                self.proof.update(&raw)?;
                let crc = if matches!(self.shard.codec, Codec::Gzip(_)) { crc32fast::hash(&raw) } else { 0 };
                let mut one = stream::Frames::default();
                one.push(bytes.len() as u64, raw.len() as u64);
                self.out.append_bytes(&bytes)?;
                self.out.end_bytes(raw.len() as u64, crc, &one);
                self.tally.copied += bytes.len() as u64;
                continue;
            }
            self.tally.reencoded += bytes.len() as u64;
            for (first, last) in ranges.iter().take_while(|(first, _)| *first < end) {
                let at = |byte: u64| usize::try_from(byte.clamp(unit, end) - unit).unwrap_or(raw.len());
                let kept = &raw[at(*first)..at(*last)];
                self.proof.update(kept)?;
                self.pending.extend_from_slice(kept);
            }
            if self.pending.len() >= UNIT_BYTES {
                self.flush()?;
            }
        }
        self.flush()
    }

    /// Copies records of a shard that another program compressed as one stream.
    fn copy_recompressed(&mut self, ranges: &[(u64, u64)]) -> Result<()> {
        let store = self.resharder.rewriter.dataset.store();
        let mut source = stream::open_shard_decoder(self.shard.codec, store.read(&self.shard.path)?)?;
        let mut at = 0;
        for (start, end) in ranges {
            self.resharder.rewriter.cancel.check()?;
            std::io::copy(&mut source.by_ref().take(start - at), &mut std::io::sink())?;
            let mut left = end - start;
            while left > 0 {
                let from = self.pending.len();
                let taken = source.by_ref().take(left.min(READ_BYTES as u64)).read_to_end(&mut self.pending)? as u64;
                if taken == 0 {
                    return Err(unexpected_end(left));
                }
                self.proof.update(&self.pending[from..])?;
                left -= taken;
            }
            if self.pending.len() >= UNIT_BYTES {
                self.flush()?;
            }
            at = *end;
        }
        self.tally.reencoded += self.shard.bytes;
        self.flush()
    }

    /// Compresses what is pending as a unit.
    fn flush(&mut self) -> Result<()> {
        self.out.append_unit(self.shard.codec, std::mem::take(&mut self.pending))
    }
}

pub(super) fn unexpected_end(left: u64) -> Error {
    Error::integrity(format!("expected {left} more bytes, found the end of the shard"))
}
