//! Estimates what a conversion would write, from the first records of each source.

use std::sync::Arc;

use super::{
    Estimate,
    inputs::{Inputs, SAMPLES_KEPT, source_facts},
    job::ConvertJob,
    plan::ConvertPlan,
};
use crate::{
    error::Result,
    exec::{
        cut::ShardEnds,
        encode::{Body, EncodeUnit, SourceBatch},
        gates::{Gate as _, GatedBlock},
    },
    format::{Framing, Parsed, files::SampleFiles},
    plan::roll::shard_count,
    record::{numbers::Numbers, split::Splits},
    scan::RecordSource,
};

/// Bytes that a value takes in a column beside its content, about.
const VALUE_BYTES: u64 = 32;

impl ConvertPlan {
    /// Encodes the first records of each source to find the ratio of output to input bytes.
    pub(super) fn estimate_output(&self, job: &ConvertJob<'_>) -> Result<Estimate> {
        let (records, bytes) = match &self.inputs {
            Inputs::Records(sources) => self.estimate_records(job, sources)?,
            Inputs::Samples { files, samples } => {
                let framing = self.settings.shard_format.facts().framing.map_or(VALUE_BYTES, Framing::member_bytes);
                let sizes = samples.iter_range(0..samples.len(), files).flat_map(SampleFiles::part_sizes);
                (samples.len() as u64, sizes.map(|bytes| bytes + framing).sum())
            }
        };
        let shards = match job.options.ends {
            Some(ShardEnds::Records(each)) => records.div_ceil(each.max(1)),
            Some(ShardEnds::Parts(shards) | ShardEnds::Even(shards)) => {
                let splits = self.settings.split.as_ref().map_or(1, Splits::split_count) as u64;
                shards.saturating_mul(splits).min(records)
            }
            None => shard_count(bytes, self.settings.target_shard.0),
        };
        let sources = match &self.inputs {
            Inputs::Records(sources) => sources.as_slice(),
            Inputs::Samples { .. } => &[],
        };
        let sampled = sources.iter().any(|source| !source.format.is_typed());
        Ok(Estimate {
            records,
            bytes,
            shards,
            rejected: None,
            sampled,
            compressed: sources.iter().any(|source| source.packed),
        })
    }

    fn estimate_records(&self, job: &ConvertJob<'_>, sources: &[RecordSource]) -> Result<(u64, u64)> {
        let schema = self.input_schema();
        // Records are not divided to estimate their size.
        let encoder = self.build_encoder(job.pseudonymizer.as_ref(), &schema)?.without_splits();
        let gate = self.given.selection.select_gate(&self.fields, false)?;
        let (mut records, mut bytes, mut looked_at) = (0.0, 0.0, 0);
        // Where the sources state how many records they have, these are counted, and bytes follow from them.
        let stated: Option<u64> = sources.iter().map(|source| source.reader.facts().rows).sum();
        let stated = stated.filter(|_| gate.is_none());
        let mut encoded = (0_usize, 0.0);
        let facts = source_facts(sources, &self.settings, self.subjects.as_ref(), self.keys.as_deref());
        for (source, facts) in sources.iter().zip(facts) {
            let Some(sample) = &source.sample else { continue };
            let Ok(Parsed::Block(block)) = source.reader.parse(sample, &schema) else { continue };
            let mut gated = GatedBlock::new(block, Arc::default());
            if let Some(gate) = &gate {
                gate.pass_block(&mut gated, &facts)?;
            }
            let block = gated.block;
            looked_at += source.file.bytes();
            // For a compressed source, only the stored size is known.
            let after_header = source.file.bytes().saturating_sub(sample.offset) as f64;
            let scale = (after_header / (sample.bytes_in() as f64).max(1.0)).max(1.0);
            let count = block.payload.len();
            if count == 0 {
                continue;
            }
            records += count as f64 * scale;
            let batch = SourceBatch {
                lacking: block.lacking,
                rows: Numbers::counting_from(1, block.payload.len()),
                payload: block.payload,
                source: facts.name,
                hashes: Numbers::shared_by(block.hashes, block.sharing),
                fingerprints: Vec::new(),
                sidecar: None,
            };
            let unit = EncodeUnit {
                split: 0,
                number: 0,
                batches: vec![batch],
                starts_shard: false,
                bytes_in: 0,
                raw_bytes: 0,
            };
            let written = match encoder.encode_unit(unit)?.body {
                Body::RowGroup(group, _) => group.encoded_bytes as f64,
                Body::Stream(piece) => piece.bytes.len() as f64,
            };
            bytes += scale * written;
            encoded = (encoded.0 + count, encoded.1 + written);
        }
        // If there are many sources, samples are kept only of some; the others are assumed to be alike.
        let others: u64 = sources.iter().skip(SAMPLES_KEPT).map(|source| source.file.bytes()).sum();
        let scale = if looked_at > 0 { 1.0 + others as f64 / looked_at as f64 } else { 1.0 };
        let of_stated = |rows: u64| (rows as f64, encoded.1 / encoded.0.max(1) as f64 * rows as f64);
        let (records, bytes) = stated.map_or((records * scale, bytes * scale), of_stated);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive estimates")]
        Ok((records.round() as u64, bytes.round() as u64))
    }
}
