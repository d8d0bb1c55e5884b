//! Merging Parquet shards: row groups are put together from the pages of the inputs; see `format::parquet::splice`.
//!
//! ```text
//! inputs --(footers)--> schema of the output
//!        --(whole files, a few at a time, checked)--> row groups --(enough for a row group)--> spliced --> shard
//! ```
//!
//! Files are opened a few at a time and closed once they are read; what is in memory are the row groups that become the
//! next one. How many those are depends on the inputs alone, so the bytes do not depend on threads.

use std::sync::Arc;

use bytes::Bytes;
use rayon::prelude::*;

use super::{
    budget::Room,
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

/// Files up to this size are read whole; of larger ones the column chunks, when they are wanted.
const WHOLE_BYTES: u64 = 32 << 20;

/// Bytes of the files that are read at once.
const BATCH_BYTES: u64 = 16 << 20;

/// How many these are at most.
const BATCH_FILES: usize = 32;

/// Rows of the files that are read at once.
const BATCH_ROWS: u64 = 1 << 18;

/// Uniting dictionaries makes row groups smaller than the sum of their parts; this much, unless known better.
const SHRINKS_TO: f64 = 0.8;

/// What a row group may be short of because the rest of it is only guessed.
const MARGIN: f64 = 1.1;

/// Row groups of more than this many times the wanted size are not made of several.
const LARGE: f64 = 2.0;

impl Merger<'_> {
    /// Merges Parquet shards.
    ///
    /// # Errors
    /// When an input is damaged or the store fails.
    pub(super) fn splice(&self, merge: &Merge, room: Room<'_>) -> Result<(FinishedShard, Tally)> {
        let parquet = self.survey(merge)?;
        let mut splicing = Splicing {
            merger: self,
            shard: self.create_parquet(&parquet, merge)?,
            parquet: &parquet,
            parts: Vec::new(),
            bytes: 0,
            held: 0,
            ratio: SHRINKS_TO,
            notes: Vec::new(),
            tally: Tally::default(),
        };
        for batch in batches(&merge.inputs) {
            let loaded: Vec<Loaded> = batch.par_iter().map(|(input, _)| self.load(input)).collect::<Result<_>>()?;
            for ((input, _), loaded) in batch.iter().zip(loaded) {
                self.rewriter.cancel.check()?;
                if !splicing.add(loaded)? {
                    // Some column is stored in a way that nothing but the decoder knows.
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
        // From here on it waits for the disk, and the next merge may begin.
        drop(room);
        let finished = shard.finish(&runs(merge))?;
        self.prove(&finished, &notes)?;
        Ok((finished, tally))
    }

    /// Reads the new shard back where the store lets it be read before it has its name. Elsewhere nothing but what was
    /// sent is known, and `verify` reads it later.
    fn prove(&self, finished: &FinishedShard, notes: &[GroupNote]) -> Result<()> {
        let Some(path) = finished.staged.last().and_then(|staged| staged.readable_at(self.rewriter.store())) else {
            return Ok(());
        };
        let object = self.rewriter.dataset.object(&path, finished.shard.meta.bytes);
        let name = self.rewriter.store().location().join(&finished.shard.meta.path).to_string();
        prove(&Source::open(RangedInput::Object(object), &name)?, notes)
    }

    /// Looks at the footers of all inputs.
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

    /// Reads a shard, or its footer if it is large, and checks it.
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

/// A shard that was read.
struct Loaded {
    source: Arc<Source>,
    sidecar: SidecarPart,
}

/// A shard that is being put together.
struct Splicing<'a> {
    merger: &'a Merger<'a>,
    parquet: &'a ParquetEncoder,
    shard: ParquetShardWriter,
    /// Row groups that become the next one.
    parts: Vec<GroupPart>,
    /// Bytes of their pages, uncompressed.
    bytes: u64,
    /// Memory that their files take, which may be more where files are tiny.
    held: u64,
    /// What splicing makes of such bytes.
    ratio: f64,
    /// What the written file is compared with.
    notes: Vec<GroupNote>,
    tally: Tally,
}

impl Splicing<'_> {
    /// Adds the row groups of a shard and its sidecar; false if splicing cannot be done.
    fn add(&mut self, loaded: Loaded) -> Result<bool> {
        let Loaded { source, sidecar } = loaded;
        self.held += source.held_bytes();
        for (group, size) in source.row_groups().iter().enumerate().filter(|(_, size)| size.rows > 0) {
            let wanted = self.merger.rewriter.row_group as f64;
            if (self.bytes.saturating_add(size.uncompressed_bytes)) as f64 > LARGE * wanted && !self.end_group()? {
                return Ok(false);
            }
            self.parts.push(GroupPart { source: Arc::clone(&source), group });
            self.bytes += size.uncompressed_bytes;
            let enough = if self.parts.len() == 1 { wanted } else { MARGIN * wanted / self.ratio };
            if self.bytes as f64 >= enough && !self.end_group()? {
                return Ok(false);
            }
        }
        self.shard.append_sidecar_part(&sidecar)?;
        Ok((self.held as f64) < LARGE * self.merger.rewriter.row_group as f64 || self.end_group()?)
    }

    /// Makes a row group of what there is.
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

/// The inputs in batches that are read at once.
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
