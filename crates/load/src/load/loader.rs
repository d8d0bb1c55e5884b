//! A loader: what is known before the first batch, and the start of epochs.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use arrow::datatypes::{DataType, FieldRef, SchemaRef};

use super::{
    batches::{Batches, EpochJob},
    columns::{KEY, Layout, LoadColumns},
    framed::{Checked, each_extension},
    memory::MemoryShares,
    plan::EpochPlan,
    pool::BytePool,
    rows::read_rows,
    settings::{Geometry, LoaderSettings},
    source::RecordSource,
    stats::Counters,
    window::HeldBytes,
};
use crate::{
    codec::{Codec, hex::to_hex},
    dataset::{PositionedShard, Positions, ShardMeta, Snapshot, check_folders},
    error::{Error, Result},
    format::{OutputFormat, parquet},
    schema,
};

/// Shards that are looked into to learn which files samples have.
const SAMPLED_SHARDS: usize = 8;
/// Bytes of each of them.
const SAMPLED_BYTES: u64 = 1 << 20;
/// Rows that are decoded to learn how large they are.
const SAMPLED_ROWS: u64 = 1024;
/// Bytes of a record beside its values: its number, its turn.
const RECORD_OVERHEAD: u64 = 16;
/// Bytes of a cell, and what a key may have.
const CELL_BYTES: u64 = 8;
const KEY_BYTES: u64 = 32;
/// Readers of a remote store, where most of the time is waiting.
const REMOTE_READERS: usize = 64;

/// What is known of a loader.
#[derive(Debug, Clone)]
pub struct LoaderFacts {
    /// Records of an epoch over all ranks, those that are left out or erased included.
    pub records: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Records that each epoch leaves out, because they do not fill a step.
    pub dropped_per_epoch: u64,
    /// Hash of the positions, on which the order depends.
    pub basis: [u8; 32],
    /// The version.
    pub version: u64,
    /// Root of the version in hex, if its log entry has one.
    pub root: Option<String>,
    /// Records that were erased from the version after it was committed: their slots stay empty.
    pub erased: u64,
    /// Records that are read together.
    pub block: u64,
    /// Number of lanes.
    pub lanes: u64,
    /// Records of a lane that are shuffled together.
    pub window: u64,
    /// Records of a step over all ranks.
    pub batch: u64,
    /// Number of shards.
    pub shards: usize,
    /// The columns of batches.
    pub schema: SchemaRef,
}

/// Loads batches of one version, or of one of its splits. It is cheap to clone; clones share what they know of shards.
#[derive(Debug, Clone)]
pub struct Loader(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    settings: LoaderSettings,
    geometry: Geometry,
    facts: LoaderFacts,
    source: Arc<RecordSource>,
    columns: LoadColumns,
    memory: MemoryShares,
    /// Buffers of batches.
    pool: BytePool,
    /// An epoch that is read ahead, and its number.
    ahead: Mutex<Option<(u64, Batches)>>,
}

impl Opened {
    /// Replaces the epoch that is read ahead.
    fn replace_ahead(&self, by: Option<(u64, Batches)>) -> Option<(u64, Batches)> {
        std::mem::replace(&mut *self.ahead.lock().unwrap_or_else(PoisonError::into_inner), by)
    }
}

/// The epoch after one that is being delivered.
#[derive(Debug)]
pub(super) struct NextEpoch {
    loader: Weak<Opened>,
    epoch: u64,
}

impl NextEpoch {
    /// Begins to read it, unless the loader is not used any more. `held` are the windows of the epoch before.
    pub(super) fn begin(&self, held: &HeldBytes) {
        let Some(loader) = self.loader.upgrade().map(Loader) else { return };
        // What fails will fail again when the epoch is asked for, and is told then.
        if let Ok(batches) = loader.start_beside(self.epoch, 0, 1, Some(Arc::clone(held))) {
            drop(loader.0.replace_ahead(Some((self.epoch, batches))));
        }
    }

