//! Merges Parquet shards: assembles row groups from the pages of the inputs; see `format::parquet::splice`.
//!
//! ```text
//! inputs --(footers)--> schema of the output
//!        --(whole files, a few at a time, checked)--> row groups --(enough for a row group)--> spliced --> shard
//! ```
//!
//! Files are opened a few at a time and closed after they are read; memory holds the row groups that become the next
//! one. Their number depends on the inputs alone, so the output does not depend on threads.

use std::sync::Arc;

use bytes::Bytes;
use rayon::prelude::*;

use super::{
    budget::Reservation,
    compact::{Merge, Merger, runs},
    rewrite::check,
    shard::{FinishedShard, ParquetShardWriter},
};
use crate::{
    dataset::{ShardMeta, SidecarPart},
    error::{Error, Result},
    events::Event,
    format::{
        parquet::{GroupNote, GroupPart, ParquetEncoder, Source, Survey, Tally, media_metadata, prove, splice},
        ranged::RangedInput,
    },
};

/// Maximum bytes of files that are read whole; from larger ones, column chunks are read when needed.
const WHOLE_BYTES: u64 = 32 << 20;

/// Maximum bytes of files that are read at once.
const BATCH_BYTES: u64 = 16 << 20;

/// Maximum number of files that are read at once.
const BATCH_FILES: usize = 32;

/// Maximum rows of files that are read at once.
const BATCH_ROWS: u64 = 1 << 18;

/// Initial estimate of a spliced row group's size relative to the sum of its parts; uniting dictionaries makes it
/// smaller.
const INITIAL_RATIO: f64 = 0.8;

/// Surplus of parts that allows for an error of the estimate.
const SURPLUS_RATIO: f64 = 1.1;

/// Row groups larger than this multiple of the wanted size are not combined.
const LARGE_RATIO: f64 = 2.0;

impl Merger<'_> {
    /// Merges Parquet shards.
    ///
    /// # Errors
    /// Fails if an input is damaged or the store fails.
    pub(super) fn splice(&self, merge: &Merge, reservation: Reservation<'_>) -> Result<(FinishedShard, Tally)> {
        let parquet = self.survey(merge)?;
        let mut splicing = Splicing {
            merger: self,
            shard: self.create_parquet(&parquet, merge)?,
            parquet: &parquet,
            parts: Vec::new(),
            bytes: 0,
            held: 0,
            ratio: INITIAL_RATIO,
            notes: Vec::new(),
            tally: Tally::default(),
        };
        for batch in batches(&merge.inputs) {
            let loaded: Vec<Loaded> = batch.par_iter().map(|(input, _)| self.load(input)).collect::<Result<_>>()?;
            for ((input, _), loaded) in batch.iter().zip(loaded) {
                self.rewriter.cancel.check()?;
                if !splicing.add(loaded)? {
                    // Some column is stored in a way that only the decoder supports.
                    drop(splicing);
                    let bytes = merge.inputs.iter().map(|(shard, _)| shard.bytes).sum();
                    return Ok((self.reencode(merge)?, Tally { reencoded: bytes, ..Tally::default() }));
                }
                self.rewriter.observer.event(Event::Read { bytes: input.bytes, records: input.records });
            }
        }
        if !splicing.end_group()? {
            drop(splicing);
            let bytes = merge.inputs.iter().map(|(shard, _)| shard.bytes).sum();
            return Ok((self.reencode(merge)?, Tally { reencoded: bytes, ..Tally::default() }));
        }
        let Splicing { shard, notes, tally, .. } = splicing;
        // From here on the merge waits for the disk, so the next one may begin.
        drop(reservation);
        let finished = shard.finish(&runs(merge))?;
        self.prove(&finished, &notes)?;
        Ok((finished, tally))
    }

    /// Reads the new shard back and verifies it, if the store can read it before it is published. Otherwise only the
    /// sent bytes are known, and `verify` can read the shard later.
    fn prove(&self, finished: &FinishedShard, notes: &[GroupNote]) -> Result<()> {
        let Some(path) = finished.staged.last().and_then(|staged| staged.readable_at(self.rewriter.store())) else {
            return Ok(());
        };
        let object = self.rewriter.dataset.object(&path, finished.shard.meta.bytes);
        let name = self.rewriter.store().location().join(&finished.shard.meta.path).to_string();
        prove(&Source::open(RangedInput::Object(object), &name)?, notes)
    }

    /// Reads the footers of all inputs.
    fn survey(&self, merge: &Merge) -> Result<ParquetEncoder> {
        let mut survey = Survey::default();
        for some in merge.inputs.chunks(BATCH_FILES) {
            self.rewriter.cancel.check()?;
            let open = |(input, _): &(ShardMeta, _)| {
                Source::open(
                    RangedInput::Object(self.rewriter.dataset.object(&input.path, input.bytes)),
                    &self.rewriter.place(input),
                )
            };
            for source in some.par_iter().map(open).collect::<Result<Vec<_>>>()? {
                survey.add(&source)?;
            }
        }
        survey.encoder(self.naming.codec, |schema| media_metadata(schema).into_iter().collect())
    }

    /// Reads a shard, or only its footer if it is large, and verifies it.
    fn load(&self, input: &ShardMeta) -> Result<Loaded> {
        self.rewriter.cancel.check()?;
        let source = if input.bytes <= WHOLE_BYTES {
            let mut bytes = Vec::new();
            self.rewriter.store().read_whole(&input.path, input.bytes, &mut bytes)?;
            check(self.rewriter.dataset, input, bytes.len() as u64, Some(blake3::hash(&bytes).as_bytes()))?;
            RangedInput::Bytes(Bytes::from(bytes))
        } else {
            self.rewriter.verify_checksum(input)?;
            RangedInput::Object(self.rewriter.dataset.object(&input.path, input.bytes))
        };
        let source = Source::open(source, &self.rewriter.place(input))?.with_indexes()?;
        if source.rows() != input.records {
            let message = format!("expected {} records, found {}", input.records, source.rows());
            return Err(Error::integrity(message).at(self.rewriter.place(input)));
        }
        let sidecar = self.sidecar(input)?;
        Ok(Loaded { source: Arc::new(source), sidecar })
    }
}

