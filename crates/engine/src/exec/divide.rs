//! Divides a shard that is larger than the target into several of about the target.
//!
//! The new shards are written by the code that cuts datasets anew ([`reshard`](super::reshard)), into the same dataset
//! and under the same record numbers: bytes of framed records are copied, row groups are spliced, and only units and
//! row groups in which a shard ends are decoded.

use std::{io::Read, mem::discriminant};

use super::{
    compact::{Merge, MergedShard, Merger},
    reshard::{CutShard, NewCut, Resharder, Stock, StockPart},
    shard::ShardNaming,
};
use crate::{
    codec::stream::open_shard_decoder,
    dataset::{RecordExtents, Renumbering, ShardMeta, sidecar_batches},
    error::{Error, Result},
    plan::reshard::{even_marks, separate_ends, shard_parts},
    record::BATCH_ROWS,
};

/// Bytes compared at a time.
const CHUNK_BYTES: u64 = 256 << 10;

impl Merger<'_> {
    /// Divides the only input of a merge.
    ///
    /// # Errors
    /// Fails if it is damaged or the store fails.
    pub(super) fn divide_shard(&self, merge: &Merge) -> Result<Vec<MergedShard>> {
        let [(shard, runs)] = merge.inputs.as_slice() else {
            return Err(Error::internal("several shards are to be divided as one"));
        };
        let _reservation = self.concurrent_merges.reserve(1);
        let stock = Stock::new(shard.clone(), runs.clone(), None);
        // Numbers stay.
        let numbering = Renumbering::identity(u64::MAX);
        let resharder = Resharder {
            rewriter: self.rewriter,
            child: self.rewriter.dataset,
            runs: self.runs,
            numbering: &numbering,
            hashes: self.hashes.clone(),
            settled_for: self.target,
            keeps_runs: true,
        };
        let even = shard.bytes / merge.shards.max(1);
        let mut ends = resharder.shard_ends(&stock, &even_marks(shard.bytes, merge.shards), even)?;
        separate_ends(&mut ends, shard.records);
        let mut made = Vec::new();
        for (number, parts) in (merge.number..).zip(shard_parts(&[stock.share], &ends)) {
            let new = NewCut {
                parts: parts.into_iter().map(|(_, kept)| StockPart { stock: &stock, kept }).collect(),
                naming: self.naming_like(shard, &merge.partition),
                number,
                first_of_set: shard.first_record,
            };
            let CutShard { finished, tally, .. } = resharder.write(&new)?;
            made.push(MergedShard { finished, tally });
        }
        let records: u64 = made.iter().map(|one| one.finished.meta().records).sum();
        if records != shard.records {
            return Err(Error::inconsistent_output(format!(
                "expected {} records after the division, found {records}",
                shard.records
            )));
        }
        if self.compare {
            self.compare_division(merge, &made)?;
        }
        Ok(made)
    }

    /// Returns the names of the new shards. Units of framed records keep their codec; those of one codec can be joined
    /// whatever their levels are.
    fn naming_like(&self, shard: &ShardMeta, partition: &str) -> ShardNaming {
        let naming = self.naming.in_partition(partition);
        let same = discriminant(&naming.codec) == discriminant(&shard.codec);
        let codec = if same || naming.format.is_columnar() { naming.codec } else { shard.codec };
        ShardNaming { codec, ..naming }
    }

    /// Compares every value or byte of the records with those of the new shards, which are not published yet.
    fn compare_division(&self, merge: &Merge, made: &[MergedShard]) -> Result<()> {
        let mut written = Vec::with_capacity(made.len());
        for one in made {
            written.push((self.readable_path(&one.finished)?, one.finished.meta()));
        }
        if self.naming.format.is_columnar() {
            return self.compare_rows(merge, &written);
        }
        merge.inputs.iter().try_for_each(|(input, _)| self.compare_records(input, &written))
    }

    /// Compares the records of a framed shard, decompressed, with those of the shards that it was divided into.
    fn compare_records(&self, input: &ShardMeta, written: &[(String, &ShardMeta)]) -> Result<()> {
        let store = self.rewriter.store();
        let open = |path: &str, shard: &ShardMeta| open_shard_decoder(shard.codec, store.read(path)?);
        let mut source = open(&input.path, input)?;
        let mut outputs = written.iter();
        let (mut at, mut left, mut out) = (0, 0, None);
        for batch in sidecar_batches(self.rewriter.dataset.store(), &input.sidecar(), BATCH_ROWS)? {
            self.rewriter.cancel.check()?;
            let extents = RecordExtents::from_batch(&batch?)?;
            for (offset, length) in extents.offsets.values().iter().zip(extents.lengths.values()) {
                if left == 0 {
                    let (path, shard) =
                        outputs.next().ok_or_else(|| self.difference_error(input, "fewer records", *offset))?;
                    (left, out) = (shard.records, Some(open(path, shard)?));
                }
                let gap = offset.saturating_sub(at);
                std::io::copy(&mut source.by_ref().take(gap), &mut std::io::sink())?;
                let same = match &mut out {
                    Some(out) => same_bytes(&mut source, out, *length)?,
                    None => false,
                };
                if !same {
                    return Err(Error::inconsistent_output("expected the bytes of the record, found others")
                        .at_location(self.rewriter.location_of(input))
                        .at_byte(*offset));
                }
                (at, left) = (offset + length, left - 1);
            }
        }
        Ok(())
    }
}

/// Whether the next bytes of two readers are the same.
fn same_bytes(one: &mut impl Read, other: &mut impl Read, mut length: u64) -> Result<bool> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    while length > 0 {
        left.clear();
        right.clear();
        let wanted = length.min(CHUNK_BYTES);
        one.by_ref().take(wanted).read_to_end(&mut left)?;
        other.by_ref().take(wanted).read_to_end(&mut right)?;
        if left != right || left.len() as u64 != wanted {
            return Ok(false);
        }
        length -= wanted;
    }
    Ok(true)
}
