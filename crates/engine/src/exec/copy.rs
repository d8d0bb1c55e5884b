//! Merges tar and TFRecord shards: records are copied as stored and verified on the way.
//!
//! Every byte is read once. On its way to the new shard, it is added to that shard's checksum and to the verification
//! of the old shard:
//!
//! ```text
//! shard      | head | record 0 | record 1 | ...      | trailer |
//! verified          XXH3 = sidecar's, CRC-32C of TFRecord        total bytes = recorded size
//! new shard  ...    | record 0 | record 1 | ...
//! ```
//!
//! If record boundaries are not visible (compressed shards) or other bytes lie between records (tars of other
//! programs), the checksum of the whole shard is verified instead. Sidecar rows are carried over with their offsets
//! moved.

use std::io::{self, Read};

use arrow::array::RecordBatch;
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    compact::{Merge, Merger, input_runs},
    rewrite::check_checksum,
    shard::{FinishedShard, StreamShardWriter},
    splice::{BATCH_FILES, WHOLE_BYTES, input_batches},
};
use crate::{
    codec::{Codec, checksum::xxh3_64, stream::Frames},
    dataset::{ContentHashes, RecordExtents, ShardMeta, end_ids, read_frames, read_sidecar},
    error::{Error, Result},
    events::Event,
    format::{
        Framing, OutputFormat,
        tfrecord::{RecordSum, check_record},
    },
    storage::{RequestMemory, for_each_waiting},
};

/// Bytes to read at a time if they are not copied.
const SKIP_BYTES: usize = 64 << 10;

