//! Merging shards: framed records are copied as they are stored (`copy`), Parquet is spliced, or decoded and encoded anew.
//!
//! Every input is checked while it is read, so damage is found and never copied on. Sidecar rows
//! are carried over, offsets moved; record numbers stay what they are, which the runs of the new shard say.

use arrow::array::RecordBatch;

use super::{
    budget::Budget,
    encode::{framing, parquet_encoder},
    rewrite::Rewriter,
    shard::{FinishedShard, ParquetShardWriter, ShardNaming},
};
use crate::{
    dataset::{ContentHashes, Run, ShardMeta, SidecarPart},
    error::{Error, Result},
    events::Event,
    format::parquet::{ParquetEncoder, Tally, cast_to, logical_bytes},
    record::BATCH_ROWS,
};

/// One merge.
#[derive(Debug, Clone)]
pub struct Merge {
    /// Shards to merge, in order, each with its live runs.
    pub inputs: Vec<(ShardMeta, Vec<Run>)>,
    /// What its folder has behind the name of the compaction: `/`, and `key=value/` where the inputs lie in such folders.
    pub partition: String,
    /// Number of the new shard within its folder.
    pub number: usize,
}

/// How merges are done.
pub struct Merger<'a> {
    /// The dataset whose shards are merged.
    pub rewriter: Rewriter<'a>,
    /// Names, format and codec of new shards.
    pub naming: &'a ShardNaming,
    /// How many merges may hold row groups or have inputs open at a time; those that only end their shard are not among them.
    pub at_once: Budget,
    /// Whether checksums that the format has are checked as well.
    pub check_crc: bool,
    /// How content hashes are compared.
    pub hashes: ContentHashes,
    /// Whether everything is compared with the inputs once more.
    pub compare: bool,
}

/// Rows on their way to row groups of one size; their sidecar rows are known from elsewhere.
pub(super) struct RowGroups<'a> {
    parquet: &'a ParquetEncoder,
    bytes: u64,
    pending: Vec<RecordBatch>,
    pending_bytes: u64,
}

impl<'a> RowGroups<'a> {
    /// Row groups of about so many bytes, uncompressed.
    pub(super) fn new(parquet: &'a ParquetEncoder, bytes: u64) -> Self {
        Self { parquet, bytes, pending: Vec::new(), pending_bytes: 0 }
    }

    /// Adds rows; a row group that is full goes to the shard.
    pub(super) fn push(&mut self, batch: RecordBatch, out: &mut ParquetShardWriter) -> Result<()> {
        self.pending_bytes += logical_bytes(&batch);
        self.pending.push(batch);
        if self.pending_bytes < self.bytes { Ok(()) } else { self.flush(out) }
    }

    /// The last row group goes to the shard.
    pub(super) fn finish(mut self, out: &mut ParquetShardWriter) -> Result<()> {
        self.flush(out)
    }

    fn flush(&mut self, out: &mut ParquetShardWriter) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        if pending.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(());
        }
        out.append_known_rows(self.parquet.encode(&pending)?)
    }
}

/// What a merge made.
#[derive(Debug)]
pub struct Merged {
    /// The new shard.
    pub finished: FinishedShard,
    /// Bytes that were copied as they were.
    pub bytes_copied: u64,
    /// Bytes that were put together anew, but not decoded.
    pub bytes_spliced: u64,
    /// Bytes that were decoded and encoded.
    pub bytes_reencoded: u64,
}

impl Merger<'_> {
    /// Merges one group of shards.
    ///
    /// # Errors
    /// When an input is damaged or the store fails.
    pub fn merge(&self, merge: &Merge) -> Result<Merged> {
        let bytes: u64 = merge.inputs.iter().map(|(shard, _)| shard.bytes).sum();
        let room = self.at_once.room(1);
        let (finished, tally) = match framing(self.naming.format) {
            None => self.splice(merge, room)?,
            Some(framing) => (self.copy(merge, framing.as_ref())?, Tally { copied: bytes, ..Tally::default() }),
        };
        let records: u64 = merge.inputs.iter().map(|(shard, _)| shard.records).sum();
        if finished.meta().records != records {
            return Err(Error::mistaken(format!(
                "expected {records} records after the merge, found {}",
                finished.meta().records
            )));
        }
        if self.compare {
            self.compare(merge, &finished)?;
        }
        self.rewriter.observer.event(Event::Shard { bytes: finished.meta().bytes });
        let Tally { copied: bytes_copied, spliced: bytes_spliced, reencoded: bytes_reencoded } = tally;
        Ok(Merged { finished, bytes_copied, bytes_spliced, bytes_reencoded })
    }

    /// Decodes and encodes everything.
    pub(super) fn reencode(&self, merge: &Merge) -> Result<FinishedShard> {
        let schema = self.rewriter.united_schema(merge.inputs.iter().map(|(input, _)| input))?;
        let parquet = parquet_encoder(self.naming.codec, &schema)?;
        let mut out = self.create_parquet(&parquet, merge)?;
        let mut pending = RowGroups::new(&parquet, self.rewriter.row_group);
        for (input, _) in &merge.inputs {
            self.rewriter.verify_checksum(input)?;
            let mut rows = 0;
            for batch in self.rewriter.open(input)?.batches(BATCH_ROWS) {
                self.rewriter.cancel.check()?;
                let batch = cast_to(&batch?, &schema)?;
                rows += batch.num_rows() as u64;
                pending.push(batch, &mut out)?;
            }
            if rows != input.records {
                return Err(Error::integrity(format!("expected {} records, found {rows}", input.records))
                    .at(self.rewriter.place(input)));
            }
            out.append_sidecar_part(&self.sidecar(input)?)?;
            self.rewriter.observer.event(Event::Read { bytes: input.bytes, records: input.records });
        }
        pending.finish(&mut out)?;
        out.finish(&runs(merge))
    }

    pub(super) fn create_parquet(&self, parquet: &ParquetEncoder, merge: &Merge) -> Result<ParquetShardWriter> {
        ParquetShardWriter::create(self.rewriter.store(), parquet, &self.naming.within(&merge.partition), merge.number)
    }

    /// The sidecar of an input, which is to tell of each record.
    pub(super) fn sidecar(&self, input: &ShardMeta) -> Result<SidecarPart> {
        let part = SidecarPart::open(self.rewriter.dataset.store(), &input.sidecar(), input.records)?;
        self.check_row_count(input, part.rows())?;
        Ok(part)
    }

    /// Refuses a sidecar that does not tell of each record.
    pub(super) fn check_rows(&self, input: &ShardMeta, sidecar: &[RecordBatch]) -> Result<()> {
        self.check_row_count(input, sidecar.iter().map(|batch| batch.num_rows() as u64).sum())
    }

    fn check_row_count(&self, input: &ShardMeta, rows: u64) -> Result<()> {
        if rows == input.records {
            return Ok(());
        }
        Err(Error::integrity(format!("expected a sidecar of {} rows, found {rows}", input.records))
            .at(self.rewriter.place(input)))
    }
}

pub(super) fn runs(merge: &Merge) -> Vec<(u64, Option<u64>)> {
    merge.inputs.iter().flat_map(|(_, runs)| runs.iter().map(|run| (run.first, Some(run.records)))).collect()
}