/// A shard that has been read.
struct Loaded {
    source: Arc<Source>,
    sidecar: SidecarPart,
}

/// A shard that is being assembled.
struct Splicing<'a> {
    merger: &'a Merger<'a>,
    parquet: &'a ParquetEncoder,
    shard: ParquetShardWriter,
    /// Row groups that become the next row group of the output.
    parts: Vec<GroupPart>,
    /// Uncompressed bytes of their pages.
    bytes: u64,
    /// Memory used by their files, which may be larger if the files are tiny.
    held: u64,
    /// Ratio of spliced bytes to bytes of the parts.
    ratio: f64,
    /// Notes that the written file is compared with.
    notes: Vec<GroupNote>,
    tally: Tally,
}

impl Splicing<'_> {
    /// Adds the row groups of a shard and its sidecar; returns false if they cannot be spliced.
    fn add(&mut self, loaded: Loaded) -> Result<bool> {
        let Loaded { source, sidecar } = loaded;
        self.held += source.held_bytes();
        for (group, size) in source.row_groups().iter().enumerate().filter(|(_, size)| size.rows > 0) {
            let wanted = self.merger.rewriter.row_group as f64;
            if (self.bytes.saturating_add(size.uncompressed_bytes)) as f64 > LARGE_RATIO * wanted
                && !self.end_group()?
            {
                return Ok(false);
            }
            self.parts.push(GroupPart { source: Arc::clone(&source), group });
            self.bytes += size.uncompressed_bytes;
            let enough = if self.parts.len() == 1 { wanted } else { SURPLUS_RATIO * wanted / self.ratio };
            if self.bytes as f64 >= enough && !self.end_group()? {
                return Ok(false);
            }
        }
        self.shard.append_sidecar_part(&sidecar)?;
        Ok((self.held as f64) < LARGE_RATIO * self.merger.rewriter.row_group as f64 || self.end_group()?)
    }

    /// Splices the collected parts into a row group; returns false if they cannot be spliced.
    fn end_group(&mut self) -> Result<bool> {
        if self.parts.is_empty() {
            return Ok(true);
        }
        self.merger.rewriter.cancel.check()?;
        let parts = std::mem::take(&mut self.parts);
        let bytes = std::mem::take(&mut self.bytes);
        self.held = 0;
        let Some((group, tally)) = splice(self.parquet, &parts)? else { return Ok(false) };
        self.ratio = (group.uncompressed_bytes() as f64 / bytes.max(1) as f64).clamp(0.5, 1.0);
        self.notes.push(group.note());
        self.shard.append_known_rows(group)?;
        self.tally += tally;
        Ok(true)
    }
}

/// Divides the inputs into batches that are read at once.
fn batches<T>(inputs: &[(ShardMeta, T)]) -> impl Iterator<Item = &[(ShardMeta, T)]> {
    let mut rest = inputs;
    std::iter::from_fn(move || {
        let (mut bytes, mut rows) = (0, 0);
        let fits = |(input, _): &&(ShardMeta, T)| {
            bytes += input.bytes;
            rows += input.records;
            bytes <= BATCH_BYTES && rows <= BATCH_ROWS
        };
        let count = rest.iter().take(BATCH_FILES).take_while(fits).count().max(1).min(rest.len());
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}