impl Merger<'_> {
    /// Merges shards of framed records.
    pub(super) fn copy_shards(&self, merge: &Merge, framing: &dyn Framing) -> Result<FinishedShard> {
        let trailer = framing.trailer().len() as u64;
        // A shard of another program may end in another trailer; without compression, the body is the records alone.
        let raw_body = |input: &ShardMeta| {
            if input.codec == Codec::None { input.body_bytes } else { input.raw_bytes - trailer }
        };
        let naming = self.naming.in_partition(&merge.partition);
        let mut out = StreamShardWriter::create(self.rewriter.store(), framing, &naming, merge.number)?;
        let mut last = None;
        let opened = input_batches(&merge.inputs).flat_map(|batch| match self.open_all(batch) {
            Ok(opened) => batch.iter().zip(opened).map(Ok).collect::<Vec<_>>(),
            Err(e) => vec![Err(e)],
        });
        for one in opened {
            let ((input, _), OpenedInput { rows, frames, body }) = one?;
            self.check_rows(input, &rows)?;
            if framing.has_keys()
                && let Some((first, end)) = end_ids(&rows)?
            {
                self.check_seam(input, last.as_deref(), &first)?;
                last = Some(end);
            }
            let base = self.copy_body(input, &rows, body, &mut out)?;
            out.end_bytes(raw_body(input), input.body_crc32, &frames);
            rows.iter().try_for_each(|batch| out.append_sidecar(batch, i128::from(base)))?;
            self.rewriter.observer.event(Event::Read { bytes: input.bytes, records: input.records });
        }
        out.finish(&input_runs(merge))
    }

    /// Reads the sidecars of a batch of inputs, and of a remote store the inputs as well, all at the same time.
    fn open_all<T: Sync>(&self, batch: &[(ShardMeta, T)]) -> Result<Vec<OpenedInput>> {
        let store = self.rewriter.store();
        let is_remote = store.location().local_path().is_none();
        for_each_waiting(store, RequestMemory::for_count(BATCH_FILES as u64), batch, |(input, _)| {
            self.rewriter.cancel.check()?;
            let mut body = None;
            if is_remote && input.bytes <= WHOLE_BYTES {
                let mut bytes = Vec::new();
                store.read_whole(&input.path, input.bytes, &mut bytes)?;
                body = Some(bytes);
            }
            Ok(OpenedInput { rows: read_sidecar(store, &input.sidecar())?, frames: self.input_frames(input)?, body })
        })
    }

    /// Returns the compression units of a shard; unknown if it was written without a table of them.
    fn input_frames(&self, input: &ShardMeta) -> Result<Frames> {
        if input.codec.stream_extension().is_empty() {
            return Ok(Frames::default());
        }
        Ok(read_frames(self.rewriter.dataset.store(), &input.sidecar())?
            .map_or(Frames::UNKNOWN, |table| table.to_frames()))
    }

    /// Refuses to put two records with the same id next to each other, because readers would merge them into one.
    fn check_seam(&self, input: &ShardMeta, last: Option<&str>, first: &str) -> Result<()> {
        if last != Some(first) {
            return Ok(());
        }
        Err(twice_in_a_row(first)
            .at_location(self.rewriter.location_of(input))
            .with_hint("exclude one of the two shards with --since or --until"))
    }

    /// Copies the records of a shard, as stored, and verifies them; returns their offset in the new shard.
    fn copy_body(
        &self,
        input: &ShardMeta,
        rows: &[RecordBatch],
        body: Option<Vec<u8>>,
        out: &mut StreamShardWriter,
    ) -> Result<u64> {
        let mut source: Box<dyn Read + Send> = match body {
            Some(bytes) => Box::new(io::Cursor::new(bytes)),
            None => self.rewriter.store().read(&input.path)?,
        };
        let mut proof = self.proof_for(input, rows).map_err(|e| e.at_location(self.rewriter.location_of(input)))?;
        let mut bytes = skip_bytes(&mut source, input.body_offset, &mut proof)?;
        let base = out.append_bytes(&[])?;
        bytes += out.append_from(&mut source, input.body_bytes, &mut |piece| {
            self.rewriter.cancel.check()?;
            proof.update_whole(piece);
            proof.update_records(piece).map_err(|e| e.at_location(self.rewriter.location_of(input)))
        })?;
        bytes += skip_bytes(&mut source, u64::MAX, &mut proof)?;
        let checksum = proof.finish().map_err(|e| e.at_location(self.rewriter.location_of(input)))?;
        check_checksum(self.rewriter.dataset, input, bytes, checksum.as_ref())?;
        Ok(base)
    }

    /// Returns the verification that a shard needs.
    fn proof_for(&self, input: &ShardMeta, rows: &[RecordBatch]) -> Result<Proof> {
        let crc = self.check_crc && self.naming.format == OutputFormat::TfRecord;
        let mut records = None;
        if input.codec == Codec::None && input.body_offset == 0 {
            let extents: Vec<RecordExtents> = rows.iter().map(RecordExtents::from_batch).collect::<Result<_>>()?;
            records = Some(Records::new(extents, input.body_bytes, crc, self.hashes.clone())?);
        }
        let whole = records.as_ref().is_none_or(|records| !records.contiguous);
        Ok(Proof { records, whole: whole.then(Box::default) })
    }
}

/// An input that has been opened.
struct OpenedInput {
    rows: Vec<RecordBatch>,
    frames: Frames,
    /// Its bytes, if they were read.
    body: Option<Vec<u8>>,
}

/// Reads up to `bytes` bytes without copying them; returns how many were read.
fn skip_bytes(source: &mut dyn Read, bytes: u64, proof: &mut Proof) -> Result<u64> {
    let mut buffer = vec![0; SKIP_BYTES];
    let mut left = source.take(bytes);
    let mut skipped = 0;
    loop {
        let n = left.read(&mut buffer)?;
        if n == 0 {
            return Ok(skipped);
        }
        proof.update_whole(&buffer[..n]);
        skipped += n as u64;
    }
}

/// Verification of a shard while it is copied.
struct Proof {
    /// Verification record by record.
    records: Option<Records>,
    /// Hash of all bytes; `None` if verifying the records covers every byte.
    whole: Option<Box<blake3::Hasher>>,
}