    /// Ends reading it.
    pub(super) fn forget(&self) {
        if let Some(loader) = self.loader.upgrade() {
            drop(loader.replace_ahead(None));
        }
    }
}

impl Loader {
    /// Opens a loader. Lists of the log and a few records are read; no thread keeps running.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if there are no records, a setting is impossible, or the memory does
    /// not suffice, with the memory that does and the window that fits; when something cannot be read.
    pub fn open(snapshot: &Snapshot, settings: LoaderSettings) -> Result<Self> {
        let source = open_source(snapshot, settings.split.as_deref())?;
        let basis = source.positions.basis();
        let entry = snapshot.entry();
        let geometry = Geometry::new(&settings, &source.positions, entry.settings.shard_format)?;
        let plan = EpochPlan::new(&settings, geometry, source.positions.records(), basis, 0)?;
        let shards = source.positions.shards().len();
        let columns = open_columns(snapshot, &source, settings.columns.as_deref())?;
        let record_bytes = record_bytes(&source, &columns, geometry.block)?;
        let load = plan.lane_load(record_bytes)?;
        let memory = MemoryShares::new(&settings, &load, readers_of(&source, settings.threads.max(1)))?;
        let source = Arc::new(source.with_kept_bytes(with_rounding(memory.window_bytes), memory.place_bytes));
        let pool = BytePool::new(with_rounding(memory.batch_bytes.saturating_mul(memory.ahead + 2)));
        let Geometry { block, lanes, window } = geometry;
        let facts = LoaderFacts {
            records: source.positions.records(),
            steps_per_epoch: plan.layout().steps(),
            dropped_per_epoch: plan.layout().dropped(),
            basis,
            version: snapshot.version().0,
            root: snapshot.committed_root().map(|root| to_hex(&root)),
            erased: source.positions.holes(),
            block,
            lanes,
            window,
            batch: settings.global_batch_size,
            shards,
            schema: SchemaRef::clone(&columns.schema),
        };
        Ok(Self(Arc::new(Opened { settings, geometry, facts, source, columns, memory, pool, ahead: Mutex::default() })))
    }

    /// Returns what is known of the loader.
    pub fn facts(&self) -> LoaderFacts {
        self.0.facts.clone()
    }

    /// Starts an epoch from one of its steps on.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if the epoch has fewer steps; when no thread can be started.
    pub fn start(&self, epoch: u64, first_step: u64) -> Result<Batches> {
        self.start_every(epoch, first_step, 1)
    }

    /// Starts every `stride`-th step of an epoch, from one of them on. So several processes share an epoch: each reads
    /// the windows that its steps need, and makes no batch of another step.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if the stride is 0, or as [`start`](Self::start).
    pub fn start_every(&self, epoch: u64, first_step: u64, stride: u64) -> Result<Batches> {
        if stride == 0 {
            return Err(Error::usage("expected a stride of 1 or more, found 0"));
        }
        let steps = self.0.facts.steps_per_epoch;
        if first_step > steps && stride == 1 {
            return Err(Error::usage(format!("expected a step from 0 to {steps}, found {first_step}")));
        }
        let is_wanted = |(known, _): &(u64, Batches)| (*known, 0, 1) == (epoch, first_step, stride);
        match self.0.replace_ahead(None).filter(is_wanted) {
            Some((_, batches)) => {
                batches.begin();
                Ok(batches)
            }
            None => self.start_beside(epoch, first_step, stride, None),
        }
    }

