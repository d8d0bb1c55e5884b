//! Merges shards: framed records are copied as stored (`copy`); Parquet is spliced, or decoded and encoded again. Large
//! shards are divided (`divide`).
//!
//! Every input is verified while it is read, so damage is detected and never copied. Sidecar rows are carried over with
//! their offsets moved. Record numbers do not change; the runs of the new shard list them.

use arrow::{array::RecordBatch, datatypes::Fields};

use super::{
    budget::Budget,
    encode::parquet_encoder,
    rewrite::Rewriter,
    shard::{FinishedShard, ParquetShardWriter, ShardNaming},
};
use crate::{
    dataset::{ContentHashes, Run, RunTable, ShardMeta, SidecarPart},
    error::{Error, Result},
    events::Event,
    format::parquet::{ParquetEncoder, Tally, cast_to, logical_bytes},
    record::BATCH_ROWS,
    schema::{bound, schema_of},
};

/// One merge, or the division of a shard.
#[derive(Debug, Clone)]
pub struct Merge {
    /// Shards to merge, in order, each with its live runs.
    pub inputs: Vec<(ShardMeta, Vec<Run>)>,
    /// Path of the merge's folder below that of the compaction: `/`, or `/key=value/` if the inputs are in such
    /// folders.
    pub partition: String,
    /// Number of the new shard within its folder; of several, of the first.
    pub number: usize,
    /// Number of new shards: more than 1 if a single shard is divided.
    pub shards: u64,
}

/// Settings for merges.
pub struct Merger<'a> {
    /// The dataset whose shards are merged.
    pub rewriter: Rewriter<'a>,
    /// Names, format and codec of new shards.
    pub naming: &'a ShardNaming,
    /// Limits how many merges hold row groups or open inputs at a time; a merge that only finishes its shard does not
    /// count.
    pub concurrent_merges: Budget,
    /// Whether to verify checksums that are part of the format, too.
    pub check_crc: bool,
    /// How content hashes are compared.
    pub hashes: ContentHashes,
    /// Whether to compare each finished merge with its inputs.
    pub compare: bool,
    /// Where records are.
    pub runs: &'a RunTable,
    /// Target size of shards.
    pub target: u64,
    /// Types of columns that older shards have with other ones.
    pub types: Fields,
}

/// Collects rows into row groups of one size; their sidecar rows come from existing sidecars.
pub(super) struct RowGroups<'a> {
    parquet: &'a ParquetEncoder,
    bytes: u64,
    pending: Vec<RecordBatch>,
    pending_bytes: u64,
}

impl<'a> RowGroups<'a> {
    /// Creates a collector for row groups of about `bytes` uncompressed bytes.
    pub(super) fn new(parquet: &'a ParquetEncoder, bytes: u64) -> Self {
        Self { parquet, bytes, pending: Vec::new(), pending_bytes: 0 }
    }

    /// Adds rows; appends a row group to the shard when one is full.
    pub(super) fn push(&mut self, batch: RecordBatch, out: &mut ParquetShardWriter) -> Result<()> {
        self.pending_bytes += logical_bytes(&batch);
        self.pending.push(batch);
        if self.pending_bytes < self.bytes { Ok(()) } else { self.flush(out) }
    }

    /// Appends the last row group to the shard.
    pub(super) fn finish(mut self, out: &mut ParquetShardWriter) -> Result<()> {
        self.flush(out)
    }

    fn flush(&mut self, out: &mut ParquetShardWriter) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        if pending.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(());
        }
        out.append_known_rows(self.parquet.encode(&pending)?).map(drop)
    }
}

/// Result of a merge.
#[derive(Debug)]
pub struct MergedShard {
    /// The new shard.
    pub finished: FinishedShard,
    /// How the bytes of its inputs were processed.
    pub tally: Tally,
}