impl Proof {
    fn update_whole(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.whole {
            hasher.update(bytes);
        }
    }

    fn update_records(&mut self, bytes: &[u8]) -> Result<()> {
        self.records.as_mut().map_or(Ok(()), |records| records.update(bytes))
    }

    /// Returns the checksum of the shard if it had to be computed.
    fn finish(self) -> Result<Option<[u8; 32]>> {
        self.records.map_or(Ok(()), Records::finish)?;
        Ok(self.whole.map(|hasher| *hasher.finalize().as_bytes()))
    }
}

/// Compares the bytes of each record with its sidecar row.
pub(super) struct Records {
    extents: Vec<RecordExtents>,
    /// Whether the records cover the body from the first byte to the last, without gaps.
    pub(super) contiguous: bool,
    crc: bool,
    hashes: ContentHashes,
    /// Batch of the next record.
    batch: usize,
    /// Row of the next record in its batch.
    row: usize,
    /// Number of the next record in the shard.
    ordinal: u64,
    /// Bytes seen so far.
    at: u64,
    /// Hashes of a record that is only partly seen.
    partial: Option<Box<Partial>>,
}

struct Partial {
    xxh3: Xxh3Default,
    crc: Option<RecordSum>,
}

/// A record as the sidecar describes it.
#[derive(Debug, Clone, Copy)]
struct Expected {
    offset: u64,
    length: u64,
    hash: u64,
}

impl Records {
    pub(super) fn new(extents: Vec<RecordExtents>, body: u64, crc: bool, hashes: ContentHashes) -> Result<Self> {
        let (mut end, mut contiguous) = (0_u64, true);
        for batch in &extents {
            for (offset, length) in batch.offsets.values().iter().zip(batch.lengths.values()) {
                contiguous &= *offset == end;
                let next = offset.checked_add(*length).filter(|next| *offset >= end && *length > 0 && *next <= body);
                end = next.ok_or_else(|| {
                    Error::integrity(format!(
                        "expected a record between bytes {end} and {body}, found one at another offset"
                    ))
                    .at_byte(*offset)
                    .with_hint("the sidecar is damaged; convert the sources again into a new dataset")
                })?;
            }
        }
        // A hash of 0 means that none was taken.
        contiguous &=
            end == body && !hashes.are_unknown() && extents.iter().all(|batch| !batch.hashes.values().contains(&0));
        Ok(Self { extents, contiguous, crc, hashes, batch: 0, row: 0, ordinal: 0, at: 0, partial: None })
    }

    fn next(&mut self) -> Option<Expected> {
        loop {
            let batch = self.extents.get(self.batch)?;
            if let Some(offset) = batch.offsets.values().get(self.row) {
                let (length, hash) = (batch.lengths.value(self.row), batch.hashes.value(self.row));
                return Some(Expected { offset: *offset, length, hash });
            }
            self.batch += 1;
            self.row = 0;
        }
    }

