//! Merges Parquet shards: assembles row groups from the pages of the inputs; see `format::parquet::splice`.
//!
//! ```text
//! inputs --(footers)--> schema of the output
//!        --(whole files, a few at a time, checked)--> row groups --(enough for a row group)--> spliced --> shard
//! ```
//!
//! Files are opened a few at a time and closed after they are read; memory holds the row groups that become the next
//! one. Their number depends on the inputs alone, so the output does not depend on threads.

use std::{io::BufRead, sync::Arc};

use arrow::array::RecordBatch;
use bytes::Bytes;

use super::{
    budget::Reservation,
    compact::{Merge, Merger, input_runs},
    rewrite::{Rewriter, check_checksum},
    shard::{FinishedShard, ParquetShardWriter},
};
use crate::{
    dataset::{Dataset, ShardMeta, SidecarPart},
    error::{Error, Result},
    events::{Cancel, Event},
    format::{
        parquet::{
            GroupNote, GroupPart, ParquetEncoder, Proving, RowGroup, Source, Survey, Tally, logical_bytes,
            media_metadata, splice_groups,
        },
        ranged::RangedInput,
    },
    storage::{Object, RequestMemory, Staged, Store, for_each_waiting},
};

/// Maximum bytes of files that are read whole; from larger ones, column chunks are read when needed.
pub(super) const WHOLE_BYTES: u64 = 32 << 20;

/// Maximum bytes of files that are read at once.
pub(super) const BATCH_BYTES: u64 = 16 << 20;

/// Bytes of a footer, and of all that are read at a time.
pub(super) const FOOTERS: RequestMemory = RequestMemory { object_bytes: 256 << 10, total_bytes: BATCH_BYTES };

/// Maximum number of files that are read at once.
pub(super) const BATCH_FILES: usize = 32;

/// Maximum rows of files that are read at once.
const BATCH_ROWS: u64 = 1 << 18;

/// Initial estimate of a spliced row group's size relative to the sum of its parts; uniting dictionaries makes it
/// smaller.
const INITIAL_RATIO: f64 = 0.8;

/// Surplus of parts that allows for an error of the estimate.
const SURPLUS_RATIO: f64 = 1.1;

/// Row groups smaller than the wanted size divided by this are small.
const SMALL_GROUPS: u64 = 8;

/// Row groups larger than this multiple of the wanted size are not combined.
const LARGE_RATIO: f64 = 2.0;

impl Merger<'_> {
    /// Merges Parquet shards.
    ///
    /// # Errors
    /// Fails if an input is damaged or the store fails.
    pub(super) fn splice_shards(&self, merge: &Merge, reservation: Reservation<'_>) -> Result<(FinishedShard, Tally)> {
        // Small inputs are read once, not once more for their footers.
        let (bytes, rows) = merge.inputs.iter().fold((0, 0), |sum, (one, _)| (sum.0 + one.bytes, sum.1 + one.records));
        let is_small = bytes <= BATCH_BYTES && rows <= BATCH_ROWS;
        let batches: Vec<&[(ShardMeta, _)]> =
            if is_small { vec![&merge.inputs] } else { input_batches(&merge.inputs).collect() };
        let mut whole = if is_small { Some(self.load_all(&merge.inputs)?) } else { None };
        let parquet = self.survey_inputs(merge, whole.as_deref())?;
        let shard = self.create_parquet(&parquet, merge)?;
        let mut splicing = Splicing::new(&parquet, shard, self.rewriter.row_group, self.rewriter.cancel);
        for batch in batches {
            let loaded = whole.take().map_or_else(|| self.load_all(batch), Ok)?;
            for ((input, _), loaded) in batch.iter().zip(loaded) {
                self.rewriter.cancel.check()?;
                if !splicing.add_shard(loaded)? {
                    // Some column is stored in a way that only the decoder supports.
                    drop(splicing);
                    let bytes = merge.inputs.iter().map(|(shard, _)| shard.bytes).sum();
                    return Ok((self.reencode_rows(merge)?, Tally { reencoded: bytes, ..Tally::default() }));
                }
                self.rewriter.observer.event(Event::Read { bytes: input.bytes, records: input.records });
            }
        }
        if !splicing.end_group()? {
            drop(splicing);
            let bytes = merge.inputs.iter().map(|(shard, _)| shard.bytes).sum();
            return Ok((self.reencode_rows(merge)?, Tally { reencoded: bytes, ..Tally::default() }));
        }
        let Splicing { shard, proving, tally, .. } = splicing;
        // From here on the merge waits for the disk, so the next one may begin.
        drop(reservation);
        let finished = shard.finish(&input_runs(merge))?;
        prove_written(self.rewriter.dataset, &finished, proving)?;
        Ok((finished, tally))
    }

    /// Reads the footers of all inputs.
    fn survey_inputs(&self, merge: &Merge, loaded: Option<&[Loaded]>) -> Result<ParquetEncoder> {
        let mut survey = Survey::with_types(self.types.clone());
        let media = |schema: &_| media_metadata(schema).into_iter().collect();
        if let Some(loaded) = loaded {
            loaded.iter().try_for_each(|one| survey.add_source(&one.source))?;
            return survey.into_encoder(self.naming.codec, media);
        }
        for some in merge.inputs.chunks(BATCH_FILES) {
            self.rewriter.cancel.check()?;
            let open = |(input, _): &(ShardMeta, _)| {
                Source::open(
                    RangedInput::Object(self.rewriter.dataset.object_at(&input.path, input.bytes)),
                    &self.rewriter.location_of(input),
                )
            };
            for source in for_each_waiting(self.rewriter.store(), FOOTERS, some, open)? {
                survey.add_source(&source)?;
            }
        }
        survey.into_encoder(self.naming.codec, media)
    }

    /// Reads a batch of inputs with their sidecars.
    fn load_all<T: Sync>(&self, batch: &[(ShardMeta, T)]) -> Result<Vec<Loaded>> {
        let memory = RequestMemory::for_count(batch.len() as u64);
        for_each_waiting(self.rewriter.store(), memory, batch, |(input, _)| self.load_input(input))
    }

    fn load_input(&self, input: &ShardMeta) -> Result<Loaded> {
        let source = load_shard(&self.rewriter, input, || self.rewriter.verify_checksum(input))?;
        Ok(Loaded { source, sidecar: self.open_sidecar(input)? })
    }
}