impl Merger<'_> {
    /// Merges one group of shards, or divides a shard.
    ///
    /// # Errors
    /// Fails if an input is damaged or the store fails.
    pub fn merge_or_divide(&self, merge: &Merge) -> Result<Vec<MergedShard>> {
        if merge.shards > 1 { self.divide_shard(merge) } else { Ok(vec![self.merge_shards(merge)?]) }
    }

    fn merge_shards(&self, merge: &Merge) -> Result<MergedShard> {
        let bytes: u64 = merge.inputs.iter().map(|(shard, _)| shard.bytes).sum();
        let reservation = self.concurrent_merges.reserve(1);
        let (finished, tally) = match self.naming.format.facts().framing {
            None => self.splice_shards(merge, reservation)?,
            Some(framing) => (self.copy_shards(merge, framing)?, Tally { copied: bytes, ..Tally::default() }),
        };
        let records: u64 = merge.inputs.iter().map(|(shard, _)| shard.records).sum();
        if finished.meta().records != records {
            return Err(Error::inconsistent_output(format!(
                "expected {records} records after the merge, found {}",
                finished.meta().records
            )));
        }
        if self.compare {
            self.compare_with_inputs(merge, &finished)?;
        }
        self.rewriter.observer.event(Event::Shard { bytes: finished.meta().bytes });
        Ok(MergedShard { finished, tally })
    }

    /// Decodes and encodes all rows.
    pub(super) fn reencode_rows(&self, merge: &Merge) -> Result<FinishedShard> {
        let schema = self.rewriter.united_schema(merge.inputs.iter().map(|(input, _)| input))?;
        let schema = schema_of(&bound::merge_fields(schema.fields(), &self.types));
        let parquet = parquet_encoder(self.naming.codec, &schema)?;
        let mut out = self.create_parquet(&parquet, merge)?;
        let mut pending = RowGroups::new(&parquet, self.rewriter.row_group);
        for (input, _) in &merge.inputs {
            self.rewriter.verify_checksum(input)?;
            let mut rows = 0;
            for batch in self.rewriter.open_shard(input)?.into_batches(BATCH_ROWS) {
                self.rewriter.cancel.check()?;
                let batch = cast_to(&batch?, &schema)?;
                rows += batch.num_rows() as u64;
                pending.push(batch, &mut out)?;
            }
            if rows != input.records {
                return Err(Error::integrity(format!("expected {} records, found {rows}", input.records))
                    .at_location(self.rewriter.location_of(input)));
            }
            out.append_sidecar_part(&self.open_sidecar(input)?)?;
            self.rewriter.observer.event(Event::Read { bytes: input.bytes, records: input.records });
        }
        pending.finish(&mut out)?;
        out.finish(&input_runs(merge))
    }

    pub(super) fn create_parquet(&self, parquet: &ParquetEncoder, merge: &Merge) -> Result<ParquetShardWriter> {
        ParquetShardWriter::create(
            self.rewriter.store(),
            parquet,
            &self.naming.in_partition(&merge.partition),
            merge.number,
        )
    }

    /// Opens the sidecar of an input, which must have one row per record.
    pub(super) fn open_sidecar(&self, input: &ShardMeta) -> Result<SidecarPart> {
        let part = SidecarPart::open(self.rewriter.dataset.store(), &input.sidecar(), input.records)?;
        self.check_row_count(input, part.row_count())?;
        Ok(part)
    }

    /// Returns an error if a sidecar does not have one row per record.
    pub(super) fn check_rows(&self, input: &ShardMeta, sidecar: &[RecordBatch]) -> Result<()> {
        self.check_row_count(input, sidecar.iter().map(|batch| batch.num_rows() as u64).sum())
    }

    fn check_row_count(&self, input: &ShardMeta, rows: u64) -> Result<()> {
        if rows == input.records {
            return Ok(());
        }
        Err(Error::integrity(format!("expected a sidecar of {} rows, found {rows}", input.records))
            .at_location(self.rewriter.location_of(input)))
    }
}

pub(super) fn input_runs(merge: &Merge) -> Vec<(u64, Option<u64>)> {
    merge.inputs.iter().flat_map(|(_, runs)| runs.iter().map(|run| (run.first, Some(run.records)))).collect()
}