    pub(super) fn update(&mut self, mut piece: &[u8]) -> Result<()> {
        while !piece.is_empty() {
            let Some(record) = self.next() else {
                self.at += piece.len() as u64;
                return Ok(());
            };
            let most = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).min(piece.len());
            if self.at < record.offset {
                // Bytes between records, which the checksum of the whole shard covers.
                let gap = most(record.offset - self.at);
                self.at += gap as u64;
                piece = &piece[gap..];
                continue;
            }
            let (now, rest) = piece.split_at(most(record.offset + record.length - self.at));
            self.hash_record(record, now)?;
            piece = rest;
        }
        Ok(())
    }

    /// Hashes bytes of the next record.
    fn hash_record(&mut self, record: Expected, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        let ends = self.at == record.offset + record.length;
        let hash = if ends && self.partial.is_none() {
            if self.crc {
                check_record(bytes, record.offset)?;
            }
            xxh3_64(bytes)
        } else {
            let mut partial = match self.partial.take() {
                Some(partial) => partial,
                None => {
                    let crc = self.crc.then(|| RecordSum::new(record.length, record.offset)).transpose()?;
                    Box::new(Partial { xxh3: Xxh3Default::new(), crc })
                }
            };
            partial.xxh3.update(bytes);
            if let Some(crc) = &mut partial.crc {
                crc.update(bytes);
            }
            if !ends {
                self.partial = Some(partial);
                return Ok(());
            }
            partial.crc.map_or(Ok(()), RecordSum::finish)?;
            partial.xxh3.digest()
        };
        if record.hash != 0 && self.hashes.to_stored(hash).is_some_and(|hash| hash != record.hash) {
            return Err(Error::integrity(format!(
                "the checksum of record {} differs from the one in the sidecar: the shard was changed after it was \
                 written",
                self.ordinal
            ))
            .at_byte(record.offset)
            .with_hint("restore the shard from a copy, or convert its sources again into a new dataset"));
        }
        self.row += 1;
        self.ordinal += 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        match self.next() {
            None => Ok(()),
            Some(record) => Err(Error::integrity(format!(
                "expected a record of {} bytes, found the end of the shard",
                record.length
            ))
            .at_byte(record.offset)),
        }
    }
}

/// Returns the error for two records with one key that would be neighbours.
pub(super) fn twice_in_a_row(key: &str) -> Error {
    Error::usage(format!(
        "the key `{key}` would appear twice in a row, and readers would merge the two records into one"
    ))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn records(extents: &[(u64, u64)], bytes: &[u8]) -> Result<Records> {
        let at = |e: &(u64, u64)| usize::try_from(e.0).unwrap()..usize::try_from(e.0.saturating_add(e.1)).unwrap();
        let hash = |e: &(u64, u64)| bytes.get(at(e)).map_or(0, xxh3_64);
        let half = extents.len() / 2;
        let batch = |part: &[(u64, u64)]| RecordExtents {
            offsets: part.iter().map(|e| e.0).collect::<Vec<_>>().into(),
            lengths: part.iter().map(|e| e.1).collect::<Vec<_>>().into(),
            hashes: part.iter().map(hash).collect::<Vec<_>>().into(),
        };
        Records::new(
            vec![batch(&extents[..half]), batch(&extents[half..])],
            bytes.len() as u64,
            false,
            ContentHashes::Plain,
        )
    }

    fn run(mut records: Records, bytes: &[u8], piece: usize) -> Result<()> {
        bytes.chunks(piece).try_for_each(|piece| records.update(piece))?;
        records.finish()
    }

    #[test]
    fn every_changed_byte_of_a_record_is_detected_in_chunks_of_any_size() {
        let bytes: Vec<u8> = (0..60).collect();
        let extents = [(0, 7), (7, 1), (10, 20), (30, 29)];
        for piece in [1, 2, 7, 8, 30, 60] {
            assert!(run(records(&extents, &bytes).unwrap(), &bytes, piece).is_ok(), "{piece}");
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                let between = [8, 9, 59].contains(&at);
                assert_eq!(run(records(&extents, &bytes).unwrap(), &changed, piece).is_ok(), between, "{piece} {at}");
            }
            assert!(run(records(&extents, &bytes).unwrap(), &bytes[..58], piece).is_err());
        }
    }

    #[test]
    fn only_records_without_gaps_verify_all_bytes() {
        let bytes = [0; 60];
        assert!(records(&[(0, 10), (10, 50)], &bytes).unwrap().contiguous);
        for gap in [&[(0, 10), (11, 49)][..], &[(1, 59)], &[(0, 59)], &[]] {
            assert!(!records(gap, &bytes).unwrap().contiguous);
        }
        for wrong in [&[(0, 10), (9, 51)][..], &[(0, 61)], &[(0, 0), (0, 60)], &[(u64::MAX, 5)]] {
            assert!(records(wrong, &bytes).is_err());
        }
    }
}