/// Reads a shard, or only its footer if it is large, and verifies it; a large one with `verify`.
pub(super) fn load_shard(
    rewriter: &Rewriter<'_>,
    input: &ShardMeta,
    verify: impl FnOnce() -> Result<()>,
) -> Result<Arc<Source>> {
    rewriter.cancel.check()?;
    let source = if input.bytes <= WHOLE_BYTES {
        let mut bytes = Vec::new();
        rewriter.store().read_whole(&input.path, input.bytes, &mut bytes)?;
        check_checksum(rewriter.dataset, input, bytes.len() as u64, Some(blake3::hash(&bytes).as_bytes()))?;
        RangedInput::Bytes(Bytes::from(bytes))
    } else {
        verify()?;
        RangedInput::Object(rewriter.dataset.object_at(&input.path, input.bytes))
    };
    let source = Source::open(source, &rewriter.location_of(input))?.with_indexes()?;
    if source.row_count() != input.records {
        let message = format!("expected {} records, found {}", input.records, source.row_count());
        return Err(Error::integrity(message).at_location(rewriter.location_of(input)));
    }
    Ok(Arc::new(source))
}

/// Reads a new shard back and verifies it, if the store can read it before it is published. Otherwise only the sent
/// bytes are known, and `verify` can read the shard later.
pub(super) fn prove_written(dataset: &Dataset, finished: &FinishedShard, proving: Proving) -> Result<()> {
    let Some(staged) = finished.staged.last() else { return Ok(()) };
    prove_staged(dataset.store(), staged, finished.shard.meta.bytes, proving)
}

/// As [`prove_written`], for any file of this size.
pub(super) fn prove_staged(store: &Arc<dyn Store>, staged: &Staged, bytes: u64, proving: Proving) -> Result<()> {
    let Some(path) = staged.readable_at(store.as_ref()) else { return Ok(()) };
    let object = Object::new(Arc::clone(store), path, bytes);
    let name = store.location().join(&staged.path).to_string();
    proving.finish(&Source::open(RangedInput::Object(object), &name)?)
}

/// A shard that has been read.
struct Loaded {
    source: Arc<Source>,
    sidecar: SidecarPart,
}

/// A file that takes finished row groups.
pub(super) trait TakesRowGroups {
    /// Appends a row group and returns the note with which the file is compared.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn append_group(&mut self, group: RowGroup) -> Result<Option<GroupNote>>;

    /// Opens the unfinished file, if that is possible; see [`Sink::follow`](crate::storage::Sink::read_following).
    fn open_unfinished(&self) -> Option<Box<dyn BufRead + Send>>;
}

impl TakesRowGroups for ParquetShardWriter {
    fn append_group(&mut self, group: RowGroup) -> Result<Option<GroupNote>> {
        self.append_known_rows(group)
    }

    fn open_unfinished(&self) -> Option<Box<dyn BufRead + Send>> {
        Self::follow(self)
    }
}

/// A shard, or another file, that is being assembled.
pub(super) struct Splicing<'a, S = ParquetShardWriter> {
    parquet: &'a ParquetEncoder,
    pub(super) shard: S,
    /// Uncompressed bytes of a row group.
    row_group: u64,
    cancel: &'a Cancel,
    /// Row groups that become the next row group of the output.
    parts: Vec<GroupPart>,
    /// Uncompressed bytes of their pages.
    bytes: u64,
    /// Memory used by their files, which may be larger if the files are tiny.
    held: u64,
    /// Ratio of spliced bytes to bytes of the parts.
    ratio: f64,
    /// Decoded rows that become the next row group of the output.
    rows: Vec<RecordBatch>,
    /// Their bytes.
    rows_bytes: u64,
    /// Compares the written file with its row groups.
    pub(super) proving: Proving,
    pub(super) tally: Tally,
}