    /// Whether an epoch is read ahead.
    #[cfg(test)]
    pub(super) fn has_ahead(&self) -> bool {
        self.0.ahead.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Starts an epoch beside the windows of the one before.
    fn start_beside(&self, epoch: u64, first_step: u64, stride: u64, beside: Option<HeldBytes>) -> Result<Batches> {
        let Opened { settings, geometry, facts, source, columns, memory, pool, .. } = &*self.0;
        let plan = EpochPlan::new(settings, *geometry, facts.records, facts.basis, epoch)?;
        let threads = settings.threads.max(1);
        let job = EpochJob {
            source: Arc::clone(source),
            columns: columns.clone(),
            plan,
            epoch,
            window_bytes: memory.window_bytes,
            most_window_bytes: memory.most_window_bytes,
            record_bytes: memory.record_bytes,
            without: settings.without.clone(),
            stride,
            ahead: memory.ahead,
            pool: pool.clone(),
            readers: readers_of(source, threads),
            gatherers: threads,
            next: epoch
                .checked_add(1)
                .filter(|_| stride == 1)
                .map(|epoch| NextEpoch { loader: Arc::downgrade(&self.0), epoch }),
        };
        Batches::start(job, first_step, beside)
    }
}

/// Opens the records of a version, or of one of its splits.
pub(super) fn open_source(snapshot: &Snapshot, split: Option<&str>) -> Result<RecordSource> {
    let dataset = snapshot.dataset();
    let positions = Positions::of_snapshot(snapshot, split)?;
    if positions.records() == 0 {
        return Err(
            Error::usage("expected records to load, found none").at_location(dataset.store().location().to_string())
        );
    }
    if positions.records() == positions.holes() {
        return Err(Error::usage("expected records to load, found none: all were erased")
            .at_location(dataset.store().location().to_string()));
    }
    check_folders(dataset.store().as_ref(), positions.shards().iter().filter_map(PositionedShard::meta))?;
    Ok(RecordSource::new(dataset.clone(), positions, snapshot.entry().settings.shard_format.is_columnar()))
}

/// Finds the columns of the records, or those that were chosen.
pub(super) fn open_columns(
    snapshot: &Snapshot,
    source: &RecordSource,
    chosen: Option<&[String]>,
) -> Result<LoadColumns> {
    let format = snapshot.entry().settings.shard_format;
    let columns = match format {
        OutputFormat::Tar => part_columns(source, chosen)?,
        OutputFormat::TfRecord => LoadColumns::of_examples(chosen)?,
        OutputFormat::Parquet => row_columns(snapshot, source, chosen)?,
    };
    check_compression(source, format)?;
    Ok(columns)
}

/// Returns the bytes of buffers that hold so many: they are rounded up by up to an eighth, and sizes differ.
fn with_rounding(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 4)
}

/// Returns the number of threads that read.
pub(super) fn readers_of(source: &RecordSource, threads: usize) -> usize {
    let is_local = source.dataset.store().location().local_path().is_some();
    if is_local { threads } else { threads.max(REMOTE_READERS) }
}

/// Learns the extensions of samples from the beginnings of some shards. Those that were asked for are looked for in all
/// shards.
fn part_columns(source: &RecordSource, chosen: Option<&[String]>) -> Result<LoadColumns> {
    let shards = source.positions.shards().len();
    let mut known = BTreeSet::new();
    let sampled: BTreeSet<usize> =
        (0..SAMPLED_SHARDS).map(|i| i * shards.saturating_sub(1) / (SAMPLED_SHARDS - 1)).collect();
    for shard in &sampled {
        add_extensions(source, *shard, &mut known)?;
    }
    let is_missing =
        |known: &BTreeSet<String>| chosen.into_iter().flatten().any(|name| name != KEY && !known.contains(name));
    for shard in (0..shards).filter(|shard| !sampled.contains(shard)) {
        if !is_missing(&known) {
            break;
        }
        add_extensions(source, shard, &mut known)?;
    }
    LoadColumns::of_parts(&known, chosen)
}

fn add_extensions(source: &RecordSource, shard: usize, known: &mut BTreeSet<String>) -> Result<()> {
    let Some(positioned) = source.positions.shards().get(shard) else { return Ok(()) };
    let had = positioned.committed();
    let average = had.raw_bytes / had.records.max(1);
    let records = (SAMPLED_BYTES / average.max(1)).clamp(1, had.records.max(1));
    let first = positioned.first_position();
    let rows = source.positions.rows_at(first..first + records.min(had.records));
    for piece in rows.into_iter().filter(|piece| !piece.rows.is_empty()) {
        let framed = source.read_framed(piece.shard, piece.rows, Checked::None, &Counters::default())?;
        let mut add = |extension: &[u8]| {
            // Of a name that is no text, no column can be made; reading it is an error.
            if let Ok(extension) = std::str::from_utf8(extension)
                && !extension.is_empty()
                && !known.contains(extension)
            {
                known.insert(extension.to_owned());
            }
        };
        each_extension(&framed, &mut add).map_err(|e| e.at_location(source.place_of(shard)))?;
    }
    Ok(())
}

