//! A stand-in for the crate `shardify-load`, with the same face: batches of made-up columns in the order of a loader.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    time::Duration,
};

use arrow::{
    array::{ArrayRef, BinaryBuilder, Float32Array, Int64Array, RecordBatch, StringArray},
    datatypes::{Schema, SchemaRef},
};
use shardify_core::error::{Error, Result};
use shardify_dataset::dataset::Snapshot;
use shardify_order::{EpochOrder, OrderParameters, Remainder, StepLayout};

#[derive(Debug, Clone, Default)]
pub(crate) struct LoaderSettings {
    pub(crate) split: Option<String>,
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) global_batch_size: u64,
    pub(crate) seed: u64,
    pub(crate) rank: u64,
    pub(crate) world_size: u64,
    pub(crate) block: Option<u64>,
    pub(crate) lanes: Option<u64>,
    pub(crate) window: Option<u64>,
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    pub(crate) drop_last: bool,
    pub(crate) shuffle: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct LoaderFacts {
    pub(crate) records: u64,
    pub(crate) steps_per_epoch: u64,
    pub(crate) dropped_per_epoch: u64,
    pub(crate) basis: [u8; 32],
    pub(crate) root: Option<[u8; 32]>,
    pub(crate) block: u64,
    pub(crate) lanes: u64,
    pub(crate) window: u64,
    pub(crate) shards: u64,
    pub(crate) schema: SchemaRef,
}

pub(crate) struct Loader {
    settings: LoaderSettings,
    records: u64,
}

pub(crate) struct LoadedBatch {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) expected: u64,
    pub(crate) numbers: Vec<u64>,
    pub(crate) positions: Vec<u64>,
    pub(crate) columns: RecordBatch,
}

fn refused(error: impl std::error::Error) -> Error {
    Error::usage(error.to_string())
}

impl Loader {
    pub(crate) fn open(snapshot: &Snapshot, settings: LoaderSettings) -> Result<Self> {
        let loader = Self { settings, records: snapshot.entry().totals.records };
        loader.layout(0)?;
        Ok(loader)
    }

    fn lanes(&self) -> u64 {
        self.settings.lanes.unwrap_or(1)
    }

    fn layout(&self, epoch: u64) -> Result<(EpochOrder, StepLayout)> {
        let settings = &self.settings;
        let (block, window) = (settings.block.unwrap_or(8), settings.window.unwrap_or(64));
        let (records, lanes, seed, basis) = (self.records, self.lanes(), settings.seed, [7; 32]);
        let order =
            EpochOrder::new(OrderParameters { records, block, lanes, window, seed, epoch, basis }).map_err(refused)?;
        let rest = if settings.drop_last { Remainder::Dropped } else { Remainder::Delivered };
        let layout = StepLayout::new(&order, settings.global_batch_size, rest).map_err(refused)?;
        layout.rank(settings.rank, settings.world_size).map_err(refused)?;
        Ok((order, layout))
    }

    pub(crate) fn facts(&self) -> LoaderFacts {
        let steps = self.layout(0).map_or(0, |(_, layout)| layout.steps());
        LoaderFacts {
            records: self.records,
            steps_per_epoch: steps,
            dropped_per_epoch: self.records.saturating_sub(steps * self.settings.global_batch_size),
            basis: [7; 32],
            root: None,
            block: self.settings.block.unwrap_or(8),
            lanes: self.lanes(),
            window: self.settings.window.unwrap_or(64),
            shards: 1,
            schema: Arc::new(Schema::empty()),
        }
    }

    pub(crate) fn start(&self, epoch: u64, first_step: u64) -> Result<Batches> {
        let (order, layout) = self.layout(epoch)?;
        let rank = layout.rank(self.settings.rank, self.settings.world_size).map_err(refused)?;
        let (sender, receiver) = sync_channel(2);
        let wanted = self.settings.columns.clone();
        let fill = move || {
            for step in first_step..layout.steps() {
                let turns = layout.turns_of(step, rank);
                let positions: Vec<u64> =
                    turns.into_iter().flatten().filter_map(|turn| order.position_at(turn)).collect();
                let columns = made_up(&positions, wanted.as_deref());
                let expected = positions.len() as u64;
                let numbers = positions.clone();
                let batch = columns.map(|columns| LoadedBatch { epoch, step, expected, numbers, positions, columns });
                if sender.send(batch).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(fill).map_err(|e| Error::storage("no thread").with_cause(e))?;
        Ok(Batches { receiver })
    }
}

fn made_up(positions: &[u64], wanted: Option<&[String]>) -> Result<RecordBatch> {
    let ids: Int64Array = positions.iter().map(|p| i64::try_from(*p).unwrap_or(0)).collect();
    #[expect(clippy::cast_precision_loss, reason = "made up")]
    let halves: Float32Array = positions.iter().map(|p| (p % 3 > 0).then_some(*p as f32 / 2.0)).collect();
    let names: StringArray = positions.iter().map(|p| Some(format!("name {p}"))).collect();
    let mut parts = BinaryBuilder::new();
    positions.iter().for_each(|p| parts.append_value(p.to_le_bytes()));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(ids)),
        ("half", Arc::new(halves)),
        ("name", Arc::new(names)),
        ("jpg", Arc::new(parts.finish())),
    ];
    let chosen = columns.into_iter().filter(|(name, _)| wanted.is_none_or(|all| all.iter().any(|one| one == name)));
    Ok(RecordBatch::try_from_iter(chosen)?)
}

pub(crate) struct Batches {
    receiver: Receiver<Result<LoadedBatch>>,
}

impl Batches {
    pub(crate) fn next_within(&mut self, limit: Duration) -> Option<Option<Result<LoadedBatch>>> {
        match self.receiver.recv_timeout(limit) {
            Ok(batch) => Some(Some(batch)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(None),
        }
    }

    pub(crate) fn stats(&self) -> LoadStats {
        LoadStats::default()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoadStats {
    pub(crate) samples: u64,
    pub(crate) steps: u64,
    pub(crate) requests: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_delivered: u64,
    pub(crate) seconds_waited: f64,
    pub(crate) seconds_read: f64,
    pub(crate) seconds_decoded: f64,
    pub(crate) seconds_gathered: f64,
    pub(crate) memory_now: u64,
    pub(crate) memory_peak: u64,
}