impl Splicing<'_> {
    /// Adds the row groups of a shard and its sidecar; returns false if they cannot be spliced.
    fn add_shard(&mut self, loaded: Loaded) -> Result<bool> {
        let Loaded { source, sidecar } = loaded;
        if !self.add_source(&source)? {
            return Ok(false);
        }
        self.shard.append_sidecar_part(&sidecar)?;
        self.release_if_large()
    }
}

impl<'a, S: TakesRowGroups> Splicing<'a, S> {
    /// Starts with an empty shard.
    pub(super) fn new(parquet: &'a ParquetEncoder, shard: S, row_group: u64, cancel: &'a Cancel) -> Self {
        Self {
            parquet,
            shard,
            row_group,
            cancel,
            parts: Vec::new(),
            bytes: 0,
            held: 0,
            ratio: INITIAL_RATIO,
            rows: Vec::new(),
            rows_bytes: 0,
            proving: Proving::default(),
            tally: Tally::default(),
        }
    }

    /// Adds the row groups of a file; returns false if they cannot be spliced.
    pub(super) fn add_source(&mut self, source: &Arc<Source>) -> Result<bool> {
        self.hold_source(source);
        for (group, _) in source.row_groups().iter().enumerate().filter(|(_, size)| size.rows > 0) {
            if !self.add_part(GroupPart::whole(source, group))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the memory of a file whose row groups follow.
    pub(super) fn hold_source(&mut self, source: &Source) {
        self.held += source.held_bytes();
    }

    /// Ends the row group if the files of its parts use too much memory; returns false if they cannot be spliced.
    pub(super) fn release_if_large(&mut self) -> Result<bool> {
        Ok((self.held as f64) < LARGE_RATIO * self.row_group as f64 || self.end_group()?)
    }

    /// Adds a row group of a file, or a slice of one; returns false if it cannot be spliced.
    pub(super) fn add_part(&mut self, part: GroupPart) -> Result<bool> {
        self.end_rows()?;
        let bytes = part.uncompressed_bytes();
        let wanted = self.row_group as f64;
        if (self.bytes.saturating_add(bytes)) as f64 > LARGE_RATIO * wanted && !self.end_group()? {
            return Ok(false);
        }
        self.parts.push(part);
        self.bytes += bytes;
        let enough = if self.parts.len() == 1 { wanted } else { SURPLUS_RATIO * wanted / self.ratio };
        Ok((self.bytes as f64) < enough || self.end_group()?)
    }

    /// Adds a row group of a file that becomes one of the output, whose pages stay as they are; returns false if it, or
    /// those before it, cannot be spliced. Small row groups are gathered.
    pub(super) fn add_whole(&mut self, part: GroupPart) -> Result<bool> {
        if part.uncompressed_bytes() < self.row_group / SMALL_GROUPS {
            return self.add_part(part);
        }
        Ok(self.end_group()? && self.add_part(part)? && self.end_group()?)
    }

    /// Adds decoded rows; returns false if the row groups before them cannot be spliced.
    pub(super) fn add_rows(&mut self, batch: RecordBatch) -> Result<bool> {
        if !self.end_group()? {
            return Ok(false);
        }
        self.rows_bytes += logical_bytes(&batch);
        self.rows.push(batch);
        if self.rows_bytes >= self.row_group {
            self.end_rows()?;
        }
        Ok(true)
    }

    /// Encodes the collected rows as a row group.
    pub(super) fn end_rows(&mut self) -> Result<()> {
        self.rows_bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        if rows.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(());
        }
        self.cancel.check()?;
        let group = self.parquet.encode(&rows)?;
        self.append_group(group)
    }

    fn append_group(&mut self, group: RowGroup) -> Result<()> {
        if let Some(note) = self.shard.append_group(group)? {
            self.proving.add_group(note, || self.shard.open_unfinished());
        }
        Ok(())
    }

    /// Splices the collected parts into a row group; returns false if they cannot be spliced.
    pub(super) fn end_group(&mut self) -> Result<bool> {
        if self.parts.is_empty() {
            return Ok(true);
        }
        self.cancel.check()?;
        let parts = std::mem::take(&mut self.parts);
        let bytes = std::mem::take(&mut self.bytes);
        self.held = 0;
        let Some((group, tally)) = splice_groups(self.parquet, &parts)? else { return Ok(false) };
        self.ratio = (group.uncompressed_bytes() as f64 / bytes.max(1) as f64).clamp(0.5, 1.0);
        self.append_group(group)?;
        self.tally += tally;
        Ok(true)
    }
}

/// Divides the inputs into batches that are read at once.
pub(super) fn input_batches<T>(inputs: &[(ShardMeta, T)]) -> impl Iterator<Item = &[(ShardMeta, T)]> {
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