/// Takes the columns from the settings of the dataset, or from its first shard.
fn row_columns(snapshot: &Snapshot, source: &RecordSource, chosen: Option<&[String]>) -> Result<LoadColumns> {
    let of_shard = source.open_table(first_with_records(source)?)?;
    let stated = snapshot.entry().settings.types.as_ref();
    let fields: Vec<FieldRef> = match stated {
        // A shard states a type as it is stored; the settings state those of columns that it lacks or had otherwise.
        Some(types) => {
            let stored = parquet::storable_fields(&schema::settle_fields(types));
            let of_shard = of_shard.schema();
            let same = |field: &FieldRef| {
                let found = of_shard.field_with_name(field.name()).ok();
                found.filter(|found| found.data_type() == field.data_type()).map(|found| Arc::new(found.clone()))
            };
            stored.iter().map(|field| same(field).unwrap_or_else(|| Arc::clone(field))).collect()
        }
        None => of_shard.schema().fields().to_vec(),
    };
    LoadColumns::of_rows(&fields, chosen)
}

/// Returns the first shard of which something is left.
fn first_with_records(source: &RecordSource) -> Result<usize> {
    let first = source.positions.shards().iter().position(|shard| shard.meta().is_some());
    first.ok_or_else(|| Error::internal("expected a shard with records, found none"))
}

/// Refuses shards that can only be decompressed from their beginning.
fn check_compression(source: &RecordSource, format: OutputFormat) -> Result<()> {
    let is_stream = |meta: &&ShardMeta| meta.codec != Codec::None && meta.body_bytes == 0;
    let mut shards = source.positions.shards().iter().filter_map(PositionedShard::meta);
    match shards.find(is_stream).filter(|_| !format.is_columnar()) {
        None => Ok(()),
        Some(meta) => Err(Error::usage("expected shards that can be read in parts, found one compressed stream")
            .at_location(source.dataset.store().location().join(&meta.path).to_string())
            .with_hint("`shardify convert` it into a new dataset")),
    }
}

/// Estimates the bytes of a record in memory.
fn record_bytes(source: &RecordSource, columns: &LoadColumns, block: u64) -> Result<u64> {
    let records = source.positions.records().max(1);
    let raw: u64 = source.positions.shards().iter().map(|shard| shard.committed().raw_bytes).sum();
    let average = raw.div_ceil(records);
    let found = match &columns.layout {
        Layout::Parts(parts) => average + KEY_BYTES + CELL_BYTES * parts.len() as u64,
        Layout::Examples => average + CELL_BYTES,
        Layout::Rows(_) => {
            let shard = first_with_records(source)?;
            let left = source.positions.shards().get(shard).and_then(PositionedShard::meta);
            let count = left.map_or(0, |meta| meta.records).min(SAMPLED_ROWS).min(block);
            let place = source.place_of(shard);
            let sampled = 0..count;
            let rows = read_rows(source.open_table(shard)?, std::slice::from_ref(&sampled), &columns.schema, false);
            let rows = rows.map_err(|e| e.at_location(place))?;
            let fixed: u64 = columns.schema.fields().iter().map(|field| fixed_bytes(field.data_type())).sum();
            let measured = rows.get_array_memory_size() as u64 / count.max(1);
            // Buffers of few rows have unused space; texts may be longer elsewhere.
            measured.max(fixed)
        }
    };
    Ok(found + RECORD_OVERHEAD)
}

fn fixed_bytes(data_type: &DataType) -> u64 {
    data_type.primitive_width().unwrap_or(0) as u64
}
